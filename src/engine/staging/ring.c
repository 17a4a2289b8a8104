/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ring
 *
 * The sequence numbers of the slots of an operation in stream order, in the two words of each
 * slot. The engine enters chunks and stores the processor's words; the stream awaits those and
 * writes the device's. Any thread, under the operation's lock where staging.h says so.
 * tests/model/ring.pml is a model of this file, and is checked.
 */
#include "staging/staging_internal.h"

/* Numbers are compared by signed difference, so they may wrap. */
static bool ring_reached(const _Atomic uint32_t *word, uint32_t seq)
{
	return (int32_t)(atomic_load_explicit(word, memory_order_acquire) - seq) >= 0;
}

static struct sl_slot *ring_slot(const struct sl_ring *ring, uint64_t chunk)
{
	return &ring->slots[chunk % ring->count];
}

static uint32_t ring_seq(const struct sl_ring *ring, uint64_t chunk)
{
	return ring_slot(ring, chunk)->base + (uint32_t)(chunk / ring->count) + 1;
}

/* Returns the last number of a slot once it has been used for its share of so many chunks. */
static uint32_t ring_last_seq(const struct sl_ring *ring, unsigned slot, uint64_t chunks)
{
	return ring->slots[slot].base + (uint32_t)((chunks + ring->count - 1 - slot) / ring->count);
}

void sl_ring_enter(struct sl_ring *ring, uint64_t chunks)
{
	ring->entered += chunks;
	for (unsigned i = 0; i < ring->count; i++) {
		ring->slots[i].entered = ring_last_seq(ring, i, ring->entered);
		ring->slots[i].written = ring->slots[i].entered;
	}
}

void sl_ring_retreat(struct sl_ring *ring, uint64_t chunks)
{
	for (unsigned i = 0; i < ring->count; i++)
		ring->slots[i].written = ring_last_seq(ring, i, chunks);
}

bool sl_ring_ready(const struct sl_ring *ring, uint64_t chunk)
{
	uint32_t seq = ring_seq(ring, chunk);

	return chunk < ring->entered &&
	       ring_reached(ring_slot(ring, chunk)->gpu, ring->write ? seq : seq - 1);
}

static void ring_set(struct sl_slot *slot, uint32_t seq)
{
	atomic_store_explicit(slot->cpu, seq, memory_order_release);
}

void sl_ring_store(struct sl_ring *ring, uint64_t chunk)
{
	ring_set(ring_slot(ring, chunk), ring_seq(ring, chunk));
}

void sl_ring_stop(struct sl_ring *ring, unsigned slot)
{
	if (!ring_reached(ring->slots[slot].cpu, ring->slots[slot].entered))
		ring_set(&ring->slots[slot], ring->slots[slot].entered);
}

bool sl_ring_rests(const struct sl_ring *ring)
{
	for (unsigned i = 0; i < ring->count; i++)
		if (!ring->slots[i].lost &&
		    !ring_reached(ring->slots[i].gpu, ring->slots[i].written))
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
	uint32_t seq = ring_seq(ring, chunk) - ring->write;
	struct sl_slot *slot = ring_slot(ring, chunk);

	*out = (struct sl_command){.kind = SL_AWAIT_WORD, .word = {slot->cpu, seq}};
	return !ring_reached(slot->cpu, seq);
}

void sl_ring_write(const struct sl_ring *ring, uint64_t chunk, struct sl_command *out)
{
	*out = (struct sl_command){
		.kind = SL_WRITE_WORD,
		.word = {ring_slot(ring, chunk)->gpu, ring_seq(ring, chunk)},
	};
}

/* ---------------------------------------------------------------------------------- commands */

bool sl_commands_take(struct sl_staging *staging, unsigned count, bool wait)
{
	/* Commands in flight need nothing of this thread, and so come back. */
	return sl_gate_take(&staging->commands, count, wait);
}

void sl_commands_give(struct sl_staging *staging, unsigned count)
{
	if (count)
		sl_gate_give(&staging->commands, count);
}

bool sl_commands_pending(struct sl_staging *staging)
{
	return atomic_load(&staging->commands.taken);
}
