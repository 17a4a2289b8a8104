/* SPDX-License-Identifier: Apache-2.0 */
/* With nvidia-fs: what comes of cuFile's errors, the order of its work on streams, and its use without its name. */
#include "local/cufile_suite.h"

#include <pthread.h>

/* ---------------------------------------------------------------------------------------- errors */

CUFILE_TEST(a_file_that_it_refuses_is_refused_by_name)
{
	const char *path = scratch(f, "refused");
	char *memory = device_new(0, 4096);
	sluice_stream stream = stream_new(0);
	unsigned char host[4096];
	sluice_op *op = NULL;
	sluice_file *file;

	NEEDS_FAKE;
	file_make(path, 4096, 8);
	file = open_read(f->ctx, path);
	setenv("FAKE_CUFILE_HANDLE", "1:5027", 1);
	assert_refused(sluice_read(file, memory, 4096, 0, &op), ENOTSUP, "5027");
	assert_null(op);
	setenv("FAKE_CUFILE_HANDLE", "1:5008", 1);
	assert_refused(sluice_read_on(file, memory, 4096, 0, stream, &op), ENOTSUP, path);
	assert_null(op);
	/* Host memory needs none of it, and what was wrong may be put right. */
	assert_read(file, host, 4096, 0);
	assert_read(file, memory, 4096, 0);
	assert_device(memory, 4096, 0, 8);
	assert_ok(sluice_close(file));
	stream_free(stream);
	device_free(memory);
}

CUFILE_TEST(a_failed_transfer_is_told_in_a_sentence)
{
	const char *path = scratch(f, "failed");
	char *memory = device_new(0, 20 * MIB);
	sluice_file *file;

	NEEDS_FAKE;
	file_make(path, 20 * MIB, 9);
	file = open_both(f->ctx, path);
	setenv("FAKE_CUFILE_TRANSFER", "2:-5030", 1);
	assert_failed(start_read(file, memory, 20 * MIB, 0), EIO, "5030");
	setenv("FAKE_CUFILE_TRANSFER", "1:-1", 1);
	assert_failed(start_write(file, memory, 4096, 8192), EIO, "byte 8192");
	setenv("FAKE_CUFILE_TRANSFER", "1:0", 1);
	assert_failed(start_read(file, memory, 4096, 0), EIO, "cut short");
	unsetenv("FAKE_CUFILE_TRANSFER");
	assert_read(file, memory, 4096, 0);
	setenv("FAKE_CUFILE_TRANSFER", "1:0", 1);
	assert_failed(start_write(file, memory, 4096, 0), EIO, "write");
	unsetenv("FAKE_CUFILE_TRANSFER");
	assert_read(file, memory, 20 * MIB, 0);
	assert_ok(sluice_close(file));
	device_free(memory);
}

CUFILE_TEST(a_short_transfer_is_continued)
{
	const char *path = scratch(f, "short");
	char *memory = device_new(0, 8192);
	sluice_file *file;

	NEEDS_FAKE;
	file_make(path, 8192, 10);
	file = open_read(f->ctx, path);
	device_fill(memory, 8192, 0, 10);
	setenv("FAKE_CUFILE_TRANSFER", "1:100", 1);
	assert_read(file, memory, 8192, 0);
	assert_device(memory, 8192, 0, 10);
	assert_ok(sluice_close(file));
	device_free(memory);
}

/* Whatever happens to the transfer: the stream goes on, and the operation says what it was. */
CUFILE_TEST(a_transfer_that_fails_on_a_stream_lets_it_go_on)
{
	static const struct {
		const char *variable, *value, *says;
	} faults[] = {
		{"FAKE_CUFILE_PASSED", "1:-5030", "5030"},
		{"FAKE_CUFILE_PASSED", "1:-1", "byte 4096"},
		{"FAKE_CUFILE_PASSED", "1:100", "100 of"},
		{"FAKE_CUFILE_PASSED", "2:0", "0 of"},
		{"FAKE_CUFILE_ENQUEUE", "1:5011", "5011"},
		{"FAKE_CUFILE_ENQUEUE", "2:5030", "5030"},
		{"FAKE_CUFILE_ENQUEUE", "3:5022", "5022"},
	};
	const char *path = scratch(f, "goes-on");
	char *memory = device_new(0, 4 * MIB);
	sluice_stream stream = stream_new(0);
	void *host = NULL;
	sluice_file *file;

	NEEDS_FAKE;
	assert_ok(sluice_pinned_alloc(gpu_device(0), 4096, &host));
	file_make(path, 5 * MIB, 11);
	file = open_both(f->ctx, path);
	for (size_t i = 0; i < 2 * COUNT_OF(faults); i++) {
		const struct sluice_extent v[] = {{memory, 3 * MIB, 4096},
		                                  {memory + 3 * MIB, 4096, 4 * MIB},
		                                  {memory + 3 * MIB + 4096, 4096, 0}};
		sluice_op *op = NULL;

		setenv(faults[i / 2].variable, faults[i / 2].value, 1);
		if (i % 2)
			assert_ok(submit_write_on(file, v, 3, stream, &op));
		else
			assert_ok(submit_read_on(file, v, 3, stream, &op));
		launch_fill(0, stream, memory, 4096, 0, 12);
		launch_take(0, stream, memory, 4096, host);
		stream_pass(0, stream);
		assert_pattern(host, 4096, 0, 12);
		assert_failed(op, EIO, faults[i / 2].says);
		/* A transfer without a fault begins the count again. */
		unsetenv(faults[i / 2].variable);
		assert_moves(start_read_on(file, memory, 4096, 0, stream), 4096);
	}
	assert_moves(start_read_on(file, memory, 4 * MIB, 0, stream), 4 * MIB);
	assert_ok(sluice_close(file));
	assert_ok(sluice_pinned_free(host));
	stream_free(stream);
	device_free(memory);
}

/* The word behind the transfers: without it the end of the stream is waited for. */
CUFILE_TEST(a_word_that_the_driver_refuses_ends_with_the_stream)
{
	const char *path = scratch(f, "word");
	char *memory = device_new(0, 4 * MIB);
	sluice_stream stream = stream_new(0);
	unsigned char host[4096];
	struct gpu_hold hold;
	sluice_file *file;
	sluice_op *op, *write;

	NEEDS_FAKE;
	file_make(path, 4 * MIB, 13);
	pattern_fill(host, 4096, 0, 13);
	file = open_both(f->ctx, path);
	assert_moves(start_read_on(file, memory, 4096, 0, stream), 4096);
	hold_begin(&hold, 0, stream);
	cuda_fail("cuStreamWriteValue32_v2", 1, 999);
	op = start_read_on(file, memory, 4 * MIB, 0, stream);
	/* The transfer is still to come: what overlaps it waits for that. */
	write = start_write(file, host, 4096, 0);
	assert_int_equal(sluice_wait(op, 50), -EINPROGRESS);
	assert_int_equal(sluice_wait(write, 0), -EINPROGRESS);
	hold_end(&hold);
	assert_failed(op, EIO, "did not take");
	assert_moves(write, 4096);
	assert_moves(start_read_on(file, memory, 4 * MIB, 0, stream), 4 * MIB);
	assert_device(memory, 4 * MIB, 0, 13);
	assert_ok(sluice_close(file));
	stream_free(stream);
	device_free(memory);
}

CUFILE_TEST(a_file_that_ends_early_fails_on_a_stream)
{
	const char *path = scratch(f, "ends");
	char *memory = device_new(0, 8192);
	sluice_stream stream = stream_new(0);
	struct gpu_hold hold;
	unsigned enqueued;
	sluice_file *file;
	sluice_op *op;

	file_make(path, 8192, 14);
	file = open_read(f->ctx, path);
	enqueued = fake_calls("ENQUEUE");
	assert_failed(start_read_on(file, memory, 8192, 4096, stream), EIO, "ends at byte 8192");
	assert_int_equal(fake_calls("ENQUEUE"), enqueued);
	/* What is there when it is submitted may be missing when the stream comes to it. */
	assert_moves(start_read_on(file, memory, 100, 0, stream), 100);
	hold_begin(&hold, 0, stream);
	op = start_read_on(file, memory, 8192, 0, stream);
	file_truncate(path, 5000);
	hold_end(&hold);
	assert_failed(op, EIO, has_fake() ? "5000 of 8192" : "cuFile");
	assert_ok(sluice_close(file));
	stream_free(stream);
	device_free(memory);
}

CUFILE_TEST(a_cancel_takes_nothing_off_the_stream)
{
	const char *path = scratch(f, "cancel");
	char *memory = device_new(0, MIB);
	sluice_stream stream = stream_new(0);
	struct gpu_hold hold;
	sluice_file *file = open_both(f->ctx, path);
	unsigned char *expected = malloc(MIB);
	sluice_op *op;

	assert_moves(start_write_on(file, memory, MIB, 0, stream), MIB);
	device_fill(memory, MIB, 0, 15);
	hold_begin(&hold, 0, stream);
	op = start_write_on(file, memory, MIB, 0, stream);
	assert_ok(sluice_cancel(op));
	assert_int_equal(sluice_wait(op, 50), -EINPROGRESS);
	hold_end(&hold);
	assert_int_equal(finish(op), -ECANCELED);
	stream_pass(0, stream);
	pattern_fill(expected, MIB, 0, 15);
	assert_file_is(path, expected, MIB);
	assert_ok(sluice_close(file));
	free(expected);
	stream_free(stream);
	device_free(memory);
}

/* ----------------------------------------------------------------------------------------- order */

/* What is behind a slow write, however it is awaited and wherever it goes, sees it. */
CUFILE_TEST(operation_over_a_stream_write_comes_after_it)
{
	const size_t n = 2 * MIB;
	const char *path = scratch(f, "order");
	char *src = device_new(0, n), *dst = device_new(0, n);
	sluice_stream stream = stream_new(0), other = stream_new(0);
	unsigned char *host = malloc(n);
	sluice_file *file = open_both(f->ctx, path);

	setenv("FAKE_CUFILE_DELAY_US", "20000", 1);
	assert_moves(start_write_on(file, src, n, 0, stream), n);
	for (int i = 0; i < 8; i++) {
		sluice_op *write, *read;

		device_fill(src, n, 0, 20 + i);
		write = start_write_on(file, src, n, 0, stream);
		switch (i % 4) {
		case 0:
			read = start_read(file, host, n, 0);
			break;
		case 1:
			read = start_read(file, dst, n, 0);
			break;
		case 2:
			read = start_read_on(file, dst, n, 0, i == 2 ? stream : other);
			break;
		default:
			/* The usual way in stream order. */
			read = start_read_on(file, dst, n, 0, SLUICE_STREAM_DEFAULT);
		}
		assert_moves(read, n);
		if (i % 4)
			assert_device(dst, n, 0, 20 + i);
		else
			assert_pattern(host, n, 0, 20 + i);
		assert_moves(write, n);
	}
	assert_ok(sluice_close(file));
	free(host);
	stream_free(stream);
	stream_free(other);
	device_free(src);
	device_free(dst);
}

CUFILE_TEST(on_one_stream_nothing_waits)
{
	const size_t n = 2 * MIB;
	char *src = device_new(0, n), *dst = device_new(0, n);
	sluice_stream stream = stream_new(0);
	sluice_file *file = open_both(f->ctx, scratch(f, "one"));
	sluice_op *write, *read;
	struct gpu_hold hold;

	assert_moves(start_write_on(file, src, n, 0, stream), n);
	device_fill(src, n, 0, 30);
	hold_begin(&hold, 0, stream);
	write = start_write_on(file, src, n, 0, stream);
	read = start_read_on(file, dst, n, 0, stream);
	assert_int_equal(sluice_poll(write) + sluice_poll(read), 0);
	hold_end(&hold);
	assert_moves(read, n);
	assert_moves(write, n);
	assert_device(dst, n, 0, 30);
	assert_ok(sluice_close(file));
	stream_free(stream);
	device_free(src);
	device_free(dst);
}

CUFILE_TEST(a_read_behind_a_write_on_one_stream_sees_what_that_adds)
{
	const size_t n = 64 * KIB;
	char *src = device_new(0, n), *dst = device_new(0, n);
	sluice_stream stream = stream_new(0);
	sluice_file *file = open_both(f->ctx, scratch(f, "adds"));
	sluice_op *write, *read, *beyond;
	struct gpu_hold hold;

	assert_moves(start_write_on(file, src, 4096, 0, stream), 4096);
	device_fill(src, n, 0, 31);
	hold_begin(&hold, 0, stream);
	write = start_write_on(file, src, n, 0, stream);
	read = start_read_on(file, dst, n, 0, stream);
	beyond = start_read_on(file, dst, n, 4096, stream);
	hold_end(&hold);
	assert_moves(write, n);
	assert_moves(read, n);
	assert_failed(beyond, EIO, has_fake() ? "61440 of 65536" : "cuFile");
	assert_moves(start_read_on(file, dst, n, 0, stream), n);
	assert_device(dst, n, 0, 31);
	assert_ok(sluice_close(file));
	stream_free(stream);
	device_free(src);
	device_free(dst);
}

CUFILE_TEST(operation_that_would_wait_is_not_enqueued)
{
	const size_t n = 64 * KIB;
	char *memory = device_new(0, n);
	sluice_stream stream = stream_new(0), other = stream_new(0);
	unsigned char *host = calloc(1, n);
	struct sluice_extent v[MANY];
	sluice_op *op = NULL, *write;
	struct gpu_hold hold;
	sluice_file *file = NULL;

	warm_up(f, 0);
	assert_ok(open_flags(f->ctx, scratch(f, "wait"),
	                     SLUICE_OPEN_READ | SLUICE_OPEN_WRITE | SLUICE_OPEN_CREATE |
	                             SLUICE_OPEN_NONBLOCK,
	                     &file));
	assert_moves(start_write_on(file, memory, n, 0, stream), n);
	hold_begin(&hold, 0, stream);
	write = start_write_on(file, memory, n, 0, stream);
	assert_refused(sluice_read_on(file, memory, n, 0, other, &op), EAGAIN, "same bytes");
	assert_refused(sluice_write_on(file, memory, 4096, n - 4096, other, &op), EAGAIN, "bytes");
	assert_refused(sluice_read_on(file, memory, n, 0, SLUICE_STREAM_DEFAULT, &op), EAGAIN,
	               "same bytes");
	assert_null(op);
	/* Beside it anything goes, and so does what is awaited on the host. */
	assert_moves(start_write_on(file, memory, n, n, other), n);
	op = start_write(file, host, 4096, 0);
	assert_int_equal(sluice_wait(op, 20), -EINPROGRESS);
	hold_end(&hold);
	assert_moves(op, 4096);
	assert_moves(write, n);
	/* The other way round: nothing is enqueued behind what is awaited on the host. */
	hold_begin(&hold, 0, stream);
	write = start_write_on(file, memory, n, 0, stream);
	op = start_write(file, host, 4096, 0);
	assert_refused(sluice_read_on(file, memory, n, 0, stream, NULL), EAGAIN, "same bytes");
	hold_end(&hold);
	assert_moves(write, n);
	assert_moves(op, 4096);
	/* Nor behind what sluice does in stream order by itself. */
	for (size_t i = 0; i < COUNT_OF(v); i++)
		v[i] = (struct sluice_extent){memory + 8 * i, 8, 8 * i};
	hold_begin(&hold, 0, other);
	assert_ok(submit_write_on(file, v, COUNT_OF(v), other, &op));
	assert_refused(sluice_read_on(file, memory, 4096, 0, stream, NULL), EAGAIN, "same bytes");
	assert_refused(sluice_read_on(file, memory, 4096, 0, other, NULL), EAGAIN, "same bytes");
	hold_end(&hold);
	assert_moves(op, 8 * COUNT_OF(v));
	assert_ok(sluice_close(file));
	free(host);
	stream_free(stream);
	stream_free(other);
	device_free(memory);
}

static void *let_go_soon(void *hold)
{
	sleep_ms(50);
	gpu_let_go(hold);
	return NULL;
}

CUFILE_TEST(submission_waits_for_what_it_overlaps)
{
	char *src = device_new(0, 8 * MANY), *dst = device_new(0, 8 * MANY);
	sluice_stream stream = stream_new(0), other = stream_new(0);
	sluice_file *file = open_both(f->ctx, scratch(f, "waits"));
	struct sluice_extent v[MANY];
	sluice_op *op = NULL, *read;
	struct gpu_hold hold;
	pthread_t thread;

	/* Too many for cuFile, and so nothing that calls the driver later. */
	for (size_t i = 0; i < MANY; i++)
		v[i] = (struct sluice_extent){src + 8 * i, 8, 8 * i};
	assert_ok(submit_write_on(file, v, MANY, other, &op));
	assert_moves(op, 8 * MANY);
	assert_moves(start_read_on(file, dst, 8 * MANY, 0, stream), 8 * MANY);
	device_fill(src, 8 * MANY, 0, 60);
	hold_begin(&hold, 0, other);
	assert_ok(submit_write_on(file, v, MANY, other, &op));
	assert_int_equal(pthread_create(&thread, NULL, let_go_soon, &hold), 0);
	read = start_read_on(file, dst, 8 * MANY, 0, stream);
	assert_moves(read, 8 * MANY);
	assert_moves(op, 8 * MANY);
	assert_device(dst, 8 * MANY, 0, 60);
	pthread_join(thread, NULL);
	assert_ok(sluice_close(file));
	stream_free(stream);
	stream_free(other);
	device_free(src);
	device_free(dst);
}

/* ------------------------------------------------------------------------------------- gpudirect */

CUFILE_TEST(gpudirect_is_used_without_being_named)
{
	const size_t n = 9 * MIB;
	const char *path = scratch(f, "direct");
	char *memory = device_new(0, n + 1);
	sluice_stream stream = stream_new(0);
	unsigned moved = fake_calls("TRANSFER"), enqueued = fake_calls("ENQUEUE");
	sluice_file *file;

	NEEDS_FAKE;
	use_auto(f);
	if (!scratch_takes_direct(f))
		SKIP("files here cannot be opened for direct I/O");
	file = open_both(f->ctx, path);
	device_fill(memory, n, 0, 50);
	assert_write(file, memory, n, 0);
	device_fill(memory, n, 0, 1);
	assert_moves(start_read_on(file, memory, n - 333, 333, stream), n - 333);
	assert_device(memory, n - 333, 333, 50);
	assert_int_equal(fake_calls("TRANSFER") - moved, 2);
	assert_int_equal(fake_calls("ENQUEUE") - enqueued, 1);
	/* What is not whole blocks goes the usual way. */
	device_fill(memory, n, 0, 51);
	assert_write(file, memory, 5000, 4096);
	assert_moves(start_write_on(file, memory, 4096, 100, stream), 4096);
	assert_int_equal(fake_calls("TRANSFER") - moved, 2);
	assert_int_equal(fake_calls("ENQUEUE") - enqueued, 1);
	assert_read(file, memory, 4096, 100);
	assert_device(memory, 4096, 0, 51);
	assert_ok(sluice_close(file));
	stream_free(stream);
	device_free(memory);
}

CUFILE_TEST(a_file_that_it_refuses_goes_without_it)
{
	const char *path = scratch(f, "refused");
	char *memory = device_new(0, 4096);
	sluice_stream stream = stream_new(0);
	unsigned handles = fake_calls("HANDLE");
	sluice_file *file;

	NEEDS_FAKE;
	use_auto(f);
	file_make(path, 4096, 52);
	file = open_read(f->ctx, path);
	setenv("FAKE_CUFILE_HANDLE", "1:5027", 1);
	assert_read(file, memory, 4096, 0);
	assert_moves(start_read_on(file, memory, 4096, 0, stream), 4096);
	assert_device(memory, 4096, 0, 52);
	assert_int_equal(fake_calls("HANDLE"), handles);
	assert_ok(sluice_close(file));
	stream_free(stream);
	device_free(memory);
}
