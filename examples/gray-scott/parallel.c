/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>

#include "parallel.h"

struct helper {
	struct parallel *parallel;
	unsigned worker;
	pthread_t thread;
};

struct parallel {
	unsigned threads, started; /* helpers that run: threads - 1 */
	struct helper *helpers;
	atomic_uint next; /* index that nobody has taken */

	/* Written before a run opens, and read by those that joined it. */
	parallel_work *work;
	void *argument;
	unsigned count;

	pthread_mutex_t mutex;
	pthread_cond_t opened, left;
	struct {
		unsigned long run;
		unsigned joined;
		bool open, stop;
	} locked; /* guarded by mutex */
};

unsigned parallel_cores(void)
{
	cpu_set_t set;

	if (sched_getaffinity(0, sizeof set, &set) || CPU_COUNT(&set) < 1)
		return 1;
	return (unsigned)CPU_COUNT(&set);
}

static void take_all(struct parallel *p, unsigned worker)
{
	unsigned index;

	while ((index = atomic_fetch_add(&p->next, 1)) < p->count)
		p->work(index, worker, p->argument);
}

static void *help(void *argument)
{
	struct helper *helper = argument;
	struct parallel *p = helper->parallel;
	unsigned long seen = 0;

	pthread_mutex_lock(&p->mutex);
	while (!p->locked.stop) {
		if (!p->locked.open || p->locked.run == seen) {
			pthread_cond_wait(&p->opened, &p->mutex);
			continue;
		}
		seen = p->locked.run;
		p->locked.joined++;
		pthread_mutex_unlock(&p->mutex);
		take_all(p, helper->worker);
		pthread_mutex_lock(&p->mutex);
		if (--p->locked.joined == 0)
			pthread_cond_signal(&p->left);
	}
	pthread_mutex_unlock(&p->mutex);
	return NULL;
}

int parallel_new(unsigned threads, struct parallel **out)
{
	struct parallel *p = calloc(1, sizeof *p);

	if (!p)
		return -ENOMEM;
	p->threads = threads ? threads : parallel_cores();
	pthread_mutex_init(&p->mutex, NULL);
	pthread_cond_init(&p->opened, NULL);
	pthread_cond_init(&p->left, NULL);
	p->helpers = calloc(p->threads, sizeof *p->helpers);
	for (; p->helpers && p->started + 1 < p->threads; p->started++) {
		struct helper *helper = &p->helpers[p->started];

		*helper = (struct helper){.parallel = p, .worker = p->started + 1};
		if (pthread_create(&helper->thread, NULL, help, helper))
			break;
	}
	if (p->started + 1 < p->threads) {
		parallel_free(p);
		return -EAGAIN;
	}
	*out = p;
	return 0;
}

void parallel_free(struct parallel *p)
{
	if (!p)
		return;
	pthread_mutex_lock(&p->mutex);
	p->locked.stop = true;
	pthread_cond_broadcast(&p->opened);
	pthread_mutex_unlock(&p->mutex);
	for (unsigned i = 0; i < p->started; i++)
		pthread_join(p->helpers[i].thread, NULL);
	pthread_cond_destroy(&p->left);
	pthread_cond_destroy(&p->opened);
	pthread_mutex_destroy(&p->mutex);
	free(p->helpers);
	free(p);
}

unsigned parallel_threads(const struct parallel *p)
{
	return p->threads;
}

void parallel_run(struct parallel *p, unsigned count, parallel_work *work, void *argument)
{
	p->work = work;
	p->argument = argument;
	p->count = count;
	atomic_store(&p->next, 0);
	pthread_mutex_lock(&p->mutex);
	p->locked.open = true;
	p->locked.run++;
	pthread_cond_broadcast(&p->opened);
	pthread_mutex_unlock(&p->mutex);
	take_all(p, 0);
	/* A helper that has not woken up until now is not waited for: there is nothing left for it. */
	pthread_mutex_lock(&p->mutex);
	p->locked.open = false;
	while (p->locked.joined > 0)
		pthread_cond_wait(&p->left, &p->mutex);
	pthread_mutex_unlock(&p->mutex);
}
