/* SPDX-License-Identifier: Apache-2.0 */
/*
 * write_frames DRIVER PATH [POINT]: writes frames through DRIVER, ordered or sec2, in a process
 * that is killed at POINT. Prints how many points there were, how many frames were flushed, and the
 * shape of a frame, for h5py_test.py.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "h5file/points.h"
#include "h5file/workload.h"

static struct told {
	volatile unsigned points, flushed;
} * told;
static unsigned last;

static int die(unsigned point)
{
	told->points = point;
	if (point == last)
		kill(getpid(), SIGKILL);
	return 0;
}

int main(int argc, char **argv)
{
	struct workload load = {.rows = 3, .columns = 3, .node = 2, .every = 3};
	int status;

	if (argc < 3)
		return 2;
	load.sec2 = strcmp(argv[1], "sec2") == 0;
	last = argc > 3 ? strtoul(argv[3], NULL, 10) : 0;
	told = mmap(NULL, sizeof(*told), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (told == MAP_FAILED)
		return 1;
	if (fork() == 0) {
		points_hook = die;
		exit(workload_write(&load, argv[2], &told->flushed) < 0 || load.vfd.error);
	}
	if (wait(&status) < 0 || (WIFEXITED(status) && WEXITSTATUS(status)))
		return 1;
	printf("%u %u %u %u\n", told->points, told->flushed, load.rows * WORKLOAD_EDGE,
	       load.columns * WORKLOAD_EDGE);
	return 0;
}
