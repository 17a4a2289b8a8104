/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Leases
 *
 * A lease is the right to make a blob in the server's memory. The server gives more small leases
 * than requested; the lease cache keeps them, so that most creates of small blobs need no call. Any
 * thread; store->mutex guards the cache.
 */
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "store/device/store_devices.h"

/* The server puts blobs up to this size into a region with others. */
#define SMALL_BYTES     65536
#define SMALL_ON_DEVICE (1 << 20)
#define LEAST_ON_DEVICE (32 << 10)

/* -------------------------------------------------------------------------------- lease cache */

void sl_lease_cache_add(sluice_store *store, uint64_t epoch, const struct sl_lease *v, unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		if (!v[i].id)
			continue;
		sl_mutex_lock(&store->mutex);
		bool full = store->lease_cache_count == SL_LEASE_CACHE_MOST;
		if (!full && store->epoch == epoch)
			store->lease_cache[store->lease_cache_count++] = v[i];
		sl_mutex_unlock(&store->mutex);
		if (full)
			sl_tell_id(store, SL_MSG_ABORT, v[i].id, epoch);
	}
}

void sl_lease_cache_return(sluice_store *store)
{
	uint64_t ids[SL_LEASE_CACHE_MOST], epoch;
	unsigned n = 0, left = 0;

	sl_mutex_lock(&store->mutex);
	epoch = store->epoch;
	for (unsigned i = 0; i < store->lease_cache_count; i++)
		if (store->lease_cache[i].range.device < 0)
			ids[n++] = store->lease_cache[i].id;
		else
			store->lease_cache[left++] = store->lease_cache[i];
	store->lease_cache_count = left;
	sl_mutex_unlock(&store->mutex);
	while (n--)
		sl_tell_id(store, SL_MSG_ABORT, ids[n], epoch);
}

/* Returns whether a range is large enough, but not much larger. Caller holds store->mutex. */
static bool lease_fits_locked(const struct sl_region_range *range, const sluice_blob *blob)
{
	size_t n = blob->bytes, small = blob->sdev ? SMALL_ON_DEVICE : SMALL_BYTES;
	size_t least = blob->sdev ? LEAST_ON_DEVICE : 4096;
	uint64_t most = n <= small ? SL_MAX(n * 2, least) : n + n / 4;

	return range->kind == blob->kind && range->capacity >= n && range->capacity <= most &&
	       range->device == (blob->sdev ? blob->sdev->number : -1);
}

/* The newest lease is most likely in the processor's caches. */
void sl_lease_cache_take(sluice_store *store, sluice_blob *blob)
{
	/* A system call without a wait, so that no blob for a dead server is written in vain. */
	if (blob->flags & SLUICE_BLOB_ALONE ||
	    (blob->flags & SLUICE_BLOB_RESERVE && blob->name[0]) || !sl_conn_alive(store))
		return;
	sl_mutex_lock(&store->mutex);
	for (unsigned i = store->lease_cache_count; !blob->lease.id && store->conn && i-- > 0;) {
		if (!lease_fits_locked(&store->lease_cache[i].range, blob))
			continue;
		blob->lease = store->lease_cache[i];
		blob->epoch = store->epoch;
		memmove(&store->lease_cache[i], &store->lease_cache[i + 1],
		        (--store->lease_cache_count - i) * sizeof(store->lease_cache[0]));
	}
	sl_mutex_unlock(&store->mutex);
}

/* ------------------------------------------------------------------------------------- leases */

void sl_lease_end(sluice_blob *blob, bool again)
{
	const struct sl_region_range *range = &blob->lease.range;
	/* A large lease goes back to the server at once. */
	bool cached = again && !blob->entered && !blob->own_metadata &&
	              (blob->sdev ? range->capacity < range->region_bytes
	                          : range->capacity <= SMALL_BYTES);

	if (!blob->lease.id)
		return;
	if (cached)
		sl_lease_cache_add(blob->store, blob->epoch, &blob->lease, 1);
	else
		sl_tell_id(blob->store, SL_MSG_ABORT, blob->lease.id, blob->epoch);
	if (blob->lease.make && !cached)
		sl_mapping_cancel(blob->store, range->region);
	blob->lease.id = 0;
}

int sl_blobs_lease(sluice_store *store, sluice_blob *const *blobs, size_t count)
{
	sluice_blob *without[SL_ITEMS_MOST];
	struct sl_pending_call call;
	union sl_message m;
	unsigned n = 0;
	int rc;

	for (size_t i = 0; i < count; i++)
		if (!blobs[i]->lease.id)
			without[n++] = blobs[i];
	if (!n)
		return 0;
	do {
		/* Of the server that knows the devices by these numbers; 0: any. */
		uint64_t epoch = 0, before = 0;

		sl_message_begin(&m, SL_MSG_CREATE, 0, n);
		rc = 0;
		for (unsigned i = 0; !rc && i < n; i++) {
			struct sl_create_item *item = &m.create.items[i];

			item->bytes = without[i]->bytes;
			item->device = -1;
			item->kind = without[i]->kind;
			item->flags = without[i]->flags;
			if (without[i]->flags & SLUICE_BLOB_RESERVE)
				strcpy(item->name, without[i]->name);
			if (without[i]->sdev)
				rc = sl_store_device_number(store, without[i]->sdev, &item->device,
				                            &epoch);
			if (!rc && before && before != epoch)
				rc = -ECONNRESET;
			before = epoch;
		}
		if (!rc)
			rc = sl_call_begin(store, &m, SL_MSG_LEASES, epoch, SL_FOREVER, &call);
	} while (rc == -ECONNRESET);
	/* The server's number is that of whole pages or pieces. */
	if (rc == -ENOSPC && n == 1 && without[0]->name[0])
		return sl_fail(rc, "'%s' of %" PRIu64 " bytes: %s", without[0]->name,
		               without[0]->bytes, sluice_last_message());
	if (rc)
		return rc;
	if (m.head.count < n) {
		sl_call_end(store, &call);
		return sl_fail(-EPROTO, "the store gives less than it was asked for");
	}
	for (unsigned i = 0; i < n; i++) {
		without[i]->lease = m.leases.items[i];
		without[i]->epoch = call.epoch;
		without[i]->entered =
			without[i]->flags & SLUICE_BLOB_RESERVE && without[i]->name[0];
	}
	sl_lease_cache_add(store, call.epoch, m.leases.items + n, m.head.count - n);
	sl_call_end(store, &call);
	sl_store_step("client: leased");
	return 0;
}
