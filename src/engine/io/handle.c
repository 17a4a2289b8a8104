/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Handles
 *
 * Public calls on handles: wait, poll, cancel, result, end; and sync and truncate, which make an
 * operation and await it. Any thread of the application; only the waits wait.
 */
#include <errno.h>
#include <inttypes.h>
#include <unistd.h>

#include "io/staged/staged.h"

static int handle_check(const struct sluice_op *op)
{
	return op ? sl_context_check(op->ctx) : sl_fail(-EINVAL, "op is NULL");
}

static bool handle_is_done(void *argument)
{
	const struct sluice_op *op = argument;

	return atomic_load_explicit(&op->state, memory_order_acquire) & SL_OP_DONE;
}

/* Waits until the operation is done: sl_op_end() ends the wait, or the deadline, with false. */
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

/* Ends an operation in stream order that is over by the words of the device, which any thread can
 * read, before the poller has seen them. */
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
	int64_t deadline = 0;
	int rc = handle_check(op);

	if (rc)
		return rc;
	handle_settle(op);
	if (timeout_ms && !op->at_once) {
		/* Help and sl_spin_until() are part of the time. */
		deadline = sl_deadline(timeout_ms);
		sl_help(op, deadline);
	}
	if (!handle_is_done(op) && (!timeout_ms || !(sl_spin_until(&spin, handle_is_done, op) ||
	                                             handle_wait_until(op, deadline))))
		return sl_fail(-EINPROGRESS, "the operation is still running");
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

	if (!op || !sl_process_is(op->ctx->process))
		return 0;
	if (atomic_load(&op->state) & SL_OP_DONE && op->result >= 0)
		return (uint64_t)op->result;
	sl_mutex_lock(&asked->mutex);
	int64_t moved = (int64_t)asked->locked.moved;
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
	if (!op || !sl_process_is(op->ctx->process))
		return "";
	handle_settle((struct sluice_op *)(uintptr_t)op);
	bool failed = atomic_load(&op->state) & SL_OP_DONE && op->result < 0;
	if (!failed)
		return "";
	return op->message ? op->message : sl_error_text((int)op->result);
}

int sluice_cancel(sluice_op *op)
{
	int rc = handle_check(op);

	if (rc)
		return rc;
	if (op->open)
		return sl_open_cancel(op);
	handle_settle(op);
	/* While the operation is not over its file can be held, and all that this looks at. */
	sl_mutex_lock(&op->mutex);
	bool over = op->at_once || op->locked.ended;
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

int sluice_op_file(sluice_op *op, sluice_file **out)
{
	if (!op || !out)
		return sl_fail(-EINVAL, "sluice_op_file: %s is NULL", op ? "out" : "op");
	int rc = handle_check(op);
	if (rc)
		return rc;
	if (!op->open)
		return sl_fail(-EINVAL, "the operation opens no file");
	if (!(atomic_load(&op->state) & SL_OP_DONE))
		return sl_fail(-EINPROGRESS, "the operation is still running");
	if (op->result)
		return sl_fail((int)op->result, "%s", sluice_op_message(op));
	struct sluice_file *file = sl_open_take(op);
	if (!file)
		return sl_fail(-EINVAL, "the file has been taken");
	*out = file;
	return 0;
}

/* Reads the descriptor without the mutex: only calls with the handle write it. */
void sluice_op_free(sluice_op *op) SL_UNCHECKED
{
	if (!op || !sl_process_is(op->ctx->process))
		return;
	sl_done_forget(op);
	if (op->locked.fd >= 0) {
		sl_mutex_lock(&op->mutex);
		close(op->locked.fd);
		op->locked.fd = -1;
		sl_mutex_unlock(&op->mutex);
	}
	if (op->open)
		sl_open_let_go(op);
	else if (!op->at_once || !sl_at_once_keep(op))
		sl_op_unref(op);
}

/* -------------------------------------------------------------------------- sync and truncate */

/* Makes and awaits an operation over all bytes. */
static int handle_run(struct sluice_file *file, enum sl_op_kind kind, uint64_t length)
{
	struct sluice_op *op = sl_op_new(file->ctx, file, kind);
	struct sluice_op *handle = NULL;

	if (!op)
		return sl_fail(-ENOMEM, "no memory");
	op->length = length;
	op->order.ranges = &op->one_range;
	op->order.count = 1;
	op->one_range.interval.end = UINT64_MAX;
	op->one_range.op = op;
	op->done.reported = true;
	sl_gate_pass(&file->ctx->operations, 1);
	int rc = sl_op_enter(file, op, &handle);
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

int sluice_sync(sluice_file *file)
{
	int rc, error;

	if (!file)
		return sl_fail(-EINVAL, "sluice_sync: file is NULL");
	rc = sl_context_check(file->ctx);
	if (rc)
		return rc;
	/* A barrier over all bytes: after all before it; later reads do not wait for it. */
	rc = handle_run(file, SL_SYNC, 0);
	error = sl_file_take_error(file, false);
	return error ? error : rc;
}

int sluice_truncate(sluice_file *file, uint64_t length)
{
	if (!file)
		return sl_fail(-EINVAL, "sluice_truncate: file is NULL");
	int rc = sl_context_check(file->ctx);
	if (rc)
		return rc;
	if (!(file->flags & SLUICE_OPEN_WRITE))
		return sl_fail(-EBADF, "'%s' was not opened for writing", file->uri);
	if (length > INT64_MAX)
		return sl_fail(-EINVAL, "sluice_truncate: %" PRIu64 " is beyond INT64_MAX", length);
	/* Over all bytes: its range is unknown until the truncates ahead are over. */
	return handle_run(file, SL_TRUNCATE, length);
}
