/* SPDX-License-Identifier: Apache-2.0 */
/* A reactor by itself. Reads of an empty pipe stand for a disk that takes its time. */
#include <errno.h>
#include <time.h>
#include <unistd.h>

#include "lib/unit.h"
#include "local/local_internal.h"

#define PIECES 3

static _Atomic int done;

static void piece_done(struct sl_piece *piece)
{
	assert_int_equal(piece->error, 0);
	atomic_fetch_add(&done, 1);
}

static int64_t nanoseconds(clockid_t clock)
{
	struct timespec now;

	clock_gettime(clock, &now);
	return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

TEST(a_reactor_at_full_depth_sleeps_although_more_is_queued)
{
	struct sl_settings settings = {.reactors = 1, .reactor_depth = 1, .workers = 1, .calls = 1};
	struct sl_core core = {.settings = settings};
	struct sl_local local = {.core = &core};
	struct sl_local_piece pieces[PIECES] = {0};
	int64_t until = sl_now() + 200000000, before;
	char bytes[PIECES];
	int ends[2], rc;

	rc = sl_uring_start(&core, &core.uring);
	if (rc) {
		print_message("[  reason  ] %s\n", sluice_last_message());
		skip();
	}
	assert_int_equal(pipe(ends), 0);
	local.descriptor = ends[0];
	sl_permits_init(&local);
	for (int i = 0; i < PIECES; i++) {
		pieces[i].base.backend = &local.base;
		pieces[i].base.data = &bytes[i];
		pieces[i].base.length = 1;
		pieces[i].base.done = piece_done;
		sl_uring_submit(&pieces[i].base);
	}
	before = nanoseconds(CLOCK_PROCESS_CPUTIME_ID);
	while (sl_now() < until)
		usleep(10000);
	assert_int_equal(done, 0);
	/* All the time, or the share of it that a busy machine gives, if the reactor does not sleep. */
	assert_in_range(nanoseconds(CLOCK_PROCESS_CPUTIME_ID) - before, 0, 10000000);
	assert_int_equal(write(ends[1], "abc", PIECES), PIECES);
	sl_uring_stop(core.uring);
	assert_int_equal(done, PIECES);
	assert_memory_equal(bytes, "abc", PIECES);
	sl_uring_free(core.uring);
	sl_permits_destroy(&local);
	close(ends[0]);
	close(ends[1]);
}

static void submit_short(struct sl_local *local, struct sl_local_piece *pieces, char *bytes, int n)
{
	for (int i = 0; i < n; i++) {
		pieces[i] = (struct sl_local_piece){.base.backend = &local->base,
		                                    .base.data = &bytes[i],
		                                    .base.length = 1,
		                                    .base.done = piece_done};
		sl_uring_submit(&pieces[i].base);
	}
}

static void await_done(int n)
{
	int64_t until = sl_now() + INT64_C(20000000000);

	while (done < n && sl_now() < until)
		usleep(50);
	assert_int_equal(done, n);
}

/* With many short requests a reactor is not woken for more: it looks itself, but not for ever. */
TEST(short_requests_of_any_number_begin_and_a_reactor_without_news_sleeps)
{
	enum { MANY = 40, ROUNDS = 100 };
	struct sl_settings settings = {
		.reactors = 2, .reactor_depth = 64, .workers = 1, .calls = 1};
	struct sl_core core = {.settings = settings};
	struct sl_local local = {.core = &core};
	struct sl_local_piece pieces[3 * MANY];
	char bytes[3 * MANY] = {0};
	int ends[2], sum = 0;
	int64_t before;

	if (sl_uring_start(&core, &core.uring)) {
		print_message("[  reason  ] %s\n", sluice_last_message());
		skip();
	}
	assert_int_equal(pipe(ends), 0);
	local.descriptor = ends[0];
	sl_permits_init(&local);
	atomic_store(&done, 0);
	for (int i = 0; i < ROUNDS; i++) {
		submit_short(&local, pieces, bytes, MANY);
		usleep(i % 7 * 40);
		submit_short(&local, pieces + MANY, bytes + MANY, i % 2 ? 1 : MANY);
		sum += MANY + (i % 2 ? 1 : MANY);
		/* All but one, then one more: the reactor goes back to a sleep that a push ends. */
		assert_int_equal(write(ends[1], bytes, sum - done - 1), sum - done - 1);
		await_done(sum - 1);
		submit_short(&local, pieces + 2 * MANY, bytes + 2 * MANY, 1);
		sum++;
		assert_int_equal(write(ends[1], bytes, 2), 2);
		await_done(sum);
	}
	submit_short(&local, pieces, bytes, MANY);
	usleep(20000);
	before = nanoseconds(CLOCK_PROCESS_CPUTIME_ID);
	usleep(200000);
	assert_in_range(nanoseconds(CLOCK_PROCESS_CPUTIME_ID) - before, 0, 5000000);
	assert_int_equal(write(ends[1], bytes, MANY), MANY);
	sl_uring_stop(core.uring);
	assert_int_equal(done, sum + MANY);
	sl_uring_free(core.uring);
	sl_permits_destroy(&local);
	close(ends[0]);
	close(ends[1]);
}

int main(void)
{
	return RUN_TESTS(NULL, NULL);
}
