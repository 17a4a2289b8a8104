/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What streams that wait do to others: how much longer copies and kernels on unrelated streams take while
 * so many streams have an operation of sluice pending, wait for an event or for a word with a copy behind
 * it, or stand in a host function.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device_bench.h"
#include "gpu/driver.h"

enum {
	SAMPLES = 200,
	UNRELATED = 8,
	STREAMS_MOST = 256,
	BYTES = 256 << 10
}; /* smaller ones go with the commands, through no channel for copies */
enum probe { COPY_IN, COPY_OUT, KERNEL, PROBES };
static const char *const probe_names[] = {"copy_in", "copy_out", "kernel"};

static char *pinned; /* what the copies have at their other end */
static _Atomic uint32_t *gate;
static sluice_stream waiting[STREAMS_MOST], behind;
static sluice_event event;
static sluice_op *ops[STREAMS_MOST];

/* -------------------------------------------------------------------------------- what waits */

static void stand(void *unused)
{
	double deadline = now() + 10;

	(void)unused;
	while (!atomic_load(gate) && now() < deadline)
		;
}

static void hold_one(const struct job *job, sluice_file *file, unsigned i)
{
	char *memory = device_memory + (i + 1) * job->bytes;

	if (!strcmp(job->kind, "sluice")) {
		CHECK(sluice_read_on(file, memory, job->bytes, i * job->bytes, waiting[i],
		                     &ops[i]));
		return;
	}
	if (!strcmp(job->kind, "event"))
		MUST(cuStreamWaitEvent(waiting[i], event, 0));
	else if (!strcmp(job->kind, "word"))
		MUST(cuStreamWaitValue32_v2(waiting[i], (uintptr_t)gate, 1,
		                            CU_STREAM_WAIT_VALUE_GEQ));
	else if (!strcmp(job->kind, "function") && cu.cuLaunchHostFunc)
		MUST(cuLaunchHostFunc(waiting[i], stand, NULL));
	else
		fail("nothing waits by '%s'", job->kind);
	CHECK(sluice_copy_on(memory, pinned + BYTES * 2, BYTES, waiting[i]));
}

/* The event is one of a stream that waits itself. */
static void hold(const struct job *job, sluice_file *file)
{
	atomic_store(gate, 0);
	arrival_close();
	if (!strcmp(job->kind, "event")) {
		MUST(cuStreamWaitValue32_v2(behind, (uintptr_t)gate, 1, CU_STREAM_WAIT_VALUE_GEQ));
		CHECK(sluice_event_record(event, behind));
	}
	for (unsigned i = 0; i < job->streams; i++)
		hold_one(job, file, i);
}

static void release(void)
{
	atomic_store(gate, 1);
	arrival_open();
}

/* -------------------------------------------------------------------------------- what is held up */

static int give(enum probe probe, sluice_stream stream)
{
	switch (probe) {
	case COPY_IN:
		return sluice_copy_on(device_memory, pinned, BYTES, stream);
	case COPY_OUT:
		return sluice_copy_on(pinned + BYTES, device_memory, BYTES, stream);
	default:
		return driver_launch(KERNEL_SPIN, 0, stream) ? -1 : 0;
	}
}

/* Seconds until it is done, or less than 0 if it was not by the limit. */
static double time_one(enum probe probe, sluice_stream stream, sluice_event end, double limit)
{
	double start = now();

	CHECK(give(probe, stream));
	CHECK(sluice_event_record(end, stream));
	while (sluice_event_query(end) == 0)
		if (now() > start + limit)
			return -1;
	return now() - start;
}

/* Stops at the first one that is held up, and leaves that to be done once nothing waits any more. */
static void probe_one(const struct job *job, enum probe probe, const sluice_stream *unrelated,
                      sluice_event end, const char *name)
{
	static double times[SAMPLES];
	unsigned held = 0, n;
	struct spread s;

	for (n = 0; n < SAMPLES && !held; n++) {
		times[n] = time_one(probe, unrelated[n % UNRELATED], end, job->limit_ms / 1e3);
		held = times[n] < 0;
	}
	s = n > held ? spread_of(times, n - held) : (struct spread){0};
	printf("\"%s\": {\"held\": %u, \"p50\": %.3f, \"p99\": %.3f, \"max\": %.3f}", name, held,
	       s.p50, s.p99, s.most);
}

/* ------------------------------------------------------------------------------------------- job */

static _Atomic bool over;

/* Whatever the driver does with the calling thread, what waits is let go in time. */
static void *let_go(void *unused)
{
	double deadline = now() + 8;

	(void)unused;
	while (!atomic_load(&over)) {
		struct timespec t = {0, 20000000};

		if (now() > deadline)
			release();
		nanosleep(&t, NULL);
	}
	return NULL;
}

static void set_up(const struct job *job, sluice_stream *unrelated)
{
	void *memory;

	if (!pinned) {
		CHECK(sluice_pinned_alloc(device, 4 * BYTES, &memory));
		pinned = memory;
		gate = (_Atomic uint32_t *)(pinned + 3 * BYTES);
		CHECK(sluice_stream_new(device, &behind));
		CHECK(sluice_event_new(device, &event));
	}
	/* Half of them are older than what waits, half of them younger. */
	for (unsigned i = 0; i < UNRELATED / 2; i++)
		CHECK(sluice_stream_new(device, &unrelated[i]));
	for (unsigned i = 0; i < job->streams; i++)
		CHECK(sluice_stream_new(device, &waiting[i]));
	for (unsigned i = UNRELATED / 2; i < UNRELATED; i++)
		CHECK(sluice_stream_new(device, &unrelated[i]));
	for (unsigned i = 0; i < UNRELATED; i++)
		CHECK(give(COPY_IN, unrelated[i]));
	for (unsigned i = 0; i < UNRELATED; i++)
		CHECK(sluice_stream_synchronize(device, unrelated[i]));
}

/* Once nothing waits, what was held up runs. */
static void let_run(const struct job *job, const sluice_stream *unrelated)
{
	for (unsigned i = 0; i < job->streams; i++) {
		CHECK(sluice_stream_synchronize(device, waiting[i]));
		if (!strcmp(job->kind, "sluice")) {
			if (sluice_wait(ops[i], 5000) != (int64_t)job->bytes)
				fail("operation %u: %s", i, sluice_op_message(ops[i]));
			sluice_op_free(ops[i]);
		}
		CHECK(sluice_stream_free(waiting[i]));
	}
	CHECK(sluice_stream_synchronize(device, behind));
	for (unsigned i = 0; i < UNRELATED; i++) {
		CHECK(sluice_stream_synchronize(device, unrelated[i]));
		CHECK(sluice_stream_free(unrelated[i]));
	}
}

/* Each for itself: what is held up holds others up. */
static void hold_and_probe(const struct job *job, sluice_file *file, enum probe probe)
{
	sluice_stream unrelated[UNRELATED];
	sluice_event end;

	set_up(job, unrelated);
	CHECK(sluice_event_new(device, &end));
	hold(job, file);
	probe_one(job, probe, unrelated, end, probe_names[probe]);
	release();
	let_run(job, unrelated);
	CHECK(sluice_event_free(end));
}

/* streams=N wait by kind=sluice, event, word or function; streams=0: none. */
void job_held(const struct job *job)
{
	sluice_file *file = NULL;
	pthread_t watchdog;

	if (strcmp(job->kind, "sluice"))
		need_driver();
	else
		file = open_for(job);
	if (job->streams > STREAMS_MOST)
		fail("%u streams are too many", job->streams);
	atomic_store(&over, false);
	if (pthread_create(&watchdog, NULL, let_go, NULL))
		fail("no thread");
	printf("{");
	for (int i = 0; i < PROBES && (i != KERNEL || ordinal >= 0); i++) {
		printf("%s", i ? ", " : "");
		hold_and_probe(job, file, i);
	}
	atomic_store(&over, true);
	pthread_join(watchdog, NULL);
	if (file)
		CHECK(sluice_close(file));
	printf("}\n");
}
