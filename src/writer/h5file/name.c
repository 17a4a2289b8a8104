/* SPDX-License-Identifier: Apache-2.0 */
/* Names in the file: checking them, and making the groups on their path.
 * Threads: the file thread. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "h5file/h5file_internal.h"

#define PART_MOST 1000 /* bytes */

/* -------------------------------------------------------------------------------------- checks */

static int check_part(const char *name, const char *part, size_t length)
{
	if (!length)
		return sl_fail(-EINVAL, "'%s' is no name for a dataset: a part of it is empty",
		               name);
	if (length > PART_MOST)
		return sl_fail(-ENAMETOOLONG, "a part of the name of a dataset is longer than %d",
		               PART_MOST);
	if (part[0] == '.' && (length == 1 || (length == 2 && part[1] == '.')))
		return sl_fail(-EINVAL, "'%s' is no name for a dataset: it has no '.' and '..'",
		               name);
	return 0;
}

int sl_h5_name_new(const char *name, char **out)
{
	const char *part = name + (name[0] == '/');
	int err = 0;

	for (const char *slash = part; !err && slash; part = slash + 1) {
		slash = strchr(part, '/');
		err = check_part(name, part, slash ? (size_t)(slash - part) : strlen(part));
		if (!slash)
			break;
	}
	if (!err && asprintf(out, "%s%s", name[0] == '/' ? "" : "/", name) < 0)
		err = sl_fail(-ENOMEM, "no memory");
	return err;
}

/* Returns the kind of the object, or H5I_BADID if there is none. All groups on its path exist. */
static H5I_type_t object_kind(const struct sl_h5_file *file, const char *path)
{
	H5I_type_t kind = H5I_FILE; /* none of the file: a link that leads nowhere */
	hid_t object;

	if (H5Lexists(file->id, path, H5P_DEFAULT) <= 0)
		return H5I_BADID;
	object = H5Oopen(file->id, path, H5P_DEFAULT);
	if (object >= 0) {
		kind = H5Iget_type(object);
		H5Oclose(object);
	}
	return kind;
}

/* -------------------------------------------------------------------------------------- groups */

static int make_group(struct sl_h5_file *file, const char *path)
{
	hid_t list = H5Pcreate(H5P_GROUP_CREATE), group = H5I_INVALID_HID;

	if (H5Pset_local_heap_size_hint(list, SL_H5_NAMES) >= 0 &&
	    H5Pset_obj_track_times(list, false) >= 0)
		group = sl_hdf5_noted(H5Gcreate2(file->id, path, H5P_DEFAULT, list, H5P_DEFAULT));
	H5Pclose(list);
	if (group < 0 || H5Gclose(group) < 0)
		return sl_h5_fail(file, -EIO, "group '%s' cannot be made", path);
	return sl_h5_added(file);
}

static int need_group(struct sl_h5_file *file, const char *path, bool make)
{
	H5I_type_t kind = object_kind(file, path);

	if (kind == H5I_GROUP)
		return 0;
	if (kind != H5I_BADID)
		return sl_fail(-EEXIST, "'%s' is in the file, and is no group", path);
	return make ? make_group(file, path) : -ENOENT;
}

/* Walks the groups before the last part; -ENOENT without a sentence if a group is missing. */
static int groups_walk(struct sl_h5_file *file, const char *path, bool make)
{
	char *part = strdup(path);
	int err = part ? 0 : sl_fail(-ENOMEM, "no memory");

	for (char *slash = part; !err && (slash = strchr(slash + 1, '/')); *slash = '/') {
		*slash = '\0';
		err = need_group(file, part, make);
	}
	free(part);
	return err;
}

int sl_h5_name_groups(struct sl_h5_file *file, const char *path)
{
	return groups_walk(file, path, true);
}

int sl_h5_name_find(struct sl_h5_file *file, const char *path)
{
	int err = groups_walk(file, path, false);
	H5I_type_t kind;

	if (err)
		return err == -ENOENT ? 0 : err;
	kind = object_kind(file, path);
	if (kind == H5I_BADID || kind == H5I_DATASET)
		return kind == H5I_DATASET;
	return sl_fail(-EEXIST, "'%s' is in the file, and is no dataset", path);
}
