/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The index of names and ids, for the server
 *
 * Maps the hash of a key to slots. Only the server's thread; clients read the index meanwhile.
 */
#include "catalogue/notes.h"

#include <errno.h>

static unsigned index_words_in_use(const struct sl_index_line *line)
{
	unsigned used = 0;

	for (unsigned i = 0; i < SL_LINE_WORDS; i++)
		used += atomic_load_explicit(&line->words[i], memory_order_relaxed) != 0;
	return used;
}

_Atomic uint64_t *sl_index_find(const struct sl_catalogue *catalogue, uint64_t hash, uint32_t slot)
{
	uint64_t wanted = slot == SL_NO_SLOT ? 0 : sl_index_word(hash, slot);
	struct sl_index_line *lines[2], *line;

	sl_index_lines(catalogue->segment, hash, lines);
	/* The emptier line first, so that neither fills up before nearly all lines are full. */
	if (index_words_in_use(lines[1]) < index_words_in_use(lines[0])) {
		line = lines[0];
		lines[0] = lines[1];
		lines[1] = line;
	}
	for (unsigned i = 0; i < 2 * SL_LINE_WORDS; i++) {
		_Atomic uint64_t *word = &lines[i / SL_LINE_WORDS]->words[i % SL_LINE_WORDS];

		if (atomic_load_explicit(word, memory_order_relaxed) == wanted)
			return word;
	}
	return NULL;
}

static bool index_slot_matches(const struct sl_catalogue *catalogue, uint32_t slot,
                               const struct sl_blob_key *key)
{
	struct sl_blob_record record;

	if (slot >= catalogue->segment->slots ||
	    !sl_state_is_live(sl_catalogue_state(catalogue, slot)))
		return false;
	sl_catalogue_record(catalogue, slot, &record);
	return sl_record_is(&record, key);
}

int sl_catalogue_find(const struct sl_catalogue *catalogue, const struct sl_blob_key *key,
                      uint32_t *slot)
{
	struct sl_index_line *lines[2];
	uint64_t hash;

	if (key->length > SL_NAME_MOST)
		return -ENOENT;
	hash = sl_key_hash(catalogue->segment, key);
	sl_index_lines(catalogue->segment, hash, lines);
	for (unsigned i = 0; i < 2 * SL_LINE_WORDS; i++) {
		uint64_t word = atomic_load_explicit(
			&lines[i / SL_LINE_WORDS]->words[i % SL_LINE_WORDS], memory_order_relaxed);
		uint32_t found = (uint32_t)word - 1;

		if (word && word >> 32 == hash >> 32 && index_slot_matches(catalogue, found, key)) {
			*slot = found;
			return 0;
		}
	}
	return -ENOENT;
}
