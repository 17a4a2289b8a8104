/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The Gray-Scott reaction: u feeds v, v makes more of itself out of u, and both diffuse.
 *
 *	du/dt = Du lap(u) - u v v + feed (1 - u)
 *	dv/dt = Dv lap(v) + u v v - (feed + kill) v
 *
 * as in https://doi.org/10.1126/science.261.5118.189 (1993), after
 * https://doi.org/10.1016/0009-2509(84)87017-7 (1984). One explicit step is u += deltat du/dt. lap(x) is the
 * sum of weight * (neighbour - x) over the eight neighbours, 1/2 for those beside, above and below and 1/4
 * for the diagonal ones: second differences across, averaged by (1/8 3/4 1/8) down, and the other way
 * round, for a distance of 1 between cells.
 *
 * Nothing flows through the border (dx/dn = 0, Neumann's condition): a neighbour outside is the nearest
 * cell inside, x[-1] = x[0] and x[n] = x[n - 1], in the corners in both directions. So the sum of lap(x) over
 * all cells is 0.
 *
 * Every cell is computed by the same operations in the same order, none of them fused: the result is
 * the same, bit for bit, for any number of threads and on any machine with IEEE arithmetic.
 */
#ifndef GRAY_SCOTT_REACTION_H
#define GRAY_SCOTT_REACTION_H

#include <stddef.h>

#include "parallel.h"

struct reaction_options {
	size_t rows, columns; /* at least 1 */
	/* The grid is a part of a larger one with `whole` rows, from its row `first`. 0: it is all of it. */
	size_t first, whole;
	size_t above, below; /* of these rows belong to others: they are not copied */
	float feed, kill;
	float diffusion_u, diffusion_v;
	float deltat;
	unsigned blocks; /* that the reaction begins in */
};

#define REACTION_OPTIONS_INIT                                                           \
	{                                                                               \
		.rows = 1080, .columns = 1920, .feed = 0.014F, .kill = 0.054F,          \
		.diffusion_u = 0.1F, .diffusion_v = 0.05F, .deltat = 1.0F, .blocks = 1, \
	}

/* A v below this counts as none: it would only creep towards the denormal numbers, which are slow. */
#define REACTION_V_LEAST 1e-18F

struct reaction;

/*
 * u is 1 and v 0 but in blocks, where u is 0 and v is 1: one in the middle, a sixteenth of the rows high
 * and of the columns wide and at least one cell; or several smaller ones, in the same places of a grid of
 * that size each time. The threads outlive it. 0 or -ENOMEM.
 */
int reaction_new(const struct reaction_options *options, struct parallel *parallel,
                 struct reaction **out);
void reaction_free(struct reaction *reaction);

/* Row `row` of u (0) or v (1) until the next step, behind the cell beside it. The next row is reaction_stride() floats further. */
float *reaction_row(const struct reaction *reaction, int which, size_t row);
size_t reaction_stride(const struct reaction *reaction);

/* Sets one cell, for those who want to start with something else. */
void reaction_set(struct reaction *reaction, size_t row, size_t column, float u, float v);

void reaction_step(struct reaction *reaction, unsigned steps);

/* Copies u or v, row by row without gaps. */
void reaction_copy_u(const struct reaction *reaction, float *out);
void reaction_copy_v(const struct reaction *reaction, float *out);

#endif
