/* SPDX-License-Identifier: Apache-2.0 */
/* What the catalogue promises to a server and to readers that behave. */
#include "catalogue/catalogue_fixture.h"

static struct shop shop;

/* What happens between g2 and g3 of the next get. */
static void (*meanwhile)(void);
__typeof__(sl_entry_still) __real_sl_entry_still, __wrap_sl_entry_still;

bool __wrap_sl_entry_still(const struct sl_entry *entry, uint64_t word)
{
	void (*now)(void) = meanwhile;

	meanwhile = NULL;
	if (now)
		now();
	return __real_sl_entry_still(entry, word);
}

SHOP_TEST(get_returns_the_published_memory)
{
	struct sl_held_blob held;

	for (unsigned n = 0; n < 20; n++)
		shop_put(&shop, name_of(n), n, true);
	for (unsigned n = 0; n < 20; n++)
		assert_there(&shop, name_of(n), n);
	assert_int_equal(shop_get(&shop, "name/20", &held), -ENOENT);
	assert_int_equal(shop_get(&shop, "name/", &held), -ENOENT);
}

SHOP_TEST(a_name_is_there_once)
{
	struct sl_blob_record record = record_of("twice", 2);
	uint32_t slot;

	shop_put(&shop, "twice", 1, true);
	assert_int_equal(sl_catalogue_insert(shop.catalogue, &record, true, &slot), -EEXIST);
	assert_there(&shop, "twice", 1);
}

static uint64_t size_there(const char *name)
{
	struct sl_held_blob held;
	uint64_t size;

	assert_int_equal(shop_get(&shop, name, &held), 0);
	size = held.record.size;
	sl_reader_release(&shop.reader, &held);
	return size;
}

SHOP_TEST(of_two_of_a_name_a_new_server_keeps_the_one_that_was_got)
{
	unsigned olds = 0, news = 0;

	/* Where the index is not empty either may come first. */
	for (unsigned i = 0; i < 24; i++)
		shop_put(&shop, name_of(i), 1, true);
	for (unsigned i = 100; i < 300; i++) {
		const char *name = name_of(i);
		struct sl_blob_record record = record_of(name, 2);
		uint64_t old, got;
		uint32_t slot;

		shop_put(&shop, name, 1, true);
		old = size_there(name);
		assert_int_equal(
			sl_catalogue_insert(shop.catalogue, &record, SL_INSERT_BESIDE, &slot), 0);
		got = size_there(name);
		*(got == old ? &olds : &news) += 1;
		assert_int_equal(shop_replace_server(&shop), 1);
		assert_int_equal(size_there(name), got);
		shop_delete(&shop, name);
		assert_int_equal(shop_sweep(&shop).gone, 2);
	}
	assert_true(olds && news);
}

SHOP_TEST(an_open_blob_is_not_got)
{
	struct sl_held_blob held;
	uint32_t slot = shop_put(&shop, "open", 4, false);

	assert_int_equal(shop_get(&shop, "open", &held), -EAGAIN);
	assert_int_equal(sl_reader_take(&shop.reader, slot,
	                                sl_catalogue_generation(shop.catalogue, slot), &held),
	                 -EAGAIN);
	assert_int_equal(sl_catalogue_seal(shop.catalogue, &slot, 1), 0);
	assert_there(&shop, "open", 4);
	assert_int_equal(sl_catalogue_seal(shop.catalogue, &slot, 1), -EINVAL);
}

SHOP_TEST(an_anonymous_blob_is_got_by_its_id)
{
	struct sl_blob_record record = record_of("", 8), found;
	struct sl_held_blob held;
	struct sl_blob_key key = {0};
	uint32_t slot, other;

	assert_int_equal(sl_catalogue_insert(shop.catalogue, &record, true, &slot), 0);
	sl_catalogue_record(shop.catalogue, slot, &found);
	key.id = found.key.id;
	assert_int_equal(sl_reader_get(&shop.reader, &key, &held), 0);
	assert_record(&held.record, "", 8);
	assert_false(sl_reader_release(&shop.reader, &held));
	assert_int_equal(sl_catalogue_find(shop.catalogue, &key, &other), 0);
	assert_int_equal(other, slot);
	key.id++;
	assert_int_equal(sl_reader_get(&shop.reader, &key, &held), -ENOENT);
	/* The id of a named one is no key. */
	slot = shop_put(&shop, "named", 1, true);
	sl_catalogue_record(shop.catalogue, slot, &found);
	assert_int_equal(found.key.id, key.id);
	assert_int_equal(sl_reader_get(&shop.reader, &key, &held), -ENOENT);
}

SHOP_TEST(a_deleted_blob_goes_when_nobody_holds_it)
{
	struct sl_held_blob first, second, held;
	struct swept swept;
	uint32_t slot = shop_put(&shop, "gone", 3, true);

	assert_int_equal(shop_get(&shop, "gone", &first), 0);
	assert_int_equal(shop_get(&shop, "gone", &second), 0);
	assert_int_equal(sl_catalogue_references(shop.catalogue, slot, shop.seen), 2);
	shop_delete(&shop, "gone");
	assert_int_equal(sl_catalogue_delete(shop.catalogue, slot), -EINVAL);
	assert_int_equal(shop_get(&shop, "gone", &held), -ENOENT);
	assert_int_equal(sl_reader_take(&shop.reader, slot, first.generation, &held), -EAGAIN);
	swept = shop_sweep(&shop);
	assert_int_equal(swept.held, 1);
	assert_int_equal(swept.gone, 0);

	/* The name is free, and the one that is held stays what it was. */
	assert_int_not_equal(shop_put(&shop, "gone", 5, true), slot);
	assert_there(&shop, "gone", 5);
	assert_record(&first.record, "gone", 3);

	assert_true(sl_reader_release(&shop.reader, &first));
	assert_int_equal(shop_sweep(&shop).gone, 0);
	assert_record(&second.record, "gone", 3);
	assert_true(sl_reader_release(&shop.reader, &second));
	swept = shop_sweep(&shop);
	assert_int_equal(swept.gone, 1);
	assert_int_equal(swept.last, slot);
	assert_int_equal(swept.held, 0);
	assert_int_equal(sl_catalogue_state(shop.catalogue, slot), SL_ENTRY_FREE);
	assert_int_equal(sl_catalogue_references(shop.catalogue, slot, shop.seen), 0);
	assert_there(&shop, "gone", 5);
}

SHOP_TEST(references_of_a_dead_client_go)
{
	struct sl_held_blob held;

	shop_put(&shop, "left", 3, true);
	assert_int_equal(shop_get(&shop, "left", &held), 0);
	shop_delete(&shop, "left");
	assert_int_equal(shop_sweep(&shop).held, 1);
	sl_catalogue_part(shop.catalogue, shop.seen);
	assert_int_equal(shop_sweep(&shop).gone, 1);
}

static void end_references(void)
{
	assert_false(sl_references_end(shop.seen));
}

SHOP_TEST(references_end_only_when_none_is_held)
{
	struct sl_held_blob held, again;

	shop_put(&shop, "a", 1, true);
	assert_int_equal(shop_get(&shop, "a", &held), 0);
	assert_false(sl_references_end(shop.seen));
	/* They went on. */
	assert_there(&shop, "a", 1);
	sl_reader_release(&shop.reader, &held);
	assert_true(sl_references_end(shop.seen));
	assert_int_equal(shop_get(&shop, "a", &held), -EAGAIN);
	assert_int_equal(sl_references_end(shop.seen), true);
	/* The next server scans what it finds. */
	assert_int_equal(sl_catalogue_join(shop.catalogue, shop.seen), 0);
	assert_int_equal(shop_get(&shop, "a", &held), 0);
	/* As if the server looked between g2 and g3. */
	meanwhile = end_references;
	assert_int_equal(shop_get(&shop, "a", &again), 0);
	sl_reader_release(&shop.reader, &held);
	sl_reader_release(&shop.reader, &again);
	sl_catalogue_part(shop.catalogue, shop.seen);
}

SHOP_TEST(entry_pinned_by_the_server_stays)
{
	uint32_t slot = shop_put(&shop, "pinned", 3, true);

	sl_catalogue_hold(shop.catalogue, slot);
	assert_int_equal(sl_catalogue_withdraw(shop.catalogue, slot), 0);
	assert_int_equal(shop_sweep(&shop).stays, 1);
	shop_delete(&shop, "pinned");
	assert_int_equal(shop_sweep(&shop).held, 1);
	sl_catalogue_unhold(shop.catalogue, slot);
	assert_int_equal(shop_sweep(&shop).gone, 1);
}

static void delete_in_vain(void)
{
	shop_delete(&shop, "late");
	assert_int_equal(shop_sweep(&shop).held, 1);
}

SHOP_TEST(a_get_that_comes_too_late_has_the_server_sweep)
{
	struct sl_held_blob held;

	shop_put(&shop, "late", 3, true);
	meanwhile = delete_in_vain;
	assert_int_equal(shop_get(&shop, "late", &held), -EAGAIN);
	assert_int_equal(shop_sweep(&shop).gone, 1);
}

static void delete_and_make_another(void)
{
	shop_delete(&shop, "late");
	sl_catalogue_part(shop.catalogue, shop.seen); /* the reference is not seen */
	assert_int_equal(shop_sweep(&shop).gone, 1);
	assert_int_equal(sl_catalogue_join(shop.catalogue, shop.seen), 0);
	shop_put(&shop, "late", 5, true);
}

SHOP_TEST(a_get_whose_blob_was_replaced_gets_the_new_one)
{
	struct sl_held_blob held;
	uint32_t slot = shop_put(&shop, "late", 3, true);

	meanwhile = delete_and_make_another;
	assert_int_equal(shop_get(&shop, "late", &held), 0);
	assert_record(&held.record, "late", 5);
	assert_int_equal(held.slot, slot);
	assert_int_equal(held.generation, 2);
	assert_int_equal(sl_catalogue_references(shop.catalogue, slot, shop.seen), 1);
	assert_false(sl_reader_release(&shop.reader, &held));
	meanwhile = delete_and_make_another;
	assert_int_equal(sl_reader_take(&shop.reader, slot, 2, &held), -EAGAIN);
	assert_int_equal(sl_catalogue_references(shop.catalogue, slot, shop.seen), 0);
}

SHOP_TEST(generations_begin_again_after_the_last)
{
	struct sl_held_blob old, held;
	uint32_t slot = shop_put(&shop, "last", 5, true);

	sl_entry_commit(shop.catalogue, slot, sl_word(SL_GENERATION_MOST, 0, SL_ENTRY_SEALED));
	assert_int_equal(shop_get(&shop, "last", &old), 0);
	assert_true(old.generation == SL_GENERATION_MOST);
	shop_delete(&shop, "last");
	assert_int_equal(shop_sweep(&shop).held, 1);
	assert_true(sl_reader_release(&shop.reader, &old));
	assert_int_equal(shop_sweep(&shop).gone, 1);
	assert_int_equal(shop_put(&shop, "first", 10, true), slot);
	assert_int_equal(shop_get(&shop, "first", &held), 0);
	assert_int_equal(held.generation, 1);
	assert_int_equal(sl_reader_take(&shop.reader, slot, SL_GENERATION_MOST, &old), -EAGAIN);
	assert_int_equal(sl_reader_take(&shop.reader, slot, 1, &old), 0);
	assert_int_equal(sl_catalogue_references(shop.catalogue, slot, shop.seen), 2);
	assert_int_equal(shop_replace_server(&shop), 0);
}

SHOP_TEST(metadata_has_up_to_4096_bytes)
{
	static const size_t sizes[] = {0, 1, SL_METADATA_INLINE, SL_METADATA_INLINE + 1,
	                               SL_METADATA_MOST};
	uint8_t bytes[SL_METADATA_MOST + 1];
	uint32_t slot = shop_put(&shop, "described", 0, false);
	struct sl_held_blob held;

	for (size_t i = 0; i < COUNT_OF(sizes); i++) {
		memset(bytes, (int)i + 1, sizeof(bytes));
		assert_int_equal(sl_catalogue_describe(shop.catalogue, slot, bytes, sizes[i]), 0);
		assert_int_equal(sl_catalogue_describe(shop.catalogue, slot, bytes, sizeof(bytes)),
		                 -EINVAL);
		if (i + 1 == COUNT_OF(sizes))
			assert_int_equal(sl_catalogue_seal(shop.catalogue, &slot, 1), 0);
	}
	assert_int_equal(shop_get(&shop, "described", &held), 0);
	assert_int_equal(held.record.metadata_size, SL_METADATA_MOST);
	assert_memory_equal(held.record.metadata, bytes, SL_METADATA_MOST);
	assert_int_equal(sl_catalogue_describe(shop.catalogue, slot, bytes, 1), -EINVAL);
}

SHOP_TEST(pages_of_metadata_run_out_and_come_back)
{
	struct sl_blob_record record = record_of("one more", 4);
	uint32_t slot;

	for (int round = 0; round < 2; round++) {
		for (unsigned n = 0; n < SL_SLOTS_LEAST / SL_SLOTS_FOR_PAGE; n++)
			shop_put(&shop, name_of(n), 4, true);
		assert_int_equal(sl_catalogue_insert(shop.catalogue, &record, true, &slot),
		                 -ENOBUFS);
		slot = shop_put(&shop, "small", 1, false);
		assert_int_equal(sl_catalogue_describe(shop.catalogue, slot, record.metadata,
		                                       record.metadata_size),
		                 -ENOBUFS);
		assert_int_equal(shop_replace_server(&shop), 0);
		assert_int_equal(sl_catalogue_insert(shop.catalogue, &record, true, &slot),
		                 -ENOBUFS);
		for (unsigned n = 0; n < SL_SLOTS_LEAST / SL_SLOTS_FOR_PAGE; n++)
			shop_delete(&shop, name_of(n));
		shop_delete(&shop, "small");
		shop_sweep(&shop);
	}
}

SHOP_TEST(several_are_sealed_at_once)
{
	struct sl_segment_header *header = shop.segment->header;
	struct sl_held_blob held;
	uint32_t slots[5];

	for (unsigned n = 0; n < COUNT_OF(slots); n++)
		slots[n] = shop_put(&shop, name_of(n), n, false);
	assert_int_equal(sl_catalogue_seal(shop.catalogue, slots, COUNT_OF(slots)), 0);
	for (unsigned n = 0; n < COUNT_OF(slots); n++)
		assert_there(&shop, name_of(n), n);
	assert_int_equal(atomic_load(&header->publishing), 0);
	/* All are sealed, and it is not said yet. */
	atomic_store(&header->publishing, atomic_load(&header->last_batch));
	assert_int_equal(shop_get(&shop, name_of(0), &held), -EAGAIN);
	assert_int_equal(sl_catalogue_references(shop.catalogue, slots[0], shop.seen), 0);
	/* One of them is not: nothing happens. */
	slots[1] = shop_put(&shop, "open", 1, false);
	assert_int_equal(sl_catalogue_seal(shop.catalogue, slots, COUNT_OF(slots)), -EINVAL);
	assert_int_equal(sl_catalogue_state(shop.catalogue, slots[1]), SL_ENTRY_OPEN);
}

SHOP_TEST(held_blob_is_not_spilled)
{
	uint32_t slot = shop_put(&shop, "away", 9, true);
	struct sl_held_blob held, other;

	assert_int_equal(shop_get(&shop, "away", &held), 0);
	assert_int_equal(sl_catalogue_withdraw(shop.catalogue, slot), 0);
	assert_int_equal(sl_catalogue_withdraw(shop.catalogue, slot), -EINVAL);
	assert_int_equal(shop_get(&shop, "away", &other), -EAGAIN);
	assert_int_equal(shop_sweep(&shop).stays, 1);
	assert_there(&shop, "away", 9);
	assert_false(sl_reader_release(&shop.reader, &held));

	assert_int_equal(sl_catalogue_withdraw(shop.catalogue, slot), 0);
	assert_int_equal(shop_sweep(&shop).away, 1);
	assert_int_equal(shop_get(&shop, "away", &other), -EAGAIN);
}

SHOP_TEST(returning_blob_has_a_new_generation)
{
	struct sl_blob_range disk = {.memory = 9, .kind = 2}, back = record_of("", 9).range;
	uint32_t slot = shop_put(&shop, "back", 9, true);
	struct sl_held_blob before, after;

	assert_int_equal(shop_get(&shop, "back", &before), 0);
	assert_false(sl_reader_release(&shop.reader, &before));
	assert_int_equal(sl_catalogue_move(shop.catalogue, slot, &disk, false), -EINVAL);
	assert_int_equal(sl_catalogue_withdraw(shop.catalogue, slot), 0);
	assert_int_equal(shop_sweep(&shop).away, 1);
	assert_int_equal(sl_catalogue_move(shop.catalogue, slot, &disk, false), 0);
	assert_int_equal(shop_replace_server(&shop), 0);
	assert_int_equal(sl_catalogue_state(shop.catalogue, slot), SL_ENTRY_AWAY);
	assert_int_equal(sl_catalogue_move(shop.catalogue, slot, &back, true), 0);
	assert_int_equal(shop_get(&shop, "back", &after), 0);
	assert_int_equal(after.generation, before.generation + 1);
	assert_record(&after.record, "back", 9);
}

SHOP_TEST(leaving_and_then_deleted_is_counted_once)
{
	uint32_t slot = shop_put(&shop, "both", 9, true);
	struct swept swept;

	assert_int_equal(sl_catalogue_withdraw(shop.catalogue, slot), 0);
	shop_delete(&shop, "both");
	swept = shop_sweep(&shop);
	assert_int_equal(swept.gone, 1);
	assert_int_equal(swept.away + swept.stays, 0);
	assert_int_equal(free_slots(shop.catalogue), SL_SLOTS_LEAST);
}

SHOP_TEST(the_server_learns_what_was_used_when)
{
	uint32_t first = shop_put(&shop, "first", 0, true),
		 second = shop_put(&shop, "second", 5, true);
	struct sl_held_blob held;

	for (int round = 0; round < 100; round++) {
		for (int i = 0; i < 7; i++)
			sl_catalogue_tick(shop.catalogue);
		assert_there(&shop, "first", 0);
		for (int i = 0; i < round % 20; i++)
			sl_catalogue_tick(shop.catalogue);
		shop_sweep(&shop);
		assert_int_equal(sl_catalogue_idle(shop.catalogue, first), round % 20);
	}
	assert_in_range(sl_catalogue_idle(shop.catalogue, second), 700, 3000);
	assert_int_equal(shop_get(&shop, "second", &held), 0);
	shop_sweep(&shop);
	assert_int_equal(sl_catalogue_idle(shop.catalogue, second), 0);
}

SHOP_TEST(references_run_out_and_come_back)
{
	struct sl_held_blob held[SL_REFERENCES_LEAST], more;

	shop_put(&shop, "many", 5, true);
	for (int round = 0; round < 3; round++) {
		for (unsigned i = 0; i < COUNT_OF(held); i++)
			assert_int_equal(shop_get(&shop, "many", &held[i]), 0);
		assert_int_equal(shop_get(&shop, "many", &more), -ENOSPC);
		assert_int_equal(sl_catalogue_references(shop.catalogue, held[0].slot, shop.seen),
		                 COUNT_OF(held));
		for (unsigned i = 0; i < COUNT_OF(held); i++)
			assert_false(sl_reader_release(&shop.reader, &held[i]));
	}
	assert_there(&shop, "many", 5);
}

SHOP_TEST(flags_can_change_while_it_is_held)
{
	uint32_t slot = shop_put(&shop, "flags", 1, true);
	struct sl_held_blob held;

	assert_int_equal(sl_catalogue_set_flags(shop.catalogue, slot, 64), 0);
	assert_int_equal(shop_get(&shop, "flags", &held), 0);
	assert_int_equal(held.record.flags, 64);
	shop_delete(&shop, "flags");
	assert_int_equal(sl_catalogue_set_flags(shop.catalogue, slot, 1), -EINVAL);
}

SHOP_TEST(a_segment_has_a_power_of_two_of_slots)
{
	int fd;

	assert_int_equal(sl_segment_new(SL_SLOTS_LEAST / 2, &fd), -EINVAL);
	assert_int_equal(sl_segment_new(100, &fd), -EINVAL);
	assert_int_equal(sl_segment_new(SL_SLOTS_MOST * 2, &fd), -EINVAL);
	assert_int_equal(sl_references_new(SL_REFERENCES_LEAST / 2, &fd), -EINVAL);
	assert_int_equal(sl_references_new(1000, &fd), -EINVAL);
	assert_int_equal(sl_references_new(SL_REFERENCES_MOST * 2, &fd), -EINVAL);
	assert_int_equal(sl_segment_slots(shop.read), SL_SLOTS_LEAST);
}

int main(void)
{
	return RUN_TESTS(NULL, NULL);
}
