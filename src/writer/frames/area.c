/* SPDX-License-Identifier: Apache-2.0 */
/* Memory for frames and chunks, present from the start; and the writer's memory_bytes.
 * Threads: the program's, in the calls that add a series or free it. */
#include <errno.h>
#include <inttypes.h>
#include <sys/mman.h>

#include "frames/frames_internal.h"

#define HUGE_PAGE ((size_t)2 << 20)

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23 /* Linux 5.14 */
#endif

/* So that no frame waits for pages later, and too little memory is known now. */
static int area_touch(char *memory, size_t length)
{
	if (!madvise(memory, length, MADV_POPULATE_WRITE))
		return 0;
	if (errno != EINVAL)
		return -ENOMEM;
	for (size_t i = 0; i < length; i += sl_page_size())
		((volatile char *)memory)[i] = 0;
	return 0;
}

int sl_area_take(struct sl_area *area, size_t length)
{
	size_t align = length >= HUGE_PAGE ? HUGE_PAGE : sl_page_size();
	size_t rounded = sl_whole_pages(length), mapped = rounded + align;
	char *memory, *start, *end;

	if (rounded < length || mapped < rounded)
		return sl_fail(-ENOMEM, "no memory for %zu bytes", length);
	if (!length) {
		*area = (struct sl_area){NULL, 0};
		return 0;
	}
	memory = mmap(NULL, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (memory == MAP_FAILED)
		return sl_fail(-ENOMEM, "no memory for %zu bytes", length);
	/* Unmaps the bytes before and behind the aligned range. */
	start = (char *)(((uintptr_t)memory + align - 1) / align * align);
	end = start + rounded;
	if (start > memory)
		munmap(memory, (size_t)(start - memory));
	if (memory + mapped > end)
		munmap(end, (size_t)(memory + mapped - end));
	if (align == HUGE_PAGE)
		madvise(start, rounded, MADV_HUGEPAGE);
	madvise(start, rounded, MADV_DONTFORK);
	if (area_touch(start, rounded)) {
		munmap(start, rounded);
		return sl_fail(-ENOMEM, "no memory for %zu bytes", length);
	}
	*area = (struct sl_area){start, rounded};
	return 0;
}

void sl_area_release(struct sl_area *area)
{
	if (area->memory)
		munmap(area->memory, area->length);
	*area = (struct sl_area){NULL, 0};
}

/* ------------------------------------------------------------------------------------- budget */

int sl_bytes_take(struct sluice_series *s, uint64_t bytes)
{
	struct sluice_writer *w = s->writer;
	uint64_t had;
	bool fits;

	sl_mutex_lock(&w->mutex);
	had = w->locked.bytes;
	fits = !w->memory_bytes || (had <= w->memory_bytes && bytes <= w->memory_bytes - had);
	if (fits)
		w->locked.bytes += bytes;
	sl_mutex_unlock(&w->mutex);
	s->bytes += fits ? bytes : 0;
	if (fits)
		return 0;
	return sl_fail(-ENOBUFS,
	               "'%s' needs %" PRIu64 " bytes of memory beside %" PRIu64
	               " that are taken; %smemory_bytes is %" PRIu64
	               " and would have to be %" PRIu64,
	               s->name, bytes, had, w->sink ? "the rank's part of " : "", w->memory_bytes,
	               had + bytes);
}

void sl_bytes_give(struct sluice_series *s, uint64_t bytes)
{
	sl_mutex_lock(&s->writer->mutex);
	s->writer->locked.bytes -= bytes;
	sl_mutex_unlock(&s->writer->mutex);
	s->bytes -= bytes;
}
