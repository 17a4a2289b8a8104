/* SPDX-License-Identifier: Apache-2.0 */
/* Contexts, files and operations: what the files of this room share. */
#ifndef SL_IO_H
#define SL_IO_H

#include "backend/backend.h"
#include "core/core.h"
#include "device/device.h"
#include "staging/staging.h"

/* -------------------------------------------------------------------------------------- plan */

/* Cuts the extents of an operation into pieces, one at a time, in order. */
struct sl_plan {
	const struct sluice_extent *extents;
	size_t count;
	const struct sl_limits *limits;
	uint64_t direct_bytes; /* extents from this length on may go around the page cache */
	uint64_t file_size;    /* bytes behind it are not read */
	size_t piece_bytes;    /* largest piece; 0: that of the limits */
	size_t extent;         /* where the next piece begins */
	uint64_t position;     /* in that extent */
};
struct sl_next_piece {
	char *data;
	size_t length;
	uint64_t offset;
	bool large;   /* of an extent of at least direct_bytes */
	bool aligned; /* large, and at multiples of the alignment */
};

/* The largest piece of an operation, when that many bytes of its file are on the way. */
size_t sl_plan_piece(const struct sl_limits *limits, uint64_t bytes);
/* False: there is no further piece. */
bool sl_plan_peek(struct sl_plan *plan, struct sl_next_piece *out);
void sl_plan_advance(struct sl_plan *plan, const struct sl_next_piece *cut);

/* ------------------------------------------------------------------------------------- chunk */

/* Cuts the extents of an operation into chunks, what one slot holds at a time, in order. */
struct sl_chunks {
	const struct sluice_extent *extents;
	size_t count;
	uint64_t direct_bytes; /* extents from this length on lie in their slots as in the file */
	uint64_t file_size;    /* bytes behind it are in no chunk */
	bool apart;            /* a chunk is of one extent */
	bool whole;            /* and of all of it */
	size_t slot_bytes;
	size_t extent; /* where the next chunk begins */
	uint64_t position;
};
struct sl_chunk {
	size_t extent; /* of the next segment */
	uint64_t position;
	size_t at; /* in the slot */
	uint64_t length;
	unsigned segments; /* that are left */
};
/* Bytes that are together in the slot, in the file, and in the operation's memory. */
struct sl_slot_range {
	char *memory;
	size_t at, length;
	uint64_t offset;
	bool large; /* of an extent of at least direct_bytes */
};
/* Chooses slot_bytes and the number of slots. -ENOTSUP with a sentence. part: bytes of pinned memory
 * that there are. */
int sl_chunks_plan(struct sl_chunks *chunks, const struct sl_limits *limits,
                   const struct sl_settings *settings, size_t part, unsigned *slots);
/* False: there is no further chunk, or segment. The chunk is used up. */
bool sl_chunk_next(struct sl_chunks *chunks, struct sl_chunk *out);
bool sl_slot_range_next(const struct sl_chunks *chunks, struct sl_chunk *chunk,
                        struct sl_slot_range *out);

/* ------------------------------------------------------------------------------------ staged */

/* How the bytes of an operation get to their memory, if not directly. */
enum sl_way {
	SL_WAY_HOST,   /* memory of a device, awaited on the host: slots, and the copier */
	SL_WAY_STREAM, /* memory of a device, in stream order: slots in a ring */
	SL_WAY_DIRECT, /* host memory in stream order: as it is, between two turns of a word */
	SL_WAY_DEVICE, /* memory of a device, in stream order: the backend has the stream do it, and a turn
	                * of a word is behind that */
};

struct sl_staged;

/* A slot, and what its chunk is doing. Guarded by op->mutex. */
struct sl_slot_use {
	struct sl_staged *staged;
	unsigned index;
	uint64_t number; /* of the chunk */
	struct sl_chunk chunk;
	unsigned pieces; /* in flight */
	bool handed;     /* all its pieces have been handed out */
	uint64_t moved;  /* of its bytes */
	/* SL_WAY_HOST: */
	bool ready;              /* to be filled (read), or full (write) */
	bool empty;              /* of a write: for the copier to fill */
	struct sl_copy_job copy; /* while that is in flight, the copier reads the next two */
	struct sl_chunk walk;
	uint64_t left;
};

struct sl_staged {
	struct sluice_op *op;
	enum sl_way way;
	struct sl_staging *staging;
	sluice_stream stream;
	struct sl_slot_waiter ask;
	struct sl_ring ring;    /* not of SL_WAY_HOST */
	unsigned count;         /* of slots and seats */
	struct sl_chunks shape; /* how all chunks are cut; fixed before the first */

	struct {
		bool started; /* the operation's turn among others has come, and its plan is made */
		bool asking;  /* for slots; of SL_WAY_HOST */
		bool submitting; /* there may be more to enqueue */
		bool exhausted;  /* the last piece has been handed out */
		bool torn;    /* the device refused a slot's last word: the stream has to run out */
		bool ran_out; /* and it has */
		unsigned copies;              /* of the copier, in flight */
		unsigned commands;            /* in flight on the device */
		struct sl_chunks chunks;      /* that are handed out in pieces */
		uint64_t next;                /* the number of the next of them */
		struct sl_slot_use *seat;     /* whose pieces are handed out now, or NULL */
		struct sl_chunks copied;      /* SL_WAY_HOST, write: those that the copier fills */
		uint64_t filled;              /* the number of the next of them */
		struct sluice_extent segment; /* what op->locked.plan cuts */
	} locked;                             /* guarded by op->mutex */

	_Atomic uint64_t expected; /* of a read: bytes that its slots have yet to get */

	struct sl_copy_job drain; /* while torn */
	/* The submitting call's, and those that are given back as the stream passes, guarded by
	 * op->mutex. */
	struct sl_chunks enqueued, passed;
	uint64_t passed_number;

	/* SL_WAY_DEVICE: what the stream moves. The submitting call's, then nobody's until the stream has
	 * passed. */
	struct sl_transfer *transfers;
	unsigned transfer_count;

	struct sl_slot *slots;
	struct sl_slot_use seats[];
};

/* The way of a request to memory of that staging's device; of SL_WAY_DIRECT the device is the stream's. With a
 * sentence on failure. */
int sl_staged_new(struct sluice_op *op, struct sl_staging *staging, enum sl_way way,
                  sluice_stream stream);
void sl_staged_free(struct sl_staged *staged);
/* The operation's turn has come; op->locked.plan has its limits. Goes on by itself. */
void sl_staged_start(struct sluice_op *op);
/* Where a read in stream order that is one segment goes, whose slot is there; NULL: it is another. */
char *sl_staged_place(struct sluice_op *op);
/* All of it is there, before the operation has started: it needs nothing but the device. */
void sl_staged_filled(struct sluice_op *op, const char *place, uint64_t moved);
/* With op->mutex: lets op->locked.plan cut what comes next. False: nothing now, or never again. */
bool sl_staged_next(struct sluice_op *op);
/* A piece of a read is over, on the thread that moved it. */
void sl_staged_got(struct sluice_op *op, const struct sl_piece *piece);
/* With op->mutex: whether the stream has come to the operation: it waits for the seat's pieces before it
 * waits for those of operations behind. */
bool sl_staged_urgent(const struct sl_slot_use *seat);
/* With op->mutex: a piece of that seat is over. */
void sl_staged_piece_done(struct sl_slot_use *seat, size_t moved);
/* With op->mutex: the operation has failed or was cancelled: nothing holds the stream up. */
void sl_staged_stop(struct sluice_op *op);
/* Without: what waits for slots waits no longer. */
void sl_staged_cancel(struct sluice_op *op);
/* With op->mutex: whether nothing of it touches the file any more; and not the memory either, neither
 * here nor on the device. */
bool sl_staged_stored(struct sluice_op *op);
bool sl_staged_over(struct sluice_op *op);
/* It is torn: has the copier find out when the stream has run out. On the thread that submitted, because a
 * default stream may be its own. */
void sl_staged_drain(struct sluice_op *op);
/* Gives back what the operation had. */
void sl_staged_end(struct sluice_op *op);

/* Whether a request, which may be of an older program, has the field. */
#define SL_REQUEST_HAS(r, field) \
	((r)->size >= offsetof(struct sluice_request, field) + sizeof((r)->field))
static inline bool sl_wants_stream(const struct sluice_request *r)
{
	return SL_REQUEST_HAS(r, stream) && r->on;
}
/* How the bytes get to their memory: fills in what the operation says of that. In a public call; may call the
 * driver. With a sentence on failure. */
int sl_op_find_way(struct sluice_op *op, const struct sluice_request *r);

/* Submits an operation in stream order: op is whole and admitted. As enter() in submit.c. */
int sl_stream_enter(struct sluice_op *op, sluice_op **out);
/* An operation is over, or late no more: submissions that waited for one look again. */
void sl_late_left(struct sluice_context *ctx);

/* --------------------------------------------------------------------------------- transfers */

/* Of one operation: a stream is given all of them in one step. */
#define SL_TRANSFERS_MOST 64
/* What a transfer may be on a device, for the bound of commands in flight. */
#define SL_TRANSFER_COMMANDS 4
bool sl_transfers_fit(const struct sluice_op *op);
int sl_transfers_new(struct sl_staged *staged);
/* Gives them to the stream; with the submission lock. On failure the operation has failed, and what the
 * stream was given before runs out. */
void sl_transfers_enqueue(struct sl_staged *staged);
/* The stream has passed them: what came of them. */
void sl_transfers_passed(struct sl_staged *staged);

/* ------------------------------------------------------------------------------------- order */

/* What an operation does to the bytes of its spans. A barrier comes after all that is there. */
enum sl_effect { SL_READS, SL_WRITES, SL_BARRIER, SL_EFFECTS };

/*
 * The bytes of one file, however many handles show it, and the ranges of the operations on them
 * that are not over. An operation starts when no earlier one that holds it back overlaps it.
 */
struct sl_object {
	struct sl_list link; /* guarded by the context's files.mutex, as are the next two */
	char *identity;
	unsigned references; /* files */

	struct sl_mutex mutex;
	struct {
		struct sl_intervals spans[SL_EFFECTS][2]; /* [1]: of operations that are late */
		uint64_t sequence;                        /* of the last operation that entered */
	} locked;                                         /* guarded by mutex */
	_Atomic uint64_t writes; /* that have entered, and that are there: see sl_order_mark() */
};

/* One range of an operation in its object. */
struct sl_range {
	struct sl_interval interval;
	struct sluice_op *op;
};

/*
 * Enters the operation's spans. 0: it may start; 1: sl_order_leave() of another one will hand it
 * out; -EINVAL: ranges of one write overlap each other (it has not entered); -EBUSY: it is in stream
 * order, and would wait for one that is late, or for any if its stream says when (it has not entered).
 */
int sl_order_enter(struct sluice_op *op);
/* Takes the operation out, and appends those that may start now to ready. */
void sl_order_leave(struct sluice_op *op, struct sl_list *ready);
/* An operation in stream order is enqueued whole. */
void sl_order_enqueued(struct sluice_op *op);
/* True: the operation was waiting, and nobody will hand it out any more. */
bool sl_order_withdraw(struct sluice_op *op);

/* For a read that does not enter. 0: there are writes; else there are none, and were none while it was the same. */
uint64_t sl_order_mark(struct sl_object *object);

void sl_object_init(struct sl_object *object, char *identity);
void sl_object_destroy(struct sl_object *object);

/* ---------------------------------------------------------------------------------- operation */

/* Public kinds first; the others are awaited inside the call that makes them. */
enum sl_kind { SL_READ = SLUICE_READ, SL_WRITE = SLUICE_WRITE, SL_SYNC, SL_TRUNCATE };

enum { SL_OP_DONE = 1, SL_OP_AWAITED = 2 }; /* bits of sluice_op.state */

/* A piece and whose it is. */
struct sl_part {
	struct sl_piece piece;
	struct sl_list link; /* guarded by op->mutex: in flying or spare */
	struct sluice_op *op;
	struct sl_slot_use *seat; /* whose slot the piece is in, or NULL */
};

struct sluice_op {
	_Atomic uint32_t references; /* the handle's and the engine's */
	_Atomic uint32_t state;      /* SL_OP_DONE is set last, once; the result is valid then */
	int64_t result;
	char *message; /* or NULL */

	/* Fixed at submission. */
	struct sluice_context *ctx;
	struct sluice_file *file; /* valid while the operation is not over */
	enum sl_kind kind;
	bool detached;            /* no handle was asked for: errors go to the file */
	struct sl_staged *staged; /* NULL: between storage and the caller's memory directly */
	struct sl_device *device; /* that has this memory, if it is not the host's */
	bool on_stream;           /* in stream order */
	bool at_once;             /* it was over when it was made: see sl_done_new() */
	void *user;
	/* Told when the result stands, by the thread that ends the operation, which holds no lock that
	 * anything but submissions take; must not wait. NULL: nobody. For operations of the library itself. */
	void (*over)(struct sluice_op *);
	uint64_t length; /* what SL_TRUNCATE sets */
	uint64_t bytes;  /* what it added to file->bytes when it started */
	bool missed;     /* the backend was asked for what is in memory, and it was not */
	bool preparing;  /* it is in a list of its file; guarded by the file's mutex */
	struct sluice_extent *extents;
	size_t count;

	struct {
		struct sl_object *object;
		struct sl_range *ranges;
		size_t count;
		enum sl_effect effect;
		/* Guarded by object->mutex, as are the next: among the waiters of another, or of those
		 * that may start. */
		struct sl_list link;
		struct sl_list waiters; /* those that look again when it has left */
		uint64_t sequence;
		size_t passed; /* spans that nothing holds back any more: the first so many */
		bool waits;    /* it is a waiter of another */
		/* Nothing in stream order may be enqueued behind it yet: it, or what it waits for, needs a
		 * thread that calls the driver, or has not been enqueued whole. */
		bool blocks_streams;
		/* Its effect comes when this stream comes to it, whatever else is in flight: it does not
		 * enter while anything holds it back but others of that stream. NULL: we say when. */
		sluice_stream stream;
		bool follows; /* an overlapping one of that stream: what it finds is not known yet */
	} order;

	struct sl_task task; /* what has to be done on a worker before, or instead of, pieces */

	struct sl_mutex mutex;
	struct {
		struct sl_plan plan;
		unsigned in_flight;
		bool pumping; /* one thread hands out pieces; others leave word in again */
		bool again;
		bool stopped; /* failed or cancelled: no further pieces */
		bool stored;  /* nothing of it touches the file any more: it has left its object */
		bool over;    /* nothing is in flight, and somebody ends it */
		bool ended;   /* the result stands */
		bool aligned; /* of the piece handed out last */
		int error;    /* the first */
		uint64_t moved;
		struct sl_list flying, spare;
		int fd; /* sluice_op_fd(), or -1 */
	} locked;       /* guarded by mutex */

	struct {
		struct sl_list link;
		/* By wait or next_done, or the handle is gone. Set last; true without the mutex, too. */
		_Atomic bool reported;
	} done; /* guarded by ctx->done.mutex */

	/* For the common operation: one extent, one piece. */
	struct sluice_extent one_extent;
	struct sl_range one_range;
	struct sl_part one_part;
};

/* An operation with no extents yet; the caller holds its one reference. NULL: no memory. */
struct sluice_op *sl_op_new(struct sluice_context *ctx, struct sluice_file *file,
                            enum sl_kind kind);
void sl_op_unref(struct sluice_op *op);
/* Starts what may start; takes over one reference of each. */
void sl_op_start_all(struct sl_list *ready);
void sl_op_start(struct sluice_op *op);
/* It was stopped: if it waits for others, the size or slots, it ends. */
void sl_op_withdraw(struct sluice_op *op);
/*
 * Hands out pieces until enough are in flight, and ends the operation if it is over. With op->mutex,
 * which it releases, and by a thread that knew until then that the operation is not over, or that has a
 * reference to it.
 */
void sl_op_pump_locked(struct sluice_op *op);
/* Ends an operation that has no pieces: the engine's reference is gone afterwards. */
void sl_op_end(struct sluice_op *op);
/* Keeps the first error and its sentence, which it frees otherwise. Takes op->mutex. */
void sl_op_fail(struct sluice_op *op, int error, char *message);

/* Submits an operation of the library itself, without a handle, and not counted among those that a
 * program may have. Its over() gets r->user by sluice_op_user(). Not in stream order: host memory. */
int sl_op_submit(struct sluice_file *file, const struct sluice_request *r,
                 void (*over)(struct sluice_op *));
/* The same, between the file and memory of the staging's device. It is not held back by others, nor do they
 * wait for it. */
int sl_op_submit_staged(struct sluice_file *file, struct sl_staging *staging,
                        const struct sluice_request *r, void (*over)(struct sluice_op *));
/* Makes an operation that is awaited inside this call: sync or truncate. */
int sl_op_run(struct sluice_file *file, enum sl_kind kind, uint64_t length);
/* Waits for a place among max_operations. -EAGAIN if the file does not want to. */
int sl_op_admit(struct sluice_file *file);

/* -------------------------------------------------------------------------------------- done */

struct sl_done {
	struct sl_mutex mutex;
	pthread_cond_t arrived; /* of CLOCK_MONOTONIC */
	struct sl_list list;    /* guarded by mutex, as are the others */
	unsigned waiters;
	int fd; /* eventfd, or -1 */
	unsigned kept_count;
	struct sluice_op *kept[64]; /* of sl_done_new(), and nobody's */
};

void sl_done_init(struct sl_done *done);
void sl_done_destroy(struct sl_done *done);
/*
 * Sets SL_OP_DONE and puts the operation into the queue in one step, so that the queue has them in
 * the order in which sluice_poll() saw them end. Returns the state before.
 */
uint32_t sl_done_publish(struct sluice_op *op);
/* An operation that is over and in the queue; out is set before. False: no memory. */
bool sl_done_new(struct sluice_file *file, int64_t result, void *user, sluice_op **out);
/* Takes such a one, whose handle is gone, to serve again, and unrefers its context. False: there are enough. */
bool sl_done_keep(struct sluice_op *op);
/* The operation is not to be reported, or not any more. */
void sl_done_forget(struct sluice_op *op);

/* -------------------------------------------------------------------------------------- file */

#define SL_FILE_CLOSING (1u << 31)

struct sl_kept {
	int error; /* the first */
	char *message;
};

struct sluice_file {
	struct sluice_context *ctx;
	struct sl_backend *backend;
	struct sl_object *object;
	struct sl_limits limits;
	unsigned flags;
	char *uri;

	_Atomic uint64_t bytes;     /* of operations that have started and are not over */
	_Atomic uint32_t in_flight; /* operations, and SL_FILE_CLOSING */
	_Atomic uint32_t drained;   /* 1: closing, and nothing in flight; ends close's wait */

	struct sl_mutex mutex;
	struct {
		struct sl_kept untold; /* of operations without a handle; told once */
		/* Of all that change the file, told or not: it lacks something. */
		struct sl_kept failed;
		/* Operations that wait for the size, and those that it is asked for, or space is reserved
		 * for, by the task, which is submitted or runs while `asks`. */
		struct sl_list waiting, asked;
		bool asks;
	} locked; /* guarded by mutex */
	struct sl_task prepare;
};

/* A file over a backend that the library has made itself, which is the file's then, also on failure. */
int sl_file_wrap(struct sluice_context *ctx, const char *name, unsigned flags,
                 struct sl_backend *backend, struct sluice_file **out);
/* The operation has failed: what that means to its file. */
void sl_file_keep_error(struct sluice_file *file, const struct sluice_op *op);
/* An operation of the file is over. The file may be gone afterwards. */
void sl_file_release(struct sluice_file *file);

/* ----------------------------------------------------------------------------------- context */

#define SL_OBJECT_BUCKETS 64

struct sluice_context {
	struct sl_core core;
	_Atomic uint32_t references; /* the handle's and those of operations */

	struct sl_gate operations; /* in flight */

	struct sl_done done;

	/* Held while an operation in stream order takes its place among others and its commands are
	 * enqueued. No worker, reactor, doorbell or copier takes it. */
	struct sl_mutex submission;
	_Atomic uint32_t late_left;   /* counts operations that are over or late no more, */
	_Atomic uint32_t late_waited; /* while so many submissions wait for one */

	struct {
		struct sl_mutex mutex;
		struct sl_staging *staging[SL_DEVICES_MOST]; /* by device; never changed once set */
		struct sl_list
			link; /* of contexts that use devices; guarded by the mutex of that list */
	} devices;            /* guarded by its mutex */

	struct {
		struct sl_mutex mutex;
		unsigned count;
		struct sl_list objects[SL_OBJECT_BUCKETS];
	} files; /* guarded by its mutex */

	char texts[SL_SETTINGS_MOST][256]; /* the values of the settings */
};

/* Whether this process is a child of fork() of one that had a context. */
bool sl_forked(void);
/* Counts a context in or out; in: -ECHILD, -ENOMEM, -ENOSYS with a sentence. */
int sl_fork_enter(void);
void sl_fork_leave(void);

/* 0, or -EINVAL, -ECHILD with a sentence. The first thing a public call does. */
int sl_context_check(const struct sluice_context *ctx);
/* The staging of a device, started at its first use. In a public call; may call the driver. With a sentence on
 * failure. */
int sl_context_get_staging(struct sluice_context *ctx, struct sl_device *device,
                           struct sl_staging **out);
/* The same for any thread, waiting for nobody: the submission of the caller's operation has got it. */
struct sl_staging *sl_context_staging_of(struct sluice_context *ctx,
                                         const struct sl_device *device);
/* What a handler of exit() of ours has to come before, so that it is registered later. */
enum sl_exit { SL_EXIT_DEVICE, SL_EXIT_BACKEND, SL_EXITS };
/* The context uses that from now on. */
void sl_context_expect_exit(struct sluice_context *ctx, enum sl_exit what);
/* One more, or less, that the context must not be freed under: as an open file. */
void sl_context_enter(struct sluice_context *ctx);
void sl_context_leave(struct sluice_context *ctx);
void sl_context_unref(struct sluice_context *ctx);

#endif
