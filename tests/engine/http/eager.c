/* SPDX-License-Identifier: Apache-2.0 */
/* An opening that brings the first bytes: a small object is a single request, and every answer is judged as ever. */
#include "http/cases.h"

static int try_eager(struct fixture *f, const char *uri, sluice_file **out)
{
	struct sluice_open_options o = SLUICE_OPEN_OPTIONS_INIT;

	o.first_bytes = MIB;
	return sluice_open(f->ctx, uri, &o, out);
}

static sluice_file *open_eager(struct fixture *f, const char *uri)
{
	sluice_file *file = NULL;

	assert_ok(try_eager(f, uri, &file));
	return file;
}

static void reads_eager(struct fixture *f, const char *uri, size_t n, uint64_t offset)
{
	struct buffer b = buffer_new(n, 16);
	sluice_file *file = open_eager(f, uri);

	assert_moves(start_read(file, b.data, n, offset), n);
	assert_served(b.data, n, offset);
	assert_ok(sluice_close(file));
	buffer_free(&b);
}

HTTP_TEST(a_small_object_is_a_single_request)
{
	static const size_t sizes[] = {1, 100, MIB - 1, MIB};

	for (size_t i = 0; i < COUNT_OF(sizes); i++) {
		const char *uri = fault_uri("size=%zu", sizes[i]);

		reads_eager(f, uri, sizes[i], 0);
		assert_int_equal(asked(uri, "HEAD"), 0);
		assert_int_equal(asked(uri, "GET"), 1);
	}
}

HTTP_TEST(bytes_behind_the_first_ones_are_asked_for)
{
	const char *uri = fault_uri("size=%zu", LONG);
	sluice_file *file = open_eager(f, uri);
	struct sluice_file_info info = {.size = sizeof(info)};
	char bytes[100];

	assert_ok(sluice_stat(file, &info));
	assert_int_equal(info.length, LONG);
	assert_read(file, bytes, sizeof(bytes), MIB - 100);
	assert_int_equal(asked(uri, "GET"), 1);
	assert_read(file, bytes, sizeof(bytes), MIB - 50);
	assert_int_equal(asked(uri, "GET"), 2);
	assert_ok(sluice_close(file));
	reads_eager(f, uri, LONG, 0);
}

/* The server counts behind what it sends. */
static void assert_sent(const char *uri, long n)
{
	wait_until_asked(uri, "sent", n);
	assert_int_equal(asked(uri, "sent"), n);
}

HTTP_TEST(a_read_over_the_end_of_the_first_bytes_asks_for_the_rest)
{
	const char *uri = fault_uri("size=%zu", 3 * MIB + 7);

	reads_eager(f, uri, 3 * MIB + 7, 0);
	assert_sent(uri, 3 * MIB + 7);
	reads_eager(f, uri, 100, MIB - 50);
	assert_sent(uri, 3 * MIB + 7 + MIB + 50);
	/* Its transfer begins anew behind the bytes that came. */
	uri = fault_uri("size=%zu&fault=short:400&times=1&skip=1", 3 * MIB + 7);
	reads_eager(f, uri, 3 * MIB + 7, 0);
	assert_sent(uri, 3 * MIB + 7);
}

HTTP_TEST(an_eager_opening_takes_what_any_opening_takes)
{
	static const char *const options[] = {
		"length=chunked",
		"length=close",
		"close=1",
		"ranges=silent",
		"etag=weak",
		"etag=none",
		"fault=lower",
		"fault=interim",
		"latency=20",
		"fault=short:400&times=1",
		"fault=reset:100&times=1",
		"fault=status:503&times=1",
	};

	for (size_t i = 0; i < COUNT_OF(options); i++) {
		reads_eager(f, fault_uri("size=%zu&%s", 2 * MIB + 7, options[i]), 2 * MIB + 7, 0);
		reads_eager(f, fault_uri("size=5000&%s", options[i]), 4950, 50);
	}
	/* Without ranges it is read from the begin. */
	reads_eager(f, fault_uri("size=%zu&ranges=no", 2 * MIB + 7), 2 * MIB + 7, 0);
	assert_ok(sluice_close(open_eager(f, fault_uri("size=0"))));
}

/* Reads an object of which a list said the length. */
static void reads_listed(struct fixture *f, const char *uri, size_t listed, size_t n)
{
	struct sluice_open_options o = SLUICE_OPEN_OPTIONS_INIT;
	struct buffer b = buffer_new(n, 16);
	sluice_file *file = NULL;

	o.first_bytes = o.expected_size = listed;
	assert_ok(sluice_open(f->ctx, uri, &o, &file));
	assert_moves(start_read(file, b.data, n, 0), n);
	assert_served(b.data, n, 0);
	assert_ok(sluice_close(file));
	buffer_free(&b);
}

HTTP_TEST(an_object_of_a_list_comes_without_a_range)
{
	/* Which such a server would not know. */
	const char *uri = fault_uri("size=5000&ranges=no");
	struct sluice_open_options o = SLUICE_OPEN_OPTIONS_INIT;
	sluice_file *file = NULL;

	reads_listed(f, uri, 5000, 5000);
	assert_int_equal(asked(uri, "GET"), 1);
	assert_int_equal(asked(uri, "HEAD"), 0);
	o.expected_size = 5000;
	assert_refused(sluice_open(f->ctx, uri, &o, &file), EINVAL, "expected_size");
}

HTTP_TEST(an_object_of_a_list_takes_what_any_opening_takes)
{
	static const char *const options[] = {
		"length=chunked",
		"length=close",
		"ranges=silent",
		"etag=none",
		"ranges=no",
		"fault=short:400&times=1",
		"fault=status:503&times=1",
	};

	for (size_t i = 0; i < COUNT_OF(options); i++) {
		reads_listed(f, fault_uri("size=5000&%s", options[i]), 5000, 5000);
		/* It has become longer, or shorter. */
		reads_listed(f, fault_uri("size=%zu&%s", 2 * MIB + 7, options[i]), 5000,
		             2 * MIB + 7);
		reads_listed(f, fault_uri("size=5000&%s", options[i]), MIB, 5000);
	}
}

HTTP_TEST(wrong_answers_to_an_eager_opening_are_not_believed)
{
	static const char *const faults[] = {"range:missing", "range:garbage", "range:shifted",
	                                     "range:shorter", "range:longer",  "long:1",
	                                     "cut:1",         "endless",       "partial:multipart"};

	for (size_t i = 0; i < COUNT_OF(faults); i++) {
		sluice_file *file = NULL;

		assert_refused(try_eager(f, fault_uri("size=5000&fault=%s", faults[i]), &file),
		               EPROTO, "");
	}
}

HTTP_TEST(an_eager_opening_of_nothing_is_a_single_request)
{
	const char *uri = fault_uri("size=5000&fault=status:404");
	sluice_file *file = NULL;

	assert_refused(try_eager(f, uri, &file), ENOENT, "404");
	assert_int_equal(asked(uri, "GET") + asked(uri, "HEAD"), 1);
}

HTTP_TEST(an_opening_does_not_bring_any_number_of_bytes)
{
	struct sluice_open_options o = SLUICE_OPEN_OPTIONS_INIT;
	sluice_file *file = NULL;

	o.first_bytes = SLUICE_FIRST_BYTES + 1;
	assert_refused(sluice_open(f->ctx, fault_uri("size=5000"), &o, &file), EINVAL,
	               "first_bytes");
	o.first_bytes = 5001;
	assert_ok(sluice_open(f->ctx, fault_uri("size=5000"), &o, &file));
	assert_ok(sluice_close(file));
}
