/* SPDX-License-Identifier: Apache-2.0 */
#include "slab.h"

#include "ranks.h"

enum { HALO = 8 }; /* the steps of a pass of reaction.c */

int slab_open(struct slab *s, const struct reaction_options *grid, struct parallel *parallel)
{
	struct reaction_options part = *grid;
	size_t least = grid->rows / (size_t)ranks.count; /* a halo is of a single neighbour */

	*s = (struct slab){.columns = grid->columns, .halo = least < HALO ? (unsigned)least : HALO};
	s->first = ranks_first(grid->rows, ranks.own);
	s->rows = ranks_first(grid->rows, ranks.own + 1) - s->first;
	part.above = ranks.own > 0 ? s->halo : 0;
	part.below = ranks.own + 1 < ranks.count ? s->halo : 0;
	part.first = s->first - part.above;
	part.rows = part.above + s->rows + part.below;
	part.whole = grid->rows;
	return reaction_new(&part, parallel, &s->reaction);
}

void slab_close(struct slab *s)
{
	reaction_free(s->reaction);
}

/* Rows of u (0) or v (1), and the cells beside the first and the last column. */
static void slab_exchange(const struct slab *s, int which)
{
	size_t cells = (s->halo - 1) * reaction_stride(s->reaction) + s->columns + 2;
	float *above = reaction_row(s->reaction, which, 0) - 1;
	float *own = above + (ranks.own ? s->halo : 0) * reaction_stride(s->reaction);
	float *below = own + s->rows * reaction_stride(s->reaction);
	float *last = below - s->halo * reaction_stride(s->reaction);

	ranks_exchange(own, ranks.own - 1, below, ranks.own + 1, cells);
	ranks_exchange(last, ranks.own + 1, above, ranks.own - 1, cells);
}

void slab_step(struct slab *s, unsigned steps)
{
	while (steps > 0) {
		unsigned now = ranks.count > 1 && steps > s->halo ? s->halo : steps;

		slab_exchange(s, 0);
		slab_exchange(s, 1);
		reaction_step(s->reaction, now);
		steps -= now;
	}
}
