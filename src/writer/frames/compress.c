/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The compressors: tasks for the writer's pool, each with a chunk at a time. Without a chunk, or a
 * free buffer for it, a compressor ends; sl_queue_kick_locked() submits it again.
 *
 * The pool belongs to the writer and not to the context: workers there make blocking calls to
 * files and slow servers, and chunks would wait behind these calls.
 *
 * Threads: the pool.
 */
#include "frames/frames_internal.h"

/* Takes the next chunk for a running compressor, or returns NULL. */
static struct sl_packed_chunk *compressor_next_locked(struct sluice_writer *w)
	SL_REQUIRES(&w->mutex)
{
	struct sl_frame *frame = sl_queue_next_locked(w, false);
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
		s->writer->queue.finished++;
		s->writer->queue.finished_bytes += packed->length;
		if (packed->bytes == packed->room)
			sl_frame_used_locked(frame);
	}
	pthread_cond_signal(&s->writer->work);
}

static void compressor_run(struct sl_task *task)
{
	struct sl_compressor *compressor = SL_CONTAINER(task, struct sl_compressor, task);
	struct sluice_writer *w = compressor->writer;
	struct sl_packed_chunk *packed;

	sl_mutex_lock(&w->mutex);
	while ((packed = compressor_next_locked(w))) {
		struct sluice_series *s = packed->frame->series;
		int64_t begun = sl_now();
		double max_error;
		int rc;

		sl_queue_kick_locked(w);
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
	w->queue.compressing--;
	sl_mutex_unlock(&w->mutex);
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
