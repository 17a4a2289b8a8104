/* SPDX-License-Identifier: Apache-2.0 */
/* The doors of an operation: submitting, waiting, cancelling. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "io/io.h"

/* ------------------------------------------------------------------------------------ submit */

static int check_request(struct sluice_file *file, const struct sluice_request *r)
{
	uint64_t total = 0;

	if (r->size < sizeof(r->size) + sizeof(r->kind))
		return sl_fail(-EINVAL, "request: size is not set");
	if (r->kind != SLUICE_READ && r->kind != SLUICE_WRITE)
		return sl_fail(-EINVAL, "request: kind %d is neither SLUICE_READ nor SLUICE_WRITE",
		               r->kind);
	if (!(file->flags & (r->kind == SLUICE_READ ? SLUICE_OPEN_READ : SLUICE_OPEN_WRITE)))
		return sl_fail(-EBADF, "'%s' was not opened for %s", file->uri,
		               r->kind == SLUICE_READ ? "reading" : "writing");
	if (r->count && !r->extents)
		return sl_fail(-EINVAL, "request: extents is NULL");
	for (size_t i = 0; i < r->count; i++) {
		const struct sluice_extent *extent = &r->extents[i];

		if (extent->length > INT64_MAX || extent->offset > INT64_MAX - extent->length)
			return sl_fail(-EINVAL,
			               "extent %zu: offset %" PRIu64 " and length %zu go "
			               "beyond INT64_MAX",
			               i, extent->offset, extent->length);
		if (extent->length && !extent->data)
			return sl_fail(-EINVAL, "extent %zu: data is NULL", i);
		total += extent->length;
		if (total > INT64_MAX)
			return sl_fail(-EINVAL, "request: more than INT64_MAX bytes");
	}
	return 0;
}

/* The operation's own copy of the extents, and a span for each that is not empty. */
static int copy_extents(struct sluice_op *op, const struct sluice_request *r)
{
	op->count = r->count;
	op->extents = &op->one_extent;
	op->order.spans = &op->one_span;
	if (r->count > 1) {
		op->extents = calloc(r->count, sizeof(*op->extents));
		op->order.spans = calloc(r->count, sizeof(*op->order.spans));
		if (!op->extents || !op->order.spans)
			return sl_fail(-ENOMEM, "no memory for %zu extents", r->count);
	}
	for (size_t i = 0; i < r->count; i++) {
		const struct sluice_extent *extent = &r->extents[i];
		struct sl_span *span = &op->order.spans[op->order.count];

		op->extents[i] = *extent;
		if (!extent->length)
			continue;
		span->interval.start = extent->offset;
		span->interval.end = extent->offset + extent->length;
		span->op = op;
		op->order.count++;
	}
	return 0;
}

/* ---------------------------------------------------------------------------------- submission */

static struct sluice_op *new_op(struct sluice_file *file, const struct sluice_request *r,
                                bool detached)
{
	struct sluice_op *op = sl_op_new(file->ctx, file, r->kind);

	if (!op) {
		sl_fail(-ENOMEM, "no memory");
		return NULL;
	}
	op->detached = detached;
	if (SL_REQUEST_HAS(r, user))
		op->user = r->user;
	return op;
}

static int enter(struct sluice_file *file, struct sluice_op *op, sluice_op **out)
{
	struct sluice_context *ctx = file->ctx;
	int rc;

	if (out)
		atomic_fetch_add(&op->references, 1);
	atomic_fetch_add(&file->in_flight, 1);
	rc = sl_order_enter(op);
	if (rc < 0) {
		if (out)
			sl_op_unref(op);
		sl_file_release(file);
		return sl_fail(rc, "request: extents of one write overlap in '%s'", file->uri);
	}
	if (out)
		*out = op;
	/* From here on another thread may end the operation and free its handle. */
	if (rc == 0) {
		sl_op_start(op);
		return 0;
	}
	/* It may wait for one that is just being enqueued: then nothing that the caller does next may
	 * come before those commands. */
	sl_mutex_lock(&ctx->submission);
	sl_mutex_unlock(&ctx->submission);
	return 0;
}

/* The operation has its place among max_operations. missed: what is in memory was asked for. */
static int submit_admitted(struct sluice_file *file, const struct sluice_request *r,
                           void (*over)(struct sluice_op *), bool missed, sluice_op **out)
{
	struct sluice_op *op = new_op(file, r, !out);
	int rc = op ? copy_extents(op, r) : -ENOMEM;

	if (op) {
		op->over = over;
		op->missed = missed;
	}
	/* What the library submits by itself is memory of the host: its threads ask no driver. */
	if (!rc && !(over && !sl_wants_stream(r)))
		rc = sl_op_find_way(op, r);
	if (!rc)
		rc = op->on_stream ? sl_stream_enter(op, out) : enter(file, op, out);
	if (rc) {
		if (op)
			sl_op_unref(op);
		sl_gate_give(&file->ctx->operations, 1);
	}
	return rc;
}

/*
 * A small read of what is in memory is over before its call returns: it takes no place, and enters no order if no
 * write is there. False: it has to go the long way.
 */
static bool read_at_once(struct sluice_file *file, const struct sluice_request *r, bool *missed,
                         sluice_op **out)
{
	struct sl_backend *backend = file->backend;
	const struct sluice_extent *extent = r->extents;
	int64_t moved;
	uint64_t mark;

	if (!out || r->kind != SLUICE_READ || r->count != 1 || !extent->length ||
	    extent->length > file->ctx->core.settings.inline_bytes || sl_wants_stream(r) ||
	    !backend->ops->read_now || file->limits.device ||
	    ((file->limits.touches || sl_device_any_known()) && sl_device_of_memory(extent->data)))
		return false;
	mark = sl_order_mark(file->object);
	if (!mark)
		return false;
	moved = backend->ops->read_now(backend, extent->data, extent->length, extent->offset);
	*missed = moved < 0;
	/* If a write has come meanwhile, what was read may be neither old nor new. */
	if (*missed || sl_order_mark(file->object) != mark)
		return false;
	return sl_done_new(file, moved, SL_REQUEST_HAS(r, user) ? r->user : NULL, out);
}

static int submit(struct sluice_file *file, const struct sluice_request *r, sluice_op **out)
{
	bool missed = false;
	int rc = check_request(file, r);

	if (!rc && read_at_once(file, r, &missed, out))
		return 0;
	if (!rc)
		rc = sl_op_admit(file);
	return rc ? rc : submit_admitted(file, r, NULL, missed, out);
}

int sl_op_submit(struct sluice_file *file, const struct sluice_request *r,
                 void (*over)(struct sluice_op *))
{
	sl_gate_pass(&file->ctx->operations, 1);
	return submit_admitted(file, r, over, false, NULL);
}

int sl_op_submit_staged(struct sluice_file *file, struct sl_staging *staging,
                        const struct sluice_request *r, void (*over)(struct sluice_op *))
{
	struct sluice_op *op = new_op(file, r, true);
	int rc = op ? copy_extents(op, r) : -ENOMEM;

	if (!rc) {
		op->over = over;
		op->order.count = 0;
		rc = sl_staged_new(op, staging, SL_WAY_HOST, NULL);
	}
	if (!rc) {
		sl_gate_pass(&file->ctx->operations, 1);
		return enter(file, op, NULL);
	}
	if (op)
		sl_op_unref(op);
	return rc;
}

static int check_file(const struct sluice_file *file)
{
	if (!file)
		return sl_fail(-EINVAL, "file is NULL");
	return sl_context_check(file->ctx);
}

int sluice_submit(sluice_file *file, const struct sluice_request *r, sluice_op **out)
{
	int rc = check_file(file);

	if (rc)
		return rc;
	return r ? submit(file, r, out) : sl_fail(-EINVAL, "request is NULL");
}

static int submit_extents(sluice_file *file, int kind, const struct sluice_extent *v, size_t count,
                          sluice_op **out)
{
	struct sluice_request r = SLUICE_REQUEST_INIT;

	r.kind = kind;
	r.extents = v;
	r.count = count;
	return sluice_submit(file, &r, out);
}

static int submit_on(sluice_file *file, int kind, const struct sluice_extent *v, size_t count,
                     sluice_stream stream, sluice_op **out)
{
	struct sluice_request r = SLUICE_REQUEST_INIT;

	r.kind = kind;
	r.extents = v;
	r.count = count;
	r.on = 1;
	r.stream = stream;
	return sluice_submit(file, &r, out);
}

int sluice_read(sluice_file *file, void *dst, size_t n, uint64_t offset, sluice_op **out)
{
	struct sluice_extent extent = {dst, n, offset};

	return submit_extents(file, SLUICE_READ, &extent, 1, out);
}

int sluice_write(sluice_file *file, const void *src, size_t n, uint64_t offset, sluice_op **out)
{
	struct sluice_extent extent = {(void *)(uintptr_t)src, n, offset};

	return submit_extents(file, SLUICE_WRITE, &extent, 1, out);
}

int sluice_readv(sluice_file *file, const struct sluice_extent *v, size_t count, sluice_op **out)
{
	return submit_extents(file, SLUICE_READ, v, count, out);
}

int sluice_writev(sluice_file *file, const struct sluice_extent *v, size_t count, sluice_op **out)
{
	return submit_extents(file, SLUICE_WRITE, v, count, out);
}

int sluice_read_on(sluice_file *file, void *dst, size_t n, uint64_t offset, sluice_stream stream,
                   sluice_op **out)
{
	struct sluice_extent extent = {dst, n, offset};

	return submit_on(file, SLUICE_READ, &extent, 1, stream, out);
}

int sluice_write_on(sluice_file *file, const void *src, size_t n, uint64_t offset,
                    sluice_stream stream, sluice_op **out)
{
	struct sluice_extent extent = {(void *)(uintptr_t)src, n, offset};

	return submit_on(file, SLUICE_WRITE, &extent, 1, stream, out);
}

int sluice_readv_on(sluice_file *file, const struct sluice_extent *v, size_t count,
                    sluice_stream stream, sluice_op **out)
{
	return submit_on(file, SLUICE_READ, v, count, stream, out);
}

int sluice_writev_on(sluice_file *file, const struct sluice_extent *v, size_t count,
                     sluice_stream stream, sluice_op **out)
{
	return submit_on(file, SLUICE_WRITE, v, count, stream, out);
}

/* -------------------------------------------------------------------------------------- wait */

static int check_op(const struct sluice_op *op)
{
	if (!op)
		return sl_fail(-EINVAL, "op is NULL");
	return sl_context_check(op->ctx);
}

static bool is_done(void *argument)
{
	const struct sluice_op *op = argument;

	return atomic_load_explicit(&op->state, memory_order_acquire) & SL_OP_DONE;
}

/* Ended by sl_op_end(), or by the deadline. */
static bool wait_until_done(struct sluice_op *op, int64_t deadline)
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
 * An operation in stream order may be over for anybody who reads the words that the device writes,
 * before the doorbell has seen it: then it is ended here.
 */
static void settle(struct sluice_op *op)
{
	bool over, hold;

	if (!op->on_stream || atomic_load(&op->state) & SL_OP_DONE)
		return;
	sl_mutex_lock(&op->mutex);
	over = op->locked.over || sl_staged_over(op);
	if (!over) {
		sl_mutex_unlock(&op->mutex);
		return;
	}
	/* What this thread starts may be over before it has finished waking somebody for it: the file
	 * keeps the context until then. */
	hold = !op->locked.ended;
	if (hold)
		atomic_fetch_add(&op->file->in_flight, 1);
	sl_op_pump_locked(op);
	/* Another thread may be at it, which waits for nobody. */
	wait_until_done(op, SL_FOREVER);
	if (hold)
		sl_file_release(op->file);
}

int64_t sluice_wait(sluice_op *op, int timeout_ms)
{
	static _Thread_local struct sl_spin spin;
	int rc = check_op(op);

	if (rc)
		return rc;
	settle(op);
	if (!is_done(op)) {
		/* The look is part of the time. */
		int64_t deadline = sl_deadline(timeout_ms);

		if (!timeout_ms ||
		    !(sl_spin_until(&spin, is_done, op) || wait_until_done(op, deadline)))
			return sl_fail(-EINPROGRESS, "the operation is still running");
	}
	sl_done_forget(op);
	return op->result;
}

int sluice_poll(const sluice_op *op)
{
	int rc = check_op(op);

	if (rc)
		return rc;
	/* Whatever says next that it is over agrees: the queue, its descriptor, cancel. */
	settle((struct sluice_op *)(uintptr_t)op);
	return atomic_load(&op->state) & SL_OP_DONE;
}

int sluice_op_fd(sluice_op *op)
{
	int rc = check_op(op);

	if (rc)
		return rc;
	sl_mutex_lock(&op->mutex);
	if (op->locked.fd < 0)
		op->locked.fd = eventfd(atomic_load(&op->state) & SL_OP_DONE ? 1 : 0,
		                        EFD_CLOEXEC | EFD_NONBLOCK);
	rc = op->locked.fd >= 0
	             ? op->locked.fd
	             : sl_fail(-errno, "cannot make an eventfd: %s", sl_error_text(-errno));
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
	settle((struct sluice_op *)(uintptr_t)op);
	failed = atomic_load(&op->state) & SL_OP_DONE && op->result < 0;
	if (!failed)
		return "";
	return op->message ? op->message : sl_error_text((int)op->result);
}

int sluice_cancel(sluice_op *op)
{
	int rc = check_op(op);
	bool over;

	if (rc)
		return rc;
	settle(op);
	/* While it is not over the file is there to be held, which holds what this looks at. */
	sl_mutex_lock(&op->mutex);
	over = op->locked.ended;
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

void sluice_op_free(sluice_op *op)
{
	if (!op || sl_forked())
		return;
	sl_done_forget(op);
	/* Only calls with the handle write it. */
	if (op->locked.fd >= 0) {
		sl_mutex_lock(&op->mutex);
		close(op->locked.fd);
		op->locked.fd = -1;
		sl_mutex_unlock(&op->mutex);
	}
	if (!op->at_once || !sl_done_keep(op))
		sl_op_unref(op);
}

int sl_op_run(struct sluice_file *file, enum sl_kind kind, uint64_t length)
{
	struct sluice_op *op = sl_op_new(file->ctx, file, kind);
	struct sluice_op *handle = NULL;
	int rc;

	if (!op)
		return sl_fail(-ENOMEM, "no memory");
	op->length = length;
	op->order.spans = &op->one_span;
	op->order.count = 1;
	op->one_span.interval.end = UINT64_MAX;
	op->one_span.op = op;
	op->done.reported = true;
	sl_gate_pass(&file->ctx->operations, 1);
	rc = enter(file, op, &handle);
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
