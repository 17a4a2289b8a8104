/* SPDX-License-Identifier: Apache-2.0 */
/* Stable storage: when it is asked for, and what follows if it does not answer well. And what keeps a file that
 * lacks something from its name, and truncates in their order. */
#include <pthread.h>

#include "io/io_internal.h"
#include "local/fault.h"

FAULT_TEST(sync_asks_the_storage)
{
	sluice_file *file = open_both(f->ctx, scratch(f, "sync"));

	assert_write(file, "x", 1, 0);
	fail_fsync(0);
	assert_ok(sluice_sync(file));
	assert_int_equal(fsync_count(), 1);
	fail_fsync(EIO);
	assert_refused(sluice_sync(file), EIO, "sync");
	assert_ok(sluice_sync(file));
	fail_fsync(0);
	assert_ok(sluice_close(file));
	assert_int_equal(fsync_count(), 0);
}

/* The file, and the directory that its name is in. */
FAULT_TEST(a_durable_close_asks_for_the_file_and_its_name)
{
	static const unsigned flags[] = {SLUICE_OPEN_REPLACE,
	                                 SLUICE_OPEN_WRITE | SLUICE_OPEN_CREATE};
	sluice_file *file;
	size_t i;

	for (i = 0; i < COUNT_OF(flags); i++) {
		assert_ok(open_flags(f->ctx, scratch(f, i ? "b" : "a"),
		                     flags[i] | SLUICE_OPEN_DURABLE, &file));
		assert_write(file, "x", 1, 0);
		fail_fsync(0);
		assert_ok(sluice_close(file));
		assert_true(fsync_count() >= 2);
	}
	assert_ok(open_flags(f->ctx, scratch(f, "c"), SLUICE_OPEN_REPLACE, &file));
	fail_fsync(0);
	assert_ok(sluice_close(file));
	assert_int_equal(fsync_count(), 0);
}

FAULT_TEST(a_replacement_that_is_not_stable_does_not_take_the_name)
{
	const char *path = scratch(f, "stable");
	sluice_file *file;

	file_write(path, "old", 3, 0);
	assert_ok(open_flags(f->ctx, path, SLUICE_OPEN_REPLACE | SLUICE_OPEN_DURABLE, &file));
	assert_write(file, "new!", 4, 0);
	fail_fsync(EIO);
	assert_refused(sluice_close(file), EIO, "stable");
	assert_file_is(path, "old", 3);
	assert_int_equal(directory_entries(f->dir), 1);
}

FAULT_TEST(a_discarded_file_is_not_made_stable)
{
	sluice_file *file;

	assert_ok(open_flags(f->ctx, scratch(f, "gone"), SLUICE_OPEN_REPLACE | SLUICE_OPEN_DURABLE,
	                     &file));
	assert_write(file, "x", 1, 0);
	fail_fsync(0);
	sluice_discard(file);
	assert_int_equal(fsync_count(), 0);
	assert_int_equal(directory_entries(f->dir), 0);
}

static ssize_t no_space(const struct sl_piece *piece, ssize_t result)
{
	return piece->write ? -ENOSPC : result;
}

static ssize_t nothing_comes(const struct sl_piece *piece, ssize_t result)
{
	return piece->write ? result : -EIO;
}

/* One way each in which a file comes to lack something, and the program knows of it before it closes. */
static int lack(sluice_file *file, int how)
{
	static char block[4096];
	sluice_op *op;
	int64_t got = 0;

	if (how < 3)
		bend(no_space);
	if (how == 0) {
		assert_ok(sluice_write(file, block, sizeof(block), 0, NULL));
		got = sluice_sync(file);
	} else if (how == 1) {
		assert_ok(sluice_write(file, block, sizeof(block), 0, &op));
		got = sluice_wait(op, PATIENCE_MS);
		sluice_op_free(op);
	} else if (how == 2) {
		assert_ok(sluice_write(file, block, sizeof(block), 0, NULL));
		while (!gate_count())
			sleep_ms(1);
		got = -ENOSPC;
	} else if (how == 3) {
		fail_fsync(EIO);
		got = sluice_sync(file);
		fail_fsync(0);
	} else {
		gate_close(NULL);
		assert_ok(sluice_write(file, block, sizeof(block), 0, &op));
		assert_true(gate_holds(1));
		/* In flight, or waiting behind the one in flight: neither is written. */
		if (how == 5) {
			sluice_op *behind;

			assert_ok(sluice_write(file, block, 10, 0, &behind));
			assert_ok(sluice_cancel(behind));
			assert_int_equal(sluice_wait(behind, PATIENCE_MS), -ECANCELED);
			sluice_op_free(behind);
		} else {
			assert_ok(sluice_cancel(op));
		}
		gate_open();
		got = sluice_wait(op, PATIENCE_MS);
		sluice_op_free(op);
		if (how == 5 || got >= 0)
			got = -ECANCELED;
	}
	gate_reset();
	return (int)got;
}

FAULT_TEST(a_replacement_that_lacks_something_never_takes_the_name)
{
	const char *path = scratch(f, "kept");
	sluice_file *file;

	file_write(path, "old", 3, 0);
	for (int how = 0; how < 6; how++) {
		int error;

		assert_ok(open_flags(f->ctx, path, SLUICE_OPEN_REPLACE, &file));
		error = lack(file, how);
		assert_true(error < 0);
		/* That it goes well later on changes nothing, and the first error stands. */
		if (how != 2) {
			assert_write(file, "new!", 4, 0);
			assert_ok(sluice_sync(file));
		}
		assert_refused(sluice_close(file), -error, how < 3 ? "kept" : "");
		assert_file_is(path, "old", 3);
		assert_int_equal(directory_entries(f->dir), 1);
	}
}

/* What was refused before it began, and a read that failed and told it, take nothing from the file. */
FAULT_TEST(a_replacement_that_lacks_nothing_takes_the_name)
{
	const char *path = scratch(f, "name");
	struct sluice_extent twice[2] = {{"ab", 2, 0}, {"cd", 2, 1}};
	sluice_file *file;
	char byte;

	file_write(path, "old", 3, 0);
	assert_ok(open_flags(f->ctx, path, SLUICE_OPEN_REPLACE | SLUICE_OPEN_READ, &file));
	assert_write(file, "new!", 4, 0);
	assert_refused(submit_write(file, twice, 2, NULL), EINVAL, "overlap");
	assert_refused(sluice_truncate(file, (uint64_t)INT64_MAX + 1), EINVAL, "");
	bend(nothing_comes);
	file_set_residency(path, COLD);
	assert_ok(sluice_read(file, &byte, 1, 1, NULL));
	(void)sluice_sync(file);
	bend(NULL);
	assert_ok(sluice_close(file));
	assert_file_is(path, "new!", 4);
}

struct truncating {
	sluice_file *file;
	uint64_t to;
	int rc;
};

static void *truncate_run(void *argument)
{
	struct truncating *t = argument;

	t->rc = sluice_truncate(t->file, t->to);
	return NULL;
}

static uint64_t entered(const sluice_file *file)
{
	uint64_t sequence;

	sl_mutex_lock(&file->object->mutex);
	sequence = file->object->locked.sequence;
	sl_mutex_unlock(&file->object->mutex);
	return sequence;
}

/* Waits until so many more operations have their place in the order of the file. */
static void wait_until_entered(const sluice_file *file, uint64_t from, uint64_t more)
{
	double until = seconds_now() + PATIENCE_MS / 1000.0;

	while (entered(file) < from + more)
		if (seconds_now() > until)
			fail_msg("%llu operations have entered, not %llu",
			         (unsigned long long)(entered(file) - from),
			         (unsigned long long)more);
		else
			sleep_ms(1);
}

FAULT_TEST(truncates_that_wait_keep_their_order_with_what_comes_behind)
{
	struct buffer b = buffer_new(102400, 0);
	struct truncating shorter = {.to = 4096}, longer = {.to = MIB};
	sluice_file *file = open_both(f->ctx, scratch(f, "lengths"));
	pthread_t threads[2];
	sluice_op *op, *read;
	uint64_t before;

	shorter.file = longer.file = file;
	assert_ok(sluice_truncate(file, MIB));
	op = start_held(file, true, b.data, 65536, 0);
	before = entered(file);
	assert_int_equal(pthread_create(&threads[0], NULL, truncate_run, &shorter), 0);
	wait_until_entered(file, before, 1);
	assert_int_equal(pthread_create(&threads[1], NULL, truncate_run, &longer), 0);
	wait_until_entered(file, before, 2);
	memset(b.data, 1, b.length);
	read = start_read(file, b.data, b.length, 100000);
	gate_open();
	assert_moves(op, 65536);
	assert_moves(read, (int64_t)b.length);
	for (size_t i = 0; i < b.length; i++)
		assert_int_equal(b.data[i], 0);
	for (int i = 0; i < 2; i++)
		assert_int_equal(pthread_join(threads[i], NULL), 0);
	assert_ok(shorter.rc);
	assert_ok(longer.rc);
	assert_ok(sluice_close(file));
	buffer_free(&b);
}
