/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Queues of operations that are over
 *
 * Each context has a queue, and a program makes more: an operation enters the queue that its
 * request named, or that of its context, in the step that makes it done. Any thread; only
 * sluice_queue_next() waits. An operation keeps the memory of a queue that the program made.
 */
#include <errno.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "io/io_internal.h"

/* -------------------------------------------------------------------------------------- life */

void sl_done_init(struct sluice_queue *queue) SL_UNCHECKED
{
	atomic_init(&queue->references, 1);
	pthread_cond_init(&queue->arrived, NULL);
	sl_mutex_init(&queue->mutex);
	sl_list_init(&queue->locked.list);
	queue->locked.fd = -1;
}

void sl_done_destroy(struct sluice_queue *queue) SL_UNCHECKED
{
	while (queue->locked.kept_count)
		free(queue->locked.kept[--queue->locked.kept_count]);
	if (queue->locked.fd >= 0)
		close(queue->locked.fd);
	pthread_cond_destroy(&queue->arrived);
	sl_mutex_destroy(&queue->mutex);
}

void sl_done_unref(struct sluice_queue *queue)
{
	if (atomic_fetch_sub(&queue->references, 1) != 1)
		return;
	sl_done_destroy(queue);
	free(queue);
}

void sl_done_enter(struct sluice_op *op, const struct sluice_request *r)
{
	if (!SL_REQUEST_HAS(r, queue) || !r->queue || r->queue->context)
		return;
	op->done.queue = r->queue;
	atomic_fetch_add_explicit(&r->queue->references, 1, memory_order_relaxed);
}

/* -------------------------------------------------------------------------------- operations */

static void done_unlink_locked(struct sluice_queue *queue, struct sluice_op *op)
	SL_REQUIRES(&queue->mutex)
{
	uint64_t count;

	sl_list_remove(&op->done.link);
	if (queue->locked.fd >= 0 && sl_list_empty(&queue->locked.list))
		(void)!read(queue->locked.fd, &count, sizeof(count));
}

bool sl_done_append_locked(struct sluice_queue *queue, struct sluice_op *op)
{
	/* The descriptor is readable exactly while the queue holds an operation. */
	if (queue->locked.fd >= 0 && sl_list_empty(&queue->locked.list))
		sl_eventfd_raise(queue->locked.fd);
	sl_list_append(&queue->locked.list, &op->done.link);
	return queue->locked.waiters;
}

void sl_done_forget(struct sluice_op *op)
{
	struct sluice_queue *queue = op->done.queue;

	if (atomic_load_explicit(&op->done.reported, memory_order_acquire))
		return;
	sl_mutex_lock(&queue->mutex);
	if (sl_list_linked(&op->done.link))
		done_unlink_locked(queue, op);
	atomic_store_explicit(&op->done.reported, true, memory_order_release);
	sl_mutex_unlock(&queue->mutex);
}

/* Takes the first operation out of the queue; NULL: it is empty. */
static struct sluice_op *done_take_locked(struct sluice_queue *queue) SL_REQUIRES(&queue->mutex)
{
	if (sl_list_empty(&queue->locked.list))
		return NULL;
	struct sluice_op *op = SL_CONTAINER(queue->locked.list.next, struct sluice_op, done.link);
	done_unlink_locked(queue, op);
	atomic_store_explicit(&op->done.reported, true, memory_order_release);
	return op;
}

/* -------------------------------------------------------------------------------- public calls */

int sl_done_eventfd(int *fd, bool ready)
{
	if (*fd < 0)
		*fd = eventfd(ready, EFD_CLOEXEC | EFD_NONBLOCK);
	return *fd >= 0 ? *fd
	                : sl_fail(-errno, "cannot make an eventfd: %s", sl_error_text(-errno));
}

sluice_queue *sluice_context_queue(sluice_context *ctx)
{
	if (!ctx)
		sl_fail(-EINVAL, "the context is NULL");
	return ctx ? &ctx->done : NULL;
}

int sl_done_check(const struct sluice_context *ctx, const struct sluice_queue *queue)
{
	if (queue && !sl_process_is(queue->process))
		return sl_process_refuse();
	if (!queue || !queue->context || queue->context == ctx)
		return 0;
	return sl_fail(-EINVAL, "the queue is that of another context");
}

int sluice_queue_new(sluice_queue **out)
{
	uint32_t process;

	if (!out)
		return sl_fail(-EINVAL, "sluice_queue_new: out is NULL");
	int rc = sl_process_enter(&process);
	if (rc)
		return rc;
	struct sluice_queue *queue = calloc(1, sizeof(*queue));
	if (!queue)
		return sl_fail(-ENOMEM, "no memory");
	queue->process = process;
	sl_done_init(queue);
	*out = queue;
	return 0;
}

static int done_check(const struct sluice_queue *queue)
{
	if (!queue)
		return sl_fail(-EINVAL, "the queue is NULL");
	return sl_process_is(queue->process) ? 0 : sl_process_refuse();
}

int sluice_queue_next(sluice_queue *queue, int timeout_ms, sluice_op **out)
{
	int64_t deadline = timeout_ms ? sl_deadline(timeout_ms) : 0;
	struct sluice_op *op;
	int rc = done_check(queue);

	if (!rc && !out)
		rc = sl_fail(-EINVAL, "sluice_queue_next: out is NULL");
	if (rc)
		return rc;
	sl_mutex_lock(&queue->mutex);
	/* sl_op_end() of an operation or the deadline ends the wait. */
	while (!(op = done_take_locked(queue)) && timeout_ms && rc != -ETIMEDOUT) {
		queue->locked.waiters++;
		rc = sl_cond_wait(&queue->arrived, &queue->mutex, deadline);
		queue->locked.waiters--;
	}
	sl_mutex_unlock(&queue->mutex);
	if (!op)
		return sl_fail(-EAGAIN, "no operation finished in time");
	*out = op;
	return 0;
}

int sluice_queue_fd(sluice_queue *queue)
{
	int rc = done_check(queue), fd;

	if (rc)
		return rc;
	sl_mutex_lock(&queue->mutex);
	fd = sl_done_eventfd(&queue->locked.fd, !sl_list_empty(&queue->locked.list));
	sl_mutex_unlock(&queue->mutex);
	return fd;
}

void sluice_queue_free(sluice_queue *queue)
{
	if (!queue || queue->context || !sl_process_is(queue->process))
		return;
	sl_mutex_lock(&queue->mutex);
	if (queue->locked.fd >= 0)
		close(queue->locked.fd);
	queue->locked.fd = -1;
	sl_mutex_unlock(&queue->mutex);
	sl_done_unref(queue);
}
