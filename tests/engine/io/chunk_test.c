/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>

#include "io/staged/staged.h"
#include "lib/unit.h"

#define ROUNDS  5000
#define EXTENTS 40
#define PART    ((size_t)8 << 20)

struct shape {
	struct sluice_extent extents[EXTENTS];
	struct sl_limits limits;
	struct sl_settings settings;
	struct sl_chunks chunks;
	unsigned slots;
};

/* Many small extents, or a few large ones, or both, some of which follow each other; addresses are only
 * counted with. */
static void make_shape(struct shape *s, uint64_t *seed)
{
	uint64_t most = unit_random(seed) % 2 ? 5000 : 900000, end = 0;
	size_t count = unit_random(seed) % EXTENTS;
	unsigned follow = (unsigned)(unit_random(seed) % 3);

	*s = (struct shape){0};
	for (size_t i = 0; i < count; i++) {
		uint64_t length = unit_random(seed) % 8 ? unit_random(seed) % most : 0;
		struct sluice_extent *e = &s->extents[i];

		e->data = (char *)((uintptr_t)(i + 1) << 40);
		e->length = unit_random(seed) % 6 ? length : length / 4096 * 4096;
		e->offset = unit_random(seed) % 3 ? unit_random(seed) % 3000000
		                                  : unit_random(seed) % 700 * 4096;
		if (unit_random(seed) % 3 < follow)
			e->offset = end + (unit_random(seed) % 2 ? unit_random(seed) % 6000 : 0);
		end = e->offset + e->length;
	}
	s->settings.direct_bytes = unit_random(seed) % 2 ? 256 << 10 : 64 << 10;
	s->limits.piece_bytes = 4096 << unit_random(seed) % 5;
	if (unit_random(seed) % 3 == 0)
		s->settings.slot_bytes = s->limits.piece_bytes * (1 + unit_random(seed) % 9);
	if (unit_random(seed) % 3 == 0)
		s->settings.slots = 1 + unit_random(seed) % 6;
	s->limits.least_piece = s->limits.piece_bytes;
	s->limits.remote = unit_random(seed) % 3 == 0;
	s->chunks = (struct sl_chunks){
		.extents = s->extents,
		.count = count,
		.direct_bytes = s->settings.direct_bytes,
		.gap = unit_random(seed) % 3 * 4000,
		.dropped = 1 + unit_random(seed) % 7,
		.file_size =
			unit_random(seed) % 4 ? (uint64_t)INT64_MAX : unit_random(seed) % 3000000,
		.write = unit_random(seed) % 4 == 0,
		.apart = unit_random(seed) % 5 == 0,
	};
}

/* The bytes of an extent that are in the file. */
static uint64_t there(const struct shape *s, size_t i)
{
	const struct sluice_extent *e = &s->extents[i];

	if (e->offset >= s->chunks.file_size)
		return 0;
	return SL_MIN(e->length, s->chunks.file_size - e->offset);
}

/* The ranges of a chunk hold its spans, as they lie in the file, and gaps that are shorter than those. */
static void check_ranges(const struct shape *s, struct sl_chunk chunk)
{
	struct sl_chunk spans = chunk;
	struct sl_span range;
	struct sl_span span;
	size_t end = 0, extent;

	while (sl_slot_range_next(&s->chunks, &chunk, &range)) {
		uint64_t within = 0, between = 0;

		assert_true(range.length > 0);
		assert_true(range.at >= end); /* not over the one before */
		end = range.at + range.length;
		assert_true(end <= s->chunks.slot_bytes);
		/* What is aligned in the file is aligned in the slot. */
		if (chunk.large)
			assert_int_equal(range.at % 4096, range.offset % 4096);
		while (within < range.length) {
			extent = spans.extent;
			assert_true(sl_span_next(&s->chunks, &spans, &span));
			if (s->chunks.write)
				assert_int_equal(chunk.large, s->extents[extent].length >=
				                                      s->chunks.direct_bytes);
			assert_true(span.gap <= (within ? s->chunks.gap : 0));
			within += span.gap;
			between += span.gap;
			assert_int_equal(span.at, range.at + within);
			assert_int_equal(span.offset, range.offset + within);
			within += span.length;
		}
		assert_int_equal(within, range.length);
		assert_int_equal(between, range.gap);
	}
	assert_false(sl_span_next(&s->chunks, &spans, &span));
}

/* Follows the chunks, and finds all bytes of the extents, in order and once. */
static unsigned check_chunks(struct shape *s)
{
	struct sl_chunks walk = s->chunks;
	struct sl_chunk chunk;
	struct sl_span span;
	size_t extent = 0;
	uint64_t position = 0;
	unsigned number = 0;

	for (; sl_chunk_next(&walk, &chunk); number++) {
		unsigned spans = chunk.spans, seen = 0;

		assert_in_range(spans, 1, s->chunks.apart ? 1 : SL_SPANS_MOST);
		check_ranges(s, chunk);
		while (sl_span_next(&s->chunks, &chunk, &span)) {
			assert_true(span.length > 0);
			while (position == there(s, extent)) {
				extent++;
				position = 0;
			}
			assert_ptr_equal(span.memory, (char *)s->extents[extent].data + position);
			assert_int_equal(span.offset, s->extents[extent].offset + position);
			position += span.length;
			assert_true(position <= there(s, extent));
			seen++;
		}
		assert_int_equal(seen, spans);
	}
	while (extent < s->chunks.count && position == there(s, extent)) {
		extent++;
		position = 0;
	}
	assert_int_equal(extent, s->chunks.count);
	return number;
}

TEST(chunks_hold_every_byte_of_the_file_once_and_in_order)
{
	uint64_t seed = unit_seed();

	for (unsigned round = 0; round < ROUNDS; round++) {
		struct shape s;
		unsigned number;

		make_shape(&s, &seed);
		assert_int_equal(sl_chunks_plan(&s.chunks, &s.limits, &s.settings, PART, &s.slots),
		                 0);
		number = check_chunks(&s);
		/* Never more slots than there can be chunks, and all of them fit. */
		assert_true(s.slots >= 1);
		if (s.chunks.file_size == (uint64_t)INT64_MAX)
			assert_true(s.slots <= SL_MAX(number, 1));
		assert_true(s.slots * s.chunks.slot_bytes <= PART);
	}
}

TEST(a_whole_extent_is_one_chunk_or_is_refused)
{
	struct sluice_extent extent = {(void *)4096, 5000000, 7};
	struct sl_chunks chunks = {.extents = &extent,
	                           .count = 1,
	                           .direct_bytes = 4096,
	                           .file_size = INT64_MAX,
	                           .apart = true,
	                           .whole = true};
	struct sl_limits limits = {.piece_bytes = 4096, .sequential = true, .whole = true};
	struct sl_settings settings = {.direct_bytes = 4096};
	struct sl_span range;
	struct sl_chunk chunk;
	unsigned slots;

	assert_int_equal(sl_chunks_plan(&chunks, &limits, &settings, PART, &slots), 0);
	assert_int_equal(slots, 1);
	assert_true(sl_chunk_next(&chunks, &chunk));
	assert_true(sl_span_next(&chunks, &chunk, &range));
	assert_int_equal(range.length, 5000000);
	assert_false(sl_chunk_next(&chunks, &chunk));
	chunks.extent = 0;
	chunks.position = 0;
	assert_int_equal(sl_chunks_plan(&chunks, &limits, &settings, PART / 2, &slots), -ENOTSUP);
}

TEST(a_few_gib_are_few_chunks_in_stream_order)
{
	struct sluice_extent extent = {(void *)4096, (size_t)4 << 30, 0};
	struct sl_chunks chunks = {.extents = &extent,
	                           .count = 1,
	                           .direct_bytes = 1 << 18,
	                           .file_size = INT64_MAX,
	                           .on_stream = true};
	struct sl_limits limits = {.piece_bytes = 1 << 20};
	struct sl_settings settings = {.direct_bytes = 1 << 18};
	struct sl_chunk chunk;
	unsigned slots, number = 0;

	assert_int_equal(sl_chunks_plan(&chunks, &limits, &settings, (size_t)128 << 20, &slots), 0);
	while (sl_chunk_next(&chunks, &chunk))
		number++;
	/* Three commands for each: all of them fit into the device's queue at once. */
	assert_in_range(number, 1, SL_COMMANDS_MOST / 3);
	assert_in_range(slots, 2, 4);
	/* They stay in the caches as long as the queue has room. */
	assert_int_equal(chunks.slot_bytes, 16 << 20);
	chunks.extent = chunks.position = 0;
	extent.length++;
	assert_int_equal(sl_chunks_plan(&chunks, &limits, &settings, (size_t)128 << 20, &slots), 0);
	for (number = 0; sl_chunk_next(&chunks, &chunk); number++)
		;
	assert_in_range(number, 1, SL_COMMANDS_MOST / 3);
	extent.length <<= 1;
	assert_int_equal(sl_chunks_plan(&chunks, &limits, &settings, (size_t)128 << 20, &slots), 0);
	assert_int_equal(chunks.slot_bytes, 32 << 20);
}

/* Whatever the length, and that of pieces: a disk writes to little memory, copies are few, and a
 * stream has all commands at once. */
TEST(a_long_read_from_storage_has_a_short_ring)
{
	struct sluice_extent extent = {(void *)4096, 0, 4096};
	struct sl_limits limits = {0};
	struct sl_settings settings = {.direct_bytes = 1 << 18};
	struct sl_chunk chunk;
	unsigned slots, number;

	for (unsigned i = 0; i < 4 * 5; i++) {
		struct sl_chunks chunks = {.extents = &extent,
		                           .count = 1,
		                           .direct_bytes = 1 << 18,
		                           .file_size = INT64_MAX,
		                           .cold = true,
		                           .on_stream = i % 2};

		limits.piece_bytes = i % 4 < 2 ? 1 << 20 : 64 << 10;
		extent.length = (uint64_t)64 << 20 << i / 4;
		assert_int_equal(
			sl_chunks_plan(&chunks, &limits, &settings, (size_t)128 << 20, &slots), 0);
		assert_in_range(slots, 2, 8);
		assert_in_range(slots * chunks.slot_bytes, 4 << 20, 8 << 20);
		for (number = 0; sl_chunk_next(&chunks, &chunk); number++)
			;
		assert_true(!chunks.on_stream || number <= SL_COMMANDS_MOST / 3);
	}
}

enum { TENSORS = 20000 };

TEST(extents_that_follow_each_other_are_read_in_large_pieces)
{
	struct sluice_extent *extents = calloc(TENSORS, sizeof(*extents));
	struct sl_chunks chunks = {.extents = extents,
	                           .count = TENSORS,
	                           .direct_bytes = 1 << 18,
	                           .file_size = INT64_MAX,
	                           .gap = 16 << 10,
	                           .dropped = 1};
	struct sl_limits limits = {.piece_bytes = 1 << 20};
	struct sl_settings settings = {.direct_bytes = 1 << 18};
	uint64_t seed = unit_seed(), end = 0;
	unsigned slots, number = 0, ranges = 0;
	struct sl_span range;
	struct sl_chunk chunk;

	assert_non_null(extents);
	for (size_t i = 0; i < TENSORS; i++) {
		extents[i].data = (char *)(1 + unit_random(&seed) % 1000000);
		extents[i].length = (size_t)256 << unit_random(&seed) % 12;
		extents[i].offset = end;
		end += extents[i].length + unit_random(&seed) % 2 * 64;
	}
	assert_int_equal(sl_chunks_plan(&chunks, &limits, &settings, (size_t)64 << 20, &slots), 0);
	for (; sl_chunk_next(&chunks, &chunk); number++)
		while (sl_slot_range_next(&chunks, &chunk, &range))
			ranges++;
	assert_true(chunks.slot_bytes >= (size_t)4 << 20);
	assert_true(number < 4 * end / chunks.slot_bytes);
	assert_int_equal(ranges, number);
	free(extents);
}

TEST(a_long_awaited_read_from_a_server_has_many_slots_in_as_much_memory)
{
	struct sluice_extent extent = {(void *)4096, (size_t)1 << 30, 0};
	struct sl_limits limits = {.piece_bytes = 1 << 20, .remote = true};
	struct sl_settings settings = {.direct_bytes = 1 << 18};
	size_t half = (size_t)128 << 20, memory[2];
	unsigned slots[2];

	for (unsigned i = 0; i < 2; i++) {
		struct sl_chunks chunks = {.extents = &extent,
		                           .count = 1,
		                           .direct_bytes = 1 << 18,
		                           .file_size = INT64_MAX,
		                           .on_stream = i == 1};

		assert_int_equal(sl_chunks_plan(&chunks, &limits, &settings, half, &slots[i]), 0);
		memory[i] = slots[i] * chunks.slot_bytes;
	}
	assert_int_equal(slots[0], 64);
	assert_int_equal(slots[1], 8);
	assert_int_equal(memory[0], (size_t)64 << 20);
	assert_true(memory[1] >= memory[0]);
}

TEST(awaited_writes_of_eight_local_files_have_slots_at_once)
{
	struct sluice_extent extent = {(void *)4096, (size_t)2 << 30, 0};
	struct sl_limits limits = {.piece_bytes = 1 << 20};
	struct sl_settings settings = {.direct_bytes = 1 << 18};
	size_t half = (size_t)128 << 20;
	unsigned slots;

	for (unsigned write = 0; write < 2; write++) {
		struct sl_chunks chunks = {.extents = &extent,
		                           .count = 1,
		                           .direct_bytes = 1 << 18,
		                           .file_size = INT64_MAX,
		                           .write = write};

		assert_int_equal(sl_chunks_plan(&chunks, &limits, &settings, half, &slots), 0);
		assert_int_equal(half / (slots * chunks.slot_bytes), write ? 8 : 4);
	}
}

int main(void)
{
	return RUN_TESTS(NULL, NULL);
}
