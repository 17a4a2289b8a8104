/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Adler-32, portable part
 *
 * The checksum of zlib's format, for the processors without AVX2 and for the bytes left over by
 * adler32_x86.c.
 *
 * Threads: any; no state.
 */
#include "codec/simd.h"

/*
 * Number of bytes of 255 that can be added before a sum that began below the base exceeds 32 bits.
 */
#define MOST 5552

static void adler_add(struct sl_adler *sum, const unsigned char *in, size_t n)
{
	for (size_t at = 0; at < n; at += MOST) {
		size_t end = SL_MIN(n, at + MOST);

		for (size_t i = at; i < end; i++) {
			sum->a += in[i];
			sum->b += sum->a;
		}
		sum->a %= SL_ADLER_BASE;
		sum->b %= SL_ADLER_BASE;
	}
}

uint32_t sl_adler32(const void *in, size_t n)
{
	sl_adler_adder *kernel = sl_adler_kernel();
	struct sl_adler sum = {.a = 1};
	size_t done = kernel ? kernel(&sum, in, n) : 0;

	adler_add(&sum, (const unsigned char *)in + done, n - done);
	return sum.b << 16 | sum.a;
}
