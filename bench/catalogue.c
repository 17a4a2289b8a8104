/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench/catalogue.c: what the store's catalogue costs; not built by default:
 *   ninja -C BUILD bench/bench_catalogue && BUILD/bench/bench_catalogue
 *
 * In one process, each side with its own mappings. A get is by name, with a look at an array by slot for the mapping
 * that a client would have; each time one of so many names in a random order, so that with many of them
 * caches do not hold what is looked at. The best of five rounds, because the machine has other things to do.
 */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "catalogue/catalogue.h"

enum { SLOTS = 1 << 17, BLOBS = 100000, GETS = 1 << 18, ROUNDS = 5, CLIENTS = 100, THREADS = 4 };

static struct {
	int fd;
	struct sl_segment *segment, *read;
	struct sl_catalogue *catalogue;
	uint64_t *mapped; /* the generation that a client has mapped of each slot */
	char (*names)[16];
	uint32_t *order; /* of names */
} bench;

static void check(int error, const char *what)
{
	if (!error)
		return;
	fprintf(stderr, "%s: %s\n", what, strerror(error < 0 ? -error : error));
	exit(1);
}

static uint64_t random_number(void)
{
	static uint64_t state = 88172645463325252;

	state ^= state << 13;
	state ^= state >> 7;
	return state ^= state << 17;
}

static void client_new(struct sl_reader *reader, uint32_t references)
{
	struct sl_references *seen;
	int fd;

	check(sl_references_new(references, &fd), "references");
	check(sl_references_map(fd, true, &reader->references), "references");
	check(sl_references_map(fd, true, &seen), "references");
	check(sl_catalogue_join(bench.catalogue, seen), "join");
	reader->segment = bench.read;
	close(fd);
}

static uint32_t publish(uint32_t n)
{
	struct sl_blob_record record = {
		.key = {.name = bench.names[n], .length = strlen(bench.names[n])}, .size = 4096};
	uint32_t slot;

	check(sl_catalogue_insert(bench.catalogue, &record, true, &slot), "insert");
	return slot;
}

static void get_and_release(const struct sl_reader *reader, uint32_t n)
{
	struct sl_blob_key key = {.name = bench.names[n], .length = strlen(bench.names[n])};
	struct sl_held_blob held;

	check(sl_reader_get(reader, &key, &held), "get");
	if (bench.mapped[held.slot] != held.generation)
		bench.mapped[held.slot] = held.generation;
	sl_reader_release(reader, &held);
}

static double gets_of(const struct sl_reader *reader, uint32_t names)
{
	double best = 1e18;

	for (uint32_t i = 0; i < GETS; i++)
		bench.order[i] = random_number() % names;
	for (int round = 0; round < ROUNDS; round++) {
		int64_t begun = sl_now();

		for (uint32_t i = 0; i < GETS; i++)
			get_and_release(reader, bench.order[i]);
		best = SL_MIN(best, (double)(sl_now() - begun) / GETS);
	}
	return best;
}

struct thread {
	pthread_t thread;
	struct sl_reader reader;
	uint32_t names;
	double ns;
};

static void *thread_gets(void *argument)
{
	struct thread *t = argument;
	int64_t begun = sl_now();

	for (uint32_t i = 0; i < GETS; i++)
		get_and_release(&t->reader, bench.order[i] % t->names);
	t->ns = (double)(sl_now() - begun) / GETS;
	return NULL;
}

/* By so many at once; each a process of its own, or all threads of one. */
static double gets_at_once(uint32_t names, bool one_client)
{
	struct thread threads[THREADS];
	double best = 1e18;

	for (unsigned i = 0; i < THREADS; i++) {
		if (i == 0 || !one_client)
			client_new(&threads[i].reader, 1024);
		else
			threads[i].reader = threads[0].reader;
		threads[i].names = names;
	}
	for (int round = 0; round < ROUNDS; round++) {
		double sum = 0;

		for (unsigned i = 0; i < THREADS; i++)
			check(pthread_create(&threads[i].thread, NULL, thread_gets, &threads[i]),
			      "thread");
		for (unsigned i = 0; i < THREADS; i++) {
			pthread_join(threads[i].thread, NULL);
			sum += threads[i].ns / THREADS;
		}
		best = SL_MIN(best, sum);
	}
	return best;
}

static void nothing(void *argument, uint32_t slot, enum sl_left what)
{
	(void)argument, (void)slot, (void)what;
}

static double deletes(unsigned at_once)
{
	double best = 1e18;

	for (int round = 0; round < ROUNDS; round++) {
		uint32_t slots[1024];
		int64_t begun;

		begun = sl_now();
		for (unsigned i = 0; i < at_once; i++)
			slots[i] = publish(BLOBS + i);
		for (unsigned i = 0; i < at_once; i++)
			check(sl_catalogue_delete(bench.catalogue, slots[i]), "delete");
		sl_catalogue_sweep(bench.catalogue, nothing, NULL);
		best = SL_MIN(best, (double)(sl_now() - begun) / at_once);
	}
	return best;
}

static void take_over(void)
{
	struct sl_catalogue *catalogue;
	int64_t begun = sl_now();

	check(sl_catalogue_open(bench.segment, NULL, &catalogue), "open");
	printf("a new server takes %d blobs over   %8.1f ms\n", BLOBS,
	       (double)(sl_now() - begun) * 1e-6);
	sl_catalogue_close(catalogue);
}

int main(void)
{
	struct sl_reader reader, holders[CLIENTS];
	int64_t begun;

	bench.mapped = calloc(SLOTS, sizeof(*bench.mapped));
	bench.names = calloc(SLOTS, sizeof(*bench.names));
	bench.order = calloc(GETS, sizeof(*bench.order));
	if (!bench.mapped || !bench.names || !bench.order)
		check(-ENOMEM, "memory");
	check(sl_segment_new(SLOTS, &bench.fd), "segment");
	check(sl_segment_map(bench.fd, true, &bench.segment), "segment");
	check(sl_segment_map(bench.fd, false, &bench.read), "segment");
	check(sl_catalogue_open(bench.segment, NULL, &bench.catalogue), "catalogue");
	client_new(&reader, 1024);
	for (uint32_t i = 0; i < SLOTS; i++)
		snprintf(bench.names[i], sizeof(bench.names[i]), "blob/%u", i);
	begun = sl_now();
	for (uint32_t i = 0; i < BLOBS; i++)
		publish(i);
	printf("insert, first touch of the segment    %8.0f ns\n",
	       (double)(sl_now() - begun) / BLOBS);
	printf("get and release, the same blob        %8.0f ns\n", gets_of(&reader, 1));
	printf("get and release, one of 100           %8.0f ns\n", gets_of(&reader, 100));
	printf("get and release, one of %d        %8.0f ns\n", BLOBS, gets_of(&reader, BLOBS));
	printf("%d clients at once, one of 100         %8.0f ns\n", THREADS,
	       gets_at_once(100, false));
	printf("%d threads of one client, one of 100   %8.0f ns\n", THREADS,
	       gets_at_once(100, true));
	printf("%d threads of one client, the same     %8.0f ns\n", THREADS, gets_at_once(1, true));
	printf("insert, delete, sweep, few clients    %8.0f ns\n", deletes(1));
	for (unsigned i = 0; i < CLIENTS; i++) {
		struct sl_held_blob held;

		client_new(&holders[i], 1024);
		for (uint32_t n = 0; n < 1000; n++)
			check(sl_reader_get(&holders[i],
			                    &(struct sl_blob_key){.name = bench.names[n],
			                                          .length = strlen(bench.names[n])},
			                    &held),
			      "get");
	}
	printf("the same, %d clients that hold 1000  %8.0f ns\n", CLIENTS, deletes(1));
	printf("the same, 1000 of them in one sweep   %8.0f ns each\n", deletes(1000));
	take_over();
	return 0;
}
