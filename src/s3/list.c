/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lists of objects
 *
 * Makes the query of a page of a bucket's list (ListObjectsV2, ListMultipartUploads), and parses the XML of the page.
 *
 * Threads: any. The text comes from servers and is not trusted.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "s3/credentials.h"
#include "s3/place.h"
#include "s3/s3.h"

/* Of a list of uploads a token is the key of the last, a line feed, and its id. */
static char *list_uploads_query(const char *prefix, const char *token)
{
	const char *line = strchr(token, '\n');
	char *key = line ? strndup(token, line - token) : NULL, *query;
	char *from = key ? sl_s3_encode(key, false) : NULL;
	char *id = line ? sl_s3_encode(line + 1, false) : NULL;

	if ((line && (!from || !id)) ||
	    asprintf(&query, "encoding-type=url%s%s&prefix=%s%s%s&uploads=",
	             line ? "&key-marker=" : "", line ? from : "", prefix,
	             line ? "&upload-id-marker=" : "", line ? id : "") < 0)
		query = NULL;
	free(key);
	free(from);
	free(id);
	return query;
}

int sl_s3_list_query(const char *uri, unsigned flags, const char *token, char **out)
{
	struct sl_s3_name name;
	char *prefix, *from, *query;
	int rc = sl_s3_name_parse(uri, &name);

	if (rc)
		return rc;
	prefix = sl_s3_encode(name.key, false);
	from = sl_s3_encode(token, false);
	sl_s3_name_clear(&name);
	if (prefix && flags & SLUICE_LIST_UPLOADS)
		query = list_uploads_query(prefix, token);
	else if (!prefix || !from ||
	         asprintf(&query, "%s%s%s%sencoding-type=url&list-type=2&prefix=%s",
	                  *token ? "continuation-token=" : "", from, *token ? "&" : "",
	                  flags & SLUICE_LIST_RECURSIVE ? "" : "delimiter=%2F&", prefix) < 0)
		query = NULL;
	free(prefix);
	free(from);
	*out = query;
	return query ? 0 : sl_fail(-ENOMEM, "no memory");
}

/* Decodes percent-escapes, and '+' for a blank, in place. */
static void name_decode(char *text)
{
	char *to = text;
	unsigned code;

	for (const char *from = text; *from; from++) {
		if (*from == '%' && sscanf(from + 1, "%2x", &code) == 1 && code && from[2]) {
			*to++ = (char)code;
			from += 2;
		} else {
			*to++ = *from == '+' ? ' ' : *from;
		}
	}
	*to = '\0';
}

bool sl_s3_list_next(char **at, struct sl_s3_entry *out)
{
	char *object = strchr(*at, '<'), *end, text[SL_S3_TEXT];

	/* A search for either would go on to the end of a page that has none of them, for each entry. */
	while (object && strncmp(object, "<Contents>", 10) &&
	       strncmp(object, "<CommonPrefixes>", 16) && strncmp(object, "<Upload>", 8))
		object = strchr(object + 1, '<');
	out->is_prefix = object && object[3] == 'm';
	end = !object            ? NULL
	      : object[1] == 'U' ? strstr(object, "</Upload>")
	      : out->is_prefix   ? strstr(object, "</CommonPrefixes>")
	                         : strstr(object, "</Contents>");
	if (!end)
		return false;
	*end = '\0';
	*at = end + 1;
	sl_s3_element(object, out->is_prefix ? "Prefix" : "Key", out->name, sizeof(out->name));
	name_decode(out->name);
	sl_s3_element(object, "ETag", out->etag, sizeof(out->etag));
	sl_s3_element(object, "Size", text, sizeof(text));
	out->length = strtoull(text, NULL, 10);
	sl_s3_element(object, "UploadId", out->upload, sizeof(out->upload));
	sl_s3_element(object, out->upload[0] ? "Initiated" : "LastModified", text, sizeof(text));
	out->modified = sl_s3_time(text);
	return true;
}

bool sl_s3_list_rest(const char *page, char **token)
{
	char text[SL_S3_NAME];

	sl_s3_element(page, "IsTruncated", text, sizeof(text));
	if (strcmp(text, "true"))
		return false;
	sl_s3_element(page, "NextContinuationToken", text, sizeof(text));
	if (!text[0]) {
		char id[SL_S3_UPLOAD];

		sl_s3_element(page, "NextKeyMarker", text, sizeof(text));
		name_decode(text);
		sl_s3_element(page, "NextUploadIdMarker", id, sizeof(id));
		if (!text[0] || asprintf(token, "%s\n%s", text, id) < 0)
			*token = NULL;
		return text[0];
	}
	*token = strdup(text);
	return true;
}
