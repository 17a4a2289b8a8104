/* SPDX-License-Identifier: Apache-2.0 */
/* What sluice does: operations as a program would submit them. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device_bench.h"

enum { STREAMS_MOST = 64 };

static sluice_stream streams[STREAMS_MOST];

static sluice_stream stream_of(const struct job *job, unsigned i)
{
	i %= job->streams < STREAMS_MOST ? job->streams : STREAMS_MOST;
	if (!streams[i])
		CHECK(sluice_stream_new(device, &streams[i]));
	return streams[i];
}

static void start(const struct job *job, sluice_file *file, unsigned i, sluice_op **out)
{
	struct sluice_request r = SLUICE_REQUEST_INIT;
	struct sluice_extent extent = {device_memory + i * job->bytes, job->bytes, i * job->bytes};

	r.kind = job->write ? SLUICE_WRITE : SLUICE_READ;
	r.extents = &extent;
	r.count = 1;
	r.on = job->stream;
	r.stream = job->stream ? stream_of(job, i) : NULL;
	CHECK(sluice_submit(file, &r, out));
}

static void finish(const struct job *job, sluice_op *op)
{
	int64_t n = sluice_wait(op, 60000);

	if (n != (int64_t)job->bytes)
		fail("%lld of %llu bytes: %s", (long long)n, (unsigned long long)job->bytes,
		     n == -EINPROGRESS ? "still running after a minute" : sluice_op_message(op));
	sluice_op_free(op);
}

/* One read at a time, each awaited before the next. */
void job_alone(const struct job *job)
{
	sluice_file *file = open_for(job);
	struct clock clock = {0};
	double submitted = 0;

	/* The first are to warm up. */
	for (unsigned i = 0; i < job->count + ALONE_WARM; i++) {
		void *data = device_memory + i % ALONE_PLACES * job->bytes;
		sluice_op *op;
		double begun;

		if (i == ALONE_WARM) {
			clock_start(&clock);
			submitted = 0;
		}
		begun = now();
		if (job->stream)
			CHECK(sluice_read_on(file, data, job->bytes, i % ALONE_PLACES * job->bytes,
			                     stream_of(job, 0), &op));
		else
			CHECK(sluice_read(file, data, job->bytes, i % ALONE_PLACES * job->bytes,
			                  &op));
		submitted += now() - begun;
		if (sluice_wait(op, -1) != (int64_t)job->bytes)
			fail("%s", sluice_op_message(op));
		sluice_op_free(op);
	}
	clock_stop(&clock);
	CHECK(sluice_close(file));
	print_alone(job, &clock, submitted);
}

/*
 * Every pass: all operations are submitted, one after the other, then all are waited for. The first one through a
 * new ring makes its pinned memory, and does not count.
 */
void job_move(const struct job *job)
{
	sluice_op **ops = calloc(job->count, sizeof(sluice_op *));
	sluice_file *file = open_for(job);
	struct clock clock = {0};
	double submitted = 0;

	if (!ops || job->count * job->bytes > device_bytes)
		fail("no memory for %u operations", job->count);
	for (unsigned i = 0; job->stream && i < job->streams; i++)
		stream_of(job, i);
	for (unsigned pass = 0; pass < job->passes + !!job->slots; pass++) {
		if (job->slots && pass == 1) {
			clock = (struct clock){0};
			submitted = 0;
		}
		clock_start(&clock);
		submitted -= now();
		for (unsigned i = 0; i < job->count; i++)
			start(job, file, i, &ops[i]);
		submitted += now();
		for (unsigned i = 0; i < job->count; i++)
			finish(job, ops[i]);
		clock_stop(&clock);
	}
	CHECK(sluice_close(file));
	free(ops);
	printf("{\"bytes\": %llu, \"seconds\": %.9f, \"cpu_seconds\": %.6f, \"submit_us\": %.3f}\n",
	       (unsigned long long)(job->bytes * job->count * job->passes), clock.seconds,
	       clock.cpu_seconds, submitted * 1e6 / job->count / job->passes);
}

/* One call at a time, with nothing else in flight. */
void job_submit(const struct job *job)
{
	double *times = calloc(job->count, sizeof(*times));
	sluice_file *file = open_for(job);
	struct spread s;
	sluice_op *op;

	for (unsigned i = 0; i < job->count; i++) {
		struct job one = *job;

		one.count = 1;
		times[i] = now();
		start(&one, file, 0, &op);
		times[i] = now() - times[i];
		finish(&one, op);
	}
	CHECK(sluice_close(file));
	s = spread_of(times, job->count);
	free(times);
	printf("{\"p50\": %.3f, \"p99\": %.3f, \"max\": %.3f}\n", s.p50, s.p99, s.most);
}

/* ------------------------------------------------------------------------------------- extents */

enum { LEAST_EXTENT = 256, DOUBLINGS = 12 };

static uint32_t next_random(uint32_t *state)
{
	*state = *state * 1664525 + 1013904223;
	return *state >> 8;
}

/* Up to `longest` bytes, or, if it is 0, up to 1 MiB with as many of each power of two. */
static uint64_t choose_length(uint32_t *random, uint64_t longest)
{
	uint64_t least = LEAST_EXTENT;

	if (longest)
		return least + next_random(random) % (longest - least);
	least <<= next_random(random) % DOUBLINGS;
	return least + next_random(random) % least;
}

/*
 * Makes extents of 256 B or more that follow each other in the file, and that lie in memory in another order, each at
 * a multiple of 256. Returns their bytes.
 */
static uint64_t make_extents(struct sluice_extent *extents, unsigned *count, uint64_t longest)
{
	unsigned *order = calloc(*count, sizeof(*order)), n = 0;
	uint64_t bytes = 0, room = device_bytes, at = 0;
	uint32_t random = 1;

	for (; n < *count; n++) {
		uint64_t length = choose_length(&random, longest);

		if (room < length + LEAST_EXTENT)
			break;
		room -= length + LEAST_EXTENT;
		extents[n] = (struct sluice_extent){NULL, length, bytes};
		bytes += length;
		order[n] = n;
	}
	for (unsigned i = n; i > 1; i--) {
		unsigned other = next_random(&random) % i, last = order[i - 1];

		order[i - 1] = order[other];
		order[other] = last;
	}
	for (unsigned i = 0; i < n; i++) {
		extents[order[i]].data = device_memory + at;
		at += (extents[order[i]].length + LEAST_EXTENT - 1) / LEAST_EXTENT * LEAST_EXTENT;
	}
	free(order);
	*count = n;
	return bytes;
}

/* An operation of many extents, or, with kind=one, of a single one that has as many bytes. */
void job_extents(const struct job *job)
{
	struct sluice_extent *extents = calloc(job->count, sizeof(*extents));
	unsigned count = job->count;
	uint64_t bytes = make_extents(extents, &count, job->bytes);
	sluice_file *file = open_for(job);
	struct sluice_request r = SLUICE_REQUEST_INIT;
	struct job whole = *job;
	struct clock clock = {0};
	sluice_op *op;

	if (job->kind) {
		extents[0] = (struct sluice_extent){device_memory, bytes, 0};
		count = 1;
	}
	r.kind = job->write ? SLUICE_WRITE : SLUICE_READ;
	r.extents = extents;
	r.count = count;
	r.on = job->stream;
	r.stream = job->stream ? stream_of(job, 0) : NULL;
	whole.bytes = bytes;
	for (unsigned pass = 0; pass < job->passes; pass++) {
		clock_start(&clock);
		CHECK(sluice_submit(file, &r, &op));
		finish(&whole, op);
		clock_stop(&clock);
	}
	CHECK(sluice_close(file));
	free(extents);
	printf("{\"bytes\": %llu, \"seconds\": %.9f, \"cpu_seconds\": %.6f, \"extents\": %u}\n",
	       (unsigned long long)(bytes * job->passes), clock.seconds, clock.cpu_seconds, count);
}
