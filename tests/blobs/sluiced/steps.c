/* SPDX-License-Identifier: Apache-2.0 */
/* In a daemon for tests: the server that comes by a step dies there, once. SLUICE_TEST_STEP is the step, after a
 * number and a blank, which is how often it comes by before; SLUICE_TEST_DIED the file that says that it has. At the step
 * SLUICE_TEST_PAUSE it rests for two milliseconds. Each time that there is a file SLUICE_TEST_NEXT, the server that comes by the
 * step in it removes the file and dies. For so many returns as SLUICE_TEST_NO_MEMORY says it has no memory. While
 * there is a file SLUICE_TEST_HUNG, reads of files and reservations in them wait. */
#include "core/core.h"

#include "protocol/protocol.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void die_if_next(const char *step)
{
	const char *next = getenv("SLUICE_TEST_NEXT");
	int fd = next ? open(next, O_RDONLY | O_CLOEXEC) : -1;
	char text[80] = "";
	ssize_t n;

	if (fd < 0)
		return;
	n = read(fd, text, sizeof(text) - 1);
	close(fd);
	if (n > 0 && !strcmp(text, step) && !unlink(next))
		kill(getpid(), SIGKILL);
}

void __wrap_sl_store_step(const char *step);
void __wrap_sl_store_step(const char *step)
{
	static int passes;
	const char *wanted = getenv("SLUICE_TEST_STEP"), *died = getenv("SLUICE_TEST_DIED");
	const char *pause_at = getenv("SLUICE_TEST_PAUSE");

	if (pause_at && !strcmp(pause_at, step))
		usleep(2000);
	die_if_next(step);
	if (!wanted || !died || strcmp(strchr(wanted, ' ') + 1, step) != 0 ||
	    passes++ < atoi(wanted))
		return;
	/* Not the servers after it. */
	if (open(died, O_CREAT | O_EXCL | O_CLOEXEC, 0600) >= 0)
		kill(getpid(), SIGKILL);
}

struct sl_server;
struct sl_peer;
struct sl_region;
int __real_sl_wait_for_room(struct sl_server *server, struct sl_peer *peer,
                            struct sl_region *region);
int __wrap_sl_wait_for_room(struct sl_server *server, struct sl_peer *peer,
                            struct sl_region *region);
int __wrap_sl_wait_for_room(struct sl_server *server, struct sl_peer *peer,
                            struct sl_region *region)
{
	static int failed;
	const char *most = getenv("SLUICE_TEST_NO_MEMORY");

	if (region && most && failed < atoi(most)) {
		failed++;
		return sl_fail(-ENOMEM, "no memory");
	}
	return __real_sl_wait_for_room(server, peer, region);
}

static void wait_for_disk(void)
{
	const char *hung = getenv("SLUICE_TEST_HUNG");

	while (hung && access(hung, F_OK) == 0)
		usleep(1000);
}

ssize_t __real_pread64(int fd, void *to, size_t n, off_t at);
ssize_t __wrap_pread64(int fd, void *to, size_t n, off_t at);
ssize_t __wrap_pread64(int fd, void *to, size_t n, off_t at)
{
	wait_for_disk();
	return __real_pread64(fd, to, n, at);
}

int __real_fallocate64(int fd, int mode, off_t at, off_t n);
int __wrap_fallocate64(int fd, int mode, off_t at, off_t n);
int __wrap_fallocate64(int fd, int mode, off_t at, off_t n)
{
	if (!mode)
		wait_for_disk();
	return __real_fallocate64(fd, mode, at, n);
}
