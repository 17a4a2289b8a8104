/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The keeper: the thread of a writer that has its file. It stores chunks as they come, those of a series in
 * the order of its frames; between two frames it flushes, or adds a series. It sleeps while there is nothing
 * to do, and wakes by time only if there is something to flush.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

#include "frames/pipeline.h"

static struct sl_frame *first_of(struct sluice_series *s)
{
	struct sl_list *line = &s->locked.line;

	return sl_list_empty(line) ? NULL : SL_CONTAINER(line->next, struct sl_frame, locked.link);
}

/* Whether the file has some of it, and not all. */
static bool is_torn(const struct sl_frame *frame)
{
	return frame->locked.stored || frame->locked.writing;
}

static bool any(struct sluice_writer *w, bool (*is)(const struct sl_frame *))
{
	sl_list_each (link, &w->locked.series) {
		struct sluice_series *s = SL_CONTAINER(link, struct sluice_series, locked.link);

		sl_list_each (at, &s->locked.line) {
			if (is(SL_CONTAINER(at, struct sl_frame, locked.link)))
				return true;
		}
	}
	return false;
}

/* What is stored next: a frame, or a slab, be it the open one; NULL: there is none. */
static struct sl_frame *current(struct sluice_series *s)
{
	struct sl_frame *first = first_of(s);

	return first ? first : s->locked.open;
}

/* The last frame up to which all are stored, or will be in a flush. */
static uint64_t stored_through(struct sluice_writer *w)
{
	uint64_t through = w->locked.sequence;

	sl_list_each (link, &w->locked.series) {
		struct sl_frame *frame =
			current(SL_CONTAINER(link, struct sluice_series, locked.link));
		size_t there = frame ? frame->locked.there : 0;

		if (!frame)
			continue;
		if (!frame->slots || frame->locked.ready)
			through = SL_MIN(through, frame->locked.sequence - 1);
		else if (there < frame->locked.taken)
			through = SL_MIN(through, frame->slots[there].sequence - 1);
	}
	return through;
}

/* Without the mutex from here on: the keeper calls its file. */
static void unlock(struct sluice_writer *w, const char *stage, const struct sl_frame *frame)
{
	w->locked.doing.stage = stage;
	w->locked.doing.frame = frame;
	pthread_mutex_unlock(&w->mutex);
}

static void lock(struct sluice_writer *w)
{
	uint64_t held = w->file ? sl_frame_file_held(w->file) : 0;
	int64_t full_ns = w->locked.full ? sl_now() - w->locked.full_since : 0;

	if (w->locked.full)
		sl_log(&w->ctx->core.settings, SL_LOG_ERROR,
		       "'%s': it was waited for %" PRId64 " ms", w->path, full_ns / 1000000);
	pthread_mutex_lock(&w->mutex);
	w->locked.held = held;
	w->locked.full = 0;
	w->locked.full_ns += (uint64_t)full_ns;
}

#define FULL_NS ((int64_t)1000000000) /* until a full disk is tried again */

/* The keeper alone changes what it reads here without the mutex. */
bool sl_keeper_full(void *writer, int error)
{
	struct sluice_writer *w = writer;
	int64_t now = sl_now(), until, last;
	bool again;

	if (!w->full_ns)
		return false;
	if (!w->locked.full)
		sl_log(&w->ctx->core.settings, SL_LOG_ERROR, "'%s': %s: the writer waits for room",
		       w->path, sl_error_text(error));
	pthread_mutex_lock(&w->mutex);
	if (!w->locked.full) {
		w->locked.full_since = now;
		w->locked.full_waits++;
	}
	w->locked.full = error;
	last = w->full_ns == SL_FOREVER ? SL_FOREVER : w->locked.full_since + w->full_ns;
	until = SL_MIN(now + SL_MIN(FULL_NS, w->full_ns / 10), last);
	/* Ended by the time, or by sluice_writer_discard(). */
	while (w->locked.closing != SL_DISCARDING && sl_now() < until)
		sl_writer_wait(w, &w->work, until);
	again = now < last && w->locked.closing != SL_DISCARDING;
	pthread_mutex_unlock(&w->mutex);
	return again;
}

/* ------------------------------------------------------------------------------------ storing */

static int tell_frames(struct sl_frame *frame, uint64_t from, uint64_t to, double max_error)
{
	struct sluice_series *s = frame->series;
	const double *scalars = frame->scalars;

	if (scalars)
		scalars += from * s->layout.scalar_count;
	return sl_frame_file_frames(s->dataset, frame->locked.number + from, to - from, scalars,
	                            max_error);
}

static void count_frames(struct sluice_series *s, uint64_t frames)
{
	s->locked.counts.stored += frames;
	s->locked.counts.raw_bytes += frames * s->frame_bytes;
}

/* A frame, or what a flush has left of a slab. */
static void frame_stored(struct sl_frame *frame)
{
	struct sluice_series *s = frame->series;
	struct sluice_writer *w = s->writer;
	uint64_t from = frame->locked.rows, to = frame->slots ? s->layout.gather : 1;
	double max_error = s->locked.counts.max_error;
	int64_t begun = sl_now();
	int rc;

	unlock(w, "store", frame);
	rc = tell_frames(frame, from, to, max_error);
	lock(w);
	s->locked.counts.store.busy_ns += (uint64_t)(sl_now() - begun);
	if (rc) {
		sl_writer_fail(w, rc, "store", frame);
		return;
	}
	sl_list_remove(&frame->locked.link);
	count_frames(s, to - from);
	w->locked.frames_since += !frame->slots;
	w->locked.dirty = true;
	if (w->locked.dirty_since == SL_FOREVER)
		w->locked.dirty_since = sl_now();
	sl_frame_recycle(frame);
}

/* A chunk of a series without tools, as it lies in the frame. */
static struct sl_output *plain_output(struct sl_frame *frame)
{
	struct sluice_series *s = frame->series;
	struct sl_output *output = &s->plain;

	s->locked.queued -= !frame->locked.begun;
	output->frame = frame;
	output->number = frame->locked.begun++;
	sl_geometry_block(&s->geometry, output->number, &output->block);
	output->bytes = frame->data + output->block.start;
	output->length = s->geometry.chunk_bytes;
	return output;
}

static void count_chunk(const struct sl_output *output, int64_t took)
{
	struct sl_counts *counts = &output->frame->series->locked.counts;

	counts->store.bytes += output->length;
	counts->store.busy_ns += (uint64_t)took;
	counts->stored_bytes += output->length;
	counts->chunks++;
	counts->raw_chunks += (output->mask & output->frame->series->mask_codec) != 0;
}

static void store_chunk(struct sl_output *output)
{
	struct sl_frame *frame = output->frame;
	struct sluice_series *s = frame->series;
	struct sluice_writer *w = s->writer;
	int64_t begun = sl_now();
	int rc;

	/* From here on it is stored in part, whatever comes of it. */
	frame->locked.stored++;
	unlock(w, "store", frame);
	rc = sl_frame_file_store(s->dataset, frame->locked.number,
	                         output->block.offset + (s->slabs ? 1 : 0), output->mask,
	                         output->bytes, output->length);
	lock(w);
	if (rc) {
		sl_writer_fail(w, rc, "store", frame);
		return;
	}
	count_chunk(output, sl_now() - begun);
	if (s->tools) {
		/* Of the last chunk the frame itself is free at once. */
		if (output->bytes != output->room && frame->locked.stored < s->geometry.chunks)
			sl_frame_used(frame, 1);
		sl_list_append(&s->tools->locked.free, &output->link);
		sl_compress_kick(w);
	}
	if (frame->locked.stored == s->geometry.chunks)
		frame_stored(frame);
}

/*
 * While a cut is awaited a frame is begun only if one that is torn wants an output, and there is none: some
 * may be with frames that are not begun. See pipeline.h.
 */
static bool begin_one(struct sluice_writer *w, const struct sluice_series *of)
{
	if (!of->tools || !sl_list_empty(&of->tools->locked.free))
		return false;
	sl_list_each (link, &w->locked.series) {
		struct sluice_series *s = SL_CONTAINER(link, struct sluice_series, locked.link);
		struct sl_frame *frame = first_of(s);

		if (s->tools == of->tools && frame && is_torn(frame) &&
		    frame->locked.begun < s->geometry.chunks)
			return true;
	}
	return false;
}

static bool has_output(const struct sl_frame *frame)
{
	if (frame->series->tools)
		return !sl_list_empty(&frame->locked.finished);
	return frame->locked.ready && frame->locked.begun < frame->series->geometry.chunks;
}

/* A chunk that may be stored now. The series take turns: one goes to the end of the list. */
static struct sl_output *next_output(struct sluice_writer *w, bool cut)
{
	sl_list_each (link, &w->locked.series) {
		struct sluice_series *s = SL_CONTAINER(link, struct sluice_series, locked.link);
		struct sl_frame *frame = first_of(s);

		if (!frame || !has_output(frame) || (cut && !is_torn(frame) && !begin_one(w, s)))
			continue;
		sl_list_remove(link);
		sl_list_append(&w->locked.series, link);
		if (!s->tools)
			return plain_output(frame);
		w->locked.finished--;
		return SL_CONTAINER(sl_list_take(&frame->locked.finished), struct sl_output, link);
	}
	return NULL;
}

/* -------------------------------------------------------------------------------------- slabs */

int sl_keeper_rows(struct sl_frame *slab, uint64_t from, uint64_t to, double *max_error)
{
	struct sluice_series *s = slab->series;
	struct sl_output *output = &s->plain;
	int rc = 0;

	*max_error = 0;
	output->frame = slab;
	for (output->number = 0; !rc && output->number < s->geometry.chunks; output->number++) {
		double error = sl_chunk_rows(s, output, from, to);

		*max_error = SL_MAX(*max_error, error);
		rc = sl_frame_file_rows(s->dataset, slab->locked.number, from, to,
		                        output->block.offset + 1, output->bytes,
		                        s->geometry.chunk_bytes);
	}
	return rc;
}

/* What is there of a slab that is not ready. */
static void store_rows(struct sl_frame *slab)
{
	struct sluice_series *s = slab->series;
	struct sluice_writer *w = s->writer;
	uint64_t from = slab->locked.rows, to = slab->locked.there;
	double error, before = s->locked.counts.max_error;
	int64_t begun = sl_now();
	int rc;

	if (from == to)
		return;
	/* Compressors round it. */
	slab->locked.flushing = true;
	unlock(w, "store", slab);
	rc = sl_keeper_rows(slab, from, to, &error);
	if (!rc)
		rc = tell_frames(slab, from, to, SL_MAX(before, error));
	lock(w);
	slab->locked.flushing = false;
	if (rc) {
		sl_writer_fail(w, rc, "store", slab);
		return;
	}
	slab->locked.rows = to;
	slab->locked.sequence = to < slab->locked.taken ? slab->slots[to].sequence : 0;
	s->locked.counts.max_error = SL_MAX(s->locked.counts.max_error, error);
	s->locked.counts.store.bytes += (to - from) * s->frame_bytes;
	s->locked.counts.store.busy_ns += (uint64_t)(sl_now() - begun);
	count_frames(s, to - from);
	if (slab->locked.there == s->layout.gather)
		sl_frame_ready(slab);
}

static void store_slabs(struct sluice_writer *w)
{
	sl_list_each (link, &w->locked.series) {
		struct sl_frame *frame =
			current(SL_CONTAINER(link, struct sluice_series, locked.link));

		if (frame && frame->slots && !frame->locked.ready && !w->locked.failure.error)
			store_rows(frame);
	}
}

/* -------------------------------------------------------------------------------- contiguous */

/* A frame of a contiguous series that is written: of each line the first one counts. */
static struct sl_frame *next_written(struct sluice_writer *w)
{
	sl_list_each (link, &w->locked.series) {
		struct sl_frame *frame =
			first_of(SL_CONTAINER(link, struct sluice_series, locked.link));

		if (frame && frame->locked.written)
			return frame;
	}
	return NULL;
}

/* One that may be given to the engine: they are written side by side. */
static struct sl_frame *next_to_write(struct sluice_writer *w)
{
	sl_list_each (link, &w->locked.series) {
		struct sluice_series *s = SL_CONTAINER(link, struct sluice_series, locked.link);

		if (!s->layout.contiguous)
			continue;
		sl_list_each (at, &s->locked.line) {
			struct sl_frame *frame = SL_CONTAINER(at, struct sl_frame, locked.link);

			if (!frame->locked.ready || frame->locked.rounded < s->geometry.chunks)
				break;
			if (!frame->locked.writing)
				return frame;
		}
	}
	return NULL;
}

static bool store_something(struct sluice_writer *w, bool cut)
{
	struct sl_frame *frame = cut ? NULL : next_to_write(w);
	struct sl_output *output;

	if (frame) {
		sl_direct_start(frame);
		return true;
	}
	frame = next_written(w);
	if (frame) {
		frame_stored(frame);
		return true;
	}
	output = next_output(w, cut);
	if (output)
		store_chunk(output);
	return output;
}

/* -------------------------------------------------------------------------------------- cuts */

static bool flush_is_due(struct sluice_writer *w)
{
	if (w->locked.flush_wanted && stored_through(w) >= w->locked.flush_cut)
		return true;
	if (w->checkpoint_frames && w->locked.frames_since >= w->checkpoint_frames)
		return true;
	return w->checkpoint_ns && w->locked.dirty_since != SL_FOREVER &&
	       sl_now() - w->locked.dirty_since >= w->checkpoint_ns;
}

static void count_flush(struct sluice_writer *w, uint64_t through, int64_t took)
{
	w->locked.flushes++;
	w->locked.flush.busy_ns += (uint64_t)took;
	w->locked.flushed = SL_MAX(w->locked.flushed, through);
	sl_list_each (link, &w->locked.series) {
		struct sl_counts *counts =
			&SL_CONTAINER(link, struct sluice_series, locked.link)->locked.counts;

		/* The keeper alone stores: these are those that were stored before. */
		w->locked.flush.bytes += counts->stored_bytes - counts->flush.bytes;
		counts->flush.bytes = counts->stored_bytes;
		counts->flush.busy_ns += (uint64_t)took;
		counts->flushes++;
		counts->visible = counts->stored;
		if (w->flags & SLUICE_WRITER_DURABLE)
			counts->durable = counts->stored;
	}
}

static void flush(struct sluice_writer *w)
{
	uint64_t through = stored_through(w);
	int64_t begun = sl_now();
	int rc;

	store_slabs(w);
	if (w->locked.failure.error)
		return;
	unlock(w, "flush", NULL);
	rc = sl_frame_file_flush(w->file);
	lock(w);
	if (rc) {
		sl_writer_fail(w, rc, "flush", NULL);
		return;
	}
	w->locked.dirty = false;
	w->locked.dirty_since = SL_FOREVER;
	w->locked.frames_since = 0;
	/* Frames that came to slabs meanwhile. */
	sl_list_each (link, &w->locked.series) {
		struct sl_frame *frame =
			current(SL_CONTAINER(link, struct sluice_series, locked.link));

		if (!frame || !frame->slots || frame->locked.ready ||
		    frame->locked.there == frame->locked.rows)
			continue;
		w->locked.dirty = true;
		w->locked.dirty_since = sl_now();
		w->locked.frames_since += frame->locked.there - frame->locked.rows;
	}
	if (through >= w->locked.flush_cut) {
		w->locked.flush_cut = w->locked.flush_last;
		w->locked.flush_wanted = through < w->locked.flush_last;
	}
	count_flush(w, through, sl_now() - begun);
	pthread_cond_broadcast(&w->told);
}

static void run_errand(struct sluice_writer *w)
{
	struct sl_errand *errand =
		SL_CONTAINER(sl_list_take(&w->locked.errands), struct sl_errand, link);
	int rc;

	unlock(w, "store", NULL);
	rc = errand->run(errand);
	lock(w);
	errand->result = rc;
	if (rc)
		snprintf(errand->message, sizeof(errand->message), "%s", sluice_last_message());
	errand->done = true;
	pthread_cond_broadcast(&w->told);
}

/* What needs that no frame is torn. True: it was done. */
static bool cut(struct sluice_writer *w, bool *wanted)
{
	bool asked = !sl_list_empty(&w->locked.errands), due = flush_is_due(w);

	*wanted = asked || due;
	if (!*wanted || any(w, is_torn))
		return false;
	if (due)
		flush(w);
	else
		run_errand(w);
	return true;
}

/* --------------------------------------------------------------------------------------- life */

static bool is_drained(struct sluice_writer *w)
{
	return stored_through(w) == w->locked.sequence;
}

static int64_t wake_at(const struct sluice_writer *w)
{
	if (!w->checkpoint_ns || w->locked.dirty_since == SL_FOREVER)
		return SL_FOREVER;
	return w->locked.dirty_since + w->checkpoint_ns;
}

/* Until the writer is closed and all is stored, or nothing more will be. With the mutex. */
static void serve(struct sluice_writer *w)
{
	bool wanted = false;

	for (;;) {
		bool failed = w->locked.failure.error;

		if (w->locked.closing == SL_DISCARDING || (failed && w->locked.closing))
			return;
		if (!failed && (cut(w, &wanted) || store_something(w, wanted)))
			continue;
		if (!failed && w->locked.closing && is_drained(w))
			return;
		/* Ended by a chunk, a frame, a cut that is asked for, the end; or by the time. A cut that
		 * is wanted waits for chunks. */
		sl_writer_wait(w, &w->work, failed || wanted ? SL_FOREVER : wake_at(w));
	}
}

/* With the mutex. */
static void end(struct sluice_writer *w)
{
	bool keep;
	int rc;
	if (!w->file)
		return;
	/* Ended by the ends of those operations. */
	while (w->locked.writes)
		sl_writer_wait(w, &w->work, SL_FOREVER);
	/* After an error, too: what is stored in part is left out. */
	keep = w->locked.closing == SL_CLOSING;
	if (keep)
		store_slabs(w);
	unlock(w, "flush", NULL);
	rc = sl_frame_file_close(w->file, keep);
	pthread_mutex_lock(&w->mutex);
	w->file = NULL;
	if (rc)
		sl_writer_fail(w, rc, "flush", NULL);
}

static void tell_end(struct sluice_writer *w)
{
	w->locked.ended = true;
	pthread_cond_broadcast(&w->told);
	pthread_mutex_unlock(&w->mutex);
}

/*
 * The thread ends in a call of HDF5, by pthread_exit() or a cancellation of somebody else's. The file cannot
 * be closed any more, as HDF5 is locked by nobody; it stays as its last flush left it.
 */
static void died(void *argument)
{
	struct sluice_writer *w = argument;

	pthread_mutex_lock(&w->mutex);
	sl_fail(-EIO, "the thread that has the file has died");
	sl_writer_fail(w, -EIO, w->locked.doing.stage, w->locked.doing.frame);
	tell_end(w);
}

void *sl_keeper_run(void *argument)
{
	struct sluice_writer *w = argument;

	pthread_cleanup_push(died, w);
	pthread_mutex_lock(&w->mutex);
	serve(w);
	end(w);
	tell_end(w);
	pthread_cleanup_pop(0);
	return NULL;
}
