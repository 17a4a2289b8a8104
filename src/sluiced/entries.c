/* SPDX-License-Identifier: Apache-2.0 */
/* What the server knows of the entries of the catalogue besides; how they go, and what is not held any more. */
#include <stdlib.h>

#include "sluiced/server.h"

static uint32_t *first_of(const struct sl_server *server, uint64_t id)
{
	return &server->by_id[id % sl_segment_slots(server->segment)];
}

void sl_blob_add(struct sl_server *server, uint32_t slot, uint64_t id)
{
	uint32_t *first = first_of(server, id);

	server->blobs[slot].id = id;
	server->blobs[slot].next = *first;
	*first = slot;
}

static void remove_entry(struct sl_server *server, uint32_t slot)
{
	uint32_t *at = first_of(server, server->blobs[slot].id);

	while (*at != slot)
		at = &server->blobs[*at].next;
	*at = server->blobs[slot].next;
	server->blobs[slot] = (struct sl_blob){0};
}

uint32_t sl_blob_by_id(const struct sl_server *server, uint64_t id)
{
	uint32_t slot = *first_of(server, id);

	while (slot != SL_NO_SLOT && server->blobs[slot].id != id)
		slot = server->blobs[slot].next;
	return slot;
}

static void unmark(struct sl_server *server, uint32_t slot)
{
	struct sl_list *link = &server->blobs[slot].loose;

	if (!sl_list_linked(link))
		return;
	sl_list_remove(link);
	server->loose_count--;
}

void sl_blob_mark(struct sl_server *server, uint32_t slot)
{
	struct sl_blob_record record = sl_blob_record(server, slot);
	struct sl_list *list = NULL;

	unmark(server, slot);
	if (record.flags & SLUICE_BLOB_TRANSIENT)
		list = &server->transients;
	else if (record.flags & SLUICE_BLOB_CACHE && record.place.kind != SLUICE_BLOB_OF_PROCESS)
		list = &server->caches;
	if (!list || record.flags & SLUICE_BLOB_PIN)
		return;
	sl_list_append(list, &server->blobs[slot].loose);
	server->loose_count++;
}

bool sl_blob_is_transient(const struct sl_server *server, uint32_t slot)
{
	return sl_blob_record(server, slot).flags & SLUICE_BLOB_TRANSIENT;
}

/* ------------------------------------------------------------------------------------ delete */

void sl_blob_forget(struct sl_server *server, uint32_t slot)
{
	bool open = sl_catalogue_state(server->catalogue, slot) == SL_ENTRY_OPEN;

	if (sl_catalogue_delete(server->catalogue, slot))
		return;
	unmark(server, slot);
	*(open ? &server->created : &server->sealed) -= 1;
	server->dying++;
	server->sweep = true;
}

void sl_blob_delete(struct sl_server *server, uint32_t slot)
{
	sl_watch_tell(server, slot, SLUICE_WATCH_DELETED);
	sl_blob_forget(server, slot);
	server->counts.deletes++;
	/* Whoever waits until it is back. */
	sl_get_wake(server, slot);
}

static void left(void *argument, uint32_t slot, enum sl_left what)
{
	struct sl_server *server = argument;
	struct sl_blob *blob = &server->blobs[slot];

	if (what != SL_LEFT_GONE)
		return;
	server->dying--;
	if (blob->region) {
		if (!blob->region->away)
			server->blob_bytes -= sl_region_host_bytes(blob->region);
		sl_range_give(server, blob->region, blob->range);
	}
	remove_entry(server, slot);
}

/* ------------------------------------------------------------------------------------- evict */

#define ANY_DEVICE INT32_MIN

static int by_idle(const void *a, const void *b)
{
	const struct sl_candidate *x = a, *y = b;

	if (x->idle != y->idle)
		return x->idle < y->idle ? 1 : -1;
	return x->stamp < y->stamp ? -1 : x->stamp > y->stamp;
}

void sl_candidates_sort(struct sl_candidate *candidates, size_t count)
{
	if (count)
		qsort(candidates, count, sizeof(*candidates), by_idle);
}

static unsigned find_candidates(struct sl_server *server, const struct sl_list *list,
                                int32_t device, struct sl_candidate *out)
{
	unsigned count = 0;

	sl_list_each_of (blob, list, const struct sl_blob, loose) {
		uint32_t slot = (uint32_t)(blob - server->blobs);

		if ((device == ANY_DEVICE || blob->region->device == device) &&
		    sl_catalogue_state(server->catalogue, slot) == SL_ENTRY_SEALED &&
		    sl_catalogue_held(server->catalogue, slot) == SL_HELD_NOT)
			out[count++] = (struct sl_candidate){
				.slot = slot,
				.region = blob->region,
				.idle = sl_catalogue_idle(server->catalogue, slot)};
	}
	sl_candidates_sort(out, count);
	return count;
}

/*
 * After a sweep: deletes those blobs of the list that nobody holds, the ones used least recently first, until so many bytes
 * are free; how many blobs. No get succeeds from the withdrawal on, and the sweep makes those SEALED again that it finds held.
 */
static unsigned delete_unheld(struct sl_server *server, const struct sl_list *list, int32_t device,
                              uint64_t bytes)
{
	struct sl_candidate *candidates = malloc((server->loose_count + 1) * sizeof(*candidates));
	unsigned count = 0, chosen = 0, gone = 0;
	uint64_t asked = 0;

	if (candidates)
		count = find_candidates(server, list, device, candidates);
	for (; chosen < count && asked < bytes; chosen++) {
		asked += sl_region_range_bytes(candidates[chosen].region);
		sl_catalogue_withdraw(server->catalogue, candidates[chosen].slot);
	}
	if (chosen) {
		sl_store_step("server: unheld are withdrawn");
		sl_catalogue_sweep(server->catalogue, left, server);
		sl_store_step("server: nobody holds them");
	}
	for (unsigned i = 0; i < chosen; i++) {
		if (sl_catalogue_state(server->catalogue, candidates[i].slot) != SL_ENTRY_AWAY)
			continue;
		sl_watch_tell(server, candidates[i].slot, SLUICE_WATCH_DELETED);
		sl_blob_forget(server, candidates[i].slot);
		gone++;
	}
	if (gone) {
		sl_store_step("server: unheld are deleted");
		sl_catalogue_sweep(server->catalogue, left, server);
	}
	free(candidates);
	return gone;
}

void sl_blob_sweep(struct sl_server *server)
{
	sl_catalogue_sweep(server->catalogue, left, server);
	if (!sl_list_empty(&server->transients))
		server->counts.deletes +=
			delete_unheld(server, &server->transients, ANY_DEVICE, UINT64_MAX);
	server->sweep = false;
}

bool sl_blob_evict(struct sl_server *server, int32_t device, uint64_t bytes)
{
	unsigned gone;

	/* What was used last is known only when somebody has looked. */
	sl_blob_sweep(server);
	gone = delete_unheld(server, &server->caches, device, bytes);
	server->counts.dropped += gone;
	return gone > 0;
}
