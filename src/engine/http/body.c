/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Objects without ranges
 *
 * Reads an object from a server without ranges: a single GET fills the pieces, one behind the
 * other. While no piece waits the transfer is paused, so only the bytes from a single call by
 * libcurl are kept. If the opening's GET brings the whole object it is the first: paused before its
 * first byte, for a while, and for so many files at most.
 *
 * Threads: any thread submits pieces; the reactor that moves the request fills them. Closing the
 * file waits for its end.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "http/http_internal.h"

#define MOST_UNREAD 32

struct sl_http_body {
	struct sl_http *http;
	/* Another answer shows whether its bytes are the same. Set by open. */
	bool versioned;
	_Atomic bool dropped; /* the request is to be ended */

	struct sl_mutex mutex;
	pthread_cond_t ended; /* reactor became NULL */
	struct {
		struct sl_list pieces; /* without gaps */
		uint64_t next;         /* where the next piece begins */
		uint64_t position;     /* the first byte that no piece has */
		uint64_t skip;         /* bytes from this attempt that pieces have already */
		char *rest;            /* bytes from position on, without a piece */
		size_t rest_bytes;
		struct sl_http_reactor *reactor; /* moves the request; NULL: there is none */
		bool paused;                     /* the transfer waits for a piece, */
		bool unread;                     /* and for the first since the opening */
		bool whole;                      /* the body's end has come */
		bool renewed; /* the request is dropped, and all pieces are for the next */
	} locked SL_GUARDED_BY(&mutex);
};

static struct sl_piece *body_first_piece_locked(struct sl_http_body *body) SL_REQUIRES(&body->mutex)
{
	return sl_list_first(&body->locked.pieces, struct sl_piece, link);
}

/* Fills pieces, and moves full ones to done. If the length is known the last piece ends with the
 * request. Returns how many bytes were taken. */
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
		sl_list_move(&piece->link, done);
	}
	return taken;
}

/* Fills pieces from the rest; after the body's end moves all pieces to done. */
static void body_settle_locked(struct sl_http_body *body, struct sl_list *done)
	SL_REQUIRES(&body->mutex)
{
	size_t taken = body_fill_locked(body, body->locked.rest, body->locked.rest_bytes, done);

	body->locked.rest_bytes -= taken;
	if (taken)
		memmove(body->locked.rest, body->locked.rest + taken, body->locked.rest_bytes);
	if (!body->locked.whole || body->locked.rest_bytes)
		return;
	sl_list_take_all(&body->locked.pieces, done);
	body->locked.next = body->locked.position;
}

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
	struct sl_http_request *request = sl_http_request_new(body->http, &sl_http_kind_body);

	body->dropped = body->locked.paused = false;
	if (request)
		body->locked.reactor = sl_http_multi_submit(body->http->multi, request);
	return request;
}

void sl_http_body_submit(struct sl_http_body *body, struct sl_piece *piece)
{
	struct sl_list done = SL_LIST_INIT(done);
	int error = 0;

	sl_mutex_lock(&body->mutex);
	body_read_locked(body);
	if (!piece->offset && body->locked.next && sl_list_empty(&body->locked.pieces)) {
		/* It is read again. body_end() starts the new request if the old still runs. */
		body_rewind_locked(body);
		body->dropped = body->locked.renewed = body->locked.reactor;
	}
	if (piece->offset != body->locked.next)
		error = -ENOTSUP;
	else if (!body->locked.reactor && !body->locked.whole && !body_start_locked(body))
		error = -ENOMEM;
	if (!error) {
		body->locked.next += piece->length;
		sl_list_append(&body->locked.pieces, &piece->link);
		body_settle_locked(body, &done);
		if (body->locked.reactor)
			sl_http_reactor_wake(body->locked.reactor);
	}
	sl_mutex_unlock(&body->mutex);
	sl_http_end_pieces(&done, 0, NULL);
	if (error)
		sl_http_end_piece(piece, error,
		                  error == -ENOMEM ? NULL
		                                   : sl_format("'%s': the server has no ranges, so "
		                                               "it is read from front to back",
		                                               body->http->name));
}

/* -------------------------------------------------------------------------------------- kind */

static bool body_is_unwanted(const struct sl_http_request *request)
{
	return atomic_load(&request->http->body->dropped);
}

/* An attempt begins at the first byte: bytes in pieces are skipped. */
static void body_prepare(struct sl_http_request *request)
{
	struct sl_http_body *body = request->http->body;
	struct sl_piece *first;

	sl_mutex_lock(&body->mutex);
	first = body_first_piece_locked(body);
	if (first && !first->offset && !body->versioned)
		first->moved = body->locked.position = 0;
	request->moved = body->locked.skip = body->locked.position;
	body->locked.rest_bytes = 0;
	body->locked.paused = false;
	sl_mutex_unlock(&body->mutex);
}

/* Fills pieces, and keeps the rest. */
static size_t body_take(struct sl_http_request *request, const char *data, size_t bytes)
{
	struct sl_http_body *body = request->http->body;
	int64_t size = request->http->size;
	size_t skipped, taken, result = bytes;
	struct sl_list done = SL_LIST_INIT(done);
	char *rest;

	if (!sl_http_accepts(request))
		return sl_http_error_take(request, data, bytes) ? bytes : 0;
	if (size >= 0 && bytes > (uint64_t)size - request->response.got) {
		sl_http_fail_protocol(request, "more bytes than were asked for");
		return 0;
	}
	sl_mutex_lock(&body->mutex);
	body->locked.paused = body->locked.rest_bytes;
	if (body->dropped || body->locked.paused) {
		result = body->dropped ? 0 : CURL_WRITEFUNC_PAUSE;
		sl_mutex_unlock(&body->mutex);
		return result;
	}
	skipped = SL_MIN(bytes, body->locked.skip);
	body->locked.skip -= skipped;
	taken = skipped + body_fill_locked(body, data + skipped, bytes - skipped, &done);
	if (taken < bytes && (rest = realloc(body->locked.rest, bytes - taken))) {
		body->locked.rest = memcpy(rest, data + taken, bytes - taken);
		body->locked.rest_bytes = bytes - taken;
	} else if (taken < bytes) {
		result = 0;
	}
	request->moved = body->locked.position + body->locked.rest_bytes;
	sl_mutex_unlock(&body->mutex);
	sl_http_end_pieces(&done, 0, NULL);
	if (result)
		sl_http_begun(request, bytes);
	return result;
}

/* Drops the request if a piece was cancelled. Silence has a reason while no piece waits. */
static bool body_look(struct sl_http_request *request, CURL *easy)
{
	struct sl_http_body *body = request->http->body;
	bool idle, go_on;

	sl_mutex_lock(&body->mutex);
	sl_list_each_of (piece, &body->locked.pieces, struct sl_piece, link)
		body->dropped |= atomic_load(&piece->cancelled);
	idle = body->locked.paused && !body->locked.unread;
	go_on = idle && !body->locked.rest_bytes;
	body->locked.paused &= !go_on;
	sl_mutex_unlock(&body->mutex);
	if (go_on && easy)
		curl_easy_pause(easy, CURLPAUSE_CONT);
	return idle;
}

/* If no read has come since the opening, a read will make another request. */
static bool body_ended(struct sl_http_request *request)
{
	struct sl_http_body *body = request->http->body;
	bool unread;

	sl_mutex_lock(&body->mutex);
	unread = body->locked.unread;
	body->locked.renewed |= unread;
	body_read_locked(body);
	sl_mutex_unlock(&body->mutex);
	return unread;
}

static enum sl_http_verdict body_judge(struct sl_http_request *request)
{
	int64_t size = request->http->size;

	if (!sl_http_accepts(request))
		return SL_HTTP_FAILED;
	return size < 0 || request->response.got == (uint64_t)size
	               ? SL_HTTP_DONE
	               : sl_http_request_retry(request, -EIO, SL_HTTP_SHORT);
}

/* After pieces are over another attempt may bring other bytes. */
static const char *body_stuck(const struct sl_http_request *request)
{
	struct sl_http_body *body = request->http->body;
	struct sl_piece *first;
	bool stuck;

	sl_mutex_lock(&body->mutex);
	first = body_first_piece_locked(body);
	stuck = body->locked.position && !body->versioned && (!first || first->offset);
	sl_mutex_unlock(&body->mutex);
	return stuck ? ", and without ranges, ETag and Last-Modified it cannot go on in the middle"
	             : NULL;
}

static void body_end(struct sl_http_request *request)
{
	struct sl_http_body *body = request->http->body;
	struct sl_list done = SL_LIST_INIT(done);
	char *sentence = request->sentence;
	int error = request->error;

	request->sentence = NULL;
	sl_http_request_free(request);
	sl_mutex_lock(&body->mutex);
	if (!body->locked.renewed && !error) {
		body->locked.whole = true;
		body_settle_locked(body, &done);
	} else if (!body->locked.renewed) {
		sl_list_take_all(&body->locked.pieces, &done);
		body_rewind_locked(body);
	}
	sl_mutex_unlock(&body->mutex);
	sl_http_end_pieces(&done, error, sentence);
	free(sentence);
	/* Once reactor is NULL sl_http_body_free() may free the body. */
	sl_mutex_lock(&body->mutex);
	body->locked.reactor = NULL;
	body->locked.renewed = false;
	/* Pieces submitted meanwhile need another request. */
	if (body_first_piece_locked(body) && !body->locked.whole && !body_start_locked(body))
		sl_list_take_all(&body->locked.pieces, &done);
	pthread_cond_broadcast(&body->ended);
	sl_mutex_unlock(&body->mutex);
	sl_http_end_pieces(&done, -ENOMEM, NULL);
}

const struct sl_http_kind sl_http_kind_body = {
	.verb = "GET",
	.bytes = sizeof(struct sl_http_request),
	.stream = true,
	.unwanted = body_is_unwanted,
	.prepare = body_prepare,
	.take = body_take,
	.look = body_look,
	.ended = body_ended,
	.judge = body_judge,
	.stuck = body_stuck,
	.end = body_end,
};

/* ------------------------------------------------------------------------------- opening, end */

/* No other thread has the body yet, or it waits for the first piece. */
int sl_http_body_make(struct sl_http *http) SL_UNCHECKED
{
	struct sl_http_body *body = http->body ? http->body : calloc(1, sizeof(*body));
	const char *etag = http->opened.of[SL_HTTP_FIELD_ETAG];

	if (!body)
		return sl_fail(-ENOMEM, "no memory");
	body->versioned = (etag && sl_strong_etag(etag)) || http->modified_ns;
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
		request = sl_http_request_new(http, &sl_http_kind_body);
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

void sl_http_body_free(struct sl_http_body *body)
{
	if (!body)
		return;
	sl_mutex_lock(&body->mutex);
	body->dropped = true;
	body_read_locked(body);
	/* Ended by body_end(), on the reactor. */
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
