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
struct sl_listing;
struct sl_slot_use;
struct sl_uring;

/* Features of the running kernel, less those that SLUICE_DISABLE masks. Fixed once the context is */
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
	struct sl_bounce *bounce;
	struct sl_http_engine *http;
	struct sl_cufile *cufile;
	/* Of local files: the mount of the last that was opened, and what is known of its file
	 * system; or 0. */
	_Atomic uint64_t last_mount;
};

/*
 * The bytes that one call of a backend moves. The engine fills in the first group and hands the
 * piece over with submit(); from then until sl_piece_done() the backend alone touches it, but for
 * `cancelled`. A backend with a state of its own for each piece has a struct that begins with this
 * one, of limits.piece_size bytes, which are 0 at first.
 */
struct sl_piece {
	struct sl_backend *backend;
	char *data;
	size_t length;
	uint64_t offset;
	struct sl_device *device; /* that has the memory; NULL: the host. See takes() */
	bool write;
	bool large;   /* of an extent of at least direct_bytes */
	bool aligned; /* offset and length are multiples of the file's alignment for direct I/O */
	bool missed;  /* read_now() was tried, and did not find it in memory */
	bool urgent;  /* a thread or stream waits for this piece already */
	/* Of a read from a backend with cut() or passes(): if not NULL, the extents to which the
	 * bytes belong, in the order of their offsets. `gaps`: bytes between them, which are
	 * dropped, less those that several extents have. */
	const struct sluice_extent *extents;
	size_t extent_count;
	int64_t gaps;
	void (*done)(struct sl_piece *);

	_Atomic bool cancelled; /* set by the engine, any thread: end early if that is easy */

	/* The engine's own. */
	struct sluice_op *op;
	struct sl_slot_use *slot_use; /* the operation whose slot holds the piece, or NULL */
	struct sl_list engine_link;   /* guarded by the operation's mutex */

	/* The result. */
	size_t moved;  /* bytes from the start of the piece; less than length: the file ended */
	bool direct;   /* they went around the page cache, and are in the cache of no core */
	int error;     /* 0, or negative: then moved means nothing */
	char *message; /* NULL, or the sentence behind error, which the engine frees */

	/* For the backend, which may leave them unused. */
	struct sl_list link;
	struct sl_task task;
};

/* The piece is over: nothing touches its data again. Any thread, no lock held, exactly once. */
static inline void sl_piece_done(struct sl_piece *piece)
{
	piece->done(piece);
}

/* How the engine cuts extents for a file. */
struct sl_limits {
	size_t piece_bytes; /* largest piece; pieces start at multiples of their length */
	size_t least_piece; /* 0: always piece_bytes. Else the length follows the bytes in flight, */
	unsigned spread;    /* of which this many pieces are wanted, unless cut() says more */
	unsigned depth;     /* pieces of an operation in flight */
	size_t piece_size;  /* of the backend's struct for a piece; 0: it is struct sl_piece */
	uint32_t alignment; /* of offset and length of aligned pieces; 0: there are none */
	bool sequential; /* a single piece for each extent, in turn; writes of remote files at once */
	bool whole;      /* and each extent in one piece */
	bool remote;     /* pieces take long, and come in any order */
	bool all_or_none; /* an incomplete file is not committed, however it was opened */
	bool size_waits;  /* size() may wait for storage: a thread that may wait asks */
	bool touches;     /* read_now() touches data itself, which has to be the host's */
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
 * What every backend does. The engine calls all of it, on a thread that may hold the lock of
 * submissions, which no backend takes, and no other lock but those that a function names. Only
 * functions that say so may wait for storage or a server. Those that return int return 0 or a
 * negative errno. Optional ones say what NULL means.
 */
struct sl_backend_ops {
	/* NULL, both: the backend never does. */
	const struct sl_device_moves *moves;
	const struct sl_slot_writes *slot_writes;

	/* ----------------------------------------------------------------- open and close */

	/* On a thread of the application, or of the context's opens. May wait. On failure with a
	 * sentence, and nothing is left. NULL: no URI names such a file. */
	int (*open)(struct sl_core *core, const struct sl_uri *uri,
	            const struct sluice_open_options *options, struct sl_backend **out);
	/*
	 * Begins an open() on a thread of the application. 0: opening->done() is called once, from
	 * a thread of the backend, with no lock held. -EAGAIN, without a sentence: it would wait,
	 * and a thread that may calls open(). Or another -errno with a sentence. NULL: as if
	 * -EAGAIN.
	 */
	int (*open_start)(struct sl_core *core, const struct sl_uri *uri,
	                  const struct sluice_open_options *options, struct sl_opening *opening);
	/* Some openings have `cancelled` set now. Any thread, with the mutex of an operation. NULL:
	 * with open_start(). */
	void (*cancel_open)(struct sl_core *core);
	/* Once, behind open(). *out is 0. */
	void (*limits)(struct sl_backend *backend, struct sl_limits *out);
	/* Once, behind open(): a string that two files of a context share exactly if they hold the
	 * same bytes. The caller frees it. */
	char *(*identity)(struct sl_backend *backend);
	/* In sluice_close(), once, with nothing in flight: makes the written bytes visible, and
	 * stable if asked for. May wait. On failure with a sentence. */
	int (*commit)(struct sl_backend *backend);
	/* With nothing in flight, on a thread that may wait; frees the backend. Without a commit
	 * before, REPLACE leaves nothing behind. */
	void (*close)(struct sl_backend *backend);

	/* ----------------------------------------------------------------- pieces */

	/* Bytes in the file, -1 if only reading tells, or a negative errno below that. At the start
	 * of each operation, any thread: waits only if limits say size_waits. NULL: as -1. */
	int64_t (*size)(struct sl_backend *backend);
	/* Reads bytes that are in memory already: length, or -EAGAIN, also if data is memory that
	 * the processor does not reach. Any thread. NULL: it cannot. */
	int64_t (*read_now)(struct sl_backend *backend, void *data, size_t length, uint64_t offset);
	/*
	 * Says how the next piece is to be read. left: bytes in flight of the file that are not
	 * handed out; room: bytes of memory that the pieces of the operation may occupy. Any
	 * thread, with the mutex of an operation. NULL: as the limits say.
	 */
	struct sl_cut (*cut)(struct sl_backend *backend, uint64_t left, uint64_t room);
	/*
	 * Returns how many bytes may lie between two extents of host memory that one piece reads;
	 * it passes over them. 0: a piece has one extent for now. Any thread, with the mutex of an
	 * operation. NULL: always 0.
	 */
	size_t (*passes)(struct sl_backend *backend);
	/* Takes the piece until sl_piece_done(), which comes once, from any thread, also from
	 * inside. Any thread. */
	void (*submit)(struct sl_backend *backend, struct sl_piece *piece);
	/* Some pieces have `cancelled` set now: wakes the threads that move them. Any thread.
	 * NULL: there is no thread to be woken. */
	void (*cancel)(struct sl_backend *backend);

	/* ----------------------------------------------------------------- the file as a whole */

	/* In sluice_stat(); may wait. If the bytes of the file are memory, it says where: this is
	 * how a copy reads right into them, or writes right from them, with another file's backend.
	 * On failure with a sentence. */
	int (*stat)(struct sl_backend *backend, struct sluice_file_info *out);
	/* A range that a write is about to extend the file to, before its first piece. On a thread
	 * of core->waiting; may wait. An error ends the operation. NULL: nothing to prepare. */
	int (*reserve)(struct sl_backend *backend, uint64_t offset, uint64_t length);
	/* On a thread of core->waiting; may wait. */
	int (*sync)(struct sl_backend *backend);
	int (*truncate)(struct sl_backend *backend, uint64_t length);

	/* ----------------------------------------------------------------- names */

	/*
	 * Of folders, as sluice_list_open() and sluice_list_next(). May wait. On failure with a
	 * sentence. NULL, all three: the scheme has no lists, or is S3, whose lists the engine
	 * reads.
	 */
	int (*list_open)(const struct sl_uri *uri, bool recursive, struct sl_listing **out);
	int (*list_next)(struct sl_listing *listing, struct sluice_entry *out);
	void (*list_close)(struct sl_listing *listing);
	/* As sluice_remove(), and NULL as above. May wait. On failure with a sentence. */
	int (*remove)(const struct sl_uri *uri);
};

/* ------------------------------------------------------------------------- between devices and files */

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

/* Of a backend that moves bytes between files and memory of devices itself. Submitting calls may
 * call the device's driver. */
struct sl_device_moves {
	/*
	 * Whether the backend moves these extents to and from that device's memory itself: 1; 0: it
	 * does not; or why it cannot follow its settings, with a sentence. From a submitting call.
	 * If it does, pieces of the extents may be submitted with `device` set, or, if in_stream,
	 * transfers be given to a stream of the device. NULL: limits.device says it.
	 */
	int (*takes)(struct sl_backend *backend, struct sl_device *device,
	             const struct sluice_extent *extents, size_t count, bool write, bool in_stream);
	/* Gives a transfer to a stream. From a submitting call, with the lock of submissions. On
	 * failure with a sentence. */
	int (*enqueue)(struct sl_backend *backend, struct sl_device *device, sluice_stream stream,
	               struct sl_transfer *transfer, bool write);
	/* The stream has passed it: 0, or why not all of it was moved, and the sentence, or NULL.
	 * On the thread that ends the operation; no call of the driver. */
	int (*passed)(struct sl_backend *backend, const struct sl_transfer *transfer, bool write,
	              char **message);
};

/* ------------------------------------------------------------------------------- writes through slots */

/* A write that comes through slots: its pieces may come after those of later operations. The struct
 * does not move until settle(). */
struct sl_coming {
	struct sl_list link; /* the backend's own */
	const struct sluice_extent *extents;
	size_t count;
};

/* Of a backend that writes bytes in their order. */
struct sl_slot_writes {
	/* Before the write has slots: 0, or a negative errno and why bytes cannot be written there.
	 * Any thread. */
	int (*admits)(struct sl_backend *backend, const struct sluice_extent *extents, size_t count,
	              const char **why);
	/* The turn of the write for slots is fixed, so that none it waits for comes behind it:
	 * other writes may follow its bytes. Any thread, perhaps with the mutex of an operation. */
	void (*announce)(struct sl_backend *backend, struct sl_coming *coming);
	/* Behind the last piece of each write in slots, announced or not: it is over, and its bytes
	 * are missing if error is not 0. Any thread. */
	void (*settle)(struct sl_backend *backend, struct sl_coming *coming, int error);
};

struct sl_backend {
	const struct sl_backend_ops *ops;
};

/* The table of schemes; its rows are in sluice.c, the last row has scheme NULL. */
struct sl_scheme {
	const char *scheme;
	const struct sl_backend_ops *ops;
};
extern const struct sl_scheme sl_schemes[];

#endif
