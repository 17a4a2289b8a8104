/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How much memory and processor time this process may use: those of the machine, or the limit of a
 * cgroup that it is in (Linux, Documentation/admin-guide/cgroup-v1/memory.rst, cgroup-v2.rst and
 * scheduler/sched-bwc.rst); and the cores of NUMA nodes (admin-guide/cputopology.rst). Any thread.
 */
#include <errno.h>
#include <glob.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/core.h"

/* Returns the first number of a file; UINT64_MAX: no such file, or no limit in it ("max", -1). */
static uint64_t machine_limit(const char *folder, const char *name, uint64_t *second)
{
	char path[2 * PATH_MAX];
	uint64_t first, other = 0;

	snprintf(path, sizeof(path), "%s/%s", folder, name);
	FILE *file = fopen(path, "re");
	if (!file)
		return UINT64_MAX;
	int n = fscanf(file, "%" SCNu64 " %" SCNu64, &first, &other);
	fclose(file);
	if (n == 2 && second)
		*second = other;
	return n > 0 ? first : UINT64_MAX;
}

/* A limit of one cgroup, of version 1 or 2; UINT64_MAX: none. */
typedef uint64_t machine_limit_fn(const char *folder, bool old);

static uint64_t machine_bytes(const char *folder, bool old)
{
	uint64_t most, high;

	if (old)
		return machine_limit(folder, "memory.limit_in_bytes", NULL);
	most = machine_limit(folder, "memory.max", NULL);
	/* Above memory.high the kernel slows a process until it seems to hang. */
	high = machine_limit(folder, "memory.high", NULL);
	return SL_MIN(most, high);
}

/* A part of a core counts as a core. */
static uint64_t machine_quota(const char *folder, bool old)
{
	uint64_t period = 0,
		 quota = machine_limit(folder, old ? "cpu.cfs_quota_us" : "cpu.max", &period);

	if (old)
		period = machine_limit(folder, "cpu.cfs_period_us", NULL);
	if (quota == UINT64_MAX || !period || period == UINT64_MAX)
		return UINT64_MAX;
	return SL_MAX(quota / period + (quota % period != 0), 1);
}

/*
 * Returns the least limit of a cgroup and of those that it lies in. A container without a namespace
 * for cgroups sees the host's name of its cgroup, while its own limit is in the root of the mount.
 * So folders that do not exist are passed over, and the root is looked at as well.
 */
static uint64_t machine_cgroup(const char *root, const char *mount, char *cgroup, bool old,
                               machine_limit_fn *limit_of)
{
	char folder[PATH_MAX + 64];
	uint64_t least = UINT64_MAX, limit;
	char *slash;

	for (;;) {
		snprintf(folder, sizeof(folder), "%s/sys/fs/cgroup%s%s", root, mount, cgroup);
		limit = limit_of(folder, old);
		least = SL_MIN(least, limit);
		slash = strrchr(cgroup, '/');
		if (!slash)
			return least;
		*slash = '\0';
	}
}

/* Returns true if a list "cpu,cpuacct" has the name. */
static bool machine_lists(const char *list, const char *name)
{
	size_t n = strlen(name);

	for (; list; list = strchr(list, ',') ? strchr(list, ',') + 1 : NULL)
		if (!strncmp(list, name, n) && (!list[n] || list[n] == ','))
			return true;
	return false;
}

/* Returns the least limit of a controller: "memory" or "cpu". UINT64_MAX: none. */
static uint64_t machine_least(const char *root, const char *controller, machine_limit_fn *limit_of)
{
	char path[PATH_MAX], mount[32], *line = NULL, *controllers, *cgroup;
	uint64_t least = UINT64_MAX, limit;
	size_t room = 0;

	snprintf(mount, sizeof(mount), "/%s", controller);
	snprintf(path, sizeof(path), "%s/proc/self/cgroup", root);
	FILE *file = fopen(path, "re");
	/* Each line is ID:CONTROLLERS:CGROUP; version 2 has no list of controllers. */
	while (file && getline(&line, &room, file) > 0) {
		line[strcspn(line, "\n")] = '\0';
		controllers = strchr(line, ':');
		cgroup = controllers ? strchr(controllers + 1, ':') : NULL;
		if (!cgroup)
			continue;
		*controllers++ = *cgroup++ = '\0';
		if (*controllers && !machine_lists(controllers, controller))
			continue;
		limit = machine_cgroup(root, *controllers ? mount : "", cgroup, *controllers,
		                       limit_of);
		least = SL_MIN(least, limit);
	}
	free(line);
	if (file)
		fclose(file);
	return least;
}

uint64_t sl_machine_memory(const char *root)
{
	uint64_t all = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
	uint64_t limit = machine_least(root, "memory", machine_bytes);

	return SL_MIN(all, limit);
}

unsigned sl_machine_quota(const char *root)
{
	uint64_t cores = machine_least(root, "cpu", machine_quota);

	return (unsigned)SL_MIN(cores, UINT_MAX);
}

unsigned sl_machine_nodes(const char *root)
{
	char path[PATH_MAX];
	glob_t found;

	snprintf(path, sizeof(path), "%s/sys/devices/system/node/node[0-9]*", root);
	unsigned nodes = glob(path, GLOB_NOSORT, NULL, &found) ? 0 : (unsigned)found.gl_pathc;
	globfree(&found);
	return nodes;
}

/* The set grows until the kernel's fits. */
static cpu_set_t *machine_all_cores(size_t *bytes)
{
	for (int size = 1024; size <= 1 << 20; size *= 4) {
		cpu_set_t *set = CPU_ALLOC(size);

		*bytes = CPU_ALLOC_SIZE(size);
		if (!set || sched_getaffinity(0, *bytes, set) == 0)
			return set;
		CPU_FREE(set);
		if (errno != EINVAL)
			return NULL;
	}
	return NULL;
}

cpu_set_t *sl_machine_cores(const char *root, int node, size_t *bytes)
{
	cpu_set_t *all = machine_all_cores(bytes), *set;
	unsigned first, last;
	char path[PATH_MAX];
	int n;

	if (!all || node < 0)
		return all;
	snprintf(path, sizeof(path), "%s/sys/devices/system/node/node%d/cpulist", root, node);
	FILE *list = fopen(path, "re");
	set = list ? CPU_ALLOC(8 * *bytes) : NULL;
	if (set)
		CPU_ZERO_S(*bytes, set);
	/* The kernel's list has the form "0-15,32-47". */
	while (set && (n = fscanf(list, "%u-%u", &first, &last)) > 0) {
		if (n == 1)
			last = first;
		last = SL_MIN(last, (unsigned)(8 * *bytes - 1));
		for (unsigned core = first; core <= last; core++)
			if (CPU_ISSET_S(core, *bytes, all))
				CPU_SET_S(core, *bytes, set);
		fgetc(list); /* the comma */
	}
	if (list)
		fclose(list);
	CPU_FREE(all);
	return set;
}
