/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/local.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* The file that the name leads to is replaced, not a symbolic link on the way. A new name is made absolute
 * too: the process may change its directory before commit. */
static int resolve(struct sl_local *local)
{
	char *target;
	int rc = sl_path_resolve(local->path, &target);

	if (rc < 0)
		return rc;
	free(local->path);
	local->path = target;
	return 0;
}

int sl_replace_open(struct sl_local *local, const struct sluice_open_options *options)
{
	struct stat existing = {0};
	int rc = resolve(local);
	int fd;

	if (!rc)
		rc = sl_path_replaceable(local->path, !(local->flags & SLUICE_OPEN_EXCLUSIVE),
		                         &existing);
	if (rc)
		return rc;
	fd = sl_temporary_open(local->path, options->mode ? options->mode & 07777 : 0666,
	                       &local->temporary);
	if (fd == -EEXIST)
		return sl_fail(fd, "no free name beside '%s'", local->path);
	if (fd < 0)
		return sl_fail(fd, "cannot make '%s': %s", local->path, sl_error_text(fd));
	/* Who does not ask for permissions keeps those of the file that is replaced. */
	if (existing.st_mode)
		sl_take_over(fd, &existing, !options->mode);
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
