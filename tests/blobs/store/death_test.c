/* SPDX-License-Identifier: Apache-2.0 */
/* Processes that are killed: clients at every step of the protocol, the server, the supervisor. */
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/kill_matrix.h"

static int begin(void **state);
#define DEATH_TEST(name) DAEMON_TEST_WITH(name, begin, daemon_teardown)

/* What all processes of the test share. */
static struct {
	_Atomic uint64_t sealed; /* rounds that a process has brought to an end */
	_Atomic uint64_t failed; /* blobs that were lost before their seal */
	_Atomic uint64_t wrong;
	_Atomic uint32_t ready, stop;
	_Atomic uint32_t died; /* at a step */
	char text[256];
} * shared;

/* -------------------------------------------------------------------------------------- steps */

/* All that a client does, each step of it. */
static int live(const struct daemon *d, const char *argument)
{
	static const char *const pair[] = {"mine/pair/1", "mine/pair/2"};
	struct sluice_blob_request requests[] = {{pair[0], 90, place(), NULL},
	                                         {pair[1], 90000, place(), NULL}};
	struct sluice_blob_options o = SLUICE_BLOB_OPTIONS_INIT;
	sluice_blob *blobs[6], *two[2], *read;
	sluice_store *store;
	sluice_watch *watch;

	die_at_step(argument, &shared->died);
	if (sluice_store_open(d->path, NULL, &store))
		return 1;
	if (try_put(store, "mine/sealed", 5000, 0, &blobs[0]) ||
	    try_put(store, "mine/deleted", 200000, 0, &blobs[1]))
		return 2;
	o.flags = SLUICE_BLOB_RESERVE;
	if (sluice_blob_create(store, "mine/reserved", 300000, place(), &o, &blobs[2]) ||
	    sluice_blob_create(store, "", 300, place(), &o, &blobs[3]))
		return 3;
	set_bytes(blobs[2], 1, 300000);
	if (sluice_blob_get(store, "theirs", 0, &read) || !blob_is(read, "theirs", 70000))
		return 4;
	if (sluice_blob_delete(store, "mine/deleted"))
		return 5;
	if (sluice_blob_get(store, "mine/deleted", 30, &blobs[5]) != -ETIMEDOUT)
		return 6;
	if (try_put(store, "mine/last", 100, 0, &blobs[4]))
		return 7;
	if (sluice_watch_open(store, "mine/", &watch) || sluice_blob_release(blobs[2]))
		return 8;
	if (sluice_blob_create_many(store, requests, 2, two) || sluice_blob_seal_many(two, 2) ||
	    sluice_blob_release_many(two, 2) || sluice_blob_get_many(store, pair, 2, 0, two))
		return 9;
	if (sluice_blob_pin(store, "mine/sealed", 1))
		return 10;
	kill(getpid(), SIGKILL);
	return 11;
}

/* Until it has none that is not sealed, and the sealed ones are deleted. */
static void wait_for_the_end_of(sluice_store *store, uint64_t bytes, const char *point)
{
	double until = seconds_now() + 20;
	struct sluice_store_counts s;

	do {
		delete_mine(store);
		s = stats_of(store);
		if (seconds_now() > until)
			fail_msg("%s: %llu created, %llu dying, %llu sealed, %llu clients", point,
			         (unsigned long long)s.created, (unsigned long long)s.dying,
			         (unsigned long long)s.sealed, (unsigned long long)s.clients);
	} while (s.created || s.dying || s.sealed != 1 || s.clients != 1);
	assert_int_equal(s.blob_bytes, bytes);
}

static void kill_a_client_at(struct daemon *d, sluice_blob *theirs, uint64_t bytes,
                             const char *point)
{
	int status = child_status(child_start("live", d, point));
	sluice_blob *blob;

	if (!WIFSIGNALED(status))
		fail_msg("%s: the client ended with %d", point, WEXITSTATUS(status));
	/* The others are unharmed, */
	assert_blob(theirs, "theirs", 70000);
	blob = put(d->store, "ours", 3000, 0);
	assert_blob(blob, "ours", 3000);
	assert_let_go(blob, d->store, "ours");
	/* what it had sealed is whole, */
	if (!sluice_blob_get(d->store, "mine/sealed", 0, &blob)) {
		assert_blob(blob, "mine/sealed", 5000);
		assert_ok(sluice_blob_release(blob));
	}
	/* and what it had besides is back. */
	wait_for_the_end_of(d->store, bytes, point);
}

DEATH_TEST(a_killed_client_takes_along_what_is_not_sealed)
{
	static const char *const steps[] = {
		"client: connected", "client: asked",    "client: read",
		"client: tells",     "client: answered", "client: leased",
		"client: created",   "client: sealed",   "client: got"};
	sluice_blob *theirs = put(d->store, "theirs", 70000, 0);
	uint64_t bytes = stats_of(d->store).blob_bytes;

	for (size_t i = 0; i < COUNT_OF(steps); i++) {
		uint32_t before = atomic_load(&shared->died);

		for (unsigned pass = 0; pass < 12; pass++) {
			char point[64];

			snprintf(point, sizeof(point), "%u %s", pass, steps[i]);
			kill_a_client_at(d, theirs, bytes, point);
		}
		/* A step that nobody comes by would prove nothing. */
		if (atomic_load(&shared->died) == before)
			fail_msg("no client has died at '%s'", steps[i]);
	}
	print_message("%u deaths at a step\n", atomic_load(&shared->died));
	assert_let_go(theirs, d->store, "theirs");
	assert_idle(d->store);
}

/* A child of a client keeps its socket open. */
static int leave_a_child(const struct daemon *d, const char *argument)
{
	sluice_store *store;
	sluice_blob *blob;
	struct sluice_blob_options o = SLUICE_BLOB_OPTIONS_INIT;

	(void)argument;
	o.flags = SLUICE_BLOB_RESERVE;
	if (sluice_store_open(d->path, NULL, &store) ||
	    sluice_blob_create(store, "left", 100, place(), &o, &blob))
		return 1;
	if (!fork()) {
		while (!atomic_load(&shared->stop))
			sleep_ms(1);
		_exit(0);
	}
	kill(getpid(), SIGKILL);
	return 1;
}

DEATH_TEST(a_child_of_a_dead_client_does_not_keep_what_that_had)
{
	assert_true(WIFSIGNALED(child_status(child_start("leave_a_child", d, ""))));
	assert_idle(d->store);
	atomic_store(&shared->stop, 1);
}

/* ------------------------------------------------------------------------------------- server */

static void wrong(const char *what)
{
	if (!atomic_fetch_add(&shared->wrong, 1))
		snprintf(shared->text, sizeof(shared->text), "%s: %s", what, sluice_last_message());
}

/* Puts, gets and deletes; what is lost with a server says so. */
static int work(const struct daemon *d, const char *argument)
{
	unsigned number = (unsigned)atoi(argument);
	struct rng r = {number * UINT64_C(7919) + 17};
	sluice_blob *blob, *read;
	sluice_store *store;
	char name[32];

	if (sluice_store_open(d->path, NULL, &store))
		return 1;
	atomic_fetch_add(&shared->ready, 1);
	for (unsigned i = 0; !atomic_load(&shared->stop); i++) {
		size_t n = 1 + rng_below(&r, i % 8 ? 9000 : 400000);
		int rc;

		snprintf(name, sizeof(name), "w%u/%u", number, i);
		rc = try_put(store, name, n, i % 2 ? SLUICE_BLOB_RESERVE : 0, &blob);
		if (rc == -ECONNRESET) {
			atomic_fetch_add(&shared->failed, 1);
			if (sluice_blob_exists(store, name) != 0)
				wrong("a blob is there whose seal has failed");
			continue;
		}
		if (rc) {
			wrong("put");
			break;
		}
		rc = sluice_blob_get(store, name, 0, &read);
		if (rc) {
			wrong("get of what was sealed");
			break;
		}
		if (!blob_is(read, name, n) || !blob_is(blob, name, n))
			wrong("bytes");
		sluice_blob_release(blob);
		rc = sluice_blob_delete(store, name);
		/* The server that has done it may have died before it said so. */
		if (rc && rc != -ENOENT)
			wrong("delete");
		if (!blob_is(read, name, n))
			wrong("bytes after the delete");
		sluice_blob_release(read);
		atomic_fetch_add(&shared->sealed, 1);
	}
	return sluice_store_close(store) ? 2 : 0;
}

static void check_wrong(void)
{
	if (atomic_load(&shared->wrong))
		fail_msg("%llu times; the first: %s", (unsigned long long)shared->wrong,
		         shared->text);
}

static unsigned rounds(void)
{
	return getenv("STRESS") ? 300 : 25;
}

DEATH_TEST(sealed_blobs_outlive_the_server)
{
	sluice_blob *kept[20], *held, *read;
	sluice_store *other = daemon_connect(d);
	pid_t workers[4], server = 0;
	char name[20];

	for (int i = 0; i < 20; i++)
		kept[i] = put(d->store, named("kept/%d", i), 1000 + (size_t)i * 30000, 0);
	/* Held by somebody who sleeps while servers come and go, and deleted by another one. */
	held = put(d->store, "held", 50000, 0);
	for (unsigned i = 0; i < COUNT_OF(workers); i++)
		workers[i] = child_start("work", d, (const char[]){(char)('0' + i), 0});
	while (atomic_load(&shared->ready) < COUNT_OF(workers))
		sleep_ms(1);
	for (unsigned i = 0; i < rounds(); i++) {
		double until = seconds_now() + 20;
		uint64_t before;

		server = daemon_server(d, server);
		kill(server, SIGKILL);
		before = atomic_load(&shared->sealed);
		if (i == 2)
			assert_ok(sluice_blob_delete(other, "held"));
		assert_ok(sluice_blob_get(other, "kept/7", 0, &read));
		assert_blob(read, "kept/7", 1000 + 7 * 30000);
		assert_ok(sluice_blob_release(read));
		/* The workers get on, so the next server has begun. */
		while (atomic_load(&shared->sealed) < before + 20 && !atomic_load(&shared->wrong))
			if (seconds_now() > until)
				fail_msg("nobody gets on after server %u", i);
			else
				sleep_ms(1);
	}
	atomic_store(&shared->stop, 1);
	for (unsigned i = 0; i < COUNT_OF(workers); i++)
		assert_int_equal(child_status(workers[i]), 0);
	check_wrong();
	assert_blob(held, "held", 50000);
	assert_int_equal(stats_of(other).replacements, rounds());
	for (int i = 0; i < 20; i++) {
		snprintf(name, sizeof(name), "kept/%d", i);
		assert_blob(kept[i], name, 1000 + (size_t)i * 30000);
		assert_ok(sluice_blob_release(kept[i]));
		assert_there(d->store, name, 1000 + (size_t)i * 30000);
		assert_ok(sluice_blob_delete(d->store, name));
	}
	assert_ok(sluice_blob_release(held));
	assert_ok(sluice_store_close(other));
	print_message("%llu rounds, %llu blobs lost before their seal\n",
	              (unsigned long long)shared->sealed, (unsigned long long)shared->failed);
	assert_idle(d->store);
}

DEATH_TEST(unsealed_blob_fails_when_the_server_dies)
{
	struct sluice_blob_options o = SLUICE_BLOB_OPTIONS_INIT;
	struct sluice_watch_event e = {.size = sizeof(e)};
	sluice_blob *blob, *leased, *again;
	sluice_watch *watch;
	pid_t server = daemon_server(d, 0);

	o.flags = SLUICE_BLOB_RESERVE;
	assert_ok(sluice_watch_open(d->store, NULL, &watch));
	assert_ok(sluice_blob_create(d->store, "reserved", 100000, place(), &o, &blob));
	assert_ok(sluice_blob_create(d->store, "leased", 100, place(), NULL, &leased));
	kill(server, SIGKILL);
	daemon_server(d, server);
	/* Of a server that was heard of in this tick of the kernel's clock a client thinks that it lives. */
	sleep_ms(20);
	/* Its memory is still ours, */
	set_bytes(blob, 1, 100000);
	set_bytes(leased, 1, 100);
	/* and its name is free. */
	again = put(d->store, "reserved", 10, 0);
	assert_refused(sluice_blob_seal(blob), ECONNRESET, "server");
	assert_refused(sluice_blob_seal(leased), ECONNRESET, "server");
	assert_int_equal(sluice_blob_exists(d->store, "leased"), 0);
	assert_ok(sluice_blob_release(blob));
	assert_ok(sluice_blob_release(leased));
	assert_let_go(again, d->store, "reserved");
	do
		assert_ok(sluice_watch_next(watch, 5000, &e));
	while (e.kind != SLUICE_WATCH_LOST);
	assert_let_go(put(d->store, "x", 10, 0), d->store, "x");
	do
		assert_ok(sluice_watch_next(watch, 5000, &e));
	while (e.kind != SLUICE_WATCH_DELETED || strcmp(e.name, "x") != 0);
	sluice_watch_free(watch);
	assert_idle(d->store);
}

/* ------------------------------------------------------------------------------------- supervisor */

DAEMON_TEST_WITH(the_server_gets_a_new_supervisor, begin, NULL)
{
	sluice_blob *blob = put(d->store, "x", 100000, 0), *more;
	pid_t server = daemon_server(d, 0), supervisor = d->supervisor;

	for (int i = 0; i < 5; i++) {
		char name[20];

		kill(supervisor, SIGKILL);
		if (i == 0)
			child_status(d->supervisor);
		supervisor = daemon_supervisor(d, supervisor);
		assert_int_equal(daemon_server(d, 0), server);
		snprintf(name, sizeof(name), "y%d", i);
		more = put(d->store, name, 100000 + (size_t)i, 0);
		assert_blob(more, name, 100000 + (size_t)i);
		assert_ok(sluice_blob_release(more));
	}
	/* The new one does what the first one did. */
	kill(server, SIGKILL);
	server = daemon_server(d, server);
	assert_blob(blob, "x", 100000);
	for (int i = 0; i < 5; i++) {
		const char *name = named("y%d", i);

		assert_there(d->store, name, 100000 + (size_t)i);
		assert_ok(sluice_blob_delete(d->store, name));
	}
	assert_let_go(blob, d->store, "x");
	assert_idle(d->store);
	daemon_end(d, daemon_supervisor(d, 0));
}

DEATH_TEST(a_second_daemon_is_refused)
{
	struct daemon second = *d;
	pid_t pid = fork();

	if (!pid) {
		dup2(open("/dev/null", O_WRONLY | O_CLOEXEC), STDERR_FILENO);
		execl(getenv("SLUICED"), "sluiced", "--socket", second.path, NULL);
		_exit(127);
	}
	assert_int_equal(WEXITSTATUS(child_status(pid)), 1);
	assert_let_go(put(d->store, "x", 10, 0), d->store, "x");
}

static int begin(void **state)
{
	memset(shared, 0, sizeof(*shared));
	return daemon_setup(state);
}

int main(int argc, char **argv)
{
	static const char *const options[] = {"--memory", "512M", NULL};
	static const struct child_role roles[] = {
		{"live", live}, {"leave_a_child", leave_a_child}, {"work", work}, {NULL, NULL}};

	shared = shared_memory(sizeof(*shared));
	child_run(argc, argv, roles);
	row_start(1, argv);
	daemon_options = options;
	return RUN_TESTS(NULL, NULL);
}
