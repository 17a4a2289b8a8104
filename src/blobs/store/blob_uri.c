/* SPDX-License-Identifier: Apache-2.0 */
/*
 * URIs of blobs
 *
 * Parses store://NAME?KEY=VALUE&... (RFC 3986, sections 2.1 and 3.4). Any thread.
 */
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "device/device.h"
#include "store/blob_file.h"

#define PREFIX (sizeof("store://") - 1)

static int blob_uri_number(const char *uri, const char *key, const char *text, uint64_t most,
                           uint64_t *out)
{
	char *end;

	errno = 0;
	uint64_t value = strtoull(text, &end, 10);
	if (errno || *end || *text < '0' || *text > '9' || value > most)
		return sl_fail(-EINVAL, "'%s': %s: '%s' is no number, or too large", uri, key,
		               text);
	*out = value;
	return 0;
}

static int blob_uri_option(const char *uri, const char *key, const char *value,
                           struct sl_blob_uri *b)
{
	static const struct {
		const char *key;
		unsigned flag;
	} flags[] = {{"cache", SLUICE_BLOB_CACHE},
	             {"pin", SLUICE_BLOB_PIN},
	             {"alone", SLUICE_BLOB_ALONE}};
	uint64_t small = 0;
	int rc = 0;

	for (size_t i = 0; !value && i < sizeof(flags) / sizeof(*flags); i++) {
		if (strcmp(key, flags[i].key))
			continue;
		b->flags |= flags[i].flag;
		b->to_write = true;
		return 0;
	}
	if (value && !strcmp(key, "socket")) {
		b->socket = value;
	} else if (value && !strcmp(key, "origin")) {
		b->origin = value;
	} else if (value && !strcmp(key, "device")) {
		b->to_write = true;
		/* An index, or a name such as "emulated:0". */
		if (*value < '0' || *value > '9')
			return sluice_device_find(value, &b->device);
		rc = blob_uri_number(uri, key, value, INT_MAX, &small);
		b->device = (int)small;
	} else if (value && !strcmp(key, "id")) {
		rc = blob_uri_number(uri, key, value, UINT64_MAX, &b->id);
		if (!rc && !b->id)
			rc = sl_fail(-EINVAL, "'%s': id: no blob has the number 0", uri);
	} else if (value && !strcmp(key, "wait_ms")) {
		rc = blob_uri_number(uri, key, value, INT_MAX, &small);
		b->wait_ms = (int)small;
	} else {
		rc = sl_fail(-EINVAL,
		             "'%s': '%s' is none of socket=, device=, id=, wait_ms=, origin=, "
		             "cache, pin and alone",
		             uri, key);
	}
	return rc;
}

static int blob_uri_options(const char *uri, char *text, struct sl_blob_uri *b)
{
	char *part, *value;
	int rc = 0;

	while (!rc && (part = strsep(&text, "&"))) {
		value = strchr(part, '=');
		if (value)
			*value++ = '\0';
		/* Decoded after the split, because a value may contain encoded separators. */
		rc = value ? sl_uri_unescape(uri, value) : 0;
		if (!rc)
			rc = blob_uri_option(uri, part, value, b);
	}
	return rc;
}

int sl_blob_uri_parse(const char *uri, struct sl_blob_uri *out)
{
	struct sl_blob_uri b = {.text = strdup(uri + PREFIX), .device = -1};
	int rc = 0;

	if (!b.text)
		return sl_fail(-ENOMEM, "no memory");
	b.name = b.text;
	char *options = strchr(b.text, '?');
	if (strchr(b.text, '#'))
		rc = sl_fail(-EINVAL, "'%s': '#' in the name of a blob is written %%23", uri);
	if (options)
		*options++ = '\0';
	if (!rc)
		rc = sl_uri_unescape(uri, b.text);
	if (!rc && options)
		rc = blob_uri_options(uri, options, &b);
	if (!rc && b.id && *b.name)
		rc = sl_fail(-EINVAL, "'%s': a blob is named, or has its id said; not both", uri);
	if (!rc && !b.id && (rc = sl_name_check(b.name, SL_NAME_BYTES, false)))
		sl_fail(rc, "'%.*s': %s", (int)strcspn(uri, "?"), uri, sluice_last_message());
	if (rc)
		free(b.text);
	else
		*out = b;
	return rc;
}
