/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Storage in the background as a course on the subject would do it: one thread calls H5Dwrite, behind a
 * channel that holds one finished frame, and buffers come back on another channel. Three of them: one is
 * computed, one waits, one is written.
 */
#include "writer_bench.h"

#include <err.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum { BUFFERS = 3 };

struct course {
	pthread_t thread;
	void *hdf5;
	size_t bytes;
	pthread_mutex_t mutex;
	pthread_cond_t changed; /* both sides wait here */
	struct {
		float *free[BUFFERS], *ready;
		unsigned count; /* of free */
		bool closing;
	} locked; /* guarded by mutex */
};

/* NULL when there will be no more. */
static float *take(struct course *c)
{
	float *frame;

	pthread_mutex_lock(&c->mutex);
	while (!c->locked.ready && !c->locked.closing)
		pthread_cond_wait(&c->changed, &c->mutex);
	frame = c->locked.ready;
	c->locked.ready = NULL;
	pthread_cond_broadcast(&c->changed);
	pthread_mutex_unlock(&c->mutex);
	return frame;
}

static void *run(void *argument)
{
	struct course *c = argument;
	float *frame;

	while ((frame = take(c))) {
		sink_hdf5.submit(c->hdf5, frame);
		pthread_mutex_lock(&c->mutex);
		c->locked.free[c->locked.count++] = frame;
		pthread_cond_broadcast(&c->changed);
		pthread_mutex_unlock(&c->mutex);
	}
	return NULL;
}

static void *course_open(const struct sink_options *o)
{
	struct course *c = calloc(1, sizeof(*c));

	if (!c)
		err(1, "memory");
	c->hdf5 = sink_hdf5.open(o);
	c->bytes = o->rows * o->columns * sizeof(float);
	pthread_mutex_init(&c->mutex, NULL);
	pthread_cond_init(&c->changed, NULL);
	while (c->locked.count < BUFFERS)
		c->locked.free[c->locked.count++] = touched(c->bytes);
	if (pthread_create(&c->thread, NULL, run, c) != 0)
		errx(1, "a thread cannot be started");
	return c;
}

static float *course_acquire(void *sink)
{
	struct course *c = sink;
	float *frame;

	pthread_mutex_lock(&c->mutex);
	while (!c->locked.count)
		pthread_cond_wait(&c->changed, &c->mutex);
	frame = c->locked.free[--c->locked.count];
	pthread_mutex_unlock(&c->mutex);
	return frame;
}

static void course_submit(void *sink, float *frame)
{
	struct course *c = sink;

	pthread_mutex_lock(&c->mutex);
	while (c->locked.ready)
		pthread_cond_wait(&c->changed, &c->mutex);
	c->locked.ready = frame;
	pthread_cond_broadcast(&c->changed);
	pthread_mutex_unlock(&c->mutex);
}

static void course_push(void *sink, const float *frame)
{
	float *copy = course_acquire(sink);

	memcpy(copy, frame, ((struct course *)sink)->bytes);
	course_submit(sink, copy);
}

static void course_close(void *sink)
{
	struct course *c = sink;

	pthread_mutex_lock(&c->mutex);
	c->locked.closing = true;
	pthread_cond_broadcast(&c->changed);
	pthread_mutex_unlock(&c->mutex);
	pthread_join(c->thread, NULL);
	sink_hdf5.close(c->hdf5);
	for (unsigned i = 0; i < BUFFERS; i++)
		free(c->locked.free[i]);
	pthread_mutex_destroy(&c->mutex);
	pthread_cond_destroy(&c->changed);
	free(c);
}

const struct sink_ops sink_course = {"course",      course_open, course_acquire,
                                     course_submit, course_push, course_close};
