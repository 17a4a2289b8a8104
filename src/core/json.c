/* SPDX-License-Identifier: Apache-2.0 */
/*
 * JSON
 *
 * By yajl, which calls back for each part.
 *
 * Threads: any.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <yajl/yajl_parse.h>

#include "core/core.h"

struct json_reader {
	sl_json_event *event;
	void *context;
	int rc;
};

static int json_part(void *json, char part, const void *text, size_t n)
{
	struct json_reader *j = json;

	j->rc = j->event(j->context, part, text, n);
	return !j->rc;
}

static int json_null(void *json)
{
	return json_part(json, 'x', "null", 4);
}
static int json_boolean(void *json, int value)
{
	return json_part(json, 'x', value ? "true" : "false", value ? 4 : 5);
}
static int json_number(void *json, const char *text, size_t n)
{
	return json_part(json, 'n', text, n);
}
static int json_text(void *json, const unsigned char *text, size_t n)
{
	return json_part(json, 's', text, n);
}
static int json_key(void *json, const unsigned char *text, size_t n)
{
	return json_part(json, 'k', text, n);
}

/* Parts without a text. */
#define JSON_MARK(name, mark)                        \
	static int name(void *json)                  \
	{                                            \
		return json_part(json, mark, "", 0); \
	}
JSON_MARK(json_object, '{')
JSON_MARK(json_object_end, '}')
JSON_MARK(json_array, '[')
JSON_MARK(json_array_end, ']')

/* Returns the value of \uXXXX at n bytes of text, or 0. */
static unsigned json_escape(const char *text, size_t n)
{
	char digits[5] = {0};

	if (n < 6 || text[0] != '\\' || text[1] != 'u')
		return 0;
	memcpy(digits, text + 2, 4);
	return (unsigned)strtoul(digits, NULL, 16);
}

/* Returns the offset of half a surrogate pair, which yajl would read as '?', or n for none. */
static size_t json_lone_surrogate(const char *text, size_t n)
{
	const char *end = text + n;

	for (const char *at = text; (at = memchr(at, '\\', (size_t)(end - at))); at += 2) {
		unsigned code = json_escape(at, (size_t)(end - at));

		if (end - at < 2)
			break;
		if (code < 0xd800 || code > 0xdfff)
			continue;
		if (code >= 0xdc00 ||
		    json_escape(at + 6, (size_t)(end - at) - 6) >> 10 != 0xdc00 >> 10)
			return (size_t)(at - text);
		at += 10;
	}
	return n;
}

int sl_json_parse(const char *name, const char *text, size_t n, sl_json_event *event, void *context)
{
	static const yajl_callbacks callbacks = {json_null,   json_boolean,  NULL,
	                                         NULL,        json_number,   json_text,
	                                         json_object, json_key,      json_object_end,
	                                         json_array,  json_array_end};
	struct json_reader json = {event, context, 0};
	size_t lone = json_lone_surrogate(text, n);
	unsigned char *why;

	if (lone < n)
		return sl_fail(-EBADMSG, "'%s': half of a surrogate pair at byte %zu of its JSON",
		               name, lone);
	yajl_handle yajl = yajl_alloc(&callbacks, NULL, &json);
	if (!yajl)
		return sl_fail(-ENOMEM, "no memory");
	yajl_status status = yajl_parse(yajl, (const unsigned char *)text, n);
	if (status == yajl_status_ok)
		status = yajl_complete_parse(yajl);
	if (status == yajl_status_error) {
		why = yajl_get_error(yajl, 0, NULL, 0);
		json.rc = sl_fail(-EBADMSG, "'%s': no valid JSON before byte %zu of it: %.*s", name,
		                  yajl_get_bytes_consumed(yajl),
		                  why ? (int)strcspn((char *)why, "\n") : 0, why);
		yajl_free_error(yajl, why);
	}
	yajl_free(yajl);
	return json.rc;
}
