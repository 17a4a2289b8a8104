/* SPDX-License-Identifier: Apache-2.0 */
/* Rounding, by arithmetic on the numbers where the source has arithmetic on their bits. */
#include <float.h>
#include <math.h>

#include "codec/codec_common.h"

struct kind {
	enum sl_float type;
	size_t size;
	int mantissa, least; /* bits; the exponent of the smallest normal number */
	double largest;
};
static const struct kind kinds[] = {
	{SL_FLOAT16, 2, 10, -14, 65504},
	{SL_FLOAT32, 4, 23, -126, FLT_MAX},
	{SL_FLOAT64, 8, 52, -1022, DBL_MAX},
};

static double half_value(uint16_t bits)
{
	int exponent = bits >> 10 & 31, mantissa = bits & 1023;
	double value = exponent == 31 ? (mantissa ? NAN : INFINITY)
	               : exponent     ? ldexp(1024 + mantissa, exponent - 25)
	                              : ldexp(mantissa, -24);

	return bits & 0x8000 ? -value : value;
}

static double value_of(const struct kind *kind, const void *at)
{
	uint16_t half;
	float single;
	double value;

	switch (kind->size) {
	case 2:
		memcpy(&half, at, sizeof(half));
		return half_value(half);
	case 4:
		memcpy(&single, at, sizeof(single));
		return single;
	default:
		memcpy(&value, at, sizeof(value));
		return value;
	}
}

/* rint() rounds to even; a multiple of the last place that stays. */
static double expected_of(const struct kind *kind, double value, int bits)
{
	int exponent;
	double place, rounded;

	if (value == 0)
		return value;
	frexp(value, &exponent);
	place = SL_MAX(exponent - 1, kind->least) - bits;
	rounded = ldexp(rint(ldexp(value, -place)), place);
	if (fabs(rounded) > kind->largest)
		rounded = ldexp(trunc(ldexp(value, -place)), place);
	return rounded;
}

static void check_here(const struct kind *kind, const unsigned char *in, size_t count, int bits)
{
	size_t n = count * kind->size;
	unsigned char *out = malloc(n + 1);
	double largest = 0, error;

	error = sl_precision_round(kind->type, in, count, bits, out);
	for (size_t i = 0; i < n; i += kind->size) {
		double before = value_of(kind, in + i), after = value_of(kind, out + i);

		if (!isfinite(before)) {
			assert_memory_equal(in + i, out + i, kind->size);
			continue;
		}
		assert_true(isfinite(after));
		assert_int_equal(!signbit(before), !signbit(after));
		if (after != expected_of(kind, before, bits))
			fail_msg("%a to %d bits is %a, not %a", before, bits, after,
			         expected_of(kind, before, bits));
		largest = fmax(largest, fabs(after - before));
	}
	assert_true(error == largest);
	memcpy(out, in, n);
	assert_true(sl_precision_round(kind->type, out, count, bits, out) == largest);
	assert_true(sl_precision_round(kind->type, out, count, bits, out) == 0);
	free(out);
}

/* With everything that this processor has, and with nothing of it. */
static void check(const struct kind *kind, const unsigned char *in, size_t count, int bits)
{
	for (enum sl_simd way = SL_SIMD_NONE; way < SL_SIMD_WAYS; way++)
		if (sl_simd_limit(way) == way)
			check_here(kind, in, count, bits);
	sl_simd_limit(SL_SIMD_WAYS - 1);
}

TEST(every_half_is_rounded_to_the_nearest)
{
	static uint16_t all[65536];

	for (int i = 0; i < 65536; i++)
		all[i] = i;
	for (int bits = 1; bits <= 12; bits++)
		check(&kinds[0], (unsigned char *)all, 65536, SL_MIN(bits, 10));
}

/* Bits by chance, with many of them the same, so that ties, subnormals and infinity are there. */
static uint64_t some_bits(uint64_t *seed)
{
	uint64_t a = unit_random(seed), b = unit_random(seed);

	switch (unit_random(seed) % 4) {
	case 0:
		return a & ~(UINT64_MAX >> b % 64);
	case 1:
		return a | UINT64_MAX >> b % 64;
	case 2:
		return a & UINT64_MAX >> b % 64;
	default:
		return a;
	}
}

TEST(any_number_is_rounded_to_the_nearest)
{
	enum { COUNT = 6007 };
	static uint64_t numbers[COUNT];
	uint64_t seed = unit_seed();

	for (size_t k = 0; k < 3; k++)
		for (int bits = 1; bits <= kinds[k].mantissa; bits++) {
			for (int i = 0; i < COUNT; i++) {
				uint64_t number = some_bits(&seed) >> (64 - 8 * kinds[k].size);

				memcpy((char *)numbers + i * kinds[k].size, &number, kinds[k].size);
			}
			check(&kinds[k], (unsigned char *)numbers, COUNT, bits);
			check(&kinds[k], (unsigned char *)numbers, bits % 9, bits);
		}
}

TEST(ties_go_to_the_even_neighbour)
{
	const float in[] = {1.25f, 1.75f, -1.25f, -1.75f, 1.0f, 0.0f, -0.0f};
	const float expected[] = {1.0f, 2.0f, -1.0f, -2.0f, 1.0f, 0.0f, -0.0f};
	float out[7];

	assert_true(sl_precision_round(SL_FLOAT32, in, 7, 1, out) == 0.25);
	assert_memory_equal(out, expected, sizeof(out));
}

TEST(nan_stays_and_no_number_becomes_infinite)
{
	const double in[] = {INFINITY, -INFINITY, NAN, DBL_MAX, -DBL_MAX};
	const uint64_t signalling = UINT64_C(0x7ff0000000000001);
	double out[6], bad[6];

	memcpy(bad, in, sizeof(in));
	memcpy(&bad[5], &signalling, sizeof(signalling));
	assert_true(sl_precision_round(SL_FLOAT64, bad, 6, 4, out) == DBL_MAX - 0x1.fp1023);
	assert_memory_equal(out, bad, 3 * sizeof(double));
	assert_memory_equal(&out[5], &bad[5], sizeof(double));
	assert_true(out[3] == 0x1.fp1023 && out[4] == -0x1.fp1023);
}

TEST(all_bits_of_the_mantissa_change_nothing)
{
	static uint64_t in[500], out[500];
	uint64_t seed = unit_seed();

	for (size_t k = 0; k < 3; k++) {
		field_fill(FIELD_NOISE, &seed, in, sizeof(in));
		assert_int_equal(sl_float_mantissa(kinds[k].type), kinds[k].mantissa);
		for (unsigned more = 0; more < 3; more++) {
			memset(out, 0, sizeof(out));
			assert_true(sl_precision_round(kinds[k].type, in,
			                               sizeof(in) / kinds[k].size,
			                               kinds[k].mantissa + more, out) == 0);
			assert_memory_equal(in, out, sizeof(in));
		}
	}
}

int main(void)
{
	return RUN_TESTS(NULL, NULL);
}
