/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pairs of a producer and a consumer, each a process. A cycle: the producer begins, copies `bytes` into the memory
 * with one thread and publishes; the consumer, asleep until then, takes it, reads a byte of each page, releases it
 * and says so over a socket; the producer ends it. The way back is the same for all, and bounds what is
 * in flight.
 */
#include "store_bench.h"

#include <err.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAGE = 4096 };

/* What the processes share. */
static struct {
	_Atomic unsigned ready, over; /* processes */
	_Atomic bool go, leave;
	_Atomic int64_t cpu;     /* of all of them, while it went on */
	_Atomic int64_t publish; /* of all cycles: begin, copy, publish */
	_Atomic int64_t end;
	_Atomic unsigned bytes_seen;
	int64_t handed[]; /* of each cycle: from begin until the consumer has seen the bytes */
} * shared;

static const struct way *find_way(void)
{
	const struct way *ways[] = {&way_sluice, &way_socket, &way_memfd, &way_iceoryx,
	                            &way_iceoryx_polled};

	for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++)
		if (ways[i]->name && !strcmp(ways[i]->name, options.way))
			return ways[i];
	errx(2, "way=%s is not built", options.way);
}

/* All processes begin at once; the parent says when. */
static void wait_for_go(void)
{
	atomic_fetch_add(&shared->ready, 1);
	while (!shared->go)
		usleep(200);
}

/* Nobody leaves while others are at it. */
static void wait_for_leave(int64_t cpu)
{
	atomic_fetch_add(&shared->cpu, cpu);
	atomic_fetch_add(&shared->over, 1);
	while (!shared->leave)
		usleep(200);
}

static int64_t read_or_die(int link)
{
	int64_t seen;

	if (recv(link, &seen, sizeof(seen), 0) != sizeof(seen))
		errx(1, "the other side is gone");
	return seen;
}

/* One cycle of each side. */
static void produce_one(const struct way *way, unsigned pair, unsigned number, int link,
                        const char *from)
{
	int64_t begun = now_ns(), published, seen, told;

	memcpy(way->begin(number), from, options.bytes);
	way->publish(number);
	published = now_ns();
	seen = read_or_die(link);
	told = now_ns();
	way->end(number);
	if (!shared->go)
		return;
	atomic_fetch_add(&shared->publish, published - begun);
	atomic_fetch_add(&shared->end, now_ns() - told);
	shared->handed[pair * options.count + number - options.before] = seen - begun;
}

static unsigned consume_one(const struct way *way, unsigned number, int link)
{
	const volatile char *data = way->take(number);
	unsigned sum = 0;
	int64_t seen;

	for (size_t at = 0; at < options.bytes; at += PAGE)
		sum += (unsigned)data[at];
	seen = now_ns();
	way->release(number);
	if (send(link, &seen, sizeof(seen), MSG_NOSIGNAL) != sizeof(seen))
		errx(1, "the other side is gone");
	return sum;
}

/* What was never touched is touched before the clock starts. */
static void produce(const struct way *way, unsigned pair, int link, const char *from)
{
	unsigned i = 0;
	int64_t cpu;

	way->produce_open(pair);
	while (way->there && !way->there())
		usleep(1000);
	while (i < options.before)
		produce_one(way, pair, i++, link, from);
	wait_for_go();
	cpu = cpu_ns();
	while (i < options.before + options.count)
		produce_one(way, pair, i++, link, from);
	wait_for_leave(cpu_ns() - cpu);
	way->produce_close();
}

static void consume(const struct way *way, unsigned pair, int link)
{
	unsigned sum = 0, i = 0;
	int64_t cpu;

	way->consume_open(pair);
	while (i < options.before)
		consume_one(way, i++, link);
	wait_for_go();
	cpu = cpu_ns();
	while (i < options.before + options.count)
		sum += consume_one(way, i++, link);
	atomic_fetch_add(&shared->bytes_seen, sum);
	wait_for_leave(cpu_ns() - cpu);
	way->consume_close();
}

static void start_pair(const struct way *way, unsigned pair, const char *from)
{
	int link[2];

	if (socketpair(AF_UNIX, SOCK_SEQPACKET, 0, link))
		err(1, "socketpair");
	if (way->prepare)
		way->prepare(pair);
	for (unsigned side = 0; side < 2; side++) {
		pid_t parent = getpid(), child = fork();

		if (child < 0)
			err(1, "fork");
		if (child)
			continue;
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (getppid() != parent)
			_exit(1);
		close(link[!side]);
		if (side)
			consume(way, pair, link[1]);
		else
			produce(way, pair, link[0], from);
		exit(0);
	}
	close(link[0]);
	close(link[1]);
}

/* All of them, or the end of one that has failed. */
static void wait_for(const _Atomic unsigned *number)
{
	int status;

	while (*number < 2 * options.pairs) {
		if (waitpid(-1, &status, WNOHANG) > 0)
			errx(1, "a producer or a consumer has failed");
		usleep(100);
	}
}

static int compare(const void *a, const void *b)
{
	int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

	return x < y ? -1 : x > y;
}

void run_cycle(void)
{
	size_t all = (size_t)options.count * options.pairs;
	const struct way *way = find_way();
	const char *from = warm_memory(options.bytes);
	double cycles = (double)all;
	int64_t begun, daemons, took;
	int status;

	shared = mmap(NULL, sizeof(*shared) + all * sizeof(shared->handed[0]),
	              PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (shared == MAP_FAILED)
		err(1, "mmap");
	for (unsigned i = 0; i < options.pairs; i++)
		start_pair(way, i, from);
	wait_for(&shared->ready);
	daemons = others_ns(options.daemons);
	begun = now_ns();
	shared->go = true;
	wait_for(&shared->over);
	took = now_ns() - begun;
	daemons = others_ns(options.daemons) - daemons;
	shared->leave = true;
	while (wait(&status) > 0)
		if (status)
			errx(1, "a producer or a consumer has failed");
	/* Each page has a 1 in it. */
	if (shared->bytes_seen != (unsigned)(cycles * (double)((options.bytes + PAGE - 1) / PAGE)))
		errx(1, "consumers have not seen what producers wrote");
	qsort(shared->handed, all, sizeof(shared->handed[0]), compare);
	printf("{\"p50\": %.9f, \"p99\": %.9f, \"seconds\": %.9f, \"cpu_seconds\": %.9f, "
	       "\"daemon_seconds\": %.9f, "
	       "\"publish\": %.9f, \"end\": %.9f, \"cycles\": %.0f}\n",
	       (double)shared->handed[all / 2] / 1e9, (double)shared->handed[all * 99 / 100] / 1e9,
	       (double)took / 1e9, (double)(shared->cpu + daemons) / 1e9, (double)daemons / 1e9,
	       (double)shared->publish / 1e9, (double)shared->end / 1e9, cycles);
}
