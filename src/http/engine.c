/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The engine of remote files
 *
 * The part of a context that remote files share. Makes a request of each piece, gives it a permit of its origin, hands
 * it to a reactor (multi.c), and ends the piece when the reactor has finished with the request. Permits bound the
 * transfers that run at a time; their number follows the throughput of the origin.
 *
 * Threads: any. The limits have a mutex, the handles of libcurl have another; no function waits.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "http/body.h"
#include "http/http_internal.h"
#include "http/upload.h"

#define LEAST_LOOK_NS 50000000 /* a rate over a shorter time means nothing */
#define FIRST_ALLOWED 8
#define FASTER        1.04 /* the gain in rate that justifies more permits */
#define SLOWER        0.80
#define PAUSE         8 /* adjustments before growth is tried again */
#define MOST_UNUSED   16

/* -------------------------------------------------------------------------------------- limits */

/* No other thread has the limits yet. */
void sl_http_limits_init(struct sl_http_limits *limits, unsigned most) SL_UNCHECKED
{
	limits->most = most;
	limits->reserved = (most + 3) / 4;
	sl_mutex_init(&limits->mutex);
	sl_list_init(&limits->locked.origins);
	limits->locked.active = 0;
}

static struct sl_http_limit *limit_of(struct sl_list *link)
{
	return SL_CONTAINER(link, struct sl_http_limit, locked.link);
}

/* No other thread has the limits any more. */
void sl_http_limits_destroy(struct sl_http_limits *limits) SL_UNCHECKED
{
	struct sl_list *link;

	while ((link = sl_list_take(&limits->locked.origins)))
		free(limit_of(link));
	sl_mutex_destroy(&limits->mutex);
}

struct sl_http_limit *sl_http_limit_acquire(struct sl_http_limits *limits, const char *origin)
{
	struct sl_http_limit *limit = NULL;

	sl_mutex_lock(&limits->mutex);
	sl_list_each (link, &limits->locked.origins)
		if (!strcasecmp(limit_of(link)->origin, origin))
			limit = limit_of(link);
	if (!limit && (limit = calloc(1, sizeof(*limit) + strlen(origin) + 1))) {
		strcpy(limit->origin, origin);
		limit->limits = limits;
		sl_list_init(&limit->locked.waiting);
		limit->locked.allowed = SL_MIN(limits->most, FIRST_ALLOWED);
		limit->locked.since = sl_now();
		sl_list_append(&limits->locked.origins, &limit->locked.link);
	}
	if (limit)
		limit->locked.files++;
	sl_mutex_unlock(&limits->mutex);
	return limit;
}

/* The limit of an origin without files is kept for its next file, unless there are many of those. */
void sl_http_limit_release(struct sl_http_limit *limit)
{
	struct sl_http_limits *limits = limit->limits;
	struct sl_http_limit *oldest = NULL;
	unsigned unused = 0;

	sl_mutex_lock(&limits->mutex);
	limit->locked.files--;
	sl_list_remove(&limit->locked.link);
	sl_list_append(&limits->locked.origins, &limit->locked.link);
	sl_list_each (link, &limits->locked.origins)
		if (!limit_of(link)->locked.files && !unused++)
			oldest = limit_of(link);
	if (unused > MOST_UNUSED) {
		sl_list_remove(&oldest->locked.link);
		free(oldest);
	}
	sl_mutex_unlock(&limits->mutex);
}

/* Returns whether the origin may have another permit. */
static bool limit_has_room_locked(const struct sl_http_limits *limits,
                                  const struct sl_http_limit *limit) SL_REQUIRES(&limits->mutex)
{
	return limit->locked.active < limit->locked.allowed &&
	       (limits->locked.active < limits->most || limit->locked.active < limits->reserved);
}

static void limit_begin_locked(struct sl_http_limits *limits, struct sl_http_limit *limit)
	SL_REQUIRES(&limits->mutex)
{
	limit->locked.active++;
	limits->locked.active++;
}

bool sl_http_limit_enter(struct sl_http_limit *limit, struct sl_http_request *request)
{
	struct sl_http_limits *limits = limit->limits;
	bool enters;

	sl_mutex_lock(&limits->mutex);
	/* sl_http_limits_admit_cancelled() may have run already for a request that was cancelled before. */
	enters = limit_has_room_locked(limits, limit) || sl_http_request_is_unwanted(request);
	if (enters)
		limit_begin_locked(limits, limit);
	else if (request->piece)
		sl_list_append(&limit->locked.waiting, &request->link);
	else /* A request of open is short, and a thread waits for it: it goes first. */
		sl_list_append(limit->locked.waiting.next, &request->link);
	sl_mutex_unlock(&limits->mutex);
	return enters;
}

static void limit_forget_rate(struct sl_http_limit *limit, int64_t now)
{
	atomic_store(&limit->arrived, 0);
	limit->locked.since = now;
	limit->locked.ends = 0;
}

/*
 * Adjusts the limit after each permit has been given back about once, because the effect of a change shows then. While
 * the limit is not reached, the rate tells nothing about it. The caller holds the mutex of the limits.
 */
static void limit_adjust(struct sl_http_limit *limit, int64_t now)
{
	unsigned allowed = limit->locked.allowed;
	double rate;

	if (now - limit->locked.since < LEAST_LOOK_NS || limit->locked.ends < allowed)
		return;
	if (limit->locked.active + 1 < allowed || sl_list_empty(&limit->locked.waiting)) {
		limit_forget_rate(limit, now);
		limit->locked.rate = 0;
		return;
	}
	rate = (double)atomic_load(&limit->arrived) / (double)(now - limit->locked.since);
	if (limit->locked.grown_from && rate < limit->locked.rate * FASTER) {
		/* More permits did not help. */
		limit->locked.allowed = limit->locked.grown_from;
		limit->locked.grown_from = 0;
		limit->locked.pause = PAUSE;
	} else if (limit->locked.pause) {
		limit->locked.pause--;
	} else if (rate < limit->locked.rate * SLOWER) {
		limit->locked.allowed = SL_MAX(allowed - allowed / 4, 1);
		limit->locked.pause = PAUSE;
	} else {
		limit->locked.allowed =
			SL_MIN(limit->limits->most, allowed + SL_MAX(allowed / 4, 1));
		limit->locked.grown_from = limit->locked.allowed > allowed ? allowed : 0;
	}
	limit->locked.rate = rate;
	limit_forget_rate(limit, now);
}

/* Returns the origin with the fewest permits of those that have room and a waiting request, or NULL. */
static struct sl_http_limit *limits_next_locked(struct sl_http_limits *limits)
	SL_REQUIRES(&limits->mutex)
{
	struct sl_http_limit *next = NULL;

	sl_list_each (link, &limits->locked.origins) {
		struct sl_http_limit *limit = limit_of(link);

		if (!sl_list_empty(&limit->locked.waiting) &&
		    limit_has_room_locked(limits, limit) &&
		    (!next || limit->locked.active < next->locked.active))
			next = limit;
	}
	return next;
}

void sl_http_limit_leave(struct sl_http_limit *limit, int64_t now, struct sl_list *out)
{
	struct sl_http_limits *limits = limit->limits;
	struct sl_http_limit *next;

	sl_mutex_lock(&limits->mutex);
	limit->locked.active--;
	limits->locked.active--;
	limit->locked.ends++;
	limit_adjust(limit, now);
	while ((next = limits_next_locked(limits))) {
		limit_begin_locked(limits, next);
		sl_list_append(out, sl_list_take(&next->locked.waiting));
	}
	sl_mutex_unlock(&limits->mutex);
}

void sl_http_limit_overloaded(struct sl_http_limit *limit, int64_t now)
{
	sl_mutex_lock(&limit->limits->mutex);
	/* Several refusals within a short time count once. */
	if (now - limit->locked.halved >= LEAST_LOOK_NS) {
		limit->locked.allowed = SL_MAX(limit->locked.allowed / 2, 1);
		limit->locked.grown_from = 0;
		limit->locked.pause = PAUSE;
		limit->locked.rate = 0;
		limit->locked.halved = now;
		limit_forget_rate(limit, now);
	}
	sl_mutex_unlock(&limit->limits->mutex);
}

void sl_http_limits_admit_cancelled(struct sl_http_limits *limits, struct sl_list *out)
{
	sl_mutex_lock(&limits->mutex);
	sl_list_each (origin, &limits->locked.origins) {
		struct sl_http_limit *limit = limit_of(origin);
		struct sl_list *link, *next;

		for (link = limit->locked.waiting.next; link != &limit->locked.waiting;
		     link = next) {
			next = link->next;
			if (!sl_http_request_is_unwanted(
				    SL_CONTAINER(link, struct sl_http_request, link)))
				continue;
			limit_begin_locked(limits, limit);
			sl_list_remove(link);
			sl_list_append(out, link);
		}
	}
	sl_mutex_unlock(&limits->mutex);
}

/* ----------------------------------------------------------------------------------- transfers */

struct sl_http_transfer *sl_http_transfer_acquire(struct sl_http_engine *engine)
{
	struct sl_http_transfer *transfer = NULL;
	struct sl_list *link;

	sl_mutex_lock(&engine->mutex);
	/* The last that was used: its connections are the newest. */
	link = engine->locked.transfers.previous;
	if (link != &engine->locked.transfers) {
		sl_list_remove(link);
		transfer = SL_CONTAINER(link, struct sl_http_transfer, link);
	}
	sl_mutex_unlock(&engine->mutex);
	if (transfer)
		return transfer;
	transfer = calloc(1, sizeof(*transfer));
	if (transfer)
		transfer->easy = curl_easy_init();
	if (transfer && !transfer->easy) {
		free(transfer);
		transfer = NULL;
	}
	return transfer;
}

void sl_http_transfer_release(struct sl_http_engine *engine, struct sl_http_transfer *transfer)
{
	sl_mutex_lock(&engine->mutex);
	sl_list_append(&engine->locked.transfers, &transfer->link);
	sl_mutex_unlock(&engine->mutex);
}

void sl_http_transfer_free(struct sl_http_transfer *transfer)
{
	curl_easy_cleanup(transfer->easy);
	free(transfer);
}

/* ------------------------------------------------------------------------------------ requests */

void sl_http_dispatch(struct sl_http_request *request)
{
	if (atomic_load_explicit(&request->http->location.redirects, memory_order_relaxed) &&
	    !sl_http_location_enter(request))
		return;
	if (sl_http_limit_enter(request->http->limit, request))
		sl_http_multi_submit(request->http->multi, request);
}

static void engine_submit_all(struct sl_list *ready)
{
	struct sl_list *link;

	while ((link = sl_list_take(ready))) {
		struct sl_http_request *request = SL_CONTAINER(link, struct sl_http_request, link);

		sl_http_multi_submit(request->http->multi, request);
	}
}

void sl_http_permit_give(struct sl_http_request *request)
{
	struct sl_list ready;

	sl_list_init(&ready);
	sl_http_limit_leave(request->http->limit, sl_now(), &ready);
	engine_submit_all(&ready);
}

void sl_http_request_end(struct sl_http_request *request)
{
	struct sl_http_upload *upload = request->http->upload;
	struct sl_http_body *body = request->http->body;
	struct sl_piece *piece = request->piece;
	char *sentence = request->sentence;
	int error = request->error;

	sl_http_request_give_back(request);
	if (request->asks)
		sl_http_location_leave(request);
	if (request->method == SL_HTTP_HEAD || request->method == SL_HTTP_PROBE) {
		/* http_ask() frees the request as soon as it sees the word. */
		_Atomic uint32_t *over = &request->over;

		atomic_store(over, 1);
		sl_word_wake(over, 1);
		return;
	}
	request->sentence = NULL;
	sl_http_request_free(request);
	if (!piece) {
		if (upload)
			sl_http_upload_over(upload, error, sentence);
		else
			sl_http_body_over(body, error, sentence);
		return;
	}
	piece->error = error;
	piece->message = sentence;
	sl_piece_done(piece);
}

static void piece_refuse(struct sl_piece *piece, int error, const char *name, const char *why)
{
	piece->error = error;
	if (asprintf(&piece->message, "'%s': %s", name, why) < 0)
		piece->message = NULL;
	sl_piece_done(piece);
}

void sl_http_submit(struct sl_backend *backend, struct sl_piece *piece)
{
	struct sl_http *http = sl_http_of(backend);
	struct sl_http_request *request;

	if (piece->write) {
		sl_http_upload_submit(http->upload, piece);
		return;
	}
	if (http->body) {
		sl_http_body_submit(http->body, piece);
		return;
	}
	request = sl_http_request_new(http, SL_HTTP_GET, piece);
	if (!request) {
		piece_refuse(piece, -ENOMEM, http->name, "no memory");
		return;
	}
	sl_http_dispatch(request);
}

/* Several cancels in a row are handled together. */
void sl_http_cancel(struct sl_backend *backend)
{
	struct sl_http *http = sl_http_of(backend);

	sl_http_location_cancel(http);
	atomic_store(&http->engine->cancelling, true);
	sl_http_multi_wake(http->multi);
}

void sl_http_end_cancelled(struct sl_http_engine *engine)
{
	struct sl_list gone;

	if (!atomic_load(&engine->cancelling) || !atomic_exchange(&engine->cancelling, false))
		return;
	sl_list_init(&gone);
	sl_http_limits_admit_cancelled(&engine->limits, &gone);
	engine_submit_all(&gone);
}

void sl_http_end_pieces(struct sl_list *pieces, int error, const char *sentence)
{
	struct sl_list *link;

	while ((link = sl_list_take(pieces))) {
		struct sl_piece *piece = SL_CONTAINER(link, struct sl_piece, link);

		piece->error = error;
		piece->message = error && sentence ? strdup(sentence) : NULL;
		sl_piece_done(piece);
	}
}

int64_t sl_http_size(struct sl_backend *backend)
{
	return sl_http_of(backend)->size;
}

/* -------------------------------------------------------------------------------------- engine */

/* No other thread has the engine yet. */
int sl_http_new(struct sl_core *core, struct sl_http_engine **out) SL_UNCHECKED
{
	struct sl_http_engine *engine = calloc(1, sizeof(*engine));

	if (!engine)
		return sl_fail(-ENOMEM, "no memory");
	engine->core = core;
	sl_mutex_init(&engine->mutex);
	sl_list_init(&engine->locked.transfers);
	sl_http_token_init(&engine->token, &core->settings);
	sl_http_limits_init(&engine->limits, (unsigned)core->settings.max_connections);
	*out = engine;
	return 0;
}

/* All files are closed: no request is in flight, and no thread starts a reactor. */
void sl_http_stop(struct sl_http_engine *engine) SL_UNCHECKED
{
	for (unsigned i = 0; engine && i < 2; i++)
		sl_http_multi_stop(engine->locked.multi[i]);
}

/* No other thread has the engine any more. */
void sl_http_free(struct sl_http_engine *engine) SL_UNCHECKED
{
	struct sl_list *link;

	if (!engine)
		return;
	for (unsigned i = 0; i < 2; i++)
		sl_http_multi_free(engine->locked.multi[i]);
	while ((link = sl_list_take(&engine->locked.transfers))) {
		struct sl_http_transfer *transfer =
			SL_CONTAINER(link, struct sl_http_transfer, link);

		sl_http_transfer_free(transfer);
	}
	sl_http_limits_destroy(&engine->limits);
	sl_http_token_destroy(&engine->token);
	sl_mutex_destroy(&engine->mutex);
	free(engine);
}
