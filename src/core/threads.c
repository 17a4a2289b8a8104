/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Threads and waiting
 *
 * Time, and the ways in which threads wait for each other: words, conditions, gates, queues. All
 * functions may be called on any thread.
 */
#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <sched.h>
#include <signal.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "core/core.h"

#define SPIN_NS      100000
#define MOST_IN_VAIN 6 /* then one sleep in 64 is preceded by polling */
/* While both kinds wait, every so many links a link that is not urgent is taken. */
#define PASSED_MOST 4

/* ------------------------------------------------------------------ time, words and conditions */

int64_t sl_now(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

int64_t sl_deadline(int timeout_ms)
{
	return timeout_ms < 0 ? SL_FOREVER : sl_now() + timeout_ms * INT64_C(1000000);
}

int sl_word_wait(_Atomic uint32_t *word, uint32_t expected, int64_t deadline)
{
	struct timespec until = {deadline / 1000000000, deadline % 1000000000};

	/* The bitset form takes an absolute time of CLOCK_MONOTONIC. */
	long rc = syscall(SYS_futex, word, FUTEX_WAIT_BITSET | FUTEX_PRIVATE_FLAG, expected,
	                  deadline == SL_FOREVER ? NULL : &until, NULL, FUTEX_BITSET_MATCH_ANY);
	return rc < 0 && errno == ETIMEDOUT ? -ETIMEDOUT : 0;
}

void sl_word_wake(_Atomic uint32_t *word, int count)
{
	syscall(SYS_futex, word, FUTEX_WAKE | FUTEX_PRIVATE_FLAG, count, NULL, NULL, 0);
}

void sl_flag_raise(_Atomic uint32_t *flag)
{
	atomic_store(flag, 1);
	sl_word_wake(flag, 1);
}

void sl_flag_await(_Atomic uint32_t *flag)
{
	while (!atomic_load(flag))
		sl_word_wait(flag, 0, SL_FOREVER);
}

void sl_eventfd_raise(int fd)
{
	uint64_t one = 1;

	(void)!write(fd, &one, sizeof(one));
}

int sl_cond_wait(pthread_cond_t *condition, struct sl_mutex *mutex, int64_t deadline)
{
	struct timespec until = {deadline / 1000000000, deadline % 1000000000};

	if (deadline == SL_FOREVER)
		return -pthread_cond_wait(condition, &mutex->pthread);
	return -pthread_cond_clockwait(condition, &mutex->pthread, CLOCK_MONOTONIC, &until);
}

bool sl_spin_until(struct sl_spin *spin, bool (*found)(void *), void *argument)
{
	if (found(argument))
		return true;
	if (spin->left_out) {
		spin->left_out--;
		return false;
	}
	int64_t until = sl_now() + SPIN_NS;
	while (sl_now() < until) {
		if (found(argument)) {
			spin->in_vain = 0;
			return true;
		}
	}
	spin->in_vain = SL_MIN(spin->in_vain + 1, MOST_IN_VAIN);
	spin->left_out = (1u << spin->in_vain) - 1;
	return false;
}

/* ------------------------------------------------------------------------------------- signals */

static _Thread_local struct {
	bool held;
	pthread_cond_t *condition;
	unsigned count; /* signals that it is owed */
} signals;

void sl_signal(pthread_cond_t *condition)
{
	if (!signals.held || (signals.count && signals.condition != condition)) {
		pthread_cond_signal(condition);
		return;
	}
	signals.condition = condition;
	signals.count++;
}

void sl_signals_hold(void)
{
	signals.held = true;
}

unsigned sl_signals_owed(void)
{
	return signals.count;
}

void sl_signals_send(void)
{
	for (; signals.count; signals.count--)
		pthread_cond_signal(signals.condition);
}

/* ---------------------------------------------------------------------------------------- gate */

/* Takes count unless that exceeds the gate. */
static bool gate_enter(struct sl_gate *gate, uint64_t count)
{
	uint64_t now = atomic_load(&gate->taken);

	while (!now || now + count <= atomic_load(&gate->most))
		if (atomic_compare_exchange_weak(&gate->taken, &now, now + count))
			return true;
	return false;
}

static bool gate_has_line(struct sl_gate *gate)
{
	return atomic_load(&gate->last) != atomic_load(&gate->served);
}

/* Wakes the line after a change. A thread enters it before it looks, and so misses no change. */
static void gate_changed(struct sl_gate *gate)
{
	if (!gate_has_line(gate))
		return;
	atomic_fetch_add(&gate->changes, 1);
	sl_word_wake(&gate->changes, INT_MAX);
}

bool sl_gate_take(struct sl_gate *gate, uint64_t count, bool wait)
{
	uint32_t ticket, seen;

	if (!gate_has_line(gate) && gate_enter(gate, count))
		return true;
	if (!wait)
		return false;
	ticket = atomic_fetch_add(&gate->last, 1);
	/* Ended by sl_gate_give() of the threads that have what this thread and those before it
	 * need, or by sl_gate_open(). */
	while (seen = atomic_load(&gate->changes),
	       atomic_load(&gate->served) != ticket || !gate_enter(gate, count))
		sl_word_wait(&gate->changes, seen, SL_FOREVER);
	atomic_fetch_add(&gate->served, 1);
	gate_changed(gate);
	return true;
}

void sl_gate_give(struct sl_gate *gate, uint64_t count)
{
	atomic_fetch_sub(&gate->taken, count);
	gate_changed(gate);
}

void sl_gate_open(struct sl_gate *gate)
{
	atomic_store(&gate->most, UINT64_MAX);
	gate_changed(gate);
}

/* --------------------------------------------------------------------------------------- queue */

/* No other thread has the queue yet. */
void sl_queue_init(struct sl_queue *queue) SL_UNCHECKED
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

/* Takes the last sleeper in the list, with the warmest caches. */
static struct sl_sleeper *queue_take_sleeper_locked(struct sl_queue *queue)
	SL_REQUIRES(&queue->mutex)
{
	struct sl_list *link = queue->locked.sleepers.previous;

	if (link == &queue->locked.sleepers)
		return NULL;
	sl_list_remove(link);
	return SL_CONTAINER(link, struct sl_sleeper, link);
}

static void queue_append_locked(struct sl_queue *queue, struct sl_list *link, bool urgent)
	SL_REQUIRES(&queue->mutex)
{
	sl_list_append(urgent ? &queue->locked.urgent : &queue->locked.ready, link);
	atomic_fetch_add_explicit(&queue->count, 1, memory_order_relaxed);
}

void sl_queue_push(struct sl_queue *queue, struct sl_list *link, bool urgent)
{
	sl_mutex_lock(&queue->mutex);
	queue_append_locked(queue, link, urgent);
	struct sl_sleeper *sleeper = queue_take_sleeper_locked(queue);
	sl_mutex_unlock(&queue->mutex);
	if (sleeper)
		sleeper->wake(sleeper);
}

void sl_queue_push_quietly(struct sl_queue *queue, struct sl_list *link)
{
	sl_mutex_lock(&queue->mutex);
	queue_append_locked(queue, link, false);
	sl_mutex_unlock(&queue->mutex);
}

void sl_queue_wake(struct sl_queue *queue)
{
	sl_mutex_lock(&queue->mutex);
	struct sl_sleeper *sleeper = queue_take_sleeper_locked(queue);
	sl_mutex_unlock(&queue->mutex);
	if (sleeper)
		sleeper->wake(sleeper);
}

struct sl_list *sl_queue_list_locked(struct sl_queue *queue)
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
	while (taken < max && (from = sl_queue_list_locked(queue))) {
		sl_list_append(out, sl_list_take(from));
		taken++;
	}
	atomic_fetch_sub_explicit(&queue->count, taken, memory_order_relaxed);
	sl_mutex_unlock(&queue->mutex);
	return taken;
}

static bool queue_is_empty_locked(struct sl_queue *queue) SL_REQUIRES(&queue->mutex)
{
	return sl_list_empty(&queue->locked.urgent) && sl_list_empty(&queue->locked.ready);
}

bool sl_queue_sleep(struct sl_queue *queue, struct sl_sleeper *sleeper)
{
	sl_mutex_lock(&queue->mutex);
	bool sleep = queue_is_empty_locked(queue) && !queue->locked.closed;
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
 * Wakes all sleepers under the mutex: a sleeper that was just removed from the list may return, and
 * the stopping thread may free it, but only after it has passed through sl_queue_awake(), which
 * takes the mutex.
 */
static void queue_wake_all_locked(struct sl_queue *queue) SL_REQUIRES(&queue->mutex)
{
	struct sl_sleeper *sleeper;

	while ((sleeper = queue_take_sleeper_locked(queue)))
		sleeper->wake(sleeper);
}

void sl_queue_close(struct sl_queue *queue)
{
	sl_mutex_lock(&queue->mutex);
	queue->locked.closed = true;
	queue_wake_all_locked(queue);
	sl_mutex_unlock(&queue->mutex);
}

bool sl_queue_has_work(void *argument)
{
	struct sl_queue *queue = argument;

	return atomic_load_explicit(&queue->count, memory_order_relaxed);
}

static void word_sleeper_wake(struct sl_sleeper *sleeper)
{
	sl_flag_raise(&SL_CONTAINER(sleeper, struct sl_word_sleeper, sleeper)->woken);
}

void sl_word_sleeper_init(struct sl_word_sleeper *sleeper)
{
	sleeper->sleeper.wake = word_sleeper_wake;
}

bool sl_word_sleep(struct sl_queue *queue, struct sl_word_sleeper *sleeper, int64_t deadline)
{
	int rc = 0;

	atomic_store(&sleeper->woken, 0);
	if (!sl_queue_sleep(queue, &sleeper->sleeper))
		return true;
	while (!atomic_load(&sleeper->woken) && rc != -ETIMEDOUT)
		rc = sl_word_wait(&sleeper->woken, 0, deadline);
	sl_queue_awake(queue, &sleeper->sleeper);
	return rc != -ETIMEDOUT;
}

bool sl_queue_closed(struct sl_queue *queue)
{
	sl_mutex_lock(&queue->mutex);
	bool closed = queue->locked.closed && queue_is_empty_locked(queue);
	sl_mutex_unlock(&queue->mutex);
	return closed;
}

void sl_queue_nudge(struct sl_queue *queue)
{
	sl_mutex_lock(&queue->mutex);
	queue_wake_all_locked(queue);
	sl_mutex_unlock(&queue->mutex);
}

/* ------------------------------------------------------------------------------------- threads */

int sl_thread_start(pthread_t *thread, const char *name, void *(*run)(void *), void *argument)
{
	sigset_t all, before;

	/* Signal handlers of the program must run on threads of the program. */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	int rc = pthread_create(thread, NULL, run, argument);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (rc)
		return sl_fail(-rc, "cannot start thread %s: %s", name, sl_error_text(-rc));
	pthread_setname_np(*thread, name);
	return 0;
}

unsigned sl_cores(void)
{
	static _Atomic unsigned quota; /* 0: not read yet; any thread may */
	unsigned cores = 1, most = quota;
	cpu_set_t set;

	if (!most)
		quota = most = sl_machine_quota("");
	if (!sched_getaffinity(0, sizeof(set), &set))
		cores = (unsigned)CPU_COUNT(&set);
	return SL_MAX(SL_MIN(cores, most), 1);
}

size_t sl_page_size(void)
{
	return (size_t)sysconf(_SC_PAGESIZE);
}
