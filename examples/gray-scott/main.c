/* SPDX-License-Identifier: Apache-2.0 */
/* Simulates the Gray-Scott reaction and stores v of every image while it computes the next one. */
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

/* Steps between two looks at whether somebody wants no more. */
enum { STEPS_MOST = 256 };

static volatile sig_atomic_t interrupted;

/* Once: a second Ctrl-C ends the program at once. */
static void remember(int signal)
{
	interrupted = signal;
}

static void catch_signals(void)
{
	static const int signals[] = {SIGINT, SIGTERM, SIGHUP};
	struct sigaction action = {.sa_handler = remember, .sa_flags = SA_RESETHAND | SA_RESTART};

	for (size_t i = 0; i < sizeof signals / sizeof *signals; i++) {
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
	struct reaction *reaction;
	struct checksum checksum;
	const struct storage_kind *kind;
	struct storage *storage;
	struct publish publish;
	double computed, waited, closed, published; /* seconds */
};

/* The steps of one image. False when it is interrupted: then they are not complete. */
static bool compute(struct run *run)
{
	for (unsigned left = run->options.extra_steps + 1; left > 0 && !interrupted;) {
		unsigned steps = left < STEPS_MOST ? left : STEPS_MOST;

		reaction_step(run->reaction, steps);
		left -= steps;
	}
	return !interrupted;
}

static int store(struct run *run, unsigned image)
{
	const struct reaction_options *grid = &run->options.reaction;
	double before = progress_now(), acquired, filled;
	float *frame;
	int rc = run->kind->acquire(run->storage, &frame);

	acquired = filled = progress_now();
	if (!rc) {
		reaction_copy_v(run->reaction, frame);
		checksum_add(&run->checksum, run->parallel, image, frame,
		             grid->rows * grid->columns * sizeof *frame);
		filled = progress_now();
		rc = run->kind->submit(run->storage, frame);
	}
	run->waited += acquired - before + progress_now() - filled;
	run->computed += filled - acquired;
	return rc;
}

/* Whatever becomes of it, the run goes on. */
static void publish(struct run *run, unsigned image)
{
	double before = progress_now();

	publish_image(&run->publish, image, run->reaction);
	run->published += progress_now() - before;
}

/* Until all images are made, storage fails or somebody wants no more. */
static int simulate(struct run *run)
{
	struct progress progress;
	int rc = 0;

	progress_start(&progress, run->options.output, run->options.images);
	for (unsigned i = 0; i < run->options.images && !rc; i++) {
		double before = progress_now();
		bool complete = compute(run);

		run->computed += progress_now() - before;
		if (!complete)
			break;
		rc = store(run, i);
		publish(run, i);
		progress_update(&progress, i + 1);
	}
	progress_end(&progress);
	return rc;
}

static void print_summary(const struct run *run)
{
	const struct options *o = &run->options;
	struct storage_totals totals = run->kind->totals(run->storage);
	double cells = (double)o->reaction.rows * (double)o->reaction.columns;
	double images = (double)totals.frames, raw = images * cells * sizeof(float);
	double all = run->computed + run->waited + run->closed + run->published;

	printf("%" PRIu64 " images of %zu x %zu in %.2f s: %.1f images/s, %.1f MB/s\n",
	       totals.frames, o->reaction.rows, o->reaction.columns, all, images / all,
	       raw / all / 1e6);
	printf("computed for %.2f s, %.2f billion cells/s, on %u threads\n", run->computed,
	       images * (o->extra_steps + 1.0) * cells / run->computed / 1e9,
	       parallel_threads(run->parallel));
	printf("waited for storage for %.2f s, %.1f%%, and for %.2f s at the end\n", run->waited,
	       100 * run->waited / all, run->closed);
	if (o->publish)
		printf("published %u of them in the store as %s/..., for %.2f s\n",
		       run->publish.count, o->publish, run->published);
	if (totals.bytes == 0)
		return;
	printf("stored %.1f MB as %.1f MB with %s", raw / 1e6, (double)totals.bytes / 1e6,
	       o->codec);
	if (o->level)
		printf(":%d", o->level);
	printf(", %.2f to 1\n", raw / (double)totals.bytes);
}

static void print_failure(const struct run *run)
{
	uint64_t images = run->storage ? run->kind->totals(run->storage).frames : 0;

	warnx("%s", run->kind->message(run->storage));
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
	struct storage_options options = {.path = o->output,
	                                  .codec = o->codec,
	                                  .level = o->level,
	                                  .rows = o->reaction.rows,
	                                  .columns = o->reaction.columns,
	                                  .whole = o->reaction.rows,
	                                  .chunk_rows = o->reaction.rows,
	                                  .waiting = o->waiting,
	                                  .names = names,
	                                  .values = values};

	return run->kind->open(&options, &run->storage);
}

static int close_storage(struct run *run)
{
	double before = progress_now();
	int rc = run->storage ? run->kind->close(run->storage) : 0;

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

static void start(struct run *run)
{
	const struct reaction_options *grid = &run->options.reaction;
	int rc = parallel_new(run->options.threads, &run->parallel);

	if (rc)
		errx(1, "%u threads: %s", run->options.threads, strerror(-rc));
	if (reaction_new(grid, run->parallel, &run->reaction))
		errx(1, "out of memory for a grid of %zu x %zu", grid->rows, grid->columns);
	if (checksum_open(&run->checksum, run->options.checksums))
		err(1, "'%s'", run->options.checksums);
	run->kind = run->options.storage;
	if (run->options.publish)
		start_publishing(run);
}

/* Whoever started this sees by what it ended; for a shell that is 130 after a Ctrl-C. */
static void obey(const struct run *run)
{
	uint64_t images = run->kind->totals(run->storage).frames;

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
	options_parse(argc, argv, &run.options);
	catch_signals();
	start(&run);
	rc = open_storage(&run);
	if (!rc)
		rc = simulate(&run);
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
	run.kind->free(run.storage);
	reaction_free(run.reaction);
	parallel_free(run.parallel);
	return rc ? 1 : 0;
}
