/* SPDX-License-Identifier: Apache-2.0 */
/*
 * New regions, and the room for them: what is kept, evicted and spilled when memory is short.
 *
 * On the server's thread.
 */
#include <errno.h>
#include <inttypes.h>
#include <unistd.h>

#include "sluiced/blobs/blobs.h"
#include "sluiced/memory/devices.h"
#include "sluiced/peers/peers.h"
#include "sluiced/spill/spill.h"
#include "sluiced/waits/waits.h"

#define ROWS_LEFT_PART 16

int sl_room_make(struct sl_server *server, uint64_t bytes)
{
	uint64_t all = server->settings->memory_bytes;
	char holders[SL_TEXT_BYTES / 4], trouble[SL_TEXT_BYTES / 2];
	int rc = bytes <= all; /* nothing is evicted for a request that can never be met */

	if (sl_room_must_queue(server))
		return -EINPROGRESS;
	/* A sweep frees deleted and released blobs before anything else is evicted. */
	if (server->counts.memory_bytes + bytes > all && server->blobs->sweep_due)
		sl_blob_sweep(server);
	while (rc > 0 && server->counts.memory_bytes + bytes > all) {
		uint64_t over = server->counts.memory_bytes + bytes - all;

		if (!sl_regions_reclaim(server, over) && !sl_blob_evict(server, -1, over))
			rc = sl_spill_room(server, over);
	}
	if (rc < 0)
		return rc;
	if (server->counts.memory_bytes + bytes <= all)
		return 0;
	sl_spill_trouble(server, trouble, sizeof(trouble));
	sl_holders_text(server, -1, holders, sizeof(holders));
	return sl_fail(-ENOSPC,
	               "%" PRIu64 " bytes are needed, %" PRIu64 " of %" PRIu64
	               " (--memory) are in use%s%s",
	               bytes, server->counts.memory_bytes, all, holders, trouble);
}

/* Some rows are reserved for clients, copies and returning regions. */
static bool region_rows_are_short(const struct sl_descriptors *descriptors)
{
	return descriptors->ledger->most - descriptors->count <=
	       descriptors->ledger->most / ROWS_LEFT_PART;
}

/* Frees kept regions and caches until a region can have a row. 0, or -ENFILE with a sentence. */
static int region_admit(struct sl_server *server)
{
	uint64_t bytes = 1;

	/* Caches may share regions with other blobs: each pass evicts more of them. */
	while (region_rows_are_short(server->descriptors) &&
	       (sl_regions_reclaim(server, 1) || sl_blob_evict(server, -1, bytes)))
		bytes *= 2;
	if (!region_rows_are_short(server->descriptors))
		return 0;
	return sl_fail(-ENFILE, "no descriptor is left for one more piece of memory (the daemon's "
	                        "limit of open files)");
}

/* Makes a memfd in the descriptor table and opens it as a region. */
static int region_new_of_host(struct sl_server *server, const struct sl_ledger_row *saved,
                              struct sl_region **out)
{
	uint32_t row;
	int fd, rc = sl_region_memfd(saved->bytes, &fd);

	if (rc)
		return rc;
	rc = sl_descriptors_put(server->descriptors, saved, fd, &row);
	if (rc) {
		close(fd);
		return rc;
	}
	sl_store_step("server: region in the descriptor table");
	rc = sl_region_open(server, row, out);
	if (rc)
		sl_descriptors_drop(server->descriptors, row);
	return rc;
}

int sl_region_new(struct sl_server *server, struct sl_peer *peer, const struct sl_wanted *wanted,
                  struct sl_region **out)
{
	bool small = sl_wanted_small(wanted), host = wanted->device < 0;
	uint64_t range = sl_wanted_range_bytes(wanted);
	struct sl_ledger_row saved = {.kind = SL_KIND_REGION,
	                              .bytes = range,
	                              .session = peer->session,
	                              .range_bytes = small ? (uint32_t)range : 0,
	                              .device = wanted->device,
	                              .memory = wanted->kind};
	int rc = 0;

	if (small)
		saved.bytes = host ? range * SL_RANGES_MOST : SL_DEVICE_UNIT;
	if (host)
		rc = sl_room_make(server, saved.bytes);
	else if (wanted->kind == SLUICE_BLOB_ON_DEVICE)
		rc = sl_device_make_room(server, wanted->device, saved.bytes);
	if (!rc)
		rc = region_admit(server);
	if (!rc && host)
		rc = region_new_of_host(server, &saved, out);
	else if (!rc)
		rc = sl_region_add(server, &saved, sl_descriptors_number(server->descriptors), out);
	if (rc)
		return rc;
	sl_region_set_writer(*out, peer);
	if (host) {
		sl_spill_ahead(server);
	} else {
		sl_region_count(server, *out);
		sl_device_may_map(server, peer);
	}
	return 0;
}
