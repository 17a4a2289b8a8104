/* SPDX-License-Identifier: Apache-2.0 */
/* Processes that are killed while blobs leave memory and come back: SLUICED is the daemon with steps.c. */
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/kill_matrix.h"

#define WORKERS 4

/* What all processes of the test share. */
static struct {
	_Atomic uint64_t rounds, failed, wrong;
	_Atomic uint32_t ready, stop;
	char text[256];
} * shared;

static char folder[200], hung[220];

/* ------------------------------------------------------------------------------------ steps */

/* Puts a blob, as often as that takes. */
static void put_anyway(sluice_store *store, const char *name, size_t n, unsigned flags)
{
	assert_ok(sluice_blob_release(put_at_last(store, name, n, flags)));
}

static size_t size_of(unsigned i)
{
	static const size_t sizes[] = {100, 4096, 70000, 1500000, 3000000, 5000};

	return sizes[i % COUNT_OF(sizes)] + i;
}

enum { BLOBS = 48 };

/* More than twice what there is memory for: all of it leaves, and comes back. */
static void live(struct daemon *d)
{
	const uint64_t limit = stats_of(d->store).memory_limit;
	const unsigned blobs = (unsigned)(limit / MIB) * 3;

	for (unsigned i = 0; i < blobs; i++)
		put_anyway(d->store, named("b/%u", i), size_of(i), 0);
	for (unsigned i = 0; i < 2 * blobs; i++) {
		unsigned k = i * 29 % blobs;

		assert_there(d->store, named("b/%u", k), size_of(k));
		assert_true(stats_of(d->store).memory_bytes <= limit);
	}
	for (unsigned i = 0; i < blobs; i++)
		assert_ok(sluice_blob_delete(d->store, named("b/%u", i)));
	assert_idle_but(d->store, 1);
	assert_int_equal(stats_of(d->store).spilled, 0);
	/* Files count until they are closed. */
	for (int i = 0; i < 5000 && stats_of(d->store).spilled_bytes; i++)
		sleep_ms(1);
	assert_int_equal(stats_of(d->store).spilled_bytes, 0);
}

TEST(spill_death_loses_nothing_wherever_the_server_dies)
{
	static const char *const steps[] = {"server: copying",         "server: copied",
	                                    "server: withdrawn",       "server: nobody holds it",
	                                    "server: memory given up", "server: reading",
	                                    "server: memory is back",  "server: a blob is back",
	                                    "server: returned",        NULL};
	static const char *const little[] = {"--memory", "8M", "--spill", folder, NULL};
	const char *const *usual = daemon_options;
	unsigned passes = under_stress() ? 40 : 3;

	daemon_options = under_stress() ? usual : little;
	assert_true(kill_matrix_run(&(struct kill_matrix){steps, passes, .sparse = true,
	                                                  .live = live}) >= 25);
	daemon_options = usual;
}

TEST(spilled_blob_without_room_to_return_is_refused)
{
	struct sluice_blob_info info = {.size = sizeof(info)};
	struct daemon *d;
	sluice_blob *blob;

	setenv("SLUICE_TEST_NO_MEMORY", "3", 1);
	daemon_setup((void **)&d);
	unsetenv("SLUICE_TEST_NO_MEMORY");
	for (unsigned i = 0; i < 8; i++)
		put_anyway(d->store, named("b/%u", i), 3 * MIB, 0);
	for (unsigned i = 0; i < 8 && info.state != SLUICE_BLOB_IS_SPILLED; i++)
		assert_ok(sluice_blob_stat(d->store, named("b/%u", i), &info));
	assert_int_equal(info.state, SLUICE_BLOB_IS_SPILLED);
	assert_refused(sluice_blob_get(d->store, info.name, -1, &blob), ENOMEM, "memory");
	assert_refused(sluice_blob_get(d->store, info.name, 0, &blob), ENOMEM, "memory");
	assert_refused(sluice_blob_pin(d->store, info.name, 1), ENOMEM, "memory");
	assert_int_equal(stats_of(d->store).waiting, 0);
	assert_there(d->store, info.name, 3 * MIB);
	for (unsigned i = 0; i < 8; i++)
		assert_ok(sluice_blob_delete(d->store, named("b/%u", i)));
	assert_idle(d->store);
	daemon_teardown((void **)&d);
}

/* ------------------------------------------------------------------------------------- hot */

/* Gets, looks and releases, as fast as that goes: mostly without the server. */
struct reader {
	sluice_store *store;
	_Atomic int *stop;
	unsigned gets;
	bool wrong;
};

static void *read_all_the_time(void *argument)
{
	struct reader *reader = argument;

	while (!atomic_load(reader->stop) && !reader->wrong) {
		sluice_blob *blob;
		const char *name = named("hot/%u", reader->gets % 4);

		if (sluice_blob_get(reader->store, name, 0, &blob)) {
			reader->wrong = true;
			break;
		}
		reader->wrong = !blob_is(blob, name, 20000);
		usleep(300);
		reader->wrong = reader->wrong || !blob_is(blob, name, 20000);
		sluice_blob_release(blob);
		usleep(300);
		reader->gets++;
	}
	return NULL;
}

/* Makes them leave again and again, with a pause in which others may get them. */
static unsigned drive_out(struct daemon *d, unsigned times)
{
	_Atomic int stop = 0;
	struct reader reader = {.store = daemon_connect(d), .stop = &stop};
	unsigned made = 0;
	pthread_t thread;
	int rc = 0;

	pthread_create(&thread, NULL, read_all_the_time, &reader);
	for (unsigned i = 0; i < times && (!rc || rc == -ENOSPC) && !reader.wrong; i++) {
		sluice_blob *blob;

		rc = sluice_blob_create(d->store, "", 8 * MIB, -1, NULL, &blob);
		made += !rc;
		if (!rc)
			assert_ok(sluice_blob_release(blob));
		usleep(2000);
	}
	atomic_store(&stop, 1);
	pthread_join(thread, NULL);
	assert_false(reader.wrong);
	assert_true(rc == 0 || rc == -ENOSPC);
	assert_ok(sluice_store_close(reader.store));
	return made;
}

static void put_hot(struct daemon *d, unsigned flags)
{
	/* Who has places for more in their memory keeps it from leaving. */
	sluice_store *other = daemon_connect(d);

	for (unsigned i = 0; i < 4; i++)
		put_anyway(other, named("hot/%u", i), 20000, flags);
	assert_ok(sluice_store_close(other));
}

TEST(blob_got_during_deletion_stays)
{
	struct daemon *d;
	unsigned made;

	setenv("SLUICE_TEST_PAUSE", "server: chosen", 1);
	daemon_setup((void **)&d);
	/* What is left is 8 MiB and 76 KiB: not enough for all four. */
	put_anyway(d->store, "f/0", 7 * MIB, SLUICE_BLOB_PIN);
	put_anyway(d->store, "f/1", 896 * 1024, SLUICE_BLOB_PIN);
	put_anyway(d->store, "f/2", 53248, SLUICE_BLOB_PIN | SLUICE_BLOB_ALONE);
	put_hot(d, SLUICE_BLOB_ALONE);
	made = drive_out(d, 150);
	print_message("%u times, %llu returns\n", made,
	              (unsigned long long)stats_of(d->store).returns);
	assert_true(stats_of(d->store).returns > 10);
	daemon_teardown((void **)&d);
	unsetenv("SLUICE_TEST_PAUSE");
}

/* What is left is 8 MiB and less than they take. */
static void leave_less(struct daemon *d)
{
	put_anyway(d->store, "f/0", 15 * MIB / 2, SLUICE_BLOB_PIN);
	put_anyway(d->store, "f/1", 448 * 1024, SLUICE_BLOB_PIN);
	put_hot(d, 0);
	drive_out(d, 10);
}

TEST(some_held_and_some_not_when_the_server_dies)
{
	static const char *const steps[] = {"server: stays", NULL};

	setenv("SLUICE_TEST_PAUSE", "server: chosen", 1);
	kill_matrix_run(&(struct kill_matrix){steps, 4, .each = true, .live = leave_less});
	unsetenv("SLUICE_TEST_PAUSE");
}

/* ------------------------------------------------------------------------------------- load */

static void wrong(const char *what)
{
	if (!atomic_fetch_add(&shared->wrong, 1))
		snprintf(shared->text, sizeof(shared->text), "%s: %s", what, sluice_last_message());
}

static bool look_at(sluice_store *store, const char *name, size_t n)
{
	sluice_blob *blob;

	if (sluice_blob_get(store, name, 0, &blob)) {
		wrong("get of what was sealed");
		return false;
	}
	if (!blob_is(blob, name, n))
		wrong("bytes");
	sluice_blob_release(blob);
	return true;
}

/* Keeps a few dozen blobs, of which each round replaces one and reads another one, and one of those of all. */
static int work(const struct daemon *d, const char *argument)
{
	enum { KEPT = 24 };
	unsigned number = (unsigned)atoi(argument);
	struct rng r = {number * UINT64_C(7919) + 17};
	size_t sizes[KEPT] = {0};
	sluice_blob *blob;
	sluice_store *store;
	char name[32];

	if (sluice_store_open(d->path, NULL, &store))
		return 1;
	atomic_fetch_add(&shared->ready, 1);
	while (!atomic_load(&shared->stop)) {
		unsigned i = (unsigned)rng_below(&r, KEPT);
		int rc;

		snprintf(name, sizeof(name), "w%u/%u", number, i);
		rc = sizes[i] ? sluice_blob_delete(store, name) : 0;
		/* The server that has done it may have died before it said so. */
		if (rc && rc != -ENOENT)
			wrong("delete");
		sizes[i] = 0;
		rc = try_put(store, name, 1 + rng_below(&r, i % 4 ? 9000 : 2 * MIB), 0, &blob);
		if (rc == -ECONNRESET) {
			atomic_fetch_add(&shared->failed, 1);
			continue;
		}
		if (rc) {
			wrong("put");
			break;
		}
		sizes[i] = sluice_blob_size(blob);
		sluice_blob_release(blob);
		i = (unsigned)rng_below(&r, KEPT);
		if (sizes[i] && !look_at(store, named("w%u/%u", number, i), sizes[i]))
			break;
		i = (unsigned)rng_below(&r, BLOBS);
		if (!look_at(store, named("kept/%u", i), size_of(i)))
			break;
		atomic_fetch_add(&shared->rounds, 1);
	}
	for (unsigned i = 0; i < KEPT; i++)
		if (sizes[i] && sluice_blob_delete(store, named("w%u/%u", number, i)))
			wrong("delete at the end");
	return sluice_store_close(store) ? 2 : 0;
}

TEST(spilled_blobs_outlive_servers)
{
	static const char *const options[] = {"--memory", "48M", "--spill", folder, NULL};
	const char *const *usual = daemon_options;
	struct daemon *d;
	pid_t workers[WORKERS], server = 0;
	uint64_t left = 0, returned = 0;
	unsigned rounds = getenv("STRESS") ? 300 : 20;

	/* Each client has memory for blobs to come, which does not leave. */
	daemon_options = options;
	daemon_setup((void **)&d);
	daemon_options = usual;
	for (unsigned i = 0; i < BLOBS; i++) {
		put_anyway(d->store, named("kept/%u", i), size_of(i), 0);
	}
	for (unsigned i = 0; i < WORKERS; i++)
		workers[i] = child_start("work", d, (const char[]){(char)('0' + i), 0});
	while (atomic_load(&shared->ready) < WORKERS)
		sleep_ms(1);
	for (unsigned i = 0; i < rounds; i++) {
		double until = seconds_now() + 30;
		struct sluice_store_counts s = stats_of(d->store);
		uint64_t before;

		left += s.spills;
		returned += s.returns;

		server = daemon_server(d, server);
		kill(server, SIGKILL);
		before = atomic_load(&shared->rounds);
		while (atomic_load(&shared->rounds) < before + 30 && !atomic_load(&shared->wrong))
			if (seconds_now() > until)
				fail_msg("nobody gets on after death %u", i);
			else
				sleep_ms(1);
	}
	atomic_store(&shared->stop, 1);
	for (unsigned i = 0; i < WORKERS; i++)
		assert_int_equal(child_status(workers[i]), 0);
	if (atomic_load(&shared->wrong))
		fail_msg("%llu times; the first: %s", (unsigned long long)shared->wrong,
		         shared->text);
	for (unsigned i = 0; i < BLOBS; i++) {
		const char *name = named("kept/%u", i);

		assert_there(d->store, name, size_of(i));
		assert_ok(sluice_blob_delete(d->store, name));
	}
	print_message("%llu rounds, %llu blobs lost before their seal, at least %llu left, %llu "
	              "returned\n",
	              (unsigned long long)shared->rounds, (unsigned long long)shared->failed,
	              (unsigned long long)left, (unsigned long long)returned);
	assert_true(left > rounds && returned > rounds);
	assert_idle(d->store);
	/* All memory is there for others again, but what this client has for blobs to come. */
	put_anyway(d->store, "all", 40 * MIB, 0);
	assert_ok(sluice_blob_delete(d->store, "all"));
	daemon_teardown((void **)&d);
}

/* ----------------------------------------------------------------------------------- supervisor */

/* A supervisor that the server has made makes servers that spill, as the first one did. */
TEST(a_new_supervisor_has_the_files_too)
{
	struct daemon *d;
	pid_t server, supervisor;

	daemon_setup((void **)&d);
	server = daemon_server(d, 0);
	supervisor = d->supervisor;
	for (unsigned i = 0; i < BLOBS; i++)
		put_anyway(d->store, named("b/%u", i), size_of(i), 0);
	for (int i = 0; i < 3; i++) {
		kill(supervisor, SIGKILL);
		if (i == 0)
			child_status(d->supervisor);
		supervisor = daemon_supervisor(d, supervisor);
		kill(server, SIGKILL);
		server = daemon_server(d, server);
		for (unsigned k = 0; k < BLOBS; k++)
			assert_there(d->store, named("b/%u", k), size_of(k));
		assert_true(stats_of(d->store).returns > 0);
	}
	daemon_end(d, supervisor);
}

/* ----------------------------------------------------------------------------------- a disk that hangs */

/* From now on the server's calls that read or write files wait, or go on. */
static void hang_disk(bool hangs)
{
	if (hangs)
		assert_ok(close(creat(hung, 0600)));
	else
		assert_ok(unlink(hung));
}

/* The server goes on while a create waits: others put and get what needs no new memory. */
struct creator {
	sluice_store *store;
	_Atomic int done;
	int rc;
};

static void *create_large(void *argument)
{
	struct creator *creator = argument;
	sluice_blob *blob;

	creator->rc = sluice_blob_create(creator->store, "large", 10 * MIB, -1, NULL, &blob);
	atomic_store(&creator->done, 1);
	if (!creator->rc)
		sluice_blob_release(blob);
	return NULL;
}

TEST(a_create_that_waits_holds_nobody_up)
{
	struct creator creator = {0};
	struct daemon *d;
	unsigned slow = 0;
	char name[20];
	pthread_t thread;

	daemon_setup((void **)&d);
	creator.store = daemon_connect(d);
	put_anyway(d->store, "small", 100, 0);
	for (unsigned i = 0; i < 6; i++)
		put_anyway(d->store, named("b/%u", i), 2 * MIB, 0);
	hang_disk(true);
	pthread_create(&thread, NULL, create_large, &creator);
	sleep_ms(50);
	for (int i = 0; i < 200; i++) {
		double start = seconds_now();

		snprintf(name, sizeof(name), "s/%d", i % 10);
		put_anyway(d->store, name, 100, 0);
		assert_there(d->store, "small", 100);
		assert_ok(sluice_blob_delete(d->store, name));
		slow += seconds_now() - start > 0.5;
	}
	assert_int_equal(atomic_load(&creator.done), 0);
	/* A loaded machine may hold them up now and then. */
	assert_in_range(slow, 0, 20);
	hang_disk(false);
	pthread_join(thread, NULL);
	assert_int_equal(creator.rc, 0);
	assert_ok(sluice_store_close(creator.store));
	assert_ok(sluice_blob_delete(d->store, "small"));
	for (unsigned i = 0; i < 6; i++)
		assert_ok(sluice_blob_delete(d->store, named("b/%u", i)));
	assert_idle(d->store);
	daemon_teardown((void **)&d);
}

/* ----------------------------------------------------------------------------------- client */

/* Waits for memory, or for the disk, and dies meanwhile. */
static int want(const struct daemon *d, const char *argument)
{
	sluice_store *store;
	sluice_blob *blob;

	if (sluice_store_open(d->path, NULL, &store))
		return 1;
	atomic_fetch_add(&shared->ready, 1);
	if (argument[0])
		sluice_blob_get(store, argument, 0, &blob);
	else
		sluice_blob_create(store, "", 12 * MIB, -1, NULL, &blob);
	sleep_ms(100000);
	return 1;
}

TEST(client_that_dies_while_waiting_leaves_nothing)
{
	struct daemon *d;
	pid_t clients[4];
	char name[20];

	daemon_setup((void **)&d);
	for (unsigned i = 0; i < BLOBS; i++)
		put_anyway(d->store, named("b/%u", i), size_of(i), 0);
	hang_disk(true);
	atomic_store(&shared->ready, 0);
	clients[0] = child_start("want", d, "");
	clients[1] = child_start("want", d, "b/3");
	clients[2] = child_start("want", d, "b/4");
	clients[3] = child_start("want", d, "b/3");
	while (atomic_load(&shared->ready) < 4)
		sleep_ms(1);
	sleep_ms(50);
	for (unsigned i = 0; i < 4; i++)
		kill(clients[i], SIGKILL);
	for (unsigned i = 0; i < 4; i++)
		child_status(clients[i]);
	hang_disk(false);
	for (unsigned i = 0; i < BLOBS; i++) {
		snprintf(name, sizeof(name), "b/%u", i);
		assert_there(d->store, name, size_of(i));
		assert_ok(sluice_blob_delete(d->store, name));
	}
	assert_idle(d->store);
	assert_int_equal(stats_of(d->store).waiting, 0);
	daemon_teardown((void **)&d);
}

/* An owner of so many bytes, with a part of as many. */
static void put_owner(sluice_store *store, const char *name, size_t n)
{
	struct sluice_blob_options alone = SLUICE_BLOB_OPTIONS_INIT;
	struct sluice_blob_request requests[] = {{NULL, n, -1, &alone}, {name, n, -1, &alone}};
	sluice_blob *blobs[2];

	alone.flags = SLUICE_BLOB_ALONE;
	assert_ok(sluice_blob_create_many(store, requests, 2, blobs));
	set_bytes(blobs[0], 1, n);
	set_bytes(blobs[1], 2, n);
	assert_ok(sluice_blob_adopt(blobs[1], blobs, 1));
	assert_ok(sluice_blob_seal(blobs[1]));
	assert_ok(sluice_blob_release(blobs[1]));
}

static void check_owner(sluice_store *store, const char *name)
{
	sluice_blob *owner = got(store, name), *part;

	assert_ok(sluice_blob_part(owner, 0, &part));
	assert_int_equal(byte_at(part, 0), 1);
	assert_int_equal(byte_at(owner, 0), 2);
	assert_ok(sluice_blob_release(owner));
}

/* A get has begun to read back an owner, whose part is in memory, and its client dies. */
TEST(part_stays_while_its_owner_comes_back)
{
	struct sluice_blob_info info = {.size = sizeof(info)};
	struct creator creator = {0};
	pthread_t thread;
	struct daemon *d;
	pid_t client;

	daemon_setup((void **)&d);
	creator.store = daemon_connect(d);
	/* All leaves, and returns, so that there are copies; then the owner leaves alone. */
	put_owner(d->store, "m", 4 * MIB);
	put_anyway(d->store, "x", 12 * MIB, 0);
	assert_ok(sluice_blob_delete(d->store, "x"));
	check_owner(d->store, "m");
	put_anyway(d->store, "y", 7 * MIB, 0);
	put_anyway(d->store, "z", 3 * MIB, 0);
	assert_ok(sluice_blob_delete(d->store, "z"));
	assert_ok(sluice_blob_stat(d->store, "m", &info));
	assert_int_equal(info.state, SLUICE_BLOB_IS_SPILLED);
	assert_int_equal(info.memory, 4 * MIB);
	hang_disk(true);
	atomic_store(&shared->ready, 0);
	client = child_start("want", d, "m");
	while (!atomic_load(&shared->ready) || !stats_of(d->store).waiting)
		sleep_ms(1);
	kill(client, SIGKILL);
	child_status(client);
	while (stats_of(d->store).waiting)
		sleep_ms(1);
	pthread_create(&thread, NULL, create_large, &creator);
	sleep_ms(300);
	hang_disk(false);
	pthread_join(thread, NULL);
	assert_int_equal(creator.rc, 0);
	check_owner(d->store, "m");
	assert_ok(sluice_store_close(creator.store));
	assert_ok(sluice_blob_delete(d->store, "m"));
	assert_ok(sluice_blob_delete(d->store, "y"));
	assert_idle(d->store);
	daemon_teardown((void **)&d);
}

int main(int argc, char **argv)
{
	static const char *const options[] = {"--memory", "16M", "--spill", folder, NULL};
	static const struct child_role roles[] = {{"work", work}, {"want", want}, {NULL, NULL}};
	int failed;

	shared = shared_memory(sizeof(*shared));
	child_run(argc, argv, roles);
	row_start(1, argv);
	snprintf(folder, sizeof(folder), "%s/spill-death-%d", getenv("SLUICE_TEST_DIR"),
	         (int)getpid());
	if (mkdir(folder, 0700))
		return 1;
	kill_matrix_begin("spill");
	snprintf(hung, sizeof(hung), "%s-hung", folder);
	setenv("SLUICE_TEST_HUNG", hung, 1);
	daemon_options = options;
	failed = RUN_TESTS(NULL, NULL);
	rmdir(folder);
	return failed;
}
