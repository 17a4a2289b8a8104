/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the emulated device offer each other. */
#ifndef SL_EMULATED_H
#define SL_EMULATED_H

#include "device/emulated/state.h"

/* -------------------------------------------------------------------------------- emulated.c */

extern const struct sl_device_ops sl_emulated_ops;
/* Starts the device's threads at its first use. */
int sl_emulated_start(struct emulated *device);
/* Returns the emulated device with that public number, or NULL with a sentence. */
struct emulated *sl_emulated_numbered(int device);
struct emulated *sl_emulated_each(unsigned index);
static inline bool sl_emulated_started(struct emulated *device)
{
	return atomic_load_explicit(&device->started, memory_order_acquire);
}
static inline struct emulated *sl_emulated_of(struct sl_device *device)
{
	return SL_CONTAINER(device, struct emulated, base);
}
/* Returns the member of the set that contains the byte, or NULL. */
struct sl_interval *sl_emulated_lookup(const struct sl_intervals *set, const void *address);

/* ----------------------------------------------------------------------------------- calls.c */

/* Counts of a thread's calls. Kept after the thread ends, because counts include ended threads. */
struct call_record {
	struct call_record *next;
	char name[16];
	_Atomic uint64_t calls[SLUICE_EMULATED_KINDS];
};
extern struct emulated_calls {
	_Atomic(struct call_record *) records; /* list that only grows at its head */
	struct {
		/* calls up to and including the failing call; 0: none fails */
		_Atomic uint64_t left;
		_Atomic int error; /* set before left */
	} failures[SLUICE_EMULATED_KINDS];
} sl_emulated_calls;

/*
 * Begin and end every driver call. enter() counts the call, fails if the call was made to fail or
 * the device has stopped, and on success returns with the mutex held. leave() releases the mutex.
 */
int sl_emulated_enter(struct emulated *device, enum sluice_emulated_kind kind)
	SL_THREAD_SAFETY(try_acquire_capability(0, &device->mutex));
void sl_emulated_leave(struct emulated *device) SL_RELEASES(&device->mutex);
/* Enters as enter() does, also on a stopped device, to release; the caller looks at error. */
int sl_emulated_enter_to_release(struct emulated *device, enum sluice_emulated_kind kind)
	SL_THREAD_SAFETY(try_acquire_capability(0, &device->mutex));
/* Counts a call without entering; returns the error to inject, or 0. */
int sl_emulated_count(enum sluice_emulated_kind kind);
/* Sleeps on a condition of the device and lists the call in the report. */
void sl_emulated_sleep(struct emulated *device, pthread_cond_t *on, const char *call,
                       const char *why) SL_REQUIRES(&device->mutex);
/* Waits while a thread is in free. Returns 0, or the device's error. */
int sl_emulated_pass(struct emulated *device, const char *call) SL_REQUIRES(&device->mutex);
/* Returns a number below limit, from the device's seed. */
uint64_t sl_emulated_random(struct emulated *device, uint64_t limit) SL_REQUIRES(&device->mutex);
/* Stops the device with that error. */
void sl_emulated_fault(struct emulated *device, int error) SL_REQUIRES(&device->mutex);

/* ---------------------------------------------------------------------------------- memory.c */

enum memory_kind {
	MEMORY_DEVICE,
	MEMORY_READ_ONLY, /* device memory that is mapped read-only */
	MEMORY_REGISTERED,
	MEMORY_HOST,
	MEMORY_WRONG,
	MEMORY_FOREIGN
};
/* Classifies a range; for the first four kinds *bytes is its mapping. */
enum memory_kind sl_emulated_memory_kind(struct emulated *device, const void *memory, size_t length,
                                         char **bytes) SL_REQUIRES(&device->mutex);
/* Returns where the bytes are of memory that another device has registered, or, if this one reaches
 * it, of its own memory; NULL: it is none, or not all of it is there. Takes the other's mutex. */
char *sl_emulated_peer(struct emulated *device, const void *memory, size_t length, bool reaches);
/* As the contract's. `other` may be NULL: any. */
bool sl_emulated_reach(struct sl_device *device, struct sl_device *other);
bool sl_emulated_holds(struct emulated *device, const void *memory);
int sl_emulated_alloc(struct sl_device *device, size_t length, void **out);
int sl_emulated_free(struct sl_device *device, void *memory);
int sl_emulated_register(struct sl_device *device, void *memory, size_t length);
int sl_emulated_unregister(struct sl_device *device, void *memory);
int sl_emulated_allocation(struct sl_device *device, const void *memory, struct sl_allocation *out);
bool sl_emulated_registered(struct sl_device *device, const void *memory, size_t length);
/* Makes a range of that length with a new mapping, or returns NULL. */
struct range *sl_emulated_range_new(size_t length, int protection, int flags, int fd);
void sl_emulated_range_free(struct range *range);
/* Assigns an address to the range; counts as a call of that kind. */
int sl_emulated_range_add(struct emulated *device, enum sluice_emulated_kind kind, const char *call,
                          size_t length, struct range *range);
/* Returns the range of device memory that contains the byte, or NULL. */
struct range *sl_emulated_range_at(struct emulated *device, const void *memory)
	SL_REQUIRES(&device->mutex);
/* Waits for all commands pending now. With in_free, most other calls are held up meanwhile. */
int sl_emulated_drain(struct emulated *device, const char *call, bool in_free)
	SL_REQUIRES(&device->mutex);
/* Waits for all commands that use the range, which new commands cannot, and removes it. */
int sl_emulated_range_remove(struct emulated *device, const char *call, struct range *range)
	SL_REQUIRES(&device->mutex);

/* --------------------------------------------------------------------------------- sharing.c */

extern const struct sl_device_sharing sl_emulated_sharing;
/* Make a memfd that others may map; check that fd is such and as long, else -EBADMSG. */
int sl_emulated_memory_new(const struct emulated *device, size_t length, int *fd);
int sl_emulated_memory_check(const struct emulated *device, int fd, size_t length);

/* ---------------------------------------------------------------------------------- stream.c */

/* Return NULL if the handle is not of this device. */
struct stream *sl_emulated_stream(struct emulated *device, sluice_stream stream)
	SL_REQUIRES(&device->mutex);
struct event *sl_emulated_event(struct emulated *device, sluice_event event)
	SL_REQUIRES(&device->mutex);
int sl_emulated_stream_new(struct sl_device *device, sluice_stream *out);
int sl_emulated_stream_free(struct sl_device *device, sluice_stream stream);
int sl_emulated_stream_query(struct sl_device *device, sluice_stream stream);
int sl_emulated_stream_synchronize(struct sl_device *device, sluice_stream stream);
int sl_emulated_stream_check(struct sl_device *device, sluice_stream stream);
int sl_emulated_event_new(struct sl_device *device, sluice_event *out);
int sl_emulated_event_free(struct sl_device *device, sluice_event event);
int sl_emulated_event_query(struct sl_device *device, sluice_event event);
int sl_emulated_event_synchronize(struct sl_device *device, sluice_event event);
/* Waits until both commands, of which either may be NULL, are done. */
int sl_emulated_wait_for(struct emulated *device, struct command *const commands[2],
                         const char *call) SL_REQUIRES(&device->mutex);

/* --------------------------------------------------------------------------------- enqueue.c */

bool sl_emulated_joins(struct sl_device *device, sluice_stream stream);
int sl_emulated_enqueue(struct sl_device *device, sluice_stream stream,
                        const struct sl_command *commands, size_t count, size_t *taken);
int sl_emulated_copy(struct sl_device *device, sluice_stream stream, void *to, const void *from,
                     size_t length, bool wait);
int sl_emulated_event_record(struct sl_device *device, sluice_event event, sluice_stream stream);
int sl_emulated_event_await(struct sl_device *device, sluice_event event, sluice_stream stream);
/* Enqueues a call of the function, as a KERNEL or as a FUNCTION of the host. */
int sl_emulated_launch(int device, sluice_stream stream, enum command_kind kind,
                       void (*function)(void *), void *argument);

/* --------------------------------------------------------------------------------- channel.c */

void sl_emulated_channels_init(struct emulated *device);
/* Chooses a channel for the next command of that type; false if all are full. */
bool sl_emulated_channel(struct emulated *device, struct stream *stream, enum channel_type type,
                         struct channel **out) SL_REQUIRES(&device->mutex);
void sl_emulated_channel_enter(struct command *command, enum channel_type type,
                               struct channel *channel);
void sl_emulated_channel_leave(struct command *command);

/* ---------------------------------------------------------------------------- emulated_engine.c */

void *sl_emulated_engine(void *device);
void *sl_emulated_functions(void *device);
/* Returns true if no earlier work of other streams must come first. */
bool sl_emulated_in_order(struct emulated *device, const struct command *command)
	SL_REQUIRES(&device->mutex);
/* Removes a command from the device and releases its waiters. */
void sl_emulated_retire(struct emulated *device, struct command *command)
	SL_REQUIRES(&device->mutex);

#endif
