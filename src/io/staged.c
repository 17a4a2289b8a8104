/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Operations whose bytes do not go straight into the caller's memory: how their chunks get through
 * slots, and when they are over. submission in stream order is in stream.c.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "io/io.h"

/* --------------------------------------------------------------------------------- new, free */

static void ring_moved(struct sl_ring *ring);

static void ring_hold(struct sl_ring *ring)
{
	struct sl_staged *staged = SL_CONTAINER(ring, struct sl_staged, ring);

	atomic_fetch_add(&staged->op->references, 1);
}

static void ring_release(struct sl_ring *ring)
{
	sl_op_unref(SL_CONTAINER(ring, struct sl_staged, ring)->op);
}

static void granted(struct sl_slot_waiter *ask);

static struct sl_staged *allocate(unsigned slots)
{
	struct sl_staged *staged = calloc(1, sizeof(*staged) + slots * sizeof(staged->seats[0]));

	if (!staged)
		return NULL;
	staged->slots = calloc(slots, sizeof(*staged->slots));
	if (!staged->slots) {
		free(staged);
		return NULL;
	}
	staged->count = slots;
	for (unsigned i = 0; i < slots; i++) {
		staged->seats[i].staged = staged;
		staged->seats[i].index = i;
	}
	return staged;
}

int sl_staged_new(struct sluice_op *op, struct sl_staging *staging, enum sl_way way,
                  sluice_stream stream)
{
	const struct sl_settings *settings = &op->ctx->core.settings;
	bool stream_order = way != SL_WAY_HOST;
	bool words_only = way == SL_WAY_DIRECT || way == SL_WAY_DEVICE;
	enum sl_half half = stream_order ? SL_HALF_STREAM : SL_HALF_HOST;
	struct sl_chunks chunks = {
		.extents = op->extents,
		.count = op->count,
		.direct_bytes = settings->direct_bytes,
		.file_size = INT64_MAX,
		/* What comes short of a file of unknown length is the end of the chunk. */
		.apart = op->file->limits.sequential,
		.whole = op->file->limits.whole,
	};
	struct sl_staged *staged;
	unsigned slots = 1;
	int64_t size = -1;
	int rc = 0;

	/* What is had in one piece takes no more than there is. */
	if (chunks.whole)
		size = op->file->backend->ops->size(op->file->backend);
	if (size >= 0)
		chunks.file_size = (uint64_t)size;

	if (!words_only)
		rc = sl_chunks_plan(&chunks, &op->file->limits, settings,
		                    sl_staging_largest(staging, half), &slots);
	if (rc)
		return rc;
	staged = allocate(slots);
	if (!staged)
		return sl_fail(-ENOMEM, "no memory");
	staged->op = op;
	staged->way = way;
	staged->staging = staging;
	staged->stream = stream;
	staged->shape = chunks;
	staged->ask = (struct sl_slot_waiter){
		.half = half,
		.words = stream_order,
		.count = slots,
		.length = words_only ? 0 : chunks.slot_bytes,
		.slots = staged->slots,
		.granted = granted,
	};
	staged->ring = (struct sl_ring){
		.staging = staging,
		/* Host memory: the first turn begins the operation, the second ends it. The turn of
		 * SL_WAY_DEVICE has no await. */
		.write = way == SL_WAY_DIRECT || (way == SL_WAY_STREAM && op->kind == SL_WRITE),
		.count = slots,
		.slots = staged->slots,
		.moved = ring_moved,
		.hold = ring_hold,
		.release = ring_release,
	};
	staged->locked.chunks = staged->locked.copied = chunks;
	staged->enqueued = staged->passed = chunks;
	op->staged = staged;
	op->on_stream = stream_order;
	op->order.blocks_streams = !stream_order || way == SL_WAY_DEVICE;
	/* A number that is a stream of each context or thread orders nothing. */
	op->order.stream =
		way == SL_WAY_DEVICE && (uintptr_t)stream > SL_COMMON_STREAMS ? stream : NULL;
	return way == SL_WAY_DEVICE ? sl_transfers_new(staged) : 0;
}

void sl_staged_free(struct sl_staged *staged)
{
	if (!staged)
		return;
	/* Where a lost device may still write is left to it. */
	if (!staged->slots[0].lost)
		free(staged->transfers);
	free(staged->slots);
	free(staged);
}

/* ------------------------------------------------------------------------------------ copier */

/* The copies of a seat's chunk, one by one; of a read no more than came. */
static bool copy_next(struct sl_copy_job *copy, struct sl_command *out)
{
	struct sl_slot_use *seat = SL_CONTAINER(copy, struct sl_slot_use, copy);
	struct sl_staged *staged = seat->staged;
	char *slot = staged->slots[seat->index].data;
	struct sl_slot_range segment;

	if (!seat->left || !sl_slot_range_next(&staged->shape, &seat->walk, &segment))
		return false;
	segment.length = SL_MIN(segment.length, seat->left);
	seat->left -= segment.length;
	out->kind = SL_COPY;
	out->copy.length = segment.length;
	out->copy.to = copy->to_device ? segment.memory : slot + segment.at;
	out->copy.from = copy->to_device ? slot + segment.at : segment.memory;
	return true;
}

static void copy_done(struct sl_copy_job *copy, int error);

/* op->mutex is held. The copier's queue is locked inside it, and takes nothing else. */
static void submit_copy(struct sl_slot_use *seat, uint64_t bytes)
{
	struct sl_staged *staged = seat->staged;

	seat->walk = seat->chunk;
	seat->left = bytes;
	seat->copy.to_device = staged->op->kind == SL_READ;
	seat->copy.next = copy_next;
	seat->copy.done = copy_done;
	staged->locked.copies++;
	sl_copier_submit(staged->staging, &seat->copy);
}

/* Of a write: has the next chunks copied into slots that are empty, in order. op->mutex is held. */
static void fill_seats(struct sl_staged *staged)
{
	for (;;) {
		struct sl_slot_use *seat = &staged->seats[staged->locked.filled % staged->count];

		if (!seat->empty || staged->op->locked.stopped ||
		    !sl_chunk_next(&staged->locked.copied, &seat->chunk))
			return;
		seat->empty = false;
		staged->locked.filled++;
		submit_copy(seat, UINT64_MAX);
	}
}

static void copy_done(struct sl_copy_job *copy, int error)
{
	struct sl_slot_use *seat = SL_CONTAINER(copy, struct sl_slot_use, copy);
	struct sl_staged *staged = seat->staged;
	struct sluice_op *op = staged->op;

	if (error)
		sl_op_fail(op, error, NULL);
	sl_mutex_lock(&op->mutex);
	staged->locked.copies--;
	seat->ready = true;
	sl_op_pump_locked(op);
}

/* ------------------------------------------------------------------------------------- start */

/* The slots are there. */
static void begin(struct sl_staged *staged)
{
	struct sluice_op *op = staged->op;

	if (staged->ask.refused)
		sl_op_fail(op, -EIO, strdup("no pinned memory is left"));
	sl_mutex_lock(&op->mutex);
	staged->locked.asking = false;
	for (unsigned i = 0; i < staged->count; i++) {
		staged->seats[i].ready = op->kind == SL_READ;
		staged->seats[i].empty = op->kind == SL_WRITE;
	}
	if (op->kind == SL_WRITE)
		fill_seats(staged);
	sl_op_pump_locked(op);
}

static void granted(struct sl_slot_waiter *ask)
{
	begin(SL_CONTAINER(ask, struct sl_staged, ask));
}

/* Its slots will get so many bytes. */
static void expect(struct sluice_op *op, uint64_t bytes)
{
	struct sl_staged *staged = op->staged;

	if (op->kind != SL_READ || staged->way == SL_WAY_DIRECT || staged->way == SL_WAY_DEVICE)
		return;
	atomic_store_explicit(&staged->expected, bytes, memory_order_relaxed);
	sl_slots_expect(staged->staging, bytes);
}

void sl_staged_got(struct sluice_op *op, const struct sl_piece *piece)
{
	struct sl_staged *staged = op->staged;

	if (staged->way == SL_WAY_DIRECT)
		return;
	atomic_fetch_sub_explicit(&staged->expected, piece->length, memory_order_relaxed);
	/* Past the page cache no core has seen them. */
	sl_slots_got(staged->staging, piece->length, piece->data, piece->direct ? 0 : piece->moved);
}

void sl_staged_start(struct sluice_op *op)
{
	struct sl_staged *staged = op->staged;
	bool ask, now;

	expect(op, op->bytes);
	sl_mutex_lock(&op->mutex);
	staged->shape.file_size = op->locked.plan.file_size;
	staged->locked.chunks.file_size = op->locked.plan.file_size;
	staged->locked.copied.file_size = op->locked.plan.file_size;
	staged->locked.started = true;
	if (staged->way == SL_WAY_DEVICE) {
		staged->locked.exhausted = true;
		if (!op->locked.stopped)
			sl_ring_store(&staged->ring, 0);
	}
	ask = staged->way == SL_WAY_HOST && !op->locked.stopped;
	staged->locked.asking = ask;
	if (!ask) {
		sl_op_pump_locked(op);
		return;
	}
	/* With the mutex, so that a cancel finds the ask, or keeps it from being made. Then nobody ends the
	 * operation while it asks, unless the ask is withdrawn. */
	now = sl_slots_take(staged->staging, &staged->ask, true);
	sl_mutex_unlock(&op->mutex);
	if (now)
		begin(staged);
}

char *sl_staged_place(struct sluice_op *op)
{
	struct sl_staged *staged = op->staged;
	struct sl_chunks walk = staged->shape;
	struct sl_slot_range segment;
	struct sl_chunk chunk;

	if (staged->way != SL_WAY_STREAM || !sl_chunk_next(&walk, &chunk) ||
	    !sl_slot_range_next(&staged->shape, &chunk, &segment) ||
	    segment.length < op->extents[0].length)
		return NULL;
	return staged->slots[0].data + segment.at;
}

void sl_staged_filled(struct sluice_op *op, const char *place, uint64_t moved)
{
	struct sl_staged *staged = op->staged;

	sl_slots_expect(staged->staging, moved);
	sl_slots_got(staged->staging, moved, place, moved);
	sl_mutex_lock(&op->mutex);
	op->locked.moved = moved;
	staged->locked.started = true;
	staged->locked.exhausted = true;
	if (!op->locked.stopped)
		sl_ring_store(&staged->ring, 0);
	sl_op_pump_locked(op);
}

void sl_staged_cancel(struct sluice_op *op)
{
	struct sl_staged *staged = op->staged;

	if (staged->way != SL_WAY_HOST || !sl_slots_withdraw(staged->staging, &staged->ask))
		return;
	sl_mutex_lock(&op->mutex);
	staged->locked.asking = false;
	sl_op_pump_locked(op);
}

/* -------------------------------------------------------------------------------------- next */

/* Whether the slot of the next chunk may be filled, or holds it. */
static bool gate_is_open(struct sl_staged *staged, uint64_t number)
{
	if (!staged->locked.started || staged->locked.asking)
		return false;
	if (staged->way == SL_WAY_HOST)
		return staged->seats[number % staged->count].ready;
	return sl_ring_ready(&staged->ring, number);
}

/* Storage has done its part of the seat's chunk. op->mutex is held. */
static void chunk_done(struct sl_slot_use *seat)
{
	struct sl_staged *staged = seat->staged;
	struct sluice_op *op = staged->op;

	if (op->locked.stopped)
		return;
	if (staged->way == SL_WAY_STREAM)
		sl_ring_store(&staged->ring, seat->number);
	else if (op->kind == SL_READ)
		submit_copy(seat, seat->moved);
	else {
		seat->empty = true;
		fill_seats(staged);
	}
}

static void close_seat(struct sl_staged *staged)
{
	struct sl_slot_use *seat = staged->locked.seat;

	staged->locked.seat = NULL;
	seat->handed = true;
	if (!seat->pieces)
		chunk_done(seat);
}

/* Opens the next chunk if its slot is ready. */
static bool open_seat(struct sl_staged *staged)
{
	struct sl_chunks *chunks = &staged->locked.chunks;
	struct sl_slot_use *seat = &staged->seats[staged->locked.next % staged->count];
	struct sl_chunks look = *chunks;
	struct sl_chunk chunk;

	if (!sl_chunk_next(&look, &chunk)) {
		staged->locked.exhausted = true;
		return false;
	}
	if (!gate_is_open(staged, staged->locked.next))
		return false;
	*chunks = look;
	seat->chunk = chunk;
	seat->number = staged->locked.next++;
	seat->handed = seat->ready = false;
	seat->pieces = 0;
	seat->moved = 0;
	seat->walk = chunk; /* its segments are handed out along this one */
	staged->locked.seat = seat;
	return true;
}

/* Host memory: everything, once the stream has come to it. */
static bool next_direct(struct sluice_op *op)
{
	struct sl_staged *staged = op->staged;

	if (!gate_is_open(staged, 0))
		return false;
	staged->locked.exhausted = true;
	staged->locked.seat = &staged->seats[0];
	op->locked.plan.count = op->count;
	return true;
}

bool sl_staged_next(struct sluice_op *op)
{
	struct sl_staged *staged = op->staged;
	struct sl_plan *plan = &op->locked.plan;
	struct sl_slot_range segment;

	if (!staged->locked.started || staged->locked.exhausted)
		return false;
	if (staged->way == SL_WAY_DIRECT)
		return next_direct(op);
	for (;;) {
		struct sl_slot_use *seat = staged->locked.seat;

		if (!seat && !open_seat(staged))
			return false;
		seat = staged->locked.seat;
		if (sl_slot_range_next(&staged->shape, &seat->walk, &segment))
			break;
		close_seat(staged);
	}
	staged->locked.segment = (struct sluice_extent){
		.data = staged->slots[staged->locked.seat->index].data + segment.at,
		.length = segment.length,
		.offset = segment.offset,
	};
	plan->extents = &staged->locked.segment;
	plan->count = 1;
	plan->extent = 0;
	plan->position = 0;
	plan->direct_bytes = segment.large ? 0 : UINT64_MAX;
	return true;
}

bool sl_staged_urgent(const struct sl_slot_use *seat)
{
	return seat->staged->way == SL_WAY_STREAM && seat->number >= seat->staged->count;
}

void sl_staged_piece_done(struct sl_slot_use *seat, size_t moved)
{
	struct sl_staged *staged = seat->staged;

	seat->pieces--;
	seat->moved += moved;
	if (seat->pieces)
		return;
	if (staged->op->locked.stopped && staged->op->on_stream)
		sl_ring_stop(&staged->ring, seat->index);
	else if (seat->handed)
		chunk_done(seat);
}

/* --------------------------------------------------------------------------------------- end */

void sl_staged_stop(struct sluice_op *op)
{
	struct sl_staged *staged = op->staged;

	/* A slot with pieces in flight is not for the device yet: the last of them lets the stream go on. */
	for (unsigned i = 0; op->on_stream && i < staged->count; i++)
		if (!staged->seats[i].pieces)
			sl_ring_stop(&staged->ring, i);
}

bool sl_staged_stored(struct sluice_op *op)
{
	struct sl_staged *staged = op->staged;

	return staged->locked.started && !staged->locked.submitting && !op->locked.in_flight &&
	       (op->locked.stopped || staged->locked.exhausted);
}

bool sl_staged_over(struct sluice_op *op)
{
	struct sl_staged *staged = op->staged;

	if (!sl_staged_stored(op) || staged->locked.copies || staged->locked.asking ||
	    staged->locked.torn)
		return false;
	/* Host memory: its second turn may end. For the others their last pieces have said so. */
	if (staged->way == SL_WAY_DIRECT)
		sl_ring_stop(&staged->ring, 0);
	return !op->on_stream || sl_ring_rests(&staged->ring);
}

static void drained(struct sl_copy_job *drain, int error)
{
	struct sluice_op *op = SL_CONTAINER(drain, struct sl_staged, drain)->op;

	sl_mutex_lock(&op->mutex);
	op->staged->locked.torn = false;
	/* What the stream does not tell nobody can know. */
	op->staged->locked.ran_out = !error;
	sl_op_pump_locked(op);
}

/* Behind all that the stream holds; NULL: the driver takes none, or it is of another context. */
static sluice_event record(struct sl_device *device, sluice_stream stream)
{
	sluice_event event;

	if (device->ops->event_new(device, &event))
		return NULL;
	if (!device->ops->event_record(device, event, stream))
		return event;
	device->ops->event_free(device, event);
	return NULL;
}

void sl_staged_drain(struct sluice_op *op)
{
	struct sl_staged *staged = op->staged;
	struct sl_device *device = sl_staging_device(staged->staging);

	staged->drain = (struct sl_copy_job){
		.drains = true,
		.stream = staged->stream,
		.event = record(device, staged->stream),
		.done = drained,
	};
	sl_copier_submit(staged->staging, &staged->drain);
}

void sl_staged_end(struct sluice_op *op)
{
	struct sl_staged *staged = op->staged;

	if (op->on_stream) {
		sl_poller_leave(&staged->ring);
		sl_commands_give(staged->staging, staged->locked.commands);
	}
	sl_slots_got(staged->staging, atomic_load(&staged->expected), NULL, 0);
	/* Its words are behind, and the device is at none of its slots. */
	for (unsigned i = 0; i < staged->count; i++)
		if (staged->locked.ran_out && !sl_staging_lost(staged->staging))
			staged->slots[i].lost = false;
	if (staged->way == SL_WAY_DEVICE && !staged->slots[0].lost)
		sl_transfers_passed(staged);
	sl_slots_give(staged->staging, staged->ask.half, staged->slots, staged->ask.count);
}

/* Commands that the stream has passed make room for others. op->mutex is held. */
static unsigned passed_commands(struct sl_staged *staged)
{
	uint64_t passed = sl_ring_passed(&staged->ring);
	unsigned commands = 0;
	struct sl_chunk chunk;

	while (staged->way == SL_WAY_STREAM && staged->passed_number < passed &&
	       sl_chunk_next(&staged->passed, &chunk)) {
		staged->passed_number++;
		commands += chunk.segments + 2;
	}
	commands = SL_MIN(commands, staged->locked.commands);
	staged->locked.commands -= commands;
	return commands;
}

static void lose(struct sluice_op *op)
{
	struct sl_staged *staged = op->staged;
	char *message = strdup("the device is lost");

	sl_op_fail(op, -EIO, message);
	sl_mutex_lock(&op->mutex);
	if (!op->locked.over)
		for (unsigned i = 0; i < staged->count; i++)
			staged->slots[i].lost = true;
	sl_mutex_unlock(&op->mutex);
}

/* The doorbell's. */
static void ring_moved(struct sl_ring *ring)
{
	struct sl_staged *staged = SL_CONTAINER(ring, struct sl_staged, ring);
	struct sluice_op *op = staged->op;
	unsigned commands = 0;

	if (sl_staging_lost(staged->staging))
		lose(op);
	sl_mutex_lock(&op->mutex);
	if (!op->locked.over)
		commands = passed_commands(staged);
	sl_mutex_unlock(&op->mutex);
	sl_commands_give(staged->staging, commands);
	sl_mutex_lock(&op->mutex);
	sl_op_pump_locked(op);
}
