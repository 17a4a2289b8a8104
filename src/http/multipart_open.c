/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Begins of uploads in parts
 *
 * Opens an upload, anew or by the text of an earlier attempt: parts that the server still has, with the ETags that it gave
 * them, are not sent again. Writes an upload that is not complete as such a text, which has a line for the upload and one
 * for each part: see sluice_upload_state().
 *
 * Threads: those of the program. No other thread has an upload that is being opened.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "http/multipart_internal.h"

/* -------------------------------------------------------------------------------------- text */

/* Writes the parts that the server has. Returns how many there are. */
static unsigned multipart_print_locked(struct sl_http_multipart *multipart, FILE *to)
	SL_REQUIRES(&multipart->mutex)
{
	const struct sl_s3_plan *plan = &multipart->plan;
	unsigned count = 0;

	fprintf(to, "sluice upload 1 %" PRIu64 " %" PRIu64 " %s %s\n", plan->total, plan->bytes,
	        atomic_load(&multipart->plain) ? "-" : "CRC32C", multipart->locked.upload);
	for (unsigned i = 0; i < SL_S3_PARTS; i++) {
		const struct sl_s3_known *known = &multipart->locked.known[i];
		uint64_t start = i * plan->bytes;

		if (!known->etag)
			continue;
		fprintf(to, "%" PRIu64 " %" PRIu64 " %s %s\n", start,
		        SL_MIN(plan->bytes, plan->total - start),
		        known->crc32c[0] ? known->crc32c : "-", known->etag);
		count++;
	}
	return count;
}

int sl_http_multipart_describe(struct sl_http_multipart *multipart, char **out)
{
	const char *name = multipart->http->name;
	char *text = NULL;
	size_t bytes;
	FILE *to = open_memstream(&text, &bytes);
	int rc;

	if (!to)
		return sl_fail(-ENOMEM, "no memory");
	sl_mutex_lock(&multipart->mutex);
	rc = sl_http_multipart_error_locked(multipart);
	if (!rc && !multipart->plan.total)
		rc = sl_fail(-ENOTSUP, "'%s' has no expected_size, and cannot go on later", name);
	else if (!rc && !multipart->locked.begun)
		rc = sl_fail(-ENOENT, "'%s' is not written in parts", name);
	else if (!rc && (!multipart->locked.upload || !multipart_print_locked(multipart, to)))
		rc = sl_fail(-EAGAIN, "the server has no part of '%s' yet", name);
	if (fclose(to) && !rc)
		rc = sl_fail(-ENOMEM, "no memory");
	multipart->locked.told |= !rc;
	sl_mutex_unlock(&multipart->mutex);
	if (rc)
		free(text);
	else
		*out = text;
	return rc;
}

/* Keeps a line of a part. Returns false if it is none. */
static bool multipart_parse_part(struct sl_http_multipart *multipart, const char *line) SL_UNCHECKED
{
	const struct sl_s3_plan *plan = &multipart->plan;
	struct sl_s3_known *known;
	char crc[SL_CRC32C_TEXT];
	uint64_t start, length;
	int behind = 0;

	if (sscanf(line, "%" SCNu64 " %" SCNu64 " %8s %n", &start, &length, crc, &behind) != 3 ||
	    start >= plan->total || start % plan->bytes ||
	    length != SL_MIN(plan->bytes, plan->total - start) || !line[behind])
		return false;
	known = &multipart->locked.known[start / plan->bytes];
	if (known->etag)
		return false;
	strcpy(known->crc32c, strcmp(crc, "-") ? crc : "");
	known->etag = strdup(line + behind);
	return known->etag;
}

/* Takes plan, id and parts out of a text. Returns -EINVAL for a text that is of no such upload. */
static int multipart_parse(struct sl_http_multipart *multipart, const char *text) SL_UNCHECKED
{
	char *copy = strdup(text), *rest = copy, *line = copy ? strsep(&rest, "\n") : "", sums[8];
	struct sl_s3_plan plan;
	uint64_t count = 0;
	int behind = 0;
	bool valid;

	multipart->locked.begun = multipart->locked.told = true;
	if (sscanf(line, "sluice upload 1 %" SCNu64 " %" SCNu64 " %7s %n", &plan.total, &plan.bytes,
	           sums, &behind) == 3 &&
	    plan.total == multipart->plan.total && plan.bytes && plan.bytes <= SL_S3_PART_MOST &&
	    line[behind])
		count = (plan.total - 1) / plan.bytes + 1;
	valid = count && count <= SL_S3_PARTS;
	if (valid) {
		multipart->plan = plan;
		multipart->locked.upload = strdup(line + behind);
		atomic_store(&multipart->plain, strcmp(sums, "CRC32C"));
		valid = multipart->locked.upload;
	}
	while (valid && rest && *rest)
		valid = multipart_parse_part(multipart, strsep(&rest, "\n"));
	free(copy);
	return valid ? 0
	             : sl_fail(-EINVAL,
	                       "open options: upload is not that of an object of %" PRIu64 " bytes",
	                       multipart->plan.total);
}

/* Reads the page of the list of parts behind *marker, and sets that to the last of them. Returns 0 or -errno. */
static int multipart_list(struct sl_http_multipart *multipart, unsigned *marker) SL_UNCHECKED
{
	struct sl_http_call call = {.verb = "GET", .fields = &multipart->each};
	char *upload = sl_s3_upload_query(multipart->locked.upload, 0), *query, *at;
	char etag[SL_S3_TEXT];
	int rc;

	if (!upload || asprintf(&query, "part-number-marker=%u&%s", *marker, upload) < 0) {
		free(upload);
		return sl_fail(-ENOMEM, "no memory");
	}
	call.query = query;
	rc = sl_http_call_run(multipart->http, &call);
	at = call.answer.xml;
	while (!rc && at && sl_s3_known_next(&at, marker, etag)) {
		bool within = *marker && *marker <= SL_S3_PARTS;
		struct sl_s3_known *known = multipart->locked.known + (within ? *marker - 1 : 0);

		/* Some servers leave the quotes out of lists. */
		if (within && known->etag)
			known->full = strlen(etag) + 2 >= strlen(known->etag) &&
			              strstr(known->etag, etag);
	}
	sl_http_answer_clear(&call.answer);
	free(upload);
	free(query);
	return rc;
}

/* Asks the server for the parts, and forgets those that it has not. */
static int multipart_confirm(struct sl_http_multipart *multipart) SL_UNCHECKED
{
	unsigned marker = 0, before;
	int rc;

	do {
		before = marker;
		rc = multipart_list(multipart, &marker);
	} while (!rc && marker > before && marker < SL_S3_PARTS);
	for (unsigned i = 0; i < SL_S3_PARTS; i++) {
		struct sl_s3_known *known = &multipart->locked.known[i];

		if (known->full)
			continue;
		free(known->etag);
		*known = (struct sl_s3_known){0};
	}
	sl_http_multipart_move_locked(multipart);
	atomic_store(&multipart->http->begun, true);
	return rc;
}

/* -------------------------------------------------------------------------------------- open */

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
	for (struct curl_slist *line = http->headers; !rc && line; line = line->next) {
		struct curl_slist *home;

		if (!sl_http_line_is_of_part(line->data))
			continue;
		home = curl_slist_append(multipart->each.home, line->data);
		if (home)
			multipart->each.home = home;
		rc = home ? 0 : sl_fail(-ENOMEM, "no memory");
	}
	return rc;
}

/* No other thread has the upload yet. */
int sl_http_multipart_new(struct sl_http *http, const struct sluice_open_options *options,
                          struct sl_http_multipart **out) SL_UNCHECKED
{
	uint64_t part = http->core->settings.s3_part_bytes, total = options->expected_size;
	unsigned most = total && total <= part && !options->upload ? 1 : SL_S3_PARTS;
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
	rc = options->upload ? multipart_parse(multipart, options->upload) : 0;
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
	if (!rc)
		rc = multipart_set_fields(multipart);
	if (!rc && multipart->plan.bytes > SL_S3_PART_MOST)
		rc = sl_fail(-EFBIG, "'%s': S3 takes 10,000 parts of 5 GiB at most", http->name);
	if (!rc && options->upload)
		rc = multipart_confirm(multipart);
	if (rc)
		sl_http_multipart_free(multipart);
	else
		*out = multipart;
	return rc;
}
