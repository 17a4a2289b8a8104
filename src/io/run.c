/* SPDX-License-Identifier: Apache-2.0 */
/* How an operation runs: its start, and its pieces until the last one is over. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "io/io.h"

/* What is moved to or from memory of a device at a time, without the engine's slots. */
#define DEVICE_PIECE ((size_t)8 << 20)

/* ------------------------------------------------------------------------------------ pieces */

/*
 * Whether a short read lacks bytes that were there when the operation began: pieces end where the
 * file ended then, if that was known. In stream order there is nobody to be told how much came.
 */
static bool lacks_bytes(struct sluice_op *op, const struct sl_piece *piece)
{
	return !piece->write && !piece->error && piece->moved < piece->length &&
	       (op->on_stream || op->locked.plan.file_size != INT64_MAX);
}

/* NULL if there is no memory for it. */
static char *piece_message(struct sluice_op *op, const struct sl_piece *piece, bool lacks)
{
	uint64_t at = piece->offset + piece->moved;
	char *message;
	int rc;

	if (piece->message)
		return piece->message;
	if (lacks && op->on_stream)
		rc = asprintf(&message,
		              "'%s' ends at byte %" PRIu64 ", before what was to be read in "
		              "stream order",
		              op->file->uri, at);
	else if (lacks)
		rc = asprintf(&message,
		              "'%s' was cut short while it was read: bytes from %" PRIu64
		              " on are missing",
		              op->file->uri, at);
	else
		rc = asprintf(&message, "cannot %s '%s' at byte %" PRIu64 ": %s",
		              piece->write ? "write" : "read", op->file->uri, at,
		              sl_error_text(piece->error));
	return rc < 0 ? NULL : message;
}

static void part_done(struct sl_piece *piece)
{
	struct sl_part *part = SL_CONTAINER(piece, struct sl_part, piece);
	struct sluice_op *op = part->op;
	bool lacks = lacks_bytes(op, piece);

	if (lacks)
		piece->error = -EIO;
	if (part->seat && !piece->write)
		sl_staged_got(op, piece);
	if (piece->error)
		sl_op_fail(op, piece->error, piece_message(op, piece, lacks));
	sl_mutex_lock(&op->mutex);
	op->locked.in_flight--;
	op->locked.moved += piece->moved;
	sl_list_remove(&part->link);
	sl_list_append(&op->locked.spare, &part->link);
	if (part->seat)
		sl_staged_piece_done(part->seat, piece->moved);
	sl_op_pump_locked(op);
}

/* A part to send out; NULL: there is no memory, and those in flight have to do. */
static struct sl_part *take_part(struct sluice_op *op)
{
	struct sl_list *link = sl_list_take(&op->locked.spare);
	struct sl_part *part;

	if (link)
		return SL_CONTAINER(link, struct sl_part, link);
	if (!op->one_part.op)
		part = &op->one_part;
	else
		part = calloc(1, sizeof(*part));
	if (part)
		part->op = op;
	return part;
}

static void fill_part(struct sl_part *part, const struct sl_next_piece *cut)
{
	struct sluice_op *op = part->op;
	struct sl_piece *piece = &part->piece;

	piece->backend = op->file->backend;
	piece->data = cut->data;
	piece->length = cut->length;
	piece->offset = cut->offset;
	piece->device = op->staged ? NULL : op->device;
	piece->write = op->kind == SL_WRITE;
	piece->large = cut->large;
	piece->aligned = cut->aligned;
	piece->missed = op->missed;
	piece->done = part_done;
	atomic_store_explicit(&piece->cancelled, false, memory_order_relaxed);
	piece->moved = 0;
	piece->error = 0;
	piece->message = NULL;
}

/*
 * The next piece to hand out, or NULL for now. Direct and buffered pieces of one write are never in
 * flight together: neighbours may lie in one folio of the page cache. The mutex is held.
 */
static struct sl_part *next_part(struct sluice_op *op)
{
	struct sl_next_piece cut;
	struct sl_part *part;
	bool turn;

	if (op->locked.stopped || op->locked.in_flight == op->locked.plan.limits->depth)
		return NULL;
	while (!sl_plan_peek(&op->locked.plan, &cut))
		if (!op->staged || !sl_staged_next(op))
			return NULL;
	turn = op->kind == SL_WRITE && cut.aligned != op->locked.aligned;
	if (op->locked.in_flight && (turn || op->locked.plan.limits->sequential))
		return NULL;
	part = take_part(op);
	if (!part)
		return NULL;
	sl_plan_advance(&op->locked.plan, &cut);
	fill_part(part, &cut);
	part->seat = op->staged ? op->staged->locked.seat : NULL;
	part->piece.urgent = part->seat && sl_staged_urgent(part->seat);
	if (part->seat)
		part->seat->pieces++;
	op->locked.aligned = cut.aligned;
	op->locked.in_flight++;
	sl_list_append(&op->locked.flying, &part->link);
	return part;
}

/* The mutex is held. */
static bool is_over(struct sluice_op *op)
{
	/* Nothing in flight and no part to be had: the plan has ended, or it was stopped. */
	return op->staged ? sl_staged_over(op) : !op->locked.in_flight;
}

/*
 * Whether what waits for the operation in the file must go on, although the operation is not over: it
 * is torn, and waits until its stream has run out, which may hold just those others. The mutex is held.
 */
static bool leaves_object(struct sluice_op *op)
{
	if (op->locked.stored || !op->staged || !op->staged->locked.torn || !sl_staged_stored(op) ||
	    op->staged->way == SL_WAY_DEVICE)
		return false;
	op->locked.stored = true;
	/* Another thread may end it meanwhile. */
	atomic_fetch_add(&op->references, 1);
	atomic_fetch_add(&op->file->in_flight, 1);
	return true;
}

static void leave_object(struct sluice_op *op)
{
	struct sluice_file *file = op->file;
	struct sl_list ready;

	sl_list_init(&ready);
	sl_order_leave(op, &ready);
	sl_late_left(op->ctx);
	sl_op_start_all(&ready);
	sl_file_release(file);
	sl_op_unref(op);
}

/*
 * Called at the start, after each piece, and when something that a piece waited for has come, from any
 * thread. One does the work, the others tell it to look again. Nobody else ends the operation, and
 * each piece that is not over calls this once more, so the operation lives until then.
 */
void sl_op_pump_locked(struct sluice_op *op)
{
	struct sl_part *part;
	bool over, leaves;

	if (op->locked.pumping || op->locked.over) {
		op->locked.again = true;
		sl_mutex_unlock(&op->mutex);
		return;
	}
	op->locked.pumping = true;
	do {
		op->locked.again = false;
		while ((part = next_part(op))) {
			sl_mutex_unlock(&op->mutex);
			part->piece.backend->ops->submit(part->piece.backend, &part->piece);
			sl_mutex_lock(&op->mutex);
		}
	} while (op->locked.again);
	op->locked.pumping = false;
	over = is_over(op);
	op->locked.over = over;
	leaves = !over && leaves_object(op);
	sl_mutex_unlock(&op->mutex);
	if (leaves)
		leave_object(op);
	if (!over)
		return;
	if (op->staged)
		sl_staged_end(op);
	sl_op_end(op);
}

/* ------------------------------------------------------------------------------------- start */

static void proceed(struct sluice_op *op)
{
	if (op->staged) {
		sl_staged_start(op);
		return;
	}
	sl_mutex_lock(&op->mutex);
	sl_op_pump_locked(op);
}

static void fail(struct sluice_op *op, int rc, const char *what)
{
	char *message;

	if (asprintf(&message, "cannot %s '%s': %s", what, op->file->uri, sl_error_text(rc)) < 0)
		message = NULL;
	sl_op_fail(op, rc, message);
}

static bool is_stopped(struct sluice_op *op)
{
	bool stopped;

	sl_mutex_lock(&op->mutex);
	stopped = op->locked.stopped;
	sl_mutex_unlock(&op->mutex);
	return stopped;
}

/* Sync and truncate. */
static void run_task(struct sl_task *task)
{
	struct sluice_op *op = SL_CONTAINER(task, struct sluice_op, task);
	struct sl_backend *backend = op->file->backend;
	int rc = 0;

	/* Cancelled before it began: it leaves no trace. */
	if (!is_stopped(op))
		rc = op->kind == SL_SYNC ? backend->ops->sync(backend)
		                         : backend->ops->truncate(backend, op->length);
	if (rc)
		fail(op, rc, op->kind == SL_SYNC ? "sync" : "truncate");
	proceed(op);
}

/* Whether the operation may have to set the length that it brings the file to: direct writes that extend a file
 * are slow one by one. */
static bool may_reserve(const struct sluice_op *op)
{
	return op->kind == SL_WRITE && op->count == 1 && !op->device &&
	       op->file->backend->ops->reserve && op->file->limits.alignment &&
	       op->extents[0].length >= op->ctx->core.settings.direct_bytes;
}

static bool wants_reserve(const struct sluice_op *op, int64_t size)
{
	return size >= 0 && may_reserve(op) &&
	       op->extents[0].offset + op->extents[0].length > (uint64_t)size;
}

/*
 * What is in memory already needs nobody else: the operation is over as it starts, or, in stream order,
 * when the device has copied it.
 */
static bool read_now(struct sluice_op *op)
{
	struct sl_backend *backend = op->file->backend;
	const struct sluice_extent *extent = &op->extents[0];
	char *place;
	int64_t moved;

	if (op->missed || op->kind != SL_READ || op->count != 1 || !extent->length || op->device ||
	    !backend->ops->read_now || extent->length > op->ctx->core.settings.inline_bytes)
		return false;
	place = op->staged ? sl_staged_place(op) : extent->data;
	if (!place)
		return false;
	moved = backend->ops->read_now(backend, place, extent->length, extent->offset);
	op->missed = moved < 0;
	if (op->missed)
		return false;
	if (op->staged) {
		sl_staged_filled(op, place, (uint64_t)moved);
	} else {
		op->locked.moved = (uint64_t)moved;
		sl_op_end(op);
	}
	return true;
}

/*
 * The largest piece. Writes to a local file are not shared among more workers than they need: the file
 * has one lock.
 */
static size_t piece_bytes(struct sluice_op *op, uint64_t bytes)
{
	const struct sl_limits *limits = &op->file->limits;

	return op->kind == SL_READ || limits->remote ? sl_plan_piece(limits, bytes)
	                                             : limits->piece_bytes;
}

/* Those of the operation, and of all others of the file that have begun. */
static uint64_t bytes_in_flight(struct sluice_op *op)
{
	for (size_t i = 0; i < op->count; i++)
		op->bytes += op->extents[i].length;
	return atomic_fetch_add_explicit(&op->file->bytes, op->bytes, memory_order_relaxed) +
	       op->bytes;
}

/* In stream order nobody can be told that less came than was asked for. */
static void check_end(struct sluice_op *op, uint64_t size)
{
	char *message;

	for (size_t i = 0; i < op->count; i++) {
		if (!op->extents[i].length || op->extents[i].offset + op->extents[i].length <= size)
			continue;
		if (asprintf(&message,
		             "'%s' ends at byte %" PRIu64
		             ", before what was to be read in stream order",
		             op->file->uri, size) < 0)
			message = NULL;
		sl_op_fail(op, -EIO, message);
		return;
	}
}

/* Its pieces are known from here on. size: of the file now, or what the backend says instead. */
static void plan(struct sluice_op *op, int64_t size)
{
	if (size < -1 && op->kind == SL_READ)
		sl_op_fail(op, (int)size, NULL);
	if (size >= 0 && op->kind == SL_READ && op->on_stream && !op->order.follows)
		check_end(op, (uint64_t)size);
	if (size < 0 || op->kind != SL_READ)
		size = INT64_MAX;
	/* In stream order the doorbell may be looking already. */
	sl_mutex_lock(&op->mutex);
	op->locked.plan = (struct sl_plan){
		.extents = op->extents,
		.count = op->staged ? 0 : op->count, /* sl_staged_next() says what is cut */
		.limits = &op->file->limits,
		.direct_bytes = op->ctx->core.settings.direct_bytes,
		.file_size = (uint64_t)size,
		.piece_bytes = piece_bytes(op, bytes_in_flight(op)),
	};
	if (op->device) {
		op->locked.plan.direct_bytes = UINT64_MAX;
		op->locked.plan.piece_bytes = DEVICE_PIECE;
	}
	sl_mutex_unlock(&op->mutex);
}

/* Of those that the size was asked for; NULL: there is none left. */
static struct sluice_op *take_asked(struct sluice_file *file)
{
	struct sluice_op *op = NULL;
	struct sl_list *link;

	sl_mutex_lock(&file->mutex);
	link = sl_list_take(&file->locked.asked);
	if (link) {
		op = SL_CONTAINER(link, struct sluice_op, order.link);
		op->preparing = false;
	}
	sl_mutex_unlock(&file->mutex);
	return op;
}

/* False: nobody has come meanwhile. */
static bool take_batch(struct sluice_file *file)
{
	struct sl_list *link;
	bool some;

	sl_mutex_lock(&file->mutex);
	while ((link = sl_list_take(&file->locked.waiting)))
		sl_list_append(&file->locked.asked, link);
	some = file->locked.asks = !sl_list_empty(&file->locked.asked);
	sl_mutex_unlock(&file->mutex);
	return some;
}

/*
 * Asks once for the size for all operations that wait for it, and reserves space for those that extend the file, on
 * a thread that may wait. So a file whose storage does not answer keeps one thread, however many operations it has.
 */
static void run_prepare(struct sl_task *task)
{
	struct sluice_file *file = SL_CONTAINER(task, struct sluice_file, prepare);
	struct sl_backend *backend = file->backend;
	struct sluice_op *op;

	while (take_batch(file)) {
		int64_t size = backend->ops->size(backend);

		while ((op = take_asked(file))) {
			int rc = 0;

			plan(op, size);
			if (wants_reserve(op, size) && !is_stopped(op))
				rc = backend->ops->reserve(backend, op->extents[0].offset,
				                           op->extents[0].length);
			if (rc)
				fail(op, rc, "reserve space for");
			proceed(op);
		}
	}
	sl_file_release(file);
}

static void prepare(struct sluice_op *op)
{
	struct sluice_file *file = op->file;
	bool submit;

	sl_mutex_lock(&file->mutex);
	/* A cancel stops the operation before it looks for `preparing`: it is seen here, or finds it there. */
	if (is_stopped(op)) {
		sl_mutex_unlock(&file->mutex);
		plan(op, -1);
		proceed(op);
		return;
	}
	op->preparing = true;
	sl_list_append(&file->locked.waiting, &op->order.link);
	submit = !file->locked.asks;
	file->locked.asks = true;
	/* With the mutex: afterwards the operation may be over, and the file closed. */
	if (submit)
		atomic_fetch_add(&file->in_flight, 1);
	sl_mutex_unlock(&file->mutex);
	if (!submit)
		return;
	file->prepare.run = run_prepare;
	sl_pool_submit(file->ctx->core.waiting, &file->prepare);
}

void sl_op_withdraw(struct sluice_op *op)
{
	struct sluice_file *file = op->file;
	bool prepares;

	if (sl_order_withdraw(op)) {
		proceed(op);
		return;
	}
	sl_mutex_lock(&file->mutex);
	prepares = op->preparing;
	op->preparing = false;
	if (prepares)
		sl_list_remove(&op->order.link);
	sl_mutex_unlock(&file->mutex);
	if (prepares) {
		plan(op, -1);
		proceed(op);
	} else if (op->staged) {
		sl_staged_cancel(op);
	}
}

void sl_op_start(struct sluice_op *op)
{
	struct sl_backend *backend = op->file->backend;
	bool asks = op->kind == SL_READ || may_reserve(op);
	int64_t size = -1;

	if (read_now(op))
		return;
	if (asks && op->file->limits.size_waits) {
		prepare(op);
		return;
	}
	if (asks && backend->ops->size)
		size = backend->ops->size(backend);
	if (wants_reserve(op, size)) {
		prepare(op);
		return;
	}
	plan(op, size);
	if (op->kind == SL_SYNC || op->kind == SL_TRUNCATE) {
		op->task.run = run_task;
		sl_pool_submit(op->ctx->core.waiting, &op->task);
	} else {
		proceed(op);
	}
}

void sl_op_start_all(struct sl_list *ready)
{
	/* An operation that ends at its start lets others start: a queue instead of a recursion. */
	static _Thread_local struct sl_list *starting;
	struct sl_list *link;

	if (sl_list_empty(ready))
		return;
	if (starting) {
		while ((link = sl_list_take(ready)))
			sl_list_append(starting, link);
		return;
	}
	starting = ready;
	while ((link = sl_list_take(ready)))
		sl_op_start(SL_CONTAINER(link, struct sluice_op, order.link));
	starting = NULL;
}
