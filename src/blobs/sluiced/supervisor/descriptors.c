/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The descriptor table: puts descriptors into it, hands it to the next process, and rebuilds it in
 * a new server.
 *
 * descriptors.h describes the ledger. Each process uses its side on its main thread only; the two
 * meet in the socket between them and in the atomic words of the ledger.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <syslog.h>
#include <unistd.h>

#include "sluiced/supervisor/supervisor.h"

/* Descriptors of the server that are not in the descriptor table: connections, and its own. */
#define OTHERS    8192
#define ROWS_MOST 65536u
#define LEAST     64 /* so many serve a few clients */

/* A supervisor that receives nothing for this time while the server waits is taken for dead. */
#define DEAF_NS INT64_C(1000000000)

/* A message from the server, with a descriptor if id is not 0. */
struct descriptors_message {
	uint32_t row;
	uint32_t zero;
	uint64_t id; /* 0: give up the row */
};

_Static_assert(sizeof(struct sl_ledger_row) == 72 && sizeof(struct sl_ledger_device) == 32 &&
                       sizeof(struct sl_ledger_cell) == 16 && sizeof(struct sl_budget) == 40 &&
                       sizeof(struct sl_server_settings) == 9000 &&
                       sizeof(struct sl_ledger) == 76656,
               "increase SL_STATE_LAYOUT");
_Static_assert(SL_SEGMENT_VERSION < 1000 && SL_PROTOCOL_VERSION < 1000, "parts of SL_LAYOUT");

/*
 * In the environment of a process that executes a program: its role and the descriptors with which
 * it begins. Empty otherwise.
 */
#define VARIABLE "SLUICED_STATE"
static char variable[96] = VARIABLE "=";
static char given[80]; /* the value that it had when this process began */

static int ledger_rows_find(uint32_t *out)
{
	struct rlimit limit = {512, 512};

	getrlimit(RLIMIT_NOFILE, &limit);
	if (limit.rlim_max < LEAST)
		return sl_fail(-EMFILE, "the daemon needs %d descriptors, and its hard limit is %d",
		               LEAST, (int)limit.rlim_max);
	limit.rlim_cur = limit.rlim_max;
	setrlimit(RLIMIT_NOFILE, &limit);
	if (limit.rlim_cur >= ROWS_MOST + OTHERS)
		*out = ROWS_MOST;
	else
		*out = (uint32_t)(limit.rlim_cur > 2 * OTHERS ? limit.rlim_cur - OTHERS
		                                              : limit.rlim_cur / 2);
	return 0;
}

static size_t ledger_bytes(uint32_t most)
{
	return sizeof(struct sl_ledger) +
	       most * (sizeof(struct sl_ledger_row) + 2 * sizeof(struct sl_ledger_cell));
}

static struct sl_ledger_cell *ledger_column(struct sl_ledger *ledger, enum sl_begin begin)
{
	struct sl_ledger_cell *first = (struct sl_ledger_cell *)&ledger->rows[ledger->most];

	return begin == SL_BEGIN_SERVER ? first : first + ledger->most;
}

int sl_descriptors_new(int listener, int lock, const struct sl_server_settings *settings,
                       struct sl_descriptors *out)
{
	uint32_t most = 0;
	int rc = ledger_rows_find(&most), fd;
	struct sl_ledger *ledger = MAP_FAILED;

	if (rc)
		return rc;
	fd = memfd_create("sluiced-ledger", MFD_CLOEXEC);
	if (fd >= 0 && !ftruncate(fd, (off_t)ledger_bytes(most)))
		ledger = mmap(NULL, ledger_bytes(most), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (ledger == MAP_FAILED)
		return sl_fail(-errno, "cannot make a ledger: %s", sl_error_text(-errno));
	ledger->layout = SL_LAYOUT;
	ledger->most = most;
	ledger->listener = listener;
	ledger->lock = lock;
	ledger->settings = *settings;
	if (getrandom(&ledger->store, sizeof(ledger->store), 0) < 0)
		ledger->store = (uint64_t)sl_now();
	*out = (struct sl_descriptors){.ledger = ledger,
	                               .held = ledger_column(ledger, SL_BEGIN_SUPERVISOR),
	                               .ledger_fd = fd,
	                               .peer = -1,
	                               .other_fd = -1};
	for (uint32_t i = 0; i < most; i++)
		out->held[i].fd = -1;
	return 0;
}

/* ----------------------------------------------------------------------------- the next process */

void sl_descriptors_copy(const struct sl_descriptors *descriptors, enum sl_begin begin)
{
	memcpy(ledger_column(descriptors->ledger, begin), descriptors->held,
	       descriptors->ledger->most * sizeof(descriptors->held[0]));
}

static void fd_leave_open(int fd)
{
	if (fd >= 0)
		fcntl(fd, F_SETFD, 0);
}

void sl_descriptors_exec(const struct sl_descriptors *descriptors, enum sl_begin begin,
                         const char *program, char **arguments)
{
	snprintf(variable, sizeof(variable), VARIABLE "=%d %d %d %d %d", (int)begin,
	         descriptors->ledger_fd, descriptors->peer, descriptors->other_fd,
	         (int)descriptors->other);
	close_range(3, ~0U, CLOSE_RANGE_CLOEXEC);
	fd_leave_open(descriptors->ledger->listener);
	fd_leave_open(descriptors->ledger->lock);
	fd_leave_open(descriptors->ledger_fd);
	fd_leave_open(descriptors->peer);
	fd_leave_open(descriptors->other_fd);
	for (uint32_t i = 0; i < descriptors->ledger->most; i++)
		fd_leave_open(ledger_column(descriptors->ledger, begin)[i].fd);
	execv(program, arguments);
	close_range(3, ~0U, CLOSE_RANGE_CLOEXEC);
	strcpy(variable, VARIABLE "=");
}

bool sl_descriptors_are_given(void)
{
	const char *text = getenv(VARIABLE);

	snprintf(given, sizeof(given), "%s", text ? text : "");
	putenv(variable);
	return given[0];
}

int sl_descriptors_open(struct sl_descriptors *out, enum sl_begin *begin)
{
	struct sl_descriptors descriptors = {.ledger_fd = -1};
	struct sl_ledger *ledger;
	struct stat stat;
	int as;

	close_range(3, ~0U, CLOSE_RANGE_CLOEXEC);
	if (sscanf(given, "%d %d %d %d %d", &as, &descriptors.ledger_fd, &descriptors.peer,
	           &descriptors.other_fd, &descriptors.other) != 5 ||
	    fstat(descriptors.ledger_fd, &stat) || stat.st_size < (off_t)sizeof(*ledger))
		return sl_fail(-EPROTO, VARIABLE " names no ledger");
	ledger = mmap(NULL, (size_t)stat.st_size, PROT_READ | PROT_WRITE, MAP_SHARED,
	              descriptors.ledger_fd, 0);
	if (ledger == MAP_FAILED)
		return sl_fail(-errno, "cannot map the ledger: %s", sl_error_text(-errno));
	if (ledger->layout != SL_LAYOUT || (size_t)stat.st_size != ledger_bytes(ledger->most))
		return sl_fail(-EPROTO, VARIABLE " names no ledger of this program's layout, %d",
		               SL_LAYOUT);
	descriptors.ledger = ledger;
	descriptors.held = ledger_column(ledger, (enum sl_begin)as);
	*out = descriptors;
	*begin = (enum sl_begin)as;
	return 0;
}

/* --------------------------------------------------------------------------------- the server */

/* Ends a supervisor that is stopped or hangs; the server's loop then starts another. */
static void descriptors_end_deaf(const struct sl_descriptors *descriptors)
{
	sl_report(LOG_WARNING,
	          "the supervisor (process %d) does not receive anything and is replaced",
	          (int)descriptors->other);
	sl_descriptors_signal(descriptors, SIGKILL);
	shutdown(descriptors->peer, SHUT_RDWR);
}

/* Sends to the supervisor, and waits while its socket is full. id 0: without a descriptor. */
static int descriptors_tell(const struct sl_descriptors *descriptors, uint32_t row, uint64_t id,
                            int fd)
{
	struct descriptors_message m = {.row = row, .id = id};
	int64_t until = 0, now;
	ssize_t rc;

	if (descriptors->peer < 0)
		return 0;
	while ((rc = sl_fds_send(descriptors->peer, &m, sizeof(m), &fd, id != 0, MSG_DONTWAIT)) ==
	       -EAGAIN) {
		now = sl_now();
		until = until ? until : SL_MAX(now + DEAF_NS, descriptors->patient_until);
		if (now >= until) {
			descriptors_end_deaf(descriptors);
			return 0;
		}
		poll(&(struct pollfd){.fd = descriptors->peer, .events = POLLOUT}, 1,
		     (int)((until - now) / 1000000) + 1);
	}
	/* If the supervisor is gone, the next inherits every descriptor of this process. */
	return rc == -EPIPE || rc == -ECONNRESET || rc == -ENOTCONN ? 0 : (int)SL_MIN(rc, 0);
}

void sl_descriptors_say(const struct sl_descriptors *descriptors, uint32_t what)
{
	descriptors_tell(descriptors, what, 0, -1);
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

int sl_descriptors_put(struct sl_descriptors *descriptors, const struct sl_ledger_row *saved,
                       int fd, uint32_t *out)
{
	struct sl_ledger_row *row, copy = *saved;
	uint32_t index = descriptors->full;
	uint64_t id;
	int rc;

	while (index < descriptors->used && descriptors->held[index].fd >= 0)
		index++;
	if (index == descriptors->ledger->most)
		return sl_fail(-ENFILE, "no descriptor is left for one more piece of memory");
	if (index == descriptors->used)
		descriptors->used++;
	row = &descriptors->ledger->rows[index];
	id = saved->id ? saved->id : sl_descriptors_number(descriptors);
	rc = descriptors_tell(descriptors, index, id, fd);
	if (rc == -ETOOMANYREFS)
		return sl_descriptors_in_flight();
	if (rc)
		return sl_fail(rc, "cannot give a descriptor to the supervisor: %s",
		               sl_error_text(rc));
	copy.id = copy.maps = 0;
	copy.origin = saved->origin ? saved->origin : id;
	*row = copy;
	descriptors->held[index].fd = fd;
	descriptors->held[index].id = id;
	descriptors->full = index + 1;
	descriptors->count++;
	atomic_store_explicit(&row->id, id, memory_order_release);
	*out = index;
	return 0;
}

static void descriptors_let_go(struct sl_descriptors *descriptors, uint32_t row)
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
	descriptors_tell(descriptors, row, 0, -1);
	descriptors->count -= descriptors->held[row].fd >= 0;
	descriptors_let_go(descriptors, row);
}

void sl_descriptors_reconcile(struct sl_descriptors *descriptors)
{
	descriptors->used = descriptors->full = descriptors->count = 0;
	for (uint32_t i = 0; i < descriptors->ledger->most; i++) {
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

static ssize_t descriptors_receive(int socket, struct descriptors_message *m, int *fd)
{
	int fds[SL_FDS_MOST], cut;
	ssize_t n = sl_fds_receive(socket, m, sizeof(*m), fds, MSG_DONTWAIT, &cut);

	*fd = fds[0];
	/* The server sends a descriptor at most; a second one would stay open for ever. */
	if (fds[1] >= 0)
		close(fds[1]);
	if (cut & MSG_CTRUNC) {
		sl_report(LOG_WARNING,
		          "the supervisor has no room for a descriptor and is replaced");
		_exit(EXIT_FAILURE);
	}
	return n;
}

bool sl_descriptors_take(struct sl_descriptors *descriptors)
{
	struct descriptors_message m;
	ssize_t n;
	int fd;

	while ((n = descriptors_receive(descriptors->peer, &m, &fd)) > 0) {
		bool whole = n == sizeof(m);

		descriptors->over |= whole && m.row == SL_SAY_BYE;
		descriptors->ready |= whole && m.row == SL_SAY_READY;
		descriptors->upgrade |= whole && m.row == SL_SAY_UPGRADE;
		if (!whole || m.row >= descriptors->ledger->most) {
			if (fd >= 0)
				close(fd);
			continue;
		}
		descriptors_let_go(descriptors, m.row);
		descriptors->held[m.row].fd = fd;
		descriptors->held[m.row].id = fd >= 0 ? m.id : 0;
	}
	return n == -EAGAIN;
}

/* ------------------------------------------------------------------------------------ both */

void sl_descriptors_signal(const struct sl_descriptors *descriptors, int number)
{
	if (descriptors->other_fd >= 0)
		syscall(SYS_pidfd_send_signal, descriptors->other_fd, number, NULL, 0);
	else if (descriptors->other > 0)
		kill(descriptors->other, number);
}
