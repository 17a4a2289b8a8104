/* SPDX-License-Identifier: Apache-2.0 */
/* Public blobs that are lent to other users: the server holds them, because those have no references here. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "sluiced/server.h"

static struct sl_loan *find_loan(struct sl_peer *peer, uid_t user, uint64_t id)
{
	sl_list_each (link, &peer->loans) {
		struct sl_loan *loan = SL_CONTAINER(link, struct sl_loan, link);

		if (loan->owner->uid == user && loan->id == id)
			return loan;
	}
	return NULL;
}

/* Adds one to what the peer has of it. */
static int lend(struct sl_peer *peer, struct sl_owner *owner, uint32_t slot, uint64_t id)
{
	struct sl_loan *loan = find_loan(peer, owner->uid, id);

	if (!loan) {
		loan = calloc(1, sizeof(*loan));
		if (!loan)
			return sl_fail(-ENOMEM, "no memory");
		loan->owner = owner;
		loan->slot = slot;
		loan->id = id;
		sl_list_append(&peer->loans, &loan->link);
		sl_catalogue_pin(owner->catalogue, slot);
		owner->blobs[slot].lent++;
	}
	loan->count++;
	return 0;
}

static void end_loan(struct sl_loan *loan)
{
	loan->owner->blobs[loan->slot].lent--;
	sl_catalogue_unpin(loan->owner->catalogue, loan->slot);
	loan->owner->sweep = true;
	sl_list_remove(&loan->link);
	free(loan);
}

static int borrow(struct sl_server *server, struct sl_peer *peer, struct sl_lent *out)
{
	const struct sl_borrow *request = &server->in.borrow;
	struct sl_owner *owner = sl_owner_find(server, request->user);
	uint32_t slot = owner ? sl_owner_by_id(owner, request->id) : SL_NO_SLOT;
	struct sl_blob_record record;
	struct sl_region *region;
	int rc;

	if (slot == SL_NO_SLOT || sl_catalogue_state(owner->catalogue, slot) != SL_ENTRY_SEALED)
		return sl_fail(-ENOENT, "the blob is not there any more");
	sl_catalogue_record(owner->catalogue, slot, &record);
	region = owner->blobs[slot].region;
	if (!(record.flags & SLUICE_BLOB_PUBLIC) || !region)
		return sl_fail(-EACCES, "the blob is not public");
	rc = lend(peer, owner, slot, record.key.id);
	if (rc)
		return rc;
	out->id = record.key.id;
	out->bytes = record.size;
	out->flags = record.flags;
	out->place = (struct sl_place){.region = region->id,
	                               .region_bytes = region->bytes,
	                               .offset = record.place.offset,
	                               .capacity = sl_region_range_bytes(region),
	                               .device = -1,
	                               .kind = SLUICE_BLOB_ON_HOST};
	memcpy(out->name, record.key.name, record.key.length);
	if (record.metadata_size)
		sl_message_add_record(&server->out, record.metadata);
	return 0;
}

void sl_borrow(struct sl_server *server, struct sl_peer *peer)
{
	uint32_t serial = server->in.head.serial;
	int rc;

	sl_message_begin(&server->out, SL_LENT, serial, 0);
	rc = borrow(server, peer, &server->out.lent);
	if (rc)
		sl_peer_refuse(server, peer, serial, rc);
	else
		sl_peer_send(server, peer, &server->out, -1);
}

void sl_return(struct sl_server *server, struct sl_peer *peer)
{
	for (unsigned i = 0; i < server->in.head.count; i++) {
		const struct sl_id_item *item = &server->in.ids.items[i];
		struct sl_loan *loan = find_loan(peer, item->user, item->id);

		if (!loan)
			continue;
		loan->count -= SL_MIN(loan->count, item->count);
		if (!loan->count)
			end_loan(loan);
	}
}

void sl_loans_end(struct sl_peer *peer)
{
	while (!sl_list_empty(&peer->loans))
		end_loan(SL_CONTAINER(peer->loans.next, struct sl_loan, link));
}
