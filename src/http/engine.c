/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The engine of remote files
 *
 * The part of a context that remote files share. Makes a request of each piece, gives it a permit of its origin, hands
 * it to a reactor (multi.c), and ends the piece when the reactor has finished with the request. Permits bound the
 * transfers that run at a time; their number follows the throughput of the origin.
 *
 * Threads: any. The limits have a mutex; no function waits.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "http/body.h"
#include "http/http_internal.h"
#include "http/upload.h"

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

void sl_http_arrived(struct sl_http_request *request, size_t bytes)
{
	struct sl_list ready;

	sl_list_init(&ready);
	sl_http_limit_arrived(request->http->limit, bytes, request->alive, &ready);
	engine_submit_all(&ready);
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
	struct sl_http_hedge *hedge = request->hedge;
	struct sl_piece *piece = request->piece;
	char *sentence = request->sentence;
	int error = request->error;

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
	if (hedge)
		sl_http_hedge_over(hedge);
	else
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

/* The rest of the descriptors is the program's. */
static unsigned engine_most_connections(const struct sl_settings *settings)
{
	struct rlimit files = {.rlim_cur = RLIM_INFINITY};

	getrlimit(RLIMIT_NOFILE, &files);
	return (unsigned)SL_MIN(settings->max_connections, SL_MAX(files.rlim_cur / 4, 1));
}

/* No other thread has the engine yet. */
int sl_http_new(struct sl_core *core, struct sl_http_engine **out) SL_UNCHECKED
{
	struct sl_http_engine *engine = calloc(1, sizeof(*engine));

	if (!engine)
		return sl_fail(-ENOMEM, "no memory");
	engine->core = core;
	sl_mutex_init(&engine->mutex);
	sl_http_token_init(&engine->token, &core->settings);
	sl_http_limits_init(&engine->limits, engine_most_connections(&core->settings));
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
	if (!engine)
		return;
	for (unsigned i = 0; i < 2; i++)
		sl_http_multi_free(engine->locked.multi[i]);
	sl_http_limits_destroy(&engine->limits);
	sl_http_token_destroy(&engine->token);
	sl_mutex_destroy(&engine->mutex);
	free(engine);
}
