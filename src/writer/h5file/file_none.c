/* SPDX-License-Identifier: Apache-2.0 */
/* The HDF5 file in a build without HDF5: opening a writer fails, so only the first two functions
 * and sluice_frames_inspect() are ever called. Threads: any. */
#include <errno.h>

#include <sluice/frames.h>

#include "h5file/h5file.h"

#pragma GCC diagnostic ignored "-Wunused-parameter"

int sl_h5_usable(unsigned flags)
{
	return sl_fail(-ENOTSUP, "built without HDF5 (libhdf5-dev): there are no writers");
}

int sl_h5_file_open(const char *path, const struct sl_h5_file_options *o, struct sl_h5_file **out)
{
	return sl_h5_usable(o->flags);
}

void sl_h5_dataset_forget(struct sl_h5_dataset *dataset)
{
}

const char *sl_h5_file_name(const struct sl_h5_file *file)
{
	return NULL;
}

uint64_t sl_h5_file_held(const struct sl_h5_file *file)
{
	return 0;
}

void sl_h5_fill(const struct sl_h5_dataset *dataset, void *out, size_t n)
{
}

bool sl_h5_chunk_is_raw(const struct sl_h5_dataset *dataset, uint64_t frame)
{
	return false;
}

/* The other functions return the error. */
#define NONE(function, ...)             \
	int function(__VA_ARGS__)       \
	{                               \
		return sl_h5_usable(0); \
	}

NONE(sl_h5_dataset_add, struct sl_h5_file *file, const char *name, struct sl_h5_layout *layout,
     const struct sl_h5_set_options *set, struct sl_h5_dataset **out, uint64_t *first)
NONE(sl_h5_chunk_store, struct sl_h5_dataset *dataset, uint64_t frame, const uint64_t *offset,
     uint32_t mask, const void *bytes, size_t n)
NONE(sl_h5_chunk_store_last, struct sl_h5_dataset *dataset, uint64_t frame, const uint64_t *offset,
     const void *bytes, size_t n, bool there)
NONE(sl_h5_chunk_store_frames, struct sl_h5_dataset *dataset, uint64_t frame, uint64_t from,
     uint64_t to, const uint64_t *offset, const void *bytes, size_t n)
NONE(sl_h5_chunk_read, struct sl_h5_dataset *dataset, uint64_t frame, const uint64_t *offset,
     void *out, size_t n)
NONE(sl_h5_space_take, struct sl_h5_file *file, uint64_t bytes, uint64_t *start)
NONE(sl_h5_chunk_enter, struct sl_h5_dataset *dataset, uint64_t frame, const uint64_t *offset,
     uint32_t mask, uint64_t start, size_t n)
NONE(sl_h5_dataset_offset, struct sl_h5_dataset *dataset, uint64_t *offset, int *fd)
NONE(sl_h5_frames_stored, struct sl_h5_dataset *dataset, uint64_t frame, uint64_t count,
     const double *scalars, double max_error)
NONE(sl_h5_coordinate_add, struct sl_h5_file *file, const struct sl_h5_coordinate *c)
NONE(sl_h5_attributes_give, struct sl_h5_file *file, struct sl_h5_dataset *dataset,
     const struct sluice_attribute *list, size_t count)
NONE(sl_h5_file_flush, struct sl_h5_file *file)
NONE(sl_h5_file_vacate, struct sl_h5_file *file)
NONE(sl_h5_file_close, struct sl_h5_file *file, bool keep)
NONE(sluice_frames_inspect, const char *path, sluice_frames_found found, void *user)
