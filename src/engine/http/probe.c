/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Probes
 *
 * Requests for news about an object: HEAD; or a GET of a single byte, of the first bytes for an
 * opening, or of a whole object that seems empty. A failed HEAD becomes such a GET.
 *
 * Threads: any thread starts a probe; the reactor that moves the request takes the first bytes.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "http/http_internal.h"

#define SLOW_ANSWER INT64_C(1000000000) /* ns, to open, where parts are not slower */

struct probe {
	struct sl_http_request request;
	void (*over)(struct sl_http_request *request);
	_Atomic uint32_t answered; /* 1 ends the wait of sl_http_ask() */
};

/* Returns whether the first bytes are asked for; after a failure it is a single byte. */
static bool probe_has_head(const struct sl_http_request *request)
{
	return !request->kind->bare && request->http->head_most && !request->http->confirm_empty &&
	       !request->backoffs;
}

bool sl_http_probe_asks_all(const struct sl_http_request *request)
{
	return probe_has_head(request) && request->http->head_all;
}

/* ----------------------------------------------------------------------------------- attempts */

static bool probe_is_unwanted(const struct sl_http_request *request)
{
	const struct sl_opening *opening = request->http->opening;

	return opening && atomic_load_explicit(&opening->cancelled, memory_order_relaxed);
}

static void probe_set_slow(struct sl_http_request *request)
{
	int64_t slow;

	if (!sl_http_may_hedge(request->http))
		return;
	slow = sl_http_pace_slow(&request->http->limit->pace, request->length);
	if (slow == SL_FOREVER)
		slow = SLOW_ANSWER;
	else if (!probe_has_head(request))
		slow = SL_MAX(slow, SLOW_ANSWER);
	request->slow = request->asked + slow;
}

static void head_prepare(struct sl_http_request *request)
{
	curl_easy_setopt(request->transfer->easy, CURLOPT_NOBODY, 1L);
	sl_http_transfer_expect(request->transfer, 0);
	probe_set_slow(request);
}

static void probe_prepare(struct sl_http_request *request)
{
	struct sl_http *http = request->http;

	http->head_bytes = 0;
	request->ranged = !http->confirm_empty && !sl_http_probe_asks_all(request);
	request->length = probe_has_head(request) ? http->head_most : request->ranged;
	if (probe_has_head(request))
		sl_http_transfer_expect(request->transfer, request->length);
	probe_set_slow(request);
}

static bool probe_is_late(struct sl_http_request *request, int64_t now)
{
	request->slow = probe_has_head(request) ? now + SL_PACE_LOOK_NS : SL_FOREVER;
	return sl_http_pace_take_credit(&request->http->limit->pace);
}

/* Looks at an answer's fields once. The first bytes of a small object are all of it. A longer
 * object than a list said is read as if the opening had brought nothing. */
static bool probe_accepts(struct sl_http_request *request)
{
	const struct sl_http_response *response = &request->response;

	if (!response->judged && probe_has_head(request)) {
		if (response->range.total > 0)
			request->length = SL_MIN(request->length, (uint64_t)response->range.total);
		if (request->http->head_all && response->status != 206)
			request->length = SL_MIN(request->length, response->length);
	}
	return sl_http_accepts(request);
}

/* Keeps bytes that came with the opening. Returns as kind->take(). */
static size_t probe_keep_head(struct sl_http_request *request, const char *data, size_t bytes)
{
	struct sl_http *http = request->http;

	if (bytes > request->length - request->response.got) {
		sl_http_fail_protocol(request, "more bytes than were asked for");
		return 0;
	}
	if (!request->response.got) {
		free(http->head);
		http->head = malloc(request->length);
	}
	if (!http->head) {
		sl_http_request_fail(request, -ENOMEM, "no memory for the first bytes");
		return 0;
	}
	memcpy(http->head + request->response.got, data, bytes);
	sl_http_begun(request, bytes);
	http->head_bytes = request->response.got;
	return bytes;
}

/* It is over when its fields are there, but for an error's text. */
static size_t probe_take_error(struct sl_http_request *request, const char *data, size_t bytes)
{
	return sl_http_error_take(request, data, bytes) && request->response.status >= 300 ? bytes
	                                                                                   : 0;
}

static size_t probe_take(struct sl_http_request *request, const char *data, size_t bytes)
{
	const struct sl_http_response *response = &request->response;
	bool accepted = probe_accepts(request),
	     whole = response->status == 200 && !response->partial;

	if (accepted && probe_has_head(request) &&
	    (response->partial || (whole && request->http->head_all && response->has_length &&
	                           response->length == request->length)))
		return probe_keep_head(request, data, bytes);
	/* The object has no ranges, and this is its body. The reactor looks at once. */
	if (accepted && whole && request->ranged && !(request->http->flags & SLUICE_OPEN_WRITE)) {
		request->keeps = true;
		request->transfer->reactor->look = 0;
		return CURL_WRITEFUNC_PAUSE;
	}
	return probe_take_error(request, data, bytes);
}

static enum sl_http_verdict probe_judge(struct sl_http_request *request)
{
	return probe_accepts(request) ? SL_HTTP_DONE : SL_HTTP_FAILED;
}

static void probe_end(struct sl_http_request *request)
{
	SL_CONTAINER(request, struct probe, request)->over(request);
}

#define PROBE_KIND                                                    \
	.bytes = sizeof(struct probe), .opens = true, .urgent = true, \
	.unwanted = probe_is_unwanted, .late = probe_is_late, .end = probe_end

const struct sl_http_kind sl_http_kind_probe = {PROBE_KIND, .verb = "GET", .prepare = probe_prepare,
                                                .take = probe_take, .judge = probe_judge};
const struct sl_http_kind sl_http_kind_head = {PROBE_KIND,
                                               .verb = "HEAD",
                                               .bare = true,
                                               .next = &sl_http_kind_probe,
                                               .prepare = head_prepare,
                                               .take = probe_take_error};

/* -------------------------------------------------------------------------------------- start */

struct sl_http_request *sl_http_probe_start(struct sl_http *http, const struct sl_http_kind *kind,
                                            void (*over)(struct sl_http_request *request))
{
	struct sl_http_request *request = sl_http_request_new(http, kind);

	if (!request)
		return NULL;
	SL_CONTAINER(request, struct probe, request)->over = over;
	sl_http_dispatch(request);
	return request;
}

static void probe_wake(struct sl_http_request *request)
{
	sl_flag_raise(&SL_CONTAINER(request, struct probe, request)->answered);
}

int sl_http_ask(struct sl_http *http, const struct sl_http_kind *kind, struct sl_http_request **out)
{
	struct sl_http_request *request = sl_http_probe_start(http, kind, probe_wake);

	*out = request;
	if (!request)
		return sl_fail(-ENOMEM, "no memory");
	/* Ended by probe_wake(). */
	sl_flag_await(&SL_CONTAINER(request, struct probe, request)->answered);
	return sl_fail_with(request->error, request->sentence);
}
