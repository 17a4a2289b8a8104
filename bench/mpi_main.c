/* SPDX-License-Identifier: Apache-2.0 */
/*
 * usage: mpirun -n RANKS bench_mpi OPTION=VALUE...
 *
 * Each rank stores its slab of the frames, as bench_writer does with whole ones; the options are those of writer_main.c,
 * with rows of the whole frame, and of sink the ways of the program. Rank 0 prints one JSON object, whose seconds go from
 * the first frame to the end of the last rank's close; calls and longest are those of the rank that had most of them.
 */
#include "mpi_bench.h"

#include <err.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

static void take_slab(int rank, int ranks)
{
	struct sink_options *o = &options.sink;

	o->whole = o->rows;
	o->first = o->whole * (size_t)rank / (size_t)ranks;
	o->rows = o->whole * (size_t)(rank + 1) / (size_t)ranks - o->first;
}

/* Of the files of nodes beside a file; 0: there are none. */
static double nodes_stored(const char *path)
{
	char *name = NULL;
	struct stat s;
	double sum = 0;
	int node = 0;

	while (asprintf(&name, "%s.node-%d", path, node++) > 0 && !stat(name, &s)) {
		sum += (double)s.st_size;
		free(name);
	}
	free(name);
	return sum;
}

static void report(int rank, int files)
{
	struct stat s = {0};
	double own_most[] = {found.seconds, found.calls, found.longest}, most[3];
	double own_sums[] = {found.cpu, 0}, sums[2], filling = found.filling;

	/* Of all ranks, or of each one. */
	if ((rank == 0 || files) && stat(options.sink.path, &s) < 0)
		err(1, "%s", options.sink.path);
	own_sums[1] = (double)s.st_size + (rank ? 0 : nodes_stored(options.sink.path));
	MPI_Reduce(own_most, most, 3, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
	MPI_Reduce(own_sums, sums, 2, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
	MPI_Reduce(&filling, &found.filling, 1, MPI_DOUBLE, MPI_MIN, 0, MPI_COMM_WORLD);
	if (rank)
		return;
	found.seconds = most[0];
	found.calls = most[1];
	found.longest = most[2];
	found.cpu = sums[0];
	bench_print(sums[1]);
}

int main(int argc, char **argv)
{
	const struct sink_ops *ops;
	int level, rank, ranks, files = 0;
	void *sink;

	MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	for (int i = 1; i < argc; i++)
		options_set(argv[i]);
	take_slab(rank, ranks);
	if (!frame_cells() || !options.from || !options.sink.path)
		errx(2, "rows for each rank, columns, from and output are needed");
	ops = mpi_choose(rank, &files);
	if (!ops)
		errx(2, "this program has no sink '%s'", options.kind);
	source_open();
	sink = bench_begin(ops);
	MPI_Barrier(MPI_COMM_WORLD);
	bench_run(ops, sink);
	report(rank, files);
	MPI_Finalize();
	return 0;
}
