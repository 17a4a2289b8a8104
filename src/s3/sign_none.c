/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Signatures in a build without libcrypto: there are none, and no object of S3 opens.
 *
 * Threads: any.
 */
#include <errno.h>

#include "s3/s3.h"
#include "s3/sign.h"

int sl_sign_check(void)
{
	return sl_fail(-ENOTSUP,
	               "this library was built without libcrypto, which signs requests to S3");
}

int sl_sign(const struct sl_sign_request *request, char **out)
{
	(void)request, (void)out;
	return sl_sign_check();
}

void sl_s3_etag(const void *data, size_t bytes, char out[SL_S3_TEXT])
{
	(void)data, (void)bytes;
	out[0] = '\0';
}

void sl_s3_md5_line(const void *data, size_t bytes, char out[40])
{
	(void)data, (void)bytes;
	out[0] = '\0';
}

int sl_sign_payload(const void *body, size_t bytes, char out[SL_SIGN_HEX])
{
	(void)body;
	(void)bytes;
	(void)out;
	return sl_sign_check();
}
