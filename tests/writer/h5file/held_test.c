/* SPDX-License-Identifier: Apache-2.0 */
#include "h5file/ordered_internal.h"

#include "lib/unit.h"

#define FILE_BYTES 2000
#define ROUNDS     20000

/* What must be held: of each byte, whether, what, and by whom. */
static struct {
	bool held[FILE_BYTES];
	uint8_t bytes[FILE_BYTES];
	int types[FILE_BYTES], ranks[FILE_BYTES];
} model;

static void check(const struct sl_held_blocks *held)
{
	uint8_t bytes[FILE_BYTES], expected[FILE_BYTES];
	struct sl_held_block **blocks, *last = NULL;
	size_t count = 0, covered = 0;

	for (int i = 0; i < FILE_BYTES; i++) {
		bytes[i] = 255;
		expected[i] = model.held[i] ? model.bytes[i] : 255;
		count += model.held[i];
	}
	sl_held_get(held, 0, FILE_BYTES, bytes);
	assert_memory_equal(bytes, expected, FILE_BYTES);
	assert_int_equal(held->bytes, count);
	assert_int_equal(sl_held_sorted(held, &blocks), 0);
	for (size_t i = 0; i < held->count; last = blocks[i++]) {
		const struct sl_interval *range = &blocks[i]->range;

		covered += range->end - range->start;
		for (uint64_t at = range->start; at < range->end; at++) {
			assert_true(model.held[at]);
			assert_int_equal(blocks[i]->type, model.types[at]);
			assert_int_equal(blocks[i]->rank, model.ranks[at]);
		}
		if (last)
			assert_true(
				last->rank < blocks[i]->rank ||
				(last->rank == blocks[i]->rank && last->range.end <= range->start));
	}
	assert_int_equal(covered, count);
	free(blocks);
}

TEST(held_block_has_the_last_bytes_put)
{
	struct sl_held_blocks held = {0};
	uint64_t seed = unit_seed();

	for (int round = 0; round < ROUNDS; round++) {
		uint64_t start = unit_random(&seed) % (FILE_BYTES - 60);
		size_t size = 1 + unit_random(&seed) % 60;
		uint8_t bytes[60];

		memset(bytes, (int)(unit_random(&seed) % 255), sizeof(bytes));
		for (size_t i = 0; i < size; i++)
			model.held[start + i] = round % 3;
		if (round % 3) {
			int type = round, rank = round % 7;

			assert_int_equal(sl_held_put(&held, start, size, type, rank, bytes), 0);
			for (size_t i = 0; i < size; i++) {
				model.bytes[start + i] = bytes[i];
				model.types[start + i] = type;
				model.ranks[start + i] = rank;
			}
		} else {
			assert_int_equal(sl_held_forget(&held, start, start + size), 0);
		}
		if (round % 16 == 0)
			check(&held);
	}
	sl_held_clear(&held);
	assert_int_equal(held.bytes, 0);
	assert_int_equal(held.count, 0);
}

TEST(a_part_of_a_block_is_changed_in_place)
{
	struct sl_held_blocks held = {0};
	struct sl_held_block **blocks;

	assert_int_equal(sl_held_sorted(&held, &blocks), 0);
	assert_null(blocks);
	assert_int_equal(sl_held_put(&held, 100, 8, 1, 5, "abcdefgh"), 0);
	assert_int_equal(sl_held_put(&held, 102, 3, 1, 9, "XYZ"), 0);
	assert_int_equal(held.count, 1);
	assert_int_equal(sl_held_sorted(&held, &blocks), 0);
	assert_memory_equal(blocks[0]->bytes, "abXYZfgh", 8);
	assert_int_equal(blocks[0]->rank, 5);
	assert_int_equal(sl_held_put(&held, 100, 2, 1, 9, "AB"), 0);
	assert_memory_equal(blocks[0]->bytes, "ABXYZfgh", 8);
	assert_int_equal(blocks[0]->rank, 9);
	free(blocks);
	sl_held_clear(&held);
}

int main(void)
{
	return RUN_TESTS(NULL, NULL);
}
