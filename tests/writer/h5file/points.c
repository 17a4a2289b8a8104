/* SPDX-License-Identifier: Apache-2.0 */
#include "h5file/points.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

#define PAGE   4096
#define PUBLIC __attribute__((visibility("default")))

/* Both names that a program may know each of them by. */
PUBLIC ssize_t pwrite64(int fd, const void *bytes, size_t size, int64_t offset);
PUBLIC ssize_t sl_pwrite(int fd, const void *bytes, size_t size, int64_t offset) __asm__("pwrite");
PUBLIC int ftruncate64(int fd, int64_t length);
PUBLIC int sl_ftruncate(int fd, int64_t length) __asm__("ftruncate");
PUBLIC int fallocate64(int fd, int mode, int64_t offset, int64_t length);
PUBLIC int fdatasync(int fd);
PUBLIC ssize_t pwritev64v2(int fd, const struct iovec *vector, int count, int64_t offset,
                           int flags);
PUBLIC ssize_t sl_pwritev2(int fd, const struct iovec *vector, int count, int64_t offset,
                           int flags) __asm__("pwritev2");
PUBLIC int linkat(int from, const char *old, int to, const char *name, int flags);
PUBLIC int rename(const char *old, const char *name);
PUBLIC int renameat2(int from, const char *old, int to, const char *name, unsigned flags);
PUBLIC int sl_fallocate(int fd, int mode, int64_t offset, int64_t length) __asm__("fallocate");

int (*points_hook)(unsigned point);
void (*points_written)(int64_t offset, const void *bytes, size_t size);
void (*points_barrier)(void);
void (*points_named)(void);
static _Atomic unsigned points;

static int point(void)
{
	int error;

	if (!points_hook)
		return 0;
	error = points_hook(++points);
	errno = error ? error : errno;
	return error ? -1 : 0;
}

ssize_t pwrite64(int fd, const void *bytes, size_t size, int64_t offset)
{
	size_t done = 0;

	while (done < size) {
		size_t n = PAGE - (size_t)(offset + done) % PAGE;
		ssize_t written;

		n = n < size - done ? n : size - done;
		/* What was written before it stays written; a second call would have failed. */
		if (point() < 0)
			return -1;
		written = syscall(SYS_pwrite64, fd, (const char *)bytes + done, n, offset + done);
		if (written < 0)
			return done ? (ssize_t)done : -1;
		if (points_written)
			points_written(offset + done, (const char *)bytes + done, written);
		done += written;
	}
	return done;
}

ssize_t sl_pwrite(int fd, const void *bytes, size_t size, int64_t offset)
{
	return pwrite64(fd, bytes, size, offset);
}

int ftruncate64(int fd, int64_t length)
{
	if (point() < 0)
		return -1;
	if (points_written)
		points_written(length, NULL, 0);
	return syscall(SYS_ftruncate, fd, length);
}

int sl_ftruncate(int fd, int64_t length)
{
	return ftruncate64(fd, length);
}

int fallocate64(int fd, int mode, int64_t offset, int64_t length)
{
	if (point() < 0)
		return -1;
	if (points_written && !(mode & FALLOC_FL_KEEP_SIZE))
		points_written(offset + length, NULL, 0);
	return syscall(SYS_fallocate, fd, mode, offset, length);
}

int sl_fallocate(int fd, int mode, int64_t offset, int64_t length)
{
	return fallocate64(fd, mode, offset, length);
}

int fdatasync(int fd)
{
	if (points_barrier)
		points_barrier();
	return syscall(SYS_fdatasync, fd);
}

/* The kernel wants the offset in two halves. */
ssize_t pwritev64v2(int fd, const struct iovec *vector, int count, int64_t offset, int flags)
{
	ssize_t written, left;

	if (point() < 0)
		return -1;
	left = written = syscall(SYS_pwritev2, fd, vector, count, offset, 0, flags);
	for (int i = 0; points_written && left > 0; left -= (ssize_t)vector[i++].iov_len) {
		size_t n = vector[i].iov_len < (size_t)left ? vector[i].iov_len : (size_t)left;

		points_written(offset, vector[i].iov_base, n);
		offset += (int64_t)n;
	}
	return written;
}

ssize_t sl_pwritev2(int fd, const struct iovec *vector, int count, int64_t offset, int flags)
{
	return pwritev64v2(fd, vector, count, offset, flags);
}

static int named(long result)
{
	if (!result && points_named)
		points_named();
	return (int)result;
}

/* A name is a write, too. */
int linkat(int from, const char *old, int to, const char *name, int flags)
{
	return point() < 0 ? -1 : named(syscall(SYS_linkat, from, old, to, name, flags));
}

int rename(const char *old, const char *name)
{
	return point() < 0 ? -1 : named(syscall(SYS_rename, old, name));
}

int renameat2(int from, const char *old, int to, const char *name, unsigned flags)
{
	return point() < 0 ? -1 : named(syscall(SYS_renameat2, from, old, to, name, flags));
}
