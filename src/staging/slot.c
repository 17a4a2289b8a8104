/* SPDX-License-Identifier: Apache-2.0 */
#include "staging/room.h"

static void return_slot(struct sl_staging *staging, enum sl_part_of part, struct sl_slot *slot)
{
	if (slot->data)
		sl_buddy_give(&staging->locked.parts[part], slot->data, slot->length);
	if (slot->cpu)
		staging->locked.words[staging->locked.words_free++] =
			SL_CONTAINER(slot->cpu, struct sl_words, cpu);
	slot->data = NULL;
	slot->cpu = slot->gpu = NULL;
}

static bool take_slot(struct sl_staging *staging, const struct sl_ask *ask, struct sl_slot *slot)
{
	*slot = (struct sl_slot){.length = ask->length};
	if (ask->words && !staging->locked.words_free)
		return false;
	if (ask->length) {
		slot->data = sl_buddy_take(&staging->locked.parts[ask->part], ask->length);
		if (!slot->data)
			return false;
	}
	if (ask->words) {
		struct sl_words *words = staging->locked.words[--staging->locked.words_free];

		slot->cpu = &words->cpu;
		slot->gpu = &words->gpu;
		slot->base = atomic_load(slot->cpu);
		slot->entered = slot->written = slot->base;
	}
	return true;
}

/* All or none; the mutex is held. */
static bool grant(struct sl_staging *staging, struct sl_ask *ask)
{
	unsigned taken = 0;

	while (taken < ask->count && take_slot(staging, ask, &ask->slots[taken]))
		taken++;
	if (taken == ask->count) {
		staging->locked.out[ask->part] += taken;
		return true;
	}
	/* Nobody has any, and there are too few: more will never be. */
	ask->refused = !staging->locked.out[ask->part];
	while (taken--)
		return_slot(staging, ask->part, &ask->slots[taken]);
	return ask->refused;
}

bool sl_slots_take(struct sl_staging *staging, struct sl_ask *ask, bool wait)
{
	struct sl_list *asks = &staging->locked.asks[ask->part];
	bool granted;

	sl_mutex_lock(&staging->mutex);
	ask->refused = ask->part == SL_PART_STREAM && sl_staging_lost(staging);
	granted = ask->refused || (sl_list_empty(asks) && grant(staging, ask));
	ask->waiting = !granted && wait;
	if (ask->waiting)
		sl_list_append(asks, &ask->link);
	sl_mutex_unlock(&staging->mutex);
	return granted;
}

/* Moves those whose turn has come to granted; the mutex is held. */
static void grant_waiting(struct sl_staging *staging, struct sl_list *granted)
{
	/* A part may have what a word of the other part was missing for. */
	for (unsigned part = 0; part < SL_PARTS_OF; part++) {
		struct sl_list *asks = &staging->locked.asks[part];

		while (!sl_list_empty(asks)) {
			struct sl_ask *ask = SL_CONTAINER(asks->next, struct sl_ask, link);

			if (!grant(staging, ask))
				break;
			ask->waiting = false;
			sl_list_remove(&ask->link);
			sl_list_append(granted, &ask->link);
		}
	}
}

static void tell(struct sl_list *granted)
{
	/* Who is told may be done at once and give slots back: a queue instead of a recursion. */
	static _Thread_local struct sl_list *telling;
	struct sl_list *link;

	if (telling) {
		while ((link = sl_list_take(granted)))
			sl_list_append(telling, link);
		return;
	}
	telling = granted;
	while ((link = sl_list_take(granted))) {
		struct sl_ask *ask = SL_CONTAINER(link, struct sl_ask, link);

		ask->granted(ask);
	}
	telling = NULL;
}

void sl_slots_refuse(struct sl_staging *staging)
{
	struct sl_list refused;
	struct sl_list *link;

	sl_list_init(&refused);
	sl_mutex_lock(&staging->mutex);
	while ((link = sl_list_take(&staging->locked.asks[SL_PART_STREAM]))) {
		struct sl_ask *ask = SL_CONTAINER(link, struct sl_ask, link);

		ask->waiting = false;
		ask->refused = true;
		sl_list_append(&refused, link);
	}
	sl_mutex_unlock(&staging->mutex);
	tell(&refused);
}

bool sl_slots_withdraw(struct sl_staging *staging, struct sl_ask *ask)
{
	struct sl_list granted;
	bool waiting;

	sl_list_init(&granted);
	sl_mutex_lock(&staging->mutex);
	waiting = ask->waiting;
	if (waiting) {
		ask->waiting = false;
		sl_list_remove(&ask->link);
		grant_waiting(staging, &granted);
	}
	sl_mutex_unlock(&staging->mutex);
	tell(&granted);
	return waiting;
}

void sl_slots_give(struct sl_staging *staging, enum sl_part_of part, struct sl_slot *slots,
                   unsigned count)
{
	struct sl_list granted;

	sl_list_init(&granted);
	sl_mutex_lock(&staging->mutex);
	for (unsigned i = 0; i < count; i++) {
		struct sl_slot *slot = &slots[i];

		if (!slot->data && !slot->cpu)
			continue; /* it was never granted */
		staging->locked.out[part]--;
		if (slot->lost) {
			staging->locked.lost++;
			continue;
		}
		/* Turns that were entered and not enqueued leave the device's word behind; nothing of
		 * the device refers to it now. */
		if (slot->gpu)
			atomic_store(slot->gpu, atomic_load(slot->cpu));
		return_slot(staging, part, slot);
	}
	grant_waiting(staging, &granted);
	sl_mutex_unlock(&staging->mutex);
	tell(&granted);
}
