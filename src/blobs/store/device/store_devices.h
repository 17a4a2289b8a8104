/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A store's share in devices. A process that has no blob on a device has none of it.
 *
 *   sl_store_device   the state of a store on a device
 *   client thread     reads from the connection when no other thread does, and polls the words that
 *                     streams write. It never calls a driver
 *   unmap thread      unmaps, and checks whether devices still work; a driver may block it
 *   sl_stream_op      a seal or a release that a stream triggers
 *
 * Memory is made and mapped by the thread that calls the public function, and unmapped by the unmap
 * thread. So a driver blocks a thread of the program only in calls that are documented to wait, and
 * never because another client has deleted a blob.
 *
 * Locks: store->mutex guards mappings and the list of the unmap thread, devices->mutex guards
 * stream operations and words. No thread holds both, nor either of them while it calls a driver or
 * sends a message. store->opening is held while a device is opened, which calls its driver; neither
 * the client thread nor the unmap thread takes it.
 */
#ifndef SL_STORE_DEVICES_H
#define SL_STORE_DEVICES_H

#include "device/device.h"
#include "store/mapping.h"

struct sl_store_device {
	_Atomic bool open;        /* set once, under store->opening, after `device`, */
	struct sl_device *device; /* which then never changes; its driver has been started */
	/* Make or map memory for an IN_PROGRESS mapping; may call the driver, without locks. */
	int (*make)(sluice_store *store, struct sl_mapping *mapping, uint64_t epoch);
	int (*map)(struct sl_mapping *mapping, int fd);
	/* Guarded by store->mutex. */
	int32_t number;      /* by which the server knows the device; -1: not asked yet */
	struct sl_list idle; /* mappings, least recently used first */
	size_t idle_bytes;
	/* Set once, under store->opening, by the first blob there. devices->mutex guards what it
	 * points to. */
	_Atomic(struct sl_stream_words *) words;
};

struct sl_devices {
	sluice_store *store;
	struct sl_list exit; /* of all stores with threads */
	pthread_t client_thread, unmapper;
	int wake_fd; /* an eventfd that ends a sleep of the client thread */
	_Atomic bool stop;
	struct sl_store_device by_index[SL_DEVICES_MOST];
	/* Guarded by store->mutex. */
	struct {
		struct sl_list leaving; /* mappings to be unmapped, by their link `idle` */
		/* A mapping was added, or the first stream operation, or stop. */
		pthread_cond_t work;
		uint64_t reporting; /* the region that SL_MSG_DROP is being sent for; 0: none */
	} unmap;
	struct sl_mutex mutex;
	struct {
		struct sl_list list;
		pthread_cond_t changed; /* an operation has ended, or is gone */
	} stream_ops SL_GUARDED_BY(&mutex);
	_Atomic unsigned stream_op_count; /* operations that have not ended */
};

/* A seal or a release under way; in the list until its blobs have been released. */
struct sl_stream_op {
	struct sl_list link; /* devices->stream_ops.list */
	struct sl_store_device *sdev;
	_Atomic uint32_t *word; /* the stream sets it to value */
	uint32_t value;
	int64_t begun;
	bool taken;    /* by the client thread or the unmap thread. Guarded by devices->mutex */
	bool releases; /* the handle of its only blob; else it seals */
	unsigned count;
	sluice_blob *blobs[]; /* with a reference to each */
};

/* ------------------------------------------------------------------------------ store_devices.c */

static inline struct sl_devices *sl_devices_of(const sluice_store *store)
{
	return atomic_load_explicit(&store->devices, memory_order_acquire);
}
/* Makes the devices of a store and starts the two threads, if that has not happened. */
int sl_devices_open(sluice_store *store) SL_REQUIRES(&store->opening);
/* Joins both threads; mappings stay. False: the process ends, and has abandoned them. */
bool sl_devices_stop(sluice_store *store);
/* Frees the rest after sl_devices_stop(). Calls drivers. */
void sl_devices_free(sluice_store *store);
/* Wakes both threads. */
void sl_devices_wake(struct sl_devices *devices);
/* Ends both threads before the driver ends, if the process ends without closing the store. */
void sl_devices_expect_exit(struct sl_devices *devices, const struct sl_device *device);
/* Adapts to a new server; same: of the same daemon. */
void sl_devices_reconnected_locked(sluice_store *store, bool same) SL_REQUIRES(&store->mutex);

/* ----------------------------------------------------------------------------- store_device.c */

/* Returns the index in this process of the device with this machine-wide name, or -2. */
int sl_place_find(const char *place);
/* Starts the driver of a device; the first device starts the store's threads as well.
 * Returns 0 or -ENOTSUP with a message. */
int sl_store_device_open(sluice_store *store, struct sl_device *device,
                         struct sl_store_device **out);
/* The same for a device that shares memory, by its index here; or by the server's number. */
int sl_store_device_by_index(sluice_store *store, int index, struct sl_store_device **out);
int sl_store_device_by_number(sluice_store *store, int32_t number, int64_t deadline,
                              struct sl_store_device **out);
/* Returns the server's number of a device, and the epoch of that server. */
int sl_store_device_number(sluice_store *store, struct sl_store_device *sdev, int32_t *out,
                           uint64_t *epoch);

/* --------------------------------------------------------------------------- device_mapping.c */

/* See struct sl_store_device. */
int sl_mapping_make(sluice_store *store, struct sl_mapping *mapping, uint64_t epoch);
int sl_mapping_map_by_driver(struct sl_mapping *mapping, int fd);
/* Adds memory of this process that is being published; it stays until the server forgets it. */
int sl_mapping_add_published(sluice_store *store, const struct sl_map_request *r, void *start,
                             uint64_t bytes, struct sl_mapping **out);
/* Notes regions that this client is to make, and handles SL_MSG_FORGET: see sl_conn_events. */
void sl_mappings_heard_locked(sluice_store *store, const union sl_message *m)
	SL_REQUIRES(&store->mutex);
/* Forgets a region leased for a single blob and given back: it is not to be made or published. */
void sl_mapping_cancel(sluice_store *store, uint64_t region);
/* See sl_conn_events. */
unsigned sl_mappings_unreported_locked(sluice_store *store, uint64_t epoch, struct sl_id_item *out)
	SL_REQUIRES(&store->mutex);
/* Unmaps a mapping that has left the table. Calls the driver; no lock held. */
void sl_mapping_unmap(struct sl_mapping *mapping);
/* Does so for all mappings that the unmap thread, which has ended, has left. */
void sl_mappings_free_leaving(struct sl_devices *devices);

/* ------------------------------------------------------------------------------------ threads */

void *sl_unmapper_run(void *devices);
void *sl_client_thread_run(void *devices);

/* -------------------------------------------------------------------------------- on_stream.c */

/* For the client thread: executes an operation that its stream has reached. False: none. */
bool sl_stream_op_run_next(struct sl_devices *devices);
/* Ends the operations of devices that have failed; for the unmap thread. Calls drivers. */
void sl_stream_ops_check_devices(struct sl_devices *devices);
/* Waits until no operation is under way, or the process ends. */
void sl_stream_ops_wait(struct sl_devices *devices);
/* Makes words that streams of the device can write to; may wait for all work of the device.
 * Returns 0, -ENOTSUP or -ENOMEM. */
int sl_stream_words_open(sluice_store *store, struct sl_store_device *sdev);
void sl_stream_words_free(struct sl_devices *devices);

#endif
