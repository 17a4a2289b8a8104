/* SPDX-License-Identifier: Apache-2.0 */
/* Objects of S3: a server checks each signature by itself, and behaves as the name of the bucket says. */
#include "http/s3_cases.h"

#include <unistd.h>

S3_TEST(objects_are_read_with_a_signature)
{
	reads(f, "files");
}

S3_TEST(a_key_is_sent_as_it_is)
{
	static const char *const keys[] = {"plain", "a b",   "a+b=c",        "100%",
	                                   "%41",   "q?x#y", "a//b",         "x/..",
	                                   "../up", "./dot", "/lead",        "tail/",
	                                   "nl\nx", "#/x",   "\303\274\377", "~!*'()@:,;$&[]"};
	char uri[64], bytes[64];

	for (size_t i = 0; i < COUNT_OF(keys); i++) {
		size_t n = strlen(keys[i]);
		sluice_file *file;

		snprintf(uri, sizeof(uri), "s3://echo/%s", keys[i]);
		assert_ok(try_open(f, uri, NULL, &file));
		assert_read(file, bytes, n, 0);
		assert_memory_equal(bytes, keys[i], n);
		assert_ok(sluice_close(file));
	}
}

S3_TEST(a_session_has_its_token_with_it)
{
	setenv("AWS_ACCESS_KEY_ID", "ASIATEST", 1);
	setenv("AWS_SECRET_ACCESS_KEY", "another/secret", 1);
	refused(f, "s3://echo/x", NULL, EACCES, "the token is missing");
	setenv("AWS_SESSION_TOKEN", "token", 1);
	reads(f, "files");
	/* Whatever the key is. */
	s3_environment();
	setenv("AWS_SESSION_TOKEN", "expired", 1);
	refused(f, "s3://echo/x", NULL, EACCES, "ExpiredToken");
}

S3_TEST(a_public_object_is_read_without_a_signature)
{
	struct sluice_s3_options s3 = SLUICE_S3_OPTIONS_INIT;

	s3.anonymous = 1;
	reads_with(f, "public", &s3);
	refused(f, "s3://echo/x", &s3, EACCES, "AccessDenied");
	refused(f, "s3://public-echo/x", NULL, EIO, "InvalidArgument");
}

S3_TEST(whoever_asks_may_pay)
{
	struct sluice_s3_options s3 = SLUICE_S3_OPTIONS_INIT;

	refused(f, "s3://payer-echo/x", NULL, EACCES, "AccessDenied");
	s3.requester_pays = 1;
	reads_with(f, "payer", &s3);
}

S3_TEST(headers_of_the_user_are_signed_if_s3_wants_that)
{
	struct sluice_open_options options = SLUICE_OPEN_OPTIONS_INIT;
	static const char *const headers[] = {"X-Amz-Request-Payer:  requester", "X-Other: x",
	                                      NULL};
	sluice_file *file;

	options.headers = headers;
	assert_ok(sluice_open(f->ctx, "s3://payer-echo/x", &options, &file));
	assert_ok(sluice_close(file));
}

S3_TEST(a_bucket_in_another_region_is_found)
{
	reads(f, "north");
	reads(f, "south");
	setenv("AWS_REGION", "eu-north-1", 1);
	reads(f, "north");
	reads(f, "files");
}

S3_TEST(an_object_is_written_into_another_region)
{
	const char *path = scratch(f, "object");
	static const char *const buckets[] = {"north-w", "south-w"};

	for (size_t i = 0; i < COUNT_OF(buckets); i++) {
		struct sluice_open_options o = SLUICE_OPEN_OPTIONS_INIT;
		sluice_file *file;

		o.flags = SLUICE_OPEN_REPLACE;
		unlink(path);
		assert_ok(sluice_open(f->ctx, s3_uri(buckets[i], path), &o, &file));
		assert_ok(sluice_close(file));
		assert_int_equal(file_length(path), 0);
	}
}

S3_TEST(a_clock_that_differs_is_corrected)
{
	reads(f, "skewed");
}

S3_TEST(a_server_that_asks_to_slow_down_is_asked_again)
{
	reads(f, "busy");
}

enum { PARTS = 64 };

/* Reads an object in parts, all of which are submitted at a time, so often. */
static void reads_in_parts(struct fixture *f, const char *bucket, int times)
{
	enum { BYTES = 20000 };
	struct buffer b = buffer_new(PARTS * BYTES, 0);
	sluice_op *ops[PARTS];
	sluice_file *file;

	file_make(scratch(f, "parts"), PARTS * BYTES, 5);
	assert_ok(try_open(f, s3_uri(bucket, scratch(f, "parts")), NULL, &file));
	while (times--) {
		memset(b.data, 0, b.length);
		for (size_t p = 0; p < PARTS; p++)
			ops[p] = start_read(file, b.data + p * BYTES, BYTES, p * BYTES);
		for (size_t p = 0; p < PARTS; p++)
			assert_moves(ops[p], BYTES);
		assert_pattern(b.data, b.length, 0, 5);
	}
	assert_ok(sluice_close(file));
	buffer_free(&b);
}

/* Otherwise each part would be refused twice or more. */
S3_TEST(fewer_requests_run_at_a_server_that_asks_to_slow_down)
{
	with(f, "SLUICE_HTTP_BACKOFF_MAX_MS", "200");
	with(f, "SLUICE_HTTP_BACKOFF_MS", "50");
	reads_in_parts(f, "crowded", 4);
	printf("%ld refusals of %d parts\n", s3_count(f, "slowed/parts"), 4 * PARTS);
	assert_in_range(s3_count(f, "slowed/parts"), 1, 4 * PARTS);
}

S3_TEST(bodies_that_end_early_go_on_with_a_signature)
{
	reads_in_parts(f, "halves", 1);
}

S3_TEST(parts_that_stall_are_asked_for_again_with_a_signature)
{
	double begun;

	impatient(f);
	reads_in_parts(f, "stalls", 1);
	with(f, "SLUICE_HTTP_STALL_MS", "20000");
	with(f, "SLUICE_HTTP_HEDGE", "1");
	begun = seconds_now();
	reads_in_parts(f, "stalls-hedged", 1);
	assert_soon(begun);
}

S3_TEST(a_redirect_to_another_server_has_no_signature)
{
	reads(f, "away");
	setenv("AWS_ACCESS_KEY_ID", "ASIATEST", 1);
	setenv("AWS_SECRET_ACCESS_KEY", "another/secret", 1);
	setenv("AWS_SESSION_TOKEN", "token", 1);
	reads(f, "away");
}

S3_TEST(errors_of_s3_are_told)
{
	refused(f, s3_uri("files", scratch(f, "none")), NULL, ENOENT,
	        "NoSuchKey: The specified key does not exist. (request id R1)");
	refused(f, "s3://none/x", NULL, ENOENT, "HTTP 404 for 's3://none/x': NoSuchBucket");
	refused(f, "s3://echo", NULL, EISDIR, "is a bucket");
	refused(f, "s3://echo/", NULL, EISDIR, "is a bucket");
	refused(f, "s3://b@d/x", NULL, EINVAL, "the name of a bucket");
	setenv("AWS_SECRET_ACCESS_KEY", "other secret/", 1);
	refused(f, "s3://echo/x", NULL, EINVAL, "a blank");
	setenv("AWS_SECRET_ACCESS_KEY", "other-secret/", 1);
	refused(f, "s3://echo/x", NULL, EACCES, "SignatureDoesNotMatch");
	setenv("AWS_ACCESS_KEY_ID", "AKIDOTHER", 1);
	refused(f, "s3://echo/x", NULL, EACCES,
	        "InvalidAccessKeyId: The key <is> unknown & so on (request id R1)");
}

S3_TEST(an_object_that_changes_is_noticed)
{
	sluice_file *file;
	struct buffer b = buffer_new(5000, 0);

	file_make(scratch(f, "object"), 5000, 1);
	assert_ok(try_open(f, s3_uri("files", scratch(f, "object")), NULL, &file));
	assert_int_equal(unlink(scratch(f, "object")), 0);
	file_make(scratch(f, "object"), 5000, 2);
	assert_fails(start_read(file, b.data, 5000, 0), ESTALE);
	sluice_close(file);
	buffer_free(&b);
}

static int put(struct fixture *f, const char *uri, unsigned flags, size_t expected, size_t n)
{
	struct sluice_open_options options = SLUICE_OPEN_OPTIONS_INIT;
	struct buffer b = buffer_new(n + 1, 0);
	sluice_file *file;
	int rc;

	pattern_fill(b.data, n, 0, 9);
	options.flags = flags;
	options.expected_size = expected;
	rc = sluice_open(f->ctx, uri, &options, &file);
	if (!rc) {
		/* In two parts, the second first. */
		sluice_write(file, b.data + n / 2, n - n / 2, n / 2, NULL);
		sluice_write(file, b.data, n / 2, 0, NULL);
		rc = sluice_close(file);
	}
	buffer_free(&b);
	return rc;
}

S3_TEST(an_object_is_put_as_a_whole)
{
	static const size_t lengths[] = {0, 1, 70000, 2 * MIB + 5};
	const char *path = scratch(f, "put");
	struct buffer b = buffer_new(2 * MIB + 5, 0);

	for (size_t i = 0; i < COUNT_OF(lengths); i++) {
		size_t n = lengths[i];

		pattern_fill(b.data, n, 0, 9);
		unlink(path);
		assert_ok(put(f, s3_uri("files", path), SLUICE_OPEN_REPLACE, 0, n));
		assert_file_is(path, b.data, n);
		if (!n)
			continue;
		unlink(path);
		assert_ok(put(f, s3_uri("north", path), SLUICE_OPEN_REPLACE, n, n));
		assert_file_is(path, b.data, n);
	}
	assert_int_equal(
		put(f, s3_uri("files", path), SLUICE_OPEN_REPLACE | SLUICE_OPEN_EXCLUSIVE, 0, 10),
		-EEXIST);
	setenv("AWS_ACCESS_KEY_ID", "AKIDOTHER", 1);
	assert_refused(put(f, s3_uri("files", path), SLUICE_OPEN_REPLACE, 0, 10), EACCES,
	               "InvalidAccessKeyId");
	assert_file_is(path, b.data, b.length);
	buffer_free(&b);
}

/* -------------------------------------------------------------------------------------- list */

/* The list is these names, separated by '|', of which prefixes have nothing else. */
static void lists(struct fixture *f, const char *uri, int recursive, const char *expected)
{
	struct sluice_entry e = {.size = sizeof(e)};
	sluice_list *list;
	char all[300] = "";
	int rc;

	assert_ok(sluice_list_open(f->ctx, uri, NULL, recursive, &list));
	while ((rc = sluice_list_next(list, &e)) > 0) {
		size_t n = strlen(all);

		snprintf(all + n, sizeof(all) - n, "%s%s", n ? "|" : "", e.name);
		assert_int_equal(e.length, e.is_prefix ? 0 : strlen(e.name));
		assert_int_equal(e.modified_ns, e.is_prefix ? 0 : INT64_C(1440938160) * 1000000000);
		assert_string_equal(e.etag, e.is_prefix ? "" : "\"e-1\"");
	}
	assert_ok(rc);
	assert_string_equal(all, expected);
	sluice_list_free(list);
}

S3_TEST(objects_are_listed_page_by_page)
{
	lists(f, "s3://echo", 1, "a b|a/1|a/2|b&<>|c+d%|nl\nx|z/deep/er");
	lists(f, "s3://echo/", 0, "a b|a/|b&<>|c+d%|nl\nx|z/");
	lists(f, "s3://echo/a", 0, "a b|a/");
	lists(f, "s3://echo/a/", 0, "a/1|a/2");
	lists(f, "s3://echo/z/", 0, "z/deep/");
	lists(f, "s3://echo/c+d%", 1, "c+d%");
	lists(f, "s3://echo/nothing", 1, "");
	lists(f, "s3://north-a/a/", 1, "a/1|a/2");
}

S3_TEST(a_list_that_cannot_be_had_is_an_error)
{
	struct sluice_s3_options s3 = SLUICE_S3_OPTIONS_INIT;
	struct sluice_open_options options = SLUICE_OPEN_OPTIONS_INIT;
	sluice_list *list = NULL;

	assert_refused(sluice_list_open(f->ctx, "s3://none/x", NULL, 0, &list), ENOENT,
	               "NoSuchBucket");
	assert_refused(sluice_list_open(f->ctx, "http://h/", NULL, 0, &list), ENOTSUP, "s3://");
	options.s3 = &s3;
	s3.anonymous = 1;
	assert_refused(sluice_list_open(f->ctx, "s3://echo/x", &options, 0, &list), EACCES,
	               "AccessDenied");
	assert_null(list);
	sluice_list_free(list);
}

/* ---------------------------------------------------------------------------- TLS, checksums */

/* The environment names the server with that certificate. */
static void over_tls(const char *port)
{
	char endpoint[64];

	snprintf(endpoint, sizeof(endpoint), "https://127.0.0.1:%d", server_port(port));
	setenv("AWS_ENDPOINT_URL", endpoint, 1);
}

S3_TEST(objects_are_moved_over_tls)
{
	const char *path = scratch(f, "put");
	struct buffer b = buffer_new(70000, 0);

	over_tls("s3_good");
	reads(f, "files");
	reads(f, "north");
	reads(f, "skewed");
	lists(f, "s3://echo/a/", 1, "a/1|a/2");
	pattern_fill(b.data, b.length, 0, 9);
	assert_ok(put(f, s3_uri("files", path), SLUICE_OPEN_REPLACE, b.length, b.length));
	assert_file_is(path, b.data, b.length);
	buffer_free(&b);
}

S3_TEST(a_server_without_a_good_certificate_is_refused)
{
	sluice_list *list = NULL;

	over_tls("s3_wrong_host");
	refused(f, "s3://echo/x", NULL, EACCES, "certificate");
	assert_refused(put(f, s3_uri("files", scratch(f, "put")), SLUICE_OPEN_REPLACE, 0, 10),
	               EACCES, "certificate");
	assert_refused(sluice_list_open(f->ctx, "s3://echo/", NULL, 1, &list), EACCES,
	               "certificate");
	assert_int_not_equal(access(scratch(f, "put"), F_OK), 0);
	/* Nor is one of an authority that nobody knows. */
	over_tls("s3_good");
	unsetenv("SLUICE_CA_BUNDLE");
	fixture_config(f, &row->config);
	refused(f, "s3://echo/x", NULL, EACCES, "certificate");
}

S3_TEST(certificates_are_those_of_awss_settings_where_there_are_no_others)
{
	char config[600];

	over_tls("s3_good");
	unsetenv("SLUICE_CA_BUNDLE");
	fixture_config(f, &row->config);
	setenv("AWS_CA_BUNDLE", server_ca(), 1);
	reads(f, "files");
	setenv("AWS_CA_BUNDLE", "/nonexistent/ca.pem", 1);
	refused(f, "s3://echo/x", NULL, EINVAL, "");
	with(f, "SLUICE_CA_BUNDLE", server_ca());
	reads(f, "files");
	unsetenv("SLUICE_CA_BUNDLE");
	fixture_config(f, &row->config);
	unsetenv("AWS_CA_BUNDLE");
	snprintf(config, sizeof(config), "[default]\nca_bundle = %s\n", server_ca());
	file_say(scratch(f, "config"), config);
	setenv("AWS_CONFIG_FILE", scratch(f, "config"), 1);
	reads(f, "files");
}

static void checksum_is(struct fixture *f, const char *uri, uint64_t first, const char *expected)
{
	struct sluice_file_info info = {.size = sizeof(info)};
	struct sluice_open_options o = SLUICE_OPEN_OPTIONS_INIT;
	sluice_file *file;

	o.first_bytes = o.expected_size = first;
	assert_ok(sluice_open(f->ctx, uri, &o, &file));
	assert_ok(sluice_stat(file, &info));
	if (expected)
		assert_string_equal(info.crc32c, expected);
	else
		assert_null(info.crc32c);
	assert_ok(sluice_close(file));
}

/* The check value of CRC-32C, e3069283 of "123456789". */
S3_TEST(the_checksum_of_an_object_is_told)
{
	struct sluice_open_options o = SLUICE_OPEN_OPTIONS_INIT;
	struct sluice_file_info info = {.size = sizeof(info)};
	sluice_file *file;

	checksum_is(f, "s3://sums-echo/123456789", 0, "4waSgw==");
	checksum_is(f, "s3://sums-echo/123456789", 9, "4waSgw==");
	checksum_is(f, "s3://sums-echo-parts/123456789", 0, NULL);
	checksum_is(f, "s3://echo/123456789", 0, NULL);
	checksum_is(f, "s3://sums-jointed-echo/123456789", 0, "4waSgw==");
	checksum_is(f, "s3://sums-untyped-echo/123456789", 0, "4waSgw==");
	/* As moto has them: of the sums of parts, without a number behind it. */
	checksum_is(f, "s3://sums-untyped-jointed-echo/123456789", 0, NULL);
	/* A range of it may have one of its own. */
	o.first_bytes = 100;
	assert_ok(sluice_open(f->ctx, "s3://sums-echo/123456789", &o, &file));
	assert_ok(sluice_stat(file, &info));
	assert_null(info.crc32c);
	assert_ok(sluice_close(file));
}
