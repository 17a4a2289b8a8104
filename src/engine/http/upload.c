/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Uploads
 *
 * Writes a remote file by a single PUT of the whole object, whose length is known at open. Each
 * write begins where the write before ends, and is sent from the caller's memory. Objects of
 * services: multipart.c.
 *
 * Threads: any thread submits pieces; the reactor that moves the request sends them. sluice_close()
 * commits: it waits for the end of the request.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "http/http_internal.h"

#define UPLOAD_BUFFER (512L << 10)
#define KEPT_BYTES    ((size_t)64 << 10)

struct sl_http_upload {
	struct sl_http *http;
	uint64_t length;       /* the object's */
	_Atomic uint32_t over; /* 1: there is no request, or it is over */
	_Atomic bool dropped;  /* the request is to be ended */

	struct sl_mutex mutex;
	struct {
		struct sl_list pieces;           /* each begins where the last ends */
		uint64_t end;                    /* where the last piece ends */
		uint64_t taken;                  /* bytes gone from pieces, */
		uint64_t sent;                   /* and sent by this attempt */
		char kept[KEPT_BYTES];           /* the first bytes, for another attempt */
		char last;                       /* the last byte, held back until the commit */
		struct sl_http_reactor *reactor; /* moves the request; NULL: none has begun */
		bool paused;                     /* the transfer waits for bytes */
		bool complete;                   /* the caller has written everything */
		int error;
		char *sentence;
	} locked SL_GUARDED_BY(&mutex);
};

/* Gives libcurl bytes to send: again after an attempt, from the first piece, or the last byte. A
 * server with all bytes may keep the object whatever happens here; so the last byte is held back,
 * its operation ended, until sluice_close() commits. */
static size_t upload_on_read(char *to, size_t size, size_t count, void *argument)
{
	struct sl_http_upload *upload = argument;
	struct sl_piece *piece, *ended = NULL;
	size_t room = size * count, n = 0;
	uint64_t at, end;
	bool paused;

	sl_mutex_lock(&upload->mutex);
	at = upload->locked.sent;
	piece = sl_list_first(&upload->locked.pieces, struct sl_piece, link);
	if (at < upload->locked.taken) {
		n = SL_MIN(room, upload->locked.taken - at);
		memcpy(to, upload->locked.kept + at, n);
	} else if (piece) {
		end = SL_MIN(piece->offset + piece->length, upload->length - 1);
		n = SL_MIN(room, end - at);
		memcpy(to, piece->data + (at - piece->offset), n);
		if (at + n <= KEPT_BYTES)
			memcpy(upload->locked.kept + at, to, n);
		upload->locked.taken += n;
		if (upload->locked.taken == end) {
			ended = piece;
			sl_list_remove(&piece->link);
		}
	} else if (upload->locked.complete && at < upload->length) {
		*to = upload->locked.last;
		n = 1;
	}
	upload->locked.sent += n;
	paused = upload->locked.paused = !n && upload->locked.sent < upload->length;
	sl_mutex_unlock(&upload->mutex);
	if (ended) {
		ended->moved = ended->length;
		sl_piece_done(ended);
	}
	return paused ? CURL_READFUNC_PAUSE : n;
}

/* -------------------------------------------------------------------------------------- kind */

static bool upload_is_unwanted(const struct sl_http_request *request)
{
	return atomic_load(&request->http->upload->dropped);
}

static void upload_prepare(struct sl_http_request *request)
{
	struct sl_http_upload *upload = request->http->upload;
	long patience = (long)request->http->core->settings.http_stall_ms / 2;
	CURL *easy = request->transfer->easy;

	sl_mutex_lock(&upload->mutex);
	upload->locked.sent = 0;
	upload->locked.paused = false;
	sl_mutex_unlock(&upload->mutex);
	/* A server that ignores Expect is silent so long, and has not stalled. */
	curl_easy_setopt(easy, CURLOPT_EXPECT_100_TIMEOUT_MS, SL_MIN(1000, patience));
	curl_easy_setopt(easy, CURLOPT_UPLOAD, 1L);
	curl_easy_setopt(easy, CURLOPT_READFUNCTION, upload_on_read);
	curl_easy_setopt(easy, CURLOPT_READDATA, upload);
	curl_easy_setopt(easy, CURLOPT_UPLOAD_BUFFERSIZE, UPLOAD_BUFFER);
	curl_easy_setopt(easy, CURLOPT_INFILESIZE_LARGE, (curl_off_t)upload->length);
}

/* Silence has a reason while the caller has nothing to send. */
static bool upload_look(struct sl_http_request *request, CURL *easy)
{
	struct sl_http_upload *upload = request->http->upload;
	bool paused, go_on;

	sl_mutex_lock(&upload->mutex);
	/* A cancelled operation may have been sent in part: the object would lack the rest. */
	sl_list_each_of (piece, &upload->locked.pieces, struct sl_piece, link)
		upload->dropped |= atomic_load(&piece->cancelled);
	paused = upload->locked.paused;
	go_on = paused && (upload->locked.complete || !sl_list_empty(&upload->locked.pieces));
	upload->locked.paused &= !go_on;
	sl_mutex_unlock(&upload->mutex);
	if (go_on && easy)
		curl_easy_pause(easy, CURLPAUSE_CONT);
	return paused;
}

static enum sl_http_verdict upload_judge(struct sl_http_request *request)
{
	struct sl_http_upload *upload = request->http->upload;
	bool whole;

	sl_mutex_lock(&upload->mutex);
	whole = upload->locked.sent == upload->length && upload->locked.complete;
	sl_mutex_unlock(&upload->mutex);
	if (whole)
		return SL_HTTP_DONE;
	sl_http_fail_protocol(request, "success before it had everything");
	return SL_HTTP_FAILED;
}

/* With EXCLUSIVE a server that has the object would refuse the second attempt. */
static const char *upload_stuck(const struct sl_http_request *request)
{
	struct sl_http_upload *upload = request->http->upload;
	bool exclusive = request->http->flags & SLUICE_OPEN_EXCLUSIVE, stuck;

	sl_mutex_lock(&upload->mutex);
	stuck = upload->locked.taken > KEPT_BYTES ||
	        (exclusive && upload->length && upload->locked.sent == upload->length);
	sl_mutex_unlock(&upload->mutex);
	return stuck ? "; an upload of which the server has bytes is not begun again" : NULL;
}

/* After an error no piece comes any more, and before a success the last has ended. */
static void upload_end(struct sl_http_request *request) SL_UNCHECKED
{
	struct sl_http_upload *upload = request->http->upload;
	int error = request->error;

	sl_mutex_lock(&upload->mutex);
	upload->locked.error = error;
	upload->locked.sentence = request->sentence;
	sl_mutex_unlock(&upload->mutex);
	request->sentence = NULL;
	sl_http_request_free(request);
	sl_http_end_pieces(&upload->locked.pieces, error, upload->locked.sentence);
	sl_flag_raise(&upload->over);
}

const struct sl_http_kind sl_http_kind_put = {
	.verb = "PUT",
	.bytes = sizeof(struct sl_http_request),
	.sends = true,
	.stream = true,
	.unwanted = upload_is_unwanted,
	.prepare = upload_prepare,
	.look = upload_look,
	.judge = upload_judge,
	.stuck = upload_stuck,
	.end = upload_end,
};

/* ------------------------------------------------------------------------------------ submit */

/* Starts the request, with the first byte. Returns 0, or -ENOMEM. */
static int upload_start_locked(struct sl_http_upload *upload) SL_REQUIRES(&upload->mutex)
{
	struct sl_http_request *request;

	if (upload->locked.reactor)
		return 0;
	request = sl_http_request_new(upload->http, &sl_http_kind_put);
	if (!request)
		return sl_fail(-ENOMEM, "no memory");
	atomic_store(&upload->over, 0);
	upload->locked.reactor = sl_http_multi_submit(upload->http->multi, request);
	return 0;
}

/* Takes a piece. Returns 0, or a negative errno and why, or NULL. */
static int upload_take_locked(struct sl_http_upload *upload, struct sl_piece *piece,
                              const char **why) SL_REQUIRES(&upload->mutex)
{
	*why = upload->locked.sentence;
	if (upload->locked.error)
		return upload->locked.error;
	*why = "a PUT begins with the length of its object: open it with expected_size; "
	       "bytes of unknown number go to a local file first, and from there";
	if (!upload->length)
		return -ENOTSUP;
	*why = "more is written than expected_size said when it was opened";
	if (piece->offset + piece->length > upload->length)
		return -EFBIG;
	*why = "a PUT is written front to back: each write begins where the one before ends";
	if (piece->offset != upload->locked.end)
		return -ESPIPE;
	*why = NULL;
	if (upload_start_locked(upload))
		return -ENOMEM;
	sl_list_append(&upload->locked.pieces, &piece->link);
	upload->locked.end += piece->length;
	if (upload->locked.end == upload->length)
		upload->locked.last = piece->data[piece->length - 1];
	return 0;
}

void sl_http_upload_submit(struct sl_http_upload *upload, struct sl_piece *piece)
{
	const char *why;
	int error;

	sl_mutex_lock(&upload->mutex);
	error = upload_take_locked(upload, piece, &why);
	if (!error)
		sl_http_reactor_wake(upload->locked.reactor);
	/* From here on the reactor has the piece; an error's sentence stays with the upload. */
	sl_mutex_unlock(&upload->mutex);
	if (error)
		sl_http_end_piece(piece, error, why ? strdup(why) : NULL);
}

/* Whether the URL has a signature of AWS's second version, which covers a Content-Type. */
static bool upload_is_signed(const char *url)
{
	return strchr(url, '?') && strstr(url, "AWSAccessKeyId=") && strstr(url, "Signature=") &&
	       strstr(url, "Expires=");
}

/* No other thread has the upload yet. From here on the PUT is the file's only request. */
int sl_http_upload_new(struct sl_http *http, uint64_t length) SL_UNCHECKED
{
	struct sl_http_upload *upload = calloc(1, sizeof(*upload));
	int rc = 0;

	if (!upload)
		return sl_fail(-ENOMEM, "no memory");
	http->upload = upload;
	upload->http = http;
	upload->length = length;
	upload->over = 1;
	sl_mutex_init(&upload->mutex);
	sl_list_init(&upload->locked.pieces);
	if (!sl_http_identity_has(http, "Content-Type") && !upload_is_signed(http->url))
		rc = sl_http_fields_add(&http->fields, "Content-Type: application/octet-stream");
	if (!rc && http->flags & SLUICE_OPEN_EXCLUSIVE)
		rc = sl_http_fields_add(&http->fields, "If-None-Match: *");
	return rc;
}

/* Waits for upload_end(), on the reactor. */
static void upload_wait(struct sl_http_upload *upload) SL_UNCHECKED
{
	if (upload->locked.reactor)
		sl_http_reactor_wake(upload->locked.reactor);
	sl_flag_await(&upload->over);
}

/* No write is in flight and none has failed. After the wait no other thread has the error. */
int sl_http_upload_commit(struct sl_http_upload *upload) SL_UNCHECKED
{
	int rc;

	if (upload->locked.end != upload->length)
		return sl_fail(-EINVAL,
		               "'%s': %" PRIu64
		               " bytes were written, and expected_size was %" PRIu64,
		               upload->http->name, upload->locked.end, upload->length);
	sl_mutex_lock(&upload->mutex);
	upload->locked.complete = true;
	rc = upload_start_locked(upload);
	sl_mutex_unlock(&upload->mutex);
	if (rc)
		return rc;
	upload_wait(upload);
	return sl_fail_with(upload->locked.error, upload->locked.sentence);
}

/* After the wait no other thread has the upload. */
void sl_http_upload_free(struct sl_http_upload *upload) SL_UNCHECKED
{
	if (!upload)
		return;
	atomic_store(&upload->dropped, true);
	upload_wait(upload);
	free(upload->locked.sentence);
	sl_mutex_destroy(&upload->mutex);
	free(upload);
}
