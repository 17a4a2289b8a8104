/* SPDX-License-Identifier: Apache-2.0 */
/* Operations: their pieces, and their end. order.h has their order among others. */
#ifndef SL_IO_OP_H
#define SL_IO_OP_H

#include "io/order.h"

/* ------------------------------------------------------------------------------------ pieces */

/* Cuts the extents of an operation into pieces, in order. */
struct sl_plan {
	const struct sluice_extent *extents;
	size_t count;
	const struct sl_limits *limits;
	uint64_t direct_bytes; /* extents from this length on may go around the page cache */
	uint64_t file_size;    /* bytes behind it are not read */
	size_t piece_bytes;    /* largest piece; 0: that of the limits */
	size_t extent;         /* where the next piece begins */
	uint64_t position;     /* in that extent */
	uint64_t taken;        /* bytes of all pieces so far */
	bool joins;            /* a piece may be of several extents, */
	size_t gap;            /* and the gaps between them of so many bytes, */
	bool passes;           /* which are not read */
};
/*
 * Skips extents, from `position` in extent number *extent on, that have nothing left; bytes behind
 * the file's end count as nothing. Returns the bytes that are left of the extent that it comes to;
 * 0: there is none.
 */
uint64_t sl_extents_skip(const struct sluice_extent *extents, size_t count, uint64_t file_size,
                         size_t *extent, uint64_t *position);
/* Returns the largest piece of an operation while that many bytes of its file are in flight. */
size_t sl_plan_piece(const struct sl_limits *limits, uint64_t bytes);
/* Returns whether there is a next piece. */
bool sl_plan_goes_on(struct sl_plan *plan);
/* Writes the next piece, which there is: its offset, its bytes, and its extents, even if it has just one. */
void sl_plan_cut(struct sl_plan *plan, struct sl_piece *out);
/* Goes on behind that piece. */
void sl_plan_advance(struct sl_plan *plan, const struct sl_piece *piece);

/* --------------------------------------------------------------------------------- operation */

/* Public kinds first; sync and truncate are awaited inside the call that makes them. */
enum sl_op_kind { SL_READ = SLUICE_READ, SL_WRITE = SLUICE_WRITE, SL_SYNC, SL_TRUNCATE, SL_OPEN };

enum { SL_OP_DONE = 1, SL_OP_AWAITED = 2 }; /* bits of sluice_op.state */

struct sluice_op {
	_Atomic uint32_t references; /* the handle's and the engine's */
	_Atomic uint32_t state;      /* SL_OP_DONE is set last, once; the result is valid then */
	int64_t result;
	char *message; /* or NULL */

	/* Fixed at submission. */
	struct sluice_context *ctx;
	struct sluice_file *file; /* valid while the operation is not over; of an open NULL */
	enum sl_op_kind kind;
	bool detached;            /* no handle was asked for: errors go to the file */
	struct sl_open *open;     /* of SL_OPEN */
	struct sl_staged *staged; /* NULL: between storage and the caller's memory directly */
	struct sl_device *device; /* of this memory, if it is not the host's */
	bool on_stream;           /* in stream order */
	bool at_once;             /* it was over when it was made: see sl_done_new() */
	void *user;
	void (*over)(struct sluice_op *); /* see sl_op_submit(); or NULL */
	uint64_t length;                  /* for SL_TRUNCATE */
	uint64_t bytes;                   /* added to file->bytes when it started */
	bool missed;    /* the backend was asked for bytes in memory, and had to refuse */
	bool preparing; /* it is in a list of its file; guarded by the file's mutex */
	struct sluice_extent *extents;
	size_t count;

	struct {
		struct sl_object *object;
		struct sl_range *ranges;
		size_t count;
		enum sl_effect effect;
		/* Guarded by object->mutex, as are the next: among the waiters of another
		 * operation, or of those that may start. */
		struct sl_list link;
		struct sl_list waiters; /* those that look again when it has left */
		uint64_t sequence;
		size_t passed; /* the first so many ranges are free for good */
		bool waits;    /* it is a waiter of another operation */
		/* While set, no overlapping operation in stream order may be enqueued: this
		 * operation, or an operation that it waits for, still needs a call of the driver by
		 * another thread, or is enqueued in part only (rule 5 of docs/asynchrony.md). */
		bool blocks_streams;
		/* The stream that moves the bytes by itself, when it comes to them: then the
		 * operation enters only if nothing but operations of that stream holds it back.
		 * NULL: not so. */
		sluice_stream stream;
		bool follows; /* it overlaps an operation of that stream, which may change
		                 the file */
	} order;

	struct sl_task task; /* of sync and truncate */

	struct sl_mutex mutex;
	struct {
		struct sl_plan plan;
		unsigned in_flight;
		bool pumping; /* one thread hands out pieces; others set `again` for it */
		bool again;
		bool stopped; /* failed or cancelled: no further pieces */
		bool stored;  /* nothing of it touches the file any more: it has left its object */
		bool over;    /* nothing is in flight, and a thread is about to end it */
		bool ended;   /* the result is fixed */
		bool aligned; /* of the last piece */
		int error;    /* the first */
		uint64_t moved;
		struct sl_list flying, spare; /* pieces, by engine_link */
		int fd;                       /* sluice_op_fd(), or -1 */
	} locked SL_GUARDED_BY(&mutex);

	struct {
		struct sluice_queue *queue; /* fixed at submission; it guards the others */
		struct sl_list link;
		/* By wait or the queue, or the handle is gone. Set last, also read without the
		 * mutex. */
		_Atomic bool reported;
	} done;

	/* For the common operation: one extent, one piece. */
	struct sluice_extent one_extent;
	struct sl_range one_range;
	struct sl_piece one_piece[]; /* sl_piece_size() bytes */
};

/* Returns an operation without extents, with a reference of the caller's; NULL: no memory. file: NULL for an open. */
struct sluice_op *sl_op_new(struct sluice_context *ctx, struct sluice_file *file,
                            enum sl_op_kind kind);
void sl_op_unref(struct sluice_op *op);
/* Counts an operation in, of max_operations; waits while there are as many, unless `full` is an error. Returns 0, or
 * that. */
int sl_op_admit(struct sluice_context *ctx, int full);
/* Enters the order, and starts the operation if nothing holds it back. Sets *out, if there is one,
 * before. Returns 0, or -EINVAL with a sentence. */
int sl_op_enter(struct sluice_file *file, struct sluice_op *op, sluice_op **out);
/* Makes and awaits an operation inside this call: sync or truncate. */
int sl_op_run(struct sluice_file *file, enum sl_op_kind kind, uint64_t length);
/*
 * Starts an operation that nothing holds back, or all of a list; takes over a reference of each.
 */
void sl_op_start(struct sluice_op *op);
void sl_op_start_all(struct sl_list *ready);
/*
 * Hands out pieces until enough are in flight, and ends the operation if it is over.
 * Locks: releases op->mutex. The caller has a reference, or knew until then that the operation is
 * not over.
 */
void sl_op_pump_unlock(struct sluice_op *op) SL_RELEASES(&op->mutex);
/* Stops the operation, and keeps the first error and its sentence, which it frees otherwise. Takes
 * op->mutex. */
void sl_op_fail(struct sluice_op *op, int error, char *message);
/* Ends the wait of an operation that was stopped: for others, for its size or for slots. */
void sl_op_withdraw(struct sluice_op *op);
/* Ends an operation that has no pieces. The engine's reference is gone afterwards. */
void sl_op_end(struct sluice_op *op);
/* Wakes the threads that wait for an operation, whose result is fixed. */
void sl_op_publish(struct sluice_op *op);
/* Asks an open to end early, as sluice_cancel(). */
int sl_open_cancel(struct sluice_op *op);
/* Discards the file of an open that is over, if it was not taken. */
void sl_open_drop(struct sluice_op *op);
/* Has submissions look again that waited for an operation that blocks streams: it is over, or
 * blocks no longer. */
void sl_streams_unblocked(struct sluice_context *ctx);

/* Whether a request, which may be of an older program, has the field. */
#define SL_REQUEST_HAS(r, field) \
	((r)->size >= offsetof(struct sluice_request, field) + sizeof((r)->field))
static inline bool sl_wants_stream(const struct sluice_request *r)
{
	return SL_REQUEST_HAS(r, stream) && r->on;
}

/* ---------------------------------------------------------------------------------- finished */

void sl_done_init(struct sluice_queue *queue);
void sl_done_destroy(struct sluice_queue *queue);
/* Returns 0 if operations of the context may name the queue, which may be NULL, or -errno. */
int sl_done_check(const struct sluice_context *ctx, const struct sluice_queue *queue);
/* Has the operation use the queue that the request names, with a reference, if it names a queue. */
void sl_done_enter(struct sluice_op *op, const struct sluice_request *r);
/* Gives the reference back. */
void sl_done_leave(struct sluice_op *op);
/* Returns an operation in *out that is over and in its queue; out is set before that. False: no
 * memory. */
bool sl_done_new(struct sluice_file *file, int64_t result, const struct sluice_request *r,
                 sluice_op **out);
/* Keeps such an operation after its handle is gone, to use it again, and unrefers its context.
 * False: enough are kept. */
bool sl_done_keep(struct sluice_op *op);
/* Takes the operation out of its queue: it is not to be reported, or not again. */
void sl_done_forget(struct sluice_op *op);
/* Returns whether the caller has to signal `arrived`; without the mutex, which the woken thread
 * takes. */
bool sl_done_append_locked(struct sluice_queue *queue, struct sluice_op *op)
	SL_REQUIRES(&queue->mutex);
/* Returns the eventfd, which it makes at its first use, readable if `ready`; or -errno with a
 * sentence. */
int sl_done_eventfd(int *fd, bool ready);

#endif
