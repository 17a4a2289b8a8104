/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Processes that share a few names while the daemon's processes and some of them are killed, upgraded, or late: what each
 * call has said, and when, is written down, and there must be an order of all calls that explains it, as if they came one
 * after the other. What a process holds has its bytes until it lets go.
 */
#include <signal.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "blobs/store/history.h"
#include "core/core.h"
#include "lib/parts.h"

enum { WORKERS = 4, ROWS = 40, OPS = 30000, NAMES = 3, HANDLES = 6, BREAKS = 200 };

static const char *const texts[] = {"put",    "replace",      "exchange", "get", "wait",
                                    "delete", "delete by id", "exists",   "pin"};

static struct {
	_Atomic bool stop, wrong;
	char text[300];
	struct diary {
		_Atomic unsigned count;
		struct op ops[OPS];
	} diaries[ROWS]; /* of a process each */
} * shared;

/* ------------------------------------------------------------------------------- the processes */

struct worker {
	sluice_store *store;
	struct rng r;
	struct diary *diary;
	uint64_t next; /* value */
	bool hasty;    /* it makes only calls that end in time */
	struct handle {
		sluice_blob *blob;
		uint64_t value;
	} held[HANDLES];
};

static void wrong(const char *what, const char *name, uint64_t value)
{
	if (atomic_exchange(&shared->wrong, true))
		return;
	snprintf(shared->text, sizeof(shared->text), "%s: %s, value %llx: %s", name, what,
	         (unsigned long long)value, sluice_last_message());
}

static size_t size_of(uint64_t value)
{
	uint64_t mixed = pattern_mix(value);

	return sizeof(value) + (mixed % 4 ? mixed % 5000 : mixed % 150000);
}

/* The value is in front of a pattern that follows from it. */
static void fill(sluice_blob *blob, uint64_t value)
{
	char *bytes = sluice_blob_mutable_data(blob);

	memcpy(bytes, &value, sizeof(value));
	pattern_fill(bytes + sizeof(value), size_of(value) - sizeof(value), 0, value);
}

static uint64_t value_of(const sluice_blob *blob)
{
	uint64_t value = 0;

	if (sluice_blob_size(blob) >= sizeof(value))
		memcpy(&value, sluice_blob_data(blob), sizeof(value));
	return value;
}

/* One value in three has parts. */
static bool has_parts(uint64_t value)
{
	return value % 3 == 0;
}

static bool is_whole(sluice_blob *blob, uint64_t value)
{
	size_t n = size_of(value);

	if (has_parts(value))
		return parts_value(blob) == value;
	return sluice_blob_size(blob) == n && value_of(blob) == value &&
	       pattern_match((const char *)sluice_blob_data(blob) + sizeof(value),
	                     n - sizeof(value), 0, value) == n - sizeof(value);
}

/* Keeps the handle in the place of another one, which had its bytes until now. */
static void keep(struct worker *w, sluice_blob *blob, uint64_t value)
{
	struct handle *h = &w->held[rng_below(&w->r, HANDLES)];

	if (h->blob && !is_whole(h->blob, h->value))
		wrong("what was held has other bytes", sluice_blob_name(h->blob), h->value);
	if (h->blob)
		sluice_blob_release(h->blob);
	*h = (struct handle){blob, value};
}

static void check_held(struct worker *w)
{
	for (unsigned i = 0; i < HANDLES; i++)
		if (w->held[i].blob && !is_whole(w->held[i].blob, w->held[i].value))
			wrong("what is held has other bytes", sluice_blob_name(w->held[i].blob),
			      w->held[i].value);
}

static int put_value(struct worker *w, const char *name, uint64_t value, unsigned flags,
                     uint64_t replaces)
{
	struct sluice_blob_options o = SLUICE_BLOB_OPTIONS_INIT;
	sluice_blob *blob;
	int rc;

	o.flags = flags;
	o.replaces = replaces;
	if (has_parts(value))
		rc = replaces ? parts_make_over(w->store, name, value, replaces, &blob)
		              : parts_make(w->store, name, value, flags, &blob);
	else
		rc = sluice_blob_create(w->store, name, size_of(value), -1, &o, &blob);
	if (rc)
		return rc;
	if (!has_parts(value))
		fill(blob, value);
	rc = sluice_blob_seal(blob);
	/* Another process may have deleted it before it could be held. */
	if (rc || !sluice_blob_data(blob))
		sluice_blob_release(blob);
	else
		keep(w, blob, value);
	return rc;
}

/*
 * Exchanges or deletes a value of that name which this process holds, whether the name still has it or not; -EAGAIN: it
 * has none.
 */
static int change_held(struct worker *w, const char *name, struct op *op)
{
	size_t from = rng_below(&w->r, HANDLES);

	for (unsigned i = 0; i < HANDLES; i++) {
		const struct handle *h = &w->held[(from + i) % HANDLES];

		if (!h->blob || strcmp(sluice_blob_name(h->blob), name) != 0)
			continue;
		op->old = h->value;
		return op->what == EXCHANGE
		               ? put_value(w, name, op->value, 0, sluice_blob_id(h->blob))
		               : sluice_blob_delete_id(w->store, sluice_blob_id(h->blob));
	}
	return -EAGAIN;
}

static int get_value(struct worker *w, const char *name, int timeout_ms, uint64_t *value)
{
	sluice_blob *blob;
	int rc = sluice_blob_get(w->store, name, timeout_ms, &blob);

	if (rc)
		return rc;
	*value = value_of(blob);
	if (!is_whole(blob, *value))
		wrong("a get of other bytes", name, *value);
	keep(w, blob, *value);
	return 0;
}

static const char *name_at(unsigned i)
{
	static const char *const names[] = {"a", "b", "c"};

	return names[i];
}

static void do_op(struct worker *w)
{
	static const uint8_t all[] = {PUT,      PUT,    REPLACE, REPLACE,   EXCHANGE, EXCHANGE,
	                              EXCHANGE, GET,    GET,     AWAIT,     DELETE,   DELETE,
	                              DELETE,   EXISTS, PIN,     DELETE_ID, DELETE_ID};
	unsigned count = atomic_load(&w->diary->count);
	struct op *op = &w->diary->ops[count];
	const char *name;

	*op = (struct op){.what = w->hasty ? AWAIT : all[rng_below(&w->r, COUNT_OF(all))],
	                  .name = (uint8_t)rng_below(&w->r, NAMES),
	                  .begun = seconds_now()};
	name = name_at(op->name);
	if (op->what <= EXCHANGE)
		op->value = w->next++;
	atomic_store(&w->diary->count, count + 1);
	switch (op->what) {
	case PUT:
	case REPLACE:
		op->rc =
			put_value(w, name, op->value, op->what == PUT ? 0 : SLUICE_BLOB_REPLACE, 0);
		break;
	case EXCHANGE:
	case DELETE_ID:
		op->rc = change_held(w, name, op);
		break;
	case GET:
		op->rc = get_value(w, name, 0, &op->value);
		break;
	case AWAIT:
		op->rc = get_value(w, name, 1 + (int)rng_below(&w->r, 30), &op->value);
		break;
	case DELETE:
		op->rc = sluice_blob_delete(w->store, name);
		break;
	case PIN:
		op->rc = sluice_blob_pin(w->store, name, (int)rng_below(&w->r, 2));
		break;
	default:
		op->rc = sluice_blob_exists(w->store, name);
	}
	op->ended = seconds_now();
}

static int work(const struct daemon *d, const char *number)
{
	unsigned i = (unsigned)atoi(number);
	static struct worker w;

	w = (struct worker){.store = daemon_connect(d),
	                    .r = rng_new(i),
	                    .diary = &shared->diaries[i],
	                    .next = (uint64_t)(i + 1) << 32,
	                    .hasty = i % WORKERS < 2};
	while (!atomic_load(&shared->stop) && atomic_load(&w.diary->count) < OPS) {
		do_op(&w);
		check_held(&w);
		nanosleep(&(struct timespec){0, (long)rng_below(&w.r, 1500000)}, NULL);
	}
	for (unsigned k = 0; k < HANDLES; k++)
		if (w.held[k].blob)
			sluice_blob_release(w.held[k].blob);
	return sluice_store_close(w.store) ? 1 : 0;
}

/* ------------------------------------------------------------------------------------- a history */

/* What happened to the daemon, from when to when. */
static struct {
	double from, to;
} breaks[BREAKS];
static unsigned break_count;

static bool is_broken(const struct op *op)
{
	for (unsigned i = 0; i < break_count; i++)
		if (op->begun <= breaks[i].to && (!op->ended || op->ended >= breaks[i].from))
			return true;
	return false;
}

static void print_around(const struct event *events, size_t count, const struct op *bad)
{
	for (size_t i = 0; i < count; i++)
		if (!events[i].end && events[i].op->begun > bad->begun - 0.2 &&
		    events[i].op->begun <= bad->ended)
			print_message("%.6f to %.6f: %s %llx, before %llx: %d%s\n",
			              events[i].op->begun, events[i].op->ended,
			              texts[events[i].op->what],
			              (unsigned long long)events[i].op->value,
			              (unsigned long long)events[i].op->old, events[i].op->rc,
			              is_broken(events[i].op) ? " (a server was replaced)" : "");
}

static size_t check_name(unsigned name, unsigned rows)
{
	struct event *events = malloc((size_t)rows * OPS * 2 * sizeof(*events));
	const struct op *bad;
	size_t count = 0;

	assert_non_null(events);
	for (unsigned i = 0; i < rows; i++)
		for (unsigned k = 0; k < atomic_load(&shared->diaries[i].count); k++)
			if (shared->diaries[i].ops[k].name == name)
				count = add_events(events, count, &shared->diaries[i].ops[k]);
	bad = check_events(events, count);
	if (bad) {
		print_around(events, count, bad);
		fail_msg("%s: no order of the calls explains %s %llx: %d", name_at(name),
		         texts[bad->what], (unsigned long long)bad->value, bad->rc);
	}
	free(events);
	return count / 2;
}

/* --------------------------------------------------------------------------------------- deaths */

struct play {
	struct daemon *d;
	struct rng r;
	pid_t workers[WORKERS];
	unsigned started;
	unsigned done[5];
};

static char next[220]; /* the file with the step at which a server dies */

static void next_death_at(const char *step)
{
	char path[240];
	FILE *f;

	snprintf(path, sizeof(path), "%s.new", next);
	f = fopen(path, "we");
	assert_non_null(f);
	fputs(step, f);
	fclose(f);
	assert_int_equal(rename(path, next), 0);
}

static void worker_start(struct play *p, unsigned i)
{
	/* The first two of each WORKERS numbers are those of the hasty ones. */
	unsigned number = p->started + (i + WORKERS - p->started % WORKERS) % WORKERS;

	p->workers[i] = number < ROWS ? child_start("work", p->d, named("%u", number)) : 0;
	p->started = SL_MAX(p->started, SL_MIN(number + 1, ROWS));
}

/* At once, with requests that it has not read, or at a step. */
static void kill_server(struct play *p)
{
	static const char *const steps[] = {"server: entered", "server: prepared", "server: sealed",
	                                    "server: delete is noted", "server: deleted"};
	size_t how = rng_below(&p->r, COUNT_OF(steps) + 3);
	pid_t server = daemon_server(p->d, 0);

	if (how < COUNT_OF(steps)) {
		next_death_at(steps[how]);
		for (int i = 0; i < 500 && !access(next, F_OK); i++)
			sleep_ms(1);
	} else if (how > COUNT_OF(steps)) {
		kill(server, SIGSTOP);
		sleep_ms(2 + (unsigned)rng_below(&p->r, 10));
	}
	if (how >= COUNT_OF(steps) || !unlink(next))
		kill(server, SIGKILL);
	daemon_server(p->d, server);
}

static void kill_supervisor(struct play *p)
{
	daemon_replace_supervisor(p->d);
}

static void kill_worker(struct play *p)
{
	unsigned i = (unsigned)rng_below(&p->r, WORKERS);

	if (!p->workers[i])
		return;
	kill(p->workers[i], SIGKILL);
	child_status(p->workers[i]);
	worker_start(p, i);
}

static void upgrade(struct play *p)
{
	int rc = sluice_store_upgrade(p->d->store);

	if (rc && rc != -EBUSY && rc != -EAGAIN)
		fail_msg("upgrade: %d: %s", rc, sluice_last_message());
}

/* The next server comes when those that wait a while have given up. */
static void come_late(struct play *p)
{
	pid_t server = daemon_server(p->d, 0), supervisor = daemon_supervisor(p->d, 0);

	kill(supervisor, SIGSTOP);
	kill(server, SIGKILL);
	sleep_ms(2200 + (unsigned)rng_below(&p->r, 500));
	kill(supervisor, SIGCONT);
	daemon_server(p->d, server);
}

static void break_something(struct play *p, unsigned what)
{
	static void (*const acts[])(struct play *) = {kill_server, kill_supervisor, kill_worker,
	                                              upgrade, come_late};

	breaks[break_count].from = seconds_now();
	acts[what](p);
	/* Both of the daemon's processes are there again, and speak. */
	stats_of(p->d->store);
	sleep_ms(20);
	breaks[break_count++].to = seconds_now();
	p->done[what]++;
}

/* Each of the daemon and its clients' ends some times, by chance in which order. */
static void play(struct play *p, unsigned count)
{
	for (unsigned i = 0; i < WORKERS; i++)
		worker_start(p, i);
	for (unsigned i = 0; i < count && !atomic_load(&shared->wrong); i++) {
		sleep_ms(50 + (unsigned)rng_below(&p->r, 250));
		break_something(
			p, i == count / 2 ? 4 : (unsigned)rng_below(&p->r, under_stress() ? 5 : 4));
	}
	sleep_ms(300);
	atomic_store(&shared->stop, true);
	for (unsigned i = 0; i < WORKERS; i++)
		if (p->workers[i])
			assert_int_equal(child_status(p->workers[i]), 0);
}

static void run(unsigned number)
{
	struct play p = {.r = rng_new(1000 + number)};
	size_t ops = 0;

	atomic_store(&shared->stop, false);
	for (unsigned i = 0; i < ROWS; i++)
		atomic_store(&shared->diaries[i].count, 0);
	break_count = 0;
	setenv("SLUICE_TEST_SEED", named("%llu", (unsigned long long)(test_seed() + number)), 1);
	daemon_setup((void **)&p.d);
	play(&p, under_stress() ? 30 : 8);
	for (unsigned name = 0; name < NAMES; name++)
		sluice_blob_delete(p.d->store, name_at(name));
	assert_idle(p.d->store);
	/* Its supervisor may be no child of ours any more, which a failure would leave behind. */
	daemon_end(p.d, daemon_supervisor(p.d, 0));
	if (atomic_load(&shared->wrong))
		fail_msg("%s", shared->text);
	for (unsigned name = 0; name < NAMES; name++)
		ops += check_name(name, p.started);
	print_message("%zu calls; servers killed %u, supervisors %u, clients %u, upgrades %u, late "
	              "servers %u\n",
	              ops, p.done[0], p.done[1], p.done[2], p.done[3], p.done[4]);
}

TEST(there_is_an_order_of_all_calls_and_what_is_held_stays)
{
	for (unsigned i = 0; i < (under_stress() ? 10 : 1); i++)
		run(i);
}

int main(int argc, char **argv)
{
	static const char *const options[] = {"--memory", "256M", NULL};
	static const struct child_role roles[] = {{"work", work}, {NULL, NULL}};

	shared = shared_memory(sizeof(*shared));
	child_run(argc, argv, roles);
	row_start(1, argv);
	snprintf(next, sizeof(next), "%s/history-next-%d", getenv("SLUICE_TEST_DIR"),
	         (int)getpid());
	setenv("SLUICE_TEST_NEXT", next, 1);
	daemon_options = options;
	return RUN_FILES("history_check", "history_test");
}
