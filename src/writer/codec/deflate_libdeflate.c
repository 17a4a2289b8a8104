/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Deflate by libdeflate
 *
 * Deflate at levels 1 to 9 in zlib's format.
 *
 * Threads: any; a state belongs to one thread at a time.
 */
#include <errno.h>
#include <stdlib.h>

#include <libdeflate.h>

#include "codec/simd.h"

struct deflate {
	struct libdeflate_compressor *compressor;
	struct libdeflate_decompressor *decompressor;
	int level;
};

static size_t deflate_bound(size_t n)
{
	return libdeflate_zlib_compress_bound(NULL, n);
}

static void deflate_state_free(void *state)
{
	struct deflate *deflate = state;

	if (!deflate)
		return;
	libdeflate_free_compressor(deflate->compressor);
	libdeflate_free_decompressor(deflate->decompressor);
	free(deflate);
}

static int deflate_state_new(int level, size_t element, size_t n, void **out)
{
	struct deflate *deflate = calloc(1, sizeof(*deflate));

	(void)element, (void)n;
	if (deflate) {
		deflate->compressor = libdeflate_alloc_compressor(level);
		deflate->decompressor = libdeflate_alloc_decompressor();
	}
	if (!deflate || !deflate->compressor || !deflate->decompressor) {
		deflate_state_free(deflate);
		return sl_fail(-ENOMEM, "no memory for the state of libdeflate");
	}
	deflate->level = level;
	*out = deflate;
	return 0;
}

/* libdeflate does not report its memory: the requests of version 1.14, rounded up. */
static size_t deflate_state_bytes(const void *state)
{
	const struct deflate *deflate = state;

	return deflate->level > 1 ? (size_t)700 << 10 : (size_t)220 << 10;
}

static size_t deflate_compress(void *state, const void *in, size_t n, void *out, size_t room)
{
	struct deflate *deflate = state;

	if (n > SL_CODEC_MOST)
		return 0;
	return libdeflate_zlib_compress(deflate->compressor, in, n, out, room);
}

static int deflate_decompress(void *state, const void *in, size_t n, void *out, size_t length)
{
	struct deflate *deflate = state;
	size_t taken, given;
	enum libdeflate_result result = libdeflate_zlib_decompress_ex(deflate->decompressor, in, n,
	                                                              out, length, &taken, &given);

	if (result != LIBDEFLATE_SUCCESS)
		return sl_fail(-EBADMSG, "libdeflate cannot decompress a chunk (%d)", result);
	if (taken != n || given != length)
		return sl_fail(-EBADMSG, "a chunk has %zu bytes of %zu", given, length);
	return 0;
}

const struct sl_codec sl_codec_libdeflate = {
	.name = "deflate",
	.encoder = "libdeflate",
	.filter = 1,
	.least = 1,
	.most = 9,
	.client_data = sl_codec_level_data,
	.bound = deflate_bound,
	.state_new = deflate_state_new,
	.state_free = deflate_state_free,
	.state_bytes = deflate_state_bytes,
	.compress = deflate_compress,
	.store = sl_deflate_store,
	.decompress = deflate_decompress,
};
