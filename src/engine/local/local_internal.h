/* SPDX-License-Identifier: Apache-2.0 */
/* The struct of a local file, and the functions by which the files of this room move its pieces. */
#ifndef SL_LOCAL_INTERNAL_H
#define SL_LOCAL_INTERNAL_H

#include <sys/syscall.h>

#include "local/local.h"

#ifndef SYS_cachestat
#define SYS_cachestat 451
#endif
#ifndef RWF_NOWAIT
#define RWF_NOWAIT 0x8
#endif
#ifndef RWF_DONTCACHE
#define RWF_DONTCACHE 0x80 /* Linux 6.14 */
#endif

/* A counting semaphore: how many pieces of a file a kind of thread moves at a time. */
struct sl_permits {
	struct sl_mutex mutex;
	unsigned most;                                /* fixed */
	unsigned count SL_GUARDED_BY(&mutex);         /* pieces that have a permit */
	struct sl_list waiting SL_GUARDED_BY(&mutex); /* pieces without a permit */
	/* Fixed; called on any thread when the piece has its permit, without a lock. */
	void (*start)(struct sl_piece *);
};
/* Blocking writes into the page cache, other blocking calls, and requests of io_uring. */
enum sl_permit_kind { SL_PERMIT_WRITE, SL_PERMIT_CALL, SL_PERMIT_RING, SL_PERMIT_KINDS };

struct sl_local {
	struct sl_backend base;
	struct sl_core *core;
	unsigned choice; /* enum sl_choice */
	unsigned flags;  /* of enum sluice_open_flags */
	bool block_device;
	bool sink;   /* /dev/null */
	bool pseudo; /* as /proc: sizes mean nothing, and reads have to be in order */
	bool memory; /* as tmpfs, which refuses RWF_NOWAIT: no read of it waits */
	bool remote; /* fstat() may ask a server, or a process */
	bool blocks; /* and so may all other calls: the kernel has few threads for such requests */
	bool made;   /* the file did not exist before it was opened */
	bool uncached;        /* reads are to leave nothing in the page cache */
	bool told;            /* the file system has told the alignment */
	dev_t device;         /* of a block device its own, else that with the inode */
	ino_t inode;          /* or 0 */
	uint64_t mount;       /* which no other mount ever has, or 0 */
	int descriptor;       /* of buffered I/O */
	_Atomic int direct;   /* opened with O_DIRECT, once a piece needs it, or -1 */
	const char *buffered; /* why there is no direct I/O, or NULL */
	uint32_t offset_alignment, memory_alignment; /* of direct */
	char *path;                                  /* the final name */
	char *temporary;                             /* the name until commit, or NULL */
	bool part;   /* the caller has given the temporary name (options.part) */
	mode_t lent; /* permissions that only the part has */

	/* Features of the file system as far as is known. They only ever become false. */
	_Atomic bool blocking; /* O_NONBLOCK, which is for the open, has been cleared */
	_Atomic bool use_direct, use_nowait, use_dontcache;
	/* A hint: the last look found the range in the page cache. */
	_Atomic bool resident;
	struct sl_permits permits[SL_PERMIT_KINDS];
	struct {
		struct sl_mutex mutex;  /* held while the file is registered with cuFile */
		_Atomic(void *) handle; /* NULL: not yet registered */
		int descriptor;         /* of its own, once there is a handle */
		_Atomic bool left;      /* cuFile refused the file, and the choice is auto */
		bool direct;            /* that descriptor bypasses the page cache */
	} cufile;
	/* Without cachestat(): a mapping of the file of the first look; never touched. */
	struct {
		struct sl_mutex mutex;
		unsigned char *base SL_GUARDED_BY(&mutex);
		size_t length SL_GUARDED_BY(&mutex);
	} map;
};

static inline struct sl_local *sl_local_of(struct sl_backend *backend)
{
	return SL_CONTAINER(backend, struct sl_local, base);
}

struct sl_local_piece {
	struct sl_piece base;
	struct sl_local_way {
		struct sl_permits *permits; /* held or awaited; NULL: none */
		bool nowait;    /* bytes are left to another thread unless they are resident */
		bool dontcache; /* through the page cache without staying there */
		bool drops;     /* a read of absent bytes: the pages do not stay */
		char *bounce;   /* where the bytes are while data is not aligned, or NULL */
		size_t skipped; /* bytes from the start, which never are in `bounce` */
		unsigned vain;  /* calls in a row which moved nothing, and were to be made again */
	} way;
};
/* Returns how a piece is being moved; for the thread with the piece. */
static inline struct sl_local_way *sl_local_way_of(const struct sl_piece *piece)
{
	return &SL_CONTAINER(piece, struct sl_local_piece, base)->way;
}
/* Opens the file for direct I/O at the first use; may wait if local->blocks. -1: it fails. */
int sl_local_direct(struct sl_local *local);
static inline int sl_piece_descriptor(const struct sl_piece *piece)
{
	struct sl_local *local = sl_local_of(piece->backend);

	return piece->direct ? sl_local_direct(local) : local->descriptor;
}
/* Returns the flags of preadv2() and pwritev2() for the piece. */
static inline int sl_piece_flags(const struct sl_piece *piece)
{
	const struct sl_local_way *way = sl_local_way_of(piece);
	bool nowait = way->nowait && !sl_local_of(piece->backend)->memory;

	return (nowait ? RWF_NOWAIT : 0) | (way->dontcache ? RWF_DONTCACHE : 0);
}
/* Returns the address of the next byte to move. */
static inline char *sl_piece_memory(const struct sl_piece *piece)
{
	char *bounce = sl_local_way_of(piece)->bounce;

	return (bounce ? bounce : piece->data) + piece->moved;
}

/* ---------------------------------------------------------------------------------------- io.c */

/* Functions of struct sl_backend_ops. */
int64_t sl_local_size(struct sl_backend *backend);
int64_t sl_local_read_now(struct sl_backend *backend, void *data, size_t length, uint64_t offset);
void sl_local_submit(struct sl_backend *backend, struct sl_piece *piece);
/* Gives a piece that is not resident to the reactors if there are any, else to the workers. */
void sl_local_execute(struct sl_piece *piece);
/* Gives the piece to the workers, as soon as it has a permit. They end it with sl_local_done(). */
void sl_posix_submit(struct sl_piece *piece);
/* Gives a piece that has its permit, or needs none, to the workers. */
void sl_posix_start(struct sl_piece *piece);
/* Returns whether at least half of the range, or all if `uncached`, is in the page cache. No
 * wait. */
bool sl_resident(struct sl_local *local, uint64_t offset, size_t length);
void sl_residency_close(struct sl_local *local);

/* ------------------------------------------------------------------------------------ result.c */

/*
 * Takes the result of a system call, or of a request of io_uring, for a piece: bytes, or a negative
 * errno. Returns true if the piece is over, false if another call is needed for the rest.
 */
int sl_transfer_step(struct sl_piece *piece, ssize_t result);
/* Gives back permit and buffer, and ends the piece. Any thread. */
void sl_local_done(struct sl_piece *piece);

/* ----------------------------------------------------------------------- permit.c and bounce.c */

void sl_permits_init(struct sl_local *local);
void sl_permits_destroy(struct sl_local *local);
/* Starts the piece as soon as it has a permit. */
void sl_permit_take(struct sl_piece *piece, enum sl_permit_kind kind);
/* Gives the piece's permit to the next, before the piece is over: the file may close then. */
void sl_permit_give(struct sl_piece *piece);
/* Ends the cancelled pieces that wait for a permit or for a buffer. */
void sl_permits_cancel(struct sl_backend *backend);
/* Moves a file's cancelled pieces from a list to the end of out. Under the list's lock. */
void sl_local_take_cancelled(struct sl_backend *backend, struct sl_list *from, struct sl_list *out);
/* Ends a cancelled piece that has neither permit nor buffer. */
void sl_local_end_cancelled(struct sl_piece *piece);

/* Executes the piece as soon as it has a buffer. Returns false if there are no buffers. */
bool sl_bounce_submit(struct sl_piece *piece);
/* Gives a piece's buffer back. Returns false if a worker copies first, and ends the piece. */
bool sl_bounce_finish(struct sl_piece *piece);
/* Moves the cancelled pieces of the file that wait for a buffer to the end of out. */
void sl_bounce_cancel(struct sl_backend *backend, struct sl_list *out);

/* ------------------------------------------------------------------------------------- uring.c */

/* Gives the piece to the reactors, as soon as it has a permit. They end it with sl_local_done(). */
void sl_uring_submit(struct sl_piece *piece);
/* Gives a piece that has its permit to the reactors. */
void sl_uring_start_piece(struct sl_piece *piece);

/* ------------------------------------------------------------------------------------ cufile.c */

/* Gives a piece of memory of a GPU to the threads of cuFile. */
void sl_cufile_submit(struct sl_piece *piece);

/* ----------------------------------------------------------------------------------- replace.c */

/* SLUICE_OPEN_REPLACE: makes the temporary file. Its descriptor, or -errno with a sentence. */
int sl_replace_open(struct sl_local *local, const struct sluice_open_options *options);
/* Gives a temporary file, if there is any, its final name. 0, or -errno with a sentence. */
int sl_replace_commit(struct sl_local *local);
/* Removes the temporary file, if any; a part that the caller named stays unless it is empty. */
void sl_replace_abandon(struct sl_local *local);

#endif
