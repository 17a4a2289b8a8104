/* SPDX-License-Identifier: Apache-2.0 */
/* Spilling with two users, who are not to notice each other. SLUICED has 64 MiB, and is root's. */
#include <dirent.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include "store/raw.h"

#define NOBODY 65534
#define LARGE  (9 * MIB)

static char folder[200];

/* A client of another user. */
static struct raw *new_as_nobody(const struct daemon *d)
{
	struct raw *c;

	assert_int_equal(seteuid(NOBODY), 0);
	c = raw_new(d);
	assert_int_equal(seteuid(0), 0);
	return c;
}

static void put_raw(struct raw *c, const char *name, uint64_t bytes)
{
	struct sl_lease leases[2 * SL_ITEMS_MOST];
	struct sl_found_item found;
	int count = raw_create(c, -1, SLUICE_BLOB_ON_HOST, bytes, 0, "", leases);

	assert_true(count > 0);
	for (int i = 1; i < count; i++)
		raw_tell(c, SL_ABORT, leases[i].ticket);
	assert_int_equal(raw_seal(c, &leases[0], name, bytes, 0, 0, &found), 0);
	if (found.lease.ticket)
		raw_tell(c, SL_ABORT, found.lease.ticket);
	/* It has the answer, which the server need not hold any more. */
	raw_tell(c, SL_DROP, leases[0].place.region);
}

static bool is_away(struct raw *c, const char *name)
{
	raw_begin(c, SL_STAT, 0);
	strcpy(c->m.one.key.name, name);
	assert_int_equal(raw_ask(c), 0);
	return c->m.info.items[0].state == SLUICE_BLOB_IS_SPILLED;
}

/* Puts others until that one has left; and deletes them. */
static void drive_out(struct daemon *d, struct raw *c, const char *name)
{
	unsigned count = 0;
	char other[20];

	for (; !is_away(c, name) && count < 40; count++) {
		snprintf(other, sizeof(other), "other/%u", count);
		assert_ok(sluice_blob_release(put(d->store, other, LARGE, 0)));
	}
	assert_true(is_away(c, name));
	while (count--) {
		snprintf(other, sizeof(other), "other/%u", count);
		assert_ok(sluice_blob_delete(d->store, other));
	}
}

/* What is in the files of the server is lost. */
static void cut_files(const struct daemon *d)
{
	pid_t server = daemon_server(d, 0);
	char path[300], target[300];
	unsigned count = 0;
	struct dirent *e;
	DIR *fds;

	snprintf(path, sizeof(path), "/proc/%d/fd", (int)server);
	fds = opendir(path);
	assert_non_null(fds);
	while ((e = readdir(fds))) {
		ssize_t n;

		snprintf(path, sizeof(path), "/proc/%d/fd/%s", (int)server, e->d_name);
		n = readlink(path, target, sizeof(target) - 1);
		target[n > 0 ? n : 0] = '\0';
		count += !strncmp(target, folder, strlen(folder)) && !truncate(path, 4096);
	}
	closedir(fds);
	assert_true(count > 0);
}

static void begin_get(struct raw *c, const char *name)
{
	raw_begin(c, SL_GET, 1);
	strcpy(c->m.get.items[0].name, name);
	assert_true(raw_send(c->fd, &c->m, c->m.head.bytes));
}

static int end_get(struct raw *c)
{
	assert_true(raw_receive(c->fd, &c->m, NULL) > 0);
	return c->m.head.error;
}

static void what_one_cannot_read_back_another_one_gets_by_the_same_name(void **state)
{
	struct daemon *d = *state;
	struct raw *one = raw_new(d), *other = new_as_nobody(d);
	pid_t spiller = daemon_process(d, "sluiced-spill", 0);

	put_raw(one, "x", LARGE);
	drive_out(d, one, "x");
	cut_files(d);
	put_raw(other, "x", LARGE);
	drive_out(d, other, "x");
	/* So that both are waited for at the same time. */
	kill(spiller, SIGSTOP);
	begin_get(one, "x");
	sleep_ms(20);
	begin_get(other, "x");
	sleep_ms(20);
	kill(spiller, SIGCONT);
	assert_int_equal(end_get(one), -EIO);
	assert_int_equal(end_get(other), 0);
	assert_int_equal(raw_delete(one, "x"), 0);
	assert_int_equal(raw_delete(other, "x"), 0);
	raw_end(one);
	raw_end(other);
}

/* That of the one is kept, whatever the other one wants beyond his quota. */
static void who_is_short_of_his_quota_takes_nothing_from_others(void **state)
{
	static const char *const options[] = {
		"--memory", "64M", "--quota-memory", "32M", "--allow-user", "65534", NULL};
	const char *const *before = daemon_options;
	struct sl_lease leases[2 * SL_ITEMS_MOST];
	struct daemon *d;
	struct raw *other;

	(void)state;
	daemon_options = options;
	daemon_setup((void **)&d);
	daemon_options = before;
	assert_ok(sluice_blob_release(put(d->store, "kept", LARGE, 0)));
	assert_ok(sluice_blob_delete(d->store, "kept"));
	other = new_as_nobody(d);
	put_raw(other, "x", 20 * MIB);
	assert_int_equal(raw_create(other, -1, SLUICE_BLOB_ON_HOST, 20 * MIB, 0, "", leases),
	                 -EDQUOT);
	assert_true(stats_of(d->store).warm_bytes >= LARGE);
	assert_int_equal(raw_delete(other, "x"), 0);
	raw_end(other);
	daemon_teardown((void **)&d);
}

int main(int argc, char **argv)
{
	static const char *const options[] = {"--memory",     "64M",   "--spill", folder,
	                                      "--allow-user", "65534", NULL};
	const struct CMUnitTest tests[] = {
		daemon_test(what_one_cannot_read_back_another_one_gets_by_the_same_name),
		cmocka_unit_test(who_is_short_of_his_quota_takes_nothing_from_others),
	};
	int failed;

	row_start(1, argv);
	(void)argc;
	if (getuid()) {
		printf("skipped: only root can be another user\n");
		return 77;
	}
	snprintf(folder, sizeof(folder), "%s/spill-users-%d", getenv("SLUICE_TEST_DIR"),
	         (int)getpid());
	if (mkdir(folder, 0700))
		return 1;
	daemon_options = options;
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	rmdir(folder);
	return failed;
}
