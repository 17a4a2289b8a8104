/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The processes that have a grid together: the ranks of MPI (ranks_mpi.c), or this process alone (ranks_alone.c). All of them
 * make the same calls in the same order.
 */
#ifndef GRAY_SCOTT_RANKS_H
#define GRAY_SCOTT_RANKS_H

#include <sluice/ranks.h>
#include <stddef.h>

extern struct ranks {
	int own, count; /* this process is number `own` of `count` */
} ranks;

/* Before everything else. */
void ranks_start(int *argc, char ***argv);
void ranks_end(void);
_Noreturn void ranks_abort(void);

/* Waits for the others. */
void ranks_meet(void);

/* Sends n floats to a rank, and receives n of another; to or from a rank that there is not: nothing. */
void ranks_exchange(const float *out, int to, float *in, int from, size_t n);
/* Brings the rows of all ranks to rank 0, whose own are the first of `frame`. */
void ranks_gather(float *frame, size_t rows, size_t columns);
/* Rank 0 gets the largest of these values of all ranks, and the sum. */
void ranks_reduce(double *most, int n, double *sum);

/* The writer of all ranks, and a series of which this rank has a block. They return as the calls of sluice. */
int ranks_open_writer(sluice_context *context, const char *path,
                      const struct sluice_writer_options *options, sluice_writer **out);
int ranks_add_series(sluice_writer *writer, const char *name,
                     const struct sluice_series_options *options, const struct sluice_block *block,
                     sluice_series **out);

/* Of a grid of so many rows: the first that belongs to this rank; to rank `count`: the end. */
static inline size_t ranks_first(size_t rows, int rank)
{
	return rows * (size_t)rank / (size_t)ranks.count;
}

#endif
