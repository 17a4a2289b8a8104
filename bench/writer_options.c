/* SPDX-License-Identifier: Apache-2.0 */
/* The options of bench_writer, which the head of writer_main.c lists, and of bench_mpi. */
#include "writer_bench.h"

#include <err.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct bench_options options = {.sink = {.codec = "none"}, .kind = "hdf5"};
struct bench_found found;

static unsigned long number(const char *name, const char *text)
{
	char *end;
	unsigned long n = strtoul(text, &end, 10);

	if (end == text || *end)
		errx(2, "%s=%s is no number", name, text);
	return n;
}

static int set_word(const char *name, const char *value)
{
	struct {
		const char *name, **to;
	} words[] = {
		{"sink", &options.kind},        {"from", &options.from},
		{"state", &options.state},      {"output", &options.sink.path},
		{"codec", &options.sink.codec},
	};

	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
		if (!strcmp(name, words[i].name)) {
			*words[i].to = value;
			return 1;
		}
	return 0;
}

static void set_number(const char *name, const char *value)
{
	struct sink_options *s = &options.sink;

	if (!strcmp(name, "compute"))
		options.compute = strtod(value, NULL);
	else if (!strcmp(name, "pause"))
		options.pause = strtod(value, NULL);
	else if (!strcmp(name, "rows"))
		s->rows = number(name, value);
	else if (!strcmp(name, "columns"))
		s->columns = number(name, value);
	else if (!strcmp(name, "chunk_rows"))
		s->chunk_rows = number(name, value);
	else if (!strcmp(name, "chunk_columns"))
		s->chunk_columns = number(name, value);
	else if (!strcmp(name, "chunk_frames"))
		s->chunk_frames = number(name, value);
	else if (!strcmp(name, "cache"))
		s->cache = number(name, value);
	else if (!strcmp(name, "frames"))
		s->frames = number(name, value);
	else if (!strcmp(name, "threads"))
		s->threads = number(name, value);
	else if (!strcmp(name, "depth"))
		s->depth = (unsigned)number(name, value);
	else if (!strcmp(name, "level"))
		s->level = (int)number(name, value);
	else if (!strcmp(name, "grows"))
		s->grows = (int)number(name, value);
	else if (!strcmp(name, "stats"))
		s->stats = (int)number(name, value);
	else if (!strcmp(name, "steps"))
		options.steps = (unsigned)number(name, value);
	else if (!strcmp(name, "cores"))
		options.cores = (unsigned)number(name, value);
	else if (!strcmp(name, "sync"))
		options.sync = (int)number(name, value);
	else if (!strcmp(name, "apart"))
		options.apart = (int)number(name, value);
	else if (!strcmp(name, "ready"))
		options.ready = (int)number(name, value);
	else if (!strcmp(name, "lock"))
		options.lock = (int)number(name, value);
	else if (!strcmp(name, "collective"))
		s->collective = (int)number(name, value);
	else if (!strcmp(name, "fill"))
		options.fill = (int)number(name, value);
	else
		errx(2, "there is no option '%s'", name);
}

void options_set(const char *argument)
{
	const char *value = strchr(argument, '=');
	char name[32];

	if (!value || value == argument)
		errx(2, "'%s' is no OPTION=VALUE", argument);
	snprintf(name, sizeof(name), "%.*s", (int)(value - argument), argument);
	if (!set_word(name, value + 1))
		set_number(name, value + 1);
}
