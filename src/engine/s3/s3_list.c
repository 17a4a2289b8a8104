/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lists of objects
 *
 * Makes queries for the pages of a bucket's list (ListObjectsV2, ListMultipartUploads), or of all
 * buckets (ListBuckets), and parses their XML.
 *
 * Threads: any. The text comes from servers and is not trusted.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "s3/credentials.h"
#include "s3/s3_internal.h"

#define MOST_BUCKETS "1000" /* on a page */

enum list_of { OBJECTS, UPLOADS, BUCKETS };

/* A list's elements: root, an entry, the name and time in it, and the next page's token. */
static const struct list_words {
	const char *root, *entry, *name, *time, *next;
} list_words[] = {
	[OBJECTS] = {"ListBucketResult", "Contents", "<Key>", "LastModified",
                     "<NextContinuationToken>"},
	[UPLOADS] = {"ListMultipartUploadsResult", "Upload", "<Key>", "Initiated",
                     "<NextKeyMarker>"},
	[BUCKETS] = {"ListAllMyBucketsResult", "Bucket", "<Name>", "CreationDate",
                     "<ContinuationToken>"},
};

static enum list_of list_kind(const char *uri, unsigned flags)
{
	return sl_s3_is_service(uri) && !flags ? BUCKETS
	       : flags & SLUICE_LIST_UPLOADS   ? UPLOADS
	                                       : OBJECTS;
}

/* For uploads a token is the last key, a line feed, and the last id. Escapes in names are not asked
 * for: SeaweedFS then says names have them, and they have none. */
static char *list_uploads_query(const char *prefix, const char *token)
{
	const char *line = strrchr(token, '\n');
	char *key = line ? strndup(token, line - token) : NULL, *query = NULL;
	char *from = key ? sl_uri_escape(key, false) : NULL;
	char *id = line ? sl_uri_escape(line + 1, false) : NULL;

	if (!line)
		query = sl_format("prefix=%s&uploads=", prefix);
	else if (from && id)
		query = sl_format("key-marker=%s&prefix=%s&upload-id-marker=%s&uploads=", from,
		                  prefix, id);
	free(key);
	free(from);
	free(id);
	return query;
}

static int list_query(const char *uri, unsigned flags, const char *token, char **out)
{
	bool buckets = list_kind(uri, flags) == BUCKETS;
	struct sl_s3_name name = {NULL, NULL};
	char *prefix, *from, *query = NULL;
	int rc = buckets ? 0 : sl_s3_name_parse(uri, &name);

	if (rc)
		return rc;
	prefix = sl_uri_escape(buckets ? "" : name.key, false);
	from = sl_uri_escape(token, false);
	sl_s3_name_clear(&name);
	if (prefix && flags & SLUICE_LIST_UPLOADS)
		query = list_uploads_query(prefix, token);
	else if (prefix && from)
		query = sl_format("%s%s%s%s%s%s", *token ? "continuation-token=" : "", from,
		                  *token ? "&" : "",
		                  buckets || flags & SLUICE_LIST_RECURSIVE ? "" : "delimiter=%2F&",
		                  buckets ? "max-buckets=" MOST_BUCKETS
		                          : "encoding-type=url&list-type=2&prefix=",
		                  prefix);
	free(prefix);
	free(from);
	*out = query;
	return query ? 0 : sl_fail(-ENOMEM, "no memory");
}

/* Decodes percent-escapes, and '+' for a blank, in place. Returns false for any other '%'. */
static bool name_decode(char *text)
{
	for (char *c = text; *c; c++)
		*c = *c == '+' ? ' ' : *c;
	return !sl_uri_unescape("", text);
}

/* Copies an element's text, every byte; false: none, too long, or not well formed. */
static bool list_text(const char *xml, const char *tag, bool encoded, char *out, size_t size)
{
	const char *at = strstr(xml, tag), *end = at ? strchr(at + 1, '<') : NULL;
	size_t step, length = 0;

	if (!end || end[1] != '/')
		return false;
	for (at += strlen(tag); at < end; at += step) {
		char c[5] = {*at};

		step = *at == '&' ? sl_xml_entity(at, c) : 1;
		if (!step || length + strlen(c) >= size)
			return false;
		length = (size_t)(stpcpy(out + length, c) - out);
	}
	out[length] = '\0';
	return length && (!encoded || name_decode(out));
}

static bool list_begins(const char *tag, const char *name)
{
	size_t length = strlen(name);

	return !strncmp(tag + 1, name, length) && strchr("> \t\r\n", tag[1 + length]);
}

static int list_next(struct sl_service_page *page, struct sl_service_entry *out)
{
	const struct list_words *words = &list_words[page->kind];
	char *object = strchr(page->at, '<'), *end = NULL, text[SL_SERVICE_TEXT];
	const char *entry = words->entry, *name = words->name;

	/* A search for either would go on to the page's end, for each entry, if a page has none. */
	while (object && !list_begins(object, words->entry) &&
	       (page->kind != OBJECTS || !list_begins(object, "CommonPrefixes")))
		object = strchr(object + 1, '<');
	if (!object)
		return 0;
	page->at = object;
	out->is_prefix = page->kind == BUCKETS || !list_begins(object, words->entry);
	if (out->is_prefix && page->kind == OBJECTS) {
		entry = "CommonPrefixes";
		name = "<Prefix>";
	}
	snprintf(text, sizeof(text), "</%s>", entry);
	end = strstr(object, text);
	if (end)
		*end = '\0';
	if (!end || !list_text(object, name, page->encoded, out->name, SL_SERVICE_NAME) ||
	    (page->kind == UPLOADS &&
	     !list_text(object, "<UploadId>", false, out->upload, SL_SERVICE_UPLOAD)))
		return sl_fail(-EPROTO, "'%s': the server's list has an entry that cannot be read",
		               page->uri);
	page->at = end + 1;
	sl_xml_element(object, "ETag", out->etag, sizeof(out->etag));
	sl_xml_element(object, "Size", text, sizeof(text));
	out->length = strtoull(text, NULL, 10);
	sl_xml_element(object, words->time, text, sizeof(text));
	out->modified = sl_s3_time(text);
	return 1;
}

static int list_page(const char *uri, unsigned flags, char *xml, struct sl_service_page *out,
                     char **token)
{
	enum list_of kind = list_kind(uri, flags);
	bool uploads = kind == UPLOADS, goes_on;
	char text[SL_SERVICE_TEXT], next[SL_SERVICE_NAME], id[SL_SERVICE_UPLOAD];

	*token = NULL;
	if (!sl_xml_is_whole(xml, list_words[kind].root))
		return sl_fail(-EPROTO,
		               "'%s': the server's answer is no list, or not the whole of it", uri);
	sl_xml_element(xml, "EncodingType", text, sizeof(text));
	*out = (struct sl_service_page){uri, xml, kind, !strcmp(text, "url")};
	sl_xml_element(xml, "IsTruncated", text, sizeof(text));
	sl_xml_element(xml, "NextUploadIdMarker", id, sizeof(id));
	goes_on =
		list_text(xml, list_words[kind].next, uploads && out->encoded, next, sizeof(next));
	/* Servers in Go leave a "false" out, and lists with buckets have none. */
	if (!strcmp(text, "false") || (!text[0] && !goes_on))
		return 0;
	if ((kind != BUCKETS && strcmp(text, "true")) || !goes_on)
		return sl_fail(-EPROTO, "'%s': the server's list does not say how it goes on", uri);
	*token = uploads ? sl_format("%s\n%s", next, id) : strdup(next);
	return *token ? 0 : sl_fail(-ENOMEM, "no memory");
}

const struct sl_service_lists sl_s3_lists = {
	.query = list_query, .page = list_page, .next = list_next};
