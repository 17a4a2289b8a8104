/* SPDX-License-Identifier: Apache-2.0 */
/* What a new server makes of what a server before has left, where a client has done what the library does not. */
#include <unistd.h>

#include "catalogue/layout.h"
#include "lib/protocol_client.h"

#define ON_HOST SLUICE_BLOB_ON_HOST

/* The slot of the entry that is being made, as there is one. */
static uint32_t open_slot(const struct raw *c)
{
	const struct sl_segment *segment = c->reader.segment;

	for (uint32_t slot = 0; slot < sl_segment_slots(segment); slot++)
		if (sl_word_state(segment->entries[slot].word) == SL_ENTRY_OPEN)
			return slot;
	fail_msg("nothing is being made");
	return 0;
}

/* As a get does, though there is nothing to be had. */
static void hold_what_is_open(struct raw *c)
{
	uint32_t slot = open_slot(c), position;
	uint64_t generation = sl_word_generation(c->reader.segment->entries[slot].word);

	assert_int_equal(sl_references_claim(c->reader.references, sl_reference(generation, slot),
	                                     &position),
	                 0);
}

DAEMON_TEST(abandoned_request_takes_no_place_from_later_requests)
{
	struct raw *c = raw_new(d);
	struct sl_lease leases[2 * SL_ITEMS_MOST], next[2 * SL_ITEMS_MOST];
	struct sl_found_item found;
	struct sluice_store_counts stats;

	assert_true(raw_create(c, -1, ON_HOST, 100, SLUICE_BLOB_RESERVE, "reserved", leases) > 1);
	/* So its entry stays for a while after it. */
	hold_what_is_open(c);
	raw_tell(c, SL_MSG_ABORT, leases[0].id);
	assert_true(raw_create(c, -1, ON_HOST, 100, 0, "", next) > 0);
	assert_int_equal(next[0].place.region, leases[0].place.region);
	assert_int_equal(next[0].place.offset, leases[0].place.offset);
	assert_int_equal(raw_seal(c, &next[0], "sealed", 100, 0, 0, &found), 0);
	daemon_replace_server(d);
	assert_int_equal(sluice_blob_exists(d->store, "sealed"), 1);
	stats = stats_of(d->store);
	assert_int_equal(stats.sealed, 1);
	assert_int_equal(stats.blob_bytes, 4096);
	assert_ok(sluice_blob_delete(d->store, "sealed"));
	raw_hang_up(c);
	free(c);
}

DAEMON_MAIN("64M")
