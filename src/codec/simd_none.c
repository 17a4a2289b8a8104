/* SPDX-License-Identifier: Apache-2.0 */
/* In the place of adler32_x86.c, precision_x86.c and shuffle_x86.c on other processors. */
#include "codec/adler32.h"
#include "codec/precision.h"
#include "codec/shuffle.h"

const struct sl_shuffle_kernel *sl_shuffle_kernel(enum sl_simd way)
{
	(void)way;
	return NULL;
}

sl_rounder *const *sl_precision_rounders(void)
{
	return NULL;
}

sl_adler_adder *sl_adler_kernel(void)
{
	return NULL;
}
