/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The simulation on the ranks of MPI, which store their slabs in one file: gray-scott-mpi, and gray-scott-collective with
 * parallel HDF5. A rank that fails ends the run; the file has the images until then.
 */
#include <err.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "options.h"
#include "parallel.h"
#include "progress.h"
#include "slab.h"

struct run {
	struct options options;
	struct parallel *parallel;
	struct slab slab;
	const struct storage_kind *kind;
	struct storage *storage;
	double computed, waited, closed; /* seconds */
};

static _Noreturn void give_up(const struct run *run, const char *why)
{
	warnx("rank %d: %s", run->slab.rank, why);
	fflush(NULL);
	MPI_Abort(MPI_COMM_WORLD, 1);
	exit(1);
}

static void must(const struct run *run, int rc)
{
	if (rc)
		give_up(run, run->kind->message(run->storage));
}

static void start(struct run *run, int argc, char **argv)
{
	const struct reaction_options *grid = &run->options.reaction;
	int rank, ranks;

	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	/* Rank 0 says what is wrong with the options, and then this does not end. */
	if (rank)
		MPI_Barrier(MPI_COMM_WORLD);
	options_parse(argc, argv, &run->options);
	if (run->options.publish || run->options.checksums)
		errx(2, "--publish and --checksums are options of gray-scott, without MPI");
	if (grid->rows < (size_t)ranks)
		errx(2, "%zu rows are too few for %d ranks", grid->rows, ranks);
	if (!rank)
		MPI_Barrier(MPI_COMM_WORLD);
	run->kind = run->options.storage;
	if (parallel_new(run->options.threads ? run->options.threads : 1, &run->parallel) ||
	    slab_open(&run->slab, MPI_COMM_WORLD, grid, run->parallel))
		give_up(run, "no memory, or no threads");
}

static void open_storage(struct run *run)
{
	static const char *const names[] = {"feed_rate",   "kill_rate", "diffusion_u",
	                                    "diffusion_v", "deltat",    "steps_per_image",
	                                    NULL};
	const struct options *o = &run->options;
	size_t ranks = (size_t)run->slab.ranks;
	const double values[] = {o->reaction.feed,        o->reaction.kill,
	                         o->reaction.diffusion_u, o->reaction.diffusion_v,
	                         o->reaction.deltat,      (double)o->extra_steps + 1};
	struct storage_options options = {.path = o->output,
	                                  .codec = o->codec,
	                                  .level = o->level,
	                                  .rows = run->slab.rows,
	                                  .columns = run->slab.columns,
	                                  .first = run->slab.first,
	                                  .whole = run->slab.whole,
	                                  .chunk_rows = (run->slab.whole + ranks - 1) / ranks,
	                                  .waiting = o->waiting,
	                                  .names = names,
	                                  .values = values};

	must(run, run->kind->open(&options, &run->storage));
}

static void simulate(struct run *run)
{
	struct progress progress;

	if (!run->slab.rank)
		progress_start(&progress, run->options.output, run->options.images);
	for (unsigned i = 0; i < run->options.images; i++) {
		double begin = progress_now(), computed, acquired, filled;
		float *frame;

		slab_step(&run->slab, run->options.extra_steps + 1);
		computed = progress_now();
		must(run, run->kind->acquire(run->storage, &frame));
		acquired = progress_now();
		slab_copy_v(&run->slab, frame);
		filled = progress_now();
		must(run, run->kind->submit(run->storage, frame));
		run->computed += computed - begin + filled - acquired;
		run->waited += acquired - computed + progress_now() - filled;
		if (!run->slab.rank)
			progress_update(&progress, i + 1);
	}
	if (!run->slab.rank)
		progress_end(&progress);
}

static void finish(struct run *run)
{
	double begin = progress_now();

	must(run, run->kind->close(run->storage));
	run->closed = progress_now() - begin;
}

/* The waits are those of the rank that waited longest. */
static void print_summary(const struct run *run)
{
	const struct options *o = &run->options;
	double own[] = {run->waited, run->closed, run->computed + run->waited + run->closed};
	double most[3], raw = (double)o->images * (double)run->slab.whole *
	                      (double)run->slab.columns * sizeof(float);
	struct stat file;

	MPI_Reduce(own, most, 3, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
	if (run->slab.rank || stat(o->output, &file) < 0)
		return;
	printf("%" PRIu64 " images of %zu x %zu by %d ranks in %.2f s: %.1f images/s, %.1f MB/s\n",
	       run->kind->totals(run->storage).frames, run->slab.whole, run->slab.columns,
	       run->slab.ranks, most[2], o->images / most[2], raw / most[2] / 1e6);
	printf("waited for storage for %.2f s, %.1f%%, and for %.2f s at the end\n", most[0],
	       100 * most[0] / most[2], most[1]);
	printf("stored %.1f MB as %.1f MB with %s\n", raw / 1e6, (double)file.st_size / 1e6,
	       o->codec);
}

int main(int argc, char **argv)
{
	struct run run = {0};
	int level;

	/* A file that may not grow is an error, and no reason to die. */
	signal(SIGXFSZ, SIG_IGN);
	MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
	start(&run, argc, argv);
	open_storage(&run);
	simulate(&run);
	finish(&run);
	print_summary(&run);
	run.kind->free(run.storage);
	slab_close(&run.slab);
	parallel_free(run.parallel);
	MPI_Finalize();
	return 0;
}
