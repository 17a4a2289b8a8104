/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The connection to the server
 *
 * Connects to the socket, says hello, maps the catalogue, and adapts the store to each new server.
 * Also sends and receives single messages, for store_call.c and watch.c. Any thread; a single
 * thread connects, and the others wait for it.
 */
#include <errno.h>
#include <poll.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "io/io.h"
#include "store/conn.h"

#define PAUSE_NS   5000000
#define STOPPED_NS INT64_C(5000000000)

/* ------------------------------------------------------------------------------------- socket */

/* Finds the user that SLUICE_STORE_OWNER names. */
static int socket_find_owner(const char *name, uid_t *out)
{
	char buffer[4096], *end;
	struct passwd entry, *found = NULL;

	if (!getpwnam_r(name, &entry, buffer, sizeof(buffer), &found) && found) {
		*out = found->pw_uid;
		return 0;
	}
	errno = 0;
	unsigned long number = strtoul(name, &end, 10);
	if (name[0] < '0' || name[0] > '9' || *end || errno || number >= UINT32_MAX)
		return sl_fail(-EINVAL, "SLUICE_STORE_OWNER: there is no user '%s'", name);
	*out = (uid_t)number;
	return 0;
}

/*
 * Checks the user of the server. Others may be able to write to the folder of the socket, so the
 * server must run as our user, as root, or as the user in SLUICE_STORE_OWNER.
 */
static int socket_check_server(const char *path, int fd)
{
	const char *name = getenv("SLUICE_STORE_OWNER");
	uid_t named = geteuid();
	struct ucred server;
	socklen_t size = sizeof(server);
	int rc = name && *name ? socket_find_owner(name, &named) : 0;

	if (!rc && getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &server, &size))
		rc = sl_fail(-errno, "whose store '%s' is cannot be found out: %s", path,
		             sl_error_text(-errno));
	if (!rc && server.uid && server.uid != geteuid() && server.uid != named)
		rc = sl_fail(-EPERM,
		             "the store at '%s' is user %u's: SLUICE_STORE_OWNER=%u accepts it",
		             path, (unsigned)server.uid, (unsigned)server.uid);
	return rc;
}

static int socket_connect_once(const char *path, int *out)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd, rc;

	strcpy(address.sun_path, path);
	fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return sl_fail(-errno, "cannot make a socket: %s", sl_error_text(-errno));
	if (connect(fd, (struct sockaddr *)&address, sizeof(address))) {
		int error = errno;

		close(fd);
		return sl_fail(-error, "no store at '%s': %s%s", path, sl_error_text(-error),
		               error == ENOENT || error == ECONNREFUSED
		                       ? "; does sluiced run there?"
		                       : "");
	}
	rc = socket_check_server(path, fd);
	if (rc)
		close(fd);
	else
		*out = fd;
	return rc;
}

int sl_socket_connect(const char *path, unsigned patience_ms, bool once, int *out)
{
	int64_t deadline = sl_now() + patience_ms * INT64_C(1000000);

	for (;;) {
		int rc = socket_connect_once(path, out);
		bool waits = rc == -ECONNREFUSED || rc == -ENOENT || rc == -EAGAIN || rc == -EINTR;

		if (!rc || !waits || once || sl_now() >= deadline)
			return rc == -ENOENT && !once ? -ECONNREFUSED : rc;
		nanosleep(&(struct timespec){0, PAUSE_NS}, NULL);
	}
}

ssize_t sl_socket_receive(int socket, union sl_message *m, int fds[2], int flags)
{
	int cut;
	ssize_t n = sl_fds_receive(socket, m, sizeof(*m), fds, flags, &cut);

	if (n > 0)
		sl_store_step("client: read");
	return n > 0 && sl_message_check(m, (size_t)n, false) ? -EPROTO : n;
}

void sl_close_both(int fds[2])
{
	for (int i = 0; i < 2; i++)
		if (fds[i] >= 0)
			close(fds[i]);
}

bool sl_socket_wait(int socket, short events, int64_t deadline)
{
	struct pollfd p = {.fd = socket, .events = events};
	int64_t left = deadline - sl_now(), rest = SL_MAX(left, 0);
	struct timespec time = {rest / 1000000000, rest % 1000000000};

	return ppoll(&p, 1, deadline == SL_FOREVER ? NULL : &time, NULL) > 0;
}

int sl_socket_send(int socket, const union sl_message *m, int fd, int64_t deadline)
{
	int flags = deadline == SL_FOREVER ? 0 : MSG_DONTWAIT;
	ssize_t n;

	do
		n = sl_fds_send(socket, m, m->head.bytes, &fd, fd >= 0, flags);
	while (n == -EAGAIN && (sl_socket_wait(socket, POLLOUT, deadline) || sl_now() < deadline));
	return n < 0 ? (int)n : 0;
}

/* ---------------------------------------------------------------------------------- catalogue */

static int view_new(const struct sl_msg_welcome *welcome, const int fds[2],
                    struct sl_catalogue_view **out)
{
	struct sl_catalogue_view *view = calloc(1, sizeof(*view));

	if (!view)
		return sl_fail(-ENOMEM, "no memory");
	atomic_init(&view->references, 1);
	view->store = welcome->store;
	view->session = welcome->session;
	int rc = sl_segment_map(fds[0], false, &view->segment);
	if (!rc)
		rc = sl_references_map(fds[1], true, &view->own_references);
	if (rc) {
		sl_view_release(view);
		return sl_fail(rc, "cannot map the catalogue: %s", sl_error_text(rc));
	}
	view->reader = (struct sl_reader){view->segment, view->own_references};
	*out = view;
	return 0;
}

struct sl_catalogue_view *sl_view_acquire(sluice_store *store)
{
	sl_mutex_lock(&store->mutex);
	struct sl_catalogue_view *view = store->view;
	atomic_fetch_add(&view->references, 1);
	sl_mutex_unlock(&store->mutex);
	return view;
}

struct sl_catalogue_view *sl_view_acquire_of(sluice_store *store, uint64_t epoch)
{
	struct sl_catalogue_view *view = sl_view_acquire(store);

	if (sl_same_daemon(view->epoch, epoch))
		return view;
	sl_view_release(view);
	return NULL;
}

void sl_view_release(struct sl_catalogue_view *view)
{
	if (atomic_fetch_sub(&view->references, 1) != 1)
		return;
	sl_segment_unmap(view->segment);
	sl_references_unmap(view->own_references);
	free(view);
}

/* --------------------------------------------------------------------------------- connection */

/* Returns whether the supervisor behind the socket is stopped: no server comes. Else it is late. */
static bool socket_listener_is_stopped(int fd)
{
	struct ucred listener = {0};
	socklen_t size = sizeof(listener);
	char path[32], state = 0;

	getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &listener, &size);
	snprintf(path, sizeof(path), "/proc/%d/stat", (int)listener.pid);
	FILE *file = fopen(path, "re");
	if (file) {
		(void)!fscanf(file, "%*d (%*[^)]) %c", &state);
		fclose(file);
	}
	return state == 'T' || state == 't';
}

int sl_conn_hello(int fd, uint32_t role, uint64_t session, const char *prefix, bool limited,
                  struct sl_msg_welcome *out, int fds[2])
{
	int64_t begun = sl_now(), waited = 0;
	/*
	 * With this descriptor the server sees the end of this process even from another PID
	 * namespace. It is -1 where the kernel has no pidfd.
	 */
	int self = (int)syscall(SYS_pidfd_open, getpid(), 0);
	union sl_message m;

	sl_message_begin(&m, SL_MSG_HELLO, 1, 0);
	m.hello.role = role;
	m.hello.session = session;
	strncpy(m.hello.prefix, prefix, sizeof(m.hello.prefix) - 1);
	ssize_t n = sl_socket_send(fd, &m, self, SL_FOREVER);
	if (self >= 0)
		close(self);
	/* If the server has closed the connection already, its reason may be there to be read. */
	if (n && n != -EPIPE && n != -ECONNRESET)
		return sl_fail((int)n, "cannot speak to the store: %s", sl_error_text((int)n));
	/* Ended by the welcome, by the end of the connection, or by the time. */
	while (!sl_socket_wait(fd, POLLIN, sl_now() + SL_GRACE_NS) && waited < SL_HELLO_NS) {
		waited = sl_now() - begun;
		if (waited >= (limited ? STOPPED_NS : SL_HELLO_NS) &&
		    socket_listener_is_stopped(fd))
			return sl_call_late();
	}
	n = sl_socket_receive(fd, &m, fds, MSG_DONTWAIT);
	if (n > 0 && m.head.type == SL_MSG_WELCOME && (fds[1] >= 0) == (role == SL_ROLE_CLIENT)) {
		*out = m.welcome;
		return 0;
	}
	sl_close_both(fds);
	if (n == -EPROTO)
		return -EPROTO;
	if (n > 0 && m.head.type == SL_MSG_REFUSAL)
		return sl_fail(m.head.error, "%s", m.refusal.text);
	if (n > 0 && m.head.type == SL_MSG_WELCOME && fds[1] < 0)
		return sl_fail(-EMFILE, "no catalogue came: too many files are open here");
	return n > 0 ? sl_fail(-EPROTO, "the store answers what was not asked")
	             : sl_fail(-ECONNRESET, "the store has hung up");
}

/* A child of fork() must not speak in its parent's name. */
int sl_store_check(const sluice_store *store, const char *call)
{
	if (!store)
		return sl_fail(-EINVAL, "%s: the store is NULL", call);
	return sl_process_is(store->process) ? 0 : sl_process_refuse();
}

void sl_conn_unref_locked(struct sl_conn *conn)
{
	if (--conn->references)
		return;
	if (conn->fd >= 0)
		close(conn->fd);
	free(conn);
}

/* Adopts a new server: its epoch, and only those mappings and leases that are valid with it. */
static void conn_adopt_locked(sluice_store *store, struct sl_conn *conn,
                              const struct sl_msg_welcome *welcome, struct sl_catalogue_view *view)
	SL_REQUIRES(&store->mutex)
{
	bool same = store->view && store->view->store == welcome->store;

	store->epoch = same ? store->epoch + 1 : ((store->epoch >> 32) + 1) << 32 | 1;
	store->lease_cache_count = 0;
	store->events->adopted(store, same);
	if (view) {
		view->epoch = store->epoch;
		if (store->view)
			sl_view_release(store->view);
		store->view = view;
	}
	store->conn = conn;
}

/*
 * Reports the device memory that is mapped here, before any other message, because a new server
 * cannot know it. Releases the mutex meanwhile. A report that cannot be sent ends the connection
 * soon.
 */
static void conn_report_mappings_locked(sluice_store *store, const struct sl_conn *conn)
	SL_REQUIRES(&store->mutex)
{
	struct sl_id_item regions[SL_ITEMS_MOST];
	union sl_message m;
	unsigned n;

	while ((n = store->events->unreported(store, store->epoch + 1, regions))) {
		sl_message_begin(&m, SL_MSG_HAVE, 0, n);
		memcpy(m.ids.items, regions, n * sizeof(regions[0]));
		sl_mutex_unlock(&store->mutex);
		if (sl_socket_send(conn->fd, &m, -1, SL_FOREVER))
			shutdown(conn->fd, SHUT_RDWR);
		sl_mutex_lock(&store->mutex);
	}
}

int sl_conn_open_locked(sluice_store *store, bool once, bool limited)
{
	struct sl_catalogue_view *view = NULL, *before = store->view;
	struct sl_conn *conn = calloc(1, sizeof(*conn));
	struct sl_msg_welcome welcome;
	int fds[2], rc;

	if (!conn)
		return sl_fail(-ENOMEM, "no memory");
	conn->references = 1;
	conn->fd = -1;
	sl_list_init(&conn->calls);
	store->connecting = true;
	sl_mutex_unlock(&store->mutex);
	rc = sl_socket_connect(store->path, store->patience_ms, once, &conn->fd);
	if (!rc)
		rc = sl_conn_hello(conn->fd, SL_ROLE_CLIENT, before ? before->session : 0, "",
		                   limited, &welcome, fds);
	if (!rc) {
		/* The same daemon and session: catalogue and references stay mapped. */
		if (!before || before->store != welcome.store || before->session != welcome.session)
			rc = view_new(&welcome, fds, &view);
		sl_close_both(fds);
	}
	if (!rc)
		sl_store_step("client: connected");
	sl_mutex_lock(&store->mutex);
	if (!rc && before && before->store == welcome.store)
		conn_report_mappings_locked(store, conn);
	if (!rc)
		conn_adopt_locked(store, conn, &welcome, view);
	else
		sl_conn_unref_locked(conn);
	store->connecting = false;
	store->connect_rc = rc;
	pthread_cond_broadcast(&store->connected);
	return rc;
}

int sl_call_late(void)
{
	return sl_fail(-ETIMEDOUT, "the server did not answer in time");
}

int sl_conn_get_locked(sluice_store *store, bool limited)
{
	int64_t deadline = store->conn ? 0 : sl_deadline((int)store->patience_ms);
	bool other = false; /* thread has tried */
	int rc = -ECONNRESET;

	while (!store->conn && (other || rc == -ECONNRESET) && rc != -ETIMEDOUT &&
	       sl_now() <= deadline) {
		other = store->connecting;
		if (!other)
			rc = sl_conn_open_locked(store, false, limited);
		/* Ended by the thread that connects. */
		else if (!sl_cond_wait(&store->connected, &store->mutex, SL_FOREVER))
			rc = store->connect_rc ? store->connect_rc : -ECONNRESET;
	}
	if (store->conn)
		return 0;
	if (rc == -ETIMEDOUT)
		return limited ? sl_call_late() : -ECONNRESET;
	if (rc == -ECONNRESET)
		return limited ? sl_fail(-ECONNREFUSED, "no server has come in time") : rc;
	return other ? sl_fail(rc, "the store cannot be reached: %s", sl_error_text(rc)) : rc;
}

struct sl_conn *sl_conn_acquire(sluice_store *store)
{
	sl_mutex_lock(&store->mutex);
	if (!store->conn && !store->connecting)
		sl_conn_open_locked(store, true, false);
	struct sl_conn *conn = store->conn;
	if (conn)
		conn->references++;
	sl_mutex_unlock(&store->mutex);
	return conn;
}

void sl_conn_release(sluice_store *store, struct sl_conn *conn)
{
	sl_mutex_lock(&store->mutex);
	sl_conn_unref_locked(conn);
	sl_mutex_unlock(&store->mutex);
}

void sl_conn_close(sluice_store *store) SL_UNCHECKED
{
	union sl_message m;

	if (store->conn) {
		sl_message_begin(&m, SL_MSG_BYE, 0, 0);
		sl_socket_send(store->conn->fd, &m, -1, SL_FOREVER);
		sl_conn_unref_locked(store->conn);
	}
	if (store->view)
		sl_view_release(store->view);
}
