/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Another daemon takes the place of one that has ended, supervisor and all. It counts from the start again: its regions, blobs
 * and tickets have numbers that its clients know from the one before, and nothing of that may be taken for its own.
 */
#include "store/device_common.h"

enum { BLOBS = 20, N = 3000 };

/* On the host, and in a region of its own or of many; and on a device. */
static const struct {
	int device;
	size_t bytes;
} places[] = {{-1, N}, {-1, 3 * MIB}, {0, N}, {0, 3 * MIB}};

/* A client that does not call does not know of it; nor does one for some milliseconds after an answer. */
static void renew(struct daemon *d)
{
	daemon_renew(d);
	assert_int_equal(sluice_blob_exists(d->store, "nothing"), 0);
}

static void make_many(sluice_store *store, int device, size_t n, sluice_blob *v[BLOBS])
{
	for (int i = 0; i < BLOBS; i++)
		assert_ok(create_on(store, named("new/%d", i), n, device, 0, &v[i]));
}

static void seal_many(sluice_store *store, size_t n, sluice_blob *v[BLOBS])
{
	char name[20];

	for (int i = 0; i < BLOBS; i++) {
		snprintf(name, sizeof(name), "new/%d", i);
		assert_ok(sluice_blob_seal(v[i]));
		assert_true(blob_is(v[i], name, n));
		assert_ok(sluice_blob_release(v[i]));
		v[i] = got(store, name);
		assert_true(blob_is(v[i], name, n));
		assert_let_go(v[i], store, name);
	}
}

DAEMON_TEST(leases_of_an_earlier_daemon_are_lost)
{
	for (size_t i = 0; i < COUNT_OF(places); i++) {
		sluice_blob *old[3], *new[BLOBS];
		size_t n = places[i].bytes;

		for (int j = 0; j < 3; j++)
			assert_ok(create_on(d->store, "old", n, places[i].device, 0, &old[j]));
		renew(d);
		make_many(d->store, places[i].device, n, new);
		assert_refused(sluice_blob_seal(old[0]), ECONNRESET, "replaced");
		assert_int_equal(sluice_blob_exists(d->store, "old"), 0);
		/* Nor does what is given up take along what is not its own. */
		assert_ok(sluice_blob_release(old[0]));
		assert_ok(sluice_blob_release(old[1]));
		seal_many(d->store, n, new);
		assert_refused(sluice_blob_seal_many(&old[2], 1), ECONNRESET, "");
		assert_ok(sluice_blob_release(old[2]));
	}
	assert_idle(d->store);
}

/* Whether it was sealed is asked by its place; at which the new daemon has another one. */
DAEMON_TEST(a_seal_is_not_taken_for_that_of_another_daemon)
{
	for (size_t i = 0; i < COUNT_OF(places); i++) {
		sluice_blob *old, *new[BLOBS];
		size_t n = places[i].bytes;

		assert_ok(create_on(d->store, "old", n, places[i].device, 0, &old));
		renew(d);
		make_many(d->store, places[i].device, n, new);
		for (int j = 0; j < BLOBS; j++)
			assert_ok(sluice_blob_seal(new[j]));
		assert_refused(sluice_blob_seal(old), ECONNRESET, "replaced");
		assert_ok(sluice_blob_release(old));
		for (int j = 0; j < BLOBS; j++)
			assert_let_go(new[j], d->store, named("new/%d", j));
	}
	assert_idle(d->store);
}

DAEMON_TEST(got_blob_keeps_its_bytes)
{
	for (size_t i = 0; i < COUNT_OF(places); i++) {
		sluice_blob *old, *none, *new[BLOBS];
		size_t n = places[i].bytes;

		assert_ok(sluice_blob_release(put_on(d->store, "old", n, places[i].device, 0)));
		old = got(d->store, "old");
		renew(d);
		make_many(d->store, places[i].device, n, new);
		assert_refused(sluice_blob_get(d->store, "old", 0, &none), ENOENT, "");
		seal_many(d->store, n, new);
		assert_true(blob_is(old, "old", n));
		assert_ok(sluice_blob_release(old));
	}
	assert_idle(d->store);
}

DAEMON_MAIN("512M")
