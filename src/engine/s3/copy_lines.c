/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lines for copies
 *
 * Divides the user's header between the requests for a copy, and names the source to the server.
 *
 * Threads: any.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include <curl/curl.h>

#include "s3/s3_internal.h"

#define SOURCE    "x-amz-copy-source-"
#define CUSTOMER  "server-side-encryption-customer-"
#define DIRECTIVE "x-amz-metadata-directive:"

static bool line_begins(const char *line, const char *name)
{
	return !strncasecmp(line, name, strlen(name));
}

static bool line_begins_any(const char *line, const char *const *names)
{
	while (*names && !line_begins(line, *names))
		names++;
	return *names;
}

/* A line of unknown meaning goes with each request: a proxy may want it. */
unsigned sl_s3_line(const char *line)
{
	static const char *const metadata[] = {"x-amz-meta-",
	                                       "Content-Type:",
	                                       "Content-Encoding:",
	                                       "Content-Language:",
	                                       "Content-Disposition:",
	                                       "Cache-Control:",
	                                       "Expires:",
	                                       "x-amz-website-redirect-location:",
	                                       NULL};
	static const char *const each[] = {
		"x-amz-" CUSTOMER, "x-amz-request-payer:", "x-amz-expected-bucket-owner:", NULL};
	static const char *const whole[] = {"x-amz-", "Content-",
	                                    "Cache-Control:", "Expires:", NULL};

	return (line_begins_any(line, metadata) ? SL_LINE_METADATA : 0) |
	       (line_begins_any(line, each) || !line_begins_any(line, whole) ? SL_LINE_EACH : 0);
}

static bool line_is_given(const struct curl_slist *given, const char *name)
{
	while (given && !line_begins(given->data, name))
		given = given->next;
	return given;
}

/* Adds the lines by which the server finds the source and decrypts it. */
static int copy_name_source(const struct sl_service_copy *copy, struct curl_slist **lines)
{
	const char *query = strchr(copy->url, '?');
	struct sl_s3_name name;
	int rc = sl_s3_name_parse(copy->uri, &name);

	if (rc)
		return rc;
	char *key = sl_uri_escape(name.key, true);
	rc = key ? sl_line_add(lines, "x-amz-copy-source: %s/%s%s", name.bucket, key,
	                       query ? query : "")
	         : sl_fail(-ENOMEM, "no memory");
	free(key);
	sl_s3_name_clear(&name);
	if (!rc && copy->etag)
		rc = sl_line_add(lines, SOURCE "if-match: %s", copy->etag);
	/* The object has the key that the source had, unless the user names two. */
	if (!line_is_given(copy->given, SOURCE CUSTOMER "algorithm:"))
		for (const struct curl_slist *l = copy->given; !rc && l; l = l->next)
			if (line_begins(l->data, "x-amz-" CUSTOMER))
				rc = sl_line_add(lines, SOURCE "%s", l->data + strlen("x-amz-"));
	return rc;
}

static int copy_lines(struct sl_service_copy *copy)
{
	bool directed = line_is_given(copy->given, DIRECTIVE);
	int rc = 0;

	if (!copy->given && !strcmp(copy->url, copy->target_url))
		return sl_fail(-EINVAL,
		               "'%s' is both ends of the copy, which S3 refuses without new "
		               "metadata (x-amz-metadata-directive: REPLACE)",
		               copy->target);
	for (const struct curl_slist *l = copy->given; l; l = l->next)
		if (line_begins(l->data, DIRECTIVE))
			copy->replaces = strcasestr(l->data + strlen(DIRECTIVE), "REPLACE");
		else if (!directed && sl_s3_line(l->data) & SL_LINE_METADATA)
			copy->replaces = true;
	for (const struct curl_slist *l = copy->given; !rc && l; l = l->next) {
		unsigned kind = sl_s3_line(l->data);
		/* No request to begin an upload has it. */
		bool of_source =
			line_begins(l->data, SOURCE) || line_begins(l->data, "x-amz-source-");

		rc = sl_line_add(&copy->whole, "%s", l->data);
		if (!rc && (of_source || kind & SL_LINE_EACH))
			rc = sl_line_add(&copy->part, "%s", l->data);
		if (!rc && !of_source && !line_begins(l->data, DIRECTIVE) &&
		    !line_begins(l->data, "x-amz-tagging-directive:") &&
		    (copy->replaces || !(kind & SL_LINE_METADATA)))
			rc = sl_line_add(&copy->begin, "%s", l->data);
	}
	if (!rc && copy->replaces && !directed)
		rc = sl_line_add(&copy->whole, DIRECTIVE " REPLACE");
	if (!rc)
		rc = copy_name_source(copy, &copy->whole);
	return rc ? rc : copy_name_source(copy, &copy->part);
}

/* The source is opened with its version and the lines for each request, and the source's own key
 * stands where the target's key stood. A version cannot be written, so the target has none. */
static int copy_options(const struct sluice_open_options *given, struct sluice_open_options *source,
                        struct sluice_open_options *target, void **memory)
{
	size_t count = 0, bytes = 0, length = strlen(SOURCE);
	struct sluice_s3_options *s3;
	const char **lines;
	bool own = false;

	for (; given->headers && given->headers[count]; count++) {
		bytes += strlen(given->headers[count]) + 1;
		own |= line_begins(given->headers[count], SOURCE CUSTOMER);
	}
	s3 = calloc(1, sizeof(*s3) + (count + 1) * sizeof(*lines) + bytes);
	if (!s3)
		return sl_fail(-ENOMEM, "no memory");
	if (given->s3)
		memcpy(s3, given->s3, SL_MIN(given->s3->size, sizeof(*s3)));
	s3->size = sizeof(*s3);
	s3->version = NULL;
	lines = (const char **)(s3 + 1);
	source->s3 = given->s3;
	source->headers = lines;
	target->s3 = s3;
	target->headers = given->headers;
	char *text = (char *)(lines + count + 1);
	for (size_t i = 0; i < count; i++) {
		const char *line = given->headers[i];
		bool key = line_begins(line, SOURCE CUSTOMER);

		if (!key && (!(sl_s3_line(line) & SL_LINE_EACH) ||
		             (own && line_begins(line, "x-amz-" CUSTOMER))))
			continue;
		*lines++ = text;
		if (key)
			text += sprintf(text, "x-amz-%s", line + length) + 1;
		else
			text = stpcpy(text, line) + 1;
	}
	*memory = s3;
	return 0;
}

const struct sl_service_copies sl_s3_copies = {.options = copy_options, .lines = copy_lines};
