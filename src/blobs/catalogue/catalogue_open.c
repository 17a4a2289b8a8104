/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Takeover of a segment by a new server
 *
 * Repairs a segment, in whatever state the last server has left it. Every step can be repeated,
 * because this server may die as well. Only the server's thread; clients read meanwhile.
 */
#include "catalogue/notes.h"

#include <errno.h>
#include <stdlib.h>

/* State of a takeover. */
struct takeover {
	struct sl_catalogue *catalogue;
	uint64_t last_id;
	uint64_t publishing;
	uint32_t touched; /* slots; reading others would allocate memory for them */
	bool *page_is_used;
	unsigned broken;
};

/*
 * Returns whether a server may have written the entry that the word commits; *page: the page of its
 * metadata plus 1, or 0.
 */
static bool takeover_is_plausible(struct takeover *t, uint32_t slot, uint32_t *page)
{
	const struct sl_segment *segment = t->catalogue->segment;
	const struct sl_entry *entry = &segment->entries[slot];
	uint64_t word = sl_entry_word(t->catalogue, slot);
	struct sl_blob_record record;

	if (sl_word_state(word) >= SL_ENTRY_STATES || !sl_word_generation(word) ||
	    !sl_entry_read(segment, entry, word, &record) || record.key.id > t->last_id ||
	    entry->hash != sl_key_hash(segment, &record.key) ||
	    (record.flags & SL_FLAG_PART && record.key.length))
		return false;
	*page = 0;
	if (record.metadata_size <= SL_METADATA_INLINE)
		return entry->page == 0 || sl_word_state(word) == SL_ENTRY_OPEN;
	*page = (uint32_t)((const uint8_t(*)[SL_PAGE])record.metadata - segment->metadata) + 1;
	return !t->page_is_used[*page - 1];
}

static void takeover_doom(struct takeover *t, uint32_t slot, const char *damage)
{
	sl_entry_doom(t->catalogue, slot);
	t->catalogue->notes[slot].damage = damage;
	t->broken++;
}

const char *sl_catalogue_damage(const struct sl_catalogue *catalogue, uint32_t slot)
{
	return catalogue->notes[slot].damage;
}

/* The slot keeps the generation, so a client holding the blob is still seen. */
static void takeover_doom_broken(struct takeover *t, uint32_t slot)
{
	struct sl_entry *entry = sl_entry_of(t->catalogue, slot);
	uint64_t generation = sl_catalogue_generation(t->catalogue, slot);

	sl_entry_commit(t->catalogue, slot,
	                sl_word(generation ? generation : 1, 0, SL_ENTRY_DYING));
	entry->metadata_size = 0;
	entry->page = 0;
	takeover_doom(t, slot, "its record is one that no server writes");
}

static void takeover_entry(struct takeover *t, uint32_t slot)
{
	struct sl_entry *entry = sl_entry_of(t->catalogue, slot);
	struct sl_slot_notes *notes = &t->catalogue->notes[slot];
	uint64_t word = atomic_load_explicit(&entry->word, memory_order_relaxed);
	enum sl_entry_state state = sl_word_state(word);
	uint32_t page;

	notes->word = word;
	if (state == SL_ENTRY_FREE)
		return;
	if (!takeover_is_plausible(t, slot, &page)) {
		takeover_doom_broken(t, slot);
		return;
	}
	notes->page = page;
	if (page)
		t->page_is_used[page - 1] = true;
	else if (state == SL_ENTRY_OPEN)
		entry->page = 0; /* it was being described */
	if (state == SL_ENTRY_LEAVING ||
	    (state == SL_ENTRY_OPEN && t->publishing && entry->batch == t->publishing))
		sl_entry_commit(t->catalogue, slot, sl_word_with(word, SL_ENTRY_SEALED));
	else if (state == SL_ENTRY_DYING)
		sl_entry_doom(t->catalogue, slot); /* it may still be in the index */
}

static bool takeover_is_part(const struct takeover *t, uint32_t slot)
{
	return sl_entry_of(t->catalogue, slot)->flags & SL_FLAG_PART;
}

/* Returns whether a word of the index is that of a live entry, in its line, and the first. */
static bool takeover_index_word_is_valid(struct takeover *t, struct sl_index_line *line,
                                         uint64_t word)
{
	const struct sl_segment *segment = t->catalogue->segment;
	uint32_t slot = (uint32_t)word - 1;
	struct sl_index_line *lines[2];

	if (slot >= t->touched || t->catalogue->notes[slot].indexed ||
	    !sl_state_is_live(sl_catalogue_state(t->catalogue, slot)) || takeover_is_part(t, slot))
		return false;
	sl_index_lines(segment, segment->entries[slot].hash, lines);
	return (line == lines[0] || line == lines[1]) &&
	       word == sl_index_word(segment->entries[slot].hash, slot);
}

static void takeover_clean_index(struct takeover *t)
{
	const struct sl_segment *segment = t->catalogue->segment;

	for (uint32_t i = 0; i < segment->lines; i++) {
		struct sl_index_line *line = &segment->index[i];

		for (unsigned j = 0; j < SL_LINE_WORDS; j++) {
			uint64_t word = atomic_load_explicit(&line->words[j], memory_order_relaxed);

			if (word == 0)
				continue;
			if (takeover_index_word_is_valid(t, line, word))
				t->catalogue->notes[(uint32_t)word - 1].indexed = true;
			else
				atomic_store_explicit(&line->words[j], 0, memory_order_release);
		}
	}
}

/* Puts a live entry into the index, unless its key leads to another entry: then it is broken. */
static void takeover_complete_index(struct takeover *t, uint32_t slot)
{
	struct sl_catalogue *catalogue = t->catalogue;
	uint64_t hash = sl_entry_of(catalogue, slot)->hash;
	struct sl_blob_record record;
	_Atomic uint64_t *index;
	uint32_t other;

	sl_catalogue_record(catalogue, slot, &record);
	if (sl_catalogue_find(catalogue, &record.key, &other) == 0) {
		if (other != slot)
			takeover_doom(t, slot,
			              "another blob has its name: one was replacing the other");
		return;
	}
	index = sl_index_find(catalogue, hash, SL_NO_SLOT);
	if (index)
		atomic_store_explicit(index, sl_index_word(hash, slot), memory_order_release);
	else
		takeover_doom(t, slot, "the index has no room for its name");
}

static void takeover_count_free(struct takeover *t)
{
	struct sl_catalogue *catalogue = t->catalogue;
	const struct sl_segment *segment = catalogue->segment;

	for (uint32_t slot = segment->slots; slot--;)
		if (slot >= t->touched || sl_catalogue_state(catalogue, slot) == SL_ENTRY_FREE)
			catalogue->free_slots.numbers[catalogue->free_slots.count++] = slot;
	for (uint32_t page = segment->pages; page--;)
		if (!t->page_is_used[page])
			catalogue->free_pages.numbers[catalogue->free_pages.count++] = page;
}

static void takeover_run(struct takeover *t)
{
	struct sl_segment_header *header = t->catalogue->segment->header;

	t->touched = sl_catalogue_end(t->catalogue);
	t->last_id = atomic_load_explicit(&header->last_id, memory_order_relaxed);
	t->publishing = atomic_load_explicit(&header->publishing, memory_order_relaxed);
	for (uint32_t slot = 0; slot < t->touched; slot++)
		takeover_entry(t, slot);
	atomic_store_explicit(&header->publishing, 0, memory_order_release);
	takeover_clean_index(t);
	for (uint32_t slot = 0; slot < t->touched; slot++)
		if (sl_state_is_live(sl_catalogue_state(t->catalogue, slot)) &&
		    !takeover_is_part(t, slot))
			takeover_complete_index(t, slot);
	takeover_count_free(t);
	/* The clock begins again, so earlier ticks mean nothing. */
	atomic_store_explicit(&header->tick, 1, memory_order_relaxed);
}

int sl_catalogue_open(struct sl_segment *segment, unsigned *broken, struct sl_catalogue **out)
{
	size_t slots = segment->slots, pages = segment->pages;
	struct sl_catalogue *catalogue =
		calloc(1, sizeof(*catalogue) + slots * sizeof(struct sl_slot_notes) +
	                          (2 * slots + pages) * sizeof(uint32_t));
	struct takeover t = {
		.catalogue = catalogue,
		.page_is_used = calloc(pages, sizeof(bool)),
	};
	int err = segment->writable ? 0 : -EINVAL;

	if (!catalogue || !t.page_is_used)
		err = -ENOMEM;
	if (err) {
		free(catalogue);
	} else {
		catalogue->segment = segment;
		catalogue->notes = (struct sl_slot_notes *)(catalogue + 1);
		catalogue->free_slots.numbers = (uint32_t *)(catalogue->notes + slots);
		catalogue->leaving.numbers = catalogue->free_slots.numbers + slots;
		catalogue->free_pages.numbers = catalogue->leaving.numbers + slots;
		takeover_run(&t);
		if (broken)
			*broken = t.broken;
		*out = catalogue;
	}
	free(t.page_is_used);
	return err;
}

void sl_catalogue_close(struct sl_catalogue *catalogue)
{
	if (!catalogue)
		return;
	free(catalogue->clients);
	free(catalogue);
}
