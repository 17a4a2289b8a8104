/* SPDX-License-Identifier: Apache-2.0 */
/* Private memory in whole pages, huge where it can be, and present before its use. Any thread. */
#include <errno.h>
#include <sys/mman.h>

#include "core/core.h"

void *sl_private_map(size_t bytes)
{
	size_t page = sl_page_size(), align = bytes >= SL_HUGE_PAGE ? SL_HUGE_PAGE : page;
	size_t whole = sl_whole_pages(bytes), spare = align - page;

	if (whole < bytes || whole + spare < whole)
		return NULL;
	char *at = mmap(NULL, whole + spare, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
	                -1, 0);
	if (at == MAP_FAILED)
		return NULL;
	size_t before = -(uintptr_t)at % align;
	if (before)
		munmap(at, before);
	if (before < spare)
		munmap(at + before + whole, spare - before);
	if (align == SL_HUGE_PAGE)
		madvise(at + before, whole, MADV_HUGEPAGE);
	return at + before;
}

bool sl_private_touch(void *memory, size_t bytes)
{
	if (!madvise(memory, bytes, MADV_POPULATE_WRITE))
		return true;
	/* Linux before 5.14. */
	bool old = errno == EINVAL;
	for (size_t at = 0; old && at < bytes; at += sl_page_size())
		((volatile char *)memory)[at] = 0;
	return old;
}
