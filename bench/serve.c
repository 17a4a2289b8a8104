/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A server for bench/device where there is no nginx: one file, whole or in ranges, over connections that
 * are kept; a thread for each, and sendfile(). Usage: serve FILE; prints the port that it listens on, ends
 * with its input.
 */
#include <arpa/inet.h>
#include <err.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

static int file;
static unsigned long long size;

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

static int answer(int fd, const char *request)
{
	const char *range = strcasestr(request, "\nrange: bytes=");
	unsigned long long first = 0, last = size - 1;
	char head[400];
	off_t at;
	int n;

	if (range && sscanf(range + 14, "%llu-%llu", &first, &last) < 1)
		return -1;
	if (last >= size)
		last = size - 1;
	n = snprintf(
		head, sizeof(head),
		"HTTP/1.1 %s\r\nETag: \"1\"\r\nAccept-Ranges: bytes\r\nContent-Length: %llu\r\n",
		range ? "206 Partial Content" : "200 OK", last - first + 1);
	if (range)
		n += snprintf(head + n, sizeof(head) - (size_t)n,
		              "Content-Range: bytes %llu-%llu/%llu\r\n", first, last, size);
	n += snprintf(head + n, sizeof(head) - (size_t)n, "\r\n");
	if (send_all(fd, head, (size_t)n, MSG_MORE))
		return -1;
	if (!strncmp(request, "HEAD", 4))
		return 0;
	for (at = (off_t)first; at <= (off_t)last;)
		if (sendfile(fd, file, &at, (size_t)(last + 1 - (unsigned long long)at)) <= 0)
			return -1;
	return 0;
}

static void *serve(void *argument)
{
	int fd = (int)(long)argument, one = 1;
	char buffer[8192];
	size_t have = 0;
	char *end;

	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	for (;;) {
		ssize_t n = recv(fd, buffer + have, sizeof(buffer) - 1 - have, 0);

		if (n <= 0)
			break;
		have += (size_t)n;
		buffer[have] = '\0';
		end = strstr(buffer, "\r\n\r\n");
		if (!end)
			continue;
		if (answer(fd, buffer))
			break;
		have -= (size_t)(end + 4 - buffer);
		memmove(buffer, end + 4, have);
	}
	close(fd);
	return NULL;
}

static void *until_input_ends(void *unused)
{
	char byte;

	while (read(STDIN_FILENO, &byte, 1) > 0)
		;
	exit(0);
	return unused;
}

int main(int argc, char **argv)
{
	struct sockaddr_in at = {.sin_family = AF_INET};
	socklen_t length = sizeof(at);
	pthread_t thread;
	struct stat st;
	int listener;

	if (argc != 2)
		errx(2, "usage: serve FILE");
	file = open(argv[1], O_RDONLY);
	if (file < 0 || fstat(file, &st) || !st.st_size)
		err(1, "%s", argv[1]);
	size = (unsigned long long)st.st_size;
	signal(SIGPIPE, SIG_IGN);
	at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	listener = socket(AF_INET, SOCK_STREAM, 0);
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
