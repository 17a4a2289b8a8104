/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Filter 32004. Big-endian: the length of the chunk in 8 bytes, that of a block in 4; then for each
 * block its length here in 4 bytes, and its bytes. A block of the same length here and there is
 * stored as it is. The last block may be shorter, and none is longer than the chunk.
 */
#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <lz4.h>

#include "codec/codec.h"

/* Matches do not cross blocks and reach back 64 KiB: longer blocks would gain next to nothing. */
#define BLOCK ((size_t)1 << 20)

enum { CHUNK_HEAD = 12, BLOCK_HEAD = 4 };

static unsigned lz4_client_data(int level, unsigned values[SL_CODEC_VALUES])
{
	(void)level;
	values[0] = BLOCK;
	return 1;
}

static size_t lz4_bound(size_t n)
{
	return CHUNK_HEAD + (n / BLOCK + 1) * BLOCK_HEAD + n;
}

static int lz4_state_new(int level, size_t n, void **out)
{
	void *state = malloc(LZ4_sizeofState());

	(void)level;
	(void)n;
	if (!state)
		return sl_fail(-ENOMEM, "no memory for the state of LZ4");
	*out = state;
	return 0;
}

static void lz4_state_free(void *state)
{
	free(state);
}

static size_t lz4_state_bytes(const void *state)
{
	(void)state;
	return LZ4_sizeofState();
}

static void put32(unsigned char *at, uint32_t value)
{
	value = htobe32(value);
	memcpy(at, &value, sizeof(value));
}

static uint32_t get32(const unsigned char *at)
{
	uint32_t value;

	memcpy(&value, at, sizeof(value));
	return be32toh(value);
}

static void put64(unsigned char *at, uint64_t value)
{
	value = htobe64(value);
	memcpy(at, &value, sizeof(value));
}

static uint64_t get64(const unsigned char *at)
{
	uint64_t value;

	memcpy(&value, at, sizeof(value));
	return be64toh(value);
}

static size_t lz4_compress(void *state, const void *in, size_t n, void *out, size_t room)
{
	const unsigned char *from = in;
	unsigned char *to = out, *end = to + room;

	if (n > SL_CODEC_MOST || room < CHUNK_HEAD)
		return 0;
	put64(to, n);
	put32(to + 8, SL_MIN(n, BLOCK));
	to += CHUNK_HEAD;
	while (n) {
		size_t block = SL_MIN(n, BLOCK), left = end - to, most;
		int length;

		if (left <= BLOCK_HEAD)
			return 0;
		/* One byte less than the block: as long as it would mean that it is stored. */
		most = SL_MIN(left - BLOCK_HEAD, block - 1);
		length = most ? LZ4_compress_fast_extState(state, (const char *)from,
		                                           (char *)to + BLOCK_HEAD, block, most, 1)
		              : 0;
		if (length <= 0) {
			if (left - BLOCK_HEAD < block)
				return 0;
			memcpy(to + BLOCK_HEAD, from, block);
			length = block;
		}
		put32(to, length);
		to += BLOCK_HEAD + length;
		from += block;
		n -= block;
	}
	return to - (unsigned char *)out;
}

static int lz4_decompress(void *state, const void *in, size_t n, void *out, size_t length)
{
	const unsigned char *from = in, *end = from + n;
	unsigned char *to = out;
	size_t block;

	(void)state;
	if (n < CHUNK_HEAD || get64(from) != length)
		return sl_fail(-EBADMSG, "a chunk of %zu bytes has another length in it", length);
	block = get32(from + 8);
	from += CHUNK_HEAD;
	while (length) {
		size_t here;

		block = SL_MIN(block, length);
		if (!block || end - from < BLOCK_HEAD)
			return sl_fail(-EBADMSG, "a chunk ends %zu bytes too early", length);
		here = get32(from);
		from += BLOCK_HEAD;
		if (here > (size_t)(end - from) || here > block)
			return sl_fail(-EBADMSG, "a block of LZ4 is longer than its chunk");
		if (here == block)
			memcpy(to, from, block);
		else if (block > LZ4_MAX_INPUT_SIZE ||
		         LZ4_decompress_safe((const char *)from, (char *)to, here, block) !=
		                 (int)block)
			return sl_fail(-EBADMSG, "LZ4 cannot decompress a block");
		from += here;
		to += block;
		length -= block;
	}
	if (from != end)
		return sl_fail(-EBADMSG, "a chunk has %zu bytes too many", (size_t)(end - from));
	return 0;
}

const struct sl_codec sl_codec_lz4 = {
	.name = "lz4",
	.encoder = "liblz4",
	.filter = 32004,
	.least = 1,
	.most = 1,
	.client_data = lz4_client_data,
	.bound = lz4_bound,
	.state_new = lz4_state_new,
	.state_free = lz4_state_free,
	.state_bytes = lz4_state_bytes,
	.compress = lz4_compress,
	.decompress = lz4_decompress,
};
