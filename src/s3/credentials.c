/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Credentials
 *
 * Looks for an access key in one source after the other. The first that has any is taken, and has to be complete.
 *
 * Threads: any that may wait for storage; the environment must not change meanwhile.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "s3/credentials.h"

static void text_clear(char *text)
{
	if (text)
		explicit_bzero(text, strlen(text));
	free(text);
}

void sl_s3_keys_clear(struct sl_s3_keys *keys)
{
	text_clear(keys->id);
	text_clear(keys->secret);
	text_clear(keys->token);
	*keys = (struct sl_s3_keys){0};
}

void sl_s3_source_clear(struct sl_s3_source *source)
{
	sl_s3_keys_clear(&source->keys);
	free(source->command);
}

/* ------------------------------------------------------------------------------------ sources */

/* What a source is asked with. */
struct asked {
	const struct sluice_s3_options *options;
	const struct sl_s3_profile *profile;
};

static int keys_copy(const char *id, const char *secret, const char *token, struct sl_s3_keys *out)
{
	struct sl_s3_keys keys = {strdup(id), strdup(secret), token ? strdup(token) : NULL, 0};

	for (const char *c = token ? token : ""; *c; c++)
		if (*c <= ' ' || *c == 0x7f) {
			sl_s3_keys_clear(&keys);
			return sl_fail(-EINVAL, "the session token has a blank or a control "
			                        "character in it");
		}
	if (!keys.id || !keys.secret || (token && !keys.token)) {
		sl_s3_keys_clear(&keys);
		return sl_fail(-ENOMEM, "no memory");
	}
	*out = keys;
	return 1;
}

/* Takes a pair, which may be missing, but not in half. The names are for the sentence. */
static int keys_take(const char *const values[3], const char *const names[2], const char *where,
                     struct sl_s3_keys *out)
{
	if (!values[0] && !values[1])
		return 0;
	if (!values[0] || !values[1])
		return sl_fail(-EACCES, "%s: %s is set, and %s is missing", where,
		               names[!values[0]], names[!!values[0]]);
	return keys_copy(values[0], values[1], values[2], out);
}

static int source_options(const struct asked *asked, struct sl_s3_source *out)
{
	static const char *const names[] = {"access_key", "secret_key"};
	const struct sluice_s3_options *o = asked->options;

	out->kind = o->anonymous ? "none: requests are not signed" : "the open options";
	if (o->anonymous)
		return 1;
	return keys_take((const char *const[]){o->access_key, o->secret_key, o->session_token},
	                 names, "the open options", &out->keys);
}

static int source_environment(const struct asked *asked, struct sl_s3_source *out)
{
	static const char *const names[] = {"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY",
	                                    "AWS_SESSION_TOKEN"};
	const char *values[3];

	out->kind = "the environment (AWS_ACCESS_KEY_ID)";
	for (int i = 0; i < 3; i++)
		values[i] = sl_s3_variable((const char *const[]){names[i], NULL});
	return asked->options->profile ? 0
	                               : keys_take(values, names, "the environment", &out->keys);
}

static int source_profile(const struct asked *asked, struct sl_s3_source *out)
{
	static const char *const names[] = {"aws_access_key_id", "aws_secret_access_key"};
	const struct sl_s3_profile *profile = asked->profile;
	bool shared = profile->shared[SL_S3_KEY_ID] || profile->shared[SL_S3_SECRET];

	out->kind =
		shared ? "the profile in the credentials file" : "the profile in the config file";
	return keys_take((const char *const *)profile->of, names,
	                 shared ? profile->credentials : profile->config, &out->keys);
}

static int source_process(const struct asked *asked, struct sl_s3_source *out)
{
	const char *command = asked->profile->of[SL_S3_PROCESS];

	out->kind = "the profile's credential_process";
	if (!command)
		return 0;
	out->command = strdup(command);
	return out->command ? 1 : sl_fail(-ENOMEM, "no memory");
}

/* Sources of others' programs: an error that says by which way they can be had. */
static int source_foreign(const struct asked *asked, struct sl_s3_source *out)
{
	static const struct {
		const char *variable;
		enum sl_s3_value value;
		const char *meaning;
	} rows[] = {
		{NULL, SL_S3_ROLE, "assumes a role (role_arn)"},
		{NULL, SL_S3_WEB_IDENTITY, "has a web identity (web_identity_token_file)"},
		{NULL, SL_S3_SSO, "signs on by a browser (sso_session)"},
		{NULL, SL_S3_SSO_URL, "signs on by a browser (sso_start_url)"},
		{"AWS_WEB_IDENTITY_TOKEN_FILE", 0, "a web identity"},
		{"AWS_CONTAINER_CREDENTIALS_FULL_URI", 0, "credentials of a container"},
		{"AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", 0, "credentials of a container"},
	};
	static const char remedy[] = "sluice cannot ask for these itself: set credential_process = "
				     "aws configure export-credentials --format process";

	(void)out;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		const char *variable = rows[i].variable;

		if (!variable && asked->profile->of[rows[i].value])
			return sl_fail(-ENOTSUP, "the profile '%s' %s; %s", asked->profile->name,
			               rows[i].meaning, remedy);
		if (variable && sl_s3_variable((const char *const[]){variable, NULL}))
			return sl_fail(-ENOTSUP, "%s names %s; %s", variable, rows[i].meaning,
			               remedy);
	}
	return 0;
}

int sl_s3_source_find(const struct sluice_s3_options *options, const struct sl_s3_profile *profile,
                      struct sl_s3_source *out)
{
	static int (*const sources[])(const struct asked *, struct sl_s3_source *) = {
		source_options, source_environment, source_profile, source_process, source_foreign,
	};
	struct asked asked = {options, profile};
	struct sl_s3_source source = {0};

	for (size_t i = 0; i < sizeof(sources) / sizeof(sources[0]); i++) {
		int rc = sources[i](&asked, &source);

		if (rc > 0)
			*out = source;
		if (rc)
			return SL_MIN(rc, 0);
	}
	return sl_fail(-EACCES,
	               "no credentials: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY are not set, "
	               "and there is no access key for the profile '%s' in '%s' and '%s'; public "
	               "objects can be read without them (anonymous, --no-sign-request)",
	               profile->name, profile->credentials, profile->config);
}
