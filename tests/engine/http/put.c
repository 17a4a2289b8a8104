/* SPDX-License-Identifier: Apache-2.0 */
/* Writing a whole object: what a good server gets, and what is refused before it gets anything. */
#include <unistd.h>

#include "http/cases.h"
#include "sluice/device.h"

#define REPLACE SLUICE_OPEN_REPLACE
#define CREATE  (SLUICE_OPEN_WRITE | SLUICE_OPEN_CREATE)

static sluice_file *open_put(struct fixture *f, const char *uri, unsigned flags,
                             uint64_t expected_size)
{
	struct sluice_open_options o = SLUICE_OPEN_OPTIONS_INIT;
	sluice_file *file = NULL;

	o.flags = flags;
	o.expected_size = expected_size;
	assert_ok(sluice_open(f->ctx, uri, &o, &file));
	return file;
}

HTTP_TEST(a_whole_object_is_written_and_read_back)
{
	static const size_t sizes[] = {0, 1, 4095, 300001, LONG};
	size_t i;

	for (i = 0; i < 4 * COUNT_OF(sizes); i++) {
		size_t n = sizes[i / 4];
		const char *path = scratch(f, "put"), *uri = nginx_uri(path, row->tls);
		struct buffer b = buffer_new(n, i % 2 ? 16 : 0);
		sluice_file *file =
			open_put(f, uri, i % 4 / 2 ? CREATE | SLUICE_OPEN_TRUNCATE : REPLACE, n);

		pattern_fill(b.data, n, 0, i);
		if (n)
			assert_write(file, b.data, n, 0);
		assert_ok(sluice_close(file));
		assert_file_is(path, b.data, n);
		file = open_read(f->ctx, uri);
		memset(b.data, 0, n);
		assert_read(file, b.data, n, 0);
		assert_pattern(b.data, n, 0, i);
		assert_ok(sluice_close(file));
		unlink(path);
		buffer_free(&b);
	}
}

HTTP_TEST(the_length_is_told)
{
	static const struct {
		size_t bytes;
		const char *told, *stored;
	} objects[] = {{5000, "content-length=5000", "/object 5000\n"},
	               {0, "content-length=0", "/object 0\n"}};
	static char bytes[5000];

	for (size_t i = 0; i < COUNT_OF(objects); i++) {
		const char *uri = fault_uri("stored=1");
		sluice_file *file = open_put(f, uri, REPLACE, objects[i].bytes);

		if (objects[i].bytes)
			assert_write(file, bytes, objects[i].bytes, 0);
		assert_ok(sluice_close(file));
		assert_int_equal(asked(uri, "PUT"), 1);
		assert_non_null(strstr(asked_for(uri), objects[i].told));
		assert_non_null(strstr(asked_for(uri), objects[i].stored));
	}
}

/* Nothing is sent before; the sentence says what to do. */
HTTP_TEST(a_write_without_a_length_or_from_a_device_is_refused)
{
	const char *uri = fault_uri("stored=1");
	sluice_file *file = open_put(f, uri, REPLACE, 0);
	sluice_op *op = start_write(file, "bytes", 5, 0);
	sluice_stream stream;
	void *memory;
	int device;

	assert_int_equal(sluice_wait(op, PATIENCE_MS), -ENOTSUP);
	assert_non_null(strstr(sluice_op_message(op), "expected_size"));
	sluice_op_free(op);
	assert_int_equal(sluice_close(file), -ENOTSUP);
	assert_non_null(strstr(sluice_last_message(), "expected_size"));
	assert_ok(sluice_device_find("emulated", &device));
	assert_ok(sluice_device_alloc(device, 5, &memory));
	assert_ok(sluice_stream_new(device, &stream));
	file = open_put(f, uri, REPLACE, 5);
	op = start_write(file, memory, 5, 0);
	assert_int_equal(sluice_wait(op, PATIENCE_MS), -ENOTSUP);
	assert_non_null(strstr(sluice_op_message(op), "memory of the host"));
	sluice_op_free(op);
	assert_int_equal(sluice_close(file), -ENOTSUP);
	file = open_put(f, uri, REPLACE, 5);
	assert_refused(sluice_write_on(file, memory, 5, 0, stream, NULL), ENOTSUP, "stream order");
	sluice_discard(file);
	assert_ok(sluice_stream_free(stream));
	assert_ok(sluice_device_free(memory));
	assert_int_equal(asked(uri, "PUT"), 0);
}

/* In the order of the bytes, each without waiting for the one before; every second write has many extents. */
HTTP_TEST(many_writes_make_one_object)
{
	enum { WRITES = 20, EXTENTS = 211, SPAN = EXTENTS * 997 };
	struct sluice_extent v[EXTENTS];
	const char *uri = nginx_uri(scratch(f, "many"), row->tls);
	struct buffer b = buffer_new(WRITES * SPAN, 0);
	sluice_file *file = open_put(f, uri, REPLACE, b.length);
	int i;

	pattern_fill(b.data, b.length, 0, 5);
	for (i = 0; i < WRITES; i += 2) {
		for (int k = 0; k < EXTENTS; k++) {
			size_t at = (size_t)i * SPAN + (size_t)k * (SPAN / EXTENTS);

			v[k] = (struct sluice_extent){b.data + at, SPAN / EXTENTS, at};
		}
		assert_ok(submit_write(file, v, EXTENTS, NULL));
		assert_ok(sluice_write(file, b.data + (i + 1) * SPAN, SPAN,
		                       (i + 1) * (uint64_t)SPAN, NULL));
	}
	assert_ok(sluice_close(file));
	assert_file_is(scratch(f, "many"), b.data, b.length);
	buffer_free(&b);
}

HTTP_TEST(writes_ahead_and_behind_are_refused)
{
	static const uint64_t places[] = {1001, 500};
	struct buffer b = buffer_new(3 * MIB, 0);
	const char *path = scratch(f, "seek");

	for (size_t i = 0; i < COUNT_OF(places); i++) {
		sluice_file *file = open_put(f, nginx_uri(path, row->tls), REPLACE, b.length);
		sluice_op *op;

		assert_write(file, b.data, 1000, 0);
		op = start_write(file, b.data, MIB, places[i]);
		assert_int_equal(sluice_wait(op, PATIENCE_MS), -ESPIPE);
		assert_non_null(strstr(sluice_op_message(op), "front to back"));
		sluice_op_free(op);
		assert_int_equal(sluice_close(file), -ESPIPE);
	}
	assert_int_not_equal(access(path, F_OK), 0);
	buffer_free(&b);
}

HTTP_TEST(another_length_than_was_announced_is_not_committed)
{
	static char bytes[1000];
	const char *path = scratch(f, "length");
	sluice_file *file = open_put(f, nginx_uri(path, row->tls), REPLACE, 2000);

	assert_write(file, bytes, 1000, 0);
	assert_true(sluice_close(file) < 0);
	assert_true(*sluice_last_message());
	assert_int_not_equal(access(path, F_OK), 0);
	file = open_put(f, nginx_uri(path, row->tls), REPLACE, 500);
	(void)write_now(file, bytes, 1000, 0);
	assert_true(sluice_close(file) < 0);
	assert_true(*sluice_last_message());
	assert_int_not_equal(access(path, F_OK), 0);
}

HTTP_TEST(until_close_the_name_shows_what_it_showed)
{
	const char *path = scratch(f, "old");
	struct buffer b = buffer_new(3 * MIB, 0);
	sluice_file *file;

	pattern_fill(b.data, b.length, 0, 7);
	file_write(path, "old", 3, 0);
	file = open_put(f, nginx_uri(path, row->tls), REPLACE, b.length);
	assert_write(file, b.data, b.length, 0);
	sleep_ms(50);
	assert_file_is(path, "old", 3);
	sluice_discard(file);
	sleep_ms(50);
	assert_file_is(path, "old", 3);
	file = open_put(f, nginx_uri(path, row->tls), REPLACE, b.length);
	assert_write(file, b.data, b.length - 1, 0);
	sluice_discard(file);
	sleep_ms(50);
	assert_file_is(path, "old", 3);
	/* One that never wrote asks the server for nothing. */
	sluice_discard(open_put(f, nginx_uri(path, row->tls), REPLACE, b.length));
	assert_file_is(path, "old", 3);
	file = open_put(f, nginx_uri(path, row->tls), REPLACE, b.length);
	assert_write(file, b.data, b.length, 0);
	assert_ok(sluice_close(file));
	assert_file_is(path, b.data, b.length);
	buffer_free(&b);
}

HTTP_TEST(exclusive_does_not_overwrite)
{
	const char *uri = fault_uri("stored=1");
	sluice_file *file = open_put(f, uri, REPLACE | SLUICE_OPEN_EXCLUSIVE, 5);
	struct sluice_open_options o = SLUICE_OPEN_OPTIONS_INIT;
	int rc;

	assert_write(file, "first", 5, 0);
	assert_ok(sluice_close(file));
	o.flags = REPLACE | SLUICE_OPEN_EXCLUSIVE;
	o.expected_size = 7;
	file = NULL;
	rc = sluice_open(f->ctx, uri, &o, &file);
	if (rc == 0) {
		(void)write_now(file, "second!", 7, 0);
		rc = sluice_close(file);
	}
	assert_int_equal(rc, -EEXIST);
	assert_true(*sluice_last_message());
	assert_non_null(strstr(asked_for(uri), "/object 5\n"));
}

/* Not once more by the upload, after all the attempts to ask whether there is something. */
HTTP_TEST(exclusive_is_refused_at_once_where_nobody_answers)
{
	struct sluice_open_options o = SLUICE_OPEN_OPTIONS_INIT;
	sluice_file *file = NULL;
	char uri[64];

	snprintf(uri, sizeof(uri), "http://127.0.0.1:%d/object", closed_port());
	o.flags = REPLACE | SLUICE_OPEN_EXCLUSIVE;
	assert_refused(sluice_open(f->ctx, uri, &o, &file), ECONNREFUSED, "/object");
	assert_null(file);
}

HTTP_TEST(unsupported_http_calls_are_refused)
{
	const char *path = scratch(f, "update"), *uri;
	sluice_file *file = NULL;
	char byte;

	file_write(path, "old", 3, 0);
	uri = nginx_uri(path, row->tls);
	assert_refused(open_flags(f->ctx, uri, SLUICE_OPEN_READ | SLUICE_OPEN_WRITE, &file),
	               ENOTSUP, "");
	assert_refused(open_flags(f->ctx, uri, SLUICE_OPEN_READ | CREATE, &file), ENOTSUP, "");
	assert_null(file);
	file = open_put(f, uri, REPLACE, 0);
	assert_refused(sluice_truncate(file, 0), ENOTSUP, "");
	assert_refused(sluice_read(file, &byte, 1, 0, NULL), EBADF, "");
	assert_ok(sluice_sync(file));
	sluice_discard(file);
	file = open_read(f->ctx, uri);
	assert_refused(sluice_write(file, &byte, 1, 0, NULL), EBADF, "");
	assert_ok(sluice_close(file));
	assert_file_is(path, "old", 3);
}
