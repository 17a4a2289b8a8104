/* SPDX-License-Identifier: Apache-2.0 */
/*
 * LZ4: filters 32004 and 32008
 *
 * All integers are big-endian: the length of the chunk in 8 bytes, the length of a block in 4; then
 * for each block its compressed length in 4 bytes, and its bytes.
 *
 * In filter 32004 a block whose compressed length equals its length is stored as is. The last block
 * may be shorter, and no block is longer than the chunk.
 *
 * In filter 32008 the bits of a block are shuffled before compression. The last block has a
 * multiple of 8 elements; the rest of the chunk follows uncompressed.
 *
 * Threads: any; a state belongs to one thread at a time.
 */
#include <endian.h>
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include <lz4.h>

#include "codec/codec.h"

/* Matches reach back 64 KiB and never cross blocks: longer blocks would gain almost nothing. */
#define BLOCK ((size_t)1 << 20)
/* Readers of 32008 expect this size, which stays in the first-level cache. */
#define BIT_BLOCK ((size_t)8 << 10)

enum { CHUNK_HEAD = 12, BLOCK_HEAD = 4 };

struct lz4 {
	size_t group; /* bytes of 8 elements; blocks are multiples of it; 0: filter 32004 */
	bool plain;   /* blocks are not compressed now */
	char scratch[2 * BIT_BLOCK]; /* planes and bits */
	_Alignas(16) char stream[];
};

static unsigned lz4_client_data(int level, size_t element, unsigned values[SL_CODEC_VALUES])
{
	(void)level, (void)element;
	values[0] = BLOCK;
	return 1;
}

/*
 * Version of the format, bytes of an element, elements of a block (0: as here), and LZ4. HDF5's
 * filter, if present, inserts its version and the element size before these values, and reads the
 * next two: 0 and 2 again.
 */
static unsigned bit_client_data(int level, size_t element, unsigned values[SL_CODEC_VALUES])
{
	const unsigned what[] = {0, SL_BITSHUFFLE_LZ4, (unsigned)element, 0, SL_BITSHUFFLE_LZ4};

	(void)level;
	memcpy(values, what, sizeof(what));
	return sizeof(what) / sizeof(what[0]);
}

static size_t lz4_bound(size_t n)
{
	return CHUNK_HEAD + (n / BLOCK + 1) * BLOCK_HEAD + n;
}

static size_t bit_bound(size_t n)
{
	size_t block = BLOCK_HEAD + LZ4_COMPRESSBOUND(BIT_BLOCK);

	return CHUNK_HEAD + (n / BIT_BLOCK + 2) * block;
}

static size_t lz4_state_bytes(const void *state)
{
	(void)state;
	return sizeof(struct lz4) + LZ4_sizeofState();
}

static int lz4_state_new(int level, size_t element, size_t n, void **out)
{
	struct lz4 *lz4 = malloc(lz4_state_bytes(NULL));

	(void)level, (void)element, (void)n;
	if (!lz4)
		return sl_fail(-ENOMEM, "no memory for the state of LZ4");
	lz4->group = 0;
	lz4->plain = false;
	*out = lz4;
	return 0;
}

static int bit_state_new(int level, size_t element, size_t n, void **out)
{
	int err = lz4_state_new(level, element, n, out);

	if (!err)
		((struct lz4 *)*out)->group = 8 * element;
	return err;
}

static void put_be32(unsigned char *at, uint32_t value)
{
	value = htobe32(value);
	memcpy(at, &value, sizeof(value));
}

/* Returns the length of the next block when n bytes are left, or 0 if the rest is no block. */
static size_t lz4_block_length(const struct lz4 *lz4, size_t n)
{
	return lz4->group ? SL_MIN(n, BIT_BLOCK) / lz4->group * lz4->group : SL_MIN(n, BLOCK);
}

/* Writes a block of LZ4 that has no match: the number of its bytes, and these. */
static size_t lz4_literals(const char *from, size_t block, unsigned char *to)
{
	size_t head = 0, rest = block;

	to[head++] = SL_MIN(rest, 15) << 4;
	if (rest >= 15) {
		for (rest -= 15; rest >= 255; rest -= 255)
			to[head++] = 255;
		to[head++] = rest;
	}
	memcpy(to + head, from, block);
	return head + block;
}

/* Compresses a block; returns its length, or 0 if there is no room. */
static size_t lz4_pack(struct lz4 *lz4, const char *from, size_t block, char *to, size_t room)
{
	/* Without shuffle a block must become shorter: an equal length means that it is stored. */
	size_t most = SL_MIN(room, lz4->group ? LZ4_COMPRESSBOUND(BIT_BLOCK) : block - 1);
	int length = 0;

	if (lz4->group) {
		sl_bit_shuffle(from, block / (lz4->group / 8), lz4->group / 8, lz4->scratch,
		               lz4->scratch + BIT_BLOCK);
		from = lz4->scratch + BIT_BLOCK;
	}
	if (lz4->plain && lz4->group)
		return lz4_literals(from, block, (unsigned char *)to);
	if (most && !lz4->plain)
		length = LZ4_compress_fast_extState(lz4->stream, from, to, block, most, 1);
	if (length > 0 || lz4->group)
		return SL_MAX(length, 0);
	if (room < block)
		return 0;
	memcpy(to, from, block);
	return block;
}

static size_t lz4_compress(void *state, const void *in, size_t n, void *out, size_t room)
{
	struct lz4 *lz4 = state;
	const unsigned char *from = in;
	unsigned char *to = out, *end = to + room;
	size_t block, length;

	if (n > SL_CODEC_MOST || room < CHUNK_HEAD)
		return 0;
	put_be32(to, 0);
	put_be32(to + 4, n);
	put_be32(to + 8, lz4->group ? BIT_BLOCK / lz4->group * lz4->group : SL_MIN(n, BLOCK));
	to += CHUNK_HEAD;
	for (; (block = lz4_block_length(lz4, n)); n -= block) {
		if (end - to <= BLOCK_HEAD)
			return 0;
		length = lz4_pack(lz4, (const char *)from, block, (char *)to + BLOCK_HEAD,
		                  end - to - BLOCK_HEAD);
		if (!length)
			return 0;
		put_be32(to, length);
		to += BLOCK_HEAD + length;
		from += block;
	}
	if ((size_t)(end - to) < n)
		return 0;
	memcpy(to, from, n);
	return to + n - (unsigned char *)out;
}

static size_t lz4_store(void *state, const void *in, size_t n, void *out)
{
	struct lz4 *lz4 = state;

	lz4->plain = true;
	size_t length = lz4_compress(state, in, n, out, lz4->group ? bit_bound(n) : lz4_bound(n));
	lz4->plain = false;
	return length;
}

static int lz4_decompress_block(void *state, const void *in, size_t n, void *out, size_t length)
{
	(void)state;
	if (length <= LZ4_MAX_INPUT_SIZE && n <= INT_MAX &&
	    LZ4_decompress_safe(in, out, (int)n, (int)length) == (int)length)
		return 0;
	return sl_fail(-EBADMSG, "LZ4 cannot decompress a block");
}

static int lz4_decompress(void *state, const void *in, size_t n, void *out, size_t length)
{
	struct lz4 *lz4 = state;
	const struct sl_blocks blocks = {.element = lz4->group / 8,
	                                 .codec = &sl_codec_lz4,
	                                 .state = lz4,
	                                 .scratch = lz4->scratch,
	                                 .room = sizeof(lz4->scratch)};

	return sl_blocks_undo(&blocks, in, n, out, length);
}

/* Shared by both filters. */
#define LZ4                                                                           \
	.encoder = "liblz4", .least = 1, .most = 1, .state_free = free,               \
	.state_bytes = lz4_state_bytes, .compress = lz4_compress, .store = lz4_store, \
	.decompress = lz4_decompress

const struct sl_codec sl_codec_lz4 = {
	.name = "lz4",
	.plugin = "HDF5's plugin 32004, as Debian's hdf5-filter-plugin has it",
	.block = lz4_decompress_block,
	.filter = 32004,
	.client_data = lz4_client_data,
	.bound = lz4_bound,
	.state_new = lz4_state_new,
	LZ4,
};

const struct sl_codec sl_codec_bitshuffle = {
	.name = "bitshuffle-lz4",
	.plugin = "HDF5's plugin 32008, as Debian's bitshuffle has it",
	.filter = 32008,
	.shuffles = true,
	.client_data = bit_client_data,
	.bound = bit_bound,
	.state_new = bit_state_new,
	LZ4,
};
