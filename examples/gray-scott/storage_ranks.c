/* SPDX-License-Identifier: Apache-2.0 */
#include <sluice/mpi.h>

#include "storage_writer.h"

const struct storage_kind *const storage_kinds[] = {&storage_sluice, &storage_gather, NULL};

int storage_open_writer(sluice_context *context, const char *path,
                        const struct sluice_writer_options *options, sluice_writer **out)
{
	return sluice_writer_open_mpi(context, MPI_COMM_WORLD, path, options, out);
}

int storage_add_series(sluice_writer *writer, const struct storage_options *options,
                       const struct sluice_series_options *series, sluice_series **out)
{
	struct sluice_block block = {.start = {options->first},
	                             .count = {options->rows, options->columns}};

	return sluice_series_add_block(writer, STORAGE_DATASET, series, &block, -1, out);
}
