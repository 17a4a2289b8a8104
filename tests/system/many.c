/* SPDX-License-Identifier: Apache-2.0 */
/*
 * 100,000 operations of 4 KiB in flight at once, from four threads: right bytes, bounded memory, no
 * thread for each, nothing left behind. With STRESS=1; else a tenth of them.
 */
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include "lib/gate.h"

static int teardown(void **state);
#define MANY_TEST(name) FIXTURE_TEST_WITH(name, fixture_setup, teardown)

enum { BLOCK = 4096, THREADS = 4 };

static size_t operations, blocks;
static unsigned char *memory; /* a block for each operation */

/* One operation; what it must give is known when it is submitted. */
struct record {
	sluice_op *op;
	uint32_t block;
	uint32_t stamp; /* of the write, or what the read must find */
	bool write;
	bool taken;
};
static struct record *records;

struct submitter {
	pthread_t thread;
	sluice_file *file;
	size_t first, last; /* of records */
	unsigned index;
	uint32_t *stamps; /* by block; only this thread's blocks are written by it */
	int error;
	bool mixed;
	struct rng rng;
};

/* The contents of a block after the stamp-th write to it. */
static uint64_t seed_of(uint32_t stamp)
{
	return 1000 + stamp;
}

static void submit_one(struct submitter *s, size_t i)
{
	struct record *r = &records[i];
	struct sluice_extent v = {memory + i * BLOCK, BLOCK, 0};
	struct sluice_request q = SLUICE_REQUEST_INIT;

	/* Its own blocks, or else the order among threads would matter. */
	r->block = (uint32_t)(rng_below(&s->rng, blocks / THREADS) * THREADS + s->index);
	r->write = s->mixed && rng_below(&s->rng, 2);
	r->stamp = s->stamps[r->block];
	r->taken = false;
	v.offset = (uint64_t)r->block * BLOCK;
	if (r->write) {
		r->stamp = ++s->stamps[r->block];
		pattern_fill(v.data, BLOCK, v.offset, seed_of(r->stamp));
	}
	q.kind = r->write ? SLUICE_WRITE : SLUICE_READ;
	q.extents = &v;
	q.count = 1;
	q.user = r;
	s->error |= sluice_submit(s->file, &q, &r->op);
}

static void *submit_all(void *arg)
{
	struct submitter *s = arg;

	for (size_t i = s->first; i < s->last; i++)
		submit_one(s, i);
	return NULL;
}

/* The kernel's threads for io_uring are few as well, however many requests there are. */
static void check_threads(const struct fixture *f)
{
	struct sluice_setting s = {.size = sizeof(s)};
	size_t expected = 1, waiting = 0, i;

	for (i = 0; sluice_context_setting(f->ctx, i, &s) == 0; i++) {
		size_t count = strtoul(s.value, NULL, 10);

		if (strcmp(s.variable, "SLUICE_WORKERS") == 0)
			waiting = THREADS * (SL_MAX(count, 16) + 4);
		if (strcmp(s.variable, "SLUICE_WORKERS") == 0 ||
		    (strcmp(s.variable, "SLUICE_REACTORS") == 0 && row_has_uring()))
			expected += count;
	}
	/* A joined thread leaves /proc a moment after pthread_join() returned. Beside those that there always are,
	 * each of the files may have some that wait for storage. */
	for (i = 0; i < 200 && count_threads() - f->threads > expected + waiting; i++)
		sleep_ms(5);
	assert_in_range(count_threads() - f->threads, expected, expected + waiting);
	assert_in_range(count_threads_named("iou-"), 0, 64);
}

/* Submits all of them while the gate is closed, so that all are in flight at the same time. */
static void fill(struct fixture *f, sluice_file **files, uint32_t *stamps, bool mixed)
{
	struct submitter s[THREADS];
	size_t before = resident_bytes(), after, running = 0, i;
	unsigned t;

	gate_close(NULL);
	for (t = 0; t < THREADS; t++) {
		s[t] = (struct submitter){.file = files[t],
		                          .first = operations / THREADS * t,
		                          .last = operations / THREADS * (t + 1),
		                          .index = t,
		                          .stamps = stamps,
		                          .mixed = mixed,
		                          .rng = rng_new(700 + t)};
		assert_int_equal(pthread_create(&s[t].thread, NULL, submit_all, &s[t]), 0);
	}
	for (t = 0; t < THREADS; t++) {
		pthread_join(s[t].thread, NULL);
		assert_int_equal(s[t].error, 0);
	}
	after = resident_bytes();
	for (i = 0; i < operations; i++)
		running += !sluice_poll(records[i].op);
	print_message("%zu operations in flight take %zu bytes each\n", running,
	              after > before ? (after - before) / operations : 0);
	assert_int_equal(running, operations);
	if (!under_sanitizer())
		assert_in_range(after, 0, before + operations * 2048 + 8 * MIB);
	check_threads(f);
}

static void check_one(struct record *r)
{
	unsigned char *data = memory + (size_t)(r - records) * BLOCK;

	assert_moves(r->op, BLOCK);
	r->op = NULL;
	assert_pattern(data, BLOCK, (uint64_t)r->block * BLOCK, seed_of(r->stamp));
}

static void open_four(struct fixture *f, const char *path, sluice_file **files)
{
	struct sluice_config c = row_config();

	config_tune(&c, "inline_bytes", 1); /* each goes the long way */
	fixture_config(f, &c);
	for (int t = 0; t < THREADS; t++)
		files[t] = open_both(f->ctx, path);
}

static void close_four(sluice_file **files)
{
	for (int t = 0; t < THREADS; t++)
		assert_ok(sluice_close(files[t]));
}

static void run(struct fixture *f, bool mixed, int rounds)
{
	const char *path = scratch(f, "blocks");
	uint32_t *stamps = calloc(blocks, sizeof(*stamps));
	size_t descriptors, after_first = 0, i;
	sluice_file *files[THREADS];
	unsigned char *whole;
	int round;

	file_make(path, blocks * BLOCK, seed_of(0));
	open_four(f, path, files);
	descriptors = count_descriptors();
	for (round = 0; round < rounds; round++) {
		file_set_residency(path, round % 2 ? CACHED : COLD);
		fill(f, files, stamps, mixed);
		gate_open();
		for (i = 0; i < operations; i++)
			check_one(&records[i]);
		assert_int_equal(count_descriptors(), descriptors);
		if (round == 0)
			after_first = resident_bytes();
	}
	/* What the first round took was enough for all of them. */
	if (!under_sanitizer())
		assert_in_range(resident_bytes(), 0, after_first + operations * 300 + 16 * MIB);
	close_four(files);
	whole = malloc(blocks * BLOCK);
	file_read(path, whole, blocks * BLOCK, 0);
	for (i = 0; i < blocks; i++)
		assert_pattern(whole + i * BLOCK, BLOCK, i * BLOCK, seed_of(stamps[i]));
	free(whole);
	free(stamps);
}

MANY_TEST(reads_in_flight_are_bounded_in_memory_and_right)
{
	run(f, false, 3);
}

MANY_TEST(reads_and_writes_in_flight_are_bounded_in_memory_and_right)
{
	run(f, true, 3);
}

struct taker {
	pthread_t thread;
	sluice_context *ctx;
	size_t taken, twice;
};

static void *take_all(void *arg)
{
	struct taker *t = arg;
	sluice_op *op;

	while (sluice_queue_next(sluice_context_queue(t->ctx), 2000, &op) == 0) {
		struct record *r = sluice_op_user(op);

		t->taken++;
		t->twice += r->taken;
		r->taken = true;
	}
	return NULL;
}

MANY_TEST(each_of_them_is_taken_from_the_queue_once)
{
	const char *path = scratch(f, "blocks");
	uint32_t *stamps = calloc(blocks, sizeof(*stamps));
	sluice_file *files[THREADS];
	struct taker takers[THREADS];
	size_t total = 0, i;
	int t;

	file_make(path, blocks * BLOCK, seed_of(0));
	open_four(f, path, files);
	fill(f, files, stamps, true);
	for (t = 0; t < THREADS; t++) {
		takers[t] = (struct taker){.ctx = f->ctx};
		assert_int_equal(pthread_create(&takers[t].thread, NULL, take_all, &takers[t]), 0);
	}
	gate_open();
	for (t = 0; t < THREADS; t++) {
		pthread_join(takers[t].thread, NULL);
		total += takers[t].taken;
		assert_int_equal(takers[t].twice, 0);
	}
	assert_int_equal(total, operations);
	for (i = 0; i < operations; i++) {
		assert_true(records[i].taken);
		check_one(&records[i]);
	}
	close_four(files);
	free(stamps);
}

/* Nobody keeps a handle, and close alone waits for all of them. */
MANY_TEST(close_waits_for_all_of_them)
{
	const char *path = scratch(f, "blocks");
	uint32_t *stamps = calloc(blocks, sizeof(*stamps));
	sluice_file *files[THREADS];
	unsigned char *whole = malloc(blocks * BLOCK);
	size_t i;

	file_make(path, blocks * BLOCK, seed_of(0));
	open_four(f, path, files);
	fill(f, files, stamps, true);
	for (i = 0; i < operations; i++)
		sluice_op_free(records[i].op);
	gate_open();
	close_four(files);
	file_read(path, whole, blocks * BLOCK, 0);
	for (i = 0; i < blocks; i++)
		assert_pattern(whole + i * BLOCK, BLOCK, i * BLOCK, seed_of(stamps[i]));
	free(whole);
	free(stamps);
}

static int teardown(void **state)
{
	gate_reset();
	return fixture_teardown(state);
}

int main(int argc, char **argv)
{
	row_start(argc, argv);
	operations = under_stress() ? 100000 : 10000;
	blocks = under_stress() ? 65536 : 8192;
	records = calloc(operations, sizeof(*records));
	memory = mmap(NULL, operations * BLOCK, PROT_READ | PROT_WRITE,
	              MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	if (!records || memory == MAP_FAILED) {
		printf("skipped: there is no memory for %zu blocks\n", operations);
		return 77;
	}
	printf("row %s, %zu operations\n", row->name, operations);
	return RUN_TESTS(NULL, NULL);
}
