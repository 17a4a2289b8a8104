/* SPDX-License-Identifier: Apache-2.0 */
/* The calls of store.h for memory of devices, on the two emulated ones. */
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "sluice/emulated.h"
#include "store/daemon.h"

#define SLAB (2 * MIB)

/* --------------------------------------------------------------------------------------- blobs */

static uint64_t seed_of(const char *name, size_t n)
{
	uint64_t seed = n;

	while (*name)
		seed = (seed ^ (unsigned char)*name++) * UINT64_C(1099511628211);
	return seed;
}

static int create_on(sluice_store *store, const char *name, size_t n, int device, unsigned flags,
                     sluice_blob **out)
{
	struct sluice_blob_options o = SLUICE_BLOB_OPTIONS_INIT;
	void *bytes = malloc(n);
	int rc;

	o.flags = flags;
	pattern_fill(bytes, n, 0, seed_of(name, n));
	rc = sluice_blob_create(store, name, n, device, &o, out);
	if (!rc)
		rc = sluice_copy(sluice_blob_mutable_data(*out), bytes, n);
	free(bytes);
	return rc;
}

static sluice_blob *put_on(sluice_store *store, const char *name, size_t n, int device,
                           unsigned flags)
{
	sluice_blob *blob = NULL;

	assert_ok(create_on(store, name, n, device, flags, &blob));
	assert_ok(sluice_blob_seal(blob));
	return blob;
}

static bool is_right(const sluice_blob *blob, const char *name, size_t n)
{
	void *bytes = malloc(n);
	bool right = sluice_blob_size(blob) == n && sluice_blob_data(blob) &&
	             !sluice_copy(bytes, sluice_blob_data(blob), n) &&
	             pattern_match(bytes, n, 0, seed_of(name, n)) == n;

	free(bytes);
	return right;
}

static struct sluice_store_device device_of(sluice_store *store, int number)
{
	struct sluice_store_device d = {.size = sizeof(d)};

	for (unsigned i = 0;; i++) {
		assert_ok(sluice_store_device(store, i, &d));
		if (d.device == number)
			return d;
	}
}

/* Waits until the store has no more than that on the device, and all of what is gone has been unmapped. */
static void assert_memory_is(sluice_store *store, int number, uint64_t most)
{
	double until = seconds_now() + 20;
	struct sluice_store_device d;

	for (;;) {
		d = device_of(store, number);
		if (d.memory_bytes <= most && !d.leaving_bytes)
			return;
		if (seconds_now() > until)
			fail_msg("%llu bytes, %llu of them leaving",
			         (unsigned long long)d.memory_bytes,
			         (unsigned long long)d.leaving_bytes);
		sleep_ms(2);
	}
}

/* How often this process has memory of an emulated device mapped that others can have. */
static unsigned mappings_of(int device)
{
	FILE *maps = fopen("/proc/self/maps", "r");
	char line[512], name[40];
	unsigned count = 0;

	assert_non_null(maps);
	snprintf(name, sizeof(name), "sluice:emulated:%d:", device);
	while (fgets(line, sizeof(line), maps))
		count += strstr(line, name) != NULL;
	fclose(maps);
	return count;
}

static void assert_mappings_are(int device, unsigned most)
{
	double until = seconds_now() + 20;

	while (mappings_of(device) > most) {
		if (seconds_now() > until)
			fail_msg("%u mappings", mappings_of(device));
		sleep_ms(2);
	}
}

/* ----------------------------------------------------------------------------------- put and get */

static void what_was_sealed_on_a_device_is_what_others_get(void **state)
{
	struct daemon *d = *state;
	static const size_t sizes[] = {1,   4095,    32768,   32769,       65537,
	                               MIB, MIB + 1, 2 * MIB, 3 * MIB + 5, 9 * MIB};
	sluice_store *other = daemon_connect(d);

	for (int device = 0; device < 2; device++)
		for (size_t i = 0; i < COUNT_OF(sizes); i++) {
			sluice_blob *made = put_on(d->store, "a blob", sizes[i], device, 0), *read;

			assert_int_equal(sluice_blob_kind(made), SLUICE_BLOB_ON_DEVICE);
			assert_int_equal(sluice_blob_device(made), device);
			assert_null(sluice_blob_mutable_data(made));
			assert_true(is_right(made, "a blob", sizes[i]));
			read = got(other, "a blob");
			assert_int_equal(sluice_blob_kind(read), SLUICE_BLOB_ON_DEVICE);
			assert_int_equal(sluice_blob_device(read), device);
			assert_int_equal(sluice_blob_id(read), sluice_blob_id(made));
			assert_int_equal(sluice_device_of(sluice_blob_data(read)), device);
			assert_int_equal((uintptr_t)sluice_blob_data(read) % 4096, 0);
			assert_true(is_right(read, "a blob", sizes[i]));
			assert_ok(sluice_blob_release(made));
			assert_ok(sluice_blob_delete(other, "a blob"));
			assert_true(is_right(read, "a blob", sizes[i]));
			assert_ok(sluice_blob_release(read));
		}
	assert_ok(sluice_store_close(other));
	assert_idle(d->store);
	/* What is left is one slab of each of the sizes, for the next. */
	for (int device = 0; device < 2; device++)
		assert_memory_is(d->store, device, 6 * SLAB);
}

static int read_as_child(const struct daemon *d, const char *argument)
{
	sluice_store *store = daemon_connect(d);
	sluice_blob *blob;
	int rc = sluice_blob_get(store, "fresh", 10000, &blob);

	(void)argument;
	if (rc || !is_right(blob, "fresh", 3 * MIB))
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

static void processes_share_memory_of_a_device_and_it_outlives_them(void **state)
{
	struct daemon *d = *state;
	sluice_blob *blob;

	for (int device = 0; device < 2; device++) {
		char number[4] = {(char)('0' + device)};

		blob = put_on(d->store, "fresh", 3 * MIB, device, 0);
		assert_int_equal(child_status(child_start("read", d, "")), 0);
		assert_ok(sluice_blob_release(blob));
		assert_ok(sluice_blob_delete(d->store, "fresh"));
		assert_int_equal(child_status(child_start("put", d, number)), 0);
		assert_ok(sluice_blob_get(d->store, "left", 10000, &blob));
		assert_true(is_right(blob, "left", MIB));
		assert_ok(sluice_blob_release(blob));
		assert_ok(sluice_blob_delete(d->store, "left"));
		assert_memory_is(d->store, device, 0);
	}
	assert_idle(d->store);
}

static void a_reader_cannot_write_to_a_blob_on_a_device(void **state)
{
	struct daemon *d = *state;
	sluice_blob *blob = put_on(d->store, "x", 100, 0, 0), *read = got(d->store, "x");
	char bytes[100] = {0};

	assert_int_not_equal(sluice_copy((void *)sluice_blob_data(read), bytes, sizeof(bytes)), 0);
	assert_true(is_right(read, "x", 100));
	assert_ok(sluice_blob_release(read));
	assert_ok(sluice_blob_release(blob));
	assert_ok(sluice_blob_delete(d->store, "x"));
}

static void small_blobs_share_slabs_and_those_that_are_alone_do_not(void **state)
{
	struct daemon *d = *state;
	enum { COUNT = 1000 };
	char name[20];

	for (int i = 0; i < COUNT; i++) {
		snprintf(name, sizeof(name), "small/%d", i);
		assert_ok(sluice_blob_release(put_on(d->store, name, 4096, 0, 0)));
	}
	/* 64 in each slab, and one slab for those to come. */
	assert_memory_is(d->store, 0, (COUNT / 64 + 2) * SLAB);
	for (int i = 0; i < COUNT; i += 7) {
		sluice_blob *read;

		snprintf(name, sizeof(name), "small/%d", i);
		read = got(d->store, name);
		assert_true(is_right(read, name, 4096));
		assert_ok(sluice_blob_release(read));
	}
	for (int i = 0; i < COUNT; i++) {
		snprintf(name, sizeof(name), "small/%d", i);
		assert_ok(sluice_blob_delete(d->store, name));
	}
	assert_memory_is(d->store, 0, 2 * SLAB);
	for (int i = 0; i < 5; i++) {
		snprintf(name, sizeof(name), "alone/%d", i);
		assert_ok(sluice_blob_release(put_on(d->store, name, 4096, 1, SLUICE_BLOB_ALONE)));
	}
	assert_int_equal(device_of(d->store, 1).memory_bytes, 5 * SLAB);
	for (int i = 0; i < 5; i++) {
		snprintf(name, sizeof(name), "alone/%d", i);
		assert_ok(sluice_blob_delete(d->store, name));
	}
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

static void getting_it_again_does_not_call_the_driver(void **state)
{
	struct daemon *d = *state;
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
	/* What the mapper has unmapped of the maker's may be among them. */
	assert_true(all_calls() - calls <= 2);
	assert_true(stats_of(d->store).requests - gets <= 2);
	assert_ok(sluice_blob_delete(d->store, "x"));
	assert_idle(d->store);
}

/* -------------------------------------------------------------------------------------- forget */

static void memory_goes_though_a_reader_that_had_it_sleeps(void **state)
{
	struct daemon *d = *state;
	unsigned before[2] = {mappings_of(0), mappings_of(1)};
	sluice_store *reader = daemon_connect(d);
	sluice_blob *blob, *read;

	for (int device = 0; device < 2; device++) {
		blob = put_on(d->store, "x", 4 * MIB, device, 0);
		read = got(reader, "x");
		assert_ok(sluice_blob_release(blob));
		assert_ok(sluice_blob_delete(d->store, "x"));
		assert_int_equal(device_of(d->store, device).memory_bytes, 4 * MIB);
		assert_true(is_right(read, "x", 4 * MIB));
		/* From here on the reader's store is not touched. */
		assert_ok(sluice_blob_release(read));
		assert_memory_is(d->store, device, 0);
		assert_mappings_are(device, before[device]);
	}
	assert_ok(sluice_store_close(reader));
	assert_idle(d->store);
}

static void mappings_that_nobody_uses_are_kept_up_to_a_limit(void **state)
{
	struct daemon *d = *state;
	struct sluice_store_options o = SLUICE_STORE_OPTIONS_INIT;
	unsigned before = mappings_of(0);
	sluice_store *reader;
	char name[20];

	o.device_cache_bytes = 8 * MIB;
	assert_ok(sluice_store_open(d->path, &o, &reader));
	for (int i = 0; i < 10; i++) {
		snprintf(name, sizeof(name), "x/%d", i);
		assert_ok(sluice_blob_release(put_on(d->store, name, 2 * MIB, 0, 0)));
	}
	assert_mappings_are(0, before);
	for (int i = 0; i < 10; i++) {
		snprintf(name, sizeof(name), "x/%d", i);
		assert_ok(sluice_blob_release(got(reader, name)));
	}
	assert_mappings_are(0, before + 4);
	assert_int_equal(mappings_of(0), before + 4);
	/* The server knows who has what: nothing waits for a reader that had it once. */
	for (int i = 0; i < 10; i++) {
		snprintf(name, sizeof(name), "x/%d", i);
		assert_ok(sluice_blob_delete(d->store, name));
	}
	assert_memory_is(d->store, 0, 0);
	assert_mappings_are(0, before);
	assert_ok(sluice_store_close(reader));
	assert_idle(d->store);
}

static void what_is_mapped_is_told_to_the_next_server(void **state)
{
	struct daemon *d = *state;
	unsigned before = mappings_of(0);
	sluice_store *reader = daemon_connect(d);
	sluice_blob *blob = put_on(d->store, "x", 3 * MIB, 0, 0), *read = got(reader, "x");
	pid_t server = daemon_server(d, 0);

	assert_ok(sluice_blob_release(blob));
	kill(server, SIGKILL);
	daemon_server(d, server);
	assert_true(is_right(read, "x", 3 * MIB));
	assert_ok(sluice_blob_delete(d->store, "x"));
	assert_true(device_of(d->store, 0).memory_bytes >= 4 * MIB);
	assert_true(is_right(read, "x", 3 * MIB));
	/* The reader's store has not been called since: it has connected by itself, and is heard of. */
	assert_ok(sluice_blob_release(read));
	assert_memory_is(d->store, 0, 0);
	assert_mappings_are(0, before);
	blob = put_on(d->store, "x", 100, 0, 0);
	read = got(reader, "x");
	assert_true(is_right(read, "x", 100));
	assert_ok(sluice_blob_release(read));
	assert_ok(sluice_blob_release(blob));
	assert_ok(sluice_blob_delete(d->store, "x"));
	assert_ok(sluice_store_close(reader));
	assert_idle(d->store);
}

/* ---------------------------------------------------------------------------------- stream order */

/* A stream that does not go on until it is let go. */
struct gate {
	pthread_mutex_t mutex;
	pthread_cond_t opened;
	bool open;
};
#define GATE                                                                \
	{                                                                   \
		PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, false, \
	}

static void pass(void *argument)
{
	struct gate *gate = argument;

	pthread_mutex_lock(&gate->mutex);
	while (!gate->open)
		pthread_cond_wait(&gate->opened, &gate->mutex);
	pthread_mutex_unlock(&gate->mutex);
}

static void open_gate(struct gate *gate)
{
	pthread_mutex_lock(&gate->mutex);
	gate->open = true;
	pthread_cond_broadcast(&gate->opened);
	pthread_mutex_unlock(&gate->mutex);
}

/* The first blob or seal on a device waits for what that has to do: so it is not one with a gate before it. */
static void begin_with(sluice_store *store, int device)
{
	sluice_blob *blob;

	assert_ok(create_on(store, "", 1, device, 0, &blob));
	assert_ok(sluice_blob_release(blob));
}

static void a_seal_in_stream_order_comes_behind_the_stream_s_work(void **state)
{
	struct daemon *d = *state;
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
		assert_ok(sluice_emulated_call(device, stream, pass, &gate));
		assert_ok(sluice_copy_on(sluice_blob_mutable_data(blob), bytes, BYTES, stream));
		assert_ok(sluice_blob_seal_on(blob, stream));
		assert_refused(sluice_blob_wait_sealed(blob, 20), ETIMEDOUT, "stream");
		assert_refused(sluice_blob_seal(blob), EPERM, "already");
		assert_refused(sluice_blob_seal_on(blob, stream), EPERM, "already");
		assert_int_equal(sluice_blob_exists(other, "x"), 0);
		open_gate(&gate);
		assert_ok(sluice_blob_get(other, "x", 20000, &read));
		assert_true(is_right(read, "x", BYTES));
		assert_ok(sluice_blob_wait_sealed(blob, 20000));
		assert_ok(sluice_blob_wait_sealed(blob, 0));
		assert_true(sluice_blob_id(blob) == sluice_blob_id(read));
		assert_refused(sluice_blob_seal_on(blob, stream), EPERM, "sealed");
		assert_ok(sluice_blob_release(read));
		assert_ok(sluice_blob_release(blob));
		assert_ok(sluice_blob_delete(other, "x"));
		assert_ok(sluice_pinned_free(bytes));
		assert_ok(sluice_stream_free(stream));
		assert_ok(sluice_emulated_configure(device, &plain));
	}
	assert_ok(sluice_store_close(other));
	assert_idle(d->store);
}

static void the_host_and_devices_are_sealed_together(void **state)
{
	struct daemon *d = *state;
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
			assert_ok(sluice_emulated_call(1, stream, pass, &gate));
			assert_ok(sluice_blob_seal_many_on(made, 3, stream));
			assert_refused(sluice_blob_seal_many_on(&made[1], 1, stream), EPERM, "");
			for (int i = 0; i < 3; i++)
				assert_int_equal(sluice_blob_exists(d->store, names[i]), 0);
			open_gate(&gate);
			assert_ok(sluice_blob_wait_sealed(made[2], 20000));
		} else {
			assert_ok(sluice_blob_seal_many(made, 3));
		}
		assert_ok(sluice_blob_get_many(d->store, names, 3, 0, read));
		assert_true(is_right(read[0], names[0], 100));
		assert_true(is_right(read[1], names[1], 5 * MIB));
		assert_true(is_right(read[2], names[2], 1000));
		assert_ok(sluice_blob_release_many(read, 3));
		assert_ok(sluice_blob_release_many(made, 3));
		assert_ok(sluice_stream_free(stream));
		for (int i = 0; i < 3; i++)
			assert_ok(sluice_blob_delete(d->store, names[i]));
	}
	assert_idle(d->store);
}

static void a_handle_that_is_released_before_the_stream_comes_is_sealed_all_the_same(void **state)
{
	struct daemon *d = *state;
	struct gate gate = GATE;
	sluice_stream stream;
	sluice_blob *blob;

	begin_with(d->store, 0);
	assert_ok(sluice_stream_new(0, &stream));
	assert_ok(sluice_emulated_call(0, stream, pass, &gate));
	assert_ok(create_on(d->store, "x", 100, 0, 0, &blob));
	assert_ok(sluice_blob_seal_on(blob, stream));
	assert_ok(sluice_blob_release(blob));
	assert_int_equal(sluice_blob_exists(d->store, "x"), 0);
	open_gate(&gate);
	assert_ok(sluice_blob_get(d->store, "x", 20000, &blob));
	assert_true(is_right(blob, "x", 100));
	assert_ok(sluice_blob_release(blob));
	assert_ok(sluice_blob_delete(d->store, "x"));
	assert_ok(sluice_stream_free(stream));
	assert_idle(d->store);
}

static void *open_later(void *argument)
{
	sleep_ms(100);
	open_gate(argument);
	return NULL;
}

static void closing_waits_for_seals_that_are_under_way(void **state)
{
	struct daemon *d = *state;
	sluice_store *store = daemon_connect(d);
	struct gate gate = GATE;
	sluice_stream stream;
	sluice_blob *blob;
	pthread_t thread;

	begin_with(store, 1);
	assert_ok(sluice_stream_new(1, &stream));
	assert_ok(sluice_emulated_call(1, stream, pass, &gate));
	assert_ok(create_on(store, "x", 100, 0, 0, &blob));
	assert_ok(sluice_blob_seal_on(blob, stream));
	assert_refused(sluice_store_close(store), EBUSY, "1 blobs");
	assert_ok(sluice_blob_release(blob));
	assert_int_equal(pthread_create(&thread, NULL, open_later, &gate), 0);
	assert_ok(sluice_store_close(store));
	assert_int_equal(sluice_blob_exists(d->store, "x"), 1);
	pthread_join(thread, NULL);
	assert_ok(sluice_blob_delete(d->store, "x"));
	assert_ok(sluice_stream_free(stream));
	assert_idle(d->store);
}

static void many_streams_seal_at_a_time(void **state)
{
	struct daemon *d = *state;
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
		snprintf(name, sizeof(name), "s/%d", i);
		assert_ok(create_on(d->store, name, 1000, i % 3 - 1, 0, &blobs[i]));
		assert_ok(sluice_blob_seal_on(blobs[i], streams[i % STREAMS]));
	}
	for (int i = 0; i < STREAMS * ROUNDS; i++) {
		snprintf(name, sizeof(name), "s/%d", i);
		assert_ok(sluice_blob_wait_sealed(blobs[i], 20000));
		assert_int_equal(sluice_blob_exists(d->store, name), 1);
		assert_true(is_right(blobs[i], name, 1000));
		assert_ok(sluice_blob_release(blobs[i]));
		assert_ok(sluice_blob_delete(d->store, name));
	}
	for (int i = 0; i < STREAMS; i++)
		assert_ok(sluice_stream_free(streams[i]));
	for (int device = 0; device < 2; device++)
		assert_ok(sluice_emulated_configure(device, &plain));
	assert_idle(d->store);
}

static void a_seal_says_that_its_server_was_replaced(void **state)
{
	struct daemon *d = *state;
	pid_t server = daemon_server(d, 0);
	struct gate gate = GATE;
	sluice_stream stream;
	sluice_blob *blob;

	begin_with(d->store, 0);
	assert_ok(sluice_stream_new(0, &stream));
	assert_ok(sluice_emulated_call(0, stream, pass, &gate));
	assert_ok(create_on(d->store, "x", 3 * MIB, 0, 0, &blob));
	assert_ok(sluice_blob_seal_on(blob, stream));
	kill(server, SIGKILL);
	daemon_server(d, server);
	open_gate(&gate);
	assert_refused(sluice_blob_wait_sealed(blob, 20000), ECONNRESET, "replaced");
	assert_int_equal(sluice_blob_exists(d->store, "x"), 0);
	assert_refused(sluice_blob_seal(blob), ECONNRESET, "");
	assert_ok(sluice_blob_release(blob));
	assert_ok(sluice_stream_free(stream));
	assert_memory_is(d->store, 0, 0);
	assert_idle(d->store);
}

static void a_seal_says_that_its_device_has_failed(void **state)
{
	struct daemon *d = *state;
	struct gate gate = GATE;
	sluice_stream stream;
	sluice_blob *blob;

	begin_with(d->store, 1);
	assert_ok(sluice_stream_new(1, &stream));
	assert_ok(sluice_emulated_call(1, stream, pass, &gate));
	assert_ok(create_on(d->store, "x", 100, -1, 0, &blob));
	assert_ok(sluice_blob_seal_on(blob, stream));
	sluice_emulated_lose(1, 1);
	assert_refused(sluice_blob_wait_sealed(blob, 20000), EIO, "emulated:1");
	/* It is as it was before. */
	assert_ok(sluice_blob_seal(blob));
	assert_ok(sluice_blob_wait_sealed(blob, 0));
	open_gate(&gate);
	sluice_emulated_lose(1, 0);
	assert_ok(sluice_blob_release(blob));
	assert_ok(sluice_blob_delete(d->store, "x"));
	assert_ok(sluice_stream_free(stream));
	assert_idle(d->store);
}

/* -------------------------------------------------------------------------------------- publish */

static int publish_as_child(const struct daemon *d, const char *argument)
{
	sluice_store *store = daemon_connect(d);
	unsigned char bytes[5000];
	sluice_blob *blob;
	void *memory;

	(void)argument;
	pattern_fill(bytes, sizeof(bytes), 0, seed_of("theirs", sizeof(bytes)));
	if (sluice_device_alloc(1, 3 * MIB, &memory) ||
	    sluice_copy((char *)memory + MIB, bytes, sizeof(bytes)) ||
	    sluice_blob_publish(store, "theirs", (char *)memory + MIB, sizeof(bytes), NULL, &blob))
		return 1;
	pause();
	return 2;
}

static void memory_of_a_process_goes_with_it(void **state)
{
	struct daemon *d = *state;
	pid_t child = child_start("publish", d, "");
	struct sluice_blob_info info = {.size = sizeof(info)};
	sluice_blob *blob;

	assert_ok(sluice_blob_get(d->store, "theirs", 20000, &blob));
	assert_int_equal(sluice_blob_kind(blob), SLUICE_BLOB_OF_PROCESS);
	assert_int_equal(sluice_blob_device(blob), 1);
	assert_true(is_right(blob, "theirs", 5000));
	assert_ok(sluice_blob_stat(d->store, "theirs", &info));
	assert_int_equal(info.kind, SLUICE_BLOB_OF_PROCESS);
	assert_string_equal(info.place, "emulated:1");
	assert_int_equal(info.device, 1);
	assert_int_equal(info.process, child);
	kill(child, SIGKILL);
	child_status(child);
	for (int i = 0; i < 2000 && sluice_blob_exists(d->store, "theirs"); i++)
		sleep_ms(5);
	assert_int_equal(sluice_blob_exists(d->store, "theirs"), 0);
	assert_true(mappings_of(1) > 0);
	assert_ok(sluice_blob_release(blob));
	assert_mappings_are(1, 0);
	assert_idle(d->store);
}

static void a_process_has_its_own_memory_as_it_is(void **state)
{
	struct daemon *d = *state;
	struct sluice_blob_options o = SLUICE_BLOB_OPTIONS_INIT;
	sluice_store *other = daemon_connect(d);
	sluice_blob *blob, *read;
	char *memory;

	assert_ok(sluice_device_alloc(0, 10000, (void **)&memory));
	o.flags = SLUICE_BLOB_RESERVE | SLUICE_BLOB_ALONE;
	assert_ok(sluice_blob_publish(d->store, "own", memory + 512, 1000, &o, &blob));
	assert_ptr_equal(sluice_blob_data(blob), memory + 512);
	read = got(d->store, "own");
	assert_ptr_equal(sluice_blob_data(read), memory + 512);
	assert_ok(sluice_blob_release(read));
	read = got(other, "own");
	assert_ptr_equal(sluice_blob_data(read), memory + 512);
	assert_ok(sluice_blob_release(read));
	assert_refused(sluice_blob_publish(d->store, "own", memory, 10, NULL, &read), EEXIST,
	               "own");
	assert_ok(sluice_blob_release(blob));
	assert_ok(sluice_blob_delete(d->store, "own"));
	/* It is still the program's, which can publish it again. */
	assert_ok(sluice_blob_publish(d->store, "own", memory, 10, NULL, &blob));
	assert_ok(sluice_blob_release(blob));
	assert_ok(sluice_blob_delete(d->store, "own"));
	assert_ok(sluice_device_free(memory));
	assert_ok(sluice_store_close(other));
	assert_idle(d->store);
}

/* ------------------------------------------------------------------------------------- get_on */

static void a_blob_is_used_by_another_device(void **state)
{
	struct daemon *d = *state;
	sluice_blob *blob = put_on(d->store, "x", 3 * MIB, 0, 0), *read, *again, *plain;
	void *there;

	assert_ok(sluice_device_alloc(1, 3 * MIB, &there));
	assert_ok(sluice_blob_get_on(d->store, "x", 1, 0, &read));
	assert_int_equal(sluice_blob_device(read), 0);
	assert_ok(sluice_copy(there, sluice_blob_data(read), 3 * MIB));
	assert_true(is_right(read, "x", 3 * MIB));
	assert_ok(sluice_blob_get_on(d->store, "x", 1, 0, &again));
	assert_ptr_equal(sluice_blob_data(again), sluice_blob_data(read));
	assert_ok(sluice_blob_release(again));
	/* By its own device it is got as always. */
	plain = got(d->store, "x");
	assert_ok(sluice_blob_get_on(d->store, "x", 0, 0, &again));
	assert_ptr_equal(sluice_blob_data(again), sluice_blob_data(plain));
	assert_ok(sluice_blob_release(again));
	assert_ok(sluice_blob_release(plain));
	assert_ok(sluice_blob_release(read));
	assert_ok(sluice_blob_release(blob));
	assert_ok(sluice_blob_delete(d->store, "x"));
	assert_ok(sluice_device_free(there));
	assert_memory_is(d->store, 0, 0);
	assert_idle(d->store);
}

static void a_blob_on_the_host_is_registered_with_a_device(void **state)
{
	struct daemon *d = *state;
	sluice_blob *blob = put(d->store, "x", 200000, 0), *read, *again;
	sluice_stream stream;
	uint64_t calls = sluice_emulated_calls(SLUICE_EMULATED_REGISTER, NULL);
	void *there, *back = malloc(200000);

	assert_ok(sluice_blob_get_on(d->store, "x", 1, 0, &read));
	assert_int_equal(sluice_emulated_calls(SLUICE_EMULATED_REGISTER, NULL), calls + 1);
	assert_int_equal(sluice_blob_device(read), -1);
	assert_int_equal(sluice_blob_kind(read), SLUICE_BLOB_ON_HOST);
	assert_blob(read, "x", 200000);
	assert_ok(sluice_device_alloc(1, 200000, &there));
	assert_ok(sluice_stream_new(1, &stream));
	assert_ok(sluice_copy_on(there, sluice_blob_data(read), 200000, stream));
	assert_ok(sluice_stream_synchronize(1, stream));
	assert_ok(sluice_copy(back, there, 200000));
	assert_bytes(back, sluice_blob_data(read), 200000);
	calls = sluice_emulated_calls(SLUICE_EMULATED_REGISTER, NULL);
	assert_ok(sluice_blob_get_on(d->store, "x", 1, 0, &again));
	assert_ok(sluice_blob_release(again));
	assert_int_equal(sluice_emulated_calls(SLUICE_EMULATED_REGISTER, NULL), calls);
	assert_ok(sluice_blob_release(read));
	assert_ok(sluice_blob_release(blob));
	assert_ok(sluice_blob_delete(d->store, "x"));
	assert_ok(sluice_stream_free(stream));
	assert_ok(sluice_device_free(there));
	free(back);
	assert_idle(d->store);
}

/* ---------------------------------------------------------------------------------- what is not */

static void what_cannot_be_is_refused(void **state)
{
	struct daemon *d = *state;
	struct sluice_blob_options o = SLUICE_BLOB_OPTIONS_INIT;
	sluice_blob *blob = NULL, *read;
	sluice_stream stream;
	char bytes[100];

	assert_refused(sluice_blob_create(d->store, "a", 1, 99, NULL, &blob), ENOTSUP, "99");
	assert_refused(sluice_blob_create(d->store, "a", 1, -2, NULL, &blob), ENOTSUP, "-2");
	assert_refused(sluice_blob_create(d->store, "a", 0, 0, NULL, &blob), EINVAL, "0 bytes");
	o.flags = SLUICE_BLOB_PUBLIC;
	assert_refused(sluice_blob_create(d->store, "a", 1, 0, &o, &blob), ENOTSUP, "public");
	assert_refused(sluice_blob_publish(d->store, "a", bytes, 1, &o, &blob), ENOTSUP, "public");
	assert_refused(sluice_blob_publish(d->store, "a", bytes, 1, NULL, &blob), EINVAL, "device");
	assert_refused(sluice_blob_get_on(d->store, "a", 99, 0, &read), ENOTSUP, "99");
	assert_refused(sluice_blob_get_on(d->store, "a", -1, 0, &read), ENOTSUP, "-1");
	assert_refused(sluice_blob_get_on(d->store, "a", 0, 0, &read), ENOENT, "'a'");
	assert_ok(sluice_stream_new(0, &stream));
	assert_ok(sluice_blob_create(d->store, "a", 1, -1, &o, &blob));
	assert_refused(sluice_blob_seal_on(blob, stream), ENOTSUP, "public");
	assert_refused(sluice_blob_seal_on(NULL, stream), EINVAL, "NULL");
	assert_refused(sluice_blob_wait_sealed(NULL, 0), EINVAL, "NULL");
	assert_ok(sluice_blob_release(blob));
	assert_ok(sluice_stream_free(stream));
	assert_idle(d->store);
}

static void a_failure_of_the_driver_is_the_call_s(void **state)
{
	struct daemon *d = *state;
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
	assert_true(is_right(read, "x", 3 * MIB));
	assert_ok(sluice_blob_release(read));
	assert_ok(sluice_blob_release(blob));
	assert_ok(sluice_blob_delete(d->store, "x"));
	assert_ok(sluice_blob_release(put_on(d->store, "x", 100, 0, 0)));
	assert_ok(sluice_blob_delete(d->store, "x"));
	assert_memory_is(d->store, 0, SLAB);
	assert_idle(d->store);
}

static void a_child_must_not_use_blobs_on_devices(void **state)
{
	struct daemon *d = *state;
	sluice_blob *blob, *other;
	pid_t pid;

	assert_ok(create_on(d->store, "x", 100, 0, 0, &blob));
	pid = fork();
	if (!pid)
		_exit(sluice_blob_create(d->store, "y", 1, 0, NULL, &other) == -ECHILD &&
		                      sluice_blob_seal_on(blob, NULL) == -ECHILD &&
		                      sluice_blob_wait_sealed(blob, 0) == -ECHILD &&
		                      sluice_blob_publish(d->store, "y", blob, 1, NULL, &other) ==
		                              -ECHILD &&
		                      sluice_blob_get_on(d->store, "x", 0, 0, &other) == -ECHILD &&
		                      sluice_blob_release(blob) == -ECHILD &&
		                      sluice_store_close(d->store) == -ECHILD
		              ? 0
		              : 1);
	assert_int_equal(child_status(pid), 0);
	assert_ok(sluice_blob_seal(blob));
	assert_true(is_right(blob, "x", 100));
	assert_ok(sluice_blob_release(blob));
	assert_ok(sluice_blob_delete(d->store, "x"));
}

static void a_store_without_blobs_on_devices_has_no_threads(void **state)
{
	struct daemon *d = *state;
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

/* --------------------------------------------------------------------------------------- tensors */

/* As dlpack.h has it. */
struct managed {
	void *data;
	int32_t device_type, device_id, ndim;
	uint8_t code, bits;
	uint16_t lanes;
	int64_t *shape, *strides;
	uint64_t byte_offset;
	void *context;
	void (*deleter)(struct managed *);
};

static void a_blob_on_a_device_is_a_tensor_there(void **state)
{
	struct daemon *d = *state;
	struct sluice_blob_metadata m = SLUICE_BLOB_METADATA_INIT;
	struct sluice_blob_options o = SLUICE_BLOB_OPTIONS_INIT;
	struct managed *tensor;
	sluice_blob *blob;
	void *memory, *out;

	m.type = SLUICE_FLOAT32;
	m.rank = 1;
	m.shape[0] = 25;
	o.metadata = &m;
	for (int device = 0; device < 2; device++) {
		assert_ok(sluice_blob_create(d->store, "t", 100, device, &o, &blob));
		assert_ok(sluice_blob_seal(blob));
		assert_ok(sluice_blob_release(blob));
		blob = got(d->store, "t");
		assert_ok(sluice_blob_to_dlpack(blob, 0, &out));
		tensor = out;
		assert_int_equal(tensor->device_type, 12);
		assert_int_equal(tensor->device_id, device);
		assert_ptr_equal(tensor->data, sluice_blob_data(blob));
		assert_ok(sluice_blob_release(blob));
		tensor->deleter(tensor);
		assert_ok(sluice_blob_delete(d->store, "t"));
	}
	assert_ok(sluice_device_alloc(1, 100, &memory));
	assert_ok(sluice_blob_publish(d->store, "t", memory, 100, &o, &blob));
	assert_ok(sluice_blob_to_dlpack(blob, 0, &out));
	tensor = out;
	assert_int_equal(tensor->device_type, 12);
	assert_int_equal(tensor->device_id, 1);
	assert_ptr_equal(tensor->data, memory);
	tensor->deleter(tensor);
	assert_ok(sluice_blob_release(blob));
	assert_ok(sluice_blob_delete(d->store, "t"));
	assert_ok(sluice_device_free(memory));
	assert_idle(d->store);
}

/* --------------------------------------------------------------------------------------- threads */

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
	sluice_stream stream;

	if (sluice_stream_new((int)w->number % 2, &stream))
		w->wrong = "stream";
	for (int i = 0; i < 60 && !w->wrong; i++) {
		char name[32];
		size_t n = 1 + rng_below(&r, i % 10 ? 20000 : 3 * MIB);
		sluice_blob *blob = NULL, *read = NULL;

		snprintf(name, sizeof(name), "%u/%d", w->number, i);
		if (create_on(store, name, n, (int)rng_below(&r, 3) - 1, 0, &blob))
			w->wrong = "create";
		else if (i % 2 ? sluice_blob_seal(blob) : sluice_blob_seal_on(blob, stream))
			w->wrong = "seal";
		else if (sluice_blob_get(store, name, -1, &read))
			w->wrong = "get";
		else if (!is_right(read, name, n) || !is_right(blob, name, n))
			w->wrong = "bytes";
		sluice_blob_release(blob);
		if (!w->wrong && sluice_blob_delete(store, name))
			w->wrong = "delete";
		if (!w->wrong && !is_right(read, name, n))
			w->wrong = "bytes after the delete";
		sluice_blob_release(read);
	}
	sluice_stream_free(stream);
	return NULL;
}

static void threads_share_one_store(void **state)
{
	struct daemon *d = *state;
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
	char name[20];

	snprintf(name, sizeof(name), "begin/%u", b->number);
	pthread_barrier_wait(b->barrier);
	b->rc = create_on(b->store, name, 1000, 1, 0, &blob);
	if (!b->rc)
		b->rc = sluice_blob_seal(blob);
	sluice_blob_release(blob);
	return NULL;
}

/* One of them makes the memory, and hears so maybe after the others have heard of their places in it. */
static void threads_may_be_the_first_on_a_device_together(void **state)
{
	struct daemon *d = *state;
	struct beginner beginners[8];
	pthread_t threads[COUNT_OF(beginners)];
	pthread_barrier_t barrier;
	char name[20];

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
			snprintf(name, sizeof(name), "begin/%u", i);
			assert_ok(sluice_blob_delete(store, name));
		}
		pthread_barrier_destroy(&barrier);
		assert_ok(sluice_store_close(store));
	}
	assert_idle(d->store);
	assert_memory_is(d->store, 1, 0);
}

int main(int argc, char **argv)
{
	static const char *const options[] = {"--memory", "256M", NULL};
	static const struct child_role roles[] = {{"read", read_as_child},
	                                          {"put", put_as_child},
	                                          {"publish", publish_as_child},
	                                          {NULL, NULL}};
	const struct CMUnitTest tests[] = {
		daemon_test(what_was_sealed_on_a_device_is_what_others_get),
		daemon_test(processes_share_memory_of_a_device_and_it_outlives_them),
		daemon_test(a_reader_cannot_write_to_a_blob_on_a_device),
		daemon_test(small_blobs_share_slabs_and_those_that_are_alone_do_not),
		daemon_test(getting_it_again_does_not_call_the_driver),
		daemon_test(memory_goes_though_a_reader_that_had_it_sleeps),
		daemon_test(mappings_that_nobody_uses_are_kept_up_to_a_limit),
		daemon_test(what_is_mapped_is_told_to_the_next_server),
		daemon_test(a_seal_in_stream_order_comes_behind_the_stream_s_work),
		daemon_test(the_host_and_devices_are_sealed_together),
		daemon_test(
			a_handle_that_is_released_before_the_stream_comes_is_sealed_all_the_same),
		daemon_test(closing_waits_for_seals_that_are_under_way),
		daemon_test(many_streams_seal_at_a_time),
		daemon_test(a_seal_says_that_its_server_was_replaced),
		daemon_test(a_seal_says_that_its_device_has_failed),
		daemon_test(memory_of_a_process_goes_with_it),
		daemon_test(a_process_has_its_own_memory_as_it_is),
		daemon_test(a_blob_is_used_by_another_device),
		daemon_test(a_blob_on_the_host_is_registered_with_a_device),
		daemon_test(what_cannot_be_is_refused),
		daemon_test(a_failure_of_the_driver_is_the_call_s),
		daemon_test(a_child_must_not_use_blobs_on_devices),
		daemon_test(a_store_without_blobs_on_devices_has_no_threads),
		daemon_test(a_blob_on_a_device_is_a_tensor_there),
		daemon_test(threads_share_one_store),
		daemon_test(threads_may_be_the_first_on_a_device_together),
	};

	child_run(argc, argv, roles);
	row_start(1, argv);
	daemon_options = options;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
