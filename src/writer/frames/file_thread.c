/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The file thread: it makes all calls to a writer's HDF5 file, or to a sink. It stores chunks as
 * they come, each series in the order of its frames; between two frames it flushes or runs a
 * command, such as adding a series. It sleeps while there is nothing to do, and sets a timeout only
 * for a flush.
 *
 * Threads: the file thread; sl_writer_ask() is for the program's.
 */
#include <errno.h>
#include <stdio.h>
#include <unistd.h>

#include "frames/frames_internal.h"

/* Returns whether the file has some chunks of the frame. */
static bool frame_is_partial(const struct sl_frame *frame)
{
	return frame->locked.stored || frame->locked.writing;
}

static bool any_is_partial_locked(struct sluice_writer *w) SL_REQUIRES(&w->mutex)
{
	sl_list_each_of (s, &w->queue.series, struct sluice_series, locked.link) {
		sl_list_each_of (frame, &s->locked.queue, struct sl_frame, locked.link)
			if (frame_is_partial(frame))
				return true;
	}
	return false;
}

/* Releases the mutex for a call to the file, and notes the stage for an error report. */
static void file_thread_unlock(struct sluice_writer *w, const char *stage,
                               const struct sl_frame *frame) SL_RELEASES(&w->mutex)
{
	w->failure.doing.stage = stage;
	w->failure.doing.frame = frame;
	sl_mutex_unlock(&w->mutex);
}

/* The call's result: an error fails the writer. Returns whether it is one. */
static bool file_thread_lock(struct sluice_writer *w, int rc) SL_ACQUIRES(&w->mutex) SL_UNCHECKED
{
	uint64_t held = w->file ? sl_h5_file_held(w->file) : 0;
	int64_t waited_ns = w->disk.error ? sl_disk_waited(w) : 0;

	sl_mutex_lock(&w->mutex);
	w->locked.held = held;
	w->disk.error = 0;
	w->disk.waited_ns += (uint64_t)waited_ns;
	if (rc)
		sl_writer_fail_locked(w, rc, w->failure.doing.stage, w->failure.doing.frame);
	return rc;
}

/* ------------------------------------------------------------------------------------ storing */

static int tell_frames(struct sl_frame *frame, uint64_t from, uint64_t to, double max_error)
{
	struct sluice_series *s = frame->series;
	struct sl_sink *sink = s->writer->sink;

	if (sink)
		return sink->ops->frame(sink, s->share, frame->locked.number, frame->scalars,
		                        max_error);
	return sl_h5_frames_stored(s->dataset, frame->locked.number + from, to - from,
	                           frame->scalars + from * s->layout.scalar_count, max_error);
}

static void count_frames(struct sluice_series *s, uint64_t frames)
{
	s->locked.counts.stored += frames;
	s->locked.counts.raw_bytes += frames * s->frame_bytes;
}

/* Completes a stored frame, or a bundle after its last rows. Releases the mutex meanwhile. */
static void frame_stored_locked(struct sl_frame *frame) SL_UNCHECKED
{
	struct sluice_series *s = frame->series;
	struct sluice_writer *w = s->writer;
	uint64_t from = frame->locked.rows, to = frame->slots ? s->layout.gather : 1;
	double max_error = s->locked.counts.max_error;
	int64_t begun = sl_now();
	bool failed;

	if (s->share)
		sl_share_drop_fragments_locked(frame);
	file_thread_unlock(w, "store", frame);
	failed = file_thread_lock(w, tell_frames(frame, from, to, max_error));
	s->locked.counts.store.busy_ns += (uint64_t)(sl_now() - begun);
	if (failed)
		return;
	sl_list_remove(&frame->locked.link);
	count_frames(s, to - from);
	w->flush.frames_since += !frame->slots;
	w->flush.dirty = true;
	if (w->flush.dirty_since == SL_FOREVER)
		w->flush.dirty_since = sl_now();
	sl_frame_recycle_locked(frame);
}

/* Returns a chunk as it lies in the frame, for a series without a packer. */
static struct sl_packed_chunk *plain_chunk(struct sl_frame *frame)
{
	struct sluice_series *s = frame->series;
	struct sl_packed_chunk *packed = &s->plain;

	s->locked.queued -= !frame->locked.begun;
	packed->frame = frame;
	packed->number = frame->locked.begun++;
	sl_series_block(s, packed->number, &packed->block);
	packed->bytes = frame->data + packed->block.start;
	packed->length = s->geometry.chunk_bytes;
	return packed;
}

static void count_chunk(const struct sl_packed_chunk *packed, int64_t took)
{
	const struct sl_share *share = packed->frame->series->share;
	struct sluice_writer_counts *counts = &packed->frame->series->locked.counts;

	/* Another process stores that chunk. */
	if (share && packed->number < share->sent)
		return;
	counts->store.bytes += packed->length;
	counts->store.busy_ns += (uint64_t)took;
	counts->stored_bytes += packed->length;
	counts->chunks++;
	counts->raw_chunks += packed->frame->series->layout.codec->filter &&
	                      packed->length >= packed->frame->series->geometry.chunk_bytes;
}

/* Called without the mutex. waiting: bytes of the next chunks. */
static int chunk_to_file(const struct sl_packed_chunk *packed, uint64_t waiting)
{
	struct sl_frame *frame = packed->frame;
	struct sluice_series *s = frame->series;
	struct sl_sink *sink = s->writer->sink;
	struct sl_sink_chunk chunk = {s->share,     frame->locked.number, packed->number,
	                              packed->mask, packed->bytes,        packed->length,
	                              waiting};

	if (sink)
		return sink->ops->store(sink, &chunk);
	return sl_h5_chunk_store(s->dataset, frame->locked.number,
	                         packed->block.offset + (s->bundles ? 1 : 0), packed->mask,
	                         packed->bytes, packed->length);
}

static void store_chunk_locked(struct sl_packed_chunk *packed) SL_UNCHECKED
{
	struct sl_frame *frame = packed->frame;
	struct sluice_series *s = frame->series;
	struct sluice_writer *w = s->writer;
	uint64_t waiting = w->queue.finished_bytes;
	int64_t begun = sl_now();

	if (!s->packer)
		waiting += (s->geometry.chunks - frame->locked.begun) * s->geometry.chunk_bytes;
	/* From here on the frame is partly stored, also after an error. */
	frame->locked.stored++;
	file_thread_unlock(w, "store", frame);
	if (file_thread_lock(w, chunk_to_file(packed, waiting)))
		return;
	count_chunk(packed, sl_now() - begun);
	if (s->packer) {
		/* Of the last chunk the frame itself is free at once. */
		if (packed->bytes != packed->room && frame->locked.stored < s->geometry.chunks)
			sl_frame_used_locked(frame);
		sl_list_append(&s->packer->locked.free, &packed->link);
		sl_queue_kick_locked(w);
	}
	if (frame->locked.stored == s->geometry.chunks)
		frame_stored_locked(frame);
}

/* Before a flush or a command a frame is begun only if a partly stored frame needs a buffer and
 * none is free, because later frames may have them. See frames_internal.h. */
static bool begin_one_locked(struct sluice_writer *w, const struct sluice_series *of)
	SL_REQUIRES(&w->mutex)
{
	if (!of->packer || !sl_list_empty(&of->packer->locked.free))
		return false;
	sl_list_each_of (s, &w->queue.series, struct sluice_series, locked.link) {
		struct sl_frame *frame = sl_queue_first(s);

		if (s->packer == of->packer && frame && frame_is_partial(frame) &&
		    frame->locked.begun < s->geometry.chunks)
			return true;
	}
	return false;
}

static bool has_packed(const struct sl_frame *frame)
{
	if (frame->series->packer)
		return !sl_list_empty(&frame->locked.finished);
	return frame->locked.ready && frame->locked.begun < frame->series->geometry.chunks &&
	       sl_queue_has_fragments_locked(frame);
}

/* Takes a packed chunk to be stored now, or returns NULL. Series are served in turn. */
static struct sl_packed_chunk *packed_next_locked(struct sluice_writer *w, bool cut)
	SL_REQUIRES(&w->mutex)
{
	struct sl_packed_chunk *packed;

	sl_list_each_of (s, &w->queue.series, struct sluice_series, locked.link) {
		struct sl_frame *frame = sl_queue_first(s);

		if (!frame || !has_packed(frame) ||
		    (cut && !frame_is_partial(frame) && !begin_one_locked(w, s)))
			continue;
		sl_list_remove(&s->locked.link);
		sl_list_append(&w->queue.series, &s->locked.link);
		if (!s->packer)
			return plain_chunk(frame);
		packed = SL_CONTAINER(sl_list_take(&frame->locked.finished), struct sl_packed_chunk,
		                      link);
		w->queue.finished--;
		w->queue.finished_bytes -= packed->length;
		return packed;
	}
	return NULL;
}

/* -------------------------------------------------------------------------------------- bundles */

static int store_rows(struct sl_frame *bundle, uint64_t from, uint64_t to, double *max_error)
{
	struct sluice_series *s = bundle->series;
	struct sl_packed_chunk *packed = &s->plain;
	int rc = 0;

	*max_error = 0;
	packed->frame = bundle;
	for (packed->number = 0; !rc && packed->number < s->geometry.chunks; packed->number++) {
		double error = sl_chunk_make_plain(s, packed, from, to);

		*max_error = SL_MAX(*max_error, error);
		rc = sl_h5_chunk_store_frames(s->dataset, bundle->locked.number, from, to,
		                              packed->block.offset + 1, packed->bytes,
		                              s->geometry.chunk_bytes);
	}
	return rc;
}

/* Stores the frames of an open bundle. Releases the mutex meanwhile. */
static void store_rows_locked(struct sl_frame *bundle) SL_UNCHECKED
{
	struct sluice_series *s = bundle->series;
	struct sluice_writer *w = s->writer;
	uint64_t from = bundle->locked.rows, to = bundle->locked.there;
	double error, before = s->locked.counts.max_error;
	int64_t begun = sl_now();
	int rc;

	if (from == to)
		return;
	/* Compressors round it. */
	bundle->locked.flushing = true;
	file_thread_unlock(w, "store", bundle);
	rc = store_rows(bundle, from, to, &error);
	if (!rc)
		rc = tell_frames(bundle, from, to, SL_MAX(before, error));
	file_thread_lock(w, rc);
	bundle->locked.flushing = false;
	if (rc)
		return;
	bundle->locked.rows = to;
	bundle->locked.sequence = to < bundle->locked.taken ? bundle->slots[to].sequence : 0;
	s->locked.counts.max_error = SL_MAX(s->locked.counts.max_error, error);
	s->locked.counts.store.bytes += (to - from) * s->frame_bytes;
	s->locked.counts.store.busy_ns += (uint64_t)(sl_now() - begun);
	count_frames(s, to - from);
	if (bundle->locked.there == s->layout.gather)
		sl_frame_ready_locked(bundle);
}

/* Compresses an open bundle, and stores its chunks in other places, as those of a full bundle.
 * Until the next flush the file refers to the old places. No compressor has a chunk. there: the
 * file has all frames, and on a full disk they stay as they are. */
static int store_packed(struct sl_frame *bundle, struct sl_packed_chunk *packed, uint64_t to,
                        bool there, double *max_error)
{
	struct sluice_series *s = bundle->series;
	int rc = 0;

	packed->frame = bundle;
	sl_h5_fill(s->dataset, bundle->data + to * s->frame_bytes,
	           (s->layout.gather - to) * s->frame_bytes);
	for (packed->number = 0; !rc && packed->number < s->geometry.chunks; packed->number++) {
		double error;

		sl_series_block(s, packed->number, &packed->block);
		rc = sl_chunk_make(s, 0, packed, &error);
		if (!rc)
			rc = sl_h5_chunk_store_last(s->dataset, bundle->locked.number,
			                            packed->block.offset + 1, packed->bytes,
			                            packed->length, there);
		*max_error = SL_MAX(*max_error, error);
	}
	return rc;
}

/* Stores the frames of an open bundle for the last time. Releases the mutex meanwhile. */
static void store_last_locked(struct sl_frame *bundle) SL_UNCHECKED
{
	struct sluice_series *s = bundle->series;
	struct sluice_writer *w = s->writer;
	uint64_t from = bundle->locked.rows, to = bundle->locked.there;
	double max_error;
	struct sl_packed_chunk *packed;
	bool raw = sl_h5_chunk_is_raw(s->dataset, bundle->locked.number);
	int rc;

	if (raw) {
		/* There is space for them, even on a full disk. */
		store_rows_locked(bundle);
		from = bundle->locked.rows;
	}
	/* A chunk without new frames is stored as well: it may have those that were given up. */
	if (w->failure.error || !to)
		return;
	packed = SL_CONTAINER(sl_list_take(&s->packer->locked.free), struct sl_packed_chunk, link);
	max_error = s->locked.counts.max_error;
	file_thread_unlock(w, "store", bundle);
	rc = store_packed(bundle, packed, to, from == to, &max_error);
	if (!rc)
		rc = tell_frames(bundle, from, to, max_error);
	file_thread_lock(w, rc);
	sl_list_append(&s->packer->locked.free, &packed->link);
	if (rc)
		return;
	bundle->locked.rows = to;
	s->locked.counts.max_error = max_error;
	count_frames(s, to - from);
}

static void store_bundles_locked(struct sluice_writer *w, bool last) SL_REQUIRES(&w->mutex)
{
	sl_list_each_of (s, &w->queue.series, struct sluice_series, locked.link) {
		struct sl_frame *frame = sl_queue_current(s);

		if (!frame || !frame->slots || frame->locked.ready || w->failure.error)
			continue;
		if (last && (s->layout.codec->filter || s->layout.sum))
			store_last_locked(frame);
		else
			store_rows_locked(frame);
	}
}

/* -------------------------------------------------------------------------------- contiguous */

/* Returns a frame at the front of its queue if it is written, or NULL. */
static struct sl_frame *next_written_locked(struct sluice_writer *w) SL_REQUIRES(&w->mutex)
{
	sl_list_each_of (s, &w->queue.series, struct sluice_series, locked.link) {
		struct sl_frame *frame = sl_queue_first(s);

		if (frame && frame->locked.written)
			return frame;
	}
	return NULL;
}

/* Returns a frame for the engine, or NULL. The engine writes several at a time. */
static struct sl_frame *next_to_write_locked(struct sluice_writer *w) SL_REQUIRES(&w->mutex)
{
	sl_list_each_of (s, &w->queue.series, struct sluice_series, locked.link) {
		if (!s->layout.contiguous)
			continue;
		sl_list_each_of (frame, &s->locked.queue, struct sl_frame, locked.link) {
			if (!frame->locked.ready || frame->locked.rounded < s->geometry.chunks)
				break;
			if (!frame->locked.writing)
				return frame;
		}
	}
	return NULL;
}

static bool store_something_locked(struct sluice_writer *w, bool cut) SL_REQUIRES(&w->mutex)
{
	struct sl_frame *frame = cut ? NULL : next_to_write_locked(w);
	struct sl_packed_chunk *packed;

	if (frame) {
		sl_direct_start_locked(frame);
		return true;
	}
	frame = next_written_locked(w);
	if (frame) {
		frame_stored_locked(frame);
		return true;
	}
	packed = packed_next_locked(w, cut);
	if (packed)
		store_chunk_locked(packed);
	return packed;
}

/* ----------------------------------------------------------------------------------- commands */

int sl_writer_ask(struct sluice_writer *w, int (*run)(struct sl_h5_file *file, void *argument),
                  void *argument)
{
	struct sl_file_command command = {.run = run, .argument = argument};
	int rc;

	sl_mutex_lock(&w->mutex);
	sl_list_append(&w->locked.commands, &command.link);
	pthread_cond_signal(&w->work);
	/* Ended by the file thread or its end. After its begin the command is awaited, because it
	 * is on this thread's stack. */
	while (!command.done && !w->locked.ended &&
	       !(sl_list_linked(&command.link) && sl_writer_check_locked(w)))
		sl_cond_wait(&w->progress, &w->mutex, SL_FOREVER);
	if (command.done) {
		rc = command.result ? sl_fail(command.result, "%s", command.message) : 0;
	} else {
		if (sl_list_linked(&command.link))
			sl_list_remove(&command.link);
		rc = sl_writer_check_locked(w);
	}
	sl_mutex_unlock(&w->mutex);
	return rc;
}

static void command_run_locked(struct sluice_writer *w) SL_REQUIRES(&w->mutex)
{
	struct sl_file_command *command =
		SL_CONTAINER(sl_list_take(&w->locked.commands), struct sl_file_command, link);
	int rc;

	file_thread_unlock(w, "store", NULL);
	rc = command->run(w->file, command->argument);
	file_thread_lock(w, 0);
	command->result = rc;
	if (rc)
		snprintf(command->message, sizeof(command->message), "%s", sluice_last_message());
	command->done = true;
	pthread_cond_broadcast(&w->progress);
}

/* ----------------------------------------------------------------------------- between frames */

static void file_thread_flush_locked(struct sluice_writer *w) SL_REQUIRES(&w->mutex)
{
	uint64_t through = sl_queue_stored_through_locked(w);
	int64_t begun = sl_now();
	int rc;

	store_bundles_locked(w, false);
	if (w->failure.error)
		return;
	file_thread_unlock(w, "flush", NULL);
	rc = sl_h5_file_flush(w->file);
	if (!rc && w->remote)
		sl_remote_copy_flushed(w->remote, w->path);
	if (file_thread_lock(w, rc))
		return;
	w->flush.dirty = false;
	w->flush.dirty_since = SL_FOREVER;
	w->flush.frames_since = 0;
	/* More frames came to bundles meanwhile. */
	sl_list_each_of (s, &w->queue.series, struct sluice_series, locked.link) {
		struct sl_frame *frame = sl_queue_current(s);

		if (!frame || !frame->slots || frame->locked.ready ||
		    frame->locked.there == frame->locked.rows)
			continue;
		w->flush.dirty = true;
		w->flush.dirty_since = sl_now();
		w->flush.frames_since += frame->locked.there - frame->locked.rows;
	}
	sl_flush_done_locked(w, through, sl_now() - begun);
}

/* Other processes may need more chunks from here before the flush, so nothing waits for it. */
static void sink_flush_locked(struct sluice_writer *w) SL_REQUIRES(&w->mutex)
{
	w->flush.asked = true;
	w->flush.asked_through = sl_queue_stored_through_locked(w);
	file_thread_unlock(w, "flush", NULL);
	file_thread_lock(w, w->sink->ops->flush(w->sink));
}

/* Flushes or runs a command, if it may and no frame is partly stored. Returns whether it did. */
static bool run_between_frames_locked(struct sluice_writer *w, bool *wanted) SL_REQUIRES(&w->mutex)
{
	bool asked = !sl_list_empty(&w->locked.commands), due = sl_flush_is_due_locked(w);

	*wanted = (asked || due) && !w->sink;
	if (w->sink && due)
		sink_flush_locked(w);
	if (w->sink)
		return due;
	if (!*wanted || any_is_partial_locked(w))
		return false;
	if (due)
		file_thread_flush_locked(w);
	else
		command_run_locked(w);
	return true;
}

/* --------------------------------------------------------------------------------------- life */

/* Stores until everything is stored and the writer closed, or until it fails or is discarded. */
static void file_thread_serve_locked(struct sluice_writer *w) SL_REQUIRES(&w->mutex)
{
	bool wanted = false;

	for (;;) {
		bool failed = w->failure.error;

		if (w->locked.closing == SL_DISCARDING || (failed && w->locked.closing))
			return;
		if (!failed &&
		    (run_between_frames_locked(w, &wanted) || store_something_locked(w, wanted)))
			continue;
		if (!failed && w->locked.closing &&
		    sl_queue_stored_through_locked(w) == w->queue.sequence)
			return;
		if (!failed && w->sink) {
			sl_share_check_locked(w);
			if (w->failure.error)
				continue;
		}
		/* Ended by a chunk, a frame, a flush, a command, the end of the writer, or the
		 * next checkpoint. A pending flush waits for chunks and has no timeout. */
		sl_cond_wait(&w->work, &w->mutex,
		             failed || wanted ? SL_FOREVER : sl_flush_wake_at_locked(w));
	}
}

/* Sends the closed file, and removes it once the server has it, or if nobody wants it. */
static void send_copy_locked(struct sluice_writer *w, bool keep) SL_REQUIRES(&w->mutex)
{
	int rc;

	file_thread_unlock(w, "upload", NULL);
	rc = keep ? sl_remote_copy_finish(w->remote, w->path) : 0;
	if (!rc || w->remote->discarded)
		unlink(w->path);
	sl_mutex_lock(&w->mutex);
	if (rc)
		sl_writer_fail_locked(w, rc, "upload", NULL);
}

static void file_thread_end_locked(struct sluice_writer *w) SL_REQUIRES(&w->mutex)
{
	bool keep;
	int rc;

	if (!w->file && !w->sink)
		return;
	/* Ended by the ends of those operations. */
	while (w->queue.writes)
		sl_cond_wait(&w->work, &w->mutex, SL_FOREVER);
	/* After an error, too: partly stored frames are left out. */
	keep = w->locked.closing == SL_CLOSING;
	if (keep)
		store_bundles_locked(w, true);
	file_thread_unlock(w, "flush", NULL);
	rc = w->sink ? w->sink->ops->close(w->sink, keep) : sl_h5_file_close(w->file, keep);
	sl_mutex_lock(&w->mutex);
	w->file = NULL;
	if (rc)
		sl_writer_fail_locked(w, rc, "flush", NULL);
	/* After an error the local file is all that there is, and stays. */
	if (w->remote && !w->failure.error)
		send_copy_locked(w, keep);
}

static void file_thread_tell_end_unlock(struct sluice_writer *w) SL_RELEASES(&w->mutex)
{
	w->locked.ended = true;
	pthread_cond_broadcast(&w->progress);
	sl_mutex_unlock(&w->mutex);
}

/* The thread has ended inside HDF5, by pthread_exit() or a cancellation by other code. The file
 * cannot be closed, because HDF5 stays locked; it stays as the last flush left it. */
static void file_thread_died(void *argument)
{
	struct sluice_writer *w = argument;

	sl_mutex_lock(&w->mutex);
	sl_fail(-EIO, "the thread that has the file has died");
	sl_writer_fail_locked(w, -EIO, w->failure.doing.stage, w->failure.doing.frame);
	file_thread_tell_end_unlock(w);
}

void *sl_file_thread_run(void *argument)
{
	struct sluice_writer *w = argument;

	pthread_cleanup_push(file_thread_died, w);
	sl_mutex_lock(&w->mutex);
	file_thread_serve_locked(w);
	file_thread_end_locked(w);
	file_thread_tell_end_unlock(w);
	pthread_cleanup_pop(0);
	return NULL;
}
