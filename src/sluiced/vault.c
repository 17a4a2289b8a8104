/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "sluiced/vault.h"

/* Descriptors of the server that are not in the vault: clients, their pidfds, and its own. */
#define OTHERS    8192
#define ROWS_MOST 65536u

/* Instead of a row. */
#define BYE   UINT32_MAX
#define READY (UINT32_MAX - 1)

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

int sl_vault_new(int listener, int lock, struct sl_vault *out)
{
	struct sl_vault vault = {.listener = listener, .lock = lock, .peer = -1, .other_fd = -1};
	size_t bytes;
	void *memory;

	vault.most = rows_possible();
	bytes = sizeof(*vault.ledger) + vault.most * sizeof(vault.ledger->rows[0]);
	/* Shared with the processes that are forked, and with nobody else. */
	memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	vault.held = malloc(vault.most * sizeof(vault.held[0]));
	if (memory == MAP_FAILED || !vault.held) {
		if (memory != MAP_FAILED)
			munmap(memory, bytes);
		free(vault.held);
		return sl_fail(-ENOMEM, "no memory");
	}
	vault.ledger = memory;
	for (uint32_t i = 0; i < vault.most; i++)
		vault.held[i].fd = -1;
	if (getrandom(&vault.ledger->store, sizeof(vault.ledger->store), 0) < 0)
		vault.ledger->store = (uint64_t)sl_now();
	*out = vault;
	return 0;
}

void sl_vault_free(struct sl_vault *vault)
{
	munmap(vault->ledger, sizeof(*vault->ledger) + vault->most * sizeof(struct sl_kept));
	free(vault->held);
}

/* --------------------------------------------------------------------------------- the server */

/* Waits for the keeper, which does nothing but receive. If it is gone, the next one inherits all. */
static void tell(const struct sl_vault *vault, uint32_t row, uint64_t id, int fd)
{
	struct keep keep = {.row = row, .id = id};
	struct iovec io = {&keep, sizeof(keep)};
	_Alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {0};
	struct msghdr message = {.msg_iov = &io, .msg_iovlen = 1};

	if (vault->peer < 0)
		return;
	if (id) {
		struct cmsghdr *header = (struct cmsghdr *)control;

		message.msg_control = control;
		message.msg_controllen = sizeof(control);
		header->cmsg_level = SOL_SOCKET;
		header->cmsg_type = SCM_RIGHTS;
		header->cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(header), &fd, sizeof(fd));
	}
	while (sendmsg(vault->peer, &message, MSG_NOSIGNAL) < 0 && errno == EINTR)
		;
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

	while (index < vault->used && vault->held[index].fd >= 0)
		index++;
	if (index == vault->most)
		return sl_fail(-ENFILE, "no descriptor is left for one more piece of memory");
	if (index == vault->used)
		vault->used++;
	row = &vault->ledger->rows[index];
	id = kept->id ? kept->id : sl_vault_number(vault);
	tell(vault, index, id, fd);
	row->kind = kept->kind;
	row->uid = kept->uid;
	row->bytes = kept->bytes;
	row->session = kept->session;
	row->started = kept->started;
	row->pid = kept->pid;
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

/* --------------------------------------------------------------------------------- the keeper */

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

static int compare(const void *a, const void *b)
{
	return *(const int *)a - *(const int *)b;
}

void sl_vault_only(const struct sl_vault *vault)
{
	int *kept = malloc((vault->most + 5) * sizeof(*kept));
	unsigned count = 0;
	int next = 3;

	if (!kept)
		return;
	for (uint32_t i = 0; i < vault->most; i++)
		if (vault->held[i].fd >= 0)
			kept[count++] = vault->held[i].fd;
	kept[count++] = vault->listener;
	if (vault->lock >= 0)
		kept[count++] = vault->lock;
	if (vault->peer >= 0)
		kept[count++] = vault->peer;
	if (vault->other_fd >= 0)
		kept[count++] = vault->other_fd;
	qsort(kept, count, sizeof(*kept), compare);
	for (unsigned i = 0; i < count; i++) {
		if (kept[i] > next)
			close_range((unsigned)next, (unsigned)kept[i] - 1, 0);
		next = SL_MAX(next, kept[i] + 1);
	}
	close_range((unsigned)next, ~0U, 0);
	free(kept);
}
