/* SPDX-License-Identifier: Apache-2.0 */
/* Chunks of frames, and the numbers that come with them. */
#include <errno.h>
#include <string.h>

#include "h5file/dataset.h"

/* -------------------------------------------------------------------------------------- chunks */

static int grow(struct sl_frame_dataset *dataset, uint64_t frames)
{
	if (dataset->extent[0] >= frames)
		return 0;
	dataset->extent[0] = frames;
	if (H5Dset_extent(dataset->id, dataset->extent) < 0)
		return sl_frame_fail(dataset->file, -EIO, "'%s' cannot grow to frame %llu",
		                     dataset->name, (unsigned long long)(frames - 1));
	return 0;
}

static int store_chunk(struct sl_frame_dataset *dataset, uint64_t frame, const uint64_t *offset,
                       uint32_t mask, const void *bytes, size_t n)
{
	struct sl_frame_file *file = dataset->file;
	hsize_t place[SL_FRAME_RANK] = {frame};
	int err = grow(dataset, frame + 1);

	if (err)
		return err;
	for (unsigned i = 1; i < dataset->rank; i++)
		place[i] = offset[i - 1];
	file->vfd.lent = bytes;
	file->vfd.lent_bytes = n;
	/* The driver tells of an error that HDF5 has kept to itself. */
	if (H5Dwrite_chunk(dataset->id, H5P_DEFAULT, mask, place, n, bytes) < 0 ||
	    sl_frame_settle(file))
		return sl_frame_fail(file, -EIO, "frame %llu of '%s' cannot be stored",
		                     (unsigned long long)frame, dataset->name);
	return 0;
}

int sl_frame_file_store(struct sl_frame_dataset *dataset, uint64_t frame, const uint64_t *offset,
                        uint32_t mask, const void *bytes, size_t n)
{
	int err = sl_frame_error(dataset->file);
	struct sl_hdf5_stay stay;

	if (err)
		return err;
	err = sl_frame_room(dataset->file, n);
	if (err)
		return sl_fail(err, "'%s': no room for frame %llu of '%s': %s",
		               dataset->file->own.path, (unsigned long long)frame, dataset->name,
		               sl_error_text(err));
	sl_hdf5_enter(&stay);
	err = store_chunk(dataset, frame, offset, mask, bytes, n);
	sl_hdf5_leave(&stay);
	return err;
}

uint32_t sl_frame_file_mask_codec(const struct sl_frame_dataset *dataset)
{
	return dataset->mask_codec;
}

uint32_t sl_frame_file_mask_shuffle(const struct sl_frame_dataset *dataset)
{
	return dataset->mask_shuffle;
}

int sl_frame_file_place(struct sl_frame_dataset *dataset, uint64_t *offset, int *fd)
{
	int err = sl_frame_error(dataset->file);

	if (err)
		return err;
	if (!dataset->contiguous)
		return sl_fail(-EINVAL, "'%s' does not lie in one piece", dataset->name);
	*offset = dataset->place;
	*fd = dataset->file->own.fd;
	return 0;
}

/* -------------------------------------------------------------------------------------- frames */

int sl_frame_file_frame(struct sl_frame_dataset *dataset, uint64_t frame, const double *scalars,
                        double max_error)
{
	int err = sl_frame_error(dataset->file);
	struct sl_hdf5_stay stay;

	if (err)
		return err;
	/* Frames in one piece have their space, and scalars have not. */
	err = dataset->contiguous && dataset->companion_count ? sl_frame_room(dataset->file, 0) : 0;
	if (err)
		return sl_fail(err, "'%s': no room for the scalars of '%s': %s",
		               dataset->file->own.path, dataset->name, sl_error_text(err));
	sl_hdf5_enter(&stay);
	err = sl_frame_companions_add(dataset, scalars);
	sl_hdf5_leave(&stay);
	if (err)
		return err;
	dataset->frames = frame + 1;
	dataset->max_error = SL_MAX(dataset->max_error, max_error);
	return 0;
}

/* --------------------------------------------------------------------------------------- flush */

/* Attributes of a fixed size are written in their place in the header of the dataset. */
static int flush_attributes(struct sl_frame_dataset *dataset)
{
	bool bad = false;

	if (dataset->frames_attribute >= 0 && dataset->told != dataset->frames)
		bad |= H5Awrite(dataset->frames_attribute, H5T_NATIVE_UINT64, &dataset->frames) < 0;
	if (dataset->error_attribute >= 0 && dataset->error_told != dataset->max_error)
		bad |= H5Awrite(dataset->error_attribute, H5T_NATIVE_DOUBLE, &dataset->max_error) <
		       0;
	if (bad)
		return sl_frame_fail(dataset->file, -EIO,
		                     "the attributes of '%s' cannot be written", dataset->name);
	dataset->told = dataset->frames;
	dataset->error_told = dataset->max_error;
	return 0;
}

/* HDF5 takes their chunks out of the index, and nothing comes to places that it has freed: this is the end. */
int sl_frame_dataset_trim(struct sl_frame_dataset *dataset)
{
	if (dataset->contiguous || dataset->extent[0] <= dataset->frames)
		return 0;
	dataset->extent[0] = dataset->frames;
	if (H5Dset_extent(dataset->id, dataset->extent) < 0)
		return sl_frame_fail(dataset->file, -EIO, "'%s' cannot be cut behind frame %llu",
		                     dataset->name, (unsigned long long)dataset->frames);
	return 0;
}

int sl_frame_dataset_flush(struct sl_frame_dataset *dataset)
{
	int err = sl_frame_companions_flush(dataset);

	return err ? err : flush_attributes(dataset);
}
