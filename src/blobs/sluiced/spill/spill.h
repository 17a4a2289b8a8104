/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Spilling: regions leave memory for files when memory is short, and return when a client gets a
 * blob of them.
 *
 *   copy    a file without a name with the bytes of a region, kept by the descriptor table alone
 *   mover   a thread that writes, reads and closes copies (spill_io.c); the loop waits for none
 *
 * A whole region leaves and returns, so that offsets in it stay. First it is copied, while it is
 * sealed and every client may get and hold its blobs: nothing changes them. When the copy is in the
 * descriptor table, the memory is needed, and no client holds a blob of the region, all its blobs
 * go through LEAVING to AWAY in a single step of the server; then the memory is given up. A get
 * that finds a blob AWAY brings the region back into new memory, which goes to the descriptor table
 * when it is whole; then its blobs become SEALED one by one, under new generations. The copy stays
 * while there is space for it, so that leaving once more costs nothing.
 *
 * Death of the server. A copy in the descriptor table is whole. Memory is given up only when all
 * blobs of the region are AWAY, so memory with a SEALED blob in it is whole: then those that are
 * AWAY become SEALED again. Memory in which all blobs are AWAY is worthless if there is a copy.
 * During a return each blob is either in the new memory or in the copy. Movers die with the server;
 * a file that is not in the descriptor table is closed.
 *
 * tests/model/spill.pml has this for Spin.
 *
 * The server's thread guards everything, except where a mutex is named.
 */
#ifndef SL_SLUICED_SPILL_H
#define SL_SLUICED_SPILL_H

#include "core/core.h"
#include "sluiced/server.h"

#define SL_COPIES_AT_ONCE 16 /* being written, and as many being read */
#define SL_MOVERS         4  /* threads at most */

struct sl_region;
struct sl_wait;

enum sl_spill_copy_state {
	SL_COPY_WHOLE,
	/* The movers have it, and the server changes only its region. */
	SL_COPY_WRITING,
	SL_COPY_READING,
	SL_COPY_CLOSING
};
/* The work of a mover for a copy. */
struct sl_move_task {
	struct sl_task task;
	struct sl_spill_copy *copy;
};
struct sl_spill_copy {
	struct sl_list link;      /* in spill->copies if it is whole; in spill->ended after a job */
	struct sl_region *region; /* NULL: it went while the movers were at work */
	enum sl_spill_copy_state state;
	uint64_t ranges;      /* of the region, that are in the file */
	uint64_t bytes;       /* in the folder */
	uint32_t row;         /* of the descriptor table; SL_NO_ROW: it is not whole yet */
	uint64_t taken;       /* bytes counted for its return */
	uint64_t freed;       /* spill->freed when its job began */
	struct sl_wait *wait; /* of its return, for room; NULL */
	bool ahead;           /* it is written before anybody needs the memory */
	bool alone;           /* no other is written at the same time */
	/* The job, set before it is given to the movers. */
	struct sl_spill *spill;
	int file;   /* written or closed: of the job; read: of the descriptor table */
	int memory; /* of the job: the source of a write, the target of a read */
	uint64_t range_bytes, moving; /* of the region; the ranges to be moved */
	struct sl_move_task tasks[SL_MOVERS];
	/* Guarded by spill->mutex until the copy is in spill->ended. */
	uint64_t at;     /* every byte before it was taken by a mover */
	unsigned movers; /* that work on it, or are queued to */
	int error;
	char text[192];
};

struct sl_spill {
	struct sl_source source; /* of `event` */
	struct sl_list copies;   /* the whole copies, the most recently returned last */
	bool look;               /* there may be room for waits */
	int64_t look_at;         /* or there may be by then */
	int64_t rest_look;       /* waits are not tried before */
	int64_t moved_at;        /* when a region left or returned the last time */
	int64_t rest_until;      /* nothing is written before, after a failure */
	bool full;               /* the disk is full: nothing is written until a file is closed */
	bool narrow;       /* several writes ran out of space together: one at a time, none ahead */
	int64_t ahead_at;  /* the next search for regions to write ahead */
	char trouble[256]; /* the last failure, for sentences; "" */
	uint64_t last_stamp, last_mark;
	unsigned writing, reading, closing;
	uint64_t freed;           /* files that were closed */
	int error;                /* of the last return that failed, */
	char text[SL_TEXT_BYTES]; /* and its sentence */
	const char *folder;
	struct sl_pool *movers;
	int event; /* an eventfd, written by a mover after it has appended to `ended` */
	struct sl_mutex mutex;
	struct sl_list ended SL_GUARDED_BY(&mutex); /* copies with their job done */
};

/* --------------------------------------------------------------------------------------- spill */

/* Begins spilling; without a folder in the settings server->spill stays NULL. 0 or an error. */
int sl_spill_start(struct sl_server *server);
/*
 * Lets regions leave memory, the least recently used first, until so many bytes are free.
 * Returns 1 if something left, -EINPROGRESS if something will, 0 if nothing can.
 */
int sl_spill_room(struct sl_server *server, uint64_t bytes);
/* Lets regions leave while memory is over its limit, after returns. Returns true if it still is. */
bool sl_spill_shrink(struct sl_server *server);
/* Copies the regions that would leave next, if little memory is left. After taking memory. */
void sl_spill_ahead(struct sl_server *server);
/* Gives up the copy of a region that is freed, or was changed. */
void sl_spill_forget(struct sl_server *server, struct sl_region *region);
/* Adds a copy that a previous server has left; if its region is not there, that too, AWAY. */
int sl_spill_recover_copy(struct sl_server *server, uint32_t row);
/* Decides for each region between memory and copy, when the blobs of all regions are known. */
void sl_spill_recover(struct sl_server *server);
/* Writes why nothing was spilled, for the end of a sentence: begins with "; ", or is "". */
void sl_spill_trouble(const struct sl_server *server, char *text, size_t size);
/* Makes the next iteration try the waits for room. */
static inline void sl_spill_look(struct sl_server *server)
{
	if (server->spill)
		server->spill->look = true;
}

/* --------------------------------------------------------------------------------------- copies */

/* Has movers write a region to a file; ahead: of need. Returns false if it cannot be done now. */
bool sl_spill_copy_write(struct sl_server *server, struct sl_region *region, bool ahead);
/* Starts to read a region back. Returns 0 or an error with a sentence. */
int sl_spill_copy_read(struct sl_server *server, struct sl_region *region);
/* Fails the gets that wait for a region that cannot be read back. */
void sl_spill_fail_gets(struct sl_server *server, struct sl_region *region, int error);
/* Continues after the movers have ended jobs: handles their eventfd. */
void sl_spill_event(struct sl_server *server);

/* --------------------------------------------------------------------------------------- movers */

int sl_movers_start(struct sl_spill *spill, const char *folder);
/* Gives the movers a job, by the copy's state; ended by sl_spill_event(). */
void sl_movers_submit(struct sl_spill *spill, struct sl_spill_copy *copy);
/* Gives up a copy: a mover closes its file, and then it is forgotten. */
void sl_spill_copy_free(struct sl_server *server, struct sl_spill_copy *copy);
void sl_spill_copy_forget(struct sl_server *server, struct sl_spill_copy *copy);

#endif
