/* SPDX-License-Identifier: Apache-2.0 */
/*
 * write_small PATH OPTION=VALUE...: frames of ROWS x COLUMNS doubles through the public calls, for small_h5py_test.py.
 *   frames= rows= columns= codec= chunk_frames= precision= scalar=1   of the series /s
 *   flush=N       after every N frames
 *   append=1      continues; at=N: from that frame on
 *   ahead=N       N frames are acquired at a time, and submitted from the last to the first
 *   new=1         the file must be new
 *   upload=MS     of a file on a server: time between uploads; pause=MS: after each frame
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <sluice/writer.h>

static const struct {
	const char *name;
	int most;
} known[] = {{"frames", 1 << 20}, {"rows", 4096}, {"columns", 4096},  {"chunk_frames", 1 << 20},
             {"precision", 52},   {"scalar", 1},  {"flush", 1 << 20}, {"append", 1},
             {"at", 1 << 20},     {"ahead", 64},  {"new", 1},         {"upload", 1 << 20},
             {"pause", 1 << 20}};
enum {
	FRAMES,
	ROWS,
	COLUMNS,
	CHUNK,
	PRECISION,
	SCALAR,
	FLUSH,
	APPEND,
	AT,
	AHEAD,
	NEW,
	UPLOAD,
	PAUSE,
	KNOWN
};
static int values[KNOWN] = {[FRAMES] = 1, [ROWS] = 1, [COLUMNS] = 4, [AT] = -1, [AHEAD] = 1};

static void check(int rc)
{
	if (rc >= 0)
		return;
	fprintf(stderr, "%d: %s\n", rc, sluice_last_message());
	exit(1);
}

static const char *read_options(int argc, char **argv)
{
	const char *codec = NULL;

	for (int i = 2; i < argc; i++) {
		char *value = strchr(argv[i], '=');

		if (!value)
			exit(2);
		*value++ = '\0';
		if (!strcmp(argv[i], "codec"))
			codec = value;
		for (int k = 0; k < KNOWN; k++)
			if (!strcmp(argv[i], known[k].name))
				values[k] = atoi(value);
	}
	return codec;
}

/* The low digits are noise, so that it can be compressed, but not well. */
static void fill(double *frame, uint64_t number)
{
	for (int i = 0; i < values[ROWS] * values[COLUMNS]; i++)
		frame[i] = (double)number + i / 4096.0;
}

int main(int argc, char **argv)
{
	struct sluice_writer_options file = SLUICE_WRITER_OPTIONS_INIT;
	struct sluice_series_options o = SLUICE_SERIES_OPTIONS_INIT;
	struct sluice_writer_counts counts = {.size = sizeof(counts)};
	const char *codec = read_options(argc, argv), *const scalars[] = {"time"};
	sluice_context *context;
	sluice_writer *w;
	sluice_series *s;
	uint64_t first;
	void *frames[64];

	file.flags = values[APPEND] ? SLUICE_WRITER_APPEND
	             : values[NEW]  ? 0
	                            : SLUICE_WRITER_REPLACE;
	file.upload_ms = values[UPLOAD];
	file.checkpoint_ms = -1;
	o.type = SLUICE_FLOAT64;
	o.rank = 2;
	o.shape[0] = (uint64_t)values[ROWS];
	o.shape[1] = (uint64_t)values[COLUMNS];
	o.codec = codec;
	o.depth = (unsigned)values[AHEAD] + 1;
	o.chunk_frames = (uint64_t)values[CHUNK];
	o.precision = (unsigned)values[PRECISION];
	o.scalars = scalars;
	o.scalar_count = (size_t)values[SCALAR];
	if (values[AT] >= 0) {
		o.flags = SLUICE_SERIES_CONTINUE_AT;
		o.continue_at = (uint64_t)values[AT];
	}
	check(sluice_context_new(NULL, &context));
	check(sluice_writer_open(context, argv[1], &file, &w));
	check(sluice_series_add(w, "s", &o, &s));
	check(sluice_series_stats(s, &counts));
	first = counts.frames_before;
	for (int i = 0; i < values[FRAMES]; i += values[AHEAD]) {
		for (int k = 0; k < values[AHEAD]; k++)
			check(sluice_series_acquire(s, -1, &frames[k]));
		for (int k = values[AHEAD]; k--;) {
			uint64_t number = first + (uint64_t)(i + values[AHEAD] - 1 - k);
			double time = (double)number / 2;

			fill(frames[k], number);
			check(sluice_series_submit(s, frames[k], &time));
			if (values[FLUSH] && (number + 1) % (uint64_t)values[FLUSH] == 0)
				check(sluice_writer_flush(w, 10000));
			usleep(1000u * (unsigned)values[PAUSE]);
		}
	}
	check(sluice_writer_close(w, -1));
	check(sluice_context_close(context));
	return 0;
}
