/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who waits for memory of a device: there will be room, because what was deleted, or made way, is being unmapped by those
 * who have it. Ended by the last of these who says so, or is dead; by the deadline; and by the end of the connection.
 * They are tried in the order in which they came, and the first one that has to go on waiting holds up the others.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "sluiced/server.h"

#define PATIENCE_NS INT64_C(3000000000)
/* Of a peer, and of all of them. */
#define PEER_MOST 8
#define MOST      512

struct sl_device_wait {
	struct sl_list link;      /* server->device_waits.list */
	struct sl_list peer_link; /* peer->device_waits */
	struct sl_peer *peer;
	int64_t deadline;
	size_t bytes;
	unsigned char request[];
};

int sl_device_wait(struct sl_server *server, struct sl_peer *peer)
{
	size_t bytes = server->in.head.bytes;
	struct sl_device_wait *wait;

	if (peer->device_wait_count >= PEER_MOST || server->device_waits.count >= MOST)
		return server->device_waits.error;
	wait = malloc(sizeof(*wait) + bytes);
	if (!wait)
		return sl_fail(-ENOMEM, "no memory");
	wait->peer = peer;
	wait->deadline = sl_now() + PATIENCE_NS;
	wait->bytes = bytes;
	memcpy(wait->request, &server->in, bytes);
	sl_list_append(&server->device_waits.list, &wait->link);
	sl_list_append(&peer->device_waits, &wait->peer_link);
	peer->device_wait_count++;
	server->device_waits.count++;
	sl_server_at(server, wait->deadline);
	return 0;
}

static void wait_free(struct sl_server *server, struct sl_device_wait *wait)
{
	sl_list_remove(&wait->link);
	sl_list_remove(&wait->peer_link);
	wait->peer->device_wait_count--;
	server->device_waits.count--;
	free(wait);
}

void sl_device_waits_end(struct sl_server *server, struct sl_peer *peer)
{
	while (!sl_list_empty(&peer->device_waits))
		wait_free(server,
		          SL_CONTAINER(peer->device_waits.next, struct sl_device_wait, peer_link));
}

/* Whether it is answered. */
static bool try_one(struct sl_server *server, const struct sl_device_wait *wait, int64_t now)
{
	int rc;

	memcpy(&server->in, wait->request, wait->bytes);
	rc = sl_blob_try_create(server, wait->peer);
	if (rc != -EINPROGRESS)
		return true;
	if (server->device_waits.error && now < wait->deadline)
		return false;
	/* It is the host that is short now, or it has waited long enough. */
	rc = server->device_waits.error ? server->device_waits.error
	                                : sl_blob_wait(server, wait->peer);
	if (rc)
		sl_peer_refuse(server, wait->peer, server->in.head.serial, rc);
	return true;
}

void sl_device_waits_run(struct sl_server *server, int64_t now)
{
	struct sl_list *list = &server->device_waits.list;
	bool behind = !server->device_waits.look;

	for (struct sl_list *link = list->next, *next; link != list; link = next) {
		struct sl_device_wait *wait = SL_CONTAINER(link, struct sl_device_wait, link);

		next = link->next;
		if (now < wait->deadline && behind) {
			sl_server_at(server, wait->deadline);
		} else if (try_one(server, wait, now)) {
			wait_free(server, wait);
		} else {
			behind = true;
			sl_server_at(server, wait->deadline);
		}
	}
	/* Not what was taken and given back meanwhile. */
	server->device_waits.look = false;
}
