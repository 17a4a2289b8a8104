/* SPDX-License-Identifier: Apache-2.0 */
/* Servers without ranges: the whole object in one go, or an error that says why. */
#include "http/cases.h"

static struct sluice_file_info stat_of(sluice_file *file)
{
	struct sluice_file_info st = {.size = sizeof(st)};

	assert_ok(sluice_stat(file, &st));
	return st;
}

HTTP_TEST(the_whole_object_is_read_by_one_request)
{
	static const char *const options[] = {"", "&length=chunked", "&length=close", "&etag=none"};
	size_t i;

	for (i = 0; i < COUNT_OF(options); i++) {
		const char *uri = fault_uri("size=%zu&ranges=no%s", LONG, options[i]);
		sluice_file *file = open_read(f->ctx, uri);
		struct buffer b = buffer_new(LONG, 0);

		assert_int_equal(stat_of(file).length, LONG);
		assert_true(stat_of(file).flags & SLUICE_STAT_WHOLE_ONLY);
		assert_read(file, b.data, LONG, 0);
		assert_served(b.data, LONG, 0);
		/* Whether there are ranges may have been tried with a GET of its own. */
		assert_in_range(asked(uri, "GET"), 1, 2);
		assert_true(asked(uri, "sent") < (long)(2 * LONG + MIB));
		assert_ok(sluice_close(file));
		buffer_free(&b);
	}
}

/* By as many operations as there are, each where the one before ends, and once more from the start. */
HTTP_TEST(it_is_read_from_front_to_back_by_one_request)
{
	static const char *const options[] = {"", "&length=chunked", "&head=nolength&length=no"};
	enum { PARTS = 7 };
	size_t i, n = LONG / PARTS, at;

	for (i = 0; i < COUNT_OF(options); i++) {
		const char *uri = fault_uri("size=%zu&ranges=no%s", LONG, options[i]);
		sluice_file *file = open_read(f->ctx, uri);
		struct buffer b = buffer_new(LONG, 0);
		sluice_op *ops[PARTS];

		/* All at once, then one after the other. */
		for (at = 0; at < PARTS; at++)
			ops[at] = start_read(file, b.data + at * n, n, at * n);
		for (at = 0; at < PARTS; at++) {
			assert_int_equal(sluice_wait(ops[at], PATIENCE_MS), n);
			sluice_op_free(ops[at]);
		}
		assert_served(b.data, PARTS * n, 0);
		memset(b.data, 0, LONG);
		for (at = 0; at < PARTS; at++)
			assert_read(file, b.data + at * n, n, at * n);
		assert_served(b.data, PARTS * n, 0);
		assert_in_range(asked(uri, "GET"), 2, 3);
		/* In the middle of it nothing holds up the end. */
		assert_read(file, b.data, 1000, 0);
		assert_ok(sluice_close(file));
		buffer_free(&b);
	}
}

/* An ETag tells that the second attempt is about the same bytes; what came is not moved twice. */
HTTP_TEST(a_body_that_breaks_off_in_the_middle_goes_on_where_the_etag_is_the_same)
{
	static const char *const options[] = {"", "&etag=none&modified=1000000000", "&etag=none"};
	size_t i, half = LONG / 2;

	impatient(f);
	for (i = 0; i < COUNT_OF(options); i++) {
		sluice_file *file = open_read(
			f->ctx, fault_uri("size=%zu&ranges=no&fault=stall:%zu&skip=1&times=1%s",
		                          LONG, half + 100000, options[i]));
		struct buffer b = buffer_new(LONG, 0);
		sluice_op *op;

		assert_read(file, b.data, half, 0);
		op = start_read(file, b.data + half, LONG - half, half);
		if (i < 2) {
			if (sluice_wait(op, PATIENCE_MS) < 0)
				fail_msg("%s", sluice_op_message(op));
			assert_served(b.data, LONG, 0);
		} else {
			assert_int_equal(sluice_wait(op, PATIENCE_MS), -ETIMEDOUT);
			assert_non_null(strstr(sluice_op_message(op), "in the middle"));
			/* From the start it can be read again. */
			assert_read(file, b.data, LONG, 0);
			assert_served(b.data, LONG, 0);
		}
		sluice_op_free(op);
		assert_ok(sluice_close(file));
		buffer_free(&b);
	}
}

HTTP_TEST(a_part_of_it_is_refused_and_the_sentence_says_why)
{
	const char *uri = fault_uri("size=%zu&ranges=no", LONG);

	read_fails(f, uri, 1000, 10, ENOTSUP, "range");
	read_fails(f, uri, LONG - 1, 1, ENOTSUP, "range");
}

HTTP_TEST(a_file_with_ranges_is_not_called_whole_only)
{
	static const char *const options[] = {"", "&ranges=silent", "&head=405"};
	size_t i;

	for (i = 0; i < COUNT_OF(options); i++) {
		sluice_file *file = open_read(f->ctx, fault_uri("size=70000%s", options[i]));

		assert_int_equal(stat_of(file).flags, 0);
		assert_int_equal(stat_of(file).length, 70000);
		assert_string_equal(stat_of(file).backend, row->remote);
		assert_ok(sluice_close(file));
	}
}

HTTP_TEST(a_length_that_nobody_knows_is_found_by_reading)
{
	static const char *const options[] = {"length=no", "length=chunked"};
	size_t i;

	for (i = 0; i < COUNT_OF(options); i++) {
		sluice_file *file = open_read(
			f->ctx, fault_uri("size=300000&ranges=no&head=nolength&%s", options[i]));
		struct buffer b = buffer_new(MIB, 0);

		assert_true(stat_of(file).flags & SLUICE_STAT_SIZE_UNKNOWN);
		assert_int_equal(read_now(file, b.data, MIB, 0), 300000);
		assert_served(b.data, 300000, 0);
		/* A buffer that is full ends it as well. */
		assert_int_equal(read_now(file, b.data, 100000, 0), 100000);
		assert_served(b.data, 100000, 0);
		assert_ok(sluice_close(file));
		buffer_free(&b);
	}
}

/* Without ranges nothing can be continued; what was received is asked for again, or it fails. */
HTTP_TEST(a_body_that_breaks_off_never_counts_as_whole)
{
	const char *uri = fault_uri("size=%zu&ranges=no&fault=reset:100000&times=1", LONG);
	struct buffer b = buffer_new(LONG, 0);
	sluice_file *file = open_read(f->ctx, uri);
	sluice_op *op = start_read(file, b.data, LONG, 0);
	int64_t got = sluice_wait(op, PATIENCE_MS);

	if (got >= 0) {
		assert_int_equal(got, LONG);
		assert_served(b.data, LONG, 0);
	} else {
		assert_true(*sluice_op_message(op));
		stays_untouched(&b);
	}
	sluice_op_free(op);
	assert_ok(sluice_close(file));
	buffer_free(&b);
	read_fails(f, fault_uri("size=%zu&ranges=no&fault=reset:100000", LONG), LONG, 0, ECONNRESET,
	           "");
	/* The first GET is the one of open, which looks for ranges. */
	read_fails(f, fault_uri("size=100000&ranges=no&fault=partial&skip=1"), 100000, 0, EPROTO,
	           "");
	read_fails(f, fault_uri("size=100000&ranges=no&fault=gzip&skip=1"), 100000, 0, EPROTO,
	           "encod");
}
