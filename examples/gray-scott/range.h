/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GRAY_SCOTT_RANGE_H
#define GRAY_SCOTT_RANGE_H

#include <stddef.h>

/*
 * The lowest value, and the one that all but a hundredth of what is not background stay below: a few
 * peaks do not make everything else dark. Background is what is within a fiftieth of the lowest value, as
 * far as values go. Values that are no finite numbers do not count; where there are no others, low is
 * above high.
 */
void range_of(const float *values, size_t count, float *low, float *high);

#endif
