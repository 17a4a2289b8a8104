/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A virtual file driver for HDF5. Its file is valid after each single write and shows at least
 * the state of the last H5Fflush: flushed frames survive the death of the process at any time,
 * and plain HDF5 opens the file. See write_order.c for the order.
 *
 * This holds for the default format (v1.8: no libver bounds) and for the operations of a writer
 * of frames: datasets grow, and chunks are written. The caller
 *  - stores with H5Fflush and H5Fclose only. A flush of a single object leaves the rest behind:
 *    if this would make the file invalid, nothing is written until the next H5Fflush;
 *  - never rewrites a chunk with another size unless vfd->chunk says where it was, never shrinks
 *    or deletes: HDF5 reuses freed space at once, where the last flush may still have data;
 *  - gives a new file its name (rename) after its first H5Fflush;
 *  - adds to a file that has its name a single object at a time, each with its H5Fflush;
 *  - uses files with offsets and lengths of 8 bytes, HDF5's default;
 *  - sets vfd->pages while it writes texts of variable length: HDF5 keeps them in blocks of
 *    4096 bytes, which it writes in place;
 *  - sets no metadata cache of its own: evicted blocks are held here.
 * Extents are written in the order of the datasets, those with a single dimension first.
 */
#ifndef SL_ORDERED_VFD_H
#define SL_ORDERED_VFD_H

#include <hdf5.h>

#include "core/core.h"

/* A call of HDF5 that writes a chunk: arguments of the driver, which HDF5 has no room for. The
 * memory does not change until sl_ordered_vfd_settle(), which writes it. */
struct sl_vfd_chunk {
	struct {
		const void *bytes;
		size_t n;
		size_t from, to; /* of these bytes, those to be written; both 0: all */
		/* The bytes are in the file already, in this space of sl_ordered_vfd_grant():
		 * HDF5 gets it where it asks for space, and nothing is written. 0: they are not. */
		uint64_t granted;
		/* A chunk that is written again with another size: its old space. HDF5 gives it
		 * to the driver, which uses it again after the next flush. old_bytes 0: none. */
		uint64_t old_start, old_bytes;
		/* The last of its series: it may take part of the old space of a larger chunk. */
		bool last;
	} in;
	struct {
		uint64_t start; /* where in the file the bytes belong */
		bool old_freed;
	} out;
};

struct sl_ordered_vfd {
	/* Set by the caller. */
	bool durable;        /* H5Fflush also brings it to the disk, in the same order */
	uint64_t held_limit; /* bytes of metadata held back; 0: no limit. See sl_ordered_vfd_set */
	int fd;     /* above 0: the file is open already, and its name is only for people */
	bool pages; /* at any time: raw blocks that are allocated now begin with a page */
	/* At any time: H5Fflush writes nothing, and H5Fclose drops held blocks. HDF5 itself calls
	 * both at the end of the program. */
	bool flush_blocked;
	bool deferred; /* at any time: the writes of H5Fflush are left to sl_ordered_vfd_settle() */
	/* For the time of a call that writes a chunk; NULL: raw data is written at once. */
	struct sl_vfd_chunk *chunk;
	/* Whether the header at this offset is of frames: it follows those of scalars, which have a
	 * single dimension, too. NULL: no frames have that. */
	bool (*has_frames)(const struct sl_ordered_vfd *vfd, uint64_t offset);
	/* At any time: bytes for a flush at the end, beside nodes for the last chunk. */
	uint64_t ahead;

	/* The driver's. HDF5's calls to the driver hold the mutex inside HDF5's lock, settle
	 * without it: only a thread that takes HDF5 down waits for settle. */
	struct sl_mutex mutex;
	struct ordered_file *file; /* NULL: closed */

	/* Set by the driver, on the thread that is in HDF5, holds its lock, or is in settle. */
	int error;             /* the first error, negative errno; of open, write, flush or close */
	uint64_t error_offset; /* where in the file */
	uint64_t held;         /* bytes held back now */
	uint64_t held_most;
	uint64_t flushes; /* that wrote all there was */
	uint64_t raw_bytes, metadata_bytes;
	uint64_t early_bytes; /* metadata that was written before its flush, for the limit */
};

/*
 * Makes files opened with fapl use this driver. vfd is the caller's, a separate struct for each
 * open file, and must live until the file is closed; its results stay valid after that. vfd->fd
 * stays the caller's; HDF5 closes duplicates, which share its lock.
 *
 * At the limit, blocks without a reference in the file are written before their flush. Only blocks
 * in the file already, a few for each dataset, must stay in memory: if these exceed the limit, the
 * file fails with -ENOBUFS.
 *
 * The first error is returned to HDF5 and stays in vfd->error. From then on the file is left
 * alone: raw data is dropped, metadata stays in memory, where HDF5 finds it, H5Fflush fails,
 * and all else succeeds, because HDF5 does not survive errors while it closes things. So the
 * caller checks vfd->error, also after H5Fclose: an error of the last flush is reported there
 * only. A caller that sets vfd->error drops held blocks in the same way; so does a child of fork(),
 * where HDF5 would write the state at the time of the fork.
 *
 * -ESTALE: the file is shorter than the data written to it, or its word (word.h) differs from the
 * last flush: another program has truncated or overwritten it. Found at the next write of raw data
 * or flush.
 *
 * Returns 0, -EINVAL if fapl is not a file access list, or -ENOMEM.
 */
int sl_ordered_vfd_set(hid_t fapl, struct sl_ordered_vfd *vfd);

/* Writes deferred data; returns vfd->error. Called without HDF5's lock, so that other threads can
 * use HDF5 while storage takes its time, and before the thread's next call of HDF5 for this file.
 * Children may be forked meanwhile. again: the error of a full disk is returned and the data stays
 * for another call; otherwise it is final as other errors are. */
int sl_ordered_vfd_settle(struct sl_ordered_vfd *vfd, bool again);

/* Before a call of HDF5 with so many bytes of raw data: takes room for them and the flush behind
 * them. -ENOSPC or -EDQUOT: there is none, and nothing has changed. 0 where the file system cannot
 * say. Called as settle is. */
int sl_ordered_vfd_room(struct sl_ordered_vfd *vfd, uint64_t bytes);

/* Gives space at the end of the file to others, which write it; page: it begins with a page.
 * -ENOSPC or -EDQUOT as above. Called as settle is. */
int sl_ordered_vfd_grant(struct sl_ordered_vfd *vfd, uint64_t bytes, bool page, uint64_t *start);

/* Writes bytes unknown to HDF5 in their place, while nothing is to be flushed. */
int sl_ordered_vfd_change(struct sl_ordered_vfd *vfd, uint64_t start, const void *bytes, size_t n);

/* Whether spare space before an offset has room for a chunk. */
bool sl_ordered_vfd_fits(struct sl_ordered_vfd *vfd, uint64_t size, uint64_t before);
/* A chunk without a reference in the file: later chunks may use its space. */
void sl_ordered_vfd_give_up(struct sl_ordered_vfd *vfd, uint64_t start, uint64_t size);

/* Reads for HDF5, with zeros behind the end of the file. 0, or -errno with a message of HDF5. */
int sl_vfd_read(int fd, haddr_t start, size_t size, void *buffer);

/* Returns whether an error means a full disk, an exceeded quota, or the longest file allowed. */
bool sl_is_full(int error);

#endif
