/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Waits: requests that are answered later, whatever they wait for; and the queue for room: creates
 * and returns of regions that wait until memory is free.
 *
 * Creates wait for room of the host or of a device, returns of regions from files for room of the
 * host, in the order in which they came. The first wait for each place takes the memory there is,
 * and holds up only the waits for the same place.
 *
 * Room of the host comes from the movers and from clients that release or delete; room of a device
 * from clients that unmap it when they are told to, or die. Each wait also ends with its
 * deadline, its connection, or its region. On the server's thread.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "sluiced/blobs/blobs.h"
#include "sluiced/peers/peers.h"
#include "sluiced/spill/spill.h"
#include "sluiced/waits/waits.h"

#define HOST_NS   INT64_C(60000000000)
#define DEVICE_NS INT64_C(3000000000)
/*
 * The time for which a wait goes on while everything is held: the server itself holds answered
 * blobs for a second.
 */
#define VAIN_NS INT64_C(1000000000)
#define OVER_NS INT64_C(10000000000)
/* The time after a vain look, because releases are not reported. */
#define LOOK_NS INT64_C(10000000)
/* A look passes over all regions, so the next comes later by this many times its duration. */
#define LOOK_REST 8

int sl_wait_new(struct sl_peer *peer, const struct sl_head *message, int64_t deadline,
                struct sl_wait **out)
{
	size_t bytes = message ? message->bytes : 0;
	struct sl_wait *wait;

	if (peer && peer->wait_count >= SL_WAITS_MOST)
		return sl_fail(-EAGAIN, "a client may wait for %d things at a time", SL_WAITS_MOST);
	wait = *out = malloc(sizeof(*wait) + bytes);
	if (!wait)
		return sl_fail(-ENOMEM, "no memory");
	*wait = (struct sl_wait){
		.peer = peer, .device = -1, .since = sl_now(), .deadline = deadline};
	if (peer) {
		memcpy(&wait->request, message, bytes);
		sl_list_append(&peer->waits, &wait->peer_link);
		peer->wait_count++;
	}
	return 0;
}

void sl_wait_free(struct sl_server *server, struct sl_wait *wait)
{
	sl_list_remove(&wait->link);
	if (wait->peer) {
		sl_list_remove(&wait->peer_link);
		wait->peer->wait_count--;
	} else if (wait->region) {
		wait->region->copy->wait = NULL;
	}
	server->counts.waiting -= wait->for_blob;
	server->room->host -= !wait->for_blob && wait->device < 0;
	free(wait);
}

void sl_waits_end(struct sl_server *server, struct sl_peer *peer)
{
	while (!sl_list_empty(&peer->waits))
		sl_wait_free(server, SL_CONTAINER(peer->waits.next, struct sl_wait, peer_link));
	sl_spill_look(server);
}

/* ------------------------------------------------------------------------------------- room */

/* Makes it wait for room of that device from now on. */
static void room_wait_at(struct sl_server *server, struct sl_wait *wait, int32_t device)
{
	server->room->host += device < 0;
	wait->device = device;
	wait->deadline = sl_now() + (device < 0 ? HOST_NS : DEVICE_NS);
	server->room->due = SL_MIN(server->room->due, wait->deadline);
	sl_server_at(server, wait->deadline);
	sl_spill_look(server);
}

int sl_wait_for_room(struct sl_server *server, struct sl_peer *peer, struct sl_region *region)
{
	int32_t device = peer && server->room->error ? server->room->device : -1;
	struct sl_wait *wait;
	int rc = sl_wait_new(peer, peer ? &server->in.head : NULL, 0, &wait);

	if (rc)
		return rc;
	wait->region = region;
	if (region)
		region->copy->wait = wait;
	sl_list_append(&server->room->queue, &wait->link);
	room_wait_at(server, wait, device);
	return 0;
}

void sl_room_drop(struct sl_server *server, struct sl_region *region)
{
	struct sl_wait *wait = region->copy->wait;

	/* The current wait is freed at the end of its turn. */
	if (wait && wait == server->room->current)
		wait->region = NULL;
	else if (wait)
		sl_wait_free(server, wait);
	sl_spill_look(server);
}

bool sl_room_must_queue(const struct sl_server *server)
{
	if (!server->room->host)
		return false;
	sl_list_each_of (wait, &server->room->queue, const struct sl_wait, link)
		if (wait->device < 0)
			return wait != server->room->current;
	return false;
}

bool sl_room_has_time(const struct sl_server *server)
{
	const struct sl_wait *turn = server->room->current;
	bool over = server->counts.memory_bytes > server->settings->memory_bytes;

	/* A request that is not queued has just come. Memory beyond the limit has to be written
	 * first. */
	return !turn ||
	       sl_now() < SL_MAX(turn->since, server->spill->moved_at) + (over ? OVER_NS : VAIN_NS);
}

/* Tries a wait. Returns -EINPROGRESS if it goes on waiting, for room of *device. */
static int room_try(struct sl_server *server, struct sl_wait *wait, bool expired, int32_t *device)
{
	int rc;

	*device = -1;
	if (!wait->peer) {
		rc = sl_spill_restore(server, &wait->region, expired);
		return wait->region ? rc : 0;
	}
	memcpy(&server->in, &wait->request, wait->request.bytes);
	rc = sl_create_try(server, wait->peer);
	if (rc == -EINPROGRESS && server->room->error)
		*device = server->room->device;
	if (rc == -EINPROGRESS && expired && *device == wait->device)
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
	if (device != wait->device) {
		server->room->host -= wait->device < 0;
		room_wait_at(server, wait, device);
	} else if (now >= wait->deadline) {
		/* It waits for the disk, which has no deadline. */
		wait->deadline = now + VAIN_NS;
	}
	return false;
}

/* Tries the first wait for each place, and those past their deadline. */
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

		if (!held_up[1 + wait->device] || now >= wait->deadline)
			answered = room_run_one(server, wait, now);
		/* Waits that were freed meanwhile are not behind it any more. */
		next = answered ? queue->next : link->next;
		if (answered)
			continue;
		held_up[1 + wait->device] = true;
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
