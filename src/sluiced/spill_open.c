/* SPDX-License-Identifier: Apache-2.0 */
/* How spilling begins, and what a server finds of it that another one has left. */
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "sluiced/spill.h"

int sl_spill_start(struct sl_server *server)
{
	struct sl_spill *spill;

	if (!server->settings->spill[0])
		return 0;
	spill = calloc(1, sizeof(*spill));
	if (!spill)
		return sl_fail(-ENOMEM, "no memory");
	spill->source.kind = SL_SOURCE_MOVERS;
	spill->look_at = SL_FOREVER;
	sl_list_init(&spill->copies);
	server->spill = spill;
	return sl_movers_start(spill, server->settings->spill);
}

int sl_spill_adopt(struct sl_server *server, uint32_t row)
{
	const struct sl_kept *kept = &server->vault->ledger->rows[row];
	struct sl_region *region = sl_region_find(server, kept->region);
	struct sl_copy *copy;
	int rc;

	if (!server->spill || (region && region->copy))
		return sl_fail(-EBADMSG, "a copy too many");
	copy = calloc(1, sizeof(*copy));
	if (!copy)
		return sl_fail(-ENOMEM, "no memory");
	rc = region ? 0 : sl_region_open_away(server, row, &region);
	if (rc) {
		free(copy);
		return rc;
	}
	copy->region = region;
	copy->row = row;
	copy->file = -1;
	region->copy = copy;
	sl_list_append(&server->spill->copies, &copy->link);
	return 0;
}

static uint64_t in_state(const struct sl_server *server, const struct sl_region *region,
                         enum sl_entry_state state)
{
	uint64_t found = 0;

	for (unsigned i = 0; i < region->ranges; i++)
		if (region->slots[i] != SL_NO_SLOT &&
		    sl_catalogue_state(server->catalogue, region->slots[i]) == state)
			found |= UINT64_C(1) << i;
	return found;
}

/* They were on their way out, and nothing of the memory was given up. */
static void keep(struct sl_server *server, struct sl_region *region, uint64_t away)
{
	struct sl_blob_record record;

	for (unsigned i = 0; i < region->ranges; i++)
		if (away >> i & 1) {
			sl_catalogue_record(server->catalogue, region->slots[i], &record);
			sl_catalogue_move(server->catalogue, region->slots[i], &record.place, true);
		}
}

static void settle(struct sl_server *server, struct sl_region *region)
{
	uint64_t away = in_state(server, region, SL_ENTRY_AWAY);
	bool sealed = in_state(server, region, SL_ENTRY_SEALED) != 0;

	if (away && !region->away && (sealed || !region->copy))
		keep(server, region, away);
	else if (away && !region->away)
		sl_region_leave(server, region);
	if (!region->copy)
		return;
	region->copy->ranges = region->used;
	region->copy->bytes = sl_region_used_bytes(region);
	server->spill->bytes += region->copy->bytes;
	if (region->away)
		server->spill->blobs += (unsigned)__builtin_popcountll(region->used);
}

void sl_spill_settle(struct sl_server *server)
{
	for (unsigned i = 0; i < SL_BUCKETS; i++)
		sl_list_each (link, &server->regions[i])
			settle(server, SL_CONTAINER(link, struct sl_region, bucket));
}
