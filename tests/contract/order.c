/* SPDX-License-Identifier: Apache-2.0 */
#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <unistd.h>

#include "contract/contract.h"

static const size_t edges[] = {1, 4096, 5000, 64 * 1024, 300 * 1024 + 1, 1024 * 1024};

static size_t length_of(size_t i)
{
	return edges[i] > 64 * KIB ? row_bytes(edges[i]) : edges[i];
}

/* Writes through one handle and reads through the other, without waiting in between. */
static void check_read_after_write(sluice_file *writing, sluice_file *reading)
{
	size_t i;
	int round;

	for (i = 0; i < COUNT_OF(edges); i++) {
		for (round = 0; round < rounds_of(10); round++) {
			size_t n = length_of(i), into = n / 3;
			uint64_t at = round % 2 ? 12345 : 8192, seed = i * 100 + round;
			struct buffer src = buffer_new(n, 0), dst = buffer_new(n, 0);
			struct buffer part = buffer_new(n - into, 16);
			sluice_op *write, *whole, *tail;

			pattern_fill(src.data, n, at, seed);
			write = start_write(writing, src.data, n, at);
			whole = start_read(reading, dst.data, n, at);
			tail = start_read(reading, part.data, n - into, at + into);
			assert_moves(tail, n - into);
			assert_pattern(part.data, n - into, at + into, seed);
			assert_moves(whole, n);
			assert_pattern(dst.data, n, at, seed);
			assert_moves(write, n);
			buffer_free(&src);
			buffer_free(&dst);
			buffer_free(&part);
		}
	}
}

FIXTURE_TEST(a_read_sees_the_write_submitted_before_it)
{
	sluice_file *file = open_both(f->ctx, scratch(f, "raw"));

	check_read_after_write(file, file);
	assert_ok(sluice_close(file));
}

FIXTURE_TEST(the_order_holds_through_two_handles)
{
	sluice_file *a = open_both(f->ctx, scratch(f, "two"));
	sluice_file *b = open_read(f->ctx, scratch(f, "two"));

	check_read_after_write(a, b);
	assert_ok(sluice_close(a));
	assert_ok(sluice_close(b));
}

FIXTURE_TEST(the_order_holds_through_other_names_of_the_file)
{
	const char *path = scratch(f, "named"), *hard = scratch(f, "hard");
	const char *soft = scratch(f, "soft");
	sluice_file *a = open_both(f->ctx, path), *b, *c;

	assert_int_equal(link(path, hard), 0);
	assert_int_equal(symlink("hard", soft), 0);
	b = open_both(f->ctx, hard);
	c = open_read(f->ctx, soft);
	check_read_after_write(a, b);
	check_read_after_write(b, c);
	/* Also when no name is left. */
	unlink(path);
	unlink(hard);
	check_read_after_write(a, c);
	assert_ok(sluice_close(a));
	assert_ok(sluice_close(b));
	assert_ok(sluice_close(c));
}

FIXTURE_TEST(the_order_holds_between_backends)
{
	struct sluice_open_options o = SLUICE_OPEN_OPTIONS_INIT;
	sluice_file *posix, *uring;

	if (!row_has_uring())
		SKIP("row \"%s\" has no io_uring", row->name);
	o.flags = SLUICE_OPEN_READ | SLUICE_OPEN_WRITE | SLUICE_OPEN_CREATE;
	o.backend = "posix";
	assert_ok(sluice_open(f->ctx, scratch(f, "backends"), &o, &posix));
	o.backend = "uring";
	assert_ok(sluice_open(f->ctx, scratch(f, "backends"), &o, &uring));
	check_read_after_write(posix, uring);
	check_read_after_write(uring, posix);
	assert_ok(sluice_close(posix));
	assert_ok(sluice_close(uring));
}

FIXTURE_TEST(a_write_does_not_overtake_a_read)
{
	const char *path = scratch(f, "war");
	size_t i;
	int round;

	for (i = 0; i < COUNT_OF(edges); i++) {
		size_t n = length_of(i);
		struct buffer news = buffer_new(n, 0), dst = buffer_new(n, 0);
		sluice_file *file;

		file_make(path, 2 * MIB, 1);
		file = open_both(f->ctx, path);
		for (round = 0; round < rounds_of(8); round++) {
			uint64_t at = round * 10000;
			sluice_op *read, *write;

			if (round % 2)
				file_set_residency(path, COLD);
			file_make(path, 2 * MIB, 1);
			pattern_fill(news.data, n, at, 2);
			read = start_read(file, dst.data, n, at);
			write = start_write(file, news.data, n, at);
			assert_moves(write, n);
			assert_moves(read, n);
			assert_pattern(dst.data, n, at, 1);
			assert_read(file, dst.data, n, at);
			assert_pattern(dst.data, n, at, 2);
		}
		assert_ok(sluice_close(file));
		buffer_free(&news);
		buffer_free(&dst);
	}
}

FIXTURE_TEST(the_last_of_many_overlapping_writes_wins)
{
	enum { WRITES = 100, SPAN = 40000 };
	const char *path = scratch(f, "waw");
	struct buffer src = buffer_new(WRITES * SPAN, 0), dst = buffer_new(SPAN, 0);
	sluice_file *file[3];
	sluice_op *ops[WRITES], *last;
	int i;

	for (i = 0; i < 3; i++)
		file[i] = open_both(f->ctx, path);
	for (i = 0; i < WRITES; i++) {
		pattern_fill(src.data + i * SPAN, SPAN, 0, (uint64_t)i);
		ops[i] = start_write(file[i % 3], src.data + i * SPAN, SPAN, 0);
	}
	last = start_read(file[0], dst.data, SPAN, 0);
	assert_moves(last, SPAN);
	assert_pattern(dst.data, SPAN, 0, WRITES - 1);
	for (i = 0; i < WRITES; i++) {
		assert_int_equal(sluice_poll(ops[i]), 1);
		assert_moves(ops[i], SPAN);
	}
	assert_file_is(path, src.data + (WRITES - 1) * SPAN, SPAN);
	for (i = 0; i < 3; i++)
		assert_ok(sluice_close(file[i]));
	buffer_free(&src);
	buffer_free(&dst);
}

/* Only some extents overlap; the others must neither break the order nor the bytes. */
FIXTURE_TEST(the_order_holds_extent_by_extent)
{
	enum { BLOCK = 10000, BLOCKS = 20 };
	struct buffer a = buffer_new(BLOCK * BLOCKS, 0), b = buffer_new(BLOCK * BLOCKS, 0);
	struct buffer dst = buffer_new(BLOCK * BLOCKS, 0);
	struct sluice_extent even[BLOCKS / 2], third[BLOCKS / 3];
	sluice_file *file = open_both(f->ctx, scratch(f, "extents"));
	sluice_op *all, *evens, *thirds, *read;
	uint64_t i;

	pattern_fill(a.data, a.length, 0, 1);
	pattern_fill(b.data, b.length, 0, 2);
	for (i = 0; i < BLOCKS / 2; i++)
		even[i] = (struct sluice_extent){b.data + 2 * i * BLOCK, BLOCK, 2 * i * BLOCK};
	for (i = 0; i < BLOCKS / 3; i++)
		third[i] = (struct sluice_extent){a.data + 3 * i * BLOCK, BLOCK, 3 * i * BLOCK};
	all = start_write(file, a.data, a.length, 0);
	assert_ok(submit_write(file, even, COUNT_OF(even), &evens));
	assert_ok(submit_write(file, third, COUNT_OF(third), &thirds));
	read = start_read(file, dst.data, dst.length, 0);
	assert_moves(read, dst.length);
	assert_moves(all, a.length);
	assert_moves(evens, COUNT_OF(even) * BLOCK);
	assert_moves(thirds, COUNT_OF(third) * BLOCK);
	for (i = 0; i < BLOCKS; i++) {
		bool from_a = i % 2 == 1 || (i % 3 == 0 && i / 3 < BLOCKS / 3);

		assert_pattern(dst.data + i * BLOCK, BLOCK, i * BLOCK, from_a ? 1 : 2);
	}
	assert_ok(sluice_close(file));
	buffer_free(&a);
	buffer_free(&b);
	buffer_free(&dst);
}

FIXTURE_TEST(truncate_keeps_its_place_among_writes)
{
	const size_t whole = row_bytes(500000), fifth = whole / 5 + 1;
	const char *path = scratch(f, "truncate");
	unsigned char *expected = calloc(1, whole);
	struct buffer src = buffer_new(whole, 0), dst = buffer_new(whole, 0);
	sluice_file *file = open_both(f->ctx, path), *other = open_both(f->ctx, path);
	int round;

	pattern_fill(src.data, src.length, 0, 1);
	memcpy(expected, src.data, fifth);
	for (round = 0; round < rounds_of(20); round++) {
		sluice_op *before = start_write(file, src.data, whole, 0), *read, *after;

		read = start_read(file, dst.data, whole, 0);
		assert_ok(sluice_truncate(other, fifth));
		assert_moves(before, whole);
		assert_moves(read, whole);
		assert_bytes(dst.data, src.data, whole);
		assert_int_equal(file_length(path), fifth);
		after = start_write(file, src.data + 3 * fifth, whole - 3 * fifth, 3 * fifth);
		assert_ok(sluice_truncate(other, 4 * fifth));
		assert_moves(after, whole - 3 * fifth);
		memcpy(expected + 3 * fifth, src.data + 3 * fifth, fifth);
		assert_file_is(path, expected, 4 * fifth);
	}
	assert_ok(sluice_close(file));
	assert_ok(sluice_close(other));
	free(expected);
	buffer_free(&src);
	buffer_free(&dst);
}

/* The kernel and sluice's threads write what this reads; it is only a sign that a read began. */
__attribute__((no_sanitize("thread"))) static bool differs(const volatile unsigned char *p,
                                                           size_t n, size_t step, int from)
{
	for (size_t i = 0; i < n; i += step)
		if (p[i] != from)
			return true;
	return false;
}

/*
 * The long read has begun (its destination has changed), then the short one is submitted, and it
 * is over while the long one is not. That a try misses it proves nothing, one success proves it. Few
 * pieces of the long one are in flight at a time: a disk that has all of them does them first.
 */
ROW_TEST(order_reads_on_a_handle_overlap_in_time, .memory = WATCHED, .order = ONE_STREAM)
{
	size_t length = row_bytes(96 * MIB), tries;
	struct buffer b = buffer_new(length, 0), small = buffer_new(4096, 0);
	const char *path = scratch(f, "overlap");
	struct sluice_config c = row_config();
	bool proved = false;
	sluice_file *file;

	config_tune(&c, "operation_depth", 4);
	fixture_config(f, &c);
	file_make(path, length + 4096, 1);
	file = open_read(f->ctx, path);
	for (tries = 0; tries < 60 && !proved; tries++) {
		double deadline = seconds_now() + 20;
		sluice_op *longer, *shorter;

		file_set_residency(path, tries % 2 ? CACHED : COLD);
		memset(b.data, 0, length);
		longer = start_read(file, b.data, length, 0);
		while (!differs(b.data, length, 64 * KIB, 0) && seconds_now() < deadline)
			;
		shorter = start_read(file, small.data, 4096, length);
		assert_int_equal(sluice_wait(shorter, PATIENCE_MS), 4096);
		proved = !sluice_poll(longer);
		assert_moves(longer, length);
		assert_pattern(b.data, length, 0, 1);
		assert_pattern(small.data, 4096, length, 1);
		sluice_op_free(shorter);
	}
	assert_true(proved);
	assert_ok(sluice_close(file));
	buffer_free(&b);
	buffer_free(&small);
}

struct rewriting {
	sluice_file *file;
	size_t length;
	int writes;
	_Atomic bool over;
};

/* The first and the last page, which a read from front to back comes to at different times. */
static void *rewrite(void *argument)
{
	struct rewriting *r = argument;
	unsigned char page[4096];
	struct sluice_extent v[2] = {{page, sizeof(page), 0},
	                             {page, sizeof(page), r->length - sizeof(page)}};

	for (int i = 0; i < r->writes; i++) {
		sluice_op *op = NULL;

		memset(page, i, sizeof(page));
		if (submit_write(r->file, v, 2, &op))
			break;
		sluice_wait(op, -1);
		sluice_op_free(op);
		sleep_ms(i % 3);
	}
	atomic_store(&r->over, true);
	return NULL;
}

FIXTURE_TEST(a_read_beside_a_write_is_all_old_or_all_new)
{
	struct sluice_config c = SLUICE_CONFIG_INIT;
	struct rewriting r = {.length = 4 * MIB, .writes = rounds_of(120)};
	struct buffer b = buffer_new(r.length, 0);
	pthread_t thread;
	int torn = 0;

	/* So long that writes come while the submitting call copies. */
	c.backend = row->config.backend;
	config_tune(&c, "inline_bytes", r.length);
	config_tune(&c, "piece_bytes", r.length);
	c.direct_bytes = (size_t)1 << 40;
	fixture_config(f, &c);
	r.file = open_both(f->ctx, scratch(f, "torn"));
	memset(b.data, 0, b.length);
	assert_write(r.file, b.data, b.length, 0);
	assert_int_equal(pthread_create(&thread, NULL, rewrite, &r), 0);
	while (!atomic_load(&r.over)) {
		sluice_op *op;

		assert_ok(sluice_read(r.file, b.data, b.length, 0, &op));
		assert_int_equal(sluice_wait(op, -1), b.length);
		sluice_op_free(op);
		torn += b.data[0] != b.data[b.length - 1];
	}
	pthread_join(thread, NULL);
	assert_int_equal(torn, 0);
	assert_ok(sluice_close(r.file));
	buffer_free(&b);
}
