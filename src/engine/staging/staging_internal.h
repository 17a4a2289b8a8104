/* SPDX-License-Identifier: Apache-2.0 */
/* Declarations that the files of this room share. */
#ifndef SL_STAGING_INTERNAL_H
#define SL_STAGING_INTERNAL_H

#include "staging/staging.h"

/* A buddy allocator: blocks of a range, in powers of two from SL_SLOT_LEAST on. Not thread-safe. */
#define SL_BUDDY_ORDERS 28
struct sl_buddy {
	char *base;
	size_t blocks; /* of SL_SLOT_LEAST */
	size_t opened; /* blocks that can be taken */
	/* For each block: 1 + the order of the free range that begins there, or 0. */
	unsigned char *free;
	struct sl_list lists[SL_BUDDY_ORDERS];
	struct sl_list *links; /* of each block, in a list while a free range begins there */
	/* The range that came back last, which is not joined with others yet; or NULL. */
	void *spare;
	unsigned spare_order;
};
/* length is rounded down; nothing can be taken yet. Returns 0 or -ENOMEM. */
int sl_buddy_init(struct sl_buddy *buddy, void *base, size_t length);
void sl_buddy_destroy(struct sl_buddy *buddy);
/* Lets the first bytes be taken; no fewer than before. */
void sl_buddy_open(struct sl_buddy *buddy, size_t length);
/* Returns at least length bytes, or NULL. */
void *sl_buddy_take(struct sl_buddy *buddy, size_t length);
void sl_buddy_give(struct sl_buddy *buddy, void *memory, size_t length);

/* The two words of a slot, each on a cache line of its own. */
struct sl_slot_words {
	_Alignas(64) _Atomic uint32_t cpu;
	_Alignas(64) _Atomic uint32_t gpu;
};

/* Refuses all waiters that want slots of a lost device. No lock held. */
void sl_slots_refuse(struct sl_staging *staging);

/*
 * A thread that watches many small things, of which none holds another one up, looks at them after
 * short naps: a look that ends several costs less than many that end one.
 */
#define SL_MANY_SMALL 8
void sl_nap_precisely(void); /* for the calling thread, once */
void sl_nap_shortly(void);

/* Watches the words of the device. */
struct sl_poller {
	struct sl_mutex mutex;
	pthread_cond_t watched; /* a ring to watch, or stop */
	struct {
		struct sl_list rings;
		unsigned count, single; /* of rings, and of those that are single */
		bool stop;
	} locked SL_GUARDED_BY(&mutex);
	_Atomic uint32_t rung; /* counts new rings: a change ends a nap */
	_Atomic bool napping;
	pthread_t thread;
	bool started;
};
int sl_poller_start(struct sl_staging *staging);
/* Waits until the poller has nothing to watch, or for the deadline. */
void sl_poller_empty(struct sl_staging *staging, int64_t deadline);
void sl_poller_stop(struct sl_staging *staging);

#define SL_ROUNDS_MOST 32 /* in flight in each direction */
#define SL_LANES       3
/* Jobs with copies that the stream was given together, and the event behind them. */
struct sl_copier_round {
	sluice_event event;
	struct sl_list jobs;
	unsigned count; /* of jobs */
	bool large;     /* it has a large job */
};
struct sl_copier {
	struct sl_queue queue;
	struct sl_word_sleeper sleeper;
	struct sl_copier_lane {
		sluice_stream stream;
		/* In flight: from first on, count of them. */
		struct sl_copier_round rounds[SL_ROUNDS_MOST];
		unsigned first, count;
		unsigned jobs, large;   /* in flight, and rounds with a large one */
		struct sl_list waiting; /* for a round */
	} lanes[SL_LANES];  /* to the host and to the device, the copier's own, as is the next; */
	_Atomic bool aside; /* and of sl_copier_help(), of the thread that has set this */
	bool has_words;     /* the device writes words; fixed */
	/* Behind the copies of the last lane; NULL: none is pinned yet, or there are few. Then the
	 * last number, and whether the stream has taken its write: of that thread, too. */
	struct sl_slot_words *_Atomic words;
	uint32_t number;
	bool marked;
	struct sl_list drains; /* jobs that wait for their streams to run out */
	struct sl_spin spin;
	pthread_t thread;
	bool started;
};
int sl_copier_start(struct sl_staging *staging);
void sl_copier_stop(struct sl_staging *staging);
void sl_copier_free(struct sl_staging *staging);

void sl_cache_start(struct sl_staging *staging);

/*
 * Has the kernel take the pages of mapped memory from a NUMA node, and the workers stay on its
 * cores, on a machine with several; root: as of sl_machine_cores(). Returns true if the pages will
 * come from there.
 */
bool sl_staging_near(const char *root, int node, char *memory, size_t length, struct sl_pool *pool);
/*
 * Makes the pages of mapped memory. Waits for workers that have begun to help, and no other.
 * placed: whichever thread makes a page, it comes from the right node.
 */
void sl_staging_touch(char *memory, size_t length, bool placed, struct sl_pool *pool,
                      unsigned workers);

/* Memory of our own is pinned in two steps: what a read needs, and the rest. */
enum { SL_STEP_FIRST, SL_STEP_ALL, SL_STEPS };

struct sl_staging {
	struct sl_device *device;
	struct sl_pool *pool; /* that fills slots, and makes pages */
	unsigned workers;     /* in the pool */
	bool shared;          /* the pool may be limited for the sake of other processes */
	char *memory;
	size_t length;
	bool own;    /* the memory is ours, and registered by us */
	bool placed; /* whichever thread makes a page, it comes from the right node */
	size_t half_length[SL_HALVES];
	size_t budget; /* of both halves */

	size_t step_ends[SL_STEPS]; /* in memory */
	struct sl_mutex pinning;    /* around a step: the driver may hold it up */
	_Atomic unsigned steps;     /* done */
	_Atomic bool refused;       /* a step has failed: only an operation that needs it tries */

	struct sl_mutex mutex;
	struct {
		struct sl_buddy halves[SL_HALVES];
		struct sl_slot_words **words; /* a stack of those that are free */
		size_t words_free;
		struct sl_list waiters[SL_HALVES];
		size_t out[SL_HALVES]; /* slots that are in use */
		size_t lost;           /* slots that did not come back */
	} locked SL_GUARDED_BY(&mutex);

	struct sl_mutex seating;
	unsigned long_reads SL_GUARDED_BY(&seating); /* in flight */
	int seat SL_GUARDED_BY(&seating);            /* of them; -1: none */

	struct sl_gate commands; /* in flight; open once the device is lost */

	_Atomic uint64_t expected; /* bytes that are still to be put into slots */
	uint64_t caches;           /* bytes that the cores may have to themselves, or 0; fixed */

	_Atomic bool suspect; /* nothing moves: the copier is to ask the device why */
	_Atomic bool lost;    /* the device said that it is */

	struct sl_poller poller;
	struct sl_copier copier;
};

#endif
