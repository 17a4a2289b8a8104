/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lines of headers
 *
 * Lists of lines, as libcurl takes them. A line may be a secret, so it is wiped before it is freed.
 *
 * Threads: any; a list has one user at a time.
 */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <curl/curl.h>

#include "service/service.h"

static int line_insert(struct curl_slist **at, const char *format, va_list arguments)
{
	struct curl_slist *made = NULL;
	char *line;

	if (vasprintf(&line, format, arguments) >= 0) {
		made = curl_slist_append(NULL, line);
		explicit_bzero(line, strlen(line));
		free(line);
	}
	if (!made)
		return sl_fail(-ENOMEM, "no memory for a header");
	made->next = *at;
	*at = made;
	return 0;
}

int sl_line_add(struct curl_slist **lines, const char *format, ...)
{
	va_list arguments;

	while (*lines)
		lines = &(*lines)->next;
	va_start(arguments, format);
	int rc = line_insert(lines, format, arguments);
	va_end(arguments);
	return rc;
}

int sl_line_put(struct curl_slist **lines, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	int rc = line_insert(lines, format, arguments);
	va_end(arguments);
	return rc;
}

void sl_lines_clear(struct curl_slist **lines, const struct curl_slist *rest)
{
	struct curl_slist *line, *next;

	for (line = *lines; line && line != rest; line = next) {
		next = line->next;
		line->next = NULL;
		explicit_bzero(line->data, strlen(line->data));
		curl_slist_free_all(line);
	}
	*lines = NULL;
}
