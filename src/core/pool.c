/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pools
 *
 * Threads that run tasks. A task may be patient: a thread is about to wait for it, and runs it, so
 * no worker is woken. While patient tasks come, a worker naps instead of sleeping, and takes those
 * that were left. All functions may be called on any thread.
 */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

#include "core/core.h"

#define LOOK_AHEAD 32 /* tasks among which a thread looks for a task of its own */
#define SKIPS_MOST 32 /* later tasks that are taken before the first */
/* Naps become longer while no task is left. */
#define NAP_NS      100000
#define MOST_NAP_NS 400000
#define QUIET_MOST  16 /* naps without a patient task */

struct pool_worker {
	struct sl_word_sleeper sleeper;
	struct sl_pool *pool;
	pthread_t thread;
	bool busy;  /* this worker counts in pool->busy; of its own thread, as is the next */
	bool eager; /* it has run a task that was not patient, and has not polled since */
};

struct sl_pool {
	struct sl_queue queue;
	_Atomic bool spinning;    /* a worker polls for work */
	struct sl_spin spin;      /* of that worker */
	_Atomic uint32_t patient; /* counts such tasks; */
	_Atomic uint32_t waiting; /* of them, in the queue */
	_Atomic uint32_t quiet;   /* so many had come when the last guard went to sleep */
	_Atomic bool guarded;     /* a worker naps, and takes patient tasks afterwards */
	/* Workers that sleep until a push, or rest. A worker counts itself in before it looks at
	 * the queue for the last time: a submitting thread sees either it or its look. */
	_Atomic unsigned asleep;
	char name[12];
	unsigned most;
	_Atomic unsigned limit;  /* workers from this number on rest; */
	_Atomic int64_t until;   /* end of that; both written under growing */
	_Atomic uint32_t limits; /* counts its changes; resting workers wait for one */
	struct sl_mutex growing;
	_Atomic unsigned count;           /* workers; written under growing */
	int node SL_GUARDED_BY(&growing); /* -1: none; -2: several */
	unsigned joined;                  /* of the thread that stops the pool */
	/* Workers whose task may still wait. A worker counts itself in under the queue's mutex,
	 * before its task leaves queue.count: a submitting thread sees each task in a count. */
	_Atomic unsigned busy;
	struct pool_worker workers[];
};

/* Naps until there is work, or until no patient task has come for a while. */
static void pool_worker_guard(struct pool_worker *worker)
{
	struct sl_pool *pool = worker->pool;
	uint32_t seen = atomic_load(&pool->patient), before;
	int64_t nap = NAP_NS;

	for (unsigned quiet = 0; quiet < QUIET_MOST;) {
		if (sl_word_sleep(&pool->queue, &worker->sleeper, sl_now() + nap))
			break;
		before = seen;
		seen = atomic_load(&pool->patient);
		nap = SL_MIN(nap * 2, MOST_NAP_NS);
		quiet = seen == before ? quiet + 1 : 0;
		if (quiet == QUIET_MOST)
			atomic_store(&pool->quiet, seen);
	}
	atomic_store(&pool->guarded, false);
}

/* Patient tasks are left to the threads that wait, which poll, too. */
static bool pool_has_eager_task(void *argument)
{
	struct sl_pool *pool = argument;

	return atomic_load_explicit(&pool->queue.count, memory_order_relaxed) >
	       atomic_load_explicit(&pool->waiting, memory_order_relaxed);
}

static void pool_worker_sleep(struct pool_worker *worker)
{
	struct sl_pool *pool = worker->pool;
	struct sl_queue *queue = &pool->queue;

	if (worker->eager && !atomic_exchange(&pool->spinning, true)) {
		bool found = sl_spin_until(&pool->spin, pool_has_eager_task, pool);

		atomic_store(&pool->spinning, false);
		if (found)
			return;
	}
	worker->eager = false;
	if (atomic_load(&pool->patient) != atomic_load(&pool->quiet) &&
	    !atomic_exchange(&pool->guarded, true)) {
		pool_worker_guard(worker);
		return;
	}
	/* Ended by a push, or by sl_pool_stop(). */
	atomic_fetch_add(&pool->asleep, 1);
	sl_word_sleep(queue, &worker->sleeper, SL_FOREVER);
	atomic_fetch_sub(&pool->asleep, 1);
}

/* Returns a task of the worker's own home among those of a list, or the first. */
static struct sl_task *pool_choose(const struct sl_list *from, uintptr_t own, unsigned most)
{
	struct sl_task *first = SL_CONTAINER(from->next, struct sl_task, link);
	struct sl_list *link = from->next;

	for (unsigned i = 0; i < LOOK_AHEAD && link != from; i++, link = link->next) {
		struct sl_task *task = SL_CONTAINER(link, struct sl_task, link);

		if (task->home % most != own || first->skips == SKIPS_MOST)
			continue;
		first->skips += task != first;
		return task;
	}
	return first;
}

/*
 * Takes a task, if possible of the worker's own home: a buffer that is used again and again is
 * still in the caches of the core that filled it last. On four cores this moves a tenth more than
 * the order of arrival does.
 */
static struct sl_task *pool_worker_take(struct pool_worker *worker)
{
	struct sl_pool *pool = worker->pool;
	struct sl_queue *queue = &pool->queue;
	uintptr_t own = (uintptr_t)(worker - pool->workers);
	unsigned most = SL_MIN(pool->most, atomic_load(&pool->limit));
	struct sl_task *taken = NULL;

	if (!atomic_load_explicit(&queue->count, memory_order_relaxed))
		return NULL;
	sl_mutex_lock(&queue->mutex);
	struct sl_list *from = sl_queue_list_locked(queue);
	if (from) {
		taken = pool_choose(from, own, most);
		sl_list_remove(&taken->link);
		worker->busy = true;
		worker->eager |= !taken->patient;
		atomic_fetch_add(&pool->busy, 1);
		atomic_fetch_sub(&pool->waiting, taken->patient);
		atomic_fetch_sub(&queue->count, 1);
	}
	sl_mutex_unlock(&queue->mutex);
	return taken;
}

static _Thread_local struct pool_worker *this_worker; /* NULL on a thread that is no worker */

static void pool_worker_count_out(struct pool_worker *worker)
{
	if (worker->busy)
		atomic_fetch_sub(&worker->pool->busy, 1);
	worker->busy = false;
}

void sl_pool_task_waits_no_more(void)
{
	if (this_worker)
		pool_worker_count_out(this_worker);
}

/* Sets a limit and its end, if the limit before has ended at that time. */
static void pool_set_limit(struct sl_pool *pool, unsigned workers, int64_t until, int64_t ended)
{
	bool changes = false;

	sl_mutex_lock(&pool->growing);
	if (ended >= atomic_load(&pool->until)) {
		atomic_store(&pool->until, until);
		changes = atomic_exchange(&pool->limit, workers) != workers;
	}
	sl_mutex_unlock(&pool->growing);
	if (!changes)
		return;
	atomic_fetch_add(&pool->limits, 1);
	sl_word_wake(&pool->limits, INT_MAX);
	sl_queue_nudge(&pool->queue);
}

void sl_pool_limit(struct sl_pool *pool, unsigned workers, int64_t until)
{
	pool_set_limit(pool, workers, until, SL_FOREVER);
}

/*
 * Returns true after a rest of a worker that is one too many, which ends with the limit or its
 * change.
 */
static bool pool_worker_rests(struct pool_worker *worker)
{
	struct sl_pool *pool = worker->pool;
	uint32_t seen = atomic_load(&pool->limits);

	if ((unsigned)(worker - pool->workers) < atomic_load(&pool->limit))
		return false;
	atomic_fetch_add(&pool->asleep, 1);
	/* The push that woke this worker was meant for one that takes tasks, as is a patient task
	 * whose thread has not seen it asleep. */
	if (atomic_load(&pool->queue.count))
		sl_queue_nudge(&pool->queue);
	sl_word_wait(&pool->limits, seen, atomic_load(&pool->until));
	atomic_fetch_sub(&pool->asleep, 1);
	pool_set_limit(pool, UINT_MAX, SL_FOREVER, sl_now());
	return true;
}

static void *pool_worker_run(void *argument)
{
	struct pool_worker *worker = argument;
	struct sl_pool *pool = worker->pool;
	struct sl_task *task;

	this_worker = worker;
	for (;;) {
		if (pool_worker_rests(worker))
			continue;
		task = pool_worker_take(worker);
		if (task) {
			task->run(task);
			pool_worker_count_out(worker);
		} else if (sl_queue_closed(&pool->queue)) {
			return NULL;
		} else {
			pool_worker_sleep(worker);
		}
	}
}

static int pool_add_worker_locked(struct sl_pool *pool) SL_REQUIRES(&pool->growing)
{
	unsigned index = atomic_load(&pool->count);
	struct pool_worker *worker = &pool->workers[index];
	char full[16];

	sl_word_sleeper_init(&worker->sleeper);
	worker->pool = pool;
	snprintf(full, sizeof(full), "%.11s-%u", pool->name, index % 1000);
	int rc = sl_thread_start(&worker->thread, full, pool_worker_run, worker);
	if (!rc)
		atomic_store(&pool->count, index + 1);
	return rc;
}

int sl_pool_start(const char *name, unsigned workers, unsigned most, struct sl_pool **out)
{
	struct sl_pool *pool = calloc(1, sizeof(*pool) + most * sizeof(pool->workers[0]));
	int rc = 0;

	if (!pool)
		return sl_fail(-ENOMEM, "no memory for %u workers", most);
	sl_queue_init(&pool->queue);
	sl_mutex_init(&pool->growing);
	snprintf(pool->name, sizeof(pool->name), "%s", name);
	pool->most = most;
	pool->limit = UINT_MAX;
	sl_mutex_lock(&pool->growing);
	pool->node = -1;
	while (!rc && pool->count < workers)
		rc = pool_add_worker_locked(pool);
	sl_mutex_unlock(&pool->growing);
	if (rc) {
		sl_pool_stop(pool);
		sl_pool_free(pool);
		return rc;
	}
	*out = pool;
	return 0;
}

void sl_pool_stay(struct sl_pool *pool, const char *root, int node)
{
	cpu_set_t *set = NULL;
	size_t bytes;

	sl_mutex_lock(&pool->growing);
	if (pool->node != node && pool->node != -2)
		set = sl_machine_cores(root, pool->node < 0 ? node : -1, &bytes);
	if (set && CPU_COUNT_S(bytes, set)) {
		pool->node = pool->node < 0 ? node : -2;
		for (unsigned i = 0; i < atomic_load(&pool->count); i++)
			pthread_setaffinity_np(pool->workers[i].thread, bytes, set);
	}
	sl_mutex_unlock(&pool->growing);
	CPU_FREE(set);
}

static void pool_join(struct sl_pool *pool)
{
	while (pool->joined < atomic_load(&pool->count))
		pthread_join(pool->workers[pool->joined++].thread, NULL);
}

void sl_pool_stop(struct sl_pool *pool)
{
	if (!pool)
		return;
	sl_pool_limit(pool, UINT_MAX, SL_FOREVER);
	sl_queue_close(&pool->queue);
	pool_join(pool);
}

void sl_pool_free(struct sl_pool *pool)
{
	if (!pool)
		return;
	/* The last submit may have started a worker while the others were joined. */
	pool_join(pool);
	sl_queue_destroy(&pool->queue);
	sl_mutex_destroy(&pool->growing);
	free(pool);
}

/* Returns whether there are more tasks than workers that will look for the next task. */
static bool pool_is_short(struct sl_pool *pool)
{
	unsigned count = atomic_load(&pool->count);
	unsigned queued = atomic_load(&pool->queue.count); /* read before busy: see there */

	return count < pool->most && queued + atomic_load(&pool->busy) > count;
}

struct sl_task *sl_pool_take(struct sl_pool *pool, const void *owner)
{
	struct sl_queue *queue = &pool->queue;
	struct sl_task *taken = NULL;
	unsigned seen = 0;

	if (!sl_queue_has_work(queue))
		return NULL;
	sl_mutex_lock(&queue->mutex);
	for (struct sl_list *link = queue->locked.ready.previous;
	     !taken && link != &queue->locked.ready && seen++ < LOOK_AHEAD; link = link->previous) {
		struct sl_task *task = SL_CONTAINER(link, struct sl_task, link);

		if (task->owner == owner)
			taken = task;
	}
	if (taken) {
		sl_list_remove(&taken->link);
		atomic_fetch_sub(&pool->waiting, taken->patient);
		atomic_fetch_sub(&queue->count, 1);
	}
	sl_mutex_unlock(&queue->mutex);
	return taken;
}

void sl_pool_submit(struct sl_pool *pool, struct sl_task *task)
{
	task->skips = 0;
	if (task->patient) {
		atomic_fetch_add(&pool->waiting, 1);
		sl_queue_push_quietly(&pool->queue, &task->link);
		atomic_fetch_add(&pool->patient, 1);
		/* A worker that is awake, or naps, looks later. */
		if (atomic_load(&pool->asleep) == atomic_load(&pool->count))
			sl_queue_wake(&pool->queue);
		return;
	}
	sl_queue_push(&pool->queue, &task->link, task->urgent);
	if (!pool_is_short(pool))
		return;
	/* If no thread can be started, the existing workers run the task later. */
	sl_mutex_lock(&pool->growing);
	while (pool_is_short(pool) && !pool_add_worker_locked(pool))
		;
	sl_mutex_unlock(&pool->growing);
}
