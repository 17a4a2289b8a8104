/* SPDX-License-Identifier: Apache-2.0 */
/* The program is linked with --wrap for these calls: those on the slow file wait, and its file system is none that
 * is known to answer from memory. */
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/vfs.h>

#include "local/slow.h"

int __real_fstat64(int fd, struct stat *out);
int __wrap_fstat64(int fd, struct stat *out);
int __real_fstatfs64(int fd, struct statfs *out);
int __wrap_fstatfs64(int fd, struct statfs *out);
int __real_statx(int fd, const char *path, int flags, unsigned mask, struct statx *out);
int __wrap_statx(int fd, const char *path, int flags, unsigned mask, struct statx *out);
int __wrap_fallocate64(int fd, int mode, off_t at, off_t n);
int __real_fallocate64(int fd, int mode, off_t at, off_t n);
int __real_fsync(int fd);
int __wrap_fsync(int fd);
ssize_t __real_pwritev64v2(int fd, const struct iovec *v, int count, off_t offset, int flags);
ssize_t __wrap_pwritev64v2(int fd, const struct iovec *v, int count, off_t offset, int flags);
long __real_syscall(long number, ...);
long __wrap_syscall(long number, ...);
ssize_t __real_preadv64v2(int fd, const struct iovec *v, int count, off_t offset, int flags);
ssize_t __wrap_preadv64v2(int fd, const struct iovec *v, int count, off_t offset, int flags);

static bool is_slow(int fd)
{
	uint64_t inode = slow ? atomic_load(&slow->inode) : 0;
	struct stat stat;

	return inode && !__real_fstat64(fd, &stat) && stat.st_ino == inode;
}

int __wrap_fstat64(int fd, struct stat *out)
{
	if (is_slow(fd))
		slow_wait(SLOW_SIZE);
	return __real_fstat64(fd, out);
}

int __wrap_fstatfs64(int fd, struct statfs *out)
{
	int rc = __real_fstatfs64(fd, out);

	if (is_slow(fd))
		out->f_type = 0x6969; /* NFS */
	return rc;
}

/* It is in no mount that the other file has told about. */
int __wrap_statx(int fd, const char *path, int flags, unsigned mask, struct statx *out)
{
	return __real_statx(fd, path, flags, is_slow(fd) ? mask & STATX_BASIC_STATS : mask, out);
}

/* It is refused, as by servers. */
int __wrap_fallocate64(int fd, int mode, off_t at, off_t n)
{
	errno = EOPNOTSUPP;
	return is_slow(fd) ? -1 : __real_fallocate64(fd, mode, at, n);
}

int __wrap_fsync(int fd)
{
	if (is_slow(fd))
		slow_wait(SLOW_SYNC);
	return __real_fsync(fd);
}

ssize_t __wrap_pwritev64v2(int fd, const struct iovec *v, int count, off_t offset, int flags)
{
	if (is_slow(fd))
		slow_wait(SLOW_WRITE);
	return __real_pwritev64v2(fd, v, count, offset, flags);
}

/* With RWF_NOWAIT the file system refuses, as those of servers do. */
static bool is_refused(int fd, int flags)
{
	if (!(flags & 8) || !is_slow(fd))
		return false;
	errno = EOPNOTSUPP;
	return true;
}

ssize_t __wrap_preadv64v2(int fd, const struct iovec *v, int count, off_t offset, int flags)
{
	if (is_refused(fd, flags))
		return -1;
	if (is_slow(fd))
		slow_wait(SLOW_READ);
	return __real_preadv64v2(fd, v, count, offset, flags);
}

/* What is read at once is read by this. */
long __wrap_syscall(long number, ...)
{
	long a[6];
	va_list list;

	va_start(list, number);
	for (int i = 0; i < 6; i++)
		a[i] = va_arg(list, long);
	va_end(list);
	if (number == SYS_preadv2 && is_refused((int)a[0], (int)a[5]))
		return -1;
	return __real_syscall(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}
