/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Uploads in parts
 *
 * Writes an object of a service. Pieces are copied into buffers of parts, in any order within a
 * window; a part that is full is sent by a call of its own (call.c), again from its buffer if that
 * fails. An object that fits into one part is a single PUT. The object is visible when the last
 * call has succeeded, which sluice_close() makes.
 *
 * The low part is the first that is not full. The window is the low part, and those behind it as
 * far as all of them together fit into the file's share of memory. Only parts of the window get
 * buffers, while the share has room beside the parts in flight. So no write within the window waits
 * in vain, whatever else is written, and half-filled parts cannot use the share up: a part in
 * flight is over some day and gives its buffer back; when none is in flight, all parts that have
 * buffers are in the window, all of which fits. So the low part gets a buffer in the end, is
 * filled, and the window moves on. (Where a single part is longer than the share, the window is
 * that part, and it waits for all others.) A write that goes beyond the window waits if all bytes
 * before it are written or being written, which those of memory of a device are from their turn for
 * slots on. Otherwise the bytes that could move the window may never come, and the write is
 * refused. The share only grows, from what no file has, so no file waits for another.
 *
 * Threads: pieces are submitted on any thread, which copies the bytes of short pieces. Threads of
 * the pool copy those of long pieces, side by side, a part each, and those of pieces that had to
 * wait. While a piece `waits`, no thread reserves more of it; the last that copies bytes of it ends
 * it. Reactors end calls; sluice_close() and sluice_discard() wait for their ends.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "http/multipart_internal.h"

#define COPY_APART ((size_t)256 << 10)
/* To move a sum takes longer than to read so few bytes again. */
#define COPY_SUMS  ((size_t)64 << 10)
#define COPY_BLOCK ((size_t)32 << 10)

/* ----------------------------------------------------------------------------- ends of pieces */

/* Takes a piece that is over, or whose upload is, if no thread has bytes of it. */
static void piece_take_over_locked(struct sl_http_multipart *multipart, struct sl_piece *piece,
                                   struct sl_list *out) SL_REQUIRES(&multipart->mutex)
{
	const struct sl_http_piece *own = sl_http_piece_of(piece);

	if (!own->waits || own->uses || (!multipart->locked.error && piece->moved < piece->length))
		return;
	sl_list_move(&piece->link, out);
}

/* Keeps the first error, ends calls and waiting pieces. The caller has a piece or the upload. */
static void multipart_fail_unlock(struct sl_http_multipart *multipart, int error,
                                  const char *sentence) SL_RELEASES(&multipart->mutex)
{
	struct sl_list over = SL_LIST_INIT(over);

	if (!multipart->locked.error) {
		multipart->locked.error = error;
		multipart->locked.sentence = sentence ? strdup(sentence) : NULL;
	}
	/* Neither changes any more. */
	error = multipart->locked.error;
	sentence = multipart->locked.sentence;
	sl_list_each_of (piece, &multipart->locked.pieces, struct sl_piece, link)
		piece_take_over_locked(multipart, piece, &over);
	/* The reactors end the calls. A piece that others copy may end, and the file with it, as
	 * soon as the mutex is released. */
	atomic_store(&multipart->dropped, true);
	atomic_store(&multipart->http->engine->cancelling, true);
	sl_http_multi_wake(multipart->http->multi);
	sl_mutex_unlock(&multipart->mutex);
	sl_http_end_pieces(&over, error, sentence);
}

void sl_http_multipart_fail(struct sl_http_multipart *multipart, int error, const char *sentence)
{
	sl_mutex_lock(&multipart->mutex);
	multipart_fail_unlock(multipart, error, sentence);
}

/* -------------------------------------------------------------------------------------- send */

static void part_over(struct sl_http_call *call);

/* Takes the pieces that wait and can go on for now, and gives their parts buffers. */
static void multipart_take_ready_locked(struct sl_http_multipart *multipart, struct sl_list *out)
	SL_REQUIRES(&multipart->mutex)
{
	struct sl_http_cut cut;
	int error = 0;

	sl_list_each_of (piece, &multipart->locked.pieces, struct sl_piece, link) {
		uint64_t at = piece->offset + piece->moved;

		if (at >= multipart->locked.window)
			break;
		if (!sl_http_piece_of(piece)->waits || piece->moved == piece->length)
			continue;
		sl_http_plan_find(&multipart->plan, at, &cut);
		/* Without memory the piece finds the same error. */
		if (!sl_http_multipart_buffer_locked(multipart, &cut, &error) && !error)
			break;
		sl_http_piece_of(piece)->waits = false;
		sl_list_append(out, &piece->task.link);
	}
}

/* Takes the parts that are ready, if the upload has its id. */
static void multipart_take_full_locked(struct sl_http_multipart *multipart, struct sl_list *out)
	SL_REQUIRES(&multipart->mutex)
{
	if (!multipart->locked.upload || multipart->locked.error)
		return;
	sl_list_each_of (part, &multipart->locked.parts, struct sl_http_part, link) {
		if (!part->ready)
			continue;
		sl_list_move(&part->link, out);
		multipart->locked.flying++;
	}
}

/* The upload has an id, which does not change any more. */
static void part_send(struct sl_http_multipart *multipart, struct sl_http_part *part) SL_UNCHECKED
{
	part->call.upload = multipart->locked.upload;
	part->call.part = part->cut.number;
	/* The server's answer about checksums may have come after the part was prepared. */
	if (atomic_load(&multipart->plain))
		part->call.digest.line[0] = '\0';
	sl_http_call_start(multipart->http, &part->call);
}

/* Sends parts and lets pieces go on, as far as they can. The caller has a piece or a call. */
static void multipart_advance_unlock(struct sl_http_multipart *multipart)
	SL_RELEASES(&multipart->mutex)
{
	struct sl_list full = SL_LIST_INIT(full), ready = SL_LIST_INIT(ready);

	multipart_take_full_locked(multipart, &full);
	multipart_take_ready_locked(multipart, &ready);
	sl_mutex_unlock(&multipart->mutex);
	sl_list_each_of (part, &full, struct sl_http_part, link)
		part_send(multipart, part);
	sl_list_each_of (task, &ready, struct sl_task, link)
		sl_pool_submit(multipart->http->core->pool, task);
}

void sl_http_multipart_fill(struct sl_http_multipart *multipart, struct sl_http_part *part)
{
	uint32_t sum;

	part->call = (struct sl_http_call){.kind = SL_CALL_PART,
	                                   .body = part->data,
	                                   .length = part->cut.length,
	                                   .fields = &multipart->each,
	                                   .stop = &multipart->dropped,
	                                   .over = part_over};
	sl_http_call_digest(multipart->http, &part->call, !atomic_load(&multipart->plain),
	                    sl_http_part_sum(part, part->cut.length, &sum));
	sl_mutex_lock(&multipart->mutex);
	part->ready = true;
	multipart->locked.known[part->cut.number - 1].full = true;
	sl_http_multipart_move_locked(multipart, true);
	multipart_advance_unlock(multipart);
}

void sl_http_multipart_landed(struct sl_http_multipart *multipart)
{
	sl_mutex_lock(&multipart->mutex);
	if (!--multipart->locked.flying)
		pthread_cond_broadcast(&multipart->idle);
	sl_mutex_unlock(&multipart->mutex);
}

static void part_over(struct sl_http_call *call)
{
	struct sl_http_part *part = SL_CONTAINER(call, struct sl_http_part, call);
	struct sl_http_multipart *multipart = part->multipart;
	struct sl_http_answer *answer = &call->answer;
	char **etag = &answer->texts.of[SL_HTTP_FIELD_ETAG];
	struct sl_service_part *known;

	sl_http_call_compare(multipart->http, call);
	if (answer->error)
		sl_http_multipart_fail(multipart, answer->error, answer->sentence);
	sl_mutex_lock(&multipart->mutex);
	known = &multipart->locked.known[part->cut.number - 1];
	known->etag = answer->error ? NULL : *etag;
	if (known->etag)
		*etag = NULL;
	snprintf(known->sum, sizeof(known->sum), "%s", sl_http_call_sum(call));
	sl_http_answer_clear(answer);
	sl_list_append(&multipart->locked.spare, &part->link);
	multipart_advance_unlock(multipart);
	sl_http_multipart_landed(multipart);
}

/* The upload has begun, or failed. Takes the id. */
static void multipart_begun(struct sl_http_multipart *multipart, char *upload, int64_t began)
{
	sl_mutex_lock(&multipart->mutex);
	multipart->locked.upload = upload;
	multipart->locked.began = began;
	multipart_advance_unlock(multipart);
	sl_http_multipart_landed(multipart);
}

static void create_over(struct sl_http_call *call)
{
	struct sl_http_multipart *multipart = SL_CONTAINER(call, struct sl_http_multipart, create);
	const struct sl_service *service = multipart->http->signer->service;
	struct sl_http_answer *answer = &call->answer;
	const char *sums = answer->texts.of[SL_HTTP_FIELD_CHECKSUM_ALGORITHM];
	const char *date = answer->texts.of[SL_HTTP_FIELD_DATE];
	int64_t began = date ? curl_getdate(date, NULL) : -1;
	char id[SL_SERVICE_UPLOAD], *upload = NULL;

	if (sl_http_call_again(multipart->http, call)) {
		sl_http_call_start(multipart->http, call);
		return;
	}
	/* A server that knows nothing of checksums does not repeat the line. */
	if (!sums || strcasecmp(sums, sl_http_call_sum(call)))
		atomic_store(&multipart->plain, true);
	if (!answer->error) {
		service->texts->answers(call->kind, answer->xml, id, sizeof(id));
		upload = strdup(id);
		answer->error = upload ? 0 : -ENOMEM;
	}
	/* The server is there: a request is made again for as long as parts come through. */
	atomic_store(&multipart->http->begun, true);
	if (answer->error)
		sl_http_multipart_fail(multipart, answer->error, answer->sentence);
	sl_http_answer_clear(answer);
	multipart_begun(multipart, upload, began);
}

/* No attempt is cut: nobody would know the id of an upload that the server began. */
void sl_http_multipart_create(struct sl_http_multipart *multipart)
{
	const struct sl_service *service = multipart->http->signer->service;
	char *upload;

	if (!service->verbs[SL_CALL_BEGIN]) {
		upload = sl_format("%016" PRIx64, multipart->http->number ^ (uint64_t)sl_now());
		if (!upload)
			sl_http_multipart_fail(multipart, -ENOMEM, NULL);
		multipart_begun(multipart, upload, -1);
		return;
	}
	multipart->create = (struct sl_http_call){.kind = SL_CALL_BEGIN,
	                                          .fields = &multipart->whole,
	                                          .stop = &multipart->dropped,
	                                          .least = 1,
	                                          .over = create_over};
	if (!atomic_load(&multipart->plain) && service->sum_line)
		snprintf(multipart->create.digest.line, SL_SERVICE_LINE, "%s", service->sum_line);
	sl_http_call_start(multipart->http, &multipart->create);
}

/* -------------------------------------------------------------------------------------- copy */

/* Reserves *n bytes of a part for a piece. Returns NULL if the piece waits, or with *error. */
static struct sl_http_part *piece_step_locked(struct sl_http_multipart *multipart,
                                              const struct sl_piece *piece, size_t *n, int *error)
	SL_REQUIRES(&multipart->mutex)
{
	uint64_t at = piece->offset + piece->moved, from;
	struct sl_http_cut cut;
	struct sl_http_part *part;

	if (at >= multipart->locked.window)
		return NULL;
	sl_http_plan_find(&multipart->plan, at, &cut);
	if (cut.number > multipart->plan.limits->parts) {
		*error = -EFBIG;
		return NULL;
	}
	part = sl_http_multipart_buffer_locked(multipart, &cut, error);
	if (!part)
		return NULL;
	from = at - cut.start;
	*n = SL_MIN(piece->length - piece->moved, cut.length - from);
	*error = sl_http_part_add(part, from, from + *n);
	return *error ? NULL : part;
}

/* Copies bytes into a part. Sums long ones while a core's cache has them: *sum is moved back to the
 * begin of the part, whose end is not known yet. Returns how many are summed. */
static size_t part_copy(const struct sl_http_part *part, size_t from, const char *data, size_t n,
                        uint32_t *sum)
{
	bool sums = n >= COPY_SUMS && !atomic_load(&part->multipart->plain);
	char *to = part->data + from;

	*sum = 0;
	for (size_t at = 0, step; at < n; at += step) {
		step = sums ? SL_MIN(n - at, COPY_BLOCK) : n;
		memcpy(to + at, data + at, step);
		if (sums)
			sl_crc32c_add(sum, to + at, step);
	}
	if (sums)
		*sum = sl_crc32c_move(*sum, -(int64_t)(from + n));
	return sums ? n : 0;
}

/* Copies bytes until the piece is over, or has to wait, or another thread goes on with it. */
static void piece_copy(struct sl_task *task)
{
	struct sl_piece *piece = SL_CONTAINER(task, struct sl_piece, task);
	struct sl_http_multipart *multipart = sl_http_of(piece->backend)->multipart;
	struct sl_list over = SL_LIST_INIT(over);
	struct sl_http_part *part;
	const char *sentence;
	bool shared = false;
	size_t n, summed;
	uint32_t sum;
	int error = 0;

	sl_mutex_lock(&multipart->mutex);
	while (!shared && !multipart->locked.error && piece->moved < piece->length &&
	       !atomic_load(&piece->cancelled) &&
	       (part = piece_step_locked(multipart, piece, &n, &error))) {
		const char *data = piece->data + piece->moved;
		size_t from = piece->offset + piece->moved - part->cut.start;

		piece->moved += n;
		sl_http_piece_of(piece)->uses++;
		shared = piece->moved < piece->length && n >= COPY_APART;
		sl_mutex_unlock(&multipart->mutex);
		if (shared)
			sl_pool_submit(multipart->http->core->pool, &piece->task);
		summed = part_copy(part, from, data, n, &sum);
		sl_mutex_lock(&multipart->mutex);
		part->copied += n;
		part->summed += summed;
		part->sum ^= sum;
		if (part->copied == part->cut.length) {
			sl_mutex_unlock(&multipart->mutex);
			sl_http_multipart_fill(multipart, part);
			sl_mutex_lock(&multipart->mutex);
		}
		sl_http_piece_of(piece)->uses--;
	}
	if (!shared)
		sl_http_piece_of(piece)->waits = true;
	if (!shared && piece->moved < piece->length && atomic_load(&piece->cancelled))
		error = -ECANCELED;
	if (error) {
		multipart_fail_unlock(multipart, error,
		                      error == -EFBIG ? multipart->plan.limits->too_long
		                                      : sl_error_text(error));
		return;
	}
	piece_take_over_locked(multipart, piece, &over);
	error = multipart->locked.error;
	sentence = multipart->locked.sentence;
	sl_mutex_unlock(&multipart->mutex);
	/* From here on the file may be closed. */
	sl_http_end_pieces(&over, error, sentence);
}

/* Returns why the piece cannot be taken, or 0. */
static int multipart_refuse_locked(struct sl_http_multipart *multipart,
                                   const struct sl_piece *piece, const char **why)
	SL_REQUIRES(&multipart->mutex)
{
	uint64_t end = piece->offset + piece->length;

	if (multipart->locked.error)
		return multipart->locked.error;
	*why = "more is written than expected_size said when it was opened";
	if (multipart->plan.total && end > multipart->plan.total)
		return -EFBIG;
	*why = "bytes of an upload are written once, and some of these were written already";
	if (sl_http_multipart_overlaps_locked(multipart, piece->offset, end))
		return -ESPIPE;
	*why = multipart->plan.limits->too_far;
	while (end > multipart->locked.window &&
	       piece->offset > sl_http_multipart_chain_locked(multipart))
		if (!sl_http_multipart_move_locked(multipart, true))
			return -ESPIPE;
	return 0;
}

void sl_http_multipart_submit(struct sl_http_multipart *multipart, struct sl_piece *piece)
{
	struct sl_list *before = &multipart->locked.pieces;
	const char *why = NULL;
	bool create;
	int error;

	piece->moved = 0;
	sl_http_piece_of(piece)->uses = 0;
	piece->task.run = piece_copy;
	sl_mutex_lock(&multipart->mutex);
	error = multipart_refuse_locked(multipart, piece, &why);
	while (before->previous != &multipart->locked.pieces &&
	       SL_CONTAINER(before->previous, struct sl_piece, link)->offset > piece->offset)
		before = before->previous;
	sl_list_append(before, &piece->link);
	sl_http_piece_of(piece)->waits = error;
	if (error) {
		/* The object would lack these bytes. */
		multipart_fail_unlock(multipart, error, why);
		return;
	}
	multipart->locked.reach = SL_MAX(multipart->locked.reach, piece->offset + piece->length);
	/* An object that fits into a part is sent when it is closed. */
	create = !multipart->locked.begun &&
	         SL_MAX(multipart->plan.total, multipart->locked.reach) > multipart->plan.bytes;
	multipart->locked.begun |= create;
	multipart->locked.flying += create;
	sl_mutex_unlock(&multipart->mutex);
	if (create)
		sl_http_multipart_create(multipart);
	if (piece->length >= COPY_APART)
		sl_pool_submit(multipart->http->core->pool, &piece->task);
	else
		piece_copy(&piece->task);
}

/* Each extent may follow those before it. */
static int multipart_admits(struct sl_backend *backend, const struct sluice_extent *extents,
                            size_t count, const char **why)
{
	struct sl_http_multipart *multipart = sl_http_of(backend)->multipart;
	struct sl_coming own = {.extents = extents};
	bool grows = true;
	uint64_t end = 0;

	*why = "a PUT is written from memory of the host, and not in stream order: copy the bytes "
	       "there, and write those";
	if (!multipart)
		return -ENOTSUP;
	sl_mutex_lock(&multipart->mutex);
	sl_list_append(&multipart->locked.coming, &own.link);
	for (; own.count < count; own.count++) {
		uint64_t from = extents[own.count].offset, to = from + extents[own.count].length;

		if (from > end && to > multipart->locked.window)
			end = sl_http_multipart_chain_locked(multipart);
		while (from > end && to > multipart->locked.window && grows)
			grows = sl_http_multipart_move_locked(multipart, true);
		if (from > end && to > multipart->locked.window)
			break;
		if (from <= end)
			end = SL_MAX(end, to);
	}
	sl_list_remove(&own.link);
	sl_mutex_unlock(&multipart->mutex);
	*why = multipart->plan.limits->too_far;
	return own.count < count ? -ESPIPE : 0;
}

static void multipart_announce(struct sl_backend *backend, struct sl_coming *coming)
{
	struct sl_http_multipart *multipart = sl_http_of(backend)->multipart;

	if (!multipart)
		return;
	sl_mutex_lock(&multipart->mutex);
	sl_list_append(&multipart->locked.coming, &coming->link);
	sl_mutex_unlock(&multipart->mutex);
}

static void multipart_settle(struct sl_backend *backend, struct sl_coming *coming, int error)
{
	struct sl_http_multipart *multipart = sl_http_of(backend)->multipart;
	bool announced;

	if (!multipart)
		return;
	sl_mutex_lock(&multipart->mutex);
	announced = sl_list_linked(&coming->link);
	if (announced)
		sl_list_remove(&coming->link);
	/* Other writes may wait for its bytes. */
	if (announced && error)
		multipart_fail_unlock(multipart, error, "a write of the upload before this failed");
	else
		sl_mutex_unlock(&multipart->mutex);
}

const struct sl_slot_writes sl_http_slot_writes = {
	.admits = multipart_admits, .announce = multipart_announce, .settle = multipart_settle};

void sl_http_multipart_cancel(struct sl_http_multipart *multipart)
{
	bool cancelled = false;

	sl_mutex_lock(&multipart->mutex);
	sl_list_each_of (piece, &multipart->locked.pieces, struct sl_piece, link)
		cancelled |= sl_http_piece_of(piece)->waits && piece->moved < piece->length &&
		             atomic_load(&piece->cancelled);
	if (cancelled)
		multipart_fail_unlock(multipart, -ECANCELED, "the upload was cancelled");
	else
		sl_mutex_unlock(&multipart->mutex);
}
