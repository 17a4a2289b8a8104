/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A virtual file driver for HDF5 whose file is valid after each single write, and shows what it
 * showed at the last H5Fflush or more of it: frames that were flushed survive the death of the
 * process, whenever it comes, and plain HDF5 opens the file. See ordered_vfd.c for the order.
 *
 * It holds this for the default format (v1.8: no libver bounds) and for what a writer of frames
 * does: datasets grow, and chunks are written. Whoever uses it
 *  - stores with H5Fflush and H5Fclose only (a flush of one object leaves the rest behind: when it
 *    would leave the file invalid nothing is written, and the next H5Fflush writes it);
 *  - never writes a chunk again with another size, unless `moved` has its place, shrinks or deletes: HDF5
 *    gives freed space to whoever asks next, and what the file showed at its last flush may still lie there;
 *  - puts a new file in its place (rename) after its first H5Fflush;
 *  - adds to a file that is in its place one object at a time, each with its H5Fflush;
 *  - uses files whose offsets and lengths have 8 bytes, as HDF5 makes them unless told otherwise;
 *  - sets vfd->pages while it writes texts of variable length: HDF5 has them in blocks of 4096 bytes,
 *    which it writes in their place;
 *  - sets no metadata cache of its own: what the cache evicts is held here.
 * The extents of datasets are written in the order in which the datasets were made.
 */
#ifndef SL_ORDERED_VFD_H
#define SL_ORDERED_VFD_H

#include <hdf5.h>

#include "core/core.h"

struct sl_ordered_vfd {
	/* What the caller sets. */
	bool durable;        /* H5Fflush also brings it to the disk, in the same order */
	uint64_t held_limit; /* bytes of metadata held back; 0: no limit. See sl_ordered_vfd_set */
	int fd;     /* above 0: the file is open already, and its name is only for people */
	bool pages; /* at any time: raw blocks that are allocated now begin with a page */
	/* At any time: H5Fflush writes nothing, and H5Fclose drops what is held, as HDF5 does both by
	 * itself when it is taken down at the end of the program. */
	bool sealed;
	/* At any time: raw data that HDF5 writes from this memory, and what H5Fflush would write, is left to
	 * sl_ordered_vfd_settle(), until which the memory stays as it is. */
	const void *lent;
	size_t lent_bytes;
	size_t lent_from, lent_to; /* of these bytes, those that are to be written; both 0: all */
	uint64_t lent_place;       /* told: where in the file the first of them belongs */
	bool apart;                /* H5Fflush does so */
	/* Before a call that writes a chunk again with another size: the place and the bytes that it has. HDF5 gives
	 * them to the driver then (moved_bytes is 0 behind the call), which uses them again after the next flush. */
	uint64_t moved, moved_bytes;
	/* At any time: bytes that a flush may take at the end of the file, beside nodes for the last chunk. */
	uint64_t ahead;

	/* The driver's. The mutex is held by every call of HDF5 to the driver, inside of HDF5's lock, and by
	 * settle, without it: the only other thread is the one that takes HDF5 down, which waits for settle. */
	pthread_mutex_t mutex;
	struct ordered_file *file; /* NULL: closed */

	/* What the driver tells. On the thread that is in HDF5, or holds its lock, or in settle. */
	int error;             /* the first error, negative errno; of open, write, flush or close */
	uint64_t error_offset; /* where in the file */
	uint64_t held;         /* bytes held back now */
	uint64_t held_most;
	uint64_t flushes; /* that wrote all there was */
	uint64_t raw_bytes, metadata_bytes;
	uint64_t early_bytes; /* metadata that was written before its flush, for the limit */
};

/*
 * Makes files opened with fapl use this driver. vfd is the caller's, one for each open file, and
 * must live until the file is closed; what it tells stays true after that.
 *
 * At the limit, blocks that nothing in the file refers to yet are written before their flush.
 * Only blocks that lie in the file already, a few for each dataset, must stay in memory: when these
 * alone are over the limit, the file fails with -ENOBUFS.
 *
 * The first error is returned to HDF5 and stays in vfd->error. From then on the file is left
 * alone: raw data goes nowhere, metadata stays in memory, where HDF5 finds it, H5Fflush fails, and
 * all else succeeds, so that HDF5, which does not get over errors while it closes things, can be
 * left in order. So whoever writes looks at vfd->error, and after H5Fclose, too: an error of the
 * last flush is told there only. Whoever sets vfd->error drops what is held in the same way.
 *
 * -ESTALE: the file is shorter than what was written to it, or its word (word.h) is not what the last flush
 * left: another program has truncated or overwritten it. Seen at the next write of raw data or flush.
 *
 * In a child of fork() the file is left alone in the same way: HDF5 would write there what it was when
 * the child was made.
 *
 * vfd->fd stays the caller's; HDF5 closes duplicates, which share their lock with it.
 *
 * 0, -EINVAL for a fapl that is none, or -ENOMEM.
 */
int sl_ordered_vfd_set(hid_t fapl, struct sl_ordered_vfd *vfd);

/*
 * Writes what the calls of HDF5 since the last time have left to it; returns vfd->error. Called without
 * HDF5's lock, so that the program's other threads are in HDF5 while storage takes its time, and before the
 * next call of HDF5 for this file by the same thread. Children may be forked meanwhile.
 * again: where the disk is full, that error is returned, and what is left stays so for another call; without it
 * that is an error as others are.
 */
int sl_ordered_vfd_settle(struct sl_ordered_vfd *vfd, bool again);

/*
 * Before a call of HDF5 that writes so many bytes of raw data: takes the space for them and for the flush behind
 * them. -ENOSPC or -EDQUOT: there is none, and nothing has changed. 0 where the file system cannot say. Called as
 * settle is.
 */
int sl_ordered_vfd_room(struct sl_ordered_vfd *vfd, uint64_t bytes);

/* Writes bytes that HDF5 does not have in memory, in their place, while nothing is to be flushed. */
int sl_ordered_vfd_change(struct sl_ordered_vfd *vfd, uint64_t place, const void *bytes, size_t n);

/* Whether an error says that the disk is full, or what the user may have of it. */
bool sl_is_full(int error);

#endif
