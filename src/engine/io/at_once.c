/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Operations that are over at once
 *
 * Makes the handles of reads that were over before their call returned, and keeps them to be used
 * again. Any thread; none waits.
 */
#include "io/io_internal.h"

/* Takes an operation that was kept, or makes one. Its fields that operations which are over at once
 * have are written anew, so a kept operation is as good as new, in any context. */
static struct sluice_op *at_once_make_locked(struct sluice_queue *queue, struct sluice_file *file)
	SL_REQUIRES(&queue->mutex)
{
	struct sluice_op *op;

	if (!queue->locked.kept_count)
		return sl_op_new(file->ctx, file, SL_READ);
	op = queue->locked.kept[--queue->locked.kept_count];
	op->ctx = file->ctx;
	atomic_fetch_add(&op->ctx->references, 1);
	return op;
}

bool sl_at_once_new(struct sluice_file *file, int64_t result, const struct sluice_request *r,
                    sluice_op **out)
{
	bool named = SL_REQUEST_HAS(r, queue) && r->queue;
	struct sluice_queue *queue = named ? r->queue : &file->ctx->done;
	struct sluice_op *op;
	bool signal = false;

	sl_mutex_lock(&queue->mutex);
	op = at_once_make_locked(queue, file);
	if (op) {
		op->at_once = true;
		op->result = result;
		op->user = SL_REQUEST_HAS(r, user) ? r->user : NULL;
		sl_done_enter(op, r);
		atomic_store_explicit(&op->done.reported, false, memory_order_relaxed);
		atomic_store_explicit(&op->state, SL_OP_DONE, memory_order_release);
		*out = op;
		signal = sl_done_append_locked(queue, op);
	}
	sl_mutex_unlock(&queue->mutex);
	if (signal)
		pthread_cond_signal(&queue->arrived);
	return op;
}

bool sl_at_once_keep(struct sluice_op *op)
{
	struct sluice_queue *queue = op->done.queue;
	struct sluice_context *ctx = op->ctx;
	bool own = queue == &ctx->done, keep;

	sl_mutex_lock(&queue->mutex);
	keep = queue->locked.kept_count <
	       sizeof(queue->locked.kept) / sizeof(queue->locked.kept[0]);
	if (keep)
		queue->locked.kept[queue->locked.kept_count++] = op;
	sl_mutex_unlock(&queue->mutex);
	if (keep && !own)
		sl_done_unref(queue);
	if (keep)
		sl_context_unref(ctx);
	return keep;
}
