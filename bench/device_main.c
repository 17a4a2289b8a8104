/* SPDX-License-Identifier: Apache-2.0 */
/* usage: bench_device DEVICE BYTES; jobs on standard input, see device_bench.h. */
#include "device_bench.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#include "gpu/driver.h"

int device, ordinal = -1;
char *device_memory;
uint64_t device_bytes;

static const char *no_driver;

/* ----------------------------------------------------------------------------------- measuring */

double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static double cpu_seconds(void)
{
	struct rusage u;

	getrusage(RUSAGE_SELF, &u);
	return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
	       (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e6;
}

void clock_start(struct clock *clock)
{
	clock->cpu_seconds -= cpu_seconds();
	clock->seconds -= now();
}

void clock_stop(struct clock *clock)
{
	clock->seconds += now();
	clock->cpu_seconds += cpu_seconds();
}

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

struct spread spread_of(double *seconds, unsigned n)
{
	struct spread s;

	qsort(seconds, n, sizeof(*seconds), compare);
	s.p50 = seconds[n / 2] * 1e6;
	s.p99 = seconds[n * 99 / 100] * 1e6;
	s.most = seconds[n - 1] * 1e6;
	return s;
}

/* -------------------------------------------------------------------------------------- ending */

static void answer(const char *kind, const char *text)
{
	printf("{\"%s\": \"", kind);
	for (; *text; text++)
		printf(*text == '"' || *text == '\\' ? "\\%c"
		       : (unsigned char)*text < ' '  ? " "
		                                     : "%c",
		       *text);
	printf("\"}\n");
}

void fail(const char *format, ...)
{
	char text[400];
	va_list list;

	va_start(list, format);
	vsnprintf(text, sizeof(text), format, list);
	va_end(list);
	answer("error", text);
	exit(1);
}

void skip(const char *why)
{
	answer("skipped", why);
	exit(1);
}

void need_driver(void)
{
	if (ordinal < 0)
		skip(no_driver);
}

/* ------------------------------------------------------------------------------------ contexts */

/* The settings that jobs ask for beside the defaults. */
static void choose(const char *name, struct sluice_config *config)
{
	if (!strcmp(name, "paged")) /* writes go through the page cache, whatever their size */
		config->direct_bytes = (uint64_t)1 << 40;
	else if (!strcmp(name, "waiting")) /* nothing is read by the submitting call */
		config->tune = "inline_bytes=1";
	else if (!strcmp(name, "slots")) /* so that it is known what a chunk is */
		config->tune = "slot_bytes=8M";
	else if (strcmp(name, "default"))
		fail("there are no settings '%s'", name);
}

static sluice_context *ring_of(const struct job *job)
{
	static sluice_context *ctx;
	struct sluice_config config = SLUICE_CONFIG_INIT;
	char tune[64];

	snprintf(tune, sizeof(tune), "slots=%u,slot_bytes=%zu", job->slots, job->slot_bytes);
	config.tune = tune;
	if (ctx)
		CHECK(sluice_context_close(ctx));
	CHECK(sluice_context_new(&config, &ctx));
	return ctx;
}

sluice_context *context_of(const struct job *job)
{
	static struct {
		char name[16];
		sluice_context *ctx;
	} made[8];
	const char *name = job->settings ? job->settings : "default";
	struct sluice_config config = SLUICE_CONFIG_INIT;
	int i = 0;

	if (job->slots)
		return ring_of(job);
	while (made[i].ctx && strcmp(made[i].name, name))
		i++;
	if (made[i].ctx)
		return made[i].ctx;
	choose(name, &config);
	CHECK(sluice_context_new(&config, &made[i].ctx));
	snprintf(made[i].name, sizeof(made[i].name), "%s", name);
	return made[i].ctx;
}

sluice_file *open_for(const struct job *job)
{
	struct sluice_open_options o = SLUICE_OPEN_OPTIONS_INIT;
	sluice_file *file;

	o.flags = job->write ? SLUICE_OPEN_WRITE : SLUICE_OPEN_READ;
	o.backend = job->backend;
	if (sluice_open(context_of(job), job->path, &o, &file))
		fail("%s", sluice_last_message());
	return file;
}

/* ---------------------------------------------------------------------------------------- jobs */

static const struct {
	const char *verb;
	void (*run)(const struct job *job);
} jobs[] = {
	{"move", job_move},       {"extents", job_extents}, {"submit", job_submit},
	{"latency", job_latency}, {"release", job_release}, {"held", job_held},
	{"ceiling", job_ceiling}, {"storage", job_storage}, {"pipeline", job_pipeline},
	{"single", job_single},   {"small", job_small},     {"small_latency", job_small_latency},
	{"fan", job_fan},
};

static void set(struct job *job, char *word)
{
	char *value = strchr(word, '=');
	uint64_t number;

	if (!value) {
		snprintf(job->verb, sizeof(job->verb), "%s", word);
		return;
	}
	*value++ = '\0';
	number = strtoull(value, NULL, 10);
	if (!strcmp(word, "write"))
		job->write = number;
	else if (!strcmp(word, "stream"))
		job->stream = number;
	else if (!strcmp(word, "direct"))
		job->direct = number;
	else if (!strcmp(word, "path"))
		job->path = value;
	else if (!strcmp(word, "backend"))
		job->backend = value;
	else if (!strcmp(word, "kind"))
		job->kind = value;
	else if (!strcmp(word, "settings"))
		job->settings = value;
	else if (!strcmp(word, "bytes"))
		job->bytes = number;
	else if (!strcmp(word, "count"))
		job->count = (unsigned)number;
	else if (!strcmp(word, "passes"))
		job->passes = (unsigned)number;
	else if (!strcmp(word, "threads"))
		job->threads = (unsigned)number;
	else if (!strcmp(word, "streams"))
		job->streams = (unsigned)number;
	else if (!strcmp(word, "slots"))
		job->slots = (unsigned)number;
	else if (!strcmp(word, "slot_bytes"))
		job->slot_bytes = number;
	else if (!strcmp(word, "limit_ms"))
		job->limit_ms = (unsigned)number;
	else
		fail("a job has no '%s'", word);
}

static void run(char *line)
{
	struct job job = {.passes = 1, .count = 1, .threads = 1, .streams = 1, .limit_ms = 500};

	for (char *word = strtok(line, " \n"); word; word = strtok(NULL, " \n"))
		set(&job, word);
	for (size_t i = 0; i < sizeof(jobs) / sizeof(jobs[0]); i++) {
		if (!strcmp(jobs[i].verb, job.verb)) {
			jobs[i].run(&job);
			return;
		}
	}
	fail("there is no job '%s'", job.verb);
}

static void set_up(const char *name, const char *bytes)
{
	struct sluice_device d = {.size = sizeof(d)};
	const char *missing = NULL;
	void *memory;

	if (sluice_device_find(name, &device))
		skip(sluice_last_message());
	CHECK(sluice_device_describe(device, &d));
	no_driver = "only with CUDA's driver";
	if (!strncmp(d.name, "cuda:", 5)) {
		ordinal = atoi(d.name + 5);
		missing = driver_open(ordinal);
	}
	if (missing)
		fail("%s", missing);
	device_bytes = strtoull(bytes, NULL, 10);
	CHECK(sluice_device_alloc(device, device_bytes, &memory));
	device_memory = memory;
	if (ordinal >= 0)
		missing = driver_kernels();
	printf("{\"name\": \"%s\", \"detail\": \"%s\", \"kernels\": \"%s\"}\n", d.name, d.detail,
	       missing ? missing : "");
}

int main(int argc, char **argv)
{
	static char line[4096];

	setvbuf(stdout, NULL, _IOLBF, 0);
	if (argc != 3)
		return 2;
	set_up(argv[1], argv[2]);
	while (fgets(line, sizeof(line), stdin))
		run(line);
	/* Contexts and memory go with the process. */
	return 0;
}
