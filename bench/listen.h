/* SPDX-License-Identifier: Apache-2.0 */
/* A server on loopback with a thread for each connection, for programs of a single file. */
#ifndef BENCH_LISTEN_H
#define BENCH_LISTEN_H

#include <arpa/inet.h>
#include <err.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

static int send_all(int fd, const char *data, size_t length, int flags)
{
	while (length) {
		ssize_t n = send(fd, data, length, flags | MSG_NOSIGNAL);

		if (n <= 0)
			return -1;
		data += n;
		length -= (size_t)n;
	}
	return 0;
}

static void *until_input_ends(void *unused)
{
	char byte;

	while (read(STDIN_FILENO, &byte, 1) > 0)
		;
	exit(0);
	return unused;
}

/* Prints the port that it listens on; serve() gets the descriptor of each connection. Ends with the input of the program. */
static void listen_for_all(void *(*serve)(void *))
{
	struct sockaddr_in at = {.sin_family = AF_INET};
	socklen_t length = sizeof(at);
	int listener = socket(AF_INET, SOCK_STREAM, 0);
	pthread_t thread;

	signal(SIGPIPE, SIG_IGN);
	at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	if (listener < 0 || bind(listener, (struct sockaddr *)&at, sizeof(at)) ||
	    listen(listener, 512) || getsockname(listener, (struct sockaddr *)&at, &length))
		err(1, "listen");
	printf("%d\n", ntohs(at.sin_port));
	fflush(stdout);
	pthread_create(&thread, NULL, until_input_ends, NULL);
	for (;;) {
		int fd = accept(listener, NULL, NULL);

		if (fd < 0)
			continue;
		if (pthread_create(&thread, NULL, serve, (void *)(long)fd))
			close(fd);
		else
			pthread_detach(thread);
	}
}

#endif
