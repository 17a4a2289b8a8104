/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the tests know of codecs, without the product: their names, filters and decoders. They are of zlib, as HDF5 has
 * it, and of the formats of filters 32015, 32004 and 32008.
 */
#include <zlib.h>
#ifdef BUILT_WITH_ZSTD
#include <zstd.h>
#endif
#ifdef BUILT_WITH_LZ4
#include <lz4.h>
#endif

#include "codec/codec_common.h"

static bool decode_zlib(const unsigned char *in, size_t n, size_t element, unsigned char *out,
                        size_t length)
{
	uLongf given = length;

	(void)element;
	return uncompress(out, &given, in, n) == Z_OK && given == length;
}

#ifdef BUILT_WITH_ZSTD
/* The filter sizes its buffer by what the head of the frame says. */
static bool decode_zstd(const unsigned char *in, size_t n, size_t element, unsigned char *out,
                        size_t length)
{
	(void)element;
	return ZSTD_getFrameContentSize(in, n) == length &&
	       ZSTD_findFrameCompressedSize(in, n) == n &&
	       ZSTD_decompress(out, length, in, n) == length;
}
#else
static bool decode_zstd(const unsigned char *in, size_t n, size_t element, unsigned char *out,
                        size_t length)
{
	(void)in, (void)n, (void)element, (void)out, (void)length;
	return false;
}
#endif

#ifdef BUILT_WITH_LZ4
static uint64_t big_endian(const unsigned char *at, unsigned bytes)
{
	uint64_t value = 0;

	while (bytes--)
		value = value << 8 | *at++;
	return value;
}

static bool decode_bits(const unsigned char *in, size_t n, size_t element, unsigned char *out,
                        size_t length)
{
	unsigned char bits[8192];
	size_t at = 12;

	if (n < 12 || big_endian(in, 8) != length || big_endian(in + 8, 4) != sizeof(bits))
		return false;
	for (size_t here; (here = (length < sizeof(bits) ? length : sizeof(bits)) / (8 * element) *
	                          (8 * element));) {
		size_t count = here / element, packed = n - at < 4 ? n : big_endian(in + at, 4);

		if (packed > n - at - 4 ||
		    LZ4_decompress_safe((const char *)in + at + 4, (char *)bits, packed, here) !=
		            (int)here)
			return false;
		at += 4 + packed;
		memset(out, 0, here);
		for (size_t bit = 0; bit < 8 * here; bit++)
			if (bits[bit / 8] >> bit % 8 & 1)
				out[bit % count * element + bit / count / 8] |= 1
				                                                << bit / count % 8;
		out += here;
		length -= here;
	}
	if (n - at == length)
		memcpy(out, in + at, length);
	return n - at == length;
}

static bool decode_lz4(const unsigned char *in, size_t n, size_t element, unsigned char *out,
                       size_t length)
{
	size_t at = 12, done = 0, block;

	(void)element;
	if (n < 12 || big_endian(in, 8) != length)
		return false;
	block = big_endian(in + 8, 4);
	if (block > length)
		return false;
	while (done < length) {
		size_t here = length - done < block ? length - done : block, stored;

		if (n - at < 4)
			return false;
		stored = big_endian(in + at, 4);
		at += 4;
		if (stored > n - at)
			return false;
		if (stored == here)
			memcpy((char *)out + done, in + at, here);
		else if (LZ4_decompress_safe((const char *)in + at, (char *)out + done, stored,
		                             here) != (int)here)
			return false;
		at += stored;
		done += here;
	}
	return at == n;
}
#else
static bool decode_bits(const unsigned char *in, size_t n, size_t element, unsigned char *out,
                        size_t length)
{
	(void)in, (void)n, (void)element, (void)out, (void)length;
	return false;
}

static bool decode_lz4(const unsigned char *in, size_t n, size_t element, unsigned char *out,
                       size_t length)
{
	(void)in, (void)n, (void)element, (void)out, (void)length;
	return false;
}
#endif

static bool decode_none(const unsigned char *in, size_t n, size_t element, unsigned char *out,
                        size_t length)
{
	(void)element;
	if (n == length)
		memcpy(out, in, n);
	return n == length;
}

/* The names and numbers are those that the HDF Group has registered, whatever the table of the product says. */
const struct reference references[] = {
	{"none", 0, false, decode_none},
	{"deflate", 1, false, decode_zlib},
	{"zstd", 32015, false, decode_zstd},
	{"lz4", 32004, false, decode_lz4},
	{"bitshuffle-lz4", 32008, true, decode_bits},
	{0},
};

const struct reference *reference_of(int filter)
{
	for (const struct reference *r = references; r->name; r++)
		if (r->filter == filter)
			return r;
	return NULL;
}
