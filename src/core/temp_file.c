/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Temporary files
 *
 * Files that are written under a temporary name and renamed when they are complete, for local files
 * and for HDF5 files. Any thread; all functions may wait for storage.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/core.h"

int sl_path_resolve(const char *path, char **out)
{
	const char *slash = strrchr(path, '/');
	const char *base = slash ? slash + 1 : path;
	char *target = realpath(path, NULL), *folder, *parent;

	*out = target;
	if (target)
		return 1;
	if (errno == ENOENT && *base) {
		folder = slash ? strndup(path, slash - path + 1) : strdup(".");
		parent = folder ? realpath(folder, NULL) : NULL;
		free(folder);
		if (parent)
			*out = sl_format("%s/%s", strcmp(parent, "/") ? parent : "", base);
		free(parent);
	}
	if (*out)
		return 0;
	if (errno == ENOENT && slash && *base)
		return sl_fail(-ENOENT, "cannot make '%s': there is no folder '%.*s'", path,
		               (int)SL_MAX(slash - path, 1), path);
	return sl_fail(-errno, "cannot open '%s': %s", path, sl_error_text(-errno));
}

int sl_path_replaceable(const char *path, bool replace, struct stat *there)
{
	if (lstat(path, there))
		return errno == ENOENT ? 0
		                       : sl_fail(-errno, "cannot open '%s': %s", path,
		                                 sl_error_text(-errno));
	if (!replace)
		return sl_fail(-EEXIST, "'%s' exists", path);
	if (S_ISDIR(there->st_mode))
		return sl_fail(-EISDIR, "'%s' is a directory", path);
	if (!S_ISREG(there->st_mode))
		return sl_fail(-ESPIPE, "'%s' is no regular file: it cannot be replaced", path);
	return 0;
}

char *sl_temporary_name(const char *path)
{
	int folder = (int)(strrchr(path, '/') - path + 1);
	uint64_t random = 0;

	if (getrandom(&random, sizeof(random), 0) != sizeof(random))
		return NULL;
	return sl_format("%.*s.%.200s.%016" PRIx64 ".sluice", folder, path, path + folder, random);
}

int sl_temporary_open(const char *path, mode_t mode, char **name)
{
	for (int i = 0; i < SL_TEMPORARY_ATTEMPTS; i++) {
		char *candidate = sl_temporary_name(path);
		int fd, err;

		if (!candidate)
			return -ENOMEM;
		fd = open(candidate, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, mode);
		if (fd >= 0) {
			*name = candidate;
			return fd;
		}
		err = -errno;
		free(candidate);
		if (err != -EEXIST)
			return err;
	}
	return -EEXIST;
}

void sl_copy_ownership(int fd, const struct stat *old, bool keep_mode)
{
	struct stat now;

	if (fstat(fd, &now))
		return;
	mode_t mode = (keep_mode ? old->st_mode : now.st_mode) & 07777;
	if ((now.st_uid != old->st_uid || now.st_gid != old->st_gid) &&
	    fchown(fd, old->st_uid, old->st_gid) && fchown(fd, (uid_t)-1, old->st_gid)) {
		/* The file keeps the owner of this process. */
	}
	if (fstat(fd, &now))
		return;
	mode &= now.st_uid != old->st_uid ? ~(mode_t)S_ISUID : ~(mode_t)0;
	mode &= now.st_gid != old->st_gid ? ~(mode_t)S_ISGID : ~(mode_t)0;
	/* chown() also removes set-ID bits. */
	if (mode != (now.st_mode & 07777))
		fchmod(fd, mode);
}

/* Returns whether a naming call failed because the file system, or a sandbox, lacks it. */
static bool name_call_lacks(void)
{
	return errno == EINVAL || errno == ENOSYS || errno == EPERM || errno == EOPNOTSUPP ||
	       errno == ENOTTY || errno == EMLINK;
}

/*
 * Takes the name by an empty file, for file systems that can do no more, as some that show objects
 * of a server. The empty file is closed first: such a file system may store a file, under its name,
 * when it is closed.
 */
static int name_by_empty_file(const char *from, const char *to)
{
	struct stat own = {0}, there;
	int fd = open(to, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600), err;

	if (fd < 0)
		return -errno;
	fstat(fd, &own);
	close(fd);
	if (!rename(from, to))
		return 0;
	err = errno;
	if (!lstat(to, &there) && there.st_ino == own.st_ino && there.st_dev == own.st_dev &&
	    !there.st_size)
		unlink(to);
	return -err;
}

/* Without renameat2() link() is used, which also fails if the name is taken. */
int sl_rename_to_new(const char *from, const char *to)
{
	if (!renameat2(AT_FDCWD, from, AT_FDCWD, to, RENAME_NOREPLACE))
		return 0;
	if (!name_call_lacks())
		return -errno;
	if (link(from, to))
		return name_call_lacks() ? name_by_empty_file(from, to) : -errno;
	unlink(from);
	return 0;
}

int64_t sl_modified_ns(const struct stat *st)
{
	const int64_t second = 1000000000, most = INT64_MAX / second - 1;

	/* Files of damaged archives have any time. */
	return SL_MAX(SL_MIN(st->st_mtim.tv_sec, most), -most) * second + st->st_mtim.tv_nsec;
}

int sl_sync_folder_of(const char *path)
{
	char *copy = strdup(path);
	int fd, rc = 0;

	if (!copy)
		return sl_fail(-ENOMEM, "no memory");
	fd = open(dirname(copy), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0 || fsync(fd))
		rc = sl_fail(-errno, "cannot sync the folder of '%s': %s", path,
		             sl_error_text(-errno));
	if (fd >= 0)
		close(fd);
	free(copy);
	return rc;
}
