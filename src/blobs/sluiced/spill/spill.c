/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Spilling: chooses the regions that leave memory, and when.
 *
 * Candidates are regions in which all blobs are sealed and none is held; the least recently used
 * leaves first. Regions without a copy are copied first (spill_copy.c), some of them ahead of need.
 * The end of the file recovers copies that a previous server has left. On the server's thread.
 */
#include <errno.h>
#include <stdlib.h>

#include "sluiced/blobs/blobs.h"
#include "sluiced/memory/memory.h"
#include "sluiced/spill/spill.h"
#include "sluiced/waits/waits.h"

/*
 * Parts of all memory: copies ahead of need keep the first free; the second leaves in addition, so
 * that not each create looks.
 */
#define AHEAD_PART 8
#define SLACK_PART 32
#define AHEAD_NS   INT64_C(100000000)

struct spill_candidates {
	struct sl_candidate *v;
	size_t count;
	/* Of the candidates; of regions that only the server holds, for a moment. */
	uint64_t bytes, held_here;
};

static void spill_add(struct spill_candidates *c, const struct sl_candidate *found, bool held_here)
{
	*(held_here ? &c->held_here : &c->bytes) += sl_region_counted(found->region);
	if (!held_here)
		c->v[c->count++] = *found;
}

/* Returns whether nothing in a region can leave, whatever the blobs are. */
static bool spill_is_out(const struct sl_server *server, const struct sl_region *region)
{
	uint32_t first = region->slots[0];

	if (region->device >= 0 || !region->used || region->wait_mark == server->spill->last_mark)
		return true;
	/* Parts are considered with their owner, unless the owner, on the way back, needs them. */
	if (first != SL_NO_SLOT && sl_blob_is_part(server, first))
		return true;
	return region->away && (first == SL_NO_SLOT || !server->blobs->by_slot[first].part ||
	                        region->copy->wait || region->copy->state == SL_COPY_READING);
}

/*
 * Adds a region if its blobs are all sealed, and none is pinned, held or waited for; an owner with
 * its parts, or, if it is AWAY already, its parts alone.
 */
static void spill_consider(struct sl_server *server, struct spill_candidates *c,
                           struct sl_region *region)
{
	const struct sl_catalogue *catalogue = server->catalogue;
	struct sl_candidate found = {.region = region, .idle = UINT64_MAX, .stamp = region->stamp};
	enum sl_entry_state state = region->away ? SL_ENTRY_AWAY : SL_ENTRY_SEALED;
	uint32_t first = region->slots[0];
	bool held_here = false;

	if (spill_is_out(server, region))
		return;
	for (unsigned i = 0; i < region->ranges; i++) {
		uint32_t slot = region->slots[i];
		enum sl_held held;
		uint64_t since;

		if (!(region->used >> i & 1))
			continue;
		if (slot == SL_NO_SLOT || sl_catalogue_state(catalogue, slot) != state)
			return;
		held = sl_catalogue_held(catalogue, slot);
		if (held == SL_HELD_THERE || sl_blob_record_at(server, slot).flags &
		                                     (SLUICE_BLOB_PIN | SLUICE_BLOB_TRANSIENT))
			return;
		held_here = held_here || held == SL_HELD_HERE;
		since = sl_catalogue_idle(catalogue, slot);
		found.idle = SL_MIN(found.idle, since);
	}
	if (!region->away)
		spill_add(c, &found, held_here);
	if (first == SL_NO_SLOT)
		return;
	found.follows = true;
	sl_parts_each (part, server, first) {
		found.region = server->blobs->by_slot[part].region;
		if (found.region->device < 0 && !found.region->away)
			spill_add(c, &found, held_here);
	}
}

/* Finds the candidates, oldest use first. A withdrawal needs its sweep as well. */
static void spill_find_candidates(struct sl_server *server, struct spill_candidates *c)
{
	sl_blob_sweep(server);
	sl_get_mark(server, ++server->spill->last_mark);
	/* Each region in memory has a row, so that this is enough. */
	*c = (struct spill_candidates){
		.v = malloc((server->descriptors->count + 1) * sizeof(*c->v))};
	for (unsigned i = 0; c->v && i < SL_BUCKETS; i++)
		sl_list_each_of (region, &server->memory->regions[i], struct sl_region, bucket)
			spill_consider(server, c, region);
	sl_candidates_sort(c->v, c->count);
}

static bool spill_copy_is_whole(const struct sl_region *region)
{
	const struct sl_spill_copy *copy = region->copy;

	return copy && copy->state == SL_COPY_WHOLE && !(region->used & ~copy->ranges);
}

static uint64_t spill_in_state(const struct sl_server *server, const struct sl_region *region,
                               enum sl_entry_state state)
{
	uint64_t found = 0;

	for (unsigned i = 0; i < region->ranges; i++)
		if (region->used >> i & 1 && region->slots[i] != SL_NO_SLOT &&
		    sl_catalogue_state(server->catalogue, region->slots[i]) == state)
			found |= UINT64_C(1) << i;
	return found;
}

/* Makes withdrawn blobs SEALED again where they are: their memory was not given up. */
static void spill_keep(struct sl_server *server, struct sl_region *region, uint64_t away)
{
	struct sl_blob_record record;

	for (unsigned i = 0; i < region->ranges; i++)
		if (away >> i & 1) {
			record = sl_blob_record_at(server, region->slots[i]);
			sl_catalogue_move(server->catalogue, region->slots[i], &record.range, true);
		}
}

/* Returns whether a candidate can leave now: with a copy, and a part after its owner. */
static bool spill_may_leave(const struct sl_server *server, const struct sl_candidate *c,
                            bool follows)
{
	return c->follows == follows && !c->region->away && spill_copy_is_whole(c->region) &&
	       (!follows ||
	        sl_catalogue_state(server->catalogue, sl_blob_owner(server, c->region->slots[0])) ==
	                SL_ENTRY_AWAY);
}

/* Lets those of the first `end` candidates leave that can; parts, or all else. */
static uint64_t spill_leave_some(struct sl_server *server, const struct spill_candidates *c,
                                 size_t end, bool follows, bool *stayed)
{
	uint64_t left = 0, away;

	for (size_t i = 0; i < end; i++) {
		struct sl_region *region = c->v[i].region;

		if (!spill_may_leave(server, &c->v[i], follows))
			continue;
		for (unsigned k = 0; k < region->ranges; k++)
			if (region->used >> k & 1)
				sl_catalogue_withdraw(server->catalogue, region->slots[k]);
	}
	sl_store_step("server: withdrawn");
	sl_blob_sweep(server);
	for (size_t i = 0; i < end; i++) {
		struct sl_region *region = c->v[i].region;

		if (!spill_may_leave(server, &c->v[i], follows))
			continue;
		away = spill_in_state(server, region, SL_ENTRY_AWAY);
		if (away != region->used) {
			/* A client holds a blob of it, so the whole region stays. */
			sl_store_step("server: stays");
			spill_keep(server, region, away);
			*stayed = true;
			continue;
		}
		left += sl_region_counted(region);
		sl_store_step("server: nobody holds it");
		server->counts.spills += (unsigned)__builtin_popcountll(region->used);
		server->counts.spilled += (unsigned)__builtin_popcountll(region->used);
		sl_region_spilled(server, region);
		server->spill->moved_at = sl_now();
		sl_store_step("server: memory given up");
	}
	return left;
}

/* Lets those of the first so many bytes leave that have a copy. Returns how many bytes left. */
static uint64_t spill_leave(struct sl_server *server, const struct spill_candidates *c,
                            uint64_t bytes, bool *stayed)
{
	uint64_t seen = 0, left;
	bool parts = false;
	size_t end = 0;

	sl_store_step("server: chosen");
	for (; end < c->count && seen < bytes; end++) {
		seen += sl_region_counted(c->v[end].region);
		parts |= c->v[end].follows;
	}
	left = spill_leave_some(server, c, end, false, stayed);
	return parts ? left + spill_leave_some(server, c, end, true, stayed) : left;
}

/* Copies those of the first `bytes + ahead` without a copy; beyond `bytes` is ahead of need. */
static void spill_copy_first(struct sl_server *server, const struct spill_candidates *c,
                             uint64_t bytes, uint64_t ahead)
{
	uint64_t seen = 0;

	for (size_t i = 0; i < c->count && seen < bytes + ahead; i++) {
		struct sl_region *region = c->v[i].region;

		if (server->spill->writing >= SL_COPIES_AT_ONCE)
			break;
		if (region->away ||
		    (!region->copy && !sl_spill_copy_write(server, region, seen >= bytes)))
			continue;
		seen += sl_region_counted(region);
	}
}

int sl_spill_room(struct sl_server *server, uint64_t bytes)
{
	struct sl_spill *spill = server->spill;
	uint64_t all = server->settings->memory_bytes, left = 0;
	struct spill_candidates c;
	bool stayed = false;
	int rc = 0;

	if (!spill)
		return 0;
	spill_find_candidates(server, &c);
	/* If all candidates together are not enough, none leaves. */
	if (c.bytes + c.held_here >= bytes) {
		left = spill_leave(server, &c, bytes + all / SLACK_PART, &stayed);
		if (left < bytes)
			spill_copy_first(server, &c, bytes - left, all / AHEAD_PART);
		if (left >= bytes)
			rc = 1;
		else if (spill->writing || spill->full)
			rc = -EINPROGRESS;
		else
			rc = left > 0 || stayed;
	}
	free(c.v);
	/* Clients may be about to release or seal blobs. */
	if (!rc && bytes <= all && sl_now() >= spill->rest_until && sl_room_has_time(server))
		rc = -EINPROGRESS;
	return rc;
}

bool sl_spill_shrink(struct sl_server *server)
{
	uint64_t all = server->settings->memory_bytes;

	if (server->counts.memory_bytes > all)
		sl_spill_room(server, server->counts.memory_bytes - all);
	return server->counts.memory_bytes > all;
}

void sl_spill_ahead(struct sl_server *server)
{
	struct sl_spill *spill = server->spill;
	uint64_t all = server->settings->memory_bytes, part = all / AHEAD_PART;
	struct spill_candidates c;

	if (!spill || server->counts.memory_bytes < all - part || spill->writing ||
	    sl_now() < SL_MAX(spill->ahead_at, spill->rest_until))
		return;
	spill->ahead_at = sl_now() + AHEAD_NS;
	spill_find_candidates(server, &c);
	spill_copy_first(server, &c, 0, part);
	free(c.v);
}

/* ------------------------------------------------------------------------------------ begin */

int sl_spill_start(struct sl_server *server)
{
	struct sl_spill *spill;

	if (!server->settings->spill[0])
		return 0;
	spill = calloc(1, sizeof(*spill));
	if (!spill)
		return sl_fail(-ENOMEM, "no memory");
	spill->source.event = sl_spill_event;
	spill->look_at = SL_FOREVER;
	sl_list_init(&spill->copies);
	server->spill = spill;
	return sl_movers_start(spill, server->settings->spill);
}

int sl_spill_recover_copy(struct sl_server *server, uint32_t row)
{
	struct sl_ledger_row saved = server->descriptors->ledger->rows[row];
	struct sl_region *region = sl_region_find(server, saved.region);
	struct sl_spill_copy *copy;
	int rc = 0;

	if (!server->spill || (region && region->copy))
		return sl_fail(-EBADMSG, "a copy too many");
	copy = calloc(1, sizeof(*copy));
	if (!copy)
		return sl_fail(-ENOMEM, "no memory");
	if (!region) {
		/* Rows of copies leave these empty. */
		saved.device = -1;
		saved.memory = SLUICE_BLOB_ON_HOST;
		rc = sl_region_add(server, &saved, saved.region, &region);
		if (rc) {
			free(copy);
			return rc;
		}
		region->away = true;
	}
	copy->region = region;
	copy->row = row;
	copy->file = -1;
	region->copy = copy;
	sl_list_append(&server->spill->copies, &copy->link);
	return 0;
}

static void spill_recover_region(struct sl_server *server, struct sl_region *region)
{
	uint64_t away = spill_in_state(server, region, SL_ENTRY_AWAY);
	bool sealed = spill_in_state(server, region, SL_ENTRY_SEALED) != 0;

	if (away && !region->away && (sealed || !region->copy))
		spill_keep(server, region, away);
	else if (away && !region->away)
		sl_region_spilled(server, region);
	if (!region->copy)
		return;
	region->copy->ranges = region->used;
	region->copy->bytes = sl_region_used_bytes(region);
	server->counts.spilled_bytes += region->copy->bytes;
	if (region->away)
		server->counts.spilled += (unsigned)__builtin_popcountll(region->used);
}

void sl_spill_recover(struct sl_server *server)
{
	for (unsigned i = 0; i < SL_BUCKETS; i++)
		sl_list_each_of (region, &server->memory->regions[i], struct sl_region, bucket)
			spill_recover_region(server, region);
}
