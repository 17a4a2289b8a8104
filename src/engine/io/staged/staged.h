/* SPDX-License-Identifier: Apache-2.0 */
/* Staged operations: chunks, slots, and the four routes of their bytes. */
#ifndef SL_IO_STAGED_H
#define SL_IO_STAGED_H

#include "io/io_internal.h"

/* ------------------------------------------------------------------------------------ chunks */

/* A box of an array, in bricks: see bricks.c. */
struct sl_bricks {
	const struct sl_box *box;
	const uint64_t *tile; /* of the limits */
	uint64_t element;
	uint64_t unit[SL_BOX_RANK]; /* bricks are cut at multiples */
};

/* Cuts the extents of an operation into chunks, in order. A slot holds a chunk at a time. */
struct sl_chunks {
	struct sl_bricks *bricks; /* or NULL. With bricks the only extent is the box's memory */
	const struct sluice_extent *extents;
	size_t count;
	uint64_t direct_bytes; /* ranges of at least that lie in their slots as in the file */
	uint64_t file_size;    /* bytes behind it are in no chunk */
	uint64_t gap;          /* between extents of one range, at most, */
	unsigned dropped;      /* and at most so many times as long as they are */
	bool write;            /* extents of at least direct_bytes, and no others, are large */
	bool apart;            /* a chunk is of a single extent */
	bool whole;            /* and of all of it */
	uint64_t cold;         /* storage that alone seems to have the bytes of a long read, or 0 */
	bool on_stream; /* the commands of all chunks are to be in the device's queue at once */
	size_t slot_bytes;
	/* Where the next chunk begins: in an extent, or in the brick with that number. */
	size_t extent;
	uint64_t position;
};
/* Of a chunk. A span that lies in memory of two steps has two copies. */
#define SL_SPANS_MOST (SL_JOB_COPIES_MOST - 1)
struct sl_chunk {
	size_t extent; /* or brick: the next span's, as are the next four */
	uint64_t position;
	size_t at; /* in the slot */
	uint64_t length;
	uint64_t gap;
	bool joined;    /* it has the same range as the chunk before */
	bool large;     /* in a range of at least direct_bytes */
	unsigned spans; /* that are left */
};
/* Bytes of an extent that are contiguous in the slot, the file, and the operation's memory. */
struct sl_span {
	char *memory;
	size_t at, length;
	uint64_t offset;
	uint64_t gap; /* bytes of the file before it that are in the slot, and in no span */
};
/* Chooses slot_bytes, the number of slots, and bricks. half: the bytes of pinned memory. Returns 0,
 * or -ENOTSUP with a sentence. */
int sl_chunks_plan(struct sl_chunks *chunks, const struct sl_limits *limits,
                   const struct sl_settings *settings, size_t half, unsigned *slots);
/* The shortest slot for so many bytes. */
size_t sl_slot_power_of_two(uint64_t n);
/* Take the next chunk, or the next span or range of a chunk, and use it up. False past the last. */
bool sl_chunk_next(struct sl_chunks *chunks, struct sl_chunk *out);
bool sl_span_next(const struct sl_chunks *chunks, struct sl_chunk *chunk, struct sl_span *out);
/* A range: spans, with their gaps, that are contiguous in the slot and in the file; gap: of all. */
bool sl_slot_range_next(const struct sl_chunks *chunks, struct sl_chunk *chunk,
                        struct sl_span *out);

/* The same for a box in bricks. number, position: where the chunk begins, and the next. */
bool sl_brick_chunk(const struct sl_bricks *bricks, size_t slot, size_t *number, uint64_t *position,
                    struct sl_chunk *out);
bool sl_brick_span(const struct sl_bricks *bricks, char *memory, struct sl_chunk *chunk,
                   struct sl_span *out);
/* Writes the brick with the chunk. The range of the chunk counts bytes in this box. */
void sl_brick_box(const struct sl_bricks *bricks, const struct sl_chunk *chunk, struct sl_box *out);
/* Chooses units, and returns slot_bytes. all: bytes of the box; *slots: at least, and then as
 * many as are wanted. More chunks than most_chunks make longer slots, as far as there are. */
size_t sl_bricks_plan(struct sl_bricks *bricks, uint64_t all, const struct sl_settings *settings,
                      size_t half, unsigned most_chunks, unsigned *slots);

/* ------------------------------------------------------------------------------------ staged */

struct sl_route;
struct sl_transfer;
struct sl_fan_chunk;

/* A slot, and the progress of its chunk. Guarded by op->mutex. */
struct sl_slot_use {
	struct sl_staged *staged;
	unsigned index;
	uint64_t number; /* of the chunk */
	struct sl_chunk chunk;
	struct sl_box box; /* the chunk's brick, if there are bricks */
	unsigned pieces;   /* in flight */
	bool handed;       /* all its pieces have been handed out */
	uint64_t moved;    /* of its bytes */
	/* Of route_copier.c: */
	bool ready;             /* to be filled (read), or full (write) */
	bool empty;             /* of a write: for the copier to fill */
	struct sl_task task;    /* has the thread that waits, or the copier, do the job */
	struct sl_copy_job job; /* while it is in flight the copier reads the next two */
	struct sl_chunk walk;
	uint64_t left;
	struct sl_fan_chunk *fan; /* of fan.c: instead of the last three */
	struct sl_span part;      /* the rest of a span, if the slot was pinned in two steps */
};

/*
 * How far an operation has come in its chunks:
 *
 *   shape                 how all are cut; fixed before the first
 *   locked.chunks, next   where storage is: the next chunk that is handed out in pieces
 *   given                 where the device is: of sl_route_stream the next that is enqueued, the
 *                         submitting call's; of a write by route_copier.c the next that the copier
 *                         fills, `filled` by number, guarded by op->mutex
 *   ring.entered          by number: how many the stream has been given, or will be
 *   locked.passed         by number: how many the stream has passed
 */
struct sl_staged {
	struct sluice_op *op;
	const struct sl_route *route;
	struct sl_staging *staging;
	sluice_stream stream;
	struct sl_slot_waiter waiter;
	struct sl_coming coming; /* linked from sl_staged_announce() to sl_staged_settle() */
	bool granted; /* of route_copier.c: the slots, before the start; for its thread alone */
	struct sl_ring ring; /* not of route_copier.c */
	unsigned count;      /* of slots and uses */
	bool seated;         /* a long read, until its end */
	int64_t began;       /* a cold read */
	struct sl_chunks shape;

	struct {
		bool started;      /* nothing holds the operation back, and its plan is made */
		bool waiting;      /* for slots; of route_copier.c */
		bool submitting;   /* there may be more to enqueue */
		bool exhausted;    /* the last piece has been handed out */
		bool draining;     /* a slot's last word was refused: the stream has to run out, */
		bool drained;      /* and it has */
		unsigned copies;   /* of the copier, in flight */
		unsigned commands; /* in flight on the device */
		struct sl_chunks chunks;
		uint64_t next;
		struct sl_slot_use *current; /* its pieces are handed out now; or NULL */
		uint64_t filled, passed;
		struct sluice_extent extent; /* that op->locked.plan cuts */
		struct sl_list fan_spare;    /* of fan_chunks: in no use */
	} locked;                            /* guarded by op->mutex */

	_Atomic uint64_t expected; /* of a read: bytes that its slots have yet to get */

	struct sl_copy_job drain; /* while draining */
	struct sl_chunks given;
#define SL_COSTS_MOST (2 * SL_COMMANDS_MOST / 3)
	/* Of sl_route_stream: the cost of each chunk, by number, from the look at its window until
	 * the stream has passed it. A chunk is 3 or more: SL_COMMANDS_MOST / 3 are in flight at
	 * most, and the window behind them has fewer. */
	uint16_t *costs;

	/* Of route_transfers.c. The submitting call's; untouched until the stream has passed. */
	struct sl_transfer *transfers;
	unsigned transfer_count;

	struct sl_fan_chunk *fan_chunks; /* of fan.c; NULL: there is one target */

	struct sl_slot *slots;
	struct sl_slot_use uses[];
};

/* Makes the staged part of an operation, on a staging of the memory's device or, without such
 * memory, of the stream's. Returns 0, or a negative errno with a sentence. */
int sl_staged_new(struct sluice_op *op, struct sl_staging *staging, const struct sl_route *route,
                  sluice_stream stream);
void sl_staged_free(struct sl_staged *staged);
/* Starts an operation that nothing holds back; op->locked.plan has its limits. */
void sl_staged_start(struct sluice_op *op);
/* The first step of a route's start(). */
void sl_staged_begin_locked(struct sluice_op *op) SL_REQUIRES(&op->mutex);
/* Returns the memory in a slot for a read of one extent that is a single chunk; NULL: it is another
 * operation, or has no slot yet. */
char *sl_staged_memory(struct sluice_op *op);
/* Says that all bytes of such a read are there before it has started: it needs nothing but the
 * device. Returns with op->mutex, for the pump. */
void sl_staged_filled(struct sluice_op *op, const char *memory, uint64_t moved)
	SL_ACQUIRES(&op->mutex);
/* Tell a backend of a write, as struct sl_slot_writes. The first: 0, or -errno with a sentence. */
int sl_staged_admit(struct sluice_op *op);
void sl_staged_announce(struct sluice_op *op);
void sl_staged_settle(struct sluice_op *op);
/* Makes op->locked.plan cut the next extent. Returns false if there is none now, or never again. */
bool sl_staged_next_locked(struct sluice_op *op) SL_REQUIRES(&op->mutex);
/* A piece of a read is over, on the thread that moved it. No lock held. */
void sl_staged_got(struct sluice_op *op, const struct sl_piece *piece);
/* A piece in that slot is over. */
void sl_staged_piece_done_locked(struct sluice_op *op, struct sl_slot_use *use, size_t moved)
	SL_REQUIRES(&op->mutex);
/* Lets the stream go on: the operation has failed or was cancelled. */
void sl_staged_stop_locked(struct sluice_op *op) SL_REQUIRES(&op->mutex);
/* Returns true if the operation does not touch the file any more; or neither file nor memory. */
bool sl_staged_stored_locked(struct sluice_op *op) SL_REQUIRES(&op->mutex);
bool sl_staged_over_locked(struct sluice_op *op) SL_REQUIRES(&op->mutex);
/* Gives back slots and commands. */
void sl_staged_end(struct sluice_op *op);

/* ------------------------------------------------------------------------------------ routes */

#define SL_BATCH_COMMANDS (2 * SL_SPANS_MOST)
#define SL_BATCH_CHUNKS   32

/* Commands that are to be given to the stream, and where the chunks end in them. */
struct sl_batch {
	struct sluice_op *op;
	struct sl_command commands[SL_BATCH_COMMANDS];
	size_t count;
	struct {
		uint64_t number;
		size_t start, end;
	} chunks[SL_BATCH_CHUNKS];
	unsigned chunk_count;
	uint64_t enqueued; /* chunks in all */
	/* Has commands in the stream, but not the write of its last word; NULL: none. */
	struct sl_slot *unfinished;
};
/* Adds the await, the copies of a chunk, if it has any, and the write of the word. */
void sl_batch_add(struct sl_batch *batch, uint64_t number, struct sl_chunk *chunk);
/* Gives the commands to the stream. Returns 0 or the driver's error. */
int sl_batch_flush(struct sl_batch *batch);

/* The chunks that are entered and enqueued together, and their commands. */
struct sl_window {
	uint64_t chunks;
	unsigned commands;
	bool more; /* than these */
};

/* A route. The functions run with op->mutex held, unless they say otherwise; those of stream order
 * are NULL for a route that is awaited on the host. */
struct sl_route {
	bool on_stream;     /* in stream order: slots have words */
	bool has_memory;    /* slots have memory, and hold chunks */
	bool awaits;        /* a read waits for the stream, too */
	bool stream_stores; /* the stream moves the bytes to and from the file itself */

	/* Optional: makes what the route adds. Returns 0, or a negative errno with a sentence. */
	int (*make)(struct sl_staged *staged);
	/* Required. Calls sl_staged_begin_locked(), pumps unless it waits. Takes op->mutex. */
	void (*start)(struct sluice_op *op);
	/* For small reads at submission, or NULL, both: returns the memory of the first slot, NULL
	 * if it is not free, no lock held; and takes the only chunk, which is in it. */
	char *(*memory)(struct sluice_op *op);
	void (*filled)(struct sluice_op *op);
	/* Optional: ends a wait for slots. Takes op->mutex. */
	void (*cancel)(struct sluice_op *op);
	/* Makes the plan cut the next extent, as sl_staged_next_locked(). NULL: no pieces. */
	bool (*next)(struct sluice_op *op);
	/* Required with memory: the slot for a chunk, to be filled (read) or with the chunk
	 * (write); NULL: not yet. */
	struct sl_slot_use *(*slot)(struct sluice_op *op, uint64_t number);
	/* Required with memory: storage has done its part of a chunk. */
	void (*chunk_done)(struct sluice_op *op, struct sl_slot_use *use);
	/* Optional: no piece is in flight or to come. Lets the stream pass the last word. */
	void (*finish)(struct sluice_op *op);
	/* Optional: the operation is over. No lock held. */
	void (*end)(struct sluice_op *op);

	/* Required in stream order. Returns the next window: at most so many commands, but for the
	 * first chunk. It ends early at more than SL_COMMANDS_MOST. The submitting call, no
	 * lock. */
	struct sl_window (*window)(struct sl_staged *staged, unsigned most);
	/* Required in stream order. Enqueues a window: the submitting call, with ctx->submission.
	 * Waits for nothing but the driver. Returns 0 or the driver's error. */
	int (*enqueue)(struct sl_batch *batch, const struct sl_window *window);
};

extern const struct sl_route sl_route_copier;    /* memory of a device, awaited on the host */
extern const struct sl_route sl_route_stream;    /* memory of a device, in stream order */
extern const struct sl_route sl_route_direct;    /* host memory in stream order */
extern const struct sl_route sl_route_transfers; /* in stream order, by the backend */

/* start() of a route in stream order that needs nothing else. */
void sl_stream_start(struct sluice_op *op);
/* next() of the routes with memory: the ranges of the next chunk, once its slot is ready. */
bool sl_route_next_range(struct sluice_op *op) SL_REQUIRES(&op->mutex);

/* The most transfers of an operation: a stream is given all of them together. */
#define SL_TRANSFERS_MOST 64
/* Whether the operation has no more of them. */
bool sl_transfers_fit(const struct sluice_op *op);

/* ----------------------------------------------------------------------------------- fan-out */

struct sl_fan_target {
	struct sl_device *device;
	struct sl_staging *staging;
	unsigned source; /* of its bytes: another target; UINT_MAX: the slot */
};
/* The memories that a read goes to; the first is that of its extents. Fixed at submission. */
struct sl_fan {
	unsigned count;
	struct sl_fan_target targets[SL_DEVICES_MOST];
	void *to[]; /* for each target but the first the addresses of all extents, or NULL */
};
/* Takes the further memory of a request. Returns 0, or a negative errno with a sentence. */
int sl_fan_new(struct sluice_op *op, const struct sluice_request *r);
/* Finds devices and sources, for an operation of sl_route_copier, in the submitting call. May call
 * the driver. Returns 0, or a negative errno with a sentence. */
int sl_fan_begin(struct sluice_op *op);
/* Reserves the copies of a chunk for a slot. Returns false if too many chunks are on their way. */
bool sl_fan_take_locked(struct sl_staged *staged, struct sl_slot_use *use);
/* Has the bytes in a chunk copied from the slot to all targets. */
void sl_fan_submit_locked(struct sl_slot_use *use, uint64_t bytes);

/* ------------------------------------------------------------------------------ stream order */

/* Submits an operation in stream order that is whole and admitted. Returns as sl_op_enter(). */
int sl_stream_enter(struct sluice_op *op, sluice_op **out);
/* The poller's callbacks of a ring. */
void sl_stream_moved(struct sl_ring *ring);
void sl_stream_hold(struct sl_ring *ring);
void sl_stream_release(struct sl_ring *ring);

#endif
