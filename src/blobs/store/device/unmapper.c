/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The unmap thread
 *
 * Unmaps what drivers have mapped, which may take as long as the device has work, and tells the
 * server. While seals or releases in stream order are under way, it also checks whether their
 * devices have failed. No thread waits for it, except to close the store; but the server counts the
 * memory until it is unmapped.
 */
#include <stdlib.h>

#include "store/device/store_devices.h"

#define DOUBT_NS INT64_C(500000000) /* between two checks of devices */

static bool unmapper_has_region_locked(sluice_store *store, uint64_t region)
	SL_REQUIRES(&store->mutex)
{
	sl_list_each_of (mapping, sl_mapping_bucket(store, region), struct sl_mapping, bucket)
		if (mapping->by_driver && mapping->region == region)
			return true;
	return false;
}

/*
 * Unmaps and frees a mapping; releases the mutex meanwhile. The mapping stays in the table until it
 * is unmapped, so that it is reported to a new server (SL_MSG_HAVE).
 */
static void unmapper_unmap_locked(sluice_store *store, struct sl_devices *devices,
                                  struct sl_mapping *mapping) SL_REQUIRES(&store->mutex)
{
	uint64_t region = mapping->region, epoch;

	sl_mutex_unlock(&store->mutex);
	sl_mapping_unmap(mapping);
	sl_store_step("client: unmapped");
	sl_mutex_lock(&store->mutex);
	if (sl_list_linked(&mapping->bucket))
		sl_list_remove(&mapping->bucket);
	bool report = !mapping->stale && mapping->kind != SLUICE_BLOB_ON_HOST &&
	              !unmapper_has_region_locked(store, region);
	epoch = store->epoch;
	free(mapping);
	if (!report)
		return;
	devices->unmap.reporting = region;
	sl_mutex_unlock(&store->mutex);
	sl_tell_id(store, SL_MSG_DROP, region, epoch);
	sl_mutex_lock(&store->mutex);
	devices->unmap.reporting = 0;
	pthread_cond_broadcast(&store->mapped);
}

void *sl_unmapper_run(void *argument)
{
	struct sl_devices *devices = argument;
	sluice_store *store = devices->store;
	int64_t doubted = sl_now();
	struct sl_list *link;

	sl_mutex_lock(&store->mutex);
	while (!atomic_load(&devices->stop)) {
		if (atomic_load(&devices->stream_op_count) && sl_now() - doubted >= DOUBT_NS) {
			sl_mutex_unlock(&store->mutex);
			sl_stream_ops_check_devices(devices);
			doubted = sl_now();
			sl_mutex_lock(&store->mutex);
			continue;
		}
		link = sl_list_take(&devices->unmap.leaving);
		if (link)
			unmapper_unmap_locked(store, devices,
			                      SL_CONTAINER(link, struct sl_mapping, idle));
		else
			/* Ended by a mapping, a stream operation, the time for these, or stop. */
			sl_cond_wait(&devices->unmap.work, &store->mutex,
			             atomic_load(&devices->stream_op_count) ? sl_now() + DOUBT_NS
			                                                    : SL_FOREVER);
	}
	sl_mutex_unlock(&store->mutex);
	return NULL;
}
