/* SPDX-License-Identifier: Apache-2.0 */
/* When memory, blobs or connections are short. */
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "lib/protocol_client.h"

DAEMON_TEST(memory_that_is_short_is_named)
{
	sluice_blob *blobs[4], *more;

	blobs[0] = put(d->store, "a", 20 * MIB, 0);
	blobs[1] = put(d->store, "b", 20 * MIB, 0);
	assert_refused(try_put(d->store, "c", 30 * MIB, 0, &more), ENOSPC, "process");
	/* What is deleted and held still counts. */
	assert_ok(sluice_blob_delete(d->store, "a"));
	assert_refused(try_put(d->store, "c", 30 * MIB, 0, &more), ENOSPC, "in use");
	assert_blob(blobs[0], "a", 20 * MIB);
	assert_ok(sluice_blob_release(blobs[0]));
	blobs[2] = put(d->store, "c", 30 * MIB, 0);
	assert_blob(blobs[2], "c", 30 * MIB);
	assert_blob(blobs[1], "b", 20 * MIB);
	assert_true(stats_of(d->store).memory_bytes <= 64 * MIB);
	assert_true(account_of(d->store).memory_bytes <= 64 * MIB);
	assert_ok(sluice_blob_release(blobs[1]));
	assert_let_go(blobs[2], d->store, "b");
	assert_ok(sluice_blob_delete(d->store, "c"));
	assert_idle(d->store);
}

DAEMON_TEST(memory_of_what_was_deleted_is_used_before_new_one)
{
	uint64_t memory = 0;

	for (int i = 0; i < 20; i++) {
		sluice_blob *blobs[2];

		for (int k = 0; k < 2; k++)
			assert_ok(sluice_blob_create(d->store, k ? "b" : "a", 2 * MIB, -1, NULL,
			                             &blobs[k]));
		for (int k = 0; k < 2; k++)
			assert_ok(sluice_blob_seal(blobs[k]));
		for (int k = 0; k < 2; k++)
			assert_ok(sluice_blob_release(blobs[k]));
		if (!memory)
			memory = stats_of(d->store).memory_bytes;
		assert_int_equal(stats_of(d->store).memory_bytes, memory);
		/* The second one comes too soon after the first for the server to look for holders again. */
		assert_ok(sluice_blob_delete(d->store, "a"));
		assert_ok(sluice_blob_delete(d->store, "b"));
	}
	assert_idle(d->store);
}

DAEMON_TEST(lease_cache_of_a_client_is_not_kept_from_others)
{
	sluice_store *other = daemon_connect(d);
	sluice_blob *blob;

	assert_ok(sluice_blob_create(d->store, "aborted", 40 * MIB, place(), NULL, &blob));
	assert_ok(sluice_blob_release(blob));
	for (size_t n = 1; n < 20; n++)
		for (int i = 0; i < 2; i++)
			assert_let_go(put(d->store, "x", n * MIB, 0), d->store, "x");
	blob = put(other, "y", 56 * MIB, 0);
	assert_let_go(blob, other, "y");
	assert_ok(sluice_store_close(other));
	assert_idle(d->store);
}

DAEMON_TEST(caches_go_first_but_not_what_is_held_or_pinned)
{
	sluice_blob *held, *blob, *newer;

	held = put(d->store, "held", 10 * MIB, SLUICE_BLOB_CACHE);
	assert_ok(sluice_blob_release(put(d->store, "pinned", 10 * MIB, SLUICE_BLOB_CACHE)));
	assert_ok(sluice_blob_pin(d->store, "pinned", 1));
	assert_ok(sluice_blob_release(put(d->store, "plain", 10 * MIB, 0)));
	assert_ok(sluice_blob_release(put(d->store, "cache", 20 * MIB, SLUICE_BLOB_CACHE)));
	blob = put(d->store, "new", 30 * MIB, 0);
	assert_int_equal(sluice_blob_exists(d->store, "cache"), 0);
	assert_int_equal(sluice_blob_exists(d->store, "held"), 1);
	assert_int_equal(sluice_blob_exists(d->store, "pinned"), 1);
	assert_int_equal(sluice_blob_exists(d->store, "plain"), 1);
	assert_int_equal(stats_of(d->store).dropped, 1);
	assert_blob(held, "held", 10 * MIB);
	assert_refused(try_put(d->store, "newer", 10 * MIB, 0, &newer), ENOSPC, "in use");
	assert_ok(sluice_blob_release(blob));
	assert_ok(sluice_blob_release(held));
	blob = put(d->store, "newer", 10 * MIB, 0);
	assert_int_equal(sluice_blob_exists(d->store, "held"), 0);
	assert_let_go(blob, d->store, "new");
	assert_ok(sluice_blob_delete(d->store, "newer"));
	assert_ok(sluice_blob_delete(d->store, "pinned"));
	assert_ok(sluice_blob_delete(d->store, "plain"));
	assert_idle(d->store);
}

DAEMON_TEST(blob_pinned_before_its_seal_stays_pinned)
{
	struct sluice_blob_options options = {.size = sizeof(options),
	                                      .flags = SLUICE_BLOB_RESERVE | SLUICE_BLOB_CACHE};
	struct sluice_blob_info info = {.size = sizeof(info)};
	sluice_blob *blob;

	assert_ok(sluice_blob_create(d->store, "x", 100, place(), &options, &blob));
	assert_ok(sluice_blob_pin(d->store, "x", 1));
	assert_ok(sluice_blob_seal(blob));
	assert_ok(sluice_blob_release(blob));
	assert_ok(sluice_blob_stat(d->store, "x", &info));
	assert_true(info.flags & SLUICE_BLOB_PIN);
	assert_ok(sluice_blob_delete(d->store, "x"));
	assert_idle(d->store);
}

DAEMON_TEST(for_what_can_never_be_nothing_goes)
{
	sluice_blob *blob;

	assert_ok(sluice_blob_release(put(d->store, "cache", 20 * MIB, SLUICE_BLOB_CACHE)));
	assert_refused(try_put(d->store, "huge", 65 * MIB, 0, &blob), ENOSPC, "in use");
	assert_int_equal(sluice_blob_exists(d->store, "cache"), 1);
	assert_int_equal(stats_of(d->store).dropped, 0);
	assert_ok(sluice_blob_delete(d->store, "cache"));
	assert_idle(d->store);
}

DAEMON_TEST(there_are_so_many_blobs)
{
	sluice_blob *blob;
	unsigned made = 0;
	int rc;

	do {
		rc = try_put(d->store, named("n%u", made), 10, 0, &blob);
		if (!rc)
			assert_ok(sluice_blob_release(blob));
	} while (!rc && ++made < 1000);
	assert_int_equal(rc, -EDQUOT);
	assert_int_equal(made, 64);
	for (unsigned i = 0; i < made; i++)
		assert_ok(sluice_blob_delete(d->store, named("n%u", i)));
	assert_idle(d->store);
	assert_let_go(put(d->store, "again", 10, 0), d->store, "again");
}

static int put_with_note(sluice_store *store, const char *name, size_t bytes, unsigned flags)
{
	static const char note[200];
	struct sluice_blob_metadata metadata = {
		.size = sizeof(metadata), .note = note, .note_bytes = bytes};
	struct sluice_blob_options options = {
		.size = sizeof(options), .flags = flags, .metadata = &metadata};
	sluice_blob *blob;
	int rc = sluice_blob_create(store, name, 10, place(), &options, &blob);

	if (rc)
		return rc;
	rc = sluice_blob_seal(blob);
	assert_ok(sluice_blob_release(blob));
	return rc;
}

DAEMON_TEST(so_many_blobs_have_much_metadata)
{
	for (unsigned i = 0; i < 8; i++)
		assert_ok(put_with_note(d->store, named("n%u", i), 113, 0));
	assert_refused(put_with_note(d->store, "more", 113, 0), EDQUOT,
	               "8 blobs have more than 136 bytes of metadata");
	assert_refused(put_with_note(d->store, "more", 200, SLUICE_BLOB_RESERVE), EDQUOT,
	               "of 64 blobs (--blobs)");
	/* That is no limit on others. */
	assert_ok(put_with_note(d->store, "more", 112, 0));
	assert_ok(sluice_blob_delete(d->store, "n3"));
	assert_ok(sluice_blob_delete(d->store, "more"));
	assert_ok(put_with_note(d->store, "n3", 200, 0));
	for (unsigned i = 0; i < 8; i++)
		assert_ok(sluice_blob_delete(d->store, named("n%u", i)));
	assert_idle(d->store);
}

#define HOLDS SLUICE_STORE_HOLDS_MOST

DAEMON_TEST(a_store_holds_so_many_blobs)
{
	sluice_blob **holds = calloc(HOLDS, sizeof(*holds)), *blob;

	assert_non_null(holds);
	holds[0] = put(d->store, "x", 10, 0);
	for (unsigned i = 1; i < HOLDS; i++)
		assert_ok(sluice_blob_get(d->store, "x", 0, &holds[i]));
	assert_refused(sluice_blob_get(d->store, "x", 0, &blob), ENOBUFS, "holds 16384 blobs");
	assert_ok(sluice_blob_create(d->store, "y", 10, place(), NULL, &blob));
	assert_refused(sluice_blob_seal(blob), ENOBUFS, "sealed, but this store holds 16384");
	assert_null(sluice_blob_data(blob));
	assert_refused(sluice_blob_seal(blob), EPERM, "sealed");
	assert_ok(sluice_blob_release(blob));
	assert_refused(sluice_blob_get(d->store, "y", 1000, &blob), ENOBUFS, "holds 16384 blobs");
	assert_ok(sluice_blob_release(holds[HOLDS - 1]));
	assert_ok(sluice_blob_get(d->store, "y", 0, &blob));
	assert_non_null(sluice_blob_data(blob));
	assert_ok(sluice_blob_release(blob));
	assert_ok(sluice_blob_release_many(holds, HOLDS - 1));
	free(holds);
	assert_ok(sluice_blob_delete(d->store, "x"));
	assert_ok(sluice_blob_delete(d->store, "y"));
	assert_idle(d->store);
}

DAEMON_TEST(there_are_so_many_connections)
{
	sluice_store *stores[10];
	unsigned count = 0;

	while (count < COUNT_OF(stores) && !sluice_store_open(d->path, NULL, &stores[count]))
		count++;
	/* One of five was there already. */
	assert_int_equal(count, 4);
	assert_refused(sluice_store_open(d->path, NULL, &stores[4]), EAGAIN, "5 connections");
	while (count--)
		assert_ok(sluice_store_close(stores[count]));
	assert_idle(d->store);
	stores[0] = daemon_connect(d);
	assert_ok(sluice_store_close(stores[0]));
}

static void assert_works(sluice_store *store, const char *name)
{
	assert_let_go(put(store, name, 10, 0), store, name);
}

/* Those that were there have their places, though others come first. */
DAEMON_TEST(after_the_server_as_many_come_back_as_were_there)
{
	sluice_store *stores[4], *more;
	struct sluice_store_options hasty = {.size = sizeof(hasty), .patience_ms = 0};

	for (unsigned many = 4; many >= 3; many--) {
		for (unsigned i = 0; i < many; i++) {
			stores[i] = daemon_connect(d);
			assert_works(stores[i], "before");
		}
		daemon_replace_server(d);
		for (unsigned i = many; i < 4; i++)
			stores[i] = daemon_connect(d);
		while (sluice_store_open(d->path, &hasty, &more) != -EAGAIN)
			sleep_ms(2);
		for (unsigned i = 0; i < 4; i++)
			assert_works(stores[i], "after");
		assert_works(d->store, "after");
		for (unsigned i = 0; i < 4; i++)
			assert_ok(sluice_store_close(stores[i]));
		assert_idle(d->store);
	}
}

/* With memory of its own each. */
static unsigned put_apart(sluice_store *store, const char *prefix, unsigned most, unsigned flags,
                          int *rc)
{
	struct sluice_blob_options options = {.size = sizeof(options),
	                                      .flags = flags | SLUICE_BLOB_ALONE};
	sluice_blob *blob;

	for (unsigned i = 0; i < most; i++) {
		*rc = sluice_blob_create(store, named("%s%u", prefix, i), 10, place(), &options,
		                         &blob);
		if (*rc)
			return i;
		assert_ok(sluice_blob_seal(blob));
		assert_ok(sluice_blob_release(blob));
	}
	return most;
}

#define ROWS 64

TEST(without_a_descriptor_left_caches_go_first)
{
	struct daemon *d;
	int rc = 0;

	if (ON_DEVICE)
		SKIP("caches on devices hold no descriptors that the host lacks");
	/* Half of them are for memory. */
	daemon_files = 2 * ROWS;
	daemon_setup((void **)&d);
	daemon_files = 0;
	assert_int_equal(put_apart(d->store, "b", ROWS / 4, SLUICE_BLOB_CACHE, &rc), ROWS / 4);
	/* More than there are then: caches go. */
	assert_int_equal(put_apart(d->store, "c", ROWS / 2, 0, &rc), ROWS / 2);
	assert_int_equal(put_apart(d->store, "d", ROWS / 4, 0, &rc), ROWS / 4);
	assert_int_not_equal(stats_of(d->store).dropped, 0);
	put_apart(d->store, "e", ROWS, 0, &rc);
	assert_refused(rc, ENFILE, "descriptor");
	daemon_teardown((void **)&d);
}

/* The number of its memory, which the client asks for. */
static uint64_t region_of(struct raw *c, const char *name)
{
	struct sl_found_item found;
	struct sl_held_blob held;

	assert_int_equal(raw_get(c, name, &found), 0);
	raw_hold(c, &found, &held);
	raw_release(c, &held);
	return held.record.range.memory;
}

#define IN_FLIGHT 16

DAEMON_TEST(descriptors_that_nobody_reads_are_bounded)
{
	struct raw *c = raw_new(d);
	double until = seconds_now() + 20;
	uint64_t region;
	int with;

	assert_ok(sluice_blob_release(put(d->store, "x", MIB, 0)));
	region = region_of(c, "x");
	for (int round = 0; round < 2; round++) {
		uint64_t refused = stats_of(d->store).refused;

		for (unsigned i = 0; i < IN_FLIGHT + 10; i++) {
			raw_begin(c, SL_MSG_REGION, 0);
			c->m.region.region = region;
			assert_true(raw_send(c->fd, &c->m, c->m.head.bytes));
		}
		/* Others get what they ask for. */
		assert_ok(sluice_blob_release(got(d->store, "x")));
		while (stats_of(d->store).refused < refused + 10)
			assert_true(seconds_now() < until);
		for (unsigned i = 0; i < IN_FLIGHT + 10; i++) {
			assert_true(raw_receive(c->fd, &c->m, &with) > 0);
			if (i < IN_FLIGHT) {
				assert_int_equal(c->m.head.type, SL_MSG_MEMORY);
				assert_int_equal(close(with), 0);
				continue;
			}
			assert_int_equal(c->m.head.error, -EAGAIN);
			assert_non_null(strstr(c->m.refusal.text, "has not read 16"));
		}
	}
	with = raw_region(c, region);
	assert_true(with >= 0);
	close(with);
	raw_end(c);
	assert_ok(sluice_blob_delete(d->store, "x"));
	assert_idle(d->store);
}

/* A process of that user that has descriptors on their way to itself, and does not read them. */
static pid_t fill(unsigned user)
{
	int sockets[2], said[2], fds[100];
	char byte = 0;
	pid_t pid;

	assert_int_equal(pipe(said), 0);
	pid = fork();
	if (!pid) {
		for (size_t i = 0; i < COUNT_OF(fds); i++)
			fds[i] = said[0];
		/* In this order: another user clears the signal. */
		if ((user && setuid(user)) || prctl(PR_SET_PDEATHSIG, SIGKILL) ||
		    socketpair(AF_UNIX, SOCK_SEQPACKET, 0, sockets) ||
		    !raw_send_with(sockets[0], &byte, 1, fds, COUNT_OF(fds)) ||
		    write(said[1], &byte, 1) != 1)
			_exit(1);
		pause();
		_exit(0);
	}
	close(said[1]);
	assert_int_equal(read(said[0], &byte, 1), 1);
	close(said[0]);
	return pid;
}

TEST(shortage_of_descriptors_by_others_is_named)
{
	unsigned user = getuid() ? 0 : user_apart();
	const char *program = getenv("SLUICED");
	struct daemon *d;
	sluice_store *other;
	sluice_blob *blob;
	char number[20];
	pid_t filler;

	if (ON_DEVICE)
		SKIP("it is about descriptors");
	filler = fork();
	if (!filler)
		_exit((user && setuid(user)) || access(program, X_OK));
	if (child_status(filler))
		SKIP("another user cannot run the daemon here");
	snprintf(number, sizeof(number), "%u", user ? user : getuid());
	setenv("SLUICE_STORE_OWNER", number, 1);
	daemon_user = user;
	daemon_files = 64;
	daemon_setup((void **)&d);
	daemon_files = daemon_user = 0;
	other = daemon_connect(d);
	assert_ok(sluice_blob_release(put(d->store, "x", MIB, 0)));
	filler = fill(user);
	assert_refused(sluice_blob_get(other, "x", 0, &blob), ENFILE, "on their way");
	/* It is not cut off. */
	assert_int_equal(stats_of(d->store).clients, 2);
	assert_int_equal(sluice_blob_exists(other, "x"), 1);
	assert_refused(sluice_store_open(d->path, NULL, &(sluice_store *){NULL}), EAGAIN,
	               "in flight");
	kill(filler, SIGKILL);
	child_status(filler);
	assert_ok(sluice_blob_get(other, "x", 0, &blob));
	assert_blob(blob, "x", MIB);
	assert_ok(sluice_blob_release(blob));
	assert_ok(sluice_store_close(other));
	daemon_teardown((void **)&d);
	unsetenv("SLUICE_STORE_OWNER");
}

static double seconds_of(pid_t pid)
{
	struct timespec used;
	clockid_t clock;

	assert_int_equal(clock_getcpuclockid(pid, &clock), 0);
	assert_int_equal(clock_gettime(clock, &used), 0);
	return (double)used.tv_sec + (double)used.tv_nsec / 1e9;
}

DAEMON_TEST(client_without_a_free_descriptor_costs_no_time)
{
	pid_t server = daemon_server(d, 0);
	struct rlimit before, few = {0, 0};
	sluice_store *store;
	int silent[20];
	double used;

	assert_int_equal(prlimit(server, RLIMIT_NOFILE, NULL, &before), 0);
	few.rlim_max = before.rlim_max;
	/* None more than there are. */
	assert_int_equal(prlimit(server, RLIMIT_NOFILE, &few, NULL), 0);
	for (size_t i = 0; i < COUNT_OF(silent); i++)
		silent[i] = raw_connect(d);
	sleep_ms(100);
	used = seconds_of(server);
	sleep_ms(400);
	assert_true(seconds_of(server) - used < 0.1);
	/* Those who are there are served meanwhile. */
	assert_int_equal(stats_of(d->store).clients, 1);
	assert_int_equal(prlimit(server, RLIMIT_NOFILE, &before, NULL), 0);
	store = daemon_connect(d);
	assert_ok(sluice_store_close(store));
	for (size_t i = 0; i < COUNT_OF(silent); i++)
		close(silent[i]);
}

DAEMON_TEST(client_whose_descriptor_does_not_fit_learns_why)
{
	pid_t server = daemon_server(d, 0);
	struct rlimit before, few = {0, 0};
	char name[64];
	struct stat found;

	assert_int_equal(prlimit(server, RLIMIT_NOFILE, NULL, &before), 0);
	few.rlim_max = before.rlim_max;
	/* The connection is the last one. */
	do
		snprintf(name, sizeof(name), "/proc/%d/fd/%d", server, (int)few.rlim_cur++);
	while (!lstat(name, &found));
	assert_int_equal(prlimit(server, RLIMIT_NOFILE, &few, NULL), 0);
	assert_refused(sluice_store_open(d->path, NULL, &(sluice_store *){NULL}), EPROTO,
	               "too many open");
	assert_int_equal(prlimit(server, RLIMIT_NOFILE, &before, NULL), 0);
}

#define GIVEN (192 * MIB)

/* What the kernel needs to take so much memory back. */
static double time_to_give_back(void)
{
	int fd = memfd_create("memory", MFD_CLOEXEC);
	double begun;
	void *at;

	assert_int_equal(ftruncate(fd, GIVEN), 0);
	at = mmap(NULL, GIVEN, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	assert_true(at != MAP_FAILED);
	memset(at, 1, GIVEN);
	munmap(at, GIVEN);
	begun = seconds_now();
	close(fd);
	return seconds_now() - begun;
}

struct taker {
	sluice_store *store;
	_Atomic int done;
	int rc;
};

static void *take_all(void *argument)
{
	struct sluice_blob_options options = {.size = sizeof(options), .flags = SLUICE_BLOB_COLD};
	struct taker *taker = argument;
	sluice_blob *blob;

	taker->rc = sluice_blob_create(taker->store, "all", 200 * MIB, -1, &options, &blob);
	if (!taker->rc)
		sluice_blob_release(blob);
	sleep_ms(50);
	atomic_store(&taker->done, 1);
	return NULL;
}

/* The slowest request of one client while kept memory is given back because another one wants it. */
static double slowest_meanwhile(void)
{
	struct sluice_blob_options cold = {.size = sizeof(cold), .flags = SLUICE_BLOB_COLD};
	double slowest = 0, begun;
	struct taker taker = {.done = 0};
	struct daemon *d;
	sluice_blob *blob;
	pthread_t thread;

	daemon_setup((void **)&d);
	taker.store = daemon_connect(d);
	assert_ok(sluice_blob_create(d->store, "given", GIVEN, -1, &cold, &blob));
	memset(sluice_blob_mutable_data(blob), 1, GIVEN);
	assert_ok(sluice_blob_seal(blob));
	assert_let_go(blob, d->store, "given");
	pthread_create(&thread, NULL, take_all, &taker);
	while (!atomic_load(&taker.done)) {
		begun = seconds_now();
		stats_of(d->store);
		slowest = seconds_now() - begun > slowest ? seconds_now() - begun : slowest;
	}
	pthread_join(thread, NULL);
	assert_int_equal(taker.rc, 0);
	assert_ok(sluice_store_close(taker.store));
	daemon_teardown((void **)&d);
	return slowest;
}

TEST(giving_memory_back_holds_no_client_up)
{
	static const char *const options[] = {"--memory", "256M", NULL};
	const char *const *before = daemon_options;
	double least = 1e9, needed = time_to_give_back();

	if (ON_DEVICE)
		SKIP("memory of a device is not the server's to give back");
	daemon_options = options;
	for (int i = 0; i < 5 && least >= needed / 2; i++) {
		double slowest = slowest_meanwhile();

		least = slowest < least ? slowest : least;
	}
	daemon_options = before;
	print_message("%.1f ms to give it back, %.1f ms the slowest request\n", needed * 1e3,
	              least * 1e3);
	assert_true(least < needed / 2);
}

/* Of Linux 6.12 and later; before, the kernel does not tell. */
DAEMON_TEST(the_server_is_scheduled_in_short_slices)
{
	struct {
		uint32_t size, policy;
		uint64_t flags;
		int32_t nice;
		uint32_t priority;
		uint64_t slice, deadline, period;
	} server = {0}, other = {0};

	assert_int_equal(
		syscall(SYS_sched_getattr, daemon_server(d, 0), &server, sizeof(server), 0), 0);
	assert_int_equal(syscall(SYS_sched_getattr, d->supervisor, &other, sizeof(other), 0), 0);
	if (!other.slice)
		skip();
	assert_int_equal(server.slice, 100000);
	assert_true(server.flags & 1); /* SCHED_FLAG_RESET_ON_FORK */
	assert_true(other.slice > server.slice);
	assert_true(other.nice >= server.nice);
}

/* Puts and deletes a small blob many times; returns the fastest round in seconds, which other programs disturb least. */
static double fastest_put(sluice_store *store)
{
	double fastest = 1e9;

	for (int i = 0; i < 201; i++) {
		double took, start = seconds_now();

		assert_let_go(put(store, "small", 100, 0), store, "small");
		took = seconds_now() - start;
		fastest = SL_MIN(fastest, took);
	}
	return fastest;
}

/* So many clients wait for so many blobs each. */
TEST(seal_costs_nothing_beside_waits_for_other_names)
{
	enum { CLIENTS = 256, WAITS = 64, MOST = 128 };
	static const char *const options[] = {"--memory", "64M", "--clients", "300", NULL};
	const char *const *before = daemon_options;
	int fds[CLIENTS];
	union sl_message m;
	struct daemon *d;
	double quiet, busy;

	daemon_options = options;
	daemon_setup((void **)&d);
	quiet = fastest_put(d->store);
	for (unsigned i = 0; i < CLIENTS; i++) {
		fds[i] = raw_client(d);
		assert_true(fds[i] >= 0);
		/* The first also finds out how many there may be. */
		for (unsigned k = 0; k < (i ? WAITS : MOST + 1); k++) {
			sl_message_begin(&m, SL_MSG_GET, k + 1, 1);
			m.get.timeout_ms = 1000000;
			snprintf(m.get.items[0].name, SL_NAME_BYTES, "w/%u/%u", i, k);
			assert_true(raw_send(fds[i], &m, m.head.bytes));
		}
	}
	assert_true(raw_receive(fds[0], &m, NULL) > 0);
	assert_int_equal(m.head.serial, MOST + 1);
	assert_int_equal(m.head.error, -EAGAIN);
	while (stats_of(d->store).waiting < (CLIENTS - 1) * WAITS + MOST)
		sleep_ms(1);
	busy = fastest_put(d->store);
	/* Once more, before a busy machine is blamed on the server. */
	for (int k = 0; k < 5 && busy >= 2 * quiet + 60e-6; k++)
		busy = fastest_put(d->store);
	print_message("put and delete: %.0f us, and %.0f us beside %u waits\n", quiet * 1e6,
	              busy * 1e6, (CLIENTS - 1) * WAITS + MOST);
	/* To pass over all waits takes milliseconds. */
	assert_true(busy < 2 * quiet + 60e-6);
	assert_ok(sluice_blob_release(put(d->store, "w/7/9", 100, 0)));
	assert_true(raw_receive(fds[7], &m, NULL) > 0);
	assert_int_equal(m.head.serial, 10);
	assert_int_equal(m.head.type, SL_MSG_FOUND);
	for (unsigned i = 0; i < CLIENTS; i++)
		close(fds[i]);
	assert_ok(sluice_blob_delete(d->store, "w/7/9"));
	daemon_teardown((void **)&d);
	daemon_options = before;
}

int main(int argc, char **argv)
{
	static const char *const options[] = {"--memory",  "64M", "--blobs", "64",
	                                      "--clients", "5",   NULL};

	row_start(1, argv);
	(void)argc;
	daemon_options = options;
	return RUN_TESTS(NULL, NULL);
}
