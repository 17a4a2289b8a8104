/* SPDX-License-Identifier: Apache-2.0 */
/* The server's end of the process that spills. Nothing here waits for it. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "sluiced/spill.h"

int sl_spiller_start(struct sl_server *server)
{
	struct sl_spill *spill = server->spill;
	struct epoll_event event = {.events = EPOLLIN, .data.ptr = &spill->source};
	pid_t parent;
	int pair[2];

	/* Those before; one that is still dying, the next time. The server has no other children that last. */
	while (waitpid(-1, NULL, WNOHANG) > 0)
		;
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair))
		return sl_fail(-errno, "cannot make a pair of sockets: %s", sl_error_text(-errno));
	parent = getpid();
	spill->pid = fork();
	if (!spill->pid) {
		prctl(PR_SET_NAME, "sluiced-spill");
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (getppid() != parent)
			_exit(0);
		/* Memory that the server gives up is not to be kept here. */
		if (dup2(pair[1], 3) != 3)
			_exit(EXIT_FAILURE);
		fcntl(3, F_SETFD, FD_CLOEXEC);
		close_range(4, ~0U, 0);
		sl_spiller_run(3, server->settings->spill);
	}
	close(pair[1]);
	if (spill->pid < 0) {
		spill->pid = 0;
		close(pair[0]);
		return sl_fail(-errno, "cannot make a process to spill: %s", sl_error_text(-errno));
	}
	if (epoll_ctl(server->epoll, EPOLL_CTL_ADD, pair[0], &event)) {
		int error = errno;

		/* It ends with the other end of its socket. */
		close(pair[0]);
		return sl_fail(-error, "cannot watch a descriptor: %s", sl_error_text(-error));
	}
	spill->socket = pair[0];
	return 0;
}

int sl_spiller_send(struct sl_server *server, const struct sl_job *job, const int *fds,
                    unsigned count)
{
	struct iovec io = {(void *)job, sizeof(*job)};
	_Alignas(struct cmsghdr) char control[CMSG_SPACE(2 * sizeof(int))] = {0};
	struct msghdr message = {.msg_iov = &io,
	                         .msg_iovlen = 1,
	                         .msg_control = control,
	                         .msg_controllen = CMSG_SPACE(count * sizeof(int))};
	struct cmsghdr *header = (struct cmsghdr *)control;
	ssize_t n;

	header->cmsg_level = SOL_SOCKET;
	header->cmsg_type = SCM_RIGHTS;
	header->cmsg_len = CMSG_LEN(count * sizeof(int));
	memcpy(CMSG_DATA(header), fds, count * sizeof(int));
	do
		n = sendmsg(server->spill->socket, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
	while (n < 0 && errno == EINTR);
	server->spill->deaf = n < 0 && (errno == EPIPE || errno == ECONNRESET || errno == EAGAIN);
	if (n >= 0)
		return 0;
	return sl_fail(server->spill->deaf ? -EINPROGRESS : -errno,
	               "cannot ask the process that spills: %s", sl_error_text(-errno));
}

static void lost(struct sl_server *server)
{
	struct sl_spill *spill = server->spill;

	epoll_ctl(server->epoll, EPOLL_CTL_DEL, spill->socket, NULL);
	close(spill->socket);
	spill->socket = -1;
	spill->deaf = false;
	spill->deaths++;
	if (spill->pid > 0)
		kill(spill->pid, SIGKILL);
	sl_spill_lost(server);
}

void sl_spiller_event(struct sl_server *server)
{
	struct sl_job_done done;
	struct iovec io = {&done, sizeof(done)};
	_Alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof(int))];
	struct cmsghdr *header;
	ssize_t n;
	int fd;

	do {
		struct msghdr message = {.msg_iov = &io,
		                         .msg_iovlen = 1,
		                         .msg_control = control,
		                         .msg_controllen = sizeof(control)};

		n = recvmsg(server->spill->socket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
		if (n != sizeof(done))
			break;
		fd = -1;
		header = CMSG_FIRSTHDR(&message);
		if (header && header->cmsg_type == SCM_RIGHTS)
			memcpy(&fd, CMSG_DATA(header), sizeof(fd));
		done.text[sizeof(done.text) - 1] = '\0';
		sl_spill_done(server, done.number, done.error, done.text, fd);
	} while (true);
	if (n >= 0 || (errno != EAGAIN && errno != EINTR))
		lost(server);
}
