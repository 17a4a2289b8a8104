/* SPDX-License-Identifier: Apache-2.0 */
#include "catalogue/catalogue_stress.h"

static struct {
	struct sl_catalogue *catalogue;
	struct sl_references *references[READERS];
	bool used[REGIONS];
	uint64_t random;
} server;

static uint64_t below(uint64_t bound)
{
	return stress_random(&server.random) % bound;
}

static void fill(unsigned region, uint64_t stamp)
{
	for (unsigned i = 0; i < WORDS; i++)
		stress->memory[region][i] = stress_word(stamp, i);
}

static unsigned region_of(uint32_t slot)
{
	struct sl_blob_record record;

	sl_catalogue_record(server.catalogue, slot, &record);
	return record.range.offset % REGIONS;
}

/* As any memory that is used again. */
static void recycle(unsigned region)
{
	fill(region, UINT64_MAX);
	server.used[region] = false;
}

static bool take_region(unsigned *out)
{
	for (unsigned i = 0, at = below(REGIONS); i < REGIONS; i++, at = (at + 1) % REGIONS) {
		if (server.used[at])
			continue;
		server.used[at] = true;
		*out = at;
		return true;
	}
	return false;
}

static void make(bool sealed, uint32_t *slot)
{
	uint64_t stamp = atomic_fetch_add(&stress->stamp, 1) + 1;
	uint8_t metadata[512];
	char name[16];
	struct sl_blob_record record = {
		.key = {.name = name,
	                .length = (size_t)snprintf(name, sizeof(name), "n%u",
	                                           (unsigned)below(NAMES))},
		.size = stamp * 3,
		.range = {.memory = stamp},
		.creator = stamp + 1,
		.metadata = metadata,
		.metadata_size = stress_metadata_size(stamp),
	};
	unsigned region;

	if (sl_catalogue_find(server.catalogue, &record.key, slot) == 0 || !take_region(&region)) {
		*slot = SLOTS;
		return;
	}
	memset(metadata, (int)(stamp & 0xff), sizeof(metadata));
	fill(region, stamp);
	record.range.offset = region;
	if (sl_catalogue_insert(server.catalogue, &record, sealed, slot)) {
		*slot = SLOTS;
		recycle(region);
		return;
	}
	atomic_fetch_add(&stress->made, 1);
}

static void make_several(void)
{
	uint32_t slots[3], slot;
	size_t count = 0;

	for (unsigned i = 0; i < COUNT_OF(slots); i++) {
		make(false, &slot);
		if (slot < SLOTS)
			slots[count++] = slot;
	}
	if (sl_catalogue_seal(server.catalogue, slots, count))
		stress_fail("what was made cannot be sealed");
}

static void bring_back(uint32_t slot)
{
	unsigned old = region_of(slot), region;
	struct sl_blob_record record;

	sl_catalogue_record(server.catalogue, slot, &record);
	if (take_region(&region)) {
		fill(region, record.range.memory);
		record.range.offset = region;
	} else {
		region = old;
	}
	if (sl_catalogue_move(server.catalogue, slot, &record.range, true))
		stress_fail("slot %u cannot be moved", slot);
	if (region != old)
		recycle(old);
	atomic_fetch_add(&stress->moved, 1);
}

static void left(void *argument, uint32_t slot, enum sl_left what)
{
	(void)argument;
	if (what == SL_LEFT_GONE) {
		recycle(region_of(slot));
		atomic_fetch_add(&stress->gone, 1);
	} else if (what == SL_LEFT_STAYS) {
		atomic_fetch_add(&stress->stayed, 1);
	}
}

static void sweep(void)
{
	sl_catalogue_sweep(server.catalogue, left, NULL);
	for (uint32_t slot = 0; slot < sl_catalogue_end(server.catalogue); slot++)
		if (sl_catalogue_state(server.catalogue, slot) == SL_ENTRY_AWAY)
			bring_back(slot);
}

static void one_step(void)
{
	char name[16];
	struct sl_blob_key key = {
		.name = name,
		.length = (size_t)snprintf(name, sizeof(name), "n%u", (unsigned)below(NAMES))};
	uint32_t slot;

	switch (below(6)) {
	case 0:
	case 1:
		make(true, &slot);
		break;
	case 2:
		make_several();
		break;
	case 3:
	case 4:
		if (sl_catalogue_find(server.catalogue, &key, &slot) == 0)
			sl_catalogue_delete(server.catalogue, slot);
		if (below(2))
			sweep();
		break;
	default:
		if (sl_catalogue_find(server.catalogue, &key, &slot) == 0)
			sl_catalogue_withdraw(server.catalogue, slot);
		sweep();
		sl_catalogue_tick(server.catalogue);
		break;
	}
	if (below(4) == 0)
		stress_pause();
}

/* Memory is in use if a record says so. An OPEN one is nobody's: the one who made it is dead. */
static void take_over(struct sl_segment *segment)
{
	unsigned broken = 0;

	if (sl_catalogue_open(segment, &broken, &server.catalogue) || broken)
		stress_fail("%u records are broken", broken);
	for (unsigned i = 0; i < READERS; i++)
		sl_catalogue_join(server.catalogue, server.references[i]);
	memset(server.used, 0, sizeof(server.used));
	for (uint32_t slot = 0; slot < sl_catalogue_end(server.catalogue); slot++) {
		enum sl_entry_state state = sl_catalogue_state(server.catalogue, slot);

		if (state == SL_ENTRY_FREE)
			continue;
		if (server.used[region_of(slot)])
			stress_fail("two blobs are in region %u", region_of(slot));
		server.used[region_of(slot)] = true;
		if (state == SL_ENTRY_OPEN)
			sl_catalogue_delete(server.catalogue, slot);
	}
	atomic_fetch_add(&stress->servers, 1);
}

static void map_all(struct sl_segment **segment)
{
	*segment = stress->segment;
	for (unsigned i = 0; i < READERS; i++)
		server.references[i] = stress->references[i];
	if (stress->threads)
		return;
	if (sl_segment_map(stress->segment_fd, true, segment))
		stress_fail("the segment cannot be mapped");
	for (unsigned i = 0; i < READERS; i++)
		if (sl_references_map(stress->references_fds[i], true, &server.references[i]))
			stress_fail("references cannot be mapped");
}

void stress_serve(void)
{
	struct sl_segment *segment;

	server.random = stress->seed + atomic_load(&stress->servers);
	map_all(&segment);
	while (!atomic_load(&stress->stop)) {
		take_over(segment);
		for (unsigned i = 0; i < 20000 && !atomic_load(&stress->stop); i++)
			one_step();
		sl_catalogue_close(server.catalogue);
	}
}
