/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>

#include "range.h"

enum { BINS = 1024, BACKGROUND = BINS / 50, PEAKS = 100 };

void range_of(const float *values, size_t count, float *low, float *high)
{
	float least = INFINITY, most = -INFINITY;
	size_t bins[BINS] = {0}, all = 0, below = 0;
	int bin = BACKGROUND;

	for (size_t i = 0; i < count; i++) {
		if (!isfinite(values[i]))
			continue;
		least = values[i] < least ? values[i] : least;
		most = values[i] > most ? values[i] : most;
	}
	*low = least;
	*high = most;
	if (!(least < most))
		return;
	for (size_t i = 0; i < count; i++) {
		float share = (values[i] - least) / (most - least);
		int at = isfinite(share) ? (int)(share * (BINS - 1)) : 0;

		bins[at]++;
		all += at >= BACKGROUND;
	}
	while (bin < BINS - 1 && (below += bins[bin]) < all - all / PEAKS)
		bin++;
	*high = least + (most - least) * (float)(bin + 1) / BINS;
}
