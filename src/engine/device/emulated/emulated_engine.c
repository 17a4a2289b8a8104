/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The threads of an emulated device
 *
 * The engine thread executes all commands but host functions, which a second thread calls.
 *
 * Threads: this file is those two. Both sleep on conditions of the device's mutex (`work`,
 * `function`), which enqueuing, the end of a command, and the end of a host function signal.
 */
#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "device/emulated/emulated.h"

/* Words change without a signal to the engine: it spins, then sleeps briefly. */
#define SPINS      64
#define PAUSE_NS   ((int64_t)5000)
#define PAUSE_MOST ((int64_t)200000)

/* ------------------------------------------------------------------------- what could run */

static bool engine_word_reached(const struct command *command)
{
	uint32_t now = atomic_load_explicit(command->word.at, memory_order_acquire);

	return (int32_t)(now - command->word.value) >= 0;
}

static struct command *first_command(struct stream *stream)
{
	return sl_list_first(&stream->commands, struct command, in_stream);
}

/*
 * Returns true if the command must wait for other streams: the default stream is ordered after all
 * earlier work of blocking streams, and they after the default stream.
 */
static bool behind_others(struct emulated *device, const struct command *command)
{
	if (command->stream != &device->legacy)
		return command->stream->blocking && device->legacy.count &&
		       first_command(&device->legacy)->sequence < command->sequence;
	sl_list_each_of (stream, &device->busy, struct stream, busy)
		if (stream->blocking && first_command(stream)->sequence < command->sequence)
			return true;
	return false;
}

bool sl_emulated_in_order(struct emulated *device, const struct command *command)
{
	if (command->channel && command->channel->commands.next != &command->in_channel)
		return false;
	return !behind_others(device, command);
}

/* Result of a scan of all streams. */
struct look {
	struct command *next; /* to execute now, or NULL */
	unsigned ready;       /* number of candidates */
	bool polls;           /* a command waits for a word */
	int64_t wake;         /* end of the first delay, or SL_FOREVER */
};

/* Returns true while a ready command is delayed; the delay is drawn once per command. */
static bool engine_delayed(struct emulated *device, struct command *command, struct look *look)
	SL_REQUIRES(&device->mutex)
{
	if (!device->options.seed || !device->options.delay_us)
		return false;
	int64_t now = sl_now();
	if (!command->begin) {
		command->begin = now;
		if (!sl_emulated_random(device, 2))
			command->begin +=
				sl_emulated_random(device, device->options.delay_us + UINT64_C(1)) *
				1000;
	}
	if (command->begin <= now)
		return false;
	look->wake = SL_MIN(look->wake, command->begin);
	return true;
}

static bool command_ready(struct emulated *device, struct command *command, struct look *look)
	SL_REQUIRES(&device->mutex)
{
	if (!sl_emulated_in_order(device, command))
		return false;
	switch (command->kind) {
	case AWAIT_WORD:
		if (engine_word_reached(command))
			break;
		look->polls = true;
		return false;
	case AWAIT_EVENT:
		if (command->awaited.ready)
			break;
		return false;
	case FUNCTION:
		/* Host functions run one at a time. */
		if (!device->handed)
			break;
		return false;
	default:
		break;
	}
	return !engine_delayed(device, command, look);
}

/* Chooses the next command among the heads of all streams: at random by the seed, or the oldest. */
static struct look engine_look_around(struct emulated *device) SL_REQUIRES(&device->mutex)
{
	struct look look = {.wake = SL_FOREVER};

	if (device->error || device->lending)
		return look;
	sl_list_each_of (stream, &device->busy, struct stream, busy) {
		struct command *command = first_command(stream);

		if (!command_ready(device, command, &look))
			continue;
		look.ready++;
		if (!look.next || (device->options.seed ? !sl_emulated_random(device, look.ready)
		                                        : command->sequence < look.next->sequence))
			look.next = command;
	}
	return look;
}

/* --------------------------------------------------------------------------- running it */

/* Returns true if a caller is among the waiters. */
static bool release_waiters(struct command *command, int error)
{
	struct waiter *waiter;
	bool caller = false;

	while ((waiter = sl_list_take_first(&command->waiters, struct waiter, link))) {
		waiter->ready = true;
		waiter->error = error;
		caller |= waiter->caller;
	}
	return caller;
}

static void let_waiter_go(struct command *command)
{
	switch (command->kind) {
	case RECORD:
		if (command->event)
			command->event->record = NULL;
		break;
	case AWAIT_EVENT:
		if (!command->awaited.ready)
			sl_list_remove(&command->awaited.link);
		break;
	case COPY:
		free(command->copy.staged);
		free(command->copy.batch);
		break;
	default:
		break;
	}
}

static void leave_stream(struct command *command)
{
	struct stream *stream = command->stream;

	sl_list_remove(&command->in_stream);
	if (--stream->count)
		return;
	sl_list_remove(&stream->busy);
	if (stream->freed) {
		sl_list_remove(&stream->link);
		free(stream);
	}
}

void sl_emulated_retire(struct emulated *device, struct command *command)
{
	let_waiter_go(command);
	if (release_waiters(command, device->error))
		pthread_cond_broadcast(&device->reached);
	sl_emulated_channel_leave(command);
	sl_list_remove(&command->in_device);
	leave_stream(command);
	sl_list_append(&device->spare, &command->in_device);
	if (device->sleepers)
		pthread_cond_broadcast(&device->progress);
}

static void copy_bytes(const struct copy *copy)
{
	if (copy->length)
		memcpy(copy->to_bytes, copy->from_bytes, copy->length);
}

/* The copies of a batch have no order: the last comes first. */
static void engine_copy(const struct command *command)
{
	if (!command->copy.batch)
		copy_bytes(&command->copy.one);
	for (size_t i = command->copy.batch ? command->copy.count : 0; i--;)
		copy_bytes(&command->copy.batch[i]);
}

static bool copies_wrong_memory(const struct command *command)
{
	bool wrong = command->copy.one.wrong;

	for (size_t i = command->copy.batch ? command->copy.count : 0; i--;)
		wrong |= command->copy.batch[i].wrong;
	return wrong;
}

/* Executes a command, copies and kernels without the mutex; freeing waits for `executing`. */
static void engine_execute(struct emulated *device, struct command *command)
	SL_REQUIRES(&device->mutex)
{
	device->executing = true;
	sl_mutex_unlock(&device->mutex);
	if (command->kind == COPY)
		engine_copy(command);
	if (command->kind == KERNEL)
		command->call.function(command->call.argument);
	sl_mutex_lock(&device->mutex);
	device->executing = false;
	sl_emulated_retire(device, command);
}

static void engine_run(struct emulated *device, struct command *command) SL_REQUIRES(&device->mutex)
{
	switch (command->kind) {
	case COPY:
		if (copies_wrong_memory(command)) {
			sl_emulated_fault(device, -EFAULT);
			return;
		}
		engine_execute(device, command);
		return;
	case KERNEL:
		engine_execute(device, command);
		return;
	case FUNCTION:
		device->handed = command;
		sl_emulated_channel_leave(command);
		if (device->sleepers)
			pthread_cond_broadcast(&device->progress);
		pthread_cond_signal(&device->function);
		return;
	case WRITE_WORD:
		atomic_store_explicit(command->word.at, command->word.value, memory_order_release);
		break;
	default:
		break;
	}
	sl_emulated_retire(device, command);
}

/* ---------------------------------------------------------------------------- the threads */

/* Sleeps until a command arrives or a delay ends, or briefly if a command awaits a word. */
static void engine_rest(struct emulated *device, const struct look *look, unsigned idle)
	SL_REQUIRES(&device->mutex)
{
	unsigned doublings = idle < SPINS ? 0 : SL_MIN(idle - SPINS, 10u);
	int64_t wake = look->wake;

	if (look->polls && idle < SPINS) {
		sl_mutex_unlock(&device->mutex);
		sched_yield();
		sl_mutex_lock(&device->mutex);
		return;
	}
	if (look->polls)
		wake = SL_MIN(wake, sl_now() + SL_MIN(PAUSE_NS << doublings, PAUSE_MOST));
	sl_cond_wait(&device->work, &device->mutex, wake);
}

void *sl_emulated_engine(void *argument)
{
	struct emulated *device = argument;
	unsigned idle = 0; /* consecutive scans without result */

	sl_mutex_lock(&device->mutex);
	for (;;) {
		struct look look = engine_look_around(device);

		if (look.next) {
			idle = 0;
			engine_run(device, look.next);
		} else {
			engine_rest(device, &look, idle++);
		}
	}
	return NULL;
}

void *sl_emulated_functions(void *argument)
{
	struct emulated *device = argument;
	struct command *command;

	sl_mutex_lock(&device->mutex);
	for (;;) {
		while (!device->handed || device->error)
			sl_cond_wait(&device->function, &device->mutex, SL_FOREVER);
		command = device->handed;
		device->calling = true;
		sl_mutex_unlock(&device->mutex);
		command->call.function(command->call.argument);
		sl_mutex_lock(&device->mutex);
		device->calling = false;
		device->handed = NULL;
		sl_emulated_retire(device, command);
		pthread_cond_signal(&device->work);
	}
	return NULL;
}
