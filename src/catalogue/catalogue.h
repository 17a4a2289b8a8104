/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The catalogue of the store: the records of all blobs, in memory that the server alone writes and its clients read. A client
 * finds a sealed blob and keeps it from being recycled without asking anybody, and without a system call.
 *
 *   segment      the shared memory: header, index of names, one entry for each slot, pages for large
 *                metadata. Written by one server at a time; clients map it read-only
 *   references   shared memory of one client, which it alone writes: what it holds
 *   catalogue    the server's side of a segment; private to its one thread
 *   reader       a client's side: a segment and the client's references. Any thread
 *
 * The word of an entry holds its generation and its state, and commits each change: it is written last, by one store. A
 * generation belongs to one blob in one place of memory: the slot gets a new one when it is filled, and when the bytes come
 * back to memory from elsewhere. So a mapping of the bytes of (slot, generation) is right while this generation is seen.
 *
 *   state     who reads the record         what may follow
 *   FREE      nobody                       OPEN, SEALED, with a new generation
 *   OPEN      the server                   SEALED, DYING
 *   SEALED    the server, and holders      LEAVING, DYING
 *   LEAVING   the server, and holders      SEALED if it is held, else AWAY; DYING
 *   AWAY      the server                   SEALED with a new generation; DYING
 *   DYING     holders                      FREE, when nobody holds it
 *
 * Get, in a client                           Delete, in the server
 *   g1  word := the entry's; SEALED?           d1  the entry's word := DYING
 *   g2  own reference := (slot, generation)    d2  the index forgets the name
 *   g3  the entry's word = word? else          d3  scan the references of all clients
 *       take the reference back, again         d4  none is (slot, generation): word := FREE
 *   g4  read the record, compare the name          else: scan again, some time later
 *
 * Memory order. g2, g3, d1 and d3 are sequentially consistent: all threads agree on their order. If g3 does not see d1, it
 * comes before d1, hence g2 before d3: the scan sees the reference, and the slot stays. If g3 sees d1 the client does not read
 * the record. On x86 that is one locked instruction in g2 and one in d1. Letting go of a reference is the third full fence, so
 * that sl_reader_release() can say whether the server waits for it. The rest:
 *   - the word is stored with release after the record, and g1 acquires: so the record that g4 reads is whole. Nobody writes
 *     it between g3 and the release of the reference, so that it needs no atomics;
 *   - the scan acquires the store that took a reference back: so the client has read the record and the blob's bytes before
 *     the slot or its memory is used again;
 *   - LEAVING is DYING with a way back. The scan that finds nobody comes before AWAY, and nothing of the blob is touched
 *     before that; while the word is LEAVING no get succeeds; a get that began before and looks again after SEALED was
 *     restored, under the same generation, holds a blob that nobody has moved;
 *   - the window of a client's references is read by d3 as the references are, and written before them.
 * tests/model/catalogue.pml has this protocol for Spin, with each of these steps left out in turn. spill.h says what happens
 * to the bytes while a blob is AWAY; it may also become SEALED again where it was.
 *
 * A reader trusts nothing that it finds in the index or in a segment: a value that is missing, unfinished, changing or not
 * plausible means "ask the server", which knows. So names may be missing in the index for a moment.
 *
 * Several blobs are sealed at once like this: the number of the batch is written into all their entries, then into
 * `publishing` of the header, then they become SEALED one by one, then `publishing` is cleared. A reader that holds an entry
 * of the batch that is being published lets go and asks the server. So no two readers, and no reader twice, can see some
 * sealed and the others not. A server that finds `publishing` set seals the rest of the batch.
 *
 * The memory has mode 0600: no process of another user that has it to read can open it for writing. A process of the server's
 * own user can, and write anything: readers then find that, and the server, which goes by its own notes of states,
 * generations and pages, and bounds all else that it reads, stays as it was.
 *
 * Death of the server. A process that is killed has made all its stores up to some instruction and none after it; and the
 * compiler keeps releasing stores behind earlier ones. So the words tell a new server how far each change had come: see
 * sl_catalogue_open(). Clients go on reading meanwhile. Generations, ids and batches are counted in the segment.
 *
 * Death of a client. Its references go with it, by sl_catalogue_part(). A client may write anything into its references: the
 * server bounds what it reads there, so that a client can only hold blobs that it could get, or give up its own.
 *
 * Results are 0 or a negative errno without a sentence, if nothing else is said.
 */
#ifndef SL_CATALOGUE_H
#define SL_CATALOGUE_H

#include "core/core.h"

#define SL_NAME_MOST        255  /* bytes of a name */
#define SL_METADATA_MOST    4096 /* bytes of metadata of a blob; more than SL_METADATA_INLINE */
#define SL_METADATA_INLINE  136  /* need one of the segment's pages, of which there is one for */
#define SL_SLOTS_FOR_PAGE   8    /* so many slots */
#define SL_SLOTS_LEAST      64u  /* of a segment */
#define SL_SLOTS_MOST       (1u << 20)
#define SL_REFERENCES_LEAST 256u /* that a client can have at a time */
#define SL_REFERENCES_MOST  (1u << 16)
/* Of a segment, and of references: increased when what lies where in them, or what it means, changes. */
#define SL_SEGMENT_VERSION 1

enum sl_entry_state {
	SL_ENTRY_FREE,
	SL_ENTRY_OPEN,
	SL_ENTRY_SEALED,
	SL_ENTRY_LEAVING,
	SL_ENTRY_AWAY,
	SL_ENTRY_DYING,
	SL_ENTRY_STATES,
};

/* Where the bytes of a blob are. The catalogue carries it; a client checks it against the descriptor that it has. */
struct sl_blob_place {
	uint64_t memory; /* which descriptor, by the server's number for it */
	uint64_t offset; /* of the first byte in it */
	int32_t device;  /* -1: host memory; else the number of the GPU */
	uint32_t kind;   /* of the descriptor */
};

/* What identifies a blob: its name or, if length is 0, its id. */
struct sl_blob_key {
	const char *name; /* any bytes; need not end with NUL */
	size_t length;    /* at most SL_NAME_MOST */
	uint64_t id;
};

/* What an entry says. Pointers point into the segment, or are the caller's. */
struct sl_blob_record {
	struct sl_blob_key key; /* id of named ones, too; given by the catalogue, from 1 */
	uint64_t size;          /* bytes */
	struct sl_blob_place place;
	uint64_t creator; /* the process that made it, before 42 bits of when: ms since 1970 */
	uint32_t uid;     /* of that process */
	uint32_t flags;   /* of the store, may change at any time */
	const void *metadata;
	size_t metadata_size; /* at most SL_METADATA_MOST */
};

/* When it was made, nanoseconds since 1970. */
static inline int64_t sl_record_made_ns(const struct sl_blob_record *record)
{
	return (int64_t)(record->creator & ((UINT64_C(1) << 42) - 1)) * 1000000;
}

/* ----------------------------------------------------------------------------------- segment */

/* A memfd of so many bytes, which keeps that size, its seals and the mode 0600, whoever has it. It begins with n bytes of
 * head; fixed: nobody can write to it. */
int sl_memory_begin(const char *name, uint64_t bytes, const void *head, size_t n, bool fixed,
                    int *fd);
/* A mapping of a segment. */
struct sl_segment;

/* A memfd with an empty catalogue. slots: a power of two from SL_SLOTS_LEAST to SL_SLOTS_MOST. It takes memory as slots come
 * into use, at most 1.1 KiB each. -EINVAL, -ENOMEM, -EMFILE ... */
int sl_segment_new(uint32_t slots, int *fd);
/* Maps it, for writing in the one server, read-only in clients. -EBADMSG: not a whole segment of this version, or one that
 * could shrink under the mapping. Does not keep fd. */
int sl_segment_map(int fd, bool writable, struct sl_segment **out);
/* NULL is allowed, here and in all that free or close below. */
void sl_segment_unmap(struct sl_segment *segment);
uint32_t sl_segment_slots(const struct sl_segment *segment);

/* -------------------------------------------------------------------------------- references */

/* A mapping of a client's references. */
struct sl_references;

/* A memfd for count references, a power of two, which cannot shrink or grow. */
int sl_references_new(uint32_t count, int *fd);
/* Maps it: for writing in the client, where children do not get the mapping, read-only in the server. -EBADMSG: not what
 * sl_references_new() makes. Does not keep fd. */
int sl_references_map(int fd, bool writable, struct sl_references **out);
void sl_references_unmap(struct sl_references *references);
/* Whether anything is held by them, as far as can be told while their client goes on. In the server. */
bool sl_references_any(const struct sl_references *references);

/* ----------------------------------------------------------------------------- a client's side */

/* Its fields are set by the owner, who keeps both mapped while anything is held. */
struct sl_reader {
	const struct sl_segment *segment;
	struct sl_references *references;
};

/* A sealed blob that this client holds. */
struct sl_held_blob {
	uint32_t slot;
	uint32_t position;            /* in the references */
	uint64_t generation;          /* of the slot: 1 to 2^36 - 1 */
	struct sl_blob_record record; /* its pointers are good until the release */
};

/*
 * Holds the sealed blob of that name or id. Any thread; no lock, no system call, no wait: at most a few dozen
 * looks at the segment. Each call that succeeds has a reference of its own, to be released. Everything else
 * means "ask the server":
 *   -ENOENT   not in the index; -EAGAIN: not sealed, on its way, or changing all the time
 *   -ENOSPC   all references are in use
 *   -EPROTO   the segment holds what no server writes
 */
int sl_reader_get(const struct sl_reader *reader, const struct sl_blob_key *key,
                  struct sl_held_blob *out);
/* The same for a slot that the server has named, and keeps meanwhile (sl_catalogue_pin()). -EAGAIN: it is another generation
 * by now, or not sealed. */
int sl_reader_take(const struct sl_reader *reader, uint32_t slot, uint64_t generation,
                   struct sl_held_blob *out);
/*
 * Afterwards neither the record's pointers nor the blob's bytes may be read. Any thread. True: the blob is DYING, and the
 * server is to be told, so that it sweeps. If a sweep finds a DYING blob held, then afterwards a release says so, or a
 * get fails with -EAGAIN, or the client dies: by the same argument as for get, with the reference taken back in the
 * place of g2. So a server that sweeps when it is told, when it is asked and when a client is gone needs no timer.
 */
bool sl_reader_release(const struct sl_reader *reader, const struct sl_held_blob *held);

/* ----------------------------------------------------------------------------- the server's side */

struct sl_catalogue;

/*
 * Takes a segment over, mapped for writing, after the server before has died or as the first one. Each change
 * that was under way is either finished or undone:
 *   FREE            stays, whatever was written into it: nobody was told of it
 *   OPEN            stays; if it belongs to the batch that was being published it is sealed
 *   LEAVING         sealed: nothing of it was moved
 *   SEALED, AWAY    stay, and are in the index
 *   DYING           stays until a sweep finds that nobody holds it. Join all clients' references first
 * A record that no server writes (lengths, hash, the same name twice, a page of metadata twice) is made DYING
 * and counted in *broken, which may be NULL. The header is believed. -EINVAL: mapped read-only. -ENOMEM.
 */
int sl_catalogue_open(struct sl_segment *segment, unsigned *broken, struct sl_catalogue **out);
/* The segment stays mapped, and as it is. */
void sl_catalogue_close(struct sl_catalogue *catalogue);

/* A client's references are looked at from now on; before it is told where the segment is. Mapped by the
 * caller, who unmaps them after sl_catalogue_part(). -ENOMEM. */
int sl_catalogue_join(struct sl_catalogue *catalogue, struct sl_references *references);
void sl_catalogue_part(struct sl_catalogue *catalogue, struct sl_references *references);

enum sl_insert {
	SL_INSERT_OPEN,
	SL_INSERT_SEALED,
	/* SEALED, though there is an entry of that name, which the caller deletes next. A get finds the one or
	 * the other until then, and never the old one after the new one: all look in the same order. By that
	 * order sl_catalogue_open() keeps one of both. */
	SL_INSERT_BESIDE
};
/*
 * Makes an entry, OPEN or SEALED, and gives it an id. The record is copied.
 *   -EEXIST   there is one of that name, which is not DYING
 *   -ENOSPC   no slot, or no place for that name in the index: that is so for
 *             names that were chosen for it (each has 16 places; there are 4 for each slot)
 *   -ENOBUFS  no page for the metadata
 *   -EINVAL   a length
 */
int sl_catalogue_insert(struct sl_catalogue *catalogue, const struct sl_blob_record *record,
                        enum sl_insert how, uint32_t *slot);
/* Replaces the metadata of an OPEN entry. -EINVAL; -ENOBUFS: no page for it. */
int sl_catalogue_describe(struct sl_catalogue *catalogue, uint32_t slot, const void *metadata,
                          size_t size);
/* Seals OPEN entries, all at once. -EINVAL, and nothing is changed: one is not OPEN. */
int sl_catalogue_seal(struct sl_catalogue *catalogue, const uint32_t *slots, size_t count);

/* The name is free again at once; the slot after a sweep has found that nobody holds it. -EINVAL: FREE, or DYING. */
int sl_catalogue_delete(struct sl_catalogue *catalogue, uint32_t slot);
/* No get succeeds until the next sweep makes it AWAY or, if it is held, SEALED again. -EINVAL: not SEALED. */
int sl_catalogue_withdraw(struct sl_catalogue *catalogue, uint32_t slot);
/* Where the bytes of an AWAY entry are now; sealed: in memory, and everybody may get them. */
int sl_catalogue_move(struct sl_catalogue *catalogue, uint32_t slot,
                      const struct sl_blob_place *place, bool sealed);
int sl_catalogue_set_flags(struct sl_catalogue *catalogue, uint32_t slot, uint32_t flags);

enum sl_left { SL_LEFT_GONE, SL_LEFT_AWAY, SL_LEFT_STAYS };
/*
 * Scans the references of all clients once, and calls `left` for each slot that is settled. GONE: a DYING one that nobody
 * holds; its record is still there during the call, and the slot is free after it. AWAY and STAYS: what became of a LEAVING
 * one. The call must not change the catalogue. Returns how many DYING ones are still held. It takes 1 us, and 2 to 3 ns for
 * each reference that the clients have or had: 0.25 ms for 100 of them with 1000 each. So one call serves many deletes.
 */
unsigned sl_catalogue_sweep(struct sl_catalogue *catalogue,
                            void (*left)(void *argument, uint32_t slot, enum sl_left what),
                            void *argument);
/* How many references these have, of a blob's bytes as they are now: to say who holds what. */
unsigned sl_catalogue_holds(const struct sl_catalogue *catalogue, uint32_t slot,
                            const struct sl_references *references);
/* The server holds it itself, while an answer that names it is on its way. Counted; gone with the server. */
void sl_catalogue_pin(struct sl_catalogue *catalogue, uint32_t slot);
void sl_catalogue_unpin(struct sl_catalogue *catalogue, uint32_t slot);
/* As the last sweep has found it: nobody holds it, the server itself does for a moment, or a client. */
enum sl_held { SL_HELD_NOT, SL_HELD_HERE, SL_HELD_THERE };
enum sl_held sl_catalogue_held(const struct sl_catalogue *catalogue, uint32_t slot);

/* A clock of the caller's, in any unit, for choosing which blobs leave. Clients note on release when a slot was held, in one
 * byte, so that times are right within the last 254 ticks if a sweep was made since then. */
void sl_catalogue_tick(struct sl_catalogue *catalogue);
/* Ticks since then; at most those since this server came. */
uint64_t sl_catalogue_idle(const struct sl_catalogue *catalogue, uint32_t slot);

/* For who looks at all: this slot and those behind it were never in use. */
uint32_t sl_catalogue_end(const struct sl_catalogue *catalogue);
/* OPEN, SEALED, LEAVING or AWAY; -ENOENT. */
int sl_catalogue_find(const struct sl_catalogue *catalogue, const struct sl_blob_key *key,
                      uint32_t *slot);
enum sl_entry_state sl_catalogue_state(const struct sl_catalogue *catalogue, uint32_t slot);
uint64_t sl_catalogue_generation(const struct sl_catalogue *catalogue, uint32_t slot);
/* Of a slot that is not FREE; its pointers are good until the entry changes. */
void sl_catalogue_record(const struct sl_catalogue *catalogue, uint32_t slot,
                         struct sl_blob_record *out);

#endif
