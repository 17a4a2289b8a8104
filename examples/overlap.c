/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Computes on one buffer of a device while the next one is read, in stream order: nothing in the loop
 * waits. Two streams take turns. Each has a buffer, whose next read comes behind the kernel that is
 * still using it, because that is what stream order means.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include <sluice/device.h>
#include <sluice/emulated.h>

enum { STREAMS = 2, CHUNK = 4 << 20 };

struct job {
	const void *data; /* memory of the device */
	size_t n;
	uint64_t sum;
};

/* On a GPU this is a __global__ function, and run() below launches it with <<<..., stream>>>. */
static void kernel(void *argument)
{
	struct job *job = argument;
	const unsigned char *bytes = sluice_emulated_memory(job->data);

	for (size_t i = 0; i < job->n; i++)
		job->sum += bytes[i];
}

static int check(int rc)
{
	if (rc < 0) {
		fprintf(stderr, "%s\n", sluice_last_message());
		exit(1);
	}
	return rc;
}

/* Gives everything to the streams, then waits for them. */
static void run(sluice_file *file, int device, struct job *jobs, size_t count, uint64_t length)
{
	sluice_stream streams[STREAMS];
	void *buffers[STREAMS];

	for (int i = 0; i < STREAMS; i++) {
		check(sluice_stream_new(device, &streams[i]));
		check(sluice_device_alloc(device, CHUNK, &buffers[i]));
	}
	for (size_t i = 0; i < count; i++) {
		struct job *job = &jobs[i];
		sluice_stream stream = streams[i % STREAMS];
		uint64_t offset = i * CHUNK;

		job->data = buffers[i % STREAMS];
		job->n = length - offset < CHUNK ? length - offset : CHUNK;
		/* Without a handle: what goes wrong is told by sluice_close(). */
		check(sluice_read_on(file, buffers[i % STREAMS], job->n, offset, stream, NULL));
		check(sluice_emulated_launch(device, stream, kernel, job));
	}
	for (int i = 0; i < STREAMS; i++) {
		check(sluice_stream_synchronize(device, streams[i]));
		check(sluice_stream_free(streams[i]));
		check(sluice_device_free(buffers[i]));
	}
}

int main(int argc, char **argv)
{
	struct sluice_file_info st = {.size = sizeof st};
	sluice_context *ctx;
	sluice_file *file;
	uint64_t sum = 0;
	int device;

	if (argc != 2) {
		fprintf(stderr, "usage: overlap FILE\n");
		return 2;
	}
	check(sluice_context_new(NULL, &ctx));
	check(sluice_device_find("emulated", &device));
	check(sluice_open(ctx, argv[1], NULL, &file));
	check(sluice_stat(file, &st));

	size_t count = (st.length + CHUNK - 1) / CHUNK;
	struct job *jobs = calloc(count + 1, sizeof *jobs);
	if (!jobs) {
		fprintf(stderr, "out of memory\n");
		return 1;
	}
	run(file, device, jobs, count, st.length);
	check(sluice_close(file));
	for (size_t i = 0; i < count; i++)
		sum += jobs[i].sum;
	printf("%" PRIu64 " is the sum of the %" PRIu64 " bytes of %s\n", sum, st.length, argv[1]);
	sluice_context_close(ctx);
	free(jobs);
	return 0;
}
