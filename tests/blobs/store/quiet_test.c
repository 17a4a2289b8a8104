/* SPDX-License-Identifier: Apache-2.0 */
/* What a client does without a system call: in a process that the kernel ends at any of them. */
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/daemon.h"
#include "store/forbid.h"

enum { BLOBS = 8, ROUNDS = 100000, NOT_POSSIBLE = 3 };

static const size_t sizes[BLOBS] = {1, 4096, 5000, 65536, 65537, MIB, 3 * MIB, 9 * MIB};

static void name_of(unsigned i, char name[32])
{
	snprintf(name, 32, "weights/%u", i);
}

/* 0: it was there, and is what was put there. */
static int get_one(sluice_store *store, const char *name, uint64_t id, size_t n)
{
	sluice_blob *blob;
	int wrong;

	if (id ? sluice_blob_get_id(store, id, 1000, &blob)
	       : sluice_blob_get(store, name, 1000, &blob))
		return 1;
	wrong = sluice_blob_size(blob) != n || !sluice_blob_data(blob) ||
	        ((const char *)sluice_blob_data(blob))[n - 1] != 5;
	return sluice_blob_release(blob) || wrong;
}

/*
 * ids: of blobs without a name, for the catalogue shows no others by their id; or "": by name. Each is got once, so
 * that it is mapped, but for the last one, which has memory of its own, if new_one is true; then only what is to be shown.
 */
static int client(const struct daemon *d, const char *ids, bool new_one)
{
	sluice_store *store = daemon_connect(d);
	uint64_t id[BLOBS] = {0};
	char names[BLOBS][32];
	int wrong = 0;

	for (unsigned i = 0; i < BLOBS; i++) {
		name_of(i, names[i]);
		id[i] = strtoull(ids, (char **)&ids, 10);
		if (!new_one || i + 1 < BLOBS)
			wrong |= get_one(store, names[i], id[i], sizes[i]);
	}
	if (wrong)
		_exit(1);
	if (!forbid_system_calls())
		_exit(NOT_POSSIBLE);
	for (unsigned i = 0; i < ROUNDS && !wrong; i++)
		wrong = get_one(store, names[i % BLOBS], id[i % BLOBS], sizes[i % BLOBS]);
	syscall(SYS_exit_group, wrong);
	return 1;
}

static int gets(const struct daemon *d, const char *ids)
{
	return client(d, ids, false);
}

static int gets_a_new_one(const struct daemon *d, const char *ids)
{
	return client(d, ids, true);
}

static const struct child_role roles[] = {
	{"gets", gets}, {"gets a new one", gets_a_new_one}, {NULL, NULL}};

/* All of them; with names, or ids that it tells. */
static void publish(sluice_store *store, bool names, char *ids)
{
	for (unsigned i = 0; i < BLOBS; i++) {
		sluice_blob *blob;
		char name[32];

		name_of(i, name);
		assert_ok(
			sluice_blob_create(store, names ? name : NULL, sizes[i], -1, NULL, &blob));
		memset(sluice_blob_mutable_data(blob), 5, sizes[i]);
		assert_ok(sluice_blob_seal(blob));
		ids += names ? 0 : sprintf(ids, "%llu ", (unsigned long long)sluice_blob_id(blob));
		assert_ok(sluice_blob_release(blob));
	}
}

DAEMON_TEST(getting_a_blob_again_makes_no_system_call)
{
	char ids[BLOBS * 24] = "";
	int by_name, by_id, new_one;

	publish(d->store, true, ids);
	publish(d->store, false, ids);
	by_name = child_status(child_start("gets", d, ""));
	by_id = child_status(child_start("gets", d, ids));
	new_one = child_status(child_start("gets a new one", d, ""));
	if (WIFEXITED(by_name) && WEXITSTATUS(by_name) == NOT_POSSIBLE) {
		print_message("[  reason  ] this system lets nobody forbid system calls\n");
		skip();
	}
	assert_true(WIFEXITED(by_name) && WIFEXITED(by_id));
	assert_int_equal(WEXITSTATUS(by_name), 0);
	assert_int_equal(WEXITSTATUS(by_id), 0);
	assert_true(WIFSIGNALED(new_one));
	assert_int_equal(WTERMSIG(new_one), SIGSYS);
}

int main(int argc, char **argv)
{
	child_run(argc, argv, roles);
	return RUN_TESTS(NULL, NULL);
}
