/* SPDX-License-Identifier: Apache-2.0 */
/* What may pass is tried again, from the byte that was reached, and not for ever. */
#include "http/cases.h"

HTTP_TEST(a_status_that_may_pass_is_tried_again)
{
	static const int statuses[] = {408, 429, 500, 502, 503, 504};
	size_t i;

	for (i = 0; i < COUNT_OF(statuses); i++) {
		const char *uri = fault_uri("size=5000&fault=status:%d&times=1", statuses[i]);

		reads_right(f, uri, 1000, 10);
		assert_int_equal(asked(uri, "GET"), 2);
		uri = fault_uri("size=%zu&fault=status:%d&times=3", LONG, statuses[i]);
		reads_right(f, uri, LONG, 0);
		uri = fault_uri("size=5000&fault=status:%d&times=2&on=HEAD", statuses[i]);
		reads_right(f, uri, 1000, 10);
		assert_int_equal(asked(uri, "HEAD"), 1);
		assert_int_equal(asked(uri, "GET"), 2);
	}
}

HTTP_TEST(attempts_have_an_end)
{
	static const char *const faults[] = {"status:503", "status:429", "reset:head", "reset:0",
	                                     "garbage:empty"};
	size_t i;

	for (i = 0; i < COUNT_OF(faults); i++) {
		const char *uri = fault_uri("size=5000&fault=%s", faults[i]);

		/* libcurl itself asks once more where a connection that was kept ends. */
		read_fails(f, uri, 1000, 10, i < 2 ? EIO : ECONNRESET, i < 2 ? "HTTP" : "");
		assert_in_range(asked(uri, "GET"), ATTEMPTS, i < 2 ? ATTEMPTS : 3 * ATTEMPTS);
	}
	open_fails(f, fault_uri("size=5000&fault=status:503&on=HEAD,GET"), EIO, "503");
}

HTTP_TEST(the_number_of_attempts_is_a_setting)
{
	const char *uri = fault_uri("size=5000&fault=status:503");

	with(f, "SLUICE_HTTP_ATTEMPTS", "1");
	read_fails(f, uri, 1000, 10, EIO, "503");
	assert_int_equal(asked(uri, "GET"), 1);
	with(f, "SLUICE_HTTP_ATTEMPTS", "9");
	uri = fault_uri("size=5000&fault=status:503&times=8");
	reads_right(f, uri, 1000, 10);
	assert_int_equal(asked(uri, "GET"), 9);
}

HTTP_TEST(retry_after_is_waited_for)
{
	double begun, took;

	/* Also where it is longer than any rest of our own. */
	with(f, "SLUICE_HTTP_RETRY_MS", "5000");
	begun = seconds_now();
	reads_right(f, fault_uri("size=5000&fault=status:429&times=1&retry_after=1"), 1000, 10);
	took = seconds_now() - begun;
	if (took < 0.99 || took > 15)
		fail_msg("Retry-After: 1 took %.3f s", took);
	/* A date has whole seconds: 1 to 2 of them are left. */
	begun = seconds_now();
	reads_right(f, fault_uri("size=5000&fault=status:503&times=1&retry_after=date:2"), 1000,
	            10);
	took = seconds_now() - begun;
	if (took < 0.8 || took > 15)
		fail_msg("a date in two seconds took %.3f s", took);
	/* What is no time, or has passed, is nothing to wait for. */
	begun = seconds_now();
	reads_right(f, fault_uri("size=5000&fault=status:503&times=1&retry_after=soon"), 1000, 10);
	reads_right(f, fault_uri("size=5000&fault=status:503&times=1&retry_after=-5"), 1000, 10);
	reads_right(f, fault_uri("size=5000&fault=status:503&times=1&retry_after=date:-9"), 1000,
	            10);
	assert_soon(begun);
	/* No server makes anybody wait longer than the setting allows: it fails at once. */
	begun = seconds_now();
	read_fails(f, fault_uri("size=5000&fault=status:503&retry_after=3600"), 1000, 10, EIO,
	           "3600 s (Retry-After), which is longer than SLUICE_HTTP_RETRY_MS");
	assert_soon(begun);
}

/* One of many requests that rest by chance hardly at all would fail the operation. */
HTTP_TEST(the_rests_have_a_least_length)
{
	double least = 60;
	sluice_file *file;
	char uri[64];
	int i;

	snprintf(uri, sizeof(uri), "http://127.0.0.1:%d/object", closed_port());
	with(f, "SLUICE_HTTP_ATTEMPTS", "3");
	with(f, "SLUICE_HTTP_BACKOFF_MAX_MS", "20000");
	with(f, "SLUICE_HTTP_BACKOFF_MS", "40");
	for (i = 0; i < 6; i++) {
		double begun = seconds_now(), took;

		assert_refused(sluice_open(f->ctx, uri, NULL, &file), ECONNREFUSED, "");
		took = seconds_now() - begun;
		least = took < least ? took : least;
	}
	/* They double, and are at most twice as long. */
	if (least < 0.135 || least > 1)
		fail_msg("three rests of 20, 40 and 80 ms at least took %.3f s", least);
}

HTTP_TEST(a_short_body_is_continued_where_it_ended)
{
	const char *uri = fault_uri("size=100000&fault=short:400&times=1");

	reads_right(f, uri, 1000, 10);
	assert_int_equal(asked(uri, "GET"), 2);
	assert_non_null(strstr(asked_for(uri), "range=bytes=10-1009"));
	assert_non_null(strstr(asked_for(uri), "range=bytes=610-1009"));
	reads_right(f, fault_uri("size=%zu&fault=short:100000&times=3", LONG), LONG, 0);
	reads_right(f, fault_uri("size=%zu&fault=short:1&times=1&at=%zu", LONG, LONG - 1), LONG, 0);
}

/* Without the byte that never comes there is no progress, and so an end. */
HTTP_TEST(a_body_that_stays_short_fails)
{
	static const char *const times[] = {"400", "2000", "8000"};
	double begun, took;
	const char *uri;
	size_t i = 0;

	/* On a loaded machine an attempt takes longer. */
	do {
		uri = fault_uri("size=100000&fault=short:1");
		with(f, "SLUICE_HTTP_RETRY_MS", times[i]);
		begun = seconds_now();
		read_fails(f, uri, 1000, 10, EIO, "SLUICE_HTTP_RETRY_MS");
		took = seconds_now() - begun;
		if (took < 0.97 * atoi(times[i]) / 1000 || took > 15)
			fail_msg("it was given up after %.3f s, not %s ms", took, times[i]);
	} while (asked(uri, "GET") <= 2 * ATTEMPTS && ++i < COUNT_OF(times));
	assert_true(asked(uri, "GET") > 2 * ATTEMPTS);
}

HTTP_TEST(a_reset_in_mid_body_is_survived)
{
	reads_right(f, fault_uri("size=100000&fault=reset:5000&times=1"), 100000, 0);
	reads_right(f, fault_uri("size=%zu&fault=reset:200000&times=4", LONG), LONG, 0);
	reads_right(f, fault_uri("size=%zu&fault=reset:head&times=2", LONG), LONG, 0);
}

/* Twenty times the attempts, each of which gets further. */
HTTP_TEST(progress_begins_the_count_of_attempts_anew)
{
	const char *uri = fault_uri("size=1000000&fault=reset:50000");

	reads_right(f, uri, 1000000, 0);
	assert_true(asked(uri, "GET") > 2 * ATTEMPTS);
}

/* Three times the attempts fail in a row; but data has come, and so only the time counts. */
HTTP_TEST(a_server_that_is_away_in_the_middle_is_waited_for)
{
	static const char *const faults[] = {"status:503", "reset:head", "garbage:empty"};
	const char *uri;
	size_t i;

	for (i = 0; i < COUNT_OF(faults); i++)
		reads_right(f,
		            fault_uri("size=%zu&ranges=no&fault=reset:%zu&times=%d", LONG, MIB,
		                      3 * ATTEMPTS),
		            LONG, 0);
	for (i = 0; i < COUNT_OF(faults); i++) {
		/* Many of the pieces of one read, and the second read of a file. */
		sluice_file *file;
		char bytes[100];

		reads_right(f,
		            fault_uri("size=%zu&fault=%s&skip=1&times=%d", LONG, faults[i],
		                      9 * ATTEMPTS),
		            LONG, 0);
		uri = fault_uri("size=5000&fault=%s&skip=1&times=%d", faults[i], 3 * ATTEMPTS);
		file = open_read(f->ctx, uri);
		assert_read(file, bytes, 100, 0);
		assert_read(file, bytes, 100, 1000);
		assert_served(bytes, 100, 1000);
		assert_ok(sluice_close(file));
	}
}

/* Where the time is over, the sentence says how long nothing came, and which setting that is. */
HTTP_TEST(a_server_that_stays_away_has_its_time)
{
	struct buffer b = buffer_new(LONG, 0);
	double begun, took, silent;
	const char *says;
	sluice_file *file;
	sluice_op *op;
	char end;

	with(f, "SLUICE_HTTP_RETRY_MS", "300");
	file = open_read(f->ctx, fault_uri("size=%zu&fault=reset:head&skip=1", LONG));
	assert_read(file, b.data, 100, 0);
	begun = seconds_now();
	op = start_read(file, b.data, LONG, 0);
	assert_int_equal(sluice_wait(op, PATIENCE_MS), -ECONNRESET);
	took = seconds_now() - begun;
	if (took < 0.29 || took > 15)
		fail_msg("it was given up after %.3f s, not 0.3", took);
	says = strstr(sluice_op_message(op), "no more data came for ");
	assert_non_null(says);
	assert_int_equal(
		sscanf(says, "no more data came for %lf s (SLUICE_HTTP_RETRY_MS%c", &silent, &end),
		2);
	assert_true(silent >= 0.3 && silent < took + 0.1);
	sluice_op_free(op);
	assert_ok(sluice_close(file));
	buffer_free(&b);
}

HTTP_TEST(a_refused_connection_is_an_error_that_says_so)
{
	char uri[100];
	double begun = seconds_now();

	snprintf(uri, sizeof(uri), "http://127.0.0.1:%d/x", closed_port());
	open_fails(f, uri, ECONNREFUSED, "");
	assert_soon(begun);
	assert_non_null(strstr(sluice_last_message(), "127.0.0.1"));
}

HTTP_TEST(a_name_that_does_not_exist_is_an_error_that_says_so)
{
	sluice_file *file = NULL;
	double begun = seconds_now();
	int rc = sluice_open(f->ctx, "http://no-such-host.invalid/x", NULL, &file);

	assert_int_equal(rc, -EHOSTUNREACH);
	assert_non_null(strstr(sluice_last_message(), "no-such-host.invalid"));
	print_message("%.3f s: %s\n", seconds_now() - begun, sluice_last_message());
}
