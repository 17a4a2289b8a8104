/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Seals that replace the blob with an id and no other: alone, by many threads, and as a counter that processes raise
 * while they and the daemon's processes are killed.
 */
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/wait.h>

#include "lib/parts.h"

enum { WORKERS = 4, DIARIES = 400, VALUES = 1 << 20 };

static int make(sluice_store *store, const char *name, uint64_t value, uint64_t replaces,
                sluice_blob **out)
{
	struct sluice_blob_options o = SLUICE_BLOB_OPTIONS_INIT;
	int rc;

	o.replaces = replaces;
	rc = sluice_blob_create(store, name, sizeof(value), -1, &o, out);
	if (!rc)
		memcpy(sluice_blob_mutable_data(*out), &value, sizeof(value));
	return rc;
}

/* The seal of a value that replaces an id; the handle is released. */
static int replace(sluice_store *store, const char *name, uint64_t value, uint64_t replaces,
                   uint64_t *id)
{
	sluice_blob *blob;
	int rc = make(store, name, value, replaces, &blob);

	if (rc)
		return rc;
	rc = sluice_blob_seal(blob);
	*id = sluice_blob_id(blob);
	sluice_blob_release(blob);
	return rc;
}

static int look(sluice_store *store, const char *name, uint64_t *value, uint64_t *id)
{
	sluice_blob *blob;
	int rc = sluice_blob_get(store, name, 0, &blob);

	if (rc)
		return rc;
	memcpy(value, sluice_blob_data(blob), sizeof(*value));
	*id = sluice_blob_id(blob);
	return sluice_blob_release(blob);
}

static void assert_value(sluice_store *store, uint64_t value, uint64_t id)
{
	uint64_t found, found_id;

	assert_ok(look(store, "x", &found, &found_id));
	assert_int_equal(found, value);
	assert_int_equal(found_id, id);
}

DAEMON_TEST(seal_replaces_the_blob_with_that_id_alone)
{
	uint64_t first, second, third;
	sluice_blob *held, *late;

	assert_ok(replace(d->store, "x", 1, 0, &first));
	held = got(d->store, "x");
	assert_ok(make(d->store, "x", 9, first, &late));
	assert_ok(replace(d->store, "x", 2, first, &second));
	assert_value(d->store, 2, second);
	assert_refused(sluice_blob_seal(late), ESTALE, named("%" PRIu64, second));
	assert_int_equal(sluice_last_rival(), second);
	/* Neither of the two has changed. */
	assert_value(d->store, 2, second);
	assert_non_null(sluice_blob_mutable_data(late));
	assert_int_equal(sluice_blob_id(late), 0);
	assert_ok(sluice_blob_release(late));
	assert_ok(replace(d->store, "x", 3, second, &third));
	assert_value(d->store, 3, third);
	assert_int_equal(*(const uint64_t *)sluice_blob_data(held), 1);
	assert_ok(sluice_blob_release(held));
	assert_ok(sluice_blob_delete(d->store, "x"));
	assert_idle(d->store);
}

DAEMON_TEST(without_a_blob_of_that_name_nothing_is_sealed)
{
	struct sluice_blob_options o = SLUICE_BLOB_OPTIONS_INIT;
	sluice_blob *reserved, *late;
	uint64_t first, id;

	assert_ok(replace(d->store, "x", 1, 0, &first));
	assert_ok(make(d->store, "x", 2, first, &late));
	assert_ok(sluice_blob_delete(d->store, "x"));
	assert_refused(sluice_blob_seal(late), ESTALE, "no blob");
	assert_int_equal(sluice_last_rival(), 0);
	assert_int_equal(sluice_blob_exists(d->store, "x"), 0);
	/* Nor while another makes one. */
	o.flags = SLUICE_BLOB_RESERVE;
	assert_ok(sluice_blob_create(d->store, "x", 10, -1, &o, &reserved));
	assert_refused(sluice_blob_seal(late), ESTALE, "no blob");
	assert_int_equal(sluice_last_rival(), 0);
	assert_ok(sluice_blob_release(late));
	assert_ok(sluice_blob_seal(reserved));
	/* The id of a blob by another name, and one that no blob ever had. */
	assert_int_equal(replace(d->store, "y", 3, sluice_blob_id(reserved), &id), -ESTALE);
	assert_int_equal(replace(d->store, "x", 3, UINT64_MAX, &id), -ESTALE);
	assert_int_equal(sluice_last_rival(), sluice_blob_id(reserved));
	assert_let_go(reserved, d->store, "x");
	assert_idle(d->store);
}

DAEMON_TEST(requests_that_contradict_themselves_are_refused)
{
	struct sluice_blob_options o = SLUICE_BLOB_OPTIONS_INIT;
	sluice_blob *two[2], *blob;

	o.replaces = 7;
	assert_refused(sluice_blob_create(d->store, NULL, 8, -1, &o, &blob), EINVAL, "no name");
	o.flags = SLUICE_BLOB_RESERVE;
	assert_refused(sluice_blob_create(d->store, "x", 8, -1, &o, &blob), EINVAL, "RESERVE");
	assert_ok(make(d->store, "x", 1, 7, &two[0]));
	assert_ok(make(d->store, "y", 1, 0, &two[1]));
	assert_refused(sluice_blob_seal_many(two, 2), EINVAL, "replaces");
	/* A program that was built before there was the field. */
	o.flags = 0;
	o.size = offsetof(struct sluice_blob_options, replaces);
	assert_ok(sluice_blob_create(d->store, "x", 8, -1, &o, &blob));
	assert_ok(sluice_blob_seal(blob));
	assert_ok(sluice_blob_release_many(two, 2));
	assert_let_go(blob, d->store, "x");
	assert_idle(d->store);
}

/* An owner is sealed with its parts, or none of them. */
DAEMON_TEST(parts_of_a_seal_that_comes_late_are_not_sealed)
{
	sluice_blob *owners[2], *late;
	uint64_t sealed;

	owners[0] = parts_put_at_last(d->store, "x", 3, 0);
	assert_ok(parts_make(d->store, "x", 4, SLUICE_BLOB_REPLACE, &late));
	assert_ok(sluice_blob_release(late));
	sealed = stats_of(d->store).sealed;
	for (uint64_t value = 5; value < 9; value++) {
		assert_ok(parts_make_over(d->store, "x", value, sluice_blob_id(owners[0]), &late));
		owners[1] = parts_put_at_last(d->store, "x", 4, SLUICE_BLOB_REPLACE);
		assert_refused(sluice_blob_seal(late), ESTALE, "to be replaced");
		assert_int_equal(sluice_last_rival(), sluice_blob_id(owners[1]));
		assert_parts(d->store, "x", 4);
		assert_ok(sluice_blob_release(late));
		assert_ok(sluice_blob_release(owners[0]));
		assert_ok(parts_make_over(d->store, "x", value, sluice_blob_id(owners[1]), &late));
		assert_ok(sluice_blob_seal(late));
		assert_parts(d->store, "x", value);
		assert_ok(sluice_blob_release(owners[1]));
		owners[0] = late;
	}
	assert_true(stats_of(d->store).sealed <= sealed + PARTS_MOST);
	assert_let_go(owners[0], d->store, "x");
	assert_idle(d->store);
}

DAEMON_MAIN("256M")
