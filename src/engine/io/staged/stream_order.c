/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stream order
 *
 * Submits an operation in stream order, and hears from the poller how far its stream has come. The
 * submitting call waits for slots and for room in the stream. Then, in one step, the operation
 * enters the order of its object and its commands are enqueued; only the driver may block there.
 * The processor's part of a command can run before that is enqueued. docs/asynchrony.md has the
 * reasons. Threads: the submitting, the poller's, and the copier's where a stream has to run out.
 */
#include <errno.h>
#include <limits.h>
#include <string.h>

#include "io/staged/staged.h"

/* An operation that fits into half of the bound is enqueued in one step, so that two operations on
 * two streams find room; the rest follows bit by bit, so that the device is never idle. */
#define FIRST_WINDOW (SL_COMMANDS_MOST / 2)
#define LATER_WINDOW (SL_COMMANDS_MOST / 8)

/* ------------------------------------------------------------------------------------- slots */

/* On the thread that gave slots back. */
static void stream_granted(struct sl_slot_waiter *waiter)
{
	sl_flag_raise(waiter->word);
}

static int stream_take_slots(struct sluice_op *op)
{
	struct sl_staged *staged = op->staged;
	bool wait = !(op->file->flags & SLUICE_OPEN_NONBLOCK);
	_Atomic uint32_t word = 0;

	staged->waiter.granted = stream_granted;
	staged->waiter.word = &word;
	if (!sl_slots_take(staged->staging, &staged->waiter, wait)) {
		if (!wait)
			return sl_fail(-EAGAIN, "all of SLUICE_STAGING_BYTES is in use");
		/* The operations with the slots end the wait, without this thread. */
		sl_flag_await(&word);
	}
	if (!staged->waiter.refused)
		return 0;
	return sl_fail(-EIO, sl_staging_lost(staged->staging) ? "the device is lost"
	                                                      : "no pinned memory is left");
}

/* ------------------------------------------------------------------------------------- batch */

/* All but the commands, which are many. */
static void batch_init(struct sl_batch *batch, struct sluice_op *op)
{
	batch->op = op;
	batch->count = batch->chunk_count = 0;
	batch->enqueued = 0;
	batch->unfinished = NULL;
}

/* After a driver error: writes the last word of the chunk that is enqueued in part. */
static void batch_repair(struct sl_batch *batch, size_t taken)
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
				batch->unfinished =
					&staged->slots[batch->chunks[i].number % staged->count];
			else
				batch->enqueued++;
		}
		break;
	}
}

int sl_batch_flush(struct sl_batch *batch)
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
		batch_repair(batch, taken);
	batch->count = batch->chunk_count = 0;
	return rc;
}

/* Makes the copies of a chunk, between slot and memory. Returns their number. */
static size_t stream_copies(const struct sl_staged *staged, char *slot, struct sl_chunk *chunk,
                            struct sl_command *out)
{
	bool read = staged->op->kind == SL_READ;
	struct sl_span span;
	size_t count = 0;

	while (sl_span_next(&staged->given, chunk, &span))
		out[count++] = (struct sl_command){
			.kind = SL_COPY,
			.copy.to = read ? span.memory : slot + span.at,
			.copy.from = read ? slot + span.at : span.memory,
			.copy.length = span.length,
		};
	return count;
}

/* Returns how many commands the device's queue counts for a chunk. */
static unsigned stream_cost(const struct sl_staged *staged, struct sl_chunk chunk)
{
	struct sl_command copies[SL_SPANS_MOST];
	size_t count;

	if (chunk.spans == 1)
		return 3;
	count = stream_copies(staged, staged->slots[0].data, &chunk, copies);
	return 2 +
	       sl_commands_cost(sl_staging_device(staged->staging), staged->stream, copies, count);
}

void sl_batch_add(struct sl_batch *batch, uint64_t number, struct sl_chunk *chunk)
{
	struct sl_staged *staged = batch->op->staged;
	char *slot = staged->slots[number % staged->count].data;

	batch->chunks[batch->chunk_count].number = number;
	batch->chunks[batch->chunk_count].start = batch->count;
	batch->count += sl_ring_await(&staged->ring, number, &batch->commands[batch->count]);
	if (chunk)
		batch->count += stream_copies(staged, slot, chunk, &batch->commands[batch->count]);
	sl_ring_write(&staged->ring, number, &batch->commands[batch->count++]);
	batch->chunks[batch->chunk_count++].end = batch->count;
}

/* ----------------------------------------------------------------------------- memory's route */

/* Of memory of a device: the stream copies between it and the slots of a ring; words of the
 * processor and the device for each other say when a slot is full, and when free (staging.h). */

void sl_stream_start(struct sluice_op *op)
{
	sl_mutex_lock(&op->mutex);
	sl_staged_begin_locked(op);
	sl_op_pump_unlock(op);
}

static char *stream_memory(struct sluice_op *op)
{
	return op->staged->slots[0].data;
}

static void stream_filled(struct sluice_op *op)
{
	sl_ring_store(&op->staged->ring, 0);
}

static struct sl_slot_use *stream_slot(struct sluice_op *op, uint64_t number)
{
	struct sl_staged *staged = op->staged;

	return sl_ring_ready(&staged->ring, number) ? &staged->uses[number % staged->count] : NULL;
}

static void stream_chunk_done(struct sluice_op *op, struct sl_slot_use *use)
{
	sl_ring_store(&op->staged->ring, use->number);
}

static uint16_t *stream_noted_cost(struct sl_staged *staged, uint64_t number)
{
	return &staged->costs[number % (sizeof(staged->costs) / sizeof(staged->costs[0]))];
}

static struct sl_window stream_window(struct sl_staged *staged, unsigned most)
{
	struct sl_chunks walk = staged->given;
	struct sl_chunk chunk;
	struct sl_window window = {0};

	while (sl_chunk_next(&walk, &chunk)) {
		unsigned cost = stream_cost(staged, chunk);

		window.more = window.chunks && window.commands + cost > most;
		if (window.more)
			break;
		*stream_noted_cost(staged, staged->ring.entered + window.chunks) = (uint16_t)cost;
		window.chunks++;
		window.commands += cost;
		if (window.commands > SL_COMMANDS_MOST)
			break;
	}
	return window;
}

static int stream_enqueue(struct sl_batch *batch, const struct sl_window *window)
{
	uint64_t first = batch->enqueued;
	struct sl_chunk chunk;
	int rc = 0;

	for (uint64_t i = 0; !rc && i < window->chunks; i++) {
		sl_chunk_next(&batch->op->staged->given, &chunk);
		sl_batch_add(batch, first + i, &chunk);
		if (batch->chunk_count == SL_BATCH_CHUNKS ||
		    batch->count + SL_SPANS_MOST + 2 > SL_BATCH_COMMANDS)
			rc = sl_batch_flush(batch);
	}
	return rc ? rc : sl_batch_flush(batch);
}

const struct sl_route sl_route_stream = {
	.on_stream = true,
	.has_memory = true,
	.start = sl_stream_start,
	.memory = stream_memory,
	.filled = stream_filled,
	.next = sl_route_next_range,
	.slot = stream_slot,
	.chunk_done = stream_chunk_done,
	.window = stream_window,
	.enqueue = stream_enqueue,
};

/* ------------------------------------------------------------------------------------ window */

/* Enters the numbers of the window. Returns false if the operation has been stopped. */
static bool stream_enter_window(struct sluice_op *op, const struct sl_window *window)
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

static void stream_drained(struct sl_copy_job *drain, int error)
{
	struct sluice_op *op = SL_CONTAINER(drain, struct sl_staged, drain)->op;

	sl_mutex_lock(&op->mutex);
	op->staged->locked.draining = false;
	/* After an error it cannot be known whether the stream has run out. */
	op->staged->locked.drained = !error;
	sl_op_pump_unlock(op);
}

/* Returns an event behind the stream's commands; NULL: the driver refuses, or has another
 * context. */
static sluice_event stream_record(struct sl_device *device, sluice_stream stream)
{
	sluice_event event;

	if (device->ops->event_new(device, &event))
		return NULL;
	if (!device->ops->event_record(device, event, stream))
		return event;
	device->ops->event_free(device, event);
	return NULL;
}

/* Has the copier find out when the stream has run out. On the thread that submits, because the
 * number of a default stream may mean that thread's own. */
static void stream_drain(struct sluice_op *op)
{
	struct sl_staged *staged = op->staged;
	struct sl_device *device = sl_staging_device(staged->staging);

	staged->drain = (struct sl_copy_job){
		.drains = true,
		.stream = staged->stream,
		.event = stream_record(device, staged->stream),
		.done = stream_drained,
	};
	sl_copier_submit(staged->staging, &staged->drain);
}

/* Takes back the numbers that were entered and not enqueued, and fails the operation. */
static void stream_fail(struct sl_batch *batch, int rc)
{
	struct sluice_op *op = batch->op;
	char *message = sl_format("%s did not take the commands: %s",
	                          sl_staging_device(op->staged->staging)->name, sl_error_text(rc));

	sl_mutex_lock(&op->mutex);
	sl_ring_retreat(&op->staged->ring, batch->enqueued);
	if (batch->unfinished) {
		batch->unfinished->lost = true;
		op->staged->locked.draining = true;
	}
	sl_mutex_unlock(&op->mutex);
	sl_op_fail(op, rc, message);
	if (batch->unfinished)
		stream_drain(op);
}

/* -------------------------------------------------------------------------------- submission */

static int stream_refuse(int rc, const struct sluice_op *op)
{
	if (rc == -EAGAIN)
		return sl_fail(rc, "an earlier operation on the same bytes has to end first");
	return sl_fail(rc, "request: extents of one write overlap in '%s'", op->file->uri);
}

/*
 * Takes room for the first window, then ctx->submission, and enters the order of the object. An
 * operation is never enqueued behind another that needs a thread which the driver may hold up, or
 * that still has commands to enqueue, perhaps on the same stream; an operation that its stream
 * moves, behind none at all. Returns as sl_order_enter(), with ctx->submission unless
 * negative.
 */
static int stream_enter_order(struct sluice_op *op, const struct sl_window *window) SL_UNCHECKED
{
	struct sluice_context *ctx = op->ctx;
	struct sl_staging *staging = op->staged->staging;
	bool wait = !(op->file->flags & SLUICE_OPEN_NONBLOCK);

	for (;;) {
		uint32_t seen;
		int rc;

		if (!sl_commands_take(staging, window->commands, wait))
			return sl_fail(-EAGAIN, "the device's queue is full");
		atomic_fetch_add(&ctx->unblock_waiters, 1);
		seen = atomic_load(&ctx->unblocked);
		sl_mutex_lock(&ctx->submission);
		rc = sl_order_enter(op);
		if (rc >= 0) {
			atomic_fetch_sub(&ctx->unblock_waiters, 1);
			return rc; /* with the lock */
		}
		sl_mutex_unlock(&ctx->submission);
		sl_commands_give(staging, window->commands);
		/* sl_streams_unblocked() of an operation that is over, or blocks streams no longer,
		 * ends the wait; that operation needs nothing of this thread. */
		if (rc == -EBUSY && wait)
			sl_word_wait(&ctx->unblocked, seen, SL_FOREVER);
		atomic_fetch_sub(&ctx->unblock_waiters, 1);
		if (rc != -EBUSY)
			return stream_refuse(rc, op);
		if (!wait)
			return stream_refuse(-EAGAIN, op);
	}
}

/* Enqueues all windows behind the first: each waits, without a lock, for room in the stream. */
static void stream_enter_rest(struct sluice_op *op, struct sl_batch *batch)
{
	struct sluice_context *ctx = op->ctx;
	struct sl_staged *staged = op->staged;
	struct sl_window window;
	int rc = 0;

	while (!rc && staged->route->has_memory &&
	       (window = staged->route->window(staged, LATER_WINDOW)).chunks) {
		sl_commands_take(staged->staging, window.commands, true);
		sl_mutex_lock(&ctx->submission);
		if (!stream_enter_window(op, &window)) {
			sl_mutex_unlock(&ctx->submission);
			sl_commands_give(staged->staging, window.commands);
			return;
		}
		sl_mutex_lock(&op->mutex);
		sl_op_pump_unlock(op);
		rc = staged->route->enqueue(batch, &window);
		sl_mutex_unlock(&ctx->submission);
		if (rc)
			stream_fail(batch, rc);
	}
}

/* Submits an operation that has its slots, from its first window on. On failure nothing of it is
 * left. stream_enter_order() returns with ctx->submission, which the analysis cannot follow. */
static int stream_submit(struct sluice_op *op, const struct sl_window *window,
                         sluice_op **out) SL_UNCHECKED
{
	struct sl_staged *staged = op->staged;
	struct sluice_context *ctx = op->ctx;
	bool blocks = window->more;
	struct sl_batch batch;
	int rc, entered;

	batch_init(&batch, op);
	/* References of the handle and of this call: another thread may end the operation. */
	atomic_fetch_add(&op->references, out ? 2 : 1);
	atomic_fetch_add(&op->file->in_flight, 1);
	staged->locked.submitting = true;
	op->order.blocks_streams |= blocks;
	/* The numbers come before the order, after which another thread may start the operation:
	 * the chunks that it has entered can then be filled. */
	stream_enter_window(op, window);
	entered = stream_enter_order(op, window);
	if (entered < 0) {
		sl_file_release(op->file);
		atomic_fetch_sub(&op->references, out ? 2 : 1);
		return entered;
	}
	/* The poller has to watch before the start, and *out has to be set before it: the operation
	 * may be over as it starts. It starts before its commands are enqueued, so that no await
	 * waits for this thread. */
	sl_poller_watch(&staged->ring);
	if (out)
		*out = op;
	sl_staged_announce(op);
	if (entered == 0)
		sl_op_start(op);
	rc = staged->route->enqueue(&batch, window);
	sl_mutex_unlock(&ctx->submission);
	if (rc)
		stream_fail(&batch, rc);
	else
		stream_enter_rest(op, &batch);
	if (blocks) {
		sl_order_enqueued(op);
		sl_streams_unblocked(ctx);
	}
	sl_mutex_lock(&op->mutex);
	staged->locked.submitting = false;
	sl_op_pump_unlock(op);
	sl_op_unref(op);
	return 0;
}

int sl_stream_enter(struct sluice_op *op, sluice_op **out)
{
	struct sl_staged *staged = op->staged;
	bool all = op->file->flags & SLUICE_OPEN_NONBLOCK;
	struct sl_window window;
	int rc = stream_take_slots(op);

	if (rc)
		return rc;
	rc = sl_staged_admit(op);
	/* Without waiting the first window is all chunks, or the operation is refused. */
	if (!rc)
		window = staged->route->window(staged, all ? UINT_MAX : FIRST_WINDOW);
	if (!rc && all && window.commands > SL_COMMANDS_MOST)
		rc = sl_fail(-E2BIG, "the operation is more than a device's queue takes at once");
	if (!rc)
		rc = stream_submit(op, &window, out);
	/* Without an error the operation may be gone. */
	if (rc)
		sl_slots_give(staged->staging, staged->waiter.half, staged->slots,
		              staged->waiter.count);
	return rc;
}

/* ------------------------------------------------------------------------------------ poller */

/* Returns the commands of chunks that the stream passed since the last call: room for others. */
static unsigned stream_passed_locked(struct sl_staged *staged)
{
	uint64_t passed = SL_MIN(sl_ring_passed(&staged->ring), staged->ring.entered);
	unsigned commands = 0;

	while (staged->route->has_memory && staged->locked.passed < passed)
		commands += *stream_noted_cost(staged, staged->locked.passed++);
	staged->locked.commands -= commands;
	return commands;
}

/* The device is lost, and may still use the slots. */
static void stream_lose(struct sluice_op *op)
{
	struct sl_staged *staged = op->staged;

	sl_op_fail(op, -EIO, strdup("the device is lost"));
	sl_mutex_lock(&op->mutex);
	if (!op->locked.over)
		for (unsigned i = 0; i < staged->count; i++)
			staged->slots[i].lost = true;
	sl_mutex_unlock(&op->mutex);
}

void sl_stream_moved(struct sl_ring *ring)
{
	struct sl_staged *staged = SL_CONTAINER(ring, struct sl_staged, ring);
	struct sluice_op *op = staged->op;
	unsigned commands = 0;

	if (sl_staging_lost(staged->staging))
		stream_lose(op);
	sl_mutex_lock(&op->mutex);
	if (!op->locked.over)
		commands = stream_passed_locked(staged);
	sl_mutex_unlock(&op->mutex);
	sl_commands_give(staged->staging, commands);
	sl_mutex_lock(&op->mutex);
	sl_op_pump_unlock(op);
}

void sl_stream_hold(struct sl_ring *ring)
{
	struct sl_staged *staged = SL_CONTAINER(ring, struct sl_staged, ring);

	atomic_fetch_add(&staged->op->references, 1);
}

void sl_stream_release(struct sl_ring *ring)
{
	sl_op_unref(SL_CONTAINER(ring, struct sl_staged, ring)->op);
}
