/* SPDX-License-Identifier: Apache-2.0 */
/* URIs: what is no URI is refused, and what is one means what it says. */
#include "http/cases.h"

HTTP_TEST(malformed_http_uri_is_refused)
{
	static const char *const bad[] = {
		"http://",
		"http:///path",
		"https://:80/x",
		"http://host:99999/x",
		"http://host:port/x",
		"http://[::1/x",
		"http://[zz::1]/x",
		"http://ho st/x",
		"http://host/a b",
		"http://host/x\r\nX-Injected: yes",
		"http://host/x\nX-Injected: yes",
		"http://host/\x01",
		"http://host/\x7f",
		"http://host\r\n/x",
		"http://host/%0d%0aX-Injected:%20yes\r\n",
		"http://me:pass\nword@host/x",
	};
	size_t i;

	for (i = 0; i < COUNT_OF(bad); i++)
		open_fails(f, bad[i], EINVAL, "");
}

HTTP_TEST(other_schemes_are_not_known)
{
	open_fails(f, "ftp://127.0.0.1/x", EPROTONOSUPPORT, "ftp");
	open_fails(f, "gopher://127.0.0.1/x", EPROTONOSUPPORT, "gopher");
}

/* What is escaped stays escaped on its way: it cannot end a line of the request. */
HTTP_TEST(an_escaped_line_break_injects_nothing)
{
	const char *uri = fault_uri("size=5000&text=%%0d%%0aX-Injected:%%20yes%%0d%%0a");
	struct buffer b = buffer_new(100, 0);
	sluice_file *file = NULL;

	if (sluice_open(f->ctx, uri, NULL, &file) == 0) {
		assert_read(file, b.data, 100, 5);
		assert_served(b.data, 100, 5);
		assert_ok(sluice_close(file));
		assert_int_equal(asked(uri, "requests"), 2);
	} else {
		assert_int_equal(asked(uri, "requests"), 0);
	}
	buffer_free(&b);
}

HTTP_TEST(names_with_escapes_are_found)
{
	static const struct {
		const char *name, *escaped;
	} names[] = {{"a b", "a%20b"},           {"per%cent", "per%25cent"},
	             {"plus+plus", "plus+plus"}, {"caf\xc3\xa9", "caf%C3%A9"},
	             {"q?q", "q%3Fq"},           {"h#h", "h%23h"}};
	size_t i;

	for (i = 0; i < COUNT_OF(names); i++) {
		struct buffer b = buffer_new(5000, 0);
		char uri[2000];
		sluice_file *file;

		file_make(scratch(f, names[i].name), 5000, 3);
		snprintf(uri, sizeof(uri), "%s%s", nginx_uri(scratch(f, ""), false),
		         names[i].escaped);
		file = open_read(f->ctx, uri);
		assert_read(file, b.data, 5000, 0);
		assert_pattern(b.data, 5000, 0, 3);
		assert_ok(sluice_close(file));
		buffer_free(&b);
	}
}

HTTP_TEST(a_fragment_is_not_sent)
{
	const char *uri = fault_uri("size=5000#fault=status:403");

	reads_right(f, uri, 1000, 10);
	assert_null(strstr(asked_for(uri), "#"));
}

HTTP_TEST(the_case_of_a_scheme_does_not_matter)
{
	const char *uri = fault_uri("size=5000");
	char upper[200];

	snprintf(upper, sizeof(upper), "HTTP%s", uri + 4);
	reads_right(f, upper, 1000, 10);
	reads_right(f, fault_uri("size=5000"), 1000, 10);
}

HTTP_TEST(an_ipv6_literal_is_reached)
{
	if (!server_port("ipv6"))
		SKIP("there is no ::1 here");
	reads_right(f, fault_uri_at("ipv6", "size=%zu", LONG), LONG, 0);
}

HTTP_TEST(a_backend_may_be_asked_for_each_file)
{
	static const char *const names[] = {"easy", "multi"};
	struct sluice_open_options o = SLUICE_OPEN_OPTIONS_INIT;
	struct sluice_file_info st = {.size = sizeof(st)};
	sluice_file *file = NULL;
	char byte[100];
	size_t i;

	for (i = 0; i < COUNT_OF(names); i++) {
		o.backend = names[i];
		assert_ok(sluice_open(f->ctx, fault_uri("size=5000"), &o, &file));
		assert_ok(sluice_stat(file, &st));
		assert_string_equal(st.backend, names[i]);
		assert_read(file, byte, 100, 5);
		assert_served(byte, 100, 5);
		assert_ok(sluice_close(file));
	}
	file = NULL;
	o.backend = "posix";
	assert_refused(sluice_open(f->ctx, fault_uri("size=5000"), &o, &file), EINVAL, "posix");
	o.backend = "easy";
	file_make(scratch(f, "local"), 10, 1);
	assert_refused(sluice_open(f->ctx, scratch(f, "local"), &o, &file), EINVAL, "easy");
	assert_null(file);
}

HTTP_TEST(http_2_is_there_for_who_asks_for_it)
{
	struct buffer b = buffer_new(LONG, 0);
	struct sluice_open_options o = SLUICE_OPEN_OPTIONS_INIT;
	sluice_file *file = NULL;

	file_make(scratch(f, "two"), LONG, 3);
	o.flags = SLUICE_OPEN_READ | SLUICE_OPEN_HTTP2;
	assert_ok(sluice_open(f->ctx, nginx_uri(scratch(f, "two"), true), &o, &file));
	assert_read(file, b.data, LONG, 0);
	assert_pattern(b.data, LONG, 0, 3);
	assert_ok(sluice_close(file));
	/* A server that has none is asked as ever. */
	assert_ok(sluice_open(f->ctx, fault_uri_at("good", "size=5000"), &o, &file));
	assert_read(file, b.data, 5000, 0);
	assert_served(b.data, 5000, 0);
	assert_ok(sluice_close(file));
	buffer_free(&b);
}
