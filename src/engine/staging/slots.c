/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Slots
 *
 * Gives pinned memory, and words, to operations, and queues operations for which there
 * are too few. Each half of the memory is divided by a buddy allocator. Any thread; none waits.
 */
#ifdef __x86_64__
#include <cpuid.h>
#endif
#include <errno.h>
#include <stdlib.h>

#include "staging/staging_internal.h"

/* ------------------------------------------------------------------------------------- buddy */

static unsigned buddy_order(size_t length)
{
	unsigned order = 0;

	while (SL_SLOT_LEAST << order < length)
		order++;
	return order;
}

static void buddy_insert(struct sl_buddy *buddy, size_t block, unsigned order)
{
	buddy->free[block] = (unsigned char)(1 + order);
	sl_list_append(&buddy->lists[order], &buddy->links[block]);
}

static void buddy_withdraw(struct sl_buddy *buddy, size_t block)
{
	buddy->free[block] = 0;
	sl_list_remove(&buddy->links[block]);
}

int sl_buddy_init(struct sl_buddy *buddy, void *base, size_t length)
{
	buddy->base = base;
	buddy->spare = NULL;
	buddy->blocks = length / SL_SLOT_LEAST;
	buddy->free = calloc(buddy->blocks + 1, sizeof(*buddy->free));
	buddy->links = calloc(buddy->blocks + 1, sizeof(*buddy->links));
	if (!buddy->free || !buddy->links) {
		sl_buddy_destroy(buddy);
		return -ENOMEM;
	}
	for (unsigned i = 0; i < SL_BUDDY_ORDERS; i++)
		sl_list_init(&buddy->lists[i]);
	return 0;
}

void sl_buddy_destroy(struct sl_buddy *buddy)
{
	free(buddy->free);
	free(buddy->links);
	buddy->free = NULL;
	buddy->links = NULL;
}

/* Divides the smallest range that is large enough. */
static void *buddy_divide(struct sl_buddy *buddy, unsigned wanted)
{
	unsigned order = wanted;
	struct sl_list *link;
	size_t block;

	while (order < SL_BUDDY_ORDERS && sl_list_empty(&buddy->lists[order]))
		order++;
	if (order >= SL_BUDDY_ORDERS)
		return NULL;
	/* The range that came back last: it is still in the caches. */
	link = buddy->lists[order].previous;
	block = (size_t)(link - buddy->links);
	buddy_withdraw(buddy, block);
	while (order > wanted) {
		order--;
		buddy_insert(buddy, block + ((size_t)1 << order), order);
	}
	return buddy->base + block * SL_SLOT_LEAST;
}

static void buddy_join(struct sl_buddy *buddy, void *memory, unsigned order)
{
	size_t block = (size_t)((char *)memory - buddy->base) / SL_SLOT_LEAST;

	while (order + 1 < SL_BUDDY_ORDERS) {
		size_t other = block ^ ((size_t)1 << order);

		if (other >= buddy->blocks || buddy->free[other] != 1 + order)
			break;
		buddy_withdraw(buddy, other);
		block = SL_MIN(block, other);
		order++;
	}
	buddy_insert(buddy, block, order);
}

void *sl_buddy_take(struct sl_buddy *buddy, size_t length)
{
	unsigned wanted = buddy_order(length);
	bool fits = buddy->spare && buddy->spare_order == wanted;
	void *memory = fits ? buddy->spare : buddy_divide(buddy, wanted);

	if (!memory && buddy->spare) {
		buddy_join(buddy, buddy->spare, buddy->spare_order);
		buddy->spare = NULL;
		memory = buddy_divide(buddy, wanted);
	}
	if (fits)
		buddy->spare = NULL;
	return memory;
}

void sl_buddy_give(struct sl_buddy *buddy, void *memory, size_t length)
{
	if (buddy->spare)
		buddy_join(buddy, buddy->spare, buddy->spare_order);
	buddy->spare = memory;
	buddy->spare_order = buddy_order(length);
}

void sl_buddy_open(struct sl_buddy *buddy, size_t length)
{
	size_t end = SL_MIN(length / SL_SLOT_LEAST, buddy->blocks);

	/* Take the largest ranges that fit and begin at a multiple of their length. */
	while (buddy->opened < end) {
		size_t block = buddy->opened;
		unsigned order = 0;

		while (order + 1 < SL_BUDDY_ORDERS && !(block & ((size_t)1 << order)) &&
		       block + ((size_t)2 << order) <= end)
			order++;
		buddy->opened += (size_t)1 << order;
		sl_buddy_give(buddy, buddy->base + block * SL_SLOT_LEAST, SL_SLOT_LEAST << order);
	}
}

/* ------------------------------------------------------------------------------------- slots */

static void slot_return_locked(struct sl_staging *staging, enum sl_half half, struct sl_slot *slot)
	SL_REQUIRES(&staging->mutex)
{
	if (slot->data)
		sl_buddy_give(&staging->locked.halves[half], slot->data, slot->length);
	if (slot->cpu)
		staging->locked.words[staging->locked.words_free++] =
			SL_CONTAINER(slot->cpu, struct sl_slot_words, cpu);
	slot->data = NULL;
	slot->cpu = slot->gpu = NULL;
}

static bool slot_take_locked(struct sl_staging *staging, const struct sl_slot_waiter *waiter,
                             struct sl_slot *slot) SL_REQUIRES(&staging->mutex)
{
	*slot = (struct sl_slot){.length = waiter->length};
	if (waiter->words && !staging->locked.words_free)
		return false;
	if (waiter->length) {
		slot->data = sl_buddy_take(&staging->locked.halves[waiter->half], waiter->length);
		if (!slot->data)
			return false;
	}
	if (waiter->words) {
		struct sl_slot_words *words = staging->locked.words[--staging->locked.words_free];

		slot->cpu = &words->cpu;
		slot->gpu = &words->gpu;
		slot->base = atomic_load(slot->cpu);
		slot->entered = slot->written = slot->base;
	}
	return true;
}

/* Grants the waiter all slots or none. Returns true if refused: it can never have so many. */
static bool slots_grant_locked(struct sl_staging *staging, struct sl_slot_waiter *waiter)
	SL_REQUIRES(&staging->mutex)
{
	unsigned taken = 0;

	while (taken < waiter->count && slot_take_locked(staging, waiter, &waiter->slots[taken]))
		taken++;
	if (taken == waiter->count) {
		staging->locked.out[waiter->half] += taken;
		return true;
	}
	/* None is in use, and there are too few: more will never come back. */
	waiter->refused = !staging->locked.out[waiter->half];
	while (taken--)
		slot_return_locked(staging, waiter->half, &waiter->slots[taken]);
	return waiter->refused;
}

bool sl_slots_take(struct sl_staging *staging, struct sl_slot_waiter *waiter, bool wait)
{
	struct sl_list *waiters = &staging->locked.waiters[waiter->half];
	bool granted;

	sl_mutex_lock(&staging->mutex);
	waiter->refused = waiter->half == SL_HALF_STREAM && sl_staging_lost(staging);
	granted =
		waiter->refused || (sl_list_empty(waiters) && slots_grant_locked(staging, waiter));
	waiter->waiting = !granted && wait;
	if (waiter->waiting)
		sl_list_append(waiters, &waiter->link);
	sl_mutex_unlock(&staging->mutex);
	return granted;
}

/* Grants slots to waiters in order, as far as these suffice, and moves those to `granted`. */
static void slots_grant_waiting_locked(struct sl_staging *staging, struct sl_list *granted)
	SL_REQUIRES(&staging->mutex)
{
	/* Both halves: a waiter of the other half may have lacked only the words. */
	for (unsigned half = 0; half < SL_HALVES; half++) {
		struct sl_list *waiters = &staging->locked.waiters[half];

		sl_list_each_of (waiter, waiters, struct sl_slot_waiter, link) {
			if (!slots_grant_locked(staging, waiter))
				break;
			waiter->waiting = false;
			sl_list_move(&waiter->link, granted);
		}
	}
}

/* Calls granted() of each waiter in the list. No lock held. */
static void slots_notify(struct sl_list *granted)
{
	/* granted() may end at once and give slots back: a queue instead of a recursion. */
	static _Thread_local struct sl_list *notifying;
	struct sl_slot_waiter *waiter;

	if (notifying) {
		sl_list_take_all(granted, notifying);
		return;
	}
	notifying = granted;
	while ((waiter = sl_list_take_first(granted, struct sl_slot_waiter, link)))
		waiter->granted(waiter);
	notifying = NULL;
}

void sl_slots_refuse(struct sl_staging *staging)
{
	struct sl_list refused = SL_LIST_INIT(refused);

	sl_mutex_lock(&staging->mutex);
	sl_list_take_all(&staging->locked.waiters[SL_HALF_STREAM], &refused);
	sl_list_each_of (waiter, &refused, struct sl_slot_waiter, link) {
		waiter->waiting = false;
		waiter->refused = true;
	}
	sl_mutex_unlock(&staging->mutex);
	slots_notify(&refused);
}

bool sl_slots_withdraw(struct sl_staging *staging, struct sl_slot_waiter *waiter)
{
	struct sl_list granted = SL_LIST_INIT(granted);

	sl_mutex_lock(&staging->mutex);
	bool waiting = waiter->waiting;
	if (waiting) {
		waiter->waiting = false;
		sl_list_remove(&waiter->link);
		slots_grant_waiting_locked(staging, &granted);
	}
	sl_mutex_unlock(&staging->mutex);
	slots_notify(&granted);
	return waiting;
}

void sl_slots_give(struct sl_staging *staging, enum sl_half half, struct sl_slot *slots,
                   unsigned count)
{
	struct sl_list granted = SL_LIST_INIT(granted);

	sl_mutex_lock(&staging->mutex);
	for (unsigned i = 0; i < count; i++) {
		struct sl_slot *slot = &slots[i];

		if (!slot->data && !slot->cpu)
			continue; /* never granted */
		staging->locked.out[half]--;
		if (slot->lost) {
			staging->locked.lost++;
			continue;
		}
		/* Numbers not enqueued leave the word behind: the device is done with it. */
		if (slot->gpu)
			atomic_store(slot->gpu, atomic_load(slot->cpu));
		slot_return_locked(staging, half, slot);
	}
	slots_grant_waiting_locked(staging, &granted);
	sl_mutex_unlock(&staging->mutex);
	slots_notify(&granted);
}

/* ------------------------------------------------------------------------------------- seats */

#define LONG_READ  ((uint64_t)64 << 20) /* with announced bytes, */
#define LEAST_READ ((uint64_t)8 << 20)  /* and at least so long itself */

bool sl_slots_sit(struct sl_staging *staging, uint64_t bytes)
{
	if (bytes < LEAST_READ ||
	    bytes + atomic_load_explicit(&staging->expected, memory_order_relaxed) < LONG_READ)
		return false;
	sl_mutex_lock(&staging->seating);
	if (!staging->long_reads++)
		staging->seat =
			sl_seat_take(sl_device_place(staging->device),
		                     staging->shared ? staging->pool : NULL, staging->workers);
	sl_mutex_unlock(&staging->seating);
	return true;
}

void sl_slots_rise(struct sl_staging *staging)
{
	sl_mutex_lock(&staging->seating);
	if (!--staging->long_reads && staging->seat >= 0)
		sl_seat_give(staging->seat);
	sl_mutex_unlock(&staging->seating);
}

/* ------------------------------------------------------------------------------------- cache */

/*
 * Bytes of a slot are moved out of the cache of the core that wrote them before a device copies
 * them: from there a device reads at a fifth of its speed (docs/performance.md). During a long read
 * the next bytes drive the previous bytes out to the cache that all cores share; the last bytes
 * before a pause are driven out here, on processors that have an instruction for it. To do that
 * always would cost more than it gains.
 */
#ifdef __x86_64__

#define LINE     64
#define CLDEMOTE (1u << 25) /* Intel SDM, CPUID leaf 7, ECX */

static bool cache_can_demote(void)
{
	unsigned a, b, c = 0, d;

	return __get_cpuid_count(7, 0, &a, &b, &c, &d) && c & CLDEMOTE;
}

static void cache_demote(const char *data, size_t length)
{
	for (size_t at = 0; at < length; at += LINE)
		__asm__ volatile("cldemote %0" ::"m"(data[at]));
}

#else

#define cache_can_demote()         false
#define cache_demote(data, length) ((void)(data), (void)(length))

#endif

#define OWN_CACHE ((uint64_t)2 << 20) /* of a core, as far as is known */

void sl_cache_start(struct sl_staging *staging)
{
	staging->caches = cache_can_demote() ? sl_cores() * OWN_CACHE : 0;
}

bool sl_staging_lost(const struct sl_staging *staging)
{
	return atomic_load_explicit(&staging->lost, memory_order_acquire);
}

void sl_slots_expect(struct sl_staging *staging, uint64_t bytes)
{
	atomic_fetch_add_explicit(&staging->expected, bytes, memory_order_relaxed);
}

void sl_slots_got(struct sl_staging *staging, uint64_t bytes, const char *data, size_t length)
{
	uint64_t left =
		atomic_fetch_sub_explicit(&staging->expected, bytes, memory_order_relaxed) - bytes;

	if (left < staging->caches)
		cache_demote(data, length);
}
