/* SPDX-License-Identifier: Apache-2.0 */
#include "store_bench.h"

#include <err.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

struct options options = {.way = "sluice",
                          .bytes = 4096,
                          .count = 1000,
                          .pairs = 1,
                          .threads = 1,
                          .blobs = 1,
                          .here = -1,
                          .there = -1,
                          .daemons = ""};

/* ------------------------------------------------------------------------------------- clocks */

static int64_t clock_ns(clockid_t id)
{
	struct timespec t;

	clock_gettime(id, &t);
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

int64_t now_ns(void)
{
	return clock_ns(CLOCK_MONOTONIC);
}

int64_t cpu_ns(void)
{
	return clock_ns(CLOCK_PROCESS_CPUTIME_ID);
}

int64_t others_ns(const char *pids)
{
	int64_t sum = 0;

	for (char *end; *pids; pids = *end ? end + 1 : end) {
		clockid_t id;

		if (clock_getcpuclockid((pid_t)strtol(pids, &end, 10), &id) || end == pids)
			errx(1, "daemons=%s: no such process", pids);
		sum += clock_ns(id);
	}
	return sum;
}

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

double median(double *values, unsigned count)
{
	qsort(values, count, sizeof(*values), compare);
	return count % 2 ? values[count / 2] : (values[count / 2 - 1] + values[count / 2]) / 2;
}

/* ------------------------------------------------------------------------------------- memory */

void must(int rc, const char *what)
{
	if (rc < 0)
		errx(1, "%s: %s", what, sluice_last_message());
}

char *warm_memory(size_t bytes)
{
	const size_t huge = 2 << 20;
	char *p = mmap(NULL, bytes + huge, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
	               0);

	if (p == MAP_FAILED)
		err(1, "%zu bytes", bytes);
	p += -(uintptr_t)p & (huge - 1);
	madvise(p, bytes, MADV_HUGEPAGE);
	memset(p, 1, bytes);
	return p;
}

struct part {
	pthread_t thread;
	sluice_blob *blob; /* whose memory is warmed on the way, or NULL */
	char *to;
	const char *from;
	size_t at, end;
};

static void *copy_part(void *argument)
{
	const struct part *part = argument;
	const size_t step = part->blob ? 4 << 20 : part->end - part->at;

	for (size_t at = part->at, n; at < part->end; at += n) {
		n = part->end - at < step ? part->end - at : step;
		if (part->blob)
			must(sluice_blob_warm(part->blob, at, n), "warm");
		memcpy(part->to + at, part->from + at, n);
	}
	return NULL;
}

void copy_by(unsigned threads, char *to, const char *from, size_t bytes, sluice_blob *blob)
{
	const size_t huge = 2 << 20;
	struct part parts[64] = {0};

	for (unsigned i = 0; i < threads; i++) {
		parts[i] = (struct part){
			.blob = blob,
			.to = to,
			.from = from,
			.at = bytes / huge * i / threads * huge,
			.end = i + 1 < threads ? bytes / huge * (i + 1) / threads * huge : bytes};
		if (i && pthread_create(&parts[i].thread, NULL, copy_part, &parts[i]))
			errx(1, "cannot start a thread");
	}
	copy_part(&parts[0]);
	for (unsigned i = 1; i < threads; i++)
		pthread_join(parts[i].thread, NULL);
}

sluice_store *store_open(void)
{
	sluice_store *store;

	must(sluice_store_open(options.socket, NULL, &store), "connect");
	return store;
}

/* ------------------------------------------------------------------------------------ options */

static size_t number(const char *name, const char *text)
{
	char *end;
	unsigned long long n = strtoull(text, &end, 10);

	if (end == text || *end || !n)
		errx(2, "%s=%s is no number", name, text);
	return n;
}

static void set(const char *name, const char *value)
{
	if (!strcmp(name, "socket"))
		options.socket = value;
	else if (!strcmp(name, "daemons"))
		options.daemons = value;
	else if (!strcmp(name, "way"))
		options.way = value;
	else if (!strcmp(name, "bytes"))
		options.bytes = number(name, value);
	else if (!strcmp(name, "count"))
		options.count = (unsigned)number(name, value);
	else if (!strcmp(name, "before"))
		options.before = (unsigned)number(name, value);
	else if (!strcmp(name, "pairs"))
		options.pairs = (unsigned)number(name, value);
	else if (!strcmp(name, "threads"))
		options.threads = (unsigned)number(name, value);
	else if (!strcmp(name, "here"))
		options.here = atoi(value);
	else if (!strcmp(name, "there"))
		options.there = atoi(value);
	else if (!strcmp(name, "blobs"))
		options.blobs = (unsigned)number(name, value);
	else
		errx(2, "there is no option '%s'", name);
	if (options.threads > 64 || options.pairs > 64)
		errx(2, "at most 64 threads, or pairs");
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		void (*run)(void);
	} runs[] = {{"publish", run_publish},
	            {"cycle", run_cycle},
	            {"put", run_put},
	            {"copy", run_copy},
	            {"get", run_get}};

	if (argc == 1) {
		printf("{\"iceoryx\": %s}\n", way_iceoryx.name ? "true" : "false");
		return 0;
	}
	for (int i = 2; i < argc; i++) {
		char *value = strchr(argv[i], '=');

		if (!value)
			errx(2, "'%s' is no OPTION=VALUE", argv[i]);
		*value++ = '\0';
		set(argv[i], value);
	}
	for (size_t i = 0; i < sizeof(runs) / sizeof(runs[0]); i++)
		if (!strcmp(argv[1], runs[i].name)) {
			runs[i].run();
			return 0;
		}
	errx(2, "there is no measurement '%s'", argv[1]);
}
