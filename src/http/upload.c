/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Uploads
 *
 * Writes a remote file by a single PUT of the whole object, front to back. Objects of S3: multipart.c.
 *
 * Threads: pieces are submitted on any thread; the reactor that moves the request sends them. sluice_close() commits:
 * it waits for the end of the request.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "http/upload.h"

#define UPLOAD_BUFFER (512L << 10)
#define KEPT_BYTES    ((size_t)64 << 10)

/* A range of bytes that waits to be sent. */
struct unsent {
	struct sl_list link;
	uint64_t offset;
	size_t length, sent;
	const char *data;
	struct sl_piece *piece; /* of the data; NULL: the data is a copy behind this struct */
};

struct sl_http_upload {
	struct sl_http *http;
	struct sl_http_fields fields;
	uint64_t
		announced; /* the length (expected_size), 0: unknown; fixed when the request begins */
	bool exclusive;
	bool unexpected; /* Expect is not sent; of the thread that moves the request */

	struct sl_mutex mutex;
	pthread_cond_t ended; /* over became true */
	struct {
		struct sl_list unsent; /* by offset; without overlaps */
		uint64_t position;     /* bytes sent */
		size_t copied;         /* bytes of copies */
		/* All bytes sent, so that another attempt can send them again; NULL: there were too many. */
		char *kept;
		size_t resent;                   /* bytes of kept that this attempt has sent */
		struct sl_http_reactor *reactor; /* of the request; NULL: there is no request */
		bool paused;                     /* the transfer waits for bytes */
		bool complete;                   /* the caller has written everything */
		bool dropped;                    /* the request is to be ended */
		bool over;                       /* there is no request, or it is over */
		bool has_last;                   /* the last byte is held back until the commit */
		char last;
		int error;
		char *sentence;
	} locked SL_GUARDED_BY(&mutex);
};

/* ------------------------------------------------------------------------------------- unsent */

static struct unsent *upload_first_locked(struct sl_http_upload *upload) SL_REQUIRES(&upload->mutex)
{
	struct sl_list *link = upload->locked.unsent.next;

	return link == &upload->locked.unsent ? NULL : SL_CONTAINER(link, struct unsent, link);
}

/* Returns the end of the bytes that follow the position without a gap. */
static uint64_t upload_chain_end_locked(struct sl_http_upload *upload) SL_REQUIRES(&upload->mutex)
{
	uint64_t end = upload->locked.position + upload->locked.has_last;

	sl_list_each (link, &upload->locked.unsent) {
		struct unsent *unsent = SL_CONTAINER(link, struct unsent, link);

		if (unsent->offset + unsent->sent > end)
			break;
		end = unsent->offset + unsent->length;
	}
	return end;
}

/* Inserts a range by its offset. Returns false if it overlaps another range, or bytes that were sent. */
static bool upload_insert_locked(struct sl_http_upload *upload, struct unsent *unsent)
	SL_REQUIRES(&upload->mutex)
{
	struct sl_list *before = &upload->locked.unsent;

	if (unsent->offset < upload->locked.position + upload->locked.has_last)
		return false;
	sl_list_each (link, &upload->locked.unsent) {
		struct unsent *other = SL_CONTAINER(link, struct unsent, link);

		if (other->offset >= unsent->offset + unsent->length) {
			before = link;
			break;
		}
		if (other->offset + other->length > unsent->offset)
			return false;
	}
	sl_list_append(before, &unsent->link);
	return true;
}

static void unsent_free_locked(struct sl_http_upload *upload, struct unsent *unsent)
	SL_REQUIRES(&upload->mutex)
{
	if (!unsent->piece)
		upload->locked.copied -= unsent->length;
	free(unsent);
}

/* Removes all ranges that match and frees them; moves their pieces to out. */
static void upload_take_pieces_locked(struct sl_http_upload *upload, bool (*match)(struct unsent *),
                                      struct sl_list *out) SL_REQUIRES(&upload->mutex)
{
	struct sl_list *link, *next;

	for (link = upload->locked.unsent.next; link != &upload->locked.unsent; link = next) {
		struct unsent *unsent = SL_CONTAINER(link, struct unsent, link);

		next = link->next;
		if (!match(unsent))
			continue;
		sl_list_remove(link);
		if (unsent->piece)
			sl_list_append(out, &unsent->piece->link);
		unsent_free_locked(upload, unsent);
	}
}

static bool unsent_any(struct unsent *unsent)
{
	(void)unsent;
	return true;
}

static bool unsent_is_cancelled(struct unsent *unsent)
{
	return unsent->piece &&
	       atomic_load_explicit(&unsent->piece->cancelled, memory_order_relaxed);
}

/* -------------------------------------------------------------------------------------- send */

/* Returns how many bytes of a range may be sent now: the last announced byte waits for the commit. */
static size_t upload_sendable_locked(struct sl_http_upload *upload, const struct unsent *unsent,
                                     size_t room) SL_REQUIRES(&upload->mutex)
{
	size_t left = SL_MIN(unsent->length - unsent->sent, room);

	if (upload->announced && !upload->locked.complete &&
	    upload->locked.position + left >= upload->announced)
		left = upload->announced - upload->locked.position - 1;
	return left;
}

/* Keeps bytes that were sent, as long as all of them fit. */
static void upload_keep_locked(struct sl_http_upload *upload, const char *bytes, size_t n)
	SL_REQUIRES(&upload->mutex)
{
	if (upload->locked.kept && upload->locked.position <= KEPT_BYTES) {
		memcpy(upload->locked.kept + upload->locked.position - n, bytes, n);
		upload->locked.resent = upload->locked.position;
	} else {
		free(upload->locked.kept);
		upload->locked.kept = NULL;
	}
}

/* Returns whether the caller has written everything, and all of it was sent. */
static bool upload_is_whole_locked(struct sl_http_upload *upload) SL_REQUIRES(&upload->mutex)
{
	return upload->locked.complete && !upload_first_locked(upload) &&
	       !upload->locked.has_last &&
	       (!upload->locked.kept || upload->locked.resent == upload->locked.position);
}

/*
 * Gives libcurl bytes to send. A server that was sent everything may keep the object whatever happens here; so a byte
 * is held back, and its operation ended, until sluice_close() commits.
 */
static size_t upload_on_read(char *to, size_t size, size_t count, void *argument)
{
	struct sl_http_upload *upload = argument;
	size_t room = size * count, taken = 0, again = 0;
	struct sl_list ended;
	struct unsent *unsent;

	sl_list_init(&ended);
	sl_mutex_lock(&upload->mutex);
	if (upload->locked.dropped) {
		sl_mutex_unlock(&upload->mutex);
		return CURL_READFUNC_ABORT;
	}
	if (upload->locked.kept) {
		again = taken = SL_MIN(room, upload->locked.position - upload->locked.resent);
		memcpy(to, upload->locked.kept + upload->locked.resent, taken);
		upload->locked.resent += taken;
	}
	while (taken < room && (unsent = upload_first_locked(upload)) &&
	       unsent->offset + unsent->sent == upload->locked.position) {
		size_t bytes = upload_sendable_locked(upload, unsent, room - taken);

		memcpy(to + taken, unsent->data + unsent->sent, bytes);
		unsent->sent += bytes;
		upload->locked.position += bytes;
		taken += bytes;
		if (unsent->sent + 1 == unsent->length && upload->announced &&
		    !upload->locked.complete && upload->locked.position + 1 == upload->announced) {
			upload->locked.last = unsent->data[unsent->sent];
			upload->locked.has_last = true;
		} else if (unsent->sent < unsent->length) {
			break;
		}
		sl_list_remove(&unsent->link);
		if (unsent->piece) {
			unsent->piece->moved = unsent->piece->length;
			sl_list_append(&ended, &unsent->piece->link);
		}
		unsent_free_locked(upload, unsent);
	}
	if (upload->locked.complete && upload->locked.has_last && taken < room) {
		to[taken++] = upload->locked.last;
		upload->locked.has_last = false;
		upload->locked.position++;
	}
	if (taken > again)
		upload_keep_locked(upload, to + again, taken - again);
	upload->locked.paused = !taken && !upload->locked.complete;
	if (upload->locked.paused)
		taken = CURL_READFUNC_PAUSE;
	sl_mutex_unlock(&upload->mutex);
	sl_http_end_pieces(&ended, 0, NULL);
	return taken;
}

/*
 * Returns whether another attempt is possible. With EXCLUSIVE a server that was sent everything may have the object, and
 * would refuse the second attempt.
 */
static bool upload_is_repeatable_locked(struct sl_http_upload *upload) SL_REQUIRES(&upload->mutex)
{
	return !upload->locked.position ||
	       (upload->locked.kept && !(upload->exclusive && upload_is_whole_locked(upload)));
}

const struct sl_http_fields *sl_http_upload_prepare(struct sl_http_upload *upload, CURL *easy)
{
	uint64_t stall = upload->http->core->settings.http_stall_ms;
	bool empty;

	sl_mutex_lock(&upload->mutex);
	upload->locked.resent = 0;
	empty = !upload->locked.position && upload_is_whole_locked(upload);
	upload->locked.paused = false;
	sl_mutex_unlock(&upload->mutex);
	/* A server that ignores Expect is silent for this time, which must not count as a stall. */
	curl_easy_setopt(easy, CURLOPT_EXPECT_100_TIMEOUT_MS, (long)SL_MIN(1000, stall / 2));
	curl_easy_setopt(easy, CURLOPT_UPLOAD, 1L);
	curl_easy_setopt(easy, CURLOPT_READFUNCTION, upload_on_read);
	curl_easy_setopt(easy, CURLOPT_READDATA, upload);
	curl_easy_setopt(easy, CURLOPT_UPLOAD_BUFFERSIZE, UPLOAD_BUFFER);
	if (upload->announced || empty)
		curl_easy_setopt(easy, CURLOPT_INFILESIZE_LARGE, (curl_off_t)upload->announced);
	return &upload->fields;
}

unsigned sl_http_upload_state(struct sl_http_upload *upload)
{
	unsigned state;

	sl_mutex_lock(&upload->mutex);
	state = (upload_is_repeatable_locked(upload) ? 0 : SL_HTTP_UPLOAD_BEGUN) |
	        (upload->locked.paused ? SL_HTTP_UPLOAD_IDLE : 0) |
	        (upload->locked.dropped ? SL_HTTP_UPLOAD_DROPPED : 0);
	sl_mutex_unlock(&upload->mutex);
	return state;
}

bool sl_http_upload_look(struct sl_http_upload *upload, CURL *easy)
{
	struct sl_list cancelled;
	struct unsent *unsent;
	bool go_on;

	sl_list_init(&cancelled);
	sl_mutex_lock(&upload->mutex);
	upload_take_pieces_locked(upload, unsent_is_cancelled, &cancelled);
	/* The beginning of a cancelled operation may have been sent: the object would lack the rest. */
	if (!sl_list_empty(&cancelled))
		upload->locked.dropped = true;
	unsent = upload_first_locked(upload);
	go_on = upload->locked.paused && (upload->locked.dropped || upload->locked.complete ||
	                                  (unsent && unsent->offset == upload->locked.position));
	if (go_on)
		upload->locked.paused = false;
	sl_mutex_unlock(&upload->mutex);
	sl_http_end_pieces(&cancelled, -ECANCELED, NULL);
	if (go_on && easy)
		curl_easy_pause(easy, CURLPAUSE_CONT);
	return go_on;
}

bool sl_http_upload_is_whole(struct sl_http_upload *upload)
{
	bool whole;

	sl_mutex_lock(&upload->mutex);
	whole = upload_is_whole_locked(upload);
	sl_mutex_unlock(&upload->mutex);
	return whole;
}

bool sl_http_upload_without_expect(struct sl_http_upload *upload)
{
	if (upload->unexpected || sl_http_fields_add(&upload->fields, "Expect:"))
		return false;
	upload->unexpected = true;
	return true;
}

void sl_http_upload_over(struct sl_http_upload *upload, int error, char *sentence)
{
	struct sl_list pieces;

	sl_list_init(&pieces);
	sl_mutex_lock(&upload->mutex);
	upload->locked.error = error;
	upload->locked.sentence = sentence;
	upload_take_pieces_locked(upload, unsent_any, &pieces);
	sl_mutex_unlock(&upload->mutex);
	sl_http_end_pieces(&pieces, error ? error : -EIO, sentence);
	/* Once `over` is set sl_http_upload_free() may free the upload. */
	sl_mutex_lock(&upload->mutex);
	upload->locked.over = true;
	pthread_cond_broadcast(&upload->ended);
	sl_mutex_unlock(&upload->mutex);
}

/* -------------------------------------------------------------------------------------- write */

/* Starts the request, with the first byte. Returns false if there is no memory. */
static bool upload_start_locked(struct sl_http_upload *upload) SL_REQUIRES(&upload->mutex)
{
	struct sl_http_request *request;

	if (upload->locked.reactor)
		return true;
	request = sl_http_request_new(upload->http, SL_HTTP_PUT, NULL);
	if (!request)
		return false;
	upload->locked.over = false;
	upload->locked.reactor = sl_http_multi_submit(upload->http->multi, request);
	return true;
}

/* Returns why the piece cannot be taken, or NULL. */
static const char *upload_refusal_locked(struct sl_http_upload *upload,
                                         const struct sl_piece *piece, int *error)
	SL_REQUIRES(&upload->mutex)
{
	uint64_t end = piece->offset + piece->length;

	*error = -ESPIPE;
	if (upload->locked.error) {
		*error = upload->locked.error;
		return upload->locked.sentence ? upload->locked.sentence : "the upload failed";
	}
	if (upload->locked.dropped)
		return "the upload was cancelled";
	if (upload->announced && end > upload->announced) {
		*error = -EFBIG;
		return "more is written than expected_size said when it was opened";
	}
	if (piece->offset > upload_chain_end_locked(upload) &&
	    upload->locked.copied + piece->length > upload->http->core->settings.bounce_bytes)
		return "an upload is written front to back, and this is too far ahead";
	return NULL;
}

/* Makes the range of a piece: of its own memory if it comes next, else a copy, which ends the piece at once. */
static struct unsent *unsent_new_locked(struct sl_http_upload *upload, struct sl_piece *piece)
	SL_REQUIRES(&upload->mutex)
{
	bool copy = piece->offset != upload_chain_end_locked(upload);
	struct unsent *unsent = malloc(sizeof(*unsent) + (copy ? piece->length : 0));

	if (!unsent)
		return NULL;
	*unsent = (struct unsent){.offset = piece->offset, .length = piece->length};
	unsent->data = copy ? memcpy(unsent + 1, piece->data, piece->length) : piece->data;
	unsent->piece = copy ? NULL : piece;
	upload->locked.copied += copy ? piece->length : 0;
	return unsent;
}

void sl_http_upload_submit(struct sl_http_upload *upload, struct sl_piece *piece)
{
	const char *why;
	struct unsent *unsent = NULL;
	char *message = NULL;
	int error = 0;
	bool waits = false;

	sl_mutex_lock(&upload->mutex);
	why = upload_refusal_locked(upload, piece, &error);
	if (!why) {
		unsent = upload_start_locked(upload) ? unsent_new_locked(upload, piece) : NULL;
		error = unsent ? 0 : -ENOMEM;
	}
	if (unsent && !upload_insert_locked(upload, unsent)) {
		unsent_free_locked(upload, unsent);
		unsent = NULL;
		error = -ESPIPE;
		why = "an upload is written front to back, and this was written already";
	}
	if (unsent)
		waits = unsent->piece;
	if (why)
		message = strdup(why);
	if (unsent && upload->locked.reactor)
		sl_http_reactor_wake(upload->locked.reactor);
	/* From here on a piece that waits belongs to the reactor. */
	sl_mutex_unlock(&upload->mutex);
	if (waits)
		return;
	piece->error = error;
	piece->message = message;
	if (!error)
		piece->moved = piece->length;
	sl_piece_done(piece);
}

/* ------------------------------------------------------------------------------- open and close */

/* Whether the URL has a signature of AWS's second version, which is of a Content-Type as well. */
static bool upload_is_signed(const char *url)
{
	return strchr(url, '?') && strstr(url, "AWSAccessKeyId=") && strstr(url, "Signature=") &&
	       strstr(url, "Expires=");
}

/* No other thread has the upload yet. */
int sl_http_upload_new(struct sl_http *http, const struct sluice_open_options *options,
                       struct sl_http_upload **out) SL_UNCHECKED
{
	struct sl_http_upload *upload;
	int rc;

	upload = calloc(1, sizeof(*upload));
	if (!upload)
		return sl_fail(-ENOMEM, "no memory");
	upload->http = http;
	upload->announced = options->expected_size;
	upload->exclusive = options->flags & SLUICE_OPEN_EXCLUSIVE;
	upload->locked.over = true;
	/* Without this memory no byte is sent again. */
	upload->locked.kept = malloc(KEPT_BYTES);
	sl_mutex_init(&upload->mutex);
	pthread_cond_init(&upload->ended, NULL);
	sl_list_init(&upload->locked.unsent);
	rc = sl_http_fields_begin(&upload->fields, http);
	if (!rc && !sl_http_identity_has(http, "Content-Type") && !upload_is_signed(http->url))
		rc = sl_http_fields_add(&upload->fields, "Content-Type: application/octet-stream");
	if (!rc && upload->exclusive)
		rc = sl_http_fields_add(&upload->fields, "If-None-Match: *");
	if (rc) {
		sl_http_upload_free(upload);
		return rc;
	}
	*out = upload;
	return 0;
}

/* Waits for sl_http_upload_over(), which the reactor calls at the end of the transfer. */
static void upload_wait(struct sl_http_upload *upload)
{
	sl_mutex_lock(&upload->mutex);
	if (upload->locked.reactor)
		sl_http_reactor_wake(upload->locked.reactor);
	while (!upload->locked.over)
		sl_cond_wait(&upload->ended, &upload->mutex, SL_FOREVER);
	sl_mutex_unlock(&upload->mutex);
}

/* After the wait no other thread has the error. */
int sl_http_upload_commit(struct sl_http_upload *upload) SL_UNCHECKED
{
	const char *name = upload->http->name;
	uint64_t end;
	bool gap;
	int rc = 0;

	sl_mutex_lock(&upload->mutex);
	end = upload_chain_end_locked(upload);
	gap = !sl_list_empty(&upload->locked.unsent) &&
	      SL_CONTAINER(upload->locked.unsent.previous, struct unsent, link)->offset >= end;
	if (upload->locked.error)
		rc = upload->locked.error;
	else if (gap)
		rc = sl_fail(-EINVAL, "'%s': nothing was written at byte %" PRIu64, name, end);
	else if (upload->announced && end != upload->announced)
		rc = sl_fail(-EINVAL,
		             "'%s': %" PRIu64 " bytes were written, and expected_size was %" PRIu64,
		             name, end, upload->announced);
	else if (upload->locked.dropped)
		rc = sl_fail(-ECANCELED, "'%s': the upload was cancelled", name);
	upload->locked.complete = !rc;
	upload->locked.dropped = rc;
	if (!rc && !upload_start_locked(upload))
		rc = sl_fail(-ENOMEM, "no memory");
	sl_mutex_unlock(&upload->mutex);
	upload_wait(upload);
	if (upload->locked.error && (!rc || rc == upload->locked.error))
		rc = sl_fail(upload->locked.error, "%s",
		             upload->locked.sentence ? upload->locked.sentence
		                                     : sl_error_text(upload->locked.error));
	return rc;
}

/* After the wait no other thread has the upload. */
void sl_http_upload_free(struct sl_http_upload *upload) SL_UNCHECKED
{
	struct sl_list none;

	if (!upload)
		return;
	sl_mutex_lock(&upload->mutex);
	upload->locked.dropped = true;
	sl_mutex_unlock(&upload->mutex);
	upload_wait(upload);
	sl_list_init(&none);
	upload_take_pieces_locked(upload, unsent_any, &none);
	sl_http_fields_clear(&upload->fields);
	free(upload->locked.kept);
	free(upload->locked.sentence);
	pthread_cond_destroy(&upload->ended);
	sl_mutex_destroy(&upload->mutex);
	free(upload);
}
