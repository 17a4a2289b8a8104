/* SPDX-License-Identifier: Apache-2.0 */
#include "reaction_row.h"
#include "reaction.h"

/*
 * With a weight of 1 for the cell itself the stencil is a product, (1/2 1 1/2) down times (1/2 1 1/2)
 * across, so it takes one sum down and one across; as the weights add up to 4, the cell is taken off
 * four times.
 */
static inline void sum_down(size_t columns, struct row_source in, float *restrict out)
{
	const float *above = in.above - 1, *here = in.here - 1, *below = in.below - 1;

	for (size_t i = 0; i < columns + 2; i++)
		out[i] = 0.5F * (above[i] + below[i]) + here[i];
}

static inline float laplacian(const float *sums, float here)
{
	return 0.5F * (sums[0] + sums[2]) + sums[1] - 4.0F * here;
}

ROW_CLONES
void row_step(const struct row_rates *rates, size_t columns, struct row_source u,
              struct row_source v, float *sums, float *out_u, float *out_v)
{
	const struct row_rates r = *rates;
	const float *restrict sums_u = sums, *restrict sums_v = sums + columns + 2;
	const float *restrict here_u = u.here, *restrict here_v = v.here;
	float *restrict to_u = out_u, *restrict to_v = out_v;

	sum_down(columns, u, sums);
	sum_down(columns, v, sums + columns + 2);
	for (size_t i = 0; i < columns; i++) {
		float ui = here_u[i], vi = here_v[i];
		float uvv = ui * vi * vi;
		float du = r.diffusion_u * laplacian(sums_u + i, ui) - uvv + r.feed * (1.0F - ui);
		float dv = r.diffusion_v * laplacian(sums_v + i, vi) + uvv - r.decay * vi;
		float next = vi + dv * r.deltat;

		to_u[i] = ui + du * r.deltat;
		to_v[i] = next < REACTION_V_LEAST ? 0.0F : next;
	}
}
