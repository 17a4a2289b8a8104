/* SPDX-License-Identifier: Apache-2.0 */
/* Threads, time, and how threads wait for each other: words, gates, queues and pools. */
#ifndef SL_THREADS_H
#define SL_THREADS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/list.h"
#include "core/mutex.h"

/* -------------------------------------------------------------------------------------- time */

#define SL_FOREVER INT64_MAX

/* Returns nanoseconds of CLOCK_MONOTONIC. */
int64_t sl_now(void);
/* Returns the end of a public timeout_ms that starts now; SL_FOREVER if it is negative. */
int64_t sl_deadline(int timeout_ms);

/* ------------------------------------------------------------------------------------- words */

/*
 * Sleeps while *word is expected, until a wake or the deadline. May return early: the caller looks
 * at the word again. Returns 0, or -ETIMEDOUT after the deadline.
 */
int sl_word_wait(_Atomic uint32_t *word, uint32_t expected, int64_t deadline);
void sl_word_wake(_Atomic uint32_t *word, int count);
/* Sets a flag, which was 0, to 1. A thread that awaits it may free it at once. */
void sl_flag_raise(_Atomic uint32_t *flag);
void sl_flag_await(_Atomic uint32_t *flag);
/*
 * Polls for a short time before the caller sleeps, because a sleep and a wake usually take
 * longer than the next event of a running operation. Polls more rarely after finding nothing.
 */
struct sl_spin {
	uint32_t in_vain, left_out;
};
/* Returns true as soon as found(argument) does, false after about 100 us. */
bool sl_spin_until(struct sl_spin *spin, bool (*found)(void *), void *argument);

/* Wakes a thread that waits for an eventfd. Fails only if 2^64 - 2 wakes are pending. */
void sl_eventfd_raise(int fd);

/* ----------------------------------------------------------------------------------- signals */

/*
 * Signals the condition; on a thread that has called sl_signals_hold(), at its next
 * sl_signals_send(). A thread that ends many operations in a row so wakes a waiting thread once,
 * which then finds all of them. It must not sleep while it owes signals, and the condition lives
 * until they are sent. Of two conditions the second is signalled at once.
 */
void sl_signal(pthread_cond_t *condition);
void sl_signals_hold(void);
/* Returns how many signals the thread owes. */
unsigned sl_signals_owed(void);
void sl_signals_send(void);

/* ------------------------------------------------------------------------------------- queue */

/*
 * Work for several threads, each of which sleeps in its own way (on a word, on an eventfd). A push
 * wakes one sleeper: the last that fell asleep.
 */
struct sl_sleeper {
	struct sl_list link;               /* guarded by queue->mutex */
	void (*wake)(struct sl_sleeper *); /* any thread */
};
struct sl_queue {
	struct sl_mutex mutex;
	struct {
		/* Urgent links come before those that are ready, at most 3 in a row. */
		struct sl_list urgent, ready;
		unsigned passed; /* urgent links taken since the last ready link */
		struct sl_list sleepers;
		bool closed;
	} locked SL_GUARDED_BY(&mutex);
	_Atomic uint32_t count; /* written under mutex; a hint without it */
};

void sl_queue_init(struct sl_queue *queue);
void sl_queue_destroy(struct sl_queue *queue);
void sl_queue_push(struct sl_queue *queue, struct sl_list *link, bool urgent);
/* Wakes no sleeper; and wakes one. */
void sl_queue_push_quietly(struct sl_queue *queue, struct sl_list *link);
void sl_queue_wake(struct sl_queue *queue);
/* Returns the list whose first link is to be taken next, or NULL if both are empty. */
struct sl_list *sl_queue_list_locked(struct sl_queue *queue) SL_REQUIRES(&queue->mutex);
/* Moves up to max links to the end of out. Returns how many. */
unsigned sl_queue_take(struct sl_queue *queue, struct sl_list *out, unsigned max);
/*
 * Registers a sleeper; wake() will be called for it at the next push, nudge or close. Returns false
 * if the thread must not sleep: there is work, or the queue is closed.
 */
bool sl_queue_sleep(struct sl_queue *queue, struct sl_sleeper *sleeper);
/* Removes the sleeper after its sleep, however that ended. */
void sl_queue_awake(struct sl_queue *queue, struct sl_sleeper *sleeper);
/* Wakes all sleepers. Links in the queue can still be taken. */
void sl_queue_close(struct sl_queue *queue);
/* Returns true if the queue is closed and empty. */
bool sl_queue_closed(struct sl_queue *queue);
/* Wakes all sleepers, so that they look around. */
void sl_queue_nudge(struct sl_queue *queue);
/* Returns whether the queue seems to have work, without its mutex; for sl_spin_until(). */
bool sl_queue_has_work(void *queue);

/* A sleeper that sleeps on a word. */
struct sl_word_sleeper {
	struct sl_sleeper sleeper;
	_Atomic uint32_t woken; /* 1 ends its sleep */
};
void sl_word_sleeper_init(struct sl_word_sleeper *sleeper);
/* Sleeps until a push, a nudge, or the close of the queue; not at all if there is work. False: the
 * deadline ended the sleep. */
bool sl_word_sleep(struct sl_queue *queue, struct sl_word_sleeper *sleeper, int64_t deadline);

/* -------------------------------------------------------------------------------------- gate */

/*
 * A fair semaphore that counts in any unit. A request larger than `most` passes when nothing is
 * taken. Threads that wait are admitted in the order of their arrival; none passes another.
 */
struct sl_gate {
	_Atomic uint64_t taken, most;
	_Atomic uint32_t last, served; /* tickets of the threads that wait, from 0 on */
	_Atomic uint32_t changes;      /* the word that they wait for */
};
/* Any thread, as the next three; fields but `most` begin as 0. False: !wait, and it would wait. */
bool sl_gate_take(struct sl_gate *gate, uint64_t count, bool wait);
/* Takes count without regard to `most`. */
static inline void sl_gate_pass(struct sl_gate *gate, uint64_t count)
{
	atomic_fetch_add(&gate->taken, count);
}
void sl_gate_give(struct sl_gate *gate, uint64_t count);
/* Ends all waits, now and later. */
void sl_gate_open(struct sl_gate *gate);

/* ----------------------------------------------------------------------------------- threads */

/* Starts a joinable thread that blocks all signals; its name: 15 characters. 0 or -errno. */
int sl_thread_start(pthread_t *thread, const char *name, void *(*run)(void *), void *argument);
/* Returns the processors that this process may use, by affinity and cgroup; at least 1. */
unsigned sl_cores(void);
/* Returns the bytes of a page of the kernel: 4 KiB, or 16 or 64. */
size_t sl_page_size(void);
/* Returns bytes rounded up to pages; less than bytes if that overflows. */
static inline size_t sl_whole_pages(size_t bytes)
{
	size_t page = sl_page_size();

	return (bytes + page - 1) / page * page;
}

/* -------------------------------------------------------------------------------------- pool */

/* A task of a pool of threads. No task waits for another. */
struct sl_task {
	struct sl_list link;
	/* Tasks of the same home prefer the same worker, whose caches hold their memory. */
	uintptr_t home;
	unsigned skips; /* later tasks that were taken before it; the pool's */
	bool urgent;    /* taken before others */
	/* That the task belongs to, for sl_pool_take(), or NULL. patient: a thread is about to take
	 * it so, and no worker is woken; if it does not, a worker runs the task after its next look
	 * at the queue, which it has after a nap of at most 0.5 ms or a task. */
	const void *owner;
	bool patient;
	bool taken; /* by a thread that waits for it; not set by the pool */
	void (*run)(struct sl_task *);
};
struct sl_pool;

/*
 * Starts a pool of `workers` threads, called name and a number. When all of them are busy it starts
 * more, up to `most`, which stay; so in a pool whose tasks may wait for storage none waits for the
 * storage of another.
 */
int sl_pool_start(const char *name, unsigned workers, unsigned most, struct sl_pool **out);
/* Runs all queued tasks, then joins the workers. NULL is allowed, here and below. */
void sl_pool_stop(struct sl_pool *pool);
/* Called after all submitting threads were joined: a late thread may still wake a worker. */
void sl_pool_free(struct sl_pool *pool);
/* Queues a task, which belongs to the pool until it runs. Any thread. */
void sl_pool_submit(struct sl_pool *pool, struct sl_task *task);
/*
 * Lets the workers run on the cores of a NUMA node alone, for the first node of a pool; for a
 * second node, on all cores of the calling thread again. root: as of sl_machine_cores(). Does
 * nothing where the calling thread has no core of the node.
 */
void sl_pool_stay(struct sl_pool *pool, const char *root, int node);
/*
 * Lets only the first of the workers take tasks, until a time of CLOCK_MONOTONIC; the others rest.
 * Any thread. For a pool that does not grow.
 */
void sl_pool_limit(struct sl_pool *pool, unsigned workers, int64_t until);
/* Takes a task of that owner which no worker has begun, of the last 32 that are queued and not
 * urgent. The caller runs it. NULL: there is none. */
struct sl_task *sl_pool_take(struct sl_pool *pool, const void *owner);
/* Promises that this thread's task waits no more: the pool need not grow for the next task. */
void sl_pool_task_waits_no_more(void);

/* ------------------------------------------------------------------------------------- seats */

/*
 * Takes a seat for a ring that long reads into a device fill, so that other processes of the user
 * know of it. The workers of the pool are limited to its share of `cores`; NULL: to nothing.
 * device: its PCI address or name. Returns the seat; -1: there is no file for seats, or none is
 * free. Any thread; no call waits.
 */
int sl_seat_take(const char *device, struct sl_pool *pool, unsigned cores);
void sl_seat_give(int seat);
/*
 * Looks at the seats of other processes, at most each 10 ms. For threads of reads that have a seat.
 */
void sl_seats_look(void);
/* Returns a text for people, for the caller to free: the file, and the devices of its seats. */
char *sl_seats_describe(bool *usable);

#endif
