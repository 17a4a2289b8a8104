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

int main(void)
{
	return RUN_TESTS(NULL, NULL);
}
