/* SPDX-License-Identifier: Apache-2.0 */
/*
 * SHA-256 in a build without libcrypto: there is none.
 *
 * Threads: any.
 */
#include <errno.h>

#include "tensors/digest.h"

int sl_sha256_new(struct sl_sha256 **out)
{
	(void)out;
	return sl_fail(-ENOSYS, "this library was built without libcrypto, which computes SHA-256");
}

int sl_sha256_add(struct sl_sha256 *sha, const void *data, size_t n)
{
	(void)sha, (void)data, (void)n;
	return -ENOSYS;
}

int sl_sha256_end(struct sl_sha256 *sha, unsigned char out[SL_SHA256_BYTES])
{
	(void)sha, (void)out;
	return -ENOSYS;
}

void sl_sha256_free(struct sl_sha256 *sha)
{
	(void)sha;
}
