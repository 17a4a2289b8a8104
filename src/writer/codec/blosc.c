/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Blosc 1: filter 32001
 *
 * By libblosc, which is loaded at the first use: the library itself does not need it.
 *
 * Threads: any.
 */
#include <dlfcn.h>
#include <errno.h>

#include "codec/codec.h"

static pthread_once_t once = PTHREAD_ONCE_INIT;
/* Written once; NULL: there is no libblosc, or it is older than 1.16. */
static int (*validate)(const void *in, size_t n, size_t *length);
static int (*decompress)(const void *in, void *out, size_t length, int threads);

static void blosc_load(void)
{
	void *library = dlopen("libblosc.so.1", RTLD_NOW | RTLD_LOCAL);

	if (!library)
		return;
	*(void **)&validate = dlsym(library, "blosc_cbuffer_validate");
	*(void **)&decompress = dlsym(library, "blosc_decompress_ctx");
}

int sl_blosc_load(void)
{
	pthread_once(&once, blosc_load);
	if (validate && decompress)
		return 0;
	return sl_fail(-ENOTSUP, "its filter blosc needs libblosc.so.1 (Debian: libblosc1)");
}

int sl_blosc_decompress(void *state, const void *in, size_t n, void *out, size_t length)
{
	size_t inside = 0;

	(void)state;
	if (validate(in, n, &inside) || inside != length)
		return sl_fail(-EBADMSG, "a chunk has %zu bytes of %zu, or another length in it",
		               inside, length);
	int done = decompress(in, out, length, 1);
	return done == (int)length ? 0 : sl_fail(-EBADMSG, "libblosc cannot decompress a chunk");
}
