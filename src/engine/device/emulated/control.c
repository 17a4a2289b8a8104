/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Control of the emulated devices
 *
 * The functions of <sluice/emulated.h> but the report: kernels of C, the schedule, counts of calls,
 * failures. They are not in the library, but in libsluice-emulated.a beside libsluice.a.
 *
 * Threads: any.
 */
#include <errno.h>
#include <string.h>

#include "device/emulated/emulated.h"

void *sluice_emulated_memory(const void *memory)
{
	struct emulated *device;
	struct range *range;
	void *bytes = NULL;

	for (unsigned i = 0; (device = sl_emulated_each(i)) && !bytes; i++) {
		if (!sl_emulated_started(device))
			continue;
		sl_mutex_lock(&device->mutex);
		range = sl_emulated_range_at(device, memory);
		if (range)
			bytes = range->bytes + ((uintptr_t)memory - range->at.start);
		sl_mutex_unlock(&device->mutex);
	}
	return bytes;
}

int sluice_emulated_launch(int device, sluice_stream stream, void (*kernel)(void *), void *argument)
{
	return sl_emulated_launch(device, stream, KERNEL, kernel, argument);
}

int sluice_emulated_call(int device, sluice_stream stream, void (*function)(void *), void *argument)
{
	return sl_emulated_launch(device, stream, FUNCTION, function, argument);
}

int sluice_emulated_configure(int device, const struct sluice_emulated_options *o)
{
	struct sluice_emulated_options options = SLUICE_EMULATED_OPTIONS_INIT;
	struct emulated *found = sl_emulated_numbered(device);

	if (!found)
		return -ENODEV;
	if (!o || o->size < sizeof(o->size))
		return sl_fail(-EINVAL, "sluice_emulated_configure: o->size is not set");
	memcpy(&options, o, SL_MIN(o->size, sizeof(options)));
	sl_mutex_lock(&found->mutex);
	found->options = options;
	found->random = options.seed;
	sl_mutex_unlock(&found->mutex);
	return 0;
}

uint64_t sluice_emulated_calls(enum sluice_emulated_kind kind, const char *prefix)
{
	uint64_t sum = 0;

	if ((unsigned)kind >= SLUICE_EMULATED_KINDS)
		return 0;
	for (struct call_record *r = atomic_load(&sl_emulated_calls.records); r; r = r->next)
		if (!prefix || !strncmp(r->name, prefix, strlen(prefix)))
			sum += atomic_load_explicit(&r->calls[kind], memory_order_relaxed);
	return sum;
}

void sluice_emulated_reset_calls(void)
{
	for (struct call_record *r = atomic_load(&sl_emulated_calls.records); r; r = r->next)
		for (unsigned kind = 0; kind < SLUICE_EMULATED_KINDS; kind++)
			atomic_store_explicit(&r->calls[kind], 0, memory_order_relaxed);
}

void sluice_emulated_fail(enum sluice_emulated_kind kind, uint64_t n, int error)
{
	if ((unsigned)kind >= SLUICE_EMULATED_KINDS)
		return;
	atomic_store(&sl_emulated_calls.failures[kind].left, 0);
	atomic_store(&sl_emulated_calls.failures[kind].error, error);
	atomic_store(&sl_emulated_calls.failures[kind].left, n);
}

/* Removes all commands that the failed device will not execute. */
static void control_drop_commands(struct emulated *device) SL_REQUIRES(&device->mutex)
{
	/* A running command cannot be stopped, and sleeping calls soon leave: wait for both. */
	device->sleepers++;
	while (device->executing || device->calling || !sl_list_empty(&device->held))
		sl_cond_wait(&device->progress, &device->mutex, SL_FOREVER);
	device->sleepers--;
	device->handed = NULL;
	sl_list_each_of (command, &device->commands, struct command, in_device)
		sl_emulated_retire(device, command);
}

void sluice_emulated_lose(int device, int lost)
{
	struct emulated *found = sl_emulated_numbered(device);

	if (!found || sl_emulated_start(found))
		return;
	sl_mutex_lock(&found->mutex);
	if (lost) {
		sl_emulated_fault(found, -EIO);
	} else if (found->error) {
		control_drop_commands(found);
		found->error = 0;
	}
	sl_mutex_unlock(&found->mutex);
}
