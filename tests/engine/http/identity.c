/* SPDX-License-Identifier: Apache-2.0 */
/* Headers, tokens, passwords and certificates: to the server that they are for, and nowhere else. */
#include "http/cases.h"

#include <unistd.h>

#define TOKEN "tok3n-of-the-test"
#define OTHER "n3w-tok3n-of-the-test"

static sluice_file *open_with(struct fixture *f, const char *uri, unsigned flags,
                              const char *const *headers)
{
	struct sluice_open_options options = SLUICE_OPEN_OPTIONS_INIT;
	sluice_file *file = NULL;

	options.flags = flags;
	options.headers = headers;
	assert_ok(sluice_open(f->ctx, uri, &options, &file));
	return file;
}

static void reads_with(struct fixture *f, const char *uri, const char *const *headers)
{
	sluice_file *file = open_with(f, uri, SLUICE_OPEN_READ, headers);
	char bytes[1000];

	assert_read(file, bytes, 1000, 10);
	assert_served(bytes, 1000, 10);
	assert_ok(sluice_close(file));
}

static void writes_with(struct fixture *f, const char *uri, unsigned flags,
                        const char *const *headers, const void *data, size_t n)
{
	struct sluice_open_options options = SLUICE_OPEN_OPTIONS_INIT;
	sluice_file *file = NULL;

	options.flags = flags;
	options.headers = headers;
	options.expected_size = n;
	assert_ok(sluice_open(f->ctx, uri, &options, &file));
	assert_write(file, data, n, 0);
	assert_ok(sluice_close(file));
}

static void file_say(const char *path, const char *text)
{
	file_write(path, text, strlen(text), 0);
	file_truncate(path, strlen(text));
}

/* All requests for the URI had that in their line, or none had. */
static void all_said(const char *uri, const char *what, bool said)
{
	const char *at = asked_for(uri);
	long lines = 0, n = 0;

	for (; (at = strstr(at, " connection=")); at++)
		lines++;
	for (at = asked_for(uri); (at = strstr(at, what)); at++)
		n++;
	assert_true(lines > 0);
	assert_int_equal(n, said ? lines : 0);
}

/* The first, which had no Authorization, found out how the server wants it. */
static void all_but_the_first_said(const char *uri, const char *what)
{
	const char *first = strstr(asked_for(uri), " connection="), *at = first;

	assert_non_null(strstr(first, "authorization=- "));
	while ((at = strstr(at + 1, " connection=")))
		assert_ptr_equal(strstr(strstr(at, "authorization="), what),
		                 strstr(at, "authorization="));
}

HTTP_TEST(headers_go_to_their_own_server_only)
{
	static const char *const headers[] = {"X-Test: one: two", "Authorization:Basic abc", NULL};
	const char *to = fault_uri_at("other", "size=5000");
	const char *here = fault_uri("size=5000"), *uri;

	uri = fault_uri("size=5000&fault=redirect:302&on=HEAD,GET&to=%s", as_option(to));
	reads_with(f, uri, headers);
	all_said(uri, "x-test=one: two", true);
	all_said(uri, "authorization=Basic abc", true);
	all_said(to, "x-test=-", true);
	all_said(to, "authorization=-", true);
	/* Another path of the same server. */
	reads_with(f, fault_uri("fault=redirect:302&on=HEAD,GET&to=%s", as_option(here)), headers);
	all_said(here, "x-test=one: two", true);
	/* Other requests than GET; the default that a header replaces. */
	uri = fault_uri("size=5000");
	writes_with(f, uri, SLUICE_OPEN_REPLACE,
	            (const char *const[]){"X-Test:a", "Content-Type: text/plain", NULL}, "hello",
	            5);
	all_said(uri, "x-test=a", true);
	all_said(uri, "content-type=text/plain", true);
	/* Redirected uploads. */
	to = fault_uri_at("other", "size=5000");
	uri = fault_uri("fault=redirect:307&on=PUT&to=%s", as_option(to));
	writes_with(f, uri, SLUICE_OPEN_REPLACE, headers, "hello", 5);
	all_said(uri, "x-test=one: two", true);
	all_said(to, "x-test=-", true);
	all_said(to, "authorization=-", true);
}

/* The second version of AWS's signatures covers a Content-Type, and that of a presigned URL has none. */
HTTP_TEST(a_presigned_upload_has_the_headers_that_were_signed)
{
	static const struct {
		const char *options, *type;
		const char *const headers[2];
	} rows[] = {
		{"AWSAccessKeyId=A&Signature=s%2B&Expires=9", "content-type=- ", {NULL}},
		{"Expires=9&Signature=s&AWSAccessKeyId=A",
	         "content-type=a/b ",
	         {"Content-Type: a/b"}},
		{"X-Amz-Signature=s&X-Amz-Expires=9",
	         "content-type=application/octet-stream ",
	         {NULL}},
	};

	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		const char *uri = fault_uri("size=5000&%s", rows[i].options);

		writes_with(f, uri, SLUICE_OPEN_REPLACE, rows[i].headers, "hello", 5);
		all_said(uri, rows[i].type, true);
	}
}

HTTP_TEST(headers_that_are_not_the_users_are_refused)
{
	static const struct {
		const char *line, *says;
	} bad[] = {
		{"Range: bytes=0-1", "'Range'"},
		{"range:x", "'Range'"},
		{"Host: elsewhere", "'Host'"},
		{"If-Match: \"x\"", "'If-Match'"},
		{"Accept-Encoding: gzip", "'Accept-Encoding'"},
		{"Content-Length: 5", "'Content-Length'"},
		{"Transfer-Encoding: chunked", "'Transfer-Encoding'"},
		{"X-Test: a\r\nX-Other: b", "'X-Test'"},
		{"X-Test: a\nb", "'X-Test'"},
		{"X-Test: \x7f", "'X-Test'"},
		{": empty", "header 2 is no"},
		{"", "header 2 is no"},
		{"s3cret without a colon", "header 2 is no"},
		{"with blank: x", "header 2 is no"},
		{"X-Test : x", "header 2 is no"},
	};
	const char *uri = fault_uri("size=5000");

	for (size_t i = 0; i < COUNT_OF(bad); i++) {
		const char *const headers[] = {"X-Good: 1", bad[i].line, NULL};
		struct sluice_open_options options = SLUICE_OPEN_OPTIONS_INIT;
		sluice_file *file = NULL;

		options.headers = headers;
		assert_refused(sluice_open(f->ctx, uri, &options, &file), EINVAL, bad[i].says);
		assert_null(strstr(sluice_last_message(), "s3cret"));
		assert_non_null(strstr(sluice_last_message(), "header 2"));
	}
	assert_int_equal(asked(uri, "requests"), 0);
	/* A name that only begins like another is no such name. */
	reads_with(f, uri, (const char *const[]){"Range-Unit: bytes", "X-Test:", NULL});
	all_said(uri, "x-test= ", false);
	assert_null(strstr(asked_for(uri), "x-test=-"));
}

HTTP_TEST(a_file_has_headers_for_all)
{
	const char *path = scratch(f, "headers"), *uri = fault_uri("size=5000");
	sluice_file *file;

	file_say(path, "# a remark\n\nX-Test: from the file\r\n  \nAuthorization: Bearer x");
	with(f, "SLUICE_HTTP_HEADERS_FILE", path);
	reads_right(f, uri, 1000, 10);
	all_said(uri, "x-test=from the file", true);
	all_said(uri, "authorization=Bearer x", true);
	file_say(path, "X-Test: a\nHost: x\n");
	assert_refused(sluice_open(f->ctx, uri, NULL, &file), EINVAL, "line 2 of");
	assert_non_null(strstr(sluice_last_message(), "'Host'"));
	with(f, "SLUICE_HTTP_HEADERS_FILE", scratch(f, "nothing"));
	assert_refused(sluice_open(f->ctx, uri, NULL, &file), ENOENT, "SLUICE_HTTP_HEADERS_FILE");
}

HTTP_TEST(a_token_goes_to_its_own_server_only)
{
	const char *to = fault_uri_at("other", "size=5000");
	const char *uri =
		fault_uri("size=5000&bearer=%s::9999&fault=redirect:302&on=HEAD,GET&to=%s", TOKEN,
	                  as_option(to));
	char with_user[4096];

	open_fails(f, uri, EACCES, "401");
	with(f, "SLUICE_HTTP_BEARER", TOKEN);
	reads_right(f, uri, 1000, 10);
	all_said(to, "authorization=-", true);
	/* More is known of a file by its URI, and by its own headers. */
	uri = fault_uri("size=5000&auth=basic");
	snprintf(with_user, sizeof(with_user), "http://me:s3cret!@%s", uri + 7);
	reads_right(f, with_user, 1000, 10);
	assert_non_null(strstr(asked_for(uri), "authorization=Basic "));
	assert_null(strstr(asked_for(uri), "authorization=Bearer "));
	uri = fault_uri("size=5000");
	reads_with(f, uri, (const char *const[]){"Authorization: Other x", NULL});
	all_said(uri, "authorization=Other x", true);
	with(f, "SLUICE_HTTP_BEARER", "two words");
	open_fails(f, uri, EINVAL, "SLUICE_HTTP_BEARER");
	assert_null(strstr(sluice_last_message(), "words"));
}

HTTP_TEST(a_token_that_is_replaced_is_read_again)
{
	const char *path = scratch(f, "token"), *next = scratch(f, "next");
	const char *uri = fault_uri("size=5000&bearer=%s:%s:4", TOKEN, OTHER);
	sluice_context *ctx = NULL;
	sluice_file *file;
	char bytes[1000];

	file_say(path, "");
	with(f, "SLUICE_HTTP_BEARER_FILE", path);
	open_fails(f, uri, EINVAL, "holds no token");
	file_say(path, " " TOKEN "\n");
	file = open_read(f->ctx, uri);
	assert_read(file, bytes, 1000, 0);
	assert_read(file, bytes, 1000, 1000);
	file_say(next, OTHER "\n");
	assert_int_equal(rename(next, path), 0);
	assert_read(file, bytes, 1000, 2000);
	assert_served(bytes, 1000, 2000);
	assert_int_equal(asked(uri, "status_401"), 1);
	/* A file that is away for a moment takes nothing away. */
	assert_int_equal(unlink(path), 0);
	sleep_ms(1100);
	assert_read(file, bytes, 1000, 3000);
	assert_ok(sluice_close(file));
	open_fails(f, uri, ENOENT, "SLUICE_HTTP_BEARER_FILE");
	/* A token that stays the same is no other. */
	file_say(path, TOKEN);
	open_fails(f, uri, EACCES, "401");
	setenv("SLUICE_HTTP_BEARER", TOKEN, 1);
	assert_refused(sluice_context_new(&row->config, &ctx), EINVAL, "SLUICE_HTTP_BEARER_FILE");
	unsetenv("SLUICE_HTTP_BEARER");
}

HTTP_TEST(passwords_are_taken_from_netrc_when_asked_for)
{
	const char *path = scratch(f, "netrc"), *to = fault_uri_at("other", "size=5000"), *uri;
	char home[4096];

	file_say(path, "machine 127.0.0.1 login me password s3cret!\n");
	snprintf(home, sizeof(home), "%s", getenv("HOME") ? getenv("HOME") : "/");
	setenv("HOME", f->dir, 1);
	uri = fault_uri("size=5000");
	reads_right(f, uri, 1000, 10);
	all_said(uri, "authorization=-", true);
	with(f, "SLUICE_HTTP_NETRC", path);
	uri = fault_uri("size=5000&auth=basic&fault=redirect:302&on=HEAD,GET&to=%s", as_option(to));
	reads_right(f, uri, 1000, 10);
	all_but_the_first_said(uri, "authorization=Basic bWU6czNjcmV0IQ==");
	all_said(to, "authorization=-", true);
	assert_int_equal(rename(path, scratch(f, ".netrc")), 0);
	open_fails(f, uri, ENOENT, "SLUICE_HTTP_NETRC");
	with(f, "SLUICE_HTTP_NETRC", "1");
	uri = fault_uri("size=5000&auth=basic");
	reads_right(f, uri, 1000, 10);
	all_but_the_first_said(uri, "authorization=Basic bWU6czNjcmV0IQ==");
	with(f, "SLUICE_HTTP_NETRC", "0");
	uri = fault_uri("size=5000");
	reads_right(f, uri, 1000, 10);
	all_said(uri, "authorization=-", true);
	setenv("HOME", home, 1);
}

/* A URI with the user and password that the server knows; static. */
static const char *of_me(const char *uri)
{
	static char with_user[4096];
	const char *host = strstr(uri, "://") + 3;

	snprintf(with_user, sizeof(with_user), "%.*sme:s3cret!@%s", (int)(host - uri), uri, host);
	return with_user;
}

/* Nowhere is the password where Digest is offered, not even before the server has said so. */
HTTP_TEST(digest_is_spoken_where_it_is_offered)
{
	static const char *const offered[] = {"digest", "sha256", "sha256,digest", "basic,digest"};

	for (size_t i = 0; i < COUNT_OF(offered); i++) {
		const char *uri = fault_uri("size=%zu&auth=%s", LONG, offered[i]);
		sluice_file *file = open_with(f, of_me(uri), SLUICE_OPEN_READ, NULL);
		char bytes[1000];

		for (uint64_t at = 0; at < 8; at++) {
			assert_read(file, bytes, sizeof(bytes), 1000 * at);
			assert_served(bytes, sizeof(bytes), 1000 * at);
		}
		assert_null(strstr(asked_for(uri), "authorization=Basic"));
		/* Of each thread that has a handle a request or two ask for a nonce. */
		assert_in_range(asked(uri, "status_401"), 1, 3);
		assert_ok(sluice_close(file));
	}
	/* A body without ranges, a nonce that gets old, and many requests at a time. */
	reads_right(f, of_me(fault_uri("size=%zu&auth=digest&ranges=no&length=chunked", LONG)),
	            LONG, 0);
	reads_right(f, of_me(fault_uri("size=%zu&auth=digest&stale=2", LONG)), LONG, 0);
	reads_right(f, of_me(fault_uri("size=%zu&auth=digest&head=405", LONG)), LONG, 0);
	reads_right(f, of_me(fault_uri("size=%zu&auth=digest&fault=reset:1000&times=2", LONG)),
	            LONG, 0);
}

HTTP_TEST(digest_with_another_password_is_refused)
{
	const char *uri = fault_uri("size=5000&auth=digest");
	char with_user[4096];

	snprintf(with_user, sizeof(with_user), "http://me:wr0ng-pw@%s", uri + 7);
	open_fails(f, with_user, EACCES, "401");
	assert_null(strstr(sluice_last_message(), "wr0ng"));
	assert_null(strstr(asked_for(uri), "authorization=Basic"));
	assert_in_range(asked(uri, "requests"), 2, 5);
	open_fails(f, uri, EACCES, "401");
	/* A server that always wants the other is not asked for ever. */
	uri = fault_uri("size=5000&auth=flip");
	open_fails(f, of_me(uri), EACCES, "401");
	assert_in_range(asked(uri, "requests"), 2, 8);
	open_fails(f, of_me(fault_uri_at("good", "size=5000&auth=flip")), EACCES, "401");
}

HTTP_TEST(an_upload_speaks_digest)
{
	for (int i = 0; i < 2; i++) {
		const char *uri = fault_uri("auth=digest&stored=1");
		unsigned flags = SLUICE_OPEN_WRITE | SLUICE_OPEN_CREATE | SLUICE_OPEN_EXCLUSIVE;
		struct buffer b = buffer_new(LONG, 1);
		sluice_file *file;

		pattern_fill(b.data, LONG, 0, 3);
		writes_with(f, of_me(uri), i ? SLUICE_OPEN_REPLACE : flags, NULL, b.data, LONG);
		assert_null(strstr(asked_for(uri), "authorization=Basic"));
		memset(b.data, 0, LONG);
		file = open_with(f, of_me(uri), SLUICE_OPEN_READ, NULL);
		assert_read(file, b.data, LONG, 0);
		assert_pattern(b.data, LONG, 0, 3);
		assert_ok(sluice_close(file));
		buffer_free(&b);
	}
}

/* Over TLS the password goes with the first request, as it does where a stranger is told anything but 401. */
HTTP_TEST(a_password_is_sent_where_nothing_asks_for_digest)
{
	const char *uri;

	for (int i = 0; i < 2; i++) {
		uri = fault_uri("size=5000&auth=basic&else=%d", i ? 302 : 404);
		reads_right(f, of_me(uri), 1000, 10);
		all_but_the_first_said(uri, "authorization=Basic ");
	}
	uri = fault_uri_at("good", "size=5000&auth=basic&else=404");
	reads_right(f, of_me(uri), 1000, 10);
	all_said(uri, "authorization=Basic ", true);
	/* It asks for Digest then. */
	reads_right(f, of_me(fault_uri_at("good", "size=5000&auth=digest")), 1000, 10);
}

HTTP_TEST(a_certificate_is_shown_to_its_own_server)
{
	char certificate[600], key[600];
	const char *uri = fault_uri_at("client", "size=5000");
	size_t folder = strlen(server_ca()) - strlen("ca.pem");

	snprintf(certificate, sizeof(certificate), "%.*sgood.pem", (int)folder, server_ca());
	snprintf(key, sizeof(key), "%.*skey.pem", (int)folder, server_ca());
	with(f, "SLUICE_HTTP_CLIENT_CERT", certificate);
	/* Without its key. */
	open_fails(f, uri, EINVAL, "");
	with(f, "SLUICE_HTTP_CLIENT_KEY", key);
	reads_right(f, uri, 1000, 10);
	/* Who is redirected there has none for it. */
	open_fails(f, fault_uri("fault=redirect:302&on=HEAD,GET&to=%s", as_option(uri)), EACCES,
	           "certificate required");
	with(f, "SLUICE_HTTP_CLIENT_KEY", "/nonexistent/key.pem");
	open_fails(f, uri, ENOENT, "SLUICE_HTTP_CLIENT_KEY");
}

HTTP_TEST(secrets_are_in_no_message_and_no_log)
{
	static const char *const headers[] = {"X-Key: s3cret-header", NULL};
	struct sluice_setting setting = {.size = sizeof(setting)};
	const char *log = scratch(f, "log");
	sluice_file *file = NULL;
	char *held;
	size_t n;

	with(f, "SLUICE_LOG", "debug");
	with(f, "SLUICE_HTTP_BEARER", TOKEN);
	errors_begin(log);
	/* A server that repeats them. */
	open_fails(f, fault_uri("size=5000&bearer=x::9999"), EACCES, "401");
	assert_null(strstr(sluice_last_message(), TOKEN));
	reads_with(f, fault_uri("size=5000"), headers);
	struct sluice_open_options options = SLUICE_OPEN_OPTIONS_INIT;
	options.headers = headers;
	assert_refused(sluice_open(f->ctx,
	                           fault_uri("fault=status:400&on=HEAD,GET&text=bad+s3cret-header"),
	                           &options, &file),
	               EIO, "400");
	assert_null(strstr(sluice_last_message(), "s3cret"));
	for (size_t i = 0; sluice_context_setting(f->ctx, i, &setting) == 0; i++) {
		assert_null(strstr(setting.value, TOKEN));
		if (strcmp(setting.variable, "SLUICE_HTTP_BEARER") == 0)
			assert_string_equal(setting.value, "set");
	}
	errors_end();
	n = file_length(log);
	assert_true(n > 0);
	held = calloc(1, n + 1);
	file_read(log, held, n, 0);
	assert_null(strstr(held, TOKEN));
	assert_null(strstr(held, "s3cret"));
	assert_non_null(strstr(held, "GET"));
	free(held);
}
