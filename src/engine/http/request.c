/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attempts
 *
 * Sets a transfer up for each attempt of a request, and judges it after the transfer: done, failed,
 * to be repeated, or redirected. Where requests differ their kind is asked (struct sl_http_kind).
 *
 * Threads: the reactor that moves the request.
 */
#include <errno.h>
#include <inttypes.h>
#include <linux/sockios.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/ioctl.h>

#include "http/http_internal.h"

#define MOST_HOPS 10
/* CURLE_TOO_LARGE; libcurl before 8.6 says CURLE_OUT_OF_MEMORY instead. */
#define TOO_LARGE ((CURLcode)100)

/* Writes a line of the header for this attempt alone, before those of the file. */
static struct curl_slist *request_add_line(struct sl_http_request *request,
                                           struct curl_slist *lines)
{
	struct sl_http_transfer *transfer = request->transfer;

	/* CURLOPT_RANGE takes libcurl longer. */
	if (request->ranged)
		snprintf(transfer->line, sizeof(transfer->line),
		         "Range: bytes=%" PRIu64 "-%" PRIu64, request->from,
		         request->from + request->length - 1);
	else if (request->unexpected)
		strcpy(transfer->line, "Expect:");
	if (!transfer->line[0])
		return lines;
	transfer->lines = (struct curl_slist){.data = transfer->line, .next = lines};
	return &transfer->lines;
}

static void request_begin_attempt(struct sl_http_request *request)
{
	sl_http_response_clear(&request->response);
	request->asked = request->alive = sl_now();
	request->first = 0;
	/* The time in which others had the turn is not counted. */
	if (request->due)
		request->since += request->alive - request->due;
	else if (!request->since)
		request->since = request->alive;
	request->connected = request->keeps = request->ranged = request->bears = false;
	request->sent = 0;
	request->from = request->length = 0;
	request->how = 0;
	request->slow = SL_FOREVER;
}

int sl_http_request_prepare(struct sl_http_request *request)
{
	struct sl_http *http = request->http;
	bool home = sl_http_request_is_home(request);
	struct curl_slist *lines = home ? request->fields->home : request->fields->away;
	CURL *easy = request->transfer->easy;

	sl_http_transfer_renew(request, home);
	request_begin_attempt(request);
	curl_easy_setopt(easy, CURLOPT_PRIVATE, request);
	curl_easy_setopt(easy, CURLOPT_HEADERDATA, request);
	curl_easy_setopt(easy, CURLOPT_WRITEDATA, request);
	request->kind->prepare(request);
	lines = request_add_line(request, lines);
	if (http->signer && !request->url && !sl_http_identity_has(http, "Authorization")) {
		int rc = sl_http_signed_prepare(request, lines);

		if (rc)
			return rc;
		lines = request->lines;
	}
	curl_easy_setopt(easy, CURLOPT_HTTPHEADER, lines);
	if (home && http->identified)
		sl_http_identity_set(request);
	sl_log(&http->core->settings, SL_LOG_DEBUG,
	       "%s %s bytes %" PRIu64 "+%" PRIu64 " attempt %u", request->verb, http->name,
	       request->from, request->length, request->attempts + 1);
	return 0;
}

/* ---------------------------------------------------------------------------- after an attempt */

/* The meaning of libcurl's code or a status, and whether the same request may succeed later. */
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
	{CURLE_SEND_FAIL_REWIND, -ECONNRESET, true}, /* an upload's, on a kept connection */
	{CURLE_PARTIAL_FILE, -EIO, true},
	{CURLE_HTTP2, -EIO, true},
	{CURLE_HTTP2_STREAM, -EIO, true},
	{CURLE_PEER_FAILED_VERIFICATION, -EACCES, false},
	{CURLE_SSL_CLIENTCERT, -EACCES, false},
	{CURLE_SSL_CERTPROBLEM, -EINVAL, false}, /* our certificate is bad */
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
	if (status == 429 || status == 503)
		sl_http_limit_overloaded(http->limit, sl_now());
	if (failure.transient || (status == 417 && !request->unexpected && request->kind->sends)) {
		request->unexpected |= status == 417;
		return sl_http_request_retry(request, failure.error, why);
	}
	if (status == 412 && http->flags & SLUICE_OPEN_EXCLUSIVE)
		sl_http_request_fail(request, -EEXIST, "'%s' exists", http->name);
	else if (status == 412 && !request->kind->sends)
		sl_http_fail_changed(request, "the server says so (HTTP 412)");
	else if (status == 416 && request->response.has_range &&
	         request->response.range.total != http->size)
		sl_http_fail_changed(request, "it has another length");
	return request_failed(request, error, "HTTP %ld for '%s'%s%s", status, http->name,
	                      text[0] ? ": " : "", text);
}

static bool request_is_connected(struct sl_http_request *request)
{
	curl_off_t sent = 0;

	curl_easy_getinfo(request->transfer->easy, CURLINFO_PRETRANSFER_TIME_T, &sent);
	return sent > 0;
}

/* Whether the connection was broken off, where libcurl's code could mean more. */
static bool request_is_broken_off(struct sl_http_request *request, CURLcode code, const char *why)
{
	long connects = 1;

	if (code == CURLE_SSL_CONNECT_ERROR)
		return strcasestr(why, "SYSCALL") || strcasestr(why, "reset by peer") ||
		       strcasestr(why, "unexpected eof");
	/* An answer may leave bytes behind on its connection: the next connection is clean. */
	curl_easy_getinfo(request->transfer->easy, CURLINFO_NUM_CONNECTS, &connects);
	return !connects && (code == CURLE_UNSUPPORTED_PROTOCOL || code == CURLE_OUT_OF_MEMORY ||
	                     code == CURLE_WEIRD_SERVER_REPLY);
}

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
	/* libcurl calls a line of header so that is too long for it. */
	if (code == CURLE_OUT_OF_MEMORY && request_is_connected(request))
		return request_failed(request, -EPROTO, "'%s': a line of the header is too long",
		                      name);
	/* In TLS 1.3 it comes after the handshake, and libcurl takes it for a broken connection. */
	if (code == CURLE_RECV_ERROR && strcasestr(why, "certificate required"))
		code = CURLE_SSL_CLIENTCERT;
	failure = failure_find(transports, code);
	if (code == CURLE_COULDNT_CONNECT)
		sl_http_limit_overloaded(request->http->limit, sl_now());
	if (failure.transient)
		return sl_http_request_retry(request, failure.error, why);
	return request_failed(request, failure.error, "'%s': %s", name, why);
}

static bool url_is_secure(const char *url)
{
	return !strncasecmp(url, "https:", 6);
}

/* The URL without user and password: a server's are not used. NULL: no URL. */
static char *url_without_user(const char *text)
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

/* Judges a redirect, and follows it at once. */
static enum sl_http_verdict request_follow(struct sl_http_request *request)
{
	const char *from = request->url ? request->url : request->http->url, *to = NULL;
	const char *name = request->http->name;
	char *url;

	curl_easy_getinfo(request->transfer->easy, CURLINFO_REDIRECT_URL, &to);
	if (!to)
		return request_failed(request, -EPROTO, "'%s': HTTP %ld without a Location", name,
		                      request->response.status);
	if (sl_http_request_stuck(request))
		return request_failed(request, -EPROTO,
		                      "'%s': redirected after the upload had begun", name);
	if (++request->hops > MOST_HOPS)
		return request_failed(request, -ELOOP, "'%s': more than %d redirects", name,
		                      MOST_HOPS);
	if (strncasecmp(to, "http:", 5) && !url_is_secure(to))
		return request_failed(request, -EPROTO,
		                      "'%s': redirected to something other than http or https",
		                      name);
	if (url_is_secure(from) && !url_is_secure(to))
		return request_failed(request, -EPROTO, "'%s': redirected from https to http",
		                      name);
	url = url_without_user(to);
	if (!url)
		return request_failed(request, -EPROTO, "'%s': redirected to a malformed URL",
		                      name);
	sl_http_location_redirected(request);
	free(request->url);
	request->url = url;
	request->due = 0;
	return SL_HTTP_AGAIN;
}

static enum sl_http_verdict request_judge(struct sl_http_request *request, CURLcode code)
{
	const struct sl_http_kind *kind = request->kind;
	struct sl_http *http = request->http;
	long status = request->response.status;
	enum sl_http_verdict verdict;
	int64_t silent;
	char why[80];

	if (request->error)
		return SL_HTTP_FAILED;
	/* The part is whole, whatever the transfer came to then. */
	if (kind->piece && request->response.accepted && request->response.got == request->length)
		return SL_HTTP_DONE;
	if (sl_http_request_is_unwanted(request) || (kind->ended && kind->ended(request)))
		return request_failed(request, -ECANCELED, "'%s': cancelled", http->name);
	/* The remembered target has expired, or is away. */
	if (request->located && (status == 401 || status == 403 || status == 404 || status == 410 ||
	                         (code && !status && !request_is_connected(request)))) {
		sl_http_location_forget(request);
		request->due = sl_now();
		return SL_HTTP_ANEW;
	}
	if (code == CURLE_ABORTED_BY_CALLBACK) {
		silent = sl_now() - request->alive;
		snprintf(why, sizeof(why), "no byte came for %.1f s%s", (double)silent / 1e9,
		         silent > request->patience ? " (SLUICE_HTTP_STALL_MS)" : "");
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
	    !sl_http_request_stuck(request)) {
		request->due = 0;
		return SL_HTTP_AGAIN;
	}
	if (code == CURLE_OK && status >= 300 && status < 400 && status != 304)
		return request_follow(request);
	if (code != CURLE_OK && !(status >= 400 && code == CURLE_PARTIAL_FILE))
		return request_judge_failure(request, code);
	if (status < 200 || status >= 300)
		return request_judge_status(request);
	return kind->judge ? kind->judge(request) : SL_HTTP_DONE;
}

enum sl_http_verdict sl_http_request_judge(struct sl_http_request *request, CURLcode code)
{
	enum sl_http_verdict verdict = request_judge(request, code);

	/* libcurl keeps the nonce of Digest for the next request. */
	if (verdict == SL_HTTP_DONE && request->kind->piece &&
	    (!request->http->identified || atomic_load(&request->http->how) == CURLAUTH_DIGEST))
		request->transfer->file = request->http->number;
	if (verdict == SL_HTTP_DONE && !request->attempts && request->response.got &&
	    !request->kind->stream)
		sl_http_pace_add(&request->http->limit->pace, request->length, request->first,
		                 sl_now() - request->asked);
	if (verdict == SL_HTTP_FAILED && !request->error)
		sl_http_fail_protocol(request, "a status that was not asked for");
	/* libcurl 8 repeats a failed rewind in all transfers of the handle, also after a reset. */
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

/* Connecting has a time-out of its own. An upload lives while the server's kernel takes bytes. */
void sl_http_request_refresh(struct sl_http_request *request, int64_t now)
{
	curl_socket_t socket = CURL_SOCKET_BAD;
	curl_off_t sent = 0;
	int queued = 0;

	if (!request->connected) {
		curl_easy_getinfo(request->transfer->easy, CURLINFO_PRETRANSFER_TIME_T, &sent);
		request->connected = sent > 0;
		request->alive = SL_MAX(request->alive, sent ? request->asked + sent * 1000 : now);
	}
	if (request->kind->look && request->kind->look(request, request->transfer->easy))
		request->alive = now;
	if (!request->kind->sends)
		return;
	curl_easy_getinfo(request->transfer->easy, CURLINFO_SIZE_UPLOAD_T, &sent);
	curl_easy_getinfo(request->transfer->easy, CURLINFO_ACTIVESOCKET, &socket);
	if (!ioctl(socket, SIOCOUTQ, &queued))
		sent -= queued;
	if (sent != request->sent)
		request->alive = now;
	request->sent = sent;
}
