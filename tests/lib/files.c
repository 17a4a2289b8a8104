/* SPDX-License-Identifier: Apache-2.0 */
#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/support.h"

static int open_or_fail(const char *path, int flags)
{
	int fd = open(path, flags | O_CLOEXEC, 0666);

	if (fd < 0)
		fail_msg("%s: %s", path, strerror(errno));
	return fd;
}

void file_make(const char *path, size_t n, uint64_t seed)
{
	int fd = open_or_fail(path, O_WRONLY | O_CREAT | O_TRUNC);
	unsigned char *part = malloc(MIB);
	size_t done, step;

	for (done = 0; done < n; done += step) {
		step = n - done < MIB ? n - done : MIB;
		pattern_fill(part, step, done, seed);
		if (pwrite(fd, part, step, (off_t)done) != (ssize_t)step)
			fail_msg("%s: %s", path, strerror(errno));
	}
	if (fsync(fd) != 0)
		fail_msg("%s: %s", path, strerror(errno));
	free(part);
	close(fd);
}

void file_write(const char *path, const void *src, size_t n, uint64_t offset)
{
	int fd = open_or_fail(path, O_WRONLY | O_CREAT);

	if (pwrite(fd, src, n, (off_t)offset) != (ssize_t)n)
		fail_msg("%s: %s", path, strerror(errno));
	close(fd);
}

void file_read(const char *path, void *dst, size_t n, uint64_t offset)
{
	int fd = open_or_fail(path, O_RDONLY);
	size_t done = 0;

	while (done < n) {
		ssize_t got = pread(fd, (char *)dst + done, n - done, (off_t)(offset + done));

		if (got <= 0)
			fail_msg("%s: only %zu of %zu bytes at %llu", path, done, n,
			         (unsigned long long)offset);
		done += (size_t)got;
	}
	close(fd);
}

void assert_file_is(const char *path, const void *expected, size_t n)
{
	unsigned char *held = malloc(n + 1);

	assert_int_equal(file_length(path), n);
	file_read(path, held, n, 0);
	assert_bytes(held, expected, n);
	free(held);
}

uint64_t file_length(const char *path)
{
	struct stat st;

	if (stat(path, &st) != 0)
		fail_msg("%s: %s", path, strerror(errno));
	return (uint64_t)st.st_size;
}

void file_truncate(const char *path, uint64_t length)
{
	if (truncate(path, (off_t)length) != 0)
		fail_msg("%s: %s", path, strerror(errno));
}

void file_set_residency(const char *path, enum residency r)
{
	int fd = open_or_fail(path, O_RDONLY);
	uint64_t length = file_length(path), at, stripe = 192 * KIB;
	char *part = malloc(MIB);

	fsync(fd);
	posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
	if (r == CACHED)
		for (at = 0; pread(fd, part, MIB, (off_t)at) > 0; at += MIB)
			;
	if (r == HALF_CACHED) {
		/* Without read-ahead, which would fill the holes between the stripes. */
		posix_fadvise(fd, 0, 0, POSIX_FADV_RANDOM);
		for (at = 0; at < length; at += 2 * stripe)
			if (pread(fd, part, stripe, (off_t)at) < 0)
				fail_msg("%s: %s", path, strerror(errno));
	}
	free(part);
	close(fd);
}

size_t directory_entries(const char *dir)
{
	DIR *d = opendir(dir);
	struct dirent *e;
	size_t n = 0;

	if (!d)
		fail_msg("%s: %s", dir, strerror(errno));
	while ((e = readdir(d)))
		n += strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0;
	closedir(d);
	return n;
}
