/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The loops of byte and bit shuffle, compiled once per kind of registers
 *
 * Handles elements with 2, 4 and 8 bytes in blocks of 16 elements: a block is as many 16-byte
 * registers as an element has bytes. Byte b of element e lies at e * size + b and moves to b * 16 +
 * e: the bits in this position rotate left by four. If the bytes in the first half of the registers
 * are interleaved with the second half, they rotate by one. Hence four rounds shuffle, and as many
 * rounds as b has bits undo it.
 *
 * AVX2 interleaves within each half of a register, so it processes two blocks at a time, in the
 * lower and the upper halves; afterwards each register holds 32 neighbours of a plane.
 *
 * The including file defines TARGET, an attribute for functions; MM, an intrinsic; REGISTER; LOAD
 * and STORE, for a register; JOIN and SPLIT, for a register with 16 bytes from each block; and
 * MASK, a bit for each byte in a register. KERNEL names the result.
 */
#include <immintrin.h>
#include <string.h>

#include "codec/simd.h"

#define INLINE static inline __attribute__((always_inline))

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

TARGET INLINE void block_turn(REGISTER *v, int size)
{
	REGISTER turned[MOST];

#pragma GCC unroll 8
	for (int i = 0; i < size / 2; i++) {
		turned[2 * i] = MM(unpacklo_epi8)(v[i], v[i + size / 2]);
		turned[2 * i + 1] = MM(unpackhi_epi8)(v[i], v[i + size / 2]);
	}
#pragma GCC unroll 16
	for (int i = 0; i < size; i++)
		v[i] = turned[i];
}

TARGET INLINE size_t block_shuffle_of(const int size, const unsigned char *in, size_t elements,
                                      unsigned char *out, size_t plane)
{
	REGISTER v[MOST];
	size_t e = 0;

	for (; e + sizeof(v[0]) <= elements; e += sizeof(v[0])) {
		const unsigned char *from = in + e * size;

#pragma GCC unroll 8
		for (int i = 0; sizeof(v[0]) > BLOCK && i < 2 * BLOCK * size; i += LINE)
			_mm_prefetch((const char *)from + AHEAD + i, _MM_HINT_T0);
#pragma GCC unroll 16
		for (int i = 0; i < size; i++)
			v[i] = JOIN(from + i * BLOCK, from + (size + i) * BLOCK);
#pragma GCC unroll 8
		for (int round = 0; round < 4; round++)
			block_turn(v, size);
#pragma GCC unroll 16
		for (int i = 0; i < size; i++)
			STORE(out + i * plane + e, v[i]);
	}
	return e;
}

TARGET INLINE size_t block_unshuffle_of(const int size, const unsigned char *in, size_t plane,
                                        size_t elements, unsigned char *out)
{
	REGISTER v[MOST];
	size_t e = 0;

	for (; e + sizeof(v[0]) <= elements; e += sizeof(v[0])) {
		unsigned char *to = out + e * size;

#pragma GCC unroll 16
		for (int i = 0; i < size; i++)
			v[i] = LOAD(in + i * plane + e);
#pragma GCC unroll 4
		for (int bits = size; bits > 1; bits /= 2)
			block_turn(v, size);
#pragma GCC unroll 16
		for (int i = 0; i < size; i++)
			SPLIT(to + i * BLOCK, to + (size + i) * BLOCK, v[i]);
	}
	return e;
}

TARGET static size_t kernel_shuffle(const unsigned char *in, size_t elements, size_t size,
                                    unsigned char *out, size_t plane)
{
	return OF_SIZE(size, block_shuffle_of, in, elements, out, plane);
}

TARGET static size_t kernel_unshuffle(const unsigned char *in, size_t plane, size_t elements,
                                      size_t size, unsigned char *out)
{
	return OF_SIZE(size, block_unshuffle_of, in, plane, elements, out);
}

TARGET static size_t kernel_bits(const unsigned char *in, size_t n, unsigned char *out, size_t row)
{
	size_t k = 0;

	for (; k + sizeof(REGISTER) <= n; k += sizeof(REGISTER)) {
		REGISTER v = LOAD(in + k);

		for (size_t bit = 8; bit--; v = MM(add_epi8)(v, v)) {
			MASK top = (MASK)MM(movemask_epi8)(v);

			memcpy(out + bit * row + k / 8, &top, sizeof(top));
		}
	}
	return k;
}

const struct sl_shuffle_kernel KERNEL = {kernel_shuffle, kernel_unshuffle, kernel_bits};
