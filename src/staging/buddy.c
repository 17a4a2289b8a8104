/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdlib.h>

#include "staging/room.h"

static unsigned order_of(size_t length)
{
	unsigned order = 0;

	while (SL_SLOT_LEAST << order < length)
		order++;
	return order;
}

static void insert(struct sl_buddy *buddy, size_t block, unsigned order)
{
	buddy->free[block] = (unsigned char)(1 + order);
	sl_list_append(&buddy->lists[order], &buddy->links[block]);
}

static void withdraw(struct sl_buddy *buddy, size_t block)
{
	buddy->free[block] = 0;
	sl_list_remove(&buddy->links[block]);
}

int sl_buddy_init(struct sl_buddy *buddy, void *base, size_t length)
{
	size_t block = 0;

	buddy->base = base;
	buddy->blocks = length / SL_SLOT_LEAST;
	buddy->free = calloc(buddy->blocks + 1, sizeof(*buddy->free));
	buddy->links = calloc(buddy->blocks + 1, sizeof(*buddy->links));
	if (!buddy->free || !buddy->links) {
		sl_buddy_destroy(buddy);
		return -ENOMEM;
	}
	for (unsigned i = 0; i < SL_BUDDY_ORDERS; i++)
		sl_list_init(&buddy->lists[i]);
	/* The largest ranges that begin at a multiple of their length and fit. */
	while (block < buddy->blocks) {
		unsigned order = 0;

		while (order + 1 < SL_BUDDY_ORDERS && !(block & ((size_t)1 << order)) &&
		       block + ((size_t)2 << order) <= buddy->blocks)
			order++;
		insert(buddy, block, order);
		block += (size_t)1 << order;
	}
	return 0;
}

void sl_buddy_destroy(struct sl_buddy *buddy)
{
	free(buddy->free);
	free(buddy->links);
	buddy->free = NULL;
	buddy->links = NULL;
}

void *sl_buddy_take(struct sl_buddy *buddy, size_t length)
{
	unsigned wanted = order_of(length), order = wanted;
	struct sl_list *link;
	size_t block;

	while (order < SL_BUDDY_ORDERS && sl_list_empty(&buddy->lists[order]))
		order++;
	if (order >= SL_BUDDY_ORDERS)
		return NULL;
	/* The one that came back last: its memory is still in the caches. */
	link = buddy->lists[order].previous;
	block = (size_t)(link - buddy->links);
	withdraw(buddy, block);
	while (order > wanted) {
		order--;
		insert(buddy, block + ((size_t)1 << order), order);
	}
	return buddy->base + block * SL_SLOT_LEAST;
}

void sl_buddy_give(struct sl_buddy *buddy, void *memory, size_t length)
{
	size_t block = (size_t)((char *)memory - buddy->base) / SL_SLOT_LEAST;
	unsigned order = order_of(length);

	while (order + 1 < SL_BUDDY_ORDERS) {
		size_t other = block ^ ((size_t)1 << order);

		if (other >= buddy->blocks || buddy->free[other] != 1 + order)
			break;
		withdraw(buddy, other);
		block = SL_MIN(block, other);
		order++;
	}
	insert(buddy, block, order);
}

size_t sl_buddy_largest(size_t length)
{
	size_t largest = SL_SLOT_LEAST;

	if (length < SL_SLOT_LEAST)
		return 0;
	while (largest * 2 <= length)
		largest *= 2;
	return largest;
}
