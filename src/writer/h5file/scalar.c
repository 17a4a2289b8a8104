/* SPDX-License-Identifier: Apache-2.0 */
/* Scalars: datasets with a number for each frame, beside the frames' dataset.
 * Threads: the file thread. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "h5file/h5file_internal.h"

/* --------------------------------------------------------------------------------------- write */

static herr_t scalar_write(const struct sl_h5_scalar *scalar)
{
	hsize_t start = scalar->start, count = scalar->count;
	hid_t space = H5Dget_space(scalar->id), memory = H5Screate_simple(1, &count, NULL);
	herr_t done = -1;

	if (space >= 0 && memory >= 0 &&
	    H5Sselect_hyperslab(space, H5S_SELECT_SET, &start, NULL, &count, NULL) >= 0)
		done = sl_hdf5_noted(H5Dwrite(scalar->id, H5T_NATIVE_DOUBLE, memory, space,
		                              H5P_DEFAULT, scalar->pending));
	H5Sclose(memory);
	H5Sclose(space);
	return done;
}

/* There is no cache of chunks: it goes straight to its place in the file. */
static int scalar_flush(struct sl_h5_file *file, struct sl_h5_scalar *scalar)
{
	hsize_t end = scalar->start + scalar->count;
	struct sl_vfd_chunk chunk = {
		.in = {.bytes = scalar->pending, .n = scalar->count * sizeof(double)}};
	bool done;

	if (!scalar->count)
		return 0;
	done = end <= scalar->extent || H5Dset_extent(scalar->id, &end) >= 0;
	file->vfd.chunk = &chunk;
	done = done && scalar_write(scalar) >= 0;
	file->vfd.chunk = NULL;
	if (!done || sl_h5_settle(file))
		return sl_h5_fail(file, -EIO, "'%s' cannot be written", scalar->name);
	scalar->extent = SL_MAX(scalar->extent, end);
	scalar->start = end;
	scalar->count = 0;
	return 0;
}

static int scalar_add(struct sl_h5_file *file, struct sl_h5_scalar *scalar, double value)
{
	uint64_t next = scalar->start + scalar->count;
	int err = 0;

	/* HDF5 would split a write to two chunks. */
	if (scalar->count == SL_H5_PENDING || (scalar->count && next % SL_H5_COLUMN == 0))
		err = scalar_flush(file, scalar);
	if (!err)
		scalar->pending[scalar->count++] = value;
	return err;
}

int sl_h5_scalars_add(struct sl_h5_dataset *dataset, const double *scalars)
{
	int err = 0;

	for (size_t i = 0; !err && i < dataset->scalar_count; i++)
		err = scalar_add(dataset->file, &dataset->scalars[i], scalars[i]);
	return err;
}

int sl_h5_scalars_flush(struct sl_h5_dataset *dataset)
{
	int err = 0;

	for (size_t i = 0; !err && i < dataset->scalar_count; i++)
		err = scalar_flush(dataset->file, &dataset->scalars[i]);
	return err;
}

/* -------------------------------------------------------------------------------- make and open */

int sl_h5_scalar_make(struct sl_h5_dataset *dataset, struct sl_h5_scalar *scalar)
{
	struct sl_h5_file *file = dataset->file;
	int err = 0;

	scalar->id = sl_h5_column(file, scalar->name, H5T_NATIVE_DOUBLE, 0);
	if (scalar->id < 0)
		err = sl_h5_fail(file, -EIO, "'%s' cannot be made", scalar->name);
	if (!err && dataset->scales[0])
		err = strcmp(scalar->name, dataset->scales[0])
		              ? sl_h5_scales_attach(dataset, scalar->id, 1)
		              : sl_h5_scale_mark(file, scalar->id, scalar->name);
	return err ? err : sl_h5_added(file);
}

/* Values are rewritten in place, so chunks must have a fixed size and no compression. */
static bool scalar_fits(hid_t id)
{
	hid_t type = H5Dget_type(id), space = H5Dget_space(id), list = H5Dget_create_plist(id);
	H5D_chunk_index_t index = H5D_CHUNK_IDX_SINGLE;
	hsize_t extent[H5S_MAX_RANK], most[H5S_MAX_RANK];
	bool good = H5Tequal(type, H5T_NATIVE_DOUBLE) > 0 && H5Pget_layout(list) == H5D_CHUNKED &&
	            H5Pget_nfilters(list) == 0 &&
	            H5Sget_simple_extent_dims(space, extent, most) == 1 &&
	            most[0] == H5S_UNLIMITED && H5Dget_chunk_index_type(id, &index) >= 0 &&
	            index == H5D_CHUNK_IDX_BTREE;

	H5Pclose(list);
	H5Sclose(space);
	H5Tclose(type);
	return good;
}

static int scalar_open_old(struct sl_h5_dataset *dataset, struct sl_h5_scalar *scalar)
{
	hsize_t extent = 0;
	hid_t space;

	scalar->id = sl_h5_dataset_open(dataset->file->id, scalar->name);
	if (scalar->id < 0)
		return sl_hdf5_fail(-EBADMSG, "'%s' cannot be opened", scalar->name);
	if (!scalar_fits(scalar->id))
		return sl_fail(-EEXIST,
		               "'%s' is there, and is no dataset of float64 that grows in "
		               "uncompressed chunks, as scalars of frames are",
		               scalar->name);
	space = H5Dget_space(scalar->id);
	H5Sget_simple_extent_dims(space, &extent, NULL);
	H5Sclose(space);
	scalar->extent = extent;
	return 0;
}

static int scalar_find(struct sl_h5_dataset *dataset, struct sl_h5_scalar *scalar)
{
	int found = sl_h5_name_find(dataset->file, scalar->name);

	return found > 0 ? scalar_open_old(dataset, scalar) : found;
}

/* Missing values of the first frames are NaN. */
static int scalar_fill(struct sl_h5_file *file, struct sl_h5_scalar *scalar, uint64_t first)
{
	int err = 0;

	scalar->start = SL_MIN(scalar->extent, first);
	for (uint64_t i = scalar->start; !err && i < first; i++)
		err = scalar_add(file, scalar, NAN);
	return err;
}

int sl_h5_scalars_truncate(struct sl_h5_dataset *dataset, uint64_t frames)
{
	int err = 0;

	for (size_t i = 0; !err && i < dataset->scalar_count; i++) {
		struct sl_h5_scalar *scalar = &dataset->scalars[i];

		uint64_t kept = SL_MIN(scalar->extent, frames);

		if (scalar->id < 0)
			continue;
		err = sl_h5_truncate(dataset->file, scalar->name, &scalar->id, scalar->extent,
		                     kept);
		scalar->extent = kept;
	}
	return err;
}

int sl_h5_scalars_make(struct sl_h5_dataset *dataset, uint64_t first)
{
	int err = 0;

	for (size_t i = 0; !err && i < dataset->scalar_count; i++) {
		struct sl_h5_scalar *scalar = &dataset->scalars[i];

		if (scalar->id < 0)
			err = sl_h5_scalar_make(dataset, scalar);
		if (!err)
			err = scalar_fill(dataset->file, scalar, first);
	}
	return err;
}

/* A scalar with the name of the dimension of the frames has no other name. */
static int scalar_init(struct sl_h5_scalar *scalar, const struct sl_h5_dataset *dataset,
                       const char *name)
{
	const char *scale = dataset->scales[0];

	scalar->id = H5I_INVALID_HID;
	scalar->pending = calloc(SL_H5_PENDING, sizeof(double));
	if (scale && !strcmp(strrchr(scale, '/') + 1, name))
		scalar->name = strdup(scale);
	else
		scalar->name = sl_format("%s_%s", dataset->name, name);
	return scalar->pending && scalar->name ? 0 : sl_fail(-ENOMEM, "no memory");
}

int sl_h5_scalars_open(struct sl_h5_dataset *dataset, const char *const *names, size_t count)
{
	int err = 0;

	dataset->scalars = calloc(count ? count : 1, sizeof(*dataset->scalars));
	if (!dataset->scalars)
		return sl_fail(-ENOMEM, "no memory");
	for (size_t i = 0; !err && i < count; i++) {
		err = scalar_init(&dataset->scalars[i], dataset, names[i]);
		dataset->scalar_count++;
		if (!err)
			err = scalar_find(dataset, &dataset->scalars[i]);
	}
	return err;
}

void sl_h5_scalars_close(struct sl_h5_dataset *dataset)
{
	for (size_t i = 0; i < dataset->scalar_count; i++) {
		struct sl_h5_scalar *scalar = &dataset->scalars[i];

		if (scalar->id >= 0)
			H5Dclose(scalar->id);
		free(scalar->pending);
		free(scalar->name);
	}
	free(dataset->scalars);
}
