/* SPDX-License-Identifier: Apache-2.0 */
#include "h5file/new_file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#define ATTEMPTS   100
#define LEAST_FD   3
#define SELF_BYTES sizeof("/proc/self/fd/-2147483648")

/* --------------------------------------------------------------------------------------- names */

int sl_new_file_resolve(const char *path, char **out)
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
		if (parent && asprintf(out, "%s/%s", strcmp(parent, "/") ? parent : "", base) < 0)
			*out = NULL;
		free(parent);
	}
	return *out ? 0 : sl_fail(-errno, "cannot open '%s': %s", path, sl_error_text(-errno));
}

/* With its slash; the caller frees it. */
static char *folder_of(const char *path)
{
	return strndup(path, strrchr(path, '/') - path + 1);
}

/* ".name.0123456789abcdef.sluice" in the same folder. */
static char *temporary_name(const char *path)
{
	int folder = (int)(strrchr(path, '/') - path + 1);
	uint64_t random = 0;
	char *name;

	if (getrandom(&random, sizeof(random), 0) != sizeof(random) ||
	    asprintf(&name, "%.*s.%.200s.%016" PRIx64 ".sluice", folder, path, path + folder,
	             random) < 0)
		return NULL;
	return name;
}

static void self_name(int fd, char *out)
{
	snprintf(out, SELF_BYTES, "/proc/self/fd/%d", fd);
}

/* ---------------------------------------------------------------------------------------- open */

/* st_mode stays 0 where there is nothing. */
static int check_target(const char *path, bool replace, struct stat *there)
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

/* A descriptor, or -errno; not every file system has files without a name. */
static int open_nameless(const char *path, mode_t mode)
{
	char self[SELF_BYTES], *folder = folder_of(path);
	int fd, err;

	if (!folder)
		return -ENOMEM;
	fd = open(folder, O_TMPFILE | O_RDWR | O_CLOEXEC, mode);
	err = fd < 0 ? -errno : 0;
	free(folder);
	if (err)
		return err;
	/* It is given its name by way of this. */
	self_name(fd, self);
	if (!access(self, F_OK))
		return fd;
	close(fd);
	return -EOPNOTSUPP;
}

static int open_temporary(struct sl_new_file *file, mode_t mode)
{
	for (int i = 0; i < ATTEMPTS; i++) {
		char *name = temporary_name(file->path);
		int fd, err;

		if (!name)
			return -ENOMEM;
		fd = open(name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, mode);
		if (fd >= 0) {
			file->temporary = name;
			return fd;
		}
		err = -errno;
		free(name);
		if (err != -EEXIST)
			return err;
	}
	return -EEXIST;
}

/*
 * Owner, group and permissions of the file that is replaced, as far as this process may give them
 * away. A set-ID bit is worth something only with the owner that it was set for.
 */
static void take_over(int fd, const struct stat *old, bool keep_mode)
{
	struct stat now;
	mode_t mode;

	if (fstat(fd, &now))
		return;
	mode = (keep_mode ? old->st_mode : now.st_mode) & 07777;
	if ((now.st_uid != old->st_uid || now.st_gid != old->st_gid) &&
	    fchown(fd, old->st_uid, old->st_gid) && fchown(fd, (uid_t)-1, old->st_gid)) {
		/* It stays with who writes it. */
	}
	if (fstat(fd, &now))
		return;
	mode &= now.st_uid != old->st_uid ? ~(mode_t)S_ISUID : ~(mode_t)0;
	mode &= now.st_gid != old->st_gid ? ~(mode_t)S_ISGID : ~(mode_t)0;
	/* To give a file away takes its set-ID bits too. */
	if (mode != (now.st_mode & 07777))
		fchmod(fd, mode);
}

static int move_up(int fd)
{
	int up = fcntl(fd, F_DUPFD_CLOEXEC, LEAST_FD), err = errno;

	close(fd);
	return up < 0 ? -err : up;
}

int sl_new_file_open(char *path, bool replace, unsigned mode, struct sl_new_file *out)
{
	struct sl_new_file file = {.path = path, .replace = replace, .fd = -1};
	mode_t made = mode ? mode & 07777 : 0666;
	struct stat existing = {0};
	int err = check_target(path, replace, &existing);

	if (err) {
		free(path);
		return err;
	}
	file.fd = open_nameless(path, made);
	if (file.fd == -EOPNOTSUPP || file.fd == -EISDIR || file.fd == -EINVAL)
		file.fd = open_temporary(&file, made);
	if (file.fd >= 0 && file.fd < LEAST_FD)
		file.fd = move_up(file.fd);
	if (file.fd < 0) {
		err = sl_fail(file.fd, "cannot make '%s': %s", path, sl_error_text(file.fd));
		sl_new_file_close(&file);
		return err;
	}
	if (existing.st_mode)
		take_over(file.fd, &existing, !mode);
	*out = file;
	return 0;
}

/* ---------------------------------------------------------------------------------------- name */

/* Without renameat2() a link fails just as well if the name is taken. */
static int rename_to_new(const char *from, const char *to)
{
	if (!renameat2(AT_FDCWD, from, AT_FDCWD, to, RENAME_NOREPLACE))
		return 0;
	if (errno != EINVAL && errno != ENOSYS)
		return -errno;
	if (link(from, to))
		return -errno;
	unlink(from);
	return 0;
}

static int link_to(int fd, const char *name)
{
	char self[SELF_BYTES];

	self_name(fd, self);
	return linkat(AT_FDCWD, self, AT_FDCWD, name, AT_SYMLINK_FOLLOW) ? -errno : 0;
}

/* No link replaces a name: so there is a temporary one in between. */
static int name_to_replace(struct sl_new_file *file)
{
	int err = 0;

	for (int i = 0; !err && !file->temporary; i++) {
		char *name = temporary_name(file->path);

		err = name ? link_to(file->fd, name) : -ENOMEM;
		if (!err)
			file->temporary = name;
		else
			free(name);
		if (err == -EEXIST && i < ATTEMPTS)
			err = 0;
	}
	return err || !rename(file->temporary, file->path) ? err : -errno;
}

static int sync_folder(const struct sl_new_file *file)
{
	char *folder = folder_of(file->path);
	int fd, err;

	if (!folder)
		return sl_fail(-ENOMEM, "no memory");
	fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	/* The file, too: its owner and permissions. */
	err = fd < 0 || fsync(file->fd) || fsync(fd) ? -errno : 0;
	if (fd >= 0)
		close(fd);
	free(folder);
	return err ? sl_fail(err, "cannot sync the folder of '%s': %s", file->path,
	                     sl_error_text(err))
	           : 0;
}

int sl_new_file_name(struct sl_new_file *file, bool durable)
{
	int err;

	if (file->named)
		return 0;
	if (file->replace)
		err = name_to_replace(file);
	else if (file->temporary)
		err = rename_to_new(file->temporary, file->path);
	else
		err = link_to(file->fd, file->path);
	if (err)
		return sl_fail(err, "cannot give '%s' its name: %s", file->path,
		               sl_error_text(err));
	file->named = true;
	free(file->temporary);
	file->temporary = NULL;
	return durable ? sync_folder(file) : 0;
}

void sl_new_file_close(struct sl_new_file *file)
{
	if (file->temporary)
		unlink(file->temporary);
	free(file->temporary);
	free(file->path);
	if (file->fd >= 0)
		close(file->fd);
	*file = (struct sl_new_file){.fd = -1};
}
