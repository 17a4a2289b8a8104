/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A writer without an HDF5 file in this process: frames are blocks of an array, other processes
 * have the rest, and a sink gets the chunks. The file thread calls it instead of HDF5. The room
 * `ranks` has a sink.
 *
 * A block begins and ends inside chunks with elements of other processes, too. Each chunk has an
 * owner: the others send their fragments, and the owner compresses the chunk when all have come.
 * Threads: see the functions.
 */
#ifndef SL_FRAMES_H
#define SL_FRAMES_H

#include <sluice/ranks.h>

#include "core/core.h"
#include "h5file/h5file.h"

/* Processes for a sentence: the first are named. */
struct sl_rank_names {
	int count, first[4];
};
/* Adds a process, once. */
void sl_rank_names_add(struct sl_rank_names *names, int rank);
/* Writes "rank 3", or "ranks 1, 2, 3, 5 and 4 others". */
void sl_rank_names_text(const struct sl_rank_names *names, char *out, size_t size);

/* A chunk with elements of the block. */
struct sl_cell {
	size_t number;   /* in the block's grid */
	uint64_t chunk;  /* in the dataset's grid, in C order */
	int to;          /* the owner; -1: this process */
	size_t start;    /* of the fragment to the owner in outgoing memory, */
	size_t bytes;    /* and its length */
	size_t fragment; /* the first foreign fragment; others follow */
};

/* Another process's fragment of an own chunk, for each frame on the way. */
struct sl_foreign_fragment {
	size_t cell; /* index */
	int from;
	size_t bytes; /* with head bytes before the elements */
	uint64_t at[SLUICE_FRAME_RANK_MOST],
		extent[SLUICE_FRAME_RANK_MOST]; /* in the chunk, in elements */
	/* By frame; guarded by the writer's mutex, but for compressors when all are there. */
	void *slots[SLUICE_RANKS_AHEAD];
};

/* A process's share of a series. Cells: first those sent, then those without foreign fragments. */
struct sl_share {
	void *user; /* of the sink */
	struct sluice_block block;
	size_t head;  /* bytes before each fragment, for the sink */
	size_t files; /* in this process, with metadata held back for it */
	struct sl_cell *cells;
	size_t count, sent, alone; /* alone: index of the first with foreign fragments */
	struct sl_foreign_fragment *fragments; /* by their cells */
	size_t fragment_count;
	size_t fragment_bytes; /* of all fragments for a frame */
	char *outgoing;        /* fragments to be sent, for SLUICE_RANKS_AHEAD frames */
	size_t stride;         /* from frame to frame; 0: there are none */
	struct {
		uint64_t limit; /* frames from this number on wait */
		uint64_t last;  /* frames from this number on never come from process `leaver` */
		int leaver;
		struct sl_rank_names behind; /* others wait for them */
		size_t arrived[SLUICE_RANKS_AHEAD], sending[SLUICE_RANKS_AHEAD];
	} locked; /* guarded by the writer's mutex, which clang cannot see from here */
};
void sl_share_free(struct sl_share *share);

struct sl_sink {
	const struct sl_sink_ops *ops;
	bool pumped; /* it makes progress only when it is pumped */
};

/* As sl_cond_wait(), with the mutex, for the program's threads: pumps a sink (or NULL) that needs
 * it meanwhile, without the mutex. Returns -ETIMEDOUT at the deadline; 0 may come early. */
int sl_sink_wait(struct sl_sink *sink, pthread_cond_t *condition, struct sl_mutex *mutex,
                 int64_t deadline) SL_REQUIRES(mutex);

struct sl_sink_chunk {
	struct sl_share *share;
	uint64_t frame;
	size_t number; /* of the cell */
	uint32_t mask;
	const void *bytes;
	size_t length;
	uint64_t waiting; /* bytes of the next chunks, as far as known */
};

/* The file thread calls the first four, without the writer's locks; they may wait. They return 0,
 * or a negative errno with a sentence, and the writer fails. */
struct sl_sink_ops {
	/* Stores an own chunk, or sends a fragment: bytes are the sink's until sl_series_sent(). */
	int (*store)(struct sl_sink *sink, const struct sl_sink_chunk *chunk);
	/* All chunks of a frame were stored or sent. Called in the order of a series' frames. */
	int (*frame)(struct sl_sink *sink, struct sl_share *share, uint64_t frame,
	             const double *scalars, double max_error);
	/* Asks for a flush with all frames so far; sl_writer_flushed() answers. Does not wait. */
	int (*flush)(struct sl_sink *sink);
	/* The last call. keep: with all frames. */
	int (*close)(struct sl_sink *sink, bool keep);
	/* The writer has failed, or is discarded (0): store() and close() do not wait for long any
	 * more. Called with the writer's mutex by any thread. */
	void (*ended)(struct sl_sink *sink, int error, const char *sentence);
	/* The processes without a close() yet. */
	void (*unclosed)(struct sl_sink *sink, struct sl_rank_names *names);
	/* Makes progress on the caller's thread. */
	void (*pump)(struct sl_sink *sink);
	/* Runs a function with the HDF5 file, if this process has it. */
	int (*with_file)(struct sl_sink *sink, int (*run)(struct sl_h5_file *file, void *argument),
	                 void *argument);
	/* After everything else. */
	void (*free)(struct sl_sink *sink);
};

/* -------------------------------------------------------------------------------------- writer */

/* As sluice_writer_open(), with a sink, the writer's on success; NULL: with a file. memory_bytes
 * and threads are this process's; the flags are for the file, and checked. */
int sl_writer_open_sink(struct sluice_context *ctx, const char *path,
                        const struct sluice_writer_options *o, struct sl_sink *sink,
                        struct sluice_writer **out);
/* Returns NULL if the writer has a file. */
struct sl_sink *sl_writer_sink(const struct sluice_writer *w);
const char *sl_writer_path(const struct sluice_writer *w);
/* The bytes among memory_bytes for metadata held back until a flush. */
uint64_t sl_writer_held_limit(uint64_t memory_bytes);
/* Returns 0 or the writer's first error with its sentence. */
int sl_writer_check(struct sluice_writer *w);
/* The sentence is complete. */
void sl_writer_fail(struct sluice_writer *w, int error, const char *sentence);
/* The answer to flush(). */
void sl_writer_flushed(struct sluice_writer *w);
/* Asks on the file thread whether to try again on a full disk; waits for a while. */
bool sl_disk_full(void *writer, int error);
/* The disk is full, for another process, which waits (0: no more). */
void sl_writer_full(struct sluice_writer *w, int error);

/* -------------------------------------------------------------------------------------- series */

int sl_series_options(const struct sluice_series_options *o, unsigned threads,
                      struct sl_h5_layout *layout, struct sl_h5_set_options *set);

/* Makes a series with all its memory. The dataset has this layout and `first` frames. The share is
 * the caller's until sl_series_enlist(); after this frames can be submitted. */
int sl_series_make(struct sluice_writer *w, const char *name, unsigned depth,
                   const struct sl_h5_layout *layout, uint64_t first, struct sl_share *share,
                   struct sluice_series **out);
void sl_series_enlist(struct sluice_series *s, struct sl_h5_dataset *dataset);
void sl_series_free(struct sluice_series *s);

/* All processes have stored frames up to `complete`, and those up to `visible` are flushed. behind:
 * the slowest, if another waits for them. */
void sl_series_progress(struct sluice_series *s, uint64_t complete, uint64_t visible,
                        const struct sl_rank_names *behind);
/* The process `leaver` gives no frames from `last` on: to have submitted them is an error. */
void sl_series_last(struct sluice_series *s, uint64_t last, int leaver);
/* A fragment has come: n bytes of malloc(), with the head. False: it is not expected. */
bool sl_series_take_fragment(struct sluice_series *s, size_t fragment, uint64_t frame, void *bytes,
                             size_t n);
/* A fragment is sent: its bytes are free again. */
void sl_series_sent(struct sluice_series *s, uint64_t frame);

/* Chooses chunks for a block with this shape, a chunk or more for each thread. */
void sl_chunk_choose(size_t element, unsigned rank, const uint64_t *shape, unsigned threads,
                     uint64_t *chunk);

#endif
