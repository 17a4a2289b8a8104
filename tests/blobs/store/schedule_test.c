/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Threads that share one store, and are held up at its steps, each time elsewhere: which ones, for how long, and what
 * the threads do is drawn from a number. In some the server is killed meanwhile. Every call must end, and say what is
 * true. Arguments: --first N --count N.
 */
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <unistd.h>

#include "lib/daemon.h"
#include "protocol/protocol.h"

enum { THREADS_MOST = 6, ACTIONS_MOST = 8, PER_DAEMON = 40, HANG_SECONDS = 60, WAIT_MS = 50000 };

struct schedule {
	uint64_t number;
	sluice_store *store; /* that all share */
	unsigned threads;
	unsigned kills;   /* of the server */
	const char *slow; /* the step that takes longest */
};

struct actor {
	const struct schedule *schedule;
	unsigned number, made; /* blobs, for their names */
	struct rng actions, delays;
	char wrong[300];
};

static unsigned long first = 1, count = 300;
/* What has come to pass, in all schedules. */
static _Atomic unsigned long sealed, lost, taken, waited, timed_out, killed, undone;
static _Thread_local struct actor *self;

static const char *const steps[] = {
	"client: asked",    "client: read",
	"client: answered", "client: connected",
	"client: tells",    "client: leased",
	"client: created",  "client: sealed",
	"client: got",      NULL,
};

/* -------------------------------------------------------------------------------------- delays */

static void hold_up(struct rng *r, unsigned most_us)
{
	struct timespec time = {0, (long)rng_below(r, most_us) * 1000};

	nanosleep(&time, NULL);
}

void __wrap_sl_store_step(const char *step);
void __wrap_sl_store_step(const char *step)
{
	struct actor *a = self;
	size_t what;

	if (!a)
		return;
	what = rng_below(&a->delays, 16);
	if (a->schedule->slow && !strcmp(step, a->schedule->slow) && what < 8)
		hold_up(&a->delays, 1500);
	else if (what < 2)
		hold_up(&a->delays, 200);
	else if (what < 6)
		sched_yield();
}

static char hanging[200];

static void hang(int signal)
{
	(void)signal;
	(void)!write(STDERR_FILENO, hanging, strlen(hanging));
	abort();
}

static void watch_over(const struct schedule *s)
{
	snprintf(hanging, sizeof(hanging),
	         "a call does not end; the same again with --first %llu --count 1\n",
	         (unsigned long long)s->number);
	alarm(HANG_SECONDS);
}

/* ------------------------------------------------------------------------------------- actions */

__attribute__((format(printf, 2, 3))) static void wrong(struct actor *a, const char *format, ...)
{
	size_t n;
	va_list list;

	if (a->wrong[0])
		return;
	va_start(list, format);
	vsnprintf(a->wrong, sizeof(a->wrong), format, list);
	va_end(list);
	n = strlen(a->wrong);
	snprintf(a->wrong + n, sizeof(a->wrong) - n, ": %s", sluice_last_message());
}

static size_t draw_size(struct actor *a)
{
	return 1 + rng_below(&a->actions, rng_below(&a->actions, 4) ? 5000 : 150000);
}

/* What is in it says by itself whether it is right: the pattern follows from name and size. */
static void check_bytes(struct actor *a, const sluice_blob *blob, const char *name)
{
	if (!blob_is(blob, name, sluice_blob_size(blob)))
		wrong(a, "%s has other bytes", name);
}

static void let_go(struct actor *a, sluice_blob *blob, const char *name)
{
	check_bytes(a, blob, name);
	sluice_blob_release(blob);
}

/* A name that nobody else has: what the calls say of it is known. */
static void own(struct actor *a)
{
	sluice_store *store = a->schedule->store;
	sluice_blob *blob, *read;
	char name[40];
	int rc;

	snprintf(name, sizeof(name), "own/%u/%u", a->number, a->made++);
	rc = try_put(store, name, draw_size(a), rng_below(&a->actions, 2) ? SLUICE_BLOB_RESERVE : 0,
	             &blob);
	if (rc == -ECONNRESET && a->schedule->kills) {
		lost++;
		if (sluice_blob_exists(store, name) != 0)
			wrong(a, "%s is there, and its seal has failed", name);
		return;
	}
	if (rc) {
		wrong(a, "put %s: %d", name, rc);
		return;
	}
	sealed++;
	rc = sluice_blob_get(store, name, 0, &read);
	if (rc)
		wrong(a, "get %s: %d", name, rc);
	else
		let_go(a, read, name);
	rc = sluice_blob_delete(store, name);
	if (rc && (rc != -ENOENT || !a->schedule->kills))
		wrong(a, "delete %s: %d", name, rc);
	if (sluice_blob_get(store, name, 0, &read) != -ENOENT)
		wrong(a, "%s is there, and was deleted", name);
	let_go(a, blob, name);
}

/* Names that all put, get and delete. */
static void common(struct actor *a)
{
	sluice_store *store = a->schedule->store;
	sluice_blob *blob;
	char name[40];
	int rc;

	snprintf(name, sizeof(name), "common/%zu", rng_below(&a->actions, 3));
	switch (rng_below(&a->actions, 4)) {
	case 0:
		rc = try_put(store, name, draw_size(a),
		             rng_below(&a->actions, 2) ? SLUICE_BLOB_RESERVE : 0, &blob);
		/* Somebody may have deleted it before we could hold it. */
		if (!rc && !sluice_blob_data(blob))
			sluice_blob_release(blob);
		else if (!rc)
			let_go(a, blob, name);
		sealed += rc == 0;
		taken += rc == -EEXIST;
		lost += rc == -ECONNRESET;
		if (rc && rc != -EEXIST && (rc != -ECONNRESET || !a->schedule->kills))
			wrong(a, "put %s: %d", name, rc);
		return;
	case 1:
		rc = sluice_blob_delete(store, name);
		if (rc && rc != -ENOENT)
			wrong(a, "delete %s: %d", name, rc);
		return;
	default:
		rc = sluice_blob_get(store, name, (int)rng_below(&a->actions, 4), &blob);
		if (!rc)
			let_go(a, blob, name);
		timed_out += rc == -ETIMEDOUT;
		if (rc && rc != -ENOENT && rc != -ETIMEDOUT)
			wrong(a, "get %s: %d", name, rc);
	}
}

/* Two at once: both are there, or none. */
static void pair(struct actor *a)
{
	sluice_store *store = a->schedule->store;
	char names[2][40];
	struct sluice_blob_request requests[2] = {{names[0], 700, -1, NULL},
	                                          {names[1], 70000, -1, NULL}};
	const char *both[2] = {names[0], names[1]};
	sluice_blob *blobs[2], *read[2];
	int rc;

	for (int i = 0; i < 2; i++)
		snprintf(names[i], sizeof(names[i]), "pair/%u/%u", a->number, a->made++);
	rc = sluice_blob_create_many(store, requests, 2, blobs);
	if (rc) {
		wrong(a, "create two: %d", rc);
		return;
	}
	for (int i = 0; i < 2; i++)
		memset(sluice_blob_mutable_data(blobs[i]), 1 + i, sluice_blob_size(blobs[i]));
	rc = sluice_blob_seal_many(blobs, 2);
	if (rc && (rc != -ECONNRESET || !a->schedule->kills))
		wrong(a, "seal two: %d", rc);
	for (int i = 0; i < 2; i++)
		if (sluice_blob_exists(store, names[i]) != (rc == 0))
			wrong(a, "seal two: %d, and %s is not as that says", rc, names[i]);
	if (!rc && sluice_blob_get_many(store, both, 2, 0, read))
		wrong(a, "get two");
	else if (!rc)
		sluice_blob_release_many(read, 2);
	sluice_blob_release_many(blobs, 2);
	for (int i = 0; !rc && i < 2; i++)
		sluice_blob_delete(store, names[i]);
	sealed += rc ? 0 : 2;
}

/* What is not sealed goes with its release. */
static void give_up(struct actor *a)
{
	struct sluice_blob_options o = SLUICE_BLOB_OPTIONS_INIT;
	sluice_blob *blob;
	char name[40];
	int rc;

	o.flags = rng_below(&a->actions, 2) ? SLUICE_BLOB_RESERVE : 0;
	snprintf(name, sizeof(name), "undone/%u/%u", a->number, a->made++);
	rc = sluice_blob_create(a->schedule->store, name, draw_size(a), -1, &o, &blob);
	if (rc) {
		wrong(a, "create %s: %d", name, rc);
		return;
	}
	sluice_blob_release(blob);
	undone++;
}

static void look(struct actor *a)
{
	struct sluice_blob_info infos[4] = {{.size = sizeof(infos[0])}};
	struct sluice_store_counts stats = {.size = sizeof(stats)};
	uint64_t cursor = 0;
	int rc = sluice_store_stats(a->schedule->store, &stats);

	if (!rc)
		rc = sluice_blob_list(a->schedule->store, "own/", &cursor, infos, 4);
	if (rc < 0)
		wrong(a, "look: %d", rc);
}

/* Waits for the one that the thread before puts, and puts one for the next. */
static void pass_on(struct actor *a)
{
	sluice_store *store = a->schedule->store;
	sluice_blob *blob;
	char name[40];
	int rc;

	snprintf(name, sizeof(name), "baton/%u", a->number);
	rc = sluice_blob_get(store, name, rng_below(&a->actions, 2) ? -1 : WAIT_MS, &blob);
	if (rc) {
		wrong(a, "wait for %s: %d", name, rc);
		return;
	}
	waited++;
	let_go(a, blob, name);
	snprintf(name, sizeof(name), "baton/%u", a->number + 1);
	while ((rc = try_put(store, name, draw_size(a), 0, &blob)) == -ECONNRESET)
		lost++;
	if (rc)
		wrong(a, "put %s: %d", name, rc);
	else
		let_go(a, blob, name);
}

static void *act(void *argument)
{
	static void (*const actions[])(struct actor *) = {own,  own,     common, common,
	                                                  pair, give_up, look};
	struct actor *a = self = argument;
	size_t left = rng_below(&a->actions, ACTIONS_MOST),
	       before = rng_below(&a->actions, left + 1);

	for (size_t i = 0; i <= left; i++) {
		if (i == before)
			pass_on(a);
		if (!a->wrong[0])
			actions[rng_below(&a->actions, COUNT_OF(actions))](a);
	}
	return NULL;
}

/* ----------------------------------------------------------------------------------- schedules */

static struct rng stream_of(uint64_t schedule, unsigned stream)
{
	return (struct rng){pattern_mix(schedule) ^ pattern_mix(stream + 1)};
}

static void kill_servers(const struct daemon *d, const struct schedule *s, struct rng *r)
{
	static pid_t server;

	for (unsigned i = 0; i < s->kills; i++) {
		server = daemon_server(d, server);
		hold_up(r, 3000);
		kill(server, SIGKILL);
		killed++;
	}
}

/* Nothing is left but the batons, which are deleted. */
static void clean(const struct daemon *d, const struct schedule *s)
{
	struct sluice_store_counts stats;
	double until = seconds_now() + 20;

	for (unsigned i = 0; i <= s->threads; i++)
		assert_ok(sluice_blob_delete(d->store, named("baton/%u", i)));
	for (unsigned i = 0; i < 3; i++)
		sluice_blob_delete(d->store, named("common/%u", i));
	do {
		stats = stats_of(d->store);
		if (seconds_now() > until)
			fail_msg("schedule %llu leaves %llu sealed, %llu created, %llu dying, "
			         "%llu bytes, %llu waiting",
			         (unsigned long long)s->number, (unsigned long long)stats.sealed,
			         (unsigned long long)stats.created, (unsigned long long)stats.dying,
			         (unsigned long long)stats.blob_bytes,
			         (unsigned long long)stats.waiting);
	} while (stats.sealed || stats.created || stats.dying || stats.blob_bytes || stats.waiting);
}

static void run(const struct daemon *d, uint64_t number)
{
	struct rng r = stream_of(number, 0);
	struct schedule s = {.number = number,
	                     .store = daemon_connect(d),
	                     .threads = 2 + (unsigned)rng_below(&r, THREADS_MOST - 1),
	                     .kills = (unsigned)rng_below(&r, 4) / 2,
	                     .slow = steps[rng_below(&r, COUNT_OF(steps))]};
	struct actor actors[THREADS_MOST] = {0};
	pthread_t threads[THREADS_MOST];
	sluice_blob *last;

	watch_over(&s);
	for (unsigned i = 0; i < s.threads; i++) {
		actors[i] = (struct actor){.schedule = &s,
		                           .number = i,
		                           .actions = stream_of(number, 1 + 2 * i),
		                           .delays = stream_of(number, 2 + 2 * i)};
		assert_int_equal(pthread_create(&threads[i], NULL, act, &actors[i]), 0);
	}
	hold_up(&r, 1000);
	assert_ok(sluice_blob_release(put(d->store, "baton/0", 100, 0)));
	kill_servers(d, &s, &r);
	for (unsigned i = 0; i < s.threads; i++)
		pthread_join(threads[i], NULL);
	for (unsigned i = 0; i < s.threads; i++)
		if (actors[i].wrong[0])
			fail_msg("schedule %llu, thread %u: %s", (unsigned long long)number, i,
			         actors[i].wrong);
	assert_ok(sluice_blob_get(s.store, named("baton/%u", s.threads), 0, &last));
	assert_ok(sluice_blob_release(last));
	assert_ok(sluice_store_close(s.store));
	clean(d, &s);
	alarm(0);
}

TEST(every_call_ends_and_says_what_is_true)
{
	struct daemon *d = NULL;

	for (unsigned long i = 0; i < count; i++) {
		if (i % PER_DAEMON == 0)
			daemon_setup((void **)&d);
		run(d, first + i);
		if (i % PER_DAEMON == PER_DAEMON - 1 || i == count - 1)
			daemon_teardown((void **)&d);
	}
	print_message(
		"%lu sealed, %lu lost with a server, %lu names taken, %lu waits, %lu time-outs, "
		"%lu aborted, %lu servers killed\n",
		sealed, lost, taken, waited, timed_out, undone, killed);
	/* Few schedules show less. */
	if (count >= 50)
		assert_true(sealed && lost && taken && waited && timed_out && undone && killed);
}

int main(int argc, char **argv)
{
	static const char *const options[] = {"--memory", "256M", NULL};

	for (int i = 1; i + 1 < argc; i += 2)
		*(strcmp(argv[i], "--first") ? &count : &first) = strtoul(argv[i + 1], NULL, 10);
	row_start(1, argv);
	signal(SIGALRM, hang);
	daemon_options = options;
	return RUN_TESTS(NULL, NULL);
}
