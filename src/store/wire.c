/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls over one socket. There is no thread for it: of the threads that wait for an answer one reads, and hands
 * the others theirs; when it has its own it leaves the reading to the next.
 */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "io/io.h"
#include "store/devices.h"

#define HELLO_NS INT64_C(10000000000)

int sl_store_check(const sluice_store *store, const char *call)
{
	if (sl_forked())
		return sl_fail(-ECHILD, "this process was forked: sluice belongs to its parent");
	return store ? 0 : sl_fail(-EINVAL, "%s: the store is NULL", call);
}

int sl_wire_hello(int fd, uint32_t role, uint64_t session, const char *prefix, int64_t until,
                  struct sl_msg_welcome *out, int fds[2])
{
	int64_t rest = SL_MAX(SL_MIN(until - sl_now(), HELLO_NS), 1000);
	struct timeval limit = {rest / 1000000000, rest % 1000000000 / 1000}, none = {0, 0};
	/* By it the server sees the end of this process, also from another PID namespace; -1 where there is none. */
	int self = (int)syscall(SYS_pidfd_open, getpid(), 0);
	union sl_message m;
	ssize_t n;

	sl_message_begin(&m, SL_MSG_HELLO, 1, 0);
	m.hello.role = role;
	m.hello.session = session;
	strncpy(m.hello.prefix, prefix, sizeof(m.hello.prefix) - 1);
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
	n = sl_socket_send(fd, &m, self, SL_FOREVER);
	if (self >= 0)
		close(self);
	/* If the other end is closed already, why may be there to be read. */
	if (n && n != -EPIPE && n != -ECONNRESET)
		return sl_fail((int)n, "cannot speak to the store: %s", sl_error_text((int)n));
	n = sl_socket_receive(fd, &m, fds, 0);
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &none, sizeof(none));
	if (n > 0 && m.head.type == SL_MSG_WELCOME && (fds[1] >= 0) == (role == SL_ROLE_CLIENT)) {
		*out = m.welcome;
		return 0;
	}
	sl_close_both(fds);
	if (n == -EPROTO)
		return -EPROTO;
	if (n > 0 && m.head.type == SL_MSG_REFUSAL)
		return sl_fail(m.head.error, "%s", m.refusal.text);
	return n > 0 ? sl_fail(-EPROTO, "the store answers what was not asked")
	             : sl_fail(-ECONNRESET, "the store has hung up");
}

/* --------------------------------------------------------------------------------------- view */

static int view_new(const struct sl_msg_welcome *welcome, const int fds[2], struct sl_view **out)
{
	struct sl_view *view = calloc(1, sizeof(*view));
	int rc;

	if (!view)
		return sl_fail(-ENOMEM, "no memory");
	atomic_init(&view->references, 1);
	view->store = welcome->store;
	view->session = welcome->session;
	rc = sl_segment_map(fds[0], false, &view->segment);
	if (!rc)
		rc = sl_references_map(fds[1], true, &view->own);
	if (rc) {
		sl_view_release(view);
		return sl_fail(rc, "cannot map the catalogue: %s", sl_error_text(rc));
	}
	view->reader = (struct sl_reader){view->segment, view->own};
	*out = view;
	return 0;
}

struct sl_view *sl_view_acquire(sluice_store *store)
{
	struct sl_view *view;

	sl_mutex_lock(&store->mutex);
	view = store->view;
	atomic_fetch_add(&view->references, 1);
	sl_mutex_unlock(&store->mutex);
	return view;
}

struct sl_view *sl_view_acquire_of(sluice_store *store, uint64_t turn)
{
	struct sl_view *view = sl_view_acquire(store);

	if (sl_same_daemon(view->turn, turn))
		return view;
	sl_view_release(view);
	return NULL;
}

void sl_view_release(struct sl_view *view)
{
	if (atomic_fetch_sub(&view->references, 1) != 1)
		return;
	sl_segment_unmap(view->segment);
	sl_references_unmap(view->own);
	free(view);
}

/* --------------------------------------------------------------------------------------- wire */

/* With the mutex, if other threads have it. */
static void unref(struct sl_wire *wire)
{
	if (--wire->references)
		return;
	if (wire->fd >= 0)
		close(wire->fd);
	free(wire);
}

/* What is true of the new server, and of the one before not. With the mutex. */
static void adopt(sluice_store *store, struct sl_wire *wire, const struct sl_msg_welcome *welcome,
                  struct sl_view *view)
{
	bool same = store->view && store->view->store == welcome->store;

	store->turn = same ? store->turn + 1 : ((store->turn >> 32) + 1) << 32;
	store->stock_count = 0;
	sl_mappings_forget(store, !same);
	sl_far_adopt(store, same);
	if (view) {
		view->turn = store->turn;
		if (store->view)
			sl_view_release(store->view);
		store->view = view;
	}
	store->wire = wire;
}

/* What of devices is mapped here, before anything else: a new server cannot know. With the mutex, which is let go. That it
 * cannot be told ends the wire, soon. */
static void tell_mappings(sluice_store *store, const struct sl_wire *wire)
{
	struct sl_id_item regions[SL_ITEMS_MOST];
	union sl_message m;
	unsigned n;

	while ((n = sl_far_list(store, store->turn + 1, regions))) {
		sl_message_begin(&m, SL_MSG_HAVE, 0, n);
		memcpy(m.ids.items, regions, n * sizeof(regions[0]));
		sl_mutex_unlock(&store->mutex);
		if (sl_socket_send(wire->fd, &m, -1, SL_FOREVER))
			shutdown(wire->fd, SHUT_RDWR);
		sl_mutex_lock(&store->mutex);
	}
}

int sl_wire_open(sluice_store *store, bool once, int64_t until)
{
	struct sl_view *view = NULL, *before = store->view;
	struct sl_wire *wire = calloc(1, sizeof(*wire));
	struct sl_msg_welcome welcome;
	int fds[2], rc;

	if (!wire)
		return sl_fail(-ENOMEM, "no memory");
	wire->references = 1;
	wire->fd = -1;
	sl_list_init(&wire->calls);
	rc = sl_wire_connect(store->path, store->patience_ms, once, &wire->fd);
	if (!rc)
		rc = sl_wire_hello(wire->fd, SL_ROLE_CLIENT, before ? before->session : 0, "",
		                   until, &welcome, fds);
	if (!rc) {
		/* Our references, and the catalogue they belong to, are where they were. */
		if (!before || before->store != welcome.store || before->session != welcome.session)
			rc = view_new(&welcome, fds, &view);
		sl_close_both(fds);
	}
	if (rc) {
		unref(wire);
		return rc;
	}
	sl_store_step("client: connected");
	sl_mutex_lock(&store->mutex);
	if (before && before->store == welcome.store)
		tell_mappings(store, wire);
	adopt(store, wire, &welcome, view);
	sl_mutex_unlock(&store->mutex);
	return 0;
}

/* With the mutex, which is let go meanwhile. */
static int connect_alone(sluice_store *store, bool once, int64_t until)
{
	int rc;

	store->connecting = true;
	sl_mutex_unlock(&store->mutex);
	rc = sl_wire_open(store, once, until);
	sl_mutex_lock(&store->mutex);
	store->connecting = false;
	pthread_cond_broadcast(&store->connected);
	return rc;
}

static int late(void)
{
	return sl_fail(-ETIMEDOUT, "the server did not answer in time");
}

/* With the mutex, which is let go meanwhile. One thread connects, which ends the wait of the others. -ETIMEDOUT: a server
 * that lets clients in has not answered until then. */
static int connected(sluice_store *store, int64_t until)
{
	int64_t deadline = store->wire ? 0 : sl_deadline((int)store->patience_ms);
	int rc = 0;

	while (!store->wire && (!rc || (rc == -ECONNRESET && sl_now() <= SL_MIN(deadline, until))))
		if (store->connecting)
			rc = sl_cond_wait(&store->connected, &store->mutex, until);
		else
			rc = connect_alone(store, false, until);
	if (store->wire)
		return 0;
	return rc == -ETIMEDOUT || (rc == -ECONNRESET && sl_now() >= until) ? late() : rc;
}

/* With the mutex. */
static void finish(struct sl_call *call, int rc)
{
	call->done = true;
	call->rc = rc;
	pthread_cond_signal(&call->changed);
}

/* Calls that wait for an answer by it get none. With the mutex. */
static void break_wire(sluice_store *store, struct sl_wire *wire, int error)
{
	if (wire->broken)
		return;
	wire->broken = true;
	shutdown(wire->fd, SHUT_RDWR);
	sl_list_each (link, &wire->calls) {
		struct sl_call *call = SL_CONTAINER(link, struct sl_call, link);

		if (!call->done)
			finish(call, error);
	}
	if (store->wire == wire) {
		store->wire = NULL;
		unref(wire);
	}
}

/* Of the kernel's clock, some milliseconds long; cheaper to read than the time. */
static int64_t tick(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC_COARSE, &t);
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* Having read all that we had sent, or not: then there is an error before the end. */
static bool has_hung_up(int fd)
{
	char byte;
	ssize_t n = recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);

	return !n || (n < 0 && errno != EAGAIN && errno != EINTR);
}

bool sl_wire_alive(sluice_store *store)
{
	bool alive;

	sl_mutex_lock(&store->mutex);
	/* Who was heard of in this tick is taken to be alive. */
	if (store->wire && store->heard_at != tick() && has_hung_up(store->wire->fd))
		break_wire(store, store->wire, -ECONNRESET);
	alive = store->wire;
	sl_mutex_unlock(&store->mutex);
	return alive;
}

void sl_wire_close(sluice_store *store)
{
	union sl_message m;

	if (store->wire) {
		sl_message_begin(&m, SL_MSG_BYE, 0, 0);
		sl_socket_send(store->wire->fd, &m, -1, SL_FOREVER);
		unref(store->wire);
	}
	if (store->view)
		sl_view_release(store->view);
}

/* --------------------------------------------------------------------------------------- calls */

static struct sl_call *find_call(struct sl_wire *wire, uint32_t serial)
{
	sl_list_each (link, &wire->calls) {
		struct sl_call *call = SL_CONTAINER(link, struct sl_call, link);

		if (call->serial == serial && !call->done)
			return call;
	}
	return NULL;
}

static uint32_t next_serial(sluice_store *store)
{
	do
		store->serial++;
	while (!store->serial || store->serial == SL_SERIAL_ANY);
	return store->serial;
}

/* Everything before the oldest call that is under way. With the mutex. */
static uint32_t settled(const sluice_store *store, const struct sl_wire *wire)
{
	const struct sl_list *calls = &wire->calls;

	return sl_list_empty(calls) ? store->serial
	                            : SL_CONTAINER(calls->next, struct sl_call, link)->serial - 1;
}

/* Gives the answer in wire->in to its call, or obeys a message that nobody asked for. With the mutex. */
static void hand_over(sluice_store *store, struct sl_wire *wire, int fds[2])
{
	const union sl_message *m = &wire->in;
	struct sl_call *call = NULL;

	/* A message of an earlier server about regions goes for none of a new server's. */
	if (store->wire == wire && m->head.type != SL_MSG_FORGET)
		sl_far_expect(store, m);
	else if (store->wire == wire)
		sl_far_forget(store, m);
	/* The answer may be there before the thread that sends the request has returned from the kernel, which
	 * reads the same memory. That thread ends this wait. */
	while (m->head.type != SL_MSG_FORGET && (call = find_call(wire, m->head.serial)) &&
	       !call->sent)
		sl_cond_wait(&store->sent, &store->mutex, SL_FOREVER);
	/* The call was given up: its answer is late. */
	if (!call) {
		sl_close_both(fds);
		return;
	}
	memcpy(call->m, m, m->head.bytes);
	memcpy(call->fds, fds, sizeof(call->fds));
	store->heard_at = tick();
	finish(call, 0);
}

/* Reads one message, for any call, if it comes before the deadline. With the mutex, which is let go meanwhile. */
static void read_one(sluice_store *store, struct sl_wire *wire, int64_t deadline)
{
	int fds[2], flags = deadline == SL_FOREVER ? 0 : MSG_DONTWAIT;
	ssize_t n = -EAGAIN;

	wire->reading = true;
	sl_mutex_unlock(&store->mutex);
	if (!flags || sl_socket_wait(wire->fd, POLLIN, deadline))
		n = sl_socket_receive(wire->fd, &wire->in, fds, flags);
	sl_mutex_lock(&store->mutex);
	if (n > 0 && wire->in.head.serial != SL_SERIAL_ANY) {
		wire->heard++;
		hand_over(store, wire, fds);
	} else if (n != -EAGAIN) {
		sl_close_both(fds);
		break_wire(store, wire, -ECONNRESET);
	}
	wire->reading = false;
}

/* Nobody reads now: one of those that wait for an answer is to. With the mutex. */
static void pass_on(struct sl_wire *wire)
{
	sl_list_each (link, &wire->calls) {
		struct sl_call *next = SL_CONTAINER(link, struct sl_call, link);

		/* Who still sends may wait for the server, which waits for somebody to read; he looks later. */
		if (!next->done && next->sent) {
			pthread_cond_signal(&next->changed);
			break;
		}
	}
}

/* A request whose answer no call waits for: any message shows that the server runs. With the mutex. */
static void probe(sluice_store *store, const struct sl_call *call)
{
	union sl_message m;

	sl_message_begin(&m, SL_MSG_STATS, next_serial(store), 0);
	m.head.settled = settled(store, call->wire);
	sl_mutex_unlock(&store->mutex);
	sl_socket_send(call->wire->fd, &m, -1, 0);
	sl_mutex_lock(&store->mutex);
}

/*
 * The server keeps to a get's time-out itself, and may wait for its disk beyond it. Only if it says nothing for SL_GRACE_NS
 * after the deadline, and nothing for as long after a probe, the call ends with -ETIMEDOUT. With the mutex.
 */
static void wait_for_answer(sluice_store *store, struct sl_call *call, int64_t deadline)
{
	struct sl_wire *wire = call->wire;
	uint64_t heard = UINT64_MAX;
	int64_t until = deadline == SL_FOREVER ? SL_FOREVER : deadline + SL_GRACE_NS;

	/* The thread that reads ends this wait with the answer, or with the end of the connection. */
	while (!call->done) {
		if (until == SL_FOREVER || sl_now() < until) {
			if (wire->reading)
				sl_cond_wait(&call->changed, &store->mutex, until);
			else
				read_one(store, wire, until);
		} else if (wire->heard == heard) {
			finish(call, -ETIMEDOUT);
		} else {
			heard = wire->heard;
			until = sl_now() + SL_GRACE_NS;
			probe(store, call);
		}
	}
	if (!wire->reading)
		pass_on(wire);
}

bool sl_wire_look(sluice_store *store, struct sl_wire *wire, bool polite)
{
	bool reads;

	sl_mutex_lock(&store->mutex);
	reads = !wire->reading && (!polite || sl_list_empty(&wire->calls)) && !wire->broken;
	if (reads) {
		read_one(store, wire, 0);
		pass_on(wire);
	}
	reads = reads || wire->broken;
	sl_mutex_unlock(&store->mutex);
	return reads;
}

struct sl_wire *sl_wire_acquire(sluice_store *store)
{
	struct sl_wire *wire;

	sl_mutex_lock(&store->mutex);
	if (!store->wire && !store->connecting)
		connect_alone(store, true, SL_FOREVER);
	wire = store->wire;
	if (wire)
		wire->references++;
	sl_mutex_unlock(&store->mutex);
	return wire;
}

void sl_wire_release(sluice_store *store, struct sl_wire *wire)
{
	sl_mutex_lock(&store->mutex);
	unref(wire);
	sl_mutex_unlock(&store->mutex);
}

int sl_call_begin(sluice_store *store, union sl_message *m, enum sl_message_type answer,
                  uint64_t turn, int64_t deadline, struct sl_call *call)
{
	int64_t until = deadline == SL_FOREVER ? SL_FOREVER : deadline + 2 * SL_GRACE_NS;
	int rc;

	*call = (struct sl_call){.m = m, .fds = {-1, -1}};
	sl_mutex_lock(&store->mutex);
	rc = connected(store, until);
	if (!rc && turn && store->turn != turn)
		rc = sl_fail(-ECONNRESET, "the server was replaced");
	if (rc) {
		sl_mutex_unlock(&store->mutex);
		return rc;
	}
	pthread_cond_init(&call->changed, NULL);
	call->wire = store->wire;
	call->wire->references++;
	call->turn = store->turn;
	m->head.settled = settled(store, call->wire);
	m->head.serial = call->serial = next_serial(store);
	sl_list_append(&call->wire->calls, &call->link);
	sl_mutex_unlock(&store->mutex);
	/* Not with the mutex: while the server does not read, somebody has to read what it sends. */
	rc = sl_socket_send(call->wire->fd, m, -1, until);
	sl_store_step("client: asked");
	sl_mutex_lock(&store->mutex);
	call->sent = true;
	pthread_cond_broadcast(&store->sent);
	if (rc == -EAGAIN)
		finish(call, -ETIMEDOUT);
	else if (rc)
		break_wire(store, call->wire, -ECONNRESET);
	wait_for_answer(store, call, deadline);
	rc = call->rc;
	sl_mutex_unlock(&store->mutex);
	sl_store_step("client: answered");
	if (rc)
		rc = rc == -ETIMEDOUT ? late() : sl_fail(rc, "the server was replaced");
	else if (m->head.type == SL_MSG_REFUSAL)
		rc = sl_fail(m->head.error, "%s", m->refusal.text);
	else if (m->head.type != answer)
		rc = sl_fail(-EPROTO, "the store answers what was not asked");
	if (rc)
		sl_call_end(store, call);
	return rc;
}

void sl_call_end(sluice_store *store, struct sl_call *call)
{
	sl_mutex_lock(&store->mutex);
	sl_list_remove(&call->link);
	unref(call->wire);
	sl_mutex_unlock(&store->mutex);
	pthread_cond_destroy(&call->changed);
	sl_close_both(call->fds);
}

int sl_call(sluice_store *store, union sl_message *m, enum sl_message_type answer, int64_t deadline,
            struct sl_reply *reply)
{
	struct sl_call call;
	bool again = false;
	int rc;

	while ((rc = sl_call_begin(store, m, answer, 0, deadline, &call)) == -ECONNRESET)
		again = true;
	if (reply)
		*reply = (struct sl_reply){call.turn, call.fds[0], again};
	if (rc)
		return rc;
	if (reply)
		call.fds[0] = -1;
	sl_call_end(store, &call);
	return answer == SL_MSG_MEMORY && reply->fd < 0
	               ? sl_fail(-EMFILE, "no descriptor came: too many are open here")
	               : 0;
}

int sl_tell(sluice_store *store, union sl_message *m, uint64_t turn, int fd)
{
	struct sl_wire *wire;
	int rc;

	sl_store_step("client: tells");
	sl_mutex_lock(&store->mutex);
	wire = !turn || store->turn == turn ? store->wire : NULL;
	if (!wire) {
		sl_mutex_unlock(&store->mutex);
		return -ESTALE;
	}
	m->head.settled = settled(store, wire);
	wire->references++;
	sl_mutex_unlock(&store->mutex);
	rc = sl_socket_send(wire->fd, m, fd, SL_FOREVER);
	sl_wire_release(store, wire);
	return rc ? -ESTALE : 0;
}

void sl_tell_id(sluice_store *store, enum sl_message_type type, uint64_t id, uint64_t turn)
{
	union sl_message m;

	sl_message_begin(&m, type, 0, 1);
	m.ids.items[0].id = id;
	sl_tell(store, &m, turn, -1);
}
