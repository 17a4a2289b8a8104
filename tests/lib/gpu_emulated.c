/* SPDX-License-Identifier: Apache-2.0 */
/* The emulated devices: their kernels are functions. */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "lib/emulated_memory.h"
#include "lib/gpu.h"
#include "lib/pattern.h"
#include "sluice/emulated.h"

/* A kernel with its arguments. In a list until it has run: a device that is lost never runs it. */
struct job {
	struct job *next, **at;
	void (*run)(struct job *);
	unsigned char *bytes;
	size_t n;
	uint64_t offset, seed;
	void *out;
	struct gpu_match *list;
	unsigned count;
	void (*done)(void *);
	void *argument;
	const void *looked_at[];
};
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct job *jobs; /* guarded by mutex */

static void *real(const void *memory)
{
	void *bytes = sluice_emulated_memory(memory);

	return bytes ? bytes : (void *)(uintptr_t)memory;
}

static void forget(struct job *job)
{
	pthread_mutex_lock(&mutex);
	*job->at = job->next;
	if (job->next)
		job->next->at = job->at;
	pthread_mutex_unlock(&mutex);
	free(job);
}

static void run(void *argument)
{
	struct job *job = argument;

	job->run(job);
	forget(job);
}

static struct job *job_new(void (*function)(struct job *), unsigned count)
{
	struct job *job = calloc(1, sizeof(*job) + count * sizeof(job->looked_at[0]));

	job->run = function;
	job->count = count;
	pthread_mutex_lock(&mutex);
	job->next = jobs;
	job->at = &jobs;
	if (jobs)
		jobs->at = &job->next;
	jobs = job;
	pthread_mutex_unlock(&mutex);
	return job;
}

static int launch(int which, sluice_stream stream, struct job *job)
{
	int rc = sluice_emulated_launch(gpu_numbers[which], stream, run, job);

	if (!rc)
		return 0;
	forget(job);
	return gpu_failed(rc, "sluice_emulated_launch: %s", sluice_last_message());
}

/* ------------------------------------------------------------------------------------ kernels */

static void run_fill(struct job *job)
{
	pattern_fill(job->bytes, job->n, job->offset, job->seed);
}

static int fill(int which, sluice_stream stream, void *memory, size_t n, uint64_t offset,
                uint64_t seed)
{
	struct job *job = job_new(run_fill, 0);

	job->bytes = real(memory);
	job->n = n;
	job->offset = offset;
	job->seed = seed;
	return launch(which, stream, job);
}

static void run_scribble(struct job *job)
{
	memset(job->bytes, (int)job->seed, job->n);
}

static int scribble(int which, sluice_stream stream, void *memory, size_t n, unsigned byte)
{
	struct job *job = job_new(run_scribble, 0);

	job->bytes = real(memory);
	job->n = n;
	job->seed = byte & 0xff;
	return launch(which, stream, job);
}

static void run_take(struct job *job)
{
	memcpy(job->out, job->bytes, job->n);
}

static int take(int which, sluice_stream stream, void *out, const void *memory, size_t n)
{
	struct job *job = job_new(run_take, 0);

	job->bytes = real(memory);
	job->out = out;
	job->n = n;
	return launch(which, stream, job);
}

static void run_match(struct job *job)
{
	for (unsigned i = 0; i < job->count; i++) {
		struct gpu_match *m = &job->list[i];

		m->wrong = (m->differ ? m->differ : pattern_differ)(job->looked_at[i], m->n,
		                                                    m->offset, m->seed);
	}
	job->done(job->argument);
}

static int match(int which, sluice_stream stream, struct gpu_match *list, unsigned count,
                 void (*done)(void *), void *argument)
{
	struct job *job = job_new(run_match, count);

	for (unsigned i = 0; i < count; i++)
		job->looked_at[i] = real(list[i].memory);
	job->list = list;
	job->done = done;
	job->argument = argument;
	return launch(which, stream, job);
}

static int call(int which, sluice_stream stream, void (*function)(void *), void *argument)
{
	return match(which, stream, NULL, 0, function, argument);
}

/* --------------------------------------------------------------------------------------- rest */

static int open_emulated(const char *name)
{
	static const char *const names[GPU_DEVICES] = {"emulated:0", "emulated:1"};

	for (int i = 0; i < GPU_DEVICES; i++) {
		void *memory;
		int rc = sluice_device_find(strchr(name, ':') ? name : names[i], &gpu_numbers[i]);

		/* Its threads start now. */
		if (!rc)
			rc = sluice_device_alloc(gpu_numbers[i], 1, &memory);
		if (!rc)
			rc = sluice_device_free(memory);
		if (rc)
			return gpu_failed(rc, "%s: %s", names[i], sluice_last_message());
	}
	return 0;
}

static void use(int which)
{
	(void)which;
}

static void wait_for_go(void *argument)
{
	struct timespec pause = {0, 1000000};
	struct gpu_hold *hold = argument;

	while (!atomic_load(hold->word))
		nanosleep(&pause, NULL);
}

static int host(int which, sluice_stream stream, void (*function)(void *), void *argument)
{
	int rc = sluice_emulated_call(gpu_numbers[which], stream, function, argument);

	return rc ? gpu_failed(rc, "sluice_emulated_call: %s", sluice_last_message()) : 0;
}

static int hold(int which, sluice_stream stream, struct gpu_hold *out)
{
	atomic_store(&out->own, 0);
	out->word = &out->own;
	return host(which, stream, wait_for_go, out);
}

/* The device has nothing that waits: a host function does. */
static void run_spin(struct job *job)
{
	struct timespec t = {(time_t)(job->seed / 1000000000), (long)(job->seed % 1000000000)};

	nanosleep(&t, NULL);
}

static int spin(int which, sluice_stream stream, uint64_t nanoseconds)
{
	struct job *job = job_new(run_spin, 0);
	int rc;

	job->seed = nanoseconds;
	rc = host(which, stream, run, job);
	if (rc)
		forget(job);
	return rc;
}

static int get(void *out, const void *memory, size_t n)
{
	memcpy(out, real(memory), n);
	return 0;
}

static int put(void *memory, const void *bytes, size_t n)
{
	memcpy(real(memory), bytes, n);
	return 0;
}

static int in_use(int which, uint64_t *bytes)
{
	*bytes = emulated_memory_in_use(gpu_name(which));
	return 0;
}

const struct gpu_kind gpu_emulated = {
	.name = "emulated",
	.open = open_emulated,
	.use = use,
	.fill = fill,
	.scribble = scribble,
	.take = take,
	.spin = spin,
	.host = host,
	.call = call,
	.match = match,
	.hold = hold,
	.get = get,
	.put = put,
	.in_use = in_use,
};
