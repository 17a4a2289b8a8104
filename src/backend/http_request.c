/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One request: how the transfer is set up, what is believed of the answer, where its bytes go, and
 * what comes next. Nothing reaches the piece's memory before the answer was found to be the one that
 * was asked for, and nothing beyond what was asked for.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <time.h>

#include "backend/http.h"
#include "backend/http_put.h"

#define MOST_HOPS        10
#define MOST_FIELD_BYTES ((size_t)64 << 10)
#define BUFFER_BYTES     (256L << 10) /* per transfer; more does not stay in the cache */
#define SLICE_MS         50 /* within which a cancel is seen by a thread that drives alone */

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
	free(request->url);
	free(request->sentence);
	free(request);
}

bool sl_http_request_is_unwanted(const struct sl_http_request *request)
{
	if (request->ask == SL_HTTP_PUT)
		return sl_http_put_is_dropped(request->http->put);
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

	pthread_mutex_lock(&engine->mutex);
	/* The one that was used last: its connections are the freshest. */
	link = engine->locked.transfers.previous;
	if (link != &engine->locked.transfers) {
		sl_list_remove(link);
		transfer = SL_CONTAINER(link, struct sl_http_transfer, link);
	}
	pthread_mutex_unlock(&engine->mutex);
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
	pthread_mutex_lock(&engine->mutex);
	sl_list_append(&engine->locked.transfers, &transfer->link);
	pthread_mutex_unlock(&engine->mutex);
}

/* ------------------------------------------------------------------------------------ answer */

static bool is_whole(const struct sl_http_request *request)
{
	return request->from == 0 &&
	       (request->http->size < 0 || request->length == (uint64_t)request->http->size);
}

static void changed(struct sl_http_request *request, const char *what)
{
	sl_http_request_fail(request, -ESTALE, "'%s' changed since it was opened: %s",
	                     request->http->name, what);
}

static void odd(struct sl_http_request *request, const char *what)
{
	sl_http_request_fail(request, -EPROTO, "'%s': the server answered with %s",
	                     request->http->name, what);
}

/* Whether a 206 is the part that was asked for. */
static bool is_part(struct sl_http_request *request)
{
	const struct sl_http_range *range = &request->answer.range;
	const struct sl_http *http = request->http;
	uint64_t last = request->from + request->length - 1;

	if (!request->ranged)
		odd(request, "a part of what was asked for");
	else if (!request->answer.has_range)
		odd(request, request->answer.bad_range ? "a Content-Range that is none"
		                                       : "a part, and no Content-Range");
	else if (http->size >= 0 && range->total >= 0 && range->total != http->size)
		changed(request, "it has another length");
	else if (!range->satisfied || range->first != request->from || range->last != last)
		odd(request, "another part than was asked for (Content-Range)");
	else if (request->answer.has_length && request->answer.length != request->length)
		odd(request, "another length than its Content-Range has");
	else
		return true;
	return false;
}

/* Whether a 200 is the whole object, and that was asked for. */
static bool is_object(struct sl_http_request *request)
{
	if (request->ranged && !is_whole(request))
		odd(request, "the whole object, and a part was asked for");
	else if (request->http->size >= 0 && request->answer.has_length &&
	         request->answer.length != (uint64_t)request->http->size)
		changed(request, "it has another length");
	else
		return true;
	return false;
}

static bool differ(const char *before, const char *now)
{
	return before[0] && now[0] && strcmp(before, now) != 0;
}

/* Looks at the fields of an answer to a GET, once, before its body is touched. */
static bool accepts(struct sl_http_request *request)
{
	const char *etag = request->answer.etag;
	long status = request->answer.status;

	if (request->answer.judged)
		return request->answer.accepted;
	request->answer.judged = true;
	if (status != 200 && status != 206)
		return false;
	if (request->answer.bad_length)
		odd(request, "a Content-Length that is none");
	else if (request->answer.encoded)
		odd(request, "encoded content, which was not asked for");
	else if (differ(request->http->etag, etag))
		changed(request, "it has another ETag");
	else if (!etag[0] && differ(request->http->modified, request->answer.modified))
		changed(request, "it was modified");
	else if (request->ask != SL_HTTP_GET || status == 206 ? is_part(request)
	                                                      : is_object(request))
		request->answer.accepted = true;
	return request->answer.accepted;
}

/* Keeps the first line of the body of an error; of HTML and XML, what stands between the tags. */
static void keep_said(struct sl_http_request *request, const char *data, size_t bytes)
{
	char *said = request->answer.said;
	size_t length = strlen(said);

	if (!request->answer.said_bytes && bytes)
		request->answer.tagged = data[0] == '<';
	request->answer.said_bytes += bytes;
	for (size_t i = 0; i < bytes && length < sizeof(request->answer.said) - 1; i++) {
		char c = data[i];

		if (request->answer.tagged && (c == '<' || c == '>')) {
			request->answer.in_tag = c == '<';
			c = ' ';
		}
		if (request->answer.in_tag || request->answer.said_line)
			continue;
		if (c == '\n' && length) {
			request->answer.said_line = true;
			continue;
		}
		if ((unsigned char)c < ' ' || c == 0x7f ||
		    (c == ' ' && (!length || said[length - 1] == ' ')))
			continue;
		said[length++] = c;
	}
	said[length] = '\0';
}

static size_t on_body(char *data, size_t size, size_t count, void *argument)
{
	struct sl_http_request *request = argument;
	struct sl_piece *piece = request->piece;
	size_t bytes = size * count, room;

	request->heard = sl_now();
	if (request->ask == SL_HTTP_PUT) {
		keep_said(request, data, bytes);
		return bytes;
	}
	/* A probe is over when its fields are there. */
	if (request->ask != SL_HTTP_GET) {
		keep_said(request, data, bytes);
		return request->answer.status >= 300 && request->answer.said_bytes < 4096 ? bytes
		                                                                          : 0;
	}
	if (!accepts(request)) {
		keep_said(request, data, bytes);
		return request->error || request->answer.said_bytes > 4096 ? 0 : bytes;
	}
	if (atomic_load_explicit(&piece->cancelled, memory_order_relaxed))
		return 0;
	room = piece->length - piece->moved;
	if (bytes > room) {
		/* Of an object of unknown length as much is read as there is room for. */
		if (request->http->size < 0) {
			memcpy(piece->data + piece->moved, data, room);
			piece->moved += room;
			request->answer.got += room;
		} else {
			odd(request, "more bytes than were asked for");
		}
		return 0;
	}
	memcpy(piece->data + piece->moved, data, bytes);
	piece->moved += bytes;
	request->answer.got += bytes;
	atomic_fetch_add_explicit(&request->http->engine->limit.arrived, bytes,
	                          memory_order_relaxed);
	return bytes;
}

static void on_field(struct sl_http_request *request, const char *name, const char *value)
{
	if (!strcasecmp(name, "Content-Range")) {
		request->answer.has_range = sl_http_parse_range(value, &request->answer.range);
		request->answer.bad_range = !request->answer.has_range;
	} else if (!strcasecmp(name, "Content-Length")) {
		uint64_t before = request->answer.length;
		bool again = request->answer.has_length;

		request->answer.has_length = sl_http_parse_length(value, &request->answer.length);
		request->answer.bad_length |=
			!request->answer.has_length || (again && before != request->answer.length);
	} else if (!strcasecmp(name, "ETag")) {
		sl_http_keep(value, request->answer.etag);
	} else if (!strcasecmp(name, "Last-Modified")) {
		sl_http_keep(value, request->answer.modified);
		request->answer.filetime = curl_getdate(value, NULL);
	} else if (!strcasecmp(name, "Content-Encoding")) {
		request->answer.encoded = strcasecmp(value, "identity") != 0 && value[0];
	} else if (!strcasecmp(name, "Accept-Ranges")) {
		request->answer.ranges = !strcasecmp(value, "bytes");
	} else if (!strcasecmp(name, "Retry-After")) {
		request->answer.retry_after = sl_http_parse_retry_after(value, time(NULL));
	}
}

/* Called for each line; the line of the status begins an answer, of which there may be several. */
static size_t on_line(char *data, size_t size, size_t count, void *argument)
{
	struct sl_http_request *request = argument;
	size_t bytes = size * count;
	char line[1024], *name, *value;

	request->heard = sl_now();
	request->answer.field_bytes += bytes;
	if (request->answer.field_bytes > MOST_FIELD_BYTES) {
		odd(request, "more than 64 KiB of header");
		return 0;
	}
	if (bytes >= 5 && !strncasecmp(data, "HTTP/", 5)) {
		size_t so_far = request->answer.field_bytes;

		memset(&request->answer, 0, sizeof(request->answer));
		request->answer.field_bytes = so_far;
		request->answer.retry_after = -1;
		request->answer.filetime = -1;
		curl_easy_getinfo(request->transfer->easy, CURLINFO_RESPONSE_CODE,
		                  &request->answer.status);
		return bytes;
	}
	/* What is longer is nothing that is looked at here. */
	if (bytes < sizeof(line)) {
		memcpy(line, data, bytes);
		line[bytes] = '\0';
		if (sl_http_parse_field(line, &name, &value))
			on_field(request, name, value);
	}
	return bytes;
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
	memset(&request->answer, 0, sizeof(request->answer));
	request->answer.retry_after = -1;
	request->answer.filetime = -1;
	request->heard = sl_now();
	request->from = request->length = 0;
	request->ranged = request->ask == SL_HTTP_PROBE;
	if (request->ask == SL_HTTP_PROBE)
		request->length = 1;
	if (request->piece) {
		/* What has no ranges begins anew. */
		if (!http->ranges)
			request->piece->moved = 0;
		request->from = request->piece->offset + request->piece->moved;
		request->length = request->piece->length - request->piece->moved;
		request->ranged = http->ranges;
	}
	sl_http_transfer_secure(request->transfer, http);
	curl_easy_setopt(easy, CURLOPT_URL, request->url ? request->url : http->url);
	curl_easy_setopt(easy, CURLOPT_PRIVATE, request);
	curl_easy_setopt(easy, CURLOPT_HEADERFUNCTION, on_line);
	curl_easy_setopt(easy, CURLOPT_HEADERDATA, request);
	curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, on_body);
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

/* ----------------------------------------------------------------------------------- verdict */

/* What a failure of the transfer itself means. */
static int transport_error(CURLcode code)
{
	switch (code) {
	case CURLE_COULDNT_RESOLVE_HOST:
	case CURLE_COULDNT_RESOLVE_PROXY:
		return -EHOSTUNREACH;
	case CURLE_COULDNT_CONNECT:
		return -ECONNREFUSED;
	case CURLE_OPERATION_TIMEDOUT:
		return -ETIMEDOUT;
	case CURLE_SEND_ERROR:
	case CURLE_RECV_ERROR:
	case CURLE_GOT_NOTHING:
		return -ECONNRESET;
	case CURLE_PARTIAL_FILE:
	case CURLE_HTTP2:
	case CURLE_HTTP2_STREAM:
		return -EIO;
	case CURLE_PEER_FAILED_VERIFICATION:
		return -EACCES;
	case CURLE_OUT_OF_MEMORY:
		return -ENOMEM;
	case CURLE_SSL_CACERT_BADFILE:
		return -EINVAL;
	default:
		return -EPROTO;
	}
}

static bool is_transient(CURLcode code)
{
	switch (code) {
	case CURLE_COULDNT_RESOLVE_HOST:
	case CURLE_COULDNT_RESOLVE_PROXY:
	case CURLE_COULDNT_CONNECT:
	case CURLE_OPERATION_TIMEDOUT:
	case CURLE_SEND_ERROR:
	case CURLE_RECV_ERROR:
	case CURLE_GOT_NOTHING:
	case CURLE_PARTIAL_FILE:
	case CURLE_HTTP2:
	case CURLE_HTTP2_STREAM:
		return true;
	default:
		return false;
	}
}

static int status_error(long status)
{
	switch (status) {
	case 401:
	case 403:
		return -EACCES;
	case 404:
	case 410:
		return -ENOENT;
	case 412:
		return -ESTALE;
	default:
		return -EIO;
	}
}

/* splitmix64 */
static uint64_t next_random(uint64_t *state)
{
	uint64_t x = *state += 0x9e3779b97f4a7c15;

	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
	x = (x ^ x >> 27) * 0x94d049bb133111eb;
	return x ^ x >> 31;
}

/*
 * Full jitter: anything up to a limit that doubles with each attempt. What a server asks for in
 * Retry-After is waited for at least, up to the largest limit.
 */
static int64_t backoff_ms(struct sl_http_request *request)
{
	const struct sl_settings *settings = &request->http->core->settings;
	uint64_t limit = settings->http_backoff_ms << SL_MIN(request->backoffs, 20u);
	int64_t wait;

	request->backoffs++;
	limit = SL_MIN(limit, settings->http_backoff_max_ms);
	wait = (int64_t)(next_random(&request->random) % (limit + 1));
	if (request->answer.retry_after > wait)
		wait = SL_MIN(request->answer.retry_after, (int64_t)settings->http_backoff_max_ms);
	return wait;
}

static enum sl_http_verdict again(struct sl_http_request *request, int error, const char *why)
{
	const struct sl_settings *settings = &request->http->core->settings;
	int64_t wait;

	if (request->ask == SL_HTTP_PUT && sl_http_put_has_begun(request->http->put)) {
		sl_http_request_fail(request, error,
		                     "'%s': %s, and an upload cannot go on in the middle",
		                     request->http->name, why);
		return SL_HTTP_FAILED;
	}
	/* Bytes are progress: what was counted before is forgotten. */
	if (request->answer.got && request->http->ranges)
		request->attempts = request->backoffs = 0;
	if (++request->attempts >= settings->http_attempts) {
		sl_http_request_fail(request, error, "'%s': %s, after %u attempts",
		                     request->http->name, why, request->attempts);
		return SL_HTTP_FAILED;
	}
	wait = backoff_ms(request);
	request->due = sl_now() + wait * 1000000;
	/* A redirect is asked for anew: it may lead elsewhere now. */
	free(request->url);
	request->url = NULL;
	request->hops = 0;
	sl_log(settings, SL_LOG_DEBUG, "%s: %s; again in %" PRId64 " ms", request->http->name, why,
	       wait);
	return SL_HTTP_AGAIN;
}

static bool is_secure(const char *url)
{
	return !strncasecmp(url, "https:", 6);
}

/* The URL without user and password: those of a server's making are not used. NULL: no URL. */
static char *without_user(const char *text)
{
	CURLU *url = curl_url();
	char *clean = NULL, *copy = NULL;

	if (url && !curl_url_set(url, CURLUPART_URL, text, 0) &&
	    !curl_url_set(url, CURLUPART_USER, NULL, 0) &&
	    !curl_url_set(url, CURLUPART_PASSWORD, NULL, 0) &&
	    !curl_url_get(url, CURLUPART_URL, &clean, 0))
		copy = strdup(clean);
	curl_free(clean);
	curl_url_cleanup(url);
	return copy;
}

/* Follows at once. */
static enum sl_http_verdict redirected(struct sl_http_request *request)
{
	const char *from = request->url ? request->url : request->http->url, *to = NULL;
	const char *name = request->http->name;
	char *url;

	curl_easy_getinfo(request->transfer->easy, CURLINFO_REDIRECT_URL, &to);
	if (!to)
		sl_http_request_fail(request, -EPROTO, "'%s': HTTP %ld without a Location", name,
		                     request->answer.status);
	else if (request->ask == SL_HTTP_PUT && sl_http_put_has_begun(request->http->put))
		sl_http_request_fail(request, -EPROTO,
		                     "'%s': redirected after the upload had begun", name);
	else if (++request->hops > MOST_HOPS)
		sl_http_request_fail(request, -ELOOP, "'%s': more than %d redirects", name,
		                     MOST_HOPS);
	else if (strncasecmp(to, "http:", 5) && !is_secure(to))
		sl_http_request_fail(request, -EPROTO,
		                     "'%s': redirected to something other than http or https",
		                     name);
	else if (is_secure(from) && !is_secure(to))
		sl_http_request_fail(request, -EPROTO, "'%s': redirected from https to http", name);
	if (request->error)
		return SL_HTTP_FAILED;
	url = without_user(to);
	if (!url) {
		sl_http_request_fail(request, -EPROTO, "'%s': redirected to a malformed URL", name);
		return SL_HTTP_FAILED;
	}
	free(request->url);
	request->url = url;
	request->due = 0;
	return SL_HTTP_AGAIN;
}

static enum sl_http_verdict judge_status(struct sl_http_request *request)
{
	struct sl_http *http = request->http;
	long status = request->answer.status;
	size_t said = strlen(request->answer.said);
	char why[64];

	if (said && request->answer.said[said - 1] == ' ')
		request->answer.said[said - 1] = '\0';
	snprintf(why, sizeof(why), "HTTP %ld", status);
	if (status == 429 || status == 503)
		sl_http_limit_overloaded(&http->engine->limit, sl_now());
	if (sl_http_is_transient(status))
		return again(request, -EIO, why);
	if (status == 412 && request->ask == SL_HTTP_PUT && http->flags & SLUICE_OPEN_EXCLUSIVE)
		sl_http_request_fail(request, -EEXIST, "'%s' exists", http->name);
	else if (status == 412 && request->ask != SL_HTTP_PUT)
		changed(request, "the server says so (HTTP 412)");
	sl_http_request_fail(request, status_error(status), "%s for '%s'%s%s", why, http->name,
	                     request->answer.said[0] ? ": " : "", request->answer.said);
	return SL_HTTP_FAILED;
}

/* The transfer of a GET of a piece ended without an error of libcurl. */
static enum sl_http_verdict judge_piece(struct sl_http_request *request)
{
	struct sl_piece *piece = request->piece;

	if (piece->moved == piece->length || request->http->size < 0)
		return SL_HTTP_DONE;
	return again(request, -EIO, "the body is shorter than it should be");
}

/* Whether the answer to a probe can be believed. */
static bool is_sound(struct sl_http_request *request)
{
	if (request->answer.bad_length)
		odd(request, "a Content-Length that is none");
	else if (request->answer.encoded)
		odd(request, "encoded content, which was not asked for");
	else if (request->answer.status == 206)
		return is_part(request);
	return !request->error;
}

static bool is_connected(struct sl_http_request *request)
{
	curl_off_t sent = 0;

	curl_easy_getinfo(request->transfer->easy, CURLINFO_PRETRANSFER_TIME_T, &sent);
	return sent > 0;
}

static enum sl_http_verdict judge(struct sl_http_request *request, CURLcode code)
{
	struct sl_piece *piece = request->piece;
	long status = request->answer.status;

	if (piece && piece->moved == piece->length && request->answer.accepted && !request->error &&
	    (code == CURLE_OK || request->http->size < 0))
		return SL_HTTP_DONE;
	if (request->error)
		return SL_HTTP_FAILED;
	if (sl_http_request_is_unwanted(request)) {
		sl_http_request_fail(request, -ECANCELED, "'%s': cancelled", request->http->name);
		return SL_HTTP_FAILED;
	}
	if (code == CURLE_ABORTED_BY_CALLBACK)
		return again(request, -ETIMEDOUT, "no byte came for too long");
	/* What was enough of an error's body, or of a probe's. */
	if (code == CURLE_WRITE_ERROR && status)
		code = CURLE_OK;
	if (code == CURLE_OK && status >= 300 && status < 400 && status != 304)
		return redirected(request);
	if (code != CURLE_OK && !(status >= 400 && code == CURLE_PARTIAL_FILE)) {
		const char *why = request->transfer->reason[0] ? request->transfer->reason
		                                               : curl_easy_strerror(code);

		/* libcurl says so of a line of header that is longer than it accepts. */
		if (code == CURLE_OUT_OF_MEMORY && is_connected(request)) {
			odd(request, "a line of header that is too long");
			return SL_HTTP_FAILED;
		}
		if (is_transient(code))
			return again(request, transport_error(code), why);
		sl_http_request_fail(request, transport_error(code), "'%s': %s",
		                     request->http->name, why);
		return SL_HTTP_FAILED;
	}
	if (status < 200 || status >= 300)
		return judge_status(request);
	if (request->ask == SL_HTTP_PUT && sl_http_put_check(request->http->put)) {
		odd(request, "success before it had everything");
		return SL_HTTP_FAILED;
	}
	if (request->ask == SL_HTTP_PROBE)
		return is_sound(request) ? SL_HTTP_DONE : SL_HTTP_FAILED;
	if (request->ask != SL_HTTP_GET)
		return SL_HTTP_DONE;
	return accepts(request) ? judge_piece(request) : SL_HTTP_FAILED;
}

enum sl_http_verdict sl_http_request_judge(struct sl_http_request *request, CURLcode code)
{
	enum sl_http_verdict verdict = judge(request, code);

	if (verdict == SL_HTTP_FAILED && !request->error)
		odd(request, "a status that was not asked for");
	sl_log(&request->http->core->settings, SL_LOG_DEBUG,
	       "%s: HTTP %ld, %" PRIu64 " bytes, %s%s", request->http->name, request->answer.status,
	       request->answer.got,
	       verdict == SL_HTTP_DONE    ? "done"
	       : verdict == SL_HTTP_AGAIN ? "again"
	                                  : "failed: ",
	       verdict == SL_HTTP_FAILED && request->sentence ? request->sentence : "");
	return verdict;
}

bool sl_http_request_gone(struct sl_http_request *request, int64_t now)
{
	int64_t most = (int64_t)request->http->core->settings.http_stall_ms * 1000000;

	if (request->ask == SL_HTTP_PUT && sl_http_put_is_idle(request->http->put))
		request->heard = now;
	return now - request->heard > most || sl_http_request_is_unwanted(request);
}

/* ----------------------------------------------------------------------------------- perform */

static CURLcode result_of(CURLM *multi, CURL *easy)
{
	CURLMsg *message;
	int left;

	while ((message = curl_multi_info_read(multi, &left)))
		if (message->msg == CURLMSG_DONE && message->easy_handle == easy)
			return message->data.result;
	return CURLE_ABORTED_BY_CALLBACK;
}

CURLcode sl_http_request_perform(struct sl_http_request *request)
{
	struct sl_http_transfer *transfer = request->transfer;
	CURLcode result = CURLE_OUT_OF_MEMORY;
	CURLMcode rc;
	int running;

	if (!transfer->alone) {
		transfer->alone = curl_multi_init();
		curl_multi_setopt(transfer->alone, CURLMOPT_MAXCONNECTS, 1L);
	}
	if (!transfer->alone || curl_multi_add_handle(transfer->alone, transfer->easy))
		return result;
	/* Ended by libcurl, by a stall or by a cancel. */
	do {
		rc = curl_multi_perform(transfer->alone, &running);
		if (!rc && running)
			rc = curl_multi_poll(transfer->alone, NULL, 0, SLICE_MS, NULL);
	} while (!rc && running && !sl_http_request_gone(request, sl_now()));
	if (rc)
		sl_http_request_fail(request, -EIO, "libcurl: %s", curl_multi_strerror(rc));
	result = result_of(transfer->alone, transfer->easy);
	curl_multi_remove_handle(transfer->alone, transfer->easy);
	return result;
}
