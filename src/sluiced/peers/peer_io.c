/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Messages to and from peers.
 *
 * Sends messages, or keeps them until the socket takes them; receives requests, checks them and
 * calls their handlers. No call waits for a peer. On the server's thread.
 */
#include <errno.h>
#include <linux/sockios.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "sluiced/blobs/blobs.h"
#include "sluiced/memory/devices.h"
#include "sluiced/peers/peers.h"

/* Descriptors that a client was sent, or that wait for it, and that it has not read. */
#define DESCRIPTORS_MOST 16

/* ------------------------------------------------------------------------------------ sending */

static void peer_poll(struct sl_server *server, struct sl_peer *peer)
{
	struct epoll_event event = {.events = peer->waiting ? EPOLLOUT : EPOLLIN,
	                            .data.ptr = &peer->socket};

	epoll_ctl(server->epoll, EPOLL_CTL_MOD, peer->fd, &event);
}

/* Returns a negative errno if it fails. */
static int peer_send_now(const struct sl_peer *peer, const void *data, size_t bytes, int fd)
{
	return (int)sl_fds_send(peer->fd, data, bytes, &fd, fd >= 0, MSG_DONTWAIT);
}

/*
 * The answer cannot be sent, so the client has to reconnect. The loop sees the end of this
 * connection later.
 */
static void peer_shut_down(struct sl_peer *peer)
{
	shutdown(peer->fd, SHUT_RDWR);
}

/*
 * Bounds the unread descriptors of each client: the kernel counts them against the limit of open
 * files of the server's user.
 */
int sl_peer_admit_descriptor(struct sl_peer *peer)
{
	int unread = 1;

	if (peer->descriptors < DESCRIPTORS_MOST)
		return 0;
	if (!sl_list_empty(&peer->out) || ioctl(peer->fd, SIOCOUTQ, &unread) || unread)
		return sl_fail(-EAGAIN, "the client has not read %d descriptors that it asked for",
		               DESCRIPTORS_MOST);
	peer->descriptors = 0;
	return 0;
}

static int peer_refuse_descriptor(void)
{
	return sl_fail(-ENFILE,
	               "as many descriptors are on their way to processes that do not read "
	               "them as the daemon's limit of open files allows");
}

int sl_peer_send(struct sl_server *server, struct sl_peer *peer, union sl_message *m, int fd)
{
	size_t room = SL_MAX(m->head.bytes, sizeof(struct sl_msg_refusal));
	struct sl_pending *pending = NULL;
	bool open = !peer->gone && peer->fd >= 0;
	int rc = open ? -EAGAIN : 0;

	peer->descriptors += fd >= 0;
	if (open && !peer->waiting)
		rc = peer_send_now(peer, m, m->head.bytes, fd);
	if (rc == -EAGAIN)
		pending = malloc(sizeof(*pending) + room);
	if (pending) {
		pending->fd = fd;
		pending->bytes = m->head.bytes;
		memcpy(pending->data, m, m->head.bytes);
		sl_list_append(&peer->out, &pending->link);
		peer->waiting = true;
		peer_poll(server, peer);
		return 0;
	}
	if (fd >= 0)
		close(fd);
	if (rc == -ETOOMANYREFS)
		sl_peer_refuse(server, peer, m->head.serial, peer_refuse_descriptor());
	else if (rc < 0)
		peer_shut_down(peer);
	return 0;
}

static void pending_free(struct sl_pending *pending)
{
	sl_list_remove(&pending->link);
	if (pending->fd >= 0)
		close(pending->fd);
	free(pending);
}

void sl_peer_drop_pending(struct sl_peer *peer)
{
	sl_list_each_of (pending, &peer->out, struct sl_pending, link)
		pending_free(pending);
}

int sl_peer_try(struct sl_server *server, struct sl_peer *peer, const union sl_message *m)
{
	int rc = peer_send_now(peer, m, m->head.bytes, -1);

	if (rc == -EAGAIN) {
		peer->waiting = true;
		peer_poll(server, peer);
	} else if (rc < 0) {
		peer_shut_down(peer);
	}
	return rc;
}

/* Turns an answer with a descriptor into a refusal. */
static void pending_refuse(struct sl_pending *pending)
{
	union sl_message *m = (union sl_message *)pending->data;

	sl_message_refuse(m, m->head.serial, peer_refuse_descriptor(), sluice_last_message());
	pending->bytes = m->head.bytes;
	close(pending->fd);
	pending->fd = -1;
}

static void peer_writable(struct sl_server *server, struct sl_peer *peer)
{
	sl_list_each_of (pending, &peer->out, struct sl_pending, link) {
		int rc = peer_send_now(peer, pending->data, pending->bytes, pending->fd);

		if (rc == -ETOOMANYREFS) {
			pending_refuse(pending);
			rc = peer_send_now(peer, pending->data, pending->bytes, -1);
		}
		if (rc == -EAGAIN)
			return;
		if (rc < 0)
			peer_shut_down(peer);
		pending_free(pending);
	}
	peer->waiting = false;
	server->peers->events_left = true;
	peer_poll(server, peer);
}

void sl_peer_refuse(struct sl_server *server, struct sl_peer *peer, uint32_t serial, int error)
{
	server->counts.refused++;
	sl_message_refuse(&server->out, serial, error, sluice_last_message());
	sl_peer_send(server, peer, &server->out, -1);
}

int sl_peer_done(struct sl_server *server, struct sl_peer *peer, uint32_t serial)
{
	sl_message_begin(&server->out, SL_MSG_DONE, serial, 0);
	return sl_peer_send(server, peer, &server->out, -1);
}

/* ---------------------------------------------------------------------------------- receiving */

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

/*
 * Each handler answers, now or later, and returns 0; or returns a negative errno with a sentence.
 */
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
	if (peer->pin_count)
		sl_peer_unpin(server, peer, server->in.head.settled, 0);
	if (type == SL_MSG_BYE)
		sl_peer_close(server, peer, true);
	else
		rc = request_handlers[type](server, peer);
	if (rc)
		sl_peer_refuse(server, peer, serial, rc);
	if (rc && type == SL_MSG_HELLO)
		sl_peer_close(server, peer, false);
}

/* An offer has one descriptor, a hello may have one, other messages have none. */
static int peer_check_received(struct sl_server *server, int cut, size_t n, unsigned descriptors)
{
	int rc;

	if (cut)
		return sl_fail(-EPROTO, "a message with descriptors, or without an end");
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

	/* ECONNRESET comes once, before the last messages of a client that has closed without
	 * reading everything. */
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
		peer_writable(server, peer);
	else if (events & EPOLLIN)
		peer_readable(server, peer);
	else if (events & (EPOLLHUP | EPOLLERR))
		sl_peer_close(server, peer, false);
}
