/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Staged operations
 *
 * Operations that do not move bytes straight between storage and host memory. Chunks of them pass
 * through slots; a route (staged.h) says how a slot is filled and emptied. This file has the common
 * part of the routes: when a chunk may be opened, which pieces it has, and when the operation is
 * over. The threads that run pieces, the copier, the poller and the submitting call come here; none
 * waits. stream_order.c has the submission in stream order.
 *
 * The operation:
 *
 *   new       --[route->start]----------------------> started
 *   new       --[copier_start: too few slots]-------> waiting
 *   waiting   --[copier_granted, copier_cancel]-----> started
 *   started   --[route->next: no further chunk]-----> exhausted
 *   started   --[sl_staged_filled, transfers_start]-> exhausted  it has no pieces
 *   any       --[sl_op_fail: sl_staged_stop_locked]-> stopped    nothing holds the stream up
 *   any       --[stream_fail]-----------------------> draining   the device refused a last word
 *   draining  --[stream_drained]--------------------> drained    its stream has run out
 *   exhausted, stopped --[sl_staged_stored_locked]--> stored     no piece is in flight
 *   stored    --[sl_staged_over_locked]-------------> over       nor any copy or command
 *   over      --[sl_staged_end]---------------------> ended      slots and commands are given back
 *
 * A slot of sl_route_copier, of a read and of a write:
 *
 *   free      --[slot_use_open]---------------------> filling    storage moves its pieces
 *   filling   --[copier_chunk_done]-----------------> copying
 *   copying   --[copier_job_done]-------------------> free
 *
 *   free      --[copier_fill_locked]----------------> copying
 *   copying   --[copier_job_done]-------------------> full
 *   full      --[slot_use_open]---------------------> storing    storage moves its pieces
 *   storing   --[copier_chunk_done]-----------------> free
 *
 * A slot of sl_route_stream, of a read and of a write; n is the number of the slot's use
 * (staging.h):
 *
 *   free      --[slot_use_open]---------------------> filling
 *   filling   --[stream_chunk_done]-----------------> full       the processor's word is n
 *   full      --[the stream copies]-----------------> free       the device's word is n
 *
 *   free      --[the stream copies]-----------------> full       the device's word is n
 *   full      --[slot_use_open]---------------------> storing
 *   storing   --[stream_chunk_done]-----------------> free       the processor's word is n
 */
#include <errno.h>
#include <stdlib.h>

#include "io/staged/staged.h"

/* Copying so many bytes from the page cache costs as much as one more piece. */
#define LOCAL_GAP (16 << 10)
/* Reads from a disk are so many times longer than asked for, less one: columns of an eighth. */
#define LOCAL_DROPPED 7
/* So long a read has a short ring if storage has its bytes. If that gives more bytes in a
 * nanosecond, it would give more to a longer ring, which the next reads have. */
#define COLD_READ  ((uint64_t)64 << 20)
#define QUICK_DISK ((uint64_t)5)

/* --------------------------------------------------------------------------------- new, free */

static struct sl_staged *staged_allocate(unsigned slots, bool on_stream)
{
	struct sl_staged *staged;
	size_t costs = on_stream ? SL_COSTS_MOST * sizeof(*staged->costs) : 0;

	staged = calloc(1, sizeof(*staged) + costs +
	                           slots * (sizeof(staged->uses[0]) + sizeof(staged->slots[0])));
	if (!staged)
		return NULL;
	staged->slots = (struct sl_slot *)&staged->uses[slots];
	staged->costs = (uint16_t *)&staged->slots[slots];
	staged->count = slots;
	for (unsigned i = 0; i < slots; i++) {
		staged->uses[i].staged = staged;
		staged->uses[i].index = i;
	}
	return staged;
}

/* Returns the longest gap between extents that is read with them. */
static uint64_t staged_gap(const struct sluice_op *op)
{
	struct sl_backend *backend = op->file->backend;

	if (op->kind != SL_READ)
		return 0;
	return backend->ops->cut ? backend->ops->cut(backend, 0, 0, 0).gap : LOCAL_GAP;
}

static struct sl_bricks *staged_bricks(const struct sluice_op *op)
{
	struct sl_bricks *bricks = calloc(1, sizeof(*bricks));

	if (bricks) {
		bricks->box = op->box;
		bricks->tile = op->file->limits.tile;
		bricks->element = bricks->tile[op->box->rank];
	}
	return bricks;
}

static bool staged_is_single(const struct sl_chunks *chunks)
{
	struct sl_chunks walk = *chunks;
	struct sl_chunk chunk;

	return sl_chunk_next(&walk, &chunk) && !sl_chunk_next(&walk, &chunk);
}

static uint64_t staged_bytes(const struct sluice_op *op)
{
	uint64_t bytes = 0;

	for (size_t i = 0; i < op->count; i++)
		bytes += op->extents[i].length;
	return bytes;
}

/* Returns the storage that alone has the bytes of a long read, as far as a few looks tell, or 0. */
static uint64_t staged_storage(const struct sluice_op *op, uint64_t bytes)
{
	struct sl_backend *backend = op->file->backend;
	const struct sluice_extent *first = op->extents, *last;

	if (op->kind != SL_READ || !backend->ops->cold || op->box || bytes < COLD_READ)
		return 0;
	last = &first[op->count - 1];
	return last->offset < first->offset
	               ? 0
	               : backend->ops->cold(backend, first->offset,
	                                    last->offset + last->length - first->offset);
}

int sl_staged_new(struct sluice_op *op, struct sl_staging *staging, const struct sl_route *route,
                  sluice_stream stream)
{
	const struct sl_settings *settings = &op->ctx->core.settings;
	uint64_t bytes = staged_bytes(op);
	/* Servers are slower than the memory that readers share. */
	bool seated = route->has_memory && op->kind == SL_READ && !op->file->limits.remote &&
	              sl_slots_sit(staging, bytes);
	enum sl_half half = route->on_stream ? SL_HALF_STREAM : SL_HALF_HOST;
	struct sl_chunks chunks = {
		.extents = op->extents,
		.count = op->count,
		.direct_bytes = settings->direct_bytes,
		.file_size = INT64_MAX,
		.gap = staged_gap(op),
		.dropped = op->file->backend->ops->cut ? 1 : LOCAL_DROPPED,
		.write = op->kind == SL_WRITE,
		/* A short read of a file of unknown length is then the end of its chunk. */
		.apart = op->file->limits.sequential,
		.whole = op->file->limits.whole,
		.cold = route->has_memory ? staged_storage(op, bytes) : 0,
		.on_stream = route->on_stream,
	};
	struct sl_staged *staged;
	unsigned slots = 1;
	int64_t size = -1;
	int rc = 0;

	/* A file that is read in one piece needs no more memory than it has bytes. */
	if (chunks.whole)
		size = op->file->backend->ops->size(op->file->backend);
	if (size >= 0)
		chunks.file_size = (uint64_t)size;

	/* Chunks of a box would cut tiles that are decoded. */
	if (route->has_memory && op->box && op->file->limits.tile && op->extents[0].length) {
		chunks.bricks = staged_bricks(op);
		rc = chunks.bricks ? 0 : sl_fail(-ENOMEM, "no memory");
	}
	if (!rc && route->has_memory)
		rc = sl_chunks_plan(&chunks, &op->file->limits, settings,
		                    sl_staging_largest(staging, half), &slots);
	/* An operation that waits for a server has more of them in flight. */
	if (!rc && (route->has_memory || route->on_stream))
		rc = sl_staging_pin(staging, half,
		                    op->file->limits.remote ? UINT64_MAX
		                                            : (uint64_t)slots * chunks.slot_bytes);
	staged = rc ? NULL : staged_allocate(slots, route->on_stream);
	if (!staged) {
		if (seated)
			sl_slots_rise(staging);
		free(chunks.bricks);
		return rc ? rc : sl_fail(-ENOMEM, "no memory");
	}
	staged->op = op;
	sl_list_init(&staged->locked.fan_spare);
	staged->route = route;
	staged->staging = staging;
	staged->seated = seated;
	staged->stream = stream;
	staged->shape = chunks;
	staged->waiter = (struct sl_slot_waiter){
		.half = half,
		.words = route->on_stream,
		.count = slots,
		.length = route->has_memory ? chunks.slot_bytes : 0,
		.slots = staged->slots,
	};
	staged->ring = (struct sl_ring){
		.staging = staging,
		.write = route->awaits ||
	                 (route->on_stream && route->has_memory && op->kind == SL_WRITE),
		.single = route->on_stream && route->has_memory && staged_is_single(&chunks),
		.count = slots,
		.slots = staged->slots,
		.moved = sl_stream_moved,
		.hold = sl_stream_hold,
		.release = sl_stream_release,
	};
	staged->locked.chunks = staged->given = chunks;
	op->staged = staged;
	op->on_stream = route->on_stream;
	op->order.blocks_streams = !route->on_stream || route->stream_stores;
	/* The number of a default stream is not of one stream: it orders nothing. */
	op->order.stream =
		route->stream_stores && (uintptr_t)stream > SL_COMMON_STREAMS ? stream : NULL;
	return route->make ? route->make(staged) : 0;
}

static void staged_rise(struct sl_staged *staged)
{
	if (staged->seated)
		sl_slots_rise(staged->staging);
	staged->seated = false;
}

void sl_staged_free(struct sl_staged *staged)
{
	if (!staged)
		return;
	staged_rise(staged);
	/* Memory that a lost device may still write is not freed. */
	if (!staged->slots[0].lost)
		free(staged->transfers);
	free(staged->fan_chunks);
	free(staged->shape.bricks);
	free(staged);
}

/* ------------------------------------------------------------------------------------- start */

void sl_staged_start(struct sluice_op *op)
{
	struct sl_staged *staged = op->staged;

	staged->began = staged->shape.cold ? sl_now() : 0;
	if (op->kind == SL_READ && staged->route->has_memory) {
		atomic_store_explicit(&staged->expected, op->bytes, memory_order_relaxed);
		sl_slots_expect(staged->staging, op->bytes);
	}
	staged->route->start(op);
}

void sl_staged_got(struct sluice_op *op, const struct sl_piece *piece)
{
	struct sl_staged *staged = op->staged;

	if (!staged->route->has_memory)
		return;
	atomic_fetch_sub_explicit(&staged->expected, piece->length, memory_order_relaxed);
	if (staged->seated)
		sl_seats_look();
	/* Bytes that went around the page cache are in no core's cache. For few bytes, which a
	 * thread awaits, driving them out takes longer than it saves. */
	sl_slots_got(staged->staging, piece->length, piece->data,
	             piece->direct || op->patient ? 0 : piece->moved);
}

void sl_staged_begin_locked(struct sluice_op *op)
{
	struct sl_staged *staged = op->staged;

	staged->shape.file_size = op->locked.plan.file_size;
	staged->locked.chunks.file_size = op->locked.plan.file_size;
	staged->locked.started = true;
}

/* Returns the functions of a backend that wants to know of the operation; NULL: it does not. */
static const struct sl_slot_writes *staged_slot_writes(const struct sluice_op *op)
{
	return op->kind == SL_WRITE ? op->file->backend->ops->slot_writes : NULL;
}

int sl_staged_admit(struct sluice_op *op)
{
	const struct sl_slot_writes *told = staged_slot_writes(op);
	const char *why;
	int rc = told ? told->admits(op->file->backend, op->extents, op->count, &why) : 0;

	return rc ? sl_fail(rc, "%s", why) : 0;
}

void sl_staged_announce(struct sluice_op *op)
{
	const struct sl_slot_writes *told = staged_slot_writes(op);
	struct sl_coming *coming = &op->staged->coming;

	if (!told)
		return;
	coming->extents = op->extents;
	coming->count = op->count;
	told->announce(op->file->backend, coming);
}

/* The operation has no piece in flight, and its result is fixed. */
void sl_staged_settle(struct sluice_op *op)
{
	const struct sl_slot_writes *told = staged_slot_writes(op);

	if (told)
		told->settle(op->file->backend, &op->staged->coming, (int)SL_MIN(op->result, 0));
}

char *sl_staged_memory(struct sluice_op *op)
{
	struct sl_staged *staged = op->staged;
	struct sl_chunks walk = staged->shape;
	struct sl_chunk chunk;
	char *memory;

	if (!staged->route->memory || !sl_chunk_next(&walk, &chunk) ||
	    chunk.length < op->extents[0].length)
		return NULL;
	memory = staged->route->memory(op);
	return memory ? memory + chunk.at : NULL;
}

void sl_staged_filled(struct sluice_op *op, const char *memory, uint64_t moved)
{
	struct sl_staged *staged = op->staged;

	sl_slots_expect(staged->staging, moved);
	sl_slots_got(staged->staging, moved, memory, op->patient ? 0 : moved);
	sl_mutex_lock(&op->mutex);
	op->locked.moved = moved;
	staged->locked.started = true;
	staged->locked.exhausted = true;
	if (!op->locked.stopped)
		staged->route->filled(op);
}

/* ------------------------------------------------------------------------------------- chunks */

/* Storage has done its part of the chunk. */
static void slot_use_done_locked(struct sluice_op *op, struct sl_slot_use *use)
	SL_REQUIRES(&op->mutex)
{
	if (!op->locked.stopped)
		op->staged->route->chunk_done(op, use);
}

/* All pieces of the current chunk have been handed out. */
static void slot_use_close_locked(struct sluice_op *op) SL_REQUIRES(&op->mutex)
{
	struct sl_slot_use *use = op->staged->locked.current;

	op->staged->locked.current = NULL;
	use->handed = true;
	if (!use->pieces)
		slot_use_done_locked(op, use);
}

static bool slot_use_open(struct sluice_op *op)
{
	struct sl_staged *staged = op->staged;
	struct sl_chunks *chunks = &staged->locked.chunks;
	struct sl_slot_use *use;
	struct sl_chunks look = *chunks;
	struct sl_chunk chunk;

	if (!sl_chunk_next(&look, &chunk)) {
		staged->locked.exhausted = true;
		return false;
	}
	use = staged->locked.waiting ? NULL : staged->route->slot(op, staged->locked.next);
	if (!use)
		return false;
	*chunks = look;
	use->chunk = chunk;
	use->number = staged->locked.next++;
	use->handed = use->ready = false;
	use->pieces = 0;
	use->moved = 0;
	use->walk = chunk; /* its ranges are handed out along this copy */
	if (staged->shape.bricks)
		sl_brick_box(staged->shape.bricks, &chunk, &use->box);
	staged->locked.current = use;
	return true;
}

bool sl_route_next_range(struct sluice_op *op)
{
	struct sl_staged *staged = op->staged;
	struct sl_plan *plan = &op->locked.plan;
	struct sl_span range;

	for (;;) {
		if (!staged->locked.current && !slot_use_open(op))
			return false;
		if (sl_slot_range_next(&staged->shape, &staged->locked.current->walk, &range))
			break;
		slot_use_close_locked(op);
	}
	/* Bytes of the gaps are moved, and are not of the operation. */
	op->locked.moved -= range.gap;
	sl_slots_expect(staged->staging, range.gap);
	atomic_fetch_add_explicit(&staged->expected, range.gap, memory_order_relaxed);
	staged->locked.extent = (struct sluice_extent){
		.data = staged->slots[staged->locked.current->index].data + range.at,
		.length = range.length,
		.offset = range.offset,
	};
	plan->extents = &staged->locked.extent;
	plan->count = 1;
	plan->extent = 0;
	plan->position = 0;
	plan->direct_bytes = staged->locked.current->chunk.large ? 0 : UINT64_MAX;
	return true;
}

bool sl_staged_next_locked(struct sluice_op *op)
{
	struct sl_staged *staged = op->staged;

	return staged->locked.started && !staged->locked.exhausted && staged->route->next(op);
}

void sl_staged_piece_done_locked(struct sluice_op *op, struct sl_slot_use *use, size_t moved)
{
	use->pieces--;
	use->moved += moved;
	if (use->pieces)
		return;
	if (op->locked.stopped && op->on_stream)
		sl_ring_stop(&op->staged->ring, use->index);
	else if (use->handed)
		slot_use_done_locked(op, use);
}

/* --------------------------------------------------------------------------------------- end */

void sl_staged_stop_locked(struct sluice_op *op)
{
	struct sl_staged *staged = op->staged;

	/* A slot with pieces in flight is not for the device: their end lets the stream go on. */
	for (unsigned i = 0; op->on_stream && i < staged->count; i++)
		if (!staged->uses[i].pieces)
			sl_ring_stop(&staged->ring, i);
}

bool sl_staged_stored_locked(struct sluice_op *op)
{
	struct sl_staged *staged = op->staged;

	return staged->locked.started && !staged->locked.submitting && !op->locked.in_flight &&
	       (op->locked.stopped || staged->locked.exhausted);
}

bool sl_staged_over_locked(struct sluice_op *op)
{
	struct sl_staged *staged = op->staged;

	if (!sl_staged_stored_locked(op) || staged->locked.copies || staged->locked.waiting ||
	    staged->locked.draining)
		return false;
	if (staged->route->finish)
		staged->route->finish(op);
	return !op->on_stream || sl_ring_rests(&staged->ring);
}

/* The end of a file, or an error, may have come before storage had to give many bytes. */
static void staged_judge_disk(struct sluice_op *op)
{
	uint64_t time = (uint64_t)(sl_now() - op->staged->began);

	sl_mutex_lock(&op->mutex);
	if (op->locked.moved >= SL_MAX(QUICK_DISK * time, COLD_READ))
		atomic_store(&op->ctx->core.quick, op->staged->shape.cold);
	sl_mutex_unlock(&op->mutex);
}

void sl_staged_end(struct sluice_op *op)
{
	struct sl_staged *staged = op->staged;

	if (op->on_stream) {
		sl_poller_leave(&staged->ring);
		sl_commands_give(staged->staging, staged->locked.commands);
	}
	sl_slots_got(staged->staging, atomic_load(&staged->expected), NULL, 0);
	staged_rise(staged);
	if (staged->shape.cold)
		staged_judge_disk(op);
	/* The stream has run out: its words are written, and the device uses none of the slots. */
	for (unsigned i = 0; i < staged->count; i++)
		if (staged->locked.drained && !sl_staging_lost(staged->staging))
			staged->slots[i].lost = false;
	if (staged->route->end)
		staged->route->end(op);
	sl_slots_give(staged->staging, staged->waiter.half, staged->slots, staged->waiter.count);
}
