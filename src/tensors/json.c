/* SPDX-License-Identifier: Apache-2.0 */
/* JSON in headers of files of tensors, by yajl, which calls back for each part. On the thread that reads the header. */
#include <errno.h>
#include <string.h>
#include <yajl/yajl_parse.h>

#include "tensors/header.h"

struct json {
	int (*event)(void *context, char part, const char *text, size_t n);
	void *context;
	int rc;
};

static int json_part(void *json, char part, const void *text, size_t n)
{
	struct json *j = json;

	j->rc = j->event(j->context, part, text, n);
	return !j->rc;
}

static int json_null(void *json)
{
	return json_part(json, 'x', "", 0);
}
static int json_boolean(void *json, int value)
{
	(void)value;
	return json_part(json, 'x', "", 0);
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
static int json_object(void *json)
{
	return json_part(json, '{', "", 0);
}
static int json_object_end(void *json)
{
	return json_part(json, '}', "", 0);
}
static int json_array(void *json)
{
	return json_part(json, '[', "", 0);
}
static int json_array_end(void *json)
{
	return json_part(json, ']', "", 0);
}

int sl_json_parse(const struct sl_tensor_file *file, const char *text, size_t n,
                  int (*event)(void *context, char part, const char *text, size_t n), void *context)
{
	static const yajl_callbacks callbacks = {json_null,   json_boolean,  NULL,
	                                         NULL,        json_number,   json_text,
	                                         json_object, json_key,      json_object_end,
	                                         json_array,  json_array_end};
	struct json json = {event, context, 0};
	yajl_handle yajl = yajl_alloc(&callbacks, NULL, &json);
	yajl_status status;
	unsigned char *why;

	if (!yajl)
		return sl_fail(-ENOMEM, "no memory");
	status = yajl_parse(yajl, (const unsigned char *)text, n);
	if (status == yajl_status_ok)
		status = yajl_complete_parse(yajl);
	if (status == yajl_status_error) {
		why = yajl_get_error(yajl, 0, NULL, 0);
		json.rc = sl_tensor_refuse(file, -EBADMSG, NULL,
		                           "no valid JSON before byte %zu of it: %.*s",
		                           yajl_get_bytes_consumed(yajl),
		                           why ? (int)strcspn((char *)why, "\n") : 0, why);
		yajl_free_error(yajl, why);
	}
	yajl_free(yajl);
	return json.rc;
}
