/* SPDX-License-Identifier: Apache-2.0 */
/* In the place of fetch.c where the build has no libcurl, and no object of S3 is opened. */
#include <errno.h>

#include "s3/fetch.h"

int sl_s3_fetch(const struct sl_settings *settings, const struct sl_s3_call *call, char **out)
{
	(void)settings;
	(void)call;
	(void)out;
	return sl_fail(-ENOTSUP, "this library was built without libcurl");
}

bool sl_s3_fetch_is_safe(const char *url)
{
	(void)url;
	return false;
}
