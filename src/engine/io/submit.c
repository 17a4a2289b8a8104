/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Submission
 *
 * Checks a request, makes an operation of it, chooses the route of its bytes to their memory, and
 * starts it. The memory, the stream and the file decide whether the backend moves the bytes, or a
 * route of staged/. A small read of bytes in memory is over before its call returns. Runs on the
 * thread that submits; may call the driver; waits only while SLUICE_MAX_OPERATIONS are in flight,
 * and in stream order as staged/stream_order.c says.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "io/staged/staged.h"

/* ----------------------------------------------------------------------------------- request */

/* Copies the box of a request, and checks it. *out: NULL if there is none. */
static int request_box(struct sluice_file *file, const struct sluice_request *r,
                       struct sl_box **out)
{
	const struct sl_backend *backend = file->backend;

	*out = NULL;
	if (!SL_REQUEST_HAS(r, rank) || !r->rank)
		return 0;
	if (!backend->ops->box_bytes)
		return sl_fail(-EINVAL, "request: '%s' is no dataset, and has no box", file->uri);
	if (r->kind != SLUICE_READ || r->count != 1 || r->extents[0].offset)
		return sl_fail(-EINVAL, "request: a box is read into one extent, of offset 0");
	if (r->rank > SL_BOX_RANK || !r->box_start || !r->box_count)
		return sl_fail(-EINVAL, "request: a box has a start and a count, and %d dimensions",
		               SL_BOX_RANK);
	struct sl_box *box = calloc(1, sizeof(*box));
	if (!box)
		return sl_fail(-ENOMEM, "no memory");
	box->rank = r->rank;
	memcpy(box->start, r->box_start, r->rank * sizeof(box->start[0]));
	memcpy(box->count, r->box_count, r->rank * sizeof(box->count[0]));
	int64_t bytes = backend->ops->box_bytes(file->backend, box);
	if (bytes >= 0 && (uint64_t)bytes != r->extents[0].length)
		bytes = sl_fail(-EINVAL, "request: the box has %" PRId64 " bytes, its extent %zu",
		                bytes, r->extents[0].length);
	if (bytes >= 0)
		*out = box;
	else
		free(box);
	return (int)SL_MIN(bytes, 0);
}

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
	int rc = SL_REQUEST_HAS(r, queue) ? sl_done_check(file->ctx, r->queue) : 0;
	if (rc)
		return rc;
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

static int extent_compare(const void *a, const void *b)
{
	const struct sluice_extent *first = a, *second = b;

	return (first->offset > second->offset) - (first->offset < second->offset);
}

/* Copies the extents into the operation, and makes a range of each that is not empty. The
 * ranges of a remote read are sorted by their place in the object, so that a request is for many of
 * them; but in stream order they stay, as the last of two that overlap in memory wins. */
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
	if (r->count)
		memcpy(op->extents, r->extents, r->count * sizeof(*op->extents));
	if (op->kind == SL_READ && op->file->limits.remote && !sl_wants_stream(r) &&
	    !sl_wants_fan(r))
		qsort(op->extents, r->count, sizeof(*op->extents), extent_compare);
	for (size_t i = 0; i < r->count; i++) {
		const struct sluice_extent *extent = &op->extents[i];
		struct sl_range *range = &op->order.ranges[op->order.count];

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
	if (!detached)
		sl_done_enter(op, r);
	return op;
}

/* ------------------------------------------------------------------------------------- route */

/* What has been found out about a request before its operation is made. */
struct looked {
	bool missed; /* the bytes are not in memory */
	bool found;  /* the device of the only extent, or NULL: the host */
	struct sl_device *device;
};

/* Finds the device that has all memory of the request; NULL: the host. */
static int route_find_memory(const struct sluice_request *r, const struct looked *looked,
                             struct sl_device **out)
{
	struct sl_device *device = looked->device;
	bool first = true;

	*out = device;
	if (looked->found)
		return 0;

	for (size_t i = 0; i < r->count; i++) {
		if (!r->extents[i].length)
			continue;
		struct sl_device *found = sl_device_of_memory(r->extents[i].data);
		if (!first && found != device)
			return sl_fail(
				-EINVAL,
				"request: extent %zu is memory of %s, and those before it of %s", i,
				found ? found->name : "the host",
				device ? device->name : "the host");
		device = found;
		first = false;
	}
	*out = device;
	return 0;
}

/* Asks whether the backend moves the bytes to and from the device's memory itself, as
 * sl_device_moves.takes(). Never on a default stream, whose number means several. */
static int route_by_backend(struct sluice_op *op, struct sl_device *memory,
                            const struct sluice_request *r)
{
	struct sl_backend *backend = op->file->backend;
	const struct sl_device_moves *moves = backend->ops->moves;

	if (!memory || !moves || !moves->takes)
		return 0;
	if (sl_wants_stream(r) &&
	    (!op->ctx->core.settings.cufile_streams || (uintptr_t)r->stream <= SL_COMMON_STREAMS ||
	     !sl_transfers_fit(op)))
		return 0;
	int rc = moves->takes(backend, memory, op->extents, op->count, op->kind == SL_WRITE,
	                      sl_wants_stream(r));
	if (rc <= 0)
		return rc;
	sl_context_expect_exit(op->ctx, SL_EXIT_BACKEND);
	op->device = memory;
	op->order.blocks_streams = true;
	return rc;
}

/* Checks that a stream of the device reaches the memory: it has host memory registered. */
static int route_check_registered(struct sluice_op *op, struct sl_device *device)
{
	for (size_t i = 0; i < op->count; i++) {
		const struct sluice_extent *e = &op->extents[i];

		if (e->length && !device->ops->registered(device, e->data, e->length))
			return sl_fail(
				-ENOTSUP,
				"extent %zu: in stream order '%s', which is memory of %s, is "
				"copied to and from pinned memory only (sluice_pinned_alloc)",
				i, op->file->uri, device->name);
	}
	return 0;
}

/* The file is memory of a device, and in stream order the stream is given the copies. */
static int route_of_device_file_on(struct sluice_op *op, const struct sluice_request *r,
                                   struct sl_device *memory, struct sl_device *device)
{
	struct sl_device *holder = op->file->limits.device;
	struct sl_staging *staging;

	if (device != holder)
		return sl_fail(
			-ENOTSUP,
			"'%s' is memory of %s, and the stream is of %s: in stream order both "
			"have to be of one device",
			op->file->uri, holder->name, device->name);
	if (!sl_transfers_fit(op))
		return sl_fail(-E2BIG,
		               "'%s' is memory of a device: a stream is given %d copies at once, "
		               "each of 1 GiB or less",
		               op->file->uri, SL_TRANSFERS_MOST);
	int rc = memory ? 0 : route_check_registered(op, device);
	if (!rc)
		rc = sl_context_get_staging(op->ctx, holder, &staging);
	op->device = holder;
	return rc ? rc : sl_staged_new(op, staging, &sl_route_transfers, r->stream);
}

/* Finds the staging of a device for copies that the backend submits on threads of the library. */
static int route_pin_all(struct sluice_op *op, struct sl_device *device, struct sl_staging **out)
{
	int rc = sl_context_get_staging(op->ctx, device, out);

	return rc ? rc : sl_staging_pin(*out, SL_HALF_STREAM, 0);
}

static int route_awaited(struct sluice_op *op, const struct sluice_request *r,
                         struct sl_device *memory)
{
	struct sl_device *holder = op->file->limits.device;
	struct sl_staging *staging;
	int rc;

	if (op->fan && !memory && op->order.count)
		return sl_fail(-EINVAL, "request: with further memory the extents are on a device");
	if (op->fan && holder && memory)
		return sl_fail(-ENOTSUP,
		               "'%s' is memory of a device, and goes to no further memory",
		               op->file->uri);
	/* The backend has the copiers of both devices move the bytes. */
	if (holder) {
		op->device = memory;
		rc = route_pin_all(op, holder, &staging);
		return rc || !memory ? rc : route_pin_all(op, memory, &staging);
	}
	rc = op->fan ? 0 : route_by_backend(op, memory, r);
	if (rc || !memory)
		return SL_MIN(rc, 0);
	rc = sl_context_get_staging(op->ctx, memory, &staging);
	return rc ? rc : sl_staged_new(op, staging, &sl_route_copier, NULL);
}

static int route_on_stream(struct sluice_op *op, const struct sluice_request *r,
                           struct sl_device *memory)
{
	struct sl_device *holder = op->file->limits.device;
	struct sl_device *likely = memory ? memory : holder ? holder : sl_device_current();
	struct sl_device *device = sl_device_of_stream(r->stream, likely);
	struct sl_staging *staging;
	const struct sl_route *route;

	if (!device)
		return sl_fail(-EINVAL, "request: no device has this stream");
	if (memory && memory != device)
		return sl_fail(-EINVAL, "request: the memory is of %s, and the stream of %s",
		               memory->name, device->name);
	int rc = device->ops->stream_check(device, r->stream);
	if (!rc && holder)
		return route_of_device_file_on(op, r, memory, device);
	if (!rc)
		rc = route_by_backend(op, memory, r);
	if (rc < 0)
		return rc;
	route = rc ? &sl_route_transfers : memory ? &sl_route_stream : &sl_route_direct;
	rc = sl_context_get_staging(op->ctx, device, &staging);
	return rc ? rc : sl_staged_new(op, staging, route, r->stream);
}

/* Reads rows of an array as a box: so their tiles are whole in the slots. */
static int op_take_rows(struct sluice_op *op)
{
	struct sl_backend *backend = op->file->backend;
	const struct sluice_extent *rows = op->extents;

	if (op->box || op->count != 1 || !rows->length || !op->file->limits.tile)
		return 0;
	struct sl_box *box = calloc(1, sizeof(*box));
	if (!box)
		return sl_fail(-ENOMEM, "no memory");
	if (backend->ops->box_of(backend, rows->offset, rows->length, box))
		op->box = box;
	else
		free(box);
	return 0;
}

static int op_find_route(struct sluice_op *op, const struct sluice_request *r,
                         const struct looked *looked)
{
	struct sl_device *memory = NULL;
	int rc = route_find_memory(r, looked, &memory);

	if (!rc && (memory || sl_wants_stream(r)) &&
	    !atomic_load_explicit(&op->ctx->devices.checked, memory_order_relaxed)) {
		rc = sl_device_check_process();
		atomic_store_explicit(&op->ctx->devices.checked, !rc, memory_order_relaxed);
	}
	if (!rc && memory)
		rc = op_take_rows(op);
	if (rc)
		return rc;
	return sl_wants_stream(r) ? route_on_stream(op, r, memory) : route_awaited(op, r, memory);
}

/* -------------------------------------------------------------------------------- submission */

int sl_op_enter(struct sluice_file *file, struct sluice_op *op, sluice_op **out)
{
	struct sluice_context *ctx = file->ctx;

	if (out)
		atomic_fetch_add(&op->references, 1);
	atomic_fetch_add(&file->in_flight, 1);
	int rc = sl_order_enter(op);
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

/* Submits a request that has been admitted. */
static int submit_admitted(struct sluice_file *file, const struct sluice_request *r,
                           void (*over)(struct sluice_op *), const struct looked *looked,
                           sluice_op **out)
{
	struct sluice_op *op = op_new_for(file, r, !out);
	struct sl_staging *staging;
	int rc = op ? op_copy_extents(op, r) : -ENOMEM;

	if (!rc)
		rc = request_box(file, r, &op->box);
	if (!rc && sl_wants_fan(r))
		rc = sl_fan_new(op, r);
	if (op) {
		op->over = over;
		op->missed = looked->missed;
	}
	/* The library itself submits host memory only: its threads call no driver. */
	if (!rc && !(over && !sl_wants_stream(r)))
		rc = op_find_route(op, r, looked);
	if (!rc && out && r->count == 1)
		sl_help_expect(op, r->extents->length);
	/* As soon as it has entered the operation may be freed, and the file be closed but for this
	 * hold. */
	staging = !rc && op->staged && sl_staging_lacks(op->staged->staging) ? op->staged->staging
	                                                                     : NULL;
	if (staging)
		atomic_fetch_add(&file->in_flight, 1);
	if (!rc)
		rc = op->on_stream ? sl_stream_enter(op, out) : sl_op_enter(file, op, out);
	/* While its first bytes are read. If this fails, an operation that needs more says so. */
	if (staging) {
		sl_staging_pin(staging, SL_HALF_STREAM, 0);
		sl_file_release(file);
	}
	sl_help_submitted(op);
	if (rc) {
		if (op)
			sl_op_unref(op);
		sl_gate_give(&file->ctx->operations, 1);
	}
	return rc;
}

/* Reads a small extent that is in memory before the call returns. It is not admitted, and enters no
 * order, which is right while there is no write. Returns false if it is to be submitted. */
static bool submit_read_at_once(struct sluice_file *file, const struct sluice_request *r,
                                struct looked *looked, sluice_op **out)
{
	struct sl_backend *backend = file->backend;
	const struct sluice_extent *extent = r->extents;
	int64_t moved;

	if (!out || r->kind != SLUICE_READ || r->count != 1 || sl_wants_fan(r) || !extent->length ||
	    (SL_REQUEST_HAS(r, rank) && r->rank) ||
	    extent->length > file->ctx->core.settings.inline_bytes || sl_wants_stream(r) ||
	    !backend->ops->read_now || file->limits.device)
		return false;
	looked->found = file->limits.touches || sl_device_any_known();
	looked->device = looked->found ? sl_device_of_memory(extent->data) : NULL;
	if (looked->device)
		return false;
	uint64_t mark = sl_order_mark(file->object);
	if (!mark)
		return false;
	moved = backend->ops->read_now(backend, extent->data, extent->length, extent->offset);
	looked->missed = moved < 0;
	/* If a write has entered meanwhile, the bytes may be neither old nor new. */
	if (looked->missed || sl_order_mark(file->object) != mark)
		return false;
	return sl_at_once_new(file, moved, r, out);
}

static int submit_request(struct sluice_file *file, const struct sluice_request *r, sluice_op **out)
{
	int full = file->flags & SLUICE_OPEN_NONBLOCK                 ? -EAGAIN
	           : SL_REQUEST_HAS(r, unless_full) && r->unless_full ? -EBUSY
	                                                              : 0;
	struct looked looked = {0};
	int rc = request_check(file, r);

	if (!rc && submit_read_at_once(file, r, &looked, out))
		return 0;
	/* The end of any operation ends the wait, unless `full` is an error. */
	if (!rc && !sl_gate_take(&file->ctx->operations, 1, !full))
		rc = sl_fail(full,
		             "%" PRIu64 " operations are in flight, which is SLUICE_MAX_OPERATIONS",
		             file->ctx->core.settings.max_operations);
	return rc ? rc : submit_admitted(file, r, NULL, &looked, out);
}

int sl_op_submit(struct sluice_file *file, const struct sluice_request *r,
                 void (*over)(struct sluice_op *))
{
	sl_gate_pass(&file->ctx->operations, 1);
	return submit_admitted(file, r, over, &(struct looked){0}, NULL);
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

int sluice_submit(sluice_file *file, const struct sluice_request *r, sluice_op **out)
{
	int rc = file ? sl_context_check(file->ctx) : sl_fail(-EINVAL, "file is NULL");

	if (rc)
		return rc;
	return r ? submit_request(file, r, out) : sl_fail(-EINVAL, "request is NULL");
}

static int submit_extent(sluice_file *file, int kind, const void *data, size_t n, uint64_t offset,
                         bool on, sluice_stream stream, sluice_op **out)
{
	struct sluice_extent extent = {(void *)(uintptr_t)data, n, offset};
	struct sluice_request r = SLUICE_REQUEST_INIT;

	r.kind = kind;
	r.extents = &extent;
	r.count = 1;
	r.on = on;
	r.stream = stream;
	return sluice_submit(file, &r, out);
}

int sluice_read(sluice_file *file, void *dst, size_t n, uint64_t offset, sluice_op **out)
{
	return submit_extent(file, SLUICE_READ, dst, n, offset, false, NULL, out);
}

int sluice_write(sluice_file *file, const void *src, size_t n, uint64_t offset, sluice_op **out)
{
	return submit_extent(file, SLUICE_WRITE, src, n, offset, false, NULL, out);
}

int sluice_read_on(sluice_file *file, void *dst, size_t n, uint64_t offset, sluice_stream stream,
                   sluice_op **out)
{
	return submit_extent(file, SLUICE_READ, dst, n, offset, true, stream, out);
}

int sluice_write_on(sluice_file *file, const void *src, size_t n, uint64_t offset,
                    sluice_stream stream, sluice_op **out)
{
	return submit_extent(file, SLUICE_WRITE, src, n, offset, true, stream, out);
}
