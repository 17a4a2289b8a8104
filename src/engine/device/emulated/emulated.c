/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Emulated devices
 *
 * The two emulated devices, which are made of threads and memory of the host: how they are found
 * and started, and how a pointer leads to its device.
 *
 * Threads: any. The first use of a device starts its two threads (emulated_engine.c).
 */
#include <errno.h>
#include <stdio.h>
#include <sys/mman.h>

#include "device/emulated/emulated.h"

#define DEVICE(number)                                                                      \
	{                                                                                   \
		.base = {.ops = &sl_emulated_ops,                                           \
		         .sharing = &sl_emulated_sharing,                                   \
		         .name = "emulated:" #number},                                      \
		.mutex = SL_MUTEX_INIT, .work = PTHREAD_COND_INITIALIZER,                   \
		.function = PTHREAD_COND_INITIALIZER, .progress = PTHREAD_COND_INITIALIZER, \
		.reached = PTHREAD_COND_INITIALIZER,                                        \
	}

/* Devices and, once started, their threads live as long as the process. */
static struct {
	_Atomic unsigned started; /* number of started devices */
	struct emulated devices[EMULATED_DEVICES];
} all = {.devices = {DEVICE(0), DEVICE(1)}};

struct emulated *sl_emulated_each(unsigned index)
{
	return index < EMULATED_DEVICES ? &all.devices[index] : NULL;
}

static int prepare_devices(struct emulated *device)
{
	if (device->arena)
		return 0;
	void *arena = mmap(NULL, EMULATED_ARENA_BYTES, PROT_NONE,
	                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (arena == MAP_FAILED)
		return -ENOMEM;
	device->arena = arena;
	sl_list_init(&device->all_streams);
	sl_list_init(&device->busy);
	sl_list_init(&device->commands);
	sl_list_init(&device->spare);
	sl_list_init(&device->held);
	sl_emulated_channels_init(device);
	sl_list_init(&device->legacy.commands);
	sl_list_init(&device->per_thread.commands);
	device->legacy.blocking = device->per_thread.blocking = true;
	sl_list_append(&device->all_streams, &device->legacy.link);
	sl_list_append(&device->all_streams, &device->per_thread.link);
	return 0;
}

static int start_locked(struct emulated *device)
{
	unsigned number = device - all.devices;
	char name[16];
	pthread_t thread;
	int rc = prepare_devices(device);

	if (!rc && !device->engine_runs) {
		snprintf(name, sizeof(name), "sluice-emu-%u", number);
		rc = sl_thread_start(&thread, name, sl_emulated_engine, device);
		device->engine_runs = !rc;
	}
	if (!rc && !device->functions_run) {
		snprintf(name, sizeof(name), "sluice-emufn-%u", number);
		rc = sl_thread_start(&thread, name, sl_emulated_functions, device);
		device->functions_run = !rc;
	}
	return rc;
}

int sl_emulated_start(struct emulated *device)
{
	int rc = 0;

	if (sl_emulated_started(device))
		return 0;
	sl_mutex_lock(&device->mutex);
	if (!device->started) {
		rc = start_locked(device);
		if (!rc) {
			atomic_store_explicit(&device->started, true, memory_order_release);
			atomic_fetch_add(&all.started, 1);
		}
	}
	sl_mutex_unlock(&device->mutex);
	return rc;
}

static void emulated_take_first(struct sl_interval *interval, void *argument)
{
	struct sl_interval **found = argument;

	*found = interval;
}

struct sl_interval *sl_emulated_lookup(const struct sl_intervals *set, const void *address)
{
	struct sl_interval *found = NULL;
	uint64_t at = (uintptr_t)address;

	sl_intervals_overlapping(set, at, at + 1, emulated_take_first, &found);
	return found;
}

struct emulated *sl_emulated_numbered(int device)
{
	struct sl_device *found = device < 0 ? NULL : sl_device_find(device);

	if (found && found->ops == &sl_emulated_ops)
		return sl_emulated_of(found);
	sl_fail(found ? -EINVAL : -ENODEV, "device %d is not an emulated one", device);
	return NULL;
}

static struct sl_device *emulated_find(unsigned index)
{
	struct emulated *device = sl_emulated_each(index);

	return device ? &device->base : NULL;
}

typedef bool owns(struct emulated *device, const void *pointer);

/* Returns the first started device that owns the pointer, or NULL. */
static struct sl_device *emulated_owner(owns *whether, const void *pointer)
{
	for (unsigned i = 0; i < EMULATED_DEVICES; i++) {
		struct emulated *device = &all.devices[i];

		if (!sl_emulated_started(device))
			continue;
		sl_mutex_lock(&device->mutex);
		bool found = whether(device, pointer);
		sl_mutex_unlock(&device->mutex);
		if (found)
			return &device->base;
	}
	return NULL;
}

static bool owns_stream(struct emulated *device, const void *stream)
{
	return sl_emulated_lookup(&device->streams, stream);
}

static bool owns_event(struct emulated *device, const void *event)
{
	return sl_emulated_lookup(&device->events, event);
}

static struct sl_device *emulated_of_memory(const void *memory)
{
	if (!atomic_load_explicit(&all.started, memory_order_acquire))
		return NULL;
	/* If the call is made to fail, the driver does not know the pointer. */
	return sl_emulated_count(SLUICE_EMULATED_CLASSIFY)
	               ? NULL
	               : emulated_owner(sl_emulated_holds, memory);
}

static struct sl_device *emulated_of_stream(sluice_stream stream)
{
	return emulated_owner(owns_stream, stream);
}

static struct sl_device *emulated_of_event(sluice_event event, struct sl_device *wanted)
{
	(void)wanted;
	return emulated_owner(owns_event, event);
}

const struct sl_device_kind sl_emulated = {
	.name = "emulated",
	.find = emulated_find,
	.of_memory = emulated_of_memory,
	.of_stream = emulated_of_stream,
	.of_event = emulated_of_event,
};

static int emulated_describe(struct sl_device *base, struct sluice_device *out)
{
	struct emulated *device = sl_emulated_of(base);

	out->detail = "threads and host memory that behave as a GPU does";
	out->memory_bytes = EMULATED_MEMORY_BYTES;
	sl_mutex_lock(&device->mutex);
	out->free_bytes = EMULATED_MEMORY_BYTES - device->used;
	sl_mutex_unlock(&device->mutex);
	out->stream_order = 1;
	out->stream_order_detail = "it awaits and writes words as a GPU does";
	out->numa_node = -1;
	return 0;
}

static int emulated_status(struct sl_device *base)
{
	struct emulated *device = sl_emulated_of(base);
	int rc = sl_emulated_enter(device, SLUICE_EMULATED_QUERY);

	if (!rc)
		sl_emulated_leave(device);
	return rc;
}

const struct sl_device_ops sl_emulated_ops = {
	.describe = emulated_describe,
	.alloc = sl_emulated_alloc,
	.free = sl_emulated_free,
	.allocation = sl_emulated_allocation,
	.register_memory = sl_emulated_register,
	.unregister_memory = sl_emulated_unregister,
	.registered = sl_emulated_registered,
	.stream_new = sl_emulated_stream_new,
	.stream_free = sl_emulated_stream_free,
	.stream_query = sl_emulated_stream_query,
	.stream_synchronize = sl_emulated_stream_synchronize,
	.stream_check = sl_emulated_stream_check,
	.joins = sl_emulated_joins,
	.enqueue = sl_emulated_enqueue,
	.copy = sl_emulated_copy,
	.event_new = sl_emulated_event_new,
	.event_free = sl_emulated_event_free,
	.event_record = sl_emulated_event_record,
	.event_await = sl_emulated_event_await,
	.event_query = sl_emulated_event_query,
	.event_synchronize = sl_emulated_event_synchronize,
	.reach = sl_emulated_reach,
	.status = emulated_status,
};
