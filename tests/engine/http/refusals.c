/* SPDX-License-Identifier: Apache-2.0 */
/* What a server refuses is told at once, in its own words. */
#include <ctype.h>

#include "http/cases.h"

HTTP_TEST(a_status_that_means_no_is_an_error_at_once)
{
	static const struct {
		int status, error;
	} cases[] = {{400, EIO},    {401, EACCES}, {403, EACCES}, {404, ENOENT},
	             {410, ENOENT}, {418, EIO},    {451, EIO},    {501, EIO}};
	size_t i;

	for (i = 0; i < COUNT_OF(cases); i++) {
		char says[16];
		const char *uri;

		snprintf(says, sizeof(says), "%d", cases[i].status);
		uri = fault_uri("size=5000&fault=status:%d", cases[i].status);
		read_fails(f, uri, 1000, 10, cases[i].error, says);
		assert_int_equal(asked(uri, "GET"), 1);
		uri = fault_uri("size=5000&fault=status:%d&on=HEAD,GET", cases[i].status);
		open_fails(f, uri, cases[i].error, says);
		assert_true(asked(uri, "GET") <= 1);
	}
}

HTTP_TEST(the_first_line_of_the_answer_is_told)
{
	const char *uri = fault_uri("size=5000&fault=status:403&text=%s",
	                            as_option("this is not for you\nnor this line\n"));
	sluice_file *file = open_read(f->ctx, uri);
	char byte;
	sluice_op *op = start_read(file, &byte, 1, 0);

	assert_int_equal(sluice_wait(op, PATIENCE_MS), -EACCES);
	assert_non_null(strstr(sluice_op_message(op), "403"));
	assert_non_null(strstr(sluice_op_message(op), "this is not for you"));
	assert_null(strstr(sluice_op_message(op), "nor this line"));
	assert_non_null(strstr(sluice_op_message(op), "/object"));
	sluice_op_free(op);
	assert_ok(sluice_close(file));
}

/* Nothing that a server says can break a line of a log, or a terminal. */
HTTP_TEST(server_text_is_made_printable_and_short)
{
	static char lengthy[1500];
	const char *const texts[] = {
		"\x1b[31mred\x07\x01\x7f\r\n", "%s%n%d\n", "\xff\xfe\n", lengthy, "", "\n\n\n"};
	size_t i;

	memset(lengthy, 'y', sizeof(lengthy) - 1);
	for (i = 0; i < COUNT_OF(texts); i++) {
		const char *uri =
			fault_uri("size=5000&fault=status:403&text=%s", as_option(texts[i]));
		sluice_file *file = open_read(f->ctx, uri);
		const char *said, *at;
		char byte;
		sluice_op *op = start_read(file, &byte, 1, 0);

		assert_int_equal(sluice_wait(op, PATIENCE_MS), -EACCES);
		said = sluice_op_message(op);
		assert_non_null(strstr(said, "403"));
		for (at = said; *at; at++)
			if (iscntrl((unsigned char)*at))
				fail_msg("byte %02x in \"%s\"", (unsigned char)*at, said);
		if (texts[i] == lengthy)
			assert_null(strstr(said, lengthy));
		sluice_op_free(op);
		assert_ok(sluice_close(file));
	}
}

/* The others are slow, and would take a minute. */
HTTP_TEST(refused_piece_fails_the_read_and_stops_its_siblings)
{
	const char *uri =
		fault_uri("size=%zu&fault=status:403&at=10&pace=2000:100&latency=50", LONG - 5);
	double begun = seconds_now();
	int i;

	read_fails(f, uri, LONG, 0, EACCES, "403");
	assert_soon(begun);
	wait_until_left(uri);
	for (i = 0; i < 5; i++)
		read_fails(f, fault_uri("size=%zu&fault=status:403&at=%zu", LONG, i * MIB), LONG, 0,
		           EACCES, "403");
	/* Whoever is not part of it goes on. */
	reads_right(f, fault_uri("size=%zu", LONG), LONG, 0);
}

HTTP_TEST(missing_file_is_not_opened)
{
	open_fails(f, nginx_uri(scratch(f, "missing"), false), ENOENT, "missing");
	open_fails(f, fault_uri("stored=1"), ENOENT, "404");
}

/* A proxy that says no to CONNECT will not say yes the next time; one that is overloaded may. */
HTTP_TEST(a_proxy_that_refuses_is_an_error_at_once)
{
	char proxy[100];
	double begun;

	snprintf(proxy, sizeof(proxy), "http://127.0.0.1:%d", server_port("plain"));
	with(f, "https_proxy", proxy);
	with(f, "SLUICE_HTTP_BACKOFF_MAX_MS", "60000");
	with(f, "SLUICE_HTTP_BACKOFF_MS", "60000");
	begun = seconds_now();
	open_fails(f, "https://code403.invalid/x", EACCES,
	           "proxy refused to connect to the server (HTTP 403)");
	open_fails(f, "https://code407.invalid/x", EACCES, "HTTP 407");
	assert_soon(begun);
	with(f, "SLUICE_HTTP_BACKOFF_MS", "5");
	open_fails(f, "https://code503.invalid/x", ECONNRESET, "attempts");
}
