/* SPDX-License-Identifier: Apache-2.0 */
#include "http/s3_cases.h"
#include "s3/s3.h"

#include <unistd.h>

static const char *const variables[] = {
	"AWS_ENDPOINT_URL",
	"AWS_ENDPOINT_URL_S3",
	"AWS_ENDPOINT_URL_STS",
	"AWS_ACCESS_KEY_ID",
	"AWS_SECRET_ACCESS_KEY",
	"AWS_SESSION_TOKEN",
	"AWS_PROFILE",
	"AWS_CONFIG_FILE",
	"AWS_SHARED_CREDENTIALS_FILE",
	"AWS_REGION",
	"AWS_CA_BUNDLE",
	"AWS_IGNORE_CONFIGURED_ENDPOINT_URLS",
	"AWS_EC2_METADATA_DISABLED",
	"AWS_EC2_METADATA_SERVICE_ENDPOINT",
	"AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
	"AWS_CONTAINER_CREDENTIALS_FULL_URI",
	"AWS_CONTAINER_AUTHORIZATION_TOKEN",
	"AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE",
	"AWS_WEB_IDENTITY_TOKEN_FILE",
	"AWS_ROLE_ARN",
	"AWS_ROLE_SESSION_NAME",
};
/* Of tests/engine/http/s3_server.py and metadata_server.py. */
static const char *const secrets[] = {"secret/",       "another/secret",  "issued/secret",
                                      "issued-token",  "machine-token/x", "container-token",
                                      "identity.token"};

int s3_setup(void **state)
{
	int rc = http_setup(state);

	s3_environment();
	return rc;
}

int s3_teardown(void **state)
{
	for (size_t i = 0; i < COUNT_OF(variables); i++)
		unsetenv(variables[i]);
	return http_teardown(state);
}

void assert_nothing_secret(const char *text)
{
	for (size_t i = 0; i < COUNT_OF(secrets); i++)
		if (strstr(text, secrets[i]))
			fail_msg("'%s' is in: %s", secrets[i], text);
}

int try_open(struct fixture *f, const char *uri, const struct sluice_s3_options *s3,
             sluice_file **out)
{
	struct sluice_open_options options = SLUICE_OPEN_OPTIONS_INIT;

	*out = NULL;
	options.s3 = s3;
	return sluice_open(f->ctx, uri, &options, out);
}

void refused(struct fixture *f, const char *uri, const struct sluice_s3_options *s3, int error,
             const char *says)
{
	sluice_file *file;

	assert_refused(try_open(f, uri, s3, &file), error, says);
	assert_nothing_secret(sluice_last_message());
}

/* Reads the object of that bucket that is a file, whole and in parts. */
void reads_with(struct fixture *f, const char *bucket, const struct sluice_s3_options *s3)
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

void reads(struct fixture *f, const char *bucket)
{
	reads_with(f, bucket, NULL);
}

void file_say(const char *path, const char *text)
{
	file_write(path, text, strlen(text), 0);
	file_truncate(path, strlen(text));
}

/* The environment has no keys, and files that say this. */
void only_files(struct fixture *f, const char *credentials, const char *config)
{
	unsetenv("AWS_ACCESS_KEY_ID");
	unsetenv("AWS_SECRET_ACCESS_KEY");
	file_say(scratch(f, "credentials"), credentials);
	file_say(scratch(f, "config"), config);
	setenv("AWS_SHARED_CREDENTIALS_FILE", scratch(f, "credentials"), 1);
	setenv("AWS_CONFIG_FILE", scratch(f, "config"), 1);
}

long s3_count(struct fixture *f, const char *name)
{
	char uri[200], text[20] = "";
	sluice_file *file;
	sluice_op *op;

	snprintf(uri, sizeof(uri), "http://127.0.0.1:%d/%s", server_port("metadata"), name);
	file = open_read(f->ctx, uri);
	op = start_read(file, text, sizeof(text) - 1, 0);
	assert_true(sluice_wait(op, PATIENCE_MS) > 0);
	sluice_op_free(op);
	assert_ok(sluice_close(file));
	return atol(text);
}

long s3_counted(struct fixture *f, const char *bucket, const char *what)
{
	char uri[64], text[401] = "", line[64];
	sluice_file *file;
	const char *at;

	snprintf(uri, sizeof(uri), "s3://state/%s", bucket);
	file = open_read(f->ctx, uri);
	assert_true(read_now(file, text, 400, 0) > 0);
	sluice_close(file);
	snprintf(line, sizeof(line), "\n%s ", what);
	at = strstr(text, line);
	return at ? atol(at + strlen(line)) : 0;
}

bool s3_has_sums(void)
{
	uint32_t crc = UINT32_MAX;

	return sl_crc32c_add(&crc, NULL, 0);
}

void s3_small_parts(struct fixture *f)
{
	with(f, "SLUICE_S3_PART_BYTES", "64K");
	with(f, "SLUICE_S3_UPLOAD_BYTES", "512K");
}

sluice_file *s3_open_put(struct fixture *f, const char *uri, unsigned flags, uint64_t expected)
{
	struct sluice_open_options o = SLUICE_OPEN_OPTIONS_INIT;
	sluice_file *file = NULL;

	o.flags = SLUICE_OPEN_REPLACE | flags;
	o.expected_size = expected;
	assert_ok(sluice_open(f->ctx, uri, &o, &file));
	return file;
}
