/* SPDX-License-Identifier: Apache-2.0 */
/* Redirects: following them, and the place where a GET has found the object of an open file. */
#ifndef SL_HTTP_LOCATION_H
#define SL_HTTP_LOCATION_H

#include "core/core.h"

struct sl_http;
struct sl_http_request;

/*
 * Where the object of a file was found: the target to which the origin redirected a GET. Later parts ask the target.
 * While it is unknown, or after it refused, a single request asks the origin, and the others wait.
 */
struct sl_http_location {
	_Atomic bool redirects; /* the origin has redirected a request; without that none enters */
	struct sl_mutex mutex;
	struct {
		char *url;              /* NULL: unknown */
		unsigned version;       /* of url; grows with each url */
		bool asked;             /* a request asks the origin; it has `asks` set */
		struct sl_list waiting; /* requests that wait for its answer, without a permit */
	} locked SL_GUARDED_BY(&mutex);
};
void sl_http_location_init(struct sl_http_location *location);
void sl_http_location_destroy(struct sl_http_location *location);

/*
 * Gives a request its target, or makes it ask the origin. Returns false if it waits for the answer to another request:
 * it is dispatched after that, or ended with the same error, or ended by a cancel. Before the request takes a permit.
 */
bool sl_http_location_enter(struct sl_http_request *request);
/* A response to a request that asked, or was redirected, was accepted: the target is known from now on. Appends the requests
 * that waited for it, which go there; so do the functions below. */
void sl_http_location_found(struct sl_http_request *request, struct sl_list *out);
/* Forgets the target that the request had of it, unless there is another by now. */
void sl_http_location_forget(struct sl_http_request *request);
/* A request that asked the origin is over: if in vain, the requests that waited for it fail as it did, or go on if it was
 * cancelled. */
void sl_http_location_leave(struct sl_http_request *request, struct sl_list *out);
/* A piece was cancelled: its request waits no more. Any thread, no lock held. */
void sl_http_location_cancel(struct sl_http *http, struct sl_list *out);
/* Judges a redirect, which is followed at once. */
enum sl_http_verdict sl_http_request_follow(struct sl_http_request *request);

#endif
