/* SPDX-License-Identifier: Apache-2.0 */
/*
 * State of an emulated device.
 *
 * A device is a mutex, the state that the mutex guards, and two threads: the engine executes
 * commands, the other thread calls host functions. Callers wait on conditions. Nothing waits,
 * copies bytes or runs foreign code while holding the mutex.
 */
#ifndef SL_EMULATED_STATE_H
#define SL_EMULATED_STATE_H

#include <sluice/emulated.h>

#include "device/device.h"

#define EMULATED_DEVICES      2
#define EMULATED_MEMORY_BYTES (UINT64_C(16) << 30)
/* Addresses are reused only after all others, so that a use after free is detected. */
#define EMULATED_ARENA_BYTES (UINT64_C(4) * EMULATED_MEMORY_BYTES)
/* As measured on an H100. */
#define COPY_CHANNELS    4
#define KERNEL_CHANNELS  8
#define CHANNEL_COMMANDS 1000

struct emulated;

/* Kinds of channels. Commands of a channel start in the order in which they were enqueued. */
enum channel_type { CHANNEL_COPY, CHANNEL_KERNEL, CHANNEL_TYPES, CHANNEL_NONE = CHANNEL_TYPES };
struct channel {
	struct sl_list commands;
	unsigned count; /* the costs of the commands */
};

struct stream {
	struct sl_interval handle; /* in device->streams; unused in the default streams */
	struct sl_list link;       /* in device->all_streams */
	struct sl_list busy;       /* in device->busy while the stream has commands */
	struct sl_list commands;
	unsigned count;
	struct channel *channels[CHANNEL_TYPES]; /* assigned while in_channel is not 0 */
	unsigned in_channel[CHANNEL_TYPES];
	/* ordered with the default stream; of the streams here only the per-thread stream */
	bool blocking;
	bool freed; /* released with its last command */
};

struct event {
	struct sl_interval handle; /* in device->events */
	struct command *record;    /* the last record, until executed */
};

/* A waiter for the end of a command: a caller, on its stack, or the await of an event. */
struct waiter {
	struct sl_list link; /* in command->waiters until ready */
	bool ready;
	bool caller;
	int error; /* error of the device when ready was set */
};

struct copy {
	void *to;         /* device address as the caller gave it */
	const void *from; /* the same */
	size_t length;
	char *peer;             /* the source's bytes, if only another device has them */
	char *to_bytes;         /* address of the bytes */
	const char *from_bytes; /* the same */
	bool wrong;             /* memory is gone: fails when executed */
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
			struct copy one;
			struct copy *batch; /* instead; freed with the command, or NULL */
			size_t count;       /* of them */
			/* private copy of the source, freed with the command, or NULL */
			void *staged;
		} copy;
		struct event *event; /* RECORD; NULL if freed or recorded again */
		struct waiter awaited;
		struct {
			void (*function)(void *);
			void *argument;
		} call;
	};
	/* Managed by the device from here on. */
	struct stream *stream;
	struct channel *channel; /* NULL if in no channel */
	unsigned cost;           /* sl_copies_cost(), or 1 */
	enum channel_type type;
	struct sl_list in_stream, in_channel, in_device;
	struct sl_list waiters;
	uint64_t sequence; /* position among all commands of the device, from 1 */
	int64_t begin;     /* earliest start; 0: not drawn yet */
};

/* How a range was made, which determines how it is released. */
enum range_kind { RANGE_ALLOCATED, RANGE_MADE, RANGE_MAPPED, RANGE_BORROWED };

/* Device memory, or host memory that is registered. */
struct range {
	struct sl_interval at;
	char *bytes;   /* mapping of the bytes */
	size_t length; /* bytes mapped; 0: the mapping belongs to another range */
	size_t taken;  /* bytes of device memory used */
	enum range_kind kind;
	bool read_only;
	bool leaving;       /* being removed: new commands cannot use it */
	int lent;           /* descriptor that borrowers open, or -1 */
	struct range *also; /* its twin in the allocations of `there`, or NULL */
	struct emulated *there;
};

/* A sleeping call and its reason, for the report. On the caller's stack. */
struct held {
	struct sl_list link;
	const char *call, *why;
	char thread[16];
};

struct emulated {
	struct sl_device base;
	struct sl_mutex mutex;
	pthread_cond_t work;     /* wakes the engine: a command, or the end of a function */
	pthread_cond_t function; /* wakes the thread of host functions */
	pthread_cond_t progress; /* a command or a hold-up ended */
	pthread_cond_t reached;  /* a caller's waiter is ready */
	_Atomic bool started;    /* set once, under mutex, last */
	char *arena;             /* reserved addresses; constant once started */

	/* Guarded by mutex from here on. */
	bool engine_runs, functions_run; /* the threads exist */
	struct sluice_emulated_options options;
	uint64_t random;
	int error; /* the error that stopped the device, or 0 */

	struct sl_intervals allocations, registrations; /* of struct range */
	uint64_t used, next; /* bytes used; where the next search in the arena starts */

	struct sl_intervals streams, events;
	struct sl_list all_streams, busy;
	struct stream legacy, per_thread;
	struct channel copy_channels[COPY_CHANNELS];
	struct channel kernel_channels[KERNEL_CHANNELS];
	struct sl_list commands; /* pending, in the order of their sequence */
	struct sl_list spare;    /* commands to reuse */
	uint64_t sequence;
	bool executing;         /* the engine runs a copy or kernel without the mutex */
	struct command *handed; /* given to the thread of host functions */
	bool calling;           /* that thread runs a function */
	struct sl_list held;    /* calls that sleep */
	unsigned sleepers;      /* number that sleeps on progress */
	unsigned frees, stuck;  /* calls held up in free, and by a full channel */
	unsigned lending;       /* calls for which the engine starts nothing */
};

#endif
