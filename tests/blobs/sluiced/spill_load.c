/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Eight processes put, get, hold and delete blobs of mixed sizes, of which there are several times as many bytes as
 * memory: whoever gets one, through a read-only mapping, sees what was sealed. Each blob has fresh random bytes, and
 * a table that all processes share has the number from which they follow.
 *
 * Without arguments a tenth of it: 10,000 blobs of up to 64 MiB in 160 MiB. --full: 100,000 of up to 1 GiB in 2 GiB.
 */
#include <signal.h>
#include <stdatomic.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/daemon.h"

#define PROCESSES 8
#define MOST      100000
#define HELD      8
#define LIVE      20000 /* of a process */

static const struct size {
	const char *memory;
	unsigned blobs;
	size_t live;    /* bytes that a process has at a time, the largest ones not counted */
	size_t common;  /* blobs above this one process has in use at a time */
	size_t largest; /* one in PROCESSES blobs of that is of this size */
} sizes[] = {{"160M", 10000, 48 * MIB, 4 * MIB, 64 * MIB},
             {"2G", 100000, 768 * MIB, 16 * MIB, 1024 * MIB}};
static const struct size *size = &sizes[0];

enum { NONE, THERE, GONE };
static struct {
	_Atomic uint64_t gets, held, deleted, missed, bytes_put, bytes_got;
	_Atomic uint32_t large; /* a process has one of the large ones in use */
	_Atomic uint32_t failed;
	_Atomic uint32_t next[PROCESSES]; /* blobs that it has put */
	char text[400];
	struct blob {
		uint64_t seed, bytes;
		_Atomic uint32_t state;
	} blobs[MOST];
} * shared;

static void wrong(const char *what, unsigned i)
{
	if (!atomic_fetch_add(&shared->failed, 1))
		snprintf(shared->text, sizeof(shared->text), "%s of blob %u, %llu bytes: %s", what,
		         i, (unsigned long long)shared->blobs[i].bytes, sluice_last_message());
}

/* ------------------------------------------------------------------------------------- bytes */

static inline uint64_t word_of(uint64_t seed, size_t at)
{
	uint64_t z = seed + at * UINT64_C(0x9e3779b97f4a7c15);

	z = (z ^ z >> 32) * UINT64_C(0xd6e8feb86659fd93);
	return z ^ z >> 32;
}

static void fill(unsigned char *to, size_t n, uint64_t seed)
{
	uint64_t word;

	for (size_t i = 0; i < n / 8; i++) {
		word = word_of(seed, i);
		memcpy(to + 8 * i, &word, 8);
	}
	word = word_of(seed, n / 8);
	memcpy(to + n / 8 * 8, &word, n % 8);
}

static bool match(const unsigned char *from, size_t n, uint64_t seed)
{
	uint64_t word, differs = 0, seen;

	for (size_t i = 0; i < n / 8; i++) {
		memcpy(&seen, from + 8 * i, 8);
		differs |= seen ^ word_of(seed, i);
	}
	word = word_of(seed, n / 8);
	return !differs && !memcmp(from + n / 8 * 8, &word, n % 8);
}

/* 1 byte to the largest, small ones more often. */
static size_t draw_bytes(struct rng *r, bool largest)
{
	uint64_t kind = rng_below(r, 1000);
	size_t from = kind < 700 ? 1 : kind < 980 ? 65536 : kind < 999 ? MIB : size->common;
	size_t to = kind < 700   ? 65536
	            : kind < 980 ? 512 * 1024
	            : kind < 999 ? size->common
	                         : size->largest / 4;
	double part = (double)rng_below(r, 1000001) / 1e6;
	size_t n = from;

	if (largest)
		return size->largest;
	/* As many of each power of two. */
	while (n * 2 <= to && part > 0) {
		part -= 1.0 / (__builtin_ctzll(to) - __builtin_ctzll(from));
		n *= 2;
	}
	return n / 2 + 1 + rng_below(r, n / 2 + 1);
}

static bool is_large(size_t n)
{
	return n > size->common;
}

static bool take_turn(void)
{
	uint32_t none = 0;

	return atomic_compare_exchange_strong(&shared->large, &none, 1);
}

/* ----------------------------------------------------------------------------------- a process */

struct worker {
	sluice_store *store;
	unsigned number;
	struct rng r;
	struct {
		sluice_blob *blob;
		unsigned index;
	} held[HELD];
	unsigned live[LIVE]; /* what it has put and not deleted */
	unsigned live_count;
	size_t live_bytes;
};

static void name_of(unsigned i, char name[32])
{
	snprintf(name, 32, "load/%u", i);
}

static bool blob_matches(const sluice_blob *blob, unsigned i)
{
	const struct blob *b = &shared->blobs[i];

	return sluice_blob_size(blob) == b->bytes && sluice_blob_data(blob) &&
	       match(sluice_blob_data(blob), b->bytes, b->seed);
}

static void put_one(struct worker *w, unsigned i, bool largest)
{
	struct blob *b = &shared->blobs[i];
	bool large;
	sluice_blob *blob;
	char name[32];

	b->bytes = draw_bytes(&w->r, largest);
	large = is_large(b->bytes);
	/* Two of them together may not fit. */
	if (large && !largest && !take_turn()) {
		large = false;
		b->bytes = 1 + rng_below(&w->r, 65536);
	}
	while (large && largest && !take_turn())
		sleep_ms(1);
	if (getrandom(&b->seed, sizeof(b->seed), 0) != sizeof(b->seed))
		b->seed = i;
	name_of(i, name);
	if (sluice_blob_create(w->store, name, b->bytes, -1, NULL, &blob)) {
		wrong("create", i);
		return;
	}
	fill(sluice_blob_mutable_data(blob), b->bytes, b->seed);
	if (sluice_blob_seal(blob))
		wrong("seal", i);
	atomic_store(&b->state, THERE);
	atomic_fetch_add(&shared->bytes_put, b->bytes);
	sluice_blob_release(blob);
	if (large)
		atomic_store(&shared->large, 0);
	w->live[w->live_count++] = i;
	w->live_bytes += b->bytes;
	atomic_fetch_add(&shared->next[w->number], 1);
}

static void delete_one(struct worker *w)
{
	unsigned at = (unsigned)rng_below(&w->r, w->live_count), i = w->live[at];
	char name[32];

	name_of(i, name);
	atomic_store(&shared->blobs[i].state, GONE);
	if (sluice_blob_delete(w->store, name))
		wrong("delete", i);
	atomic_fetch_add(&shared->deleted, 1);
	w->live_bytes -= shared->blobs[i].bytes;
	w->live[at] = w->live[--w->live_count];
}

static void let_go(struct worker *w, unsigned at)
{
	if (!w->held[at].blob)
		return;
	if (!blob_matches(w->held[at].blob, w->held[at].index))
		wrong("bytes held", w->held[at].index);
	sluice_blob_release(w->held[at].blob);
	w->held[at].blob = NULL;
}

/* Any process's. */
static void get_one(struct worker *w)
{
	unsigned process = (unsigned)rng_below(&w->r, PROCESSES), at;
	uint32_t count = atomic_load(&shared->next[process]);
	bool large;
	sluice_blob *blob;
	struct blob *b;
	char name[32];
	unsigned i;
	int rc;

	if (!count)
		return;
	i = process + PROCESSES * (unsigned)rng_below(&w->r, count);
	b = &shared->blobs[i];
	large = is_large(b->bytes);
	if (atomic_load(&b->state) != THERE || (large && !take_turn()))
		return;
	name_of(i, name);
	rc = sluice_blob_get(w->store, name, 0, &blob);
	if (rc == -ENOENT && atomic_load(&b->state) == GONE)
		atomic_fetch_add(&shared->missed, 1);
	else if (rc)
		wrong("get", i);
	if (!rc) {
		if (!blob_matches(blob, i))
			wrong("bytes", i);
		atomic_fetch_add(&shared->gets, 1);
		atomic_fetch_add(&shared->bytes_got, b->bytes);
		at = (unsigned)rng_below(&w->r, HELD);
		if (b->bytes <= MIB && rng_below(&w->r, 10) == 0) {
			let_go(w, at);
			w->held[at].blob = blob;
			w->held[at].index = i;
			atomic_fetch_add(&shared->held, 1);
		} else {
			sluice_blob_release(blob);
		}
	}
	if (large)
		atomic_store(&shared->large, 0);
}

static int work(const struct daemon *d, const char *argument)
{
	static struct worker w;

	size = &sizes[argument[1] == 'f'];
	w.number = (unsigned)(argument[0] - '0');
	w.r.state = w.number * UINT64_C(7919) + 17;
	if (sluice_store_open(d->path, NULL, &w.store))
		return 1;
	for (unsigned i = w.number; i < size->blobs && !atomic_load(&shared->failed);
	     i += PROCESSES) {
		unsigned nth = i / PROCESSES;

		while (w.live_count && (w.live_bytes > size->live || w.live_count == LIVE))
			delete_one(&w);
		/* Each process has one of the largest, at another time. */
		put_one(&w, i, nth == (w.number + 1) * (size->blobs / PROCESSES) / 10);
		get_one(&w);
	}
	for (unsigned at = 0; at < HELD; at++)
		let_go(&w, at);
	while (w.live_count)
		delete_one(&w);
	return sluice_store_close(w.store) ? 2 : 0;
}

int main(int argc, char **argv)
{
	static const struct child_role roles[] = {{"work", work}, {NULL, NULL}};
	static char folder[200];
	const char *options[] = {"--memory", NULL, "--spill", folder, "--blobs", "131072", NULL};
	struct sluice_store_counts s, most = {0};
	unsigned failed, made = 0, working = PROCESSES;
	pid_t workers[PROCESSES];
	struct daemon *d;
	double start, slowest = 0, sum = 0;
	unsigned asks = 0;

	shared = shared_memory(sizeof(*shared));
	child_run(argc, argv, roles);
	size = &sizes[argc > 1 && !strcmp(argv[1], "--full")];
	snprintf(folder, sizeof(folder), "%s/spill-load-%d", getenv("SLUICE_TEST_DIR"),
	         (int)getpid());
	if (mkdir(folder, 0700))
		return 1;
	options[1] = size->memory;
	daemon_options = options;
	daemon_setup((void **)&d);
	start = seconds_now();
	for (unsigned i = 0; i < PROCESSES; i++)
		workers[i] = child_start(
			"work", d,
			(const char[]){(char)('0' + i), size == &sizes[1] ? 'f' : 't', 0});
	while (working) {
		double asked, took;

		sleep_ms(20);
		asked = seconds_now();
		s = stats_of(d->store);
		took = seconds_now() - asked;
		slowest = took > slowest ? took : slowest;
		sum += took;
		asks++;
		most.spilled = s.spilled > most.spilled ? s.spilled : most.spilled;
		most.spilled_bytes =
			s.spilled_bytes > most.spilled_bytes ? s.spilled_bytes : most.spilled_bytes;
		most.memory_bytes =
			s.memory_bytes > most.memory_bytes ? s.memory_bytes : most.memory_bytes;
		for (unsigned i = 0; i < PROCESSES; i++) {
			int status;

			if (!workers[i] || waitpid(workers[i], &status, WNOHANG) != workers[i])
				continue;
			workers[i] = 0;
			working--;
			if (status && !atomic_fetch_add(&shared->failed, 1))
				snprintf(shared->text, sizeof(shared->text),
				         "a process ended with %d", status);
		}
	}
	for (unsigned i = 0; i < PROCESSES; i++)
		made += atomic_load(&shared->next[i]);
	printf("%u blobs of %.1f GB put, %llu of %.1f GB got, %llu held, %llu deleted, %llu gone "
	       "before they were got\n%llu left memory, %llu came back; at most %llu were away, "
	       "%.0f MB in files, %.0f MB of memory; %.1f s; the server answers in %.1f ms, at "
	       "most "
	       "%.0f\n",
	       made, (double)shared->bytes_put / 1e9, (unsigned long long)shared->gets,
	       (double)shared->bytes_got / 1e9, (unsigned long long)shared->held,
	       (unsigned long long)shared->deleted, (unsigned long long)shared->missed,
	       (unsigned long long)s.spills, (unsigned long long)s.returns,
	       (unsigned long long)most.spilled, (double)most.spilled_bytes / 1e6,
	       (double)most.memory_bytes / 1e6, seconds_now() - start, sum / asks * 1e3,
	       slowest * 1e3);
	failed = atomic_load(&shared->failed);
	if (failed) {
		printf("%u errors; the first: %s\n", failed, shared->text);
	} else {
		assert_idle(d->store);
		/* All memory is there again. */
		assert_let_go(put(d->store, "all", s.memory_limit - 4 * MIB, 0), d->store, "all");
	}
	/* It was what it is to be about. */
	if (made != size->blobs || s.spills < made / 50 || s.returns < made / 100 ||
	    most.memory_bytes > s.memory_limit)
		failed++;
	daemon_teardown((void **)&d);
	rmdir(folder);
	return failed ? 1 : 0;
}
