/* SPDX-License-Identifier: Apache-2.0 */
/* The frame writer with its defaults, but for what the options say. */
#include "writer_bench.h"

#include <err.h>
#include <stdio.h>
#include <stdlib.h>

#include <sluice/writer.h>

struct sluice {
	sluice_context *context;
	sluice_writer *writer;
	sluice_series *series;
	int stats;
};

#define CHECK(call)                                                      \
	do {                                                             \
		if ((call) < 0)                                          \
			errx(1, "%s: %s", #call, sluice_last_message()); \
	} while (0)

void sluice_print_codecs(void)
{
	struct sluice_codec codec = {.size = sizeof(codec)};
	const char *comma = "";

	for (size_t i = 0; sluice_codec_describe(i, &codec) == 0; i++)
		if (!codec.missing) {
			printf("%s\"%s\"", comma, codec.name);
			comma = ", ";
		}
}

static void *sluice_sink_open(const struct sink_options *o)
{
	struct sluice_writer_options file = SLUICE_WRITER_OPTIONS_INIT;
	struct sluice_series_options series = SLUICE_SERIES_OPTIONS_INIT;
	struct sluice *s = calloc(1, sizeof(*s));

	if (!s)
		err(1, "memory");
	s->stats = o->stats;
	file.threads = o->threads;
	series.type = SLUICE_FLOAT32;
	series.rank = 2;
	series.shape[0] = o->shared ? o->whole : o->rows;
	series.shape[1] = o->columns;
	series.chunk[0] = o->chunk_rows;
	series.chunk[1] = o->chunk_columns;
	series.chunk_frames = o->chunk_frames;
	series.frames = o->grows ? 0 : o->frames;
	series.depth = o->depth;
	series.codec = o->codec;
	series.level = o->level;
	CHECK(sluice_context_new(NULL, &s->context));
	if (o->shared) {
		CHECK(o->shared->open(s->context, o->path, &file, &s->writer));
		CHECK(o->shared->add(s->writer, o, &series, &s->series));
	} else {
		CHECK(sluice_writer_open(s->context, o->path, &file, &s->writer));
		CHECK(sluice_series_add(s->writer, DATASET, &series, &s->series));
	}
	return s;
}

static float *sluice_sink_acquire(void *sink)
{
	struct sluice *s = sink;
	void *frame;

	CHECK(sluice_series_acquire(s->series, -1, &frame));
	return frame;
}

static void sluice_sink_submit(void *sink, float *frame)
{
	struct sluice *s = sink;

	CHECK(sluice_series_submit(s->series, frame, NULL));
}

static void sluice_sink_push(void *sink, const float *frame)
{
	struct sluice *s = sink;

	CHECK(sluice_series_push(s->series, frame, NULL, -1));
}

static void print_stage(const char *name, const struct sluice_stage *stage)
{
	fprintf(stderr, "%s: %.0f ms, %.0f MB/s\n", name, (double)stage->busy_ns / 1e6,
	        (double)stage->bytes * 1e3 / (double)(stage->busy_ns ? stage->busy_ns : 1));
}

static void print_stats(struct sluice *s)
{
	struct sluice_writer_counts stats = {.size = sizeof(stats)};

	CHECK(sluice_series_stats(s->series, &stats));
	print_stage("copy", &stats.copy);
	print_stage("compress", &stats.compress);
	print_stage("store", &stats.store);
	print_stage("flush", &stats.flush);
	fprintf(stderr, "waited %.0f ms, %.1f at most; queued %llu at most\n",
	        (double)stats.waited_ns / 1e6, (double)stats.waited_most_ns / 1e6,
	        (unsigned long long)stats.queued_most);
}

static void sluice_sink_close(void *sink)
{
	struct sluice *s = sink;

	if (s->stats)
		print_stats(s);
	CHECK(sluice_writer_close(s->writer, -1));
	CHECK(sluice_context_close(s->context));
	free(s);
}

const struct sink_ops sink_sluice = {"sluice",           sluice_sink_open, sluice_sink_acquire,
                                     sluice_sink_submit, sluice_sink_push, sluice_sink_close};
