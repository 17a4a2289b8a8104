/* SPDX-License-Identifier: Apache-2.0 */
/* When memory, blobs or connections are short. */
#include "store/daemon.h"

static void memory_that_is_short_is_named(void **state)
{
	struct daemon *d = *state;
	sluice_blob *blobs[4], *more;

	blobs[0] = put(d->store, "a", 20 * MIB, 0);
	blobs[1] = put(d->store, "b", 20 * MIB, 0);
	assert_refused(try_put(d->store, "c", 30 * MIB, 0, &more), ENOSPC, "process");
	/* What is deleted and held still counts. */
	assert_ok(sluice_blob_delete(d->store, "a"));
	assert_refused(try_put(d->store, "c", 30 * MIB, 0, &more), ENOSPC,
	               ON_DEVICE ? "user" : "in use");
	assert_blob(blobs[0], "a", 20 * MIB);
	assert_ok(sluice_blob_release(blobs[0]));
	blobs[2] = put(d->store, "c", 30 * MIB, 0);
	assert_blob(blobs[2], "c", 30 * MIB);
	assert_blob(blobs[1], "b", 20 * MIB);
	assert_true(stats_of(d->store).memory_bytes <= 64 * MIB);
	assert_true(account_of(d->store).memory_bytes <= 64 * MIB);
	assert_ok(sluice_blob_release(blobs[1]));
	assert_ok(sluice_blob_release(blobs[2]));
	assert_ok(sluice_blob_delete(d->store, "b"));
	assert_ok(sluice_blob_delete(d->store, "c"));
	assert_idle(d->store);
}

static void memory_of_what_was_deleted_is_used_before_new_one(void **state)
{
	struct daemon *d = *state;
	uint64_t memory = 0;

	for (int i = 0; i < 20; i++) {
		sluice_blob *blobs[2];

		for (int k = 0; k < 2; k++)
			assert_ok(sluice_blob_create(d->store, k ? "b" : "a", 2 * MIB, -1, NULL,
			                             &blobs[k]));
		for (int k = 0; k < 2; k++)
			assert_ok(sluice_blob_seal(blobs[k]));
		for (int k = 0; k < 2; k++)
			assert_ok(sluice_blob_release(blobs[k]));
		if (!memory)
			memory = stats_of(d->store).memory_bytes;
		assert_int_equal(stats_of(d->store).memory_bytes, memory);
		/* The second one comes too soon after the first for the server to look for holders again. */
		assert_ok(sluice_blob_delete(d->store, "a"));
		assert_ok(sluice_blob_delete(d->store, "b"));
	}
	assert_idle(d->store);
}

static void what_a_client_might_need_next_is_not_kept_from_others(void **state)
{
	struct daemon *d = *state;
	sluice_store *other = daemon_connect(d);
	sluice_blob *blob;

	assert_ok(sluice_blob_create(d->store, "aborted", 40 * MIB, place(), NULL, &blob));
	assert_ok(sluice_blob_release(blob));
	for (size_t n = 1; n < 20; n++)
		for (int i = 0; i < 2; i++) {
			assert_ok(sluice_blob_release(put(d->store, "x", n * MIB, 0)));
			assert_ok(sluice_blob_delete(d->store, "x"));
		}
	blob = put(other, "y", 56 * MIB, 0);
	assert_ok(sluice_blob_release(blob));
	assert_ok(sluice_blob_delete(other, "y"));
	assert_ok(sluice_store_close(other));
	assert_idle(d->store);
}

static void caches_go_first_but_not_what_is_held_or_pinned(void **state)
{
	struct daemon *d = *state;
	sluice_blob *held, *blob, *newer;

	held = put(d->store, "held", 10 * MIB, SLUICE_BLOB_CACHE);
	assert_ok(sluice_blob_release(put(d->store, "pinned", 10 * MIB, SLUICE_BLOB_CACHE)));
	assert_ok(sluice_blob_pin(d->store, "pinned", 1));
	assert_ok(sluice_blob_release(put(d->store, "plain", 10 * MIB, 0)));
	assert_ok(sluice_blob_release(put(d->store, "cache", 20 * MIB, SLUICE_BLOB_CACHE)));
	blob = put(d->store, "new", 30 * MIB, 0);
	assert_int_equal(sluice_blob_exists(d->store, "cache"), 0);
	assert_int_equal(sluice_blob_exists(d->store, "held"), 1);
	assert_int_equal(sluice_blob_exists(d->store, "pinned"), 1);
	assert_int_equal(sluice_blob_exists(d->store, "plain"), 1);
	assert_int_equal(stats_of(d->store).dropped, 1);
	assert_blob(held, "held", 10 * MIB);
	assert_refused(try_put(d->store, "newer", 10 * MIB, 0, &newer), ENOSPC,
	               ON_DEVICE ? "user" : "in use");
	assert_ok(sluice_blob_release(blob));
	assert_ok(sluice_blob_release(held));
	blob = put(d->store, "newer", 10 * MIB, 0);
	assert_int_equal(sluice_blob_exists(d->store, "held"), 0);
	assert_ok(sluice_blob_release(blob));
	assert_ok(sluice_blob_delete(d->store, "new"));
	assert_ok(sluice_blob_delete(d->store, "newer"));
	assert_ok(sluice_blob_delete(d->store, "pinned"));
	assert_ok(sluice_blob_delete(d->store, "plain"));
	assert_idle(d->store);
}

static void a_user_has_so_many_blobs(void **state)
{
	struct daemon *d = *state;
	sluice_blob *blob;
	unsigned made = 0;
	char name[20];
	int rc;

	do {
		snprintf(name, sizeof(name), "n%u", made);
		rc = try_put(d->store, name, 10, 0, &blob);
		if (!rc)
			assert_ok(sluice_blob_release(blob));
	} while (!rc && ++made < 1000);
	assert_int_equal(rc, -EDQUOT);
	assert_int_equal(made, 64);
	for (unsigned i = 0; i < made; i++) {
		snprintf(name, sizeof(name), "n%u", i);
		assert_ok(sluice_blob_delete(d->store, name));
	}
	assert_idle(d->store);
	assert_ok(sluice_blob_release(put(d->store, "again", 10, 0)));
	assert_ok(sluice_blob_delete(d->store, "again"));
}

static void a_user_has_so_many_connections(void **state)
{
	struct daemon *d = *state;
	sluice_store *stores[10];
	unsigned count = 0;

	while (count < COUNT_OF(stores) && !sluice_store_open(d->path, NULL, &stores[count]))
		count++;
	/* One of five was there already. */
	assert_int_equal(count, 4);
	assert_refused(sluice_store_open(d->path, NULL, &stores[4]), EAGAIN, "5 connections");
	while (count--)
		assert_ok(sluice_store_close(stores[count]));
	assert_idle(d->store);
	stores[0] = daemon_connect(d);
	assert_ok(sluice_store_close(stores[0]));
}

int main(int argc, char **argv)
{
	static const char *const options[] = {
		"--memory", "64M", "--quota-blobs", "64", "--quota-clients", "5", NULL};
	const struct CMUnitTest tests[] = {
		daemon_test(memory_that_is_short_is_named),
		daemon_test(memory_of_what_was_deleted_is_used_before_new_one),
		daemon_test(what_a_client_might_need_next_is_not_kept_from_others),
		daemon_test(caches_go_first_but_not_what_is_held_or_pinned),
		daemon_test(a_user_has_so_many_blobs),
		daemon_test(a_user_has_so_many_connections),
	};

	row_start(1, argv);
	(void)argc;
	daemon_options = options;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
