/* SPDX-License-Identifier: Apache-2.0 */
/* How many connections there are, how much memory they take, and who waits for whom. */
#include <malloc.h>
#include <sys/mman.h>

#include "http/cases.h"
#include "http/http_internal.h"
#include "io/io_internal.h"

HTTP_TEST(many_reads_run_side_by_side)
{
	enum { READS = 32 };
	const char *uri = fault_uri("size=100000&fault=hold:500");
	sluice_file *file = open_read(f->ctx, uri);
	struct buffer b = buffer_new(READS * 1000, 0);
	sluice_op *ops[READS];
	int i;

	for (i = 0; i < READS; i++)
		ops[i] = start_read(file, b.data + i * 1000, 1000, (uint64_t)i * 3000);
	/* None of them ends before. */
	wait_until_asked(uri, "peak", CONNECTIONS);
	for (i = 0; i < READS; i++)
		assert_int_equal(sluice_poll(ops[i]), 0);
	release_held(uri);
	for (i = 0; i < READS; i++)
		assert_moves(ops[i], 1000);
	for (i = 0; i < READS; i++)
		assert_served(b.data + i * 1000, 1000, (uint64_t)i * 3000);
	assert_ok(sluice_close(file));
	buffer_free(&b);
}

HTTP_TEST(a_read_that_stands_still_holds_up_no_other)
{
	struct buffer b = buffer_new(LONG, 0);
	char bytes[100];
	sluice_file *file;
	const char *uri;
	sluice_op *op;
	int i;

	with(f, "SLUICE_HTTP_STALL_MS", "60000");
	uri = fault_uri("size=%zu&fault=stall:1000&at=10", LONG);
	file = open_read(f->ctx, uri);
	op = start_read(file, b.data, MIB, 0);
	wait_until_asked(uri, "GET", 1);
	for (i = 0; i < 20; i++) {
		assert_read(file, bytes, 100, 2 * MIB + (uint64_t)i);
		assert_served(bytes, 100, 2 * MIB + (uint64_t)i);
	}
	assert_read(file, b.data + MIB, LONG - MIB, MIB);
	assert_served(b.data + MIB, LONG - MIB, MIB);
	assert_int_equal(sluice_poll(op), 0);
	assert_int_equal(sluice_cancel(op), 0);
	assert_int_equal(finish(op), -ECANCELED);
	assert_ok(sluice_close(file));
	buffer_free(&b);
}

/* All that may run at a time has been told to come again later. */
HTTP_TEST(a_back_off_holds_up_no_other)
{
	enum { READS = 2 * CONNECTIONS };
	struct buffer b = buffer_new(READS * 100, 0);
	const char *uri;
	sluice_op *ops[READS];
	sluice_file *file;
	double begun;
	int i;

	with(f, "SLUICE_HTTP_RETRY_MS", "60000");
	uri = fault_uri("size=50000&fault=status:503&retry_after=50");
	file = open_read(f->ctx, uri);
	for (i = 0; i < READS; i++)
		ops[i] = start_read(file, b.data + i * 100, 100, (uint64_t)i * 100);
	wait_until_asked(uri, "GET", CONNECTIONS);
	sleep_ms(50);
	begun = seconds_now();
	reads_right(f, fault_uri("size=%zu", LONG), LONG, 0);
	assert_soon(begun);
	for (i = 0; i < READS; i++) {
		assert_int_equal(sluice_cancel(ops[i]), 0);
		assert_int_equal(finish(ops[i]), -ECANCELED);
	}
	assert_ok(sluice_close(file));
	buffer_free(&b);
}

HTTP_TEST(connections_are_bounded)
{
	static const int bounds[] = {1, 3, CONNECTIONS};
	size_t i;

	for (i = 0; i < COUNT_OF(bounds); i++) {
		const char *uri = fault_uri("size=%zu&latency=5", LONG);
		struct buffer b = buffer_new(LONG, 0);
		sluice_op *ops[40];
		long most = 0, before, now;
		sluice_file *file;
		sluice_op *whole;
		char number[16];
		size_t j;

		snprintf(number, sizeof(number), "%d", bounds[i]);
		with(f, "SLUICE_MAX_CONNECTIONS", number);
		before = connections_now(); /* of a test that failed */
		file = open_read(f->ctx, uri);
		for (j = 0; j < COUNT_OF(ops); j++)
			ops[j] = start_read(file, b.data + j * 1000, 1000, j * 1000);
		for (j = 0; j < COUNT_OF(ops); j++)
			assert_moves(ops[j], 1000);
		whole = start_read(file, b.data + 40000, LONG - 40000, 40000);
		while (!sluice_poll(whole))
			most = (now = connections_now() - before) > most ? now : most;
		assert_moves(whole, LONG - 40000);
		assert_served(b.data, LONG, 0);
		print_message("%d allowed: %ld at once, %ld made, %ld requests at once\n",
		              bounds[i], most, asked(uri, "connections"), asked(uri, "peak"));
		assert_in_range(asked(uri, "peak"), 1, bounds[i]);
		assert_in_range(most, 1, bounds[i]);
		/* They are kept and used again. */
		assert_in_range(asked(uri, "connections"), 1, 2 * bounds[i] + 1);
		assert_ok(sluice_close(file));
		buffer_free(&b);
	}
}

/* Those to the server that redirects make place for those to the one that has the object. */
HTTP_TEST(connections_are_bounded_while_redirected)
{
	const char *to = fault_uri_at("other", "size=%zu&latency=5&etag=same", LONG);
	const char *uri =
		fault_uri("size=%zu&etag=same&fault=redirect:302&to=%s", LONG, as_option(to));
	struct buffer b = buffer_new(LONG, 0);
	long most = 0, before, now;
	sluice_file *file;

	with(f, "SLUICE_MAX_CONNECTIONS", "3");
	before = connections_now();
	file = open_read(f->ctx, uri);
	for (int i = 0; i < 3; i++) {
		sluice_op *op = start_read(file, b.data, LONG, 0);

		while (!sluice_poll(op))
			most = (now = connections_now() - before) > most ? now : most;
		assert_moves(op, LONG);
	}
	assert_served(b.data, LONG, 0);
	assert_in_range(most, 1, 3);
	assert_ok(sluice_close(file));
	buffer_free(&b);
}

HTTP_TEST(connection_serves_reads_in_turn)
{
	const char *uri = fault_uri("size=100000");
	sluice_file *file = open_read(f->ctx, uri);
	char bytes[100];
	int i;

	for (i = 0; i < 50; i++)
		assert_read(file, bytes, 100, (uint64_t)i * 100);
	assert_int_equal(asked(uri, "GET"), 50);
	assert_in_range(asked(uri, "connections"), 1, 3);
	assert_ok(sluice_close(file));
}

static size_t memory_in_use(void)
{
	struct mallinfo2 m = mallinfo2();

	return m.uordblks + m.hblkhd;
}

/* What is allocated while a read of that length is under way; its requests stand still. */
static size_t memory_of_read(struct fixture *f, size_t length, long *requests)
{
	const char *uri = fault_uri("size=%zu&fault=stall:100000", length);
	sluice_file *file = open_read(f->ctx, uri);
	void *data = mmap(NULL, length, PROT_READ | PROT_WRITE,
	                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	size_t before = memory_in_use(), held;
	sluice_op *op;

	if (data == MAP_FAILED)
		SKIP("no %zu GiB of addresses: %s", length >> 30, strerror(errno));
	op = start_read(file, data, length, 0);
	wait_until_asked(uri, "GET", CONNECTIONS);
	sleep_ms(200);
	held = memory_in_use();
	*requests = asked(uri, "GET");
	assert_int_equal(sluice_cancel(op), 0);
	assert_int_equal(finish(op), -ECANCELED);
	wait_until_left(uri);
	assert_ok(sluice_close(file));
	munmap(data, length);
	return held > before ? held - before : 0;
}

HTTP_TEST(a_read_of_100_gib_takes_no_more_memory_than_one_of_1_gib)
{
	long few, many;
	size_t small, large;

	if (under_sanitizer())
		SKIP("the sanitizer's own memory cannot be told from sluice's");
	with(f, "SLUICE_HTTP_STALL_MS", "60000");
	(void)memory_of_read(f, (size_t)1 << 30, &few); /* what is kept from then on */
	small = memory_of_read(f, (size_t)1 << 30, &few);
	large = memory_of_read(f, (size_t)100 << 30, &many);
	print_message("1 GiB: %zu bytes, %ld requests; 100 GiB: %zu bytes, %ld requests\n", small,
	              few, large, many);
	assert_true(large < small + MIB);
	assert_int_equal(many, CONNECTIONS);
}

/* As if the controller had come to that: it needs seconds, and a server that is fast. */
static void allow_all_connections(struct fixture *f) SL_UNCHECKED
{
	struct sl_http_limits *limits = &f->ctx->core.http->limits;

	sl_mutex_lock(&limits->mutex);
	sl_list_each (link, &limits->locked.origins) {
		struct sl_http_limit *limit = SL_CONTAINER(link, struct sl_http_limit, locked.link);

		atomic_store(&limit->allowed, limit->most);
	}
	sl_mutex_unlock(&limits->mutex);
}

/*
 * A transfer of libcurl has a buffer of 256 KiB; its handle, its connection, its request and its piece take less than
 * 64 KiB. Parts that wait for a connection are pieces alone.
 */
enum {
	FILES = 4,
	PARTS = 64,
	PART = 300 * KIB,
	OF_A_TRANSFER = (256 + 64) * KIB,
	OF_THE_REST = MIB
};

HTTP_TEST(four_files_on_256_connections_take_bounded_memory)
{
	const char *uri = fault_uri("size=%zu&fault=hold:%d", 2 * (size_t)PARTS * PART, PART / 2);
	long most = strcmp(row->remote, "easy") ? FILES * PARTS : 64;
	struct buffer b = buffer_new((size_t)FILES * PARTS * PART, 0);
	struct sluice_extent v[PARTS];
	sluice_file *files[FILES];
	sluice_op *ops[FILES];
	size_t before, held;

	with(f, "SLUICE_MAX_CONNECTIONS", "256");
	with(f, "SLUICE_HTTP_STALL_MS", "60000");
	for (int i = 0; i < FILES; i++) {
		char name[4096];

		snprintf(name, sizeof(name), "%s&number=%d", uri, i);
		files[i] = open_read(f->ctx, name);
	}
	allow_all_connections(f);
	before = memory_in_use();
	for (int i = 0; i < FILES; i++) {
		for (size_t j = 0; j < PARTS; j++)
			v[j] = (struct sluice_extent){b.data + (i * PARTS + j) * PART, PART,
			                              2 * j * PART};
		assert_ok(submit_read(files[i], v, PARTS, &ops[i]));
	}
	wait_until_asked(uri, "peak", most);
	held = memory_in_use();
	print_message("%ld requests at once take %zu KiB\n", most, (held - before) / KIB);
	if (!under_sanitizer())
		assert_true(held < before + (size_t)most * OF_A_TRANSFER + OF_THE_REST);
	release_held(uri);
	for (int i = 0; i < FILES; i++) {
		assert_moves(ops[i], PARTS * PART);
		for (size_t j = 0; j < PARTS; j++)
			assert_served(b.data + (i * PARTS + j) * PART, PART, 2 * j * PART);
		assert_ok(sluice_close(files[i]));
	}
	assert_int_equal(asked(uri, "peak"), most);
	assert_in_range(asked(uri, "connections"), most, most + FILES);
	buffer_free(&b);
}

HTTP_TEST(a_thousand_operations_at_once_on_one_file)
{
	enum { OPERATIONS = 1000, BYTES = 5001 };
	const char *uri = fault_uri("size=%zu", LONG);
	sluice_file *file = open_read(f->ctx, uri);
	struct buffer b = buffer_new((size_t)OPERATIONS * BYTES, 16);
	static sluice_op *ops[OPERATIONS];
	static uint64_t at[OPERATIONS];
	struct rng r = rng_new(1000);

	for (size_t i = 0; i < OPERATIONS; i++) {
		at[i] = rng_below(&r, LONG - BYTES);
		ops[i] = start_read(file, b.data + i * BYTES, BYTES, at[i]);
	}
	for (size_t i = 0; i < OPERATIONS; i++) {
		assert_moves(ops[i], BYTES);
		assert_served(b.data + i * BYTES, BYTES, at[i]);
	}
	assert_int_equal(asked(uri, "GET"), OPERATIONS);
	assert_in_range(asked(uri, "peak"), 1, CONNECTIONS);
	assert_ok(sluice_close(file));
	buffer_free(&b);
}

/* Every other connection is accepted, and never answered; those that answer are kept. */
static void reads_beside_mute_connections(struct fixture *f, const char *hedge)
{
	enum { READS = 40, BYTES = 50000 };
	const char *uri = fault_uri("size=%zu&mute=1", LONG);
	struct buffer b = buffer_new((size_t)READS * BYTES, 16);
	sluice_op *ops[READS];
	double begun, took;
	sluice_file *file;

	with(f, "SLUICE_HTTP_HEDGE", hedge);
	begun = seconds_now();
	file = open_read(f->ctx, uri);
	for (size_t i = 0; i < READS; i++)
		ops[i] = start_read(file, b.data + i * BYTES, BYTES, i * 3 * BYTES % LONG);
	for (size_t i = 0; i < READS; i++)
		assert_moves(ops[i], BYTES);
	took = seconds_now() - begun;
	for (size_t i = 0; i < READS; i++)
		assert_served(b.data + i * BYTES, BYTES, i * 3 * BYTES % LONG);
	print_message("hedges %s: %.2f s, %ld requests, %ld connections\n", hedge, took,
	              asked(uri, "GET"), asked(uri, "connections"));
	/* What was read came on connections that answered before: a read has not a new one each. */
	assert_in_range(asked(uri, "connections"), 3, READS);
	assert_ok(sluice_close(file));
	buffer_free(&b);
}

HTTP_TEST(half_of_the_connections_are_never_answered)
{
	impatient(f);
	with(f, "SLUICE_HTTP_RETRY_MS", "60000");
	reads_beside_mute_connections(f, "0");
	reads_beside_mute_connections(f, "1");
}

/* Many extents of a few bytes each: requests come and go, memory stays. */
HTTP_TEST(many_small_extents_are_read)
{
	enum { EXTENTS = 300 };
	const char *uri = fault_uri("size=%zu", 100 * MIB);
	sluice_file *file = open_read(f->ctx, uri);
	struct buffer b = buffer_new(EXTENTS * 700, 0);
	struct sluice_extent v[EXTENTS];
	struct rng r = rng_new(910);
	sluice_op *op = NULL;
	size_t i;

	for (i = 0; i < EXTENTS; i++)
		v[i] = (struct sluice_extent){b.data + i * 700, 700,
		                              rng_below(&r, 100 * MIB - 700)};
	assert_ok(submit_read(file, v, EXTENTS, &op));
	assert_moves(op, EXTENTS * 700);
	for (i = 0; i < EXTENTS; i++)
		assert_served(v[i].data, 700, v[i].offset);
	assert_in_range(asked(uri, "connections"), 1, CONNECTIONS + 1);
	assert_ok(sluice_close(file));
	buffer_free(&b);
}
