/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Chunks
 *
 * Cuts the extents of a staged operation into chunks, each of which a slot holds. Extents that are
 * near each other in the file lie in the slot as in the file, with the bytes between them: large
 * pieces bring them. Each of them is a span, which is copied to its own memory. Long
 * ranges of the file have slots of their own, in which bytes that are aligned in the file are
 * aligned in memory. Short ranges are packed, several to a slot. Only arithmetic; any thread.
 */
#include <errno.h>
#include <inttypes.h>
#include <limits.h>

#include "io/staged/staged.h"

#define PACKED_ALIGN ((size_t)64)
#define ALONE_ALIGN  ((size_t)64 << 10) /* a multiple of what direct I/O wants */

/* Returns true if extent b, which follows extent a, is near it in the file: no more bytes lie
 * between them than the gap allows, nor, over all of a range, than `dropped` times those of its
 * extents. Small extents are written through the page cache, and large ones around it. */
static bool chunk_joins(const struct sl_chunks *chunks, size_t a, size_t b)
{
	const struct sluice_extent *first = &chunks->extents[a], *second = &chunks->extents[b];
	uint64_t end = first->offset + first->length, between = second->offset - end;

	if (chunks->write &&
	    (first->length < chunks->direct_bytes) != (second->length < chunks->direct_bytes))
		return false;
	return !chunks->apart && second->offset >= end && between <= chunks->gap &&
	       between <= chunks->dropped * (first->length + second->length) / 2;
}

static uint64_t chunk_skip_empty(const struct sl_chunks *chunks, size_t *extent, uint64_t *position)
{
	return sl_extents_skip(chunks->extents, chunks->count, chunks->file_size, extent, position);
}

/* Returns the bytes of the file from this extent to the last that joins, or more than `enough`. */
static uint64_t chunk_range_bytes(const struct sl_chunks *chunks, size_t extent, uint64_t enough)
{
	uint64_t start = chunks->extents[extent].offset, position = 0;
	uint64_t end = start + chunks->extents[extent].length;

	for (size_t next = extent + 1; end - start <= enough; next++) {
		if (!chunk_skip_empty(chunks, &next, &position) ||
		    !chunk_joins(chunks, extent, next))
			break;
		end = chunks->extents[next].offset + chunks->extents[next].length;
		extent = next;
	}
	return end - start;
}

/* Returns true if the range that begins with the extent has chunks of its own. */
static bool chunk_stands_alone(const struct sl_chunks *chunks, size_t extent, bool *large)
{
	uint64_t length =
		chunk_range_bytes(chunks, extent, SL_MAX(chunks->direct_bytes, chunks->slot_bytes));

	*large = (chunks->write ? chunks->extents[extent].length : length) >= chunks->direct_bytes;
	return !chunks->whole && (*large || length > chunks->slot_bytes);
}

bool sl_span_next(const struct sl_chunks *chunks, struct sl_chunk *chunk, struct sl_span *out)
{
	const struct sluice_extent *e = chunks->extents;
	size_t last = chunk->extent;

	if (chunks->bricks)
		return sl_brick_span(chunks->bricks, e->data, chunk, out);
	if (!chunk->spans)
		return false;
	e += chunk->extent;
	chunk->spans--;
	out->memory = (char *)e->data + chunk->position;
	out->offset = e->offset + chunk->position;
	out->at = chunk->at;
	out->length = chunk->length;
	out->gap = chunk->gap;
	if (!chunk->spans)
		return true;
	chunk->at += chunk->length;
	chunk->extent++;
	chunk->position = 0;
	chunk->length = chunk_skip_empty(chunks, &chunk->extent, &chunk->position);
	chunk->joined = chunk_joins(chunks, last, chunk->extent);
	chunk->gap =
		chunk->joined ? chunks->extents[chunk->extent].offset - e->offset - e->length : 0;
	chunk->at = chunk->joined ? chunk->at + chunk->gap
	                          : (chunk->at + PACKED_ALIGN - 1) / PACKED_ALIGN * PACKED_ALIGN;
	chunk->length = SL_MIN(chunk->length, chunks->slot_bytes - chunk->at);
	return true;
}

bool sl_slot_range_next(const struct sl_chunks *chunks, struct sl_chunk *chunk, struct sl_span *out)
{
	uint64_t length = chunk->length;
	struct sl_span span;

	if (!sl_span_next(chunks, chunk, out))
		return false;
	if (chunks->bricks) {
		out->length = length;
		chunk->spans = 0;
	}
	out->gap = 0;
	while (chunk->spans && chunk->joined && sl_span_next(chunks, chunk, &span)) {
		out->length += span.gap + span.length;
		out->gap += span.gap;
	}
	return true;
}

bool sl_chunk_next(struct sl_chunks *chunks, struct sl_chunk *out)
{
	bool alone, large;
	uint64_t left;
	size_t at = 0;

	if (chunks->bricks)
		return sl_brick_chunk(chunks->bricks, chunks->slot_bytes, &chunks->extent,
		                      &chunks->position, out);
	left = chunk_skip_empty(chunks, &chunks->extent, &chunks->position);
	if (!left)
		return false;
	*out = (struct sl_chunk){.extent = chunks->extent, .position = chunks->position};
	alone = chunk_stands_alone(chunks, chunks->extent, &out->large);
	if (alone)
		at = (chunks->extents[chunks->extent].offset + chunks->position) %
		     SL_MIN(chunks->slot_bytes, ALONE_ALIGN);
	out->at = at;
	out->length = SL_MIN(left, chunks->slot_bytes - at);
	for (;;) {
		uint64_t taken = SL_MIN(left, chunks->slot_bytes - at);
		size_t last = chunks->extent;

		out->spans++;
		at += taken;
		chunks->position += taken;
		if (taken < left || chunks->apart || out->spans == SL_SPANS_MOST)
			return true;
		left = chunk_skip_empty(chunks, &chunks->extent, &chunks->position);
		if (!left)
			return true;
		if (chunk_joins(chunks, last, chunks->extent))
			at += chunks->extents[chunks->extent].offset -
			      chunks->extents[last].offset - chunks->extents[last].length;
		else if (alone || chunk_stands_alone(chunks, chunks->extent, &large))
			return true;
		else
			at = (at + PACKED_ALIGN - 1) / PACKED_ALIGN * PACKED_ALIGN;
		if (at >= chunks->slot_bytes || (!alone && at + left > chunks->slot_bytes))
			return true;
	}
}

/* Bytes in the largest range, in all, and in all when packed, and the number of extents. */
struct extent_sums {
	uint64_t largest, total, packed, count;
};

static struct extent_sums extents_sum(const struct sl_chunks *chunks)
{
	struct extent_sums m = {0, 0, 0, 0};
	uint64_t range = 0, length, position = 0;
	size_t last = 0;

	for (size_t i = 0; (length = chunk_skip_empty(chunks, &i, &position)); last = i++) {
		uint64_t between = chunks->extents[i].offset - chunks->extents[last].offset -
		                   chunks->extents[last].length;
		bool joins = m.count++ && chunk_joins(chunks, last, i);

		range = joins ? range + between + length : length;
		m.largest = SL_MAX(m.largest, range);
		m.total += joins ? between + length : length;
		m.packed += joins ? between + length : length + PACKED_ALIGN;
	}
	return m;
}

static unsigned chunks_count(const struct sl_chunks *chunks, unsigned most)
{
	struct sl_chunks walk = *chunks;
	struct sl_chunk chunk;
	unsigned count = 0;

	walk.file_size = INT64_MAX;
	while (count < most && sl_chunk_next(&walk, &chunk))
		count++;
	return count;
}

#define MIB          ((size_t)1 << 20)
#define LOCAL_SLOTS  4
#define REMOTE_SLOTS 8
#define LARGEST_AUTO (8 * MIB) /* four slots of this length stay in the last cache */
/* Of an awaited write to a local file: eight that run at once have slots. */
#define LARGEST_WRITE (4 * MIB)
/* Of a long read from storage: a virtual disk is the faster the less memory it writes to. Half of
 * the ring in flight keeps others busy, too; for quick ones see staged.c. */
#define COLD_RING (8 * MIB)
/* Of a long awaited read from a server: as much memory, and a late request holds up little. */
#define MANY_SLOTS 64
/* The most chunks of an operation in stream order before slots become larger. With their commands
 * they are half of SL_COMMANDS_MOST, which is enqueued in one step. */
#define MANY_CHUNKS 128

static unsigned chunks_slots(const struct sl_chunks *chunks, const struct sl_limits *limits,
                             const struct sl_settings *settings, const struct extent_sums *m)
{
	if (settings->slots)
		return (unsigned)settings->slots;
	if (!limits->remote)
		return LOCAL_SLOTS;
	if (chunks->on_stream || m->total / limits->piece_bytes < 2 * MANY_SLOTS)
		return REMOTE_SLOTS;
	return MANY_SLOTS;
}

/* Returns the length of an operation's slots when no setting gives it. */
static size_t chunks_slot_bytes(const struct sl_chunks *chunks, const struct sl_limits *limits,
                                const struct extent_sums *m, unsigned slots, size_t half)
{
	size_t slot = sl_slot_power_of_two(limits->piece_bytes);
	bool local = chunks->write && !chunks->on_stream && !limits->remote;
	size_t most = chunks->cold ? MIB : local ? LARGEST_WRITE : LARGEST_AUTO;

	if (m->largest < chunks->direct_bytes)
		return SL_MIN(sl_slot_power_of_two(m->packed), slot);
	if (chunks->write && limits->remote)
		slot = SL_MIN(sl_slot_power_of_two(m->packed), slot);
	if (slots == MANY_SLOTS && limits->remote)
		return slot;
	while (slot < most && m->total / slot >= 2 * slots)
		slot *= 2;
	/* Slots beyond 16 MiB outgrow the caches: until all that the queue takes is needed. */
	while (chunks->on_stream && slot * 2 * slots <= half &&
	       m->total / slot > MANY_CHUNKS * (chunks->cold || slot > LARGEST_AUTO ? 2 : 1))
		slot *= 2;
	/* Chunks of as many spans as there may be are shorter. */
	while (slot > limits->piece_bytes && slot / 2 >= SL_SPANS_MOST * (m->total / m->count))
		slot /= 2;
	return slot;
}

int sl_chunks_plan(struct sl_chunks *chunks, const struct sl_limits *limits,
                   const struct sl_settings *settings, size_t half, unsigned *slots)
{
	struct extent_sums m = extents_sum(chunks);
	unsigned most = chunks_slots(chunks, limits, settings, &m);
	size_t slot;

	if (chunks->bricks) {
		slot = sl_bricks_plan(chunks->bricks, m.total, settings, half,
		                      chunks->on_stream ? MANY_CHUNKS : UINT_MAX, &most);
	} else if (chunks->whole) {
		slot = sl_slot_power_of_two(m.largest);
		if (slot > half)
			return sl_fail(
				-ENOTSUP,
				"this file is read in one piece, and %" PRIu64 " bytes are more "
				"than a slot of SLUICE_STAGING_BYTES holds; read it into host "
				"memory",
				m.largest);
	} else if (settings->slot_bytes) {
		slot = settings->slot_bytes;
		if (m.largest < chunks->direct_bytes)
			slot = SL_MIN(slot, sl_slot_power_of_two(m.packed));
	} else {
		slot = chunks_slot_bytes(chunks, limits, &m, most, half);
		if (chunks->cold && !settings->slots)
			most = (unsigned)SL_MAX(COLD_RING / slot, 2);
	}
	while (!settings->slot_bytes && slot > 4096 && slot > half)
		slot /= 2;
	chunks->slot_bytes = slot;
	most = SL_MIN(most, SL_MAX(half / sl_slot_power_of_two(slot), 1));
	*slots = SL_MAX(chunks_count(chunks, most), 1);
	return 0;
}
