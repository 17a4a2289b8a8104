/* SPDX-License-Identifier: Apache-2.0 */
/* The part of a context that remote files share: limits of origins, handles of libcurl, reactors. */
#ifndef SL_HTTP_ENGINE_H
#define SL_HTTP_ENGINE_H

#include <curl/curl.h>

#include "http/http.h"
#include "http/identity.h"

struct sl_http_request;

/* ------------------------------------------------------------------------------------ limits */

/*
 * The limit of an origin (scheme://host:port): how many transfers it has at a time. The number follows the goodput: it
 * grows while more transfers bring more bytes per second, returns to the old value if they do not, shrinks when the
 * bytes come slower, and is halved when the server says that it is overloaded.
 */
struct sl_http_limit {
	struct sl_http_limits *limits;
	_Atomic uint64_t arrived; /* bytes since the last adjustment; any thread adds */
	struct {
		struct sl_list link;      /* in origins */
		unsigned files;           /* open files of this origin */
		struct sl_list waiting;   /* requests without a permit */
		unsigned allowed, active; /* permits that may be, and are, in use */
		int64_t since;            /* time of the last adjustment */
		double rate;              /* bytes per ns between the last two adjustments */
		unsigned ends;            /* permits given back since the last adjustment */
		unsigned grown_from;      /* `allowed` before the last adjustment raised it, or 0 */
		unsigned pause;           /* adjustments before `allowed` may grow */
		int64_t halved;           /* when the server last was overloaded */
	} locked;                         /* guarded by limits->mutex */
	char origin[];
};

/*
 * The limits of a context. All origins together have `most` permits, and each has `reserved` of its own regardless of
 * the others: so an origin that does not answer delays no other. A free permit goes to the origin with the fewest.
 */
struct sl_http_limits {
	unsigned most, reserved;
	struct sl_mutex mutex;
	struct {
		struct sl_list origins; /* the last that was opened or closed is at the end */
		unsigned active;        /* permits of all */
	} locked SL_GUARDED_BY(&mutex);
};
void sl_http_limits_init(struct sl_http_limits *limits, unsigned most);
void sl_http_limits_destroy(struct sl_http_limits *limits);
/* Returns the limit of an origin, for sl_http_limit_release(); NULL: no memory. */
struct sl_http_limit *sl_http_limit_acquire(struct sl_http_limits *limits, const char *origin);
/* No request of the file has a permit or waits. */
void sl_http_limit_release(struct sl_http_limit *limit);
/* Returns true if the request has a permit; false if it waits in the list, for sl_http_limit_leave() of another. */
bool sl_http_limit_enter(struct sl_http_limit *limit, struct sl_http_request *request);
/* Gives a permit back; appends the requests, of any origin, that have a permit now. */
void sl_http_limit_leave(struct sl_http_limit *limit, int64_t now, struct sl_list *out);
/* Halves the limit after a response with status 429 or 503. */
void sl_http_limit_overloaded(struct sl_http_limit *limit, int64_t now);
/* Gives permits to all cancelled requests that wait, for any origin, so that a reactor ends them. */
void sl_http_limits_admit_cancelled(struct sl_http_limits *limits, struct sl_list *out);

/* ------------------------------------------------------------------------------------ engine */

struct sl_http_multi;
struct sl_http_reactor;

struct sl_http_engine {
	struct sl_core *core;
	struct sl_http_limits limits;
	struct sl_http_token token;
	_Atomic bool cancelling; /* a piece was cancelled since the last sl_http_end_cancelled() */

	struct sl_mutex mutex;
	struct {
		struct sl_http_multi *multi[2]; /* by enum sl_remote; NULL until the first file */
		struct sl_list transfers;       /* unused handles of libcurl */
	} locked SL_GUARDED_BY(&mutex);
};

/* A handle of libcurl. */
struct sl_http_transfer {
	struct sl_list link; /* guarded by engine->mutex: in transfers */
	CURL *easy;
	char reason[CURL_ERROR_SIZE];
};
struct sl_http_transfer *sl_http_transfer_acquire(struct sl_http_engine *engine);
void sl_http_transfer_release(struct sl_http_engine *engine, struct sl_http_transfer *transfer);
/* Frees a handle that no multi handle has any more. */
void sl_http_transfer_free(struct sl_http_transfer *transfer);

/* Functions of struct sl_backend_ops. */
int64_t sl_http_size(struct sl_backend *backend);
void sl_http_submit(struct sl_backend *backend, struct sl_piece *piece);
void sl_http_cancel(struct sl_backend *backend);
/* Ends all pieces of a list; sentence is copied for each if there is an error. */
void sl_http_end_pieces(struct sl_list *pieces, int error, const char *sentence);

/* Gives the request to a reactor as soon as its target is known and it has a permit. */
void sl_http_dispatch(struct sl_http_request *request);
/* Gives the permit of a request back, and dispatches the requests that have one now. */
void sl_http_permit_give(struct sl_http_request *request);
/* Ends the piece of a request that is over and has no permit. */
void sl_http_request_end(struct sl_http_request *request);
/* Dispatches the cancelled requests that wait for a permit, so that the reactors end them. */
void sl_http_end_cancelled(struct sl_http_engine *engine);

/* ----------------------------------------------------------------------------------- multi.c */

/* Starts the first reactor of a kind. With `easy` there may be as many as connections, up to 64. */
int sl_http_multi_start(struct sl_http_engine *engine, unsigned remote, struct sl_http_multi **out);
void sl_http_multi_stop(struct sl_http_multi *multi);
void sl_http_multi_free(struct sl_http_multi *multi);
/* Gives the request to the reactor that has the fewest, and returns that, which lives as long as the engine. */
struct sl_http_reactor *sl_http_multi_submit(struct sl_http_multi *multi,
                                             struct sl_http_request *request);
/* Makes the reactors look for cancelled requests, and for uploads that have more to send. */
void sl_http_multi_wake(struct sl_http_multi *multi);
void sl_http_reactor_wake(struct sl_http_reactor *reactor);

#endif
