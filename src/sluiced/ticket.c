/* SPDX-License-Identifier: Apache-2.0 */
/* Tickets: ranges of memory that a client may make blobs in. */
#include <errno.h>
#include <stdlib.h>

#include "sluiced/server.h"

/* New memory of this size takes longer to be touched than any sweep does. */
#define LARGE (UINT64_C(1) << 20)

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

int sl_ticket_new(struct sl_server *server, struct sl_peer *peer, const struct sl_wanted *wanted,
                  bool make, struct sl_ticket **out)
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
	(*out)->flags = wanted->flags;
	if (!region->offered && !region->maker)
		region->maker = (*out)->number;
	return 0;
}

struct sl_ticket *sl_ticket_find(struct sl_server *server, const struct sl_peer *peer,
                                 uint64_t number)
{
	sl_list_each (link, &server->tickets[number % SL_BUCKETS]) {
		struct sl_ticket *ticket = SL_CONTAINER(link, struct sl_ticket, bucket);

		if (ticket->number == number)
			return ticket->peer == peer ? ticket : NULL;
	}
	return NULL;
}

void sl_ticket_free(struct sl_server *server, struct sl_ticket *ticket, bool keep)
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

void sl_ticket_tell(const struct sl_ticket *ticket, struct sl_lease *out)
{
	*out = (struct sl_lease){
		.ticket = ticket->number,
		.make = ticket->region->maker == ticket->number,
		.place = {.region = ticket->region->id,
	                  .region_bytes = ticket->region->bytes,
	                  .offset = (uint64_t)ticket->range * ticket->region->range_bytes,
	                  .capacity = sl_region_range_bytes(ticket->region),
	                  .device = ticket->region->device,
	                  .kind = ticket->region->kind},
	};
}
