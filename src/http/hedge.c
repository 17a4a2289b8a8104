/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Hedges
 *
 * A part that takes much longer than the parts of its origin usually do is asked for once more, on another connection.
 * The second request receives into memory of its own, because the first may still write to the caller's; its bytes are
 * copied there when the first has ended. Whichever request loses is awaited before the piece ends.
 *
 *   first runs, second runs --[hedge_second_done, all bytes]--> won      the first is told to end
 *   first runs, second runs --[hedge_second_done, an error]---> alone    the first goes on
 *   first runs, second runs --[sl_http_hedge_over, bytes]-----> awaited  the second is told to end
 *   first runs, second runs --[sl_http_hedge_over, an error]--> awaited  the second goes on
 *   won or alone            --[sl_http_hedge_over]------------> over     hedge_end() copies what was won
 *   awaited                 --[hedge_second_done]-------------> over
 *
 * Threads: the reactors that move the two requests; the hedge's mutex orders them. No function waits.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "http/http_internal.h"

/* ------------------------------------------------------------------------------------- pace */

#define LEAST_PARTS 30   /* before which it is not known when a part is slow */
#define MOST_PARTS  1000 /* after which older parts count half */
#define STEP        1.25
#define USUAL       0.95     /* of the parts are not slow */
#define MARGIN      2        /* times the slowest of those */
#define LEAST_SLOW  30000000 /* ns more than expected */
#define SHARE       0.05     /* hedges to requests */
#define MOST_CREDIT 16
#define AVERAGE     16                  /* parts of a moving average */
#define LOOK_AGAIN  50000000            /* ns until a part is looked at again */
#define SLOW_ANSWER INT64_C(1000000000) /* ns, to open, of an origin whose parts are not slower */
/* Bytes of all hedges of a context. */
#define MOST_BYTES ((uint64_t)128 << 20)

/* No other thread has it yet. */
void sl_http_pace_init(struct sl_http_pace *pace) SL_UNCHECKED
{
	memset(pace, 0, sizeof(*pace));
	pace->credit = 1; /* the first request of all may stand still */
	sl_mutex_init(&pace->mutex);
}

void sl_http_pace_destroy(struct sl_http_pace *pace)
{
	sl_mutex_destroy(&pace->mutex);
}

static double pace_expected(const struct sl_http_pace *pace, uint64_t bytes)
{
	return pace->first + pace->each * (double)bytes;
}

static void pace_average(double *average, double value, unsigned count)
{
	*average += (value - *average) / SL_MIN(count + 1, AVERAGE);
}

void sl_http_pace_add(struct sl_http_pace *pace, uint64_t bytes, int64_t first, int64_t all)
{
	double limit = 1, each = bytes ? (double)(all - first) / (double)bytes : 0;
	unsigned bucket = 0;

	sl_mutex_lock(&pace->mutex);
	if (pace->count)
		for (limit *= pace_expected(pace, bytes);
		     bucket < SL_PACE_BUCKETS - 1 && (double)all > limit; bucket++)
			limit *= STEP;
	/* A part that is slow itself would make the next seem usual. */
	if (bucket < SL_PACE_BUCKETS / 2) {
		pace_average(&pace->first, (double)first, pace->count);
		pace_average(&pace->each, each, pace->count);
	}
	pace->parts[bucket]++;
	pace->count++;
	if (pace->count > MOST_PARTS) {
		pace->count = 0;
		for (unsigned i = 0; i < SL_PACE_BUCKETS; i++)
			pace->count += pace->parts[i] /= 2;
	}
	pace->credit = SL_MIN(pace->credit + SHARE, MOST_CREDIT);
	sl_mutex_unlock(&pace->mutex);
}

int64_t sl_http_pace_slow(struct sl_http_pace *pace, uint64_t bytes)
{
	double expected, limit = 1;
	int64_t slow = SL_FOREVER;
	unsigned usual;

	sl_mutex_lock(&pace->mutex);
	if (pace->count >= LEAST_PARTS) {
		usual = pace->parts[0];
		for (unsigned i = 1; i < SL_PACE_BUCKETS && usual < USUAL * pace->count; i++) {
			usual += pace->parts[i];
			limit *= STEP;
		}
		expected = pace_expected(pace, bytes);
		slow = (int64_t)SL_MAX(MARGIN * limit * expected, expected + LEAST_SLOW);
	}
	sl_mutex_unlock(&pace->mutex);
	return slow;
}

/* Returns whether there may be another hedge, and counts it. */
static bool pace_take_credit(struct sl_http_pace *pace)
{
	bool may;

	sl_mutex_lock(&pace->mutex);
	may = pace->credit >= 1;
	pace->credit -= may;
	sl_mutex_unlock(&pace->mutex);
	return may;
}

/* ------------------------------------------------------------------------------------- hedge */

struct sl_http_hedge {
	struct sl_http_engine *engine;
	struct sl_http_multi *multi; /* that moves both */
	struct sl_piece *piece;      /* of the first request */
	size_t from;                 /* where in the piece the second request begins */
	struct sl_piece second;
	_Atomic bool won; /* the second has all its bytes */
	struct sl_mutex mutex;
	struct {
		bool first_over, second_over;
	} locked SL_GUARDED_BY(&mutex);
	char data[];
};

/* Both requests are over. */
static void hedge_end(struct sl_http_hedge *hedge)
{
	struct sl_piece *piece = hedge->piece;

	if (atomic_load(&hedge->won) && piece->moved != piece->length) {
		sl_http_piece_put(piece, hedge->from, hedge->data, hedge->second.length);
		piece->moved = piece->length;
		piece->error = 0;
		free(piece->message);
		piece->message = NULL;
	}
	atomic_fetch_sub(&hedge->engine->hedged, hedge->second.length);
	sl_mutex_destroy(&hedge->mutex);
	free(hedge);
	sl_piece_done(piece);
}

/* On the thread that ended the second request. */
static void hedge_second_done(struct sl_piece *second)
{
	struct sl_http_hedge *hedge = SL_CONTAINER(second, struct sl_http_hedge, second);
	bool over;

	free(second->message);
	atomic_store(&hedge->won, !second->error && second->moved == second->length);
	sl_mutex_lock(&hedge->mutex);
	hedge->locked.second_over = true;
	over = hedge->locked.first_over;
	/* Under the mutex: then the first request is not over, and the hedge stays. */
	if (!over && atomic_load(&hedge->won))
		sl_http_multi_wake(hedge->multi);
	sl_mutex_unlock(&hedge->mutex);
	if (over)
		hedge_end(hedge);
}

int64_t sl_http_hedge_due(const struct sl_http_request *request)
{
	int64_t slow = sl_http_pace_slow(&request->http->limit->pace, request->length);

	if (!request->piece && slow == SL_FOREVER)
		slow = SLOW_ANSWER;
	else if (!request->piece && !sl_http_request_has_head(request))
		slow = SL_MAX(slow, SLOW_ANSWER);
	return request->asked + (slow == SL_FOREVER ? LOOK_AGAIN : slow);
}

/* Returns whether there may be another hedge, of that many bytes, and counts it. */
static bool hedge_take(const struct sl_http_request *request, uint64_t bytes)
{
	struct sl_http_engine *engine = request->http->engine;

	if (atomic_fetch_add(&engine->hedged, bytes) + bytes <= MOST_BYTES &&
	    pace_take_credit(&request->http->limit->pace))
		return true;
	atomic_fetch_sub(&engine->hedged, bytes);
	return false;
}

static void hedge_start(struct sl_http_request *request, size_t left)
{
	struct sl_http *http = request->http;
	struct sl_http_engine *engine = http->engine;
	struct sl_piece *piece = request->piece;
	struct sl_http_request *again;
	struct sl_http_hedge *hedge;

	hedge = calloc(1, sizeof(*hedge) + left);
	again = hedge ? sl_http_request_new(http, SL_HTTP_GET, &hedge->second) : NULL;
	if (!again) {
		free(hedge);
		atomic_fetch_sub(&engine->hedged, left);
		return;
	}
	hedge->engine = engine;
	hedge->multi = http->multi;
	hedge->piece = piece;
	hedge->from = piece->moved;
	hedge->second = (struct sl_piece){
		.backend = piece->backend,
		.data = hedge->data,
		.length = left,
		.offset = piece->offset + piece->moved,
		.urgent = true,
		.done = hedge_second_done,
	};
	sl_mutex_init(&hedge->mutex);
	request->hedge = hedge;
	again->instead = piece;
	sl_log(&http->core->settings, SL_LOG_INFO,
	       "'%s': bytes %" PRIu64 "+%zu are slow, and asked for once more", http->name,
	       hedge->second.offset, left);
	sl_http_dispatch(again);
}

bool sl_http_hedge_look(struct sl_http_request *request, int64_t now)
{
	int64_t slow = sl_http_pace_slow(&request->http->limit->pace, request->length);
	bool starts;
	size_t left;

	if (!request->piece) {
		request->slow = sl_http_request_has_head(request) ? now + LOOK_AGAIN : SL_FOREVER;
		return pace_take_credit(&request->http->limit->pace);
	}
	left = request->piece->length - request->piece->moved;
	/* Also while too few parts are over, or there were too many hedges. */
	request->slow = SL_MAX(sl_http_hedge_due(request), now + LOOK_AGAIN);
	starts = left && now - request->asked >= slow;
	if (request->instead)
		return starts && pace_take_credit(&request->http->limit->pace);
	starts = starts && hedge_take(request, left);
	if (starts)
		hedge_start(request, left);
	if (starts || !left)
		request->slow = SL_FOREVER;
	return false;
}

bool sl_http_hedge_is_won(const struct sl_http_hedge *hedge)
{
	return hedge && atomic_load_explicit(&hedge->won, memory_order_acquire);
}

void sl_http_hedge_over(struct sl_http_hedge *hedge)
{
	/* This reactor is joined before the engine is freed. */
	struct sl_http_multi *multi = hedge->multi;
	struct sl_http_engine *engine = hedge->engine;
	bool over, loses = !hedge->piece->error;

	sl_mutex_lock(&hedge->mutex);
	hedge->locked.first_over = true;
	over = hedge->locked.second_over;
	if (!over && loses)
		atomic_store(&hedge->second.cancelled, true);
	sl_mutex_unlock(&hedge->mutex);
	if (over) {
		hedge_end(hedge);
	} else if (loses) {
		atomic_store(&engine->cancelling, true);
		sl_http_multi_wake(multi);
	}
}
