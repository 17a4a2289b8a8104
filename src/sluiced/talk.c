/* SPDX-License-Identifier: Apache-2.0 */
/* What is said to and by peers: nothing here waits for one. */
#include <errno.h>
#include <linux/sockios.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "sluiced/server.h"

/* Descriptors that were sent to a client, or wait to be, and that it has not read. */
#define DESCRIPTORS_MOST 16

/* ------------------------------------------------------------------------------------ sending */

static void listen_to(struct sl_server *server, struct sl_peer *peer)
{
	struct epoll_event event = {.events = peer->waiting ? EPOLLOUT : EPOLLIN,
	                            .data.ptr = &peer->socket};

	epoll_ctl(server->epoll, EPOLL_CTL_MOD, peer->fd, &event);
}

static int send_now(const struct sl_peer *peer, const void *data, size_t bytes, int fd)
{
	return sl_send(peer->fd, data, bytes, &fd, fd >= 0);
}

/* The client cannot be told what it waits for, and connects again. The loop sees the end of this connection later. */
static void give_up(struct sl_peer *peer)
{
	shutdown(peer->fd, SHUT_RDWR);
}

/* The kernel counts descriptors that nobody has read against the limit of open files of the server's user, whoever is
 * to read them; so the server bounds them for each client. */
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

static int refuse_descriptor(void)
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
		rc = send_now(peer, m, m->head.bytes, fd);
	if (rc == -EAGAIN)
		pending = malloc(sizeof(*pending) + room);
	if (pending) {
		pending->fd = fd;
		pending->bytes = m->head.bytes;
		memcpy(pending->data, m, m->head.bytes);
		sl_list_append(&peer->out, &pending->link);
		peer->waiting = true;
		listen_to(server, peer);
		return 0;
	}
	if (fd >= 0)
		close(fd);
	if (rc == -ETOOMANYREFS)
		sl_peer_refuse(server, peer, m->head.serial, refuse_descriptor());
	else if (rc)
		give_up(peer);
	return 0;
}

static void drop_one(struct sl_list *link)
{
	struct sl_pending *pending = SL_CONTAINER(link, struct sl_pending, link);

	sl_list_remove(link);
	if (pending->fd >= 0)
		close(pending->fd);
	free(pending);
}

void sl_peer_drop_pending(struct sl_peer *peer)
{
	while (!sl_list_empty(&peer->out))
		drop_one(peer->out.next);
}

static void send_lost(struct sl_server *server, struct sl_peer *peer)
{
	sl_message_begin(&server->out, SL_MSG_EVENT, 0, 0);
	server->out.event.item.kind = SLUICE_WATCH_LOST;
	if (!send_now(peer, &server->out, server->out.head.bytes, -1))
		peer->lost = false;
}

void sl_peer_tell(struct sl_server *server, struct sl_peer *peer, const union sl_message *event)
{
	if (peer->lost || send_now(peer, event, event->head.bytes, -1) != -EAGAIN)
		return;
	peer->lost = peer->waiting = true;
	listen_to(server, peer);
}

/* The answer with a descriptor becomes a refusal. */
static void refuse_pending(struct sl_pending *pending)
{
	union sl_message *m = (union sl_message *)pending->data;

	sl_message_refuse(m, m->head.serial, refuse_descriptor(), sluice_last_message());
	pending->bytes = m->head.bytes;
	close(pending->fd);
	pending->fd = -1;
}

static void writable(struct sl_server *server, struct sl_peer *peer)
{
	while (!sl_list_empty(&peer->out)) {
		struct sl_pending *pending = SL_CONTAINER(peer->out.next, struct sl_pending, link);

		int rc = send_now(peer, pending->data, pending->bytes, pending->fd);

		if (rc == -EAGAIN)
			return;
		if (rc == -ETOOMANYREFS) {
			refuse_pending(pending);
			continue;
		}
		if (rc)
			give_up(peer);
		drop_one(&pending->link);
	}
	if (peer->lost)
		send_lost(server, peer);
	peer->waiting = peer->lost;
	listen_to(server, peer);
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

static int dropped(struct sl_server *server, struct sl_peer *peer)
{
	for (unsigned i = 0; i < server->in.head.count; i++) {
		struct sl_region *region = sl_region_find(server, server->in.ids.items[i].id);

		/* One with leases in it is mapped, whatever is said. */
		if (region && region->device >= 0)
			sl_device_drop(server, peer, region);
		else if (region && region->writer == peer && !region->used)
			sl_region_part(server, region);
	}
	return 0;
}

/* Each has answered, now or later, or returns -errno with a sentence. */
static int (*const handlers[SL_MSG_TYPES])(struct sl_server *, struct sl_peer *) = {
	[SL_MSG_HELLO] = sl_peer_hello,
	[SL_MSG_CREATE] = sl_blob_create,
	[SL_MSG_SEAL] = sl_blob_seal,
	[SL_MSG_ANNOTATE] = sl_blob_annotate,
	[SL_MSG_ABORT] = sl_blob_abort,
	[SL_MSG_NUDGE] = sl_peer_nudge,
	[SL_MSG_DROP] = dropped,
	[SL_MSG_GET] = sl_get,
	[SL_MSG_REGION] = sl_region_request,
	[SL_MSG_LOCATE] = sl_locate,
	[SL_MSG_DELETE] = sl_delete,
	[SL_MSG_PIN] = sl_pin,
	[SL_MSG_STAT] = sl_stat,
	[SL_MSG_LIST] = sl_list,
	[SL_MSG_STATS] = sl_stats,
	[SL_MSG_TRIM] = sl_stats,
	[SL_MSG_DEVICE] = sl_device_ask,
	[SL_MSG_OFFER] = sl_device_offer,
	[SL_MSG_HAVE] = sl_device_have,
	[SL_MSG_DAEMON] = sl_daemon,
};

static void handle(struct sl_server *server, struct sl_peer *peer)
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
		sl_peer_settle(server, peer, server->in.head.settled, 0);
	if (type == SL_MSG_BYE)
		sl_peer_close(server, peer, true);
	else
		rc = handlers[type](server, peer);
	if (rc)
		sl_peer_refuse(server, peer, serial, rc);
	if (rc && type == SL_MSG_HELLO)
		sl_peer_close(server, peer, true);
}

/* Descriptors that came with a message: how many. The first one is kept. */
static unsigned take_descriptors(struct sl_server *server, struct msghdr *message)
{
	const struct cmsghdr *h = CMSG_FIRSTHDR(message);
	unsigned count;
	int fds[2];

	if (!h || h->cmsg_level != SOL_SOCKET || h->cmsg_type != SCM_RIGHTS)
		return 0;
	/* There is room for one header, and by its alignment for two descriptors. */
	count = SL_MIN((unsigned)((h->cmsg_len - CMSG_LEN(0)) / sizeof(int)), 2);
	memcpy(fds, CMSG_DATA(h), count * sizeof(int));
	if (count)
		server->offered = fds[0];
	if (count > 1)
		sl_stray_close(server, fds[1]);
	return count;
}

/* Exactly one with an offer, at most one with a hello, none with anything else. */
static int check_received(struct sl_server *server, const struct msghdr *message, size_t n,
                          unsigned descriptors)
{
	int rc;

	if (message->msg_flags & (MSG_TRUNC | MSG_CTRUNC))
		return sl_fail(-EPROTO, "a message with descriptors, or without an end");
	rc = sl_message_check(&server->in, n, true);
	if (!rc && descriptors != (server->in.head.type == SL_MSG_OFFER) &&
	    (server->in.head.type != SL_MSG_HELLO || descriptors > 1))
		rc = sl_fail(-EPROTO, "a message with a descriptor that it should not have, or "
		                      "without one");
	return rc;
}

static void readable(struct sl_server *server, struct sl_peer *peer)
{
	struct iovec io = {&server->in, sizeof(server->in)};
	_Alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof(int))];
	struct msghdr message = {.msg_iov = &io,
	                         .msg_iovlen = 1,
	                         .msg_control = control,
	                         .msg_controllen = sizeof(control)};
	ssize_t n = recvmsg(peer->fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	unsigned descriptors;

	/* ECONNRESET comes once, before the last words of a client that has closed without reading all. */
	if (n < 0 && (errno == EAGAIN || errno == EINTR || errno == ECONNRESET))
		return;
	/* With a message of no bytes, too, which looks like the end. */
	descriptors = n >= 0 ? take_descriptors(server, &message) : 0;
	if (n <= 0 || check_received(server, &message, (size_t)n, descriptors)) {
		/* What it says is no request, so that there is nothing to answer but this. */
		if (n > 0)
			sl_peer_refuse(server, peer, SL_SERIAL_ANY, -EPROTO);
		sl_peer_close(server, peer, !peer->role);
	} else {
		handle(server, peer);
	}
	if (server->offered >= 0)
		sl_stray_close(server, server->offered);
	server->offered = -1;
}

void sl_peer_event(struct sl_server *server, struct sl_peer *peer, uint32_t events)
{
	if (peer->gone || peer->fd < 0)
		return;
	if (peer->waiting && events & EPOLLOUT)
		writable(server, peer);
	else if (events & EPOLLIN)
		readable(server, peer);
	else if (events & (EPOLLHUP | EPOLLERR))
		sl_peer_close(server, peer, !peer->role);
}
