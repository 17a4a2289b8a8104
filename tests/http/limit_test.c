/* SPDX-License-Identifier: Apache-2.0 */
/* The number of transfers against servers that are only simulated: their time is counted, not spent. */
#include "http/http_internal.h"
#include "lib/unit.h"

#define PIECE   ((uint64_t)4 << 20)
#define STEP_NS 1000000
#define MOST    32

struct server {
	double each, most; /* bytes a nanosecond: of one transfer, and of all together */
};

struct simulation {
	struct sl_http_limits limits;
	struct sl_http_limit *limit;
	struct sl_http_request requests[2 * MOST];
	struct sl_piece piece;
	double left[2 * MOST]; /* bytes of the transfers that run */
	struct sl_http_request *running[2 * MOST];
	unsigned count;
	int64_t now;
};

static void start(struct simulation *s, struct sl_http_request *request)
{
	s->running[s->count] = request;
	s->left[s->count++] = PIECE;
}

static void begin(struct simulation *s)
{
	memset(s, 0, sizeof(*s));
	sl_http_limits_init(&s->limits, MOST);
	s->limit = sl_http_limit_acquire(&s->limits, "http://host");
	s->now = sl_now();
	for (unsigned i = 0; i < 2 * MOST; i++) {
		s->requests[i].piece = &s->piece;
		if (sl_http_limit_enter(s->limit, &s->requests[i]))
			start(s, &s->requests[i]);
	}
}

static void end(struct simulation *s)
{
	sl_http_limit_release(s->limit);
	sl_http_limits_destroy(&s->limits);
}

/* A transfer ends, and another one of the same request waits again. */
static void finish(struct simulation *s, unsigned i)
{
	struct sl_http_request *request = s->running[i];
	struct sl_list ready, *link;

	s->running[i] = s->running[--s->count];
	s->left[i] = s->left[s->count];
	sl_list_init(&ready);
	sl_http_limit_leave(s->limit, s->now, &ready);
	while ((link = sl_list_take(&ready)))
		start(s, SL_CONTAINER(link, struct sl_http_request, link));
	if (sl_http_limit_enter(s->limit, request))
		start(s, request);
}

static void run(struct simulation *s, const struct server *server, unsigned ms)
{
	for (unsigned t = 0; t < ms; t++) {
		double rate = SL_MIN(server->each * s->count, server->most) / s->count;

		s->now += STEP_NS;
		atomic_fetch_add(&s->limit->arrived, (uint64_t)(rate * STEP_NS * s->count));
		for (unsigned i = s->count; i-- > 0;) {
			s->left[i] -= rate * STEP_NS;
			if (s->left[i] <= 0)
				finish(s, i);
		}
		assert_true(s->count <= MOST);
	}
}

TEST(it_grows_while_that_helps)
{
	const struct server far = {.each = 0.05, .most = 100};
	struct simulation s;

	begin(&s);
	run(&s, &far, 20000);
	/* The last step may be too small to be seen. */
	assert_in_range(s.limit->locked.allowed, MOST - 2, MOST);
	end(&s);
}

TEST(it_stops_growing_where_nothing_is_gained)
{
	const struct server narrow = {.each = 0.5, .most = 1};
	struct simulation s;

	begin(&s);
	run(&s, &narrow, 20000);
	assert_in_range(s.limit->locked.allowed, 2, 16);
	end(&s);
}

TEST(an_overloaded_server_gets_half_and_then_more_again)
{
	const struct server far = {.each = 0.05, .most = 100};
	struct simulation s;
	unsigned before;

	begin(&s);
	run(&s, &far, 20000);
	before = s.limit->locked.allowed;
	/* Many refusals at once count as one. */
	for (int i = 0; i < 10; i++)
		sl_http_limit_overloaded(s.limit, s.now + INT64_C(60000000));
	assert_int_equal(s.limit->locked.allowed, before / 2);
	run(&s, &far, 20000);
	/* The last step may be too small to be seen. */
	assert_in_range(s.limit->locked.allowed, MOST - 2, MOST);
	end(&s);
}

TEST(it_never_falls_below_one)
{
	struct simulation s;

	begin(&s);
	for (int i = 1; i < 20; i++)
		sl_http_limit_overloaded(s.limit, s.now + i * INT64_C(100000000));
	assert_int_equal(s.limit->locked.allowed, 1);
	end(&s);
}

TEST(a_sweep_takes_what_is_cancelled_and_nothing_else)
{
	struct sl_piece cancelled = {.cancelled = true};
	struct simulation s;
	struct sl_list gone;

	begin(&s);
	/* Those behind the first ones wait. */
	s.requests[MOST].piece = &cancelled;
	sl_list_init(&gone);
	sl_http_limits_admit_cancelled(&s.limits, &gone);
	assert_ptr_equal(sl_list_take(&gone), &s.requests[MOST].link);
	assert_true(sl_list_empty(&gone));
	end(&s);
}

/* As many requests of an origin as may begin now; those that may not wait. */
static unsigned begin_some(struct sl_http_limit *limit, struct sl_http_request *requests,
                           unsigned n)
{
	unsigned begun = 0;

	for (unsigned i = 0; i < n; i++)
		begun += sl_http_limit_enter(limit, &requests[i]);
	return begun;
}

/* One has all turns: the other has the reserve at once, and half when turns have ended. */
TEST(origins_share_the_turns)
{
	enum { TURNS = 8, EACH = 40 };
	struct sl_http_request requests[2][EACH] = {0};
	struct sl_piece piece = {0};
	struct sl_http_limit *first, *second;
	struct sl_http_limits limits;
	struct sl_list ready, *link;

	sl_http_limits_init(&limits, TURNS);
	first = sl_http_limit_acquire(&limits, "http://a");
	second = sl_http_limit_acquire(&limits, "http://b");
	for (unsigned i = 0; i < EACH; i++)
		requests[0][i].piece = requests[1][i].piece = &piece;
	assert_int_equal(begin_some(first, requests[0], EACH), TURNS);
	assert_int_equal(begin_some(second, requests[1], EACH), TURNS / 4);
	sl_list_init(&ready);
	for (unsigned i = 0; i < TURNS; i++)
		sl_http_limit_leave(i % 4 < 3 ? first : second, limits.most, &ready);
	assert_int_equal(first->locked.active, TURNS / 2);
	assert_int_equal(second->locked.active, TURNS / 2);
	assert_int_equal(limits.locked.active, TURNS);
	while ((link = sl_list_take(&ready)))
		;
	sl_http_limit_release(first);
	sl_http_limit_release(second);
	sl_http_limits_destroy(&limits);
}

/* Files that are opened again find what was learned; of what nobody opens again little is kept. */
TEST(origins_are_kept_for_a_while)
{
	struct sl_http_limit *first, *again;
	struct sl_http_limits limits;
	unsigned kept = 0;
	char name[32];

	sl_http_limits_init(&limits, MOST);
	first = sl_http_limit_acquire(&limits, "http://Host");
	again = sl_http_limit_acquire(&limits, "http://host");
	assert_ptr_equal(first, again);
	sl_http_limit_overloaded(first, sl_now());
	sl_http_limit_release(first);
	sl_http_limit_release(again);
	first = sl_http_limit_acquire(&limits, "http://host");
	assert_ptr_equal(first, again);
	assert_int_equal(first->locked.allowed, 4);
	for (int i = 0; i < 100; i++) {
		snprintf(name, sizeof(name), "http://%d", i);
		sl_http_limit_release(sl_http_limit_acquire(&limits, name));
	}
	sl_list_each (link, &limits.locked.origins)
		kept++;
	assert_in_range(kept, 2, 20);
	assert_ptr_equal(sl_http_limit_acquire(&limits, "http://host"), first);
	sl_http_limits_destroy(&limits);
}

int main(void)
{
	return RUN_TESTS(NULL, NULL);
}
