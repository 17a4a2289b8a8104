/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Deflate by ISA-L
 *
 * Deflate at level 1 in zlib's format (RFC 1950). The header and checksum are computed here,
 * because ISA-L's checksum takes as long as everything else when a chunk compresses well.
 *
 * Threads: any; a state belongs to one thread at a time.
 */
#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <isa-l/igzip_lib.h>

#include "codec/simd.h"

enum { HEAD = 2, CHECKSUM = 4 };

struct isal {
	struct isal_zstream stream;
	struct inflate_state inflate;
	uint8_t level_buffer[ISAL_DEF_LVL1_EXTRA_LARGE];
};

/* Stored blocks have up to 65535 bytes and a header of 5; zlib's header and trailer have 6. */
static size_t isal_bound(size_t n)
{
	return n + 5 * (n / 65535 + 1) + 6 + 64;
}

static int isal_state_new(int level, size_t element, size_t n, void **out)
{
	struct isal *isal = aligned_alloc(64, (sizeof(*isal) + 63) / 64 * 64);

	(void)level, (void)element, (void)n;
	if (!isal)
		return sl_fail(-ENOMEM, "no memory for the state of ISA-L");
	*out = isal;
	return 0;
}

static size_t isal_state_bytes(const void *state)
{
	(void)state;
	return sizeof(struct isal);
}

/* Deflate, window of 32 KiB, fastest level, no dictionary; must be a multiple of 31. */
static const unsigned char zlib_head[HEAD] = {0x78, 0x01};

static size_t isal_compress(void *state, const void *in, size_t n, void *out, size_t room)
{
	struct isal *isal = state;
	struct isal_zstream *stream = &isal->stream;
	unsigned char *to = out;

	if (n > SL_CODEC_MOST || room <= HEAD + CHECKSUM)
		return 0;
	isal_deflate_stateless_init(stream);
	stream->hist_bits = 0; /* the largest window; the call above leaves what the memory has */
	stream->level = 1;
	stream->level_buf = isal->level_buffer;
	stream->level_buf_size = sizeof(isal->level_buffer);
	stream->gzip_flag = IGZIP_DEFLATE;
	stream->end_of_stream = 1;
	stream->flush = NO_FLUSH;
	stream->next_in = (uint8_t *)in;
	stream->avail_in = n;
	stream->next_out = to + HEAD;
	stream->avail_out = SL_MIN(room - HEAD - CHECKSUM, UINT32_MAX);
	if (isal_deflate_stateless(stream) != COMP_OK || stream->avail_in)
		return 0;
	memcpy(to, zlib_head, HEAD);
	uint32_t sum = htobe32(sl_adler32(in, n));
	memcpy(to + HEAD + stream->total_out, &sum, CHECKSUM);
	return HEAD + stream->total_out + CHECKSUM;
}

static int isal_decompress(void *state, const void *in, size_t n, void *out, size_t length)
{
	struct isal *isal = state;
	struct inflate_state *inflate = &isal->inflate;

	isal_inflate_init(inflate);
	inflate->crc_flag = ISAL_ZLIB;
	inflate->next_in = (uint8_t *)in;
	inflate->avail_in = SL_MIN(n, UINT32_MAX);
	inflate->next_out = out;
	inflate->avail_out = SL_MIN(length, UINT32_MAX);
	int result = isal_inflate(inflate);
	if (result != ISAL_DECOMP_OK || inflate->block_state != ISAL_BLOCK_FINISH)
		return sl_fail(-EBADMSG, "ISA-L cannot decompress a chunk (%d)", result);
	/* Some bytes beyond the end may have been read already. */
	if (inflate->total_out != length || inflate->avail_in || inflate->read_in_length >= 8)
		return sl_fail(-EBADMSG, "a chunk has %u bytes of %zu", inflate->total_out, length);
	return 0;
}

const struct sl_codec sl_codec_isal = {
	.name = "deflate",
	.encoder = "ISA-L",
	.filter = 1,
	.least = 1,
	.most = 1,
	.client_data = sl_codec_level_data,
	.bound = isal_bound,
	.state_new = isal_state_new,
	.state_free = free,
	.state_bytes = isal_state_bytes,
	.compress = isal_compress,
	.store = sl_deflate_store,
	.decompress = isal_decompress,
};
