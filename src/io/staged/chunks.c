/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Chunks
 *
 * Cuts the extents of a staged operation into chunks, each of which a slot holds. Large extents are
 * cut where the file's offsets are multiples of the slot, and lie in the slot as in the file, so
 * that bytes that are aligned in the file are aligned in memory. Small extents are packed, several
 * to a slot. Only arithmetic; any thread.
 */
#include <errno.h>
#include <inttypes.h>

#include "io/staged/staged.h"

#define RANGES_MOST  14
#define PACKED_ALIGN ((size_t)64)

/* Returns true if the extent has chunks of its own. */
static bool chunk_stands_alone(const struct sl_chunks *chunks, size_t extent)
{
	uint64_t length = chunks->extents[extent].length;

	if (chunks->whole)
		return false;
	return length >= chunks->direct_bytes || length > chunks->slot_bytes;
}

static uint64_t chunk_skip_empty(const struct sl_chunks *chunks, size_t *extent, uint64_t *position)
{
	return sl_extents_skip(chunks->extents, chunks->count, chunks->file_size, extent, position);
}

bool sl_slot_range_next(const struct sl_chunks *chunks, struct sl_chunk *chunk,
                        struct sl_slot_range *out)
{
	const struct sluice_extent *e;

	if (!chunk->ranges)
		return false;
	e = &chunks->extents[chunk->extent];
	chunk->ranges--;
	out->memory = (char *)e->data + chunk->position;
	out->offset = e->offset + chunk->position;
	out->large = e->length >= chunks->direct_bytes;
	out->at = chunk->at;
	out->length = chunk->length;
	if (chunk->ranges) {
		/* The next range of a pack. */
		chunk->at = (chunk->at + chunk->length + PACKED_ALIGN - 1) / PACKED_ALIGN *
		            PACKED_ALIGN;
		chunk->extent++;
		chunk->length = chunk_skip_empty(chunks, &chunk->extent, &chunk->position);
	}
	return true;
}

bool sl_chunk_next(struct sl_chunks *chunks, struct sl_chunk *out)
{
	uint64_t left = chunk_skip_empty(chunks, &chunks->extent, &chunks->position);
	size_t at;

	if (!left)
		return false;
	out->extent = chunks->extent;
	out->position = chunks->position;
	out->ranges = 1;
	if (chunk_stands_alone(chunks, chunks->extent)) {
		uint64_t offset = chunks->extents[chunks->extent].offset + chunks->position;

		out->at = offset % chunks->slot_bytes;
		out->length = SL_MIN(left, chunks->slot_bytes - out->at);
		chunks->position += out->length;
		return true;
	}
	out->at = 0;
	out->length = left;
	at = left;
	chunks->extent++;
	chunks->position = 0;
	while (out->ranges < RANGES_MOST &&
	       (left = chunk_skip_empty(chunks, &chunks->extent, &chunks->position))) {
		at = (at + PACKED_ALIGN - 1) / PACKED_ALIGN * PACKED_ALIGN;
		if (chunks->apart || chunk_stands_alone(chunks, chunks->extent) ||
		    at + left > chunks->slot_bytes)
			break;
		at += left;
		out->ranges++;
		chunks->extent++;
	}
	return true;
}

static size_t chunk_power_of_two(uint64_t least, uint64_t n)
{
	size_t power = least;

	while (power < n)
		power *= 2;
	return power;
}

/* The bytes of the largest extent, of all, and of all when they are packed. */
struct extent_sums {
	uint64_t largest, total, packed;
};

static struct extent_sums extents_sum(const struct sl_chunks *chunks)
{
	struct extent_sums m = {0, 0, 0};

	for (size_t i = 0; i < chunks->count; i++) {
		uint64_t length = chunks->extents[i].length;

		m.largest = SL_MAX(m.largest, length);
		m.total += length;
		m.packed += (length + PACKED_ALIGN - 1) / PACKED_ALIGN * PACKED_ALIGN;
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
/* The most chunks of an operation before slots become larger. With their commands they are half of
 * SL_COMMANDS_MOST, which is enqueued in one step. */
#define MANY_CHUNKS 128

/* Returns the length of an operation's slots when no setting gives it. */
static size_t chunks_slot_bytes(const struct sl_chunks *chunks, const struct sl_limits *limits,
                                const struct extent_sums *m, unsigned slots, size_t half)
{
	size_t slot = chunk_power_of_two(4096, limits->piece_bytes);

	if (m->largest < chunks->direct_bytes)
		return SL_MIN(chunk_power_of_two(4096, m->packed), slot);
	while (slot < LARGEST_AUTO && m->total / slot >= 2 * slots)
		slot *= 2;
	while (m->total / slot > MANY_CHUNKS && slot * 2 * slots <= half)
		slot *= 2;
	return slot;
}

int sl_chunks_plan(struct sl_chunks *chunks, const struct sl_limits *limits,
                   const struct sl_settings *settings, size_t half, unsigned *slots)
{
	struct extent_sums m = extents_sum(chunks);
	unsigned most = settings->slots  ? (unsigned)settings->slots
	                : limits->remote ? REMOTE_SLOTS
	                                 : LOCAL_SLOTS;
	size_t slot;

	if (chunks->whole) {
		m.largest = SL_MIN(m.largest, chunks->file_size);
		slot = chunk_power_of_two(4096, m.largest);
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
			slot = SL_MIN(slot, chunk_power_of_two(4096, m.packed));
	} else {
		slot = chunks_slot_bytes(chunks, limits, &m, most, half);
	}
	while (!settings->slot_bytes && slot > 4096 && slot > half)
		slot /= 2;
	chunks->slot_bytes = slot;
	most = SL_MIN(most, SL_MAX(half / chunk_power_of_two(4096, slot), 1));
	*slots = SL_MAX(chunks_count(chunks, most), 1);
	return 0;
}
