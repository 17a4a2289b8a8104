/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Repetitions
 *
 * Decides whether and when an attempt is made again: after a passing failure, and where the server
 * limits requests.
 *
 * Threads: the reactor that moves the request.
 */
#include <errno.h>
#include <inttypes.h>

#include "http/http_internal.h"

#define MOST_BACKOFFS_THERE 2 /* at a remembered target, before the origin is asked */
#define SAME_LIMIT_NS       INT64_C(1000000000)

/* Jitter: from half a limit up to all of it; the limit doubles with each attempt. Without the half
 * the unluckiest of many requests would have no attempt left when a restarted server is back. */
static int64_t retry_backoff_ms(struct sl_http_request *request)
{
	const struct sl_settings *settings = &request->http->core->settings;
	uint64_t limit = settings->http_backoff_ms << SL_MIN(request->backoffs, 20u);
	uint64_t random = (uint64_t)sl_now() ^ (uintptr_t)request;

	request->backoffs++;
	limit = SL_MIN(limit, settings->http_backoff_max_ms);
	return (int64_t)(limit - sl_random(&random) % (limit / 2 + 1));
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
static void retry_limit(struct sl_http_request *request, int64_t wait, int64_t now)
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

/* Until data of the file has come attempts are counted: its server may never have been there. From
 * then on only the time counts since the piece grew. A longer wait than the time left is not begun
 * if the server asks for it (Retry-After), and else shortened. */
enum sl_http_verdict sl_http_request_retry(struct sl_http_request *request, int error,
                                           const char *why)
{
	struct sl_http *http = request->http;
	const struct sl_settings *settings = &http->core->settings;
	bool begun = atomic_load_explicit(&http->begun, memory_order_relaxed) && !request->brief;
	int64_t left = (int64_t)settings->http_retry_ms, asked = request->response.retry_after;
	bool limited = request->response.status == 429 && asked > 0;
	int64_t now = sl_now(), silent, rest, wait;
	const char *stuck = sl_http_request_stuck(request);

	if (stuck)
		return request_failed(request, error, "'%s': %s%s", http->name, why, stuck);
	if (request->moved > request->reached) {
		request->reached = request->moved;
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
	/* A server may have trouble with HEAD alone: a byte is asked for next, as often. */
	if (request->kind->next && !(http->flags & SLUICE_OPEN_WRITE)) {
		request->kind = request->kind->next;
		request->verb = request->kind->verb;
	} else if (!limited && ++request->attempts >= settings->http_attempts && !begun) {
		return request_failed(request, error,
		                      "'%s': %s, after %u attempts (SLUICE_HTTP_ATTEMPTS)",
		                      http->name, why, request->attempts);
	}
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
	rest = retry_backoff_ms(request);
	wait = SL_MAX(asked, SL_MIN(rest, left));
	request->due = now + wait * 1000000;
	if (limited)
		retry_limit(request, wait, now);
	/* The origin is asked anew, and for the whole file if a remembered target fails again and
	 * again: it may lead elsewhere now. */
	if (request->located && !limited && request->backoffs >= MOST_BACKOFFS_THERE)
		sl_http_location_forget(request);
	sl_http_request_go_home(request);
	/* A wrong port is told at once, and not when all attempts are over. */
	if (error == -ECONNREFUSED && request->kind->opens && !request->kind->next &&
	    request->backoffs == 1)
		sl_log(settings, SL_LOG_ERROR, "'%s': %s; trying again, at most %" PRIu64 " times",
		       http->name, why, settings->http_attempts);
	else
		sl_log(settings, SL_LOG_DEBUG, "%s: %s; again in %" PRId64 " ms", http->name, why,
		       wait);
	return SL_HTTP_AGAIN;
}
