/* SPDX-License-Identifier: Apache-2.0 */
/* How many transfers an origin has at a time, of how many bytes, and how long they take. */
#ifndef SL_HTTP_LIMIT_H
#define SL_HTTP_LIMIT_H

#include "backend/backend.h"

struct sl_http_request;

/* ------------------------------------------------------------------------------------- pace */

#define SL_PACE_BUCKETS 24
#define SL_PACE_LOOK_NS 50000000 /* until a part is looked at again */

/* How long an origin's parts take. All fields are guarded by the mutex. */
struct sl_http_pace {
	struct sl_mutex mutex;
	double first, each; /* moving averages: ns until the first byte, and for each behind it */
	/* Parts by their time: bucket i is for at most 1.25^i times the expected time. */
	unsigned parts[SL_PACE_BUCKETS], count;
	double credit; /* hedges that may begin */
};
void sl_http_pace_init(struct sl_http_pace *pace);
void sl_http_pace_destroy(struct sl_http_pace *pace);
/* A part is over, without a retry; its first byte came after `first` ns, its last after `all`. */
void sl_http_pace_add(struct sl_http_pace *pace, uint64_t bytes, int64_t first, int64_t all);
/* Returns after how many ns a part is slow; SL_FOREVER while too few parts are over. */
int64_t sl_http_pace_slow(struct sl_http_pace *pace, uint64_t bytes);
/* Returns the bytes per ns, if `bytes` are in flight in parts of `each`; 0: too few are over. */
double sl_http_pace_rate(struct sl_http_pace *pace, uint64_t bytes, uint64_t each);
/* Returns after how many ns to look at it: the same, or SL_PACE_LOOK_NS. */
int64_t sl_http_pace_due(struct sl_http_pace *pace, uint64_t bytes);
/* Returns whether there may be another hedge, and counts it. */
bool sl_http_pace_take_credit(struct sl_http_pace *pace);

/* ------------------------------------------------------------------------------------- limit */

/*
 * The limit of an origin (scheme://host:port): how many transfers it has at a time. A look compares
 * the goodput in two windows, before and after a change. From a cold start the number doubles while
 * the goodput follows. An answer to a short request adds three as well, if it took longer to come
 * than to pass: connections mostly wait, so they are too few. From SOON_ALLOWED on it adds two,
 * while more files are open and answers come nearly as soon as the soonest did. Short pieces that a
 * thread waits for add one each up to there, before an answer. Later the number is
 * tried in turn with a quarter more, kept if more bytes per second come, and with a fifth less,
 * kept if as many come. It is halved when the server calls itself overloaded, or refuses
 * connections.
 */
struct sl_http_limit {
	struct sl_http_limits *limits;
	_Atomic uint64_t arrived; /* bytes in this window; any thread adds */
	_Atomic int64_t look;     /* when to look next */
	_Atomic int64_t rtt;      /* the fewest ns to an answer lately; 0: none yet */
	_Atomic unsigned allowed; /* transfers; written under the mutex */
	_Atomic bool waits;       /* requests wait for permits; written under the mutex */
	_Atomic uint64_t ahead; /* most bytes of a file in flight lately; an update may get lost */
	/* Bytes: the largest useful part; a transfer in a round trip. Written under the mutex. */
	_Atomic size_t largest, trip;
	unsigned most; /* `allowed` at most */
	struct sl_http_pace pace;
	struct {
		struct sl_list link;    /* in origins */
		unsigned files;         /* open */
		struct sl_list waiting; /* requests without a permit */
		unsigned active;        /* permits in use */
		bool starting;          /* it doubles */
		bool settling;          /* after a change: bytes tell nothing until `look` */
		bool shrinks;           /* the next trial is with fewer */
		unsigned tried_from;    /* `allowed` before the trial; 0: none runs */
		unsigned pause;         /* windows until the next trial */
		unsigned lost;          /* trials in a row, taken back */
		int64_t soonest;        /* ns: the shortest wait of a short transfer; 0: none yet */
		int64_t since;          /* when the window began */
		int64_t halved;         /* when the server last was overloaded */
		double rate;            /* bytes per ns before the trial; 0: not known */
	} locked;                       /* guarded by limits->mutex */
	char origin[];
};

/* The limits of a context. All origins together have `most` permits, and each `reserved` of its
 * own: a silent origin delays no other. A free permit goes to the origin with the fewest. */
struct sl_http_limits {
	unsigned most, reserved;
	double enough; /* bytes per ns: the cores would not take many more; constant */
	struct sl_mutex mutex;
	struct {
		struct sl_list origins; /* the last opened or closed is at the end */
		unsigned active;        /* permits in use */
	} locked SL_GUARDED_BY(&mutex);
};
void sl_http_limits_init(struct sl_http_limits *limits, unsigned most);
void sl_http_limits_destroy(struct sl_http_limits *limits);
/* Returns an origin's limit, at most so many transfers, to be released; NULL: no memory. At the
 * start each short file has a permit at once, up to as many as such a start leads to anyway.
 * bytes: the file's; 0: unknown. */
struct sl_http_limit *sl_http_limit_acquire(struct sl_http_limits *limits, const char *origin,
                                            unsigned most, uint64_t bytes);
/* No request of the file has a permit or waits. */
void sl_http_limit_release(struct sl_http_limit *limit);
/* Returns whether the request has a permit; else it waits in the list for sl_http_limit_leave(). */
bool sl_http_limit_enter(struct sl_http_limit *limit, struct sl_http_request *request);
/* Gives a permit back; appends the requests with a new permit, for any origin. waited: ns until the
 * answer's first byte, if a short transfer spent most of its time so; else 0. */
void sl_http_limit_leave(struct sl_http_limit *limit, int64_t now, int64_t waited,
                         struct sl_list *out);
/* Counts bytes in a body, and looks if it is time; appends as sl_http_limit_leave(). */
void sl_http_limit_arrived(struct sl_http_limit *limit, size_t bytes, int64_t now,
                           struct sl_list *out);
/* An answer began so many ns after the request. */
void sl_http_limit_answered(struct sl_http_limit *limit, int64_t ns);
/* Halves the limit after a response with status 429 or 503, or a refused connection. */
void sl_http_limit_overloaded(struct sl_http_limit *limit, int64_t now);
/* Gives permits to all waiting requests that are cancelled, so a reactor ends them. */
void sl_http_limits_admit_cancelled(struct sl_http_limits *limits, struct sl_list *out);
/* Returns the bytes for the next request, the gap that costs no more than another request, and how
 * many requests a file needs in flight to keep all connections busy. all: bytes of the
 * operation; left: bytes of the file to ask for; room: bytes of memory for all its requests. */
struct sl_cut sl_http_limit_cut(struct sl_http_limit *limit, uint64_t all, uint64_t left,
                                uint64_t room);

#endif
