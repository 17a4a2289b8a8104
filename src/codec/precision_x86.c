/* SPDX-License-Identifier: Apache-2.0 */
/* Rounding with AVX2. */
#define SL_TARGET __attribute__((target("avx2")))
#include "codec/precision_loops.h"

/* What tests switch off for shuffle is off here, too. */
sl_rounder *const *sl_precision_rounders(void)
{
	return sl_simd() == SL_SIMD_AVX2 ? rounders : NULL;
}
