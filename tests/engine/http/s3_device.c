/* SPDX-License-Identifier: Apache-2.0 */
/* Objects of S3 that are written from memory of a device, of which the bytes come through slots. */
#include "http/s3_cases.h"
#include "sluice/device.h"
#include "sluice/emulated.h"

#include <stdatomic.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PART = 64 << 10 };

/* From memory of a device, several at a time, of which the bytes come through slots. */
S3_TEST(writes_of_device_memory_arrive_whatever_their_slots_do)
{
	enum { WRITES = 6 };
	const char *path = scratch(f, "object");
	const size_t lengths[] = {8 * PART + 100, 8 * MIB};
	sluice_file *file;
	sluice_op *ops[WRITES];
	void *memory;
	int device;

	assert_ok(sluice_device_find("emulated", &device));
	for (size_t j = 0; j < 2; j++) {
		size_t bytes = lengths[j];
		struct buffer b = buffer_new(WRITES * bytes, 0), zero = buffer_new(b.length, 0);

		with(f, "SLUICE_S3_PART_BYTES", j ? "1M" : "64K");
		with(f, "SLUICE_S3_UPLOAD_BYTES", j ? "4M" : "512K");
		pattern_fill(b.data, b.length, 0, 7);
		assert_ok(sluice_device_alloc(device, b.length, &memory));
		assert_ok(sluice_copy(memory, b.data, b.length));
		/* A server that refuses each part at first gets the same bytes again. */
		file = s3_open_put(f, s3_uri(j ? "hurried" : "files", path), 0, 0);
		for (size_t i = 0; i < WRITES; i++)
			ops[i] = start_write(file, (char *)memory + i * bytes, bytes, i * bytes);
		for (size_t i = 0; i < WRITES; i++)
			assert_moves(ops[i], bytes);
		assert_ok(sluice_copy(memory, zero.data, b.length));
		assert_ok(sluice_close(file));
		assert_file_is(path, b.data, b.length);
		buffer_free(&zero);
		assert_ok(sluice_device_free(memory));
		buffer_free(&b);
	}
}

struct device_bytes {
	int device;
	char *memory;
	sluice_stream stream;
};

static struct device_bytes device_bytes(size_t n)
{
	struct device_bytes d;
	void *memory;

	assert_ok(sluice_device_find("emulated", &d.device));
	assert_ok(sluice_device_alloc(d.device, n, &memory));
	assert_ok(sluice_stream_new(d.device, &d.stream));
	d.memory = memory;
	return d;
}

static void device_bytes_free(struct device_bytes *d)
{
	assert_ok(sluice_stream_free(d->stream));
	assert_ok(sluice_device_free(d->memory));
}

/* Host order: the operation fails, and with it the upload. In stream order the call refuses, and nothing has begun. */
S3_TEST(a_write_of_device_memory_that_is_too_far_ahead_is_refused)
{
	struct device_bytes d = device_bytes(4 * PART);
	const char *path = scratch(f, "object"), *uri = s3_uri("files", path);
	struct sluice_extent apart[] = {{d.memory, PART, 12 * PART}, {d.memory, 12 * PART, 0}};
	struct stat st;
	sluice_file *file;
	sluice_op *op;

	s3_small_parts(f);
	file = s3_open_put(f, uri, 0, 0);
	assert_moves(start_write(file, d.memory, 2 * PART, 0), 2 * PART);
	op = start_write(file, d.memory, 2 * PART, 9 * PART);
	assert_int_equal(sluice_wait(op, PATIENCE_MS), -ESPIPE);
	assert_non_null(strstr(sluice_op_message(op), "too far ahead"));
	sluice_op_free(op);
	assert_refused(sluice_close(file), ESPIPE, "too far ahead");
	file = s3_open_put(f, uri, 0, 0);
	assert_refused(sluice_write_on(file, d.memory, PART, 9 * PART, d.stream, &op), ESPIPE,
	               "too far ahead");
	assert_refused(submit_write_on(file, apart, 2, d.stream, &op), ESPIPE, "too far ahead");
	/* The file takes half of the memory for this. */
	assert_ok(sluice_write_on(file, d.memory, PART, 3 * PART, d.stream, &op));
	assert_moves(op, PART);
	assert_moves(start_write(file, d.memory, 3 * PART, 0), 3 * PART);
	assert_ok(sluice_close(file));
	assert_ok(stat(path, &st));
	assert_int_equal(st.st_size, 4 * PART);
	device_bytes_free(&d);
}

static _Atomic uint32_t let_go;

static void hold(void *unused)
{
	(void)unused;
	while (!atomic_load(&let_go))
		usleep(1000);
}

/* The write before it is in the stream, behind a function that does not return. */
S3_TEST(a_write_that_waits_for_a_write_of_a_stream_ends_with_it)
{
	struct device_bytes d = device_bytes(8 * PART);
	const char *path = scratch(f, "object");
	sluice_op *before, *behind;
	sluice_file *file;

	s3_small_parts(f);
	for (int cancel = 0; cancel < 2; cancel++) {
		file = s3_open_put(f, s3_uri("files", path), 0, 0);
		/* Pinned memory is made while the device is free. */
		assert_moves(start_write(file, d.memory, PART, 0), PART);
		atomic_store(&let_go, 0);
		assert_ok(sluice_emulated_call(d.device, d.stream, hold, NULL));
		assert_ok(sluice_write_on(file, d.memory, 8 * PART, PART, d.stream, &before));
		behind = start_write(file, d.memory, 8 * PART, 9 * PART);
		assert_int_equal(sluice_poll(behind), 0);
		if (cancel)
			assert_ok(sluice_cancel(before));
		atomic_store(&let_go, 1);
		assert_int_equal(sluice_wait(behind, PATIENCE_MS), cancel ? -ECANCELED : 8 * PART);
		assert_int_equal(sluice_wait(before, PATIENCE_MS), cancel ? -ECANCELED : 8 * PART);
		sluice_op_free(before);
		sluice_op_free(behind);
		assert_int_equal(sluice_close(file), cancel ? -ECANCELED : 0);
	}
	device_bytes_free(&d);
}
