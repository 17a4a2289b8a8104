/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Frames from memory of a device, in the order of a stream: a write to a file that is the series' own frames.
 * So all that the engine knows of rings, streams and devices holds here too; its pieces are copied by the
 * writer's pool.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "frames/pipeline.h"

#define PIECE ((size_t)1 << 20)

struct sl_mirror {
	struct sl_backend backend;
	struct sluice_series *series;
};

static struct sluice_series *series_of(struct sl_backend *backend)
{
	return SL_CONTAINER(backend, struct sl_mirror, backend)->series;
}

static void mirror_limits(struct sl_backend *backend, struct sl_limits *out)
{
	*out = (struct sl_limits){.piece_bytes = PIECE,
	                          .depth = 2 * series_of(backend)->writer->threads};
}

static char *mirror_identity(struct sl_backend *backend)
{
	char *text;

	return asprintf(&text, "frames:%p", (void *)series_of(backend)->area.memory) < 0 ? NULL
	                                                                                 : text;
}

static int64_t mirror_size(struct sl_backend *backend)
{
	return (int64_t)series_of(backend)->area.length;
}

static void piece_run(struct sl_task *task)
{
	struct sl_piece *piece = SL_CONTAINER(task, struct sl_piece, task);
	struct sluice_series *s = series_of(piece->backend);
	int64_t begun = sl_now();

	memcpy(s->area.memory + piece->offset, piece->data, piece->length);
	piece->moved = piece->length;
	pthread_mutex_lock(&s->writer->mutex);
	s->locked.counts.copy.busy_ns += (uint64_t)(sl_now() - begun);
	s->locked.counts.copy.bytes += piece->length;
	pthread_mutex_unlock(&s->writer->mutex);
	sl_piece_done(piece);
}

static void mirror_submit(struct sl_backend *backend, struct sl_piece *piece)
{
	/* A stream waits for it: before what is to be compressed. */
	piece->task.home = piece->offset / PIECE;
	piece->task.urgent = true;
	piece->task.run = piece_run;
	sl_pool_submit(series_of(backend)->writer->pool, &piece->task);
}

static int mirror_commit(struct sl_backend *backend)
{
	(void)backend;
	return 0;
}

static void mirror_close(struct sl_backend *backend)
{
	free(SL_CONTAINER(backend, struct sl_mirror, backend));
}

static const struct sl_backend_ops mirror_ops = {
	.limits = mirror_limits,
	.identity = mirror_identity,
	.size = mirror_size,
	.submit = mirror_submit,
	.commit = mirror_commit,
	.close = mirror_close,
};

int sl_mirror_open(struct sluice_series *s)
{
	struct sl_mirror *mirror = calloc(1, sizeof(*mirror));

	if (!mirror)
		return sl_fail(-ENOMEM, "no memory");
	mirror->backend.ops = &mirror_ops;
	mirror->series = s;
	return sl_file_wrap(s->writer->ctx, s->name, SLUICE_OPEN_WRITE, &mirror->backend,
	                    &s->mirror);
}

/* ------------------------------------------------------------------------------------- frames */

/* By the thread that ends the operation, which may be before the frame is in its line. */
static void over(struct sluice_op *op)
{
	struct sl_frame *frame = sluice_op_user(op);
	struct sluice_writer *w = frame->series->writer;
	int rc = (int)SL_MIN(op->result, 0);

	pthread_mutex_lock(&w->mutex);
	if (rc) {
		if (frame->locked.state != SL_FRAME_QUEUED)
			frame->locked.number = frame->series->locked.next;
		sl_fail(rc, "%s", op->message ? op->message : sl_error_text(rc));
		sl_writer_fail(w, rc, "copy", frame);
	} else if (frame->locked.state == SL_FRAME_QUEUED) {
		sl_frame_ready(frame);
	} else {
		frame->locked.filled = true;
	}
	/* Behind this nothing of the writer is touched. */
	w->locked.copies--;
	pthread_cond_broadcast(&w->told);
	pthread_mutex_unlock(&w->mutex);
}

static int start_copy(struct sl_frame *frame, const void *from, sluice_stream stream)
{
	struct sluice_series *s = frame->series;
	struct sluice_writer *w = s->writer;
	struct sluice_extent extent = {(void *)(uintptr_t)from, s->frame_bytes,
	                               (uint64_t)(frame->data - s->area.memory)};
	struct sluice_request r = SLUICE_REQUEST_INIT;
	int rc;

	r.kind = SLUICE_WRITE;
	r.extents = &extent;
	r.count = 1;
	r.on = 1;
	r.stream = stream;
	r.user = frame;
	pthread_mutex_lock(&w->mutex);
	frame->locked.filled = false;
	w->locked.copies++;
	pthread_mutex_unlock(&w->mutex);
	rc = sl_op_submit(s->mirror, &r, over);
	if (!rc)
		return 0;
	pthread_mutex_lock(&w->mutex);
	w->locked.copies--;
	s->locked.promised--;
	sl_frame_recycle(frame);
	pthread_cond_broadcast(&w->told);
	pthread_mutex_unlock(&w->mutex);
	return rc;
}

int sluice_series_submit_on(sluice_series *s, const void *device_data, const double *scalars,
                            sluice_stream stream, int timeout_ms)
{
	struct sl_frame *frame;
	int rc = sl_series_check(s, "sluice_series_submit_on", device_data, scalars);

	if (rc)
		return rc;
	rc = sl_frame_take(s, timeout_ms, SL_FRAME_FILLING, &frame);
	if (rc == -EAGAIN && s->flags & SLUICE_SERIES_DROP)
		return 0;
	if (!rc)
		rc = start_copy(frame, device_data, stream);
	return rc ? rc : sl_frame_enqueue(frame, scalars, false);
}
