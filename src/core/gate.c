/* SPDX-License-Identifier: Apache-2.0 */
#include "core/core.h"

/* In line. Whoever has seen let_in is gone. */
struct waiter {
	struct sl_list link;
	uint64_t count;
	_Atomic uint32_t let_in;
};

void sl_gate_init(struct sl_gate *gate, uint64_t most)
{
	atomic_init(&gate->taken, 0);
	atomic_init(&gate->most, most);
	atomic_init(&gate->waiting, 0);
	pthread_mutex_init(&gate->mutex, NULL);
	sl_list_init(&gate->line);
}

void sl_gate_destroy(struct sl_gate *gate)
{
	pthread_mutex_destroy(&gate->mutex);
}

static bool enter(struct sl_gate *gate, uint64_t count)
{
	uint64_t now = atomic_load(&gate->taken);

	while (!now || now + count <= atomic_load(&gate->most))
		if (atomic_compare_exchange_weak(&gate->taken, &now, now + count))
			return true;
	return false;
}

/* The mutex is held. */
static void let_in(struct sl_gate *gate)
{
	while (!sl_list_empty(&gate->line)) {
		struct waiter *first = SL_CONTAINER(gate->line.next, struct waiter, link);

		if (!enter(gate, first->count))
			return;
		sl_list_remove(&first->link);
		atomic_fetch_sub(&gate->waiting, 1);
		atomic_store(&first->let_in, 1);
		sl_word_wake(&first->let_in, 1);
	}
}

/* After a change that may let somebody in. Who takes counts itself in before it looks at what is taken, and who
 * gives looks for it after: one of them sees the other. */
static void look(struct sl_gate *gate)
{
	if (!atomic_load(&gate->waiting))
		return;
	pthread_mutex_lock(&gate->mutex);
	let_in(gate);
	pthread_mutex_unlock(&gate->mutex);
}

bool sl_gate_take(struct sl_gate *gate, uint64_t count, bool wait)
{
	struct waiter waiter = {.count = count};

	if (!atomic_load(&gate->waiting) && enter(gate, count))
		return true;
	if (!wait)
		return false;
	pthread_mutex_lock(&gate->mutex);
	sl_list_append(&gate->line, &waiter.link);
	atomic_fetch_add(&gate->waiting, 1);
	let_in(gate);
	pthread_mutex_unlock(&gate->mutex);
	/* Ended by who gives back what this one and those before it wait for, or by sl_gate_open(). */
	while (!atomic_load(&waiter.let_in))
		sl_word_wait(&waiter.let_in, 0, SL_FOREVER);
	return true;
}

void sl_gate_give(struct sl_gate *gate, uint64_t count)
{
	atomic_fetch_sub(&gate->taken, count);
	look(gate);
}

void sl_gate_open(struct sl_gate *gate)
{
	atomic_store(&gate->most, UINT64_MAX);
	look(gate);
}
