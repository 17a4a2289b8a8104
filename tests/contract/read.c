/* SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "contract/contract.h"

/* Larger than a few pieces, and odd. */
#define LENGTH (5 * MIB + 777)

static size_t piece_of_row(void)
{
	size_t piece = config_tuned(&row->config, "piece_bytes");

	return piece ? piece : MIB;
}

FIXTURE_TEST(a_whole_file_is_read)
{
	size_t piece = piece_of_row(), i, skew;
	const size_t lengths[] = {0,     1,         511,   512,       4095,      4096,  4097,
	                          65536, piece - 1, piece, piece + 1, 2 * piece, LENGTH};
	static const size_t skews[] = {0, 16, 1, 512};

	for (i = 0; i < COUNT_OF(lengths); i++) {
		const char *path = scratch(f, "whole");
		sluice_file *file;

		if (!lengths[i] && row_is_store())
			continue;
		file_make(path, lengths[i], i);
		file_set_residency(path, (enum residency)(i % RESIDENCIES));
		file = open_read(f->ctx, address(f, "whole"));
		for (skew = 0; skew < COUNT_OF(skews); skew++) {
			struct buffer b = buffer_new(lengths[i], skews[skew]);

			assert_read(file, b.data, lengths[i], 0);
			assert_pattern(b.data, lengths[i], 0, i);
			buffer_free(&b);
		}
		assert_ok(sluice_close(file));
	}
}

/* Random ranges, each read while the others are in flight. */
static void read_ranges(struct fixture *f, enum residency residency)
{
	enum { AT_ONCE = 8 };
	const char *path = scratch(f, "ranges");
	struct rng r = rng_new(100 + residency);
	static const size_t skews[] = {0, 16, 1, 512, 4095};
	sluice_file *file;
	int round, i;

	file_make(path, LENGTH, 7);
	file = open_read(f->ctx, address(f, "ranges"));
	for (round = 0; round < rounds_of(12); round++) {
		sluice_op *ops[AT_ONCE];
		struct buffer b[AT_ONCE];
		uint64_t offset[AT_ONCE];

		if (round % 4 == 0)
			file_set_residency(path, residency);
		for (i = 0; i < AT_ONCE; i++) {
			size_t n = rng_length(&r, piece_of_row(), 2 * MIB);

			offset[i] = rng_below(&r, LENGTH - n + 1);
			if (rng_below(&r, 3) == 0)
				offset[i] &= ~4095ull;
			b[i] = buffer_new(n, skews[rng_below(&r, COUNT_OF(skews))]);
			ops[i] = start_read(file, b[i].data, n, offset[i]);
		}
		for (i = AT_ONCE; i-- > 0;) {
			assert_moves(ops[i], b[i].length);
			assert_pattern(b[i].data, b[i].length, offset[i], 7);
			buffer_free(&b[i]);
		}
	}
	assert_ok(sluice_close(file));
}

FIXTURE_TEST(any_range_of_a_cold_file_is_read)
{
	read_ranges(f, COLD);
}

FIXTURE_TEST(any_range_of_a_cached_file_is_read)
{
	read_ranges(f, CACHED);
}

FIXTURE_TEST(any_range_of_a_half_cached_file_is_read)
{
	read_ranges(f, HALF_CACHED);
}

FIXTURE_TEST(a_read_across_the_end_gives_what_is_there)
{
	static const size_t lengths[] = {1, 4095, 4096, 4097, MIB + 5, 3 * MIB, LENGTH};
	size_t i;

	for (i = 0; i < COUNT_OF(lengths); i++) {
		size_t length = lengths[i], before = length < 2 * MIB ? length : 2 * MIB;
		const char *path = scratch(f, "end");
		struct buffer b = buffer_new(4 * MIB, i % 2 ? 16 : 0);
		sluice_file *file;
		int cold;

		file_make(path, length, i);
		file = open_read(f->ctx, address(f, "end"));
		for (cold = 0; cold < 2; cold++) {
			file_set_residency(path, cold ? COLD : CACHED);
			assert_int_equal(read_now(file, b.data, 4 * MIB, length - before), before);
			assert_pattern(b.data, before, length - before, i);
			assert_int_equal(read_now(file, b.data, 4 * MIB, length - 1), 1);
			assert_pattern(b.data, 1, length - 1, i);
			assert_int_equal(read_now(file, b.data, 100, length - 1), 1);
		}
		assert_ok(sluice_close(file));
		buffer_free(&b);
	}
}

FIXTURE_TEST(a_read_past_the_end_gives_nothing)
{
	const char *path = scratch(f, "past");
	struct buffer b = buffer_new(2 * MIB, 0);
	static const uint64_t past[] = {10000, 10001, 12288, MIB, 1ull << 40, INT64_MAX - 2 * MIB};
	sluice_file *file;
	size_t i;

	file_make(path, 10000, 1);
	file = open_read(f->ctx, address(f, "past"));
	for (i = 0; i < COUNT_OF(past); i++) {
		assert_int_equal(read_now(file, b.data, 2 * MIB, past[i]), 0);
		assert_int_equal(read_now(file, b.data, 1, past[i]), 0);
	}
	assert_int_equal(read_now(file, b.data, 10, INT64_MAX - 10), 0);
	assert_int_equal(read_now(file, b.data, 0, INT64_MAX), 0);
	assert_ok(sluice_close(file));
	buffer_free(&b);
}

FIXTURE_TEST(an_empty_file_reads_as_nothing)
{
	const char *path = scratch(f, "empty");
	struct buffer b = buffer_new(MIB, 0);
	sluice_file *file;

	if (row_is_store())
		SKIP("a blob has at least one byte");
	file_make(path, 0, 1);
	file = open_read(f->ctx, address(f, "empty"));
	assert_int_equal(read_now(file, b.data, MIB, 0), 0);
	assert_int_equal(read_now(file, b.data, 0, 0), 0);
	assert_int_equal(read_now(file, b.data, 1, 5), 0);
	assert_ok(sluice_close(file));
	buffer_free(&b);
}

FIXTURE_TEST(a_range_beyond_int64_max_is_refused)
{
	sluice_file *file = open_any(f, "far");
	sluice_op *op = NULL;
	char byte = 0;

	assert_refused(sluice_read(file, &byte, 1, INT64_MAX, &op), EINVAL, "");
	assert_refused(sluice_read(file, &byte, 11, INT64_MAX - 10, &op), EINVAL, "");
	assert_refused(sluice_read(file, &byte, 1, UINT64_MAX, &op), EINVAL, "");
	assert_refused(sluice_read(file, &byte, 0, (uint64_t)INT64_MAX + 1, &op), EINVAL, "");
	assert_refused(sluice_read(file, &byte, SIZE_MAX, 2, &op), EINVAL, "");
	assert_refused(sluice_read(file, &byte, SIZE_MAX, 0, &op), EINVAL, "");
	if (!row->remote) {
		assert_refused(sluice_write(file, &byte, 1, INT64_MAX, &op), EINVAL, "");
		assert_refused(sluice_write(file, &byte, 1, UINT64_MAX, &op), EINVAL, "");
	}
	assert_refused(sluice_read(file, &byte, 1, UINT64_MAX, NULL), EINVAL, "");
	assert_null(op);
	assert_ok(sluice_close(file));
}

FIXTURE_TEST(null_data_is_refused)
{
	sluice_file *file = open_any(f, "null");
	sluice_op *op = NULL;

	assert_refused(sluice_read(file, NULL, 1, 0, &op), EINVAL, "");
	if (!row->remote)
		assert_refused(sluice_write(file, NULL, 1, 0, &op), EINVAL, "");
	assert_null(op);
	assert_ok(sluice_close(file));
}

ROW_TEST(memory_that_cannot_be_written_fails_the_read,
         .remote = "libcurl's data is copied by the CPU, which ends the program there",
         .memory = NO_PROTECTION)
{
	const char *path = scratch(f, "fault");
	static const size_t lengths[] = {100, 4096, 2 * MIB};
	void *closed = mmap(NULL, 2 * MIB, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	sluice_file *file;
	size_t i;

	file_make(path, 2 * MIB, 1);
	file = open_read(f->ctx, path);
	for (i = 0; i < COUNT_OF(lengths); i++) {
		file_set_residency(path, CACHED);
		assert_fails(start_read(file, closed, lengths[i], 0), EFAULT);
		file_set_residency(path, COLD);
		assert_fails(start_read(file, closed, lengths[i], 0), EFAULT);
	}
	assert_ok(sluice_close(file));
	munmap(closed, 2 * MIB);
}

FIXTURE_TEST(holes_read_as_zeros)
{
	const char *path = scratch(f, "sparse");
	struct buffer b = buffer_new(8 * MIB, 0);
	unsigned char *expected = calloc(1, 8 * MIB);
	struct sluice_file_info st = {.size = sizeof(st)};
	sluice_file *file;
	int r;

	file_truncate((file_make(path, 0, 0), path), 8 * MIB);
	pattern_fill(expected + 3 * MIB + 5, 100000, 0, 9);
	file_write(path, expected + 3 * MIB + 5, 100000, 3 * MIB + 5);
	file = open_read(f->ctx, address(f, "sparse"));
	for (r = 0; r < RESIDENCIES; r++) {
		file_set_residency(path, (enum residency)r);
		memset(b.data, 0xff, b.length);
		assert_read(file, b.data, 8 * MIB, 0);
		assert_bytes(b.data, expected, 8 * MIB);
	}
	assert_ok(sluice_stat(file, &st));
	assert_int_equal(st.length, 8 * MIB);
	if (!row->remote)
		assert_true(st.allocated < st.length);
	assert_ok(sluice_close(file));
	free(expected);
	buffer_free(&b);
}

/* Dirty pages lie before what a direct read would fetch from the disk. */
LOCAL_TEST(bytes_that_another_program_just_wrote_are_read,
           "a remote file that changes is an error; see the changed ETag in "
           "tests/engine/http")
{
	const char *path = scratch(f, "dirty");
	struct buffer b = buffer_new(3 * MIB, 0);
	sluice_file *file;
	uint64_t round;

	file_make(path, 3 * MIB, 1);
	file = open_read(f->ctx, path);
	for (round = 2; round < 8; round++) {
		unsigned char *news = malloc(3 * MIB);

		if (round % 2)
			file_set_residency(path, COLD);
		pattern_fill(news, 3 * MIB, 0, round);
		file_write(path, news, 3 * MIB, 0);
		assert_read(file, b.data, 3 * MIB, 0);
		assert_bytes(b.data, news, 3 * MIB);
		free(news);
	}
	assert_ok(sluice_close(file));
	buffer_free(&b);
}

LOCAL_TEST(a_file_that_grew_is_read_to_its_new_end,
           "a remote file that changes is an error; see the changed ETag in "
           "tests/engine/http")
{
	const char *path = scratch(f, "grown");
	struct buffer b = buffer_new(4 * MIB, 0);
	sluice_file *file;

	file_make(path, 1000, 3);
	file = open_read(f->ctx, path);
	assert_int_equal(read_now(file, b.data, 4 * MIB, 0), 1000);
	file_make(path, 2 * MIB + 11, 3);
	assert_int_equal(read_now(file, b.data, 4 * MIB, 0), 2 * MIB + 11);
	assert_pattern(b.data, 2 * MIB + 11, 0, 3);
	file_truncate(path, 5000);
	assert_int_equal(read_now(file, b.data, 4 * MIB, 0), 5000);
	assert_pattern(b.data, 5000, 0, 3);
	assert_ok(sluice_close(file));
	buffer_free(&b);
}

/* How many pages of a file are in the page cache. */
static size_t resident_pages(const char *path)
{
	size_t length = (size_t)file_length(path), page = (size_t)sysconf(_SC_PAGESIZE);
	size_t pages = (length + page - 1) / page, count = 0;
	unsigned char *states = malloc(pages);
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	void *mapping = mmap(NULL, length, PROT_READ, MAP_SHARED, fd, 0);

	assert_ptr_not_equal(mapping, MAP_FAILED);
	assert_int_equal(mincore(mapping, length, states), 0);
	for (size_t i = 0; i < pages; i++)
		count += states[i] & 1;
	munmap(mapping, length);
	close(fd);
	free(states);
	return count;
}

/* Reads all of a file at once, and then small parts of it. */
static void read_large_and_small(sluice_file *file, struct buffer *b, size_t n)
{
	struct rng rng = rng_new(3);

	assert_read(file, b->data, n, 0);
	assert_pattern(b->data, n, 0, 4);
	for (int i = 0; i < 100; i++) {
		size_t length = 1 + rng_below(&rng, 10000), at = rng_below(&rng, n - length);

		assert_read(file, b->data, length, at);
		assert_pattern(b->data, length, at, 4);
	}
}

LOCAL_TEST(a_read_of_an_uncached_file_leaves_the_page_cache_as_it_was, "remote files have no pages")
{
	const size_t n = row_bytes(64 * MIB) + 5000;
	const char *path = scratch(f, "uncached");
	struct buffer b = buffer_new(n, 16);
	sluice_file *file;
	size_t pages;

	if (row->config.backend && !strcmp(row->config.backend, "cufile"))
		SKIP("cuFile decides about its own reads");
	file_make(path, n, 4);
	file_set_residency(path, COLD);
	if (resident_pages(path)) {
		buffer_free(&b);
		SKIP("this file system keeps all pages");
	}
	assert_ok(open_flags(f->ctx, path, SLUICE_OPEN_READ | SLUICE_OPEN_UNCACHED, &file));
	/* The kernel drops no page that it is busy with at that moment. */
	for (int attempt = 0; attempt < 5; attempt++) {
		file_set_residency(path, COLD);
		read_large_and_small(file, &b, n);
		if (!resident_pages(path))
			break;
	}
	assert_int_equal(resident_pages(path), 0);
	/* Without the flag, pages stay. */
	sluice_file *other = open_read(f->ctx, path);
	read_large_and_small(other, &b, n);
	assert_int_not_equal(resident_pages(path), 0);
	assert_ok(sluice_close(other));
	/* Pages that are there stay, but for those that the kernel itself needs meanwhile. A page that it moves looks
	 * absent for a moment, and a large piece with it. */
	for (int attempt = 0; attempt < 5; attempt++) {
		file_set_residency(path, CACHED);
		pages = resident_pages(path);
		read_large_and_small(file, &b, n);
		if (resident_pages(path) >= pages - pages / 200)
			break;
	}
	assert_in_range(resident_pages(path), pages - pages / 200, pages);
	assert_ok(sluice_close(file));
	buffer_free(&b);
}

/* Growing may or may not be seen; what was there must be, and what comes must be right. */
LOCAL_TEST(a_file_that_grows_during_a_read_gives_right_bytes,
           "a remote file that changes is an error; see the changed ETag in "
           "tests/engine/http")
{
	const size_t half = row_bytes(3 * MIB) + 100, whole = 2 * half;
	const char *path = scratch(f, "growing");
	struct buffer b = buffer_new(whole, 0);
	unsigned char *all = malloc(whole);
	int round;

	pattern_fill(all, whole, 0, 3);
	for (round = 0; round < 6; round++) {
		sluice_file *file;
		sluice_op *op;
		int64_t got;

		file_make(path, half, 3);
		file_set_residency(path, (enum residency)(round % RESIDENCIES));
		file = open_read(f->ctx, path);
		op = start_read(file, b.data, whole, 0);
		file_write(path, all + half, half, half);
		got = finish(op);
		assert_in_range(got, half, whole);
		assert_bytes(b.data, all, (size_t)got);
		assert_ok(sluice_close(file));
	}
	free(all);
	buffer_free(&b);
}

LOCAL_TEST(a_file_that_shrinks_during_a_read_never_makes_it_short,
           "a remote file that changes is an error; see the changed ETag in "
           "tests/engine/http")
{
	const char *path = scratch(f, "shrinking");
	struct buffer b = buffer_new(row_bytes(16 * MIB), 0);
	int round, failed = 0;

	for (round = 0; round < 6; round++) {
		sluice_file *file;
		sluice_op *op;
		int64_t got;

		file_make(path, b.length, 3);
		file_set_residency(path, (enum residency)(round % RESIDENCIES));
		file = open_read(f->ctx, path);
		op = start_read(file, b.data, b.length, 0);
		file_truncate(path, 1000);
		got = sluice_wait(op, PATIENCE_MS);
		if (got == -EIO) {
			assert_non_null(strstr(sluice_op_message(op), "shrinking"));
			failed++;
		} else {
			assert_int_equal(got, b.length);
		}
		sluice_op_free(op);
		assert_ok(sluice_close(file));
	}
	print_message("%d of %d reads met the missing bytes\n", failed, round);
	buffer_free(&b);
}

/*
 * Returns whether the descriptor may be libcurl's: its multi handle has a pair of sockets for wake-ups, in newer versions a pipe,
 * and sets no flags. sluice has pipes in uring.c only, which the rows of local files cover.
 */
static bool is_of_libcurl(int fd)
{
	struct sockaddr_storage a = {0};
	socklen_t n = sizeof(a);
	struct stat info;

	if (!row->remote || fstat(fd, &info))
		return false;
	return S_ISFIFO(info.st_mode) ||
	       (getsockname(fd, (struct sockaddr *)&a, &n) == 0 && a.ss_family == AF_UNIX);
}

FIXTURE_TEST(descriptors_are_not_inherited)
{
	enum { MOST = 256 };
	bool before[MOST];
	sluice_file *file;
	sluice_op *op;
	int fd, flags, seen = 0;

	assert_ok(sluice_context_close(f->ctx));
	f->ctx = NULL;
	for (fd = 0; fd < MOST; fd++)
		before[fd] = fcntl(fd, F_GETFD) >= 0;
	assert_ok(sluice_context_new(&row->config, &f->ctx));
	file = open_any(f, "cloexec");
	op = start_any(file, 1, 0);
	assert_true(sluice_op_fd(op) >= 0);
	assert_true(sluice_queue_fd(sluice_context_queue(f->ctx)) >= 0);
	for (fd = 0; fd < MOST; fd++) {
		flags = fcntl(fd, F_GETFD);
		if (flags < 0 || before[fd] || is_of_libcurl(fd))
			continue;
		seen++;
		if (!(flags & FD_CLOEXEC))
			fail_msg("descriptor %d would survive execve()", fd);
	}
	assert_true(seen >= 3);
	assert_moves(op, 1);
	assert_ok(sluice_close(file));
}
