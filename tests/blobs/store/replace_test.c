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
#include <time.h>

#include "lib/parts.h"

enum { WORKERS = 4, THREADS = 6, VALUES = 1 << 20 };

/* What all processes know of the counter's values. */
static struct {
	_Atomic bool stop, wrong;
	char text[300];
	_Atomic unsigned ready, sure, lost, late;
	struct {
		_Atomic uint32_t maker,
			perhaps; /* of a seal that said so; seals without an answer */
		_Atomic uint64_t id;
	} values[VALUES];
} * shared;

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

/* ------------------------------------------------------------------------------------------ a counter */

static void wrong(const char *what, uint64_t value, int rc)
{
	if (!atomic_exchange(&shared->wrong, true))
		snprintf(shared->text, sizeof(shared->text), "%s: value %" PRIu64 ": %d: %s", what,
		         value, rc, sluice_last_message());
}

/* A raise by `me` after the value with that id: all others know what became of it. */
static void raise_after(sluice_store *store, uint32_t me, uint64_t before, uint64_t replaces)
{
	uint64_t value = (before & UINT32_MAX) + 1, id = 0;
	uint32_t none = 0;
	int rc;

	/* On a fast machine that is the end. */
	if (value >= VALUES) {
		atomic_store(&shared->stop, true);
		return;
	}
	atomic_fetch_add(&shared->values[value].perhaps, 1);
	rc = replace(store, "x", (uint64_t)me << 32 | value, replaces, &id);
	if (!rc && !atomic_compare_exchange_strong(&shared->values[value].maker, &none, me))
		wrong("two seals have replaced a blob", value, rc);
	if (!rc)
		atomic_store(&shared->values[value].id, id);
	if (rc == -ESTALE &&
	    (sluice_last_rival() <= replaces || sluice_blob_exists(store, "x") != 1))
		wrong("the one that was faster is not there", value, rc);
	if (rc && rc != -ESTALE && rc != -ECONNRESET)
		wrong("a seal", value, rc);
	if (rc != -ECONNRESET)
		atomic_fetch_sub(&shared->values[value].perhaps, 1);
	atomic_fetch_add(rc ? rc == -ESTALE ? &shared->late : &shared->lost : &shared->sure, 1);
}

/* Returns the value, which is one that was made; *seen: the last that this caller saw. */
static uint64_t look_at_counter(sluice_store *store, uint64_t *seen, uint64_t *id)
{
	uint64_t found = 0, value, known;
	int rc = look(store, "x", &found, id);
	uint32_t maker;

	value = found & UINT32_MAX;
	if (rc || value < *seen || value >= VALUES) {
		wrong("a value is lost", value, rc);
		return found;
	}
	known = atomic_load(&shared->values[value].id);
	maker = atomic_load(&shared->values[value].maker);
	if ((maker && maker != found >> 32) || (known && known != *id))
		wrong("a value of another", value, rc);
	*seen = value;
	return found;
}

static void raise_until_stopped(sluice_store *store, uint32_t me)
{
	uint64_t seen = 0, id, found;

	while (!atomic_load(&shared->stop) && !atomic_load(&shared->wrong)) {
		found = look_at_counter(store, &seen, &id);
		raise_after(store, me, found, id);
		nanosleep(&(struct timespec){0, 50000}, NULL);
	}
}

static void begin_counter(const struct daemon *d)
{
	memset(shared, 0, sizeof(*shared));
	assert_ok(replace(d->store, "x", 0, 0, &(uint64_t){0}));
}

/* Each value up to the last has a maker, or a seal that did not learn what became of it; none has two. */
static void end_counter(const struct daemon *d)
{
	uint64_t seen = 0, id, last;

	if (atomic_load(&shared->wrong))
		fail_msg("%s", shared->text);
	last = look_at_counter(d->store, &seen, &id) & UINT32_MAX;
	for (uint64_t v = 1; v < VALUES; v++) {
		bool made = atomic_load(&shared->values[v].maker);

		if (v > last ? made : !made && !atomic_load(&shared->values[v].perhaps))
			fail_msg("value %" PRIu64 " of %" PRIu64 " was %s", v, last,
			         made ? "made" : "never made");
	}
	print_message("up to %" PRIu64 ": %u seals, %u came late, %u without an answer\n", last,
	              shared->sure, shared->late, shared->lost);
	assert_true(shared->sure && shared->late);
	assert_ok(sluice_blob_delete(d->store, "x"));
}

static void *raise_thread(void *store)
{
	raise_until_stopped(store, 1 + atomic_fetch_add(&shared->ready, 1));
	return NULL;
}

DAEMON_TEST(of_many_threads_one_replaces_each_blob)
{
	pthread_t threads[THREADS];

	begin_counter(d);
	for (unsigned i = 0; i < THREADS; i++)
		pthread_create(&threads[i], NULL, raise_thread, d->store);
	sleep_ms(under_stress() ? 5000 : 500);
	atomic_store(&shared->stop, true);
	for (unsigned i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	end_counter(d);
	assert_idle(d->store);
}

static int raise_process(const struct daemon *d, const char *number)
{
	sluice_store *store = daemon_connect(d);

	atomic_fetch_add(&shared->ready, 1);
	raise_until_stopped(store, (uint32_t)atoi(number));
	return sluice_store_close(store) ? 1 : 0;
}

static void kill_one(struct daemon *d, pid_t *workers, uint32_t *started, size_t which)
{
	if (which == WORKERS) {
		daemon_replace_server(d);
	} else if (which == WORKERS + 1) {
		daemon_replace_supervisor(d);
	} else {
		kill(workers[which], SIGKILL);
		child_status(workers[which]);
		workers[which] = child_start("raise", d, named("%u", ++*started));
	}
}

DAEMON_TEST_WITH(of_many_processes_one_replaces_each_blob_whoever_dies, daemon_setup, NULL)
{
	unsigned rounds = under_stress() ? 300 : 12;
	uint32_t started = 0;
	pid_t workers[WORKERS];
	struct rng r = rng_new(1);

	begin_counter(d);
	for (unsigned i = 0; i < WORKERS; i++)
		workers[i] = child_start("raise", d, named("%u", ++started));
	while (atomic_load(&shared->ready) < WORKERS)
		sleep_ms(1);
	for (unsigned i = 0;
	     i < rounds && !atomic_load(&shared->wrong) && !atomic_load(&shared->stop); i++) {
		unsigned before = atomic_load(&shared->sure);
		double until = seconds_now() + 60;

		/* Each second time a server. */
		kill_one(d, workers, &started, i % 2 ? WORKERS : rng_below(&r, WORKERS + 2));
		while (atomic_load(&shared->sure) < before + 20 && !atomic_load(&shared->wrong) &&
		       !atomic_load(&shared->stop)) {
			assert_true(seconds_now() < until);
			sleep_ms(1);
		}
		sleep_ms((int)rng_below(&r, 30));
	}
	atomic_store(&shared->stop, true);
	for (unsigned i = 0; i < WORKERS; i++)
		assert_int_equal(child_status(workers[i]), 0);
	end_counter(d);
	assert_idle(d->store);
	daemon_end(d, daemon_supervisor(d, 0));
}

int main(int argc, char **argv)
{
	static const char *const options[] = {"--memory", "256M", NULL};
	static const struct child_role roles[] = {{"raise", raise_process}, {NULL, NULL}};

	shared = shared_memory(sizeof(*shared));
	child_run(argc, argv, roles);
	row_start(1, argv);
	daemon_options = options;
	return RUN_TESTS(NULL, NULL);
}
