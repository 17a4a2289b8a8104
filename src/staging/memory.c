/* SPDX-License-Identifier: Apache-2.0 */
/* The pinned memory of one device of one context: made, registered, divided. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "staging/room.h"

#define WORDS_MOST 4096
/* Near the end of their range, so that every program sees that they wrap. */
#define FIRST_TURN 0xFFFFFFF0u
#define ABANDON_NS INT64_C(1000000000) /* that storage has to end what it is moving */
#define HUGE_PAGE  ((size_t)2 << 20)

/*
 * How a budget is divided: half of it is slots of operations in stream order, the rest those of operations
 * that are awaited on the host, and the words, as many as there can be slots in the first half.
 */
static size_t words_of(uint64_t budget)
{
	return SL_MIN(budget / SL_SLOT_LEAST / 2, WORDS_MOST);
}

static size_t words_length(uint64_t budget)
{
	size_t length = words_of(budget) * sizeof(struct sl_words);

	return (length + SL_SLOT_LEAST - 1) / SL_SLOT_LEAST * SL_SLOT_LEAST;
}

size_t sl_staging_part(uint64_t budget, enum sl_part_of part)
{
	size_t blocks = budget / SL_SLOT_LEAST, half = blocks / 2;
	size_t words = words_length(budget) / SL_SLOT_LEAST;

	return (part == SL_PART_STREAM ? half : blocks - half - words) * SL_SLOT_LEAST;
}

size_t sl_staging_largest(const struct sl_staging *staging, enum sl_part_of part)
{
	return sl_buddy_largest(staging->part_length[part]);
}

struct sl_device *sl_staging_device(const struct sl_staging *staging)
{
	return staging->device;
}

bool sl_staging_lost(const struct sl_staging *staging)
{
	return atomic_load_explicit(&staging->lost, memory_order_acquire);
}

/* Not inherited by children, whose writes would go to copies that no device sees. */
static int map_memory(struct sl_staging *staging, size_t length)
{
	size_t mapped = length + HUGE_PAGE;
	char *memory =
		mmap(NULL, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	char *start, *end;

	if (memory == MAP_FAILED)
		return sl_fail(-ENOMEM, "no memory for SLUICE_STAGING_BYTES, %zu", length);
	/* What huge pages could not begin with is given back. */
	start = (char *)(((uintptr_t)memory + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE);
	end = start + sl_whole_pages(length);
	if (start > memory)
		munmap(memory, (size_t)(start - memory));
	if (memory + mapped > end)
		munmap(end, (size_t)(memory + mapped - end));
	madvise(start, length, MADV_HUGEPAGE);
	madvise(start, length, MADV_DONTFORK);
	staging->memory = start;
	staging->length = length;
	staging->own = true;
	return 0;
}

static int get_memory(struct sl_staging *staging, size_t budget, void *memory, size_t length)
{
	struct sl_device *device = staging->device;
	int rc;

	if (memory) {
		if (!device->ops->registered(device, memory, length))
			return sl_fail(-EINVAL, "the memory for staging is not registered with %s",
			               device->name);
		staging->memory = memory;
		staging->length = length;
		return 0;
	}
	rc = map_memory(staging, budget);
	if (rc)
		return rc;
	rc = device->ops->register_memory(device, staging->memory, staging->length);
	if (!rc)
		return 0;
	munmap(staging->memory, staging->length);
	staging->memory = NULL;
	return sl_fail(rc, "cannot register %zu bytes with %s: %s", staging->length, device->name,
	               sl_error_text(rc));
}

static int divide(struct sl_staging *staging)
{
	size_t count = words_of(staging->length);
	struct sl_words *words;
	char *rest = staging->memory;
	int rc = 0;

	staging->locked.words = calloc(count, sizeof(*staging->locked.words));
	if (!staging->locked.words)
		return sl_fail(-ENOMEM, "no memory");
	for (unsigned part = 0; !rc && part < SL_PARTS_OF; part++) {
		staging->part_length[part] = sl_staging_part(staging->length, part);
		rc = sl_buddy_init(&staging->locked.parts[part], rest, staging->part_length[part]);
		rest += staging->part_length[part];
	}
	words = (struct sl_words *)rest;
	for (size_t i = 0; i < count; i++) {
		atomic_init(&words[i].cpu, FIRST_TURN);
		atomic_init(&words[i].gpu, FIRST_TURN);
		staging->locked.words[i] = &words[count - 1 - i];
	}
	staging->locked.words_free = count;
	return rc ? sl_fail(rc, "no memory") : 0;
}

/* Memory that the device may still use is left to it. */
static void release_memory(struct sl_staging *staging)
{
	struct sl_device *device = staging->device;

	if (!staging->own || !staging->memory || staging->locked.lost ||
	    device->ops->unregister_memory(device, staging->memory))
		return;
	munmap(staging->memory, staging->length);
}

int sl_staging_start(struct sl_device *device, const struct sl_settings *settings, void *memory,
                     size_t length, struct sl_staging **out)
{
	struct sl_staging *staging = calloc(1, sizeof(*staging));
	int rc;

	if (!staging)
		return sl_fail(-ENOMEM, "no memory");
	staging->device = device;
	sl_mutex_init(&staging->mutex);
	atomic_init(&staging->commands.most, SL_COMMANDS_MOST);
	for (unsigned part = 0; part < SL_PARTS_OF; part++)
		sl_list_init(&staging->locked.asks[part]);
	sl_cache_start(staging);
	rc = get_memory(staging, settings->staging_bytes, memory, length);
	if (!rc)
		rc = divide(staging);
	if (!rc)
		rc = sl_copier_start(staging);
	if (!rc)
		rc = sl_bell_start(staging);
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
	sl_bell_stop(staging);
	sl_copier_stop(staging);
}

void sl_staging_abandon(struct sl_staging *staging)
{
	if (!staging)
		return;
	atomic_store_explicit(&staging->lost, true, memory_order_release);
	sl_queue_nudge(&staging->copier.queue);
	sl_bell_empty(staging, sl_now() + ABANDON_NS);
	sl_staging_stop(staging);
}

void sl_staging_free(struct sl_staging *staging)
{
	if (!staging)
		return;
	sl_copier_free(staging);
	release_memory(staging);
	for (unsigned part = 0; part < SL_PARTS_OF; part++)
		sl_buddy_destroy(&staging->locked.parts[part]);
	free(staging->locked.words);
	sl_mutex_destroy(&staging->mutex);
	free(staging);
}
