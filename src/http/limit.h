/* SPDX-License-Identifier: Apache-2.0 */
/* How many transfers an origin has at a time, how many bytes each asks for, and how long they take. */
#ifndef SL_HTTP_LIMIT_H
#define SL_HTTP_LIMIT_H

#include "backend/backend.h"

struct sl_http_request;

/* ------------------------------------------------------------------------------------- pace */

#define SL_PACE_BUCKETS 24
#define SL_PACE_LOOK_NS 50000000 /* until a part is looked at again */

/* How long the parts of an origin take. All fields are guarded by the mutex. */
struct sl_http_pace {
	struct sl_mutex mutex;
	double first, each; /* moving averages: ns until the first byte, and for each behind it */
	/* Parts by their time as a multiple of the expected time: bucket i is for at most 1.25^i. */
	unsigned parts[SL_PACE_BUCKETS], count;
	double credit; /* hedges that may begin */
};
void sl_http_pace_init(struct sl_http_pace *pace);
void sl_http_pace_destroy(struct sl_http_pace *pace);
/* A part of that many bytes is over, without a retry; its first byte came after `first` ns, its last after `all`. */
void sl_http_pace_add(struct sl_http_pace *pace, uint64_t bytes, int64_t first, int64_t all);
/* Returns the ns after which a part of that many bytes is slow; SL_FOREVER while too few parts are over. */
int64_t sl_http_pace_slow(struct sl_http_pace *pace, uint64_t bytes);
/* Returns the ns after which it has to be looked at: the same, or SL_PACE_LOOK_NS. */
int64_t sl_http_pace_due(struct sl_http_pace *pace, uint64_t bytes);
/* Returns whether there may be another hedge, and counts it. */
bool sl_http_pace_take_credit(struct sl_http_pace *pace);

/* ------------------------------------------------------------------------------------- limit */

/*
 * The limit of an origin (scheme://host:port): how many transfers it has at a time. A look compares the goodput of two
 * windows of time, before and after a change of the number. From a cold start the number doubles while the goodput
 * follows; until SOON_ALLOWED each answer to a short request that took longer to come than to pass adds three as well, because
 * connections that mostly wait are too few. Later it is tried in turn with a quarter more, kept if that brings more bytes per second, and with a fifth
 * less, kept if that brings as many. It is halved when the server says that it is overloaded, or refuses connections.
 */
struct sl_http_limit {
	struct sl_http_limits *limits;
	_Atomic uint64_t arrived; /* bytes of this window; any thread adds */
	_Atomic int64_t look;     /* time of the next look */
	_Atomic int64_t
		rtt; /* ns from a request to its answer, of the fastest lately; 0: none yet */
	_Atomic unsigned allowed; /* transfers; written under the mutex */
	/* Bytes of the largest part that is worth it, and of a transfer in a round trip; written
	 * under the mutex. */
	_Atomic size_t largest, trip;
	unsigned most; /* of `allowed` */
	struct sl_http_pace pace;
	struct {
		struct sl_list link;    /* in origins */
		unsigned files;         /* open files of this origin */
		struct sl_list waiting; /* requests without a permit */
		unsigned active;        /* permits that are in use */
		bool starting;          /* it doubles */
		bool settling;          /* after a change: bytes tell nothing until `look` */
		bool shrinks;           /* the next trial is with fewer */
		unsigned tried_from;    /* `allowed` before the trial that runs, or 0 */
		unsigned pause;         /* windows until the next trial */
		unsigned lost;          /* trials in a row that were taken back */
		int64_t since;          /* begin of the window */
		int64_t halved;         /* when the server last was overloaded */
		double rate;            /* bytes per ns before the trial; 0: not known */
	} locked;                       /* guarded by limits->mutex */
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
/* Returns the limit of an origin, of at most so many transfers, for sl_http_limit_release(); NULL: no memory. */
struct sl_http_limit *sl_http_limit_acquire(struct sl_http_limits *limits, const char *origin,
                                            unsigned most);
/* No request of the file has a permit or waits. */
void sl_http_limit_release(struct sl_http_limit *limit);
/* Returns true if the request has a permit; false if it waits in the list, for sl_http_limit_leave() of another. */
bool sl_http_limit_enter(struct sl_http_limit *limit, struct sl_http_request *request);
/* Gives a permit back; appends the requests, of any origin, that have a permit now. waited: the transfer spent most of its time
 * until the first byte of the answer. */
void sl_http_limit_leave(struct sl_http_limit *limit, int64_t now, bool waited,
                         struct sl_list *out);
/* Counts bytes of a body, and looks if it is time; appends as sl_http_limit_leave(). */
void sl_http_limit_arrived(struct sl_http_limit *limit, size_t bytes, int64_t now,
                           struct sl_list *out);
/* The first byte of an answer came so many ns after its request. */
void sl_http_limit_answered(struct sl_http_limit *limit, int64_t ns);
/* Halves the limit after a response with status 429 or 503, or a refused connection. */
void sl_http_limit_overloaded(struct sl_http_limit *limit, int64_t now);
/* Gives permits to all cancelled requests that wait, for any origin, so that a reactor ends them. */
void sl_http_limits_admit_cancelled(struct sl_http_limits *limits, struct sl_list *out);
/*
 * Returns the bytes that the next request asks for, the gap that costs no more than another request, and the requests
 * that a file needs in flight so that no connection waits for the next. left: bytes that the file still has to ask
 * for; room: bytes of memory that its requests may occupy together.
 */
struct sl_part sl_http_limit_part(const struct sl_http_limit *limit, uint64_t left, uint64_t room);

#endif
