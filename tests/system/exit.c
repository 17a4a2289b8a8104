/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A process that ends with operations in flight, on a stream that will never come to them: it ends, and
 * what was in flight has failed by then. exits NAME: "stream", "host", "thread" (that waits for one), "cufile"
 * (many that are awaited on the host, by a cuFile that takes its time; the rest is given back only then).
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/gpu.h"

static void *wait_for(void *op)
{
	sluice_wait(op, -1);
	return NULL;
}

static void must(int rc)
{
	if (rc < 0) {
		fprintf(stderr, "%s\n", sluice_last_message());
		_exit(1);
	}
}

static sluice_op *last;
static sluice_file *late_file;
static sluice_context *late;

/* Registered before sluice has met a device, so it runs after sluice's own. */
static void look(void)
{
	if (sluice_poll(last) != 1 || sluice_wait(last, 0) >= 0) {
		fprintf(stderr, "an operation is still in flight\n");
		_exit(1);
	}
	must(sluice_close(late_file));
	must(sluice_context_close(late));
	_exit(0);
}

int main(int argc, char **argv)
{
	enum { N = 1 << 20 };
	const char *how = argc > 1 ? argv[1] : "stream";
	sluice_context *ctx;
	struct sluice_open_options by_cufile = SLUICE_OPEN_OPTIONS_INIT;
	static struct gpu_hold hold;
	sluice_stream stream;
	sluice_file *file;
	pthread_t thread;
	void *memory;

	atexit(look);
	if (gpu_open(NULL)) {
		printf("skipped: %s\n", gpu_message());
		_exit(77);
	}
	must(sluice_context_new(NULL, &ctx));
	if (!strcmp(how, "cufile"))
		by_cufile.backend = "cufile";
	must(sluice_open(ctx, argv[0], &by_cufile, &file));
	must(sluice_device_alloc(gpu_device(0), N, &memory));
	must(sluice_stream_new(gpu_device(0), &stream));
	must(sluice_context_staging(ctx, gpu_device(0), NULL, 0));
	/* cuFile comes after the device's own handlers of exit(). */
	if (!strcmp(how, "cufile")) {
		must(sluice_read(file, memory, 1, 0, &last));
		must((int)sluice_wait(last, -1));
		must(sluice_register_buffer(ctx, memory, N));
		late = ctx;
		late_file = file;
	}
	must(gpu_hold(0, stream, &hold));
	for (int i = 0; i < 10; i++)
		must(sluice_read_on(file, memory, 8192, 0, stream, &last));
	if (!strcmp(how, "host")) {
		/* Behind one in stream order, in the file. */
		struct sluice_open_options o = SLUICE_OPEN_OPTIONS_INIT;
		const char *folder = getenv("SLUICE_TEST_DIR");
		char path[512];
		sluice_file *out;

		snprintf(path, sizeof(path), "%s/exit-%d", folder ? folder : ".", (int)getpid());
		o.flags = SLUICE_OPEN_WRITE | SLUICE_OPEN_CREATE;
		must(sluice_open(ctx, path, &o, &out));
		unlink(path);
		must(sluice_write_on(out, memory, 8192, 0, stream, NULL));
		must(sluice_write(out, memory, 8192, 0, &last));
	}
	for (int i = 0; i < 40 && !strcmp(how, "cufile"); i++)
		must(sluice_read(file, memory, 8192, 0, &last));
	if (!strcmp(how, "thread") && !pthread_create(&thread, NULL, wait_for, last))
		pthread_detach(thread);
	exit(0);
}
