/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The loops of precision.c, compiled once per kind of processor. The including file defines
 * SL_TARGET and gets rounders[], indexed by enum sl_float.
 *
 * Rounding works on the bits: it adds half of the lowest kept place and lets the carry run into the
 * exponent. The loops have no branches, so that the compiler vectorises them. Numbers without sign
 * compare like their bits, so the largest error is computed on bits, too. All comparisons are of
 * signed integers, which vectors support.
 */
#include <string.h>

#include "codec/simd.h"

/* Numbers per part, so that a part is still in cache when its error is computed. */
#define PART 1024

/*
 * Numbers that would round to infinity are truncated, which yields the largest finite number.
 * infinity is the exponent with all bits set.
 */
#define ROUND(name, type, wide, infinity)                                                \
	SL_TARGET static void name(const type *in, size_t count,                         \
	                           const struct sl_rounding *rounding, type *out)        \
	{                                                                                \
		const type below = rounding->half - 1, mask = rounding->mask;            \
		const type all = (type)(((wide)1 << (8 * sizeof(type) - 1)) - 1);        \
		const unsigned drop = rounding->drop;                                    \
                                                                                         \
		for (size_t i = 0; i < count; i++) {                                     \
			type size = in[i] & all, odd = (type)(size >> drop) & 1;         \
			type near = (type)((wide)size + (wide)below + (wide)odd) & mask; \
			type cut = size & mask;                                          \
                                                                                         \
			near = near < 0 || near >= (infinity) ? cut : near;              \
			near = size >= (infinity) ? size : near;                         \
			out[i] = near | (in[i] & (type)~all);                            \
		}                                                                        \
	}

ROUND(round16, int16_t, uint16_t, INT16_C(0x7c00))
ROUND(round32, int32_t, uint32_t, INT32_C(0x7f800000))
ROUND(round64, int64_t, uint64_t, INT64_C(0x7ff) << 52)

/*
 * Returns the number without its sign, or 0 for NaN and infinity, so that they do not affect the
 * error. A mask avoids a branch.
 */
SL_TARGET static inline float size16(int16_t bits)
{
	int32_t size = bits & 0x7fff;
	float value;

	size = size << 13 & -(size < 0x7c00);
	memcpy(&value, &size, sizeof(value));
	return value * 0x1p112f; /* aligns the exponents of both types */
}

SL_TARGET static inline float size32(int32_t bits)
{
	int32_t size = bits & INT32_MAX;
	float value;

	size &= -(size < 0x7f800000);
	memcpy(&value, &size, sizeof(value));
	return value;
}

SL_TARGET static inline double size64(int64_t bits)
{
	int64_t size = bits & INT64_MAX;
	double value;

	size &= -(int64_t)(size < INT64_C(0x7ff) << 52);
	memcpy(&value, &size, sizeof(value));
	return value;
}

/* Computes the largest difference; differences have few bits and are exact. */
#define ERROR(name, type, real, whole, all, size_of)                                      \
	SL_TARGET static double name(const type *before, const type *after, size_t count) \
	{                                                                                 \
		whole largest = 0;                                                        \
		real value;                                                               \
                                                                                          \
		for (size_t i = 0; i < count; i++) {                                      \
			real difference = size_of(after[i]) - size_of(before[i]);         \
			whole bits;                                                       \
                                                                                          \
			memcpy(&bits, &difference, sizeof(bits));                         \
			bits &= (all);                                                    \
			largest = bits > largest ? bits : largest;                        \
		}                                                                         \
		memcpy(&value, &largest, sizeof(value));                                  \
		return value;                                                             \
	}

ERROR(error16, int16_t, float, int32_t, INT32_MAX, size16)
ERROR(error32, int32_t, float, int32_t, INT32_MAX, size32)
ERROR(error64, int64_t, double, int64_t, INT64_MAX, size64)

/* Rounds each part into a buffer first, because in may equal out. */
#define ROUND_ALL(name, type, round, error)                                         \
	SL_TARGET static double name(const void *in, size_t count,                  \
	                             const struct sl_rounding *rounding, void *out) \
	{                                                                           \
		const type *from = in;                                              \
		type *to = out, part[PART];                                         \
		double largest = 0, here;                                           \
                                                                                    \
		for (size_t i = 0, n; i < count; i += n) {                          \
			n = SL_MIN(count - i, PART);                                \
			round(from + i, n, rounding, part);                         \
			here = error(from + i, part, n);                            \
			largest = SL_MAX(largest, here);                            \
			memcpy(to + i, part, n * sizeof(type));                     \
		}                                                                   \
		return largest;                                                     \
	}

ROUND_ALL(all16, int16_t, round16, error16)
ROUND_ALL(all32, int32_t, round32, error32)
ROUND_ALL(all64, int64_t, round64, error64)

static sl_rounder *const rounders[] = {
	[SL_FLOAT16] = all16, [SL_FLOAT32] = all32, [SL_FLOAT64] = all64};
