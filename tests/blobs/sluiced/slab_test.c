/* SPDX-License-Identifier: Apache-2.0 */
/* What the memory costs in which small blobs lie, when nobody makes any there any more. SLUICED has 8 MiB. */
#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/daemon.h"

static int begin(void **state);
static int begin_briefly(void **state);
static int begin_roomy(void **state);
static int begin_with_files(void **state);
static int begin_with_little(void **state);
static int begin_with_nothing(void **state);

#define PROCESSES 100
#define TOGETHER  5
#define MADE      40 /* blobs, by each that leaves some of them */
#define LEFT      5
#define SMALL     60000 /* bytes, which take 64 KiB */

/* What the kernel has given for blobs that the server keeps. */
static uint64_t real_bytes(const struct daemon *d)
{
	char path[300], link[100];
	uint64_t bytes = 0;
	struct dirent *entry;
	struct stat st;
	DIR *dir;

	snprintf(path, sizeof(path), "/proc/%d/fd", (int)daemon_server(d, 0));
	dir = opendir(path);
	assert_non_null(dir);
	while ((entry = readdir(dir))) {
		ssize_t n = readlinkat(dirfd(dir), entry->d_name, link, sizeof(link) - 1);

		link[n > 0 ? n : 0] = '\0';
		if (strstr(link, "sluice-blob") && !fstatat(dirfd(dir), entry->d_name, &st, 0))
			bytes += (uint64_t)st.st_blocks * 512;
	}
	closedir(dir);
	return bytes;
}

/* Waits until so much is counted, and no more than that is there. */
static void await_memory(const struct daemon *d, uint64_t bytes)
{
	double until = seconds_now() + 20;

	while (stats_of(d->store).memory_bytes != bytes || real_bytes(d) > bytes) {
		if (seconds_now() > until)
			fail_msg("%llu counted, %llu there, and not %llu",
			         (unsigned long long)stats_of(d->store).memory_bytes,
			         (unsigned long long)real_bytes(d), (unsigned long long)bytes);
		sleep_ms(5);
	}
}

static void check(sluice_store *store, const char *name, size_t n)
{
	sluice_blob *blob = got(store, name);

	assert_blob(blob, name, n);
	assert_ok(sluice_blob_release(blob));
}

static void delete (sluice_store *store, const char *prefix, int i)
{
	assert_ok(sluice_blob_delete(store, named("%s/%d", prefix, i)));
}

/* Each second one says that it ends. */
static int put_one(const struct daemon *d, const char *argument)
{
	sluice_store *store;

	if (sluice_store_open(d->path, NULL, &store) ||
	    sluice_blob_release(put(store, named("one/%s", argument), 100, 0)))
		return 1;
	return atoi(argument) % 2 ? 0 : -sluice_store_close(store);
}

static void start_all(const struct daemon *d, const char *role, int count)
{
	pid_t pids[TOGETHER];
	char number[20];

	for (int i = 0; i < count; i += TOGETHER) {
		for (int k = 0; k < TOGETHER; k++) {
			snprintf(number, sizeof(number), "%d", i + k);
			pids[k] = child_start(role, d, number);
		}
		for (int k = 0; k < TOGETHER; k++)
			assert_int_equal(child_status(pids[k]), 0);
	}
}

DAEMON_TEST_WITH(ended_process_costs_only_its_remains, begin, daemon_teardown)
{
	char name[40];

	start_all(d, "put_one", PROCESSES);
	await_memory(d, PROCESSES * 4096);
	assert_int_equal(stats_of(d->store).warm_bytes, 0);
	for (int i = 0; i < PROCESSES; i++)
		check(d->store, named("one/%d", i), 100);
	for (int i = 0; i < PROCESSES / 2; i++)
		delete (d->store, "one", i);
	await_memory(d, PROCESSES / 2 * 4096);
	daemon_replace_server(d);
	await_memory(d, PROCESSES / 2 * 4096);
	for (int i = PROCESSES / 2; i < PROCESSES; i++) {
		snprintf(name, sizeof(name), "one/%d", i);
		check(d->store, name, 100);
		assert_ok(sluice_blob_delete(d->store, name));
	}
	assert_idle(d->store);
	await_memory(d, 0);
}

static void make_some(sluice_store *store, const char *prefix)
{
	for (int i = 0; i < MADE; i++)
		assert_ok(sluice_blob_release(put(store, named("%s/%d", prefix, i), SMALL, 0)));
	/* What is left lies here and there. */
	for (int i = 0; i < MADE; i++)
		if (i % (MADE / LEFT))
			delete (store, prefix, i);
}

static void check_some(sluice_store *store, const char *prefix)
{
	for (int i = 0; i < MADE; i += MADE / LEFT)
		check(store, named("%s/%d", prefix, i), SMALL);
}

static void delete_some(sluice_store *store, const char *prefix)
{
	for (int i = 0; i < MADE; i += MADE / LEFT)
		delete (store, prefix, i);
}

DAEMON_TEST_WITH(after_the_server_free_places_of_the_living_cost_nothing, begin, daemon_teardown)
{
	make_some(d->store, "some");
	assert_int_equal(stats_of(d->store).memory_bytes, 4 * MIB);
	daemon_replace_server(d);
	await_memory(d, LEFT * 65536);
	check_some(d->store, "some");
	/* In new memory. */
	make_some(d->store, "more");
	assert_int_equal(stats_of(d->store).memory_bytes, 4 * MIB + LEFT * 65536);
	check_some(d->store, "some");
	check_some(d->store, "more");
	delete_some(d->store, "some");
	delete_some(d->store, "more");
	assert_idle(d->store);
}

static int leave_some(const struct daemon *d, const char *argument)
{
	sluice_store *store;

	if (sluice_store_open(d->path, NULL, &store))
		return 1;
	make_some(store, argument);
	return 0;
}

DAEMON_TEST_WITH(unheld_blobs_leave_memory_and_come_back, begin_with_files, daemon_teardown)
{
	char prefix[20];

	/* One at a time: each has 4 MiB while it is at work. */
	for (int i = 0; i < 10; i++) {
		snprintf(prefix, sizeof(prefix), "%d", i);
		assert_int_equal(child_status(child_start("leave_some", d, prefix)), 0);
	}
	/* Its memory does not stay for others. */
	assert_ok(sluice_blob_release(put(d->store, "large", 6 * MIB, 0)));
	assert_true(stats_of(d->store).spilled >= 4 * LEFT);
	assert_true(stats_of(d->store).memory_bytes <= 8 * MIB);
	assert_ok(sluice_blob_delete(d->store, "large"));
	/* What goes while it is away does not come back. */
	assert_ok(sluice_blob_delete(d->store, "0/0"));
	for (int i = 1; i < 10; i++) {
		snprintf(prefix, sizeof(prefix), "%d", i);
		check_some(d->store, prefix);
	}
	check(d->store, "0/8", SMALL);
	await_memory(d, (10 * LEFT - 1) * 65536);
	assert_int_equal(stats_of(d->store).spilled, 0);
	daemon_replace_server(d);
	await_memory(d, (10 * LEFT - 1) * 65536);
	for (int i = 1; i < 10; i++) {
		snprintf(prefix, sizeof(prefix), "%d", i);
		delete_some(d->store, prefix);
	}
	for (int i = 8; i < MADE; i += MADE / LEFT)
		delete (d->store, "0", i);
	assert_idle(d->store);
	await_memory(d, 0);
}

/* Makes blobs of which no memory is left but what is kept, or leased. */
static void make_and_delete(sluice_store *store)
{
	for (int i = 0; i < 3; i++) {
		assert_ok(sluice_blob_release(put(store, named("large/%d", i), 4 * MIB, 0)));
		assert_ok(sluice_blob_release(put(store, named("small/%d", i), SMALL, 0)));
	}
	for (int i = 0; i < 3; i++) {
		delete (store, "large", i);
		delete (store, "small", i);
	}
	assert_idle_but(store, 1);
}

DAEMON_TEST_WITH(unused_memory_goes_back_after_a_while, begin_briefly, daemon_teardown)
{
	sluice_store *other = daemon_connect(d);

	make_and_delete(other);
	assert_ok(sluice_store_close(other));
	await_memory(d, 0);
}

DAEMON_TEST_WITH(kept_memory_goes_back_on_request, begin_roomy, daemon_teardown)
{
	uint64_t kept, freed = 0;

	make_and_delete(d->store);
	kept = stats_of(d->store).memory_bytes;
	assert_true(kept >= 12 * MIB);
	assert_ok(sluice_store_trim(d->store, &freed));
	assert_int_equal(freed, kept);
	await_memory(d, 0);
	assert_ok(sluice_store_trim(d->store, NULL));
	make_and_delete(d->store);
}

DAEMON_TEST_WITH(no_more_is_kept_than_may_be, begin_with_little, daemon_teardown)
{
	sluice_store *other = daemon_connect(d);

	for (int i = 0; i < 3; i++)
		assert_ok(sluice_blob_release(put(other, i ? i > 1 ? "c" : "b" : "a", 4 * MIB, 0)));
	for (int i = 0; i < 3; i++)
		assert_ok(sluice_blob_delete(other, i ? i > 1 ? "c" : "b" : "a"));
	assert_ok(sluice_store_close(other));
	await_memory(d, 4 * MIB);
}

DAEMON_TEST_WITH(slab_keeps_nothing_with_keep_0, begin_with_nothing, daemon_teardown)
{
	sluice_store *other = daemon_connect(d);

	make_and_delete(other);
	assert_ok(sluice_store_close(other));
	await_memory(d, 0);
}

static const char *const plain[] = {"--memory", "8M", NULL};
static char folder[200];
static const char *const spilling[] = {"--memory", "8M", "--spill", folder, NULL};

static int begin(void **state)
{
	daemon_options = plain;
	return daemon_setup(state);
}

static int begin_roomy(void **state)
{
	static const char *const options[] = {"--memory", "64M", NULL};

	daemon_options = options;
	return daemon_setup(state);
}

static int begin_briefly(void **state)
{
	static const char *const options[] = {"--memory", "64M", "--keep-time", "1", NULL};

	daemon_options = options;
	return daemon_setup(state);
}

static int begin_with_little(void **state)
{
	static const char *const options[] = {"--memory", "64M", "--keep", "6M", NULL};

	daemon_options = options;
	return daemon_setup(state);
}

static int begin_with_nothing(void **state)
{
	static const char *const options[] = {"--memory", "64M", "--keep", "0", NULL};

	daemon_options = options;
	return daemon_setup(state);
}

static int begin_with_files(void **state)
{
	daemon_options = spilling;
	return daemon_setup(state);
}

int main(int argc, char **argv)
{
	static const struct child_role roles[] = {
		{"put_one", put_one}, {"leave_some", leave_some}, {NULL, NULL}};

	child_run(argc, argv, roles);
	row_start(1, argv);
	/* The files in it have no names. */
	snprintf(folder, sizeof(folder), "%s", getenv("SLUICE_TEST_DIR"));
	return RUN_TESTS(NULL, NULL);
}
