/* SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "contract/contract.h"

#define LENGTH (4 * MIB + 321)

static size_t piece_of_row(void)
{
	size_t piece = config_tuned(&row->config, "piece_bytes");

	return piece ? piece : MIB;
}

FIXTURE_TEST(a_file_of_any_length_is_written)
{
	size_t piece = piece_of_row(), i;
	const size_t lengths[] = {0,    1,     511,       512,   4095,      4096,
	                          4097, 65536, piece - 1, piece, piece + 1, LENGTH};
	static const size_t skews[] = {0, 16, 1, 512};

	for (i = 0; i < COUNT_OF(lengths); i++) {
		const char *path = scratch(f, "whole");
		struct buffer b = buffer_new(lengths[i], skews[i % COUNT_OF(skews)]);
		sluice_file *file = open_both(f->ctx, path);

		pattern_fill(b.data, lengths[i], 0, i);
		assert_write(file, b.data, lengths[i], 0);
		assert_file_is(path, b.data, lengths[i]);
		assert_ok(sluice_close(file));
		assert_file_is(path, b.data, lengths[i]);
		unlink(path);
		buffer_free(&b);
	}
}

/* Random ranges one after the other; after each, the whole file equals its model. */
static void write_ranges(struct fixture *f, enum residency residency)
{
	const char *path = scratch(f, "ranges");
	struct rng r = rng_new(200 + residency);
	static const size_t skews[] = {0, 16, 1, 512};
	unsigned char *model = malloc(LENGTH);
	struct buffer back = buffer_new(LENGTH, 0);
	sluice_file *file;
	int round;

	file_make(path, LENGTH, 1);
	pattern_fill(model, LENGTH, 0, 1);
	file = open_both(f->ctx, path);
	for (round = 0; round < rounds_of(40); round++) {
		size_t n = rng_length(&r, piece_of_row(), 2 * MIB);
		uint64_t offset = rng_below(&r, LENGTH - n + 1);
		struct buffer b = buffer_new(n, skews[rng_below(&r, COUNT_OF(skews))]);

		if (round % 8 == 0)
			file_set_residency(path, residency);
		if (rng_below(&r, 3) == 0)
			offset &= ~4095ull;
		pattern_fill(b.data, n, offset, 1000 + (uint64_t)round);
		memcpy(model + offset, b.data, n);
		assert_write(file, b.data, n, offset);
		buffer_free(&b);
		if (round % 2)
			assert_file_is(path, model, LENGTH);
		else
			assert_read(file, back.data, LENGTH, 0);
		if (round % 2 == 0)
			assert_bytes(back.data, model, LENGTH);
	}
	assert_ok(sluice_close(file));
	file_set_residency(path, COLD);
	assert_file_is(path, model, LENGTH);
	free(model);
	buffer_free(&back);
}

FIXTURE_TEST(any_range_of_a_cold_file_is_written)
{
	write_ranges(f, COLD);
}

FIXTURE_TEST(any_range_of_a_cached_file_is_written)
{
	write_ranges(f, CACHED);
}

FIXTURE_TEST(any_range_of_a_half_cached_file_is_written)
{
	write_ranges(f, HALF_CACHED);
}

/* Many neighbours in flight at once, so that direct and buffered pieces meet in one page. */
FIXTURE_TEST(neighbouring_writes_in_flight_do_not_disturb_each_other)
{
	enum { WRITES = 64 };
	struct rng r = rng_new(210);
	int round, i;

	for (round = 0; round < rounds_of(6); round++) {
		const char *path = scratch(f, "neighbours");
		size_t at[WRITES + 1] = {0}, order[WRITES];
		sluice_op *ops[WRITES];
		struct buffer b;
		sluice_file *file;

		for (i = 0; i < WRITES; i++) {
			at[i + 1] = at[i] + 1 + rng_length(&r, piece_of_row(), 300 * KIB);
			order[i] = (size_t)i;
		}
		for (i = WRITES - 1; i > 0; i--) {
			size_t j = rng_below(&r, (size_t)i + 1), t = order[i];

			order[i] = order[j];
			order[j] = t;
		}
		b = buffer_new(at[WRITES], round % 2 ? 16 : 0);
		pattern_fill(b.data, b.length, 0, (uint64_t)round);
		if (round % 3 == 0)
			file_make(path, b.length, 99);
		file = open_both(f->ctx, path);
		for (i = 0; i < WRITES; i++) {
			size_t w = order[i];

			ops[i] = start_write(file, b.data + at[w], at[w + 1] - at[w], at[w]);
		}
		for (i = 0; i < WRITES; i++)
			assert_moves(ops[i], at[order[i] + 1] - at[order[i]]);
		assert_file_is(path, b.data, b.length);
		assert_ok(sluice_close(file));
		file_set_residency(path, COLD);
		assert_file_is(path, b.data, b.length);
		unlink(path);
		buffer_free(&b);
	}
}

FIXTURE_TEST(a_write_behind_the_end_leaves_a_hole_of_zeros)
{
	static const uint64_t offsets[] = {1, 4095, 4096, 100000, 3 * MIB, 3 * MIB + 1};
	static const size_t lengths[] = {1, 4096, 5000, MIB, MIB + 7};
	size_t i, j;

	for (i = 0; i < COUNT_OF(offsets); i++) {
		for (j = 0; j < COUNT_OF(lengths); j++) {
			const char *path = scratch(f, "hole");
			size_t end = offsets[i] + lengths[j];
			unsigned char *expected = calloc(1, end);
			struct buffer b = buffer_new(lengths[j], 0);
			struct sluice_file_info st = {.size = sizeof(st)};
			sluice_file *file = open_both(f->ctx, path);

			pattern_fill(b.data, lengths[j], 0, j);
			memcpy(expected + offsets[i], b.data, lengths[j]);
			assert_write(file, b.data, lengths[j], offsets[i]);
			assert_ok(sluice_stat(file, &st));
			assert_int_equal(st.length, end);
			assert_file_is(path, expected, end);
			assert_ok(sluice_close(file));
			unlink(path);
			buffer_free(&b);
			free(expected);
		}
	}
}

FIXTURE_TEST(extending_writes_in_flight_give_the_sequential_file)
{
	enum { WRITES = 60, MOST = 3 * 1024 * 1024 };
	struct rng r = rng_new(220);
	int round, i;

	for (round = 0; round < 4; round++) {
		const char *path = scratch(f, "extending");
		unsigned char *model = calloc(1, MOST);
		struct buffer b[WRITES];
		sluice_op *ops[WRITES];
		sluice_file *file = open_both(f->ctx, path);
		size_t length = 0;

		for (i = 0; i < WRITES; i++) {
			size_t n = rng_length(&r, piece_of_row(), 200 * KIB);
			/* Mostly at the end, sometimes behind it or into what is there. */
			size_t at = rng_below(&r, 2) ? length : rng_below(&r, length + 100000);

			if (at + n > MOST)
				at = 0;
			b[i] = buffer_new(n, i % 3 ? 0 : 16);
			pattern_fill(b[i].data, n, at, (uint64_t)i);
			memcpy(model + at, b[i].data, n);
			if (n && at + n > length)
				length = at + n;
			ops[i] = start_write(file, b[i].data, n, at);
		}
		for (i = 0; i < WRITES; i++) {
			assert_moves(ops[i], b[i].length);
			buffer_free(&b[i]);
		}
		assert_file_is(path, model, length);
		assert_ok(sluice_close(file));
		unlink(path);
		free(model);
	}
}

FIXTURE_TEST(a_write_only_reads_its_source)
{
	static const size_t lengths[] = {1, 4096, 10000, 2 * MIB, 2 * MIB - 3};
	const char *path = scratch(f, "source");
	unsigned char *src =
		mmap(NULL, 2 * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	sluice_file *file = open_both(f->ctx, path);
	size_t i;

	pattern_fill(src, 2 * MIB, 0, 5);
	mprotect(src, 2 * MIB, PROT_READ);
	for (i = 0; i < COUNT_OF(lengths); i++) {
		assert_write(file, src, lengths[i], 0);
		assert_write(file, src, lengths[i], 12345);
		assert_pattern(src, 2 * MIB, 0, 5);
	}
	assert_ok(sluice_close(file));
	munmap(src, 2 * MIB);
}

ROW_TEST(memory_that_cannot_be_read_fails_the_write, .memory = NO_PROTECTION)
{
	static const size_t lengths[] = {100, 4096, 2 * MIB};
	void *closed = mmap(NULL, 2 * MIB, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	sluice_file *file = open_both(f->ctx, scratch(f, "fault"));
	size_t i;

	for (i = 0; i < COUNT_OF(lengths); i++)
		assert_fails(start_write(file, closed, lengths[i], 0), EFAULT);
	assert_ok(sluice_close(file));
	munmap(closed, 2 * MIB);
}

FIXTURE_TEST(an_empty_write_changes_nothing)
{
	const char *path = scratch(f, "nothing");
	sluice_file *file = open_both(f->ctx, path);
	char byte = 'x';

	assert_write(file, &byte, 0, 0);
	assert_write(file, &byte, 0, 100000);
	assert_write(file, &byte, 0, INT64_MAX);
	assert_int_equal(file_length(path), 0);
	assert_ok(sluice_close(file));
}

FIXTURE_TEST(a_handle_does_only_what_it_was_opened_for)
{
	const char *path = scratch(f, "modes");
	sluice_file *reading, *writing;
	sluice_op *op = NULL;
	char byte = 'x';

	file_make(path, 10, 1);
	assert_ok(open_flags(f->ctx, path, SLUICE_OPEN_READ, &reading));
	assert_ok(open_flags(f->ctx, path, SLUICE_OPEN_WRITE, &writing));
	assert_refused(sluice_write(reading, &byte, 1, 0, &op), EBADF, "modes");
	assert_refused(sluice_read(writing, &byte, 1, 0, &op), EBADF, "modes");
	assert_refused(sluice_write(reading, &byte, 1, 0, NULL), EBADF, "modes");
	assert_refused(sluice_truncate(reading, 5), EBADF, "modes");
	assert_null(op);
	assert_int_equal(file_length(path), 10);
	assert_write(writing, &byte, 1, 3);
	assert_read(reading, &byte, 1, 3);
	assert_ok(sluice_close(reading));
	assert_ok(sluice_close(writing));
}

FIXTURE_TEST(truncate_sets_the_length)
{
	const char *path = scratch(f, "truncate");
	struct buffer b = buffer_new(3 * MIB, 0);
	unsigned char *expected = calloc(1, 3 * MIB);
	sluice_file *file = open_both(f->ctx, path);

	pattern_fill(b.data, b.length, 0, 1);
	assert_write(file, b.data, 2 * MIB, 0);
	assert_ok(sluice_truncate(file, 1000001));
	assert_file_is(path, b.data, 1000001);
	assert_ok(sluice_truncate(file, 3 * MIB));
	memcpy(expected, b.data, 1000001);
	assert_file_is(path, expected, 3 * MIB);
	assert_read(file, b.data, 3 * MIB, 0);
	assert_bytes(b.data, expected, 3 * MIB);
	assert_ok(sluice_truncate(file, 0));
	assert_int_equal(file_length(path), 0);
	assert_int_equal(read_now(file, b.data, 10, 0), 0);
	assert_refused(sluice_truncate(file, (uint64_t)INT64_MAX + 1), EINVAL, "");
	assert_ok(sluice_close(file));
	free(expected);
	buffer_free(&b);
}

FIXTURE_TEST(sync_waits_for_what_was_submitted)
{
	enum { WRITES = 30 };
	const char *path = scratch(f, "sync");
	struct buffer b = buffer_new(WRITES * 100001, 0);
	sluice_op *ops[WRITES];
	sluice_file *file = open_both(f->ctx, path);
	int i;

	pattern_fill(b.data, b.length, 0, 1);
	for (i = 0; i < WRITES; i++)
		ops[i] = start_write(file, b.data + i * 100001, 100001, (uint64_t)i * 100001);
	assert_ok(sluice_sync(file));
	for (i = 0; i < WRITES; i++)
		assert_int_equal(sluice_poll(ops[i]), 1);
	assert_file_is(path, b.data, b.length);
	for (i = 0; i < WRITES; i++)
		assert_moves(ops[i], 100001);
	assert_ok(sluice_sync(file));
	assert_ok(sluice_close(file));
	buffer_free(&b);
}

FIXTURE_TEST(sync_waits_for_reads_too)
{
	const char *path = scratch(f, "sync");
	struct buffer b = buffer_new(row_bytes(16 * MIB), 0);
	sluice_file *file;
	int round;

	file_make(path, b.length, 1);
	file = open_read(f->ctx, path);
	for (round = 0; round < 4; round++) {
		sluice_op *op;

		file_set_residency(path, COLD);
		op = start_read(file, b.data, b.length, 0);
		assert_ok(sluice_sync(file));
		assert_int_equal(sluice_poll(op), 1);
		assert_moves(op, b.length);
	}
	assert_ok(sluice_close(file));
	buffer_free(&b);
}
