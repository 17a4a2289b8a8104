/* SPDX-License-Identifier: Apache-2.0 */
/* Many of the program's streams, with its own copies and kernels behind each operation. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "gpu/check.h"

enum { STREAMS_MOST = 256, ROUNDS = 4, TAIL = 4096 };

/* Everything of one stream. */
struct lane {
	sluice_stream stream;
	unsigned char *memory, *own; /* of the device: what is read, and the program's */
	unsigned char *ends;         /* pinned: the end of what each round has read */
	sluice_op *ops[2 * ROUNDS];
	struct gpu_match read[ROUNDS], copied[ROUNDS], back[ROUNDS];
};

static struct lane lanes[STREAMS_MOST];
static unsigned streams;
static size_t part;
static unsigned char *pinned;
static sluice_file *in, *out;

static uint64_t offset_of(unsigned lane, unsigned round)
{
	return (uint64_t)(lane * 7 + round * 3) % (file_bytes / part) * part;
}

static void open_lanes(unsigned count, bool default_streams)
{
	streams = small ? 16 : count;
	part = (small ? 64 : 256) << 10;
	in = open_in();
	out = open_out();
	pinned = new_pinned(0, TAIL);
	pattern_fill(pinned, TAIL, 0, 11);
	for (unsigned i = 0; i < streams; i++) {
		lanes[i].memory = new_memory(0, part);
		lanes[i].own = new_memory(0, TAIL);
		lanes[i].ends = new_pinned(0, (size_t)ROUNDS * TAIL);
		if (default_streams && i < 2)
			lanes[i].stream = (sluice_stream)(uintptr_t)(2 * i);
		else
			lanes[i].stream = new_stream(0);
	}
}

/* On each stream: a read, a kernel that looks at it, copies of the program's own in all directions; a
 * kernel that makes something else of it, a write of that, and a kernel that spoils it. */
static void submit_round(unsigned round)
{
	for (unsigned i = 0; i < streams; i++) {
		struct lane *lane = &lanes[i];
		unsigned char *end = lane->ends + (size_t)round * TAIL;
		uint64_t from = offset_of(i, round), to = (uint64_t)(round * streams + i) * part;
		sluice_stream s = lane->stream;

		MUST(sluice_read_on(in, lane->memory, part, from, s, &lane->ops[2 * round]));
		look_on(0, s, &lane->read[round], lane->memory, part, from);
		MUST(sluice_copy_on(lane->own, pinned, TAIL, s));
		look_for(0, s, &lane->copied[round], lane->own, TAIL, 0, 11);
		MUST(sluice_copy_on(end, lane->memory + part - TAIL, TAIL, s));
		GPU(gpu_fill(0, s, lane->memory, part, to, seed + 1));
		MUST(sluice_write_on(out, lane->memory, part, to, s, &lane->ops[2 * round + 1]));
		GPU(gpu_scribble(0, s, lane->memory, part, round));
	}
}

static bool check_lane(unsigned i)
{
	struct lane *lane = &lanes[i];
	bool good = true;

	for (unsigned round = 0; round < ROUNDS; round++) {
		uint64_t from = offset_of(i, round) + part - TAIL;

		good &= moved(lane->ops[2 * round], part);
		good &= moved(lane->ops[2 * round + 1], part);
		good &= !lane->read[round].wrong && !lane->copied[round].wrong;
		good &= pattern_match(lane->ends + (size_t)round * TAIL, TAIL, from, seed) == TAIL;
		if (!good) {
			printf("       stream %u, round %u: %zu of the read bytes are wrong, %zu "
			       "of the "
			       "copied\n",
			       i, round, lane->read[round].wrong, lane->copied[round].wrong);
			break;
		}
	}
	return good;
}

static bool check_written(void)
{
	size_t n = (size_t)streams * ROUNDS * part;
	unsigned char *held = malloc(n);
	sluice_op *op;
	bool good;

	MUST(sluice_read(out, held, n, 0, &op));
	good = moved(op, n);
	if (pattern_match(held, n, 0, seed + 1) != n) {
		printf("       of what was written %zu of %zu bytes are wrong\n",
		       pattern_differ(held, n, 0, seed + 1), n);
		good = false;
	}
	free(held);
	return good;
}

static bool close_lanes(void)
{
	bool good = true;

	for (unsigned i = 0; i < streams; i++)
		MUST(sluice_stream_synchronize(gpu_device(0), lanes[i].stream));
	for (unsigned i = 0; i < streams && good; i++)
		good &= check_lane(i);
	good = good && check_written();
	for (unsigned i = 0; i < streams; i++) {
		if ((uintptr_t)lanes[i].stream > 2)
			MUST(sluice_stream_free(lanes[i].stream));
		MUST(sluice_device_free(lanes[i].memory));
		MUST(sluice_device_free(lanes[i].own));
		MUST(sluice_pinned_free(lanes[i].ends));
	}
	MUST(sluice_pinned_free(pinned));
	MUST(sluice_close(in));
	MUST(sluice_close(out));
	return good;
}

/* -------------------------------------------------------------------------------------- freers */

static _Atomic bool stop;
static _Atomic unsigned frees, unpins;

static void *free_in_a_loop(void *unused)
{
	gpu_use(0);
	while (!atomic_load(&stop)) {
		void *memory = new_memory(0, MIB);

		MUST(sluice_device_free(memory));
		atomic_fetch_add(&frees, 1);
	}
	return unused;
}

static void *unpin_in_a_loop(void *unused)
{
	gpu_use(0);
	while (!atomic_load(&stop)) {
		void *memory = new_pinned(0, MIB);

		MUST(sluice_pinned_free(memory));
		atomic_fetch_add(&unpins, 1);
	}
	return unused;
}

static double seconds_now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static bool run(unsigned count, bool default_streams, bool freeing, bool pinning)
{
	pthread_t freer, unpinner;
	double begun;
	bool good;

	open_lanes(count, default_streams);
	if (freeing)
		pthread_create(&freer, NULL, free_in_a_loop, NULL);
	if (pinning)
		pthread_create(&unpinner, NULL, unpin_in_a_loop, NULL);
	begun = seconds_now();
	for (unsigned round = 0; round < ROUNDS; round++)
		submit_round(round);
	for (unsigned i = 0; i < streams; i++)
		MUST(sluice_stream_synchronize(gpu_device(0), lanes[i].stream));
	printf("       %u streams x %d rounds: %.0f ms", streams, ROUNDS,
	       (seconds_now() - begun) * 1e3);
	if (freeing || pinning)
		printf(", %u times freed, %u times unpinned", atomic_load(&frees),
		       atomic_load(&unpins));
	printf("\n");
	atomic_store(&stop, true);
	if (freeing)
		pthread_join(freer, NULL);
	if (pinning)
		pthread_join(unpinner, NULL);
	good = close_lanes();
	return good;
}

static bool many(void)
{
	return run(256, false, false, false);
}

static bool many_and_default_streams(void)
{
	return run(64, true, false, false);
}

static bool many_while_freeing(void)
{
	return run(256, false, true, false);
}

static bool many_while_unpinning(void)
{
	return run(64, false, false, true);
}

/* ---------------------------------------------------------------------------- the default stream */

/* Streams of the program's that wait for the legacy default stream see what was read on it. */
static bool blocking_stream(void)
{
	struct gpu_match before, behind;
	sluice_stream stream;
	sluice_op *a, *b;
	size_t n = 2 * MIB;
	void *memory = new_memory(0, n), *other = new_memory(0, n);
	bool good;

	need_cuda();
	in = open_in();
	DRIVER(cuStreamCreate, (CUstream *)&stream, 0);
	MUST(sluice_read_on(in, memory, n, 7, SLUICE_STREAM_DEFAULT, &a));
	look_on(0, stream, &behind, memory, n, 7);
	MUST(sluice_read_on(in, other, n, 9, stream, &b));
	look_on(0, SLUICE_STREAM_DEFAULT, &before, other, n, 9);
	good = right(0, SLUICE_STREAM_DEFAULT, &before, "read on a blocking stream");
	good &= right(0, stream, &behind, "read on the legacy stream");
	good &= moved(a, n);
	good &= moved(b, n);
	DRIVER(cuStreamDestroy_v2, stream);
	MUST(sluice_device_free(memory));
	MUST(sluice_device_free(other));
	MUST(sluice_close(in));
	return good;
}

/* Several threads, each on the default stream of its own. */
static void *read_on_thread(void *wrong)
{
	sluice_stream own = (sluice_stream)2;
	void *memory = new_memory(0, MIB);

	gpu_use(0);
	for (unsigned i = 0; i < 20 && !*(_Atomic bool *)wrong; i++) {
		struct gpu_match match;
		sluice_op *op;

		MUST(sluice_read_on(in, memory, MIB, i * 1000, own, &op));
		look_on(0, own, &match, memory, MIB, i * 1000);
		if (!right(0, own, &match, "read") || !moved(op, MIB))
			*(_Atomic bool *)wrong = true;
	}
	MUST(sluice_device_free(memory));
	return NULL;
}

static bool threads_default_streams(void)
{
	pthread_t threads[8];
	_Atomic bool wrong = false;

	in = open_in();
	for (int i = 0; i < 8; i++)
		pthread_create(&threads[i], NULL, read_on_thread, &wrong);
	for (int i = 0; i < 8; i++)
		pthread_join(threads[i], NULL);
	MUST(sluice_close(in));
	return !wrong;
}

const struct check stream_checks[] = {
	{"many", "256 streams with copies and kernels behind each operation", many, 40},
	{"many_default", "64 streams, the default streams among them", many_and_default_streams,
         40},
	{"many_freeing", "256 streams, while a thread frees memory", many_while_freeing, 60},
	{"many_unpinning", "64 streams, while a thread pins and unpins memory",
         many_while_unpinning, 60},
	{"blocking", "the legacy default stream orders blocking streams", blocking_stream, 20},
	{"threads", "eight threads, each on its default stream", threads_default_streams, 30},
	{NULL, NULL, NULL, 0},
};
