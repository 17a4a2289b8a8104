/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What sluice is compared with: threads and pinned memory that are there before the clock starts, and the
 * driver's own calls.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "device_bench.h"
#include "gpu/driver.h"

enum { THREADS_MOST = 64, BUFFERS = 2 };

/* One thread: its buffers, and what it gives to the device. */
struct hand {
	struct crew *crew;
	pthread_t thread;
	char *buffers[BUFFERS];
	CUstream stream;
	CUevent events[BUFFERS];
};

struct crew {
	const struct job *job;
	void (*work)(struct hand *hand); /* until there are no more tasks */
	int fd;
	unsigned long tasks;
	_Atomic unsigned long next;
	pthread_barrier_t start, end;
	struct hand hands[THREADS_MOST];
};

/* The offset of the next task in the file and on the device; false: there is none. */
static bool next_task(struct hand *hand, uint64_t *offset)
{
	unsigned long i = atomic_fetch_add(&hand->crew->next, 1);

	*offset = i * hand->crew->job->bytes;
	return i < hand->crew->tasks;
}

static CUdeviceptr place(uint64_t offset)
{
	return (uintptr_t)device_memory + offset;
}

static void transfer(struct hand *hand, char *buffer, uint64_t offset)
{
	uint64_t length = hand->crew->job->bytes;

	for (uint64_t done = 0; done < length;) {
		ssize_t n = hand->crew->job->write ? pwrite(hand->crew->fd, buffer + done,
		                                            length - done, (off_t)(offset + done))
		                                   : pread(hand->crew->fd, buffer + done,
		                                           length - done, (off_t)(offset + done));

		if (n <= 0)
			fail("'%s' at %llu: %s", hand->crew->job->path,
			     (unsigned long long)(offset + done), n ? strerror(errno) : "short");
		done += (uint64_t)n;
	}
}

/* ---------------------------------------------------------------------------------------- the work */

static void only_transfer(struct hand *hand)
{
	uint64_t offset;

	while (next_task(hand, &offset))
		transfer(hand, hand->buffers[0], offset);
}

/* While one buffer is copied, the other one is filled. */
static void pipeline_in(struct hand *hand)
{
	uint64_t offset;

	for (unsigned k = 0; next_task(hand, &offset); k++) {
		unsigned b = k % BUFFERS;

		if (k >= BUFFERS)
			MUST(cuEventSynchronize(hand->events[b]));
		transfer(hand, hand->buffers[b], offset);
		MUST(cuMemcpyHtoDAsync_v2(place(offset), hand->buffers[b], hand->crew->job->bytes,
		                          hand->stream));
		MUST(cuEventRecord(hand->events[b], hand->stream));
	}
	MUST(cuStreamSynchronize(hand->stream));
}

/* While one buffer is filled by the device, the other one is written. */
static void pipeline_out(struct hand *hand)
{
	uint64_t offset, before = 0;
	bool more = true;

	for (unsigned k = 0; more || k; k++) {
		unsigned b = k % BUFFERS, other = (k + 1) % BUFFERS;

		more = next_task(hand, &offset);
		if (more) {
			MUST(cuMemcpyDtoHAsync_v2(hand->buffers[b], place(offset),
			                          hand->crew->job->bytes, hand->stream));
			MUST(cuEventRecord(hand->events[b], hand->stream));
		}
		if (k) {
			MUST(cuEventSynchronize(hand->events[other]));
			transfer(hand, hand->buffers[other], before);
		}
		if (!more)
			break;
		before = offset;
	}
}

static void single_in(struct hand *hand)
{
	uint64_t offset;

	while (next_task(hand, &offset)) {
		transfer(hand, hand->buffers[0], offset);
		MUST(cuMemcpyHtoDAsync_v2(place(offset), hand->buffers[0], hand->crew->job->bytes,
		                          hand->stream));
		MUST(cuStreamSynchronize(hand->stream));
	}
}

static void single_out(struct hand *hand)
{
	uint64_t offset;

	while (next_task(hand, &offset)) {
		MUST(cuMemcpyDtoHAsync_v2(hand->buffers[0], place(offset), hand->crew->job->bytes,
		                          hand->stream));
		MUST(cuStreamSynchronize(hand->stream));
		transfer(hand, hand->buffers[0], offset);
	}
}

/* Through memory that nobody pinned. */
static void small_in(struct hand *hand)
{
	char *buffer = malloc(hand->crew->job->bytes);
	uint64_t offset;

	while (next_task(hand, &offset)) {
		transfer(hand, buffer, offset);
		MUST(cuMemcpyHtoD_v2(place(offset), buffer, hand->crew->job->bytes));
	}
	free(buffer);
}

static void small_out(struct hand *hand)
{
	char *buffer = malloc(hand->crew->job->bytes);
	uint64_t offset;

	while (next_task(hand, &offset)) {
		MUST(cuMemcpyDtoH_v2(buffer, place(offset), hand->crew->job->bytes));
		transfer(hand, buffer, offset);
	}
	free(buffer);
}

/* ----------------------------------------------------------------------------------------- the crew */

static void *run_hand(void *argument)
{
	struct hand *hand = argument;
	struct crew *crew = hand->crew;

	if (ordinal >= 0)
		driver_enter();
	for (unsigned pass = 0; pass < crew->job->passes; pass++) {
		pthread_barrier_wait(&crew->start);
		crew->work(hand);
		pthread_barrier_wait(&crew->end);
	}
	return NULL;
}

/* Pinned memory is made once, as large as the largest job needs, and kept. */
static char *buffers_of(uint64_t length)
{
	static char *memory;
	static uint64_t have;

	if (length > have) {
		if (memory && ordinal >= 0)
			MUST(cuMemHostUnregister(memory));
		memory = ordinal >= 0 ? driver_pinned(length) : aligned_alloc(4096, length);
		have = length;
	}
	return memory;
}

static void hire(struct crew *crew, struct hand *hand, char *buffers)
{
	hand->crew = crew;
	for (int i = 0; i < BUFFERS; i++) {
		hand->buffers[i] = buffers + i * crew->job->bytes;
		if (ordinal >= 0)
			MUST(cuEventCreate(&hand->events[i], CU_EVENT_DISABLE_TIMING));
	}
	if (ordinal >= 0)
		hand->stream = driver_stream();
	if (pthread_create(&hand->thread, NULL, run_hand, hand))
		fail("no thread");
}

static void dismiss(struct hand *hand)
{
	pthread_join(hand->thread, NULL);
	for (int i = 0; i < BUFFERS && ordinal >= 0; i++)
		MUST(cuEventDestroy_v2(hand->events[i]));
	if (ordinal >= 0)
		MUST(cuStreamDestroy_v2(hand->stream));
}

static void run_crew(const struct job *job, void (*work)(struct hand *hand))
{
	static struct crew crew;
	struct clock clock = {0};
	char *buffers;

	if (work != only_transfer)
		need_driver();
	if (job->threads > THREADS_MOST || job->count * job->bytes > device_bytes)
		fail("too much: %u threads, %u tasks", job->threads, job->count);
	buffers = buffers_of(job->threads * BUFFERS * job->bytes);
	crew = (struct crew){.job = job, .work = work, .tasks = job->count};
	crew.fd = open(job->path, (job->write ? O_WRONLY : O_RDONLY) | O_CLOEXEC |
	                                  (job->direct ? O_DIRECT : 0));
	if (crew.fd < 0)
		fail("'%s': %s", job->path, strerror(errno));
	pthread_barrier_init(&crew.start, NULL, job->threads + 1);
	pthread_barrier_init(&crew.end, NULL, job->threads + 1);
	for (unsigned i = 0; i < job->threads; i++)
		hire(&crew, &crew.hands[i], buffers + i * BUFFERS * job->bytes);
	for (unsigned pass = 0; pass < job->passes; pass++) {
		atomic_store(&crew.next, 0);
		clock_start(&clock);
		pthread_barrier_wait(&crew.start);
		pthread_barrier_wait(&crew.end);
		clock_stop(&clock);
	}
	for (unsigned i = 0; i < job->threads; i++)
		dismiss(&crew.hands[i]);
	pthread_barrier_destroy(&crew.start);
	pthread_barrier_destroy(&crew.end);
	close(crew.fd);
	printf("{\"bytes\": %llu, \"seconds\": %.9f, \"cpu_seconds\": %.6f}\n",
	       (unsigned long long)(job->bytes * job->count * job->passes), clock.seconds,
	       clock.cpu_seconds);
}

void job_storage(const struct job *job)
{
	run_crew(job, only_transfer);
}

void job_pipeline(const struct job *job)
{
	run_crew(job, job->write ? pipeline_out : pipeline_in);
}

void job_single(const struct job *job)
{
	run_crew(job, job->write ? single_out : single_in);
}

void job_small(const struct job *job)
{
	run_crew(job, job->write ? small_out : small_in);
}

/* One read and copy at a time, by the calling thread. */
void job_small_latency(const struct job *job)
{
	double *times = calloc(job->count, sizeof(*times));
	char *buffer = malloc(job->bytes);
	int fd = open(job->path, O_RDONLY | O_CLOEXEC);
	struct spread s;

	need_driver();
	if (!times || !buffer || fd < 0)
		fail("'%s': %s", job->path, strerror(errno));
	for (unsigned i = 0; i < job->count; i++) {
		times[i] = now();
		if (pread(fd, buffer, job->bytes, (off_t)(i % 16 * job->bytes)) !=
		    (ssize_t)job->bytes)
			fail("'%s' is too short", job->path);
		MUST(cuMemcpyHtoD_v2(place(0), buffer, job->bytes));
		times[i] = now() - times[i];
	}
	s = spread_of(times, job->count);
	close(fd);
	free(buffer);
	free(times);
	printf("{\"end\": {\"p50\": %.3f, \"p99\": %.3f, \"max\": %.3f}}\n", s.p50, s.p99, s.most);
}

/* The same, with its processor time. kind=waits: until the bytes are there, which cuMemcpyHtoD does not await. */
void job_small_alone(const struct job *job)
{
	char *buffer = malloc(job->bytes);
	int fd = open(job->path, O_RDONLY | O_CLOEXEC);
	struct clock clock = {0};

	need_driver();
	if (!buffer || fd < 0)
		fail("'%s': %s", job->path, strerror(errno));
	for (unsigned i = 0; i < job->count + ALONE_WARM; i++) {
		uint64_t offset = i % ALONE_PLACES * job->bytes;

		if (i == ALONE_WARM)
			clock_start(&clock);
		if (pread(fd, buffer, job->bytes, (off_t)offset) != (ssize_t)job->bytes)
			fail("'%s' is too short", job->path);
		MUST(cuMemcpyHtoD_v2(place(offset), buffer, job->bytes));
		if (job->kind)
			MUST(cuStreamSynchronize(NULL));
	}
	clock_stop(&clock);
	close(fd);
	free(buffer);
	print_alone(job, &clock, 0);
}

/* Copies between pinned memory and the device on one stream: what no transfer can beat. */
void job_ceiling(const struct job *job)
{
	static void *pinned;
	struct clock clock = {0};
	CUstream stream;

	if (!pinned) {
		CHECK(sluice_pinned_alloc(device, job->bytes, &pinned));
		memset(pinned, 1, job->bytes);
	}
	CHECK(sluice_stream_new(device, (sluice_stream *)&stream));
	clock_start(&clock);
	for (unsigned i = 0; i < job->count; i++)
		CHECK(sluice_copy_on(job->write ? pinned : device_memory,
		                     job->write ? device_memory : pinned, job->bytes, stream));
	CHECK(sluice_stream_synchronize(device, stream));
	clock_stop(&clock);
	CHECK(sluice_stream_free(stream));
	printf("{\"bytes\": %llu, \"seconds\": %.9f, \"cpu_seconds\": %.6f}\n",
	       (unsigned long long)(job->bytes * job->count), clock.seconds, clock.cpu_seconds);
}
