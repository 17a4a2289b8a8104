/* SPDX-License-Identifier: Apache-2.0 */
/* The same bytes into memory of several GPUs: by fan-out, by copies at the end, by a read for each. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device_bench.h"

enum { DEVICES_MOST = 8, CHECKED = 32 << 20 };

static int numbers[DEVICES_MOST];
static char *memories[DEVICES_MOST];
static sluice_stream streams[DEVICES_MOST];

/* Memory of the first devices of the kind, of the length of device_memory, which the first has. */
static void fan_devices(unsigned count)
{
	struct sluice_device d = {.size = sizeof(d)};
	char name[32];

	CHECK(sluice_device_describe(device, &d));
	for (unsigned i = 0; i < count; i++) {
		if (memories[i])
			continue;
		snprintf(name, sizeof(name), "%.*s:%u", (int)strcspn(d.name, ":"), d.name, i);
		if (i && sluice_device_find(name, &numbers[i]))
			skip(sluice_last_message());
		numbers[0] = device;
		CHECK(sluice_stream_new(numbers[i], &streams[i]));
		if (i)
			CHECK(sluice_device_alloc(numbers[i], device_bytes, (void **)&memories[i]));
		else
			memories[0] = device_memory;
	}
}

static void fan_start(const struct job *job, sluice_file *file, char *to, void **also,
                      sluice_op **out)
{
	struct sluice_request r = SLUICE_REQUEST_INIT;
	struct sluice_extent extent = {to, job->bytes, 0};

	r.kind = SLUICE_READ;
	r.extents = &extent;
	r.count = 1;
	r.also = also;
	r.also_count = also ? job->count - 1 : 0;
	CHECK(sluice_submit(file, &r, out));
}

static void fan_finish(const struct job *job, sluice_op *op)
{
	if (sluice_wait(op, 60000) != (int64_t)job->bytes)
		fail("a read into several devices: %s", sluice_op_message(op));
	sluice_op_free(op);
}

static void fan_pass(const struct job *job, sluice_file *file)
{
	bool apart = !strcmp(job->kind, "apart");
	sluice_op *ops[DEVICES_MOST];

	fan_start(job, file, memories[0], strcmp(job->kind, "fan") ? NULL : (void **)memories + 1,
	          &ops[0]);
	for (unsigned i = 1; apart && i < job->count; i++)
		fan_start(job, file, memories[i], NULL, &ops[i]);
	for (unsigned i = 0; i < (apart ? job->count : 1); i++)
		fan_finish(job, ops[i]);
	if (strcmp(job->kind, "after"))
		return;
	for (unsigned i = 1; i < job->count; i++)
		CHECK(sluice_copy_on(memories[i], memories[0], job->bytes, streams[i]));
	for (unsigned i = 1; i < job->count; i++)
		CHECK(sluice_stream_synchronize(numbers[i], streams[i]));
}

/* Each device has the bytes of the file, by reads into memory of the host. */
static void fan_check(const struct job *job, sluice_file *file)
{
	char *bytes = malloc(CHECKED), *held = malloc(CHECKED);
	sluice_op *op;

	for (uint64_t at = 0; at < job->bytes; at += CHECKED) {
		size_t n = job->bytes - at < CHECKED ? job->bytes - at : CHECKED;

		CHECK(sluice_read(file, bytes, n, at, &op));
		if (sluice_wait(op, 60000) != (int64_t)n)
			fail("a read to compare: %s", sluice_op_message(op));
		sluice_op_free(op);
		for (unsigned i = 0; i < job->count; i++) {
			CHECK(sluice_copy(held, memories[i] + at, n));
			if (memcmp(held, bytes, n))
				fail("device %u has other bytes than the file", i);
		}
	}
	free(bytes);
	free(held);
}

/*
 * count=N devices get `bytes` of a file each, by kind=fan, after (copies behind a read) or apart (reads of each).
 * streams=2: they are compared then. Bytes count once.
 */
void job_fan(const struct job *job)
{
	struct clock clock = {0};
	sluice_file *file;

	if (!job->kind || !job->count || job->count > DEVICES_MOST || job->bytes > device_bytes)
		fail("no such devices or memory");
	fan_devices(job->count);
	file = open_for(job);
	fan_pass(job, file);
	clock_start(&clock);
	for (unsigned pass = 0; pass < job->passes; pass++)
		fan_pass(job, file);
	clock_stop(&clock);
	if (job->streams > 1)
		fan_check(job, file);
	CHECK(sluice_close(file));
	printf("{\"bytes\": %llu, \"seconds\": %.9f, \"cpu_seconds\": %.6f}\n",
	       (unsigned long long)(job->bytes * job->passes), clock.seconds, clock.cpu_seconds);
}
