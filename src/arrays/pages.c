/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pages: bytes of a remote HDF5 file in memory. Beyond 64 MiB the page that was not used for
 * longest is forgotten.
 *
 * Threads: the thread that looks at the file.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "arrays/array_blocks.h"

#define PAGE       SL_PAGE_BYTES
#define PAGES_MOST (((uint64_t)64 << 20) / PAGE)

struct page {
	struct sl_list bucket, link;
	uint64_t number;
	char bytes[PAGE];
};

static struct page *page_find(struct sl_h5_blocks *blocks, uint64_t number)
{
	sl_list_each_of (page, &blocks->buckets[number % SL_H5_BLOCKS_BUCKETS], struct page, bucket)
		if (page->number == number)
			return page;
	return NULL;
}

static void page_drop_oldest(struct sl_h5_blocks *blocks)
{
	struct page *page = SL_CONTAINER(sl_list_take(&blocks->used), struct page, link);

	sl_list_remove(&page->bucket);
	blocks->count--;
	free(page);
}

/* Keeps the bytes of a page; the last in a file may have fewer. */
int sl_pages_keep(struct sl_h5_blocks *blocks, uint64_t number, const char *bytes, uint64_t n)
{
	struct page *page = page_find(blocks, number);

	if (page)
		return 0;
	page = calloc(1, sizeof(*page));
	if (!page)
		return sl_fail(-ENOMEM, "no memory");
	page->number = number;
	memcpy(page->bytes, bytes, SL_MIN(n, PAGE));
	sl_list_append(&blocks->buckets[number % SL_H5_BLOCKS_BUCKETS], &page->bucket);
	sl_list_append(&blocks->used, &page->link);
	if (++blocks->count > PAGES_MOST)
		page_drop_oldest(blocks);
	return 0;
}

bool sl_h5_blocks_copy(struct sl_h5_blocks *blocks, uint64_t offset, uint64_t bytes, void *to)
{
	uint64_t done = 0, there = offset < blocks->source.length
	                                   ? SL_MIN(bytes, blocks->source.length - offset)
	                                   : 0;

	while (done < there) {
		uint64_t at = offset + done, n = SL_MIN(PAGE - at % PAGE, there - done);
		struct page *page = page_find(blocks, at / PAGE);

		if (!page)
			return false;
		memcpy((char *)to + done, page->bytes + at % PAGE, n);
		sl_list_remove(&page->link);
		sl_list_append(&blocks->used, &page->link);
		done += n;
	}
	memset((char *)to + done, 0, bytes - done);
	return true;
}

bool sl_pages_have(struct sl_h5_blocks *blocks, uint64_t number)
{
	return page_find(blocks, number);
}

void sl_pages_free(struct sl_h5_blocks *blocks)
{
	while (blocks->count)
		page_drop_oldest(blocks);
}
