/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The body of an object whose server has no ranges: one GET that pieces are filled from, each where the last one
 * ended. While no piece waits the transfer pauses, so that no more of the body is kept than one call of libcurl brings.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "http/http_internal.h"

struct sl_http_body {
	struct sl_http *http;
	bool versioned; /* another attempt can tell that it is about the same bytes */

	struct sl_mutex mutex;
	pthread_cond_t ended; /* reactor became NULL */
	struct {
		struct sl_list pieces; /* that wait: each begins where the one before ends, */
		uint64_t next;         /* and the next one here */
		uint64_t position;     /* of the first byte that no piece has */
		uint64_t skip;         /* bytes of this attempt that pieces have already */
		char *rest;            /* from position on; no piece was there for them */
		size_t rest_bytes;
		struct sl_http_reactor *reactor; /* that has the request; NULL: there is none */
		bool paused;                     /* the transfer waits for a piece */
		bool whole;                      /* the end of the body has come */
		bool dropped;                    /* nobody wants the request any more, */
		bool renewed;                    /* but all pieces are of the next one */
	} locked;                                /* guarded by mutex */
};

static struct sl_piece *first_piece(struct sl_http_body *body)
{
	struct sl_list *link = body->locked.pieces.next;

	return link == &body->locked.pieces ? NULL : SL_CONTAINER(link, struct sl_piece, link);
}

static void end_pieces(struct sl_list *pieces, int error, const char *sentence)
{
	struct sl_list *link;

	while ((link = sl_list_take(pieces))) {
		struct sl_piece *piece = SL_CONTAINER(link, struct sl_piece, link);

		piece->error = error;
		piece->message = error && sentence ? strdup(sentence) : NULL;
		sl_piece_done(piece);
	}
}

/* Fills pieces, and moves those that are over to done; of a known length the last one is over with the request.
 * How many bytes were taken. The mutex is held. */
static size_t fill(struct sl_http_body *body, const char *data, size_t bytes, struct sl_list *done)
{
	struct sl_piece *piece;
	size_t taken = 0;

	while (taken < bytes && (piece = first_piece(body))) {
		size_t n = SL_MIN(bytes - taken, piece->length - piece->moved);

		if (!n)
			break;
		memcpy(piece->data + piece->moved, data + taken, n);
		piece->moved += n;
		body->locked.position += n;
		taken += n;
		if (piece->moved < piece->length ||
		    body->locked.position == (uint64_t)body->http->size)
			break;
		sl_list_remove(&piece->link);
		sl_list_append(done, &piece->link);
	}
	return taken;
}

size_t sl_http_body_take(struct sl_http_body *body, const char *data, size_t bytes)
{
	size_t skipped, taken, result = bytes;
	struct sl_list done;
	char *rest;

	sl_list_init(&done);
	sl_mutex_lock(&body->mutex);
	body->locked.paused = body->locked.rest_bytes;
	if (body->locked.dropped || body->locked.paused) {
		result = body->locked.dropped ? 0 : CURL_WRITEFUNC_PAUSE;
		sl_mutex_unlock(&body->mutex);
		return result;
	}
	skipped = SL_MIN(bytes, body->locked.skip);
	body->locked.skip -= skipped;
	taken = skipped + fill(body, data + skipped, bytes - skipped, &done);
	if (taken < bytes) {
		rest = realloc(body->locked.rest, bytes - taken);
		if (rest) {
			body->locked.rest = memcpy(rest, data + taken, bytes - taken);
			body->locked.rest_bytes = bytes - taken;
		} else {
			result = 0;
		}
	}
	sl_mutex_unlock(&body->mutex);
	end_pieces(&done, 0, NULL);
	return result;
}

/* Ends the file's pieces that have nothing to wait for. The mutex is held. */
static void settle(struct sl_http_body *body, struct sl_list *done)
{
	size_t taken = fill(body, body->locked.rest, body->locked.rest_bytes, done);
	struct sl_list *link;

	body->locked.rest_bytes -= taken;
	if (taken)
		memmove(body->locked.rest, body->locked.rest + taken, body->locked.rest_bytes);
	if (!body->locked.whole || body->locked.rest_bytes)
		return;
	while ((link = sl_list_take(&body->locked.pieces)))
		sl_list_append(done, link);
	body->locked.next = body->locked.position;
}

/* From the first byte on. The mutex is held. */
static void rewind_body(struct sl_http_body *body)
{
	body->locked.position = body->locked.skip = body->locked.next = 0;
	body->locked.rest_bytes = 0;
	body->locked.whole = false;
}

/* The mutex is held. False: there is no memory. */
static bool start(struct sl_http_body *body)
{
	struct sl_http_request *request = sl_http_request_new(body->http, SL_HTTP_GET, NULL);

	body->locked.dropped = body->locked.paused = false;
	if (request)
		body->locked.reactor = sl_http_multi_submit(body->http->multi, request);
	return request;
}

void sl_http_body_submit(struct sl_http_body *body, struct sl_piece *piece)
{
	struct sl_list done;
	char *sentence = NULL;
	int error = 0;

	sl_list_init(&done);
	sl_mutex_lock(&body->mutex);
	if (!piece->offset && body->locked.next && sl_list_empty(&body->locked.pieces)) {
		/* Once more. sl_http_body_over() starts it where the old request is still there. */
		rewind_body(body);
		body->locked.dropped = body->locked.renewed = body->locked.reactor;
	}
	if (piece->offset != body->locked.next)
		error = -ENOTSUP;
	else if (!body->locked.reactor && !body->locked.whole && !start(body))
		error = -ENOMEM;
	if (error) {
		sl_list_append(&done, &piece->link);
	} else {
		body->locked.next += piece->length;
		sl_list_append(&body->locked.pieces, &piece->link);
		settle(body, &done);
		if (body->locked.reactor)
			sl_http_reactor_wake(body->locked.reactor);
	}
	sl_mutex_unlock(&body->mutex);
	if (error == -ENOTSUP && asprintf(&sentence,
	                                  "'%s': the server has no ranges, so it is read from "
	                                  "front to back",
	                                  body->http->name) < 0)
		sentence = NULL;
	end_pieces(&done, error, sentence);
	free(sentence);
}

bool sl_http_body_look(struct sl_http_body *body, CURL *easy)
{
	bool go_on;

	sl_mutex_lock(&body->mutex);
	sl_list_each (link, &body->locked.pieces)
		if (atomic_load_explicit(&SL_CONTAINER(link, struct sl_piece, link)->cancelled,
		                         memory_order_relaxed))
			body->locked.dropped = true;
	go_on = body->locked.paused && !body->locked.rest_bytes;
	body->locked.paused &= !go_on;
	sl_mutex_unlock(&body->mutex);
	if (go_on && easy)
		curl_easy_pause(easy, CURLPAUSE_CONT);
	return go_on;
}

/* What was not handed out yet comes once more; the rest is passed over. */
void sl_http_body_prepare(struct sl_http_body *body)
{
	struct sl_piece *first;

	sl_mutex_lock(&body->mutex);
	first = first_piece(body);
	if (first && !first->offset && !body->versioned)
		first->moved = body->locked.position = 0;
	body->locked.skip = body->locked.position;
	body->locked.rest_bytes = 0;
	body->locked.paused = false;
	sl_mutex_unlock(&body->mutex);
}

unsigned sl_http_body_state(struct sl_http_body *body, uint64_t *position)
{
	struct sl_piece *first;
	unsigned state;

	sl_mutex_lock(&body->mutex);
	first = first_piece(body);
	*position = body->locked.position + body->locked.rest_bytes;
	state = (body->locked.dropped ? SL_HTTP_BODY_DROPPED : 0) |
	        (body->locked.paused ? SL_HTTP_BODY_IDLE : 0) |
	        (!body->versioned && body->locked.position && (!first || first->offset)
	                 ? SL_HTTP_BODY_BEGUN
	                 : 0);
	sl_mutex_unlock(&body->mutex);
	return state;
}

void sl_http_body_over(struct sl_http_body *body, int error, char *sentence)
{
	struct sl_list done, *link;

	sl_list_init(&done);
	sl_mutex_lock(&body->mutex);
	if (!body->locked.renewed && !error) {
		body->locked.whole = true;
		settle(body, &done);
	} else if (!body->locked.renewed) {
		while ((link = sl_list_take(&body->locked.pieces)))
			sl_list_append(&done, link);
		rewind_body(body);
	}
	sl_mutex_unlock(&body->mutex);
	end_pieces(&done, error, sentence);
	free(sentence);
	/* Whoever waits may free it from here on. */
	sl_mutex_lock(&body->mutex);
	body->locked.reactor = NULL;
	body->locked.renewed = false;
	/* Pieces that have come meanwhile are of another request. */
	if (first_piece(body) && !body->locked.whole && !start(body))
		while ((link = sl_list_take(&body->locked.pieces)))
			sl_list_append(&done, link);
	pthread_cond_broadcast(&body->ended);
	sl_mutex_unlock(&body->mutex);
	end_pieces(&done, -ENOMEM, NULL);
}

int sl_http_body_new(struct sl_http *http, struct sl_http_body **out)
{
	struct sl_http_body *body = calloc(1, sizeof(*body));
	const char *etag = http->opened.of[SL_HTTP_FIELD_ETAG];

	if (!body)
		return sl_fail(-ENOMEM, "no memory");
	body->http = http;
	body->versioned = (etag && sl_http_strong_etag(etag)) || http->modified_ns;
	sl_mutex_init(&body->mutex);
	pthread_cond_init(&body->ended, NULL);
	sl_list_init(&body->locked.pieces);
	*out = body;
	return 0;
}

void sl_http_body_free(struct sl_http_body *body)
{
	if (!body)
		return;
	sl_mutex_lock(&body->mutex);
	body->locked.dropped = true;
	/* Ended by the reactor, which ends the transfer. */
	while (body->locked.reactor) {
		sl_http_reactor_wake(body->locked.reactor);
		sl_cond_wait(&body->ended, &body->mutex, SL_FOREVER);
	}
	sl_mutex_unlock(&body->mutex);
	free(body->locked.rest);
	pthread_cond_destroy(&body->ended);
	sl_mutex_destroy(&body->mutex);
	free(body);
}
