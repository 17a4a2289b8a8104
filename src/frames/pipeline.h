/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Within the room: a writer, its series, and their frames on the way to the file. Who does what:
 *
 *  the program's threads   take frames and hand them in (frame.c, submit_on.c), wait for a flush
 *                          or the end (writer.c); all memory is taken and given back here
 *  the writer's pool       compresses chunks (compress.c) and copies frames of devices (submit_on.c); never waits
 *  the writer's thread     calls everything in h5file.h (keeper.c)
 *
 * Everything in a group called locked is guarded by writer->mutex, which is held for moments only: no
 * system call that waits, no call of HDF5 and no copy of a frame is made under it.
 *
 * No deadlock. Chunks wait for three things: an output, their turn to be stored, a cut.
 *  - Outputs are given to chunks of a series in the order of its frames (sl_compress_kick). So when one
 *    of a later frame has an output, those of the frames before all have one or are stored, and the
 *    first frame of the line can always be stored whole. A frame whose bytes are not there yet (in the
 *    order of a stream) gets none, and nor does what is behind it in its line; other series go on.
 *  - To be stored, a chunk's frame has to be the first in its line: see above. Chunks of series without
 *    tools need no output.
 *  - Before a cut (flush, add) the frames that are stored in part are stored whole and no other is begun.
 *    Outputs that one of them needs may be with frames that are not begun, of another series; then these
 *    are begun too (begin_one in keeper.c). They are finite: what is submitted later comes later.
 * And the pool's threads wait for nothing: a compressor without work goes away, and is handed in again by
 * whoever makes work (a frame, an output).
 */
#ifndef SL_PIPELINE_H
#define SL_PIPELINE_H

#include <sluice/writer.h>

#include "core/core.h"
#include "h5file/h5file.h"
#include "io/io.h"

/* ------------------------------------------------------------------------------------ memory */

/* Memory of its own pages, there when it is returned, and not inherited by children. */
struct sl_area {
	char *memory;
	size_t length;
};
int sl_area_take(struct sl_area *area, size_t length);
void sl_area_release(struct sl_area *area);

/* --------------------------------------------------------------------------------- geometry */

/* How a frame is cut; or a slab, whose first dimension is that of its frames. Chunks are numbered as C numbers the
 * elements of an array. */
#define SL_GEOMETRY_MOST (SLUICE_RANK_MOST + 1)
struct sl_geometry {
	size_t element;
	unsigned rank;
	uint64_t shape[SL_GEOMETRY_MOST], chunk[SL_GEOMETRY_MOST];
	uint64_t across[SL_GEOMETRY_MOST]; /* chunks in each dimension */
	size_t chunks;                     /* of a frame */
	size_t chunk_bytes, frame_bytes;
};
/* One chunk of it. */
struct sl_block {
	uint64_t offset[SL_GEOMETRY_MOST]; /* in the frame, in elements */
	uint64_t extent[SL_GEOMETRY_MOST]; /* of what the frame has of it */
	bool edge;                         /* which is not all of it */
	bool whole;   /* it is not an edge, and lies in one piece in the frame */
	size_t start; /* bytes to its first element */
};
/* Elements of a block that lie together, in the frame and in the chunk. */
struct sl_run {
	size_t frame, chunk; /* in elements from the start of each */
	size_t elements;
};
/* The runs of a block one by one; at is 0 for the first. False: there is no further one. */
bool sl_block_run(const struct sl_geometry *g, const struct sl_block *block, uint64_t *at,
                  struct sl_run *out);
/* -EINVAL with a sentence: too large. shape, chunk, element and rank are set. */
int sl_geometry_init(struct sl_geometry *g);
/* So that each of so many threads has a chunk of a frame, and a chunk is 256 KiB to 1 MiB. */
void sl_geometry_choose(struct sl_geometry *g, unsigned threads);
void sl_geometry_block(const struct sl_geometry *g, size_t number, struct sl_block *out);

/* ---------------------------------------------------------------------------------- outputs */

struct sl_frame;

/* A chunk as it will be in the file. The compressor's, then in frame->locked.finished, then the
 * keeper's, then free again. */
struct sl_output {
	struct sl_list link; /* guarded by writer->mutex */
	char *room;          /* a chunk's bytes; changes hands with compressors' scratch */
	struct sl_frame *frame;
	size_t number; /* of the chunk */
	struct sl_block block;
	const void *bytes; /* in room, or in the frame */
	size_t length;
	uint32_t mask;
};

/*
 * What compressors need for chunks of one kind: a state and scratch for each of them, and outputs. Series
 * of one kind share it. Outputs are three times the compressors: one that each of them fills, and two
 * that wait while the file is flushed.
 */
#define SL_OUTPUTS 3
struct sl_tools {
	struct sl_list link; /* of the writer; only sluice_series_add() looks, with its mutex */
	const struct sl_codec *codec;
	int level;
	size_t element, chunk_bytes;
	bool bare; /* no chunk needs room: they are rounded, and stored from where they are */
	unsigned users;
	unsigned count; /* of compressors */
	void **states;  /* by compressor */
	char **scratch; /* by compressor, which alone changes it */
	struct sl_output *outputs;
	struct sl_area area;
	uint64_t bytes;
	struct {
		struct sl_list free; /* outputs */
	} locked;
};
/* Only what tells their bytes is there until they are filled. kind: codec, level, element,
 * chunk_bytes, bare and count. */
int sl_tools_new(const struct sl_tools *kind, struct sl_tools **out);
int sl_tools_fill(struct sl_tools *tools);
void sl_tools_free(struct sl_tools *tools);

/* ----------------------------------------------------------------------------------- frames */

enum sl_frame_state {
	SL_FRAME_FREE,
	SL_FRAME_ACQUIRED, /* by the program */
	SL_FRAME_FILLING,  /* by push or submit_on */
	SL_FRAME_QUEUED,   /* in the line of its series */
};

/*
 * A frame, and, until its last chunk is compressed, the memory that it is in: that goes to a spare one then, and
 * round again, before all of it is stored. So there are as many more frames than memory for them as there
 * are outputs, of which each frame in the line without memory has one at least; and one more, for the frame
 * whose last output the keeper has given back and which is about to be whole.
 */
struct sl_frame {
	struct sluice_series *series;
	char *data; /* guarded by writer->mutex where it changes; NULL: of a spare one, or given on */
	double *scalars;
	/* Of a slab; NULL: it is a frame. */
	struct sl_slab_slot {
		uint64_t sequence; /* guarded by writer->mutex, */
		bool there;        /* as this */
	} * slots;

	struct {
		struct sl_list link; /* in the free ones or in the line of the series */
		enum sl_frame_state state;
		uint64_t number;   /* in the dataset */
		uint64_t sequence; /* among all frames of the writer, from 1 */
		bool filled;       /* by submit_on, maybe before it was in the line */
		bool ready;        /* in the line, and its bytes are there */
		bool writing;      /* contiguous: the engine stores it, */
		bool written;      /* and has */
		int64_t write_begun;
		size_t begun;            /* chunks that have an output, or had */
		size_t uses;             /* chunks that are yet to be read in data */
		size_t rounded;          /* contiguous: chunks that are done */
		size_t stored;           /* chunks */
		struct sl_list finished; /* outputs to be stored */

		/* Of a frame that goes to a slab. */
		struct sl_frame *slab;
		size_t slot;
		/* Of a slab, in frames: that have a slot, whose bytes are there, and that are in the file. */
		size_t taken, there, rows;
		bool flushing; /* the keeper reads it */
	} locked;
};

/*
 * Frames of a series whose chunks have several of them. A slab has those of one row of chunks: a frame that is handed in
 * gets the next slot of the slab that is open, is copied to it, and is free again. When all slots are taken the
 * slab goes through the line, as other frames do. Before that, in a flush, the keeper stores the frames that
 * are there, unfiltered. A frame is given to the program only if there will be a slot for it.
 */
#define SL_SLABS 4 /* at least */

/* ----------------------------------------------------------------------------------- series */

struct sl_counts {
	uint64_t submitted, stored, visible, durable, dropped, queued_most;
	uint64_t raw_bytes, stored_bytes, chunks, raw_chunks;
	uint64_t waited_ns, waited_most_ns;
	struct sluice_stage copy, compress, store, flush;
	uint64_t flushes;
	double max_error;
};

struct sluice_series {
	struct sluice_writer *writer;
	char *name;
	struct sl_frame_layout layout; /* without what only adding needs */
	struct sl_geometry geometry;   /* of slabs, where there are some */
	size_t frame_bytes;
	unsigned depth, flags;
	size_t stride;  /* from frame to frame in memory */
	uint64_t first; /* frames that the dataset had */
	struct sl_area area;
	struct sl_frame *frames; /* depth of them have memory; see sl_frame */
	size_t frame_count;
	struct sl_frame **owners;
	/* by place in the area; guarded by writer->mutex */
	struct sl_frame *slabs; /* NULL: chunks have one frame */
	size_t slab_count;
	uint64_t slab_bytes; /* of memory */
	struct sl_area slab_area;
	struct sl_area rows; /* a chunk that is stored in part; empty: they lie in the slab */
	/* NULL: nothing is done to chunks. They are stored from where they are, as plain, which is the
	 * keeper's; or the frame is written whole. */
	struct sl_tools *tools;
	struct sl_output plain;
	uint32_t mask_codec, mask_shuffle;
	_Atomic bool verified; /* a chunk was decoded and compared, */
	struct sl_area proof;  /* in this; empty afterwards */
	uint64_t bytes;        /* of memory, less those of tools */

	struct sl_frame_dataset *dataset; /* the keeper's */
	struct sluice_file *file;         /* contiguous: the file, from outside HDF5 */
	uint64_t place;                   /* and where in it the dataset is */
	struct sluice_file *mirror;       /* of the frames' memory; of submit_on() */

	pthread_cond_t freed; /* a frame is free, or the writer has failed */
	struct {
		struct sl_list link;                     /* of the writer's series */
		struct sl_list free, spare, line, slabs; /* slabs: free ones */
		struct sl_frame *open;                   /* the slab with free slots */
		uint64_t room;                           /* free slots */
		unsigned held;                           /* by the program */
		unsigned promised; /* of push and submit_on: they will be in the line */
		unsigned queued;   /* in the line, no chunk begun */
		uint64_t next;     /* number of the next frame */
		struct sl_counts counts;
	} locked;
};

/* ----------------------------------------------------------------------------------- writer */

/* What the keeper is asked to do between two frames. */
struct sl_errand {
	struct sl_list link; /* guarded by writer->mutex, as are the next four; in no list: taken */
	bool done;
	int result;
	char message[1024];
	int (*run)(struct sl_errand *errand); /* on the keeper, without the mutex */
	struct sluice_writer *writer;
};

enum sl_closing { SL_OPEN, SL_CLOSING, SL_DISCARDING };

/* One of the chunks that are compressed at a time. */
struct sl_compressor {
	struct sl_task task;
	struct sluice_writer *writer;
	unsigned index;
	bool busy; /* guarded by writer->mutex */
};

struct sluice_writer {
	struct sluice_context *ctx;
	struct sl_list link; /* of all writers; guarded by their mutex */
	char *path;
	unsigned flags, mode;
	uint64_t memory_bytes, checkpoint_frames;
	int64_t checkpoint_ns; /* 0: not by time */
	int64_t full_ns;       /* that a full disk is waited for; SL_FOREVER */
	struct sl_pool *pool;
	unsigned threads;
	struct sl_compressor *compressors;
	pthread_t keeper;
	struct sl_frame_file *file; /* the keeper's */

	pthread_mutex_t adding; /* held while a series is added; around the other one */
	pthread_mutex_t mutex;
	pthread_cond_t work; /* for the keeper */
	pthread_cond_t told; /* for who waits for an errand, a flush or the end */
	struct {
		struct sl_list series, tools, errands;
		unsigned compressing; /* compressors that are busy */
		unsigned finished;    /* outputs that wait to be stored */
		enum sl_closing closing;
		bool ended;        /* the keeper does nothing any more */
		unsigned writes;   /* operations of the engine in flight: frames to their places, */
		unsigned copies;   /* frames from devices */
		uint64_t sequence; /* of the last frame */
		bool flush_wanted; /* by somebody */
		/* The last frames that were there when it was asked for: by the first who was not served
		 * yet, so that those who come later do not hold him up, and by the last. */
		uint64_t flush_cut, flush_last;
		uint64_t flushed;      /* up to that frame */
		bool dirty;            /* there is something to flush */
		int64_t dirty_since;   /* SL_FOREVER: nothing that time would flush */
		uint64_t frames_since; /* the last flush */
		uint64_t
			bytes; /* of memory; with a limit, what is held back until a flush included */
		uint64_t held; /* that is held back now */
		struct sluice_stage flush;
		uint64_t flushes;
		/* A full disk is waited for: its error, 0: it is not, since when, and what that took before. */
		int full;
		int64_t full_since;
		uint64_t full_ns, full_waits;
		struct {
			const char *stage;
			const struct sl_frame *frame;
		} doing; /* what the keeper was last at, for when it dies */
		struct {
			int error; /* 0: none */
			const struct sluice_series *series;
			uint64_t frame;
			const char *stage;
			char *message;
		} failure;
	} locked;
};

/* 0, or the writer's first error, or -EINVAL for one that is closed, with a sentence. With the mutex. */
int sl_writer_check(const struct sluice_writer *w);
/* Keeps the first error with the thread's sentence, and wakes everybody. frame: NULL: of none. With the
 * mutex. */
void sl_writer_fail(struct sluice_writer *w, int error, const char *stage,
                    const struct sl_frame *frame);
/* Gives the keeper an errand and waits for it. */
int sl_writer_ask(struct sluice_writer *w, struct sl_errand *errand);
void sl_condition_init(pthread_cond_t *condition);
/* Waits on a condition with the mutex; false: the deadline has passed. */
bool sl_writer_wait(struct sluice_writer *w, pthread_cond_t *condition, int64_t deadline);

/* The file's question whether a full disk is tried again; see sl_frame_file_options. */
bool sl_keeper_full(void *writer, int error);
/* The keeper; the thread of a writer. */
void *sl_keeper_run(void *writer);

/* With the mutex: compressors without work get what there is. */
void sl_compress_kick(struct sluice_writer *w);
int sl_compress_start(struct sluice_writer *w);
/* Makes a chunk what it will be in the file. Without the mutex; on a thread of the pool. */
int sl_chunk_make(struct sluice_series *s, unsigned compressor, struct sl_output *output,
                  double *max_error);
/* The same of a slab that goes on, for the keeper: unfiltered, where frames from..to are new. Returns the largest error. */
double sl_chunk_rows(struct sluice_series *s, struct sl_output *output, uint64_t from, uint64_t to);
/* Stores what is there of a slab that goes on. On the keeper, without the mutex. */
int sl_keeper_rows(struct sl_frame *slab, uint64_t from, uint64_t to, double *max_error);

/* The file that is the series' frames, for submit_on(). */
int sl_mirror_open(struct sluice_series *s);
/* Contiguous series, on the keeper: opens the file for the engine; gives it a frame, with the mutex, which
 * is released meanwhile. */
int sl_direct_open(struct sluice_series *s);
void sl_direct_start(struct sl_frame *frame);

/* A free frame, for the program (ACQUIRED) or for push and submit_on (FILLING). -EAGAIN is counted. */
int sl_frame_take(struct sluice_series *s, int timeout_ms, enum sl_frame_state state,
                  struct sl_frame **out);
/* A FILLING frame takes its place in the line; on failure it is free again. Not ready: its bytes come. */
int sl_frame_enqueue(struct sl_frame *frame, const double *scalars, bool ready);
/* With the mutex: its bytes are there; so many of its chunks are not read in them any more; it is free again. */
void sl_frame_ready(struct sl_frame *frame);
void sl_frame_used(struct sl_frame *frame, size_t chunks);
void sl_frame_recycle(struct sl_frame *frame);
/* With the mutex: a free slab becomes the open one. */
struct sl_frame *sl_slab_open(struct sluice_series *s, uint64_t number);
/* What the calls that hand in a frame have to look at first. */
int sl_series_check(const struct sluice_series *s, const char *what, const void *data,
                    const double *scalars);

/* What o asks for, checked, with defaults. The names in it are the caller's. */
int sl_series_options(const struct sluice_series_options *o, unsigned threads,
                      struct sl_frame_layout *layout, struct sl_frame_set *set);
/* When nothing of it is in flight: its files; the rest, when the pool has nothing of it either. */
void sl_series_close(struct sluice_series *s);
void sl_series_free(struct sluice_series *s);

#endif
