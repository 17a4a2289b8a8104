/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Handles
 *
 * The public calls on an operation that was submitted: wait, poll, cancel, its descriptor, and the
 * queue of operations that are over. Any thread of the application; only the waits wait.
 */
#include <errno.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "io/op.h"
#include "io/staged/staged.h"

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

/* Returns the eventfd, which it makes at its first use, readable if `ready`; or -errno with a
 * sentence. */
static int handle_get_fd(int *fd, bool ready)
{
	if (*fd < 0)
		*fd = eventfd(ready, EFD_CLOEXEC | EFD_NONBLOCK);
	return *fd >= 0 ? *fd
	                : sl_fail(-errno, "cannot make an eventfd: %s", sl_error_text(-errno));
}

int sluice_op_fd(sluice_op *op)
{
	int rc = handle_check(op);

	if (rc)
		return rc;
	sl_mutex_lock(&op->mutex);
	rc = handle_get_fd(&op->locked.fd, atomic_load(&op->state) & SL_OP_DONE);
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

	if (!op || sl_forked())
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
	if (!op || sl_forked())
		return;
	sl_done_forget(op);
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

/* -------------------------------------------------------------------------------------- queue */

int sluice_next_done(sluice_context *ctx, int timeout_ms, sluice_op **out)
{
	int rc = sl_context_check(ctx);
	struct sluice_op *op;
	int64_t deadline;

	if (rc)
		return rc;
	if (!out)
		return sl_fail(-EINVAL, "sluice_next_done: out is NULL");
	deadline = timeout_ms ? sl_deadline(timeout_ms) : 0;
	sl_mutex_lock(&ctx->done.mutex);
	/* sl_op_end() of an operation or the deadline ends the wait. */
	while (!(op = sl_done_take_locked(&ctx->done)) && timeout_ms && rc != -ETIMEDOUT) {
		ctx->done.locked.waiters++;
		rc = sl_cond_wait(&ctx->done.arrived, &ctx->done.mutex, deadline);
		ctx->done.locked.waiters--;
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
	struct sl_done *done;

	if (rc)
		return rc;
	done = &ctx->done;
	sl_mutex_lock(&done->mutex);
	rc = handle_get_fd(&done->locked.fd, !sl_list_empty(&done->locked.list));
	sl_mutex_unlock(&done->mutex);
	return rc;
}
