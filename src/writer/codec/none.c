/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Codec "none"
 *
 * Copies chunks, so that callers need not distinguish uncompressed chunks.
 *
 * Threads: any; no state.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "codec/codec.h"

static unsigned none_client_data(int level, size_t element, unsigned values[SL_CODEC_VALUES])
{
	(void)level, (void)element, (void)values;
	return 0;
}

static size_t none_bound(size_t n)
{
	return n;
}

static int none_state_new(int level, size_t element, size_t n, void **out)
{
	(void)level, (void)element, (void)n;
	*out = NULL;
	return 0;
}

static size_t none_state_bytes(const void *state)
{
	(void)state;
	return 0;
}

static size_t none_compress(void *state, const void *in, size_t n, void *out, size_t room)
{
	(void)state;
	if (n > room)
		return 0;
	memcpy(out, in, n);
	return n;
}

static int none_decompress(void *state, const void *in, size_t n, void *out, size_t length)
{
	(void)state;
	if (n != length)
		return sl_fail(-EBADMSG, "a chunk of %zu bytes has %zu", length, n);
	memcpy(out, in, n);
	return 0;
}

const struct sl_codec sl_codec_none = {
	.name = "none",
	.encoder = "none",
	.client_data = none_client_data,
	.bound = none_bound,
	.state_new = none_state_new,
	.state_free = free,
	.state_bytes = none_state_bytes,
	.compress = none_compress,
	.decompress = none_decompress,
};
