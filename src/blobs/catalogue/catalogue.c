/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Entries of the catalogue, for the server
 *
 * Makes, describes, seals, moves and deletes entries. The order of the stores is the protocol of
 * catalogue.h. Only the server's thread.
 */
#include "catalogue/notes.h"

#include <errno.h>
#include <string.h>

/* -------------------------------------------------------------------------------- description */

enum sl_entry_state sl_catalogue_state(const struct sl_catalogue *catalogue, uint32_t slot)
{
	return sl_word_state(sl_entry_word(catalogue, slot));
}

uint64_t sl_catalogue_generation(const struct sl_catalogue *catalogue, uint32_t slot)
{
	return sl_word_generation(sl_entry_word(catalogue, slot));
}

void sl_catalogue_record(const struct sl_catalogue *catalogue, uint32_t slot,
                         struct sl_blob_record *out)
{
	/* An entry that cannot be read was broken when this server came; no client can get it. */
	if (!sl_entry_read(catalogue->segment, sl_entry_of(catalogue, slot),
	                   sl_entry_word(catalogue, slot), out))
		*out = (struct sl_blob_record){0};
}

uint32_t sl_catalogue_end(const struct sl_catalogue *catalogue)
{
	const struct sl_segment *segment = catalogue->segment;
	uint32_t touched = atomic_load_explicit(&segment->header->touched, memory_order_relaxed);

	return SL_MIN(touched, segment->slots);
}

int sl_catalogue_set_flags(struct sl_catalogue *catalogue, uint32_t slot, uint32_t flags)
{
	if (!sl_state_is_live(sl_catalogue_state(catalogue, slot)))
		return -EINVAL;
	atomic_store_explicit(&sl_entry_of(catalogue, slot)->flags, flags, memory_order_relaxed);
	return 0;
}

void sl_entry_give_page(struct sl_catalogue *catalogue, uint32_t slot)
{
	uint32_t page = catalogue->notes[slot].page;

	if (!page)
		return;
	catalogue->free_pages.numbers[catalogue->free_pages.count++] = page - 1;
	catalogue->notes[slot].page = sl_entry_of(catalogue, slot)->page = 0;
}

static bool entry_has_page_for(const struct sl_catalogue *catalogue, size_t metadata_size)
{
	return metadata_size <= SL_METADATA_INLINE || catalogue->free_pages.count;
}

/*
 * The size is written last: if this process dies, the next server finds the OPEN entry with all of
 * the metadata or with none.
 */
static void entry_write_metadata(struct sl_catalogue *catalogue, uint32_t slot, const void *from,
                                 size_t size)
{
	struct sl_entry *entry = sl_entry_of(catalogue, slot);
	void *to = entry->metadata;

	if (size > SL_METADATA_INLINE) {
		if (!catalogue->notes[slot].page)
			catalogue->notes[slot].page = entry->page =
				catalogue->free_pages.numbers[--catalogue->free_pages.count] + 1;
		to = catalogue->segment->metadata[catalogue->notes[slot].page - 1];
	}
	if (size)
		memcpy(to, from, size);
	atomic_signal_fence(memory_order_seq_cst);
	entry->metadata_size = (uint32_t)size;
}

int sl_catalogue_describe(struct sl_catalogue *catalogue, uint32_t slot, const void *metadata,
                          size_t size)
{
	struct sl_entry *entry = sl_entry_of(catalogue, slot);

	if (sl_catalogue_state(catalogue, slot) != SL_ENTRY_OPEN || size > SL_METADATA_MOST)
		return -EINVAL;
	if (!catalogue->notes[slot].page && !entry_has_page_for(catalogue, size))
		return -ENOBUFS;
	entry->metadata_size = 0;
	atomic_signal_fence(memory_order_seq_cst);
	if (size <= SL_METADATA_INLINE)
		sl_entry_give_page(catalogue, slot);
	entry_write_metadata(catalogue, slot, metadata, size);
	return 0;
}

/* -------------------------------------------------------------------------------------- index */

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

	if (key->length > SL_NAME_MOST)
		return -ENOENT;
	uint64_t hash = sl_key_hash(catalogue->segment, key);
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

/* --------------------------------------------------------------------------------------- life */

/* Returns the next number; stores it as used before it is used. */
static uint64_t catalogue_next_number(_Atomic uint64_t *last)
{
	uint64_t number = atomic_load_explicit(last, memory_order_relaxed) + 1;

	atomic_store_explicit(last, number, memory_order_release);
	return number;
}

/* Takes the free slot with the lowest number. */
static uint32_t catalogue_take_slot(struct sl_catalogue *catalogue)
{
	_Atomic uint32_t *touched = &catalogue->segment->header->touched;
	uint32_t slot = catalogue->free_slots.numbers[--catalogue->free_slots.count];

	if (slot >= atomic_load_explicit(touched, memory_order_relaxed))
		atomic_store_explicit(touched, slot + 1, memory_order_release);
	catalogue->notes[slot].scan = 0;
	catalogue->notes[slot].used = catalogue->now;
	return slot;
}

static void entry_write_record(struct sl_catalogue *catalogue, uint32_t slot,
                               const struct sl_blob_record *record)
{
	struct sl_entry *entry = sl_entry_of(catalogue, slot);

	entry->id = catalogue_next_number(&catalogue->segment->header->last_id);
	entry->size = record->size;
	entry->batch = 0;
	entry->ranges[0] = record->range;
	entry->creator = record->creator;
	entry->uid = record->uid;
	atomic_store_explicit(&entry->flags, record->flags, memory_order_relaxed);
	entry->page = 0;
	entry->next = record->next;
	entry->name_length = (uint32_t)record->key.length;
	if (record->key.length)
		memcpy(entry->name, record->key.name, record->key.length);
	entry_write_metadata(catalogue, slot, record->metadata, record->metadata_size);
}

int sl_catalogue_insert(struct sl_catalogue *catalogue, const struct sl_blob_record *record,
                        enum sl_insert how, uint32_t *out)
{
	struct sl_blob_key key = record->key;
	bool part = record->flags & SL_FLAG_PART;
	_Atomic uint64_t *index;
	uint32_t slot;

	if (key.length > (part ? 0 : SL_NAME_MOST) || record->metadata_size > SL_METADATA_MOST ||
	    record->range.offset > UINT64_MAX - record->size)
		return -EINVAL;
	if (key.length && how != SL_INSERT_BESIDE && sl_catalogue_find(catalogue, &key, &slot) == 0)
		return -EEXIST;
	/* The entry will have this id. */
	key.id = atomic_load(&catalogue->segment->header->last_id) + 1;
	uint64_t hash = sl_key_hash(catalogue->segment, &key);
	index = sl_index_find(catalogue, hash, SL_NO_SLOT);
	if ((!index && !part) || !catalogue->free_slots.count)
		return -ENOSPC;
	if (!entry_has_page_for(catalogue, record->metadata_size))
		return -ENOBUFS;

	slot = catalogue_take_slot(catalogue);
	sl_entry_of(catalogue, slot)->hash = hash;
	entry_write_record(catalogue, slot, record);
	if (!part)
		atomic_store_explicit(index, sl_index_word(hash, slot), memory_order_release);
	sl_entry_commit(catalogue, slot,
	                sl_word(sl_generation_after(sl_catalogue_generation(catalogue, slot)), 0,
	                        how == SL_INSERT_OPEN ? SL_ENTRY_OPEN : SL_ENTRY_SEALED));
	*out = slot;
	return 0;
}

int sl_catalogue_adopt(struct sl_catalogue *catalogue, uint32_t slot, uint32_t next)
{
	if (sl_catalogue_state(catalogue, slot) != SL_ENTRY_OPEN)
		return -EINVAL;
	sl_entry_of(catalogue, slot)->next = next;
	return 0;
}

int sl_catalogue_seal(struct sl_catalogue *catalogue, const uint32_t *slots, size_t count)
{
	struct sl_segment_header *header = catalogue->segment->header;
	/* A single entry needs no batch. */
	uint64_t batch = 0;

	for (size_t i = 0; i < count; i++)
		if (sl_catalogue_state(catalogue, slots[i]) != SL_ENTRY_OPEN)
			return -EINVAL;
	if (count > 1) {
		batch = catalogue_next_number(&header->last_batch);
		for (size_t i = 0; i < count; i++)
			sl_entry_of(catalogue, slots[i])->batch = batch;
		atomic_store_explicit(&header->publishing, batch, memory_order_release);
	}
	for (size_t i = 0; i < count; i++)
		sl_entry_commit(catalogue, slots[i],
		                sl_word_with(sl_entry_word(catalogue, slots[i]), SL_ENTRY_SEALED));
	if (batch)
		atomic_store_explicit(&header->publishing, 0, memory_order_release);
	return 0;
}

void sl_entry_doom(struct sl_catalogue *catalogue, uint32_t slot)
{
	bool leaving = sl_catalogue_state(catalogue, slot) == SL_ENTRY_LEAVING;
	_Atomic uint64_t *index;

	sl_entry_close(catalogue, slot, SL_ENTRY_DYING);
	index = sl_index_find(catalogue, sl_entry_of(catalogue, slot)->hash, slot);
	if (index)
		atomic_store_explicit(index, 0, memory_order_release);
	if (!leaving)
		catalogue->leaving.numbers[catalogue->leaving.count++] = slot;
}

int sl_catalogue_delete(struct sl_catalogue *catalogue, uint32_t slot)
{
	if (!sl_state_is_live(sl_catalogue_state(catalogue, slot)))
		return -EINVAL;
	sl_entry_doom(catalogue, slot);
	return 0;
}

int sl_catalogue_withdraw(struct sl_catalogue *catalogue, uint32_t slot)
{
	if (sl_catalogue_state(catalogue, slot) != SL_ENTRY_SEALED)
		return -EINVAL;
	sl_entry_close(catalogue, slot, SL_ENTRY_LEAVING);
	catalogue->leaving.numbers[catalogue->leaving.count++] = slot;
	return 0;
}

int sl_catalogue_move(struct sl_catalogue *catalogue, uint32_t slot,
                      const struct sl_blob_range *range, bool sealed)
{
	struct sl_entry *entry = sl_entry_of(catalogue, slot);
	uint64_t word = sl_entry_word(catalogue, slot), generation = sl_word_generation(word);
	unsigned other = !sl_word_range(word);

	if (sl_word_state(word) != SL_ENTRY_AWAY || range->offset > UINT64_MAX - entry->size)
		return -EINVAL;
	entry->ranges[other] = *range;
	sl_entry_commit(catalogue, slot,
	                sealed ? sl_word(sl_generation_after(generation), other, SL_ENTRY_SEALED)
	                       : sl_word(generation, other, SL_ENTRY_AWAY));
	return 0;
}
