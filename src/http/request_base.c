/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests of any kind
 *
 * All kinds share, besides attempts: memory, the target, the first error, and the end of pieces.
 *
 * Threads: a single thread has a request at any time.
 */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "http/http_internal.h"

struct sl_http_request *sl_http_request_new(struct sl_http *http, const struct sl_http_kind *kind)
{
	struct sl_http_request *request = calloc(1, kind->bytes);

	if (!request)
		return NULL;
	request->http = http;
	request->kind = kind;
	request->verb = kind->verb;
	request->origin_url = http->url;
	request->fields = &http->fields;
	request->patience = (int64_t)http->core->settings.http_stall_ms * 1000000;
	return request;
}

void sl_http_request_free(struct sl_http_request *request)
{
	if (!request)
		return;
	sl_http_response_clear(&request->response);
	sl_lines_clear(&request->lines, request->lines_rest);
	free(request->url);
	free(request->sentence);
	free(request);
}

bool sl_http_request_is_home(const struct sl_http_request *request)
{
	const char *url = request->url, *origin = request->http->origin;
	size_t length = url ? strlen(origin) : 0;

	return !url || (!strncasecmp(url, origin, length) && strchr("/?", url[length]));
}

void sl_http_request_go_home(struct sl_http_request *request)
{
	free(request->url);
	request->url = NULL;
	request->hops = 0;
	request->located = 0;
}

void sl_http_request_fail(struct sl_http_request *request, int error, const char *format, ...)
{
	va_list arguments;

	if (request->error)
		return;
	request->error = error;
	va_start(arguments, format);
	if (vasprintf(&request->sentence, format, arguments) < 0)
		request->sentence = NULL;
	va_end(arguments);
}

void sl_http_end_piece(struct sl_piece *piece, int error, char *sentence)
{
	piece->error = error;
	piece->message = sentence;
	sl_piece_done(piece);
}

void sl_http_end_pieces(struct sl_list *pieces, int error, const char *sentence)
{
	struct sl_list *link;

	while ((link = sl_list_take(pieces)))
		sl_http_end_piece(SL_CONTAINER(link, struct sl_piece, link), error,
		                  error && sentence ? strdup(sentence) : NULL);
}
