/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Limits of transfers
 *
 * Permits bound an origin's transfers. Their number follows the goodput: it aims at bandwidth times
 * delay, more than a single connection to a far or slow server carries. The length of a part
 * follows them: a connection's pause between two parts, a round trip, is to be small beside their
 * time. The pace of an origin is how long its parts take.
 *
 * Threads: any; the limits share a mutex, and a pace has its own. No function waits.
 */
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "http/http_internal.h"

#define LEAST_LOOK_NS 50000000 /* a rate over a shorter time means nothing */
#define FIRST_ALLOWED 16
#define SOON_ALLOWED  64
#define SHORT_PIECE   ((size_t)64 << 10) /* takes less time than a round trip */
#define FOLLOWS       1.5                /* the gain by a doubling that leads to the next */
#define DOUBLED       1.25               /* the gain to justify twice as many permits */
#define FASTER        1.04               /* the gain to justify more permits */
#define AS_FAST       0.98               /* the rate to justify fewer permits */
#define PAUSE         8                  /* windows between trials */
#define MOST_PAUSE    6                  /* doublings of that, after failed trials */
#define ROUND_TRIPS   32                 /* a part takes so many, if it may be so long */
#define LEAST_PART    ((size_t)256 << 10)
#define USUAL_PART    ((size_t)1 << 20)
#define LONG_PART     ((size_t)4 << 20)  /* `largest` at least */
#define WHOLE_PART    ((size_t)16 << 20) /* of an operation that is one part */
#define LARGEST_PART  ((size_t)64 << 20)
#define MANY_BYTES    ((uint64_t)128 << 20) /* of a file in flight, for long parts */
#define FORGETS       1024                  /* cuts until most of `ahead` is forgotten */
#define FIRST_TRIP    ((size_t)16 << 10)    /* before a rate is known */
#define PART_UNIT     ((size_t)64 << 10)
#define MOST_UNUSED   16
#define ENOUGH        0.15 /* bytes per ns for each of the cores, of which 8 count */
#define MOST_CORES    8

/* ------------------------------------------------------------------------------------- pace */

#define LEAST_PARTS 30   /* until then no part is known to be slow */
#define FEW_PARTS   8    /* until then none has a rate */
#define MOST_PARTS  1000 /* from then on older parts count half */
#define STEP        1.25
#define USUAL       0.95     /* the share of parts that are not slow */
#define MARGIN      2        /* times the slowest usual part */
#define LEAST_SLOW  30000000 /* ns more than expected */
#define SHARE       0.05     /* hedges to requests */
#define MOST_CREDIT 16
#define AVERAGE     16 /* parts in a moving average */

/* No other thread has it yet. */
void sl_http_pace_init(struct sl_http_pace *pace) SL_UNCHECKED
{
	memset(pace, 0, sizeof(*pace));
	pace->credit = 1; /* the first request of all may stand still */
	sl_mutex_init(&pace->mutex);
}

void sl_http_pace_destroy(struct sl_http_pace *pace)
{
	sl_mutex_destroy(&pace->mutex);
}

static double pace_expected(const struct sl_http_pace *pace, uint64_t bytes)
{
	return pace->first + pace->each * (double)bytes;
}

static void pace_average(double *average, double value, unsigned count)
{
	*average += (value - *average) / SL_MIN(count + 1, AVERAGE);
}

void sl_http_pace_add(struct sl_http_pace *pace, uint64_t bytes, int64_t first, int64_t all)
{
	double limit = 1, each = bytes ? (double)(all - first) / (double)bytes : 0;
	unsigned bucket = 0;

	sl_mutex_lock(&pace->mutex);
	if (pace->count)
		for (limit *= pace_expected(pace, bytes);
		     bucket < SL_PACE_BUCKETS - 1 && (double)all > limit; bucket++)
			limit *= STEP;
	/* A slow part would make the next seem usual. */
	if (bucket < SL_PACE_BUCKETS / 2) {
		pace_average(&pace->first, (double)first, pace->count);
		pace_average(&pace->each, each, pace->count);
	}
	pace->parts[bucket]++;
	pace->count++;
	if (pace->count > MOST_PARTS) {
		pace->count = 0;
		for (unsigned i = 0; i < SL_PACE_BUCKETS; i++)
			pace->count += pace->parts[i] /= 2;
	}
	pace->credit = SL_MIN(pace->credit + SHARE, MOST_CREDIT);
	sl_mutex_unlock(&pace->mutex);
}

int64_t sl_http_pace_slow(struct sl_http_pace *pace, uint64_t bytes)
{
	double expected, limit = 1;
	int64_t slow = SL_FOREVER;
	unsigned usual;

	sl_mutex_lock(&pace->mutex);
	if (pace->count >= LEAST_PARTS) {
		usual = pace->parts[0];
		for (unsigned i = 1; i < SL_PACE_BUCKETS && usual < USUAL * pace->count; i++) {
			usual += pace->parts[i];
			limit *= STEP;
		}
		expected = pace_expected(pace, bytes);
		slow = (int64_t)SL_MAX(MARGIN * limit * expected, expected + LEAST_SLOW);
	}
	sl_mutex_unlock(&pace->mutex);
	return slow;
}

double sl_http_pace_rate(struct sl_http_pace *pace, uint64_t bytes, uint64_t each)
{
	double rate = 0;

	sl_mutex_lock(&pace->mutex);
	if (pace->count >= FEW_PARTS)
		rate = (double)bytes / pace_expected(pace, each);
	sl_mutex_unlock(&pace->mutex);
	return rate;
}

int64_t sl_http_pace_due(struct sl_http_pace *pace, uint64_t bytes)
{
	int64_t slow = sl_http_pace_slow(pace, bytes);

	return slow == SL_FOREVER ? SL_PACE_LOOK_NS : slow;
}

bool sl_http_pace_take_credit(struct sl_http_pace *pace)
{
	bool may;

	sl_mutex_lock(&pace->mutex);
	may = pace->credit >= 1;
	pace->credit -= may;
	sl_mutex_unlock(&pace->mutex);
	return may;
}

/* ------------------------------------------------------------------------------------- limit */

/* No other thread has the limits yet. */
void sl_http_limits_init(struct sl_http_limits *limits, unsigned most) SL_UNCHECKED
{
	limits->most = most;
	limits->reserved = (most + 3) / 4;
	limits->enough = ENOUGH * SL_MIN(sl_cores(), MOST_CORES);
	sl_mutex_init(&limits->mutex);
	sl_list_init(&limits->locked.origins);
	limits->locked.active = 0;
}

static void limit_free(struct sl_http_limit *limit)
{
	sl_http_pace_destroy(&limit->pace);
	free(limit);
}

/* No other thread has the limits any more. */
void sl_http_limits_destroy(struct sl_http_limits *limits) SL_UNCHECKED
{
	sl_list_each_of (limit, &limits->locked.origins, struct sl_http_limit, locked.link)
		limit_free(limit);
	sl_mutex_destroy(&limits->mutex);
}

/* An origin without files keeps its limit for the next file, unless there are many such origins. */
void sl_http_limit_release(struct sl_http_limit *limit)
{
	struct sl_http_limits *limits = limit->limits;
	struct sl_http_limit *oldest = NULL;
	unsigned unused = 0;

	sl_mutex_lock(&limits->mutex);
	limit->locked.files--;
	sl_list_move(&limit->locked.link, &limits->locked.origins);
	sl_list_each_of (other, &limits->locked.origins, struct sl_http_limit, locked.link)
		if (!other->locked.files && !unused++)
			oldest = other;
	if (unused > MOST_UNUSED) {
		sl_list_remove(&oldest->locked.link);
		limit_free(oldest);
	}
	sl_mutex_unlock(&limits->mutex);
}

/* Returns whether the origin may have another permit. */
static bool limit_has_room_locked(const struct sl_http_limits *limits,
                                  const struct sl_http_limit *limit) SL_REQUIRES(&limits->mutex)
{
	return limit->locked.active < atomic_load(&limit->allowed) &&
	       (limits->locked.active < limits->most || limit->locked.active < limits->reserved);
}

static void limit_begin_locked(struct sl_http_limits *limits, struct sl_http_limit *limit)
	SL_REQUIRES(&limits->mutex)
{
	limit->locked.active++;
	limits->locked.active++;
}

/* Begins a window: at once, or when new transfers have come to their speed. */
static void limit_begin_window(struct sl_http_limit *limit, int64_t now, bool settling)
{
	int64_t rtt = atomic_load_explicit(&limit->rtt, memory_order_relaxed);

	limit->locked.settling = settling;
	limit->locked.since = now;
	atomic_store_explicit(&limit->arrived, 0, memory_order_relaxed);
	/* A new transfer connects, and asks: two round trips. */
	atomic_store_explicit(&limit->look,
	                      now + (settling ? 2 * rtt : SL_MAX(LEAST_LOOK_NS, 2 * rtt)),
	                      memory_order_relaxed);
}

static void limit_allow(struct sl_http_limit *limit, unsigned allowed, int64_t now)
{
	atomic_store(&limit->allowed, SL_MAX(SL_MIN(allowed, limit->most), 1));
	limit_begin_window(limit, now, true);
}

/* Counts the start anew, with more transfers: a window with fewer tells nothing about them. */
static void limit_widen(struct sl_http_limit *limit, unsigned allowed, int64_t now)
{
	limit->locked.tried_from = 0;
	limit->locked.rate = 0;
	limit_allow(limit, allowed, now);
}

/* While the start goes on, short pieces that a thread waits for get a permit each, up to
 * SOON_ALLOWED: to come to that number by answers would take them round trips. */
static void limit_start_short(struct sl_http_limit *limit, const struct sl_http_request *request)
{
	unsigned allowed = atomic_load(&limit->allowed);
	const struct sl_piece *piece = request->kind->piece ? sl_http_get_of(request)->piece : NULL;

	if (piece && piece->urgent && piece->length <= SHORT_PIECE && limit->locked.starting &&
	    limit->locked.active == allowed && allowed < SL_MIN(limit->most, SOON_ALLOWED))
		limit_widen(limit, allowed + 1, sl_now());
}

bool sl_http_limit_enter(struct sl_http_limit *limit, struct sl_http_request *request)
{
	struct sl_http_limits *limits = limit->limits;
	bool enters;

	sl_mutex_lock(&limits->mutex);
	limit_start_short(limit, request);
	/* sl_http_limits_admit_cancelled() may have run before, and found no request to end. */
	enters = limit_has_room_locked(limits, limit) || sl_http_request_is_unwanted(request);
	if (enters)
		limit_begin_locked(limits, limit);
	else
		sl_list_append(request->kind->urgent ? limit->locked.waiting.next
		                                     : &limit->locked.waiting,
		               &request->link);
	atomic_store_explicit(&limit->waits, !sl_list_empty(&limit->locked.waiting),
	                      memory_order_relaxed);
	sl_mutex_unlock(&limits->mutex);
	return enters;
}

struct sl_http_limit *sl_http_limit_acquire(struct sl_http_limits *limits, const char *origin,
                                            unsigned most, uint64_t bytes)
{
	struct sl_http_limit *limit = NULL;
	unsigned each;

	sl_mutex_lock(&limits->mutex);
	sl_list_each_of (known, &limits->locked.origins, struct sl_http_limit, locked.link)
		if (!strcasecmp(known->origin, origin) && known->most == most)
			limit = known;
	if (!limit && (limit = calloc(1, sizeof(*limit) + strlen(origin) + 1))) {
		strcpy(limit->origin, origin);
		limit->limits = limits;
		sl_list_init(&limit->locked.waiting);
		limit->most = most;
		sl_http_pace_init(&limit->pace);
		atomic_init(&limit->allowed, SL_MIN(most, FIRST_ALLOWED));
		atomic_init(&limit->largest, LONG_PART);
		atomic_init(&limit->trip, FIRST_TRIP);
		limit->locked.starting = true;
		sl_list_append(&limits->locked.origins, &limit->locked.link);
	}
	each = limit ? SL_MIN(++limit->locked.files, SL_MIN(most, SOON_ALLOWED)) : 0;
	if (bytes && bytes <= LONG_PART && limit && limit->locked.starting &&
	    each > atomic_load(&limit->allowed))
		limit_widen(limit, each, sl_now());
	sl_mutex_unlock(&limits->mutex);
	return limit;
}

static void limit_settle(struct sl_http_limit *limit, bool gained)
{
	limit->locked.starting = false;
	limit->locked.lost = gained ? 0 : SL_MIN(limit->locked.lost + 1, MOST_PAUSE);
	limit->locked.pause = PAUSE << limit->locked.lost;
}

/* A trial has shown a rate: keeps its number, or goes back. */
static void limit_judge(struct sl_http_limit *limit, double rate, int64_t now)
{
	unsigned from = limit->locked.tried_from;
	bool grown = from < atomic_load(&limit->allowed);
	double gain = rate / limit->locked.rate;
	bool keep = gain >= (limit->locked.starting ? DOUBLED : grown ? FASTER : AS_FAST);

	limit->locked.tried_from = 0;
	if (keep)
		limit->locked.rate = rate;
	if (!limit->locked.starting || gain < FOLLOWS)
		limit_settle(limit, keep);
	if (!keep)
		limit_allow(limit, from, now);
}

/* Begins a trial if it is time, and returns whether it did. */
static bool limit_try(struct sl_http_limit *limit, int64_t now)
{
	unsigned allowed = atomic_load(&limit->allowed), next;

	if (limit->locked.starting)
		next = SL_MIN(2 * allowed, limit->most);
	else if (limit->locked.pause && --limit->locked.pause)
		return false;
	else if (limit->locked.shrinks)
		next = allowed - (allowed + 4) / 5;
	else
		next = SL_MIN(allowed + (allowed + 3) / 4, limit->most);
	limit->locked.shrinks = !limit->locked.starting && !limit->locked.shrinks;
	if (!next || next == allowed) {
		limit_settle(limit, true);
		return false;
	}
	limit->locked.tried_from = allowed;
	limit_allow(limit, next, now);
	return true;
}

/* At the end of a window. Its rate tells nothing while the limit is not reached, or no request
 * waits for more, or transfers above the limit still run. The caller holds the mutex. */
static void limit_look(struct sl_http_limit *limit, int64_t now)
{
	unsigned allowed = atomic_load(&limit->allowed), active = limit->locked.active;
	int64_t rtt = atomic_load_explicit(&limit->rtt, memory_order_relaxed);
	double rate;
	uint64_t part, trip;

	if (now < atomic_load_explicit(&limit->look, memory_order_relaxed))
		return;
	if (limit->locked.settling || active > allowed || active + 1 < allowed ||
	    (!limit->locked.tried_from && sl_list_empty(&limit->locked.waiting))) {
		limit_begin_window(limit, now, !limit->locked.since);
		return;
	}
	rate = (double)atomic_load(&limit->arrived) / (double)(now - limit->locked.since);
	if (limit->locked.tried_from)
		limit_judge(limit, rate, now);
	else
		limit->locked.rate =
			limit->locked.rate ? (3 * limit->locked.rate + rate) / 4 : rate;
	trip = (uint64_t)(rate / allowed * (double)rtt);
	part = trip * ROUND_TRIPS;
	atomic_store_explicit(&limit->trip, trip, memory_order_relaxed);
	atomic_store_explicit(
		&limit->largest,
		limit->locked.starting ? LONG_PART : SL_MAX(SL_MIN(part, LARGEST_PART), LONG_PART),
		memory_order_relaxed);
	if (!limit->locked.settling && !limit_try(limit, now))
		limit_begin_window(limit, now, false);
}

/* Among origins with room and a waiting request, returns that with the fewest permits; or NULL. */
static struct sl_http_limit *limits_next_locked(struct sl_http_limits *limits)
	SL_REQUIRES(&limits->mutex)
{
	struct sl_http_limit *next = NULL;

	sl_list_each_of (limit, &limits->locked.origins, struct sl_http_limit, locked.link)
		if (!sl_list_empty(&limit->locked.waiting) &&
		    limit_has_room_locked(limits, limit) &&
		    (!next || limit->locked.active < next->locked.active))
			next = limit;
	return next;
}

static void limits_admit_locked(struct sl_http_limits *limits, struct sl_list *out)
	SL_REQUIRES(&limits->mutex)
{
	struct sl_http_limit *next;

	while ((next = limits_next_locked(limits))) {
		limit_begin_locked(limits, next);
		sl_list_append(out, sl_list_take(&next->locked.waiting));
		atomic_store_explicit(&next->waits, !sl_list_empty(&next->locked.waiting),
		                      memory_order_relaxed);
	}
}

/* Connections that mostly wait are too few, unless a file has the bytes for longer parts. From
 * SOON_ALLOWED on there have to be more files, and a server that takes half as long again as at its
 * best is busy. */
static void limit_add_some(struct sl_http_limit *limit, int64_t waited, int64_t now)
{
	unsigned allowed = atomic_load(&limit->allowed);
	int64_t soonest = limit->locked.soonest;

	soonest = limit->locked.soonest = soonest ? SL_MIN(soonest, waited) : waited;
	if (!limit->locked.starting || allowed >= limit->most ||
	    atomic_load_explicit(&limit->ahead, memory_order_relaxed) >= MANY_BYTES ||
	    (allowed >= SOON_ALLOWED &&
	     (limit->locked.files <= allowed || 2 * waited > 3 * soonest)) ||
	    sl_list_empty(&limit->locked.waiting))
		return;
	limit_widen(limit, allowed + (allowed < SOON_ALLOWED ? 3 : 2), now);
}

void sl_http_limit_leave(struct sl_http_limit *limit, int64_t now, int64_t waited,
                         struct sl_list *out)
{
	struct sl_http_limits *limits = limit->limits;

	sl_mutex_lock(&limits->mutex);
	limit_look(limit, now);
	if (waited)
		limit_add_some(limit, waited, now);
	limit->locked.active--;
	limits->locked.active--;
	limits_admit_locked(limits, out);
	sl_mutex_unlock(&limits->mutex);
}

void sl_http_limit_arrived(struct sl_http_limit *limit, size_t bytes, int64_t now,
                           struct sl_list *out)
{
	struct sl_http_limits *limits = limit->limits;

	atomic_fetch_add_explicit(&limit->arrived, bytes, memory_order_relaxed);
	if (now < atomic_load_explicit(&limit->look, memory_order_relaxed))
		return;
	sl_mutex_lock(&limits->mutex);
	limit_look(limit, now);
	limits_admit_locked(limits, out);
	sl_mutex_unlock(&limits->mutex);
}

void sl_http_limit_answered(struct sl_http_limit *limit, int64_t ns)
{
	int64_t rtt = atomic_load_explicit(&limit->rtt, memory_order_relaxed);

	/* The fastest counts: a busy server answers later. A lost update does no harm. */
	rtt = !rtt || ns < rtt ? ns : rtt + (ns - rtt) / 256;
	atomic_store_explicit(&limit->rtt, rtt, memory_order_relaxed);
}

void sl_http_limit_overloaded(struct sl_http_limit *limit, int64_t now)
{
	sl_mutex_lock(&limit->limits->mutex);
	/* Several refusals within a short time count once. */
	if (now - limit->locked.halved >= LEAST_LOOK_NS) {
		limit->locked.halved = now;
		limit->locked.tried_from = 0;
		limit->locked.shrinks = false;
		limit_settle(limit, true);
		limit_allow(limit, atomic_load(&limit->allowed) / 2, now);
	}
	sl_mutex_unlock(&limit->limits->mutex);
}

void sl_http_limits_admit_cancelled(struct sl_http_limits *limits, struct sl_list *out)
{
	sl_mutex_lock(&limits->mutex);
	sl_list_each_of (limit, &limits->locked.origins, struct sl_http_limit, locked.link)
		sl_list_each_of (request, &limit->locked.waiting, struct sl_http_request, link) {
			if (!sl_http_request_is_unwanted(request))
				continue;
			limit_begin_locked(limits, limit);
			sl_list_move(&request->link, out);
		}
	sl_mutex_unlock(&limits->mutex);
}

/* A part is half the bytes left to each connection: parts become small towards the end, and the
 * last does not run alone. A short operation is not cut while requests wait, or if many bytes were
 * in flight lately: connections are busy without that, and each request costs the server time. A
 * longer one that is not alone now has long parts then; beside so many bytes it is not cut, if a
 * connection for each such operation brings enough. */
struct sl_cut sl_http_limit_cut(struct sl_http_limit *limit, uint64_t all, uint64_t left,
                                uint64_t room)
{
	unsigned allowed = atomic_load_explicit(&limit->allowed, memory_order_relaxed);
	size_t largest = atomic_load_explicit(&limit->largest, memory_order_relaxed);
	uint64_t fair = left / (2 * (uint64_t)allowed), fits = room / (allowed + allowed / 4 + 1);
	uint64_t ahead = atomic_load_explicit(&limit->ahead, memory_order_relaxed);
	uint64_t part = SL_MAX(fair, USUAL_PART);
	bool many, beside = all <= LONG_PART || (all <= WHOLE_PART && left > all);

	ahead = SL_MAX(left, ahead - ahead / FORGETS);
	atomic_store_explicit(&limit->ahead, ahead, memory_order_relaxed);
	many = ahead >= MANY_BYTES;
	if (beside && (many || atomic_load_explicit(&limit->waits, memory_order_relaxed)))
		part = LONG_PART;
	if (beside && many && all > LONG_PART &&
	    sl_http_pace_rate(&limit->pace, left, all) >= limit->limits->enough)
		part = largest = WHOLE_PART;
	part = SL_MIN(SL_MIN(part, SL_MAX(fits, LEAST_PART)), largest);
	return (struct sl_cut){
		.length = (size_t)(part / PART_UNIT * PART_UNIT),
		.gap = atomic_load_explicit(&limit->trip, memory_order_relaxed),
		.depth = 2 * allowed,
	};
}
