/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Submitting an operation in stream order. docs/asynchrony.md says why it has to be like this: what it
 * waits for it has before it takes its place; then its place among other operations and its commands
 * are entered in one step, in which nothing blocks but the driver; and what the processor has to do
 * for a command can run before the command is enqueued.
 */
#include <errno.h>
#include <limits.h>
#include <stdio.h>

#include "io/io.h"

#define COMMANDS_AT_ONCE 64
#define CHUNKS_AT_ONCE   32
/* What fits into half of the bound is enqueued in one step, so that two operations on two streams find room beside
 * each other; of the rest little at a time, so that the device is never idle. */
#define FIRST_WINDOW (SL_COMMANDS_MOST / 2)
#define LATER_WINDOW (SL_COMMANDS_MOST / 8)

/* --------------------------------------------------------------------------- what it waits for */

/* By the thread that gave slots back. */
static void granted(struct sl_slot_waiter *ask)
{
	_Atomic uint32_t *word = ask->word;

	/* The waiting thread may go on, and free the operation, as soon as it sees the store. */
	atomic_store(word, 1);
	sl_word_wake(word, 1);
}

static int take_slots(struct sluice_op *op)
{
	struct sl_staged *staged = op->staged;
	bool wait = !(op->file->flags & SLUICE_OPEN_NONBLOCK);
	_Atomic uint32_t word = 0;

	staged->ask.granted = granted;
	staged->ask.word = &word;
	if (!sl_slots_take(staged->staging, &staged->ask, wait)) {
		if (!wait)
			return sl_fail(-EAGAIN, "all of SLUICE_STAGING_BYTES is in use");
		/* Ended by the operations that have the slots, which need nothing of this thread. */
		while (!atomic_load(&word))
			sl_word_wait(&word, 0, SL_FOREVER);
	}
	if (!staged->ask.refused)
		return 0;
	return sl_fail(-EIO, sl_staging_lost(staged->staging) ? "the device is lost"
	                                                      : "no pinned memory is left");
}

void sl_late_left(struct sluice_context *ctx)
{
	if (!atomic_load(&ctx->late_waited))
		return;
	atomic_fetch_add(&ctx->late_left, 1);
	sl_word_wake(&ctx->late_left, INT_MAX);
}

/* -------------------------------------------------------------------------------------- window */

/* Commands that are to be given to the stream, and where the chunks end in them. */
struct batch {
	struct sluice_op *op;
	struct sl_command commands[COMMANDS_AT_ONCE];
	size_t count;
	struct {
		uint64_t number;
		size_t start, end;
	} chunks[CHUNKS_AT_ONCE];
	unsigned chunk_count;
	uint64_t enqueued;    /* chunks, all in all */
	struct sl_slot *torn; /* has commands in the stream, and not the write of its last word */
};

/* After a driver error: the slots of chunks that are enqueued in part need their last word written. */
static void repair(struct batch *batch, size_t taken)
{
	struct sl_staged *staged = batch->op->staged;
	struct sl_device *device = sl_staging_device(staged->staging);
	size_t one;

	for (unsigned i = 0; i < batch->chunk_count; i++) {
		if (batch->chunks[i].end <= taken)
			continue;
		if (batch->chunks[i].start < taken) {
			struct sl_command *last = &batch->commands[batch->chunks[i].end - 1];

			if (device->ops->enqueue(device, staged->stream, last, 1, &one))
				batch->torn =
					&staged->slots[batch->chunks[i].number % staged->count];
			else
				batch->enqueued++;
		}
		break;
	}
}

static int flush(struct batch *batch)
{
	struct sl_staged *staged = batch->op->staged;
	struct sl_device *device = sl_staging_device(staged->staging);
	size_t taken = 0;
	int rc = 0;

	if (batch->count)
		rc = device->ops->enqueue(device, staged->stream, batch->commands, batch->count,
		                          &taken);
	for (unsigned i = 0; i < batch->chunk_count && batch->chunks[i].end <= taken; i++)
		batch->enqueued++;
	if (rc)
		repair(batch, taken);
	batch->count = batch->chunk_count = 0;
	return rc;
}

static struct sl_command *add(struct batch *batch)
{
	return &batch->commands[batch->count++];
}

static void add_chunk(struct batch *batch, uint64_t number, struct sl_chunk *chunk)
{
	struct sluice_op *op = batch->op;
	struct sl_staged *staged = op->staged;
	char *slot = staged->slots[number % staged->count].data;
	struct sl_slot_range segment;

	batch->chunks[batch->chunk_count].number = number;
	batch->chunks[batch->chunk_count].start = batch->count;
	if (!sl_ring_await(&staged->ring, number, add(batch)))
		batch->count--;
	while (chunk && sl_slot_range_next(&staged->enqueued, chunk, &segment)) {
		struct sl_command *copy = add(batch);

		copy->kind = SL_COPY;
		copy->copy.length = segment.length;
		copy->copy.to = op->kind == SL_READ ? segment.memory : slot + segment.at;
		copy->copy.from = op->kind == SL_READ ? slot + segment.at : segment.memory;
	}
	sl_ring_write(&staged->ring, number, add(batch));
	batch->chunks[batch->chunk_count++].end = batch->count;
}

static bool is_full(const struct batch *batch)
{
	return batch->chunk_count == CHUNKS_AT_ONCE || batch->count + 16 > COMMANDS_AT_ONCE;
}

/* Chunks of the next window, and their commands. */
struct window {
	uint64_t chunks;
	unsigned commands;
	bool more; /* than these */
};

/* At most so many commands, but for the first chunk; or all of them, to see whether that is too much. */
static struct window next_window(const struct sl_staged *staged, unsigned most, bool all)
{
	struct sl_chunks walk = staged->enqueued;
	struct sl_chunk chunk;
	struct window window = {0};

	if (staged->way == SL_WAY_DIRECT)
		return (struct window){2, 3, false};
	if (staged->way == SL_WAY_DEVICE)
		return (struct window){1, staged->transfer_count * SL_TRANSFER_COMMANDS + 1, false};
	while (sl_chunk_next(&walk, &chunk)) {
		window.more = !all && window.chunks && window.commands + chunk.segments + 2 > most;
		if (window.more)
			break;
		window.chunks++;
		window.commands += chunk.segments + 2;
		if (window.commands > SL_COMMANDS_MOST)
			break;
	}
	return window;
}

/* The submission lock is held. Nothing here waits for anything but the driver. */
static int enqueue_window(struct batch *batch, const struct window *window)
{
	struct sl_staged *staged = batch->op->staged;
	uint64_t first = batch->enqueued;
	struct sl_chunk chunk;
	int rc = 0;

	for (uint64_t i = 0; !rc && i < window->chunks; i++) {
		bool memory = staged->way == SL_WAY_STREAM;

		if (memory)
			sl_chunk_next(&staged->enqueued, &chunk);
		add_chunk(batch, first + i, memory ? &chunk : NULL);
		if (is_full(batch))
			rc = flush(batch);
	}
	return rc ? rc : flush(batch);
}

/* The same for SL_WAY_DEVICE: the transfers, and the word behind them whatever has become of them. */
static int enqueue_transfers(struct batch *batch)
{
	struct sl_staged *staged = batch->op->staged;
	int rc;

	sl_transfers_enqueue(staged);
	add_chunk(batch, 0, NULL);
	rc = flush(batch);
	if (rc && staged->transfer_count)
		batch->torn = &staged->slots[0];
	return rc;
}

/* True: the operation goes on, and the window's turns are entered. */
static bool enter_window(struct sluice_op *op, const struct window *window)
{
	struct sl_staged *staged = op->staged;
	bool enter;

	sl_mutex_lock(&op->mutex);
	enter = !op->locked.stopped;
	if (enter) {
		sl_ring_enter(&staged->ring, window->chunks);
		staged->locked.commands += window->commands;
	}
	sl_mutex_unlock(&op->mutex);
	return enter;
}

/* What was entered and not enqueued is taken back, and the operation fails. */
static void fail_submission(struct batch *batch, int rc)
{
	struct sluice_op *op = batch->op;
	char *message;

	if (asprintf(&message, "%s did not take the commands: %s",
	             sl_staging_device(op->staged->staging)->name, sl_error_text(rc)) < 0)
		message = NULL;
	sl_mutex_lock(&op->mutex);
	sl_ring_retreat(&op->staged->ring, batch->enqueued);
	if (batch->torn) {
		batch->torn->lost = true;
		op->staged->locked.torn = true;
	}
	sl_mutex_unlock(&op->mutex);
	sl_op_fail(op, rc, message);
	if (batch->torn)
		sl_staged_drain(op);
}

/* ---------------------------------------------------------------------------------- submission */

static int refuse(int rc, const struct sluice_op *op)
{
	if (rc == -EAGAIN)
		return sl_fail(rc, "an earlier operation on the same bytes has to end first");
	return sl_fail(rc, "request: extents of one write overlap in '%s'", op->file->uri);
}

/*
 * Takes the operation's place among others, with the submission lock, and room for its first window.
 * Nothing may be enqueued behind an operation that needs a thread that the driver may hold up, or behind
 * one that has yet to enqueue something itself, on the same stream perhaps; and what the backend has the
 * stream do by itself, behind none at all.
 */
static int take_place(struct sluice_op *op, const struct window *window)
{
	struct sluice_context *ctx = op->ctx;
	struct sl_staging *staging = op->staged->staging;
	bool wait = !(op->file->flags & SLUICE_OPEN_NONBLOCK);

	for (;;) {
		uint32_t seen;
		int rc;

		if (!sl_commands_take(staging, window->commands, wait))
			return sl_fail(-EAGAIN, "the device's queue is full");
		atomic_fetch_add(&ctx->late_waited, 1);
		seen = atomic_load(&ctx->late_left);
		sl_mutex_lock(&ctx->submission);
		rc = sl_order_enter(op);
		if (rc >= 0) {
			atomic_fetch_sub(&ctx->late_waited, 1);
			return rc; /* with the lock */
		}
		sl_mutex_unlock(&ctx->submission);
		sl_commands_give(staging, window->commands);
		/* Ended by any operation that is over, or late no more, which needs none of what this one
		 * has. */
		if (rc == -EBUSY && wait)
			sl_word_wait(&ctx->late_left, seen, SL_FOREVER);
		atomic_fetch_sub(&ctx->late_waited, 1);
		if (rc != -EBUSY)
			return refuse(rc, op);
		if (!wait)
			return refuse(-EAGAIN, op);
	}
}

/* All windows behind the first: each waits, without a lock, until the stream has room for it. */
static void enter_rest(struct sluice_op *op, struct batch *batch)
{
	struct sluice_context *ctx = op->ctx;
	struct sl_staged *staged = op->staged;
	struct window window;
	int rc = 0;

	while (!rc && staged->way == SL_WAY_STREAM &&
	       (window = next_window(staged, LATER_WINDOW, false)).chunks) {
		sl_commands_take(staged->staging, window.commands, true);
		sl_mutex_lock(&ctx->submission);
		if (!enter_window(op, &window)) {
			sl_mutex_unlock(&ctx->submission);
			sl_commands_give(staged->staging, window.commands);
			return;
		}
		sl_mutex_lock(&op->mutex);
		sl_op_pump_locked(op);
		rc = enqueue_window(batch, &window);
		sl_mutex_unlock(&ctx->submission);
		if (rc)
			fail_submission(batch, rc);
	}
}

/* What is enqueued in one step. Without waiting that is all or nothing. */
static int first_window(struct sluice_op *op, struct window *window)
{
	bool all = op->file->flags & SLUICE_OPEN_NONBLOCK;

	*window = next_window(op->staged, FIRST_WINDOW, all);
	if (all && window->commands > SL_COMMANDS_MOST)
		return sl_fail(-E2BIG, "the operation is more than a device's queue takes at once");
	return 0;
}

int sl_stream_enter(struct sluice_op *op, sluice_op **out)
{
	struct sl_staged *staged = op->staged;
	struct sluice_context *ctx = op->ctx;
	struct batch batch = {.op = op};
	struct window window;
	bool late;
	int rc = take_slots(op), place;

	if (rc)
		return rc;
	rc = first_window(op, &window);
	if (rc)
		goto slots;
	/* Of the handle, and of this call: another thread may end the operation at any time. */
	atomic_fetch_add(&op->references, out ? 2 : 1);
	atomic_fetch_add(&op->file->in_flight, 1);
	staged->locked.submitting = true;
	late = window.more;
	op->order.blocks_streams |= late;
	/* Before its place, from which on others may start it: what it has entered can be filled. */
	enter_window(op, &window);
	place = take_place(op, &window);
	if (place < 0) {
		rc = place;
		goto references;
	}
	sl_poller_watch(&staged->ring);
	if (out)
		*out = op;
	if (place == 0)
		sl_op_start(op);
	rc = staged->way == SL_WAY_DEVICE ? enqueue_transfers(&batch)
	                                  : enqueue_window(&batch, &window);
	sl_mutex_unlock(&ctx->submission);
	if (rc)
		fail_submission(&batch, rc);
	else
		enter_rest(op, &batch);
	if (late) {
		sl_order_enqueued(op);
		sl_late_left(ctx);
	}
	sl_mutex_lock(&op->mutex);
	staged->locked.submitting = false;
	sl_op_pump_locked(op);
	sl_op_unref(op);
	return 0;

references:
	sl_file_release(op->file);
	atomic_fetch_sub(&op->references, out ? 2 : 1);
	slots:
	sl_slots_give(staged->staging, staged->ask.half, staged->slots, staged->ask.count);
	return rc;
}
