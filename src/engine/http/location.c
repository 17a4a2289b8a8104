/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Locations
 *
 * Remembers where a GET has found the object after a redirect: other requests ask there. When this
 * target refuses, a single request asks the origin again; the others wait for its end.
 *
 * Threads: any. Each file has a mutex; no thread waits, only requests do.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "http/http_internal.h"

#define MOST_MISLED 4 /* then the request asks the origin itself: the target may serve once */

/* No other thread has the location yet. */
void sl_http_location_init(struct sl_http_location *location) SL_UNCHECKED
{
	sl_mutex_init(&location->mutex);
	sl_list_init(&location->locked.waiting);
}

/* No other thread has the location any more, and no request waits. */
void sl_http_location_destroy(struct sl_http_location *location) SL_UNCHECKED
{
	free(location->locked.url);
	sl_mutex_destroy(&location->mutex);
}

void sl_http_request_go_home(struct sl_http_request *request)
{
	free(request->url);
	request->url = NULL;
	request->hops = 0;
	request->located = 0;
}

void sl_http_location_redirected(struct sl_http_request *request)
{
	struct sl_http_location *location = &request->http->location;

	atomic_store_explicit(&location->redirects, true, memory_order_relaxed);
	/* HEAD may be redirected elsewhere, and other requests are alone. */
	if (!request->kind->piece || request->asks)
		return;
	/* The file's first redirect: new requests wait for this answer. */
	sl_mutex_lock(&location->mutex);
	if (!location->locked.url && !location->locked.asked)
		location->locked.asked = request->asks = true;
	sl_mutex_unlock(&location->mutex);
}

bool sl_http_location_enter(struct sl_http_request *request)
{
	struct sl_http_location *location = &request->http->location;
	bool enters = true;

	if (!request->kind->piece || request->asks || request->misled >= MOST_MISLED)
		return true;
	sl_mutex_lock(&location->mutex);
	if (location->locked.url) {
		sl_http_request_go_home(request);
		request->url = strdup(location->locked.url);
		request->located = request->url ? location->locked.version : 0;
	} else if (!location->locked.asked) {
		location->locked.asked = request->asks = true;
	} else if (request->kind->urgent) {
		/* The second GET of a part does not wait: the first may be asking. */
		request->error = -EAGAIN;
	} else if (!sl_http_request_is_unwanted(request)) {
		/* If it is cancelled from now on, sl_http_location_cancel() finds it. */
		sl_list_append(&location->locked.waiting, &request->link);
		enters = false;
	}
	sl_mutex_unlock(&location->mutex);
	return enters;
}

/* Takes the waiting requests if this request asks, which it does no more. */
static void location_take_waiting_locked(struct sl_http_location *location,
                                         struct sl_http_request *request, struct sl_list *out)
	SL_REQUIRES(&location->mutex)
{
	if (!request->asks)
		return;
	location->locked.asked = request->asks = false;
	sl_list_take_all(&location->locked.waiting, out);
}

void sl_http_location_found(struct sl_http_request *request, struct sl_list *out)
{
	struct sl_http_location *location = &request->http->location;

	if (!request->kind->opens && !request->kind->piece)
		return;
	sl_mutex_lock(&location->mutex);
	if (!request->hops) {
		/* The origin redirects no more. */
		atomic_store_explicit(&location->redirects, false, memory_order_relaxed);
	} else if (request->asks || !location->locked.url ||
	           request->located == location->locked.version) {
		free(location->locked.url);
		location->locked.url = strdup(request->url);
		location->locked.version++;
	}
	location_take_waiting_locked(location, request, out);
	sl_mutex_unlock(&location->mutex);
}

void sl_http_location_forget(struct sl_http_request *request)
{
	struct sl_http_location *location = &request->http->location;

	sl_mutex_lock(&location->mutex);
	if (location->locked.version == request->located) {
		free(location->locked.url);
		location->locked.url = NULL;
	}
	sl_mutex_unlock(&location->mutex);
	request->misled++;
	sl_http_request_go_home(request);
}

void sl_http_location_leave(struct sl_http_request *request, struct sl_list *out)
{
	struct sl_http_location *location = &request->http->location;

	sl_mutex_lock(&location->mutex);
	location_take_waiting_locked(location, request, out);
	sl_mutex_unlock(&location->mutex);
}

void sl_http_location_cancel(struct sl_http *http, struct sl_list *out)
{
	struct sl_http_location *location = &http->location;

	sl_mutex_lock(&location->mutex);
	sl_list_each_of (request, &location->locked.waiting, struct sl_http_request, link)
		if (sl_http_request_is_unwanted(request))
			sl_list_move(&request->link, out);
	sl_mutex_unlock(&location->mutex);
}
