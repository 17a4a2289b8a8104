/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The way between storage and the memory of a device: pinned memory in slots, the rings that
 * operations in stream order turn them by, the doorbell that watches what the device writes, and the
 * copier that calls the driver for operations that are awaited on the host.
 */
#ifndef SL_STAGING_H
#define SL_STAGING_H

#include "core/core.h"
#include "device/device.h"

struct sl_staging;

/* The least memory of a slot; all of them are powers of two. */
#define SL_SLOT_LEAST ((size_t)4096)

/* The two parts of the memory, so that neither kind of operation can use up what the other needs. */
enum sl_part_of { SL_PART_STREAM, SL_PART_HOST, SL_PARTS_OF };

/*
 * Pinned memory for one device of one context, its copier and its doorbell. Calls the driver, which
 * may hold it up while waits are pending: from public entry points, with nothing locked that ends one.
 * memory: of the application, registered with the device, or NULL. With a sentence on failure.
 */
int sl_staging_start(struct sl_device *device, const struct sl_settings *settings, void *memory,
                     size_t length, struct sl_staging **out);
/* The process ends: what is in flight fails, and the threads are joined. NULL is allowed, here and below. */
void sl_staging_abandon(struct sl_staging *staging);
/* After the last operation: joins the threads. */
void sl_staging_stop(struct sl_staging *staging);
/* After the threads that submit have been joined. Calls the driver. */
void sl_staging_free(struct sl_staging *staging);
struct sl_device *sl_staging_device(const struct sl_staging *staging);
/* Bytes of the largest slot that a part can ever give. */
size_t sl_staging_largest(const struct sl_staging *staging, enum sl_part_of part);
/* Bytes of one part of a budget; 0: too little for any slot. */
size_t sl_staging_part(uint64_t budget, enum sl_part_of part);

/* -------------------------------------------------------------------------------------- slot */

/*
 * Pinned memory and, in stream order, two words on cache lines of their own in memory that the device
 * has mapped. One word is written by the processor alone, the other by the device alone. Both count
 * the turns of the slot, only move forward, and are equal while nobody has the slot.
 */
struct sl_slot {
	char *data;            /* NULL: words only */
	size_t length;         /* of data */
	_Atomic uint32_t *cpu; /* NULL: no words */
	_Atomic uint32_t *gpu;
	uint32_t base; /* both words, when the slot was taken */
	uint32_t
		entered; /* the last turn that was to be enqueued; whose lock: see struct sl_ring */
	uint32_t written; /* the last that the device's word will come to */
	bool lost;        /* the device may still use it: it does not come back */
};

/* So many bytes will be put into slots, for the device to copy. Any thread, as is the next. */
void sl_slots_expect(struct sl_staging *staging, uint64_t bytes);
/* So many of them were, or never will be; length of them by the calling thread, at data. */
void sl_slots_got(struct sl_staging *staging, uint64_t bytes, const char *data, size_t length);

/* Asks for slots, all at once; first come, first served within a part. */
struct sl_ask {
	enum sl_part_of part;
	bool words; /* with words */
	unsigned count;
	size_t length;                    /* of each slot; 0: words only */
	struct sl_slot *slots;            /* count of them, filled when they are granted */
	void (*granted)(struct sl_ask *); /* any thread, no lock held */
	_Atomic uint32_t *word;           /* the asking thread's own */
	struct sl_list link;              /* guarded by the staging's mutex, as is waiting */
	bool waiting;
	bool refused; /* granted, and there will be none: the device, or so much memory, is lost */
};
/* True: granted now; granted() is not called. False: it will be; or it was not to wait, and there is no ask. */
bool sl_slots_take(struct sl_staging *staging, struct sl_ask *ask, bool wait);
/* True: the ask was waiting, and is not granted any more. */
bool sl_slots_withdraw(struct sl_staging *staging, struct sl_ask *ask);
void sl_slots_give(struct sl_staging *staging, enum sl_part_of part, struct sl_slot *slots,
                   unsigned count);

/* -------------------------------------------------------------------------------------- ring */

/*
 * The slots that one operation in stream order cycles through: chunk i takes slot i % count, in the
 * turn after the slot's last. What the words of a slot say of turn t:
 *
 *   read    the processor's: chunk is in the slot     the device's: it has been copied out
 *   write   the device's: chunk is in the slot        the processor's: it has been stored
 *
 * The stream is given, for each chunk of a read, an await of the processor's word for t, the copy, a
 * write of the device's word; of a write, an await of the processor's word for t - 1 and the same.
 * Everything is enqueued by the submitting call. What the processor does waits for words that the
 * device writes for what was enqueued earlier, and for nothing else, so every await ends.
 *
 * `entered` and the processor's words change under the operation's lock, by these functions only.
 */
struct sl_ring {
	struct sl_staging *staging;
	bool write;
	unsigned count;
	struct sl_slot *slots;
	uint64_t entered; /* chunks */

	/* For the doorbell. All on its thread, no lock held, while the ring is watched. */
	void (*moved)(
		struct sl_ring *); /* a word of the device has changed, or the device is lost */
	void (*hold)(
		struct sl_ring *); /* with the doorbell's mutex: keeps the ring until release() */
	void (*release)(struct sl_ring *);
	struct sl_list link; /* guarded by the doorbell's mutex, as are the next */
	uint32_t seen;
	bool told; /* that the device is lost */
};

/* Turns for so many more chunks, which are never taken back. Before anything is enqueued. */
void sl_ring_enter(struct sl_ring *ring, uint64_t chunks);
/* Only so many chunks were enqueued after all, and nothing more will be. Then sl_ring_stop(). */
void sl_ring_retreat(struct sl_ring *ring, uint64_t chunks);
/* The slot of a chunk may be filled (read), or holds it (write). */
bool sl_ring_ready(const struct sl_ring *ring, uint64_t chunk);
/* The processor has done its part of a chunk. Not after sl_ring_stop(). */
void sl_ring_store(struct sl_ring *ring, uint64_t chunk);
/* Lets everything that is enqueued for that slot, or will be within the turns that were entered, run
 * out. */
void sl_ring_stop(struct sl_ring *ring, unsigned slot);
/* Whether the device has done all the turns that were enqueued. */
bool sl_ring_rests(const struct sl_ring *ring);
/* Chunks that the device has done. */
uint64_t sl_ring_passed(const struct sl_ring *ring);
/* The await before the copies of a chunk; false: it would be over. The write behind them. */
bool sl_ring_await(const struct sl_ring *ring, uint64_t chunk, struct sl_command *out);
void sl_ring_write(const struct sl_ring *ring, uint64_t chunk, struct sl_command *out);

/* Commands in flight on the device, for this context: a bound well below what a channel holds. */
#define SL_COMMANDS_MOST 768
/* Waits until so many more may be enqueued, first come, first served; not longer than others are in flight. False:
 * it would wait, and was not to. */
bool sl_commands_take(struct sl_staging *staging, unsigned count, bool wait);
void sl_commands_give(struct sl_staging *staging, unsigned count);

/* ---------------------------------------------------------------------------------- doorbell */

void sl_bell_watch(struct sl_ring *ring);
/* Not watched any more when it returns; moved() may still be running. */
void sl_bell_leave(struct sl_ring *ring);
/* The device is gone: nothing that it has will be done. */
bool sl_staging_lost(const struct sl_staging *staging);

/* ------------------------------------------------------------------------------------ copier */

/* Copies between slots and the device's memory, by the one thread that calls the driver. */
struct sl_copy {
	bool drains; /* copies nothing, and is over when the stream has done all it holds */
	sluice_stream stream; /* that one */
	sluice_event event; /* or when this has come, which the copier frees; NULL: there is none */
	bool to_device;
	/* The copies one by one, from 0; false past the last. The copier's thread. */
	bool (*next)(struct sl_copy *, struct sl_command *out);
	/* Over: the device does not touch the slot any more. The copier's thread, no lock held. */
	void (*done)(struct sl_copy *, int error);
	struct sl_list link;
};
void sl_copier_submit(struct sl_staging *staging, struct sl_copy *copy);

#endif
