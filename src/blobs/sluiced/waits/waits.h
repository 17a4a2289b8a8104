/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Waits: requests that are answered later. A get or pin waits for blobs (blobs/get.c), in the
 * bucket of the key that is missing; a create, or the return of a region from a file, waits for
 * room, in a queue (room.c).
 *
 * A wait is ended by the event awaited, by its deadline, or with its connection or region.
 */
#ifndef SL_SLUICED_WAITS_H
#define SL_SLUICED_WAITS_H

#include "sluiced/server.h"

#define SL_WAITS_MOST   128 /* of a peer, of all kinds */
#define SL_WAIT_BUCKETS 1024
/* A wait goes on so long while all is held: the server itself holds answered blobs for a second. */
#define SL_VAIN_NS INT64_C(1000000000)

struct sl_region;

struct sl_wait {
	struct sl_list link;      /* in a bucket of sl_waits, or in sl_room.queue */
	struct sl_list peer_link; /* in peer->waits */
	struct sl_peer *peer;     /* NULL: this is the return of a region */
	int64_t deadline;
	bool for_blob; /* says which of the two is used */
	union {
		struct {
			bool patient;     /* waits for a seal; otherwise only for the disk */
			bool disk;        /* all are sealed and some are being read: no deadline */
			unsigned missing; /* the key that was missing the last time */
		} blob;
		struct {
			struct sl_region *region; /* that returns; NULL if it has gone */
			int64_t since;
			int32_t device; /* -1: the host */
		} room;
	};
	_Alignas(8) struct sl_head request; /* as it came, with all that follows */
};

struct sl_waits {
	struct sl_list by_key[SL_WAIT_BUCKETS]; /* gets and pins, by the key that is missing */
	int64_t due;                            /* no deadline of theirs is earlier */
};

struct sl_room {
	struct sl_list queue;
	unsigned host;           /* waits for room of the host */
	struct sl_wait *current; /* is being tried */
	int64_t due;             /* no deadline is earlier */
	bool look;               /* a device has more room than before */
	/* The last request waits for room here, and this is its refusal; error 0: no wait. */
	int error;
	int32_t device;
};

/*
 * Makes a wait, which the caller links. message: copied; NULL without a peer.
 * Returns 0, or -EAGAIN (the peer has too many) or -ENOMEM with a sentence.
 */
int sl_wait_new(struct sl_peer *peer, const struct sl_head *message, int64_t deadline,
                struct sl_wait **out);
void sl_wait_free(struct sl_server *server, struct sl_wait *wait);
/* Ends the waits of a connection that has ended. */
void sl_waits_end(struct sl_server *server, struct sl_peer *peer);

/* Queues a create or a region's return for room. 0, -EAGAIN or -ENOMEM with a sentence. */
int sl_wait_for_room(struct sl_server *server, struct sl_peer *peer, struct sl_region *region);
/* Makes a wait in the queue wait for room of that device from now on. */
void sl_room_wait_at(struct sl_server *server, struct sl_wait *wait, int32_t device);
/* Ends the wait of a region that is no longer needed. */
void sl_room_drop(struct sl_server *server, struct sl_region *region);
/* Returns true if others wait for room of the host and are first. */
bool sl_room_must_queue(const struct sl_server *server);
/* Returns true if the wait goes on though nothing can leave memory now: others may let go. */
bool sl_room_has_time(const struct sl_server *server);
/* Serves the waits that can have room, and ends those past their deadline. Once per iteration. */
void sl_room_run(struct sl_server *server);

#endif
