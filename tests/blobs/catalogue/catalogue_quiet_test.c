/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A get of what is there, and its release, make no system call: in a process that the kernel kills at any of them
 * but exit. And how long they take, with a client's look at what it has mapped already.
 */
#include "catalogue/catalogue_fixture.h"
#include "store/forbid.h"

#include <signal.h>
#include <sys/wait.h>
#include <time.h>

enum { ROUNDS = 200000, SOME = 500 };

static struct shop shop;

/* What a client knows of a slot. */
static struct {
	uint64_t generation;
	const void *bytes;
} mapped[SL_SLOTS_LEAST];

/* 0: all were there. */
static int get_and_release(unsigned rounds)
{
	static const char *const names[] = {"weights/0", "weights/1", "weights/2", "weights/3"};
	int wrong = 0;

	for (unsigned i = 0; i < rounds; i++) {
		struct sl_held_blob held;

		wrong |= shop_get(&shop, names[i % COUNT_OF(names)], &held);
		if (wrong)
			break;
		if (mapped[held.slot].generation != held.generation) {
			mapped[held.slot].generation = held.generation;
			mapped[held.slot].bytes = held.record.metadata;
		}
		wrong |= mapped[held.slot].bytes != held.record.metadata;
		wrong |= sl_reader_release(&shop.reader, &held);
	}
	return wrong;
}

static void publish(void)
{
	for (unsigned n = 0; n < 4; n++)
		shop_put(&shop,
		         (const char *[]){"weights/0", "weights/1", "weights/2", "weights/3"}[n], n,
		         true);
}

/* The status of a child that may make no system call but its end. The child maps references anew: it does not
 * have its parent's. */
static int status_of_child(int (*run)(void))
{
	int status = -1;
	pid_t pid = fork();

	if (pid == 0) {
		struct sl_references *references;

		if (sl_references_map(shop.references_fd, true, &references))
			_exit(2);
		shop.reader.references = references;
		if (!forbid_system_calls())
			_exit(3);
		syscall(SYS_exit_group, run());
	}
	assert_true(pid > 0);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	if (WIFEXITED(status) && WEXITSTATUS(status) == 3) {
		print_message("[  reason  ] this system lets nobody forbid system calls\n");
		skip();
	}
	return status;
}

static int gets_only(void)
{
	return get_and_release(ROUNDS);
}

static int gets_and_calls_the_system(void)
{
	get_and_release(1);
	syscall(SYS_getppid);
	return 0;
}

SHOP_TEST(a_get_makes_no_system_call)
{
	int status;

	publish();
	status = status_of_child(gets_and_calls_the_system);
	assert_true(WIFSIGNALED(status));
	assert_int_equal(WTERMSIG(status), SIGSYS);
	status = status_of_child(gets_only);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
}

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

/* The best of many that are shorter than a slice of processor time: machines that run tests are busy. */
SHOP_TEST(a_repeated_get_takes_less_than_a_microsecond)
{
	double best = 1e18;

	publish();
	for (int round = 0; round < ROUNDS / SOME; round++) {
		double begun = now(), took;

		assert_int_equal(get_and_release(SOME), 0);
		took = (now() - begun) / SOME;
		best = took < best ? took : best;
	}
	print_message("get and release: %.0f ns\n", best);
	if (!under_sanitizer())
		assert_in_range(best, 1, 1000);
}

int main(void)
{
	return RUN_TESTS(NULL, NULL);
}
