/* SPDX-License-Identifier: Apache-2.0 */
/* Blobs that leave memory for files, and come back. SLUICED has 64 MiB. */
#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/daemon.h"

static char folder[200];

/* Waits until a count of the server is as it is to be. */
#define await(store, condition)                                           \
	do {                                                              \
		double until = seconds_now() + 20;                        \
		struct sluice_store_counts s;                             \
		while (s = stats_of(store), !(condition)) {               \
			if (seconds_now() > until)                        \
				fail_msg("%s does not come", #condition); \
			sleep_ms(2);                                      \
		}                                                         \
	} while (0)

static void put_away(sluice_store *store, const char *name, size_t n, unsigned flags)
{
	assert_ok(sluice_blob_release(put(store, name, n, flags)));
}

static int state_of(sluice_store *store, const char *name)
{
	struct sluice_blob_info info = {.size = sizeof(info)};

	assert_ok(sluice_blob_stat(store, name, &info));
	assert_int_equal(info.memory == 0, info.state == SLUICE_BLOB_IS_SPILLED);
	return info.state;
}

static void check(sluice_store *store, const char *name, size_t n)
{
	sluice_blob *blob = got(store, name);

	assert_blob(blob, name, n);
	assert_ok(sluice_blob_release(blob));
}

static void assert_nothing_left(sluice_store *store)
{
	assert_idle(store);
	await(store, s.spilled == 0 && s.spilled_bytes == 0);
}

/* Fills memory with what may go. */
static void fill(sluice_store *store, const char *prefix, unsigned count, size_t n)
{
	for (unsigned i = 0; i < count; i++)
		put_away(store, named("%s/%u", prefix, i), n, 0);
}

static void delete_all(sluice_store *store, const char *prefix, unsigned count)
{
	for (unsigned i = 0; i < count; i++)
		assert_ok(sluice_blob_delete(store, named("%s/%u", prefix, i)));
}

static size_t size_of(unsigned i)
{
	static const size_t sizes[] = {1, 4096, 5000, 65536, 65537, 300000, 1000001, 5000000};

	return sizes[i % COUNT_OF(sizes)] + i;
}

DAEMON_TEST(spilled_blob_comes_back_with_its_bytes)
{
	struct sluice_store_counts stats;
	char name[40];

	for (unsigned i = 0; i < 240; i++)
		put_away(d->store, named("b/%u", i), size_of(i), 0);
	stats = stats_of(d->store);
	assert_int_equal(stats.sealed, 240);
	assert_true(stats.spilled > 20);
	assert_true(stats.spilled_bytes > 100 * MIB);
	assert_true(stats.memory_bytes <= 64 * MIB);
	for (unsigned i = 0; i < 480; i++) {
		unsigned k = i * 77 % 240;

		snprintf(name, sizeof(name), "b/%u", k);
		assert_int_equal(sluice_blob_exists(d->store, name), 1);
		check(d->store, name, size_of(k));
		assert_true(stats_of(d->store).memory_bytes <= 64 * MIB);
	}
	stats = stats_of(d->store);
	assert_true(stats.returns > 20);
	assert_int_equal(stats.spill_failures, 0);
	assert_int_equal(stats.dropped, 0);
	delete_all(d->store, "b", 240);
	assert_nothing_left(d->store);
}

DAEMON_TEST(held_or_pinned_blob_stays)
{
	sluice_blob *held = put(d->store, "held", 9 * MIB, 0);

	put_away(d->store, "pinned", 9 * MIB, SLUICE_BLOB_PIN);
	put_away(d->store, "late", 9 * MIB, 0);
	assert_ok(sluice_blob_pin(d->store, "late", 1));
	fill(d->store, "b", 20, 9 * MIB);
	assert_true(stats_of(d->store).spilled >= 16);
	assert_int_equal(state_of(d->store, "held"), SLUICE_BLOB_IS_SEALED);
	assert_int_equal(state_of(d->store, "pinned"), SLUICE_BLOB_IS_SEALED);
	assert_int_equal(state_of(d->store, "late"), SLUICE_BLOB_IS_SEALED);
	assert_blob(held, "held", 9 * MIB);
	assert_ok(sluice_blob_release(held));
	assert_ok(sluice_blob_pin(d->store, "pinned", 0));
	assert_ok(sluice_blob_pin(d->store, "late", 0));
	fill(d->store, "c", 8, 9 * MIB);
	assert_int_equal(state_of(d->store, "held"), SLUICE_BLOB_IS_SPILLED);
	assert_int_equal(state_of(d->store, "pinned"), SLUICE_BLOB_IS_SPILLED);
	assert_int_equal(state_of(d->store, "late"), SLUICE_BLOB_IS_SPILLED);
	/* To pin brings back, */
	assert_ok(sluice_blob_pin(d->store, "pinned", 1));
	assert_int_equal(state_of(d->store, "pinned"), SLUICE_BLOB_IS_SEALED);
	fill(d->store, "e", 8, 9 * MIB);
	assert_int_equal(state_of(d->store, "pinned"), SLUICE_BLOB_IS_SEALED);
	check(d->store, "pinned", 9 * MIB);
	check(d->store, "held", 9 * MIB);
	check(d->store, "late", 9 * MIB);
	assert_ok(sluice_blob_delete(d->store, "held"));
	assert_ok(sluice_blob_delete(d->store, "pinned"));
	assert_ok(sluice_blob_delete(d->store, "late"));
	delete_all(d->store, "b", 20);
	delete_all(d->store, "c", 8);
	delete_all(d->store, "e", 8);
	assert_nothing_left(d->store);
}

/* How many of its pages are in memory; -1: it is not mapped. */
static long resident(void *data, size_t n)
{
	unsigned char pages[4096];
	long count = 0;

	assert_true(n / 4096 <= sizeof(pages));
	if (mincore(data, n, pages))
		return -1;
	for (size_t i = 0; i < n / 4096; i++)
		count += pages[i] & 1;
	return count;
}

DAEMON_TEST(memory_that_was_left_is_free_though_it_is_mapped)
{
	sluice_blob *blob = put(d->store, "plain", 8 * MIB, 0), *read;
	void *written = (void *)(uintptr_t)sluice_blob_data(blob), *mapped;

	read = got(d->store, "plain");
	mapped = (void *)(uintptr_t)sluice_blob_data(read);
	assert_ok(sluice_blob_release(blob));
	assert_ok(sluice_blob_release(read));
	/* The library keeps both mapped. */
	assert_int_equal(resident(written, 8 * MIB), 2048);
	assert_int_equal(resident(mapped, 8 * MIB), 2048);
	fill(d->store, "b", 10, 9 * MIB);
	assert_int_equal(state_of(d->store, "plain"), SLUICE_BLOB_IS_SPILLED);
	/* The server gives the memory back behind the state. */
	for (int i = 0; i < 500 && resident(written, 8 * MIB); i++)
		sleep_ms(10);
	assert_int_equal(resident(written, 8 * MIB), 0);
	assert_int_equal(resident(mapped, 8 * MIB), 0);
	check(d->store, "plain", 8 * MIB);
	assert_ok(sluice_blob_delete(d->store, "plain"));
	delete_all(d->store, "b", 10);
	assert_nothing_left(d->store);
}

DAEMON_TEST(caches_are_dropped_and_not_spilled)
{
	put_away(d->store, "cache", 20 * MIB, SLUICE_BLOB_CACHE);
	put_away(d->store, "plain", 20 * MIB, 0);
	put_away(d->store, "new", 30 * MIB, 0);
	assert_int_equal(sluice_blob_exists(d->store, "cache"), 0);
	assert_int_equal(stats_of(d->store).dropped, 1);
	assert_int_equal(stats_of(d->store).spilled, 0);
	assert_ok(sluice_blob_delete(d->store, "plain"));
	assert_ok(sluice_blob_delete(d->store, "new"));
	assert_nothing_left(d->store);
}

DAEMON_TEST(holder_of_all_memory_is_named)
{
	sluice_blob *blobs[6], *more;

	for (unsigned i = 0; i < 6; i++)
		blobs[i] = put(d->store, named("h/%u", i), 10 * MIB, 0);
	assert_refused(try_put(d->store, "more", 10 * MIB, 0, &more), ENOSPC, "held, pinned");
	assert_refused(try_put(d->store, "more", 100 * MIB, 0, &more), ENOSPC, "held, pinned");
	/* What is away, and has no place in memory, stays as it is. */
	assert_ok(sluice_blob_release(blobs[0]));
	more = put(d->store, "more", 10 * MIB, 0);
	assert_int_equal(state_of(d->store, "h/0"), SLUICE_BLOB_IS_SPILLED);
	assert_refused(sluice_blob_get(d->store, "h/0", 0, &blobs[0]), ENOSPC, "'h/0' is spilled");
	assert_refused(sluice_blob_pin(d->store, "h/0", 1), ENOSPC, "'h/0' is spilled");
	assert_int_equal(state_of(d->store, "h/0"), SLUICE_BLOB_IS_SPILLED);
	assert_ok(sluice_blob_release(more));
	check(d->store, "h/0", 10 * MIB);
	for (unsigned i = 1; i < 6; i++)
		assert_ok(sluice_blob_release(blobs[i]));
	delete_all(d->store, "h", 6);
	assert_ok(sluice_blob_delete(d->store, "more"));
	assert_nothing_left(d->store);
}

DAEMON_TEST(several_come_back_in_one_call_and_once)
{
	static const char *const names[] = {"b/0", "b/1", "b/2", "b/3"};
	sluice_blob *blobs[4];

	/* Small ones share a region. */
	for (unsigned i = 0; i < 64; i++)
		put_away(d->store, named("s/%u", i), 3000, 0);
	fill(d->store, "b", 20, 9 * MIB);
	for (unsigned i = 0; i < 4; i++)
		assert_int_equal(state_of(d->store, names[i]), SLUICE_BLOB_IS_SPILLED);
	assert_ok(sluice_blob_get_many(d->store, names, 4, 0, blobs));
	for (unsigned i = 0; i < 4; i++)
		assert_blob(blobs[i], names[i], 9 * MIB);
	/* More than there is memory for: refused, and nothing waits for ever. */
	assert_ok(sluice_blob_release_many(blobs, 4));
	{
		static const char *const all[] = {"b/0", "b/1", "b/2", "b/3", "b/4",
		                                  "b/5", "b/6", "b/7", "b/8", "b/9"};
		sluice_blob *many[10];

		assert_int_equal(sluice_blob_get_many(d->store, all, 10, -1, many), -ENOSPC);
	}
	for (unsigned i = 0; i < 64; i++)
		check(d->store, named("s/%u", i), 3000);
	delete_all(d->store, "s", 64);
	delete_all(d->store, "b", 20);
	assert_nothing_left(d->store);
}

DAEMON_TEST(spilled_blob_can_be_deleted)
{
	struct sluice_watch_event e = {.size = sizeof(e)};
	sluice_watch *watch;
	sluice_blob *blob;

	fill(d->store, "b", 20, 9 * MIB);
	assert_int_equal(state_of(d->store, "b/0"), SLUICE_BLOB_IS_SPILLED);
	assert_ok(sluice_watch_open(d->store, "b/0", &watch));
	assert_ok(sluice_blob_delete(d->store, "b/0"));
	assert_ok(sluice_watch_next(watch, 5000, &e));
	assert_int_equal(e.kind, SLUICE_WATCH_DELETED);
	sluice_watch_free(watch);
	assert_int_equal(sluice_blob_get(d->store, "b/0", 0, &blob), -ENOENT);
	put_away(d->store, "b/0", 100, 0);
	check(d->store, "b/0", 100);
	delete_all(d->store, "b", 20);
	assert_nothing_left(d->store);
}

/* Calls act with each descriptor of the server whose target begins so; how many it said yes to. */
static unsigned each_descriptor(const struct daemon *d, const char *begin,
                                bool (*act)(const char *path))
{
	pid_t server = daemon_server(d, 0);
	char path[300], target[300];
	struct dirent *e;
	unsigned count = 0;
	DIR *fds;

	snprintf(path, sizeof(path), "/proc/%d/fd", (int)server);
	fds = opendir(path);
	assert_non_null(fds);
	while ((e = readdir(fds))) {
		ssize_t n;

		snprintf(path, sizeof(path), "/proc/%d/fd/%s", (int)server, e->d_name);
		n = readlink(path, target, sizeof(target) - 1);
		if (n <= 0)
			continue;
		target[n] = '\0';
		count += strncmp(target, begin, strlen(begin)) == 0 && act(path);
	}
	closedir(fds);
	return count;
}

static bool cut(const char *path)
{
	return truncate(path, 4096) == 0;
}

DAEMON_TEST(spill_file_lost_by_the_disk_is_an_error_and_nothing_else)
{
	sluice_blob *blob;

	fill(d->store, "b", 10, 9 * MIB);
	assert_int_equal(state_of(d->store, "b/0"), SLUICE_BLOB_IS_SPILLED);
	/* The disk has lost what is in the files. */
	assert_true(each_descriptor(d, folder, cut) > 0);
	assert_refused(sluice_blob_get(d->store, "b/0", 0, &blob), EIO, "'b/0' is spilled");
	assert_refused(sluice_blob_get(d->store, "b/0", 1000, &blob), EIO, "bytes are there");
	assert_int_equal(state_of(d->store, "b/0"), SLUICE_BLOB_IS_SPILLED);
	check(d->store, "b/9", 9 * MIB);
	delete_all(d->store, "b", 10);
	assert_nothing_left(d->store);
}

DAEMON_TEST(the_folder_may_go)
{
	sluice_blob *more;

	fill(d->store, "b", 10, 9 * MIB);
	assert_true(stats_of(d->store).spilled > 0);
	assert_int_equal(rmdir(folder), 0);
	/* What is in files is there as long as the daemon. */
	assert_ok(sluice_blob_delete(d->store, "b/9"));
	check(d->store, "b/0", 9 * MIB);
	{
		int rc = 0;

		for (int i = 0; !rc && i < 20; i++) {
			rc = try_put(d->store, named("d/%d", i), 9 * MIB, SLUICE_BLOB_PIN, &more);
			if (!rc)
				assert_ok(sluice_blob_release(more));
		}
		assert_int_equal(rc, -ENOSPC);
	}
	assert_non_null(strstr(sluice_last_message(), folder));
	assert_non_null(strstr(sluice_last_message(), "No such file"));
	assert_true(stats_of(d->store).spill_failures > 0);
	assert_int_equal(mkdir(folder, 0700), 0);
	sleep_ms(1100);
	put_away(d->store, "again", 9 * MIB, 0);
	check(d->store, "again", 9 * MIB);
}

/* Fills memory and disk until that is refused; what was put is there, whole. */
static void fill_all(struct daemon *d, const char *why)
{
	unsigned count = 0;
	uint64_t most = 0;
	sluice_blob *blob;
	int rc;

	do {
		rc = try_put(d->store, named("b/%u", count), 9 * MIB, 0, &blob);
		if (!rc)
			assert_ok(sluice_blob_release(blob));
		if (stats_of(d->store).spilled_bytes > most)
			most = stats_of(d->store).spilled_bytes;
	} while (!rc && ++count < 100);
	assert_int_equal(rc, -ENOSPC);
	/* A copy counts from when it is begun, so a disk that is full has no limit here. */
	assert_true(most > 0 && most <= stats_of(d->store).spill_limit);
	if (!strstr(sluice_last_message(), why))
		fail_msg("%s", sluice_last_message());
	/* 7 fit into memory, 3 into the folder. */
	assert_int_equal(count, 10);
	assert_true(stats_of(d->store).spill_failures > 0);
	for (unsigned i = 0; i < count; i++)
		check(d->store, named("b/%u", i), 9 * MIB);
	await(d->store, s.memory_bytes <= s.memory_limit);
	/* There is place again: one goes for each that comes. */
	assert_ok(sluice_blob_delete(d->store, "b/0"));
	sleep_ms(1100);
	for (unsigned i = 1; i < count; i++)
		check(d->store, named("b/%u", i), 9 * MIB);
	for (unsigned i = 1; i < count; i++)
		assert_ok(sluice_blob_delete(d->store, named("b/%u", i)));
	assert_nothing_left(d->store);
}

/* The answer to its seal waits in its socket meanwhile, longer than for a client that runs. */
DAEMON_TEST(a_maker_that_is_stopped_in_its_seal_has_its_blob)
{
	pid_t server = daemon_server(d, 0), maker;
	int status, state, ready[2];
	char byte;

	assert_int_equal(pipe(ready), 0);
	maker = fork();
	if (!maker) {
		sluice_store *own;
		sluice_blob *blob;
		bool right = !sluice_store_open(d->path, NULL, &own) &&
		             !create_on(own, "made", 9 * MIB, -1, 0, &blob) &&
		             write(ready[1], "", 1) == 1;

		/* The server is stopped now, or soon. */
		sleep_ms(200);
		right = right && !sluice_blob_seal(blob) && blob_is(blob, "made", 9 * MIB);
		_exit(!right);
	}
	assert_int_equal(read(ready[0], &byte, 1), 1);
	kill(server, SIGSTOP);
	sleep_ms(500);
	kill(maker, SIGSTOP);
	assert_int_equal(waitpid(maker, &status, WUNTRACED), maker);
	assert_true(WIFSTOPPED(status));
	kill(server, SIGCONT);
	sleep_ms(1500);
	fill(d->store, "b", 12, 9 * MIB);
	state = state_of(d->store, "made");
	kill(maker, SIGCONT);
	assert_int_equal(child_status(maker), 0);
	assert_int_equal(state, SLUICE_BLOB_IS_SEALED);
	close(ready[0]);
	close(ready[1]);
	delete_all(d->store, "b", 12);
	assert_ok(sluice_blob_delete(d->store, "made"));
	assert_nothing_left(d->store);
}

TEST(a_full_disk_is_named_and_loses_nothing)
{
	char at[220];
	const char *const options[] = {"--memory", "64M", "--spill", at, NULL};
	const char *const *before = daemon_options;
	struct daemon *d;

	snprintf(at, sizeof(at), "%s-full", folder);
	assert_int_equal(mkdir(at, 0700), 0);
	if (unshare(CLONE_NEWNS) || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
	    mount("tmpfs", at, "tmpfs", 0, "size=30m")) {
		rmdir(at);
		print_message("a full disk is left out: nothing can be mounted here\n");
		skip();
	}
	daemon_options = options;
	daemon_setup((void **)&d);
	fill_all(d, "No space left");
	daemon_teardown((void **)&d);
	daemon_options = before;
	assert_int_equal(umount(at), 0);
	rmdir(at);
}

TEST(a_limit_is_kept)
{
	const char *const options[] = {"--memory",      "64M", "--spill", folder,
	                               "--spill-limit", "30M", NULL};
	const char *const *before = daemon_options;
	struct daemon *d;

	daemon_options = options;
	daemon_setup((void **)&d);
	assert_int_equal(stats_of(d->store).spill_limit, 30 * MIB);
	fill_all(d, "are in use there");
	daemon_teardown((void **)&d);
	daemon_options = before;
}

int main(int argc, char **argv)
{
	static const char *const options[] = {"--memory", "64M", "--spill", folder, NULL};
	int failed;

	row_start(1, argv);
	(void)argc;
	snprintf(folder, sizeof(folder), "%s/spill-%d", getenv("SLUICE_TEST_DIR"), (int)getpid());
	if (mkdir(folder, 0700))
		return 1;
	daemon_options = options;
	failed = RUN_TESTS(NULL, NULL);
	rmdir(folder);
	return failed;
}
