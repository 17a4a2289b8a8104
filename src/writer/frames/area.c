/* SPDX-License-Identifier: Apache-2.0 */
/* Memory for frames and chunks, present from the start; and the writer's memory_bytes.
 * Threads: the program's, in the calls that add a series or free it. */
#include <errno.h>
#include <inttypes.h>
#include <sys/mman.h>

#include "frames/frames_internal.h"

int sl_area_take(struct sl_area *area, size_t length)
{
	*area = (struct sl_area){NULL, 0};
	if (!length)
		return 0;
	size_t rounded = sl_whole_pages(length);
	char *memory = sl_private_map(length);
	if (!memory)
		return sl_fail(-ENOMEM, "no memory for %zu bytes", length);
	madvise(memory, rounded, MADV_DONTFORK);
	/* So that no frame waits for pages later, and too little memory is known now. */
	if (!sl_private_touch(memory, rounded)) {
		munmap(memory, rounded);
		return sl_fail(-ENOMEM, "no memory for %zu bytes", length);
	}
	*area = (struct sl_area){memory, rounded};
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
