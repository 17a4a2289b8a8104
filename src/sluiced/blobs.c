/* SPDX-License-Identifier: Apache-2.0 */
/* How blobs are made: tickets, which are ranges of memory that a client may make blobs in, and their seal. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "sluiced/spill.h"

/* Leases of small blobs that a client gets besides the one it asked for. */
#define IN_ADVANCE 15
/* With so much a client is left, when it gets more in advance, as a part of all memory. */
#define ADVANCE_PART 16

/* New memory of this size takes longer to be touched than any sweep does. */
#define LARGE (UINT64_C(1) << 20)

/* ------------------------------------------------------------------------------------- ticket */

static struct sl_ticket *take(struct sl_server *server, struct sl_peer *peer,
                              struct sl_region *region, struct sl_ticket *ticket)
{
	unsigned range = (unsigned)__builtin_ctzll(~region->used);

	region->used |= UINT64_C(1) << range;
	if (!region->writer)
		sl_region_written_by(region, peer);
	sl_region_place(server, region);
	ticket->number = ++server->last_ticket;
	ticket->peer = peer;
	ticket->region = region;
	ticket->range = range;
	ticket->slot = SL_NO_SLOT;
	sl_list_append(&server->tickets[ticket->number % SL_BUCKETS], &ticket->bucket);
	sl_list_append(&peer->tickets, &ticket->link);
	peer->ticket_count++;
	peer->leased_bytes += sl_region_host_bytes(region);
	server->leased_bytes += sl_region_host_bytes(region);
	return ticket;
}

/* For a new blob. With make false only if it costs nothing: NULL and 0 if it would. */
static int new_ticket(struct sl_server *server, struct sl_peer *peer,
                      const struct sl_wanted *wanted, bool make, struct sl_ticket **out)
{
	struct sl_region *region = sl_region_find_free(server, peer, wanted);
	struct sl_ticket *ticket;
	int rc = 0;

	*out = NULL;
	/* What was deleted a moment ago may not have been looked at yet, and is worth more than new memory. */
	if (!region && make && wanted->device < 0 && wanted->bytes >= LARGE && server->sweep) {
		sl_blob_sweep(server);
		region = sl_region_find_free(server, peer, wanted);
	}
	if (!make && (!region || peer->ticket_count >= SL_TICKETS_MOST))
		return 0;
	if (peer->ticket_count >= SL_TICKETS_MOST)
		return sl_fail(-EDQUOT, "a client may make %d blobs at a time", SL_TICKETS_MOST);
	ticket = calloc(1, sizeof(*ticket));
	if (!ticket)
		return sl_fail(-ENOMEM, "no memory");
	if (!region)
		rc = sl_region_new(server, peer, wanted, &region);
	if (rc) {
		free(ticket);
		return rc;
	}
	*out = take(server, peer, region, ticket);
	if (!region->offered && !region->maker)
		region->maker = (*out)->number;
	return 0;
}

static struct sl_ticket *find_ticket(struct sl_server *server, const struct sl_peer *peer,
                                     uint64_t number)
{
	sl_list_each_of (ticket, &server->tickets[number % SL_BUCKETS], struct sl_ticket, bucket)
		if (ticket->number == number)
			return ticket->peer == peer ? ticket : NULL;
	return NULL;
}

/* keep: a blob has its range now. */
static void free_ticket(struct sl_server *server, struct sl_ticket *ticket, bool keep)
{
	ticket->peer->leased_bytes -= sl_region_host_bytes(ticket->region);
	server->leased_bytes -= sl_region_host_bytes(ticket->region);
	if (ticket->region->maker == ticket->number)
		ticket->region->maker = 0;
	sl_list_remove(&ticket->bucket);
	sl_list_remove(&ticket->link);
	ticket->peer->ticket_count--;
	if (!keep)
		sl_range_give(server, ticket->region, ticket->range);
	free(ticket->record);
	free(ticket);
}

static void tell_ticket(const struct sl_ticket *ticket, struct sl_lease *out)
{
	*out = (struct sl_lease){
		.id = ticket->number,
		.make = ticket->region->maker == ticket->number,
		.place = {.region = ticket->region->id,
	                  .region_bytes = ticket->region->bytes,
	                  .offset = (uint64_t)ticket->range * ticket->region->range_bytes,
	                  .capacity = sl_region_range_bytes(ticket->region),
	                  .device = ticket->region->device,
	                  .kind = ticket->region->kind},
	};
}

/* ------------------------------------------------------------------------------------- create */

/* The process, and milliseconds since 1970, by the clock of the kernel's last tick, which is cheap to read. */
static uint64_t creator_of(pid_t pid)
{
	struct timespec now;

	clock_gettime(CLOCK_REALTIME_COARSE, &now);
	return (uint64_t)pid << 42 |
	       ((uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000);
}

/* The blob whose name a seal takes, or SL_NO_SLOT. One that is being made keeps its name. */
static uint32_t find_replaced(const struct sl_server *server, const char *name, uint32_t flags)
{
	struct sl_blob_key key = {.name = name, .length = strlen(name)};
	uint32_t slot;

	if (!(flags & SLUICE_BLOB_REPLACE) || !key.length ||
	    sl_catalogue_find(server->catalogue, &key, &slot) ||
	    sl_catalogue_state(server->catalogue, slot) == SL_ENTRY_OPEN)
		return SL_NO_SLOT;
	return slot;
}

static int refuse_entry(const struct sl_server *server, int error)
{
	uint32_t slots = sl_segment_slots(server->segment);

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

/* Makes the entry of a ticket, which has a name from then on. */
static int enter(struct sl_server *server, struct sl_ticket *ticket, const char *name,
                 uint64_t bytes, uint64_t start, uint32_t flags, const struct sl_metadata *metadata,
                 bool sealed)
{
	struct sl_blob_record record;
	struct sl_lease lease;
	uint32_t slot, replaced;
	int rc;

	tell_ticket(ticket, &lease);
	record = (struct sl_blob_record){
		.key = {.name = name, .length = strlen(name)},
		.size = bytes,
		.place = {.memory = lease.place.region,
	                  .offset = lease.place.offset + start,
	                  .device = lease.place.device,
	                  .kind = lease.place.kind},
		.creator = creator_of(ticket->peer->pid),
		.uid = ticket->peer->uid,
		.flags = flags & ~(uint32_t)SLUICE_BLOB_REPLACE,
		.metadata = metadata,
		.metadata_size = metadata ? sl_metadata_bytes(metadata) : 0,
	};
	for (;;) {
		replaced = sealed ? find_replaced(server, name, flags) : SL_NO_SLOT;
		rc = sl_catalogue_insert(server->catalogue, &record,
		                         replaced != SL_NO_SLOT ? SL_INSERT_BESIDE
		                         : sealed               ? SL_INSERT_SEALED
		                                                : SL_INSERT_OPEN,
		                         &slot);
		/* What was released or deleted may not have been looked at yet. */
		if (!rc || !server->sweep)
			break;
		sl_blob_sweep(server);
	}
	if (rc == -EEXIST)
		return sl_fail(rc, "'%s' is taken", name);
	if (rc)
		return refuse_entry(server, rc);
	sl_store_step("server: entered");
	ticket->slot = slot;
	server->top = SL_MAX(server->top, slot + 1);
	*(sealed ? &server->sealed : &server->created) += 1;
	server->blobs[slot] = (struct sl_blob){.region = ticket->region, .range = ticket->range};
	ticket->region->slots[ticket->range] = slot;
	sl_blob_add(server, slot, sl_blob_record(server, slot).key.id);
	if (replaced != SL_NO_SLOT)
		sl_blob_delete(server, replaced);
	return 0;
}

static int check_device(const struct sl_server *server, const struct sl_create_item *item)
{
	if (item->device == -1)
		return 0;
	if (!sl_device_known(server, item->device))
		return sl_fail(-ENOTSUP, "nobody has told the server of device %d", item->device);
	/* Where in it the blob begins is known at its seal. */
	if (item->kind == SLUICE_BLOB_OF_PROCESS && item->name[0])
		return sl_fail(-EINVAL, "the name of a process's own memory comes with its seal");
	return 0;
}

static struct sl_wanted wanted_by(const struct sl_create_item *item)
{
	return (struct sl_wanted){item->bytes, item->flags, item->device, item->kind};
}

int sl_blob_create(struct sl_server *server, struct sl_peer *peer)
{
	int rc = sl_blob_try_create(server, peer);

	return rc == -EINPROGRESS ? sl_wait_for_room(server, peer, NULL) : rc;
}

int sl_blob_try_create(struct sl_server *server, struct sl_peer *peer)
{
	const struct sl_msg_create *request = &server->in.create;
	unsigned asked = request->head.count, count = 0;
	struct sl_ticket *tickets[2 * SL_ITEMS_MOST];
	int rc = 0;

	server->room.error = 0;
	while (!rc && count < asked) {
		struct sl_wanted wanted = wanted_by(&request->items[count]);

		rc = check_device(server, &request->items[count]);
		if (!rc)
			rc = new_ticket(server, peer, &wanted, true, &tickets[count]);
		count += !rc;
	}
	/* Names come when there is memory for all of them: what waits for that is not seen. */
	for (unsigned i = 0; !rc && i < asked; i++) {
		const struct sl_create_item *item = &request->items[i];

		if (!item->name[0])
			continue;
		rc = enter(server, tickets[i], item->name, item->bytes, 0, item->flags, NULL,
		           false);
		if (!rc)
			sl_watch_tell(server, tickets[i]->slot, SLUICE_WATCH_CREATED);
	}
	/* The sentence is that of the first that failed. */
	while (rc && count--)
		sl_blob_undo(server, tickets[count]);
	if (rc)
		return rc;
	for (unsigned i = 0; asked == 1 && i < IN_ADVANCE; i++) {
		struct sl_wanted wanted = wanted_by(&request->items[0]);

		if (!sl_wanted_small(&wanted) ||
		    peer->leased_bytes > server->settings->memory_bytes / ADVANCE_PART)
			break;
		wanted.flags = 0;
		if (new_ticket(server, peer, &wanted, false, &tickets[count]) || !tickets[count])
			break;
		count++;
	}
	sl_message_begin(&server->out, SL_MSG_LEASES, request->head.serial, count);
	for (unsigned i = 0; i < count; i++)
		tell_ticket(tickets[i], &server->out.leases.items[i]);
	sl_store_step("server: created");
	return sl_peer_send(server, peer, &server->out, -1);
}

int sl_blob_annotate(struct sl_server *server, struct sl_peer *peer)
{
	const struct sl_metadata *record = sl_message_metadata(&server->in);
	struct sl_ticket *ticket = find_ticket(server, peer, server->in.annotate.lease);
	struct sl_metadata *copy;

	if (!ticket)
		return 0;
	copy = malloc(sl_metadata_bytes(record));
	if (copy)
		memcpy(copy, record, sl_metadata_bytes(record));
	free(ticket->record);
	ticket->record = copy;
	return 0;
}

/* Its memory is not its own any more. */
static void forget_nowhere(struct sl_server *server, uint32_t slot)
{
	server->blobs[slot].region = NULL;
	sl_blob_forget(server, slot);
}

void sl_blob_undo(struct sl_server *server, struct sl_ticket *ticket)
{
	if (ticket->slot != SL_NO_SLOT) {
		sl_watch_tell(server, ticket->slot, SLUICE_WATCH_DELETED);
		forget_nowhere(server, ticket->slot);
	}
	free_ticket(server, ticket, false);
}

int sl_blob_abort(struct sl_server *server, struct sl_peer *peer)
{
	for (unsigned i = 0; i < server->in.head.count; i++) {
		struct sl_ticket *ticket = find_ticket(server, peer, server->in.ids.items[i].id);

		if (ticket)
			sl_blob_undo(server, ticket);
	}
	return 0;
}

/* -------------------------------------------------------------------------------------- seal */

static int check_item(struct sl_server *server, struct sl_peer *peer,
                      const struct sl_seal_item *item, struct sl_ticket **out)
{
	struct sl_ticket *ticket = find_ticket(server, peer, item->lease);
	struct sl_blob_record record;
	int rc;

	if (!ticket)
		return sl_fail(-ECONNRESET, "the server knows nothing of this blob");
	if (item->flags & SLUICE_BLOB_REPLACE &&
	    (ticket->slot != SL_NO_SLOT || server->in.head.count > 1))
		return sl_fail(-EINVAL,
		               "a seal that replaces is of one blob, whose name was not reserved");
	if (item->bytes > sl_region_range_bytes(ticket->region) ||
	    item->start > sl_region_range_bytes(ticket->region) - item->bytes)
		return sl_fail(-EINVAL, "a blob larger than its memory");
	if (item->start && ticket->region->kind != SLUICE_BLOB_OF_PROCESS)
		return sl_fail(-EINVAL, "a blob that does not begin where its memory does");
	rc = sl_device_check_seal(ticket->region);
	if (rc)
		return rc;
	if (ticket->record &&
	    sl_metadata_check(ticket->record, sl_metadata_bytes(ticket->record), item->bytes))
		return -EINVAL;
	if (ticket->slot != SL_NO_SLOT) {
		record = sl_blob_record(server, ticket->slot);
		if (record.key.length != strlen(item->name) ||
		    memcmp(record.key.name, item->name, record.key.length) ||
		    record.size != item->bytes)
			return sl_fail(-EINVAL,
			               "a blob has another name or size than when it was created");
	}
	*out = ticket;
	return 0;
}

/* Gives the ticket's blob an entry if it has none, and the entry its metadata. */
static int prepare(struct sl_server *server, struct sl_ticket *ticket,
                   const struct sl_seal_item *item, const struct sl_metadata *record, bool seal)
{
	struct sl_catalogue *catalogue = server->catalogue;
	int rc;

	if (!record)
		record = ticket->record;
	if (ticket->slot == SL_NO_SLOT)
		return enter(server, ticket, item->name, item->bytes, item->start, item->flags,
		             record, seal);
	if (record) {
		rc = sl_catalogue_describe(catalogue, ticket->slot, record,
		                           sl_metadata_bytes(record));
		if (rc)
			return refuse_entry(server, rc);
	}
	/* It may have been pinned, or unpinned, by its name. */
	sl_catalogue_set_flags(
		catalogue, ticket->slot,
		(item->flags & ~(uint32_t)SLUICE_BLOB_PIN) |
			(sl_blob_record(server, ticket->slot).flags & SLUICE_BLOB_PIN));
	return 0;
}

/* All of them, or none: what was entered for this seal is taken back. */
static int seal_all(struct sl_server *server, struct sl_ticket **tickets, unsigned count)
{
	const struct sl_msg_seal *request = &server->in.seal;
	const struct sl_metadata *record = sl_message_metadata(&server->in);
	uint64_t fresh = 0;
	uint32_t slots[SL_ITEMS_MOST];
	bool sealed = count == 1 && tickets[0]->slot == SL_NO_SLOT;
	int rc = 0;

	for (unsigned i = 0; !rc && i < count; i++) {
		fresh |= (uint64_t)(tickets[i]->slot == SL_NO_SLOT) << i;
		rc = prepare(server, tickets[i], &request->items[i], record, sealed);
		slots[i] = tickets[i]->slot;
	}
	sl_store_step("server: prepared");
	if (!rc && !sealed)
		rc = sl_catalogue_seal(server->catalogue, slots, count);
	if (!rc && !sealed) {
		server->created -= count;
		server->sealed += count;
	}
	for (unsigned i = 0; i < count; i++) {
		bool is_fresh = fresh >> i & 1;

		if (!rc)
			sl_blob_mark(server, slots[i]);
		if (!rc && is_fresh)
			sl_watch_tell(server, slots[i], SLUICE_WATCH_CREATED);
		if (!rc || !is_fresh || tickets[i]->slot == SL_NO_SLOT)
			continue;
		/* Back to what it was: memory without a name. */
		forget_nowhere(server, tickets[i]->slot);
		tickets[i]->region->slots[tickets[i]->range] = SL_NO_SLOT;
		tickets[i]->slot = SL_NO_SLOT;
	}
	return rc;
}

static void tell_sealed(struct sl_server *server, struct sl_peer *peer, struct sl_ticket *ticket,
                        uint32_t serial, struct sl_found_item *out)
{
	uint64_t bytes = sl_region_range_bytes(ticket->region);
	bool host = ticket->region->device < 0;
	bool small = host ? bytes <= SL_SMALL_BYTES : ticket->region->range_bytes > 0;
	struct sl_wanted wanted = {bytes, small ? 0 : SLUICE_BLOB_ALONE, ticket->region->device,
	                           ticket->region->kind};
	uint32_t slot = ticket->slot;
	struct sl_ticket *next;

	sl_peer_pin(server, peer, serial, slot);
	if (server->spill)
		ticket->region->stamp = ++server->spill->last_stamp;
	free_ticket(server, ticket, true);
	*out = (struct sl_found_item){.id = server->blobs[slot].id,
	                              .generation =
	                                      sl_catalogue_generation(server->catalogue, slot),
	                              .slot = slot};
	server->blob_bytes += host ? bytes : 0;
	server->counts.seals++;
	if ((!host ||
	     peer->leased_bytes + bytes <= server->settings->memory_bytes / ADVANCE_PART) &&
	    !new_ticket(server, peer, &wanted, false, &next) && next)
		tell_ticket(next, &out->lease);
}

int sl_blob_seal(struct sl_server *server, struct sl_peer *peer)
{
	unsigned count = server->in.head.count;
	uint32_t serial = server->in.head.serial, slots[SL_ITEMS_MOST];
	struct sl_ticket *tickets[SL_ITEMS_MOST] = {NULL};
	union sl_message answer;
	int rc = 0;

	for (unsigned i = 0; !rc && i < count; i++) {
		rc = check_item(server, peer, &server->in.seal.items[i], &tickets[i]);
		for (unsigned j = 0; !rc && j < i; j++)
			if (tickets[i] == tickets[j])
				rc = sl_fail(-EINVAL, "the same blob twice in one seal");
	}
	if (!rc)
		rc = seal_all(server, tickets, count);
	if (rc)
		return rc;
	sl_store_step("server: sealed");
	for (unsigned i = 0; i < count; i++)
		slots[i] = tickets[i]->slot;
	sl_message_begin(&answer, SL_MSG_FOUND, serial, count);
	for (unsigned i = 0; i < count; i++)
		tell_sealed(server, peer, tickets[i], serial, &answer.found.items[i]);
	/* Clients that wait for the blobs come first: the client that sealed them may take this processor when it hears. */
	for (unsigned i = 0; i < count; i++) {
		sl_get_wake(server, slots[i]);
		sl_watch_tell(server, slots[i], SLUICE_WATCH_SEALED);
	}
	return sl_peer_send(server, peer, &answer, -1);
}
