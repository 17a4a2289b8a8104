/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The catalogue of the store
 *
 * The records of all blobs, in memory that only the server writes and all clients read. A client
 * finds a sealed blob, and keeps it from being recycled, without a message and without a system
 * call.
 *
 *   segment      the shared memory: header, index of names, an entry for each slot, pages for large
 *                metadata. Written by one server at a time; clients map it read-only
 *   references   shared memory of one client: the blobs that it holds; the server writes their end
 *   catalogue    the server's side of a segment; private to its one thread
 *   reader       a client's side: a segment and the client's references. Any thread
 *
 * The word of an entry holds its generation and its state. It is written last, by a single store,
 * which commits each change. A generation belongs to one blob in one range of memory: a slot gets a
 * new one when it is filled, and when the bytes return to memory from elsewhere. So a mapping of
 * the bytes of (slot, generation) is valid while the word has this generation.
 *
 *   state     record read by               next state
 *   FREE      no process                   OPEN, SEALED, with a new generation
 *   OPEN      the server                   SEALED, DYING
 *   SEALED    the server, and holders      LEAVING, DYING
 *   LEAVING   the server, and holders      SEALED if it is held, else AWAY; DYING
 *   AWAY      the server                   SEALED with a new generation; DYING
 *   DYING     holders                      FREE, when no client holds it
 *
 *   Get, in a client                           Delete, in the server
 *     g1  word := the entry's; SEALED?           d1  the entry's word := DYING
 *     g2  own reference := (slot, generation)    d2  the index forgets the name
 *     g3  the entry's word = word? else          d3  scan the references of all clients
 *         take the reference back, again         d4  none is (slot, generation): word := FREE
 *     g4  read the record, compare the name          else: scan again, some time later
 *
 * Memory order. g2, g3, d1 and d3 are sequentially consistent: all threads agree on their order. If
 * g3 does not see d1, it comes before d1, hence g2 before d3: the scan sees the reference, and the
 * slot stays. If g3 sees d1, the client does not read the record. On x86 that is one locked
 * instruction in g2 and one in d1. Dropping a reference is the third full fence, so that
 * sl_reader_release() can tell whether the server waits for it. The rest:
 *
 *   - The word is stored with release after the record, and g1 acquires, so the record that g4
 *     reads is whole. It is not written between g3 and the release of the reference, so it needs no
 *     atomics.
 *   - The scan acquires the store that took a reference back, so the client has read the record and
 *     the blob's bytes before the slot or its memory is used again.
 *   - LEAVING is DYING with a way back. The scan that finds no holder comes before AWAY, and the
 *     blob is not touched before that; while the word is LEAVING no get succeeds. A get that began
 *     earlier and sees SEALED restored, under the same generation, holds a blob that was not moved.
 *   - References end as a blob is deleted: the server writes `ended` and then scans, and a get
 *     looks at `ended` in g3. Either the scan sees the reference, or the get sees the end.
 *   - The window of a client's references is read by d3 as the references are, and written before
 *     them.
 *
 * tests/model/catalogue.pml models this protocol for Spin, with each of these steps left out in
 * turn. For the bytes of a blob that is AWAY see the spill of the server; such a blob may also
 * become SEALED again where it was.
 *
 * A reader trusts nothing in the index or in the segment: a value that is missing, unfinished,
 * changing or implausible means "ask the server", which knows. So names may be missing in the index
 * for a moment.
 *
 * Several blobs are sealed at once as follows. The number of the batch is written into all their
 * entries, then into `publishing` of the header; then they become SEALED in turn; then `publishing`
 * is cleared. A reader that holds an entry of the batch being published drops it and asks the
 * server. So no two readers, and no reader twice, can see some sealed and the others not. A server
 * that finds `publishing` set seals the rest of the batch.
 *
 * An owner is a blob with parts, a chain of entries that no key leads to: `next` of its record
 * names the first, and that of each part another. Parts are SEALED before their owner is, and go
 * after its slot was freed. They are in memory, and do not move, while the owner is SEALED or
 * LEAVING, so a client that holds the owner reads their records (sl_reader_part()), and holds no
 * other reference. A server that takes over deletes parts that no owner has.
 *
 * The memory has mode 0600: a process of another user that has a descriptor to read it cannot open
 * it for writing. A process of the server's own user can, and may write anything. Readers detect
 * that; the server believes its own notes of states, generations and pages and bounds everything
 * else that it reads, so it is not affected.
 *
 * Death of the server. A killed process has made all its stores up to some instruction and none
 * after it, and the compiler keeps releasing stores behind earlier stores. So the words tell a new
 * server how far each change had come: see sl_catalogue_open(). Clients go on reading meanwhile.
 * Generations, ids and batches are counted in the segment.
 *
 * Death of a client. Its references end with it, by sl_catalogue_part(). A client may write
 * anything into its references: the server bounds all that it reads there, so a client can only
 * hold blobs that it could get, or give up its own.
 *
 * Functions return 0 or a negative errno, without a message, unless documented otherwise.
 */
#ifndef SL_CATALOGUE_H
#define SL_CATALOGUE_H

#include "core/core.h"

#define SL_NAME_MOST        255  /* bytes of a name */
#define SL_METADATA_MOST    4096 /* of a blob; more than SL_METADATA_INLINE bytes */
#define SL_METADATA_INLINE  136  /* take a page of the segment, which has a page for */
#define SL_SLOTS_FOR_PAGE   8    /* so many slots */
#define SL_SLOTS_LEAST      64u  /* of a segment */
#define SL_SLOTS_MOST       (1u << 20)
#define SL_REFERENCES_LEAST 256u /* that a client can have at a time */
#define SL_REFERENCES_MOST  (1u << 16)
/* Version of segments and references; increased when their layout or its meaning changes. */
#define SL_SEGMENT_VERSION 2
/* A flag of records: a part, which has no name and is not in the index. */
#define SL_FLAG_PART UINT32_C(0x80)

enum sl_entry_state {
	SL_ENTRY_FREE,
	SL_ENTRY_OPEN,
	SL_ENTRY_SEALED,
	SL_ENTRY_LEAVING,
	SL_ENTRY_AWAY,
	SL_ENTRY_DYING,
	SL_ENTRY_STATES,
};

/* Where a blob's bytes are, by the catalogue; clients check it against their descriptors. */
struct sl_blob_range {
	uint64_t memory; /* the descriptor, by the server's number for it */
	uint64_t offset; /* of the first byte in it */
	int32_t device;  /* -1: host memory; otherwise the server's number of the device */
	uint32_t kind;   /* of the descriptor */
};

/* A key of a blob: its name or, if length is 0, its id. */
struct sl_blob_key {
	const char *name; /* any bytes; need not end with NUL */
	size_t length;    /* at most SL_NAME_MOST */
	uint64_t id;
};

/* The contents of an entry. Pointers point into the segment, or are the caller's. */
struct sl_blob_record {
	/* with the id of named blobs, too; the catalogue counts ids from 1 */
	struct sl_blob_key key;
	uint64_t size; /* bytes */
	struct sl_blob_range range;
	uint64_t creator; /* pid of the maker, then 42 bits of time: ms since 1970 */
	uint32_t uid;     /* of that process */
	uint32_t flags;   /* of the store; may change at any time */
	uint32_t next;    /* the next part's slot plus 1; 0: there is none */
	const void *metadata;
	size_t metadata_size; /* at most SL_METADATA_MOST */
};

/* Returns the time when the blob was made, in nanoseconds since 1970. */
static inline int64_t sl_record_made_ns(const struct sl_blob_record *record)
{
	return (int64_t)(record->creator & ((UINT64_C(1) << 42) - 1)) * 1000000;
}

/* ------------------------------------------------------------------------------------ segment */

/*
 * Makes a memfd of this size that begins with n bytes of head. The size, the seals and the mode
 * 0600 never change; fixed: the contents do not, either.
 */
int sl_memory_begin(const char *name, uint64_t bytes, const void *head, size_t n, bool fixed,
                    int *fd);
/* A mapping of a segment. */
struct sl_segment;

/*
 * Makes a memfd with an empty catalogue. slots: a power of two from SL_SLOTS_LEAST to
 * SL_SLOTS_MOST; a slot takes memory when it is first used, at most 1.1 KiB. -EINVAL, -ENOMEM,
 * -EMFILE ...
 */
int sl_segment_new(uint32_t slots, int *fd);
/*
 * Maps a segment: writable in the server, read-only in clients. The caller keeps fd. -EBADMSG: not
 * a whole segment of this version, or it could shrink under the mapping.
 */
int sl_segment_map(int fd, bool writable, struct sl_segment **out);
/* NULL is allowed, here and in all functions below that free or close. */
void sl_segment_unmap(struct sl_segment *segment);
uint32_t sl_segment_slots(const struct sl_segment *segment);

/* --------------------------------------------------------------------------------- references */

/* A mapping of a client's references. */
struct sl_references;

/* Makes a memfd for count references (a power of two); its size is fixed. */
int sl_references_new(uint32_t count, int *fd);
/*
 * Maps references, to be read, or to be taken and ended; children do not get such a mapping. The
 * caller keeps fd. -EBADMSG: not made by sl_references_new().
 */
int sl_references_map(int fd, bool writable, struct sl_references **out);
void sl_references_unmap(struct sl_references *references);
/*
 * Ends references, which need not be scanned any more, though their client runs: a get that takes
 * one later gives it back and asks the server. Returns false if one is held. In the server.
 */
bool sl_references_end(struct sl_references *references);

/* ---------------------------------------------------------------------------- a client's side */

/* The caller sets the fields, and keeps both mapped while a blob is held. */
struct sl_reader {
	const struct sl_segment *segment;
	struct sl_references *references;
};

/* A sealed blob that this client holds. */
struct sl_held_blob {
	uint32_t slot;
	uint32_t position;            /* in the references */
	uint64_t generation;          /* of the slot: 1 to 2^36 - 1 */
	struct sl_blob_record record; /* its pointers are valid until the release */
};

/*
 * Holds the sealed blob of that key. Any thread; no lock, no system call, no wait: it reads a few
 * dozen words of the segment at most. Each hold has its own reference, which is to be released.
 *
 * Returns 0, or, meaning "ask the server",
 *   -ENOENT   not in the index
 *   -EAGAIN   not sealed, leaving, or changing all the time
 *   -ENOSPC   all references are in use
 *   -EPROTO   the segment holds values that no server writes
 */
int sl_reader_get(const struct sl_reader *reader, const struct sl_blob_key *key,
                  struct sl_held_blob *out);
/*
 * The same for a slot that the server has named, and keeps meanwhile (sl_catalogue_hold()).
 * -EAGAIN: it has another generation by now, or is not sealed.
 */
int sl_reader_take(const struct sl_reader *reader, uint32_t slot, uint64_t generation,
                   struct sl_held_blob *out);
/*
 * Reads the part that is next to a record: that of an owner which the caller holds, or of a part of
 * it. The result is valid as long as the owner is held. Any thread; no wait.
 *
 * Returns 0, or
 *   -ENOENT   there is no further part
 *   -EPROTO   the segment holds values that no server writes
 */
int sl_reader_part(const struct sl_reader *reader, const struct sl_blob_record *record,
                   struct sl_blob_record *out);
/*
 * Releases a blob: its record and its bytes must not be read any more. Any thread.
 *
 * Returns true if the blob is DYING: then the server is to be told, so that it sweeps. If a sweep
 * has found a DYING blob held, then later a release returns true, or a get fails with -EAGAIN, or
 * the client dies: by the same argument as for get, with the store that takes the reference back in
 * the place of g2. So a server that sweeps when it is told, when it is asked, and when a client is
 * gone needs no timer.
 */
bool sl_reader_release(const struct sl_reader *reader, const struct sl_held_blob *held);

/* -------------------------------------------------------------------------- the server's side */

struct sl_catalogue;

/*
 * Takes over a segment that is mapped for writing, as the first server or after the last has died.
 * Each change that was under way is either finished or undone:
 *
 *   FREE            stays; no client has been told of it
 *   OPEN            stays; if it belongs to the batch that was being published, it is sealed
 *   LEAVING         sealed: it was not moved
 *   SEALED, AWAY    stay, and are in the index
 *   DYING           stays until a sweep finds no holder. Join all clients' references first
 *
 * A record that no server writes (lengths, hash, a name or a page of metadata twice) is made DYING
 * and counted in *broken, which may be NULL. The header is believed. Returns 0, -EINVAL (mapped
 * read-only) or -ENOMEM.
 */
int sl_catalogue_open(struct sl_segment *segment, unsigned *broken, struct sl_catalogue **out);
/* Returns why that call has made an entry DYING, in words to follow the name; NULL: it has not. */
const char *sl_catalogue_damage(const struct sl_catalogue *catalogue, uint32_t slot);
/* The segment stays mapped and unchanged. */
void sl_catalogue_close(struct sl_catalogue *catalogue);

/*
 * From now on sweeps scan these references; call before the client is told of the segment. The
 * caller maps them, and unmaps them after sl_catalogue_part(). -ENOMEM.
 */
int sl_catalogue_join(struct sl_catalogue *catalogue, struct sl_references *references);
void sl_catalogue_part(struct sl_catalogue *catalogue, struct sl_references *references);

enum sl_insert {
	SL_INSERT_OPEN,
	SL_INSERT_SEALED,
	/*
	 * SEALED, beside an entry of that name, which the caller deletes next. Until then a get
	 * finds either, but never the old entry after the new entry, because all look in the same
	 * order. By that order sl_catalogue_open() keeps one of the two.
	 */
	SL_INSERT_BESIDE
};
/*
 * Makes an entry, OPEN or SEALED, and gives it an id. The record is copied. A part has no name.
 *
 * Returns 0, or
 *   -EEXIST   the name is that of an entry that is not DYING
 *   -ENOSPC   no slot is free, or no word in the index: only for keys chosen for that (each has 16
 *             words, and there are 4 for each slot)
 *   -ENOBUFS  no page for the metadata
 *   -EINVAL   a length
 */
int sl_catalogue_insert(struct sl_catalogue *catalogue, const struct sl_blob_record *record,
                        enum sl_insert how, uint32_t *slot);
/* Replaces the metadata of an OPEN entry. Returns 0, -EINVAL or -ENOBUFS (no page). */
int sl_catalogue_describe(struct sl_catalogue *catalogue, uint32_t slot, const void *metadata,
                          size_t size);
/* Gives an OPEN entry the parts that begin with that slot plus 1. -EINVAL: it is not OPEN. */
int sl_catalogue_adopt(struct sl_catalogue *catalogue, uint32_t slot, uint32_t next);
/* Seals OPEN entries, all at once. -EINVAL: an entry is not OPEN, and nothing has changed. */
int sl_catalogue_seal(struct sl_catalogue *catalogue, const uint32_t *slots, size_t count);

/* Deletes an entry: its name is free at once, its slot after a sweep. -EINVAL: FREE or DYING. */
int sl_catalogue_delete(struct sl_catalogue *catalogue, uint32_t slot);
/*
 * Withdraws an entry: no get succeeds until the next sweep makes it AWAY or, if it is held, SEALED
 * again. -EINVAL: not SEALED.
 */
int sl_catalogue_withdraw(struct sl_catalogue *catalogue, uint32_t slot);
/* Sets the range of an AWAY entry; sealed: it is in memory again, and clients may get it. */
int sl_catalogue_move(struct sl_catalogue *catalogue, uint32_t slot,
                      const struct sl_blob_range *range, bool sealed);
int sl_catalogue_set_flags(struct sl_catalogue *catalogue, uint32_t slot, uint32_t flags);

enum sl_left { SL_LEFT_GONE, SL_LEFT_AWAY, SL_LEFT_STAYS };
/*
 * Scans the references of all clients once, and calls `left` for each slot that has left or stays.
 * GONE: a DYING entry without a holder; it is FREE already, and its record valid during the call.
 * AWAY and STAYS: the result for a LEAVING entry. `left` must not change the catalogue, but may
 * delete entries without possible holders, which the same sweep frees. Returns the number of held
 * DYING entries. A sweep takes 1 us, and 2 to 3 ns for each reference that the
 * clients have or had: 0.25 ms for 100 clients with 1000 each. So a sweep serves many deletes.
 */
unsigned sl_catalogue_sweep(struct sl_catalogue *catalogue,
                            void (*left)(void *argument, uint32_t slot, enum sl_left what),
                            void *argument);
/* Returns how many of these references are to the blob as it is now: whether a client holds it. */
unsigned sl_catalogue_references(const struct sl_catalogue *catalogue, uint32_t slot,
                                 const struct sl_references *references);
/* Holds an entry for the server while a reply names it. Counted; ends with the server. */
void sl_catalogue_hold(struct sl_catalogue *catalogue, uint32_t slot);
void sl_catalogue_unhold(struct sl_catalogue *catalogue, uint32_t slot);
/* By the last sweep: not held, held by the server itself, or held by a client. */
enum sl_held { SL_HELD_NOT, SL_HELD_HERE, SL_HELD_THERE };
enum sl_held sl_catalogue_held(const struct sl_catalogue *catalogue, uint32_t slot);

/*
 * Advances a clock of the caller's, in any unit, by which blobs are chosen to leave. A release
 * notes its tick in one byte, so times are right within the last 254 ticks if there was a sweep in
 * that time.
 */
void sl_catalogue_tick(struct sl_catalogue *catalogue);
/* Returns the ticks since the entry was last held; at most those since this server came. */
uint64_t sl_catalogue_idle(const struct sl_catalogue *catalogue, uint32_t slot);

/* Returns the end of the slots that were ever used, for loops over all slots. */
uint32_t sl_catalogue_end(const struct sl_catalogue *catalogue);
/* Finds an entry that is OPEN, SEALED, LEAVING or AWAY. Returns 0 or -ENOENT. */
int sl_catalogue_find(const struct sl_catalogue *catalogue, const struct sl_blob_key *key,
                      uint32_t *slot);
enum sl_entry_state sl_catalogue_state(const struct sl_catalogue *catalogue, uint32_t slot);
uint64_t sl_catalogue_generation(const struct sl_catalogue *catalogue, uint32_t slot);
/* Reads an entry that is not FREE; its pointers are valid until the entry changes. */
void sl_catalogue_record(const struct sl_catalogue *catalogue, uint32_t slot,
                         struct sl_blob_record *out);

#endif
