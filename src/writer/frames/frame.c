/* SPDX-License-Identifier: Apache-2.0 */
/* Frames in the program's calls: the wait for a free frame, and its way to the queue.
 * Threads: the program's. */
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "frames/frames_internal.h"

/* ------------------------------------------------------------------------------------- checks */

static int series_check_handle(const struct sluice_series *s, const char *what)
{
	if (!s)
		return sl_fail(-EINVAL, "%s: the series is NULL", what);
	return sl_context_check(s->writer->ctx);
}

int sl_series_check(const struct sluice_series *s, const char *what, const void *data,
                    const double *scalars)
{
	int rc = series_check_handle(s, what);

	if (rc)
		return rc;
	if (!data)
		return sl_fail(-EINVAL, "%s: the frame is NULL", what);
	if (s->layout.scalar_count && !scalars)
		return sl_fail(-EINVAL, "%s: '%s' has %zu scalars, and none are given", what,
		               s->name, s->layout.scalar_count);
	return 0;
}

/* Returns 0, or -ENOSPC if a series of fixed length has all its frames. */
static int series_check_room_locked(const struct sluice_series *s)
{
	if (s->layout.frames && s->locked.next + s->locked.incoming >= s->layout.frames)
		return sl_fail(-ENOSPC, "'%s' has all its %" PRIu64 " frames", s->name,
		               s->layout.frames);
	return 0;
}

/* Finds the acquired frame at an address. */
static int frame_find_locked(const struct sluice_series *s, const void *data, struct sl_frame **out)
{
	uintptr_t start = (uintptr_t)s->area.memory, at = (uintptr_t)data;
	struct sl_frame *frame;

	if (at < start || at - start >= s->stride * s->depth || (at - start) % s->stride)
		return sl_fail(-EINVAL, "%p is no frame of '%s'", data, s->name);
	frame = s->frame_of[(at - start) / s->stride];
	if (frame->locked.state == SL_FRAME_QUEUED)
		return sl_fail(-EINVAL, "the frame of '%s' at %p was submitted already", s->name,
		               data);
	if (frame->locked.state != SL_FRAME_ACQUIRED)
		return sl_fail(-EINVAL, "the frame of '%s' at %p is not acquired", s->name, data);
	*out = frame;
	return 0;
}

/* ------------------------------------------------------------------------------------ waiting */

static bool has_free(const struct sluice_series *s)
{
	return !sl_list_empty(&s->locked.free) &&
	       (!s->bundles || s->locked.held + s->locked.incoming < s->locked.room);
}

static void count_wait(struct sluice_series *s, int64_t begun)
{
	uint64_t took = (uint64_t)(sl_now() - begun);

	s->locked.counts.waited_ns += took;
	s->locked.counts.waited_most_ns = SL_MAX(s->locked.counts.waited_most_ns, took);
}

static int refuse_wait_locked(struct sluice_series *s) SL_UNCHECKED
{
	int full = s->writer->disk.error ? s->writer->disk.error : s->writer->disk.elsewhere;

	struct sl_rank_names names;
	char text[80];

	s->locked.counts.dropped += s->flags & SLUICE_SERIES_DROP ? 1 : 0;
	sl_share_waits_for_locked(s, &names);
	sl_rank_names_text(&names, text, sizeof(text));
	if (full && !(s->flags & SLUICE_SERIES_DROP))
		return sl_fail(full, "all %u frames of '%s' wait for room on the disk of '%s'",
		               s->depth, s->name, s->writer->path);
	return sl_fail(-EAGAIN, "all %u frames of '%s' %s%s", s->depth, s->name,
	               names.count ? "wait for " : "are acquired or on the way",
	               names.count ? text : "");
}

/* Waits for a free frame. Ended by it, the writer's failure or end, or the deadline. */
static int wait_for_frame_locked(struct sluice_series *s, int timeout_ms) SL_UNCHECKED
{
	struct sluice_writer *w = s->writer;
	int64_t deadline = sl_deadline(timeout_ms), begun = 0;
	int rc;

	for (;;) {
		rc = sl_writer_check_locked(w);
		if (rc || has_free(s))
			break;
		if (timeout_ms < 0 && s->locked.held == s->depth) {
			rc = sl_fail(-EDEADLK,
			             "all %u frames of '%s' are acquired and not submitted",
			             s->depth, s->name);
			break;
		}
		if (!begun)
			begun = sl_now();
		if (!timeout_ms || sl_sink_wait(w->sink, &s->freed, &w->mutex, deadline)) {
			if (!has_free(s)) {
				rc = refuse_wait_locked(s);
				break;
			}
		}
	}
	if (begun && timeout_ms)
		count_wait(s, begun);
	return rc;
}

int sl_frame_take(struct sluice_series *s, int timeout_ms, enum sl_frame_state state,
                  struct sl_frame **out)
{
	struct sl_sink *sink = s->writer->sink;
	struct sl_frame *frame;
	int rc;

	if (sink && sink->pumped)
		sink->ops->pump(sink);
	sl_mutex_lock(&s->writer->mutex);
	rc = wait_for_frame_locked(s, timeout_ms);
	if (!rc && state == SL_FRAME_FILLING)
		rc = series_check_room_locked(s);
	if (!rc) {
		frame = SL_CONTAINER(sl_list_take(&s->locked.free), struct sl_frame, locked.link);
		frame->locked.state = state;
		s->locked.held += state == SL_FRAME_ACQUIRED;
		s->locked.incoming += state == SL_FRAME_FILLING;
		*out = frame;
	} else if (!sl_list_empty(&s->locked.free)) {
		/* Wakes another thread for the free frame. */
		pthread_cond_signal(&s->freed);
	}
	sl_mutex_unlock(&s->writer->mutex);
	return rc;
}

int sl_frame_enqueue(struct sl_frame *frame, const double *scalars, bool ready)
{
	struct sluice_series *s = frame->series;
	int rc;

	sl_mutex_lock(&s->writer->mutex);
	s->locked.incoming--;
	rc = sl_writer_check_locked(s->writer);
	if (rc)
		sl_frame_recycle_locked(frame);
	else
		sl_queue_append_locked(frame, scalars, ready || frame->locked.filled);
	sl_mutex_unlock(&s->writer->mutex);
	return rc;
}

/* ------------------------------------------------------------------------------------- public */

int sluice_series_acquire(sluice_series *s, int timeout_ms, void **out)
{
	struct sl_frame *frame;
	int rc = series_check_handle(s, "sluice_series_acquire");

	if (!rc && !out)
		rc = sl_fail(-EINVAL, "sluice_series_acquire: frame is NULL");
	if (!rc)
		rc = sl_frame_take(s, timeout_ms, SL_FRAME_ACQUIRED, &frame);
	if (!rc)
		*out = frame->data;
	return rc;
}

int sluice_series_submit(sluice_series *s, void *data, const double *scalars)
{
	struct sl_frame *frame;
	int rc = sl_series_check(s, "sluice_series_submit", data, scalars);

	if (rc)
		return rc;
	sl_mutex_lock(&s->writer->mutex);
	rc = sl_writer_check_locked(s->writer);
	if (!rc)
		rc = frame_find_locked(s, data, &frame);
	if (!rc)
		rc = series_check_room_locked(s);
	if (!rc) {
		s->locked.held--;
		sl_queue_append_locked(frame, scalars, true);
	}
	sl_mutex_unlock(&s->writer->mutex);
	return rc;
}

int sluice_series_discard(sluice_series *s, void *data)
{
	struct sl_frame *frame;
	int rc = series_check_handle(s, "sluice_series_discard");

	if (rc)
		return rc;
	sl_mutex_lock(&s->writer->mutex);
	rc = frame_find_locked(s, data, &frame);
	if (!rc) {
		s->locked.held--;
		sl_frame_recycle_locked(frame);
		rc = sl_writer_check_locked(s->writer);
	}
	sl_mutex_unlock(&s->writer->mutex);
	return rc;
}

/* By the caller's thread alone: several are no faster, as memory is the limit (performance.md). */
static void frame_copy(struct sl_frame *frame, const void *from)
{
	struct sluice_series *s = frame->series;
	int64_t begun = sl_now();

	memcpy(frame->data, from, s->frame_bytes);
	sl_mutex_lock(&s->writer->mutex);
	s->locked.counts.copy.bytes += s->frame_bytes;
	s->locked.counts.copy.busy_ns += (uint64_t)(sl_now() - begun);
	sl_mutex_unlock(&s->writer->mutex);
}

int sluice_series_push(sluice_series *s, const void *data, const double *scalars, int timeout_ms)
{
	struct sl_frame *frame;
	int rc = sl_series_check(s, "sluice_series_push", data, scalars);

	if (rc)
		return rc;
	rc = sl_frame_take(s, timeout_ms, SL_FRAME_FILLING, &frame);
	if (rc == -EAGAIN && s->flags & SLUICE_SERIES_DROP)
		return 0;
	if (rc)
		return rc;
	frame_copy(frame, data);
	return sl_frame_enqueue(frame, scalars, true);
}

size_t sluice_series_frame_bytes(const sluice_series *s)
{
	return s ? s->frame_bytes : 0;
}
