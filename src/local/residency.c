/* SPDX-License-Identifier: Apache-2.0 */
/* What of a file is in the page cache: cachestat(2) of Linux 6.5, else mincore(2). */
#include <errno.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "local/local_internal.h"

#define PAGES_ASKED 4096 /* of mincore at a time */

/* As in <linux/mman.h> of Linux 6.5. */
struct cachestat_range {
	uint64_t offset, length;
};
struct cachestat {
	uint64_t cached, dirty, writeback, evicted, recently_evicted;
};
#ifndef SYS_cachestat
#define SYS_cachestat 451
#endif

static int64_t count_by_cachestat(struct sl_local *local, uint64_t offset, size_t length)
{
	struct cachestat_range range = {offset, length};
	struct cachestat stat;

	if (syscall(SYS_cachestat, local->descriptor, &range, &stat, 0))
		return -errno;
	return (int64_t)stat.cached;
}

/*
 * The mapping is only ever asked about. It is made for the whole file, and again for a file that
 * has grown.
 */
static int map_until(struct sl_local *local, uint64_t end)
{
	struct stat stat;
	void *base;

	if (local->map.base && end <= local->map.length)
		return 0;
	if (fstat(local->descriptor, &stat))
		return -errno;
	if ((uint64_t)stat.st_size < end)
		return -ERANGE;
	base = mmap(NULL, stat.st_size, PROT_READ, MAP_SHARED, local->descriptor, 0);
	if (base == MAP_FAILED)
		return -errno;
	if (local->map.base)
		munmap(local->map.base, local->map.length);
	local->map.base = base;
	local->map.length = stat.st_size;
	return 0;
}

static int64_t count_by_mincore(struct sl_local *local, uint64_t offset, size_t length)
{
	size_t page = sl_page_size();
	uint64_t start = offset - offset % page, end = offset + length;
	unsigned char vector[PAGES_ASKED];
	int64_t cached = 0;
	int rc;

	sl_mutex_lock(&local->map.mutex);
	rc = map_until(local, end);
	while (!rc && start < end) {
		size_t pages = SL_MIN((end - start + page - 1) / page, PAGES_ASKED);

		if (mincore(local->map.base + start, pages * page, vector))
			rc = -errno;
		for (size_t i = 0; !rc && i < pages; i++)
			cached += vector[i] & 1;
		start += pages * page;
	}
	sl_mutex_unlock(&local->map.mutex);
	return rc ? rc : cached;
}

bool sl_resident(struct sl_local *local, uint64_t offset, size_t length)
{
	size_t page = sl_page_size();
	uint64_t pages = (offset + length - 1) / page - offset / page + 1;
	int64_t cached;

	/* A mapping needs to know how long the file is, which only a server may. */
	if (!local->core->kernel.cachestat && local->remote)
		return true;
	cached = local->core->kernel.cachestat ? count_by_cachestat(local, offset, length)
	                                       : count_by_mincore(local, offset, length);
	/* Who cannot tell reads through the page cache, which is never wrong. */
	return cached < 0 || (uint64_t)cached * 2 >= pages;
}

void sl_residency_close(struct sl_local *local)
{
	if (local->map.base)
		munmap(local->map.base, local->map.length);
	sl_mutex_destroy(&local->map.mutex);
}
