/* SPDX-License-Identifier: Apache-2.0 */
/* Metadata held back: blocks of a file in memory, by their range.
 * Threads: the ordered driver's, with its mutex. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "h5file/ordered_internal.h"

static struct sl_held_block *held_block(struct sl_interval *range)
{
	return SL_CONTAINER(range, struct sl_held_block, range);
}

static void take_last(struct sl_interval *range, void *argument)
{
	*(struct sl_held_block **)argument = held_block(range);
}

static struct sl_held_block *held_find(const struct sl_held_blocks *held, uint64_t start,
                                       uint64_t end)
{
	struct sl_held_block *found = NULL;

	sl_intervals_overlapping(&held->set, start, end, take_last, &found);
	return found;
}

static struct sl_held_block *block_new(uint64_t start, size_t size, int type, int rank,
                                       const void *bytes)
{
	struct sl_held_block *block = malloc(sizeof(*block) + size);

	if (!block)
		return NULL;
	block->range = (struct sl_interval){.start = start, .end = start + size};
	block->type = type;
	block->rank = rank;
	memcpy(block->bytes, bytes, size);
	return block;
}

static void held_insert(struct sl_held_blocks *held, struct sl_held_block *block)
{
	sl_intervals_insert(&held->set, &block->range);
	held->count++;
	held->bytes += block->range.end - block->range.start;
}

static void held_drop(struct sl_held_blocks *held, struct sl_held_block *block)
{
	sl_intervals_remove(&held->set, &block->range);
	held->count--;
	held->bytes -= block->range.end - block->range.start;
	free(block);
}

/* Keeps the rest of a block on both sides of [start, end). */
static int held_trim(struct sl_held_blocks *held, struct sl_held_block *block, uint64_t start,
                     uint64_t end)
{
	struct sl_held_block *low = NULL, *high = NULL;
	uint64_t first = block->range.start, last = block->range.end;

	if (first < start) {
		low = block_new(first, start - first, block->type, block->rank, block->bytes);
		if (!low)
			return -ENOMEM;
	}
	if (last > end) {
		high = block_new(end, last - end, block->type, block->rank,
		                 block->bytes + (end - first));
		if (!high) {
			free(low);
			return -ENOMEM;
		}
	}
	held_drop(held, block);
	if (low)
		held_insert(held, low);
	if (high)
		held_insert(held, high);
	return 0;
}

int sl_held_forget(struct sl_held_blocks *held, uint64_t start, uint64_t end)
{
	struct sl_held_block *block;
	int err = 0;

	while (!err && (block = held_find(held, start, end)))
		err = held_trim(held, block, start, end);
	return err;
}

int sl_held_put(struct sl_held_blocks *held, uint64_t start, size_t size, int type, int rank,
                const void *bytes)
{
	uint64_t end = start + size;
	struct sl_held_block *block = held_find(held, start, end);
	int err;

	if (block && block->type == type && block->range.start <= start &&
	    block->range.end >= end) {
		memcpy(block->bytes + (start - block->range.start), bytes, size);
		if (block->range.start == start)
			block->rank = rank;
		return 0;
	}
	block = block_new(start, size, type, rank, bytes);
	if (!block)
		return -ENOMEM;
	err = sl_held_forget(held, start, end);
	if (err) {
		free(block);
		return err;
	}
	held_insert(held, block);
	return 0;
}

struct window {
	uint64_t start, end;
	uint8_t *bytes;
};

static void held_copy_out(struct sl_interval *range, void *argument)
{
	struct window *window = argument;
	uint64_t start = SL_MAX(range->start, window->start);
	uint64_t end = SL_MIN(range->end, window->end);

	memcpy(window->bytes + (start - window->start),
	       held_block(range)->bytes + (start - range->start), end - start);
}

void sl_held_get(const struct sl_held_blocks *held, uint64_t start, size_t size, void *bytes)
{
	struct window window = {start, start + size, bytes};

	sl_intervals_overlapping(&held->set, start, start + size, held_copy_out, &window);
}

static int held_compare(const void *left, const void *right)
{
	const struct sl_held_block *a = *(struct sl_held_block *const *)left;
	const struct sl_held_block *b = *(struct sl_held_block *const *)right;

	if (a->rank != b->rank)
		return a->rank < b->rank ? -1 : 1;
	return a->range.start < b->range.start ? -1 : a->range.start > b->range.start;
}

static void held_append(struct sl_interval *range, void *argument)
{
	struct sl_held_block ***next = argument;

	*(*next)++ = held_block(range);
}

int sl_held_sorted(const struct sl_held_blocks *held, struct sl_held_block ***out)
{
	struct sl_held_block **blocks = NULL, **next;

	if (held->count) {
		blocks = next = malloc(held->count * sizeof(struct sl_held_block *));
		if (!blocks)
			return -ENOMEM;
		sl_intervals_overlapping(&held->set, 0, UINT64_MAX, held_append, &next);
		qsort(blocks, held->count, sizeof(struct sl_held_block *), held_compare);
	}
	*out = blocks;
	return 0;
}

void sl_held_clear(struct sl_held_blocks *held)
{
	while (held->set.root)
		held_drop(held, held_block(held->set.root));
}
