/* SPDX-License-Identifier: Apache-2.0 */
/* Answers that are right in any form give the bytes; those that are not, an error. */
#include "http/cases.h"

HTTP_TEST(every_byte_of_an_object_is_read)
{
	static const size_t sizes[] = {0, 1, 4095, MIB - 1, MIB, LONG};
	size_t i;

	for (i = 0; i < COUNT_OF(sizes); i++) {
		const char *uri = fault_uri("size=%zu", sizes[i]);

		reads_right(f, uri, sizes[i], 0);
		if (sizes[i] > 10)
			reads_right(f, uri, sizes[i] - 9, 7);
	}
}

HTTP_TEST(right_answers_in_any_form_are_taken)
{
	static const char *const options[] = {
		"length=chunked",
		"length=close",
		"close=1",
		"ranges=silent",
		"head=405",
		"head=501",
		"head=nolength",
		"etag=weak",
		"etag=none",
		"fault=lower",
		"fault=interim",
		"fault=headers:3000",
		"latency=20",
		"pace=100000:1",
		"head=403",
		"ranged=200",
		"ranged=200&head=405",
	};
	size_t i;

	for (i = 0; i < COUNT_OF(options); i++) {
		reads_right(f, fault_uri("size=%zu&%s", 2 * MIB + 7, options[i]), 2 * MIB + 7, 0);
		reads_right(f, fault_uri("size=100&%s", options[i]), 10, 50);
	}
}

HTTP_TEST(the_size_is_asked_for_once)
{
	const char *uri = fault_uri("size=100000");
	sluice_file *file = open_read(f->ctx, uri);
	char byte[10];
	int i;

	for (i = 0; i < 20; i++)
		assert_read(file, byte, 10, (uint64_t)i * 1000);
	assert_int_equal(asked(uri, "HEAD"), 1);
	assert_int_equal(asked(uri, "GET"), 20);
	assert_int_equal(asked(uri, "status_206"), 20);
	/* What ends before it begins needs no request. */
	assert_int_equal(read_now(file, byte, 10, 100000), 0);
	assert_int_equal(read_now(file, byte, 0, 5), 0);
	assert_int_equal(asked(uri, "GET"), 20);
	assert_int_equal(read_now(file, byte, 10, 99997), 3);
	assert_ok(sluice_close(file));
}

HTTP_TEST(each_request_names_the_etag_that_open_saw)
{
	const char *strong = fault_uri("size=5000"), *weak = fault_uri("size=5000&etag=weak");

	reads_right(f, strong, 100, 10);
	assert_non_null(strstr(asked_for(strong), "range=bytes=10-109 if-match=\"t"));
	reads_right(f, weak, 100, 10);
	assert_non_null(strstr(asked_for(weak), "range=bytes=10-109 if-match=- "));
}

HTTP_TEST(a_wrong_content_range_fails)
{
	static const struct {
		const char *kind;
		int error;
		const char *says;
	} wrong[] = {
		{"shifted", EPROTO, "another part"},     {"earlier", EPROTO, "another part"},
		{"longer", EPROTO, "another part"},      {"later", EPROTO, "another part"},
		{"shorter", EPROTO, "another part"},     {"missing", EPROTO, "Content-Range"},
		{"garbage", EPROTO, "Content-Range"},    {"unit", EPROTO, "Content-Range"},
		{"unsatisfied", EPROTO, "another part"}, {"twice", EPROTO, ""},
		{"total", ESTALE, "another length"},
	};
	size_t i;

	for (i = 0; i < COUNT_OF(wrong); i++) {
		read_fails(f, fault_uri("size=5000&fault=range:%s", wrong[i].kind), 1000, 100,
		           wrong[i].error, wrong[i].says);
		/* Of a status that calls it the whole object none is taken. */
		read_fails(f, fault_uri("size=5000&ranged=200&fault=range:%s", wrong[i].kind), 1000,
		           100, wrong[i].error,
		           wrong[i].error == ESTALE ? wrong[i].says : "HTTP 200");
		read_fails(
			f,
			fault_uri("size=%zu&fault=range:%s&at=%zu", LONG, wrong[i].kind, LONG / 2),
			LONG, 0, wrong[i].error, wrong[i].says);
	}
	/* The total may be left open. */
	reads_right(f, fault_uri("size=5000&fault=range:star"), 1000, 100);
}

/* Where HEAD says too little, open asks for the first byte. */
HTTP_TEST(a_probe_that_is_answered_wrong_is_not_believed)
{
	static const char *const faults[] = {"range:missing",     "range:garbage",
	                                     "range:unit",        "range:shifted",
	                                     "range:unsatisfied", "partial:multipart"};
	size_t i;

	for (i = 0; i < COUNT_OF(faults); i++)
		open_fails(f, fault_uri("size=5000&head=405&fault=%s", faults[i]), EPROTO, "");
}

HTTP_TEST(a_body_that_is_longer_than_the_range_fails)
{
	read_fails(f, fault_uri("size=100000&fault=long:1"), 1000, 100, EPROTO, "");
	read_fails(f, fault_uri("size=100000&fault=long:5000000"), 100000, 0, EPROTO, "");
	read_fails(f, fault_uri("size=100000&fault=endless"), 1000, 100, EPROTO, "");
	read_fails(f, fault_uri("size=%zu&fault=long:70000&at=0", LONG), LONG, 0, EPROTO, "");
}

/* The message is whole and says another length than its own Content-Range. */
HTTP_TEST(a_body_that_is_shorter_than_the_range_fails)
{
	read_fails(f, fault_uri("size=100000&fault=cut:1"), 1000, 100, EPROTO, "");
	read_fails(f, fault_uri("size=100000&fault=cut:1000"), 1000, 100, EPROTO, "");
}

HTTP_TEST(the_whole_object_instead_of_a_range_fails)
{
	read_fails(f, fault_uri("size=100000&fault=whole"), 1000, 0, EPROTO, "whole");
	read_fails(f, fault_uri("size=100000&fault=whole"), 1000, 99000, EPROTO, "whole");
	read_fails(f, fault_uri("size=%zu&fault=whole&at=%zu", LONG, LONG / 2), LONG, 0, EPROTO,
	           "whole");
	read_fails(f, fault_uri("size=1000&fault=partial:multipart"), 100, 10, EPROTO, "");
}

/* As rclone answers: what is taken has the range and the length that were asked for, and no others. */
HTTP_TEST(a_part_that_has_the_status_of_the_whole_object_is_taken_by_its_fields)
{
	struct sluice_open_options options = SLUICE_OPEN_OPTIONS_INIT;
	const char *uri = fault_uri("size=%zu&ranged=200", LONG);
	sluice_file *file;
	char bytes[3000];

	reads_right(f, uri, 1, 0);
	reads_right(f, uri, 1000, 0);
	reads_right(f, uri, LONG - 1, 1);
	assert_int_equal(asked(uri, "status_206"), 0);
	options.first_bytes = 2000;
	for (size_t size = 1000; size <= 3000; size += 1000) {
		assert_ok(sluice_open(f->ctx, fault_uri("size=%zu&ranged=200", size), &options,
		                      &file));
		assert_read(file, bytes, size, 0);
		assert_served(bytes, size, 0);
		assert_ok(sluice_close(file));
	}
	read_fails(f, fault_uri("size=5000&ranged=200&length=close&fault=range:later"), 10, 100,
	           EPROTO, "HTTP 200");
	read_fails(f, fault_uri("size=5000&ranged=200&length=no"), 10, 100, EPROTO, "HTTP 200");
	read_fails(f, fault_uri("size=5000&ranged=200&length=chunked"), 10, 100, EPROTO,
	           "HTTP 200");
	read_fails(f, fault_uri("size=5000&ranged=200&fault=cut:1"), 10, 100, EPROTO, "HTTP 200");
	read_fails(f, fault_uri("size=5000&ranged=200&fault=long:1"), 10, 100, EPROTO, "HTTP 200");
	read_fails(f, fault_uri("size=5000&ranged=200&change=0&ifmatch=ignore"), 10, 100, ESTALE,
	           "ETag");
}

/* A server may ignore the range; if all was asked for, all is what comes. */
HTTP_TEST(the_whole_object_is_taken_where_all_of_it_was_asked_for)
{
	reads_right(f, fault_uri("size=100000&fault=whole"), 100000, 0);
}

/* What follows an answer belongs to nothing; the connection that it came on is spoilt, and the next one is not. */
HTTP_TEST(bytes_behind_an_answer_are_never_taken_for_data)
{
	sluice_file *file = open_read(f->ctx, fault_uri("size=%zu&fault=extra:10000", LONG));
	struct buffer b = buffer_new(LONG, 0);

	for (int i = 0; i < 10; i++) {
		assert_read(file, b.data, LONG, 0);
		assert_served(b.data, LONG, 0);
	}
	assert_ok(sluice_close(file));
	buffer_free(&b);
}

HTTP_TEST(an_object_that_changes_between_two_requests_fails)
{
	static const char *const options[] = {"", "&ifmatch=ignore", "&etag=weak"};
	size_t i;

	for (i = 0; i < COUNT_OF(options); i++) {
		/* In one read, and between two. */
		const char *uri = fault_uri("size=50000&change=1%s", options[i]);
		sluice_file *file;
		char byte[100];
		sluice_op *op;

		read_fails(f, fault_uri("size=%zu&change=2%s", LONG, options[i]), LONG, 0, ESTALE,
		           "changed");
		file = open_read(f->ctx, uri);
		assert_read(file, byte, 100, 0);
		assert_served(byte, 100, 0);
		op = start_read(file, byte, 100, 0);
		assert_int_equal(sluice_wait(op, PATIENCE_MS), -ESTALE);
		assert_non_null(strstr(sluice_op_message(op), "changed"));
		sluice_op_free(op);
		assert_ok(sluice_close(file));
		/* Opened again, it is a file like any other. */
		file = open_read(f->ctx, uri);
		assert_read(file, byte, 100, 5);
		assert_int_equal(served_match(byte, 100, 5, 1), 100);
		assert_ok(sluice_close(file));
	}
}

HTTP_TEST(a_content_encoding_is_refused)
{
	const char *uri = fault_uri("size=50000&fault=gzip");

	read_fails(f, uri, 1000, 10, EPROTO, "encod");
	read_fails(f, fault_uri("size=50000&fault=gzip:quiet"), 1000, 10, EPROTO, "encod");
	read_fails(f, fault_uri("size=%zu&fault=gzip&at=%zu", LONG, LONG / 2), LONG, 0, EPROTO,
	           "encod");
}

HTTP_TEST(headers_without_end_fail)
{
	static const char *const kinds[] = {"400000", "endless", "line"};
	size_t i;

	for (i = 0; i < COUNT_OF(kinds); i++) {
		double begun = seconds_now();
		const char *uri = fault_uri("size=50000&fault=headers:%s", kinds[i]);

		read_fails(f, uri, 1000, 10, EPROTO, "header");
		open_fails(f, fault_uri("size=50000&fault=headers:%s&on=HEAD,GET", kinds[i]),
		           EPROTO, "header");
		assert_soon(begun);
		wait_until_left(uri);
		/* It was not swallowed at length before. */
		assert_true(asked(uri, "sent") < (long)(16 * MIB));
	}
}

HTTP_TEST(answer_that_is_not_http_fails)
{
	static const char *const kinds[] = {"", "line", "status", "length", "lengths", "huge"};
	size_t i;

	for (i = 0; i < COUNT_OF(kinds); i++) {
		const char *uri = fault_uri("size=50000&fault=garbage:%s", kinds[i]);

		read_fails(f, uri, 1000, 10, EPROTO, "");
		open_fails(f, fault_uri("size=50000&fault=garbage:%s&on=HEAD,GET", kinds[i]),
		           EPROTO, "");
	}
}
