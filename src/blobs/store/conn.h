/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The connection of a store to its server, calls over it, and the mapped catalogue.
 *
 * No thread belongs to a connection. Of the threads that wait for a reply a single thread reads; it
 * hands the others their replies, and when it has its own, the next thread reads. When the server
 * is replaced, the next call connects again; the catalogue and the references to its entries stay,
 * if the daemon is the same.
 */
#ifndef SL_STORE_CONN_H
#define SL_STORE_CONN_H

#include "store/store_internal.h"

/* The client waits this long after a deadline before it probes the server, and then once more. */
#define SL_GRACE_NS INT64_C(1000000000)
/* A server that has been connected to may take this time to answer, while it takes over. */
#define SL_HELLO_NS INT64_C(10000000000)

/* Guarded by store->mutex, except for fd, which never changes, and `in`, for the reading thread. */
struct sl_conn {
	int fd;
	unsigned references;  /* of the store, and of each call under way */
	bool reading;         /* a thread reads from it */
	bool broken;          /* not to be used again */
	uint64_t heard;       /* messages read from it */
	struct sl_list calls; /* under way, oldest first, until the reply has been used */
	union sl_message in;
};

/* Calls from the connection to the files above it, with store->mutex held. */
struct sl_conn_events {
	/* Takes note of a message before its call gets it, on the reading thread. */
	void (*heard)(sluice_store *store, const union sl_message *m);
	/* Lists up to SL_ITEMS_MOST regions to report to that server, once each. */
	unsigned (*unreported)(sluice_store *store, uint64_t epoch, struct sl_id_item *out);
	/* Adapts to a new server; same: of the same daemon. */
	void (*adopted)(sluice_store *store, bool same);
};

/* Never changes, except for the count. */
struct sl_catalogue_view {
	_Atomic unsigned references; /* of the store, and of each blob held through it */
	struct sl_segment *segment;
	struct sl_references *own_references;
	struct sl_reader reader;
	uint64_t store, session;
	uint64_t epoch; /* of the server that sent the descriptors */
};

/* A request and its reply, in the same memory. Guarded by store->mutex until done. */
struct sl_pending_call {
	struct sl_list link; /* conn->calls */
	struct sl_conn *conn;
	union sl_message *m;
	uint32_t serial;
	uint64_t epoch; /* of the server that it was sent to */
	pthread_cond_t changed;
	bool sent, done;
	int rc;
	int fds[2]; /* that came with the reply */
};

/* ------------------------------------------------------------------------------------- epochs */

/* Returns whether two servers share a daemon: they agree on regions, blobs, slots, not leases. */
static inline bool sl_same_daemon(uint64_t epoch, uint64_t other)
{
	return epoch >> 32 == other >> 32;
}

/* Returns the epoch standing for any server of the daemon. */
static inline uint64_t sl_epoch_of_daemon(uint64_t epoch)
{
	return epoch >> 32 << 32;
}

/* ------------------------------------------------------------------------------------- socket */

/*
 * Connects to the socket and checks the user of the server there; tries for patience_ms unless
 * once. Returns 0 or -errno with a message.
 */
int sl_socket_connect(const char *path, unsigned patience_ms, bool once, int *out);
/* Returns whether the socket is ready before the deadline; a signal makes it return false early. */
bool sl_socket_wait(int socket, short events, int64_t deadline);
/* Sends a whole message or nothing, with descriptor fd unless that is -1.
 * Returns 0 or -errno; -EAGAIN: not before the deadline. */
int sl_socket_send(int socket, const union sl_message *m, int fd, int64_t deadline);
/* Receives and checks one message with at most two descriptors; flags: see recvmsg().
 * Returns its length, 0 at the end of the stream, or -errno. */
ssize_t sl_socket_receive(int socket, union sl_message *m, int fds[2], int flags);
/* Closes the descriptors that are not -1. */
void sl_close_both(int fds[2]);

/* --------------------------------------------------------------------------------- connection */

/*
 * Sends SL_MSG_HELLO on a new socket and receives the welcome with its descriptors. Waits 10
 * seconds (-ECONNRESET), or 5 for a stopped daemon (-ETIMEDOUT) if the call is limited in time.
 */
int sl_conn_hello(int fd, uint32_t role, uint64_t session, const char *prefix, bool limited,
                  struct sl_msg_welcome *out, int fds[2]);
/* Connects the store, unless another thread does (store->connecting); releases the mutex meanwhile.
 * once, limited: as above. */
int sl_conn_open_locked(sluice_store *store, bool once, bool limited) SL_REQUIRES(&store->mutex);
/* Says goodbye and closes. No other thread uses the store any more. */
void sl_conn_close(sluice_store *store);
/*
 * Returns 0 when the store is connected; connects if it is not. Releases the mutex meanwhile. If no
 * server has come in the time of sl_socket_connect() and sl_conn_hello(): -ECONNREFUSED if the call
 * is limited in time (-ETIMEDOUT if the daemon is stopped), else -ECONNRESET: it is tried again.
 */
int sl_conn_get_locked(sluice_store *store, bool limited) SL_REQUIRES(&store->mutex);
/* Returns the connection with a reference, after a try to connect if need be. NULL: no server. */
struct sl_conn *sl_conn_acquire(sluice_store *store);
void sl_conn_release(sluice_store *store, struct sl_conn *conn);
/* Under store->mutex, if other threads know the connection. */
void sl_conn_unref_locked(struct sl_conn *conn);
/* Returns whether the server is still there; if not, breaks the connection. */
bool sl_conn_alive(sluice_store *store);
/* Reads a message if one is there; for a thread that waits for no reply. Returns false if another
 * thread reads or, if polite, if another thread is about to. */
bool sl_conn_try_read(sluice_store *store, struct sl_conn *conn, bool polite);

/* Returns the catalogue with a reference. */
struct sl_catalogue_view *sl_view_acquire(sluice_store *store);
/* The same; NULL: the server of that epoch belonged to another daemon. */
struct sl_catalogue_view *sl_view_acquire_of(sluice_store *store, uint64_t epoch);
void sl_view_release(struct sl_catalogue_view *view);

/* -------------------------------------------------------------------------------------- calls */

/*
 * Sends request m and waits for the reply, which overwrites m. epoch: the server or the daemon that
 * it is for; 0: any. If it succeeds, the caller uses the reply and then calls sl_call_end().
 *
 * Returns 0 if the reply has type `answer`, or
 *   -ECONNRESET  the server was replaced, and the request may or may not have been executed; m is
 *                still the request, call->epoch that of the server that it was sent to; 0: to none
 *   -ENOENT      another daemon has come than the one that it is for
 *   -ETIMEDOUT   only with a deadline: the server has stopped answering; a late reply is discarded
 *   other        the server's error, with its message
 */
int sl_call_begin(sluice_store *store, union sl_message *m, enum sl_message_type answer,
                  uint64_t epoch, int64_t deadline, struct sl_pending_call *call);
void sl_call_end(sluice_store *store, struct sl_pending_call *call);
struct sl_reply {
	uint64_t epoch; /* of the server that has answered */
	int fd;         /* now the caller's; -1: no descriptor came */
};
/* Begins and ends a call, again for each new server. reply: optional but for SL_MSG_MEMORY. */
int sl_call(sluice_store *store, union sl_message *m, enum sl_message_type answer, int64_t deadline,
            struct sl_reply *reply);
/* Sends a request that has no reply, to the server of that epoch (0: any), with a descriptor, which
 * stays the caller's, or -1. Returns 0 or, without a message, -ESTALE: that server is gone. */
int sl_tell(sluice_store *store, union sl_message *m, uint64_t epoch, int fd);
/* The same for a message with one id. */
void sl_tell_id(sluice_store *store, enum sl_message_type type, uint64_t id, uint64_t epoch);
/* Sets the message of a server that does not answer in time. Returns -ETIMEDOUT. */
int sl_call_late(void);

#endif
