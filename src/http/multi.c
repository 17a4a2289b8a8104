/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The reactors of a kind
 *
 * Chooses the reactor of each request, and starts and stops reactors: as many threads work as there is work for.
 *
 * Threads: any that submits a request; a mutex is held while a reactor is started.
 */
#include <errno.h>
#include <stdlib.h>

#include "http/http_internal.h"

#define MOST_THREADS 64 /* of easy */
#define SHARE_BYTES \
	((uint64_t)2 << 20) /* the work of a reactor of `multi` before the next is chosen */
#define BUSY_ROUNDS 8       /* a reactor that has not slept for so many has no room */

struct sl_http_multi {
	struct sl_http_engine *engine;
	unsigned parts;         /* reactors that there may be */
	uint64_t share_bytes;   /* the work of a reactor before the next is chosen */
	struct sl_mutex mutex;  /* held while a reactor is started */
	_Atomic unsigned count; /* that there are; grows under mutex */
	struct sl_http_reactor reactors[];
};

/* Starts reactor number `count`, unless another thread has. Returns 0, or why it cannot. */
static int multi_grow(struct sl_http_multi *multi, unsigned count)
{
	int rc = 0;

	sl_mutex_lock(&multi->mutex);
	if (multi->count == count && !(rc = sl_http_reactor_start(&multi->reactors[count], count)))
		multi->count++;
	sl_mutex_unlock(&multi->mutex);
	return rc;
}

unsigned sl_http_multi_most(const struct sl_http_engine *engine, unsigned remote)
{
	return remote == SL_REMOTE_EASY ? SL_MIN(engine->limits.most, MOST_THREADS)
	                                : engine->limits.most;
}

int sl_http_multi_start(struct sl_http_engine *engine, unsigned remote, struct sl_http_multi **out)
{
	const struct sl_settings *settings = &engine->core->settings;
	unsigned connections = sl_http_multi_most(engine, remote);
	unsigned parts = remote == SL_REMOTE_EASY
	                         ? connections
	                         : SL_MIN(connections, (unsigned)settings->http_reactors);
	struct sl_http_multi *multi;
	int rc;

	multi = calloc(1, sizeof(*multi) + parts * sizeof(multi->reactors[0]));
	if (!multi)
		return sl_fail(-ENOMEM, "no memory for the reactors");
	multi->engine = engine;
	multi->parts = parts;
	multi->share_bytes = remote == SL_REMOTE_EASY ? 1 : SHARE_BYTES;
	/* Together they keep as many as there may be. */
	for (unsigned i = 0; i < parts; i++) {
		multi->reactors[i].engine = engine;
		multi->reactors[i].share = (int)(connections / parts + (i < connections % parts));
	}
	sl_mutex_init(&multi->mutex);
	rc = multi_grow(multi, 0);
	if (rc)
		sl_http_multi_free(multi);
	else
		*out = multi;
	return rc;
}

void sl_http_multi_stop(struct sl_http_multi *multi)
{
	if (!multi)
		return;
	for (unsigned i = 0; i < multi->count; i++)
		sl_queue_close(&multi->reactors[i].inbox);
	for (unsigned i = 0; i < multi->count; i++)
		pthread_join(multi->reactors[i].thread, NULL);
}

void sl_http_multi_free(struct sl_http_multi *multi)
{
	if (!multi)
		return;
	for (unsigned i = 0; i < multi->count; i++)
		sl_http_reactor_free(&multi->reactors[i]);
	sl_mutex_destroy(&multi->mutex);
	free(multi);
}

/* Returns whether the reactor takes another request before the next reactor does. */
static bool reactor_has_room(const struct sl_http_multi *multi,
                             const struct sl_http_reactor *reactor, uint64_t work)
{
	int load = atomic_load_explicit(&reactor->load, memory_order_relaxed);

	return !load || (load < reactor->share && work < multi->share_bytes &&
	                 atomic_load_explicit(&reactor->busy, memory_order_relaxed) < BUSY_ROUNDS);
}

/* Returns the first reactor that has room, which may have to be started, or else that with the least work. */
static struct sl_http_reactor *multi_choose_reactor(struct sl_http_multi *multi)
{
	struct sl_http_reactor *least = multi->reactors;
	uint64_t least_work = UINT64_MAX;

	for (unsigned i = 0; i < multi->parts; i++) {
		struct sl_http_reactor *reactor = &multi->reactors[i];
		uint64_t work;

		if (i == atomic_load(&multi->count) && multi_grow(multi, i))
			break;
		work = atomic_load_explicit(&reactor->work, memory_order_relaxed);
		if (reactor_has_room(multi, reactor, work))
			return reactor;
		if (work < least_work) {
			least = reactor;
			least_work = work;
		}
	}
	return least;
}

struct sl_http_reactor *sl_http_multi_submit(struct sl_http_multi *multi,
                                             struct sl_http_request *request)
{
	struct sl_http_reactor *reactor = multi_choose_reactor(multi);

	sl_http_reactor_push(reactor, request);
	return reactor;
}

void sl_http_multi_wake(struct sl_http_multi *multi)
{
	for (unsigned i = 0; i < multi->count; i++)
		sl_http_reactor_wake(&multi->reactors[i]);
}
