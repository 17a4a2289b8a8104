/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Preparing
 *
 * Asks for the size of a file where that may wait for storage: once for all operations that have
 * come meanwhile, on a single thread of core.waiting, however many the file has.
 */
#include "io/io_internal.h"

/* Takes an operation out of the batch; NULL: it is empty. */
static struct sluice_op *prepare_take(struct sluice_file *file)
{
	struct sluice_op *op;

	sl_mutex_lock(&file->mutex);
	op = sl_list_take_first(&file->locked.batch, struct sluice_op, order.link);
	if (op)
		op->preparing = false;
	sl_mutex_unlock(&file->mutex);
	return op;
}

/* Makes a batch of the operations so far. Returns false if there is none: the task is over. */
static bool prepare_take_batch(struct sluice_file *file)
{
	sl_mutex_lock(&file->mutex);
	sl_list_take_all(&file->locked.unprepared, &file->locked.batch);
	bool some = file->locked.preparing = !sl_list_empty(&file->locked.batch);
	sl_mutex_unlock(&file->mutex);
	return some;
}

uint64_t sl_prepare_bytes(const struct sluice_op *op, uint64_t least)
{
	const struct sluice_extent *e = op->extents, *end = e + op->count;
	uint64_t bytes = 0, longest = 0;

	for (; e < end && e->offset == op->extents[0].offset + bytes; e++) {
		bytes += e->length;
		longest = SL_MAX(longest, e->length);
	}
	return e == end && longest >= least ? bytes : 0;
}

/* Returns the end of the operations in a list that write on from `end`, each where the one before
 * ends. */
static uint64_t prepare_follow_locked(const struct sl_list *list, uint64_t end)
{
	sl_list_each_of (op, list, struct sluice_op, order.link) {
		if (op->kind != SL_WRITE || op->extents[0].offset != end)
			break;
		end += sl_prepare_bytes(op, 0);
	}
	return end;
}

uint64_t sl_prepare_reach(struct sluice_file *file, uint64_t end)
{
	sl_mutex_lock(&file->mutex);
	end = prepare_follow_locked(&file->locked.batch, end);
	end = prepare_follow_locked(&file->locked.unprepared, end);
	sl_mutex_unlock(&file->mutex);
	return end;
}

static void prepare_run(struct sl_task *task)
{
	struct sluice_file *file = SL_CONTAINER(task, struct sluice_file, prepare);
	struct sluice_op *op;

	while (prepare_take_batch(file)) {
		int64_t size = file->backend->ops->size(file->backend);

		file->reserved = size;
		/* A read goes to the end that there was: a file system may reserve nothing. */
		while ((op = prepare_take(file)))
			op->prepared(op, size < 0 || op->kind == SL_READ ? size : file->reserved);
	}
	sl_file_release(file);
}

void sl_prepare(struct sluice_op *op, void (*prepared)(struct sluice_op *, int64_t size))
{
	struct sluice_file *file = op->file;

	op->prepared = prepared;
	sl_mutex_lock(&file->mutex);
	/* A cancel first stops the operation and then looks for `preparing`: either it is seen
	 * here, or it finds the operation in the list. */
	if (sl_op_is_stopped(op)) {
		sl_mutex_unlock(&file->mutex);
		prepared(op, -1);
		return;
	}
	op->preparing = true;
	sl_list_append(&file->locked.unprepared, &op->order.link);
	bool submit = !file->locked.preparing;
	file->locked.preparing = true;
	/* Under the mutex: once it is released the operation may be over, and the file closed. */
	if (submit)
		atomic_fetch_add(&file->in_flight, 1);
	sl_mutex_unlock(&file->mutex);
	if (!submit)
		return;
	file->prepare.run = prepare_run;
	sl_pool_submit(file->ctx->core.waiting, &file->prepare);
}

bool sl_prepare_withdraw(struct sluice_op *op)
{
	struct sluice_file *file = op->file;

	sl_mutex_lock(&file->mutex);
	bool prepares = op->preparing;
	op->preparing = false;
	if (prepares)
		sl_list_remove(&op->order.link);
	sl_mutex_unlock(&file->mutex);
	return prepares;
}
