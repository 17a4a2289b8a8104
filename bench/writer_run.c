/* SPDX-License-Identifier: Apache-2.0 */
/* One run: frames are handed over, and clocks are read. */
#include "writer_bench.h"

#include <err.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

/* Frames of the writer that are filled before the time starts. */
static struct {
	float **frames;
	char *held;     /* whether each of them is here */
	unsigned depth; /* so many are on the way at most */
} ready;

double seconds_of(clockid_t id)
{
	struct timespec t;

	clock_gettime(id, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static double now(void)
{
	return seconds_of(CLOCK_MONOTONIC);
}

static double cpu_seconds(void)
{
	struct rusage u;

	getrusage(RUSAGE_SELF, &u);
	return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
	       (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e6;
}

/* Since the start of the machine, of all that ran: what is not ours disturbs. */
static double machine_seconds(void)
{
	unsigned long long user, nice, system, idle, wait, hard, soft, stolen;
	FILE *file = fopen("/proc/stat", "r");

	if (!file || fscanf(file, "cpu %llu %llu %llu %llu %llu %llu %llu %llu", &user, &nice,
	                    &system, &idle, &wait, &hard, &soft, &stolen) != 8)
		err(1, "/proc/stat");
	fclose(file);
	return (double)(user + nice + system + hard + soft + stolen) / (double)sysconf(_SC_CLK_TCK);
}

/* ----------------------------------------------------------------------------------- nothing is stored */

static void *nothing_open(const struct sink_options *o)
{
	return touched(o->rows * o->columns * sizeof(float));
}

static float *nothing_acquire(void *sink)
{
	return sink;
}

static void nothing_submit(void *sink, float *frame)
{
	(void)sink;
	(void)frame;
}

static void nothing_push(void *sink, const float *frame)
{
	memcpy(sink, frame, frame_cells() * sizeof(float));
}

const struct sink_ops sink_nothing = {"nothing",      nothing_open, nothing_acquire,
                                      nothing_submit, nothing_push, free};

/* ---------------------------------------------------------------------------------------------- cores */

static void use_cores(const cpu_set_t *set)
{
	if (sched_setaffinity(0, sizeof(*set), set) != 0)
		err(1, "sched_setaffinity");
}

/* Of those that this thread may use, count; the last ones, as the first has most to do for others. */
static cpu_set_t last_cores(unsigned count)
{
	cpu_set_t all, some;

	CPU_ZERO(&some);
	if (sched_getaffinity(0, sizeof(all), &all) != 0)
		err(1, "sched_getaffinity");
	for (int i = CPU_SETSIZE - 1; i >= 0 && count > 0; i--)
		if (CPU_ISSET(i, &all)) {
			CPU_SET(i, &some);
			count--;
		}
	return some;
}

/* Threads have the cores of the one that starts them. */
static void *open_apart(const struct sink_ops *ops)
{
	cpu_set_t all, own = last_cores(1), others;
	void *sink;

	if (sched_getaffinity(0, sizeof(all), &all) != 0 || CPU_COUNT(&all) < 2)
		errx(1, "there is one core, and apart needs two");
	CPU_XOR(&others, &all, &own);
	use_cores(&others);
	sink = ops->open(&options.sink);
	use_cores(&own);
	return sink;
}

/* ---------------------------------------------------------------------------------------------- the run */

static void called(double start)
{
	double t = now() - start;

	found.calls += t;
	if (t > found.longest)
		found.longest = t;
}

/* What a frame has when it comes back is not promised; bench/writer looks at the file for once. */
static void make_ready(const struct sink_ops *ops, void *sink)
{
	ready.frames = calloc(source_count(), sizeof(*ready.frames));
	ready.held = malloc(source_count());
	if (!ready.frames || !ready.held)
		err(1, "memory");
	for (size_t i = 0; i < source_count(); i++) {
		ready.frames[i] = ops->acquire(sink);
		ready.held[i] = 1;
		source_fill(ready.frames[i], i);
	}
}

static void take_back(const float *frame)
{
	for (size_t i = 0; i < source_count(); i++)
		if (ready.frames[i] == frame) {
			ready.held[i] = 1;
			return;
		}
	errx(1, "a frame has come that was not there before");
}

static void hand_ready(const struct sink_ops *ops, void *sink, uint64_t i)
{
	size_t which = i % source_count();
	double start = now();

	if (i >= ready.depth)
		take_back(ops->acquire(sink));
	called(start);
	if (!ready.held[which])
		errx(1, "a frame stays away while %zu others come back", source_count());
	ready.held[which] = 0;
	start = now();
	ops->submit(sink, ready.frames[which]);
	called(start);
}

static void hand_over(const struct sink_ops *ops, void *sink, uint64_t i)
{
	double start = now();
	float *frame;

	if (!options.fill) {
		ops->push(sink, source_at(i));
		called(start);
		return;
	}
	frame = ops->acquire(sink);
	called(start);
	start = now();
	source_fill(frame, i);
	found.filling += now() - start;
	start = now();
	ops->submit(sink, frame);
	called(start);
}

static void sync_file(const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd < 0 || fdatasync(fd) != 0)
		err(1, "%s: fdatasync", path);
	close(fd);
}

void *bench_begin(const struct sink_ops *ops)
{
	void *sink;

	ready.depth = options.sink.depth ? options.sink.depth : 2;
	if (options.cores) {
		cpu_set_t cores = last_cores(options.cores);

		use_cores(&cores);
	}
	if (options.ready)
		options.sink.depth = (unsigned)source_count();
	sink = options.apart ? open_apart(ops) : ops->open(&options.sink);
	if (options.ready)
		make_ready(ops, sink);
	return sink;
}

void bench_run(const struct sink_ops *ops, void *sink)
{
	const struct timespec pause = {(time_t)options.pause,
	                               (long)((options.pause - (time_t)options.pause) * 1e9)};

	found.busy = -machine_seconds();
	found.cpu = -cpu_seconds();
	found.start = now();
	for (uint64_t i = 0; i < options.sink.frames; i++) {
		if (options.pause > 0)
			nanosleep(&pause, NULL);
		if (options.ready)
			hand_ready(ops, sink, i);
		else
			hand_over(ops, sink, i);
	}
	ops->close(sink);
	if (options.sync)
		sync_file(options.sink.path);
	found.seconds = now() - found.start;
	found.cpu += cpu_seconds();
	found.busy += machine_seconds();
}

void bench_print(double stored)
{
	const struct sink_options *o = &options.sink;

	printf("{\"bytes\": %zu, \"seconds\": %.6f, \"cpu_seconds\": %.6f, \"stored\": %.0f, "
	       "\"calls\": %.6f, \"longest\": %.6f, \"filling\": %.6f, \"others\": %.6f, "
	       "\"frames\": %llu, \"lock_longest\": %.6f, \"lock_p99\": %.6f}\n",
	       o->frames * o->whole * o->columns * sizeof(float), found.seconds, found.cpu, stored,
	       found.calls, found.longest, found.filling,
	       found.busy > found.cpu ? found.busy - found.cpu : 0, (unsigned long long)o->frames,
	       found.lock_longest, found.lock_p99);
}
