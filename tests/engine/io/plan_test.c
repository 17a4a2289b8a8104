/* SPDX-License-Identifier: Apache-2.0 */
#include "io/io_internal.h"
#include "lib/unit.h"

#define ROUNDS 20000
#define PIECE  65536

static struct sl_limits limits_of(uint64_t *seed)
{
	struct sl_limits limits = {.piece_bytes = PIECE, .depth = 4};

	limits.alignment = unit_random(seed) % 4 ? 4096 : 0;
	return limits;
}

static struct sluice_extent extent_of(uint64_t *seed)
{
	/* Addresses are only counted with. Often aligned, often not, sometimes empty. */
	uintptr_t address = (uintptr_t)1 << 40 | (unit_random(seed) % 8 ? 0 : 16);
	uint64_t offset = unit_random(seed) % 300000;
	uint64_t length = unit_random(seed) % 400000;

	if (unit_random(seed) % 2)
		offset -= offset % 4096;
	if (unit_random(seed) % 8 == 0)
		length = 0;
	return (struct sluice_extent){(void *)(address + offset % 4096), length, offset};
}

/* Cuts the next piece. Returns false if there is none. */
static bool next_cut(struct sl_plan *plan, struct sl_piece *cut)
{
	if (!sl_plan_goes_on(plan))
		return false;
	sl_plan_cut(plan, cut);
	return true;
}

static void check_cut(const struct sl_plan *plan, const struct sl_piece *cut)
{
	uint32_t alignment = plan->limits->alignment;

	assert_true(cut->length > 0);
	assert_true(cut->length <= PIECE);
	/* No piece crosses a multiple of the largest piece. */
	assert_int_equal(cut->offset / PIECE, (cut->offset + cut->length - 1) / PIECE);
	if (!cut->aligned)
		return;
	assert_true(cut->large);
	assert_int_equal(cut->offset % alignment, 0);
	assert_int_equal(cut->length % alignment, 0);
}

/* Follows the plan and compares with the extents, byte range by byte range. */
static void check_plan(struct sl_plan *plan)
{
	const struct sluice_extent *extents = plan->extents;
	uint64_t aligned = 0, total = 0;
	size_t extent = 0;
	uint64_t position = 0;
	struct sl_piece cut, again;

	while (next_cut(plan, &cut)) {
		check_cut(plan, &cut);
		assert_true(next_cut(plan, &again));
		assert_ptr_equal(cut.data, again.data);
		assert_int_equal(cut.length, again.length);
		for (;;) {
			uint64_t end = SL_MIN(extents[extent].offset + extents[extent].length,
			                      plan->file_size);

			if (extents[extent].offset + position < end)
				break;
			extent++;
			position = 0;
		}
		assert_ptr_equal(cut.data, (char *)extents[extent].data + position);
		assert_int_equal(cut.offset, extents[extent].offset + position);
		position += cut.length;
		total += cut.length;
		aligned += cut.aligned ? cut.length : 0;
		sl_plan_advance(plan, &cut);
	}
	for (size_t i = 0; i < plan->count; i++) {
		uint64_t end = SL_MIN(extents[i].offset + extents[i].length, plan->file_size);

		total -= end > extents[i].offset ? end - extents[i].offset : 0;
	}
	assert_int_equal(total, 0);
	assert_true(!aligned || plan->limits->alignment);
}

TEST(pieces_cover_the_extents_exactly_and_keep_their_alignment)
{
	uint64_t seed = unit_seed();

	for (int round = 0; round < ROUNDS; round++) {
		struct sl_limits limits = limits_of(&seed);
		struct sluice_extent extents[3] = {extent_of(&seed), extent_of(&seed),
		                                   extent_of(&seed)};
		struct sl_plan plan = {
			.extents = extents,
			.count = unit_random(&seed) % 4,
			.limits = &limits,
			.direct_bytes = 32768,
			.file_size =
				unit_random(&seed) % 2 ? INT64_MAX : unit_random(&seed) % 500000,
		};

		check_plan(&plan);
	}
}

/* Pieces of several extents: each extent is in one piece, and at most as many bytes are dropped as asked for. */
TEST(pieces_join_extents_that_are_near_each_other)
{
	enum { COUNT = 50 };
	uint64_t seed = unit_seed(), joined = 0;

	for (int round = 0; round < ROUNDS / 10; round++) {
		struct sl_limits limits = {.piece_bytes = PIECE, .depth = 4, .remote = true};
		struct sluice_extent extents[COUNT];
		struct sl_plan plan = {.extents = extents,
		                       .count = COUNT,
		                       .limits = &limits,
		                       .direct_bytes = round % 2 ? 4900 : UINT64_MAX,
		                       .file_size = 1 + unit_random(&seed) % 200000,
		                       .joins = true,
		                       .gap = unit_random(&seed) % 4000,
		                       .passes = round % 2};
		uint64_t at = 0, total = 0, taken = 0;
		struct sl_piece cut;

		for (size_t i = 0; i < COUNT; i++) {
			at += unit_random(&seed) % 5000;
			extents[i] =
				(struct sluice_extent){(void *)1, unit_random(&seed) % 5000, at};
			total += SL_MIN(at + extents[i].length, SL_MAX(plan.file_size, at)) - at;
			at += unit_random(&seed) % 4 ? extents[i].length : 0;
		}
		while (next_cut(&plan, &cut)) {
			uint64_t bytes = 0, end = 0;

			for (size_t i = 0; i < cut.extent_count; i++) {
				bytes += cut.extents[i].length;
				assert_true(!plan.passes || cut.extent_count == 1 ||
				            (cut.extents[i].offset >= end &&
				             cut.extents[i].length < plan.direct_bytes));
				end = SL_MAX(end, cut.extents[i].offset + cut.extents[i].length);
			}
			if (cut.extent_count > 1) {
				assert_int_equal(cut.offset, cut.extents->offset);
				assert_int_equal(cut.offset + cut.length, end);
				assert_int_equal(cut.length, bytes + cut.gaps);
				assert_true(plan.passes || cut.gaps <= (int64_t)bytes);
				assert_true(cut.offset + cut.length <= plan.file_size);
				joined += cut.extent_count;
			}
			assert_true(cut.length <= PIECE);
			taken += cut.length - cut.gaps;
			sl_plan_advance(&plan, &cut);
		}
		assert_int_equal(taken, total);
		assert_int_equal(plan.taken, total);
	}
	assert_true(joined > ROUNDS / 10);
}

TEST(only_the_ragged_edges_of_a_large_aligned_extent_are_not_direct)
{
	struct sl_limits limits = {.piece_bytes = PIECE, .depth = 4, .alignment = 4096};
	struct sluice_extent extent = {(void *)((uintptr_t)4096 * 7 + 100), 10 * PIECE, 100};
	struct sl_plan plan = {.extents = &extent,
	                       .count = 1,
	                       .limits = &limits,
	                       .direct_bytes = PIECE,
	                       .file_size = INT64_MAX};
	uint64_t direct = 0, edges = 0;
	struct sl_piece cut;

	while (next_cut(&plan, &cut)) {
		*(cut.aligned ? &direct : &edges) += cut.length;
		sl_plan_advance(&plan, &cut);
	}
	assert_int_equal(edges, 4096);
	assert_int_equal(direct, 10 * PIECE - 4096);
}

TEST(a_sequential_file_gets_one_piece_for_each_extent)
{
	struct sl_limits limits = {.piece_bytes = PIECE, .depth = 4, .sequential = true};
	struct sluice_extent extents[] = {{NULL, 10 * PIECE + 1, 5}, {NULL, 0, 0}, {NULL, 3, 0}};
	struct sl_plan plan = {.extents = extents,
	                       .count = 3,
	                       .limits = &limits,
	                       .direct_bytes = PIECE,
	                       .file_size = INT64_MAX};
	struct sl_piece cut;

	assert_true(next_cut(&plan, &cut));
	assert_int_equal(cut.length, 10 * PIECE + 1);
	sl_plan_advance(&plan, &cut);
	assert_true(next_cut(&plan, &cut));
	assert_int_equal(cut.length, 3);
	sl_plan_advance(&plan, &cut);
	assert_false(next_cut(&plan, &cut));
}

int main(void)
{
	return RUN_TESTS(NULL, NULL);
}
