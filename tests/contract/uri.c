/* SPDX-License-Identifier: Apache-2.0 */
#include <sys/stat.h>
#include <unistd.h>

#include "contract/contract.h"

/* Makes a file of that name with one byte, and reads the byte through the URI. */
static void check_names(struct fixture *f, const char *uri, const char *name, char byte)
{
	char *absolute = realpath(f->dir, NULL), full[1024], path[1024], got = 0;
	sluice_file *file = NULL;

	assert_non_null(absolute);
	snprintf(path, sizeof(path), "%s/%s", absolute, name);
	snprintf(full, sizeof(full), "file://%s/%s", absolute, uri);
	file_write(path, &byte, 1, 0);
	assert_ok(sluice_open(f->ctx, full, NULL, &file));
	assert_read(file, &got, 1, 0);
	assert_int_equal(got, byte);
	assert_ok(sluice_close(file));
	free(absolute);
}

FIXTURE_TEST(a_file_uri_names_a_path)
{
	check_names(f, "plain", "plain", 'a');
	check_names(f, "with%20space", "with space", 'b');
	check_names(f, "%70%6c%61in2", "plain2", 'c');
	check_names(f, "hundred%25", "hundred%", 'd');
	check_names(f, "%25%32%30", "%20", 'e');
	check_names(f, "%c3%a4%C3%A4", "\303\244\303\244", 'f');
	check_names(f, "a+b&c=d;e,f@g:h", "a+b&c=d;e,f@g:h", 'g');
	check_names(f, "%3f%23", "?#", 'h');
}

FIXTURE_TEST(a_slash_may_be_escaped)
{
	assert_int_equal(mkdir(scratch(f, "d"), 0777), 0);
	check_names(f, "d%2Ffile", "d/file", 'x');
}

/* No escapes there, and a colon or a percent sign means nothing. */
FIXTURE_TEST(a_path_is_taken_as_it_is)
{
	static const char *const names[] = {
		"a%20b", "c:d", "100%", "%zz", "http:", "#x?y", "\xff\xfe", " ", "file:"};
	sluice_file *file;
	char here[512], got;
	size_t i;

	assert_non_null(getcwd(here, sizeof(here)));
	assert_int_equal(chdir(f->dir), 0);
	for (i = 0; i < COUNT_OF(names); i++) {
		char byte = (char)('a' + i);

		file_write(names[i], &byte, 1, 0);
		file = open_read(f->ctx, names[i]);
		assert_read(file, &got, 1, 0);
		assert_int_equal(got, byte);
		assert_ok(sluice_close(file));
	}
	/* What begins like a path is one, whatever follows. */
	assert_int_equal(mkdir("s3:", 0777), 0);
	file_write("s3:/key", "k", 1, 0);
	file = open_read(f->ctx, "./s3://key");
	assert_read(file, &got, 1, 0);
	assert_int_equal(got, 'k');
	assert_ok(sluice_close(file));
	assert_int_equal(chdir(here), 0);
}

FIXTURE_TEST(an_unknown_scheme_is_named)
{
	sluice_file *file = NULL;

	assert_refused(sluice_open(f->ctx, "gopher://host/x", NULL, &file), EPROTONOSUPPORT,
	               "gopher");
	assert_refused(sluice_open(f->ctx, "x-a.b+c2://h", NULL, &file), EPROTONOSUPPORT,
	               "x-a.b+c2");
	assert_refused(sluice_open(f->ctx, "filed:///etc/passwd", NULL, &file), EPROTONOSUPPORT,
	               "filed");
	assert_null(file);
}

FIXTURE_TEST(a_malformed_uri_is_refused)
{
	static const char *const bad[] = {
		"file:///tmp/%",     "file:///tmp/%2",     "file:///tmp/%zz", "file:///tmp/%2g",
		"file:///tmp/a%00b", "file://otherhost/x", "file://",
	};
	sluice_file *file = NULL;
	size_t i;

	for (i = 0; i < COUNT_OF(bad); i++) {
		int rc = sluice_open(f->ctx, bad[i], NULL, &file);

		if (rc != -EINVAL)
			fail_msg("%s: %d, not -EINVAL; \"%s\"", bad[i], rc, sluice_last_message());
		if (!strstr(sluice_last_message(), bad[i]))
			fail_msg("\"%s\" does not name %s", sluice_last_message(), bad[i]);
	}
	assert_null(file);
}

FIXTURE_TEST(an_overlong_path_is_refused)
{
	char *path = malloc(20000);
	sluice_file *file = NULL;

	memset(path, 'a', 19999);
	path[19999] = '\0';
	assert_refused(sluice_open(f->ctx, path, NULL, &file), ENAMETOOLONG, "aaa");
	memcpy(path, "file:///", 8);
	assert_refused(sluice_open(f->ctx, path, NULL, &file), ENAMETOOLONG, "aaa");
	assert_null(file);
	free(path);
}

/* The rest of what remote files are is told by tests/engine/http, and by the rows that have a server. */
FIXTURE_TEST(a_remote_uri_is_known)
{
	sluice_file *file = NULL;
	static const char *const uris[] = {"http://:80/x", "https://:80/x", "HTTP://:80/x"};
	size_t i;

	for (i = 0; i < COUNT_OF(uris); i++)
		assert_refused(sluice_open(f->ctx, uris[i], NULL, &file), EINVAL, "");
	assert_null(file);
}
