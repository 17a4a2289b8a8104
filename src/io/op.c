/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Operations
 *
 * The life of an operation from its memory to its end, and the public calls on a handle: wait, poll,
 * cancel. done.c has the queues of operations that are over. The threads that submit call it, any
 * thread that ends a piece, a copy or a command, and any thread of the application; only the waits
 * wait.
 *
 *   new       --[sl_op_enter: 0]----------------> started    nothing holds it back
 *   new       --[sl_op_enter: 1]----------------> held       an earlier operation overlaps it
 *   held      --[sl_order_leave of another]-----> started    by sl_op_start_all()
 *   started   --[op_read_now]-------------------> ended      its bytes were in memory
 *   started   --[op_prepare]--------------------> preparing  a thread that may wait gets the size
 *   started   --[op_plan, op_proceed]-----------> running
 *   preparing --[file_run_prepare: op_proceed]--> running
 *   running   --[piece_next_locked]-------------> running    one piece more is in flight
 *   running   --[piece_done]--------------------> running    one piece less is in flight
 *   running   --[op_is_over_locked in the pump]-> over       none is in flight or to come
 *   over      --[sl_op_end]---------------------> ended      the result is fixed
 *   ended     --[sl_op_publish]--------------------> done       waiting threads are woken
 *
 *   any before over   --[sl_op_fail]------------> the same, stopped: no further pieces
 *   held or preparing --[sl_op_withdraw]--------> running, stopped: it ends at the next pump
 *
 * An open (opening.c) is new until it has ended. An operation that is stopped in the middle of its
 * pieces is over when the last of them has come back. A route may keep it running for longer: see
 * staged/staged.c.
 */
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "io/op.h"
#include "io/staged/staged.h"

/* ------------------------------------------------------------------------------------ memory */

/* No other thread knows the operation yet. */
struct sluice_op *sl_op_new(struct sluice_context *ctx, struct sluice_file *file,
                            enum sl_op_kind kind) SL_UNCHECKED
{
	struct sluice_op *op =
		calloc(1, sizeof(*op) + (file ? sl_piece_size(file) : sizeof(struct sl_piece)));

	if (!op)
		return NULL;
	atomic_init(&op->references, 1);
	atomic_fetch_add_explicit(&ctx->references, 1, memory_order_relaxed);
	op->ctx = ctx;
	op->done.queue = &ctx->done;
	op->file = file;
	op->kind = kind;
	op->order.effect = kind == SL_READ ? SL_READS : kind == SL_SYNC ? SL_BARRIER : SL_WRITES;
	sl_mutex_init(&op->mutex);
	sl_list_init(&op->locked.flying);
	sl_list_init(&op->locked.spare);
	op->locked.fd = -1;
	if (!file)
		return op;
	op->order.object = file->object;
	/* Bytes of a file in a device's memory are moved by the copier, or by a stream alone. */
	op->order.blocks_streams = file->limits.device;
	op->locked.plan.limits = &file->limits;
	return op;
}

/* No other thread knows the operation any more. */
static void op_free(struct sluice_op *op) SL_UNCHECKED
{
	struct sl_list *link;

	while ((link = sl_list_take(&op->locked.spare))) {
		struct sl_piece *piece = SL_CONTAINER(link, struct sl_piece, engine_link);

		if (piece != op->one_piece)
			free(piece);
	}
	if (op->extents != &op->one_extent)
		free(op->extents);
	if (op->order.ranges != &op->one_range)
		free(op->order.ranges);
	sl_staged_free(op->staged);
	if (op->open)
		sl_open_drop(op);
	free(op->open);
	free(op->message);
	sl_mutex_destroy(&op->mutex);
	sl_done_leave(op);
	sl_context_unref(op->ctx);
	free(op);
}

void sl_op_unref(struct sluice_op *op)
{
	if (atomic_fetch_sub(&op->references, 1) == 1)
		op_free(op);
}

int64_t sl_op_result(const struct sluice_op *op)
{
	return op->result;
}

const char *sl_op_message(const struct sluice_op *op)
{
	return op->message;
}

void *sl_op_user(const struct sluice_op *op)
{
	return op->user;
}

/* --------------------------------------------------------------------------------- admission */

int sl_op_admit(struct sluice_context *ctx, int full)
{
	/* The end of any operation ends the wait. */
	if (sl_gate_take(&ctx->operations, 1, !full))
		return 0;
	return sl_fail(full, "%" PRIu64 " operations are in flight, which is SLUICE_MAX_OPERATIONS",
	               ctx->core.settings.max_operations);
}

/* --------------------------------------------------------------------------------------- end */

/*
 * Sets SL_OP_DONE and appends the operation to the queue in one step, so that the queue has
 * operations in the order in which sluice_poll() saw them end. Returns the state before, and
 * whether a thread waits for the queue.
 */
static uint32_t op_set_done(struct sluice_op *op, bool *signal)
{
	struct sluice_queue *queue = op->done.queue;
	uint32_t before;

	if (op->detached)
		return atomic_fetch_or(&op->state, SL_OP_DONE);
	sl_mutex_lock(&queue->mutex);
	if (!op->done.reported)
		*signal = sl_done_append_locked(queue, op);
	before = atomic_fetch_or(&op->state, SL_OP_DONE);
	sl_mutex_unlock(&queue->mutex);
	return before;
}

/* A reactor may put the signal off for the queue of its context, which it does not outlive. */
static void op_signal(struct sluice_op *op)
{
	struct sluice_queue *queue = op->done.queue;

	if (queue == &op->ctx->done)
		sl_signal(&queue->arrived);
	else
		pthread_cond_signal(&queue->arrived);
}

void sl_op_publish(struct sluice_op *op)
{
	uint64_t one = 1;
	uint32_t before;
	bool signal = false;

	sl_mutex_lock(&op->mutex);
	before = op_set_done(op, &signal);
	if (op->locked.fd >= 0)
		(void)!write(op->locked.fd, &one, sizeof(one));
	sl_mutex_unlock(&op->mutex);
	if (signal)
		op_signal(op);
	if (before & SL_OP_AWAITED)
		sl_word_wake(&op->state, INT_MAX);
}

void sl_streams_unblocked(struct sluice_context *ctx)
{
	if (!atomic_load(&ctx->unblock_waiters))
		return;
	atomic_fetch_add(&ctx->unblocked, 1);
	sl_word_wake(&ctx->unblocked, INT_MAX);
}

void sl_op_end(struct sluice_op *op)
{
	struct sluice_context *ctx = op->ctx;
	struct sluice_file *file = op->file;
	struct sl_list ready;
	bool stored;

	sl_list_init(&ready);
	sl_mutex_lock(&op->mutex);
	op->locked.ended = true;
	stored = op->locked.stored;
	op->result = op->locked.error ? op->locked.error : (int64_t)op->locked.moved;
	sl_mutex_unlock(&op->mutex);
	if (op->result < 0)
		sl_file_keep_error(file, op);
	if (op->staged)
		sl_staged_settle(op);
	atomic_fetch_sub_explicit(&file->bytes, op->bytes, memory_order_relaxed);
	if (!stored)
		sl_order_leave(op, &ready);
	sl_op_publish(op);
	if (op->over)
		op->over(op);
	sl_op_unref(op);
	if (!stored)
		sl_streams_unblocked(ctx);
	/* It is counted out before other operations start, so that none of those waits for
	 * it; they keep the file open themselves. */
	sl_gate_give(&ctx->operations, 1);
	sl_file_release(file);
	sl_op_start_all(&ready);
}

void sl_op_fail(struct sluice_op *op, int error, char *message)
{
	struct sluice_file *file = op->file;
	bool wake;

	sl_mutex_lock(&op->mutex);
	op->locked.stopped = true;
	if (op->staged && !op->locked.over)
		sl_staged_stop_locked(op);
	if (!op->locked.error && !op->locked.ended) {
		op->locked.error = error;
		op->message = message;
		message = NULL;
	}
	sl_list_each (link, &op->locked.flying) {
		struct sl_piece *piece = SL_CONTAINER(link, struct sl_piece, engine_link);

		atomic_store_explicit(&piece->cancelled, true, memory_order_relaxed);
	}
	/* While a piece is in flight the operation is not over, so the file can be held. */
	wake = !sl_list_empty(&op->locked.flying) && file->backend->ops->cancel;
	if (wake)
		atomic_fetch_add(&file->in_flight, 1);
	sl_mutex_unlock(&op->mutex);
	if (wake) {
		file->backend->ops->cancel(file->backend);
		sl_file_release(file);
	}
	free(message);
}

/* ----------------------------------------------------------------------------------- handles */

static int handle_check(const struct sluice_op *op)
{
	if (!op)
		return sl_fail(-EINVAL, "op is NULL");
	return sl_context_check(op->ctx);
}

static bool handle_is_done(void *argument)
{
	const struct sluice_op *op = argument;

	return atomic_load_explicit(&op->state, memory_order_acquire) & SL_OP_DONE;
}

/* Waits until the operation is done; sl_op_end() or the deadline ends the wait. Returns false at
 * the deadline. */
static bool handle_wait_until(struct sluice_op *op, int64_t deadline)
{
	uint32_t state = atomic_load(&op->state);

	while (!(state & SL_OP_DONE)) {
		if (!(state & SL_OP_AWAITED)) {
			state = atomic_fetch_or(&op->state, SL_OP_AWAITED) | SL_OP_AWAITED;
			continue;
		}
		if (sl_word_wait(&op->state, state, deadline) == -ETIMEDOUT)
			return atomic_load(&op->state) & SL_OP_DONE;
		state = atomic_load(&op->state);
	}
	return true;
}

/*
 * Ends an operation in stream order that is over by the words of the device, which any thread can
 * read, before the poller has seen them.
 */
static void handle_settle(struct sluice_op *op)
{
	bool over, hold;

	if (!op->on_stream || atomic_load(&op->state) & SL_OP_DONE)
		return;
	sl_mutex_lock(&op->mutex);
	over = op->locked.over || sl_staged_over_locked(op);
	if (!over) {
		sl_mutex_unlock(&op->mutex);
		return;
	}
	/* Operations that this thread starts may be over before it has finished waking a thread for
	 * them: the hold on the file keeps the context until then. */
	hold = !op->locked.ended;
	if (hold)
		atomic_fetch_add(&op->file->in_flight, 1);
	sl_op_pump_unlock(op);
	/* Another thread may be ending it, and does not wait for anything. */
	handle_wait_until(op, SL_FOREVER);
	if (hold)
		sl_file_release(op->file);
}

int64_t sluice_wait(sluice_op *op, int timeout_ms)
{
	static _Thread_local struct sl_spin spin;
	int rc = handle_check(op);

	if (rc)
		return rc;
	handle_settle(op);
	if (!handle_is_done(op)) {
		/* sl_spin_until() is part of the time. */
		int64_t deadline = sl_deadline(timeout_ms);

		if (!timeout_ms ||
		    !(sl_spin_until(&spin, handle_is_done, op) || handle_wait_until(op, deadline)))
			return sl_fail(-EINPROGRESS, "the operation is still running");
	}
	sl_done_forget(op);
	return op->result;
}

int sluice_poll(const sluice_op *op)
{
	int rc = handle_check(op);

	if (rc)
		return rc;
	/* The queue, its descriptor and cancel then agree that it is over. */
	handle_settle((struct sluice_op *)(uintptr_t)op);
	return atomic_load(&op->state) & SL_OP_DONE;
}

uint64_t sluice_op_moved(const sluice_op *op)
{
	struct sluice_op *asked = (struct sluice_op *)(uintptr_t)op;
	int64_t moved;

	if (!op || !sl_process_is(op->ctx->process))
		return 0;
	if (atomic_load(&op->state) & SL_OP_DONE && op->result >= 0)
		return (uint64_t)op->result;
	sl_mutex_lock(&asked->mutex);
	moved = (int64_t)asked->locked.moved;
	sl_mutex_unlock(&asked->mutex);
	/* The gaps of a staged read are taken off before they have come. */
	return (uint64_t)SL_MAX(moved, 0);
}

int sluice_op_fd(sluice_op *op)
{
	int rc = handle_check(op);

	if (rc)
		return rc;
	sl_mutex_lock(&op->mutex);
	rc = sl_done_eventfd(&op->locked.fd, atomic_load(&op->state) & SL_OP_DONE);
	sl_mutex_unlock(&op->mutex);
	return rc;
}

void *sluice_op_user(const sluice_op *op)
{
	return op ? op->user : NULL;
}

const char *sluice_op_message(const sluice_op *op)
{
	bool failed;

	if (!op || !sl_process_is(op->ctx->process))
		return "";
	handle_settle((struct sluice_op *)(uintptr_t)op);
	failed = atomic_load(&op->state) & SL_OP_DONE && op->result < 0;
	if (!failed)
		return "";
	return op->message ? op->message : sl_error_text((int)op->result);
}

int sluice_cancel(sluice_op *op)
{
	int rc = handle_check(op);
	bool over;

	if (rc)
		return rc;
	if (op->open)
		return sl_open_cancel(op);
	handle_settle(op);
	/*
	 * While the operation is not over its file can be held, and with it all that this looks at.
	 */
	sl_mutex_lock(&op->mutex);
	over = op->at_once || op->locked.ended;
	if (!over)
		atomic_fetch_add(&op->file->in_flight, 1);
	sl_mutex_unlock(&op->mutex);
	if (over)
		return sl_fail(-EALREADY, "the operation is over");
	sl_op_fail(op, -ECANCELED, NULL);
	sl_op_withdraw(op);
	sl_file_release(op->file);
	return 0;
}

/* Reads the descriptor without the mutex: only calls with the handle write it. */
void sluice_op_free(sluice_op *op) SL_UNCHECKED
{
	if (!op || !sl_process_is(op->ctx->process))
		return;
	sl_done_forget(op);
	if (op->open)
		sl_open_drop(op);
	if (op->locked.fd >= 0) {
		sl_mutex_lock(&op->mutex);
		close(op->locked.fd);
		op->locked.fd = -1;
		sl_mutex_unlock(&op->mutex);
	}
	if (!op->at_once || !sl_done_keep(op))
		sl_op_unref(op);
}

int sl_op_run(struct sluice_file *file, enum sl_op_kind kind, uint64_t length)
{
	struct sluice_op *op = sl_op_new(file->ctx, file, kind);
	struct sluice_op *handle = NULL;
	int rc;

	if (!op)
		return sl_fail(-ENOMEM, "no memory");
	op->length = length;
	op->order.ranges = &op->one_range;
	op->order.count = 1;
	op->one_range.interval.end = UINT64_MAX;
	op->one_range.op = op;
	op->done.reported = true;
	sl_gate_pass(&file->ctx->operations, 1);
	rc = sl_op_enter(file, op, &handle);
	if (rc) {
		sl_op_unref(op);
		sl_gate_give(&file->ctx->operations, 1);
		return rc;
	}
	rc = (int)sluice_wait(handle, -1);
	if (rc)
		sl_fail(rc, "%s", sluice_op_message(handle));
	sluice_op_free(handle);
	return rc;
}
