/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What leaves memory when that is short, and comes back when somebody gets it. For the server's files.
 *
 *   copy      a file without a name that has the bytes of a region; only the descriptor table keeps it
 *   mover     a thread of the server that writes, reads and closes such files (spill_io.c); the server's loop waits for
 *             none of them
 *
 * What leaves and returns is a region, so that places in it stay. First it is copied, while it is sealed and
 * everybody may get and hold it: nothing changes it. When the copy is in the descriptor table, and the memory is needed,
 * and nobody holds anything of it, all its blobs go through LEAVING to AWAY in one step of the server; then the
 * memory is given up. A get that finds one AWAY brings the region back: into new memory, which goes to the descriptor table
 * when it is whole, then its blobs become SEALED one by one, under new generations. The copy stays, as long as
 * there is place for it, so that to leave once more costs nothing.
 *
 * Death of the server. A copy in the descriptor table is whole. Memory is given up only when all blobs of the region are
 * AWAY, so memory with a SEALED blob in it is whole: then those that are AWAY become SEALED again; and memory
 * in which all are AWAY is worth nothing if there is a copy. What comes back is in the one memory or in the
 * other's copy, blob by blob. Movers die with the server; a file that is not in the descriptor table is closed.
 *
 * tests/model/spill.pml has this for Spin.
 *
 * The server's thread guards all of it, but where a mutex is named.
 */
#ifndef SL_SLUICED_SPILL_H
#define SL_SLUICED_SPILL_H

#include "sluiced/server.h"

#define SL_COPIES_AT_ONCE 16 /* written, and as many read */

#define SL_MOVERS 4 /* threads at most */

enum sl_copy_state {
	SL_COPY_WHOLE,
	/* The movers have it, and the server changes nothing of it but its region. */
	SL_COPY_WRITING,
	SL_COPY_READING,
	SL_COPY_CLOSING
};
/* What a mover does for a copy. */
struct sl_help {
	struct sl_task task;
	struct sl_copy *copy;
};
struct sl_copy {
	struct sl_list link;      /* spill->copies if it is whole; spill->ended after a job */
	struct sl_region *region; /* NULL: it went while the movers were at work */
	enum sl_copy_state state;
	uint64_t ranges;      /* of the region, that are in it */
	uint64_t bytes;       /* in the folder */
	uint32_t row;         /* of the descriptor table; SL_NO_ROW: it is not whole yet */
	uint64_t taken;       /* bytes of memory that are counted for its return */
	uint64_t freed;       /* spill->freed when its job began */
	struct sl_wait *wait; /* of its return, for room; NULL */
	bool ahead;           /* nobody waits for it to be written */
	/* The job. */
	struct sl_spill *spill;
	int file;   /* written and closed: of the job; read: of the descriptor table */
	int memory; /* of the job: what is written, or read into */
	uint64_t range_bytes, moving; /* of the region; the ranges that are moved */
	struct sl_help help[SL_MOVERS];
	/* Guarded by spill->mutex until the copy is in spill->ended. */
	uint64_t at;     /* what lies before it was begun */
	unsigned movers; /* that are at it, or will be */
	int error;
	char text[192];
};

struct sl_spill {
	struct sl_source source;
	struct sl_list copies; /* whole ones; those of what came back last are last */
	bool look;             /* there may be room */
	int64_t look_at;       /* or by then */
	int64_t rest_look;     /* nobody looks before */
	int64_t moved_at;      /* when a region left, or came back, the last time */
	int64_t rest_until;    /* nothing is written after a failure */
	bool full;             /* the disk is, and nothing is written until a file is closed */
	bool narrow; /* there was no place for all that were written: one at a time is, and none ahead */
	int64_t ahead_at;  /* nothing was found to be written ahead before that */
	char trouble[256]; /* what failed the last time, "" */
	uint64_t last_stamp, last_mark;
	unsigned writing, reading, closing;
	uint64_t freed; /* files that were closed */
	uint64_t bytes; /* in the folder */
	uint64_t blobs; /* away */
	uint64_t left, returned, failed;
	int error; /* why the last return failed, */
	char text[SL_TEXT_BYTES];
	const char *folder;
	struct sl_pool *movers;
	int event; /* an eventfd: the movers have done something */
	struct sl_mutex mutex;
	struct sl_list ended; /* copies whose job is done; guarded by mutex */
};

/* -------------------------------------------------------------------------------------- copy */

/* Has the movers copy a region; ahead: nobody waits for it. False: not now. */
bool sl_copy_write(struct sl_server *server, struct sl_region *region, bool ahead);
/* The movers have ended its job. */
void sl_copy_ended(struct sl_server *server, struct sl_copy *copy);

/* ------------------------------------------------------------------------------------- spill */

/* With the folder of the settings; 0, and server->spill is NULL, if there is none. */
int sl_spill_start(struct sl_server *server);
/* Lets regions go, least recently used first: 1: something went; -EINPROGRESS: something will; 0: nothing can. */
int sl_spill_room(struct sl_server *server, uint64_t bytes);
/* What came back beyond the limit has to leave, or others: whether that is still to be. */
bool sl_spill_shrink(struct sl_server *server);
/* Memory was taken: copies what would go next, when there is not much left. */
void sl_spill_ahead(struct sl_server *server);
/* Brings a region back. Ended by sl_get_wake() or sl_get_fail() for each of its blobs. -ENOMEM: it does not come. */
int sl_spill_want(struct sl_server *server, struct sl_region *region);
/* The region, or its copy alone, is of no use any more. */
void sl_spill_forget(struct sl_server *server, struct sl_region *region);
/* A copy of the descriptor table, for the region that it is one of; all there is of it if that is not there. */
int sl_spill_adopt(struct sl_server *server, uint32_t row);
/* After the blobs of all regions are known. */
void sl_spill_settle(struct sl_server *server);
/* Why nothing was spilled, for a sentence: begins with "; ", or "". */
void sl_spill_trouble(const struct sl_server *server, char *text, size_t size);
static inline void sl_spill_look(struct sl_server *server)
{
	if (server->spill)
		server->spill->look = true;
}

/* ------------------------------------------------------------------------------------ movers */

int sl_movers_start(struct sl_spill *spill, const char *folder);
/* They do what its state says, and sl_copy_ended() says how that ends. */
void sl_movers_give(struct sl_spill *spill, struct sl_copy *copy);
/* The eventfd is readable. */
void sl_movers_event(struct sl_server *server);

/* ----------------------------------------------------------------------------------- return */

/* Starts to read a region; -EINPROGRESS: not yet. *where becomes NULL if it goes. late: it waits for no room. */
int sl_spill_return(struct sl_server *server, struct sl_region *const *where, bool late);

#endif
