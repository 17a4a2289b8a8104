/* SPDX-License-Identifier: Apache-2.0 */
/* What stream order means to the streams: kernels before and behind, reads behind writes. */
#include "io/device_suite.h"

static const size_t lengths[] = {1, 4096, 100000, 256 * 1024, 5 * 1024 * 1024 + 3};

FIXTURE_TEST(a_kernel_behind_a_read_sees_its_bytes)
{
	const char *path = scratch(f, "seen");
	void *host = NULL;
	int device, round;
	size_t i;

	assert_ok(sluice_pinned_alloc(gpu_device(0), 6 * MIB, &host));
	file_make(path, 6 * MIB, 1);
	for (device = 0; device < 2; device++) {
		void *memory = device_new(device, 6 * MIB);
		sluice_stream own = stream_new(device);
		sluice_stream streams[] = {own, SLUICE_STREAM_DEFAULT, (sluice_stream)2};
		sluice_file *file = open_read(f->ctx, address(f, "seen"));

		for (round = 0; round < 6; round++) {
			sluice_stream stream = streams[round % 3];
			size_t n = row_bytes(5 * MIB);

			file_set_residency(path, (enum residency)(round % RESIDENCIES));
			for (i = 0; i < COUNT_OF(lengths); i++) {
				size_t part = lengths[i] < n ? lengths[i] : n;
				sluice_op *op = start_read_on(file, memory, part, 777 * i, stream);

				launch_take(device, stream, memory, part, host);
				stream_pass(device, stream);
				assert_pattern(host, part, 777 * i, 1);
				assert_moves(op, part);
			}
		}
		assert_ok(sluice_close(file));
		stream_free(own);
		device_free(memory);
	}
	assert_ok(sluice_pinned_free(host));
}

LOCAL_TEST(a_write_sees_what_the_stream_did_before_and_the_source_may_be_reused_behind_it,
           "a remote file cannot be written in place")
{
	const char *path = scratch(f, "written");
	sluice_stream stream = stream_new(0);
	unsigned char *expected = malloc(16 * MIB);
	void *memory = device_new(0, 6 * MIB);
	size_t i;

	for (i = 0; i < COUNT_OF(lengths); i++) {
		size_t n = lengths[i] < row_bytes(6 * MIB) ? lengths[i] : row_bytes(6 * MIB);
		sluice_file *file = open_both(f->ctx, path);
		sluice_op *a, *b;

		launch_fill(0, stream, memory, n, 0, 10 + i);
		a = start_write_on(file, memory, n, 0, stream);
		launch_fill(0, stream, memory, n, 0, 20 + i);
		b = start_write_on(file, memory, n, n, stream);
		launch_fill(0, stream, memory, n, 0, 30 + i);
		assert_moves(b, n);
		assert_moves(a, n);
		pattern_fill(expected, n, 0, 10 + i);
		pattern_fill(expected + n, n, 0, 20 + i);
		stream_pass(0, stream);
		assert_device(memory, n, 0, 30 + i);
		assert_ok(sluice_close(file));
		assert_file_is(path, expected, 2 * n);
		remove(path);
	}
	free(expected);
	device_free(memory);
	stream_free(stream);
}

/* All of it is submitted while the stream is held up, so nobody can have waited on the host. */
static void read_behind_write(struct fixture *f, bool other_handle)
{
	size_t n = row_bytes(3 * MIB) + 5;
	const char *path = scratch(f, "behind");
	void *src = device_new(0, n), *dst = device_new(0, n), *part = device_new(0, n);
	sluice_stream stream = stream_new(0);
	sluice_file *a, *b;
	int round;

	file_make(path, n + 20000, 1);
	make_room(f);
	a = open_both(f->ctx, path);
	b = other_handle ? open_read(f->ctx, path) : a;
	for (round = 0; round < 8; round++) {
		uint64_t at = (uint64_t)round * 2500, seed = 50 + (uint64_t)round;
		size_t tail = n - n / 3;
		sluice_op *write, *read, *short_read;
		struct gpu_hold h;

		hold_begin(&h, 0, stream);
		launch_fill(0, stream, src, n, at, seed);
		write = start_write_on(a, src, n, at, stream);
		read = start_read_on(b, dst, n, at, stream);
		short_read = start_read_on(b, part, tail, at + n / 3, stream);
		assert_int_equal(sluice_poll(write), 0);
		assert_int_equal(sluice_poll(read), 0);
		hold_end(&h);
		stream_pass(0, stream);
		assert_device(dst, n, at, seed);
		assert_device(part, tail, at + n / 3, seed);
		assert_moves(short_read, tail);
		assert_moves(read, n);
		assert_moves(write, n);
	}
	if (b != a)
		assert_ok(sluice_close(b));
	assert_ok(sluice_close(a));
	device_free(src);
	device_free(dst);
	device_free(part);
	stream_free(stream);
}

LOCAL_TEST(a_read_behind_a_write_on_one_stream_sees_it, "a remote file cannot be written in place")
{
	read_behind_write(f, false);
}

LOCAL_TEST(a_read_behind_a_write_sees_it_through_another_handle,
           "a remote file cannot be written in place")
{
	read_behind_write(f, true);
}

/* The order of submission holds, whatever the streams are. */
LOCAL_TEST(a_read_on_another_stream_comes_after_the_write,
           "a remote file cannot be written in place")
{
	size_t n = row_bytes(2 * MIB) + 9;
	void *src = device_new(0, n), *dst = device_new(1, n);
	sluice_stream one = stream_new(0), two = stream_new(1);
	sluice_file *file;
	int round;

	make_room(f);
	file = open_both(f->ctx, scratch(f, "streams"));
	for (round = 0; round < 8; round++) {
		uint64_t seed = 70 + (uint64_t)round;
		sluice_op *write, *read;
		struct gpu_hold h;

		assert_ok(sluice_truncate(file, n));
		hold_begin(&h, 0, one);
		launch_fill(0, one, src, n, 0, seed);
		write = start_write_on(file, src, n, 0, one);
		read = start_read_on(file, dst, n, 0, two);
		sleep_ms(5);
		assert_int_equal(sluice_poll(read), 0);
		hold_end(&h);
		stream_pass(1, two);
		assert_device(dst, n, 0, seed);
		assert_moves(read, n);
		assert_moves(write, n);
	}
	assert_ok(sluice_close(file));
	device_free(src);
	device_free(dst);
	stream_free(one);
	stream_free(two);
}

LOCAL_TEST(host_memory_in_stream_order_is_used_between_its_neighbours,
           "a remote file cannot be written in place")
{
	size_t n = row_bytes(2 * MIB) + 9;
	const char *path = scratch(f, "direct");
	struct buffer src = buffer_new(n, 16), dst = buffer_new(n, 0);
	sluice_stream stream = stream_new(1);
	void *memory = device_new(1, n), *pinned = NULL;
	sluice_op *write, *read;
	sluice_file *file;
	struct gpu_hold h;

	make_room(f);
	assert_ok(sluice_pinned_alloc(gpu_device(1), n, &pinned));
	file_make(path, n, 1);
	file = open_both(f->ctx, path);
	hold_begin(&h, 1, stream);
	launch_fill(1, stream, memory, n, 0, 3);
	assert_ok(sluice_copy_on(pinned, memory, n, stream));
	/* The source gets its bytes on the stream, behind this call. */
	write = start_write_on(file, pinned, n, 0, stream);
	read = start_read_on(file, dst.data, n, 0, stream);
	assert_ok(sluice_copy_on(memory, pinned, n, stream));
	hold_end(&h);
	assert_moves(read, n);
	assert_pattern(dst.data, n, 0, 3);
	assert_moves(write, n);
	stream_pass(1, stream);
	assert_ok(sluice_close(file));
	assert_ok(sluice_pinned_free(pinned));
	device_free(memory);
	stream_free(stream);
	buffer_free(&src);
	buffer_free(&dst);
}

FIXTURE_TEST(poll_says_that_a_read_is_over_once_the_stream_has_passed)
{
	const char *path = scratch(f, "polled");
	void *memory = device_new(0, 4 * MIB);
	sluice_stream stream = stream_new(0);
	struct rng r = rng_new(900);
	sluice_file *file;
	int round;

	file_make(path, 4 * MIB, 1);
	file = open_read(f->ctx, address(f, "polled"));
	for (round = 0; round < 100; round++) {
		size_t n = 1 + rng_below(&r, round % 4 ? 20000 : row_bytes(2 * MIB));
		sluice_op *op, *done = NULL;
		uint64_t before;

		if (round % 20 == 0)
			file_set_residency(path, COLD);
		op = start_read_on(file, memory, n, (uint64_t)round, stream);
		assert_ok(sluice_stream_synchronize(gpu_device(0), stream));
		/* Of an emulated device only; of a real one none are counted. */
		before = sluice_emulated_calls(SLUICE_EMULATED_SYNCHRONIZE, NULL) +
		         sluice_emulated_calls(SLUICE_EMULATED_QUERY, NULL);
		assert_int_equal(sluice_poll(op), 1);
		assert_int_equal(sluice_emulated_calls(SLUICE_EMULATED_SYNCHRONIZE, NULL) +
		                         sluice_emulated_calls(SLUICE_EMULATED_QUERY, NULL),
		                 before);
		assert_refused(sluice_cancel(op), EALREADY, "");
		if (round % 2) {
			assert_ok(sluice_queue_next(sluice_context_queue(f->ctx), 0, &done));
			assert_ptr_equal(done, op);
		}
		assert_int_equal(sluice_wait(op, 0), n);
		assert_device(memory, n, (uint64_t)round, 1);
		sluice_op_free(op);
	}
	assert_ok(sluice_close(file));
	device_free(memory);
	stream_free(stream);
}
