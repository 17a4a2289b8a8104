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
#include <string.h>
#include <sys/stat.h>

static void report(void)
{
	struct stat s = {0};

	if (strcmp(options.kind, sink_nothing.name) != 0 && stat(options.sink.path, &s) < 0)
		err(1, "%s", options.sink.path);
	bench_print((double)s.st_size);
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
	void *sink;

	if (argc == 1)
		return print_what_there_is();
	for (int i = 1; i < argc; i++)
		options_set(argv[i]);
	options.sink.whole = options.sink.rows;
	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
		if (!strcmp(options.kind, kinds[i]->name))
			ops = kinds[i];
	if (!ops || !frame_cells() || (!options.from && !options.state) ||
	    (ops != &sink_nothing && !options.sink.path) || (options.state && !options.fill))
		errx(2, "sink, rows, columns, from or state, and output are needed; state with "
		        "fill=1");
	source_open();
	sink = bench_begin(ops);
	if (options.lock)
		lock_start();
	bench_run(ops, sink);
	if (options.lock)
		lock_stop();
	report();
	return 0;
}
