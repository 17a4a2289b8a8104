/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Report of an emulated device
 *
 * Writes as text all streams, pending commands and sleeping calls, for tests that hang.
 *
 * Threads: any; takes the device's mutex.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/emulated/emulated.h"

static const char *const names[] = {
	[AWAIT_WORD] = "wait for a word", [WRITE_WORD] = "write of a word",    [COPY] = "copy",
	[RECORD] = "record of an event",  [AWAIT_EVENT] = "wait for an event", [KERNEL] = "kernel",
	[FUNCTION] = "host function",
};

static void write_word(FILE *to, struct emulated *device, const struct command *command)
	SL_REQUIRES(&device->mutex)
{
	char *bytes;

	/* On a failed device the memory may be gone. */
	if (sl_emulated_memory_kind(device, command->word.at, sizeof(uint32_t), &bytes) !=
	    MEMORY_REGISTERED)
		return;
	fprintf(to, ", word %p is %u and is to be %u", (void *)command->word.at,
	        atomic_load_explicit(command->word.at, memory_order_acquire), command->word.value);
}

static void write_head(FILE *to, struct emulated *device, const struct command *command)
	SL_REQUIRES(&device->mutex)
{
	fprintf(to, "%s", names[command->kind]);
	if (command->kind == COPY)
		fprintf(to, " of %zu bytes from %p to %p", command->copy.one.length,
		        command->copy.one.from, command->copy.one.to);
	if (command->kind == AWAIT_WORD)
		write_word(to, device, command);
	if (device->handed == command)
		fprintf(to, ", it runs");
	else if (!sl_emulated_in_order(device, command))
		fprintf(to, ", behind other streams");
}

static void write_stream(FILE *to, struct emulated *device, const struct stream *stream)
	SL_REQUIRES(&device->mutex)
{
	if (stream == &device->legacy)
		fprintf(to, "default stream");
	else if (stream == &device->per_thread)
		fprintf(to, "per-thread stream");
	else
		fprintf(to, "stream %p", (const void *)stream);
	if (!stream->count) {
		fprintf(to, ": idle\n");
		return;
	}
	fprintf(to, ": %u commands, first: ", stream->count);
	write_head(to, device, SL_CONTAINER(stream->commands.next, struct command, in_stream));
	fprintf(to, "\n");
}

static void write_device(FILE *to, struct emulated *device) SL_REQUIRES(&device->mutex)
{
	fprintf(to, "%s: %s%s\n", device->base.name,
	        device->error ? "does nothing any more: " : "works",
	        device->error ? sl_error_text(device->error) : "");
	sl_list_each_of (stream, &device->all_streams, struct stream, link)
		write_stream(to, device, stream);
	sl_list_each_of (held, &device->held, struct held, link)
		fprintf(to, "thread %s is held up in %s: %s\n", held->thread, held->call,
		        held->why);
}

void sluice_emulated_report(int device, void (*line)(void *, const char *), void *to)
{
	struct emulated *found = sl_emulated_numbered(device);
	char *text = NULL, *rest;
	size_t size;

	if (!found || !line || sl_emulated_start(found))
		return;
	FILE *file = open_memstream(&text, &size);
	if (!file)
		return;
	sl_mutex_lock(&found->mutex);
	write_device(file, found);
	sl_mutex_unlock(&found->mutex);
	/* The caller's function runs without the mutex. */
	if (!fclose(file))
		for (char *each = strtok_r(text, "\n", &rest); each;
		     each = strtok_r(NULL, "\n", &rest))
			line(to, each);
	free(text);
}
