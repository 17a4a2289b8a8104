/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bit shuffle with any blocks: filter 32008
 *
 * Files of other programs have blocks of any length, without a codec, or with LZ4 or zstd. The
 * format of bitshuffle 0.5 (Kiyoshi Masui, bshuf_h5filter.c): with a codec, the length of the chunk
 * in 8 bytes and that of a block in 4, and for each block its length in 4 bytes before it, all big
 * endian. The last block has a multiple of 8 elements; the rest of the chunk is as it is.
 *
 * Threads: any.
 */
#include <endian.h>
#include <errno.h>
#include <string.h>

#include "codec/codec.h"

enum { CHUNK_HEAD = 12, BLOCK_HEAD = 4, GROUP = 8 };

/* A chunk that is being undone. */
struct bits {
	const unsigned char *from, *end;
	size_t element;
	const struct sl_codec *codec; /* of the blocks, or NULL */
	void *state;
	char *planes, *packed;
};

static uint64_t bits_get(const unsigned char *at, size_t bytes)
{
	uint64_t value = 0;

	for (size_t i = 0; i < bytes; i++)
		value = value << 8 | at[i];
	return value;
}

/* Returns the block's shuffled bytes; NULL with a sentence: it is damaged. */
static const void *bits_block(struct bits *bits, size_t block)
{
	const unsigned char *from = bits->from;
	size_t here = block;
	int rc;

	if (bits->codec) {
		if (bits->end - from < BLOCK_HEAD)
			here = SIZE_MAX;
		else
			here = bits_get(from, BLOCK_HEAD);
		from += BLOCK_HEAD;
	}
	if (here == SIZE_MAX || here > (size_t)(bits->end - from)) {
		sl_fail(-EBADMSG, "a chunk ends too early");
		return NULL;
	}
	bits->from = from + here;
	if (!bits->codec)
		return from;
	rc = bits->codec->block(bits->state, from, here, bits->packed, block);
	return rc ? NULL : bits->packed;
}

int sl_bitshuffle_undo(const struct sl_filter *filter, const struct sl_codec *codec, void *state,
                       void *scratch, const void *in, size_t n, void *out, size_t length)
{
	struct bits bits = {.from = in,
	                    .end = (const unsigned char *)in + n,
	                    .element = filter->values[2],
	                    .codec = codec,
	                    .state = state,
	                    .planes = scratch};
	/* The length that the library chooses where the values have none. */
	size_t most = SL_BITSHUFFLE_BLOCK(bits.element), group = GROUP * bits.element;
	char *to = out;

	if (filter->count > 3 && filter->values[3])
		most = filter->values[3] * bits.element;
	if (codec) {
		if (n < CHUNK_HEAD || bits_get(in, 8) != length)
			return sl_fail(-EBADMSG, "a chunk of %zu bytes has another length in it",
			               length);
		most = bits_get(bits.from + 8, 4);
		bits.from += CHUNK_HEAD;
	}
	if (!most || most % group || most > SL_BITSHUFFLE_SCRATCH(bits.element) / 2)
		return sl_fail(-EBADMSG, "a chunk has blocks of %zu bytes", most);
	bits.packed = bits.planes + most;
	while (length >= group) {
		size_t block = SL_MIN(length / group * group, most);
		const void *packed = bits_block(&bits, block);

		if (!packed)
			return -EBADMSG;
		sl_bit_unshuffle(packed, block / bits.element, bits.element, bits.planes, to);
		to += block;
		length -= block;
	}
	if ((size_t)(bits.end - bits.from) != length)
		return sl_fail(-EBADMSG, "a chunk has %zd bytes behind its blocks, not %zu",
		               bits.end - bits.from, length);
	memcpy(to, bits.from, length);
	return 0;
}
