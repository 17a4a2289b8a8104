/* SPDX-License-Identifier: Apache-2.0 */
/* The kernel says something else than "all of it": short, again, nothing, an error. */
#include <fcntl.h>
#include <unistd.h>

#include "local/fault.h"
#include "local/local_internal.h"

#define LENGTH (3 * MIB + 4321)

/* Small pieces, so that there are many results. */
static void small_pieces(struct fixture *f)
{
	struct sluice_config c = row_config();

	config_tune(&c, "piece_bytes", 128 * KIB);
	config_tune(&c, "inline_bytes", 1);
	c.direct_bytes = 64 * KIB;
	fixture_config(f, &c);
}

/* A number that looks random, other for each result. */
static uint64_t draw(void)
{
	static _Atomic uint64_t state;
	uint64_t x = atomic_fetch_add(&state, 0x9e3779b97f4a7c15ull);

	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
	return x ^ (x >> 29);
}

static ssize_t shorten(const struct sl_piece *piece, ssize_t result)
{
	(void)piece;
	return result > 1 && draw() % 4 ? 1 + (ssize_t)(draw() % (uint64_t)result) : result;
}

/* As a device does that moves whole sectors. */
static ssize_t shorten_by_sectors(const struct sl_piece *piece, ssize_t result)
{
	(void)piece;
	return result >= 1024 && draw() % 2 ? result / 1024 * 512 : result;
}

static ssize_t interrupt(const struct sl_piece *piece, ssize_t result)
{
	(void)piece;
	return draw() % 3 ? result : -EINTR;
}

static ssize_t refuse_for_now(const struct sl_piece *piece, ssize_t result)
{
	(void)piece;
	return draw() % 3 ? result : -EAGAIN;
}

static ssize_t everything(const struct sl_piece *piece, ssize_t result)
{
	return refuse_for_now(piece, interrupt(piece, shorten(piece, result)));
}

/* Reads from a byte on as small extents with gaps between them, as many as one call takes and more. */
static void check_near_extents(sluice_file *file, const unsigned char *bytes, size_t at)
{
	enum { EXTENTS = 200 };
	static char back[EXTENTS][400];
	struct sluice_extent v[EXTENTS];
	sluice_op *op;

	for (size_t i = 0; i < EXTENTS; i++) {
		at += i % 50 ? i % 7 * 100 : 6000;
		v[i] = (struct sluice_extent){back[i], 100 + i, at};
		at += 100 + i;
	}
	assert_ok(submit_read(file, v, EXTENTS, &op));
	assert_int_equal(sluice_wait(op, -1), EXTENTS * 100 + EXTENTS * (EXTENTS - 1) / 2);
	sluice_op_free(op);
	for (size_t i = 0; i < EXTENTS; i++)
		assert_bytes(v[i].data, bytes + v[i].offset, v[i].length);
}

/* Writes and reads with results like these; not a byte may be wrong. */
static void check_bent(struct fixture *f, bend_function function)
{
	const char *path = scratch(f, "bent");
	/* One of them is not aligned, as what malloc() gives. */
	struct buffer b = buffer_new(LENGTH, 16), back = buffer_new(LENGTH, 0);
	struct rng r = rng_new(600);
	sluice_file *file;
	int round;

	small_pieces(f);
	pattern_fill(b.data, LENGTH, 0, 1);
	file = open_both(f->ctx, path);
	bend(function);
	assert_write(file, b.data, LENGTH, 0);
	bend(NULL);
	assert_file_is(path, b.data, LENGTH);
	bend(function);
	for (round = 0; round < 9; round++) {
		size_t n = rng_length(&r, 128 * KIB, LENGTH);
		uint64_t at = rng_below(&r, LENGTH - n + 1);

		file_set_residency(path, (enum residency)(round % RESIDENCIES));
		assert_read(file, back.data, n, at);
		assert_bytes(back.data, b.data + at, n);
		check_near_extents(file, b.data, rng_below(&r, LENGTH - 200 * KIB));
		pattern_fill(b.data + at, n, at, (uint64_t)round);
		assert_write(file, b.data + at, n, at);
	}
	assert_true(gate_count() > 9);
	bend(NULL);
	assert_file_is(path, b.data, LENGTH);
	assert_ok(sluice_close(file));
	buffer_free(&b);
	buffer_free(&back);
}

FAULT_TEST(short_results_are_continued)
{
	check_bent(f, shorten);
}

FAULT_TEST(results_short_by_sectors_are_continued)
{
	check_bent(f, shorten_by_sectors);
}

FAULT_TEST(interrupted_calls_are_repeated)
{
	check_bent(f, interrupt);
}

FAULT_TEST(refused_calls_are_repeated)
{
	check_bent(f, refuse_for_now);
}

static ssize_t refuse_for_ever(const struct sl_piece *piece, ssize_t result)
{
	(void)result;
	return piece->offset ? -EAGAIN : -EINTR;
}

/* A server behind a file system may say "again" until it is mended. */
FAULT_TEST(endless_refusal_costs_little_and_can_be_cancelled)
{
	const char *path = scratch(f, "again");
	struct buffer b = buffer_new(MIB, 0);
	sluice_file *file;
	sluice_op *op;
	double begun;
	int write;

	small_pieces(f);
	file_make(path, MIB, 1);
	file = open_both(f->ctx, path);
	for (write = 0; write < 2; write++) {
		file_set_residency(path, COLD);
		bend(refuse_for_ever);
		op = start_move(file, write, b.data, MIB, 0);
		assert_int_equal(sluice_wait(op, 100), -EINPROGRESS);
		begun = cpu_seconds();
		assert_int_equal(sluice_wait(op, 400), -EINPROGRESS);
		assert_true(cpu_seconds() - begun < 0.1);
		sluice_cancel(op);
		begun = seconds_now();
		assert_int_equal(sluice_wait(op, PATIENCE_MS), -ECANCELED);
		assert_true(seconds_now() - begun < 2);
		sluice_op_free(op);
		bend(NULL);
	}
	assert_ok(sluice_close(file));
	buffer_free(&b);
}

FAULT_TEST(all_of_it_together_moves_the_right_bytes)
{
	check_bent(f, everything);
}

/* What the file system cannot do after all, is done in the plain way. */
static _Atomic unsigned refused;

static ssize_t refuse_direct(const struct sl_piece *piece, ssize_t result)
{
	if (!piece->direct && !sl_local_way_of(piece)->dontcache)
		return result;
	atomic_fetch_add(&refused, 1);
	return piece->direct ? -EINVAL : -EOPNOTSUPP;
}

FAULT_TEST(a_way_that_the_file_system_refuses_is_not_needed)
{
	check_bent(f, refuse_direct);
	print_message("%u requests were refused\n", atomic_load(&refused));
	if (scratch_takes_direct(f))
		assert_true(atomic_load(&refused) > 0);
}

enum { BAD = 1024 * 1024 + 256 * 1024 };

static ssize_t bad_sector(const struct sl_piece *piece, ssize_t result)
{
	uint64_t from = piece->offset, to = from + piece->length;

	return from <= BAD && to > BAD ? -EIO : result;
}

FAULT_TEST(an_error_of_the_device_fails_the_operation)
{
	const char *path = scratch(f, "sector");
	struct buffer b = buffer_new(LENGTH, 0);
	sluice_file *file;
	sluice_op *op;
	int write, cold;

	small_pieces(f);
	file_make(path, LENGTH, 1);
	file = open_both(f->ctx, path);
	for (write = 0; write < 2; write++) {
		for (cold = 0; cold < 2; cold++) {
			file_set_residency(path, cold ? COLD : CACHED);
			bend(bad_sector);
			op = start_move(file, write, b.data, LENGTH, 0);
			assert_int_equal(sluice_wait(op, PATIENCE_MS), -EIO);
			assert_non_null(strstr(sluice_op_message(op), "sector"));
			assert_non_null(strstr(sluice_op_message(op), strerror(EIO)));
			sluice_op_free(op);
			/* It was of that operation, not of the file. */
			assert_read(file, b.data, MIB, 0);
			bend(NULL);
			assert_read(file, b.data, LENGTH, 0);
			pattern_fill(b.data, LENGTH, 0, 1);
		}
	}
	assert_ok(sluice_sync(file));
	assert_ok(sluice_close(file));
	buffer_free(&b);
}

FAULT_TEST(operation_fails_with_a_bad_extent_among_many)
{
	enum { EXTENTS = 30 };
	const char *path = scratch(f, "extents");
	struct sluice_extent v[EXTENTS];
	struct buffer b = buffer_new(LENGTH, 0);
	sluice_file *file;
	sluice_op *op;
	int round, i;

	small_pieces(f);
	file_make(path, LENGTH, 1);
	file = open_both(f->ctx, path);
	for (i = 0; i < EXTENTS; i++)
		v[i] = (struct sluice_extent){b.data + i * 100 * KIB, 100 * KIB,
		                              (uint64_t)i * 100 * KIB};
	for (round = 0; round < 4; round++) {
		file_set_residency(path, round / 2 ? COLD : CACHED);
		bend(bad_sector);
		if (round % 2)
			assert_ok(submit_write(file, v, EXTENTS, &op));
		else
			assert_ok(submit_read(file, v, EXTENTS, &op));
		assert_fails(op, EIO);
		bend(NULL);
	}
	assert_ok(sluice_close(file));
	buffer_free(&b);
}

static ssize_t nothing_there(const struct sl_piece *piece, ssize_t result)
{
	uint64_t from = piece->offset, to = from + piece->length;

	return from <= BAD && to > BAD ? 0 : result;
}

/* The file has not become shorter; still these bytes were not read. */
FAULT_TEST(a_read_that_finds_nothing_in_the_middle_is_no_success)
{
	const char *path = scratch(f, "nothing");
	struct buffer b = buffer_new(LENGTH, 0);
	sluice_file *file;
	int cold;

	small_pieces(f);
	file_make(path, LENGTH, 1);
	file = open_both(f->ctx, path);
	for (cold = 0; cold < 2; cold++) {
		file_set_residency(path, cold ? COLD : CACHED);
		bend(nothing_there);
		assert_fails(start_read(file, b.data, LENGTH, 0), EIO);
		assert_fails(start_read(file, b.data, 1000, BAD), EIO);
		bend(NULL);
	}
	assert_ok(sluice_close(file));
	buffer_free(&b);
}

FAULT_TEST(a_write_that_moves_nothing_is_an_error)
{
	struct buffer b = buffer_new(LENGTH, 0);
	sluice_file *file;

	small_pieces(f);
	file = open_both(f->ctx, scratch(f, "nothing"));
	bend(nothing_there);
	assert_fails(start_write(file, b.data, LENGTH, 0), EIO);
	bend(NULL);
	assert_ok(sluice_close(file));
	buffer_free(&b);
}

FAULT_TEST(a_file_truncated_under_a_read_is_an_error)
{
	const char *path = scratch(f, "truncated");
	struct buffer b = buffer_new(MIB, 0);
	static const uint64_t lengths[] = {0, 1, 64 * 1024, 100000, 1024 * 1024 - 1};
	sluice_file *file;
	sluice_op *op;
	size_t i;

	one_thread(f);
	for (i = 0; i < COUNT_OF(lengths); i++) {
		file_make(path, MIB, 1);
		file_set_residency(path, i % 2 ? COLD : CACHED);
		file = open_read(f->ctx, path);
		op = start_held(file, false, b.data, MIB, 0);
		file_truncate(path, lengths[i]);
		gate_open();
		assert_int_equal(sluice_wait(op, PATIENCE_MS), -EIO);
		assert_non_null(strstr(sluice_op_message(op), "truncated"));
		sluice_op_free(op);
		/* What comes after knows the new length. */
		assert_int_equal(read_now(file, b.data, MIB, 0), lengths[i]);
		assert_pattern(b.data, lengths[i], 0, 1);
		assert_ok(sluice_close(file));
	}
	buffer_free(&b);
}

/* The end was where it was; that there is more now is nobody's loss. */
FAULT_TEST(a_file_that_grows_under_a_read_is_no_error)
{
	const char *path = scratch(f, "grown");
	struct buffer b = buffer_new(2 * MIB, 0);
	unsigned char *all = malloc(2 * MIB);
	sluice_file *file;
	sluice_op *op;
	int64_t got;

	one_thread(f);
	pattern_fill(all, 2 * MIB, 0, 1);
	file_make(path, MIB + 7, 1);
	file = open_read(f->ctx, path);
	op = start_held(file, false, b.data, 2 * MIB, 0);
	file_write(path, all, 2 * MIB, 0);
	gate_open();
	got = finish(op);
	assert_in_range(got, MIB + 7, 2 * MIB);
	assert_bytes(b.data, all, (size_t)got);
	assert_ok(sluice_close(file));
	free(all);
	buffer_free(&b);
}

/* The third piece fails: with one in flight at a time, there is no fourth. */
static ssize_t fail_third(const struct sl_piece *piece, ssize_t result)
{
	return piece->offset == 2 * 64 * KIB ? -EIO : result;
}

FAULT_TEST(an_error_stops_what_was_not_begun)
{
	const char *path = scratch(f, "stop");
	struct buffer b = buffer_new(2 * MIB, 0);
	sluice_file *file;
	int write;

	one_thread(f);
	file_make(path, 2 * MIB, 1);
	file = open_both(f->ctx, path);
	for (write = 0; write < 2; write++) {
		bend(fail_third);
		assert_fails(start_move(file, write, b.data, 2 * MIB, 0), EIO);
		assert_int_equal(gate_count(), 3);
		bend(NULL);
	}
	assert_ok(sluice_close(file));
	buffer_free(&b);
}

static _Atomic bool one_has_failed;

/* All of the many pieces fail, each in its own way; the first has told its story by then. */
static ssize_t fail_all(const struct sl_piece *piece, ssize_t result)
{
	(void)piece;
	(void)result;
	if (!atomic_exchange(&one_has_failed, true))
		return -EIO;
	sleep_ms(100);
	return -EDQUOT;
}

FAULT_TEST(the_first_error_is_kept)
{
	const char *path = scratch(f, "first");
	struct sluice_config c = row_config();
	struct buffer b = buffer_new(MIB, 0);
	sluice_file *file;
	sluice_op *op;

	c.workers = 8;
	config_tune(&c, "reactors", 1);
	config_tune(&c, "reactor_depth", 1);
	config_tune(&c, "piece_bytes", 128 * KIB);
	fixture_config(f, &c);
	file_make(path, MIB, 1);
	file = open_both(f->ctx, path);
	atomic_store(&one_has_failed, false);
	bend(fail_all);
	op = start_write(file, b.data, MIB, 0);
	assert_int_equal(sluice_wait(op, PATIENCE_MS), -EIO);
	assert_non_null(strstr(sluice_op_message(op), strerror(EIO)));
	assert_null(strstr(sluice_op_message(op), strerror(EDQUOT)));
	sluice_op_free(op);

	/* The same without a handle, over several operations in order. */
	atomic_store(&one_has_failed, false);
	assert_ok(sluice_write(file, b.data, 1000, 0, NULL));
	assert_ok(sluice_write(file, b.data, 1000, 500, NULL));
	assert_refused(sluice_sync(file), EIO, strerror(EIO));
	bend(NULL);
	assert_ok(sluice_sync(file));
	assert_ok(sluice_close(file));
	buffer_free(&b);
}

FAULT_TEST(a_failed_write_stops_the_replacement)
{
	const char *path = scratch(f, "replaced");
	struct buffer b = buffer_new(LENGTH, 0);
	sluice_file *file;

	small_pieces(f);
	file_write(path, "old", 3, 0);
	assert_ok(open_flags(f->ctx, path, SLUICE_OPEN_REPLACE, &file));
	bend(bad_sector);
	assert_ok(sluice_write(file, b.data, LENGTH, 0, NULL));
	assert_refused(sluice_close(file), EIO, "replaced");
	bend(NULL);
	assert_file_is(path, "old", 3);
	assert_int_equal(directory_entries(f->dir), 1);
	buffer_free(&b);
}
