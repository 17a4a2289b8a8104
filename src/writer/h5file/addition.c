/* SPDX-License-Identifier: Apache-2.0 */
/* Additions of a program beside series: coordinates and attributes.
 * Threads: the file thread. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "h5file/h5file_internal.h"

/* An existing coordinate must have the same values. */
static int check_coordinate(struct sl_h5_file *file, const char *path,
                            const struct sl_h5_coordinate *c, hid_t wanted)
{
	hid_t id = sl_hdf5_noted(H5Dopen2(file->id, path, H5P_DEFAULT)), type = H5Dget_type(id);
	void *values = malloc(c->count * c->element);
	bool same = values && H5Tequal(type, wanted) > 0 &&
	            sl_h5_scale_length(file, path) == (int64_t)c->count &&
	            H5Dread(id, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, values) >= 0 &&
	            !memcmp(values, c->values, c->count * c->element);

	free(values);
	H5Tclose(type);
	H5Dclose(id);
	return same ? 0
	            : sl_fail(-EEXIST,
	                      "'%s' is in the file, and is not a coordinate of these values", path);
}

static int make_coordinate(struct sl_h5_file *file, const char *path,
                           const struct sl_h5_coordinate *c, hid_t type)
{
	int err = sl_h5_name_groups(file, path);
	hid_t id = H5I_INVALID_HID;

	if (err)
		return err;
	id = sl_h5_column(file, path, type, c->count);
	if (id < 0 ||
	    sl_hdf5_noted(H5Dwrite(id, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, c->values)) < 0)
		err = sl_h5_fail(file, -EIO, "'%s' cannot be written", path);
	if (!err)
		err = sl_h5_scale_mark(file, id, path);
	if (!err)
		err = sl_h5_attributes_add(file, id, path, c->attributes, c->attribute_count);
	H5Dclose(id);
	return err ? err : sl_h5_added(file);
}

int sl_h5_coordinate_add(struct sl_h5_file *file, const struct sl_h5_coordinate *c)
{
	int err = sl_h5_attributes_check(c->attributes, c->attribute_count), found;
	char *path = NULL;
	hid_t type;

	if (!err)
		err = file->own.named ? sl_h5_file_flush(file) : sl_h5_error(file);
	if (!err && (err = sl_h5_room(file, c->count * c->element)))
		sl_fail(err, "'%s': no room for '%s': %s", file->own.path, c->name,
		        sl_error_text(err));
	if (!err)
		err = sl_h5_name_new(c->name, &path);
	if (err)
		return err;
	sl_hdf5_enter();
	type = sl_h5_type(c->type, c->element);
	found = sl_h5_name_find(file, path);
	err = found < 0 ? found
	      : found   ? check_coordinate(file, path, c, type)
	                : make_coordinate(file, path, c, type);
	H5Tclose(type);
	sl_hdf5_leave();
	free(path);
	return err;
}

int sl_h5_attributes_give(struct sl_h5_file *file, struct sl_h5_dataset *dataset,
                          const struct sluice_attribute *list, size_t count)
{
	int err = sl_h5_attributes_check(list, count);
	hid_t object = dataset ? dataset->id : file->id;

	if (!err)
		err = file->own.named ? sl_h5_file_flush(file) : sl_h5_error(file);
	sl_hdf5_enter();
	for (size_t i = 0; !err && i < count; i++)
		if (H5Aexists(object, list[i].name) > 0)
			err = sl_fail(-EEXIST, "there is an attribute '%s' already", list[i].name);
	if (!err)
		err = sl_h5_attributes_add(file, object, dataset ? dataset->name : "/", list,
		                           count);
	if (!err && file->own.named)
		err = sl_h5_flush(file);
	sl_hdf5_leave();
	return err;
}
