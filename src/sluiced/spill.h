/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What leaves memory when that is short, and comes back when somebody gets it. For the server's files.
 *
 *   copy      a file without a name that has the bytes of a region; only the vault keeps it
 *   spiller   a process of the server's that reads and writes copies, by the engine, and closes them
 *   park      a create, or a return, that waits until there is room
 *
 * What leaves and returns is a region, so that places in it stay. First it is copied, while it is sealed and
 * everybody may get and hold it: nothing changes it. When the copy is in the vault, and the memory is needed,
 * and nobody holds anything of it, all its blobs go through LEAVING to AWAY in one step of the server; then the
 * memory is given up. A get that finds one AWAY brings the region back: into new memory, which goes to the vault
 * when it is whole, then its blobs become SEALED one by one, under new generations. The copy stays, as long as
 * there is place for it, so that to leave once more costs nothing.
 *
 * Death of the server. A copy in the vault is whole. Memory is given up only when all blobs of the region are
 * AWAY, so memory with a SEALED blob in it is whole: then those that are AWAY become SEALED again; and memory
 * in which all are AWAY is worth nothing if there is a copy. What comes back is in the one memory or in the
 * other's copy, blob by blob. What the spiller was doing goes with it.
 *
 * tests/model/spill.pml has this for Spin.
 *
 * The spiller is a process, not threads of the server: opening, and closing
 * for the last time, files of gigabytes takes the disk's time; and what kills it kills no server.
 *
 * The server's one thread guards all of it.
 */
#ifndef SL_SLUICED_SPILL_H
#define SL_SLUICED_SPILL_H

#include "sluiced/server.h"

#define SL_COPIES_AT_ONCE 16 /* written, and as many read */
#define SL_PARKS_MOST     64 /* of a peer */

enum sl_copy_state { SL_COPY_WHOLE, SL_COPY_WRITING, SL_COPY_READING };
struct sl_copy {
	struct sl_list link;      /* spill->copies, or busy */
	struct sl_region *region; /* NULL: it went while the spiller was at work */
	enum sl_copy_state state;
	uint64_t number; /* of the job */
	uint64_t ranges; /* of the region, that are in it */
	uint64_t bytes;  /* in the folder */
	uint32_t row;    /* of the vault; SL_NO_ROW: it is not whole yet */
	int memory;      /* what it is read into, -1 */
	uint64_t taken;  /* bytes of memory that are counted for that */
	bool parked;     /* its return waits for room */
	bool ahead;      /* nobody waits for it to be written */
};
#define SL_NO_ROW UINT32_MAX

struct sl_spill {
	struct sl_source source;
	int socket; /* to the spiller; -1: there is none */
	pid_t pid;  /* of the last one; 0: there was none */
	struct sl_list
		copies; /* whole ones, and nobody is at them; those of what came back last are last */
	struct sl_list busy; /* the spiller is at them */
	struct sl_list parks;
	struct sl_park *turn; /* whose turn it is to take room */
	bool look;            /* there may be room */
	int64_t look_at;      /* or by then */
	int64_t rest_look;    /* nobody looks before */
	int64_t moved_at;     /* when a region left, or came back, the last time */
	int64_t rest_until;   /* nothing is written after a failure */
	int64_t freed_at;     /* when a file was given up, the last time */
	int64_t again_at;     /* nothing is written until that has shown on the disk */
	int64_t ahead_at;     /* nothing was found to be written ahead before that */
	char trouble[256];    /* what failed the last time, "" */
	uint64_t last_number, last_stamp, last_mark;
	unsigned writing, reading;
	bool deaf; /* the spiller does not hear us: it has much to do, or is dead, which epoll says */
	unsigned deaths; /* of spillers, in a row */
	uint64_t bytes;  /* in the folder */
	uint64_t blobs;  /* away */
	uint64_t left, returned, failed;
};

/* The spiller has died, and is worth another try. */
#define SL_ONCE_MORE (-ESHUTDOWN)

/* -------------------------------------------------------------------------------------- copy */

/* Has the spiller copy a region; ahead: nobody waits for it. False: not now. */
bool sl_copy_write(struct sl_server *server, struct sl_region *region, bool ahead);
/* The spiller has, in fd; or an error, with its sentence. */
void sl_copy_written(struct sl_server *server, struct sl_copy *copy, int error, int fd);
/* It is whole, and the spiller is not at it any more. */
void sl_copy_settle(struct sl_server *server, struct sl_copy *copy);
void sl_copy_free(struct sl_server *server, struct sl_copy *copy);

/* ------------------------------------------------------------------------------------- spill */

/* With the folder of the settings; 0, and server->spill is NULL, if there is none. */
int sl_spill_start(struct sl_server *server);
void sl_spill_stop(struct sl_server *server);
/*
 * Lets regions go, those first that were used least recently: 1: something went;
 * -EINPROGRESS: something will; 0: nothing can.
 */
int sl_spill_room(struct sl_server *server, uint64_t bytes);
/* Memory was taken: copies what would go next, when there is not much left. */
void sl_spill_ahead(struct sl_server *server);
/* Brings a region back. Ended by sl_get_wake() or sl_get_fail() for each of its blobs. -ENOMEM: it does not come. */
int sl_spill_want(struct sl_server *server, struct sl_region *region);
/* The region, or its copy alone, is of no use any more. */
void sl_spill_forget(struct sl_server *server, struct sl_region *region);
/* A copy of the vault, for the region that it is one of; all there is of it if that is not there. */
int sl_spill_adopt(struct sl_server *server, uint32_t row);
/* After the blobs of all regions are known. */
void sl_spill_settle(struct sl_server *server);
/* Why nothing was spilled, for a sentence: begins with "; ", or "". */
void sl_spill_trouble(const struct sl_server *server, char *text, size_t size);
/* The spiller has done something: error 0, or a sentence. fd: of a copy that was written; -1. */
void sl_spill_done(struct sl_server *server, uint64_t number, int error, const char *text, int fd);
/* It is dead: nothing that it was at is done. */
void sl_spill_lost(struct sl_server *server);
static inline void sl_spill_look(struct sl_server *server)
{
	if (server->spill)
		server->spill->look = true;
}

/* ----------------------------------------------------------------------------- the spiller */

enum sl_job_kind { SL_JOB_WRITE, SL_JOB_READ, SL_JOB_CLOSE };
struct sl_job {
	uint64_t number;
	uint32_t kind; /* of enum sl_job_kind */
	uint32_t zero;
	uint64_t bytes; /* of the region */
	uint64_t range_bytes;
	uint64_t ranges; /* that are to be moved */
};
struct sl_job_done {
	uint64_t number;
	int32_t error;
	uint32_t zero;
	char text[192];
};

/*
 * Has it do something, of WRITE: memory; of READ: the file, and memory; of CLOSE: a file. It gets duplicates.
 * 0: sl_spill_done() or sl_spill_lost() says how it ends, except for CLOSE. -EINPROGRESS: it has to be
 * said once more, to this process or the next one.
 */
int sl_spiller_send(struct sl_server *server, const struct sl_job *job, const int *fds,
                    unsigned count);
int sl_spiller_start(struct sl_server *server);
void sl_spiller_event(struct sl_server *server);
/* The process. */
_Noreturn void sl_spiller_run(int socket, const char *folder);

/* ------------------------------------------------------------------------------------- park */

/* The request in server->in waits for its turn; -EAGAIN, -ENOMEM with a sentence. */
int sl_park_request(struct sl_server *server, struct sl_peer *peer);
/* The region's return does. -ENOMEM. */
int sl_park_return(struct sl_server *server, struct sl_region *region);
void sl_park_drop(struct sl_server *server, struct sl_region *region);
void sl_park_end(struct sl_peer *peer);
/* Whether others wait for room, and it is not their turn. */
bool sl_park_is_before(const struct sl_server *server);
/* Nothing can go: whether the one whose turn it is waits all the same, for what others do; for a moment only. */
bool sl_park_has_time(const struct sl_server *server);
/* Those that can have it now. */
void sl_park_run(struct sl_server *server);
/* It is the turn of a region's return: starts to read it. -EINPROGRESS: not yet; else it is over. *where
 * becomes NULL if the region goes meanwhile. late: it does not wait for room any more. */
int sl_spill_return(struct sl_server *server, struct sl_region *const *where, bool late);

#endif
