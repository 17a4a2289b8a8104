/* SPDX-License-Identifier: Apache-2.0 */
/* Cancel, close and discard find an operation in each phase of its requests, held still there. */
#include <pthread.h>
#include <sys/mman.h>

#include "http/cases.h"

/* Long enough that a test which waited for the phase to end by itself would fail. */
static void patient(struct fixture *f)
{
	with(f, "SLUICE_HTTP_STALL_MS", "60000");
}

/* The operation is cancelled where it stands: at once, without a byte after. */
static void cancel_here(sluice_op *op, struct buffer *b)
{
	double begun = seconds_now();

	assert_int_equal(sluice_cancel(op), 0);
	assert_int_equal(sluice_wait(op, PATIENCE_MS), -ECANCELED);
	assert_soon(begun);
	assert_true(*sluice_op_message(op));
	stays_untouched(b);
	sluice_op_free(op);
}

/* Starts a read of all of it, waits for that many GET requests and a little, and cancels. */
static void cancel_read_of(struct fixture *f, const char *uri, size_t n, long requests)
{
	struct buffer b = buffer_new(n, 0);
	sluice_file *file = open_read(f->ctx, uri);
	sluice_op *op = start_read(file, b.data, n, 0);

	wait_until_asked(uri, "GET", requests);
	sleep_ms(30);
	assert_int_equal(sluice_poll(op), 0);
	cancel_here(op, &b);
	wait_until_left(uri);
	assert_ok(sluice_close(file));
	buffer_free(&b);
}

HTTP_TEST(a_request_without_an_answer_is_cancelled)
{
	patient(f);
	cancel_read_of(f, fault_uri("size=50000&fault=stall:head"), 50000, 1);
	cancel_read_of(f, fault_uri("size=%zu&fault=stall:head", LONG), LONG, 2);
}

HTTP_TEST(a_request_in_mid_body_is_cancelled)
{
	patient(f);
	cancel_read_of(f, fault_uri("size=50000&fault=stall:20000"), 50000, 1);
	cancel_read_of(f, fault_uri("size=%zu&fault=stall:20000", LONG), LONG, 2);
	cancel_read_of(f, fault_uri("size=%zu&pace=1000:20", LONG), LONG, 2);
	cancel_read_of(f, fault_uri("size=%zu&ranges=no&fault=stall:200000", LONG), LONG, 1);
}

HTTP_TEST(a_wait_before_the_next_attempt_is_cancelled)
{
	with(f, "SLUICE_HTTP_RETRY_MS", "60000");
	with(f, "SLUICE_HTTP_BACKOFF_MAX_MS", "60000");
	with(f, "SLUICE_HTTP_BACKOFF_MS", "60000");
	cancel_read_of(f, fault_uri("size=50000&fault=status:503&retry_after=60"), 50000, 1);
	cancel_read_of(f, fault_uri("size=%zu&fault=status:503&retry_after=60", LONG), LONG, 2);
}

HTTP_TEST(a_connection_that_is_being_made_is_cancelled)
{
	struct buffer b = buffer_new(5000, 0);
	char target[100];
	const char *uri;
	sluice_file *file;
	sluice_op *op;

	with(f, "SLUICE_HTTP_CONNECT_MS", "60000");
	snprintf(target, sizeof(target), "http://127.0.0.1:%d/x", silent_port());
	uri = fault_uri("size=5000&fault=redirect:302&to=%s", as_option(target));
	file = open_read(f->ctx, uri);
	op = start_read(file, b.data, 5000, 0);
	wait_until_asked(uri, "GET", 1);
	sleep_ms(50);
	cancel_here(op, &b);
	assert_ok(sluice_close(file));
	buffer_free(&b);
}

/* One connection is all there is, and somebody else has it. */
HTTP_TEST(request_waiting_for_a_connection_is_cancelled)
{
	struct buffer a = buffer_new(50000, 0), b = buffer_new(50000, 0);
	const char *held = fault_uri("size=50000&fault=stall:1000"), *free_uri;
	sluice_file *file, *other;
	sluice_op *first, *second;

	patient(f);
	with(f, "SLUICE_MAX_CONNECTIONS", "1");
	free_uri = fault_uri("size=50000");
	file = open_read(f->ctx, held);
	other = open_read(f->ctx, free_uri);
	first = start_read(file, a.data, 50000, 0);
	wait_until_asked(held, "GET", 1);
	second = start_read(other, b.data, 50000, 0);
	sleep_ms(50);
	assert_int_equal(asked(free_uri, "GET"), 0);
	cancel_here(second, &b);
	cancel_here(first, &a);
	/* And the connection is free again. */
	assert_read(other, b.data, 50000, 0);
	assert_served(b.data, 50000, 0);
	assert_ok(sluice_close(file));
	assert_ok(sluice_close(other));
	buffer_free(&a);
	buffer_free(&b);
}

static void *release_later(void *uri)
{
	sleep_ms(100);
	release_held(uri);
	return NULL;
}

HTTP_TEST(close_waits_for_operations_in_flight)
{
	struct buffer b = buffer_new(LONG, 0);
	const char *uri = fault_uri("size=%zu&fault=hold:100", LONG);
	sluice_file *file = open_read(f->ctx, uri);
	sluice_op *whole = start_read(file, b.data, LONG - 1000, 1000), *op;
	pthread_t thread;
	char bytes[300];

	op = start_read(file, bytes, 300, 5);
	assert_int_equal(sluice_poll(op), 0);
	assert_int_equal(pthread_create(&thread, NULL, release_later, (void *)uri), 0);
	assert_ok(sluice_close(file));
	pthread_join(thread, NULL);
	assert_int_equal(sluice_poll(whole), 1);
	assert_moves(op, 300);
	assert_served(bytes, 300, 5);
	assert_moves(whole, LONG - 1000);
	assert_served(b.data, LONG - 1000, 1000);
	buffer_free(&b);
}

/* What nobody holds any more, and nobody waits for, ends before the file does. */
HTTP_TEST(close_waits_for_what_has_no_handle)
{
	struct buffer b = buffer_new(LONG, 0);
	sluice_file *file = open_read(f->ctx, fault_uri("size=%zu&latency=50", LONG));

	sluice_op_free(start_read(file, b.data, 3 * MIB, 0));
	assert_ok(sluice_read(file, b.data + 3 * MIB, LONG - 3 * MIB, 3 * MIB, NULL));
	assert_ok(sluice_close(file));
	assert_served(b.data, LONG, 0);
	stays_untouched(&b);
	file = open_read(f->ctx, fault_uri("size=5000&fault=status:403"));
	assert_ok(sluice_read(file, b.data, 10, 0, NULL));
	assert_refused(sluice_close(file), EACCES, "403");
	file = open_read(f->ctx, fault_uri("size=50000&latency=50"));
	assert_ok(sluice_read(file, b.data, 50000, 0, NULL));
	sluice_discard(file);
	stays_untouched(&b);
	buffer_free(&b);
}

/* An access from this process after the end would be a fault. */
HTTP_TEST(the_buffer_may_vanish_after_the_operation_ended)
{
	static const char *const options[] = {"fault=status:403&at=4000000", "pace=30000:2",
	                                      "fault=reset:100000", "fault=long:100000&at=3000000"};
	size_t round;

	for (round = 0; round < 4 * COUNT_OF(options); round++) {
		const char *uri =
			fault_uri("size=%zu&%s", LONG, options[round % COUNT_OF(options)]);
		sluice_file *file = open_read(f->ctx, uri);
		void *data = mmap(NULL, LONG, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
		                  -1, 0);
		sluice_op *op;

		assert_true(data != MAP_FAILED);
		op = start_read(file, data, LONG, 0);
		if (round % 2) {
			sleep_ms((int)(round * 3));
			sluice_cancel(op);
		}
		(void)sluice_wait(op, PATIENCE_MS);
		assert_int_equal(sluice_poll(op), 1);
		assert_int_equal(mprotect(data, LONG, PROT_NONE), 0);
		sleep_ms(20);
		munmap(data, LONG);
		sluice_op_free(op);
		assert_ok(sluice_close(file));
	}
}

/* Cancels at random moments of many reads; each ends, as what it says, and the next ones work. */
HTTP_TEST(cancelling_at_any_moment_is_survived)
{
	const char *uri = fault_uri("size=%zu&fault=status:503&skip=3&times=20", LONG);
	sluice_file *file = open_read(f->ctx, uri);
	struct buffer b = buffer_new(LONG, 0);
	struct rng r = rng_new(900);
	int round, cancelled = 0;

	for (round = 0; round < 40; round++) {
		sluice_op *op = start_read(file, b.data, LONG, 0);
		int64_t got;

		if (round % 4)
			sleep_ms((int)rng_below(&r, 12));
		sluice_cancel(op);
		got = finish(op);
		if (got >= 0) {
			assert_int_equal(got, LONG);
			assert_served(b.data, LONG, 0);
		} else {
			assert_true(got == -ECANCELED || got == -EIO);
			cancelled++;
		}
	}
	print_message("%d of %d reads were cancelled\n", cancelled, round);
	assert_read(file, b.data, LONG, 0);
	assert_served(b.data, LONG, 0);
	assert_ok(sluice_close(file));
	buffer_free(&b);
}
