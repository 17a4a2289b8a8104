/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Hints from indexes of chunks: trees of version 1, and extensible arrays
 *
 * HDF5 goes down an index node after node, and each would be a round trip. Hints are addresses in
 * a node that HDF5 has read: when HDF5 comes to a child, all children are fetched side by side; in
 * trees also the children of the nodes beside it, twice as many each time in a row. HDF5 reads all
 * nodes itself: a hint that lies costs bytes, and a limit bounds them.
 *
 * The formats are in the HDF5 File Format Specification, III.A.1 and VII.D.
 *
 * Threads: the thread that looks at the file.
 */
#include <endian.h>
#include <string.h>

#include "arrays/array_blocks.h"

#define HEADER     24 /* the signature, type, level, entries, and two addresses of 8 bytes */
#define BYTES_MOST ((uint64_t)16 << 20)
/* Bytes to fetch for a block of an array: the index has the addresses of blocks, no lengths. */
#define BLOCK_MOST ((uint64_t)32 << 10)
#define AHEAD_MOST 64

/* Reads the addresses of children, if they lie in the file. Returns how many. level: out. */
static size_t node_children(const struct sl_h5_blocks *blocks, const char *node, uint64_t bytes,
                            unsigned *level, uint64_t *out, size_t room)
{
	/* A key: bytes, mask, and the place in each dimension, the element's bytes included. */
	uint64_t key = 8 + 8 * ((uint64_t)blocks->source.rank + 1), entries, at = HEADER + key;
	uint16_t word;
	size_t count = 0;

	*level = 0;
	if (!blocks->source.rank || bytes > SL_HINTS_NODE || bytes < at ||
	    memcmp(node, "TREE\1", 5))
		return 0;
	*level = (unsigned char)node[5];
	memcpy(&word, node + 6, sizeof(word));
	entries = SL_MIN((uint64_t)le16toh(word), (bytes - at) / (8 + key));
	for (; *level && entries && count < room; entries--, at += 8 + key) {
		uint64_t child;

		memcpy(&child, node + at, sizeof(child));
		child = le64toh(child);
		if (child < blocks->source.length && bytes <= blocks->source.length - child)
			out[count++] = child;
	}
	return count;
}

/* Takes the addresses that end an index block or a secondary block, before its checksum. */
static void array_take(struct sl_h5_blocks *blocks, const char *block, uint64_t bytes)
{
	struct sl_hints *hints = &blocks->hints;
	const uint64_t least =
		14; /* the signature, version, client, and the address of the header */
	uint64_t child;

	hints->wanted_count = 0;
	hints->bytes = 0;
	for (uint64_t at = bytes - 4; at >= least + sizeof(child); at -= sizeof(child)) {
		memcpy(&child, block + at - sizeof(child), sizeof(child));
		child = le64toh(child);
		if (child && child < blocks->source.length &&
		    hints->wanted_count < BYTES_MOST / BLOCK_MOST)
			hints->wanted[hints->wanted_count++] = child;
	}
}

void sl_hints_take(struct sl_h5_blocks *blocks, const char *node, uint64_t offset, uint64_t bytes)
{
	struct sl_hints *hints = &blocks->hints;
	uint64_t *children = hints->children;
	size_t place = 0, count, room = SL_MIN(BYTES_MOST / SL_MAX(bytes, 1), SL_HINTS_MOST);
	unsigned level;

	if (bytes > 4 && bytes <= SL_HINTS_NODE &&
	    (!memcmp(node, "EAIB", 4) || !memcmp(node, "EASB", 4))) {
		array_take(blocks, node, bytes);
		return;
	}
	count = node_children(blocks, node, bytes, &level, children, room);
	if (!count)
		return;
	if (level > 1) {
		memcpy(hints->inner, children, count * sizeof(*children));
		hints->inner_count = count;
		hints->from = hints->to = 0;
	}
	while (place < hints->inner_count && hints->inner[place] != offset)
		place++;
	/* A node before has taken these children. */
	if (level == 1 && place < hints->inner_count && place >= hints->from && place < hints->to)
		return;
	memcpy(hints->wanted, children, count * sizeof(*children));
	hints->wanted_count = count;
	hints->bytes = bytes;
	if (level > 1 || place == hints->inner_count)
		return;
	hints->ahead = place == hints->to && place ? SL_MIN(2 * hints->ahead, AHEAD_MOST) : 1;
	hints->from = place;
	hints->to = place + 1;
	for (; hints->to < SL_MIN(place + hints->ahead, hints->inner_count); hints->to++) {
		if (!sl_h5_blocks_copy(blocks, hints->inner[hints->to], bytes, hints->beside))
			return;
		hints->wanted_count += node_children(blocks, hints->beside, bytes, &level,
		                                     hints->wanted + hints->wanted_count,
		                                     room - hints->wanted_count);
	}
}

uint64_t sl_hints_have(const struct sl_hints *hints, uint64_t offset, uint64_t bytes)
{
	uint64_t each = hints->bytes ? hints->bytes : BLOCK_MOST;

	for (size_t i = 0; i < hints->wanted_count; i++)
		if (hints->wanted[i] == offset)
			return bytes == each || (!hints->bytes && bytes < each) ? each : 0;
	return 0;
}
