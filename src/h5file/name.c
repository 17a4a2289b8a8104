/* SPDX-License-Identifier: Apache-2.0 */
/* Names in the file: what they may be, the groups on their way, and room for them. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "h5file/dataset.h"

/* Of a part: with its zero it fits into the block of names of a group. */
#define PART_MOST 1000

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

int sl_frame_name_new(const char *name, char **out)
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

/* What kind of object it is; H5I_BADID: there is none. Every part before the last is there. */
static H5I_type_t kind_of(const struct sl_frame_file *file, const char *path)
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

static int make_group(struct sl_frame_file *file, const char *path)
{
	hid_t list = H5Pcreate(H5P_GROUP_CREATE), group = H5I_INVALID_HID;
	int err = sl_frame_name_room(file, path);

	if (err) {
		H5Pclose(list);
		return err;
	}
	if (H5Pset_local_heap_size_hint(list, SL_FRAME_NAMES) >= 0 &&
	    H5Pset_obj_track_times(list, false) >= 0)
		group = sl_hdf5_noted(H5Gcreate2(file->id, path, H5P_DEFAULT, list, H5P_DEFAULT));
	H5Pclose(list);
	if (group < 0 || H5Gclose(group) < 0)
		return sl_frame_fail(file, -EIO, "group '%s' cannot be made", path);
	return sl_frame_name_added(file, path);
}

static int need_group(struct sl_frame_file *file, const char *path, bool make)
{
	H5I_type_t kind = kind_of(file, path);

	if (kind == H5I_GROUP)
		return 0;
	if (kind != H5I_BADID)
		return sl_fail(-EEXIST, "'%s' is in the file, and is no group", path);
	return make ? make_group(file, path) : -ENOENT;
}

/* Each group before the last part; -ENOENT without a sentence if one is not there. */
static int walk(struct sl_frame_file *file, const char *path, bool make)
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

int sl_frame_name_groups(struct sl_frame_file *file, const char *path)
{
	return walk(file, path, true);
}

int sl_frame_name_find(struct sl_frame_file *file, const char *path)
{
	int err = walk(file, path, false);
	H5I_type_t kind;

	if (err)
		return err == -ENOENT ? 0 : err;
	kind = kind_of(file, path);
	if (kind == H5I_BADID || kind == H5I_DATASET)
		return kind == H5I_DATASET;
	return sl_fail(-EEXIST, "'%s' is in the file, and is no dataset", path);
}

/* ---------------------------------------------------------------------------------------- room */

/* A block of names that outgrew its first place is not written in one piece with its head any more. */
#define HEAD      32
#define FIRST     88 /* as HDF5 makes it without a hint */
#define FREE_HEAD 16 /* a rest is as long, or there is none */

/* As it lies among the names. */
static size_t name_bytes(size_t length)
{
	return (length + 1 + 7) / 8 * 8;
}

static herr_t add_name(hid_t group, const char *name, const H5L_info_t *info, void *argument)
{
	size_t *used = argument;

	(void)group;
	*used += name_bytes(strlen(name));
	/* The target of a soft link; its length counts the zero. */
	if (info->type == H5L_TYPE_SOFT)
		*used += name_bytes(info->u.val_size - 1);
	return 0;
}

/* The bytes of the group's block of names; 0: it has another format, or HDF5 says no. */
static size_t block_bytes(hid_t group)
{
	H5G_info_t kind;
	H5O_info_t info;

	if (H5Gget_info(group, &kind) < 0 || kind.storage_type != H5G_STORAGE_TYPE_SYMBOL_TABLE ||
	    H5Oget_info2(group, &info, H5O_INFO_META_SIZE) < 0)
		return 0;
	return info.meta_size.obj.heap_size - HEAD;
}

/* The group of a path; closed by the caller. Negative: there is a sentence. */
static hid_t open_parent(struct sl_frame_file *file, const char *path)
{
	char *parent = strndup(path, strrchr(path, '/') + 1 - path);
	hid_t group = parent ? H5Gopen2(file->id, parent, H5P_DEFAULT) : H5I_INVALID_HID;

	if (group < 0)
		sl_hdf5_fail(-EIO, "the group of '%s' cannot be opened", path);
	free(parent);
	return group;
}

static bool has_first_place(size_t block)
{
	return block == FIRST || block == SL_FRAME_NAMES;
}

static int check_room(hid_t group, const char *path)
{
	size_t block = block_bytes(group), used = name_bytes(0), rest;
	size_t need = name_bytes(strlen(strrchr(path, '/') + 1));

	if (H5Literate(group, H5_INDEX_NAME, H5_ITER_NATIVE, NULL, add_name, &used) < 0)
		return sl_hdf5_fail(-EIO, "the names beside '%s' cannot be read", path);
	rest = block > used ? block - used : 0;
	if (has_first_place(block) && (rest == need || rest >= need + FREE_HEAD))
		return 0;
	return sl_fail(-ENOSPC,
	               "'%s' cannot be added: its group has no more room for names that could be "
	               "filled while others read",
	               path);
}

int sl_frame_name_room(struct sl_frame_file *file, const char *path)
{
	hid_t group;
	int err;

	if (!file->own.named)
		return 0;
	group = open_parent(file, path);
	if (group < 0)
		return -EIO;
	err = check_room(group, path);
	H5Gclose(group);
	return err;
}

/* Where names were deleted, what is left is in pieces. */
int sl_frame_name_added(struct sl_frame_file *file, const char *path)
{
	hid_t group;
	bool moved;

	if (!file->own.named)
		return 0;
	group = open_parent(file, path);
	if (group < 0)
		return sl_frame_fail(file, -EIO, "%s", sluice_last_message());
	moved = !has_first_place(block_bytes(group));
	H5Gclose(group);
	if (moved)
		return sl_frame_fail(file, -ENOSPC, "there was no room for the name '%s'", path);
	return sl_frame_flush(file);
}
