/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copies out of collections
 *
 * Gives a device copies from memory that it reads by itself: the host's, which is registered with
 * it, or its own. All are enqueued before the call waits. On the caller's thread.
 */
#include <errno.h>
#include <stdlib.h>
#include <time.h>

#include <sluice/device.h>

#include "collection/collection.h"
#include "device/device.h"

#define POLL_NS 100000 /* between two looks at a stream, so that the processor is free */

/* Returns 0, or -ENOTSUP: the device cannot read the parts by itself. */
static int copy_check_parts(const sluice_collection *c, struct sl_device *device)
{
	for (unsigned i = 0; i < c->table.head.parts; i++)
		if (c->table.ends[i] && c->device[i] != device->index &&
		    (c->device[i] >= 0 ||
		     !device->ops->registered(device, c->data[i], c->table.ends[i])))
			return sl_fail(-ENOTSUP,
			               "the collection is not registered with %s: attach to it "
			               "for this device",
			               device->name);
	return 0;
}

/* Makes the commands, of which *count have bytes, and finds the device of all targets, or NULL. */
static int copy_prepare(const sluice_collection *c, const struct sluice_collection_target *targets,
                        size_t *count, struct sl_command *commands, struct sl_device **device)
{
	size_t made = 0;

	*device = NULL;
	for (size_t i = 0; i < *count; i++) {
		if (targets[i].index >= c->table.head.count)
			return sl_fail(-ENOENT, "the collection has no tensor %zu",
			               targets[i].index);
		const struct sl_table_row *row = &c->table.rows[targets[i].index];
		if (!row->bytes)
			continue;
		struct sl_device *of = targets[i].to ? sl_device_of_memory(targets[i].to) : NULL;
		if (!of || (*device && of != *device))
			return sl_fail(-EINVAL,
			               "tensor '%.256s': its target is not on a device, or not on "
			               "that of the others",
			               c->table.text + row->name);
		*device = of;
		commands[made++] = (struct sl_command){
			SL_COPY,
			.copy = {targets[i].to, c->data[row->part] + row->offset, row->bytes}};
	}
	*count = made;
	return *device ? copy_check_parts(c, *device) : 0;
}

static int copy_enqueue(struct sl_device *device, sluice_stream stream,
                        const struct sl_command *commands, size_t count)
{
	size_t taken;
	int rc = device->ops->enqueue(device, stream, commands, count, &taken);

	return rc ? sl_fail(rc, "%s did not take a copy: %s", device->name, sl_error_text(rc)) : 0;
}

/* Notes an event behind the copies, which a release waits for. */
static int copy_note(sluice_collection *c, int device, sluice_stream stream)
{
	sluice_event *more, event = NULL;
	int rc = sluice_event_new(device, &event);

	if (!rc)
		rc = sluice_event_record(event, stream);
	sl_mutex_lock(&c->mutex);
	for (unsigned i = 0; i < c->copy_count; i++)
		if (sluice_event_query(c->copies[i])) {
			sluice_event_free(c->copies[i]);
			c->copies[i--] = c->copies[--c->copy_count];
		}
	more = rc ? NULL : realloc(c->copies, (c->copy_count + 1) * sizeof(*more));
	if (more) {
		c->copies = more;
		c->copies[c->copy_count++] = event;
	}
	sl_mutex_unlock(&c->mutex);
	if (more)
		return 0;
	sluice_event_free(event);
	return sluice_stream_synchronize(device, stream);
}

static int copy_on(sluice_collection *c, struct sl_device *device, sluice_stream stream,
                   const struct sl_command *commands, size_t count)
{
	int rc = device->ops->stream_check(device, stream), noted;

	if (rc)
		return rc;
	rc = copy_enqueue(device, stream, commands, count);
	/* After an error some are under way. */
	noted = copy_note(c, device->index, stream);
	return rc ? rc : noted;
}

static int copy_awaited(struct sl_device *device, const struct sl_command *commands, size_t count)
{
	const struct timespec pause = {.tv_nsec = POLL_NS};
	sluice_stream stream;
	int rc = sluice_stream_new(device->index, &stream), end;

	if (rc)
		return rc;
	rc = copy_enqueue(device, stream, commands, count);
	while (!(end = sluice_stream_query(device->index, stream)))
		nanosleep(&pause, NULL);
	/* The targets are the caller's again. Of a lost device nothing can be awaited. */
	while (end < 0 && device->ops->stream_synchronize(device, stream) &&
	       !device->ops->status(device))
		;
	sluice_stream_free(stream);
	return rc ? rc : SL_MIN(end, 0);
}

/* --------------------------------------------------------------------------------- public calls */

int sluice_collection_copy(sluice_collection *c, const struct sluice_collection_target *targets,
                           size_t count, int on, sluice_stream stream)
{
	int rc = sl_collection_check(targets || !count ? c : NULL, "sluice_collection_copy");
	struct sl_device *device;

	if (rc)
		return rc;
	struct sl_command *commands = calloc(count + 1, sizeof(*commands));
	if (!commands)
		return sl_fail(-ENOMEM, "no memory for %zu tensors", count);
	rc = copy_prepare(c, targets, &count, commands, &device);
	if (!rc && device)
		rc = on ? copy_on(c, device, stream, commands, count)
		        : copy_awaited(device, commands, count);
	free(commands);
	return rc;
}

int sluice_collection_registered(const sluice_collection *c, int device, uint64_t *bytes,
                                 int64_t *map_ns)
{
	struct sl_device *found = device < 0 ? NULL : sl_device_find((unsigned)device);
	int rc = sl_collection_check(bytes && map_ns ? c : NULL, "sluice_collection_registered");

	if (!rc)
		rc = found ? copy_check_parts(c, found)
		           : sl_fail(-ENODEV, "there is no device %d", device);
	if (rc)
		return rc;
	*bytes = 0;
	for (unsigned i = 0; i < c->table.head.parts; i++)
		*bytes += c->device[i] < 0 ? c->table.ends[i] : 0;
	*map_ns = c->map_ns;
	return 0;
}
