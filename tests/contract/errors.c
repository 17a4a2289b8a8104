/* SPDX-License-Identifier: Apache-2.0 */
/* Where an error goes, and what is said about it. */
#include <pthread.h>
#include <unistd.h>

#include "contract/contract.h"

FIXTURE_TEST(an_error_without_a_handle_comes_out_of_sync_once)
{
	sluice_file *file = open_both(f->ctx, scratch(f, "unheard"));

	assert_ok(sluice_write(file, NOWHERE, 5000, 0, NULL));
	assert_refused(sluice_sync(file), EFAULT, "unheard");
	assert_ok(sluice_sync(file));
	assert_ok(sluice_write(file, "fine", 4, 0, NULL));
	assert_ok(sluice_sync(file));
	assert_ok(sluice_close(file));
}

/* A read is waited for as well, and what became of it is told. */
FIXTURE_TEST(an_error_of_a_read_without_a_handle_comes_out_of_sync)
{
	const char *path = scratch(f, "unread");
	sluice_file *file;
	int round;

	file_make(path, 4 * MIB, 1);
	file = open_both(f->ctx, path);
	for (round = 0; round < 10; round++) {
		file_set_residency(path, round % 2 ? CACHED : COLD);
		assert_ok(sluice_read(file, NOWHERE, 4 * MIB, 0, NULL));
		assert_refused(sluice_sync(file), EFAULT, "unread");
	}
	assert_ok(sluice_close(file));
}

FIXTURE_TEST(an_error_without_a_handle_comes_out_of_close)
{
	const char *path = scratch(f, "unheard");
	sluice_file *file = open_both(f->ctx, path);

	assert_ok(sluice_write(file, "before", 6, 0, NULL));
	assert_ok(sluice_write(file, NOWHERE, 5000, 8192, NULL));
	assert_ok(sluice_write(file, "after", 5, 6, NULL));
	assert_refused(sluice_close(file), EFAULT, "unheard");
	assert_true(file_length(path) >= 11);
}

FIXTURE_TEST(an_error_with_a_handle_is_told_to_its_holder_only)
{
	sluice_file *file = open_both(f->ctx, scratch(f, "held"));

	assert_fails(start_write(file, NOWHERE, 5000, 0), EFAULT);
	assert_ok(sluice_sync(file));
	assert_ok(sluice_close(file));
}

FIXTURE_TEST(an_error_of_one_handle_does_not_come_out_of_another)
{
	sluice_file *a = open_both(f->ctx, scratch(f, "same"));
	sluice_file *b = open_both(f->ctx, scratch(f, "same"));

	assert_ok(sluice_write(a, NOWHERE, 5000, 0, NULL));
	assert_ok(sluice_sync(b));
	assert_refused(sluice_sync(a), EFAULT, "same");
	assert_ok(sluice_close(a));
	assert_ok(sluice_close(b));
}

/* The error of the background work decides: nothing takes the name. */
FIXTURE_TEST(an_error_without_a_handle_stops_the_replacement)
{
	const char *path = scratch(f, "replaced");
	int there;

	for (there = 0; there < 2; there++) {
		sluice_file *file = NULL;

		if (there)
			file_write(path, "old", 3, 0);
		assert_ok(open_flags(f->ctx, path, SLUICE_OPEN_REPLACE, &file));
		assert_ok(sluice_write(file, "new", 3, 0, NULL));
		assert_ok(sluice_write(file, NOWHERE, 5000, 3, NULL));
		assert_refused(sluice_close(file), EFAULT, "replaced");
		assert_int_equal(directory_entries(f->dir), there);
		if (there)
			assert_file_is(path, "old", 3);
	}
}

FIXTURE_TEST(a_message_names_the_file_and_the_reason)
{
	sluice_file *file = open_both(f->ctx, scratch(f, "particular"));
	sluice_op *op = start_write(file, NOWHERE, 5000, 0);

	assert_int_equal(sluice_wait(op, PATIENCE_MS), -EFAULT);
	assert_non_null(strstr(sluice_op_message(op), "particular"));
	assert_non_null(strstr(sluice_op_message(op), strerror(EFAULT)));
	assert_ok(sluice_close(file));
	/* It lives as the operation does, not as the file. */
	assert_non_null(strstr(sluice_op_message(op), "particular"));
	sluice_op_free(op);
	assert_int_equal(sluice_open(f->ctx, scratch(f, "nothing"), NULL, &file), -ENOENT);
	assert_non_null(strstr(sluice_last_message(), "nothing"));
	assert_non_null(strstr(sluice_last_message(), strerror(ENOENT)));
}

/* Characters that could break a line of a log, or a format, come out harmlessly. */
FIXTURE_TEST(a_message_takes_any_name)
{
	static const char *const names[] = {"%s%n%d", "a\nb", "\x1b[31m", "\xff"};
	sluice_file *file = NULL;
	size_t i;

	for (i = 0; i < COUNT_OF(names); i++) {
		assert_int_equal(sluice_open(f->ctx, names[i], NULL, &file), -ENOENT);
		assert_true(*sluice_last_message());
	}
	assert_non_null(strstr((sluice_open(f->ctx, names[0], NULL, &file), sluice_last_message()),
	                       names[0]));
}

struct speaker {
	sluice_context *ctx;
	char before[64], after[512];
};

static void *speak(void *arg)
{
	struct speaker *s = arg;
	sluice_file *file;

	snprintf(s->before, sizeof(s->before), "%s", sluice_last_message());
	sluice_open(s->ctx, "no-such-file-of-the-thread", NULL, &file);
	snprintf(s->after, sizeof(s->after), "%s", sluice_last_message());
	return NULL;
}

FIXTURE_TEST(each_thread_has_its_own_message)
{
	struct speaker s = {.ctx = f->ctx};
	sluice_file *file = NULL;
	pthread_t thread;

	assert_int_equal(sluice_open(f->ctx, "no-such-file-of-main", NULL, &file), -ENOENT);
	assert_int_equal(pthread_create(&thread, NULL, speak, &s), 0);
	pthread_join(thread, NULL);
	assert_string_equal(s.before, "");
	assert_non_null(strstr(s.after, "of-the-thread"));
	assert_non_null(strstr(sluice_last_message(), "of-main"));
}

FIXTURE_TEST(the_library_prints_nothing)
{
	const char *path = scratch(f, "printed");
	int out = dup(STDOUT_FILENO), err = dup(STDERR_FILENO);
	sluice_file *file = NULL;
	FILE *sink;
	int i;

	fflush(stdout);
	sink = fopen(path, "we+");
	assert_non_null(sink);
	dup2(fileno(sink), STDOUT_FILENO);
	dup2(fileno(sink), STDERR_FILENO);
	for (i = 0; i < 3; i++) {
		sluice_context *ctx = NULL;
		struct sluice_config c = row_config();

		c.workers = i == 1 ? 100000 : 0;
		if (sluice_context_new(&c, &ctx) == 0)
			sluice_context_close(ctx);
		sluice_open(f->ctx, "no/such/file", NULL, &file);
		sluice_open(f->ctx, "no://such/scheme", NULL, &file);
		if (open_flags(f->ctx, scratch(f, "x"), SLUICE_OPEN_REPLACE, &file) == 0) {
			sluice_write(file, NOWHERE, 100, 0, NULL);
			sluice_close(file);
		}
	}
	fflush(stdout);
	dup2(out, STDOUT_FILENO);
	dup2(err, STDERR_FILENO);
	close(out);
	close(err);
	fclose(sink);
	assert_int_equal(file_length(path), 0);
}
