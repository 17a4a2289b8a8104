/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Simulates the Gray-Scott reaction and stores v of every image while it computes the next one. gray-scott does so alone,
 * gray-scott-mpi on the ranks of MPI, each of which computes and stores a slab of the grid.
 */
#include <err.h>
#include <errno.h>
#include <inttypes.h>
#include <locale.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "checksum.h"
#include "options.h"
#include "parallel.h"
#include "progress.h"
#include "publish.h"
#include "ranks.h"
#include "slab.h"

/* Steps between two looks at whether somebody wants no more. */
enum { STEPS_MOST = 256 };

static volatile sig_atomic_t interrupted;

/* Once: a second Ctrl-C ends the program at once. */
static void remember(int signal)
{
	interrupted = signal;
}

/* Several ranks are ended by mpirun. */
static void catch_signals(void)
{
	static const int signals[] = {SIGINT, SIGTERM, SIGHUP};
	struct sigaction action = {.sa_handler = remember, .sa_flags = SA_RESETHAND | SA_RESTART};

	for (size_t i = 0; ranks.count == 1 && i < sizeof signals / sizeof *signals; i++) {
		struct sigaction before;

		/* nohup ignores some on purpose. */
		if (sigaction(signals[i], NULL, &before) == 0 && before.sa_handler != SIG_IGN)
			sigaction(signals[i], &action, NULL);
	}
	/* A file that may not grow is an error, and no reason to die. */
	signal(SIGXFSZ, SIG_IGN);
}

struct run {
	struct options options;
	struct parallel *parallel;
	struct slab slab;
	struct checksum checksum;
	const struct storage_calls *calls;
	struct storage *storage;
	struct publish publish;
	double computed, waited, closed, published; /* seconds */
};

/* The steps of one image. False when it is interrupted: then they are not complete. */
static bool compute(struct run *run)
{
	for (unsigned left = run->options.extra_steps + 1; left > 0 && !interrupted;) {
		unsigned steps = left < STEPS_MOST ? left : STEPS_MOST;

		slab_step(&run->slab, steps);
		left -= steps;
	}
	return !interrupted;
}

static int store(struct run *run, unsigned image)
{
	const struct reaction_options *grid = &run->options.reaction;
	double before = progress_now(), acquired, filled;
	float *frame;
	int rc = run->calls->acquire(run->storage, &frame);

	acquired = filled = progress_now();
	if (!rc) {
		reaction_copy_v(run->slab.reaction, frame);
		checksum_add(&run->checksum, run->parallel, image, frame,
		             grid->rows * grid->columns * sizeof *frame);
		filled = progress_now();
		rc = run->calls->submit(run->storage, frame);
	}
	run->waited += acquired - before + progress_now() - filled;
	run->computed += filled - acquired;
	return rc;
}

/* Whatever becomes of it, the run goes on. */
static void publish(struct run *run, unsigned image)
{
	double before = progress_now();

	publish_image(&run->publish, image, run->slab.reaction);
	run->published += progress_now() - before;
}

/* Until all images are made, storage fails or somebody wants no more. */
static int simulate(struct run *run)
{
	struct progress progress;
	int rc = 0;

	if (!ranks.own)
		progress_start(&progress, run->options.output, run->options.images);
	for (unsigned i = 0; i < run->options.images && !rc; i++) {
		double before = progress_now();
		bool complete = compute(run);

		run->computed += progress_now() - before;
		if (!complete)
			break;
		rc = store(run, i);
		publish(run, i);
		if (!ranks.own)
			progress_update(&progress, i + 1);
	}
	if (!ranks.own)
		progress_end(&progress);
	return rc;
}

/* The seconds are those of the rank that took longest. */
static void print_summary(struct run *run)
{
	const struct options *o = &run->options;
	struct storage_totals totals = run->calls->totals(run->storage);
	double cells = (double)o->reaction.rows * (double)o->reaction.columns;
	double images = (double)totals.frames, raw = images * cells * sizeof(float);
	double all = run->computed + run->waited + run->closed + run->published;
	double seconds[] = {all, run->computed, run->waited, run->closed};
	double stored = (double)totals.bytes;

	ranks_reduce(seconds, 4, &stored);
	if (ranks.own)
		return;
	all = seconds[0];
	printf("%" PRIu64 " images of %zu x %zu", totals.frames, o->reaction.rows,
	       o->reaction.columns);
	if (ranks.count > 1)
		printf(" by %d ranks", ranks.count);
	printf(" in %.2f s: %.1f images/s, %.1f MB/s\n", all, images / all, raw / all / 1e6);
	printf("computed for %.2f s, %.2f billion cells/s, on %u threads\n", seconds[1],
	       images * (o->extra_steps + 1.0) * cells / seconds[1] / 1e9,
	       parallel_threads(run->parallel) * (unsigned)ranks.count);
	printf("waited for storage for %.2f s, %.1f%%, and for %.2f s at the end\n", seconds[2],
	       100 * seconds[2] / all, seconds[3]);
	if (o->publish)
		printf("published %u of them in the store as %s/..., for %.2f s\n",
		       run->publish.count, o->publish, run->published);
	if (stored == 0)
		return;
	printf("stored %.1f MB as %.1f MB with %s", raw / 1e6, stored / 1e6, o->codec);
	if (o->level)
		printf(":%d", o->level);
	printf(", %.2f to 1\n", raw / stored);
}

static void print_failure(const struct run *run)
{
	uint64_t images = run->storage ? run->calls->totals(run->storage).frames : 0;

	if (ranks.count > 1) {
		warnx("rank %d: %s", ranks.own, run->calls->message(run->storage));
		fflush(NULL);
		ranks_abort();
	}
	warnx("%s", run->calls->message(run->storage));
	if (images > 0)
		warnx("'%s' has the %" PRIu64 " images before that", run->options.output, images);
}

static int open_storage(struct run *run)
{
	static const char *const names[] = {"feed_rate",   "kill_rate", "diffusion_u",
	                                    "diffusion_v", "deltat",    "steps_per_image",
	                                    NULL};
	const struct options *o = &run->options;
	const double values[] = {o->reaction.feed,        o->reaction.kill,
	                         o->reaction.diffusion_u, o->reaction.diffusion_v,
	                         o->reaction.deltat,      (double)o->extra_steps + 1};
	size_t count = (size_t)ranks.count;
	struct storage_options options = {.path = o->output,
	                                  .codec = o->codec,
	                                  .level = o->level,
	                                  .rows = run->slab.rows,
	                                  .columns = o->reaction.columns,
	                                  .first = run->slab.first,
	                                  .whole = o->reaction.rows,
	                                  .chunk_rows = (o->reaction.rows + count - 1) / count,
	                                  .waiting = o->waiting,
	                                  .names = names,
	                                  .values = values};

	return run->options.storage->open(&options, &run->storage);
}

static int close_storage(struct run *run)
{
	double before = progress_now();
	int rc = run->storage ? run->calls->close(run->storage) : 0;

	run->closed = progress_now() - before;
	return rc;
}

static void start_publishing(struct run *run)
{
	const struct options *o = &run->options;
	const struct publish_options options = {.name = o->publish,
	                                        .rows = o->reaction.rows,
	                                        .columns = o->reaction.columns,
	                                        .images = o->images,
	                                        .steps = o->extra_steps + 1,
	                                        .every = o->publish_every};

	if (publish_open(&run->publish, &options))
		errx(1, "--publish: %s", run->publish.message);
}

/* Rank 0 says what is wrong with the options, and ends the others, which wait. */
static void parse_options(struct options *o, int argc, char **argv)
{
	if (ranks.own)
		ranks_meet();
	options_parse(argc, argv, o);
	if (ranks.count > 1 && (o->publish || o->checksums))
		errx(2, "--publish and --checksums are for a single rank");
	if (o->reaction.rows < (size_t)ranks.count)
		errx(2, "%zu rows are too few for %d ranks", o->reaction.rows, ranks.count);
	if (ranks.count > 1 && !o->threads)
		o->threads = 1;
	if (!ranks.own)
		ranks_meet();
}

static void start(struct run *run)
{
	const struct reaction_options *grid = &run->options.reaction;
	int rc = parallel_new(run->options.threads, &run->parallel);

	if (rc)
		errx(1, "%u threads: %s", run->options.threads, strerror(-rc));
	if (slab_open(&run->slab, grid, run->parallel))
		errx(1, "out of memory for a grid of %zu x %zu", grid->rows, grid->columns);
	if (checksum_open(&run->checksum, run->options.checksums))
		err(1, "'%s'", run->options.checksums);
	run->calls = run->options.storage->calls;
	if (run->options.publish)
		start_publishing(run);
}

/* Whoever started this sees by what it ended; for a shell that is 130 after a Ctrl-C. */
static void obey(const struct run *run)
{
	uint64_t images = run->calls->totals(run->storage).frames;

	warnx("interrupted; '%s' has the %" PRIu64 " images until then", run->options.output,
	      images);
	fflush(NULL);
	signal(interrupted, SIG_DFL);
	raise(interrupted);
}

int main(int argc, char **argv)
{
	struct run run = {0};
	int rc, closed;

	setlocale(LC_CTYPE, "");
	ranks_start(&argc, &argv);
	parse_options(&run.options, argc, argv);
	catch_signals();
	start(&run);
	rc = open_storage(&run);
	if (!rc)
		rc = simulate(&run);
	if (rc && ranks.count > 1)
		print_failure(&run);
	publish_close(&run.publish);
	closed = close_storage(&run);
	rc = rc ? rc : closed;
	if (rc)
		print_failure(&run);
	else
		print_summary(&run);
	if (checksum_close(&run.checksum)) {
		warn("'%s'", run.options.checksums);
		rc = -EIO;
	}
	if (run.publish.failed) {
		warnx("images are missing in the store: %s", run.publish.message);
		rc = rc ? rc : run.publish.failed;
	}
	if (!rc && interrupted)
		obey(&run);
	run.calls->free(run.storage);
	slab_close(&run.slab);
	parallel_free(run.parallel);
	ranks_end();
	return rc ? 1 : 0;
}
