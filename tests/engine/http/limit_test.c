/* SPDX-License-Identifier: Apache-2.0 */
/* The number of transfers against servers that are only simulated: their time is counted, not spent. */
#include "http/http_internal.h"
#include "lib/unit.h"

#define STEP_NS 1000000
#define MOST    256
#define MANY    (2 * MOST)

struct server {
	double each, most; /* bytes a nanosecond: of one transfer, and of all together */
	unsigned rtt;      /* ms */
	unsigned worse;    /* transfers above which each more costs a percent of `most` */
	double left;       /* bytes that the file has in flight; 0: no end of them */
	unsigned
		at_once; /* requests that it answers in a round trip; more wait for each other; 0: any number */
};

struct transfer {
	struct sl_http_request *request;
	double left; /* bytes */
	double share; /* of server->each, about 1: no two connections are alike, and do not move in step */
	unsigned quiet; /* ms until its first byte */
	int64_t began, first;
};

static bool never(const struct sl_http_request *request)
{
	(void)request;
	return false;
}

static bool always(const struct sl_http_request *request)
{
	(void)request;
	return true;
}

/* Of requests that are wanted, and that are cancelled. */
static const struct sl_http_kind wanted = {.unwanted = never}, cancelled = {.unwanted = always};

struct simulation {
	const struct server *server;
	struct sl_http_limits limits;
	struct sl_http_limit *limit;
	struct sl_http_request requests[MANY];
	struct transfer running[MANY];
	unsigned count, connections, random;
	double arrived; /* bytes of all */
	int64_t now;
};

static size_t part_of(const struct simulation *s, uint64_t left, uint64_t room)
{
	return sl_http_limit_cut(s->limit, UINT64_MAX, left, room).length;
}

static void start(struct simulation *s, struct sl_http_request *request)
{
	struct transfer *t = &s->running[s->count++];

	t->request = request;
	t->left = s->server->left > 0 ? s->server->left : 1e12;
	t->left = (double)part_of(s, (uint64_t)t->left, UINT64_MAX);
	s->random = s->random * 1103515245 + 12345;
	t->share = 0.8 + (s->random >> 16) % 1000 / 2500.;
	t->quiet = s->server->rtt;
	if (s->server->at_once)
		t->quiet = SL_MAX(t->quiet, t->quiet * s->count / s->server->at_once);
	t->began = s->now;
	t->first = 0;
	if (s->count > s->connections) {
		s->connections = s->count;
		t->quiet *= 2;
	}
}

static void start_all(struct simulation *s, struct sl_list *ready)
{
	struct sl_list *link;

	while ((link = sl_list_take(ready)))
		start(s, SL_CONTAINER(link, struct sl_http_request, link));
}

static void begin_with(struct simulation *s, const struct server *server, unsigned most)
{
	memset(s, 0, sizeof(*s));
	s->server = server;
	sl_http_limits_init(&s->limits, most);
	s->limit = sl_http_limit_acquire(&s->limits, "http://host", most, 0);
	s->now = sl_now();
	for (unsigned i = 0; i < MANY; i++) {
		s->requests[i].kind = &wanted;
		if (sl_http_limit_enter(s->limit, &s->requests[i]))
			start(s, &s->requests[i]);
	}
}

static void begin(struct simulation *s, const struct server *server)
{
	begin_with(s, server, MOST);
}

static void end(struct simulation *s)
{
	sl_http_limit_release(s->limit);
	sl_http_limits_destroy(&s->limits);
}

/* A transfer ends, and another one of the same request waits again. */
static void finish(struct simulation *s, unsigned i)
{
	struct transfer over = s->running[i];
	struct sl_http_request *request = over.request;
	struct sl_list ready;

	s->running[i] = s->running[--s->count];
	sl_list_init(&ready);
	sl_http_limit_leave(s->limit, s->now, s->now - over.began < 2 * over.first ? over.first : 0,
	                    &ready);
	start_all(s, &ready);
	if (sl_http_limit_enter(s->limit, request))
		start(s, request);
}

/* Moves the bytes of a step, and returns whether the transfer is over. */
static bool move(struct simulation *s, struct transfer *t, double bytes)
{
	struct sl_list ready;

	if (t->quiet) {
		if (--t->quiet)
			return false;
		t->first = s->now - t->began;
		sl_http_limit_answered(s->limit, t->first);
		return false;
	}
	sl_list_init(&ready);
	sl_http_limit_arrived(s->limit, (size_t)bytes, s->now, &ready);
	s->arrived += bytes;
	t->left -= bytes;
	start_all(s, &ready);
	return t->left <= 0;
}

/* Returns the bytes a nanosecond of the last quarter. */
static double run(struct simulation *s, unsigned ms)
{
	const struct server *server = s->server;
	double before = 0;

	for (unsigned t = 0; t < ms; t++) {
		unsigned moving = 0, over;
		double most = server->most;

		if (t == ms - ms / 4)
			before = s->arrived;
		s->now += STEP_NS;
		for (unsigned i = 0; i < s->count; i++)
			moving += !s->running[i].quiet;
		over = server->worse && moving > server->worse ? moving - server->worse : 0;
		most *= SL_MAX(1 - over / 100., 0.1);
		for (unsigned i = s->count; i-- > 0;)
			if (move(s, &s->running[i],
			         SL_MIN(server->each * s->running[i].share,
			                most / SL_MAX(moving, 1)) *
			                 STEP_NS))
				finish(s, i);
		assert_true(s->count <= MOST);
	}
	return (s->arrived - before) / (ms / 4) / STEP_NS;
}

/* Rates of 40 and 80 MB/s each, as object stores have: all connections are found within 20 round trips or a second. */
TEST(it_doubles_from_a_cold_start)
{
	const unsigned rtts[] = {5, 20, 50, 100};

	for (size_t i = 0; i < sizeof(rtts) / sizeof(rtts[0]); i++) {
		const struct server far = {.each = 0.04, .most = 1000, .rtt = rtts[i]};
		struct simulation s;

		begin(&s, &far);
		run(&s, SL_MAX(20 * rtts[i], 1000));
		print_message("%u ms: %u transfers\n", rtts[i], atomic_load(&s.limit->allowed));
		assert_int_equal(atomic_load(&s.limit->allowed), MOST);
		end(&s);
	}
}

/* Transfers that mostly wait: 64 after a few round trips, before a window has told anything; and all for as many files. */
TEST(short_transfers_do_not_wait_for_a_window)
{
	const struct server far = {.each = 0.5, .most = 1000, .rtt = 20, .left = 1};
	struct simulation s;

	begin(&s, &far);
	run(&s, 120);
	assert_in_range(atomic_load(&s.limit->allowed), 64, 66);
	end(&s);
	begin(&s, &far);
	s.limit->locked.files = MANY;
	run(&s, 200);
	assert_int_equal(atomic_load(&s.limit->allowed), MOST);
	s.limit->locked.files = 1;
	end(&s);
}

/* The server answers the first of them at once and the others later: it has enough to do. */
TEST(short_transfers_do_not_crowd_a_busy_server)
{
	const struct server near = {.each = 4, .most = 1000, .rtt = 2, .left = 1, .at_once = 16};
	struct simulation s;

	begin(&s, &near);
	s.limit->locked.files = MANY;
	run(&s, 400);
	assert_in_range(atomic_load(&s.limit->allowed), 64, 128);
	s.limit->locked.files = 1;
	end(&s);
}

/* A large file on a server that has enough to do with a few: it gets no more connections. */
TEST(a_large_file_has_long_parts_and_few_connections)
{
	const struct server busy = {.each = 0.5, .most = 1.7, .rtt = 20, .at_once = 16};
	struct simulation s;

	begin(&s, &busy);
	run(&s, 120);
	assert_int_equal(part_of(&s, UINT64_C(1) << 40, UINT64_MAX), 4 << 20);
	assert_in_range(run(&s, 1000) * 1000, 1500, 1700);
	assert_in_range(atomic_load(&s.limit->allowed), 16, 32);
	end(&s);
}

/* The same behind a limit of each connection: there connections are the cure, found by doubling alone, and parts stay long. */
TEST(a_large_file_gets_connections_where_each_is_slow)
{
	const struct server narrow = {.each = 0.04, .most = 10, .rtt = 2};
	struct simulation s;

	begin(&s, &narrow);
	run(&s, 150);
	assert_int_equal(part_of(&s, UINT64_C(1) << 40, UINT64_MAX), 4 << 20);
	assert_in_range(atomic_load(&s.limit->allowed), 64, MOST / 2);
	run(&s, 150);
	assert_int_equal(part_of(&s, UINT64_C(1) << 40, UINT64_MAX), 4 << 20);
	assert_int_equal(atomic_load(&s.limit->allowed), MOST);
	assert_in_range(run(&s, 1000) * 1000, 9000, 10000);
	end(&s);
}

/* Opens as many files of one length, and returns what their origin may have. */
static unsigned open_files(struct sl_http_limit *limit, unsigned count, uint64_t bytes)
{
	for (unsigned i = 0; i < count; i++)
		sl_http_limit_acquire(limit->limits, "http://host", limit->most, bytes);
	return atomic_load(&limit->allowed);
}

/* Before a byte has come; but not long files, and none where a start is over. */
TEST(short_files_have_connections_at_once)
{
	const struct server narrow = {.each = 0.5, .most = 1, .rtt = 1};
	struct sl_http_limits limits;
	struct sl_http_limit *limit;
	struct simulation s;
	int64_t look;

	sl_http_limits_init(&limits, MOST);
	limit = sl_http_limit_acquire(&limits, "http://host", MOST, 0);
	assert_int_equal(open_files(limit, 29, 5 << 20), 16);
	assert_int_equal(open_files(limit, 9, 0), 16);
	assert_int_equal(open_files(limit, 1, 4 << 20), 40);
	assert_int_equal(open_files(limit, 100, 4096), 64);
	sl_http_limits_destroy(&limits);
	sl_http_limits_init(&limits, 30);
	limit = sl_http_limit_acquire(&limits, "http://host", 30, 0);
	assert_int_equal(open_files(limit, 100, 4096), 30);
	look = atomic_load(&limit->look);
	assert_int_equal(open_files(limit, 1, 4096), 30);
	assert_true(atomic_load(&limit->look) == look); /* a window goes on */
	sl_http_limits_destroy(&limits);
	begin(&s, &narrow);
	run(&s, 1000);
	assert_in_range(open_files(s.limit, 100, 4096), 2, 32);
	sl_http_limits_destroy(&s.limits);
}

/* Four are cut for idle connections; none where requests wait, or where much was in flight lately. */
TEST(a_short_operation_is_whole_beside_many)
{
	enum { SHORT = 4 << 20 };
	struct sl_http_limits limits;
	struct sl_http_limit *limit;
	struct simulation s;

	sl_http_limits_init(&limits, MOST);
	limit = sl_http_limit_acquire(&limits, "http://host", MOST, 0);
	assert_int_equal(sl_http_limit_cut(limit, SHORT, SHORT, UINT64_MAX).length, 1 << 20);
	sl_http_limit_cut(limit, SHORT, 40 * SHORT, UINT64_MAX);
	assert_int_equal(sl_http_limit_cut(limit, SHORT, SHORT, UINT64_MAX).length, SHORT);
	assert_int_equal(sl_http_limit_cut(limit, 2 * SHORT, SHORT, UINT64_MAX).length, 1 << 20);
	assert_int_equal(sl_http_limit_cut(limit, 2 * SHORT, 3 * SHORT, UINT64_MAX).length, SHORT);
	assert_int_equal(sl_http_limit_cut(limit, 5 * SHORT, SHORT, UINT64_MAX).length, 1 << 20);
	assert_int_equal(sl_http_limit_cut(limit, SHORT, SHORT, 4 << 20).length, 256 << 10);
	for (int i = 0; i < 10000; i++)
		sl_http_limit_cut(limit, SHORT, SHORT, UINT64_MAX);
	assert_int_equal(sl_http_limit_cut(limit, SHORT, SHORT, UINT64_MAX).length, 1 << 20);
	sl_http_limit_release(limit);
	sl_http_limits_destroy(&limits);
	begin(&s, &(const struct server){.each = 1, .most = 1, .left = 1});
	assert_int_equal(sl_http_limit_cut(s.limit, SHORT, SHORT, UINT64_MAX).length, SHORT);
	end(&s);
}

static size_t cut_of_ten(struct sl_http_limit *limit, uint64_t all)
{
	return sl_http_limit_cut(limit, all, 10 * all, UINT64_MAX).length;
}

/* Ten operations bring as many bytes by a request each, where a connection is fast enough. */
TEST(a_longer_operation_is_whole_if_such_are_fast)
{
	enum { LONG = 16 << 20 };
	const struct {
		double each; /* bytes per ns */
		size_t cut;
	} roads[] = {{0.09, 4 << 20}, {0.13, LONG}};
	struct sl_http_limits limits;

	sl_http_limits_init(&limits, MOST);
	limits.enough = 1;
	for (unsigned i = 0; i < 2; i++) {
		const char *origin = i ? "http://fast" : "http://slow";
		struct sl_http_limit *limit = sl_http_limit_acquire(&limits, origin, MOST, 0);
		int64_t first = 20000000;

		for (unsigned part = 0; part < 40; part++) {
			if (part < 8)
				assert_int_equal(cut_of_ten(limit, LONG), 4 << 20);
			sl_http_pace_add(&limit->pace, 4 << 20, first,
			                 first + (int64_t)((4 << 20) / roads[i].each));
		}
		assert_int_equal(cut_of_ten(limit, LONG), roads[i].cut);
		assert_int_equal(cut_of_ten(limit, LONG + 1), 4 << 20);
		assert_int_equal(sl_http_limit_cut(limit, LONG, 2 * LONG, UINT64_MAX).length,
		                 4 << 20);
		assert_int_equal(sl_http_limit_cut(limit, LONG, LONG, UINT64_MAX).length, 1 << 20);
		sl_http_limit_release(limit);
	}
	sl_http_limits_destroy(&limits);
}

/* A lower limit of the context ends the start as any does: parts grow. */
TEST(a_start_ends_at_the_limit_of_the_context)
{
	enum { FEW = 16 };
	const struct server far = {.each = 0.5, .most = 1000, .rtt = 20};
	struct simulation s;

	begin_with(&s, &far, FEW);
	run(&s, 3000);
	assert_int_equal(atomic_load(&s.limit->allowed), FEW);
	assert_true(part_of(&s, UINT64_C(1) << 40, UINT64_MAX) > 4 << 20);
	end(&s);
}

/* And stays where it is good: trials cost little. */
TEST(it_keeps_what_a_far_server_gives)
{
	const struct server far = {.each = 0.04, .most = 1000, .rtt = 20};
	struct simulation s;
	double rate;

	begin(&s, &far);
	run(&s, 5000);
	rate = run(&s, 40000);
	print_message("%.3f of all connections\n", rate / (MOST * far.each));
	assert_true(rate > 0.9 * MOST * far.each);
	end(&s);
}

TEST(it_stops_growing_where_nothing_is_gained)
{
	const struct server narrow = {.each = 0.5, .most = 1, .rtt = 1};
	struct simulation s;

	begin(&s, &narrow);
	run(&s, 1000);
	assert_in_range(atomic_load(&s.limit->allowed), 2, 32);
	assert_true(run(&s, 40000) > 0.9 * narrow.most);
	assert_in_range(atomic_load(&s.limit->allowed), 2, 32);
	end(&s);
}

/* Where many transfers are slower than few, few are found again. */
TEST(it_shrinks_where_fewer_are_faster)
{
	struct server server = {.each = 0.04, .most = 4, .rtt = 5};
	struct simulation s;

	begin(&s, &server);
	run(&s, 5000);
	assert_in_range(atomic_load(&s.limit->allowed), 90, 200);
	server = (struct server){.each = 0.5, .most = 4, .rtt = 5, .worse = 16};
	run(&s, 120000);
	print_message("%u transfers\n", atomic_load(&s.limit->allowed));
	assert_in_range(atomic_load(&s.limit->allowed), 4, 40);
	end(&s);
}

TEST(an_overloaded_server_gets_half_and_then_more_again)
{
	const struct server far = {.each = 0.05, .most = 100, .rtt = 5};
	struct simulation s;
	unsigned before;

	begin(&s, &far);
	run(&s, 20000);
	before = atomic_load(&s.limit->allowed);
	/* Many refusals at once count as one. */
	for (int i = 0; i < 10; i++)
		sl_http_limit_overloaded(s.limit, s.now + INT64_C(60000000));
	assert_int_equal(atomic_load(&s.limit->allowed), before / 2);
	run(&s, 20000);
	assert_in_range(atomic_load(&s.limit->allowed), before * 3 / 4, MOST);
	end(&s);
}

/* Half of what is left for each connection, at most 64 MiB, at least 256 KiB where memory is scarce. */
TEST(parts_follow_what_is_left_and_what_fits)
{
	const struct server far = {.each = 0.08, .most = 1000, .rtt = 20};
	struct simulation s;

	begin(&s, &far);
	/* Before the speed is known they are not longer. */
	assert_int_equal(part_of(&s, UINT64_C(1) << 40, UINT64_MAX), 4 << 20);
	run(&s, 3000);
	assert_int_equal(atomic_load(&s.limit->allowed), MOST);
	assert_in_range(part_of(&s, UINT64_C(1) << 40, UINT64_MAX), 32 << 20, 64 << 20);
	assert_int_equal(sl_http_limit_cut(s.limit, UINT64_MAX, 1, 1).depth, 2 * MOST);
	/* A round trip: 1.6 MB. */
	assert_in_range(sl_http_limit_cut(s.limit, UINT64_MAX, 1, 1).gap, 1200000, 1800000);
	assert_int_equal(part_of(&s, UINT64_C(4) << 30, UINT64_MAX), 8 << 20);
	assert_int_equal(part_of(&s, 1, UINT64_MAX), 1 << 20);
	assert_int_equal(part_of(&s, UINT64_C(1) << 40, 64 << 20), 256 << 10);
	end(&s);
}

/* As nodes of an index: a thread waits for them. */
TEST(short_pieces_that_are_waited_for_have_64_permits_at_once)
{
	static const struct sl_http_kind kind = {.piece = true, .unwanted = never};
	static const struct {
		size_t length;
		bool urgent;
		unsigned permits;
	} kinds[] = {
		{4096, true, 64}, {64 << 10, true, 64}, {4096, false, 16}, {65 << 10, true, 16}};

	for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds); i++) {
		struct sl_piece piece = {.length = kinds[i].length, .urgent = kinds[i].urgent};
		struct sl_http_limits limits;
		struct sl_http_limit *limit;
		struct sl_http_get gets[100];
		unsigned permits = 0;

		sl_http_limits_init(&limits, MOST);
		limit = sl_http_limit_acquire(&limits, "http://host", MOST, 0);
		memset(gets, 0, sizeof(gets));
		for (size_t k = 0; k < sizeof(gets) / sizeof(*gets); k++) {
			gets[k].request.kind = &kind;
			gets[k].piece = &piece;
			permits += sl_http_limit_enter(limit, &gets[k].request);
		}
		assert_int_equal(permits, kinds[i].permits);
		sl_http_limit_release(limit);
		sl_http_limits_destroy(&limits);
	}
}

TEST(it_never_falls_below_one)
{
	const struct server server = {.each = 1, .most = 1};
	struct simulation s;

	begin(&s, &server);
	for (int i = 1; i < 20; i++)
		sl_http_limit_overloaded(s.limit, s.now + i * INT64_C(100000000));
	assert_int_equal(atomic_load(&s.limit->allowed), 1);
	end(&s);
}

TEST(a_sweep_takes_what_is_cancelled_and_nothing_else)
{
	const struct server server = {.each = 1, .most = 1};
	struct simulation s;
	struct sl_list gone;

	begin(&s, &server);
	/* Those behind the first ones wait. */
	s.requests[MOST].kind = &cancelled;
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
	struct sl_http_limit *first, *second;
	struct sl_http_limits limits;
	struct sl_list ready, *link;

	sl_http_limits_init(&limits, TURNS);
	first = sl_http_limit_acquire(&limits, "http://a", TURNS, 0);
	second = sl_http_limit_acquire(&limits, "http://b", TURNS, 0);
	for (unsigned i = 0; i < EACH; i++)
		requests[0][i].kind = requests[1][i].kind = &wanted;
	assert_int_equal(begin_some(first, requests[0], EACH), TURNS);
	assert_int_equal(begin_some(second, requests[1], EACH), TURNS / 4);
	sl_list_init(&ready);
	for (unsigned i = 0; i < TURNS; i++)
		sl_http_limit_leave(i % 4 < 3 ? first : second, limits.most, 0, &ready);
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
	first = sl_http_limit_acquire(&limits, "http://Host", MOST, 0);
	again = sl_http_limit_acquire(&limits, "http://host", MOST, 0);
	assert_ptr_equal(first, again);
	sl_http_limit_overloaded(first, sl_now());
	sl_http_limit_release(first);
	sl_http_limit_release(again);
	first = sl_http_limit_acquire(&limits, "http://host", MOST, 0);
	assert_ptr_equal(first, again);
	assert_int_equal(atomic_load(&first->allowed), 8);
	for (int i = 0; i < 100; i++) {
		snprintf(name, sizeof(name), "http://%d", i);
		sl_http_limit_release(sl_http_limit_acquire(&limits, name, MOST, 0));
	}
	sl_list_each (link, &limits.locked.origins)
		kept++;
	assert_in_range(kept, 2, 20);
	assert_ptr_equal(sl_http_limit_acquire(&limits, "http://host", MOST, 0), first);
	sl_http_limits_destroy(&limits);
}

/* Times of 10 ms and 10 ns a byte, a few of them twice as long. */
TEST(a_part_is_slow_beside_its_fellows)
{
	struct sl_http_pace pace;
	int64_t usual;

	sl_http_pace_init(&pace);
	assert_true(sl_http_pace_slow(&pace, 1 << 20) == SL_FOREVER);
	for (unsigned i = 0; i < 2000; i++) {
		uint64_t bytes = (uint64_t)(i % 16 + 1) << 16;
		int64_t slower = i % 50 ? 1 : 2;

		sl_http_pace_add(&pace, bytes, 10000000 * slower,
		                 (10000000 + 10 * (int64_t)bytes) * slower);
	}
	usual = 10000000 + 10 * (1 << 20);
	assert_in_range(sl_http_pace_slow(&pace, 1 << 20), 2 * usual, 4 * usual);
	/* A tenth of the parts takes ten times as long: that is usual now. */
	for (unsigned i = 0; i < 2000; i++)
		sl_http_pace_add(&pace, 1 << 20, 10000000, i % 10 ? usual : 10 * usual);
	assert_in_range(sl_http_pace_slow(&pace, 1 << 20), 18 * usual, 40 * usual);
	sl_http_pace_destroy(&pace);
}

int main(void)
{
	return RUN_TESTS(NULL, NULL);
}
