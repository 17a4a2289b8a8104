/* SPDX-License-Identifier: Apache-2.0 */
/* One step of one row: what the compiler turns into vector instructions, for several machines. */
#ifndef GRAY_SCOTT_REACTION_ROW_H
#define GRAY_SCOTT_REACTION_ROW_H

#include <stddef.h>

struct row_rates {
	float feed, decay; /* decay: feed + kill */
	float diffusion_u, diffusion_v;
	float deltat;
};

/* Rows are readable from -1 to columns. */
struct row_source {
	const float *above, *here, *below;
};

/* sums: room for twice columns + 2 floats, the thread's own. The results reach no other argument. */
void row_step(const struct row_rates *rates, size_t columns, struct row_source u,
              struct row_source v, float *sums, float *out_u, float *out_v);

#endif
