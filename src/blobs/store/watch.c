/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Watching a prefix
 *
 * A connection of its own, on which the server sends an event for each blob of that prefix.
 * Connects again when the server is replaced. The caller's thread receives; one thread at a time.
 */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "store/conn.h"

struct sluice_watch {
	sluice_store *store;
	int epoll; /* for the caller to poll: contains the present socket */
	int fd;
	char prefix[SL_NAME_BYTES];
};

static int watch_connect(sluice_watch *watch)
{
	struct epoll_event event = {.events = EPOLLIN};
	struct sl_msg_welcome welcome;
	int fd, fds[2], rc;

	rc = sl_socket_connect(watch->store->path, watch->store->patience_ms, false, &fd);
	if (rc)
		return rc;
	rc = sl_conn_hello(fd, SL_ROLE_WATCH, 0, watch->prefix, false, &welcome, fds);
	if (!rc && epoll_ctl(watch->epoll, EPOLL_CTL_ADD, fd, &event))
		rc = sl_fail(-errno, "cannot watch: %s", sl_error_text(-errno));
	if (rc) {
		close(fd);
		return rc;
	}
	watch->fd = fd;
	return 0;
}

int sluice_watch_open(sluice_store *store, const char *prefix, sluice_watch **out)
{
	int rc = sl_store_check(store, "sluice_watch_open");

	if (!rc && !out)
		rc = sl_fail(-EINVAL, "sluice_watch_open: out is NULL");
	if (!rc)
		rc = sl_name_check(prefix ? prefix : "", SL_NAME_BYTES, true);
	if (rc)
		return rc;
	sluice_watch *watch = calloc(1, sizeof(*watch));
	if (!watch)
		return sl_fail(-ENOMEM, "no memory");
	watch->store = store;
	watch->fd = -1;
	atomic_fetch_add(&store->handles, 1);
	strcpy(watch->prefix, prefix ? prefix : "");
	watch->epoll = epoll_create1(EPOLL_CLOEXEC);
	rc = watch->epoll < 0 ? sl_fail(-errno, "cannot watch: %s", sl_error_text(-errno))
	                      : watch_connect(watch);
	if (rc)
		sluice_watch_free(watch);
	else
		*out = watch;
	return rc;
}

int sluice_watch_fd(const sluice_watch *watch)
{
	int rc = watch ? sl_store_check(watch->store, "sluice_watch_fd")
	               : sl_fail(-EINVAL, "sluice_watch_fd: the watch is NULL");

	return rc ? rc : watch->epoll;
}

/* Waits for an event. Returns 0, -EAGAIN at the deadline, or -ECONNRESET: the server is gone. */
static int watch_wait(sluice_watch *watch, int64_t deadline, union sl_message *m)
{
	int fds[2];
	ssize_t n;

	while ((n = sl_socket_receive(watch->fd, m, fds, MSG_DONTWAIT)) == -EAGAIN) {
		if (sl_now() >= deadline)
			return -EAGAIN;
		sl_socket_wait(watch->fd, POLLIN, deadline);
	}
	return n <= 0 || m->head.type != SL_MSG_EVENT ? -ECONNRESET : 0;
}

int sluice_watch_next(sluice_watch *watch, int timeout_ms, struct sluice_watch_event *out)
{
	int64_t deadline = sl_deadline(timeout_ms);
	struct sluice_watch_event event = {.kind = SLUICE_WATCH_LOST};
	union sl_message m;

	if (!watch || !out || out->size < sizeof(out->size))
		return sl_fail(-EINVAL, "sluice_watch_next: NULL, or out->size is not set");
	int rc = sl_store_check(watch->store, "sluice_watch_next");
	if (rc)
		return rc;
	rc = watch->fd < 0 ? -ECONNRESET : watch_wait(watch, deadline, &m);
	if (rc == -EAGAIN)
		return sl_fail(rc, "nothing happened in time");
	if (rc) {
		if (watch->fd >= 0)
			close(watch->fd);
		watch->fd = -1;
		rc = watch_connect(watch);
	} else {
		event = m.event.item;
	}
	if (rc)
		return rc;
	sl_struct_give(out, &event, sizeof(event));
	return 0;
}

void sluice_watch_free(sluice_watch *watch)
{
	if (!watch || sl_store_check(watch->store, ""))
		return;
	if (watch->fd >= 0)
		close(watch->fd);
	if (watch->epoll >= 0)
		close(watch->epoll);
	atomic_fetch_sub(&watch->store->handles, 1);
	free(watch);
}
