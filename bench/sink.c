/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The limit that bench/http compares with: what recv() alone can take from a server. Each connection
 * is a thread that asks for ranges of one object and receives them into one buffer, over and over;
 * the bytes are counted and forgotten. Usage: sink PORT PATH SIZE RANGE CONNECTIONS LOOPS
 */
#include <arpa/inet.h>
#include <err.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define BUFFER      ((size_t)256 << 10)
#define CONNECTIONS 256

static int port;
static const char *path;
static unsigned long long size, range, total;
static _Atomic unsigned long long next;

static int dial(void)
{
	struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	if (fd < 0 || connect(fd, (struct sockaddr *)&to, sizeof(to)))
		err(1, "connect");
	return fd;
}

/* Receives one answer; its body has `length` bytes. */
static void take(int fd, char *buffer, unsigned long long length)
{
	size_t have = 0;
	char *end = NULL;

	while (!end) {
		ssize_t n = recv(fd, buffer + have, BUFFER - 1 - have, 0);

		if (n <= 0)
			err(1, "recv");
		have += (size_t)n;
		buffer[have] = '\0';
		end = strstr(buffer, "\r\n\r\n");
	}
	if (strncmp(buffer, "HTTP/1.1 206", 12))
		errx(1, "answer: %.40s", buffer);
	have -= (size_t)(end + 4 - buffer);
	while (have < length) {
		ssize_t n = recv(fd, buffer, length - have < BUFFER ? length - have : BUFFER, 0);

		if (n <= 0)
			err(1, "recv");
		have += (size_t)n;
	}
}

static void *run(void *unused)
{
	char *buffer = malloc(BUFFER), request[512];
	int fd = dial();

	if (!buffer)
		err(1, "malloc");
	for (;;) {
		unsigned long long at = atomic_fetch_add(&next, range), from = at % size;
		unsigned long long length = size - from < range ? size - from : range;
		int n;

		if (at >= total)
			break;
		n = snprintf(request, sizeof(request),
		             "GET %s HTTP/1.1\r\nHost: 127.0.0.1\r\nRange: bytes=%llu-%llu\r\n\r\n",
		             path, from, from + length - 1);
		if (send(fd, request, (size_t)n, 0) != n)
			err(1, "send");
		take(fd, buffer, length);
	}
	close(fd);
	free(buffer);
	return unused;
}

int main(int argc, char **argv)
{
	pthread_t threads[CONNECTIONS];
	struct timespec start, end;
	struct rusage usage;
	int connections;

	if (argc != 7)
		errx(2, "usage: sink PORT PATH SIZE RANGE CONNECTIONS LOOPS");
	port = atoi(argv[1]);
	path = argv[2];
	size = strtoull(argv[3], NULL, 10);
	range = strtoull(argv[4], NULL, 10);
	connections = atoi(argv[5]);
	total = size * strtoull(argv[6], NULL, 10);
	if (connections < 1 || connections > CONNECTIONS || !range || size % range)
		errx(2, "1 to %d connections, and a size that is a multiple of the range",
		     CONNECTIONS);
	clock_gettime(CLOCK_MONOTONIC, &start);
	for (int i = 0; i < connections; i++)
		if (pthread_create(&threads[i], NULL, run, NULL))
			errx(1, "pthread_create");
	for (int i = 0; i < connections; i++)
		pthread_join(threads[i], NULL);
	clock_gettime(CLOCK_MONOTONIC, &end);
	getrusage(RUSAGE_SELF, &usage);
	printf("{\"bytes\": %llu, \"seconds\": %.6f, \"cpu_seconds\": %.6f}\n", total,
	       (double)(end.tv_sec - start.tv_sec) + (double)(end.tv_nsec - start.tv_nsec) / 1e9,
	       (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
	               (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6);
	return 0;
}
