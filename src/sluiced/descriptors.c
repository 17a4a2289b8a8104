/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <syslog.h>
#include <unistd.h>

#include "sluiced/descriptors.h"
#include "sluiced/listen.h"

/* Descriptors of the server that are not in the descriptor table: clients, and its own. */
#define OTHERS    8192
#define ROWS_MOST 65536u

/* Instead of a row. */
#define BYE     UINT32_MAX
#define READY   (UINT32_MAX - 1)
#define UPGRADE (UINT32_MAX - 2)

/* A supervisor that has not received anything for so long while the server waited for that is taken for dead. */
#define DEAF_NS INT64_C(1000000000)

/* What the server sends; with a descriptor if id is not 0. */
struct keep {
	uint32_t row;
	uint32_t zero;
	uint64_t id; /* 0: give up the row */
};

static uint32_t rows_possible(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit))
		return 256;
	limit.rlim_cur = limit.rlim_max;
	setrlimit(RLIMIT_NOFILE, &limit);
	if (limit.rlim_cur >= ROWS_MOST + OTHERS)
		return ROWS_MOST;
	return (uint32_t)(limit.rlim_cur > 2 * OTHERS ? limit.rlim_cur - OTHERS
	                                              : limit.rlim_cur / 2);
}

static size_t ledger_bytes(uint32_t most)
{
	return sizeof(struct sl_ledger) + most * sizeof(struct sl_kept);
}

int sl_descriptors_open(int ledger, uint32_t most, struct sl_descriptors *out)
{
	struct sl_descriptors descriptors = {.ledger_fd = ledger,
	                                     .most = most,
	                                     .listener = -1,
	                                     .lock = -1,
	                                     .peer = -1,
	                                     .other_fd = -1};
	void *memory =
		mmap(NULL, ledger_bytes(most), PROT_READ | PROT_WRITE, MAP_SHARED, ledger, 0);

	descriptors.held = malloc(most * sizeof(descriptors.held[0]));
	if (memory == MAP_FAILED || !descriptors.held) {
		if (memory != MAP_FAILED)
			munmap(memory, ledger_bytes(most));
		free(descriptors.held);
		return sl_fail(-ENOMEM, "no memory");
	}
	descriptors.ledger = memory;
	for (uint32_t i = 0; i < most; i++)
		descriptors.held[i].fd = -1;
	*out = descriptors;
	return 0;
}

int sl_descriptors_new(int listener, int lock, struct sl_descriptors *out)
{
	uint32_t most = rows_possible();
	int fd = memfd_create("sluiced-ledger", MFD_CLOEXEC), rc;

	if (fd < 0 || ftruncate(fd, (off_t)ledger_bytes(most))) {
		rc = sl_fail(-errno, "cannot make a ledger: %s", sl_error_text(-errno));
		if (fd >= 0)
			close(fd);
		return rc;
	}
	rc = sl_descriptors_open(fd, most, out);
	if (rc) {
		close(fd);
		return rc;
	}
	out->listener = listener;
	out->lock = lock;
	if (getrandom(&out->ledger->store, sizeof(out->ledger->store), 0) < 0)
		out->ledger->store = (uint64_t)sl_now();
	return 0;
}

void sl_descriptors_free(struct sl_descriptors *descriptors)
{
	munmap(descriptors->ledger, ledger_bytes(descriptors->most));
	free(descriptors->held);
}

/* --------------------------------------------------------------------------------- the server */

/* The supervisor is stopped, or hangs: it is ended, and the server's loop makes another one. */
static void end_deaf(const struct sl_descriptors *descriptors)
{
	sl_report(LOG_WARNING,
	          "the supervisor (process %d) does not receive anything and is replaced",
	          (int)descriptors->other);
	sl_descriptors_signal(descriptors, SIGKILL);
	shutdown(descriptors->peer, SHUT_RDWR);
}

static int send_patiently(const struct sl_descriptors *descriptors, const struct msghdr *message)
{
	int64_t until = 0, now;

	while (sendmsg(descriptors->peer, message, MSG_NOSIGNAL | MSG_DONTWAIT) < 0) {
		if (errno == EINTR)
			continue;
		/* It is gone, and the next one inherits all that this process has. */
		if (errno == EPIPE || errno == ECONNRESET || errno == ENOTCONN)
			return 0;
		if (errno != EAGAIN)
			return -errno;
		now = sl_now();
		until = until ? until : SL_MAX(now + DEAF_NS, descriptors->patient_until);
		if (now >= until) {
			end_deaf(descriptors);
			return 0;
		}
		poll(&(struct pollfd){.fd = descriptors->peer, .events = POLLOUT}, 1,
		     (int)((until - now) / 1000000) + 1);
	}
	return 0;
}

static int tell(const struct sl_descriptors *descriptors, uint32_t row, uint64_t id, int fd)
{
	struct keep keep = {.row = row, .id = id};
	struct iovec io = {&keep, sizeof(keep)};
	_Alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {0};
	struct msghdr message = {.msg_iov = &io, .msg_iovlen = 1};

	if (descriptors->peer < 0)
		return 0;
	if (id) {
		struct cmsghdr *header = (struct cmsghdr *)control;

		message.msg_control = control;
		message.msg_controllen = sizeof(control);
		header->cmsg_level = SOL_SOCKET;
		header->cmsg_type = SCM_RIGHTS;
		header->cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(header), &fd, sizeof(fd));
	}
	return send_patiently(descriptors, &message);
}

int sl_descriptors_in_flight(void)
{
	return sl_fail(-EAGAIN, "too many descriptors of the daemon's user are in flight: some "
	                        "process does not receive what it was sent");
}

uint64_t sl_descriptors_number(struct sl_descriptors *descriptors)
{
	return atomic_fetch_add(&descriptors->ledger->last_id, 1) + 1;
}

int sl_descriptors_put(struct sl_descriptors *descriptors, const struct sl_kept *kept, int fd,
                       uint32_t *out)
{
	struct sl_kept *row = NULL;
	uint32_t index = descriptors->full;
	uint64_t id;
	int rc;

	while (index < descriptors->used && descriptors->held[index].fd >= 0)
		index++;
	if (index == descriptors->most)
		return sl_fail(-ENFILE, "no descriptor is left for one more piece of memory");
	if (index == descriptors->used)
		descriptors->used++;
	row = &descriptors->ledger->rows[index];
	id = kept->id ? kept->id : sl_descriptors_number(descriptors);
	rc = tell(descriptors, index, id, fd);
	if (rc == -ETOOMANYREFS)
		return sl_descriptors_in_flight();
	if (rc)
		return sl_fail(rc, "cannot give a descriptor to the supervisor: %s",
		               sl_error_text(rc));
	row->kind = kept->kind;
	row->uid = kept->uid;
	row->bytes = kept->bytes;
	row->session = kept->session;
	row->pid = kept->pid;
	row->process = kept->process;
	row->range_bytes = kept->range_bytes;
	row->device = kept->device;
	row->memory = kept->memory;
	atomic_store_explicit(&row->maps, 0, memory_order_relaxed);
	row->origin = kept->origin ? kept->origin : id;
	atomic_store_explicit(&row->region, kept->region, memory_order_relaxed);
	descriptors->held[index].fd = fd;
	descriptors->held[index].id = id;
	descriptors->full = index + 1;
	descriptors->count++;
	atomic_store_explicit(&row->id, id, memory_order_release);
	*out = index;
	return 0;
}

static void let_go(struct sl_descriptors *descriptors, uint32_t row)
{
	if (descriptors->held[row].fd >= 0)
		close(descriptors->held[row].fd);
	descriptors->held[row].fd = -1;
	descriptors->held[row].id = 0;
	descriptors->full = SL_MIN(descriptors->full, row);
}

void sl_descriptors_drop(struct sl_descriptors *descriptors, uint32_t row)
{
	atomic_store(&descriptors->ledger->rows[row].id, 0);
	tell(descriptors, row, 0, -1);
	descriptors->count -= descriptors->held[row].fd >= 0;
	let_go(descriptors, row);
}

void sl_descriptors_retarget(struct sl_descriptors *descriptors, uint32_t row, uint64_t region)
{
	atomic_store(&descriptors->ledger->rows[row].region, region);
}

void sl_descriptors_ready(struct sl_descriptors *descriptors)
{
	tell(descriptors, READY, 0, -1);
}

void sl_descriptors_bye(struct sl_descriptors *descriptors)
{
	tell(descriptors, BYE, 0, -1);
}

void sl_descriptors_upgrade(struct sl_descriptors *descriptors)
{
	tell(descriptors, UPGRADE, 0, -1);
}

int sl_descriptors_fd(const struct sl_descriptors *descriptors, uint32_t row)
{
	return descriptors->held[row].fd;
}

void sl_descriptors_reconcile(struct sl_descriptors *descriptors)
{
	descriptors->used = descriptors->full = descriptors->count = 0;
	for (uint32_t i = 0; i < descriptors->most; i++) {
		uint64_t id = atomic_load(&descriptors->ledger->rows[i].id);
		bool whole = id && descriptors->held[i].fd >= 0 && descriptors->held[i].id == id;

		descriptors->count += descriptors->held[i].fd >= 0;
		if (!whole && (id || descriptors->held[i].fd >= 0))
			sl_descriptors_drop(descriptors, i);
		if (whole)
			descriptors->used = i + 1;
	}
}

/* ----------------------------------------------------------------------------- the supervisor */

static ssize_t receive(int socket, struct keep *keep, int *fd)
{
	struct iovec io = {keep, sizeof(*keep)};
	_Alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof(int))];
	struct msghdr message = {.msg_iov = &io,
	                         .msg_iovlen = 1,
	                         .msg_control = control,
	                         .msg_controllen = sizeof(control)};
	ssize_t n = recvmsg(socket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	struct cmsghdr *header = n > 0 ? CMSG_FIRSTHDR(&message) : NULL;

	*fd = -1;
	if (header && header->cmsg_type == SCM_RIGHTS)
		memcpy(fd, CMSG_DATA(header), sizeof(*fd));
	if (n > 0 && message.msg_flags & MSG_CTRUNC) {
		sl_report(LOG_WARNING,
		          "the supervisor has no room for a descriptor and is replaced");
		_exit(EXIT_FAILURE);
	}
	return n;
}

bool sl_descriptors_take(struct sl_descriptors *descriptors)
{
	struct keep keep;
	ssize_t n;
	int fd;

	while ((n = receive(descriptors->peer, &keep, &fd)) > 0) {
		if (n == sizeof(keep) && keep.row == BYE)
			descriptors->over = true;
		if (n == sizeof(keep) && keep.row == READY)
			descriptors->ready = true;
		if (n == sizeof(keep) && keep.row == UPGRADE)
			descriptors->upgrade = true;
		if (n != sizeof(keep) || keep.row >= descriptors->most) {
			if (fd >= 0)
				close(fd);
			continue;
		}
		let_go(descriptors, keep.row);
		descriptors->held[keep.row].fd = fd;
		descriptors->held[keep.row].id = fd >= 0 ? keep.id : 0;
	}
	return n < 0 && (errno == EAGAIN || errno == EINTR);
}

/* ------------------------------------------------------------------------------------ both */

int sl_descriptors_pair(int pair[2])
{
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair))
		return sl_fail(-errno, "cannot make a pair of sockets: %s", sl_error_text(-errno));
	return 0;
}

void sl_descriptors_signal(const struct sl_descriptors *descriptors, int number)
{
	if (descriptors->other_fd >= 0)
		syscall(SYS_pidfd_send_signal, descriptors->other_fd, number, NULL, 0);
	else if (descriptors->other > 0)
		kill(descriptors->other, number);
}
