/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A slow road to a fast server, for bench/http: passes connections on to another port, each request
 * after LATENCY milliseconds, and PERCENT of them after STALL milliseconds. What a client sends at
 * once is taken for one request. Bodies pass through a pipe without being copied.
 * Usage: relay PORT LATENCY PERCENT STALL; prints the port that it listens on, ends with its input.
 */
#include <arpa/inet.h>
#include <err.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static int port, latency, percent, stall;
static _Atomic unsigned requests;

struct road {
	int client, server;
};

static void sleep_ms(int ms)
{
	struct timespec t = {ms / 1000, ms % 1000 * 1000000L};

	nanosleep(&t, NULL);
}

static void *answers(void *argument)
{
	struct road *road = argument;
	int pipes[2];
	ssize_t n;

	if (pipe(pipes))
		err(1, "pipe");
	fcntl(pipes[1], F_SETPIPE_SZ, 1 << 20);
	while ((n = splice(road->server, NULL, pipes[1], NULL, 1 << 20, SPLICE_F_MOVE)) > 0)
		while (n > 0) {
			ssize_t m = splice(pipes[0], NULL, road->client, NULL, (size_t)n,
			                   SPLICE_F_MOVE);
			if (m <= 0)
				goto out;
			n -= m;
		}
out:
	shutdown(road->client, SHUT_RDWR);
	shutdown(road->server, SHUT_RDWR);
	close(pipes[0]);
	close(pipes[1]);
	return NULL;
}

static void *run(void *argument)
{
	struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
	struct road road = {.client = (int)(long)argument};
	char buffer[65536];
	pthread_t thread;
	int one = 1;
	ssize_t n;

	to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	road.server = socket(AF_INET, SOCK_STREAM, 0);
	if (road.server < 0 || connect(road.server, (struct sockaddr *)&to, sizeof(to)) ||
	    pthread_create(&thread, NULL, answers, &road))
		err(1, "server");
	setsockopt(road.server, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	while ((n = recv(road.client, buffer, sizeof(buffer), 0)) > 0) {
		/* Evenly spread and the same in each run, so that runs can be compared. */
		unsigned i = atomic_fetch_add(&requests, 1);

		sleep_ms(percent && i % (100 / percent) == 50 % (100 / percent) ? stall : latency);
		if (send(road.server, buffer, (size_t)n, MSG_NOSIGNAL) != n)
			break;
	}
	shutdown(road.server, SHUT_RDWR);
	shutdown(road.client, SHUT_RDWR);
	pthread_join(thread, NULL);
	close(road.server);
	close(road.client);
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
	int listener;

	if (argc != 5)
		errx(2, "usage: relay PORT LATENCY PERCENT STALL");
	port = atoi(argv[1]);
	latency = atoi(argv[2]);
	percent = atoi(argv[3]);
	stall = atoi(argv[4]);
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
		if (pthread_create(&thread, NULL, run, (void *)(long)fd))
			close(fd);
		else
			pthread_detach(thread);
	}
}
