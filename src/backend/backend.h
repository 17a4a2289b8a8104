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

/* Features of the running kernel, less those that SLUICE_DISABLE masks. Fixed once the context is made, except for an
 * error of io_uring that comes later: the reactor that meets the error sets it. */
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
	/* Of local files: the mount of the last that was opened, and what is known of its file system; or 0. */
	_Atomic uint64_t last_mount;
};

/*
 * The bytes that one call of a backend moves. The engine fills in the first group and hands the piece over with
 * submit(); from then until it calls sl_piece_done() the backend alone touches it, but for
 * `cancelled`.
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
	/* Of a read from a backend with part() or passes(): if not NULL, the extents to which the bytes
	 * belong, in the order of their offsets. `gaps`: bytes between them, which are dropped, less those
	 * that several extents have. */
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
	int error;     /* 0, or negative: then moved means nothing */
	char *message; /* NULL, or the sentence behind error, which the engine frees */

	/* The backend's own. */
	struct sl_list link;
	struct sl_task task;
	bool direct; /* by the descriptor that bypasses the page cache; told to the engine */
	struct sl_permits *permits; /* its permit, held or awaited; NULL: none */
	bool nowait;                /* bytes that are not resident are left to another thread */
	bool dontcache;             /* through the page cache without staying there */
	bool drops;                 /* a read of bytes that were not there: its pages do not stay */
	char *bounce;               /* where the bytes are while data is not aligned, or NULL */
	size_t bounced;             /* of moved, the bytes that never were in `bounce` */
	bool waits;                 /* for a buffer, so no thread has it */
	unsigned vain; /* calls in a row that moved nothing, and were to be made again */
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
	unsigned spread;    /* of which this many pieces are wanted, unless part() says more */
	unsigned depth;     /* pieces of an operation in flight */
	uint32_t alignment; /* of offset and length of aligned pieces; 0: there are none */
	bool sequential; /* a single piece for each extent, in turn; writes of remote files at once */
	bool whole;      /* and no extent can be had in parts */
	bool remote;     /* pieces take long, and come in any order */
	bool all_or_none; /* an incomplete file is not committed, however it was opened */
	bool size_waits;  /* size() may wait for storage: a thread that may wait asks */
	bool touches;     /* read_now() touches data itself, which has to be the host's */
	/*
	 * The device whose memory the bytes of the file are; NULL: none. Pieces then are of host memory, or of any
	 * device's, with `device` set, and takes() is not asked. Streams of that device move transfers between
	 * it, host memory that it has registered, and the file.
	 */
	struct sl_device *device;
};

/* Bytes that a stream of a device moves between a file and memory of the device. The struct stays in its place until
 * the stream has passed. */
struct sl_transfer {
	char *data;
	size_t length;
	off_t offset;
	/* The backend's own. */
	off_t base_offset;
	ssize_t moved; /* written when the stream comes to it */
};

/* A write that comes through slots: its pieces may come after those of later operations. The struct stays in its place
 * until settle(). */
struct sl_coming {
	struct sl_list link; /* the backend's own */
	const struct sluice_extent *extents;
	size_t count;
};

/* An open() in flight. The struct stays in its place until done(). */
struct sl_opening {
	_Atomic bool cancelled; /* set by the engine, any thread: end early if that is easy */
	void (*done)(struct sl_opening *);
	const struct sl_backend_ops *ops; /* that open_start() was called of */

	/* The result. */
	struct sl_backend *backend; /* with an error, too, if closing it may wait; or NULL */
	int error;                  /* 0, or negative; -EREMOTE: open() has to be called */
	char *message;              /* NULL, or the sentence behind error, which the engine frees */
};

/* How a backend wants a piece. */
struct sl_part {
	size_t length;  /* at most */
	size_t gap;     /* between extents that a piece may join */
	unsigned depth; /* pieces of an operation in flight */
};

struct sl_backend_ops {
	/* May wait for storage; the caller's thread. On failure with a sentence. */
	int (*open)(struct sl_core *core, const struct sl_uri *uri,
	            const struct sluice_open_options *options, struct sl_backend **out);
	/*
	 * Begins an open() on a thread that is not to wait. 0: opening->done() is called once, from a thread of the
	 * backend, and no lock is held. -EAGAIN, without a sentence: it would wait, and a thread that may calls open(). Or another
	 * -errno with a sentence. NULL: as if -EAGAIN.
	 */
	int (*open_start)(struct sl_core *core, const struct sl_uri *uri,
	                  const struct sluice_open_options *options, struct sl_opening *opening);
	/* Some openings have `cancelled` set now. Any thread, with the mutex of an operation. */
	void (*cancel_open)(struct sl_core *core);
	/* Once, after open. */
	void (*limits)(struct sl_backend *backend, struct sl_limits *out);
	/* Equal for two files of a context exactly if they hold the same bytes. Freed by the caller. */
	char *(*identity)(struct sl_backend *backend);
	/* Bytes in the file, -1 if only reading tells, or a negative errno below that. At the start
	 * of each operation, from any thread: never waits for storage unless limits say size_waits. */
	int64_t (*size)(struct sl_backend *backend);
	/* May wait; from sluice_stat(). If the bytes of the file are memory, it says where: this is how a copy
	 * reads right into them, or writes right from them, with another file's backend. */
	int (*stat)(struct sl_backend *backend, struct sluice_file_info *out);
	/* Reads bytes that are in memory already, without waiting: length, or -EAGAIN, also if data is memory that
	 * the processor does not reach; any thread. NULL: the backend cannot. */
	int64_t (*read_now)(struct sl_backend *backend, void *data, size_t length, uint64_t offset);
	/*
	 * Whether the backend moves these extents to and from that device's memory itself: 1; 0: it does
	 * not; or why it cannot follow its settings, with a sentence. From a submitting call; may call
	 * the device's driver. If it does, pieces of the extents may be submitted with `device` set, or,
	 * if in_stream, transfers be given to a stream of the device. NULL: never.
	 */
	int (*takes)(struct sl_backend *backend, struct sl_device *device,
	             const struct sluice_extent *extents, size_t count, bool write, bool in_stream);
	/* Gives a transfer to a stream. From a submitting call; a call of the driver. On failure with a
	 * sentence. */
	int (*enqueue)(struct sl_backend *backend, struct sl_device *device, sluice_stream stream,
	               struct sl_transfer *transfer, bool write);
	/* The stream has passed it: 0, or why not all of it was moved, and the sentence, or NULL. */
	int (*passed)(struct sl_backend *backend, const struct sl_transfer *transfer, bool write,
	              char **message);
	/*
	 * Says how the next piece is to be read. left: bytes in flight of the file that are not handed
	 * out; room: bytes of memory that the pieces of the operation may occupy. Holds the mutex of
	 * an operation; does not wait. NULL: as the limits say.
	 */
	struct sl_part (*part)(struct sl_backend *backend, uint64_t left, uint64_t room);
	/*
	 * Returns how many bytes may lie between two extents of host memory that one piece reads; it passes
	 * over them. 0: a piece has one extent for now. Holds the mutex of an operation; does not wait.
	 * NULL: always.
	 */
	size_t (*passes)(struct sl_backend *backend);
	/*
	 * Of a write that comes through slots. admits(), before it has slots: 0, or a negative errno and why bytes cannot
	 * be written there. announce(), when its turn for slots is fixed, so that none it waits for comes behind it: other
	 * writes may follow its bytes. settle(), after the last piece, also if it was not announced: it is over, and its bytes are
	 * missing if error is not 0. Do not wait. The first two may hold the mutex of an operation, the third no lock. NULL, all three: any
	 * place will do.
	 */
	int (*admits)(struct sl_backend *backend, const struct sluice_extent *extents, size_t count,
	              const char **why);
	void (*announce)(struct sl_backend *backend, struct sl_coming *coming);
	void (*settle)(struct sl_backend *backend, struct sl_coming *coming, int error);
	/* Called with no lock held, from any thread that is not to wait for storage;
	 * sl_piece_done() exactly once, from any thread, also from inside. */
	void (*submit)(struct sl_backend *backend, struct sl_piece *piece);
	/* Some pieces have `cancelled` set now: wakes the threads that move them. Any thread, no lock held.
	 * NULL: there is no thread to be woken. */
	void (*cancel)(struct sl_backend *backend);
	/* A range that a write is about to extend the file to. May wait. An error ends the operation.
	 * NULL: nothing to prepare. */
	int (*reserve)(struct sl_backend *backend, uint64_t offset, uint64_t length);
	/* May wait. */
	int (*sync)(struct sl_backend *backend);
	int (*truncate)(struct sl_backend *backend, uint64_t length);
	/* Makes the written bytes visible, and stable if asked for. From sluice_close(), once, when
	 * nothing is in flight; may wait. On failure with a sentence. */
	int (*commit)(struct sl_backend *backend);
	/* When nothing is in flight. Without a commit before, REPLACE leaves nothing behind. */
	void (*close)(struct sl_backend *backend);
};

struct sl_backend {
	const struct sl_backend_ops *ops;
};

/* A list that is open. */
struct sl_listing {
	const struct sl_names_ops *ops;
};

/* What a scheme does with names alone, as the public call of that name. All may wait. On failure with a sentence. NULL: the
 * scheme has none of it. */
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

#endif
