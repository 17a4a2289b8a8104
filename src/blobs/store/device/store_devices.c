/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The devices of a store, and their two threads
 *
 * Starts the client thread and the unmap thread with the first device, and ends them when the store
 * is closed or the process exits.
 */
#include <errno.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "io/io.h"
#include "store/device/store_devices.h"

/* Ends a sleep of the client thread. Any thread, with any lock. */
static void devices_wake_reader(struct sl_devices *devices)
{
	uint64_t one = 1;

	/* EAGAIN is impossible: the counter is far from its limit. */
	while (write(devices->wake_fd, &one, sizeof(one)) < 0 && errno == EINTR)
		;
}

void sl_devices_wake(struct sl_devices *devices)
{
	sl_mutex_lock(&devices->store->mutex);
	pthread_cond_signal(&devices->unmap.work);
	sl_mutex_unlock(&devices->store->mutex);
	devices_wake_reader(devices);
}

static void devices_end(struct sl_devices *devices)
{
	atomic_store(&devices->stop, true);
	sl_devices_wake(devices);
}

void sl_devices_reconnected_locked(sluice_store *store, bool same)
{
	struct sl_devices *devices = sl_devices_of(store);

	if (!devices)
		return;
	/* Device numbers are the daemon's. */
	for (unsigned i = 0; !same && i < SL_DEVICES_MOST; i++)
		devices->by_index[i].number = -1;
	devices_wake_reader(devices);
}

/* --------------------------------------------------------------------------- end of a process */

/*
 * exit() runs handlers in reverse order, and a driver may have registered its own after ours. So
 * ours are registered again with each device. They end the threads of all stores that are not
 * closed by then.
 */
static struct {
	struct sl_mutex mutex;
	struct sl_list stores; /* guarded by mutex, as is the next */
	bool registered[SL_DEVICES_MOST];
} leaving = {.mutex = SL_MUTEX_INIT, .stores = SL_LIST_INIT(leaving.stores)};

/* Ends the threads, but waits no longer than a second: a driver may block the unmap thread. */
static void devices_abandon(struct sl_devices *devices)
{
	struct timespec until;

	devices_end(devices);
	/* Wakes handlers of exit() that run later and close the store. */
	sl_mutex_lock(&devices->mutex);
	pthread_cond_broadcast(&devices->stream_ops.changed);
	sl_mutex_unlock(&devices->mutex);
	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += 1;
	pthread_timedjoin_np(devices->client_thread, NULL, &until);
	pthread_timedjoin_np(devices->unmapper, NULL, &until);
}

static void devices_at_exit(void)
{
	struct sl_list *link;

	sl_mutex_lock(&leaving.mutex);
	while ((link = sl_list_take(&leaving.stores))) {
		struct sl_devices *devices = SL_CONTAINER(link, struct sl_devices, exit);

		if (sl_process_is(devices->store->process))
			devices_abandon(devices);
	}
	sl_mutex_unlock(&leaving.mutex);
}

void sl_devices_expect_exit(struct sl_devices *devices, const struct sl_device *device)
{
	sl_fork_hold(&leaving.mutex);
	sl_mutex_lock(&leaving.mutex);
	if (!leaving.registered[device->index])
		leaving.registered[device->index] = !atexit(devices_at_exit);
	if (!sl_list_linked(&devices->exit))
		sl_list_append(&leaving.stores, &devices->exit);
	sl_mutex_unlock(&leaving.mutex);
}

static bool devices_forget_exit(struct sl_devices *devices)
{
	sl_mutex_lock(&leaving.mutex);
	bool there = sl_list_linked(&devices->exit);
	if (there)
		sl_list_remove(&devices->exit);
	sl_mutex_unlock(&leaving.mutex);
	return there;
}

/* -------------------------------------------------------------------------------- open, close */

static void devices_free(struct sl_devices *devices)
{
	pthread_cond_destroy(&devices->unmap.work);
	pthread_cond_destroy(&devices->stream_ops.changed);
	sl_mutex_destroy(&devices->mutex);
	if (devices->wake_fd >= 0)
		close(devices->wake_fd);
	free(devices);
}

static int devices_new(sluice_store *store, struct sl_devices **out)
{
	struct sl_devices *devices = calloc(1, sizeof(*devices));

	if (!devices)
		return sl_fail(-ENOMEM, "no memory");
	devices->store = store;
	for (unsigned i = 0; i < SL_DEVICES_MOST; i++) {
		devices->by_index[i].number = -1;
		devices->by_index[i].make = sl_mapping_make;
		devices->by_index[i].map = sl_mapping_map_by_driver;
		sl_list_init(&devices->by_index[i].idle);
	}
	sl_list_init(&devices->unmap.leaving);
	sl_list_init(&devices->stream_ops.list);
	pthread_cond_init(&devices->unmap.work, NULL);
	pthread_cond_init(&devices->stream_ops.changed, NULL);
	sl_mutex_init(&devices->mutex);
	devices->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (devices->wake_fd < 0) {
		devices_free(devices);
		return sl_fail(-errno, "cannot make an eventfd: %s", sl_error_text(-errno));
	}
	*out = devices;
	return 0;
}

int sl_devices_open(sluice_store *store)
{
	struct sl_devices *devices = NULL;
	int rc = sl_devices_of(store) ? 0 : devices_new(store, &devices);

	if (rc || !devices)
		return rc;
	rc = sl_thread_start(&devices->unmapper, "sluice-unmapper", sl_unmapper_run, devices);
	if (!rc) {
		/* The client thread may need store->devices, to forget mappings. */
		atomic_store_explicit(&store->devices, devices, memory_order_release);
		rc = sl_thread_start(&devices->client_thread, "sluice-client", sl_client_thread_run,
		                     devices);
		if (rc) {
			devices_end(devices);
			pthread_join(devices->unmapper, NULL);
		}
	}
	if (rc) {
		atomic_store(&store->devices, NULL);
		devices_free(devices);
	}
	return rc;
}

bool sl_devices_stop(sluice_store *store)
{
	struct sl_devices *devices = sl_devices_of(store);

	if (!devices_forget_exit(devices))
		return false;
	devices_end(devices);
	pthread_join(devices->client_thread, NULL);
	pthread_join(devices->unmapper, NULL);
	return true;
}

void sl_devices_free(sluice_store *store)
{
	struct sl_devices *devices = sl_devices_of(store);

	atomic_store(&store->devices, NULL);
	devices_free(devices);
}
