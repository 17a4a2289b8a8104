/* SPDX-License-Identifier: Apache-2.0 */
/* The server's private notes about a segment; for its one thread. */
#ifndef SL_CATALOGUE_NOTES_H
#define SL_CATALOGUE_NOTES_H

#include "catalogue/layout.h"

struct sl_slot_notes {
	/*
	 * As this server has written them, and believed instead of the segment, which any process
	 * of the same user can write to.
	 */
	uint64_t word;      /* of the entry */
	uint32_t page;      /* page of the metadata plus 1; 0: none */
	uint64_t scan;      /* the last scan that found it held */
	uint64_t used;      /* the last tick at which it was known to be held */
	uint32_t holds;     /* of the server itself */
	bool indexed;       /* has a word in the index; used in a takeover */
	const char *damage; /* what the takeover has found wrong; NULL */
};

/* A stack of numbers. */
struct sl_stack {
	uint32_t *numbers;
	uint32_t count;
};

struct sl_catalogue {
	struct sl_segment *segment;
	/* Notes and stacks follow this struct in the same memory. */
	struct sl_slot_notes *notes; /* of each slot */
	struct sl_stack free_slots;
	struct sl_stack free_pages;
	struct sl_stack leaving; /* slots that are LEAVING or DYING, once each */
	struct sl_references **clients;
	size_t client_count;
	uint64_t now;  /* ticks */
	uint64_t scan; /* number of the last scan */
};

static inline struct sl_entry *sl_entry_of(const struct sl_catalogue *catalogue, uint32_t slot)
{
	return &catalogue->segment->entries[slot];
}
static inline uint64_t sl_entry_word(const struct sl_catalogue *catalogue, uint32_t slot)
{
	return catalogue->notes[slot].word;
}
/* Commits all stores before it. */
static inline void sl_entry_commit(struct sl_catalogue *catalogue, uint32_t slot, uint64_t word)
{
	catalogue->notes[slot].word = word;
	atomic_store_explicit(&sl_entry_of(catalogue, slot)->word, word, memory_order_release);
}
/*
 * d1: from here on no get succeeds, and a scan that begins later sees every client that has got the
 * blob.
 */
static inline void sl_entry_close(struct sl_catalogue *catalogue, uint32_t slot,
                                  enum sl_entry_state state)
{
	uint64_t word = sl_word_with(sl_entry_word(catalogue, slot), state);

	catalogue->notes[slot].word = word;
	atomic_store_explicit(&sl_entry_of(catalogue, slot)->word, word, memory_order_seq_cst);
}
/* Returns whether a key leads to an entry in this state. */
static inline bool sl_state_is_live(enum sl_entry_state state)
{
	return state == SL_ENTRY_OPEN || state == SL_ENTRY_SEALED || state == SL_ENTRY_LEAVING ||
	       state == SL_ENTRY_AWAY;
}
static inline uint64_t sl_generation_after(uint64_t generation)
{
	return generation < SL_GENERATION_MOST ? generation + 1 : 1;
}

/*
 * Returns the index word of this slot, or an empty word for the hash if slot is SL_NO_SLOT; NULL:
 * none.
 */
#define SL_NO_SLOT UINT32_MAX
_Atomic uint64_t *sl_index_find(const struct sl_catalogue *catalogue, uint64_t hash, uint32_t slot);
/* Frees the entry's page of metadata, if it has a page. No client reads the record any more. */
void sl_entry_give_page(struct sl_catalogue *catalogue, uint32_t slot);
/* Makes a live or broken entry DYING, and removes it from the index. */
void sl_entry_doom(struct sl_catalogue *catalogue, uint32_t slot);

#endif
