/* SPDX-License-Identifier: Apache-2.0 */
/* The queue of finished operations. */
#include <errno.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "io/io.h"

void sl_done_init(struct sl_done *done)
{
	pthread_condattr_t attributes;

	pthread_condattr_init(&attributes);
	pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
	pthread_cond_init(&done->arrived, &attributes);
	pthread_condattr_destroy(&attributes);
	sl_mutex_init(&done->mutex);
	sl_list_init(&done->list);
	done->fd = -1;
}

void sl_done_destroy(struct sl_done *done)
{
	while (done->kept_count)
		free(done->kept[--done->kept_count]);
	if (done->fd >= 0)
		close(done->fd);
	pthread_cond_destroy(&done->arrived);
	sl_mutex_destroy(&done->mutex);
}

/* The descriptor is readable exactly while the list holds something; the mutex is held. */
static void show(struct sl_done *done)
{
	uint64_t one = 1;

	if (done->fd >= 0)
		(void)!write(done->fd, &one, sizeof(one));
}

static void unlink_op(struct sl_done *done, struct sluice_op *op)
{
	uint64_t count;

	sl_list_remove(&op->done.link);
	if (done->fd >= 0 && sl_list_empty(&done->list))
		(void)!read(done->fd, &count, sizeof(count));
}

static void append(struct sl_done *done, struct sluice_op *op)
{
	if (sl_list_empty(&done->list))
		show(done);
	sl_list_append(&done->list, &op->done.link);
	if (done->waiters)
		pthread_cond_signal(&done->arrived);
}

uint32_t sl_done_publish(struct sluice_op *op)
{
	struct sl_done *done = &op->ctx->done;
	uint32_t before;

	if (op->detached)
		return atomic_fetch_or(&op->state, SL_OP_DONE);
	sl_mutex_lock(&done->mutex);
	if (!op->done.reported)
		append(done, op);
	before = atomic_fetch_or(&op->state, SL_OP_DONE);
	sl_mutex_unlock(&done->mutex);
	return before;
}

/* All that is ever written in such an operation is written here, so one that was kept is as good as new. */
bool sl_done_new(struct sluice_file *file, int64_t result, void *user, sluice_op **out)
{
	struct sluice_context *ctx = file->ctx;
	struct sl_done *done = &ctx->done;
	struct sluice_op *op = NULL;

	sl_mutex_lock(&done->mutex);
	if (done->kept_count) {
		op = done->kept[--done->kept_count];
		atomic_fetch_add(&ctx->references, 1);
	} else {
		op = sl_op_new(ctx, file, SL_READ);
	}
	if (op) {
		op->at_once = op->locked.ended = true;
		op->result = result;
		op->user = user;
		atomic_store_explicit(&op->done.reported, false, memory_order_relaxed);
		atomic_store_explicit(&op->state, SL_OP_DONE, memory_order_release);
		*out = op;
		append(done, op);
	}
	sl_mutex_unlock(&done->mutex);
	return op;
}

bool sl_done_keep(struct sluice_op *op)
{
	struct sluice_context *ctx = op->ctx;
	struct sl_done *done = &ctx->done;
	bool keep;

	sl_mutex_lock(&done->mutex);
	keep = done->kept_count < sizeof(done->kept) / sizeof(done->kept[0]);
	if (keep)
		done->kept[done->kept_count++] = op;
	sl_mutex_unlock(&done->mutex);
	if (keep)
		sl_context_unref(ctx);
	return keep;
}

void sl_done_forget(struct sluice_op *op)
{
	struct sl_done *done = &op->ctx->done;

	if (atomic_load_explicit(&op->done.reported, memory_order_acquire))
		return;
	sl_mutex_lock(&done->mutex);
	if (sl_list_linked(&op->done.link))
		unlink_op(done, op);
	atomic_store_explicit(&op->done.reported, true, memory_order_release);
	sl_mutex_unlock(&done->mutex);
}

static struct sluice_op *take(struct sl_done *done)
{
	struct sluice_op *op;

	if (sl_list_empty(&done->list))
		return NULL;
	op = SL_CONTAINER(done->list.next, struct sluice_op, done.link);
	unlink_op(done, op);
	atomic_store_explicit(&op->done.reported, true, memory_order_release);
	return op;
}

int sluice_next_done(sluice_context *ctx, int timeout_ms, sluice_op **out)
{
	int rc = sl_context_check(ctx);
	struct sluice_op *op;
	struct timespec until;
	int64_t deadline;

	if (rc)
		return rc;
	if (!out)
		return sl_fail(-EINVAL, "sluice_next_done: out is NULL");
	deadline = timeout_ms ? sl_deadline(timeout_ms) : 0;
	until = (struct timespec){deadline / 1000000000, deadline % 1000000000};
	sl_mutex_lock(&ctx->done.mutex);
	/* Ended by sl_done_publish(), or by the deadline. */
	while (!(op = take(&ctx->done)) && timeout_ms && rc != ETIMEDOUT) {
		ctx->done.waiters++;
		if (deadline == SL_FOREVER)
			rc = sl_cond_wait(&ctx->done.arrived, &ctx->done.mutex, SL_FOREVER);
		else
			rc = pthread_cond_timedwait(&ctx->done.arrived, &ctx->done.mutex.pthread,
			                            &until);
		ctx->done.waiters--;
	}
	sl_mutex_unlock(&ctx->done.mutex);
	if (!op)
		return sl_fail(-EAGAIN, "no operation finished in time");
	*out = op;
	return 0;
}

int sluice_done_fd(sluice_context *ctx)
{
	int rc = sl_context_check(ctx);

	if (rc)
		return rc;
	sl_mutex_lock(&ctx->done.mutex);
	if (ctx->done.fd < 0) {
		ctx->done.fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
		if (ctx->done.fd >= 0 && !sl_list_empty(&ctx->done.list))
			show(&ctx->done);
	}
	rc = ctx->done.fd >= 0
	             ? ctx->done.fd
	             : sl_fail(-errno, "cannot make an eventfd: %s", sl_error_text(-errno));
	sl_mutex_unlock(&ctx->done.mutex);
	return rc;
}
