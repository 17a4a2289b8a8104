/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How much memory this process may use: that of the machine, or the limit of a cgroup that it is in (Linux,
 * Documentation/admin-guide/cgroup-v1/memory.rst and cgroup-v2.rst). Any thread.
 */
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/core.h"

/* Returns the number of bytes in a file, or UINT64_MAX: there is no such file, or it sets no limit ("max"). */
static uint64_t machine_limit(const char *folder, const char *name)
{
	char path[2 * PATH_MAX];
	uint64_t bytes;
	FILE *file;

	snprintf(path, sizeof(path), "%s/%s", folder, name);
	file = fopen(path, "re");
	if (!file)
		return UINT64_MAX;
	if (fscanf(file, "%" SCNu64, &bytes) != 1)
		bytes = UINT64_MAX;
	fclose(file);
	return bytes;
}

/*
 * Returns the least limit of a cgroup and of those that it lies in, by files of either name. A container without a
 * namespace for cgroups sees the host's name of its cgroup, while its own limit is in the root of what is mounted
 * there: folders that do not exist are passed over, and the root is looked at as well.
 */
static uint64_t machine_cgroup(const char *root, const char *mount, char *cgroup, const char *name,
                               const char *other)
{
	char folder[PATH_MAX + 64];
	uint64_t least = UINT64_MAX, limit;
	char *slash;

	for (;;) {
		snprintf(folder, sizeof(folder), "%s%s%s", root, mount, cgroup);
		limit = machine_limit(folder, name);
		least = SL_MIN(least, limit);
		limit = machine_limit(folder, other);
		least = SL_MIN(least, limit);
		slash = strrchr(cgroup, '/');
		if (!slash)
			return least;
		*slash = '\0';
	}
}

uint64_t sl_machine_memory(const char *root)
{
	uint64_t least = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE), limit;
	char path[PATH_MAX], *line = NULL, *controllers, *cgroup;
	size_t room = 0;
	FILE *file;

	snprintf(path, sizeof(path), "%s/proc/self/cgroup", root);
	file = fopen(path, "re");
	/* Each line is ID:CONTROLLERS:CGROUP; version 2 has no list of controllers. */
	while (file && getline(&line, &room, file) > 0) {
		line[strcspn(line, "\n")] = '\0';
		controllers = strchr(line, ':');
		cgroup = controllers ? strchr(controllers + 1, ':') : NULL;
		if (!cgroup)
			continue;
		*controllers++ = *cgroup++ = '\0';
		if (!*controllers)
			/* Above memory.high the kernel slows a process until it seems to hang. */
			limit = machine_cgroup(root, "/sys/fs/cgroup", cgroup, "memory.max",
			                       "memory.high");
		else if (!strcmp(controllers, "memory"))
			limit = machine_cgroup(root, "/sys/fs/cgroup/memory", cgroup,
			                       "memory.limit_in_bytes", "");
		else
			continue;
		least = SL_MIN(least, limit);
	}
	free(line);
	if (file)
		fclose(file);
	return least;
}
