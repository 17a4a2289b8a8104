/* SPDX-License-Identifier: Apache-2.0 */
/* The server killed at each of its steps while owners with parts are made, replaced, spilled and deleted. */
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/kill_matrix.h"
#include "lib/parts.h"

static char folder[200];

/* Has one or the other afterwards, as a whole, and the old one is whole for its holder. */
static void replace(sluice_store *store, unsigned flags)
{
	sluice_blob *old = parts_put_at_last(store, "m", 11, 0), *made;
	int rc;

	do {
		rc = parts_put(store, "m", 12, SLUICE_BLOB_REPLACE | flags, &made);
		assert_true(rc == 0 || rc == -ECONNRESET);
		assert_parts(store, "m", rc ? 11 : 12);
		assert_int_equal(parts_value(old), 11);
	} while (rc);
	assert_int_equal(parts_value(made), 12);
	assert_ok(sluice_blob_release(old));
	assert_ok(sluice_blob_release(made));
}

static void live(struct daemon *d)
{
	for (unsigned i = 0; i < 3; i++) {
		sluice_blob *made =
			parts_put_at_last(d->store, "n", 13 + i, i == 1 ? SLUICE_BLOB_RESERVE : 0);
		sluice_blob *read = got(d->store, "n");

		replace(d->store, 0);
		assert_ok(sluice_blob_delete(d->store, "n"));
		assert_ok(sluice_blob_delete(d->store, "m"));
		assert_int_equal(parts_value(read), 13 + i);
		assert_ok(sluice_blob_release(made));
		assert_int_equal(parts_value(read), 13 + i);
		assert_ok(sluice_blob_release(read));
	}
	assert_idle_but(d->store, 1);
	if (ON_DEVICE)
		assert_memory_is(d->store, place(), 0);
}

TEST(owners_and_parts_are_whole_wherever_the_server_dies)
{
	static const char *const steps[] = {"server: created",           "server: entered",
	                                    "server: prepared",          "server: sealed",
	                                    "server: delete is noted",   "server: deleted",
	                                    "server: a part is deleted", NULL};

	assert_true(kill_matrix_run(&(struct kill_matrix){steps, under_stress() ? 40 : 12,
	                                                  .live = live}) >= 40);
}

/* More than there is memory for: all of it leaves, and comes back. */
static void live_with_little(struct daemon *d)
{
	enum { COUNT = 24 };

	for (unsigned i = 1; i < COUNT; i++)
		assert_ok(sluice_blob_release(parts_put_at_last(d->store, named("b/%u", i), i, 0)));
	for (unsigned i = 0; i < 2 * COUNT; i++) {
		unsigned value = 1 + i * 7 % (COUNT - 1);

		assert_parts(d->store, named("b/%u", value), value);
	}
	for (unsigned i = 1; i < COUNT; i++)
		assert_ok(sluice_blob_delete(d->store, named("b/%u", i)));
	assert_idle_but(d->store, 1);
	assert_int_equal(stats_of(d->store).spilled, 0);
}

TEST(spilled_parts_are_whole_wherever_the_server_dies)
{
	static const char *const steps[] = {"server: copying",         "server: copied",
	                                    "server: withdrawn",       "server: nobody holds it",
	                                    "server: memory given up", "server: reading",
	                                    "server: memory is back",  "server: a blob is back",
	                                    "server: returned",        NULL};
	static const char *const little[] = {"--memory", "12M", "--spill", folder, NULL};
	const char *const *usual = daemon_options;

	if (ON_DEVICE)
		skip();
	daemon_options = little;
	assert_true(kill_matrix_run(&(struct kill_matrix){steps, under_stress() ? 30 : 3,
	                                                  .sparse = true,
	                                                  .live = live_with_little}) >= 20);
	daemon_options = usual;
}

int main(int argc, char **argv)
{
	static const char *const options[] = {"--memory", "64M", NULL};
	int failed;

	row_start(1, argv);
	(void)argc;
	snprintf(folder, sizeof(folder), "%s/parts-death-%d", getenv("SLUICE_TEST_DIR"),
	         (int)getpid());
	if (mkdir(folder, 0700))
		return 1;
	kill_matrix_begin("parts-step");
	daemon_options = options;
	failed = RUN_TESTS(NULL, NULL);
	rmdir(folder);
	return failed;
}
