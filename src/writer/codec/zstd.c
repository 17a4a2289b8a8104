/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Zstandard: filter 32015
 *
 * A chunk is a zstd frame with the length of its content in its header.
 *
 * Threads: any; a state belongs to one thread at a time.
 */
#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <zstd.h>

#include "codec/codec.h"

/* The maximum length of a block. */
#define RAW_BLOCK ((size_t)128 << 10)

struct zstd {
	ZSTD_CCtx *compressor;
	ZSTD_DCtx *decompressor;
};

static void zstd_state_free(void *state)
{
	struct zstd *zstd = state;

	if (!zstd)
		return;
	ZSTD_freeCCtx(zstd->compressor);
	ZSTD_freeDCtx(zstd->decompressor);
	free(zstd);
}

static size_t zstd_compress(void *state, const void *in, size_t n, void *out, size_t room)
{
	struct zstd *zstd = state;

	if (n > SL_CODEC_MOST)
		return 0;
	size_t length = ZSTD_compress2(zstd->compressor, out, room, in, n);
	return ZSTD_isError(length) ? 0 : length;
}

/* A frame of raw blocks, with the length of its content in 8 bytes and no window but that. Before
 * each block come 3 bytes in little-endian: whether it is the last, its kind (0), its length. */
static size_t zstd_store(void *state, const void *in, size_t n, void *out)
{
	static const unsigned char head[] = {0x28, 0xb5, 0x2f, 0xfd, 0xe0};
	uint64_t content = htole64(n);
	const char *from = in;
	char *to = out;

	(void)state;
	memcpy(to, head, sizeof(head));
	memcpy(to + sizeof(head), &content, sizeof(content));
	to += sizeof(head) + sizeof(content);
	do {
		size_t block = SL_MIN(n, RAW_BLOCK);
		uint32_t before = htole32((uint32_t)block << 3 | (block == n));

		memcpy(to, &before, 3);
		memcpy(to + 3, from, block);
		to += 3 + block;
		from += block;
		n -= block;
	} while (n);
	return to - (char *)out;
}

/* Compresses a chunk in advance, because zstd allocates at the first chunk. */
static bool zstd_rehearse(struct zstd *zstd, size_t n)
{
	size_t room = ZSTD_compressBound(n), length;
	void *in = calloc(1, n + 1), *out = malloc(room);

	length = in && out ? zstd_compress(zstd, in, n, out, room) : 0;
	free(in);
	free(out);
	return length;
}

static int zstd_state_new(int level, size_t element, size_t n, void **out)
{
	struct zstd *zstd = calloc(1, sizeof(*zstd));

	(void)element;
	if (zstd) {
		zstd->compressor = ZSTD_createCCtx();
		zstd->decompressor = ZSTD_createDCtx();
	}
	if (!zstd || !zstd->compressor || !zstd->decompressor ||
	    ZSTD_isError(
		    ZSTD_CCtx_setParameter(zstd->compressor, ZSTD_c_compressionLevel, level)) ||
	    !zstd_rehearse(zstd, SL_MIN(n, SL_CODEC_MOST))) {
		zstd_state_free(zstd);
		return sl_fail(-ENOMEM, "no memory for the state of zstd");
	}
	*out = zstd;
	return 0;
}

static size_t zstd_state_bytes(const void *state)
{
	const struct zstd *zstd = state;

	return sizeof(*zstd) + ZSTD_sizeof_CCtx(zstd->compressor) +
	       ZSTD_sizeof_DCtx(zstd->decompressor);
}

static int zstd_decompress(void *state, const void *in, size_t n, void *out, size_t length)
{
	struct zstd *zstd = state;
	size_t given = ZSTD_decompressDCtx(zstd->decompressor, out, length, in, n);

	if (ZSTD_isError(given))
		return sl_fail(-EBADMSG, "zstd cannot decompress a chunk: %s",
		               ZSTD_getErrorName(given));
	if (given != length)
		return sl_fail(-EBADMSG, "a chunk has %zu bytes of %zu", given, length);
	return 0;
}

const struct sl_codec sl_codec_zstd = {
	.name = "zstd",
	.encoder = "libzstd",
	.plugin = "HDF5's plugin 32015, which Debian's hdf5plugin 4.0 has not",
	.filter = 32015,
	.least = 1,
	.most = 19, /* higher levels use too much memory for a worker */
	.client_data = sl_codec_level_data,
	.bound = ZSTD_compressBound,
	.state_new = zstd_state_new,
	.state_free = zstd_state_free,
	.state_bytes = zstd_state_bytes,
	.compress = zstd_compress,
	.store = zstd_store,
	.decompress = zstd_decompress,
	.block = zstd_decompress,
};
