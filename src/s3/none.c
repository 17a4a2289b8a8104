/* SPDX-License-Identifier: Apache-2.0 */
/*
 * In the place of the other files of S3 where the build has no libcrypto.
 *
 * Threads: any.
 */
#include <errno.h>

#include "s3/s3.h"

int sl_s3_keyring_new(struct sl_s3_keyring **out)
{
	(void)out;
	return 0;
}

void sl_s3_keyring_free(struct sl_s3_keyring *keyring)
{
	(void)keyring;
}

int sl_s3_open(struct sl_s3_keyring *keyring, struct sl_pool *waiting, const char *uri,
               const struct sluice_s3_options *options, struct sl_s3 **out)
{
	(void)keyring, (void)waiting, (void)options, (void)out;
	return sl_fail(-ENOTSUP,
	               "'%s': this library was built without libcrypto, which signs requests "
	               "to S3",
	               uri);
}

/* Nothing opens, so nothing else is called. */
void sl_s3_close(struct sl_s3 *s3)
{
	(void)s3;
}

const char *sl_s3_url(const struct sl_s3 *s3)
{
	(void)s3;
	return "";
}

int sl_s3_sign(struct sl_s3 *s3, const char *method, const char *const *lines,
               struct sl_s3_lines *out)
{
	(void)s3, (void)method, (void)lines, (void)out;
	return -ENOTSUP;
}

void sl_s3_lines_clear(struct sl_s3_lines *lines)
{
	(void)lines;
}

void sl_s3_error_parse(const char *xml, struct sl_s3_error *out)
{
	(void)xml, (void)out;
}

enum sl_s3_remedy sl_s3_remedy(struct sl_s3 *s3, long status, const struct sl_s3_error *error,
                               int64_t date)
{
	(void)s3, (void)status, (void)error, (void)date;
	return SL_S3_NONE;
}

bool sl_s3_is_moved(struct sl_s3 *s3)
{
	(void)s3;
	return false;
}

int sl_s3_move(struct sl_s3 *s3)
{
	(void)s3;
	return -ENOTSUP;
}
