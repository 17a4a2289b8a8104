/* SPDX-License-Identifier: Apache-2.0 */
/* The queue of a writer: frames from submission until they are free, bundles, and what is next.
 * Threads: the program's, the pool and the file thread, with the writer's mutex. */
#include <string.h>

#include "frames/frames_internal.h"

/* ------------------------------------------------------------------------------------ choice */

struct sl_frame *sl_queue_first(struct sluice_series *s)
{
	return sl_list_item(s->locked.queue.next, &s->locked.queue, struct sl_frame, locked.link);
}

struct sl_frame *sl_queue_current(struct sluice_series *s)
{
	struct sl_frame *first = sl_queue_first(s);

	return first ? first : s->locked.open;
}

uint64_t sl_queue_stored_through_locked(struct sluice_writer *w)
{
	uint64_t through = w->queue.sequence;

	sl_list_each_of (s, &w->queue.series, struct sluice_series, locked.link) {
		struct sl_frame *frame = sl_queue_current(s);
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

bool sl_queue_has_fragments_locked(const struct sl_frame *frame)
{
	const struct sl_share *share = frame->series->share;
	uint64_t slot = frame->locked.number % SLUICE_RANKS_AHEAD;

	if (!share)
		return true;
	if (frame->locked.number >= SL_MIN(share->locked.limit, share->locked.last))
		return false;
	if (frame->locked.begun < share->sent)
		return frame->locked.begun || !share->locked.sending[slot];
	return frame->locked.begun < share->alone ||
	       share->locked.arrived[slot] == share->fragment_count;
}

/* Returns the first frame with chunks to begin, or NULL. */
static struct sl_frame *queue_unbegun_locked(struct sluice_series *s)
{
	sl_list_each_of (frame, &s->locked.queue, struct sl_frame, locked.link) {
		if (frame->locked.begun < s->geometry.chunks)
			return frame;
	}
	return NULL;
}

/* Returns the oldest frame with a chunk to begin and a buffer for it, or NULL. */
static struct sl_frame *queue_oldest_locked(struct sluice_writer *w) SL_REQUIRES(&w->mutex)
{
	struct sl_frame *oldest = NULL;

	sl_list_each_of (s, &w->queue.series, struct sluice_series, locked.link) {
		struct sl_frame *frame;

		if (!s->packer || sl_list_empty(&s->packer->locked.free))
			continue;
		frame = queue_unbegun_locked(s);
		if (!frame || !frame->locked.ready || !sl_queue_has_fragments_locked(frame))
			continue;
		if (!oldest || frame->locked.sequence < oldest->locked.sequence)
			oldest = frame;
	}
	return oldest;
}

static bool queue_is_over_locked(const struct sluice_writer *w) SL_REQUIRES(&w->mutex)
{
	return w->failure.error || w->locked.closing == SL_DISCARDING;
}

/* Returns whether nothing of a frame is begun: the program is ahead of storage. */
static bool queue_is_ahead_locked(const struct sluice_writer *w) SL_REQUIRES(&w->mutex)
{
	sl_list_each_of (s, &w->queue.series, struct sluice_series, locked.link)
		if (s->locked.queued)
			return true;
	return false;
}

/* Returns how many compressors may run. If packed chunks wait to be stored while frames wait to be
 * compressed, the file thread is the bottleneck and needs a core: one compressor less. */
static unsigned queue_compressors_locked(const struct sluice_writer *w) SL_REQUIRES(&w->mutex)
{
	bool less = w->threads > 1 && w->queue.finished > 1 && queue_is_ahead_locked(w);

	return w->threads - less;
}

struct sl_frame *sl_queue_next_locked(struct sluice_writer *w, bool more)
{
	if (queue_is_over_locked(w) || w->queue.compressing + more > queue_compressors_locked(w))
		return NULL;
	return queue_oldest_locked(w);
}

/* A single compressor, which submits the next: the program's thread wakes only one. */
void sl_queue_kick_locked(struct sluice_writer *w)
{
	if (!sl_queue_next_locked(w, true))
		return;
	for (unsigned i = 0; i < w->threads; i++) {
		struct sl_compressor *compressor = &w->compressors[i];

		if (compressor->busy)
			continue;
		compressor->busy = true;
		w->queue.compressing++;
		sl_pool_submit(w->pool, &compressor->task);
		return;
	}
}

/* -------------------------------------------------------------------------------------- free */

void sl_frame_recycle_locked(struct sl_frame *frame)
{
	struct sluice_series *s = frame->series;

	frame->locked.state = SL_FRAME_FREE;
	if (frame->slots) {
		sl_list_append(&s->locked.bundles, &frame->locked.link);
		s->locked.room += s->layout.gather;
		pthread_cond_broadcast(&s->freed);
		return;
	}
	if (!frame->data) {
		sl_list_append(&s->locked.spare, &frame->locked.link);
		return;
	}
	sl_list_append(&s->locked.free, &frame->locked.link);
	pthread_cond_signal(&s->freed);
}

void sl_frame_used_locked(struct sl_frame *frame)
{
	struct sluice_series *s = frame->series;
	struct sl_frame *spare;

	frame->locked.uses--;
	if (frame->locked.uses || frame->slots)
		return;
	spare = SL_CONTAINER(sl_list_take(&s->locked.spare), struct sl_frame, locked.link);
	spare->data = frame->data;
	frame->data = NULL;
	s->frame_of[(size_t)(spare->data - s->area.memory) / s->stride] = spare;
	sl_frame_recycle_locked(spare);
}

/* ----------------------------------------------------------------------------------- the way */

static void queue_enter_locked(struct sl_frame *frame)
{
	struct sluice_series *s = frame->series;

	frame->locked.ready = false;
	frame->locked.writing = frame->locked.written = false;
	frame->locked.begun = frame->locked.rounded = frame->locked.stored = 0;
	frame->locked.uses = s->geometry.chunks;
	sl_list_append(&s->locked.queue, &frame->locked.link);
	s->locked.queued++;
	s->locked.counts.queued_most = SL_MAX(s->locked.counts.queued_most, s->locked.queued);
}

struct sl_frame *sl_bundle_open_locked(struct sluice_series *s, uint64_t number)
{
	struct sl_frame *bundle =
		SL_CONTAINER(sl_list_take(&s->locked.bundles), struct sl_frame, locked.link);

	bundle->locked.state = SL_FRAME_QUEUED;
	bundle->locked.number = number;
	bundle->locked.ready = false;
	bundle->locked.taken = bundle->locked.there = bundle->locked.rows = 0;
	s->locked.open = bundle;
	return bundle;
}

static void queue_to_bundle_locked(struct sl_frame *frame, const double *scalars) SL_UNCHECKED
{
	struct sluice_series *s = frame->series;
	struct sl_frame *bundle = s->locked.open;
	size_t count = s->layout.scalar_count, slot;

	if (!bundle)
		bundle = sl_bundle_open_locked(s, frame->locked.number);
	slot = bundle->locked.taken++;
	if (count)
		memcpy(bundle->scalars + slot * count, scalars, count * sizeof(*scalars));
	bundle->slots[slot] = (struct sl_bundle_slot){.sequence = frame->locked.sequence};
	frame->locked.bundle = bundle;
	frame->locked.slot = slot;
	s->locked.room--;
	if (slot == bundle->locked.rows)
		bundle->locked.sequence = frame->locked.sequence;
	if (bundle->locked.taken < s->layout.gather)
		return;
	s->locked.open = NULL;
	queue_enter_locked(bundle);
}

/* Wakes the file thread only if it has something to do. */
static void bundle_arrive_locked(struct sl_frame *bundle, size_t slot) SL_UNCHECKED
{
	struct sluice_series *s = bundle->series;
	struct sluice_writer *w = s->writer;

	bundle->slots[slot].there = true;
	while (bundle->locked.there < bundle->locked.taken &&
	       bundle->slots[bundle->locked.there].there)
		bundle->locked.there++;
	w->flush.frames_since++;
	w->flush.dirty = true;
	if (w->flush.dirty_since == SL_FOREVER || w->flush.wanted || w->locked.closing ||
	    (w->flush.checkpoint_frames && w->flush.frames_since >= w->flush.checkpoint_frames))
		pthread_cond_signal(&w->work);
	if (w->flush.dirty_since == SL_FOREVER && bundle->locked.there > bundle->locked.rows)
		w->flush.dirty_since = sl_now();
	if (bundle->locked.there == s->layout.gather && !bundle->locked.flushing)
		sl_frame_ready_locked(bundle);
}

/* Copies a frame to its slot of the bundle. Releases the mutex meanwhile. */
static void copy_to_bundle_locked(struct sl_frame *frame) SL_UNCHECKED
{
	struct sluice_series *s = frame->series;
	struct sl_frame *bundle = frame->locked.bundle;
	size_t slot = frame->locked.slot;

	sl_mutex_unlock(&s->writer->mutex);
	memcpy(bundle->data + slot * s->frame_bytes, frame->data, s->frame_bytes);
	sl_mutex_lock(&s->writer->mutex);
	bundle_arrive_locked(bundle, slot);
	sl_frame_recycle_locked(frame);
}

void sl_frame_ready_locked(struct sl_frame *frame) SL_UNCHECKED
{
	struct sluice_writer *w = frame->series->writer;

	if (frame->series->bundles && !frame->slots) {
		copy_to_bundle_locked(frame);
		return;
	}
	frame->locked.ready = true;
	if (frame->series->packer)
		sl_queue_kick_locked(w);
	else
		pthread_cond_signal(&w->work);
}

void sl_queue_append_locked(struct sl_frame *frame, const double *scalars, bool ready) SL_UNCHECKED
{
	struct sluice_series *s = frame->series;
	struct sluice_writer *w = s->writer;

	frame->locked.state = SL_FRAME_QUEUED;
	frame->locked.number = s->locked.next++;
	frame->locked.sequence = ++w->queue.sequence;
	s->locked.counts.submitted++;
	/* Another process never has it: the file thread finds out. */
	if (s->share && frame->locked.number >= s->share->locked.last)
		pthread_cond_signal(&w->work);
	if (s->bundles) {
		queue_to_bundle_locked(frame, scalars);
	} else {
		if (s->layout.scalar_count)
			memcpy(frame->scalars, scalars, s->layout.scalar_count * sizeof(*scalars));
		queue_enter_locked(frame);
	}
	if (ready)
		sl_frame_ready_locked(frame);
}
