/* SPDX-License-Identifier: Apache-2.0 */
/* Stable storage: when it is asked for, and what follows if it does not answer well. */
#include "fault/fault.h"

static void sync_asks_the_storage(void **state)
{
	struct fixture *f = *state;
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
static void a_durable_close_asks_for_the_file_and_its_name(void **state)
{
	struct fixture *f = *state;
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

static void a_replacement_that_is_not_stable_does_not_take_the_name(void **state)
{
	struct fixture *f = *state;
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

static void a_discarded_file_is_not_made_stable(void **state)
{
	struct fixture *f = *state;
	sluice_file *file;

	assert_ok(open_flags(f->ctx, scratch(f, "gone"), SLUICE_OPEN_REPLACE | SLUICE_OPEN_DURABLE,
	                     &file));
	assert_write(file, "x", 1, 0);
	fail_fsync(0);
	sluice_discard(file);
	assert_int_equal(fsync_count(), 0);
	assert_int_equal(directory_entries(f->dir), 0);
}

int group_sync(void)
{
	const struct CMUnitTest tests[] = {
		fault_test(sync_asks_the_storage),
		fault_test(a_durable_close_asks_for_the_file_and_its_name),
		fault_test(a_replacement_that_is_not_stable_does_not_take_the_name),
		fault_test(a_discarded_file_is_not_made_stable),
	};

	return cmocka_run_group_tests_name("sync", tests, NULL, NULL);
}
