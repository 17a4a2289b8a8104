/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Frames of contiguous series go to their places by the engine, side by side, beside HDF5, which knows where
 * the dataset is and nothing of what is written there.
 */
#include <inttypes.h>
#include <stdio.h>

#include "frames/pipeline.h"

int sl_direct_open(struct sluice_series *s)
{
	struct sluice_open_options options = SLUICE_OPEN_OPTIONS_INIT;
	char path[64];
	int fd, rc = sl_frame_file_place(s->dataset, &s->place, &fd);

	if (rc)
		return rc;
	/* Whatever its name is by now. */
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	options.flags = SLUICE_OPEN_WRITE;
	return sluice_open(s->writer->ctx, path, &options, &s->file);
}

/* The engine knows the file by its descriptor only. */
static void fail(struct sl_frame *frame, int error)
{
	struct sluice_series *s = frame->series;

	sl_fail(error, "'%s' cannot be written at byte %" PRIu64 ": %s", s->writer->path,
	        s->place + frame->locked.number * s->geometry.frame_bytes, sl_error_text(error));
	sl_writer_fail(s->writer, error, "store", frame);
}

/* By the thread that ends the operation. */
static void over(struct sluice_op *op)
{
	struct sl_frame *frame = sluice_op_user(op);
	struct sluice_series *s = frame->series;
	struct sluice_writer *w = s->writer;

	pthread_mutex_lock(&w->mutex);
	s->locked.counts.store.busy_ns += (uint64_t)(sl_now() - frame->locked.write_begun);
	if (sl_op_result(op) < 0) {
		fail(frame, (int)sl_op_result(op));
	} else {
		s->locked.counts.store.bytes += s->geometry.frame_bytes;
		s->locked.counts.stored_bytes += s->geometry.frame_bytes;
		frame->locked.written = true;
	}
	w->locked.writes--;
	pthread_cond_signal(&w->work);
	/* Who closes the writer waits for it himself if the keeper has died. */
	pthread_cond_broadcast(&w->told);
	/* Behind this nothing of the writer is touched. */
	pthread_mutex_unlock(&w->mutex);
}

void sl_direct_start(struct sl_frame *frame)
{
	struct sluice_series *s = frame->series;
	struct sluice_writer *w = s->writer;
	struct sluice_request r = SLUICE_REQUEST_INIT;
	struct sluice_extent extent = {frame->data, s->geometry.frame_bytes,
	                               s->place + frame->locked.number * s->geometry.frame_bytes};
	int rc;

	r.kind = SLUICE_WRITE;
	r.extents = &extent;
	r.count = 1;
	r.user = frame;
	if (!s->geometry.chunks)
		s->locked.queued--;
	frame->locked.writing = true;
	frame->locked.write_begun = sl_now();
	w->locked.writes++;
	pthread_mutex_unlock(&w->mutex);
	rc = sl_op_submit(s->file, &r, over);
	pthread_mutex_lock(&w->mutex);
	if (rc) {
		w->locked.writes--;
		sl_writer_fail(w, rc, "store", frame);
	}
}
