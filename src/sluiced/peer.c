/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Connections. Whether a client lives its pidfd tells, not its socket, which its children may keep open. A
 * client that hangs up without saying that it has unmapped everything keeps what it holds until it is dead.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "sluiced/server.h"
#include "sluiced/spill.h"

#define HELLO_NS   INT64_C(5000000000)
#define PIN_NS     INT64_C(1000000000)
#define REST_NS    INT64_C(50000000)
#define REFERENCES SLUICE_STORE_HOLDS_MOST

int sl_reopen(int fd)
{
	char path[64];
	int opened;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	opened = open(path, O_RDONLY | O_CLOEXEC);
	return opened < 0 ? -errno : opened;
}

/* For another descriptor it is EBADF, and for a process that is no child of this one ECHILD. */
static bool is_pidfd(int fd)
{
	siginfo_t about;

	return !waitid(P_PIDFD, (id_t)fd, &about, WEXITED | WNOHANG | WNOWAIT) || errno == ECHILD;
}

/* A client sends its own pidfd with its hello, as its number may mean nothing here: in another PID namespace it is 0. */
static int find_process(struct sl_server *server, struct sl_peer *peer)
{
	if (server->offered >= 0) {
		if (!is_pidfd(server->offered))
			return sl_fail(-EPROTO,
			               "the descriptor that came is not that of a process");
		peer->pidfd = server->offered;
		server->offered = -1;
		return 0;
	}
	if (!peer->pid)
		return sl_fail(-EPERM,
		               "a process of another PID namespace cannot be watched without "
		               "its pidfd, which it has not sent");
	peer->pidfd = (int)syscall(SYS_pidfd_open, peer->pid, 0);
	if (peer->pidfd < 0)
		return sl_fail(-errno, "process %d cannot be watched: %s", (int)peer->pid,
		               sl_error_text(-errno));
	return 0;
}

/* ------------------------------------------------------------------------------ come and go */

static struct sl_peer *peer_new(void)
{
	struct sl_peer *peer = calloc(1, sizeof(*peer));

	if (!peer)
		return NULL;
	peer->socket.peer = peer->death.peer = peer;
	peer->fd = peer->pidfd = -1;
	peer->process = SL_NO_ROW;
	for (unsigned i = 0; i < SL_CLASSES + SL_DEVICE_CLASSES; i++)
		sl_list_init(&peer->slabs[i]);
	sl_list_init(&peer->tickets);
	sl_list_init(&peer->regions);
	sl_list_init(&peer->published);
	sl_list_init(&peer->imports);
	sl_list_init(&peer->waits);
	sl_list_init(&peer->out);
	return peer;
}

/* No descriptor is left: new connections wait in the listening socket, and the loop is not woken for them. */
static void rest(struct sl_server *server)
{
	epoll_ctl(server->epoll, EPOLL_CTL_DEL, server->descriptors->ledger->listener, NULL);
	server->listen_at = server->now + REST_NS;
	sl_server_at(server, server->listen_at);
}

static void listen_again(struct sl_server *server, int64_t now)
{
	struct epoll_event event = {.events = EPOLLIN, .data.ptr = &server->listener};

	if (!server->listen_at)
		return;
	if (now >= server->listen_at &&
	    !epoll_ctl(server->epoll, EPOLL_CTL_ADD, server->descriptors->ledger->listener, &event))
		server->listen_at = 0;
	else
		sl_server_at(server, SL_MAX(server->listen_at, now + REST_NS));
}

void sl_peer_accept(struct sl_server *server)
{
	int fd = accept4(server->descriptors->ledger->listener, NULL, NULL,
	                 SOCK_CLOEXEC | SOCK_NONBLOCK);
	struct epoll_event event = {.events = EPOLLIN};
	struct ucred who;
	socklen_t size = sizeof(who);
	struct sl_peer *peer;

	if (fd < 0) {
		if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM)
			rest(server);
		return;
	}
	/* The connection that has said nothing for the longest time makes room. */
	if (server->stranger_count == SL_STRANGERS)
		sl_list_each_of (other, &server->peers, struct sl_peer, link)
			if (server->stranger_count == SL_STRANGERS && !other->role)
				sl_peer_close(server, other, true);
	/* Whoever the kernel lets connect, by the owner, group and mode of the socket, may do everything. */
	peer = peer_new();
	if (peer)
		event.data.ptr = &peer->socket;
	if (!peer || getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &size) ||
	    epoll_ctl(server->epoll, EPOLL_CTL_ADD, fd, &event)) {
		close(fd);
		free(peer);
		return;
	}
	peer->fd = fd;
	peer->pid = who.pid;
	peer->uid = who.uid;
	peer->hello_by = server->now + HELLO_NS;
	sl_list_append(&server->peers, &peer->link);
	server->stranger_count++;
	sl_server_at(server, peer->hello_by);
}

static void hang_up(struct sl_server *server, struct sl_peer *peer)
{
	if (peer->fd < 0)
		return;
	epoll_ctl(server->epoll, EPOLL_CTL_DEL, peer->fd, NULL);
	close(peer->fd);
	peer->fd = -1;
	sl_device_vanish(server, peer);
	sl_peer_drop_pending(peer);
	sl_waits_end(server, peer);
	if (peer->role == SL_ROLE_WATCH)
		server->watchers--;
}

/* Its process is dead, or has said that it has nothing of ours mapped any more. */
static void give_all(struct sl_server *server, struct sl_peer *peer)
{
	while (!sl_list_empty(&peer->tickets))
		sl_blob_undo(server, SL_CONTAINER(peer->tickets.next, struct sl_ticket, link));
	while (!sl_list_empty(&peer->regions))
		sl_region_part(server, SL_CONTAINER(peer->regions.next, struct sl_region, written));
	sl_device_part(server, peer);
	if (peer->pin_count)
		sl_peer_settle(server, peer, 0, SL_FOREVER);
	if (peer->references) {
		sl_catalogue_part(server->catalogue, peer->references);
		sl_references_unmap(peer->references);
		sl_descriptors_drop(server->descriptors, peer->row);
		server->sweep = true;
	}
}

/* Memory of ours that its process may still read or write. */
static bool has_anything(const struct sl_peer *peer)
{
	return !sl_list_empty(&peer->regions) || !sl_list_empty(&peer->imports) ||
	       (peer->references && sl_references_any(peer->references));
}

void sl_peer_close(struct sl_server *server, struct sl_peer *peer, bool clean)
{
	if (peer->gone)
		return;
	hang_up(server, peer);
	if (!clean && peer->role == SL_ROLE_CLIENT && has_anything(peer))
		return; /* until it is dead */
	give_all(server, peer);
	*(peer->role ? &server->peer_count : &server->stranger_count) -= 1;
	if (peer->pidfd >= 0)
		epoll_ctl(server->epoll, EPOLL_CTL_DEL, peer->pidfd, NULL);
	if (peer->process != SL_NO_ROW)
		sl_descriptors_drop(server->descriptors, peer->process);
	else if (peer->pidfd >= 0)
		close(peer->pidfd);
	if (server->upgrader == peer)
		server->upgrader = NULL;
	peer->gone = true;
	sl_list_remove(&peer->link);
	sl_list_append(&server->dead, &peer->link);
}

void sl_peer_free_dead(struct sl_server *server)
{
	struct sl_list *link;

	while ((link = sl_list_take(&server->dead)))
		free(SL_CONTAINER(link, struct sl_peer, link));
}

void sl_peer_expire(struct sl_server *server, int64_t now)
{
	listen_again(server, now);
	sl_list_each_of (peer, &server->peers, struct sl_peer, link) {
		if (peer->role)
			sl_peer_settle(server, peer, 0, now);
		else if (peer->hello_by > now)
			sl_server_at(server, peer->hello_by);
		else
			sl_peer_close(server, peer, true);
	}
}

/* ------------------------------------------------------------------------------------- hello */

static int watch_death(struct sl_server *server, struct sl_peer *peer)
{
	struct epoll_event event = {.events = EPOLLIN, .data.ptr = &peer->death};

	if (epoll_ctl(server->epoll, EPOLL_CTL_ADD, peer->pidfd, &event))
		return sl_fail(-errno, "process %d cannot be watched: %s", (int)peer->pid,
		               sl_error_text(-errno));
	return 0;
}

static int join(struct sl_server *server, struct sl_peer *peer, int fd)
{
	int rc = sl_references_map(fd, false, &peer->references);

	if (rc)
		return rc;
	rc = sl_catalogue_join(server->catalogue, peer->references);
	if (rc) {
		sl_references_unmap(peer->references);
		peer->references = NULL;
	}
	return rc;
}

static int make_references(struct sl_server *server, struct sl_peer *peer)
{
	struct sl_descriptors *descriptors = server->descriptors;
	struct sl_kept kept = {.kind = SL_KIND_PROCESS, .uid = peer->uid, .pid = peer->pid};
	int fd, rc = sl_references_new(REFERENCES, &fd);

	if (rc)
		return sl_fail(rc, "cannot make references: %s", sl_error_text(rc));
	kept.session = peer->session = atomic_fetch_add(&descriptors->ledger->sessions, 1) + 1;
	rc = sl_descriptors_put(descriptors, &kept, peer->pidfd, &peer->process);
	kept.kind = SL_KIND_REFERENCES;
	kept.process = peer->process;
	if (!rc)
		rc = sl_descriptors_put(descriptors, &kept, fd, &peer->row);
	if (rc) {
		close(fd);
		return rc;
	}
	rc = join(server, peer, fd);
	if (rc) {
		sl_descriptors_drop(descriptors, peer->row);
		return sl_fail(rc, "cannot make references: %s", sl_error_text(rc));
	}
	return 0;
}

void sl_peer_expect(struct sl_server *server, uint32_t row)
{
	const struct sl_kept *kept = &server->descriptors->ledger->rows[row], *process;
	struct sl_peer *peer = peer_new();

	if (!peer)
		return;
	peer->role = SL_ROLE_CLIENT;
	peer->pid = kept->pid;
	peer->uid = kept->uid;
	peer->session = kept->session;
	peer->row = row;
	process = kept->process < server->descriptors->used
	                  ? &server->descriptors->ledger->rows[kept->process]
	                  : kept;
	if (process->id && process->kind == SL_KIND_PROCESS && process->session == kept->session)
		peer->pidfd = sl_descriptors_fd(server->descriptors, kept->process);
	if (peer->pidfd < 0 || watch_death(server, peer) ||
	    join(server, peer, sl_descriptors_fd(server->descriptors, row))) {
		if (peer->pidfd >= 0)
			epoll_ctl(server->epoll, EPOLL_CTL_DEL, peer->pidfd, NULL);
		free(peer);
		sl_descriptors_drop(server->descriptors, row);
		return;
	}
	peer->process = kept->process;
	peer->awaited = atomic_load(&kept->maps);
	server->awaited += peer->awaited;
	server->peer_count++;
	sl_list_append(&server->peers, &peer->link);
}

void sl_peer_expect_process(struct sl_server *server, uint32_t row)
{
	sl_list_each_of (peer, &server->peers, struct sl_peer, link)
		if (peer->process == row)
			return;
	sl_descriptors_drop(server->descriptors, row);
}

/* It was a client of the server before: its references are here already. */
static bool come_back(struct sl_server *server, struct sl_peer *peer, uint64_t session)
{
	sl_list_each_of (before, &server->peers, struct sl_peer, link) {
		int fd;

		if (before->session != session || before->fd >= 0 || before->pid != peer->pid ||
		    before->uid != peer->uid || !sl_list_empty(&before->regions))
			continue;
		peer->session = session;
		peer->row = before->row;
		peer->references = before->references;
		before->references = NULL;
		epoll_ctl(server->epoll, EPOLL_CTL_DEL, before->pidfd, NULL);
		/* Both are of that process; the descriptor table's is watched on. */
		peer->process = before->process;
		before->process = SL_NO_ROW;
		fd = peer->pidfd;
		peer->pidfd = before->pidfd;
		before->pidfd = fd;
		sl_device_inherit(before, peer);
		sl_peer_close(server, before, true);
		return true;
	}
	return false;
}

static int welcome(struct sl_server *server, struct sl_peer *peer, const struct sl_msg_hello *hello)
{
	int rc;

	if (server->peer_count >= server->settings->clients)
		return sl_fail(-EAGAIN,
		               "there are %u connections, which is all there may be (--clients)",
		               server->peer_count);
	rc = find_process(server, peer);
	if (!rc && hello->role != SL_ROLE_WATCH &&
	    !(hello->session && come_back(server, peer, hello->session)))
		rc = make_references(server, peer);
	return rc ? rc : watch_death(server, peer);
}

/* The catalogue to be read, and the references to be written, in one message. */
static int send_welcome(struct sl_server *server, struct sl_peer *peer)
{
	int fds[2] = {sl_reopen(sl_descriptors_fd(server->descriptors, server->row)),
	              sl_descriptors_fd(server->descriptors, peer->row)};
	int rc;

	if (fds[0] < 0)
		return sl_fail(fds[0], "cannot open the catalogue: %s", sl_error_text(fds[0]));
	/* Nothing was sent to it before, so there is room. */
	rc = sl_send(peer->fd, &server->out, server->out.head.bytes, fds, 2);
	close(fds[0]);
	if (rc == -ETOOMANYREFS)
		return sl_descriptors_in_flight();
	return rc ? sl_fail(rc, "cannot send the catalogue: %s", sl_error_text(rc)) : 0;
}

/* It is a client, or a watcher, from here on. */
static int let_in(struct sl_server *server, struct sl_peer *peer, const struct sl_msg_hello *hello)
{
	struct sl_msg_welcome *answer = &server->out.welcome;

	peer->role = hello->role;
	memcpy(peer->prefix, hello->prefix, sizeof(peer->prefix));
	server->stranger_count--;
	server->peer_count++;
	server->watchers += peer->role == SL_ROLE_WATCH;
	sl_store_step("server: welcome");
	sl_message_begin(&server->out, SL_MSG_WELCOME, hello->head.serial, 0);
	answer->store = server->descriptors->ledger->store;
	answer->epoch = atomic_load(&server->descriptors->ledger->turns);
	answer->session = peer->session;
	answer->descriptors = peer->role == SL_ROLE_CLIENT ? 2 : 0;
	if (peer->role == SL_ROLE_CLIENT)
		return send_welcome(server, peer);
	return sl_peer_send(server, peer, &server->out, -1);
}

int sl_peer_hello(struct sl_server *server, struct sl_peer *peer)
{
	const struct sl_msg_hello *hello = &server->in.hello;
	int rc = welcome(server, peer, hello);

	return rc ? rc : let_in(server, peer, hello);
}

/* -------------------------------------------------------------------------------------- pins */

void sl_peer_pin(struct sl_server *server, struct sl_peer *peer, uint32_t serial, uint32_t slot)
{
	int64_t until = sl_blob_is_transient(server, slot) ? SL_FOREVER : server->now + PIN_NS;

	if (peer->pin_count == SL_PINS_MOST)
		sl_peer_settle(server, peer, peer->pins[0].serial, 0);
	peer->pins[peer->pin_count].serial = serial;
	peer->pins[peer->pin_count].slot = slot;
	peer->pins[peer->pin_count++].until = until;
	sl_catalogue_pin(server->catalogue, slot);
	sl_server_at(server, until);
}

void sl_peer_settle(struct sl_server *server, struct sl_peer *peer, uint32_t serial, int64_t now)
{
	unsigned left = 0;

	for (unsigned i = 0; i < peer->pin_count; i++) {
		uint32_t slot = peer->pins[i].slot;

		if ((int32_t)(peer->pins[i].serial - serial) > 0 && peer->pins[i].until > now) {
			sl_server_at(server, peer->pins[i].until);
			peer->pins[left++] = peer->pins[i];
			continue;
		}
		sl_catalogue_unpin(server->catalogue, slot);
		server->sweep = server->sweep || sl_blob_is_transient(server, slot) ||
		                sl_catalogue_state(server->catalogue, slot) == SL_ENTRY_DYING;
	}
	peer->pin_count = left;
}

/* Whoever has released a blob has taken it before, also if the answer to an earlier request is still to come. */
int sl_peer_nudge(struct sl_server *server, struct sl_peer *peer)
{
	for (unsigned i = 0; i < server->in.head.count; i++) {
		uint32_t slot = sl_blob_by_id(server, server->in.ids.items[i].id);

		for (unsigned k = 0; k < peer->pin_count; k++)
			if (peer->pins[k].slot == slot)
				peer->pins[k].until = 0;
	}
	sl_peer_settle(server, peer, server->in.head.settled, 0);
	server->sweep = true;
	return 0;
}
