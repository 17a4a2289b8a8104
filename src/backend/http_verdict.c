/* SPDX-License-Identifier: Apache-2.0 */
/* What comes after a transfer: the end, an error, another attempt, another server. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "backend/http.h"
#include "backend/http_put.h"

#define MOST_HOPS 10

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
	case CURLE_SEND_FAIL_REWIND: /* of an upload, on a kept connection */
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
	case CURLE_SEND_FAIL_REWIND:
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
 * Jitter: from half of a limit that doubles with each attempt up to all of it. Without the half the
 * unluckiest of many requests would have used up its attempts before a server is back that was
 * started anew. What a server asks for in Retry-After is waited for at least, up to the largest limit.
 */
static int64_t backoff_ms(struct sl_http_request *request)
{
	const struct sl_settings *settings = &request->http->core->settings;
	uint64_t limit = settings->http_backoff_ms << SL_MIN(request->backoffs, 20u);
	int64_t wait;

	request->backoffs++;
	limit = SL_MIN(limit, settings->http_backoff_max_ms);
	wait = (int64_t)(limit - next_random(&request->random) % (limit / 2 + 1));
	if (request->answer.retry_after > wait)
		wait = SL_MIN(request->answer.retry_after, (int64_t)settings->http_backoff_max_ms);
	return wait;
}

static enum sl_http_verdict again(struct sl_http_request *request, int error, const char *why)
{
	const struct sl_settings *settings = &request->http->core->settings;
	int64_t wait;

	if (request->ask == SL_HTTP_PUT &&
	    sl_http_put_state(request->http->put) & SL_HTTP_PUT_BEGUN) {
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
	else if (request->ask == SL_HTTP_PUT &&
	         sl_http_put_state(request->http->put) & SL_HTTP_PUT_BEGUN)
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
		sl_http_limit_overloaded(http->limit, sl_now());
	if (sl_http_is_transient(status) ||
	    (status == 417 && request->ask == SL_HTTP_PUT && sl_http_put_without_expect(http->put)))
		return again(request, -EIO, why);
	if (status == 412 && request->ask == SL_HTTP_PUT && http->flags & SLUICE_OPEN_EXCLUSIVE)
		sl_http_request_fail(request, -EEXIST, "'%s' exists", http->name);
	else if (status == 412 && request->ask != SL_HTTP_PUT)
		sl_http_changed(request, "the server says so (HTTP 412)");
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
		sl_http_odd(request, "a Content-Length that is none");
	else if (request->answer.encoded)
		sl_http_odd(request, "encoded content, which was not asked for");
	else if (request->answer.status == 206)
		return sl_http_is_part(request);
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
			sl_http_odd(request, "a line of header that is too long");
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
	if (request->ask == SL_HTTP_PUT && !sl_http_put_is_whole(request->http->put)) {
		sl_http_odd(request, "success before it had everything");
		return SL_HTTP_FAILED;
	}
	if (request->ask == SL_HTTP_PROBE)
		return is_sound(request) ? SL_HTTP_DONE : SL_HTTP_FAILED;
	if (request->ask != SL_HTTP_GET)
		return SL_HTTP_DONE;
	return sl_http_accepts(request) ? judge_piece(request) : SL_HTTP_FAILED;
}

enum sl_http_verdict sl_http_request_judge(struct sl_http_request *request, CURLcode code)
{
	enum sl_http_verdict verdict = judge(request, code);

	if (verdict == SL_HTTP_FAILED && !request->error)
		sl_http_odd(request, "a status that was not asked for");
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

	if (request->ask == SL_HTTP_PUT && sl_http_put_state(request->http->put) & SL_HTTP_PUT_IDLE)
		request->heard = now;
	return now - request->heard > most || sl_http_request_is_unwanted(request);
}
