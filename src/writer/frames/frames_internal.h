/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Frames on their way to the file: a writer, its series, and their frames. Shared by this room.
 *
 * Threads:
 *  - The program's threads take frames and submit them (frame.c, submit_on.c), and wait for a
 *    flush (flush.c) or the end (writer.c). They allocate and free all memory.
 *  - The writer's pool compresses chunks (compress.c) and copies frames from devices
 *    (submit_on.c). Its tasks never wait.
 *  - The file thread makes all calls of h5file.h (file_thread.c).
 *
 * Locks: the mutex of a writer guards its queue, flush, disk and failure, and all groups called
 * `locked`. It is held briefly: no blocking system call, no call to HDF5 and no copy of a frame is
 * made under it. Functions with the suffix _locked are called with this mutex; where they reach the
 * writer through a frame or a series, clang cannot check it (SL_UNCHECKED). writer->adding is taken
 * before it; the pool's lock and a sink's locks inside it, but for calls of the sink that may wait.
 *
 * No deadlock. A chunk waits for three things: a buffer for the packed chunk, its turn to be
 * stored, and a pause between frames.
 *  - Chunks in a series get buffers in the order of frames (sl_queue_next_locked). If a chunk of a
 *    later frame has a buffer, all earlier chunks have a buffer or are stored, so the first frame
 *    in a queue can always be stored completely. A frame without its bytes (in the order of a
 *    stream) gets no buffer, nor do the frames behind it; other series continue.
 *  - A chunk is stored when its frame is first in the queue: see above. Series without a packer
 *    need no buffer.
 *  - Before a flush or a command, partly stored frames are stored completely and no other frame
 *    is begun. But if they need buffers, and other series' frames have them all, these frames are
 *    begun, too (begin_one_locked in file_thread.c). Their number is finite, because frames
 *    submitted later come later.
 * Threads of the pool never wait: a compressor without work ends, and is submitted again by the
 * thread with a new frame or a free buffer.
 */
#ifndef SL_FRAMES_INTERNAL_H
#define SL_FRAMES_INTERNAL_H

#include <sluice/writer.h>

#include "core/core.h"
#include "frames/frames.h"
#include "h5file/h5file.h"
#include "io/io.h"

/* ------------------------------------------------------------------------------------ memory */

/* Memory in whole pages, present from the start, and not inherited by children. */
struct sl_area {
	char *memory;
	size_t length;
};
int sl_area_take(struct sl_area *area, size_t length);
void sl_area_release(struct sl_area *area);
/* Takes bytes for a series from the writer's memory_bytes, or -ENOBUFS; gives them back. */
int sl_bytes_take(struct sluice_series *s, uint64_t bytes);
void sl_bytes_give(struct sluice_series *s, uint64_t bytes);

/* --------------------------------------------------------------------------------- geometry */

/* How a frame is divided into chunks, numbered in C order; or a bundle: its frames are the first
 * dimension. */
#define SL_GEOMETRY_MOST (SLUICE_FRAME_RANK_MOST + 1)
struct sl_geometry {
	size_t element;
	unsigned rank;
	uint64_t shape[SL_GEOMETRY_MOST], chunk[SL_GEOMETRY_MOST];
	/* Elements of the first chunk before the frame, if it is a block of an array. */
	uint64_t origin[SL_GEOMETRY_MOST];
	uint64_t across[SL_GEOMETRY_MOST]; /* chunks in each dimension */
	size_t chunks;                     /* of a frame */
	size_t chunk_bytes, frame_bytes;
};
/* A chunk. */
struct sl_block {
	uint64_t offset[SL_GEOMETRY_MOST]; /* in the frame, in elements */
	uint64_t extent[SL_GEOMETRY_MOST]; /* inside the frame, */
	uint64_t at[SL_GEOMETRY_MOST];     /* and where this begins in the chunk */
	bool edge;                         /* the rest of the chunk is outside */
	bool whole;   /* it is not an edge, and lies in one piece in the frame */
	size_t start; /* bytes to its first element */
};
/* Elements side by side, in the frame and in the chunk. */
struct sl_run {
	size_t frame, chunk; /* where it begins in each, in elements */
	size_t elements;
};
/* Returns a block's runs in turn; at is 0 for the first. False: there are no more runs. */
bool sl_block_run(const struct sl_geometry *g, const struct sl_block *block, uint64_t *at,
                  struct sl_run *out);
/* -EINVAL with a sentence: too large. shape, chunk, element and rank are set. */
int sl_geometry_init(struct sl_geometry *g);
/* Returns whether each chunk lies in the frame as it is in the file. */
bool sl_geometry_lies_whole(const struct sl_geometry *g);
/* Gives each thread a chunk of a frame, if a chunk is 256 KiB to 1 MiB then. */
void sl_geometry_choose(struct sl_geometry *g, unsigned threads);
void sl_geometry_block(const struct sl_geometry *g, size_t number, struct sl_block *out);

/* ---------------------------------------------------------------------------- packed chunks */

struct sl_frame;

/* A chunk as it will be stored. It belongs to a compressor, then to frame->locked.finished,
 * then to the file thread, and is free again. */
struct sl_packed_chunk {
	struct sl_list link; /* guarded by writer->mutex */
	char *room;          /* for the longest packed chunk */
	struct sl_frame *frame;
	size_t number; /* of the chunk */
	struct sl_block block;
	const void *bytes; /* in room, or in the frame */
	size_t length;
	uint32_t mask;
};

/* Compressors' memory for a kind of chunks. Each has three packed chunks: two wait in a flush. */
#define SL_PACKED_PER_COMPRESSOR 3
struct sl_packer {
	struct sl_list link; /* of the writer */
	const struct sl_codec *codec;
	int level;
	size_t element, chunk_bytes;
	bool sum;       /* a chunk has room for a checksum behind it */
	bool in_place;  /* no chunk needs room: they are rounded, and stored from where they are */
	unsigned users; /* series; guarded by writer->adding */
	unsigned count; /* of compressors */
	void **states;  /* by compressor */
	char **scratch; /* by compressor */
	struct sl_packed_chunk *packed;
	struct sl_area area;
	uint64_t bytes;
	struct {
		struct sl_list free; /* packed chunks */
	} locked;
};
/* With writer->adding: finds or makes the packer of a series; leaves it, the last user frees it. */
int sl_packer_take(struct sluice_series *s);
void sl_packer_drop(struct sluice_series *s);

/* ----------------------------------------------------------------------------------- frames */

enum sl_frame_state {
	SL_FRAME_FREE,
	SL_FRAME_ACQUIRED, /* by the program */
	SL_FRAME_FILLING,  /* by push or submit_on */
	SL_FRAME_QUEUED,   /* in the queue of its series */
};

/*
 * A frame. It owns a buffer until its last chunk has been compressed; then a spare frame gets the
 * buffer, while packed chunks are still being stored. Each such frame has a packed chunk at least,
 * and another frame may be about to be completed: so there are depth + packed chunks + 1 frames.
 */
struct sl_frame {
	struct sluice_series *series;
	char *data; /* changed under writer->mutex; NULL: it has no buffer */
	double *scalars;
	/* Of a bundle; NULL: it is a frame. */
	struct sl_bundle_slot {
		uint64_t sequence; /* guarded by writer->mutex, */
		bool there;        /* as this */
	} * slots;

	struct {
		struct sl_list link; /* in the series' free frames or queue */
		enum sl_frame_state state;
		uint64_t number;   /* in the dataset */
		uint64_t sequence; /* among the writer's frames, from 1 */
		bool filled;       /* by submit_on, maybe before it was in the queue */
		bool ready;        /* in the queue, with all its bytes */
		bool writing;      /* contiguous: the engine stores it, */
		bool written;      /* and has */
		int64_t write_begun;
		size_t begun;            /* chunks, since they have a packed chunk */
		size_t uses;             /* chunks yet to be read in data */
		size_t rounded;          /* chunks of a contiguous series */
		size_t stored;           /* chunks */
		struct sl_list finished; /* packed chunks to be stored */

		/* Of a frame on the way to a bundle. */
		struct sl_frame *bundle;
		size_t slot;
		/* Of a bundle: slots taken, slots with their bytes, and frames in the file. */
		size_t taken, there, rows;
		bool flushing; /* the file thread reads it */
	} locked;
};

/*
 * Bundles, for chunks with several frames: the frames of a row of chunks. A submitted frame is
 * copied to the next slot of the open bundle and is free again. When all slots are taken, the
 * bundle goes through the queue as a frame does. A flush before then stores its frames without
 * filters. The program gets a frame only if there will be a slot for it.
 */

/* ----------------------------------------------------------------------------------- series */

struct sluice_series {
	struct sluice_writer *writer;
	char *name;
	struct sl_h5_layout layout;  /* without fields for sluice_series_add() alone */
	struct sl_geometry geometry; /* of bundles, where there are some */
	size_t frame_bytes;
	unsigned depth, flags;
	size_t stride;  /* from frame to frame in memory */
	uint64_t first; /* frames in the dataset before */
	struct sl_area area;
	bool kept;               /* the area, by the program */
	struct sl_frame *frames; /* depth of them have memory; see sl_frame */
	size_t frame_count;
	struct sl_frame **frame_of; /* by position in the area; guarded by writer->mutex */
	struct sl_frame *bundles;   /* NULL: a chunk has a single frame */
	struct sl_bundle_slot *bundle_slots;
	double *scalars, *bundle_scalars; /* of all frames, and of all bundles */
	uint64_t bundle_bytes;
	struct sl_area bundle_area;
	struct sl_area rows;          /* a chunk partly stored; empty: it lies in the bundle */
	struct sl_packer *packer;     /* NULL: chunks or frames are stored as they lie */
	struct sl_packed_chunk plain; /* the file thread's, for these chunks */
	_Atomic bool verified;        /* a chunk was decoded and compared, */
	struct sl_area decoded;       /* in this; empty afterwards */
	uint64_t bytes;               /* among memory_bytes, without the packer's */

	struct sl_share *share;          /* NULL: frames are whole */
	struct sl_h5_dataset *dataset;   /* the file thread's */
	struct sluice_file *file;        /* contiguous: the file, from outside HDF5, */
	uint64_t start;                  /* and the offset of the dataset */
	struct sluice_file *memory_file; /* the frames' memory, for submit_on() */

	pthread_cond_t freed; /* a frame is free, or the writer has failed */
	struct {
		struct sl_list link;                        /* in the writer's queue */
		struct sl_list free, spare, queue, bundles; /* bundles: free bundles */
		struct sl_frame *open;                      /* the bundle with free slots */
		uint64_t room;                              /* free slots */
		unsigned held;                              /* by the program */
		unsigned incoming; /* from push and submit_on, not in the queue yet */
		unsigned queued;   /* in the queue, no chunk begun */
		uint64_t next;     /* frame's number */
		struct sluice_writer_counts counts;
	} locked;
};

/* ---------------------------------------------------------------------- inside of a writer */

/* Frames on their way, in all series: frame_queue.c. */
struct sl_frame_queue {
	struct sl_list series;
	uint64_t sequence;       /* the last frame's */
	unsigned compressing;    /* compressors at work */
	unsigned finished;       /* packed chunks not stored yet, */
	uint64_t finished_bytes; /* and their bytes */
	unsigned writes;         /* the engine's operations in flight: frames to the file, */
	unsigned copies;         /* and frames from devices */
};

/* When the file is flushed, and how far it is: flush.c. Frames are told by their sequence. */
struct sl_flush {
	uint64_t checkpoint_frames; /* constant, as the next; 0: no flushes by number, */
	int64_t checkpoint_ns;      /* or by time */
	bool wanted;                /* by the program */
	/* The last frame at the time of the first unserved request, so that later requests do not
	 * delay it, and at the last request. */
	uint64_t cut, last;
	uint64_t done; /* flushed up to this frame */
	/* With a sink: it flushes up to asked_through, and has not answered. */
	bool asked;
	uint64_t asked_through;
	bool dirty;            /* there is something to flush */
	int64_t dirty_since;   /* SL_FOREVER: nothing to flush by time */
	uint64_t frames_since; /* the last flush */
	uint64_t count;
	struct sluice_stage stage;
};

/* A full disk: disk.c. The file thread changes it with the mutex, and alone reads it without;
 * `elsewhere` is a sink's. */
struct sl_disk {
	int64_t most_ns; /* constant: the longest wait for room; SL_FOREVER; 0: none */
	int error;       /* the thread waits for room; 0: it does not */
	int64_t since;
	uint64_t waited_ns, waits; /* earlier */
	int elsewhere;             /* as error, in another process */
};

/* The first error: failure.c. It stays, and is the result of all later calls. */
struct sl_failure {
	int error; /* 0: none */
	const struct sluice_series *series;
	uint64_t frame;
	const char *stage;
	char *message;
	/* The file thread's work, for the case of its death. */
	struct {
		const char *stage;
		const struct sl_frame *frame;
	} doing;
};

/* The copy of the file on a server: remote_copy.c. */
struct sl_remote_copy {
	struct sluice_context *ctx;
	char *uri, *name;          /* name: safe to display */
	bool exclusive;            /* the object is not there, or not ours yet */
	int64_t interval_ns, next; /* of uploads before the end; 0: there are none */
	/* A thread that sends an image of the file; fd < 0: there is none. */
	pthread_t thread;
	int fd;
	_Atomic bool stop;      /* it is to end, */
	_Atomic bool discarded; /* and so is the last upload */
};
/* Chooses the local file, whose name the caller frees in any case. Returns 0, -ENOTSUP for a file
 * to be continued, or the errors of sluice_open() for the object. Waits for the server. */
int sl_remote_copy_new(struct sluice_context *ctx, const char *uri,
                       const struct sluice_writer_options *o, struct sl_remote_copy **out,
                       char **path);
bool sl_remote_copy_can(const char *scheme);
/* Sends the file as it is after a flush, if it is time and the last upload is over. Waits for a
 * copy of it, not for the server. */
void sl_remote_copy_flushed(struct sl_remote_copy *copy, const char *path);
/* Sends the closed file. */
int sl_remote_copy_finish(struct sl_remote_copy *copy, const char *path);
void sl_remote_copy_free(struct sl_remote_copy *copy);

/* ----------------------------------------------------------------------------------- writer */

/* A command for the file thread, for the time between two frames. */
struct sl_file_command {
	struct sl_list link; /* guarded by writer->mutex, as the next three; in no list: taken */
	bool done;
	int result;
	char message[1024];
	int (*run)(struct sl_h5_file *file, void *argument); /* without the mutex */
	void *argument;
};

enum sl_closing { SL_OPEN, SL_CLOSING, SL_DISCARDING };

/* A task for the pool. */
struct sl_compressor {
	struct sl_task task;
	struct sluice_writer *writer;
	unsigned index;
	bool busy; /* guarded by writer->mutex */
};

struct sluice_writer {
	struct sluice_context *ctx;
	struct sl_list link; /* in all writers; guarded by their mutex */
	char *path;
	unsigned flags;
	uint64_t memory_bytes;
	struct sl_pool *pool;
	unsigned threads;
	struct sl_compressor *compressors;
	pthread_t file_thread;
	struct sl_h5_file *file;       /* the file thread's */
	struct sl_sink *sink;          /* NULL: the file is there */
	struct sl_remote_copy *remote; /* NULL: the file stays where it is */

	struct sl_mutex adding; /* held while a series is added */
	struct sl_mutex mutex;
	pthread_cond_t work;     /* for the file thread */
	pthread_cond_t progress; /* for threads in wait for a command, a flush or the end */
	struct sl_frame_queue queue SL_GUARDED_BY(&mutex);
	struct sl_flush flush SL_GUARDED_BY(&mutex);
	struct sl_disk disk SL_GUARDED_BY(&mutex);
	struct sl_failure failure SL_GUARDED_BY(&mutex);
	struct {
		struct sl_list packers, commands;
		enum sl_closing closing;
		bool ended;     /* the file thread does nothing any more */
		uint64_t bytes; /* taken of memory_bytes, with metadata if there is a limit */
		uint64_t held;  /* metadata held back now */
	} locked SL_GUARDED_BY(&mutex);
};

/* Gives the file thread a command and waits for its result. */
int sl_writer_ask(struct sluice_writer *w, int (*run)(struct sl_h5_file *file, void *argument),
                  void *argument);
/* The file thread. */
void *sl_file_thread_run(void *writer);

/* As sl_writer_check_locked(), which knows that there is an error. */
int sl_writer_refuse_locked(const struct sluice_writer *w) SL_REQUIRES(&w->mutex);
/* Returns 0, the writer's first error, or -EINVAL if it is being closed, with a sentence. */
static inline int sl_writer_check_locked(const struct sluice_writer *w) SL_REQUIRES(&w->mutex)
{
	return w->failure.error || w->locked.closing ? sl_writer_refuse_locked(w) : 0;
}
/* Keeps the first error with the thread's sentence, and wakes all threads. frame: NULL: none. */
void sl_writer_fail_locked(struct sluice_writer *w, int error, const char *stage,
                           const struct sl_frame *frame) SL_REQUIRES(&w->mutex);
void sl_failure_free(struct sl_failure *failure);

/* After a call with waits for room: logs their end and returns their time. Called by the file
 * thread, without the mutex. */
int64_t sl_disk_waited(const struct sluice_writer *w);

bool sl_flush_is_due_locked(struct sluice_writer *w) SL_REQUIRES(&w->mutex);
/* Returns the time for the next checkpoint, or SL_FOREVER. */
int64_t sl_flush_wake_at_locked(const struct sluice_writer *w) SL_REQUIRES(&w->mutex);
/* All frames up to `through` are flushed. */
void sl_flush_done_locked(struct sluice_writer *w, uint64_t through, int64_t took)
	SL_REQUIRES(&w->mutex);

/* ------------------------------------------------------------------------------------- queue */

/* Appends a frame with its scalars. ready: its bytes are there. May release the mutex. */
void sl_queue_append_locked(struct sl_frame *frame, const double *scalars, bool ready);
/* Returns the first frame in the queue, or NULL. */
struct sl_frame *sl_queue_first(struct sluice_series *s);
/* Returns the next frame or bundle to be stored, maybe the open bundle, or NULL. */
struct sl_frame *sl_queue_current(struct sluice_series *s);
/* Returns the last sequence number for which all frames are stored, or will be by a flush. */
uint64_t sl_queue_stored_through_locked(struct sluice_writer *w) SL_REQUIRES(&w->mutex);
/* Returns whether a frame's next chunk misses nothing from other processes. */
bool sl_queue_has_fragments_locked(const struct sl_frame *frame);
/* Returns the oldest frame with a chunk to begin and a buffer for it, or NULL: for a compressor at
 * work, or for another (more), if so many may run. */
struct sl_frame *sl_queue_next_locked(struct sluice_writer *w, bool more) SL_REQUIRES(&w->mutex);
/* Starts a compressor if there is a chunk for it. */
void sl_queue_kick_locked(struct sluice_writer *w) SL_REQUIRES(&w->mutex);
/* Its bytes are there (may release the mutex); a chunk no longer needs its buffer; it is free. */
void sl_frame_ready_locked(struct sl_frame *frame);
void sl_frame_used_locked(struct sl_frame *frame);
void sl_frame_recycle_locked(struct sl_frame *frame);
/* Opens a free bundle. */
struct sl_frame *sl_bundle_open_locked(struct sluice_series *s, uint64_t number);

/* Takes a free frame, to be ACQUIRED by the program, or FILLING. -EAGAIN is counted. */
int sl_frame_take(struct sluice_series *s, int timeout_ms, enum sl_frame_state state,
                  struct sl_frame **out);
/* Appends a FILLING frame to the queue; on failure it is free again. ready: with its bytes. */
int sl_frame_enqueue(struct sl_frame *frame, const double *scalars, bool ready);
/* Checks arguments. */
int sl_series_check(const struct sluice_series *s, const char *what, const void *data,
                    const double *scalars);
/* The file over the series' frames, for submit_on(). */
int sl_memory_file_open(struct sluice_series *s);
/* Contiguous series, called by the file thread: opens the file for the engine; gives the engine
 * a frame, which releases the mutex meanwhile. */
int sl_direct_open(struct sluice_series *s);
void sl_direct_start_locked(struct sl_frame *frame);

int sl_compress_start(struct sluice_writer *w);
/* Makes a packed chunk. Called without the mutex, on a thread of the pool. */
int sl_chunk_make(struct sluice_series *s, unsigned compressor, struct sl_packed_chunk *packed,
                  double *max_error);
/* Makes a chunk of an open bundle, without filters; frames from..to are new. Called by the file
 * thread. Returns the largest rounding error. */
double sl_chunk_make_plain(struct sluice_series *s, struct sl_packed_chunk *packed, uint64_t from,
                           uint64_t to);
/* Finds the block for a chunk. */
static inline void sl_series_block(const struct sluice_series *s, size_t number,
                                   struct sl_block *out)
{
	sl_geometry_block(&s->geometry, s->share ? s->share->cells[number].number : number, out);
}

/* The processes for which the first frame in the queue waits, as far as known. */
void sl_share_waits_for_locked(const struct sluice_series *s, struct sl_rank_names *names);
/* Fails the writer if another process has ended, and all frames here wait for it. */
void sl_share_check_locked(struct sluice_writer *w) SL_REQUIRES(&w->mutex);
/* The frame is stored: its foreign fragments are not needed any more. */
void sl_share_drop_fragments_locked(struct sl_frame *frame);
/* Copies the fragment for another process's chunk to the share's outgoing memory. */
void sl_share_gather(struct sluice_series *s, struct sl_packed_chunk *packed);
/* The geometry of a foreign fragment, all in a block. */
void sl_fragment_geometry(const struct sl_geometry *g, const struct sl_foreign_fragment *fragment,
                          struct sl_geometry *out, struct sl_block *block);

/* Closes its files when nothing is in flight; the rest is freed when the pool has no task. */
void sl_series_close(struct sluice_series *s);

#endif
