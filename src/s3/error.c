/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Errors of S3
 *
 * Takes code and message out of the XML that comes with an error.
 *
 * Threads: any. The text comes from servers and is not trusted.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "s3/s3.h"

#define BLANKS " \t\r\n"

size_t sl_s3_entity(const char *at, char out[5])
{
	static const char *const entities[] = {"&&amp;", "<&lt;", ">&gt;", "\"&quot;", "'&apos;"};
	bool hex = at[1] == '#' && at[2] == 'x';
	unsigned long code = 0;
	char *end = NULL;
	size_t n;

	memcpy(out, "&\0\0\0", 5);
	for (size_t i = 0; i < sizeof(entities) / sizeof(*entities); i++)
		if (!strncmp(at, entities[i] + 1, strlen(entities[i] + 1))) {
			out[0] = entities[i][0];
			return strlen(entities[i] + 1);
		}
	if (at[1] == '#' && strspn(at + 2 + hex, SL_S3_HEX))
		code = strtoul(at + 2 + hex, &end, hex ? 16 : 10);
	if (!code || code > 0x10ffff || (code >= 0xd800 && code < 0xe000) || *end != ';')
		return 0;
	n = code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
	for (size_t i = n; i-- > 1; code >>= 6)
		out[i] = (char)(0x80 | (code & 0x3f));
	out[0] = (char)(code | (n > 1 ? 0xf00 >> n & 0xff : 0));
	return (size_t)(end + 1 - at);
}

/* Returns the byte behind the name of a tag, if it is that, with any prefix; else NULL. */
static const char *tag_is(const char *at, const char *name)
{
	size_t prefix = strcspn(at, ":/>" BLANKS), length = strlen(name);

	at += at[prefix] == ':' ? prefix + 1 : 0;
	return !strncmp(at, name, length) && strspn(at + length, "/>" BLANKS) ? at + length : NULL;
}

bool sl_s3_is_whole(const char *xml, const char *root)
{
	const char *at = strchr(xml, '<'), *last = strrchr(xml, '<');

	/* A declaration may come before, or a comment. */
	while (at && (at[1] == '?' || at[1] == '!')) {
		at = strstr(at, at[1] == '?' ? "?>" : "-->");
		at = at ? strchr(at, '<') : NULL;
	}
	if (!at || !tag_is(at + 1, root) || last[1] != '/' || !(last = tag_is(last + 2, root)))
		return false;
	last += strspn(last, BLANKS);
	return *last == '>' && !last[1 + strspn(last + 1, BLANKS)];
}

void sl_s3_element(const char *xml, const char *name, char *out, size_t size)
{
	const char *at = xml, *behind = NULL;
	size_t length = 0, step;

	out[0] = '\0';
	while (!behind && (at = strchr(at, '<')))
		behind = tag_is(++at, name);
	at = behind ? strchr(behind, '>') : NULL;
	if (!at || at[-1] == '/')
		return;
	for (at++; *at && *at != '<'; at += step ? step : 1) {
		char c[5] = {*at};

		step = *at == '&' ? sl_s3_entity(at, c) : 1;
		if ((unsigned char)c[0] < ' ' || c[0] == 0x7f)
			continue;
		if (length + strlen(c) >= size)
			break;
		length = (size_t)(stpcpy(out + length, c) - out);
	}
	out[length] = '\0';
}

bool sl_s3_error_is(const struct sl_s3_error *error, const char *codes)
{
	char word[SL_S3_TEXT + 2];

	snprintf(word, sizeof(word), " %s ", error->code);
	return error->code[0] && strstr(codes, word);
}

void sl_s3_error_parse(const char *xml, struct sl_s3_error *out)
{
	sl_s3_element(xml, "Code", out->code, sizeof(out->code));
	sl_s3_element(xml, "Message", out->message, sizeof(out->message));
	sl_s3_element(xml, "Region", out->region, sizeof(out->region));
	sl_s3_element(xml, "RequestId", out->request_id, sizeof(out->request_id));
}
