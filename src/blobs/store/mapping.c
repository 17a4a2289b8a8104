/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Mappings of regions
 *
 * The table of regions that are mapped in this process: each at most once for writing, and at most
 * once for reading by the processor and by each device. Any thread; store->mutex guards the table,
 * and is not held while the kernel or a driver maps.
 *
 *   EXPECTED     the server has leased a range of the region, and this client is to make it; or the
 *                thread that has added the mapping has not begun
 *   IN_PROGRESS  a thread asks the server, or is in the kernel or the driver; others wait for it
 *   READY        mapped
 *
 * A mapping without users is kept in a list (store->idle, sdev->idle) up to a limit, except if it
 * is doomed, or if it is a region for a single blob, either of a device, mapped for writing, or of
 * the host, registered with a device. The thread that drops the last use unmaps host memory;
 * mappings by drivers go to the unmap thread.
 */
#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "store/device/store_devices.h"

/* ---------------------------------------------------------------------------------- the table */

struct sl_mapping *sl_mapping_find_locked(sluice_store *store, uint64_t region, bool writable,
                                          const struct sl_device *for_device)
{
	sl_list_each_of (mapping, sl_mapping_bucket(store, region), struct sl_mapping, bucket)
		if (!mapping->doomed && mapping->region == region &&
		    mapping->writable == writable && mapping->for_device == for_device)
			return mapping;
	return NULL;
}

struct sl_mapping *sl_mapping_add_locked(sluice_store *store, uint64_t region, bool by_driver,
                                         enum sl_mapping_state state)
{
	struct sl_mapping *mapping = calloc(1, sizeof(*mapping));

	if (!mapping)
		return NULL;
	mapping->by_driver = by_driver;
	mapping->region = region;
	mapping->state = state;
	mapping->kind = SLUICE_BLOB_ON_DEVICE;
	sl_list_append(sl_mapping_bucket(store, region), &mapping->bucket);
	return mapping;
}

void sl_mapping_leave_locked(sluice_store *store, struct sl_mapping *mapping, struct sl_list *gone)
{
	struct sl_devices *devices = sl_devices_of(store);

	mapping->doomed = true;
	if (mapping->by_driver) {
		sl_list_append(&devices->unmap.leaving, &mapping->idle);
		pthread_cond_signal(&devices->unmap.work);
		return;
	}
	if (sl_list_linked(&mapping->bucket))
		sl_list_remove(&mapping->bucket);
	sl_list_append(gone, &mapping->idle);
}

static size_t *mapping_idle_bytes(sluice_store *store, const struct sl_mapping *mapping)
{
	return mapping->by_driver ? &mapping->sdev->idle_bytes : &store->idle_bytes;
}

static void mapping_leave_idle_locked(sluice_store *store, struct sl_mapping *mapping)
	SL_REQUIRES(&store->mutex)
{
	if (!sl_list_linked(&mapping->idle))
		return;
	sl_list_remove(&mapping->idle);
	*mapping_idle_bytes(store, mapping) -= mapping->bytes;
}

void sl_mapping_doom_locked(sluice_store *store, struct sl_mapping *mapping, struct sl_list *gone)
{
	if (mapping->doomed)
		return;
	mapping->doomed = true;
	if (mapping->users)
		return;
	mapping_leave_idle_locked(store, mapping);
	sl_mapping_leave_locked(store, mapping, gone);
}

/*
 * Unmaps and frees a list of mappings. Tells the server of that epoch (0: none) of those for
 * writing, because it may then lease their memory to other clients.
 */
static void mappings_unmap(sluice_store *store, const struct sl_list *gone, uint64_t epoch)
{
	sl_list_each_of (mapping, gone, struct sl_mapping, idle) {
		if (mapping->base)
			munmap(mapping->base, mapping->bytes);
		if (mapping->base && mapping->writable && epoch)
			sl_tell_id(store, SL_MSG_DROP, mapping->region, epoch);
		free(mapping);
	}
}

/* ---------------------------------------------------------------------------------------- map */

/* Maps large memory at a huge page, or no huge page could be mapped as such. */
static void *mapping_map_aligned(int fd, size_t bytes, int protection)
{
	size_t whole = sl_whole_pages(bytes), room = whole + SL_HUGE_PAGE, before;

	if (bytes < SL_HUGE_PAGE)
		return mmap(NULL, bytes, protection, MAP_SHARED, fd, 0);
	char *at = mmap(NULL, room, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (at == MAP_FAILED)
		return MAP_FAILED;
	before = -(uintptr_t)at % SL_HUGE_PAGE;
	if (mmap(at + before, bytes, protection, MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED) {
		int error = errno;

		munmap(at, room);
		errno = error;
		return MAP_FAILED;
	}
	if (before)
		munmap(at, before);
	if (before < SL_HUGE_PAGE)
		munmap(at + before + whole, SL_HUGE_PAGE - before);
	return at + before;
}

int sl_mapping_map(struct sl_mapping *mapping, int fd)
{
	struct stat st;
	void *base = mapping_map_aligned(fd, mapping->bytes,
	                                 mapping->writable ? PROT_READ | PROT_WRITE : PROT_READ);

	if (base == MAP_FAILED)
		return sl_fail(-errno, "cannot map %zu bytes: %s", mapping->bytes,
		               sl_error_text(-errno));
	/* A child that outlives this process must not write to the memory of others. */
	if (mapping->writable)
		madvise(base, mapping->bytes, MADV_DONTFORK);
	mapping->fresh = mapping->writable && mapping->bytes >= SL_HUGE_PAGE && !fstat(fd, &st) &&
	                 !st.st_blocks;
	mapping->base = base;
	return 0;
}

int sl_mapping_ask(sluice_store *store, const struct sl_mapping *mapping, bool writable,
                   int64_t deadline, size_t *bytes, struct sl_reply *reply)
{
	union sl_message m;
	int rc;

	/* -EAGAIN: too many requests wait; meanwhile this thread has read replies to some. */
	do {
		sl_message_begin(&m, SL_MSG_REGION, 0, 0);
		m.region.region = mapping->region;
		m.region.writable = writable;
		rc = sl_call(store, &m, SL_MSG_MEMORY, deadline, reply);
	} while (rc == -EAGAIN);
	if (rc)
		return rc;
	sl_store_step("client: asked for memory");
	*bytes = m.memory.bytes;
	if (m.memory.kind == mapping->kind)
		return 0;
	close(reply->fd);
	return sl_fail(-EPROTO, "memory of another kind than the blob's");
}

/* Makes or maps the memory of a mapping that is IN_PROGRESS. No lock held. */
static int mapping_establish(sluice_store *store, struct sl_mapping *mapping, uint64_t epoch,
                             int64_t deadline)
{
	struct sl_reply reply;
	int rc;

	if (mapping->by_driver && mapping->writable)
		return mapping->sdev->make(store, mapping, epoch);
	rc = sl_mapping_ask(store, mapping, mapping->writable, deadline, &mapping->bytes, &reply);
	if (rc)
		return rc;
	rc = mapping->by_driver ? mapping->sdev->map(mapping, reply.fd)
	                        : sl_mapping_map(mapping, reply.fd);
	close(reply.fd);
	sl_store_step("client: imported");
	return rc;
}

/* Claims a mapping that is READY, or IN_PROGRESS and then the caller's to establish. */
static int mapping_claim_locked(sluice_store *store, const struct sl_map_request *r,
                                int64_t deadline, struct sl_mapping **out)
	SL_REQUIRES(&store->mutex)
{
	struct sl_devices *devices = sl_devices_of(store);
	bool limited = deadline != SL_FOREVER;
	/* The server may have come after the deadline. */
	int64_t until = limited ? SL_MAX(deadline, sl_now()) + 2 * SL_GRACE_NS : SL_FOREVER;
	int64_t last =
		limited ? until + store->patience_ms * INT64_C(1000000) + SL_HELLO_NS : until;
	struct sl_mapping *mapping;
	bool current;

	for (;;) {
		mapping = r->at ? NULL
		                : sl_mapping_find_locked(store, r->region, r->writable,
		                                         r->for_device);
		/* The daemon numbers regions; but a lease of memory is valid with one server. */
		current = r->writable ? store->epoch == r->epoch
		                      : sl_same_daemon(store->epoch, r->epoch);
		if (!current || (!mapping && r->writable && r->sdev))
			return sl_fail(-ESTALE, "there is no such memory any more");
		if (mapping && mapping->state == SL_MAPPING_READY) {
			if (!mapping->users++)
				mapping_leave_idle_locked(store, mapping);
			break;
		}
		if (!mapping && (!r->sdev || devices->unmap.reporting != r->region)) {
			mapping = sl_mapping_add_locked(store, r->region, r->sdev,
			                                SL_MAPPING_EXPECTED);
			if (!mapping)
				return sl_fail(-ENOMEM, "no memory");
		}
		if (mapping && mapping->state == SL_MAPPING_EXPECTED) {
			mapping->writable = r->writable;
			mapping->sdev = r->sdev;
			mapping->for_device = r->for_device;
			mapping->kind = r->kind;
			mapping->at = r->at;
			mapping->alone |= r->part;
			mapping->state = SL_MAPPING_IN_PROGRESS;
			mapping->users = 1;
			break;
		}
		/*
		 * Ended by the thread that maps the region or has sent SL_MSG_DROP for it, or by
		 * the deadline; it is not late while it connects.
		 */
		if (!sl_cond_wait(&store->mapped, &store->mutex, until))
			continue;
		if (!store->connecting || until == last)
			return sl_call_late();
		until = SL_MIN(sl_now() + 2 * SL_GRACE_NS, last);
	}
	*out = mapping;
	return 0;
}

int sl_mapping_acquire(sluice_store *store, const struct sl_map_request *r, int64_t deadline,
                       struct sl_mapping **out)
{
	struct sl_mapping *mapping = NULL;
	struct sl_list gone;

	sl_list_init(&gone);
	sl_mutex_lock(&store->mutex);
	int rc = mapping_claim_locked(store, r, deadline, &mapping);
	sl_mutex_unlock(&store->mutex);
	*out = mapping;
	if (rc || mapping->state == SL_MAPPING_READY)
		return rc;
	rc = mapping_establish(store, mapping, r->epoch, deadline);
	sl_mutex_lock(&store->mutex);
	/* For a server that is gone, or for another region in the new daemon. */
	if (!rc && (mapping->stale || (r->writable && mapping->doomed)))
		rc = sl_fail(-ESTALE, "there is no such memory any more");
	if (rc && r->at && mapping->base) {
		sl_mutex_unlock(&store->mutex);
		r->sdev->device->sharing->vacate(r->sdev->device, mapping->base, mapping->bytes);
		mapping->base = NULL;
		sl_mutex_lock(&store->mutex);
	}
	mapping->at = NULL;
	mapping->state = SL_MAPPING_READY;
	if (rc) {
		*out = NULL;
		mapping->users = 0;
		/* Otherwise there was no memory to make it of; a later try may succeed. */
		if (rc == -ESTALE || !r->writable || !r->sdev || mapping->doomed)
			sl_mapping_leave_locked(store, mapping, &gone);
		else
			mapping->state = SL_MAPPING_EXPECTED;
	}
	pthread_cond_broadcast(&store->mapped);
	sl_mutex_unlock(&store->mutex);
	mappings_unmap(store, &gone, 0);
	return rc;
}

/* ------------------------------------------------------------------------------------ release */

/* Keeps a mapping for the next get, and dooms the oldest mappings above the limit. */
static void mapping_keep_locked(sluice_store *store, struct sl_mapping *mapping,
                                struct sl_list *gone) SL_REQUIRES(&store->mutex)
{
	struct sl_list *idle = mapping->by_driver ? &mapping->sdev->idle : &store->idle;
	size_t *bytes = mapping_idle_bytes(store, mapping);
	size_t most = mapping->by_driver ? store->device_cache_bytes : store->cache_bytes;

	sl_list_append(idle, &mapping->idle);
	*bytes += mapping->bytes;
	while (*bytes > most)
		sl_mapping_doom_locked(store, SL_CONTAINER(idle->next, struct sl_mapping, idle),
		                       gone);
}

void sl_mapping_release(sluice_store *store, struct sl_mapping *mapping)
{
	struct sl_list gone;

	sl_list_init(&gone);
	sl_mutex_lock(&store->mutex);
	uint64_t epoch = mapping->stale ? 0 : store->epoch;
	if (!--mapping->users) {
		if (mapping->doomed ||
		    (mapping->by_driver && mapping->alone &&
		     (mapping->writable || mapping->kind == SLUICE_BLOB_ON_HOST)))
			sl_mapping_leave_locked(store, mapping, &gone);
		else if (!mapping->by_driver || (!mapping->writable && !mapping->published))
			mapping_keep_locked(store, mapping, &gone);
	}
	sl_mutex_unlock(&store->mutex);
	mappings_unmap(store, &gone, epoch);
}

void sl_mappings_forget_locked(sluice_store *store, bool all)
{
	struct sl_list gone;

	sl_list_init(&gone);
	for (unsigned i = 0; i < SL_MAPPING_BUCKETS; i++)
		sl_list_each_of (mapping, &store->mappings[i], struct sl_mapping, bucket) {
			/* A new server leases nothing in regions mapped for an earlier one. */
			if (!all && !mapping->writable)
				continue;
			if (all || !mapping->by_driver) {
				sl_list_remove(&mapping->bucket);
				mapping->stale = true;
			}
			sl_mapping_doom_locked(store, mapping, &gone);
		}
	mappings_unmap(store, &gone, 0);
}
