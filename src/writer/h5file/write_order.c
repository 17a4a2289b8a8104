/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The order of writes: the file of the ordered driver, which is valid after each single write.
 * Threads: the driver's, with its mutex: in HDF5, or in settle.
 *
 * Raw data is written at once, to space that nothing in the file refers to; or other processes
 * have written it, where sl_ordered_vfd_grant() has given them space. Metadata is held back, and a
 * flush writes it in this order:
 *
 *   new blocks      Beyond the end at the last flush: nothing refers to them.
 *   superblock      It has the end of the file. Readers refuse addresses beyond it and shorter
 *                   files, so the file is extended before, and blocks with references come
 *                   later.
 *   heaps           Names that groups will refer to, see seal_heaps(), and texts of attributes.
 *   B-tree nodes    From the root down. A split node gives half its entries to a new node:
 *                   first the parent sends readers there, then the node loses them. A root
 *                   stays in place, and its previous contents become a new block.
 *   symbol tables   The leaves of the B-trees of groups.
 *   object headers  They have the extents: frames become visible when their chunks can be
 *                   reached, and their numbers are visible: headers of datasets with a single
 *                   dimension come first, unless they have frames themselves.
 *
 * Except for new blocks, concurrent readers may see a mix of old and new blocks. The word of
 * the file (word.h) tells them: it is odd from the first of these writes to the last.
 *
 * A kill may cut a write at the end of a page. So metadata blocks are placed inside a page, and the
 * file gets its space before the first of these writes. A node of an index of chunks may be longer
 * (SL_H5_NODE): it begins with a page, and write_block() has the order of its writes. Of another
 * program it may lie across pages in any way, and other blocks as well: those are exposed to a kill
 * inside the call that writes them.
 *
 * None of these writes needs HDF5's lock. A chunk is in the caller's memory, HDF5 only gives it
 * space, and nothing reads it before the flush. A flush writes the driver's copies of the blocks;
 * HDF5 takes them for written, and reads get the copies until then. Only calls of the driver change
 * them, under the mutex.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "h5file/ordered_internal.h"
#include "h5file/word.h"

/* The first bytes of a local heap, and where they say which bytes for names are free. */
#define HEAP_HEAD 32
#define HEAP_FREE 16

enum rank {
	RANK_NEW,
	RANK_SUPERBLOCK,
	RANK_HEAP,
	RANK_HEAP_HEAD,
	RANK_TREE, /* of 256 levels */
	RANK_SYMBOLS = RANK_TREE + 256,
	RANK_COLUMN,
	RANK_HEADER,
};

/* Keeps the first error. */
int sl_ordered_keep_error(struct ordered_file *file, int error, uint64_t offset)
{
	if (error && !file->vfd->error) {
		file->vfd->error = error;
		file->vfd->error_offset = offset;
	}
	return error;
}

/* Another program may truncate the file: HDF5 itself calls open(2) with O_TRUNC before it asks for
 * the lock. Then the file would be filled behind its new end, with nothing before. So its length is
 * compared before each write of raw data, and with its word before each flush. */
int sl_ordered_check_length(const struct ordered_file *file)
{
	off_t length = lseek(file->fd, 0, SEEK_END); /* quicker than fstat() */

	if (length < 0)
		return -errno;
	return (haddr_t)length < file->eof ? -ESTALE : 0;
}

/* Checks by its word and length that the file is as the last flush left it. */
static int ordered_check_file(const struct ordered_file *file)
{
	uint64_t word = 0;
	/* A new file has it with the first flush. */
	if (!file->word || !file->flushed_eoa)
		return sl_ordered_check_length(file);
	if (sl_word_read(file->fd, &word) < 0)
		return -EIO;
	return word == file->word ? sl_ordered_check_length(file) : -ESTALE;
}

int sl_ordered_write_all(struct ordered_file *file, uint64_t start, size_t size, const void *bytes)
{
	size_t done = 0;

	while (done < size) {
		ssize_t n = pwrite(file->fd, (const char *)bytes + done, size - done, start + done);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n < 0 ? -errno : -EIO;
		done += n;
	}
	file->eof = SL_MAX(file->eof, start + size);
	return 0;
}

/* Gives the file space, so that no later write of metadata finds the disk full. */
int sl_ordered_reserve(struct ordered_file *file, uint64_t end)
{
	int done;

	if (file->eof >= end)
		return 0;
	done = TEMP_FAILURE_RETRY(fallocate(file->fd, 0, file->eof, end - file->eof));
	if (done < 0 && (errno == EOPNOTSUPP || errno == ENOSYS))
		done = ftruncate(file->fd, end);
	file->eof = done < 0 ? file->eof : end;
	return done < 0 ? -errno : 0;
}

bool sl_is_full(int error)
{
	return error == -ENOSPC || error == -EDQUOT || error == -EFBIG;
}

/* ------------------------------------------------------------------------------------- held */

/* Whether it is the header of a dataset with a single dimension, as scalars are. In version 1
 * messages begin at 16, with type and length; type 1 is a dataspace, its rank 9 bytes on. */
static bool is_column(const uint8_t *bytes, size_t size)
{
	for (size_t at = 16; bytes[0] == 1 && at + 10 <= size;
	     at += 8 + (bytes[at + 2] | bytes[at + 3] << 8))
		if (bytes[at] == 1 && !bytes[at + 1])
			return bytes[at + 9] == 1;
	return false;
}

static enum rank rank_of(const struct sl_ordered_vfd *vfd, H5FD_mem_t type, haddr_t start,
                         const uint8_t *bytes, size_t size)
{
	switch (type) {
	case H5FD_MEM_SUPER:
		return RANK_SUPERBLOCK;
	case H5FD_MEM_BTREE:
		/* After the signature: the kind of the node and its level; leaves are 0. */
		if (size > 5 && memcmp(bytes, "TREE", 4) == 0)
			return RANK_TREE + 255 - bytes[5];
		return RANK_SYMBOLS;
	case H5FD_MEM_OHDR:
		return is_column(bytes, size) && !(vfd->has_frames && vfd->has_frames(vfd, start))
		               ? RANK_COLUMN
		               : RANK_HEADER;
	case H5FD_MEM_LHEAP:
		return size == HEAP_HEAD && !memcmp(bytes, "HEAP", 4) ? RANK_HEAP_HEAD : RANK_HEAP;
	default:
		return RANK_HEAP;
	}
}

/* Writes new blocks to make room: nothing refers to them, so they may be written at any time. */
static int write_new(struct ordered_file *file)
{
	struct sl_held_block **blocks;
	size_t count = file->held.count;
	int err = sl_held_sorted(&file->held, &blocks);

	if (err)
		return err;
	for (size_t i = 0; !err && i < count && blocks[i]->rank == RANK_NEW; i++) {
		uint64_t start = blocks[i]->range.start, end = blocks[i]->range.end;

		err = sl_ordered_write_all(file, start, end - start, blocks[i]->bytes);
		if (!err)
			err = sl_held_forget(&file->held, start, end);
		file->vfd->early_bytes += err ? 0 : end - start;
	}
	free(blocks);
	return err;
}

static bool held_is_full(const struct ordered_file *file, size_t size)
{
	return file->vfd->held_limit && !file->vfd->error &&
	       file->held.bytes + size > file->vfd->held_limit;
}

static int ordered_hold(struct ordered_file *file, H5FD_mem_t type, haddr_t start, size_t size,
                        const void *bytes)
{
	bool new = start >= file->flushed_eoa &&type != H5FD_MEM_SUPER;
	enum rank rank = new ? RANK_NEW : rank_of(file->vfd, type, start, bytes, size);
	int err = held_is_full(file, size) ? sl_held_forget(&file->held, start, start + size) : 0;

	if (!err && held_is_full(file, size))
		err = write_new(file);
	/* Over the limit while the disk is full, which is waited for in the next settle. */
	if (sl_is_full(err))
		err = 0;
	else if (!err && held_is_full(file, size))
		err = -ENOBUFS;
	return err ? err : sl_held_put(&file->held, start, size, type, rank, bytes);
}

/* HDF5 writes the head of a heap together with its names until these move. */
int sl_ordered_hold(struct ordered_file *file, H5FD_mem_t type, haddr_t start, size_t size,
                    const char *bytes)
{
	bool heap = type == H5FD_MEM_LHEAP && size > HEAP_HEAD && !memcmp(bytes, "HEAP", 4);
	size_t head = heap ? HEAP_HEAD : 0;
	int err = heap ? ordered_hold(file, type, start, head, bytes) : 0;

	return err ? err : ordered_hold(file, type, start + head, size - head, bytes + head);
}

/* ------------------------------------------------------------------------------------- flush */

int sl_ordered_barrier(struct ordered_file *file)
{
	/* Raw data may be lost by it, too: not to be tried again. */
	return file->vfd->durable && fdatasync(file->fd) < 0
	               ? sl_ordered_keep_error(file, -errno, 0)
	               : 0;
}

/* In a node of an index of chunks: its level, the number of its entries, and the first of these. */
#define NODE_LEVEL   5
#define NODE_ENTRIES 6
#define NODE_FIRST   24
#define ENTRY_BYTES  64 /* at most */

static unsigned entries_of(const uint8_t *node)
{
	return node[NODE_ENTRIES] | node[NODE_ENTRIES + 1] << 8;
}

/* Writes the bytes of a block from one offset in the file to another. */
static int write_range(struct ordered_file *file, const struct sl_held_block *block, uint64_t from,
                       uint64_t to)
{
	return sl_ordered_write_all(file, from, to - from,
	                            block->bytes + (from - block->range.start));
}

/* A root on a new level, whose entries end in the second page. The first page comes with as many as
 * are in it: these reach all frames that are visible, which the root itself had in a node. */
static int write_root(struct ordered_file *file, struct sl_held_block *block, uint64_t cut)
{
	unsigned count = entries_of(block->bytes);
	int err;

	/* The key behind the last entry is in the page, too. */
	block->bytes[NODE_ENTRIES] = (PAGE - NODE_FIRST) / ENTRY_BYTES - 1;
	block->bytes[NODE_ENTRIES + 1] = 0;
	err = write_range(file, block, block->range.start, cut);
	block->bytes[NODE_ENTRIES] = count & 0xff;
	block->bytes[NODE_ENTRIES + 1] = count >> 8;
	return err ? err : sl_ordered_barrier(file);
}

/* A node of an index of chunks is written as far as it has entries. Those that are visible come
 * before new ones and stay where they are, or the node loses entries at its end. So a node across
 * two pages that grows is written from its end: it has either all entries or the old entries. One
 * that loses entries is written from its begin: behind the entries that it keeps HDF5 has zeros,
 * and a count in the first page that is still the old one would reach these. */
static int write_block(struct ordered_file *file, struct sl_held_block *block)
{
	uint64_t start = block->range.start, end = block->range.end;
	uint64_t cut = (start / PAGE + 1) * PAGE;
	uint8_t head[NODE_FIRST];
	bool loses = false;
	int err = 0;

	/* Kind 1: of chunks. */
	if (block->rank < RANK_TREE || memcmp(block->bytes, "TREE\1", 5))
		return write_range(file, block, start, end);
	end = SL_MIN(end, start + NODE_FIRST + (entries_of(block->bytes) + 1) * ENTRY_BYTES);
	if (cut >= end || pread(file->fd, head, sizeof(head), start) != sizeof(head))
		return write_range(file, block, start, end);
	if (head[NODE_LEVEL] != block->bytes[NODE_LEVEL] && start % PAGE == 0)
		err = write_root(file, block, cut);
	else
		loses = entries_of(head) > entries_of(block->bytes);
	if (!err)
		err = write_range(file, block, loses ? start : cut, loses ? cut : end);
	if (!err)
		err = sl_ordered_barrier(file);
	return err ? err : write_range(file, block, loses ? cut : start, loses ? end : cut);
}

static int step_word(struct ordered_file *file, unsigned step)
{
	int err = sl_word_write(file->fd, file->word + step);

	file->word += err ? 0 : step;
	file->left_word = 0;
	return err;
}

/* Makes the word odd or even. While it is odd readers wait, or repeat their reads. */
int sl_ordered_turn_word(struct ordered_file *file, bool odd)
{
	if (!file->word || file->word % 2 == odd)
		return 0;
	file->eof = SL_MAX(file->eof, SL_WORD_END);
	return step_word(file, 1);
}

/* HDF5 links the free bytes among a group's names through these bytes themselves, and refuses a
 * group where a new name lies in bytes that its head calls free. So the heads say first that
 * nothing is free, then the names are written, and then the heads, which may send readers to
 * another block of names. */
static int seal_heaps(struct ordered_file *file, struct sl_held_block **blocks)
{
	static const uint8_t none[8] = {1};
	char signature[4];
	int err = 0;

	for (size_t i = 0; !err && i < file->held.count; i++) {
		uint64_t start = blocks[i]->range.start;

		if (blocks[i]->rank == RANK_HEAP_HEAD &&
		    pread(file->fd, signature, 4, start) == 4 && !memcmp(signature, "HEAP", 4))
			err = sl_ordered_write_all(file, start + HEAP_FREE, sizeof(none), none);
	}
	return err ? err : sl_ordered_barrier(file);
}

static int write_held(struct ordered_file *file, struct sl_held_block **blocks, uint64_t *offset)
{
	int err = ordered_check_file(file);
	unsigned sealed = 0;

	/* This is tried again; readers may have been there in between. */
	if (!err && file->word % 2 && !sl_word_lock(file->fd, F_WRLCK))
		err = step_word(file, 2);
	if (!err)
		err = sl_ordered_reserve(file, file->flush_eoa);
	*offset = file->eof;
	for (size_t i = 0; !err && i < file->held.count; i++) {
		struct sl_interval *range = &blocks[i]->range;

		*offset = range->start;
		/* The first rank follows raw data. */
		if (blocks[i]->rank != RANK_NEW &&
		    (i == 0 || blocks[i]->rank != blocks[i - 1]->rank))
			err = sl_ordered_barrier(file);
		if (!err && blocks[i]->rank != RANK_NEW)
			err = sl_ordered_turn_word(file, true);
		if (!err && blocks[i]->rank == RANK_HEAP && !sealed++)
			err = seal_heaps(file, blocks);
		if (!err)
			err = write_block(file, blocks[i]);
	}
	if (!err)
		err = sl_ordered_barrier(file);
	if (!err)
		err = sl_ordered_turn_word(file, false);
	/* Nothing is written any more: to readers, without the lock the file stands still. */
	if (err)
		sl_word_lock(file->fd, F_UNLCK);
	return err;
}

/* Whether HDF5 has written everything, also the end of its allocations in the superblock. */
bool sl_ordered_is_complete(const struct ordered_file *file)
{
	return file->eoa == file->flushed_eoa || file->superblock;
}

int sl_ordered_flush_held(struct ordered_file *file, uint64_t *offset)
{
	struct sl_held_block **blocks;
	int err = sl_held_sorted(&file->held, &blocks);

	if (!err) {
		err = write_held(file, blocks, offset);
		free(blocks);
	}
	if (err)
		return err;
	file->vfd->metadata_bytes += file->held.bytes;
	file->vfd->flushes++;
	file->vfd->held = 0;
	file->flushed_eoa = file->flush_eoa;
	file->superblock = false;
	file->written = true;
	return 0;
}
