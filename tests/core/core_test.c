/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers, sums, URIs, the memory of the machine, the queue, the pool, signals and names of files. */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "lib/unit.h"

static void check_uri(const char *text, const char *scheme, const char *path)
{
	struct sl_uri uri;

	assert_int_equal(sl_uri_parse(text, &uri), 0);
	assert_string_equal(uri.scheme, scheme);
	assert_string_equal(uri.path, path);
	sl_uri_clear(&uri);
}

TEST(the_less_and_the_greater_evaluate_each_number_once)
{
	int less = 0, greater = 10;

	assert_int_equal(SL_MIN(less++, greater++), 0);
	assert_int_equal(SL_MAX(less++, SL_MAX(greater++, 3)), 11);
	assert_int_equal(less, 2);
	assert_int_equal(greater, 12);
}

TEST(sums_and_noise_are_those_of_their_definitions)
{
	char text[SL_CRC32C_TEXT];
	uint32_t crc = UINT32_MAX, first = 0, last = 0;
	uint64_t noise = 1234567;

	/* The first numbers of the reference implementation (https://prng.di.unimi.it/splitmix64.c). */
	assert_true(sl_random(&noise) == UINT64_C(6457827717110365317));
	assert_true(sl_random(&noise) == UINT64_C(3203168211198807973));
	if (!sl_crc32c_add(&crc, "1234", 4))
		skip();
	sl_crc32c_add(&crc, "56789", 5);
	assert_int_equal(~crc, 0xe3069283);
	assert_string_equal(sl_crc32c_text(crc, text), "4waSgw==");
	/* The same from its parts, the last first. */
	sl_crc32c_add(&last, "56789", 5);
	sl_crc32c_add(&first, "1234", 4);
	assert_int_equal(last ^ sl_crc32c_move(first, 5) ^ sl_crc32c_move(UINT32_MAX, 9), crc);
	/* And from parts that were moved back to the begin, when the end was not known. */
	first = sl_crc32c_move(first, -4);
	last = sl_crc32c_move(last, -9);
	assert_int_equal(sl_crc32c_move(first ^ last ^ UINT32_MAX, 9), crc);
}

TEST(paths_and_file_uris_name_the_same_files)
{
	check_uri("/a/b", "file", "/a/b");
	check_uri("a%20b", "file", "a%20b");
	check_uri("a:b", "file", "a:b");
	check_uri("dir/http://x", "file", "dir/http://x");
	check_uri("file:///a%20b%2f", "file", "/a b/");
	check_uri("FILE://localhost/x", "file", "/x");
	check_uri("https://h/p", "https", "https://h/p");
	check_uri("1ttp://h/p", "file", "1ttp://h/p");
}

static void check_bad_uri(const char *text, int error, const char *mention)
{
	struct sl_uri uri;

	assert_int_equal(sl_uri_parse(text, &uri), error);
	assert_non_null(strstr(sluice_last_message(), mention));
}

TEST(malformed_uris_are_refused_with_a_sentence)
{
	check_bad_uri("", -EINVAL, "empty");
	check_bad_uri("file://host/x", -EINVAL, "file://host/x");
	check_bad_uri("file:///a%2", -EINVAL, "hexadecimal");
	check_bad_uri("file:///a%zz", -EINVAL, "hexadecimal");
	check_bad_uri("file:///a%00b", -EINVAL, "%00");
	check_bad_uri("averyveryverylongscheme://x", -EPROTONOSUPPORT, "averyvery");
}

/* A machine of files: its root is a new folder, and each file lies in folders that are made for it. */
static void machine_file(const char *root, const char *name, const char *text)
{
	char path[512];
	FILE *file;

	snprintf(path, sizeof(path), "%s%s", root, name);
	for (char *slash = path + strlen(root) + 1; (slash = strchr(slash, '/')); slash++) {
		*slash = '\0';
		assert_true(!mkdir(path, 0700) || errno == EEXIST);
		*slash = '/';
	}
	file = fopen(path, "w");
	assert_non_null(file);
	assert_true(fputs(text, file) >= 0);
	assert_int_equal(fclose(file), 0);
}

TEST(memory_is_that_of_the_machine_or_the_least_limit_of_a_cgroup)
{
	char root[] = "/tmp/sluice-machine-XXXXXX", command[64];
	uint64_t all = sl_machine_memory("/nowhere");

	assert_non_null(mkdtemp(root));
	assert_int_equal(all, (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE));
	assert_int_equal(sl_machine_memory(root), all);

	/* Version 2: a parent's limit counts, and "max" is none. */
	machine_file(root, "/proc/self/cgroup", "0::/job/step:0/task\n");
	machine_file(root, "/sys/fs/cgroup/job/step:0/task/memory.max", "max\n");
	assert_int_equal(sl_machine_memory(root), all);
	machine_file(root, "/sys/fs/cgroup/job/memory.max", "1048576\n");
	assert_int_equal(sl_machine_memory(root), 1048576);
	machine_file(root, "/sys/fs/cgroup/job/step:0/task/memory.max", "524288\n");
	assert_int_equal(sl_machine_memory(root), 524288);
	/* Above that one the kernel slows a process down until it seems to hang. */
	machine_file(root, "/sys/fs/cgroup/job/step:0/memory.high", "262144\n");
	assert_int_equal(sl_machine_memory(root), 262144);

	/* Version 1 beside it; the number that stands there for "no limit" is more than a machine has. */
	machine_file(root, "/proc/self/cgroup", "9:cpu,memory_not:/x\n4:memory:/a/b\n0::/\n");
	machine_file(root, "/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
	assert_int_equal(sl_machine_memory(root), all);
	machine_file(root, "/sys/fs/cgroup/memory/a/memory.limit_in_bytes", "314572800\n");
	assert_int_equal(sl_machine_memory(root), 314572800);

	/* A container that sees the host's name of its cgroup: its own limit is in the root. */
	machine_file(root, "/proc/self/cgroup", "0::/kubepods/pod1\n");
	machine_file(root, "/sys/fs/cgroup/memory.max", "65536\n");
	assert_int_equal(sl_machine_memory(root), 65536);
	machine_file(root, "/proc/self/cgroup", "0::\nbroken\n:\n");
	assert_int_equal(sl_machine_memory(root), 65536);

	snprintf(command, sizeof(command), "rm -r %s", root);
	assert_int_equal(system(command), 0);
}

TEST(cores_are_limited_by_the_least_quota_of_a_cgroup)
{
	char root[] = "/tmp/sluice-machine-XXXXXX", command[64];

	assert_non_null(mkdtemp(root));
	assert_int_equal(sl_machine_quota(root), UINT_MAX);

	/* Version 2: a part of a core counts as one, and a parent's quota counts. */
	machine_file(root, "/proc/self/cgroup", "0::/job/task\n");
	machine_file(root, "/sys/fs/cgroup/job/task/cpu.max", "max 100000\n");
	assert_int_equal(sl_machine_quota(root), UINT_MAX);
	machine_file(root, "/sys/fs/cgroup/job/cpu.max", "250000 100000\n");
	assert_int_equal(sl_machine_quota(root), 3);
	machine_file(root, "/sys/fs/cgroup/job/task/cpu.max", "50000 100000\n");
	assert_int_equal(sl_machine_quota(root), 1);

	/* Version 1, where a controller may share its hierarchy; -1 is no quota. */
	machine_file(root, "/proc/self/cgroup", "3:cpuset:/c\n2:cpuacct,cpu:/a/b\n0::/\n");
	machine_file(root, "/sys/fs/cgroup/cpu/a/b/cpu.cfs_period_us", "100000\n");
	machine_file(root, "/sys/fs/cgroup/cpu/a/b/cpu.cfs_quota_us", "-1\n");
	machine_file(root, "/sys/fs/cgroup/cpu/c/cpu.cfs_period_us", "100000\n");
	machine_file(root, "/sys/fs/cgroup/cpu/c/cpu.cfs_quota_us", "100000\n");
	assert_int_equal(sl_machine_quota(root), UINT_MAX);
	machine_file(root, "/sys/fs/cgroup/cpu/a/cpu.cfs_period_us", "50000\n");
	machine_file(root, "/sys/fs/cgroup/cpu/a/cpu.cfs_quota_us", "200000\n");
	assert_int_equal(sl_machine_quota(root), 4);

	snprintf(command, sizeof(command), "rm -r %s", root);
	assert_int_equal(system(command), 0);
}

struct counted {
	struct sl_task task;
	_Atomic unsigned *count;
	struct sl_pool *pool;
	unsigned again;
};

static void count_task(struct sl_task *task)
{
	struct counted *counted = SL_CONTAINER(task, struct counted, task);

	atomic_fetch_add(counted->count, 1);
	if (counted->again) {
		counted->again--;
		sl_pool_submit(counted->pool, task);
	}
}

/* With pauses between them, so that workers fall asleep and are woken in all states. */
TEST(every_task_runs_once_and_the_pool_drains_before_it_stops)
{
	static struct counted tasks[2000];
	_Atomic unsigned count = 0;
	struct sl_pool *pool;

	assert_int_equal(sl_pool_start("sluice-work", 3, 3, &pool), 0);
	for (int i = 0; i < 2000; i++) {
		tasks[i] = (struct counted){
			.task.run = count_task, .count = &count, .pool = pool, .again = i % 3};
		sl_pool_submit(pool, &tasks[i].task);
		if (i % 100 == 0)
			nanosleep(&(struct timespec){0, 200000}, NULL);
	}
	sl_pool_stop(pool);
	sl_pool_free(pool);
	/* 2000 submitted, of which a third comes back once and a third twice. */
	assert_int_equal(atomic_load(&count), 2000 + 667 + 2 * 666);
}

/* Some are left, when all workers sleep and when one naps. */
TEST(a_patient_task_is_taken_by_its_owner_or_runs_later)
{
	_Atomic unsigned count = 0;
	unsigned taken = 0, own = 0, others = 0;
	static struct counted tasks[400];
	struct sl_pool *pool;

	assert_int_equal(sl_pool_start("sluice-work", 2, 2, &pool), 0);
	for (unsigned i = 0; i < 400; i++) {
		struct sl_task *task, *submitted = &tasks[i].task;

		if (i % 100 == 50)
			nanosleep(&(struct timespec){0, 20000000}, NULL);
		tasks[i] = (struct counted){.task.run = count_task, .count = &count, .pool = pool};
		submitted->owner = &own;
		submitted->patient = true;
		sl_pool_submit(pool, submitted);
		assert_null(sl_pool_take(pool, &others));
		task = i % 100 != 50 && i % 100 != 99 ? sl_pool_take(pool, &own) : NULL;
		if (task) {
			assert_ptr_equal(task, submitted);
			task->run(task);
			taken++;
		}
		for (unsigned ms = 0; atomic_load(&count) != i + 1; ms++) {
			assert_true(ms < 10000);
			nanosleep(&(struct timespec){0, 1000000}, NULL);
		}
	}
	print_message("%u of 400 were taken\n", taken);
	assert_true(taken > 200);
	sl_pool_stop(pool);
	sl_pool_free(pool);
	assert_int_equal(atomic_load(&count), 400);
}

enum { AHEAD = 32, LATER = AHEAD + 8 };

struct noted {
	struct sl_task task;
	_Atomic unsigned *next; /* place among those that have run */
	unsigned place;
};

static void note_task(struct sl_task *task)
{
	struct noted *noted = SL_CONTAINER(task, struct noted, task);

	noted->place = atomic_fetch_add(noted->next, 1);
}

static _Atomic bool may_end[2];
static _Atomic unsigned holding;

/* Keeps a worker until it may end, by the number in the worker's name. */
static void hold_worker(struct sl_task *task)
{
	char name[16];

	(void)task;
	pthread_getname_np(pthread_self(), name, sizeof(name));
	atomic_fetch_add(&holding, 1);
	while (!atomic_load(&may_end[name[strlen(name) - 1] == '1']))
		nanosleep(&(struct timespec){0, 500000}, NULL);
}

TEST(a_worker_takes_its_own_tasks_first_and_the_head_after_32_of_them)
{
	static struct noted tasks[2 + LATER];
	struct sl_task held[2] = {{.run = hold_worker}, {.run = hold_worker, .home = 1}};
	_Atomic unsigned next = 0;
	struct sl_pool *pool;

	assert_int_equal(sl_pool_start("own", 2, 2, &pool), 0);
	for (unsigned i = 0; i < 2; i++)
		sl_pool_submit(pool, &held[i]);
	while (atomic_load(&holding) < 2)
		nanosleep(&(struct timespec){0, 500000}, NULL);
	/* The first two are of the worker that stays away. */
	for (unsigned i = 0; i < 2 + LATER; i++) {
		tasks[i] = (struct noted){.task.run = note_task, .task.home = i < 2, .next = &next};
		sl_pool_submit(pool, &tasks[i].task);
	}
	atomic_store(&may_end[0], true);
	while (atomic_load(&next) < 2 + LATER)
		nanosleep(&(struct timespec){0, 500000}, NULL);
	atomic_store(&may_end[1], true);
	sl_pool_stop(pool);
	sl_pool_free(pool);
	for (unsigned i = 0; i < AHEAD; i++)
		assert_int_equal(tasks[2 + i].place, i);
	assert_int_equal(tasks[0].place, AHEAD);
	assert_int_equal(tasks[2 + AHEAD].place, AHEAD + 1);
	assert_int_equal(tasks[1].place, 1 + LATER);
}

static unsigned wakes;

static void count_wake(struct sl_sleeper *sleeper)
{
	(void)sleeper;
	wakes++;
}

TEST(a_push_wakes_one_sleeper_and_none_is_lost)
{
	struct sl_sleeper a = {.wake = count_wake}, b = {.wake = count_wake};
	struct sl_list links[3], taken;
	struct sl_queue queue;

	sl_queue_init(&queue);
	sl_list_init(&taken);
	assert_true(sl_queue_sleep(&queue, &a));
	assert_true(sl_queue_sleep(&queue, &b));
	sl_queue_push(&queue, &links[0], false);
	assert_int_equal(wakes, 1);
	/* There is work: nobody may fall asleep over it. */
	assert_false(sl_queue_sleep(&queue, &b));
	sl_queue_push(&queue, &links[1], false);
	sl_queue_push(&queue, &links[2], false);
	assert_int_equal(wakes, 2);
	assert_int_equal(sl_queue_take(&queue, &taken, 2), 2);
	assert_ptr_equal(taken.next, &links[0]);
	assert_int_equal(sl_queue_take(&queue, &taken, 5), 1);
	assert_int_equal(sl_queue_take(&queue, &taken, 5), 0);
	assert_true(sl_queue_sleep(&queue, &a));
	sl_queue_awake(&queue, &a);
	sl_queue_close(&queue);
	assert_int_equal(wakes, 2);
	assert_false(sl_queue_sleep(&queue, &a));
	assert_true(sl_queue_closed(&queue));
	sl_queue_destroy(&queue);
}

TEST(urgent_work_comes_first_and_the_rest_is_not_forgotten)
{
	struct sl_list urgent[9], plain[3], taken;
	struct sl_queue queue;
	unsigned at = 0;

	sl_queue_init(&queue);
	sl_list_init(&taken);
	for (unsigned i = 0; i < 3; i++)
		sl_queue_push(&queue, &plain[i], false);
	for (unsigned i = 0; i < 9; i++)
		sl_queue_push(&queue, &urgent[i], true);
	assert_int_equal(sl_queue_take(&queue, &taken, 12), 12);
	sl_list_each (link, &taken) {
		struct sl_list *expected = at % 4 == 3 ? &plain[at / 4] : &urgent[at - at / 4];

		assert_ptr_equal(link, expected);
		at++;
	}
	sl_queue_push(&queue, &urgent[0], true);
	sl_queue_close(&queue);
	assert_false(sl_queue_closed(&queue));
	assert_int_equal(sl_queue_take(&queue, &taken, 12), 1);
	assert_true(sl_queue_closed(&queue));
	sl_queue_destroy(&queue);
}

struct bell {
	struct sl_mutex mutex;
	pthread_cond_t condition;
	unsigned waiting, rung, heard;
};

/* Hears each ring once: without a signal for each it would wait for ever. */
static void *listen_to(void *argument)
{
	struct bell *bell = argument;

	sl_mutex_lock(&bell->mutex);
	bell->waiting++;
	while (!bell->rung)
		sl_cond_wait(&bell->condition, &bell->mutex, SL_FOREVER);
	bell->rung--;
	bell->heard++;
	sl_mutex_unlock(&bell->mutex);
	return NULL;
}

static void ring(struct bell *bell)
{
	sl_mutex_lock(&bell->mutex);
	bell->rung++;
	sl_mutex_unlock(&bell->mutex);
	sl_signal(&bell->condition);
}

/* Returns when so many threads wait. */
static void await_listeners(struct bell *bell, unsigned count)
{
	bool there;

	do {
		usleep(100);
		sl_mutex_lock(&bell->mutex);
		there = bell->waiting == count;
		sl_mutex_unlock(&bell->mutex);
	} while (!there);
}

static struct bell bells[2];
static pthread_t listeners[4];

static void *ring_later(void *argument)
{
	bool *right = argument;

	sl_signals_hold();
	for (int i = 0; i < 3; i++)
		ring(&bells[0]);
	*right = sl_signals_owed() == 3;
	/* Of another condition: at once. */
	ring(&bells[1]);
	pthread_join(listeners[3], NULL);
	*right = *right && sl_signals_owed() == 3;
	sl_signals_send();
	*right = *right && !sl_signals_owed();
	return NULL;
}

TEST(signals_that_a_thread_holds_back_are_sent_for_each_waiter)
{
	pthread_t ringer;
	bool right = false;

	for (int i = 0; i < 2; i++) {
		sl_mutex_init(&bells[i].mutex);
		pthread_cond_init(&bells[i].condition, NULL);
	}
	for (int i = 0; i < 4; i++)
		assert_int_equal(pthread_create(&listeners[i], NULL, listen_to, &bells[i / 3]), 0);
	await_listeners(&bells[0], 3);
	await_listeners(&bells[1], 1);
	assert_int_equal(pthread_create(&ringer, NULL, ring_later, &right), 0);
	pthread_join(ringer, NULL);
	for (int i = 0; i < 3; i++)
		pthread_join(listeners[i], NULL);
	assert_true(right);
	assert_int_equal(bells[0].heard, 3);
}

TEST(a_wait_on_a_word_ends_at_its_deadline)
{
	_Atomic uint32_t word = 7;
	int64_t start = sl_now();

	assert_int_equal(sl_word_wait(&word, 7, start + 20000000), -ETIMEDOUT);
	assert_true(sl_now() - start >= 20000000);
	/* Not the expected value: no wait. */
	assert_int_equal(sl_word_wait(&word, 8, SL_FOREVER), 0);
}

/* ------------------------------------------------------------------------------- a new name */

static int rename_error, link_error,
	replace_error;    /* of renameat2(), link() and rename(); 0: the kernel decides */
static const char *thief; /* a file that takes the name before rename() fails */

int __real_renameat2(int a, const char *from, int b, const char *to, unsigned flags);
int __wrap_renameat2(int a, const char *from, int b, const char *to, unsigned flags);
int __real_link(const char *from, const char *to);
int __wrap_link(const char *from, const char *to);
int __real_rename(const char *from, const char *to);
int __wrap_rename(const char *from, const char *to);

int __wrap_renameat2(int a, const char *from, int b, const char *to, unsigned flags)
{
	errno = rename_error;
	return errno ? -1 : __real_renameat2(a, from, b, to, flags);
}

int __wrap_link(const char *from, const char *to)
{
	errno = link_error;
	return errno ? -1 : __real_link(from, to);
}

int __wrap_rename(const char *from, const char *to)
{
	if (replace_error && thief)
		assert_int_equal(__real_rename(thief, to), 0);
	errno = replace_error;
	return errno ? -1 : __real_rename(from, to);
}

static char from[300], to[300], other[300];

static void make(const char *path, const char *text)
{
	FILE *file = fopen(path, "w");

	assert_non_null(file);
	fputs(text, file);
	assert_int_equal(fclose(file), 0);
}

static void check_text(const char *path, const char *text)
{
	char there[32] = "";
	FILE *file = fopen(path, "r");

	assert_non_null(file);
	there[fread(there, 1, sizeof(there) - 1, file)] = '\0';
	fclose(file);
	assert_string_equal(there, text);
}

/* Gives a file its name with these errors of the calls that could. */
static int give_name(int of_rename, int of_link, int of_replace)
{
	int rc;

	rename_error = of_rename;
	link_error = of_link;
	replace_error = of_replace;
	rc = sl_rename_to_new(from, to);
	rename_error = link_error = replace_error = 0;
	return rc;
}

static int name_setup(void **state)
{
	const char *folder = getenv("SLUICE_TEST_DIR");

	(void)state;
	folder = folder ? folder : "/tmp";
	snprintf(from, sizeof(from), "%s/core-from.%d", folder, getpid());
	snprintf(to, sizeof(to), "%s/core-to.%d", folder, getpid());
	snprintf(other, sizeof(other), "%s/core-other.%d", folder, getpid());
	thief = NULL;
	make(from, "bytes");
	return 0;
}

static int name_teardown(void **state)
{
	(void)state;
	unlink(from);
	unlink(to);
	unlink(other);
	return 0;
}

#define NAME_TEST(name) TEST_WITH(name, name_setup, name_teardown)

static const int lacks[] = {0, EINVAL, ENOSYS, EPERM, EOPNOTSUPP, ENOTTY, EMLINK};

NAME_TEST(a_new_name_needs_neither_renameat2_nor_links)
{
	for (size_t i = 0; i < sizeof(lacks) / sizeof(lacks[0]); i++)
		for (size_t j = 0; j < sizeof(lacks) / sizeof(lacks[0]); j++) {
			make(from, "bytes");
			assert_int_equal(give_name(lacks[i], lacks[j], 0), 0);
			check_text(to, "bytes");
			assert_int_equal(access(from, F_OK), -1);
			make(from, "other");
			assert_int_equal(give_name(lacks[i], lacks[j], 0), -EEXIST);
			check_text(to, "bytes");
			check_text(from, "other");
			unlink(to);
		}
}

NAME_TEST(a_name_that_cannot_be_had_is_not_left_behind)
{
	assert_int_equal(give_name(EACCES, 0, 0), -EACCES);
	assert_int_equal(give_name(EINVAL, EROFS, 0), -EROFS);
	assert_int_equal(give_name(EINVAL, EPERM, EBUSY), -EBUSY);
	assert_int_equal(access(to, F_OK), -1);
	check_text(from, "bytes");
}

NAME_TEST(a_file_of_another_that_took_the_name_stays)
{
	thief = other;
	make(other, "");
	assert_int_equal(give_name(EINVAL, EPERM, EBUSY), -EBUSY);
	check_text(to, "");
	check_text(from, "bytes");
}

int main(void)
{
	return RUN_TESTS(NULL, NULL);
}
