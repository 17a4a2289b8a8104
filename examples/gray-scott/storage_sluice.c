/* SPDX-License-Identifier: Apache-2.0 */
/* Storage by sluice's frame writer. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ranks.h"
#include "storage.h"

enum { ATTRIBUTES_MOST = 16 };

struct storage {
	sluice_context *context;
	sluice_writer *writer;
	sluice_series *series;
	struct storage_totals totals;
	int failed; /* the first error */
	char message[512];
};

/* The sentence stays when the writer is gone. */
static int note(struct storage *s, int rc)
{
	if (rc < 0 && !s->failed) {
		s->failed = rc;
		snprintf(s->message, sizeof s->message, "%s", sluice_last_message());
	}
	return rc;
}

static void append(char *text, size_t size, const char *name)
{
	size_t length = strlen(text);

	snprintf(text + length, size - length, length ? ", %s" : "has %s", name);
}

/* Several libraries may be behind one name, each for some of its levels; they follow each other. */
static bool writer_knows(const char *name, int level, char *why, size_t size)
{
	struct sluice_codec codec = {.size = sizeof codec};
	const char *missing = NULL;
	char last[32] = "";
	int most = -1;

	why[0] = '\0';
	for (size_t i = 0; sluice_codec_describe(i, &codec) == 0; i++) {
		bool same = !strcmp(codec.name, name);

		if (same && codec.missing)
			missing = codec.missing;
		if (codec.missing)
			continue;
		if (same && (level == 0 || (level >= codec.least && level <= codec.most)))
			return true;
		if (same)
			most = codec.most;
		if (strcmp(codec.name, last))
			append(why, size, codec.name);
		snprintf(last, sizeof last, "%s", codec.name);
	}
	if (most == 0)
		snprintf(why, size, "has no levels of %s", name);
	else if (most > 0)
		snprintf(why, size, "has %s:1 to %s:%d", name, name, most);
	else if (missing)
		snprintf(why, size, "has no %s: %s", name, missing);
	return false;
}

static int add_series(struct storage *s, const struct storage_options *o)
{
	struct sluice_series_options series = SLUICE_SERIES_OPTIONS_INIT;
	struct sluice_block block = {.start = {o->first}, .count = {o->rows, o->columns}};
	struct sluice_attribute attributes[ATTRIBUTES_MOST] = {0};
	size_t count = 0;

	for (; o->names[count] && count < ATTRIBUTES_MOST; count++)
		attributes[count] = (struct sluice_attribute){
			.name = o->names[count], .numbers = &o->values[count], .count = 1};
	series.type = SLUICE_FLOAT32;
	series.rank = 2;
	series.shape[0] = o->whole;
	series.shape[1] = o->columns;
	series.codec = o->codec;
	series.level = o->level;
	series.depth = o->waiting + 1;
	series.attributes = attributes;
	series.attribute_count = count;
	return ranks_add_series(s->writer, STORAGE_DATASET, &series, &block, &s->series);
}

static int writer_open(const struct storage_options *options, struct storage **out)
{
	struct sluice_writer_options writer = SLUICE_WRITER_OPTIONS_INIT;
	struct storage *s = calloc(1, sizeof *s);
	int rc;

	*out = s;
	if (!s)
		return -ENOMEM;
	writer.flags = SLUICE_WRITER_REPLACE | SLUICE_WRITER_ONLY_HDF5;
	/* Each image stays in the file once it is there, whatever happens to the disk or to us. */
	writer.checkpoint_frames = 1;
	/* Without this a run on a full disk would wait for ten minutes until somebody makes room. */
	writer.full_disk_ms = 0;
	rc = sluice_context_new(NULL, &s->context);
	if (!rc)
		rc = ranks_open_writer(s->context, options->path, &writer, &s->writer);
	if (!rc)
		rc = add_series(s, options);
	return note(s, rc);
}

static int writer_acquire(struct storage *s, float **frame)
{
	void *memory;
	int rc = note(s, sluice_series_acquire(s->series, -1, &memory));

	if (!rc)
		*frame = memory;
	return rc;
}

static int writer_submit(struct storage *s, float *frame)
{
	return note(s, sluice_series_submit(s->series, frame, NULL));
}

static int writer_close(struct storage *s)
{
	struct sluice_writer_counts stats = {.size = sizeof stats};

	if (s->series) {
		note(s, sluice_writer_flush(s->writer, -1));
		if (sluice_series_stats(s->series, &stats) == 0)
			s->totals = (struct storage_totals){.frames = stats.visible,
			                                    .bytes = stats.stored_bytes};
	}
	/* A file without its dataset is of no use to anybody. */
	if (s->series)
		note(s, sluice_writer_close(s->writer, -1));
	else
		sluice_writer_discard(s->writer);
	/* The file was deleted. */
	if (s->failed == -ESTALE)
		s->totals.frames = 0;
	s->writer = NULL;
	s->series = NULL;
	if (!sluice_context_close(s->context))
		s->context = NULL;
	return s->failed;
}

static struct storage_totals writer_totals(const struct storage *s)
{
	return s->totals;
}

static const char *writer_message(const struct storage *s)
{
	return s ? s->message : "out of memory";
}

static void writer_free(struct storage *s)
{
	free(s);
}

static const struct storage_calls writer_calls = {
	.knows = writer_knows,
	.acquire = writer_acquire,
	.submit = writer_submit,
	.close = writer_close,
	.totals = writer_totals,
	.message = writer_message,
	.free = writer_free,
};

const struct storage_kind storage_sluice = {"sluice", "deflate", writer_open, &writer_calls};
