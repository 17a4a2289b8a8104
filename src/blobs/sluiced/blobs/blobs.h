/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Blobs: the server's side of the entries of the catalogue. make.c makes them, blob_get.c finds
 * them for clients, delete.c deletes and blobs.c evicts them, recover.c rebuilds all of this from
 * the state that a dead server has left.
 *
 *   parts   blobs without keys, of an owner: parts.c ties them to it
 *   blob    the server's knowledge of an entry besides the catalogue's record
 *   lease   a client's right to make a blob in a range of a region; ends with its seal or abort
 */
#ifndef SL_SLUICED_BLOBS_H
#define SL_SLUICED_BLOBS_H

#include "sluiced/server.h"

#define SL_LEASES_MOST 1024 /* of a peer */

struct sl_region;

struct sl_range_lease {
	struct sl_list bucket;    /* in sl_blobs.leases, by number */
	struct sl_list peer_link; /* in peer->leases */
	uint64_t number;
	struct sl_peer *peer;
	struct sl_region *region;
	unsigned range;
	uint32_t slot;              /* of the entry that has the name, or SL_NO_SLOT */
	uint32_t next;              /* in a seal: of the next part, as in its record */
	struct sl_metadata *record; /* metadata that came before the seal, or NULL */
};

struct sl_blob {
	struct sl_region *region; /* NULL: its memory is unknown, and it is being deleted */
	unsigned range;
	struct sl_list loose; /* in sl_blobs.caches or .transients */
	uint32_t next;        /* in the chain of sl_blobs.by_id */
	uint32_t owner;       /* of a part: its owner's slot, or its own, plus 1; 0: it is none */
	uint32_t part;        /* of an owner its first part, of a part the next: slot plus 1; 0 */
	uint64_t id;          /* 0: the slot is free */
};

struct sl_blobs {
	uint32_t row; /* of the descriptor table, of the segment */
	struct sl_segment *segment;
	struct sl_blob *by_slot;
	uint32_t *by_id;           /* heads of chains, by the id modulo slots; SL_NO_SLOT */
	uint32_t top;              /* this slot and those behind it were never used */
	bool sweep_due;            /* something was deleted or released since the last sweep */
	struct sl_list caches;     /* blobs that may go when memory is short, held or not */
	struct sl_list transients; /* blobs that go when nobody holds them */
	unsigned loose_count;      /* in both lists */
	struct sl_list leases[SL_BUCKETS];
	uint64_t last_lease;
};

/* A blob, or a region with all its blobs, that may leave when memory is short. */
struct sl_candidate {
	struct sl_region *region;
	uint32_t slot;  /* of the blob */
	bool follows;   /* a part, which goes after its owner */
	uint64_t idle;  /* ticks since its last use */
	uint64_t stamp; /* of two that are equally idle, the smaller stamp leaves first */
};

/* Returns the catalogue's record of an entry. */
static inline struct sl_blob_record sl_blob_record_at(const struct sl_server *server, uint32_t slot)
{
	struct sl_blob_record record;

	sl_catalogue_record(server->catalogue, slot, &record);
	return record;
}

static inline bool sl_blob_is_transient(const struct sl_server *server, uint32_t slot)
{
	return sl_blob_record_at(server, slot).flags & SLUICE_BLOB_TRANSIENT;
}

/* --------------------------------------------------------------------------------------- index */

/* Adds a blob to the index by id; the catalogue itself finds blobs by name. */
void sl_blob_add(struct sl_server *server, uint32_t slot, uint64_t id);
/* Returns its slot, or SL_NO_SLOT. */
uint32_t sl_blob_by_id(const struct sl_server *server, uint64_t id);
/* Finds the blob of a key that is not deleted. Returns 0 or -ENOENT. */
int sl_key_find(const struct sl_server *server, const struct sl_key *key, uint32_t *slot);
/* Fails with a sentence about the blob of a key. Returns the error. */
int sl_key_refuse(const struct sl_key *key, int error, const char *why);
/* Reports a blob that a new server drops. Its name may be anything. */
void sl_blob_report(struct sl_server *server, uint32_t slot, const char *why);
/* After a seal or a change of flags: lists a blob as a cache, as transient, or as neither. */
void sl_blob_relist(struct sl_server *server, uint32_t slot);

/* ---------------------------------------------------------------------------------------- parts */

/* Loops over the slots of the parts of an owner. */
#define sl_parts_each(part, server, slot)                                                    \
	for (uint32_t part##_at = (server)->blobs->by_slot[slot].part, part = part##_at - 1; \
	     part##_at; part##_at = (server)->blobs->by_slot[part].part, part = part##_at - 1)

static inline bool sl_blob_is_part(const struct sl_server *server, uint32_t slot)
{
	return server->blobs->by_slot[slot].owner;
}
/* Returns the owner of a part, or the blob itself. */
static inline uint32_t sl_blob_owner(const struct sl_server *server, uint32_t slot)
{
	return sl_blob_is_part(server, slot) ? server->blobs->by_slot[slot].owner - 1 : slot;
}
/* Returns the bytes of a blob and its parts. */
static inline uint64_t sl_blob_bytes(const struct sl_server *server, uint32_t slot)
{
	uint64_t bytes = sl_blob_record_at(server, slot).size;

	sl_parts_each (part, server, slot)
		bytes += sl_blob_record_at(server, part).size;
	return bytes;
}
/* Checks a lease for a seal of an owner or a part. Returns 0 or -EINVAL with a sentence. */
int sl_part_check(const struct sl_range_lease *lease, bool part);
/* Ties the parts that begin with that slot plus 1 to their owner, in the server's notes. */
void sl_parts_tie(struct sl_server *server, uint32_t owner, uint32_t first);
/* Returns the memory of a blob and its parts on a device, -1: the host; ANY: anywhere. */
#define SL_DEVICE_ANY INT32_MIN
uint64_t sl_parts_memory(const struct sl_server *server, uint32_t slot, int32_t device);
/* In a new server, when all blobs are known: ties parts to their owners, and deletes the rest. */
void sl_parts_recover(struct sl_server *server);
/* When spilled regions are known: deletes owners in memory with a part that is not. */
void sl_parts_check(struct sl_server *server);

/* ------------------------------------------------------------------------------- delete, evict */

/*
 * Returns 0 if a delete that was sent again has nothing to do any more: it was done, or, by name,
 * another blob has replaced its blob, as if that had been deleted just before, which is so for one
 * call. -ESTALE: the blob was replaced, and not deleted before. -ENOENT: nothing is known.
 */
int sl_delete_fate(const struct sl_server *server, uint64_t blob, uint64_t call, bool by_name);
/* Handles SL_MSG_DELETE; a delete that is sent again is done once. */
int sl_handle_delete(struct sl_server *server, struct sl_peer *peer);
/* In a new server: forgets the last delete of the server before if that has not done it. */
void sl_deletes_recover(struct sl_server *server);
/*
 * Deletes a blob, and notifies watchers and waiting gets. call: of the client that wants it, in the
 * ledger; 0: another blob has been sealed in its place.
 */
void sl_blob_delete(struct sl_server *server, uint32_t slot, uint64_t call);
/* Makes the entry DYING; a sweep frees it. */
void sl_blob_forget(struct sl_server *server, uint32_t slot);
/* Scans all references: frees entries, and deletes transient blobs, that no client holds. */
void sl_blob_sweep(struct sl_server *server);
/* Deletes unheld caches on a device (-1: the host) until `bytes` are free. True if any went. */
bool sl_blob_evict(struct sl_server *server, int32_t device, uint64_t bytes);
/* Sorts candidates, the least recently used first. */
void sl_candidates_sort(struct sl_candidate *candidates, size_t count);

/* ---------------------------------------------------------------------------------------- make */

int sl_handle_create(struct sl_server *server, struct sl_peer *peer);
/* Tries the create in server->in. -EINPROGRESS: there is no room yet, and nothing has changed. */
int sl_create_try(struct sl_server *server, struct sl_peer *peer);
int sl_handle_annotate(struct sl_server *server, struct sl_peer *peer);
int sl_handle_abort(struct sl_server *server, struct sl_peer *peer);
int sl_handle_seal(struct sl_server *server, struct sl_peer *peer);
/* Ends a lease without a blob: its entry and its range are free again. */
void sl_lease_undo(struct sl_server *server, struct sl_range_lease *lease);

/* ----------------------------------------------------------------------------------------- get */

int sl_handle_get(struct sl_server *server, struct sl_peer *peer);
int sl_handle_region(struct sl_server *server, struct sl_peer *peer);
int sl_handle_locate(struct sl_server *server, struct sl_peer *peer);
/* Retries the gets that wait for a blob, which was sealed, is back in memory, or is gone. */
void sl_get_wake(struct sl_server *server, uint32_t slot);
/* Refuses the gets that wait for a blob that could not be read back, with spill->error. */
void sl_get_fail(struct sl_server *server, uint32_t slot);
/* Makes the get or pin in server->in wait until a blob that is AWAY is back. */
int sl_get_await(struct sl_server *server, struct sl_peer *peer);
/* Sets wait_mark of the regions that waiting gets need, while other regions are being read. */
void sl_get_mark(struct sl_server *server, uint64_t mark);
void sl_get_expire(struct sl_server *server, int64_t now);

/* ------------------------------------------------------------------------------------- recover */

/* Takes over the state that a previous server has left, or begins with an empty catalogue. */
int sl_server_recover(struct sl_server *server);

#endif
