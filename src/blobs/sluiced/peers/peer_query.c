/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Queries: stat, list, statistics, and pin.
 *
 * On the server's thread.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "sluiced/blobs/blobs.h"
#include "sluiced/memory/devices.h"
#include "sluiced/peers/peers.h"
#include "sluiced/spill/spill.h"

/* Entries examined for an answer to a list. */
#define LOOKS 4096

static int query_find(const struct sl_server *server, uint32_t *slot)
{
	const struct sl_key *key = &server->in.one.key;

	if (!sl_key_find(server, key, slot))
		return 0;
	return key->id ? sl_fail(-ENOENT, "there is no blob with id %" PRIu64, key->id)
	               : sl_fail(-ENOENT, "'%s' is not there", key->name);
}

int sl_handle_pin(struct sl_server *server, struct sl_peer *peer)
{
	uint32_t slot, flags;
	int rc = query_find(server, &slot);

	/* Sent again, it is for the blob that has the name, if that has replaced its own. */
	if (rc && server->in.one.first)
		rc = sl_delete_fate(server, server->in.one.key.id, UINT64_MAX, false);
	if (rc)
		return rc;
	/* It is pinned as soon as it is back in memory. */
	if (server->in.one.on && sl_catalogue_state(server->catalogue, slot) == SL_ENTRY_AWAY)
		return sl_get_await(server, peer);
	flags = sl_blob_record_at(server, slot).flags & ~(uint32_t)SLUICE_BLOB_PIN;
	flags |= server->in.one.on ? SLUICE_BLOB_PIN : 0;
	sl_catalogue_set_flags(server->catalogue, slot, flags);
	if (sl_catalogue_state(server->catalogue, slot) != SL_ENTRY_OPEN)
		sl_blob_relist(server, slot);
	sl_spill_look(server);
	return sl_peer_done(server, peer, server->in.head.serial);
}

/* --------------------------------------------------------------------------------- stat, list */

static unsigned query_holders(struct sl_server *server, uint32_t slot)
{
	unsigned count = 0;

	sl_list_each_of (peer, &server->peers->live, const struct sl_peer, link)
		if (peer->references &&
		    sl_catalogue_references(server->catalogue, slot, peer->references))
			count++;
	return count;
}

/* Adds the parts of a blob to its description. */
static void query_add_parts(const struct sl_server *server, uint32_t slot,
                            struct sluice_blob_info *out)
{
	uint32_t first = server->blobs->by_slot[slot].part;

	if (!first)
		return;
	sl_parts_each (part, server, slot)
		out->parts++;
	out->memory = sl_parts_memory(server, slot, SL_DEVICE_ANY);
	out->device = sl_blob_record_at(server, first - 1).range.device;
}

static void query_describe(const struct sl_server *server, uint32_t slot,
                           struct sluice_blob_info *out)
{
	enum sl_entry_state state = sl_catalogue_state(server->catalogue, slot);
	const struct sl_region *region = server->blobs->by_slot[slot].region;
	struct sl_blob_record record = sl_blob_record_at(server, slot);

	*out = (struct sluice_blob_info){
		.id = record.key.id,
		.bytes = sl_blob_bytes(server, slot),
		.memory = region && !region->away ? sl_region_range_bytes(region) : 0,
		.made_ns = sl_record_made_ns(&record),
		.device = record.range.device,
		.kind = record.range.kind,
		.state = state == SL_ENTRY_OPEN    ? SLUICE_BLOB_IS_CREATED
	                 : state == SL_ENTRY_DYING ? SLUICE_BLOB_IS_DYING
	                 : state == SL_ENTRY_AWAY  ? SLUICE_BLOB_IS_SPILLED
	                                           : SLUICE_BLOB_IS_SEALED,
		.flags = record.flags,
		.user = record.uid,
		.process = (int32_t)(record.creator >> 42)};
	memcpy(out->name, record.key.name, record.key.length);
	query_add_parts(server, slot, out);
	strcpy(out->place, sl_server_place(server, out->device));
}

int sl_handle_stat(struct sl_server *server, struct sl_peer *peer)
{
	uint32_t slot;
	int rc = query_find(server, &slot);

	if (rc)
		return rc;
	sl_message_begin(&server->out, SL_MSG_INFO, server->in.head.serial, 1);
	query_describe(server, slot, &server->out.info.items[0]);
	server->out.info.items[0].holders = query_holders(server, slot);
	return sl_peer_send(server, peer, &server->out, -1);
}

static bool query_is_listed(const struct sl_server *server, uint32_t slot, const char *prefix)
{
	size_t length = strlen(prefix);
	struct sl_blob_record record;

	if (sl_catalogue_state(server->catalogue, slot) == SL_ENTRY_FREE ||
	    sl_blob_is_part(server, slot))
		return false;
	record = sl_blob_record_at(server, slot);
	return record.key.length >= length && !memcmp(record.key.name, prefix, length);
}

/*
 * Handles SL_MSG_LIST. The cursor is the next slot. Examines only some entries at a time, so that
 * other requests need not wait.
 */
int sl_handle_list(struct sl_server *server, struct sl_peer *peer)
{
	const struct sl_msg_list *request = &server->in.list;
	unsigned most = SL_MIN(request->most, SL_ITEMS_MOST), count = 0, looks = 0;
	uint64_t next = 0;

	sl_message_begin(&server->out, SL_MSG_INFO, request->head.serial, most);
	for (uint64_t at = request->cursor; !next && at < server->blobs->top; at++) {
		if (looks++ == LOOKS || count == most)
			next = at;
		else if (query_is_listed(server, (uint32_t)at, request->prefix))
			query_describe(server, (uint32_t)at, &server->out.info.items[count++]);
	}
	server->out.info.next = next;
	server->out.head.count = count;
	server->out.head.bytes =
		(uint32_t)(sizeof(server->out.info) + count * sizeof(server->out.info.items[0]));
	return sl_peer_send(server, peer, &server->out, -1);
}

/* --------------------------------------------------------------------------------------- stats */

int sl_handle_stats(struct sl_server *server, struct sl_peer *peer)
{
	struct sluice_store_counts *out = &server->out.counts.stats;
	uint64_t trimmed = 0;

	if (server->in.head.type == SL_MSG_TRIM) {
		sl_blob_sweep(server);
		trimmed = sl_regions_reclaim(server, UINT64_MAX);
	}
	sl_message_begin(&server->out, SL_MSG_COUNTS, server->in.head.serial, 0);
	server->out.counts.trimmed = trimmed;
	*out = server->counts;
	out->memory_limit = server->settings->memory_bytes;
	out->warm_bytes = out->memory_bytes - out->blob_bytes - out->leased_bytes;
	out->replacements = atomic_load(&server->descriptors->ledger->epoch) - 1;
	out->up_ns = (uint64_t)(sl_now() - server->begun);
	out->spill_limit = server->spill ? server->settings->spill_bytes : 0;
	out->upgrades = atomic_load(&server->descriptors->ledger->upgrades);
	out->server = (uint64_t)getpid();
	out->supervisor = server->alone ? 0 : (uint64_t)server->descriptors->other;
	snprintf(out->version, sizeof(out->version), "%s", SLUICE_VERSION);
	return sl_peer_send(server, peer, &server->out, -1);
}
