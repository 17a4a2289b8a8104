/* SPDX-License-Identifier: Apache-2.0 */
#include <limits.h>

#include "core/core.h"

static bool enter(struct sl_gate *gate, uint64_t count)
{
	uint64_t now = atomic_load(&gate->taken);

	while (!now || now + count <= atomic_load(&gate->most))
		if (atomic_compare_exchange_weak(&gate->taken, &now, now + count))
			return true;
	return false;
}

static bool has_line(struct sl_gate *gate)
{
	return atomic_load(&gate->last) != atomic_load(&gate->served);
}

/* After a change, for which those in line look again: they stand there before they look. */
static void changed(struct sl_gate *gate)
{
	if (!has_line(gate))
		return;
	atomic_fetch_add(&gate->changes, 1);
	sl_word_wake(&gate->changes, INT_MAX);
}

bool sl_gate_take(struct sl_gate *gate, uint64_t count, bool wait)
{
	uint32_t ticket, seen;

	if (!has_line(gate) && enter(gate, count))
		return true;
	if (!wait)
		return false;
	ticket = atomic_fetch_add(&gate->last, 1);
	/* Ended by those who give back what this one and those before it wait for, or by sl_gate_open(). */
	while (seen = atomic_load(&gate->changes),
	       atomic_load(&gate->served) != ticket || !enter(gate, count))
		sl_word_wait(&gate->changes, seen, SL_FOREVER);
	atomic_fetch_add(&gate->served, 1);
	changed(gate);
	return true;
}

void sl_gate_give(struct sl_gate *gate, uint64_t count)
{
	atomic_fetch_sub(&gate->taken, count);
	changed(gate);
}

void sl_gate_open(struct sl_gate *gate)
{
	atomic_store(&gate->most, UINT64_MAX);
	changed(gate);
}
