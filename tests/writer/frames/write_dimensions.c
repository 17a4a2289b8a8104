/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For xarray_test.py: files with named dimensions. write_dimensions new PATH, or late PATH: what has names is added
 * when the file has its own already; killed PATH: the process ends behind a flush; append PATH: goes on with new;
 * bits PATH: a series of bitshuffle-lz4.
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <sluice/writer.h>

enum { ROWS = 3, COLUMNS = 5, FRAMES = 4, BITS = 3001 };

static void check(int rc)
{
	if (!rc)
		return;
	fprintf(stderr, "%d: %s\n", rc, sluice_last_message());
	exit(1);
}

/* Refused, with a sentence that has the words; the writer goes on. */
static void check_refused(int rc, const char *words)
{
	if (rc < 0 && strstr(sluice_last_message(), words))
		return;
	fprintf(stderr, "%d: '%s' has no '%s'\n", rc, sluice_last_message(), words);
	exit(1);
}

static const char *const names[] = {"time", "y", "x"}, *const scalars[] = {"time", "step"};
static const double x[COLUMNS] = {0, 0.25, 0.5, 0.75, 1};

static struct sluice_series_options field(const char *const *dimensions, size_t scalar_count)
{
	struct sluice_series_options o = SLUICE_SERIES_OPTIONS_INIT;

	o.type = SLUICE_FLOAT32;
	o.rank = 2;
	o.shape[0] = ROWS;
	o.shape[1] = COLUMNS;
	o.dimensions = dimensions;
	o.scalars = scalars;
	o.scalar_count = scalar_count;
	return o;
}

static void put(sluice_series *s, uint64_t from, uint64_t to)
{
	for (uint64_t k = from; k < to; k++) {
		double numbers[] = {0.5 * k, 10.0 * k};
		float frame[ROWS * COLUMNS];

		for (int i = 0; i < ROWS * COLUMNS; i++)
			frame[i] = (float)(k * ROWS * COLUMNS + i);
		check(sluice_series_push(s, frame, numbers, -1));
	}
}

static void add_coordinate(sluice_writer *w)
{
	static const struct sluice_attribute units = {.name = "units", .text = "m"};

	check(sluice_writer_add_coordinate(w, "x", SLUICE_FLOAT64, COLUMNS, x, &units, 1));
}

static void refuse(sluice_writer *w)
{
	static const char *const twice[] = {"time", "x", "x"}, *const turned[] = {"time", "x", "y"};
	static const char *const slash[] = {"time", "a/b", "x"}, *const own[] = {"w", "y", "x"};
	static const char *const series[] = {"time", "y", "u"};
	struct sluice_series_options o = field(twice, 0);
	sluice_series *s;

	check_refused(sluice_series_add(w, "w", &o, &s), "'x' comes twice");
	o.dimensions = slash;
	check_refused(sluice_series_add(w, "w", &o, &s), "dimension needs a name");
	o.dimensions = turned;
	check_refused(sluice_series_add(w, "w", &o, &s), "'/x' has a length of 5");
	o.dimensions = own;
	check_refused(sluice_series_add(w, "w", &o, &s), "its own name");
	o.dimensions = series;
	check_refused(sluice_series_add(w, "w", &o, &s),
	              "'/u' is in the file, and is no dimension");
	check_refused(sluice_writer_add_coordinate(w, "x", SLUICE_FLOAT64, 4, x, NULL, 0),
	              "'/x' is");
	check_refused(sluice_writer_add_coordinate(w, "y", SLUICE_FLOAT64, ROWS, x, NULL, 0),
	              "'/y' is");
	check_refused(sluice_writer_add_coordinate(w, "z", SLUICE_FLOAT64, 0, x, NULL, 0),
	              "0 values");
}

static void write_all(sluice_writer *w, const char *how)
{
	struct sluice_series_options o = field(names, 2);
	bool append = !strcmp(how, "append");
	sluice_series *u, *v;

	if (!strcmp(how, "late"))
		check(sluice_writer_flush(w, -1));
	if (append) {
		static const char *const other[] = {"time", "z", "x"};

		o.dimensions = other;
		check_refused(sluice_series_add(w, "u", &o, &u), "dimension 1 of '/u' is not '/z'");
		o.dimensions = names;
	}
	add_coordinate(w);
	check(sluice_series_add(w, "u", &o, &u));
	o.scalar_count = 0;
	check(sluice_series_add(w, "v", &o, &v));
	put(u, append ? FRAMES : 0, append ? 2 * FRAMES : FRAMES);
	put(v, append ? FRAMES : 0, append ? 2 * FRAMES : FRAMES);
	add_coordinate(w);
	refuse(w);
}

static void write_bits(sluice_writer *w)
{
	struct sluice_series_options o = SLUICE_SERIES_OPTIONS_INIT;
	static int16_t frame[BITS];
	sluice_series *s;

	o.type = SLUICE_INT16;
	o.rank = 1;
	o.shape[0] = o.chunk[0] = BITS;
	o.codec = "bitshuffle-lz4";
	o.shuffle = SLUICE_SHUFFLE_BYTE;
	check_refused(sluice_series_add(w, "u", &o, &s), "no use for a shuffle");
	o.shuffle = SLUICE_SHUFFLE_DEFAULT;
	check(sluice_series_add(w, "u", &o, &s));
	for (int i = 0; i < BITS; i++)
		frame[i] = (int16_t)(1000 + i % 7);
	for (int k = 0; k < 2; k++)
		check(sluice_series_push(s, frame, NULL, -1));
}

int main(int argc, char **argv)
{
	struct sluice_writer_options o = SLUICE_WRITER_OPTIONS_INIT;
	sluice_context *ctx;
	sluice_writer *w;

	if (argc != 3)
		return 2;
	o.flags = strcmp(argv[1], "append") ? 0 : SLUICE_WRITER_APPEND;
	check(sluice_context_new(NULL, &ctx));
	check(sluice_writer_open(ctx, argv[2], &o, &w));
	if (strcmp(argv[1], "bits"))
		write_all(w, argv[1]);
	else
		write_bits(w);
	check(sluice_writer_flush(w, -1));
	if (!strcmp(argv[1], "killed"))
		_exit(0);
	check(sluice_writer_close(w, -1));
	sluice_context_close(ctx);
	return 0;
}
