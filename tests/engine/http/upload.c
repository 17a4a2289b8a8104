/* SPDX-License-Identifier: Apache-2.0 */
/* Writing to a server that goes wrong: close says so, and nothing hangs. */
#include "http/cases.h"

static sluice_file *open_put(struct fixture *f, const char *uri, uint64_t expected_size)
{
	struct sluice_open_options o = SLUICE_OPEN_OPTIONS_INIT;
	sluice_file *file = NULL;

	o.flags = SLUICE_OPEN_REPLACE;
	o.expected_size = expected_size;
	assert_ok(sluice_open(f->ctx, uri, &o, &file));
	return file;
}

/* Writes n bytes in parts until one fails, and closes; the error of the close. */
static int upload(struct fixture *f, const char *uri, size_t n)
{
	struct buffer b = buffer_new(n, 0);
	sluice_file *file = open_put(f, uri, n);
	size_t at, step = 300000;
	int rc;

	pattern_fill(b.data, n, 0, 11);
	for (at = 0; at < n; at += step)
		if (write_now(file, b.data + at, n - at < step ? n - at : step, at) < 0)
			break;
	rc = sluice_close(file);
	buffer_free(&b);
	return rc;
}

static void upload_fails(struct fixture *f, const char *uri, size_t n, int error, const char *says)
{
	int rc = upload(f, uri, n);

	if (rc != -error)
		fail_msg("%s gave %d (%s), not -%s; \"%s\"", uri, rc, strerror(-rc),
		         strerror(error), sluice_last_message());
	if (!strstr(sluice_last_message(), says))
		fail_msg("\"%s\" does not mention \"%s\"", sluice_last_message(), says);
	assert_null(strstr(asked_for(uri), "stored "));
}

HTTP_TEST(a_refused_upload_is_an_error_in_the_words_of_the_server)
{
	upload_fails(f, fault_uri("fault=status:403&on=PUT&text=%s", as_option("no room\nmore")),
	             100000, EACCES, "no room");
	upload_fails(f, fault_uri("fault=status:403&on=PUT&unread=1&text=%s", as_option("no room")),
	             LONG, EACCES, "no room");
	upload_fails(f, fault_uri("fault=status:507&on=PUT"), 100000, EIO, "507");
	/* Also where another attempt is not made, or they are over. */
	upload_fails(f, fault_uri("fault=status:503&on=PUT&text=busy"), LONG, EIO,
	             "HTTP 503: busy; ");
	upload_fails(f, fault_uri("fault=status:503&on=PUT&text=busy"), 300, EIO,
	             "HTTP 503: busy, after");
	open_fails(f, fault_uri("fault=status:503&on=HEAD,GET&text=busy"), EIO,
	           "HTTP 503: busy, after");
}

/* Bytes that were sent cannot follow; where none was, they go where they were sent to. */
HTTP_TEST(a_redirected_upload_arrives_or_fails)
{
	static const size_t sizes[] = {1000, LONG};
	size_t i;

	for (i = 0; i < COUNT_OF(sizes); i++) {
		const char *to = fault_uri("stored=1");
		const char *uri = fault_uri("fault=redirect:307&on=PUT&to=%s", as_option(to));
		int rc = upload(f, uri, sizes[i]);
		char stored[40];

		snprintf(stored, sizeof(stored), "/object %zu\n", sizes[i]);
		if (rc == 0)
			assert_non_null(strstr(asked_for(to), stored));
		else
			assert_true(*sluice_last_message());
		print_message("%zu bytes: %s\n", sizes[i], rc ? sluice_last_message() : "arrived");
	}
}

HTTP_TEST(an_upload_that_breaks_off_is_an_error)
{
	const char *uri = fault_uri("fault=reset:200000&on=PUT");

	assert_true(upload(f, uri, LONG) < 0);
	assert_true(*sluice_last_message());
	assert_null(strstr(asked_for(uri), "stored "));
	uri = fault_uri("fault=garbage&on=PUT");
	assert_true(upload(f, uri, 1000) < 0);
	assert_true(*sluice_last_message());
}

/* Uploads in two writes, so that the first bytes are gone when the last ones come; it must arrive as it is. */
static void arrives_once_refused(struct fixture *f, const char *fault, size_t n)
{
	const char *uri = fault_uri("stored=1&on=PUT&times=1&%s", fault);
	struct buffer b = buffer_new(n, 0), back = buffer_new(n, 0);
	sluice_file *file = open_put(f, uri, n);

	pattern_fill(b.data, n, 0, 12);
	assert_write(file, b.data, n / 2, 0);
	assert_write(file, b.data + n / 2, n - n / 2, n / 2);
	assert_ok(sluice_close(file));
	assert_int_equal(asked(uri, "PUT"), 2);
	file = open_read(f->ctx, uri);
	assert_read(file, back.data, n, 0);
	assert_memory_equal(back.data, b.data, n);
	assert_ok(sluice_close(file));
	buffer_free(&b);
	buffer_free(&back);
}

HTTP_TEST(a_small_upload_is_sent_again)
{
	static const char *const faults[] = {"fault=status:503", "fault=status:429",
	                                     "fault=reset:head", "fault=reset:100",
	                                     "fault=garbage:empty"};
	static const size_t sizes[] = {300, 65536};

	for (size_t i = 0; i < COUNT_OF(faults); i++)
		for (size_t j = 0; j < COUNT_OF(sizes); j++)
			arrives_once_refused(f, faults[i], sizes[j]);
}

/* More than is kept; and what may be there already, which the second attempt would take for another's. */
HTTP_TEST(upload_that_cannot_be_repeated_is_an_error)
{
	struct sluice_open_options o = SLUICE_OPEN_OPTIONS_INIT;
	const char *uri = fault_uri("fault=status:503&on=PUT&times=1");
	static char bytes[300];
	sluice_file *file = NULL;

	upload_fails(f, uri, (64 << 10) + 2, EIO, "503");
	assert_int_equal(asked(uri, "PUT"), 1);
	uri = fault_uri("stored=1&fault=reset:300&on=PUT&times=1");
	o.flags = SLUICE_OPEN_REPLACE | SLUICE_OPEN_EXCLUSIVE;
	o.expected_size = 300;
	assert_ok(sluice_open(f->ctx, uri, &o, &file));
	assert_write(file, bytes, 300, 0);
	assert_true(sluice_close(file) < 0);
	assert_int_equal(asked(uri, "PUT"), 1);
}

HTTP_TEST(a_server_that_refuses_expect_is_not_asked_for_it_again)
{
	const char *uri = fault_uri("stored=1&fault=expect&on=PUT");
	char stored[40];

	assert_ok(upload(f, uri, LONG));
	assert_int_equal(asked(uri, "status_417"), 1);
	snprintf(stored, sizeof(stored), "/object %zu\n", LONG);
	assert_non_null(strstr(asked_for(uri), stored));
}

HTTP_TEST(a_server_that_stops_reading_is_given_up)
{
	double begun = seconds_now();

	with(f, "SLUICE_HTTP_ATTEMPTS", "2");
	with(f, "SLUICE_HTTP_STALL_MS", "200");
	upload_fails(f, fault_uri("fault=stall:1000&on=PUT&stall_ms=20000"), 20 * MIB, ETIMEDOUT,
	             "");
	upload_fails(f, fault_uri("fault=stall:head&on=PUT&stall_ms=20000"), 1000, ETIMEDOUT, "");
	assert_soon(begun);
}

/* Twice the stall time-out, in which the server takes a little at a time of data that is all there. */
HTTP_TEST(an_upload_that_goes_on_is_no_stall)
{
	const char *uri = fault_uri("fault=slow:262144&on=PUT");
	struct buffer b = buffer_new(20 * MIB, 0);
	double begun;
	int rc, tries = 0;

	with(f, "SLUICE_HTTP_STALL_MS", "900");
	/* A loaded machine may be silent for as long, but not each time. */
	do {
		sluice_file *file = open_put(f, uri, b.length);

		begun = seconds_now();
		(void)write_now(file, b.data, b.length, 0);
		rc = sluice_close(file);
	} while (rc && ++tries < 3);
	assert_ok(rc);
	buffer_free(&b);
	assert_true(seconds_now() - begun > 1.8);
	assert_non_null(strstr(asked_for(uri), "/object 20971520\n"));
}

/* Between two writes a caller may take its time: that is no stall. */
HTTP_TEST(a_writer_that_pauses_is_waited_for)
{
	const char *uri = fault_uri("stored=1");
	static char bytes[300000];
	sluice_file *file;

	impatient(f);
	file = open_put(f, uri, 2 * sizeof(bytes));
	assert_write(file, bytes, sizeof(bytes), 0);
	sleep_ms(STALL_MS * 3 / 2);
	assert_write(file, bytes, sizeof(bytes), sizeof(bytes));
	sleep_ms(STALL_MS * 3 / 2);
	assert_ok(sluice_close(file));
	assert_non_null(strstr(asked_for(uri), "/object 600000\n"));
}

HTTP_TEST(a_write_that_waits_for_the_server_is_cancelled)
{
	struct buffer b = buffer_new(20 * MIB, 0);
	const char *uri;
	sluice_file *file;
	sluice_op *op;
	double begun;

	with(f, "SLUICE_HTTP_STALL_MS", "60000");
	uri = fault_uri("fault=stall:1000&on=PUT&stall_ms=20000");
	file = open_put(f, uri, b.length);
	op = start_write(file, b.data, b.length, 0);
	wait_until_asked(uri, "PUT", 1);
	sleep_ms(50);
	assert_int_equal(sluice_poll(op), 0);
	begun = seconds_now();
	assert_int_equal(sluice_cancel(op), 0);
	assert_int_equal(sluice_wait(op, PATIENCE_MS), -ECANCELED);
	sluice_op_free(op);
	/* An object with a hole is none. */
	assert_true(sluice_close(file) < 0);
	assert_soon(begun);
	assert_null(strstr(asked_for(uri), "stored "));
	buffer_free(&b);
}

HTTP_TEST(uploads_of_several_files_run_side_by_side)
{
	enum { FILES = 6 };
	static char bytes[200000];
	sluice_file *files[FILES];
	const char *uris[FILES];
	double begun = seconds_now();
	int i, part;

	pattern_fill(bytes, sizeof(bytes), 0, 11);
	for (i = 0; i < FILES; i++) {
		uris[i] = fault_uri("stored=1&latency=100");
		files[i] = open_put(f, uris[i], 4 * sizeof(bytes));
	}
	for (part = 0; part < 4; part++)
		for (i = 0; i < FILES; i++)
			assert_ok(sluice_write(files[i], bytes, sizeof(bytes),
			                       (uint64_t)part * sizeof(bytes), NULL));
	for (i = 0; i < FILES; i++) {
		assert_ok(sluice_close(files[i]));
		assert_non_null(strstr(asked_for(uris[i]), "/object 800000\n"));
	}
	assert_soon(begun);
}
