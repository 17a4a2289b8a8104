/* SPDX-License-Identifier: Apache-2.0 */
/* How storage_sluice.c opens its writer: by itself (storage_alone.c), or with the other ranks of MPI (storage_ranks.c). */
#ifndef GRAY_SCOTT_STORAGE_WRITER_H
#define GRAY_SCOTT_STORAGE_WRITER_H

#include <sluice/writer.h>

#include "storage.h"

int storage_open_writer(sluice_context *context, const char *path,
                        const struct sluice_writer_options *options, sluice_writer **out);
int storage_add_series(sluice_writer *writer, const struct storage_options *options,
                       const struct sluice_series_options *series, sluice_series **out);

#endif
