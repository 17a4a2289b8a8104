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

/* Of a list of uploads a token is the key of the last, a line feed, and its id. Escapes in names are not asked for: SeaweedFS
 * then says that names have them, and they have none. */
static char *list_uploads_query(const char *prefix, const char *token)
{
	const char *line = strrchr(token, '\n');
	char *key = line ? strndup(token, line - token) : NULL, *query;
	char *from = key ? sl_s3_encode(key, false) : NULL;
	char *id = line ? sl_s3_encode(line + 1, false) : NULL;
	int n = -1;

	if (!line)
		n = asprintf(&query, "prefix=%s&uploads=", prefix);
	else if (from && id)
		n = asprintf(&query, "key-marker=%s&prefix=%s&upload-id-marker=%s&uploads=", from,
		             prefix, id);
	free(key);
	free(from);
	free(id);
	return n < 0 ? NULL : query;
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

/* Decodes percent-escapes, and '+' for a blank, in place. Returns false for a '%' that begins none. */
static bool name_decode(char *text)
{
	char *to = text;
	unsigned code;

	for (const char *from = text; *from; from++) {
		code = *from == '+' ? ' ' : (unsigned char)*from;
		if (*from == '%') {
			if (strspn(from + 1, SL_S3_HEX) < 2 ||
			    sscanf(from + 1, "%2x", &code) != 1 || !code)
				return false;
			from += 2;
		}
		*to++ = (char)code;
	}
	*to = '\0';
	return true;
}

/* Copies the text of an element, every byte. Returns false if there is none, it is too long, or is not well formed. */
static bool list_text(const char *xml, const char *tag, bool encoded, char *out, size_t size)
{
	const char *at = strstr(xml, tag), *end = at ? strchr(at + 1, '<') : NULL;
	size_t step, length = 0;

	if (!end || end[1] != '/')
		return false;
	for (at += strlen(tag); at < end; at += step) {
		char c[5] = {*at};

		step = *at == '&' ? sl_s3_entity(at, c) : 1;
		if (!step || length + strlen(c) >= size)
			return false;
		length = (size_t)(stpcpy(out + length, c) - out);
	}
	out[length] = '\0';
	return length && (!encoded || name_decode(out));
}

int sl_s3_page_next(struct sl_s3_page *page, struct sl_s3_entry *out)
{
	char *object = strchr(page->at, '<'), *end, text[SL_S3_TEXT];

	/* A search for either would go on to the end of a page that has none of them, for each entry. */
	while (object && (page->uploads ? strncmp(object, "<Upload", 7) || object[7] == 'I'
	                                : strncmp(object, "<Contents", 9) &&
	                                          strncmp(object, "<CommonPrefixes", 15)))
		object = strchr(object + 1, '<');
	if (!object)
		return 0;
	page->at = object;
	out->is_prefix = object[3] == 'm';
	end = strstr(object, page->uploads    ? "</Upload>"
	                     : out->is_prefix ? "</CommonPrefixes>"
	                                      : "</Contents>");
	if (end)
		*end = '\0';
	if (!end ||
	    !list_text(object, out->is_prefix ? "<Prefix>" : "<Key>", page->encoded, out->name,
	               SL_S3_NAME) ||
	    (page->uploads && !list_text(object, "<UploadId>", false, out->upload, SL_S3_UPLOAD)))
		return sl_fail(-EPROTO, "'%s': the server's list has an entry that cannot be read",
		               page->uri);
	page->at = end + 1;
	sl_s3_element(object, "ETag", out->etag, sizeof(out->etag));
	sl_s3_element(object, "Size", text, sizeof(text));
	out->length = strtoull(text, NULL, 10);
	sl_s3_element(object, page->uploads ? "Initiated" : "LastModified", text, sizeof(text));
	out->modified = sl_s3_time(text);
	return 1;
}

int sl_s3_page_read(const char *uri, unsigned flags, char *xml, struct sl_s3_page *out,
                    char **token)
{
	bool uploads = flags & SLUICE_LIST_UPLOADS, goes_on;
	char text[SL_S3_TEXT], next[SL_S3_NAME], id[SL_S3_UPLOAD];

	*token = NULL;
	if (!strstr(xml, uploads ? "<ListMultipartUploadsResult" : "<ListBucketResult") ||
	    !strstr(xml, uploads ? "</ListMultipartUploadsResult>" : "</ListBucketResult>"))
		return sl_fail(-EPROTO,
		               "'%s': the server's answer is no list, or not the whole of it", uri);
	sl_s3_element(xml, "EncodingType", text, sizeof(text));
	*out = (struct sl_s3_page){uri, xml, uploads, !strcmp(text, "url")};
	sl_s3_element(xml, "IsTruncated", text, sizeof(text));
	sl_s3_element(xml, "NextUploadIdMarker", id, sizeof(id));
	goes_on = list_text(xml, uploads ? "<NextKeyMarker>" : "<NextContinuationToken>",
	                    uploads && out->encoded, next, sizeof(next));
	/* Servers in Go leave a "false" out. */
	if (!strcmp(text, "false") || (!text[0] && !goes_on))
		return 0;
	if (strcmp(text, "true") || !goes_on)
		return sl_fail(-EPROTO, "'%s': the server's list does not say how it goes on", uri);
	if (asprintf(token, uploads ? "%s\n%s" : "%s", next, id) < 0)
		return sl_fail(-ENOMEM, "no memory");
	return 0;
}
