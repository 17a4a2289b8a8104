/* SPDX-License-Identifier: Apache-2.0 */
/*
 * LZF: filter 32000
 *
 * The format of LibLZF 3 (Marc Lehmann, lzf_d.c), as h5py writes it: a byte n below 32 is
 * followed by n + 1 literals. Any other byte is a copy of earlier bytes. Its upper 3 bits are a
 * length, to which the next byte is added if they are 7; its lower 5 bits are the upper bits of a
 * distance, whose lower 8 follow.
 *
 * Threads: any.
 */
#include <errno.h>
#include <string.h>

#include "codec/codec.h"

enum { LITERALS = 32, LONG = 7 };

int sl_lzf_decompress(void *state, const void *in, size_t n, void *out, size_t length)
{
	const unsigned char *from = in, *end = from + n;
	unsigned char *start = out, *to = start, *stop = to + length;

	(void)state;
	while (from < end) {
		size_t head = *from++, count, distance;

		if (head < LITERALS) {
			count = head + 1;
			if (count > (size_t)(end - from) || count > (size_t)(stop - to))
				break;
			memcpy(to, from, count);
			from += count;
			to += count;
			continue;
		}
		count = head / LITERALS;
		if (from == end || (count == LONG && end - from < 2))
			break;
		count += count == LONG ? *from++ : 0;
		count += 2;
		distance = (head % LITERALS << 8 | *from++) + 1;
		if (distance > (size_t)(to - start) || count > (size_t)(stop - to))
			break;
		/* The bytes may overlap: a short distance repeats them. */
		for (; count; count--, to++)
			*to = to[-(ptrdiff_t)distance];
	}
	if (from == end && to == stop)
		return 0;
	return sl_fail(-EBADMSG, "LZF cannot decompress a chunk");
}
