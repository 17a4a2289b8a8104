/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes frames of a travelling wave to an HDF5 file, in the background, with the time of each of them.
 *
 *     write_frames FILE [CODEC]
 *     h5dump -H FILE
 */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <sluice/writer.h>

enum { ROWS = 480, COLUMNS = 640, FRAMES = 100 };

static void check(const char *what, int rc)
{
	if (rc >= 0)
		return;
	fprintf(stderr, "write_frames: %s: %s\n", what, sluice_last_message());
	exit(1);
}

static void compute(float *frame, double time)
{
	for (int row = 0; row < ROWS; row++)
		for (int column = 0; column < COLUMNS; column++)
			frame[row * COLUMNS + column] = sinf(0.05f * (float)column - (float)time) *
			                                cosf(0.03f * (float)row);
}

static void add_series(sluice_writer *writer, const char *codec, sluice_series **out)
{
	static const char *const scalars[] = {"time", "step"};
	static const double speed[] = {1.0};
	static const struct sluice_attribute attributes[] = {
		{.name = "title", .text = "a travelling wave"},
		{.name = "speed", .numbers = speed, .count = 1},
	};
	struct sluice_series_options o = SLUICE_SERIES_OPTIONS_INIT;

	o.type = SLUICE_FLOAT32;
	o.rank = 2;
	o.shape[0] = ROWS;
	o.shape[1] = COLUMNS;
	o.codec = codec;
	o.scalars = scalars;
	o.scalar_count = 2;
	o.attributes = attributes;
	o.attribute_count = 2;
	check("adding the dataset", sluice_series_add(writer, "wave/height", &o, out));
}

int main(int argc, char **argv)
{
	struct sluice_writer_options o = SLUICE_WRITER_OPTIONS_INIT;
	struct sluice_writer_counts stats = {sizeof(stats)};
	sluice_context *ctx;
	sluice_writer *writer;
	sluice_series *height;

	if (argc < 2 || argc > 3) {
		fprintf(stderr, "usage: write_frames FILE [CODEC]\n");
		return 2;
	}
	check("the context", sluice_context_new(NULL, &ctx));
	o.flags = SLUICE_WRITER_REPLACE;
	check("opening", sluice_writer_open(ctx, argv[1], &o, &writer));
	add_series(writer, argc > 2 ? argv[2] : NULL, &height);
	for (int step = 0; step < FRAMES; step++) {
		double scalars[] = {0.1 * step, step};
		void *frame;

		check("a frame", sluice_series_acquire(height, -1, &frame));
		compute(frame, scalars[0]);
		check("a frame", sluice_series_submit(height, frame, scalars));
	}
	check("flushing", sluice_writer_flush(writer, -1));
	check("statistics", sluice_writer_stats(writer, &stats));
	printf("%d frames, %.1f MB in %.1f MB, waited %.1f ms\n", FRAMES,
	       (double)stats.raw_bytes / 1e6, (double)stats.stored_bytes / 1e6,
	       (double)stats.waited_ns / 1e6);
	check("closing", sluice_writer_close(writer, -1));
	check("the context", sluice_context_close(ctx));
	return 0;
}
