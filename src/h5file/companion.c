/* SPDX-License-Identifier: Apache-2.0 */
/* Companions: datasets of one number for each frame, beside that of the frames. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "h5file/dataset.h"

/* --------------------------------------------------------------------------------------- write */

static herr_t write_values(const struct sl_frame_companion *companion)
{
	hsize_t start = companion->start, count = companion->count;
	hid_t space = H5Dget_space(companion->id), memory = H5Screate_simple(1, &count, NULL);
	herr_t done = -1;

	if (space >= 0 && memory >= 0 &&
	    H5Sselect_hyperslab(space, H5S_SELECT_SET, &start, NULL, &count, NULL) >= 0)
		done = sl_hdf5_noted(H5Dwrite(companion->id, H5T_NATIVE_DOUBLE, memory, space,
		                              H5P_DEFAULT, companion->pending));
	H5Sclose(memory);
	H5Sclose(space);
	return done;
}

/* There is no cache of chunks: it goes straight to its place in the file. */
static int flush(struct sl_frame_file *file, struct sl_frame_companion *companion)
{
	hsize_t end = companion->start + companion->count;

	if (!companion->count)
		return 0;
	file->vfd.lent = companion->pending;
	file->vfd.lent_bytes = companion->count * sizeof(double);
	if ((end > companion->extent && H5Dset_extent(companion->id, &end) < 0) ||
	    write_values(companion) < 0 || sl_frame_settle(file))
		return sl_frame_fail(file, -EIO, "'%s' cannot be written", companion->name);
	companion->extent = SL_MAX(companion->extent, end);
	companion->start = end;
	companion->count = 0;
	return 0;
}

static int add(struct sl_frame_file *file, struct sl_frame_companion *companion, double value)
{
	uint64_t next = companion->start + companion->count;
	int err = 0;

	/* In one piece: what is of two chunks HDF5 writes by two writes. */
	if (companion->count == SL_FRAME_PENDING ||
	    (companion->count && next % SL_FRAME_COLUMN == 0))
		err = flush(file, companion);
	if (!err)
		companion->pending[companion->count++] = value;
	return err;
}

int sl_frame_companions_add(struct sl_frame_dataset *dataset, const double *scalars)
{
	int err = 0;

	for (size_t i = 0; !err && i < dataset->companion_count; i++)
		err = add(dataset->file, &dataset->companions[i], scalars[i]);
	return err;
}

int sl_frame_companions_flush(struct sl_frame_dataset *dataset)
{
	int err = 0;

	for (size_t i = 0; !err && i < dataset->companion_count; i++)
		err = flush(dataset->file, &dataset->companions[i]);
	return err;
}

/* -------------------------------------------------------------------------------- make and open */

int sl_frame_companion_make(struct sl_frame_dataset *dataset, struct sl_frame_companion *companion)
{
	struct sl_frame_file *file = dataset->file;
	int err = 0;

	companion->id = sl_frame_column(file, companion->name, H5T_NATIVE_DOUBLE, 0);
	if (companion->id < 0)
		err = sl_frame_fail(file, -EIO, "'%s' cannot be made", companion->name);
	if (!err && dataset->scales[0])
		err = strcmp(companion->name, dataset->scales[0])
		              ? sl_frame_scales_attach(dataset, companion->id, 1)
		              : sl_frame_scale_mark(file, companion->id, companion->name);
	return err ? err : sl_frame_added(file);
}

/* A value is written again in its place: so the chunks are of one size, and not compressed. */
static bool fits(hid_t id)
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

static int open_old(struct sl_frame_dataset *dataset, struct sl_frame_companion *companion)
{
	hid_t access = sl_frame_access_list(), space;
	hsize_t extent = 0;

	companion->id = sl_hdf5_noted(H5Dopen2(dataset->file->id, companion->name, access));
	H5Pclose(access);
	if (companion->id < 0)
		return sl_hdf5_fail(-EBADMSG, "'%s' cannot be opened", companion->name);
	if (!fits(companion->id))
		return sl_fail(-EEXIST,
		               "'%s' is there, and is no dataset of float64 that grows in "
		               "uncompressed chunks, as scalars of frames are",
		               companion->name);
	space = H5Dget_space(companion->id);
	H5Sget_simple_extent_dims(space, &extent, NULL);
	H5Sclose(space);
	companion->extent = extent;
	return 0;
}

static int find(struct sl_frame_dataset *dataset, struct sl_frame_companion *companion)
{
	int found = sl_frame_name_find(dataset->file, companion->name);

	return found > 0 ? open_old(dataset, companion) : found;
}

/* What it lacks for the first frames is not a number. */
static int fill(struct sl_frame_file *file, struct sl_frame_companion *companion, uint64_t first)
{
	int err = 0;

	companion->start = SL_MIN(companion->extent, first);
	for (uint64_t i = companion->start; !err && i < first; i++)
		err = add(file, companion, NAN);
	return err;
}

int sl_frame_companions_cut(struct sl_frame_dataset *dataset, uint64_t frames)
{
	int err = 0;

	for (size_t i = 0; !err && i < dataset->companion_count; i++) {
		struct sl_frame_companion *companion = &dataset->companions[i];

		if (companion->id < 0 || companion->extent <= frames)
			continue;
		err = sl_frame_cut(dataset->file, companion->name, &companion->id,
		                   companion->extent, frames);
		companion->extent = frames;
	}
	return err;
}

int sl_frame_companions_make(struct sl_frame_dataset *dataset, uint64_t first)
{
	int err = 0;

	for (size_t i = 0; !err && i < dataset->companion_count; i++) {
		struct sl_frame_companion *companion = &dataset->companions[i];

		if (companion->id < 0)
			err = sl_frame_companion_make(dataset, companion);
		if (!err)
			err = fill(dataset->file, companion, first);
	}
	return err;
}

/* A scalar with the name of the dimension of the frames has no other name. */
static int init(struct sl_frame_companion *companion, const struct sl_frame_dataset *dataset,
                const char *name)
{
	const char *scale = dataset->scales[0];

	companion->id = H5I_INVALID_HID;
	companion->pending = calloc(SL_FRAME_PENDING, sizeof(double));
	if (scale && !strcmp(strrchr(scale, '/') + 1, name))
		companion->name = strdup(scale);
	else if (asprintf(&companion->name, "%s_%s", dataset->name, name) < 0)
		companion->name = NULL;
	return companion->pending && companion->name ? 0 : sl_fail(-ENOMEM, "no memory");
}

int sl_frame_companions_open(struct sl_frame_dataset *dataset, const char *const *names,
                             size_t count)
{
	int err = 0;

	dataset->companions = calloc(count ? count : 1, sizeof(*dataset->companions));
	if (!dataset->companions)
		return sl_fail(-ENOMEM, "no memory");
	for (size_t i = 0; !err && i < count; i++) {
		err = init(&dataset->companions[i], dataset, names[i]);
		dataset->companion_count++;
		if (!err)
			err = find(dataset, &dataset->companions[i]);
	}
	return err;
}

void sl_frame_companions_close(struct sl_frame_dataset *dataset)
{
	for (size_t i = 0; i < dataset->companion_count; i++) {
		struct sl_frame_companion *companion = &dataset->companions[i];

		if (companion->id >= 0)
			H5Dclose(companion->id);
		free(companion->pending);
		free(companion->name);
	}
	free(dataset->companions);
}
