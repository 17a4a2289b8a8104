/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Messages between ranks. The transport's functions are called in turns. A thread looks for
 * messages again and again, because a transport cannot be waited for: at once after a message, and
 * then more and more rarely. A message to be sent wakes it.
 * Threads: the link's own, or the program's; any thread sends.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "ranks/ranks_internal.h"

/* Between two looks, at first and at most: while messages come, and later. */
#define LOOK_NS  ((int64_t)20000)
#define SOON_NS  ((int64_t)200000)
#define LATE_NS  ((int64_t)1000000)
#define QUIET_NS ((int64_t)10000000) /* since the last message */
/* For the last messages. */
#define LAST_NS ((int64_t)2000000000)

static void outgoing_free(struct sl_outgoing *out)
{
	free(out);
}

struct sl_outgoing *sl_link_message(const struct sl_rank_message *head, size_t n)
{
	struct sl_outgoing *out = malloc(sizeof(*out) + n);

	if (!out)
		return NULL;
	*out = (struct sl_outgoing){.bytes = &out->head, .n = sizeof(*head) + n};
	out->head = *head;
	out->done = outgoing_free;
	return out;
}

void sl_link_send(struct sl_link *link, int to, struct sl_outgoing *out)
{
	out->to = to;
	out->request = NULL;
	sl_mutex_lock(&link->mutex);
	sl_list_append(&link->locked.outbox, &out->link);
	pthread_cond_signal(&link->wake);
	sl_mutex_unlock(&link->mutex);
}

void sl_link_tell(struct sl_link *link, int to, const struct sl_rank_message *head,
                  const void *body, size_t n)
{
	struct sl_outgoing *out = sl_link_message(head, n);

	if (!out) {
		link->broken(link->argument, -1, -ENOMEM);
		return;
	}
	if (n)
		memcpy(&out->head + 1, body, n);
	sl_link_send(link, to, out);
}

static void link_fail(struct sl_link *link, int gone, int error)
{
	if (!link->failed)
		link->broken(link->argument, gone, error);
	link->failed = true;
}

/* Begins to send new messages, and ends those sent. */
static bool link_send_some(struct sl_link *link)
{
	struct sl_list fresh = SL_LIST_INIT(fresh);
	bool any = false;

	sl_mutex_lock(&link->mutex);
	sl_list_take_all(&link->locked.outbox, &fresh);
	sl_mutex_unlock(&link->mutex);
	sl_list_each_of (out, &fresh, struct sl_outgoing, link) {
		int rc = link->failed ? -EIO
		                      : link->t.send(link->t.handle, out->to, out->bytes, out->n,
		                                     &out->request);

		any = true;
		sl_list_remove(&out->link);
		if (rc) {
			link_fail(link, -1, rc);
			out->done(out);
		} else {
			sl_list_append(&link->sending, &out->link);
		}
	}
	sl_list_each_of (out, &link->sending, struct sl_outgoing, link) {
		int rc = link->failed ? 0 : link->t.sent(link->t.handle, out->request);

		if (rc < 0)
			link_fail(link, -1, rc);
		if (rc <= 0)
			continue;
		any = true;
		sl_list_remove(&out->link);
		out->done(out);
	}
	return any;
}

bool sl_link_pump(struct sl_link *link)
{
	struct sl_rank_message *message;
	bool any, empty = false;
	int rc = 0, from;
	size_t n;

	sl_mutex_lock(&link->turns);
	any = link_send_some(link);
	while (!link->failed &&
	       (rc = link->t.receive(link->t.handle, &from, (void **)&message, &n)) > 0) {
		any = true;
		if (n < sizeof(*message) || from < 0 || from >= link->t.ranks) {
			free(message);
			empty = !n;
			rc = empty ? -ESHUTDOWN : -EBADMSG;
			break;
		}
		message->from = from;
		message->n = n - sizeof(*message);
		link->take(link->argument, message);
	}
	if (rc < 0)
		link_fail(link, empty ? from : -1, rc);
	sl_mutex_unlock(&link->turns);
	return any;
}

static void *link_run(void *argument)
{
	struct sl_link *link = argument;
	int64_t sleep = LOOK_NS, last = sl_now();
	bool stopping = false;

	while (!stopping) {
		bool any = sl_link_pump(link);
		int64_t now = sl_now();

		last = any ? now : last;
		sleep = any ? LOOK_NS
		            : SL_MIN(2 * sleep, now - last < QUIET_NS ? SOON_NS : LATE_NS);
		sl_mutex_lock(&link->mutex);
		if (!any && sl_list_empty(&link->locked.outbox) && !link->locked.stopping)
			sl_cond_wait(&link->wake, &link->mutex, now + sleep);
		stopping = link->locked.stopping;
		sl_mutex_unlock(&link->mutex);
	}
	return NULL;
}

int sl_link_open(struct sl_link *link, const struct sluice_transport *t) SL_UNCHECKED
{
	link->t = *t;
	sl_list_init(&link->sending);
	sl_list_init(&link->locked.outbox);
	sl_mutex_init(&link->turns);
	sl_mutex_init(&link->mutex);
	pthread_cond_init(&link->wake, NULL);
	return t->thread ? sl_thread_start(&link->thread, "sluice-ranks", link_run, link) : 0;
}

/* Messages left with a transport, which may still read them. */
static struct {
	struct sl_mutex mutex;
	struct sl_list list; /* guarded by mutex */
} abandoned = {SL_MUTEX_INIT, {&abandoned.list, &abandoned.list}};

static void link_abandon(struct sl_link *link)
{
	sl_mutex_lock(&link->mutex);
	sl_list_each_of (out, &link->locked.outbox, struct sl_outgoing, link)
		outgoing_free(out);
	sl_mutex_unlock(&link->mutex);
	sl_mutex_lock(&abandoned.mutex);
	sl_list_take_all(&link->sending, &abandoned.list);
	sl_mutex_unlock(&abandoned.mutex);
}

bool sl_link_close(struct sl_link *link, bool clean)
{
	const struct timespec pause = {0, SOON_NS};
	int64_t until = sl_now() + LAST_NS;
	bool empty;

	sl_mutex_lock(&link->mutex);
	link->locked.stopping = true;
	pthread_cond_signal(&link->wake);
	sl_mutex_unlock(&link->mutex);
	if (link->t.thread)
		pthread_join(link->thread, NULL);
	do {
		if (!sl_link_pump(link))
			nanosleep(&pause, NULL);
		empty = sl_list_empty(&link->sending);
	} while (!empty && !link->failed && sl_now() < until);
	if (link->t.close)
		link->t.close(link->t.handle, clean && empty);
	link_abandon(link);
	pthread_cond_destroy(&link->wake);
	sl_mutex_destroy(&link->mutex);
	sl_mutex_destroy(&link->turns);
	return empty;
}
