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

/* Appends the text of a line to a list, which may be empty, and returns the list, or NULL with a sentence. */
static struct curl_slist *line_append(struct curl_slist *lines, const char *format,
                                      va_list arguments)
{
	struct curl_slist *longer = NULL;
	char *line;

	if (vasprintf(&line, format, arguments) >= 0) {
		longer = curl_slist_append(lines, line);
		explicit_bzero(line, strlen(line));
		free(line);
	}
	if (!longer)
		sl_fail(-ENOMEM, "no memory for a header");
	return longer;
}

int sl_line_add(struct curl_slist **lines, const char *format, ...)
{
	struct curl_slist *longer;
	va_list arguments;

	va_start(arguments, format);
	longer = line_append(*lines, format, arguments);
	va_end(arguments);
	if (longer)
		*lines = longer;
	return longer ? 0 : -ENOMEM;
}

int sl_line_put(struct curl_slist **lines, const char *format, ...)
{
	struct curl_slist *line;
	va_list arguments;

	va_start(arguments, format);
	line = line_append(NULL, format, arguments);
	va_end(arguments);
	if (!line)
		return -ENOMEM;
	line->next = *lines;
	*lines = line;
	return 0;
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
