/* SPDX-License-Identifier: Apache-2.0 */
/* Every call of store.h, against a daemon; the blobs are at place(), on the host or a device. */
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/daemon.h"
#include "sluice/device.h"

DAEMON_TEST(sealed_bytes_reach_other_processes)
{
	static const size_t sizes[] = {1,       4095,    4096,        4097,    32768,
	                               32769,   65536,   65537,       100000,  MIB,
	                               MIB + 1, 2 * MIB, 3 * MIB + 5, 9 * MIB, 64 * MIB};
	const int kind = ON_DEVICE ? SLUICE_BLOB_ON_DEVICE : SLUICE_BLOB_ON_HOST;
	sluice_store *other = daemon_connect(d);

	for (size_t i = 0; i < COUNT_OF(sizes); i++) {
		sluice_blob *made = put(d->store, "a blob", sizes[i], 0), *read;

		assert_true(sluice_blob_id(made) != 0);
		assert_blob(made, "a blob", sizes[i]);
		assert_null(sluice_blob_mutable_data(made));
		read = got(other, "a blob");
		assert_blob(read, "a blob", sizes[i]);
		assert_int_equal(sluice_blob_id(read), sluice_blob_id(made));
		assert_int_equal(sluice_blob_device(made), place());
		assert_int_equal(sluice_blob_device(read), place());
		assert_int_equal(sluice_blob_kind(made), kind);
		assert_int_equal(sluice_blob_kind(read), kind);
		assert_int_equal(sluice_device_of(sluice_blob_data(read)), place());
		assert_int_equal((uintptr_t)sluice_blob_data(read) % 4096, 0);
		assert_ok(sluice_blob_release(made));
		assert_int_equal(sluice_blob_exists(other, "a blob"), 1);
		assert_ok(sluice_blob_delete(other, "a blob"));
		assert_int_equal(sluice_blob_exists(other, "a blob"), 0);
		assert_blob(read, "a blob", sizes[i]);
		assert_ok(sluice_blob_release(read));
		assert_refused(sluice_blob_get(other, "a blob", 0, &read), ENOENT, "a blob");
	}
	assert_ok(sluice_store_close(other));
	assert_idle(d->store);
	/* Left on a device is a slab of each of the sizes, for the next. */
	if (ON_DEVICE)
		assert_memory_is(d->store, place(), 6 * 2 * MIB);
}

struct late {
	struct daemon *d;
	int rc;
	bool right;
};

static void *get_late(void *argument)
{
	struct late *late = argument;
	sluice_blob *blob;

	late->rc = sluice_blob_get(late->d->store, "late", 20000, &blob);
	if (!late->rc) {
		late->right = blob_is(blob, "late", 5000);
		sluice_blob_release(blob);
	}
	return NULL;
}

DAEMON_TEST(a_get_waits_for_the_seal)
{
	struct late late = {d, 1, false};
	sluice_blob *blob;
	pthread_t thread;
	double begun = seconds_now();

	assert_refused(sluice_blob_get(d->store, "late", 100, &blob), ETIMEDOUT, "late");
	assert_true(seconds_now() - begun >= 0.09);
	assert_int_equal(pthread_create(&thread, NULL, get_late, &late), 0);
	while (stats_of(d->store).waiting == 0)
		sleep_ms(1);
	/* Others of the same store go on meanwhile. */
	blob = put(d->store, "another", 10, 0);
	assert_ok(sluice_blob_release(blob));
	blob = put(d->store, "late", 5000, 0);
	pthread_join(thread, NULL);
	assert_int_equal(late.rc, 0);
	assert_true(late.right);
	assert_let_go(blob, d->store, "late");
	assert_ok(sluice_blob_delete(d->store, "another"));
	assert_idle(d->store);
}

DAEMON_TEST(held_blob_stays_when_it_is_deleted)
{
	sluice_store *other = daemon_connect(d);
	sluice_blob *made = put(d->store, "x", 200000, 0), *read, *again;

	read = got(other, "x");
	assert_let_go(made, d->store, "x");
	/* The name is free at once, and the bytes stay. */
	again = put(d->store, "x", 200000, 0);
	for (int i = 0; i < 20; i++) {
		sluice_blob *more = put(d->store, "more", 200000, 0);

		assert_let_go(more, d->store, "more");
	}
	assert_blob(read, "x", 200000);
	assert_int_equal(stats_of(d->store).dying >= 1, 1);
	assert_ok(sluice_blob_release(read));
	assert_let_go(again, d->store, "x");
	assert_ok(sluice_store_close(other));
	assert_idle(d->store);
}

DAEMON_TEST(several_are_sealed_at_once_or_not_at_all)
{
	struct sluice_blob_request requests[SLUICE_BLOB_BATCH] = {0};
	char names[SLUICE_BLOB_BATCH][20];
	const char *keys[SLUICE_BLOB_BATCH];
	sluice_blob *made[SLUICE_BLOB_BATCH], *read[SLUICE_BLOB_BATCH], *other, *taker;
	struct sluice_blob_options o = SLUICE_BLOB_OPTIONS_INIT;

	for (int i = 0; i < SLUICE_BLOB_BATCH; i++) {
		snprintf(names[i], sizeof(names[i]), "many/%d", i);
		keys[i] = names[i];
		requests[i] =
			(struct sluice_blob_request){names[i], 1 + (size_t)i * 1000, place(), NULL};
	}
	assert_ok(sluice_blob_create_many(d->store, requests, SLUICE_BLOB_BATCH, made));
	for (int i = 0; i < SLUICE_BLOB_BATCH; i++)
		set_bytes(made[i], i, requests[i].bytes);
	assert_ok(sluice_blob_seal_many(made, SLUICE_BLOB_BATCH));
	assert_ok(sluice_blob_get_many(d->store, keys, SLUICE_BLOB_BATCH, 0, read));
	for (int i = 0; i < SLUICE_BLOB_BATCH; i++) {
		assert_int_equal(sluice_blob_size(read[i]), requests[i].bytes);
		assert_int_equal(byte_at(read[i], 0), i);
		assert_int_equal(byte_at(read[i], requests[i].bytes - 1), i);
	}
	assert_ok(sluice_blob_release_many(read, SLUICE_BLOB_BATCH));
	assert_ok(sluice_blob_release_many(made, SLUICE_BLOB_BATCH));
	for (int i = 0; i < SLUICE_BLOB_BATCH; i++)
		assert_ok(sluice_blob_delete(d->store, names[i]));
	other = put(d->store, "many/1", 3, 0);
	for (int i = 0; i < 3; i++)
		requests[i].bytes = 10; /* from leases: their names are not known before the seal */
	made[0] = put(d->store, "warm", 10, 0);
	assert_ok(sluice_blob_release(made[0]));
	for (int i = 0; i < 3; i++)
		assert_ok(sluice_blob_create(d->store, names[i], 10, place(), NULL, &made[i]));
	assert_refused(sluice_blob_seal_many(made, 3), EEXIST, "many/1");
	assert_int_equal(sluice_blob_exists(d->store, "many/0"), 0);
	assert_int_equal(sluice_blob_exists(d->store, "many/2"), 0);
	/* Their names are free for others, */
	o.flags = SLUICE_BLOB_RESERVE;
	assert_ok(sluice_blob_create(d->store, "many/0", 10, place(), &o, &taker));
	assert_ok(sluice_blob_release(taker));
	/* and they are as they were: they can still be sealed. */
	assert_ok(sluice_blob_seal(made[0]));
	assert_ok(sluice_blob_release_many(made, 3));
	assert_let_go(other, d->store, "many/0");
	assert_ok(sluice_blob_delete(d->store, "many/1"));
	assert_ok(sluice_blob_delete(d->store, "warm"));
	assert_idle(d->store);
}

DAEMON_TEST(blob_open_for_reading_cannot_be_written)
{
	sluice_blob *blob = put(d->store, "x", 100, 0), *read = got(d->store, "x");
	pid_t pid;

	if (ON_DEVICE) {
		assert_true(sluice_copy((void *)(uintptr_t)sluice_blob_data(read), "y", 1) < 0);
	} else {
		pid = fork();
		if (!pid) {
			signal(SIGSEGV, SIG_DFL);
			*(volatile char *)sluice_blob_data(read) = 1;
			_exit(0);
		}
		assert_true(WIFSIGNALED(child_status(pid)));
	}
	assert_blob(read, "x", 100);
	assert_ok(sluice_blob_release(read));
	assert_let_go(blob, d->store, "x");
}

DAEMON_TEST(stat_and_list_tell_what_there_is)
{
	struct sluice_blob_info info = {.size = sizeof(info)}, infos[7] = {{.size = sizeof(info)}};
	uint64_t cursor = 0;
	int n, count = 0;
	bool seen[100] = {false};

	for (int i = 0; i < 100; i++)
		assert_ok(sluice_blob_release(
			put(d->store, named("%s/%d", i % 2 ? "odd" : "even", i), 10, 0)));
	while ((n = sluice_blob_list(d->store, "odd/", &cursor, infos, COUNT_OF(infos))) > 0)
		for (int i = 0; i < n; i++, count++) {
			int number = atoi(infos[i].name + 4);

			assert_int_equal(number % 2, 1);
			assert_false(seen[number]);
			seen[number] = true;
			assert_int_equal(infos[i].state, SLUICE_BLOB_IS_SEALED);
		}
	assert_int_equal(n, 0);
	assert_int_equal(count, 50);
	assert_ok(sluice_blob_stat(d->store, "even/4", &info));
	assert_string_equal(info.name, "even/4");
	assert_int_equal(info.bytes, 10);
	assert_int_equal(info.memory, ON_DEVICE ? 32768 : 4096);
	assert_int_equal(info.device, place());
	assert_int_equal(info.kind, ON_DEVICE ? SLUICE_BLOB_ON_DEVICE : SLUICE_BLOB_ON_HOST);
	assert_int_equal(info.place[0] != '\0', ON_DEVICE);
	assert_int_equal(info.process, getpid());
	assert_int_equal(info.user, getuid());
	assert_int_equal(info.holders, 0);
	assert_true(info.made_ns > INT64_C(1700000000) * 1000000000);
	assert_ok(sluice_blob_pin(d->store, "even/4", 1));
	assert_ok(sluice_blob_stat(d->store, "even/4", &info));
	assert_int_equal(info.flags, SLUICE_BLOB_PIN);
	assert_ok(sluice_blob_pin(d->store, "even/4", 0));
	assert_refused(sluice_blob_stat(d->store, "even/5", &info), ENOENT, "even/5");
	assert_refused(sluice_blob_pin(d->store, "even/5", 1), ENOENT, "even/5");
	for (int i = 0; i < 100; i++)
		assert_ok(sluice_blob_delete(d->store, named("%s/%d", i % 2 ? "odd" : "even", i)));
	assert_idle(d->store);
}

DAEMON_TEST(a_watch_tells_what_happens)
{
	struct sluice_blob_options o = SLUICE_BLOB_OPTIONS_INIT;
	struct sluice_watch_event e = {.size = sizeof(e)};
	sluice_watch *watch;
	sluice_blob *blob;

	assert_ok(sluice_watch_open(d->store, "a/", &watch));
	assert_false(readable(sluice_watch_fd(watch), 0));
	assert_refused(sluice_watch_next(watch, 10, &e), EAGAIN, "in time");
	o.flags = SLUICE_BLOB_RESERVE;
	assert_ok(sluice_blob_release(put(d->store, "b/1", 10, 0)));
	assert_ok(sluice_blob_create(d->store, "a/1", 10, place(), &o, &blob));
	assert_true(readable(sluice_watch_fd(watch), 5000));
	assert_ok(sluice_watch_next(watch, 5000, &e));
	assert_int_equal(e.kind, SLUICE_WATCH_CREATED);
	assert_string_equal(e.name, "a/1");
	assert_ok(sluice_blob_seal(blob));
	assert_ok(sluice_watch_next(watch, 5000, &e));
	assert_int_equal(e.kind, SLUICE_WATCH_SEALED);
	assert_int_equal(e.bytes, 10);
	assert_int_equal(e.id, sluice_blob_id(blob));
	assert_let_go(blob, d->store, "a/1");
	assert_ok(sluice_watch_next(watch, 5000, &e));
	assert_int_equal(e.kind, SLUICE_WATCH_DELETED);
	/* One that is aborted. */
	assert_ok(sluice_blob_create(d->store, "a/2", 10, place(), &o, &blob));
	assert_ok(sluice_blob_release(blob));
	assert_ok(sluice_watch_next(watch, 5000, &e));
	assert_ok(sluice_watch_next(watch, 5000, &e));
	assert_int_equal(e.kind, SLUICE_WATCH_DELETED);
	assert_string_equal(e.name, "a/2");
	assert_false(readable(sluice_watch_fd(watch), 20));
	assert_refused(sluice_store_close(d->store), EBUSY, "watches");
	sluice_watch_free(watch);
	assert_ok(sluice_blob_delete(d->store, "b/1"));
	assert_idle(d->store);
}

DAEMON_TEST(a_watcher_that_does_not_read_is_told_what_it_lost)
{
	struct sluice_watch_event e = {.size = sizeof(e)};
	sluice_watch *watch;
	unsigned events = 0;

	assert_ok(sluice_watch_open(d->store, NULL, &watch));
	for (int i = 0; i < 2000; i++)
		assert_let_go(put(d->store, "w", 10, 0), d->store, "w");
	do {
		assert_ok(sluice_watch_next(watch, 5000, &e));
		events++;
	} while (e.kind != SLUICE_WATCH_LOST);
	assert_true(events > 10 && events < 6000);
	/* And from there on it goes on. */
	assert_ok(sluice_blob_release(put(d->store, "w", 10, 0)));
	assert_ok(sluice_watch_next(watch, 5000, &e));
	assert_int_equal(e.kind, SLUICE_WATCH_CREATED);
	assert_ok(sluice_watch_next(watch, 5000, &e));
	assert_int_equal(e.kind, SLUICE_WATCH_SEALED);
	sluice_watch_free(watch);
	assert_ok(sluice_blob_delete(d->store, "w"));
	assert_idle(d->store);
}

/* Though its process lives, and the server could not tell it what it has lost. */
DAEMON_TEST(a_closed_watch_that_lost_events_is_gone)
{
	sluice_watch *watches[8];

	for (size_t i = 0; i < COUNT_OF(watches); i++)
		assert_ok(sluice_watch_open(d->store, NULL, &watches[i]));
	for (int i = 0; i < 1000; i++)
		assert_let_go(put(d->store, "w", 10, 0), d->store, "w");
	for (size_t i = 0; i < COUNT_OF(watches); i++)
		sluice_watch_free(watches[i]);
	assert_idle(d->store);
}

DAEMON_TEST(wrong_arguments_are_refused)
{
	struct sluice_blob_options o = SLUICE_BLOB_OPTIONS_INIT;
	char longest[SLUICE_BLOB_NAME_MOST + 2];
	sluice_blob *blob = NULL;
	sluice_store *store;

	memset(longest, 'x', sizeof(longest));
	longest[sizeof(longest) - 1] = '\0';
	assert_refused(sluice_blob_create(d->store, longest, 1, -1, NULL, &blob), EINVAL, "255");
	assert_refused(sluice_blob_get(d->store, longest, 0, &blob), EINVAL, "255");
	longest[SLUICE_BLOB_NAME_MOST] = '\0';
	blob = put(d->store, longest, 5, 0);
	assert_blob(blob, longest, 5);
	assert_let_go(blob, d->store, longest);
	assert_refused(sluice_blob_create(d->store, "a\nb", 1, -1, NULL, &blob), EINVAL, "UTF-8");
	assert_refused(sluice_blob_create(d->store, "a\xff", 1, -1, NULL, &blob), EINVAL, "UTF-8");
	assert_refused(sluice_blob_create(d->store, "a", 0, -1, NULL, &blob), EINVAL, "0 bytes");
	assert_refused(sluice_blob_create(d->store, "a", 1, 99, NULL, &blob), ENOTSUP, "device 99");
	o.flags = 1u << 20;
	assert_refused(sluice_blob_create(d->store, "a", 1, -1, &o, &blob), EINVAL, "flags");
	assert_refused(sluice_blob_get(d->store, "", 0, &blob), EINVAL, "empty");
	assert_refused(sluice_blob_get(NULL, "a", 0, &blob), EINVAL, "NULL");
	assert_refused(sluice_blob_get_id(d->store, 0, 0, &blob), EINVAL, "id");
	assert_refused(sluice_store_open("/tmp/there/is/nothing", NULL, &store), ENOENT, "nothing");
	assert_ok(sluice_blob_release(NULL));
	assert_ok(sluice_store_close(NULL));
	sluice_watch_free(NULL);
	/* "../x" is a name as any other. */
	assert_let_go(put(d->store, "../../x", 5, 0), d->store, "../../x");
	assert_idle(d->store);
}

DAEMON_TEST(a_child_must_not_use_the_store)
{
	sluice_blob *blob, *other;
	int where = place(); /* the child must not look for a device */
	pid_t pid;

	assert_ok(create_on(d->store, "x", 100, where, 0, &blob));
	pid = fork();
	if (!pid) {
		const int rcs[] = {
			sluice_blob_get(d->store, "x", 0, &other),
			sluice_blob_get_on(d->store, "x", where, 0, &other),
			sluice_blob_create(d->store, "y", 1, where, NULL, &other),
			sluice_blob_publish(d->store, "y", blob, 1, NULL, &other),
			sluice_blob_seal_on(blob, NULL),
			sluice_blob_wait_sealed(blob, 0),
			sluice_blob_release(blob),
			sluice_store_close(d->store),
		};

		for (unsigned i = 0; i < COUNT_OF(rcs); i++)
			if (rcs[i] != -ECHILD)
				_exit(1 + (int)i);
		_exit(0);
	}
	assert_int_equal(child_status(pid), 0);
	assert_ok(sluice_blob_seal(blob));
	assert_blob(blob, "x", 100);
	assert_let_go(blob, d->store, "x");
}

/* ------------------------------------------------------------------------------------ threads */

struct worker {
	struct daemon *d;
	unsigned number;
	const char *wrong;
};

static void *work(void *argument)
{
	struct worker *w = argument;
	sluice_store *store = w->d->store;
	struct rng r = {w->number * UINT64_C(0x9e3779b97f4a7c15) + 1};
	unsigned places = (unsigned)place() + 2; /* the host, and devices up to place() */
	sluice_stream stream = NULL;

	if (ON_DEVICE && sluice_stream_new((int)(w->number % (places - 1)), &stream))
		w->wrong = "stream";
	for (int i = 0; i < (ON_DEVICE ? 60 : 300) && !w->wrong; i++) {
		char name[32];
		size_t n = 1 + rng_below(&r, i % 10 ? 20000 : ON_DEVICE ? 3 * MIB : 300000);
		sluice_blob *blob = NULL, *read = NULL;

		snprintf(name, sizeof(name), "%u/%d", w->number, i);
		if (create_on(store, name, n, (int)rng_below(&r, places) - 1,
		              i % 3 ? 0 : SLUICE_BLOB_RESERVE, &blob))
			w->wrong = "create";
		else if (stream && i % 2 ? sluice_blob_seal_on(blob, stream)
		                         : sluice_blob_seal(blob))
			w->wrong = "seal";
		else if (sluice_blob_get(store, name, -1, &read))
			w->wrong = "get";
		else if (!blob_is(read, name, n) || !blob_is(blob, name, n))
			w->wrong = "bytes";
		sluice_blob_release(blob);
		if (!w->wrong && sluice_blob_delete(store, name))
			w->wrong = "delete";
		if (!w->wrong && !blob_is(read, name, n))
			w->wrong = "bytes after the delete";
		sluice_blob_release(read);
	}
	if (stream)
		sluice_stream_free(stream);
	return NULL;
}

DAEMON_TEST(calls_threads_share_a_store)
{
	struct worker workers[6];
	pthread_t threads[COUNT_OF(workers)];

	for (unsigned i = 0; i < COUNT_OF(workers); i++) {
		workers[i] = (struct worker){d, i, NULL};
		assert_int_equal(pthread_create(&threads[i], NULL, work, &workers[i]), 0);
	}
	for (unsigned i = 0; i < COUNT_OF(workers); i++)
		pthread_join(threads[i], NULL);
	for (unsigned i = 0; i < COUNT_OF(workers); i++)
		if (workers[i].wrong)
			fail_msg("thread %u: %s: %s", i, workers[i].wrong, sluice_last_message());
	assert_idle(d->store);
}

/* What a thread gets of a server that has stopped. */
struct getter {
	sluice_store *store;
	const char *name;
	unsigned count, before,
		after; /* names; the time-out of the first get, milliseconds; a second one without */
	int rc[2];
	sluice_blob *blob;
	_Atomic bool began; /* and ended the first get */
};

static void *get_by_time(void *argument)
{
	struct getter *g = argument;
	const char *names[SLUICE_BLOB_BATCH];
	sluice_blob *blobs[SLUICE_BLOB_BATCH];

	for (unsigned i = 0; i < g->count; i++)
		names[i] = g->name;
	g->rc[0] = sluice_blob_get_many(g->store, names, g->count, (int)g->before, blobs);
	atomic_store(&g->began, true);
	if (!g->after)
		return NULL;
	g->rc[1] = sluice_blob_get(g->store, g->name, -1, &g->blob);
	return NULL;
}

static void await_first(struct getter *g)
{
	while (!atomic_load(&g->began))
		sleep_ms(1);
}

DAEMON_TEST(a_time_out_needs_no_server)
{
	sluice_store *other = daemon_connect(d);
	struct sluice_watch_event event = {.size = sizeof(event)};
	pid_t server = daemon_server(d, 0);
	/* Requests of so many names fill the socket. */
	struct getter getters[20];
	pthread_t threads[COUNT_OF(getters)];
	sluice_watch *watch;
	sluice_blob *blob;

	assert_ok(sluice_watch_open(other, NULL, &watch));
	blob = put(d->store, "there", 5000, 0);
	while (event.kind != SLUICE_WATCH_SEALED)
		assert_ok(sluice_watch_next(watch, -1, &event));
	kill(server, SIGSTOP);
	for (unsigned i = 0; i < COUNT_OF(getters); i++) {
		/* The first few wait for ever after that; some want memory that is not mapped. */
		getters[i] = (struct getter){.store = other,
		                             .name = i % 4 ? "missing" : "there",
		                             .count = i % 4 ? SLUICE_BLOB_BATCH : 1,
		                             .before = i < 5 ? 0 : 300,
		                             .after = i < 5};
		assert_int_equal(pthread_create(&threads[i], NULL, get_by_time, &getters[i]), 0);
	}
	assert_int_equal(sluice_watch_next(watch, 20, &event), -EAGAIN);
	for (unsigned i = 5; i < COUNT_OF(getters); i++)
		pthread_join(threads[i], NULL);
	for (unsigned i = 0; i < 5; i++)
		await_first(&getters[i]);
	kill(server, SIGCONT);
	assert_ok(sluice_blob_release(put(d->store, "missing", 100, 0)));
	for (unsigned i = 0; i < 5; i++) {
		pthread_join(threads[i], NULL);
		assert_ok(getters[i].rc[1]);
		assert_blob(getters[i].blob, getters[i].name, i % 4 ? 100 : 5000);
		assert_ok(sluice_blob_release(getters[i].blob));
	}
	for (unsigned i = 0; i < COUNT_OF(getters); i++)
		assert_int_equal(getters[i].rc[0], -ETIMEDOUT);
	assert_refused(sluice_blob_get(other, "another", 0, &getters[0].blob), ENOENT, "another");
	sluice_watch_free(watch);
	assert_ok(sluice_store_close(other));
	assert_let_go(blob, d->store, "there");
	assert_ok(sluice_blob_delete(d->store, "missing"));
	assert_idle(d->store);
}

static void nothing(int number)
{
	(void)number;
}

/* So also for the thread that cannot send, because the socket is full. */
DAEMON_TEST(a_signal_does_not_shorten_a_time_out)
{
	const struct sigaction action = {.sa_handler = nothing};
	const struct itimerval often = {{0, 5000}, {0, 5000}}, never = {{0, 0}, {0, 0}};
	pid_t server = daemon_server(d, 0);
	struct getter getters[20], own;
	pthread_t threads[COUNT_OF(getters)];
	sigset_t alarm, before;
	double start;

	assert_int_equal(sigaction(SIGALRM, &action, NULL), 0);
	sigemptyset(&alarm);
	sigaddset(&alarm, SIGALRM);
	assert_int_equal(pthread_sigmask(SIG_BLOCK, &alarm, &before), 0);
	own = (struct getter){
		.store = d->store, .name = "missing", .count = SLUICE_BLOB_BATCH, .before = 300};
	kill(server, SIGSTOP);
	for (unsigned i = 0; i < COUNT_OF(getters); i++) {
		getters[i] = own;
		assert_int_equal(pthread_create(&threads[i], NULL, get_by_time, &getters[i]), 0);
	}
	sleep_ms(100);
	assert_int_equal(pthread_sigmask(SIG_SETMASK, &before, NULL), 0);
	assert_int_equal(setitimer(ITIMER_REAL, &often, NULL), 0);
	start = seconds_now();
	get_by_time(&own);
	assert_true(seconds_now() - start >= 0.3);
	assert_int_equal(setitimer(ITIMER_REAL, &never, NULL), 0);
	for (unsigned i = 0; i < COUNT_OF(getters); i++)
		pthread_join(threads[i], NULL);
	kill(server, SIGCONT);
	assert_int_equal(own.rc[0], -ETIMEDOUT);
	assert_idle(d->store);
}

DAEMON_TEST(without_a_descriptor_no_store_is_opened)
{
	struct rlimit before, few;
	sluice_store *store = NULL;
	int next = dup(0), rc = -EMFILE;

	assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
	few = before;
	close(next);
	/* A descriptor more each time; the socket takes the first. */
	for (few.rlim_cur = (rlim_t)next; rc == -EMFILE && !setrlimit(RLIMIT_NOFILE, &few);
	     few.rlim_cur++)
		rc = sluice_store_open(d->path, NULL, &store);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
	assert_ok(rc);
	assert_true(few.rlim_cur > (rlim_t)next + 3);
	assert_ok(sluice_store_close(store));
}

/* The server takes so many waits of a client; the gets of two threads more wait in the client. */
DAEMON_TEST(a_get_beyond_all_waits_does_not_ask_all_the_time)
{
	enum { WAITS = 128 };
	struct getter getters[WAITS + 2];
	pthread_t threads[COUNT_OF(getters)];
	uint64_t refused;

	for (unsigned i = 0; i < COUNT_OF(getters); i++) {
		getters[i] = (struct getter){
			.store = d->store, .name = "late", .count = 1, .after = true};
		assert_int_equal(pthread_create(&threads[i], NULL, get_by_time, &getters[i]), 0);
	}
	while (stats_of(d->store).waiting < WAITS)
		sleep_ms(1);
	refused = stats_of(d->store).refused;
	sleep_ms(500);
	refused = stats_of(d->store).refused - refused;
	assert_ok(sluice_blob_release(put(d->store, "late", 100, 0)));
	for (unsigned i = 0; i < COUNT_OF(getters); i++) {
		pthread_join(threads[i], NULL);
		assert_ok(getters[i].rc[1]);
		assert_blob(getters[i].blob, "late", 100);
		assert_ok(sluice_blob_release(getters[i].blob));
	}
	print_message("%llu requests were refused\n", (unsigned long long)refused);
	assert_in_range(refused, 1, 300);
	assert_ok(sluice_blob_delete(d->store, "late"));
	assert_idle(d->store);
}

/* Calls connect again to a socket at which nobody answers: the server is dead, and the supervisor stopped. */
DAEMON_TEST(a_time_out_needs_no_welcome)
{
	struct getter getter = {.store = d->store, .name = "missing", .count = 1, .after = 1};
	pid_t supervisor = daemon_supervisor(d, 0);
	double begun = seconds_now();
	sluice_store *other;
	pthread_t thread;
	sluice_blob *blob;

	kill(supervisor, SIGSTOP);
	kill(daemon_server(d, 0), SIGKILL);
	assert_int_equal(pthread_create(&thread, NULL, get_by_time, &getter), 0);
	assert_refused(sluice_blob_get(d->store, "missing", 300, &blob), ETIMEDOUT, "in time");
	assert_true(seconds_now() - begun < 8);
	await_first(&getter);
	kill(supervisor, SIGCONT);
	other = daemon_connect(d);
	assert_ok(sluice_blob_release(put(other, "missing", 100, 0)));
	pthread_join(thread, NULL);
	assert_int_equal(getter.rc[0], -ETIMEDOUT);
	assert_ok(getter.rc[1]);
	assert_let_go(getter.blob, other, "missing");
	assert_ok(sluice_store_close(other));
	assert_idle(d->store);
}

struct patient {
	sluice_store *store;
	pthread_t thread;
	int rc;
};

static void *get_at_once(void *argument)
{
	struct patient *p = argument;
	sluice_blob *blob;

	p->rc = sluice_blob_get(p->store, "there", 0, &blob);
	if (!p->rc && !blob_is(blob, "there", 5000))
		p->rc = -EILSEQ;
	if (!p->rc)
		sluice_blob_release(blob);
	return NULL;
}

/* Its successor takes longer than a server that runs may be silent. */
DAEMON_TEST(get_waits_for_a_late_successor)
{
	pid_t supervisor = daemon_supervisor(d, 0);
	sluice_store *other = daemon_connect(d);
	struct patient p[] = {{.store = other}, {.store = other}, {.store = d->store}};

	assert_ok(sluice_blob_release(put(d->store, "there", 5000, 0)));
	kill(supervisor, SIGSTOP);
	kill(daemon_server(d, 0), SIGKILL);
	for (size_t i = 0; i < COUNT_OF(p); i++)
		assert_int_equal(pthread_create(&p[i].thread, NULL, get_at_once, &p[i]), 0);
	sleep_ms(3500);
	kill(supervisor, SIGCONT);
	for (size_t i = 0; i < COUNT_OF(p); i++) {
		pthread_join(p[i].thread, NULL);
		assert_int_equal(p[i].rc, 0);
	}
	assert_ok(sluice_store_close(other));
	assert_ok(sluice_blob_delete(d->store, "there"));
}

/* There is a socket, and no server comes: neither in the time of a get nor in that of any call. */
DAEMON_TEST(get_gives_up_a_successor_that_does_not_come)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	struct sluice_store_options o = SLUICE_STORE_OPTIONS_INIT;
	double begun = seconds_now();
	struct patient p;
	char path[120];

	o.patience_ms = 100;
	assert_ok(sluice_store_open(d->path, &o, &p.store));
	assert_ok(sluice_blob_release(put(d->store, "there", 5000, 0)));
	snprintf(path, sizeof(path), "%s.away", d->path);
	assert_int_equal(rename(d->path, path), 0);
	strcpy(address.sun_path, d->path);
	assert_int_equal(bind(listener, (struct sockaddr *)&address, sizeof(address)), 0);
	assert_int_equal(listen(listener, 5), 0);
	kill(daemon_server(d, 0), SIGKILL);
	sleep_ms(20);
	get_at_once(&p);
	assert_int_equal(p.rc, -ECONNREFUSED);
	assert_true(seconds_now() - begun > 8);
	assert_int_equal(rename(path, d->path), 0);
	close(listener);
	get_at_once(&p);
	assert_int_equal(p.rc, 0);
	assert_ok(sluice_store_close(p.store));
	assert_ok(sluice_blob_delete(d->store, "there"));
}

/* Bytes of blobs that are mapped for reading. */
static size_t mapped_bytes(void)
{
	FILE *maps = fopen("/proc/self/maps", "r");
	unsigned long start, end;
	size_t bytes = 0;
	char line[512];

	assert_non_null(maps);
	while (fgets(line, sizeof(line), maps))
		if (strstr(line, "sluice-blob") && strstr(line, " r--s ") &&
		    sscanf(line, "%lx-%lx", &start, &end) == 2)
			bytes += end - start;
	fclose(maps);
	return bytes;
}

DAEMON_TEST(memory_that_nobody_holds_stays_mapped_up_to_a_limit)
{
	enum { COUNT = 8, SMALL = 1 << 20, LARGE = 7 << 20, LIMIT = 8 << 20 };
	struct sluice_store_options o = SLUICE_STORE_OPTIONS_INIT;
	sluice_blob *blobs[COUNT + 1];
	sluice_store *other;
	char name[20];

	if (ON_DEVICE)
		skip();
	o.cache_bytes = LIMIT;
	assert_ok(sluice_store_open(d->path, &o, &other));
	for (int i = 0; i <= COUNT; i++) {
		snprintf(name, sizeof(name), "%d", i);
		assert_ok(sluice_blob_release(
			put(d->store, name, i < COUNT ? SMALL : LARGE, SLUICE_BLOB_ALONE)));
		blobs[i] = got(other, name);
	}
	for (int i = 0; i <= COUNT; i++) {
		assert_ok(sluice_blob_release(blobs[i]));
		assert_true(mapped_bytes() > 0);
	}
	/* d->store reads what it has made by its mappings for writing. */
	assert_in_range(mapped_bytes(), LARGE, LIMIT);
	assert_ok(sluice_store_close(other));
	for (int i = 0; i <= COUNT; i++)
		assert_ok(sluice_blob_delete(d->store, named("%d", i)));
	assert_idle(d->store);
}

DAEMON_MAIN("512M")
