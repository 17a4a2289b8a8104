/* SPDX-License-Identifier: Apache-2.0 */
/* Redirects: followed alike for size and data, within limits, and never with somebody's password. */
#include "http/cases.h"

/* user:password of the tests, as in a URI and as in the header. */
#define USER     "me:s3cret%21"
#define SECRET   "s3cret"
#define IN_BASIC "authorization=Basic bWU6czNjcmV0IQ=="

static const char *with_user(const char *uri)
{
	static char out[4096];
	const char *host = strstr(uri, "://") + 3;

	snprintf(out, sizeof(out), "%.*s%s@%s", (int)(host - uri), uri, USER, host);
	return out;
}

HTTP_TEST(a_redirect_is_followed_for_size_and_data)
{
	static const int codes[] = {301, 302, 303, 307, 308};
	static const char *const methods[] = {"HEAD,GET", "HEAD", "GET"};
	static const char *const ports[] = {"plain", "other", "good"};
	size_t i;

	for (i = 0; i < COUNT_OF(codes) * COUNT_OF(methods); i++) {
		const char *to =
			fault_uri_at(ports[i % COUNT_OF(ports)], "size=%zu&etag=same", 3 * MIB);
		const char *uri = fault_uri("size=%zu&etag=same&fault=redirect:%d&on=%s&to=%s",
		                            3 * MIB, codes[i % COUNT_OF(codes)],
		                            methods[i / COUNT_OF(codes)], as_option(to));

		reads_right(f, uri, 2 * MIB, 10);
		assert_true(asked(to, "requests") > 0);
	}
}

HTTP_TEST(a_location_may_be_relative)
{
	static const char *const locations[] = {"/there/b?size=90000", "b?size=90000",
	                                        "?size=90000", "../there/./c?size=90000#part"};
	size_t i;

	for (i = 0; i < COUNT_OF(locations); i++)
		reads_right(
			f,
			fault_uri("fault=redirect:302&on=HEAD,GET&to=%s", as_option(locations[i])),
			90000, 0);
}

HTTP_TEST(a_short_chain_is_followed)
{
	const char *c = fault_uri_at("other", "size=5000");
	const char *b = fault_uri("fault=redirect:307&on=HEAD,GET&to=%s", as_option(c));
	const char *a = fault_uri("fault=redirect:302&on=HEAD,GET&to=%s", as_option(b));

	reads_right(f, a, 5000, 0);
}

HTTP_TEST(a_loop_has_an_end)
{
	const char *uri = fault_uri("size=5000&fault=redirect:302&on=HEAD,GET");

	open_fails(f, uri, ELOOP, "redirect");
	assert_in_range(asked(uri, "requests"), 10, 40);
	uri = fault_uri("size=5000&fault=redirect:302");
	read_fails(f, uri, 1000, 10, ELOOP, "redirect");
	assert_in_range(asked(uri, "GET"), 10, 20);
}

HTTP_TEST(https_never_becomes_http)
{
	const char *to = fault_uri("size=5000");
	const char *uri = fault_uri_at("good", "size=5000&fault=redirect:302&on=HEAD,GET&to=%s",
	                               as_option(to));
	const char *first;

	open_fails(f, uri, EPROTO, "https");
	read_fails(f, fault_uri_at("good", "size=5000&fault=redirect:302&to=%s", as_option(to)),
	           1000, 10, EPROTO, "https");
	/* Nor by a detour, and nor if it began with http. */
	first = fault_uri("fault=redirect:302&on=HEAD,GET&to=%s", as_option(uri));
	open_fails(f, first, EPROTO, "https");
	assert_int_equal(asked(to, "requests"), 0);
}

HTTP_TEST(a_redirect_that_leads_nowhere_is_an_error)
{
	static const char *const kinds[] = {"missing", "empty", "ftp", "file", "malformed"};
	size_t i;

	for (i = 0; i < COUNT_OF(kinds); i++) {
		sluice_file *file = NULL;
		int rc = sluice_open(f->ctx,
		                     fault_uri("size=5000&fault=location:%s&on=HEAD,GET", kinds[i]),
		                     NULL, &file);

		if (rc != -EPROTO && rc != -EPROTONOSUPPORT && rc != -ELOOP)
			fail_msg("%s: %d, \"%s\"", kinds[i], rc, sluice_last_message());
		assert_true(*sluice_last_message());
	}
}

HTTP_TEST(a_password_is_sent_to_its_own_server_only)
{
	const char *uri = fault_uri("size=5000&auth=basic"), *to, *source, *local;
	char localhost[200];

	reads_right(f, with_user(uri), 1000, 10);
	assert_int_equal(asked(uri, "status_401"), 1);
	assert_non_null(strstr(asked_for(uri), IN_BASIC));

	/* The same server: another path. */
	to = fault_uri("size=5000");
	source = fault_uri("size=5000&fault=redirect:302&on=HEAD,GET&to=%s", as_option(to));
	reads_right(f, with_user(source), 1000, 10);
	assert_non_null(strstr(asked_for(source), IN_BASIC));
	assert_non_null(strstr(asked_for(to), IN_BASIC));

	/* Another port, another scheme, another name. */
	for (int i = 0; i < 2; i++) {
		to = fault_uri_at(i ? "good" : "other", "size=5000");
		source = fault_uri("size=5000&fault=redirect:302&on=HEAD,GET&to=%s", as_option(to));
		reads_right(f, with_user(source), 1000, 10);
		assert_non_null(strstr(asked_for(source), IN_BASIC));
		assert_true(asked(to, "requests") > 0);
		assert_null(strstr(asked_for(to), "authorization=B"));
	}
	local = fault_uri("size=5000");
	snprintf(localhost, sizeof(localhost), "http://localhost%s", strchr(local + 7, ':'));
	source = fault_uri("size=5000&fault=redirect:302&on=HEAD,GET&to=%s", as_option(localhost));
	reads_right(f, with_user(source), 1000, 10);
	assert_true(asked(local, "requests") > 0);
	assert_null(strstr(asked_for(local), "authorization=B"));
}

/* Whoever writes a Location says where to go on, not as whom. */
HTTP_TEST(a_password_in_a_location_is_not_sent)
{
	const char *to = fault_uri_at("other", "size=5000");
	const char *source = fault_uri("size=5000&fault=redirect:302&on=HEAD,GET&to=%s",
	                               as_option(with_user(to)));

	reads_right(f, source, 1000, 10);
	assert_true(asked(to, "requests") > 0);
	assert_null(strstr(asked_for(to), "authorization=B"));
}

HTTP_TEST(a_password_is_in_no_message)
{
	static const char *const options[] = {
		"fault=status:403",   "fault=status:404&on=HEAD,GET",         "fault=status:503",
		"fault=garbage",      "fault=redirect:302&on=HEAD,GET",       "fault=range:shifted",
		"fault=gzip",         "fault=location:ftp&on=HEAD,GET",       "fault=stall:0",
		"fault=headers:line", "fault=location:malformed&on=HEAD,GET", "fault=reset:0",
	};
	const char *log = scratch(f, "log");
	char text[300], *held;
	size_t i, n;

	impatient(f);
	with(f, "SLUICE_HTTP_ATTEMPTS", "2");
	with(f, "SLUICE_LOG", "debug");
	errors_begin(log);
	for (i = 0; i < COUNT_OF(options); i++) {
		const char *uri = with_user(fault_uri("size=5000&%s", options[i]));
		sluice_file *file = NULL;
		int rc = sluice_open(f->ctx, uri, NULL, &file);

		snprintf(text, sizeof(text), "%s", sluice_last_message());
		if (rc == 0) {
			char byte;
			sluice_op *op = start_read(file, &byte, 1, 0);

			assert_true(sluice_wait(op, PATIENCE_MS) < 0);
			snprintf(text, sizeof(text), "%s", sluice_op_message(op));
			sluice_op_free(op);
			assert_ok(sluice_close(file));
		}
		assert_true(*text);
		if (strstr(text, SECRET) || strstr(text, "bWU6"))
			fail_msg("the password is in \"%s\"", text);
	}
	/* Malformed ones are not shown in full either. */
	snprintf(text, sizeof(text), "http://%s@127.0.0.1:99999/x", USER);
	open_fails(f, text, EINVAL, "");
	assert_null(strstr(sluice_last_message(), SECRET));
	assert_ok(sluice_context_close(f->ctx));
	f->ctx = NULL;
	errors_end();
	n = file_length(log);
	assert_true(n > 0);
	held = calloc(1, n + 1);
	file_read(log, held, n, 0);
	assert_null(strstr(held, SECRET));
	assert_null(strstr(held, "bWU6"));
	assert_non_null(strstr(held, "GET"));
	free(held);
}
