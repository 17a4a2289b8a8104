/* SPDX-License-Identifier: Apache-2.0 */
/* Contexts, files and operations, as the files of this room share them. */
#ifndef SL_IO_INTERNAL_H
#define SL_IO_INTERNAL_H

#include "io/io.h"

/* -------------------------------------------------------------------------------------- file */

#define SL_FILE_CLOSING (1u << 31)

struct sl_file_error {
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
		struct sl_file_error untold; /* of operations without a handle; told once */
		/* Of all operations that change the file, told or not: the file lacks bytes. */
		struct sl_file_error failed;
		/* Operations that have not been prepared, and those that the task is preparing. It
		 * is submitted or running while `preparing`. */
		struct sl_list unprepared, batch;
		bool preparing;
	} locked SL_GUARDED_BY(&mutex);
	struct sl_task prepare;
	int64_t reserved; /* of that task: the length, with what it has reserved */
};

/* Returns the bytes of a piece of the file. */
static inline size_t sl_piece_size(const struct sluice_file *file)
{
	return SL_MAX(file->limits.piece_size, sizeof(struct sl_piece));
}
/* Copies the caller's options, which may be shorter or longer, with zeros for the rest. */
int sl_file_copy_options(const struct sluice_open_options *from, struct sluice_open_options *to);
/* Parses a URI, to be cleared, and finds the scheme. Returns 0, or -errno with a sentence. */
int sl_file_find_scheme(const char *uri, struct sl_uri *parsed, const struct sl_scheme **out);
/* Opens what the URI names by its backend. May wait, unless `opening` is given: then open_start()
 * is called, -EAGAIN if there is none; or, with `out`, open_in(). Returns 0, or -errno with a
 * sentence. */
int sl_file_open_backend(struct sluice_context *ctx, const char *uri,
                         const struct sluice_open_options *options, struct sl_opening *opening,
                         struct sl_backend **out);
/* Keeps the error of an operation that has failed, for sluice_sync() and sluice_close(). */
void sl_file_keep_error(struct sluice_file *file, const struct sluice_op *op);
/* Returns the error kept for the caller, once, with its sentence. failed: also if it was told. */
int sl_file_take_error(struct sluice_file *file, bool failed);
/* Gives back a hold on the file (in_flight), as sluice_close() awaits: it may be gone then. */
void sl_file_release(struct sluice_file *file);

/* ---------------------------------------------------------------------------------- finished */

/* A queue of operations that are over: that of a context, or of sluice_queue_new(). */
struct sluice_queue {
	uint32_t process;                     /* see sl_process_is() */
	const struct sluice_context *context; /* that it is part of; NULL: of sluice_queue_new() */
	_Atomic uint32_t references; /* of sluice_queue_new(): the handle's and operations' */
	struct sl_mutex mutex;
	pthread_cond_t arrived;
	struct {
		struct sl_list list;
		unsigned waiters;
		int fd; /* eventfd, or -1 */
		unsigned kept_count;
		struct sluice_op *kept[64]; /* handles to use again: see at_once.c */
	} locked SL_GUARDED_BY(&mutex);
};

/* ----------------------------------------------------------------------------------- context */

#define SL_OBJECT_BUCKETS 64

struct sluice_context {
	struct sl_core core;
	uint32_t process;            /* see sl_process_is() */
	_Atomic uint32_t references; /* the handle's and those of operations */

	struct sl_gate operations; /* in flight */

	struct {
		struct sl_mutex mutex;
		/* Of opening.c, or NULL. Opens and looks do not wait for each other. */
		struct sl_pool *pool SL_GUARDED_BY(&mutex);
		struct sl_pool *looks SL_GUARDED_BY(&mutex);
	} opens;

	struct sluice_queue done; /* for sluice_context_queue() */

	/* Held while an operation in stream order enters the order of its object and its commands
	 * are enqueued. No worker, reactor, poller or copier takes it. */
	struct sl_mutex submission;
	/* Counts ends of operations for which so many submissions in stream order wait. */
	_Atomic uint32_t unblocked, unblock_waiters;

	struct {
		struct sl_mutex mutex;
		/* By device; set once, with mutex, when the staging runs. */
		struct sl_staging *_Atomic staging[SL_DEVICES_MOST];
		_Atomic bool checked; /* devices are this process's, as the context is */
		/* Of contexts that use devices; guarded by the mutex of that list. */
		struct sl_list link;
	} devices;

	struct {
		struct sl_mutex mutex;
		unsigned count SL_GUARDED_BY(&mutex);
		struct sl_list objects[SL_OBJECT_BUCKETS] SL_GUARDED_BY(&mutex);
	} files;

	char texts[SL_SETTINGS_MOST][256]; /* the values of the settings */
};

/* Returns the staging of a device in *out, and starts it at its first use. In a public call; may
 * call the driver. Returns 0, or a negative errno with a sentence. */
int sl_context_get_staging(struct sluice_context *ctx, struct sl_device *device,
                           struct sl_staging **out);
/* Libraries that our handler of exit() has to run before: it is registered after their start. */
enum sl_exit { SL_EXIT_DEVICE, SL_EXIT_BACKEND, SL_EXITS };
/* Says that the context uses it from now on. */
void sl_context_expect_exit(struct sluice_context *ctx, enum sl_exit what);
void sl_context_unref(struct sluice_context *ctx);

/* ------------------------------------------------------------------------------------- order */

/* What an operation does to its bytes. A barrier comes after all operations before it. */
enum sl_effect { SL_READS, SL_WRITES, SL_BARRIER, SL_EFFECTS };

/* The bytes of a file, however many handles show it, and the ranges of the operations on them that
 * are not over. An operation starts when no earlier operation that holds it back overlaps it. */
struct sl_object {
	struct sl_list link; /* guarded by the context's files.mutex, as are the next two */
	char *identity;
	unsigned references; /* files */

	struct sl_mutex mutex;
	struct {
		/* [1]: of operations that block streams. */
		struct sl_intervals ranges[SL_EFFECTS][2];
		uint64_t sequence; /* of the last operation that entered */
	} locked SL_GUARDED_BY(&mutex);
	_Atomic uint64_t writes; /* that have entered, and that are there: see sl_order_mark() */
};

/* A range of an operation in its object. */
struct sl_range {
	struct sl_interval interval;
	struct sluice_op *op;
};

/*
 * Enters the operation's ranges. Returns
 *   0        it may start
 *   1        an earlier operation holds it back, until sl_order_leave() of another hands it out
 *   -EINVAL  ranges of one write overlap each other; it has not entered
 *   -EBUSY   it is in stream order, and would wait for an operation that blocks streams, or for any
 *            if its stream moves the bytes by itself; it has not entered
 */
int sl_order_enter(struct sluice_op *op);
/* Takes the operation out, and appends those that may start now to ready. */
void sl_order_leave(struct sluice_op *op, struct sl_list *ready);
/* Says that an operation in stream order is enqueued whole: it blocks streams no longer. */
void sl_order_enqueued(struct sluice_op *op);
/* Returns true if the operation was held back; it will not be handed out any more. */
bool sl_order_withdraw(struct sluice_op *op);
/* For a read that does not enter: 0 while there are writes, else a number that a write changes. */
uint64_t sl_order_mark(struct sl_object *object);

void sl_object_init(struct sl_object *object, char *identity);
void sl_object_destroy(struct sl_object *object);

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
/* Skips extents, from `position` in extent number *extent on, that have nothing left; bytes behind
 * the file's end count as nothing. Returns the bytes left in the extent it comes to; 0: none. */
static inline uint64_t sl_extents_skip(const struct sluice_extent *extents, size_t count,
                                       uint64_t file_size, size_t *extent, uint64_t *position)
{
	for (; *extent < count; ++*extent, *position = 0) {
		const struct sluice_extent *e = &extents[*extent];
		uint64_t end = SL_MIN(e->offset + e->length, file_size);

		if (e->offset + *position < end)
			return end - e->offset - *position;
	}
	return 0;
}
/* Returns whether there is a next piece. */
bool sl_plan_goes_on(struct sl_plan *plan);
/* Writes the next piece, which there is: offset, bytes, and extents, even if it has just one. */
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
	bool at_once;             /* it was over when it was made: see sl_at_once_new() */
	void *user;
	void (*over)(struct sluice_op *); /* see sl_op_submit(); or NULL */
	uint64_t length;                  /* for SL_TRUNCATE */
	uint64_t bytes;                   /* added to file->bytes when it started */
	bool helped;                      /* a thread that waits takes tasks of it: see help.c */
	bool patient;                     /* and is expected to do so at once */
	uint64_t file_state;              /* when it started: see the backend's file_state() */
	bool missed;    /* the backend was asked for bytes in memory, and had to refuse */
	bool preparing; /* it is in a list of its file; guarded by the file's mutex */
	void (*prepared)(struct sluice_op *, int64_t size);
	struct sluice_extent *extents;
	size_t count;
	struct sl_box *box; /* that its extent is a packed copy of, or NULL */
	struct sl_fan *fan; /* further memory that a read goes to, or NULL */

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
		 * operation enters only if none but operations of it hold it back; or NULL. */
		sluice_stream stream;
		bool follows; /* it overlaps an operation of that stream, which may change it */
	} order;

	struct sl_task task; /* of sync and truncate */

	struct sl_mutex mutex;
	struct {
		struct sl_plan plan;
		unsigned in_flight;
		unsigned handed; /* pieces so far */
		bool pumping;    /* one thread hands out pieces; others set `again` for it */
		bool again;
		bool brief;   /* the next pump is the submitting thread's */
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
		/* By wait or the queue, or the handle is gone. Set last, read without the mutex. */
		_Atomic bool reported;
	} done;

	/* For the common operation: one extent, one piece. */
	struct sluice_extent one_extent;
	struct sl_range one_range;
	struct sl_piece one_piece[]; /* sl_piece_size() bytes */
};

/* Returns an operation without extents, and a reference to it; NULL: no memory. file: or NULL. */
struct sluice_op *sl_op_new(struct sluice_context *ctx, struct sluice_file *file,
                            enum sl_op_kind kind);
void sl_op_unref(struct sluice_op *op);
/* Enters the order, and starts the operation if nothing holds it back. Sets *out, if there is one,
 * before. Returns 0, or -EINVAL with a sentence. */
int sl_op_enter(struct sluice_file *file, struct sluice_op *op, sluice_op **out);
/* Starts an operation that nothing holds back, or all of a list; takes over a reference of each. */
void sl_op_start(struct sluice_op *op);
void sl_op_start_all(struct sl_list *ready);
/* Hands out pieces until enough are in flight, and ends the operation if it is over. Locks:
 * releases op->mutex. The caller has a reference, or knew until then that it is not over. */
void sl_op_pump_unlock(struct sluice_op *op) SL_RELEASES(&op->mutex);
/* Stops the operation; keeps the first error, frees the sentences of others. Takes op->mutex. */
void sl_op_fail(struct sluice_op *op, int error, char *message);
/* Has prepared() called, where it may wait, once the size of the file is known; -1: withdrawn. */
void sl_prepare(struct sluice_op *op, void (*prepared)(struct sluice_op *, int64_t size));
/* Returns true if the operation was waiting for that. */
bool sl_prepare_withdraw(struct sluice_op *op);
/* Returns a write's bytes if its extents follow each other, the longest having so many; or 0. */
uint64_t sl_prepare_bytes(const struct sluice_op *op, uint64_t least);
/* Returns the end of the writes that wait to be prepared, of which the first begins at `end` and
 * each where the one before ends. */
uint64_t sl_prepare_reach(struct sluice_file *file, uint64_t end);
/* Says, before its start, whether threads that wait help in a read, and what is expected of this
 * thread; and that its submission is over, after which it may be gone. */
void sl_help_expect(struct sluice_op *op, uint64_t bytes);
void sl_help_submitted(const struct sluice_op *op);
/* Returns whether a worker is to be woken for a piece, by its number. */
bool sl_help_wakes(const struct sluice_op *op, unsigned handed);
/* Runs tasks of the operation that no worker has begun, until the deadline; no lock held. Calls the
 * driver only without a deadline. */
void sl_help(struct sluice_op *op, int64_t deadline);
/* Ends the wait of an operation that was stopped: for others, a size or slots. */
void sl_op_withdraw(struct sluice_op *op);
/* Ends an operation that has no pieces, and appends those to `ready` that it held back. The
 * engine's reference is gone afterwards. */
void sl_op_end(struct sluice_op *op, struct sl_list *ready);
bool sl_op_is_stopped(struct sluice_op *op);
/* Wakes the threads that wait for an operation, whose result is fixed. */
void sl_op_publish(struct sluice_op *op);
/* Asks an open to end early, as sluice_cancel(). */
int sl_open_cancel(struct sluice_op *op);
/* Returns the file of an open that is over, the first time; or NULL. */
struct sluice_file *sl_open_take(struct sluice_op *op);
/* Gives the handle's reference of an open away, and discards the file unless it was taken. */
void sl_open_let_go(struct sluice_op *op);
/* Has submissions look again that wait for an operation which blocks streams no longer. */
void sl_streams_unblocked(struct sluice_context *ctx);

/* Whether a request, which may be of an older program, has the field. */
#define SL_REQUEST_HAS(r, field) \
	((r)->size >= offsetof(struct sluice_request, field) + sizeof((r)->field))
static inline bool sl_wants_fan(const struct sluice_request *r)
{
	return SL_REQUEST_HAS(r, also_count) && r->also_count;
}
static inline bool sl_wants_stream(const struct sluice_request *r)
{
	return SL_REQUEST_HAS(r, stream) && r->on;
}

/* ---------------------------------------------------------------------------------- finished */

void sl_done_init(struct sluice_queue *queue);
void sl_done_destroy(struct sluice_queue *queue);
void sl_done_unref(struct sluice_queue *queue);
/* Returns 0 if operations of the context may name the queue, which may be NULL, or -errno. */
int sl_done_check(const struct sluice_context *ctx, const struct sluice_queue *queue);
/* Has the operation use the queue that the request names, with a reference, if it names a queue. */
void sl_done_enter(struct sluice_op *op, const struct sluice_request *r);
/* Returns an operation in *out that is over and in its queue, *out first. False: no memory. */
bool sl_at_once_new(struct sluice_file *file, int64_t result, const struct sluice_request *r,
                    sluice_op **out);
/* Keeps it for later, without its handle, and unrefers its context. False: enough are kept. */
bool sl_at_once_keep(struct sluice_op *op);
/* Takes the operation out of its queue: it is not to be reported, or not again. */
void sl_done_forget(struct sluice_op *op);
/* Returns whether the caller has to signal `arrived`, once the mutex is free. */
bool sl_done_append_locked(struct sluice_queue *queue, struct sluice_op *op)
	SL_REQUIRES(&queue->mutex);
/* Returns the eventfd, made at the first use, readable if `ready`; or -errno with a sentence. */
int sl_done_eventfd(int *fd, bool ready);

#endif
