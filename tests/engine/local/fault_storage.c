/* SPDX-License-Identifier: Apache-2.0 */
/* Small, full and read-only file systems, mounted for the purpose. */
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "local/fault.h"

/* A mounted file system of a few MiB. */
struct small {
	const char *name;
	size_t capacity; /* it holds less than this */
	int (*mount)(const char *image, const char *at);
};

static int run(const char *command)
{
	int status = system(command);

	return status != -1 && WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : -1;
}

static int mount_tmpfs(const char *image, const char *at)
{
	(void)image;
	return mount("tmpfs", at, "tmpfs", 0, "size=2m");
}

static int mount_ext4(const char *image, const char *at)
{
	char command[2048];

	file_make(image, 0, 0);
	file_truncate(image, 8 * MIB);
	snprintf(command, sizeof(command),
	         "PATH=$PATH:/sbin:/usr/sbin; mkfs.ext4 -q -F -O ^has_journal '%s' >/dev/null 2>&1 "
	         "&& "
	         "mount -o loop '%s' '%s' 2>/dev/null",
	         image, image, at);
	return run(command);
}

static const struct small kinds[] = {
	{"tmpfs", 2 * 1024 * 1024, mount_tmpfs},
	{"ext4", 8 * 1024 * 1024, mount_ext4},
};

/* The kernel lets go of a file that io_uring used a moment after the request is over. */
static int unmount(const char *at)
{
	int rc = umount(at);

	for (int i = 0; i < 400 && rc != 0 && errno == EBUSY; i++) {
		sleep_ms(5);
		rc = umount(at);
	}
	return rc;
}

/* Runs check on each kind of file system that can be mounted here. */
static void on_small_file_systems(struct fixture *f,
                                  void (*check)(struct fixture *, const struct small *,
                                                const char *))
{
	size_t i, done = 0;

	for (i = 0; i < COUNT_OF(kinds); i++) {
		char at[512];

		snprintf(at, sizeof(at), "%s", scratch(f, "mounted"));
		mkdir(at, 0777);
		if (kinds[i].mount(scratch(f, "image"), at) != 0) {
			print_message("%s cannot be mounted here, left out\n", kinds[i].name);
			continue;
		}
		check(f, &kinds[i], at);
		if (unmount(at) != 0)
			fail_msg("%s is still in use: %s", at, strerror(errno));
		done++;
	}
	if (!done)
		SKIP("mounting a file system needs root");
}

static void check_full(struct fixture *f, const struct small *fs, const char *at)
{
	struct buffer b = buffer_new(fs->capacity + MIB, 0), back = buffer_new(100000, 0);
	char path[600], first[600];
	sluice_file *file, *other;
	sluice_op *op;

	snprintf(path, sizeof(path), "%s/full", at);
	snprintf(first, sizeof(first), "%s/first", at);
	pattern_fill(b.data, b.length, 0, 1);
	other = open_both(f->ctx, first);
	assert_write(other, b.data, 100000, 0);
	file = open_both(f->ctx, path);
	op = start_write(file, b.data, b.length, 0);
	assert_int_equal(sluice_wait(op, PATIENCE_MS), -ENOSPC);
	assert_non_null(strstr(sluice_op_message(op), "full"));
	assert_non_null(strstr(sluice_op_message(op), strerror(ENOSPC)));
	sluice_op_free(op);
	assert_ok(sluice_write(file, b.data, b.length, 0, NULL));
	assert_refused(sluice_sync(file), ENOSPC, "full");
	/* Neither what was there, nor what comes once there is room, is harmed. */
	assert_read(other, back.data, 100000, 0);
	assert_bytes(back.data, b.data, 100000);
	assert_ok(sluice_truncate(file, 0));
	assert_write(file, b.data, 100000, 0);
	assert_ok(sluice_close(file));
	assert_file_is(path, b.data, 100000);
	assert_ok(sluice_close(other));
	buffer_free(&b);
	buffer_free(&back);
}

FAULT_TEST(a_full_file_system_fails_the_write)
{
	on_small_file_systems(f, check_full);
}

/* Their length is set together while they wait. */
static void check_several(struct fixture *f, const struct small *fs, const char *at)
{
	struct buffer b = buffer_new(fs->capacity / 16 * 5 / 4096 * 4096, 0);
	sluice_op *ops[4];
	char path[600];
	sluice_file *file;

	/* In memory no length is set, and any of them may come first. */
	if (!strcmp(fs->name, "tmpfs")) {
		buffer_free(&b);
		return;
	}
	snprintf(path, sizeof(path), "%s/several", at);
	pattern_fill(b.data, b.length, 0, 1);
	file = open_both(f->ctx, path);
	for (size_t i = 0; i < COUNT_OF(ops); i++)
		ops[i] = start_write(file, b.data, b.length, i * b.length);
	assert_moves(ops[0], b.length);
	assert_moves(ops[1], b.length);
	finish(ops[2]);
	assert_int_equal(finish(ops[3]), -ENOSPC);
	memset(b.data, 0, b.length);
	assert_read(file, b.data, b.length, b.length);
	assert_pattern(b.data, b.length, 0, 1);
	sluice_close(file);
	unlink(path);
	buffer_free(&b);
}

FAULT_TEST(of_writes_that_do_not_fit_together_the_first_do)
{
	on_small_file_systems(f, check_several);
}

static void check_replacing(struct fixture *f, const struct small *fs, const char *at)
{
	struct buffer b = buffer_new(fs->capacity + MIB, 0);
	size_t before;
	char path[600];
	sluice_file *file;

	snprintf(path, sizeof(path), "%s/replaced", at);
	file_write(path, "old", 3, 0);
	before = directory_entries(at);
	assert_ok(open_flags(f->ctx, path, SLUICE_OPEN_REPLACE, &file));
	assert_ok(sluice_write(file, b.data, b.length, 0, NULL));
	assert_refused(sluice_close(file), ENOSPC, "replaced");
	assert_file_is(path, "old", 3);
	assert_int_equal(directory_entries(at), before);
	buffer_free(&b);
}

FAULT_TEST(a_full_file_system_leaves_the_old_file)
{
	on_small_file_systems(f, check_replacing);
}

static void check_no_room_for_two(struct fixture *f, const struct buffer *b, const char *path)
{
	struct sluice_extent extents[] = {{b->data, b->length, b->length},
	                                  {b->data, b->length, 2 * b->length}};
	struct sluice_request r = SLUICE_REQUEST_INIT;
	struct sluice_open_options o = SLUICE_OPEN_OPTIONS_INIT;
	struct sluice_file_info stat = {.size = sizeof(stat)};
	sluice_file *file = NULL;
	sluice_op *op;

	o.flags = SLUICE_OPEN_WRITE;
	r.kind = SLUICE_WRITE;
	r.extents = extents;
	r.count = 2;
	assert_ok(sluice_open(f->ctx, path, &o, &file));
	assert_ok(sluice_stat(file, &stat));
	assert_ok(sluice_submit(file, &r, &op));
	assert_int_equal(sluice_wait(op, -1), -ENOSPC);
	if (stat.direct_offset)
		assert_non_null(strstr(sluice_op_message(op), "reserve"));
	sluice_op_free(op);
	assert_ok(sluice_truncate(file, b->length));
	assert_ok(sluice_close(file));
}

static void check_reserved(struct fixture *f, const struct small *fs, const char *at)
{
	struct sluice_open_options o = SLUICE_OPEN_OPTIONS_INIT;
	struct buffer b = buffer_new(fs->capacity / 8 * 5, 0);
	sluice_file *file = NULL;
	size_t before = directory_entries(at);
	char path[600];

	snprintf(path, sizeof(path), "%s/expected", at);
	o.flags = SLUICE_OPEN_REPLACE;
	o.expected_size = fs->capacity + MIB;
	assert_refused(sluice_open(f->ctx, path, &o, &file), ENOSPC, "expected");
	assert_null(file);
	assert_int_equal(directory_entries(at), before);
	o.flags = SLUICE_OPEN_WRITE | SLUICE_OPEN_CREATE;
	assert_refused(sluice_open(f->ctx, path, &o, &file), ENOSPC, "expected");
	assert_int_equal(directory_entries(at), before);
	/* A file that was there stays, and an empty one too. */
	file_write(path, "", 0, 0);
	assert_refused(sluice_open(f->ctx, path, &o, &file), ENOSPC, "expected");
	assert_int_equal(directory_entries(at), before + 1);
	unlink(path);
	o.flags = SLUICE_OPEN_REPLACE;
	/* Not taken, but given back: now a smaller one fits. */
	o.expected_size = b.length;
	assert_ok(sluice_open(f->ctx, path, &o, &file));
	assert_write(file, b.data, b.length, 0);
	assert_ok(sluice_close(file));
	/* Extents that follow each other are as one, and looked for before the first is written. */
	check_no_room_for_two(f, &b, path);
	/* What it has is not looked for again. */
	o.flags = SLUICE_OPEN_WRITE;
	assert_ok(sluice_open(f->ctx, path, &o, &file));
	assert_ok(sluice_close(file));
	assert_file_is(path, b.data, b.length);
	unlink(path);
	buffer_free(&b);
}

FAULT_TEST(a_file_that_will_not_fit_is_refused_when_it_is_opened)
{
	on_small_file_systems(f, check_reserved);
}

static void check_read_only(struct fixture *f, const struct small *fs, const char *at)
{
	sluice_file *file = NULL;
	char path[600], byte = 0;

	(void)fs;
	snprintf(path, sizeof(path), "%s/there", at);
	file_write(path, "x", 1, 0);
	if (mount(NULL, at, NULL, MS_REMOUNT | MS_RDONLY, NULL) != 0) {
		print_message("%s: %s\n", at, strerror(errno));
		return;
	}
	assert_refused(open_flags(f->ctx, path, SLUICE_OPEN_WRITE, &file), EROFS, "there");
	assert_refused(open_flags(f->ctx, path, SLUICE_OPEN_REPLACE, &file), EROFS, "there");
	snprintf(path, sizeof(path), "%s/new", at);
	assert_refused(open_flags(f->ctx, path, SLUICE_OPEN_WRITE | SLUICE_OPEN_CREATE, &file),
	               EROFS, "new");
	assert_null(file);
	snprintf(path, sizeof(path), "%s/there", at);
	file = open_read(f->ctx, path);
	assert_read(file, &byte, 1, 0);
	assert_int_equal(byte, 'x');
	assert_ok(sluice_close(file));
}

FAULT_TEST(a_read_only_file_system_refuses_writers)
{
	on_small_file_systems(f, check_read_only);
}

static void check_contents(struct fixture *f, const struct small *fs, const char *at)
{
	struct buffer b = buffer_new(fs->capacity / 2, 0), back = buffer_new(fs->capacity / 2, 16);
	char path[600];
	sluice_file *file;

	snprintf(path, sizeof(path), "%s/plain", at);
	pattern_fill(b.data, b.length, 0, 3);
	file = open_both(f->ctx, path);
	assert_write(file, b.data, b.length - 3, 0);
	assert_write(file, b.data + b.length - 3, 3, b.length - 3);
	assert_ok(sluice_sync(file));
	file_set_residency(path, COLD);
	assert_read(file, back.data, b.length, 0);
	assert_bytes(back.data, b.data, b.length);
	assert_int_equal(read_now(file, back.data, 1, b.length), 0);
	assert_ok(sluice_close(file));
	unlink(path);
	buffer_free(&b);
	buffer_free(&back);
}

FAULT_TEST(each_file_system_keeps_what_is_written)
{
	on_small_file_systems(f, check_contents);
}
