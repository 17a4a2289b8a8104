/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/http.h"

#define LEAST_LOOK_NS 50000000 /* a rate over less says nothing */
#define FIRST_ALLOWED 8
#define FASTER        1.04 /* what makes growth worth its while */
#define SLOWER        0.80

void sl_http_limit_init(struct sl_http_limit *limit, unsigned most)
{
	limit->most = most;
	atomic_init(&limit->arrived, 0);
	pthread_mutex_init(&limit->mutex, NULL);
	sl_list_init(&limit->locked.waiting);
	limit->locked.allowed = SL_MIN(most, FIRST_ALLOWED);
	limit->locked.since = sl_now();
}

void sl_http_limit_destroy(struct sl_http_limit *limit)
{
	pthread_mutex_destroy(&limit->mutex);
}

bool sl_http_limit_enter(struct sl_http_limit *limit, struct sl_http_request *request)
{
	bool enters;

	pthread_mutex_lock(&limit->mutex);
	enters = limit->locked.active < limit->locked.allowed;
	if (enters)
		limit->locked.active++;
	else if (request->piece)
		sl_list_append(&limit->locked.waiting, &request->link);
	else /* An open is short, and somebody waits for it: before the first. */
		sl_list_append(limit->locked.waiting.next, &request->link);
	if (limit->locked.active == limit->locked.allowed)
		limit->locked.full = true;
	pthread_mutex_unlock(&limit->mutex);
	return enters;
}

/* The mutex is held. */
static void forget_rate(struct sl_http_limit *limit, int64_t now)
{
	atomic_store(&limit->arrived, 0);
	limit->locked.since = now;
	limit->locked.ends = 0;
	limit->locked.full = false;
}

/*
 * Looks once each turn has ended about once, because what a change does shows then. Where the limit
 * was not reached, the rate says nothing about it. The mutex is held.
 */
static void look(struct sl_http_limit *limit, int64_t now)
{
	unsigned allowed = limit->locked.allowed;
	double rate;

	if (now - limit->locked.since < LEAST_LOOK_NS || limit->locked.ends < allowed)
		return;
	if (!limit->locked.full || sl_list_empty(&limit->locked.waiting)) {
		forget_rate(limit, now);
		limit->locked.rate = 0;
		return;
	}
	rate = (double)atomic_load(&limit->arrived) / (double)(now - limit->locked.since);
	if (rate > limit->locked.rate * FASTER) {
		limit->locked.grew = allowed < limit->most;
		limit->locked.allowed = SL_MIN(limit->most, allowed + SL_MAX(allowed / 4, 1));
	} else if (rate < limit->locked.rate * SLOWER && limit->locked.grew) {
		limit->locked.grew = false;
		limit->locked.allowed = SL_MAX(allowed - allowed / 4, 1);
	}
	limit->locked.rate = rate;
	forget_rate(limit, now);
}

void sl_http_limit_leave(struct sl_http_limit *limit, int64_t now, struct sl_list *out)
{
	struct sl_list *link;

	pthread_mutex_lock(&limit->mutex);
	limit->locked.active--;
	limit->locked.ends++;
	look(limit, now);
	while (limit->locked.active < limit->locked.allowed &&
	       (link = sl_list_take(&limit->locked.waiting))) {
		limit->locked.active++;
		sl_list_append(out, link);
	}
	if (limit->locked.active == limit->locked.allowed)
		limit->locked.full = true;
	pthread_mutex_unlock(&limit->mutex);
}

void sl_http_limit_overloaded(struct sl_http_limit *limit, int64_t now)
{
	pthread_mutex_lock(&limit->mutex);
	/* Of many refusals that come together one counts. */
	if (now - limit->locked.since >= LEAST_LOOK_NS || limit->locked.grew) {
		limit->locked.allowed = SL_MAX(limit->locked.allowed / 2, 1);
		limit->locked.grew = false;
		limit->locked.rate = 0;
		forget_rate(limit, now);
	}
	pthread_mutex_unlock(&limit->mutex);
}

void sl_http_limit_sweep(struct sl_http_limit *limit, struct sl_list *out)
{
	struct sl_list *link, *next;

	pthread_mutex_lock(&limit->mutex);
	for (link = limit->locked.waiting.next; link != &limit->locked.waiting; link = next) {
		struct sl_http_request *request = SL_CONTAINER(link, struct sl_http_request, link);

		next = link->next;
		if (sl_http_request_is_unwanted(request)) {
			sl_list_remove(link);
			sl_list_append(out, link);
		}
	}
	pthread_mutex_unlock(&limit->mutex);
}
