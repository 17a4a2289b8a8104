/* SPDX-License-Identifier: Apache-2.0 */
/*
 * SHA-256
 *
 * By libcrypto's EVP, which takes the instructions that the processor has for it.
 *
 * Threads: any, one at a time for each digest.
 */
#include <errno.h>
#include <openssl/evp.h>

#include "tensors/digest.h"

/* The struct is libcrypto's. */
static EVP_MD_CTX *sha256_context(struct sl_sha256 *sha)
{
	return (EVP_MD_CTX *)sha;
}

int sl_sha256_new(struct sl_sha256 **out)
{
	EVP_MD_CTX *context = EVP_MD_CTX_new();

	if (!context || !EVP_DigestInit_ex(context, EVP_sha256(), NULL)) {
		EVP_MD_CTX_free(context);
		return sl_fail(-ENOMEM, "libcrypto cannot begin SHA-256");
	}
	*out = (struct sl_sha256 *)context;
	return 0;
}

int sl_sha256_add(struct sl_sha256 *sha, const void *data, size_t n)
{
	return EVP_DigestUpdate(sha256_context(sha), data, n)
	               ? 0
	               : sl_fail(-EIO, "libcrypto cannot compute SHA-256");
}

int sl_sha256_end(struct sl_sha256 *sha, unsigned char out[SL_SHA256_BYTES])
{
	return EVP_DigestFinal_ex(sha256_context(sha), out, NULL)
	               ? 0
	               : sl_fail(-EIO, "libcrypto cannot end SHA-256");
}

void sl_sha256_free(struct sl_sha256 *sha)
{
	EVP_MD_CTX_free(sha256_context(sha));
}
