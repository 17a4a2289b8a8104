/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of a device that several processes have: each of them is this program, which is told what to do. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/core.h"
#include "device/device.h"
#include "gpu/check.h"

enum { CHILD_SECONDS = 20, KILLED = 5, REFUSED = 3 };
#define LENGTH    (16 * MIB)
#define INNER     ((size_t)12345) /* an offset that is aligned to nothing */
#define SOCKET_ID "GPU_CHECK_SOCKET"

static struct sl_device *device(void)
{
	return sl_device_find((unsigned)gpu_device(0));
}

static const struct sl_device_sharing *sharing(void)
{
	if (!device()->sharing)
		skip("the device's memory cannot be shared");
	return device()->sharing;
}

#define SHARE(call)                                                                    \
	do {                                                                           \
		int rc_ = (call);                                                      \
		if (rc_)                                                               \
			broken("%s: %d %s", #call, rc_, strerror(rc_ < 0 ? -rc_ : 0)); \
	} while (0)

/* ---------------------------------------------------------------------------------- messages */

/* What goes over the socket: what is lent, or only the descriptor. */
struct message {
	struct sl_lent_memory lent;
};

static void send_message(int to, const struct message *message, int fd)
{
	if (sl_fds_send(to, message, sizeof(*message), &fd, fd >= 0, 0) !=
	    (ssize_t)sizeof(*message))
		broken("sendmsg: %s", strerror(errno));
}

/* The descriptor that came with it, or -1. */
static int receive_message(int from, struct message *message)
{
	int fds[SL_FDS_MOST], cut_off;

	if (sl_fds_receive(from, message, sizeof(*message), fds, 0, &cut_off) !=
	    (ssize_t)sizeof(*message))
		broken("the other process has said nothing");
	return fds[0];
}

/* One for the process that is started next; the end that is here is not handed on. */
static int new_socket(int *theirs)
{
	char number[16];
	int pair[2];

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair))
		broken("socketpair: %s", strerror(errno));
	*theirs = dup(pair[1]);
	close(pair[1]);
	snprintf(number, sizeof(number), "%d", *theirs);
	setenv(SOCKET_ID, number, 1);
	return pair[0];
}

/* ----------------------------------------------------------------------- the other processes */

static bool is_pattern(const void *memory, size_t n, uint64_t offset)
{
	sluice_stream stream = new_stream(0);
	struct gpu_match match;
	bool good;

	look_on(0, stream, &match, memory, n, offset);
	good = right(0, stream, &match, "memory of another process");
	MUST(sluice_stream_free(stream));
	return good;
}

static void fill(void *memory)
{
	sluice_stream stream = new_stream(0);

	GPU(gpu_fill(0, stream, memory, LENGTH, 0, seed));
	MUST(sluice_stream_synchronize(gpu_device(0), stream));
	MUST(sluice_stream_free(stream));
}

static int run_make(int socket)
{
	struct message message = {0};
	void *memory;
	int fd;

	SHARE(sharing()->make(device(), LENGTH, &memory, &fd));
	fill(memory);
	send_message(socket, &message, fd);
	return 0;
}

/* Twice: the second time nothing is left of the first. */
static int run_read(int socket)
{
	struct message message;
	int fd = receive_message(socket, &message);
	bool good = true;

	for (int i = 0; i < 2; i++) {
		void *memory;

		SHARE(sharing()->map(device(), fd, LENGTH, device(), NULL, &memory));
		good &= is_pattern(memory, LENGTH, 0);
		SHARE(sharing()->unmap(device(), memory, LENGTH));
	}
	return !good;
}

/* A kernel that writes there is the end of the context. */
static int run_write(int socket)
{
	struct message message;
	int fd = receive_message(socket, &message), rc;
	sluice_stream stream = new_stream(0);
	void *memory;

	SHARE(sharing()->map(device(), fd, LENGTH, device(), NULL, &memory));
	rc = gpu_scribble(0, stream, memory, LENGTH, 9);
	if (!rc)
		rc = sluice_stream_synchronize(gpu_device(0), stream);
	printf("       a kernel that writes: %d %s\n", rc, strerror(rc < 0 ? -rc : 0));
	fflush(stdout);
	_exit(rc < 0 ? REFUSED : 1);
}

static int run_lend(int socket)
{
	void *memory = new_memory(0, LENGTH);
	struct message message;
	char byte;

	fill(memory);
	SHARE(sharing()->lend(device(), (char *)memory + INNER, &message.lent));
	send_message(socket, &message, -1);
	/* Until nobody is there any more. */
	while (read(socket, &byte, 1) > 0)
		;
	return 0;
}

int share_end(const char *how)
{
	int socket = atoi(getenv(SOCKET_ID));

	if (!strcmp(how, "share-make"))
		return run_make(socket);
	if (!strcmp(how, "share-killed")) {
		run_make(socket);
		kill(getpid(), SIGKILL);
	}
	if (!strcmp(how, "share-read"))
		return run_read(socket);
	if (!strcmp(how, "share-write"))
		return run_write(socket);
	return run_lend(socket);
}

/* --------------------------------------------------------------------------------- the checks */

/* Has it made, and ended: the descriptor. */
static int have_made(const char *how, int expected_signal)
{
	struct message message;
	int theirs, here = new_socket(&theirs);
	int status = run_self(how, CHILD_SECONDS), fd;

	close(theirs);
	if (WIFEXITED(status) && WEXITSTATUS(status) == SKIPPED)
		_exit(SKIPPED);
	if (expected_signal ? !WIFSIGNALED(status) || WTERMSIG(status) != expected_signal : status)
		broken("%s: status %#x", how, (unsigned)status);
	fd = receive_message(here, &message);
	close(here);
	return fd;
}

/* What a process says that gets the descriptor. */
static int tell(const char *how, int fd)
{
	struct message message = {0};
	int theirs, here = new_socket(&theirs), status;

	send_message(here, &message, fd);
	status = run_self(how, CHILD_SECONDS);
	close(here);
	close(theirs);
	return status;
}

/* This process has no driver: like the daemon it only keeps the descriptor. */
static bool outlives(void)
{
	int fd = have_made("share-make", 0);
	int status = tell("share-read", fd);

	close(fd);
	if (status)
		printf("       the reader: status %#x\n", (unsigned)status);
	return !status;
}

static bool kernels_do_not_write(void)
{
	int fd, wrote, status;

	/* A function that is the emulated device's kernel would not survive it either. */
	if (!strncmp(getenv("SLUICE_TEST_DEVICE"), "emulated", 8))
		skip("the device is emulated");
	fd = have_made("share-make", 0);
	wrote = tell("share-write", fd);
	status = tell("share-read", fd);
	close(fd);
	if (!WIFEXITED(wrote) || WEXITSTATUS(wrote) != REFUSED)
		printf("       the writer: status %#x\n", (unsigned)wrote);
	if (status)
		printf("       the reader after it: status %#x\n", (unsigned)status);
	return WIFEXITED(wrote) && WEXITSTATUS(wrote) == REFUSED && !status;
}

static bool refused(const char *what, int rc, const char *why)
{
	printf("       %s: %d %s\n", what, rc, why);
	return rc != 0;
}

/* What the driver answers is printed: it is not written down anywhere. */
static bool calls_do_not_write(void)
{
	int fd = have_made("share-make", 0), rc;
	void *memory, *pinned = new_pinned(0, 4096);
	sluice_stream stream = new_stream(0);
	CUdeviceptr at;
	bool good;

	SHARE(sharing()->map(device(), fd, LENGTH, device(), NULL, &memory));
	at = (uintptr_t)memory;
	rc = sluice_copy(memory, pinned, 4096);
	good = refused("sluice_copy", rc, sluice_last_message());
	rc = sluice_copy_on(memory, pinned, 4096, stream);
	good &= refused("sluice_copy_on", rc, sluice_last_message());
	if (gpu_is_real()) {
		rc = gpu_driver.cuMemsetD8_v2(at, 1, 4096);
		good &= refused("cuMemsetD8", rc, gpu_error_name(rc));
		rc = gpu_driver.cuMemcpyHtoD_v2(at, pinned, 4096);
		good &= refused("cuMemcpyHtoD", rc, gpu_error_name(rc));
	}
	good &= is_pattern(memory, LENGTH, 0);
	SHARE(sharing()->unmap(device(), memory, LENGTH));
	close(fd);
	MUST(sluice_stream_free(stream));
	MUST(sluice_pinned_free(pinned));
	return good;
}

static uint64_t in_use(void)
{
	uint64_t bytes;

	GPU(gpu_in_use(0, &bytes));
	return bytes;
}

/* A driver may take its time until what processes had is free. */
static bool returns_to(uint64_t start)
{
	for (int i = 0; i < 100 && in_use() > start; i++)
		usleep(50000);
	if (in_use() <= start)
		return true;
	printf("       %.1f MiB are in use that were not\n",
	       (double)(in_use() - start) / (1 << 20));
	return false;
}

static bool goes_with_the_last(void)
{
	int fds[KILLED];
	uint64_t start, held;
	void *memory;
	bool good;

	(void)sharing();
	start = in_use();
	for (int i = 0; i < KILLED; i++)
		fds[i] = have_made("share-killed", SIGKILL);
	held = in_use();
	printf("       of %d killed processes: %.1f MiB\n", KILLED,
	       (double)(held - start) / (1 << 20));
	good = held >= start + KILLED * LENGTH;
	/* A mapping keeps it as well as a descriptor. */
	SHARE(sharing()->map(device(), fds[0], LENGTH, device(), NULL, &memory));
	for (int i = 0; i < KILLED; i++)
		close(fds[i]);
	good &= returns_to(start + LENGTH);
	good &= is_pattern(memory, LENGTH, 0);
	SHARE(sharing()->unmap(device(), memory, LENGTH));
	return returns_to(start) && good;
}

static bool garbage_is_refused(void)
{
	int pair[2], rc;
	void *memory;

	if (pipe(pair))
		broken("pipe: %s", strerror(errno));
	rc = sharing()->map(device(), pair[0], LENGTH, device(), NULL, &memory);
	close(pair[0]);
	close(pair[1]);
	if (rc == -EBADMSG)
		return true;
	printf("       %d %s\n", rc, strerror(rc < 0 ? -rc : 0));
	return false;
}

static bool lent_by_another(void)
{
	struct message message;
	int theirs, here = new_socket(&theirs), rc;
	pid_t pid = start_self("share-lend");
	void *memory;
	bool good;

	close(theirs);
	(void)receive_message(here, &message);
	SHARE(sharing()->borrow(device(), &message.lent, &memory));
	good = message.lent.length >= LENGTH;
	good &= is_pattern(memory, LENGTH, 0);
	good &= is_pattern((char *)memory + INNER, LENGTH - INNER, INNER);
	SHARE(sharing()->give_back(device(), memory));
	close(here);
	good &= !wait_for(pid, CHILD_SECONDS);
	rc = sharing()->borrow(device(), &message.lent, &memory);
	printf("       once it has ended: %d %s\n", rc, strerror(rc < 0 ? -rc : 0));
	return good && rc == -ENOENT;
}

const struct check sharing_checks[] = {
	{"share", "memory outlives who made it, kept by a process without a driver", outlives, 60,
         true},
	{"share_kernel", "a kernel does not write to what is mapped for reading",
         kernels_do_not_write, 80, true},
	{"share_call", "nor do copies and other calls", calls_do_not_write, 40, false},
	{"share_freed", "memory is free once the last process has let it go, whoever was killed",
         goes_with_the_last, 90, false},
	{"share_garbage", "a descriptor of something else is refused", garbage_is_refused, 20,
         false},
	{"lent", "memory that another process has allocated is read while that lives",
         lent_by_another, 40, false},
	{NULL, NULL, NULL, 0, false},
};
