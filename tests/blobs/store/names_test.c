/* SPDX-License-Identifier: Apache-2.0 */
/* Names of blobs: taken, replaced, and none at all. */
#include <pthread.h>
#include <stdatomic.h>

#include "lib/daemon.h"

DAEMON_TEST(names_are_taken_once)
{
	sluice_store *other = daemon_connect(d);
	struct sluice_blob_options o = SLUICE_BLOB_OPTIONS_INIT;
	sluice_blob *first, *second, *third;

	first = put(d->store, "name", 100, 0);
	assert_refused(try_put(other, "name", 100, 0, &second), EEXIST, "name");
	o.flags = SLUICE_BLOB_RESERVE;
	assert_refused(sluice_blob_create(other, "name", 5, place(), &o, &second), EEXIST, "name");
	assert_ok(sluice_blob_create(other, "reserved", 5, place(), &o, &second));
	assert_refused(sluice_blob_create(d->store, "reserved", 5, place(), &o, &third), EEXIST,
	               "reserved");
	assert_int_equal(sluice_blob_exists(d->store, "reserved"), 0);
	assert_ok(sluice_blob_release(second));
	/* Aborted: it is free. */
	second = NULL;
	for (int i = 0; i < 1000 && !second; i++)
		if (sluice_blob_create(d->store, "reserved", 5, place(), &o, &second))
			sleep_ms(1);
	assert_non_null(second);
	assert_ok(sluice_blob_release(second));
	assert_let_go(first, other, "name");
	assert_refused(sluice_blob_delete(other, "name"), ENOENT, "name");
	assert_ok(sluice_store_close(other));
	assert_idle(d->store);
}

struct hammer {
	struct daemon *d;
	sluice_store *store;
	_Atomic int stop;
	unsigned gets, changes;
	const char *wrong;
};

/* Gets what is replaced all the time. */
static void *hammer(void *argument)
{
	struct hammer *h = argument;
	size_t last = 0;

	while (!atomic_load(&h->stop) && !h->wrong) {
		sluice_blob *blob;
		size_t n;

		if (sluice_blob_get(h->store, "over", 0, &blob)) {
			h->wrong = "it was not there";
			break;
		}
		n = sluice_blob_size(blob);
		if (n < last)
			h->wrong = "an old one came after a new one";
		else if (!blob_is(blob, "over", n))
			h->wrong = "it is something else";
		h->changes += n != last;
		h->gets++;
		last = n;
		sluice_blob_release(blob);
	}
	return NULL;
}

DAEMON_TEST(a_name_that_is_replaced_is_always_there)
{
	struct hammer h = {.d = d, .store = daemon_connect(d)};
	unsigned rounds = getenv("STRESS") ? 20000 : 2000;
	sluice_blob *first = put(d->store, "over", 1, SLUICE_BLOB_REPLACE), *blob;
	pthread_t thread;

	assert_int_equal(pthread_create(&thread, NULL, hammer, &h), 0);
	for (unsigned i = 2; i <= rounds; i++) {
		/* Small ones first, then such as have memory of their own. */
		blob = put(d->store, "over", i < rounds / 2 ? i : 65536 + i, SLUICE_BLOB_REPLACE);
		assert_ok(sluice_blob_release(blob));
	}
	atomic_store(&h.stop, 1);
	pthread_join(thread, NULL);
	if (h.wrong)
		fail_msg("%s, after %u gets", h.wrong, h.gets);
	print_message("%u gets saw %u blobs\n", h.gets, h.changes);
	/* Who held the old one has it still. */
	assert_blob(first, "over", 1);
	assert_let_go(first, d->store, "over");
	assert_refused(sluice_blob_get(d->store, "over", 0, &blob), ENOENT, "over");
	assert_ok(sluice_store_close(h.store));
	assert_idle(d->store);
}

DAEMON_TEST(irreplaceable_file_is_kept)
{
	struct sluice_blob_options o = SLUICE_BLOB_OPTIONS_INIT;
	sluice_blob *reserved, *blobs[2];

	/* One that is being made. */
	o.flags = SLUICE_BLOB_RESERVE;
	assert_ok(sluice_blob_create(d->store, "x", 10, -1, &o, &reserved));
	assert_int_equal(try_put(d->store, "x", 20, SLUICE_BLOB_REPLACE, &blobs[0]), -EEXIST);
	assert_ok(sluice_blob_release(reserved));
	/* One among others, and with a name that is taken in advance. */
	o.flags = SLUICE_BLOB_REPLACE;
	assert_ok(sluice_blob_create(d->store, "x", 10, -1, &o, &blobs[0]));
	assert_ok(sluice_blob_create(d->store, "y", 10, -1, NULL, &blobs[1]));
	assert_refused(sluice_blob_seal_many(blobs, 2), EINVAL, "replaces");
	assert_ok(sluice_blob_release_many(blobs, 2));
	o.flags |= SLUICE_BLOB_RESERVE;
	assert_refused(sluice_blob_create(d->store, "x", 10, -1, &o, &blobs[0]), EINVAL, "REPLACE");
	assert_idle(d->store);
}

DAEMON_TEST(blobs_without_a_name_are_got_by_id)
{
	sluice_store *other = daemon_connect(d);
	sluice_blob *blob = put(d->store, "", 77, 0), *read;
	uint64_t id = sluice_blob_id(blob);

	assert_ok(sluice_blob_get_id(other, id, 0, &read));
	assert_blob(read, "", 77);
	assert_ok(sluice_blob_release(read));
	assert_ok(sluice_blob_release(blob));
	assert_refused(sluice_blob_get_id(other, id + 1000, 0, &read), ENOENT, "id");
	assert_ok(sluice_blob_delete_id(other, id));
	assert_refused(sluice_blob_get_id(other, id, 0, &read), ENOENT, "id");
	assert_ok(sluice_store_close(other));
	assert_idle(d->store);
}

DAEMON_TEST(named_blobs_are_got_by_id_too)
{
	sluice_blob *blob = put(d->store, "first", 77, 0), *read;
	uint64_t id = sluice_blob_id(blob);

	assert_ok(sluice_blob_release(blob));
	assert_ok(sluice_blob_get_id(d->store, id, 0, &read));
	assert_blob(read, "first", 77);
	assert_let_go(read, d->store, "first");
	/* Another one of that name is another one. */
	blob = put(d->store, "first", 77, 0);
	assert_true(sluice_blob_id(blob) != id);
	assert_refused(sluice_blob_get_id(d->store, id, 0, &read), ENOENT, "id");
	id = sluice_blob_id(blob);
	assert_ok(sluice_blob_release(blob));
	assert_ok(sluice_blob_delete_id(d->store, id));
	assert_idle(d->store);
}

DAEMON_MAIN("512M")
