/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Frames from device memory, in stream order: a write to a file over the memory of the series'
 * frames. So the engine's rules for rings, streams and devices apply.
 *
 * Threads: the program's submit; the writer's pool copies the pieces; a thread of the engine ends
 * the operation.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "frames/frames_internal.h"

#define PIECE ((size_t)1 << 20)

struct sl_memory_file {
	struct sl_backend backend;
	struct sluice_series *series;
};

static struct sluice_series *memory_file_series(struct sl_backend *backend)
{
	return SL_CONTAINER(backend, struct sl_memory_file, backend)->series;
}

static void memory_file_limits(struct sl_backend *backend, struct sl_limits *out)
{
	*out = (struct sl_limits){.piece_bytes = PIECE,
	                          .depth = 2 * memory_file_series(backend)->writer->threads};
}

static char *memory_file_identity(struct sl_backend *backend)
{
	return sl_format("frames:%p", (void *)memory_file_series(backend)->area.memory);
}

static int64_t memory_file_size(struct sl_backend *backend)
{
	return (int64_t)memory_file_series(backend)->area.length;
}

static void memory_file_piece_run(struct sl_task *task)
{
	struct sl_piece *piece = SL_CONTAINER(task, struct sl_piece, task);
	struct sluice_series *s = memory_file_series(piece->backend);
	int64_t begun = sl_now();

	memcpy(s->area.memory + piece->offset, piece->data, piece->length);
	piece->moved = piece->length;
	sl_mutex_lock(&s->writer->mutex);
	s->locked.counts.copy.busy_ns += (uint64_t)(sl_now() - begun);
	s->locked.counts.copy.bytes += piece->length;
	sl_mutex_unlock(&s->writer->mutex);
	sl_piece_done(piece);
}

static void memory_file_submit(struct sl_backend *backend, struct sl_piece *piece)
{
	/* A stream waits for it, so it runs before compression. */
	piece->task.home = piece->offset / PIECE;
	piece->task.urgent = true;
	piece->task.run = memory_file_piece_run;
	sl_pool_submit(memory_file_series(backend)->writer->pool, &piece->task);
}

static void memory_file_close(struct sl_backend *backend)
{
	free(SL_CONTAINER(backend, struct sl_memory_file, backend));
}

static const struct sl_backend_ops memory_file_ops = {
	.limits = memory_file_limits,
	.identity = memory_file_identity,
	.size = memory_file_size,
	.submit = memory_file_submit,
	.close = memory_file_close,
};

int sl_memory_file_open(struct sluice_series *s)
{
	struct sl_memory_file *memory_file = calloc(1, sizeof(*memory_file));

	if (!memory_file)
		return sl_fail(-ENOMEM, "no memory");
	memory_file->backend.ops = &memory_file_ops;
	memory_file->series = s;
	return sl_file_wrap(s->writer->ctx, s->name, SLUICE_OPEN_WRITE, &memory_file->backend,
	                    &s->memory_file);
}

/* ------------------------------------------------------------------------------------- frames */

/* Ends a copy, maybe before the frame is in the queue. */
static void device_copy_done(struct sluice_op *op)
{
	struct sl_frame *frame = sluice_op_user(op);
	struct sluice_writer *w = frame->series->writer;
	int rc = (int)SL_MIN(sl_op_result(op), 0);

	sl_mutex_lock(&w->mutex);
	if (rc) {
		if (frame->locked.state != SL_FRAME_QUEUED)
			frame->locked.number = frame->series->locked.next;
		sl_fail_with(rc, sl_op_message(op));
		sl_writer_fail_locked(w, rc, "copy", frame);
	} else if (frame->locked.state == SL_FRAME_QUEUED) {
		sl_frame_ready_locked(frame);
	} else {
		frame->locked.filled = true;
	}
	/* From here on the writer may be gone. */
	w->queue.copies--;
	pthread_cond_broadcast(&w->progress);
	sl_mutex_unlock(&w->mutex);
}

static int start_copy(struct sl_frame *frame, const void *from, sluice_stream stream)
{
	struct sluice_series *s = frame->series;
	struct sluice_writer *w = s->writer;
	struct sluice_extent extent = {(void *)(uintptr_t)from, s->frame_bytes,
	                               (uint64_t)(frame->data - s->area.memory)};
	struct sluice_request r = {sizeof(r), SLUICE_WRITE,     .extents = &extent, .count = 1,
	                           .on = 1,   .stream = stream, .user = frame};
	int rc;

	sl_mutex_lock(&w->mutex);
	frame->locked.filled = false;
	w->queue.copies++;
	sl_mutex_unlock(&w->mutex);
	rc = sl_op_submit(s->memory_file, &r, device_copy_done);
	if (!rc)
		return 0;
	sl_mutex_lock(&w->mutex);
	w->queue.copies--;
	s->locked.incoming--;
	sl_frame_recycle_locked(frame);
	pthread_cond_broadcast(&w->progress);
	sl_mutex_unlock(&w->mutex);
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
