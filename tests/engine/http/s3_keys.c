/* SPDX-License-Identifier: Apache-2.0 */
/* The sources of credentials for objects of S3. */
#include "http/s3_cases.h"

#include <sys/stat.h>
#include <time.h>

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
	/* A token is that of its keys, and not of other keys in the other file. */
	only_files(f,
	           "[default]\naws_access_key_id = AKIDTEST\n"
	           "aws_secret_access_key = secret/+of=the-test\n",
	           "[default]\naws_session_token = expired\n[profile third]\naws_access_key_id = "
	           "AKIDTEST\n"
	           "aws_secret_access_key = secret/+of=the-test\n[profile other]\n");
	setenv("AWS_PROFILE", "default", 1);
	reads(f, "files");
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

/* The server of objects, as s3_environment() names it. */
static const char *server(void)
{
	static char url[100];

	snprintf(url, sizeof(url), "%s", getenv("AWS_ENDPOINT_URL"));
	return url;
}

S3_TEST(names_of_profiles_and_settings_are_read_in_any_form)
{
	static const char *const sections[][2] = {{"[profile \"my prof\"]", "my prof"},
	                                          {"[profile 'my prof']", "my prof"},
	                                          {"[ profile\t\"x]", "\"x"},
	                                          {"[profile \"]", "\""}};
	struct sluice_s3_options s3 = SLUICE_S3_OPTIONS_INIT;
	char config[500];

	for (size_t i = 0; i < COUNT_OF(sections); i++) {
		snprintf(config, sizeof(config),
		         "\xef\xbb\xbf%s\nAWS_Access_Key_ID = AKIDTEST\n"
		         "AWS_SECRET_ACCESS_KEY: secret/+of=the-test\nREGION : us-east-1\n",
		         sections[i][0]);
		only_files(f, "", config);
		s3.profile = sections[i][1];
		reads_with(f, "files", &s3);
	}
	only_files(f,
	           "\xef\xbb\xbf[my prof]\naws_access_key_id = AKIDTEST\n"
	           "aws_secret_access_key = secret/+of=the-test\n",
	           "");
	s3.profile = "my prof";
	reads_with(f, "files", &s3);
}

S3_TEST(a_profile_names_its_server_by_services)
{
	char config[600];

	snprintf(
		config, sizeof(config),
		"[services other]\ns3 =\n  endpoint_url = http://127.0.0.1:1\n"
		"[default]\nservices = mine\nendpoint_url = http://127.0.0.1:2\nregion = "
		"us-east-1\n"
		"s3 =\n  endpoint_url = http://127.0.0.1:3\n"
		"[services mine]\nregion = eu-north-1\nsts =\n  endpoint_url = http://127.0.0.1:4\n"
		"s3 =\n  endpoint_url = %s\n",
		server());
	unsetenv("AWS_ENDPOINT_URL");
	file_say(scratch(f, "config"), config);
	setenv("AWS_CONFIG_FILE", scratch(f, "config"), 1);
	reads(f, "files");
	file_say(scratch(f, "config"), "[default]\nservices = mine\n");
	refused(f, "s3://echo/x", NULL, EINVAL, "services = mine");
}

S3_TEST(endpoints_of_files_and_variables_are_ignored_where_that_is_asked_for)
{
	struct sluice_s3_options s3 = SLUICE_S3_OPTIONS_INIT;
	char endpoint[100], proxy[100];

	snprintf(endpoint, sizeof(endpoint), "%s", server());
	/* It connects nobody to AWS. */
	snprintf(proxy, sizeof(proxy), "http://127.0.0.1:%d", server_port("plain"));
	setenv("https_proxy", proxy, 1);
	setenv("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS", "TRUE", 1);
	refused(f, "s3://code403/x", NULL, EACCES, "the proxy refused");
	s3.endpoint = endpoint;
	reads_with(f, "files", &s3);
	setenv("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS", "false", 1);
	file_say(scratch(f, "config"), "[default]\nignore_configured_endpoint_urls = true\n");
	setenv("AWS_CONFIG_FILE", scratch(f, "config"), 1);
	reads(f, "files");
	unsetenv("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS");
	refused(f, "s3://code403/x", NULL, EACCES, "the proxy refused");
	unsetenv("https_proxy");
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

/* It has left another behind, its output comes late, and in steps; or there is more than is kept. */
S3_TEST(a_process_is_over_when_it_has_ended)
{
	static const char *const before[] = {"sleep 20 2>/dev/null & true",
	                                     "exec 2>/dev/null; sleep 0.3",
	                                     "printf '{\"Version\": 1,'; sleep 0.2; printf '  '"};
	char config[400];

	for (size_t i = 0; i < COUNT_OF(before); i++) {
		double begun = seconds_now();

		snprintf(config, sizeof(config),
		         "[default]\ncredential_process = %s; printf '%s\"AccessKeyId\": "
		         "\"AKIDTEST\", "
		         "\"SecretAccessKey\": \"secret/+of=the-test\"}'\n",
		         before[i], i == 2 ? "" : "{\"Version\": 1, ");
		only_files(f, "", config);
		reads(f, "files");
		assert_soon(begun);
	}
	only_files(f, "", "[default]\ncredential_process = yes | head -c 3000000\n");
	refused(f, "s3://echo/x", NULL, EACCES, "printed no credentials");
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
		{"echo '{\"Version\": 1, \"AccessKeyId\": \"A\", \"SecretAccessKey\": \"s\"} more'",
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

S3_TEST(a_process_that_does_not_end_is_ended)
{
	static const char *const commands[] = {"sleep 50; true", "exec >&- && sleep 50",
	                                       "yes | cat; sleep 50"};
	char config[200];

	with(f, "SLUICE_HTTP_RETRY_MS", "300");
	for (size_t i = 0; i < COUNT_OF(commands); i++) {
		double begun = seconds_now();

		snprintf(config, sizeof(config), "[default]\ncredential_process = %s\n",
		         commands[i]);
		only_files(f, "", config);
		refused(f, "s3://echo/x", NULL, EACCES, "ended after 0.3 s (SLUICE_HTTP_RETRY_MS)");
		assert_soon(begun);
	}
}

S3_TEST(sources_that_sluice_cannot_ask_are_named)
{
	static const char *const lines[] = {"role_arn = x\nsource_profile = x\nmfa_serial = x",
	                                    "sso_session = x", "sso_start_url = https://x"};
	char config[100];

	for (size_t i = 0; i < COUNT_OF(lines); i++) {
		snprintf(config, sizeof(config), "[default]\n%s\n", lines[i]);
		only_files(f, "", config);
		refused(f, "s3://echo/x", NULL, ENOTSUP, "credential_process");
	}
}

S3_TEST(a_url_is_made_of_an_object_only)
{
	struct sluice_s3_options s3 = SLUICE_S3_OPTIONS_INIT;
	struct sluice_open_options options = SLUICE_OPEN_OPTIONS_INIT;
	const char *headers[] = {"x-amz-a: b", NULL};
	int64_t end, begin = (int64_t)time(NULL) * 1000000000;
	const char *secret = "http://user:hidden@h/x";
	char *url;

	options.s3 = &s3;
	options.headers = headers;
	s3.requester_pays = 1;
	assert_ok(sluice_presign(f->ctx, "GET", "s3://none/x", &options, 60, &url, &end));
	assert_non_null(strstr(url, "&X-Amz-SignedHeaders=host%3Bx-amz-a&x-amz-request-payer="
	                            "requester&X-Amz-Signature="));
	assert_true(end >= begin + INT64_C(60000000000) && end <= begin + INT64_C(90000000000));
	free(url);
	assert_ok(sluice_presign(f->ctx, "DELETE", "s3://none/x", NULL, SLUICE_PRESIGN_MOST, &url,
	                         NULL));
	free(url);
	assert_refused(sluice_presign(f->ctx, "POST", "s3://none/x", NULL, 60, &url, NULL), EINVAL,
	               "'POST'");
	assert_refused(sluice_presign(f->ctx, "GET", "s3://none/x", NULL, 0, &url, NULL), EINVAL,
	               "not 0");
	assert_refused(sluice_presign(f->ctx, "GET", "s3://none/x", NULL, SLUICE_PRESIGN_MOST + 1,
	                              &url, NULL),
	               EINVAL, "604801");
	assert_refused(sluice_presign(f->ctx, "GET", "s3://none/", NULL, 60, &url, NULL), EISDIR,
	               "is a bucket");
	assert_refused(sluice_presign(f->ctx, "GET", "/tmp/x", NULL, 60, &url, NULL), ENOTSUP,
	               "S3");
	assert_refused(sluice_presign(f->ctx, "GET", secret, NULL, 60, &url, NULL), ENOTSUP, "h/x");
	assert_null(strstr(sluice_last_message(), "hidden"));
	assert_refused(sluice_remove_many(f->ctx, &secret, 1, NULL, NULL, NULL), ENOTSUP, "h/x");
	assert_null(strstr(sluice_last_message(), "hidden"));
	assert_refused(sluice_presign(f->ctx, "GET", NULL, NULL, 60, &url, NULL), EINVAL, "NULL");
	headers[0] = "Host: x";
	assert_refused(sluice_presign(f->ctx, "GET", "s3://none/x", &options, 60, &url, NULL),
	               EINVAL, "Host");
	headers[0] = NULL;
	s3.anonymous = 1;
	assert_refused(sluice_presign(f->ctx, "GET", "s3://none/x", &options, 60, &url, NULL),
	               EINVAL, "keys");
}
