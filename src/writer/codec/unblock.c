/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Chunks of blocks, undone: filters 32004 and 32008
 *
 * Files by other programs have blocks of any length; with 32008 they have no codec, or LZ4 or zstd.
 * The format is bitshuffle 0.5's (Kiyoshi Masui, bshuf_h5filter.c), and for 32004 that in lz4.c.
 * With a codec the chunk's length comes in 8 bytes, the length of a block in 4, and before each
 * block its length in 4 bytes, all big endian. With a bit shuffle the last block has a multiple of
 * 8 elements; the rest of the chunk is as it is.
 *
 * Threads: any.
 */
#include <errno.h>
#include <string.h>

#include "codec/codec.h"

enum { CHUNK_HEAD = 12, BLOCK_HEAD = 4, GROUP = 8 };

static uint64_t blocks_get(const unsigned char *at, size_t bytes)
{
	uint64_t value = 0;

	for (size_t i = 0; i < bytes; i++)
		value = value << 8 | at[i];
	return value;
}

/* Undoes the next block, which becomes so many bytes. */
static int block_undo(const struct sl_blocks *blocks, const unsigned char **from, size_t left,
                      size_t block, char *planes, char *to)
{
	char *packed = blocks->element ? planes + block : to;
	size_t head = blocks->codec ? BLOCK_HEAD : 0, here = block;

	if (left >= head && head)
		here = blocks_get(*from, head);
	if (left < head || here > left - head)
		return sl_fail(-EBADMSG, "a chunk ends too early");
	*from += head + here;
	if (!blocks->codec)
		packed = (char *)*from - here;
	else if (!blocks->element && here == block)
		memcpy(to, *from - here, block);
	else if (blocks->codec->block(blocks->state, *from - here, here, packed, block))
		return -EBADMSG;
	if (blocks->element)
		sl_bit_unshuffle(packed, block / blocks->element, blocks->element, planes, to);
	return 0;
}

int sl_blocks_undo(const struct sl_blocks *blocks, const void *in, size_t n, void *out,
                   size_t length)
{
	const unsigned char *from = in, *end = from + n;
	size_t most = blocks->most, group = blocks->element ? GROUP * blocks->element : 1;
	char *to = out;

	if (blocks->codec) {
		if (n < CHUNK_HEAD || blocks_get(from, 8) != length)
			return sl_fail(-EBADMSG, "a chunk of %zu bytes has another length in it",
			               length);
		most = blocks_get(from + 8, 4);
		from += CHUNK_HEAD;
	}
	if ((!most && length) || most % group || (blocks->element && most > blocks->room / 2))
		return sl_fail(-EBADMSG, "a chunk has blocks of %zu bytes", most);
	while (length >= group) {
		size_t block = SL_MIN(length / group * group, most);
		int rc =
			block_undo(blocks, &from, (size_t)(end - from), block, blocks->scratch, to);

		if (rc)
			return rc;
		to += block;
		length -= block;
	}
	if ((size_t)(end - from) != length)
		return sl_fail(-EBADMSG, "a chunk has %zd bytes behind its blocks, not %zu",
		               end - from, length);
	memcpy(to, from, length);
	return 0;
}
