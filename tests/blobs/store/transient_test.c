/* SPDX-License-Identifier: Apache-2.0 */
/* Blobs that live as long as their last holder. */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

#include "lib/daemon.h"

#define TRANSIENT SLUICE_BLOB_TRANSIENT
#define BYTES     100000

static _Atomic int *there; /* a child has got so far */

static void await_gone(const struct daemon *d, const char *name)
{
	double until = seconds_now() + 20;

	while (sluice_blob_exists(d->store, name)) {
		if (seconds_now() > until)
			fail_msg("'%s' is still there", name);
		sleep_ms(2);
	}
}

static void assert_event(sluice_watch *watch, int kind, const char *name)
{
	struct sluice_watch_event event = {.size = sizeof(event)};

	assert_ok(sluice_watch_next(watch, 20000, &event));
	assert_int_equal(event.kind, kind);
	assert_string_equal(event.name, name);
}

DAEMON_TEST(the_last_release_deletes)
{
	sluice_store *other = daemon_connect(d);
	struct sluice_blob_info info = {.size = sizeof(info)};
	sluice_watch *watch;
	sluice_blob *mine, *theirs;

	assert_ok(sluice_watch_open(d->store, "", &watch));
	for (int i = 0; i < 20; i++) {
		mine = put(d->store, "x", BYTES, TRANSIENT);
		theirs = got(other, "x");
		assert_ok(sluice_blob_stat(other, "x", &info));
		assert_true(info.flags & TRANSIENT);
		assert_ok(sluice_blob_release(i % 2 ? mine : theirs));
		/* A sweep has passed. */
		assert_ok(sluice_blob_release(put(d->store, "y", 10, TRANSIENT)));
		await_gone(d, "y");
		assert_int_equal(sluice_blob_exists(d->store, "x"), 1);
		assert_blob(i % 2 ? theirs : mine, "x", BYTES);
		assert_ok(sluice_blob_release(i % 2 ? theirs : mine));
		assert_event(watch, SLUICE_WATCH_CREATED, "x");
		assert_event(watch, SLUICE_WATCH_SEALED, "x");
		assert_event(watch, SLUICE_WATCH_CREATED, "y");
		assert_event(watch, SLUICE_WATCH_SEALED, "y");
		assert_event(watch, SLUICE_WATCH_DELETED, "y");
		assert_event(watch, SLUICE_WATCH_DELETED, "x");
	}
	sluice_watch_free(watch);
	assert_ok(sluice_store_close(other));
	assert_idle(d->store);
}

DAEMON_TEST(the_name_of_what_was_released_is_free)
{
	for (int i = 0; i < 200; i++) {
		sluice_blob *blob;

		assert_ok(sluice_blob_release(put(d->store, "x", 10, TRANSIENT)));
		blob = put(d->store, "x", BYTES, i % 3 ? 0 : SLUICE_BLOB_REPLACE);
		assert_ok(sluice_blob_release(blob));
		assert_blob(blob = got(d->store, "x"), "x", BYTES);
		assert_let_go(blob, d->store, "x");
	}
	assert_idle(d->store);
}

struct waiter {
	sluice_store *store;
	sluice_blob *blob;
	int rc;
};

static void *wait_for_blob(void *argument)
{
	struct waiter *waiter = argument;

	waiter->rc = sluice_blob_get(waiter->store, "x", 20000, &waiter->blob);
	return NULL;
}

static void await_waiting(const struct daemon *d, uint64_t count)
{
	double until = seconds_now() + 20;

	while (stats_of(d->store).waiting != count) {
		if (seconds_now() > until)
			fail_msg("nobody waits");
		sleep_ms(1);
	}
}

DAEMON_TEST(waiter_for_a_seal_holds_the_blob)
{
	struct waiter waiter = {.store = daemon_connect(d)};
	pthread_t thread;

	for (int i = 0; i < 10; i++) {
		pthread_create(&thread, NULL, wait_for_blob, &waiter);
		await_waiting(d, 1);
		assert_ok(sluice_blob_release(put(d->store, "x", BYTES, TRANSIENT)));
		pthread_join(thread, NULL);
		assert_int_equal(waiter.rc, 0);
		assert_blob(waiter.blob, "x", BYTES);
		assert_ok(sluice_blob_release(waiter.blob));
		await_gone(d, "x");
	}
	assert_ok(sluice_store_close(waiter.store));
	assert_idle(d->store);
}

/* The server hears of a release though an earlier request of the same client has no answer yet. */
DAEMON_TEST(a_get_that_waits_keeps_nothing)
{
	struct waiter waiter = {.store = d->store};
	sluice_store *other = daemon_connect(d);
	pthread_t thread;
	double begun = seconds_now();

	pthread_create(&thread, NULL, wait_for_blob, &waiter);
	await_waiting(d, 1);
	for (int i = 0; i < 100; i++)
		assert_ok(sluice_blob_release(put(d->store, "y", BYTES, TRANSIENT)));
	await_gone(d, "y");
	/* Each of them would have taken a second. */
	assert_true(seconds_now() - begun < 20);
	assert_ok(sluice_blob_release(put(other, "x", BYTES, 0)));
	pthread_join(thread, NULL);
	assert_let_go(waiter.blob, d->store, "x");
	assert_ok(sluice_store_close(other));
	assert_idle(d->store);
}

static int hold(const struct daemon *d, const char *name)
{
	sluice_store *store;
	sluice_blob *blob;

	if (sluice_store_open(d->path, NULL, &store) || sluice_blob_get(store, name, 0, &blob))
		return 1;
	atomic_fetch_add(there, 1);
	pause();
	return 0;
}

/* Several, in common memory and not. */
static int make(const struct daemon *d, const char *prefix)
{
	sluice_store *store;

	if (sluice_store_open(d->path, NULL, &store))
		return 1;
	for (int i = 0; i < 5; i++)
		put(store, named("%s%d", prefix, i), i % 2 ? 8 * MIB : 100, TRANSIENT);
	atomic_fetch_add(there, 1);
	pause();
	return 0;
}

static pid_t start(const struct daemon *d, const char *role, const char *argument)
{
	double until = seconds_now() + 20;
	pid_t pid;

	atomic_store(there, 0);
	pid = child_start(role, d, argument);
	while (!atomic_load(there)) {
		if (seconds_now() > until)
			fail_msg("the child does not begin");
		sleep_ms(1);
	}
	return pid;
}

static void end(pid_t pid)
{
	kill(pid, SIGKILL);
	child_status(pid);
}

DAEMON_TEST(a_holder_that_dies_lets_go)
{
	sluice_blob *blob = put(d->store, "x", BYTES, TRANSIENT);
	pid_t child = start(d, "hold", "x");

	assert_ok(sluice_blob_release(blob));
	assert_blob(blob = got(d->store, "x"), "x", BYTES);
	assert_ok(sluice_blob_release(blob));
	assert_int_equal(sluice_blob_exists(d->store, "x"), 1);
	end(child);
	await_gone(d, "x");
	assert_idle(d->store);
}

DAEMON_TEST(a_pipeline_that_dies_leaves_what_others_hold)
{
	pid_t child = start(d, "make", "m");
	sluice_blob *blob = got(d->store, "m1"), *more;

	end(child);
	await_gone(d, "m0");
	await_gone(d, "m3");
	assert_blob(blob, "m1", 8 * MIB);
	assert_int_equal(stats_of(d->store).sealed, 1);
	/* There is room at once. */
	more = put(d->store, "more", 48 * MIB, 0);
	assert_let_go(more, d->store, "more");
	assert_ok(sluice_blob_release(blob));
	assert_idle(d->store);
}

DAEMON_TEST(it_is_so_for_the_next_server)
{
	sluice_blob *blob = put(d->store, "x", BYTES, TRANSIENT), *small;
	pid_t child = start(d, "make", "m");

	small = put(d->store, "small", 10, TRANSIENT);
	daemon_replace_server(d);
	assert_int_equal(sluice_blob_exists(d->store, "x"), 1);
	assert_int_equal(sluice_blob_exists(d->store, "m3"), 1);
	assert_blob(blob, "x", BYTES);
	assert_ok(sluice_blob_release(blob));
	await_gone(d, "x");
	/* Whom nobody sees die. */
	kill(daemon_server(d, 0), SIGSTOP);
	end(child);
	daemon_replace_server(d);
	for (int i = 0; i < 5; i++)
		await_gone(d, named("m%d", i));
	assert_int_equal(sluice_blob_exists(d->store, "small"), 1);
	assert_blob(small, "small", 10);
	assert_ok(sluice_blob_release(small));
	await_gone(d, "small");
	assert_idle(d->store);
}

DAEMON_TEST(pinned_transient_blob_stays)
{
	sluice_blob *blob = put(d->store, "x", BYTES, TRANSIENT);

	assert_ok(sluice_blob_pin(d->store, "x", 1));
	assert_ok(sluice_blob_release(blob));
	assert_ok(sluice_blob_release(put(d->store, "y", 10, TRANSIENT)));
	await_gone(d, "y");
	assert_int_equal(sluice_blob_exists(d->store, "x"), 1);
	assert_ok(sluice_blob_pin(d->store, "x", 0));
	await_gone(d, "x");
	assert_idle(d->store);
}

static char folder[200];

TEST(held_blob_stays_in_memory)
{
	static const char *const options[] = {"--memory", "64M", "--spill", folder, NULL};
	const char *const *before = daemon_options;
	struct sluice_blob_info info = {.size = sizeof(info)};
	struct daemon *d;
	sluice_blob *blob;

	if (ON_DEVICE)
		SKIP("nothing of a device goes to files");
	daemon_options = options;
	daemon_setup((void **)&d);
	blob = put(d->store, "x", 8 * MIB, TRANSIENT);
	for (int i = 0; i < 8; i++)
		assert_ok(sluice_blob_release(put(d->store, named("p%d", i), 12 * MIB, 0)));
	assert_true(stats_of(d->store).spilled >= 3);
	assert_ok(sluice_blob_stat(d->store, "x", &info));
	assert_int_equal(info.state, SLUICE_BLOB_IS_SEALED);
	assert_blob(blob, "x", 8 * MIB);
	assert_ok(sluice_blob_release(blob));
	await_gone(d, "x");
	daemon_teardown((void **)&d);
	daemon_options = before;
}

int main(int argc, char **argv)
{
	static const char *const options[] = {"--memory", "64M", NULL};
	static const struct child_role roles[] = {{"hold", hold}, {"make", make}, {NULL, NULL}};

	there = shared_memory(sizeof(*there));
	child_run(argc, argv, roles);
	row_start(1, argv);
	snprintf(folder, sizeof(folder), "%s", getenv("SLUICE_TEST_DIR"));
	daemon_options = options;
	return RUN_TESTS(NULL, NULL);
}
