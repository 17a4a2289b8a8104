/* SPDX-License-Identifier: Apache-2.0 */
/* New datasets: making them, and whether HDF5 made them as asked.
 * Threads: the file thread. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "h5file/h5file_internal.h"

/* ------------------------------------------------------------------------------------- filters */

/* Optional: HDF5 itself need not have the filter, and chunks may come without it. */
static herr_t set_filters(hid_t list, const struct sl_h5_layout *layout)
{
	unsigned values[SL_CODEC_VALUES], count;

	if (layout->shuffle && H5Pset_shuffle(list) < 0)
		return -1;
	count = layout->codec->client_data(layout->level, layout->element, values);
	if (layout->codec->filter &&
	    H5Pset_filter(list, layout->codec->filter, H5Z_FLAG_OPTIONAL, count, values) < 0)
		return -1;
	return layout->sum ? H5Pset_fletcher32(list) : 0;
}

/* -------------------------------------------------------------------------------------- create */

/* Space before any frame comes, or with it; never a fill value, for all of a chunk is written. */
static hid_t creation_list(const char *name, const struct sl_h5_layout *layout)
{
	hid_t list = H5Pcreate(H5P_DATASET_CREATE);
	hsize_t chunk[SL_H5_RANK] = {SL_MAX(layout->gather, 1)};
	bool good;

	for (unsigned i = 0; i < layout->rank; i++)
		chunk[i + 1] = layout->chunk[i];
	good = H5Pset_fill_time(list, H5D_FILL_TIME_NEVER) >= 0 &&
	       H5Pset_obj_track_times(list, false) >= 0;
	if (layout->sources)
		good = good && sl_h5_sources_set(list, name, layout);
	else if (layout->contiguous)
		good = good && H5Pset_layout(list, H5D_CONTIGUOUS) >= 0 &&
		       H5Pset_alloc_time(list, H5D_ALLOC_TIME_EARLY) >= 0;
	else
		good = good && H5Pset_chunk(list, (int)sl_h5_rank(layout), chunk) >= 0 &&
		       set_filters(list, layout) >= 0;
	if (good)
		return list;
	H5Pclose(list);
	return H5I_INVALID_HID;
}

/* A filter that is loaded may have set parameters of its own; only the level may be another. */
static int check_filters(struct sl_h5_dataset *dataset, const struct sl_h5_layout *layout)
{
	hid_t list = H5Dget_create_plist(dataset->id);
	struct sl_h5_layout its;
	int err = sl_h5_filters_read(dataset->name, list, layout->element, &its);

	H5Pclose(list);
	if (err)
		return sl_h5_fail(dataset->file, err, "%s", sluice_last_message());
	if (its.shuffle == layout->shuffle && its.sum == layout->sum &&
	    its.codec->filter == layout->codec->filter)
		return 0;
	return sl_h5_fail(dataset->file, -ENOTSUP, "HDF5 has made '%s' with other filters",
	                  dataset->name);
}

static int create_frames(struct sl_h5_dataset *dataset, const struct sl_h5_layout *layout)
{
	hsize_t most[SL_H5_RANK] = {layout->frames ? layout->frames : H5S_UNLIMITED};
	hid_t list = creation_list(dataset->name, layout);
	hid_t type = sl_h5_type(layout->type, layout->element);
	uint64_t start;
	int err;

	dataset->extent[0] = layout->contiguous ? layout->frames : 0;
	for (unsigned i = 0; i < layout->rank; i++)
		dataset->extent[i + 1] = most[i + 1] = layout->shape[i];
	/* Direct writers write whole pages; and a list of sources lies where texts do. */
	dataset->file->vfd.pages = layout->contiguous || layout->sources;
	dataset->id = sl_h5_create(dataset->file, dataset->name, type, dataset->rank,
	                           dataset->extent, most, list);
	dataset->file->vfd.pages = false;
	H5Tclose(type);
	H5Pclose(list);
	if (dataset->id < 0)
		return sl_h5_fail(dataset->file, -EIO, "'%s' cannot be made", dataset->name);
	if (!layout->sources)
		return check_filters(dataset, layout);
	/* HDF5 must not extend the list in its place, which may be longer than a page. */
	err = sl_ordered_vfd_grant(&dataset->file->vfd, 1, false, &start);
	return err ? sl_h5_fail(dataset->file, err, "there is no room for '%s'", dataset->name) : 0;
}

/* --------------------------------------------------------------------------------------- whole */

static int add_own_attributes(struct sl_h5_dataset *dataset, const struct sl_h5_layout *layout)
{
	bool done = true;

	if (dataset->counted)
		dataset->frames_attribute =
			sl_h5_attribute_make(dataset->id, "sluice_frames", H5T_NATIVE_UINT64, 0,
		                             &dataset->frames_written);
	if (layout->precision) {
		done = sl_h5_attribute_write(dataset->id, "sluice_precision", H5T_NATIVE_UINT, 0,
		                             &layout->precision);
		dataset->error_attribute =
			sl_h5_attribute_make(dataset->id, "sluice_max_error", H5T_NATIVE_DOUBLE, 0,
		                             &dataset->error_written);
	}
	if ((dataset->counted && dataset->frames_attribute < 0) || !done ||
	    (layout->precision && dataset->error_attribute < 0))
		return sl_h5_fail(dataset->file, -EIO, "the attributes of '%s' cannot be made",
		                  dataset->name);
	return 0;
}

/* HDF5 asks for a new file's space in the first flush only, when frames could be lost. */
static int dataset_reserve(struct sl_h5_dataset *dataset)
{
	off_t bytes = (off_t)H5Dget_storage_size(dataset->id);
	int fd = dataset->file->own.fd, done, err;
	struct stat before;

	if (fstat(fd, &before) < 0)
		return sl_h5_fail(dataset->file, -errno, "its length is not known");
	done = TEMP_FAILURE_RETRY(fallocate(fd, 0, (off_t)dataset->start, bytes));
	err = done ? -errno : 0;
	/* Not every file system can; then the flush sees. */
	if (!err || err == -EOPNOTSUPP || err == -ENOSYS)
		return 0;
	/* Some file systems take all free space before they fail; the file must not keep it. */
	if (ftruncate(fd, before.st_size) < 0)
		err = -errno;
	return sl_h5_fail(dataset->file, err, "there is no room for the %llu frames of '%s': %s",
	                  (unsigned long long)dataset->extent[0], dataset->name,
	                  sl_error_text(err));
}

/* Makes the dataset with its attributes. Its scalars exist already. */
static int frames_make(struct sl_h5_dataset *dataset, const struct sl_h5_layout *layout)
{
	int err = create_frames(dataset, layout);

	if (!err && layout->contiguous)
		err = sl_h5_offset_find(dataset);
	if (!err && layout->contiguous)
		err = dataset_reserve(dataset);
	if (!err)
		err = add_own_attributes(dataset, layout);
	if (!err && dataset->scales[0])
		err = sl_h5_scales_attach(dataset, dataset->id, dataset->rank);
	if (!err)
		err = sl_h5_attributes_add(dataset->file, dataset->id, dataset->name,
		                           layout->attributes, layout->attribute_count);
	return err ? err : sl_h5_added(dataset->file);
}

void sl_h5_dataset_free(struct sl_h5_dataset *dataset)
{
	sl_h5_scalars_close(dataset);
	if (dataset->frames_attribute >= 0)
		H5Aclose(dataset->frames_attribute);
	if (dataset->error_attribute >= 0)
		H5Aclose(dataset->error_attribute);
	if (dataset->id >= 0)
		H5Dclose(dataset->id);
	free(dataset->partial);
	for (unsigned i = 0; i < dataset->rank; i++)
		free(dataset->scales[i]);
	free(dataset->name);
	free(dataset);
}

/* ----------------------------------------------------------------------------------------- add */

/* Everything but the name is as closed ids and zeroes are. */
static int dataset_new(struct sl_h5_file *file, const char *name, const struct sl_h5_layout *layout,
                       struct sl_h5_dataset **out)
{
	struct sl_h5_dataset *dataset = calloc(1, sizeof(*dataset));
	int err;

	if (!dataset)
		return sl_fail(-ENOMEM, "no memory");
	dataset->file = file;
	dataset->rank = sl_h5_rank(layout);
	dataset->contiguous = layout->contiguous;
	dataset->counted = layout->contiguous || layout->sources;
	dataset->id = dataset->frames_attribute = dataset->error_attribute = H5I_INVALID_HID;
	err = sl_h5_name_new(name, &dataset->name);
	if (err)
		free(dataset);
	else
		*out = dataset;
	return err;
}

/* In this writer; otherwise it can be continued. */
static bool is_added(const struct sl_h5_file *file, const char *name)
{
	sl_list_each_of (dataset, &file->datasets, struct sl_h5_dataset, link) {
		if (!strcmp(dataset->name, name))
			return true;
		for (size_t i = 0; i < dataset->scalar_count; i++)
			if (!strcmp(dataset->scalars[i].name, name))
				return true;
	}
	return false;
}

static int check_new(const struct sl_h5_dataset *dataset)
{
	const char *name = dataset->name;
	bool added = is_added(dataset->file, name);

	for (size_t i = 0; !added && i < dataset->scalar_count; i++)
		added = is_added(dataset->file, name = dataset->scalars[i].name);
	return added ? sl_fail(-EEXIST, "'%s' is a dataset of this writer already", name) : 0;
}

static const char *name_of_object(const struct sl_h5_dataset *dataset, uint64_t object)
{
	for (size_t i = 0; i < dataset->scalar_count; i++)
		if (dataset->scalars[i].object == object)
			return dataset->scalars[i].name;
	return dataset->object == object ? dataset->name : NULL;
}

/* Links may give a dataset of this writer another name. */
static int note_object(const struct sl_h5_dataset *dataset, const char *name, hid_t id,
                       uint64_t *out)
{
	const char *other;
	H5O_info_t info;

	if (id < 0 || H5Oget_info2(id, &info, H5O_INFO_BASIC) < 0)
		return 0;
	other = name_of_object(dataset, info.addr);
	sl_list_each_of (before, &dataset->file->datasets, struct sl_h5_dataset, link)
		other = other ? other : name_of_object(before, info.addr);
	*out = info.addr;
	return other ? sl_fail(-EEXIST, "'%s' is '%s', a dataset of this writer already", name,
	                       other)
	             : 0;
}

/* Opens what is there. Nothing in the file changes. Returns 1 if the dataset is there. */
static int dataset_check(struct sl_h5_dataset *dataset, struct sl_h5_layout *layout,
                         const struct sl_h5_set_options *set)
{
	int found = sl_h5_name_find(dataset->file, dataset->name);
	int err = SL_MIN(found, 0);

	if (!found && set->at && set->frame)
		err = sl_fail(-EINVAL, "there is no '%s', which is to go on at frame %llu",
		              dataset->name, (unsigned long long)set->frame);

	if (!err)
		err = sl_h5_scales_name(dataset, layout);
	if (!err)
		err = sl_h5_scalars_open(dataset, layout->scalars, layout->scalar_count);
	if (!err)
		err = check_new(dataset);
	if (!err && found)
		err = sl_h5_dataset_continue(dataset, layout, set);
	if (!err)
		err = note_object(dataset, dataset->name, dataset->id, &dataset->object);
	for (size_t i = 0; !err && i < dataset->scalar_count; i++)
		err = note_object(dataset, dataset->scalars[i].name, dataset->scalars[i].id,
		                  &dataset->scalars[i].object);
	if (!err && !found)
		err = sl_h5_scales_each(dataset, layout, sl_h5_scale_check);
	dataset->mask =
		sl_h5_mask_shuffle(layout) | sl_h5_mask_codec(layout) | sl_h5_mask_sum(layout);
	if (!err && layout->gather > 1)
		err = sl_h5_partial_chunks_init(dataset, layout);
	return err ? err : found;
}

/* Makes a missing scale, before anything refers to it. */
static int need_scale(struct sl_h5_dataset *dataset, unsigned i, uint64_t length)
{
	const char *path = dataset->scales[i];
	int found = sl_h5_name_find(dataset->file, path);

	if (found)
		return SL_MIN(found, 0);
	for (size_t c = 0; c < dataset->scalar_count; c++)
		if (!strcmp(dataset->scalars[c].name, path))
			return sl_h5_scalar_make(dataset, &dataset->scalars[c]);
	return sl_h5_scale_make(dataset->file, path, length);
}

/* Scalars are created before the frames, so that a visible frame has its numbers. */
static int dataset_make(struct sl_h5_dataset *dataset, const struct sl_h5_layout *layout,
                        bool found, bool back)
{
	struct sl_h5_file *file = dataset->file;
	H5O_info_t info;
	int err = 0;

	file->untouched = false;
	if (file->vfd.held_limit)
		file->vfd.held_limit += sl_h5_held_bytes(layout);
	file->vfd.ahead += layout->scalar_count * SL_H5_AHEAD;
	if (found)
		err = sl_h5_dataset_go_back(dataset, back);
	if (!err && !found)
		err = sl_h5_name_groups(file, dataset->name);
	if (!err)
		err = sl_h5_scales_each(dataset, layout, need_scale);
	if (!err)
		err = sl_h5_scalars_make(dataset, dataset->frames);
	if (!err && !found)
		err = frames_make(dataset, layout);
	else if (!err)
		err = sl_h5_attributes_add(file, dataset->id, dataset->name, layout->attributes,
		                           layout->attribute_count);
	/* Scalars got numbers for existing frames, or attributes are new. */
	if (!err && found)
		err = sl_h5_dataset_flush(dataset);
	if (!err && found)
		err = sl_h5_flush(file);
	if (!err && dataset->rank == 1 && H5Oget_info2(dataset->id, &info, H5O_INFO_BASIC) < 0)
		err = sl_h5_fail(file, -EIO, "'%s' cannot be looked at", dataset->name);
	if (err)
		return err;
	dataset->header = dataset->rank == 1 ? file->base + info.addr : 0;
	sl_list_append(&file->datasets, &dataset->link);
	err = file->own.named ? sl_h5_scales_refer(file, dataset) : 0;
	if (err)
		sl_list_remove(&dataset->link);
	return err;
}

int sl_h5_dataset_add(struct sl_h5_file *file, const char *name, struct sl_h5_layout *layout,
                      const struct sl_h5_set_options *set, struct sl_h5_dataset **out,
                      uint64_t *first)
{
	int err = sl_h5_attributes_check(layout->attributes, layout->attribute_count);
	struct sl_h5_layout whole = *layout;
	struct sl_h5_dataset *dataset = NULL;
	int found;

	if (!err)
		err = sl_h5_names_check("scalar", layout->scalars, layout->scalar_count);
	if (!err)
		err = out && file->own.named ? sl_h5_file_flush(file) : sl_h5_error(file);
	if (!err)
		err = dataset_new(file, name, layout, &dataset);
	if (err)
		return err;
	sl_hdf5_enter();
	found = dataset_check(dataset, &whole, set);
	err = found < 0 ? found : out ? dataset_make(dataset, &whole, found, set->at) : 0;
	if (!err) {
		*layout = whole;
		*first = dataset->frames;
	}
	if (!err && out)
		*out = dataset;
	else
		sl_h5_dataset_free(dataset);
	sl_hdf5_leave();
	return err;
}

void sl_h5_dataset_forget(struct sl_h5_dataset *dataset)
{
	sl_list_remove(&dataset->link);
	sl_hdf5_enter();
	sl_h5_dataset_free(dataset);
	sl_hdf5_leave();
}
