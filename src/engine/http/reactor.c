/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reactors of remote files
 *
 * Moves requests: each reactor drives many transfers with libcurl's multi interface and epoll, or,
 * with `easy`, a single transfer. A reactor keeps what libcurl would make anew for each transfer:
 * handles, with the last file's options, and the sockets of kept connections in epoll (transfer.c).
 *
 * Threads: the reactors. They wake on events: a socket, a time set by libcurl or a pause, a push to
 * the inbox, a cancel. No reactor waits for a server, so a request is started, and cancelled,
 * whatever the others do.
 */
#include <errno.h>
#include <limits.h>
#include <sys/epoll.h>
#include <time.h>

#include "http/http_internal.h"

#define EVENTS_AT_ONCE  64
#define LEAST_SLEEP_NS  5000    /* less is the call alone */
#define LONGEST_HOLD_NS 1000000 /* of signals for ended operations */

/* ----------------------------------------------------------------------------------- requests */

/* Lends the request the last handle in use, which is in the cache. Returns NULL without memory. */
static struct sl_http_transfer *reactor_lend(struct sl_http_reactor *reactor,
                                             struct sl_http_request *request)
{
	struct sl_list *link = reactor->unused.previous;

	if (request->transfer)
		return request->transfer;
	if (link != &reactor->unused) {
		sl_list_remove(link);
		request->transfer = SL_CONTAINER(link, struct sl_http_transfer, link);
	} else {
		request->transfer = sl_http_transfer_new(reactor);
	}
	return request->transfer;
}

static void reactor_start_moving(struct sl_http_reactor *reactor, struct sl_http_request *request);

/* Returns when the request has to be looked at, if no byte comes. */
static int64_t request_look_at(const struct sl_http_request *request)
{
	return SL_MIN(request->alive + request->patience + 1, request->slow);
}

/* The request is over, and has no permit. */
static void reactor_end(struct sl_http_request *request)
{
	if (request->asks)
		sl_http_located(request, false);
	request->kind->end(request);
}

/* Ends, repeats or delays a request after its transfer. */
static void reactor_settle(struct sl_http_reactor *reactor, struct sl_http_request *request,
                           enum sl_http_verdict verdict)
{
	if (verdict == SL_HTTP_AGAIN && request->due <= sl_now()) {
		reactor_start_moving(reactor, request);
		return;
	}
	sl_http_reactor_count(reactor, request, -1);
	/* Others have the turn and the handle while it rests, or waits for its target. */
	if (request->transfer)
		sl_list_append(&reactor->unused, &request->transfer->link);
	request->transfer = NULL;
	if (verdict == SL_HTTP_AGAIN) {
		sl_list_append(&reactor->resting, &request->link);
		reactor->look = SL_MIN(reactor->look, request->due);
	}
	if (!request->kind->stream)
		sl_http_permit_give(request);
	if (verdict == SL_HTTP_ANEW)
		sl_http_dispatch(request);
	else if (verdict != SL_HTTP_AGAIN)
		reactor_end(request);
}

/* The transfer is taken out of multi, whatever state it is in. */
static void reactor_stop_moving(struct sl_http_reactor *reactor, struct sl_http_request *request,
                                CURLcode code)
{
	curl_multi_remove_handle(reactor->multi, request->transfer->easy);
	sl_list_remove(&request->link);
	reactor_settle(reactor, request, sl_http_request_judge(request, code));
}

static void reactor_start_moving(struct sl_http_reactor *reactor, struct sl_http_request *request)
{
	int load = atomic_load_explicit(&reactor->load, memory_order_relaxed);
	long connections = SL_MAX(reactor->share, load);
	CURLMcode rc = CURLM_INTERNAL_ERROR;

	if (sl_http_request_is_unwanted(request))
		sl_http_request_fail(request, -ECANCELED, "cancelled");
	if (!request->error && sl_http_request_must_rest(request)) {
		reactor_settle(reactor, request, SL_HTTP_AGAIN);
		return;
	}
	if (!request->error && !reactor_lend(reactor, request))
		sl_http_request_fail(request, -ENOMEM, "no memory for a transfer");
	if (request->error || sl_http_request_prepare(request)) {
		reactor_settle(reactor, request, SL_HTTP_FAILED);
		return;
	}
	if (reactor->multi) {
		/* A kept connection makes place for a new one; no transfer waits for another. */
		if (connections != reactor->connections)
			curl_multi_setopt(reactor->multi, CURLMOPT_MAX_TOTAL_CONNECTIONS,
			                  connections);
		reactor->connections = connections;
		rc = curl_multi_add_handle(reactor->multi, request->transfer->easy);
	}
	if (rc) {
		sl_http_request_fail(request, -EIO, "'%s': libcurl: %s", request->http->name,
		                     curl_multi_strerror(rc));
		reactor_settle(reactor, request, SL_HTTP_FAILED);
		return;
	}
	sl_list_append(request->kind->stream ? &reactor->streams : &reactor->moving,
	               &request->link);
	reactor->look = SL_MIN(reactor->look, request_look_at(request));
}

static void reactor_start_requests(struct sl_http_reactor *reactor)
{
	struct sl_list taken = SL_LIST_INIT(taken);

	sl_queue_take(&reactor->inbox, &taken, UINT_MAX);
	sl_list_each_of (request, &taken, struct sl_http_request, link)
		reactor_start_moving(reactor, request);
}

static void reactor_finish_requests(struct sl_http_reactor *reactor)
{
	CURLMsg *message;
	int left;

	while ((message = curl_multi_info_read(reactor->multi, &left))) {
		struct sl_http_request *request;
		CURLcode code = message->data.result;

		if (message->msg != CURLMSG_DONE)
			continue;
		curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, (char **)&request);
		reactor_stop_moving(reactor, request, code);
	}
}

/* The opening has its answer. The transfer goes on for the body, without a permit; or it ends. */
static void reactor_keep(struct sl_http_reactor *reactor, struct sl_http_request *probe)
{
	enum sl_http_verdict verdict = sl_http_request_judge(probe, CURLE_OK);
	struct sl_http_request *request = verdict == SL_HTTP_DONE ? sl_http_body_keep(probe) : NULL;

	if (request) {
		sl_http_reactor_count(reactor, request, 1);
		sl_list_append(&reactor->streams, &request->link);
	} else {
		curl_multi_remove_handle(reactor->multi, probe->transfer->easy);
	}
	sl_list_remove(&probe->link);
	reactor_settle(reactor, probe, verdict);
}

/* Ends cancelled and stalled requests of a list. */
static void reactor_look_at(struct sl_http_reactor *reactor, struct sl_list *requests, int64_t now)
{
	sl_list_each_of (request, requests, struct sl_http_request, link) {
		if (request->keeps) {
			reactor_keep(reactor, request);
			continue;
		}
		sl_http_request_refresh(request, now);
		/* Late, silent for too long, or unwanted. */
		if ((request->slow <= now && request->kind->late(request, now)) ||
		    now - request->alive > request->patience ||
		    sl_http_request_is_unwanted(request))
			reactor_stop_moving(reactor, request, CURLE_ABORTED_BY_CALLBACK);
		else
			reactor->look = SL_MIN(reactor->look, request_look_at(request));
	}
}

static void reactor_look_at_resting(struct sl_http_reactor *reactor, int64_t now)
{
	sl_list_each_of (request, &reactor->resting, struct sl_http_request, link) {
		if (request->kind->look)
			request->kind->look(request, NULL);
		if (sl_http_request_is_unwanted(request)) {
			sl_list_remove(&request->link);
			sl_http_request_fail(request, -ECANCELED, "cancelled");
			reactor_end(request);
		} else if (request->due > now) {
			reactor->look = SL_MIN(reactor->look, request->due);
		} else {
			sl_list_remove(&request->link);
			if (!request->kind->stream) {
				sl_http_dispatch(request);
			} else {
				sl_http_reactor_count(reactor, request, 1);
				reactor_start_moving(reactor, request);
			}
		}
	}
}

/* Looks at streams, and, if it was told to or it is time, at all requests. With hundreds of them a
 * look at each wake would cost more than their transfers. */
static void reactor_look_around(struct sl_http_reactor *reactor)
{
	int64_t now = sl_now();
	bool all = atomic_load(&reactor->looks) || now >= reactor->look;

	if (all) {
		atomic_store(&reactor->looks, false);
		reactor->look = SL_FOREVER;
		sl_http_end_cancelled(reactor->engine);
		reactor_look_at(reactor, &reactor->moving, now);
		reactor_look_at_resting(reactor, now);
	}
	reactor_look_at(reactor, &reactor->streams, now);
}

/* --------------------------------------------------------------------------------------- loop */

/* Returns for how many milliseconds the reactor may sleep, -1: without end. */
static int reactor_timeout(const struct sl_http_reactor *reactor, int64_t now)
{
	bool has = !sl_list_empty(&reactor->moving) || !sl_list_empty(&reactor->streams) ||
	           !sl_list_empty(&reactor->resting);
	int64_t at = has ? SL_MIN(reactor->timer, reactor->look) : reactor->timer, left;

	if (at == SL_FOREVER)
		return -1;
	left = at - now;
	return left <= 0 ? 0 : (int)SL_MIN((left + 999999) / 1000000, 3600000);
}

/* Sleeps until something happens, and tells libcurl. Returns false if it cannot go on. */
static bool reactor_poll(struct sl_http_reactor *reactor, bool sleep)
{
	unsigned busy = atomic_load_explicit(&reactor->busy, memory_order_relaxed);
	int64_t begun = sl_now(), now = begun;
	struct epoll_event events[EVENTS_AT_ONCE];
	CURLMcode rc = CURLM_OK;
	int count;

	if (sleep)
		atomic_store_explicit(&reactor->busy, 0, memory_order_relaxed);
	count = epoll_wait(reactor->epoll, events, EVENTS_AT_ONCE,
	                   sleep ? reactor_timeout(reactor, begun) : 0);
	if (count < 0 && errno != EINTR)
		return false;
	if (sleep)
		now = sl_now();
	busy = now - begun > LEAST_SLEEP_NS ? 0 : busy + 1;
	atomic_store_explicit(&reactor->busy, busy, memory_order_relaxed);
	if (count <= 0 || now - reactor->calm > LONGEST_HOLD_NS)
		sl_signals_send();
	if (!sl_signals_owed())
		reactor->calm = now;
	for (int i = 0; i < count && !rc; i++)
		rc = sl_http_reactor_handle(reactor, &events[i]);
	return !rc;
}

/* Fails all transfers of the reactor, and makes a new multi handle. */
static void reactor_restart(struct sl_http_reactor *reactor)
{
	struct sl_http_request *request;

	while ((request = sl_list_first(&reactor->moving, struct sl_http_request, link)) ||
	       (request = sl_list_first(&reactor->streams, struct sl_http_request, link))) {
		sl_http_request_fail(request, -EIO,
		                     "'%s': the transfers of a reactor failed (internal error)",
		                     request->http->name);
		reactor_stop_moving(reactor, request, CURLE_ABORTED_BY_CALLBACK);
	}
	sl_signals_send();
	sl_http_reactor_close(reactor);
	/* Without a new handle each request fails as it starts, until a handle can be made. */
	if (!sl_http_reactor_open(reactor)) {
		struct timespec moment = {0, 10000000};

		sl_http_reactor_close(reactor);
		nanosleep(&moment, NULL);
	}
}

void *sl_http_reactor_run(void *argument)
{
	struct sl_http_reactor *reactor = argument;
	bool sleep, alive;
	int load;

	sl_signals_hold();
	for (;;) {
		reactor_start_requests(reactor);
		alive = reactor->multi && !sl_http_reactor_run_timer(reactor);
		if (alive)
			reactor_finish_requests(reactor);
		/* A thread in wait for operations is woken when as many are over as are left: so it
		 * takes several, and submits others while these move. reactor_poll() wakes it
		 * earlier if nothing is ready; the reactor sleeps only when it owes no signals. */
		load = atomic_load_explicit(&reactor->load, memory_order_relaxed);
		if ((int)sl_signals_owed() >= load)
			sl_signals_send();
		sleep = !sl_signals_owed() && sl_queue_sleep(&reactor->inbox, &reactor->sleeper);
		if (!sleep && sl_queue_closed(&reactor->inbox))
			break;
		alive = alive && reactor_poll(reactor, sleep);
		sl_queue_awake(&reactor->inbox, &reactor->sleeper);
		if (!alive)
			reactor_restart(reactor);
		else
			reactor_finish_requests(reactor);
		reactor_look_around(reactor);
	}
	sl_signals_send();
	return NULL;
}
