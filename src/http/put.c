/* SPDX-License-Identifier: Apache-2.0 */
#include "http/put.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define UPLOAD_BUFFER (512L << 10)
#define KEPT_BYTES    ((size_t)64 << 10)

/* Bytes that wait to be sent. */
struct part {
	struct sl_list link;
	uint64_t offset;
	size_t length, sent;
	const char *data;
	struct sl_piece *piece; /* whose data it is; NULL: a copy behind the part */
};

struct sl_http_put {
	struct sl_http *http;
	struct curl_slist *fields;
	uint64_t announced; /* the length, 0: it was not said */
	bool exclusive;
	bool unexpected; /* Expect is not sent; of the thread that moves the request */

	struct sl_mutex mutex;
	pthread_cond_t ended; /* over became true */
	struct {
		struct sl_list parts; /* by offset; they do not overlap */
		uint64_t position;    /* bytes sent */
		size_t copied;        /* bytes of copies */
		/* All bytes sent, while they fit: they can be sent again. NULL: there were more. */
		char *kept;
		size_t resent;                   /* of these, by this attempt */
		struct sl_http_reactor *reactor; /* that has the request; NULL: there is none */
		bool paused;                     /* the transfer waits for bytes */
		bool complete;                   /* the caller has written everything */
		bool dropped;                    /* nobody wants it any more */
		bool over;                       /* the request is over, or never was */
		bool has_last;                   /* the last byte is held back until the commit */
		char last;
		int error;
		char *sentence;
	} locked; /* guarded by mutex */
};

/* ------------------------------------------------------------------------------------- parts */

static struct part *first_part(struct sl_http_put *put)
{
	struct sl_list *link = put->locked.parts.next;

	return link == &put->locked.parts ? NULL : SL_CONTAINER(link, struct part, link);
}

/* Where the bytes end that follow each other from the position on. The mutex is held. */
static uint64_t chain_end(struct sl_http_put *put)
{
	uint64_t end = put->locked.position + put->locked.has_last;

	sl_list_each (link, &put->locked.parts) {
		struct part *part = SL_CONTAINER(link, struct part, link);

		if (part->offset + part->sent > end)
			break;
		end = part->offset + part->length;
	}
	return end;
}

/* In its place among the others; false: it overlaps one, or what was sent. The mutex is held. */
static bool insert(struct sl_http_put *put, struct part *part)
{
	struct sl_list *before = &put->locked.parts;

	if (part->offset < put->locked.position + put->locked.has_last)
		return false;
	sl_list_each (link, &put->locked.parts) {
		struct part *other = SL_CONTAINER(link, struct part, link);

		if (other->offset >= part->offset + part->length) {
			before = link;
			break;
		}
		if (other->offset + other->length > part->offset)
			return false;
	}
	sl_list_append(before, &part->link);
	return true;
}

static void part_free(struct sl_http_put *put, struct part *part)
{
	if (!part->piece)
		put->locked.copied -= part->length;
	free(part);
}

/* Takes the pieces of all parts that `which` chooses; their part is freed. The mutex is held. */
static void take_pieces(struct sl_http_put *put, bool (*which)(struct part *), struct sl_list *out)
{
	struct sl_list *link, *next;

	for (link = put->locked.parts.next; link != &put->locked.parts; link = next) {
		struct part *part = SL_CONTAINER(link, struct part, link);

		next = link->next;
		if (!which(part))
			continue;
		sl_list_remove(link);
		if (part->piece)
			sl_list_append(out, &part->piece->link);
		part_free(put, part);
	}
}

static bool any(struct part *part)
{
	(void)part;
	return true;
}

static bool is_cancelled(struct part *part)
{
	return part->piece && atomic_load_explicit(&part->piece->cancelled, memory_order_relaxed);
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

/* -------------------------------------------------------------------------------------- send */

/* How much of a part may go now: the last announced byte waits for the commit. */
static size_t sendable(struct sl_http_put *put, const struct part *part, size_t room)
{
	size_t left = SL_MIN(part->length - part->sent, room);

	if (put->announced && !put->locked.complete &&
	    put->locked.position + left >= put->announced)
		left = put->announced - put->locked.position - 1;
	return left;
}

/* Bytes have been sent: keeps them, if all of them fit. The mutex is held. */
static void keep(struct sl_http_put *put, const char *bytes, size_t n)
{
	if (put->locked.kept && put->locked.position <= KEPT_BYTES) {
		memcpy(put->locked.kept + put->locked.position - n, bytes, n);
		put->locked.resent = put->locked.position;
	} else {
		free(put->locked.kept);
		put->locked.kept = NULL;
	}
}

/* Whether everything was sent that there will be. The mutex is held. */
static bool is_whole(struct sl_http_put *put)
{
	return put->locked.complete && !first_part(put) && !put->locked.has_last &&
	       (!put->locked.kept || put->locked.resent == put->locked.position);
}

/*
 * libcurl asks for bytes. Whether a server that was sent everything keeps it does not depend on us
 * any more; so one byte is held back, and its operation ended, until sluice_close() says so.
 */
static size_t on_read(char *to, size_t size, size_t count, void *argument)
{
	struct sl_http_put *put = argument;
	size_t room = size * count, taken = 0, again = 0;
	struct sl_list ended;
	struct part *part;

	sl_list_init(&ended);
	sl_mutex_lock(&put->mutex);
	if (put->locked.dropped) {
		sl_mutex_unlock(&put->mutex);
		return CURL_READFUNC_ABORT;
	}
	if (put->locked.kept) {
		again = taken = SL_MIN(room, put->locked.position - put->locked.resent);
		memcpy(to, put->locked.kept + put->locked.resent, taken);
		put->locked.resent += taken;
	}
	while (taken < room && (part = first_part(put)) &&
	       part->offset + part->sent == put->locked.position) {
		size_t bytes = sendable(put, part, room - taken);

		memcpy(to + taken, part->data + part->sent, bytes);
		part->sent += bytes;
		put->locked.position += bytes;
		taken += bytes;
		if (part->sent + 1 == part->length && put->announced && !put->locked.complete &&
		    put->locked.position + 1 == put->announced) {
			put->locked.last = part->data[part->sent];
			put->locked.has_last = true;
		} else if (part->sent < part->length) {
			break;
		}
		sl_list_remove(&part->link);
		if (part->piece) {
			part->piece->moved = part->piece->length;
			sl_list_append(&ended, &part->piece->link);
		}
		part_free(put, part);
	}
	if (put->locked.complete && put->locked.has_last && taken < room) {
		to[taken++] = put->locked.last;
		put->locked.has_last = false;
		put->locked.position++;
	}
	if (taken > again)
		keep(put, to + again, taken - again);
	put->locked.paused = !taken && !put->locked.complete;
	if (put->locked.paused)
		taken = CURL_READFUNC_PAUSE;
	sl_mutex_unlock(&put->mutex);
	end_pieces(&ended, 0, NULL);
	return taken;
}

/*
 * Whether it can begin anew. With EXCLUSIVE a server that was sent everything may have it, and would refuse
 * it the second time. The mutex is held.
 */
static bool is_repeatable(struct sl_http_put *put)
{
	return !put->locked.position || (put->locked.kept && !(put->exclusive && is_whole(put)));
}

void sl_http_put_prepare(struct sl_http_put *put, CURL *easy)
{
	uint64_t stall = put->http->core->settings.http_stall_ms;
	bool empty;

	sl_mutex_lock(&put->mutex);
	put->locked.resent = 0;
	empty = !put->locked.position && is_whole(put);
	put->locked.paused = false;
	sl_mutex_unlock(&put->mutex);
	/* A server that knows nothing of Expect is silent meanwhile, which is to be no stall. */
	curl_easy_setopt(easy, CURLOPT_EXPECT_100_TIMEOUT_MS, (long)SL_MIN(1000, stall / 2));
	curl_easy_setopt(easy, CURLOPT_UPLOAD, 1L);
	curl_easy_setopt(easy, CURLOPT_READFUNCTION, on_read);
	curl_easy_setopt(easy, CURLOPT_READDATA, put);
	curl_easy_setopt(easy, CURLOPT_UPLOAD_BUFFERSIZE, UPLOAD_BUFFER);
	curl_easy_setopt(easy, CURLOPT_HTTPHEADER, put->fields);
	if (put->announced || empty)
		curl_easy_setopt(easy, CURLOPT_INFILESIZE_LARGE, (curl_off_t)put->announced);
}

unsigned sl_http_put_state(struct sl_http_put *put)
{
	unsigned state;

	sl_mutex_lock(&put->mutex);
	state = (is_repeatable(put) ? 0 : SL_HTTP_PUT_BEGUN) |
	        (put->locked.paused ? SL_HTTP_PUT_IDLE : 0) |
	        (put->locked.dropped ? SL_HTTP_PUT_DROPPED : 0);
	sl_mutex_unlock(&put->mutex);
	return state;
}

bool sl_http_put_look(struct sl_http_put *put, CURL *easy)
{
	struct sl_list cancelled;
	struct part *part;
	bool go_on;

	sl_list_init(&cancelled);
	sl_mutex_lock(&put->mutex);
	take_pieces(put, is_cancelled, &cancelled);
	/* The operation may have sent its beginning: the object would lack the rest. */
	if (!sl_list_empty(&cancelled))
		put->locked.dropped = true;
	part = first_part(put);
	go_on = put->locked.paused && (put->locked.dropped || put->locked.complete ||
	                               (part && part->offset == put->locked.position));
	if (go_on)
		put->locked.paused = false;
	sl_mutex_unlock(&put->mutex);
	end_pieces(&cancelled, -ECANCELED, NULL);
	if (go_on && easy)
		curl_easy_pause(easy, CURLPAUSE_CONT);
	return go_on;
}

bool sl_http_put_is_whole(struct sl_http_put *put)
{
	bool whole;

	sl_mutex_lock(&put->mutex);
	whole = is_whole(put);
	sl_mutex_unlock(&put->mutex);
	return whole;
}

bool sl_http_put_without_expect(struct sl_http_put *put)
{
	if (put->unexpected || !curl_slist_append(put->fields, "Expect:"))
		return false;
	put->unexpected = true;
	return true;
}

void sl_http_put_over(struct sl_http_put *put, int error, char *sentence)
{
	struct sl_list pieces;

	sl_list_init(&pieces);
	sl_mutex_lock(&put->mutex);
	put->locked.error = error;
	put->locked.sentence = sentence;
	take_pieces(put, any, &pieces);
	sl_mutex_unlock(&put->mutex);
	end_pieces(&pieces, error ? error : -EIO, sentence);
	/* Whoever waits may free it from here on. */
	sl_mutex_lock(&put->mutex);
	put->locked.over = true;
	pthread_cond_broadcast(&put->ended);
	sl_mutex_unlock(&put->mutex);
}

/* -------------------------------------------------------------------------------------- write */

/* Starts the request with the first byte. The mutex is held; false: there is no memory. */
static bool start(struct sl_http_put *put)
{
	struct sl_http_request *request;

	if (put->locked.reactor)
		return true;
	request = sl_http_request_new(put->http, SL_HTTP_PUT, NULL);
	if (!request)
		return false;
	put->locked.over = false;
	put->locked.reactor = sl_http_multi_submit(put->http->multi, request);
	return true;
}

/* Why the piece cannot be taken, or NULL. The mutex is held. */
static const char *refusal(struct sl_http_put *put, const struct sl_piece *piece, int *error)
{
	uint64_t end = piece->offset + piece->length;

	*error = -ESPIPE;
	if (put->locked.error) {
		*error = put->locked.error;
		return put->locked.sentence ? put->locked.sentence : "the upload failed";
	}
	if (put->locked.dropped)
		return "the upload was cancelled";
	if (put->announced && end > put->announced) {
		*error = -EFBIG;
		return "more is written than expected_size said when it was opened";
	}
	if (piece->offset > chain_end(put) &&
	    put->locked.copied + piece->length > put->http->core->settings.bounce_bytes)
		return "an upload is written front to back, and this is too far ahead";
	return NULL;
}

/* The part of a piece: of its own memory if it comes next, else a copy, which ends the piece. */
static struct part *part_new(struct sl_http_put *put, struct sl_piece *piece)
{
	bool copy = piece->offset != chain_end(put);
	struct part *part = malloc(sizeof(*part) + (copy ? piece->length : 0));

	if (!part)
		return NULL;
	*part = (struct part){.offset = piece->offset, .length = piece->length};
	part->data = copy ? memcpy(part + 1, piece->data, piece->length) : piece->data;
	part->piece = copy ? NULL : piece;
	put->locked.copied += copy ? piece->length : 0;
	return part;
}

void sl_http_put_submit(struct sl_http_put *put, struct sl_piece *piece)
{
	const char *why;
	struct part *part = NULL;
	char *message = NULL;
	int error = 0;
	bool waits = false;

	sl_mutex_lock(&put->mutex);
	why = refusal(put, piece, &error);
	if (!why) {
		part = start(put) ? part_new(put, piece) : NULL;
		error = part ? 0 : -ENOMEM;
	}
	if (part && !insert(put, part)) {
		part_free(put, part);
		part = NULL;
		error = -ESPIPE;
		why = "an upload is written front to back, and this was written already";
	}
	if (part)
		waits = part->piece;
	if (why)
		message = strdup(why);
	if (part)
		sl_http_reactor_wake(put->locked.reactor);
	/* From here on a part that waits is the reactor's. */
	sl_mutex_unlock(&put->mutex);
	if (waits)
		return;
	piece->error = error;
	piece->message = message;
	if (!error)
		piece->moved = piece->length;
	sl_piece_done(piece);
}

/* ------------------------------------------------------------------------------- open and close */

int sl_http_put_new(struct sl_http *http, const struct sluice_open_options *options,
                    struct sl_http_put **out)
{
	struct sl_http_put *put;

	if (options->flags & SLUICE_OPEN_READ)
		return sl_fail(-ENOTSUP, "'%s': a remote file is read or written, not both",
		               http->name);
	if (!(options->flags & SLUICE_OPEN_CREATE))
		return sl_fail(-ENOTSUP,
		               "'%s': a remote file is only written as a whole, with REPLACE or "
		               "CREATE",
		               http->name);
	put = calloc(1, sizeof(*put));
	if (!put)
		return sl_fail(-ENOMEM, "no memory");
	put->http = http;
	put->announced = options->expected_size;
	put->exclusive = options->flags & SLUICE_OPEN_EXCLUSIVE;
	put->locked.over = true;
	/* Without it nothing is sent again. */
	put->locked.kept = malloc(KEPT_BYTES);
	sl_mutex_init(&put->mutex);
	pthread_cond_init(&put->ended, NULL);
	sl_list_init(&put->locked.parts);
	put->fields = curl_slist_append(NULL, "Content-Type: application/octet-stream");
	if (!put->fields ||
	    (put->exclusive && !curl_slist_append(put->fields, "If-None-Match: *"))) {
		sl_http_put_free(put);
		return sl_fail(-ENOMEM, "no memory");
	}
	*out = put;
	return 0;
}

/* Ended by the reactor, with the transfer. */
static void wait_until_over(struct sl_http_put *put)
{
	sl_mutex_lock(&put->mutex);
	if (put->locked.reactor)
		sl_http_reactor_wake(put->locked.reactor);
	while (!put->locked.over)
		sl_cond_wait(&put->ended, &put->mutex, SL_FOREVER);
	sl_mutex_unlock(&put->mutex);
}

int sl_http_put_commit(struct sl_http_put *put)
{
	const char *name = put->http->name;
	uint64_t end;
	bool gap;
	int rc = 0;

	sl_mutex_lock(&put->mutex);
	end = chain_end(put);
	gap = !sl_list_empty(&put->locked.parts) &&
	      SL_CONTAINER(put->locked.parts.previous, struct part, link)->offset >= end;
	if (put->locked.error)
		rc = put->locked.error;
	else if (gap)
		rc = sl_fail(-EINVAL, "'%s': nothing was written at byte %" PRIu64, name, end);
	else if (put->announced && end != put->announced)
		rc = sl_fail(-EINVAL,
		             "'%s': %" PRIu64 " bytes were written, and expected_size was %" PRIu64,
		             name, end, put->announced);
	else if (put->locked.dropped)
		rc = sl_fail(-ECANCELED, "'%s': the upload was cancelled", name);
	put->locked.complete = !rc;
	put->locked.dropped = rc;
	if (!rc && !start(put))
		rc = sl_fail(-ENOMEM, "no memory");
	sl_mutex_unlock(&put->mutex);
	wait_until_over(put);
	if (put->locked.error && (!rc || rc == put->locked.error))
		rc = sl_fail(put->locked.error, "%s",
		             put->locked.sentence ? put->locked.sentence
		                                  : sl_error_text(put->locked.error));
	return rc;
}

void sl_http_put_free(struct sl_http_put *put)
{
	struct sl_list none;

	if (!put)
		return;
	sl_mutex_lock(&put->mutex);
	put->locked.dropped = true;
	sl_mutex_unlock(&put->mutex);
	wait_until_over(put);
	sl_list_init(&none);
	take_pieces(put, any, &none);
	curl_slist_free_all(put->fields);
	free(put->locked.kept);
	free(put->locked.sentence);
	pthread_cond_destroy(&put->ended);
	sl_mutex_destroy(&put->mutex);
	free(put);
}
