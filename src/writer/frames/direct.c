/* SPDX-License-Identifier: Apache-2.0 */
/* Contiguous series: the engine writes their frames, several at a time. HDF5 knows where they are.
 * Threads: the file thread starts writes; a thread of the engine ends them. */
#include <inttypes.h>
#include <stdio.h>

#include "frames/frames_internal.h"

int sl_direct_open(struct sluice_series *s)
{
	struct sluice_open_options options = SLUICE_OPEN_OPTIONS_INIT;
	char path[64];
	int fd, rc = sl_h5_dataset_offset(s->dataset, &s->start, &fd);

	if (rc)
		return rc;
	/* Whatever its name is by now. */
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	options.flags = SLUICE_OPEN_WRITE;
	return sluice_open(s->writer->ctx, path, &options, &s->file);
}

static void direct_done(struct sluice_op *op)
{
	struct sl_frame *frame = sluice_op_user(op);
	struct sluice_series *s = frame->series;
	struct sluice_writer *w = s->writer;
	int rc = (int)SL_MIN(sl_op_result(op), 0);

	sl_mutex_lock(&w->mutex);
	s->locked.counts.store.busy_ns += (uint64_t)(sl_now() - frame->locked.write_begun);
	if (rc) {
		/* The engine knows the file by its descriptor only. */
		sl_fail(rc, "'%s' cannot be written at byte %" PRIu64 ": %s", w->path,
		        s->start + frame->locked.number * s->geometry.frame_bytes,
		        sl_error_text(rc));
		sl_writer_fail_locked(w, rc, "store", frame);
	} else {
		s->locked.counts.store.bytes += s->geometry.frame_bytes;
		s->locked.counts.stored_bytes += s->geometry.frame_bytes;
		frame->locked.written = true;
	}
	w->queue.writes--;
	pthread_cond_signal(&w->work);
	/* A thread that closes the writer waits for this write if the file thread has died. */
	pthread_cond_broadcast(&w->progress);
	/* From here on the writer may be gone. */
	sl_mutex_unlock(&w->mutex);
}

void sl_direct_start_locked(struct sl_frame *frame) SL_UNCHECKED
{
	struct sluice_series *s = frame->series;
	struct sluice_writer *w = s->writer;
	struct sluice_extent extent = {frame->data, s->geometry.frame_bytes,
	                               s->start + frame->locked.number * s->geometry.frame_bytes};
	struct sluice_request r = {sizeof(r), SLUICE_WRITE, .extents = &extent, .count = 1,
	                           .user = frame};
	int rc;

	if (!s->geometry.chunks)
		s->locked.queued--;
	frame->locked.writing = true;
	frame->locked.write_begun = sl_now();
	w->queue.writes++;
	sl_mutex_unlock(&w->mutex);
	rc = sl_op_submit(s->file, &r, direct_done);
	sl_mutex_lock(&w->mutex);
	if (rc) {
		w->queue.writes--;
		sl_writer_fail_locked(w, rc, "store", frame);
	}
}
