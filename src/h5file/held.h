/* SPDX-License-Identifier: Apache-2.0 */
/* Blocks of a file that are kept in memory until they may be written. Not thread-safe. */
#ifndef SL_HELD_H
#define SL_HELD_H

#include "core/core.h"

struct sl_held_block {
	struct sl_interval range; /* in the file; no two blocks overlap */
	int type;                 /* meaning defined by the owner, */
	int rank;                 /* and this */
	uint8_t bytes[];
};
struct sl_held_blocks {
	struct sl_intervals set;
	size_t count;
	uint64_t bytes;
};

/* Holds bytes, replacing held bytes of this range. Parts of blocks of another type outside the
 * range stay. */
int sl_held_put(struct sl_held_blocks *held, uint64_t start, size_t size, int type, int rank,
                const void *bytes);
/* Forgets a range. */
int sl_held_forget(struct sl_held_blocks *held, uint64_t start, uint64_t end);
/* Copies held bytes of a range to their place in `bytes`, and leaves the rest of it unchanged. */
void sl_held_get(const struct sl_held_blocks *held, uint64_t start, size_t size, void *bytes);
/* All blocks, by rank, then by start; the caller frees the array, NULL if there are none. */
int sl_held_sorted(const struct sl_held_blocks *held, struct sl_held_block ***out);
void sl_held_clear(struct sl_held_blocks *held);

#endif
