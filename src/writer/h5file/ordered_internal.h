/* SPDX-License-Identifier: Apache-2.0 */
/* The ordered driver, inside: ordered_vfd.c, space.c, write_order.c and held.c. Threads: the
 * driver's; vfd->mutex guards all of it. */
#ifndef SL_ORDERED_INTERNAL_H
#define SL_ORDERED_INTERNAL_H

#include "h5file/ordered_vfd.h"

#define PAGE 4096
/* The largest off_t. */
#define LAST_ADDRESS ((haddr_t)INT64_MAX)

/* ---------------------------------------------------------------- blocks held back (held.c) */

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

/* Holds bytes instead of held bytes in this range. Blocks of another type stay outside of it. */
int sl_held_put(struct sl_held_blocks *held, uint64_t start, size_t size, int type, int rank,
                const void *bytes);
/* Forgets a range. */
int sl_held_forget(struct sl_held_blocks *held, uint64_t start, uint64_t end);
/* Copies held bytes of a range to their place in `bytes`, and leaves the rest of it unchanged. */
void sl_held_get(const struct sl_held_blocks *held, uint64_t start, size_t size, void *bytes);
/* All blocks, by rank, then by start; the caller frees the array, NULL if there are none. */
int sl_held_sorted(const struct sl_held_blocks *held, struct sl_held_block ***out);
void sl_held_clear(struct sl_held_blocks *held);

/* -------------------------------------------------------------------------------------- file */

/* Old space of a chunk with a new size. The file refers to it until the next flush. */
struct spare_chunk {
	struct spare_chunk *next;
	haddr_t start;
	hsize_t size;
	uint64_t flushes; /* that there had been */
};

struct ordered_file {
	H5FD_t pub; /* HDF5's; first */
	int fd;
	pid_t process; /* that has opened it */
	bool ours;     /* this is that process */
	bool ignores_missing_locks;
	dev_t device;
	ino_t inode;
	haddr_t eoa, flush_eoa; /* end of HDF5's allocations, now and at the flush */
	uint64_t word;          /* see word.h; 0: the file has none */
	uint64_t left_word;     /* of a dead writer, until the first change */
	haddr_t granted;     /* end of what others were given; HDF5 knows at its next allocation */
	haddr_t eof;         /* end of the file itself */
	haddr_t taken;       /* end of the space that is taken for it */
	bool changed;        /* flushed_eoa is known: the superblock has been read */
	haddr_t flushed_eoa; /* nothing in the file refers beyond it */
	struct sl_held_blocks held;
	bool superblock; /* is among it */
	bool leaving;    /* settle writes it */
	bool written;    /* it is, and is forgotten at the next call */
	/* Raw data in the memory of a chunk, which settle writes, too; NULL: there is none. */
	const void *noted;
	haddr_t noted_start;
	size_t noted_size;
	struct spare_chunk *spare;
	struct sl_intervals pieces; /* of frames that were given up */
	struct sl_ordered_vfd *vfd; /* the caller's */
};

/* Takes space for a chunk that the file does not refer to, or returns 0. last: no later chunk needs
 * the rest of a larger space. */
haddr_t sl_ordered_take(struct ordered_file *file, hsize_t size, bool last);
/* Keeps the old space of a chunk. */
void sl_ordered_moved(struct ordered_file *file, haddr_t start, hsize_t size);
/* Returns where the spare space at the end begins, or the end. */
haddr_t sl_ordered_used_end(const struct ordered_file *file);
void sl_ordered_forget_space(struct ordered_file *file);
/* Keeps the first error; returns this one. */
int sl_ordered_keep_error(struct ordered_file *file, int error, uint64_t offset);
/* Returns 0, -ESTALE if another program has made the file shorter, or another negative errno. */
int sl_ordered_check_length(const struct ordered_file *file);
/* Writes all bytes; gives the file space up to an offset. Return 0 or a negative errno. */
int sl_ordered_write_all(struct ordered_file *file, uint64_t start, size_t size, const void *bytes);
int sl_ordered_reserve(struct ordered_file *file, uint64_t end);
/* Holds a block of metadata back. */
int sl_ordered_hold(struct ordered_file *file, H5FD_mem_t type, haddr_t start, size_t size,
                    const char *bytes);
/* Brings earlier writes to the disk if the file is durable. */
int sl_ordered_barrier(struct ordered_file *file);
/* Makes the word of the file odd or even. */
int sl_ordered_turn_word(struct ordered_file *file, bool odd);
/* Returns whether HDF5 has written everything. */
bool sl_ordered_is_complete(const struct ordered_file *file);
/* Writes held blocks in their order. offset: of an error. */
int sl_ordered_flush_held(struct ordered_file *file, uint64_t *offset);

#endif
