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
};

struct sl_pool {
	struct sl_queue queue;
	_Atomic bool spinning; /* one worker looks for work without sleeping */
	struct sl_spin spin;   /* that worker's */
	unsigned count;
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
	pthread_mutex_lock(&queue->mutex);
	from = sl_queue_next(queue);
	for (struct sl_list *link = from ? from->next : NULL; link != from; link = link->next) {
		struct sl_task *task = SL_CONTAINER(link, struct sl_task, link);

		if (!taken)
			taken = task;
		if (task->home % pool->count == own) {
			taken = task;
			break;
		}
		if (++seen == LOOK_AHEAD)
			break;
	}
	if (taken) {
		sl_list_remove(&taken->link);
		atomic_fetch_sub_explicit(&queue->count, 1, memory_order_relaxed);
	}
	pthread_mutex_unlock(&queue->mutex);
	return taken;
}

static void *worker_run(void *argument)
{
	struct worker *worker = argument;
	struct sl_queue *queue = &worker->pool->queue;
	struct sl_task *task;

	for (;;) {
		task = take_task(worker);
		if (task)
			task->run(task);
		else if (sl_queue_closed(queue))
			return NULL;
		else
			worker_sleep(worker);
	}
}

int sl_pool_start(const char *name, unsigned workers, struct sl_pool **out)
{
	struct sl_pool *pool = calloc(1, sizeof(*pool) + workers * sizeof(pool->workers[0]));
	char full[16];
	int rc;

	if (!pool)
		return sl_fail(-ENOMEM, "no memory for %u workers", workers);
	sl_queue_init(&pool->queue);
	for (; pool->count < workers; pool->count++) {
		struct worker *worker = &pool->workers[pool->count];

		sl_word_sleeper_init(&worker->sleeper);
		worker->pool = pool;
		snprintf(full, sizeof(full), "%.11s-%u", name, pool->count % 1000);
		rc = sl_thread_start(&worker->thread, full, worker_run, worker);
		if (rc) {
			sl_pool_stop(pool);
			sl_pool_free(pool);
			return rc;
		}
	}
	*out = pool;
	return 0;
}

void sl_pool_stop(struct sl_pool *pool)
{
	if (!pool)
		return;
	sl_queue_close(&pool->queue);
	for (unsigned i = 0; i < pool->count; i++)
		pthread_join(pool->workers[i].thread, NULL);
}

void sl_pool_free(struct sl_pool *pool)
{
	if (!pool)
		return;
	sl_queue_destroy(&pool->queue);
	free(pool);
}

void sl_pool_submit(struct sl_pool *pool, struct sl_task *task)
{
	sl_queue_push(&pool->queue, &task->link, task->urgent);
}
