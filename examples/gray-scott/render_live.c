/* SPDX-License-Identifier: Apache-2.0 */
#include <err.h>
#include <stdio.h>
#include <stdlib.h>

#include "live.h"
#include "range.h"
#include "render_live.h"
#include "still.h"

struct drawing {
	const struct render_options *options;
	struct colour colours[COLOURS];
	struct scale scale;
	uint8_t *pixels;
	size_t room; /* of them */
};

static void make_room(struct drawing *d, size_t pixels)
{
	if (pixels <= d->room)
		return;
	free(d->pixels);
	d->pixels = malloc(pixels);
	if (!d->pixels)
		errx(1, "out of memory");
	d->room = pixels;
}

static void draw(struct drawing *d, const struct live_image *image)
{
	const struct render_options *o = d->options;
	struct still still = {o->directory,   o->store,      image->number, image->rows,
	                      image->columns, image->values, NULL};
	float low, high;
	char why[400], *path;

	if (!(o->low < o->high)) {
		range_of(image->values, image->rows * image->columns, &low, &high);
		scale_fill(&d->scale, low, high, o->gamma);
	}
	make_room(d, image->rows * image->columns);
	still.pixels = d->pixels;
	if (still_write(&still, &d->scale, d->colours, why, sizeof why, &path))
		errx(1, "%s", why);
	printf("%s%s\n", path, image->running ? ", while the next one is computed" : "");
	fflush(stdout);
	free(path);
}

void render_live(const struct render_options *o)
{
	struct drawing *d = calloc(1, sizeof *d);
	struct live live;
	struct live_image image;
	unsigned count = 0, meanwhile = 0;
	char why[512];
	int rc;

	if (!d)
		errx(1, "out of memory");
	d->options = o;
	colours_fill(d->colours);
	scale_fill(&d->scale, o->low, o->high, o->gamma);
	if (live_open(&live, o->store, (int)o->wait_seconds * 1000, why, sizeof why))
		errx(1, "'%s': %s", o->store, why);
	while ((rc = live_next(&live, &image, why, sizeof why)) > 0) {
		draw(d, &image);
		meanwhile += image.running;
		live_release(&image);
		count++;
	}
	live_close(&live);
	if (rc)
		errx(1, "'%s': %s", o->store, why);
	printf("%s: %u images from the store, %u of them while others were computed\n",
	       o->directory, count, meanwhile);
	free(d->pixels);
	free(d);
}
