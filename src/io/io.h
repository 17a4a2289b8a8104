/* SPDX-License-Identifier: Apache-2.0 */
/* Contexts, files and operations: what the files of this room share. */
#ifndef SL_IO_H
#define SL_IO_H

#include "backend/backend.h"
#include "core/core.h"

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
struct sl_cut {
	char *data;
	size_t length;
	uint64_t offset;
	bool large;   /* of an extent of at least direct_bytes */
	bool aligned; /* large, and at multiples of the alignment */
};

/* The largest piece of an operation, when that many bytes of its file are on the way. */
size_t sl_plan_piece(const struct sl_limits *limits, uint64_t bytes);
/* False: there is no further piece. */
bool sl_plan_peek(struct sl_plan *plan, struct sl_cut *out);
void sl_plan_advance(struct sl_plan *plan, const struct sl_cut *cut);

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

	pthread_mutex_t mutex;
	struct {
		struct sl_intervals spans[SL_EFFECTS];
		uint64_t sequence; /* of the last operation that entered */
	} locked;                  /* guarded by mutex */
};

/* One range of an operation in its object. */
struct sl_span {
	struct sl_interval interval;
	struct sluice_op *op;
};

/*
 * Enters the operation's spans. 0: it may start; 1: sl_order_leave() of another one will hand it
 * out; -EINVAL: ranges of one write overlap each other (it has not entered).
 */
int sl_order_enter(struct sluice_op *op);
/* Takes the operation out, and appends those that may start now to ready. */
void sl_order_leave(struct sluice_op *op, struct sl_list *ready);
/* True: the operation was waiting, and nobody will hand it out any more. */
bool sl_order_withdraw(struct sluice_op *op);

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
	bool detached; /* no handle was asked for: errors go to the file */
	void *user;
	uint64_t length; /* what SL_TRUNCATE sets */
	uint64_t bytes;  /* what it added to file->bytes when it started */
	bool missed;     /* the backend was asked for what is in memory, and it was not */
	struct sluice_extent *extents;
	size_t count;

	struct {
		struct sl_object *object;
		struct sl_span *spans;
		size_t count;
		enum sl_effect effect;
		struct sl_list ready; /* the list of those that may start */
		uint64_t sequence;    /* guarded by object->mutex, as is the next */
		uint64_t blockers;    /* pairs of spans that hold it back */
	} order;

	struct sl_task task; /* what has to be done on a worker before, or instead of, pieces */

	pthread_mutex_t mutex;
	struct {
		struct sl_plan plan;
		unsigned in_flight;
		bool pumping; /* one thread hands out pieces; others leave word in again */
		bool again;
		bool stopped; /* failed or cancelled: no further pieces */
		bool ended;   /* the result stands */
		bool aligned; /* of the piece handed out last */
		int error;    /* the first */
		uint64_t moved;
		struct sl_list flying, spare;
		int fd; /* sluice_op_fd(), or -1 */
	} locked;       /* guarded by mutex */

	struct {
		struct sl_list link;
		bool reported; /* by wait or next_done, or the handle is gone */
	} done;                /* guarded by ctx->done.mutex */

	/* For the common operation: one extent, one piece. */
	struct sluice_extent one_extent;
	struct sl_span one_span;
	struct sl_part one_part;
};

/* An operation with no extents yet; the caller holds its one reference. NULL: no memory. */
struct sluice_op *sl_op_new(struct sluice_context *ctx, struct sluice_file *file,
                            enum sl_kind kind);
void sl_op_unref(struct sluice_op *op);
/* Starts what may start; takes over one reference of each. */
void sl_op_start_all(struct sl_list *ready);
void sl_op_start(struct sluice_op *op);
/* Ends an operation that has no pieces: the engine's reference is gone afterwards. */
void sl_op_end(struct sluice_op *op);
/* Publishes the result; the file's and the context's accounts are the caller's. */
void sl_op_publish(struct sluice_op *op);
/* Keeps the first error and its sentence, which it frees otherwise. Takes op->mutex. */
void sl_op_fail(struct sluice_op *op, int error, char *message);

/* Makes an operation that is awaited inside this call: sync or truncate. */
int sl_op_run(struct sluice_file *file, enum sl_kind kind, uint64_t from, uint64_t length);
/* Waits for a place among max_operations. -EAGAIN if the file does not want to. */
int sl_op_admit(struct sluice_file *file);
void sl_op_leave(struct sluice_context *ctx);

/* -------------------------------------------------------------------------------------- done */

struct sl_done {
	pthread_mutex_t mutex;
	pthread_cond_t arrived; /* of CLOCK_MONOTONIC */
	struct sl_list list;    /* guarded by mutex, as are the others */
	unsigned waiters;
	int fd; /* eventfd, or -1 */
};

int sl_done_init(struct sl_done *done);
void sl_done_destroy(struct sl_done *done);
/*
 * Sets SL_OP_DONE and puts the operation into the queue in one step, so that the queue has them in
 * the order in which sluice_poll() saw them end. Returns the state before.
 */
uint32_t sl_done_publish(struct sluice_op *op);
/* The operation is not to be reported, or not any more. */
void sl_done_forget(struct sluice_op *op);

/* -------------------------------------------------------------------------------------- file */

#define SL_FILE_CLOSING (1u << 31)

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

	pthread_mutex_t mutex;
	struct {
		int error; /* the first of an operation without a handle */
		char *message;
	} locked; /* guarded by mutex */
};

void sl_file_keep_error(struct sluice_file *file, int error, const char *message);
/* An operation of the file is over. The file may be gone afterwards. */
void sl_file_release(struct sluice_file *file);

/* ----------------------------------------------------------------------------------- context */

#define SL_OBJECT_BUCKETS 64

struct sluice_context {
	struct sl_core core;
	_Atomic uint32_t references; /* the handle's and those of operations */

	_Atomic uint64_t operations;        /* in flight */
	_Atomic uint32_t operations_left;   /* counts ends while somebody waits for a place */
	_Atomic uint32_t operations_waited; /* threads that wait for a place */

	struct sl_done done;

	struct {
		pthread_mutex_t mutex;
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
void sl_context_unref(struct sluice_context *ctx);
struct sl_object *sl_object_acquire(struct sluice_context *ctx, struct sl_backend *backend);
void sl_object_release(struct sluice_context *ctx, struct sl_object *object);

#endif
