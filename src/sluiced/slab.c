/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What of a region's memory is there, and counts. That is all of it while somebody makes blobs in it. In a slab without a
 * writer nothing is made any more: its free ranges are given back, and only what is used counts.
 */
#include "sluiced/spill.h"

/* Each range that there is. */
static uint64_t all_of(const struct sl_region *region)
{
	return region->ranges == 64 ? UINT64_MAX : (UINT64_C(1) << region->ranges) - 1;
}

bool sl_region_full(const struct sl_region *region)
{
	return region->used == all_of(region);
}

uint64_t sl_region_counted(const struct sl_region *region)
{
	return (unsigned)__builtin_popcountll(region->there) * sl_region_range_bytes(region);
}

void sl_region_count(struct sl_server *server, struct sl_region *region)
{
	region->there = all_of(region);
	server->memory_bytes += region->bytes;
}

/* These of its ranges are not there any more. */
static void uncount(struct sl_server *server, struct sl_region *region, uint64_t ranges)
{
	uint64_t before = sl_region_counted(region);

	region->there &= ~ranges;
	server->memory_bytes -= before - sl_region_counted(region);
	sl_spill_look(server);
}

void sl_region_give_memory(struct sl_server *server, struct sl_region *region)
{
	/* All, because who is unknown to this server may have written to what was given back before. */
	sl_memory_release(server, sl_descriptors_fd(server->descriptors, region->row),
	                  sl_region_range_bytes(region), all_of(region));
	uncount(server, region, region->there);
}

void sl_region_trim(struct sl_server *server, struct sl_region *region)
{
	uint64_t vain = region->there & ~region->used;

	if (region->device >= 0 || region->away || !region->range_bytes || region->writer || !vain)
		return;
	sl_memory_release(server, sl_descriptors_fd(server->descriptors, region->row),
	                  region->range_bytes, vain);
	uncount(server, region, vain);
}
