/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The compressors: as many tasks of the writer's pool as chunks may be compressed at a time. One that has
 * no chunk, or no output for it, is over, and is handed in again by sl_compress_kick().
 *
 * The pool is the writer's own, and not that of the context: the workers there make blocking calls, of
 * files and of slow servers, and a chunk would wait behind them, or they behind it; and their number is
 * chosen for that.
 */
#include <stdlib.h>

#include "frames/pipeline.h"

/* With the mutex. The first frame of a line whose chunks are not all begun; NULL: there is none. */
static struct sl_frame *beginning(struct sluice_series *s)
{
	sl_list_each (link, &s->locked.line) {
		struct sl_frame *frame = SL_CONTAINER(link, struct sl_frame, locked.link);

		if (frame->locked.begun < s->geometry.chunks)
			return frame;
	}
	return NULL;
}

/* The oldest frame of which a chunk can be begun, with what it needs. */
static struct sl_frame *next_frame(struct sluice_writer *w)
{
	struct sl_frame *oldest = NULL;

	sl_list_each (link, &w->locked.series) {
		struct sluice_series *s = SL_CONTAINER(link, struct sluice_series, locked.link);
		struct sl_frame *frame;

		if (!s->tools || sl_list_empty(&s->tools->locked.free))
			continue;
		frame = beginning(s);
		if (!frame || !frame->locked.ready)
			continue;
		if (!oldest || frame->locked.sequence < oldest->locked.sequence)
			oldest = frame;
	}
	return oldest;
}

static bool is_over(const struct sluice_writer *w)
{
	return w->locked.failure.error || w->locked.closing == SL_DISCARDING;
}

/* A frame of which nothing is begun: the program is ahead of storage. */
static bool any_queued(const struct sluice_writer *w)
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
static unsigned compressors_allowed(const struct sluice_writer *w)
{
	bool less = w->threads > 1 && w->locked.finished > 1 && any_queued(w);

	return w->threads - less;
}

/* For one that is busy. NULL: there is no chunk now. */
static struct sl_output *next_chunk(struct sluice_writer *w)
{
	bool may = !is_over(w) && w->locked.compressing <= compressors_allowed(w);
	struct sl_frame *frame = may ? next_frame(w) : NULL;
	struct sl_output *output;

	if (!frame)
		return NULL;
	if (!frame->locked.begun)
		frame->series->locked.queued--;
	output = SL_CONTAINER(sl_list_take(&frame->series->tools->locked.free), struct sl_output,
	                      link);
	output->frame = frame;
	output->number = frame->locked.begun++;
	return output;
}

/* A chunk is what it will be. Of contiguous series only the whole frame matters. */
static void deliver(struct sl_output *output, double max_error, int64_t took)
{
	struct sl_frame *frame = output->frame;
	struct sluice_series *s = frame->series;
	struct sl_counts *counts = &s->locked.counts;

	counts->compress.bytes += s->geometry.chunk_bytes;
	counts->compress.busy_ns += (uint64_t)took;
	counts->max_error = SL_MAX(counts->max_error, max_error);
	if (s->layout.contiguous) {
		frame->locked.rounded++;
		sl_list_append(&s->tools->locked.free, &output->link);
	} else {
		sl_list_append(&frame->locked.finished, &output->link);
		s->writer->locked.finished++;
		if (output->bytes == output->room)
			sl_frame_used(frame, 1);
	}
	pthread_cond_signal(&s->writer->work);
}

static void compressor_run(struct sl_task *task)
{
	struct sl_compressor *compressor = SL_CONTAINER(task, struct sl_compressor, task);
	struct sluice_writer *w = compressor->writer;
	struct sl_output *output;

	pthread_mutex_lock(&w->mutex);
	while ((output = next_chunk(w))) {
		struct sluice_series *s = output->frame->series;
		int64_t begun = sl_now();
		double max_error;
		int rc;

		sl_compress_kick(w);
		pthread_mutex_unlock(&w->mutex);
		sl_geometry_block(&s->geometry, output->number, &output->block);
		rc = sl_chunk_make(s, compressor->index, output, &max_error);
		pthread_mutex_lock(&w->mutex);
		if (rc)
			sl_writer_fail(w, rc, "compress", output->frame);
		else
			deliver(output, max_error, sl_now() - begun);
	}
	compressor->busy = false;
	w->locked.compressing--;
	pthread_mutex_unlock(&w->mutex);
}

/* Whether a chunk could be begun now. */
static bool chunk_waits(struct sluice_writer *w)
{
	return !is_over(w) && next_frame(w);
}

/*
 * One at most: it hands in the next one itself. So a program that submits a frame wakes one thread, and is
 * not held up by a wake for each core.
 */
void sl_compress_kick(struct sluice_writer *w)
{
	if (w->locked.compressing >= compressors_allowed(w) || !chunk_waits(w))
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
