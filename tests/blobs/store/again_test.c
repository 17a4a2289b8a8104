/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests that are sent again because their server has died: each happens once, to the blob that it meant. SLUICED is the
 * daemon with steps.c.
 */
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <unistd.h>

#include "lib/daemon.h"
#include "protocol/protocol.h"

static char next[220]; /* the file with the step at which a server dies */

/* A call on a thread of its own, which rests when it has lost its server. */
struct caller {
	sluice_store *store;
	uint64_t id;            /* to be deleted; 0: "k" is */
	bool pins;              /* "k", and deletes nothing */
	sluice_blob *sealed[2]; /* or it seals these */
	int passes;             /* replies before it rests */
	_Atomic bool asked, rests, goes_on;
	pthread_t thread;
	int rc;
};
static _Thread_local struct caller *self;
static _Thread_local struct rng *delays;

void __wrap_sl_store_step(const char *step);
void __wrap_sl_store_step(const char *step)
{
	bool answered = !strcmp(step, "client: answered");

	if (delays && answered && !rng_below(delays, 3))
		usleep((useconds_t)rng_below(delays, 4000));
	if (!self)
		return;
	if (!strcmp(step, "client: asked"))
		atomic_store(&self->asked, true);
	if (!answered || self->passes-- > 0 || atomic_exchange(&self->rests, true))
		return;
	while (!atomic_load(&self->goes_on))
		usleep(500);
}

/* While it spoils, questions for the counts leave here as no server takes them. */
static _Atomic bool spoils;
static atomic_uint spoiled;

ssize_t __real_sl_fds_send(int socket, const void *data, size_t bytes, const int *fds,
                           unsigned count, int flags);
ssize_t __wrap_sl_fds_send(int socket, const void *data, size_t bytes, const int *fds,
                           unsigned count, int flags);
ssize_t __wrap_sl_fds_send(int socket, const void *data, size_t bytes, const int *fds,
                           unsigned count, int flags)
{
	union sl_message m;

	memcpy(&m, data, bytes);
	if (m.head.type == SL_MSG_STATS && atomic_load(&spoils)) {
		m.head.count = UINT16_MAX;
		atomic_fetch_add(&spoiled, 1);
	}
	return __real_sl_fds_send(socket, &m, bytes, fds, count, flags);
}

/* ------------------------------------------------------------------------------- a refused message */

static void *heal(void *unused)
{
	sleep_ms(500);
	atomic_store(&spoils, false);
	return unused;
}

/* The server cannot say which request it has refused; all are sent again, but not as fast as it answers. */
DAEMON_TEST(message_that_a_server_does_not_take_is_sent_again_with_pauses)
{
	struct sluice_store_counts counts = {.size = sizeof(counts)};
	pthread_t thread;

	atomic_store(&spoils, true);
	assert_int_equal(pthread_create(&thread, NULL, heal, NULL), 0);
	assert_ok(sluice_store_stats(d->store, &counts));
	pthread_join(thread, NULL);
	assert_in_range(atomic_load(&spoiled), 2, 500 / 5 + 1);
}

/* ------------------------------------------------------------------------------------- a lost reply */

/* When the server dies: before it has read the request, when it is about to do it, when it has done it. */
enum when { UNREAD, NOTED, DONE, WHENS };
static const char *const points[WHENS] = {NULL, "server: delete is noted", "server: deleted"};

static void die_next_at(const char *step)
{
	char path[240];
	int fd;

	snprintf(path, sizeof(path), "%s.new", next);
	fd = open(path, O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0600);
	assert_true(fd >= 0);
	assert_int_equal(write(fd, step, strlen(step)), (ssize_t)strlen(step));
	close(fd);
	assert_int_equal(rename(path, next), 0);
}

static void await(_Atomic bool *flag)
{
	double until = seconds_now() + 20;

	while (!atomic_load(flag)) {
		assert_true(seconds_now() < until);
		sleep_ms(1);
	}
}

static void *call(void *argument)
{
	struct caller *c = self = argument;

	c->rc = c->sealed[0] ? sluice_blob_seal_many(c->sealed, 2)
	        : c->pins    ? sluice_blob_pin(c->store, "k", 1)
	        : c->id      ? sluice_blob_delete_id(c->store, c->id)
	                     : sluice_blob_delete(c->store, "k");
	return NULL;
}

/* Begins a call and lets its server die; the next is there when it returns, and the call rests. */
static void lose_reply(struct daemon *d, struct caller *c, enum when when)
{
	pid_t server = daemon_server(d, 0);

	if (when == UNREAD)
		kill(server, SIGSTOP);
	else
		die_next_at(points[when]);
	assert_int_equal(pthread_create(&c->thread, NULL, call, c), 0);
	await(&c->asked);
	if (when == UNREAD)
		kill(server, SIGKILL);
	await(&c->rests);
	daemon_server(d, server);
}

static int go_on(struct caller *c)
{
	atomic_store(&c->goes_on, true);
	pthread_join(c->thread, NULL);
	assert_ok(sluice_store_close(c->store));
	return c->rc;
}

/* Meanwhile another client does that. */
enum meanwhile { NOTHING, DELETES, RENEWS, REPLACES, MEANWHILES };

static void act(sluice_store *store, enum meanwhile what, bool there)
{
	if (what == NOTHING)
		return;
	if (what != REPLACES)
		assert_int_equal(sluice_blob_delete(store, "k"), there ? 0 : -ENOENT);
	if (what != DELETES)
		assert_ok(sluice_blob_release(
			put(store, "k", 2000, what == REPLACES ? SLUICE_BLOB_REPLACE : 0)));
}

static void check_lost_delete(struct daemon *d, enum when when, enum meanwhile what, bool by_id)
{
	struct caller c = {.store = daemon_connect(d)};
	sluice_blob *blob = put(d->store, "k", 1000, 0);
	int rc;

	c.id = by_id ? sluice_blob_id(blob) : 0;
	assert_ok(sluice_blob_release(blob));
	lose_reply(d, &c, when);
	assert_int_equal(sluice_blob_exists(d->store, "k"), when != DONE);
	act(d->store, what, when != DONE);
	rc = go_on(&c);
	/* It has deleted the blob, unless another client has; with the id alone, it may have come after a seal. */
	if (rc !=
	    (when != DONE && (what == DELETES || what == RENEWS || (by_id && what == REPLACES))
	             ? -ENOENT
	             : 0))
		fail_msg("%d, when %d, what %d, by id %d: %s", rc, when, what, by_id,
		         sluice_last_message());
	if (what == RENEWS || what == REPLACES) {
		assert_there(d->store, "k", 2000);
		assert_ok(sluice_blob_delete(d->store, "k"));
	}
	assert_int_equal(sluice_blob_exists(d->store, "k"), 0);
}

DAEMON_TEST(lost_delete_happens_once_and_to_its_blob)
{
	for (int when = 0; when < WHENS; when++)
		for (int what = 0; what < MEANWHILES; what++)
			for (int by_id = 0; by_id < 2; by_id++)
				check_lost_delete(d, when, what, by_id);
}

/* A blob that was exchanged was not deleted before: the delete takes the blob that has its name now. */
DAEMON_TEST(lost_delete_comes_after_an_exchange)
{
	for (int i = 0; i < 4; i++) {
		struct caller c = {.store = daemon_connect(d)};
		struct sluice_blob_options o = SLUICE_BLOB_OPTIONS_INIT;
		sluice_blob *blob = put(d->store, "k", 1000, 0);
		bool by_id = i % 2;

		o.replaces = sluice_blob_id(blob);
		c.id = by_id ? o.replaces : 0;
		assert_ok(sluice_blob_release(blob));
		lose_reply(d, &c, i / 2 ? NOTED : UNREAD);
		assert_ok(sluice_blob_create(d->store, "k", 2000, -1, &o, &blob));
		assert_ok(sluice_blob_seal(blob));
		assert_ok(sluice_blob_release(blob));
		assert_int_equal(go_on(&c), by_id ? -ENOENT : 0);
		assert_int_equal(sluice_blob_exists(d->store, "k"), by_id);
		if (by_id)
			assert_ok(sluice_blob_delete(d->store, "k"));
	}
}

/* Of two, one was before the seal that has replaced the blob, and the other has found nothing. */
DAEMON_TEST(lost_deletes_take_a_replaced_blob_once)
{
	for (int by_id = 0; by_id < 2; by_id++) {
		struct caller first = {.store = daemon_connect(d)}, other = first;
		sluice_blob *blob = put(d->store, "k", 1000, 0);
		pid_t server = daemon_server(d, 0);
		int rcs[2];

		first.id = other.id = by_id ? sluice_blob_id(blob) : 0;
		other.store = daemon_connect(d);
		assert_ok(sluice_blob_release(blob));
		kill(server, SIGSTOP);
		assert_int_equal(pthread_create(&other.thread, NULL, call, &other), 0);
		await(&other.asked);
		lose_reply(d, &first, UNREAD);
		act(d->store, REPLACES, true);
		rcs[0] = go_on(&first);
		rcs[1] = go_on(&other);
		if (rcs[0] != (by_id ? -ENOENT : 0) || rcs[1] != -ENOENT)
			fail_msg("%d and %d, by id %d", rcs[0], rcs[1], by_id);
		assert_there(d->store, "k", 2000);
		assert_ok(sluice_blob_delete(d->store, "k"));
	}
}

DAEMON_TEST(lost_delete_of_a_missing_name_finds_nothing)
{
	for (int made = 0; made < 2; made++) {
		struct caller c = {.store = daemon_connect(d)};

		lose_reply(d, &c, UNREAD);
		if (made)
			act(d->store, REPLACES, false);
		assert_int_equal(go_on(&c), -ENOENT);
		assert_int_equal(sluice_blob_exists(d->store, "k"), made);
	}
	assert_ok(sluice_blob_delete(d->store, "k"));
}

/* Its ids begin anew. */
DAEMON_TEST(lost_delete_spares_the_blobs_of_another_daemon)
{
	struct caller c = {.store = daemon_connect(d)};

	assert_ok(sluice_blob_release(put(d->store, "k", 1000, 0)));
	lose_reply(d, &c, UNREAD);
	daemon_renew(d);
	while (sluice_blob_exists(d->store, "k") != 0)
		sleep_ms(5);
	assert_ok(sluice_blob_release(put(d->store, "k", 2000, 0)));
	assert_int_equal(go_on(&c), -ENOENT);
	assert_there(d->store, "k", 2000);
	assert_ok(sluice_blob_delete(d->store, "k"));
}

/* A blob that was not there for a while is spared; a name that always had one is pinned. */
DAEMON_TEST(lost_pin_spares_the_next_blob)
{
	for (int what = RENEWS; what <= REPLACES; what++) {
		struct sluice_blob_info info = {.size = sizeof(info)};
		struct caller c = {.store = daemon_connect(d), .pins = true};

		assert_ok(sluice_blob_release(put(d->store, "k", 1000, 0)));
		lose_reply(d, &c, UNREAD);
		act(d->store, what, true);
		assert_int_equal(go_on(&c), what == RENEWS ? -ENOENT : 0);
		assert_ok(sluice_blob_stat(d->store, "k", &info));
		assert_int_equal(!(info.flags & SLUICE_BLOB_PIN), what == RENEWS);
		assert_ok(sluice_blob_delete(d->store, "k"));
	}
}

/* A delete by id that begins when its blob was replaced is too late, also if it loses its server. */
DAEMON_TEST(late_delete_by_id_finds_nothing)
{
	struct caller c = {.store = daemon_connect(d)};
	sluice_blob *blob = put(d->store, "k", 1000, 0);

	c.id = sluice_blob_id(blob);
	assert_ok(sluice_blob_release(blob));
	act(d->store, REPLACES, true);
	lose_reply(d, &c, UNREAD);
	assert_int_equal(go_on(&c), -ENOENT);
	assert_ok(sluice_blob_delete(d->store, "k"));
}

/* All blobs of a seal are sealed, or none; what becomes of them then does not matter. */
DAEMON_TEST(lost_seal_is_known_by_any_of_its_blobs)
{
	for (unsigned gone = 0; gone < 4; gone++) {
		struct caller c = {.store = daemon_connect(d)};
		pid_t server = daemon_server(d, 0);

		for (int i = 0; i < 2; i++)
			assert_ok(create_on(c.store, named("s/%d", i), 5000, place(), 0,
			                    &c.sealed[i]));
		die_next_at("server: sealed");
		assert_int_equal(pthread_create(&c.thread, NULL, call, &c), 0);
		await(&c.rests);
		daemon_server(d, server);
		for (int i = 0; i < 2; i++)
			if (gone >> i & 1)
				assert_ok(sluice_blob_delete(d->store, named("s/%d", i)));
		atomic_store(&c.goes_on, true);
		pthread_join(c.thread, NULL);
		assert_int_equal(c.rc, gone == 3 ? -ECONNRESET : 0);
		for (int i = 0; i < 2; i++) {
			assert_int_equal(!sluice_blob_data(c.sealed[i]),
			                 gone != 3 && gone >> i & 1);
			assert_ok(sluice_blob_release(c.sealed[i]));
			if (!(gone >> i & 1))
				assert_ok(sluice_blob_delete(d->store, named("s/%d", i)));
		}
		assert_ok(sluice_store_close(c.store));
	}
}

static int spill(void **state)
{
	static const char *options[] = {"--memory", "4M", "--spill", NULL, NULL};
	const char *const *usual = daemon_options;
	int rc;

	options[3] = getenv("SLUICE_TEST_DIR");
	daemon_options = options;
	rc = daemon_setup(state);
	daemon_options = usual;
	return rc;
}

/* Only the server knows the id of such a blob. */
DAEMON_TEST_WITH(lost_delete_of_a_spilled_blob_happens, spill, daemon_teardown)
{
	struct sluice_blob_info info = {.size = sizeof(info)};

	for (int when = NOTED; when < WHENS; when++) {
		struct caller c = {.store = daemon_connect(d), .passes = 1};
		int others = 0;

		assert_ok(sluice_blob_release(put(d->store, "k", 1 << 20, 0)));
		/* It leaves memory when others need that, sooner or later. */
		do {
			assert_true(others < 40);
			assert_ok(sluice_blob_release(
				put(d->store, named("other/%d", others++), 1 << 20, 0)));
			assert_ok(sluice_blob_stat(d->store, "k", &info));
		} while (info.state != SLUICE_BLOB_IS_SPILLED);
		lose_reply(d, &c, when);
		if (when == DONE)
			act(d->store, REPLACES, false);
		assert_int_equal(go_on(&c), 0);
		assert_int_equal(sluice_blob_exists(d->store, "k"), when == DONE);
		while (others)
			assert_ok(sluice_blob_delete(d->store, named("other/%d", --others)));
	}
	assert_ok(sluice_blob_delete(d->store, "k"));
}

/* ------------------------------------------------------------------------------------------ by chance */

enum { ACTORS = 6, NAMES = 3, ACTIONS = 14 };

/*
 * Names that are put and deleted by all, of which each delete that succeeds takes a blob; and a name that is replaced by
 * many and deleted by a single client, which finds it whenever it was put after the last delete.
 */
static struct {
	_Atomic int puts, deletes, unsure;
} counts[NAMES];
static _Atomic unsigned deleted, made_after, lost_seals, in_vain;

struct actor {
	sluice_store *store;
	unsigned number;
	struct rng actions, delays;
	pthread_t thread;
	char wrong[300];
};

static void wrong(struct actor *a, const char *what, int rc)
{
	if (!a->wrong[0])
		snprintf(a->wrong, sizeof(a->wrong), "%s: %d: %s", what, rc, sluice_last_message());
}

static void put_or_delete(struct actor *a)
{
	size_t n = rng_below(&a->actions, NAMES);
	const char *name = named("plain/%zu", n);
	sluice_blob *blob;
	int rc;

	if (rng_below(&a->actions, 2)) {
		rc = sluice_blob_delete(a->store, name);
		atomic_fetch_add(&counts[n].deletes, rc == 0);
		atomic_fetch_add(&in_vain, rc == -ENOENT);
		if (rc && rc != -ENOENT)
			wrong(a, "delete", rc);
		return;
	}
	rc = try_put(a->store, name, 1 + rng_below(&a->actions, 9000), 0, &blob);
	if (!rc)
		sluice_blob_release(blob);
	atomic_fetch_add(&counts[n].puts, rc == 0);
	atomic_fetch_add(&counts[n].unsure, rc == -ECONNRESET);
	atomic_fetch_add(&lost_seals, rc == -ECONNRESET);
	if (rc && rc != -EEXIST && rc != -ECONNRESET)
		wrong(a, "put", rc);
}

static void replace(struct actor *a)
{
	unsigned before = atomic_load(&deleted);
	sluice_blob *blob;
	int rc = try_put(a->store, "replaced", 1 + rng_below(&a->actions, 9000),
	                 SLUICE_BLOB_REPLACE, &blob);

	if (rc && rc != -ECONNRESET)
		wrong(a, "replace", rc);
	if (rc)
		return;
	sluice_blob_release(blob);
	for (unsigned seen = atomic_load(&made_after); seen < before;)
		if (atomic_compare_exchange_weak(&made_after, &seen, before))
			break;
}

static void delete_replaced(struct actor *a)
{
	int rc;

	if (atomic_load(&made_after) < atomic_load(&deleted))
		return;
	rc = sluice_blob_delete(a->store, "replaced");
	if (rc)
		wrong(a, "delete of a blob that was there", rc);
	atomic_fetch_add(&deleted, 1);
}

static void *live(void *argument)
{
	struct actor *a = argument;

	delays = &a->delays;
	for (unsigned i = 0; i < ACTIONS; i++)
		if (a->number == 0)
			delete_replaced(a);
		else if (a->number < 3)
			replace(a);
		else
			put_or_delete(a);
	return NULL;
}

static pid_t let_a_server_die(const struct daemon *d, pid_t server, struct rng *r)
{
	static const char *const steps[] = {"server: delete is noted", "server: deleted",
	                                    "server: entered", "server: sealed"};
	size_t how = rng_below(r, COUNT_OF(steps) + 2);

	usleep((useconds_t)rng_below(r, 3000));
	if (how < COUNT_OF(steps)) {
		die_next_at(steps[how]);
		return server;
	}
	if (how == COUNT_OF(steps)) {
		kill(server, SIGSTOP);
		usleep(1500);
	}
	kill(server, SIGKILL);
	return daemon_server(d, server);
}

static void check_counts(sluice_store *store)
{
	for (int n = 0; n < NAMES; n++) {
		int there = sluice_blob_exists(store, named("plain/%d", n));
		int made = atomic_exchange(&counts[n].puts, 0);
		int gone = atomic_exchange(&counts[n].deletes, 0);
		int unsure = atomic_exchange(&counts[n].unsure, 0);

		if (there < 0 || gone + there < made || gone + there > made + unsure)
			fail_msg("%d made (and %d perhaps), %d deleted, %d there", made, unsure,
			         gone, there);
		atomic_store(&counts[n].puts, there);
	}
}

DAEMON_TEST(each_delete_that_succeeds_takes_one_blob)
{
	struct actor actors[ACTORS] = {0};
	struct rng r = rng_new(77);
	pid_t server = daemon_server(d, 0);

	/* Two of them share a store. */
	for (unsigned i = 0; i < ACTORS; i++)
		actors[i] = (struct actor){.number = i,
		                           .actions = rng_new(100 + i),
		                           .delays = rng_new(200 + i),
		                           .store = i + 1 < ACTORS ? daemon_connect(d)
		                                                   : actors[i - 1].store};
	assert_ok(sluice_blob_release(put(d->store, "replaced", 10, 0)));
	for (int round = 0; round < rounds_of(90); round++) {
		for (unsigned i = 0; i < ACTORS; i++)
			assert_int_equal(pthread_create(&actors[i].thread, NULL, live, &actors[i]),
			                 0);
		server = let_a_server_die(d, server, &r);
		for (unsigned i = 0; i < ACTORS; i++)
			pthread_join(actors[i].thread, NULL);
		unlink(next);
		server = daemon_server(d, 0);
		for (unsigned i = 0; i < ACTORS; i++)
			if (actors[i].wrong[0])
				fail_msg("round %d, actor %u: %s", round, i, actors[i].wrong);
		check_counts(d->store);
	}
	for (unsigned i = 0; i + 1 < ACTORS; i++)
		assert_ok(sluice_store_close(actors[i].store));
	print_message("%llu servers died, %u seals lost, %u deletes found nothing, %u of a "
	              "replaced blob\n",
	              (unsigned long long)stats_of(d->store).replacements, lost_seals, in_vain,
	              deleted);
	assert_true(lost_seals && in_vain && deleted);
}

int main(int argc, char **argv)
{
	static const char *const options[] = {"--memory", "64M", NULL};

	(void)argc;
	row_start(1, argv);
	snprintf(next, sizeof(next), "%s/store-next-%d", getenv("SLUICE_TEST_DIR"), (int)getpid());
	setenv("SLUICE_TEST_NEXT", next, 1);
	daemon_options = options;
	return RUN_TESTS(NULL, NULL);
}
