/* SPDX-License-Identifier: Apache-2.0 */
/*
 * usage: bench_writer                  what there is: {"hdf5": version, "codecs": [...]}
 *        bench_writer OPTION=VALUE...
 *   sink=hdf5|course|sluice|nothing   how frames are stored, see writer_bench.h
 *   rows= columns= frames=            how large, and how many are stored
 *   from=FILE            frames to store, raw, again from the first one after the last; in memory before
 *                        the time starts
 *   state=FILE steps=N   or: go on with a simulation from there, a frame every N steps
 *   output=FILE sync=1   where; with fdatasync at the end
 *   codec= level= chunk_rows= chunk_columns= chunk_frames= cache= grows=1 threads= depth= stats=1   see writer_bench.h
 *   fill=1               acquire, copy, submit instead of push
 *   ready=1              frames are acquired and filled before the time starts, and then submitted again and
 *                        again, depth of them at a time: as of a caller that needs no time for them
 *   compute=SECONDS      with fill: processor time of the caller for each frame, the copy included
 *   pause=SECONDS        of sleep before each frame, which is in no figure but "seconds"
 *   lock=1               another thread calls HDF5 meanwhile, see writer_lock.c
 *   cores=N              of all that the process may use
 *   apart=1              the caller has one of these for itself, and storage the others
 */
#include "writer_bench.h"

#include <err.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

struct bench_options options = {.sink = {.codec = "none"}, .kind = "hdf5"};
struct bench_found found;

static void report(void)
{
	struct stat s = {0};

	if (strcmp(options.kind, sink_nothing.name) != 0 && stat(options.sink.path, &s) < 0)
		err(1, "%s", options.sink.path);
	printf("{\"bytes\": %zu, \"seconds\": %.6f, \"cpu_seconds\": %.6f, \"stored\": %lld, "
	       "\"calls\": %.6f, \"longest\": %.6f, \"filling\": %.6f, \"others\": %.6f, "
	       "\"frames\": %llu, \"lock_longest\": %.6f, \"lock_p99\": %.6f}\n",
	       options.sink.frames * frame_cells() * sizeof(float), found.seconds, found.cpu,
	       (long long)s.st_size, found.calls, found.longest, found.filling,
	       found.busy > found.cpu ? found.busy - found.cpu : 0,
	       (unsigned long long)options.sink.frames, found.lock_longest, found.lock_p99);
}

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
	else if (!strcmp(name, "fill"))
		options.fill = (int)number(name, value);
	else
		errx(2, "there is no option '%s'", name);
}

static int print_what_there_is(void)
{
	printf("{\"hdf5\": \"%s\", \"codecs\": [", hdf5_version());
	sluice_print_codecs();
	printf("]}\n");
	return 0;
}

int main(int argc, char **argv)
{
	const struct sink_ops *kinds[] = {&sink_hdf5, &sink_course, &sink_sluice, &sink_nothing};
	const struct sink_ops *ops = NULL;

	if (argc == 1)
		return print_what_there_is();
	for (int i = 1; i < argc; i++) {
		char *value = strchr(argv[i], '=');

		if (!value)
			errx(2, "'%s' is no OPTION=VALUE", argv[i]);
		*value++ = '\0';
		if (!set_word(argv[i], value))
			set_number(argv[i], value);
	}
	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
		if (!strcmp(options.kind, kinds[i]->name))
			ops = kinds[i];
	if (!ops || !frame_cells() || (!options.from && !options.state) ||
	    (ops != &sink_nothing && !options.sink.path) || (options.state && !options.fill))
		errx(2, "sink, rows, columns, from or state, and output are needed; state with "
		        "fill=1");
	source_open();
	bench_run(ops);
	report();
	return 0;
}
