/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Throws messages at a daemon: of all types, in any order, changed or not, with descriptors where they belong and where
 * they do not. The numbers in them are those that the daemon has given out, to whomever, so that they reach what the
 * library's order of messages keeps apart. The clients are processes of their own that die; meanwhile a client of the
 * library has its answers, and after them the daemon has nothing of theirs. Arguments: seconds; and "spill" for a daemon
 * with files.
 */
#include <dirent.h>
#include <inttypes.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fuzz/daemon_fuzz.h"

enum { HANG_SECONDS = 100 };

static struct daemon *daemon_of_all;
static uint64_t rounds, answers;
static double longest;

static void hang(int signal)
{
	static const char text[] = "the daemon does not answer\n";

	(void)signal;
	(void)!write(STDERR_FILENO, text, sizeof(text) - 1);
	abort();
}

static void measure(double begun)
{
	longest = SL_MAX(longest, seconds_now() - begun);
	answers++;
}

/* A client that keeps to the protocol: each call has an answer, and its bytes are its own. */
static void use_store(sluice_store *store, unsigned i)
{
	double begun = seconds_now();
	sluice_blob *blob = NULL, *read = NULL;
	int rc = try_put(store, named("good/%u", i % 4), 1000 + i % 100000, SLUICE_BLOB_REPLACE,
	                 &blob);

	measure(begun);
	if (rc && rc != -ENOSPC && rc != -EDQUOT && rc != -ENFILE && rc != -ECONNRESET &&
	    rc != -EEXIST)
		fail_msg("put: %d: %s", rc, sluice_last_message());
	if (!rc && sluice_blob_data(blob) &&
	    !blob_is(blob, named("good/%u", i % 4), 1000 + i % 100000))
		fail_msg("other bytes");
	begun = seconds_now();
	rc = sluice_blob_get(store, named("good/%u", i % 4), 0, &read);
	measure(begun);
	if (rc && rc != -ENOENT)
		fail_msg("get: %d: %s", rc, sluice_last_message());
	if (!rc && !blob_is(read, named("good/%u", i % 4), sluice_blob_size(read)))
		fail_msg("other bytes");
	sluice_blob_release(read);
	sluice_blob_release(blob);
	if (longest > PATIENCE)
		fail_msg("an answer took %.1f s", longest);
}

/* No server has died but those that were upgraded; two upgrades at once may end the same one. */
static void assert_no_death(sluice_store *store)
{
	struct sluice_store_counts stats = stats_of(store);

	if (stats.replacements > stats.upgrades)
		fail_msg("a server has died in round %" PRIu64, rounds);
}

static void delete_all(sluice_store *store)
{
	struct sluice_blob_info infos[64];
	uint64_t cursor = 0;
	int n;

	do {
		infos[0].size = sizeof(infos[0]);
		n = sluice_blob_list(store, "", &cursor, infos, COUNT_OF(infos));
		assert_true(n >= 0);
		for (int i = 0; i < n; i++)
			sluice_blob_delete_id(store, infos[i].id);
	} while (n);
}

static void throw_some(void)
{
	sluice_store *store = daemon_of_all->store;
	pid_t pid, parent = getpid();
	int status;

	alarm(HANG_SECONDS);
	rounds++;
	fflush(NULL);
	pid = fork();
	assert_true(pid >= 0);
	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (getppid() == parent)
			fuzz_clients(daemon_of_all, rng_new(rounds));
		_exit(1);
	}
	for (unsigned i = 0; !waitpid(pid, &status, WNOHANG); i++)
		use_store(store, i);
	if (!WIFEXITED(status) || WEXITSTATUS(status))
		fail_msg("the clients have failed");
	assert_no_death(store);
	delete_all(store);
	alarm(0);
}

static size_t descriptors_of(pid_t pid)
{
	char path[64];
	size_t n = 0;
	DIR *dir;

	snprintf(path, sizeof(path), "/proc/%d/fd", (int)pid);
	dir = opendir(path);
	assert_non_null(dir);
	while (readdir(dir))
		n++;
	closedir(dir);
	return n;
}

/* Its own memory, which no other process has mapped. */
static size_t memory_of(pid_t pid)
{
	unsigned long resident = 0, shared = 0;
	char path[64];
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/statm", (int)pid);
	f = fopen(path, "re");
	assert_non_null(f);
	if (fscanf(f, "%*u %lu %lu", &resident, &shared) != 2)
		fail_msg("%s cannot be read", path);
	fclose(f);
	return (resident - shared) * 4096;
}

/* All that the clients had is gone: blobs, leases, regions of devices, connections; descriptors and memory, too. */
static void assert_nothing_left(sluice_store *store, size_t descriptors)
{
	double until = seconds_now() + 20;
	struct sluice_store_counts stats;
	uint64_t freed;
	size_t now;

	delete_all(store);
	assert_idle(store);
	do {
		assert_ok(sluice_store_trim(store, &freed));
		stats = stats_of(store);
		now = descriptors_of((pid_t)stats.server);
		sleep_ms(5);
	} while ((now > descriptors || stats.memory_bytes || stats.leased_bytes) &&
	         seconds_now() < until);
	if (now > descriptors || stats.memory_bytes || stats.leased_bytes || stats.waiting)
		fail_msg("%zu descriptors are left of %zu, %llu bytes, %llu leased, %llu waits",
		         now, descriptors, (unsigned long long)stats.memory_bytes,
		         (unsigned long long)stats.leased_bytes, (unsigned long long)stats.waiting);
}

static double seconds = 1;

TEST(daemon_withstands_all_messages)
{
	size_t descriptors, memory;
	struct sluice_store_counts stats;
	double until = seconds_now() + seconds;

	daemon_setup((void **)&daemon_of_all);
	/* After the first, the daemon has all that it keeps. */
	throw_some();
	assert_nothing_left(daemon_of_all->store, SIZE_MAX);
	stats = stats_of(daemon_of_all->store);
	descriptors = descriptors_of((pid_t)stats.server);
	memory = memory_of((pid_t)stats.server);
	while (seconds_now() < until)
		throw_some();
	assert_nothing_left(daemon_of_all->store, descriptors);
	stats = stats_of(daemon_of_all->store);
	if (!under_sanitizer())
		assert_true(memory_of((pid_t)stats.server) <= memory + 4 * MIB);
	print_message("up to round %" PRIu64
	              " of %d messages: %llu requests, %llu refused; %" PRIu64
	              " answers, the last after %.3f s at most\n",
	              rounds, MESSAGES, (unsigned long long)stats.requests,
	              (unsigned long long)stats.refused, answers, longest);
	daemon_teardown((void **)&daemon_of_all);
}

int main(int argc, char **argv)
{
	static char folder[200];
	static const char *const options[] = {"--memory", "64M", "--clients", "200", NULL};
	/* So little that much of it is in files. */
	static const char *const spilling[] = {"--memory", "8M",   "--clients", "200",
	                                       "--spill",  folder, NULL};
	bool spills = argc > 2 && !strcmp(argv[2], "spill");
	int failed;

	signal(SIGALRM, hang);
	if (argc > 1)
		seconds = atof(argv[1]);
	row_start(1, argv);
	snprintf(folder, sizeof(folder), "%s/fuzz-%d", getenv("SLUICE_TEST_DIR"), (int)getpid());
	daemon_options = spills ? spilling : options;
	if (spills && mkdir(folder, 0700))
		return 1;
	failed = RUN_TESTS(NULL, NULL);
	if (spills)
		rmdir(folder);
	return failed;
}
