/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A writer of frames that several processes share: the ranks of a simulation, which store the
 * blocks of an array in one dataset of one HDF5 file. <sluice/mpi.h> opens such a writer over a
 * communicator of MPI, and this header has the calls that need no MPI, and the interface of a
 * transport, for which MPI is an example.
 *
 * Each rank opens the writer, adds the same series in the same order with its block of the array,
 * and then acquires, fills and submits frames of its block with the calls of <sluice/writer.h>:
 * sluice_series_acquire, _submit, _push, _submit_on, _discard. Frame k of the dataset consists of
 * the k-th frames of all ranks. Each rank compresses on its own cores and writes its own bytes;
 * rank 0 has the HDF5 file, and only messages of some bytes for each chunk go there. No call of the
 * list above waits for another rank, unless this rank is SLUICE_RANKS_AHEAD frames ahead of the
 * slowest.
 *
 * Chunks. A chunk that lies in the blocks of several ranks belongs to the rank with the largest
 * part of it (of equal parts, to the lowest rank). The other parts travel to that rank, so that
 * blocks of any size are allowed, and blocks that begin and end with a chunk cost least. If `chunk`
 * is not set in the options, chunks are chosen that divide all blocks where that is possible.
 *
 * Files of nodes. With SLUICE_WRITER_NODE_FILES the chunks of a rank are in a file of its node, for
 * file systems on which many writers of one file are slow. Beside "run.h5" lie "run.h5.node-0",
 * "run.h5.node-1" and so on, in the order of the lowest ranks of the nodes. "run.h5" has all else,
 * and for each series a virtual dataset, which HDF5 from 1.10 on, h5py and h5dump read under the
 * same name, but for the driver of parallel HDF5. Files that are moved together keep their names.
 * Where a file is missing or has fewer frames, readers get NaN, and 0 for integers; the attribute
 * "sluice_frames" of the virtual dataset counts the frames that are in all files. APPEND needs as
 * many nodes as before, and the same blocks of each node together. REPLACE removes "run.h5" before
 * the files of nodes get their names, so that it never shows frames of new files.
 *
 * Differences from a writer of a single process:
 *  - A series is always stored in chunks, also with the codec "none", and a chunk has a single
 *    frame: chunk_frames above 1 is refused.
 *  - memory_bytes is the budget of a node: each rank has an equal part of it, and metadata that
 *    waits for a flush is in that of rank 0. Likewise `threads` is of a rank; its default is the
 *    number of cores that the process may use, divided by the ranks of the node where the processes
 *    are not bound to different cores.
 *  - A new file has a temporary name in its folder (".name.0123456789abcdef.sluice") until its
 *    first flush. No checkpoint comes before all ranks have opened the writer and a frame is
 *    complete. This name stays behind if the job is killed before that; the next writer that makes
 *    a new file of this name removes it, if it has not changed for a minute.
 *  - Scalars of a frame are those of the lowest rank that has a block.
 *  - SLUICE_SERIES_DROP is refused: ranks would drop different frames.
 *  - sluice_writer_attributes, sluice_series_attributes and sluice_writer_add_coordinate are calls
 *    of rank 0; on other ranks they return -EINVAL.
 *  - sluice_series_keep_memory, sluice_series_frame_bytes and the counts of sluice_series_stats
 *    concern the block of this rank; `visible` counts frames of the dataset that a flush has made
 *    visible.
 *
 * Waits for other ranks:
 *   sluice_writer_open_ranks       until all ranks have called it, or open_ms of the options
 *   sluice_series_add_block        until all ranks have called it, or its time-out
 *   sluice_series_acquire, push, submit_on   for a free frame, if this rank is too far ahead; their
 *                                            time-outs
 *   sluice_writer_flush            until all ranks have submitted the frames that this rank has
 *                                  submitted, and these are flushed, or its time-out. There is no
 *                                  need that other ranks call it
 *   sluice_writer_close            until all ranks have called it or sluice_writer_discard, or its
 *                                  time-out
 *   sluice_writer_discard          on rank 0 the same, without a time-out; on other ranks it does
 *                                  not wait
 * The sentence of a time-out names the ranks that are waited for: those that have not made the
 * call, or whose frames are missing (the latter if they are three at most).
 *
 * Errors. The first error of any rank is the result of the next calls of all ranks; the sentence
 * names the rank, unless it is rank 0 that finds it for all, as it finds a full disk. Frames that
 * are flushed stay. If ranks close the writer after different numbers of frames, all frames that
 * are complete are in the file, and close returns -ENODATA.
 *
 * Death. When a rank dies, the launcher of the job ends the others. At every moment the file opens
 * with plain HDF5 and has all frames up to the last flush or checkpoint: a chunk gets into the
 * index of the file when all bytes of its frame were reported as written. A rank on another node
 * than rank 0 calls fdatasync(2) before it reports, because the bytes of another machine are not in
 * the reach of rank 0, which syncs those of its own node with SLUICE_WRITER_DURABLE. No page of
 * 4096 bytes of a file is written on two nodes. Files of nodes are flushed before the first file:
 * after a death in a flush the virtual dataset may have frames behind those that "sluice_frames"
 * counts, with parts that are missing.
 */
#ifndef SLUICE_RANKS_H
#define SLUICE_RANKS_H

#include <sluice/writer.h>

#ifdef __cplusplus
extern "C" {
#endif

/* How many frames of a series a rank may be ahead of the slowest rank before its frames wait. */
#define SLUICE_RANKS_AHEAD 8

/* The part of the array that a rank has, in elements. If a count is 0, the rank has no part. Of a
 * series of rank 0 count[0] is 1 in the rank that has the element, and 0 in all others. */
struct sluice_block {
	uint64_t start[SLUICE_FRAME_RANK_MOST];
	uint64_t count[SLUICE_FRAME_RANK_MOST];
};

/*
 * Adds a dataset of frames with o->shape, the shape of the whole array, of which this rank has a
 * block. Called by all ranks with the same dataset and options; attributes are those of rank 0. The
 * blocks of all ranks together are the array: no element is missing or in two blocks. A frame of
 * this series is dense: count[0] * count[1] * ... elements in C order. A rank without a block gets
 * a series that is NULL, and submits nothing.
 *
 * Returns 0, the errors of sluice_series_add(), which then are the result on all ranks, or
 *   -EINVAL      the blocks overlap, leave elements out or exceed the shape, or the ranks gave
 *                different options; also an option that a shared writer refuses. The sentence names
 *                the ranks. Or the file of a node lacks frames that the first file counts
 *   -EEXIST      also: the dataset is in one file and not in files of nodes, or the other way
 *                round, or other parts of it are in the files of nodes
 *   -ETIMEDOUT   not all ranks have called it in time, or up to a second later. This is an error of
 *                the writer, which stays
 */
SLUICE_API int sluice_series_add_block(sluice_writer *w, const char *dataset,
                                       const struct sluice_series_options *o,
                                       const struct sluice_block *block, int timeout_ms,
                                       sluice_series **out);

/*
 * Handles messages of other ranks, without waiting. Needed if the transport has no thread of its
 * own (with MPI: below MPI_THREAD_MULTIPLE): then a writer makes progress in this call and in the
 * calls of <sluice/writer.h> and above, and a rank that computes for long without any of these
 * keeps others waiting. With a thread it only returns the error.
 *
 * Returns 0, or the first error of any rank.
 */
SLUICE_API int sluice_writer_progress(sluice_writer *w);

/* ---------------------------------------------------------------------------------- transport */

/*
 * Messages between ranks. The functions are called by one thread at a time: by a thread of the
 * writer (`thread`), or by the program's threads in calls of the writer. Messages from one rank to
 * another arrive in the order in which they were sent. Ranks send messages to themselves, too. No
 * function waits.
 */
struct sluice_transport {
	size_t size;  /* sizeof(struct sluice_transport) */
	void *handle; /* the first argument of the functions */
	int rank, ranks;
	int node_ranks; /* ranks on the node of this rank, with itself */
	int node;       /* the lowest rank on that node, which stands for the node */
	int thread;     /* any thread may call the functions, so the writer has a thread for them */
	/* Begins to send; the bytes must stay until it is sent. Returns 0 or a negative errno. */
	int (*send)(void *handle, int to, const void *bytes, size_t n, void **request);
	/* Returns 1 if a message is sent: the request is gone. 0: not yet. Or a negative errno. */
	int (*sent)(void *handle, void *request);
	/* Returns 1 and a message that has arrived, in memory that the caller frees. 0: there is
	 * none. Or a negative errno. A message of no bytes says that its rank sends and receives no
	 * more, though its writer is open. */
	int (*receive)(void *handle, int *from, void **bytes, size_t *n);
	/* The end. clean: no message is on its way; otherwise the ranks end after an error, and
	 * what others may still send must not reach anybody else. NULL is allowed. */
	void (*close)(void *handle, int clean);
	/* No transport: sluice_writer_open_ranks() returns this error and sentence. 0: there is. */
	int error;
	const char *message;
};

/*
 * Opens a file for frames of all ranks: sluice_writer_open() for a writer that is shared. Called by
 * all ranks, with the same options but for `threads` and `open_ms`; attributes are those of rank 0.
 * The file system of the path is one that all ranks see. The transport is copied; its close() is
 * called when the writer ends, and before an error is returned.
 *
 * Returns 0, or the first error of sluice_writer_open() of any rank, or
 *   -EINVAL      also: ranks gave different paths or options, or the transport lacks a function
 *   -EEXIST      also: a file of a node is there, and no flag says how to treat it
 *   -ETIMEDOUT   not all ranks have called it in time. A rank that calls it later gets this error,
 *                too
 */
SLUICE_API int sluice_writer_open_ranks(sluice_context *ctx, const struct sluice_transport *t,
                                        const char *path, const struct sluice_writer_options *o,
                                        sluice_writer **out);

#ifdef __cplusplus
}
#endif
#endif
