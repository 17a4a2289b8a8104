/* SPDX-License-Identifier: Apache-2.0 */
/* Waits: requests that are answered later, and the queue for room. On the server's thread. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "sluiced/peers/peers.h"
#include "sluiced/spill/spill.h"
#include "sluiced/waits/waits.h"

#define HOST_NS   INT64_C(60000000000)
#define DEVICE_NS INT64_C(3000000000)
#define OVER_NS   INT64_C(10000000000)

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
	*wait = (struct sl_wait){.peer = peer, .deadline = deadline};
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
	} else if (wait->room.region) {
		wait->room.region->copy->wait = NULL;
	}
	server->counts.waiting -= wait->for_blob;
	server->room->host -= !wait->for_blob && wait->room.device < 0;
	free(wait);
}

void sl_waits_end(struct sl_server *server, struct sl_peer *peer)
{
	while (!sl_list_empty(&peer->waits))
		sl_wait_free(server, SL_CONTAINER(peer->waits.next, struct sl_wait, peer_link));
	sl_spill_look(server);
}

/* ------------------------------------------------------------------------------------- room */

void sl_room_wait_at(struct sl_server *server, struct sl_wait *wait, int32_t device)
{
	server->room->host += device < 0;
	wait->room.device = device;
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
	wait->room.region = region;
	wait->room.since = sl_now();
	if (region)
		region->copy->wait = wait;
	sl_list_append(&server->room->queue, &wait->link);
	sl_room_wait_at(server, wait, device);
	return 0;
}

void sl_room_drop(struct sl_server *server, struct sl_region *region)
{
	struct sl_wait *wait = region->copy->wait;

	/* The current wait is freed at the end of its turn. */
	if (wait && wait == server->room->current)
		wait->room.region = NULL;
	else if (wait)
		sl_wait_free(server, wait);
	sl_spill_look(server);
}

bool sl_room_must_queue(const struct sl_server *server)
{
	if (!server->room->host)
		return false;
	sl_list_each_of (wait, &server->room->queue, const struct sl_wait, link)
		if (wait->room.device < 0)
			return wait != server->room->current;
	return false;
}

bool sl_room_has_time(const struct sl_server *server)
{
	const struct sl_wait *turn = server->room->current;
	bool over = server->counts.memory_bytes > server->settings->memory_bytes;

	/* A request that is not queued is new. Memory beyond the limit is written first. */
	return !turn || sl_now() < SL_MAX(turn->room.since, server->spill->moved_at) +
	                                   (over ? OVER_NS : SL_VAIN_NS);
}
