/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Route
 *
 * Chooses how the bytes of a request get to their memory: straight, by the backend, or by a route
 * of staged/. The memory, the stream and the file decide. Runs on the thread that submits, and may
 * call the driver.
 */
#include <errno.h>

#include "io/staged/route.h"

/* Finds the device that has all memory of the request; NULL: the host. */
static int route_find_memory(const struct sluice_request *r, struct sl_device **out)
{
	struct sl_device *device = NULL;
	bool first = true;

	for (size_t i = 0; i < r->count; i++) {
		struct sl_device *found;

		if (!r->extents[i].length)
			continue;
		found = sl_device_of_memory(r->extents[i].data);
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

/*
 * Asks whether the backend moves the bytes to and from the device's memory itself, as
 * sl_backend_ops.takes(). Never on a default stream, because its number means a stream of each
 * context or thread.
 */
static int route_by_backend(struct sluice_op *op, struct sl_device *memory,
                            const struct sluice_request *r)
{
	struct sl_backend *backend = op->file->backend;
	int rc;

	if (!memory || !backend->ops->takes)
		return 0;
	if (sl_wants_stream(r) &&
	    (!op->ctx->core.settings.cufile_streams || (uintptr_t)r->stream <= SL_COMMON_STREAMS ||
	     !sl_transfers_fit(op)))
		return 0;
	rc = backend->ops->takes(backend, memory, op->extents, op->count, op->kind == SL_WRITE,
	                         sl_wants_stream(r));
	if (rc <= 0)
		return rc;
	sl_context_expect_exit(op->ctx, SL_EXIT_BACKEND);
	op->device = memory;
	op->order.blocks_streams = true;
	return rc;
}

/*
 * Checks that a stream of the device reaches the memory: host memory has to be registered with it.
 */
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

/* The file is memory of a device, so the backend has the copiers of devices move the bytes. */
static int route_of_device_file(struct sluice_op *op, struct sl_device *memory)
{
	struct sl_staging *staging;
	int rc = sl_context_get_staging(op->ctx, op->file->limits.device, &staging);

	op->device = memory;
	return rc || !memory ? rc : sl_context_get_staging(op->ctx, memory, &staging);
}

/* The file is memory of a device, and in stream order the stream is given the copies. */
static int route_of_device_file_on(struct sluice_op *op, const struct sluice_request *r,
                                   struct sl_device *memory, struct sl_device *device)
{
	struct sl_device *holder = op->file->limits.device;
	struct sl_staging *staging;
	int rc;

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
	rc = memory ? 0 : route_check_registered(op, device);
	if (!rc)
		rc = sl_context_get_staging(op->ctx, holder, &staging);
	op->device = holder;
	return rc ? rc : sl_staged_new(op, staging, &sl_route_transfers, r->stream);
}

static int route_awaited(struct sluice_op *op, const struct sluice_request *r,
                         struct sl_device *memory)
{
	struct sl_staging *staging;
	int rc;

	if (op->file->limits.device)
		return route_of_device_file(op, memory);
	rc = route_by_backend(op, memory, r);
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
	int rc;

	if (!device)
		return sl_fail(-EINVAL, "request: no device has this stream");
	if (memory && memory != device)
		return sl_fail(-EINVAL, "request: the memory is of %s, and the stream of %s",
		               memory->name, device->name);
	rc = device->ops->stream_check(device, r->stream);
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

int sl_op_find_route(struct sluice_op *op, const struct sluice_request *r)
{
	struct sl_device *memory = NULL;
	int rc = route_find_memory(r, &memory);

	if (rc)
		return rc;
	return sl_wants_stream(r) ? route_on_stream(op, r, memory) : route_awaited(op, r, memory);
}
