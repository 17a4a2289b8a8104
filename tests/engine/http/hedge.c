/* SPDX-License-Identifier: Apache-2.0 */
/* Hedges: a part that stands still while others do not is asked for once more. */
#include "http/cases.h"

enum { PART = 1000, FELLOWS = 60 };

/* Reads of another object of the same server, after which it is known how long a part takes. */
static void know_the_pace(struct fixture *f)
{
	sluice_file *file = open_read(f->ctx, fault_uri("size=100000"));
	char bytes[PART];

	for (int i = 0; i < FELLOWS; i++)
		assert_read(file, bytes, PART, (uint64_t)i * PART);
	assert_ok(sluice_close(file));
}

/* Waits until a second request is there. On a loaded machine others of them may have been too many before: more parts
 * make place for it. */
static void wait_until_hedged(struct fixture *f, const char *uri)
{
	double begun = seconds_now();

	while (asked(uri, "GET") < 2) {
		assert_soon(begun);
		if (seconds_now() - begun > 0.5)
			know_the_pace(f);
		else
			sleep_ms(2);
	}
}

/* Reads a part of that object, of which a second request is made, while the others are not: on a loaded machine they
 * may be slow as well, and more are made. Returns whether it was asked for as often, and in those words. */
static bool is_hedged(struct fixture *f, const char *uri, const char *second, const char *until)
{
	struct buffer b = buffer_new(PART, 16);
	sluice_file *file = open_read(f->ctx, uri);
	sluice_op *op = start_read(file, b.data, PART, 10);

	wait_until_hedged(f, uri);
	if (until) {
		wait_until_asked(uri, until, 1);
		sleep_ms(50);
		release_held(uri);
	}
	assert_moves(op, PART);
	assert_served(b.data, PART, 10);
	wait_until_left(uri);
	assert_ok(sluice_close(file));
	buffer_free(&b);
	return asked(uri, "GET") == 2 && strstr(asked_for(uri), second);
}

/* No stall ends by its time-out. */
static void patient(struct fixture *f, const char *hedge)
{
	with(f, "SLUICE_HTTP_STALL_MS", "60000");
	with(f, "SLUICE_HTTP_HEDGE", hedge);
	know_the_pace(f);
}

HTTP_TEST(a_part_that_stands_still_is_asked_for_once_more)
{
	static const char *const stalls[] = {"stall:head", "stall:0", "stall:600"};

	patient(f, "1");
	for (size_t i = 0; i < COUNT_OF(stalls); i++) {
		/* The second asks for what the first lacked. */
		const char *second = i == 2 ? "range=bytes=610-1009" : "range=bytes=10-1009";
		int tries = 1;

		while (!is_hedged(f, fault_uri("size=100000&fault=%s&times=1", stalls[i]), second,
		                  NULL))
			assert_true(tries++ < 5);
	}
}

/* It began before it could be known how long a part takes. */
HTTP_TEST(the_first_part_of_all_may_be_slow)
{
	struct buffer b = buffer_new(PART, 0);
	const char *uri = fault_uri("size=100000&fault=stall:0&times=1");
	sluice_file *file;
	sluice_op *op;

	with(f, "SLUICE_HTTP_STALL_MS", "60000");
	with(f, "SLUICE_HTTP_HEDGE", "1");
	file = open_read(f->ctx, uri);
	op = start_read(file, b.data, PART, 10);
	wait_until_asked(uri, "GET", 1);
	know_the_pace(f);
	wait_until_hedged(f, uri);
	assert_moves(op, PART);
	assert_served(b.data, PART, 10);
	assert_ok(sluice_close(file));
	buffer_free(&b);
}

/* The answer to HEAD does not begin: after a second a byte is asked for on another connection. */
HTTP_TEST(opening_is_asked_for_once_more)
{
	const char *uri = fault_uri("size=100000&fault=stall:head&on=HEAD");
	const char *waits = fault_uri("size=100000&fault=stall:head&on=HEAD&stall_ms=1500");
	double begun;

	with(f, "SLUICE_HTTP_STALL_MS", "60000");
	with(f, "SLUICE_HTTP_HEDGE", "1");
	begun = seconds_now();
	assert_ok(sluice_close(open_read(f->ctx, uri)));
	assert_soon(begun);
	assert_int_equal(asked(uri, "HEAD"), 1);
	assert_int_equal(asked(uri, "GET"), 1);
	wait_until_left(uri);
	/* That was the only one before there are 20 parts. */
	assert_ok(sluice_close(open_read(f->ctx, waits)));
	assert_int_equal(asked(waits, "HEAD"), 1);
	assert_int_equal(asked(waits, "GET"), 0);
}

/* An opening that brings all bytes counts as a part, so that many small objects may be asked for once more. */
HTTP_TEST(openings_that_bring_bytes_are_parts)
{
	struct sluice_open_options o = SLUICE_OPEN_OPTIONS_INIT;
	sluice_file *file;
	double begun;

	with(f, "SLUICE_HTTP_STALL_MS", "60000");
	with(f, "SLUICE_HTTP_HEDGE", "1");
	o.first_bytes = 1000;
	/* There may be 5 % more requests, of which a loaded machine, which is slow by itself, takes its share. */
	for (int i = 0; i < 202; i++) {
		const char *uri =
			fault_uri("size=1000%s", i < 200 ? "" : "&fault=stall:head&on=GET&times=1");
		char bytes[1000];

		begun = seconds_now();
		assert_ok(sluice_open(f->ctx, uri, &o, &file));
		assert_read(file, bytes, sizeof(bytes), 0);
		assert_served(bytes, sizeof(bytes), 0);
		assert_ok(sluice_close(file));
		assert_soon(begun);
	}
}

HTTP_TEST(without_hedges_opening_waits)
{
	const char *uri = fault_uri("size=100000&fault=stall:head&on=HEAD&stall_ms=1500");

	with(f, "SLUICE_HTTP_STALL_MS", "60000");
	assert_ok(sluice_close(open_read(f->ctx, uri)));
	assert_int_equal(asked(uri, "HEAD"), 1);
	assert_int_equal(asked(uri, "GET"), 0);
}

HTTP_TEST(without_hedges_it_is_waited_for)
{
	const char *uri = fault_uri("size=100000&fault=stall:600&stall_ms=300&times=1");

	patient(f, "0");
	reads_right(f, uri, PART, 10);
	assert_int_equal(asked(uri, "GET"), 1);
}

/* The first goes on after a pause, and the second, which stands still for good, is ended. */
HTTP_TEST(the_first_may_still_win)
{
	const char *uri = fault_uri("size=100000&fault=hold:200&others=stall:0");
	struct buffer b = buffer_new(PART, 16);
	sluice_file *file;
	sluice_op *op;

	patient(f, "1");
	file = open_read(f->ctx, uri);
	op = start_read(file, b.data, PART, 10);
	wait_until_hedged(f, uri);
	release_held(uri);
	assert_moves(op, PART);
	assert_served(b.data, PART, 10);
	wait_until_left(uri);
	stays_untouched(&b);
	assert_ok(sluice_close(file));
	buffer_free(&b);
}

HTTP_TEST(both_are_cancelled)
{
	const char *uri = fault_uri("size=100000&fault=stall:200");
	struct buffer b = buffer_new(PART, 0);
	double begun;
	sluice_file *file;
	sluice_op *op;

	patient(f, "1");
	file = open_read(f->ctx, uri);
	op = start_read(file, b.data, PART, 10);
	wait_until_hedged(f, uri);
	begun = seconds_now();
	assert_int_equal(sluice_cancel(op), 0);
	assert_int_equal(sluice_wait(op, PATIENCE_MS), -ECANCELED);
	assert_soon(begun);
	stays_untouched(&b);
	sluice_op_free(op);
	wait_until_left(uri);
	assert_ok(sluice_close(file));
	buffer_free(&b);
}

/* The second request is refused: the first goes on. */
HTTP_TEST(a_hedge_that_fails_is_forgotten)
{
	int tries = 1;

	patient(f, "1");
	while (!is_hedged(f, fault_uri("size=100000&fault=hold:500&others=status:404"), "",
	                  "status_404"))
		assert_true(tries++ < 5);
}

/* A server of which every third request is slow: hedges are few. */
HTTP_TEST(hedges_are_a_twentieth_of_the_requests)
{
	enum { READS = 300 };
	const char *uri = fault_uri("size=100000&stall_percent=30&stall_ms=120");
	sluice_file *file;
	char bytes[PART];

	patient(f, "1");
	file = open_read(f->ctx, uri);
	for (int i = 0; i < READS / 4; i++) {
		sluice_op *ops[4];
		char data[4][PART];

		for (int j = 0; j < 4; j++)
			ops[j] = start_read(file, data[j], PART, (uint64_t)(i % 90) * PART);
		for (int j = 0; j < 4; j++)
			assert_moves(ops[j], PART);
	}
	assert_read(file, bytes, PART, 0);
	print_message("%ld requests for %d parts\n", asked(uri, "GET"), READS + 1);
	assert_in_range(asked(uri, "GET"), READS + 1, READS + 1 + (READS + FELLOWS) / 20 + 1);
	assert_ok(sluice_close(file));
}
