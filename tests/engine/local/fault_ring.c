/* SPDX-License-Identifier: Apache-2.0 */
/* io_uring itself fails: its calls, and requests that the kernel gives up. The program is linked with --wrap for these. */
#include <limits.h>
#include <linux/io_uring.h>
#include <linux/time_types.h>
#include <signal.h>
#include <unistd.h>

#include "local/fault.h"

#define LENGTH (4 * MIB)
#define EVER   UINT_MAX

struct io_uring;

static _Atomic unsigned cancelled_each; /* of so many requests the kernel cancels one; 0: none */
static _Atomic unsigned requests, cancelled;
static _Atomic unsigned calls_left, failing_calls; /* until calls fail, and how many do */
static _Atomic int call_error;
static _Atomic unsigned gathers;

unsigned __real_io_uring_peek_batch_cqe(struct io_uring *ring, struct io_uring_cqe **out,
                                        unsigned count);
unsigned __wrap_io_uring_peek_batch_cqe(struct io_uring *ring, struct io_uring_cqe **out,
                                        unsigned count);
int __real_io_uring_submit_and_wait(struct io_uring *ring, unsigned n);
int __wrap_io_uring_submit_and_wait(struct io_uring *ring, unsigned n);
int __real_io_uring_submit_and_get_events(struct io_uring *ring);
int __wrap_io_uring_submit_and_get_events(struct io_uring *ring);
int __real_io_uring_submit_and_wait_timeout(struct io_uring *ring, struct io_uring_cqe **out,
                                            unsigned n, struct __kernel_timespec *time,
                                            sigset_t *mask);
int __wrap_io_uring_submit_and_wait_timeout(struct io_uring *ring, struct io_uring_cqe **out,
                                            unsigned n, struct __kernel_timespec *time,
                                            sigset_t *mask);

unsigned __wrap_io_uring_peek_batch_cqe(struct io_uring *ring, struct io_uring_cqe **out,
                                        unsigned count)
{
	unsigned n = __real_io_uring_peek_batch_cqe(ring, out, count);
	unsigned each = atomic_load(&cancelled_each);

	for (unsigned i = 0; each && i < n; i++) {
		if (!out[i]->user_data || atomic_fetch_add(&requests, 1) % each)
			continue;
		out[i]->res = -ECANCELED;
		atomic_fetch_add(&cancelled, 1);
	}
	return n;
}

/* Returns the error of this call, or 0: the kernel decides. */
static int due_error(void)
{
	unsigned n = atomic_load(&calls_left);

	while (n && !atomic_compare_exchange_weak(&calls_left, &n, n - 1))
		;
	if (n != 1)
		return 0;
	n = atomic_load(&failing_calls);
	if (n != EVER)
		atomic_store(&failing_calls, n - 1);
	/* The next call fails, too. */
	if (n > 1)
		atomic_store(&calls_left, 1);
	return atomic_load(&call_error);
}

int __wrap_io_uring_submit_and_wait(struct io_uring *ring, unsigned n)
{
	int error = due_error();

	return error ? -error : __real_io_uring_submit_and_wait(ring, n);
}

int __wrap_io_uring_submit_and_get_events(struct io_uring *ring)
{
	int error = due_error();

	return error ? -error : __real_io_uring_submit_and_get_events(ring);
}

/* The wait of a reactor with many short requests. */
int __wrap_io_uring_submit_and_wait_timeout(struct io_uring *ring, struct io_uring_cqe **out,
                                            unsigned n, struct __kernel_timespec *time,
                                            sigset_t *mask)
{
	int error = due_error();

	atomic_fetch_add(&gathers, 1);
	return error ? -error : __real_io_uring_submit_and_wait_timeout(ring, out, n, time, mask);
}

/* io_uring_enter(), which one reactor makes: from the n-th call on so many give this error. */
static void fail_calls(unsigned n, int error, unsigned count)
{
	atomic_store(&call_error, error);
	atomic_store(&failing_calls, count);
	atomic_store(&calls_left, n);
}

static int teardown(void **state)
{
	fail_calls(0, 0, 0);
	atomic_store(&cancelled_each, 0);
	return fault_teardown(state);
}

#define RING_TEST(name) FIXTURE_TEST_WITH(name, fault_setup, teardown)

static bool uses_ring(struct fixture *f)
{
	struct sluice_feature feature = {.size = sizeof(feature)};

	assert_ok(sluice_context_feature(f->ctx, 0, &feature));
	return feature.usable;
}

static void one_reactor(struct fixture *f)
{
	struct sluice_config c = row_config();

	config_tune(&c, "reactors", 1);
	config_tune(&c, "piece_bytes", 128 * KIB);
	config_tune(&c, "inline_bytes", 1);
	fixture_config(f, &c);
}

/* It does so if it can start no thread for a request. */
RING_TEST(a_request_that_the_kernel_cancels_is_done_by_a_worker)
{
	const char *path = scratch(f, "cancelled");
	struct buffer b = buffer_new(LENGTH, 0), back = buffer_new(LENGTH, 0);
	sluice_file *file;

	one_reactor(f);
	file = open_both(f->ctx, path);
	for (unsigned each = 1; each < 4; each++) {
		atomic_store(&cancelled, 0);
		atomic_store(&cancelled_each, each);
		pattern_fill(b.data, LENGTH, 0, each);
		assert_write(file, b.data, LENGTH, 0);
		assert_file_is(path, b.data, LENGTH);
		file_set_residency(path, COLD);
		assert_read(file, back.data, LENGTH, 0);
		assert_bytes(back.data, b.data, LENGTH);
		if (uses_ring(f) && scratch_takes_direct(f))
			assert_true(atomic_load(&cancelled) > 0);
	}
	assert_ok(sluice_close(file));
	buffer_free(&b);
	buffer_free(&back);
}

RING_TEST(a_cancel_ends_an_operation_that_the_kernel_cancels_too)
{
	const char *path = scratch(f, "both");
	struct buffer b = buffer_new(LENGTH, 0);
	sluice_file *file;
	int64_t got;

	one_reactor(f);
	file_make(path, LENGTH, 1);
	file = open_both(f->ctx, path);
	atomic_store(&cancelled_each, 1);
	for (int i = 0; i < 10; i++) {
		sluice_op *op;

		file_set_residency(path, COLD);
		op = start_read(file, b.data, LENGTH, 0);
		sluice_cancel(op);
		got = finish(op);
		assert_true(got == -ECANCELED || got == LENGTH);
	}
	assert_ok(sluice_close(file));
	buffer_free(&b);
}

static ssize_t cancel_in_the_file_system(const struct sl_piece *piece, ssize_t result)
{
	(void)piece;
	(void)result;
	return -ECANCELED;
}

/* A server behind a file system may answer anything. */
RING_TEST(only_an_operation_that_was_cancelled_says_so)
{
	struct buffer b = buffer_new(MIB, 0);
	sluice_file *file = open_both(f->ctx, scratch(f, "said"));

	bend(cancel_in_the_file_system);
	assert_fails(start_write(file, b.data, MIB, 0), EIO);
	bend(NULL);
	assert_ok(sluice_close(file));
	buffer_free(&b);
}

/*
 * Writes and reads at random places until the calls have failed for long, checks each result, and spoils the memory of each
 * operation that is over: it would show if the kernel still read or wrote there.
 */
static void move_at_random(struct fixture *f, struct rng *r, struct buffer *b, struct buffer *all)
{
	enum { OPS = 6 };
	const size_t part = LENGTH / OPS;
	const char *path = scratch(f, "moved");
	sluice_file *file = open_both(f->ctx, path);
	sluice_op *ops[OPS];
	bool writes[OPS];
	double begun = seconds_now();

	for (int round = 0; round < 3; round++) {
		uint64_t seed = rng_next(r);

		file_set_residency(path, (enum residency)rng_below(r, RESIDENCIES));
		for (size_t i = 0; i < OPS; i++) {
			writes[i] = rng_below(r, 2);
			if (writes[i])
				pattern_fill(b->data + i * part, part, 0, seed + i);
			ops[i] = start_move(file, writes[i], b->data + i * part, part, i * part);
		}
		for (size_t i = 0; i < OPS; i++) {
			assert_moves(ops[i], part);
			if (writes[i])
				pattern_fill(all->data + i * part, part, 0, seed + i);
			assert_bytes(b->data + i * part, all->data + i * part, part);
			memset(b->data + i * part, 0x55, part);
		}
		sleep_ms(20);
		for (size_t i = 0; i < OPS * part; i++)
			assert_int_equal(b->data[i], 0x55);
	}
	/* A second until the workers take over, for one reactor. */
	assert_true(seconds_now() - begun < 20);
	assert_ok(sluice_close(file));
	assert_file_is(path, all->data, OPS * part);
}

RING_TEST(errors_of_the_calls_delay_operations_and_hold_none)
{
	static const int errors[] = {ENOMEM, EAGAIN, EBUSY, EPERM, ENOSYS, EINVAL, EBADF, ENXIO};
	const size_t length = LENGTH / 6 * 6;
	struct buffer b = buffer_new(LENGTH, 0), all = buffer_new(LENGTH, 0);
	struct rng r = rng_new(1300);

	for (int round = 0; round < rounds_of(24); round++) {
		int error = errors[round % 3 ? rng_below(&r, 3) : rng_below(&r, COUNT_OF(errors))];
		/* Reads make some 70 calls or more, and the last of them may be over before the ring is given up. */
		unsigned n = 1 + (unsigned)rng_below(&r, 1 + rng_below(&r, 50));
		unsigned count = rng_below(&r, 3) ? EVER : 1 + (unsigned)rng_below(&r, 30);

		one_reactor(f);
		if (!uses_ring(f))
			break;
		pattern_fill(all.data, LENGTH, 0, 1);
		file_make(scratch(f, "moved"), length, 1);
		print_message("from call %u on %u times %s\n", n, count, strerror(error));
		fail_calls(n, error, count);
		move_at_random(f, &r, &b, &all);
		/* The calls of a reactor without work make no progress. */
		if (atomic_load(&calls_left) == 1 && count == EVER)
			assert_false(uses_ring(f));
		fail_calls(0, 0, 0);
	}
	buffer_free(&b);
	buffer_free(&all);
}

/* Reads that follow are the workers', which no reactor's count of many short requests holds up. */
RING_TEST(a_reactor_with_many_short_requests_gives_them_to_the_workers)
{
	enum { MANY = 60 };
	const char *path = scratch(f, "short");
	struct buffer b = buffer_new(MANY * 4096, 0);
	sluice_op *ops[MANY];
	sluice_file *file;

	one_reactor(f);
	if (!uses_ring(f) || !scratch_takes_direct(f))
		SKIP("no short request is with a ring");
	file_make(path, MANY * 4096, 1);
	file = open_read(f->ctx, path);
	atomic_store(&gathers, 0);
	for (int round = 0; round < 200 && (!atomic_load(&gathers) || uses_ring(f)); round++) {
		file_set_residency(path, COLD);
		memset(b.data, 0, b.length);
		if (atomic_load(&gathers) && !atomic_load(&calls_left))
			fail_calls(1, EPERM, EVER);
		for (size_t i = 0; i < MANY; i++)
			ops[i] = start_read(file, b.data + i * 4096, 4096, i * 4096);
		for (size_t i = 0; i < MANY; i++)
			assert_moves(ops[i], 4096);
		assert_pattern(b.data, b.length, 0, 1);
	}
	assert_false(uses_ring(f));
	assert_ok(sluice_close(file));
	buffer_free(&b);
}

/* What was begun ends after the second, with an end that is the caller's. */
RING_TEST(an_operation_is_cancelled_although_the_calls_fail)
{
	const char *path = scratch(f, "stuck");
	struct buffer b = buffer_new(LENGTH, 0);
	sluice_file *file;
	double begun;
	sluice_op *op;

	one_reactor(f);
	if (!uses_ring(f))
		SKIP("there is no io_uring");
	file_make(path, LENGTH, 1);
	file_set_residency(path, COLD);
	file = open_both(f->ctx, path);
	fail_calls(1, ENOMEM, EVER);
	op = start_read(file, b.data, LENGTH, 0);
	sleep_ms(30);
	begun = seconds_now();
	sluice_cancel(op);
	assert_fails(op, ECANCELED);
	assert_true(seconds_now() - begun < 10);
	assert_ok(sluice_close(file));
	buffer_free(&b);
}
