/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Layout of a segment and of a client's references; private to the catalogue. Numbers are the
 * machine's own, because server and clients run on the same machine.
 */
#ifndef SL_CATALOGUE_LAYOUT_H
#define SL_CATALOGUE_LAYOUT_H

#include "catalogue/catalogue.h"

/* -------------------------------------------------------------------------------------- words */

/*
 * The word of an entry and a reference:
 *
 *   word:       generation 36 bits | 0            | range 1 bit | state 4 bits
 *   reference:  generation 36 bits | slot 20 bits | tick 8 bits
 *
 * `range` tells which of the two ranges is valid. A reference with tick 0 is held; any other tick
 * says when it was held last. The reference 0 was never used.
 */
#define SL_GENERATION_MOST ((UINT64_C(1) << 36) - 1)
#define SL_STATE_BITS      UINT64_C(0x0f)
#define SL_RANGE_BIT       UINT64_C(0x10)
#define SL_TICK_BITS       UINT64_C(0xff)

static inline uint64_t sl_word(uint64_t generation, unsigned range, enum sl_entry_state state)
{
	return generation << 28 | (range ? SL_RANGE_BIT : 0) | state;
}
static inline uint64_t sl_word_generation(uint64_t word)
{
	return word >> 28;
}
static inline enum sl_entry_state sl_word_state(uint64_t word)
{
	return word & SL_STATE_BITS;
}
static inline unsigned sl_word_range(uint64_t word)
{
	return word & SL_RANGE_BIT ? 1 : 0;
}
static inline uint64_t sl_word_with(uint64_t word, enum sl_entry_state state)
{
	return (word & ~SL_STATE_BITS) | state;
}
static inline uint64_t sl_reference(uint64_t generation, uint32_t slot)
{
	return generation << 28 | (uint64_t)slot << 8;
}
static inline uint32_t sl_reference_slot(uint64_t reference)
{
	return reference >> 8 & (SL_SLOTS_MOST - 1);
}
static inline uint64_t sl_reference_generation(uint64_t reference)
{
	return reference >> 28;
}

/* ------------------------------------------------------------------------------------ segment */

#define SL_SEGMENT_MAGIC UINT64_C(0x3165756c6174633f)
#define SL_PAGE          4096

struct sl_segment_header {
	/* Written when the segment is made, and never again. */
	uint32_t version;
	uint32_t entry_bytes;
	uint32_t slots;
	uint64_t bytes; /* of the segment */
	uint64_t seed;  /* of the hash */
	_Atomic uint64_t magic;

	/* Written by the server, read by all. */
	_Alignas(64) _Atomic uint64_t publishing; /* the batch being sealed, or 0 */
	_Atomic uint32_t tick;                    /* 1 to 255 */

	/*
	 * For the server only: the last id and batch that were used, and the number of slots that
	 * ever were; other slots have no memory. Each is stored before the number is used.
	 */
	_Alignas(64) _Atomic uint64_t last_id;
	_Atomic uint64_t last_batch;
	_Atomic uint32_t touched;
};

/*
 * A cache line of the index. A word is 0, or the upper half of the key's hash with the slot plus 1.
 * The hash of a key names two lines, and the key is in one of these.
 */
#define SL_LINE_WORDS 8
struct sl_index_line {
	_Alignas(64) _Atomic uint64_t words[SL_LINE_WORDS];
};

/*
 * The word commits the other fields, which are written while the entry is FREE; `batch` and the
 * metadata and `next` also while it is OPEN; the range that is not valid also while it is AWAY.
 */
struct sl_entry {
	_Alignas(64) _Atomic uint64_t word;
	uint64_t hash;
	uint64_t id;
	uint64_t size;
	uint64_t batch; /* in which it was sealed, or 0 */
	struct sl_blob_range ranges[2];
	uint64_t creator;
	uint32_t uid;
	_Atomic uint32_t flags;
	uint32_t page;          /* page of the metadata plus 1, or 0 */
	uint32_t metadata_size; /* written after the metadata */
	uint32_t name_length;
	uint32_t next; /* the first or the next part's slot plus 1, or 0 */
	/* as the store writes it, with 8-byte numbers */
	_Alignas(8) uint8_t metadata[SL_METADATA_INLINE];
	char name[SL_NAME_MOST + 1];
};

/* Addresses and sizes of the segment as it was mapped: later values in it are not trusted. */
struct sl_segment {
	struct sl_segment_header *header;
	struct sl_index_line *index;
	struct sl_entry *entries;
	uint8_t (*metadata)[SL_PAGE];
	uint64_t bytes;
	uint64_t seed;
	uint32_t slots;
	uint32_t lines; /* of the index; a power of two */
	uint32_t pages; /* for metadata */
	bool writable;
};

/*
 * Maps a memfd of sl_memory_begin(), of whole pages and at most `most` bytes. Returns 0, -EBADMSG
 * (another kind of file) or -errno.
 */
int sl_memory_map(int fd, bool writable, uint64_t most, uint64_t *bytes, void **out);

uint64_t sl_key_hash(const struct sl_segment *segment, const struct sl_blob_key *key);
/* Returns the two lines of a hash. */
void sl_index_lines(const struct sl_segment *segment, uint64_t hash,
                    struct sl_index_line *lines[2]);
static inline uint64_t sl_index_word(uint64_t hash, uint32_t slot)
{
	return (hash & ~UINT64_C(0xffffffff)) | (slot + 1);
}
/*
 * Copies the entry as it is under that word, and checks the copy. Returns false if no server writes
 * such values, or if the entry is being written.
 */
bool sl_entry_read(const struct sl_segment *segment, const struct sl_entry *entry, uint64_t word,
                   struct sl_blob_record *out);
/* Returns whether a record that was read has this key. */
bool sl_record_is(const struct sl_blob_record *record, const struct sl_blob_key *key);
/* g3: returns whether the entry still has that word. */
bool sl_entry_still(const struct sl_entry *entry, uint64_t word);

/* --------------------------------------------------------------------------------- references */

#define SL_REFERENCES_MAGIC UINT64_C(0x3172656665726373)

struct sl_references_page {
	uint64_t magic; /* written once, when the references are made */
	/* A power of two that only grows, written before references from here on are used. */
	_Alignas(64) _Atomic uint32_t window;
	_Atomic uint32_t ended; /* 1: the server scans them no more; the client gets new ones */
	_Alignas(64) _Atomic uint64_t at[];
};
struct sl_references {
	struct sl_references_page *page;
	uint32_t count; /* from the size of the memory, not from its contents */
	size_t bytes;
};

_Static_assert(sizeof(struct sl_segment_header) == 192 && sizeof(struct sl_index_line) == 64 &&
                       sizeof(struct sl_entry) == 512 && sizeof(struct sl_references_page) == 128,
               "increase SL_SEGMENT_VERSION");

/* g2: takes a free reference. Returns 0 or -ENOSPC. Any thread of the client. */
int sl_references_claim(struct sl_references *references, uint64_t reference, uint32_t *position);
/* Drops a reference; tick: 1 to 255. Any thread of the client. */
void sl_references_drop(struct sl_references *references, uint32_t position, uint32_t tick);
/* d3: the number of references to scan, and a reference. In the server. */
uint32_t sl_references_window(const struct sl_references *references);
uint64_t sl_references_at(const struct sl_references *references, uint32_t position);

#endif
