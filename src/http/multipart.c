/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Uploads in parts
 *
 * Writes an object of S3. Pieces are copied into buffers of parts, in any order within a window; a part that is full is
 * sent by a call of its own (call.c), again from its buffer if that fails. An object that fits into one part is a single
 * PUT. The object is visible when the last call has succeeded, which sluice_close() makes.
 *
 * The low part is the first that is not full. The window is the low part, and those behind it as far as all of them
 * together fit into the file's share of memory. Only parts of the window get buffers, while the share has room beside the
 * parts in flight. So no write within the window waits in vain, whatever else is written, and half-filled parts cannot use
 * the share up: a part in flight is over some day and gives its buffer back; when none is in flight, all parts that have
 * buffers are in the window, all of which fits. So the low part gets a buffer in the end, is filled, and the window moves
 * on. (Where a single part is longer than the share, the window is that part, and it waits for all others.) A write that
 * goes beyond the window waits if all bytes before it are written or being written. Otherwise the bytes that could move
 * the window may never come, and the write is refused. (Of memory of a device it waits, because the bytes before it may be
 * on their way through slots.) The share is fixed when the file is opened, so no file waits for another.
 *
 * Threads: pieces are submitted on any thread, which copies their bytes; where a piece had to wait, a thread of the pool
 * goes on. Reactors end calls. sluice_close() and sluice_discard() wait for their ends.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "http/call.h"
#include "http/multipart.h"

/* A range of a part whose bytes have come, or are being copied. */
struct span {
	size_t from, to;
};

/* A part that has a buffer. */
struct part {
	struct sl_list link; /* by number */
	struct sl_http_multipart *multipart;
	struct sl_s3_part place;
	struct sl_http_call call; /* that sends it */
	char *query;
	size_t copied;      /* bytes that are there */
	struct span *spans; /* by offset, none touches another */
	unsigned span_count, room;
	bool sent;
	char *data;
};

/* A piece that is not over. */
struct writing {
	struct sl_list link; /* by offset */
	struct sl_task task;
	struct sl_http_multipart *multipart;
	struct sl_piece *piece;
	bool copying; /* a thread has it; else it waits for a buffer */
};

/* A part, whether it has a buffer or not. */
struct known {
	bool full;  /* all bytes have come */
	char *etag; /* that the server stored with it */
};

struct sl_http_multipart {
	struct sl_http *http;
	struct sl_http_fields whole, each; /* of requests for the object, and for a part */
	struct sl_s3_plan plan;
	uint64_t share; /* bytes of buffers at a time, or one part if that is more */
	pid_t process;
	struct sl_list alive; /* in the list of all; guarded by its mutex */
	_Atomic bool dropped; /* calls are to end */
	struct sl_http_call create;

	struct sl_mutex mutex;
	pthread_cond_t idle; /* `flying` became 0 */
	struct {
		struct sl_list parts;    /* that have a buffer */
		struct sl_list writings; /* pieces that are not over */
		struct known *known;     /* by number - 1 */
		unsigned known_count;
		unsigned low;         /* number of the first part that is not full */
		uint64_t low_start;   /* its first byte */
		uint64_t window;      /* the byte behind the window */
		uint64_t reach;       /* the byte behind all pieces */
		uint64_t used;        /* bytes of buffers, those in `spare` included */
		struct sl_list spare; /* buffers of parts that are over: struct part */
		unsigned flying;      /* calls */
		bool begun;           /* the upload is created, or will be */
		char *upload;         /* its id; NULL: not yet */
		bool over;            /* the server has the object, or nothing of it */
		int error;
		char *sentence;
	} locked SL_GUARDED_BY(&mutex);
};

/* Uploads that an end of the process has to abort. */
static struct {
	struct sl_mutex mutex;
	struct sl_list uploads SL_GUARDED_BY(&mutex);
	bool registered SL_GUARDED_BY(&mutex);
} alive = {.mutex = SL_MUTEX_INIT};

/* -------------------------------------------------------------------------------------- part */

/* Adds a range. Returns -EEXIST if it overlaps another, or -ENOMEM. */
static int part_add_span(struct part *part, size_t from, size_t to)
{
	unsigned i = part->span_count, count = part->span_count;
	struct span *spans = part->spans;

	while (i && spans[i - 1].from >= to)
		i--;
	if (i && spans[i - 1].to > from)
		return -EEXIST;
	bool joins = i && spans[i - 1].to == from, next = i < count && spans[i].from == to;

	if (joins && next) {
		spans[i - 1].to = spans[i].to;
		memmove(spans + i, spans + i + 1, (count - i - 1) * sizeof(*spans));
		part->span_count--;
	} else if (joins) {
		spans[i - 1].to = to;
	} else if (next) {
		spans[i].from = from;
	} else {
		if (count == part->room) {
			unsigned room = SL_MAX(2 * part->room, 4u);

			spans = realloc(spans, room * sizeof(*spans));
			if (!spans)
				return -ENOMEM;
			part->spans = spans;
			part->room = room;
		}
		memmove(spans + i + 1, spans + i, (count - i) * sizeof(*spans));
		spans[i] = (struct span){from, to};
		part->span_count++;
	}
	return 0;
}

static void part_free(struct part *part)
{
	free(part->query);
	free(part->spans);
	free(part->data);
	sl_http_answer_clear(&part->call.answer);
	free(part);
}

static struct part *multipart_part_locked(struct sl_http_multipart *multipart, unsigned number)
	SL_REQUIRES(&multipart->mutex)
{
	sl_list_each (link, &multipart->locked.parts) {
		struct part *part = SL_CONTAINER(link, struct part, link);

		if (part->place.number == number)
			return part;
	}
	return NULL;
}

static bool multipart_is_full_locked(struct sl_http_multipart *multipart, unsigned number)
	SL_REQUIRES(&multipart->mutex)
{
	return number <= multipart->locked.known_count && multipart->locked.known[number - 1].full;
}

/* Makes place for what is known of a part. Returns false without memory. */
static bool multipart_know_locked(struct sl_http_multipart *multipart, unsigned number)
	SL_REQUIRES(&multipart->mutex)
{
	unsigned count = multipart->locked.known_count;
	struct known *known;

	if (number <= count)
		return true;
	count = SL_MAX(number, 2 * count);
	known = realloc(multipart->locked.known, count * sizeof(*known));
	if (!known)
		return false;
	memset(known + multipart->locked.known_count, 0,
	       (count - multipart->locked.known_count) * sizeof(*known));
	multipart->locked.known = known;
	multipart->locked.known_count = count;
	return true;
}

/* Frees buffers that no part has, of another length than the next part needs, or all. */
static void multipart_trim_locked(struct sl_http_multipart *multipart, uint64_t except)
	SL_REQUIRES(&multipart->mutex)
{
	sl_list_each_of (part, &multipart->locked.spare, struct part, link) {
		if (part->place.length == except)
			continue;
		sl_list_remove(&part->link);
		multipart->locked.used -= part->place.length;
		part_free(part);
	}
}

/* Gives a part of the window a buffer. Returns NULL if there is none for now, or no memory (*error is set). */
static struct part *multipart_buffer_locked(struct sl_http_multipart *multipart,
                                            const struct sl_s3_part *place, int *error)
	SL_REQUIRES(&multipart->mutex)
{
	struct sl_list *link, *before = &multipart->locked.parts;
	struct part *part = NULL;

	multipart_trim_locked(multipart, place->length);
	link = sl_list_take(&multipart->locked.spare);
	if (!link && multipart->locked.used &&
	    multipart->locked.used + place->length > multipart->share)
		return NULL;
	if (link) {
		part = SL_CONTAINER(link, struct part, link);
	} else if ((part = calloc(1, sizeof(*part)))) {
		part->data = malloc(place->length);
		multipart->locked.used += place->length;
	}
	if (!part || !part->data || !multipart_know_locked(multipart, place->number)) {
		*error = -ENOMEM;
		if (part) {
			multipart->locked.used -= place->length;
			part_free(part);
		}
		return NULL;
	}
	part->multipart = multipart;
	part->place = *place;
	part->copied = part->span_count = 0;
	part->sent = false;
	while (before->previous != &multipart->locked.parts &&
	       SL_CONTAINER(before->previous, struct part, link)->place.number > place->number)
		before = before->previous;
	sl_list_append(before, &part->link);
	return part;
}

/* ------------------------------------------------------------------------------------ window */

/* Finds the low part, and the end of the window, anew. */
static void multipart_move_window_locked(struct sl_http_multipart *multipart)
	SL_REQUIRES(&multipart->mutex)
{
	struct sl_s3_part place;
	uint64_t at = multipart->locked.low_start, total = multipart->plan.total, bytes = 0;

	while (multipart_is_full_locked(multipart, multipart->locked.low) &&
	       (!total || at < total)) {
		sl_s3_plan_find(&multipart->plan, at, &place);
		at = place.start + place.length;
		multipart->locked.low++;
	}
	multipart->locked.low_start = at;
	multipart->locked.window = at;
	while (!total || at < total) {
		sl_s3_plan_find(&multipart->plan, at, &place);
		if (bytes && bytes + place.length > multipart->share)
			break;
		bytes += place.length;
		at = multipart->locked.window = place.start + place.length;
	}
}

/* Returns the end of the bytes from the begin of the object on that have come, or are in pieces that are not over. */
static uint64_t multipart_chain_end_locked(struct sl_http_multipart *multipart)
	SL_REQUIRES(&multipart->mutex)
{
	uint64_t end = multipart->locked.low_start, before;
	struct sl_s3_part place;
	struct part *part;

	do {
		before = end;
		if (multipart->plan.total && end >= multipart->plan.total)
			break;
		sl_s3_plan_find(&multipart->plan, end, &place);
		part = multipart_part_locked(multipart, place.number);
		if (multipart_is_full_locked(multipart, place.number))
			end = place.start + place.length;
		for (unsigned i = 0; part && i < part->span_count; i++)
			if (place.start + part->spans[i].from <= end)
				end = SL_MAX(end, place.start + part->spans[i].to);
		sl_list_each (link, &multipart->locked.writings) {
			struct sl_piece *piece = SL_CONTAINER(link, struct writing, link)->piece;

			if (piece->offset <= end)
				end = SL_MAX(end, piece->offset + piece->length);
		}
	} while (end > before);
	return end;
}

/* Returns whether a byte of the range has come, or is in a piece that is not over. */
static bool multipart_overlaps_locked(struct sl_http_multipart *multipart, uint64_t from,
                                      uint64_t to) SL_REQUIRES(&multipart->mutex)
{
	struct sl_s3_part place;

	sl_list_each (link, &multipart->locked.writings) {
		struct sl_piece *piece = SL_CONTAINER(link, struct writing, link)->piece;

		if (piece->offset < to && piece->offset + piece->length > from)
			return true;
	}
	if (from < multipart->locked.low_start)
		return true;
	for (uint64_t at = from; at < SL_MIN(to, multipart->locked.window);
	     at = place.start + place.length) {
		struct part *part;

		sl_s3_plan_find(&multipart->plan, at, &place);
		part = multipart_part_locked(multipart, place.number);
		if (multipart_is_full_locked(multipart, place.number))
			return true;
		for (unsigned i = 0; part && i < part->span_count; i++)
			if (place.start + part->spans[i].from < to &&
			    place.start + part->spans[i].to > from)
				return true;
	}
	return false;
}

/* ----------------------------------------------------------------------------- ends of pieces */

/* Keeps the first error, takes the pieces that wait, and ends all calls. The caller then ends the pieces, and wakes the
 * reactors. */
static void multipart_fail_locked(struct sl_http_multipart *multipart, int error,
                                  const char *sentence, struct sl_list *out)
	SL_REQUIRES(&multipart->mutex)
{
	if (!multipart->locked.error) {
		multipart->locked.error = error;
		multipart->locked.sentence = sentence ? strdup(sentence) : NULL;
	}
	atomic_store(&multipart->dropped, true);
	sl_list_each_of (writing, &multipart->locked.writings, struct writing, link) {
		if (writing->copying)
			continue;
		sl_list_remove(&writing->link);
		sl_list_append(out, &writing->piece->link);
		free(writing);
	}
}

/* Makes the reactors end calls that are to end. */
static void multipart_wake_reactors(struct sl_http_multipart *multipart)
{
	atomic_store(&multipart->http->engine->cancelling, true);
	sl_http_multi_wake(multipart->http->multi);
}

static void multipart_fail(struct sl_http_multipart *multipart, int error, const char *sentence)
{
	struct sl_list pieces;
	char *copy;

	sl_list_init(&pieces);
	sl_mutex_lock(&multipart->mutex);
	multipart_fail_locked(multipart, error, sentence, &pieces);
	error = multipart->locked.error;
	copy = multipart->locked.sentence ? strdup(multipart->locked.sentence) : NULL;
	sl_mutex_unlock(&multipart->mutex);
	multipart_wake_reactors(multipart);
	sl_http_end_pieces(&pieces, error, copy);
	free(copy);
}

/* -------------------------------------------------------------------------------------- send */

static void part_over(struct sl_http_call *call);
static void create_over(struct sl_http_call *call);
static void writing_run(struct sl_task *task);

/* Takes the pieces that wait and can go on for now. */
static void multipart_take_ready_locked(struct sl_http_multipart *multipart, struct sl_list *out)
	SL_REQUIRES(&multipart->mutex)
{
	uint64_t used = multipart->locked.used;
	unsigned given = 0; /* the part that will get a buffer, for the first of its pieces */
	struct sl_s3_part place;

	sl_list_each (link, &multipart->locked.spare)
		used -= SL_CONTAINER(link, struct part, link)->place.length;
	sl_list_each (link, &multipart->locked.writings) {
		struct writing *writing = SL_CONTAINER(link, struct writing, link);
		uint64_t at = writing->piece->offset + writing->piece->moved;

		if (at >= multipart->locked.window)
			break;
		if (writing->copying)
			continue;
		sl_s3_plan_find(&multipart->plan, at, &place);
		if (place.number != given && !multipart_part_locked(multipart, place.number)) {
			if (used && used + place.length > multipart->share)
				break;
			used += place.length;
			given = place.number;
		}
		writing->copying = true;
		sl_list_append(out, &writing->task.link);
	}
}

static void multipart_run_ready(struct sl_http_multipart *multipart, struct sl_list *ready)
{
	struct sl_list *link;

	while ((link = sl_list_take(ready))) {
		struct writing *writing = SL_CONTAINER(link, struct writing, task.link);

		writing->task.run = writing_run;
		sl_pool_submit(multipart->http->core->pool, &writing->task);
	}
}

/* Takes the parts that are full, and were not sent, if the upload has its id. */
static void multipart_take_full_locked(struct sl_http_multipart *multipart, struct sl_list *out)
	SL_REQUIRES(&multipart->mutex)
{
	if (!multipart->locked.upload || multipart->locked.error)
		return;
	sl_list_each_of (part, &multipart->locked.parts, struct part, link) {
		if (part->sent || part->copied < part->place.length)
			continue;
		part->sent = true;
		sl_list_remove(&part->link);
		sl_list_append(out, &part->link);
		multipart->locked.flying++;
	}
}

/* The id of the upload does not change any more. */
static void multipart_send_all(struct sl_http_multipart *multipart,
                               struct sl_list *full) SL_UNCHECKED
{
	struct sl_list *link;

	while ((link = sl_list_take(full))) {
		struct part *part = SL_CONTAINER(link, struct part, link);

		free(part->query);
		part->query = sl_s3_upload_query(multipart->locked.upload, part->place.number);
		part->call = (struct sl_http_call){.verb = "PUT",
		                                   .query = part->query,
		                                   .body = part->data,
		                                   .length = part->place.length,
		                                   .fields = &multipart->each,
		                                   .stop = &multipart->dropped,
		                                   .over = part_over};
		if (part->query) {
			sl_http_call_start(multipart->http, &part->call);
		} else {
			part->call.answer.error = -ENOMEM;
			part_over(&part->call);
		}
	}
}

/* A call is over. The multipart may be freed as soon as the last is. */
static void multipart_landed(struct sl_http_multipart *multipart)
{
	sl_mutex_lock(&multipart->mutex);
	if (!--multipart->locked.flying)
		pthread_cond_broadcast(&multipart->idle);
	sl_mutex_unlock(&multipart->mutex);
}

static void part_over(struct sl_http_call *call)
{
	struct part *part = SL_CONTAINER(call, struct part, call);
	struct sl_http_multipart *multipart = part->multipart;
	struct sl_http_answer *answer = &call->answer;
	struct sl_list ready;

	sl_list_init(&ready);
	if (!answer->error && !answer->etag) {
		answer->error = -EPROTO;
		answer->sentence = strdup("the server stored a part without an ETag");
	}
	if (answer->error)
		multipart_fail(multipart, answer->error, answer->sentence);
	sl_mutex_lock(&multipart->mutex);
	multipart->locked.known[part->place.number - 1].etag = answer->etag;
	answer->etag = NULL;
	sl_http_answer_clear(answer);
	sl_list_append(&multipart->locked.spare, &part->link);
	multipart_take_ready_locked(multipart, &ready);
	sl_mutex_unlock(&multipart->mutex);
	multipart_run_ready(multipart, &ready);
	multipart_landed(multipart);
}

static void create_over(struct sl_http_call *call)
{
	struct sl_http_multipart *multipart = SL_CONTAINER(call, struct sl_http_multipart, create);
	struct sl_http_answer *answer = &call->answer;
	char id[1024] = "", *upload = NULL;
	struct sl_list full;

	sl_list_init(&full);
	if (answer->xml)
		sl_s3_element(answer->xml, "UploadId", id, sizeof(id));
	if (!answer->error && id[0])
		upload = strdup(id);
	if (!answer->error && !upload) {
		answer->error = -EPROTO;
		answer->sentence = strdup("the server began an upload without an id");
	}
	/* The server is there: from now on a request is made again for as long as parts come through. */
	atomic_store(&multipart->http->begun, true);
	sl_mutex_lock(&multipart->mutex);
	multipart->locked.upload = upload;
	multipart_take_full_locked(multipart, &full);
	sl_mutex_unlock(&multipart->mutex);
	if (answer->error)
		multipart_fail(multipart, answer->error, answer->sentence);
	sl_http_answer_clear(answer);
	multipart_send_all(multipart, &full);
	multipart_landed(multipart);
}

/* Returns true if the caller has to start the call that creates the upload. */
static bool multipart_begin_locked(struct sl_http_multipart *multipart)
	SL_REQUIRES(&multipart->mutex)
{
	if (multipart->locked.begun || multipart->locked.error)
		return false;
	multipart->locked.begun = true;
	multipart->locked.flying++;
	/* No attempt is cut: nobody would know the id of an upload that the server began. */
	multipart->create = (struct sl_http_call){.verb = "POST",
	                                          .query = SL_S3_UPLOADS,
	                                          .fields = &multipart->whole,
	                                          .stop = &multipart->dropped,
	                                          .least = 1,
	                                          .over = create_over};
	return true;
}

/* -------------------------------------------------------------------------------------- copy */

/* Finds where the next bytes of a piece go, of which *n are reserved. Returns NULL if they wait, or with *error. */
static struct part *writing_step_locked(struct writing *writing, size_t *n, int *error)
	SL_REQUIRES(&writing->multipart->mutex)
{
	struct sl_http_multipart *multipart = writing->multipart;
	const struct sl_piece *piece = writing->piece;
	uint64_t at = piece->offset + piece->moved, from;
	struct sl_s3_part place;
	struct part *part;

	if (at >= multipart->locked.window)
		return NULL;
	sl_s3_plan_find(&multipart->plan, at, &place);
	if (place.number > SL_S3_PARTS) {
		*error = -EFBIG;
		return NULL;
	}
	part = multipart_part_locked(multipart, place.number);
	if (!part)
		part = multipart_buffer_locked(multipart, &place, error);
	if (!part)
		return NULL;
	from = at - place.start;
	*n = SL_MIN(piece->length - piece->moved, place.length - from);
	*error = part_add_span(part, from, from + *n);
	return *error ? NULL : part;
}

/* The piece is over, or failed. */
static void writing_end(struct writing *writing, int error, const char *sentence)
{
	struct sl_http_multipart *multipart = writing->multipart;
	struct sl_piece *piece = writing->piece;

	sl_mutex_lock(&multipart->mutex);
	sl_list_remove(&writing->link);
	sl_mutex_unlock(&multipart->mutex);
	free(writing);
	piece->error = error;
	piece->message = error && sentence ? strdup(sentence) : NULL;
	/* From here on the file may be closed. */
	sl_piece_done(piece);
}

/* Copies bytes until the piece is over, or has to wait. */
static void writing_copy(struct writing *writing)
{
	struct sl_http_multipart *multipart = writing->multipart;
	struct sl_piece *piece = writing->piece;
	struct sl_list full, ready;
	struct part *part;
	bool waits;
	char *sentence = NULL;
	size_t n;
	int error = 0;

	sl_list_init(&full);
	sl_list_init(&ready);
	sl_mutex_lock(&multipart->mutex);
	while (!multipart->locked.error && piece->moved < piece->length &&
	       !atomic_load(&piece->cancelled) &&
	       (part = writing_step_locked(writing, &n, &error))) {
		size_t from = piece->offset + piece->moved - part->place.start;

		sl_mutex_unlock(&multipart->mutex);
		memcpy(part->data + from, piece->data + piece->moved, n);
		sl_mutex_lock(&multipart->mutex);
		part->copied += n;
		piece->moved += n;
		if (part->copied < part->place.length)
			continue;
		multipart->locked.known[part->place.number - 1].full = true;
		multipart_move_window_locked(multipart);
		multipart_take_full_locked(multipart, &full);
		multipart_take_ready_locked(multipart, &ready);
		sl_mutex_unlock(&multipart->mutex);
		multipart_send_all(multipart, &full);
		multipart_run_ready(multipart, &ready);
		sl_mutex_lock(&multipart->mutex);
	}
	if (multipart->locked.error) {
		error = multipart->locked.error;
		sentence = multipart->locked.sentence ? strdup(multipart->locked.sentence) : NULL;
	} else if (piece->moved < piece->length && atomic_load(&piece->cancelled)) {
		error = -ECANCELED;
	}
	waits = !error && piece->moved < piece->length;
	if (waits)
		writing->copying = false;
	sl_mutex_unlock(&multipart->mutex);
	/* A piece that waits belongs to the next thread. */
	if (waits)
		return;
	if (error == -EFBIG)
		sentence = strdup("an object of unknown length is longer than 10,000 parts "
		                  "(SLUICE_S3_PART_BYTES)");
	if (error)
		multipart_fail(multipart, error, sentence);
	writing_end(writing, error, sentence);
	free(sentence);
}

static void writing_run(struct sl_task *task)
{
	writing_copy(SL_CONTAINER(task, struct writing, task));
}

/* Returns why the piece cannot be taken, or NULL. */
static const char *multipart_refusal_locked(struct sl_http_multipart *multipart,
                                            const struct sl_piece *piece, int *error)
	SL_REQUIRES(&multipart->mutex)
{
	uint64_t end = piece->offset + piece->length;

	if (multipart->locked.error) {
		*error = multipart->locked.error;
		return multipart->locked.sentence ? multipart->locked.sentence
		                                  : "the upload failed";
	}
	*error = -EFBIG;
	if (multipart->plan.total && end > multipart->plan.total)
		return "more is written than expected_size said when it was opened";
	*error = -ESPIPE;
	if (multipart_overlaps_locked(multipart, piece->offset, end))
		return "bytes of an upload are written once, and some of these were written "
		       "already";
	if (!piece->staged && end > multipart->locked.window &&
	    piece->offset > multipart_chain_end_locked(multipart))
		return "an upload is written front to back, and this is too far ahead of bytes "
		       "that are missing (SLUICE_S3_UPLOAD_BYTES)";
	return NULL;
}

void sl_http_multipart_submit(struct sl_http_multipart *multipart, struct sl_piece *piece)
{
	struct writing *writing = calloc(1, sizeof(*writing));
	struct sl_list *before;
	const char *why = NULL;
	char *message = NULL;
	int error = writing ? 0 : -ENOMEM;
	bool create = false;

	sl_mutex_lock(&multipart->mutex);
	piece->moved = 0;
	if (writing)
		why = multipart_refusal_locked(multipart, piece, &error);
	if (writing && !why) {
		*writing =
			(struct writing){.multipart = multipart, .piece = piece, .copying = true};
		before = &multipart->locked.writings;
		while (before->previous != &multipart->locked.writings &&
		       SL_CONTAINER(before->previous, struct writing, link)->piece->offset >
		               piece->offset)
			before = before->previous;
		sl_list_append(before, &writing->link);
		multipart->locked.reach =
			SL_MAX(multipart->locked.reach, piece->offset + piece->length);
		/* An object that fits into a part is sent when it is closed. */
		if (SL_MAX(multipart->plan.total, multipart->locked.reach) > multipart->plan.bytes)
			create = multipart_begin_locked(multipart);
		error = 0;
	}
	message = why ? strdup(why) : NULL;
	sl_mutex_unlock(&multipart->mutex);
	if (create)
		sl_http_call_start(multipart->http, &multipart->create);
	if (!error) {
		writing_copy(writing);
		return;
	}
	free(writing);
	/* The object would lack these bytes. */
	multipart_fail(multipart, error, message);
	piece->error = error;
	piece->message = message;
	sl_piece_done(piece);
}

void sl_http_multipart_cancel(struct sl_http_multipart *multipart)
{
	bool cancelled = false;

	sl_mutex_lock(&multipart->mutex);
	sl_list_each (link, &multipart->locked.writings) {
		struct writing *writing = SL_CONTAINER(link, struct writing, link);

		cancelled |= !writing->copying && atomic_load(&writing->piece->cancelled);
	}
	sl_mutex_unlock(&multipart->mutex);
	if (cancelled)
		multipart_fail(multipart, -ECANCELED, "the upload was cancelled");
}

/* ------------------------------------------------------------------------------ open and close */

/* Fields of the user that S3 wants for each part; the others are for the object. */
static bool line_is_of_part(const char *line)
{
	static const char *const each[] = {"x-amz-server-side-encryption-customer-",
	                                   "x-amz-request-payer:", "x-amz-expected-bucket-owner:"};
	static const char *const whole[] = {"x-amz-", "Content-", "Cache-Control:", "Expires:"};

	for (size_t i = 0; i < sizeof(each) / sizeof(each[0]); i++)
		if (!strncasecmp(line, each[i], strlen(each[i])))
			return true;
	for (size_t i = 0; i < sizeof(whole) / sizeof(whole[0]); i++)
		if (!strncasecmp(line, whole[i], strlen(whole[i])))
			return false;
	return true;
}

static int multipart_set_fields(struct sl_http_multipart *multipart)
{
	struct sl_http *http = multipart->http;
	int rc = sl_http_fields_begin(&multipart->whole, http);

	if (!rc && !sl_http_identity_has(http, "Content-Type"))
		rc = sl_http_fields_add(&multipart->whole,
		                        "Content-Type: application/octet-stream");
	for (struct curl_slist *line = http->headers; !rc && line; line = line->next) {
		struct curl_slist *home;

		if (!line_is_of_part(line->data))
			continue;
		home = curl_slist_append(multipart->each.home, line->data);
		if (home)
			multipart->each.home = home;
		rc = home ? 0 : sl_fail(-ENOMEM, "no memory");
	}
	return rc;
}

/* Waits until no call flies: their ends wake this thread, and end themselves where the server is silent. */
static void multipart_wait(struct sl_http_multipart *multipart)
{
	sl_mutex_lock(&multipart->mutex);
	while (multipart->locked.flying)
		sl_cond_wait(&multipart->idle, &multipart->mutex, SL_FOREVER);
	sl_mutex_unlock(&multipart->mutex);
}

/* Ends all calls, and has the server drop the parts that it has. */
static void multipart_abort(struct sl_http_multipart *multipart)
{
	struct sl_http *http = multipart->http;
	struct sl_http_call call = {.verb = "DELETE",
	                            .fields = &multipart->each,
	                            .stop = &multipart->dropped,
	                            .least = 3,
	                            .brief = true};
	char *upload, *query;
	int rc;

	multipart_fail(multipart, -ECANCELED, "the upload was given up");
	multipart_wait(multipart);
	sl_mutex_lock(&multipart->mutex);
	upload = multipart->locked.over ? NULL : multipart->locked.upload;
	multipart->locked.over = true;
	sl_mutex_unlock(&multipart->mutex);
	query = upload ? sl_s3_upload_query(upload, 0) : NULL;
	if (!query)
		return;
	call.query = query;
	rc = sl_http_call_run(http, &call);
	if (rc && rc != -ENOENT)
		sl_log(&http->core->settings, SL_LOG_ERROR,
		       "%s: an upload was left behind (sluice s3 abandoned): %s", http->name,
		       sluice_last_message());
	sl_http_answer_clear(&call.answer);
	free(query);
}

/* At the end of the process. A child of a fork has no part in the uploads of its parent. */
static void multipart_abort_all(void)
{
	sl_mutex_lock(&alive.mutex);
	sl_list_each_of (multipart, &alive.uploads, struct sl_http_multipart, alive) {
		if (multipart->process != getpid())
			continue;
		sl_list_remove(&multipart->alive);
		multipart_abort(multipart);
	}
	sl_mutex_unlock(&alive.mutex);
}

/* Keeps the upload in the list of those that an end of the process aborts. */
static void multipart_register(struct sl_http_multipart *multipart)
{
	sl_mutex_lock(&alive.mutex);
	if (!alive.uploads.next)
		sl_list_init(&alive.uploads);
	if (!alive.registered)
		alive.registered = !atexit(multipart_abort_all);
	sl_list_append(&alive.uploads, &multipart->alive);
	sl_mutex_unlock(&alive.mutex);
}

/* Takes the file's share of the memory for parts: half at most, so that others have some, and a part in any case. */
static void multipart_take_share(struct sl_http_multipart *multipart)
{
	struct sl_gate *gate = &multipart->http->engine->uploads;
	uint64_t least = multipart->plan.bytes, total = multipart->plan.total;
	uint64_t share = multipart->http->core->settings.s3_upload_bytes / 2;

	if (total)
		least = SL_MIN(least, total);
	share = SL_MAX(total ? SL_MIN(share, total) : share, least);
	while (share > least && !sl_gate_take(gate, share, false))
		share = SL_MAX(share / 2, least);
	if (share == least)
		sl_gate_pass(gate, share);
	multipart->share = share;
}

/* No other thread has the upload yet. */
int sl_http_multipart_new(struct sl_http *http, const struct sluice_open_options *options,
                          struct sl_http_multipart **out) SL_UNCHECKED
{
	struct sl_http_multipart *multipart = calloc(1, sizeof(*multipart));
	int rc;

	if (!multipart)
		return sl_fail(-ENOMEM, "no memory");
	multipart->http = http;
	multipart->process = getpid();
	sl_s3_plan_make(options->expected_size, http->core->settings.s3_part_bytes,
	                &multipart->plan);
	sl_mutex_init(&multipart->mutex);
	pthread_cond_init(&multipart->idle, NULL);
	sl_list_init(&multipart->locked.parts);
	sl_list_init(&multipart->locked.writings);
	sl_list_init(&multipart->locked.spare);
	multipart_take_share(multipart);
	multipart->locked.low = 1;
	multipart_move_window_locked(multipart);
	multipart_register(multipart);
	rc = multipart_set_fields(multipart);
	if (!rc && multipart->plan.bytes > SL_S3_PART_MOST)
		rc = sl_fail(-EFBIG, "'%s': S3 takes 10,000 parts of 5 GiB at most", http->name);
	if (rc)
		sl_http_multipart_free(multipart);
	else
		*out = multipart;
	return rc;
}

/* Returns why the object cannot be complete, with a sentence. */
static int multipart_check_locked(struct sl_http_multipart *multipart, uint64_t end)
	SL_REQUIRES(&multipart->mutex)
{
	const char *name = multipart->http->name;
	uint64_t total = multipart->plan.total;

	if (multipart->locked.error)
		return sl_fail(multipart->locked.error, "%s",
		               multipart->locked.sentence ? multipart->locked.sentence
		                                          : sl_error_text(multipart->locked.error));
	if (multipart->locked.reach > end)
		return sl_fail(-EINVAL, "'%s': nothing was written at byte %" PRIu64, name, end);
	if (total && end != total)
		return sl_fail(-EINVAL,
		               "'%s': %" PRIu64 " bytes were written, and expected_size was "
		               "%" PRIu64,
		               name, end, total);
	return 0;
}

/*
 * Whether the server has the object, although the last call failed: of an attempt before, whose answer was lost. It does if
 * an object of this length is there that is another than before.
 */
static bool multipart_is_there(struct sl_http_multipart *multipart,
                               const struct sl_http_answer *answer, uint64_t length)
{
	struct sl_http_request *request;
	const char *etag, *before = multipart->http->opened.of[SL_HTTP_FIELD_ETAG];
	bool there;

	if (answer->error != -ENOENT)
		return false;
	there = !sl_http_ask(multipart->http, SL_HTTP_HEAD, &request);
	if (there) {
		etag = request->response.texts.of[SL_HTTP_FIELD_ETAG];
		there = request->response.has_length && request->response.length == length &&
		        etag && (!before || strcmp(etag, before));
	}
	sl_http_request_free(request);
	return there;
}

/* Makes the object visible by the last call. */
static int multipart_finish(struct sl_http_multipart *multipart, struct sl_http_call *call,
                            uint64_t length)
{
	int rc = 0;

	if (multipart->http->flags & SLUICE_OPEN_EXCLUSIVE)
		rc = sl_http_fields_add(call->query ? &multipart->each : &multipart->whole,
		                        "If-None-Match: *");
	if (rc)
		return rc;
	rc = sl_http_call_run(multipart->http, call);
	if (rc && multipart_is_there(multipart, &call->answer, length))
		rc = 0;
	else if (rc == -EEXIST && call->answer.attempts)
		sl_fail(rc, "'%s' exists; perhaps by this upload, whose first answer was lost",
		        multipart->http->name);
	else if (rc && call->answer.sentence)
		sl_fail(rc, "%s", call->answer.sentence);
	sl_http_answer_clear(&call->answer);
	sl_mutex_lock(&multipart->mutex);
	multipart->locked.over = !rc;
	sl_mutex_unlock(&multipart->mutex);
	return rc;
}

static int multipart_put(struct sl_http_multipart *multipart, const char *data, uint64_t length)
{
	struct sl_http_call call = {
		.verb = "PUT", .body = data, .length = length, .fields = &multipart->whole};

	return multipart_finish(multipart, &call, length);
}

/* All parts are there: no other thread has the upload. */
static int multipart_complete(struct sl_http_multipart *multipart, uint64_t length) SL_UNCHECKED
{
	unsigned count = multipart->locked.low - 1;
	struct sl_http_call call = {.verb = "POST", .fields = &multipart->each};
	const char **etags = calloc(count, sizeof(*etags));
	char *query = sl_s3_upload_query(multipart->locked.upload, 0), *body = NULL;
	int rc = -ENOMEM;

	for (unsigned i = 0; etags && i < count; i++)
		etags[i] = multipart->locked.known[i].etag;
	if (etags && query)
		body = sl_s3_upload_complete(etags, count);
	if (body) {
		call.query = query;
		call.body = body;
		call.length = strlen(body);
		rc = multipart_finish(multipart, &call, length);
	} else {
		sl_fail(rc, "no memory");
	}
	free(etags);
	free(query);
	free(body);
	return rc;
}

/* No piece is in flight. */
int sl_http_multipart_commit(struct sl_http_multipart *multipart) SL_UNCHECKED
{
	struct sl_list full;
	struct part *last;
	uint64_t end;
	bool begun;
	int rc;

	sl_list_init(&full);
	sl_mutex_lock(&multipart->mutex);
	end = multipart_chain_end_locked(multipart);
	rc = multipart_check_locked(multipart, end);
	begun = multipart->locked.begun;
	last = multipart_part_locked(multipart, multipart->locked.low);
	if (!rc && begun && last) {
		last->place.length = end - last->place.start;
		multipart->locked.known[last->place.number - 1].full = true;
		multipart->locked.low++;
		multipart_take_full_locked(multipart, &full);
	}
	sl_mutex_unlock(&multipart->mutex);
	multipart_send_all(multipart, &full);
	if (rc)
		return rc;
	if (!begun) {
		last = multipart_part_locked(multipart, 1);
		return multipart_put(multipart, last ? last->data : "", end);
	}
	multipart_wait(multipart);
	rc = multipart_check_locked(multipart, end);
	return rc ? rc : multipart_complete(multipart, end);
}

/* After the wait no other thread has the upload. */
void sl_http_multipart_free(struct sl_http_multipart *multipart) SL_UNCHECKED
{
	if (!multipart)
		return;
	sl_mutex_lock(&alive.mutex);
	if (sl_list_linked(&multipart->alive))
		sl_list_remove(&multipart->alive);
	sl_mutex_unlock(&alive.mutex);
	multipart_abort(multipart);
	sl_list_each_of (part, &multipart->locked.parts, struct part, link)
		part_free(part);
	sl_list_each_of (part, &multipart->locked.spare, struct part, link)
		part_free(part);
	for (unsigned i = 0; i < multipart->locked.known_count; i++)
		free(multipart->locked.known[i].etag);
	free(multipart->locked.known);
	free(multipart->locked.upload);
	free(multipart->locked.sentence);
	sl_http_fields_clear(&multipart->whole);
	sl_http_fields_clear(&multipart->each);
	sl_gate_give(&multipart->http->engine->uploads, multipart->share);
	pthread_cond_destroy(&multipart->idle);
	sl_mutex_destroy(&multipart->mutex);
	free(multipart);
}
