/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests
 *
 * A request for bytes of a remote file, from its making to its end: sets libcurl's transfer up for each attempt, and
 * judges the attempt after the transfer has ended: done, failed, to be repeated, or redirected.
 *
 * Threads: a single thread has a request at any time; attempts are set up and judged by the reactor that moves it.
 */
#include <errno.h>
#include <inttypes.h>
#include <linux/sockios.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/ioctl.h>
#include <time.h>

#include "http/body.h"
#include "http/call.h"
#include "http/signed.h"
#include "http/upload.h"

#define BUFFER_BYTES        (256L << 10) /* per transfer; more does not stay in the cache */
#define LEAST_BUFFER        (16L << 10)
#define HEADER_BYTES        (4L << 10)
#define MOST_BACKOFFS_THERE 2 /* at a target that was remembered, before the origin is asked */
#define SAME_LIMIT_NS       INT64_C(1000000000)
/* CURLE_TOO_LARGE; libcurl before 8.6 says CURLE_OUT_OF_MEMORY instead. */
#define TOO_LARGE ((CURLcode)100)

/* ------------------------------------------------------------------------------------ memory */

struct sl_http_request *sl_http_request_new(struct sl_http *http, enum sl_http_method method,
                                            struct sl_piece *piece)
{
	struct sl_http_request *request = calloc(1, sizeof(*request));

	if (!request)
		return NULL;
	request->http = http;
	request->method = method;
	request->piece = piece;
	return request;
}

void sl_http_request_free(struct sl_http_request *request)
{
	if (!request)
		return;
	sl_http_response_clear(request);
	sl_lines_clear(&request->lines, request->lines_rest);
	free(request->url);
	free(request->sentence);
	free(request);
}

bool sl_http_request_is_unwanted(const struct sl_http_request *request)
{
	uint64_t position;

	if (request->method == SL_HTTP_PUT)
		return sl_http_upload_state(request) & SL_HTTP_UPLOAD_DROPPED;
	if (sl_http_request_has_body(request))
		return sl_http_body_state(request->http->body, &position) & SL_HTTP_BODY_DROPPED;
	if (request->call)
		return request->call->stop && atomic_load(request->call->stop) &&
		       (!request->call->least ||
		        (request->attempts >= request->call->least && !request->transfer));
	if (!request->piece && request->http->opening)
		return atomic_load_explicit(&request->http->opening->cancelled,
		                            memory_order_relaxed);
	return (request->piece &&
	        atomic_load_explicit(&request->piece->cancelled, memory_order_relaxed)) ||
	       (request->instead &&
	        atomic_load_explicit(&request->instead->cancelled, memory_order_relaxed)) ||
	       sl_http_hedge_is_won(request->hedge);
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

/* ------------------------------------------------------------------------------------ set up */

bool sl_http_request_is_home(const struct sl_http_request *request)
{
	const char *url = request->url, *origin = request->http->origin;
	size_t length = url ? strlen(origin) : 0;

	return !url || (!strncasecmp(url, origin, length) && strchr("/?", url[length]));
}

/* Returns the bytes that libcurl reads at once; it allocates them for each transfer. PROBE may be answered with the
 * whole object. */
static long request_buffer_bytes(const struct sl_http_request *request)
{
	if (!request->length || request->length >= BUFFER_BYTES - HEADER_BYTES ||
	    request->method == SL_HTTP_PROBE)
		return BUFFER_BYTES;
	return (long)SL_MAX(request->length + HEADER_BYTES, LEAST_BUFFER);
}

static bool request_may_be_hedged(const struct sl_http_request *request)
{
	const struct sl_http *http = request->http;

	return http->core->settings.http_hedge && !request->hedge && !request->call &&
	       !(http->flags & (SLUICE_OPEN_HTTP2 | SLUICE_OPEN_WRITE)) &&
	       !sl_http_request_has_body(request);
}

int sl_http_request_prepare(struct sl_http_request *request)
{
	struct sl_http *http = request->http;
	bool home = sl_http_request_is_home(request);
	const struct sl_http_fields *fields;
	struct sl_http_transfer *transfer = request->transfer;
	struct curl_slist *lines;
	CURL *easy = transfer->easy;

	sl_http_transfer_renew(request, home);
	sl_http_response_clear(request);
	request->asked = request->alive = sl_now();
	request->first = 0;
	/* The time in which others had the turn is not counted. */
	if (request->due)
		request->since += request->alive - request->due;
	else if (!request->since)
		request->since = request->alive;
	request->connected = request->keeps = false;
	request->sent = 0;
	request->from = request->length = 0;
	request->ranged = request->method == SL_HTTP_PROBE && !http->confirm_empty &&
	                  !sl_http_request_asks_all(request);
	if (request->method == SL_HTTP_PROBE)
		http->head_bytes = 0;
	request->length = sl_http_request_has_head(request) ? http->head_most : request->ranged;
	if (sl_http_request_has_body(request))
		sl_http_body_prepare(http->body);
	request->slow = SL_FOREVER;
	if (request->piece) {
		request->from = request->piece->offset + request->piece->moved;
		request->length = request->piece->length - request->piece->moved;
		request->ranged = true;
	}
	if (request_may_be_hedged(request))
		request->slow = sl_http_hedge_due(request);
	curl_easy_setopt(easy, CURLOPT_PRIVATE, request);
	curl_easy_setopt(easy, CURLOPT_HEADERDATA, request);
	curl_easy_setopt(easy, CURLOPT_WRITEDATA, request);
	curl_easy_setopt(easy, CURLOPT_NOBODY, request->method == SL_HTTP_HEAD ? 1L : 0L);
	curl_easy_setopt(easy, CURLOPT_BUFFERSIZE, request_buffer_bytes(request));
	if (request->method == SL_HTTP_PUT)
		sl_http_upload_prepare(http->upload, easy);
	fields = request->call ? sl_http_call_prepare(request) : &http->fields;
	lines = home ? fields->home : fields->away;
	if (request->ranged) {
		/* libcurl takes longer to make this line of CURLOPT_RANGE. */
		snprintf(transfer->range, sizeof(transfer->range),
		         "Range: bytes=%" PRIu64 "-%" PRIu64, request->from,
		         request->from + request->length - 1);
		transfer->lines = (struct curl_slist){.data = transfer->range, .next = lines};
		lines = &transfer->lines;
	}
	if (request->unexpected || (request->call && request->attempts % 2 == 0)) {
		strcpy(transfer->range, "Expect:");
		transfer->lines = (struct curl_slist){.data = transfer->range, .next = lines};
		lines = &transfer->lines;
	}
	if (http->signer && !request->url && !sl_http_identity_has(http, "Authorization")) {
		int rc = sl_http_signed_prepare(request, lines);

		if (rc)
			return rc;
		lines = request->lines;
	}
	curl_easy_setopt(easy, CURLOPT_HTTPHEADER, lines);
	request->bears = false;
	request->how = 0;
	if (home && http->identified)
		sl_http_identity_set(request);
	sl_log(&http->core->settings, SL_LOG_DEBUG,
	       "%s %s bytes %" PRIu64 "+%" PRIu64 " attempt %u",
	       request->call                     ? request->call->verb
	       : request->method == SL_HTTP_HEAD ? "HEAD"
	       : request->method == SL_HTTP_PUT  ? "PUT"
	                                         : "GET",
	       http->name, request->from, request->call ? request->call->length : request->length,
	       request->attempts + 1);
	return 0;
}

/* ---------------------------------------------------------------------------- after an attempt */

/* The meaning of a code of libcurl or of a status, and whether the same request may succeed later. */
struct failure {
	long code; /* 0: any other */
	int error;
	bool transient;
};

static const struct failure transports[] = {
	{CURLE_COULDNT_RESOLVE_HOST, -EHOSTUNREACH, true},
	{CURLE_COULDNT_RESOLVE_PROXY, -EHOSTUNREACH, true},
	{CURLE_COULDNT_CONNECT, -ECONNREFUSED, true},
	{CURLE_OPERATION_TIMEDOUT, -ETIMEDOUT, true},
	{CURLE_SEND_ERROR, -ECONNRESET, true},
	{CURLE_RECV_ERROR, -ECONNRESET, true},
	{CURLE_GOT_NOTHING, -ECONNRESET, true},
	{CURLE_SEND_FAIL_REWIND, -ECONNRESET, true}, /* of an upload, on a kept connection */
	{CURLE_PARTIAL_FILE, -EIO, true},
	{CURLE_HTTP2, -EIO, true},
	{CURLE_HTTP2_STREAM, -EIO, true},
	{CURLE_PEER_FAILED_VERIFICATION, -EACCES, false},
	{CURLE_SSL_CLIENTCERT, -EACCES, false},
	{CURLE_SSL_CERTPROBLEM, -EINVAL, false}, /* of a certificate of ours */
	{CURLE_OUT_OF_MEMORY, -ENOMEM, false},
	{CURLE_SSL_CACERT_BADFILE, -EINVAL, false},
	{0, -EPROTO, false},
};

static const struct failure statuses[] = {
	{401, -EACCES, false}, {403, -EACCES, false}, {404, -ENOENT, false}, {407, -EACCES, false},
	{408, -EIO, true},     {410, -ENOENT, false}, {412, -ESTALE, false}, {429, -EIO, true},
	{500, -EIO, true},     {502, -EIO, true},     {503, -EIO, true},     {504, -EIO, true},
	{0, -EIO, false},
};

static struct failure failure_find(const struct failure *table, long code)
{
	while (table->code && table->code != code)
		table++;
	return *table;
}

/*
 * Jitter: from half of a limit that doubles with each attempt up to all of it. Without the half the
 * unluckiest of many requests would have used up its attempts before a server is back that was
 * started anew.
 */
static int64_t request_backoff_ms(struct sl_http_request *request)
{
	const struct sl_settings *settings = &request->http->core->settings;
	uint64_t limit = settings->http_backoff_ms << SL_MIN(request->backoffs, 20u);

	if (!request->random)
		request->random = (uint64_t)sl_now() ^ (uintptr_t)request;
	request->backoffs++;
	limit = SL_MIN(limit, settings->http_backoff_max_ms);
	return (int64_t)(limit - sl_random(&request->random) % (limit / 2 + 1));
}

bool sl_http_request_must_rest(struct sl_http_request *request)
{
	_Atomic int64_t *quiet = &request->http->quiet[sl_http_request_is_home(request)];
	int64_t until = atomic_load_explicit(quiet, memory_order_relaxed), now;

	if (!until || until <= (now = sl_now()))
		return false;
	/* The pause counts neither as silence nor as an attempt. */
	request->since = (request->since ? request->since : now) + until - now;
	request->due = until;
	return true;
}

/* The server said after how many milliseconds it will take requests: no other is sent before. */
static void request_is_limited(struct sl_http_request *request, int64_t wait, int64_t now)
{
	struct sl_http *http = request->http;
	_Atomic int64_t *quiet = &http->quiet[sl_http_request_is_home(request)];
	int64_t until = now + wait * 1000000, before = atomic_load(quiet);

	request->limited += wait;
	request->since += wait * 1000000;
	while (before < until && !atomic_compare_exchange_weak(quiet, &before, until))
		;
	/* Others were told the same. */
	if (before + SAME_LIMIT_NS < until)
		sl_log(&http->core->settings, SL_LOG_ERROR,
		       "%s: the server limits requests (HTTP 429): waiting for %" PRId64 " s",
		       http->name, (wait + 999) / 1000);
}

/*
 * Until data of the file has come the attempts are counted: its server may never have been there. From then on only
 * the time counts in which the piece did not grow. A longer wait than is left of it is not begun if the server asks
 * for it (Retry-After), and else shortened.
 */
enum sl_http_verdict sl_http_request_retry(struct sl_http_request *request, int error,
                                           const char *why)
{
	struct sl_http *http = request->http;
	const struct sl_settings *settings = &http->core->settings;
	struct sl_http_call *call = request->call;
	bool begun =
		atomic_load_explicit(&http->begun, memory_order_relaxed) && !(call && call->brief);
	int64_t left = (int64_t)settings->http_retry_ms, asked = request->response.retry_after;
	bool limited = request->response.status == 429 && asked > 0;
	int64_t now = sl_now(), silent, rest, wait;
	uint64_t moved = request->piece ? request->piece->moved : call ? call->given : 0;

	if (sl_http_upload_state(request) & SL_HTTP_UPLOAD_BEGUN)
		return request_failed(request, error,
		                      "'%s': %s; an upload of which the server has bytes is not "
		                      "begun again",
		                      http->name, why);
	if (sl_http_request_has_body(request) &&
	    sl_http_body_state(http->body, &moved) & SL_HTTP_BODY_BEGUN)
		return request_failed(
			request, error,
			"'%s': %s, and without ranges, ETag and Last-Modified it cannot go on in "
			"the middle",
			http->name, why);
	if (moved > request->reached) {
		request->reached = moved;
		request->since = request->alive;
		request->backoffs = 0;
		request->misled = 0;
		request->limited = 0;
	}
	silent = (now - request->since) / 1000000;
	left -= begun ? silent : 0;
	if (left <= 0)
		return request_failed(
			request, error,
			"'%s': %s; no more data came for %.1f s (SLUICE_HTTP_RETRY_MS)", http->name,
			why, (double)silent / 1000);
	/* A server may have trouble with HEAD alone: a byte is asked for next, as often as anything. */
	if (request->method == SL_HTTP_HEAD && !(http->flags & SLUICE_OPEN_WRITE))
		request->method = SL_HTTP_PROBE;
	else if (!limited && ++request->attempts >= settings->http_attempts && !begun)
		return request_failed(request, error,
		                      "'%s': %s, after %u attempts (SLUICE_HTTP_ATTEMPTS)",
		                      http->name, why, request->attempts);
	if (limited)
		left = (int64_t)settings->http_ratelimit_ms - request->limited;
	if (asked > left)
		return request_failed(request, error,
		                      "'%s': %s, and the server asks to wait for %" PRId64
		                      " s (%s), which is longer than %s allows",
		                      http->name, why, asked / 1000,
		                      limited ? "it limits requests" : "Retry-After",
		                      limited ? "SLUICE_HTTP_RATELIMIT_MS"
		                              : "SLUICE_HTTP_RETRY_MS");
	rest = request_backoff_ms(request);
	wait = SL_MAX(asked, SL_MIN(rest, left));
	request->due = now + wait * 1000000;
	if (limited)
		request_is_limited(request, wait, now);
	/* The origin is asked anew: it may lead elsewhere now. So it is for the file if a target that was remembered
	 * fails again and again. */
	if (request->located && !limited && request->backoffs >= MOST_BACKOFFS_THERE)
		sl_http_location_forget(request);
	sl_http_request_go_home(request);
	/* A wrong port is told at once, and not when all attempts are over. */
	if (error == -ECONNREFUSED && request->method == SL_HTTP_PROBE && request->backoffs == 1)
		sl_log(settings, SL_LOG_ERROR, "'%s': %s; trying again, at most %" PRIu64 " times",
		       http->name, why, settings->http_attempts);
	else
		sl_log(settings, SL_LOG_DEBUG, "%s: %s; again in %" PRId64 " ms", http->name, why,
		       wait);
	return SL_HTTP_AGAIN;
}

static enum sl_http_verdict request_judge_status(struct sl_http_request *request)
{
	struct sl_http *http = request->http;
	long status = request->response.status;
	struct failure failure = failure_find(statuses, status);
	size_t said = strlen(request->response.error_text);
	char why[440], text[400];
	int error = failure.error;

	if (said && request->response.error_text[said - 1] == ' ')
		request->response.error_text[said - 1] = '\0';
	sl_http_identity_hide(http, request->response.error_text);
	snprintf(text, sizeof(text), "%s", request->response.error_text);
	if (http->signer)
		error = sl_http_signed_error(request, error, text, sizeof(text));
	snprintf(why, sizeof(why), "HTTP %ld%s%s", status, text[0] ? ": " : "", text);
	/* The server has no copies: the caller may have another way. */
	if (request->call && request->call->copies && (status == 405 || status == 501))
		error = -ENOTSUP;
	if (status == 429 || status == 503)
		sl_http_limit_overloaded(http->limit, sl_now());
	if (failure.transient || (status == 417 && !request->unexpected &&
	                          (request->call || request->method == SL_HTTP_PUT))) {
		request->unexpected |= status == 417;
		return sl_http_request_retry(request, failure.error, why);
	}
	if (status == 412 && http->flags & SLUICE_OPEN_EXCLUSIVE)
		sl_http_request_fail(request, -EEXIST, "'%s' exists", http->name);
	else if (status == 412 && request->method != SL_HTTP_PUT && !request->call)
		sl_http_fail_changed(request, "the server says so (HTTP 412)");
	else if (status == 416 && request->response.has_range &&
	         request->response.range.total != http->size)
		sl_http_fail_changed(request, "it has another length");
	return request_failed(request, error, "HTTP %ld for '%s'%s%s", status, http->name,
	                      text[0] ? ": " : "", text);
}

/* The transfer of a GET ended without an error of libcurl. */
static enum sl_http_verdict request_judge_get(struct sl_http_request *request)
{
	struct sl_piece *piece = request->piece;
	int64_t size = request->http->size;

	if (piece ? piece->moved == piece->length
	          : size < 0 || request->response.got == (uint64_t)size)
		return SL_HTTP_DONE;
	return sl_http_request_retry(request, -EIO, "the body is shorter than it should be");
}

static bool request_is_connected(struct sl_http_request *request)
{
	curl_off_t sent = 0;

	curl_easy_getinfo(request->transfer->easy, CURLINFO_PRETRANSFER_TIME_T, &sent);
	return sent > 0;
}

/* Whether the server or the network broke the connection off, where libcurl's code could mean more. */
static bool request_is_broken_off(struct sl_http_request *request, CURLcode code, const char *why)
{
	long connects = 1;

	if (code == CURLE_SSL_CONNECT_ERROR)
		return strcasestr(why, "SYSCALL") || strcasestr(why, "reset by peer") ||
		       strcasestr(why, "unexpected eof");
	/* Bytes that an answer left behind on its connection are lost with it: the next connection is clean. */
	curl_easy_getinfo(request->transfer->easy, CURLINFO_NUM_CONNECTS, &connects);
	return !connects && (code == CURLE_UNSUPPORTED_PROTOCOL || code == CURLE_OUT_OF_MEMORY ||
	                     code == CURLE_WEIRD_SERVER_REPLY);
}

/* The transfer failed. */
static enum sl_http_verdict request_judge_failure(struct sl_http_request *request, CURLcode code)
{
	const char *why =
		request->transfer->reason[0] ? request->transfer->reason : curl_easy_strerror(code);
	struct failure failure;
	const char *name = request->http->name;
	long connect = 0;

	curl_easy_getinfo(request->transfer->easy, CURLINFO_HTTP_CONNECTCODE, &connect);
	if (connect >= 300 && !request->response.status &&
	    !failure_find(statuses, connect).transient)
		return request_failed(request, failure_find(statuses, connect).error,
		                      "'%s': the proxy refused to connect to the server (HTTP %ld)",
		                      name, connect);
	if (code == TOO_LARGE)
		code = CURLE_OUT_OF_MEMORY;
	if (request_is_broken_off(request, code, why))
		code = CURLE_RECV_ERROR;
	/* libcurl says so of a line of header that is longer than it accepts. */
	if (code == CURLE_OUT_OF_MEMORY && request_is_connected(request))
		return request_failed(request, -EPROTO, "'%s': a line of the header is too long",
		                      name);
	/* In TLS 1.3 this comes when the handshake is over, and libcurl takes it for a broken connection. */
	if (code == CURLE_RECV_ERROR && strcasestr(why, "certificate required"))
		code = CURLE_SSL_CLIENTCERT;
	failure = failure_find(transports, code);
	if (code == CURLE_COULDNT_CONNECT)
		sl_http_limit_overloaded(request->http->limit, sl_now());
	if (failure.transient)
		return sl_http_request_retry(request, failure.error, why);
	return request_failed(request, failure.error, "'%s': %s", name, why);
}

/* Whether the target that was remembered has expired, or is away. */
static bool request_is_misled(struct sl_http_request *request, CURLcode code)
{
	long status = request->response.status;

	return status == 401 || status == 403 || status == 404 || status == 410 ||
	       (code && !status && !request_is_connected(request));
}

static enum sl_http_verdict request_judge(struct sl_http_request *request, CURLcode code)
{
	struct sl_piece *piece = request->piece;
	struct sl_http *http = request->http;
	long status = request->response.status;
	int64_t stall = sl_http_call_patience(request), silent;
	enum sl_http_verdict verdict;
	char why[80];

	if (piece && piece->moved == piece->length && request->response.accepted && !request->error)
		return SL_HTTP_DONE;
	if (request->error)
		return SL_HTTP_FAILED;
	if (sl_http_request_is_unwanted(request) ||
	    (sl_http_request_has_body(request) && sl_http_body_is_unread(request->http->body)))
		return request_failed(request, -ECANCELED, "'%s': cancelled", http->name);
	if (request->located && request_is_misled(request, code)) {
		sl_http_location_forget(request);
		request->due = sl_now();
		return SL_HTTP_ANEW;
	}
	if (code == CURLE_ABORTED_BY_CALLBACK) {
		silent = sl_now() - request->alive;
		snprintf(why, sizeof(why), "no byte came for %.1f s%s", (double)silent / 1e9,
		         silent > stall ? " (SLUICE_HTTP_STALL_MS)" : "");
		return sl_http_request_retry(request, -ETIMEDOUT, why);
	}
	if (code == CURLE_OK && !request->response.complete)
		return sl_http_request_retry(request, -ECONNRESET,
		                             "the connection was closed within the header");
	/* The body of an error or of a probe was cut on purpose. */
	if (code == CURLE_WRITE_ERROR && status)
		code = CURLE_OK;
	if (code == CURLE_OK && http->signer && status >= 300 &&
	    sl_http_signed_judge(request, &verdict))
		return verdict;
	if (code == CURLE_OK &&
	    (sl_http_identity_learns(request) ||
	     (status == 401 && sl_http_identity_is_renewed(request))) &&
	    !(sl_http_upload_state(request) & SL_HTTP_UPLOAD_BEGUN)) {
		request->due = 0;
		return SL_HTTP_AGAIN;
	}
	if (code == CURLE_OK && status >= 300 && status < 400 && status != 304)
		return sl_http_request_follow(request);
	if (code != CURLE_OK && !(status >= 400 && code == CURLE_PARTIAL_FILE))
		return request_judge_failure(request, code);
	if (status < 200 || status >= 300)
		return request_judge_status(request);
	if (request->call)
		return sl_http_call_judge(request);
	if (request->method == SL_HTTP_PUT &&
	    !(sl_http_upload_state(request) & SL_HTTP_UPLOAD_WHOLE))
		sl_http_fail_protocol(request, "success before it had everything");
	if (request->error ||
	    ((request->method == SL_HTTP_GET || request->method == SL_HTTP_PROBE) &&
	     !sl_http_accepts(request)))
		return SL_HTTP_FAILED;
	return request->method == SL_HTTP_GET ? request_judge_get(request) : SL_HTTP_DONE;
}

enum sl_http_verdict sl_http_request_judge(struct sl_http_request *request, CURLcode code)
{
	enum sl_http_verdict verdict = request_judge(request, code);

	/* libcurl keeps the nonce of Digest for the next request. */
	if (verdict == SL_HTTP_DONE && request->piece &&
	    (!request->http->identified || atomic_load(&request->http->how) == CURLAUTH_DIGEST))
		request->transfer->file = request->http->number;
	if (verdict == SL_HTTP_DONE && !request->attempts &&
	    (request->piece || (sl_http_request_has_head(request) && request->response.got)))
		sl_http_pace_add(&request->http->limit->pace, request->length, request->first,
		                 sl_now() - request->asked);
	if (verdict == SL_HTTP_FAILED && !request->error)
		sl_http_fail_protocol(request, "a status that was not asked for");
	/* libcurl 8 repeats the rewind that failed in each later transfer of the handle, also after a reset. */
	if (code == CURLE_SEND_FAIL_REWIND) {
		sl_http_transfer_free(request->transfer);
		request->transfer = NULL;
	}
	sl_log(&request->http->core->settings, SL_LOG_DEBUG,
	       "%s: HTTP %ld, %" PRIu64 " bytes, %s%s", request->http->name,
	       request->response.status, request->response.got,
	       verdict == SL_HTTP_DONE    ? "done"
	       : verdict == SL_HTTP_AGAIN ? "again"
	       : verdict == SL_HTTP_ANEW  ? "the target has to be found again"
	                                  : "failed: ",
	       verdict == SL_HTTP_FAILED && request->sentence ? request->sentence : "");
	return verdict;
}

/*
 * Connecting has a time-out of its own. An upload is alive while the server's kernel takes its bytes, of which ours
 * may hold megabytes, or its caller has none.
 */
void sl_http_request_refresh(struct sl_http_request *request, int64_t now)
{
	curl_socket_t socket = CURL_SOCKET_BAD;
	curl_off_t sent = 0;
	uint64_t position;
	int queued = 0;

	if (!request->connected) {
		curl_easy_getinfo(request->transfer->easy, CURLINFO_PRETRANSFER_TIME_T, &sent);
		request->connected = sent > 0;
		request->alive = SL_MAX(request->alive, sent ? request->asked + sent * 1000 : now);
	}
	if (sl_http_request_has_body(request) &&
	    sl_http_body_state(request->http->body, &position) & SL_HTTP_BODY_IDLE)
		request->alive = now;
	if (request->method != SL_HTTP_PUT && !request->call)
		return;
	curl_easy_getinfo(request->transfer->easy, CURLINFO_SIZE_UPLOAD_T, &sent);
	curl_easy_getinfo(request->transfer->easy, CURLINFO_ACTIVESOCKET, &socket);
	if (!ioctl(socket, SIOCOUTQ, &queued))
		sent -= queued;
	if (sent != request->sent || sl_http_upload_state(request) & SL_HTTP_UPLOAD_IDLE)
		request->alive = now;
	request->sent = sent;
}

bool sl_http_request_must_end(const struct sl_http_request *request, int64_t now)
{
	return now - request->alive > sl_http_call_patience(request) ||
	       sl_http_request_is_unwanted(request);
}
