/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls of the emulated driver
 *
 * Every call of the emulated driver enters and leaves here, where calls are counted, fail on
 * demand, are held up, and are preempted at random.
 *
 * Threads: any thread that calls the driver.
 */
#include <stdlib.h>
#include <time.h>

#include "device/emulated/emulated.h"

/* The scheduler is imitated in a call of this many on its way in, and again on its way out. */
#define PREEMPTED_IN 16

struct emulated_calls sl_emulated_calls;

static _Thread_local struct call_record *own_record;

static struct call_record *make_record(void)
{
	struct call_record *record = calloc(1, sizeof(*record));

	if (!record)
		return NULL;
	pthread_getname_np(pthread_self(), record->name, sizeof(record->name));
	record->next = atomic_load(&sl_emulated_calls.records);
	while (!atomic_compare_exchange_weak(&sl_emulated_calls.records, &record->next, record))
		;
	return record;
}

int sl_emulated_count(enum sluice_emulated_kind kind)
{
	_Atomic uint64_t *left = &sl_emulated_calls.failures[kind].left;
	uint64_t n = atomic_load(left);

	if (!own_record)
		own_record = make_record();
	if (own_record)
		atomic_fetch_add_explicit(&own_record->calls[kind], 1, memory_order_relaxed);
	while (n && !atomic_compare_exchange_weak(left, &n, n - 1))
		;
	return n == 1 ? atomic_load(&sl_emulated_calls.failures[kind].error) : 0;
}

uint64_t sl_emulated_random(struct emulated *device, uint64_t limit)
{
	return sl_random(&device->random) % limit;
}

/* Releases the mutex for a moment now and then, as if the thread were preempted. */
static void preempt_caller(struct emulated *device) SL_REQUIRES(&device->mutex)
{
	struct timespec pause = {0, 0};

	if (!device->options.seed || !device->options.preempt_us ||
	    sl_emulated_random(device, PREEMPTED_IN))
		return;
	uint64_t us = 1 + sl_emulated_random(device, device->options.preempt_us);
	pause.tv_sec = us / 1000000;
	pause.tv_nsec = us % 1000000 * 1000;
	sl_mutex_unlock(&device->mutex);
	nanosleep(&pause, NULL);
	sl_mutex_lock(&device->mutex);
}

static int enter_call(struct emulated *device, enum sluice_emulated_kind kind, bool release)
	SL_THREAD_SAFETY(try_acquire_capability(0, &device->mutex))
{
	int rc = sl_emulated_count(kind);

	if (!rc)
		rc = sl_emulated_start(device);
	if (rc)
		return rc;
	sl_mutex_lock(&device->mutex);
	preempt_caller(device);
	rc = release ? 0 : device->error;
	if (rc)
		sl_mutex_unlock(&device->mutex);
	return rc;
}

int sl_emulated_enter(struct emulated *device, enum sluice_emulated_kind kind)
{
	return enter_call(device, kind, false);
}

int sl_emulated_enter_to_release(struct emulated *device, enum sluice_emulated_kind kind)
{
	return enter_call(device, kind, true);
}

void sl_emulated_leave(struct emulated *device)
{
	preempt_caller(device);
	sl_mutex_unlock(&device->mutex);
}

void sl_emulated_sleep(struct emulated *device, pthread_cond_t *on, const char *call,
                       const char *why)
{
	struct held held = {.call = call, .why = why};
	bool progress = on == &device->progress;

	pthread_getname_np(pthread_self(), held.thread, sizeof(held.thread));
	sl_list_append(&device->held, &held.link);
	device->sleepers += progress;
	sl_cond_wait(on, &device->mutex, SL_FOREVER);
	device->sleepers -= progress;
	sl_list_remove(&held.link);
	/* Restoring the device waits until all sleepers have left. */
	if (device->error)
		pthread_cond_broadcast(&device->progress);
}

int sl_emulated_pass(struct emulated *device, const char *call)
{
	while (!device->error && device->frees)
		sl_emulated_sleep(device, &device->progress, call, "another thread is in free");
	return device->error;
}

void sl_emulated_fault(struct emulated *device, int error)
{
	device->error = error;
	pthread_cond_broadcast(&device->progress);
	pthread_cond_broadcast(&device->reached);
	pthread_cond_broadcast(&device->work);
	pthread_cond_broadcast(&device->function);
}
