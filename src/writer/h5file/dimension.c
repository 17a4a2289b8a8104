/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Dimension scales, as in HDF5's specification, for netCDF-4 and xarray: datasets with a single
 * dimension in the frames' group, with the attribute CLASS. A dataset's DIMENSION_LIST refers to a
 * scale for each dimension, and a scale's REFERENCE_LIST refers to these datasets.
 *
 * A longer REFERENCE_LIST would replace an attribute by another, which is not valid after each
 * write. So a scale gets it when the file gets its name, or with its first dataset after that,
 * and it never changes. Readers follow DIMENSION_LIST; REFERENCE_LIST gives the length of
 * growing dimensions with several datasets. Threads: the file thread.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "h5file/h5file_internal.h"

/* netCDF-4's NAME for a dimension without a coordinate; the length follows. */
#define NO_COORDINATE "This is a netCDF dimension but not a netCDF variable."
/* Entries of REFERENCE_LIST that fit into an attribute. */
#define REFERENCES_MOST 4000

/* An entry of REFERENCE_LIST, as HDF5 has it. */
struct scale_user {
	hobj_ref_t dataset;
	int dimension;
};

static const char *scale_last_part(const char *path)
{
	return strrchr(path, '/') + 1;
}

static bool add_text(hid_t object, const char *name, const char *text)
{
	hid_t type = H5Tcopy(H5T_C_S1);
	bool done = H5Tset_size(type, strlen(text) + 1) >= 0 &&
	            sl_h5_attribute_write(object, name, type, 0, text);

	H5Tclose(type);
	return done;
}

static int mark_scale(struct sl_h5_file *file, hid_t id, const char *path, const char *text)
{
	if (id >= 0 && add_text(id, "CLASS", "DIMENSION_SCALE") && add_text(id, "NAME", text))
		return 0;
	return sl_h5_fail(file, -EIO, "the dimension '%s' cannot be made", path);
}

int sl_h5_scale_mark(struct sl_h5_file *file, hid_t id, const char *path)
{
	return mark_scale(file, id, path, scale_last_part(path));
}

/* -------------------------------------------------------------------------------------- checks */

int sl_h5_scales_name(struct sl_h5_dataset *dataset, const struct sl_h5_layout *layout)
{
	int group = (int)(scale_last_part(dataset->name) - dataset->name);

	for (unsigned i = 0; layout->dimensions && i < dataset->rank; i++) {
		dataset->scales[i] =
			sl_format("%.*s%s", group, dataset->name, layout->dimensions[i]);
		if (!dataset->scales[i])
			return sl_fail(-ENOMEM, "no memory");
		if (!strcmp(dataset->scales[i], dataset->name))
			return sl_fail(-EINVAL, "'%s' has a dimension of its own name",
			               dataset->name);
	}
	return 0;
}

int64_t sl_h5_scale_length(struct sl_h5_file *file, const char *path)
{
	hid_t id = H5Dopen2(file->id, path, H5P_DEFAULT), space = H5Dget_space(id);
	hsize_t extent[H5S_MAX_RANK] = {0}, most[H5S_MAX_RANK] = {0};
	bool is_scale =
		H5Aexists(id, "CLASS") > 0 && H5Sget_simple_extent_dims(space, extent, most) == 1;

	H5Sclose(space);
	H5Dclose(id);
	if (!is_scale)
		return -1;
	return most[0] == H5S_UNLIMITED ? 0 : (int64_t)extent[0];
}

int sl_h5_scale_check(struct sl_h5_dataset *dataset, unsigned i, uint64_t wanted)
{
	const char *path = dataset->scales[i];
	int found = sl_h5_name_find(dataset->file, path);
	int64_t length = found > 0 ? sl_h5_scale_length(dataset->file, path) : 0;

	for (size_t c = 0; i && c < dataset->scalar_count; c++)
		if (!strcmp(dataset->scalars[c].name, path))
			return sl_fail(-EINVAL, "'%s' are scalars, and no dimension of a frame",
			               path);
	if (found <= 0)
		return found;
	if (length < 0)
		return sl_fail(-EEXIST, "'%s' is in the file, and is no dimension", path);
	if (length != (int64_t)wanted && (i || length))
		return sl_fail(
			-EEXIST,
			"dimension '%s' has a length of %lld (0: it grows), and '%s' of %llu", path,
			(long long)length, dataset->name, (unsigned long long)wanted);
	return 0;
}

int sl_h5_scales_each(struct sl_h5_dataset *dataset, const struct sl_h5_layout *layout,
                      int (*run)(struct sl_h5_dataset *dataset, unsigned i, uint64_t length))
{
	int err = 0;

	for (unsigned i = 0; !err && dataset->scales[0] && i < dataset->rank; i++)
		err = run(dataset, i, i ? layout->shape[i - 1] : layout->frames);
	return err;
}

int sl_h5_scales_agree(const struct sl_h5_dataset *dataset)
{
	hid_t type = H5Tvlen_create(H5T_STD_REF_OBJ);
	hid_t attribute = H5Aopen(dataset->id, "DIMENSION_LIST", H5P_DEFAULT);
	hid_t space = H5Aget_space(attribute);
	hvl_t lists[SL_H5_RANK] = {{0}};
	bool same = H5Sget_simple_extent_npoints(space) == dataset->rank &&
	            H5Aread(attribute, type, lists) >= 0;

	if (!same)
		sl_fail(-EEXIST, "'%s' is in the file without names of its dimensions",
		        dataset->name);
	for (unsigned i = 0; same && i < dataset->rank; i++) {
		hobj_ref_t wanted;

		same = lists[i].len == 1 &&
		       H5Rcreate(&wanted, dataset->file->id, dataset->scales[i], H5R_OBJECT, -1) >=
		               0 &&
		       !memcmp(lists[i].p, &wanted, sizeof(wanted));
		if (!same)
			sl_fail(-EEXIST, "dimension %u of '%s' is not '%s'", i, dataset->name,
			        dataset->scales[i]);
	}
	H5Dvlen_reclaim(type, space, H5P_DEFAULT, lists);
	H5Sclose(space);
	H5Aclose(attribute);
	H5Tclose(type);
	return same ? 0 : -EEXIST;
}

/* ---------------------------------------------------------------------------------------- make */

int sl_h5_scale_make(struct sl_h5_file *file, const char *path, uint64_t length)
{
	char text[sizeof(NO_COORDINATE) + 24];
	hid_t id = sl_h5_column(file, path, H5T_IEEE_F32BE, length);
	int err;

	snprintf(text, sizeof(text), NO_COORDINATE "%10llu", (unsigned long long)length);
	err = mark_scale(file, id, path, text);
	H5Dclose(id);
	return err ? err : sl_h5_added(file);
}

int sl_h5_scales_attach(struct sl_h5_dataset *dataset, hid_t id, unsigned rank)
{
	struct sl_h5_file *file = dataset->file;
	hid_t type = H5Tvlen_create(H5T_STD_REF_OBJ);
	hobj_ref_t references[SL_H5_RANK];
	hvl_t lists[SL_H5_RANK];
	bool done = true;

	for (unsigned i = 0; done && i < rank; i++) {
		lists[i] = (hvl_t){1, &references[i]};
		done = sl_hdf5_noted(H5Rcreate(&references[i], file->id, dataset->scales[i],
		                               H5R_OBJECT, -1)) >= 0;
	}
	/* They lie where texts do. */
	file->vfd.pages = true;
	done = done && sl_h5_attribute_write(id, "DIMENSION_LIST", type, rank, lists);
	file->vfd.pages = false;
	H5Tclose(type);
	return done ? 0
	            : sl_h5_fail(file, -EIO, "'%s' cannot be given its dimensions", dataset->name);
}

/* --------------------------------------------------------------------------------- references */

static void add_user(struct sl_h5_file *file, const char *path, unsigned dimension,
                     struct scale_user *users, hsize_t *count)
{
	if (*count < REFERENCES_MOST &&
	    H5Rcreate(&users[*count].dataset, file->id, path, H5R_OBJECT, -1) >= 0)
		users[(*count)++].dimension = (int)dimension;
}

/* All datasets of this writer that have the scale. */
static hsize_t find_users(struct sl_h5_file *file, const char *scale, struct scale_user *users)
{
	hsize_t count = 0;

	sl_list_each_of (d, &file->datasets, struct sl_h5_dataset, link) {
		for (unsigned i = 0; d->scales[0] && i < d->rank; i++)
			if (!strcmp(d->scales[i], scale))
				add_user(file, d->name, i, users, &count);
		for (size_t i = 0; i < d->scalar_count; i++)
			if (d->scales[0] && !strcmp(d->scales[0], scale) &&
			    strcmp(d->scalars[i].name, scale))
				add_user(file, d->scalars[i].name, 0, users, &count);
	}
	return count;
}

static bool add_references(struct sl_h5_file *file, hid_t scale, const char *path)
{
	struct scale_user *users = calloc(REFERENCES_MOST, sizeof(*users));
	hid_t type = H5Tcreate(H5T_COMPOUND, sizeof(*users));
	bool done = users &&
	            H5Tinsert(type, "dataset", offsetof(struct scale_user, dataset),
	                      H5T_STD_REF_OBJ) >= 0 &&
	            H5Tinsert(type, "dimension", offsetof(struct scale_user, dimension),
	                      H5T_NATIVE_INT) >= 0 &&
	            sl_h5_attribute_write(scale, "REFERENCE_LIST", type,
	                                  find_users(file, path, users), users);

	H5Tclose(type);
	free(users);
	return done;
}

int sl_h5_scales_refer(struct sl_h5_file *file, const struct sl_h5_dataset *dataset)
{
	int err = 0;

	for (unsigned i = 0; !err && dataset->scales[0] && i < dataset->rank; i++) {
		hid_t id = sl_hdf5_noted(H5Dopen2(file->id, dataset->scales[i], H5P_DEFAULT));
		htri_t there = H5Aexists(id, "REFERENCE_LIST");

		if (there < 0 || (!there && !add_references(file, id, dataset->scales[i])))
			err = sl_h5_fail(file, -EIO, "'%s' cannot refer to its datasets",
			                 dataset->scales[i]);
		H5Dclose(id);
		if (!err && !there)
			err = sl_h5_added(file);
	}
	return err;
}
