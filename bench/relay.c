/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A long road to a fast server, for bench/http
 *
 * Passes TCP connections on to another port of this machine. Each direction of a connection is a line
 * that takes RATE bytes a second (0: all that come) and delivers a byte half of LATENCY milliseconds
 * later; connecting costs LATENCY as well, by which the first bytes of the client are late. Of EVERY
 * requests (0: of none) the answer of one, which SEED decides, stands still for STALL milliseconds, at its
 * begin or behind its first 64 KiB. Bytes that follow an answer on their connection are a request, which
 * is right for HTTP/1.1 without TLS. There is no congestion window, no slow start and no loss: see lossy.c.
 *
 * Bytes wait in pipes and are never copied. A line has at most SPARE pipes more than it needs for RATE
 * times its delay, and lines share the pipes that are free. A line without RATE is taken for a line of
 * FASTEST bytes a second, so that it has a bound, too: with 100 ms 25 MB and 64 pipes of 1 MiB in each
 * direction of a connection. These are the pages of the server's file if it uses sendfile(), and cost no
 * memory then. Where no further descriptors are to be had, a line takes no bytes for a while.
 *
 * Usage: relay PORT LATENCY RATE EVERY STALL SEED. Prints the port that it listens on; for each line of
 * its input prints what passed since the line before, and begins with the first request again. Ends with
 * its input.
 *
 * Threads: main() accepts; a thread for each core drives the connections that it was given, by epoll.
 */
#include <arpa/inet.h>
#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/param.h>
#include <sys/queue.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum {
	WORKERS = 64,
	EVENTS = 64,
	PIPE = 1 << 20,     /* bytes */
	SPARE = 64,         /* pipes; for bytes that come in small portions */
	SWEEPS = 8,         /* of a line before it is the turn of the others */
	TICK = 200000,      /* ns; a line delivers at multiples of it, if it has a delay */
	MIDDLE = 64 << 10,  /* bytes of an answer before a stall that is not at its begin */
	FASTEST = 500000000 /* bytes a second */
};

/* Bytes that are delivered together, in a pipe. */
struct chunk {
	STAILQ_ENTRY(chunk) next;
	int64_t due;
	size_t left;
	int pipe[2];
};

STAILQ_HEAD(chunks, chunk);

struct line {
	struct road *road;
	struct line *back; /* the other direction */
	int from, to;
	bool readable, writable, ended;
	int64_t free_at; /* when it has taken all bytes that it was given */
	struct chunks chunks;
	unsigned held;
	int64_t wake; /* 0: it does not wait for a time */
	TAILQ_ENTRY(line) others;
};

struct road {
	struct worker *worker;
	struct line up, down; /* from the client, from the server */
	bool answered;        /* since the last request */
	bool stall;
	size_t stall_at, answer; /* bytes */
	bool over;
	struct road *next_over;
};

struct worker {
	int epoll, inbox[2];
	TAILQ_HEAD(lines, line) waiting; /* by time */
	struct chunks unused;
	struct road *over;
};

static int port;
static int64_t delay, stall; /* ns */
static uint64_t rate, every, seed;
static size_t step;        /* bytes of a chunk at most */
static unsigned most_held; /* chunks of a line */
static struct worker workers[WORKERS];
static _Atomic uint64_t requests, stalls, connections, now_open, most_open, bytes_down;

static int64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000L + t.tv_nsec;
}

static uint64_t mix(uint64_t x)
{
	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
	x = (x ^ x >> 27) * 0x94d049bb133111eb;
	return x ^ x >> 31;
}

static void wait_until(struct line *l, int64_t wake)
{
	struct lines *waiting = &l->road->worker->waiting;
	struct line *before;

	if (l->wake)
		TAILQ_REMOVE(waiting, l, others);
	l->wake = wake;
	TAILQ_FOREACH_REVERSE(before, waiting, lines, others)
	if (before->wake <= wake)
		break;
	if (before)
		TAILQ_INSERT_AFTER(waiting, before, l, others);
	else
		TAILQ_INSERT_HEAD(waiting, l, others);
}

static void request_begins(struct road *road)
{
	uint64_t i = atomic_fetch_add(&requests, 1);

	road->answered = false;
	road->answer = 0;
	road->stall = i % every == mix(seed + i / every) % every;
	road->stall_at = i / every % 2 ? MIDDLE : 0;
}

/* Returns an empty chunk, or NULL if there are no more descriptors. */
static struct chunk *chunk_new(struct worker *w)
{
	struct chunk *c = STAILQ_FIRST(&w->unused);

	if (c) {
		STAILQ_REMOVE_HEAD(&w->unused, next);
		return c;
	}
	c = calloc(1, sizeof(*c));
	if (!c || pipe2(c->pipe, O_NONBLOCK)) {
		free(c);
		return NULL;
	}
	fcntl(c->pipe[0], F_SETPIPE_SZ, PIPE);
	return c;
}

static void chunk_free(struct worker *w, struct chunk *c)
{
	STAILQ_INSERT_HEAD(&w->unused, c, next);
}

/* Puts a chunk of n bytes at the end of the line; it is delivered when its first byte has come through. */
static void line_append(struct line *l, struct chunk *c, size_t n, int64_t now)
{
	int64_t begin = MAX(l->free_at, now);

	l->free_at = begin + (rate ? (int64_t)(n * 1000000000 / rate) : 0);
	c->due = begin + delay;
	if (c->due > now)
		c->due += TICK - c->due % TICK;
	c->left = n;
	STAILQ_INSERT_TAIL(&l->chunks, c, next);
	l->held++;
}

/* Counts a request or an answer by n more bytes of it; an answer may stand still. */
static void road_passes(struct road *road, struct line *l, size_t n, int64_t now)
{
	if (l == &road->up) {
		if (road->answered)
			request_begins(road);
		return;
	}
	road->answered = true;
	atomic_fetch_add_explicit(&bytes_down, n, memory_order_relaxed);
	if (road->stall && road->answer >= road->stall_at) {
		road->stall = false;
		atomic_fetch_add(&stalls, 1);
		l->free_at = MAX(l->free_at, now) + stall;
	}
	road->answer += n;
}

/* Returns the bytes that the line took, or -1 if its connection is of no more use. */
static ssize_t line_take(struct line *l, int64_t now)
{
	struct road *road = l->road;
	size_t most = step;
	struct chunk *c;
	ssize_t n;

	if (!l->readable || l->ended || l->held == most_held)
		return 0;
	if (l == &road->down && road->stall && road->answer < road->stall_at)
		most = MIN(most, road->stall_at - road->answer);
	c = chunk_new(road->worker);
	if (!c) {
		wait_until(l, now + TICK);
		return 0;
	}
	n = splice(l->from, NULL, c->pipe[1], NULL, most, SPLICE_F_MOVE | SPLICE_F_NONBLOCK);
	if (n > 0) {
		road_passes(road, l, (size_t)n, now);
		line_append(l, c, (size_t)n, now);
		return n;
	}
	chunk_free(road->worker, c);
	l->readable = false;
	if (n < 0)
		return errno == EAGAIN ? 0 : -1;
	l->ended = true;
	return l == &road->up ? -1 : 0;
}

static ssize_t line_deliver(struct line *l, int64_t now)
{
	struct chunk *c = STAILQ_FIRST(&l->chunks);
	ssize_t n;

	if (!c || !l->writable || c->due > now)
		return 0;
	n = splice(c->pipe[0], NULL, l->to, NULL, c->left, SPLICE_F_MOVE | SPLICE_F_NONBLOCK);
	if (n < 0) {
		l->writable = false;
		return errno == EAGAIN ? 0 : -1;
	}
	c->left -= (size_t)n;
	if (!c->left) {
		STAILQ_REMOVE_HEAD(&l->chunks, next);
		l->held--;
		chunk_free(l->road->worker, c);
	}
	return n;
}

/* Returns whether the connection goes on. */
static bool line_move(struct line *l)
{
	for (int i = 0; i < SWEEPS; i++) {
		int64_t now = now_ns();
		ssize_t in = line_take(l, now), out = line_deliver(l, now);

		if (in < 0 || out < 0 || (l->ended && !l->held))
			return false;
		if (!in && !out) {
			if (l->held && STAILQ_FIRST(&l->chunks)->due > now)
				wait_until(l, STAILQ_FIRST(&l->chunks)->due);
			return true;
		}
	}
	wait_until(l, now_ns());
	return true;
}

static void line_close(struct line *l)
{
	if (l->wake)
		TAILQ_REMOVE(&l->road->worker->waiting, l, others);
	while (l->held--) {
		struct chunk *c = STAILQ_FIRST(&l->chunks);

		/* What it holds goes with it. */
		STAILQ_REMOVE_HEAD(&l->chunks, next);
		close(c->pipe[0]);
		close(c->pipe[1]);
		free(c);
	}
	close(l->from);
}

static void road_move(struct road *road)
{
	if (road->over || (line_move(&road->up) && line_move(&road->down)))
		return;
	line_close(&road->up);
	line_close(&road->down);
	road->over = true;
	road->next_over = road->worker->over;
	road->worker->over = road;
	atomic_fetch_sub(&now_open, 1);
}

static void line_open(struct line *l, struct road *road, struct line *back, int from, int to)
{
	*l = (struct line){.road = road, .back = back, .from = from, .to = to};
	STAILQ_INIT(&l->chunks);
}

static void add(int epoll, int fd, void *data, uint32_t events)
{
	struct epoll_event event = {.events = events, .data.ptr = data};

	if (epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event))
		err(1, "epoll");
}

/* Takes over a connection that main() put into the inbox. */
static void road_begin(struct worker *w)
{
	uint32_t events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET;
	struct road *road;

	if (read(w->inbox[0], &road, sizeof(void *)) != sizeof(void *))
		return;
	road->worker = w;
	add(w->epoll, road->up.from, &road->up, events);
	add(w->epoll, road->down.from, &road->down, events);
}

static void *worker_run(void *argument)
{
	struct worker *w = argument;
	struct epoll_event events[EVENTS];

	for (;;) {
		struct line *l = TAILQ_FIRST(&w->waiting);
		int64_t left = l ? MAX(0, l->wake - now_ns()) : 0;
		struct timespec timeout = {left / 1000000000, left % 1000000000};
		int n = epoll_pwait2(w->epoll, events, EVENTS, l ? &timeout : NULL, NULL);

		for (int i = 0; i < n; i++) {
			l = events[i].data.ptr;
			if (!l) {
				road_begin(w);
				continue;
			}
			l->readable |= (events[i].events & ~(uint32_t)EPOLLOUT) != 0;
			l->back->writable |= (events[i].events & EPOLLOUT) != 0;
			road_move(l->road);
		}
		for (int64_t now = now_ns(); (l = TAILQ_FIRST(&w->waiting)) && l->wake <= now;) {
			TAILQ_REMOVE(&w->waiting, l, others);
			l->wake = 0;
			road_move(l->road);
		}
		while (w->over) {
			struct road *road = w->over;

			w->over = road->next_over;
			free(road);
		}
	}
	return NULL;
}

static int dial(void)
{
	struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	if (fd < 0 || connect(fd, (struct sockaddr *)&to, sizeof(to)))
		err(1, "connect");
	return fd;
}

/* Connects to the server and hands the connection to a worker. */
static void road_open(int client, struct worker *w)
{
	struct road *road = calloc(1, sizeof(*road));
	int server = dial(), one = 1;

	setsockopt(client, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	setsockopt(server, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	fcntl(client, F_SETFL, O_NONBLOCK);
	fcntl(server, F_SETFL, O_NONBLOCK);
	if (!road)
		err(1, "connection");
	line_open(&road->up, road, &road->down, client, server);
	line_open(&road->down, road, &road->up, server, client);
	road->answered = true;
	/* The client believes that it is connected, and could not know before. */
	road->up.free_at = now_ns() + 2 * delay;
	atomic_fetch_add(&connections, 1);
	if (atomic_fetch_add(&now_open, 1) + 1 > most_open)
		most_open = now_open;
	if (write(w->inbox[1], &road, sizeof(void *)) != sizeof(void *))
		err(1, "inbox");
}

static void *answer_input(void *unused)
{
	char byte;

	while (read(STDIN_FILENO, &byte, 1) > 0) {
		printf("{\"requests\": %ju, \"stalls\": %ju, \"connections\": %ju, \"most_open\": "
		       "%ju, "
		       "\"bytes\": %ju}\n",
		       (uintmax_t)atomic_exchange(&requests, 0),
		       (uintmax_t)atomic_exchange(&stalls, 0),
		       (uintmax_t)atomic_exchange(&connections, 0),
		       (uintmax_t)atomic_exchange(&most_open, 0),
		       (uintmax_t)atomic_exchange(&bytes_down, 0));
		fflush(stdout);
	}
	exit(0);
	return unused;
}

static int listen_somewhere(void)
{
	struct sockaddr_in at = {.sin_family = AF_INET};
	socklen_t length = sizeof(at);
	int listener = socket(AF_INET, SOCK_STREAM, 0);

	at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	if (listener < 0 || bind(listener, (struct sockaddr *)&at, sizeof(at)) ||
	    listen(listener, 1024) || getsockname(listener, (struct sockaddr *)&at, &length))
		err(1, "listen");
	printf("%d\n", ntohs(at.sin_port));
	fflush(stdout);
	return listener;
}

static void start(struct worker *w)
{
	pthread_t thread;

	TAILQ_INIT(&w->waiting);
	STAILQ_INIT(&w->unused);
	w->epoll = epoll_create1(0);
	if (w->epoll < 0 || pipe(w->inbox) || pthread_create(&thread, NULL, worker_run, w))
		err(1, "thread");
	add(w->epoll, w->inbox[0], NULL, EPOLLIN);
}

int main(int argc, char **argv)
{
	struct rlimit limit;
	pthread_t thread;
	int listener;
	long count = MIN(sysconf(_SC_NPROCESSORS_ONLN), WORKERS);

	if (argc != 7)
		errx(2, "usage: relay PORT LATENCY RATE EVERY STALL SEED");
	port = atoi(argv[1]);
	delay = (int64_t)(atof(argv[2]) * 1e6 / 2);
	rate = strtoull(argv[3], NULL, 10);
	every = strtoull(argv[4], NULL, 10);
	every = every ? every : UINT64_MAX;
	stall = atoll(argv[5]) * 1000000;
	seed = strtoull(argv[6], NULL, 10);
	step = rate ? MIN(MAX(rate / 500, 1 << 14), PIPE) : PIPE;
	most_held =
		(unsigned)((double)(rate ? rate : FASTEST) * (double)delay / 1e9 / (double)step) +
		SPARE;
	getrlimit(RLIMIT_NOFILE, &limit);
	limit.rlim_cur = limit.rlim_max;
	setrlimit(RLIMIT_NOFILE, &limit);
	signal(SIGPIPE, SIG_IGN);
	listener = listen_somewhere();
	pthread_create(&thread, NULL, answer_input, NULL);
	for (long i = 0; i < count; i++)
		start(&workers[i]);
	for (unsigned i = 0;; i++) {
		int fd = accept(listener, NULL, NULL);

		if (fd >= 0)
			road_open(fd, &workers[i % (unsigned)count]);
	}
}
