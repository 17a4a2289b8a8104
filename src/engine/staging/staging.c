/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Staging
 *
 * The pinned memory of a device in a context: maps it, divides it into two halves and the words of
 * slots, and registers it with the device, step by step as operations need it. Starts and ends the
 * copier and the poller, which are the threads of this room. Called by threads that make and free
 * contexts, and that submit.
 *
 * The halves are apart for good. Slots of stream order come back when streams go on, which may need
 * anything that their program does next, the end of an operation that it awaits included; so memory
 * that passed from one order to the other could be waited for on both sides for ever.
 */
#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "staging/staging_internal.h"

#define WORDS_MOST   4096
#define WORDS_ENOUGH 256 /* from here on one is the copier's */
/* Numbers begin near the end of their range, so that they wrap in every program. */
#define FIRST_SEQ  0xFFFFFFF0u
#define ABANDON_NS INT64_C(1000000000) /* for pieces in flight to end */
#define FIRST_STEP ((size_t)64 << 20)  /* a long read of a local file has 32 MiB of slots */

/* Returns the number of words for a budget: as many as there can be slots of stream order. */
static size_t staging_words(uint64_t budget)
{
	return SL_MIN(budget / SL_SLOT_LEAST / 2, WORDS_MOST);
}

static size_t staging_words_length(uint64_t budget)
{
	size_t length = staging_words(budget) * sizeof(struct sl_slot_words);

	return (length + SL_SLOT_LEAST - 1) / SL_SLOT_LEAST * SL_SLOT_LEAST;
}

/*
 * The words lie beside memory of our own: with them in a half, that half would be less than a power
 * of two, and hold one operation where it has bytes for two.
 */
size_t sl_staging_half(uint64_t budget, bool own, enum sl_half half)
{
	size_t blocks = budget / SL_SLOT_LEAST;
	size_t words = own ? 0 : staging_words_length(budget) / SL_SLOT_LEAST;

	return (half == SL_HALF_STREAM ? blocks / 2 : blocks - blocks / 2 - words) * SL_SLOT_LEAST;
}

size_t sl_staging_largest(const struct sl_staging *staging, enum sl_half half)
{
	size_t length = staging->half_length[half];

	return length < SL_SLOT_LEAST ? 0 : (size_t)1 << (63 - __builtin_clzll(length));
}

struct sl_device *sl_staging_device(const struct sl_staging *staging)
{
	return staging->device;
}

/* memory: the application's, of `budget` bytes; NULL: it is mapped here. */
static int staging_get_memory(struct sl_staging *staging, size_t budget, void *memory)
{
	struct sl_device *device = staging->device;
	int node = device->pci ? sl_pci_node(device->pci) : -1;

	if (memory && !device->ops->registered(device, memory, budget))
		return sl_fail(-EINVAL, "the memory for staging is not registered with %s",
		               device->name);
	staging->own = !memory;
	staging->length = memory ? budget : budget + staging_words_length(budget);
	staging->memory = memory ? memory : sl_private_map(staging->length);
	if (!staging->memory)
		return sl_fail(-ENOMEM, "no memory for SLUICE_STAGING_BYTES, %zu", staging->length);
	if (memory)
		return 0;
	/* A child would write to copies that no device sees: it does not inherit the memory. */
	madvise(staging->memory, staging->length, MADV_DONTFORK);
	staging->placed =
		sl_staging_near("", node, staging->memory, staging->length, staging->pool);
	return 0;
}

/* The host's half comes first, because it is pinned first; then the other, and the words. No other
 * thread knows the staging yet. */
static int staging_divide(struct sl_staging *staging, size_t budget) SL_UNCHECKED
{
	char *rest = staging->memory;
	int rc = 0;

	staging->budget = budget;
	staging->locked.words = calloc(staging_words(budget), sizeof(*staging->locked.words));
	if (!staging->locked.words)
		return sl_fail(-ENOMEM, "no memory");
	for (unsigned half = SL_HALVES; !rc && half-- > 0;) {
		staging->half_length[half] = sl_staging_half(budget, staging->own, half);
		rc = sl_buddy_init(&staging->locked.halves[half], rest, staging->half_length[half]);
		rest += staging->half_length[half];
	}
	/* Of whole pages, so that none is pinned twice. */
	staging->step_ends[SL_STEP_FIRST] =
		SL_MIN(FIRST_STEP, sl_whole_pages(staging->half_length[SL_HALF_HOST]));
	staging->step_ends[SL_STEP_ALL] = staging->length;
	return rc ? sl_fail(rc, "no memory") : 0;
}

/* Lets slots be taken of the memory of a step, and of the last step words. */
static void staging_open(struct sl_staging *staging, unsigned step)
{
	size_t count = staging_words(staging->budget);
	struct sl_slot_words *words =
		(struct sl_slot_words *)(staging->memory + staging->half_length[SL_HALF_HOST] +
	                                 staging->half_length[SL_HALF_STREAM]);

	sl_mutex_lock(&staging->mutex);
	sl_buddy_open(&staging->locked.halves[SL_HALF_HOST], staging->step_ends[step]);
	if (step == SL_STEP_ALL) {
		sl_buddy_open(&staging->locked.halves[SL_HALF_STREAM], staging->length);
		for (size_t i = 0; i < count; i++) {
			atomic_init(&words[i].cpu, FIRST_SEQ);
			atomic_init(&words[i].gpu, FIRST_SEQ);
			staging->locked.words[i] = &words[count - 1 - i];
		}
		staging->locked.words_free = count;
		if (count > WORDS_ENOUGH)
			staging->copier.words = staging->locked.words[--staging->locked.words_free];
	}
	sl_mutex_unlock(&staging->mutex);
	atomic_store_explicit(&staging->steps, step + 1, memory_order_release);
}

/* With staging->pinning. */
static int staging_pin_step(struct sl_staging *staging, unsigned step)
{
	size_t begin = step ? staging->step_ends[step - 1] : 0;
	size_t length = staging->step_ends[step] - begin;
	struct sl_device *device = staging->device;
	int rc = 0;

	if (length && device->ops->makes_pages)
		sl_staging_touch(staging->memory + begin, length, staging->placed, staging->pool,
		                 staging->workers);
	if (length)
		rc = device->ops->register_memory(device, staging->memory + begin, length);
	if (rc)
		return sl_fail(rc, "cannot register %zu bytes with %s: %s", length, device->name,
		               sl_error_text(rc));
	staging_open(staging, step);
	return 0;
}

int sl_staging_pin(struct sl_staging *staging, enum sl_half half, uint64_t bytes)
{
	unsigned last = half == SL_HALF_STREAM || bytes > staging->step_ends[SL_STEP_FIRST]
	                        ? SL_STEP_ALL
	                        : SL_STEP_FIRST;
	unsigned step;
	int rc = 0;

	if (atomic_load_explicit(&staging->steps, memory_order_acquire) > last)
		return 0;
	sl_mutex_lock(&staging->pinning);
	while (!rc && (step = atomic_load(&staging->steps)) <= last)
		rc = staging_pin_step(staging, step);
	if (rc)
		atomic_store(&staging->refused, true);
	sl_mutex_unlock(&staging->pinning);
	return rc;
}

bool sl_staging_lacks(const struct sl_staging *staging)
{
	return atomic_load_explicit(&staging->steps, memory_order_acquire) < SL_STEPS &&
	       !atomic_load(&staging->refused);
}

size_t sl_staging_together(const struct sl_staging *staging, const char *data, size_t length)
{
	size_t at = (size_t)(data - staging->memory), border = staging->step_ends[SL_STEP_FIRST];

	return staging->own && at < border ? SL_MIN(length, border - at) : length;
}

/* Memory that the device may still use stays mapped. */
static void staging_release_memory(struct sl_staging *staging) SL_UNCHECKED
{
	struct sl_device *device = staging->device;
	int rc = 0;

	if (!staging->own || !staging->memory || staging->locked.lost)
		return;
	for (unsigned step = 0; !rc && step < atomic_load(&staging->steps); step++) {
		size_t begin = step ? staging->step_ends[step - 1] : 0;

		if (staging->step_ends[step] > begin)
			rc = device->ops->unregister_memory(device, staging->memory + begin);
	}
	if (!rc)
		munmap(staging->memory, staging->length);
}

/* No other thread knows the staging yet. */
int sl_staging_start(struct sl_device *device, const struct sl_settings *settings, void *memory,
                     struct sl_pool *pool, struct sl_staging **out) SL_UNCHECKED
{
	struct sl_staging *staging = calloc(1, sizeof(*staging));

	if (!staging)
		return sl_fail(-ENOMEM, "no memory");
	staging->device = device;
	staging->pool = pool;
	staging->workers = (unsigned)settings->workers;
	staging->shared = settings->shared;
	sl_mutex_init(&staging->mutex);
	sl_mutex_init(&staging->pinning);
	sl_mutex_init(&staging->seating);
	atomic_init(&staging->commands.most, SL_COMMANDS_MOST);
	for (unsigned half = 0; half < SL_HALVES; half++)
		sl_list_init(&staging->locked.waiters[half]);
	sl_cache_start(staging);
	int rc = staging_get_memory(staging, settings->staging_bytes, memory);
	if (!rc)
		rc = staging_divide(staging, settings->staging_bytes);
	/* That of the application is pinned. */
	for (unsigned step = 0; !rc && memory && step < SL_STEPS; step++)
		staging_open(staging, step);
	if (!rc)
		rc = sl_copier_start(staging);
	if (!rc)
		rc = sl_poller_start(staging);
	if (rc) {
		sl_staging_stop(staging);
		sl_staging_free(staging);
		return rc;
	}
	*out = staging;
	return 0;
}

void sl_staging_stop(struct sl_staging *staging)
{
	if (!staging)
		return;
	sl_poller_stop(staging);
	sl_copier_stop(staging);
}

void sl_staging_abandon(struct sl_staging *staging)
{
	if (!staging)
		return;
	atomic_store_explicit(&staging->lost, true, memory_order_release);
	sl_queue_nudge(&staging->copier.queue);
	sl_poller_empty(staging, sl_now() + ABANDON_NS);
	sl_staging_stop(staging);
}

/* Its threads have been joined. */
void sl_staging_free(struct sl_staging *staging) SL_UNCHECKED
{
	if (!staging)
		return;
	sl_copier_free(staging);
	staging_release_memory(staging);
	for (unsigned half = 0; half < SL_HALVES; half++)
		sl_buddy_destroy(&staging->locked.halves[half]);
	free(staging->locked.words);
	sl_mutex_destroy(&staging->mutex);
	sl_mutex_destroy(&staging->seating);
	sl_mutex_destroy(&staging->pinning);
	free(staging);
}
