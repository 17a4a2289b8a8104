/* SPDX-License-Identifier: Apache-2.0 */
/* Processes that are killed with blobs of devices: who makes them, at every step, and who reads them. */
#include <signal.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/gpu.h"
#include "lib/kill_matrix.h"

static int begin(void **state);
#define DEATH_TEST(name) DAEMON_TEST_WITH(name, begin, daemon_teardown)

enum { HERE = 1 };

static struct {
	_Atomic uint32_t ready, go;
	_Atomic uint32_t came; /* to the step at which it was to end */
} * shared;

static void await_ready(uint32_t count)
{
	double until = seconds_now() + 20;

	while (atomic_load(&shared->ready) < count)
		if (seconds_now() > until)
			fail_msg("%u of %u clients are ready",
			         (unsigned)atomic_load(&shared->ready), (unsigned)count);
		else
			sleep_ms(1);
}

static void assert_no_memory(sluice_store *store)
{
	double until = seconds_now() + 20;
	struct sluice_store_device_info d;

	while ((d = account_of(store)).memory_bytes)
		if (seconds_now() > until)
			fail_msg("%llu bytes of the device are taken, %llu of them leaving",
			         (unsigned long long)d.memory_bytes,
			         (unsigned long long)d.leaving_bytes);
		else
			sleep_ms(2);
}

static void kill_child(pid_t pid)
{
	kill(pid, SIGKILL);
	assert_true(WIFSIGNALED(child_status(pid)));
}

static _Noreturn void stay(void)
{
	atomic_fetch_add(&shared->ready, 1);
	for (;;)
		pause();
}

/* ----------------------------------------------------------------------------------------- steps */

static int seal_in_order(sluice_store *store, sluice_stream stream)
{
	sluice_blob *v[3];
	int rc;

	if (sluice_blob_create(store, "mine/host", 100, -1, NULL, &v[0]) ||
	    sluice_blob_create(store, "mine/little", 100, place(), NULL, &v[1]) ||
	    sluice_blob_create(store, "mine/large", 5 * MIB, place(), NULL, &v[2]) ||
	    gpu_fill(HERE, stream, sluice_blob_mutable_data(v[2]), 5 * MIB, 0, 9) ||
	    sluice_blob_seal_many_on(v, 3, stream))
		return 1;
	rc = sluice_blob_wait_sealed(v[0], 20000);
	return rc || sluice_blob_release_many(v, 3);
}

/* All that a client does on a device, each step of it. */
static int live(const struct daemon *d, const char *argument)
{
	sluice_blob *made, *read;
	sluice_stream stream;
	sluice_store *store;
	void *memory;

	place_on(HERE);
	die_at_step(argument, &shared->came);
	if (sluice_store_open(d->path, NULL, &store) ||
	    sluice_stream_new(gpu_device(HERE), &stream) ||
	    sluice_device_alloc(place(), MIB, &memory))
		return 1;
	if (try_put(store, "mine/sealed", 5000, 0, &made) || sluice_blob_release(made))
		return 2;
	if (sluice_blob_get(store, "theirs", 0, &read) || !blob_is(read, "theirs", 3 * MIB))
		return 3;
	if (seal_in_order(store, stream))
		return 4;
	if (sluice_blob_publish(store, "mine/lent", memory, MIB, NULL, &made) ||
	    sluice_blob_release(made))
		return 5;
	if (sluice_blob_delete(store, "mine/large"))
		return 6;
	/* The memory of this one is let go when its last holder is gone. */
	if (sluice_blob_get(store, "mine/little", 0, &made) ||
	    sluice_blob_delete(store, "mine/little") || sluice_blob_release(made))
		return 7;
	/* Other threads come to some steps, in a moment: it is waited for where there has to be one. */
	for (int tries = atoi(argument) ? 1 : 400; tries--;)
		if (sluice_blob_get(store, "nothing", 50, &made) != -ETIMEDOUT)
			return 8;
	kill(getpid(), SIGKILL);
	return 9;
}

/* All or none of what was sealed in one call. */
static void check_together(sluice_store *store)
{
	struct sluice_blob_info infos[8] = {{.size = sizeof(infos[0])}};
	uint64_t cursor = 0;
	bool host = false, large = false;
	int n;

	while ((n = sluice_blob_list(store, "mine/", &cursor, infos, COUNT_OF(infos))) > 0)
		for (int i = 0; i < n; i++) {
			bool sealed = infos[i].state == SLUICE_BLOB_IS_SEALED;

			host |= sealed && !strcmp(infos[i].name, "mine/host");
			large |= sealed && !strcmp(infos[i].name, "mine/large");
		}
	/* It deletes the large one itself, later. */
	if (large && !host)
		fail_msg("a part of what was sealed together is there");
}

static void die_at(struct daemon *d, const char *step, unsigned pass, uint64_t bytes)
{
	double until = seconds_now() + 20;
	struct sluice_store_device_info there;
	struct sluice_store_counts s;
	sluice_blob *blob;
	char point[64];
	int status;

	snprintf(point, sizeof(point), "%u %s", pass, step);
	status = child_status(child_start("live", d, point));
	if (!WIFSIGNALED(status))
		fail_msg("%s: the client ended with %d", point, WEXITSTATUS(status));
	check_together(d->store);
	if (!sluice_blob_get(d->store, "mine/sealed", 0, &blob)) {
		assert_blob(blob, "mine/sealed", 5000);
		assert_ok(sluice_blob_release(blob));
	}
	do {
		delete_mine(d->store);
		s = stats_of(d->store);
		there = account_of(d->store);
		if (seconds_now() > until)
			fail_msg("%s: %llu created, %llu dying, %llu sealed, %llu clients, %llu "
			         "bytes, "
			         "%llu leaving",
			         point, (unsigned long long)s.created, (unsigned long long)s.dying,
			         (unsigned long long)s.sealed, (unsigned long long)s.clients,
			         (unsigned long long)there.memory_bytes,
			         (unsigned long long)there.leaving_bytes);
	} while (s.created || s.dying || s.sealed != 1 || s.clients != 1 ||
	         there.memory_bytes != bytes || there.leaving_bytes);
}

DEATH_TEST(a_client_that_is_killed_leaves_what_it_sealed_and_nothing_else)
{
	static const char *const steps[] = {
		"client: asked",    "client: answered",
		"client: leased",   "client: created",
		"client: made",     "client: offered",
		"client: promised", "client: asked for memory",
		"client: imported", "client: due",
		"client: sealed",   "client: got",
		"client: unmapped",
	};
	sluice_blob *theirs = put(d->store, "theirs", 3 * MIB, 0);
	uint64_t bytes = account_of(d->store).memory_bytes;
	unsigned most = getenv("STRESS") ? 24 : 3;

	assert_int_equal(bytes, 4 * MIB);
	for (unsigned i = 0; i < COUNT_OF(steps); i++)
		for (unsigned pass = 0; pass < most; pass++) {
			uint32_t before = atomic_load(&shared->came);

			die_at(d, steps[i], pass, bytes);
			assert_blob(theirs, "theirs", 3 * MIB);
			if (!pass && atomic_load(&shared->came) == before)
				fail_msg("no client comes to the step %s", steps[i]);
		}
	print_message("%u clients died at a step\n", (unsigned)atomic_load(&shared->came));
	assert_let_go(theirs, d->store, "theirs");
	assert_idle(d->store);
	assert_no_memory(d->store);
}

/* ----------------------------------------------------------------------------------- streams */

static struct gpu_hold hold;

/* Has asked for a seal, and its stream does not come to it until it may. */
static int seal_later(const struct daemon *d, const char *argument)
{
	sluice_stream stream;
	sluice_store *store;
	sluice_blob *v[2];

	place_on(HERE);
	if (sluice_store_open(d->path, NULL, &store) ||
	    sluice_stream_new(gpu_device(HERE), &stream) ||
	    sluice_blob_create(store, "mine/a", 5000, place(), NULL, &v[0]) ||
	    sluice_blob_create(store, "mine/b", 3 * MIB, place(), NULL, &v[1]) ||
	    gpu_hold(HERE, stream, &hold) ||
	    gpu_fill(HERE, stream, sluice_blob_mutable_data(v[1]), 3 * MIB, 0, 1) ||
	    sluice_blob_seal_many_on(v, 2, stream))
		return 1;
	if (!strcmp(argument, "released") && sluice_blob_release_many(v, 2))
		return 2;
	atomic_fetch_add(&shared->ready, 1);
	while (!atomic_load(&shared->go))
		sleep_ms(1);
	gpu_let_go(&hold);
	for (;;)
		pause();
}

DEATH_TEST(blob_of_an_unreached_seal_is_gone)
{
	static const char *const how[] = {"held", "released"};

	for (unsigned i = 0; i < COUNT_OF(how); i++) {
		pid_t pid = child_start("seal_later", d, how[i]);

		await_ready(i + 1);
		assert_int_equal(sluice_blob_exists(d->store, "mine/a"), 0);
		kill_child(pid);
		assert_int_equal(sluice_blob_exists(d->store, "mine/a"), 0);
		assert_int_equal(sluice_blob_exists(d->store, "mine/b"), 0);
		assert_idle(d->store);
		assert_no_memory(d->store);
	}
}

/* At any moment after the stream goes on: both are there, or none. */
DEATH_TEST(a_seal_that_is_due_happens_whole_or_not_at_all)
{
	unsigned there = 0, rounds = getenv("STRESS") ? 300 : 12;

	for (unsigned i = 0; i < rounds; i++) {
		pid_t pid = child_start("seal_later", d, i % 2 ? "held" : "released");
		int a, b;

		await_ready(i + 1);
		atomic_store(&shared->go, 1);
		usleep(i * 12000 / rounds);
		kill_child(pid);
		atomic_store(&shared->go, 0);
		/* What it said before it died counts. */
		do
			sleep_ms(1);
		while (stats_of(d->store).clients > 1);
		a = sluice_blob_exists(d->store, "mine/a");
		b = sluice_blob_exists(d->store, "mine/b");
		assert_int_equal(a, b);
		there += a == 1;
		delete_mine(d->store);
		assert_idle(d->store);
		assert_no_memory(d->store);
	}
	print_message("%u of %u were sealed\n", there, rounds);
}

/* --------------------------------------------------------------------------------- importers */

static int import(const struct daemon *d, const char *argument)
{
	sluice_store *store;
	sluice_blob *little, *large;

	(void)argument;
	place_on(HERE);
	if (sluice_store_open(d->path, NULL, &store) ||
	    sluice_blob_get(store, "little", 20000, &little) ||
	    sluice_blob_get(store, "large", 20000, &large) || !blob_is(large, "large", 3 * MIB) ||
	    !blob_is(little, "little", 100))
		return 1;
	stay();
}

DEATH_TEST(importers_that_are_killed_let_go)
{
	sluice_blob *little = put(d->store, "little", 100, 0);
	sluice_blob *large = put(d->store, "large", 3 * MIB, 0);
	pid_t pids[4];

	for (unsigned i = 0; i < COUNT_OF(pids); i++)
		pids[i] = child_start("import", d, "");
	await_ready(COUNT_OF(pids));
	kill_child(pids[0]);
	kill_child(pids[1]);
	assert_blob(little, "little", 100);
	assert_blob(large, "large", 3 * MIB);
	assert_ok(sluice_blob_release(little));
	assert_let_go(large, d->store, "little");
	assert_ok(sluice_blob_delete(d->store, "large"));
	/* Two hold them still. */
	sleep_ms(20);
	assert_int_equal(stats_of(d->store).dying, 2);
	kill_child(pids[2]);
	sleep_ms(20);
	assert_int_equal(stats_of(d->store).dying, 2);
	kill_child(pids[3]);
	assert_idle(d->store);
	assert_ok(sluice_store_close(d->store));
	d->store = daemon_connect(d);
	assert_no_memory(d->store);
}

/* -------------------------------------------------------------------------------------- slabs */

/* Three of one slab. */
static int leave_a_slab(const struct daemon *d, const char *argument)
{
	sluice_store *store;
	sluice_blob *blob;

	(void)argument;
	place_on(HERE);
	if (sluice_store_open(d->path, NULL, &store) || try_put(store, "a", 5000, 0, &blob) ||
	    try_put(store, "b", 5001, 0, &blob) || try_put(store, "c", 5002, 0, &blob))
		return 1;
	stay();
}

static void put_and_delete_many(sluice_store *store)
{
	for (int i = 0; i < 200; i++) {
		assert_let_go(put(store, "more", 5000, 0), store, "more");
	}
}

DEATH_TEST(a_slab_of_a_dead_owner_is_not_written_again)
{
	pid_t owner = child_start("leave_a_slab", d, "");
	sluice_store *other = daemon_connect(d);
	sluice_blob *held;
	uint64_t before;

	await_ready(1);
	held = got(other, "b");
	assert_blob(held, "b", 5001);
	/* While its owner lives, too, nobody else makes blobs there: that takes a slab of one's own. */
	before = account_of(d->store).memory_bytes;
	put_and_delete_many(d->store);
	assert_int_equal(account_of(d->store).memory_bytes, before + 2 * MIB);
	assert_blob(held, "b", 5001);
	kill_child(owner);
	assert_ok(sluice_blob_delete(other, "a"));
	assert_ok(sluice_blob_delete(other, "b"));
	put_and_delete_many(d->store);
	put_and_delete_many(other);
	assert_blob(held, "b", 5001);
	assert_ok(sluice_blob_release(held));
	assert_there(other, "c", 5002);
	assert_ok(sluice_store_close(other));
	assert_ok(sluice_store_close(d->store));
	d->store = daemon_connect(d);
	/* The slab of the dead owner goes with the last of its blobs, when the server has closed the connections. */
	for (int i = 0; i < 5000 && account_of(d->store).memory_bytes != 2 * MIB; i++)
		sleep_ms(1);
	assert_int_equal(account_of(d->store).memory_bytes, 2 * MIB);
	assert_ok(sluice_blob_delete(d->store, "c"));
	assert_no_memory(d->store);
	assert_idle(d->store);
}

/* ----------------------------------------------------------------------------- of a process */

static int lend(const struct daemon *d, const char *argument)
{
	sluice_store *store;
	sluice_blob *blob;
	char *memory;
	void *made;

	place_on(HERE);
	if (sluice_store_open(d->path, NULL, &store) || sluice_device_alloc(place(), MIB, &made))
		return 1;
	memory = made;
	if (gpu_fill(HERE, SLUICE_STREAM_DEFAULT, memory, MIB, 0, 77) ||
	    sluice_stream_synchronize(place(), SLUICE_STREAM_DEFAULT) ||
	    sluice_blob_publish(store, "lent", memory + 12345, 70000, NULL, &blob) ||
	    sluice_blob_data(blob) != memory + 12345)
		return 2;
	if (!strcmp(argument, "killed"))
		stay();
	atomic_fetch_add(&shared->ready, 1);
	while (!atomic_load(&shared->go))
		sleep_ms(1);
	return sluice_blob_release(blob) || sluice_store_close(store) ? 3 : 0;
}

static void assert_lent(const sluice_blob *blob)
{
	unsigned char *bytes = malloc(70000);

	assert_int_equal(sluice_blob_kind(blob), SLUICE_BLOB_OF_PROCESS);
	assert_int_equal(sluice_blob_size(blob), 70000);
	assert_int_equal(sluice_blob_device(blob), place());
	assert_ok(sluice_copy(bytes, sluice_blob_data(blob), 70000));
	assert_pattern(bytes, 70000, 12345, 77);
	free(bytes);
}

DEATH_TEST(device_kill_memory_goes_with_its_process)
{
	static const char *const how[] = {"killed", "closed"};
	struct sluice_blob_info info = {.size = sizeof(info)};

	for (unsigned i = 0; i < COUNT_OF(how); i++) {
		double until = seconds_now() + 20;
		pid_t pid = child_start("lend", d, how[i]);
		sluice_blob *blob;

		await_ready(i + 1);
		blob = got(d->store, "lent");
		assert_lent(blob);
		assert_ok(sluice_blob_stat(d->store, "lent", &info));
		assert_int_equal(info.kind, SLUICE_BLOB_OF_PROCESS);
		assert_int_equal(info.process, pid);
		if (i) {
			atomic_store(&shared->go, 1);
			assert_int_equal(child_status(pid), 0);
		} else {
			kill_child(pid);
		}
		while (sluice_blob_exists(d->store, "lent"))
			assert_true(seconds_now() < until);
		assert_ok(sluice_blob_release(blob));
		assert_idle(d->store);
	}
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
		{"live", live},     {"seal_later", seal_later},
		{"import", import}, {"leave_a_slab", leave_a_slab},
		{"lend", lend},     {NULL, NULL}};

	shared = shared_memory(sizeof(*shared));
	child_run(argc, argv, roles);
	row_start(1, argv);
	place_on(HERE);
	daemon_options = options;
	return RUN_TESTS(NULL, NULL);
}
