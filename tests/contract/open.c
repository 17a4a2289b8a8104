/* SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "contract/contract.h"

FIXTURE_TEST(contradicting_flags_are_refused)
{
	static const unsigned bad[] = {
		SLUICE_OPEN_READ | SLUICE_OPEN_TRUNCATE,
		SLUICE_OPEN_TRUNCATE,
		SLUICE_OPEN_WRITE | SLUICE_OPEN_EXCLUSIVE,
		SLUICE_OPEN_READ | SLUICE_OPEN_EXCLUSIVE,
		SLUICE_OPEN_READ | 1u << 30,
		SLUICE_OPEN_WRITE | 1u << 31,
	};
	const char *path = scratch(f, "flags");
	struct sluice_open_options o = SLUICE_OPEN_OPTIONS_INIT;
	sluice_file *file = NULL;
	size_t i;

	file_make(path, 10, 1);
	for (i = 0; i < COUNT_OF(bad); i++)
		if (open_flags(f->ctx, path, bad[i], &file) != -EINVAL)
			fail_msg("flags %#x were not refused", bad[i]);
	o.size = 0;
	assert_refused(sluice_open(f->ctx, path, &o, &file), EINVAL, "size");
	o.size = sizeof(o);
	o.backend = "tape";
	assert_refused(sluice_open(f->ctx, path, &o, &file), EINVAL, "tape");
	assert_null(file);
	assert_int_equal(file_length(path), 10);
}

FIXTURE_TEST(missing_arguments_are_refused)
{
	sluice_file *file = NULL;

	assert_refused(sluice_open(NULL, "x", NULL, &file), EINVAL, "");
	assert_refused(sluice_open(f->ctx, NULL, NULL, &file), EINVAL, "");
	assert_refused(sluice_open(f->ctx, "x", NULL, NULL), EINVAL, "");
	assert_null(file);
}

FIXTURE_TEST(flags_mean_what_open_means)
{
	const unsigned create = SLUICE_OPEN_WRITE | SLUICE_OPEN_CREATE;
	const char *path = scratch(f, "file");
	sluice_file *file = NULL;

	assert_refused(open_flags(f->ctx, path, SLUICE_OPEN_WRITE, &file), ENOENT, path);
	assert_ok(open_flags(f->ctx, path, create | SLUICE_OPEN_EXCLUSIVE, &file));
	assert_write(file, "12345", 5, 0);
	assert_ok(sluice_close(file));
	file = NULL;
	assert_refused(open_flags(f->ctx, path, create | SLUICE_OPEN_EXCLUSIVE, &file), EEXIST,
	               path);
	assert_null(file);
	assert_ok(open_flags(f->ctx, path, create, &file));
	assert_int_equal(file_length(path), 5);
	assert_ok(sluice_close(file));
	assert_ok(open_flags(f->ctx, path, SLUICE_OPEN_WRITE | SLUICE_OPEN_TRUNCATE, &file));
	assert_int_equal(file_length(path), 0);
	assert_write(file, "67", 2, 0);
	assert_ok(sluice_close(file));
	assert_ok(open_flags(f->ctx, path, create | SLUICE_OPEN_TRUNCATE, &file));
	assert_int_equal(file_length(path), 0);
	assert_ok(sluice_close(file));
}

static unsigned mode_of(const char *path)
{
	struct stat st;

	assert_int_equal(stat(path, &st), 0);
	return st.st_mode & 07777;
}

FIXTURE_TEST(the_mode_of_a_new_file_is_what_was_asked_less_the_umask)
{
	static const struct {
		unsigned mode, mask, expected;
	} cases[] = {{0, 022, 0644}, {0, 077, 0600}, {0640, 022, 0640}, {0777, 027, 0750}};
	static const unsigned flags[] = {SLUICE_OPEN_WRITE | SLUICE_OPEN_CREATE,
	                                 SLUICE_OPEN_REPLACE};
	size_t i, j;

	for (i = 0; i < COUNT_OF(cases); i++) {
		for (j = 0; j < COUNT_OF(flags); j++) {
			struct sluice_open_options o = SLUICE_OPEN_OPTIONS_INIT;
			const char *path = scratch(f, "mode");
			mode_t before = umask(cases[i].mask);
			sluice_file *file;

			o.flags = flags[j];
			o.mode = cases[i].mode;
			assert_ok(sluice_open(f->ctx, path, &o, &file));
			assert_ok(sluice_close(file));
			umask(before);
			assert_int_equal(mode_of(path), cases[i].expected);
			unlink(path);
		}
	}
}

FIXTURE_TEST(a_file_without_permission_is_refused)
{
	const char *path = scratch(f, "secret");
	bool root = geteuid() == 0;
	sluice_file *file = NULL;
	char said[512];
	int rc;

	file_make(path, 1, 1);
	assert_int_equal(chmod(path, 0), 0);
	/* Root may read anything; anybody else may not. */
	if (root)
		assert_int_equal(seteuid(65534), 0);
	rc = sluice_open(f->ctx, path, NULL, &file);
	snprintf(said, sizeof(said), "%s", sluice_last_message());
	if (root)
		assert_int_equal(seteuid(0), 0);
	assert_int_equal(rc, -EACCES);
	assert_non_null(strstr(said, path));
	assert_null(file);
}

FIXTURE_TEST(stat_tells_what_is_known)
{
	const char *path = scratch(f, "stat");
	struct sluice_file_info st = {.size = sizeof(st)};
	struct sluice_open_options o = SLUICE_OPEN_OPTIONS_INIT;
	struct stat plain;
	sluice_file *file;

	file_make(path, 123456, 1);
	assert_int_equal(stat(path, &plain), 0);
	file = open_read(f->ctx, path);
	assert_ok(sluice_stat(file, &st));
	assert_int_equal(st.size, sizeof(st));
	assert_int_equal(st.flags, 0);
	assert_int_equal(st.length, 123456);
	assert_int_equal(st.mode, plain.st_mode);
	assert_int_equal(st.allocated, plain.st_blocks * 512);
	assert_int_equal(st.modified_ns,
	                 plain.st_mtim.tv_sec * 1000000000ll + plain.st_mtim.tv_nsec);
	assert_string_equal(st.backend, row->config.backend ? row->config.backend : "auto");
	/* Alignments come together, and are powers of two. */
	assert_int_equal(st.direct_offset == 0, st.direct_memory == 0);
	assert_int_equal(st.direct_offset & (st.direct_offset - 1), 0);
	assert_int_equal(st.direct_memory & (st.direct_memory - 1), 0);
	st.size = 0;
	assert_refused(sluice_stat(file, &st), EINVAL, "size");
	st.size = sizeof(st);
	file_truncate(path, 7);
	assert_ok(sluice_stat(file, &st));
	assert_int_equal(st.length, 7);
	assert_ok(sluice_close(file));

	o.backend = "posix";
	assert_ok(sluice_open(f->ctx, path, &o, &file));
	assert_ok(sluice_stat(file, &st));
	assert_string_equal(st.backend, "posix");
	assert_ok(sluice_close(file));
}

FIXTURE_TEST(a_backend_that_is_off_is_refused)
{
	struct sluice_open_options o = SLUICE_OPEN_OPTIONS_INIT;
	sluice_file *file = NULL;

	file_make(scratch(f, "off"), 1, 1);
	o.backend = "uring";
	if (row->config.disable && strstr(row->config.disable, "uring")) {
		int rc = sluice_open(f->ctx, scratch(f, "off"), &o, &file);

		assert_true(rc == -EINVAL || rc == -ENOSYS);
		assert_non_null(strstr(sluice_last_message(), "uring"));
		assert_null(file);
	} else if (row_has_uring()) {
		assert_ok(sluice_open(f->ctx, scratch(f, "off"), &o, &file));
		assert_ok(sluice_close(file));
	}
}

FIXTURE_TEST(expected_size_reserves_the_space)
{
	static const unsigned flags[] = {SLUICE_OPEN_WRITE | SLUICE_OPEN_CREATE,
	                                 SLUICE_OPEN_REPLACE};
	struct buffer b = buffer_new(MIB + 3, 0);
	size_t i;

	pattern_fill(b.data, b.length, 0, 1);
	for (i = 0; i < COUNT_OF(flags); i++) {
		struct sluice_open_options o = SLUICE_OPEN_OPTIONS_INIT;
		struct sluice_file_info st = {.size = sizeof(st)};
		const char *path = scratch(f, i ? "expected2" : "expected1");
		sluice_file *file;

		o.flags = flags[i];
		o.expected_size = 8 * MIB;
		assert_ok(sluice_open(f->ctx, path, &o, &file));
		assert_ok(sluice_stat(file, &st));
		assert_true(st.allocated >= 8 * MIB);
		assert_write(file, b.data, b.length, 0);
		assert_ok(sluice_close(file));
		/* Space was reserved; what nobody wrote is not part of the file. */
		assert_file_is(path, b.data, b.length);
	}
	buffer_free(&b);
}

/* More than any file system holds; that a full one is told, see tests/fault. */
FIXTURE_TEST(an_absurd_expected_size_is_refused)
{
	struct sluice_open_options o = SLUICE_OPEN_OPTIONS_INIT;
	sluice_file *file = NULL;
	int rc;

	o.flags = SLUICE_OPEN_REPLACE;
	o.expected_size = (uint64_t)INT64_MAX + 1;
	assert_refused(sluice_open(f->ctx, scratch(f, "absurd"), &o, &file), EINVAL, "");
	o.expected_size = INT64_MAX;
	rc = sluice_open(f->ctx, scratch(f, "absurd"), &o, &file);
	assert_true(rc == -ENOSPC || rc == -EFBIG);
	assert_non_null(strstr(sluice_last_message(), "absurd"));
	assert_null(file);
	assert_int_equal(directory_entries(f->dir), 0);
}

FIXTURE_TEST(many_files_may_be_open)
{
	enum { FILES = 200 };
	sluice_file *files[FILES];
	char name[32], byte;
	int i;

	for (i = 0; i < FILES; i++) {
		snprintf(name, sizeof(name), "many%d", i);
		files[i] = open_both(f->ctx, scratch(f, name));
		byte = (char)i;
		assert_write(files[i], &byte, 1, 0);
	}
	for (i = FILES; i-- > 0;) {
		assert_read(files[i], &byte, 1, 0);
		assert_int_equal(byte, (char)i);
		assert_ok(sluice_close(files[i]));
	}
}
