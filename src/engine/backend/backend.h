/* SPDX-License-Identifier: Apache-2.0 */
/* The contract between the engine and a backend, which moves pieces between a file and memory. */
#ifndef SL_BACKEND_H
#define SL_BACKEND_H

#include <sys/types.h>

#include "core/core.h"

struct sl_backend;
struct sl_bounce;
struct sl_cufile;
struct sl_device;
struct sl_http_engine;
struct sl_slot_use;
struct sl_uring;

/* Features of the running kernel, less those that SLUICE_DISABLE masks. Fixed once the context
 * is made, but for uring_error: a reactor that meets a later error sets it. */
struct sl_kernel {
	bool cachestat;
	bool nowait;
	bool dontcache;
	bool dioalign;
	_Atomic int uring_error; /* 0, or why io_uring is not used */
};

/* The part of a context that its backends use. */
struct sl_core {
	struct sl_settings settings;
	struct sl_kernel kernel;
	struct sl_pool *pool;    /* for tasks that never wait: copies of bytes in memory */
	struct sl_pool *waiting; /* for calls that may wait for storage; it grows */
	struct sl_uring *uring;  /* NULL without io_uring */
	/* Its reactors with many short requests, which look at their queue within a moment. */
	_Atomic unsigned deep;
	struct sl_bounce *bounce;
	struct sl_http_engine *http;
	struct sl_cufile *cufile;
	/* Of local files: the mount of the last, and what is known of its file system; or 0. */
	_Atomic uint64_t last_mount;
	_Atomic uint64_t quick; /* storage, as cold() has it, that is quick enough for long rings */
};

/* Elements of a file whose bytes are those of an array, slowest dimension first. */
#define SL_BOX_RANK 32
struct sl_box {
	unsigned rank;
	uint64_t start[SL_BOX_RANK], count[SL_BOX_RANK];
};

/*
 * The bytes that one call of a backend moves. The engine fills in the first group and hands the
 * piece over with submit(); from then until sl_piece_done() the backend alone touches it, but for
 * `cancelled`. A backend that keeps more for each piece has a struct that begins with this,
 * limits.piece_size bytes long; the rest is 0 at first.
 */
struct sl_piece {
	struct sl_backend *backend;
	char *data;
	size_t length;
	uint64_t offset;
	const struct sl_box *box; /* NULL: bytes of the file; else of this box of it, packed */
	struct sl_device *device; /* that has the memory; NULL: the host. See takes() */
	bool write;
	bool large;   /* of an extent of at least direct_bytes */
	bool aligned; /* offset and length are multiples of the file's alignment for direct I/O */
	bool missed;  /* read_now() was tried, and did not find it in memory */
	bool urgent;  /* a thread or stream waits for this piece already */
	bool patient; /* a thread is about to wait, and then runs a task of core->pool for it */
	uint64_t file_state; /* when the operation started: see file_state() */
	/* Of a read from a backend with cut() or passes(): if not NULL, the extents to which the
	 * bytes belong, in the order of their offsets. `gaps`: bytes between them, which are
	 * dropped, less those that several extents have. */
	const struct sluice_extent *extents;
	size_t extent_count;
	int64_t gaps;
	void (*done)(struct sl_piece *);

	_Atomic bool cancelled;  /* set by the engine, any thread: end early if that is easy */
	const _Atomic bool *too; /* NULL, or that of the opening that wants the bytes */

	/* The engine's own. */
	struct sluice_op *op;
	struct sl_slot_use *slot_use; /* the operation whose slot holds the piece, or NULL */
	struct sl_list engine_link;   /* guarded by the operation's mutex */

	/* The result. */
	size_t moved;  /* bytes from the start of the piece; less than length: the file ended */
	bool direct;   /* they went around the page cache: no core has them in its cache */
	int error;     /* 0, or negative: then moved means nothing */
	char *message; /* NULL, or the sentence behind error, which the engine frees */

	/* For the backend, which may leave them unused. */
	struct sl_list link;
	struct sl_task task;
};

/* The piece is over: nothing touches the data again. Any thread, no lock held, exactly once. */
static inline void sl_piece_done(struct sl_piece *piece)
{
	piece->done(piece);
}

/* How the engine cuts extents for a file. */
struct sl_limits {
	size_t piece_bytes; /* largest piece; pieces start at multiples of their length */
	size_t least_piece; /* 0: always piece_bytes. Else the length follows bytes in flight */
	unsigned depth;     /* pieces of an operation in flight */
	size_t piece_size;  /* of the backend's struct for a piece; 0: it is struct sl_piece */
	uint32_t alignment; /* of offset and length of aligned pieces; 0: there are none */
	/* A piece for each extent, or for what a slot has of it, in turn. Writes of remote files
	 * have all at once, and through slots as many as `depth` says. */
	bool sequential;
	bool whole;       /* and each extent in one piece */
	bool uncut;       /* a piece for each extent, in any order: the backend cuts it itself */
	bool remote;      /* pieces take long, and come in any order */
	bool all_or_none; /* an incomplete file is not committed, however it was opened */
	bool size_waits;  /* size() may wait for storage: a thread that may wait asks */
	bool touches;     /* read_now() touches data itself, which has to be the host's */
	/* Of an array: the elements of a tile, which is decoded as a whole, in each dimension, and
	 * behind them the bytes of an element; NULL: there are none. Then there is box_of(). */
	const uint64_t *tile;
	/*
	 * The device whose memory the bytes of the file are; NULL: none. Pieces then are of host
	 * memory, or of any device's, with `device` set, and takes() is not asked. Streams of that
	 * device move transfers between it, host memory that it has registered, and the file.
	 */
	struct sl_device *device;
};

/* An open() in flight. The struct does not move until done(). */
struct sl_opening {
	_Atomic bool cancelled; /* set by the engine, any thread: end early if that is easy */
	void (*done)(struct sl_opening *);
	const struct sl_backend_ops *ops; /* that open_start() was called of */

	/* The result. */
	struct sl_backend *backend; /* with an error, too, if closing it may wait; or NULL */
	int error;                  /* 0, or negative; -EREMOTE: open() has to be called */
	char *message;              /* NULL, or the sentence behind error, which the engine frees */
};

/* How a backend wants the next piece to be cut. */
struct sl_cut {
	size_t length;  /* at most */
	size_t gap;     /* between extents that a piece may join */
	unsigned depth; /* pieces of an operation in flight */
};

/*
 * Every backend. Each function names the thread:
 *
 *   caller   an application's, in a public call, or a thread for opens: it may wait
 *   waiting  a thread of core->waiting: it may wait
 *   any      nothing in it waits
 *
 * Such a thread holds no lock but those named, and perhaps that for submissions, which no backend
 * takes. int: 0 or a negative errno, with a sentence where the comment says so.
 */
struct sl_backend_ops {
	/* NULL, both: the backend never does. */
	const struct sl_device_moves *moves;
	const struct sl_slot_writes *slot_writes;

	/* ----------------------------------------------------------------- open and close */

	/* Caller. Sentence. On failure nothing is left. NULL: no URI names such a file. */
	int (*open)(struct sl_core *core, const struct sl_uri *uri,
	            const struct sluice_open_options *options, struct sl_backend **out);
	/*
	 * Any: begins an open(). 0: opening->done() is called once, from a thread of the backend
	 * without a lock. -EAGAIN, without a sentence: it would wait, and a thread that may calls
	 * open(). Or another -errno with a sentence. NULL: as if -EAGAIN.
	 */
	int (*open_start)(struct sl_core *core, const struct sl_uri *uri,
	                  const struct sluice_open_options *options, struct sl_opening *opening);
	/* Caller: as open(), where open_start() has ended with the backend of a file that has the
	 * array. Takes opening->backend; its `cancelled` ends what that is asked for. NULL: it ends
	 * with the array. */
	int (*open_in)(struct sl_core *core, const struct sl_uri *uri,
	               const struct sluice_open_options *options, struct sl_opening *opening,
	               struct sl_backend **out);
	/* Any, with an operation's mutex: some openings have `cancelled` set. NULL: as above. */
	void (*cancel_open)(struct sl_core *core);
	/* Any, once, behind open(). *out is 0. */
	void (*limits)(struct sl_backend *backend, struct sl_limits *out);
	/* Any, once, behind open(): equal for two files in a context exactly if they hold the same
	 * bytes. The engine frees it. */
	char *(*identity)(struct sl_backend *backend);
	/* Caller, once, with nothing in flight: makes the bytes visible, and stable if asked for.
	 * Sentence. */
	int (*commit)(struct sl_backend *backend);
	/* Caller, with nothing in flight. REPLACE without a commit leaves nothing. */
	void (*close)(struct sl_backend *backend);

	/* ----------------------------------------------------------------- pieces */

	/* Any, when an operation starts; waiting, if limits say size_waits: bytes in the file, -1
	 * if only reading tells, or a negative errno below that. NULL: -1; not with limits.whole or
	 * size_waits. */
	int64_t (*size)(struct sl_backend *backend);
	/* Any: the number of the state of the file that it reads. NULL: it never takes another. */
	uint64_t (*file_state)(struct sl_backend *backend);
	/* Any: the bytes of a box, or -EINVAL with a sentence. NULL: the file has no array. */
	int64_t (*box_bytes)(struct sl_backend *backend, const struct sl_box *box);
	/* Any: writes the box for a range of bytes in the file; false: it is none, or reaches
	 * beyond the end. NULL: as limits.tile is. */
	bool (*box_of)(struct sl_backend *backend, uint64_t offset, uint64_t length,
	               struct sl_box *out);
	/* Any: reads bytes that are in memory already. Length, or -EAGAIN, also if the processor
	 * does not reach data. NULL: it cannot. */
	int64_t (*read_now)(struct sl_backend *backend, void *data, size_t length, uint64_t offset);
	/*
	 * Any, with an operation's mutex: how the next piece is to be read. all: bytes of the
	 * operation; left: bytes in flight of the file that are not handed out; room: bytes that
	 * the pieces of the operation may occupy in memory. NULL: as the limits say.
	 */
	struct sl_cut (*cut)(struct sl_backend *backend, uint64_t all, uint64_t left,
	                     uint64_t room);
	/* Any, with an operation's mutex: how many bytes may lie between two extents in host memory
	 * that one piece reads; it passes over them. 0: a piece has one extent for now. NULL: 0. */
	size_t (*passes)(struct sl_backend *backend);
	/* Any: the number of the storage if nothing of the range seems to be in memory, by a few
	 * looks, and it is not core->quick; else 0. NULL: 0. */
	uint64_t (*cold)(struct sl_backend *backend, uint64_t offset, uint64_t length);
	/* Any: the backend has the piece until sl_piece_done(), on any thread, or inside. */
	void (*submit)(struct sl_backend *backend, struct sl_piece *piece);
	/* Any: wakes the threads that move pieces now `cancelled`. NULL: there is none. */
	void (*cancel)(struct sl_backend *backend);

	/* ----------------------------------------------------------------- the file as a whole */

	/* Caller. Sentence. If the bytes are memory, it says where: this is how a copy reads right
	 * into them, or writes right from them, with another file's backend. */
	int (*stat)(struct sl_backend *backend, struct sluice_file_info *out);
	/* Waiting: a range that a write extends the file to, before its first piece. An error ends
	 * the operation. NULL: nothing to prepare. */
	int (*reserve)(struct sl_backend *backend, uint64_t offset, uint64_t length);
	/* Waiting. NULL: bytes need no call to be stable; the length is never set. */
	int (*sync)(struct sl_backend *backend);
	int (*truncate)(struct sl_backend *backend, uint64_t length);
};

/* -------------------------------------------------------------------- between devices and files */

/* Bytes that a stream of a device moves between a file and memory of the device. The struct does
 * not move until the stream has passed. */
struct sl_transfer {
	char *data;
	size_t length;
	off_t offset;
	/* The backend's own. */
	off_t base_offset;
	ssize_t moved; /* written when the stream comes to it */
};

/* For a backend that moves bytes between files and memory of devices itself. */
struct sl_device_moves {
	/*
	 * A submitting call, which may call the driver: whether the backend moves these extents to
	 * and from that device's memory itself: 1; 0: it does not; or why it cannot follow its
	 * settings, with a sentence. If it does, pieces of the extents may be submitted with
	 * `device` set, or, if in_stream, transfers go to a stream. NULL: see limits.device.
	 */
	int (*takes)(struct sl_backend *backend, struct sl_device *device,
	             const struct sluice_extent *extents, size_t count, bool write, bool in_stream);
	/* The same with the lock for submissions: gives a transfer to a stream. Sentence. */
	int (*enqueue)(struct sl_backend *backend, struct sl_device *device, sluice_stream stream,
	               struct sl_transfer *transfer, bool write);
	/* Any, without a call of the driver: the stream has passed it. 0, or why not all bytes were
	 * moved, and the sentence, or NULL. */
	int (*passed)(struct sl_backend *backend, const struct sl_transfer *transfer, bool write,
	              char **message);
};

/* ------------------------------------------------------------------------- writes through slots */

/* A write that comes through slots: its pieces may come after those of later operations. The struct
 * does not move until settle(). */
struct sl_coming {
	struct sl_list link; /* the backend's own */
	const struct sluice_extent *extents;
	size_t count;
};

/* For a backend that writes bytes in their order. */
struct sl_slot_writes {
	/* Any, before the write has slots: 0, or -errno and why bytes cannot be written there. */
	int (*admits)(struct sl_backend *backend, const struct sluice_extent *extents, size_t count,
	              const char **why);
	/* Any, perhaps with an operation's mutex: its turn for slots is fixed, so that none it
	 * waits for comes behind it. Other writes may follow its bytes. */
	void (*announce)(struct sl_backend *backend, struct sl_coming *coming);
	/* Any, behind the last piece, announced or not: the write is over, and its bytes are
	 * missing if error is not 0. */
	void (*settle)(struct sl_backend *backend, struct sl_coming *coming, int error);
};

struct sl_backend {
	const struct sl_backend_ops *ops;
};

/* A list that is open. */
struct sl_listing {
	const struct sl_names_ops *ops;
};

/* Calls of a scheme by names alone, as the public calls. All may wait. On failure with a sentence.
 * NULL: the scheme has none. */
struct sl_names_ops {
	int (*list_open)(struct sl_core *core, const struct sl_uri *uri,
	                 const struct sluice_open_options *options, unsigned flags,
	                 struct sl_listing **out);
	int (*list_next)(struct sl_listing *listing, struct sluice_entry *out);
	void (*list_close)(struct sl_listing *listing);
	int (*remove)(struct sl_core *core, const struct sl_uri *uri,
	              const struct sluice_open_options *options);
	/* Removes those of a scheme, and writes all results. */
	void (*remove_many)(struct sl_core *core, const char *scheme, const char *const *uris,
	                    size_t count, const struct sluice_open_options *options, int *errors,
	                    char **messages);
	/* Removes an upload. Lists know SLUICE_LIST_UPLOADS then. */
	int (*drop)(struct sl_core *core, const struct sl_uri *uri,
	            const struct sluice_open_options *options, const char *upload);
	int (*copy)(struct sl_core *core, const struct sl_uri *from, const struct sl_uri *to,
	            const struct sluice_open_options *options);
	int (*presign)(struct sl_core *core, const struct sl_uri *uri,
	               const struct sluice_open_options *options, const char *method,
	               unsigned seconds, char **url, int64_t *end_ns);
};

/* The table of schemes; its rows are in sluice.c, the last row has scheme NULL. */
struct sl_scheme {
	const char *scheme;
	const struct sl_backend_ops *ops;
	const struct sl_names_ops *names; /* or NULL */
	/* For sentences: things with such names, and those with lists. */
	const char *things, *listed;
};
extern const struct sl_scheme sl_schemes[];
/* Of datasets in local files: open() is called if the options name one. */
extern const struct sl_backend_ops *const sl_dataset_ops;

#endif
