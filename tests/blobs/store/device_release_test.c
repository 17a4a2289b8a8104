/* SPDX-License-Identifier: Apache-2.0 */
/* Releases in stream order, on the two emulated devices. */
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include "store/device_common.h"

enum { BYTES = 3 * MIB };

static void assert_dying(sluice_store *store, uint64_t blobs)
{
	double until = seconds_now() + 20;

	while (stats_of(store).dying != blobs) {
		if (seconds_now() > until)
			fail_msg("%llu blobs are dying", (unsigned long long)stats_of(store).dying);
		sleep_ms(2);
	}
}

/* Whether what the stream copied is what that name and size give. */
static bool copied_right(const void *copy, const char *name)
{
	unsigned char *bytes = malloc(BYTES);
	bool right = !sluice_copy(bytes, copy, BYTES) &&
	             pattern_match(bytes, BYTES, 0, seed_of(name, BYTES)) == BYTES;

	free(bytes);
	return right;
}

DAEMON_TEST(a_stream_reads_on_in_what_was_deleted_and_released_behind_it)
{
	struct sluice_emulated_options late = SLUICE_EMULATED_OPTIONS_INIT;
	const struct sluice_emulated_options plain = SLUICE_EMULATED_OPTIONS_INIT;
	sluice_store *other = daemon_connect(d);

	late.seed = 5;
	late.delay_us = 300;
	/* On each device; and on the host, for one of them. */
	for (int i = 0; i < 3; i++) {
		int device = i % 2, where = i < 2 ? i : -1;
		struct gate gate = GATE;
		sluice_stream stream;
		sluice_blob *blob;
		void *copy;

		assert_ok(sluice_emulated_configure(device, &late));
		begin_with(other, device);
		assert_ok(sluice_blob_release(put_on(d->store, "x", BYTES, where, 0)));
		assert_ok(sluice_stream_new(device, &stream));
		assert_ok(sluice_device_alloc(device, BYTES, &copy));
		assert_ok(sluice_blob_get_on(other, "x", device, 0, &blob));
		assert_ok(sluice_emulated_call(device, stream, gate_pass, &gate));
		assert_ok(sluice_copy_on(copy, sluice_blob_data(blob), BYTES, stream));
		assert_ok(sluice_blob_release_on(blob, stream));
		assert_ok(sluice_blob_delete(d->store, "x"));
		sleep_ms(50);
		assert_dying(d->store, 1);
		/* Nobody gets this memory meanwhile. A device's is not made while it has work to do. */
		if (where < 0) {
			assert_let_go(put_on(d->store, "y", BYTES, where, 0), d->store, "y");
		}
		gate_open(&gate);
		assert_ok(sluice_stream_synchronize(device, stream));
		assert_true(copied_right(copy, "x"));
		assert_dying(d->store, 0);
		assert_memory_is(d->store, device, SLAB);
		assert_ok(sluice_device_free(copy));
		assert_ok(sluice_stream_free(stream));
		assert_ok(sluice_emulated_configure(device, &plain));
	}
	assert_ok(sluice_store_close(other));
	assert_idle(d->store);
}

DAEMON_TEST(unsealed_blob_is_aborted_when_the_stream_has_come)
{
	struct gate gate = GATE;
	sluice_blob *blob, *next;
	sluice_stream stream;
	void *before;

	begin_with(d->store, 0);
	assert_ok(sluice_stream_new(0, &stream));
	assert_ok(create_on(d->store, "x", BYTES, 0, SLUICE_BLOB_RESERVE, &blob));
	before = sluice_blob_mutable_data(blob);
	assert_ok(sluice_emulated_call(0, stream, gate_pass, &gate));
	assert_ok(sluice_blob_release_on(blob, stream));
	sleep_ms(50);
	assert_refused(create_on(d->store, "x", BYTES, 0, SLUICE_BLOB_RESERVE, &next), EEXIST,
	               "taken");
	assert_int_equal(sluice_device_of(before), 0);
	gate_open(&gate);
	assert_memory_is(d->store, 0, SLAB);
	assert_mappings_are(0, 1);
	assert_ok(create_on(d->store, "x", BYTES, 0, SLUICE_BLOB_RESERVE, &next));
	assert_ok(sluice_blob_release(next));
	assert_ok(sluice_stream_free(stream));
	assert_idle(d->store);
}

/* In the order of the two, and in the other one. */
DAEMON_TEST(release_in_stream_order_still_seals)
{
	begin_with(d->store, 0);
	begin_with(d->store, 1);
	for (int late = 0; late < 2; late++) {
		struct gate gate = GATE;
		sluice_stream streams[2];
		sluice_blob *blob;

		assert_ok(sluice_stream_new(0, &streams[0]));
		assert_ok(sluice_stream_new(1, &streams[1]));
		assert_ok(create_on(d->store, "x", 100, 0, 0, &blob));
		assert_ok(sluice_emulated_call(0, streams[0], gate_pass, &gate));
		assert_ok(sluice_blob_seal_on(blob, streams[0]));
		assert_ok(sluice_blob_release_on(blob, streams[late]));
		sleep_ms(30);
		assert_int_equal(sluice_blob_exists(d->store, "x"), 0);
		gate_open(&gate);
		assert_ok(sluice_blob_get(d->store, "x", 20000, &blob));
		assert_true(blob_is(blob, "x", 100));
		assert_let_go(blob, d->store, "x");
		assert_dying(d->store, 0);
		assert_ok(sluice_stream_free(streams[0]));
		assert_ok(sluice_stream_free(streams[1]));
	}
	assert_idle(d->store);
}

DAEMON_TEST(closing_waits_for_releases_and_is_refused_for_tensors)
{
	struct sluice_blob_metadata m = SLUICE_BLOB_METADATA_INIT;
	struct sluice_blob_options o = SLUICE_BLOB_OPTIONS_INIT;
	sluice_store *store = daemon_connect(d);
	struct managed {
		void *data;
		int32_t device[2], ndim;
		uint32_t type;
		void *shape, *strides;
		uint64_t offset;
		void *context;
		void (*deleter)(struct managed *);
	} * tensor;
	struct gate gate = GATE;
	sluice_stream stream;
	sluice_blob *blob;
	pthread_t thread;
	void *out;

	m.type = SLUICE_UINT8;
	m.rank = 1;
	m.shape[0] = 100;
	o.metadata = &m;
	begin_with(store, 0);
	assert_ok(sluice_stream_new(0, &stream));
	assert_ok(sluice_blob_create(store, "x", 100, 0, &o, &blob));
	assert_ok(sluice_blob_seal(blob));
	assert_ok(sluice_blob_to_dlpack(blob, 0, &out));
	tensor = out;
	assert_ok(sluice_emulated_call(0, stream, gate_pass, &gate));
	assert_ok(sluice_blob_release_on(blob, stream));
	assert_refused(sluice_store_close(store), EBUSY, "1 blobs");
	tensor->deleter(tensor);
	assert_ok(sluice_blob_delete(d->store, "x"));
	assert_dying(d->store, 1);
	assert_int_equal(pthread_create(&thread, NULL, gate_open_late, &gate), 0);
	assert_ok(sluice_store_close(store));
	assert_true(gate.open);
	pthread_join(thread, NULL);
	assert_dying(d->store, 0);
	assert_ok(sluice_stream_free(stream));
	assert_idle(d->store);
}

DAEMON_TEST(release_on_a_failed_device_still_happens)
{
	sluice_store *other = daemon_connect(d);
	struct gate gate = GATE;
	sluice_stream stream;
	sluice_blob *blob;

	begin_with(other, 1);
	assert_ok(sluice_blob_release(put_on(d->store, "x", BYTES, -1, 0)));
	assert_ok(sluice_stream_new(1, &stream));
	assert_ok(sluice_emulated_call(1, stream, gate_pass, &gate));
	blob = got(other, "x");
	assert_ok(sluice_blob_release_on(blob, stream));
	assert_ok(sluice_blob_delete(d->store, "x"));
	assert_dying(d->store, 1);
	sluice_emulated_lose(1, 1);
	assert_dying(d->store, 0);
	gate_open(&gate);
	sluice_emulated_lose(1, 0);
	assert_ok(sluice_stream_free(stream));
	assert_ok(sluice_store_close(other));
	assert_idle(d->store);
}

DAEMON_TEST(a_handle_that_could_not_be_released_so_is_as_it_was)
{
	sluice_stream stream;
	sluice_blob *blob = put_on(d->store, "x", 100, 0, 0);
	int there = 0;

	assert_ok(sluice_blob_release_on(NULL, NULL));
	assert_refused(sluice_blob_release_on(blob, (sluice_stream)&there), EINVAL, "stream");
	assert_ok(sluice_stream_new(0, &stream));
	sluice_emulated_fail(SLUICE_EMULATED_WRITE, 1, -ENOMEM);
	assert_refused(sluice_blob_release_on(blob, stream), ENOMEM, "cannot release");
	assert_true(blob_is(blob, "x", 100));
	assert_refused(sluice_store_close(d->store), EBUSY, "1 blobs");
	assert_ok(sluice_blob_release_on(blob, stream));
	assert_ok(sluice_blob_delete(d->store, "x"));
	assert_dying(d->store, 0);
	assert_ok(sluice_stream_free(stream));
	assert_idle(d->store);
}

static int hold_as_child(const struct daemon *d, const char *argument)
{
	sluice_store *store = daemon_connect(d);
	static struct gate gate = GATE;
	sluice_stream stream;
	sluice_blob *blob;

	(void)argument;
	begin_with(store, 0);
	if (sluice_stream_new(0, &stream) || sluice_blob_get_on(store, "x", 0, 10000, &blob) ||
	    sluice_emulated_call(0, stream, gate_pass, &gate) ||
	    sluice_blob_release_on(blob, stream))
		return 1;
	if (sluice_blob_delete(store, "x"))
		return 2;
	for (;;)
		pause();
}

static sluice_store *left_open;

static void close_left_open(void)
{
	alarm(60);
	sluice_store_close(left_open);
}

/* It was registered first, and so it runs after the end of the store's threads. */
static int exit_as_child(const struct daemon *d, const char *argument)
{
	static struct gate gate = GATE;
	sluice_stream stream;
	sluice_blob *blob;

	(void)argument;
	atexit(close_left_open);
	left_open = daemon_connect(d);
	begin_with(left_open, 0);
	if (sluice_stream_new(0, &stream) || sluice_blob_get(left_open, "x", 10000, &blob) ||
	    sluice_emulated_call(0, stream, gate_pass, &gate) ||
	    sluice_blob_release_on(blob, stream))
		return 1;
	exit(0);
}

DAEMON_TEST(a_store_that_is_closed_at_exit_does_not_wait_for_streams)
{
	assert_ok(sluice_blob_release(put_on(d->store, "x", BYTES, -1, 0)));
	assert_int_equal(child_status(child_start("exit", d, "")), 0);
	assert_ok(sluice_blob_delete(d->store, "x"));
	assert_dying(d->store, 0);
	assert_idle(d->store);
}

DAEMON_TEST(a_process_that_dies_before_the_stream_comes_holds_nothing)
{
	pid_t child;

	assert_ok(sluice_blob_release(put_on(d->store, "x", BYTES, 0, 0)));
	child = child_start("hold", d, "");
	assert_dying(d->store, 1);
	sleep_ms(50);
	assert_dying(d->store, 1);
	kill(child, SIGKILL);
	child_status(child);
	assert_dying(d->store, 0);
	assert_memory_is(d->store, 0, 0);
	assert_idle(d->store);
}

DAEMON_MAIN("256M", {"hold", hold_as_child}, {"exit", exit_as_child})
