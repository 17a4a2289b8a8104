/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of this room share about local files. */
#ifndef SL_LOCAL_INTERNAL_H
#define SL_LOCAL_INTERNAL_H

#include "local/local.h"

#ifndef RWF_NOWAIT
#define RWF_NOWAIT 0x8
/*
 * Takes the result of one system call, or of one request of io_uring, for a piece: bytes, or a
 * negative errno. True: the piece is over. False: another call is to be made for the rest.
 */
int sl_transfer_step(struct sl_piece *piece, ssize_t result);

#endif
#ifndef RWF_DONTCACHE
#define RWF_DONTCACHE 0x80 /* Linux 6.14 */
/*
 * Takes the result of one system call, or of one request of io_uring, for a piece: bytes, or a
 * negative errno. True: the piece is over. False: another call is to be made for the rest.
 */
int sl_transfer_step(struct sl_piece *piece, ssize_t result);

#endif

/*
 * How many pieces of one file a kind of thread moves at a time, so that a file whose storage does not answer
 * leaves threads and requests to the others.
 */
struct sl_turns {
	struct sl_mutex mutex;
	unsigned most;          /* fixed */
	unsigned count;         /* guarded by mutex, as is the next: pieces that have a turn */
	struct sl_list waiting; /* for one */
	void (*start)(
		struct sl_piece *); /* fixed: a piece has its turn; any thread, no lock held */
};
/* Blocking writes into the page cache, other blocking calls, and requests of io_uring. */
enum sl_turn_kind { SL_TURN_WRITE, SL_TURN_CALL, SL_TURN_RING, SL_TURN_KINDS };

struct sl_local {
	struct sl_backend base;
	struct sl_core *core;
	unsigned choice; /* enum sl_choice */
	unsigned flags;  /* of enum sluice_open_flags */
	bool block_device;
	bool sink;   /* /dev/null */
	bool pseudo; /* as /proc: sizes mean nothing, and reads have to be in order */
	bool remote; /* a server, or a process, may have to be asked for the size, */
	bool blocks; /* and for all else: the kernel has few threads for requests that wait for one */
	bool made;   /* there was no file before it was opened */
	int descriptor;                              /* buffered */
	int direct;                                  /* opened with O_DIRECT; -1: none, */
	const char *buffered;                        /* and why not */
	uint32_t offset_alignment, memory_alignment; /* of direct */
	char *path;                                  /* what the file is, or will be, called */
	char *temporary;                             /* what it is called until commit, or NULL */
	bool part;                                   /* which the caller has named */
	mode_t lent;                                 /* permissions that only the part has */

	/* What the file system turned out not to do. They only ever become false. */
	_Atomic bool use_direct, use_nowait, use_dontcache;
	/* Whether the last look found the range resident; a hint. */
	_Atomic bool resident;
	struct sl_turns turns[SL_TURN_KINDS];
	/* What cuFile knows of it. */
	struct {
		struct sl_mutex mutex;  /* held while the file is registered */
		_Atomic(void *) handle; /* NULL: not yet */
		int descriptor;         /* of its own, once there is a handle */
		_Atomic bool left; /* it refused the file, and nobody had asked for it by name */
		bool direct;       /* that descriptor bypasses the page cache */
	} cufile;
	/* The whole file as it was at the first look without cachestat, never touched. */
	struct {
		struct sl_mutex mutex;
		unsigned char *base;
		size_t length;
	} map; /* base and length guarded by mutex */
};

static inline struct sl_local *sl_local(struct sl_backend *backend)
{
	return SL_CONTAINER(backend, struct sl_local, base);
}
static inline int sl_piece_descriptor(const struct sl_piece *piece)
{
	struct sl_local *local = sl_local(piece->backend);

	return piece->direct ? local->direct : local->descriptor;
}
/* The flags of preadv2() and pwritev2() for the piece. */
static inline int sl_piece_flags(const struct sl_piece *piece)
{
	return (piece->nowait ? RWF_NOWAIT : 0) | (piece->dontcache ? RWF_DONTCACHE : 0);
}

/* Where the next byte of the piece goes, or comes from. */
static inline char *sl_piece_memory(const struct sl_piece *piece)
{
	return (piece->bounce ? piece->bounce : piece->data) + piece->moved;
}

void sl_turns_init(struct sl_local *local);
void sl_turns_destroy(struct sl_local *local);
/* Starts the piece when it is its turn. */
void sl_turn_take(struct sl_piece *piece, enum sl_turn_kind kind);
/* Before the piece is over, because the file may be gone then. A piece without a turn is let be. */
void sl_turn_give(struct sl_piece *piece);
/* Ends the cancelled ones of those that wait for a turn, or for a buffer. */
void sl_turns_cancel(struct sl_backend *backend);
/* Moves the cancelled pieces of the file from a list, whose lock is held, to the end of out. */
void sl_local_take_cancelled(struct sl_backend *backend, struct sl_list *from, struct sl_list *out);
/* A piece that has neither turn nor buffer. */
void sl_local_end_cancelled(struct sl_piece *piece);

/* Gives the piece to the workers, or to the reactors; both end it with sl_local_done(). */
void sl_posix_start(struct sl_piece *piece);
void sl_uring_start_piece(struct sl_piece *piece);
void sl_posix_submit(struct sl_piece *piece);
void sl_uring_submit(struct sl_piece *piece);
void sl_local_done(struct sl_piece *piece);

/* Chooses the way of a piece, and gives it there. */
void sl_auto_submit(struct sl_backend *backend, struct sl_piece *piece);
/* The same for the rest of a piece that was not resident after all. */
void sl_auto_submit_cold(struct sl_piece *piece);
/* To the reactors if there are any, else to the workers. */
void sl_auto_execute(struct sl_piece *piece);

/* Gives the piece a buffer, now or when one is free, then executes it. False: there are none. */
bool sl_bounce_submit(struct sl_piece *piece);
/* Moves the cancelled pieces of the file that wait for one to the end of out. */
void sl_bounce_cancel(struct sl_backend *backend, struct sl_list *out);

/* SLUICE_OPEN_REPLACE: makes the temporary file and puts its name on local. The descriptor, or an error. */
int sl_replace_open(struct sl_local *local, const struct sluice_open_options *options);
/* Gives the file its name; nothing if there is no temporary one. With a sentence. */
int sl_replace_commit(struct sl_local *local);
/* Makes the name stable. With a sentence. */
int sl_replace_sync_folder(struct sl_local *local);
/* Removes what was not committed. */
void sl_replace_abandon(struct sl_local *local);

/* Whether at least half of the range is in the page cache. No waiting. */
bool sl_resident(struct sl_local *local, uint64_t offset, size_t length);
void sl_residency_close(struct sl_local *local);

/*
 * Takes the result of one system call, or of one request of io_uring, for a piece: bytes, or a
 * negative errno. True: the piece is over. False: another call is to be made for the rest.
 */
int sl_transfer_step(struct sl_piece *piece, ssize_t result);

#endif
