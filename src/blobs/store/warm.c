/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Touching memory before it is written
 *
 * The first write to a page costs ten times as much as a copy, because the kernel allocates and
 * clears it. With pages of 2 MiB it costs about as much as the copy. MADV_COLLAPSE (Linux 6.1)
 * makes such pages in a shared mapping, whatever the system's settings for huge pages are, but only
 * where there is something already; so a small page in each is touched first. If the kernel
 * refuses, that small page is all that is left, and the rest is allocated on the first write.
 *
 * Each call waits for all processors to drain their lists of pages, some milliseconds if they are
 * busy, so each thread makes few calls. But a signal, SIGKILL too, waits for the call. Short-lived
 * threads called sluice-warm share the pages with the caller, which joins them.
 */
#include <errno.h>
#include <sys/mman.h>

#include "store/mapping.h"

/*
 * The smallest blob that create touches. Pages of a smaller blob are touched in 5 ms, which is as
 * long as this may take on a busy machine.
 */
#define LEAST (4 * SL_HUGE_PAGE)
/*
 * If a part has taken longer than a nanosecond for each byte and this, it has waited for busy
 * processors: then all the rest is touched by one call instead of many.
 */
#define SLOW_NS      INT64_C(3000000)
#define SMALL_PAGE   4096
#define COLLAPSE     25 /* MADV_COLLAPSE */
#define THREADS_MOST 8
/* For fewer bytes it is not worth starting another thread. */
#define PART ((size_t)32 << 20)
/* The most of a single call: 50 ms, or a second on a busy machine. */
#define CALL_MOST ((size_t)128 << 20)

struct warm_part {
	pthread_t thread;
	char *base;
	size_t bytes;
};

/*
 * Touches by madvise(), which fails where a write would kill the process. All small pages are
 * touched before the first huge page is made, because a memory limit of the group kills for small
 * pages, but not for huge ones.
 */
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

	for (size_t at = 0; at < part->bytes; at += CALL_MOST)
		madvise(part->base + at, SL_MIN(CALL_MOST, part->bytes - at), COLLAPSE);
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
	/* The caller takes the last part, and those that no thread could be started for. */
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

/* Touches the whole pages that begin in the range. Returns false if there are none. */
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

/* Touches all of the blob, once. */
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

	if (!rc && (offset > blob->bytes || n > blob->bytes - offset))
		rc = sl_fail(-EINVAL, "sluice_blob_warm: %zu bytes at %zu of %zu", n, offset,
		             blob->bytes);
	if (!rc && blob->state != SLUICE_BLOB_IS_CREATED)
		rc = sl_fail(-EPERM, "the blob is sealed");
	if (rc || !atomic_load(&blob->cold))
		return rc;
	int64_t begun = sl_now();
	if (warm_range(blob, offset, n, 1) && sl_now() - begun > SLOW_NS + (int64_t)n)
		warm_all(blob);
	return rc;
}
