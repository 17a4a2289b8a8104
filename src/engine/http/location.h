/* SPDX-License-Identifier: Apache-2.0 */
/* Where a GET has found an open file's object. */
#ifndef SL_HTTP_LOCATION_H
#define SL_HTTP_LOCATION_H

#include "core/core.h"

struct sl_http;
struct sl_http_request;

/* Where a file's object was found: the origin redirected a GET to this target. Later parts ask the
 * target. While it is unknown, or after it refused, one request asks the origin, and others
 * wait. */
struct sl_http_location {
	_Atomic bool redirects; /* the origin has redirected a request; without that none enters */
	struct sl_mutex mutex;
	struct {
		char *url;              /* NULL: unknown */
		unsigned version;       /* grows with each url */
		bool asked;             /* a request asks the origin; it has `asks` set */
		struct sl_list waiting; /* requests without a permit, for its answer */
	} locked SL_GUARDED_BY(&mutex);
};
void sl_http_location_init(struct sl_http_location *location);
void sl_http_location_destroy(struct sl_http_location *location);

/* Gives a request its target, or makes it ask the origin. Returns false if it waits for another
 * request's answer: then it is dispatched, or ended with the same error, or by a cancel. Before the
 * request takes a permit. */
bool sl_http_location_enter(struct sl_http_request *request);
/* An asking or redirected request got an acceptable response: the target is known. Appends the
 * waiting requests, which go there. */
void sl_http_location_found(struct sl_http_request *request, struct sl_list *out);
/* Forgets the request's target, unless there is another by now. */
void sl_http_location_forget(struct sl_http_request *request);
/* An asking request is over. */
void sl_http_location_leave(struct sl_http_request *request, struct sl_list *out);
/* A piece was cancelled: its request waits no more. Any thread, no lock held. */
void sl_http_location_cancel(struct sl_http *http, struct sl_list *out);
/* The origin has redirected a request: requests that come now may wait for its answer. */
void sl_http_location_redirected(struct sl_http_request *request);
/* The next attempt asks the origin. */
void sl_http_request_go_home(struct sl_http_request *request);

#endif
