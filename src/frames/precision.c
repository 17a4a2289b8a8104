/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rounding of floating-point numbers to fewer bits of mantissa, on their bits: half of the last
 * place that stays, and a carry that runs into the exponent where it must. Loops without branches,
 * which the compiler turns into vectors. Largest errors are compared as bits, too: those of numbers
 * that are not negative are in the order of the numbers.
 */
#include <string.h>

#include "frames/codec.h"

/* A part of the frame, so that what is rounded is still in the cache when its error is looked at. */
#define PART 2048

/* What is dropped of a mantissa, and the rest of it. */
struct place {
	uint64_t half, mask;
	unsigned drop;
};

unsigned sl_float_mantissa(enum sl_float type)
{
	static const unsigned bits[] = {[SL_FLOAT16] = 10, [SL_FLOAT32] = 23, [SL_FLOAT64] = 52};

	return bits[type];
}

/*
 * The bits of a number, rounded. infinity: the exponent with all its bits. What would become
 * infinite is cut off instead, which is the largest number that there is.
 */
#define ROUND(name, type, sign, infinity)                                                    \
	static void name(const type *in, size_t count, const struct place *place, type *out) \
	{                                                                                    \
		const type half = place->half, mask = place->mask;                           \
		const unsigned drop = place->drop;                                           \
                                                                                             \
		for (size_t i = 0; i < count; i++) {                                         \
			type bits = in[i], size = bits & (type) ~(sign);                     \
			type near = (size + half - 1 + (size >> drop & 1)) & mask;           \
                                                                                             \
			near = near >= (infinity) ? (type)(size & mask) : near;              \
			near = size >= (infinity) ? size : near;                             \
			out[i] = near | (bits & (sign));                                     \
		}                                                                            \
	}

ROUND(round16, uint16_t, UINT16_C(0x8000), UINT16_C(0x7c00))
ROUND(round32, uint32_t, UINT32_C(0x80000000), UINT32_C(0x7f800000))
ROUND(round64, uint64_t, UINT64_C(1) << 63, UINT64_C(0x7ff) << 52)

/* The number without its sign; 0 for what is no number, so that nothing is computed with it. */
static inline float size16(uint16_t bits)
{
	uint32_t size = bits & 0x7fff;
	float value;

	size = size >= 0x7c00 ? 0 : size << 13;
	memcpy(&value, &size, sizeof(value));
	return value * 0x1p112f; /* the exponents of the two begin there */
}

static inline float size32(uint32_t bits)
{
	uint32_t size = bits & 0x7fffffff;
	float value;

	size = size >= 0x7f800000 ? 0 : size;
	memcpy(&value, &size, sizeof(value));
	return value;
}

static inline double size64(uint64_t bits)
{
	uint64_t size = bits & ~(UINT64_C(1) << 63);
	double value;

	size = size >= UINT64_C(0x7ff) << 52 ? 0 : size;
	memcpy(&value, &size, sizeof(value));
	return value;
}

/* The largest of the differences; they have few bits, and so are exact. */
#define ERROR(name, type, real, whole, signed_whole, size_of)                     \
	static double name(const type *before, const type *after, size_t count)   \
	{                                                                         \
		signed_whole largest = 0;                                         \
		real value;                                                       \
                                                                                  \
		for (size_t i = 0; i < count; i++) {                              \
			real difference = size_of(after[i]) - size_of(before[i]); \
			signed_whole bits;                                        \
                                                                                  \
			memcpy(&bits, &difference, sizeof(bits));                 \
			bits &= (signed_whole)((whole)-1 >> 1);                   \
			largest = bits > largest ? bits : largest;                \
		}                                                                 \
		memcpy(&value, &largest, sizeof(value));                          \
		return value;                                                     \
	}

ERROR(error16, uint16_t, float, uint32_t, int32_t, size16)
ERROR(error32, uint32_t, float, uint32_t, int32_t, size32)
ERROR(error64, uint64_t, double, uint64_t, int64_t, size64)

/* Each part is rounded beside its place first: in may be out. */
#define ROUND_ALL(name, type, round, error)                                                    \
	static double name(const void *in, size_t count, const struct place *place, void *out) \
	{                                                                                      \
		const type *from = in;                                                         \
		type *to = out, part[PART];                                                    \
		double largest = 0, here;                                                      \
                                                                                               \
		for (size_t i = 0, n; i < count; i += n) {                                     \
			n = SL_MIN(count - i, PART);                                           \
			round(from + i, n, place, part);                                       \
			here = error(from + i, part, n);                                       \
			largest = SL_MAX(largest, here);                                       \
			memcpy(to + i, part, n * sizeof(type));                                \
		}                                                                              \
		return largest;                                                                \
	}

ROUND_ALL(all16, uint16_t, round16, error16)
ROUND_ALL(all32, uint32_t, round32, error32)
ROUND_ALL(all64, uint64_t, round64, error64)

double sl_precision_round(enum sl_float type, const void *in, size_t count, unsigned bits,
                          void *out)
{
	static double (*const all[])(const void *, size_t, const struct place *, void *) = {
		[SL_FLOAT16] = all16, [SL_FLOAT32] = all32, [SL_FLOAT64] = all64};
	static const size_t sizes[] = {[SL_FLOAT16] = 2, [SL_FLOAT32] = 4, [SL_FLOAT64] = 8};
	struct place place;

	if (bits >= sl_float_mantissa(type)) {
		memmove(out, in, count * sizes[type]);
		return 0;
	}
	place.drop = sl_float_mantissa(type) - bits;
	place.half = UINT64_C(1) << (place.drop - 1);
	place.mask = ~(2 * place.half - 1);
	return all[type](in, count, &place, out);
}
