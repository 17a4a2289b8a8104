/* SPDX-License-Identifier: Apache-2.0 */
/*
 * HDF5's checksum of a chunk, filter 3, which readers verify
 *
 * Threads: any; no state.
 */
#include <endian.h>
#include <string.h>

#include "codec/codec.h"

/* Words that can be added before a sum of 32 bits overflows. */
#define WORDS 360

static uint32_t fold(uint32_t sum)
{
	return (sum & 0xffff) + (sum >> 16);
}

/* Words are big-endian, and an odd last byte is the upper half of a word. */
static uint32_t fletcher32(const unsigned char *in, size_t n)
{
	uint32_t first = 0, second = 0;

	for (size_t end; n > 1; n -= end) {
		end = SL_MIN(n / 2, WORDS) * 2;
		for (size_t i = 0; i < end; i += 2) {
			first += (uint32_t)in[i] << 8 | in[i + 1];
			second += first;
		}
		first = fold(first);
		second = fold(second);
		in += end;
	}
	if (n) {
		first = fold(first + ((uint32_t)*in << 8));
		second = fold(second + first);
	}
	return fold(second) << 16 | fold(first);
}

void sl_fletcher32_put(void *bytes, size_t n)
{
	uint32_t sum = htole32(fletcher32(bytes, n));

	memcpy((char *)bytes + n, &sum, sizeof(sum));
}

/* Before 1.6.3 HDF5 exchanged the bytes of both halves on little-endian machines, and still reads
 * that. */
bool sl_fletcher32_holds(const void *bytes, size_t n)
{
	uint32_t stored, sum = fletcher32(bytes, n);

	memcpy(&stored, (const char *)bytes + n, sizeof(stored));
	stored = le32toh(stored);
	return stored == sum || stored == ((sum & 0x00ff00ff) << 8 | (sum >> 8 & 0x00ff00ff));
}
