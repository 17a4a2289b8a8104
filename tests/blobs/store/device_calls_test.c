/* SPDX-License-Identifier: Apache-2.0 */
/* Blobs on devices: put, got, forgotten, by many threads; on the two emulated ones. */
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include "store/device_common.h"

/* ----------------------------------------------------------------------------------- put and get */

static int read_as_child(const struct daemon *d, const char *argument)
{
	sluice_store *store = daemon_connect(d);
	sluice_blob *blob;
	int rc = sluice_blob_get(store, "fresh", 10000, &blob);

	(void)argument;
	if (rc || !blob_is(blob, "fresh", 3 * MIB))
		return 1;
	sluice_blob_release(blob);
	return sluice_store_close(store) ? 2 : 0;
}

static int put_as_child(const struct daemon *d, const char *argument)
{
	sluice_store *store = daemon_connect(d);
	sluice_blob *blob;

	if (create_on(store, "left", MIB, atoi(argument), 0, &blob) || sluice_blob_seal(blob))
		return 1;
	_exit(0); /* nothing is closed */
}

DAEMON_TEST(processes_share_memory_of_a_device_and_it_outlives_them)
{
	sluice_blob *blob;

	for (int device = 0; device < 2; device++) {
		char number[4] = {(char)('0' + device)};

		blob = put_on(d->store, "fresh", 3 * MIB, device, 0);
		assert_int_equal(child_status(child_start("read", d, "")), 0);
		assert_let_go(blob, d->store, "fresh");
		assert_int_equal(child_status(child_start("put", d, number)), 0);
		assert_ok(sluice_blob_get(d->store, "left", 10000, &blob));
		assert_true(blob_is(blob, "left", MIB));
		assert_let_go(blob, d->store, "left");
		assert_memory_is(d->store, device, 0);
	}
	assert_idle(d->store);
}

DAEMON_TEST(small_blobs_share_slabs_and_those_that_are_alone_do_not)
{
	enum { COUNT = 1000 };
	char name[20];

	for (int i = 0; i < COUNT; i++)
		assert_ok(sluice_blob_release(put_on(d->store, named("small/%d", i), 4096, 0, 0)));
	/* 64 in each slab, and one slab for those to come. */
	assert_memory_is(d->store, 0, (COUNT / 64 + 2) * SLAB);
	for (int i = 0; i < COUNT; i += 7) {
		sluice_blob *read;

		snprintf(name, sizeof(name), "small/%d", i);
		read = got(d->store, name);
		assert_true(blob_is(read, name, 4096));
		assert_ok(sluice_blob_release(read));
	}
	for (int i = 0; i < COUNT; i++)
		assert_ok(sluice_blob_delete(d->store, named("small/%d", i)));
	assert_memory_is(d->store, 0, 2 * SLAB);
	for (int i = 0; i < 5; i++)
		assert_ok(sluice_blob_release(
			put_on(d->store, named("alone/%d", i), 4096, 1, SLUICE_BLOB_ALONE)));
	assert_int_equal(device_of(d->store, 1).memory_bytes, 5 * SLAB);
	for (int i = 0; i < 5; i++)
		assert_ok(sluice_blob_delete(d->store, named("alone/%d", i)));
	assert_memory_is(d->store, 1, 0);
	assert_idle(d->store);
}

static uint64_t all_calls(void)
{
	uint64_t sum = 0;

	for (int kind = 0; kind < SLUICE_EMULATED_KINDS; kind++)
		sum += sluice_emulated_calls(kind, NULL);
	return sum;
}

DAEMON_TEST(getting_it_again_does_not_call_the_driver)
{
	sluice_blob *blob = put_on(d->store, "x", 5 * MIB, 0, 0), *read;
	uint64_t calls, gets;

	assert_ok(sluice_blob_release(blob));
	assert_ok(sluice_blob_release(got(d->store, "x")));
	gets = stats_of(d->store).requests;
	calls = all_calls();
	for (int i = 0; i < 1000; i++) {
		read = got(d->store, "x");
		assert_ok(sluice_blob_release(read));
	}
	/* Mappings of the maker that the unmap thread has unmapped may be among them. */
	assert_true(all_calls() - calls <= 2);
	assert_true(stats_of(d->store).requests - gets <= 2);
	assert_ok(sluice_blob_delete(d->store, "x"));
	assert_idle(d->store);
}

/* -------------------------------------------------------------------------------------- forget */

DAEMON_TEST(memory_goes_though_a_reader_that_had_it_sleeps)
{
	unsigned before[2] = {mappings_of(0), mappings_of(1)};
	sluice_store *reader = daemon_connect(d);
	sluice_blob *blob, *read;

	for (int device = 0; device < 2; device++) {
		blob = put_on(d->store, "x", 4 * MIB, device, 0);
		read = got(reader, "x");
		assert_let_go(blob, d->store, "x");
		assert_int_equal(device_of(d->store, device).memory_bytes, 4 * MIB);
		assert_true(blob_is(read, "x", 4 * MIB));
		/* From here on the reader's store is not touched. */
		assert_ok(sluice_blob_release(read));
		assert_memory_is(d->store, device, 0);
		assert_mappings_are(device, before[device]);
	}
	assert_ok(sluice_store_close(reader));
	assert_idle(d->store);
}

DAEMON_TEST(mappings_that_nobody_uses_are_kept_up_to_a_limit)
{
	struct sluice_store_options o = SLUICE_STORE_OPTIONS_INIT;
	unsigned before = mappings_of(0);
	sluice_store *reader;

	o.device_cache_bytes = 8 * MIB;
	assert_ok(sluice_store_open(d->path, &o, &reader));
	for (int i = 0; i < 10; i++)
		assert_ok(sluice_blob_release(put_on(d->store, named("x/%d", i), 2 * MIB, 0, 0)));
	assert_mappings_are(0, before);
	for (int i = 0; i < 10; i++)
		assert_ok(sluice_blob_release(got(reader, named("x/%d", i))));
	assert_mappings_are(0, before + 4);
	assert_int_equal(mappings_of(0), before + 4);
	/* The server knows who has what: nothing waits for a reader that had it once. */
	for (int i = 0; i < 10; i++)
		assert_ok(sluice_blob_delete(d->store, named("x/%d", i)));
	assert_memory_is(d->store, 0, 0);
	assert_mappings_are(0, before);
	assert_ok(sluice_store_close(reader));
	assert_idle(d->store);
}

DAEMON_TEST(mappings_are_reported_to_the_next_server)
{
	unsigned before = mappings_of(0);
	sluice_store *reader = daemon_connect(d);
	sluice_blob *blob = put_on(d->store, "x", 3 * MIB, 0, 0), *read = got(reader, "x");
	pid_t server = daemon_server(d, 0);

	assert_ok(sluice_blob_release(blob));
	kill(server, SIGKILL);
	daemon_server(d, server);
	assert_true(blob_is(read, "x", 3 * MIB));
	assert_ok(sluice_blob_delete(d->store, "x"));
	assert_true(device_of(d->store, 0).memory_bytes >= 4 * MIB);
	assert_true(blob_is(read, "x", 3 * MIB));
	/* The reader's store has not been called since: it has connected by itself, and is heard of. */
	assert_ok(sluice_blob_release(read));
	assert_memory_is(d->store, 0, 0);
	assert_mappings_are(0, before);
	blob = put_on(d->store, "x", 100, 0, 0);
	read = got(reader, "x");
	assert_true(blob_is(read, "x", 100));
	assert_ok(sluice_blob_release(read));
	assert_let_go(blob, d->store, "x");
	assert_ok(sluice_store_close(reader));
	assert_idle(d->store);
}

/* ---------------------------------------------------------------------------------- what is not */

DAEMON_TEST(impossible_options_are_refused)
{
	sluice_blob *blob = NULL, *read;
	sluice_stream stream;
	char bytes[100];

	assert_refused(sluice_blob_create(d->store, "a", 1, 99, NULL, &blob), ENOTSUP, "99");
	assert_refused(sluice_blob_create(d->store, "a", 1, -2, NULL, &blob), ENOTSUP, "-2");
	assert_refused(sluice_blob_create(d->store, "a", 0, 0, NULL, &blob), EINVAL, "0 bytes");
	assert_refused(sluice_blob_publish(d->store, "a", bytes, 1, NULL, &blob), EINVAL, "device");
	assert_refused(sluice_blob_get_on(d->store, "a", 99, 0, &read), ENOTSUP, "99");
	assert_refused(sluice_blob_get_on(d->store, "a", -1, 0, &read), ENOTSUP, "-1");
	assert_refused(sluice_blob_get_on(d->store, "a", 0, 0, &read), ENOENT, "'a'");
	assert_ok(sluice_stream_new(0, &stream));
	assert_refused(sluice_blob_seal_on(NULL, stream), EINVAL, "NULL");
	assert_refused(sluice_blob_wait_sealed(NULL, 0), EINVAL, "NULL");
	assert_ok(sluice_stream_free(stream));
	assert_idle(d->store);
}

DAEMON_TEST(a_failure_of_the_driver_is_the_call_s)
{
	sluice_blob *blob = NULL, *read;

	for (int i = 0; i < 3; i++) {
		sluice_emulated_fail(SLUICE_EMULATED_SHARE, 1, -ENOMEM);
		assert_refused(sluice_blob_create(d->store, "x", i ? 3 * MIB : 100, 0, NULL, &blob),
		               ENOMEM, "emulated:0");
	}
	blob = put_on(d->store, "x", 3 * MIB, 0, 0);
	sluice_emulated_fail(SLUICE_EMULATED_SHARE, 1, -ENOMEM);
	assert_refused(sluice_blob_get(d->store, "x", 0, &read), ENOMEM, "emulated:0");
	read = got(d->store, "x");
	assert_true(blob_is(read, "x", 3 * MIB));
	assert_ok(sluice_blob_release(read));
	assert_let_go(blob, d->store, "x");
	assert_let_go(put_on(d->store, "x", 100, 0, 0), d->store, "x");
	assert_memory_is(d->store, 0, SLAB);
	assert_idle(d->store);
}

DAEMON_TEST(a_store_without_blobs_on_devices_has_no_threads)
{
	size_t threads;
	sluice_store *store;
	sluice_blob *blob;

	/* The devices have theirs. */
	assert_ok(sluice_blob_release(put_on(d->store, "x", 100, 0, 0)));
	threads = count_threads();
	store = daemon_connect(d);
	blob = put(store, "y", 100, 0);
	assert_ok(sluice_blob_release(got(store, "y")));
	assert_int_equal(count_threads(), threads);
	assert_ok(sluice_blob_release(got(store, "x")));
	assert_int_equal(count_threads(), threads + 2);
	assert_ok(sluice_blob_release(blob));
	assert_ok(sluice_store_close(store));
	assert_int_equal(count_threads(), threads);
	assert_ok(sluice_blob_delete(d->store, "x"));
	assert_ok(sluice_blob_delete(d->store, "y"));
	assert_idle(d->store);
}

/* --------------------------------------------------------------------------------------- threads */

struct beginner {
	sluice_store *store;
	pthread_barrier_t *barrier;
	unsigned number;
	int rc;
};

static void *begin_one(void *argument)
{
	struct beginner *b = argument;
	sluice_blob *blob = NULL;

	pthread_barrier_wait(b->barrier);
	b->rc = create_on(b->store, named("begin/%u", b->number), 1000, 1, 0, &blob);
	if (!b->rc)
		b->rc = sluice_blob_seal(blob);
	sluice_blob_release(blob);
	return NULL;
}

/* One of them makes the memory, and hears so maybe after the others have heard of their places in it. */
DAEMON_TEST(threads_may_be_the_first_on_a_device_together)
{
	struct beginner beginners[8];
	pthread_t threads[COUNT_OF(beginners)];
	pthread_barrier_t barrier;

	for (int round = 0; round < 40; round++) {
		sluice_store *store = daemon_connect(d);

		pthread_barrier_init(&barrier, NULL, COUNT_OF(beginners));
		for (unsigned i = 0; i < COUNT_OF(beginners); i++) {
			beginners[i] = (struct beginner){store, &barrier, i, 0};
			assert_int_equal(
				pthread_create(&threads[i], NULL, begin_one, &beginners[i]), 0);
		}
		for (unsigned i = 0; i < COUNT_OF(beginners); i++)
			pthread_join(threads[i], NULL);
		for (unsigned i = 0; i < COUNT_OF(beginners); i++) {
			assert_int_equal(beginners[i].rc, 0);
			assert_ok(sluice_blob_delete(store, named("begin/%u", i)));
		}
		pthread_barrier_destroy(&barrier);
		assert_ok(sluice_store_close(store));
	}
	assert_idle(d->store);
	assert_memory_is(d->store, 1, 0);
}

DAEMON_TEST(of_several_that_are_got_none_may_be_missing)
{
	static const char *const names[] = {"on a device", "on the host"};
	sluice_store *other = daemon_connect(d);
	sluice_blob *read[2] = {NULL, NULL};

	assert_ok(sluice_blob_release(put_on(d->store, names[0], 3 * MIB, 0, 0)));
	assert_ok(sluice_blob_release(put_on(d->store, names[1], 100, -1, 0)));
	sluice_emulated_fail(SLUICE_EMULATED_SHARE, 1, -ENOMEM);
	assert_refused(sluice_blob_get_many(other, names, 2, 0, read), ENOMEM, "map");
	assert_null(read[1]);
	assert_ok(sluice_blob_get_many(other, names, 2, 0, read));
	assert_true(blob_is(read[0], names[0], 3 * MIB));
	assert_true(blob_is(read[1], names[1], 100));
	assert_ok(sluice_blob_release_many(read, 2));
	assert_ok(sluice_store_close(other));
	assert_ok(sluice_blob_delete(d->store, names[0]));
	assert_ok(sluice_blob_delete(d->store, names[1]));
	assert_idle(d->store);
}

DAEMON_MAIN("256M", {"read", read_as_child}, {"put", put_as_child})
