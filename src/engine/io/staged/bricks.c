/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bricks
 *
 * Cuts a box of an array with tiles to decode into bricks, which are boxes of whole tiles, so a
 * tile is decoded for a single brick. A chunk of the operation is bytes of a brick, packed in the
 * slot; the rows are spans, which are copied to their places in the caller's memory.
 * Only arithmetic; any thread.
 */
#include "io/staged/staged.h"

#define BRICK_BYTES ((uint64_t)8 << 20)
#define BRICK_MOST  ((uint64_t)32 << 20) /* where rows would be many */
#define LEAST_SLOT  ((uint64_t)4096)
#define TILES_EACH  4 /* for a worker, in slots */

/* A brick, and its run: bytes side by side in the memory of the box. */
struct brick {
	struct sl_box box;
	uint64_t bytes, run;
	unsigned dimension; /* the run's slowest */
};

static uint64_t brick_length(const struct sl_bricks *bricks, unsigned i)
{
	return SL_MIN(bricks->unit[i], bricks->box->count[i]);
}

/* Returns the bytes in the run of a brick with these counts, and the slowest dimension there. */
static uint64_t brick_run(const struct sl_bricks *bricks, const uint64_t *count,
                          unsigned *dimension)
{
	unsigned i = bricks->box->rank - 1;
	uint64_t run = bricks->element * count[i];

	for (; i && count[i] == bricks->box->count[i]; i--)
		run *= count[i - 1];
	*dimension = i;
	return run;
}

/* Writes a brick. Returns false: there are fewer. */
static bool brick_find(const struct sl_bricks *bricks, uint64_t number, struct brick *out)
{
	const struct sl_box *all = bricks->box;

	out->box.rank = all->rank;
	out->bytes = bricks->element;
	for (unsigned i = all->rank; i--;) {
		uint64_t unit = bricks->unit[i], first = all->start[i] / unit;
		uint64_t end = all->start[i] + all->count[i];
		uint64_t count = (end - 1) / unit - first + 1, at = first + number % count;

		number /= count;
		out->box.start[i] = SL_MAX(all->start[i], at * unit);
		out->box.count[i] = SL_MIN(end - at * unit, unit) - (out->box.start[i] - at * unit);
		out->bytes *= out->box.count[i];
	}
	out->run = brick_run(bricks, out->box.count, &out->dimension);
	return !number;
}

/* Returns the place of a brick's byte in the memory of the box. */
static uint64_t brick_place(const struct sl_bricks *bricks, const struct brick *brick, uint64_t at)
{
	uint64_t row = at / brick->run, place = at % brick->run, stride = bricks->element;

	for (unsigned i = bricks->box->rank; i--; stride *= bricks->box->count[i]) {
		uint64_t index = brick->box.start[i] - bricks->box->start[i];

		if (i < brick->dimension) {
			index += row % brick->box.count[i];
			row /= brick->box.count[i];
		}
		place += index * stride;
	}
	return place;
}

bool sl_brick_chunk(const struct sl_bricks *bricks, size_t slot, size_t *number, uint64_t *position,
                    struct sl_chunk *out)
{
	struct brick brick;
	uint64_t rest, rows = 1;

	if (!brick_find(bricks, *number, &brick))
		return false;
	*out = (struct sl_chunk){.extent = *number, .position = *position};
	rest = brick.run - *position % brick.run;
	if (rest == brick.run && rest <= slot) {
		rows = SL_MIN(slot / brick.run, (brick.bytes - *position) / brick.run);
		rows = SL_MIN(rows, SL_SPANS_MOST);
	}
	out->spans = (unsigned)rows;
	out->length = SL_MIN(rows * rest, slot);
	*position += out->length;
	if (*position == brick.bytes) {
		++*number;
		*position = 0;
	}
	return true;
}

bool sl_brick_span(const struct sl_bricks *bricks, char *memory, struct sl_chunk *chunk,
                   struct sl_span *out)
{
	struct brick brick;

	if (!chunk->spans)
		return false;
	brick_find(bricks, chunk->extent, &brick);
	out->memory = memory + brick_place(bricks, &brick, chunk->position);
	out->at = chunk->at;
	out->offset = chunk->position;
	out->length = SL_MIN(chunk->length, brick.run);
	out->gap = 0;
	chunk->spans--;
	chunk->at += out->length;
	chunk->position += out->length;
	chunk->length -= out->length;
	return true;
}

void sl_brick_box(const struct sl_bricks *bricks, const struct sl_chunk *chunk, struct sl_box *out)
{
	struct brick brick;

	brick_find(bricks, chunk->extent, &brick);
	*out = brick.box;
}

/* Makes bricks from a tile, and longer up to `most` bytes, the fastest dimension first: rows become
 * long. Returns the bytes in a brick, and in the run. */
static uint64_t bricks_shape(struct sl_bricks *bricks, uint64_t most, uint64_t *run)
{
	const struct sl_box *box = bricks->box;
	uint64_t bytes = bricks->element, count[SL_BOX_RANK];
	bool grows = true;
	unsigned dimension;

	for (unsigned i = 0; i < box->rank; i++) {
		bricks->unit[i] = bricks->tile[i];
		bytes *= brick_length(bricks, i);
	}
	for (unsigned i = box->rank; grows && i--;) {
		uint64_t rest = bytes / brick_length(bricks, i);

		grows = rest * box->count[i] <= most;
		if (grows)
			bricks->unit[i] = INT64_MAX;
		else
			bricks->unit[i] *= SL_MAX(most / bytes, 1);
		bytes = rest * brick_length(bricks, i);
	}
	for (unsigned i = 0; i < box->rank; i++)
		count[i] = brick_length(bricks, i);
	*run = brick_run(bricks, count, &dimension);
	return bytes;
}

size_t sl_slot_power_of_two(uint64_t n)
{
	size_t power = LEAST_SLOT;

	while (power < n)
		power *= 2;
	return power;
}

size_t sl_bricks_plan(struct sl_bricks *bricks, uint64_t all, const struct sl_settings *settings,
                      size_t half, unsigned most_chunks, unsigned *slots)
{
	uint64_t most = settings->slot_bytes ? settings->slot_bytes : BRICK_BYTES, run, bytes;
	uint64_t tile = bricks->element, wanted, slot = settings->slot_bytes;

	while (most > LEAST_SLOT && 4 * most > half)
		most /= 2;
	bytes = bricks_shape(bricks, most, &run);
	while (8 * most <= half && 2 * most <= BRICK_MOST &&
	       (bytes / run > SL_SPANS_MOST || all / most > most_chunks)) {
		most *= 2;
		bytes = bricks_shape(bricks, most, &run);
	}
	if (!slot)
		slot = sl_slot_power_of_two(SL_MIN(SL_MIN(bytes, run * SL_SPANS_MOST), most));
	/* Tiles for the workers, and for them while slots are emptied and chunks are found. */
	for (unsigned i = 0; i < bricks->box->rank; i++)
		tile *= SL_MIN(bricks->tile[i], bricks->box->count[i]);
	wanted = TILES_EACH * settings->workers * SL_MIN(tile, half);
	if (settings->slots)
		*slots = (unsigned)settings->slots;
	else
		*slots = (unsigned)SL_MAX(SL_MIN(wanted + slot - 1, half / 4 * 3) / slot, *slots);
	return slot;
}
