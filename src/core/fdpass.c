/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Passing descriptors
 *
 * Sends and receives messages of Unix sockets that carry descriptors (SCM_RIGHTS), for the clients
 * of the store, the daemon and its supervisor. Any thread.
 */
#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#include "core/core.h"

ssize_t sl_fds_send(int socket, const void *data, size_t bytes, const int *fds, unsigned count,
                    int flags)
{
	struct iovec io = {(void *)data, bytes};
	_Alignas(struct cmsghdr) char control[CMSG_SPACE(SL_FDS_MOST * sizeof(int))] = {0};
	struct msghdr message = {.msg_iov = &io, .msg_iovlen = 1};
	struct cmsghdr *header = (struct cmsghdr *)control;
	ssize_t n;

	if (count) {
		message.msg_control = control;
		message.msg_controllen = CMSG_SPACE(count * sizeof(int));
		header->cmsg_level = SOL_SOCKET;
		header->cmsg_type = SCM_RIGHTS;
		header->cmsg_len = CMSG_LEN(count * sizeof(int));
		memcpy(CMSG_DATA(header), fds, count * sizeof(int));
	}
	do
		n = sendmsg(socket, &message, flags | MSG_NOSIGNAL);
	while (n < 0 && errno == EINTR);
	return n < 0 ? -errno : n;
}

ssize_t sl_fds_receive(int socket, void *data, size_t bytes, int fds[SL_FDS_MOST], int flags,
                       int *cut)
{
	struct iovec io = {data, bytes};
	_Alignas(struct cmsghdr) char control[CMSG_SPACE(SL_FDS_MOST * sizeof(int))];
	struct msghdr message;
	ssize_t n;

	fds[0] = fds[1] = -1;
	*cut = 0;
	do {
		message = (struct msghdr){.msg_iov = &io,
		                          .msg_iovlen = 1,
		                          .msg_control = control,
		                          .msg_controllen = sizeof(control)};
		n = recvmsg(socket, &message, flags | MSG_CMSG_CLOEXEC);
	} while (n < 0 && errno == EINTR);
	if (n < 0)
		return -errno;
	*cut = message.msg_flags & (MSG_TRUNC | MSG_CTRUNC);
	struct cmsghdr *header = CMSG_FIRSTHDR(&message);
	if (header && header->cmsg_level == SOL_SOCKET && header->cmsg_type == SCM_RIGHTS)
		memcpy(fds, CMSG_DATA(header),
		       SL_MIN(header->cmsg_len - CMSG_LEN(0), SL_FDS_MOST * sizeof(int)));
	return n;
}
