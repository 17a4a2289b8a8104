/* SPDX-License-Identifier: Apache-2.0 */
/* Seats, by which processes know of each other, and pools whose workers are limited. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/core.h"
#include "lib/unit.h"

#define DEVICE "0000:65:00.0"

static char folder[64], file[80];

static int begin(void **state)
{
	(void)state;
	snprintf(folder, sizeof(folder), "/tmp/sluice-seats-XXXXXX");
	if (!mkdtemp(folder))
		return 1;
	snprintf(file, sizeof(file), "%s/sluice-seats", folder);
	return setenv("XDG_RUNTIME_DIR", folder, 1);
}

static int end(void **state)
{
	(void)state;
	unlink(file);
	return rmdir(folder);
}

/* Runs a part in a process of its own, until that ends. Returns its exit status. */
static int in_a_process(int (*run)(void))
{
	pid_t pid = fork();
	int status;

	if (!pid)
		_exit(run());
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* Starts a process that takes seats and stays. */
static pid_t sitting(unsigned count, bool forks)
{
	int pipes[2];
	char ready;
	pid_t pid;

	assert_int_equal(pipe(pipes), 0);
	pid = fork();
	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		for (unsigned i = 0; i < count; i++)
			if (sl_seat_take(DEVICE, NULL, 1) < 0)
				_exit(1);
		/* The child of the child lives on, and has the same descriptors. */
		if (forks && !fork()) {
			close(STDOUT_FILENO);
			close(STDERR_FILENO);
			if (write(pipes[1], "", 1) == 1)
				sleep(5);
			_exit(0);
		}
		if (forks)
			pause();
		if (write(pipes[1], "", 1) == 1)
			pause();
		_exit(1);
	}
	assert_int_equal(read(pipes[0], &ready, 1), 1);
	close(pipes[0]);
	close(pipes[1]);
	return pid;
}

static void killed(pid_t pid)
{
	assert_int_equal(kill(pid, SIGKILL), 0);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
}

static void check_text(const char *text)
{
	char want[300];
	bool usable;
	char *got = sl_seats_describe(&usable);

	snprintf(want, sizeof(want), text, file);
	assert_non_null(got);
	assert_string_equal(got, want);
	free(got);
}

TEST_CASE(a_killed_process_leaves_its_seats, begin, end, NULL, NULL)
{
	pid_t one = sitting(1, false), two;

	check_text("1 in %s, " DEVICE);
	two = sitting(2, false);
	check_text("3 in %s, " DEVICE ", " DEVICE ", " DEVICE);
	killed(one);
	check_text("2 in %s, " DEVICE ", " DEVICE);
	/* The lowest is free again, and so the kernel need not name the lowest first. */
	one = sitting(1, false);
	check_text("3 in %s, " DEVICE ", " DEVICE ", " DEVICE);
	killed(two);
	killed(one);
	check_text("0 in %s");
}

TEST_CASE(a_child_of_a_killed_process_has_none_of_its_seats, begin, end, NULL, NULL)
{
	killed(sitting(1, true));
	check_text("0 in %s");
}

static _Atomic bool sits;

static void *sit(void *argument)
{
	int seat;

	(void)argument;
	while (atomic_load(&sits))
		if ((seat = sl_seat_take(DEVICE, NULL, 1)) >= 0)
			sl_seat_give(seat);
	return NULL;
}

static int has_the_file(void)
{
	struct stat st, got;

	if (stat(file, &st))
		return 0;
	for (int fd = 3; fd < 64; fd++)
		if (!fstat(fd, &got) && got.st_dev == st.st_dev && got.st_ino == st.st_ino)
			return 1;
	return 0;
}

TEST_CASE(a_child_has_no_seat_that_a_thread_is_about_to_take, begin, end, NULL, NULL)
{
	pthread_t thread;

	/* From the first seat on, forks are noticed. */
	sl_seat_give(sl_seat_take(DEVICE, NULL, 1));
	atomic_store(&sits, true);
	assert_int_equal(sl_thread_start(&thread, "sit", sit, NULL), 0);
	for (unsigned i = 0; i < 300; i++)
		assert_int_equal(in_a_process(has_the_file), 0);
	atomic_store(&sits, false);
	pthread_join(thread, NULL);
}

static int take_and_give(void)
{
	int seat = sl_seat_take(DEVICE, NULL, 1);

	if (seat < 0)
		return 1;
	sl_seat_give(seat);
	/* It may be taken again, by this process too. */
	return sl_seat_take(DEVICE, NULL, 1) == seat ? 0 : 2;
}

TEST_CASE(a_seat_is_taken_and_given, begin, end, NULL, NULL)
{
	struct stat st;

	assert_int_equal(in_a_process(take_and_give), 0);
	assert_int_equal(stat(file, &st), 0);
	assert_int_equal(st.st_mode & 07777, 0600);
}

TEST_CASE(there_are_64_seats, begin, end, NULL, NULL)
{
	pid_t all = sitting(64, false);

	assert_int_equal(in_a_process(take_and_give), 1);
	killed(all);
	assert_int_equal(in_a_process(take_and_give), 0);
}

static void check_refused(const char *why)
{
	char text[100];

	assert_int_equal(in_a_process(take_and_give), 1);
	snprintf(text, sizeof(text), "%%s: %s", why);
	check_text(text);
}

TEST_CASE(a_file_that_is_not_of_this_user_alone_is_refused, begin, end, NULL, NULL)
{
	char other[80];
	int fd = open(file, O_CREAT | O_RDWR | O_CLOEXEC, 0600);

	assert_true(fd >= 0);
	assert_int_equal(in_a_process(take_and_give), 0);
	assert_int_equal(fchmod(fd, 0620), 0);
	check_refused("not a file of this user alone");
	assert_int_equal(fchmod(fd, 0600), 0);
	assert_int_equal(ftruncate(fd, 4097), 0);
	check_refused("not a file of this user alone");
	assert_int_equal(ftruncate(fd, 0), 0);
	snprintf(other, sizeof(other), "%s/other", folder);
	assert_int_equal(link(file, other), 0);
	check_refused("not a file of this user alone");
	assert_int_equal(unlink(file), 0);
	assert_int_equal(symlink(other, file), 0);
	check_refused("Too many levels of symbolic links");
	assert_int_equal(unlink(file), 0);
	assert_int_equal(mkfifo(file, 0600), 0);
	check_refused("not a file of this user alone");
	assert_int_equal(unlink(file), 0);
	assert_int_equal(rename(other, file), 0);
	/* Only root can make a file of somebody else. */
	if (!geteuid()) {
		assert_int_equal(fchown(fd, 12345, 12345), 0);
		check_refused("not a file of this user alone");
	}
	close(fd);
}

/* ------------------------------------------------------------------------------------- shares */

enum { WORKERS = 8 };

static _Atomic unsigned running;
static _Atomic bool go_on;

static void run_until_told(struct sl_task *task)
{
	(void)task;
	atomic_fetch_add(&running, 1);
	while (!atomic_load(&go_on))
		usleep(500);
	atomic_fetch_sub(&running, 1);
}

/* Returns how many workers take tasks, as there are enough. */
static unsigned workers_of(struct sl_pool *pool, bool looks)
{
	static struct sl_task tasks[2 * WORKERS];
	unsigned most = 0;

	atomic_store(&go_on, false);
	for (unsigned i = 0; i < 2 * WORKERS; i++) {
		tasks[i].run = run_until_told;
		sl_pool_submit(pool, &tasks[i]);
	}
	for (unsigned i = 0; i < 40; i++) {
		usleep(2000);
		if (looks)
			sl_seats_look();
		most = SL_MAX(most, atomic_load(&running));
	}
	atomic_store(&go_on, true);
	for (unsigned i = 0; i < 100 || atomic_load(&running); i++)
		usleep(500);
	return most;
}

/* As a process with a ring, and then with two, beside two rings of others. */
static int share(void)
{
	struct sl_pool *pool;
	int one, two;

	if (sl_pool_start("share", WORKERS, WORKERS, &pool))
		return 1;
	if (workers_of(pool, false) != WORKERS)
		return 2;
	/* Three quarters of a third, and of a half. */
	one = sl_seat_take(DEVICE, pool, WORKERS);
	if (one < 0 || workers_of(pool, true) != 2)
		return 3;
	two = sl_seat_take(DEVICE, pool, WORKERS);
	if (two < 0 || workers_of(pool, true) != 3)
		return 4;
	sl_seat_give(one);
	sl_seat_give(two);
	/* The limit ends by itself, without a read that looks. */
	usleep(150000);
	if (workers_of(pool, false) != WORKERS)
		return 5;
	/* A pool ends in spite of a limit, and does all its tasks before. */
	sl_pool_limit(pool, 1, SL_FOREVER);
	sl_pool_stop(pool);
	sl_pool_free(pool);
	return 0;
}

/* As a process with a ring that is alone: nothing is limited. */
static int alone(void)
{
	struct sl_pool *pool;

	if (sl_pool_start("alone", WORKERS, WORKERS, &pool) ||
	    sl_seat_take(DEVICE, pool, WORKERS) < 0)
		return 1;
	return workers_of(pool, true) == WORKERS ? 0 : 2;
}

TEST_CASE(workers_are_limited_to_the_share_of_their_rings, begin, end, NULL, NULL)
{
	pid_t one = sitting(1, false), two = sitting(1, false);

	assert_int_equal(in_a_process(share), 0);
	killed(one);
	killed(two);
	assert_int_equal(in_a_process(alone), 0);
}

static _Atomic unsigned begun, ended;
static _Atomic bool parted;

/* Two of them end when both have begun, or after five seconds. */
static void meet(struct sl_task *task)
{
	int64_t until = sl_now() + INT64_C(5000000000);

	(void)task;
	atomic_fetch_add(&begun, 1);
	while (atomic_load(&begun) < 2 && !atomic_load(&parted)) {
		atomic_store(&parted, sl_now() > until);
		sched_yield();
	}
	atomic_fetch_add(&ended, 1);
}

TEST(a_limit_that_is_set_at_the_end_of_another_ends_too)
{
	enum { TIMES = 2000, LIMITS_MOST = 64 };
	struct sl_task tasks[2] = {{.run = meet}, {.run = meet}};
	uint64_t seed = unit_seed();
	struct sl_pool *pool;

	assert_int_equal(sl_pool_start("limits", 2, 2, &pool), 0);
	for (unsigned i = 0; i < TIMES && !atomic_load(&parted); i++) {
		atomic_store(&begun, 0);
		atomic_store(&ended, 0);
		for (uint64_t n = unit_random(&seed) % LIMITS_MOST + 1; n; n--)
			sl_pool_limit(pool, 1, sl_now());
		for (unsigned j = 0; j < 2; j++)
			sl_pool_submit(pool, &tasks[j]);
		while (atomic_load(&ended) < 2)
			sched_yield();
	}
	assert_false(atomic_load(&parted));
	sl_pool_stop(pool);
	sl_pool_free(pool);
}

/* ------------------------------------------------------------------------------------- nodes */

static void put(const char *root, const char *name, const char *text)
{
	char path[160], command[200];
	FILE *out;

	snprintf(command, sizeof(command), "mkdir -p %s/sys/devices/system/node/%s", root, name);
	assert_int_equal(system(command), 0);
	snprintf(path, sizeof(path), "%s/sys/devices/system/node/%s/cpulist", root, name);
	out = fopen(path, "we");
	assert_non_null(out);
	assert_true(fputs(text, out) >= 0);
	assert_int_equal(fclose(out), 0);
}

TEST(cores_of_a_node_are_those_of_the_calling_thread)
{
	char root[] = "/tmp/sluice-nodes-XXXXXX", command[64], text[64];
	cpu_set_t before, here;
	size_t bytes;
	cpu_set_t *set;
	int core = sched_getcpu();

	assert_non_null(mkdtemp(root));
	assert_int_equal(sl_machine_nodes(root), 0);
	assert_null(sl_machine_cores(root, 0, &bytes));
	assert_int_equal(sched_getaffinity(0, sizeof(before), &before), 0);
	CPU_ZERO(&here);
	CPU_SET(core, &here);
	assert_int_equal(sched_setaffinity(0, sizeof(here), &here), 0);
	snprintf(text, sizeof(text), "%d,5000-4294967295\n", core);
	put(root, "node0", text);
	put(root, "node10", "6000-7000\n");
	put(root, "power", "0-3\n");
	assert_int_equal(sl_machine_nodes(root), 2);
	set = sl_machine_cores(root, 0, &bytes);
	assert_non_null(set);
	assert_int_equal(CPU_COUNT_S(bytes, set), 1);
	assert_true(CPU_ISSET_S(core, bytes, set));
	CPU_FREE(set);
	set = sl_machine_cores(root, 10, &bytes);
	assert_int_equal(CPU_COUNT_S(bytes, set), 0);
	CPU_FREE(set);
	assert_int_equal(sched_setaffinity(0, sizeof(before), &before), 0);
	set = sl_machine_cores(root, -1, &bytes);
	assert_int_equal(CPU_COUNT_S(bytes, set), CPU_COUNT(&before));
	CPU_FREE(set);
	snprintf(command, sizeof(command), "rm -r %s", root);
	assert_int_equal(system(command), 0);
}

int main(void)
{
	return RUN_TESTS(NULL, NULL);
}
