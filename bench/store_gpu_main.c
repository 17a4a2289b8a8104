/* SPDX-License-Identifier: Apache-2.0 */
/*
 * usage: bench_store_gpu DEVICE BYTES; BYTES is of the largest memory. The daemon is at SLUICE_STORE. Jobs on standard
 * input, "VERB name=value ...", one JSON object for each:
 *
 *   cycle way= bytes= count= again=   make, publish, get, get again so often, delete
 *   handover way= bytes= count=       from publish to where the consumer, who waits, can use it
 */
#include "store_gpu.h"

#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "gpu/driver.h"

int device, ordinal = -1, peer_socket;
bool consumer;
uint64_t most_bytes;
struct page *shared;

static const struct way *const ways[] = {&way_sluice, &way_alone, &way_ipc, &way_copy};
enum { WAYS = sizeof(ways) / sizeof(ways[0]), TIMES_MOST = 10000 };

/* -------------------------------------------------------------------------------------- ending */

static void answer(const char *kind, const char *text)
{
	printf("{\"%s\": \"%s", kind, consumer ? "consumer: " : "");
	for (; *text; text++)
		printf(*text == '"' || *text == '\\' ? "\\%c"
		       : (unsigned char)*text < ' '  ? " "
		                                     : "%c",
		       *text);
	printf("\"}\n");
	exit(1);
}

void fail(const char *format, ...)
{
	char text[400];
	va_list list;

	va_start(list, format);
	vsnprintf(text, sizeof(text), format, list);
	va_end(list);
	answer("error", text);
	exit(1);
}

void skip(const char *why)
{
	answer("skipped", why);
	exit(1);
}

/* ----------------------------------------------------------------------------------- measuring */

double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/* Of n times in seconds, in microseconds. */
struct spread {
	double p50, p99, mean;
};

static struct spread spread_of(double *times, unsigned n)
{
	struct spread s = {0};

	for (unsigned i = 0; i < n; i++)
		s.mean += times[i] * 1e6 / n;
	qsort(times, n, sizeof(*times), compare);
	s.p50 = times[n / 2] * 1e6;
	s.p99 = times[n * 99 / 100] * 1e6;
	return s;
}

static void print_spread(const char *name, double *times, unsigned n, const char *after)
{
	struct spread s = spread_of(times, n);

	printf("\"%s\": {\"p50\": %.3f, \"p99\": %.3f, \"mean\": %.3f}%s", name, s.p50, s.p99,
	       s.mean, after);
}

/* ------------------------------------------------------------------------------------ consumer */

enum verb { GET = 1, GET_AGAIN, AWAIT, FORGET, READY };
struct message {
	enum verb verb;
	unsigned way, key, count;
	uint64_t bytes, stamp;
	double time; /* seconds */
};

static int control;

static void tell(const struct message *m)
{
	if (write(control, m, sizeof(*m)) != sizeof(*m))
		fail("the other process is gone: %s", strerror(errno));
}

static bool hear(struct message *m)
{
	return read(control, m, sizeof(*m)) == sizeof(*m);
}

/* Both ends have what the producer has put there. */
static void check_stamp(const struct message *m, const void *memory)
{
	uint64_t seen[2];

	CHECK(sluice_copy(&seen[0], memory, sizeof(seen[0])));
	CHECK(sluice_copy(&seen[1], (const char *)memory + m->bytes - 8, sizeof(seen[1])));
	if (seen[0] != m->stamp || seen[1] != m->stamp)
		fail("%s: the bytes of %u are wrong", ways[m->way]->name, m->key);
}

static void open_way(unsigned number)
{
	static bool opened[WAYS];

	if (!opened[number])
		ways[number]->open();
	opened[number] = true;
}

static void get(struct message *m)
{
	const void *memory;
	double begun = now();

	memory = ways[m->way]->get(m->key, m->bytes, false);
	m->time = now() - begun;
	check_stamp(m, memory);
	ways[m->way]->release(m->key);
}

static void get_again(struct message *m)
{
	static double times[TIMES_MOST];

	for (unsigned i = 0; i < m->count; i++) {
		const void *memory;

		times[i] = now();
		memory = ways[m->way]->get(m->key, m->bytes, false);
		times[i] = now() - times[i];
		if (i + 1 == m->count)
			check_stamp(m, memory);
		ways[m->way]->release(m->key);
	}
	m->time = spread_of(times, m->count).p50 / 1e6;
}

static void await(struct message *m)
{
	const void *memory;

	m->verb = READY;
	tell(m);
	memory = ways[m->way]->get(m->key, m->bytes, true);
	m->time = now();
	check_stamp(m, memory);
	ways[m->way]->release(m->key);
}

static int consume(void)
{
	struct message m;

	while (hear(&m)) {
		open_way(m.way);
		if (m.verb == GET)
			get(&m);
		else if (m.verb == GET_AGAIN)
			get_again(&m);
		else if (m.verb == AWAIT)
			await(&m);
		else if (ways[m.way]->forget)
			ways[m.way]->forget(m.key);
		tell(&m);
	}
	return 0;
}

/* ------------------------------------------------------------------------------------ producer */

struct job {
	char verb[32];
	unsigned way;
	uint64_t bytes;
	unsigned count, again;
};

static uint32_t last_key;

static double ask(enum verb verb, const struct job *job, uint64_t stamp)
{
	struct message m = {.verb = verb,
	                    .way = job->way,
	                    .key = last_key,
	                    .count = job->again,
	                    .bytes = job->bytes,
	                    .stamp = stamp};

	tell(&m);
	if (!hear(&m))
		exit(1); /* it has said why */
	return m.time;
}

static uint64_t put_stamp(char *memory, const struct job *job)
{
	uint64_t stamp = last_key * UINT64_C(0x9e3779b97f4a7c15);

	CHECK(sluice_copy(memory, &stamp, sizeof(stamp)));
	CHECK(sluice_copy(memory + job->bytes - 8, &stamp, sizeof(stamp)));
	return stamp;
}

static void run_cycle(const struct job *job)
{
	enum { CREATE, PUBLISH, FIRST, AGAIN, DELETE, FREE, STEPS };
	static const char *const names[] = {"create", "publish", "first",
	                                    "again",  "delete",  "free"};
	static double times[STEPS][TIMES_MOST];
	const struct way *way = ways[job->way];

	for (unsigned i = 0; i < job->count; i++) {
		uint64_t stamp;
		double begun;
		void *memory;

		last_key++;
		begun = now();
		memory = way->make(last_key, job->bytes);
		times[CREATE][i] = now() - begun;
		stamp = put_stamp(memory, job);
		begun = now();
		way->publish(last_key, false);
		times[PUBLISH][i] = now() - begun;
		times[FIRST][i] = ask(GET, job, stamp);
		times[AGAIN][i] = ask(GET_AGAIN, job, stamp);
		begun = now();
		if (way->forget)
			ask(FORGET, job, 0);
		way->drop(last_key);
		times[DELETE][i] = now() - begun;
		if (way->settle)
			way->settle();
		times[FREE][i] = now() - begun;
	}
	printf("{");
	for (int step = 0; step < STEPS; step++)
		print_spread(names[step], times[step], job->count, step + 1 < STEPS ? ", " : "}\n");
}

static void run_handover(const struct job *job)
{
	static double times[TIMES_MOST];
	const struct way *way = ways[job->way];
	struct timespec pause = {0, 300000};

	for (unsigned i = 0; i < job->count; i++) {
		struct message m;
		uint64_t stamp;
		double begun;

		last_key++;
		stamp = put_stamp(way->make(last_key, job->bytes), job);
		ask(AWAIT, job, stamp);
		/* Until it really waits. */
		nanosleep(&pause, NULL);
		begun = now();
		way->publish(last_key, true);
		if (!hear(&m))
			exit(1);
		times[i] = m.time - begun;
		if (way->forget)
			ask(FORGET, job, 0);
		way->drop(last_key);
		if (way->settle)
			way->settle();
	}
	printf("{");
	print_spread("handover", times, job->count, "}\n");
}

static void set(struct job *job, char *word)
{
	char *value = strchr(word, '=');

	if (!value) {
		snprintf(job->verb, sizeof(job->verb), "%s", word);
		return;
	}
	*value++ = '\0';
	if (!strcmp(word, "way")) {
		for (job->way = 0; job->way < WAYS; job->way++)
			if (!strcmp(ways[job->way]->name, value))
				return;
		fail("there is no way '%s'", value);
	}
	if (!strcmp(word, "bytes"))
		job->bytes = strtoull(value, NULL, 10);
	else if (!strcmp(word, "count"))
		job->count = (unsigned)atoi(value);
	else if (!strcmp(word, "again"))
		job->again = (unsigned)atoi(value);
	else
		fail("a job has no '%s'", word);
}

static void run(char *line)
{
	struct job job = {.count = 1, .again = 1, .bytes = 4096};

	for (char *word = strtok(line, " \n"); word; word = strtok(NULL, " \n"))
		set(&job, word);
	if (job.bytes < 16 || job.bytes > most_bytes || !job.count || job.count > TIMES_MOST ||
	    !job.again || job.again > TIMES_MOST)
		fail("too much, or nothing");
	open_way(job.way);
	if (!strcmp(job.verb, "cycle"))
		run_cycle(&job);
	else if (!strcmp(job.verb, "handover"))
		run_handover(&job);
	else
		fail("there is no job '%s'", job.verb);
}

/* -------------------------------------------------------------------------------------- set-up */

static const char *open_device(const char *name, struct sluice_device *d)
{
	const char *missing;

	if (sluice_device_find(name, &device))
		skip(sluice_last_message());
	CHECK(sluice_device_describe(device, d));
	if (strncmp(d->name, "cuda:", 5))
		return "only with CUDA's driver";
	ordinal = atoi(d->name + 5);
	missing = driver_open(ordinal);
	if (missing)
		fail("%s", missing);
	return NULL;
}

static void map_shared(int fd)
{
	void *memory =
		mmap(NULL, PAGE_BYTES + most_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	if (memory == MAP_FAILED)
		fail("memory to share: %s", strerror(errno));
	shared = memory;
}

/* The same program, with the sockets and the memory. */
static void start_consumer(const char *name, const char *bytes)
{
	int sockets[2], peers[2], fd = memfd_create("bench", 0);
	pid_t parent = getpid();
	char numbers[60];

	if (fd < 0 || ftruncate(fd, (off_t)(PAGE_BYTES + most_bytes)) ||
	    socketpair(AF_UNIX, SOCK_SEQPACKET, 0, sockets) ||
	    socketpair(AF_UNIX, SOCK_SEQPACKET, 0, peers))
		fail("sockets and memory: %s", strerror(errno));
	snprintf(numbers, sizeof(numbers), "%d,%d,%d", sockets[1], peers[1], fd);
	fflush(stdout);
	if (!fork()) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		close(sockets[0]);
		close(peers[0]);
		if (getppid() == parent)
			execl("/proc/self/exe", "bench_store_gpu", name, bytes, numbers, NULL);
		_exit(127);
	}
	close(sockets[1]);
	close(peers[1]);
	control = sockets[0];
	peer_socket = peers[0];
	map_shared(fd);
	close(fd);
}

int main(int argc, char **argv)
{
	struct sluice_device d = {.size = sizeof(d)};
	static char line[4096];
	const char *missing;
	int fd;

	setvbuf(stdout, NULL, _IOLBF, 0);
	signal(SIGPIPE, SIG_IGN);
	if (argc != 3 && argc != 4)
		return 2;
	most_bytes = strtoull(argv[2], NULL, 10);
	consumer = argc == 4;
	if (!consumer)
		start_consumer(argv[1], argv[2]);
	missing = open_device(argv[1], &d);
	if (consumer) {
		if (sscanf(argv[3], "%d,%d,%d", &control, &peer_socket, &fd) != 3)
			return 2;
		map_shared(fd);
		return consume();
	}
	printf("{\"name\": \"%s\", \"detail\": \"%s\", \"peers\": \"%s\"}\n", d.name, d.detail,
	       missing ? missing : "");
	while (fgets(line, sizeof(line), stdin))
		run(line);
	return 0;
}
