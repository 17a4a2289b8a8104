/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes of two versions of an object never become one: an answer proves that it is of the one that was opened. */
#include "http/cases.h"

#define RANGE  "HTTP/1.1 206 Fine|Content-Range: bytes {first}-{last}/{size}|"
#define PART   RANGE "Content-Length: {n}|"
#define WHOLE  "HTTP/1.1 200 Fine|Content-Length: {n}|"
#define HEADER "HTTP/1.1 200 Fine|Accept-Ranges: bytes|"
#define DATE   "Sun, 09 Sep 2001 01:46:4"

/* Answers with the bytes of version 1 for the range that holds the object's middle. */
HTTP_TEST(bytes_of_another_version_are_never_taken)
{
	static const struct {
		const char *options, *lines, *trailer;
		int error;
	} lies[] = {
		{"", PART "X: none", "", ESTALE},
		{"", PART "ETag:", "", ESTALE},
		{"", PART "ETag: \"other\"|ETag: {etag}", "", ESTALE},
		{"", PART "ETag: {etag}|ETag: \"other\"", "", ESTALE},
		{"", PART "ETag: W/{etag}", "", ESTALE},
		{"", RANGE "Transfer-Encoding: chunked", "ETag: {etag}|", ESTALE},
		{"", "HTTP/1.1 103 Soon|ETag: {etag}||" PART "X: none", "", ESTALE},
		{"", PART "Content-Range: bytes 5-6/{size}|ETag: {etag}", "", EPROTO},
		{"",
	         "HTTP/1.1 206 Fine|Content-Range: bytes 5-6/{size}|Content-Length: {n}"
	         "|Content-Range: bytes {first}-{last}/{size}|ETag: {etag}",
	         "", EPROTO},
		{"", PART "ETag: {etag}|Content-Type: multipart/byteranges; boundary=b", "",
	         EPROTO},
		{"", PART "ETag: {etag}|Content-Encoding: gzip|Content-Encoding: identity", "",
	         EPROTO},
		{"", "HTTP/1.1 416 No|Content-Range: bytes */100|Content-Length: 0", "", ESTALE},
		{"pad=300", PART "X: none", "", ESTALE},
		{"etag=none&modified=1", PART "X: none", "", ESTALE},
		{"etag=none&modified=1",
	         PART "Last-Modified: " DATE "1 GMT|Last-Modified: " DATE "0 GMT", "", ESTALE},
		{"etag=weak&modified=1", PART "ETag: {etag}|Last-Modified: " DATE "1 GMT", "",
	         ESTALE},
		{"etag=none", PART "ETag: \"new\"", "", ESTALE},
		/* A weak ETag is not enough where the one or the other lacks the time. */
		{"etag=weak&modified=1", PART "ETag: {etag}", "", ESTALE},
		{"etag=weak", PART "ETag: {etag}|Last-Modified: " DATE "1 GMT", "", ESTALE},
		/* What is folded is not understood, and what is encoded on the way not decoded. */
		{"", PART "ETag:| {etag}", "", EPROTO},
		{"", PART "ETag: {etag}|Transfer-Encoding: gzip, chunked", "", EPROTO},
	};

	for (size_t i = 0; i < COUNT_OF(lies); i++) {
		read_fails(f,
		           fault_uri("size=%zu&%s&fault=raw:1&at=%zu&lines=%s&trailer=%s", 3 * MIB,
		                     lies[i].options, 3 * MIB / 2, as_option(lies[i].lines),
		                     as_option(lies[i].trailer)),
		           3 * MIB, 0, lies[i].error, "");
	}
	/* The whole object instead of a part, and a part by way of another server. */
	read_fails(f, fault_uri("size=5000&fault=raw:1&lines=%s", as_option(WHOLE "X: none")), 5000,
	           0, ESTALE, "lacks the ETag");
	read_fails(
		f,
		fault_uri("size=%zu&fault=redirect:302&at=10&to=%s", LONG,
	                  as_option(fault_uri_at("other", "size=%zu&version=1&etag=none", LONG))),
		LONG, 0, ESTALE, "lacks the ETag");
}

HTTP_TEST(a_long_etag_is_compared_to_its_last_byte)
{
	static const size_t pads[] = {120, 128, 900, 2000, 30000};

	for (size_t i = 0; i < COUNT_OF(pads); i++) {
		reads_right(f, fault_uri("size=%zu&pad=%zu", LONG, pads[i]), LONG, 0);
		read_fails(f, fault_uri("size=%zu&pad=%zu&change=2&ifmatch=ignore", LONG, pads[i]),
		           LONG, 0, ESTALE, "ETag");
	}
}

/* What has no ETag in the answer to HEAD may have one in the answers that count. */
HTTP_TEST(without_an_etag_head_is_not_enough)
{
	const char *lines = as_option(HEADER "Content-Length: {size}");

	reads_right(f, fault_uri("size=%zu&fault=raw&on=HEAD&lines=%s", LONG, lines), LONG, 0);
	lines = as_option(HEADER "Content-Length: {size}");
	read_fails(f,
	           fault_uri("size=%zu&change=3&ifmatch=ignore&fault=raw&on=HEAD&lines=%s", LONG,
	                     lines),
	           LONG, 0, ESTALE, "ETag");
}

/* Of the same date, with ETags of their own. */
HTTP_TEST(servers_of_one_name_are_told_apart_by_the_date_where_that_is_asked_for)
{
	static const char *const farm = "size=%zu&farm=1&close=1&modified=1000000000";
	const char *log = scratch(f, "log");
	char held[2000] = "";
	size_t n;

	read_fails(f, fault_uri(farm, LONG), LONG, 0, ESTALE, "412");
	read_fails(f, fault_uri("size=%zu&farm=1&close=1&etag=weak&modified=1000000000", LONG),
	           LONG, 0, ESTALE, "ETag");
	with(f, "SLUICE_LOG", "info");
	with(f, "SLUICE_HTTP_ETAG", "0");
	errors_begin(log);
	reads_right(f, fault_uri(farm, LONG), LONG, 0);
	reads_right(f, fault_uri("size=%zu&farm=1&close=1&ranges=no&modified=1000000000", LONG),
	            LONG, 0);
	errors_end();
	n = file_length(log);
	file_read(log, held, n < sizeof(held) ? n : sizeof(held) - 1, 0);
	assert_non_null(strstr(held, "ETag is not looked at (SLUICE_HTTP_ETAG)"));
	/* Another date, another length, or no date to look at. */
	read_fails(f, fault_uri("size=%zu&change=2&modified=1000000000", LONG), LONG, 0, ESTALE,
	           "modified");
	read_fails(f, fault_uri("size=5000&fault=range:total&modified=1000000000"), 1000, 100,
	           ESTALE, "another length");
	read_fails(f, fault_uri("size=%zu&farm=1&close=1", LONG), LONG, 0, ESTALE, "412");
}

/* Handlers that know nothing of HEAD say so; and what is empty is found to be. */
HTTP_TEST(a_length_of_0_is_not_believed_of_head)
{
	static const char *const gets[] = {"", "ranges=no", "ranges=no&length=chunked",
	                                   "length=no"};

	for (size_t i = 0; i < COUNT_OF(gets); i++) {
		const char *lines = as_option(HEADER "Content-Length: 0|ETag: {etag}");

		reads_right(f,
		            fault_uri("size=70000&%s&fault=raw&on=HEAD&lines=%s", gets[i], lines),
		            70000, 0);
		reads_right(f, fault_uri("size=0&%s", gets[i]), 0, 0);
	}
}

HTTP_TEST(where_head_fails_a_byte_is_asked_for)
{
	static const char *const faults[] = {"status:500", "status:503", "status:429",
	                                     "reset:head", "stall:head", "garbage:empty"};

	impatient(f);
	for (size_t i = 0; i < COUNT_OF(faults); i++) {
		const char *uri = fault_uri("size=5000&fault=%s&on=HEAD", faults[i]);

		reads_right(f, uri, 1000, 10);
		assert_in_range(asked(uri, "HEAD"), 1, 2);
	}
	/* Then as often as anything: the byte has attempts of its own. */
	reads_right(f, fault_uri("size=5000&fault=status:503&on=HEAD,GET&times=%d", ATTEMPTS), 1000,
	            10);
}

/* Wherever the connection ends, what is missing is asked for again. */
HTTP_TEST(an_answer_may_be_cut_anywhere)
{
	static const struct {
		const char *options, *lines;
		int most;
	} answers[] = {
		{"on=GET", PART "ETag: {etag}", 230},
		{"on=HEAD", HEADER "Content-Length: {size}|ETag: {etag}", 110},
		{"on=GET&head=nolength&ranges=no&length=chunked",
	         "HTTP/1.1 200 Fine|Transfer-Encoding: chunked|ETag: {etag}", 200},
		{"on=GET", "HTTP/1.1 302 There|Location: /nothing|Content-Length: 0", 58},
	};

	for (size_t i = 0; i < COUNT_OF(answers); i++)
		for (int cut = 0; cut < answers[i].most; cut += 4)
			reads_right(f,
			            fault_uri("size=100&%s&fault=raw&times=1&cut=%d&lines=%s",
			                      answers[i].options, cut, as_option(answers[i].lines)),
			            100, 0);
	with(f, "SLUICE_HTTP_RETRY_MS", "1000");
	read_again_fails(
		f,
		fault_uri("size=100&head=nolength&ranges=no&length=chunked&fault=raw&skip=1&cut="
	                  "30&lines=%s",
	                  as_option(answers[2].lines)),
		100, ECONNRESET, "header");
}

HTTP_TEST(an_object_is_read_as_it_is_stored_where_that_is_asked_for)
{
	struct sluice_open_options o = SLUICE_OPEN_OPTIONS_INIT;
	const char *uri = fault_uri("size=%zu&fault=gzip:stored&on=HEAD,GET", LONG);
	struct buffer b = buffer_new(LONG, 0);
	const char *local = scratch(f, "local");
	sluice_file *file = NULL;
	sluice_op *op;

	open_fails(f, uri, EPROTO, "SLUICE_OPEN_AS_STORED");
	o.flags = SLUICE_OPEN_READ | SLUICE_OPEN_AS_STORED;
	assert_ok(sluice_open(f->ctx, uri, &o, &file));
	assert_read(file, b.data, LONG, 0);
	assert_served(b.data, LONG, 0);
	assert_ok(sluice_close(file));
	/* Part of it, and the rest as it is without the encoding. */
	assert_ok(sluice_open(f->ctx, fault_uri("size=%zu&fault=gzip:stored&skip=2", LONG), &o,
	                      &file));
	op = start_read(file, b.data, LONG, 0);
	assert_int_equal(sluice_wait(op, PATIENCE_MS), -ESTALE);
	assert_non_null(strstr(sluice_op_message(op), "Content-Encoding"));
	sluice_op_free(op);
	assert_ok(sluice_close(file));
	file_write(local, b.data, 10, 0);
	assert_ok(sluice_open(f->ctx, local, &o, &file));
	assert_ok(sluice_close(file));
	buffer_free(&b);
}
