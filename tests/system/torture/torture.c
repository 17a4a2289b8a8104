/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs schedules, one after the other, each of which a seed says: threads that submit operations in
 * stream order on many streams, with copies and kernels of their own behind each, while others free
 * memory, cancel, and make storage and the device fail. Nothing may hang, no byte may be wrong, nothing
 * may be left behind.
 *
 * usage: torture [--http] [--first SEED] [--count N] [--seed SEED] [--verbose], on the device that
 * SLUICE_TEST_DEVICE names
 *
 * Linked with one of wrong_*.c it runs them until one shows that the library is wrong, and fails if
 * none does.
 */
#include "system/torture/torture.h"

#include <fcntl.h>
#include <getopt.h>
#include <sys/prctl.h>
#include <unistd.h>

unsigned char *pinned_memory[DEVICES];
char read_path[300];

static const struct schedule *running;
static char directory[256];

/* _exit(): a process that hangs could not end otherwise. */
_Noreturn void caught(const char *kind, const char *format, ...)
{
	static _Atomic bool once;
	va_list arguments;

	/* The first to come here has it. */
	if (atomic_exchange(&once, true))
		for (;;)
			sleep_ms(1000);
	if (wrong)
		printf("%s: caught by seed %llu: %s: ", wrong,
		       (unsigned long long)(running ? running->seed : 0), kind);
	else
		printf("seed %llu: %s: ", (unsigned long long)(running ? running->seed : 0), kind);
	va_start(arguments, format);
	vprintf(format, arguments);
	va_end(arguments);
	printf("\n");
	if (!wrong && running) {
		schedule_print(running);
		printf("the same again: torture %s--seed %llu\n", running->http ? "--http " : "",
		       (unsigned long long)running->seed);
	}
	fflush(stdout);
	/* What else may happen to a wrong library is no proof. */
	_exit(wrong && (!strcmp(kind, "deadlock") || !strcmp(kind, "wrong byte")) ? 0 : 1);
}

/* -------------------------------------------------------------------------------- left behind */

struct belongings {
	size_t threads, descriptors;
	uint64_t free_bytes[DEVICES];
};

static struct belongings take_stock(void)
{
	struct belongings now = {count_threads(), count_descriptors(), {0}};

	/* A GPU has other users, and its driver keeps what it may need again. */
	for (int i = 0; i < DEVICES && !gpu_is_real(); i++) {
		struct sluice_device device = {.size = sizeof(device)};

		if (sluice_device_describe(gpu_device(i), &device))
			caught("environment", "%s", sluice_last_message());
		now.free_bytes[i] = device.free_bytes;
	}
	return now;
}

static void compare(const struct belongings *before)
{
	struct belongings now = take_stock();

	/* A thread that was joined is gone a moment later. */
	for (int i = 0; i < 100 && now.threads > before->threads; i++) {
		sleep_ms(10);
		now = take_stock();
	}
	if (now.threads > before->threads || now.descriptors > before->descriptors)
		caught("leak", "%zu threads, not %zu; %zu descriptors, not %zu", now.threads,
		       before->threads, now.descriptors, before->descriptors);
	for (int i = 0; i < DEVICES; i++)
		if (now.free_bytes[i] != before->free_bytes[i])
			caught("leak", "device %d has %lld bytes less", i,
			       (long long)(before->free_bytes[i] - now.free_bytes[i]));
}

/* ----------------------------------------------------------------------------------- schedules */

static void run_schedule(uint64_t seed, bool http, bool verbose)
{
	static struct run run;
	struct schedule schedule;
	struct belongings before = take_stock();
	double begun = seconds_now();

	schedule_draw(seed, http, &schedule);
	running = &schedule;
	if (verbose)
		schedule_print(&schedule);
	memset(&run, 0, sizeof(run));
	snprintf(run.path, sizeof(run.path), "%s/file", directory);
	doing("making the schedule");
	run_open(&schedule, &run);
	watchdog_watch(&run);
	bend_start(&schedule);
	actors_run(&run);
	bend_calm();
	verify(&run);
	run_close(&run);
	bend_stop();
	watchdog_watch(NULL);
	compare(&before);
	if (verbose)
		printf("seed %llu: %u operations, %.1f ms\n", (unsigned long long)seed,
		       SL_MIN(atomic_load(&run.action_count), OPS_MOST),
		       (seconds_now() - begun) * 1e3);
	running = NULL;
}

static void start_devices(bool http)
{
	int rc = gpu_open(NULL);

	if (!rc && http && gpu_is_real())
		rc = gpu_failed(-ENODEV,
		                "what the fault server serves only emulated devices check");
	if (rc == -ENODEV) {
		printf("skipped: %s\n", gpu_message());
		exit(77);
	}
	if (rc)
		caught("environment", "%s", gpu_message());
}

static void prepare(bool http)
{
	const char *base = getenv("SLUICE_TEST_DIR");

	snprintf(directory, sizeof(directory), "%s/torture-XXXXXX", base ? base : ".");
	if (!mkdtemp(directory))
		caught("environment", "%s: %s", directory, strerror(errno));
	snprintf(read_path, sizeof(read_path), "%s/read", directory);
	file_make(read_path, READ_BYTES, READ_SEED);
	if (http)
		servers_start();
	for (int i = 0; i < DEVICES; i++) {
		if (sluice_pinned_alloc(gpu_device(i), PINNED_BYTES, (void **)&pinned_memory[i]))
			caught("environment", "%s", sluice_last_message());
		pattern_fill(pinned_memory[i], PINNED_PATTERN, 0, PINNED_SEED);
	}
	wrong_start();
}

static void clean_up(void)
{
	char path[300];

	for (int i = 0; i < DEVICES; i++)
		sluice_pinned_free(pinned_memory[i]);
	snprintf(path, sizeof(path), "%s/file", directory);
	unlink(path);
	unlink(read_path);
	rmdir(directory);
}

static int run_all(uint64_t first, uint64_t count, bool http, bool verbose)
{
	double begun = seconds_now(), longest = 0;

	for (uint64_t i = 0; i < count; i++) {
		double since = seconds_now();

		run_schedule(first + i, http, verbose);
		since = seconds_now() - since;
		longest = since > longest ? since : longest;
	}
	clean_up();
	if (wrong) {
		printf("%s: %llu schedules from seed %llu on did not catch it\n", wrong,
		       (unsigned long long)count, (unsigned long long)first);
		return 1;
	}
	printf("%llu schedules from seed %llu on: %.1f s, the longest %.0f ms; %llu operations, "
	       "%llu failed, %llu cancelled, %llu refused\n",
	       (unsigned long long)count, (unsigned long long)first, seconds_now() - begun,
	       longest * 1e3, (unsigned long long)totals.operations,
	       (unsigned long long)totals.failed, (unsigned long long)totals.cancelled,
	       (unsigned long long)totals.refused);
	return 0;
}

int main(int argc, char **argv)
{
	static const struct option options[] = {
		{"http", no_argument, NULL, 'h'},        {"first", required_argument, NULL, 'f'},
		{"count", required_argument, NULL, 'c'}, {"seed", required_argument, NULL, 's'},
		{"verbose", no_argument, NULL, 'v'},     {NULL, 0, NULL, 0},
	};
	uint64_t first = 1, count = wrong ? 100 : 10;
	const char *given = getenv("SLUICE_TEST_SEED");
	bool http = false, verbose = false;
	int option;

	while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
		switch (option) {
		case 'h':
			http = true;
			break;
		case 'f':
			first = strtoull(optarg, NULL, 0);
			break;
		case 'c':
			count = strtoull(optarg, NULL, 0);
			break;
		case 's':
			given = optarg;
			break;
		case 'v':
			verbose = true;
			break;
		default:
			return 2;
		}
	}
	if (given) {
		first = strtoull(given, NULL, 0);
		count = 1;
	}
	setvbuf(stdout, NULL, _IOLBF, 0);
	start_devices(http);
	watchdog_start(wrong ? 2 : under_sanitizer() ? 30 : 10, verbose);
	prepare(http);
	return run_all(first, count, http, verbose);
}
