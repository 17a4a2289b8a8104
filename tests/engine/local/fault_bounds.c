/* SPDX-License-Identifier: Apache-2.0 */
/* What runs beside what, what waits for what, and how many operations there may be. */
#include <pthread.h>

#include "local/fault.h"

#define SPAN (128 * KIB) /* one piece */

/* Two threads of each kind, of which the gate can hold one. */
static void two_threads(struct fixture *f)
{
	struct sluice_config c = row_config();

	c.workers = 2;
	config_tune(&c, "reactors", 2);
	config_tune(&c, "piece_bytes", MIB);
	c.direct_bytes = SPAN;
	config_tune(&c, "inline_bytes", 1);
	fixture_config(f, &c);
}

/* The gate holds the pieces of one buffer. */
static _Atomic(struct buffer *) held_buffer;

static bool is_held(const struct sl_piece *piece)
{
	struct buffer *b = atomic_load(&held_buffer);
	unsigned char *data = (unsigned char *)piece->data;

	return data >= b->data && data < b->data + b->length;
}

/* Starts an operation of SPAN bytes that the gate holds, and nothing else. */
static sluice_op *hold(sluice_file *file, bool write, struct buffer *b, uint64_t offset)
{
	sluice_op *op;

	atomic_store(&held_buffer, b);
	gate_close(is_held);
	op = start_move(file, write, b->data, SPAN, offset);
	assert_true(gate_holds(1));
	return op;
}

/* The other one is over while the first one is held. */
static void assert_passes(sluice_op *held, sluice_op *other)
{
	assert_int_equal(sluice_wait(other, 20000), SPAN);
	assert_int_equal(sluice_poll(held), 0);
	gate_open();
	assert_moves(held, SPAN);
	assert_moves(other, SPAN);
}

FAULT_TEST(fault_bounds_reads_on_a_handle_overlap_in_time)
{
	const char *path = scratch(f, "reads");
	struct buffer a = buffer_new(SPAN, 0), b = buffer_new(SPAN, 0);
	sluice_op *held, *other;
	sluice_file *file;
	int r;

	two_threads(f);
	file_make(path, 2 * SPAN, 1);
	file = open_read(f->ctx, path);
	for (r = 0; r < RESIDENCIES; r++) {
		file_set_residency(path, (enum residency)r);
		held = hold(file, false, &a, 0);
		/* Even of the same bytes: reads do not wait for each other. */
		other = start_read(file, b.data, SPAN, r == 0 ? SPAN : SPAN / 2);
		assert_passes(held, other);
	}
	assert_ok(sluice_close(file));
	buffer_free(&a);
	buffer_free(&b);
}

FAULT_TEST(disjoint_operation_passes_a_held_write)
{
	const char *path = scratch(f, "free");
	struct buffer a = buffer_new(SPAN, 0), b = buffer_new(SPAN, 0);
	sluice_op *held, *other;
	sluice_file *file;
	int write;

	two_threads(f);
	file_make(path, 4 * SPAN, 1);
	file = open_both(f->ctx, path);
	for (write = 0; write < 2; write++) {
		held = hold(file, true, &a, SPAN);
		/* Its neighbours touch it, byte by byte. */
		other = write ? start_write(file, b.data, SPAN, 2 * SPAN)
		              : start_read(file, b.data, SPAN, 0);
		assert_passes(held, other);
	}
	assert_ok(sluice_close(file));
	buffer_free(&a);
	buffer_free(&b);
}

FAULT_TEST(operation_over_a_held_write_waits)
{
	const char *path = scratch(f, "waits");
	struct buffer a = buffer_new(SPAN, 0), b = buffer_new(SPAN, 0), c = buffer_new(1, 0);
	sluice_op *held, *read, *write, *far;
	sluice_file *file, *other;

	two_threads(f);
	file_make(path, 2 * SPAN, 1);
	pattern_fill(a.data, SPAN, 0, 2);
	file = open_both(f->ctx, path);
	other = open_both(f->ctx, path);
	held = hold(file, true, &a, 0);
	read = start_read(other, c.data, 1, SPAN - 1); /* the last byte of it */
	write = start_write(other, "n", 1, 0);         /* the first */
	far = start_read(other, b.data, 100, 2 * SPAN - 100);
	assert_moves(far, 100);
	assert_int_equal(sluice_wait(read, 50), -EINPROGRESS);
	assert_int_equal(sluice_wait(write, 50), -EINPROGRESS);
	gate_open();
	assert_moves(held, SPAN);
	assert_moves(read, 1);
	assert_pattern(c.data, 1, SPAN - 1, 2);
	assert_moves(write, 1);
	a.data[0] = 'n';
	file_read(path, b.data, SPAN, 0);
	assert_bytes(b.data, a.data, SPAN);
	assert_ok(sluice_close(file));
	assert_ok(sluice_close(other));
	buffer_free(&a);
	buffer_free(&b);
	buffer_free(&c);
}

FAULT_TEST(write_over_a_held_read_waits)
{
	const char *path = scratch(f, "waits");
	struct buffer a = buffer_new(SPAN, 0);
	sluice_op *held, *write, *read;
	sluice_file *file;
	char byte;

	two_threads(f);
	file_make(path, SPAN, 1);
	file = open_both(f->ctx, path);
	held = hold(file, false, &a, 0);
	write = start_write(file, "n", 1, 100);
	read = start_read(file, &byte, 1, 100); /* behind the write, so it waits as well */
	assert_int_equal(sluice_wait(write, 50), -EINPROGRESS);
	assert_int_equal(sluice_wait(read, 50), -EINPROGRESS);
	gate_open();
	assert_moves(held, SPAN);
	assert_pattern(a.data, SPAN, 0, 1);
	assert_moves(write, 1);
	assert_moves(read, 1);
	assert_int_equal(byte, 'n');
	assert_ok(sluice_close(file));
	buffer_free(&a);
}

static void at_most_operations(struct fixture *f, size_t most)
{
	struct sluice_config c = row_config();

	c.workers = 1;
	config_tune(&c, "reactors", 1);
	config_tune(&c, "inline_bytes", 1);
	c.max_operations = most;
	fixture_config(f, &c);
}

FAULT_TEST(nonblock_answers_eagain_at_the_bound)
{
	struct buffer b = buffer_new(SPAN, 0);
	struct sluice_extent extent = {b.data, SPAN, 0};
	struct sluice_request request = SLUICE_REQUEST_INIT;
	sluice_op *first, *second = NULL;
	sluice_file *file, *waiting;

	request.kind = SLUICE_WRITE;
	request.extents = &extent;
	request.count = 1;
	request.unless_full = 1;
	at_most_operations(f, 1);
	assert_ok(open_flags(f->ctx, scratch(f, "nonblock"),
	                     SLUICE_OPEN_READ | SLUICE_OPEN_WRITE | SLUICE_OPEN_CREATE |
	                             SLUICE_OPEN_NONBLOCK,
	                     &file));
	first = start_held(file, true, b.data, SPAN, 0);
	assert_refused(sluice_write(file, b.data, SPAN, SPAN, &second), EAGAIN,
	               "SLUICE_MAX_OPERATIONS");
	assert_refused(sluice_read(file, b.data, SPAN, SPAN, NULL), EAGAIN,
	               "SLUICE_MAX_OPERATIONS");
	assert_null(second);
	/* A file that waits has requests that do not. */
	waiting = open_both(f->ctx, scratch(f, "waiting"));
	assert_refused(sluice_submit(waiting, &request, &second), EBUSY, "SLUICE_MAX_OPERATIONS");
	assert_null(second);
	gate_open();
	assert_int_equal(sluice_wait(first, PATIENCE_MS), SPAN);
	/* That the handle still is there takes no place. */
	for (int i = 0; i < 100 && !second; i++) {
		int rc = sluice_write(file, b.data, SPAN, SPAN, &second);

		assert_true(rc == 0 || rc == -EAGAIN);
		sleep_ms(rc ? 5 : 0);
	}
	assert_non_null(second);
	assert_moves(second, SPAN);
	assert_moves(first, SPAN);
	assert_ok(sluice_close(waiting));
	assert_ok(sluice_close(file));
	buffer_free(&b);
}

struct submitter {
	sluice_file *file;
	struct buffer *b;
	_Atomic unsigned submitted;
	_Atomic int error;
};

enum { SUBMITTED = 20 };

static void *submit_many(void *arg)
{
	struct submitter *s = arg;

	for (unsigned i = 0; i < SUBMITTED; i++) {
		int rc = sluice_write(s->file, s->b->data, 1000, i * 1000, NULL);

		if (rc)
			atomic_store(&s->error, rc);
		atomic_fetch_add(&s->submitted, 1);
	}
	return NULL;
}

FAULT_TEST(submission_waits_at_the_bound_and_goes_on)
{
	const char *path = scratch(f, "bound");
	struct buffer b = buffer_new(1000, 0);
	struct submitter s = {.b = &b};
	pthread_t thread;

	at_most_operations(f, 3);
	s.file = open_both(f->ctx, path);
	gate_close(NULL);
	assert_int_equal(pthread_create(&thread, NULL, submit_many, &s), 0);
	for (int i = 0; i < PATIENCE_MS && atomic_load(&s.submitted) < 3; i++)
		sleep_ms(1);
	sleep_ms(100);
	assert_int_equal(atomic_load(&s.submitted), 3);
	gate_open();
	pthread_join(thread, NULL);
	assert_int_equal(atomic_load(&s.error), 0);
	assert_int_equal(atomic_load(&s.submitted), SUBMITTED);
	assert_ok(sluice_close(s.file));
	assert_int_equal(file_length(path), SUBMITTED * 1000);
	buffer_free(&b);
}

/* sync, truncate and close must not need a place that only they could free. */
FAULT_TEST(waiting_calls_work_at_the_bound)
{
	const char *path = scratch(f, "full");
	struct buffer b = buffer_new(SPAN, 0);
	sluice_file *file;
	sluice_op *op;

	at_most_operations(f, 1);
	file = open_both(f->ctx, path);
	op = start_write(file, b.data, SPAN, 0);
	assert_ok(sluice_truncate(file, 1000));
	assert_moves(op, SPAN);
	op = start_write(file, b.data, SPAN, 0);
	assert_ok(sluice_sync(file));
	assert_moves(op, SPAN);
	assert_ok(sluice_write(file, b.data, SPAN, 0, NULL));
	assert_ok(sluice_close(file));
	assert_int_equal(file_length(path), SPAN);
	buffer_free(&b);
}

/* How many pieces of one operation were seen in flight at once. */
static _Atomic unsigned in_step, most_in_step;

static ssize_t watch_depth(const struct sl_piece *piece, ssize_t result)
{
	unsigned now = atomic_fetch_add(&in_step, 1) + 1, most = atomic_load(&most_in_step);

	(void)piece;
	while (most < now && !atomic_compare_exchange_weak(&most_in_step, &most, now))
		;
	sleep_ms(2);
	atomic_fetch_sub(&in_step, 1);
	return result;
}

FAULT_TEST(an_operation_has_no_more_pieces_in_flight_than_its_depth)
{
	struct sluice_config c = row_config();
	struct buffer b = buffer_new(4 * MIB, 0);
	sluice_file *file;
	unsigned depth;

	for (depth = 1; depth <= 4; depth += 3) {
		c.workers = 8;
		config_tune(&c, "reactors", 8);
		config_tune(&c, "operation_depth", depth);
		config_tune(&c, "piece_bytes", 64 * KIB);
		fixture_config(f, &c);
		atomic_store(&most_in_step, 0);
		file = open_both(f->ctx, scratch(f, "depth"));
		bend(watch_depth);
		assert_write(file, b.data, b.length, 0);
		assert_read(file, b.data, b.length, 0);
		bend(NULL);
		assert_in_range(atomic_load(&most_in_step), 1, depth);
		print_message("depth %u: %u seen at once\n", depth, atomic_load(&most_in_step));
		assert_ok(sluice_close(file));
	}
	buffer_free(&b);
}

/* The kernel's lock of a file would have more of them only wait, awake. Another file is not concerned. */
FAULT_TEST(no_more_than_four_workers_write_into_one_page_cache)
{
	struct sluice_config c = row_config();
	struct buffer b = buffer_new(MIB, 0);
	sluice_file *file, *other;
	sluice_op *op, *more;

	if (strcmp(row->name, "uring") == 0)
		SKIP("the kernel's own threads write, as many as it likes");
	c.workers = 12;
	config_tune(&c, "piece_bytes", 64 * KIB);
	c.direct_bytes = 1ull << 40;
	fixture_config(f, &c);
	file = open_both(f->ctx, scratch(f, "one"));
	other = open_both(f->ctx, scratch(f, "other"));
	gate_close(NULL);
	op = start_write(file, b.data, b.length, 0);
	assert_true(gate_holds(4));
	sleep_ms(100);
	assert_int_equal(gate_count(), 4);
	more = start_write(other, b.data, 64 * KIB, 0);
	assert_true(gate_holds(5));
	gate_open();
	assert_moves(op, MIB);
	assert_moves(more, 64 * KIB);
	atomic_store(&most_in_step, 0);
	bend(watch_depth);
	assert_write(file, b.data, b.length, 0);
	bend(NULL);
	assert_in_range(atomic_load(&most_in_step), 1, 4);
	assert_ok(sluice_close(file));
	assert_ok(sluice_close(other));
	buffer_free(&b);
}
