/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The compressors: tasks of the writer's pool, as many as chunks may be compressed at a time. A
 * compressor that finds no chunk, or no free buffer for a packed chunk, ends;
 * sl_compress_kick_locked() submits it again.
 *
 * The pool belongs to the writer and not to the context. Workers of the context make blocking
 * calls to files and slow servers; chunks would wait behind these calls, and the number of
 * workers is chosen for them.
 */

#include "frames/frames_internal.h"

/* Returns the first frame of the queue that has chunks to begin, or NULL. */
static struct sl_frame *first_unbegun_locked(struct sluice_series *s)
{
	sl_list_each_of (frame, &s->locked.queue, struct sl_frame, locked.link) {
		if (frame->locked.begun < s->geometry.chunks)
			return frame;
	}
	return NULL;
}

/* Returns the oldest frame with a chunk to begin and a buffer for it, or NULL. */
static struct sl_frame *next_frame_locked(struct sluice_writer *w) SL_REQUIRES(&w->mutex)
{
	struct sl_frame *oldest = NULL;

	sl_list_each_of (s, &w->locked.series, struct sluice_series, locked.link) {
		struct sl_frame *frame;

		if (!s->packer || sl_list_empty(&s->packer->locked.free))
			continue;
		frame = first_unbegun_locked(s);
		if (!frame || !frame->locked.ready || !sl_share_ready_locked(frame))
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
	sl_list_each_of (s, &w->locked.series, struct sluice_series, locked.link)
		if (s->locked.queued)
			return true;
	return false;
}

/*
 * Returns how many compressors may run. If packed chunks wait to be stored while frames wait to
 * be compressed, the file thread is the bottleneck and needs a core: one compressor less.
 * Storing a chunk checks again.
 */
static unsigned compressors_allowed_locked(const struct sluice_writer *w) SL_REQUIRES(&w->mutex)
{
	bool less = w->threads > 1 && w->locked.finished > 1 && any_queued_locked(w);

	return w->threads - less;
}

/* Takes the next chunk for a running compressor, or returns NULL. */
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
	if (frame->series->share && packed->number < frame->series->share->sent)
		frame->series->share->locked.sending[frame->locked.number % SLUICE_RANKS_AHEAD]++;
	return packed;
}

/* Hands a packed chunk to the file thread. A contiguous series only counts its rounded chunks. */
static void compressor_deliver_locked(struct sl_packed_chunk *packed, double max_error,
                                      int64_t took) SL_UNCHECKED
{
	struct sl_frame *frame = packed->frame;
	struct sluice_series *s = frame->series;
	struct sluice_writer_counts *counts = &s->locked.counts;

	counts->compress.bytes += s->geometry.chunk_bytes;
	counts->compress.busy_ns += (uint64_t)took;
	counts->max_error = SL_MAX(counts->max_error, max_error);
	if (s->layout.contiguous) {
		frame->locked.rounded++;
		sl_list_append(&s->packer->locked.free, &packed->link);
	} else {
		sl_list_append(&frame->locked.finished, &packed->link);
		s->writer->locked.finished++;
		s->writer->locked.finished_bytes += packed->length;
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
		sl_series_block(s, packed->number, &packed->block);
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

/* Submits at most one compressor, which submits the next. So a program that submits a frame
 * wakes one thread and does not wait for a wake-up of each core. */
void sl_compress_kick_locked(struct sluice_writer *w)
{
	if (w->locked.compressing >= compressors_allowed_locked(w) || packing_is_over_locked(w) ||
	    !next_frame_locked(w))
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
