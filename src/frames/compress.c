/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The compressors: as many tasks of the writer's pool as chunks may be compressed at a time. One that has
 * no chunk, or no output for it, is over, and is handed in again by sl_compress_kick_locked().
 *
 * The pool is the writer's own, and not that of the context: the workers there make blocking calls, of
 * files and of slow servers, and a chunk would wait behind them, or they behind it; and their number is
 * chosen for that.
 */
#include <stdlib.h>

#include "frames/frames_internal.h"

/* With the mutex. The first frame of a line whose chunks are not all begun; NULL: there is none. */
static struct sl_frame *first_unbegun_locked(struct sluice_series *s)
{
	sl_list_each (link, &s->locked.line) {
		struct sl_frame *frame = SL_CONTAINER(link, struct sl_frame, locked.link);

		if (frame->locked.begun < s->geometry.chunks)
			return frame;
	}
	return NULL;
}

/* The oldest frame of which a chunk can be begun, with what it needs. */
static struct sl_frame *next_frame_locked(struct sluice_writer *w) SL_REQUIRES(&w->mutex)
{
	struct sl_frame *oldest = NULL;

	sl_list_each (link, &w->locked.series) {
		struct sluice_series *s = SL_CONTAINER(link, struct sluice_series, locked.link);
		struct sl_frame *frame;

		if (!s->packer || sl_list_empty(&s->packer->locked.free))
			continue;
		frame = first_unbegun_locked(s);
		if (!frame || !frame->locked.ready)
			continue;
		if (!oldest || frame->locked.sequence < oldest->locked.sequence)
			oldest = frame;
	}
	return oldest;
}

static bool packing_is_over_locked(const struct sluice_writer *w) SL_REQUIRES(&w->mutex)
{
	return w->locked.failure.error || w->locked.closing == SL_DISCARDING;
}

/* A frame of which nothing is begun: the program is ahead of storage. */
static bool any_queued_locked(const struct sluice_writer *w) SL_REQUIRES(&w->mutex)
{
	sl_list_each (link, &w->locked.series) {
		if (SL_CONTAINER(link, struct sluice_series, locked.link)->locked.queued)
			return true;
	}
	return false;
}

/*
 * How many may be busy. If chunks wait to be stored and frames to be compressed, the keeper is what all wait
 * for, and it has to have a core: one compressor less. Whoever stores a chunk looks again.
 */
static unsigned compressors_allowed_locked(const struct sluice_writer *w) SL_REQUIRES(&w->mutex)
{
	bool less = w->threads > 1 && w->locked.finished > 1 && any_queued_locked(w);

	return w->threads - less;
}

/* For one that is busy. NULL: there is no chunk now. */
static struct sl_packed_chunk *next_chunk_locked(struct sluice_writer *w) SL_REQUIRES(&w->mutex)
{
	bool may = !packing_is_over_locked(w) &&
	           w->locked.compressing <= compressors_allowed_locked(w);
	struct sl_frame *frame = may ? next_frame_locked(w) : NULL;
	struct sl_packed_chunk *packed;

	if (!frame)
		return NULL;
	if (!frame->locked.begun)
		frame->series->locked.queued--;
	packed = SL_CONTAINER(sl_list_take(&frame->series->packer->locked.free),
	                      struct sl_packed_chunk, link);
	packed->frame = frame;
	packed->number = frame->locked.begun++;
	return packed;
}

/* A chunk is what it will be. Of contiguous series only the whole frame matters. */
static void compressor_deliver_locked(struct sl_packed_chunk *packed, double max_error,
                                      int64_t took) SL_UNCHECKED
{
	struct sl_frame *frame = packed->frame;
	struct sluice_series *s = frame->series;
	struct sl_counts *counts = &s->locked.counts;

	counts->compress.bytes += s->geometry.chunk_bytes;
	counts->compress.busy_ns += (uint64_t)took;
	counts->max_error = SL_MAX(counts->max_error, max_error);
	if (s->layout.contiguous) {
		frame->locked.rounded++;
		sl_list_append(&s->packer->locked.free, &packed->link);
	} else {
		sl_list_append(&frame->locked.finished, &packed->link);
		s->writer->locked.finished++;
		if (packed->bytes == packed->room)
			sl_frame_used_locked(frame, 1);
	}
	pthread_cond_signal(&s->writer->work);
}

static void compressor_run(struct sl_task *task)
{
	struct sl_compressor *compressor = SL_CONTAINER(task, struct sl_compressor, task);
	struct sluice_writer *w = compressor->writer;
	struct sl_packed_chunk *packed;

	sl_mutex_lock(&w->mutex);
	while ((packed = next_chunk_locked(w))) {
		struct sluice_series *s = packed->frame->series;
		int64_t begun = sl_now();
		double max_error;
		int rc;

		sl_compress_kick_locked(w);
		sl_mutex_unlock(&w->mutex);
		sl_geometry_block(&s->geometry, packed->number, &packed->block);
		rc = sl_chunk_make(s, compressor->index, packed, &max_error);
		sl_mutex_lock(&w->mutex);
		if (rc)
			sl_writer_fail_locked(w, rc, "compress", packed->frame);
		else
			compressor_deliver_locked(packed, max_error, sl_now() - begun);
	}
	compressor->busy = false;
	w->locked.compressing--;
	sl_mutex_unlock(&w->mutex);
}

/* Whether a chunk could be begun now. */
static bool chunk_waits_locked(struct sluice_writer *w) SL_REQUIRES(&w->mutex)
{
	return !packing_is_over_locked(w) && next_frame_locked(w);
}

/*
 * One at most: it hands in the next one itself. So a program that submits a frame wakes one thread, and is
 * not held up by a wake for each core.
 */
void sl_compress_kick_locked(struct sluice_writer *w)
{
	if (w->locked.compressing >= compressors_allowed_locked(w) || !chunk_waits_locked(w))
		return;
	for (unsigned i = 0; i < w->threads; i++) {
		struct sl_compressor *compressor = &w->compressors[i];

		if (compressor->busy)
			continue;
		compressor->busy = true;
		w->locked.compressing++;
		sl_pool_submit(w->pool, &compressor->task);
		return;
	}
}

int sl_compress_start(struct sluice_writer *w)
{
	for (unsigned i = 0; i < w->threads; i++) {
		struct sl_compressor *compressor = &w->compressors[i];

		compressor->writer = w;
		compressor->index = i;
		compressor->task.home = i;
		compressor->task.run = compressor_run;
	}
	return sl_pool_start("sluice-pack", w->threads, w->threads, &w->pool);
}
