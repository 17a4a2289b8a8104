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
	static const char *const options[] = {"", "&length=chunked", "&length=close", "&etag=none",
	                                      "&head=405&length=no"};
	size_t i;

	for (i = 0; i < COUNT_OF(options); i++) {
		const char *uri = fault_uri("size=%zu&ranges=no%s", LONG, options[i]);
		sluice_file *file = open_read(f->ctx, uri);
		struct buffer b = buffer_new(LONG, 0);

		assert_true(stat_of(file).length == LONG ||
		            stat_of(file).flags & SLUICE_STAT_SIZE_UNKNOWN);
		assert_true(stat_of(file).flags & SLUICE_STAT_WHOLE_ONLY);
		assert_read(file, b.data, LONG, 0);
		assert_served(b.data, LONG, 0);
		/* That of the opening, which asked for a byte. */
		assert_int_equal(asked(uri, "GET"), 1);
		assert_int_equal(asked(uri, "sent"), LONG);
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
		assert_int_equal(asked(uri, "GET"), 2);
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
		sluice_file *file =
			open_read(f->ctx, fault_uri("size=%zu&ranges=no&fault=stall:%zu&times=1%s",
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
	with(f, "SLUICE_HTTP_RETRY_MS", "1000");
	read_fails(f, fault_uri("size=%zu&ranges=no&fault=reset:100000", LONG), LONG, 0, ECONNRESET,
	           "");
	/* The first GET is the one of open. */
	read_again_fails(f, fault_uri("size=100000&ranges=no&fault=partial&skip=1"), 100000, EPROTO,
	                 "");
	read_again_fails(f, fault_uri("size=100000&ranges=no&fault=gzip&skip=1"), 100000, EPROTO,
	                 "encod");
}

/* Its bytes wait in the network, and no longer than a server may be silent. */
HTTP_TEST(an_opening_keeps_a_body_for_a_while_and_not_its_bytes)
{
	const char *uri = fault_uri("size=%zu&ranges=no&length=chunked", 64 * MIB);
	sluice_file *file = open_read(f->ctx, uri);
	char some[1000];

	assert_int_equal(asked(uri, "now"), 1);
	assert_ok(sluice_close(file));
	wait_until_left(uri);
	assert_true(asked(uri, "sent") < (long)(20 * MIB));
	impatient(f);
	file = open_read(f->ctx, uri);
	wait_until_left(uri);
	/* It is asked for anew. */
	assert_read(file, some, sizeof(some), 0);
	assert_served(some, sizeof(some), 0);
	assert_int_equal(asked(uri, "GET"), 3);
	assert_ok(sluice_close(file));
}

HTTP_TEST(openings_that_wait_for_a_read_hold_up_no_other_and_are_few)
{
	enum { FILES = 50, KEPT = 32 };
	const char *uri = fault_uri("size=%zu&ranges=no", LONG);
	struct buffer b = buffer_new(LONG, 0);
	sluice_file *files[FILES];

	for (int i = 0; i < FILES; i++)
		files[i] = open_read(f->ctx, uri);
	/* The server sees a moment later that the others are closed. */
	for (double begun = seconds_now(); asked(uri, "now") > KEPT; sleep_ms(5))
		assert_soon(begun);
	assert_true(asked(uri, "now"));
	for (int i = FILES; i-- > 0;) {
		if (i % 2)
			assert_read(files[i], b.data, LONG, 0);
		assert_served(b.data, LONG, 0);
		assert_ok(sluice_close(files[i]));
	}
	assert_int_equal(asked(uri, "GET"), FILES + (FILES - KEPT) / 2);
	/* Each is given back. */
	files[0] = open_read(f->ctx, uri);
	assert_read(files[0], b.data, LONG, 0);
	assert_ok(sluice_close(files[0]));
	assert_int_equal(asked(uri, "GET"), FILES + (FILES - KEPT) / 2 + 1);
	buffer_free(&b);
}

/* It makes all bytes also for HEAD, and sends none. */
HTTP_TEST(a_server_that_is_busy_with_its_answer_to_head_is_asked_elsewhere)
{
	double begun = seconds_now();

	reads_right(f, fault_uri("size=%zu&ranges=no&length=chunked&fault=busy&on=HEAD", LONG),
	            LONG, 0);
	assert_soon(begun);
}

/* Lengths, redirects, ends of the connection, pauses and reads of any length: the bytes, or an error where nothing shows that
 * another attempt is about the same object. */
HTTP_TEST(a_body_is_right_however_it_comes_and_is_read)
{
	static const char *const lengths[] = {"", "&length=chunked", "&length=close",
	                                      "&head=nolength&length=no",
	                                      "&head=405&length=chunked"};
	static const char *const versions[] = {"", "&etag=none&modified=1000000000", "&etag=none"};
	struct rng r = rng_new(38);
	struct buffer b = buffer_new(2 * MIB, 0);

	for (int i = 0; i < rounds_of(90); i++) {
		size_t size = 1 + rng_below(&r, rng_below(&r, 2) ? 5000 : 2 * MIB), at = 0;
		size_t version = rng_below(&r, 3), end = rng_below(&r, size + 1);
		bool broken = rng_below(&r, 2), moved = rng_below(&r, 4) == 0;
		const char *uri = fault_uri("size=%zu&ranges=no%s%s", size,
		                            lengths[rng_below(&r, 5)], versions[version]);
		char there[2000];
		sluice_file *file;
		int64_t got = 1;

		snprintf(there, sizeof(there), "%s", uri);
		if (broken)
			snprintf(there, sizeof(there), "%s&fault=reset:%zu&times=1", uri, end);
		uri = there;
		if (moved)
			uri = fault_uri("fault=redirect:302&on=HEAD,GET&to=%s", as_option(there));
		file = open_read(f->ctx, uri);
		if (rng_below(&r, 4) == 0)
			sleep_ms(10);
		memset(b.data, 0, b.length);
		while (at < size && got > 0) {
			size_t n = 1 + rng_below(&r, rng_below(&r, 2) ? 3000 : 2 * MIB);

			got = read_now(file, b.data + at, n < size - at ? n : size - at, at);
			at += got > 0 ? got : 0;
		}
		if (got < 0 && !(broken && version == 2))
			fail_msg("%s: %lld at %zu", uri, (long long)got, at);
		assert_served(b.data, at, 0);
		assert_ok(sluice_close(file));
	}
	buffer_free(&b);
}
