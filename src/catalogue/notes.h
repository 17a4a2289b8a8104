/* SPDX-License-Identifier: Apache-2.0 */
/* What the server keeps beside a segment; for the catalogue's own files. Its one thread guards all of it. */
#ifndef SL_CATALOGUE_NOTES_H
#define SL_CATALOGUE_NOTES_H

#include "catalogue/layout.h"

struct sl_slot_notes {
	/* As this server wrote them, which is what it goes by: a process of its own user can write to the segment. */
	uint64_t word; /* of the entry */
	uint32_t page; /* of its metadata plus 1; 0: it has none */
	uint64_t scan; /* the last one that found it held */
	uint64_t used; /* the tick at which it was last known to be */
	uint32_t pins;
	bool indexed; /* the index has it; of use while the segment is taken over */
};

/* Numbers, taken from the end. */
struct sl_stack {
	uint32_t *numbers;
	uint32_t count;
};

struct sl_catalogue {
	struct sl_segment *segment;
	/* This and the stacks are behind it, in the same memory. */
	struct sl_slot_notes *notes; /* of each slot */
	struct sl_stack free_slots;
	struct sl_stack free_pages;
	struct sl_stack leaving; /* LEAVING and DYING, once each */
	struct sl_references **clients;
	size_t client_count;
	uint64_t now;  /* ticks */
	uint64_t scan; /* number of the last one */
};

static inline struct sl_entry *sl_entry_of(const struct sl_catalogue *catalogue, uint32_t slot)
{
	return &catalogue->segment->entries[slot];
}
static inline uint64_t sl_entry_word(const struct sl_catalogue *catalogue, uint32_t slot)
{
	return catalogue->notes[slot].word;
}
/* Commits what was written before. */
static inline void sl_entry_commit(struct sl_catalogue *catalogue, uint32_t slot, uint64_t word)
{
	catalogue->notes[slot].word = word;
	atomic_store_explicit(&sl_entry_of(catalogue, slot)->word, word, memory_order_release);
}
/* d1: no get succeeds from here on, and whoever has got it is seen by a scan that begins after this. */
static inline void sl_entry_close(struct sl_catalogue *catalogue, uint32_t slot,
                                  enum sl_entry_state state)
{
	uint64_t word = sl_word_with(sl_entry_word(catalogue, slot), state);

	catalogue->notes[slot].word = word;
	atomic_store_explicit(&sl_entry_of(catalogue, slot)->word, word, memory_order_seq_cst);
}
/* Whether a name leads to an entry in this state. */
static inline bool sl_state_is_live(enum sl_entry_state state)
{
	return state == SL_ENTRY_OPEN || state == SL_ENTRY_SEALED || state == SL_ENTRY_LEAVING ||
	       state == SL_ENTRY_AWAY;
}
static inline uint64_t sl_generation_after(uint64_t generation)
{
	return generation < SL_GENERATION_MOST ? generation + 1 : 1;
}

/* The word of the index that has this slot, or an empty one for a hash if slot is SL_NO_SLOT; NULL: none. */
#define SL_NO_SLOT UINT32_MAX
_Atomic uint64_t *sl_index_find(const struct sl_catalogue *catalogue, uint64_t hash, uint32_t slot);
/* The page of its metadata, if it has one, is free. Nobody reads the record. */
void sl_entry_give_page(struct sl_catalogue *catalogue, uint32_t slot);
/* Makes a live or broken entry DYING, and has the index forget it. */
void sl_entry_doom(struct sl_catalogue *catalogue, uint32_t slot);

#endif
