/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Gives up frames at the end of a dataset, and chunks left behind its end by a death.
 * H5Dset_extent() would take chunks out of the index before the header says so, and the file
 * would show frames of zeroes until then. Here the file is changed while HDF5 does not have the
 * dataset in memory: first the 8 bytes of the extent in the header, then, from the root of the
 * index down, the head of each node that loses entries. It is valid after each of these writes.
 * Detached nodes stay, unused; the driver gets the chunks' space. Threads: the file thread.
 */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "h5file/h5file_internal.h"
#include "h5file/ordered_internal.h"

/* A header of version 1: the number of bytes of messages is at 8, and the first of these at 16. */
#define BLOCK_BYTES 8
#define FIRST       16
/* A message: its type and length, and at 8 its contents. */
#define MESSAGE      8
#define DATASPACE    1
#define LAYOUT       8
#define CONTINUATION 16

/* A node of an index: signature, kind, level, number of entries and neighbours; then the entries,
 * each the length of a chunk, its offset in elements, and the address of the chunk or a node. */
#define NODE_HEAD 24
#define WORD      sizeof(uint64_t)

struct cut {
	struct sl_h5_file *file;
	unsigned rank;
	uint64_t stood; /* frames that were visible: nothing else has the space of their chunks */
	uint64_t end[SL_H5_RANK + 1]; /* chunks from there on are found in nodes that were seen */
};

static bool header_read(int fd, uint64_t at, void *out, size_t n)
{
	return pread(fd, out, n, (off_t)at) == (ssize_t)n;
}

/* Reads the first n bytes of what a message of the header says; returns their offset, or 0. */
static uint64_t find_message(const struct cut *cut, uint64_t header, unsigned wanted, void *out,
                             size_t n)
{
	uint64_t base = cut->file->base, at = base + header + FIRST, more[2] = {0};
	int fd = cut->file->own.fd;
	uint16_t kind[2];
	uint32_t bytes;

	if (!header_read(fd, base + header + BLOCK_BYTES, &bytes, sizeof(bytes)))
		return 0;
	for (uint64_t end = at + bytes; at + MESSAGE <= end; at += MESSAGE + kind[1]) {
		if (!header_read(fd, at, kind, sizeof(kind)))
			return 0;
		if (kind[0] == wanted)
			return header_read(fd, at + MESSAGE, out, n) ? at + MESSAGE : 0;
		if (kind[0] == CONTINUATION && !header_read(fd, at + MESSAGE, more, sizeof(more)))
			return 0;
		/* The next block, which begins with a message. */
		if (at + MESSAGE + kind[1] + MESSAGE > end && more[1]) {
			at = base + more[0] - MESSAGE - kind[1];
			end = base + more[0] + more[1];
			more[1] = 0;
		}
	}
	return 0;
}

/* An offset has a word more than dimensions: 0, or in a key behind all chunks 1. */
static bool offset_is_before(const struct cut *cut, const uint64_t *a, const uint64_t *b)
{
	unsigned i = 0;

	while (i < cut->rank && a[i] == b[i])
		i++;
	return a[i] < b[i];
}

/* Reads a node of a level below `above`; returns the number of its entries, or -EIO. */
static int node_read(const struct cut *cut, uint64_t at, unsigned above, uint64_t *out)
{
	const uint8_t *head = (const uint8_t *)out;
	int fd = cut->file->own.fd, count;
	size_t n;

	/* Kind 1: of chunks. */
	if (!header_read(fd, at, out, NODE_HEAD) || memcmp(head, "TREE\1", 5))
		return -EIO;
	count = head[6] | head[7] << 8;
	/* The key behind the last entry, too. */
	n = NODE_HEAD + (count * (cut->rank + 3) + cut->rank + 2) * WORD;
	return head[5] < above && n <= SL_H5_NODE && header_read(fd, at, out, n) ? count : -EIO;
}

/* Takes chunks from an offset on out of a node and those below it; off: only gives their space
 * away, because the node itself is out. Where a death came between the writes of a split, half the
 * entries are in the node before, too, and may be out of date there: they go as well, and their
 * space is another's. So the last entries come first. The key behind its entries may be out of date
 * as well: it is to be no later than bound, that of the node above, or HDF5 would put chunks
 * between the two where it does not look for them. */
static int node_cut(struct cut *cut, uint64_t address, unsigned above, const uint64_t *from,
                    const uint64_t *bound, bool off)
{
	uint64_t node[SL_H5_NODE / WORD], *entries = node + NODE_HEAD / WORD,
					  at = cut->file->base + address;
	int count = node_read(cut, at, above, node), kept = count, err = SL_MIN(count, 0);
	uint8_t *head = (uint8_t *)node, level = head[5];
	size_t words = cut->rank + 3;
	uint64_t *key;

	for (; !err && kept; kept--) {
		uint64_t *entry = entries + (kept - 1) * words, child = entry[words - 1];

		if (offset_is_before(cut, entry + 1, from))
			break;
		if (level && from[0] < cut->stood)
			err = node_cut(cut, child, level, from, NULL, true);
		if (!offset_is_before(cut, entry + 1, cut->end))
			continue;
		memcpy(cut->end, entry + 1, (cut->rank + 1) * WORD);
		if (!level && entry[1] < cut->stood)
			sl_ordered_vfd_give_up(&cut->file->vfd, cut->file->base + child,
			                       (uint32_t)entry[0]);
	}
	if (err || off)
		return err;
	if (kept < count) {
		/* Nothing is on its right any more; a node without entries is a leaf. */
		head[5] = kept ? level : 0;
		head[6] = kept & 0xff;
		head[7] = kept >> 8;
		node[2] = HADDR_UNDEF;
		err = sl_ordered_vfd_change(&cut->file->vfd, at, node, NODE_HEAD);
	}
	key = entries + kept * words;
	if (!err && bound && offset_is_before(cut, bound, key + 1)) {
		memcpy(key + 1, bound, (cut->rank + 1) * WORD);
		err = sl_ordered_vfd_change(&cut->file->vfd, at + ((char *)key - (char *)node), key,
		                            (cut->rank + 2) * WORD);
	}
	for (int i = kept; !err && level && i && i > kept - 2; i--) {
		err = node_cut(cut, entries[i * words - 1], level, from, entries + i * words + 1,
		               false);
		from = memcpy(cut->end, entries + (i - 1) * words + 1, (cut->rank + 1) * WORD);
	}
	return err;
}

/* Layouts have the rank with that of elements, the address of the index, and the chunk. */
static int index_cut(struct cut *cut, const uint8_t *layout, uint64_t frames)
{
	const uint8_t *at = layout + (layout[0] == 3 ? 3 : 8);
	uint64_t root, from[SL_H5_RANK + 1] = {0};
	uint32_t chunk;

	cut->rank = layout[layout[0] == 3 ? 2 : 1] - 1;
	memcpy(&root, at, sizeof(root));
	memcpy(&chunk, at + sizeof(root), sizeof(chunk));
	from[0] = (frames + chunk - 1) / chunk * chunk;
	return root == HADDR_UNDEF ? 0 : node_cut(cut, root, 256, from, NULL, false);
}

/* Called with nothing to flush. The file was opened so that closed objects leave HDF5's memory. */
int sl_h5_truncate(struct sl_h5_file *file, const char *name, hid_t *id, uint64_t extent,
                   uint64_t frames)
{
	struct cut cut = {.file = file, .stood = extent, .end = {UINT64_MAX}};
	uint8_t space[16], layout[20];
	uint64_t at = 0;
	size_t skip = 0;
	H5O_info_t info;
	int err = 0;

	if (H5Oget_info2(*id, &info, H5O_INFO_BASIC) >= 0 &&
	    find_message(&cut, info.addr, LAYOUT, layout, sizeof(layout)))
		at = find_message(&cut, info.addr, DATASPACE, space, sizeof(space));
	H5Dclose(*id);
	if (at)
		skip = space[0] == 1 ? 8 : 4;
	if (!at || memcmp(space + skip, &extent, sizeof(extent)))
		at = 0;
	if (frames < extent)
		err = at ? sl_ordered_vfd_change(&file->vfd, at + skip, &frames, sizeof(frames))
		         : -EIO;
	if (!err && at)
		err = index_cut(&cut, layout, frames);
	*id = sl_h5_dataset_open(file->id, name);
	if (err || *id < 0)
		return sl_h5_fail(file, -EIO, "the frames of '%s' from %llu on cannot be given up",
		                  name, (unsigned long long)frames);
	return 0;
}
