/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Getting and releasing blobs, in a client
 *
 * Steps g1 to g4 of catalogue.h. Any thread; no lock and no system call.
 */
#include "catalogue/layout.h"

#include <errno.h>

/* A get asks the server if the entry changes more often than this. */
#define TRIES 8

bool sl_reader_release(const struct sl_reader *reader, const struct sl_held_blob *held)
{
	const struct sl_segment *segment = reader->segment;
	uint32_t tick = atomic_load_explicit(&segment->header->tick, memory_order_relaxed);
	uint64_t word;

	tick &= SL_TICK_BITS;
	sl_references_drop(reader->references, held->position, tick ? tick : 1);
	word = atomic_load_explicit(&segment->entries[held->slot].word, memory_order_seq_cst);
	return sl_word_generation(word) == held->generation &&
	       sl_word_state(word) == SL_ENTRY_DYING;
}

/* Returns whether the batch of the entry is still being published. */
static bool reader_is_publishing(const struct sl_segment *segment, const struct sl_entry *entry)
{
	uint64_t batch = atomic_load_explicit(&segment->header->publishing, memory_order_acquire);

	return batch && entry->batch == batch;
}

/*
 * Takes a reference to the entry, from g2 on.
 *
 * Returns 0, or
 *   -ESTALE  the word has changed
 *   -ENOENT  the entry has another key (if key is not NULL)
 *   -EAGAIN  being published; or the references have ended; or DYING by now: a scan may have
 *            counted the reference, so the server must be told
 */
static int reader_hold(const struct sl_reader *reader, uint32_t slot, uint64_t word,
                       const struct sl_blob_key *key, struct sl_held_blob *out)
{
	const struct sl_segment *segment = reader->segment;
	const struct sl_entry *entry = &segment->entries[slot];
	uint64_t generation = sl_word_generation(word);
	struct sl_held_blob held = {.slot = slot, .generation = generation};
	int err = sl_references_claim(reader->references, sl_reference(generation, slot),
	                              &held.position);

	if (err)
		return err;
	if (!sl_entry_still(entry, word))
		err = -ESTALE;
	else if (atomic_load_explicit(&reader->references->page->ended, memory_order_seq_cst))
		err = -EAGAIN;
	else if (!sl_entry_read(segment, entry, word, &held.record))
		err = -EPROTO;
	else if (reader_is_publishing(segment, entry))
		err = -EAGAIN;
	else if (key && !sl_record_is(&held.record, key))
		err = -ENOENT;
	if (err)
		return sl_reader_release(reader, &held) ? -EAGAIN : err;
	*out = held;
	return 0;
}

/*
 * Holds an entry that the index leads to, if it is SEALED and has the key; -ENOENT: it is not the
 * entry, or not any more.
 */
static int reader_hold_if_sealed(const struct sl_reader *reader, uint32_t slot,
                                 const struct sl_blob_key *key, struct sl_held_blob *out)
{
	const struct sl_entry *entry = &reader->segment->entries[slot];
	uint64_t word = atomic_load_explicit(&entry->word, memory_order_acquire);
	enum sl_entry_state state = sl_word_state(word);

	if (state == SL_ENTRY_SEALED)
		return reader_hold(reader, slot, word, key, out);
	return state == SL_ENTRY_FREE || state == SL_ENTRY_DYING ? -ENOENT : -EAGAIN;
}

static int reader_look_up(const struct sl_reader *reader, uint64_t hash,
                          const struct sl_blob_key *key, struct sl_held_blob *out)
{
	struct sl_index_line *lines[2];
	int err;

	sl_index_lines(reader->segment, hash, lines);
	for (unsigned i = 0; i < 2 * SL_LINE_WORDS; i++) {
		uint64_t word = atomic_load_explicit(
			&lines[i / SL_LINE_WORDS]->words[i % SL_LINE_WORDS], memory_order_acquire);
		uint32_t slot = (uint32_t)word - 1;

		if (word == 0 || word >> 32 != hash >> 32)
			continue;
		if (slot >= reader->segment->slots)
			return -EPROTO;
		err = reader_hold_if_sealed(reader, slot, key, out);
		if (err != -ENOENT)
			return err;
	}
	return -ENOENT;
}

int sl_reader_get(const struct sl_reader *reader, const struct sl_blob_key *key,
                  struct sl_held_blob *out)
{
	int err;

	if (key->length > SL_NAME_MOST)
		return -ENOENT;
	uint64_t hash = sl_key_hash(reader->segment, key);
	for (unsigned i = 0; i < TRIES; i++) {
		err = reader_look_up(reader, hash, key, out);
		if (err != -ESTALE)
			return err;
	}
	return -EAGAIN;
}

int sl_reader_part(const struct sl_reader *reader, const struct sl_blob_record *record,
                   struct sl_blob_record *out)
{
	if (!record->next)
		return -ENOENT;
	if (record->next > reader->segment->slots)
		return -EPROTO;
	const struct sl_entry *entry = &reader->segment->entries[record->next - 1];
	uint64_t word = atomic_load_explicit(&entry->word, memory_order_acquire);
	if (sl_word_state(word) != SL_ENTRY_SEALED ||
	    !sl_entry_read(reader->segment, entry, word, out) || !(out->flags & SL_FLAG_PART))
		return -EPROTO;
	return 0;
}

int sl_reader_take(const struct sl_reader *reader, uint32_t slot, uint64_t generation,
                   struct sl_held_blob *out)
{
	uint64_t word;
	int err;

	if (slot >= reader->segment->slots)
		return -EPROTO;
	for (unsigned i = 0; i < TRIES; i++) {
		word = atomic_load_explicit(&reader->segment->entries[slot].word,
		                            memory_order_acquire);
		if (sl_word_generation(word) != generation ||
		    sl_word_state(word) != SL_ENTRY_SEALED)
			return -EAGAIN;
		err = reader_hold(reader, slot, word, NULL, out);
		if (err != -ESTALE)
			return err;
	}
	return -EAGAIN;
}
