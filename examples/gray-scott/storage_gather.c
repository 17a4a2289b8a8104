/* SPDX-License-Identifier: Apache-2.0 */
/* Storage in the background on rank 0 alone: MPI_Gatherv brings the blocks of the other ranks to it, as submit. */
#include <errno.h>
#include <limits.h>
#include <mpi.h>
#include <stdlib.h>

#include "storage.h"

struct storage {
	struct storage *plain; /* of rank 0; on others NULL */
	float *block;          /* of the other ranks */
	int rank, count;
	int *counts, *offsets;
};

static bool gather_knows(const char *codec, int level, char *why, size_t size)
{
	return storage_plain.knows(codec, level, why, size);
}

static int gather_open(const struct storage_options *options, struct storage **out)
{
	struct storage_options all = *options;
	struct storage *s = calloc(1, sizeof *s);
	int ranks, offset;

	*out = s;
	if (!s)
		return -ENOMEM;
	if (options->whole * options->columns > INT_MAX)
		return -EOVERFLOW;
	MPI_Comm_rank(MPI_COMM_WORLD, &s->rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	offset = (int)(options->first * options->columns);
	s->count = (int)(options->rows * options->columns);
	s->counts = calloc((size_t)ranks, sizeof *s->counts);
	s->offsets = calloc((size_t)ranks, sizeof *s->offsets);
	s->block = s->rank ? malloc((size_t)s->count * sizeof *s->block) : NULL;
	if (!s->counts || !s->offsets || (s->rank && !s->block))
		return -ENOMEM;
	MPI_Gather(&s->count, 1, MPI_INT, s->counts, 1, MPI_INT, 0, MPI_COMM_WORLD);
	MPI_Gather(&offset, 1, MPI_INT, s->offsets, 1, MPI_INT, 0, MPI_COMM_WORLD);
	all.first = 0;
	all.rows = all.chunk_rows = all.whole;
	return s->rank ? 0 : storage_plain.open(&all, &s->plain);
}

/* The block of rank 0 is the first of the array. */
static int gather_acquire(struct storage *s, float **frame)
{
	*frame = s->block;
	return s->rank ? 0 : storage_plain.acquire(s->plain, frame);
}

static int gather_submit(struct storage *s, float *frame)
{
	if (s->rank) {
		MPI_Gatherv(frame, s->count, MPI_FLOAT, NULL, NULL, NULL, MPI_FLOAT, 0,
		            MPI_COMM_WORLD);
		return 0;
	}
	MPI_Gatherv(MPI_IN_PLACE, 0, MPI_FLOAT, frame, s->counts, s->offsets, MPI_FLOAT, 0,
	            MPI_COMM_WORLD);
	return storage_plain.submit(s->plain, frame);
}

static int gather_close(struct storage *s)
{
	return s->plain ? storage_plain.close(s->plain) : 0;
}

static struct storage_totals gather_totals(const struct storage *s)
{
	return s->plain ? storage_plain.totals(s->plain) : (struct storage_totals){0};
}

static const char *gather_message(const struct storage *s)
{
	return s && s->plain ? storage_plain.message(s->plain)
	                     : "no memory, or more cells than an int counts for MPI_Gatherv";
}

static void gather_free(struct storage *s)
{
	if (!s)
		return;
	if (s->plain)
		storage_plain.free(s->plain);
	free(s->block);
	free(s->counts);
	free(s->offsets);
	free(s);
}

const struct storage_kind storage_gather = {
	.name = "plain",
	.codec = "gzip",
	.knows = gather_knows,
	.open = gather_open,
	.acquire = gather_acquire,
	.submit = gather_submit,
	.close = gather_close,
	.totals = gather_totals,
	.message = gather_message,
	.free = gather_free,
};
