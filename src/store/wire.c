/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls over one socket. There is no thread for it: of the threads that wait for an answer one reads, and hands
 * the others theirs; when it has its own it leaves the reading to the next.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "io/io.h"
#include "store/devices.h"

#define HELLO_SECONDS 10

int sl_store_check(const sluice_store *store, const char *call)
{
	if (sl_forked())
		return sl_fail(-ECHILD, "this process was forked: sluice belongs to its parent");
	return store ? 0 : sl_fail(-EINVAL, "%s: the store is NULL", call);
}

static int refused(const union sl_message *m)
{
	return sl_fail(m->head.error, "%s", m->refusal.text);
}

int sl_wire_hello(int fd, uint32_t role, uint64_t session, const char *prefix,
                  struct sl_welcome *out, int fds[2])
{
	struct timeval limit = {HELLO_SECONDS, 0}, none = {0, 0};
	/* By it the server sees the end of this process, also from another PID namespace; -1 where there is none. */
	int self = (int)syscall(SYS_pidfd_open, getpid(), 0);
	union sl_message m;
	ssize_t n;

	sl_message_begin(&m, SL_HELLO, 1, 0);
	m.hello.role = role;
	m.hello.session = session;
	strncpy(m.hello.prefix, prefix, sizeof(m.hello.prefix) - 1);
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
	n = sl_socket_send(fd, &m, self);
	if (self >= 0)
		close(self);
	/* If the other end is closed already, why may be there to be read. */
	if (n && n != -EPIPE && n != -ECONNRESET)
		return sl_fail((int)n, "cannot speak to the store: %s", sl_error_text((int)n));
	n = sl_socket_receive(fd, &m, fds, 0);
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &none, sizeof(none));
	if (n > 0 && m.head.type == SL_WELCOME && (fds[1] >= 0) == (role == SL_ROLE_CLIENT)) {
		*out = m.welcome;
		return 0;
	}
	sl_close_both(fds);
	if (n == -EPROTO)
		return -EPROTO;
	if (n > 0 && m.head.type == SL_REFUSAL)
		return refused(&m);
	return n > 0 ? sl_fail(-EPROTO, "the store answers what was not asked")
	             : sl_fail(-ECONNRESET, "the store has hung up");
}

/* --------------------------------------------------------------------------------------- view */

static int view_new(const struct sl_welcome *welcome, const int fds[2], struct sl_view **out)
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

	pthread_mutex_lock(&store->mutex);
	view = store->view;
	atomic_fetch_add(&view->references, 1);
	pthread_mutex_unlock(&store->mutex);
	return view;
}

struct sl_view *sl_view_acquire_of(sluice_store *store, uint64_t turn)
{
	struct sl_view *view = sl_view_acquire(store);

	if (sl_same_keeper(view->turn, turn))
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

/* With the mutex. */
static void unref(struct sl_wire *wire)
{
	if (--wire->references)
		return;
	close(wire->fd);
	free(wire);
}

/* What is true of the new server, and of the one before not. With the mutex. */
static void adopt(sluice_store *store, struct sl_wire *wire, const struct sl_welcome *welcome,
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

/* What of devices is mapped here, before anything else: a new server cannot know. With the mutex, which is let go. */
static int tell_mappings(sluice_store *store, const struct sl_wire *wire, uint64_t *added)
{
	size_t count, n;
	uint64_t *regions;
	union sl_message m;
	int rc = sl_far_list(store, &regions, &count, added);

	if (rc)
		return rc;
	pthread_mutex_unlock(&store->mutex);
	for (size_t i = 0; !rc && i < count; i += n) {
		n = SL_MIN(count - i, SL_ITEMS_MOST);
		sl_message_begin(&m, SL_HAVE, 0, (unsigned)n);
		for (size_t j = 0; j < n; j++)
			m.ids.items[j].id = regions[i + j];
		rc = sl_socket_send(wire->fd, &m, -1);
	}
	free(regions);
	pthread_mutex_lock(&store->mutex);
	return rc;
}

/* With the mutex. That it cannot be told ends the wire, soon. */
static void tell_all_mappings(sluice_store *store, const struct sl_wire *wire)
{
	struct sl_devices *devices = sl_devices_of(store);
	uint64_t added;
	int rc = 0;

	if (!devices)
		return;
	do
		rc = tell_mappings(store, wire, &added);
	while (!rc && added != devices->mapped.added);
	if (rc)
		shutdown(wire->fd, SHUT_RDWR);
}

/* Without the mutex, by one thread at a time. */
static int connect_new(sluice_store *store, bool once)
{
	struct sl_view *view = NULL, *before = store->view;
	struct sl_wire *wire = calloc(1, sizeof(*wire));
	struct sl_welcome welcome;
	int fds[2], rc;

	if (!wire)
		return sl_fail(-ENOMEM, "no memory");
	wire->references = 1;
	sl_list_init(&wire->calls);
	rc = sl_wire_connect(store->path, store->patience_ms, once, &wire->fd);
	if (rc) {
		free(wire);
		return rc;
	}
	rc = sl_wire_hello(wire->fd, SL_ROLE_CLIENT, before ? before->session : 0, "", &welcome,
	                   fds);
	if (!rc) {
		/* Our references, and the catalogue they belong to, are where they were. */
		if (!before || before->store != welcome.store || before->session != welcome.session)
			rc = view_new(&welcome, fds, &view);
		sl_close_both(fds);
	}
	if (rc) {
		close(wire->fd);
		free(wire);
		return rc;
	}
	sl_store_step("client: connected");
	pthread_mutex_lock(&store->mutex);
	if (before && before->store == welcome.store)
		tell_all_mappings(store, wire);
	adopt(store, wire, &welcome, view);
	pthread_mutex_unlock(&store->mutex);
	return 0;
}

/* With the mutex, which is let go meanwhile. One thread connects, the others wait for it. */
static int connected(sluice_store *store)
{
	int64_t deadline;
	int rc = 0;

	if (store->wire)
		return 0;
	deadline = sl_now() + store->patience_ms * INT64_C(1000000);
	while (!store->wire) {
		if (store->connecting) {
			/* Ended by that thread. */
			pthread_cond_wait(&store->connected, &store->mutex);
			continue;
		}
		if (rc && (rc != -ECONNRESET || sl_now() > deadline))
			return rc;
		store->connecting = true;
		pthread_mutex_unlock(&store->mutex);
		rc = connect_new(store, false);
		pthread_mutex_lock(&store->mutex);
		store->connecting = false;
		pthread_cond_broadcast(&store->connected);
	}
	return 0;
}

/* Whoever waits for an answer by it has none. With the mutex. */
static void break_wire(sluice_store *store, struct sl_wire *wire, int error)
{
	if (wire->broken)
		return;
	wire->broken = true;
	shutdown(wire->fd, SHUT_RDWR);
	sl_list_each (link, &wire->calls) {
		struct sl_call *call = SL_CONTAINER(link, struct sl_call, link);

		if (call->done)
			continue;
		call->done = true;
		call->rc = error;
		pthread_cond_signal(&call->changed);
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

	pthread_mutex_lock(&store->mutex);
	/* Who was heard of in this tick is taken to be alive. */
	if (store->wire && store->heard_at != tick() && has_hung_up(store->wire->fd))
		break_wire(store, store->wire, -ECONNRESET);
	alive = store->wire;
	pthread_mutex_unlock(&store->mutex);
	return alive;
}

int sl_wire_open(sluice_store *store)
{
	return connect_new(store, true);
}

void sl_wire_close(sluice_store *store)
{
	union sl_message m;

	if (store->wire) {
		sl_message_begin(&m, SL_BYE, 0, 0);
		sl_socket_send(store->wire->fd, &m, -1);
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

/* Gives an answer, which lies in m, to whom it belongs; or does what the server says unasked. With the mutex. */
static void hand_over(sluice_store *store, struct sl_wire *wire, const union sl_message *m,
                      int fds[2])
{
	struct sl_call *call;

	/* What an earlier server said of regions goes for none of a new one's. */
	if (store->wire == wire && m->head.type != SL_FORGET)
		sl_far_expect(store, m);
	else if (store->wire == wire)
		sl_far_forget(store, m);
	if (m->head.type == SL_FORGET) {
		sl_close_both(fds);
		return;
	}
	/* The answer may be there before the call that sends the request has returned, which is at the
	 * same memory. It ends this wait. */
	while ((call = find_call(wire, m->head.serial)) && !call->sent)
		pthread_cond_wait(&store->sent, &store->mutex);
	if (!call) {
		sl_close_both(fds);
		return;
	}
	if (call->m != m)
		memcpy(call->m, m, m->head.bytes);
	memcpy(call->fds, fds, sizeof(call->fds));
	store->heard_at = tick();
	call->done = true;
	call->rc = 0;
	pthread_cond_signal(&call->changed);
}

/* Reads one message, for whomever. With the mutex, which is let go meanwhile. */
static void read_one(sluice_store *store, struct sl_wire *wire, union sl_message *m, int flags)
{
	int fds[2];
	ssize_t n;

	wire->reading = true;
	pthread_mutex_unlock(&store->mutex);
	n = sl_socket_receive(wire->fd, m, fds, flags);
	pthread_mutex_lock(&store->mutex);
	if (n > 0 && m->head.serial != SL_SERIAL_ANY) {
		hand_over(store, wire, m, fds);
	} else if (n != -EAGAIN) {
		sl_close_both(fds);
		break_wire(store, wire, -ECONNRESET);
	}
	/* Not before: what was read is in the memory of the reader's own answer. */
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

static void wait_for_answer(sluice_store *store, struct sl_call *call)
{
	struct sl_wire *wire = call->wire;

	/* Ended by the answer, or by the end of the connection; whoever reads sees both. */
	while (!call->done)
		if (wire->reading)
			pthread_cond_wait(&call->changed, &store->mutex);
		else
			read_one(store, wire, call->m, 0);
	if (!wire->reading)
		pass_on(wire);
}

bool sl_wire_look(sluice_store *store, struct sl_wire *wire, union sl_message *m, bool polite)
{
	bool reads;

	pthread_mutex_lock(&store->mutex);
	reads = !wire->reading && (!polite || sl_list_empty(&wire->calls)) && !wire->broken;
	if (reads) {
		read_one(store, wire, m, MSG_DONTWAIT);
		pass_on(wire);
	}
	reads = reads || wire->broken;
	pthread_mutex_unlock(&store->mutex);
	return reads;
}

struct sl_wire *sl_wire_acquire(sluice_store *store)
{
	struct sl_wire *wire;

	pthread_mutex_lock(&store->mutex);
	if (!store->wire && !store->connecting) {
		store->connecting = true;
		pthread_mutex_unlock(&store->mutex);
		connect_new(store, true);
		pthread_mutex_lock(&store->mutex);
		store->connecting = false;
		pthread_cond_broadcast(&store->connected);
	}
	wire = store->wire;
	if (wire)
		wire->references++;
	pthread_mutex_unlock(&store->mutex);
	return wire;
}

void sl_wire_release(sluice_store *store, struct sl_wire *wire)
{
	pthread_mutex_lock(&store->mutex);
	unref(wire);
	pthread_mutex_unlock(&store->mutex);
}

static uint32_t next_serial(sluice_store *store)
{
	do
		store->serial++;
	while (!store->serial || store->serial == SL_SERIAL_ANY);
	return store->serial;
}

/* Everything before the oldest call that is under way. With the mutex. */
static uint32_t settled(const sluice_store *store)
{
	const struct sl_list *calls = &store->wire->calls;

	return sl_list_empty(calls) ? store->serial
	                            : SL_CONTAINER(calls->next, struct sl_call, link)->serial - 1;
}

int sl_call_begin_at(sluice_store *store, union sl_message *m, enum sl_message_type answer,
                     uint64_t turn, struct sl_call *call)
{
	int rc;

	*call = (struct sl_call){.m = m, .fds = {-1, -1}};
	pthread_mutex_lock(&store->mutex);
	rc = connected(store);
	if (!rc && turn && store->turn != turn)
		rc = sl_fail(-ECONNRESET, "the server was replaced");
	if (rc) {
		pthread_mutex_unlock(&store->mutex);
		return rc;
	}
	pthread_cond_init(&call->changed, NULL);
	call->wire = store->wire;
	call->wire->references++;
	call->turn = store->turn;
	m->head.settled = settled(store);
	m->head.serial = call->serial = next_serial(store);
	sl_list_append(&call->wire->calls, &call->link);
	pthread_mutex_unlock(&store->mutex);
	/* Not with the mutex: while the server does not read, somebody has to read what it sends. */
	rc = sl_socket_send(call->wire->fd, m, -1);
	sl_store_step("client: asked");
	pthread_mutex_lock(&store->mutex);
	call->sent = true;
	pthread_cond_broadcast(&store->sent);
	if (rc)
		break_wire(store, call->wire, -ECONNRESET);
	wait_for_answer(store, call);
	rc = call->rc;
	pthread_mutex_unlock(&store->mutex);
	sl_store_step("client: answered");
	if (rc)
		rc = sl_fail(rc, "the server was replaced");
	else if (m->head.type == SL_REFUSAL)
		rc = refused(m);
	else if (m->head.type != answer)
		rc = sl_fail(-EPROTO, "the store answers what was not asked");
	if (rc)
		sl_call_end(store, call);
	return rc;
}

void sl_call_end(sluice_store *store, struct sl_call *call)
{
	pthread_mutex_lock(&store->mutex);
	sl_list_remove(&call->link);
	unref(call->wire);
	pthread_mutex_unlock(&store->mutex);
	pthread_cond_destroy(&call->changed);
	sl_close_both(call->fds);
}

int sl_call_again(sluice_store *store, union sl_message *m, enum sl_message_type answer, int *fd,
                  bool *again)
{
	unsigned char *copy = malloc(m->head.bytes);
	size_t bytes = m->head.bytes;
	struct sl_call call;
	int rc;

	if (!copy)
		return sl_fail(-ENOMEM, "no memory");
	memcpy(copy, m, bytes);
	*again = false;
	while ((rc = sl_call_begin(store, m, answer, &call)) == -ECONNRESET) {
		*again = true;
		memcpy(m, copy, bytes);
	}
	free(copy);
	if (rc)
		return rc;
	if (fd) {
		*fd = call.fds[0];
		call.fds[0] = -1;
	}
	sl_call_end(store, &call);
	return fd && *fd < 0 ? sl_fail(-EMFILE, "no descriptor came: too many are open here") : 0;
}

int sl_call(sluice_store *store, union sl_message *m, enum sl_message_type answer, int *fd)
{
	bool again;

	return sl_call_again(store, m, answer, fd, &again);
}

/* Without a sentence, as those who do not want to know keep the one that they have. */
static int tell(sluice_store *store, union sl_message *m, uint64_t turn, int fd)
{
	struct sl_wire *wire;
	int rc;

	sl_store_step("client: tells");
	pthread_mutex_lock(&store->mutex);
	wire = store->turn == turn ? store->wire : NULL;
	if (!wire) {
		pthread_mutex_unlock(&store->mutex);
		return -ESTALE;
	}
	m->head.settled = settled(store);
	wire->references++;
	pthread_mutex_unlock(&store->mutex);
	rc = sl_socket_send(wire->fd, m, fd);
	pthread_mutex_lock(&store->mutex);
	unref(wire);
	pthread_mutex_unlock(&store->mutex);
	return rc ? -ESTALE : 0;
}

int sl_tell_fd(sluice_store *store, union sl_message *m, uint64_t turn, int fd)
{
	int rc = tell(store, m, turn, fd);

	return rc ? sl_fail(rc, "the server was replaced") : 0;
}

void sl_tell(sluice_store *store, union sl_message *m, uint64_t turn)
{
	tell(store, m, turn, -1);
}
