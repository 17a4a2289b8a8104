/* SPDX-License-Identifier: Apache-2.0 */
#include "storage_writer.h"

const struct storage_kind *const storage_kinds[] = {&storage_sluice, &storage_plain, &storage_sync,
                                                    NULL};

int storage_open_writer(sluice_context *context, const char *path,
                        const struct sluice_writer_options *options, sluice_writer **out)
{
	return sluice_writer_open(context, path, options, out);
}

int storage_add_series(sluice_writer *writer, const struct storage_options *options,
                       const struct sluice_series_options *series, sluice_series **out)
{
	(void)options;
	return sluice_series_add(writer, STORAGE_DATASET, series, out);
}
