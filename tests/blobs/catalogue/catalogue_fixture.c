/* SPDX-License-Identifier: Apache-2.0 */
#include "catalogue/catalogue_fixture.h"

void shop_open(struct shop *shop, uint32_t slots)
{
	unsigned broken = 1;

	*shop = (struct shop){0};
	assert_int_equal(sl_segment_new(slots, &shop->fd), 0);
	assert_int_equal(sl_references_new(SL_REFERENCES_LEAST, &shop->references_fd), 0);
	assert_int_equal(sl_segment_map(shop->fd, true, &shop->segment), 0);
	assert_int_equal(sl_segment_map(shop->fd, false, &shop->read), 0);
	assert_int_equal(sl_references_map(shop->references_fd, true, &shop->seen), 0);
	assert_int_equal(sl_references_map(shop->references_fd, true, &shop->reader.references), 0);
	shop->reader.segment = shop->read;
	assert_int_equal(sl_catalogue_open(shop->segment, &broken, &shop->catalogue), 0);
	assert_int_equal(broken, 0);
	assert_int_equal(sl_catalogue_join(shop->catalogue, shop->seen), 0);
	assert_int_equal(free_slots(shop->catalogue), slots);
}

void shop_close(struct shop *shop)
{
	sl_catalogue_part(shop->catalogue, shop->seen);
	sl_catalogue_close(shop->catalogue);
	sl_references_unmap(shop->seen);
	sl_references_unmap(shop->reader.references);
	sl_segment_unmap(shop->segment);
	sl_segment_unmap(shop->read);
	close(shop->fd);
	close(shop->references_fd);
}

int shop_setup(void **state)
{
	shop_open(*state, SL_SLOTS_LEAST);
	return 0;
}

int shop_teardown(void **state)
{
	shop_close(*state);
	return 0;
}

unsigned shop_replace_server(struct shop *shop)
{
	unsigned broken = 0;

	sl_catalogue_close(shop->catalogue);
	sl_segment_unmap(shop->segment);
	assert_int_equal(sl_segment_map(shop->fd, true, &shop->segment), 0);
	assert_int_equal(sl_catalogue_open(shop->segment, &broken, &shop->catalogue), 0);
	assert_int_equal(sl_catalogue_join(shop->catalogue, shop->seen), 0);
	return broken;
}

const char *name_of(unsigned n)
{
	static char names[4][32];
	static unsigned turn;
	char *name = names[turn++ % COUNT_OF(names)];

	snprintf(name, sizeof(names[0]), "name/%u", n);
	return name;
}

struct sl_blob_key key_of(const char *name)
{
	return (struct sl_blob_key){.name = name, .length = strlen(name)};
}

static const uint8_t *metadata_of(uint64_t n, size_t *size)
{
	static uint8_t bytes[SL_METADATA_MOST];
	static const size_t sizes[] = {0, 1, SL_METADATA_INLINE, SL_METADATA_INLINE + 1, 300};

	*size = sizes[n % COUNT_OF(sizes)];
	for (size_t i = 0; i < *size; i++)
		bytes[i] = (uint8_t)(n * 31 + i * 7);
	return bytes;
}

struct sl_blob_record record_of(const char *name, uint64_t n)
{
	struct sl_blob_record record = {
		.key = key_of(name),
		.size = n * 3 + 1,
		.range = {.memory = n + 100,
	                  .offset = n * 4096,
	                  .device = (int32_t)n - 1,
	                  .kind = (uint32_t)n % 3},
		.creator = n + 7,
		.uid = 1000 + (uint32_t)n % 2,
		.flags = (uint32_t)n % 8,
	};

	record.metadata = metadata_of(n, &record.metadata_size);
	return record;
}

void assert_record(const struct sl_blob_record *record, const char *name, uint64_t n)
{
	struct sl_blob_record expected = record_of(name, n);

	assert_int_equal(record->key.length, expected.key.length);
	assert_memory_equal(record->key.name, name, expected.key.length);
	assert_int_not_equal(record->key.id, 0);
	assert_int_equal(record->size, expected.size);
	assert_memory_equal(&record->range, &expected.range, sizeof(record->range));
	assert_int_equal(record->creator, expected.creator);
	assert_int_equal(record->uid, expected.uid);
	assert_int_equal(record->flags, expected.flags);
	assert_int_equal(record->metadata_size, expected.metadata_size);
	if (expected.metadata_size)
		assert_memory_equal(record->metadata, expected.metadata, expected.metadata_size);
}

uint32_t shop_put(struct shop *shop, const char *name, uint64_t n, bool sealed)
{
	struct sl_blob_record record = record_of(name, n);
	uint32_t slot = UINT32_MAX;

	assert_int_equal(sl_catalogue_insert(shop->catalogue, &record, sealed, &slot), 0);
	return slot;
}

void shop_delete(struct shop *shop, const char *name)
{
	struct sl_blob_key key = key_of(name);
	uint32_t slot = UINT32_MAX;

	assert_int_equal(sl_catalogue_find(shop->catalogue, &key, &slot), 0);
	assert_int_equal(sl_catalogue_delete(shop->catalogue, slot), 0);
}

int shop_get(const struct shop *shop, const char *name, struct sl_held_blob *out)
{
	struct sl_blob_key key = key_of(name);

	return sl_reader_get(&shop->reader, &key, out);
}

void assert_there(const struct shop *shop, const char *name, uint64_t n)
{
	struct sl_held_blob held;

	assert_int_equal(shop_get(shop, name, &held), 0);
	assert_record(&held.record, name, n);
	assert_false(sl_reader_release(&shop->reader, &held));
}

static void count(void *argument, uint32_t slot, enum sl_left what)
{
	struct swept *swept = argument;

	swept->gone += what == SL_LEFT_GONE;
	swept->away += what == SL_LEFT_AWAY;
	swept->stays += what == SL_LEFT_STAYS;
	swept->last = slot;
}

struct swept shop_sweep(struct shop *shop)
{
	struct swept swept = {0};

	swept.held = sl_catalogue_sweep(shop->catalogue, count, &swept);
	return swept;
}
