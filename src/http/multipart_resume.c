/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Uploads that go on
 *
 * Writes an upload that is not complete as text, and takes it up by that text: parts that the server still has, with the
 * ETags that it gave them, are not sent again. The text has a line for the upload and one for each part, see
 * sluice_upload_state().
 *
 * Threads: those of the program. An upload is taken up before any other thread has it.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "http/multipart_internal.h"

/* Writes the parts that the server has. Returns how many there are. */
static unsigned multipart_print_locked(struct sl_http_multipart *multipart, FILE *to)
	SL_REQUIRES(&multipart->mutex)
{
	const struct sl_s3_plan *plan = &multipart->plan;
	unsigned count = 0;

	fprintf(to, "sluice upload 1 %" PRIu64 " %" PRIu64 " %s %s\n", plan->total, plan->bytes,
	        atomic_load(&multipart->plain) ? "-" : "CRC32C", multipart->locked.upload);
	for (unsigned i = 0; i < multipart->locked.known_count; i++) {
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
	int rc = 0;

	if (!to)
		return sl_fail(-ENOMEM, "no memory");
	sl_mutex_lock(&multipart->mutex);
	if (multipart->locked.error)
		rc = sl_fail(multipart->locked.error, "%s",
		             multipart->locked.sentence ? multipart->locked.sentence
		                                        : "the upload failed");
	else if (!multipart->plan.total)
		rc = sl_fail(-ENOTSUP, "'%s' has no expected_size, and cannot go on later", name);
	else if (!multipart->locked.begun)
		rc = sl_fail(-ENOENT, "'%s' is not written in parts", name);
	else if (!multipart->locked.upload || !multipart_print_locked(multipart, to))
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
	char crc[SL_S3_CRC32C], *at;
	uint64_t start = strtoull(line, &at, 10), length = strtoull(at, &at, 10);
	struct sl_s3_known *known;
	int behind = 0;

	if (start >= plan->total || start % plan->bytes ||
	    length != SL_MIN(plan->bytes, plan->total - start))
		return false;
	known = &multipart->locked.known[start / plan->bytes];
	if (known->etag || sscanf(at, "%8s %n", crc, &behind) != 1 || !strcspn(at + behind, "\n"))
		return false;
	if (strcmp(crc, "-"))
		strcpy(known->crc32c, crc);
	known->etag = strndup(at + behind, strcspn(at + behind, "\n"));
	return known->etag;
}

int sl_http_multipart_parse(struct sl_http_multipart *multipart, const char *text) SL_UNCHECKED
{
	struct sl_s3_plan plan;
	const char *line = strchr(text, '\n');
	char *head = line ? strndup(text, line - text) : NULL, sums[8] = "";
	bool valid = head && sscanf(head, "sluice upload 1 %" SCNu64 " %" SCNu64 " %7s",
	                            &plan.total, &plan.bytes, sums) == 3;
	uint64_t count;

	valid = valid && plan.total == multipart->plan.total && plan.bytes;
	count = valid ? (plan.total - 1) / plan.bytes + 1 : 0;
	if (count && count <= SL_S3_PARTS) {
		multipart->plan = plan;
		multipart->locked.known = calloc(count, sizeof(*multipart->locked.known));
		multipart->locked.upload = strdup(strrchr(head, ' ') + 1);
		atomic_store(&multipart->plain, strcmp(sums, "CRC32C"));
	}
	free(head);
	multipart->locked.begun = multipart->locked.told = true;
	if (!multipart->locked.known)
		return sl_fail(-EINVAL,
		               "open options: upload is not that of an object of %" PRIu64 " bytes",
		               multipart->plan.total);
	multipart->locked.known_count = count;
	while (*++line) {
		if (!multipart_parse_part(multipart, line))
			return sl_fail(-EINVAL, "open options: a line of upload is of no part");
		line += strcspn(line, "\n");
	}
	return 0;
}

/* Returns whether two ETags are the same. Some servers leave the quotes out of lists. */
static bool etag_is(const char *one, const char *other)
{
	size_t n = strlen(one), m = strlen(other);

	one += n && *one == '"';
	other += m && *other == '"';
	n = strcspn(one, "\"");
	m = strcspn(other, "\"");
	return n == m && !strncmp(one, other, n);
}

/* Reads a page of the list of parts. Returns 0, with *marker at its last part if there are more; or -errno. */
static int multipart_list(struct sl_http_multipart *multipart, unsigned *marker) SL_UNCHECKED
{
	struct sl_http_call call = {.verb = "GET", .fields = &multipart->each};
	char *upload = sl_s3_upload_query(multipart->locked.upload, 0), *query = NULL, *at;
	char etag[SL_S3_TEXT], more[8] = "";
	unsigned number, last = *marker;
	int rc;

	if (upload && asprintf(&query, "part-number-marker=%u&%s", *marker, upload) >= 0) {
		call.query = query;
		rc = sl_http_call_run(multipart->http, &call);
	} else {
		rc = sl_fail(-ENOMEM, "no memory");
	}
	if (!rc && (at = call.answer.xml)) {
		sl_s3_element(at, "IsTruncated", more, sizeof(more));
		while (sl_s3_known_next(&at, &number, etag)) {
			struct sl_s3_known *known = multipart->locked.known;

			last = number;
			if (number && number <= multipart->locked.known_count &&
			    known[number - 1].etag)
				known[number - 1].full = etag_is(known[number - 1].etag, etag);
		}
	}
	/* Each page has to be behind the one before. */
	*marker = !strcmp(more, "true") && last > *marker ? last : 0;
	sl_http_answer_clear(&call.answer);
	free(upload);
	free(query);
	return rc;
}

int sl_http_multipart_confirm(struct sl_http_multipart *multipart) SL_UNCHECKED
{
	unsigned marker = 0;
	int rc;

	do
		rc = multipart_list(multipart, &marker);
	while (!rc && marker);
	for (unsigned i = 0; i < multipart->locked.known_count; i++) {
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
