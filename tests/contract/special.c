/* SPDX-License-Identifier: Apache-2.0 */
/* What is not a plain file: /proc, /sys, block devices, and what sluice refuses. */
#include <fcntl.h>
#include <linux/loop.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "contract/contract.h"

/* Reads a file of unknown length without sluice; the caller frees the result. */
static char *slurp(const char *path, size_t *n)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	char *all = malloc(16 * MIB);
	ssize_t got;

	*n = 0;
	if (fd < 0) {
		free(all);
		return NULL;
	}
	while ((got = read(fd, all + *n, 16 * MIB - *n)) > 0)
		*n += (size_t)got;
	close(fd);
	return all;
}

static void check_unsized(struct fixture *f, const char *path)
{
	size_t n, step, at;
	char *expected = slurp(path, &n);
	struct sluice_file_info st = {.size = sizeof(st)};
	struct buffer b;
	sluice_file *file;

	if (!expected) {
		print_message("%s is not there, left out\n", path);
		return;
	}
	b = buffer_new(n + 100000, 0);
	file = open_read(f->ctx, path);
	assert_ok(sluice_stat(file, &st));
	assert_true(st.flags & SLUICE_STAT_SIZE_UNKNOWN);
	assert_int_equal(st.length, 0);
	assert_int_equal(read_now(file, b.data, n + 100000, 0), n);
	assert_bytes(b.data, expected, n);
	assert_int_equal(read_now(file, b.data, 10, n + 1000), 0);
	/* As a copy reads it: on and on until nothing comes. */
	memset(b.data, 0, n);
	step = n / 7 + 1;
	for (at = 0;; at += step) {
		int64_t got = read_now(file, b.data + at, step, at);

		assert_int_equal(got, n < at ? 0 : n - at < step ? n - at : step);
		if (got == 0)
			break;
	}
	assert_bytes(b.data, expected, n);
	assert_ok(sluice_close(file));
	buffer_free(&b);
	free(expected);
}

FIXTURE_TEST(files_of_proc_are_read_to_their_end)
{
	static const char *const paths[] = {"/proc/version", "/proc/filesystems", "/proc/devices",
	                                    "/proc/self/environ"};

	for (size_t i = 0; i < COUNT_OF(paths); i++)
		check_unsized(f, paths[i]);
}

/* Longer than a piece of any row; its beginning, the kernel's own symbols, does not change. */
FIXTURE_TEST(a_long_file_of_proc_is_read)
{
	enum { LENGTH = 300000 };
	struct buffer b = buffer_new(LENGTH, 0);
	size_t n;
	char *expected = slurp("/proc/kallsyms", &n);
	sluice_file *file;

	if (!expected || n < LENGTH) {
		free(expected);
		buffer_free(&b);
		SKIP("/proc/kallsyms is missing or short");
	}
	file = open_read(f->ctx, "/proc/kallsyms");
	assert_read(file, b.data, LENGTH, 0);
	assert_bytes(b.data, expected, LENGTH);
	assert_read(file, b.data, 100000, 123457);
	assert_bytes(b.data, expected + 123457, 100000);
	assert_ok(sluice_close(file));
	free(expected);
	buffer_free(&b);
}

FIXTURE_TEST(changing_files_of_proc_are_read)
{
	struct buffer b = buffer_new(MIB, 0);
	sluice_file *file = open_read(f->ctx, "/proc/self/status");
	int64_t got = read_now(file, b.data, MIB, 0);

	assert_in_range(got, 100, MIB - 1);
	assert_memory_equal(b.data, "Name:\t", 6);
	assert_non_null(memmem(b.data, (size_t)got, "nonvoluntary_ctxt_switches", 26));
	assert_ok(sluice_close(file));
	file = open_read(f->ctx, "/proc/cpuinfo");
	got = read_now(file, b.data, MIB, 0);
	assert_in_range(got, 100, MIB - 1);
	assert_memory_equal(b.data, "processor", 9);
	assert_ok(sluice_close(file));
	buffer_free(&b);
}

/* They say that they hold a page, and hold a line. */
FIXTURE_TEST(files_of_sys_read_as_their_content)
{
	static const char *const paths[] = {"/sys/devices/system/cpu/online",
	                                    "/sys/kernel/mm/transparent_hugepage/enabled",
	                                    "/sys/kernel/mm/ksm/run"};
	size_t i, n, seen = 0;

	for (i = 0; i < COUNT_OF(paths); i++) {
		char *expected = slurp(paths[i], &n);
		struct buffer b = buffer_new(8192, 0);
		sluice_file *file;

		if (expected) {
			file = open_read(f->ctx, paths[i]);
			assert_int_equal(read_now(file, b.data, 8192, 0), n);
			assert_bytes(b.data, expected, n);
			assert_int_equal(read_now(file, b.data, 4096, 0), n);
			assert_bytes(b.data, expected, n);
			assert_int_equal(read_now(file, b.data, 10, n), 0);
			assert_ok(sluice_close(file));
			seen++;
		}
		free(expected);
		buffer_free(&b);
	}
	if (!seen)
		SKIP("there is no /sys");
}

static void check_refused(struct fixture *f, const char *path, int error)
{
	static const unsigned flags[] = {
		SLUICE_OPEN_READ, SLUICE_OPEN_WRITE, SLUICE_OPEN_READ | SLUICE_OPEN_WRITE,
		SLUICE_OPEN_WRITE | SLUICE_OPEN_CREATE | SLUICE_OPEN_TRUNCATE};
	size_t i;

	for (i = 0; i < COUNT_OF(flags); i++) {
		sluice_file *file = NULL;
		double begun = seconds_now();
		int rc = open_flags(f->ctx, path, flags[i], &file);

		if (rc != -error)
			fail_msg("%s with flags %u: %d, not -%s", path, flags[i], rc,
			         strerror(error));
		assert_non_null(strstr(sluice_last_message(), path));
		assert_null(file);
		assert_true(seconds_now() - begun < 10);
	}
}

FIXTURE_TEST(file_without_offsets_is_refused_without_blocking)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	const char *fifo = scratch(f, "fifo"), *link = scratch(f, "link");
	sluice_file *file = NULL;
	char here[512];
	int s;

	assert_int_equal(mkfifo(fifo, 0666), 0);
	check_refused(f, fifo, ESPIPE);
	assert_int_equal(symlink("fifo", link), 0);
	check_refused(f, link, ESPIPE);
	check_refused(f, "/dev/zero", ESPIPE);
	assert_int_equal(open_flags(f->ctx, "/dev/null", SLUICE_OPEN_READ, &file), -ESPIPE);

	/* The scratch directory's name is too long for a socket's address. */
	assert_non_null(getcwd(here, sizeof(here)));
	assert_int_equal(chdir(f->dir), 0);
	s = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	strcpy(address.sun_path, "socket");
	assert_int_equal(bind(s, (struct sockaddr *)&address, sizeof(address)), 0);
	check_refused(f, "socket", ESPIPE);
	close(s);
	assert_int_equal(chdir(here), 0);
}

FIXTURE_TEST(dev_null_takes_writes_at_any_offset)
{
	static const unsigned flags[] = {SLUICE_OPEN_WRITE, SLUICE_OPEN_READ | SLUICE_OPEN_WRITE,
	                                 SLUICE_OPEN_WRITE | SLUICE_OPEN_CREATE |
	                                         SLUICE_OPEN_TRUNCATE};
	struct buffer b = buffer_new(3 * MIB, 0);
	struct stat st;
	size_t i;

	for (i = 0; i < COUNT_OF(flags); i++) {
		sluice_file *file = NULL;

		assert_ok(open_flags(f->ctx, "/dev/null", flags[i], &file));
		assert_write(file, b.data, b.length, 0);
		assert_write(file, b.data, 4097, (uint64_t)1 << 40);
		if (flags[i] & SLUICE_OPEN_READ)
			assert_int_equal(read_now(file, b.data, 100, 0), 0);
		assert_ok(sluice_close(file));
	}
	assert_int_equal(stat("/dev/null", &st), 0);
	assert_true(S_ISCHR(st.st_mode));
	buffer_free(&b);
}

FIXTURE_TEST(a_fifo_is_not_disturbed_by_being_refused)
{
	const char *fifo = scratch(f, "fifo");
	sluice_file *file = NULL;
	char got[16] = "";
	int fd;

	assert_int_equal(mkfifo(fifo, 0666), 0);
	fd = open(fifo, O_RDWR | O_CLOEXEC);
	assert_int_equal(write(fd, "hello", 5), 5);
	assert_refused(sluice_open(f->ctx, fifo, NULL, &file), ESPIPE, "fifo");
	assert_int_equal(read(fd, got, sizeof(got)), 5);
	assert_string_equal(got, "hello");
	close(fd);
}

FIXTURE_TEST(a_directory_is_refused)
{
	char slash[300];

	check_refused(f, f->dir, EISDIR);
	snprintf(slash, sizeof(slash), "%s/", f->dir);
	check_refused(f, slash, EISDIR);
	check_refused(f, "/", EISDIR);
	assert_int_equal(directory_entries(f->dir), 0);
}

FIXTURE_TEST(a_missing_file_is_named)
{
	const char *path = scratch(f, "no such file"), *below = scratch(f, "plain/below");
	sluice_file *file = NULL;

	assert_refused(sluice_open(f->ctx, path, NULL, &file), ENOENT, "no such file");
	assert_refused(open_flags(f->ctx, path, SLUICE_OPEN_WRITE, &file), ENOENT, path);
	file_make(scratch(f, "plain"), 1, 1);
	assert_refused(sluice_open(f->ctx, below, NULL, &file), ENOTDIR, below);
	assert_null(file);
}

/* Sets up a loop device for the file; its descriptor, or -1. Others may take the same number. */
static int loop_attach(const char *image, char *device, size_t size)
{
	int control = open("/dev/loop-control", O_RDWR | O_CLOEXEC);
	int backing = open(image, O_RDWR | O_CLOEXEC), loop = -1, tries, number;

	snprintf(device, size, "/dev/loop-control");
	for (tries = 0; tries < 50 && control >= 0 && loop < 0; tries++) {
		number = ioctl(control, LOOP_CTL_GET_FREE);
		if (number < 0)
			break;
		snprintf(device, size, "/dev/loop%d", number);
		loop = open(device, O_RDWR | O_CLOEXEC);
		if (loop >= 0 && ioctl(loop, LOOP_SET_FD, backing) != 0) {
			close(loop);
			loop = -1;
			if (errno != EBUSY)
				break;
		}
	}
	if (control >= 0)
		close(control);
	close(backing);
	return loop;
}

FIXTURE_TEST(a_block_device_is_read_and_written)
{
	const char *image = scratch(f, "image");
	struct sluice_file_info st = {.size = sizeof(st)};
	struct buffer b, back;
	bool cufile = row->config.backend && !strcmp(row->config.backend, "cufile");
	sluice_file *file;
	char device[64];
	int64_t result;
	int loop;

	file_make(image, 4 * MIB, 1);
	loop = loop_attach(image, device, sizeof(device));
	if (loop < 0)
		SKIP("%s: %s", device, strerror(errno));
	b = buffer_new(2 * MIB, 0);
	back = buffer_new(4 * MIB, 0);
	file = open_both(f->ctx, device);
	assert_ok(sluice_stat(file, &st));
	assert_int_equal(st.length, 4 * MIB);
	assert_true(S_ISBLK(st.mode));
	assert_int_equal(read_now(file, back.data, 4 * MIB, 0), 4 * MIB);
	assert_pattern(back.data, 4 * MIB, 0, 1);
	pattern_fill(b.data, b.length, MIB, 2);
	assert_write(file, b.data, 2 * MIB, MIB);
	assert_write(file, b.data + 1000, 777, MIB + 1000);
	assert_int_equal(read_now(file, back.data, 4 * MIB, 3 * MIB), MIB);
	assert_pattern(back.data, MIB, 3 * MIB, 1);
	assert_int_equal(read_now(file, back.data, 100, 4 * MIB), 0);
	assert_read(file, back.data, 2 * MIB, MIB);
	assert_pattern(back.data, 2 * MIB, MIB, 2);
	/* On a stream cuFile does not say why. */
	result = finish(start_write(file, b.data, 4096, 4 * MIB));
	if (result != -ENOSPC && !(cufile && result == -EIO))
		fail_msg("a write behind the end gave %lld", (long long)result);
	assert_ok(sluice_sync(file));
	assert_ok(sluice_close(file));
	ioctl(loop, LOOP_CLR_FD, 0);
	close(loop);
	buffer_free(&b);
	buffer_free(&back);
}
