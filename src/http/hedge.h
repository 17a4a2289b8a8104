/* SPDX-License-Identifier: Apache-2.0 */
/* Hedges: a second request for a part that is much slower than its fellows. */
#ifndef SL_HTTP_HEDGE_H
#define SL_HTTP_HEDGE_H

#include "core/core.h"

struct sl_http_engine;
struct sl_http_request;

/* ------------------------------------------------------------------------------------- pace */

#define SL_PACE_BUCKETS 24

/* How long the parts of an origin take. All fields are guarded by the mutex. */
struct sl_http_pace {
	struct sl_mutex mutex;
	double first,
		each; /* ns until the first byte, and for each byte behind it: moving averages */
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

/* ------------------------------------------------------------------------------------- hedge */

struct sl_http_hedge;

/* Returns when the part of a request that has begun has to be looked at. */
int64_t sl_http_hedge_due(const struct sl_http_request *request);
/*
 * Asks for the rest of a part once more, if it is slow by now. While it is not, or there were too many hedges, or no
 * memory is left for them, it sets request->slow to look again. On the thread that moves the request. Returns true if
 * the request is a second request, or of open, and slow itself: the caller ends its transfer, and it begins anew.
 */
bool sl_http_hedge_look(struct sl_http_request *request, int64_t now);
/* Returns whether the second request has brought the rest: the first is to end. hedge may be NULL. */
bool sl_http_hedge_is_won(const struct sl_http_hedge *hedge);
/* The first request is over, and its piece has its result. Ends the piece, at once or when the second request has
 * ended. On the reactor that moved the first. */
void sl_http_hedge_over(struct sl_http_hedge *hedge);

#endif
