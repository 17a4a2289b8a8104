/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The thread that sees what the device writes. Never calls the driver. Words that move thick and fast
 * are watched without a pause; it naps longer and longer when they do not, and sleeps with nothing to
 * watch.
 */
#include <errno.h>
#include <sched.h>
#include <time.h>

#include "staging/room.h"

#define SPIN_NS   1000000 /* longer than a copy takes; naps take longer than they say */
#define LEAST_NAP 20000
#define MOST_NAP  1000000
/* Naps take up to a hundredth of the time in which nothing has moved: who waits that long does not see it. */
#define LONG_NS      INT64_C(1000000000)
#define LONG_NAP     10000000
#define SUSPECT_NS   INT64_C(500000000)
#define SEEN_AT_ONCE 64

static uint32_t sum_of(const struct sl_ring *ring)
{
	uint32_t sum = 0;

	/* Words only move forward, so a move changes the sum. */
	for (unsigned i = 0; i < ring->count; i++)
		sum += atomic_load_explicit(ring->slots[i].gpu, memory_order_acquire);
	return sum;
}

void sl_bell_watch(struct sl_ring *ring)
{
	struct sl_bell *bell = &ring->staging->bell;
	bool first;

	sl_mutex_lock(&bell->mutex);
	first = sl_list_empty(&bell->locked.rings);
	/* What moved before is seen at the first look. */
	ring->seen = 0;
	for (unsigned i = 0; i < ring->count; i++)
		ring->seen += ring->slots[i].base;
	sl_list_append(&bell->locked.rings, &ring->link);
	sl_mutex_unlock(&bell->mutex);
	if (first)
		pthread_cond_signal(&bell->watched);
	atomic_fetch_add(&bell->rung, 1);
	if (atomic_load(&bell->napping))
		sl_word_wake(&bell->rung, 1);
}

void sl_bell_leave(struct sl_ring *ring)
{
	struct sl_bell *bell = &ring->staging->bell;

	sl_mutex_lock(&bell->mutex);
	if (sl_list_linked(&ring->link))
		sl_list_remove(&ring->link);
	sl_mutex_unlock(&bell->mutex);
}

/* The rings whose words have moved, and those that are to be told that the device is lost, which is done once: what
 * ends them then is the end of their pieces. They are held. The mutex is held. */
static unsigned collect(struct sl_bell *bell, bool lost, struct sl_ring **out)
{
	unsigned count = 0;

	sl_list_each (link, &bell->locked.rings) {
		struct sl_ring *ring = SL_CONTAINER(link, struct sl_ring, link);
		uint32_t sum = sum_of(ring);

		if (sum == ring->seen && (!lost || ring->told))
			continue;
		ring->seen = sum;
		ring->told = lost;
		ring->hold(ring);
		out[count++] = ring;
		if (count == SEEN_AT_ONCE)
			break;
	}
	return count;
}

/* True: a ring has come since the bell was rung so often. */
static bool nap(struct sl_bell *bell, uint32_t rung, int64_t length)
{
	atomic_store(&bell->napping, true);
	/* Ended by a new ring, by stop, or by the time. */
	if (rung == atomic_load(&bell->rung))
		sl_word_wait(&bell->rung, rung, sl_now() + length);
	atomic_store(&bell->napping, false);
	return rung != atomic_load(&bell->rung);
}

/* Only the copier calls the driver: it is asked to find out whether the device is still there. */
static void suspect(struct sl_staging *staging)
{
	atomic_store(&staging->suspect, true);
	sl_queue_nudge(&staging->copier.queue);
}

static void *bell_run(void *argument)
{
	struct sl_staging *staging = argument;
	struct sl_bell *bell = &staging->bell;
	struct sl_ring *moved[SEEN_AT_ONCE];
	int64_t last = sl_now(), suspected = 0, pause = LEAST_NAP;
	int64_t fresh = last; /* the last move, or new ring */

	sl_mutex_lock(&bell->mutex);
	while (!bell->locked.stop) {
		uint32_t rung = atomic_load(&bell->rung);
		unsigned count;
		int64_t idle;

		if (sl_list_empty(&bell->locked.rings)) {
			/* Ended by sl_bell_watch() and sl_bell_stop(). */
			sl_cond_wait(&bell->watched, &bell->mutex, SL_FOREVER);
			last = fresh = sl_now();
			pause = LEAST_NAP;
			continue;
		}
		count = collect(bell, sl_staging_lost(staging), moved);
		sl_mutex_unlock(&bell->mutex);
		for (unsigned i = 0; i < count; i++) {
			moved[i]->moved(moved[i]);
			moved[i]->release(moved[i]);
		}
		if (sl_staging_lost(staging)) {
			sl_slots_refuse(staging);
			sl_gate_open(&staging->commands);
		}
		idle = sl_now() - last;
		if (count) {
			last = fresh = sl_now();
			pause = LEAST_NAP;
		} else if (sl_now() - fresh < SPIN_NS) {
			sched_yield();
		} else {
			if (idle > SUSPECT_NS && sl_now() - suspected > SUSPECT_NS) {
				suspected = sl_now();
				suspect(staging);
			}
			if (nap(bell, rung, pause)) {
				fresh = sl_now();
				pause = LEAST_NAP;
			} else {
				pause = SL_MIN(pause * 2, idle > LONG_NS ? LONG_NAP : MOST_NAP);
			}
		}
		sl_mutex_lock(&bell->mutex);
	}
	sl_mutex_unlock(&bell->mutex);
	return NULL;
}

int sl_bell_start(struct sl_staging *staging)
{
	struct sl_bell *bell = &staging->bell;
	int rc;

	sl_mutex_init(&bell->mutex);
	pthread_cond_init(&bell->watched, NULL);
	sl_list_init(&bell->locked.rings);
	rc = sl_thread_start(&bell->thread, "sluice-bell", bell_run, staging);
	bell->started = !rc;
	return rc;
}

void sl_bell_empty(struct sl_staging *staging, int64_t deadline)
{
	struct sl_bell *bell = &staging->bell;
	struct timespec moment = {0, 1000000};
	bool empty = false;

	while (!empty && sl_now() < deadline) {
		sl_mutex_lock(&bell->mutex);
		empty = sl_list_empty(&bell->locked.rings);
		sl_mutex_unlock(&bell->mutex);
		if (!empty)
			nanosleep(&moment, NULL);
	}
}

void sl_bell_stop(struct sl_staging *staging)
{
	struct sl_bell *bell = &staging->bell;

	if (!bell->started)
		return;
	sl_mutex_lock(&bell->mutex);
	bell->locked.stop = true;
	sl_mutex_unlock(&bell->mutex);
	pthread_cond_signal(&bell->watched);
	atomic_fetch_add(&bell->rung, 1);
	sl_word_wake(&bell->rung, 1);
	pthread_join(bell->thread, NULL);
	bell->started = false;
}
