/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The emulated device, for its own files only.
 *
 * A device is one mutex, what it guards, and two threads: the engine runs commands, the other one host
 * functions. Callers wait on a condition; nothing waits with the mutex held, and it is never held while
 * bytes are copied or foreign code runs.
 */
#ifndef SL_EMULATED_H
#define SL_EMULATED_H

#include <sluice/emulated.h>

#include "device/device.h"

#define EMULATED_DEVICES      2
#define EMULATED_MEMORY_BYTES (UINT64_C(16) << 30)
/* Addresses are not used again until all have been, so that a use after free is found out. */
#define EMULATED_ARENA_BYTES (UINT64_C(4) * EMULATED_MEMORY_BYTES)
/* As measured on one H100. */
#define COPY_CHANNELS    4
#define KERNEL_CHANNELS  8
#define CHANNEL_COMMANDS 1000

struct emulated;

/* What a stream's commands pass through: all of one channel begin in the order of enqueuing. */
enum channel_type { CHANNEL_COPY, CHANNEL_KERNEL, CHANNEL_TYPES, CHANNEL_NONE = CHANNEL_TYPES };
struct channel {
	struct sl_list commands;
	unsigned count;
};

struct stream {
	struct sl_interval handle; /* in device->streams, but of the two that every device has */
	struct sl_list link;       /* in device->all_streams */
	struct sl_list busy;       /* in device->busy while it has commands */
	struct sl_list commands;
	unsigned count;
	struct channel *channels[CHANNEL_TYPES]; /* kept while in_channel is not 0 */
	unsigned in_channel[CHANNEL_TYPES];
	bool blocking; /* ordered with the default stream; of sluice's streams only the per-thread one */
	bool freed; /* goes with its last command */
};

struct event {
	struct sl_interval handle; /* in device->events */
	struct command *record;    /* the last one, until it is done */
};

/* Waits for the end of a command: a caller on its stack, or the await of an event. */
struct waiter {
	struct sl_list link; /* in command->waiters until then */
	bool ready;
	bool caller;
	int error; /* the device's, when it was ready */
};

enum command_kind { AWAIT_WORD, WRITE_WORD, COPY, RECORD, AWAIT_EVENT, KERNEL, FUNCTION };

struct command {
	enum command_kind kind;
	union {
		struct {
			_Atomic uint32_t *at;
			uint32_t value;
		} word;
		struct {
			void *to;         /* as the caller said */
			const void *from; /* the same */
			size_t length;
			char *to_bytes;         /* where they are */
			const char *from_bytes; /* the same */
			void *staged; /* the source, if it is the command's own; freed with it */
			bool wrong;   /* no memory of the device, or not any more */
		} copy;
		struct event *event; /* RECORD; NULL: it was freed or recorded again */
		struct waiter awaited;
		struct {
			void (*function)(void *);
			void *argument;
		} call;
	};
	/* From here on the device's. */
	struct stream *stream;
	struct channel *channel; /* NULL: in none, or not any more */
	enum channel_type type;
	struct sl_list in_stream, in_channel, in_device;
	struct sl_list waiters;
	uint64_t sequence; /* of all that the device was given, from 1 */
	int64_t begin;     /* not before; 0: not drawn yet */
};

/* How a range came to be, which says how it ends. */
enum range_kind { RANGE_ALLOCATED, RANGE_MADE, RANGE_MAPPED, RANGE_BORROWED };

/* Device memory, or host memory that is registered. */
struct range {
	struct sl_interval at;
	char *bytes;   /* where the bytes are */
	size_t length; /* of that mapping; 0: it is not the range's */
	size_t taken;  /* of the device's memory */
	enum range_kind kind;
	bool read_only;
	bool leaving;       /* its end has begun: no new command may use it */
	int lent;           /* the descriptor that others open; -1: none */
	struct range *also; /* the same in another device's allocations, or NULL; see there */
	struct emulated *there;
};

/* What a call that goes to sleep waits for. On its stack. */
struct held {
	struct sl_list link;
	const char *call, *why;
	char thread[16];
};

struct emulated {
	struct sl_device base;
	struct sl_mutex mutex;
	pthread_cond_t work;     /* ends the engine's sleep: a command, a function's end */
	pthread_cond_t function; /* ends that of the other thread */
	pthread_cond_t progress; /* a command ended, or what held a call up */
	pthread_cond_t reached;  /* a caller's waiter is ready */
	_Atomic bool started;    /* set once, under mutex, after what never changes later */
	char *arena;             /* set before started; the addresses of the device's memory */

	/* Guarded by mutex, all the rest. */
	bool engine_runs, functions_run; /* the threads exist */
	struct sluice_emulated_options options;
	uint64_t random;
	int error; /* why nothing goes on; 0 */

	struct sl_intervals allocations, registrations; /* of struct range */
	uint64_t used, next; /* bytes taken; where to look in the arena */

	struct sl_intervals streams, events;
	struct sl_list all_streams, busy;
	struct stream legacy, per_thread;
	struct channel copy_channels[COPY_CHANNELS];
	struct channel kernel_channels[KERNEL_CHANNELS];
	struct sl_list commands; /* not done, in the order of their sequence */
	struct sl_list spare;    /* commands to use again */
	uint64_t sequence;
	bool executing;         /* the engine is in a copy or a kernel, without the mutex */
	struct command *handed; /* to the thread of host functions */
	bool calling;           /* it is in that function */
	struct sl_list held;    /* calls that sleep */
	unsigned sleepers;      /* of them, those on progress */
	unsigned frees, stuck;  /* calls held up in free; by a full channel */
	unsigned lending;       /* calls for which the engine begins nothing */
};

/* -------------------------------------------------------------------------- emulated.c */

extern const struct sl_device_ops sl_emulated_ops;
/* Makes the device's threads at its first use. */
int sl_emulated_start(struct emulated *device);
/* By public number; NULL, with a sentence: that is none. */
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
/* The member of the set that holds the byte; NULL. */
struct sl_interval *sl_emulated_lookup(const struct sl_intervals *set, const void *address);

/* -------------------------------------------------------------------- emulated_calls.c */

/*
 * Every call of a driver lies between these two. enter() counts it, fails it if that was asked for or
 * the device does nothing any more, and on success returns with the mutex held; leave() lets it go.
 */
int sl_emulated_enter(struct emulated *device, enum sluice_emulated_kind kind);
void sl_emulated_leave(struct emulated *device);
/* As enter(), but a device that does nothing any more still lets go of what it has; see error. */
int sl_emulated_enter_to_release(struct emulated *device, enum sluice_emulated_kind kind);
/* Only counts; the error that was asked for, or 0. */
int sl_emulated_count(enum sluice_emulated_kind kind);
/* Sleeps on a condition of the device, mutex held, and says so in the report. */
void sl_emulated_sleep(struct emulated *device, pthread_cond_t *on, const char *call,
                       const char *why);
/* As one that a call to free holds up: until there is none, or an error. */
int sl_emulated_pass(struct emulated *device, const char *call);
/* Below limit, by the device's seed. Mutex held. */
uint64_t sl_emulated_random(struct emulated *device, uint64_t limit);
/* What the device does not survive. Mutex held. */
void sl_emulated_fault(struct emulated *device, int error);

/* ------------------------------------------------------------------- emulated_memory.c */

enum place {
	PLACE_DEVICE,
	PLACE_READ_ONLY, /* the device's too */
	PLACE_REGISTERED,
	PLACE_HOST,
	PLACE_WRONG,
	PLACE_FOREIGN
};
/* Where a range lies and, of the first four, its bytes. Mutex held. */
enum place sl_emulated_place(struct emulated *device, const void *memory, size_t length,
                             char **bytes);
bool sl_emulated_holds(struct emulated *device, const void *memory);
int sl_emulated_alloc(struct sl_device *device, size_t length, void **out);
int sl_emulated_free(struct sl_device *device, void *memory);
int sl_emulated_register(struct sl_device *device, void *memory, size_t length);
int sl_emulated_unregister(struct sl_device *device, void *memory);
bool sl_emulated_registered(struct sl_device *device, const void *memory, size_t length);
/* What emulated_sharing.c has in common with that. A range with its length and bytes, or NULL: */
struct range *sl_emulated_range_new(size_t length, int protection, int flags, int fd);
void sl_emulated_range_free(struct range *range);
/* Gives it an address; counts as a call of that kind. */
int sl_emulated_range_add(struct emulated *device, enum sluice_emulated_kind kind, const char *call,
                          size_t length, struct range *range);
/* The range of device memory that has the byte, or NULL. Mutex held, here and below. */
struct range *sl_emulated_range_at(struct emulated *device, const void *memory);
/* Waits for everything that the device holds now. In free this holds up most other calls. */
int sl_emulated_drain(struct emulated *device, const char *call, bool in_free);
/* The same for what uses the range, which is given to nothing any more, and takes it out. */
int sl_emulated_range_remove(struct emulated *device, const char *call, struct range *range);

/* ------------------------------------------------------------------ emulated_sharing.c */

extern const struct sl_device_sharing sl_emulated_sharing;
/* A memfd as others may map it; and whether that is one of the device's, with so many bytes, or -EBADMSG. */
int sl_emulated_memory_new(const struct emulated *device, size_t length, int *fd);
int sl_emulated_memory_check(const struct emulated *device, int fd, size_t length);

/* ------------------------------------------------------------------- emulated_stream.c */

/* NULL: none of this device. Mutex held. */
struct stream *sl_emulated_stream(struct emulated *device, sluice_stream stream);
struct event *sl_emulated_event(struct emulated *device, sluice_event event);
int sl_emulated_stream_new(struct sl_device *device, sluice_stream *out);
int sl_emulated_stream_free(struct sl_device *device, sluice_stream stream);
int sl_emulated_stream_query(struct sl_device *device, sluice_stream stream);
int sl_emulated_stream_synchronize(struct sl_device *device, sluice_stream stream);
int sl_emulated_stream_check(struct sl_device *device, sluice_stream stream);
int sl_emulated_event_new(struct sl_device *device, sluice_event *out);
int sl_emulated_event_free(struct sl_device *device, sluice_event event);
int sl_emulated_event_query(struct sl_device *device, sluice_event event);
int sl_emulated_event_synchronize(struct sl_device *device, sluice_event event);
/* Until these are done, at most two, NULL allowed. Mutex held. */
int sl_emulated_wait_for(struct emulated *device, struct command *const commands[2],
                         const char *call);

/* ------------------------------------------------------------------ emulated_enqueue.c */

int sl_emulated_enqueue(struct sl_device *device, sluice_stream stream,
                        const struct sl_command *commands, size_t count, size_t *taken);
int sl_emulated_copy(struct sl_device *device, sluice_stream stream, void *to, const void *from,
                     size_t length, bool wait);
int sl_emulated_event_record(struct sl_device *device, sluice_event event, sluice_stream stream);
int sl_emulated_event_await(struct sl_device *device, sluice_event event, sluice_stream stream);

/* ------------------------------------------------------------------ emulated_channel.c */

void sl_emulated_channels_init(struct emulated *device);
/* Chooses a channel for the next command of that type; false: there is no room. Mutex held. */
bool sl_emulated_channel(struct emulated *device, struct stream *stream, enum channel_type type,
                         struct channel **out);
void sl_emulated_channel_enter(struct command *command, enum channel_type type,
                               struct channel *channel);
void sl_emulated_channel_leave(struct command *command);

/* ------------------------------------------------------------------- emulated_engine.c */

void *sl_emulated_engine(void *device);
void *sl_emulated_functions(void *device);
/* Whether a command's word has come. */
bool sl_emulated_word_reached(const struct command *command);
/* Whether what other streams were given has to come first. Mutex held. */
bool sl_emulated_in_order(struct emulated *device, const struct command *command);
/* Takes a command off the device; what waits for it goes on. Mutex held. */
void sl_emulated_retire(struct emulated *device, struct command *command);

#endif
