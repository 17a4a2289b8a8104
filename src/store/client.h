/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The client's side of the store; for its own files.
 *
 *   wire      a connection. Whoever waits for an answer reads, one thread at a time, and hands others theirs
 *   view      a catalogue, and our references to what is in it: both stay when the server is replaced
 *   mapping   a region, mapped for reading or for writing; kept for a while when nothing in it is held
 *   lease     memory that the server has given us for a blob to come
 */
#ifndef SL_STORE_CLIENT_H
#define SL_STORE_CLIENT_H

#include "catalogue/catalogue.h"
#include "protocol/protocol.h"

#define SL_STOCK_MOST      128
#define SL_MAPPING_BUCKETS 256
#define SL_HUGE_PAGE       ((size_t)2 << 20)
/* How long after a deadline the client asks whether the server is there, and then waits for a sign of it. */
#define SL_GRACE_NS INT64_C(1000000000)

struct sl_device;
struct sl_post;
struct sl_devices;

struct sl_wire {
	int fd;
	unsigned references;  /* of the store, and of each call under way */
	bool reading;         /* somebody reads from it */
	bool broken;          /* and will not be used again */
	uint64_t heard;       /* messages that were read from it */
	struct sl_list calls; /* that wait for an answer, or whose answer is still being used */
	/* All are guarded by store->mutex, but for fd, which does not change, and this, which the reader has. */
	union sl_message in;
};

struct sl_view {
	_Atomic unsigned references; /* of the store, and of each blob that is held by it */
	struct sl_segment *segment;
	struct sl_references *own;
	struct sl_reader reader;
	uint64_t store, session;
	uint64_t turn; /* of the server that gave it */
};

struct sl_mapping {
	struct sl_list bucket; /* store->mappings */
	struct sl_list idle;   /* store->idle, if users is 0 */
	uint64_t region;
	char *base;
	size_t bytes;
	unsigned users;
	/* Nobody had touched it when it was mapped for writing: of whoever has a lease of all of it. */
	bool fresh;
	bool writable;
	bool stale;  /* in no list: for its users only */
	bool doomed; /* nobody new gets it, and it goes with its last user */
	bool far;    /* mapped by the driver of a device: far.c has to do with it */
	bool alone;  /* the region is for one blob */
	bool own;    /* memory that this process has published: nobody maps or unmaps it */
	enum sl_mapping_state { SL_MAPPED, SL_EXPECTED, SL_COMING } state;
	uint64_t told;        /* the turn of the last server that was told of it when it came */
	uint32_t kind;        /* of enum sluice_blob_kinds */
	struct sl_post *post; /* NULL while it is expected, and of ours */
	const struct sl_device *by; /* as in struct sl_far */
};

struct sluice_store {
	char path[108];
	unsigned patience_ms;
	size_t cache_bytes, device_cache_bytes;
	_Atomic unsigned handles; /* the caller's: of blobs, tensors and watches */
	struct sl_mutex opening;
	_Atomic(struct sl_devices *) devices; /* NULL: none. Set once, with opening */
	struct sl_mutex mutex;
	pthread_cond_t connected, sent; /* a thread has connected; has sent a request */
	pthread_cond_t mapped;          /* a mapping has come, or has not; a region was told of */
	/* Guarded by mutex, as are the rest. */
	struct sl_wire *wire;
	struct sl_view *view;
	bool connecting;
	uint32_t serial;
	/* Of the server: counts those that this store was connected to; the upper half, their daemons. */
	uint64_t turn;
	int64_t heard_at; /* the tick in which an answer came last */
	struct sl_list mappings[SL_MAPPING_BUCKETS];
	struct sl_list idle; /* mappings, the one that was used least recently first */
	size_t idle_bytes;
	struct sl_lease stock[SL_STOCK_MOST];
	unsigned stock_count;
};

/* A request and its answer, in the same memory. */
struct sl_call {
	struct sl_list link; /* wire->calls */
	struct sl_wire *wire;
	union sl_message *m;
	uint32_t serial;
	uint64_t turn; /* of the server that it went to */
	pthread_cond_t changed;
	bool sent, done;
	int rc;
	int fds[2]; /* that came with the answer */
};

struct sluice_blob {
	sluice_store *store;
	_Atomic unsigned references; /* of the caller, of tensors, and of a promise */
	/* A seal in stream order changes these while the caller looks at them. */
	_Atomic int state; /* of enum sluice_blob_state */
	_Atomic(char *) data;
	_Atomic uint64_t id;
	/* Before the seal. */
	struct sl_lease lease;
	uint64_t turn;  /* of the server that the lease is from */
	bool entered;   /* the server knows its name */
	uint64_t start; /* in its range; not 0 only in memory of this process */
	/* Of a seal in stream order. Guarded by devices->mutex, but for the first. */
	struct {
		bool asked; /* for one; the caller's */
		bool waits; /* it is under way */
		int rc;     /* of the last one, and its sentence, or NULL */
		char *text;
	} promise;
	/* After it: what the catalogue says. */
	struct sl_view *view;
	struct sl_held_blob held;

	struct sl_mapping *mapping;
	size_t bytes;
	unsigned flags;
	int device;
	unsigned kind;        /* of enum sluice_blob_kinds */
	struct sl_post *post; /* on its device; NULL: the host */
	char name[SL_NAME_BYTES];
	/* In the catalogue, or ours, or NULL. */
	const struct sl_metadata *record;
	struct sl_metadata *own_record;
	/* Its memory is a whole region that nobody had touched when it was created. */
	_Atomic bool cold;
	bool stays_cold; /* SLUICE_BLOB_COLD */
};

/* -------------------------------------------------------------------------------------- wire */

/* The socket that sluice_store_open() means; -EINVAL with a sentence. */
int sl_store_path(const char *path, char out[108]);
/* 0; or -ECHILD, -EINVAL with a sentence: for the beginning of every call. */
int sl_store_check(const sluice_store *store, const char *call);
/* By a name, or, if that is NULL, by an id. -EINVAL with a sentence. */
int sl_key_set(struct sl_key *key, const char *name, uint64_t id);
/* A connected socket; -errno with a sentence. once: does not wait for somebody to listen. */
int sl_wire_connect(const char *path, unsigned patience_ms, bool once, int *out);
/* Whether the socket is ready before the deadline; a signal makes it false, too. */
bool sl_socket_wait(int socket, short events, int64_t deadline);
/* One message, whole or none; with a descriptor, if fd is not -1. 0 or -errno; -EAGAIN: not before the deadline. */
int sl_socket_send(int socket, const union sl_message *m, int fd, int64_t deadline);
/* One message with at most two descriptors; its length, 0: the end, or -errno. flags: as of recvmsg(). */
ssize_t sl_socket_receive(int socket, union sl_message *m, int fds[2], int flags);
/* Those of them that are not -1. */
void sl_close_both(int fds[2]);
/* Says hello on a new socket and reads the welcome, with its descriptors, until that time, or for ten seconds. */
int sl_wire_hello(int fd, uint32_t role, uint64_t session, const char *prefix, int64_t until,
                  struct sl_msg_welcome *out, int fds[2]);
/* A new connection. Without the mutex, by one thread at a time. once and until: as above. */
int sl_wire_open(sluice_store *store, bool once, int64_t until);
void sl_wire_close(sluice_store *store);
/* Looks whether the server has gone meanwhile; false: what we had of it is worth nothing. */
bool sl_wire_alive(sluice_store *store);

/* Sends m as a request, to the server of that turn (0: whichever) or to none, and waits for the answer, which then is in m.
 * 0: it is of that type; the caller takes the things that it names, then calls sl_call_end(). -ECONNRESET: the server was
 * replaced, so that the request may have been fulfilled or not; m still is the request. -ETIMEDOUT, with a deadline only: the
 * server says nothing any more; a late answer is thrown away. Other errors are the server's, with its sentence. */
int sl_call_begin(sluice_store *store, union sl_message *m, enum sl_message_type answer,
                  uint64_t turn, int64_t deadline, struct sl_call *call);
void sl_call_end(sluice_store *store, struct sl_call *call);
/* What sl_call() tells besides the answer. */
struct sl_reply {
	uint64_t turn; /* of the server that has answered */
	int fd;        /* the caller's; -1: none came */
	bool again;    /* a server before may have fulfilled the request without an answer */
};
/* Both calls in one, with as many tries as there are servers. reply: NULL, but not for SL_MSG_MEMORY. */
int sl_call(sluice_store *store, union sl_message *m, enum sl_message_type answer, int64_t deadline,
            struct sl_reply *reply);
/* A request without an answer, to this server (0: to any) or to none; with a descriptor, which stays the caller's, or -1.
 * -ESTALE, without a sentence, so that callers which do not mind keep theirs: that server is gone. */
int sl_tell(sluice_store *store, union sl_message *m, uint64_t turn, int fd);
/* The same with a single id. */
void sl_tell_id(sluice_store *store, enum sl_message_type type, uint64_t id, uint64_t turn);
/* For a thread that waits for no answer: reads a message, if there is one. False: others read, or, if polite, are about to. */
bool sl_wire_look(sluice_store *store, struct sl_wire *wire, bool polite);
/* The wire, with a reference; connects if there is none, without patience. NULL: nobody listens. */
struct sl_wire *sl_wire_acquire(sluice_store *store);
void sl_wire_release(sluice_store *store, struct sl_wire *wire);

/* Whether two servers have one daemon: then regions, blobs and slots are the same to both; tickets never are. */
static inline bool sl_same_daemon(uint64_t turn, uint64_t other)
{
	return turn >> 32 == other >> 32;
}
/* Whether memory that the server of that turn has named still is so: a region has its number from the daemon, a lease of
 * memory in it is one server's. With the mutex. */
static inline bool sl_is_current(const sluice_store *store, uint64_t turn, bool writable)
{
	return writable ? store->turn == turn : sl_same_daemon(store->turn, turn);
}
struct sl_view *sl_view_acquire(sluice_store *store);
/* That of a server; NULL: there is another daemon. */
struct sl_view *sl_view_acquire_of(sluice_store *store, uint64_t turn);
void sl_view_release(struct sl_view *view);

/* ------------------------------------------------------------------------------------ mapping */

static inline struct sl_list *sl_mapping_bucket(sluice_store *store, uint64_t region)
{
	return &store->mappings[region % SL_MAPPING_BUCKETS];
}
/* A region that is to be mapped: where it is, and for whom. */
struct sl_far {
	uint64_t region;
	uint32_t kind; /* of enum sluice_blob_kinds */
	bool writable; /* of a device: that we make */
	uint64_t turn; /* of the server that has leased it, or has told of it */
	/* The post of the device that has it; and another device that is to use it, or NULL. Both: of the one that host memory
	 * is registered with. Neither: the host's, for the processor. */
	struct sl_post *post;
	const struct sl_device *by;
};
/* The mapping that is not doomed. With the mutex, as the next three. */
struct sl_mapping *sl_mapping_find(sluice_store *store, uint64_t region, bool writable,
                                   const struct sl_device *by);
/* NULL: no memory. */
struct sl_mapping *sl_mapping_add(sluice_store *store, uint64_t region, bool far,
                                  enum sl_mapping_state state);
/* One without users: to the mapper, who has it from here on, or, of ours, to gone, which is NULL if it is far. */
void sl_mapping_leave(sluice_store *store, struct sl_mapping *mapping, struct sl_list *gone);
/* Not for anybody new, and gone with the last user. */
void sl_mapping_doom(sluice_store *store, struct sl_mapping *mapping, struct sl_list *gone);
/* Maps the host's memory, for the processor. */
int sl_mapping_map(struct sl_mapping *mapping, int fd);
/* Asks for a region's descriptor, which is in *out then, as *m says how large the region is. */
int sl_region_ask(sluice_store *store, uint64_t region, bool writable, int64_t deadline,
                  union sl_message *m, struct sl_reply *out);
/* May call the driver. -ESTALE: the server, or whoever makes blobs there, knows nothing of the region. */
int sl_mapping_acquire(sluice_store *store, const struct sl_far *far, int64_t deadline,
                       struct sl_mapping **out);
void sl_mapping_release(sluice_store *store, struct sl_mapping *mapping);
/* Those of a server that is gone; all: of a store that is gone. With the mutex. */
void sl_mappings_forget(sluice_store *store, bool all);
void sl_mappings_free(sluice_store *store);

/* -------------------------------------------------------------------------------------- warm */

/* At the end of its create: makes its memory ready to be written, if that is called for. */
void sl_blob_warm(sluice_blob *blob);

/* -------------------------------------------------------------------------------------- blob */

/* Whether blobs may be sealed by one call: 0, or an error with a sentence that names the call. */
int sl_blobs_check(const char *call, sluice_blob *const *v, size_t count);
/* Seals blobs of one store. */
int sl_blobs_seal(sluice_store *store, sluice_blob *const *v, size_t count);
sluice_blob *sl_blob_new(sluice_store *store);
/* Gives it up when the last reference is gone. */
void sl_blob_unref(sluice_blob *blob);
/* The same with a handle, or a tensor: after that the store may be closed. */
void sl_blob_let_go(sluice_blob *blob);
/* The same for several, after a failure, whose sentence stays. */
void sl_blobs_give_up(sluice_blob *const *blobs, size_t count, int rc);
/* A handle of what is asked for, without memory. */
int sl_blob_prepare(sluice_store *store, const struct sluice_blob_request *request,
                    sluice_blob **out);
/* Leases for all blobs that have none, in one call. */
int sl_blobs_lease(sluice_store *store, sluice_blob *const *blobs, size_t count);
/* Gives the lease of a blob that was not sealed back; again: it may come in useful. */
void sl_lease_end(sluice_blob *blob, bool again);
/* Gives leases of the host's memory that are kept for blobs to come back. */
void sl_stock_give_back(sluice_store *store);

#endif
