/* SPDX-License-Identifier: Apache-2.0 */
/* Deflate without compression: stored blocks in zlib's format, for both encoders. Threads: any. */
#include <endian.h>
#include <string.h>

#include "codec/simd.h"

#define STORED_MOST ((size_t)65535)

/* A block: whether it is the last, its length, and the complement of that, in little-endian. */
size_t sl_deflate_store(void *state, const void *in, size_t n, void *out)
{
	const unsigned char *from = in;
	unsigned char *to = out;
	uint32_t sum = htobe32(sl_adler32(in, n));
	size_t block;

	(void)state;
	*to++ = 0x78;
	*to++ = 0x01;
	do {
		block = SL_MIN(n, STORED_MOST);
		n -= block;
		*to++ = !n;
		*to++ = block & 0xff;
		*to++ = block >> 8;
		*to++ = ~block & 0xff;
		*to++ = ~block >> 8 & 0xff;
		memcpy(to, from, block);
		to += block;
		from += block;
	} while (n);
	memcpy(to, &sum, sizeof(sum));
	return to + sizeof(sum) - (unsigned char *)out;
}
