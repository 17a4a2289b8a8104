/* SPDX-License-Identifier: Apache-2.0 */
/* The turns of the slots. tests/model/ring.pml is the same as a model, and is checked. */
#include "staging/room.h"

/* Turns are compared as what they are apart, so that they may wrap. */
static bool reached(const _Atomic uint32_t *word, uint32_t turn)
{
	return (int32_t)(atomic_load_explicit(word, memory_order_acquire) - turn) >= 0;
}

static struct sl_slot *slot_of(const struct sl_ring *ring, uint64_t chunk)
{
	return &ring->slots[chunk % ring->count];
}

static uint32_t turn_of(const struct sl_ring *ring, uint64_t chunk)
{
	return slot_of(ring, chunk)->base + (uint32_t)(chunk / ring->count) + 1;
}

/* The last turn of a slot when so many chunks have had theirs. */
static uint32_t last_turn(const struct sl_ring *ring, unsigned slot, uint64_t chunks)
{
	return ring->slots[slot].base + (uint32_t)((chunks + ring->count - 1 - slot) / ring->count);
}

void sl_ring_enter(struct sl_ring *ring, uint64_t chunks)
{
	ring->entered += chunks;
	for (unsigned i = 0; i < ring->count; i++) {
		ring->slots[i].entered = last_turn(ring, i, ring->entered);
		ring->slots[i].written = ring->slots[i].entered;
	}
}

void sl_ring_retreat(struct sl_ring *ring, uint64_t chunks)
{
	for (unsigned i = 0; i < ring->count; i++)
		ring->slots[i].written = last_turn(ring, i, chunks);
}

bool sl_ring_ready(const struct sl_ring *ring, uint64_t chunk)
{
	uint32_t turn = turn_of(ring, chunk);

	return chunk < ring->entered &&
	       reached(slot_of(ring, chunk)->gpu, ring->write ? turn : turn - 1);
}

static void store(struct sl_slot *slot, uint32_t turn)
{
	atomic_store_explicit(slot->cpu, turn, memory_order_release);
}

void sl_ring_store(struct sl_ring *ring, uint64_t chunk)
{
	store(slot_of(ring, chunk), turn_of(ring, chunk));
}

void sl_ring_stop(struct sl_ring *ring, unsigned slot)
{
	if (!reached(ring->slots[slot].cpu, ring->slots[slot].entered))
		store(&ring->slots[slot], ring->slots[slot].entered);
}

bool sl_ring_rests(const struct sl_ring *ring)
{
	for (unsigned i = 0; i < ring->count; i++)
		if (!ring->slots[i].lost && !reached(ring->slots[i].gpu, ring->slots[i].written))
			return false;
	return true;
}

uint64_t sl_ring_passed(const struct sl_ring *ring)
{
	uint64_t passed = 0;

	for (unsigned i = 0; i < ring->count; i++)
		passed += atomic_load_explicit(ring->slots[i].gpu, memory_order_acquire) -
		          ring->slots[i].base;
	return passed;
}

bool sl_ring_await(const struct sl_ring *ring, uint64_t chunk, struct sl_command *out)
{
	uint32_t turn = turn_of(ring, chunk) - ring->write;
	struct sl_slot *slot = slot_of(ring, chunk);

	*out = (struct sl_command){.kind = SL_AWAIT_WORD, .word = {slot->cpu, turn}};
	return !reached(slot->cpu, turn);
}

void sl_ring_write(const struct sl_ring *ring, uint64_t chunk, struct sl_command *out)
{
	*out = (struct sl_command){.kind = SL_WRITE_WORD,
	                           .word = {slot_of(ring, chunk)->gpu, turn_of(ring, chunk)}};
}

/* ---------------------------------------------------------------------------------- commands */

bool sl_commands_take(struct sl_staging *staging, unsigned count, bool wait)
{
	/* What is in flight needs nothing of this thread, and so comes back. */
	return sl_gate_take(&staging->commands, count, wait);
}

void sl_commands_give(struct sl_staging *staging, unsigned count)
{
	if (count)
		sl_gate_give(&staging->commands, count);
}
