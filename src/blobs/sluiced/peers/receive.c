/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Messages from peers.
 *
 * Receives requests, checks them and calls their handlers. On the server's thread.
 */
#include <errno.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "sluiced/blobs/blobs.h"
#include "sluiced/memory/devices.h"
#include "sluiced/peers/peers.h"

static int peer_handle_drop(struct sl_server *server, struct sl_peer *peer)
{
	for (unsigned i = 0; i < server->in.head.count; i++) {
		struct sl_region *region = sl_region_find(server, server->in.ids.items[i].id);

		/* A region with leases in it is mapped, even if the client denies it. */
		if (region && region->device >= 0)
			sl_device_drop(server, peer, region);
		else if (region && region->writer == peer && !region->used)
			sl_region_writer_gone(server, region);
	}
	return 0;
}

/* Each handler answers, now or later, and returns 0; or returns -errno with a sentence. */
static int (*const request_handlers[SL_MSG_TYPES])(struct sl_server *, struct sl_peer *) = {
	[SL_MSG_HELLO] = sl_handle_hello,   [SL_MSG_CREATE] = sl_handle_create,
	[SL_MSG_SEAL] = sl_handle_seal,     [SL_MSG_ANNOTATE] = sl_handle_annotate,
	[SL_MSG_ABORT] = sl_handle_abort,   [SL_MSG_NUDGE] = sl_handle_nudge,
	[SL_MSG_DROP] = peer_handle_drop,   [SL_MSG_GET] = sl_handle_get,
	[SL_MSG_REGION] = sl_handle_region, [SL_MSG_LOCATE] = sl_handle_locate,
	[SL_MSG_DELETE] = sl_handle_delete, [SL_MSG_PIN] = sl_handle_pin,
	[SL_MSG_STAT] = sl_handle_stat,     [SL_MSG_LIST] = sl_handle_list,
	[SL_MSG_STATS] = sl_handle_stats,   [SL_MSG_TRIM] = sl_handle_stats,
	[SL_MSG_DEVICE] = sl_handle_device, [SL_MSG_OFFER] = sl_handle_offer,
	[SL_MSG_HAVE] = sl_handle_have,     [SL_MSG_DAEMON] = sl_handle_daemon,
};

static void peer_handle(struct sl_server *server, struct sl_peer *peer)
{
	unsigned type = server->in.head.type;
	uint32_t serial = server->in.head.serial;
	int rc = 0;

	server->counts.requests++;
	if (peer->role != (type == SL_MSG_HELLO ? 0 : SL_ROLE_CLIENT)) {
		sl_peer_close(server, peer, false);
		return;
	}
	if (peer->hold_count)
		sl_peer_unhold(server, peer, server->in.head.settled, 0);
	if (type == SL_MSG_BYE)
		sl_peer_close(server, peer, true);
	else
		rc = request_handlers[type](server, peer);
	/* An offer has no serial number. */
	if (rc)
		sl_peer_refuse(server, peer, type == SL_MSG_OFFER ? SL_SERIAL_ANY : serial, rc);
	if (rc && (type == SL_MSG_HELLO || type == SL_MSG_OFFER))
		sl_peer_close(server, peer, false);
}

/* An offer has one descriptor, a hello may have one, other messages have none. */
static int peer_check_received(struct sl_server *server, int cut, size_t n, unsigned descriptors)
{
	int rc;

	if (cut)
		return sl_fail(-EPROTO,
		               cut & MSG_TRUNC
		                       ? "a message without an end"
		                       : "a message whose descriptors did not come: sluiced "
		                         "has too many open (ulimit -n), or they were too many");
	rc = sl_message_check(&server->in, n, true);
	if (!rc && descriptors != (server->in.head.type == SL_MSG_OFFER) &&
	    (server->in.head.type != SL_MSG_HELLO || descriptors > 1))
		rc = sl_fail(-EPROTO, "a message with a descriptor that it should not have, or "
		                      "without one");
	return rc;
}

static void peer_readable(struct sl_server *server, struct sl_peer *peer)
{
	int fds[SL_FDS_MOST], cut;
	ssize_t n =
		sl_fds_receive(peer->fd, &server->in, sizeof(server->in), fds, MSG_DONTWAIT, &cut);
	unsigned descriptors = (fds[0] >= 0) + (fds[1] >= 0);

	/* ECONNRESET comes once, before the last messages of a client that closed early. */
	if (n == -EAGAIN || n == -ECONNRESET)
		return;
	/* Descriptors come with a message of no bytes as well, which looks like the end. */
	server->offered = fds[0];
	if (fds[1] >= 0)
		sl_async_close(server, fds[1]);
	if (n <= 0 || peer_check_received(server, cut, (size_t)n, descriptors)) {
		/* The message is no request with a serial number to be answered. */
		if (n > 0)
			sl_peer_refuse(server, peer, SL_SERIAL_ANY, -EPROTO);
		sl_peer_close(server, peer, false);
	} else {
		peer_handle(server, peer);
	}
	if (server->offered >= 0)
		sl_async_close(server, server->offered);
	server->offered = -1;
}

void sl_peer_event(struct sl_server *server, struct sl_peer *peer, uint32_t events)
{
	if (peer->gone || peer->fd < 0)
		return;
	if (peer->waiting && events & EPOLLOUT)
		sl_peer_send_pending(server, peer);
	else if (events & EPOLLIN)
		peer_readable(server, peer);
	else if (events & (EPOLLHUP | EPOLLERR))
		sl_peer_close(server, peer, false);
}
