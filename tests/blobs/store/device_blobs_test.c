/* SPDX-License-Identifier: Apache-2.0 */
/* Blobs on devices: where they are, when they are sealed, and when their memory goes. */
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/daemon.h"
#include "lib/gpu.h"

/* The second one, so that a number that is mixed up shows. */
enum { HERE = 1 };

static sluice_stream new_stream(void)
{
	sluice_stream stream = NULL;

	assert_ok(sluice_stream_new(gpu_device(HERE), &stream));
	return stream;
}

static void reopen(struct daemon *d)
{
	assert_ok(sluice_store_close(d->store));
	d->store = daemon_connect(d);
}

/* ---------------------------------------------------------------------------------------- seals */

DAEMON_TEST(a_seal_in_stream_order_waits_for_its_stream)
{
	sluice_stream stream = new_stream();
	sluice_blob *blob, *large, *read;
	struct gpu_hold hold;

	assert_ok(sluice_blob_create(d->store, "later", 1000, place(), NULL, &blob));
	assert_ok(sluice_blob_create(d->store, "large", 3 * MIB, place(), NULL, &large));
	assert_refused(sluice_blob_wait_sealed(blob, 0), EINVAL, "");
	assert_int_equal(gpu_hold(HERE, stream, &hold), 0);
	assert_int_equal(gpu_fill(HERE, stream, sluice_blob_mutable_data(blob), 1000, 0, 5), 0);
	assert_ok(sluice_blob_seal_on(blob, stream));
	assert_ok(sluice_blob_seal_on(large, stream));
	assert_refused(sluice_blob_seal_on(blob, stream), EPERM, "");
	assert_refused(sluice_blob_seal(blob), EPERM, "");
	assert_refused(sluice_blob_wait_sealed(blob, 30), EINPROGRESS, "");
	/* Its handle is given up, and it is sealed all the same. */
	assert_ok(sluice_blob_release(large));
	assert_int_equal(sluice_blob_exists(d->store, "later"), 0);
	assert_int_equal(sluice_blob_exists(d->store, "large"), 0);
	gpu_let_go(&hold);
	assert_ok(sluice_blob_wait_sealed(blob, 20000));
	assert_ok(sluice_blob_wait_sealed(blob, 0));
	assert_null(sluice_blob_mutable_data(blob));
	assert_ok(sluice_blob_get(d->store, "large", 20000, &read));
	assert_ok(sluice_blob_release(read));
	assert_int_equal(sluice_blob_exists(d->store, "later"), 1);
	assert_let_go(blob, d->store, "later");
	assert_ok(sluice_blob_delete(d->store, "large"));
	assert_ok(sluice_stream_free(stream));
	assert_idle(d->store);
}

DAEMON_TEST(closing_the_store_waits_for_seals)
{
	sluice_stream stream = new_stream();
	sluice_store *other = daemon_connect(d);
	sluice_blob *blob;

	assert_ok(sluice_blob_create(other, "x", 1000, place(), NULL, &blob));
	assert_int_equal(gpu_spin(HERE, stream, 50000000), 0);
	assert_ok(sluice_blob_seal_on(blob, stream));
	assert_ok(sluice_blob_release(blob));
	assert_ok(sluice_store_close(other));
	assert_int_equal(sluice_blob_exists(d->store, "x"), 1);
	assert_ok(sluice_blob_delete(d->store, "x"));
	assert_ok(sluice_stream_free(stream));
	assert_idle(d->store);
}

DAEMON_TEST(a_name_that_was_taken_meanwhile_is_told)
{
	sluice_stream stream = new_stream();
	sluice_blob *blob, *first;

	assert_ok(sluice_blob_create(d->store, "x", 1000, place(), NULL, &blob));
	first = put(d->store, "x", 10, 0);
	assert_ok(sluice_blob_seal_on(blob, stream));
	assert_refused(sluice_blob_wait_sealed(blob, 20000), EEXIST, "x");
	assert_blob(first, "x", 10);
	/* It is as it was: it can be sealed once the name is free. */
	assert_let_go(first, d->store, "x");
	assert_non_null(sluice_blob_mutable_data(blob));
	assert_ok(sluice_blob_seal_on(blob, stream));
	assert_ok(sluice_blob_wait_sealed(blob, 20000));
	assert_let_go(blob, d->store, "x");
	assert_ok(sluice_stream_free(stream));
	assert_idle(d->store);
}

DAEMON_TEST(seal_covers_all_places_of_a_blob)
{
	int places[] = {-1, gpu_device(0), gpu_device(1)};
	static const char *const names[] = {"host", "first", "second"};
	struct sluice_blob_request requests[3];
	struct sluice_blob_info info = {.size = sizeof(info)};
	sluice_stream stream = new_stream();
	sluice_blob *made[3], *read[3], *taken;

	for (int i = 0; i < 3; i++)
		requests[i] = (struct sluice_blob_request){names[i], 100000, places[i], NULL};
	/* Not one of them, if one cannot be. */
	assert_ok(sluice_blob_create_many(d->store, requests, 3, made));
	taken = put(d->store, "second", 10, 0);
	assert_refused(sluice_blob_seal_many(made, 3), EEXIST, "second");
	assert_int_equal(sluice_blob_exists(d->store, "host"), 0);
	assert_int_equal(sluice_blob_exists(d->store, "first"), 0);
	assert_let_go(taken, d->store, "second");
	for (int i = 0; i < 3; i++)
		set_bytes(made[i], 40 + i, 100000);
	assert_ok(sluice_blob_seal_many_on(made, 3, stream));
	assert_ok(sluice_blob_wait_sealed(made[0], 20000));
	assert_ok(sluice_blob_get_many(d->store, names, 3, 0, read));
	for (int i = 0; i < 3; i++) {
		assert_int_equal(sluice_blob_device(read[i]), places[i]);
		assert_int_equal(byte_at(read[i], 99999), 40 + i);
		assert_ok(sluice_blob_stat(d->store, names[i], &info));
		assert_int_equal(info.device, places[i]);
		assert_int_equal(info.process, getpid());
	}
	assert_ok(sluice_blob_release_many(made, 3));
	assert_ok(sluice_blob_release_many(read, 3));
	for (int i = 0; i < 3; i++)
		assert_ok(sluice_blob_delete(d->store, names[i]));
	assert_ok(sluice_stream_free(stream));
	assert_idle(d->store);
}

DAEMON_TEST(a_place_that_is_not_there_is_refused)
{
	sluice_blob *blob = put(d->store, "x", 100, 0), *other;
	char bytes[100];
	void *memory;

	assert_refused(sluice_blob_create(d->store, "y", 1, 99, NULL, &other), ENOTSUP, "");
	assert_refused(sluice_blob_create(d->store, "y", 1, -2, NULL, &other), ENOTSUP, "");
	assert_refused(sluice_blob_get_on(d->store, "x", 99, 0, &other), ENOTSUP, "");
	assert_refused(sluice_blob_publish(d->store, "y", bytes, 100, NULL, &other), EINVAL, "");
	assert_ok(sluice_device_alloc(place(), 100, &memory));
	assert_refused(sluice_blob_publish(d->store, "x", memory, 100, NULL, &other), EEXIST, "x");
	assert_ok(sluice_device_free(memory));
	assert_let_go(blob, d->store, "x");
	assert_idle(d->store);
}

/* --------------------------------------------------------------------------------------- memory */

DAEMON_TEST(little_ones_share_a_slab)
{
	sluice_blob *blobs[64], *alone;
	char name[20];

	for (unsigned i = 0; i < 64; i++)
		blobs[i] = put(d->store, named("s%u", i), 1 + i * 500, 0);
	/* One more, for leases in advance. */
	assert_in_range(account_of(d->store).memory_bytes, 2 * MIB, 4 * MIB);
	alone = put(d->store, "alone", 1, SLUICE_BLOB_ALONE);
	assert_in_range(account_of(d->store).memory_bytes, 4 * MIB, 6 * MIB);
	for (unsigned i = 0; i < 64; i++) {
		snprintf(name, sizeof(name), "s%u", i);
		assert_blob(blobs[i], name, 1 + i * 500);
		assert_let_go(blobs[i], d->store, name);
	}
	assert_let_go(alone, d->store, "alone");
	assert_idle(d->store);
	reopen(d);
	assert_memory_is(d->store, place(), 0);
}

DAEMON_TEST(memory_is_rounded_up_and_comes_back)
{
	static const size_t sizes[] = {MIB + 1, 2 * MIB, 2 * MIB + 1, 9 * MIB};
	struct sluice_blob_info info = {.size = sizeof(info)};
	sluice_blob *blob;

	for (size_t i = 0; i < COUNT_OF(sizes); i++) {
		uint64_t expected = (sizes[i] + 2 * MIB - 1) / (2 * MIB) * (2 * MIB);

		blob = put(d->store, "x", sizes[i], 0);
		assert_int_equal(account_of(d->store).memory_bytes, expected);
		assert_ok(sluice_blob_stat(d->store, "x", &info));
		assert_int_equal(info.memory, expected);
		assert_let_go(blob, d->store, "x");
		assert_memory_is(d->store, place(), 0);
	}
	/* An aborted one, too. */
	assert_ok(sluice_blob_create(d->store, "x", 9 * MIB, place(), NULL, &blob));
	assert_ok(sluice_blob_release(blob));
	assert_memory_is(d->store, place(), 0);
}

/* Has it mapped and does nothing; lets go of it if it is told to. */
static int sleeper(const struct daemon *d, const char *argument)
{
	sluice_store *store;
	sluice_blob *blob;

	place_on(HERE);
	if (sluice_store_open(d->path, NULL, &store) || sluice_blob_get(store, "x", 20000, &blob) ||
	    !blob_is(blob, "x", 3 * MIB))
		return 1;
	if (!strcmp(argument, "idle") && sluice_blob_release(blob))
		return 2;
	if (sluice_blob_release(NULL) || sluice_blob_exists(store, "x") != 1)
		return 3;
	printf("ready\n");
	fflush(stdout);
	for (;;)
		pause();
}

/* A sleeper whose output is read until it is ready. */
static pid_t start_sleeper(const struct daemon *d, const char *how)
{
	int ends[2], saved = dup(STDOUT_FILENO);
	char text[16];
	pid_t pid;

	assert_int_equal(pipe(ends), 0);
	dup2(ends[1], STDOUT_FILENO);
	pid = child_start("sleeper", d, how);
	dup2(saved, STDOUT_FILENO);
	close(saved);
	close(ends[1]);
	if (read(ends[0], text, sizeof(text)) <= 0)
		fail_msg("the other client ended with %d", child_status(pid));
	close(ends[0]);
	return pid;
}

static void end_sleeper(pid_t pid)
{
	kill(pid, SIGKILL);
	assert_true(WIFSIGNALED(child_status(pid)));
}

DAEMON_TEST(memory_leaves_though_those_who_have_it_mapped_sleep)
{
	sluice_blob *blob = put(d->store, "x", 3 * MIB, 0);
	pid_t one = start_sleeper(d, "idle"), other = start_sleeper(d, "idle");

	assert_ok(sluice_blob_release(blob));
	assert_int_equal(account_of(d->store).memory_bytes, 4 * MIB);
	assert_ok(sluice_blob_delete(d->store, "x"));
	assert_memory_is(d->store, place(), 0);
	end_sleeper(one);
	end_sleeper(other);
	assert_idle(d->store);
}

DAEMON_TEST(memory_that_is_held_counts_until_its_holder_is_gone)
{
	sluice_blob *blob = put(d->store, "x", 3 * MIB, 0), *more;
	pid_t holder = start_sleeper(d, "holding");
	double until = seconds_now() + 20;
	char number[30];

	assert_let_go(blob, d->store, "x");
	/* Who has it is named when memory is short: once this process has unmapped it, that is the other one. */
	snprintf(number, sizeof(number), "process %d", (int)holder);
	do
		assert_int_equal(try_put(d->store, "y", 63 * MIB, 0, &more), -ENOSPC);
	while (!strstr(sluice_last_message(), number) && seconds_now() < until);
	assert_non_null(strstr(sluice_last_message(), number));
	assert_int_equal(account_of(d->store).memory_bytes, 4 * MIB);
	end_sleeper(holder);
	assert_memory_is(d->store, place(), 0);
	blob = put(d->store, "y", 63 * MIB, 0);
	assert_blob(blob, "y", 63 * MIB);
	assert_let_go(blob, d->store, "y");
	assert_idle(d->store);
}

DAEMON_TEST(a_new_server_learns_who_has_memory_mapped)
{
	sluice_blob *blob = put(d->store, "x", 3 * MIB, 0);
	pid_t sleeping = start_sleeper(d, "idle"), server = daemon_server(d, 0);

	assert_ok(sluice_blob_release(blob));
	kill(server, SIGKILL);
	daemon_server(d, server);
	assert_there(d->store, "x", 3 * MIB);
	assert_int_equal(account_of(d->store).memory_bytes, 4 * MIB);
	assert_ok(sluice_blob_delete(d->store, "x"));
	assert_memory_is(d->store, place(), 0);
	end_sleeper(sleeping);
	assert_idle_but(d->store, 1);
}

int main(int argc, char **argv)
{
	static const char *const options[] = {"--memory", "64M", NULL};
	static const struct child_role roles[] = {{"sleeper", sleeper}, {NULL, NULL}};

	child_run(argc, argv, roles);
	row_start(1, argv);
	place_on(HERE);
	daemon_options = options;
	return RUN_TESTS(NULL, NULL);
}
