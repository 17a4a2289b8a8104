/* SPDX-License-Identifier: Apache-2.0 */
/* Cancelling as it happens; each phase for itself, held still, is in tests/fault. */
#include <unistd.h>

#include "contract/contract.h"

FIXTURE_TEST(an_operation_that_is_over_cannot_be_cancelled)
{
	sluice_file *file = open_any(f, "over");
	sluice_op *op = start_any(file, 1, 0);
	double deadline = seconds_now() + PATIENCE_MS / 1000;

	while (!sluice_poll(op) && seconds_now() < deadline)
		;
	assert_refused(sluice_cancel(op), EALREADY, "");
	assert_refused(sluice_cancel(op), EALREADY, "");
	assert_moves(op, 1);
	assert_ok(sluice_close(file));
}

FIXTURE_TEST(a_cancelled_read_says_which_it_was)
{
	struct buffer b = buffer_new(row_bytes(8 * MIB), 0);
	const char *path = scratch(f, "read");
	struct rng r = rng_new(500);
	sluice_file *file;
	int round, cancelled = 0, late = 0;

	file_make(path, b.length, 1);
	file = open_read(f->ctx, address(f, "read"));
	for (round = 0; round < 12; round++) {
		unsigned char *copy;
		sluice_op *op;
		int64_t got;
		int rc;

		file_set_residency(path, (enum residency)(round % RESIDENCIES));
		op = start_read(file, b.data, b.length, 0);
		if (round % 4)
			usleep((useconds_t)rng_below(&r, 4000));
		rc = sluice_cancel(op);
		assert_true(rc == 0 || rc == -EALREADY);
		got = sluice_wait(op, PATIENCE_MS);
		if (got == -ECANCELED) {
			assert_int_equal(rc, 0);
			assert_true(*sluice_op_message(op));
			cancelled++;
		} else {
			assert_int_equal(got, b.length);
			assert_pattern(b.data, b.length, 0, 1);
		}
		late += rc == -EALREADY;
		/* Nothing comes after the end. */
		memset(b.data, 0x5a, b.length);
		copy = malloc(b.length);
		memset(copy, 0x5a, b.length);
		if (round % 8 == 0)
			sleep_ms(20);
		assert_bytes(b.data, copy, b.length);
		free(copy);
		sluice_op_free(op);
	}
	print_message("%d of %d reads were cancelled, %d were over before\n", cancelled, round,
	              late);
	assert_ok(sluice_close(file));
	buffer_free(&b);
}

/* Each block holds the old bytes or the new ones, and nothing changes after the end. */
LOCAL_TEST(a_cancelled_write_leaves_old_or_new_bytes, WRITES_IN_PLACE)
{
	struct buffer b = buffer_new(row_bytes(8 * MIB), 0);
	unsigned char *held = malloc(row_bytes(8 * MIB));
	const char *path = scratch(f, "write");
	struct rng r = rng_new(510);
	sluice_file *file;
	int round, cancelled = 0;

	pattern_fill(b.data, b.length, 0, 2);
	for (round = 0; round < 9; round++) {
		sluice_op *op;
		int64_t got;
		size_t at;

		file_make(path, b.length, 1);
		file_set_residency(path, (enum residency)(round % RESIDENCIES));
		file = open_both(f->ctx, path);
		op = start_write(file, b.data, b.length, 0);
		if (round % 3)
			usleep((useconds_t)rng_below(&r, 3000));
		sluice_cancel(op);
		got = finish(op);
		assert_true(got == -ECANCELED || got == (int64_t)b.length);
		cancelled += got == -ECANCELED;
		file_read(path, held, b.length, 0);
		for (at = 0; at < b.length; at += 512)
			if (pattern_match(held + at, 512, at, 2) != 512 &&
			    (got != -ECANCELED || pattern_match(held + at, 512, at, 1) != 512))
				fail_msg("block at %zu is neither old nor new", at);
		/* The file takes the next write as if nothing had happened. */
		assert_write(file, b.data, b.length, 0);
		assert_file_is(path, b.data, b.length);
		assert_ok(sluice_close(file));
	}
	print_message("%d of %d writes were cancelled\n", cancelled, round);
	free(held);
	buffer_free(&b);
}

LOCAL_TEST(operation_behind_a_cancelled_operation_goes_on, WRITES_IN_PLACE)
{
	enum { CHAIN = 40, SPAN = 100000 };
	struct buffer src = buffer_new(CHAIN * SPAN, 0), dst = buffer_new(SPAN, 0);
	const char *path = scratch(f, "chain");
	sluice_op *ops[CHAIN], *read;
	sluice_file *file;
	int round, i;

	pattern_fill(src.data, src.length, 0, 1);
	for (round = 0; round < 10; round++) {
		int last = -1;

		file_make(path, SPAN, 7);
		file = open_both(f->ctx, path);
		for (i = 0; i < CHAIN; i++)
			ops[i] = start_write(file, src.data + i * SPAN, SPAN, 0);
		read = start_read(file, dst.data, SPAN, 0);
		for (i = CHAIN - 1; i >= 0; i--)
			if (i % 3 != round % 3)
				sluice_cancel(ops[i]);
		for (i = 0; i < CHAIN; i++) {
			int64_t got = finish(ops[i]);

			assert_true(got == SPAN || (got == -ECANCELED && i % 3 != round % 3));
			if (got == SPAN)
				last = i;
		}
		assert_moves(read, SPAN);
		/* One that never began cannot have changed anything, but which did is not told:
		 * only an uncancelled last one fixes what the read saw. */
		if (last == CHAIN - 1)
			assert_bytes(dst.data, src.data + last * SPAN, SPAN);
		assert_ok(sluice_close(file));
	}
	buffer_free(&src);
	buffer_free(&dst);
}

FIXTURE_TEST(a_cancelled_operation_is_reported_like_any_other)
{
	struct buffer b = buffer_new(row_bytes(8 * MIB), 0);
	const char *path = scratch(f, "reported");
	sluice_op *op, *done = NULL;
	sluice_file *file;
	int64_t got;

	file_make(path, b.length, 1);
	file_set_residency(path, COLD);
	file = open_read(f->ctx, address(f, "reported"));
	op = start_read(file, b.data, b.length, 0);
	sluice_cancel(op);
	assert_ok(sluice_queue_next(sluice_context_queue(f->ctx), PATIENCE_MS, &done));
	assert_ptr_equal(op, done);
	got = finish(op);
	assert_true(got == -ECANCELED || got == (int64_t)b.length);
	assert_ok(sluice_close(file));
	buffer_free(&b);
}
