/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How long one operation takes: until the call returns, until it is over, until what the stream was given
 * next is seen; and what of that lies behind the arrival of the last byte.
 */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device_bench.h"
#include "gpu/driver.h"

enum { PLACES = 16, WARM = 20 };

struct latency {
	const struct job *job;
	sluice_file *file;
	sluice_stream stream;
	bool marked;            /* the end is a word that the stream's next command writes */
	bool held;              /* the bytes arrive only when the call has long returned */
	_Atomic uint64_t *word; /* of the marker */
	double *submit, *end, *release;
};

static void mark(const struct latency *l)
{
	if (!strcmp(l->job->kind, "kernel"))
		driver_must(driver_launch(KERNEL_STAMP, (uintptr_t)l->word, l->stream),
		            "cuLaunchKernel");
	else
		MUST(cuStreamWriteValue32_v2(l->stream, (uintptr_t)l->word, 1,
		                             CU_STREAM_WRITE_VALUE_DEFAULT));
}

static void submit(const struct latency *l, unsigned i, sluice_op **op)
{
	const struct job *job = l->job;
	uint64_t offset = i % PLACES * job->bytes;

	if (job->write)
		CHECK(job->stream ? sluice_write_on(l->file, device_memory, job->bytes, offset,
		                                    l->stream, op)
		                  : sluice_write(l->file, device_memory, job->bytes, offset, op));
	else
		CHECK(job->stream ? sluice_read_on(l->file, device_memory, job->bytes, offset,
		                                   l->stream, op)
		                  : sluice_read(l->file, device_memory, job->bytes, offset, op));
}

static void spin_until(double time)
{
	while (now() < time)
		;
}

static void measure_one(const struct latency *l, unsigned i)
{
	double start, deadline;
	sluice_op *op;
	int64_t n;

	if (l->marked)
		atomic_store(l->word, 0);
	if (l->held)
		arrival_close();
	start = now();
	deadline = start + 5;
	submit(l, i, &op);
	l->submit[i] = now() - start;
	if (l->marked)
		mark(l);
	if (l->held) {
		spin_until(now() + 50e-6);
		arrival_open();
	}
	while (l->marked ? !atomic_load(l->word) : !sluice_poll(op))
		if (now() > deadline)
			fail("nothing for 5 s");
	l->end[i] = now() - start;
	l->release[i] = now() - arrival_time();
	n = sluice_wait(op, 5000);
	if (n != (int64_t)l->job->bytes)
		fail("%lld bytes: %s", (long long)n, sluice_op_message(op));
	sluice_op_free(op);
}

static void print(const char *name, double *times, unsigned n, const char *end)
{
	struct spread s = spread_of(times, n);

	printf("\"%s\": {\"p50\": %.3f, \"p99\": %.3f, \"max\": %.3f}%s", name, s.p50, s.p99,
	       s.most, end);
}

static void measure(const struct job *job, bool held)
{
	unsigned n = job->count;
	struct latency l = {.job = job, .held = held};
	double *times = calloc(3 * (size_t)n + WARM, sizeof(*times));

	l.marked = job->kind && strcmp(job->kind, "poll");
	if (l.marked) {
		need_driver();
		l.word = driver_pinned(4096);
	}
	l.submit = times;
	l.end = times + n;
	l.release = times + 2 * n;
	l.file = open_for(job);
	CHECK(sluice_stream_new(device, &l.stream));
	for (unsigned i = 0; i < WARM && i < n; i++)
		measure_one(&l, i);
	for (unsigned i = 0; i < n; i++)
		measure_one(&l, i);
	CHECK(sluice_close(l.file));
	CHECK(sluice_stream_free(l.stream));
	printf("{");
	print("submit", l.submit, n, ", ");
	print("end", l.end, n, held ? ", " : "}\n");
	if (held)
		print("release", l.release, n, "}\n");
	free(times);
}

void job_latency(const struct job *job)
{
	measure(job, false);
}

void job_release(const struct job *job)
{
	measure(job, true);
}
