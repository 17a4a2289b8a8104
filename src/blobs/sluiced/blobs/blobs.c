/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Blobs: the entries of the catalogue, as the server knows them.
 *
 * Finds blobs, and evicts those that may go: transient blobs when nobody holds them, caches when
 * memory is short. A sweep over the references of all clients says which blobs
 * are held. On the server's thread.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <syslog.h>

#include "sluiced/blobs/blobs.h"
#include "sluiced/memory/memory.h"
#include "sluiced/peers/peers.h"
#include "sluiced/supervisor/supervisor.h"

static uint32_t *blob_bucket(const struct sl_server *server, uint64_t id)
{
	return &server->blobs->by_id[id % sl_segment_slots(server->blobs->segment)];
}

void sl_blob_add(struct sl_server *server, uint32_t slot, uint64_t id)
{
	uint32_t *first = blob_bucket(server, id);

	server->blobs->by_slot[slot].id = id;
	server->blobs->by_slot[slot].next = *first;
	*first = slot;
}

static void blob_remove(struct sl_server *server, uint32_t slot)
{
	uint32_t *at = blob_bucket(server, server->blobs->by_slot[slot].id);

	while (*at != slot)
		at = &server->blobs->by_slot[*at].next;
	*at = server->blobs->by_slot[slot].next;
	server->blobs->by_slot[slot] = (struct sl_blob){0};
}

uint32_t sl_blob_by_id(const struct sl_server *server, uint64_t id)
{
	uint32_t slot = *blob_bucket(server, id);

	while (slot != SL_NO_SLOT && server->blobs->by_slot[slot].id != id)
		slot = server->blobs->by_slot[slot].next;
	return slot;
}

static void blob_unlist(struct sl_server *server, uint32_t slot)
{
	struct sl_list *link = &server->blobs->by_slot[slot].loose;

	if (!sl_list_linked(link))
		return;
	sl_list_remove(link);
	server->blobs->loose_count--;
}

void sl_blob_relist(struct sl_server *server, uint32_t slot)
{
	struct sl_blob_record record = sl_blob_record_at(server, slot);
	struct sl_list *list = NULL;

	blob_unlist(server, slot);
	if (record.flags & SLUICE_BLOB_TRANSIENT)
		list = &server->blobs->transients;
	else if (record.flags & SLUICE_BLOB_CACHE && record.range.kind != SLUICE_BLOB_OF_PROCESS)
		list = &server->blobs->caches;
	if (!list || record.flags & SLUICE_BLOB_PIN)
		return;
	sl_list_append(list, &server->blobs->by_slot[slot].loose);
	server->blobs->loose_count++;
}

int sl_key_find(const struct sl_server *server, const struct sl_key *key, uint32_t *out)
{
	struct sl_blob_key wanted = {.name = key->name, .length = strlen(key->name)};
	uint32_t slot;
	int rc = 0;

	if (key->id)
		slot = sl_blob_by_id(server, key->id);
	else
		rc = sl_catalogue_find(server->catalogue, &wanted, &slot);
	if (rc || slot == SL_NO_SLOT ||
	    sl_catalogue_state(server->catalogue, slot) == SL_ENTRY_DYING ||
	    sl_blob_is_part(server, slot))
		return -ENOENT;
	*out = slot;
	return 0;
}

int sl_key_refuse(const struct sl_key *key, int error, const char *why)
{
	if (!key->name[0])
		return sl_fail(error, "the blob with id %llu %s", (unsigned long long)key->id, why);
	return sl_fail(error, "'%s' %s", key->name, why);
}

void sl_blob_report(struct sl_server *server, uint32_t slot, const char *why)
{
	struct sl_blob_record record = sl_blob_record_at(server, slot);
	char name[SL_NAME_BYTES] = "";

	/* A record that is not right has no name. */
	if (record.key.name)
		memcpy(name, record.key.name, SL_MIN(record.key.length, sizeof(name) - 1));
	if (sl_name_check(name, sizeof(name), true))
		for (char *c = name; *c; c++)
			*c = *c >= ' ' && *c <= '~' ? *c : '?';
	sl_report(LOG_WARNING, "the blob '%s' (id %" PRIu64 ", entry %u) is dropped: %s", name,
	          record.key.id, slot, why);
}

static uint64_t blob_memory(const struct sl_server *server, uint32_t slot, int32_t device)
{
	const struct sl_region *region = server->blobs->by_slot[slot].region;

	if (!region || region->away || (device != SL_DEVICE_ANY && region->device != device))
		return 0;
	return sl_region_range_bytes(region);
}

uint64_t sl_parts_memory(const struct sl_server *server, uint32_t slot, int32_t device)
{
	uint64_t bytes = blob_memory(server, slot, device);

	sl_parts_each (part, server, slot)
		bytes += blob_memory(server, part, device);
	return bytes;
}

/* ------------------------------------------------------------------------------------- sweep */

void sl_blob_forget(struct sl_server *server, uint32_t slot)
{
	bool open = sl_catalogue_state(server->catalogue, slot) == SL_ENTRY_OPEN;

	if (sl_catalogue_delete(server->catalogue, slot))
		return;
	blob_unlist(server, slot);
	*(open ? &server->counts.created : &server->counts.sealed) -= 1;
	server->counts.dying++;
	server->blobs->sweep_due = true;
}

/* Deletes the parts of a freed owner. No client holds a part: the same sweep frees them. */
static void blob_forget_parts(struct sl_server *server, uint32_t owner)
{
	if (sl_blob_is_part(server, owner))
		return;
	sl_parts_each (part, server, owner) {
		/* It stays a part, which no key finds, until it is freed. */
		server->blobs->by_slot[part].owner = part + 1;
		sl_blob_forget(server, part);
		sl_store_step("server: a part is deleted");
	}
}

static void blob_left(void *argument, uint32_t slot, enum sl_left what)
{
	struct sl_server *server = argument;
	struct sl_blob *blob = &server->blobs->by_slot[slot];

	if (what != SL_LEFT_GONE)
		return;
	server->counts.dying--;
	blob_forget_parts(server, slot);
	if (blob->region) {
		if (!blob->region->away)
			server->counts.blob_bytes -= sl_region_host_bytes(blob->region);
		sl_range_free(server, blob->region, blob->range);
	}
	blob_remove(server, slot);
}

static int candidate_compare(const void *a, const void *b)
{
	const struct sl_candidate *x = a, *y = b;

	if (x->idle != y->idle)
		return x->idle < y->idle ? 1 : -1;
	if (x->stamp != y->stamp)
		return x->stamp < y->stamp ? -1 : 1;
	return x->follows - y->follows;
}

void sl_candidates_sort(struct sl_candidate *candidates, size_t count)
{
	if (count)
		qsort(candidates, count, sizeof(*candidates), candidate_compare);
}

static unsigned blob_candidates(struct sl_server *server, const struct sl_list *list,
                                int32_t device, struct sl_candidate *out)
{
	unsigned count = 0;

	sl_list_each_of (blob, list, const struct sl_blob, loose) {
		uint32_t slot = (uint32_t)(blob - server->blobs->by_slot);

		if (sl_catalogue_state(server->catalogue, slot) == SL_ENTRY_SEALED &&
		    sl_catalogue_held(server->catalogue, slot) == SL_HELD_NOT &&
		    sl_parts_memory(server, slot, device))
			out[count++] = (struct sl_candidate){
				.slot = slot,
				.region = blob->region,
				.idle = sl_catalogue_idle(server->catalogue, slot)};
	}
	sl_candidates_sort(out, count);
	return count;
}

/*
 * Deletes those blobs of the list that nobody holds, the least recently used first, until so many
 * bytes are free. Called after a sweep. Returns how many were deleted.
 *
 * No get succeeds after the withdrawal; the sweep makes those SEALED again that are held.
 */
static unsigned blob_delete_unheld(struct sl_server *server, const struct sl_list *list,
                                   int32_t device, uint64_t bytes)
{
	struct sl_candidate *candidates =
		malloc((server->blobs->loose_count + 1) * sizeof(*candidates));
	unsigned count = 0, chosen = 0, gone = 0;
	uint64_t asked = 0;

	if (candidates)
		count = blob_candidates(server, list, device, candidates);
	for (; chosen < count && asked < bytes; chosen++) {
		asked += sl_parts_memory(server, candidates[chosen].slot, device);
		sl_catalogue_withdraw(server->catalogue, candidates[chosen].slot);
	}
	if (chosen) {
		sl_store_step("server: unheld are withdrawn");
		sl_catalogue_sweep(server->catalogue, blob_left, server);
		sl_store_step("server: nobody holds them");
	}
	for (unsigned i = 0; i < chosen; i++) {
		if (sl_catalogue_state(server->catalogue, candidates[i].slot) != SL_ENTRY_AWAY)
			continue;
		sl_watchers_notify(server, candidates[i].slot, SLUICE_WATCH_DELETED);
		sl_blob_forget(server, candidates[i].slot);
		gone++;
	}
	if (gone) {
		sl_store_step("server: unheld are deleted");
		sl_catalogue_sweep(server->catalogue, blob_left, server);
	}
	free(candidates);
	return gone;
}

void sl_blob_sweep(struct sl_server *server)
{
	sl_catalogue_sweep(server->catalogue, blob_left, server);
	if (!sl_list_empty(&server->blobs->transients))
		server->counts.deletes += blob_delete_unheld(server, &server->blobs->transients,
		                                             SL_DEVICE_ANY, UINT64_MAX);
	server->blobs->sweep_due = false;
}

bool sl_blob_evict(struct sl_server *server, int32_t device, uint64_t bytes)
{
	unsigned gone;

	/* Clients note the time of their last use; the sweep reads it. */
	sl_blob_sweep(server);
	gone = blob_delete_unheld(server, &server->blobs->caches, device, bytes);
	server->counts.dropped += gone;
	return gone > 0;
}
