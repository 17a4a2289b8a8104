/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/replace.h"

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

#define ATTEMPTS 100

/* The file that the name leads to is replaced, not a symbolic link on the way. */
static int resolve(struct sl_local *local)
{
	const char *slash = strrchr(local->path, '/');
	const char *base = slash ? slash + 1 : local->path;
	char *target = realpath(local->path, NULL);
	char *folder, *parent;

	/* A new name is made absolute too: the process may change its directory before commit. */
	if (!target && errno == ENOENT && *base) {
		folder = slash ? strndup(local->path, slash - local->path + 1) : strdup(".");
		parent = folder ? realpath(folder, NULL) : NULL;
		free(folder);
		if (parent && asprintf(&target, "%s/%s", parent, base) < 0)
			target = NULL;
		free(parent);
	}
	if (!target)
		return sl_fail(-errno, "cannot open '%s': %s", local->path, sl_error_text(-errno));
	free(local->path);
	local->path = target;
	return 0;
}

/* st_mode stays 0 where there is nothing. */
static int check_target(struct sl_local *local, struct stat *there)
{
	if (lstat(local->path, there))
		return errno == ENOENT ? 0
		                       : sl_fail(-errno, "cannot open '%s': %s", local->path,
		                                 sl_error_text(-errno));
	if (local->flags & SLUICE_OPEN_EXCLUSIVE)
		return sl_fail(-EEXIST, "'%s' exists", local->path);
	if (S_ISDIR(there->st_mode))
		return sl_fail(-EISDIR, "'%s' is a directory", local->path);
	if (!S_ISREG(there->st_mode))
		return sl_fail(-ESPIPE, "'%s' is no regular file: it cannot be replaced",
		               local->path);
	return 0;
}

/* ".name.0123456789abcdef.sluice" in the same folder. */
static char *temporary_name(const char *path)
{
	const char *slash = strrchr(path, '/');
	int folder = slash ? (int)(slash - path + 1) : 0;
	uint64_t random = 0;
	char *name;

	if (getrandom(&random, sizeof(random), 0) != sizeof(random) ||
	    asprintf(&name, "%.*s.%.200s.%016" PRIx64 ".sluice", folder, path, path + folder,
	             random) < 0)
		return NULL;
	return name;
}

/*
 * Owner, group and permissions of the file that is replaced, as far as this process may give them
 * away. A set-ID bit is worth something only with the owner that it was set for.
 */
static void take_over(int fd, const struct stat *old, bool keep_mode)
{
	struct stat stat;
	mode_t mode;

	if (fstat(fd, &stat))
		return;
	mode = (keep_mode ? old->st_mode : stat.st_mode) & 07777;
	if ((stat.st_uid != old->st_uid || stat.st_gid != old->st_gid) &&
	    fchown(fd, old->st_uid, old->st_gid) && fchown(fd, (uid_t)-1, old->st_gid)) {
		/* It stays with who writes it. */
	}
	if (fstat(fd, &stat))
		return;
	if (stat.st_uid != old->st_uid)
		mode &= ~(mode_t)S_ISUID;
	if (stat.st_gid != old->st_gid)
		mode &= ~(mode_t)S_ISGID;
	/* To give a file away takes its set-ID bits too. */
	if (mode != (stat.st_mode & 07777))
		fchmod(fd, mode);
}

int sl_replace_open(struct sl_local *local, const struct sluice_open_options *options)
{
	struct stat existing = {0};
	int rc = resolve(local);
	int fd = -1;

	if (!rc)
		rc = check_target(local, &existing);
	for (int i = 0; !rc && fd < 0 && i < ATTEMPTS; i++) {
		char *name = temporary_name(local->path);

		if (!name)
			return sl_fail(-ENOMEM, "no memory");
		fd = open(name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW,
		          options->mode ? options->mode & 07777 : 0666);
		if (fd >= 0) {
			local->temporary = name;
		} else {
			rc = errno == EEXIST ? 0
			                     : sl_fail(-errno, "cannot make '%s': %s", local->path,
			                               sl_error_text(-errno));
			free(name);
		}
	}
	if (rc)
		return rc;
	if (fd < 0)
		return sl_fail(-EEXIST, "no free name beside '%s'", local->path);
	/* Who does not ask for permissions keeps those of the file that is replaced. */
	if (existing.st_mode)
		take_over(fd, &existing, !options->mode);
	return fd;
}

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

int sl_replace_commit(struct sl_local *local)
{
	int rc;

	if (!local->temporary)
		return 0;
	if (local->flags & SLUICE_OPEN_EXCLUSIVE)
		rc = rename_to_new(local->temporary, local->path);
	else
		rc = rename(local->temporary, local->path) ? -errno : 0;
	if (rc)
		return sl_fail(rc, "cannot give '%s' its name: %s", local->path, sl_error_text(rc));
	free(local->temporary);
	local->temporary = NULL;
	return 0;
}

int sl_replace_sync_folder(struct sl_local *local)
{
	char *path = strdup(local->path);
	int fd, rc = 0;

	if (!path)
		return sl_fail(-ENOMEM, "no memory");
	fd = open(dirname(path), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0 || fsync(fd))
		rc = sl_fail(-errno, "cannot sync the folder of '%s': %s", local->path,
		             sl_error_text(-errno));
	if (fd >= 0)
		close(fd);
	free(path);
	return rc;
}

void sl_replace_abandon(struct sl_local *local)
{
	if (!local->temporary)
		return;
	unlink(local->temporary);
	free(local->temporary);
	local->temporary = NULL;
}
