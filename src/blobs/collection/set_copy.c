/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copies out of collections
 *
 * Gives a device copies from memory that it reads by itself: the host's, which is registered with
 * it, or a device's. All are enqueued before the call waits. On the caller's thread.
 */
#include <errno.h>
#include <stdlib.h>
#include <time.h>

#include <sluice/device.h>

#include "collection/collection.h"
#include "device/device.h"

#define POLL_NS 100000 /* between two looks at a stream, so that the processor is free */

/* The copies of a call, and where they go. */
struct set_copies {
	const sluice_collection *from;
	size_t count;
	struct sl_command *commands; /* of no length: to be left out */
	int *devices;                /* -1: to memory of the host */
};

static int copies_add(struct set_copies *copies, const struct sluice_collection_target *target)
{
	const struct sl_table *table = &copies->from->table;
	const struct sl_table_row *row;

	if (target->index >= table->head.count)
		return sl_fail(-ENOENT, "the collection has no tensor %zu", target->index);
	row = &table->rows[target->index];
	if (row->bytes && !target->to)
		return sl_fail(-EINVAL, "tensor '%.256s': its target is NULL",
		               table->text + row->name);
	copies->commands[copies->count] = (struct sl_command){
		SL_COPY,
		.copy = {target->to, copies->from->data[row->part] + row->offset, row->bytes}};
	copies->devices[copies->count++] = row->bytes ? sluice_device_of(target->to) : -1;
	return 0;
}

/* Returns 0, or -ENOTSUP: the device cannot read the parts by itself. */
static int copies_check_parts(const sluice_collection *c, struct sl_device *device)
{
	for (unsigned i = 0; i < sluice_blob_parts(c->owner); i++)
		if (c->device[i] < 0 && c->table.ends[i] &&
		    !device->ops->registered(device, c->data[i], c->table.ends[i]))
			return sl_fail(-ENOTSUP,
			               "the collection is not registered with %s: attach to it "
			               "for this device",
			               device->name);
	return 0;
}

/* Gives a stream the copies to its device, as many at a time as follow each other. */
static int copies_enqueue(const struct set_copies *copies, struct sl_device *device,
                          sluice_stream stream)
{
	int rc = copies_check_parts(copies->from, device);

	for (size_t i = 0, n; !rc && i < copies->count; i += n) {
		const struct sl_command *first = &copies->commands[i];
		int source;
		size_t taken;

		n = 1;
		if (copies->devices[i] != device->index || !first->copy.length)
			continue;
		source = sluice_device_of(first->copy.from);
		if (source >= 0 && source != device->index) {
			sl_device_reach(device->index, source);
			rc = sluice_copy_on(first->copy.to, first->copy.from, first->copy.length,
			                    stream);
			continue;
		}
		while (i + n < copies->count && n < SL_COPIES_JOINED &&
		       copies->devices[i + n] == device->index && first[n].copy.length &&
		       sluice_device_of(first[n].copy.from) == source)
			n++;
		rc = device->ops->enqueue(device, stream, first, n, &taken);
		if (rc)
			rc = sl_fail(rc, "%s did not take a copy: %s", device->name,
			             sl_error_text(rc));
	}
	return rc;
}

/* ---------------------------------------------------------------------------- in stream order */

/* Notes an event behind the copies, which a release waits for. */
static int copies_note(sluice_collection *c, int device, sluice_stream stream)
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

static int copies_on(const struct set_copies *copies, sluice_collection *c, sluice_stream stream)
{
	struct sl_device *device = NULL;
	int rc, noted;

	for (size_t i = 0; i < copies->count; i++) {
		if (!copies->commands[i].copy.length)
			continue;
		if (copies->devices[i] < 0 || (device && copies->devices[i] != device->index))
			return sl_fail(-EINVAL, "in stream order all targets are of one device");
		device = sl_device_find((unsigned)copies->devices[i]);
	}
	rc = device ? device->ops->stream_check(device, stream) : 0;
	if (!device || rc)
		return rc;
	rc = copies_enqueue(copies, device, stream);
	/* After an error some are under way. */
	noted = copies_note(c, device->index, stream);
	return rc ? rc : noted;
}

/* ------------------------------------------------------------------------------------- awaited */

static int copies_wait(int device, sluice_stream stream)
{
	const struct timespec pause = {.tv_nsec = POLL_NS};
	int rc;

	while (!(rc = sluice_stream_query(device, stream)))
		nanosleep(&pause, NULL);
	return rc < 0 ? rc : 0;
}

static int copies_awaited(const struct set_copies *copies)
{
	sluice_stream streams[SL_DEVICES_MOST] = {0};
	int rc = 0;

	for (size_t i = 0; !rc && i < copies->count; i++) {
		const struct sl_command *command = &copies->commands[i];
		int device = copies->devices[i];

		if (device < 0 && command->copy.length)
			rc = sluice_copy(command->copy.to, command->copy.from,
			                 command->copy.length);
		if (device < 0 || streams[device])
			continue;
		rc = sluice_stream_new(device, &streams[device]);
		if (!rc)
			rc = copies_enqueue(copies, sl_device_find((unsigned)device),
			                    streams[device]);
	}
	for (int i = 0; i < SL_DEVICES_MOST; i++) {
		int end = streams[i] ? copies_wait(i, streams[i]) : 0;

		sluice_stream_free(streams[i]);
		rc = rc ? rc : end;
	}
	return rc;
}

/* --------------------------------------------------------------------------------- public calls */

int sluice_collection_copy(sluice_collection *c, const struct sluice_collection_target *targets,
                           size_t count, int on, sluice_stream stream)
{
	struct set_copies copies = {.from = c};
	int rc = sl_collection_check(targets || !count ? c : NULL, "sluice_collection_copy");

	if (rc)
		return rc;
	copies.commands = calloc(count + 1, sizeof(*copies.commands));
	copies.devices = calloc(count + 1, sizeof(*copies.devices));
	if (!copies.commands || !copies.devices)
		rc = sl_fail(-ENOMEM, "no memory for %zu tensors", count);
	for (size_t i = 0; !rc && i < count; i++)
		rc = copies_add(&copies, &targets[i]);
	if (!rc)
		rc = on ? copies_on(&copies, c, stream) : copies_awaited(&copies);
	free(copies.commands);
	free(copies.devices);
	return rc;
}

int sluice_collection_registered(const sluice_collection *c, int device, uint64_t *bytes,
                                 int64_t *map_ns)
{
	struct sl_device *found = device < 0 ? NULL : sl_device_find((unsigned)device);
	int rc = sl_collection_check(bytes && map_ns ? c : NULL, "sluice_collection_registered");

	if (!rc && !found)
		rc = sl_fail(-ENODEV, "there is no device %d", device);
	if (!rc)
		rc = copies_check_parts(c, found);
	if (rc)
		return rc;
	*bytes = 0;
	for (unsigned i = 0; i < sluice_blob_parts(c->owner); i++)
		*bytes += c->device[i] < 0 ? c->table.ends[i] : 0;
	*map_ns = c->map_ns;
	return 0;
}
