/* SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "contract/contract.h"

#define LENGTH (MIB + 17)

static sluice_file *open_replacing(struct fixture *f, const char *path, unsigned more)
{
	sluice_file *file = NULL;

	assert_ok(open_flags(f->ctx, path, SLUICE_OPEN_REPLACE | more, &file));
	assert_non_null(file);
	return file;
}

static void check_replaced(struct fixture *f, unsigned more)
{
	const char *path = scratch(f, "name");
	struct buffer b = buffer_new(LENGTH, 0), old = buffer_new(5000, 0);
	sluice_file *file;
	int there;

	pattern_fill(b.data, LENGTH, 0, 1);
	pattern_fill(old.data, 5000, 0, 2);
	for (there = 0; there < 2; there++) {
		if (there)
			file_make(path, 5000, 2);
		else
			unlink(path);
		file = open_replacing(f, path, more);
		assert_write(file, b.data, LENGTH, 0);
		assert_ok(sluice_sync(file));
		if (there)
			assert_file_is(path, old.data, 5000);
		else
			assert_int_equal(access(path, F_OK), -1);
		assert_ok(sluice_close(file));
		assert_file_is(path, b.data, LENGTH);
		assert_int_equal(directory_entries(f->dir), 1);
	}
	buffer_free(&b);
	buffer_free(&old);
}

FIXTURE_TEST(the_name_shows_the_new_file_only_after_close)
{
	check_replaced(f, 0);
}

FIXTURE_TEST(a_durable_replacement_does_the_same)
{
	check_replaced(f, SLUICE_OPEN_DURABLE);
}

FIXTURE_TEST(reader_of_the_old_file_keeps_it)
{
	const char *path = scratch(f, "name");
	struct buffer b = buffer_new(5000, 0);
	sluice_file *old, *file;

	file_make(path, 5000, 2);
	old = open_read(f->ctx, path);
	file = open_replacing(f, path, 0);
	assert_write(file, "new", 3, 0);
	assert_ok(sluice_close(file));
	assert_read(old, b.data, 5000, 0);
	assert_pattern(b.data, 5000, 0, 2);
	assert_ok(sluice_close(old));
	assert_file_is(path, "new", 3);
	buffer_free(&b);
}

FIXTURE_TEST(discarded_blob_leaves_nothing)
{
	const char *path = scratch(f, "name");
	struct buffer b = buffer_new(LENGTH, 0), old = buffer_new(5000, 0);
	sluice_file *file;
	int there;

	pattern_fill(old.data, 5000, 0, 2);
	for (there = 0; there < 2; there++) {
		if (there)
			file_make(path, 5000, 2);
		file = open_replacing(f, path, there ? SLUICE_OPEN_DURABLE : 0);
		assert_ok(sluice_write(file, b.data, LENGTH, 0, NULL));
		sluice_discard(file);
		assert_int_equal(directory_entries(f->dir), there);
		if (there)
			assert_file_is(path, old.data, 5000);
	}
	buffer_free(&b);
	buffer_free(&old);
}

/* Without REPLACE there is nothing to take back. */
FIXTURE_TEST(discard_of_a_plain_file_keeps_what_was_written)
{
	const char *path = scratch(f, "plain");
	struct buffer b = buffer_new(LENGTH, 0);
	sluice_file *file = open_both(f->ctx, path);

	pattern_fill(b.data, LENGTH, 0, 1);
	assert_ok(sluice_write(file, b.data, LENGTH, 0, NULL));
	sluice_discard(file);
	assert_file_is(path, b.data, LENGTH);
	buffer_free(&b);
}

FIXTURE_TEST(an_exclusive_replacement_refuses_a_name_that_is_taken)
{
	const char *path = scratch(f, "taken");
	sluice_file *file = NULL;

	file_write(path, "old", 3, 0);
	assert_refused(open_flags(f->ctx, path, SLUICE_OPEN_REPLACE | SLUICE_OPEN_EXCLUSIVE, &file),
	               EEXIST, "taken");
	assert_null(file);
	assert_file_is(path, "old", 3);
	assert_int_equal(directory_entries(f->dir), 1);
}

FIXTURE_TEST(an_exclusive_replacement_refuses_a_name_that_was_taken_meanwhile)
{
	const char *path = scratch(f, "race");
	int durable;

	for (durable = 0; durable < 2; durable++) {
		sluice_file *file = open_replacing(
			f, path, SLUICE_OPEN_EXCLUSIVE | (durable ? SLUICE_OPEN_DURABLE : 0));

		assert_write(file, "mine", 4, 0);
		file_write(path, "theirs", 6, 0);
		assert_refused(sluice_close(file), EEXIST, "race");
		assert_file_is(path, "theirs", 6);
		assert_int_equal(directory_entries(f->dir), 1);
		unlink(path);

		file = open_replacing(f, path, SLUICE_OPEN_EXCLUSIVE);
		assert_write(file, "mine", 4, 0);
		assert_ok(sluice_close(file));
		assert_file_is(path, "mine", 4);
		assert_int_equal(directory_entries(f->dir), 1);
		unlink(path);
	}
}

/* The name cannot be given: the error is told, and the new file goes. */
FIXTURE_TEST(a_replacement_that_cannot_take_the_name_leaves_nothing)
{
	const char *path = scratch(f, "name");
	sluice_file *file = open_replacing(f, path, 0);

	assert_write(file, "new", 3, 0);
	assert_int_equal(mkdir(path, 0777), 0);
	assert_refused(sluice_close(file), EISDIR, "name");
	assert_int_equal(directory_entries(f->dir), 1);
	assert_int_equal(rmdir(path), 0);
}

FIXTURE_TEST(a_replacement_in_a_missing_directory_is_refused)
{
	sluice_file *file = NULL;

	assert_refused(open_flags(f->ctx, scratch(f, "no/dir"), SLUICE_OPEN_REPLACE, &file), ENOENT,
	               "no/dir");
	assert_refused(open_flags(f->ctx, f->dir, SLUICE_OPEN_REPLACE, &file), EISDIR, "directory");
	assert_null(file);
	assert_int_equal(directory_entries(f->dir), 0);
}

FIXTURE_TEST(a_replacement_of_a_relative_name_survives_chdir)
{
	char here[512];
	sluice_file *file;

	assert_non_null(getcwd(here, sizeof(here)));
	assert_int_equal(mkdir(scratch(f, "a"), 0777), 0);
	assert_int_equal(mkdir(scratch(f, "b"), 0777), 0);
	assert_int_equal(chdir(scratch(f, "a")), 0);
	file = open_replacing(f, "relative", 0);
	assert_write(file, "x", 1, 0);
	assert_int_equal(chdir("../b"), 0);
	assert_ok(sluice_close(file));
	assert_int_equal(chdir(here), 0);
	assert_file_is(scratch(f, "a/relative"), "x", 1);
	assert_int_equal(directory_entries(scratch(f, "b")), 0);
}

FIXTURE_TEST(two_replacements_of_one_name_do_not_meet)
{
	const char *path = scratch(f, "name");
	sluice_file *a = open_replacing(f, path, 0), *b = open_replacing(f, path, 0);

	assert_write(a, "aaaa", 4, 0);
	assert_write(b, "bb", 2, 0);
	assert_ok(sluice_close(a));
	assert_file_is(path, "aaaa", 4);
	assert_ok(sluice_close(b));
	assert_file_is(path, "bb", 2);
	assert_int_equal(directory_entries(f->dir), 1);
}

static int open_part(struct fixture *f, const char *path, const char *part, unsigned flags,
                     unsigned mode, sluice_file **out)
{
	struct sluice_open_options options = SLUICE_OPEN_OPTIONS_INIT;

	options.flags = flags;
	options.mode = mode;
	options.part = part;
	return sluice_open(f->ctx, path, &options, out);
}

FIXTURE_TEST(a_part_stays_until_it_is_whole)
{
	const char *path = scratch(f, "name");
	sluice_file *file = NULL, *other = NULL;
	char byte;
	struct stat st;

	assert_ok(open_part(f, path, "half", SLUICE_OPEN_REPLACE, 0440, &file));
	sluice_discard(file);
	assert_int_equal(directory_entries(f->dir), 0);
	assert_ok(open_part(f, path, "half", SLUICE_OPEN_REPLACE, 0440, &file));
	assert_write(file, "ab", 2, 0);
	assert_refused(open_part(f, path, "half", SLUICE_OPEN_REPLACE, 0440, &other), EBUSY,
	               "half");
	sluice_discard(file);
	assert_file_is(scratch(f, "half"), "ab", 2);
	assert_ok(open_part(f, path, "half", SLUICE_OPEN_REPLACE | SLUICE_OPEN_READ, 0440, &file));
	assert_read(file, &byte, 1, 1);
	assert_int_equal(byte, 'b');
	assert_write(file, "c", 1, 2);
	assert_int_equal(access(path, F_OK), -1);
	assert_ok(sluice_close(file));
	assert_file_is(path, "abc", 3);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_mode & 07777, 0440);
	assert_int_equal(directory_entries(f->dir), 1);
}

FIXTURE_TEST(a_part_is_this_users_own_file_in_the_same_folder)
{
	static const struct {
		const char *part;
		int error;
		const char *says;
	} wrong[] = {{"symbolic", ELOOP, "symbolic"},
	             {"hard", EPERM, "this user alone"},
	             {"pipe", EPERM, "regular file"},
	             {"folder", EISDIR, "folder"},
	             {"folder/x", EINVAL, "part"}};
	const char *path = scratch(f, "name"), *victim = scratch(f, "victim"),
		   *taken = scratch(f, "x");
	sluice_file *file = NULL;
	size_t i;

	file_make(victim, 10, 2);
	assert_int_equal(symlink(victim, scratch(f, "symbolic")), 0);
	assert_int_equal(link(victim, scratch(f, "hard")), 0);
	assert_int_equal(mkdir(scratch(f, "folder"), 0777), 0);
	assert_int_equal(mkfifo(scratch(f, "pipe"), 0600), 0);
	for (i = 0; i < COUNT_OF(wrong); i++)
		assert_refused(open_part(f, path, wrong[i].part, SLUICE_OPEN_REPLACE, 0, &file),
		               wrong[i].error, wrong[i].says);
	assert_refused(open_part(f, path, "x", SLUICE_OPEN_WRITE | SLUICE_OPEN_CREATE, 0, &file),
	               EINVAL, "REPLACE");
	assert_refused(open_part(f, "http://127.0.0.1:1/x", "x", SLUICE_OPEN_REPLACE, 0, &file),
	               ENOTSUP, "part");
	/* What has come to lie under its name is neither given away nor removed. */
	assert_ok(open_part(f, path, "x", SLUICE_OPEN_REPLACE, 0, &file));
	assert_int_equal(unlink(taken), 0);
	file_make(taken, 10, 2);
	assert_refused(sluice_close(file), ESTALE, "another file");
	assert_int_equal(access(path, F_OK), -1);
	assert_int_equal(access(taken, F_OK), 0);
}

FIXTURE_TEST(file_being_written_can_be_read_back)
{
	const char *path = scratch(f, "name");
	struct buffer b = buffer_new(LENGTH, 0), back = buffer_new(LENGTH, 0);
	sluice_file *file;

	file_make(path, 10, 2);
	file = open_replacing(f, path, SLUICE_OPEN_READ);
	pattern_fill(b.data, LENGTH, 0, 1);
	assert_write(file, b.data, LENGTH, 0);
	assert_read(file, back.data, LENGTH, 0);
	assert_bytes(back.data, b.data, LENGTH);
	assert_ok(sluice_truncate(file, 5));
	assert_ok(sluice_close(file));
	assert_file_is(path, b.data, 5);
	buffer_free(&b);
	buffer_free(&back);
}

FIXTURE_TEST(the_longest_name_can_be_replaced)
{
	char name[256];
	sluice_file *file;

	memset(name, 'n', 255);
	name[255] = '\0';
	file = open_replacing(f, scratch(f, name), 0);
	assert_write(file, "x", 1, 0);
	assert_ok(sluice_close(file));
	assert_file_is(scratch(f, name), "x", 1);
	file = open_replacing(f, scratch(f, name), 0);
	assert_write(file, "yy", 2, 0);
	assert_ok(sluice_close(file));
	assert_file_is(scratch(f, name), "yy", 2);
	assert_int_equal(directory_entries(f->dir), 1);
}

FIXTURE_TEST(a_durable_file_is_closed_like_any_other)
{
	const char *path = scratch(f, "durable");
	struct buffer b = buffer_new(LENGTH, 0);
	sluice_file *file;

	pattern_fill(b.data, LENGTH, 0, 1);
	assert_ok(open_flags(f->ctx, path,
	                     SLUICE_OPEN_WRITE | SLUICE_OPEN_CREATE | SLUICE_OPEN_DURABLE, &file));
	assert_ok(sluice_write(file, b.data, LENGTH, 0, NULL));
	assert_ok(sluice_close(file));
	assert_file_is(path, b.data, LENGTH);
	buffer_free(&b);
}
