/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Removal of many objects by a request (DeleteObjects)
 *
 * Makes the XML with their names, and takes the removed names from the answer.
 *
 * Threads: any. The answer comes from servers and is not trusted.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "s3/s3_internal.h"

/* Servers differ about escapes, blanks and empty segments: another object would be removed. */
static const char *bulk_key(const char *uri)
{
	const char *key = strchr(uri + strlen("s3://"), '/');
	size_t n = key ? strlen(++key) : 0;

	if (!n || key[0] == '/' || key[n - 1] == '/' || key[0] == ' ' || key[n - 1] == ' ' ||
	    strpbrk(key, "<>&\"'%+\\") || strstr(key, "//") || strstr(key, "./") ||
	    key[n - 1] == '.' || strstr(key, "  ") || !sl_utf8_valid(key, n))
		return NULL;
	for (const char *c = key; *c; c++)
		if ((unsigned char)*c < ' ' || *c == 0x7f)
			return NULL;
	return key;
}

static char *bulk_body(const struct sluice_open_options *options, const char *const *uris,
                       size_t count, char line[SL_SERVICE_LINE])
{
	const struct sluice_s3_options *s3 = options->s3;
	bool versioned =
		s3 && s3->size > offsetof(struct sluice_s3_options, version) && s3->version;
	char *text = NULL;
	size_t bytes, names = 0;
	FILE *to = versioned ? NULL : open_memstream(&text, &bytes);

	if (!to)
		return NULL;
	fputs("<Delete xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">", to);
	for (size_t i = 0; i < count; i++) {
		const char *key = bulk_key(uris[i]);

		names += key != NULL;
		if (key)
			fprintf(to, "<Object><Key>%s</Key></Object>", key);
	}
	fputs("</Delete>", to);
	if (!fclose(to) && names) {
		sl_s3_md5_line(text, bytes, line);
		return text;
	}
	free(text);
	return NULL;
}

static bool bulk_next(char **at, char **key, bool *removed)
{
	char *entry = strchr(*at, '<'), *end = NULL;

	while (entry && strncmp(entry, "<Deleted>", 9) && strncmp(entry, "<Error>", 7))
		entry = strchr(entry + 1, '<');
	*removed = entry && entry[1] == 'D';
	if (entry)
		end = strstr(entry, *removed ? "</Deleted>" : "</Error>");
	if (!end)
		return false;
	*end = '\0';
	*at = end + 1;
	*key = strstr(entry, "<Key>");
	end = *key ? strchr(*key + 1, '<') : NULL;
	if (!end || strncmp(end, "</Key>", 6)) {
		*key = end = entry;
	} else {
		*key += strlen("<Key>");
	}
	*end = '\0';
	return true;
}

const struct sl_service_removals sl_s3_removals = {
	.body = bulk_body, .next = bulk_next, .name = bulk_key};
