/* SPDX-License-Identifier: Apache-2.0 */
/* The server killed at each of its steps, under a client that is at work: SLUICED is the daemon with steps.c. */
#include <unistd.h>

#include "lib/kill_matrix.h"

/* Two at once: both are there afterwards, or none is. */
static void seal_two(sluice_store *store)
{
	struct sluice_blob_request requests[2] = {{"two/1", 3000, place(), NULL},
	                                          {"two/2", 90000, place(), NULL}};
	static const char *const names[] = {"two/1", "two/2"};
	sluice_blob *blobs[2];
	int rc;

	do {
		assert_ok(sluice_blob_create_many(store, requests, 2, blobs));
		set_bytes(blobs[0], 1, 3000);
		set_bytes(blobs[1], 2, 90000);
		rc = sluice_blob_seal_many(blobs, 2);
		assert_ok(sluice_blob_release_many(blobs, 2));
		assert_int_equal(sluice_blob_exists(store, "two/1"), rc == 0);
		assert_int_equal(sluice_blob_exists(store, "two/2"), rc == 0);
		assert_true(rc == 0 || rc == -ECONNRESET);
	} while (rc);
	assert_ok(sluice_blob_get_many(store, names, 2, 0, blobs));
	assert_int_equal(byte_at(blobs[0], 2999), 1);
	assert_int_equal(byte_at(blobs[1], 89999), 2);
	assert_ok(sluice_blob_release_many(blobs, 2));
}

/* The one is there, or the other, and who has the old one keeps it. */
static void replace(sluice_store *store)
{
	sluice_blob *old = put_at_last(store, "over", 5000, 0), *made;
	int rc;

	do {
		rc = try_put(store, "over", 70000, SLUICE_BLOB_REPLACE, &made);
		assert_true(rc == 0 || rc == -ECONNRESET);
		assert_there(store, "over", rc ? 5000 : 70000);
		assert_blob(old, "over", 5000);
	} while (rc);
	assert_ok(sluice_blob_release(made));
	assert_let_go(old, store, "over");
}

/* The same of the blob with an id: a second seal that replaces it comes late, whatever the servers have done. */
static void exchange(sluice_store *store)
{
	struct sluice_blob_options o = SLUICE_BLOB_OPTIONS_INIT;
	sluice_blob *old = put_at_last(store, "over", 5000, 0), *made = NULL;
	int rc;

	o.replaces = sluice_blob_id(old);
	do {
		sluice_blob_release(made);
		assert_ok(sluice_blob_create(store, "over", 70000, place(), &o, &made));
		set_bytes(made, 7, 70000);
		rc = sluice_blob_seal(made);
		assert_true(rc == 0 || rc == -ECONNRESET);
	} while (rc);
	assert_ok(sluice_blob_release(old));
	do {
		assert_ok(sluice_blob_create(store, "over", 10, place(), &o, &old));
		rc = sluice_blob_seal(old);
		assert_true(rc == -ESTALE || rc == -ECONNRESET);
		assert_ok(sluice_blob_release(old));
	} while (rc == -ECONNRESET);
	assert_int_equal(sluice_last_rival(), sluice_blob_id(made));
	old = got(store, "over");
	assert_int_equal(byte_at(old, 69999), 7);
	assert_ok(sluice_blob_release(old));
	assert_let_go(made, store, "over");
}

static void live(struct daemon *d)
{
	const struct {
		const char *name;
		size_t n;
		unsigned flags;
	} blobs[] = {{"small", 100, 0},    {"more", 200, SLUICE_BLOB_RESERVE},
	             {"large", 300000, 0}, {"reserved", 300001, SLUICE_BLOB_RESERVE},
	             {"common", 5000, 0},  {"alone", 10, SLUICE_BLOB_ALONE}};
	sluice_blob *made[COUNT_OF(blobs)], *read;

	for (size_t i = 0; i < COUNT_OF(blobs); i++)
		made[i] = put_at_last(d->store, blobs[i].name, blobs[i].n, blobs[i].flags);
	seal_two(d->store);
	replace(d->store);
	exchange(d->store);
	for (size_t i = 0; i < COUNT_OF(blobs); i++) {
		assert_blob(made[i], blobs[i].name, blobs[i].n);
		read = got(d->store, blobs[i].name);
		assert_blob(read, blobs[i].name, blobs[i].n);
		assert_ok(sluice_blob_delete(d->store, blobs[i].name));
		assert_blob(read, blobs[i].name, blobs[i].n);
		assert_ok(sluice_blob_release(made[i]));
		assert_ok(sluice_blob_release(read));
	}
	assert_ok(sluice_blob_delete(d->store, "two/1"));
	assert_ok(sluice_blob_delete(d->store, "two/2"));
	/* A client that a dead server had let in, and that never heard of it, counts as long as its process
	 * lives: nobody else can know that it is not one that sleeps. */
	assert_idle_but(d->store, 1);
}

TEST(steps_loses_nothing_wherever_the_server_dies)
{
	static const char *const steps[] = {
		"server: welcome",  "server: region in the descriptor table",
		"server: created",  "server: entered",
		"server: prepared", "server: sealed",
		"server: memory",   "server: delete is noted",
		"server: deleted",  NULL};

	assert_true(kill_matrix_run(&(struct kill_matrix){steps, 12, .live = live}) >= 30);
}

/* One holder after the other; with the last one it goes. */
static void hold_and_release(struct daemon *d)
{
	sluice_blob *made, *read;

	for (int i = 0; i < 6; i++) {
		size_t n = i % 2 ? 300000 : 100;
		double until = seconds_now() + 20;

		made = put_at_last(d->store, "t", n, SLUICE_BLOB_TRANSIENT);
		read = got(d->store, "t");
		assert_ok(sluice_blob_release(i % 3 ? made : read));
		assert_int_equal(sluice_blob_exists(d->store, "t"), 1);
		assert_blob(i % 3 ? read : made, "t", n);
		assert_ok(sluice_blob_release(i % 3 ? read : made));
		while (sluice_blob_exists(d->store, "t")) {
			assert_true(seconds_now() < until);
			sleep_ms(1);
		}
	}
	assert_idle_but(d->store, 1);
}

TEST(unheld_blob_goes_wherever_the_server_dies)
{
	static const char *const steps[] = {"server: entered",
	                                    "server: sealed",
	                                    "server: unheld are withdrawn",
	                                    "server: nobody holds them",
	                                    "server: unheld are deleted",
	                                    NULL};

	assert_int_equal(kill_matrix_run(&(struct kill_matrix){steps, 4, .live = hold_and_release}),
	                 20);
}

int main(int argc, char **argv)
{
	static const char *const options[] = {"--memory", "64M", NULL};

	row_start(1, argv);
	(void)argc;
	kill_matrix_begin("store-step");
	daemon_options = options;
	return RUN_TESTS(NULL, NULL);
}
