/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The server of the store: one loop, nothing in it that waits for a client. All that is here belongs to its thread, but
 * where a mutex is named. For its own files.
 *
 *   peer     a connection; or a client of the server before, who has not come back yet
 *   region   memory behind one descriptor: one range, or up to 64 of one size for small blobs. Of the host it is
 *            made here; of a device by the client who makes blobs in it, and offered
 *   import   a client that may have the memory of a device mapped
 *   ticket   a range that a peer may make a blob in
 *   blob     what the server knows of an entry of the catalogue besides what that says
 */
#ifndef SL_SLUICED_SERVER_H
#define SL_SLUICED_SERVER_H

#include "catalogue/catalogue.h"
#include "protocol/protocol.h"
#include "sluiced/descriptors.h"

struct sl_server;

#define SL_CLASSES      5 /* of small blobs of the host: 4, 8, 16, 32 and 64 KiB */
#define SL_SMALL_BYTES  65536
#define SL_PAGE_BYTES   UINT64_C(4096)
#define SL_RANGES_MOST  64
#define SL_TICKETS_MOST 1024 /* of a peer */
#define SL_WAITS_MOST   128  /* of a peer, of all kinds */
#define SL_WAIT_BUCKETS 1024
#define SL_PINS_MOST    256 /* of a peer */
#define SL_STRANGERS    64  /* connections that have not said their role */
#define SL_KEPT_MOST    256 /* regions that are kept for the next blobs */
#define SL_BUCKETS      4096
#define SL_NO_SLOT      UINT32_MAX
#define SL_NO_ROW       UINT32_MAX

/* On devices. */
#define SL_DEVICE_CLASSES  6 /* of small blobs: 32 KiB to 1 MiB */
#define SL_DEVICE_SMALLEST UINT64_C(32768)
#define SL_DEVICE_SMALL    UINT64_C(1048576)
#define SL_DEVICE_UNIT     UINT64_C(2097152)            /* what memory is made in */
#define SL_IMPORTS_MOST    4096                         /* of a peer */
#define SL_NO_LIMIT        UINT64_C(0x7fffffffffffffff) /* of bytes */

/* Of the memory of a device: in regions, and in those of them that are deleted and still mapped by somebody. */
struct sl_device_use {
	uint64_t bytes, leaving;
};

/* A process that has a large piece of some memory, for sentences: as it was at most a tenth of a second ago. */
struct sl_told {
	int64_t until;
	bool late; /* of what is to be unmapped */
	pid_t pid; /* 0: nobody */
	uint64_t bytes;
};

struct sl_region {
	struct sl_list bucket;  /* server->regions, by id */
	struct sl_list link;    /* writer->slabs of its class, if it has free ranges */
	struct sl_list left;    /* server->kept, if it is empty; of a device: server->leaving */
	int64_t empty_since;    /* if it is in server->kept */
	struct sl_list written; /* writer->regions, or writer->published */
	struct sl_peer *writer; /* may have it mapped for writing; NULL: nobody has */
	uint64_t id, bytes;
	uint32_t row;
	uint32_t range_bytes; /* 0: it is one range */
	unsigned ranges;
	uint64_t used;  /* by range: with a ticket, or a blob */
	uint64_t there; /* by range: has memory, which counts */
	bool frozen; /* only a server before this one knew who has it mapped: not to be used again */
	int32_t device; /* -1: the host; what follows is for devices */
	uint32_t kind;  /* of enum sluice_blob_kinds */
	int offered; /* 1: the descriptor table has its descriptor, in `row`; 0: not yet; or why it could not be kept */
	uint64_t memfd_bytes; /* in server->memfd_bytes: it is no device's driver that made it */
	bool leaving;         /* no blob will ever be in it again, and who has it mapped was told */
	uint64_t maker;       /* the ticket whose lease says that it is to be made; 0 */
	struct sl_list imports;
	bool away;            /* there is no memory, and no row: its bytes are in its copy */
	struct sl_copy *copy; /* whole or not; no new blob is made in the region then. NULL */
	uint64_t origin;      /* the number of the region that its blobs were made in */
	uint64_t stamp;       /* larger: something was sealed in it, or came back, later */
	uint64_t wanted;      /* the last look at who waits that has found it wanted */
	uint32_t slots[];     /* of the entry in each range, or SL_NO_SLOT */
};

struct sl_import {
	struct sl_list link;      /* region->imports */
	struct sl_list peer_link; /* peer->imports */
	struct sl_region *region;
	struct sl_peer *peer;
};

/* Memory to be had for a blob. */
struct sl_wanted {
	uint64_t bytes;
	uint32_t flags;
	int32_t device;
	uint32_t kind;
};

struct sl_ticket {
	struct sl_list bucket; /* server->tickets, by number */
	struct sl_list link;   /* peer->tickets */
	uint64_t number;
	struct sl_peer *peer;
	struct sl_region *region;
	unsigned range;
	uint32_t slot;              /* of the entry that has its name, or SL_NO_SLOT */
	struct sl_metadata *record; /* that came before the seal, or NULL */
};

struct sl_blob {
	struct sl_region *region; /* NULL: its place is unknown, and it is being deleted */
	unsigned range;
	struct sl_list loose; /* server->caches, or transients */
	uint32_t next;        /* of those whose ids have the same rest */
	uint64_t id;          /* 0: the slot is free */
};

/* A blob, or a region with all that is in it, that may go when memory is short. */
struct sl_candidate {
	struct sl_region *region;
	uint32_t slot;  /* of the blob */
	uint64_t idle;  /* since when nobody has used it */
	uint64_t stamp; /* of two that are equal, the smaller one goes first */
};

/* What somebody waits to read from us. */
struct sl_pending {
	struct sl_list link;
	int fd; /* to go with it, closed afterwards; -1 */
	size_t bytes;
	_Alignas(8) unsigned char data[]; /* with room for a refusal */
};

/* A request that is answered later, or the return of a region. */
struct sl_wait {
	struct sl_list link;      /* a bucket of server->waits, or server->room.queue */
	struct sl_list peer_link; /* peer->waits */
	struct sl_peer *peer;     /* NULL: it is the return of a region */
	struct sl_region *region; /* that one; NULL if it went */
	int64_t since, deadline;
	int32_t device; /* whose room it waits for; -1: the host's */
	/* Of a get or pin. */
	bool for_blob;
	bool patient;     /* it waits for a seal; else for the disk only */
	bool disk;        /* all are sealed, and some are being read: there is no deadline */
	unsigned missing; /* the key that was not there the last time */
	_Alignas(8) struct sl_head request; /* as it came, with all that follows */
};

/* What epoll knows: a function for its events, or a peer, whose socket or pidfd it is. */
struct sl_source {
	void (*event)(struct sl_server *server);
	struct sl_peer *peer;
};

struct sl_peer {
	struct sl_list link; /* server->peers or ->dead */
	struct sl_source socket, death;
	int fd; /* -1: it has closed its end, but its process lives; or it has not come back */
	int pidfd;
	pid_t pid;
	uid_t uid;
	bool gone;        /* freed at the end of the turn */
	bool waiting;     /* for the socket to become writable; then nothing is read from it */
	uint32_t role;    /* of enum sl_role; 0: it has not said */
	int64_t hello_by; /* without a role: it is closed then */

	uint64_t session;
	uint32_t row;     /* of the descriptor table, of its references */
	uint32_t process; /* the same, of its pidfd; SL_NO_ROW: the peer has it alone */
	struct sl_references *references;
	struct sl_list tickets;
	unsigned ticket_count;
	uint64_t leased_bytes; /* of them */
	/* Regions with free ranges that it may write to, by their size: of the host, then of devices. */
	struct sl_list slabs[SL_CLASSES + SL_DEVICE_CLASSES];
	struct sl_list regions;   /* that it may have mapped for writing */
	struct sl_list published; /* regions of its own memory */
	struct sl_list imports;
	unsigned import_count;
	bool awaited; /* counted in server->awaited */
	struct sl_list waits;
	unsigned wait_count;
	struct sl_list out;   /* of struct sl_pending */
	unsigned descriptors; /* that were sent since the client had last read all */
	/* Held until the client has taken them, in the order of its requests. */
	struct {
		uint32_t serial, slot;
		int64_t until;
	} pins[SL_PINS_MOST];
	unsigned pin_count;

	char prefix[SL_NAME_BYTES]; /* of a watch */
	bool lost;                  /* events could not be sent */
};

/* A thread that closes descriptors, and gives memory back; ends with the process. */
struct sl_closer {
	struct sl_pool *pool;
	_Atomic uint64_t bytes; /* that threads are to give back, or are giving back */
};

struct sl_server {
	struct sl_descriptors *descriptors;
	const struct sl_server_settings *settings; /* in the ledger */
	int epoll, signals, alarm_fd;
	bool stopping, alone; /* alone: there is no supervisor */
	int64_t supervise_at; /* the next one is not made before */
	/* Whoever asked for the upgrade that the supervisor looks at; NULL. */
	struct sl_peer *upgrader;
	uint32_t upgrade_serial;
	struct sl_source listener, supervisor, signal, alarm;
	struct sl_list peers, dead;
	unsigned peer_count, stranger_count; /* that have a role; that have not */
	/* The catalogue, its row of the descriptor table, and what is known of its entries besides. */
	uint32_t row;
	struct sl_segment *segment;
	struct sl_catalogue *catalogue;
	struct sl_blob *blobs;           /* by slot */
	uint32_t *by_id;                 /* the first blob whose id has that rest, or SL_NO_SLOT */
	uint32_t top;                    /* slots from this one on were never used */
	uint64_t created, sealed, dying; /* entries */
	bool sweep;                      /* something was deleted, or let go */
	struct sl_list caches;           /* blobs that may go when memory is short, held or not */
	struct sl_list transients;       /* blobs that go when nobody holds them */
	unsigned loose_count;            /* in both lists */
	struct sl_list kept; /* regions of the host without a blob, the oldest of them first */
	unsigned kept_count;
	uint64_t kept_bytes;
	struct sl_told told[1 + SL_PLACES_MOST]; /* of the host, then of devices */
	unsigned awaited; /* peers of the server before that may have memory of devices mapped */
	struct sl_list regions[SL_BUCKETS], tickets[SL_BUCKETS];
	uint64_t last_ticket;
	unsigned watchers;
	int64_t now;          /* when this turn of the loop began */
	int64_t begun, timer; /* when something is due; SL_FOREVER */
	int64_t alarm_at;     /* when the loop is woken, at that time or before it */
	int64_t sweep_at, look_at;
	int64_t listen_at; /* nobody is let in before, because no descriptor was left; 0: at any time */
	struct sl_spill *spill;                          /* NULL: nothing is spilled */
	uint64_t memory_bytes, blob_bytes, leased_bytes; /* of the host */
	struct sl_device_use devices[SL_PLACES_MOST];
	uint64_t memfd_bytes;                  /* of devices, and yet the host's memory */
	struct sl_list leaving;                /* regions of devices */
	struct sl_list waits[SL_WAIT_BUCKETS]; /* for blobs, by the key that is missing */
	unsigned waiting;                      /* of these */
	int64_t waits_due;                     /* no deadline of theirs is before */
	struct {
		struct sl_list queue;
		unsigned host;        /* those for the host's room */
		struct sl_wait *turn; /* is being tried */
		int64_t due;          /* no deadline is before */
		bool look;            /* there is more room on a device than before */
		/* Of the last request, which waits for that device: its refusal otherwise; 0: it does not. */
		int error;
		int32_t device;
	} room;
	struct sl_closer closer;
	int offered; /* the descriptor that came with the message; -1: none. Who keeps it sets it to that */
	struct sluice_store_counts counts; /* what only grows; the rest: when somebody asks */
	union sl_message in, out, event;
};

/* ------------------------------------------------------------------------------------ server */

/* Runs until it is told to stop (0), or cannot go on. Once in a process. */
int sl_server_run(struct sl_descriptors *descriptors);
/* The loop comes back by this time at the latest. */
void sl_server_at(struct sl_server *server, int64_t when);
/* Takes what a server before has left. */
int sl_server_take_over(struct sl_server *server);
int sl_daemon(struct sl_server *server, struct sl_peer *peer);

/* ----------------------------------------------------------------------------------- entries */

/* What the catalogue says of it. */
static inline struct sl_blob_record sl_blob_record(const struct sl_server *server, uint32_t slot)
{
	struct sl_blob_record record;

	sl_catalogue_record(server->catalogue, slot, &record);
	return record;
}
/* Blobs by id: the catalogue finds those so that have no name. */
void sl_blob_add(struct sl_server *server, uint32_t slot, uint64_t id);
uint32_t sl_blob_by_id(const struct sl_server *server, uint64_t id);
/* A blob was sealed, or has other flags: whether it may go when memory is short, or nobody holds it. */
void sl_blob_mark(struct sl_server *server, uint32_t slot);
bool sl_blob_is_transient(const struct sl_server *server, uint32_t slot);

/* -------------------------------------------------------------------------------------- peer */

void sl_peer_accept(struct sl_server *server);
/* A client of the server before, by the row of its references; nothing if it is dead. */
void sl_peer_expect(struct sl_server *server, uint32_t row);
/* After that: gives up the row of a pidfd that is no client's. */
void sl_peer_expect_process(struct sl_server *server, uint32_t row);
int sl_peer_hello(struct sl_server *server, struct sl_peer *peer);
/* It is readable or writable, or has hung up. */
void sl_peer_event(struct sl_server *server, struct sl_peer *peer, uint32_t events);
/* Ends the connection; what it holds stays until the process is dead, if clean is false. */
void sl_peer_close(struct sl_server *server, struct sl_peer *peer, bool clean);
/* Sends a message, now or when it can be taken; 0. fd: goes with it and is closed; -1. */
int sl_peer_send(struct sl_server *server, struct sl_peer *peer, union sl_message *m, int fd);
void sl_peer_drop_pending(struct sl_peer *peer);
/* Before it is sent a descriptor: 0, or -EAGAIN with a sentence: it does not read those that it has. */
int sl_peer_admit_descriptor(struct sl_peer *peer);
/* An event to a watcher, or nothing: then it has lost some, and is told so when it reads again. */
void sl_peer_tell(struct sl_server *server, struct sl_peer *peer, const union sl_message *event);
/* The sentence is sluice_last_message(). */
void sl_peer_refuse(struct sl_server *server, struct sl_peer *peer, uint32_t serial, int error);
int sl_peer_done(struct sl_server *server, struct sl_peer *peer, uint32_t serial);
/* The server holds a blob for it until it has settled the serial number. */
void sl_peer_pin(struct sl_server *server, struct sl_peer *peer, uint32_t serial, uint32_t slot);
void sl_peer_settle(struct sl_server *server, struct sl_peer *peer, uint32_t serial, int64_t now);
int sl_peer_nudge(struct sl_server *server, struct sl_peer *peer);
/* Closes connections that have not said their role in time, ends pins, and lets others in again. */
void sl_peer_expire(struct sl_server *server, int64_t now);
void sl_peer_free_dead(struct sl_server *server);
/* A second descriptor for the same memory, that can only be read. -errno. */
int sl_reopen(int fd);

/* ------------------------------------------------------------------------------------ region */

/* Whether it is to lie in memory that it shares with others. */
bool sl_wanted_small(const struct sl_wanted *wanted);
/* Memory that the peer may write to, and of a device is to make. -ENOSPC, -ENFILE, -EINPROGRESS: there will be room. */
int sl_region_new(struct sl_server *server, struct sl_peer *peer, const struct sl_wanted *wanted,
                  struct sl_region **out);
/* The one with a free range of that size that costs nothing; NULL: there is none. */
struct sl_region *sl_region_find_free(struct sl_server *server, struct sl_peer *peer,
                                      const struct sl_wanted *wanted);
void sl_region_written_by(struct sl_region *region, struct sl_peer *peer);
struct sl_region *sl_region_find(struct sl_server *server, uint64_t id);
/* One as kept says, known by that number, without memory. -EBADMSG: it cannot be; -ENOMEM. */
int sl_region_add(struct sl_server *server, const struct sl_kept *kept, uint64_t id,
                  struct sl_region **out);
/* Of a descriptor that is in the descriptor table. */
int sl_region_open(struct sl_server *server, uint32_t row, struct sl_region **out);
/* Whether it is a memfd of so many bytes, and keeps its size. */
bool sl_memfd_is(int fd, uint64_t least, uint64_t most);
/* Bytes of one of its ranges. */
uint64_t sl_region_range_bytes(const struct sl_region *region);
/* The same for what is counted in memory of the host; of a device it is nothing. */
uint64_t sl_region_host_bytes(const struct sl_region *region);
void sl_range_give(struct sl_server *server, struct sl_region *region, unsigned range);
void sl_region_free(struct sl_server *server, struct sl_region *region);
/* A memfd for so many bytes that stays as long as it is. */
int sl_region_memory(uint64_t bytes, int *fd);
/* Its copy is whole, and no get finds what is in it: its memory is given up. */
void sl_region_leave(struct sl_server *server, struct sl_region *region);
/* It is there again, in new memory, by another number. On failure nothing has changed. */
int sl_region_return(struct sl_server *server, struct sl_region *region, int fd);
/* Bytes of its ranges that are in use. */
uint64_t sl_region_used_bytes(const struct sl_region *region);
/* What of it counts in memory of the host, or of its device. */
uint64_t sl_region_counted(const struct sl_region *region);
/* Gives up what is free in it if nobody will use that again. */
void sl_region_trim(struct sl_server *server, struct sl_region *region);
/* Makes room for so many bytes. -EINPROGRESS: there will be room; -ENOSPC with a sentence. */
int sl_room_make(struct sl_server *server, uint64_t bytes);
/* Nobody has it mapped for writing any more. */
void sl_region_part(struct sl_server *server, struct sl_region *region);
/* Gives kept memory back until so many bytes are; how many. */
uint64_t sl_regions_reclaim(struct sl_server *server, uint64_t bytes);
/* The same with what was kept long enough. */
void sl_regions_expire(struct sl_server *server, int64_t now);
/* Where others find it, after its use has changed. May free it. */
void sl_region_place(struct sl_server *server, struct sl_region *region);

/* ------------------------------------------------------------------------------------- device */

/* Numbers the devices that the options name; before anything else is done with devices. */
void sl_devices_begin(struct sl_server *server);
bool sl_device_known(const struct sl_server *server, int32_t number);
/* "" for the host. */
const char *sl_server_place(const struct sl_server *server, int32_t number);
/* Answers SL_MSG_DEVICE. */
int sl_device_ask(struct sl_server *server, struct sl_peer *peer);
/* For a sentence: how much memory of a device, or of the host (-1), which process has mapped. "", or ", ...". */
void sl_holders(struct sl_server *server, int32_t device, char *text, size_t size);
/* Evicts blobs if need be. -ENOSPC; -EINPROGRESS: there will be room when clients have unmapped what is leaving. */
int sl_device_make_room(struct sl_server *server, int32_t device, uint64_t bytes);

/* -------------------------------------------------------------------------------------- closer */

/* Takes these ranges of memory from whoever may have them mapped still, soon. Does not keep fd. */
void sl_memory_release(struct sl_server *server, int fd, uint64_t range_bytes, uint64_t ranges);
/* Whether a descriptor from a client can be memory of a device: so that to keep it does no harm. */
bool sl_stray_is_memory(int fd);
/* A thread closes it, as a close may wait for somebody. */
void sl_stray_close(struct sl_server *server, int fd);

/* --------------------------------------------------------------------------------------- wait */

void sl_waits_init(struct sl_server *server);
/* To be linked by the caller. -EAGAIN, -ENOMEM with a sentence. message: NULL without a peer. */
int sl_wait_new(struct sl_peer *peer, const struct sl_head *message, int64_t deadline,
                struct sl_wait **out);
void sl_wait_free(struct sl_server *server, struct sl_wait *wait);
/* The connection has ended. */
void sl_waits_end(struct sl_server *server, struct sl_peer *peer);
/* The create of the peer in server->in waits for room, or the return of the region. -EAGAIN, -ENOMEM with a sentence. */
int sl_wait_for_room(struct sl_server *server, struct sl_peer *peer, struct sl_region *region);
/* It is of no use any more. */
void sl_wait_drop(struct sl_server *server, struct sl_region *region);
/* Whether others wait for room of the host, and it is not their turn. */
bool sl_wait_is_before(const struct sl_server *server);
/* Nothing can go: whether the one whose turn it is waits all the same, for what others do; for a moment only. */
bool sl_wait_has_time(const struct sl_server *server);
/* Those that can have room now; and those whose time is over. */
void sl_room_run(struct sl_server *server);

/* ------------------------------------------------------------------------------ region_device */

/* The peer may have memory of devices mapped from now on: so a server to come waits for it. */
void sl_device_may_map(struct sl_server *server, const struct sl_peer *peer);
/* A region of a device that a server before has left: that session may write to it. */
void sl_device_found(struct sl_server *server, struct sl_region *region, uint64_t session);
/* It has no blob and no lease any more: it leaves, and is freed now or when nobody has it mapped. */
void sl_device_leave(struct sl_server *server, struct sl_region *region);
/* Whether a blob in it may be sealed. */
int sl_device_check_seal(const struct sl_region *region);
/* SL_MSG_OFFER, SL_MSG_HAVE, and SL_MSG_DROP of one region. */
int sl_device_offer(struct sl_server *server, struct sl_peer *peer);
int sl_device_have(struct sl_server *server, struct sl_peer *peer);
void sl_device_drop(struct sl_server *server, struct sl_peer *peer, struct sl_region *region);
/* The peer may have it mapped; once, however often it asks. -EDQUOT, -ENOMEM. */
int sl_device_import(struct sl_server *server, struct sl_peer *peer, struct sl_region *region);
/* The peer has nothing of devices mapped any more. */
void sl_device_part(struct sl_server *server, struct sl_peer *peer);
/* The memory of its own that a peer has published is not to be reached any more. */
void sl_device_vanish(struct sl_server *server, struct sl_peer *peer);
/* The same, after a server has died, for memory whose process is not there any more. */
void sl_device_settle(struct sl_server *server, struct sl_region *region);
/* The same process has connected again. */
void sl_device_inherit(struct sl_peer *before, struct sl_peer *peer);

/* -------------------------------------------------------------------------------------- blob */

int sl_blob_create(struct sl_server *server, struct sl_peer *peer);
/* The same; -EINPROGRESS: there was no room yet, and nothing has happened. */
int sl_blob_try_create(struct sl_server *server, struct sl_peer *peer);
int sl_blob_annotate(struct sl_server *server, struct sl_peer *peer);
int sl_blob_abort(struct sl_server *server, struct sl_peer *peer);
int sl_blob_seal(struct sl_server *server, struct sl_peer *peer);
/* Takes back what a ticket has begun. */
void sl_blob_undo(struct sl_server *server, struct sl_ticket *ticket);
void sl_blob_delete(struct sl_server *server, uint32_t slot);
/* The entry is on its way out. */
void sl_blob_forget(struct sl_server *server, uint32_t slot);
/* Finds out what is not held any more; transient blobs that nobody holds are deleted. */
void sl_blob_sweep(struct sl_server *server);
/* Lets blobs of a device, or of the host, go that may be, until so many bytes are free; whether anything went. */
bool sl_blob_evict(struct sl_server *server, int32_t device, uint64_t bytes);
/* The one that was used least recently comes first. */
void sl_candidates_sort(struct sl_candidate *candidates, size_t count);

/* --------------------------------------------------------------------------------------- get */

int sl_get(struct sl_server *server, struct sl_peer *peer);
/* A blob was sealed, is back in memory, or is gone: who waits for it. */
void sl_get_wake(struct sl_server *server, uint32_t slot);
/* It cannot be brought back, for spill->error: refuses those who wait for that. */
void sl_get_fail(struct sl_server *server, uint32_t slot);
/* The pin or get waits until a blob that is away is there. */
int sl_get_await(struct sl_server *server, struct sl_peer *peer);
/* Marks the regions of blobs that gets wait for while others are being read: with that number. */
void sl_get_mark(struct sl_server *server, uint64_t number);
void sl_get_expire(struct sl_server *server, int64_t now);
int sl_region_request(struct sl_server *server, struct sl_peer *peer);
int sl_locate(struct sl_server *server, struct sl_peer *peer);
/* Which blob a key means, of those that are not deleted. -ENOENT. */
int sl_key_find(const struct sl_server *server, const struct sl_key *key, uint32_t *slot);

/* -------------------------------------------------------------------------------------- tell */

int sl_delete(struct sl_server *server, struct sl_peer *peer);
int sl_pin(struct sl_server *server, struct sl_peer *peer);
int sl_stat(struct sl_server *server, struct sl_peer *peer);
int sl_list(struct sl_server *server, struct sl_peer *peer);
int sl_stats(struct sl_server *server, struct sl_peer *peer);
/* Tells watchers of a blob that has a name. */
void sl_watch_tell(struct sl_server *server, uint32_t slot, enum sluice_watch_kind kind);

#endif
