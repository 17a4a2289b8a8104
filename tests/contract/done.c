/* SPDX-License-Identifier: Apache-2.0 */
/* The ways to learn that an operation is over: wait, poll, its own descriptor, the queue. */
#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

#include "contract/contract.h"

FIXTURE_TEST(the_result_can_be_asked_for_again_and_again)
{
	sluice_file *file = open_any(f, "again");
	sluice_op *op = start_any(file, 5, 0);

	assert_int_equal(sluice_wait(op, -1), 5);
	assert_int_equal(sluice_wait(op, -1), 5);
	assert_int_equal(sluice_wait(op, 0), 5);
	assert_int_equal(sluice_wait(op, 10), 5);
	assert_int_equal(sluice_poll(op), 1);
	assert_string_equal(sluice_op_message(op), "");
	sluice_op_free(op);
	assert_ok(sluice_close(file));
}

FIXTURE_TEST(poll_turns_to_one_and_wait_agrees)
{
	struct buffer b = buffer_new(8 * MIB, 0);
	const char *path = scratch(f, "poll");
	sluice_file *file;
	int round;

	file_make(path, 8 * MIB, 1);
	file = open_read(f->ctx, address(f, "poll"));
	for (round = 0; round < 5; round++) {
		double deadline = seconds_now() + PATIENCE_MS / 1000;
		sluice_op *op;

		file_set_residency(path, COLD);
		op = start_read(file, b.data, b.length, 0);
		while (!sluice_poll(op) && seconds_now() < deadline)
			;
		assert_int_equal(sluice_wait(op, 0), b.length);
		assert_pattern(b.data, b.length, 0, 1);
		sluice_op_free(op);
	}
	assert_ok(sluice_close(file));
	buffer_free(&b);
}

FIXTURE_TEST(an_operation_has_one_descriptor_that_tells_its_end)
{
	struct buffer b = buffer_new(8 * MIB, 0);
	const char *path = scratch(f, "fd");
	size_t descriptors = 0;
	sluice_file *file;
	int round, fd;

	file_make(path, 8 * MIB, 1);
	file = open_read(f->ctx, address(f, "fd"));
	for (round = 0; round < 5; round++) {
		sluice_op *op;

		file_set_residency(path, COLD);
		op = start_read(file, b.data, b.length, 0);
		fd = sluice_op_fd(op);
		assert_true(fd >= 0);
		assert_int_equal(sluice_op_fd(op), fd);
		assert_true(readable(fd, PATIENCE_MS));
		assert_int_equal(sluice_poll(op), 1);
		assert_int_equal(sluice_wait(op, 0), b.length);
		assert_true(readable(fd, 0)); /* and stays so */
		assert_int_equal(sluice_op_fd(op), fd);
		sluice_op_free(op);
		/* Connections come and go, and may take its number at once. */
		if (!row->remote) {
			assert_int_equal(fcntl(fd, F_GETFD), -1);
			/* The file has its own for direct I/O, or for cuFile, from the first read on. */
			if (!round)
				descriptors = count_descriptors();
			assert_int_equal(count_descriptors(), descriptors);
		}
	}
	assert_ok(sluice_close(file));
	buffer_free(&b);
}

FIXTURE_TEST(the_descriptor_of_an_operation_that_is_over_is_readable)
{
	sluice_file *file = open_any(f, "late");
	sluice_op *op = start_any(file, 1, 0);
	int fd;

	assert_int_equal(sluice_wait(op, PATIENCE_MS), 1);
	fd = sluice_op_fd(op);
	assert_true(fd >= 0);
	assert_true(readable(fd, 0));
	sluice_op_free(op);
	assert_ok(sluice_close(file));
}

FIXTURE_TEST(each_finished_operation_is_reported_once_with_its_user_pointer)
{
	enum { OPERATIONS = 200 };
	struct buffer b = buffer_new(OPERATIONS * 3000, 0);
	const char *path = scratch(f, "queue");
	int seen[OPERATIONS] = {0}, i;
	sluice_op *ops[OPERATIONS], *op = NULL;
	sluice_file *file;

	file_make(path, b.length, 1);
	file_set_residency(path, HALF_CACHED);
	file = open_read(f->ctx, address(f, "queue"));
	for (i = 0; i < OPERATIONS; i++) {
		struct sluice_extent v = {b.data + i * 3000, 3000, (uint64_t)i * 3000};
		struct sluice_request r = SLUICE_REQUEST_INIT;

		r.kind = SLUICE_READ;
		r.extents = &v;
		r.count = 1;
		r.user = &seen[i];
		assert_ok(sluice_submit(file, &r, &ops[i]));
		assert_ptr_equal(sluice_op_user(ops[i]), &seen[i]);
	}
	for (i = 0; i < OPERATIONS; i++) {
		int *user;

		assert_ok(sluice_queue_next(sluice_context_queue(f->ctx), PATIENCE_MS, &op));
		user = sluice_op_user(op);
		assert_in_range(user - seen, 0, OPERATIONS - 1);
		assert_ptr_equal(op, ops[user - seen]);
		assert_int_equal((*user)++, 0);
		assert_int_equal(sluice_poll(op), 1);
		assert_moves(op, 3000);
	}
	op = NULL;
	assert_int_equal(sluice_queue_next(sluice_context_queue(f->ctx), 0, &op), -EAGAIN);
	assert_null(op);
	assert_pattern(b.data, b.length, 0, 1);
	assert_ok(sluice_close(file));
	buffer_free(&b);
}

/* One after the other, so that their order is known. */
FIXTURE_TEST(finished_operations_come_in_the_order_in_which_they_finished)
{
	enum { OPERATIONS = 50 };
	sluice_file *file = open_any(f, "order");
	sluice_op *ops[OPERATIONS], *op;
	int i;

	for (i = 0; i < OPERATIONS; i++) {
		double deadline = seconds_now() + PATIENCE_MS / 1000;

		ops[i] = start_any(file, 1, (uint64_t)i);
		while (!sluice_poll(ops[i]) && seconds_now() < deadline)
			;
	}
	for (i = 0; i < OPERATIONS; i++) {
		assert_ok(sluice_queue_next(sluice_context_queue(f->ctx), PATIENCE_MS, &op));
		assert_ptr_equal(op, ops[i]);
		assert_moves(op, 1);
	}
	assert_ok(sluice_close(file));
}

FIXTURE_TEST(operation_ended_in_wait_is_not_reported)
{
	sluice_file *file = open_any(f, "waited");
	sluice_op *waited = start_any(file, 1, 0), *polled = start_any(file, 1, 1);
	sluice_op *op = NULL;
	double deadline = seconds_now() + PATIENCE_MS / 1000;

	assert_int_equal(sluice_wait(waited, PATIENCE_MS), 1);
	while (!sluice_poll(polled) && seconds_now() < deadline)
		;
	/* To have polled it is not to have taken it. */
	assert_ok(sluice_queue_next(sluice_context_queue(f->ctx), PATIENCE_MS, &op));
	assert_ptr_equal(op, polled);
	assert_int_equal(sluice_queue_next(sluice_context_queue(f->ctx), 20, &op), -EAGAIN);
	sluice_op_free(waited);
	sluice_op_free(polled);
	assert_ok(sluice_close(file));
}

LOCAL_TEST(a_freed_handle_is_not_reported, WRITES_IN_PLACE)
{
	enum { OPERATIONS = 100 };
	struct buffer b = buffer_new(OPERATIONS * 5000, 0);
	const char *path = scratch(f, "freed");
	sluice_op *op = NULL;
	sluice_file *file = open_both(f->ctx, path);
	int i;

	pattern_fill(b.data, b.length, 0, 1);
	for (i = 0; i < OPERATIONS; i++) {
		op = start_write(file, b.data + i * 5000, 5000, (uint64_t)i * 5000);
		if (i % 3 == 0) /* some while they run, some when they are over */
			while (!sluice_poll(op))
				;
		sluice_op_free(op);
	}
	assert_ok(sluice_write(file, b.data, 5000, 0, NULL));
	assert_ok(sluice_sync(file));
	op = NULL;
	assert_int_equal(sluice_queue_next(sluice_context_queue(f->ctx), 10, &op), -EAGAIN);
	assert_null(op);
	assert_false(readable(sluice_queue_fd(sluice_context_queue(f->ctx)), 0));
	assert_ok(sluice_close(file));
	assert_file_is(path, b.data, b.length);
	buffer_free(&b);
}

FIXTURE_TEST(the_queue_has_a_descriptor_that_is_readable_while_it_holds_something)
{
	enum { OPERATIONS = 20 };
	sluice_file *file = open_any(f, "fd");
	int fd = sluice_queue_fd(sluice_context_queue(f->ctx)), round, i;
	sluice_op *ops[OPERATIONS], *op;

	assert_true(fd >= 0);
	assert_int_equal(sluice_queue_fd(sluice_context_queue(f->ctx)), fd);
	assert_false(readable(fd, 0));
	for (round = 0; round < 3; round++) {
		for (i = 0; i < OPERATIONS; i++)
			ops[i] = start_any(file, 1, (uint64_t)i);
		assert_ok(sluice_sync(file));
		for (i = 0; i < OPERATIONS; i++) {
			assert_true(readable(fd, PATIENCE_MS));
			if (i % 4 == 3) {
				/* A wait takes it off the queue as well. */
				for (int j = 0; j < OPERATIONS; j++) {
					if (!ops[j])
						continue;
					assert_moves(ops[j], 1);
					ops[j] = NULL;
					break;
				}
			} else {
				assert_ok(sluice_queue_next(sluice_context_queue(f->ctx), 0, &op));
				for (int j = 0; j < OPERATIONS; j++)
					if (ops[j] == op)
						ops[j] = NULL;
				sluice_op_free(op);
			}
		}
		assert_false(readable(fd, 10));
		assert_int_equal(sluice_queue_next(sluice_context_queue(f->ctx), 0, &op), -EAGAIN);
	}
	assert_ok(sluice_close(file));
}

FIXTURE_TEST(next_done_waits_as_long_as_it_was_told)
{
	sluice_op *op = NULL;
	double begun = seconds_now(), took;

	assert_int_equal(sluice_queue_next(sluice_context_queue(f->ctx), 0, &op), -EAGAIN);
	assert_int_equal(sluice_queue_next(sluice_context_queue(f->ctx), 100, &op), -EAGAIN);
	took = seconds_now() - begun;
	if (took < 0.099 || took > 20)
		fail_msg("100 ms took %.3f s", took);
	assert_null(op);
}

struct taker {
	sluice_context *ctx;
	sluice_op *op;
	int rc;
};

static void *take(void *arg)
{
	struct taker *t = arg;

	t->rc = sluice_queue_next(sluice_context_queue(t->ctx), -1, &t->op);
	return NULL;
}

FIXTURE_TEST(next_done_is_woken_in_every_thread_that_waits)
{
	enum { THREADS = 4 };
	sluice_file *file = open_any(f, "threads");
	struct taker takers[THREADS];
	pthread_t threads[THREADS];
	sluice_op *ops[THREADS];
	int i, j, found = 0;

	for (i = 0; i < THREADS; i++) {
		takers[i] = (struct taker){f->ctx, NULL, 1};
		assert_int_equal(pthread_create(&threads[i], NULL, take, &takers[i]), 0);
	}
	sleep_ms(20);
	for (i = 0; i < THREADS; i++)
		ops[i] = start_any(file, 1, (uint64_t)i);
	for (i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	for (i = 0; i < THREADS; i++) {
		assert_int_equal(takers[i].rc, 0);
		for (j = 0; j < THREADS; j++)
			found += takers[j].op == ops[i];
	}
	assert_int_equal(found, THREADS);
	for (i = 0; i < THREADS; i++)
		assert_moves(ops[i], 1);
	assert_ok(sluice_close(file));
}

FIXTURE_TEST(two_contexts_do_not_share_a_queue)
{
	sluice_context *other = NULL;
	struct fixture second;
	sluice_file *a, *b;
	sluice_op *op_a, *op_b, *op = NULL;

	a = open_any(f, "a");
	assert_ok(sluice_context_new(&row->config, &other));
	second = *f;
	second.ctx = other;
	b = open_any(&second, "b");
	op_a = start_any(a, 1, 0);
	op_b = start_any(b, 1, 1);
	assert_ok(sluice_queue_next(sluice_context_queue(other), PATIENCE_MS, &op));
	assert_ptr_equal(op, op_b);
	assert_int_equal(sluice_queue_next(sluice_context_queue(other), 20, &op), -EAGAIN);
	assert_ok(sluice_queue_next(sluice_context_queue(f->ctx), PATIENCE_MS, &op));
	assert_ptr_equal(op, op_a);
	assert_ok(sluice_close(b));
	assert_ok(sluice_context_close(other));
	assert_moves(op_a, 1);
	assert_moves(op_b, 1);
	op_a = start_any(a, 1, 2);
	assert_moves(op_a, 1);
	assert_ok(sluice_close(a));
}

/* More than are kept to serve again. */
#define HANDLES 150

ROW_TEST(immediate_completion_is_an_operation_like_others, .memory = "into an array")
{
	static char user[HANDLES];
	unsigned char byte[HANDLES];
	sluice_op *ops[HANDLES], *op;
	sluice_file *file;

	file_make(scratch(f, "at-once"), HANDLES, 1);
	file = open_read(f->ctx, address(f, "at-once"));
	for (int round = 0; round < 3; round++) {
		for (int i = 0; i < HANDLES; i++) {
			struct sluice_extent extent = {&byte[i], 1, i};
			struct sluice_request r = SLUICE_REQUEST_INIT;

			r.kind = SLUICE_READ;
			r.extents = &extent;
			r.count = 1;
			r.user = &user[i];
			assert_ok(sluice_submit(file, &r, &ops[i]));
			assert_int_equal(sluice_wait(ops[i], -1), 1);
			assert_ptr_equal(sluice_op_user(ops[i]), &user[i]);
			assert_int_equal(sluice_cancel(ops[i]), -EALREADY);
			assert_string_equal(sluice_op_message(ops[i]), "");
			if (i % 10 == 0)
				assert_true(readable(sluice_op_fd(ops[i]), 0));
		}
		assert_pattern(byte, HANDLES, 0, 1);
		assert_int_equal(sluice_queue_next(sluice_context_queue(f->ctx), 0, &op), -EAGAIN);
		for (int i = 0; i < HANDLES; i++)
			sluice_op_free(ops[i]);
	}
	/* Handles may outlive the file. */
	for (int i = 0; i < 3; i++) {
		assert_ok(sluice_read(file, byte, 1, i, &ops[i]));
		assert_int_equal(sluice_wait(ops[i], -1), 1);
	}
	assert_ok(sluice_close(file));
	for (int i = 0; i < 3; i++)
		sluice_op_free(ops[i]);
}

/* ------------------------------------------------------------------- a queue of the program's own */

static sluice_op *start_queued(sluice_file *file, void *data, size_t n, uint64_t offset,
                               sluice_queue *queue)
{
	struct sluice_extent extent = {data, n, offset};
	struct sluice_request r = SLUICE_REQUEST_INIT;
	sluice_op *op;

	r.kind = SLUICE_READ;
	r.extents = &extent;
	r.count = 1;
	r.queue = queue;
	assert_ok(sluice_submit(file, &r, &op));
	return op;
}

FIXTURE_TEST(an_operation_is_in_the_queue_that_its_request_names_and_in_no_other)
{
	enum { OPERATIONS = 100, BYTES = 3000 };
	struct buffer b = buffer_new(OPERATIONS * BYTES, 0);
	const char *path = scratch(f, "queues");
	sluice_op *ops[OPERATIONS], *op = NULL;
	int left[2] = {OPERATIONS / 2, OPERATIONS / 2}, fd[2];
	sluice_queue *queue[2];
	sluice_file *file;

	file_make(path, b.length, 1);
	file_set_residency(path, HALF_CACHED);
	file = open_read(f->ctx, address(f, "queues"));
	for (int i = 0; i < 2; i++) {
		assert_ok(sluice_queue_new(&queue[i]));
		fd[i] = sluice_queue_fd(queue[i]);
		assert_true(fd[i] >= 0 && sluice_queue_fd(queue[i]) == fd[i]);
		assert_false(readable(fd[i], 0));
	}
	for (int i = 0; i < OPERATIONS; i++)
		ops[i] = start_queued(file, b.data + i * BYTES, BYTES, (uint64_t)i * BYTES,
		                      queue[i % 2]);
	for (int i = 0; i < OPERATIONS; i++) {
		int found = 0;

		assert_true(readable(fd[i % 2], PATIENCE_MS));
		assert_ok(sluice_queue_next(queue[i % 2], PATIENCE_MS, &op));
		for (int k = i % 2; k < OPERATIONS; k += 2)
			found += ops[k] == op;
		assert_int_equal(found, 1);
		left[i % 2]--;
	}
	for (int i = 0; i < OPERATIONS; i++)
		assert_moves(ops[i], BYTES);
	assert_pattern(b.data, b.length, 0, 1);
	assert_int_equal(sluice_queue_next(sluice_context_queue(f->ctx), 0, &op), -EAGAIN);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(left[i], 0);
		assert_false(readable(fd[i], 0));
		assert_int_equal(sluice_queue_next(queue[i], 0, &op), -EAGAIN);
		sluice_queue_free(queue[i]);
		assert_int_equal(fcntl(fd[i], F_GETFD), -1);
	}
	assert_ok(sluice_close(file));
	buffer_free(&b);
}

FIXTURE_TEST(operations_outlive_the_queue_that_they_named)
{
	struct buffer b = buffer_new(8 * MIB, 0);
	const char *path = scratch(f, "orphans");
	sluice_op *large, *small, *ended, *op = NULL;
	sluice_queue *queue;
	sluice_file *file;
	char bytes[2];

	file_make(path, b.length, 1);
	file_set_residency(path, COLD);
	file = open_read(f->ctx, address(f, "orphans"));
	assert_ok(sluice_queue_new(&queue));
	ended = start_queued(file, &bytes[0], 1, 0, queue);
	assert_true(readable(sluice_op_fd(ended), PATIENCE_MS));
	large = start_queued(file, b.data, b.length, 0, queue);
	small = start_queued(file, &bytes[1], 1, 0, queue);
	sluice_queue_free(queue);
	assert_moves(large, b.length);
	assert_moves(small, 1);
	assert_moves(ended, 1);
	assert_pattern(b.data, b.length, 0, 1);
	assert_int_equal(sluice_queue_next(sluice_context_queue(f->ctx), 0, &op), -EAGAIN);
	assert_ok(sluice_close(file));
	sluice_queue_free(NULL);
	buffer_free(&b);
}

/* Handles of operations that were over at once are kept by the queue, and serve any context. */
FIXTURE_TEST(a_queue_serves_several_contexts_and_outlives_them)
{
	sluice_context *other = NULL;
	char bytes[2 * HANDLES];
	sluice_op *ops[2 * HANDLES], *op;
	sluice_file *files[2];
	sluice_queue *queue;

	assert_ok(sluice_context_new(&row->config, &other));
	file_make(scratch(f, "shared"), 1, 1);
	files[0] = open_read(f->ctx, address(f, "shared"));
	files[1] = open_read(other, address(f, "shared"));
	assert_ok(sluice_queue_new(&queue));
	for (int round = 0; round < 2; round++) {
		for (int i = 0; i < 2 * HANDLES; i++)
			ops[i] = start_queued(files[(i + round) % 2], &bytes[i], 1, 0, queue);
		for (int i = 0; i < 2 * HANDLES; i++)
			assert_ok(sluice_queue_next(queue, PATIENCE_MS, &op));
		assert_int_equal(sluice_queue_next(queue, 0, &op), -EAGAIN);
		for (int i = 0; i < 2 * HANDLES; i++)
			assert_moves(ops[i], 1);
	}
	assert_ok(sluice_close(files[1]));
	assert_ok(sluice_context_close(other));
	ops[0] = start_queued(files[0], bytes, 1, 0, queue);
	assert_ok(sluice_queue_next(queue, PATIENCE_MS, &op));
	assert_ptr_equal(op, ops[0]);
	assert_moves(op, 1);
	sluice_queue_free(queue);
	assert_ok(sluice_close(files[0]));
}

/* The field is new: the size of an older struct leaves it out. */
ROW_TEST(a_request_of_an_older_program_names_no_queue, .device = "the requests are the shim's")
{
	struct sluice_extent extent = {"", 0, 0};
	struct sluice_request r = SLUICE_REQUEST_INIT;
	sluice_file *file = open_any(f, "older");
	sluice_op *op, *next;

	r.size = offsetof(struct sluice_request, queue);
	r.kind = SLUICE_READ;
	r.extents = &extent;
	r.count = 1;
	r.queue = (sluice_queue *)8;
	assert_ok(sluice_submit(file, &r, &op));
	assert_ok(sluice_queue_next(sluice_context_queue(f->ctx), PATIENCE_MS, &next));
	assert_ptr_equal(op, next);
	assert_moves(op, 0);
	assert_ok(sluice_close(file));
}

FIXTURE_TEST(calls_on_no_queue_are_refused)
{
	sluice_queue *queue;
	sluice_op *op;

	(void)f;
	assert_refused(sluice_queue_new(NULL), EINVAL, "out is NULL");
	assert_refused(sluice_queue_next(NULL, 0, &op), EINVAL, "queue is NULL");
	assert_refused(sluice_queue_fd(NULL), EINVAL, "queue is NULL");
	assert_ok(sluice_queue_new(&queue));
	assert_refused(sluice_queue_next(queue, 0, NULL), EINVAL, "out is NULL");
	sluice_queue_free(queue);
}
