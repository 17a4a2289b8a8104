/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a store has of devices; for the client's own files. There is none of it in a process that has no blob there.
 *
 *   post      what a store has on one device
 *   mapper    a thread that unmaps, and looks whether devices are still there. The driver may hold it up
 *   courier   a thread that reads the wire when nobody else does, and sees what streams write. It never calls a driver
 *   promise   a seal that a stream is to bring about, or a release
 *
 * The thread that calls a public function makes and maps; the mapper unmaps. So the driver holds up a thread that a wait of a
 * device depends on only in calls that say so, and never because of what other clients delete.
 *
 * Locks. store->mutex guards the mappings, and the mapper's list; devices->mutex the promises and the words. Neither is held
 * together with the other, while a driver is called, or while something is sent. store->opening is held while a post is
 * opened, which calls the driver; neither thread takes it.
 */
#ifndef SL_STORE_DEVICES_H
#define SL_STORE_DEVICES_H

#include "device/device.h"
#include "store/client.h"

struct sl_words;

struct sl_post {
	_Atomic bool open; /* set once, with store->opening, after what never changes later: */
	struct sl_device *device; /* whose driver has been started */
	/* Guarded by store->mutex. */
	int32_t number;      /* the server's for it; -1: it was not asked yet */
	struct sl_list idle; /* mappings, the one that was used least recently first */
	size_t idle_bytes;
	/* What is in it devices->mutex guards. Made with store->opening. */
	_Atomic(struct sl_words *) words; /* NULL: nothing was to be made or sealed there */
};

struct sl_devices {
	sluice_store *store;
	struct sl_list exit; /* of all in this process */
	pthread_t courier, mapper;
	int bell; /* an eventfd, which ends a sleep of the courier */
	_Atomic bool stop;
	struct sl_post posts[SL_DEVICES_MOST];
	/* Guarded by store->mutex. */
	struct {
		struct sl_list leaving; /* mappings for the mapper, by their link `idle` */
		pthread_cond_t work;    /* there is some, or a first promise, or the end */
		uint64_t telling;       /* the region that SL_MSG_DROP is being sent for; 0 */
	} mapped;
	struct sl_mutex mutex;
	/* Guarded by mutex. */
	struct {
		struct sl_list list;
		pthread_cond_t changed; /* one has been kept, or not; or is gone */
	} promises;
	_Atomic unsigned promised; /* how many there are */
};

/* A seal that is under way, or a release; the list has it until its blobs are let go. */
struct sl_promise {
	struct sl_list link; /* devices->promises.list */
	struct sl_post *post;
	_Atomic uint32_t *word; /* the post's; the stream makes it this: */
	uint32_t value;
	int64_t begun;
	bool taken;    /* by the courier, or the mapper. Guarded by devices->mutex */
	bool releases; /* the handle of its one blob; nothing is sealed */
	unsigned count;
	sluice_blob *blobs[]; /* a reference to each */
};

/* ------------------------------------------------------------------------------------- posts.c */

static inline struct sl_devices *sl_devices_of(const sluice_store *store)
{
	return atomic_load_explicit(&store->devices, memory_order_acquire);
}
/* The number of the device of that name in this process; -2: there is none. */
int sl_place_find(const char *place);
/* The post on a device, with its driver started; starts the threads with the first. -ENOTSUP with a sentence. */
int sl_post_open(sluice_store *store, struct sl_device *device, struct sl_post **out);
/* The same by the public number, or by the server's, of a device whose memory can be shared. */
int sl_post_numbered(sluice_store *store, int number, struct sl_post **out);
int sl_post_of_place(sluice_store *store, int32_t number, int64_t deadline, struct sl_post **out);
/* What the server of that turn calls it. */
int sl_post_number(sluice_store *store, struct sl_post *post, int32_t *out, uint64_t *turn);
/* Ends the threads, which there are; what is mapped stays. False: the process ends, and they may still be there. */
bool sl_devices_stop(sluice_store *store);
/* What is left; the threads are gone. Calls drivers. */
void sl_devices_free(sluice_store *store);

/* --------------------------------------------------------------------------------------- far.c */

/* Makes or maps one that is COMING, without the mutex. May call the driver. */
int sl_far_bring(sluice_store *store, struct sl_mapping *mapping, uint64_t turn, int64_t deadline);
/* Memory of this process, which is published. It is there until the server has it forgotten. Release it as any other. */
int sl_far_add_own(sluice_store *store, const struct sl_far *far, void *start, uint64_t bytes,
                   struct sl_mapping **out);
/* Leases for regions that are to be made, in an answer: the first thread that wants one makes it. With the mutex, by the
 * reader, so that no thread has a later answer with a place in the same region before that is known. */
void sl_far_expect(sluice_store *store, const union sl_message *m);
/* A lease for a region of its own was given back: it will not be made, if it was not, nor be published. */
void sl_far_cancel(sluice_store *store, uint64_t region);
/* SL_MSG_FORGET. With the mutex, by whoever reads. */
void sl_far_forget(sluice_store *store, const union sl_message *m);
/* There is a new server, with the same blobs, or others. With the mutex. */
void sl_far_adopt(sluice_store *store, bool same);
/* At most SL_ITEMS_MOST regions that are mapped and that the server of that turn was not told of; how many. With the mutex. */
unsigned sl_far_list(sluice_store *store, uint64_t turn, struct sl_id_item *out);
/* All that are leaving, of a store whose threads are gone. Calls drivers. */
void sl_far_free(sluice_store *store);
/* One that is for the mapper, and is not in its list any more: unmaps it. Calls the driver. */
void sl_far_unmap(struct sl_mapping *mapping);

/* ------------------------------------------------------------------------------------ threads */

void *sl_mapper_run(void *devices);
void *sl_courier_run(void *devices);
/* Ends a sleep of the courier; of both. Without the mutex. */
void sl_courier_ring(struct sl_devices *devices);
void sl_devices_wake(struct sl_devices *devices);
/* Has both end, soon. */
void sl_devices_end(struct sl_devices *devices);
/* Has both threads end before the driver does, when the process ends without closing the store. */
void sl_devices_expect_exit(struct sl_devices *devices, const struct sl_device *device);
/* False: that has happened. */
bool sl_devices_forget_exit(struct sl_devices *devices);

/* ----------------------------------------------------------------------------------- promises */

/* What the courier does: seals or releases by the next word that has come; false: none has. */
bool sl_promise_keep(struct sl_devices *devices);
/* What the mapper does now and then. Calls drivers. */
void sl_promises_doubt(struct sl_devices *devices);
/* -EPERM, with a sentence: it is to be sealed already. */
int sl_promised(sluice_blob *blob);
/* Until none is under way. */
void sl_promises_wait(struct sl_devices *devices);
/* Words that the device's streams can write; may wait for all that the device has to do. -ENOTSUP, -ENOMEM. */
int sl_words_open(sluice_store *store, struct sl_post *post);
void sl_words_free(struct sl_post *post);

#endif
