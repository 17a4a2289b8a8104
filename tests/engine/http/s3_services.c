/* SPDX-License-Identifier: Apache-2.0 */
/* Credentials that services have: those of machines, containers and roles. See metadata_server.py. */
#include "http/s3_cases.h"

#include <time.h>
#include <unistd.h>

time_t __wrap_time(time_t *out);
time_t __real_time(time_t *out);

static _Atomic time_t ahead; /* seconds that the clock of this program is ahead */

time_t __wrap_time(time_t *out)
{
	time_t now = __real_time(NULL) + ahead;

	if (out)
		*out = now;
	return now;
}

/* Sets a variable to the URL of a service of that user. */
static void serve(const char *variable, const char *user, const char *rest)
{
	char url[200];

	snprintf(url, sizeof(url), "http://127.0.0.1:%d/%s%s", server_port("metadata"), user, rest);
	setenv(variable, url, 1);
}

static void of_machine(struct fixture *f, const char *user)
{
	only_files(f, "", "");
	unsetenv("AWS_EC2_METADATA_DISABLED");
	serve("AWS_EC2_METADATA_SERVICE_ENDPOINT", user, "");
}

static void of_container(struct fixture *f, const char *user)
{
	only_files(f, "", "");
	serve("AWS_CONTAINER_CREDENTIALS_FULL_URI", user, "/container?id=identity.token");
}

static void of_identity(struct fixture *f, const char *user)
{
	only_files(f, "", "");
	file_say(scratch(f, "identity"), "identity.token+x\n");
	setenv("AWS_WEB_IDENTITY_TOKEN_FILE", scratch(f, "identity"), 1);
	setenv("AWS_ROLE_ARN", "arn:aws:iam::1:role/web", 1);
	serve("AWS_ENDPOINT_URL_STS", user, "");
}

#define OWN_KEYS "aws_access_key_id = AKIDTEST\naws_secret_access_key = secret/+of=the-test\n"

static void of_role(struct fixture *f, const char *user)
{
	only_files(f, "[keys]\n" OWN_KEYS,
	           "[default]\nrole_arn = arn:aws:iam::1:role/x\nsource_profile = keys\n"
	           "external_id = identity.token\n");
	serve("AWS_ENDPOINT_URL_STS", user, "");
}

/* The process prints the answer of the service. */
static void of_process(struct fixture *f, const char *user)
{
	char text[600];

	snprintf(text, sizeof(text),
	         "import "
	         "urllib.request\nprint(urllib.request.urlopen('http://127.0.0.1:%d/%s/process')"
	         ".read().decode())\n",
	         server_port("metadata"), user);
	file_say(scratch(f, user), text);
	snprintf(text, sizeof(text), "[default]\ncredential_process = python3 '%s'\n",
	         scratch(f, user));
	only_files(f, "", text);
}

static const struct {
	const char *name, *kind;
	void (*set)(struct fixture *f, const char *user);
} sources[] = {
	{"machine", "the metadata of the machine", of_machine},
	{"container", "the container", of_container},
	{"identity", "the role of a web identity", of_identity},
	{"role", "the role of the profile", of_role},
	{"process", "the profile's credential_process", of_process},
};

/* Chooses a source, of a user whose name has those words. Returns the user; static. */
static const char *choose(struct fixture *f, size_t i, const char *words)
{
	static char user[60];
	static unsigned count;

	snprintf(user, sizeof(user), "%s-%s-%u", sources[i].name, words, ++count);
	s3_environment();
	unsetenv("AWS_WEB_IDENTITY_TOKEN_FILE");
	unsetenv("AWS_CONTAINER_CREDENTIALS_FULL_URI");
	sources[i].set(f, user);
	return user;
}

/* Returns how often the user was given keys. */
static long issued(struct fixture *f, const char *user)
{
	char name[100];

	snprintf(name, sizeof(name), "%s/issued", user);
	return s3_count(f, name);
}

static void finds(struct fixture *f, const char *kind)
{
	struct sluice_feature feature = {.size = sizeof(feature)};

	for (size_t i = 0; !sluice_context_feature(f->ctx, i, &feature); i++)
		if (!strcmp(feature.name, "s3"))
			break;
	assert_string_equal(feature.name, "s3");
	if (!strstr(feature.detail, kind))
		fail_msg("s3: %s, not %s", feature.detail, kind);
	assert_nothing_secret(feature.detail);
}

S3_TEST(services_are_asked_for_keys_once_and_not_for_their_description)
{
	for (size_t i = 0; i < COUNT_OF(sources); i++) {
		const char *user = choose(f, i, "lasting");

		finds(f, sources[i].kind);
		assert_int_equal(issued(f, user), 0);
		assert_ok(sluice_s3_check(f->ctx, NULL));
		assert_int_equal(issued(f, user), 1);
		reads(f, "files");
		finds(f, sources[i].kind);
		reads(f, "files");
		assert_int_equal(issued(f, user), 1);
	}
}

S3_TEST(keys_that_expire_in_the_middle_are_renewed)
{
	enum { PARTS = 48, BYTES = 10000 };
	struct buffer b = buffer_new(PARTS * BYTES, 0);

	file_make(scratch(f, "object"), PARTS * BYTES, 5);
	for (size_t i = 0; i < COUNT_OF(sources); i++) {
		const char *user = choose(f, i, "mortal");
		sluice_op *ops[PARTS];
		sluice_file *file;

		memset(b.data, 0, b.length);
		assert_ok(try_open(f, s3_uri("files", scratch(f, "object")), NULL, &file));
		for (size_t p = 0; p < PARTS; p++)
			ops[p] = start_read(file, b.data + p * BYTES, BYTES, p * BYTES);
		for (size_t p = 0; p < PARTS; p++)
			assert_moves(ops[p], BYTES);
		assert_pattern(b.data, b.length, 0, 5);
		assert_ok(sluice_close(file));
		/* Each is good for six. */
		assert_in_range(issued(f, user), PARTS / 6, PARTS);
	}
	buffer_free(&b);
}

S3_TEST(keys_are_renewed_in_the_background_before_they_expire)
{
	for (size_t i = 0; i < COUNT_OF(sources); i++) {
		const char *user = choose(f, i, "soon");
		double begun = seconds_now();
		sluice_file *file;
		char byte[1];

		assert_ok(try_open(f, "s3://echo/some", NULL, &file));
		assert_read(file, byte, 1, 1);
		assert_int_equal(issued(f, user), 1);
		ahead = 12;
		do {
			assert_read(file, byte, 1, 1);
			assert_soon(begun);
		} while (issued(f, user) < 2);
		ahead = 0;
		assert_ok(sluice_close(file));
	}
}

S3_TEST(a_service_that_fails_leaves_the_keys_that_there_are)
{
	const char *user = choose(f, 4, "soon");
	sluice_file *file;
	char byte[1];

	assert_ok(try_open(f, "s3://echo/some", NULL, &file));
	/* The process is another now. */
	file_say(scratch(f, user), "raise SystemExit(3)\n");
	ahead = 12;
	for (int i = 0; i < 20; i++)
		assert_read(file, byte, 1, 1);
	assert_ok(sluice_close(file));
	reads(f, "files");
	ahead = 0;
	assert_int_equal(issued(f, user), 1);
}

S3_TEST(services_that_give_no_keys_are_named)
{
	static const struct {
		size_t source;
		const char *words, *says;
	} rows[] = {
		{0, "norole", "gave no role: HTTP 404"},
		{0, "broken", "gave no token: HTTP 500"},
		{0, "away", "gave no token: HTTP 307"},
		{0, "odd", "there are no keys in the answer"},
		{1, "auth", "gave no keys: HTTP 403"},
		{1, "away", "gave no keys: HTTP 307"},
		{1, "odd", "there are no keys in the answer"},
		{2, "away", "HTTP 307"},
		{2, "odd", "there are no keys in the answer"},
		{3, "odd", "there are no keys in the answer"},
		{3, "broken", "HTTP 500"},
	};

	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		choose(f, rows[i].source, rows[i].words);
		refused(f, "s3://echo/x", NULL, EACCES, rows[i].says);
		assert_refused(sluice_s3_check(f->ctx, NULL), EACCES, rows[i].says);
	}
}

S3_TEST(a_service_that_is_silent_or_away_is_not_waited_for)
{
	double begun = seconds_now();
	char url[64];

	choose(f, 0, "silent");
	refused(f, "s3://echo/x", NULL, EACCES, "gave no token: ");
	snprintf(url, sizeof(url), "http://127.0.0.1:%d", silent_port());
	setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", url, 1);
	refused(f, "s3://echo/x", NULL, EACCES, "gave no token: ");
	assert_soon(begun);
}

S3_TEST(a_newcomer_is_told_which_credentials_are_missing)
{
	char url[64];

	choose(f, 0, "lasting");
	snprintf(url, sizeof(url), "http://127.0.0.1:%d", closed_port());
	setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", url, 1);
	refused(f, "s3://echo/x", NULL, EACCES, "no credentials: ");
	assert_non_null(strstr(sluice_last_message(), "AWS_ACCESS_KEY_ID and "));
	assert_non_null(strstr(sluice_last_message(), scratch(f, "credentials")));
	assert_non_null(strstr(sluice_last_message(), url));
	assert_refused(sluice_s3_check(f->ctx, NULL), EACCES, "no credentials: ");
	setenv("AWS_EC2_METADATA_DISABLED", "true", 1);
	refused(f, "s3://echo/x", NULL, EACCES, "AWS_EC2_METADATA_DISABLED is set");
}

S3_TEST(a_container_has_its_token_from_a_variable_or_a_file)
{
	const char *user = choose(f, 1, "auth");

	setenv("AWS_CONTAINER_AUTHORIZATION_TOKEN", "container-token x", 1);
	reads(f, "files");
	setenv("AWS_CONTAINER_AUTHORIZATION_TOKEN", "wrong", 1);
	file_say(scratch(f, "token"), "container-token x\n");
	setenv("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", scratch(f, "token"), 1);
	reads(f, "files");
	assert_int_equal(issued(f, user), 2);
	setenv("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", scratch(f, "missing"), 1);
	refused(f, "s3://echo/x", NULL, EACCES, "missing' with a token cannot be read");
	unsetenv("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE");
	setenv("AWS_CONTAINER_AUTHORIZATION_TOKEN", "container-token x\r\nX-More: x", 1);
	refused(f, "s3://echo/x", NULL, EINVAL, "more than a line");
}

S3_TEST(a_token_of_a_container_goes_to_no_other_host)
{
	static const char *const urls[] = {
		"http://127.0.0.1.example/x",      "http://example.org/127.0.0.1",
		"http://127.0.0.1@example.org/x",  "http://169.254.170.20/x",
		"http://[fd00:ec2::24]/x",         "http://127.1.example/x",
		"http://0x7f.example/169.254.170", "http://10.0.0.1/x"};

	only_files(f, "", "");
	setenv("AWS_CONTAINER_AUTHORIZATION_TOKEN", "container-token x", 1);
	for (size_t i = 0; i < COUNT_OF(urls); i++) {
		setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", urls[i], 1);
		refused(f, "s3://echo/x", NULL, EINVAL, "is no URL by https, of this machine");
	}
	setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", "ftp://127.0.0.1/x", 1);
	refused(f, "s3://echo/x", NULL, EACCES, "protocol");
	/* A variable that has only a path has it of that host, whatever the path is. */
	setenv("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", ":0@127.0.0.1/x", 1);
	refused(f, "s3://echo/x", NULL, EACCES, "'http://169.254.170.2' gave no keys: ");
}

S3_TEST(a_role_is_assumed_by_another_profile_or_service)
{
	static const char *const configs[] = {
		/* A chain of roles. */
		"[default]\nrole_arn = arn:aws:iam::1:role/x\nsource_profile = second\n"
		"[profile second]\nrole_arn = arn:aws:iam::1:role/y\nsource_profile = keys\n",
		"[default]\nrole_arn = arn:aws:iam::1:role/checked\nsource_profile = keys\n"
		"role_session_name = a session\nexternal_id = an id\nduration_seconds = 900\n",
		/* Its own keys. */
		"[default]\nrole_arn = arn:aws:iam::1:role/x\nsource_profile = default\n" OWN_KEYS,
		"[default]\nrole_arn = arn:aws:iam::1:role/x\ncredential_source = EcsContainer\n",
		"[default]\nrole_arn = arn:aws:iam::1:role/x\n"
		"credential_source = Ec2InstanceMetadata\n",
	};
	char config[600];

	for (size_t i = 0; i < COUNT_OF(configs); i++) {
		choose(f, 3, "lasting");
		serve("AWS_CONTAINER_CREDENTIALS_FULL_URI", "base", "/container");
		serve("AWS_EC2_METADATA_SERVICE_ENDPOINT", "base", "");
		unsetenv("AWS_EC2_METADATA_DISABLED");
		only_files(f, "[keys]\n" OWN_KEYS, configs[i]);
		reads(f, "files");
	}
	assert_int_equal(issued(f, "base"), 2);
	/* With keys in the environment these are it, unless the profile is asked for. */
	setenv("AWS_ACCESS_KEY_ID", "AKIDTEST", 1);
	setenv("AWS_SECRET_ACCESS_KEY", "secret/+of=the-test", 1);
	snprintf(config, sizeof(config),
	         "[profile a]\nrole_arn = arn:aws:iam::1:role/x\n"
	         "credential_source = Environment\n");
	file_say(scratch(f, "config"), config);
	struct sluice_s3_options s3 = SLUICE_S3_OPTIONS_INIT;
	s3.profile = "a";
	reads_with(f, "files", &s3);
	setenv("AWS_SECRET_ACCESS_KEY", "other", 1);
	refused(f, "s3://echo/x", &s3, EACCES, "SignatureDoesNotMatch");
}

S3_TEST(a_role_that_cannot_be_assumed_is_told)
{
	static const struct {
		const char *config;
		int error;
		const char *says;
	} rows[] = {
		{"role_arn = arn:aws:iam::1:role/x", EINVAL, "source_profile, credential_source"},
		{"role_arn = arn:aws:iam::1:role/x\nsource_profile = none", EINVAL,
	         "no profile 'none'"},
		{"role_arn = arn:aws:iam::1:role/x\nsource_profile = empty", EACCES,
	         "'empty', by which 'default' assumes its role, has no keys"},
		{"role_arn = arn:aws:iam::1:role/x\nsource_profile = round", EINVAL,
	         "further roles"},
		{"role_arn = arn:aws:iam::1:role/x\ncredential_source = x", EACCES,
	         "not Environment"},
		{"role_arn = arn:aws:iam::1:role/x\ncredential_source = Environment", EACCES,
	         "Environment', which has no keys here"},
		{"role_arn = other\nsource_profile = keys", EACCES,
	         "HTTP 403: AccessDenied: the role is wrong"},
		{"role_arn = arn:aws:iam::1:role/x\nsource_profile = wrong", EACCES,
	         "AccessDenied: SignatureDoesNotMatch"},
		{"web_identity_token_file = /x", EACCES, "role_arn is missing"},
		{"role_arn = arn:aws:iam::1:role/x\nweb_identity_token_file = /x/y", EACCES,
	         "'/x/y' with a token cannot be read"},
	};
	char config[600];

	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		choose(f, 3, "lasting");
		snprintf(config, sizeof(config),
		         "[default]\n%s\n[profile empty]\nregion = x\n[profile round]\n"
		         "role_arn = x\nsource_profile = other\n[profile other]\nrole_arn = x\n"
		         "source_profile = round\n",
		         rows[i].config);
		only_files(f,
		           "[keys]\n" OWN_KEYS "[wrong]\naws_access_key_id = AKIDTEST\n"
		           "aws_secret_access_key = other-secret/\n",
		           config);
		refused(f, "s3://echo/x", NULL, rows[i].error, rows[i].says);
	}
	choose(f, 2, "lasting");
	unsetenv("AWS_ROLE_ARN");
	refused(f, "s3://echo/x", NULL, EACCES, "AWS_ROLE_ARN is missing");
	setenv("AWS_ROLE_ARN", "arn:aws:iam::1:role/web", 1);
	file_say(scratch(f, "identity"), "other\n");
	refused(f, "s3://echo/x", NULL, EACCES, "AccessDenied: the token is wrong");
}

/* With the most that can be logged, in success and in failure. */
S3_TEST(nothing_secret_is_logged)
{
	static const char *const words[] = {"mortal", "odd", "auth", "broken"};
	char log[512], *text;
	size_t length;

	snprintf(log, sizeof(log), "%s", scratch(f, "log"));
	with(f, "SLUICE_LOG", "debug");
	errors_begin(log);
	for (size_t i = 0; i < COUNT_OF(sources); i++)
		for (size_t w = 0; w < COUNT_OF(words); w++) {
			sluice_file *file;
			char byte[1];

			choose(f, i, words[w]);
			setenv("AWS_CONTAINER_AUTHORIZATION_TOKEN", "container-token x", 1);
			if (try_open(f, "s3://echo/some", NULL, &file)) {
				assert_nothing_secret(sluice_last_message());
				continue;
			}
			for (int n = 0; n < 8; n++)
				assert_read(file, byte, 1, 1);
			assert_ok(sluice_close(file));
		}
	errors_end();
	length = file_length(log);
	text = calloc(1, length + 1);
	file_read(log, text, length, 0);
	assert_non_null(strstr(text, "credentials from the role of a web identity: renewed"));
	assert_non_null(strstr(text, "ExpiredToken"));
	assert_nothing_secret(text);
	assert_null(strstr(text, "Signature="));
	free(text);
}
