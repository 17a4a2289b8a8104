/* SPDX-License-Identifier: Apache-2.0 */
/* A file without a name until its first flush: opening, naming and closing it.
 * Threads: the file thread. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "h5file/h5file_internal.h"
#include "h5file/word.h"

#define LEAST_FD   3
#define SELF_BYTES sizeof("/proc/self/fd/-2147483648")
#define LEFT_AFTER 60 /* seconds without a change */

/* --------------------------------------------------------------------------------------- names */

/* With its slash; the caller frees it. */
static char *folder_of(const char *path)
{
	return strndup(path, strrchr(path, '/') - path + 1);
}

static void self_name(int fd, char *out)
{
	snprintf(out, SELF_BYTES, "/proc/self/fd/%d", fd);
}

/* ---------------------------------------------------------------------------------------- open */

/* A descriptor, or -errno; not every file system has files without a name. */
static int new_file_open_nameless(const char *path, mode_t mode)
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

static bool is_temporary_of(const char *name, const char *prefix)
{
	size_t n = strlen(prefix),
	       digits = strspn(name + SL_MIN(n, strlen(name)), "0123456789abcdef");

	return !strncmp(name, prefix, n) && digits == 16 && !strcmp(name + n + digits, ".sluice");
}

/* A file of frames that no process has open for writing. Another node's lock may be invisible, so
 * its time counts, too. */
static bool is_left(int folder, const char *name)
{
	int fd = openat(folder, name, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	struct stat status;
	uint64_t word;
	bool left = fd >= 0 && !fstat(fd, &status) && time(NULL) - status.st_mtime > LEFT_AFTER &&
	            sl_word_read(fd, &word) == 1 && !sl_word_lock(fd, F_WRLCK);

	if (fd >= 0)
		close(fd);
	return left;
}

/* Removes files of processes that were killed before they could give them this name. */
static void new_file_remove_left(const char *path)
{
	char *folder = folder_of(path), *prefix = sl_format(".%.200s.", strrchr(path, '/') + 1);
	DIR *directory = folder ? opendir(folder) : NULL;
	struct dirent *entry;

	while (directory && prefix && (entry = readdir(directory)))
		if (is_temporary_of(entry->d_name, prefix) &&
		    is_left(dirfd(directory), entry->d_name))
			unlinkat(dirfd(directory), entry->d_name, 0);
	if (directory)
		closedir(directory);
	free(prefix);
	free(folder);
}

static int move_up(int fd)
{
	int up = fcntl(fd, F_DUPFD_CLOEXEC, LEAST_FD), err = errno;

	close(fd);
	return up < 0 ? -err : up;
}

int sl_new_file_open(char *path, bool replace, bool nameless, unsigned mode,
                     struct sl_new_file *out)
{
	struct sl_new_file file = {.path = path, .replace = replace, .fd = -EOPNOTSUPP};
	mode_t made = mode ? mode & 07777 : 0666;
	struct stat existing = {0};
	int err = sl_path_replaceable(path, replace, &existing);

	if (err) {
		free(path);
		return err;
	}
	if (nameless)
		file.fd = new_file_open_nameless(path, made);
	if (file.fd == -EOPNOTSUPP || file.fd == -EISDIR || file.fd == -EINVAL) {
		new_file_remove_left(path);
		file.fd = sl_temporary_open(path, made, &file.temporary);
	}
	if (file.fd >= 0 && file.fd < LEAST_FD)
		file.fd = move_up(file.fd);
	if (file.fd < 0) {
		err = sl_fail(file.fd, "cannot make '%s': %s", path, sl_error_text(file.fd));
		sl_new_file_close(&file);
		return err;
	}
	if (existing.st_mode)
		sl_copy_ownership(file.fd, &existing, !mode);
	*out = file;
	return 0;
}

/* ---------------------------------------------------------------------------------------- name */

static int link_to(int fd, const char *name)
{
	char self[SELF_BYTES];

	self_name(fd, self);
	return linkat(AT_FDCWD, self, AT_FDCWD, name, AT_SYMLINK_FOLLOW) ? -errno : 0;
}

/* A link cannot replace a name, so the file gets a temporary name first. */
static int name_to_replace(struct sl_new_file *file)
{
	int err = 0;

	for (int i = 0; !err && !file->temporary; i++) {
		char *name = sl_temporary_name(file->path);

		err = name ? link_to(file->fd, name) : -ENOMEM;
		if (!err)
			file->temporary = name;
		else
			free(name);
		if (err == -EEXIST && i < SL_TEMPORARY_ATTEMPTS)
			err = 0;
	}
	return err || !rename(file->temporary, file->path) ? err : -errno;
}

static int sync_folder(const struct sl_new_file *file)
{
	/* The file, too: its owner and permissions. */
	if (fsync(file->fd))
		return sl_fail(-errno, "cannot sync '%s': %s", file->path, sl_error_text(-errno));
	return sl_sync_folder_of(file->path);
}

int sl_new_file_name(struct sl_new_file *file, bool durable)
{
	int err;

	if (file->named)
		return 0;
	if (file->replace)
		err = name_to_replace(file);
	else if (file->temporary)
		err = sl_rename_to_new(file->temporary, file->path);
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
