/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sweeps: which blobs are held
 *
 * Scans the references of all clients, and then frees deleted entries and completes withdrawals.
 * Only the server's thread; clients take and drop references meanwhile.
 */
#include "catalogue/notes.h"

#include <errno.h>
#include <stdlib.h>

#define TICKS 255 /* values of a reference that is not held */

/* Returns whether a reference is to the present generation of its slot. */
static bool sweep_is_current(const struct sl_catalogue *catalogue, uint64_t reference)
{
	uint32_t slot = sl_reference_slot(reference);

	return slot < catalogue->segment->slots &&
	       sl_reference_generation(reference) == sl_catalogue_generation(catalogue, slot);
}

static void sweep_note(struct sl_catalogue *catalogue, uint64_t reference)
{
	struct sl_slot_notes *notes = &catalogue->notes[sl_reference_slot(reference)];
	uint32_t tick = reference & SL_TICK_BITS;
	uint64_t age, used;

	if (!tick) {
		notes->scan = catalogue->scan;
		notes->used = catalogue->now;
		return;
	}
	age = (catalogue->now % TICKS + TICKS - (tick - 1)) % TICKS;
	used = catalogue->now > age ? catalogue->now - age : 0;
	notes->used = SL_MAX(notes->used, used);
}

static void sweep_scan(struct sl_catalogue *catalogue)
{
	catalogue->scan++;
	for (size_t i = 0; i < catalogue->client_count; i++) {
		const struct sl_references *references = catalogue->clients[i];
		uint32_t window = sl_references_window(references);

		for (uint32_t at = 0; at < window; at++) {
			uint64_t reference = sl_references_at(references, at);

			if (reference && sweep_is_current(catalogue, reference))
				sweep_note(catalogue, reference);
		}
	}
}

unsigned sl_catalogue_sweep(struct sl_catalogue *catalogue,
                            void (*left)(void *argument, uint32_t slot, enum sl_left what),
                            void *argument)
{
	struct sl_stack *leaving = &catalogue->leaving;
	uint32_t kept = 0;

	sweep_scan(catalogue);
	/* Entries that stay come first; `left` may add others. */
	while (leaving->count > kept) {
		uint32_t slot = leaving->numbers[--leaving->count];
		const struct sl_slot_notes *notes = &catalogue->notes[slot];
		bool held = notes->holds || notes->scan == catalogue->scan;
		bool dying = sl_catalogue_state(catalogue, slot) == SL_ENTRY_DYING;

		if (dying && held) {
			leaving->numbers[leaving->count++] = leaving->numbers[kept];
			leaving->numbers[kept++] = slot;
			continue;
		}
		sl_entry_commit(
			catalogue, slot,
			sl_word_with(sl_entry_word(catalogue, slot), dying  ? SL_ENTRY_FREE
		                                                     : held ? SL_ENTRY_SEALED
		                                                            : SL_ENTRY_AWAY));
		left(argument, slot, dying ? SL_LEFT_GONE : held ? SL_LEFT_STAYS : SL_LEFT_AWAY);
		if (!dying)
			continue;
		sl_entry_give_page(catalogue, slot);
		catalogue->free_slots.numbers[catalogue->free_slots.count++] = slot;
	}
	return kept;
}

unsigned sl_catalogue_references(const struct sl_catalogue *catalogue, uint32_t slot,
                                 const struct sl_references *references)
{
	uint64_t wanted = sl_reference(sl_catalogue_generation(catalogue, slot), slot);
	uint32_t window = sl_references_window(references);
	unsigned count = 0;

	for (uint32_t at = 0; at < window; at++)
		count += sl_references_at(references, at) == wanted;
	return count;
}

void sl_catalogue_hold(struct sl_catalogue *catalogue, uint32_t slot)
{
	catalogue->notes[slot].holds++;
}

void sl_catalogue_unhold(struct sl_catalogue *catalogue, uint32_t slot)
{
	catalogue->notes[slot].holds--;
}

enum sl_held sl_catalogue_held(const struct sl_catalogue *catalogue, uint32_t slot)
{
	const struct sl_slot_notes *notes = &catalogue->notes[slot];

	if (catalogue->scan && notes->scan == catalogue->scan)
		return SL_HELD_THERE;
	return notes->holds ? SL_HELD_HERE : SL_HELD_NOT;
}

void sl_catalogue_tick(struct sl_catalogue *catalogue)
{
	catalogue->now++;
	atomic_store_explicit(&catalogue->segment->header->tick, 1 + catalogue->now % TICKS,
	                      memory_order_relaxed);
}

uint64_t sl_catalogue_idle(const struct sl_catalogue *catalogue, uint32_t slot)
{
	return catalogue->now - catalogue->notes[slot].used;
}

/* ------------------------------------------------------------------------------------ clients */

int sl_catalogue_join(struct sl_catalogue *catalogue, struct sl_references *references)
{
	struct sl_references **grown = reallocarray(catalogue->clients, catalogue->client_count + 1,
	                                            sizeof(*catalogue->clients));

	if (!grown)
		return -ENOMEM;
	/* The server before may have died between the end of the references and the last look. */
	atomic_store_explicit(&references->page->ended, 0, memory_order_seq_cst);
	grown[catalogue->client_count++] = references;
	catalogue->clients = grown;
	return 0;
}

void sl_catalogue_part(struct sl_catalogue *catalogue, struct sl_references *references)
{
	for (size_t i = 0; i < catalogue->client_count; i++)
		if (catalogue->clients[i] == references)
			catalogue->clients[i--] = catalogue->clients[--catalogue->client_count];
}
