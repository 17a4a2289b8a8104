/* SPDX-License-Identifier: Apache-2.0 */
/* Flushes: when they are due, and the wait for them. file_thread.c makes them.
 * Threads: the program's ask and wait; the file thread; a sink's brings its answer. */
#include <errno.h>

#include "frames/frames_internal.h"

bool sl_flush_is_due_locked(struct sluice_writer *w)
{
	const struct sl_flush *flush = &w->flush;

	if (flush->asked)
		return false;
	if (flush->wanted && sl_queue_stored_through_locked(w) >= flush->cut)
		return true;
	if (flush->dirty_since == SL_FOREVER)
		return false;
	return (flush->checkpoint_frames && flush->frames_since >= flush->checkpoint_frames) ||
	       (flush->checkpoint_ns && sl_now() - flush->dirty_since >= flush->checkpoint_ns);
}

int64_t sl_flush_wake_at_locked(const struct sluice_writer *w)
{
	if (!w->flush.checkpoint_ns || w->flush.dirty_since == SL_FOREVER)
		return SL_FOREVER;
	return w->flush.dirty_since + w->flush.checkpoint_ns;
}

void sl_flush_done_locked(struct sluice_writer *w, uint64_t through, int64_t took)
{
	struct sl_flush *flush = &w->flush;

	if (through >= flush->cut) {
		flush->cut = flush->last;
		flush->wanted = through < flush->last;
	}
	flush->count++;
	flush->stage.busy_ns += (uint64_t)took;
	flush->done = SL_MAX(flush->done, through);
	sl_list_each_of (s, &w->queue.series, struct sluice_series, locked.link) {
		struct sluice_writer_counts *counts = &s->locked.counts;

		/* No other thread stores, so these frames were stored before the flush. */
		flush->stage.bytes += counts->stored_bytes - counts->flush.bytes;
		counts->flush.bytes = counts->stored_bytes;
		counts->flush.busy_ns += (uint64_t)took;
		counts->flushes++;
		/* A sink tells this for each series. */
		if (w->sink)
			continue;
		counts->visible = counts->stored;
		if (w->flags & SLUICE_WRITER_DURABLE)
			counts->durable = counts->stored;
	}
	pthread_cond_broadcast(&w->progress);
}

void sl_writer_flushed(struct sluice_writer *w)
{
	sl_mutex_lock(&w->mutex);
	w->flush.asked = w->flush.dirty = false;
	sl_flush_done_locked(w, w->flush.asked_through, 0);
	pthread_cond_signal(&w->work);
	sl_mutex_unlock(&w->mutex);
}

static void flush_ask_for_locked(struct sluice_writer *w) SL_REQUIRES(&w->mutex)
{
	if (!w->flush.wanted)
		w->flush.cut = w->queue.sequence;
	w->flush.last = w->queue.sequence;
	w->flush.wanted = true;
	pthread_cond_signal(&w->work);
}

int sluice_writer_flush(sluice_writer *w, int timeout_ms)
{
	int64_t deadline = sl_deadline(timeout_ms);
	uint64_t cut, before;
	bool wait;
	int rc = w ? sl_context_check(w->ctx)
	           : sl_fail(-EINVAL, "sluice_writer_flush: the writer is NULL");

	if (rc)
		return rc;
	sl_mutex_lock(&w->mutex);
	rc = sl_writer_check_locked(w);
	cut = w->queue.sequence;
	before = w->flush.count;
	wait = !rc && (w->flush.dirty || w->flush.done < cut);
	if (wait)
		flush_ask_for_locked(w);
	/* Ended by a flush behind those frames, the writer's failure or end, or the deadline. */
	while (!rc && wait) {
		bool late = sl_sink_wait(w->sink, &w->progress, &w->mutex, deadline);

		/* An earlier flush counts if it has those frames: all else was there before it. */
		wait = w->flush.done < cut || w->flush.count <= before;
		if (wait && late)
			rc = sl_fail(-EINPROGRESS, "'%s' is not flushed yet", w->path);
		else if (wait)
			rc = sl_writer_check_locked(w);
	}
	sl_mutex_unlock(&w->mutex);
	return rc;
}
