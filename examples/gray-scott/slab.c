/* SPDX-License-Identifier: Apache-2.0 */
#include "slab.h"

#include <string.h>

int slab_open(struct slab *s, MPI_Comm comm, const struct reaction_options *o,
              struct parallel *parallel)
{
	struct reaction_options part = *o;
	size_t ranks, rank, least;
	int rc;

	*s = (struct slab){.comm = comm, .columns = o->columns, .whole = o->rows};
	MPI_Comm_rank(comm, &s->rank);
	MPI_Comm_size(comm, &s->ranks);
	ranks = (size_t)s->ranks;
	rank = (size_t)s->rank;
	least = o->rows / ranks; /* rows of the smallest slab: a halo is of a single neighbour */
	s->halo = least < SLAB_HALO ? (unsigned)least : SLAB_HALO;
	s->first = o->rows * rank / ranks;
	s->rows = o->rows * (rank + 1) / ranks - s->first;
	s->above = rank > 0 ? s->halo : 0;
	s->below = rank + 1 < ranks ? s->halo : 0;
	part.first = s->first - s->above;
	part.rows = s->above + s->rows + s->below;
	part.whole = o->rows;
	rc = reaction_new(&part, parallel, &s->reaction);
	if (rc)
		return rc;
	/* With the cells beside the first and the last column. */
	MPI_Type_vector((int)s->halo, (int)o->columns + 2, (int)reaction_stride(s->reaction),
	                MPI_FLOAT, &s->halo_type);
	MPI_Type_commit(&s->halo_type);
	return 0;
}

void slab_close(struct slab *s)
{
	reaction_free(s->reaction);
	MPI_Type_free(&s->halo_type);
}

/* Sends rows to a neighbour, and receives those of the neighbour on the other side. */
static void slab_shift(struct slab *s, int which, int to, size_t rows, int from, size_t halo)
{
	MPI_Sendrecv(reaction_row(s->reaction, which, rows) - 1, 1, s->halo_type, to, which,
	             reaction_row(s->reaction, which, halo) - 1, 1, s->halo_type, from, which,
	             s->comm, MPI_STATUS_IGNORE);
}

static void slab_exchange(struct slab *s)
{
	int up = s->above ? s->rank - 1 : MPI_PROC_NULL;
	int down = s->below ? s->rank + 1 : MPI_PROC_NULL;
	size_t end = s->above + s->rows;

	for (int which = 0; which < 2; which++) {
		slab_shift(s, which, up, s->above, down, s->below ? end : 0);
		slab_shift(s, which, down, end - s->halo, up, 0);
	}
}

void slab_step(struct slab *s, unsigned steps)
{
	while (steps > 0) {
		unsigned now = s->ranks > 1 && steps > s->halo ? s->halo : steps;

		slab_exchange(s);
		reaction_step(s->reaction, now);
		steps -= now;
	}
}

void slab_copy_v(const struct slab *s, float *out)
{
	for (size_t row = 0; row < s->rows; row++)
		memcpy(out + row * s->columns, reaction_row(s->reaction, 1, s->above + row),
		       s->columns * sizeof *out);
}
