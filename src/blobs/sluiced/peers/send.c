/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Messages to peers: answers, with the blobs that they name held, and events for watches.
 *
 * Sends messages, or keeps them until the socket takes them. No call waits for a peer. On the
 * server's thread.
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
#include "sluiced/peers/peers.h"

/* Descriptors on their way to a client, or waiting for it. */
#define DESCRIPTORS_MOST 16
#define HOLD_NS          INT64_C(1000000000)
/* Events are sent so many at a time; the next come later by a multiple of the loop's duration. */
#define EVENTS_AT_ONCE 16
#define EVENTS_REST    4
#define EVENTS_LATE    (SL_EVENTS_KEPT / 2) /* before some are lost, requests wait */

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

/* The answer cannot be sent: the client has to reconnect, and the loop sees the end later. */
static void peer_shut_down(struct sl_peer *peer)
{
	shutdown(peer->fd, SHUT_RDWR);
}

/* Returns true if the peer has read all messages to it, or has hung up. */
static bool peer_has_read(const struct sl_peer *peer)
{
	int unread;

	return sl_list_empty(&peer->out) &&
	       (peer->fd < 0 || (!ioctl(peer->fd, SIOCOUTQ, &unread) && !unread));
}

/*
 * Bounds the unread descriptors of each client: the kernel counts them against the limit of open
 * files of the server's user.
 */
int sl_peer_admit_descriptor(struct sl_peer *peer)
{
	if (peer->descriptors < DESCRIPTORS_MOST)
		return 0;
	if (!peer_has_read(peer))
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

/* Sends an event. Returns -EAGAIN if the socket takes none, or an error: the connection ends. */
static int watch_try(struct sl_server *server, struct sl_peer *peer, const union sl_message *m)
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

void sl_peer_send_pending(struct sl_server *server, struct sl_peer *peer)
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

/* ------------------------------------------------------------------------------------- holds */

void sl_peer_hold(struct sl_server *server, struct sl_peer *peer, uint32_t serial, uint32_t slot,
                  bool made)
{
	int64_t until = sl_blob_is_transient(server, slot) ? SL_FOREVER : server->now + HOLD_NS;

	if (peer->hold_count == SL_HOLDS_MOST)
		sl_peer_unhold(server, peer, peer->holds[0].serial, 0);
	peer->holds[peer->hold_count].serial = serial;
	peer->holds[peer->hold_count].slot = slot;
	peer->holds[peer->hold_count].made = made;
	peer->holds[peer->hold_count++].until = until;
	sl_catalogue_hold(server->catalogue, slot);
	sl_server_at(server, until);
}

void sl_peer_unhold(struct sl_server *server, struct sl_peer *peer, uint32_t serial, int64_t now)
{
	unsigned left = 0;
	/* By the time: a client that is stopped has not read the answer. */
	bool stopped = now && peer->hold_count && !peer_has_read(peer);

	for (unsigned i = 0; i < peer->hold_count; i++) {
		uint32_t slot = peer->holds[i].slot;

		if (stopped && peer->holds[i].made)
			peer->holds[i].until = SL_MAX(peer->holds[i].until, now + HOLD_NS);
		if ((now || (int32_t)(peer->holds[i].serial - serial) > 0) &&
		    peer->holds[i].until > now) {
			sl_server_at(server, peer->holds[i].until);
			peer->holds[left++] = peer->holds[i];
			continue;
		}
		sl_catalogue_unhold(server->catalogue, slot);
		server->blobs->sweep_due =
			server->blobs->sweep_due || sl_blob_is_transient(server, slot) ||
			sl_catalogue_state(server->catalogue, slot) == SL_ENTRY_DYING;
	}
	peer->hold_count = left;
}

/* --------------------------------------------------------------------------------------- watch */

void sl_watchers_notify(struct sl_server *server, uint32_t slot, enum sluice_watch_kind kind)
{
	struct sl_peers *peers = server->peers;
	struct sluice_watch_event *event = &peers->events[peers->event_count % SL_EVENTS_KEPT];
	struct sl_blob_record record = {.key.length = 0};

	if (!sl_list_empty(&peers->watches))
		record = sl_blob_record_at(server, slot);
	if (!record.key.length)
		return;
	*event = (struct sluice_watch_event){
		.kind = kind, .id = record.key.id, .bytes = sl_blob_bytes(server, slot)};
	memcpy(event->name, record.key.name, record.key.length);
	peers->event_count++;
	peers->events_left = true;
}

/* Finds the watch that can take events and has waited for the longest time; NULL: none can. */
static struct sl_peer *watch_find(const struct sl_peers *peers)
{
	struct sl_peer *found = NULL;

	sl_list_each_of (peer, &peers->watches, struct sl_peer, watch_link)
		if (!peer->waiting && peer->told < (found ? found->told : peers->event_count))
			found = peer;
	return found;
}

/* Sends events to a watch, until it knows all or takes no more. Returns how many were sent. */
static unsigned watch_tell(struct sl_server *server, struct sl_peer *peer)
{
	const struct sl_peers *peers = server->peers;
	size_t length = strlen(peer->prefix);
	unsigned sent = 0;

	for (; peer->told < peers->event_count && sent < EVENTS_AT_ONCE; peer->told++) {
		const struct sluice_watch_event *event =
			&peers->events[peer->told % SL_EVENTS_KEPT];
		bool lost = peers->event_count - peer->told > SL_EVENTS_KEPT;

		if (!lost && strncmp(event->name, peer->prefix, length) != 0)
			continue;
		sl_message_begin(&server->event, SL_MSG_EVENT, 0, 0);
		server->event.event.item.kind = SLUICE_WATCH_LOST;
		if (!lost)
			server->event.event.item = *event;
		if (watch_try(server, peer, &server->event) == -EAGAIN)
			break;
		/* The watcher lists all blobs after a loss. */
		if (lost)
			peer->told = peers->event_count - 1;
		sent++;
	}
	return sent;
}

void sl_watchers_tell(struct sl_server *server)
{
	struct sl_peers *peers = server->peers;
	struct sl_peer *peer = NULL;
	unsigned sent = 0;

	while (peers->events_left && (peer = watch_find(peers)) &&
	       ((server->now >= peers->tell_at && sent < EVENTS_AT_ONCE) ||
	        peers->event_count - peer->told > EVENTS_LATE))
		sent += watch_tell(server, peer);
	peers->events_left = peer;
	if (peer && sent)
		peers->tell_at = sl_now() + (sl_now() - server->now) * EVENTS_REST;
	if (peer)
		sl_server_at(server, peers->tell_at);
}
