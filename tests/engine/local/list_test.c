/* SPDX-License-Identifier: Apache-2.0 */
/* Lists of folders against what was made there, and the removal of files. */
#include <fcntl.h>
#include <linux/capability.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "lib/support.h"

#define MOST 4000

/* The names that a list should have: of all that is no folder, and of the folder's own entries. */
static struct names {
	char *of[MOST];
	size_t count;
} deep, flat;

static void names_add(struct names *names, const char *name)
{
	assert_true(names->count < MOST);
	names->of[names->count++] = strdup(name);
}

static int names_compare(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

static void names_clear(struct names *names)
{
	while (names->count)
		free(names->of[--names->count]);
}

static void make_file(const char *path, size_t length)
{
	int fd = open(path, O_CREAT | O_WRONLY, 0600);

	assert_int_equal(ftruncate(fd, (off_t)length) | close(fd), 0);
}

/* Makes files, links, folders, some of them empty, with names that sort in different ways around '/'. */
static void make_tree(struct rng *rng, const char *folder, int depth)
{
	static const char *const ends[] = {"", "-", ".", "0", "\x01", "\xff", " %2F?#", "\n"};
	char path[512], name[1024];

	for (int i = 0; i < 12; i++) {
		snprintf(path, sizeof(path), "%s/%s%c%s", folder, rng_below(rng, 4) ? "" : ".",
		         (char)('a' + rng_below(rng, 3)), ends[rng_below(rng, 8)]);
		if (rng_below(rng, 3) == 0 && depth < 2) {
			if (mkdir(path, 0700))
				continue;
			make_tree(rng, path, depth + 1);
			snprintf(name, sizeof(name), "%s/", path);
		} else {
			struct stat st;

			if (!lstat(path, &st))
				continue;
			if (rng_below(rng, 4) == 0)
				assert_int_equal(symlink(rng_below(rng, 2) ? "." : "none", path),
				                 0);
			else
				make_file(path, rng_below(rng, 6));
			snprintf(name, sizeof(name), "%s", path);
			names_add(&deep, name);
		}
		if (!depth)
			names_add(&flat, name);
	}
}

static void check_list(struct fixture *f, const char *uri, unsigned flags, struct names *names)
{
	struct sluice_entry e = {.size = sizeof(e)};
	sluice_list *list;
	struct stat st;
	int rc;
	size_t i;

	qsort(names->of, names->count, sizeof(*names->of), names_compare);
	assert_ok(sluice_list_open(f->ctx, uri, NULL, flags, &list));
	for (i = 0; (rc = sluice_list_next(list, &e)) > 0; i++) {
		assert_true(i < names->count);
		assert_string_equal(e.name, names->of[i]);
		assert_int_equal(e.is_prefix, e.name[strlen(e.name) - 1] == '/');
		assert_int_equal(lstat(e.name, &st), 0);
		assert_int_equal(e.length, e.is_prefix ? 0 : st.st_size);
		assert_int_equal(e.modified_ns,
		                 st.st_mtim.tv_sec * INT64_C(1000000000) + st.st_mtim.tv_nsec);
		assert_string_equal(e.etag, "");
		assert_string_equal(e.upload, "");
	}
	assert_ok(rc);
	assert_int_equal(i, names->count);
	assert_int_equal(sluice_list_next(list, &e), 0);
	sluice_list_free(list);
}

FIXTURE_TEST(a_folder_has_the_entries_that_were_made)
{
	struct rng rng = {test_seed()};
	char root[512], uri[1024], linked[512];

	for (int i = 0; i < 8; i++) {
		snprintf(root, sizeof(root), "%s/tree %d", f->dir, i);
		assert_int_equal(mkdir(root, 0700), 0);
		make_tree(&rng, root, 0);
		check_list(f, root, SLUICE_LIST_RECURSIVE, &deep);
		check_list(f, root, 0, &flat);
		snprintf(uri, sizeof(uri), "file://%s/tree%%20%d/", f->dir, i);
		check_list(f, uri, SLUICE_LIST_RECURSIVE, &deep);
		names_clear(&deep);
		names_clear(&flat);
	}
	/* The folder itself may be named by a link, and may be empty. */
	snprintf(linked, sizeof(linked), "%s/linked", f->dir);
	snprintf(root, sizeof(root), "%s/empty", f->dir);
	assert_int_equal(mkdir(root, 0700) | symlink("empty", linked), 0);
	check_list(f, root, 0, &flat);
	check_list(f, linked, SLUICE_LIST_RECURSIVE, &flat);
}

/* Takes from this thread, or gives it back, what lets root read every folder. */
static void read_every_folder(bool may)
{
	const unsigned able = 1 << CAP_DAC_OVERRIDE | 1 << CAP_DAC_READ_SEARCH;
	struct __user_cap_header_struct head = {_LINUX_CAPABILITY_VERSION_3, 0};
	struct __user_cap_data_struct data[2];

	assert_int_equal(syscall(SYS_capget, &head, data), 0);
	data[0].effective =
		may ? data[0].effective | (data[0].permitted & able) : data[0].effective & ~able;
	assert_int_equal(syscall(SYS_capset, &head, data), 0);
}

FIXTURE_TEST(a_list_goes_on_behind_a_folder_that_cannot_be_read)
{
	struct sluice_entry e = {.size = sizeof(e)};
	const char *shut = scratch(f, "shut"), *file = scratch(f, "then");
	sluice_list *list;

	file_write(file, "x", 1, 0);
	assert_int_equal(mkdir(shut, 0), 0);
	read_every_folder(false);
	assert_refused(sluice_list_open(f->ctx, shut, NULL, 0, &list), EACCES, shut);
	assert_ok(sluice_list_open(f->ctx, f->dir, NULL, SLUICE_LIST_RECURSIVE, &list));
	assert_refused(sluice_list_next(list, &e), EACCES, shut);
	assert_int_equal(sluice_list_next(list, &e), 1);
	assert_string_equal(e.name, file);
	assert_int_equal(sluice_list_next(list, &e), 0);
	sluice_list_free(list);
	read_every_folder(true);
}

FIXTURE_TEST(what_has_no_list_is_refused)
{
	struct sluice_entry e = {0};
	sluice_list *list = NULL;
	const char *file = scratch(f, "file");

	file_write(file, "x", 1, 0);
	assert_refused(sluice_list_open(f->ctx, file, NULL, 0, &list), ENOTDIR, file);
	assert_refused(sluice_list_open(f->ctx, scratch(f, "none"), NULL, 1, &list), ENOENT,
	               "none");
	assert_refused(sluice_list_open(f->ctx, "store://x", NULL, 0, &list), ENOTSUP, "store://x");
	assert_refused(sluice_list_open(f->ctx, "http://me:hidden@h/", NULL, 0, &list), ENOTSUP,
	               "http://h/");
	assert_refused(sluice_list_open(f->ctx, "gs://b/", NULL, 0, &list), EPROTONOSUPPORT, "gs");
	assert_refused(sluice_list_open(f->ctx, "", NULL, 0, &list), EINVAL, "empty");
	assert_refused(sluice_list_open(f->ctx, f->dir, NULL, 4, &list), EINVAL, "0x4");
	assert_refused(sluice_list_open(f->ctx, "s3://b/", NULL, ~3u, &list), EINVAL, "0xfffffffc");
	assert_refused(sluice_list_open(f->ctx, f->dir, NULL, SLUICE_LIST_UPLOADS, &list), ENOTSUP,
	               "uploads");
	assert_null(list);
	assert_ok(sluice_list_open(f->ctx, f->dir, NULL, 0, &list));
	assert_refused(sluice_list_next(list, &e), EINVAL, "size");
	sluice_list_free(list);
}

FIXTURE_TEST(a_file_is_removed_and_a_folder_is_not)
{
	const char *file = scratch(f, "file"), *link = scratch(f, "link");
	const char *many[] = {scratch(f, "a"), f->dir, scratch(f, "none"), scratch(f, "b")};
	const char *mixed[] = {many[0], "store://x"};
	char *messages[4], uri[512];
	int errors[4];

	file_write(file, "x", 1, 0);
	file_write(many[0], "x", 1, 0);
	file_write(many[3], "x", 1, 0);
	assert_int_equal(symlink("file", link), 0);
	assert_ok(sluice_remove(f->ctx, link, NULL, NULL));
	snprintf(uri, sizeof(uri), "file://%s/f%%69le", f->dir);
	assert_ok(sluice_remove(f->ctx, uri, NULL, NULL));
	assert_int_not_equal(access(file, F_OK), 0);
	assert_refused(sluice_remove(f->ctx, uri, NULL, NULL), ENOENT, "file");
	assert_refused(sluice_remove(f->ctx, f->dir, NULL, NULL), EISDIR, f->dir);
	assert_refused(sluice_remove(f->ctx, many[0], NULL, "upload"), ENOTSUP, "uploads");
	assert_refused(sluice_remove(f->ctx, "gs://b/x", NULL, NULL), EPROTONOSUPPORT, "gs");
	assert_refused(sluice_remove_many(f->ctx, mixed, 2, NULL, NULL, NULL), ENOTSUP,
	               "store://x");
	assert_int_equal(access(many[0], F_OK), 0);
	assert_refused(sluice_remove_many(f->ctx, many, 4, NULL, errors, messages), EISDIR, f->dir);
	assert_int_equal(errors[0] | errors[3], 0);
	assert_int_equal(errors[1], -EISDIR);
	assert_int_equal(errors[2], -ENOENT);
	assert_true(!messages[0] && strstr(messages[1], f->dir) && strstr(messages[2], "none"));
	assert_int_not_equal(access(many[0], F_OK) & access(many[3], F_OK), 0);
	for (int i = 0; i < 4; i++)
		free(messages[i]);
}

int main(void)
{
	return RUN_TESTS(NULL, NULL);
}
