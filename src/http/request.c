/* SPDX-License-Identifier: Apache-2.0 */
/* One request: its memory, and how its transfers are set up and driven. */
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <time.h>

#include "http/http_internal.h"
#include "http/put.h"

#define BUFFER_BYTES (256L << 10) /* per transfer; more does not stay in the cache */

/* ------------------------------------------------------------------------------------ memory */

struct sl_http_request *sl_http_request_new(struct sl_http *http, enum sl_http_ask ask,
                                            struct sl_piece *piece)
{
	struct sl_http_request *request = calloc(1, sizeof(*request));

	if (!request)
		return NULL;
	request->http = http;
	request->ask = ask;
	request->piece = piece;
	request->random = (uint64_t)sl_now() ^ (uintptr_t)request;
	return request;
}

void sl_http_request_give_back(struct sl_http_request *request)
{
	if (request->transfer)
		sl_http_transfer_release(request->http->engine, request->transfer);
	request->transfer = NULL;
}

void sl_http_request_free(struct sl_http_request *request)
{
	if (!request)
		return;
	sl_http_request_give_back(request);
	sl_http_answer_clear(request);
	free(request->url);
	free(request->sentence);
	free(request);
}

bool sl_http_request_is_unwanted(const struct sl_http_request *request)
{
	uint64_t position;

	if (request->ask == SL_HTTP_PUT)
		return sl_http_put_state(request->http->put) & SL_HTTP_PUT_DROPPED;
	if (sl_http_request_has_body(request))
		return sl_http_body_state(request->http->body, &position) & SL_HTTP_BODY_DROPPED;
	return request->piece &&
	       atomic_load_explicit(&request->piece->cancelled, memory_order_relaxed);
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

struct sl_http_transfer *sl_http_transfer_acquire(struct sl_http_engine *engine)
{
	struct sl_http_transfer *transfer = NULL;
	struct sl_list *link;

	sl_mutex_lock(&engine->mutex);
	/* The one that was used last: its connections are the freshest. */
	link = engine->locked.transfers.previous;
	if (link != &engine->locked.transfers) {
		sl_list_remove(link);
		transfer = SL_CONTAINER(link, struct sl_http_transfer, link);
	}
	sl_mutex_unlock(&engine->mutex);
	if (transfer)
		return transfer;
	transfer = calloc(1, sizeof(*transfer));
	if (transfer)
		transfer->easy = curl_easy_init();
	if (transfer && !transfer->easy) {
		free(transfer);
		transfer = NULL;
	}
	return transfer;
}

void sl_http_transfer_release(struct sl_http_engine *engine, struct sl_http_transfer *transfer)
{
	sl_mutex_lock(&engine->mutex);
	sl_list_append(&engine->locked.transfers, &transfer->link);
	sl_mutex_unlock(&engine->mutex);
}

void sl_http_transfer_free(struct sl_http_transfer *transfer)
{
	curl_easy_cleanup(transfer->easy);
	free(transfer);
}

/* ------------------------------------------------------------------------------------ set up */

/* As libcurl does it, but closed where another program is started. */
static curl_socket_t open_socket(void *unused, curlsocktype purpose, struct curl_sockaddr *to)
{
	(void)unused;
	(void)purpose;
	return socket(to->family, to->socktype | SOCK_CLOEXEC, to->protocol);
}

void sl_http_transfer_secure(struct sl_http_transfer *transfer, struct sl_http *http)
{
	const struct sl_settings *settings = &http->core->settings;
	CURL *easy = transfer->easy;

	curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, transfer->reason);
	transfer->reason[0] = '\0';
	curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
	/* What ends while a name is looked up does not wait for the name server. */
	curl_easy_setopt(easy, CURLOPT_QUICK_EXIT, 1L);
	curl_easy_setopt(easy, CURLOPT_SUPPRESS_CONNECT_HEADERS, 1L);
	curl_easy_setopt(easy, CURLOPT_OPENSOCKETFUNCTION, open_socket);
	curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https");
	curl_easy_setopt(easy, CURLOPT_USERAGENT, "sluice/" SLUICE_VERSION);
	curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT_MS, (long)settings->http_connect_ms);
	curl_easy_setopt(easy, CURLOPT_TCP_KEEPALIVE, 1L);
	curl_easy_setopt(easy, CURLOPT_SSLVERSION, (long)CURL_SSLVERSION_TLSv1_2);
	curl_easy_setopt(easy, CURLOPT_HTTP_VERSION,
	                 http->flags & SLUICE_OPEN_HTTP2 ? (long)CURL_HTTP_VERSION_2TLS
	                                                 : (long)CURL_HTTP_VERSION_1_1);
	if (http->flags & SLUICE_OPEN_HTTP2)
		curl_easy_setopt(easy, CURLOPT_PIPEWAIT, 1L);
	if (settings->ca_bundle[0]) {
		curl_easy_setopt(easy, CURLOPT_CAINFO, settings->ca_bundle);
		curl_easy_setopt(easy, CURLOPT_CAPATH, NULL);
	}
	if (settings->tls_insecure) {
		curl_easy_setopt(easy, CURLOPT_SSL_VERIFYPEER, 0L);
		curl_easy_setopt(easy, CURLOPT_SSL_VERIFYHOST, 0L);
	}
}

/* Whether the URL's host is the one that the credentials are for. */
static bool is_at_home(const struct sl_http_request *request)
{
	const char *url = request->url, *origin = request->http->origin;
	size_t length = strlen(origin);

	return !url || (!strncasecmp(url, origin, length) && strchr("/?", url[length]));
}

int sl_http_request_prepare(struct sl_http_request *request)
{
	struct sl_http *http = request->http;
	char range[64];
	CURL *easy;

	if (!request->transfer)
		request->transfer = sl_http_transfer_acquire(http->engine);
	if (!request->transfer) {
		sl_http_request_fail(request, -ENOMEM, "no memory for a transfer");
		return -ENOMEM;
	}
	easy = request->transfer->easy;
	/* Nothing of the attempt before, least of all its password, goes to another server. */
	curl_easy_reset(easy);
	sl_http_answer_clear(request);
	request->alive = sl_now();
	/* The time in which others had the turn is not counted. */
	if (request->due)
		request->since += request->alive - request->due;
	else if (!request->since)
		request->since = request->alive;
	request->connected = false;
	request->sent = 0;
	request->from = request->length = 0;
	request->ranged = request->ask == SL_HTTP_PROBE && !http->doubted;
	request->length = request->ranged;
	if (sl_http_request_has_body(request))
		sl_http_body_prepare(http->body);
	if (request->piece) {
		request->from = request->piece->offset + request->piece->moved;
		request->length = request->piece->length - request->piece->moved;
		request->ranged = true;
	}
	sl_http_transfer_secure(request->transfer, http);
	curl_easy_setopt(easy, CURLOPT_URL, request->url ? request->url : http->url);
	curl_easy_setopt(easy, CURLOPT_PRIVATE, request);
	curl_easy_setopt(easy, CURLOPT_HEADERFUNCTION, sl_http_on_line);
	curl_easy_setopt(easy, CURLOPT_HEADERDATA, request);
	curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, sl_http_on_body);
	curl_easy_setopt(easy, CURLOPT_WRITEDATA, request);
	curl_easy_setopt(easy, CURLOPT_HTTPHEADER, http->fields);
	curl_easy_setopt(easy, CURLOPT_NOBODY, request->ask == SL_HTTP_HEAD ? 1L : 0L);
	curl_easy_setopt(easy, CURLOPT_BUFFERSIZE, BUFFER_BYTES);
	if (request->ask == SL_HTTP_PUT)
		sl_http_put_prepare(http->put, easy);
	if (http->credentials && is_at_home(request))
		curl_easy_setopt(easy, CURLOPT_USERPWD, http->credentials);
	if (request->ranged) {
		snprintf(range, sizeof(range), "%" PRIu64 "-%" PRIu64, request->from,
		         request->from + request->length - 1);
		curl_easy_setopt(easy, CURLOPT_RANGE, range);
	}
	sl_log(&http->core->settings, SL_LOG_DEBUG,
	       "%s %s bytes %" PRIu64 "+%" PRIu64 " attempt %u",
	       request->ask == SL_HTTP_HEAD  ? "HEAD"
	       : request->ask == SL_HTTP_PUT ? "PUT"
	                                     : "GET",
	       http->name, request->from, request->length, request->attempts + 1);
	return 0;
}
