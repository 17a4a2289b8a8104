/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Hedges
 *
 * A part that takes much longer than its origin's parts usually do is asked for once more, on
 * another connection. The second request has its own memory, because the first may still write to
 * the caller's; its bytes are copied there when the first has ended. The request that loses is
 * awaited before the piece ends.
 *
 *   first runs, second runs --[hedge_second_done, all bytes]--> won      the first is told to end
 *   first runs, second runs --[hedge_second_done, an error]---> alone    the first goes on
 *   first runs, second runs --[sl_http_hedge_over, bytes]-----> awaited  the second is told to end
 *   first runs, second runs --[sl_http_hedge_over, an error]--> awaited  the second goes on
 *   won or alone            --[sl_http_hedge_over]------------> over     hedge_end() copies it
 *   awaited                 --[hedge_second_done]-------------> over
 *
 * Threads: the reactors of the two requests; the hedge's mutex orders them. No function waits.
 */
#include <inttypes.h>
#include <stdlib.h>

#include "http/http_internal.h"

/* Bytes in all hedges of a context. */
#define MOST_BYTES ((uint64_t)128 << 20)

struct sl_http_hedge {
	struct sl_piece *piece; /* the first request's */
	size_t from;            /* where in the piece the second request begins */
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
	atomic_fetch_sub(&sl_http_of(piece->backend)->engine->hedged, hedge->second.length);
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
		sl_http_multi_wake(sl_http_of(hedge->piece->backend)->multi);
	sl_mutex_unlock(&hedge->mutex);
	if (over)
		hedge_end(hedge);
}

/* Returns whether there may be another hedge, and counts the bytes. */
static bool hedge_take(struct sl_http *http, uint64_t bytes)
{
	struct sl_http_engine *engine = http->engine;

	if (atomic_fetch_add(&engine->hedged, bytes) + bytes <= MOST_BYTES &&
	    sl_http_pace_take_credit(&http->limit->pace))
		return true;
	atomic_fetch_sub(&engine->hedged, bytes);
	return false;
}

static void hedge_start(struct sl_http *http, struct sl_http_get *get, size_t left)
{
	struct sl_piece *piece = get->piece;
	struct sl_http_request *again;
	struct sl_http_hedge *hedge;

	hedge = calloc(1, sizeof(*hedge) + left);
	again = hedge ? sl_http_request_new(http, &sl_http_kind_second) : NULL;
	if (!again) {
		free(hedge);
		atomic_fetch_sub(&http->engine->hedged, left);
		return;
	}
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
	get->hedge = hedge;
	sl_http_get_of(again)->piece = &hedge->second;
	sl_http_get_of(again)->instead = piece;
	again->work = left;
	sl_log(&http->core->settings, SL_LOG_INFO,
	       "'%s': bytes %" PRIu64 "+%zu are slow, and asked for once more", http->name,
	       hedge->second.offset, left);
	sl_http_dispatch(again);
}

/* Returns whether the part is slow by now, and sets when it is looked at again. */
static bool hedge_is_due(struct sl_http_request *request, size_t left, int64_t now)
{
	struct sl_http_pace *pace = &request->http->limit->pace;

	/* Also while too few parts are over, or there were too many hedges. */
	request->slow = SL_MAX(request->asked + sl_http_pace_due(pace, request->length),
	                       now + SL_PACE_LOOK_NS);
	return left && now - request->asked >= sl_http_pace_slow(pace, request->length);
}

bool sl_http_hedge_look(struct sl_http_request *request, int64_t now)
{
	struct sl_http_get *get = sl_http_get_of(request);
	size_t left = get->piece->length - get->piece->moved;
	bool starts = hedge_is_due(request, left, now) && hedge_take(request->http, left);

	if (starts)
		hedge_start(request->http, get, left);
	if (starts || !left)
		request->slow = SL_FOREVER;
	return false;
}

bool sl_http_hedge_look_second(struct sl_http_request *request, int64_t now)
{
	const struct sl_piece *piece = sl_http_get_of(request)->piece;

	return hedge_is_due(request, piece->length - piece->moved, now) &&
	       sl_http_pace_take_credit(&request->http->limit->pace);
}

bool sl_http_hedge_is_won(const struct sl_http_hedge *hedge)
{
	return atomic_load_explicit(&hedge->won, memory_order_acquire);
}

void sl_http_hedge_over(struct sl_http_hedge *hedge)
{
	/* This reactor is joined before the engine is freed. */
	struct sl_http_multi *multi = sl_http_of(hedge->piece->backend)->multi;
	struct sl_http_engine *engine = sl_http_of(hedge->piece->backend)->engine;
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
