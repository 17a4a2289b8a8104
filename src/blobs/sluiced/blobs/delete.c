/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Deleting blobs: each delete is noted in the ledger, so that it is done once.
 *
 * On the server's thread.
 */
#include <errno.h>

#include "sluiced/blobs/blobs.h"
#include "sluiced/peers/peers.h"

static struct sl_ledger_delete *delete_at(const struct sl_server *server, uint64_t number)
{
	return &server->descriptors->ledger->deleted[number % SL_DELETES_MOST];
}

/*
 * Notes a delete before it is done, so that its fate is known if this server dies before it
 * answers. call: of the client that wants it; 0 or SL_CALL_EXCHANGE: a seal has replaced the blob.
 */
static void delete_note(struct sl_server *server, uint64_t id, uint64_t call)
{
	_Atomic uint64_t *count = &server->descriptors->ledger->deletes;
	uint64_t number = atomic_load(count);

	*delete_at(server, number) = (struct sl_ledger_delete){id, call};
	atomic_store(count, number + 1);
	sl_store_step("server: delete is noted");
}

void sl_blob_delete(struct sl_server *server, uint32_t slot, uint64_t call)
{
	delete_note(server, server->blobs->by_slot[slot].id, call);
	sl_watchers_notify(server, slot, SLUICE_WATCH_DELETED);
	sl_blob_forget(server, slot);
	server->counts.deletes++;
	/* For gets that wait until it is back in memory. */
	sl_get_wake(server, slot);
}

void sl_deletes_recover(struct sl_server *server)
{
	uint64_t count = atomic_load(&server->descriptors->ledger->deletes);
	struct sl_ledger_delete *last = delete_at(server, count - 1);
	const struct sl_key key = {.id = last->blob};
	uint32_t slot;

	if (count && key.id && !sl_key_find(server, &key, &slot))
		*last = (struct sl_ledger_delete){0};
	/* Another blob may have the name of such a blob, by a seal that may have named it. */
	for (slot = 0; slot < server->blobs->top; slot++)
		if (sl_catalogue_damage(server->catalogue, slot))
			delete_note(server, server->blobs->by_slot[slot].id, SL_CALL_EXCHANGE);
}

int sl_delete_fate(const struct sl_server *server, uint64_t blob, uint64_t call, bool by_name)
{
	uint64_t count = atomic_load(&server->descriptors->ledger->deletes);
	int rc = -ENOENT;

	/* The oldest may be half written. */
	for (uint64_t n = 1; n < SL_DELETES_MOST && n <= count; n++) {
		struct sl_ledger_delete *done = delete_at(server, count - n);

		if (by_name && blob && done->blob == blob && !done->call)
			done->call = call;
		if (done->blob && done->call == call)
			return 0;
		if (blob && done->blob == blob && done->call <= SL_CALL_EXCHANGE)
			rc = -ESTALE;
	}
	return rc;
}

int sl_handle_delete(struct sl_server *server, struct sl_peer *peer)
{
	const struct sl_msg_one_blob *request = &server->in.one;
	uint32_t serial = request->head.serial, first = request->first, slot;
	uint64_t call = peer->session << 32 | (first ? first : serial);
	/* The name alone may be that of a later blob. */
	int rc = first && !request->key.id ? -ENOENT : sl_key_find(server, &request->key, &slot);
	bool open = !rc && sl_catalogue_state(server->catalogue, slot) == SL_ENTRY_OPEN;

	if (!rc && !open) {
		sl_blob_delete(server, slot, call);
		sl_store_step("server: deleted");
		return sl_peer_done(server, peer, serial);
	}
	rc = first ? sl_delete_fate(server, request->key.id, call, !request->on) : -ENOENT;
	if (rc)
		return sl_key_refuse(&request->key, rc,
		                     open ? "is not sealed yet" : "is not there");
	return sl_peer_done(server, peer, serial);
}
