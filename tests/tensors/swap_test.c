/* SPDX-License-Identifier: Apache-2.0 */
/* Collections whose addresses outlive their memory, and copies out of registered memory. */
#include <pthread.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "blobs/store/device_common.h"
#include "core/dlpack.h"
#include "lib/kill_matrix.h"
#include "sluice/device.h"
#include "sluice/tensors.h"

enum { TENSORS = 5 };

static const uint64_t shapes[TENSORS][2] = {{30, 41}, {777, 1}, {0, 5}, {3, 1 << 20}, {1, 1}};
static const char *const names[TENSORS] = {"a", "b", "empty", "large", "z"};

static size_t bytes_of(unsigned i)
{
	return shapes[i][0] * shapes[i][1] * 2;
}

static char *bytes_for(unsigned i, uint64_t seed)
{
	char *bytes = malloc(bytes_of(i) + 1);

	pattern_fill(bytes, bytes_of(i), 0, seed * 100 + i);
	return bytes;
}

/* Publishes the first so many tensors of a seed, and takes the name from what has it. */
static void publish_some(sluice_store *store, const char *name, uint64_t seed, int device,
                         unsigned count)
{
	struct sluice_collection_options o = SLUICE_COLLECTION_OPTIONS_INIT;
	struct sluice_collection_tensor v[TENSORS];
	sluice_collection *made;

	for (unsigned i = 0; i < count; i++)
		v[i] = (struct sluice_collection_tensor){
			sizeof(*v), names[i], SLUICE_FLOAT16,     2,
			shapes[i],  device,   bytes_for(i, seed), bytes_of(i)};
	o.flags = SLUICE_BLOB_REPLACE;
	assert_ok(sluice_collection_publish(store, name, v, count, &o, &made));
	assert_ok(sluice_collection_release(made));
	for (unsigned i = 0; i < count; i++)
		free(v[i].data);
}

static void publish(sluice_store *store, const char *name, uint64_t seed, int device)
{
	publish_some(store, name, seed, device, TENSORS);
}

static int emulated(void)
{
	int device;

	assert_ok(sluice_device_find("emulated:0", &device));
	return device;
}

static void assert_memory(const void *memory, unsigned i, uint64_t seed)
{
	char *wanted = bytes_for(i, seed), *held = malloc(bytes_of(i) + 1);

	assert_ok(sluice_copy(held, memory, bytes_of(i)));
	assert_memory_equal(held, wanted, bytes_of(i));
	free(wanted);
	free(held);
}

static char *data_of(const sluice_collection *c, unsigned i)
{
	struct sluice_collection_tensor t = {.size = sizeof(t)};
	size_t index;

	assert_ok(sluice_collection_find(c, names[i], &index));
	assert_ok(sluice_collection_get(c, index, &t));
	assert_int_equal(t.bytes, bytes_of(i));
	return t.data;
}

static void assert_seed(const sluice_collection *c, uint64_t seed)
{
	for (unsigned i = 0; i < TENSORS; i++)
		assert_memory(data_of(c, i), i, seed);
}

static sluice_collection *attached(sluice_store *store, const char *name, int device)
{
	sluice_collection *c = NULL;

	assert_ok(sluice_collection_attach(store, name, device, 0, &c));
	return c;
}

/* Deletes "m", which no handle has, and then there is nothing on any device. */
static void assert_nothing_stays(const struct daemon *d)
{
	assert_ok(sluice_blob_delete(d->store, "m"));
	assert_idle(d->store);
	for (int i = 0; i < 2; i++)
		assert_memory_is(d->store, emulated() + i, 0);
}

/* ------------------------------------------------------------------------------- kept addresses */

DAEMON_TEST(the_next_version_comes_to_the_same_addresses)
{
	sluice_collection *c;
	char *at[TENSORS];

	publish(d->store, "m", 1, emulated());
	c = attached(d->store, "m", -1);
	for (unsigned i = 0; i < TENSORS; i++)
		at[i] = data_of(c, i);
	for (uint64_t seed = 2; seed < 6; seed++) {
		struct sluice_collection_tensor t = {.size = sizeof(t)};
		void *exported;

		assert_ok(sluice_collection_keep(c));
		assert_null(sluice_collection_blob(c));
		assert_refused(sluice_collection_get(c, 0, &t), ESTALE, "without memory");
		assert_refused(sluice_collection_to_dlpack(c, 0, 1, &exported), ESTALE, "without");
		assert_refused(sluice_collection_keep(c), ESTALE, "without memory");
		/* This process holds nothing of it: while it is kept there may be none, or several. */
		assert_ok(sluice_blob_delete(d->store, "m"));
		assert_memory_is(d->store, emulated(), 0);
		assert_refused(sluice_collection_attach_at(d->store, "m", 0, c), ENOENT, "'m'");
		publish(d->store, "m", 99, emulated());
		publish(d->store, "m", seed, emulated());
		assert_ok(sluice_collection_attach_at(d->store, "m", 0, c));
		assert_seed(c, seed);
		for (unsigned i = 0; i < TENSORS; i++)
			assert_ptr_equal(data_of(c, i), at[i]);
		assert_refused(sluice_collection_attach_at(d->store, "m", 0, c), EINVAL,
		               "not kept");
	}
	assert_ok(sluice_collection_release(c));
	assert_nothing_stays(d);
}

DAEMON_TEST(exported_tensors_are_those_of_the_next_version)
{
	struct sl_dlpack_managed *tensor;
	sluice_collection *c;
	size_t index;

	publish(d->store, "m", 1, emulated());
	c = attached(d->store, "m", -1);
	assert_ok(sluice_collection_find(c, "large", &index));
	assert_ok(sluice_collection_to_dlpack(c, index, 0, (void **)&tensor));
	assert_memory(tensor->tensor.data, 3, 1);
	assert_ok(sluice_collection_keep(c));
	publish(d->store, "m", 2, emulated());
	assert_ok(sluice_collection_attach_at(d->store, "m", 0, c));
	assert_memory(tensor->tensor.data, 3, 2);
	/* The tensor has the new memory, and its addresses, alone. */
	assert_ok(sluice_collection_release(c));
	assert_ok(sluice_blob_delete(d->store, "m"));
	assert_memory(tensor->tensor.data, 3, 2);
	assert_int_equal(sluice_store_close(d->store), -EBUSY);
	tensor->deleter(tensor);
	assert_idle(d->store);
	assert_memory_is(d->store, emulated(), 0);
}

DAEMON_TEST(another_table_changes_nothing)
{
	sluice_collection *c;
	char *at;

	publish(d->store, "m", 1, emulated());
	publish(d->store, "host", 1, -1);
	publish(d->store, "other device", 1, emulated() + 1);
	publish_some(d->store, "fewer", 1, emulated(), TENSORS - 1);
	c = attached(d->store, "m", -1);
	at = data_of(c, 0);
	assert_ok(sluice_collection_keep(c));
	assert_refused(sluice_collection_attach_at(d->store, "fewer", 0, c), EINVAL, "number");
	assert_refused(sluice_collection_attach_at(d->store, "host", 0, c), EINVAL, "");
	assert_refused(sluice_collection_attach_at(d->store, "other device", 0, c), EINVAL,
	               "addresses");
	assert_ok(sluice_collection_attach_at(d->store, "m", 0, c));
	assert_seed(c, 1);
	assert_ptr_equal(data_of(c, 0), at);
	assert_ok(sluice_collection_release(c));
}

DAEMON_TEST(two_are_kept)
{
	sluice_store *other = daemon_connect(d);
	sluice_collection *first, *second, *third;
	char *at[2];

	publish(d->store, "m", 1, emulated());
	publish(d->store, "n", 2, emulated());
	first = attached(d->store, "m", -1);
	second = attached(other, "m", -1);
	third = attached(d->store, "m", -1);
	/* Those of one store have the same addresses. */
	assert_ptr_equal(data_of(first, 0), data_of(third, 0));
	assert_refused(sluice_collection_keep(first), EBUSY, "another handle");
	assert_seed(first, 1);
	assert_ok(sluice_collection_release(third));
	at[0] = data_of(first, 0);
	at[1] = data_of(second, 0);
	assert_ptr_not_equal(at[0], at[1]);
	assert_ok(sluice_collection_keep(first));
	assert_ok(sluice_collection_keep(second));
	assert_ok(sluice_collection_attach_at(other, "n", 0, first));
	assert_ok(sluice_collection_attach_at(d->store, "m", 0, second));
	assert_ptr_equal(data_of(first, 0), at[0]);
	assert_ptr_equal(data_of(second, 0), at[1]);
	assert_seed(first, 2);
	assert_seed(second, 1);
	/* A get of the same memory may share the addresses, and then they are not kept. */
	assert_ok(sluice_collection_attach(d->store, "m", -1, 0, &third));
	assert_seed(third, 1);
	assert_ok(sluice_collection_release(third));
	assert_ok(sluice_collection_release(second));
	assert_ok(sluice_collection_keep(first));
	assert_ok(sluice_collection_release(first));
	assert_ok(sluice_store_close(other));
	assert_ok(sluice_blob_delete(d->store, "n"));
	assert_nothing_stays(d);
}

DAEMON_TEST(addresses_outlive_the_store_and_its_daemon)
{
	sluice_collection *c;
	char *at;

	publish(d->store, "m", 1, emulated());
	c = attached(d->store, "m", -1);
	at = data_of(c, 3);
	assert_ok(sluice_collection_keep(c));
	assert_ok(sluice_store_close(d->store));
	daemon_replace_server(d);
	d->store = daemon_connect(d);
	assert_ok(sluice_collection_attach_at(d->store, "m", 0, c));
	assert_seed(c, 1);
	assert_ok(sluice_collection_keep(c));
	daemon_renew(d);
	publish(d->store, "m", 2, emulated());
	assert_ok(sluice_collection_attach_at(d->store, "m", 0, c));
	assert_seed(c, 2);
	assert_ptr_equal(data_of(c, 3), at);
	/* A server that is replaced meanwhile is told of what is mapped. */
	daemon_replace_server(d);
	assert_ok(sluice_blob_delete(d->store, "m"));
	assert_seed(c, 2);
	assert_ok(sluice_collection_keep(c));
	assert_memory_is(d->store, emulated(), 0);
	assert_ok(sluice_collection_release(c));
	assert_idle(d->store);
}

/* The store unmaps what was released on a thread of its own, which must not meet a failure that is
 * meant for a call. */
static void await_unmaps(void)
{
	uint64_t before, now = sluice_emulated_calls(SLUICE_EMULATED_UNMAP, NULL);

	do {
		before = now;
		sleep_ms(50);
		now = sluice_emulated_calls(SLUICE_EMULATED_UNMAP, NULL);
	} while (now != before);
}

DAEMON_TEST(failures_change_nothing)
{
	sluice_collection *c;
	char *at;

	publish(d->store, "m", 1, emulated());
	c = attached(d->store, "m", -1);
	at = data_of(c, 3);
	await_unmaps();
	sluice_emulated_fail(SLUICE_EMULATED_UNMAP, 1, -EIO);
	assert_refused(sluice_collection_keep(c), EIO, "cannot unmap");
	assert_seed(c, 1);
	assert_ok(sluice_collection_keep(c));
	sluice_emulated_fail(SLUICE_EMULATED_SHARE, 1, -ENOMEM);
	assert_refused(sluice_collection_attach_at(d->store, "m", 0, c), ENOMEM, "cannot map");
	assert_refused(sluice_collection_attach_at(d->store, "none", 0, c), ENOENT, "none");
	assert_refused(sluice_collection_attach_at(d->store, "none", 1, c), ETIMEDOUT, "none");
	assert_ok(sluice_collection_attach_at(d->store, "m", 0, c));
	assert_seed(c, 1);
	assert_ptr_equal(data_of(c, 3), at);
	assert_ok(sluice_collection_release(c));
	/* What is on the host, or made here, has no addresses of a device to be kept. */
	publish(d->store, "m", 1, -1);
	c = attached(d->store, "m", -1);
	assert_refused(sluice_collection_keep(c), ENOTSUP, "only addresses of a device");
	assert_seed(c, 1);
	assert_ok(sluice_collection_release(c));
	assert_nothing_stays(d);
}

DAEMON_TEST(of_several_devices_all_or_none_are_kept)
{
	struct sluice_collection_options o = SLUICE_COLLECTION_OPTIONS_INIT;
	struct sluice_collection_tensor v[TENSORS];
	struct sluice_collection_tensor t = {.size = sizeof(t)};
	sluice_collection *made, *c;
	int device = emulated();
	char *at[TENSORS];

	for (unsigned i = 0; i < TENSORS; i++)
		v[i] = (struct sluice_collection_tensor){
			sizeof(*v),          names[i],        SLUICE_FLOAT16, 2, shapes[i],
			device + (int)i % 2, bytes_for(i, 7), bytes_of(i)};
	assert_ok(sluice_collection_publish(d->store, "m", v, TENSORS, &o, &made));
	assert_ok(sluice_collection_release(made));
	c = attached(d->store, "m", -1);
	for (unsigned i = 0; i < TENSORS; i++)
		at[i] = data_of(c, i);
	await_unmaps();
	sluice_emulated_fail(SLUICE_EMULATED_UNMAP, 2, -EIO);
	assert_refused(sluice_collection_keep(c), EIO, "cannot unmap");
	assert_seed(c, 7);
	assert_ok(sluice_collection_keep(c));
	sluice_emulated_fail(SLUICE_EMULATED_SHARE, 2, -ENOMEM);
	assert_refused(sluice_collection_attach_at(d->store, "m", 0, c), ENOMEM, "cannot map");
	assert_ok(sluice_collection_attach_at(d->store, "m", 0, c));
	assert_seed(c, 7);
	for (unsigned i = 0; i < TENSORS; i++) {
		assert_ptr_equal(data_of(c, i), at[i]);
		free(v[i].data);
	}
	/* What is unmapped cannot go back: no address of it is given any more. */
	await_unmaps();
	sluice_emulated_fail(SLUICE_EMULATED_UNMAP, 2, -EIO);
	sluice_emulated_fail(SLUICE_EMULATED_SHARE, 1, -ENOMEM);
	assert_refused(sluice_collection_keep(c), EIO, "cannot unmap");
	assert_refused(sluice_collection_get(c, 0, &t), ESTALE, "without memory");
	assert_refused(sluice_collection_attach_at(d->store, "m", 0, c), EINVAL, "not kept");
	assert_ok(sluice_collection_release(c));
	assert_nothing_stays(d);
}

DAEMON_TEST(a_child_of_fork_leaves_what_is_kept_alone)
{
	sluice_collection *c;
	int status;
	pid_t pid;

	publish(d->store, "m", 1, emulated());
	c = attached(d->store, "m", -1);
	for (unsigned kept = 0; kept < 2; kept++) {
		pid = fork();
		if (!pid)
			_exit(sluice_collection_keep(c) != -ECHILD ||
			      sluice_collection_copy(c, NULL, 0, 0, NULL) != -ECHILD ||
			      sluice_collection_attach_at(d->store, "m", 0, c) != -ECHILD ||
			      sluice_collection_release(c) != -ECHILD);
		assert_int_equal(waitpid(pid, &status, 0), pid);
		assert_int_equal(status, 0);
		if (!kept)
			assert_ok(sluice_collection_keep(c));
	}
	assert_ok(sluice_collection_attach_at(d->store, "m", 0, c));
	assert_seed(c, 1);
	assert_ok(sluice_collection_release(c));
	assert_nothing_stays(d);
}

/* A client that ends while it keeps addresses, or is killed. */
static int keep_and_end(const struct daemon *d, const char *how)
{
	sluice_store *store = daemon_connect(d);
	sluice_collection *c = attached(store, "m", -1);

	assert_ok(sluice_collection_keep(c));
	if (how[0] == 'a')
		assert_ok(sluice_collection_attach_at(store, "m", 0, c));
	if (how[1] == 'k')
		kill(getpid(), SIGKILL);
	return 0;
}

DAEMON_TEST(a_process_ends_while_it_keeps_addresses)
{
	static const char *const ways[] = {"-e", "-k", "ae", "ak"};

	publish(d->store, "m", 1, emulated());
	for (unsigned i = 0; i < COUNT_OF(ways); i++) {
		int status = child_status(child_start("keep", d, ways[i]));

		assert_int_equal(status != 0, ways[i][1] == 'k');
	}
	assert_nothing_stays(d);
}

/* The same, at each step of it; and at its end. */
static int keep_and_die(const struct daemon *d, const char *point)
{
	static _Atomic uint32_t deaths;
	sluice_collection *c;
	sluice_store *store;

	store = daemon_connect(d);
	c = attached(store, "m", -1);
	die_at_step(point, &deaths);
	for (unsigned i = 0; i < 3; i++) {
		assert_ok(sluice_collection_keep(c));
		assert_ok(sluice_collection_attach_at(store, "m", 0, c));
	}
	assert_ok(sluice_collection_release(c));
	return 0;
}

DAEMON_TEST(a_process_is_killed_at_each_step_of_a_swap)
{
	static const char *const steps[] = {"client: asked for memory", "client: imported",
	                                    "client: unmapped", "client: tells", "client: got"};
	unsigned deaths = 0;

	publish(d->store, "m", 1, emulated());
	for (unsigned i = 0; i < COUNT_OF(steps); i++)
		for (unsigned pass = 0; pass < 3; pass++) {
			const char *point = named("%u %s", pass, steps[i]);
			sluice_collection *c;

			deaths += child_status(child_start("die", d, point)) != 0;
			c = attached(d->store, "m", -1);
			assert_seed(c, 1);
			assert_ok(sluice_collection_release(c));
		}
	assert_true(deaths >= 10);
	assert_nothing_stays(d);
}

static _Atomic bool replaced;

static void *replace_servers(void *daemon)
{
	for (unsigned i = 0; i < 5; i++) {
		daemon_replace_server(daemon);
		sleep_ms(10);
	}
	atomic_store(&replaced, true);
	return NULL;
}

/* What fails meanwhile may be repeated. */
DAEMON_TEST(servers_are_killed_while_addresses_are_kept_and_mapped)
{
	sluice_collection *c;
	pthread_t thread;
	char *at;

	publish(d->store, "m", 1, emulated());
	c = attached(d->store, "m", -1);
	at = data_of(c, 3);
	atomic_store(&replaced, false);
	pthread_create(&thread, NULL, replace_servers, d);
	while (!atomic_load(&replaced)) {
		int rc;

		assert_ok(sluice_collection_keep(c));
		do
			rc = sluice_collection_attach_at(d->store, "m", 5000, c);
		while (rc == -ECONNRESET || rc == -ESTALE);
		assert_ok(rc);
		assert_ptr_equal(data_of(c, 3), at);
		assert_seed(c, 1);
	}
	pthread_join(thread, NULL);
	assert_ok(sluice_collection_release(c));
	assert_nothing_stays(d);
}

/* ------------------------------------------------------------------------------ registered memory */

struct targets {
	struct sluice_collection_target v[TENSORS];
	int device;
};

static void targets_make(struct targets *targets, const sluice_collection *c, int device)
{
	targets->device = device;
	for (unsigned i = 0; i < TENSORS; i++) {
		struct sluice_collection_target *t = &targets->v[i];

		assert_ok(sluice_collection_find(c, names[i], &t->index));
		t->to = NULL;
		if (!bytes_of(i))
			continue;
		if (device < 0)
			t->to = calloc(1, bytes_of(i));
		else
			assert_ok(sluice_device_alloc(device, bytes_of(i), &t->to));
	}
}

static void targets_check(const struct targets *targets, uint64_t seed)
{
	for (unsigned i = 0; i < TENSORS; i++)
		if (bytes_of(i))
			assert_memory(targets->v[i].to, i, seed);
}

static void targets_free(struct targets *targets)
{
	for (unsigned i = 0; i < TENSORS; i++)
		if (targets->device < 0)
			free(targets->v[i].to);
		else if (targets->v[i].to)
			assert_ok(sluice_device_free(targets->v[i].to));
}

DAEMON_TEST(registered_memory_is_copied_by_the_device)
{
	sluice_collection *c, *plain, *there;
	struct targets targets[3];
	int device = emulated();
	sluice_stream stream;
	uint64_t bytes;
	int64_t ns = -1;
	void *second;

	publish(d->store, "m", 1, -1);
	publish(d->store, "there", 2, device);
	plain = attached(d->store, "m", -1);
	c = attached(d->store, "m", device);
	there = attached(d->store, "there", -1);
	for (int i = 0; i < 3; i++)
		targets_make(&targets[i], c, i < 2 ? device + i : -1);
	assert_ok(sluice_collection_registered(c, device, &bytes, &ns));
	assert_true(bytes > 6 << 20);
	assert_true(ns >= 0);
	assert_refused(sluice_collection_registered(plain, device, &bytes, &ns), ENOTSUP,
	               "not registered");
	assert_refused(sluice_collection_copy(plain, targets[0].v, TENSORS, 0, NULL), ENOTSUP,
	               "not registered");
	assert_ok(sluice_collection_copy(c, targets[0].v, TENSORS, 0, NULL));
	targets_check(&targets[0], 1);
	assert_refused(sluice_collection_copy(c, targets[1].v, TENSORS, 0, NULL), ENOTSUP,
	               "not registered with emulated:1");
	assert_refused(sluice_collection_copy(c, targets[2].v, TENSORS, 0, NULL), EINVAL,
	               "not on a device");
	/* From the device to itself. */
	assert_ok(sluice_collection_copy(there, targets[0].v, TENSORS, 0, NULL));
	targets_check(&targets[0], 2);
	assert_refused(sluice_collection_copy(there, targets[1].v, TENSORS, 0, NULL), ENOTSUP,
	               "not registered with emulated:1");
	assert_ok(sluice_stream_new(device, &stream));
	assert_ok(sluice_collection_copy(c, targets[0].v, TENSORS, 1, stream));
	assert_ok(sluice_stream_synchronize(device, stream));
	targets_check(&targets[0], 1);
	second = targets[0].v[1].to;
	targets[0].v[1].to = targets[1].v[1].to;
	assert_refused(sluice_collection_copy(c, targets[0].v, TENSORS, 1, stream), EINVAL,
	               "not on that of the others");
	targets[0].v[1].to = NULL;
	assert_refused(sluice_collection_copy(c, targets[0].v, TENSORS, 1, stream), EINVAL,
	               "not on a device");
	targets[0].v[1].index = TENSORS;
	assert_refused(sluice_collection_copy(c, targets[0].v, TENSORS, 0, NULL), ENOENT,
	               "no tensor 5");
	assert_ok(sluice_stream_free(stream));
	targets[0].v[1].to = second;
	for (int i = 0; i < 3; i++)
		targets_free(&targets[i]);
	assert_ok(sluice_collection_release(plain));
	assert_ok(sluice_collection_release(c));
	assert_ok(sluice_collection_release(there));
	assert_ok(sluice_blob_delete(d->store, "there"));
	assert_nothing_stays(d);
}

/* The program may free the targets then. */
DAEMON_TEST(a_copy_that_cannot_be_awaited_is_over_when_the_call_returns)
{
	struct sluice_emulated_options late = SLUICE_EMULATED_OPTIONS_INIT, plain = late;
	int device = emulated();
	const char *memory;
	sluice_collection *c;
	struct targets targets;
	char *held = malloc(bytes_of(3));

	publish(d->store, "m", 1, -1);
	c = attached(d->store, "m", device);
	targets_make(&targets, c, device);
	memory = sluice_emulated_memory(targets.v[3].to);
	late.seed = 1;
	late.delay_us = 200000;
	assert_ok(sluice_emulated_configure(device, &late));
	sluice_emulated_fail(SLUICE_EMULATED_QUERY, 1, -ENOMEM);
	assert_refused(sluice_collection_copy(c, targets.v, TENSORS, 0, NULL), ENOMEM, "ask");
	memcpy(held, memory, bytes_of(3));
	sleep_ms(500);
	assert_memory_equal(held, memory, bytes_of(3));
	assert_ok(sluice_emulated_configure(device, &plain));
	targets_free(&targets);
	free(held);
	assert_ok(sluice_collection_release(c));
	assert_nothing_stays(d);
}

/* Also if the collection is replaced meanwhile, and the store has another version. */
DAEMON_TEST(a_release_waits_for_copies_in_stream_order)
{
	struct gate gate = GATE;
	int device = emulated();
	sluice_collection *c;
	struct targets targets;
	sluice_stream stream;
	pthread_t thread;
	bool waited;

	publish(d->store, "m", 1, -1);
	c = attached(d->store, "m", device);
	targets_make(&targets, c, device);
	assert_ok(sluice_stream_new(device, &stream));
	assert_ok(sluice_emulated_call(device, stream, gate_pass, &gate));
	for (unsigned i = 0; i < 3; i++)
		assert_ok(sluice_collection_copy(c, targets.v, TENSORS, 1, stream));
	publish(d->store, "m", 2, -1);
	pthread_create(&thread, NULL, gate_open_late, &gate);
	assert_ok(sluice_collection_release(c));
	pthread_mutex_lock(&gate.mutex);
	waited = gate.open;
	pthread_mutex_unlock(&gate.mutex);
	pthread_join(thread, NULL);
	assert_true(waited);
	targets_check(&targets, 1);
	targets_free(&targets);
	assert_ok(sluice_stream_free(stream));
	assert_nothing_stays(d);
}

static unsigned count_mappings(const char *name)
{
	FILE *maps = fopen("/proc/self/maps", "r");
	unsigned found = 0;
	char line[512];

	while (fgets(line, sizeof(line), maps))
		found += strstr(line, name) != NULL;
	fclose(maps);
	return found;
}

DAEMON_TEST(memory_is_registered_until_the_release)
{
	int device = emulated();
	sluice_collection *c;
	unsigned before;

	publish(d->store, "m", 1, -1);
	c = attached(d->store, "m", -1);
	before = count_mappings("memfd:");
	assert_ok(sluice_collection_release(c));
	sluice_emulated_fail(SLUICE_EMULATED_REGISTER, 1, -ENOMEM);
	assert_refused(sluice_collection_attach(d->store, "m", device, 0, &c), ENOMEM,
	               "cannot use a blob");
	c = attached(d->store, "m", device);
	sluice_emulated_reset_calls();
	assert_seed(c, 1);
	assert_ok(sluice_collection_release(c));
	/* The unmap thread does it; the small owner may stay. */
	for (unsigned i = 0; i < 5000 && !sluice_emulated_calls(SLUICE_EMULATED_REGISTER, ""); i++)
		sleep_ms(1);
	assert_int_equal(sluice_emulated_calls(SLUICE_EMULATED_REGISTER, ""), 1);
	assert_true(count_mappings("memfd:") <= before + 2);
	assert_nothing_stays(d);
}

DAEMON_MAIN("128M", {"keep", keep_and_end}, {"die", keep_and_die}, {NULL, NULL})
