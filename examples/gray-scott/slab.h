/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The reaction on all ranks of MPI: each has a slab of whole rows. Above and below it has copies of some rows of its
 * neighbours, which it computes, too: each step makes another of these wrong, from the outside. When none is right any
 * more, it gets them anew. So every cell is computed by the operations of reaction.h, and the result is the same bit for
 * bit for any number of ranks.
 */
#ifndef GRAY_SCOTT_SLAB_H
#define GRAY_SCOTT_SLAB_H

#include <mpi.h>

#include "reaction.h"

enum { SLAB_HALO = 8 }; /* rows of a neighbour, at most: the steps of a pass of reaction.c */

struct slab {
	MPI_Comm comm;
	int rank, ranks;
	size_t columns, whole; /* of the grid */
	size_t first, rows;    /* of the grid, which are this rank's */
	size_t above, below;   /* rows of the neighbours: halo or 0 */
	unsigned halo;
	MPI_Datatype halo_type; /* so many rows */
	struct reaction *reaction;
};

/* The slab of this rank; o->rows are those of the grid, at least as many as ranks. 0 or -ENOMEM. */
int slab_open(struct slab *slab, MPI_Comm comm, const struct reaction_options *o,
              struct parallel *parallel);
void slab_close(struct slab *slab);

/* Called by all ranks: neighbours wait for each other. */
void slab_step(struct slab *slab, unsigned steps);

/* Copies v of this rank's rows. */
void slab_copy_v(const struct slab *slab, float *out);

#endif
