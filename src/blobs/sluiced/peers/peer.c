/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Connections: accept, hello, and the end of a client.
 *
 * Whether a client lives its pidfd says, not its socket, which its children may keep open. On the
 * server's thread.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "sluiced/blobs/blobs.h"
#include "sluiced/memory/devices.h"
#include "sluiced/peers/peers.h"
#include "sluiced/waits/waits.h"

#define HELLO_NS   INT64_C(5000000000)
#define REST_NS    INT64_C(50000000)
#define REFERENCES SLUICE_STORE_HOLDS_MOST

/* waitid() fails with EBADF for other descriptors, and with ECHILD if it is no child of ours. */
static bool fd_is_pidfd(int fd)
{
	siginfo_t about;

	return !waitid(P_PIDFD, (id_t)fd, &about, WEXITED | WNOHANG | WNOWAIT) || errno == ECHILD;
}

/*
 * Gets a pidfd of the client. A client sends its own with its hello, because its process id is 0
 * here if it is in another PID namespace.
 */
static int peer_find_process(struct sl_server *server, struct sl_peer *peer)
{
	if (server->offered >= 0) {
		if (!fd_is_pidfd(server->offered))
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
	sl_list_init(&peer->leases);
	sl_list_init(&peer->regions);
	sl_list_init(&peer->published);
	sl_list_init(&peer->imports);
	sl_list_init(&peer->waits);
	sl_list_init(&peer->out);
	return peer;
}

/*
 * Stops accepting when no descriptor is left: new connections wait in the listening socket, and the
 * loop is not woken for them.
 */
static void listener_rest(struct sl_server *server)
{
	epoll_ctl(server->epoll, EPOLL_CTL_DEL, server->descriptors->ledger->listener, NULL);
	server->peers->listen_at = server->now + REST_NS;
	sl_server_at(server, server->peers->listen_at);
}

static void listener_resume(struct sl_server *server, int64_t now)
{
	struct epoll_event event = {.events = EPOLLIN, .data.ptr = &server->listener};

	if (!server->peers->listen_at)
		return;
	if (now >= server->peers->listen_at &&
	    !epoll_ctl(server->epoll, EPOLL_CTL_ADD, server->descriptors->ledger->listener, &event))
		server->peers->listen_at = 0;
	else
		sl_server_at(server, SL_MAX(server->peers->listen_at, now + REST_NS));
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
			listener_rest(server);
		return;
	}
	/* The stranger that has been silent for the longest time makes room. */
	if (server->peers->strangers == SL_STRANGERS)
		sl_list_each_of (other, &server->peers->live, struct sl_peer, link)
			if (server->peers->strangers == SL_STRANGERS && !other->role)
				sl_peer_close(server, other, false);
	/* The kernel checks the socket's mode; all processes that may connect may do all. */
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
	sl_list_append(&server->peers->live, &peer->link);
	server->peers->strangers++;
	sl_server_at(server, peer->hello_by);
}

static void peer_hang_up(struct sl_server *server, struct sl_peer *peer)
{
	if (peer->fd < 0)
		return;
	epoll_ctl(server->epoll, EPOLL_CTL_DEL, peer->fd, NULL);
	close(peer->fd);
	peer->fd = -1;
	sl_device_unpublish(server, peer);
	sl_peer_drop_pending(peer);
	sl_waits_end(server, peer);
	if (peer->role == SL_ROLE_WATCH)
		sl_list_remove(&peer->watch_link);
}

/* Frees everything of a peer that is dead, or has said that it has unmapped all our memory. */
static void peer_give_all(struct sl_server *server, struct sl_peer *peer)
{
	while (!sl_list_empty(&peer->leases))
		sl_lease_undo(server,
		              SL_CONTAINER(peer->leases.next, struct sl_range_lease, peer_link));
	while (!sl_list_empty(&peer->regions))
		sl_region_writer_gone(
			server, SL_CONTAINER(peer->regions.next, struct sl_region, writer_link));
	sl_device_peer_gone(server, peer);
	if (peer->hold_count)
		sl_peer_unhold(server, peer, 0, SL_FOREVER);
	if (peer->references) {
		sl_catalogue_part(server->catalogue, peer->references);
		sl_references_unmap(peer->references);
		sl_descriptors_drop(server->descriptors, peer->row);
		server->blobs->sweep_due = true;
	}
}

/*
 * Returns true if its process may still read or write memory of ours. The only rule for what a
 * living process keeps, whose connection may end at any time, as by a hello that it has given up.
 */
static bool peer_must_stay(const struct sl_peer *peer)
{
	return !sl_list_empty(&peer->regions) || !sl_list_empty(&peer->imports) ||
	       (peer->references && !sl_references_end(peer->references));
}

void sl_peer_close(struct sl_server *server, struct sl_peer *peer, bool over)
{
	if (peer->gone)
		return;
	peer_hang_up(server, peer);
	if (!over && peer_must_stay(peer))
		return; /* until its process is dead, or comes back */
	peer_give_all(server, peer);
	*(peer->role ? &server->counts.clients : &server->peers->strangers) -= 1;
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
	sl_list_append(&server->peers->dead, &peer->link);
}

void sl_peer_free_dead(struct sl_server *server)
{
	struct sl_list *link;

	while ((link = sl_list_take(&server->peers->dead)))
		free(SL_CONTAINER(link, struct sl_peer, link));
}

void sl_peer_expire(struct sl_server *server, int64_t now)
{
	listener_resume(server, now);
	sl_list_each_of (peer, &server->peers->live, struct sl_peer, link) {
		if (peer->role)
			sl_peer_unhold(server, peer, 0, now);
		else if (peer->hello_by > now)
			sl_server_at(server, peer->hello_by);
		else
			sl_peer_close(server, peer, false);
	}
}

/* ------------------------------------------------------------------------------------- hello */

static int peer_watch_death(struct sl_server *server, struct sl_peer *peer)
{
	struct epoll_event event = {.events = EPOLLIN, .data.ptr = &peer->death};

	if (epoll_ctl(server->epoll, EPOLL_CTL_ADD, peer->pidfd, &event))
		return sl_fail(-errno, "process %d cannot be watched: %s", (int)peer->pid,
		               sl_error_text(-errno));
	return 0;
}

static int peer_join(struct sl_server *server, struct sl_peer *peer, int fd)
{
	int rc = sl_references_map(fd, true, &peer->references);

	if (rc)
		return rc;
	rc = sl_catalogue_join(server->catalogue, peer->references);
	if (rc) {
		sl_references_unmap(peer->references);
		peer->references = NULL;
	}
	return rc;
}

static int peer_make_references(struct sl_server *server, struct sl_peer *peer)
{
	struct sl_descriptors *descriptors = server->descriptors;
	struct sl_ledger_row saved = {.kind = SL_KIND_PROCESS, .uid = peer->uid, .pid = peer->pid};
	int fd, rc = sl_references_new(REFERENCES, &fd);

	if (rc)
		return sl_fail(rc, "cannot make references: %s", sl_error_text(rc));
	saved.session = peer->session = atomic_fetch_add(&descriptors->ledger->sessions, 1) + 1;
	rc = sl_descriptors_put(descriptors, &saved, peer->pidfd, &peer->process);
	saved.kind = SL_KIND_REFERENCES;
	saved.process = peer->process;
	if (!rc)
		rc = sl_descriptors_put(descriptors, &saved, fd, &peer->row);
	if (rc) {
		close(fd);
		return rc;
	}
	rc = peer_join(server, peer, fd);
	if (rc) {
		sl_descriptors_drop(descriptors, peer->row);
		return sl_fail(rc, "cannot make references: %s", sl_error_text(rc));
	}
	return 0;
}

void sl_peer_recover(struct sl_server *server, uint32_t row)
{
	const struct sl_ledger_row *saved = &server->descriptors->ledger->rows[row], *process;
	struct sl_peer *peer = peer_new();

	if (!peer)
		return;
	peer->role = SL_ROLE_CLIENT;
	peer->pid = saved->pid;
	peer->uid = saved->uid;
	peer->session = saved->session;
	peer->row = row;
	process = saved->process < server->descriptors->used
	                  ? &server->descriptors->ledger->rows[saved->process]
	                  : saved;
	if (process->id && process->kind == SL_KIND_PROCESS && process->session == saved->session)
		peer->pidfd = server->descriptors->held[saved->process].fd;
	if (peer->pidfd < 0 || peer_join(server, peer, server->descriptors->held[row].fd)) {
		free(peer);
		sl_descriptors_drop(server->descriptors, row);
		return;
	}
	peer_watch_death(server, peer); /* or it stays, as it may live */
	peer->process = saved->process;
	peer->awaited = atomic_load(&saved->maps);
	server->memory->awaited += peer->awaited;
	server->counts.clients++;
	sl_list_append(&server->peers->live, &peer->link);
}

void sl_peer_recover_process(struct sl_server *server, uint32_t row)
{
	sl_list_each_of (peer, &server->peers->live, struct sl_peer, link)
		if (peer->process == row)
			return;
	sl_descriptors_drop(server->descriptors, row);
}

/* Finds the peer of the same process that has the session in the hello; NULL: there is none. */
static struct sl_peer *peer_find_before(struct sl_server *server, const struct sl_peer *peer)
{
	sl_list_each_of (before, &server->peers->live, struct sl_peer, link)
		if (before->references && before->session == server->in.hello.session &&
		    before->pid == peer->pid && before->uid == peer->uid &&
		    sl_list_empty(&before->regions))
			return before;
	return NULL;
}

/* Gives a client's new connection what the peer of the same session has. */
static void peer_come_back(struct sl_server *server, struct sl_peer *before, struct sl_peer *peer)
{
	struct epoll_event event = {.events = EPOLLIN, .data.ptr = &peer->death};
	int own = peer->pidfd;

	peer_hang_up(server, before);
	peer->session = before->session;
	peer->row = before->row;
	peer->references = before->references;
	before->references = NULL;
	/* Both pidfds are of that process; that in the descriptor table is watched already. */
	peer->process = before->process;
	before->process = SL_NO_ROW;
	peer->pidfd = before->pidfd;
	before->pidfd = own;
	epoll_ctl(server->epoll, EPOLL_CTL_MOD, peer->pidfd, &event);
	sl_device_inherit(before, peer);
	sl_peer_close(server, before, true);
}

static int peer_admit(struct sl_server *server, struct sl_peer *peer)
{
	int rc;

	if (server->counts.clients >= server->settings->clients)
		return sl_fail(-EAGAIN,
		               "there are %u connections, which is all there may be (--clients)",
		               (unsigned)server->counts.clients);
	rc = peer_watch_death(server, peer);
	return rc || server->in.hello.role == SL_ROLE_WATCH ? rc
	                                                    : peer_make_references(server, peer);
}

/* Sends a client the catalogue (to be read) and the owner's references (to be written). */
static int peer_send_welcome(struct sl_server *server, const struct sl_peer *peer,
                             const struct sl_peer *owner)
{
	const struct sl_msg_hello *hello = &server->in.hello;
	struct sl_msg_welcome *answer = &server->out.welcome;
	int fds[2] = {sl_reopen_read_only(server->descriptors->held[server->blobs->row].fd),
	              server->descriptors->held[owner->row].fd};
	int rc;

	if (fds[0] < 0)
		return sl_fail(fds[0], "cannot open the catalogue: %s", sl_error_text(fds[0]));
	sl_store_step("server: welcome");
	sl_message_begin(&server->out, SL_MSG_WELCOME, hello->head.serial, 0);
	answer->store = server->descriptors->ledger->store;
	answer->epoch = atomic_load(&server->descriptors->ledger->epoch);
	answer->session = owner->session;
	answer->descriptors = hello->role == SL_ROLE_CLIENT ? 2 : 0;
	/* This is the first message to the peer, so the socket has room. */
	rc = (int)sl_fds_send(peer->fd, &server->out, server->out.head.bytes, fds,
	                      answer->descriptors, MSG_DONTWAIT);
	close(fds[0]);
	if (rc == -ETOOMANYREFS)
		return sl_descriptors_in_flight();
	return rc < 0 ? sl_fail(rc, "cannot send the catalogue: %s", sl_error_text(rc)) : 0;
}

/* A client comes back, to all that it has, only with a connection that takes the answer. */
int sl_handle_hello(struct sl_server *server, struct sl_peer *peer)
{
	const struct sl_msg_hello *hello = &server->in.hello;
	struct sl_peer *before = NULL;
	int rc = peer_find_process(server, peer);

	if (!rc && hello->role == SL_ROLE_CLIENT)
		before = peer_find_before(server, peer);
	if (!rc && !before)
		rc = peer_admit(server, peer);
	if (!rc)
		rc = peer_send_welcome(server, peer, before ? before : peer);
	if (rc)
		return rc;
	if (before)
		peer_come_back(server, before, peer);
	peer->role = hello->role;
	memcpy(peer->prefix, hello->prefix, sizeof(peer->prefix));
	server->peers->strangers--;
	server->counts.clients++;
	peer->told = server->peers->event_count;
	if (peer->role == SL_ROLE_WATCH)
		sl_list_append(&server->peers->watches, &peer->watch_link);
	return 0;
}

/*
 * Handles SL_MSG_NUDGE. A client that has released a blob has taken it before, even if an earlier
 * answer is still to come.
 */
int sl_handle_nudge(struct sl_server *server, struct sl_peer *peer)
{
	for (unsigned i = 0; i < server->in.head.count; i++) {
		uint32_t slot = sl_blob_by_id(server, server->in.ids.items[i].id);

		for (unsigned k = 0; k < peer->hold_count; k++)
			if (peer->holds[k].slot == slot)
				peer->holds[k].until = 0;
	}
	sl_peer_unhold(server, peer, server->in.head.settled, 0);
	server->blobs->sweep_due = true;
	return 0;
}
