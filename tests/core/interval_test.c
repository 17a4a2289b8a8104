/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/unit.h"

#define MEMBERS 300
#define ROUNDS  20000

struct seen {
	struct sl_interval *members;
	unsigned counts[MEMBERS];
};

static void see(struct sl_interval *interval, void *argument)
{
	struct seen *seen = argument;

	seen->counts[interval - seen->members]++;
}

static void check_against_a_scan(struct sl_intervals *set, struct sl_interval *members,
                                 const bool *inside, uint64_t start, uint64_t end)
{
	struct seen seen = {.members = members};

	sl_intervals_overlapping(set, start, end, see, &seen);
	for (int i = 0; i < MEMBERS; i++) {
		bool overlaps = inside[i] && members[i].start < end && members[i].end > start;

		assert_int_equal(seen.counts[i], overlaps);
	}
}

/* enough: 1, any of them will do. */
static void check_latest(struct sl_intervals *set, struct sl_interval *members, const bool *inside,
                         const struct sl_interval *at, uint64_t enough, uint64_t *seed)
{
	uint64_t after = unit_random(seed) % ROUNDS, before = after + unit_random(seed) % ROUNDS;
	struct sl_interval *found, *latest = NULL;

	for (int i = 0; i < MEMBERS; i++)
		if (inside[i] && members[i].start < at->end && members[i].end > at->start &&
		    members[i].sequence > after && members[i].sequence < before &&
		    (!latest || latest->sequence < members[i].sequence))
			latest = &members[i];
	found = sl_intervals_latest(set, at, after, before, enough);
	if (enough > 1 || !latest) {
		assert_ptr_equal(found, latest);
		return;
	}
	assert_true(found && inside[found - members]);
	assert_true(found->start < at->end && found->end > at->start);
	assert_true(found->sequence > after && found->sequence < before);
}

TEST(overlapping_members_are_found_once_and_no_others)
{
	static struct sl_interval members[MEMBERS];
	static bool inside[MEMBERS];
	struct sl_intervals set = {0};
	uint64_t seed = unit_seed();

	for (int round = 0; round < ROUNDS; round++) {
		unsigned i = unit_random(&seed) % MEMBERS;
		uint64_t start = unit_random(&seed) % 1000;
		struct sl_interval at;

		if (inside[i]) {
			sl_intervals_remove(&set, &members[i]);
		} else {
			members[i].start = start;
			members[i].end = start + 1 + unit_random(&seed) % 50;
			members[i].sequence = round + 1;
			sl_intervals_insert(&set, &members[i]);
		}
		inside[i] = !inside[i];
		start = unit_random(&seed) % 1000;
		at.start = start;
		at.end = start + 1 + unit_random(&seed) % 100;
		check_against_a_scan(&set, members, inside, at.start, at.end);
		check_latest(&set, members, inside, &at, round % 3 ? UINT64_MAX : 1, &seed);
	}
}

static unsigned depth(const struct sl_interval *tree)
{
	unsigned left, right;

	if (!tree)
		return 0;
	left = depth(tree->left);
	right = depth(tree->right);
	return 1 + SL_MAX(left, right);
}

TEST(sorted_insertion_keeps_the_tree_flat)
{
	static struct sl_interval members[100000];
	struct sl_intervals set = {0};

	for (int i = 0; i < 100000; i++) {
		members[i].start = (uint64_t)i * 4096;
		members[i].end = members[i].start + 4096;
		sl_intervals_insert(&set, &members[i]);
	}
	/* Twice the expected height of a random tree of that size would be about 80. */
	assert_in_range(depth(set.root), 17, 80);
}

TEST(ranges_that_only_touch_do_not_overlap)
{
	static struct sl_interval members[MEMBERS];
	static bool inside[MEMBERS];
	struct sl_intervals set = {0};

	members[0].start = 0;
	members[0].end = UINT64_MAX;
	members[1].start = 10;
	members[1].end = 20;
	for (int i = 0; i < 2; i++) {
		sl_intervals_insert(&set, &members[i]);
		inside[i] = true;
	}
	check_against_a_scan(&set, members, inside, 0, 10);
	check_against_a_scan(&set, members, inside, 20, 21);
	check_against_a_scan(&set, members, inside, 19, 20);
	check_against_a_scan(&set, members, inside, UINT64_MAX - 1, UINT64_MAX);
}

int main(void)
{
	return RUN_TESTS(NULL, NULL);
}
