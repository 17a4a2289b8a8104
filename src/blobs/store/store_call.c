/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls over the connection
 *
 * Sends requests and delivers replies. Of the threads that wait for a reply a single thread reads:
 * it hands the others their replies and, when it has its own, wakes the next reader. The client
 * thread of a store with devices reads as well, but only when no other thread does.
 */
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

#include "store/conn.h"

#define REFUSED_PAUSE_NS 5000000

/* Ends a call. Caller holds store->mutex. */
static void call_finish_locked(struct sl_pending_call *call, int rc)
{
	call->done = true;
	call->rc = rc;
	pthread_cond_signal(&call->changed);
}

/* Breaks a connection: its calls without a reply end with the error. */
static void conn_break_locked(sluice_store *store, struct sl_conn *conn, int error)
	SL_REQUIRES(&store->mutex)
{
	if (conn->broken)
		return;
	conn->broken = true;
	shutdown(conn->fd, SHUT_RDWR);
	sl_list_each_of (call, &conn->calls, struct sl_pending_call, link)
		if (!call->done)
			call_finish_locked(call, error);
	if (store->conn == conn) {
		store->conn = NULL;
		sl_conn_unref_locked(conn);
	}
}

/* Returns the kernel's tick, which lasts some milliseconds and is cheaper to read than the time. */
static int64_t call_tick(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC_COARSE, &t);
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/*
 * Returns whether the server has closed the connection. If it had not read all that we sent, an
 * error comes before the end of the stream.
 */
static bool conn_has_hung_up(int fd)
{
	char byte;
	ssize_t n = recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);

	return !n || (n < 0 && errno != EAGAIN && errno != EINTR);
}

bool sl_conn_alive(sluice_store *store)
{
	sl_mutex_lock(&store->mutex);
	/* A server that has replied in this tick is taken to be alive. */
	if (store->conn && store->heard_at != call_tick() && conn_has_hung_up(store->conn->fd))
		conn_break_locked(store, store->conn, -ECONNRESET);
	bool alive = store->conn;
	sl_mutex_unlock(&store->mutex);
	return alive;
}

/* ------------------------------------------------------------------------------------ reading */

static struct sl_pending_call *call_find_locked(struct sl_conn *conn, uint32_t serial)
{
	sl_list_each_of (call, &conn->calls, struct sl_pending_call, link)
		if (call->serial == serial && !call->done)
			return call;
	return NULL;
}

static uint32_t call_next_serial_locked(sluice_store *store) SL_REQUIRES(&store->mutex)
{
	do
		store->serial++;
	while (!store->serial || store->serial == SL_SERIAL_ANY);
	return store->serial;
}

/* Returns the serial number before the oldest call under way, up to which no hold is needed. */
static uint32_t call_settled_locked(const sluice_store *store, const struct sl_conn *conn)
	SL_REQUIRES(&store->mutex)
{
	const struct sl_list *calls = &conn->calls;

	return sl_list_empty(calls)
	               ? store->serial
	               : SL_CONTAINER(calls->next, struct sl_pending_call, link)->serial - 1;
}

/* Delivers the message in conn->in to the mappings, and a reply to its call. */
static void call_hand_over_locked(sluice_store *store, struct sl_conn *conn, int fds[2])
	SL_REQUIRES(&store->mutex)
{
	const union sl_message *m = &conn->in;
	struct sl_pending_call *call = NULL;

	/* Regions in a message of an earlier server mean nothing to a new server. */
	if (store->conn == conn)
		store->events->heard(store, m);
	/*
	 * The reply may arrive before the thread that sends the request has returned from the
	 * kernel, which still reads the same memory. That thread ends this wait.
	 */
	while (m->head.type != SL_MSG_FORGET && (call = call_find_locked(conn, m->head.serial)) &&
	       !call->sent)
		sl_cond_wait(&store->sent, &store->mutex, SL_FOREVER);
	/* The call has timed out, and its reply is late. */
	if (!call) {
		sl_close_both(fds);
		return;
	}
	memcpy(call->m, m, m->head.bytes);
	memcpy(call->fds, fds, sizeof(call->fds));
	store->heard_at = call_tick();
	call_finish_locked(call, 0);
}

/* Reads a message, for any call, before the deadline. Releases the mutex meanwhile. */
static void call_read_locked(sluice_store *store, struct sl_conn *conn, int64_t deadline)
	SL_REQUIRES(&store->mutex)
{
	int fds[2], flags = deadline == SL_FOREVER ? 0 : MSG_DONTWAIT;
	ssize_t n = -EAGAIN;

	conn->reading = true;
	sl_mutex_unlock(&store->mutex);
	if (!flags || sl_socket_wait(conn->fd, POLLIN, deadline))
		n = sl_socket_receive(conn->fd, &conn->in, fds, flags);
	bool refused = n > 0 && conn->in.head.serial == SL_SERIAL_ANY;
	/*
	 * A message that this server refuses is sent again, to it too, as often as it refuses it.
	 * The pause is without the mutex; threads that wait for a reply meanwhile would get none.
	 */
	if (refused)
		nanosleep(&(struct timespec){0, REFUSED_PAUSE_NS}, NULL);
	sl_mutex_lock(&store->mutex);
	if (n > 0 && !refused) {
		conn->heard++;
		call_hand_over_locked(store, conn, fds);
	} else if (n != -EAGAIN) {
		sl_close_both(fds);
		conn_break_locked(store, conn, -ECONNRESET);
	}
	conn->reading = false;
}

/* Wakes a thread that waits for a reply, to read: no thread reads now. */
static void call_pass_reading_on_locked(struct sl_conn *conn)
{
	/* A thread that sends may be blocked until another reads; it reads later. */
	sl_list_each_of (next, &conn->calls, struct sl_pending_call, link)
		if (!next->done && next->sent) {
			pthread_cond_signal(&next->changed);
			break;
		}
}

/* Asks for a reply that no call takes: any message shows a live server. Releases the mutex. */
static void call_probe_locked(sluice_store *store, const struct sl_pending_call *call)
	SL_REQUIRES(&store->mutex)
{
	union sl_message m;

	sl_message_begin(&m, SL_MSG_STATS, call_next_serial_locked(store), 0);
	m.head.settled = call_settled_locked(store, call->conn);
	sl_mutex_unlock(&store->mutex);
	sl_socket_send(call->conn->fd, &m, -1, 0);
	sl_mutex_lock(&store->mutex);
}

/*
 * Waits for the reply. The server itself applies the timeout of a get, and may then wait for the
 * disk. So the call times out only if no message comes for SL_GRACE_NS after the deadline, and then
 * none for as long after a probe. Releases the mutex meanwhile.
 */
static void call_wait_locked(sluice_store *store, struct sl_pending_call *call, int64_t deadline)
	SL_REQUIRES(&store->mutex)
{
	struct sl_conn *conn = call->conn;
	uint64_t heard = UINT64_MAX;
	int64_t until = deadline == SL_FOREVER ? SL_FOREVER : deadline + SL_GRACE_NS;

	/* Ended by the reading thread, with the reply or with the end of the connection. */
	while (!call->done) {
		if (until == SL_FOREVER || sl_now() < until) {
			if (conn->reading)
				sl_cond_wait(&call->changed, &store->mutex, until);
			else
				call_read_locked(store, conn, until);
		} else if (conn->heard == heard) {
			call_finish_locked(call, -ETIMEDOUT);
		} else {
			heard = conn->heard;
			until = sl_now() + SL_GRACE_NS;
			call_probe_locked(store, call);
		}
	}
	if (!conn->reading)
		call_pass_reading_on_locked(conn);
}

bool sl_conn_try_read(sluice_store *store, struct sl_conn *conn, bool polite)
{
	sl_mutex_lock(&store->mutex);
	bool reads = !conn->reading && (!polite || sl_list_empty(&conn->calls)) && !conn->broken;
	if (reads) {
		call_read_locked(store, conn, 0);
		call_pass_reading_on_locked(conn);
	}
	reads = reads || conn->broken;
	sl_mutex_unlock(&store->mutex);
	return reads;
}

/* -------------------------------------------------------------------------------------- calls */

int sl_call_begin(sluice_store *store, union sl_message *m, enum sl_message_type answer,
                  uint64_t epoch, int64_t deadline, struct sl_pending_call *call)
{
	bool any = epoch == sl_epoch_of_daemon(epoch), limited = deadline != SL_FOREVER;

	*call = (struct sl_pending_call){.m = m, .fds = {-1, -1}};
	sl_mutex_lock(&store->mutex);
	int rc = sl_conn_get_locked(store, limited);
	/* A server that has come late has the whole time to answer. */
	if (limited)
		deadline = SL_MAX(deadline, sl_now());
	if (!rc && any && epoch && !sl_same_daemon(epoch, store->epoch))
		rc = sl_fail(-ENOENT, "the daemon has ended, and its blobs are gone");
	else if (!rc && !any && store->epoch != epoch)
		rc = sl_fail(-ECONNRESET, "the server was replaced");
	if (rc) {
		sl_mutex_unlock(&store->mutex);
		return rc;
	}
	pthread_cond_init(&call->changed, NULL);
	call->conn = store->conn;
	call->conn->references++;
	call->epoch = store->epoch;
	m->head.settled = call_settled_locked(store, call->conn);
	m->head.serial = call->serial = call_next_serial_locked(store);
	sl_list_append(&call->conn->calls, &call->link);
	sl_mutex_unlock(&store->mutex);
	/* Without the mutex: while the server does not read, another thread must. */
	rc = sl_socket_send(call->conn->fd, m, -1,
	                    limited ? deadline + 2 * SL_GRACE_NS : SL_FOREVER);
	sl_store_step("client: asked");
	sl_mutex_lock(&store->mutex);
	call->sent = true;
	pthread_cond_broadcast(&store->sent);
	if (rc == -EAGAIN)
		call_finish_locked(call, -ETIMEDOUT);
	else if (rc)
		conn_break_locked(store, call->conn, -ECONNRESET);
	call_wait_locked(store, call, deadline);
	rc = call->rc;
	sl_mutex_unlock(&store->mutex);
	sl_store_step("client: answered");
	if (rc)
		rc = rc == -ETIMEDOUT ? sl_call_late() : sl_fail(rc, "the server was replaced");
	else if (m->head.type == SL_MSG_REFUSAL)
		rc = sl_fail(m->head.error, "%s", m->refusal.text);
	else if (m->head.type != answer)
		rc = sl_fail(-EPROTO, "the store answers what was not asked");
	if (rc)
		sl_call_end(store, call);
	return rc;
}

void sl_call_end(sluice_store *store, struct sl_pending_call *call)
{
	sl_mutex_lock(&store->mutex);
	sl_list_remove(&call->link);
	sl_conn_unref_locked(call->conn);
	sl_mutex_unlock(&store->mutex);
	pthread_cond_destroy(&call->changed);
	sl_close_both(call->fds);
}

int sl_call(sluice_store *store, union sl_message *m, enum sl_message_type answer, int64_t deadline,
            struct sl_reply *reply)
{
	struct sl_pending_call call;
	int rc;

	do
		rc = sl_call_begin(store, m, answer, 0, deadline, &call);
	while (rc == -ECONNRESET);
	if (reply)
		*reply = (struct sl_reply){call.epoch, call.fds[0]};
	if (rc)
		return rc;
	if (reply)
		call.fds[0] = -1;
	sl_call_end(store, &call);
	return answer == SL_MSG_MEMORY && reply->fd < 0
	               ? sl_fail(-EMFILE, "no descriptor came: too many are open here")
	               : 0;
}

int sl_tell(sluice_store *store, union sl_message *m, uint64_t epoch, int fd)
{
	sl_store_step("client: tells");
	sl_mutex_lock(&store->mutex);
	struct sl_conn *conn = !epoch || store->epoch == epoch ? store->conn : NULL;
	if (!conn) {
		sl_mutex_unlock(&store->mutex);
		return -ESTALE;
	}
	m->head.settled = call_settled_locked(store, conn);
	conn->references++;
	sl_mutex_unlock(&store->mutex);
	int rc = sl_socket_send(conn->fd, m, fd, SL_FOREVER);
	sl_conn_release(store, conn);
	return rc ? -ESTALE : 0;
}

void sl_tell_id(sluice_store *store, enum sl_message_type type, uint64_t id, uint64_t epoch)
{
	union sl_message m;

	sl_message_begin(&m, type, 0, 1);
	m.ids.items[0].id = id;
	sl_tell(store, &m, epoch, -1);
}
