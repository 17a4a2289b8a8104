/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A copy of a frame by several threads: the caller's, and those of the pool that come in time. Each takes
 * the next piece until there is none. Who comes when all are taken leaves without looking at anything
 * else; so the caller waits for pieces that somebody has taken, and never for a thread that comes late.
 * Such a one may also come into the next copy of the same frame, and is as welcome there: all copies of a
 * frame have the same number of pieces, and from is set before the first of them can be taken.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "frames/pipeline.h"

#define PIECE ((size_t)256 << 10)

static size_t pieces_of(const struct sl_frame *frame)
{
	return (frame->series->geometry.frame_bytes + PIECE - 1) / PIECE;
}

static size_t helpers_of(const struct sl_frame *frame)
{
	return SL_MIN(pieces_of(frame) - 1, frame->series->writer->threads);
}

static void copy_pieces(struct sl_frame *frame)
{
	struct sl_copying *copying = &frame->copying;
	size_t length = frame->series->geometry.frame_bytes, pieces = pieces_of(frame), piece;

	while ((piece = atomic_fetch_add(&copying->next, 1)) < pieces) {
		size_t at = piece * PIECE;
		int64_t begun = sl_now();

		memcpy(frame->data + at, copying->from + at, SL_MIN(PIECE, length - at));
		atomic_fetch_add(&copying->busy_ns, (uint64_t)(sl_now() - begun));
		if (atomic_fetch_add(&copying->done, 1) + 1 == pieces)
			sl_word_wake(&copying->done, 1);
	}
}

static void helper_run(struct sl_task *task)
{
	struct sl_helper *helper = SL_CONTAINER(task, struct sl_helper, task);
	struct sl_frame *frame = helper->frame;

	/* From here on it may be queued again, and is not touched. */
	atomic_store(&helper->queued, false);
	copy_pieces(frame);
}

void sl_copy_frame(struct sl_frame *frame, const void *from)
{
	struct sluice_series *s = frame->series;
	struct sl_copying *copying = &frame->copying;
	size_t pieces = pieces_of(frame);
	uint32_t done;

	copying->from = from;
	atomic_store(&copying->busy_ns, 0);
	atomic_store(&copying->done, 0);
	atomic_store(&copying->next, 0);
	atomic_fetch_add(&s->writer->copying, 1);
	for (size_t i = 0; i < helpers_of(frame); i++)
		if (!atomic_exchange(&copying->helpers[i].queued, true))
			sl_pool_submit(s->writer->pool, &copying->helpers[i].task);
	copy_pieces(frame);
	/* Ended by the thread that copies the last piece. */
	while ((done = atomic_load(&copying->done)) < pieces)
		sl_word_wait(&copying->done, done, SL_FOREVER);
	atomic_fetch_sub(&s->writer->copying, 1);
	pthread_mutex_lock(&s->writer->mutex);
	s->locked.counts.copy.bytes += s->geometry.frame_bytes;
	s->locked.counts.copy.busy_ns += atomic_load(&copying->busy_ns);
	pthread_mutex_unlock(&s->writer->mutex);
}

int sl_copy_init(struct sl_frame *frame)
{
	struct sl_copying *copying = &frame->copying;

	/* None to be taken before the first copy. */
	atomic_init(&copying->next, pieces_of(frame));
	if (!helpers_of(frame))
		return 0;
	copying->helpers = calloc(helpers_of(frame), sizeof(*copying->helpers));
	if (!copying->helpers)
		return sl_fail(-ENOMEM, "no memory");
	for (size_t i = 0; i < helpers_of(frame); i++) {
		struct sl_helper *helper = &copying->helpers[i];

		helper->frame = frame;
		helper->task.home = i;
		helper->task.urgent = true;
		helper->task.run = helper_run;
	}
	return 0;
}
