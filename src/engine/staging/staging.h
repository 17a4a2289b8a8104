/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Staging: the path between storage and the memory of a device. Pinned memory is divided into
 * slots. Operations in stream order cycle through a ring of slots, and the poller watches the words
 * that the device writes for them. The copier calls the driver for operations awaited on the host.
 */
#ifndef SL_STAGING_H
#define SL_STAGING_H

#include "core/core.h"
#include "device/device.h"

struct sl_staging;

/* The least memory of a slot; all lengths of slots are powers of two. */
#define SL_SLOT_LEAST ((size_t)4096)

/* The two halves of the memory, so that neither kind of operation can use up the other's slots. */
enum sl_half { SL_HALF_STREAM, SL_HALF_HOST, SL_HALVES };

/*
 * Maps memory for a device in a context, and starts a copier and a poller. memory: the
 * application's, of staging_bytes and registered with the device, or NULL. pool: its workers, as
 * many as the settings say, help to make memory. Returns 0, or a negative errno with a sentence.
 * Calls the driver, which may hold the call up while waits are pending: only from public calls,
 * without a lock that the end of such a wait needs.
 */
int sl_staging_start(struct sl_device *device, const struct sl_settings *settings, void *memory,
                     struct sl_pool *pool, struct sl_staging **out);
/* Fails all in flight and joins the threads: the process ends. May be NULL, as below. */
void sl_staging_abandon(struct sl_staging *staging);
/* Joins the threads, after the last operation. */
void sl_staging_stop(struct sl_staging *staging);
/* Frees the staging after the threads that submit have been joined. Calls the driver. */
void sl_staging_free(struct sl_staging *staging);
struct sl_device *sl_staging_device(const struct sl_staging *staging);
/*
 * Has memory for slots pinned that is not yet: for the host's half so many bytes at once, or, for
 * the stream's, all memory and the words. The first public call that submits an operation ends with
 * the latter, so that nothing is pinned while a wait may be pending. Returns 0, or a negative errno
 * with a sentence. Calls the driver, as sl_staging_start().
 */
int sl_staging_pin(struct sl_staging *staging, enum sl_half half, uint64_t bytes);
/* Returns whether memory is not pinned yet, and no call has failed to pin it. */
bool sl_staging_lacks(const struct sl_staging *staging);
/* Returns how many of the bytes at data, in a slot of the host's half, were pinned together: no
 * driver copies across the end of these. */
size_t sl_staging_together(const struct sl_staging *staging, const char *data, size_t length);
/* Returns the bytes of the largest slot that a half can ever give. */
size_t sl_staging_largest(const struct sl_staging *staging, enum sl_half half);
/* Returns the bytes of a half of a budget; 0: too little for any slot. own: the memory is not the
 * application's, which has to hold the words, too. */
size_t sl_staging_half(uint64_t budget, bool own, enum sl_half half);
/* Returns true once the device is gone: it will do nothing more. */
bool sl_staging_lost(const struct sl_staging *staging);

/* ------------------------------------------------------------------------------------- slots */

/*
 * Pinned memory and, in stream order, two words on cache lines of their own in memory that the
 * device has mapped. The processor alone writes the first word, the device alone the second. Both
 * hold the sequence number of the slot's last use; they only move forward, and are equal in a free
 * slot.
 */
struct sl_slot {
	char *data;            /* NULL: words only */
	size_t length;         /* of data */
	_Atomic uint32_t *cpu; /* NULL: no words */
	_Atomic uint32_t *gpu;
	uint32_t base; /* both words, when the slot was taken */
	/* The last number that was to be enqueued; struct sl_ring says under which lock. */
	uint32_t entered;
	uint32_t written; /* the last number that the device's word will reach */
	bool lost;        /* the device may still use the slot, so it is never free again */
};

/* Announces bytes that will go into slots, for the device to copy. Any thread, as the next. */
void sl_slots_expect(struct sl_staging *staging, uint64_t bytes);
/* Takes announced bytes back: they were put into slots, `length` of them at data by the calling
 * thread, or never will be. */
void sl_slots_got(struct sl_staging *staging, uint64_t bytes, const char *data, size_t length);

/*
 * Begins a read of so many bytes into the device. Returns true if it is long, with what is
 * announced already: then other processes know of it until sl_slots_rise(), and its threads look
 * for others by sl_seats_look(). Any thread.
 */
bool sl_slots_sit(struct sl_staging *staging, uint64_t bytes);
void sl_slots_rise(struct sl_staging *staging);

/* A request for slots, all at once; first come, first served within a half. */
struct sl_slot_waiter {
	enum sl_half half;
	bool words; /* slots with words */
	unsigned count;
	size_t length;                            /* of each slot; 0: words only */
	struct sl_slot *slots;                    /* count of them, filled when they are granted */
	void (*granted)(struct sl_slot_waiter *); /* any thread, no lock held */
	_Atomic uint32_t *word;                   /* the waiting thread's own */
	struct sl_list link; /* guarded by the staging's mutex, as is waiting */
	bool waiting;
	bool refused; /* granted without slots: the device, or so much memory, is lost */
};
/*
 * Takes slots.
 * Returns true: they are granted now, and granted() is not called.
 * Returns false: granted() will be called; or, without `wait`, nothing was taken and nothing waits.
 */
bool sl_slots_take(struct sl_staging *staging, struct sl_slot_waiter *waiter, bool wait);
/* Takes a waiter out of the queue. Returns true if it was waiting; it is not granted any more. */
bool sl_slots_withdraw(struct sl_staging *staging, struct sl_slot_waiter *waiter);
/* Gives slots back, grants slots to waiters, and calls their granted(). No lock held. */
void sl_slots_give(struct sl_staging *staging, enum sl_half half, struct sl_slot *slots,
                   unsigned count);

/* -------------------------------------------------------------------------------------- ring */

/*
 * The slots that an operation in stream order cycles through: chunk i uses slot i % count, with the
 * number after that of the slot's last use. The words of a slot that have reached number n mean:
 *
 *   read    the processor's: the chunk is in the slot     the device's: it has been copied out
 *   write   the device's: the chunk is in the slot        the processor's: it has been stored
 *
 * For each chunk of a read the stream is given an await of the processor's word for n, the copy,
 * and a write of the device's word; for each chunk of a write an await of the processor's word for
 * n - 1, and the same. The submitting call enqueues everything. The processor's work waits for
 * words that the device writes for commands that were enqueued earlier, and for nothing else, so
 * every await ends.
 *
 * `entered` and the processor's words change under the operation's lock, by these functions only.
 */
struct sl_ring {
	struct sl_staging *staging;
	bool write;
	bool single; /* it has one chunk: nothing waits for its slot */
	unsigned count;
	struct sl_slot *slots;
	uint64_t entered; /* chunks */

	/* The poller calls these on its thread, with no lock but its own in hold(), while it
	 * watches the ring. */
	void (*moved)(
		struct sl_ring *); /* a word of the device has changed, or the device is lost */
	void (*hold)(struct sl_ring *); /* keeps the ring until release() */
	void (*release)(struct sl_ring *);
	struct sl_list link; /* guarded by the poller's mutex, as are the next */
	uint32_t seen;
	bool told; /* that the device is lost */
};

/* Adds the numbers of more chunks before any is enqueued; these are never taken back. */
void sl_ring_enter(struct sl_ring *ring, uint64_t chunks);
/* Says that no chunks beyond these were or will be enqueued; sl_ring_stop() has to follow. */
void sl_ring_retreat(struct sl_ring *ring, uint64_t chunks);
/* Returns true if the slot of a chunk may be filled (read), or holds the chunk (write). */
bool sl_ring_ready(const struct sl_ring *ring, uint64_t chunk);
/* Says that the processor has done its part of a chunk. Not after sl_ring_stop(). */
void sl_ring_store(struct sl_ring *ring, uint64_t chunk);
/* Lets all commands run out that are enqueued for that slot, or will be for entered numbers. */
void sl_ring_stop(struct sl_ring *ring, unsigned slot);
/* Returns true if the device has done all chunks that were enqueued. */
bool sl_ring_rests(const struct sl_ring *ring);
/* Returns the number of chunks that the device has done. */
uint64_t sl_ring_passed(const struct sl_ring *ring);
/* Makes the await before the copies of a chunk. Returns false if it would be over already. */
bool sl_ring_await(const struct sl_ring *ring, uint64_t chunk, struct sl_command *out);
/* Makes the write of the device's word behind the copies of a chunk. */
void sl_ring_write(const struct sl_ring *ring, uint64_t chunk, struct sl_command *out);

/* Commands of this context in flight on the device: well below the number in a channel. */
#define SL_COMMANDS_MOST 768
/*
 * Waits until so many more commands may be enqueued, first come, first served. Others that are in
 * flight end the wait. Returns false if it would have to wait, and `wait` is false.
 */
bool sl_commands_take(struct sl_staging *staging, unsigned count, bool wait);
void sl_commands_give(struct sl_staging *staging, unsigned count);
/* Returns whether any are in flight. */
bool sl_commands_pending(struct sl_staging *staging);

/* ------------------------------------------------------------------------------------ poller */

/* Has the poller watch the words of a ring. */
void sl_poller_watch(struct sl_ring *ring);
/* Ends the watch. moved() may still be running when it returns, but is not called again. */
void sl_poller_leave(struct sl_ring *ring);

/* ------------------------------------------------------------------------------------ copier */

/* Copies between slots and the device's memory, made by the copier's thread, or by a thread that
 * waits in a public call. */
#define SL_JOB_COPIES_MOST 257
struct sl_copy_job {
	bool drains; /* copies nothing; it is over when its stream has done all it holds, */
	sluice_stream stream; /* which is this stream, */
	sluice_event event;   /* or when this event has come, which the copier frees; NULL: none */
	bool to_device;
	uint64_t bytes; /* of its copies, about */
	/* Makes the next copy, of at most SL_JOB_COPIES_MOST; false past the last. The thread that
	 * makes the copies. */
	bool (*next)(struct sl_copy_job *, struct sl_command *out);
	/* The job is over: the device does not touch the slot any more. The copier's thread, no
	 * lock held. */
	void (*done)(struct sl_copy_job *, int error);
	struct sl_list link;
};
void sl_copier_submit(struct sl_staging *staging, struct sl_copy_job *job);
/*
 * Gives the copies of a job to a stream of the staging's own, on a thread that waits for their
 * operation in a public call. Leaves the job to the copier while operations in stream order are in
 * flight, or another thread is here. sl_copier_settle() has to follow while sl_copier_helps().
 */
void sl_copier_help(struct sl_staging *staging, struct sl_copy_job *job);
/* Awaits the copies of this thread for a short time; later the copier does. */
void sl_copier_settle(void);
bool sl_copier_helps(void);

#endif
