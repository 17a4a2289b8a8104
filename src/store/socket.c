/* SPDX-License-Identifier: Apache-2.0 */
/* A client's socket: connecting, and one message at a time. */
#include <errno.h>
#include <poll.h>
#include <pwd.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "store/client.h"

#define PAUSE_NS 5000000

/* The user that SLUICE_STORE_OWNER names. */
static int find_owner(const char *name, uid_t *out)
{
	char buffer[4096], *end;
	struct passwd entry, *found = NULL;
	unsigned long number;

	if (!getpwnam_r(name, &entry, buffer, sizeof(buffer), &found) && found) {
		*out = found->pw_uid;
		return 0;
	}
	errno = 0;
	number = strtoul(name, &end, 10);
	if (name[0] < '0' || name[0] > '9' || *end || errno || number >= UINT32_MAX)
		return sl_fail(-EINVAL, "SLUICE_STORE_OWNER: there is no user '%s'", name);
	*out = (uid_t)number;
	return 0;
}

/* A path in a folder that others may write to may be anybody's: so the server is our user's, root's, or named. */
static int check_server(const char *path, int fd)
{
	const char *name = getenv("SLUICE_STORE_OWNER");
	uid_t named = geteuid();
	struct ucred server;
	socklen_t size = sizeof(server);
	int rc = name && *name ? find_owner(name, &named) : 0;

	if (!rc && getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &server, &size))
		rc = sl_fail(-errno, "whose store '%s' is cannot be found out: %s", path,
		             sl_error_text(-errno));
	if (!rc && server.uid && server.uid != geteuid() && server.uid != named)
		rc = sl_fail(-EPERM,
		             "the store at '%s' is user %u's: SLUICE_STORE_OWNER=%u accepts it",
		             path, (unsigned)server.uid, (unsigned)server.uid);
	return rc;
}

static int connect_once(const char *path, int *out)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd, rc;

	strcpy(address.sun_path, path);
	fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return sl_fail(-errno, "cannot make a socket: %s", sl_error_text(-errno));
	if (connect(fd, (struct sockaddr *)&address, sizeof(address))) {
		int error = errno;

		close(fd);
		return sl_fail(-error, "no store at '%s': %s%s", path, sl_error_text(-error),
		               error == ENOENT || error == ECONNREFUSED
		                       ? "; does sluiced run there?"
		                       : "");
	}
	rc = check_server(path, fd);
	if (rc)
		close(fd);
	else
		*out = fd;
	return rc;
}

int sl_wire_connect(const char *path, unsigned patience_ms, bool once, int *out)
{
	int64_t deadline = sl_now() + patience_ms * INT64_C(1000000);

	for (;;) {
		int rc = connect_once(path, out);
		bool waits = rc == -ECONNREFUSED || rc == -ENOENT || rc == -EAGAIN || rc == -EINTR;

		if (!rc || !waits || once || sl_now() >= deadline)
			return rc == -ENOENT && !once ? -ECONNREFUSED : rc;
		nanosleep(&(struct timespec){0, PAUSE_NS}, NULL);
	}
}

ssize_t sl_socket_receive(int socket, union sl_message *m, int fds[2], int flags)
{
	struct iovec io = {m, sizeof(*m)};
	_Alignas(struct cmsghdr) char control[CMSG_SPACE(2 * sizeof(int))];
	struct msghdr message = {.msg_iov = &io,
	                         .msg_iovlen = 1,
	                         .msg_control = control,
	                         .msg_controllen = sizeof(control)};
	struct cmsghdr *header;
	ssize_t n;

	fds[0] = fds[1] = -1;
	do
		n = recvmsg(socket, &message, MSG_CMSG_CLOEXEC | flags);
	while (n < 0 && errno == EINTR);
	if (n <= 0)
		return n < 0 ? -errno : 0;
	header = CMSG_FIRSTHDR(&message);
	if (header && header->cmsg_type == SCM_RIGHTS)
		memcpy(fds, CMSG_DATA(header),
		       SL_MIN(header->cmsg_len - CMSG_LEN(0), 2 * sizeof(int)));
	sl_store_step("client: read");
	if (sl_message_check(m, (size_t)n, false))
		return -EPROTO;
	return n;
}

void sl_close_both(int fds[2])
{
	for (int i = 0; i < 2; i++)
		if (fds[i] >= 0)
			close(fds[i]);
}

bool sl_socket_wait(int socket, short events, int64_t deadline)
{
	struct pollfd p = {.fd = socket, .events = events};
	int64_t rest = SL_MAX(deadline - sl_now(), 0);
	struct timespec time = {rest / 1000000000, rest % 1000000000};

	return ppoll(&p, 1, deadline == SL_FOREVER ? NULL : &time, NULL) > 0;
}

int sl_socket_send(int socket, const union sl_message *m, int fd, int64_t deadline)
{
	struct iovec io = {(void *)m, m->head.bytes};
	_Alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {0};
	struct msghdr message = {.msg_iov = &io, .msg_iovlen = 1};
	int flags = MSG_NOSIGNAL | (deadline == SL_FOREVER ? 0 : MSG_DONTWAIT);
	struct cmsghdr *header;
	ssize_t n;

	if (fd >= 0) {
		message.msg_control = control;
		message.msg_controllen = sizeof(control);
		header = CMSG_FIRSTHDR(&message);
		header->cmsg_level = SOL_SOCKET;
		header->cmsg_type = SCM_RIGHTS;
		header->cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(header), &fd, sizeof(int));
	}
	do
		n = sendmsg(socket, &message, flags);
	while (n < 0 &&
	       (errno == EINTR || (errno == EAGAIN && sl_socket_wait(socket, POLLOUT, deadline))));
	return n < 0 ? -errno : 0;
}
