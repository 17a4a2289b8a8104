/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory that nobody has touched costs ten times what a copy does: the kernel takes and clears it page by page. In pages of
 * 2 MiB it costs about as much as the copy. MADV_COLLAPSE (Linux 6.1) makes such pages of a shared mapping whatever the
 * system's settings for huge pages are, if there is something in each of them; so one small page is touched first. Where the
 * kernel will not, that small page is all that is left behind, and whoever writes the rest touches it.
 *
 * Each call of it waits for all processors to put their lists of pages in order, for some milliseconds if they are busy. So
 * there are as few calls as threads.
 */
#include <errno.h>
#include <pthread.h>
#include <sys/mman.h>

#include "store/mapping.h"

/* What create makes ready. Smaller ones are touched in 5 ms, and on a busy machine that is what this may take. */
#define LEAST (4 * SL_HUGE_PAGE)
/* A part that took so much longer than a nanosecond a byte waited for processors that others have: then the rest is
 * made ready in one call rather than in many. */
#define SLOW_NS      INT64_C(3000000)
#define SMALL_PAGE   4096
#define COLLAPSE     25 /* MADV_COLLAPSE */
#define THREADS_MOST 8
/* For less than this another thread is not worth its start. */
#define PART ((size_t)32 << 20)

struct warm_part {
	pthread_t thread;
	char *base;
	size_t bytes;
};

/* By a call, which fails where a write would end the program; and all of it before the first huge page is made, since
 * it is for small pages, not for huge ones, that the kernel kills when a group has reached its limit. */
static bool warm_touch(char *base, size_t bytes)
{
	for (size_t at = 0; at < bytes; at += SL_HUGE_PAGE)
		if (madvise(base + at, SMALL_PAGE, MADV_POPULATE_WRITE))
			return false;
	return true;
}

static void *warm_collapse(void *argument)
{
	const struct warm_part *part = argument;

	madvise(part->base, part->bytes, COLLAPSE);
	return NULL;
}

static void warm_pages(char *base, size_t bytes, unsigned threads)
{
	size_t pages = bytes / SL_HUGE_PAGE;
	struct warm_part parts[THREADS_MOST];
	unsigned started = 0;

	if (!warm_touch(base, bytes))
		return;
	for (unsigned i = 0; i < threads; i++) {
		size_t first = pages * i / threads, end = pages * (i + 1) / threads;

		parts[i] = (struct warm_part){.base = base + first * SL_HUGE_PAGE,
		                              .bytes = (end - first) * SL_HUGE_PAGE};
	}
	/* The last part is ours, and so are those that no thread could be had for. */
	while (started + 1 < threads && !sl_thread_start(&parts[started].thread, "sluice-warm",
	                                                 warm_collapse, &parts[started]))
		started++;
	for (unsigned i = started; i < threads; i++)
		warm_collapse(&parts[i]);
	while (started--)
		pthread_join(parts[started].thread, NULL);
}

static size_t next_huge_page(size_t offset)
{
	return (offset + SL_HUGE_PAGE - 1) / SL_HUGE_PAGE * SL_HUGE_PAGE;
}

/* Whole pages; one belongs to the part that it begins in. False: there is none. */
static bool warm_range(sluice_blob *blob, size_t offset, size_t n, unsigned most)
{
	size_t first = next_huge_page(offset), end = next_huge_page(offset + n);

	end = SL_MIN(end, blob->mapping->bytes - blob->mapping->bytes % SL_HUGE_PAGE);
	if (first >= end)
		return false;
	most = (unsigned)SL_MIN(SL_MAX((end - first) / PART, 1), most);
	warm_pages(blob->data + first, end - first, SL_MIN(most, sl_cores()));
	return true;
}

/* Once. */
static void warm_all(sluice_blob *blob)
{
	if (atomic_exchange(&blob->cold, false))
		warm_range(blob, 0, blob->bytes, THREADS_MOST);
}

void sl_blob_warm(sluice_blob *blob)
{
	if (!blob->stays_cold && blob->bytes >= LEAST)
		warm_all(blob);
}

int sluice_blob_warm(sluice_blob *blob, size_t offset, size_t n)
{
	int rc = sl_store_check(blob ? blob->store : NULL, "sluice_blob_warm");
	int64_t begun;

	if (!rc && (offset > blob->bytes || n > blob->bytes - offset))
		rc = sl_fail(-EINVAL, "sluice_blob_warm: %zu bytes at %zu of %zu", n, offset,
		             blob->bytes);
	if (!rc && blob->state != SLUICE_BLOB_IS_CREATED)
		rc = sl_fail(-EPERM, "the blob is sealed");
	if (rc || !atomic_load(&blob->cold))
		return rc;
	begun = sl_now();
	if (warm_range(blob, offset, n, 1) && sl_now() - begun > SLOW_NS + (int64_t)n)
		warm_all(blob);
	return rc;
}
