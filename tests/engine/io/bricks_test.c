/* SPDX-License-Identifier: Apache-2.0 */
/* Boxes in bricks: each element comes once to its place, and no tile is in two bricks. */
#include "io/staged/staged.h"
#include "lib/unit.h"

#define ROUNDS 3000
enum { RANK = 4, SIDE = 12, MOST = SIDE * SIDE * SIDE * SIDE, ELEMENT_MOST = 40 };

struct shape {
	struct sl_box box;
	uint64_t tile[RANK + 1], bytes;
	struct sluice_extent extent;
	struct sl_bricks bricks;
	struct sl_settings settings;
	struct sl_chunks chunks;
	unsigned slots;
};

static void make_shape(struct shape *s, uint64_t *seed)
{
	*s = (struct shape){.box.rank = 1 + (unsigned)(unit_random(seed) % RANK)};
	s->bytes = s->tile[s->box.rank] = 1 + unit_random(seed) % ELEMENT_MOST;
	for (unsigned i = 0; i < s->box.rank; i++) {
		s->tile[i] = 1 + unit_random(seed) % SIDE;
		s->box.start[i] = unit_random(seed) % 100;
		s->box.count[i] = 1 + unit_random(seed) % SIDE;
		s->bytes *= s->box.count[i];
	}
	s->extent.length = s->bytes;
	s->bricks = (struct sl_bricks){&s->box, s->tile, s->tile[s->box.rank], {0}};
	s->settings.workers = 1 + unit_random(seed) % 20;
	if (unit_random(seed) % 2)
		s->settings.slot_bytes = 1 + unit_random(seed) % 3000;
	s->chunks = (struct sl_chunks){.bricks = &s->bricks,
	                               .extents = &s->extent,
	                               .count = 1,
	                               .on_stream = unit_random(seed) % 2,
	                               .file_size = INT64_MAX};
}

/* Returns the byte of the box that is so many bytes behind the start of another box in it. */
static uint64_t place_of(const struct shape *s, const struct sl_box *brick, uint64_t at)
{
	uint64_t element = s->tile[s->box.rank], stride = element, place = at % element;

	at /= element;
	for (unsigned i = s->box.rank; i--; stride *= s->box.count[i]) {
		place += (at % brick->count[i] + brick->start[i] - s->box.start[i]) * stride;
		at /= brick->count[i];
	}
	return place;
}

/* The bytes of a chunk are one range of the packed brick, and its spans bring each to its place. */
static void check_chunk(const struct shape *s, const struct sl_chunk *chunk,
                        const struct sl_box *brick, uint64_t from, unsigned char *seen)
{
	struct sl_chunk walk = *chunk, ranges = *chunk;
	struct sl_span span, range;
	uint64_t at = 0;

	assert_in_range(chunk->spans, 1, SL_SPANS_MOST);
	assert_true(sl_slot_range_next(&s->chunks, &ranges, &range));
	assert_int_equal(range.at, 0);
	assert_int_equal(range.offset, from);
	assert_in_range(range.length, 1, s->chunks.slot_bytes);
	assert_false(sl_slot_range_next(&s->chunks, &ranges, &span));
	while (sl_span_next(&s->chunks, &walk, &span)) {
		assert_int_equal(span.at, at);
		for (uint64_t i = 0; i < span.length; i++) {
			uint64_t place = (uint64_t)(uintptr_t)span.memory + i;

			assert_int_equal(place, place_of(s, brick, from + at + i));
			assert_int_equal(seen[place]++, 0);
		}
		at += span.length;
	}
	assert_int_equal(at, range.length);
}

TEST(elements_come_once_to_their_places_and_tiles_are_whole)
{
	static unsigned char seen[MOST * ELEMENT_MOST];
	uint64_t seed = unit_seed();

	for (int round = 0; round < ROUNDS; round++) {
		struct sl_limits limits = {.piece_bytes = 4096};
		struct sl_chunk chunk;
		uint64_t left, number = UINT64_MAX, from = 0;
		struct shape s;

		make_shape(&s, &seed);
		left = s.bytes;
		memset(seen, 0, s.bytes);
		assert_int_equal(sl_chunks_plan(&s.chunks, &limits, &s.settings,
		                                (size_t)4096 << unit_random(&seed) % 12, &s.slots),
		                 0);
		while (sl_chunk_next(&s.chunks, &chunk)) {
			struct sl_box brick;

			sl_brick_box(&s.bricks, &chunk, &brick);
			from = chunk.extent == number ? from : 0;
			number = chunk.extent;
			check_chunk(&s, &chunk, &brick, from, seen);
			from += chunk.length;
			left -= chunk.length;
			for (unsigned i = 0; i < s.box.rank; i++) {
				uint64_t end = brick.start[i] + brick.count[i];

				assert_true(brick.start[i] == s.box.start[i] ||
				            brick.start[i] % s.tile[i] == 0);
				assert_true(end == s.box.start[i] + s.box.count[i] ||
				            end % s.tile[i] == 0);
			}
		}
		assert_int_equal(left, 0);
	}
}

/* Of frames in tiles of rows a brick is a frame; of tiles of many frames it is a slab, of which rows are copied. */
TEST(bricks_hold_whole_tiles_and_long_rows)
{
	static const struct {
		uint64_t tile[4], count[3];
		size_t slot;
		unsigned slots, spans;
	} ways[] = {{{1, 135, 1920, 4}, {32, 1080, 1920}, 8 << 20, 4, 1},
	            {{64, 64, 64, 4}, {64, 1024, 1024}, 16 << 20, 4, 64},
	            {{64, 64, 64, 4}, {64, 64, 64}, 1 << 20, 1, 1},
	            {{1, 1024, 1024, 4}, {50, 1024, 1024}, 8 << 20, 12, 1},
	            {{1, 2048, 2048, 4}, {50, 2048, 2048}, 8 << 20, 12, 1}};

	for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++) {
		struct sl_box box = {.rank = 3};
		struct sl_bricks bricks = {&box, ways[i].tile, 4, {0}};
		struct sluice_extent extent = {NULL, 4, 0};
		struct sl_settings settings = {.workers = 8};
		struct sl_limits limits = {.piece_bytes = 1 << 20};
		struct sl_chunks chunks = {
			.bricks = &bricks, .extents = &extent, .count = 1, .file_size = INT64_MAX};
		struct sl_chunk chunk;
		unsigned slots;

		for (int k = 0; k < 3; k++)
			extent.length *= box.count[k] = ways[i].count[k];
		assert_int_equal(
			sl_chunks_plan(&chunks, &limits, &settings, (size_t)128 << 20, &slots), 0);
		assert_true(sl_chunk_next(&chunks, &chunk));
		assert_int_equal(chunks.slot_bytes, ways[i].slot);
		assert_int_equal(chunk.spans, ways[i].spans);
		assert_int_equal(slots, ways[i].slots);
	}
}

int main(void)
{
	return RUN_TESTS(NULL, NULL);
}
