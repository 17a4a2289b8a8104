/* SPDX-License-Identifier: Apache-2.0 */
#include "core/core.h"

/* One of so many is not urgent, while there are both. */
#define PASSED_MOST 4

void sl_queue_init(struct sl_queue *queue)
{
	sl_mutex_init(&queue->mutex);
	sl_list_init(&queue->locked.urgent);
	sl_list_init(&queue->locked.ready);
	queue->locked.passed = 0;
	sl_list_init(&queue->locked.sleepers);
	queue->locked.closed = false;
	atomic_init(&queue->count, 0);
}

void sl_queue_destroy(struct sl_queue *queue)
{
	sl_mutex_destroy(&queue->mutex);
}

/* The sleeper that fell asleep last: its caches are the warmest. */
static struct sl_sleeper *take_sleeper(struct sl_queue *queue)
{
	struct sl_list *link = queue->locked.sleepers.previous;

	if (link == &queue->locked.sleepers)
		return NULL;
	sl_list_remove(link);
	return SL_CONTAINER(link, struct sl_sleeper, link);
}

void sl_queue_push(struct sl_queue *queue, struct sl_list *link, bool urgent)
{
	struct sl_sleeper *sleeper;

	sl_mutex_lock(&queue->mutex);
	sl_list_append(urgent ? &queue->locked.urgent : &queue->locked.ready, link);
	atomic_fetch_add_explicit(&queue->count, 1, memory_order_relaxed);
	sleeper = take_sleeper(queue);
	sl_mutex_unlock(&queue->mutex);
	if (sleeper)
		sleeper->wake(sleeper);
}

struct sl_list *sl_queue_next(struct sl_queue *queue)
{
	struct sl_list *urgent = &queue->locked.urgent, *ready = &queue->locked.ready;

	if (sl_list_empty(urgent)) {
		queue->locked.passed = 0;
		return sl_list_empty(ready) ? NULL : ready;
	}
	if (sl_list_empty(ready) || ++queue->locked.passed < PASSED_MOST)
		return urgent;
	queue->locked.passed = 0;
	return ready;
}

unsigned sl_queue_take(struct sl_queue *queue, struct sl_list *out, unsigned max)
{
	struct sl_list *from;
	unsigned taken = 0;

	if (!max || !atomic_load_explicit(&queue->count, memory_order_relaxed))
		return 0;
	sl_mutex_lock(&queue->mutex);
	while (taken < max && (from = sl_queue_next(queue))) {
		sl_list_append(out, sl_list_take(from));
		taken++;
	}
	atomic_fetch_sub_explicit(&queue->count, taken, memory_order_relaxed);
	sl_mutex_unlock(&queue->mutex);
	return taken;
}

static bool is_empty(struct sl_queue *queue)
{
	return sl_list_empty(&queue->locked.urgent) && sl_list_empty(&queue->locked.ready);
}

bool sl_queue_sleep(struct sl_queue *queue, struct sl_sleeper *sleeper)
{
	bool sleep;

	sl_mutex_lock(&queue->mutex);
	sleep = is_empty(queue) && !queue->locked.closed;
	if (sleep)
		sl_list_append(&queue->locked.sleepers, &sleeper->link);
	sl_mutex_unlock(&queue->mutex);
	return sleep;
}

void sl_queue_awake(struct sl_queue *queue, struct sl_sleeper *sleeper)
{
	sl_mutex_lock(&queue->mutex);
	if (sl_list_linked(&sleeper->link))
		sl_list_remove(&sleeper->link);
	sl_mutex_unlock(&queue->mutex);
}

/*
 * The wakes are made under the mutex: a sleeper that has just been taken off the list may return
 * and be freed by the stopping thread, but only after it has passed through sl_queue_awake().
 */
static void wake_all(struct sl_queue *queue)
{
	struct sl_sleeper *sleeper;

	while ((sleeper = take_sleeper(queue)))
		sleeper->wake(sleeper);
}

void sl_queue_close(struct sl_queue *queue)
{
	sl_mutex_lock(&queue->mutex);
	queue->locked.closed = true;
	wake_all(queue);
	sl_mutex_unlock(&queue->mutex);
}

bool sl_queue_has_work(void *argument)
{
	struct sl_queue *queue = argument;

	return atomic_load_explicit(&queue->count, memory_order_relaxed);
}

static void wake_word(struct sl_sleeper *sleeper)
{
	struct sl_word_sleeper *word = SL_CONTAINER(sleeper, struct sl_word_sleeper, sleeper);

	atomic_store(&word->woken, 1);
	sl_word_wake(&word->woken, 1);
}

void sl_word_sleeper_init(struct sl_word_sleeper *sleeper)
{
	sleeper->sleeper.wake = wake_word;
}

void sl_word_sleep(struct sl_queue *queue, struct sl_word_sleeper *sleeper)
{
	atomic_store(&sleeper->woken, 0);
	if (!sl_queue_sleep(queue, &sleeper->sleeper))
		return;
	while (!atomic_load(&sleeper->woken))
		sl_word_wait(&sleeper->woken, 0, SL_FOREVER);
	sl_queue_awake(queue, &sleeper->sleeper);
}

bool sl_queue_closed(struct sl_queue *queue)
{
	bool closed;

	sl_mutex_lock(&queue->mutex);
	closed = queue->locked.closed && is_empty(queue);
	sl_mutex_unlock(&queue->mutex);
	return closed;
}

void sl_queue_nudge(struct sl_queue *queue)
{
	sl_mutex_lock(&queue->mutex);
	wake_all(queue);
	sl_mutex_unlock(&queue->mutex);
}
