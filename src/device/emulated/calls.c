/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls of the emulated driver
 *
 * Every call of the emulated driver enters and leaves here, where calls are counted, fail on
 * demand, are held up, and are preempted at random.
 *
 * Threads: any thread that calls the driver.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "device/emulated/emulated.h"

/* The scheduler is imitated in a call of this many on its way in, and again on its way out. */
#define PREEMPTED_IN 16

/* Counts of a thread's calls. Kept after the thread ends, because counts include ended threads. */
struct record {
	struct record *next;
	char name[16];
	_Atomic uint64_t calls[SLUICE_EMULATED_KINDS];
};

static struct {
	_Atomic(struct record *) records; /* list that only grows at its head */
	struct {
		/* calls up to and including the failing call; 0: none fails */
		_Atomic uint64_t left;
		_Atomic int error; /* set before left */
	} failures[SLUICE_EMULATED_KINDS];
} calls;

static _Thread_local struct record *own_record;

static struct record *make_record(void)
{
	struct record *record = calloc(1, sizeof(*record));

	if (!record)
		return NULL;
	pthread_getname_np(pthread_self(), record->name, sizeof(record->name));
	record->next = atomic_load(&calls.records);
	while (!atomic_compare_exchange_weak(&calls.records, &record->next, record))
		;
	return record;
}

int sl_emulated_count(enum sluice_emulated_kind kind)
{
	_Atomic uint64_t *left = &calls.failures[kind].left;
	uint64_t n = atomic_load(left);

	if (!own_record)
		own_record = make_record();
	if (own_record)
		atomic_fetch_add_explicit(&own_record->calls[kind], 1, memory_order_relaxed);
	while (n && !atomic_compare_exchange_weak(left, &n, n - 1))
		;
	return n == 1 ? atomic_load(&calls.failures[kind].error) : 0;
}

uint64_t sluice_emulated_calls(enum sluice_emulated_kind kind, const char *prefix)
{
	uint64_t sum = 0;

	if ((unsigned)kind >= SLUICE_EMULATED_KINDS)
		return 0;
	for (struct record *r = atomic_load(&calls.records); r; r = r->next)
		if (!prefix || !strncmp(r->name, prefix, strlen(prefix)))
			sum += atomic_load_explicit(&r->calls[kind], memory_order_relaxed);
	return sum;
}

void sluice_emulated_reset_calls(void)
{
	for (struct record *r = atomic_load(&calls.records); r; r = r->next)
		for (unsigned kind = 0; kind < SLUICE_EMULATED_KINDS; kind++)
			atomic_store_explicit(&r->calls[kind], 0, memory_order_relaxed);
}

void sluice_emulated_fail(enum sluice_emulated_kind kind, uint64_t n, int error)
{
	if ((unsigned)kind >= SLUICE_EMULATED_KINDS)
		return;
	atomic_store(&calls.failures[kind].left, 0);
	atomic_store(&calls.failures[kind].error, error);
	atomic_store(&calls.failures[kind].left, n);
}

uint64_t sl_emulated_random(struct emulated *device, uint64_t limit)
{
	return sl_random(&device->random) % limit;
}

/* Releases the mutex for a moment now and then, as if the thread were preempted. */
static void preempt_caller(struct emulated *device) SL_REQUIRES(&device->mutex)
{
	struct timespec pause = {0, 0};
	uint64_t us;

	if (!device->options.seed || !device->options.preempt_us ||
	    sl_emulated_random(device, PREEMPTED_IN))
		return;
	us = 1 + sl_emulated_random(device, device->options.preempt_us);
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

/* -------------------------------------------------------------------------- from outside */

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

/* Removes all commands that the failed device will not execute. */
static void drop_commands(struct emulated *device) SL_REQUIRES(&device->mutex)
{
	/*
	 * A running command cannot be stopped, and sleeping calls are about to leave: wait for
	 * both.
	 */
	device->sleepers++;
	while (device->executing || device->calling || !sl_list_empty(&device->held))
		sl_cond_wait(&device->progress, &device->mutex, SL_FOREVER);
	device->sleepers--;
	device->handed = NULL;
	while (!sl_list_empty(&device->commands))
		sl_emulated_retire(device,
		                   SL_CONTAINER(device->commands.next, struct command, in_device));
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
		drop_commands(found);
		found->error = 0;
	}
	sl_mutex_unlock(&found->mutex);
}
