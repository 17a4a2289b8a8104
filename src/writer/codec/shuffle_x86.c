/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Byte and bit shuffle with SSE2 and AVX2
 *
 * Handles elements of 2, 4 and 8 bytes in blocks of 16 elements: a block is as many 16-byte
 * registers as an element has bytes. Byte b of element e lies at e * size + b and moves to b * 16 +
 * e: the bits of its position rotate left by four. Interleaving the bytes of the first half of the
 * registers with the second half rotates them by one. Hence four rounds shuffle, and as many rounds
 * as b has bits undo it.
 *
 * AVX2 interleaves within each half of a register, so it processes two blocks at a time, in the
 * lower and the upper halves; afterwards each register holds 32 neighbours of a plane.
 *
 * Threads: any; no state.
 */
#include <immintrin.h>
#include <string.h>

#include "codec/simd.h"

#define INLINE static inline __attribute__((always_inline))
#define AVX2   __attribute__((target("avx2")))

/* Calls a function with a constant size: 2, 4, 8 or 16. Other sizes give 0. */
#define OF_SIZE(size, call, ...)                \
	((size) == 2    ? call(2, __VA_ARGS__)  \
	 : (size) == 4  ? call(4, __VA_ARGS__)  \
	 : (size) == 8  ? call(8, __VA_ARGS__)  \
	 : (size) == 16 ? call(16, __VA_ARGS__) \
	                : 0)

enum {
	BLOCK = 16,
	MOST = 16,
	/*
	 * Bytes of prefetch: frames come from memory, and hardware prefetching stops at the end of
	 * a page. On one core 14 GB/s became 23. Prefetching beyond the end is harmless.
	 */
	AHEAD = 4096,
	LINE = 64,
};

/* ------------------------------------------------------------------------------------- SSE2 */

INLINE void turn_sse2(__m128i *v, int size)
{
	__m128i turned[MOST];

#pragma GCC unroll 8
	for (int i = 0; i < size / 2; i++) {
		turned[2 * i] = _mm_unpacklo_epi8(v[i], v[i + size / 2]);
		turned[2 * i + 1] = _mm_unpackhi_epi8(v[i], v[i + size / 2]);
	}
#pragma GCC unroll 16
	for (int i = 0; i < size; i++)
		v[i] = turned[i];
}

INLINE size_t shuffle_sse2_of(const int size, const unsigned char *in, size_t elements,
                              unsigned char *out, size_t plane)
{
	__m128i v[MOST];
	size_t e = 0;

	for (; e + BLOCK <= elements; e += BLOCK) {
#pragma GCC unroll 16
		for (int i = 0; i < size; i++)
			v[i] = _mm_loadu_si128((const __m128i *)(in + e * size) + i);
#pragma GCC unroll 8
		for (int round = 0; round < 4; round++)
			turn_sse2(v, size);
#pragma GCC unroll 16
		for (int i = 0; i < size; i++)
			_mm_storeu_si128((__m128i *)(out + i * plane + e), v[i]);
	}
	return e;
}

INLINE size_t unshuffle_sse2_of(const int size, const unsigned char *in, size_t plane,
                                size_t elements, unsigned char *out)
{
	__m128i v[MOST];
	size_t e = 0;

	for (; e + BLOCK <= elements; e += BLOCK) {
#pragma GCC unroll 16
		for (int i = 0; i < size; i++)
			v[i] = _mm_loadu_si128((const __m128i *)(in + i * plane + e));
#pragma GCC unroll 4
		for (int bits = size; bits > 1; bits /= 2)
			turn_sse2(v, size);
#pragma GCC unroll 16
		for (int i = 0; i < size; i++)
			_mm_storeu_si128((__m128i *)(out + e * size) + i, v[i]);
	}
	return e;
}

static size_t shuffle_sse2(const unsigned char *in, size_t elements, size_t size,
                           unsigned char *out, size_t plane)
{
	return OF_SIZE(size, shuffle_sse2_of, in, elements, out, plane);
}

static size_t unshuffle_sse2(const unsigned char *in, size_t plane, size_t elements, size_t size,
                             unsigned char *out)
{
	return OF_SIZE(size, unshuffle_sse2_of, in, plane, elements, out);
}

static size_t bits_sse2(const unsigned char *in, size_t n, unsigned char *out, size_t row)
{
	size_t k = 0;

	for (; k + sizeof(__m128i) <= n; k += sizeof(__m128i)) {
		__m128i v = _mm_loadu_si128((const __m128i *)(in + k));

		for (size_t bit = 8; bit--; v = _mm_add_epi8(v, v)) {
			uint16_t top = (uint16_t)_mm_movemask_epi8(v);

			memcpy(out + bit * row + k / 8, &top, sizeof(top));
		}
	}
	return k;
}

/* ------------------------------------------------------------------------------------- AVX2 */

AVX2 INLINE void turn_avx2(__m256i *v, int size)
{
	__m256i turned[MOST];

#pragma GCC unroll 8
	for (int i = 0; i < size / 2; i++) {
		turned[2 * i] = _mm256_unpacklo_epi8(v[i], v[i + size / 2]);
		turned[2 * i + 1] = _mm256_unpackhi_epi8(v[i], v[i + size / 2]);
	}
#pragma GCC unroll 16
	for (int i = 0; i < size; i++)
		v[i] = turned[i];
}

AVX2 INLINE size_t shuffle_avx2_of(const int size, const unsigned char *in, size_t elements,
                                   unsigned char *out, size_t plane)
{
	__m256i v[MOST];
	size_t e = 0;

	for (; e + 2 * BLOCK <= elements; e += 2 * BLOCK) {
		const __m128i *from = (const __m128i *)(in + e * size);

#pragma GCC unroll 8
		for (int i = 0; i < 2 * BLOCK * size; i += LINE)
			_mm_prefetch((const char *)from + AHEAD + i, _MM_HINT_T0);
#pragma GCC unroll 16
		for (int i = 0; i < size; i++)
			v[i] = _mm256_inserti128_si256(
				_mm256_castsi128_si256(_mm_loadu_si128(from + i)),
				_mm_loadu_si128(from + size + i), 1);
#pragma GCC unroll 8
		for (int round = 0; round < 4; round++)
			turn_avx2(v, size);
#pragma GCC unroll 16
		for (int i = 0; i < size; i++)
			_mm256_storeu_si256((__m256i *)(out + i * plane + e), v[i]);
	}
	return e;
}

AVX2 INLINE size_t unshuffle_avx2_of(const int size, const unsigned char *in, size_t plane,
                                     size_t elements, unsigned char *out)
{
	__m256i v[MOST];
	size_t e = 0;

	for (; e + 2 * BLOCK <= elements; e += 2 * BLOCK) {
		__m128i *to = (__m128i *)(out + e * size);

#pragma GCC unroll 16
		for (int i = 0; i < size; i++)
			v[i] = _mm256_loadu_si256((const __m256i *)(in + i * plane + e));
#pragma GCC unroll 4
		for (int bits = size; bits > 1; bits /= 2)
			turn_avx2(v, size);
#pragma GCC unroll 16
		for (int i = 0; i < size; i++) {
			_mm_storeu_si128(to + i, _mm256_castsi256_si128(v[i]));
			_mm_storeu_si128(to + size + i, _mm256_extracti128_si256(v[i], 1));
		}
	}
	return e;
}

AVX2 static size_t shuffle_avx2(const unsigned char *in, size_t elements, size_t size,
                                unsigned char *out, size_t plane)
{
	return OF_SIZE(size, shuffle_avx2_of, in, elements, out, plane);
}

AVX2 static size_t unshuffle_avx2(const unsigned char *in, size_t plane, size_t elements,
                                  size_t size, unsigned char *out)
{
	return OF_SIZE(size, unshuffle_avx2_of, in, plane, elements, out);
}

AVX2 static size_t bits_avx2(const unsigned char *in, size_t n, unsigned char *out, size_t row)
{
	size_t k = 0;

	for (; k + sizeof(__m256i) <= n; k += sizeof(__m256i)) {
		__m256i v = _mm256_loadu_si256((const __m256i *)(in + k));

		for (size_t bit = 8; bit--; v = _mm256_add_epi8(v, v)) {
			uint32_t top = (uint32_t)_mm256_movemask_epi8(v);

			memcpy(out + bit * row + k / 8, &top, sizeof(top));
		}
	}
	return k;
}

const struct sl_shuffle_kernel *sl_shuffle_kernel_of(enum sl_simd way)
{
	static const struct sl_shuffle_kernel sse2 = {shuffle_sse2, unshuffle_sse2, bits_sse2};
	static const struct sl_shuffle_kernel avx2 = {shuffle_avx2, unshuffle_avx2, bits_avx2};

	if (way == SL_SIMD_AVX2)
		return __builtin_cpu_supports("avx2") ? &avx2 : NULL;
	return way == SL_SIMD_SSE2 ? &sse2 : NULL;
}
