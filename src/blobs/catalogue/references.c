/* SPDX-License-Identifier: Apache-2.0 */
/*
 * References: shared memory with the blobs that a client holds
 *
 * Any thread of a client takes and drops references; the server's thread scans and ends them.
 */
#include "catalogue/layout.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>

/* References that a client uses at first. */
#define FIRST_WINDOW 64u
/* Tries before the window grows: a longer scan is better than slower gets. */
#define LOOKS 16u

static uint64_t references_bytes(uint32_t count)
{
	uint64_t bytes = sizeof(struct sl_references_page) + count * sizeof(uint64_t);

	return (bytes + SL_PAGE - 1) / SL_PAGE * SL_PAGE;
}

int sl_references_new(uint32_t count, int *out)
{
	const uint64_t magic = SL_REFERENCES_MAGIC;

	if (count < SL_REFERENCES_LEAST || count > SL_REFERENCES_MOST || (count & (count - 1)))
		return -EINVAL;
	return sl_memory_begin("sluice-references", references_bytes(count), &magic, sizeof(magic),
	                       false, out);
}

int sl_references_map(int fd, bool writable, struct sl_references **out)
{
	struct sl_references *references = calloc(1, sizeof(*references));
	uint64_t bytes;
	void *memory;
	int err;

	if (!references)
		return -ENOMEM;
	err = sl_memory_map(fd, writable, references_bytes(SL_REFERENCES_MOST), &bytes, &memory);
	if (err) {
		free(references);
		return err;
	}
	references->page = memory;
	references->bytes = bytes;
	references->count = SL_REFERENCES_LEAST;
	while (references_bytes(references->count * 2) <= bytes)
		references->count *= 2;
	/* A child of fork() releasing a blob would release the parent's hold. */
	if (references->page->magic != SL_REFERENCES_MAGIC ||
	    (writable && madvise(memory, bytes, MADV_DONTFORK))) {
		sl_references_unmap(references);
		return -EBADMSG;
	}
	*out = references;
	return 0;
}

void sl_references_unmap(struct sl_references *references)
{
	if (!references)
		return;
	munmap(references->page, references->bytes);
	free(references);
}

/* ------------------------------------------------------------------------------ in the client */

static uint32_t references_bounded_window(uint32_t window, uint32_t count)
{
	return window < FIRST_WINDOW ? FIRST_WINDOW : SL_MIN(window, count);
}

/* Tries the word of the slot's last reference first, so that the ticks of other slots stay. */
static bool window_claim(struct sl_references *references, uint32_t window, uint64_t reference,
                         uint32_t *position)
{
	uint32_t looks = window < references->count ? LOOKS : window;
	uint32_t at = sl_reference_slot(reference);

	for (; looks--; at++) {
		_Atomic uint64_t *word = &references->page->at[at & (window - 1)];
		uint64_t seen = atomic_load_explicit(word, memory_order_relaxed);

		if (seen && !(seen & SL_TICK_BITS))
			continue;
		if (atomic_compare_exchange_strong_explicit(
			    word, &seen, reference, memory_order_seq_cst, memory_order_relaxed)) {
			*position = at & (window - 1);
			return true;
		}
	}
	return false;
}

int sl_references_claim(struct sl_references *references, uint64_t reference, uint32_t *position)
{
	_Atomic uint32_t *shared = &references->page->window;
	uint32_t seen = atomic_load_explicit(shared, memory_order_seq_cst);

	for (;;) {
		uint32_t window = references_bounded_window(seen, references->count);

		if (seen >= FIRST_WINDOW && window_claim(references, window, reference, position))
			return 0;
		if (seen >= references->count)
			return -ENOSPC;
		/* If this fails, `seen` has the value that another thread has stored. */
		if (atomic_compare_exchange_strong_explicit(
			    shared, &seen, seen < FIRST_WINDOW ? FIRST_WINDOW : window * 2,
			    memory_order_seq_cst, memory_order_seq_cst))
			seen = seen < FIRST_WINDOW ? FIRST_WINDOW : window * 2;
	}
}

void sl_references_drop(struct sl_references *references, uint32_t position, uint32_t tick)
{
	_Atomic uint64_t *word = &references->page->at[position];
	uint64_t reference = atomic_load_explicit(word, memory_order_relaxed);

	atomic_store_explicit(word, (reference & ~SL_TICK_BITS) | tick, memory_order_seq_cst);
}

/* ------------------------------------------------------------------------------ in the server */

uint32_t sl_references_window(const struct sl_references *references)
{
	uint32_t window = atomic_load_explicit(&references->page->window, memory_order_seq_cst);

	return SL_MIN(window, references->count);
}

uint64_t sl_references_at(const struct sl_references *references, uint32_t position)
{
	return atomic_load_explicit(&references->page->at[position], memory_order_seq_cst);
}

bool sl_references_end(struct sl_references *references)
{
	bool held = false;

	atomic_store_explicit(&references->page->ended, 1, memory_order_seq_cst);
	for (uint32_t i = 0; i < sl_references_window(references) && !held; i++) {
		uint64_t reference = sl_references_at(references, i);

		held = reference && !(reference & SL_TICK_BITS);
	}
	if (held)
		atomic_store_explicit(&references->page->ended, 0, memory_order_seq_cst);
	return !held;
}
