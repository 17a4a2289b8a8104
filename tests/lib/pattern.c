/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/pattern.h"

#include <string.h>

uint64_t pattern_mix(uint64_t x)
{
	x += 0x9e3779b97f4a7c15ull;
	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
	return x ^ (x >> 31);
}

static uint64_t pattern_word(uint64_t index, uint64_t seed)
{
	return pattern_mix(index * 0x2545f4914f6cdd1dull + seed);
}

/* A whole word is no call of memcpy() or memcmp(): those would be most of the time of many tests. */
void pattern_fill(void *dst, size_t n, uint64_t offset, uint64_t seed)
{
	unsigned char *out = dst;

	while (n) {
		uint64_t word = pattern_word(offset / 8, seed);
		size_t from = offset % 8;
		size_t part = 8 - from < n ? 8 - from : n;

		if (part == 8)
			memcpy(out, &word, 8);
		else
			memcpy(out, (unsigned char *)&word + from, part);
		out += part;
		offset += part;
		n -= part;
	}
}

size_t pattern_match(const void *src, size_t n, uint64_t offset, uint64_t seed)
{
	const unsigned char *in = src;
	size_t done = 0;

	while (done < n) {
		uint64_t word = pattern_word(offset / 8, seed);
		size_t from = offset % 8;
		size_t part = 8 - from < n - done ? 8 - from : n - done;

		if (part == 8 ? memcmp(in + done, &word, 8) != 0
		              : memcmp(in + done, (unsigned char *)&word + from, part) != 0)
			return done +
			       first_difference(in + done, (unsigned char *)&word + from, part);
		offset += part;
		done += part;
	}
	return n;
}

size_t first_difference(const void *a, const void *b, size_t n)
{
	const unsigned char *x = a, *y = b;
	size_t i;

	if (n == 0 || memcmp(a, b, n) == 0)
		return n;
	for (i = 0; x[i] == y[i]; i++)
		;
	return i;
}

size_t pattern_differ(const void *src, size_t n, uint64_t offset, uint64_t seed)
{
	const unsigned char *in = src;
	size_t wrong = 0, done;

	for (done = pattern_match(in, n, offset, seed); done < n; done++) {
		uint64_t word = pattern_word((offset + done) / 8, seed);

		wrong += in[done] != (unsigned char)(word >> (offset + done) % 8 * 8);
	}
	return wrong;
}
