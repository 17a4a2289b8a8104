/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "core/core.h"

/* How far a worker looks for a task of its own before it takes the first one. */
#define LOOK_AHEAD 32

struct worker {
	struct sl_word_sleeper sleeper;
	struct sl_pool *pool;
	pthread_t thread;
	bool busy; /* it counts in pool->busy; its own */
};

struct sl_pool {
	struct sl_queue queue;
	_Atomic bool spinning; /* one worker looks for work without sleeping */
	struct sl_spin spin;   /* that worker's */
	char name[12];
	unsigned most;
	struct sl_mutex growing;
	_Atomic unsigned count; /* of workers; written under growing */
	unsigned joined;        /* of them; the stopping thread's */
	/* Workers whose task may still wait. A worker counts itself in under the queue's mutex, before its task leaves
	 * queue.count: whoever submits sees each task in one of the two. */
	_Atomic unsigned busy;
	struct worker workers[];
};

static void worker_sleep(struct worker *worker)
{
	struct sl_queue *queue = &worker->pool->queue;

	if (!atomic_exchange(&worker->pool->spinning, true)) {
		bool found = sl_spin(&worker->pool->spin, sl_queue_has_work, queue);

		atomic_store(&worker->pool->spinning, false);
		if (found)
			return;
	}
	/* Ended by a push, or by sl_pool_stop(). */
	sl_word_sleep(queue, &worker->sleeper);
}

/*
 * A buffer that is used again and again is still in the caches of the core that filled it last:
 * on four cores this moves a tenth more than the order of arrival does.
 */
static struct sl_task *take_task(struct worker *worker)
{
	struct sl_pool *pool = worker->pool;
	struct sl_queue *queue = &pool->queue;
	uintptr_t own = (uintptr_t)(worker - pool->workers);
	struct sl_task *taken = NULL;
	struct sl_list *from;
	unsigned seen = 0;

	if (!atomic_load_explicit(&queue->count, memory_order_relaxed))
		return NULL;
	sl_mutex_lock(&queue->mutex);
	from = sl_queue_next(queue);
	for (struct sl_list *link = from ? from->next : NULL; link != from; link = link->next) {
		struct sl_task *task = SL_CONTAINER(link, struct sl_task, link);

		if (!taken)
			taken = task;
		if (task->home % pool->most == own) {
			taken = task;
			break;
		}
		if (++seen == LOOK_AHEAD)
			break;
	}
	if (taken) {
		sl_list_remove(&taken->link);
		worker->busy = true;
		atomic_fetch_add(&pool->busy, 1);
		atomic_fetch_sub(&queue->count, 1);
	}
	sl_mutex_unlock(&queue->mutex);
	return taken;
}

static _Thread_local struct worker *self; /* NULL on a thread of nobody's pool */

static void count_out(struct worker *worker)
{
	if (worker->busy)
		atomic_fetch_sub(&worker->pool->busy, 1);
	worker->busy = false;
}

void sl_pool_task_waits_no_more(void)
{
	if (self)
		count_out(self);
}

static void *worker_run(void *argument)
{
	struct worker *worker = argument;
	struct sl_pool *pool = worker->pool;
	struct sl_task *task;

	self = worker;
	for (;;) {
		task = take_task(worker);
		if (task) {
			task->run(task);
			count_out(worker);
		} else if (sl_queue_closed(&pool->queue)) {
			return NULL;
		} else {
			worker_sleep(worker);
		}
	}
}

/* One more worker; pool->growing is held, or nobody else has the pool yet. */
static int add_worker(struct sl_pool *pool)
{
	unsigned index = atomic_load(&pool->count);
	struct worker *worker = &pool->workers[index];
	char full[16];
	int rc;

	sl_word_sleeper_init(&worker->sleeper);
	worker->pool = pool;
	snprintf(full, sizeof(full), "%.11s-%u", pool->name, index % 1000);
	rc = sl_thread_start(&worker->thread, full, worker_run, worker);
	if (!rc)
		atomic_store(&pool->count, index + 1);
	return rc;
}

int sl_pool_start(const char *name, unsigned workers, unsigned most, struct sl_pool **out)
{
	struct sl_pool *pool = calloc(1, sizeof(*pool) + most * sizeof(pool->workers[0]));
	int rc;

	if (!pool)
		return sl_fail(-ENOMEM, "no memory for %u workers", most);
	sl_queue_init(&pool->queue);
	sl_mutex_init(&pool->growing);
	snprintf(pool->name, sizeof(pool->name), "%s", name);
	pool->most = most;
	while (pool->count < workers) {
		rc = add_worker(pool);
		if (rc) {
			sl_pool_stop(pool);
			sl_pool_free(pool);
			return rc;
		}
	}
	*out = pool;
	return 0;
}

static void join_workers(struct sl_pool *pool)
{
	while (pool->joined < atomic_load(&pool->count))
		pthread_join(pool->workers[pool->joined++].thread, NULL);
}

void sl_pool_stop(struct sl_pool *pool)
{
	if (!pool)
		return;
	sl_queue_close(&pool->queue);
	join_workers(pool);
}

void sl_pool_free(struct sl_pool *pool)
{
	if (!pool)
		return;
	/* The thread that submitted last may have been starting a worker while the others were joined. */
	join_workers(pool);
	sl_queue_destroy(&pool->queue);
	sl_mutex_destroy(&pool->growing);
	free(pool);
}

/* Whether there are more tasks than workers that will look for the next one. */
static bool is_short(struct sl_pool *pool)
{
	unsigned count = atomic_load(&pool->count);
	unsigned queued = atomic_load(&pool->queue.count); /* before busy: see there */

	return count < pool->most && queued + atomic_load(&pool->busy) > count;
}

void sl_pool_submit(struct sl_pool *pool, struct sl_task *task)
{
	sl_queue_push(&pool->queue, &task->link, task->urgent);
	if (!is_short(pool))
		return;
	/* Where no thread can be had, those that there are have to do. */
	sl_mutex_lock(&pool->growing);
	while (is_short(pool) && !add_worker(pool))
		;
	sl_mutex_unlock(&pool->growing);
}
