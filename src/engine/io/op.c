/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Operations
 *
 * Operations from their memory to their end. done.c has the queues for those that are
 * over, handle.c the public calls. The threads that submit call it, and any thread that ends a
 * piece, a copy or a command; none waits.
 *
 *   new       --[sl_op_enter: 0]----------------> started    nothing holds it back
 *   new       --[sl_op_enter: 1]----------------> held       an earlier operation overlaps it
 *   held      --[sl_order_leave of another]-----> started    by sl_op_start_all()
 *   started   --[op_read_now]-------------------> ended      its bytes were in memory
 *   started   --[sl_prepare]--------------------> preparing  a thread that may wait gets the size
 *   started   --[op_plan, op_proceed]-----------> running
 *   preparing --[op_prepared: op_proceed]-------> running
 *   running   --[piece_next_locked]-------------> running    one piece more is in flight
 *   running   --[piece_done]--------------------> running    one piece less is in flight
 *   running   --[sl_op_pump_unlock]-------------> over       none is in flight or to come
 *   over      --[sl_op_end]---------------------> ended      the result is fixed
 *   ended     --[sl_op_publish]--------------------> done       waiting threads are woken
 *
 *   any before over   --[sl_op_fail]------------> the same, stopped: no further pieces
 *   held or preparing --[sl_op_withdraw]--------> running, stopped: it ends at the next pump
 *
 * An open (opening.c) is new until it has ended. An operation that is stopped in the middle of its
 * pieces is over when the last of them has come back. A route may keep it for longer:
 * staged/staged.c.
 */
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "io/staged/staged.h"

/* ------------------------------------------------------------------------------------ memory */

/* No other thread knows the operation yet. */
struct sluice_op *sl_op_new(struct sluice_context *ctx, struct sluice_file *file,
                            enum sl_op_kind kind) SL_UNCHECKED
{
	size_t bytes =
		sizeof(struct sluice_op) + (file ? sl_piece_size(file) : sizeof(struct sl_piece));
	struct sluice_op *op = malloc(bytes);

	if (!op)
		return NULL;
	/* Not calloc(), which leaves the cache of the thread alone in glibc before 2.41. */
	memset(op, 0, bytes);
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
	sl_list_each_of (piece, &op->locked.spare, struct sl_piece, engine_link)
		if (piece != op->one_piece)
			free(piece);
	if (op->extents != &op->one_extent)
		free(op->extents);
	if (op->order.ranges != &op->one_range)
		free(op->order.ranges);
	sl_staged_free(op->staged);
	free(op->open);
	free(op->box);
	free(op->fan);
	free(op->message);
	sl_mutex_destroy(&op->mutex);
	if (op->done.queue != &op->ctx->done)
		sl_done_unref(op->done.queue);
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

/* --------------------------------------------------------------------------------------- end */

/* Sets SL_OP_DONE and appends the operation to the queue in one step, so that the queue has
 * operations in the order in which sluice_poll() saw them end. Returns the state before, and
 * whether a thread waits for the queue. */
static uint32_t op_set_done(struct sluice_op *op, bool *signal)
{
	struct sluice_queue *queue = op->done.queue;

	if (op->detached)
		return atomic_fetch_or(&op->state, SL_OP_DONE);
	sl_mutex_lock(&queue->mutex);
	if (!op->done.reported)
		*signal = sl_done_append_locked(queue, op);
	uint32_t before = atomic_fetch_or(&op->state, SL_OP_DONE);
	sl_mutex_unlock(&queue->mutex);
	return before;
}

void sl_op_publish(struct sluice_op *op)
{
	bool signal = false;

	sl_mutex_lock(&op->mutex);
	uint32_t before = op_set_done(op, &signal);
	if (op->locked.fd >= 0)
		sl_eventfd_raise(op->locked.fd);
	sl_mutex_unlock(&op->mutex);
	/* A reactor may put the signal off for its context's queue, which it does not outlive. */
	if (signal && op->done.queue == &op->ctx->done)
		sl_signal(&op->done.queue->arrived);
	else if (signal)
		pthread_cond_signal(&op->done.queue->arrived);
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

void sl_op_end(struct sluice_op *op, struct sl_list *ready)
{
	struct sluice_context *ctx = op->ctx;
	struct sluice_file *file = op->file;

	sl_mutex_lock(&op->mutex);
	op->locked.ended = true;
	bool stored = op->locked.stored;
	op->result = op->locked.error ? op->locked.error : (int64_t)op->locked.moved;
	sl_mutex_unlock(&op->mutex);
	if (op->result < 0)
		sl_file_keep_error(file, op);
	if (op->staged)
		sl_staged_settle(op);
	atomic_fetch_sub_explicit(&file->bytes, op->bytes, memory_order_relaxed);
	if (!stored)
		sl_order_leave(op, ready);
	sl_op_publish(op);
	if (op->over)
		op->over(op);
	sl_op_unref(op);
	if (!stored)
		sl_streams_unblocked(ctx);
	/* It is counted out before other operations start, so that none of those waits for it; they
	 * keep the file open themselves. */
	sl_gate_give(&ctx->operations, 1);
	sl_file_release(file);
}

bool sl_op_is_stopped(struct sluice_op *op)
{
	sl_mutex_lock(&op->mutex);
	bool stopped = op->locked.stopped;
	sl_mutex_unlock(&op->mutex);
	return stopped;
}

void sl_op_fail(struct sluice_op *op, int error, char *message)
{
	struct sluice_file *file = op->file;

	sl_mutex_lock(&op->mutex);
	op->locked.stopped = true;
	if (op->staged && !op->locked.over)
		sl_staged_stop_locked(op);
	if (!op->locked.error && !op->locked.ended) {
		op->locked.error = error;
		op->message = message;
		message = NULL;
	}
	sl_list_each_of (piece, &op->locked.flying, struct sl_piece, engine_link)
		atomic_store_explicit(&piece->cancelled, true, memory_order_relaxed);
	/* While a piece is in flight the operation is not over, so the file can be held. */
	bool wake = !sl_list_empty(&op->locked.flying) && file->backend->ops->cancel;
	if (wake)
		atomic_fetch_add(&file->in_flight, 1);
	sl_mutex_unlock(&op->mutex);
	if (wake) {
		file->backend->ops->cancel(file->backend);
		sl_file_release(file);
	}
	free(message);
}
