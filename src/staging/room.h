/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of this room share. */
#ifndef SL_STAGING_ROOM_H
#define SL_STAGING_ROOM_H

#include "staging/staging.h"

/* Blocks of a range, powers of two from SL_SLOT_LEAST on. Not thread-safe. */
#define SL_BUDDY_ORDERS 28
struct sl_buddy {
	char *base;
	size_t blocks; /* of SL_SLOT_LEAST */
	unsigned char
		*free; /* of each block: 1 + the order of the free range that begins there, or 0 */
	struct sl_list lists[SL_BUDDY_ORDERS];
	struct sl_list *links; /* of each block, in a list while a free range begins there */
};
/* length is rounded down. -ENOMEM. */
int sl_buddy_init(struct sl_buddy *buddy, void *base, size_t length);
void sl_buddy_destroy(struct sl_buddy *buddy);
/* At least length bytes, or NULL. */
void *sl_buddy_take(struct sl_buddy *buddy, size_t length);
void sl_buddy_give(struct sl_buddy *buddy, void *memory, size_t length);
/* What one sl_buddy_take() can give at most while nothing is taken. */
size_t sl_buddy_largest(size_t length);

/* Places of the two words of a slot; each word has a cache line. */
struct sl_words {
	_Alignas(64) _Atomic uint32_t cpu;
	_Alignas(64) _Atomic uint32_t gpu;
};

/* Grants nothing to those who ask for slots of a lost device. */
void sl_slots_refuse(struct sl_staging *staging);

/* Watches the words of the device. */
struct sl_bell {
	struct sl_mutex mutex;
	pthread_cond_t watched; /* a ring to watch, or stop */
	struct {
		struct sl_list rings;
		bool stop;
	} locked;              /* guarded by mutex */
	_Atomic uint32_t rung; /* a new ring ends a nap */
	_Atomic bool napping;
	pthread_t thread;
	bool started;
};
int sl_bell_start(struct sl_staging *staging);
/* Waits until it has nothing to watch, or for the deadline. */
void sl_bell_empty(struct sl_staging *staging, int64_t deadline);
void sl_bell_stop(struct sl_staging *staging);

#define SL_COPIES_MOST 32 /* in flight in each direction */
struct sl_copier {
	struct sl_queue queue;
	struct sl_word_sleeper sleeper;
	struct lane {
		sluice_stream stream;
		sluice_event events[SL_COPIES_MOST];
		struct sl_copy
			*copies[SL_COPIES_MOST]; /* in flight: from first on, count of them */
		unsigned first, count;
		struct sl_list waiting; /* for an event */
	} lanes[2];            /* to the host, to the device; the copier's own, as is the next */
	struct sl_list drains; /* the copier's own, too */
	struct sl_spin spin;
	pthread_t thread;
	bool started;
};
int sl_copier_start(struct sl_staging *staging);
void sl_copier_stop(struct sl_staging *staging);
void sl_copier_free(struct sl_staging *staging);

void sl_cache_start(struct sl_staging *staging);

struct sl_staging {
	struct sl_device *device;
	char *memory;
	size_t length;
	bool own; /* the memory is ours, and registered by us */
	size_t part_length[SL_PARTS_OF];

	struct sl_mutex mutex;
	struct {
		struct sl_buddy parts[SL_PARTS_OF];
		struct sl_words **words; /* a stack of those that are free */
		size_t words_free;
		struct sl_list asks[SL_PARTS_OF]; /* that wait */
		size_t out[SL_PARTS_OF];          /* slots that somebody has */
		size_t lost;                      /* slots that did not come back */
	} locked;                                 /* guarded by mutex */

	struct sl_gate commands; /* in flight; open once the device is lost */

	_Atomic uint64_t expected; /* bytes that are still to be put into slots */
	uint64_t caches;           /* bytes that the cores may have to themselves, or 0; fixed */

	_Atomic bool suspect; /* nothing moves: the copier is to ask the device why */
	_Atomic bool lost;    /* the device said that it is */

	struct sl_bell bell;
	struct sl_copier copier;
};

#endif
