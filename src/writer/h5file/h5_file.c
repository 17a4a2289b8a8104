/* SPDX-License-Identifier: Apache-2.0 */
/* The HDF5 file: opening, flush and end.
 * Threads: the file thread. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "h5file/h5file_internal.h"
#include "h5file/word.h"

/* ---------------------------------------------------------------------------------- all of them */

/* HDF5 would open a file that it has open a second time, and share it. */
static struct {
	struct sl_mutex mutex;
	struct sl_list files; /* guarded by mutex */
} all = {SL_MUTEX_INIT, {&all.files, &all.files}};

static int file_enlist(struct sl_h5_file *file)
{
	struct stat status;
	int err = 0;

	if (fstat(file->own.fd, &status))
		return sl_fail(-errno, "cannot look at '%s': %s", file->own.path,
		               sl_error_text(-errno));
	file->device = status.st_dev;
	file->inode = status.st_ino;
	sl_mutex_lock(&all.mutex);
	sl_list_each_of (other, &all.files, struct sl_h5_file, open)
		if ((file->device == other->device && file->inode == other->inode) ||
		    !strcmp(file->own.path, other->own.path))
			err = -EBUSY;
	if (!err)
		sl_list_append(&all.files, &file->open);
	sl_mutex_unlock(&all.mutex);
	return err ? sl_fail(err, "this process has '%s' open for frames already", file->own.path)
	           : 0;
}

static void file_delist(struct sl_h5_file *file)
{
	sl_mutex_lock(&all.mutex);
	if (sl_list_linked(&file->open))
		sl_list_remove(&file->open);
	sl_mutex_unlock(&all.mutex);
}

/* --------------------------------------------------------------------------------------- open */

int sl_h5_usable(unsigned flags)
{
	return sl_hdf5_start(flags & SLUICE_WRITER_ONLY_HDF5);
}

/* Returns the driver's error, or `otherwise` if HDF5 itself refused. */
static int file_error(const struct sl_h5_file *file, int otherwise)
{
	return file->vfd.error ? file->vfd.error : otherwise;
}

/* Before HDF5 opens it: formats from 2 on are changed by that. The signature is at 0, or behind
 * a block of the user's at 512, 1024, ... */
static int check_superblock(const struct sl_h5_file *file)
{
	static const char signature[] = {'\x89', 'H', 'D', 'F', '\r', '\n', '\x1a', '\n'};
	char head[sizeof(signature) + 1];
	struct stat status;

	if (fstat(file->own.fd, &status))
		return sl_fail(-errno, "cannot look at '%s': %s", file->own.path,
		               sl_error_text(-errno));
	for (off_t at = 0; at < status.st_size; at = at ? 2 * at : 512) {
		if (pread(file->own.fd, head, sizeof(head), at) != sizeof(head) ||
		    memcmp(head, signature, sizeof(signature)))
			continue;
		if (head[sizeof(signature)] <= 1)
			return 0;
		return sl_fail(-EBADMSG,
		               "'%s' is in HDF5's format of version %d (see libver), and only 0 "
		               "and 1 can be continued: they are valid at every moment; %s",
		               file->own.path, head[sizeof(signature)], SL_H5_REPACK);
	}
	return sl_fail(-EBADMSG, "'%s' is no HDF5 file", file->own.path);
}

static int file_open_old(struct sl_h5_file *file, hid_t access)
{
	int err = check_superblock(file);
	size_t address = 0, length = 0;
	hid_t list;

	if (err)
		return err;
	/* For sl_h5_truncate(). */
	H5Pset_evict_on_close(access, true);
	file->id = H5Fopen(file->own.path, H5F_ACC_RDWR, access);
	if (file->id < 0)
		return sl_hdf5_fail(file_error(file, -EBADMSG), "'%s' cannot be continued",
		                    file->own.path);
	list = H5Fget_create_plist(file->id);
	H5Pget_userblock(list, &file->base);
	if (H5Pget_sizes(list, &address, &length) < 0 || address != 8 || length != 8)
		err = sl_fail(-EBADMSG, "'%s' has offsets or lengths that are not of 8 bytes",
		              file->own.path);
	H5Pclose(list);
	return err;
}

static int create_new(struct sl_h5_file *file, hid_t access)
{
	hid_t list = H5Pcreate(H5P_FILE_CREATE);
	int err = -EIO;

	/* All else by default: HDF5 writes version 0 of its format, which every reader has. */
	if (H5Pset_local_heap_size_hint(list, SL_H5_NAMES) >= 0)
		file->id = sl_hdf5_noted(H5Fcreate(file->own.path, H5F_ACC_TRUNC, list, access));
	H5Pclose(list);
	/* By this word a later writer knows what this one leaves behind, if it is killed before its
	 * first flush. */
	if (file->id >= 0)
		err = file->own.temporary ? sl_word_write(file->own.fd, 1) : 0;
	err = err ? file_error(file, err) : 0;
	return err ? sl_hdf5_fail(err, "cannot make '%s': %s", file->own.path, sl_error_text(err))
	           : 0;
}

/* With HDF5's lock, here and below. */
static int open_with_hdf5(struct sl_h5_file *file)
{
	hid_t access = H5Pcreate(H5P_FILE_ACCESS);
	int err;

	if (access < 0)
		return sl_hdf5_fail(-ENOMEM, "HDF5 has no memory");
	err = sl_ordered_vfd_set(access, &file->vfd);
	/* HDF5 flushes by itself after it has made a file, and when exit() or H5close() of the
	 * program takes it down, maybe with a partly stored frame. */
	file->vfd.flush_blocked = true;
	/* A forgotten id does not keep the file open. HDF5 2 has a later format by default. */
	if (!err && (H5Pset_fclose_degree(access, H5F_CLOSE_STRONG) < 0 ||
	             H5Pset_libver_bounds(access, H5F_LIBVER_EARLIEST, H5F_LIBVER_LATEST) < 0))
		err = sl_hdf5_fail(-EIO, "HDF5 refuses its settings");
	if (!err)
		err = file->own.named ? file_open_old(file, access) : create_new(file, access);
	H5Pclose(access);
	return err;
}

/* A file that is there is continued under its name. */
static int open_named(char *path, struct sl_new_file *out)
{
	int fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NOCTTY | O_NONBLOCK);
	int err = fd < 0 ? -errno : 0;
	struct stat status;

	if (!err && fstat(fd, &status))
		err = -errno;
	if (!err && !S_ISREG(status.st_mode))
		err = -EBADMSG;
	if (!err) {
		*out = (struct sl_new_file){.path = path, .named = true, .fd = fd};
		return 0;
	}
	sl_fail(err, "cannot open '%s': %s", path,
	        err == -EBADMSG ? "it is no regular file" : sl_error_text(err));
	if (fd >= 0)
		close(fd);
	free(path);
	return err;
}

static int file_open_own(const char *path, const struct sl_h5_file_options *o,
                         struct sl_new_file *out)
{
	char *target;
	int there = sl_path_resolve(path, &target);

	if (there < 0)
		return there;
	if (there && o->flags & SLUICE_WRITER_APPEND)
		return open_named(target, out);
	return sl_new_file_open(target, o->flags & SLUICE_WRITER_REPLACE, !o->shared, o->mode, out);
}

static void h5_file_free(struct sl_h5_file *file)
{
	file_delist(file);
	sl_new_file_close(&file->own);
	free(file);
}

/* The driver asks inside HDF5, on the file thread. */
static bool header_has_frames(const struct sl_ordered_vfd *vfd, uint64_t offset)
{
	const struct sl_h5_file *file = SL_CONTAINER(vfd, const struct sl_h5_file, vfd);

	sl_list_each_of (dataset, &file->datasets, struct sl_h5_dataset, link) {
		if (dataset->header == offset)
			return true;
	}
	return false;
}

int sl_h5_file_open(const char *path, const struct sl_h5_file_options *o, struct sl_h5_file **out)
{
	int err = sl_h5_attributes_check(o->attributes, o->attribute_count);
	struct sl_h5_file *file;

	if (!err)
		err = sl_h5_usable(o->flags);
	if (err)
		return err;
	file = calloc(1, sizeof(*file));
	if (!file)
		return sl_fail(-ENOMEM, "no memory");
	sl_list_init(&file->datasets);
	file->id = H5I_INVALID_HID;
	file->own.fd = -1;
	file->durable = o->flags & SLUICE_WRITER_DURABLE;
	err = file_open_own(path, o, &file->own);
	if (!err)
		err = file_enlist(file);
	if (err) {
		h5_file_free(file);
		return err;
	}
	file->vfd = (struct sl_ordered_vfd){.durable = file->durable,
	                                    .held_limit = o->held_limit,
	                                    .fd = file->own.fd,
	                                    .has_frames = header_has_frames};
	file->apart = o->apart;
	file->full = o->full;
	file->argument = o->argument;
	sl_hdf5_enter();
	err = open_with_hdf5(file);
	file->untouched = file->own.named;
	/* In an existing file with the first flush: ranks may refuse to open it. */
	if (!err)
		err = sl_h5_attributes_add(file, file->id, "/", o->attributes, o->attribute_count);
	sl_hdf5_leave();
	if (err)
		sl_h5_file_close(file, false);
	else
		*out = file;
	return err;
}

const char *sl_h5_file_name(const struct sl_h5_file *file)
{
	return file->own.named ? file->own.path : file->own.temporary;
}

int sl_h5_file_vacate(struct sl_h5_file *file)
{
	if ((!file->own.named && !file->own.replace) || !unlink(file->own.path) || errno == ENOENT)
		return 0;
	return sl_fail(-errno, "cannot remove '%s': %s", file->own.path, sl_error_text(-errno));
}

/* -------------------------------------------------------------------------------------- close */

/* A flush leaves no held metadata; without a flush it is dropped. */
static int close_with_hdf5(struct sl_h5_file *file, bool keep)
{
	int err = 0;

	if (!keep && !file->vfd.error)
		file->vfd.error = -ECANCELED;
	file->vfd.flush_blocked = false;
	/* HDF5 may write headers meanwhile, and the driver asks for the series. */
	for (struct sl_list *link; (link = sl_list_take(&file->datasets));)
		sl_h5_dataset_free(SL_CONTAINER(link, struct sl_h5_dataset, link));
	if (file->id >= 0 && H5Fclose(file->id) < 0)
		err = -EIO;
	else
		file->id = H5I_INVALID_HID;
	if (keep && !file->error && (err || file->vfd.error))
		sl_h5_fail(file, -EIO, "it cannot be closed");
	return sl_h5_error(file);
}

int sl_h5_file_close(struct sl_h5_file *file, bool keep)
{
	int err;

	if (keep && !sl_h5_datasets_flush(file, true))
		sl_h5_file_pack(file);
	sl_hdf5_enter();
	err = close_with_hdf5(file, keep && !file->untouched);
	/* Clears HDF5's error stack, which may have messages about unknown filters even after
	 * success. HDF5 would leak them if the thread ends. */
	H5Eclear2(H5E_DEFAULT);
	sl_hdf5_leave();
	/* If HDF5 has not let go of it, it may come back to the driver. */
	if (file->id < 0)
		h5_file_free(file);
	else
		file_delist(file);
	return err;
}

uint64_t sl_h5_file_held(const struct sl_h5_file *file)
{
	return file->vfd.held;
}
