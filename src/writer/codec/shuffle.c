/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Byte and bit shuffle
 *
 * The portable loops, and the choice of the fastest instruction set.
 *
 * Threads: any; `limit` changes only in tests.
 */
#include <endian.h>
#include <stdatomic.h>
#include <string.h>

#include "codec/simd.h"

static _Atomic int limit = SL_SIMD_WAYS - 1;

/* Asks the processor at each call, which costs a load and a test per row or chunk. */
enum sl_simd sl_simd_used(void)
{
	int way = atomic_load_explicit(&limit, memory_order_relaxed);

	while (way > SL_SIMD_NONE && !sl_shuffle_kernel_of(way))
		way--;
	return way;
}

enum sl_simd sl_simd_limit(enum sl_simd most)
{
	atomic_store(&limit, (int)most);
	return sl_simd_used();
}

void sl_shuffle_row(const void *in, size_t elements, size_t size, void *out, size_t plane)
{
	const struct sl_shuffle_kernel *kernel = sl_shuffle_kernel_of(sl_simd_used());
	const unsigned char *from = in;
	unsigned char *to = out;
	size_t done = 0;

	if (size == 1) {
		memcpy(out, in, elements);
		return;
	}
	if (kernel)
		done = kernel->shuffle(from, elements, size, to, plane);
	for (size_t byte = 0; byte < size; byte++)
		for (size_t i = done; i < elements; i++)
			to[byte * plane + i] = from[i * size + byte];
}

void sl_unshuffle_row(const void *in, size_t plane, size_t elements, size_t size, void *out)
{
	const struct sl_shuffle_kernel *kernel = sl_shuffle_kernel_of(sl_simd_used());
	const unsigned char *from = in;
	unsigned char *to = out;
	size_t done = 0;

	if (size == 1) {
		memcpy(out, in, elements);
		return;
	}
	if (kernel)
		done = kernel->unshuffle(from, plane, elements, size, to);
	for (size_t byte = 0; byte < size; byte++)
		for (size_t i = done; i < elements; i++)
			to[i * size + byte] = from[byte * plane + i];
}

void sl_shuffle(const void *in, size_t n, size_t size, void *out)
{
	size_t elements = n / size, whole = elements * size;

	sl_shuffle_row(in, elements, size, out, elements);
	memcpy((char *)out + whole, (const char *)in + whole, n - whole);
}

void sl_unshuffle(const void *in, size_t n, size_t size, void *out)
{
	size_t elements = n / size, whole = elements * size;

	sl_unshuffle_row(in, elements, elements, size, out);
	memcpy((char *)out + whole, (const char *)in + whole, n - whole);
}

/* --------------------------------------------------------------------------------------- bits */

/* Transposes 8 by 8 bits: bit i of byte k becomes bit k of byte i. */
static uint64_t transpose_bits(uint64_t x)
{
	uint64_t t = (x ^ x >> 7) & 0x00aa00aa00aa00aa;

	x ^= t ^ t << 7;
	t = (x ^ x >> 14) & 0x0000cccc0000cccc;
	x ^= t ^ t << 14;
	t = (x ^ x >> 28) & 0x00000000f0f0f0f0;
	return x ^ t ^ t << 28;
}

static void shuffle_bits(const unsigned char *in, size_t n, unsigned char *out)
{
	const struct sl_shuffle_kernel *kernel = sl_shuffle_kernel_of(sl_simd_used());
	uint64_t x;

	for (size_t k = kernel ? kernel->bits(in, n, out, n / 8) : 0; k < n; k += 8) {
		memcpy(&x, in + k, sizeof(x));
		x = transpose_bits(le64toh(x));
		for (size_t bit = 0; bit < 8; bit++)
			out[(bit * n + k) / 8] = (unsigned char)(x >> 8 * bit);
	}
}

void sl_bit_shuffle(const void *in, size_t elements, size_t size, void *planes, void *out)
{
	sl_shuffle(in, elements * size, size, planes);
	for (size_t at = 0; at < elements * size; at += elements)
		shuffle_bits((const unsigned char *)planes + at, elements,
		             (unsigned char *)out + at);
}

/* Used by proofs only: no vector instructions. */
void sl_bit_unshuffle(const void *in, size_t elements, size_t size, void *planes, void *out)
{
	for (size_t at = 0; at < elements * size; at += 8) {
		const unsigned char *from =
			(const unsigned char *)in + at / elements * elements + at % elements / 8;
		uint64_t x = 0;

		for (size_t bit = 0; bit < 8; bit++)
			x |= (uint64_t)from[bit * (elements / 8)] << 8 * bit;
		x = htole64(transpose_bits(x));
		memcpy((char *)planes + at, &x, sizeof(x));
	}
	sl_unshuffle(planes, elements * size, size, out);
}
