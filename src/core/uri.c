/* SPDX-License-Identifier: Apache-2.0 */
/*
 * URIs
 *
 * Parses the names of files, a path or scheme://rest (RFC 3986, section 3), and prints them without
 * secrets. Any thread.
 */
#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/core.h"

int sl_uri_unescape(const char *uri, char *text)
{
	char *to = text;

	for (const char *from = text; *from; from++) {
		if (*from != '%') {
			*to++ = *from;
			continue;
		}
		if (!isxdigit((unsigned char)from[1]) || !isxdigit((unsigned char)from[2]))
			return sl_fail(-EINVAL, "'%s': '%%' needs two hexadecimal digits", uri);
		const char digits[] = {from[1], from[2], '\0'};
		unsigned long value = strtoul(digits, NULL, 16);
		if (!value)
			return sl_fail(-EINVAL, "'%s': a name cannot hold '%%00'", uri);
		*to++ = (char)value;
		from += 2;
	}
	*to = '\0';
	return 0;
}

char *sl_uri_escape(const char *text, bool keep_slash)
{
	char *out = malloc(3 * strlen(text) + 1), *to = out;

	for (const unsigned char *c = (const unsigned char *)text; out && *c; c++) {
		if ((*c < 0x80 && isalnum(*c)) || strchr("-._~", *c) || (*c == '/' && keep_slash)) {
			*to++ = (char)*c;
			continue;
		}
		*to++ = '%';
		*to++ = "0123456789ABCDEF"[*c >> 4];
		*to++ = "0123456789ABCDEF"[*c & 15];
	}
	if (out)
		*to = '\0';
	return out;
}

/* Returns the length of the scheme in "scheme://", or 0 if text is a path. */
static size_t uri_scheme_length(const char *text)
{
	size_t length = 0;

	if (!isalpha((unsigned char)text[0]))
		return 0;
	while (isalnum((unsigned char)text[length]) ||
	       (text[length] && strchr("+-.", text[length])))
		length++;
	return strncmp(text + length, "://", 3) ? 0 : length;
}

static int uri_parse_file(const char *text, const char *rest, struct sl_uri *uri)
{
	if (!strncmp(rest, "localhost/", 10))
		rest += 9;
	if (rest[0] != '/')
		return sl_fail(-EINVAL, "'%s': a file URI is file:///path", text);
	uri->path = strdup(rest);
	if (!uri->path)
		return sl_fail(-ENOMEM, "no memory");
	return sl_uri_unescape(text, uri->path);
}

int sl_uri_parse(const char *text, struct sl_uri *out)
{
	size_t length = uri_scheme_length(text);
	struct sl_uri uri = {.scheme = "file"};
	int rc = 0;

	if (!text[0])
		return sl_fail(-EINVAL, "the name of the file is empty");
	if (length >= sizeof(uri.scheme))
		return sl_fail(-EPROTONOSUPPORT, "unknown scheme '%.*s'", (int)length, text);
	if (length) {
		for (size_t i = 0; i < length; i++)
			uri.scheme[i] = (char)tolower((unsigned char)text[i]);
		uri.scheme[length] = '\0';
	}
	if (!strcmp(uri.scheme, "file") && length) {
		rc = uri_parse_file(text, text + length + 3, &uri);
	} else {
		uri.path = strdup(text);
		rc = uri.path ? 0 : sl_fail(-ENOMEM, "no memory");
	}
	if (rc)
		sl_uri_clear(&uri);
	else
		*out = uri;
	return rc;
}

void sl_uri_clear(struct sl_uri *uri)
{
	free(uri->path);
	uri->path = NULL;
}

char *sl_uri_name(const char *text)
{
	size_t scheme = uri_scheme_length(text);
	const char *rest = text + scheme + 3, *at;

	/* The URIs of blobs and of objects of S3 contain no secrets. */
	if (!scheme || !strncasecmp(text, "file:", 5) || !strncasecmp(text, "store:", 6) ||
	    !strncasecmp(text, "s3:", 3))
		return strdup(text);
	at = memrchr(rest, '@', strcspn(rest, "/?#"));
	if (at)
		rest = at + 1;
	int end = (int)strcspn(rest, "?#");
	return sl_format("%.*s%.*s%s", (int)scheme + 3, text, end, rest,
	                 rest[end] == '?' ? "?..." : "");
}
