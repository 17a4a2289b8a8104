/* SPDX-License-Identifier: Apache-2.0 */
/* Owners and their parts, with the daemon as it is; parts_death_test.c kills it. */
#include <pthread.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/parts.h"

static char folder[200];

static struct sluice_blob_info stat_of(sluice_store *store, const char *name)
{
	struct sluice_blob_info info = {.size = sizeof(info)};

	assert_ok(sluice_blob_stat(store, name, &info));
	return info;
}

static uint64_t bytes_of(uint64_t value)
{
	uint64_t bytes = sizeof(value);

	for (unsigned i = 0; i < parts_of(value); i++)
		bytes += part_bytes(value, i);
	return bytes;
}

static unsigned listed(sluice_store *store)
{
	struct sluice_blob_info info[64];
	uint64_t cursor = 0;
	unsigned count = 0;
	int n;

	info[0].size = sizeof(info[0]);
	while ((n = sluice_blob_list(store, "", &cursor, info, COUNT_OF(info))) > 0)
		count += (unsigned)n;
	assert_int_equal(n, 0);
	return count;
}

static void assert_empty(struct daemon *d)
{
	assert_idle(d->store);
	if (ON_DEVICE)
		assert_memory_is(d->store, place(), 0);
}

DAEMON_TEST(an_owner_is_one_blob_with_all_its_parts)
{
	struct sluice_watch_event event = {.size = sizeof(event)};
	sluice_store *other = daemon_connect(d);
	sluice_watch *watch;

	assert_ok(sluice_watch_open(other, "", &watch));
	for (uint64_t value = 1; value < 20; value++) {
		sluice_blob *made = NULL, *read, *part, *again;
		struct sluice_blob_info info;

		assert_ok(parts_put(d->store, "m", value, 0, &made));
		/* Nothing is told of parts. */
		for (int kind = SLUICE_WATCH_CREATED; kind <= SLUICE_WATCH_SEALED; kind++) {
			assert_ok(sluice_watch_next(watch, 20000, &event));
			assert_int_equal(event.kind, kind);
			assert_int_equal(event.bytes, bytes_of(value));
		}
		assert_int_equal(parts_value(made), value);
		read = got(other, "m");
		assert_int_equal(parts_value(read), value);
		assert_ok(sluice_blob_part(read, 0, &part));
		assert_ok(sluice_blob_part(read, 0, &again));
		assert_ptr_equal(part, again);
		info = stat_of(other, "m");
		assert_int_equal(info.parts, parts_of(value));
		assert_int_equal(info.bytes, bytes_of(value));
		assert_int_equal(info.holders, 2);
		assert_int_equal(info.device, place());
		assert_int_equal(listed(other), 1);
		assert_ok(sluice_blob_delete(other, "m"));
		assert_ok(sluice_watch_next(watch, 20000, &event));
		assert_int_equal(event.kind, SLUICE_WATCH_DELETED);
		assert_int_equal(event.id, info.id);
		assert_ok(sluice_blob_release(made));
		/* Who holds the owner has all of it. */
		assert_int_equal(parts_value(read), value);
		assert_ok(sluice_blob_release(read));
		assert_idle_but(d->store, 2);
	}
	sluice_watch_free(watch);
	assert_ok(sluice_store_close(other));
	assert_empty(d);
}

struct mapper {
	sluice_blob *owner, *parts[PARTS_MOST];
};

static void *map_parts(void *argument)
{
	struct mapper *m = argument;

	for (unsigned i = 0; i < sluice_blob_parts(m->owner); i++)
		if (sluice_blob_part(m->owner, i, &m->parts[i]))
			m->parts[i] = NULL;
	return NULL;
}

DAEMON_TEST(threads_map_parts_at_once)
{
	sluice_store *other = daemon_connect(d);

	for (uint64_t value = 1; value < 40; value++) {
		struct mapper mappers[4] = {{NULL}};
		sluice_blob *made, *read;
		pthread_t threads[4];

		assert_ok(parts_put(d->store, "m", value, 0, &made));
		read = got(other, "m");
		for (unsigned i = 0; i < 4; i++) {
			mappers[i].owner = read;
			pthread_create(&threads[i], NULL, map_parts, &mappers[i]);
		}
		for (unsigned i = 0; i < 4; i++)
			pthread_join(threads[i], NULL);
		for (unsigned i = 0; i < 4; i++)
			assert_memory_equal(mappers[i].parts, mappers[0].parts,
			                    sizeof(mappers[0].parts));
		assert_int_equal(parts_value(read), value);
		assert_ok(sluice_blob_release(read));
		assert_let_go(made, d->store, "m");
	}
	assert_ok(sluice_store_close(other));
	assert_empty(d);
}

DAEMON_TEST(no_get_finds_a_part)
{
	sluice_blob *made = NULL, *blob;
	uint64_t id;

	assert_ok(parts_put(d->store, "m", 5, 0, &made));
	id = sluice_blob_id(made);
	/* Ids of parts are those just before the owner's. */
	for (uint64_t at = id - parts_of(5); at < id; at++) {
		assert_refused(sluice_blob_get_id(d->store, at, 0, &blob), ENOENT, "not there");
		assert_refused(sluice_blob_delete_id(d->store, at), ENOENT, "not there");
	}
	assert_ok(sluice_blob_get_id(d->store, id, 0, &blob));
	assert_int_equal(parts_value(blob), 5);
	assert_ok(sluice_blob_release(blob));
	assert_let_go(made, d->store, "m");
	assert_empty(d);
}

DAEMON_TEST(a_name_changes_from_one_to_the_other_at_once)
{
	sluice_blob *made[3], *read;

	assert_ok(parts_put(d->store, "m", 1, 0, &made[0]));
	assert_int_equal(parts_put(d->store, "m", 2, 0, &made[1]), -EEXIST);
	read = got(d->store, "m");
	assert_ok(parts_put(d->store, "m", 2, SLUICE_BLOB_REPLACE, &made[1]));
	assert_parts(d->store, "m", 2);
	assert_int_equal(parts_value(read), 1);
	/* By a blob without parts, and back. */
	made[2] = put_on(d->store, "m", 100, -1, SLUICE_BLOB_REPLACE);
	assert_there(d->store, "m", 100);
	assert_int_equal(parts_value(made[1]), 2);
	assert_ok(sluice_blob_release_many(made, 3));
	assert_ok(parts_put(d->store, "m", 3, SLUICE_BLOB_REPLACE, &made[0]));
	assert_int_equal(parts_value(read), 1);
	assert_ok(sluice_blob_release(read));
	assert_parts(d->store, "m", 3);
	assert_let_go(made[0], d->store, "m");
	assert_empty(d);
}

DAEMON_TEST(reserved_and_transient_owners_are_as_other_blobs)
{
	struct sluice_blob_info info = {.size = sizeof(info)};
	sluice_blob *made, *read;

	assert_ok(parts_make(d->store, "r", 4, SLUICE_BLOB_RESERVE, &made));
	assert_int_equal(parts_put(d->store, "r", 5, 0, &read), -EEXIST);
	assert_ok(sluice_blob_seal(made));
	assert_parts(d->store, "r", 4);
	assert_let_go(made, d->store, "r");
	assert_ok(parts_put(d->store, "t", 6, SLUICE_BLOB_TRANSIENT, &made));
	read = got(d->store, "t");
	assert_ok(sluice_blob_release(made));
	assert_int_equal(parts_value(read), 6);
	assert_ok(sluice_blob_release(read));
	assert_empty(d);
	assert_int_equal(sluice_blob_stat(d->store, "t", &info), -ENOENT);
	/* What was not sealed leaves nothing. */
	assert_ok(parts_make(d->store, "u", 7, 0, &made));
	assert_ok(sluice_blob_release(made));
	assert_empty(d);
}

DAEMON_TEST(what_cannot_be_a_part_is_refused)
{
	struct sluice_blob_options alone = SLUICE_BLOB_OPTIONS_INIT;
	sluice_blob *owner, *part, *other, *both[2];

	alone.flags = SLUICE_BLOB_ALONE;
	assert_ok(sluice_blob_create(d->store, "m", 10, -1, &alone, &owner));
	assert_ok(sluice_blob_create(d->store, NULL, 10, -1, &alone, &part));
	assert_ok(sluice_blob_create(d->store, NULL, 10, -1, NULL, &other));
	assert_refused(sluice_blob_adopt(owner, &other, 1), EINVAL, "ALONE");
	assert_refused(sluice_blob_adopt(other, &part, 1), EINVAL, "ALONE");
	assert_refused(sluice_blob_adopt(owner, &owner, 1), EINVAL, "part 0");
	assert_refused(sluice_blob_adopt(owner, &part, 0), EINVAL, "0 parts");
	assert_refused(sluice_blob_adopt(owner, &part, 64), EINVAL, "64 parts");
	both[0] = both[1] = part;
	assert_refused(sluice_blob_adopt(owner, both, 2), EINVAL, "twice");
	assert_ok(sluice_blob_adopt(owner, &part, 1));
	assert_refused(sluice_blob_adopt(owner, &other, 1), EINVAL, "has parts");
	assert_refused(sluice_blob_adopt(other, &part, 1), EINVAL, "ALONE");
	assert_refused(sluice_blob_seal(part), EPERM, "belongs to its owner");
	assert_refused(sluice_blob_release(part), EPERM, "belongs to its owner");
	both[0] = owner;
	both[1] = other;
	assert_refused(sluice_blob_seal_many(both, 2), EINVAL, "parts");
	set_bytes(owner, 1, 10);
	assert_ok(sluice_blob_seal(owner));
	assert_refused(sluice_blob_part(owner, 1, &part), ENOENT, "1 parts");
	assert_ok(sluice_blob_release(other));
	assert_let_go(owner, d->store, "m");
	assert_empty(d);
}

DAEMON_TEST(a_cache_with_parts_makes_room)
{
	sluice_blob *made;

	/* Each more than a megabyte on average, in 64: older ones have to go. */
	for (uint64_t value = 1; value < 150; value++) {
		assert_ok(parts_put(d->store, named("c/%llu", (unsigned long long)value), value,
		                    SLUICE_BLOB_CACHE, &made));
		assert_ok(sluice_blob_release(made));
		assert_parts(d->store, named("c/%llu", (unsigned long long)value), value);
	}
	assert_true(stats_of(d->store).dropped > 0);
	for (uint64_t value = 1; value < 150; value++)
		sluice_blob_delete(d->store, named("c/%llu", (unsigned long long)value));
	assert_empty(d);
}

TEST(parts_outlive_servers)
{
	sluice_blob *kept, *made;
	struct daemon *d;

	daemon_setup((void **)&d);
	assert_ok(parts_put(d->store, "kept", 8, 0, &kept));
	for (uint64_t value = 20; value < 26; value++) {
		assert_ok(parts_put(d->store, "m", value, SLUICE_BLOB_REPLACE, &made));
		assert_ok(sluice_blob_release(made));
		if (value % 2)
			assert_ok(sluice_store_upgrade(d->store));
		else
			daemon_replace_server(d);
		assert_parts(d->store, "m", value);
		assert_parts(d->store, "kept", 8);
		assert_int_equal(parts_value(kept), 8);
		/* Made before a server died, and not sealed. */
		assert_ok(parts_make(d->store, "lost", value, 0, &made));
		daemon_replace_server(d);
		assert_int_equal(sluice_blob_seal(made), -ECONNRESET);
		assert_ok(sluice_blob_release(made));
	}
	assert_ok(sluice_blob_delete(d->store, "kept"));
	daemon_replace_server(d);
	assert_int_equal(parts_value(kept), 8);
	assert_ok(sluice_blob_release(kept));
	assert_ok(sluice_blob_delete(d->store, "m"));
	daemon_end(d, daemon_supervisor(d, 0));
}

static int spilling_setup(void **state)
{
	static const char *const options[] = {"--memory", "64M", "--spill", folder, NULL};
	const char *const *usual = daemon_options;
	int rc;

	daemon_options = options;
	rc = daemon_setup(state);
	daemon_options = usual;
	return rc;
}

/* Twice what there is memory for. */
DAEMON_TEST_WITH(owners_leave_memory_before_their_parts, spilling_setup, daemon_teardown)
{
	enum { COUNT = 120 };
	struct sluice_store_counts counts;
	sluice_blob *made, *held = NULL;

	/* What is on a device is not spilled, and does not fit there. */
	if (ON_DEVICE)
		skip();
	assert_ok(parts_put(d->store, "held", 9, 0, &held));
	for (uint64_t value = 1; value < COUNT; value++) {
		assert_ok(parts_put(d->store, named("s/%u", (unsigned)value), value, 0, &made));
		assert_ok(sluice_blob_release(made));
	}
	assert_true(stats_of(d->store).spills > 0);
	for (unsigned i = 0; i < 2 * COUNT; i++) {
		unsigned value = 1 + i * 29 % (COUNT - 1);

		assert_parts(d->store, named("s/%u", value), value);
		assert_int_equal(parts_value(held), 9);
	}
	counts = stats_of(d->store);
	assert_true(counts.returns > 0 && counts.memory_bytes <= counts.memory_limit);
	for (unsigned value = 1; value < COUNT; value++)
		assert_ok(sluice_blob_delete(d->store, named("s/%u", value)));
	assert_let_go(held, d->store, "held");
	assert_empty(d);
	assert_int_equal(stats_of(d->store).spilled, 0);
}

/* A get that finds no room for all parts fails, keeps nothing, and may be repeated. */
DAEMON_TEST_WITH(a_spilled_owner_without_room_is_refused, spilling_setup, daemon_teardown)
{
	enum { BYTES = 5 << 19, PARTS = 16 };
	struct sluice_blob_options alone = SLUICE_BLOB_OPTIONS_INIT;
	struct sluice_blob_request requests[PARTS + 1];
	sluice_blob *blobs[PARTS + 1], *part, *held, *read, *next;
	double begun;

	if (ON_DEVICE)
		skip();
	alone.flags = SLUICE_BLOB_ALONE;
	for (unsigned i = 0; i <= PARTS; i++)
		requests[i] =
			(struct sluice_blob_request){i == PARTS ? "m" : NULL, BYTES, -1, &alone};
	requests[PARTS].bytes = 100;
	assert_ok(sluice_blob_create_many(d->store, requests, PARTS + 1, blobs));
	for (unsigned i = 0; i < PARTS; i++)
		set_bytes(blobs[i], (int)i + 1, BYTES);
	assert_ok(sluice_blob_adopt(blobs[PARTS], blobs, PARTS));
	assert_ok(sluice_blob_seal(blobs[PARTS]));
	assert_ok(sluice_blob_release(blobs[PARTS]));
	/* It leaves for what is held, beside which a part or two find room. */
	held = put(d->store, "held", 40 << 20, 0);
	assert_int_equal(stat_of(d->store, "m").state, SLUICE_BLOB_IS_SPILLED);
	begun = seconds_now();
	assert_refused(sluice_blob_get(d->store, "m", 0, &read), ENOSPC, "'m' is spilled");
	assert_true(seconds_now() - begun < 30);
	assert_int_equal(stats_of(d->store).waiting, 0);
	/* A create does not wait for the parts that were to come. */
	next = put(d->store, "next", 20 << 20, 0);
	assert_true(seconds_now() - begun < 10);
	assert_let_go(next, d->store, "next");
	assert_let_go(held, d->store, "held");
	for (unsigned round = 0; round < 2; round++) {
		read = got(d->store, "m");
		for (unsigned i = 0; i < PARTS; i++) {
			assert_ok(sluice_blob_part(read, i, &part));
			assert_int_equal(byte_at(part, 0), i + 1);
			assert_int_equal(byte_at(part, BYTES - 1), i + 1);
		}
		assert_ok(sluice_blob_release(read));
	}
	assert_ok(sluice_blob_delete(d->store, "m"));
	assert_empty(d);
}

int main(int argc, char **argv)
{
	static const char *const options[] = {"--memory", "64M", NULL};
	int failed;

	(void)argc;
	row_start(1, argv);
	snprintf(folder, sizeof(folder), "%s/parts-%d", getenv("SLUICE_TEST_DIR"), (int)getpid());
	if (mkdir(folder, 0700))
		return 1;
	daemon_options = options;
	failed = RUN_TESTS(NULL, NULL);
	rmdir(folder);
	return failed;
}
