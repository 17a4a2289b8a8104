/* SPDX-License-Identifier: Apache-2.0 */
/* Makes pictures of the images in an HDF5 file, and an animation of them; or of those in the store. */
#include <err.h>
#include <errno.h>
#include <locale.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "animation.h"
#include "frames.h"
#include "parallel.h"
#include "picture.h"
#include "progress.h"
#include "range.h"
#include "render_live.h"
#include "render_options.h"
#include "shrink.h"
#include "still.h"

#define ANIMATION "animation.png"

/* Images that the range of values is taken from. */
enum { SAMPLES = 32 };

/* A thread's own. */
struct desk {
	float *image, *small;
	uint8_t *pixels;
};

struct render {
	struct render_options options;
	struct frames frames;
	unsigned count; /* images that are wanted */
	struct parallel *parallel;
	struct desk *desks;
	struct colour colours[COLOURS];
	struct scale scale;
	size_t rows, columns; /* of the animation; 0: there is none */
	struct png *animation;
	struct progress progress; /* the first thread's */
	float lows[SAMPLES], highs[SAMPLES];

	pthread_mutex_t mutex;
	struct {
		unsigned done;
		bool failed;
		char why[512];
	} locked; /* guarded by mutex */
};

static uint64_t wanted(const struct render *r, uint64_t i)
{
	return r->options.last ? r->frames.count - 1 : i * r->options.every;
}

static bool failed(struct render *r, const char *why)
{
	bool failed;

	pthread_mutex_lock(&r->mutex);
	if (why && !r->locked.failed) {
		r->locked.failed = true;
		snprintf(r->locked.why, sizeof r->locked.why, "%s", why);
	}
	failed = r->locked.failed;
	pthread_mutex_unlock(&r->mutex);
	return failed;
}

static unsigned sample_count(const struct render *r)
{
	return r->count < SAMPLES ? r->count : SAMPLES;
}

static void scan(unsigned index, unsigned worker, void *argument)
{
	struct render *r = argument;
	unsigned samples = sample_count(r);
	uint64_t at = samples > 1 ? (r->count - 1) * (uint64_t)index / (samples - 1) : 0;
	float *image = r->desks[worker].image;
	char why[400];

	if (failed(r, NULL))
		return;
	if (frames_read(&r->frames, wanted(r, at), image, why, sizeof why)) {
		failed(r, why);
		return;
	}
	range_of(image, r->frames.rows * r->frames.columns, &r->lows[index], &r->highs[index]);
}

static int draw_image(struct render *r, const struct desk *desk, uint64_t frame, char *why,
                      size_t size)
{
	const struct still still = {r->options.directory, r->options.dataset, frame,
	                            r->frames.rows,       r->frames.columns,  desk->image,
	                            desk->pixels};

	return still_write(&still, &r->scale, r->colours, why, size, NULL);
}

static int draw_small(struct render *r, const struct desk *desk, unsigned index, char *why,
                      size_t size)
{
	shrink(desk->image, r->frames.rows, r->frames.columns, desk->small, r->rows, r->columns);
	colours_map(&r->scale, desk->small, r->rows * r->columns, desk->pixels);
	return picture_encode(&(struct picture){r->rows, r->columns, desk->pixels, r->colours},
	                      &r->animation[index], why, size);
}

static void draw(unsigned index, unsigned worker, void *argument)
{
	struct render *r = argument;
	const struct desk *desk = &r->desks[worker];
	unsigned done;
	char why[400];
	int rc;

	if (failed(r, NULL))
		return;
	rc = frames_read(&r->frames, wanted(r, index), desk->image, why, sizeof why);
	if (!rc && r->options.images)
		rc = draw_image(r, desk, wanted(r, index), why, sizeof why);
	if (!rc && r->rows)
		rc = draw_small(r, desk, index, why, sizeof why);
	if (rc)
		failed(r, why);
	pthread_mutex_lock(&r->mutex);
	done = ++r->locked.done;
	pthread_mutex_unlock(&r->mutex);
	if (worker == 0)
		progress_update(&r->progress, done);
}

static void write_animation(struct render *r)
{
	char *path;
	FILE *file;
	long size;

	if (asprintf(&path, "%s/" ANIMATION, r->options.directory) < 0)
		errx(1, "out of memory");
	file = fopen(path, "we");
	if (!file || animation_write(r->animation, r->count, r->options.hundredths, file) ||
	    (size = ftell(file)) < 0 || fclose(file))
		err(1, "'%s'", path);
	printf("%s: %u images of %zu x %zu, %.1f MB\n", path, r->count, r->rows, r->columns,
	       (double)size / 1e6);
	free(path);
}

static void *allocate(size_t count, size_t size)
{
	void *memory = calloc(count, size);

	if (!memory)
		errx(1, "out of memory");
	return memory;
}

static void prepare(struct render *r)
{
	const struct render_options *o = &r->options;
	uint64_t count;
	char why[400];
	int rc;

	if (frames_open(&r->frames, o->path, o->dataset, why, sizeof why))
		errx(1, "'%s': %s", o->path, why);
	count = o->last ? 1 : (r->frames.count - 1) / o->every + 1;
	if (count > 1000000)
		errx(1, "'%s' has %llu images; --every takes fewer", o->path,
		     (unsigned long long)r->frames.count);
	r->count = (unsigned)count;
	if (o->animation && r->count > 1) {
		r->columns = r->frames.columns < o->width ? r->frames.columns : o->width;
		r->rows = (r->frames.rows * r->columns + r->frames.columns / 2) / r->frames.columns;
		r->rows = r->rows ? r->rows : 1;
		r->animation = allocate(r->count, sizeof *r->animation);
	}
	rc = parallel_new(0, &r->parallel);
	if (rc)
		errx(1, "threads: %s", strerror(-rc));
	r->desks = allocate(parallel_threads(r->parallel), sizeof *r->desks);
	for (unsigned i = 0; i < parallel_threads(r->parallel); i++) {
		size_t pixels = r->frames.rows * r->frames.columns;

		r->desks[i] = (struct desk){.image = allocate(pixels, sizeof(float)),
		                            .small = allocate(pixels, sizeof(float)),
		                            .pixels = allocate(pixels, 1)};
	}
	colours_fill(r->colours);
	pthread_mutex_init(&r->mutex, NULL);
}

static int compare(const void *a, const void *b)
{
	float x = *(const float *)a, y = *(const float *)b;

	return (x > y) - (x < y);
}

/* The peaks of most images; a few of all, as the first may be, have higher ones. */
static void find_range(struct render *r)
{
	float low = r->options.low, high = r->options.high;

	if (low >= high) {
		unsigned samples = sample_count(r);

		parallel_run(r->parallel, samples, scan, r);
		qsort(r->lows, samples, sizeof *r->lows, compare);
		qsort(r->highs, samples, sizeof *r->highs, compare);
		low = r->lows[0];
		high = r->highs[samples * 3 / 4];
	}
	scale_fill(&r->scale, low, high, r->options.gamma);
}

static void stop(struct render *r)
{
	for (unsigned i = 0; i < parallel_threads(r->parallel); i++) {
		free(r->desks[i].image);
		free(r->desks[i].small);
		free(r->desks[i].pixels);
	}
	for (unsigned i = 0; r->animation && i < r->count; i++)
		free(r->animation[i].data);
	free(r->animation);
	free(r->desks);
	parallel_free(r->parallel);
	frames_close(&r->frames);
	pthread_mutex_destroy(&r->mutex);
}

int main(int argc, char **argv)
{
	struct render r = {0};

	setlocale(LC_CTYPE, "");
	render_options_parse(argc, argv, &r.options);
	if (mkdir(r.options.directory, 0777) && errno != EEXIST)
		err(1, "'%s'", r.options.directory);
	if (r.options.store) {
		render_live(&r.options);
		return 0;
	}
	prepare(&r);
	find_range(&r);
	progress_start(&r.progress, r.options.directory, r.count);
	parallel_run(r.parallel, r.count, draw, &r);
	progress_end(&r.progress);
	if (failed(&r, NULL))
		errx(1, "'%s': %s", r.options.path, r.locked.why);
	printf("%s: %u images%s, colours for %g to %g\n", r.options.directory, r.count,
	       r.options.images ? "" : " in the animation only", (double)r.scale.low,
	       (double)r.scale.high);
	if (r.rows)
		write_animation(&r);
	stop(&r);
	return 0;
}
