/* SPDX-License-Identifier: Apache-2.0 */
/* Time: what stands still is given up, what moves is not. */
#include "http/cases.h"

HTTP_TEST(a_stall_in_mid_body_is_given_up_and_continued)
{
	double begun, took;
	const char *uri;
	int tries = 0;

	impatient(f);
	/* A loaded machine may be silent for as long before the 600 bytes have come. */
	do {
		uri = fault_uri("size=100000&fault=stall:600&times=1");
		begun = seconds_now();
		reads_right(f, uri, 1000, 10);
		took = seconds_now() - begun;
		if (took < 0.9 * STALL_MS / 1000.0 || took > 15)
			fail_msg("a stall of %d ms took %.3f s", STALL_MS, took);
	} while (!strstr(asked_for(uri), "range=bytes=610-1009") && ++tries < 3);
	assert_non_null(strstr(asked_for(uri), "range=bytes=610-1009"));
	wait_until_left(uri);
	reads_right(f, fault_uri("size=%zu&fault=stall:100000&times=2", LONG), LONG, 0);
}

HTTP_TEST(an_answer_that_does_not_begin_is_given_up)
{
	impatient(f);
	reads_right(f, fault_uri("size=100000&fault=stall:head&times=1"), 1000, 10);
	reads_right(f, fault_uri("size=100000&fault=stall:head&times=1&on=HEAD"), 1000, 10);
}

HTTP_TEST(a_stall_for_ever_fails)
{
	double begun = seconds_now(), took;
	const char *uri = fault_uri("size=100000&fault=stall:head");

	with(f, "SLUICE_HTTP_ATTEMPTS", "2");
	with(f, "SLUICE_HTTP_STALL_MS", "600");
	read_fails(f, uri, 1000, 10, ETIMEDOUT, "");
	assert_int_equal(asked(uri, "GET"), 2);
	wait_until_left(uri);
	uri = fault_uri("size=100000&fault=stall:0");
	read_fails(f, uri, 1000, 10, ETIMEDOUT, "");
	wait_until_left(uri);
	open_fails(f, fault_uri("size=100000&fault=stall:head&on=HEAD,GET"), ETIMEDOUT, "");
	took = seconds_now() - begun;
	if (took < 6 * 0.54 || took > 15)
		fail_msg("six stalls of 600 ms took %.3f s", took);
}

/*
 * More than twice the stall time-out, in tenths of it. A loaded machine may make a silence as long as the time-out once
 * or twice, while a time-out for the whole would end each read.
 */
HTTP_TEST(a_slow_trickle_is_no_stall)
{
	const char *uri;
	double begun;
	int tries = 0;

	with(f, "SLUICE_HTTP_STALL_MS", "1000");
	do {
		uri = fault_uri("size=2400&pace=100:100");
		begun = seconds_now();
		reads_right(f, uri, 2400, 0);
		assert_true(seconds_now() - begun > 2);
	} while (asked(uri, "GET") != 1 && ++tries < 3);
	assert_int_equal(asked(uri, "GET"), 1);
}

HTTP_TEST(a_pause_shorter_than_the_time_out_is_waited_for)
{
	const char *uri = fault_uri("size=100000&fault=stall:5000&stall_ms=150");

	reads_right(f, uri, 100000, 0);
	assert_int_equal(asked(uri, "GET"), 1);
}

static void with_short_connects(struct fixture *f, const char *stall_ms)
{
	char text[16];

	snprintf(text, sizeof(text), "%d", CONNECT_MS);
	with(f, "SLUICE_HTTP_CONNECT_MS", text);
	with(f, "SLUICE_HTTP_STALL_MS", stall_ms);
}

HTTP_TEST(a_connection_that_is_not_made_is_given_up)
{
	double begun, took;
	char uri[100];

	with_short_connects(f, "60000");
	with(f, "SLUICE_HTTP_ATTEMPTS", "2");
	begun = seconds_now();
	snprintf(uri, sizeof(uri), "http://127.0.0.1:%d/x", silent_port());
	open_fails(f, uri, ETIMEDOUT, "127.0.0.1");
	took = seconds_now() - begun;
	if (took < 2 * 0.9 * CONNECT_MS / 1000.0 || took > 15)
		fail_msg("two connect time-outs of %d ms took %.3f s", CONNECT_MS, took);
}

/* A reactor that has nothing else to do wakes the thread that waits. */
HTTP_TEST(an_operation_that_is_over_is_reported_while_another_stands_still)
{
	sluice_file *slow, *quick;
	sluice_op *ops[2], *over;
	char bytes[2][100];

	with(f, "SLUICE_HTTP_STALL_MS", "60000");
	with(f, "SLUICE_HTTP_HEDGE", "0");
	slow = open_read(f->ctx, fault_uri("size=100000&fault=stall:head"));
	quick = open_read(f->ctx, fault_uri("size=100000&latency=100"));
	ops[0] = start_read(slow, bytes[0], 100, 0);
	ops[1] = start_read(quick, bytes[1], 100, 0);
	assert_ok(sluice_queue_next(sluice_context_queue(f->ctx), PATIENCE_MS, &over));
	assert_ptr_equal(over, ops[1]);
	assert_int_equal(sluice_poll(ops[0]), 0);
	assert_served(bytes[1], 100, 0);
	assert_ok(sluice_cancel(ops[0]));
	assert_int_equal(sluice_wait(ops[0], PATIENCE_MS), -ECANCELED);
	sluice_op_free(ops[0]);
	sluice_op_free(ops[1]);
	assert_ok(sluice_close(slow));
	assert_ok(sluice_close(quick));
}

/* Until it stands a connection has its own time, however short a silence may be. */
HTTP_TEST(connecting_is_no_stall)
{
	double begun, took;
	char uri[100];

	with_short_connects(f, "500");
	with(f, "SLUICE_HTTP_ATTEMPTS", "1");
	snprintf(uri, sizeof(uri), "http://127.0.0.1:%d/x", silent_port());
	begun = seconds_now();
	open_fails(f, uri, ETIMEDOUT, "127.0.0.1");
	took = seconds_now() - begun;
	if (took < 0.9 * CONNECT_MS / 1000.0 || took > 15)
		fail_msg("a connect time-out of %d ms took %.3f s", CONNECT_MS, took);
	/* From then on it counts. */
	begun = seconds_now();
	read_fails(f, fault_uri("size=5000&fault=stall:head"), 1000, 10, ETIMEDOUT,
	           "SLUICE_HTTP_STALL_MS");
	assert_soon(begun);
}
