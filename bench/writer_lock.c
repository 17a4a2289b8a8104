/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A thread of the program that makes a small call of HDF5 every millisecond: how long it waits for HDF5's lock, which
 * storage takes as well.
 */
#include "writer_bench.h"

#include <err.h>
#include <hdf5.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

enum { CALLS_MOST = 100000 };

static pthread_t thread;
static atomic_bool stopping;
/* Of the thread until it has ended. */
static double *times;
static size_t calls;

static void *run(void *unused)
{
	const struct timespec pause = {0, 1000000};
	hid_t space = H5Screate(H5S_SCALAR);

	/* Once, however soon the frames are stored. */
	do {
		double start = seconds_of(CLOCK_MONOTONIC);

		H5Iget_ref(space);
		times[calls++] = seconds_of(CLOCK_MONOTONIC) - start;
		nanosleep(&pause, NULL);
	} while (!stopping && calls < CALLS_MOST);
	H5Sclose(space);
	return unused;
}

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

void lock_start(void)
{
	hbool_t safe = 0;

	if (H5is_library_threadsafe(&safe) < 0 || !safe)
		errx(1, "HDF5 has no lock here: it is built for one thread");
	times = calloc(CALLS_MOST, sizeof(*times));
	if (!times || pthread_create(&thread, NULL, run, NULL) != 0)
		errx(1, "a thread cannot be started");
}

void lock_stop(void)
{
	stopping = true;
	pthread_join(thread, NULL);
	qsort(times, calls, sizeof(*times), compare);
	found.lock_longest = times[calls - 1];
	found.lock_p99 = times[calls * 99 / 100];
}
