/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The thread that unmaps, which may take as long as a device has work. Nothing waits for it but the end of the store, and
 * who counts the memory that others still have.
 */
#include <errno.h>
#include <stdlib.h>
#include <time.h>

#include "io/io.h"
#include "store/devices.h"

#define DOUBT_NS INT64_C(500000000) /* between two looks whether devices are still there */

/* ---------------------------------------------------------------------------------------- work */

static bool any_of(sluice_store *store, uint64_t region)
{
	sl_list_each (link, sl_mapping_bucket(store, region)) {
		const struct sl_mapping *mapping = SL_CONTAINER(link, struct sl_mapping, bucket);

		if (mapping->far && mapping->region == region)
			return true;
	}
	return false;
}

/* With the mutex, which is let go meanwhile. Until it is unmapped it is in the table, for SL_MSG_HAVE. */
static void end(struct sl_devices *devices, struct sl_mapping *mapping)
{
	sluice_store *store = devices->store;
	uint64_t region = mapping->region, turn;
	bool told;

	sl_mutex_unlock(&store->mutex);
	sl_far_unmap(mapping);
	sl_store_step("client: unmapped");
	sl_mutex_lock(&store->mutex);
	if (sl_list_linked(&mapping->bucket))
		sl_list_remove(&mapping->bucket);
	told = !mapping->stale && mapping->kind != SLUICE_BLOB_ON_HOST && !any_of(store, region);
	turn = store->turn;
	free(mapping);
	if (!told)
		return;
	devices->mapped.telling = region;
	sl_mutex_unlock(&store->mutex);
	sl_tell_id(store, SL_MSG_DROP, region, turn);
	sl_mutex_lock(&store->mutex);
	devices->mapped.telling = 0;
	pthread_cond_broadcast(&store->mapped);
}

void *sl_mapper_run(void *argument)
{
	struct sl_devices *devices = argument;
	sluice_store *store = devices->store;
	int64_t doubted = sl_now();
	struct sl_list *link;

	sl_mutex_lock(&store->mutex);
	while (!atomic_load(&devices->stop)) {
		if (atomic_load(&devices->promised) && sl_now() - doubted >= DOUBT_NS) {
			sl_mutex_unlock(&store->mutex);
			sl_promises_doubt(devices);
			doubted = sl_now();
			sl_mutex_lock(&store->mutex);
			continue;
		}
		link = sl_list_take(&devices->mapped.leaving);
		if (link)
			end(devices, SL_CONTAINER(link, struct sl_mapping, idle));
		else
			/* Ended by work, by a first promise, by stop; with promises by the time. */
			sl_cond_wait(&devices->mapped.work, &store->mutex,
			             atomic_load(&devices->promised) ? sl_now() + DOUBT_NS
			                                             : SL_FOREVER);
	}
	sl_mutex_unlock(&store->mutex);
	return NULL;
}

/* ---------------------------------------------------------------------------------- wake, end */

void sl_devices_wake(struct sl_devices *devices)
{
	sl_mutex_lock(&devices->store->mutex);
	pthread_cond_signal(&devices->mapped.work);
	sl_mutex_unlock(&devices->store->mutex);
	sl_courier_ring(devices);
}

void sl_devices_end(struct sl_devices *devices)
{
	atomic_store(&devices->stop, true);
	sl_devices_wake(devices);
}

/* ----------------------------------------------------------------------------- end of a process */

/*
 * A driver's handlers of exit() run after ours if it was started before ours were registered: so they are, once more with
 * each device. Stores that are not closed by then have their threads ended.
 */
static struct {
	struct sl_mutex mutex;
	struct sl_list stores; /* guarded by mutex, as is the next */
	bool registered[SL_DEVICES_MOST];
} leaving = {.mutex = SL_MUTEX_INIT};

/* The driver may have the mapper for longer than a program that ends is to wait. */
static void abandon(struct sl_devices *devices)
{
	struct timespec until;

	sl_devices_end(devices);
	/* For handlers of exit() that run after this one, and close the store. */
	sl_mutex_lock(&devices->mutex);
	pthread_cond_broadcast(&devices->promises.changed);
	sl_mutex_unlock(&devices->mutex);
	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += 1;
	pthread_timedjoin_np(devices->courier, NULL, &until);
	pthread_timedjoin_np(devices->mapper, NULL, &until);
}

static void at_exit(void)
{
	struct sl_list *link;

	if (sl_forked())
		return;
	sl_mutex_lock(&leaving.mutex);
	while ((link = sl_list_take(&leaving.stores)))
		abandon(SL_CONTAINER(link, struct sl_devices, exit));
	sl_mutex_unlock(&leaving.mutex);
}

void sl_devices_expect_exit(struct sl_devices *devices, const struct sl_device *device)
{
	sl_mutex_lock(&leaving.mutex);
	if (!leaving.stores.next)
		sl_list_init(&leaving.stores);
	if (!leaving.registered[device->index])
		leaving.registered[device->index] = !atexit(at_exit);
	if (!sl_list_linked(&devices->exit))
		sl_list_append(&leaving.stores, &devices->exit);
	sl_mutex_unlock(&leaving.mutex);
}

bool sl_devices_forget_exit(struct sl_devices *devices)
{
	bool there;

	sl_mutex_lock(&leaving.mutex);
	there = sl_list_linked(&devices->exit);
	if (there)
		sl_list_remove(&devices->exit);
	sl_mutex_unlock(&leaving.mutex);
	return there;
}
