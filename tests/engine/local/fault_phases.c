/* SPDX-License-Identifier: Apache-2.0 */
/* An operation is held in one phase of its life, and everything is tried on it. */
#include <pthread.h>
#include <unistd.h>

#include "local/fault.h"

/* Several pieces under one_thread(). */
#define SPAN (256 * KIB)

FAULT_TEST(a_running_operation_says_so)
{
	const char *path = scratch(f, "running");
	struct buffer b = buffer_new(SPAN, 0);
	sluice_op *op, *other = NULL;
	sluice_file *file;
	double begun;
	int fd;

	one_thread(f);
	file = open_both(f->ctx, path);
	gate_close(NULL);
	op = start_write(file, b.data, SPAN, 0);
	fd = sluice_op_fd(op);
	assert_true(gate_holds(1));
	begun = seconds_now();
	assert_int_equal(sluice_wait(op, 0), -EINPROGRESS);
	assert_true(seconds_now() - begun < 5);
	begun = seconds_now();
	assert_int_equal(sluice_wait(op, 60), -EINPROGRESS);
	assert_true(seconds_now() - begun >= 0.059);
	assert_int_equal(sluice_poll(op), 0);
	assert_string_equal(sluice_op_message(op), "");
	assert_false(readable(fd, 0));
	assert_false(readable(sluice_queue_fd(sluice_context_queue(f->ctx)), 0));
	assert_int_equal(sluice_queue_next(sluice_context_queue(f->ctx), 0, &other), -EAGAIN);
	gate_open();
	assert_true(readable(fd, PATIENCE_MS));
	assert_int_equal(sluice_poll(op), 1);
	/* A wait that ended too early did not see the end. */
	assert_ok(sluice_queue_next(sluice_context_queue(f->ctx), PATIENCE_MS, &other));
	assert_ptr_equal(op, other);
	assert_moves(op, SPAN);
	assert_ok(sluice_close(file));
	buffer_free(&b);
}

FAULT_TEST(an_operation_cancelled_in_flight_ends_when_its_piece_does)
{
	const char *path = scratch(f, "flight");
	struct buffer b = buffer_new(SPAN, 0);
	sluice_file *file;
	int write;

	one_thread(f);
	file_make(path, SPAN, 1);
	file = open_both(f->ctx, path);
	for (write = 0; write < 2; write++) {
		sluice_op *op;

		op = start_held(file, write, b.data, SPAN, 0);
		assert_int_equal(sluice_cancel(op), 0);
		assert_int_equal(sluice_cancel(op), 0);
		/* The piece is in the kernel's hands: as long as it is, so is the buffer. */
		assert_int_equal(sluice_wait(op, 30), -EINPROGRESS);
		gate_open();
		assert_fails(op, ECANCELED);
		/* Of several pieces only the first was begun. */
		assert_int_equal(gate_count(), 1);
		assert_write(file, b.data, SPAN, 0);
	}
	assert_ok(sluice_close(file));
	buffer_free(&b);
}

FAULT_TEST(an_operation_cancelled_in_the_last_piece_says_which_it_was)
{
	const char *path = scratch(f, "last");
	struct buffer b = buffer_new(1000, 0);
	sluice_file *file;
	sluice_op *op;
	int64_t got;

	one_thread(f);
	file_make(path, SPAN, 1);
	file = open_both(f->ctx, path);
	op = start_held(file, false, b.data, 1000, 5);
	assert_int_equal(sluice_cancel(op), 0);
	gate_open();
	got = finish(op);
	assert_true(got == 1000 || got == -ECANCELED);
	if (got == 1000)
		assert_pattern(b.data, 1000, 5, 1);
	assert_ok(sluice_close(file));
	buffer_free(&b);
}

/* The one thread is held by the first; the second waits for the thread and is never begun. */
FAULT_TEST(an_operation_cancelled_in_the_queue_is_never_begun)
{
	const char *path = scratch(f, "queue");
	struct buffer b = buffer_new(2 * SPAN, 0), marks = buffer_new(SPAN, 0);
	sluice_op *first, *second;
	sluice_file *file;
	int write;

	one_thread(f);
	memset(marks.data, 0x77, SPAN);
	for (write = 0; write < 2; write++) {
		file_make(path, 2 * SPAN, 1);
		file = open_both(f->ctx, path);
		memset(b.data, 0x77, b.length);
		first = start_held(file, write, b.data, SPAN, 0);
		second = start_move(file, write, b.data + SPAN, SPAN, SPAN);
		assert_int_equal(sluice_cancel(second), 0);
		gate_open();
		assert_moves(first, SPAN);
		assert_fails(second, ECANCELED);
		assert_int_equal(gate_count(), SPAN / (64 * KIB));
		assert_bytes(b.data + SPAN, marks.data, SPAN);
		file_read(path, b.data, SPAN, SPAN);
		assert_pattern(b.data, SPAN, SPAN, 1);
		assert_ok(sluice_close(file));
	}
	buffer_free(&b);
	buffer_free(&marks);
}

FAULT_TEST(an_operation_cancelled_behind_another_ends_at_once)
{
	const char *path = scratch(f, "behind");
	struct buffer a = buffer_new(SPAN, 0), b = buffer_new(SPAN, 0), c = buffer_new(SPAN, 0);
	struct buffer dst = buffer_new(SPAN, 0);
	sluice_op *first, *second, *third, *read;
	sluice_file *file;

	one_thread(f);
	pattern_fill(a.data, SPAN, 0, 1);
	pattern_fill(b.data, SPAN, 0, 2);
	pattern_fill(c.data, SPAN, 0, 3);
	file = open_both(f->ctx, path);
	first = start_held(file, true, a.data, SPAN, 0);
	second = start_write(file, b.data, SPAN, 0);
	third = start_write(file, c.data, SPAN / 2, 0);
	read = start_read(file, dst.data, SPAN, 0);
	assert_int_equal(sluice_cancel(second), 0);
	/* While the first one is still held. */
	assert_int_equal(sluice_wait(second, 20000), -ECANCELED);
	assert_true(*sluice_op_message(second));
	assert_refused(sluice_cancel(second), EALREADY, "");
	assert_int_equal(sluice_wait(third, 50), -EINPROGRESS);
	assert_int_equal(sluice_wait(read, 50), -EINPROGRESS);
	gate_open();
	assert_moves(third, SPAN / 2);
	assert_moves(first, SPAN);
	assert_moves(read, SPAN);
	sluice_op_free(second);
	assert_pattern(dst.data, SPAN / 2, 0, 3);
	assert_pattern(dst.data + SPAN / 2, SPAN / 2, SPAN / 2, 1);
	assert_ok(sluice_close(file));
	buffer_free(&a);
	buffer_free(&b);
	buffer_free(&c);
	buffer_free(&dst);
}

/* Such a write prepares the file first, and that is part of what was not begun. */
FAULT_TEST(a_write_cancelled_in_the_queue_does_not_make_the_file_longer)
{
	const char *path = scratch(f, "longer");
	struct buffer b = buffer_new(MIB, 0);
	sluice_op *first, *second;
	sluice_file *file;

	one_thread(f);
	file = open_both(f->ctx, path);
	first = start_held(file, true, b.data, 1000, 0);
	/* It waits for the first, which it overlaps. */
	second = start_write(file, b.data, MIB, 0);
	assert_int_equal(sluice_cancel(second), 0);
	assert_fails(second, ECANCELED);
	gate_open();
	assert_moves(first, 1000);
	assert_ok(sluice_close(file));
	assert_int_equal(file_length(path), 1000);
	buffer_free(&b);
}

FAULT_TEST(an_operation_that_was_let_go_still_moves_its_bytes)
{
	const char *path = scratch(f, "gone");
	struct buffer b = buffer_new(SPAN, 0);
	sluice_op *op, *queued, *behind, *none = NULL;
	sluice_file *file;

	one_thread(f);
	pattern_fill(b.data, SPAN, 0, 1);
	file = open_both(f->ctx, path);
	op = start_held(file, true, b.data, SPAN / 2, 0);
	queued = start_write(file, b.data + SPAN / 2, SPAN / 2, SPAN / 2);
	behind = start_write(file, b.data, 5000, 0);
	sluice_op_free(op);
	sluice_op_free(queued);
	sluice_op_free(behind);
	gate_open();
	assert_ok(sluice_sync(file));
	assert_int_equal(sluice_queue_next(sluice_context_queue(f->ctx), 0, &none), -EAGAIN);
	assert_ok(sluice_close(file));
	assert_file_is(path, b.data, SPAN);
	buffer_free(&b);
}

FAULT_TEST(the_descriptor_goes_with_the_handle)
{
	struct buffer b = buffer_new(SPAN, 0);
	size_t before;
	sluice_file *file;
	sluice_op *op;
	int fd;

	one_thread(f);
	file = open_both(f->ctx, scratch(f, "fd"));
	op = start_held(file, true, b.data, SPAN, 0);
	before = count_descriptors();
	fd = sluice_op_fd(op);
	assert_true(fd >= 0);
	sluice_op_free(op);
	assert_int_equal(count_descriptors(), before);
	gate_open();
	assert_ok(sluice_close(file));
	buffer_free(&b);
}

struct call {
	sluice_file *file;
	sluice_op *op;
	int (*run)(struct call *);
	int64_t result;
	_Atomic bool over;
	pthread_t thread;
};

static void *run_call(void *arg)
{
	struct call *c = arg;

	c->result = c->run(c);
	atomic_store(&c->over, true);
	return NULL;
}

static void call_begin(struct call *c)
{
	atomic_store(&c->over, false);
	assert_int_equal(pthread_create(&c->thread, NULL, run_call, c), 0);
}

static int call_close(struct call *c)
{
	return sluice_close(c->file);
}

static int call_discard(struct call *c)
{
	sluice_discard(c->file);
	return 0;
}

static int call_sync(struct call *c)
{
	return sluice_sync(c->file);
}

static int call_truncate(struct call *c)
{
	return sluice_truncate(c->file, SPAN / 2);
}

static int call_wait(struct call *c)
{
	return (int)sluice_wait(c->op, -1);
}

FAULT_TEST(close_waits_for_blobs_in_flight)
{
	static int (*const ends[])(struct call *) = {call_close, call_discard};
	struct buffer b = buffer_new(SPAN, 0);
	size_t i;

	one_thread(f);
	pattern_fill(b.data, SPAN, 0, 1);
	for (i = 0; i < COUNT_OF(ends); i++) {
		const char *path = scratch(f, "closing");
		struct call c = {.run = ends[i]};

		file_make(path, 0, 0);
		c.file = open_both(f->ctx, path);
		gate_close(NULL);
		assert_ok(sluice_write(c.file, b.data, SPAN / 2, 0, NULL));
		assert_ok(sluice_write(c.file, b.data + SPAN / 2, SPAN / 2, SPAN / 2, NULL));
		assert_true(gate_holds(1));
		assert_refused(sluice_context_close(f->ctx), EBUSY, "");
		call_begin(&c);
		sleep_ms(100);
		assert_false(atomic_load(&c.over));
		gate_open();
		pthread_join(c.thread, NULL);
		assert_int_equal(c.result, 0);
		assert_file_is(path, b.data, SPAN);
	}
	buffer_free(&b);
}

/* One held operation, read or write, and a call that has to wait for it. */
static void check_waits(struct fixture *f, int (*run)(struct call *), bool write)
{
	const char *path = scratch(f, "waits");
	struct buffer b = buffer_new(SPAN, 0);
	struct call c = {.run = run};

	file_make(path, SPAN, 1);
	c.file = open_both(f->ctx, path);
	c.op = start_held(c.file, write, b.data, SPAN, 0);
	call_begin(&c);
	sleep_ms(60);
	if (atomic_load(&c.over)) {
		gate_open();
		pthread_join(c.thread, NULL);
		fail_msg("the call did not wait for the %s", write ? "write" : "read");
	}
	gate_open();
	pthread_join(c.thread, NULL);
	assert_int_equal(c.result, run == call_wait ? SPAN : 0);
	assert_int_equal(sluice_poll(c.op), 1);
	assert_moves(c.op, SPAN);
	assert_ok(sluice_close(c.file));
	buffer_free(&b);
}

FAULT_TEST(sync_waits_for_a_write)
{
	one_thread(f);
	check_waits(f, call_sync, true);
}

FAULT_TEST(sync_waits_for_a_read)
{
	one_thread(f);
	check_waits(f, call_sync, false);
}

FAULT_TEST(truncate_waits_for_what_it_touches)
{
	one_thread(f);
	check_waits(f, call_truncate, true);
	check_waits(f, call_truncate, false);
}

FAULT_TEST(several_threads_may_wait_for_one_operation)
{
	enum { THREADS = 6 };
	struct buffer b = buffer_new(SPAN, 0);
	struct call c[THREADS];
	sluice_file *file;
	sluice_op *op;
	int i;

	one_thread(f);
	file = open_both(f->ctx, scratch(f, "several"));
	op = start_held(file, true, b.data, SPAN, 0);
	for (i = 0; i < THREADS; i++) {
		c[i] = (struct call){.op = op, .run = call_wait};
		call_begin(&c[i]);
	}
	sleep_ms(20);
	gate_open();
	for (i = 0; i < THREADS; i++) {
		pthread_join(c[i].thread, NULL);
		assert_int_equal(c[i].result, SPAN);
	}
	assert_moves(op, SPAN);
	assert_ok(sluice_close(file));
	buffer_free(&b);
}
