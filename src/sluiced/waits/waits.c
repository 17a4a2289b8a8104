/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Waits: requests that are answered later.
 *
 * Makes and frees the waits of waits.h, whatever they wait for.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "sluiced/memory/memory.h"
#include "sluiced/peers/peers.h"
#include "sluiced/spill/spill.h"
#include "sluiced/waits/waits.h"

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
