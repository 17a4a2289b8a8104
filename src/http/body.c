/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Objects without ranges
 *
 * Reads an object whose server has no ranges: a single GET, from which pieces are filled, each from the end of its
 * predecessor. While no piece waits the transfer is paused, so that no more of the body is kept than a single call of libcurl
 * brings. The first GET is that of the opening, if it answered with the whole object: paused before its first byte, for a
 * while, and for so many files at most.
 *
 * Threads: pieces are submitted on any thread; the reactor that moves the request fills them. Closing the file waits
 * for the end of the request.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "http/body.h"

#define MOST_UNREAD 32

struct sl_http_body {
	struct sl_http *http;
	/* The response to another attempt shows whether the bytes are the same. Set by open, before the first piece. */
	bool versioned;

	struct sl_mutex mutex;
	pthread_cond_t ended; /* reactor became NULL */
	struct {
		struct sl_list pieces; /* without gaps */
		uint64_t next;         /* offset of the next piece */
		uint64_t position;     /* offset of the first byte that no piece has */
		uint64_t skip;         /* bytes of this attempt that pieces have already */
		char *rest;            /* bytes from position on that came without a piece */
		size_t rest_bytes;
		struct sl_http_reactor *reactor; /* of the request; NULL: there is no request */
		bool paused;                     /* the transfer waits for a piece, */
		bool unread;                     /* and for the first since the opening */
		bool whole;                      /* the end of the body has come */
		bool dropped;                    /* the request is to be ended, */
		bool renewed;                    /* and all pieces are of the next request */
	} locked SL_GUARDED_BY(&mutex);
};

static struct sl_piece *body_first_piece_locked(struct sl_http_body *body) SL_REQUIRES(&body->mutex)
{
	struct sl_list *link = body->locked.pieces.next;

	return link == &body->locked.pieces ? NULL : SL_CONTAINER(link, struct sl_piece, link);
}

/*
 * Fills pieces, and moves those that are over to done. If the length is known the last piece ends with the request.
 * Returns how many bytes were taken.
 */
static size_t body_fill_locked(struct sl_http_body *body, const char *data, size_t bytes,
                               struct sl_list *done) SL_REQUIRES(&body->mutex)
{
	struct sl_piece *piece;
	size_t taken = 0;

	while (taken < bytes && (piece = body_first_piece_locked(body))) {
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
	taken = skipped + body_fill_locked(body, data + skipped, bytes - skipped, &done);
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
	sl_http_end_pieces(&done, 0, NULL);
	return result;
}

/* Fills pieces from the rest; after the end of the body moves all pieces to done. */
static void body_settle_locked(struct sl_http_body *body, struct sl_list *done)
	SL_REQUIRES(&body->mutex)
{
	size_t taken = body_fill_locked(body, body->locked.rest, body->locked.rest_bytes, done);
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

/* Continues at the first byte. */
static void body_rewind_locked(struct sl_http_body *body) SL_REQUIRES(&body->mutex)
{
	body->locked.position = body->locked.skip = body->locked.next = 0;
	body->locked.rest_bytes = 0;
	body->locked.whole = false;
}

static void body_read_locked(struct sl_http_body *body) SL_REQUIRES(&body->mutex)
{
	if (body->locked.unread)
		atomic_fetch_sub(&body->http->engine->unread, 1);
	body->locked.unread = false;
}

/* Starts a request. Returns false if there is no memory. */
static bool body_start_locked(struct sl_http_body *body) SL_REQUIRES(&body->mutex)
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
	body_read_locked(body);
	if (!piece->offset && body->locked.next && sl_list_empty(&body->locked.pieces)) {
		/* The object is read again. If the old request still runs, sl_http_body_over() starts the new request. */
		body_rewind_locked(body);
		body->locked.dropped = body->locked.renewed = body->locked.reactor;
	}
	if (piece->offset != body->locked.next)
		error = -ENOTSUP;
	else if (!body->locked.reactor && !body->locked.whole && !body_start_locked(body))
		error = -ENOMEM;
	if (error) {
		sl_list_append(&done, &piece->link);
	} else {
		body->locked.next += piece->length;
		sl_list_append(&body->locked.pieces, &piece->link);
		body_settle_locked(body, &done);
		if (body->locked.reactor)
			sl_http_reactor_wake(body->locked.reactor);
	}
	sl_mutex_unlock(&body->mutex);
	if (error == -ENOTSUP)
		sentence = sl_format(
			"'%s': the server has no ranges, so it is read from front to back",
			body->http->name);
	sl_http_end_pieces(&done, error, sentence);
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
	go_on = body->locked.paused && !body->locked.unread && !body->locked.rest_bytes;
	body->locked.paused &= !go_on;
	sl_mutex_unlock(&body->mutex);
	if (go_on && easy)
		curl_easy_pause(easy, CURLPAUSE_CONT);
	return go_on;
}

/* The next attempt begins at the first byte: bytes that pieces have already are skipped. */
void sl_http_body_prepare(struct sl_http_body *body)
{
	struct sl_piece *first;

	sl_mutex_lock(&body->mutex);
	first = body_first_piece_locked(body);
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
	first = body_first_piece_locked(body);
	*position = body->locked.position + body->locked.rest_bytes;
	state = (body->locked.dropped ? SL_HTTP_BODY_DROPPED : 0) |
	        (body->locked.paused && !body->locked.unread ? SL_HTTP_BODY_IDLE : 0) |
	        (body->locked.position && !body->versioned && (!first || first->offset)
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
		body_settle_locked(body, &done);
	} else if (!body->locked.renewed) {
		while ((link = sl_list_take(&body->locked.pieces)))
			sl_list_append(&done, link);
		body_rewind_locked(body);
	}
	sl_mutex_unlock(&body->mutex);
	sl_http_end_pieces(&done, error, sentence);
	free(sentence);
	/* Once reactor is NULL sl_http_body_free() may free the body. */
	sl_mutex_lock(&body->mutex);
	body->locked.reactor = NULL;
	body->locked.renewed = false;
	/* Pieces that were submitted meanwhile need another request. */
	if (body_first_piece_locked(body) && !body->locked.whole && !body_start_locked(body))
		while ((link = sl_list_take(&body->locked.pieces)))
			sl_list_append(&done, link);
	pthread_cond_broadcast(&body->ended);
	sl_mutex_unlock(&body->mutex);
	sl_http_end_pieces(&done, -ENOMEM, NULL);
}

/* No other thread has the body yet, or it waits for the first piece. */
int sl_http_body_make(struct sl_http *http) SL_UNCHECKED
{
	struct sl_http_body *body = http->body ? http->body : calloc(1, sizeof(*body));
	const char *etag = http->opened.of[SL_HTTP_FIELD_ETAG];

	if (!body)
		return sl_fail(-ENOMEM, "no memory");
	body->versioned = (etag && sl_http_strong_etag(etag)) || http->modified_ns;
	if (http->body)
		return 0;
	body->http = http;
	sl_mutex_init(&body->mutex);
	pthread_cond_init(&body->ended, NULL);
	sl_list_init(&body->locked.pieces);
	http->body = body;
	return 0;
}

/* Open waits, and no other thread has the body yet. */
struct sl_http_request *sl_http_body_keep(struct sl_http_request *probe) SL_UNCHECKED
{
	struct sl_http *http = probe->http;
	CURL *easy = probe->transfer->easy;
	struct sl_http_request *request = NULL;

	if (atomic_fetch_add(&http->engine->unread, 1) < MOST_UNREAD && !sl_http_body_make(http))
		request = sl_http_request_new(http, SL_HTTP_GET, NULL);
	if (!request) {
		atomic_fetch_sub(&http->engine->unread, 1);
		return NULL;
	}
	http->body->locked.reactor = probe->transfer->reactor;
	http->body->locked.paused = http->body->locked.unread = true;
	request->transfer = probe->transfer;
	request->lines = probe->lines;
	request->lines_rest = probe->lines_rest;
	probe->transfer = NULL;
	probe->lines = NULL;
	request->asked = request->since = request->alive = probe->alive;
	request->slow = SL_FOREVER;
	request->response.status = probe->response.status;
	request->response.retry_after = -1;
	request->response.complete = request->response.judged = request->response.accepted = true;
	curl_easy_setopt(easy, CURLOPT_PRIVATE, request);
	curl_easy_setopt(easy, CURLOPT_HEADERDATA, request);
	curl_easy_setopt(easy, CURLOPT_WRITEDATA, request);
	return request;
}

bool sl_http_body_is_unread(struct sl_http_body *body)
{
	bool unread;

	sl_mutex_lock(&body->mutex);
	unread = body->locked.unread;
	body->locked.renewed |= unread;
	body_read_locked(body);
	sl_mutex_unlock(&body->mutex);
	return unread;
}

void sl_http_body_free(struct sl_http_body *body)
{
	if (!body)
		return;
	sl_mutex_lock(&body->mutex);
	body->locked.dropped = true;
	body_read_locked(body);
	/* Ended by sl_http_body_over(), on the reactor, which ends the transfer. */
	while (body->locked.reactor) {
		sl_http_reactor_wake(body->locked.reactor);
		sl_cond_wait(&body->ended, &body->mutex, SL_FOREVER);
	}
	free(body->locked.rest);
	sl_mutex_unlock(&body->mutex);
	pthread_cond_destroy(&body->ended);
	sl_mutex_destroy(&body->mutex);
	free(body);
}
