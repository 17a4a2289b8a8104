/* SPDX-License-Identifier: Apache-2.0 */
/* Datasets in a build without HDF5: opening one fails, and so does a list of them. Threads: any. */
#include <errno.h>

#include "h5file/h5file.h"

#pragma GCC diagnostic ignored "-Wunused-parameter"

static int read_none(void)
{
	return sl_fail(-ENOTSUP, "built without HDF5 (libhdf5-dev): no dataset can be read");
}

int sl_h5_reader_open(struct sl_h5_bytes *source, const char *path, const char *dataset,
                      struct sl_h5_reader **out, struct sl_h5_array *array)
{
	return read_none();
}

int sl_h5_reader_find(struct sl_h5_reader *reader, size_t count, struct sl_h5_place *places)
{
	return read_none();
}

int sl_h5_list(struct sl_h5_bytes *source, const char *path, const char *below, sl_h5_found *found,
               void *user)
{
	return read_none();
}

void sl_h5_reader_close(struct sl_h5_reader *reader)
{
}

void sl_h5_array_clear(struct sl_h5_array *array)
{
}

bool sl_h5_part_match(struct sl_h5_part *part, unsigned all, unsigned rank, const uint64_t *count)
{
	return false;
}
