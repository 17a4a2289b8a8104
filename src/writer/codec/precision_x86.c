/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rounding with AVX2
 *
 * The loops of precision_loops.h, compiled for AVX2.
 *
 * Threads: any; no state.
 */
#define SL_TARGET __attribute__((target("avx2")))
#include "codec/precision_loops.h"

/* Tests disable AVX2 for the shuffle and so here. */
sl_rounder *const *sl_precision_rounders(void)
{
	return sl_simd_used() == SL_SIMD_AVX2 ? rounders : NULL;
}
