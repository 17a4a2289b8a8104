/* SPDX-License-Identifier: Apache-2.0 */
/* In the place of shuffle_x86.c and precision_x86.c on other processors. */
#include "frames/precision.h"
#include "frames/shuffle.h"

const struct sl_shuffle_kernel *sl_shuffle_kernel(enum sl_simd way)
{
	(void)way;
	return NULL;
}

sl_rounder *const *sl_precision_rounders(void)
{
	return NULL;
}
