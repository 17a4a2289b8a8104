/* SPDX-License-Identifier: Apache-2.0 */
/* Arrays, as the files of this room share them. */
#ifndef SL_ARRAYS_INTERNAL_H
#define SL_ARRAYS_INTERNAL_H

#include "arrays/array_blocks.h"
#include "arrays/arrays.h"
#include "h5file/h5file.h"

/* Dimensions, and last the bytes of an element: all geometry counts bytes there. */
#define SL_ARRAY_DIMENSIONS (SL_BOX_RANK + 1)
#define SL_TILE_BUCKETS     256
/* Bytes of chunks in flight, and of kept chunks, which reads needed in part. */
#define SL_TILES_BYTES ((uint64_t)64 << 20)
#define SL_TILES_KEPT  ((uint64_t)64 << 20)
#define SL_TILES_MOST  4096
/* Bytes side by side, without filters, for a read by a worker. */
#define SL_CUT_BYTES ((uint64_t)1 << 20)
/* Kept places of chunks: small reads look none up. */
#define SL_PLACES 256
/* While our writer changes a file again and again, a read begins anew for so long. */
#define SL_ARRAY_PATIENCE_NS INT64_C(10000000000)

struct sl_undoing;

/* An open dataset. */
struct sl_array {
	struct sl_backend base;
	struct sl_core *core;
	struct sl_task step;
	struct sl_pool *pool;        /* for reads and filters */
	struct sl_pool *looks;       /* for steps, which of a remote file wait for its server */
	struct sl_backend *inner;    /* the file */
	struct sl_h5_blocks *blocks; /* of a remote file, which own the inner backend; or NULL */
	struct sl_limits inner_limits;
	char *path;                /* the file's, without secrets */
	int fd;                    /* the same file, for HDF5 and looks; -1: it is remote */
	struct sl_h5_bytes source; /* of a local file */
	int *segments; /* descriptors of an external dataset's files, -1: there is none */
	/* In a virtual dataset, by part; NULL: the file or dataset is missing. Parts may share a
	 * source, which belongs to the first of them. */
	struct sl_array **sources;

	/* Fixed at the opening. A tile is a chunk, or, without chunks, rows side by side. */
	unsigned dimensions;
	uint64_t tile[SL_ARRAY_DIMENSIONS];
	size_t tile_bytes;
	bool plain;   /* without filters */
	bool in_line; /* the bytes lie side by side in the file */

	/* Counts states of the file that refreshes took from other programs, twice each: odd while
	 * it is taken. */
	_Atomic uint64_t changes;
	/* Grows with a refresh; the rest of the shape is fixed. */
	_Atomic uint64_t length, bytes;

	/* Where chunks are looked up. Held while HDF5 reads its own data, so no worker takes it. */
	struct {
		struct sl_mutex mutex;
		struct sl_h5_reader *reader SL_GUARDED_BY(&mutex);
		struct sl_h5_state state SL_GUARDED_BY(&mutex);
		/* Texts, filters and shape are fixed, but for the first length. */
		struct sl_h5_array of;
	} h5;

	struct sl_mutex mutex;
	struct {
		struct sl_list buckets[SL_TILE_BUCKETS]; /* tiles that may be shared, by number */
		struct sl_list kept;    /* tiles with their bytes, the last used last */
		struct sl_list moving;  /* tiles whose stored bytes the inner backend reads */
		struct sl_list hauls;   /* the inner backend reads them */
		struct sl_list jobs;    /* that want a step */
		bool stepping;          /* the task of steps is submitted or running */
		struct sl_list undoing; /* unused memory for undoing filters */
		unsigned in_flight, most;
		/* With a remote file, where tiles wait long: memory of tiles in flight, and the
		 * probable need of a tile with filters until it is decoded. */
		uint64_t memory, each;
		unsigned kept_count, kept_most;
		uint64_t generation;      /* counts states of the file, */
		struct sl_h5_state state; /* and the last */
		/* Chunks without filters, looked up in that state, by number. */
		struct {
			uint64_t number, address; /* address 0: none */
		} places[SL_PLACES];
	} locked SL_GUARDED_BY(&mutex);
};

/* Returns a number that is another after a refresh that took a change of another program. */
static inline uint64_t sl_array_changes(const struct sl_array *array)
{
	uint64_t changes = atomic_load(&array->changes);

	for (size_t i = 0; array->sources && i < array->h5.of.part_count; i++)
		changes += array->sources[i] ? atomic_load(&array->sources[i]->changes) : 0;
	return changes;
}

/* --------------------------------------------------------------------------------------- walk */

/* Bytes of a tile that belong to a job. */
struct sl_portion {
	struct sl_list link; /* of a tile */
	struct sl_job *job;
	uint64_t from[SL_ARRAY_DIMENSIONS], count[SL_ARRAY_DIMENSIONS]; /* in the tile */
	char *data;  /* where the first byte belongs */
	bool covers; /* all of the tile that the dataset has */
};

/* Goes through the tiles below a range of bytes in a box, which is packed in memory. */
struct sl_walk {
	const struct sl_array *array;
	uint64_t start[SL_ARRAY_DIMENSIONS], count[SL_ARRAY_DIMENSIONS]; /* the box */
	uint64_t stride[SL_ARRAY_DIMENSIONS];                            /* in memory */
	uint64_t at, end, offset; /* bytes in the box; the byte at offset is the first in memory */
	char *data;
	bool flat;     /* all is a portion: bytes side by side, cut by the engine, */
	uint64_t base; /* in a box from here on in the dataset */
	bool inside;   /* a box below is being walked: in elements of the dataset */
	uint64_t low[SL_ARRAY_DIMENSIONS], high[SL_ARRAY_DIMENSIONS], next[SL_ARRAY_DIMENSIONS];
};
/* box: NULL: all of the dataset. */
void sl_walk_begin(struct sl_walk *walk, const struct sl_array *array, const struct sl_box *box,
                   uint64_t offset, uint64_t length, char *data);
/* Takes the next box, from `low` to `high`: bytes side by side in memory. */
bool sl_walk_box(struct sl_walk *walk);
/* Makes a walk in the source for the box's share in a part. Returns the bytes; 0: nothing. */
uint64_t sl_walk_part(const struct sl_walk *walk, size_t number, struct sl_walk *out);
/* Writes the fill value to the box, if it has more bytes than those. */
void sl_walk_fill(const struct sl_walk *walk, uint64_t bytes);
/* Writes the next tile, as the place of its first element, and its portion. False: that was all. */
bool sl_walk_next(struct sl_walk *walk, uint64_t first[SL_ARRAY_DIMENSIONS],
                  struct sl_portion *portion);
/* The number of a tile in the grid. */
uint64_t sl_walk_number(const struct sl_array *array, const uint64_t *first);
/* Bytes before the first element in a dataset without chunks. */
uint64_t sl_walk_offset(const struct sl_array *array, const uint64_t *first);
/* Returns whether the portion is bytes side by side, in the tile and in memory; the bytes of the
 * tile from its first to its last, and where they begin. */
bool sl_portion_hull(const struct sl_walk *walk, const struct sl_portion *portion, uint64_t *begin,
                     uint64_t *length);
/* Copies the portion from the bytes of its tile, or, if they are NULL, writes the fill value. */
void sl_portion_copy(const struct sl_walk *walk, const struct sl_portion *portion,
                     const char *tile);

/* --------------------------------------------------------------------------------------- tiles */

/* A piece of the engine. */
struct sl_job {
	struct sl_piece base;
	struct sl_list link;  /* in the list for steps; guarded by the array's mutex */
	struct sl_walk walk;  /* the thread's that takes the job's steps */
	struct sl_job *whole; /* the virtual dataset's job, if this is a part of it; or NULL */
	/* Guarded by the array's mutex: tiles to come, and the walk itself; the first error. */
	unsigned pending;
	int error;
	char *message;
};

/* A chunk, or rows side by side, on the way to memory, or kept. */
struct sl_tile {
	struct sl_array *array;
	uint64_t number;
	uint64_t first[SL_ARRAY_DIMENSIONS];
	struct sl_task task;
	/* Guarded by the array's mutex. */
	struct sl_list bucket, link, portions;
	unsigned holds; /* threads that copy from kept bytes */
	bool kept;      /* its bytes are there */
	/* The worker's that has the tile: see tile_leave(). */
	struct sl_undoing *undoing;
	/* The thread's that goes on with the tile. */
	struct sl_h5_place place;
	struct sl_h5_state state;
	uint64_t generation;
	uint64_t cut, cut_bytes; /* the tile's bytes in the portion; 0, 0: all */
	int64_t deadline;        /* see SL_ARRAY_PATIENCE_NS; 0: it has not begun anew */
	struct sl_piece *piece;  /* for the inner backend, */
	char *stored;            /* and the bytes in it, or without a piece in memory alone */
	size_t wanted;           /* bytes that have to come by the piece */
	bool read;               /* it is there */
	char *bytes;             /* decoded, to be kept */
	/* Of a remote file, guarded by the array's mutex: hauls to come; the first error; bytes
	 * that are counted. */
	unsigned hauls;
	uint64_t memory;
	int error;
	char *message;
};

/* --------------------------------------------------------------------------------------- jobs */

/* For sl_backend_ops. */
void sl_array_submit(struct sl_backend *backend, struct sl_piece *piece);
/* The task of steps. */
void sl_array_step(struct sl_task *task);

/* -------------------------------------------------------------------------------------- tiles */

/* Gives a tile with a known place to a worker. */
void sl_tile_submit(struct sl_tile *tile);
/* The same for a new tile: bytes side by side are parts, which several workers read. */
void sl_tile_start(struct sl_tile *tile);
/* Reads a tile with a known place, and undoes the filters, as a worker does. */
void sl_tile_run(struct sl_tile *tile);
/* Ends a tile. bytes: decoded, or NULL: there are none, and portions get the fill value. direct:
 * that portion has them already; or NULL. undoing: has perhaps the bytes, and is given back; or
 * NULL. With an error the sentence is the thread's last. */
void sl_tile_end(struct sl_tile *tile, const char *bytes, const struct sl_portion *direct,
                 struct sl_undoing *undoing, int error);
static inline bool sl_job_stopped(const struct sl_job *job)
{
	if (job->whole)
		job = job->whole;
	return atomic_load_explicit(&job->base.cancelled, memory_order_relaxed);
}
/* Keeps the first error of a job. message: NULL, or the sentence. With the array's mutex. */
void sl_job_fail_locked(struct sl_job *job, int error, const char *message);
/* Counts the end of a tile or of the walk, with the array's mutex. Returns whether the job is over:
 * the caller ends it without the mutex, and then the file may be gone. */
bool sl_job_count_locked(struct sl_job *job);
void sl_job_end(struct sl_job *job);
/* Appends a job, with its walk, to the list for steps. */
void sl_job_start(struct sl_array *array, struct sl_job *job);
/* Whether there is no room for a tile more, or for the given part of the room. */
bool sl_tiles_full_locked(const struct sl_array *array, unsigned part) SL_REQUIRES(&array->mutex);
/* For sl_backend_ops. */
void sl_array_cancel(struct sl_backend *backend);

/* ------------------------------------------------------------------------------------ virtual */

/* Starts the parts of a virtual dataset's job. May wait, as a step. */
void sl_virtual_begin(struct sl_array *array, struct sl_job *job);
/* Whether no part before has the same source. */
bool sl_virtual_first(const struct sl_array *array, size_t part);

/* Whether no job wants it. With the array's mutex. */
bool sl_tile_is_unwanted_locked(const struct sl_tile *tile);
/* The same; then no job finds the tile any more, and it may end with -ECANCELED. */
bool sl_tile_give_up_locked(struct sl_tile *tile);
/* Whether the tile has stored bytes, which have to be read. */
bool sl_tile_is_stored(struct sl_tile *tile);

/* --------------------------------------------------------------------------------------- haul */

/* Has tiles with known places read, in the order of the file; they go to workers. left: bytes that
 * jobs still want, for the length of requests. */
void sl_hauls_submit(struct sl_array *array, struct sl_tile **tiles, size_t count, uint64_t left);
/* Ends hauls if nobody wants their tiles. */
void sl_hauls_cancel_locked(struct sl_array *array) SL_REQUIRES(&array->mutex);

/* --------------------------------------------------------------------------------------- look */

/* Opens a dataset in one state of the file. Returns 0, or -errno with a sentence. */
int sl_array_look(struct sl_array *array, const char *dataset, struct sl_h5_reader **reader,
                  struct sl_h5_array *found, struct sl_h5_state *state);
/* The frames of the longest source. */
uint64_t sl_virtual_length(const struct sl_array *array, const struct sl_h5_array *of);
/* Opens the dataset again, as it is now. *length: the elements of its first dimension. */
int sl_array_look_again_locked(struct sl_array *array, uint64_t *length)
	SL_REQUIRES(&array->h5.mutex);
/* Finds the places of tiles, in a state of the file; their fields say which. Returns 0, or -errno
 * with a sentence. */
int sl_array_find(struct sl_array *array, struct sl_tile **tiles, size_t count);
/* The bytes of so many frames. Returns 0, or -EBADMSG with a sentence: no file has as many. */
int sl_array_measure(const struct sl_array *array, uint64_t length, uint64_t *bytes);

/* --------------------------------------------------------------------------------------- kept */

/* Memory for a thread that undoes filters. */
struct sl_undoing {
	struct sl_list link;
	struct sl_unfilter *unfilter;
	char *stored;
	size_t room; /* of these */
	char *bytes; /* of a chunk; or NULL */
};
/* Returns memory for so many stored bytes; NULL: there is none. */
struct sl_undoing *sl_undoing_take(struct sl_array *array, size_t n);
void sl_undoing_give(struct sl_array *array, struct sl_undoing *undoing); /* NULL is allowed */
/* Before the first submission, and when nothing is in flight. shares: parts of the memory. */
void sl_tiles_init(struct sl_array *array, size_t shares);
void sl_tiles_free(struct sl_array *array);
/* Forgets kept tiles: the file is in another state. */
void sl_tiles_forget(struct sl_array *array, const struct sl_h5_state *state);
/* Forgets kept tiles, the oldest first, until there are as few; those in use stay. */
void sl_tiles_shrink_locked(struct sl_array *array, unsigned most) SL_REQUIRES(&array->mutex);
struct sl_list *sl_tile_bucket(struct sl_array *array, uint64_t number);
void sl_tile_free(struct sl_tile *tile);

#endif
