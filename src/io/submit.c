/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Submission
 *
 * Checks a request, makes an operation of it, and starts it. A small read of bytes in memory is
 * over before its call returns. Runs on the thread that submits; waits only for a place among
 * SLUICE_MAX_OPERATIONS, and in stream order as staged/stream_order.c says.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

#include "io/op.h"
#include "io/staged/route.h"

/* ------------------------------------------------------------------------------------
 * submit_request */

static int request_check(struct sluice_file *file, const struct sluice_request *r)
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

/* Copies the extents into the operation, and makes a range of each that is not empty. */
static int op_copy_extents(struct sluice_op *op, const struct sluice_request *r)
{
	op->count = r->count;
	op->extents = &op->one_extent;
	op->order.ranges = &op->one_range;
	if (r->count > 1) {
		op->extents = calloc(r->count, sizeof(*op->extents));
		op->order.ranges = calloc(r->count, sizeof(*op->order.ranges));
		if (!op->extents || !op->order.ranges)
			return sl_fail(-ENOMEM, "no memory for %zu extents", r->count);
	}
	for (size_t i = 0; i < r->count; i++) {
		const struct sluice_extent *extent = &r->extents[i];
		struct sl_range *range = &op->order.ranges[op->order.count];

		op->extents[i] = *extent;
		if (!extent->length)
			continue;
		range->interval.start = extent->offset;
		range->interval.end = extent->offset + extent->length;
		range->op = op;
		op->order.count++;
	}
	return 0;
}

static struct sluice_op *op_new_for(struct sluice_file *file, const struct sluice_request *r,
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

int sl_op_enter(struct sluice_file *file, struct sluice_op *op, sluice_op **out)
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
	/* From here on another thread may end the operation, and free its handle. */
	if (rc == 0) {
		sl_op_start(op);
		return 0;
	}
	/* A barrier: the operation that holds it back may be in stream order, and another thread
	 * may be enqueueing its commands. They come before all that the caller does next. */
	sl_mutex_lock(&ctx->submission);
	sl_mutex_unlock(&ctx->submission);
	return 0;
}

/* Submits a request that has been admitted. missed: the bytes were asked for, and are not in
 * memory. */
static int submit_admitted(struct sluice_file *file, const struct sluice_request *r,
                           void (*over)(struct sluice_op *), bool missed, sluice_op **out)
{
	struct sluice_op *op = op_new_for(file, r, !out);
	int rc = op ? op_copy_extents(op, r) : -ENOMEM;

	if (op) {
		op->over = over;
		op->missed = missed;
	}
	/* The library itself submits host memory only: its threads call no driver. */
	if (!rc && !(over && !sl_wants_stream(r)))
		rc = sl_op_find_route(op, r);
	if (!rc)
		rc = op->on_stream ? sl_stream_enter(op, out) : sl_op_enter(file, op, out);
	if (rc) {
		if (op)
			sl_op_unref(op);
		sl_gate_give(&file->ctx->operations, 1);
	}
	return rc;
}

/*
 * Reads a small extent that is in memory before the call returns. The operation is not admitted,
 * and enters no order, which is right while there is no write. Returns false if it has to be
 * submitted.
 */
static bool submit_read_at_once(struct sluice_file *file, const struct sluice_request *r,
                                bool *missed, sluice_op **out)
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
	/* If a write has entered meanwhile, the bytes may be neither old nor new. */
	if (*missed || sl_order_mark(file->object) != mark)
		return false;
	return sl_done_new(file, moved, SL_REQUEST_HAS(r, user) ? r->user : NULL, out);
}

static int submit_request(struct sluice_file *file, const struct sluice_request *r, sluice_op **out)
{
	bool missed = false;
	int rc = request_check(file, r);

	if (!rc && submit_read_at_once(file, r, &missed, out))
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
	struct sluice_op *op = op_new_for(file, r, true);
	int rc = op ? op_copy_extents(op, r) : -ENOMEM;

	if (!rc) {
		op->over = over;
		op->order.count = 0;
		rc = sl_staged_new(op, staging, &sl_route_copier, NULL);
	}
	if (!rc) {
		sl_gate_pass(&file->ctx->operations, 1);
		return sl_op_enter(file, op, NULL);
	}
	if (op)
		sl_op_unref(op);
	return rc;
}

static int submit_check_file(const struct sluice_file *file)
{
	if (!file)
		return sl_fail(-EINVAL, "file is NULL");
	return sl_context_check(file->ctx);
}

int sluice_submit(sluice_file *file, const struct sluice_request *r, sluice_op **out)
{
	int rc = submit_check_file(file);

	if (rc)
		return rc;
	return r ? submit_request(file, r, out) : sl_fail(-EINVAL, "request is NULL");
}

static int submit_extents(sluice_file *file, int kind, const struct sluice_extent *v, size_t count,
                          bool on, sluice_stream stream, sluice_op **out)
{
	struct sluice_request r = SLUICE_REQUEST_INIT;

	r.kind = kind;
	r.extents = v;
	r.count = count;
	r.on = on;
	r.stream = stream;
	return sluice_submit(file, &r, out);
}

int sluice_readv(sluice_file *file, const struct sluice_extent *v, size_t count, sluice_op **out)
{
	return submit_extents(file, SLUICE_READ, v, count, false, NULL, out);
}

int sluice_writev(sluice_file *file, const struct sluice_extent *v, size_t count, sluice_op **out)
{
	return submit_extents(file, SLUICE_WRITE, v, count, false, NULL, out);
}

int sluice_readv_on(sluice_file *file, const struct sluice_extent *v, size_t count,
                    sluice_stream stream, sluice_op **out)
{
	return submit_extents(file, SLUICE_READ, v, count, true, stream, out);
}

int sluice_writev_on(sluice_file *file, const struct sluice_extent *v, size_t count,
                     sluice_stream stream, sluice_op **out)
{
	return submit_extents(file, SLUICE_WRITE, v, count, true, stream, out);
}

int sluice_read(sluice_file *file, void *dst, size_t n, uint64_t offset, sluice_op **out)
{
	return sluice_readv(file, &(struct sluice_extent){dst, n, offset}, 1, out);
}

int sluice_write(sluice_file *file, const void *src, size_t n, uint64_t offset, sluice_op **out)
{
	struct sluice_extent extent = {(void *)(uintptr_t)src, n, offset};

	return sluice_writev(file, &extent, 1, out);
}

int sluice_read_on(sluice_file *file, void *dst, size_t n, uint64_t offset, sluice_stream stream,
                   sluice_op **out)
{
	return sluice_readv_on(file, &(struct sluice_extent){dst, n, offset}, 1, stream, out);
}

int sluice_write_on(sluice_file *file, const void *src, size_t n, uint64_t offset,
                    sluice_stream stream, sluice_op **out)
{
	struct sluice_extent extent = {(void *)(uintptr_t)src, n, offset};

	return sluice_writev_on(file, &extent, 1, stream, out);
}
