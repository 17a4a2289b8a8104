/* SPDX-License-Identifier: Apache-2.0 */
/* What the server tells about blobs and about itself, and to watchers. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "sluiced/spill.h"

/* At entries, for one answer of a list. */
#define LOOKS 4096

static int find(const struct sl_server *server, uint32_t *slot)
{
	const struct sl_key *key = &server->in.one.key;

	if (!sl_key_find(server, key, slot))
		return 0;
	return key->id ? sl_fail(-ENOENT, "there is no blob with id %" PRIu64, key->id)
	               : sl_fail(-ENOENT, "'%s' is not there", key->name);
}

int sl_delete(struct sl_server *server, struct sl_peer *peer)
{
	uint32_t slot;
	int rc = find(server, &slot);

	if (!rc && sl_catalogue_state(server->catalogue, slot) == SL_ENTRY_OPEN)
		rc = sl_fail(-ENOENT, "'%s' is not sealed yet", server->in.one.key.name);
	if (rc)
		return rc;
	sl_blob_delete(server, slot);
	sl_store_step("server: deleted");
	return sl_peer_done(server, peer, server->in.head.serial);
}

int sl_pin(struct sl_server *server, struct sl_peer *peer)
{
	uint32_t slot, flags;
	int rc = find(server, &slot);

	if (rc)
		return rc;
	/* It is pinned when it is there. */
	if (server->in.one.on && sl_catalogue_state(server->catalogue, slot) == SL_ENTRY_AWAY)
		return sl_get_await(server, peer);
	flags = sl_blob_record(server, slot).flags & ~(uint32_t)SLUICE_BLOB_PIN;
	flags |= server->in.one.on ? SLUICE_BLOB_PIN : 0;
	sl_catalogue_set_flags(server->catalogue, slot, flags);
	if (sl_catalogue_state(server->catalogue, slot) != SL_ENTRY_OPEN)
		sl_blob_mark(server, slot);
	sl_spill_look(server);
	return sl_peer_done(server, peer, server->in.head.serial);
}

/* --------------------------------------------------------------------------------- stat, list */

static unsigned holders_of(struct sl_server *server, uint32_t slot)
{
	unsigned count = 0;

	sl_list_each_of (peer, &server->peers, const struct sl_peer, link)
		if (peer->references &&
		    sl_catalogue_holds(server->catalogue, slot, peer->references))
			count++;
	return count;
}

static void describe(const struct sl_server *server, uint32_t slot, struct sluice_blob_info *out)
{
	enum sl_entry_state state = sl_catalogue_state(server->catalogue, slot);
	const struct sl_region *region = server->blobs[slot].region;
	struct sl_blob_record record = sl_blob_record(server, slot);

	*out = (struct sluice_blob_info){
		.id = record.key.id,
		.bytes = record.size,
		.memory = region && !region->away ? sl_region_range_bytes(region) : 0,
		.made_ns = sl_record_made_ns(&record),
		.device = record.place.device,
		.kind = record.place.kind,
		.state = state == SL_ENTRY_OPEN    ? SLUICE_BLOB_IS_CREATED
	                 : state == SL_ENTRY_DYING ? SLUICE_BLOB_IS_DYING
	                 : state == SL_ENTRY_AWAY  ? SLUICE_BLOB_IS_SPILLED
	                                           : SLUICE_BLOB_IS_SEALED,
		.flags = record.flags,
		.user = record.uid,
		.process = (int32_t)(record.creator >> 42)};
	memcpy(out->name, record.key.name, record.key.length);
	strcpy(out->place, sl_server_place(server, record.place.device));
}

int sl_stat(struct sl_server *server, struct sl_peer *peer)
{
	uint32_t slot;
	int rc = find(server, &slot);

	if (rc)
		return rc;
	sl_message_begin(&server->out, SL_MSG_INFO, server->in.head.serial, 1);
	describe(server, slot, &server->out.info.items[0]);
	server->out.info.items[0].holders = holders_of(server, slot);
	return sl_peer_send(server, peer, &server->out, -1);
}

static bool is_listed(const struct sl_server *server, uint32_t slot, const char *prefix)
{
	size_t length = strlen(prefix);
	struct sl_blob_record record;

	if (sl_catalogue_state(server->catalogue, slot) == SL_ENTRY_FREE)
		return false;
	record = sl_blob_record(server, slot);
	return record.key.length >= length && !memcmp(record.key.name, prefix, length);
}

/* The cursor is the next slot to look at. Looks at a part of them only, so that others need not wait for it. */
int sl_list(struct sl_server *server, struct sl_peer *peer)
{
	const struct sl_msg_list *request = &server->in.list;
	unsigned most = SL_MIN(request->most, SL_ITEMS_MOST), count = 0, looks = 0;
	uint64_t next = 0;

	sl_message_begin(&server->out, SL_MSG_INFO, request->head.serial, most);
	for (uint64_t at = request->cursor; !next && at < server->top; at++) {
		if (looks++ == LOOKS || count == most)
			next = at;
		else if (is_listed(server, (uint32_t)at, request->prefix))
			describe(server, (uint32_t)at, &server->out.info.items[count++]);
	}
	server->out.info.next = next;
	server->out.head.count = count;
	server->out.head.bytes =
		(uint32_t)(sizeof(server->out.info) + count * sizeof(server->out.info.items[0]));
	return sl_peer_send(server, peer, &server->out, -1);
}

/* --------------------------------------------------------------------------------------- stats */

int sl_stats(struct sl_server *server, struct sl_peer *peer)
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
	out->memory_bytes = server->memory_bytes;
	out->blob_bytes = server->blob_bytes;
	out->leased_bytes = server->leased_bytes;
	out->warm_bytes = server->memory_bytes - server->blob_bytes - server->leased_bytes;
	out->created = server->created;
	out->sealed = server->sealed;
	out->dying = server->dying;
	out->clients = server->peer_count;
	out->waiting = server->waiting;
	out->replacements = atomic_load(&server->descriptors->ledger->turns) - 1;
	out->up_ns = (uint64_t)(sl_now() - server->begun);
	if (server->spill) {
		out->spilled = server->spill->blobs;
		out->spilled_bytes = server->spill->bytes;
		out->spill_limit = server->settings->spill_bytes;
		out->spills = server->spill->left;
		out->returns = server->spill->returned;
		out->spill_failures = server->spill->failed;
	}
	out->upgrades = atomic_load(&server->descriptors->ledger->upgrades);
	out->server = (uint64_t)getpid();
	out->supervisor = server->alone ? 0 : (uint64_t)server->descriptors->other;
	snprintf(out->version, sizeof(out->version), "%s", SLUICE_VERSION);
	return sl_peer_send(server, peer, &server->out, -1);
}

/* --------------------------------------------------------------------------------------- watch */

void sl_watch_tell(struct sl_server *server, uint32_t slot, enum sluice_watch_kind kind)
{
	struct sl_blob_record record;
	union sl_message *m = &server->event;

	if (!server->watchers)
		return;
	record = sl_blob_record(server, slot);
	if (!record.key.length)
		return;
	sl_message_begin(m, SL_MSG_EVENT, 0, 0);
	m->event.item.kind = kind;
	m->event.item.id = record.key.id;
	m->event.item.bytes = record.size;
	memcpy(m->event.item.name, record.key.name, record.key.length);
	sl_list_each_of (peer, &server->peers, struct sl_peer, link) {
		size_t length = strlen(peer->prefix);

		if (peer->role != SL_ROLE_WATCH || peer->fd < 0 || record.key.length < length ||
		    memcmp(record.key.name, peer->prefix, length))
			continue;
		sl_peer_tell(server, peer, m);
	}
}
