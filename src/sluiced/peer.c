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
#include <unistd.h>

#include "sluiced/server.h"
#include "sluiced/spill.h"

#define HELLO_NS   INT64_C(5000000000)
#define PIN_NS     INT64_C(1000000000)
#define REST_NS    INT64_C(50000000)
#define REFERENCES 16384

#define PEER_PIDFD 77 /* SO_PEERPIDFD, of Linux 6.5 */

int sl_reopen(int fd)
{
	char path[64];
	int opened;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	opened = open(path, O_RDONLY | O_CLOEXEC);
	return opened < 0 ? -errno : opened;
}

static int open_process(int socket, pid_t pid)
{
	socklen_t size = sizeof(int);
	int fd;

	if (socket >= 0 && !getsockopt(socket, SOL_SOCKET, PEER_PIDFD, &fd, &size))
		return fd;
	return (int)syscall(SYS_pidfd_open, pid, 0);
}

/* When a process was started, in clock ticks; 0: it is not there. */
static uint64_t started(pid_t pid)
{
	char path[64], text[1024], *at;
	unsigned long long ticks = 0;
	ssize_t n;
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return 0;
	n = read(fd, text, sizeof(text) - 1);
	close(fd);
	text[n > 0 ? n : 0] = '\0';
	/* The name before it may have anything in it, but this is the last parenthesis. */
	at = strrchr(text, ')');
	if (!at || sscanf(at + 1,
	                  " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d "
	                  "%*d %*d %*d %*d %llu",
	                  &ticks) != 1)
		return 0;
	return ticks;
}

/* ------------------------------------------------------------------------------ come and go */

static struct sl_peer *peer_new(void)
{
	struct sl_peer *peer = calloc(1, sizeof(*peer));

	if (!peer)
		return NULL;
	peer->socket = (struct sl_source){SL_SOURCE_PEER, peer};
	peer->death = (struct sl_source){SL_SOURCE_DEATH, peer};
	peer->fd = peer->pidfd = -1;
	for (unsigned i = 0; i < SL_CLASSES; i++)
		sl_list_init(&peer->slabs[i]);
	sl_list_init(&peer->tickets);
	for (unsigned i = 0; i < SL_DEVICE_CLASSES; i++)
		sl_list_init(&peer->device_slabs[i]);
	sl_list_init(&peer->regions);
	sl_list_init(&peer->published);
	sl_list_init(&peer->imports);
	sl_list_init(&peer->waits);
	sl_list_init(&peer->out);
	return peer;
}

/* The one who has said nothing for the longest time makes room. */
static void close_stranger(struct sl_server *server)
{
	sl_peer_close(server, SL_CONTAINER(server->strangers.next, struct sl_peer, link), true);
}

/* No descriptor is left. Without strangers those who come wait for a while, and the loop is not woken for them. */
static void make_descriptors(struct sl_server *server)
{
	if (server->stranger_count) {
		close_stranger(server);
		return;
	}
	epoll_ctl(server->epoll, EPOLL_CTL_DEL, server->vault->listener, NULL);
	server->listen_at = server->now + REST_NS;
	sl_server_at(server, server->listen_at);
}

static void listen_again(struct sl_server *server, int64_t now)
{
	struct epoll_event event = {.events = EPOLLIN, .data.ptr = &server->listener};

	if (!server->listen_at)
		return;
	if (now >= server->listen_at &&
	    !epoll_ctl(server->epoll, EPOLL_CTL_ADD, server->vault->listener, &event))
		server->listen_at = 0;
	else
		sl_server_at(server, SL_MAX(server->listen_at, now + REST_NS));
}

void sl_peer_accept(struct sl_server *server)
{
	int fd = accept4(server->vault->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	struct epoll_event event = {.events = EPOLLIN};
	struct ucred who;
	socklen_t size = sizeof(who);
	struct sl_peer *peer;

	if (fd < 0) {
		if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM)
			make_descriptors(server);
		return;
	}
	/* Who the kernel lets connect, by the owner, group and mode of the socket, may do everything: one rule in one
	 * place, which systemd's SocketMode= and user namespaces keep to as well. */
	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &size)) {
		close(fd);
		return;
	}
	if (server->stranger_count >= SL_STRANGERS)
		close_stranger(server);
	peer = peer_new();
	if (!peer) {
		close(fd);
		return;
	}
	peer->fd = fd;
	peer->pid = who.pid;
	peer->uid = who.uid;
	peer->hello_by = server->now + HELLO_NS;
	event.data.ptr = &peer->socket;
	if (epoll_ctl(server->epoll, EPOLL_CTL_ADD, fd, &event)) {
		close(fd);
		free(peer);
		return;
	}
	sl_list_append(&server->strangers, &peer->link);
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
		sl_vault_drop(server->vault, peer->row);
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
	if (peer->role)
		server->peer_count--;
	else
		server->stranger_count--;
	if (peer->pidfd >= 0) {
		epoll_ctl(server->epoll, EPOLL_CTL_DEL, peer->pidfd, NULL);
		close(peer->pidfd);
	}
	peer->gone = true;
	sl_list_remove(&peer->link);
	sl_list_append(&server->dead, &peer->link);
}

void sl_peer_died(struct sl_server *server, struct sl_peer *peer)
{
	sl_peer_close(server, peer, true);
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
	while (!sl_list_empty(&server->strangers)) {
		struct sl_peer *peer = SL_CONTAINER(server->strangers.next, struct sl_peer, link);

		if (peer->hello_by > now) {
			sl_server_at(server, peer->hello_by);
			break;
		}
		sl_peer_close(server, peer, true);
	}
}

/* ------------------------------------------------------------------------------------- hello */

static int watch_death(struct sl_server *server, struct sl_peer *peer)
{
	struct epoll_event event = {.events = EPOLLIN, .data.ptr = &peer->death};

	peer->pidfd = open_process(peer->fd, peer->pid);
	if (peer->pidfd < 0)
		return sl_fail(-errno, "process %d cannot be watched: %s", (int)peer->pid,
		               sl_error_text(-errno));
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
	struct sl_ledger *ledger = server->vault->ledger;
	struct sl_kept kept = {.kind = SL_KIND_REFERENCES,
	                       .uid = peer->uid,
	                       .pid = peer->pid,
	                       .started = started(peer->pid)};
	int fd, rc = sl_references_new(REFERENCES, &fd);

	if (rc)
		return sl_fail(rc, "cannot make references: %s", sl_error_text(rc));
	peer->session = atomic_fetch_add(&ledger->sessions, 1) + 1;
	kept.session = peer->session;
	rc = sl_vault_put(server->vault, &kept, fd, &peer->row);
	if (rc) {
		close(fd);
		return rc;
	}
	rc = join(server, peer, fd);
	if (rc) {
		sl_vault_drop(server->vault, peer->row);
		return sl_fail(rc, "cannot make references: %s", sl_error_text(rc));
	}
	return 0;
}

void sl_peer_expect(struct sl_server *server, uint32_t row)
{
	const struct sl_kept *kept = &server->vault->ledger->rows[row];
	struct sl_peer *peer = peer_new();

	if (!peer)
		return;
	peer->role = SL_ROLE_CLIENT;
	peer->pid = kept->pid;
	peer->uid = kept->uid;
	peer->session = kept->session;
	peer->row = row;
	/* Looked at when it is watched already: so it is the one that it was. */
	if (watch_death(server, peer) || started(kept->pid) != kept->started ||
	    join(server, peer, sl_vault_fd(server->vault, row))) {
		if (peer->pidfd >= 0)
			close(peer->pidfd);
		free(peer);
		sl_vault_drop(server->vault, row);
		return;
	}
	peer->awaited = atomic_load(&kept->maps);
	server->awaited += peer->awaited;
	server->peer_count++;
	sl_list_append(&server->peers, &peer->link);
}

/* It was a client of the server before: its references are here already. */
static bool come_back(struct sl_server *server, struct sl_peer *peer, uint64_t session)
{
	sl_list_each (link, &server->peers) {
		struct sl_peer *before = SL_CONTAINER(link, struct sl_peer, link);

		if (before->session != session || before->fd >= 0 || before->pid != peer->pid ||
		    before->uid != peer->uid || !sl_list_empty(&before->regions))
			continue;
		peer->session = session;
		peer->row = before->row;
		peer->references = before->references;
		before->references = NULL;
		sl_device_inherit(before, peer);
		sl_peer_close(server, before, true);
		return true;
	}
	return false;
}

static int welcome(struct sl_server *server, struct sl_peer *peer, const struct sl_hello *hello)
{
	int rc;

	if (server->peer_count >= server->settings->clients)
		return sl_fail(-EAGAIN,
		               "there are %u connections, which is all there may be (--clients)",
		               server->peer_count);
	rc = watch_death(server, peer);
	if (rc || hello->role == SL_ROLE_WATCH ||
	    (hello->session && come_back(server, peer, hello->session)))
		return rc;
	return make_references(server, peer);
}

/* The catalogue to be read, and the references to be written, in one message. */
static int send_welcome(struct sl_server *server, struct sl_peer *peer)
{
	int fds[2] = {sl_reopen(sl_vault_fd(server->vault, server->row)),
	              sl_vault_fd(server->vault, peer->row)};
	struct iovec io = {&server->out, server->out.head.bytes};
	_Alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof(fds))] = {0};
	struct msghdr message = {.msg_iov = &io,
	                         .msg_iovlen = 1,
	                         .msg_control = control,
	                         .msg_controllen = sizeof(control)};
	struct cmsghdr *header = (struct cmsghdr *)control;
	ssize_t n;

	if (fds[0] < 0)
		return sl_fail(fds[0], "cannot open the catalogue: %s", sl_error_text(fds[0]));
	header->cmsg_level = SOL_SOCKET;
	header->cmsg_type = SCM_RIGHTS;
	header->cmsg_len = CMSG_LEN(sizeof(fds));
	memcpy(CMSG_DATA(header), fds, sizeof(fds));
	/* Nothing was sent to it before, so there is room. */
	n = sendmsg(peer->fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
	close(fds[0]);
	return n < 0 ? sl_fail(-errno, "cannot answer: %s", sl_error_text(-errno)) : 0;
}

void sl_peer_hello(struct sl_server *server, struct sl_peer *peer)
{
	const struct sl_hello *hello = &server->in.hello;
	struct sl_welcome *answer = &server->out.welcome;
	int rc;

	if (peer->role) {
		sl_peer_close(server, peer, false);
		return;
	}
	rc = welcome(server, peer, hello);
	if (rc) {
		sl_peer_refuse(server, peer, hello->head.serial, rc);
		sl_peer_close(server, peer, true);
		return;
	}
	peer->role = hello->role;
	memcpy(peer->prefix, hello->prefix, sizeof(peer->prefix));
	sl_list_remove(&peer->link);
	sl_list_append(&server->peers, &peer->link);
	server->stranger_count--;
	server->peer_count++;
	if (peer->role == SL_ROLE_WATCH)
		server->watchers++;
	sl_store_step("server: welcome");
	sl_message_begin(&server->out, SL_WELCOME, hello->head.serial, 0);
	answer->store = server->vault->ledger->store;
	answer->turn = atomic_load(&server->vault->ledger->turns);
	answer->session = peer->session;
	answer->descriptors = peer->role == SL_ROLE_CLIENT ? 2 : 0;
	if (peer->role == SL_ROLE_WATCH)
		sl_peer_send(server, peer, &server->out, -1);
	else if (send_welcome(server, peer))
		sl_peer_close(server, peer, true);
}

/* -------------------------------------------------------------------------------------- pins */

void sl_peer_pin(struct sl_server *server, struct sl_peer *peer, uint32_t serial, uint32_t slot)
{
	unsigned at;

	if (peer->pin_count == SL_PINS_MOST)
		sl_peer_settle(server, peer, peer->pins[peer->pin_first].serial, 0);
	at = (peer->pin_first + peer->pin_count++) % SL_PINS_MOST;
	peer->pins[at].serial = serial;
	peer->pins[at].slot = slot;
	peer->pins[at].until = server->now + PIN_NS;
	sl_catalogue_pin(server->catalogue, slot);
	sl_server_at(server, peer->pins[at].until);
}

void sl_peer_settle(struct sl_server *server, struct sl_peer *peer, uint32_t serial, int64_t now)
{
	while (peer->pin_count) {
		unsigned at = peer->pin_first;

		if ((int32_t)(peer->pins[at].serial - serial) > 0 && peer->pins[at].until > now) {
			sl_server_at(server, peer->pins[at].until);
			break;
		}
		sl_catalogue_unpin(server->catalogue, peer->pins[at].slot);
		if (sl_catalogue_state(server->catalogue, peer->pins[at].slot) == SL_ENTRY_DYING)
			server->sweep = true;
		peer->pin_first = (at + 1) % SL_PINS_MOST;
		peer->pin_count--;
	}
}
