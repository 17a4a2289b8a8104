/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The queue for room: creates and returns of regions that wait until memory is free.
 *
 * Creates wait for room of the host or of a device, returns of regions from files for room of the
 * host, in the order in which they came. The first wait for the host, and for each device, takes
 * the memory there is, and holds up only the waits for the same.
 *
 * Room of the host comes from the movers and from clients that release or delete; room of a device
 * from clients that unmap it when they are told to, or die. Each wait also ends with its deadline,
 * its connection, or its region. On the server's thread.
 */
#include <errno.h>
#include <string.h>

#include "sluiced/blobs/blobs.h"
#include "sluiced/memory/memory.h"
#include "sluiced/peers/peers.h"
#include "sluiced/spill/spill.h"
#include "sluiced/waits/waits.h"

/* The time after a vain look, because releases are not reported. */
#define LOOK_NS INT64_C(10000000)
/* A look passes over all regions, so the next comes later by this many times its duration. */
#define LOOK_REST 8

/*
 * Starts to read a region back. expired: its wait for room is over. *where becomes NULL if the
 * region goes meanwhile. Returns 0, -EINPROGRESS (not yet), or an error, which its blobs were told.
 */
static int room_try_return(struct sl_server *server, struct sl_region *const *where, bool expired)
{
	int rc = -EINPROGRESS;

	if (server->spill->reading < SL_COPIES_AT_ONCE)
		rc = sl_room_make(server, sl_region_used_bytes(*where));
	/* Making room may delete its last blob. */
	if (!*where)
		return 0;
	/* If the folder is full, a single region at a time returns beyond --memory, so that its
	 * file makes space for another region. */
	if (rc == -ENOSPC && sl_now() < server->spill->rest_until) {
		if (server->counts.memory_bytes <= server->settings->memory_bytes)
			rc = 0;
		else if (sl_room_has_time(server))
			rc = -EINPROGRESS;
	}
	/* It may wait for the disk as long as that takes, but not for room. */
	if (rc == -EINPROGRESS && expired && server->spill->reading < SL_COPIES_AT_ONCE)
		rc = sl_fail(-ENOSPC, "there was not room enough within a minute");
	if (!rc)
		rc = sl_spill_copy_read(server, *where);
	if (rc && rc != -EINPROGRESS)
		sl_spill_fail_gets(server, *where, rc);
	return rc;
}

/* Tries a wait. Returns -EINPROGRESS if it goes on waiting, for room of *device. */
static int room_try(struct sl_server *server, struct sl_wait *wait, bool expired, int32_t *device)
{
	int rc;

	*device = -1;
	if (!wait->peer) {
		rc = room_try_return(server, &wait->room.region, expired);
		return wait->room.region ? rc : 0;
	}
	memcpy(&server->in, &wait->request, wait->request.bytes);
	rc = sl_create_try(server, wait->peer);
	if (rc == -EINPROGRESS && server->room->error)
		*device = server->room->device;
	if (rc == -EINPROGRESS && expired && *device == wait->room.device)
		rc = *device < 0 ? sl_fail(-ENOSPC, "there was not room enough within a minute")
		                 : server->room->error;
	if (rc && rc != -EINPROGRESS)
		sl_peer_refuse(server, wait->peer, server->in.head.serial, rc);
	return rc;
}

/* Tries a wait as the current wait. Returns true if it was answered. */
static bool room_run_one(struct sl_server *server, struct sl_wait *wait, int64_t now)
{
	int32_t device;
	int rc;

	server->room->current = wait;
	rc = room_try(server, wait, now >= wait->deadline, &device);
	server->room->current = NULL;
	if (rc != -EINPROGRESS) {
		sl_wait_free(server, wait);
		return true;
	}
	if (device != wait->room.device) {
		server->room->host -= wait->room.device < 0;
		sl_room_wait_at(server, wait, device);
	} else if (now >= wait->deadline) {
		/* It waits for the disk, which has no deadline. */
		wait->deadline = now + SL_VAIN_NS;
	}
	return false;
}

/* Tries the first wait for the host and each device, and those past their deadline. */
static void room_run_queue(struct sl_server *server, int64_t now, bool host, bool devices)
{
	struct sl_list *queue = &server->room->queue;
	bool held_up[1 + SL_PLACES_MOST]; /* the host, then devices */

	server->room->due = SL_FOREVER;
	held_up[0] = !host;
	memset(held_up + 1, !devices, SL_PLACES_MOST);
	for (struct sl_list *link = queue->next, *next; link != queue; link = next) {
		struct sl_wait *wait = SL_CONTAINER(link, struct sl_wait, link);
		bool answered = false;

		if (!held_up[1 + wait->room.device] || now >= wait->deadline)
			answered = room_run_one(server, wait, now);
		/* Waits that were freed meanwhile are not behind it any more. */
		next = answered ? queue->next : link->next;
		if (answered)
			continue;
		held_up[1 + wait->room.device] = true;
		server->room->due = SL_MIN(server->room->due, wait->deadline);
	}
}

void sl_room_run(struct sl_server *server)
{
	struct sl_spill *spill = server->spill;
	int64_t now = sl_now();
	bool devices = server->room->look, host = false, over = false;

	if (spill && now >= spill->rest_look && (spill->look || now >= spill->look_at)) {
		host = true;
		spill->look = false;
		spill->look_at = SL_FOREVER;
		over = sl_spill_shrink(server);
	} else if (spill && (spill->look || spill->look_at != SL_FOREVER)) {
		sl_server_at(server, SL_MAX(spill->rest_look, spill->look ? now : spill->look_at));
	}
	if (host || devices || now >= server->room->due)
		room_run_queue(server, now, host, devices);
	sl_server_at(server, server->room->due);
	/* Memory that was taken and given back meanwhile is no new room. */
	if (devices)
		server->room->look = false;
	if (!over && (!host || !server->room->host))
		return;
	spill->rest_look = sl_now() + (sl_now() - now) * LOOK_REST;
	spill->look_at =
		now + LOOK_NS * (spill->writing || spill->reading || spill->full ? 100 : 1);
	sl_server_at(server, spill->look_at);
}
