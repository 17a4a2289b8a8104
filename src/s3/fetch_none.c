/* SPDX-License-Identifier: Apache-2.0 */
/* In the place of fetch.c where the build has no libcurl, and no object of S3 is opened. */
#include <errno.h>

#include "s3/fetch.h"

int sl_s3_fetch(const struct sl_settings *settings, const struct sl_s3_call *call, char *text,
                size_t size)
{
	(void)settings;
	(void)call;
	(void)text;
	(void)size;
	return sl_fail(-ENOTSUP, "this library was built without libcurl");
}

bool sl_s3_fetch_host(const char *url, bool *is_plain, char **out)
{
	(void)url;
	(void)is_plain;
	(void)out;
	return false;
}
