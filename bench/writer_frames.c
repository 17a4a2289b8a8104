/* SPDX-License-Identifier: Apache-2.0 */
/*
 * usage: bench_writer_frames FOLDER ROWS COLUMNS COUNT
 *
 * Runs the simulation of examples/gray-scott with its defaults, an image every 33 steps, and writes images
 * of v, raw float32, into FOLDER:
 *   run     COUNT images, evenly out of the first 1000, while the pattern spreads from the middle
 *   active  COUNT images in a row after 2000, when it has filled the area and goes on moving
 *   state   u and v as they were before the first image of active
 * Prints one JSON object, with the share of the area that moves: v changes by more than MOTION from one
 * image to the next.
 */
#include <err.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../examples/gray-scott/reaction.h"

enum { STEPS = 33, RUN = 1000, ACTIVE = 2000 }; /* steps of an image; images */
#define MOTION 3e-4F

static size_t cells;
static const char *folder;

static FILE *create(const char *name)
{
	char *path;
	FILE *file;

	if (asprintf(&path, "%s/%s", folder, name) < 0 || !(file = fopen(path, "w")))
		err(1, "%s/%s", folder, name);
	free(path);
	return file;
}

static void put(FILE *file, const float *image)
{
	if (fwrite(image, sizeof(*image), cells, file) != cells)
		err(1, "%s", folder);
}

static void finish(FILE *file)
{
	if (fclose(file) != 0)
		err(1, "%s", folder);
}

static double motion(const float *before, const float *after)
{
	size_t moved = 0;

	for (size_t i = 0; i < cells; i++)
		moved += fabsf(after[i] - before[i]) > MOTION;
	return (double)moved / (double)cells;
}

static void write_run(struct reaction *r, float *image, unsigned long count)
{
	FILE *file = create("run");

	for (unsigned long i = 1, written = 0; i <= RUN; i++) {
		reaction_step(r, STEPS);
		if (i * count / RUN == written)
			continue;
		written++;
		reaction_copy_v(r, image);
		put(file, image);
	}
	finish(file);
}

static void write_state(const struct reaction *r, float *image)
{
	FILE *file = create("state");

	reaction_copy_u(r, image);
	put(file, image);
	reaction_copy_v(r, image);
	put(file, image);
	finish(file);
}

/* The share that moves, of all images together. */
static double write_active(struct reaction *r, float *images[2], unsigned long count)
{
	FILE *file = create("active");
	double moving = 0;

	reaction_copy_v(r, images[0]);
	for (unsigned long i = 0; i < count; i++) {
		reaction_step(r, STEPS);
		reaction_copy_v(r, images[(i + 1) % 2]);
		moving += motion(images[i % 2], images[(i + 1) % 2]);
		put(file, images[(i + 1) % 2]);
	}
	finish(file);
	return moving / (double)count;
}

int main(int argc, char **argv)
{
	struct reaction_options o = REACTION_OPTIONS_INIT;
	struct parallel *parallel;
	struct reaction *r;
	unsigned long count;
	float *images[2];

	if (argc != 5)
		errx(2, "usage: bench_writer_frames FOLDER ROWS COLUMNS COUNT");
	folder = argv[1];
	o.rows = strtoul(argv[2], NULL, 10);
	o.columns = strtoul(argv[3], NULL, 10);
	count = strtoul(argv[4], NULL, 10);
	cells = o.rows * o.columns;
	images[0] = calloc(cells, sizeof(float));
	images[1] = calloc(cells, sizeof(float));
	if (!cells || !count || !images[0] || !images[1] || parallel_new(0, &parallel) != 0 ||
	    reaction_new(&o, parallel, &r) != 0)
		errx(1, "no frames of %zu x %zu, or no memory", o.rows, o.columns);
	write_run(r, images[0], count);
	reaction_step(r, STEPS * (ACTIVE - RUN));
	write_state(r, images[0]);
	printf("{\"count\": %lu, \"moving\": %.3f}\n", count, write_active(r, images, count));
	reaction_free(r);
	parallel_free(parallel);
	free(images[0]);
	free(images[1]);
	return 0;
}
