/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/emulated_memory.h"

#include <ctype.h>
#include <dirent.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MEMORIES = 4096 };

/* Each memfd once, however many have it. */
struct found {
	char name[96]; /* as /proc shows it */
	struct {
		uint64_t inode, bytes;
	} each[MEMORIES];
	size_t count;
};

static void note(struct found *found, uint64_t inode, uint64_t bytes)
{
	size_t i = 0;

	while (i < found->count && found->each[i].inode != inode)
		i++;
	if (i == MEMORIES)
		abort();
	if (i == found->count)
		found->each[found->count++].inode = inode;
	if (found->each[i].bytes < bytes)
		found->each[i].bytes = bytes;
}

static void look_at_descriptors(struct found *found, const char *process)
{
	char path[600], link[sizeof(found->name)];
	struct dirent *entry;
	struct stat st;
	DIR *all;

	snprintf(path, sizeof(path), "/proc/%s/fd", process);
	all = opendir(path);
	while (all && (entry = readdir(all))) {
		ssize_t n;

		snprintf(path, sizeof(path), "/proc/%s/fd/%s", process, entry->d_name);
		n = readlink(path, link, sizeof(link) - 1);
		if (n <= 0)
			continue;
		link[n] = '\0';
		if (!strcmp(link, found->name) && !stat(path, &st))
			note(found, st.st_ino, (uint64_t)st.st_size);
	}
	if (all)
		closedir(all);
}

static void look_at_mappings(struct found *found, const char *process)
{
	char path[300], *line = NULL;
	size_t size = 0;
	FILE *file;

	snprintf(path, sizeof(path), "/proc/%s/maps", process);
	file = fopen(path, "re");
	while (file && getline(&line, &size, file) > 0) {
		uint64_t start, end, offset, inode;

		line[strcspn(line, "\n")] = '\0';
		if (strstr(line, found->name) &&
		    sscanf(line, "%" SCNx64 "-%" SCNx64 " %*s %" SCNx64 " %*s %" SCNu64, &start,
		           &end, &offset, &inode) == 4)
			note(found, inode, offset + end - start);
	}
	if (file)
		fclose(file);
	free(line);
}

uint64_t emulated_memory_in_use(const char *device)
{
	struct found *found = calloc(1, sizeof(*found));
	DIR *processes = opendir("/proc");
	struct dirent *entry;
	uint64_t bytes = 0;

	if (!found || !processes)
		abort();
	snprintf(found->name, sizeof(found->name), "/memfd:sluice:%s:%d (deleted)", device,
	         (int)getsid(0));
	while ((entry = readdir(processes))) {
		if (!isdigit((unsigned char)entry->d_name[0]))
			continue;
		look_at_descriptors(found, entry->d_name);
		/* Daemons only keep descriptors; to look at what all others map would take long. */
		if (getsid(atoi(entry->d_name)) == getsid(0))
			look_at_mappings(found, entry->d_name);
	}
	closedir(processes);
	for (size_t i = 0; i < found->count; i++)
		bytes += found->each[i].bytes;
	free(found);
	return bytes;
}
