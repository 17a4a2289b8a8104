/* SPDX-License-Identifier: Apache-2.0 */
/* Blobs as files: store:// for sluice_open(). Reading is what the rows "store" of the conformance suite are about. */
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

#include "lib/daemon.h"
#include "sluice/device.h"

#define SHELF_TEST(name) TEST_OF(struct shelf *s, name, setup, teardown, NULL)

enum { SEED = 3 };

struct shelf {
	struct daemon *d;
	sluice_context *ctx;
};

static int setup(void **state)
{
	struct shelf *s = calloc(1, sizeof(*s));

	assert_non_null(s);
	daemon_setup((void **)&s->d);
	setenv("SLUICE_STORE", s->d->path, 1);
	assert_ok(sluice_context_new(NULL, &s->ctx));
	*state = s;
	return 0;
}

static int teardown(void **state)
{
	struct shelf *s = *state;
	void *d = s->d;

	assert_ok(sluice_context_close(s->ctx));
	assert_idle(s->d->store);
	daemon_teardown(&d);
	free(s);
	return 0;
}

static int open_new(struct shelf *s, const char *uri, unsigned flags, uint64_t n, sluice_file **out)
{
	struct sluice_open_options o = SLUICE_OPEN_OPTIONS_INIT;

	o.flags = flags;
	o.expected_size = n;
	return sluice_open(s->ctx, uri, &o, out);
}

static void assert_pattern_there(struct shelf *s, const char *name, size_t n)
{
	sluice_blob *blob = got(s->d->store, name);

	assert_int_equal(sluice_blob_size(blob), n);
	assert_pattern(sluice_blob_data(blob), n, 0, SEED);
	assert_ok(sluice_blob_release(blob));
}

static void drop(struct shelf *s, const char *name)
{
	assert_ok(sluice_blob_delete(s->d->store, name));
}

SHELF_TEST(file_without_bytes_is_a_blob)
{
	sluice_file *file;
	sluice_op *op;
	char byte = 1;

	assert_ok(open_new(s, "store://a", SLUICE_OPEN_REPLACE, 0, &file));
	assert_ok(sluice_write(file, &byte, 1, 0, &op));
	assert_int_equal(finish(op), -EFBIG);
	sluice_discard(file);
	assert_ok(open_new(s, "store://a", SLUICE_OPEN_REPLACE, 0, &file));
	assert_ok(sluice_close(file));
	assert_ok(sluice_open(s->ctx, "store://a", NULL, &file));
	assert_ok(sluice_read(file, &byte, 1, 0, &op));
	assert_int_equal(finish(op), 0);
	assert_int_equal(byte, 1);
	assert_ok(sluice_close(file));
	drop(s, "a");
}

SHELF_TEST(file_has_the_written_bytes_after_close)
{
	static const size_t sizes[] = {1, 4096, 100001, 9 * MIB + 5};
	static const unsigned flags[] = {SLUICE_OPEN_WRITE | SLUICE_OPEN_CREATE,
	                                 SLUICE_OPEN_REPLACE,
	                                 SLUICE_OPEN_REPLACE | SLUICE_OPEN_EXCLUSIVE};

	for (size_t i = 0; i < COUNT_OF(sizes) * COUNT_OF(flags); i++) {
		size_t n = sizes[i / COUNT_OF(flags)], part = n / 3;
		struct buffer b = buffer_new(n, 1);
		sluice_op *ops[2];
		sluice_file *file;
		sluice_blob *blob;

		pattern_fill(b.data, n, 0, SEED);
		assert_ok(open_new(s, "store://a%20name/1", flags[i % COUNT_OF(flags)], n, &file));
		assert_ok(sluice_write(file, b.data + part, n - part, part, &ops[0]));
		assert_ok(sluice_write(file, b.data, part, 0, &ops[1]));
		assert_int_equal(finish(ops[0]), n - part);
		assert_int_equal(finish(ops[1]), part);
		assert_ok(sluice_sync(file));
		assert_refused(sluice_blob_get(s->d->store, "a name/1", 0, &blob), ENOENT,
		               "a name");
		assert_ok(sluice_close(file));
		assert_pattern_there(s, "a name/1", n);
		drop(s, "a name/1");
		buffer_free(&b);
	}
}

/* Before the seal it is read and written as any file: what overlaps keeps its order. */
SHELF_TEST(overlapping_operations_keep_their_order)
{
	enum { N = 3 * MIB + 7, AT_ONCE = 12 };
	struct rng r = rng_new(1);
	struct buffer model = buffer_new(N, 0), data[AT_ONCE], expected[AT_ONCE];
	sluice_op *ops[AT_ONCE];
	sluice_file *file;
	sluice_blob *blob;

	assert_ok(open_new(s, "store://x",
	                   SLUICE_OPEN_READ | SLUICE_OPEN_WRITE | SLUICE_OPEN_CREATE, N, &file));
	memset(model.data, 0, N);
	assert_write(file, model.data, N, 0);
	for (unsigned round = 0; round < 20; round++) {
		for (unsigned i = 0; i < AT_ONCE; i++) {
			size_t n = 1 + rng_length(&r, MIB, 2 * MIB), at = rng_below(&r, N - n);

			data[i] = buffer_new(n, i % 3);
			expected[i] = (struct buffer){0};
			if (rng_below(&r, 2)) {
				pattern_fill(data[i].data, n, at, rng_next(&r));
				memcpy((char *)model.data + at, data[i].data, n);
				assert_ok(sluice_write(file, data[i].data, n, at, &ops[i]));
			} else {
				expected[i] = buffer_new(n, 0);
				memcpy(expected[i].data, (char *)model.data + at, n);
				assert_ok(sluice_read(file, data[i].data, n, at, &ops[i]));
			}
		}
		for (unsigned i = 0; i < AT_ONCE; i++) {
			assert_int_equal(finish(ops[i]), data[i].length);
			if (!expected[i].data)
				continue;
			assert_bytes(data[i].data, expected[i].data, data[i].length);
			buffer_free(&expected[i]);
		}
		for (unsigned i = 0; i < AT_ONCE; i++)
			buffer_free(&data[i]);
	}
	assert_ok(sluice_close(file));
	blob = got(s->d->store, "x");
	assert_bytes(sluice_blob_data(blob), model.data, N);
	assert_ok(sluice_blob_release(blob));
	drop(s, "x");
	buffer_free(&model);
}

SHELF_TEST(discarded_file_leaves_nothing)
{
	sluice_file *file;
	char bytes[100] = {0};

	assert_ok(open_new(s, "store://x", SLUICE_OPEN_WRITE | SLUICE_OPEN_CREATE, 100, &file));
	assert_write(file, bytes, 100, 0);
	sluice_discard(file);
	assert_int_equal(sluice_blob_exists(s->d->store, "x"), 0);
	assert_idle_but(s->d->store, 1);
	/* The name is free. */
	assert_ok(open_new(s, "store://x", SLUICE_OPEN_WRITE | SLUICE_OPEN_CREATE, 100, &file));
	sluice_discard(file);
}

SHELF_TEST(a_file_that_lacks_something_does_not_become_a_blob)
{
	unsigned flags[] = {SLUICE_OPEN_WRITE | SLUICE_OPEN_CREATE, SLUICE_OPEN_REPLACE};
	char bytes[100] = {0};
	sluice_file *file;
	sluice_op *op;

	for (size_t i = 0; i < COUNT_OF(flags); i++) {
		assert_ok(open_new(s, "store://x", flags[i], 100, &file));
		assert_ok(sluice_write(file, bytes, 100, 1, &op));
		assert_int_equal(finish(op), -EFBIG);
		assert_ok(sluice_write(file, bytes, 1, INT64_MAX - 1, NULL));
		assert_refused(sluice_close(file), EFBIG, "store://x");
		assert_int_equal(sluice_blob_exists(s->d->store, "x"), 0);
	}
}

SHELF_TEST(replaced_file_stays_for_its_open_handles)
{
	struct sluice_file_info st = {.size = sizeof(st)};
	struct buffer b = buffer_new(MIB, 0);
	sluice_file *old, *file;
	sluice_blob *blob = put(s->d->store, "x", MIB, 0);
	unsigned before = (unsigned)stats_of(s->d->store).dying;

	assert_ok(sluice_open(s->ctx, "store://x", NULL, &old));
	assert_refused(
		open_new(s, "store://x", SLUICE_OPEN_REPLACE | SLUICE_OPEN_EXCLUSIVE, 9, &file),
		EEXIST, "x");
	assert_refused(open_new(s, "store://x", SLUICE_OPEN_WRITE | SLUICE_OPEN_CREATE, 9, &file),
	               EEXIST, "x");
	assert_ok(open_new(s, "store://x", SLUICE_OPEN_REPLACE, MIB / 2, &file));
	pattern_fill(b.data, MIB / 2, 0, SEED);
	assert_write(file, b.data, MIB / 2, 0);
	assert_read(old, b.data, MIB, 0);
	assert_int_equal(memcmp(b.data, sluice_blob_data(blob), MIB), 0);
	assert_ok(sluice_close(file));
	assert_pattern_there(s, "x", MIB / 2);
	memset(b.data, 0, MIB);
	assert_read(old, b.data, MIB, 0);
	assert_int_equal(memcmp(b.data, sluice_blob_data(blob), MIB), 0);
	assert_ok(sluice_stat(old, &st));
	assert_int_equal(st.length, MIB);
	assert_int_equal(stats_of(s->d->store).dying, before + 1);
	assert_ok(sluice_blob_release(blob));
	assert_ok(sluice_close(old));
	drop(s, "x");
	buffer_free(&b);
}

SHELF_TEST(the_bytes_of_a_blob_are_memory)
{
	struct sluice_file_info st = {.size = sizeof(st)};
	sluice_file *file;
	char id[160];

	assert_ok(open_new(s, "store://x", SLUICE_OPEN_REPLACE, 3 * MIB, &file));
	assert_ok(sluice_stat(file, &st));
	assert_non_null(st.memory);
	assert_int_equal(st.device, -1);
	assert_int_equal(st.length, 3 * MIB);
	assert_string_equal(st.backend, "store");
	assert_string_equal(st.etag, "");
	assert_int_equal(st.modified_ns, 0);
	pattern_fill(st.memory, 3 * MIB, 0, SEED);
	assert_ok(sluice_close(file));
	assert_pattern_there(s, "x", 3 * MIB);
	assert_ok(sluice_open(s->ctx, "store://x", NULL, &file));
	assert_ok(sluice_stat(file, &st));
	assert_pattern(st.memory, 3 * MIB, 0, SEED);
	assert_true(llabs(st.modified_ns / 1000000000 - (int64_t)time(NULL)) < 60);
	snprintf(id, sizeof(id), "store://?id=%s", st.etag);
	assert_ok(sluice_close(file));
	assert_ok(sluice_open(s->ctx, id, NULL, &file));
	assert_ok(sluice_stat(file, &st));
	assert_int_equal(st.length, 3 * MIB);
	assert_ok(sluice_close(file));
	drop(s, "x");
}

/* Bytes of a device go to and from a blob as to and from any file. */
SHELF_TEST(memory_of_a_device_is_written_and_read)
{
	enum { N = 5 * MIB + 3 };
	struct buffer b = buffer_new(N, 0);
	sluice_stream stream;
	sluice_file *file;
	sluice_op *op;
	void *memory;
	int device;

	assert_ok(sluice_device_find("emulated", &device));
	assert_ok(sluice_device_alloc(device, N, &memory));
	assert_ok(sluice_stream_new(device, &stream));
	for (unsigned on = 0; on < 2; on++) {
		pattern_fill(b.data, N, 0, SEED);
		assert_ok(sluice_copy(memory, b.data, N));
		assert_ok(open_new(s, "store://x", SLUICE_OPEN_REPLACE, N, &file));
		assert_ok(on ? sluice_write_on(file, memory, N, 0, stream, &op)
		             : sluice_write(file, memory, N, 0, &op));
		assert_int_equal(finish(op), N);
		assert_ok(sluice_close(file));
		assert_pattern_there(s, "x", N);
		memset(b.data, 0, N);
		assert_ok(sluice_copy(memory, b.data, N));
		assert_ok(sluice_open(s->ctx, "store://x", NULL, &file));
		assert_ok(on ? sluice_read_on(file, memory, N, 0, stream, &op)
		             : sluice_read(file, memory, N, 0, &op));
		assert_int_equal(finish(op), N);
		assert_ok(sluice_copy(b.data, memory, N));
		assert_pattern(b.data, N, 0, SEED);
		/* In stream order too much is an error. */
		if (on) {
			assert_ok(sluice_read_on(file, memory, 10, N - 5, stream, &op));
			assert_int_equal(finish(op), -EIO);
		}
		assert_ok(sluice_close(file));
		drop(s, "x");
	}
	assert_ok(sluice_stream_free(stream));
	assert_ok(sluice_device_free(memory));
	buffer_free(&b);
}

SHELF_TEST(all_files_share_a_connection)
{
	sluice_file *files[20];
	sluice_blob *blob = put(s->d->store, "x", 5000, 0);
	char uri[200];

	assert_ok(sluice_blob_release(blob));
	snprintf(uri, sizeof(uri), "store://x?socket=%s", s->d->path);
	for (size_t i = 0; i < COUNT_OF(files); i++)
		assert_ok(sluice_open(s->ctx, i % 2 ? uri : "store://x", NULL, &files[i]));
	assert_int_equal(stats_of(s->d->store).clients, 2);
	for (size_t i = 0; i < COUNT_OF(files); i++)
		assert_ok(sluice_close(files[i]));
	drop(s, "x");
	assert_idle(s->d->store);
}

static void *open_and_close(void *argument)
{
	struct shelf *s = argument;
	char bytes[64];

	for (unsigned i = 0; i < 200; i++) {
		sluice_file *file;
		sluice_op *op;

		if (sluice_open(s->ctx, "store://x", NULL, &file) ||
		    sluice_read(file, bytes, 64, 0, &op) || finish(op) != 64 || sluice_close(file))
			return (void *)sluice_last_message();
	}
	return NULL;
}

SHELF_TEST(threads_open_and_close_it_at_a_time)
{
	pthread_t threads[4];
	sluice_blob *blob = put(s->d->store, "x", 64, 0);
	void *wrong;

	assert_ok(sluice_blob_release(blob));
	for (size_t i = 0; i < COUNT_OF(threads); i++)
		assert_int_equal(pthread_create(&threads[i], NULL, open_and_close, s), 0);
	for (size_t i = 0; i < COUNT_OF(threads); i++) {
		pthread_join(threads[i], &wrong);
		if (wrong)
			fail_msg("%s", (const char *)wrong);
	}
	drop(s, "x");
}

SHELF_TEST(options_of_a_blob_stand_in_its_uri)
{
	struct sluice_blob_info info = {.size = sizeof(info)};
	sluice_file *file;

	assert_ok(open_new(s, "store://x?cache", SLUICE_OPEN_REPLACE, 10, &file));
	assert_ok(sluice_close(file));
	assert_ok(sluice_blob_stat(s->d->store, "x", &info));
	assert_int_equal(info.flags, SLUICE_BLOB_CACHE);
	assert_ok(open_new(s, "STORE://%78?pin", SLUICE_OPEN_REPLACE, 10, &file));
	assert_ok(sluice_close(file));
	assert_ok(sluice_blob_stat(s->d->store, "x", &info));
	assert_int_equal(info.flags, SLUICE_BLOB_PIN);
	drop(s, "x");
	assert_ok(open_new(s, "store://x?alone&cache", SLUICE_OPEN_REPLACE, 10, &file));
	assert_write(file, "0123456789", 10, 0);
	assert_ok(sluice_close(file));
	assert_ok(sluice_blob_stat(s->d->store, "x", &info));
	assert_int_equal(info.flags, SLUICE_BLOB_CACHE | SLUICE_BLOB_ALONE);
	drop(s, "x");
}

SHELF_TEST(senseless_options_are_refused)
{
	static const struct {
		const char *uri;
		unsigned flags;
		uint64_t n;
		int rc;
		const char *said;
	} cases[] = {
		{"store://none", SLUICE_OPEN_READ, 0, ENOENT, "none"},
		{"store://", SLUICE_OPEN_READ, 0, EINVAL, "empty"},
		{"store://?wait_ms=1", SLUICE_OPEN_READ, 0, EINVAL, "empty"},
		{"store://none?wait_ms=20", SLUICE_OPEN_READ, 0, ETIMEDOUT, "none"},
		{"store://a#b", SLUICE_OPEN_READ, 0, EINVAL, "%23"},
		{"store://a%0", SLUICE_OPEN_READ, 0, EINVAL, "hexadecimal"},
		{"store://a%00", SLUICE_OPEN_READ, 0, EINVAL, "%00"},
		{"store://a%01", SLUICE_OPEN_READ, 0, EINVAL, ""},
		{"store://a%ff", SLUICE_OPEN_READ, 0, EINVAL, ""},
		{"store://a?what", SLUICE_OPEN_READ, 0, EINVAL, "what"},
		{"store://a?cache=1", SLUICE_OPEN_REPLACE, 1, EINVAL, "cache"},
		{"store://a?socket", SLUICE_OPEN_READ, 0, EINVAL, "socket"},
		{"store://a?id=1", SLUICE_OPEN_READ, 0, EINVAL, "not both"},
		{"store://?id=0", SLUICE_OPEN_READ, 0, EINVAL, "number 0"},
		{"store://?id=-1", SLUICE_OPEN_READ, 0, EINVAL, "-1"},
		{"store://?id=99", SLUICE_OPEN_READ, 0, ENOENT, ""},
		{"store://?id=1", SLUICE_OPEN_REPLACE, 1, EINVAL, "id"},
		{"store://a?wait_ms=1", SLUICE_OPEN_REPLACE, 1, EINVAL, "wait_ms"},
		{"store://a?cache", SLUICE_OPEN_READ, 0, EINVAL, "cache"},
		{"store://a?device=x", SLUICE_OPEN_REPLACE, 1, ENODEV, "x"},
		{"store://a?device=31", SLUICE_OPEN_REPLACE, 1, ENOTSUP, "31"},
		{"store://a?socket=/no/where", SLUICE_OPEN_READ, 0, ENOENT, "/no/where"},
		{"store://a", SLUICE_OPEN_WRITE, 1, EPERM, "does not change"},
		{"store://a", SLUICE_OPEN_REPLACE | SLUICE_OPEN_DURABLE, 1, ENOTSUP, "durable"},
		{"store://a", SLUICE_OPEN_REPLACE, 1ull << 40, ENOSPC, ""},
	};
	struct sluice_open_options o = SLUICE_OPEN_OPTIONS_INIT;
	sluice_file *file = NULL;

	for (size_t i = 0; i < COUNT_OF(cases); i++) {
		int rc = open_new(s, cases[i].uri, cases[i].flags, cases[i].n, &file);

		if (rc != -cases[i].rc || !strstr(sluice_last_message(), cases[i].said))
			fail_msg("%s: %d, \"%s\"", cases[i].uri, rc, sluice_last_message());
	}
	o.backend = "posix";
	assert_refused(sluice_open(s->ctx, "store://a", &o, &file), EINVAL, "posix");
	assert_null(file);
}

TEST(a_name_is_shown_as_it_was_written)
{
	static const char uri[] = "store://a@b/c?socket=/x&cache";
	char text[64];

	assert_int_equal(sluice_uri_name(uri, text, sizeof(text)), strlen(uri));
	assert_string_equal(text, uri);
}

DAEMON_MAIN("256M")
