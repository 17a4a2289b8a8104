/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Begins of uploads in parts
 *
 * Opens an upload: its plan, its share of memory, and the lines of its headers.
 *
 * Threads: those of the program. No other thread has an upload that is being opened.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "http/multipart_internal.h"

bool sl_http_line_is_of_part(const char *line)
{
	static const char *const each[] = {"x-amz-server-side-encryption-customer-",
	                                   "x-amz-request-payer:", "x-amz-expected-bucket-owner:"};
	static const char *const whole[] = {"x-amz-", "Content-", "Cache-Control:", "Expires:"};

	for (size_t i = 0; i < sizeof(each) / sizeof(each[0]); i++)
		if (!strncasecmp(line, each[i], strlen(each[i])))
			return true;
	for (size_t i = 0; i < sizeof(whole) / sizeof(whole[0]); i++)
		if (!strncasecmp(line, whole[i], strlen(whole[i])))
			return false;
	return true;
}

static int multipart_set_fields(struct sl_http_multipart *multipart)
{
	struct sl_http *http = multipart->http;
	int rc = sl_http_fields_begin(&multipart->whole, http);

	if (!rc && !sl_http_identity_has(http, "Content-Type"))
		rc = sl_http_fields_add(&multipart->whole,
		                        "Content-Type: application/octet-stream");
	for (struct curl_slist *line = http->headers; !rc && line; line = line->next)
		if (sl_http_line_is_of_part(line->data))
			rc = sl_s3_line_add(&multipart->each.home, "%s", line->data);
	return rc;
}

/* No other thread has the upload yet. */
int sl_http_multipart_new(struct sl_http *http, const struct sluice_open_options *options,
                          struct sl_http_multipart **out) SL_UNCHECKED
{
	uint64_t part = http->core->settings.s3_part_bytes, total = options->expected_size;
	unsigned most = total && total <= part ? 1 : SL_S3_PARTS;
	struct sl_http_multipart *multipart =
		calloc(1, sizeof(*multipart) + most * sizeof(struct sl_s3_known));
	uint32_t crc = UINT32_MAX;
	int rc;

	if (!multipart)
		return sl_fail(-ENOMEM, "no memory");
	multipart->locked.known = (struct sl_s3_known *)(multipart + 1);
	multipart->http = http;
	multipart->most = most;
	multipart->process = getpid();
	atomic_store(&multipart->plain, !sl_crc32c_add(&crc, NULL, 0));
	sl_s3_plan_make(total, part, &multipart->plan);
	sl_mutex_init(&multipart->mutex);
	pthread_cond_init(&multipart->idle, NULL);
	sl_list_init(&multipart->locked.parts);
	sl_list_init(&multipart->locked.pieces);
	sl_list_init(&multipart->locked.coming);
	sl_list_init(&multipart->locked.spare);
	sl_http_multipart_take_share(multipart);
	multipart->locked.low = 1;
	sl_http_multipart_move_locked(multipart);
	sl_http_multipart_register(multipart);
	rc = multipart_set_fields(multipart);
	if (!rc && multipart->plan.bytes > SL_S3_PART_MOST)
		rc = sl_fail(-EFBIG, "'%s': S3 takes 10,000 parts of 5 GiB at most", http->name);
	if (rc)
		sl_http_multipart_free(multipart);
	else
		*out = multipart;
	return rc;
}
