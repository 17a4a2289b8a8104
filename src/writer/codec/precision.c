/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rounding of floating-point numbers
 *
 * Reduces numbers to fewer mantissa bits, so that they compress better.
 *
 * Threads: any; no state.
 */
#define SL_TARGET
#include "codec/precision_loops.h"

#include <assert.h>

unsigned sl_float_mantissa(enum sl_float type)
{
	static const unsigned bits[] = {[SL_FLOAT16] = 10, [SL_FLOAT32] = 23, [SL_FLOAT64] = 52};

	return bits[type];
}

double sl_precision_round(enum sl_float type, const void *in, size_t count, unsigned bits,
                          void *out)
{
	static const size_t sizes[] = {[SL_FLOAT16] = 2, [SL_FLOAT32] = 4, [SL_FLOAT64] = 8};
	sl_rounder *const *best = sl_precision_rounders();
	struct sl_rounding rounding;

	assert(bits);
	if (bits >= sl_float_mantissa(type)) {
		memmove(out, in, count * sizes[type]);
		return 0;
	}
	rounding.drop = sl_float_mantissa(type) - bits;
	rounding.half = UINT64_C(1) << (rounding.drop - 1);
	rounding.mask = ~(2 * rounding.half - 1);
	return (best ? best : rounders)[type](in, count, &rounding, out);
}
