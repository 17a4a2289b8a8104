/* SPDX-License-Identifier: Apache-2.0 */
/* What is refused when it is submitted, and what would have to wait. */
#include "io/device_suite.h"

/* Both orders, reading and writing. */
static void refused(sluice_file *file, const struct sluice_extent *v, size_t count,
                    sluice_stream stream, const char *says)
{
	sluice_op *op = NULL;

	assert_refused(submit_read(file, v, count, &op), EINVAL, says);
	assert_refused(submit_read_on(file, v, count, stream, &op), EINVAL, says);
	assert_refused(submit_read_on(file, v, count, stream, NULL), EINVAL, says);
	if (!row->remote) {
		assert_refused(submit_write(file, v, count, &op), EINVAL, says);
		assert_refused(submit_write_on(file, v, count, stream, &op), EINVAL, says);
	}
	assert_null(op);
}

/* Of a device that is not the first. */
static void *other_new(size_t n)
{
	void *memory = NULL;

	assert_ok(sluice_device_alloc(gpu_other(), n, &memory));
	return memory;
}

static const char *other_name(void)
{
	struct sluice_device other = {.size = sizeof(other)};

	assert_ok(sluice_device_describe(gpu_other(), &other));
	return other.name;
}

FIXTURE_TEST(memory_of_two_places_in_one_operation_is_refused)
{
	char *zero = device_new(0, 4096), *more = device_new(0, 4096), *one = other_new(4096);
	static char host[100];
	const struct sluice_extent devices[] = {{zero, 10, 0}, {one, 10, 20}};
	const struct sluice_extent behind[] = {{zero, 10, 0}, {more, 10, 20}, {host, 10, 40}};
	const struct sluice_extent before[] = {{host, 10, 0}, {one, 10, 20}};
	const struct sluice_extent fine[] = {
		{zero, 10, 0}, {NULL, 0, 0}, {host, 0, 5}, {one, 0, 0}, {more + 4086, 10, 20}};
	sluice_stream stream = stream_new(0);
	sluice_file *file = open_any(f, "mixed");
	sluice_op *op = NULL;

	refused(file, devices, COUNT_OF(devices), stream, other_name());
	refused(file, behind, COUNT_OF(behind), stream, "host");
	refused(file, before, COUNT_OF(before), stream, "host");
	if (!row->remote)
		file_make(scratch(f, "mixed"), 64, 1);
	assert_ok(submit_read_on(file, fine, COUNT_OF(fine), stream, &op));
	assert_moves(op, 20);
	assert_ok(submit_read(file, fine, COUNT_OF(fine), &op));
	assert_moves(op, 20);
	assert_ok(sluice_close(file));
	device_free(zero);
	device_free(more);
	device_free(one);
	stream_free(stream);
}

FIXTURE_TEST(a_stream_of_another_device_is_refused)
{
	char *zero = device_new(0, 4096);
	sluice_stream other = NULL;
	sluice_file *file = open_any(f, "other");
	sluice_op *op = NULL;

	assert_ok(sluice_stream_new(gpu_other(), &other));
	assert_refused(sluice_read_on(file, zero, 10, 0, other, &op), EINVAL, other_name());
	assert_null(op);
	assert_ok(sluice_close(file));
	device_free(zero);
	stream_free(other);
}

EMULATED_TEST(invalid_stream_is_refused, "a real driver may crash on what is no stream")
{
	char *memory = device_new(0, 4096);
	sluice_stream gone = stream_new(0);
	sluice_file *file = open_any(f, "none");
	sluice_op *op = NULL;

	stream_free(gone);
	assert_refused(sluice_read_on(file, memory, 10, 0, gone, &op), EINVAL, "stream");
	assert_refused(sluice_read_on(file, memory, 10, 0, (sluice_stream)(void *)file, &op),
	               EINVAL, "stream");
	assert_null(op);
	assert_ok(sluice_close(file));
	device_free(memory);
}

/* What does not concern the stream is refused as ever, and leaves nothing on it. */
FIXTURE_TEST(a_wrong_request_in_stream_order_is_refused)
{
	char *memory = device_new(0, 4096);
	const struct sluice_extent overlap[] = {{memory, 10, 0}, {memory + 10, 10, 9}};
	sluice_stream stream = stream_new(0);
	sluice_file *file = open_any(f, "wrong");
	sluice_op *op = NULL;
	int i;

	for (i = 0; i < 20; i++) {
		assert_refused(sluice_read_on(file, NULL, 10, 0, stream, &op), EINVAL, "");
		assert_refused(sluice_read_on(file, memory, 10, INT64_MAX, stream, &op), EINVAL,
		               "");
		if (row->remote)
			assert_refused(sluice_write_on(file, memory, 10, 0, stream, &op), EBADF,
			               "");
		else
			assert_refused(submit_write_on(file, overlap, 2, stream, &op), EINVAL,
			               "overlap");
	}
	assert_null(op);
	assert_int_equal(sluice_stream_query(gpu_device(0), stream), 1);
	assert_ok(sluice_read_on(file, memory, 0, 0, stream, &op));
	stream_pass(0, stream);
	assert_moves(op, 0);
	assert_ok(sluice_close(file));
	device_free(memory);
	stream_free(stream);
}

static void small_staging(struct fixture *f)
{
	struct sluice_config c = row_config();

	config_tune(&c, "piece_bytes", 16 * KIB);
	config_tune(&c, "inline_bytes", 0);
	config_tune(&c, "bounce_bytes", 0);
	config_tune(&c, "slot_bytes", 64 * KIB);
	config_tune(&c, "slots", 2);
	c.staging_bytes = 264 * KIB;
	fixture_config(f, &c);
}

FIXTURE_TEST(nonblock_answers_EAGAIN_when_slots_are_out)
{
	enum { MOST = 1000 };
	const char *path = scratch(f, "slots");
	char *memory = device_new(0, 4 * MIB);
	sluice_stream stream = stream_new(0), free_one = stream_new(0);
	sluice_op *ops[MOST], *op = NULL;
	struct gpu_hold h;
	sluice_file *file;
	int n = 0, rc, round, i;

	small_staging(f);
	warm_up(f, 0);
	file_make(path, 4 * MIB, 1);
	assert_ok(open_flags(f->ctx, address(f, "slots"), SLUICE_OPEN_READ | SLUICE_OPEN_NONBLOCK,
	                     &file));
	for (round = 0; round < 3; round++) {
		hold_begin(&h, 0, stream);
		n = 0;
		while (n < MOST &&
		       (rc = sluice_read_on(file, memory, 100000, 5, stream, &ops[n])) == 0)
			n++;
		assert_in_range(n, 1, 3);
		assert_int_equal(rc, -EAGAIN);
		assert_non_null(strstr(sluice_last_message(), "SLUICE_STAGING_BYTES"));
		/* Another stream has no more of them; what is awaited on the host has its own. */
		assert_refused(sluice_read_on(file, memory, 100000, 0, free_one, &op), EAGAIN,
		               "SLUICE_STAGING_BYTES");
		assert_int_equal(sluice_stream_query(gpu_device(0), free_one), 1);
		assert_null(op);
		hold_end(&h);
		for (i = 0; i < n; i++)
			assert_moves(ops[i], 100000);
		stream_pass(0, stream);
		assert_device(memory, 100000, 5, 1);
	}
	assert_ok(sluice_close(file));
	device_free(memory);
	stream_free(stream);
	stream_free(free_one);
}

FIXTURE_TEST(nonblock_answers_E2BIG_to_what_could_never_be_enqueued)
{
	const char *path = scratch(f, "big");
	size_t n = 32 * MIB;
	char *memory = device_new(0, n);
	sluice_stream stream = stream_new(0);
	sluice_op *op = NULL;
	sluice_file *file;

	small_staging(f);
	file_make(path, n, 1);
	assert_ok(open_flags(f->ctx, address(f, "big"), SLUICE_OPEN_READ | SLUICE_OPEN_NONBLOCK,
	                     &file));
	assert_refused(sluice_read_on(file, memory, n, 0, stream, &op), E2BIG, "");
	assert_null(op);
	assert_int_equal(sluice_stream_query(gpu_device(0), stream), 1);
	assert_ok(sluice_read_on(file, memory, 3 * MIB, 1, stream, &op));
	assert_moves(op, 3 * MIB);
	assert_device(memory, 3 * MIB, 1, 1);
	assert_ok(sluice_close(file));
	/* Who may wait gets it all, window by window. */
	file = open_read(f->ctx, address(f, "big"));
	assert_moves(start_read_on(file, memory, n, 0, stream), n);
	assert_device(memory, n, 0, 1);
	assert_ok(sluice_close(file));
	device_free(memory);
	stream_free(stream);
}

/* An earlier operation on the same bytes that the copier has to end. */
LOCAL_TEST(nonblock_does_not_wait_for_what_is_awaited_on_the_host,
           "a remote file cannot be written in place")
{
	const char *path = scratch(f, "copier");
	size_t n = row_bytes(8 * MIB);
	char *memory = device_new(0, n), *other = device_new(0, n);
	sluice_stream stream = stream_new(0);
	int round, again = 0;
	sluice_file *file;

	file_make(path, n, 1);
	warm_up(f, 0);
	assert_ok(open_flags(f->ctx, path,
	                     SLUICE_OPEN_READ | SLUICE_OPEN_WRITE | SLUICE_OPEN_NONBLOCK, &file));
	for (round = 0; round < 10; round++) {
		uint64_t seed = 100 + (uint64_t)round;
		sluice_op *write, *read = NULL;
		int rc;

		device_fill(memory, n, 0, seed);
		write = start_write(file, memory, n, 0);
		rc = sluice_read_on(file, other, n, 0, stream, &read);
		again += rc == -EAGAIN;
		assert_true(rc == 0 || rc == -EAGAIN);
		assert_moves(write, n);
		if (rc)
			assert_ok(sluice_read_on(file, other, n, 0, stream, &read));
		assert_moves(read, n);
		assert_device(other, n, 0, seed);
	}
	print_message("%d of %d would have waited\n", again, round);
	assert_ok(sluice_close(file));
	device_free(memory);
	device_free(other);
	stream_free(stream);
}
