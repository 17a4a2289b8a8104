/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What can be checked on a real device with nothing but sluice: bytes both ways in both orders, many
 * streams with the program's own copies behind each operation while another thread frees, and how long
 * small reads take. usage: gpu_check [DEVICE], "cuda" without one. Prints a line for each check.
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <sluice/device.h>

enum { STREAMS = 256, ROUNDS = 4, SMALL = 4096, SAMPLES = 2000 };
#define FILE_BYTES ((size_t)96 << 20)

static int device, failed;
static sluice_context *ctx;
static unsigned char *bytes; /* of the file */
static const char *path = "gpu_check.bin";

static double seconds(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void must(int rc, const char *what)
{
	if (rc >= 0)
		return;
	printf("FAILED %s: %s\n", what, sluice_last_message());
	exit(1);
}
#define MUST(call) must((int)(call), #call)

static void report(bool good, const char *what)
{
	printf("%s %s\n", good ? "ok    " : "FAILED", what);
	fflush(stdout);
	failed += !good;
}

static void make_file(void)
{
	uint64_t state = 1, *words;
	int fd = open(path, O_CREAT | O_TRUNC | O_WRONLY, 0644);

	bytes = malloc(FILE_BYTES);
	words = (uint64_t *)bytes;
	for (size_t i = 0; i < FILE_BYTES / 8; i++)
		words[i] = (state = state * 6364136223846793005u + 1442695040888963407u);
	for (size_t at = 0; at < FILE_BYTES;) {
		ssize_t n = write(fd, bytes + at, FILE_BYTES - at);

		if (n <= 0)
			exit(printf("FAILED to write %s\n", path));
		at += (size_t)n;
	}
	close(fd);
}

static bool moved(sluice_op *op, size_t n)
{
	int64_t got = sluice_wait(op, 60000);

	if (got != (int64_t)n)
		printf("       %lld of %zu: %s\n", (long long)got, n, sluice_op_message(op));
	sluice_op_free(op);
	return got == (int64_t)n;
}

/* -------------------------------------------------------------------------------- round trips */

static bool round_trip(sluice_file *in, sluice_stream stream, bool on, size_t n, uint64_t offset)
{
	static const char *const copy = "gpu_check.out";
	struct sluice_open_options o = SLUICE_OPEN_OPTIONS_INIT;
	unsigned char *held = malloc(n);
	sluice_file *out;
	sluice_op *op;
	void *memory;
	bool good;

	o.flags = SLUICE_OPEN_READ | SLUICE_OPEN_WRITE | SLUICE_OPEN_CREATE | SLUICE_OPEN_TRUNCATE;
	MUST(sluice_device_alloc(device, n, &memory));
	MUST(sluice_open(ctx, copy, &o, &out));
	MUST(on ? sluice_read_on(in, memory, n, offset, stream, &op)
	        : sluice_read(in, memory, n, offset, &op));
	if (on) {
		MUST(sluice_stream_synchronize(device, stream));
		good = sluice_poll(op) == 1;
		good &= moved(op, n);
	} else {
		good = moved(op, n);
	}
	MUST(sluice_copy(held, memory, n));
	good &= !memcmp(held, bytes + offset, n);
	MUST(on ? sluice_write_on(out, memory, n, 77, stream, &op)
	        : sluice_write(out, memory, n, 77, &op));
	/* The source may be written over behind it. */
	if (on) {
		memset(held, 0, n);
		MUST(sluice_copy_on(memory, held, n, stream));
		MUST(sluice_stream_synchronize(device, stream));
	}
	good &= moved(op, n);
	memset(held, 1, n);
	MUST(sluice_read(out, held, n, 77, &op));
	good &= moved(op, n) && !memcmp(held, bytes + offset, n);
	MUST(sluice_close(out));
	MUST(sluice_device_free(memory));
	free(held);
	return good;
}

static void check_round_trips(void)
{
	static const struct {
		size_t n;
		uint64_t offset;
	} cases[] = {{1, 0},           {4096, 4096},         {4097, 3},
	             {1 << 20, 12345}, {(5 << 20) + 7, 1},   {33 << 20, 4096},
	             {64 << 20, 0},    {(90 << 20) + 5, 777}};
	sluice_stream own;
	sluice_file *in;

	MUST(sluice_open(ctx, path, NULL, &in));
	MUST(sluice_stream_new(device, &own));
	for (int way = 0; way < 4; way++) {
		static const char *const names[] = {"awaited on the host", "on a stream of its own",
		                                    "on the default stream",
		                                    "on the thread's default stream"};
		sluice_stream streams[] = {own, own, (sluice_stream)0, (sluice_stream)2};
		char what[80];
		bool good = true;

		for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
			good &= round_trip(in, streams[way], way > 0, cases[i].n, cases[i].offset);
		snprintf(what, sizeof what, "bytes go both ways, %s", names[way]);
		report(good, what);
	}
	MUST(sluice_stream_free(own));
	MUST(sluice_close(in));
}

/* ------------------------------------------------------------------------------- many streams */

static _Atomic bool stop;
static _Atomic unsigned frees;

static void *free_in_a_loop(void *unused)
{
	(void)unused;
	while (!atomic_load(&stop)) {
		void *memory;

		if (sluice_device_alloc(device, 1 << 20, &memory) == 0) {
			sluice_device_free(memory);
			atomic_fetch_add(&frees, 1);
		}
	}
	return NULL;
}

static void check_streams(bool freeing)
{
	const size_t n = 512 << 10;
	static sluice_stream streams[STREAMS];
	static sluice_op *ops[STREAMS * ROUNDS];
	unsigned char *memory, *own, *results, *pinned;
	pthread_t thread;
	sluice_file *in;
	bool good = true;
	char what[120];
	double start;
	void *p;

	MUST(sluice_open(ctx, path, NULL, &in));
	MUST(sluice_device_alloc(device, STREAMS * n, &p));
	memory = p;
	MUST(sluice_device_alloc(device, STREAMS * SMALL, &p));
	own = p;
	MUST(sluice_pinned_alloc(device, (size_t)STREAMS * ROUNDS * SMALL, &p));
	results = p;
	MUST(sluice_pinned_alloc(device, SMALL, &p));
	pinned = p;
	memcpy(pinned, bytes, SMALL);
	for (int i = 0; i < STREAMS; i++)
		MUST(sluice_stream_new(device, &streams[i]));
	atomic_store(&stop, false);
	atomic_store(&frees, 0);
	if (freeing)
		pthread_create(&thread, NULL, free_in_a_loop, NULL);
	start = seconds();
	for (int round = 0; round < ROUNDS; round++) {
		for (int i = 0; i < STREAMS; i++) {
			uint64_t offset = (uint64_t)(i * 7 + round * 3) % 150 * n;
			unsigned char *result = results + ((size_t)round * STREAMS + i) * SMALL;

			MUST(sluice_read_on(in, memory + i * n, n, offset, streams[i],
			                    &ops[round * STREAMS + i]));
			/* The program's own: a copy to the device, and the end of what was read. */
			MUST(sluice_copy_on(own + i * SMALL, pinned, SMALL, streams[i]));
			MUST(sluice_copy_on(result, memory + i * n + n - SMALL, SMALL, streams[i]));
		}
	}
	for (int i = 0; i < STREAMS; i++)
		MUST(sluice_stream_synchronize(device, streams[i]));
	snprintf(what, sizeof what,
	         "%d streams x %d rounds, own copies behind each%s: %.1f ms, %u frees", STREAMS,
	         ROUNDS, freeing ? ", frees beside" : "", (seconds() - start) * 1e3,
	         atomic_load(&frees));
	atomic_store(&stop, true);
	if (freeing)
		pthread_join(thread, NULL);
	for (int round = 0; round < ROUNDS; round++) {
		for (int i = 0; i < STREAMS; i++) {
			uint64_t offset = (uint64_t)(i * 7 + round * 3) % 150 * n;

			good &= moved(ops[round * STREAMS + i], n);
			good &= !memcmp(results + ((size_t)round * STREAMS + i) * SMALL,
			                bytes + offset + n - SMALL, SMALL);
		}
	}
	report(good, what);
	for (int i = 0; i < STREAMS; i++)
		MUST(sluice_stream_free(streams[i]));
	MUST(sluice_device_free(memory));
	MUST(sluice_device_free(own));
	MUST(sluice_pinned_free(results));
	MUST(sluice_pinned_free(pinned));
	MUST(sluice_close(in));
}

/* ------------------------------------------------------------------------------------ latency */

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static void measure(sluice_file *in, void *memory, sluice_stream stream, bool on, size_t n)
{
	static double submit[SAMPLES], end[SAMPLES];

	for (int i = 0; i < SAMPLES; i++) {
		double start = seconds();
		sluice_op *op;

		MUST(on ? sluice_read_on(in, memory, n, (uint64_t)(i % 16) * n, stream, &op)
		        : sluice_read(in, memory, n, (uint64_t)(i % 16) * n, &op));
		submit[i] = seconds() - start;
		while (!sluice_poll(op))
			;
		end[i] = seconds() - start;
		sluice_op_free(op);
	}
	qsort(submit, SAMPLES, sizeof submit[0], compare);
	qsort(end, SAMPLES, sizeof end[0], compare);
	printf("       %zu KiB resident, %s: submitted %.1f us, over %.1f us (p50), %.1f us "
	       "(p99)\n",
	       n >> 10, on ? "stream order" : "host order", submit[SAMPLES / 2] * 1e6,
	       end[SAMPLES / 2] * 1e6, end[SAMPLES * 99 / 100] * 1e6);
}

static void measure_latency(void)
{
	sluice_stream stream;
	sluice_file *in;
	void *memory;

	MUST(sluice_open(ctx, path, NULL, &in));
	MUST(sluice_device_alloc(device, 1 << 20, &memory));
	MUST(sluice_stream_new(device, &stream));
	for (int on = 0; on < 2; on++) {
		measure(in, memory, stream, on, 4 << 10);
		measure(in, memory, stream, on, 1 << 20);
	}
	MUST(sluice_stream_free(stream));
	MUST(sluice_device_free(memory));
	MUST(sluice_close(in));
}

/* ----------------------------------------------------------------------------------- ceiling */

/* Copies of 64 MiB between pinned memory and the device, on one stream: what no transfer can beat. */
static void measure_ceiling(void)
{
	const size_t n = (size_t)64 << 20;
	sluice_stream stream;
	void *memory, *pinned;

	MUST(sluice_device_alloc(device, n, &memory));
	MUST(sluice_pinned_alloc(device, n, &pinned));
	memset(pinned, 1, n);
	MUST(sluice_stream_new(device, &stream));
	for (int to_device = 1; to_device >= 0; to_device--) {
		double start = 0;

		for (int i = -4; i < 64; i++) {
			if (i == 0) {
				MUST(sluice_stream_synchronize(device, stream));
				start = seconds();
			}
			MUST(sluice_copy_on(to_device ? memory : pinned,
			                    to_device ? pinned : memory, n, stream));
		}
		MUST(sluice_stream_synchronize(device, stream));
		printf("       ceiling, %s: %.1f GB/s\n",
		       to_device ? "host to device" : "device to host",
		       64.0 * (double)n / (seconds() - start) / 1e9);
	}
	MUST(sluice_stream_free(stream));
	MUST(sluice_device_free(memory));
	MUST(sluice_pinned_free(pinned));
}

/* -------------------------------------------------------------------------------- the driver */

/* Those of its calls that sluice has no use for; NULL on a device without one. */
static int (*begin_capture)(sluice_stream, int), (*end_capture)(sluice_stream, void **);

static void find_driver(void)
{
	void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);

	if (!driver)
		return;
	*(void **)&begin_capture = dlsym(driver, "cuStreamBeginCapture_v2");
	*(void **)&end_capture = dlsym(driver, "cuStreamEndCapture");
}

static void check_capture(void)
{
	sluice_stream stream, other;
	void *memory, *graph;
	sluice_file *in;
	sluice_op *op;
	bool good;

	find_driver();
	if (!begin_capture || !end_capture)
		return;
	MUST(sluice_open(ctx, path, NULL, &in));
	MUST(sluice_device_alloc(device, SMALL * 2, &memory));
	MUST(sluice_stream_new(device, &stream));
	MUST(sluice_stream_new(device, &other));
	/* 0: also what other threads do with the driver is looked at. */
	good = begin_capture(stream, 0) == 0;
	good &= sluice_read_on(in, memory, SMALL, 0, stream, &op) == -EINVAL;
	good &= strstr(sluice_last_message(), "captured") != NULL;
	/* The rest goes on meanwhile. */
	MUST(sluice_read_on(in, memory, SMALL, 0, other, &op));
	good &= moved(op, SMALL);
	MUST(sluice_read(in, memory, SMALL * 2, 0, &op));
	good &= moved(op, SMALL * 2);
	good &= end_capture(stream, &graph) == 0;
	report(good, "a stream that is being captured is refused, and the others go on");
	MUST(sluice_stream_free(stream));
	MUST(sluice_stream_free(other));
	MUST(sluice_device_free(memory));
	MUST(sluice_close(in));
}

/* A stream goes with what it holds. */
static void check_destroyed_stream(void)
{
	enum { N = 4 << 20 };
	sluice_op *ops[8];
	sluice_stream stream;
	sluice_file *in;
	bool good = true;
	void *memory;

	MUST(sluice_open(ctx, path, NULL, &in));
	MUST(sluice_device_alloc(device, N, &memory));
	MUST(sluice_stream_new(device, &stream));
	for (int i = 0; i < 8; i++)
		MUST(sluice_read_on(in, memory, N, (uint64_t)i * N, stream, &ops[i]));
	MUST(sluice_stream_free(stream));
	for (int i = 0; i < 8; i++)
		good &= moved(ops[i], N);
	report(good, "a stream that is freed does what it holds");
	MUST(sluice_device_free(memory));
	MUST(sluice_close(in));
}

/* What the child does: it ends with operations in flight, and nothing freed. */
static int end_in_the_middle(void)
{
	enum { N = 16 << 20 };
	sluice_stream streams[8];
	sluice_file *in;
	sluice_op *op;

	MUST(sluice_open(ctx, path, NULL, &in));
	for (int i = 0; i < 8; i++) {
		void *memory;

		MUST(sluice_device_alloc(device, N, &memory));
		MUST(sluice_stream_new(device, &streams[i]));
		MUST(sluice_read_on(in, memory, N, (uint64_t)(i % 4) * N, streams[i], &op));
		MUST(sluice_read(in, memory, N, 0, &op));
	}
	exit(0);
}

static void check_exit(const char *self, const char *name)
{
	char command[600];
	bool good = true;

	snprintf(command, sizeof command, "exec '%s' '%s' exit", self, name);
	for (int i = 0; i < 5; i++)
		good &= system(command) == 0;
	report(good, "a process may end with operations in flight");
}

int main(int argc, char **argv)
{
	struct sluice_device d = {.size = sizeof d};

	if (sluice_device_find(argc > 1 ? argv[1] : "cuda", &device)) {
		printf("skipped: %s\n", sluice_last_message());
		return 77;
	}
	MUST(sluice_device_describe(device, &d));
	if (argc > 2 && !strcmp(argv[2], "exit")) {
		MUST(sluice_context_new(NULL, &ctx));
		return end_in_the_middle();
	}
	printf("%s: %s, %.1f GiB\n", d.name, d.detail, (double)d.memory_bytes / (1 << 30));
	make_file();
	MUST(sluice_context_new(NULL, &ctx));
	check_round_trips();
	check_streams(false);
	check_streams(true);
	check_capture();
	check_destroyed_stream();
	check_exit(argv[0], d.name);
	measure_latency();
	measure_ceiling();
	MUST(sluice_context_free(ctx));
	unlink(path);
	unlink("gpu_check.out");
	return failed > 0;
}
