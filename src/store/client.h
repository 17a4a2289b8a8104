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

#include "store/catalogue.h"
#include "store/protocol.h"
#include "store/step.h"

#define SL_STOCK_MOST      128
#define SL_MAPPING_BUCKETS 256

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
};

struct sl_mapping {
	struct sl_list bucket; /* store->mappings */
	struct sl_list idle;   /* store->idle, if users is 0 */
	uint64_t region;
	char *base;
	size_t bytes;
	unsigned users;
	bool writable;
	bool stale; /* in no list: for its users only */
	int fd;     /* of a public blob that is being made; -1 */
};

struct sluice_store {
	char path[108];
	unsigned patience_ms;
	size_t cache_bytes;
	_Atomic unsigned handles; /* blobs and watches */
	pthread_mutex_t mutex;
	pthread_cond_t connected, sent; /* a thread has connected; has sent a request */
	/* Guarded by mutex, as are the rest. */
	struct sl_wire *wire;
	struct sl_view *view;
	bool connecting;
	uint32_t serial;
	uint32_t user;
	uint64_t turn; /* of the server */
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
	_Atomic unsigned references; /* of the caller, and of tensors */
	int state;                   /* of enum sluice_blob_state */
	/* Before the seal. */
	struct sl_lease lease;
	uint64_t turn; /* of the server that the lease is from */
	bool entered;  /* the server knows its name */
	bool frozen;   /* public: no one can write to it any more */
	/* After it, if it is our user's: what the catalogue says. Else it was lent. */
	struct sl_view *view; /* NULL: lent */
	struct sl_held_blob held;
	uint32_t lender;
	uint64_t lent_turn;

	struct sl_mapping *mapping;
	char *data;
	uint64_t id;
	size_t bytes;
	unsigned flags;
	int device;
	char name[SL_NAME_BYTES];
	/* In the catalogue, or ours, or NULL. */
	const struct sl_record *record;
	struct sl_record *own_record;
};

/* -------------------------------------------------------------------------------------- wire */

/* The socket that sluice_store_open() means; -EINVAL with a sentence. */
int sl_store_path(const char *path, char out[108]);
/* 0; or -ECHILD, -EINVAL with a sentence: for the beginning of every call. */
int sl_store_check(const sluice_store *store, const char *call);
/* A connected socket; -errno with a sentence. once: does not wait for somebody to listen. */
int sl_wire_connect(const char *path, unsigned patience_ms, bool once, int *out);
/* Says hello on a new socket and reads the welcome, with its descriptors. */
int sl_wire_hello(int fd, uint32_t role, uint64_t session, const char *prefix,
                  struct sl_welcome *out, int fds[2]);
/* The first connection. */
int sl_wire_open(sluice_store *store);
void sl_wire_close(sluice_store *store);
/* Looks whether the server has gone meanwhile; false: what we had of it is worth nothing. */
bool sl_wire_alive(sluice_store *store);

/*
 * Sends m as a request and waits for the answer, which then is in m. 0: it is of that type. -ECONNRESET: the
 * server was replaced under way, and whether it has done what it was asked nobody knows. Other errors are the
 * server's, with its sentence. After 0 sl_call_end() is to be called when what the answer names was taken.
 */
int sl_call_begin(sluice_store *store, union sl_message *m, enum sl_message_type answer,
                  struct sl_call *call);
void sl_call_end(sluice_store *store, struct sl_call *call);
/* The same as one, with as many tries as there are servers. */
int sl_call(sluice_store *store, union sl_message *m, enum sl_message_type answer, int *fd);
/* again: a server before may have done it, and not come to say so. */
int sl_call_again(sluice_store *store, union sl_message *m, enum sl_message_type answer, int *fd,
                  bool *again);
/* A request without an answer; to this server or to none. */
void sl_tell(sluice_store *store, union sl_message *m, uint64_t turn);

struct sl_view *sl_view_acquire(sluice_store *store);
void sl_view_release(struct sl_view *view);

/* ------------------------------------------------------------------------------------ mapping */

/* A region, mapped. -ESTALE: the server does not know it. */
int sl_mapping_acquire(sluice_store *store, uint64_t region, bool writable, bool keep_fd,
                       struct sl_mapping **out);
/* keep: it may come in useful again. */
void sl_mapping_release(sluice_store *store, struct sl_mapping *mapping, bool keep);
/* Those of a server that is gone; all: of a store that is gone. With the mutex. */
void sl_mappings_forget(sluice_store *store, bool all);
void sl_mappings_free(sluice_store *store);

/* -------------------------------------------------------------------------------------- blob */

/* One that is sealed and that we may hold: slot and generation in the view. -EAGAIN: not any more. */
int sl_blob_hold(sluice_store *store, struct sl_view *view, const struct sl_held_blob *held,
                 sluice_blob **out);
sluice_blob *sl_blob_new(sluice_store *store);
/* Gives it up when the last reference is gone. */
void sl_blob_unref(sluice_blob *blob);
void sl_blob_free(sluice_blob *blob);
/* Leases that came with an answer of that server. */
void sl_stock_add(sluice_store *store, uint64_t turn, const struct sl_lease *leases,
                  unsigned count);

#endif
