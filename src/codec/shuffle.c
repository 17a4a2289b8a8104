/* SPDX-License-Identifier: Apache-2.0 */
/* Byte shuffle: the part that every processor does, and the choice of the part that some do. */
#include <stdatomic.h>
#include <string.h>

#include "codec/shuffle.h"

static _Atomic int limit = SL_SIMD_WAYS - 1;

/* The processor is asked each time: that is a load and a test, for a row or a chunk. */
enum sl_simd sl_simd(void)
{
	int way = atomic_load_explicit(&limit, memory_order_relaxed);

	while (way > SL_SIMD_NONE && !sl_shuffle_kernel(way))
		way--;
	return way;
}

enum sl_simd sl_simd_limit(enum sl_simd most)
{
	atomic_store(&limit, (int)most);
	return sl_simd();
}

void sl_shuffle_row(const void *in, size_t elements, size_t size, void *out, size_t plane)
{
	const struct sl_shuffle_kernel *kernel = sl_shuffle_kernel(sl_simd());
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
	const struct sl_shuffle_kernel *kernel = sl_shuffle_kernel(sl_simd());
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
