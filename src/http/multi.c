/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reactors of remote files
 *
 * Moves requests: each reactor drives many transfers with libcurl's multi interface and epoll, or, for a file that
 * `easy` moves, a single transfer. A request goes to the reactor with the fewest.
 *
 * Threads: the reactors. They wake on events: a socket, a time that libcurl or a pause has set, a push to the inbox, a
 * cancel. No reactor waits for a server, so a request is started, and cancelled, whatever the others do.
 */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "http/body.h"
#include "http/http_internal.h"
#include "http/upload.h"

#define EVENTS_AT_ONCE 64
#define MOST_THREADS   64 /* of easy */

struct sl_http_reactor {
	struct sl_sleeper sleeper;
	struct sl_http_engine *engine;
	struct sl_queue inbox; /* requests that it shall move at once */
	_Atomic int load;      /* of the inbox and of moving */
	int share;             /* connections that are kept */
	pthread_t thread;
	int wake;  /* eventfd that ends the reactor's sleep */
	int epoll; /* -1: it could not be made */
	CURLM *multi;
	int64_t timer;          /* when libcurl wants to be called; SL_FOREVER */
	struct sl_list moving;  /* requests with a transfer in multi */
	struct sl_list resting; /* requests that are due later, without a turn */
};

struct sl_http_multi {
	struct sl_http_engine *engine;
	unsigned parts;         /* reactors that there may be */
	struct sl_mutex mutex;  /* held while a reactor is started */
	_Atomic unsigned count; /* that there are; grows under mutex */
	struct sl_http_reactor reactors[];
};

void sl_http_reactor_wake(struct sl_http_reactor *reactor)
{
	uint64_t one = 1;

	/* Fails only if 2^64 - 2 wakes are pending. */
	(void)!write(reactor->wake, &one, sizeof(one));
}

static void reactor_wake_sleeper(struct sl_sleeper *sleeper)
{
	sl_http_reactor_wake(SL_CONTAINER(sleeper, struct sl_http_reactor, sleeper));
}

/* ----------------------------------------------------------------------------------- libcurl */

/* `known` is the value of curl_multi_assign(): whether epoll has the socket. */
static int multi_on_socket(CURL *easy, curl_socket_t socket, int what, void *argument, void *known)
{
	struct sl_http_reactor *reactor = argument;
	struct epoll_event event = {.data.fd = socket};

	(void)easy;
	if (what == CURL_POLL_REMOVE) {
		epoll_ctl(reactor->epoll, EPOLL_CTL_DEL, socket, NULL);
		return 0;
	}
	event.events = (what & CURL_POLL_IN ? EPOLLIN : 0) | (what & CURL_POLL_OUT ? EPOLLOUT : 0);
	if (epoll_ctl(reactor->epoll, known ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, socket, &event))
		return -1;
	if (!known)
		curl_multi_assign(reactor->multi, socket, reactor);
	return 0;
}

static int multi_on_timer(CURLM *multi, long timeout_ms, void *argument)
{
	struct sl_http_reactor *reactor = argument;

	(void)multi;
	reactor->timer = timeout_ms < 0 ? SL_FOREVER : sl_now() + timeout_ms * INT64_C(1000000);
	return 0;
}

static bool reactor_open(struct sl_http_reactor *reactor)
{
	struct epoll_event event = {.events = EPOLLIN, .data.fd = reactor->wake};

	reactor->timer = SL_FOREVER;
	reactor->epoll = epoll_create1(EPOLL_CLOEXEC);
	reactor->multi = curl_multi_init();
	if (reactor->epoll < 0 || !reactor->multi ||
	    epoll_ctl(reactor->epoll, EPOLL_CTL_ADD, reactor->wake, &event))
		return false;
	curl_multi_setopt(reactor->multi, CURLMOPT_SOCKETFUNCTION, multi_on_socket);
	curl_multi_setopt(reactor->multi, CURLMOPT_SOCKETDATA, reactor);
	curl_multi_setopt(reactor->multi, CURLMOPT_TIMERFUNCTION, multi_on_timer);
	curl_multi_setopt(reactor->multi, CURLMOPT_TIMERDATA, reactor);
	curl_multi_setopt(reactor->multi, CURLMOPT_MAXCONNECTS, (long)reactor->share);
	return true;
}

static void reactor_close(struct sl_http_reactor *reactor)
{
	curl_multi_cleanup(reactor->multi);
	if (reactor->epoll >= 0)
		close(reactor->epoll);
	reactor->multi = NULL;
	reactor->epoll = -1;
}

static void reactor_free(struct sl_http_reactor *reactor)
{
	reactor_close(reactor);
	if (reactor->wake >= 0)
		close(reactor->wake);
	sl_queue_destroy(&reactor->inbox);
}

/* ----------------------------------------------------------------------------------- requests */

static void reactor_start_moving(struct sl_http_reactor *reactor, struct sl_http_request *request);

/* Ends, repeats or delays a request whose transfer is over. */
static void reactor_settle(struct sl_http_reactor *reactor, struct sl_http_request *request,
                           enum sl_http_verdict verdict)
{
	if (verdict == SL_HTTP_AGAIN && request->due <= sl_now()) {
		reactor_start_moving(reactor, request);
		return;
	}
	atomic_fetch_sub_explicit(&reactor->load, 1, memory_order_relaxed);
	/* Others have the turn and the handle while it rests, or waits for its target. */
	if (verdict == SL_HTTP_AGAIN || verdict == SL_HTTP_ANEW)
		sl_http_request_give_back(request);
	if (verdict == SL_HTTP_AGAIN)
		sl_list_append(&reactor->resting, &request->link);
	if (sl_http_request_has_permit(request))
		sl_http_permit_give(request);
	if (verdict == SL_HTTP_ANEW)
		sl_http_dispatch(request);
	else if (verdict != SL_HTTP_AGAIN)
		sl_http_request_end(request);
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
	CURLMcode rc = CURLM_INTERNAL_ERROR;

	if (sl_http_request_is_unwanted(request))
		sl_http_request_fail(request, -ECANCELED, "cancelled");
	if (!request->error && sl_http_request_must_rest(request)) {
		reactor_settle(reactor, request, SL_HTTP_AGAIN);
		return;
	}
	if (request->error || sl_http_request_prepare(request)) {
		reactor_settle(reactor, request, SL_HTTP_FAILED);
		return;
	}
	if (reactor->multi) {
		/* A kept connection makes place for a new connection; no transfer waits for another. */
		curl_multi_setopt(reactor->multi, CURLMOPT_MAX_TOTAL_CONNECTIONS,
		                  (long)SL_MAX(reactor->share, load));
		rc = curl_multi_add_handle(reactor->multi, request->transfer->easy);
	}
	if (rc) {
		sl_http_request_fail(request, -EIO, "'%s': libcurl: %s", request->http->name,
		                     curl_multi_strerror(rc));
		reactor_settle(reactor, request, SL_HTTP_FAILED);
		return;
	}
	sl_list_append(&reactor->moving, &request->link);
}

static void reactor_start_requests(struct sl_http_reactor *reactor)
{
	struct sl_list taken;
	struct sl_list *link;

	sl_list_init(&taken);
	sl_queue_take(&reactor->inbox, &taken, UINT_MAX);
	while ((link = sl_list_take(&taken)))
		reactor_start_moving(reactor, SL_CONTAINER(link, struct sl_http_request, link));
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

/* Ends cancelled and stalled requests, and wakes requests whose pause is over. */
static void reactor_look_around(struct sl_http_reactor *reactor)
{
	int64_t now = sl_now();
	struct sl_list *link, *next;

	sl_http_end_cancelled(reactor->engine);
	for (link = reactor->moving.next; link != &reactor->moving; link = next) {
		struct sl_http_request *request = SL_CONTAINER(link, struct sl_http_request, link);

		next = link->next;
		if (request->method == SL_HTTP_PUT &&
		    sl_http_upload_look(request->http->upload, request->transfer->easy))
			request->alive = now;
		if (sl_http_request_has_body(request))
			sl_http_body_look(request->http->body, request->transfer->easy);
		sl_http_request_refresh(request, now);
		if (request->slow <= now) {
			request->slow = SL_FOREVER;
			sl_http_hedge_start(request);
		}
		if (sl_http_request_must_end(request, now))
			reactor_stop_moving(reactor, request, CURLE_ABORTED_BY_CALLBACK);
	}
	for (link = reactor->resting.next; link != &reactor->resting; link = next) {
		struct sl_http_request *request = SL_CONTAINER(link, struct sl_http_request, link);

		next = link->next;
		if (request->method == SL_HTTP_PUT)
			sl_http_upload_look(request->http->upload, NULL);
		else if (sl_http_request_has_body(request))
			sl_http_body_look(request->http->body, NULL);
		if (sl_http_request_is_unwanted(request)) {
			sl_list_remove(link);
			sl_http_request_fail(request, -ECANCELED, "cancelled");
			sl_http_request_end(request);
		} else if (request->due <= now) {
			sl_list_remove(link);
			if (sl_http_request_has_permit(request)) {
				sl_http_dispatch(request);
			} else {
				atomic_fetch_add_explicit(&reactor->load, 1, memory_order_relaxed);
				reactor_start_moving(reactor, request);
			}
		}
	}
}

/* When the reactor has to look, if nothing happens. */
static int64_t reactor_next_look(const struct sl_http_reactor *reactor)
{
	int64_t at = reactor->timer;

	sl_list_each (link, &reactor->moving) {
		const struct sl_http_request *request =
			SL_CONTAINER(link, struct sl_http_request, link);
		int64_t stall = (int64_t)request->http->core->settings.http_stall_ms * 1000000;

		at = SL_MIN(at, SL_MIN(request->alive + stall + 1, request->slow));
	}
	sl_list_each (link, &reactor->resting)
		at = SL_MIN(at, SL_CONTAINER(link, struct sl_http_request, link)->due);
	return at;
}

/* --------------------------------------------------------------------------------------- loop */

static int reactor_timeout(int64_t at)
{
	int64_t left;

	if (at == SL_FOREVER)
		return -1;
	left = at - sl_now();
	return left <= 0 ? 0 : (int)SL_MIN((left + 999999) / 1000000, 3600000);
}

/* Returns 0, or the error of libcurl. */
static CURLMcode reactor_handle_event(struct sl_http_reactor *reactor,
                                      const struct epoll_event *event)
{
	uint64_t count;
	int running, what;

	if (event->data.fd == reactor->wake) {
		(void)!read(reactor->wake, &count, sizeof(count));
		return CURLM_OK;
	}
	what = (event->events & EPOLLIN ? CURL_CSELECT_IN : 0) |
	       (event->events & EPOLLOUT ? CURL_CSELECT_OUT : 0) |
	       (event->events & (EPOLLERR | EPOLLHUP) ? CURL_CSELECT_ERR : 0);
	return curl_multi_socket_action(reactor->multi, event->data.fd, what, &running);
}

/* Sleeps until something happens, and tells libcurl. False: it cannot go on. */
static bool reactor_poll(struct sl_http_reactor *reactor, bool sleep)
{
	struct epoll_event events[EVENTS_AT_ONCE];
	CURLMcode rc = CURLM_OK;
	int count, running;

	count = epoll_wait(reactor->epoll, events, EVENTS_AT_ONCE,
	                   sleep ? reactor_timeout(reactor_next_look(reactor)) : 0);
	if (count < 0 && errno != EINTR)
		return false;
	for (int i = 0; i < count && !rc; i++)
		rc = reactor_handle_event(reactor, &events[i]);
	if (!rc && reactor->timer <= sl_now()) {
		long left_ms = -1;

		rc = curl_multi_socket_action(reactor->multi, CURL_SOCKET_TIMEOUT, 0, &running);
		/* libcurl does not repeat a time that it has told, also if we were too early for it, and
		 * does not tell that there is none any more. */
		curl_multi_timeout(reactor->multi, &left_ms);
		multi_on_timer(reactor->multi, left_ms ? left_ms : 1, reactor);
	}
	return !rc;
}

/* Fails all transfers of the reactor, and makes a new multi handle. */
static void reactor_restart(struct sl_http_reactor *reactor)
{
	struct sl_list *link;

	while ((link = reactor->moving.next) != &reactor->moving) {
		struct sl_http_request *request = SL_CONTAINER(link, struct sl_http_request, link);

		sl_http_request_fail(request, -EIO,
		                     "'%s': the transfers of a reactor failed (internal error)",
		                     request->http->name);
		reactor_stop_moving(reactor, request, CURLE_ABORTED_BY_CALLBACK);
	}
	reactor_close(reactor);
	/* Without a new handle each request fails as it starts, until a handle can be made. */
	if (!reactor_open(reactor)) {
		struct timespec moment = {0, 10000000};

		reactor_close(reactor);
		nanosleep(&moment, NULL);
	}
}

static void *reactor_run(void *argument)
{
	struct sl_http_reactor *reactor = argument;
	bool sleep, alive;

	for (;;) {
		reactor_start_requests(reactor);
		sleep = sl_queue_sleep(&reactor->inbox, &reactor->sleeper);
		if (!sleep && sl_queue_closed(&reactor->inbox))
			break;
		alive = reactor->multi && reactor_poll(reactor, sleep);
		sl_queue_awake(&reactor->inbox, &reactor->sleeper);
		if (!alive)
			reactor_restart(reactor);
		else
			reactor_finish_requests(reactor);
		reactor_look_around(reactor);
	}
	return NULL;
}

/* ---------------------------------------------------------------------------------- start, stop */

static int reactor_start(struct sl_http_multi *multi, unsigned index)
{
	struct sl_http_reactor *reactor = &multi->reactors[index];
	char name[16];
	int rc;

	reactor->engine = multi->engine;
	reactor->sleeper.wake = reactor_wake_sleeper;
	sl_list_init(&reactor->moving);
	sl_list_init(&reactor->resting);
	sl_queue_init(&reactor->inbox);
	reactor->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	snprintf(name, sizeof(name), "sluice-http-%u", index % 1000);
	rc = reactor_open(reactor) ? sl_thread_start(&reactor->thread, name, reactor_run, reactor)
	                           : sl_fail(-EMFILE, "no descriptors for a thread of transfers");
	if (rc)
		reactor_free(reactor);
	return rc;
}

/* Starts reactor number `count`, unless another thread has. Returns 0, or why it cannot. */
static int multi_grow(struct sl_http_multi *multi, unsigned count)
{
	int rc = 0;

	sl_mutex_lock(&multi->mutex);
	if (multi->count == count && !(rc = reactor_start(multi, count)))
		multi->count++;
	sl_mutex_unlock(&multi->mutex);
	return rc;
}

unsigned sl_http_multi_most(const struct sl_http_engine *engine, unsigned remote)
{
	return remote == SL_REMOTE_EASY ? SL_MIN(engine->limits.most, MOST_THREADS)
	                                : engine->limits.most;
}

int sl_http_multi_start(struct sl_http_engine *engine, unsigned remote, struct sl_http_multi **out)
{
	const struct sl_settings *settings = &engine->core->settings;
	unsigned connections = sl_http_multi_most(engine, remote);
	unsigned parts = remote == SL_REMOTE_EASY
	                         ? connections
	                         : SL_MIN(connections, (unsigned)settings->http_reactors);
	struct sl_http_multi *multi;
	int rc;

	multi = calloc(1, sizeof(*multi) + parts * sizeof(multi->reactors[0]));
	if (!multi)
		return sl_fail(-ENOMEM, "no memory for the reactors");
	multi->engine = engine;
	multi->parts = parts;
	/* Together they keep as many as there may be. */
	for (unsigned i = 0; i < parts; i++)
		multi->reactors[i].share = (int)(connections / parts + (i < connections % parts));
	sl_mutex_init(&multi->mutex);
	rc = multi_grow(multi, 0);
	if (rc)
		sl_http_multi_free(multi);
	else
		*out = multi;
	return rc;
}

void sl_http_multi_stop(struct sl_http_multi *multi)
{
	if (!multi)
		return;
	for (unsigned i = 0; i < multi->count; i++)
		sl_queue_close(&multi->reactors[i].inbox);
	for (unsigned i = 0; i < multi->count; i++)
		pthread_join(multi->reactors[i].thread, NULL);
}

void sl_http_multi_free(struct sl_http_multi *multi)
{
	if (!multi)
		return;
	for (unsigned i = 0; i < multi->count; i++)
		reactor_free(&multi->reactors[i]);
	sl_mutex_destroy(&multi->mutex);
	free(multi);
}

/* Returns the reactor with the most connections to spare. Starts another if each has requests to move. */
static struct sl_http_reactor *multi_choose_reactor(struct sl_http_multi *multi)
{
	struct sl_http_reactor *chosen = multi->reactors;
	unsigned count;
	int most;

	do {
		most = INT_MIN;
		count = atomic_load(&multi->count);
		for (unsigned i = 0; i < count; i++) {
			struct sl_http_reactor *reactor = &multi->reactors[i];
			int room = reactor->share -
			           atomic_load_explicit(&reactor->load, memory_order_relaxed);

			if (room > most) {
				chosen = reactor;
				most = room;
			}
		}
	} while (most < chosen->share && count < multi->parts && !multi_grow(multi, count));
	return chosen;
}

struct sl_http_reactor *sl_http_multi_submit(struct sl_http_multi *multi,
                                             struct sl_http_request *request)
{
	struct sl_http_reactor *reactor = multi_choose_reactor(multi);

	atomic_fetch_add_explicit(&reactor->load, 1, memory_order_relaxed);
	sl_queue_push(&reactor->inbox, &request->link, false);
	return reactor;
}

void sl_http_multi_wake(struct sl_http_multi *multi)
{
	for (unsigned i = 0; i < multi->count; i++)
		sl_http_reactor_wake(&multi->reactors[i]);
}
