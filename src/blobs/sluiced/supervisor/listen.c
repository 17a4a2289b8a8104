/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The daemon's socket, its messages to systemd, and its log.
 *
 * The messages follow the protocols of sd_listen_fds(3) and sd_notify(3), which need no library.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "sluiced/supervisor/supervisor.h"

#define BACKLOG      1024
#define FIRST_SOCKET 3

int sl_listen_inherited(void)
{
	const char *pid = getenv("LISTEN_PID"), *count = getenv("LISTEN_FDS");

	if (!pid || !count || atol(pid) != (long)getpid() || atoi(count) < 1)
		return -1;
	fcntl(FIRST_SOCKET, F_SETFD, FD_CLOEXEC);
	fcntl(FIRST_SOCKET, F_SETFL, fcntl(FIRST_SOCKET, F_GETFL) | O_NONBLOCK);
	unsetenv("LISTEN_PID");
	unsetenv("LISTEN_FDS");
	return FIRST_SOCKET;
}

/* Refuses a path where something other than a socket is: it was named by mistake. */
static int listen_check_path(const char *path)
{
	struct stat at;

	if (!lstat(path, &at) && !S_ISSOCK(at.st_mode))
		return sl_fail(-EEXIST,
		               "cannot listen at '%s': something else than a socket is there",
		               path);
	return 0;
}

/* Takes the lock that permits replacing the socket. */
static int listen_take_lock(const char *path, int *out)
{
	char name[128];
	int fd;

	snprintf(name, sizeof(name), "%s.lock", path);
	fd = open(name, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0)
		return sl_fail(-errno, "cannot open '%s': %s", name, sl_error_text(-errno));
	if (flock(fd, LOCK_EX | LOCK_NB)) {
		close(fd);
		return sl_fail(-EADDRINUSE, "a daemon listens at '%s' already", path);
	}
	*out = fd;
	return 0;
}

static int listen_bind(const char *path, gid_t group, int *out)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	mode_t before;
	int error;

	if (fd < 0)
		return -errno;
	strcpy(address.sun_path, path);
	unlink(path);
	/* Until its group is set nobody else may connect, and before listen() nobody can. */
	before = umask(0177);
	error = bind(fd, (struct sockaddr *)&address, sizeof(address)) ? errno : 0;
	umask(before);
	if (!error && group != (gid_t)-1 && (lchown(path, (uid_t)-1, group) || chmod(path, 0660)))
		error = errno;
	if (!error && listen(fd, BACKLOG))
		error = errno;
	if (error) {
		close(fd);
		return -error;
	}
	*out = fd;
	return 0;
}

int sl_listen_at(const char *path, gid_t group, int *out, int *lock)
{
	int rc = listen_check_path(path);

	if (!rc)
		rc = listen_take_lock(path, lock);
	if (rc)
		return rc;
	rc = listen_bind(path, group, out);
	if (rc) {
		close(*lock);
		return sl_fail(rc, "cannot listen at '%s': %s", path, sl_error_text(rc));
	}
	return 0;
}

void sl_listen_notify(const char *state)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	const char *path = getenv("NOTIFY_SOCKET");
	size_t length = path ? strlen(path) : 0;
	int fd;

	if (!length || length >= sizeof(address.sun_path))
		return;
	memcpy(address.sun_path, path, length);
	/* An abstract address begins with '@' there and with NUL here. */
	if (path[0] == '@')
		address.sun_path[0] = '\0';
	fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return;
	(void)!sendto(fd, state, strlen(state), MSG_NOSIGNAL, (struct sockaddr *)&address,
	              (socklen_t)(offsetof(struct sockaddr_un, sun_path) + length));
	close(fd);
}

/* Returns true if stderr is the journal's file, as systemd names it; it may be redirected since. */
static bool report_is_journal(void)
{
	const char *named = getenv("JOURNAL_STREAM");
	unsigned long long device, inode;
	struct stat stat;

	return named && sscanf(named, "%llu:%llu", &device, &inode) == 2 &&
	       !fstat(STDERR_FILENO, &stat) && stat.st_dev == device && stat.st_ino == inode;
}

void sl_report(int priority, const char *format, ...)
{
	char line[1024], prefix[16] = "sluiced: ";
	va_list arguments;
	int n;

	if (report_is_journal())
		snprintf(prefix, sizeof(prefix), "<%d>", priority);
	n = snprintf(line, sizeof(line), "%s", prefix);
	va_start(arguments, format);
	vsnprintf(line + n, sizeof(line) - (size_t)n - 1, format, arguments);
	va_end(arguments);
	strcat(line, "\n");
	/* In a single write, because two processes write. */
	(void)!write(STDERR_FILENO, line, strlen(line));
}
