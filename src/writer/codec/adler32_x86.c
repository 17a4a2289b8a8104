/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Adler-32 with AVX2
 *
 * Adds 32 bytes at a time. A step adds the sum of the bytes to a; it adds to b 32 times the
 * previous a, and the bytes weighted 32, 31, ... 1. Both sums stay in the lanes of a register until
 * the end of a run.
 *
 * Threads: any; no state.
 */
#include <immintrin.h>

#include "codec/simd.h"

enum {
	STEP = 32,
	/*
	 * Bytes in a run. The sum of the previous values of a grows fastest: 1024 steps add 8 bytes
	 * of 255 to a lane each time, and stay below 2^31.
	 */
	RUN = 1024 * STEP,
};

#define AVX2 __attribute__((target("avx2")))

AVX2 static uint64_t sum_of_lanes(__m256i v)
{
	uint32_t lanes[8];
	uint64_t sum = 0;

	_mm256_storeu_si256((__m256i *)lanes, v);
	for (int i = 0; i < 8; i++)
		sum += lanes[i];
	return sum;
}

/* n is a multiple of STEP, and at most RUN. */
AVX2 static void adler_add_run(struct sl_adler *sum, const unsigned char *in, size_t n)
{
	const __m256i weights =
		_mm256_setr_epi8(32, 31, 30, 29, 28, 27, 26, 25, 24, 23, 22, 21, 20, 19, 18, 17, 16,
	                         15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1);
	const __m256i ones = _mm256_set1_epi16(1), zero = _mm256_setzero_si256();
	__m256i bytes = zero, before = zero, weighted = zero;
	uint64_t a, b;

	for (size_t i = 0; i < n; i += STEP) {
		__m256i v = _mm256_loadu_si256((const __m256i *)(in + i));

		before = _mm256_add_epi32(before, bytes);
		bytes = _mm256_add_epi32(bytes, _mm256_sad_epu8(v, zero));
		weighted = _mm256_add_epi32(
			weighted, _mm256_madd_epi16(_mm256_maddubs_epi16(v, weights), ones));
	}
	a = sum->a + sum_of_lanes(bytes);
	b = sum->b + (uint64_t)sum->a * n + STEP * sum_of_lanes(before) + sum_of_lanes(weighted);
	sum->a = (uint32_t)(a % SL_ADLER_BASE);
	sum->b = (uint32_t)(b % SL_ADLER_BASE);
}

static size_t adler_add_avx2(struct sl_adler *sum, const unsigned char *in, size_t n)
{
	size_t whole = n / STEP * STEP;

	for (size_t at = 0; at < whole; at += RUN)
		adler_add_run(sum, in + at, SL_MIN(whole - at, (size_t)RUN));
	return whole;
}

/* Tests disable AVX2 for the shuffle and so here. */
sl_adler_adder *sl_adler_kernel(void)
{
	return sl_simd_used() == SL_SIMD_AVX2 ? adler_add_avx2 : NULL;
}
