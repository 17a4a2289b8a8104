/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The client's side of the store; for its own files.
 *
 *   wire      a connection. Whoever waits for an answer reads, one thread at a time, and hands others theirs
 *   view      a catalogue, and our references to what is in it: both stay when the server is replaced
 *   mapping   a region, mapped for reading or for writing; kept for a while when nothing in it is held
 *   lease     memory that the server has given us for a blob to come
 *
 * What there is of devices is in devices.h.
 */
#ifndef SL_STORE_CLIENT_H
#define SL_STORE_CLIENT_H

#include "catalogue/catalogue.h"
#include "protocol/protocol.h"

#define SL_STOCK_MOST      128
#define SL_MAPPING_BUCKETS 256
#define SL_HUGE_PAGE       ((size_t)2 << 20)

struct sl_device;
struct sl_post;
struct sl_devices;

struct sl_wire {
	int fd;
	unsigned references;  /* of the store, and of each call under way */
	bool reading;         /* somebody reads from it */
	bool broken;          /* and will not be used again */
	struct sl_list calls; /* that wait for an answer, or have not said what they made of it */
};                            /* guarded by store->mutex, but for fd, which does not change */

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
	bool stale; /* in no list: for its users only */
	/* Mapped by the driver of a device: far.c has to do with it. The rest is for that. */
	bool far;
	bool alone;  /* the region is for one blob */
	bool doomed; /* nobody new gets it, and it goes with its last user */
	bool own;    /* memory that this process has published: nobody maps or unmaps it */
	enum sl_mapping_state { SL_MAPPED, SL_EXPECTED, SL_COMING } state;
	uint32_t kind;              /* of enum sluice_blob_kinds */
	struct sl_post *post;       /* NULL while it is expected */
	const struct sl_device *by; /* as in struct sl_far */
};

struct sluice_store {
	char path[108];
	unsigned patience_ms;
	size_t cache_bytes, device_cache_bytes;
	_Atomic unsigned handles; /* the caller's: of blobs, tensors and watches */
	pthread_mutex_t opening;
	_Atomic(struct sl_devices *) devices; /* NULL: none. Set once, with opening */
	pthread_mutex_t mutex;
	pthread_cond_t connected, sent; /* a thread has connected; has sent a request */
	/* Guarded by mutex, as are the rest. */
	struct sl_wire *wire;
	struct sl_view *view;
	bool connecting;
	uint32_t serial;
	/* Of the server: counts those that this store was connected to; the upper half, their keepers. */
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
	const struct sl_record *record;
	struct sl_record *own_record;
	/* Its memory is a whole region that nobody had touched when it was created. */
	_Atomic bool cold;
	bool stays_cold; /* SLUICE_BLOB_COLD */
};

/* -------------------------------------------------------------------------------------- wire */

/* The socket that sluice_store_open() means; -EINVAL with a sentence. */
int sl_store_path(const char *path, char out[108]);
/* 0; or -ECHILD, -EINVAL with a sentence: for the beginning of every call. */
int sl_store_check(const sluice_store *store, const char *call);
/* A connected socket; -errno with a sentence. once: does not wait for somebody to listen. */
int sl_wire_connect(const char *path, unsigned patience_ms, bool once, int *out);
/* One message, whole or none; with a descriptor, if fd is not -1. 0 or -errno. */
int sl_socket_send(int socket, const union sl_message *m, int fd);
/* One message with at most two descriptors; its length, 0: the end, or -errno. flags: as of recvmsg(). */
ssize_t sl_socket_receive(int socket, union sl_message *m, int fds[2], int flags);
/* Those of them that are not -1. */
void sl_close_both(int fds[2]);
/* Says hello on a new socket and reads the welcome, with its descriptors. */
int sl_wire_hello(int fd, uint32_t role, uint64_t session, const char *prefix,
                  struct sl_welcome *out, int fds[2]);
/* The first connection. */
int sl_wire_open(sluice_store *store);
void sl_wire_close(sluice_store *store);
/* Looks whether the server has gone meanwhile; false: what we had of it is worth nothing. */
bool sl_wire_alive(sluice_store *store);

/*
 * Sends m as a request, to the server of that turn (0: whichever) or to none, and waits for the answer, which then is
 * in m. 0: it is of that type. -ECONNRESET: the server was replaced before or under way, and whether it has done what it was asked nobody knows. Other errors are the
 * server's, with its sentence. After 0 sl_call_end() is to be called when what the answer names was taken.
 */
int sl_call_begin_at(sluice_store *store, union sl_message *m, enum sl_message_type answer,
                     uint64_t turn, struct sl_call *call);
static inline int sl_call_begin(sluice_store *store, union sl_message *m,
                                enum sl_message_type answer, struct sl_call *call)
{
	return sl_call_begin_at(store, m, answer, 0, call);
}
void sl_call_end(sluice_store *store, struct sl_call *call);
/* The same as one, with as many tries as there are servers. */
int sl_call(sluice_store *store, union sl_message *m, enum sl_message_type answer, int *fd);
/* again: a server before may have done it, and not come to say so. */
int sl_call_again(sluice_store *store, union sl_message *m, enum sl_message_type answer, int *fd,
                  bool *again);
/* A request without an answer; to this server or to none. */
void sl_tell(sluice_store *store, union sl_message *m, uint64_t turn);
/* The same with a descriptor, which stays the caller's. -ESTALE: that server is gone. */
int sl_tell_fd(sluice_store *store, union sl_message *m, uint64_t turn, int fd);
/*
 * For a thread that does not wait for an answer: reads one message into m, if there is one. False: others are there who
 * read, or, if polite, are about to. Does not wait.
 */
bool sl_wire_look(sluice_store *store, struct sl_wire *wire, union sl_message *m, bool polite);
/* The wire, with a reference; connects if there is none, without patience. NULL: nobody listens. */
struct sl_wire *sl_wire_acquire(sluice_store *store);
void sl_wire_release(sluice_store *store, struct sl_wire *wire);

/* Whether two servers have one keeper: then regions, blobs and slots are the same to both; tickets never are. */
static inline bool sl_same_keeper(uint64_t turn, uint64_t other)
{
	return turn >> 32 == other >> 32;
}
struct sl_view *sl_view_acquire(sluice_store *store);
/* That of a server; NULL: there is another keeper. */
struct sl_view *sl_view_acquire_of(sluice_store *store, uint64_t turn);
void sl_view_release(struct sl_view *view);

/* ------------------------------------------------------------------------------------ mapping */

static inline struct sl_list *sl_mapping_bucket(sluice_store *store, uint64_t region)
{
	return &store->mappings[region % SL_MAPPING_BUCKETS];
}
/* A region of the host's memory, mapped; as the server of that turn knows it. -ESTALE: the one there is now does not. */
int sl_mapping_acquire(sluice_store *store, uint64_t region, uint64_t turn, bool writable,
                       struct sl_mapping **out);
void sl_mapping_release(sluice_store *store, struct sl_mapping *mapping);
/* Those of a server that is gone; all: of a store that is gone. With the mutex. */
void sl_mappings_forget(sluice_store *store, bool all);
void sl_mappings_free(sluice_store *store);

/* -------------------------------------------------------------------------------------- warm */

/* At the end of its create: makes its memory ready to be written, if that is called for. */
void sl_blob_warm(sluice_blob *blob);

/* -------------------------------------------------------------------------------------- blob */

/* Seals blobs of one store. */
int sl_blobs_seal(sluice_store *store, sluice_blob *const *v, size_t count);
sluice_blob *sl_blob_new(sluice_store *store);
/* Gives it up when the last reference is gone. */
void sl_blob_unref(sluice_blob *blob);
/* The same with a handle, or a tensor: after that the store may be closed. */
void sl_blob_let_go(sluice_blob *blob);
/* The same after a failure, whose sentence stays. */
void sl_blob_give_up(sluice_blob *blob, int rc);
/* A handle of what is asked for, without memory. */
int sl_blob_prepare(sluice_store *store, const struct sluice_blob_request *request,
                    sluice_blob **out);
/* Gives the lease of a blob that was not sealed back; again: it may come in useful. */
void sl_lease_end(sluice_blob *blob, bool again);
/* Leases that came with an answer of that server. */
void sl_stock_add(sluice_store *store, uint64_t turn, const struct sl_lease *leases,
                  unsigned count);

#endif
