/* SPDX-License-Identifier: Apache-2.0 */
/* Names: long ones, many, and those that are hard to tell apart. */
#include "catalogue/catalogue_fixture.h"

#include <sys/stat.h>

static struct shop shop;

SHOP_TEST(names_have_up_to_255_bytes_of_any_kind)
{
	char name[SL_NAME_MOST + 2];
	struct sl_blob_record record = record_of("", 6);
	struct sl_held_blob held;
	struct sl_blob_key key;
	uint32_t slot;

	for (size_t i = 0; i < sizeof(name); i++)
		name[i] = (char)(i * 37);
	for (size_t length = 1; length <= SL_NAME_MOST; length += length < 250 ? 31 : 1) {
		key = (struct sl_blob_key){.name = name, .length = length};
		record.key = key;
		assert_int_equal(sl_catalogue_insert(shop.catalogue, &record, true, &slot), 0);
		assert_int_equal(sl_reader_get(&shop.reader, &key, &held), 0);
		assert_int_equal(held.slot, slot);
		assert_int_equal(held.record.key.length, length);
		assert_memory_equal(held.record.key.name, name, length);
		assert_false(sl_reader_release(&shop.reader, &held));
	}
	record.key.length = key.length = SL_NAME_MOST + 1;
	assert_int_equal(sl_catalogue_insert(shop.catalogue, &record, true, &slot), -EINVAL);
	assert_int_equal(sl_reader_get(&shop.reader, &key, &held), -ENOENT);
	assert_int_equal(sl_catalogue_find(shop.catalogue, &key, &slot), -ENOENT);
}

SHOP_TEST(a_full_catalogue_refuses_and_can_be_emptied)
{
	struct sl_blob_record record = record_of("one more", 0);
	uint32_t slot;

	for (int round = 0; round < 3; round++) {
		for (unsigned n = 0; n < SL_SLOTS_LEAST; n++)
			shop_put(&shop, name_of(n), n * 5, true); /* without metadata */
		assert_int_equal(free_slots(shop.catalogue), 0);
		assert_int_equal(sl_catalogue_insert(shop.catalogue, &record, true, &slot),
		                 -ENOSPC);
		for (unsigned n = 0; n < SL_SLOTS_LEAST; n++)
			assert_there(&shop, name_of(n), n * 5);
		for (unsigned n = 0; n < SL_SLOTS_LEAST; n++)
			shop_delete(&shop, name_of(n));
		assert_int_equal(shop_sweep(&shop).gone, SL_SLOTS_LEAST);
		assert_int_equal(free_slots(shop.catalogue), SL_SLOTS_LEAST);
	}
}

SHOP_TEST(a_catalogue_takes_memory_as_it_is_filled)
{
	struct shop large;
	struct stat stat;

	shop_open(&large, 1 << 16);
	shop_put(&large, "one", 3, true);
	assert_int_equal(shop_replace_server(&large), 0);
	assert_there(&large, "one", 3);
	assert_int_equal(fstat(large.fd, &stat), 0);
	/* The index is looked at as a whole: 32 bytes for each slot, of 1 KiB. */
	assert_in_range(stat.st_blocks * 512, SL_PAGE, (32 << 16) + 10 * SL_PAGE);
	shop_close(&large);
}

SHOP_TEST(a_large_catalogue_can_be_filled)
{
	struct shop large;
	char name[32];

	shop_open(&large, 1 << 14);
	for (unsigned n = 0; n < 1 << 14; n++) {
		snprintf(name, sizeof(name), "%u", n);
		shop_put(&large, name, n * 5, true);
	}
	for (unsigned n = 0; n < 1 << 14; n++) {
		snprintf(name, sizeof(name), "%u", n);
		assert_there(&large, name, n * 5);
	}
	shop_close(&large);
}

/* Whether a name wants the same two lines of the index as another. */
static bool want_the_same(uint64_t a, uint64_t b)
{
	struct sl_index_line *first[2], *second[2];

	sl_index_lines(shop.segment, a, first);
	sl_index_lines(shop.segment, b, second);
	return (first[0] == second[0] && first[1] == second[1]) ||
	       (first[0] == second[1] && first[1] == second[0]);
}

SHOP_TEST(names_that_want_one_place_are_all_found_or_refused)
{
	struct sl_blob_key key = key_of("first");
	uint64_t hash = sl_key_hash(shop.segment, &key);
	unsigned names[16], found = 0, n;
	struct sl_blob_record record;
	char more[32];
	uint32_t slot;

	for (n = 0; found < COUNT_OF(names); n++) {
		key = key_of(name_of(n));
		if (!want_the_same(sl_key_hash(shop.segment, &key), hash))
			continue;
		shop_put(&shop, name_of(n), found * 5, true);
		names[found++] = n;
	}
	for (;; n++) {
		key = key_of(name_of(n));
		if (want_the_same(sl_key_hash(shop.segment, &key), hash))
			break;
	}
	snprintf(more, sizeof(more), "%s", name_of(n));
	record = record_of(more, 80);
	assert_int_equal(sl_catalogue_insert(shop.catalogue, &record, true, &slot), -ENOSPC);
	for (unsigned i = 0; i < found; i++)
		assert_there(&shop, name_of(names[i]), i * 5);
	shop_delete(&shop, name_of(names[7]));
	assert_int_equal(sl_catalogue_insert(shop.catalogue, &record, true, &slot), 0);
	assert_there(&shop, more, 80);
}

static bool share_a_line(uint64_t a, uint64_t b)
{
	struct sl_index_line *first[2], *second[2];

	sl_index_lines(shop.segment, a, first);
	sl_index_lines(shop.segment, b, second);
	return first[0] == second[0] || first[1] == second[1] || first[0] == second[1] ||
	       first[1] == second[0];
}

struct hashed {
	uint64_t hash;
	unsigned n;
};

static int by_tag(const void *a, const void *b)
{
	const struct hashed *x = a, *y = b;

	return x->hash < y->hash ? -1 : x->hash > y->hash;
}

/* By looking for two names of which the index cannot tell one from the other. */
SHOP_TEST(names_with_the_same_word_in_the_index_are_told_apart)
{
	const unsigned count = 1 << 20;
	struct hashed *all = calloc(count, sizeof(*all));
	unsigned pairs = 0;

	for (unsigned n = 0; n < count; n++) {
		struct sl_blob_key key = key_of(name_of(n));

		all[n] = (struct hashed){sl_key_hash(shop.segment, &key), n};
	}
	qsort(all, count, sizeof(*all), by_tag);
	for (unsigned i = 1; i < count && pairs < 16; i++) {
		struct sl_held_blob held;

		if (all[i].hash >> 32 != all[i - 1].hash >> 32 ||
		    !share_a_line(all[i].hash, all[i - 1].hash))
			continue;
		pairs++;
		shop_put(&shop, name_of(all[i].n), 5 * pairs, true);
		assert_int_equal(shop_get(&shop, name_of(all[i - 1].n), &held), -ENOENT);
		shop_put(&shop, name_of(all[i - 1].n), 5 * pairs + 5, true);
		assert_there(&shop, name_of(all[i].n), 5 * pairs);
		assert_there(&shop, name_of(all[i - 1].n), 5 * pairs + 5);
		shop_delete(&shop, name_of(all[i].n));
		assert_there(&shop, name_of(all[i - 1].n), 5 * pairs + 5);
	}
	free(all);
	print_message("%u pairs\n", pairs);
	assert_in_range(pairs, 1, 16);
}

int main(void)
{
	return RUN_TESTS(NULL, NULL);
}
