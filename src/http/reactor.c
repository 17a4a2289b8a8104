/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reactors of remote files
 *
 * Moves requests: each reactor drives many transfers with libcurl's multi interface and epoll, or, for a file that
 * `easy` moves, a single transfer. A reactor keeps what libcurl would make anew for each transfer: its handles, with the
 * options of the last file, and the sockets of kept connections in epoll.
 *
 * Threads: the reactors. They wake on events: a socket, a time that libcurl or a pause has set, a push to the inbox, a
 * cancel. No reactor waits for a server, so a request is started, and cancelled, whatever the others do.
 */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "http/body.h"
#include "http/call.h"
#include "http/http_internal.h"
#include "http/upload.h"

#define EVENTS_AT_ONCE  64
#define REQUEST_BYTES   ((uint64_t)16 << 10) /* the work of a request beside its bytes */
#define STREAM_BYTES    ((uint64_t)1 << 20) /* the work of an upload, or of a body without ranges */
#define LEAST_SLEEP_NS  5000                /* less is the call alone */
#define LONGEST_HOLD_NS 1000000             /* of the signals for operations that are over */

/* Of a socket, beside EPOLLIN and EPOLLOUT as epoll has them. */
enum {
	WATCH_KEPT = 0x40, /* libcurl closes it with sl_http_reactor_close_socket() */
	WATCH_IDLE = 0x80  /* no transfer has it */
};

void sl_http_reactor_wake(struct sl_http_reactor *reactor)
{
	uint64_t one = 1;

	atomic_store(&reactor->looks, true);
	/* Fails only if 2^64 - 2 wakes are pending. */
	(void)!write(reactor->wake, &one, sizeof(one));
}

static void reactor_wake_sleeper(struct sl_sleeper *sleeper)
{
	uint64_t one = 1;

	(void)!write(SL_CONTAINER(sleeper, struct sl_http_reactor, sleeper)->wake, &one,
	             sizeof(one));
}

/* ----------------------------------------------------------------------------------- libcurl */

/* Returns the state of a socket; NULL: no memory. */
static unsigned char *reactor_watch(struct sl_http_reactor *reactor, curl_socket_t socket)
{
	if (socket >= reactor->watch_count) {
		int count = SL_MAX(2 * reactor->watch_count, socket + 64);
		unsigned char *watch = realloc(reactor->watch, count);

		if (!watch)
			return NULL;
		memset(watch + reactor->watch_count, 0, count - reactor->watch_count);
		reactor->watch = watch;
		reactor->watch_count = count;
	}
	return &reactor->watch[socket];
}

/* As libcurl does it, but closed where another program is started. */
curl_socket_t sl_http_reactor_open_socket(void *argument, curlsocktype purpose,
                                          struct curl_sockaddr *to)
{
	curl_socket_t made = socket(to->family, to->socktype | SOCK_CLOEXEC, to->protocol);
	unsigned char *watch = made < 0 ? NULL : reactor_watch(argument, made);

	(void)purpose;
	if (watch)
		*watch = WATCH_KEPT;
	else if (made >= 0)
		close(made);
	return watch ? made : CURL_SOCKET_BAD;
}

int sl_http_reactor_close_socket(void *argument, curl_socket_t socket)
{
	struct sl_http_reactor *reactor = argument;

	/* A child of a fork may have it, too, and epoll would go on. */
	if (reactor->watch[socket] & (EPOLLIN | EPOLLOUT))
		epoll_ctl(reactor->epoll, EPOLL_CTL_DEL, socket, NULL);
	reactor->watch[socket] = 0;
	return close(socket);
}

/* Sets for which events epoll has the socket. */
static int reactor_set_watch(struct sl_http_reactor *reactor, curl_socket_t socket,
                             unsigned char *watch, uint32_t events)
{
	uint32_t before = *watch & (EPOLLIN | EPOLLOUT);
	struct epoll_event event = {.events = events, .data.fd = socket};

	*watch = (*watch & WATCH_KEPT) | events;
	if (events == before)
		return 0;
	return epoll_ctl(reactor->epoll,
	                 !events  ? EPOLL_CTL_DEL
	                 : before ? EPOLL_CTL_MOD
	                          : EPOLL_CTL_ADD,
	                 socket, &event);
}

static int multi_on_socket(CURL *easy, curl_socket_t socket, int what, void *argument, void *unused)
{
	struct sl_http_reactor *reactor = argument;
	unsigned char *watch = reactor_watch(reactor, socket);

	(void)easy;
	(void)unused;
	if (!watch)
		return -1;
	/* A kept connection stays in epoll for the next transfer. */
	if (what == CURL_POLL_REMOVE && *watch & WATCH_KEPT) {
		*watch |= WATCH_IDLE;
		return 0;
	}
	return reactor_set_watch(reactor, socket, watch,
	                         what == CURL_POLL_REMOVE
	                                 ? 0
	                                 : (what & CURL_POLL_IN ? EPOLLIN : 0) |
	                                           (what & CURL_POLL_OUT ? EPOLLOUT : 0));
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
	reactor->connections = 0;
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
	free(reactor->watch);
	reactor->watch = NULL;
	reactor->watch_count = 0;
}

void sl_http_reactor_free(struct sl_http_reactor *reactor)
{
	struct sl_list *link;

	while ((link = sl_list_take(&reactor->unused)))
		sl_http_transfer_free(SL_CONTAINER(link, struct sl_http_transfer, link));
	reactor_close(reactor);
	if (reactor->wake >= 0)
		close(reactor->wake);
	sl_queue_destroy(&reactor->inbox);
}

/* ----------------------------------------------------------------------------------- requests */

/* Gives the request a handle of libcurl, the last that was used: it is in the cache. Returns NULL without memory. */
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

static void reactor_take_back(struct sl_http_reactor *reactor, struct sl_http_request *request)
{
	if (request->transfer)
		sl_list_append(&reactor->unused, &request->transfer->link);
	request->transfer = NULL;
}

static void reactor_count(struct sl_http_reactor *reactor, const struct sl_http_request *request,
                          int sign)
{
	uint64_t work = REQUEST_BYTES;

	work += request->piece                        ? request->piece->length
	        : request->call                       ? request->call->length
	        : sl_http_request_has_permit(request) ? 0
	                                              : STREAM_BYTES;
	atomic_fetch_add_explicit(&reactor->load, sign, memory_order_relaxed);
	atomic_fetch_add_explicit(&reactor->work, sign * work, memory_order_relaxed);
}

static void reactor_start_moving(struct sl_http_reactor *reactor, struct sl_http_request *request);

/* Returns when the request has to be looked at, if no byte comes. */
static int64_t request_look_at(const struct sl_http_request *request)
{
	return SL_MIN(request->alive + sl_http_call_patience(request) + 1, request->slow);
}

/* Ends, repeats or delays a request after its transfer. */
static void reactor_settle(struct sl_http_reactor *reactor, struct sl_http_request *request,
                           enum sl_http_verdict verdict)
{
	if (verdict == SL_HTTP_AGAIN && request->due <= sl_now()) {
		reactor_start_moving(reactor, request);
		return;
	}
	reactor_count(reactor, request, -1);
	/* Others have the turn and the handle while it rests, or waits for its target. */
	reactor_take_back(reactor, request);
	if (verdict == SL_HTTP_AGAIN) {
		sl_list_append(&reactor->resting, &request->link);
		reactor->look = SL_MIN(reactor->look, request->due);
	}
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
	long connections = SL_MAX(reactor->share, load);
	bool has_permit = sl_http_request_has_permit(request);
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
		/* A kept connection makes place for a new connection; no transfer waits for another. */
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
	sl_list_append(has_permit ? &reactor->moving : &reactor->streams, &request->link);
	reactor->look = SL_MIN(reactor->look, request_look_at(request));
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

/* The opening has its answer. Its transfer goes on as a request for the body, which has no permit; or it ends. */
static void reactor_keep(struct sl_http_reactor *reactor, struct sl_http_request *probe)
{
	enum sl_http_verdict verdict = sl_http_request_judge(probe, CURLE_OK);
	struct sl_http_request *request = verdict == SL_HTTP_DONE ? sl_http_body_keep(probe) : NULL;

	if (request) {
		reactor_count(reactor, request, 1);
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
	struct sl_list *link, *next;

	for (link = requests->next; link != requests; link = next) {
		struct sl_http_request *request = SL_CONTAINER(link, struct sl_http_request, link);
		CURL *easy = request->transfer->easy;

		next = link->next;
		if (request->keeps) {
			reactor_keep(reactor, request);
			continue;
		}
		if (request->method == SL_HTTP_PUT
		            ? sl_http_upload_look(request->http->upload, easy)
		            : sl_http_request_has_body(request) &&
		                      sl_http_body_look(request->http->body, easy))
			request->alive = now;
		sl_http_request_refresh(request, now);
		if ((request->slow <= now && sl_http_hedge_look(request, now)) ||
		    sl_http_request_must_end(request, now))
			reactor_stop_moving(reactor, request, CURLE_ABORTED_BY_CALLBACK);
		else
			reactor->look = SL_MIN(reactor->look, request_look_at(request));
	}
}

/* Wakes requests after their pause. */
static void reactor_look_at_resting(struct sl_http_reactor *reactor, int64_t now)
{
	struct sl_list *link, *next;

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
		} else if (request->due > now) {
			reactor->look = SL_MIN(reactor->look, request->due);
		} else {
			sl_list_remove(link);
			if (sl_http_request_has_permit(request)) {
				sl_http_dispatch(request);
			} else {
				reactor_count(reactor, request, 1);
				reactor_start_moving(reactor, request);
			}
		}
	}
}

/*
 * Looks at streams, and, if it was told to or it is time, at all requests. With hundreds of them a look at each wake
 * would cost more than their transfers.
 */
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

/* Returns 0, or the error of libcurl. */
static CURLMcode reactor_handle_event(struct sl_http_reactor *reactor,
                                      const struct epoll_event *event)
{
	unsigned char *watch;
	uint64_t count;
	int running, what;

	if (event->data.fd == reactor->wake) {
		(void)!read(reactor->wake, &count, sizeof(count));
		return CURLM_OK;
	}
	watch = &reactor->watch[event->data.fd];
	/* The server has closed a kept connection, which libcurl will see when it wants it. */
	if (*watch & WATCH_IDLE) {
		reactor_set_watch(reactor, event->data.fd, watch, 0);
		return CURLM_OK;
	}
	what = (event->events & EPOLLIN ? CURL_CSELECT_IN : 0) |
	       (event->events & EPOLLOUT ? CURL_CSELECT_OUT : 0) |
	       (event->events & (EPOLLERR | EPOLLHUP) ? CURL_CSELECT_ERR : 0);
	return curl_multi_socket_action(reactor->multi, event->data.fd, what, &running);
}

static CURLMcode reactor_run_timer(struct sl_http_reactor *reactor)
{
	CURLMcode rc;
	long left_ms = -1;
	int running;

	if (reactor->timer > sl_now())
		return CURLM_OK;
	rc = curl_multi_socket_action(reactor->multi, CURL_SOCKET_TIMEOUT, 0, &running);
	/* libcurl does not repeat a time that it has told, also if we were too early for it, and
	 * does not tell that there is none any more. */
	curl_multi_timeout(reactor->multi, &left_ms);
	multi_on_timer(reactor->multi, left_ms ? left_ms : 1, reactor);
	return rc;
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
		rc = reactor_handle_event(reactor, &events[i]);
	return !rc;
}

/* Fails all transfers of the reactor, and makes a new multi handle. */
static void reactor_restart(struct sl_http_reactor *reactor)
{
	struct sl_list *link;

	while ((link = reactor->moving.next) != &reactor->moving ||
	       (link = reactor->streams.next) != &reactor->streams) {
		struct sl_http_request *request = SL_CONTAINER(link, struct sl_http_request, link);

		sl_http_request_fail(request, -EIO,
		                     "'%s': the transfers of a reactor failed (internal error)",
		                     request->http->name);
		reactor_stop_moving(reactor, request, CURLE_ABORTED_BY_CALLBACK);
	}
	sl_signals_send();
	reactor_close(reactor);
	/* Without a new handle each request fails as it starts, until a handle can be made. */
	if (!reactor_open(reactor)) {
		struct timespec moment = {0, 10000000};

		reactor_close(reactor);
		nanosleep(&moment, NULL);
	}
}

/*
 * A thread that waits for operations is woken when as many are over as are left, so that it takes several, and submits
 * others while these move. It is woken earlier by reactor_poll() if nothing is ready; and the reactor sleeps only when
 * it owes no signals.
 */
static void reactor_wake_waiting(struct sl_http_reactor *reactor)
{
	int load = atomic_load_explicit(&reactor->load, memory_order_relaxed);

	if ((int)sl_signals_owed() >= load)
		sl_signals_send();
}

static void *reactor_run(void *argument)
{
	struct sl_http_reactor *reactor = argument;
	bool sleep, alive;

	sl_signals_hold();
	for (;;) {
		reactor_start_requests(reactor);
		alive = reactor->multi && !reactor_run_timer(reactor);
		if (alive)
			reactor_finish_requests(reactor);
		reactor_wake_waiting(reactor);
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

/* ---------------------------------------------------------------------------------- start, push */

int sl_http_reactor_start(struct sl_http_reactor *reactor, unsigned index)
{
	char name[16];
	int rc;

	reactor->sleeper.wake = reactor_wake_sleeper;
	reactor->look = SL_FOREVER;
	sl_list_init(&reactor->moving);
	sl_list_init(&reactor->streams);
	sl_list_init(&reactor->resting);
	sl_list_init(&reactor->unused);
	sl_queue_init(&reactor->inbox);
	reactor->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	snprintf(name, sizeof(name), "sluice-http-%u", index % 1000);
	rc = reactor_open(reactor) ? sl_thread_start(&reactor->thread, name, reactor_run, reactor)
	                           : sl_fail(-EMFILE, "no descriptors for a thread of transfers");
	if (rc)
		sl_http_reactor_free(reactor);
	return rc;
}

void sl_http_reactor_push(struct sl_http_reactor *reactor, struct sl_http_request *request)
{
	reactor_count(reactor, request, 1);
	sl_queue_push(&reactor->inbox, &request->link, false);
}
