/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Enqueuing on an emulated device
 *
 * Puts commands into streams, and holds up the calls that a real driver would hold up.
 *
 * Threads: the callers of the driver; the engine takes the commands.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "device/emulated/emulated.h"

/* Commands are allocated in blocks and reused, never freed. */
#define BLOCK_COMMANDS 128

/* A command to enqueue, with its conditions. */
struct order {
	struct command command; /* its kind and parameters; addresses of a copy are unresolved */
	const char *call;       /* name of the call for the report */
	bool passes_free;       /* is not held up while a thread is in free */
	/* the caller will wait for the end: held up while a thread is stuck in a full channel */
	bool waits;
	bool any_host; /* copy: host memory need not be registered */
};

static struct command *new_command(struct emulated *device)
{
	struct command *spare = sl_list_take_first(&device->spare, struct command, in_device);

	if (spare)
		return spare;
	struct command *block = calloc(BLOCK_COMMANDS, sizeof(*block));
	if (!block)
		return NULL;
	for (unsigned i = 1; i < BLOCK_COMMANDS; i++)
		sl_list_append(&device->spare, &block[i].in_device);
	return block;
}

static bool is_devices_memory(enum memory_kind kind)
{
	return kind == MEMORY_DEVICE || kind == MEMORY_READ_ONLY || kind == MEMORY_WRONG;
}

/*
 * Resolves the addresses of a copy. Device memory that does not exist (any more) is an error of the
 * stream when the copy executes, as on real devices; unregistered host memory and read-only
 * mappings are refused at once.
 */
static int resolve_copy(struct emulated *device, struct copy *copy, const struct order *order,
                        enum channel_type *type) SL_REQUIRES(&device->mutex)
{
	char *to, *from;
	enum memory_kind there, here;

	there = sl_emulated_memory_kind(device, copy->to, copy->length, &to);
	here = sl_emulated_memory_kind(device, copy->from, copy->length, &from);
	if (!(is_devices_memory(there) || is_devices_memory(here)) || there == MEMORY_FOREIGN ||
	    (here == MEMORY_FOREIGN && !copy->peer) || there == MEMORY_READ_ONLY)
		return -EINVAL;
	if (here == MEMORY_HOST && copy->peer)
		here = MEMORY_REGISTERED;
	if ((there == MEMORY_HOST || here == MEMORY_HOST) && !order->any_host)
		return -EINVAL;
	if (here == MEMORY_FOREIGN)
		from = copy->peer;
	copy->to_bytes = to;
	copy->from_bytes = from;
	copy->wrong = copy->length && (there == MEMORY_WRONG || here == MEMORY_WRONG);
	*type = here == MEMORY_REGISTERED || here == MEMORY_HOST ? CHANNEL_COPY : CHANNEL_NONE;
	return 0;
}

static int resolve_copies(struct emulated *device, struct order *order, enum channel_type *type)
	SL_REQUIRES(&device->mutex)
{
	struct command *command = &order->command;
	int rc = 0;

	if (!command->copy.batch) {
		rc = resolve_copy(device, &command->copy.one, order, type);
		if (!rc && command->copy.staged)
			command->copy.one.from_bytes = command->copy.staged;
		return rc;
	}
	for (size_t i = 0; !rc && i < command->copy.count; i++) {
		rc = resolve_copy(device, &command->copy.batch[i], order, type);
		if (!command->copy.batch[i].length)
			rc = -EINVAL;
	}
	return rc;
}

static int resolve_order(struct emulated *device, struct order *order, enum channel_type *type)
	SL_REQUIRES(&device->mutex)
{
	struct command *command = &order->command;
	char *bytes;

	*type = CHANNEL_KERNEL;
	switch (command->kind) {
	case COPY:
		return resolve_copies(device, order, type);
	case AWAIT_WORD:
	case WRITE_WORD:
		if ((uintptr_t)command->word.at % sizeof(uint32_t) ||
		    sl_emulated_memory_kind(device, command->word.at, sizeof(uint32_t), &bytes) !=
		            MEMORY_REGISTERED)
			return -EINVAL;
		return 0;
	default:
		return 0;
	}
}

/* Updates the event of a new command. */
static void tie_event(struct command *command)
{
	struct event *event = command->event;

	if (command->kind == RECORD) {
		/* Awaits of the earlier record keep waiting for that record. */
		if (event->record)
			event->record->event = NULL;
		event->record = command;
	} else if (command->kind == AWAIT_EVENT) {
		command->awaited = (struct waiter){.ready = !event->record};
		if (event->record)
			sl_list_append(&event->record->waiters, &command->awaited.link);
	}
}

static void append_command(struct emulated *device, struct stream *stream, struct command *command,
                           enum channel_type type, struct channel *channel)
{
	command->stream = stream;
	command->sequence = ++device->sequence;
	command->begin = 0;
	command->cost = command->kind == COPY && command->copy.batch
	                        ? sl_copies_cost(command->copy.count)
	                        : 1;
	sl_list_init(&command->waiters);
	tie_event(command);
	sl_emulated_channel_enter(command, type, channel);
	sl_list_append(&stream->commands, &command->in_stream);
	sl_list_append(&device->commands, &command->in_device);
	if (!stream->count++)
		sl_list_append(&device->busy, &stream->busy);
	pthread_cond_signal(&device->work);
}

/* Waits until nothing holds the call up, and resolves the memory that it uses. */
static int admit_order(struct emulated *device, struct stream *stream, struct order *order,
                       enum channel_type *type, struct channel **channel)
	SL_REQUIRES(&device->mutex)
{
	int rc;

	for (;;) {
		const char *why;

		rc = device->error;
		if (!rc)
			rc = resolve_order(device, order, type);
		if (rc)
			return rc;
		if (device->frees && !order->passes_free)
			why = "another thread is in free";
		else if (device->stuck && order->waits)
			why = "another thread is in a full channel";
		else if (sl_emulated_channel(device, stream, *type, channel))
			return 0;
		else
			why = NULL;
		device->stuck += !why;
		sl_emulated_sleep(device, &device->progress, order->call,
		                  why ? why : "the channel is full");
		device->stuck -= !why;
		/* A thread that waited for the end of this hold-up looks again. */
		if (!why && !device->stuck)
			pthread_cond_broadcast(&device->progress);
	}
}

static int give_order(struct emulated *device, struct stream *stream, struct order *order,
                      struct command **out) SL_REQUIRES(&device->mutex)
{
	struct channel *channel;
	enum channel_type type;
	int rc = admit_order(device, stream, order, &type, &channel);

	if (rc)
		return rc;
	struct command *command = new_command(device);
	if (!command)
		return -ENOMEM;
	*command = order->command;
	append_command(device, stream, command, type, channel);
	*out = command;
	return 0;
}

/* Makes a driver call that enqueues a single command. */
static int give_single(struct emulated *device, sluice_stream handle,
                       enum sluice_emulated_kind kind, struct order *order)
{
	int rc = sl_emulated_enter(device, kind);
	struct command *command;

	if (rc)
		return rc;
	struct stream *stream = sl_emulated_stream(device, handle);
	rc = stream ? give_order(device, stream, order, &command) : -EINVAL;
	sl_emulated_leave(device);
	return rc;
}

/* ------------------------------------------------------------------------------- commands */

static int enqueue_word(struct emulated *device, sluice_stream stream,
                        const struct sl_command *from)
{
	bool wait = from->kind == SL_AWAIT_WORD;
	struct order order = {.command.kind = wait ? AWAIT_WORD : WRITE_WORD,
	                      .command.word = {from->word.at, from->word.value},
	                      .call = wait ? "wait for a word" : "write of a word",
	                      .passes_free = true};

	return give_single(device, stream, wait ? SLUICE_EMULATED_WAIT : SLUICE_EMULATED_WRITE,
	                   &order);
}

static struct copy copy_of(struct emulated *device, void *to, const void *from, size_t length,
                           bool reaches)
{
	return (struct copy){.to = to,
	                     .from = from,
	                     .length = length,
	                     .peer = sl_emulated_peer(device, from, length, reaches)};
}

static int enqueue_one(struct emulated *device, sluice_stream stream, const struct sl_command *from)
{
	struct order copy = {.call = "copy"};

	switch (from->kind) {
	case SL_AWAIT_WORD:
	case SL_WRITE_WORD:
		return enqueue_word(device, stream, from);
	case SL_COPY:
		copy.command.kind = COPY;
		copy.command.copy.one =
			copy_of(device, from->copy.to, from->copy.from, from->copy.length,
		                sl_emulated_reach(&device->base, NULL));
		return give_single(device, stream, SLUICE_EMULATED_COPY, &copy);
	}
	return -EINVAL;
}

static int enqueue_batch(struct emulated *device, sluice_stream stream,
                         const struct sl_command *from, size_t count)
{
	struct order order = {.call = "batch of copies"};
	struct copy *batch = calloc(count, sizeof(*batch));
	bool reaches = sl_emulated_reach(&device->base, NULL);

	if (!batch)
		return -ENOMEM;
	for (size_t i = 0; i < count; i++)
		batch[i] = copy_of(device, from[i].copy.to, from[i].copy.from, from[i].copy.length,
		                   reaches);
	order.command.kind = COPY;
	order.command.copy.batch = batch;
	order.command.copy.count = count;
	int rc = give_single(device, stream, SLUICE_EMULATED_COPY, &order);
	if (rc)
		free(batch);
	return rc;
}

/* As CUDA's driver: not on the legacy default stream. */
bool sl_emulated_joins(struct sl_device *device, sluice_stream stream)
{
	(void)device;
	return (uintptr_t)stream > 1;
}

int sl_emulated_enqueue(struct sl_device *base, sluice_stream stream,
                        const struct sl_command *commands, size_t count, size_t *taken)
{
	struct emulated *device = sl_emulated_of(base);
	bool joins = sl_emulated_joins(base, stream);
	int rc = 0;

	/* Each command, or batch, is a driver call: calls of other threads come in between. */
	for (*taken = 0; *taken < count;) {
		const struct sl_command *next = &commands[*taken];
		size_t joined = joins ? sl_copies_joined(next, count - *taken) : 0;

		rc = joined > 1 ? enqueue_batch(device, stream, next, joined)
		                : enqueue_one(device, stream, next);
		if (rc)
			break;
		*taken += SL_MAX(joined, 1);
	}
	return rc;
}

static int kind_of_bytes(struct emulated *device, const void *memory, size_t length)
{
	char *bytes;

	sl_mutex_lock(&device->mutex);
	enum memory_kind kind = sl_emulated_memory_kind(device, memory, length, &bytes);
	sl_mutex_unlock(&device->mutex);
	return kind;
}

static int copy_and_wait(struct emulated *device, sluice_stream handle, struct order *order)
{
	int rc = sl_emulated_enter(device, SLUICE_EMULATED_SYNCHRONIZE);
	struct command *commands[2] = {NULL, NULL};

	if (rc)
		return rc;
	order->waits = true;
	struct stream *stream = sl_emulated_stream(device, handle);
	rc = stream ? give_order(device, stream, order, &commands[0]) : -EINVAL;
	if (!rc)
		rc = sl_emulated_wait_for(device, commands, "copy that waits");
	/* Wait while the engine may still access the caller's memory. */
	while (device->error && device->executing)
		sl_emulated_sleep(device, &device->progress, "copy that waits", "it still runs");
	sl_emulated_leave(device);
	return rc;
}

int sl_emulated_copy(struct sl_device *base, sluice_stream stream, void *to, const void *from,
                     size_t length, bool wait)
{
	struct emulated *device = sl_emulated_of(base);
	struct order order = {.call = "copy", .any_host = true};
	void *staged = NULL;

	order.command.kind = COPY;
	order.command.copy.one = copy_of(device, to, from, length, true);
	if (wait || kind_of_bytes(device, to, length) == MEMORY_HOST)
		return copy_and_wait(device, stream, &order);
	if (kind_of_bytes(device, from, length) == MEMORY_HOST) {
		staged = malloc(length);
		if (!staged)
			return -ENOMEM;
		memcpy(staged, from, length);
		order.command.copy.staged = staged;
	}
	int rc = give_single(device, stream, SLUICE_EMULATED_COPY, &order);
	if (rc)
		free(staged);
	return rc;
}

/* ------------------------------------------------------------------- events and functions */

static int give_event(struct sl_device *base, sluice_event handle, sluice_stream stream,
                      struct order *order)
{
	struct emulated *device = sl_emulated_of(base);

	sl_mutex_lock(&device->mutex);
	order->command.event = sl_emulated_event(device, handle);
	sl_mutex_unlock(&device->mutex);
	if (!order->command.event)
		return -EINVAL;
	return give_single(device, stream, SLUICE_EMULATED_RECORD, order);
}

int sl_emulated_event_record(struct sl_device *device, sluice_event event, sluice_stream stream)
{
	struct order order = {.command.kind = RECORD, .call = "event_record"};

	return give_event(device, event, stream, &order);
}

int sl_emulated_event_await(struct sl_device *device, sluice_event event, sluice_stream stream)
{
	struct order order = {.command.kind = AWAIT_EVENT, .call = "event_await"};

	return give_event(device, event, stream, &order);
}

int sl_emulated_launch(int device, sluice_stream stream, enum command_kind kind,
                       void (*function)(void *), void *argument)
{
	struct emulated *found = sl_emulated_numbered(device);
	struct order order = {.command.kind = kind, .call = "launch"};

	if (!found)
		return -ENODEV;
	if (!function)
		return sl_fail(-EINVAL, "there is no function to run");
	order.command.call.function = function;
	order.command.call.argument = argument;
	int rc = give_single(found, stream, SLUICE_EMULATED_LAUNCH, &order);
	if (rc)
		sl_fail(rc, "%s: cannot launch: %s", found->base.name, sl_error_text(rc));
	return rc;
}
