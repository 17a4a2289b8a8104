/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Regions that drivers map: the memory of devices, and the host's where it is registered with one. A device's slab that we
 * make blobs in stays until the server wants it forgotten: if it leases a place there we cannot map it for writing again.
 *
 * The server hears (SL_MSG_DROP) when the last mapping of a region is gone. It hears by the mapper, never
 * by who reads: a reader that waits to send could wait for itself. While SL_MSG_DROP is on its way nobody begins to map that
 * region (mapped.telling), or the server would think that it was dropped after that.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "store/devices.h"

/* ------------------------------------------------------------------------------------- leases */

void sl_far_expect(sluice_store *store, const union sl_message *m)
{
	bool any = m->head.type == SL_MSG_FOUND || m->head.type == SL_MSG_LEASES;

	for (unsigned i = 0; any && sl_devices_of(store) && i < m->head.count; i++) {
		const struct sl_lease *lease = sl_message_lease(m, i);
		struct sl_mapping *mapping;

		if (!lease->make || sl_mapping_find(store, lease->place.region, true, NULL))
			continue;
		mapping = sl_mapping_add(store, lease->place.region, true, SL_EXPECTED);
		/* Without memory a thread that wants to use it is told that it is not there. */
		if (!mapping)
			continue;
		mapping->writable = true;
		mapping->bytes = lease->place.region_bytes;
		mapping->alone = lease->place.capacity == lease->place.region_bytes;
	}
}

void sl_far_cancel(sluice_store *store, uint64_t region)
{
	struct sl_mapping *mapping;

	sl_mutex_lock(&store->mutex);
	mapping = sl_mapping_find(store, region, true, NULL);
	if (mapping && mapping->state == SL_EXPECTED && !mapping->users && mapping->alone) {
		sl_list_remove(&mapping->bucket);
		free(mapping);
	}
	mapping = sl_mapping_find(store, region, false, NULL);
	if (mapping && mapping->own)
		sl_mapping_doom(store, mapping, NULL);
	sl_mutex_unlock(&store->mutex);
}

/* ---------------------------------------------------------------------------------- make, map */

static int make(sluice_store *store, struct sl_mapping *mapping, uint64_t turn)
{
	struct sl_device *device = mapping->post->device;
	size_t whole = device->sharing->granularity;
	union sl_message m;
	void *base;
	int fd, rc;

	if (mapping->bytes % whole)
		return sl_fail(-ENOTSUP, "%s shares memory by %zu bytes, and the store by others",
		               device->name, whole);
	rc = device->sharing->make(device, mapping->bytes, &base, &fd);
	if (rc)
		return sl_fail(rc, "%s: cannot make %zu bytes for the store: %s", device->name,
		               mapping->bytes, sl_error_text(rc));
	mapping->base = base;
	sl_store_step("client: made");
	sl_message_begin(&m, SL_MSG_OFFER, 0, 0);
	m.offer.region = mapping->region;
	rc = sl_tell(store, &m, turn, fd);
	close(fd);
	sl_store_step("client: offered");
	return rc;
}

/* An allocation of a process that has published a part of it, maybe of this one. */
static int borrow(struct sl_mapping *mapping, int fd)
{
	struct sl_device *device = mapping->post->device;
	struct sl_lent_memory lent;
	void *start;
	int rc;

	if (mapping->by)
		return sl_fail(-ENOTSUP,
		               "memory that a process has published can be used by %s only",
		               device->name);
	if (!device->sharing->borrow)
		return sl_fail(-ENOTSUP, "%s cannot open what another process has published",
		               device->name);
	if (pread(fd, &lent, sizeof(lent), 0) != sizeof(lent) || lent.length != mapping->bytes)
		return sl_fail(-EBADMSG, "what a process has published is no memory of %s",
		               device->name);
	rc = device->sharing->borrow(device, &lent, &start);
	/* Another store of this process has published it. */
	if (rc == -EINVAL && sl_device_of_memory(lent.start) == device) {
		mapping->own = true;
		mapping->base = (char *)(uintptr_t)lent.start;
		return 0;
	}
	/* Of another user, or of a process that this one's namespaces do not show. */
	if (rc == -EACCES || rc == -EPERM || rc == -ENOENT || rc == -ESRCH)
		return sl_fail(-ENOTSUP,
		               "%s: what a process of another user, or of another container, has "
		               "published cannot be opened",
		               device->name);
	if (rc)
		return sl_fail(rc, "%s: cannot open what another process has published: %s",
		               device->name, sl_error_text(rc));
	mapping->base = start;
	return 0;
}

/* The host's memory, for a device. */
static int pin(struct sl_mapping *mapping, int fd)
{
	struct sl_device *device = mapping->post->device;
	int rc = sl_mapping_map(mapping, fd);

	if (rc)
		return rc;
	rc = device->ops->register_to_read
	             ? device->ops->register_to_read(device, mapping->base, mapping->bytes)
	             : device->ops->register_memory(device, mapping->base, mapping->bytes);
	if (rc) {
		munmap(mapping->base, mapping->bytes);
		mapping->base = NULL;
		return sl_fail(rc == -ENOMEM ? rc : -ENOTSUP,
		               "%s cannot use a blob in the host's memory: %s", device->name,
		               sl_error_text(rc));
	}
	return 0;
}

int sl_far_bring(sluice_store *store, struct sl_mapping *mapping, uint64_t turn, int64_t deadline)
{
	struct sl_device *device = mapping->far ? mapping->post->device : NULL;
	/* Only looked at by the device itself. */
	struct sl_device *by = mapping->by ? (struct sl_device *)mapping->by : device;
	struct sl_reply reply;
	union sl_message m;
	void *base;
	int rc;

	if (mapping->far && mapping->writable)
		return make(store, mapping, turn);
	rc = sl_region_ask(store, mapping->region, mapping->writable, deadline, &m, &reply);
	if (rc)
		return rc;
	sl_store_step("client: asked for memory");
	mapping->bytes = m.memory.bytes;
	if (m.memory.kind != mapping->kind) {
		rc = sl_fail(-EPROTO, "memory of another kind than the blob's");
	} else if (mapping->kind == SLUICE_BLOB_ON_HOST) {
		rc = mapping->far ? pin(mapping, reply.fd) : sl_mapping_map(mapping, reply.fd);
	} else if (mapping->kind == SLUICE_BLOB_OF_PROCESS) {
		rc = borrow(mapping, reply.fd);
	} else {
		rc = device->sharing->map(device, reply.fd, mapping->bytes, by, &base);
		if (rc)
			rc = sl_fail(rc, "%s: cannot map a blob on %s: %s", by->name, device->name,
			             sl_error_text(rc));
		else
			mapping->base = base;
	}
	close(reply.fd);
	sl_store_step("client: imported");
	return rc;
}

int sl_far_add_own(sluice_store *store, const struct sl_far *far, void *start, uint64_t bytes,
                   struct sl_mapping **out)
{
	struct sl_mapping *mapping;
	int rc = 0;

	sl_mutex_lock(&store->mutex);
	if (store->turn != far->turn) {
		rc = sl_fail(-ESTALE, "the server was replaced");
	} else if (!(mapping = sl_mapping_add(store, far->region, true, SL_MAPPED))) {
		rc = sl_fail(-ENOMEM, "no memory");
	} else {
		mapping->own = true;
		mapping->post = far->post;
		mapping->kind = far->kind;
		mapping->base = start;
		mapping->bytes = bytes;
		mapping->users = 1;
		*out = mapping;
	}
	sl_mutex_unlock(&store->mutex);
	return rc;
}

/* -------------------------------------------------------------------------------------- forget */

void sl_far_forget(sluice_store *store, const union sl_message *m)
{
	for (unsigned i = 0; sl_devices_of(store) && i < m->head.count; i++) {
		uint64_t region = m->ids.items[i].id;
		struct sl_mapping *mapping;
		unsigned left = 0;
		bool any = false;

		for (unsigned j = 0; j < store->stock_count; j++)
			if (store->stock[j].place.region != region)
				store->stock[left++] = store->stock[j];
		store->stock_count = left;
		sl_list_each (link, sl_mapping_bucket(store, region)) {
			mapping = SL_CONTAINER(link, struct sl_mapping, bucket);
			if (!mapping->far || mapping->region != region)
				continue;
			sl_mapping_doom(store, mapping, NULL);
			any = true;
		}
		/* Nothing of it is mapped, and the server waits to hear that. */
		mapping = any ? NULL : sl_mapping_add(store, region, true, SL_MAPPED);
		if (mapping)
			sl_mapping_leave(store, mapping, NULL);
	}
}

void sl_far_adopt(sluice_store *store, bool same)
{
	struct sl_devices *devices = sl_devices_of(store);

	if (!devices)
		return;
	/* The numbers of devices were the other daemon's. */
	for (unsigned i = 0; !same && i < SL_DEVICES_MOST; i++)
		devices->posts[i].number = -1;
	sl_courier_ring(devices);
}

unsigned sl_far_list(sluice_store *store, uint64_t turn, struct sl_id_item *out)
{
	unsigned n = 0;

	for (unsigned i = 0; i < SL_MAPPING_BUCKETS; i++)
		sl_list_each (link, &store->mappings[i]) {
			struct sl_mapping *mapping = SL_CONTAINER(link, struct sl_mapping, bucket);

			if (n == SL_ITEMS_MOST || !mapping->far || mapping->told == turn ||
			    mapping->kind == SLUICE_BLOB_ON_HOST || mapping->state == SL_EXPECTED)
				continue;
			mapping->told = turn;
			out[n++].id = mapping->region;
		}
	return n;
}

/* --------------------------------------------------------------------------------------- unmap */

/* That it cannot be unmapped happens to devices that are gone: then there is nothing to be done. */
void sl_far_unmap(struct sl_mapping *mapping)
{
	struct sl_device *device = mapping->post ? mapping->post->device : NULL;

	if (!mapping->base || mapping->own)
		return;
	if (mapping->kind == SLUICE_BLOB_ON_HOST) {
		/* Memory that the device may still use must stay. */
		if (!device->ops->unregister_memory(device, mapping->base) ||
		    !device->ops->registered(device, mapping->base, mapping->bytes))
			munmap(mapping->base, mapping->bytes);
	} else if (mapping->kind == SLUICE_BLOB_OF_PROCESS) {
		device->sharing->give_back(device, mapping->base);
	} else {
		device->sharing->unmap(device, mapping->base, mapping->bytes);
	}
}

void sl_far_free(sluice_store *store)
{
	struct sl_devices *devices = sl_devices_of(store);
	struct sl_list *link;

	while (devices && (link = sl_list_take(&devices->mapped.leaving))) {
		struct sl_mapping *mapping = SL_CONTAINER(link, struct sl_mapping, idle);

		sl_far_unmap(mapping);
		free(mapping);
	}
}
