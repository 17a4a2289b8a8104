/* SPDX-License-Identifier: Apache-2.0 */
/* Seals in stream order, on the two emulated devices. */
#include <pthread.h>
#include <signal.h>

#include "store/device_common.h"

DAEMON_TEST(a_seal_in_stream_order_comes_behind_the_stream_s_work)
{
	enum { BYTES = 3 * MIB };
	struct sluice_emulated_options late = SLUICE_EMULATED_OPTIONS_INIT;
	const struct sluice_emulated_options plain = SLUICE_EMULATED_OPTIONS_INIT;
	sluice_store *other = daemon_connect(d);
	void *bytes;

	late.seed = 7;
	late.delay_us = 300;
	for (int device = 0; device < 2; device++) {
		struct gate gate = GATE;
		sluice_blob *blob, *read;
		sluice_stream stream;

		assert_ok(sluice_emulated_configure(device, &late));
		assert_ok(sluice_stream_new(device, &stream));
		assert_ok(sluice_pinned_alloc(device, BYTES, &bytes));
		pattern_fill(bytes, BYTES, 0, seed_of("x", BYTES));
		assert_ok(sluice_blob_create(d->store, "x", BYTES, device, NULL, &blob));
		assert_refused(sluice_blob_wait_sealed(blob, 0), EINVAL, "nobody");
		assert_ok(sluice_emulated_call(device, stream, gate_pass, &gate));
		assert_ok(sluice_copy_on(sluice_blob_mutable_data(blob), bytes, BYTES, stream));
		assert_ok(sluice_blob_seal_on(blob, stream));
		assert_refused(sluice_blob_wait_sealed(blob, 20), EINPROGRESS, "stream");
		assert_refused(sluice_blob_seal(blob), EPERM, "already");
		assert_refused(sluice_blob_seal_on(blob, stream), EPERM, "already");
		assert_int_equal(sluice_blob_exists(other, "x"), 0);
		gate_open(&gate);
		assert_ok(sluice_blob_get(other, "x", 20000, &read));
		assert_true(blob_is(read, "x", BYTES));
		assert_ok(sluice_blob_wait_sealed(blob, 20000));
		assert_ok(sluice_blob_wait_sealed(blob, 0));
		assert_true(sluice_blob_id(blob) == sluice_blob_id(read));
		assert_refused(sluice_blob_seal_on(blob, stream), EPERM, "sealed");
		assert_ok(sluice_blob_release(read));
		assert_let_go(blob, other, "x");
		assert_ok(sluice_pinned_free(bytes));
		assert_ok(sluice_stream_free(stream));
		assert_ok(sluice_emulated_configure(device, &plain));
	}
	assert_ok(sluice_store_close(other));
	assert_idle(d->store);
}

DAEMON_TEST(the_host_and_devices_are_sealed_together)
{
	static const char *const names[] = {"on 0", "on 1", "on the host"};
	struct gate gate = GATE;
	sluice_blob *made[3], *read[3];
	sluice_stream stream;

	for (int in_order = 0; in_order < 2; in_order++) {
		assert_ok(create_on(d->store, names[0], 100, 0, 0, &made[0]));
		assert_ok(create_on(d->store, names[1], 5 * MIB, 1, 0, &made[1]));
		assert_ok(create_on(d->store, names[2], 1000, -1, 0, &made[2]));
		assert_ok(sluice_stream_new(1, &stream));
		if (in_order) {
			assert_ok(sluice_emulated_call(1, stream, gate_pass, &gate));
			assert_ok(sluice_blob_seal_many_on(made, 3, stream));
			assert_refused(sluice_blob_seal_many_on(&made[1], 1, stream), EPERM, "");
			for (int i = 0; i < 3; i++)
				assert_int_equal(sluice_blob_exists(d->store, names[i]), 0);
			gate_open(&gate);
			assert_ok(sluice_blob_wait_sealed(made[2], 20000));
		} else {
			assert_ok(sluice_blob_seal_many(made, 3));
		}
		assert_ok(sluice_blob_get_many(d->store, names, 3, 0, read));
		assert_true(blob_is(read[0], names[0], 100));
		assert_true(blob_is(read[1], names[1], 5 * MIB));
		assert_true(blob_is(read[2], names[2], 1000));
		assert_ok(sluice_blob_release_many(read, 3));
		assert_ok(sluice_blob_release_many(made, 3));
		assert_ok(sluice_stream_free(stream));
		for (int i = 0; i < 3; i++)
			assert_ok(sluice_blob_delete(d->store, names[i]));
	}
	assert_idle(d->store);
}

DAEMON_TEST(early_release_on_a_stream_still_seals)
{
	struct gate gate = GATE;
	sluice_stream stream;
	sluice_blob *blob;

	begin_with(d->store, 0);
	assert_ok(sluice_stream_new(0, &stream));
	assert_ok(sluice_emulated_call(0, stream, gate_pass, &gate));
	assert_ok(create_on(d->store, "x", 100, 0, 0, &blob));
	assert_ok(sluice_blob_seal_on(blob, stream));
	assert_ok(sluice_blob_release(blob));
	assert_int_equal(sluice_blob_exists(d->store, "x"), 0);
	gate_open(&gate);
	assert_ok(sluice_blob_get(d->store, "x", 20000, &blob));
	assert_true(blob_is(blob, "x", 100));
	assert_let_go(blob, d->store, "x");
	assert_ok(sluice_stream_free(stream));
	assert_idle(d->store);
}

DAEMON_TEST(closing_waits_for_seals_that_are_under_way)
{
	sluice_store *store = daemon_connect(d);
	struct gate gate = GATE;
	sluice_stream stream;
	sluice_blob *blob;
	pthread_t thread;

	begin_with(store, 1);
	assert_ok(sluice_stream_new(1, &stream));
	assert_ok(sluice_emulated_call(1, stream, gate_pass, &gate));
	assert_ok(create_on(store, "x", 100, 0, 0, &blob));
	assert_ok(sluice_blob_seal_on(blob, stream));
	assert_refused(sluice_store_close(store), EBUSY, "1 blobs");
	assert_ok(sluice_blob_release(blob));
	assert_int_equal(pthread_create(&thread, NULL, gate_open_late, &gate), 0);
	assert_ok(sluice_store_close(store));
	assert_int_equal(sluice_blob_exists(d->store, "x"), 1);
	pthread_join(thread, NULL);
	assert_ok(sluice_blob_delete(d->store, "x"));
	assert_ok(sluice_stream_free(stream));
	assert_idle(d->store);
}

DAEMON_TEST(many_streams_seal_at_a_time)
{
	enum { STREAMS = 6, ROUNDS = 40 };
	struct sluice_emulated_options late = SLUICE_EMULATED_OPTIONS_INIT;
	const struct sluice_emulated_options plain = SLUICE_EMULATED_OPTIONS_INIT;
	sluice_blob *blobs[STREAMS * ROUNDS];
	sluice_stream streams[STREAMS];
	char name[20];

	late.seed = 11;
	late.delay_us = 50;
	for (int device = 0; device < 2; device++)
		assert_ok(sluice_emulated_configure(device, &late));
	for (int i = 0; i < STREAMS; i++)
		assert_ok(sluice_stream_new(i % 2, &streams[i]));
	for (int i = 0; i < STREAMS * ROUNDS; i++) {
		assert_ok(create_on(d->store, named("s/%d", i), 1000, i % 3 - 1, 0, &blobs[i]));
		assert_ok(sluice_blob_seal_on(blobs[i], streams[i % STREAMS]));
	}
	for (int i = 0; i < STREAMS * ROUNDS; i++) {
		snprintf(name, sizeof(name), "s/%d", i);
		assert_ok(sluice_blob_wait_sealed(blobs[i], 20000));
		assert_int_equal(sluice_blob_exists(d->store, name), 1);
		assert_true(blob_is(blobs[i], name, 1000));
		assert_let_go(blobs[i], d->store, name);
	}
	for (int i = 0; i < STREAMS; i++)
		assert_ok(sluice_stream_free(streams[i]));
	for (int device = 0; device < 2; device++)
		assert_ok(sluice_emulated_configure(device, &plain));
	assert_idle(d->store);
}

DAEMON_TEST(a_seal_says_that_its_server_was_replaced)
{
	pid_t server = daemon_server(d, 0);
	struct gate gate = GATE;
	sluice_stream stream;
	sluice_blob *blob;

	begin_with(d->store, 0);
	assert_ok(sluice_stream_new(0, &stream));
	assert_ok(sluice_emulated_call(0, stream, gate_pass, &gate));
	assert_ok(create_on(d->store, "x", 3 * MIB, 0, 0, &blob));
	assert_ok(sluice_blob_seal_on(blob, stream));
	kill(server, SIGKILL);
	daemon_server(d, server);
	gate_open(&gate);
	assert_refused(sluice_blob_wait_sealed(blob, 20000), ECONNRESET, "replaced");
	assert_int_equal(sluice_blob_exists(d->store, "x"), 0);
	assert_refused(sluice_blob_seal(blob), ECONNRESET, "");
	assert_ok(sluice_blob_release(blob));
	assert_ok(sluice_stream_free(stream));
	assert_memory_is(d->store, 0, 0);
	assert_idle(d->store);
}

DAEMON_TEST(a_seal_says_that_its_device_has_failed)
{
	struct gate gate = GATE;
	sluice_stream stream;
	sluice_blob *blob;

	begin_with(d->store, 1);
	assert_ok(sluice_stream_new(1, &stream));
	assert_ok(sluice_emulated_call(1, stream, gate_pass, &gate));
	assert_ok(create_on(d->store, "x", 100, -1, 0, &blob));
	assert_ok(sluice_blob_seal_on(blob, stream));
	sluice_emulated_lose(1, 1);
	assert_refused(sluice_blob_wait_sealed(blob, 20000), EIO, "emulated:1");
	/* It is as it was before. */
	assert_ok(sluice_blob_seal(blob));
	assert_ok(sluice_blob_wait_sealed(blob, 0));
	gate_open(&gate);
	sluice_emulated_lose(1, 0);
	assert_let_go(blob, d->store, "x");
	assert_ok(sluice_stream_free(stream));
	assert_idle(d->store);
}

DAEMON_TEST(replacing_blob_is_sealed_alone)
{
	sluice_blob *made[2];
	sluice_stream stream;

	assert_ok(sluice_stream_new(0, &stream));
	assert_ok(create_on(d->store, "a", 100, 0, 0, &made[0]));
	assert_ok(create_on(d->store, "b", 100, 0, SLUICE_BLOB_REPLACE, &made[1]));
	assert_refused(sluice_blob_seal_many_on(made, 2, stream), EINVAL, "replaces");
	assert_refused(sluice_blob_wait_sealed(made[0], 0), EINVAL, "nobody");
	assert_ok(sluice_blob_seal_on(made[1], stream));
	assert_ok(sluice_blob_wait_sealed(made[1], 20000));
	assert_ok(sluice_blob_release_many(made, 2));
	assert_ok(sluice_blob_delete(d->store, "b"));
	assert_ok(sluice_stream_free(stream));
	assert_idle(d->store);
}

DAEMON_TEST(seal_behind_a_stream_replaces_the_blob_with_that_id_alone)
{
	struct sluice_blob_options o = SLUICE_BLOB_OPTIONS_INIT;
	sluice_blob *first = put_on(d->store, "a", 100, 0, 0), *made[2], *other;
	sluice_stream stream;

	assert_ok(sluice_stream_new(0, &stream));
	o.replaces = sluice_blob_id(first);
	for (unsigned i = 0; i < 2; i++) {
		assert_ok(sluice_blob_create(d->store, "a", 100 + i, 0, &o, &made[i]));
		assert_ok(sluice_blob_seal_on(made[i], stream));
	}
	assert_ok(sluice_blob_wait_sealed(made[0], 20000));
	assert_refused(sluice_blob_wait_sealed(made[1], 20000), ESTALE, "to be replaced");
	/* The id comes with the answer, whatever this thread has heard since. */
	assert_ok(sluice_blob_create(d->store, "b", 100, 0, &o, &other));
	assert_refused(sluice_blob_seal(other), ESTALE, "no blob");
	assert_int_equal(sluice_last_rival(), 0);
	assert_refused(sluice_blob_wait_sealed(made[1], 0), ESTALE, "to be replaced");
	assert_int_equal(sluice_last_rival(), sluice_blob_id(made[0]));
	assert_ok(sluice_blob_release(other));
	assert_ok(sluice_blob_release(first));
	assert_ok(sluice_blob_release_many(made, 2));
	assert_ok(sluice_blob_delete(d->store, "a"));
	assert_ok(sluice_stream_free(stream));
	assert_idle(d->store);
}

DAEMON_MAIN("256M")
