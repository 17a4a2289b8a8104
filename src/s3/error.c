/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Errors of S3
 *
 * Takes code and message out of the XML that comes with an error.
 *
 * Threads: any. The text comes from servers and is not trusted.
 */
#include <stdio.h>
#include <string.h>

#include "s3/s3.h"

#define BLANKS " \t\r\n"

/* Returns the character of an entity at `at`, and its length; '&' stands for itself otherwise. */
static char entity_of(const char *at, size_t *length)
{
	static const struct {
		const char *text;
		char c;
	} entities[] = {{"&amp;", '&'},   {"&lt;", '<'},   {"&gt;", '>'},  {"&quot;", '"'},
	                {"&apos;", '\''}, {"&#39;", '\''}, {"&#34;", '"'}, {"&", '&'}};
	size_t i = 0;

	while (strncmp(at, entities[i].text, strlen(entities[i].text)))
		i++;
	*length = strlen(entities[i].text);
	return entities[i].c;
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
	for (at++; *at && *at != '<' && length + 1 < size; at += step) {
		char c = *at;

		step = 1;
		if (c == '&')
			c = entity_of(at, &step);
		if ((unsigned char)c >= ' ' && c != 0x7f)
			out[length++] = c;
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
