/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Making blobs: leases, create, and seal.
 *
 * A lease is a client's right to make a blob in a range of a region. Create grants leases, also
 * some in advance; seal turns them into entries of the catalogue; abort, or the client's death,
 * gives them back. On the server's thread.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "sluiced/blobs/blobs.h"
#include "sluiced/memory/devices.h"
#include "sluiced/peers/peers.h"
#include "sluiced/spill/spill.h"
#include "sluiced/waits/waits.h"

/* Leases of small blobs that a create grants besides those requested. */
#define IN_ADVANCE 15
/* Leases in advance stop when the client has leased this part of all memory. */
#define ADVANCE_PART 16

/* Touching new memory of this size takes longer than any sweep. */
#define LARGE (UINT64_C(1) << 20)

/* ------------------------------------------------------------------------------------- ticket */

static struct sl_range_lease *lease_take(struct sl_server *server, struct sl_peer *peer,
                                         struct sl_region *region, struct sl_range_lease *lease)
{
	unsigned range = (unsigned)__builtin_ctzll(~region->used);

	region->used |= UINT64_C(1) << range;
	if (!region->writer)
		sl_region_set_writer(region, peer);
	sl_region_relist(server, region);
	lease->number = ++server->blobs->last_lease;
	lease->peer = peer;
	lease->region = region;
	lease->range = range;
	lease->slot = SL_NO_SLOT;
	sl_list_append(&server->blobs->leases[lease->number % SL_BUCKETS], &lease->bucket);
	sl_list_append(&peer->leases, &lease->peer_link);
	peer->lease_count++;
	peer->leased_bytes += sl_region_host_bytes(region);
	server->counts.leased_bytes += sl_region_host_bytes(region);
	return lease;
}

/* Grants a lease. make false: only if it needs no new memory; otherwise *out is NULL. */
static int lease_new(struct sl_server *server, struct sl_peer *peer, const struct sl_wanted *wanted,
                     bool make, struct sl_range_lease **out)
{
	struct sl_region *region = sl_region_find_free(server, peer, wanted);
	struct sl_range_lease *lease;
	int rc = 0;

	*out = NULL;
	/* Memory of a blob that was deleted a moment ago is better than new memory, and a sweep
	 * finds it; a small blob needs it only if new memory would have to wait. */
	if (!region && make && wanted->device < 0 && server->blobs->sweep_due &&
	    (wanted->bytes >= LARGE || sl_room_must_queue(server))) {
		sl_blob_sweep(server);
		region = sl_region_find_free(server, peer, wanted);
	}
	if (!make && (!region || peer->lease_count >= SL_LEASES_MOST))
		return 0;
	if (peer->lease_count >= SL_LEASES_MOST)
		return sl_fail(-EDQUOT, "a client may make %d blobs at a time", SL_LEASES_MOST);
	lease = calloc(1, sizeof(*lease));
	if (!lease)
		return sl_fail(-ENOMEM, "no memory");
	if (!region)
		rc = sl_region_new(server, peer, wanted, &region);
	if (rc) {
		free(lease);
		return rc;
	}
	*out = lease_take(server, peer, region, lease);
	if (!region->offered && !region->maker)
		region->maker = (*out)->number;
	return 0;
}

static struct sl_range_lease *lease_find(struct sl_server *server, const struct sl_peer *peer,
                                         uint64_t number)
{
	sl_list_each_of (lease, &server->blobs->leases[number % SL_BUCKETS], struct sl_range_lease,
	                 bucket)
		if (lease->number == number)
			return lease->peer == peer ? lease : NULL;
	return NULL;
}

/* keep: the range stays in use, by a blob. */
static void lease_free(struct sl_server *server, struct sl_range_lease *lease, bool keep)
{
	lease->peer->leased_bytes -= sl_region_host_bytes(lease->region);
	server->counts.leased_bytes -= sl_region_host_bytes(lease->region);
	if (lease->region->maker == lease->number)
		lease->region->maker = 0;
	sl_list_remove(&lease->bucket);
	sl_list_remove(&lease->peer_link);
	lease->peer->lease_count--;
	if (!keep)
		sl_range_free(server, lease->region, lease->range);
	free(lease->record);
	free(lease);
}

static void lease_describe(const struct sl_range_lease *lease, struct sl_lease *out)
{
	*out = (struct sl_lease){
		.id = lease->number,
		.make = lease->region->maker == lease->number,
		.range = {.region = lease->region->id,
	                  .region_bytes = lease->region->bytes,
	                  .offset = (uint64_t)lease->range * lease->region->range_bytes,
	                  .capacity = sl_region_range_bytes(lease->region),
	                  .device = lease->region->device,
	                  .kind = lease->region->kind},
	};
}

/* ------------------------------------------------------------------------------------- create */

/* Returns the process and the ms since 1970, by the kernel's last tick, which is cheap to read. */
static uint64_t blob_creator(pid_t pid)
{
	struct timespec now;

	clock_gettime(CLOCK_REALTIME_COARSE, &now);
	return (uint64_t)pid << 42 |
	       ((uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000);
}

/*
 * Returns the blob that has the name and is replaced by the seal, or SL_NO_SLOT. A blob that is
 * being made keeps its name.
 */
static uint32_t blob_find_replaced(const struct sl_server *server, const char *name, uint32_t flags)
{
	struct sl_blob_key key = {.name = name, .length = strlen(name)};
	uint32_t slot;

	if (!(flags & SLUICE_BLOB_REPLACE) || !key.length ||
	    sl_catalogue_find(server->catalogue, &key, &slot) ||
	    sl_catalogue_state(server->catalogue, slot) == SL_ENTRY_OPEN)
		return SL_NO_SLOT;
	return slot;
}

static int blob_refuse_entry(const struct sl_server *server, int error)
{
	uint32_t slots = sl_segment_slots(server->blobs->segment);

	if (error == -ENOBUFS)
		return sl_fail(
			-EDQUOT,
			"%u blobs have more than %d bytes of metadata, which is all that may, of "
			"%u blobs (--blobs)",
			slots / SL_SLOTS_FOR_PAGE, SL_METADATA_INLINE, slots);
	return error == -ENOSPC
	               ? sl_fail(-EDQUOT, "there are %u blobs, which is all there may be (--blobs)",
	                         slots)
	               : sl_fail(error, "the catalogue refuses the blob: %s", sl_error_text(error));
}

/* Makes the entry of a lease, which has a name from then on. */
static int blob_enter(struct sl_server *server, struct sl_range_lease *lease, const char *name,
                      uint64_t bytes, uint64_t start, uint32_t flags,
                      const struct sl_metadata *metadata, bool sealed, bool exchanges)
{
	struct sl_blob_record record;
	struct sl_lease where;
	uint32_t slot, replaced;
	int rc;

	lease_describe(lease, &where);
	record = (struct sl_blob_record){
		.key = {.name = name, .length = strlen(name)},
		.size = bytes,
		.range = {.memory = where.range.region,
	                  .offset = where.range.offset + start,
	                  .device = where.range.device,
	                  .kind = where.range.kind},
		.creator = blob_creator(lease->peer->pid),
		.uid = lease->peer->uid,
		.flags = flags & ~(uint32_t)SLUICE_BLOB_REPLACE,
		.next = lease->next,
		.metadata = metadata,
		.metadata_size = metadata ? sl_metadata_bytes(metadata) : 0,
	};
	for (;;) {
		replaced = sealed ? blob_find_replaced(server, name, flags) : SL_NO_SLOT;
		rc = sl_catalogue_insert(server->catalogue, &record,
		                         replaced != SL_NO_SLOT ? SL_INSERT_BESIDE
		                         : sealed               ? SL_INSERT_SEALED
		                                                : SL_INSERT_OPEN,
		                         &slot);
		/* A sweep may free entries that were deleted or released since the last sweep. */
		if (!rc || !server->blobs->sweep_due)
			break;
		sl_blob_sweep(server);
	}
	if (rc == -EEXIST)
		return sl_fail(rc, "'%s' is taken", name);
	if (rc)
		return blob_refuse_entry(server, rc);
	sl_store_step("server: entered");
	lease->slot = slot;
	server->blobs->top = SL_MAX(server->blobs->top, slot + 1);
	*(sealed ? &server->counts.sealed : &server->counts.created) += 1;
	server->blobs->by_slot[slot] = (struct sl_blob){
		.region = lease->region, .range = lease->range, .part = lease->next};
	lease->region->slots[lease->range] = slot;
	sl_blob_add(server, slot, sl_blob_record_at(server, slot).key.id);
	if (replaced != SL_NO_SLOT)
		sl_blob_delete(server, replaced, exchanges ? SL_CALL_EXCHANGE : 0);
	return 0;
}

static int create_check_device(const struct sl_server *server, const struct sl_create_item *item)
{
	if (item->device == -1)
		return 0;
	if (!sl_device_known(server, item->device))
		return sl_fail(-ENOTSUP, "nobody has told the server of device %d", item->device);
	/* The offset of the blob is known only at its seal. */
	if (item->kind == SLUICE_BLOB_OF_PROCESS && item->name[0])
		return sl_fail(-EINVAL, "the name of a process's own memory comes with its seal");
	return 0;
}

static struct sl_wanted create_wanted(const struct sl_create_item *item)
{
	return (struct sl_wanted){item->bytes, item->flags, item->device, item->kind};
}

int sl_handle_create(struct sl_server *server, struct sl_peer *peer)
{
	int rc = sl_create_try(server, peer);

	return rc == -EINPROGRESS ? sl_wait_for_room(server, peer, NULL) : rc;
}

int sl_create_try(struct sl_server *server, struct sl_peer *peer)
{
	const struct sl_msg_create *request = &server->in.create;
	unsigned asked = request->head.count, count = 0;
	struct sl_range_lease *leases[2 * SL_ITEMS_MOST];
	int rc = 0;

	server->room->error = 0;
	while (!rc && count < asked) {
		struct sl_wanted wanted = create_wanted(&request->items[count]);

		rc = create_check_device(server, &request->items[count]);
		if (!rc)
			rc = lease_new(server, peer, &wanted, true, &leases[count]);
		count += !rc;
	}
	/* Names are entered last: a create that waits for memory is not visible. */
	for (unsigned i = 0; !rc && i < asked; i++) {
		const struct sl_create_item *item = &request->items[i];

		if (!item->name[0])
			continue;
		rc = blob_enter(server, leases[i], item->name, item->bytes, 0, item->flags, NULL,
		                false, false);
		if (!rc)
			sl_watchers_notify(server, leases[i]->slot, SLUICE_WATCH_CREATED);
	}
	/* The sentence of the first failure stays. */
	while (rc && count--)
		sl_lease_undo(server, leases[count]);
	if (rc)
		return rc;
	for (unsigned i = 0; asked == 1 && i < IN_ADVANCE; i++) {
		struct sl_wanted wanted = create_wanted(&request->items[0]);

		if (!sl_wanted_small(&wanted) ||
		    peer->leased_bytes > server->settings->memory_bytes / ADVANCE_PART)
			break;
		wanted.flags = 0;
		if (lease_new(server, peer, &wanted, false, &leases[count]) || !leases[count])
			break;
		count++;
	}
	sl_message_begin(&server->out, SL_MSG_LEASES, request->head.serial, count);
	for (unsigned i = 0; i < count; i++)
		lease_describe(leases[i], &server->out.leases.items[i]);
	sl_store_step("server: created");
	return sl_peer_send(server, peer, &server->out, -1);
}

int sl_handle_annotate(struct sl_server *server, struct sl_peer *peer)
{
	const struct sl_metadata *record = sl_message_metadata(&server->in);
	struct sl_range_lease *lease = lease_find(server, peer, server->in.annotate.lease);
	struct sl_metadata *copy;

	if (!lease)
		return 0;
	copy = malloc(sl_metadata_bytes(record));
	if (copy)
		memcpy(copy, record, sl_metadata_bytes(record));
	free(lease->record);
	lease->record = copy;
	return 0;
}

/* Retires an entry without its range, which the lease keeps. */
static void blob_forget_nowhere(struct sl_server *server, uint32_t slot)
{
	server->blobs->by_slot[slot].region = NULL;
	sl_blob_forget(server, slot);
}

void sl_lease_undo(struct sl_server *server, struct sl_range_lease *lease)
{
	if (lease->slot != SL_NO_SLOT) {
		sl_watchers_notify(server, lease->slot, SLUICE_WATCH_DELETED);
		blob_forget_nowhere(server, lease->slot);
	}
	lease_free(server, lease, false);
}

int sl_handle_abort(struct sl_server *server, struct sl_peer *peer)
{
	for (unsigned i = 0; i < server->in.head.count; i++) {
		struct sl_range_lease *lease = lease_find(server, peer, server->in.ids.items[i].id);

		if (lease)
			sl_lease_undo(server, lease);
	}
	return 0;
}

/* -------------------------------------------------------------------------------------- seal */

static int seal_check_item(struct sl_server *server, struct sl_peer *peer,
                           const struct sl_seal_item *item, struct sl_range_lease **out)
{
	struct sl_range_lease *lease = lease_find(server, peer, item->lease);
	bool parts = sl_message_parts(&server->in);
	struct sl_blob_record record;
	int rc;

	if (!lease)
		return sl_fail(-ECONNRESET, "the server knows nothing of this blob");
	if (item->flags & SLUICE_BLOB_REPLACE &&
	    (lease->slot != SL_NO_SLOT || (server->in.head.count > 1 && !parts)))
		return sl_fail(-EINVAL,
		               "a seal that replaces is of one blob, whose name was not reserved");
	rc = parts ? sl_part_check(lease, item->flags & SL_FLAG_PART) : 0;
	if (rc)
		return rc;
	if (item->bytes > sl_region_range_bytes(lease->region) ||
	    item->start > sl_region_range_bytes(lease->region) - item->bytes)
		return sl_fail(-EINVAL, "a blob larger than its memory");
	if (item->start && lease->region->kind != SLUICE_BLOB_OF_PROCESS)
		return sl_fail(-EINVAL, "a blob that does not begin where its memory does");
	rc = sl_device_check_seal(lease->region);
	if (rc)
		return rc;
	if (lease->record &&
	    sl_metadata_check(lease->record, sl_metadata_bytes(lease->record), item->bytes))
		return -EINVAL;
	if (lease->slot != SL_NO_SLOT) {
		record = sl_blob_record_at(server, lease->slot);
		if (record.key.length != strlen(item->name) ||
		    memcmp(record.key.name, item->name, record.key.length) ||
		    record.size != item->bytes)
			return sl_fail(-EINVAL,
			               "a blob has another name or size than when it was created");
	}
	*out = lease;
	return 0;
}

/* Gives the blob of the lease an entry if it has none, and the entry its metadata. */
static int seal_prepare(struct sl_server *server, struct sl_range_lease *lease,
                        const struct sl_seal_item *item, const struct sl_metadata *record,
                        bool seal)
{
	struct sl_catalogue *catalogue = server->catalogue;
	int rc;

	if (!record)
		record = lease->record;
	if (lease->slot == SL_NO_SLOT)
		return blob_enter(server, lease, item->name, item->bytes, item->start, item->flags,
		                  record, seal, item->replaces);
	if (record) {
		rc = sl_catalogue_describe(catalogue, lease->slot, record,
		                           sl_metadata_bytes(record));
		if (rc)
			return blob_refuse_entry(server, rc);
	}
	/* The pin may have been changed by name since create. */
	sl_catalogue_set_flags(
		catalogue, lease->slot,
		(item->flags & ~(uint32_t)SLUICE_BLOB_PIN) |
			(sl_blob_record_at(server, lease->slot).flags & SLUICE_BLOB_PIN));
	return lease->next ? sl_catalogue_adopt(catalogue, lease->slot, lease->next) : 0;
}

/*
 * Seals all blobs or none: on failure, new entries are taken back. Entries of parts are SEALED at
 * once; the last comes first, so each has the next in the record.
 */
static int seal_all(struct sl_server *server, struct sl_range_lease **leases, unsigned count)
{
	const struct sl_metadata *record = sl_message_metadata(&server->in);
	unsigned parts = sl_message_parts(&server->in);
	uint64_t fresh = 0;
	uint32_t slots[SL_ITEMS_MOST], next = 0;
	bool sealed = count - parts == 1 && leases[parts]->slot == SL_NO_SLOT;
	int rc = 0;

	for (unsigned i = 0; !rc && i < count; i++) {
		leases[i]->next = next;
		fresh |= (uint64_t)(leases[i]->slot == SL_NO_SLOT) << i;
		rc = seal_prepare(server, leases[i], &server->in.seal.items[i], record,
		                  sealed || i < parts);
		next = !rc && i < parts ? leases[i]->slot + 1 : 0;
	}
	for (unsigned i = 0; i < count; i++)
		slots[i] = leases[i]->slot;
	sl_store_step("server: prepared");
	if (!rc && !sealed)
		rc = sl_catalogue_seal(server->catalogue, slots + parts, count - parts);
	if (!rc && !sealed) {
		server->counts.created -= count - parts;
		server->counts.sealed += count - parts;
	}
	if (!rc && parts)
		sl_parts_tie(server, slots[parts], leases[parts]->next);
	for (unsigned i = 0; i < count; i++) {
		bool is_fresh = fresh >> i & 1;

		if (!rc)
			sl_blob_relist(server, slots[i]);
		if (!rc && is_fresh)
			sl_watchers_notify(server, slots[i], SLUICE_WATCH_CREATED);
		if (!rc || !is_fresh || leases[i]->slot == SL_NO_SLOT)
			continue;
		/* It becomes memory without a name again, and is no part. */
		server->blobs->by_slot[leases[i]->slot].part = 0;
		blob_forget_nowhere(server, leases[i]->slot);
		leases[i]->region->slots[leases[i]->range] = SL_NO_SLOT;
		leases[i]->slot = SL_NO_SLOT;
	}
	return rc;
}

/* Ends the lease of a sealed blob; a part of another blob is not in the answer, and out NULL. */
static void seal_answer(struct sl_server *server, struct sl_peer *peer,
                        struct sl_range_lease *lease, uint32_t serial, struct sl_found_item *out)
{
	uint64_t bytes = sl_region_range_bytes(lease->region);
	bool host = lease->region->device < 0;
	bool small = host ? bytes <= SL_SMALL_BYTES : lease->region->range_bytes > 0;
	struct sl_wanted wanted = {bytes, small ? 0 : SLUICE_BLOB_ALONE, lease->region->device,
	                           lease->region->kind};
	uint32_t slot = lease->slot;
	struct sl_range_lease *next;

	if (out)
		sl_peer_hold(server, peer, serial, slot, true);
	if (server->spill)
		lease->region->stamp = ++server->spill->last_stamp;
	lease_free(server, lease, true);
	server->counts.blob_bytes += host ? bytes : 0;
	server->counts.seals++;
	if (!out)
		return;
	*out = (struct sl_found_item){.id = server->blobs->by_slot[slot].id,
	                              .generation =
	                                      sl_catalogue_generation(server->catalogue, slot),
	                              .slot = slot};
	if ((!host ||
	     peer->leased_bytes + bytes <= server->settings->memory_bytes / ADVANCE_PART) &&
	    !lease_new(server, peer, &wanted, false, &next) && next)
		lease_describe(next, &out->lease);
}

/*
 * Decides whether a seal replaces a blob: another id than the seal's, or no blob, refuses it.
 * Nothing comes between this and the seal. *rival: the id behind the name; 0: none.
 */
static int seal_check_rival(const struct sl_server *server, const struct sl_seal_item *item,
                            uint64_t *rival)
{
	uint32_t slot = blob_find_replaced(server, item->name, item->flags);

	*rival = slot == SL_NO_SLOT ? 0 : server->blobs->by_slot[slot].id;
	if (!item->replaces || *rival == item->replaces)
		return 0;
	return *rival ? sl_fail(-ESTALE,
	                        "'%s' is the blob %" PRIu64 " now, and %" PRIu64
	                        " was to be replaced",
	                        item->name, *rival, item->replaces)
	              : sl_fail(-ESTALE,
	                        "no blob is '%s' any more, and %" PRIu64 " was to be replaced",
	                        item->name, item->replaces);
}

static int seal_refuse(struct sl_server *server, struct sl_peer *peer, uint32_t serial,
                       uint64_t rival)
{
	server->counts.refused++;
	sl_message_refuse(&server->out, serial, -ESTALE, sluice_last_message());
	server->out.refusal.rival = rival;
	return sl_peer_send(server, peer, &server->out, -1);
}

int sl_handle_seal(struct sl_server *server, struct sl_peer *peer)
{
	unsigned count = server->in.head.count, parts = sl_message_parts(&server->in);
	uint32_t serial = server->in.head.serial, slots[SL_ITEMS_MOST];
	struct sl_range_lease *leases[SL_ITEMS_MOST] = {NULL};
	union sl_message answer;
	uint64_t rival;
	int rc = 0;

	for (unsigned i = 0; !rc && i < count; i++) {
		rc = seal_check_item(server, peer, &server->in.seal.items[i], &leases[i]);
		for (unsigned j = 0; !rc && j < i; j++)
			if (leases[i] == leases[j])
				rc = sl_fail(-EINVAL, "the same blob twice in one seal");
	}
	if (!rc && seal_check_rival(server, &server->in.seal.items[count - 1], &rival))
		return seal_refuse(server, peer, serial, rival);
	if (!rc)
		rc = seal_all(server, leases, count);
	if (rc)
		return rc;
	sl_store_step("server: sealed");
	for (unsigned i = 0; i < count; i++)
		slots[i] = leases[i]->slot;
	sl_message_begin(&answer, SL_MSG_FOUND, serial, count - parts);
	for (unsigned i = 0; i < count; i++)
		seal_answer(server, peer, leases[i], serial,
		            i < parts ? NULL : &answer.found.items[i - parts]);
	/* The answer comes last: the client that sealed may take this processor when it arrives. */
	for (unsigned i = parts; i < count; i++) {
		sl_get_wake(server, slots[i]);
		sl_watchers_notify(server, slots[i], SLUICE_WATCH_SEALED);
	}
	return sl_peer_send(server, peer, &answer, -1);
}
