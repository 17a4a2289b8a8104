/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Poller
 *
 * The thread of a device that polls the words that the device writes, and tells the owner of a ring
 * when its words have moved. It never calls the driver. While words move it polls without a pause;
 * while they do not it naps longer and longer; without a ring to watch it sleeps.
 */
#include <sched.h>
#include <sys/prctl.h>
#include <time.h>

#include "staging/staging_internal.h"

#define SPIN_NS   1000000 /* longer than a copy takes; naps take longer than they say */
#define LEAST_NAP 20000
#define MOST_NAP  1000000
/* A nap takes at most a hundredth of the time in which nothing has moved: nobody notices. */
#define LONG_NS      INT64_C(1000000000)
#define LONG_NAP     10000000
#define SUSPECT_NS   INT64_C(500000000)
#define SEEN_AT_ONCE 64

void sl_nap_precisely(void)
{
	prctl(PR_SET_TIMERSLACK, 1UL);
}

void sl_nap_shortly(void)
{
	struct timespec pause = {0, 10000};

	nanosleep(&pause, NULL);
}

void sl_poller_watch(struct sl_ring *ring)
{
	struct sl_poller *poller = &ring->staging->poller;

	sl_mutex_lock(&poller->mutex);
	bool first = sl_list_empty(&poller->locked.rings);
	/* Moves before now are seen at the first look. */
	ring->seen = 0;
	sl_list_append(&poller->locked.rings, &ring->link);
	poller->locked.count++;
	poller->locked.single += ring->single;
	sl_mutex_unlock(&poller->mutex);
	if (first)
		pthread_cond_signal(&poller->watched);
	atomic_fetch_add(&poller->rung, 1);
	if (atomic_load(&poller->napping))
		sl_word_wake(&poller->rung, 1);
}

void sl_poller_leave(struct sl_ring *ring)
{
	struct sl_poller *poller = &ring->staging->poller;

	sl_mutex_lock(&poller->mutex);
	if (sl_list_linked(&ring->link)) {
		sl_list_remove(&ring->link);
		poller->locked.count--;
		poller->locked.single -= ring->single;
	}
	sl_mutex_unlock(&poller->mutex);
}

/*
 * Collects the rings with words that have moved, and those that have to be told that the device is
 * lost, and holds them. A ring is told once; from then on the end of its pieces ends its operation.
 */
static unsigned poller_collect_locked(struct sl_poller *poller, bool lost, struct sl_ring **out)
	SL_REQUIRES(&poller->mutex)
{
	unsigned count = 0;

	sl_list_each_of (ring, &poller->locked.rings, struct sl_ring, link) {
		/* Words only move forward, so a move changes the number. */
		uint32_t passed = (uint32_t)sl_ring_passed(ring);

		if (passed == ring->seen && (!lost || ring->told))
			continue;
		ring->seen = passed;
		ring->told = lost;
		ring->hold(ring);
		out[count++] = ring;
		if (count == SEEN_AT_ONCE)
			break;
	}
	return count;
}

/* Returns true if a ring has come since `rung` was read. */
static bool poller_nap(struct sl_poller *poller, uint32_t rung, int64_t length)
{
	atomic_store(&poller->napping, true);
	/* A new ring, stop, or the time ends it. */
	if (rung == atomic_load(&poller->rung))
		sl_word_wait(&poller->rung, rung, sl_now() + length);
	atomic_store(&poller->napping, false);
	return rung != atomic_load(&poller->rung);
}

/* Has the copier ask whether the device is still there: only the copier calls the driver. */
static void poller_suspect(struct sl_staging *staging)
{
	atomic_store(&staging->suspect, true);
	sl_queue_nudge(&staging->copier.queue);
}

static void *poller_run(void *argument)
{
	struct sl_staging *staging = argument;
	struct sl_poller *poller = &staging->poller;
	struct sl_ring *moved[SEEN_AT_ONCE];
	int64_t last = sl_now(), suspected = 0, pause = LEAST_NAP;
	int64_t fresh = last; /* the last move, or new ring */

	sl_nap_precisely();
	sl_mutex_lock(&poller->mutex);
	while (!poller->locked.stop) {
		uint32_t rung = atomic_load(&poller->rung);

		if (sl_list_empty(&poller->locked.rings)) {
			/* sl_poller_watch() and sl_poller_stop() end it. */
			sl_cond_wait(&poller->watched, &poller->mutex, SL_FOREVER);
			last = fresh = sl_now();
			pause = LEAST_NAP;
			continue;
		}
		unsigned count = poller_collect_locked(poller, sl_staging_lost(staging), moved);
		bool small = poller->locked.count >= SL_MANY_SMALL &&
		             poller->locked.single == poller->locked.count;
		sl_mutex_unlock(&poller->mutex);
		for (unsigned i = 0; i < count; i++) {
			moved[i]->moved(moved[i]);
			moved[i]->release(moved[i]);
		}
		if (sl_staging_lost(staging)) {
			sl_slots_refuse(staging);
			sl_gate_open(&staging->commands);
		}
		int64_t idle = sl_now() - last;
		if (count) {
			last = fresh = sl_now();
			pause = LEAST_NAP;
			if (small)
				sl_nap_shortly();
		} else if (sl_now() - fresh < SPIN_NS) {
			if (small)
				sl_nap_shortly();
			else
				sched_yield();
		} else {
			if (idle > SUSPECT_NS && sl_now() - suspected > SUSPECT_NS) {
				suspected = sl_now();
				poller_suspect(staging);
			}
			if (poller_nap(poller, rung, pause)) {
				fresh = sl_now();
				pause = LEAST_NAP;
			} else {
				pause = SL_MIN(pause * 2, idle > LONG_NS ? LONG_NAP : MOST_NAP);
			}
		}
		sl_mutex_lock(&poller->mutex);
	}
	sl_mutex_unlock(&poller->mutex);
	return NULL;
}

/* No other thread knows the staging yet. */
int sl_poller_start(struct sl_staging *staging) SL_UNCHECKED
{
	struct sl_poller *poller = &staging->poller;

	sl_mutex_init(&poller->mutex);
	pthread_cond_init(&poller->watched, NULL);
	sl_list_init(&poller->locked.rings);
	int rc = sl_thread_start(&poller->thread, "sluice-poller", poller_run, staging);
	poller->started = !rc;
	return rc;
}

void sl_poller_empty(struct sl_staging *staging, int64_t deadline)
{
	struct sl_poller *poller = &staging->poller;
	struct timespec moment = {0, 1000000};
	bool empty = false;

	while (!empty && sl_now() < deadline) {
		sl_mutex_lock(&poller->mutex);
		empty = sl_list_empty(&poller->locked.rings);
		sl_mutex_unlock(&poller->mutex);
		if (!empty)
			nanosleep(&moment, NULL);
	}
}

void sl_poller_stop(struct sl_staging *staging)
{
	struct sl_poller *poller = &staging->poller;

	if (!poller->started)
		return;
	sl_mutex_lock(&poller->mutex);
	poller->locked.stop = true;
	sl_mutex_unlock(&poller->mutex);
	pthread_cond_signal(&poller->watched);
	atomic_fetch_add(&poller->rung, 1);
	sl_word_wake(&poller->rung, 1);
	pthread_join(poller->thread, NULL);
	poller->started = false;
}
