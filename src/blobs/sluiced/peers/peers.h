/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Peers: the connections of clients and watchers, messages to them, and the handlers of requests
 * that concern several folders.
 *
 * A peer is a connection, or a client of the previous server that has not reconnected yet. Whether
 * a client lives its pidfd says, not its socket, which its children may keep open.
 */
#ifndef SL_SLUICED_PEERS_H
#define SL_SLUICED_PEERS_H

#include "sluiced/memory/memory.h"
#include "sluiced/server.h"

#define SL_HOLDS_MOST  256  /* of a peer */
#define SL_STRANGERS   64   /* connections that have not said their role */
#define SL_EVENTS_KEPT 1024 /* for watches that have not been told yet */

/* A message that the peer has not read yet. */
struct sl_pending {
	struct sl_list link;
	int fd; /* sent with it and closed afterwards; -1 */
	size_t bytes;
	_Alignas(8) unsigned char data[]; /* with room for a refusal */
};

struct sl_peer {
	struct sl_list link; /* in server->peers->live or ->dead */
	struct sl_source socket, death;
	int fd; /* -1: it has closed its end and its process lives, or it has not reconnected */
	int pidfd;
	pid_t pid;
	uid_t uid;
	bool gone;        /* freed at the end of the iteration */
	bool waiting;     /* for the socket to become writable; nothing is read from it meanwhile */
	uint32_t role;    /* of enum sl_role; 0: not said yet */
	int64_t hello_by; /* without a role: when it is closed */

	uint64_t session;
	uint32_t row;     /* of the descriptor table, of its references */
	uint32_t process; /* the row of its pidfd; SL_NO_ROW: the peer alone has it */
	struct sl_references *references;
	struct sl_list leases;
	unsigned lease_count;
	uint64_t leased_bytes; /* of the host */
	/* Regions with free ranges that it may write to: of the host, then of devices. */
	struct sl_list slabs[SL_CLASSES + SL_DEVICE_CLASSES];
	struct sl_list regions;   /* that it may have mapped for writing */
	struct sl_list published; /* regions of its own memory */
	struct sl_list imports;
	unsigned import_count;
	bool awaited; /* counted in server->memory->awaited */
	struct sl_list waits;
	unsigned wait_count;
	struct sl_list out;   /* of struct sl_pending */
	unsigned descriptors; /* sent since the client had last read all */
	/* Blobs held until the client has taken them, in the order of its requests. */
	struct {
		uint32_t serial, slot;
		int64_t until;
		bool made; /* by the peer, which does not ask for it again */
	} holds[SL_HOLDS_MOST];
	unsigned hold_count;

	/* Of a watch. */
	char prefix[SL_NAME_BYTES];
	struct sl_list watch_link; /* in server->peers->watches */
	uint64_t told;             /* of all events, so many were sent or concern other names */
};

struct sl_peers {
	struct sl_list live, dead;
	uint64_t strangers; /* that have no role yet */
	struct sl_list watches;
	struct sluice_watch_event events[SL_EVENTS_KEPT]; /* the last of event_count */
	uint64_t event_count;
	bool events_left;  /* some may be sent now */
	int64_t tell_at;   /* not before, unless many are left */
	int64_t listen_at; /* when accepting resumes after descriptors ran out; 0: it goes on */
};

/* -------------------------------------------------------------------------------- connections */

/* Accepts a connection. Closes the oldest stranger if there are SL_STRANGERS. */
void sl_peer_accept(struct sl_server *server);
/* Adds a client of the previous server by the row of its references, unless it is dead. */
void sl_peer_recover(struct sl_server *server, uint32_t row);
/* Called afterwards: drops the row of a pidfd that belongs to no client. */
void sl_peer_recover_process(struct sl_server *server, uint32_t row);
int sl_handle_hello(struct sl_server *server, struct sl_peer *peer);
/*
 * Ends the connection. over: the process is dead, or has said that it has unmapped everything;
 * otherwise the peer keeps what its process may use.
 */
void sl_peer_close(struct sl_server *server, struct sl_peer *peer, bool over);
/* Closes connections that have not said their role in time, ends holds, and resumes accepting. */
void sl_peer_expire(struct sl_server *server, int64_t now);
void sl_peer_free_dead(struct sl_server *server);

/* -------------------------------------------------------------------------------------- holds */

/* Holds a blob until the peer has taken that answer, a second at most; if the peer has made it, a
 * second after it was seen to have messages that it has not read. */
void sl_peer_hold(struct sl_server *server, struct sl_peer *peer, uint32_t serial, uint32_t slot,
                  bool made);
/* Ends the holds of answers up to that serial number, and expired holds. */
void sl_peer_unhold(struct sl_server *server, struct sl_peer *peer, uint32_t serial, int64_t now);
int sl_handle_nudge(struct sl_server *server, struct sl_peer *peer);

/* ----------------------------------------------------------------------------------- messages */

/* Handles events of its socket. */
void sl_peer_event(struct sl_server *server, struct sl_peer *peer, uint32_t events);
/* Sends a message, perhaps later. Takes fd, which goes with it; -1: none. Always returns 0. */
int sl_peer_send(struct sl_server *server, struct sl_peer *peer, union sl_message *m, int fd);
/* Sends the messages that were not sent yet, as far as the socket takes them; or drops them. */
void sl_peer_send_pending(struct sl_server *server, struct sl_peer *peer);
void sl_peer_drop_pending(struct sl_peer *peer);
/* Returns 0, or -EAGAIN with a sentence: the peer does not read the descriptors that it has. */
int sl_peer_admit_descriptor(struct sl_peer *peer);
/* Answers with an error; the sentence is sluice_last_message(). */
void sl_peer_refuse(struct sl_server *server, struct sl_peer *peer, uint32_t serial, int error);
/* Answers SL_MSG_DONE. Always returns 0. */
int sl_peer_done(struct sl_server *server, struct sl_peer *peer, uint32_t serial);

/* ------------------------------------------------------------------------------------ queries */

int sl_handle_pin(struct sl_server *server, struct sl_peer *peer);
int sl_handle_stat(struct sl_server *server, struct sl_peer *peer);
int sl_handle_list(struct sl_server *server, struct sl_peer *peer);
int sl_handle_stats(struct sl_server *server, struct sl_peer *peer);
/* Notes an event of a blob that has a name, for the watchers. */
void sl_watchers_notify(struct sl_server *server, uint32_t slot, enum sluice_watch_kind kind);
/* Sends some of the events. Once per iteration: requests do not wait for watchers. */
void sl_watchers_tell(struct sl_server *server);

#endif
