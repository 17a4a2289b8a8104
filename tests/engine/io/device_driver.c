/* SPDX-License-Identifier: Apache-2.0 */
/* What the driver is asked, by whom, and what is not asked of it. */
#include <time.h>

#include "io/device_suite.h"

#define NOT_COUNTED "a real driver does not count its calls"

struct traffic {
	sluice_file *file;
	char *memory;
	sluice_stream stream;
	size_t n;
};

/* All four kinds of operations, small and large. */
static void move(struct traffic *t, bool write)
{
	static const size_t lengths[] = {1, 5000, 300000, 3 * 1024 * 1024};

	for (size_t i = 0; i < COUNT_OF(lengths); i++) {
		size_t n = lengths[i] < t->n ? lengths[i] : t->n;

		assert_moves(start_read_on(t->file, t->memory, n, 0, t->stream), n);
		assert_moves(start_read(t->file, t->memory, n, 0), n);
		if (!write)
			continue;
		assert_moves(start_write_on(t->file, t->memory, n, 0, t->stream), n);
		assert_moves(start_write(t->file, t->memory, n, 0), n);
	}
}

static struct traffic traffic_new(struct fixture *f)
{
	const char *path = scratch(f, "traffic");
	struct traffic t = {.n = row_bytes(4 * MIB)};

	file_make(path, t.n, 1);
	t.file = row->remote ? open_read(f->ctx, address(f, "traffic")) : open_both(f->ctx, path);
	t.memory = device_new(0, t.n);
	t.stream = stream_new(0);
	move(&t, !row->remote);
	return t;
}

static void traffic_free(struct traffic *t)
{
	assert_ok(sluice_close(t->file));
	device_free(t->memory);
	stream_free(t->stream);
}

EMULATED_TEST(staging_allocates_nothing_after_the_first_use, NOT_COUNTED)
{
	static const enum sluice_emulated_kind kinds[] = {
		SLUICE_EMULATED_ALLOC, SLUICE_EMULATED_FREE, SLUICE_EMULATED_REGISTER,
		SLUICE_EMULATED_STREAM, SLUICE_EMULATED_EVENT};
	struct traffic t = traffic_new(f);
	size_t i;
	int round;

	sluice_emulated_reset_calls();
	for (round = 0; round < 5; round++)
		move(&t, !row->remote);
	for (i = 0; i < COUNT_OF(kinds); i++)
		assert_int_equal(sluice_emulated_calls(kinds[i], NULL), 0);
	traffic_free(&t);
}

EMULATED_TEST(no_call_synchronises, NOT_COUNTED)
{
	struct traffic t = traffic_new(f);

	sluice_emulated_reset_calls();
	/* On a busy machine bytes can be there before the stream waits for them. */
	for (int i = 0; i < 20 && !sluice_emulated_calls(SLUICE_EMULATED_WAIT, NULL); i++)
		move(&t, !row->remote);
	assert_int_equal(sluice_emulated_calls(SLUICE_EMULATED_SYNCHRONIZE, NULL), 0);
	assert_true(sluice_emulated_calls(SLUICE_EMULATED_WAIT, NULL) > 0);
	traffic_free(&t);
}

/* The copier is the one thread of sluice that the driver may hold up. */
EMULATED_TEST(only_the_copier_and_who_submits_call_the_driver, NOT_COUNTED)
{
	static const char *const threads[] = {"sluice-work", "sluice-ring", "sluice-http",
	                                      "sluice-poller"};
	struct traffic t = traffic_new(f);
	uint64_t queries;
	int kind;
	size_t i;

	sluice_emulated_reset_calls();
	move(&t, !row->remote);
	for (kind = 0; kind < SLUICE_EMULATED_KINDS; kind++)
		for (i = 0; i < COUNT_OF(threads); i++)
			if (sluice_emulated_calls((enum sluice_emulated_kind)kind, threads[i]))
				fail_msg("a thread %s made %llu calls of kind %d", threads[i],
				         (unsigned long long)sluice_emulated_calls(
						 (enum sluice_emulated_kind)kind, threads[i]),
				         kind);
	queries = sluice_emulated_calls(SLUICE_EMULATED_QUERY, "sluice-copy");
	assert_true(queries > 0);
	assert_int_equal(sluice_emulated_calls(SLUICE_EMULATED_WAIT, "sluice"), 0);
	assert_int_equal(sluice_emulated_calls(SLUICE_EMULATED_WRITE, "sluice"), 0);
	traffic_free(&t);
}

/* Reads and writes in stream order do not need it at all. */
EMULATED_TEST(stream_order_never_asks_the_copier, NOT_COUNTED)
{
	struct traffic t = traffic_new(f);
	uint64_t calls = 1;
	int round, kind;

	/* What was awaited on the host before may still be looked at, for long if the machine is loaded. */
	for (int tries = 0; tries < 5 && calls; tries++) {
		sleep_ms(20);
		sluice_emulated_reset_calls();
		for (round = 0; round < 10; round++) {
			assert_moves(start_read_on(t.file, t.memory, t.n, 0, t.stream), t.n);
			if (!row->remote)
				assert_moves(start_write_on(t.file, t.memory, t.n, 0, t.stream),
				             t.n);
		}
		calls = 0;
		for (kind = 0; kind < SLUICE_EMULATED_KINDS; kind++)
			if (kind != SLUICE_EMULATED_QUERY) /* whether the device is still there */
				calls += sluice_emulated_calls((enum sluice_emulated_kind)kind,
				                               "sluice-copy");
	}
	assert_int_equal(calls, 0);
	traffic_free(&t);
}

/* A driver's threads have their own idea of doing nothing. */
static double process_seconds(void)
{
	struct timespec t;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9 - driver_seconds();
}

FIXTURE_TEST(idle_context_uses_no_processor_time)
{
	struct traffic t = traffic_new(f);
	double used, least = 1;
	int try;

	if (under_sanitizer()) {
		traffic_free(&t);
		SKIP("a sanitizer has a thread of its own");
	}
	sleep_ms(100);
	/* Another program may take the blame for a page or two: the best of three counts. */
	for (try = 0; try < 3 && least > 0.002; try++) {
		used = process_seconds();
		sleep_ms(5000);
		used = process_seconds() - used;
		least = used < least ? used : least;
	}
	if (least > 0.002)
		fail_msg("%.1f ms of processor time in five seconds without work", least * 1000);
	traffic_free(&t);
}

/* A call of the driver that fails makes an operation that fails, never one that hangs. */
EMULATED_TEST(a_driver_that_fails_now_and_then_is_survived,
              "a real driver does not fail when it is told to")
{
	static const enum sluice_emulated_kind kinds[] = {
		SLUICE_EMULATED_WAIT, SLUICE_EMULATED_COPY, SLUICE_EMULATED_WRITE,
		SLUICE_EMULATED_RECORD, SLUICE_EMULATED_QUERY};
	struct traffic t = traffic_new(f);
	size_t i, n = t.n, failed = 0;
	uint64_t nth;

	for (i = 0; i < COUNT_OF(kinds); i++) {
		for (nth = 1; nth <= 6; nth++) {
			int way;

			for (way = 0; way < (row->remote ? 2 : 4); way++) {
				sluice_op *op = NULL;
				int64_t got;
				int rc;

				sluice_emulated_fail(kinds[i], nth, -EIO);
				if (way == 0)
					rc = sluice_read_on(t.file, t.memory, n, 0, t.stream, &op);
				else if (way == 1)
					rc = sluice_read(t.file, t.memory, n, 0, &op);
				else if (way == 2)
					rc = sluice_write_on(t.file, t.memory, n, 0, t.stream, &op);
				else
					rc = sluice_write(t.file, t.memory, n, 0, &op);
				/* Whether the stream is one is asked before anything is given to it. */
				if (rc && kinds[i] == SLUICE_EMULATED_QUERY) {
					assert_int_equal(rc, -EIO);
					failed++;
					continue;
				}
				if (rc)
					fail_msg("kind %d, call %d, way %d: %d", (int)kinds[i],
					         (int)nth, way, rc);
				got = sluice_wait(op, PATIENCE_MS);
				if (got != -EIO)
					assert_int_equal(got, n);
				failed += got == -EIO;
				sluice_op_free(op);
				sluice_emulated_fail(kinds[i], 0, 0);
				stream_pass(0, t.stream);
			}
		}
	}
	assert_true(failed > 0);
	print_message("%zu operations failed\n", failed);
	/* Whatever became of them, the next ones are right. */
	move(&t, !row->remote);
	traffic_free(&t);
}
