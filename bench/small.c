/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench_small FOLDER sluice|posix PASSES: opens, reads and closes small files, which are in the page cache.
 * bench/local drives it, and gives the processor time of the process.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "sluice/sluice.h"

enum { FILES = 500, BYTES = 4096 };

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

int main(int argc, char **argv)
{
	int passes = argc == 4 ? atoi(argv[3]) : 0;
	static char paths[FILES][512];
	sluice_context *ctx;
	double begun = 0;

	check(passes > 0, "usage: bench_small FOLDER sluice|posix PASSES");
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
