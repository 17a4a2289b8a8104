/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Mappings that drivers make
 *
 * Memory of devices, and host memory that is registered with a device. A device's region in which
 * this client makes blobs stays mapped until the server sends SL_MSG_FORGET: a region cannot be
 * mapped for writing twice.
 *
 * The server is told (SL_MSG_DROP) when the last mapping of a region is gone. The unmap thread
 * tells it, never a thread that reads, because a reader that waits to send could wait for itself.
 * Until SL_MSG_DROP has been sent (unmap.reporting) no thread may map that region, or the server
 * would see the two in the wrong order.
 *
 * The thread of the public call makes and maps; the reading thread notes and forgets regions; the
 * unmap thread unmaps.
 */
#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "store/device/store_devices.h"

/* ------------------------------------------------------------------------------------- leases */

/*
 * Notes the regions in a reply that this client is to make: the first thread that needs such a
 * region makes it. No later reply with a lease in the same region reaches a thread before that.
 */
static void mappings_expect_locked(sluice_store *store, const union sl_message *m)
	SL_REQUIRES(&store->mutex)
{
	for (unsigned i = 0; i < m->head.count; i++) {
		const struct sl_lease *lease = sl_message_lease(m, i);

		if (!lease->make || sl_mapping_find_locked(store, lease->range.region, true, NULL))
			continue;
		struct sl_mapping *mapping = sl_mapping_add_locked(store, lease->range.region, true,
		                                                   SL_MAPPING_EXPECTED);
		/* Without memory, the thread that needs the region finds no mapping and fails. */
		if (!mapping)
			continue;
		mapping->writable = true;
		mapping->bytes = lease->range.region_bytes;
		mapping->alone = lease->range.capacity == lease->range.region_bytes;
	}
}

static void mappings_forget_named_locked(sluice_store *store, const union sl_message *m)
	SL_REQUIRES(&store->mutex)
{
	for (unsigned i = 0; i < m->head.count; i++) {
		uint64_t region = m->ids.items[i].id;
		struct sl_mapping *added;
		unsigned left = 0;
		bool any = false;

		for (unsigned j = 0; j < store->lease_cache_count; j++)
			if (store->lease_cache[j].range.region != region)
				store->lease_cache[left++] = store->lease_cache[j];
		store->lease_cache_count = left;
		sl_list_each_of (mapping, sl_mapping_bucket(store, region), struct sl_mapping,
		                 bucket)
			if (mapping->by_driver && mapping->region == region) {
				sl_mapping_doom_locked(store, mapping, NULL);
				any = true;
			}
		/* Nothing of the region is mapped, and the server waits to be told. */
		added = any ? NULL : sl_mapping_add_locked(store, region, true, SL_MAPPING_READY);
		if (added)
			sl_mapping_leave_locked(store, added, NULL);
	}
}

void sl_mappings_heard_locked(sluice_store *store, const union sl_message *m)
{
	uint32_t type = m->head.type;

	if (!sl_devices_of(store))
		return;
	if (type == SL_MSG_FOUND || type == SL_MSG_LEASES)
		mappings_expect_locked(store, m);
	else if (type == SL_MSG_FORGET)
		mappings_forget_named_locked(store, m);
}

unsigned sl_mappings_unreported_locked(sluice_store *store, uint64_t epoch, struct sl_id_item *out)
{
	unsigned n = 0;

	for (unsigned i = 0; i < SL_MAPPING_BUCKETS; i++)
		sl_list_each_of (mapping, &store->mappings[i], struct sl_mapping, bucket) {
			if (n == SL_ITEMS_MOST || !mapping->by_driver ||
			    mapping->reported_epoch == epoch ||
			    mapping->kind == SLUICE_BLOB_ON_HOST ||
			    mapping->state == SL_MAPPING_EXPECTED)
				continue;
			mapping->reported_epoch = epoch;
			out[n++].id = mapping->region;
		}
	return n;
}

void sl_mapping_cancel(sluice_store *store, uint64_t region)
{
	sl_mutex_lock(&store->mutex);
	struct sl_mapping *mapping = sl_mapping_find_locked(store, region, true, NULL);
	if (mapping && mapping->state == SL_MAPPING_EXPECTED && !mapping->users && mapping->alone) {
		sl_list_remove(&mapping->bucket);
		free(mapping);
	}
	mapping = sl_mapping_find_locked(store, region, false, NULL);
	if (mapping && mapping->published)
		sl_mapping_doom_locked(store, mapping, NULL);
	sl_mutex_unlock(&store->mutex);
}

/* ---------------------------------------------------------------------------------- make, map */

int sl_mapping_make(sluice_store *store, struct sl_mapping *mapping, uint64_t epoch)
{
	struct sl_device *device = mapping->sdev->device;
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
	rc = sl_tell(store, &m, epoch, fd);
	close(fd);
	sl_store_step("client: offered");
	return rc;
}

/* Opens an allocation that a process has published a part of, maybe this process. */
static int mapping_borrow(struct sl_mapping *mapping, int fd)
{
	struct sl_device *device = mapping->sdev->device;
	struct sl_lent_memory lent;
	void *start;

	if (mapping->for_device)
		return sl_fail(-ENOTSUP,
		               "memory that a process has published can be used by %s only",
		               device->name);
	if (!device->sharing->borrow)
		return sl_fail(-ENOTSUP, "%s cannot open what another process has published",
		               device->name);
	if (pread(fd, &lent, sizeof(lent), 0) != sizeof(lent) || lent.length != mapping->bytes)
		return sl_fail(-EBADMSG, "what a process has published is no memory of %s",
		               device->name);
	int rc = device->sharing->borrow(device, &lent, &start);
	/* Another store of this process has published it. */
	if (rc == -EINVAL && sl_device_of_memory(lent.start) == device) {
		mapping->published = true;
		mapping->base = (char *)(uintptr_t)lent.start;
		return 0;
	}
	/* It belongs to another user, or to a process that our namespaces do not show. */
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

/* Maps host memory and registers it with a device. */
static int mapping_pin(struct sl_mapping *mapping, int fd)
{
	struct sl_device *device = mapping->sdev->device;
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

int sl_mapping_map_by_driver(struct sl_mapping *mapping, int fd)
{
	struct sl_device *device = mapping->sdev->device;
	/* Not const because the driver's function is not; the device itself does not change. */
	struct sl_device *for_device =
		mapping->for_device ? (struct sl_device *)mapping->for_device : device;
	const struct sluice_addresses *at = mapping->at;
	void *base;

	if (at && (mapping->kind != SLUICE_BLOB_ON_DEVICE || for_device != device))
		return sl_fail(-EINVAL, "the blob is not memory that %s maps", device->name);
	if (mapping->kind == SLUICE_BLOB_ON_HOST)
		return mapping_pin(mapping, fd);
	if (mapping->kind == SLUICE_BLOB_OF_PROCESS)
		return mapping_borrow(mapping, fd);
	if (at && (at->device != device->index || at->bytes != mapping->bytes))
		return sl_fail(
			-EINVAL,
			"the addresses are %zu bytes of device %d, and the blob has %zu of %s",
			at->bytes, at->device, mapping->bytes, device->name);
	int rc = device->sharing->map(device, fd, mapping->bytes, for_device, at ? at->start : NULL,
	                              &base);
	if (rc)
		return sl_fail(rc, "%s: cannot map a blob on %s: %s", for_device->name,
		               device->name, sl_error_text(rc));
	mapping->base = base;
	return 0;
}

int sl_mapping_add_published(sluice_store *store, const struct sl_map_request *r, void *start,
                             uint64_t bytes, struct sl_mapping **out)
{
	struct sl_mapping *mapping;
	int rc = 0;

	sl_mutex_lock(&store->mutex);
	if (store->epoch != r->epoch) {
		rc = sl_fail(-ESTALE, "the server was replaced");
	} else if (!(mapping = sl_mapping_add_locked(store, r->region, true, SL_MAPPING_READY))) {
		rc = sl_fail(-ENOMEM, "no memory");
	} else {
		mapping->published = true;
		mapping->sdev = r->sdev;
		mapping->kind = r->kind;
		mapping->base = start;
		mapping->bytes = bytes;
		mapping->users = 1;
		*out = mapping;
	}
	sl_mutex_unlock(&store->mutex);
	return rc;
}

/* -------------------------------------------------------------------------------------- unmap */

/* Unmapping fails only if the device is gone, and then nothing can be done. */
void sl_mapping_unmap(struct sl_mapping *mapping)
{
	struct sl_device *device = mapping->sdev ? mapping->sdev->device : NULL;

	if (!mapping->base || mapping->published)
		return;
	if (mapping->kind == SLUICE_BLOB_ON_HOST) {
		/* The device may still access the memory, so it must stay. */
		if (!device->ops->unregister_memory(device, mapping->base) ||
		    !device->ops->registered(device, mapping->base, mapping->bytes))
			munmap(mapping->base, mapping->bytes);
	} else if (mapping->kind == SLUICE_BLOB_OF_PROCESS) {
		device->sharing->give_back(device, mapping->base);
	} else {
		device->sharing->unmap(device, mapping->base, mapping->bytes);
	}
}

int sl_mapping_vacate(sluice_store *store, struct sl_mapping *mapping, struct sluice_addresses *out)
{
	struct sl_device *device = mapping->sdev ? mapping->sdev->device : NULL;
	int rc = 0;

	sl_mutex_lock(&store->mutex);
	if (!mapping->by_driver || mapping->kind != SLUICE_BLOB_ON_DEVICE || mapping->writable ||
	    mapping->for_device)
		rc = sl_fail(-ENOTSUP, "only addresses of a device's own memory, mapped for "
		                       "reading, are kept");
	else if (mapping->users != 1)
		rc = sl_fail(-EBUSY, "another handle in this process has the same memory on %s",
		             device->name);
	else
		mapping->doomed = true;
	sl_mutex_unlock(&store->mutex);
	if (rc)
		return rc;
	rc = device->sharing->vacate(device, mapping->base, mapping->bytes);
	if (rc)
		return sl_fail(rc, "%s: cannot unmap a blob: %s", device->name, sl_error_text(rc));
	*out = (struct sluice_addresses){device->index, mapping->base, mapping->bytes};
	sl_mutex_lock(&store->mutex);
	/* For the unmap thread, which tells the server. */
	mapping->base = NULL;
	mapping->users = 0;
	sl_mapping_leave_locked(store, mapping, NULL);
	sl_mutex_unlock(&store->mutex);
	return 0;
}

void sl_mappings_free_leaving(struct sl_devices *devices)
{
	sl_list_each_of (mapping, &devices->unmap.leaving, struct sl_mapping, idle) {
		sl_mapping_unmap(mapping);
		free(mapping);
	}
}
