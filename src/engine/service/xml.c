/* SPDX-License-Identifier: Apache-2.0 */
/*
 * XML of servers
 *
 * Finds elements in XML, and the characters of entities. No parser: a service reads few, flat
 * elements.
 *
 * Threads: any. The text comes from servers and is not trusted.
 */
#include <stdlib.h>
#include <string.h>

#include "service/service.h"

#define BLANKS " \t\r\n"
#define HEX    "0123456789abcdefABCDEF"

size_t sl_xml_entity(const char *at, char out[5])
{
	static const char *const entities[] = {"&&amp;", "<&lt;", ">&gt;", "\"&quot;", "'&apos;"};
	bool hex = at[1] == '#' && at[2] == 'x';
	unsigned long code = 0;
	char *end = NULL;

	memcpy(out, "&\0\0\0", 5);
	for (size_t i = 0; i < sizeof(entities) / sizeof(*entities); i++)
		if (!strncmp(at, entities[i] + 1, strlen(entities[i] + 1))) {
			out[0] = entities[i][0];
			return strlen(entities[i] + 1);
		}
	if (at[1] == '#' && strspn(at + 2 + hex, HEX))
		code = strtoul(at + 2 + hex, &end, hex ? 16 : 10);
	if (!code || code > 0x10ffff || (code >= 0xd800 && code < 0xe000) || *end != ';')
		return 0;
	size_t n = code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
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

bool sl_xml_is_whole(const char *xml, const char *root)
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

void sl_xml_element(const char *xml, const char *name, char *out, size_t size)
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

		step = *at == '&' ? sl_xml_entity(at, c) : 1;
		if ((unsigned char)c[0] < ' ' || c[0] == 0x7f)
			continue;
		if (length + strlen(c) >= size)
			break;
		length = (size_t)(stpcpy(out + length, c) - out);
	}
	out[length] = '\0';
}
