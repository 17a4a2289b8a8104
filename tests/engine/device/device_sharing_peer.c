/* SPDX-License-Identifier: Apache-2.0 */
#include "device/device_sharing_peer.h"

#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/core.h"

struct sl_device *device_of(int which)
{
	return sl_device_find((unsigned)gpu_device(which));
}

int put_pattern(void *memory, size_t length, uint64_t seed)
{
	unsigned char *bytes = malloc(length);
	int rc;

	pattern_fill(bytes, length, 0, seed);
	rc = sluice_copy(memory, bytes, length);
	free(bytes);
	return rc;
}

int check_pattern(const void *memory, size_t length, uint64_t seed)
{
	unsigned char *bytes = malloc(length);
	int rc;

	memset(bytes, 0, length);
	rc = sluice_copy(bytes, memory, length);
	if (!rc && pattern_match(bytes, length, 0, seed) != length)
		rc = -EIO;
	free(bytes);
	return rc;
}

/* ---------------------------------------------------------------------------------- messages */

static int send_message(int socket, const struct peer_message *message, int fd)
{
	ssize_t n = sl_fds_send(socket, message, sizeof(*message), &fd, fd >= 0, 0);

	return n == (ssize_t)sizeof(*message) ? 0 : -EPIPE;
}

static int receive_message(int socket, struct peer_message *message, int *fd)
{
	int fds[SL_FDS_MOST], cut_off;
	ssize_t n = sl_fds_receive(socket, message, sizeof(*message), fds, 0, &cut_off);

	*fd = fds[0];
	return n == (ssize_t)sizeof(*message) ? 0 : -EPIPE;
}

/* ------------------------------------------------------------------------- the other process */

static struct {
	void *memory;
	enum { NONE, MADE, ALLOCATED, BORROWED } how;
	size_t length;
} its;

static int make(struct sl_device *device, const struct peer_message *message, int *fd)
{
	int rc = device->sharing->make(device, message->length, &its.memory, fd);

	its.how = MADE;
	its.length = message->length;
	return rc ? rc : put_pattern(its.memory, message->length, message->seed);
}

static int read_it(struct sl_device *device, const struct peer_message *message, int fd)
{
	void *memory;
	int rc = device->sharing->map(device, fd, message->length, device, NULL, &memory), unmapped;

	if (rc)
		return rc;
	rc = check_pattern(memory, message->length, message->seed);
	unmapped = device->sharing->unmap(device, memory, message->length);
	return rc ? rc : unmapped;
}

static int let_go(struct sl_device *device)
{
	switch (its.how) {
	case MADE:
		return device->sharing->unmap(device, its.memory, its.length);
	case ALLOCATED:
		return sluice_device_free(its.memory);
	case BORROWED:
		return device->sharing->give_back(device, its.memory);
	default:
		return -EINVAL;
	}
}

static int obey(struct sl_device *device, struct peer_message *message, int *fd)
{
	int rc;

	switch (message->order) {
	case PEER_MAKE:
		return make(device, message, fd);
	case PEER_READ:
		rc = read_it(device, message, *fd);
		close(*fd);
		*fd = -1;
		return rc;
	case PEER_ALLOC:
		its.how = ALLOCATED;
		rc = sluice_device_alloc(gpu_device(0), message->length, &its.memory);
		return rc ? rc : put_pattern(its.memory, message->length, message->seed);
	case PEER_LEND:
		return device->sharing->lend(device, (char *)its.memory + message->offset,
		                             &message->lent);
	case PEER_BORROW:
		its.how = BORROWED;
		rc = device->sharing->borrow(device, &message->lent, &its.memory);
		return rc ? rc : check_pattern(its.memory, message->length, message->seed);
	case PEER_CHECK:
		return check_pattern(its.memory, message->length, message->seed);
	case PEER_WRITE:
		return put_pattern(its.memory, message->length, message->seed);
	case PEER_FREE:
		return let_go(device);
	}
	return -EINVAL;
}

void peer_main(int argc, char **argv)
{
	struct peer_message message;
	int socket, fd;

	if (argc != 3 || strcmp(argv[1], "peer"))
		return;
	socket = atoi(argv[2]);
	if (gpu_open(NULL))
		_exit(1);
	while (!receive_message(socket, &message, &fd)) {
		message.rc = obey(device_of(0), &message, &fd);
		if (send_message(socket, &message, fd))
			break;
		if (fd >= 0)
			close(fd);
	}
	_exit(0);
}

/* ----------------------------------------------------------------------------------- this one */

void peer_start(struct peer *peer)
{
	int sockets[2];
	char number[16];

	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets), 0);
	peer->socket = sockets[0];
	peer->pid = fork();
	assert_true(peer->pid >= 0);
	if (!peer->pid) {
		int kept = dup(sockets[1]); /* without CLOEXEC */

		snprintf(number, sizeof(number), "%d", kept);
		execl("/proc/self/exe", "peer", "peer", number, NULL);
		_exit(127);
	}
	close(sockets[1]);
}

int peer_do(struct peer *peer, struct peer_message *message, int *fd)
{
	int none = -1;

	if (!fd)
		fd = &none;
	assert_int_equal(send_message(peer->socket, message, *fd), 0);
	if (receive_message(peer->socket, message, fd))
		fail_msg("the other process has ended");
	return message->rc;
}

void peer_end(struct peer *peer)
{
	int status;

	close(peer->socket);
	assert_int_equal(waitpid(peer->pid, &status, 0), peer->pid);
	assert_int_equal(status, 0);
}

void peer_kill(struct peer *peer)
{
	kill(peer->pid, SIGKILL);
	waitpid(peer->pid, NULL, 0);
	close(peer->socket);
}
