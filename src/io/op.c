/* SPDX-License-Identifier: Apache-2.0 */
/* An operation: its memory, its place among the others, its end. */
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "io/io.h"

/* ------------------------------------------------------------------------------------ memory */

struct sluice_op *sl_op_new(struct sluice_context *ctx, struct sluice_file *file, enum sl_kind kind)
{
	struct sluice_op *op = calloc(1, sizeof(*op));

	if (!op)
		return NULL;
	atomic_init(&op->references, 1);
	atomic_fetch_add_explicit(&ctx->references, 1, memory_order_relaxed);
	op->ctx = ctx;
	op->file = file;
	op->kind = kind;
	op->order.object = file->object;
	op->order.effect = kind == SL_READ ? SL_READS : kind == SL_SYNC ? SL_BARRIER : SL_WRITES;
	/* The copier has to do with all of them, or a stream alone. */
	op->order.blocks_streams = file->limits.device;
	sl_mutex_init(&op->mutex);
	sl_list_init(&op->locked.flying);
	sl_list_init(&op->locked.spare);
	op->locked.fd = -1;
	op->locked.plan.limits = &file->limits;
	return op;
}

static void op_free(struct sluice_op *op)
{
	struct sl_list *link;

	while ((link = sl_list_take(&op->locked.spare))) {
		struct sl_part *part = SL_CONTAINER(link, struct sl_part, link);

		if (part != &op->one_part)
			free(part);
	}
	if (op->extents != &op->one_extent)
		free(op->extents);
	if (op->order.ranges != &op->one_range)
		free(op->order.ranges);
	sl_staged_free(op->staged);
	free(op->message);
	sl_mutex_destroy(&op->mutex);
	sl_context_unref(op->ctx);
	free(op);
}

void sl_op_unref(struct sluice_op *op)
{
	if (atomic_fetch_sub(&op->references, 1) == 1)
		op_free(op);
}

/* ------------------------------------------------------------------------------------ places */

int sl_op_admit(struct sluice_file *file)
{
	struct sluice_context *ctx = file->ctx;

	/* Its wait is ended by the end of any operation. */
	if (sl_gate_take(&ctx->operations, 1, !(file->flags & SLUICE_OPEN_NONBLOCK)))
		return 0;
	return sl_fail(-EAGAIN,
	               "%" PRIu64 " operations are in flight, which is SLUICE_MAX_OPERATIONS",
	               ctx->core.settings.max_operations);
}

/* --------------------------------------------------------------------------------------- end */

static void publish(struct sluice_op *op)
{
	uint64_t one = 1;
	uint32_t before;

	sl_mutex_lock(&op->mutex);
	before = sl_done_publish(op);
	if (op->locked.fd >= 0)
		(void)!write(op->locked.fd, &one, sizeof(one));
	sl_mutex_unlock(&op->mutex);
	if (before & SL_OP_AWAITED)
		sl_word_wake(&op->state, INT_MAX);
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
	atomic_fetch_sub_explicit(&file->bytes, op->bytes, memory_order_relaxed);
	if (!stored)
		sl_order_leave(op, &ready);
	publish(op);
	if (op->over)
		op->over(op);
	sl_op_unref(op);
	if (!stored)
		sl_late_left(ctx);
	/* The places are given back before others start, so that none of them waits for this one;
	 * those that start keep the file open themselves. */
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
		sl_staged_stop(op);
	if (!op->locked.error && !op->locked.ended) {
		op->locked.error = error;
		op->message = message;
		message = NULL;
	}
	sl_list_each (link, &op->locked.flying) {
		struct sl_part *part = SL_CONTAINER(link, struct sl_part, link);

		atomic_store_explicit(&part->piece.cancelled, true, memory_order_relaxed);
	}
	/* While a piece is in flight the operation is not over, and the file is there to be held. */
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
