/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The server of the store: a loop on a single thread, which never waits for a client.
 *
 * Each folder has a header with its part of the state, of which struct sl_server has the address:
 *
 *   supervisor/  the processes: descriptors that outlive a server, the socket, starting each other
 *   peers/       connections: hello, messages in and out, simple requests
 *   memory/      regions of memory of the host and of devices, their accounts and limits
 *   waits/       requests that are answered later, and the queue for room
 *   blobs/       the entries of the catalogue: create, seal, get, delete, evict; recovery
 *   spill/       regions that leave memory for files, and return
 *
 * Everything belongs to the server's thread, except where a comment names a mutex or an atomic.
 */
#ifndef SL_SLUICED_SERVER_H
#define SL_SLUICED_SERVER_H

#include "catalogue/catalogue.h"
#include "protocol/protocol.h"
#include "sluiced/supervisor/descriptors.h"

#define SL_NO_SLOT UINT32_MAX /* of the catalogue */
#define SL_NO_ROW  UINT32_MAX /* of the ledger */
#define SL_BUCKETS 4096       /* of a hash table by number */

struct sl_peer;
struct sl_server;

/* The address that epoll returns: a function for a descriptor, or a peer for socket or pidfd. */
struct sl_source {
	void (*event)(struct sl_server *server);
	struct sl_peer *peer;
};

struct sl_server {
	struct sl_descriptors *descriptors;
	const struct sl_server_settings *settings; /* in the ledger */
	struct sl_catalogue *catalogue;
	struct sl_blobs *blobs;
	struct sl_memory_pool *memory;
	struct sl_peers *peers;
	struct sl_waits *waits;
	struct sl_room *room;
	struct sl_spill *spill; /* NULL: nothing is spilled */
	int epoll;
	int64_t now;   /* when this iteration of the loop began */
	int64_t timer; /* when something is due; SL_FOREVER */
	/* Came with the message; -1: none. A handler that keeps it sets it to -1. */
	int offered;
	union sl_message in;    /* the request that is being handled */
	union sl_message out;   /* its answer */
	union sl_message event; /* a message to other peers meanwhile */
	/* Kept by those that they concern, but for limits, times and processes. */
	struct sluice_store_counts counts;

	/* Of the loop alone (server.c). */
	int signals, alarm_fd;
	bool stopping;
	bool alone;               /* there is no supervisor */
	int64_t supervise_at;     /* the next supervisor is not started before */
	struct sl_peer *upgrader; /* asked for the upgrade that the supervisor examines; NULL */
	uint32_t upgrade_serial;
	struct sl_source listener, supervisor, signal, alarm;
	int64_t begun;
	int64_t alarm_at; /* when alarm_fd wakes the loop: at `timer` or earlier */
	int64_t sweep_at, look_at;
};

/* Runs the server, once in a process. Returns 0 when told to stop, or -errno with a sentence. */
int sl_server_run(struct sl_descriptors *descriptors);
/* Makes the loop run again at that time at the latest. */
static inline void sl_server_at(struct sl_server *server, int64_t when)
{
	/* 0 would disarm the alarm. */
	server->timer = SL_MIN(server->timer, SL_MAX(when, 1));
}
/* Handles SL_MSG_DAEMON, an upgrade or a stop. An upgrade is answered only if it fails. */
int sl_handle_daemon(struct sl_server *server, struct sl_peer *peer);

#endif
