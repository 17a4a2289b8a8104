/* SPDX-License-Identifier: Apache-2.0 */
/*
 * HDF5's own bytes of a remote file, in pages that are kept while the file is open
 *
 * If HDF5 reads a page that is not there, a run of pages is fetched: a longer run when it reads on
 * behind the last. The backend of the file sees to it that all belong to the opened object.
 *
 * Threads: a single thread at a time, which may wait, opens the dataset or looks chunks up; any
 * cancels; any thread of the backend ends a run.
 */
#include "arrays/array_blocks.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "arrays/arrays_internal.h"

#define PAGE      SL_PAGE_BYTES
#define RUN_LEAST SL_H5_BLOCKS_FIRST
#define RUN_MOST  ((uint64_t)4 << 20)
#define ONCE_MOST ((uint64_t)32 << 20) /* bytes that HDF5 reads at once */
/* Bytes between two runs for hints that are fetched together. */
#define GAP_MOST ((uint64_t)16 << 10)

/* A piece for the inner backend, with a longer struct; the bytes lie behind. */
struct run {
	struct sl_list link;
	struct sl_h5_blocks *blocks;
	struct awaited *awaited;
	struct sl_piece *piece;
};

struct awaited {
	_Atomic size_t left;
	_Atomic uint32_t over;
};

/* Bytes from..to of the file, in whole pages. */
struct page_range {
	uint64_t from, to;
};

/* For HDF5. */
static bool blocks_copy(struct sl_h5_bytes *source, uint64_t offset, size_t n, void *to)
{
	struct sl_h5_blocks *blocks = SL_CONTAINER(source, struct sl_h5_blocks, source);

	if (!sl_h5_blocks_copy(blocks, offset, n, to)) {
		blocks->missing = offset;
		blocks->missing_bytes = n;
		return false;
	}
	sl_hints_take(blocks, to, offset, n);
	return true;
}

/* ---------------------------------------------------------------------------------------- fetch */

static void run_done(struct sl_piece *piece)
{
	struct run *run = (struct run *)piece->op;
	struct awaited *awaited = run->awaited;

	sl_mutex_lock(&run->blocks->mutex);
	sl_list_remove(&run->link);
	sl_mutex_unlock(&run->blocks->mutex);
	if (atomic_fetch_sub(&awaited->left, 1) == 1)
		sl_flag_raise(&awaited->over);
}

static struct run *run_new(struct sl_h5_blocks *blocks, const struct page_range *range)
{
	size_t head = (blocks->limits.piece_size + 63) / 64 * 64;
	uint64_t end = SL_MIN(range->to, blocks->source.length);
	struct run *run = calloc(1, sizeof(*run));
	struct sl_piece *piece = run ? aligned_alloc(64, head + range->to - range->from) : NULL;

	if (!piece) {
		free(run);
		return NULL;
	}
	memset(piece, 0, head);
	run->blocks = blocks;
	run->piece = piece;
	piece->backend = blocks->inner;
	piece->data = (char *)piece + head;
	piece->offset = range->from;
	piece->length = end - range->from;
	piece->urgent = true;
	piece->too = blocks->too;
	piece->done = run_done;
	/* Only the owner of a piece looks at it. */
	piece->op = (struct sluice_op *)run;
	return run;
}

/* Keeps the pages of a run. Returns 0, or -errno with a sentence. */
static int run_keep(struct sl_h5_blocks *blocks, struct sl_piece *piece)
{
	int rc = piece->error;

	if (rc)
		return piece->message ? sl_fail(rc, "%s", piece->message)
		                      : sl_fail(rc, "'%s' cannot be read at byte %" PRIu64 ": %s",
		                                blocks->name, piece->offset, sl_error_text(rc));
	if (piece->moved < piece->length)
		return sl_fail(-EIO, "'%s' ends at byte %" PRIu64, blocks->name,
		               piece->offset + piece->moved);
	for (uint64_t at = 0; !rc && at < piece->length; at += PAGE)
		rc = sl_pages_keep(blocks, (piece->offset + at) / PAGE, piece->data + at,
		                   piece->length - at);
	return rc;
}

/* Submits runs, and waits for all. */
static void runs_await(struct sl_h5_blocks *blocks, struct run *const *runs, size_t count)
{
	struct awaited awaited = {count, 0};

	sl_mutex_lock(&blocks->mutex);
	for (size_t i = 0; i < count; i++) {
		runs[i]->awaited = &awaited;
		sl_list_append(&blocks->locked.runs, &runs[i]->link);
		if (blocks->locked.job && sl_job_stopped(blocks->locked.job))
			atomic_store(&runs[i]->piece->cancelled, true);
	}
	sl_mutex_unlock(&blocks->mutex);
	for (size_t i = 0; i < count; i++)
		blocks->inner->ops->submit(blocks->inner, runs[i]->piece);
	/* Ended by run_done(), which each piece comes to. */
	sl_flag_await(&awaited.over);
}

static int range_compare(const void *a, const void *b)
{
	const struct page_range *first = a, *second = b;

	return (first->from > second->from) - (first->from < second->from);
}

/* Sorts ranges, leaves out pages that are there at their ends, and joins neighbours. */
static size_t ranges_tidy(struct sl_h5_blocks *blocks, struct page_range *ranges, size_t count)
{
	size_t kept = 0;

	qsort(ranges, count, sizeof(*ranges), range_compare);
	for (size_t i = 0; i < count; i++) {
		struct page_range range = ranges[i];

		while (range.from < range.to && sl_pages_have(blocks, range.from / PAGE))
			range.from += PAGE;
		while (range.from < range.to && sl_pages_have(blocks, (range.to - 1) / PAGE))
			range.to -= PAGE;
		if (range.from == range.to)
			continue;
		if (kept && range.from <= ranges[kept - 1].to + GAP_MOST &&
		    range.to <= ranges[kept - 1].from + RUN_MOST)
			ranges[kept - 1].to = SL_MAX(range.to, ranges[kept - 1].to);
		else
			ranges[kept++] = range;
	}
	return kept;
}

static struct page_range range_of(uint64_t offset, uint64_t bytes)
{
	return (struct page_range){offset / PAGE * PAGE, (offset + bytes + PAGE - 1) / PAGE * PAGE};
}

/* Chooses the run for the missing bytes. */
static struct page_range blocks_next(struct sl_h5_blocks *blocks)
{
	uint64_t at = blocks->missing,
		 end = SL_MIN(at + blocks->missing_bytes, blocks->source.length);
	bool follows = blocks->run && at >= blocks->run_from && at <= blocks->run_end + RUN_MOST;

	blocks->run = follows ? SL_MIN(2 * blocks->run, RUN_MOST) : RUN_LEAST;
	blocks->run_from = follows ? at / PAGE * PAGE : at / RUN_LEAST * RUN_LEAST;
	blocks->run_end =
		SL_MIN(SL_MAX(blocks->run_from + blocks->run, end), blocks->source.length);
	return range_of(blocks->run_from, blocks->run_end - blocks->run_from);
}

/* For HDF5: fetches the missing bytes, and others by hints. */
static int blocks_fetch(struct sl_h5_bytes *source)
{
	struct sl_h5_blocks *blocks = SL_CONTAINER(source, struct sl_h5_blocks, source);
	struct sl_hints *hints = &blocks->hints;
	uint64_t hinted = sl_hints_have(hints, blocks->missing, blocks->missing_bytes);
	size_t count = hinted ? hints->wanted_count : 1, made = 0;
	int rc = 0;

	if (blocks->missing_bytes > ONCE_MOST)
		return sl_fail(-EBADMSG, "'%s': HDF5 reads %" PRIu64 " bytes of its own at once",
		               blocks->name, blocks->missing_bytes);
	struct page_range *ranges = malloc(count * sizeof(*ranges));
	struct run **runs = malloc(count * sizeof(*runs));
	if (!ranges || !runs)
		rc = sl_fail(-ENOMEM, "no memory");
	for (size_t i = 0; !rc && hinted && i < count; i++)
		ranges[i] = range_of(hints->wanted[i],
		                     SL_MIN(hinted, blocks->source.length - hints->wanted[i]));
	if (!rc && hinted)
		hints->wanted_count = 0;
	else if (!rc)
		ranges[0] = blocks_next(blocks);
	count = rc ? 0 : ranges_tidy(blocks, ranges, count);
	for (; !rc && made < count; made++) {
		runs[made] = run_new(blocks, &ranges[made]);
		if (!runs[made])
			rc = sl_fail(-ENOMEM, "no memory");
		if (rc)
			break;
	}
	if (!rc && made)
		runs_await(blocks, runs, made);
	for (size_t i = 0; i < made; i++) {
		struct sl_piece *piece = runs[i]->piece;
		/* An error where nothing but a hint leads is met again if it matters. */
		bool matters = piece->offset < blocks->missing + blocks->missing_bytes &&
		               blocks->missing < piece->offset + piece->length;
		int its = rc ? rc : run_keep(blocks, piece);

		rc = matters && !rc ? its : rc;
		free(piece->message);
		free(piece);
		free(runs[i]);
	}
	free(ranges);
	free(runs);
	return rc;
}

void sl_h5_blocks_serve(struct sl_h5_blocks *blocks, const struct sl_job *job)
{
	sl_mutex_lock(&blocks->mutex);
	blocks->locked.job = job;
	sl_mutex_unlock(&blocks->mutex);
}

void sl_h5_blocks_cancel(struct sl_h5_blocks *blocks)
{
	sl_mutex_lock(&blocks->mutex);
	if (blocks->locked.job && sl_job_stopped(blocks->locked.job))
		sl_list_each_of (run, &blocks->locked.runs, struct run, link)
			atomic_store(&run->piece->cancelled, true);
	sl_mutex_unlock(&blocks->mutex);
}

/* ----------------------------------------------------------------------------------------- open */

void sl_h5_blocks_free(struct sl_h5_blocks *blocks)
{
	if (!blocks)
		return;
	sl_pages_free(blocks);
	sl_mutex_destroy(&blocks->mutex);
	free(blocks->name);
	free(blocks);
}

/* No other thread knows them. */
int sl_h5_blocks_new(struct sl_backend *inner, const char *uri,
                     struct sl_h5_blocks **out) SL_UNCHECKED
{
	struct sl_h5_blocks *blocks = calloc(1, sizeof(*blocks));
	char *name = sl_uri_name(uri);
	int64_t size = inner->ops->size ? inner->ops->size(inner) : -1;
	int rc = 0;

	if (!blocks || !name) {
		free(blocks);
		free(name);
		return sl_fail(-ENOMEM, "no memory");
	}
	inner->ops->limits(inner, &blocks->limits);
	if (!blocks->limits.remote)
		rc = sl_fail(-ENOTSUP, "'%s' is no file or object of a server, and no local file",
		             name);
	else if (size < 0 || blocks->limits.sequential || blocks->limits.whole)
		rc = sl_fail(-ENOTSUP,
		             "'%s': the server does not send parts of it, so no dataset in it can "
		             "be read: copy it first",
		             name);
	blocks->name = name;
	blocks->inner = inner;
	blocks->limits.piece_size = SL_MAX(blocks->limits.piece_size, sizeof(struct sl_piece));
	blocks->source.fd = -1;
	blocks->source.length = (uint64_t)size;
	blocks->source.copy = blocks_copy;
	blocks->source.fetch = blocks_fetch;
	for (size_t i = 0; i < SL_H5_BLOCKS_BUCKETS; i++)
		sl_list_init(&blocks->buckets[i]);
	sl_list_init(&blocks->used);
	sl_list_init(&blocks->locked.runs);
	sl_mutex_init(&blocks->mutex);
	if (rc)
		sl_h5_blocks_free(blocks);
	else
		*out = blocks;
	return rc;
}
