/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pieces
 *
 * Runs an operation: starts it, cuts its extents into pieces, hands those to the backend, and sees
 * when the last has come back. Any thread that submits, or that ends a piece, a copy or a wait of
 * another operation. Calls that may wait for storage run on the pool core.waiting.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

#include "io/staged/staged.h"

/* The bytes of a piece to or from memory of a device, without the engine's slots. */
#define DEVICE_PIECE ((size_t)8 << 20)
/* The most extents of a piece. */
#define JOINED_MOST 1024
/* Of the bytes in flight of a file whose pieces follow them so many pieces are wanted. */
#define SPREAD 32
/* After that a submitting thread leaves the next pieces to a worker. */
#define BRIEF_NS 4000

/* ------------------------------------------------------------------------------------- plan */

/* Returns the largest piece of an operation while that many bytes of its file are in flight. */
static size_t plan_piece(const struct sl_limits *limits, uint64_t bytes)
{
	const uint64_t unit = 64 << 10;
	uint64_t piece;

	if (!limits->least_piece)
		return limits->piece_bytes;
	piece = (bytes / SPREAD + unit - 1) / unit * unit;
	return SL_MAX(SL_MIN(piece, limits->piece_bytes), limits->least_piece);
}

/* Returns true if an extent may belong to the piece by the kind of the backend. */
static bool plan_takes(const struct sl_plan *plan, const struct sluice_extent *e,
                       const struct sl_piece *piece, int64_t gaps, uint64_t wanted)
{
	/* Gaps are read: no more bytes than belong to the extents. */
	if (!plan->passes)
		return 2 * gaps <= (int64_t)wanted;
	return e->length < plan->direct_bytes && e->offset >= piece->offset + piece->length;
}

/* Adds extents to a piece that is all of the first, while none begins before it in the file. */
static void plan_join(const struct sl_plan *plan, size_t most, struct sl_piece *out)
{
	for (size_t i = plan->extent + 1; i < plan->count && out->extent_count < JOINED_MOST; i++) {
		const struct sluice_extent *e = &plan->extents[i];
		uint64_t end = e->offset + e->length;
		uint64_t length = SL_MAX(out->length, end - out->offset);
		int64_t gaps = out->gaps + (int64_t)(length - out->length - e->length);

		if (!e->length || e->offset < out->offset || end > plan->file_size ||
		    e->offset > out->offset + out->length + plan->gap || length > most ||
		    !plan_takes(plan, e, out, gaps, length - e->length))
			return;
		out->length = length;
		out->gaps = gaps;
		out->extent_count++;
	}
}

bool sl_plan_goes_on(struct sl_plan *plan)
{
	return sl_extents_skip(plan->extents, plan->count, plan->file_size, &plan->extent,
	                       &plan->position);
}

void sl_plan_cut(struct sl_plan *plan, struct sl_piece *out)
{
	const struct sl_limits *limits = plan->limits;
	uint32_t alignment = limits->alignment;
	const struct sluice_extent *extent;
	size_t piece = plan->piece_bytes ? plan->piece_bytes : limits->piece_bytes;
	uint64_t left = sl_extents_skip(plan->extents, plan->count, plan->file_size, &plan->extent,
	                                &plan->position);
	uint64_t head;

	extent = &plan->extents[plan->extent];
	out->data = (char *)extent->data + plan->position;
	out->offset = extent->offset + plan->position;
	out->large = extent->length >= plan->direct_bytes;
	out->aligned = false;
	out->extents = extent;
	out->extent_count = 1;
	out->gaps = 0;
	if (limits->sequential || limits->uncut) {
		out->length = left;
		return;
	}
	/* Pieces end at multiples of their length, so that no two share a page; remote ones take a
	 * short rest with them, which would cost another request. */
	if (limits->remote)
		out->length = left <= piece + piece / 2 ? left : piece;
	else
		out->length = SL_MIN(left, piece - out->offset % piece);
	if (plan->joins && out->length == extent->length && !(plan->passes && out->large))
		plan_join(plan, piece, out);
	if (!out->large || !alignment)
		return;
	head = -out->offset & (alignment - 1);
	if (head) {
		out->length = SL_MIN(head, left);
	} else if (out->length >= alignment) {
		out->length -= out->length % alignment;
		out->aligned = true;
	}
}

void sl_plan_advance(struct sl_plan *plan, const struct sl_piece *piece)
{
	plan->taken += piece->length - piece->gaps;
	if (piece->extent_count > 1)
		plan->extent += piece->extent_count;
	else
		plan->position += piece->length;
}

/* ------------------------------------------------------------------------------------ pieces */

/* Returns true if a short read lacks bytes that the file had when the operation began: no piece
 * goes beyond the end of then, if that was known. In stream order each short read does, because its
 * program cannot learn how much came. */
static bool piece_lacks_bytes(struct sluice_op *op, const struct sl_piece *piece) SL_UNCHECKED
{
	return !piece->write && !piece->error && piece->moved < piece->length &&
	       (op->on_stream || op->locked.plan.file_size != INT64_MAX);
}

/* Returns the sentence of a piece that failed; NULL: no memory. */
static char *piece_message(struct sluice_op *op, const struct sl_piece *piece, bool lacks)
{
	uint64_t at = piece->offset + piece->moved;

	if (piece->message)
		return piece->message;
	if (lacks && op->on_stream)
		return sl_format("'%s' ends at byte %" PRIu64
		                 ", before what was to be read in stream order",
		                 op->file->uri, at);
	if (lacks)
		return sl_format("'%s' was cut short while it was read: bytes from %" PRIu64
		                 " on are missing",
		                 op->file->uri, at);
	return sl_format("cannot %s '%s' at byte %" PRIu64 ": %s", piece->write ? "write" : "read",
	                 op->file->uri, at, sl_error_text(piece->error));
}

/* The piece is over: on the thread that moved it, no lock held. */
static void piece_done(struct sl_piece *piece)
{
	struct sluice_op *op = piece->op;
	bool lacks = piece_lacks_bytes(op, piece);

	if (lacks)
		piece->error = -EIO;
	if (piece->slot_use && !piece->write)
		sl_staged_got(op, piece);
	if (piece->error)
		sl_op_fail(op, piece->error, piece_message(op, piece, lacks));
	sl_mutex_lock(&op->mutex);
	op->locked.in_flight--;
	op->locked.moved += piece->moved - (piece->moved == piece->length ? piece->gaps : 0);
	sl_list_move(&piece->engine_link, &op->locked.spare);
	if (piece->slot_use)
		sl_staged_piece_done_locked(op, piece->slot_use, piece->moved);
	sl_op_pump_unlock(op);
}

/* Returns a piece to hand out; NULL: there is no memory, and those in flight have to do. */
static struct sl_piece *piece_take_locked(struct sluice_op *op) SL_REQUIRES(&op->mutex)
{
	struct sl_piece *piece =
		sl_list_take_first(&op->locked.spare, struct sl_piece, engine_link);

	if (piece)
		return piece;
	if (!op->one_piece->op)
		piece = op->one_piece;
	else
		piece = calloc(1, sl_piece_size(op->file));
	if (piece)
		piece->op = op;
	return piece;
}

/* Sets all that the plan has not. */
static void piece_fill(struct sl_piece *piece)
{
	struct sluice_op *op = piece->op;

	piece->backend = op->file->backend;
	piece->device = op->staged ? NULL : op->device;
	piece->box = op->box;
	piece->write = op->kind == SL_WRITE;
	piece->missed = op->missed;
	piece->file_state = op->file_state;
	if (piece->extent_count == 1)
		piece->extents = NULL;
	piece->task.owner = NULL;
	piece->task.patient = piece->task.taken = false;
	piece->done = piece_done;
	atomic_store_explicit(&piece->cancelled, false, memory_order_relaxed);
	piece->moved = 0;
	piece->direct = false;
	piece->error = 0;
	piece->message = NULL;
}

/* Returns how many pieces of a staged read a disk has at a time. A virtual disk may end all of them
 * at once: the next are handed out then, in slots, if it has any, while these are copied. */
static unsigned plan_depth_of_disk_locked(const struct sluice_op *op) SL_REQUIRES(&op->mutex)
{
	const struct sl_plan *plan = &op->locked.plan;
	uint64_t ring = (uint64_t)op->staged->count * op->staged->shape.slot_bytes;

	if (!ring || op->bytes <= ring)
		return plan->limits->depth;
	return (unsigned)SL_MIN(SL_MAX(ring / 2 / plan->piece_bytes, 2), plan->limits->depth);
}

/* Returns how many pieces are wanted in flight, and says how the next is cut. */
static unsigned plan_depth_locked(struct sluice_op *op) SL_REQUIRES(&op->mutex)
{
	struct sl_backend *backend = op->file->backend;
	struct sl_plan *plan = &op->locked.plan;
	const struct sl_staged *staged = op->staged;
	uint64_t bytes = atomic_load_explicit(&op->file->bytes, memory_order_relaxed);
	uint64_t room = UINT64_MAX;
	struct sl_cut cut;

	if (op->kind == SL_READ && backend->ops->passes && !op->device) {
		plan->gap = backend->ops->passes(backend);
		plan->joins = plan->passes = plan->gap;
		if (staged && !plan->gap)
			return plan_depth_of_disk_locked(op);
	}
	if (op->kind != SL_READ || !backend->ops->cut)
		return plan->limits->depth;
	/* The other operations of the file have slots as well. */
	if (staged && staged->shape.slot_bytes)
		room = staged->count * staged->shape.slot_bytes *
		       SL_MAX(bytes / SL_MAX(op->bytes, 1), 1);
	cut = backend->ops->cut(backend, op->bytes, bytes - SL_MIN(bytes, plan->taken), room);
	plan->piece_bytes = cut.length;
	plan->joins = !staged;
	plan->gap = cut.gap;
	return cut.depth;
}

/* Returns the next piece to hand out, or NULL for now. Direct and buffered pieces of one write are
 * never in flight together: they may meet in one folio of the page cache. */
static struct sl_piece *piece_next_locked(struct sluice_op *op) SL_REQUIRES(&op->mutex)
{
	struct sl_plan *plan = &op->locked.plan;
	struct sl_slot_use *use;
	struct sl_piece *piece;
	bool changes, queues, upload;

	/* An upload is front to back: all pieces of a write come before those of a later write. */
	upload = plan->limits->sequential && plan->limits->remote && op->kind == SL_WRITE;
	queues = upload && !op->staged;
	if (op->locked.stopped || (!queues && op->locked.in_flight >= plan_depth_locked(op)))
		return NULL;
	while (!sl_plan_goes_on(plan))
		if (!op->staged || !sl_staged_next_locked(op))
			return NULL;
	piece = piece_take_locked(op);
	if (!piece)
		return NULL;
	sl_plan_cut(plan, piece);
	changes = op->kind == SL_WRITE && piece->aligned != op->locked.aligned;
	if (op->locked.in_flight && !upload && (changes || plan->limits->sequential)) {
		sl_list_append(&op->locked.spare, &piece->engine_link);
		return NULL;
	}
	sl_plan_advance(plan, piece);
	piece_fill(piece);
	use = op->staged ? op->staged->locked.current : NULL;
	if (use && op->staged->shape.bricks)
		piece->box = &use->box;
	piece->slot_use = use;
	/* The stream may be blocked on this slot. */
	piece->urgent = use && op->on_stream && use->number >= op->staged->count;
	if (use)
		use->pieces++;
	piece->patient = !sl_help_wakes(op, op->locked.handed++);
	op->locked.aligned = piece->aligned;
	op->locked.in_flight++;
	sl_list_append(&op->locked.flying, &piece->engine_link);
	return piece;
}

/* --------------------------------------------------------------------------------------- pump */

/* Returns true if the operation has to leave its object before it is over: it is draining, and its
 * stream may be waiting for operations that it holds back. */
static bool op_leaves_object_locked(struct sluice_op *op) SL_REQUIRES(&op->mutex)
{
	if (op->locked.stored || !op->staged || !op->staged->locked.draining ||
	    !sl_staged_stored_locked(op) || op->staged->route->stream_stores)
		return false;
	op->locked.stored = true;
	/* Another thread may end it meanwhile. */
	atomic_fetch_add(&op->references, 1);
	atomic_fetch_add(&op->file->in_flight, 1);
	return true;
}

static void op_end(struct sluice_op *op)
{
	struct sl_list ready = SL_LIST_INIT(ready);

	sl_op_end(op, &ready);
	sl_op_start_all(&ready);
}

static void op_leave_object(struct sluice_op *op)
{
	struct sluice_file *file = op->file;
	struct sl_list ready = SL_LIST_INIT(ready);

	sl_order_leave(op, &ready);
	sl_streams_unblocked(op->ctx);
	sl_op_start_all(&ready);
	sl_file_release(file);
	sl_op_unref(op);
}

/* Hands out the pieces that the submitting thread has left: on a worker. */
static void op_pump_task(struct sl_task *task)
{
	struct sluice_op *op = SL_CONTAINER(task, struct sluice_op, task);

	sl_mutex_lock(&op->mutex);
	sl_op_pump_unlock(op);
	sl_op_unref(op);
}

/* Returns true if a worker hands out the rest, from `until` on. */
static bool op_leave_rest_locked(struct sluice_op *op, int64_t until) SL_REQUIRES(&op->mutex)
{
	if (!until || sl_now() < until)
		return false;
	/* Those in flight may be the last, and end meanwhile. */
	atomic_fetch_add(&op->references, 1);
	op->task.run = op_pump_task;
	sl_pool_submit(op->ctx->core.pool, &op->task);
	return true;
}

/*
 * Any thread calls this at the start, after each piece, and when a slot or a word for which pieces
 * waited has come. A single thread at a time hands out pieces, and the others tell it to look
 * again. No other function ends the operation, and each piece in flight will call this once more,
 * so the operation lives until then.
 */
void sl_op_pump_unlock(struct sluice_op *op)
{
	int64_t until = op->locked.brief ? sl_now() + BRIEF_NS : 0;
	struct sl_piece *piece;
	bool over, leaves, left = false;

	op->locked.brief = false;
	if (op->locked.pumping || op->locked.over) {
		op->locked.again = true;
		sl_mutex_unlock(&op->mutex);
		return;
	}
	op->locked.pumping = true;
	do {
		op->locked.again = false;
		while (!left && (piece = piece_next_locked(op))) {
			sl_mutex_unlock(&op->mutex);
			piece->backend->ops->submit(piece->backend, piece);
			sl_mutex_lock(&op->mutex);
			left = op->locked.in_flight && op_leave_rest_locked(op, until);
		}
	} while (op->locked.again && !left);
	op->locked.pumping = false;
	/* With nothing in flight and no next piece the plan has ended, or it was stopped. */
	over = op->staged ? sl_staged_over_locked(op) : !op->locked.in_flight;
	op->locked.over = over;
	leaves = !over && op_leaves_object_locked(op);
	sl_mutex_unlock(&op->mutex);
	if (leaves)
		op_leave_object(op);
	if (!over)
		return;
	if (op->staged)
		sl_staged_end(op);
	op_end(op);
}

/* ------------------------------------------------------------------------------------- start */

static void op_proceed(struct sluice_op *op)
{
	if (op->staged) {
		sl_staged_start(op);
		return;
	}
	sl_mutex_lock(&op->mutex);
	op->locked.brief = op->kind == SL_READ && op->file->limits.least_piece;
	sl_op_pump_unlock(op);
}

static void op_fail_call(struct sluice_op *op, int rc, const char *what)
{
	sl_op_fail(op, rc, sl_format("cannot %s '%s': %s", what, op->file->uri, sl_error_text(rc)));
}

/* Runs a sync or a truncate, on a thread that may wait. */
static void op_run_task(struct sl_task *task)
{
	struct sluice_op *op = SL_CONTAINER(task, struct sluice_op, task);
	struct sl_backend *backend = op->file->backend;
	int rc = 0;

	/* An operation that was cancelled before it began leaves no trace. */
	if (!sl_op_is_stopped(op) && op->kind == SL_SYNC)
		rc = backend->ops->sync ? backend->ops->sync(backend) : 0;
	else if (!sl_op_is_stopped(op))
		rc = backend->ops->truncate ? backend->ops->truncate(backend, op->length)
		                            : -ENOTSUP;
	if (rc)
		op_fail_call(op, rc, op->kind == SL_SYNC ? "sync" : "truncate");
	op_proceed(op);
}

/* Returns true if the operation may have to set the file's new length first: direct writes that
 * extend a file are made one at a time. */
static bool op_may_reserve(const struct sluice_op *op)
{
	return op->kind == SL_WRITE && !op->device && op->file->backend->ops->reserve &&
	       op->file->limits.alignment &&
	       sl_prepare_bytes(op, op->ctx->core.settings.direct_bytes);
}

static bool op_wants_reserve(const struct sluice_op *op, int64_t size)
{
	return size >= 0 && op_may_reserve(op) &&
	       op->extents[0].offset + sl_prepare_bytes(op, 0) > (uint64_t)size;
}

/* Reads a small extent that is in memory. The operation is then over as it starts, or, in stream
 * order, when the device has copied the bytes. Returns false if it goes on. No piece is in
 * flight. */
static bool op_read_now(struct sluice_op *op) SL_UNCHECKED
{
	struct sl_backend *backend = op->file->backend;
	const struct sluice_extent *extent = &op->extents[0];
	char *to;
	int64_t moved;

	if (op->missed || op->box || op->kind != SL_READ || op->count != 1 || !extent->length ||
	    op->device || !backend->ops->read_now ||
	    extent->length > op->ctx->core.settings.inline_bytes)
		return false;
	to = op->staged ? sl_staged_memory(op) : extent->data;
	if (!to)
		return false;
	moved = backend->ops->read_now(backend, to, extent->length, extent->offset);
	op->missed = moved < 0;
	if (op->missed)
		return false;
	if (op->staged) {
		sl_staged_filled(op, to, (uint64_t)moved);
		sl_op_pump_unlock(op);
	} else {
		op->locked.moved = (uint64_t)moved;
		op_end(op);
	}
	return true;
}

/* Fails an operation beyond the end of the file: in stream order no short read is told. */
static void op_check_end(struct sluice_op *op, uint64_t size)
{
	for (size_t i = 0; i < op->count; i++) {
		if (!op->extents[i].length || op->extents[i].offset + op->extents[i].length <= size)
			continue;
		sl_op_fail(op, -EIO,
		           sl_format("'%s' ends at byte %" PRIu64
		                     ", before what was to be read in stream order",
		                     op->file->uri, size));
		return;
	}
}

/* Makes the plan of the pieces. size: of the file, -1 if unknown, or a negative errno below. */
static void op_plan(struct sluice_op *op, int64_t size)
{
	const struct sl_limits *limits = &op->file->limits;
	struct sl_backend *backend = op->file->backend;
	uint64_t bytes;

	if (size < -1 && op->kind == SL_READ)
		sl_op_fail(op, (int)size, NULL);
	/* Its bytes were counted at the submission. */
	if (op->box)
		size = -1;
	if (size >= 0 && op->kind == SL_READ && op->on_stream && !op->order.follows)
		op_check_end(op, (uint64_t)size);
	if (size < 0 || op->kind != SL_READ)
		size = INT64_MAX;
	/* In stream order the poller may be reading the plan already. */
	sl_mutex_lock(&op->mutex);
	op->file_state = backend->ops->file_state ? backend->ops->file_state(backend) : 0;
	for (size_t i = 0; i < op->count; i++)
		op->bytes += op->extents[i].length;
	bytes = op->bytes +
	        atomic_fetch_add_explicit(&op->file->bytes, op->bytes, memory_order_relaxed);
	op->locked.plan = (struct sl_plan){
		.extents = op->extents,
		/* Of a staged operation sl_staged_next_locked() sets it, chunk by chunk. */
		.count = op->staged ? 0 : op->count,
		.limits = limits,
		.direct_bytes = op->device ? UINT64_MAX : op->ctx->core.settings.direct_bytes,
		.file_size = (uint64_t)size,
		/* More workers than it needs would only wait for the lock of a local file. */
		.piece_bytes = op->device ? DEVICE_PIECE
	                       : op->kind == SL_READ && sl_help_wakes(op, 0)
	                               ? plan_piece(limits, bytes)
	                               : limits->piece_bytes,
	};
	sl_mutex_unlock(&op->mutex);
}

/* Sets the length for this write and those behind it that wait: the kernel first waits for all
 * direct writes of the file that it has. */
static int op_reserve(struct sluice_op *op)
{
	const struct sluice_extent *extent = op->extents;
	struct sluice_file *file = op->file;
	struct sl_backend *backend = file->backend;
	uint64_t end = extent->offset + sl_prepare_bytes(op, 0);
	uint64_t reach = sl_prepare_reach(file, end);
	int rc = backend->ops->reserve(backend, extent->offset, reach - extent->offset);

	/* There may be room for this one. */
	if (rc && reach > end)
		rc = backend->ops->reserve(backend, extent->offset, (reach = end) - extent->offset);
	if (!rc)
		file->reserved = (int64_t)reach;
	return rc;
}

/* The size is known. Reserves space for a write that extends the file: then it may wait. */
static void op_prepared(struct sluice_op *op, int64_t size)
{
	int rc = 0;

	op_plan(op, size);
	if (op_wants_reserve(op, size) && !sl_op_is_stopped(op))
		rc = op_reserve(op);
	if (rc)
		op_fail_call(op, rc, "reserve space for");
	op_proceed(op);
}

void sl_op_withdraw(struct sluice_op *op)
{
	if (sl_order_withdraw(op))
		op_proceed(op);
	else if (sl_prepare_withdraw(op))
		op_prepared(op, -1);
	else if (op->staged && op->staged->route->cancel)
		op->staged->route->cancel(op);
}

void sl_op_start(struct sluice_op *op)
{
	struct sl_backend *backend = op->file->backend;
	bool needs_size = op->kind == SL_READ || op_may_reserve(op);
	int64_t size = -1;

	if (op_read_now(op))
		return;
	if (needs_size && op->file->limits.size_waits) {
		sl_prepare(op, op_prepared);
		return;
	}
	if (needs_size && backend->ops->size)
		size = backend->ops->size(backend);
	if (op_wants_reserve(op, size)) {
		sl_prepare(op, op_prepared);
		return;
	}
	op_plan(op, size);
	if (op->kind == SL_SYNC || op->kind == SL_TRUNCATE) {
		op->task.run = op_run_task;
		sl_pool_submit(op->ctx->core.waiting, &op->task);
	} else {
		op_proceed(op);
	}
}

void sl_op_start_all(struct sl_list *ready)
{
	/* An operation that ends at its start lets others start: a queue instead of a recursion. */
	static _Thread_local struct sl_list *starting;
	struct sluice_op *op;

	if (sl_list_empty(ready))
		return;
	if (starting) {
		sl_list_take_all(ready, starting);
		return;
	}
	starting = ready;
	while ((op = sl_list_take_first(ready, struct sluice_op, order.link)))
		sl_op_start(op);
	starting = NULL;
}
