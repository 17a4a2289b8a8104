/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A server for bench/device where there is no nginx: one file, whole or in ranges, over connections that
 * are kept; a thread for each, and sendfile(). Usage: serve FILE; prints the port that it listens on, ends
 * with its input.
 */
#include <fcntl.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/stat.h>

#include "listen.h"

static int file;
static unsigned long long size;

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

int main(int argc, char **argv)
{
	struct stat st;

	if (argc != 2)
		errx(2, "usage: serve FILE");
	file = open(argv[1], O_RDONLY);
	if (file < 0 || fstat(file, &st) || !st.st_size)
		err(1, "%s", argv[1]);
	size = (unsigned long long)st.st_size;
	listen_for_all(serve);
}
