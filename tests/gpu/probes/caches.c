/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a copy to the device costs when threads have just written what it copies, and sleep. A line for each
 * length and each way in which they wrote: plainly; plainly, and then told the processor to give the lines to the
 * cache that all cores share (cldemote); with stores around the caches; not at all, for comparison.
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "probe.h"

enum { THREADS = 16, ROUNDS = 20, UNCOUNTED = 3, LARGEST = 16 << 20, SOURCE = 256 << 20 };
enum way { PLAIN, DEMOTED, AROUND, NOT_WRITTEN, WAYS };
static const char *const ways[WAYS] = {"plainly", "plainly, then cldemote", "around the caches",
                                       "not at all"};

static char *pinned, *source;
static CUdeviceptr there;

/* What the threads are to write next. */
static struct {
	pthread_mutex_t mutex;
	pthread_cond_t changed;
	unsigned round; /* guarded by mutex, as are the next */
	unsigned written;
	enum way way;
	size_t length, from;
} work = {.mutex = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

#ifdef __x86_64__

static void write_around(char *to, const char *from, size_t length)
{
	for (size_t i = 0; i < length; i += 8) {
		long long eight;

		memcpy(&eight, from + i, sizeof(eight));
		__asm__ volatile("movnti %1, %0"
		                 : "=m"(*(long long *)(void *)(to + i))
		                 : "r"(eight));
	}
	__asm__ volatile("sfence" ::: "memory");
}

/* Processors that do not know it do nothing. */
static void demote(const char *data, size_t length)
{
	for (size_t i = 0; i < length; i += 64)
		__asm__ volatile("cldemote %0" ::"m"(data[i]));
}

#else

static void write_around(char *to, const char *from, size_t length)
{
	memcpy(to, from, length);
}

static void demote(const char *data, size_t length)
{
	(void)data;
	(void)length;
}

#endif

static void write_share(enum way way, size_t length, size_t from, unsigned index)
{
	size_t share = length / THREADS, at = share * index;

	if (way == AROUND)
		write_around(pinned + at, source + from + at, share);
	else
		memcpy(pinned + at, source + from + at, share);
	if (way == DEMOTED)
		demote(pinned + at, share);
}

static void *write_in_turn(void *argument)
{
	unsigned index = (unsigned)(uintptr_t)argument, seen = 0;

	pthread_mutex_lock(&work.mutex);
	for (;;) {
		enum way way;
		size_t length, from;

		while (work.round == seen)
			pthread_cond_wait(&work.changed, &work.mutex);
		seen = work.round;
		way = work.way;
		length = work.length;
		from = work.from;
		pthread_mutex_unlock(&work.mutex);
		write_share(way, length, from, index);
		pthread_mutex_lock(&work.mutex);
		work.written++;
		pthread_cond_broadcast(&work.changed);
	}
	return NULL;
}

static void have_written(enum way way, size_t length, unsigned round)
{
	struct timespec pause = {0, 200000};

	pthread_mutex_lock(&work.mutex);
	work.way = way;
	work.length = length;
	work.from = round * length % (SOURCE - LARGEST);
	work.written = 0;
	work.round++;
	pthread_cond_broadcast(&work.changed);
	while (work.written < THREADS)
		pthread_cond_wait(&work.changed, &work.mutex);
	pthread_mutex_unlock(&work.mutex);
	/* They are asleep. */
	nanosleep(&pause, NULL);
}

static double seconds(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static void measure(CUstream stream, enum way way, size_t length)
{
	double times[ROUNDS], median;

	for (int round = -UNCOUNTED; round < ROUNDS; round++) {
		double start;

		if (way != NOT_WRITTEN)
			have_written(way, length, (unsigned)(round + UNCOUNTED));
		start = seconds();
		MUST(cuMemcpyHtoDAsync_v2(there, pinned, length, stream));
		while (cu.cuStreamQuery(stream) == CUDA_ERROR_NOT_READY)
			;
		if (round >= 0)
			times[round] = seconds() - start;
	}
	qsort(times, ROUNDS, sizeof(times[0]), compare);
	median = times[ROUNDS / 2];
	say("| %zu KiB | %s | %.0f us | %.1f GB/s |", length >> 10, ways[way], median * 1e6,
	    (double)length / median / 1e9);
}

int main(void)
{
	pthread_t thread;
	CUstream stream;

	probe_start();
	pinned = driver_pinned(LARGEST);
	there = driver_memory(LARGEST);
	stream = driver_stream();
	source = malloc(SOURCE);
	if (!source)
		return 1;
	memset(source, 1, SOURCE);
	for (uintptr_t i = 0; i < THREADS; i++)
		if (pthread_create(&thread, NULL, write_in_turn, (void *)i))
			return 1;
	for (size_t length = 1 << 20; length <= LARGEST; length *= 4)
		for (int way = 0; way < WAYS; way++)
			measure(stream, way, length);
	exit(0);
}
