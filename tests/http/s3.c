/* SPDX-License-Identifier: Apache-2.0 */
/* Objects of S3: a server checks each signature by itself, and behaves as the name of the bucket says. */
#include "http/cases.h"

#include <sys/stat.h>
#include <unistd.h>

static const char *const variables[] = {
	"AWS_ENDPOINT_URL",      "AWS_ENDPOINT_URL_S3",         "AWS_ACCESS_KEY_ID",
	"AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN",           "AWS_PROFILE",
	"AWS_CONFIG_FILE",       "AWS_SHARED_CREDENTIALS_FILE", "AWS_REGION",
};

static int s3_setup(void **state)
{
	int rc = http_setup(state);

	s3_environment();
	return rc;
}

static int s3_teardown(void **state)
{
	for (size_t i = 0; i < COUNT_OF(variables); i++)
		unsetenv(variables[i]);
	return http_teardown(state);
}
#define S3_TEST(name) FIXTURE_TEST_WITH(name, s3_setup, s3_teardown)

static int try_open(struct fixture *f, const char *uri, const struct sluice_s3_options *s3,
                    sluice_file **out)
{
	struct sluice_open_options options = SLUICE_OPEN_OPTIONS_INIT;

	*out = NULL;
	options.s3 = s3;
	return sluice_open(f->ctx, uri, &options, out);
}

static void refused(struct fixture *f, const char *uri, const struct sluice_s3_options *s3,
                    int error, const char *says)
{
	sluice_file *file;

	assert_refused(try_open(f, uri, s3, &file), error, says);
	assert_null(strstr(sluice_last_message(), "secret/"));
}

/* Reads the object of that bucket that is a file, whole and in parts. */
static void reads_with(struct fixture *f, const char *bucket, const struct sluice_s3_options *s3)
{
	size_t n = 3 * MIB + 11;
	struct buffer b = buffer_new(n, 0);
	sluice_file *file;
	char some[100];

	file_make(scratch(f, "object"), n, 5);
	assert_ok(try_open(f, s3_uri(bucket, scratch(f, "object")), s3, &file));
	assert_moves(start_read(file, b.data, n, 0), n);
	assert_pattern(b.data, n, 0, 5);
	assert_read(file, some, sizeof(some), 2 * MIB);
	assert_pattern(some, sizeof(some), 2 * MIB, 5);
	assert_ok(sluice_close(file));
	buffer_free(&b);
}

static void reads(struct fixture *f, const char *bucket)
{
	reads_with(f, bucket, NULL);
}

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

S3_TEST(a_clock_that_differs_is_corrected)
{
	reads(f, "skewed");
}

S3_TEST(a_server_that_asks_to_slow_down_is_asked_again)
{
	reads(f, "busy");
}

S3_TEST(a_redirect_to_another_server_has_no_signature)
{
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

S3_TEST(an_object_of_unknown_length_has_to_fit_into_memory)
{
	with(f, "SLUICE_BOUNCE_BYTES", "1M");
	assert_int_equal(
		put(f, s3_uri("files", scratch(f, "put")), SLUICE_OPEN_REPLACE, 0, 3 * MIB),
		-EFBIG);
	assert_non_null(strstr(sluice_last_message(), "expected_size"));
	assert_int_not_equal(access(scratch(f, "put"), F_OK), 0);
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
	sluice_list_close(list);
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
	assert_refused(sluice_list_open(f->ctx, "/folder", NULL, 0, &list), ENOTSUP, "s3://");
	options.s3 = &s3;
	s3.anonymous = 1;
	assert_refused(sluice_list_open(f->ctx, "s3://echo/x", &options, 0, &list), EACCES,
	               "AccessDenied");
	assert_null(list);
	sluice_list_close(list);
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
	/* A range of it may have one of its own. */
	o.first_bytes = 100;
	assert_ok(sluice_open(f->ctx, "s3://sums-echo/123456789", &o, &file));
	assert_ok(sluice_stat(file, &info));
	assert_null(info.crc32c);
	assert_ok(sluice_close(file));
}

/* -------------------------------------------------------------------------------- credentials */

static void file_say(const char *path, const char *text)
{
	file_write(path, text, strlen(text), 0);
	file_truncate(path, strlen(text));
}

/* The environment has no keys, and files that say this. */
static void only_files(struct fixture *f, const char *credentials, const char *config)
{
	unsetenv("AWS_ACCESS_KEY_ID");
	unsetenv("AWS_SECRET_ACCESS_KEY");
	file_say(scratch(f, "credentials"), credentials);
	file_say(scratch(f, "config"), config);
	setenv("AWS_SHARED_CREDENTIALS_FILE", scratch(f, "credentials"), 1);
	setenv("AWS_CONFIG_FILE", scratch(f, "config"), 1);
}

S3_TEST(a_missing_credential_is_named)
{
	struct sluice_s3_options s3 = SLUICE_S3_OPTIONS_INIT;

	unsetenv("AWS_SECRET_ACCESS_KEY");
	refused(f, "s3://echo/x", NULL, EACCES, "AWS_SECRET_ACCESS_KEY is missing");
	only_files(f, "[default]\naws_access_key_id = AKIDTEST\n", "");
	refused(f, "s3://echo/x", NULL, EACCES, "aws_secret_access_key is missing");
	only_files(f, "", "");
	refused(f, "s3://echo/x", NULL, EACCES, "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY");
	refused(f, "s3://echo/x", NULL, EACCES, scratch(f, "credentials"));
	s3.profile = "elsewhere";
	refused(f, "s3://echo/x", &s3, EINVAL, "no profile 'elsewhere'");
	s3.profile = NULL;
	s3.access_key = "AKIDTEST";
	refused(f, "s3://echo/x", &s3, EACCES, "secret_key is missing");
	setenv("AWS_CONFIG_FILE", scratch(f, "missing/config"), 1);
	s3.access_key = NULL;
	refused(f, "s3://echo/x", &s3, EACCES, "no credentials");
}

S3_TEST(profiles_have_credentials)
{
	struct sluice_s3_options s3 = SLUICE_S3_OPTIONS_INIT;

	only_files(f,
	           "# remark\n[default]\naws_access_key_id=AKIDTEST\n"
	           " aws_secret_access_key = ignored: indented\n"
	           "aws_secret_access_key = secret/+of=the-test\n"
	           "[ other ]\r\naws_access_key_id = ASIATEST\r\n"
	           "aws_secret_access_key = another/secret\r\naws_session_token = token\r\n",
	           "[profile other]\nregion = eu-north-1\ns3 =\n  addressing_style = path\n"
	           "[profile third]\naws_access_key_id = AKIDTEST\n"
	           "aws_secret_access_key = secret/+of=the-test\n");
	reads(f, "files");
	setenv("AWS_PROFILE", "other", 1);
	reads(f, "north");
	s3.profile = "third";
	reads_with(f, "files", &s3);
	/* Keys in the environment come before the profile of the environment, not before that of the options. */
	setenv("AWS_ACCESS_KEY_ID", "AKIDOTHER", 1);
	setenv("AWS_SECRET_ACCESS_KEY", "x", 1);
	refused(f, "s3://echo/x", NULL, EACCES, "InvalidAccessKeyId");
	reads_with(f, "files", &s3);
	/* Options come before all. */
	s3 = (struct sluice_s3_options)SLUICE_S3_OPTIONS_INIT;
	s3.access_key = "ASIATEST";
	s3.secret_key = "another/secret";
	s3.session_token = "token";
	reads_with(f, "files", &s3);
}

/* How often a process ran that leaves a line of four bytes each time. */
static long runs_in(const char *path)
{
	struct stat there;

	return stat(path, &there) ? 0 : (long)there.st_size / 4;
}

S3_TEST(a_process_prints_credentials_and_is_asked_again_before_they_expire)
{
	char config[2048], script[512], runs[512];

	snprintf(script, sizeof(script), "%s", scratch(f, "process"));
	snprintf(runs, sizeof(runs), "%s", scratch(f, "runs"));
	/* A first run whose keys last for a minute, then one with keys that last. */
	snprintf(config, sizeof(config),
	         "echo run >> %s\n"
	         "test $(wc -l < %s) = 1 && at=$(date -u -d '+1 minute' +%%FT%%TZ) || "
	         "at=$(date -u -d '+1 day' +%%FT%%TZ)\n"
	         "printf '{\"Version\": 1, \"More\": {\"a\": [1, \"}\"]}, \"AccessKeyId\": "
	         "\"ASIATEST\", \"SecretAccessKey\":\"another\\\\/secret\", \"SessionToken\": "
	         "\"token\", \"Expiration\": \"%%s\"}' $at\n",
	         runs, runs);
	file_say(script, config);
	snprintf(config, sizeof(config), "[default]\ncredential_process = sh '%s' --any\n", script);
	only_files(f, "", config);
	reads(f, "files");
	assert_int_equal(runs_in(runs), 1);
	reads(f, "files");
	assert_int_equal(runs_in(runs), 2);
	reads(f, "files");
	assert_int_equal(runs_in(runs), 2);
}

S3_TEST(a_process_that_fails_is_told)
{
	static const struct {
		const char *command, *says;
	} rows[] = {
		{"exit 3", "status 3"},
		{"kill -9 $$", "signal 9"},
		{"echo nothing", "printed no credentials"},
		{"echo '{\"Version\": 1, \"AccessKeyId\": \"A\"}'", "printed no credentials"},
		{"echo '{\"Version\": 2, \"AccessKeyId\": \"A\", \"SecretAccessKey\": \"s\"}'",
	         "printed no credentials"},
	};
	char config[200];

	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		snprintf(config, sizeof(config), "[default]\ncredential_process = %s\n",
		         rows[i].command);
		only_files(f, "", config);
		refused(f, "s3://echo/x", NULL, EACCES, rows[i].says);
	}
}

S3_TEST(sources_that_sluice_does_not_have_are_named)
{
	static const char *const lines[] = {"role_arn = arn:aws:iam::1:role/x", "sso_session = x",
	                                    "sso_start_url = https://x",
	                                    "web_identity_token_file = /x"};
	char config[100];

	for (size_t i = 0; i < COUNT_OF(lines); i++) {
		snprintf(config, sizeof(config), "[default]\n%s\n", lines[i]);
		only_files(f, "", config);
		refused(f, "s3://echo/x", NULL, ENOTSUP, "credential_process");
	}
}
