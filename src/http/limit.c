/* SPDX-License-Identifier: Apache-2.0 */
#include "http/http_internal.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define LEAST_LOOK_NS 50000000 /* a rate over less says nothing */
#define FIRST_ALLOWED 8
#define FASTER        1.04 /* what makes growth worth its while */
#define SLOWER        0.80
#define PAUSE         8 /* looks until more is tried again */
#define MOST_UNUSED   16

void sl_http_limits_init(struct sl_http_limits *limits, unsigned most)
{
	limits->most = most;
	limits->reserved = (most + 3) / 4;
	sl_mutex_init(&limits->mutex);
	sl_list_init(&limits->locked.origins);
	limits->locked.active = 0;
}

static struct sl_http_limit *of_link(struct sl_list *link)
{
	return SL_CONTAINER(link, struct sl_http_limit, locked.link);
}

void sl_http_limits_destroy(struct sl_http_limits *limits)
{
	struct sl_list *link;

	while ((link = sl_list_take(&limits->locked.origins)))
		free(of_link(link));
	sl_mutex_destroy(&limits->mutex);
}

struct sl_http_limit *sl_http_limit_acquire(struct sl_http_limits *limits, const char *origin)
{
	struct sl_http_limit *limit = NULL;

	sl_mutex_lock(&limits->mutex);
	sl_list_each (link, &limits->locked.origins)
		if (!strcasecmp(of_link(link)->origin, origin))
			limit = of_link(link);
	if (!limit && (limit = calloc(1, sizeof(*limit) + strlen(origin) + 1))) {
		strcpy(limit->origin, origin);
		limit->limits = limits;
		sl_list_init(&limit->locked.waiting);
		limit->locked.allowed = SL_MIN(limits->most, FIRST_ALLOWED);
		limit->locked.since = sl_now();
		sl_list_append(&limits->locked.origins, &limit->locked.link);
	}
	if (limit)
		limit->locked.files++;
	sl_mutex_unlock(&limits->mutex);
	return limit;
}

/* What was learned of an origin is kept for its next file, unless there are many without one. */
void sl_http_limit_release(struct sl_http_limit *limit)
{
	struct sl_http_limits *limits = limit->limits;
	struct sl_http_limit *oldest = NULL;
	unsigned unused = 0;

	sl_mutex_lock(&limits->mutex);
	limit->locked.files--;
	sl_list_remove(&limit->locked.link);
	sl_list_append(&limits->locked.origins, &limit->locked.link);
	sl_list_each (link, &limits->locked.origins)
		if (!of_link(link)->locked.files && !unused++)
			oldest = of_link(link);
	if (unused > MOST_UNUSED) {
		sl_list_remove(&oldest->locked.link);
		free(oldest);
	}
	sl_mutex_unlock(&limits->mutex);
}

/* Whether one more transfer to the origin may begin. The mutex is held. */
static bool has_room(const struct sl_http_limit *limit)
{
	const struct sl_http_limits *limits = limit->limits;

	return limit->locked.active < limit->locked.allowed &&
	       (limits->locked.active < limits->most || limit->locked.active < limits->reserved);
}

/* The mutex is held. */
static void begin(struct sl_http_limit *limit)
{
	limit->locked.active++;
	limit->limits->locked.active++;
}

bool sl_http_limit_enter(struct sl_http_limit *limit, struct sl_http_request *request)
{
	bool enters;

	sl_mutex_lock(&limit->limits->mutex);
	/* One that was cancelled on its way here would be found by no sweep. */
	enters = has_room(limit) || sl_http_request_is_unwanted(request);
	if (enters)
		begin(limit);
	else if (request->piece)
		sl_list_append(&limit->locked.waiting, &request->link);
	else /* An open is short, and somebody waits for it: before the first. */
		sl_list_append(limit->locked.waiting.next, &request->link);
	sl_mutex_unlock(&limit->limits->mutex);
	return enters;
}

/* The mutex is held. */
static void forget_rate(struct sl_http_limit *limit, int64_t now)
{
	atomic_store(&limit->arrived, 0);
	limit->locked.since = now;
	limit->locked.ends = 0;
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
	if (limit->locked.active + 1 < allowed || sl_list_empty(&limit->locked.waiting)) {
		forget_rate(limit, now);
		limit->locked.rate = 0;
		return;
	}
	rate = (double)atomic_load(&limit->arrived) / (double)(now - limit->locked.since);
	if (limit->locked.grown_from && rate < limit->locked.rate * FASTER) {
		/* More did not help. */
		limit->locked.allowed = limit->locked.grown_from;
		limit->locked.grown_from = 0;
		limit->locked.pause = PAUSE;
	} else if (limit->locked.pause) {
		limit->locked.pause--;
	} else if (rate < limit->locked.rate * SLOWER) {
		limit->locked.allowed = SL_MAX(allowed - allowed / 4, 1);
		limit->locked.pause = PAUSE;
	} else {
		limit->locked.allowed =
			SL_MIN(limit->limits->most, allowed + SL_MAX(allowed / 4, 1));
		limit->locked.grown_from = limit->locked.allowed > allowed ? allowed : 0;
	}
	limit->locked.rate = rate;
	forget_rate(limit, now);
}

/* Of the origins that have room and something for it the one with the fewest turns. The mutex is held. */
static struct sl_http_limit *next_origin(struct sl_http_limits *limits)
{
	struct sl_http_limit *next = NULL;

	sl_list_each (link, &limits->locked.origins) {
		struct sl_http_limit *limit = of_link(link);

		if (!sl_list_empty(&limit->locked.waiting) && has_room(limit) &&
		    (!next || limit->locked.active < next->locked.active))
			next = limit;
	}
	return next;
}

void sl_http_limit_leave(struct sl_http_limit *limit, int64_t now, struct sl_list *out)
{
	struct sl_http_limits *limits = limit->limits;
	struct sl_http_limit *next;

	sl_mutex_lock(&limits->mutex);
	limit->locked.active--;
	limits->locked.active--;
	limit->locked.ends++;
	look(limit, now);
	while ((next = next_origin(limits))) {
		begin(next);
		sl_list_append(out, sl_list_take(&next->locked.waiting));
	}
	sl_mutex_unlock(&limits->mutex);
}

void sl_http_limit_overloaded(struct sl_http_limit *limit, int64_t now)
{
	sl_mutex_lock(&limit->limits->mutex);
	/* Of many refusals that come together one counts. */
	if (now - limit->locked.halved >= LEAST_LOOK_NS) {
		limit->locked.allowed = SL_MAX(limit->locked.allowed / 2, 1);
		limit->locked.grown_from = 0;
		limit->locked.pause = PAUSE;
		limit->locked.rate = 0;
		limit->locked.halved = now;
		forget_rate(limit, now);
	}
	sl_mutex_unlock(&limit->limits->mutex);
}

void sl_http_limits_sweep(struct sl_http_limits *limits, struct sl_list *out)
{
	sl_mutex_lock(&limits->mutex);
	sl_list_each (origin, &limits->locked.origins) {
		struct sl_http_limit *limit = of_link(origin);
		struct sl_list *link, *next;

		for (link = limit->locked.waiting.next; link != &limit->locked.waiting;
		     link = next) {
			next = link->next;
			if (!sl_http_request_is_unwanted(
				    SL_CONTAINER(link, struct sl_http_request, link)))
				continue;
			begin(limit);
			sl_list_remove(link);
			sl_list_append(out, link);
		}
	}
	sl_mutex_unlock(&limits->mutex);
}
