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

#include "sluiced/listen.h"
#include "sluiced/vault.h"

/* Descriptors of the server that are not in the vault: clients, and its own. */
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

int sl_vault_open(int ledger, uint32_t most, struct sl_vault *out)
{
	struct sl_vault vault = {.ledger_fd = ledger,
	                         .most = most,
	                         .listener = -1,
	                         .lock = -1,
	                         .peer = -1,
	                         .other_fd = -1};
	void *memory =
		mmap(NULL, ledger_bytes(most), PROT_READ | PROT_WRITE, MAP_SHARED, ledger, 0);

	vault.held = malloc(most * sizeof(vault.held[0]));
	if (memory == MAP_FAILED || !vault.held) {
		if (memory != MAP_FAILED)
			munmap(memory, ledger_bytes(most));
		free(vault.held);
		return sl_fail(-ENOMEM, "no memory");
	}
	vault.ledger = memory;
	for (uint32_t i = 0; i < most; i++)
		vault.held[i].fd = -1;
	*out = vault;
	return 0;
}

int sl_vault_new(int listener, int lock, struct sl_vault *out)
{
	uint32_t most = rows_possible();
	int fd = memfd_create("sluiced-ledger", MFD_CLOEXEC), rc;

	if (fd < 0 || ftruncate(fd, (off_t)ledger_bytes(most))) {
		rc = sl_fail(-errno, "cannot make a ledger: %s", sl_error_text(-errno));
		if (fd >= 0)
			close(fd);
		return rc;
	}
	rc = sl_vault_open(fd, most, out);
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

void sl_vault_free(struct sl_vault *vault)
{
	munmap(vault->ledger, ledger_bytes(vault->most));
	free(vault->held);
}

/* --------------------------------------------------------------------------------- the server */

/* The supervisor is stopped, or hangs: it is ended, and the server's loop makes another one. */
static void end_deaf(const struct sl_vault *vault)
{
	sl_report(LOG_WARNING,
	          "the supervisor (process %d) does not receive anything and is replaced",
	          (int)vault->other);
	sl_vault_signal(vault, SIGKILL);
	shutdown(vault->peer, SHUT_RDWR);
}

static int send_patiently(const struct sl_vault *vault, const struct msghdr *message)
{
	int64_t until = 0, now;

	while (sendmsg(vault->peer, message, MSG_NOSIGNAL | MSG_DONTWAIT) < 0) {
		if (errno == EINTR)
			continue;
		/* It is gone, and the next one inherits all that this process has. */
		if (errno == EPIPE || errno == ECONNRESET || errno == ENOTCONN)
			return 0;
		if (errno != EAGAIN)
			return -errno;
		now = sl_now();
		until = until ? until : SL_MAX(now + DEAF_NS, vault->patient_until);
		if (now >= until) {
			end_deaf(vault);
			return 0;
		}
		poll(&(struct pollfd){.fd = vault->peer, .events = POLLOUT}, 1,
		     (int)((until - now) / 1000000) + 1);
	}
	return 0;
}

static int tell(const struct sl_vault *vault, uint32_t row, uint64_t id, int fd)
{
	struct keep keep = {.row = row, .id = id};
	struct iovec io = {&keep, sizeof(keep)};
	_Alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {0};
	struct msghdr message = {.msg_iov = &io, .msg_iovlen = 1};

	if (vault->peer < 0)
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
	return send_patiently(vault, &message);
}

int sl_vault_in_flight(void)
{
	return sl_fail(-EAGAIN, "too many descriptors of the daemon's user are in flight: some "
	                        "process does not receive what it was sent");
}

uint64_t sl_vault_number(struct sl_vault *vault)
{
	return atomic_fetch_add(&vault->ledger->last_id, 1) + 1;
}

int sl_vault_put(struct sl_vault *vault, const struct sl_kept *kept, int fd, uint32_t *out)
{
	struct sl_kept *row = NULL;
	uint32_t index = vault->full;
	uint64_t id;
	int rc;

	while (index < vault->used && vault->held[index].fd >= 0)
		index++;
	if (index == vault->most)
		return sl_fail(-ENFILE, "no descriptor is left for one more piece of memory");
	if (index == vault->used)
		vault->used++;
	row = &vault->ledger->rows[index];
	id = kept->id ? kept->id : sl_vault_number(vault);
	rc = tell(vault, index, id, fd);
	if (rc == -ETOOMANYREFS)
		return sl_vault_in_flight();
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
	vault->held[index].fd = fd;
	vault->held[index].id = id;
	vault->full = index + 1;
	vault->count++;
	atomic_store_explicit(&row->id, id, memory_order_release);
	*out = index;
	return 0;
}

static void let_go(struct sl_vault *vault, uint32_t row)
{
	if (vault->held[row].fd >= 0)
		close(vault->held[row].fd);
	vault->held[row].fd = -1;
	vault->held[row].id = 0;
	vault->full = SL_MIN(vault->full, row);
}

void sl_vault_drop(struct sl_vault *vault, uint32_t row)
{
	atomic_store(&vault->ledger->rows[row].id, 0);
	tell(vault, row, 0, -1);
	vault->count -= vault->held[row].fd >= 0;
	let_go(vault, row);
}

void sl_vault_retarget(struct sl_vault *vault, uint32_t row, uint64_t region)
{
	atomic_store(&vault->ledger->rows[row].region, region);
}

void sl_vault_ready(struct sl_vault *vault)
{
	tell(vault, READY, 0, -1);
}

void sl_vault_bye(struct sl_vault *vault)
{
	tell(vault, BYE, 0, -1);
}

void sl_vault_upgrade(struct sl_vault *vault)
{
	tell(vault, UPGRADE, 0, -1);
}

int sl_vault_fd(const struct sl_vault *vault, uint32_t row)
{
	return vault->held[row].fd;
}

void sl_vault_reconcile(struct sl_vault *vault)
{
	vault->used = vault->full = vault->count = 0;
	for (uint32_t i = 0; i < vault->most; i++) {
		uint64_t id = atomic_load(&vault->ledger->rows[i].id);
		bool whole = id && vault->held[i].fd >= 0 && vault->held[i].id == id;

		vault->count += vault->held[i].fd >= 0;
		if (!whole && (id || vault->held[i].fd >= 0))
			sl_vault_drop(vault, i);
		if (whole)
			vault->used = i + 1;
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

bool sl_vault_take(struct sl_vault *vault)
{
	struct keep keep;
	ssize_t n;
	int fd;

	while ((n = receive(vault->peer, &keep, &fd)) > 0) {
		if (n == sizeof(keep) && keep.row == BYE)
			vault->over = true;
		if (n == sizeof(keep) && keep.row == READY)
			vault->ready = true;
		if (n == sizeof(keep) && keep.row == UPGRADE)
			vault->upgrade = true;
		if (n != sizeof(keep) || keep.row >= vault->most) {
			if (fd >= 0)
				close(fd);
			continue;
		}
		let_go(vault, keep.row);
		vault->held[keep.row].fd = fd;
		vault->held[keep.row].id = fd >= 0 ? keep.id : 0;
	}
	return n < 0 && (errno == EAGAIN || errno == EINTR);
}

/* ------------------------------------------------------------------------------------ both */

int sl_vault_pair(int pair[2])
{
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair))
		return sl_fail(-errno, "cannot make a pair of sockets: %s", sl_error_text(-errno));
	return 0;
}

void sl_vault_signal(const struct sl_vault *vault, int number)
{
	if (vault->other_fd >= 0)
		syscall(SYS_pidfd_send_signal, vault->other_fd, number, NULL, 0);
	else if (vault->other > 0)
		kill(vault->other, number);
}
