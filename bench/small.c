/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench_small FOLDER sluice|posix PASSES: opens, reads and closes small files, which are in the page cache.
 * bench_small FILE sluice|posix COUNT BYTES: reads so many bytes of 64 MiB of a file, one read at a time.
 * bench/local drives it, and gives the processor time of the process.
 */
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "sluice/sluice.h"

enum { FILES = 500, BYTES = 4096, PLACES = 8, WARM = 100, PART = 64 << 20 };

static char data[BYTES];

static void check(int ok, const char *what)
{
	if (ok)
		return;
	perror(what);
	exit(1);
}

static double cpu_seconds(void)
{
	struct rusage use;

	getrusage(RUSAGE_SELF, &use);
	return (double)(use.ru_utime.tv_sec + use.ru_stime.tv_sec) +
	       (double)(use.ru_utime.tv_usec + use.ru_stime.tv_usec) / 1e6;
}

static void read_by_posix(const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	struct stat stat;

	check(fd >= 0 && !fstat(fd, &stat) && pread(fd, data, BYTES, 0) == BYTES, path);
	close(fd);
}

static void read_by_sluice(sluice_context *ctx, const char *path)
{
	sluice_file *file;
	sluice_op *op = NULL;

	check(!sluice_open(ctx, path, NULL, &file) && !sluice_read(file, data, BYTES, 0, &op),
	      path);
	check(sluice_wait(op, -1) == BYTES, path);
	sluice_op_free(op);
	sluice_close(file);
}

static double seconds(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* Reads by sluice, or without a file of it by pread(). Returns how long the submission took. */
static double read_alone(sluice_file *file, int fd, char *to, size_t bytes, uint64_t offset)
{
	double begun = seconds(), submitted;
	sluice_op *op = NULL;

	if (!file) {
		check(pread(fd, to, bytes, (off_t)offset) == (ssize_t)bytes, "pread");
		return 0;
	}
	check(!sluice_read(file, to, bytes, offset, &op), "sluice_read");
	submitted = seconds() - begun;
	check(sluice_wait(op, -1) == (int64_t)bytes, "sluice_wait");
	sluice_op_free(op);
	return submitted;
}

static int measure_alone(const char *path, bool posix, int count, size_t bytes)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	char *memory = aligned_alloc(4096, PLACES * bytes);
	double begun = 0, cpu = 0, submitted = 0;
	sluice_context *ctx = NULL;
	sluice_file *file = NULL;

	check(fd >= 0 && memory, path);
	check(posix || (!sluice_context_new(NULL, &ctx) && !sluice_open(ctx, path, NULL, &file)),
	      "sluice_open");
	memset(memory, 1, PLACES * bytes);
	for (int i = 0; i < count + WARM; i++) {
		if (i == WARM) {
			begun = seconds();
			cpu = cpu_seconds();
			submitted = 0;
		}
		submitted += read_alone(file, fd, memory + (size_t)i % PLACES * bytes, bytes,
		                        (uint64_t)i % (PART / bytes) * bytes);
	}
	printf("{\"us\": %f, \"cpu_us\": %f, \"submit_us\": %f}\n",
	       (seconds() - begun) * 1e6 / count, (cpu_seconds() - cpu) * 1e6 / count,
	       submitted * 1e6 / count);
	close(fd);
	free(memory);
	return posix ? 0 : -(sluice_close(file) || sluice_context_close(ctx));
}

int main(int argc, char **argv)
{
	int passes = argc >= 4 ? atoi(argv[3]) : 0;
	static char paths[FILES][512];
	sluice_context *ctx;
	double begun = 0;

	check(passes > 0, "usage: bench_small FOLDER sluice|posix PASSES");
	if (argc == 5)
		return measure_alone(argv[1], !strcmp(argv[2], "posix"), passes,
		                     strtoull(argv[4], NULL, 10));
	check(!sluice_context_new(NULL, &ctx), "sluice_context_new");
	for (int i = 0; i < FILES; i++) {
		int fd;

		snprintf(paths[i], sizeof(paths[i]), "%s/small.%d", argv[1], i);
		fd = open(paths[i], O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
		check(fd >= 0 && write(fd, data, BYTES) == BYTES, paths[i]);
		close(fd);
	}
	/* The first pass is to warm up. */
	for (int pass = 0; pass <= passes; pass++) {
		if (pass == 1)
			begun = cpu_seconds();
		for (int i = 0; i < FILES; i++)
			if (strcmp(argv[2], "posix") != 0)
				read_by_sluice(ctx, paths[i]);
			else
				read_by_posix(paths[i]);
	}
	printf("{\"bytes\": %d, \"cpu_seconds\": %f}\n", passes * FILES * BYTES,
	       cpu_seconds() - begun);
	for (int i = 0; i < FILES; i++)
		unlink(paths[i]);
	return -sluice_context_close(ctx);
}
