/* SPDX-License-Identifier: Apache-2.0 */
/* sink=shared: one file of all ranks. sink=nodes: the same with a file for each node. sink=files: a file of each rank, PATH.0 and
 * so on, by a writer of its own. */
#include "mpi_bench.h"

#include <err.h>
#include <stdio.h>
#include <string.h>

#include <sluice/mpi.h>

static int shared_open(sluice_context *context, const char *path,
                       const struct sluice_writer_options *o, sluice_writer **out)
{
	struct sluice_writer_options all = *o;

	all.flags |= strcmp(options.kind, "nodes") ? 0 : SLUICE_WRITER_NODE_FILES;
	return sluice_writer_open_mpi(context, MPI_COMM_WORLD, path, &all, out);
}

static int shared_add(sluice_writer *writer, const struct sink_options *o,
                      const struct sluice_series_options *series, sluice_series **out)
{
	struct sluice_block block = {.start = {o->first}, .count = {o->rows, o->columns}};

	return sluice_series_add_block(writer, DATASET, series, &block, -1, out);
}

static const struct shared_writer shared = {shared_open, shared_add};

const struct sink_ops *mpi_choose(int rank, int *files)
{
	char *path;

	if (!strcmp(options.kind, "shared") || !strcmp(options.kind, "nodes")) {
		options.sink.shared = &shared;
		return &sink_sluice;
	}
	if (strcmp(options.kind, "files") != 0)
		return NULL;
	*files = 1;
	if (asprintf(&path, "%s.%d", options.sink.path, rank) < 0)
		err(1, "memory");
	options.sink.path = path;
	return &sink_sluice;
}
