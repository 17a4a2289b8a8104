/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Parts: blobs that have no key, and belong to an owner.
 *
 * A part lives as long as its owner has an entry. Owners and parts have regions of their own, so
 * that their memory can leave in its order: the owner before its parts, and back after them. The
 * catalogue says which parts an owner has; this file keeps the server's notes of it, which are
 * believed. On the server's thread.
 */
#include <errno.h>

#include "sluiced/blobs/blobs.h"
#include "sluiced/memory/memory.h"

int sl_part_check(const struct sl_range_lease *lease, bool part)
{
	const struct sl_region *region = lease->region;

	if (part && lease->slot != SL_NO_SLOT)
		return sl_fail(-EINVAL, "a part of a blob has no name");
	if (region->range_bytes)
		return sl_fail(-EINVAL, "a part of a blob, or its owner, lies beside other blobs");
	if (region->kind == SLUICE_BLOB_OF_PROCESS)
		return sl_fail(-EINVAL, "a part of a blob is memory that its process lends");
	if (!part && region->device >= 0)
		return sl_fail(-EINVAL, "a blob with parts is on a device");
	return 0;
}

void sl_parts_tie(struct sl_server *server, uint32_t owner, uint32_t first)
{
	server->blobs->by_slot[owner].part = first;
	sl_parts_each (part, server, owner)
		server->blobs->by_slot[part].owner = owner + 1;
}

/* ------------------------------------------------------------------------------------ recovery */

static bool parts_is_part(const struct sl_server *server, uint32_t slot)
{
	return sl_catalogue_state(server->catalogue, slot) != SL_ENTRY_FREE &&
	       sl_blob_record_at(server, slot).flags & SL_FLAG_PART;
}

/* Ties the parts of an owner as far as its chain is right. Returns false if it is not. */
static bool parts_recover_chain(struct sl_server *server, uint32_t owner)
{
	struct sl_blob *by_slot = server->blobs->by_slot;
	uint32_t *at = &by_slot[owner].part, next = sl_blob_record_at(server, owner).next;

	for (unsigned count = 0; next; count++) {
		uint32_t slot = next - 1;

		if (slot >= server->blobs->top || count == SL_ITEMS_MOST ||
		    !parts_is_part(server, slot) || by_slot[slot].owner || !by_slot[slot].region ||
		    by_slot[slot].region->range_bytes ||
		    sl_catalogue_state(server->catalogue, slot) == SL_ENTRY_DYING)
			return false;
		by_slot[slot].owner = owner + 1;
		*at = next;
		at = &by_slot[slot].part;
		next = sl_blob_record_at(server, slot).next;
	}
	return true;
}

void sl_parts_recover(struct sl_server *server)
{
	for (uint32_t slot = 0; slot < server->blobs->top; slot++) {
		if (sl_catalogue_state(server->catalogue, slot) == SL_ENTRY_FREE ||
		    parts_is_part(server, slot) || parts_recover_chain(server, slot) ||
		    sl_catalogue_state(server->catalogue, slot) == SL_ENTRY_DYING)
			continue;
		sl_blob_report(server, slot, "one of its parts is not there");
		sl_blob_forget(server, slot);
	}
	/* The owner was not sealed, or was freed already. */
	for (uint32_t slot = 0; slot < server->blobs->top; slot++)
		if (parts_is_part(server, slot) && !sl_blob_is_part(server, slot)) {
			server->blobs->by_slot[slot].owner = slot + 1;
			sl_blob_forget(server, slot);
		}
}

void sl_parts_check(struct sl_server *server)
{
	for (uint32_t slot = 0; slot < server->blobs->top; slot++) {
		bool away = false;

		sl_parts_each (part, server, slot)
			away |= sl_catalogue_state(server->catalogue, part) != SL_ENTRY_SEALED;
		if (!away || sl_blob_is_part(server, slot) ||
		    sl_catalogue_state(server->catalogue, slot) != SL_ENTRY_SEALED)
			continue;
		sl_blob_report(server, slot, "a part of it is not in memory");
		sl_blob_forget(server, slot);
	}
}
