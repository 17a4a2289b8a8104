/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Opens that end later
 *
 * An open is an operation without a file at first, and ends with a file. Some backends go on with
 * it when their server answers. For others a thread of a pool of its own calls open(), which may
 * wait for tasks of the pools that move bytes. The pool also closes files that nobody gets.
 *
 * Threads: any thread starts an open; a reactor of the backend or a thread of the pool ends it.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "io/io_internal.h"

#define OPENS_MOST 64 /* threads of a pool */

struct sl_open {
	struct sl_opening base;
	struct sluice_op *op;
	const char *uri;
	struct sluice_open_options options;
	struct sl_task task;
	/* What the task is for. As `base` it is the caller's, then the thread's that goes on. */
	enum { OPEN_BEGINS, OPEN_ENDS, OPEN_GOES } stage;
	/* For the caller to take: that thread's until the operation ended, then under its mutex. */
	struct sluice_file *file;
};

/* --------------------------------------------------------------------------------------- end */

static int open_submit(struct sl_open *open, int stage);

struct sluice_file *sl_open_take(struct sluice_op *op)
{
	sl_mutex_lock(&op->mutex);
	/* Of an open that failed, open_end() discards it. */
	struct sluice_file *file = op->locked.ended && !op->locked.error ? op->open->file : NULL;
	if (file)
		op->open->file = NULL;
	sl_mutex_unlock(&op->mutex);
	return file;
}

/* Gives a reference away: with the last a file not taken is closed, perhaps by the pool. */
static void open_let_go(struct sl_open *open, bool may_wait)
{
	struct sluice_op *op = open->op;

	if (atomic_fetch_sub(&op->references, 1) != 1)
		return;
	atomic_store(&op->references, 1);
	if (!may_wait && open->file && !open_submit(open, OPEN_GOES))
		return;
	sluice_discard(sl_open_take(op));
	sl_op_unref(op);
}

void sl_open_let_go(struct sluice_op *op)
{
	sluice_discard(sl_open_take(op));
	open_let_go(op->open, true);
}

/* Fixes the result. Returns false if a thread that may wait has to: there is something to close. */
static bool open_settle(struct sl_open *open, bool may_wait)
{
	struct sluice_op *op = open->op;

	sl_mutex_lock(&op->mutex);
	if (open->base.error && !op->locked.error) {
		op->locked.error = open->base.error;
		op->message = open->base.message;
		open->base.message = NULL;
	}
	bool over = may_wait || !op->locked.error || (!open->base.backend && !open->file);
	op->locked.ended = over;
	op->result = op->locked.error;
	sl_mutex_unlock(&op->mutex);
	return over;
}

/* Gives the operation its result. The engine's reference is gone afterwards. */
static void open_end(struct sl_open *open, bool may_wait)
{
	struct sl_opening *base = &open->base;
	struct sluice_op *op = open->op;
	struct sluice_context *ctx = op->ctx;

	if (!base->error && base->backend) {
		base->error = sl_file_wrap(ctx, open->uri, open->options.flags, base->backend,
		                           &open->file);
		base->backend = NULL;
		base->message = base->error ? strdup(sluice_last_message()) : NULL;
	}
	if (!open_settle(open, may_wait)) {
		if (!open_submit(open, OPEN_ENDS))
			return;
		open_settle(open, true);
	}
	if (op->result) {
		sluice_discard(open->file);
		open->file = NULL;
		if (base->backend)
			base->backend->ops->close(base->backend);
	}
	free(base->message);
	/* A thread that sees the end may free the context, which joins this one. */
	sl_context_leave(ctx);
	sl_op_publish(op);
	sl_gate_give(&ctx->operations, 1);
	open_let_go(open, false);
}

static void open_run_task(struct sl_task *task)
{
	struct sl_open *open = SL_CONTAINER(task, struct sl_open, task);
	struct sl_opening *base = &open->base;

	if (open->stage == OPEN_GOES) {
		open_let_go(open, true);
		return;
	}
	if (open->stage == OPEN_BEGINS && !atomic_load(&base->cancelled)) {
		base->error = sl_file_open_backend(open->op->ctx, open->uri, &open->options,
		                                   base->backend ? base : NULL, &base->backend);
		base->message = base->error ? strdup(sluice_last_message()) : NULL;
	}
	open_end(open, true);
}

int sl_context_get_pool(struct sluice_context *ctx, bool looks, struct sl_pool **out)
{
	int rc = 0;

	sl_mutex_lock(&ctx->opens.mutex);
	struct sl_pool **pool = looks ? &ctx->opens.looks : &ctx->opens.pool;
	if (!*pool)
		rc = sl_pool_start(looks ? "sluice-look" : "sluice-open", 1, OPENS_MOST, pool);
	*out = *pool;
	sl_mutex_unlock(&ctx->opens.mutex);
	return rc;
}

static int open_submit(struct sl_open *open, int stage)
{
	struct sl_pool *pool;
	int rc = sl_context_get_pool(open->op->ctx, false, &pool);

	open->stage = stage;
	if (!rc)
		sl_pool_submit(pool, &open->task);
	return rc;
}

static void open_done(struct sl_opening *base)
{
	struct sl_open *open = SL_CONTAINER(base, struct sl_open, base);
	int rc;

	/* Or the file of a dataset is open. */
	if (base->error == -EREMOTE || (!base->error && open->options.dataset)) {
		free(base->message);
		base->message = NULL;
		rc = open_submit(open, OPEN_BEGINS);
		/* Then another thread may have freed it. */
		if (!rc)
			return;
		base->error = rc;
		base->message = strdup(sluice_last_message());
	}
	open_end(open, false);
}

/* ------------------------------------------------------------------------------------- start */

static struct sl_open *open_new(struct sluice_context *ctx, const char *uri,
                                const struct sluice_open_options *options)
{
	struct sl_open *open = calloc(1, sizeof(*open));

	if (!open)
		return NULL;
	open->base.done = open_done;
	open->uri = uri;
	open->options = *options;
	open->task.run = open_run_task;
	open->op = sl_op_new(ctx, NULL, SL_OPEN);
	if (!open->op) {
		free(open);
		return NULL;
	}
	open->op->open = open;
	return open;
}

int sluice_open_start(sluice_context *ctx, const char *uri, const struct sluice_open_options *o,
                      sluice_queue *queue, void *user, sluice_op **out)
{
	struct sluice_request request = SLUICE_REQUEST_INIT;
	struct sluice_open_options options;
	int rc = sl_context_check(ctx);

	if (!rc && (!uri || !out))
		rc = sl_fail(-EINVAL, "sluice_open_start: %s is NULL", uri ? "out" : "uri");
	if (rc)
		return rc;
	*out = NULL;
	rc = sl_done_check(ctx, queue);
	if (!rc)
		rc = sl_file_copy_options(o, &options);
	if (rc)
		return rc;
	struct sl_open *open = open_new(ctx, uri, &options);
	if (!open)
		return sl_fail(-ENOMEM, "no memory");
	open->op->user = user;
	request.queue = queue;
	sl_done_enter(open->op, &request);
	sl_gate_pass(&ctx->operations, 1);
	sl_context_enter(ctx);
	atomic_fetch_add(&open->op->references, 1);
	/* From here on another thread may end the operation, and free its handle. */
	*out = open->op;
	rc = sl_file_open_backend(ctx, uri, &open->options, &open->base, NULL);
	if (rc == -EAGAIN)
		rc = open_submit(open, OPEN_BEGINS);
	if (!rc)
		return 0;
	/* None has begun: the caller alone has the operation. */
	sl_gate_give(&ctx->operations, 1);
	sl_context_leave(ctx);
	*out = NULL;
	sl_op_unref(open->op);
	sl_op_unref(open->op);
	return rc;
}

/* ------------------------------------------------------------------------------ for operations */

int sl_open_cancel(struct sluice_op *op)
{
	const struct sl_backend_ops *ops = op->open->base.ops;

	/* Until the mutex is free the operation does not end, and keeps the context. */
	sl_mutex_lock(&op->mutex);
	bool over = op->locked.ended;
	if (!over) {
		op->locked.error = op->locked.error ? op->locked.error : -ECANCELED;
		atomic_store(&op->open->base.cancelled, true);
		if (ops && ops->cancel_open)
			ops->cancel_open(&op->ctx->core);
	}
	sl_mutex_unlock(&op->mutex);
	return over ? sl_fail(-EALREADY, "the operation is over") : 0;
}
