/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Replacing local files (SLUICE_OPEN_REPLACE)
 *
 * Writes a file under a temporary name, or under the name of a part that the caller has given
 * (options.part), and renames it on commit. Runs on the threads of sluice_open() and
 * sluice_close(), and may wait for storage.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "local/local_internal.h"

/* Resolves symbolic links, because the file is replaced and not the link, and makes the path
 * absolute, because the process may change its directory before commit. */
static int replace_resolve(struct sl_local *local)
{
	char *target;
	int rc = sl_path_resolve(local->path, &target);

	if (rc < 0)
		return rc;
	free(local->path);
	local->path = target;
	return 0;
}

/* Returns whether the path still leads to the file. */
static bool file_is_at(int fd, const char *path)
{
	struct stat own, there;

	return !fstat(fd, &own) && !lstat(path, &there) && own.st_dev == there.st_dev &&
	       own.st_ino == there.st_ino;
}

/* Opens the part with an earlier run's bytes, or an empty one. Closing it ends the lock. */
static int replace_open_part(struct sl_local *local, const char *name, mode_t mode)
{
	int folder = (int)(strrchr(local->path, '/') + 1 - local->path), fd, rc = 0;
	struct stat stat;
	char *path;

	if (asprintf(&path, "%.*s%s", folder, local->path, name) < 0)
		return sl_fail(-ENOMEM, "no memory");
	fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK,
	          mode | S_IRUSR | S_IWUSR);
	if (fd < 0)
		rc = sl_fail(-errno, "cannot open '%s': %s", path, sl_error_text(-errno));
	/* A file of another user, or with another name, may hold anything. */
	else if (fstat(fd, &stat) || !S_ISREG(stat.st_mode) || stat.st_uid != geteuid() ||
	         stat.st_nlink > 1)
		rc = sl_fail(-EPERM, "'%s' is no regular file of this user alone", path);
	else if (flock(fd, LOCK_EX | LOCK_NB) || !file_is_at(fd, path))
		rc = sl_fail(-EBUSY, "'%s' cannot be locked: another process writes it", path);
	if (rc) {
		if (fd >= 0)
			close(fd);
		free(path);
		return rc;
	}
	local->temporary = path;
	local->part = true;
	local->lent = ~mode & (S_IRUSR | S_IWUSR);
	return fd;
}

int sl_replace_open(struct sl_local *local, const struct sluice_open_options *options)
{
	struct stat existing = {0};
	int rc = replace_resolve(local);

	if (!rc)
		rc = sl_path_replaceable(local->path, !(local->flags & SLUICE_OPEN_EXCLUSIVE),
		                         &existing);
	if (rc)
		return rc;
	if (options->part)
		return replace_open_part(local, options->part,
		                         options->mode ? options->mode : 0666);
	int fd = sl_temporary_open(local->path, options->mode ? options->mode & 07777 : 0666,
	                           &local->temporary);
	if (fd == -EEXIST)
		return sl_fail(fd, "no free name beside '%s'", local->path);
	if (fd < 0)
		return sl_fail(fd, "cannot make '%s': %s", local->path, sl_error_text(fd));
	/* Without options.mode the permissions of the replaced file are kept. */
	if (existing.st_mode)
		sl_copy_ownership(fd, &existing, !options->mode);
	return fd;
}

/* Gives the part the permissions and the owner that a new file would have got at open. */
static void replace_end_part(struct sl_local *local)
{
	struct stat stat;

	if (local->lent && !fstat(local->descriptor, &stat))
		fchmod(local->descriptor, stat.st_mode & 07777 & ~local->lent);
	if (!lstat(local->path, &stat))
		sl_copy_ownership(local->descriptor, &stat, false);
}

int sl_replace_commit(struct sl_local *local)
{
	int rc;

	if (!local->temporary)
		return 0;
	if (local->part && !file_is_at(local->descriptor, local->temporary))
		return sl_fail(-ESTALE, "'%s' is another file now", local->temporary);
	if (local->part)
		replace_end_part(local);
	if (local->flags & SLUICE_OPEN_EXCLUSIVE)
		rc = sl_rename_to_new(local->temporary, local->path);
	else
		rc = rename(local->temporary, local->path) ? -errno : 0;
	if (rc)
		return sl_fail(rc, "cannot give '%s' its name: %s", local->path, sl_error_text(rc));
	free(local->temporary);
	local->temporary = NULL;
	return 0;
}

void sl_replace_abandon(struct sl_local *local)
{
	struct stat stat;

	if (!local->temporary)
		return;
	if (!local->part || (!fstat(local->descriptor, &stat) && !stat.st_size &&
	                     file_is_at(local->descriptor, local->temporary)))
		unlink(local->temporary);
	free(local->temporary);
	local->temporary = NULL;
}
