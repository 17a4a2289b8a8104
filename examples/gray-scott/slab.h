/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The part of the grid that this rank computes: a slab of whole rows. Above and below it are copies of some rows of its
 * neighbours, which it computes, too: each step makes another of these wrong, from the outside. When none is right any
 * more, it gets them anew. So every cell is computed by the operations of reaction.h, and the result is the same bit for
 * bit for any number of ranks.
 */
#ifndef GRAY_SCOTT_SLAB_H
#define GRAY_SCOTT_SLAB_H

#include "reaction.h"

struct slab {
	size_t first, rows; /* of the grid, which are this rank's */
	size_t columns;
	unsigned halo; /* rows of a neighbour */
	struct reaction *reaction;
};

/* grid->rows are at least as many as ranks. 0 or -ENOMEM. */
int slab_open(struct slab *slab, const struct reaction_options *grid, struct parallel *parallel);
void slab_close(struct slab *slab);

/* Called by all ranks: neighbours wait for each other. */
void slab_step(struct slab *slab, unsigned steps);

#endif
