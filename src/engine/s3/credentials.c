/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Credentials
 *
 * Looks for an access key in a source after the other. The first key counts, and has to be
 * complete. Processes and servers are only found here, and asked later.
 *
 * Threads: any that may wait for storage; the environment must not change meanwhile.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "s3/credentials.h"

void sl_s3_keys_clear(struct sl_s3_keys *keys)
{
	sl_s3_text_clear(keys->id);
	sl_s3_text_clear(keys->secret);
	sl_s3_text_clear(keys->token);
	*keys = (struct sl_s3_keys){0};
}

static char *text_copy(const char *text)
{
	return text ? strdup(text) : NULL;
}

int sl_s3_keys_copy(const struct sl_s3_keys *keys, struct sl_s3_keys *out)
{
	struct sl_s3_keys copy = {text_copy(keys->id), text_copy(keys->secret),
	                          text_copy(keys->token), keys->expires};

	*out = copy;
	if (sl_s3_keys_equal(keys, &copy))
		return 0;
	sl_s3_keys_clear(out);
	return sl_fail(-ENOMEM, "no memory");
}

static bool text_equal(const char *one, const char *other)
{
	return one && other ? !strcmp(one, other) : one == other;
}

bool sl_s3_keys_equal(const struct sl_s3_keys *one, const struct sl_s3_keys *other)
{
	return text_equal(one->id, other->id) && text_equal(one->secret, other->secret) &&
	       text_equal(one->token, other->token);
}

int sl_s3_keys_check(const struct sl_s3_keys *keys, const char *where)
{
	const char *texts[] = {keys->id, keys->secret, keys->token};

	for (int i = 0; i < 3; i++)
		for (const char *c = texts[i] ? texts[i] : ""; *c; c++)
			if (*c <= ' ' || *c >= 0x7f)
				return sl_fail(-EINVAL,
				               "%s: there is a blank or a control character in a "
				               "key or token",
				               where);
	return 0;
}

void sl_s3_source_clear(struct sl_s3_source *source)
{
	sl_s3_keys_clear(&source->keys);
	for (int i = 0; i < SL_S3_TEXTS; i++)
		sl_s3_text_clear(source->texts[i]);
	if (source->base)
		sl_s3_source_clear(source->base);
	free(source->base);
	*source = (struct sl_s3_source){0};
}

bool sl_s3_source_equal(const struct sl_s3_source *one, const struct sl_s3_source *other)
{
	bool equal = one->ask == other->ask && sl_s3_keys_equal(&one->keys, &other->keys);

	for (int i = 0; i < SL_S3_TEXTS; i++)
		equal = equal && text_equal(one->texts[i], other->texts[i]);
	return equal && !one->base == !other->base &&
	       (!one->base || sl_s3_source_equal(one->base, other->base));
}

/* ------------------------------------------------------------------------------------ sources */

#define MOST_ROLES 5 /* each is assumed with the keys of the next */

/* Where sources are looked for. */
struct asked {
	const struct sluice_s3_options *options;
	const struct sl_s3_profile *profile;
	const char *region;
	int depth; /* roles to be assumed with the keys */
};

/* Takes a pair, which may be missing, but not in half. The names are for the sentence. */
static int keys_take(const char *const values[3], const char *const names[2], const char *where,
                     struct sl_s3_keys *out)
{
	if (!values[0] && !values[1])
		return 0;
	if (!values[0] || !values[1])
		return sl_fail(-EACCES, "%s: %s is set, and %s is missing", where,
		               names[!values[0]], names[!!values[0]]);
	struct sl_s3_keys keys = {(char *)values[0], (char *)values[1], (char *)values[2], 0};
	int rc = sl_s3_keys_copy(&keys, out);

	return rc ? rc : 1;
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
		values[i] = sl_s3_variable(names[i]);
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

/* Gives a source texts for asking, and takes them: the first `needs` may not be NULL. */
static int source_ask(struct sl_s3_source *out, const char *kind, int needs, sl_s3_asker *ask,
                      char *first, char *second, char *third)
{
	char *texts[SL_S3_TEXTS] = {first, second, third};

	out->kind = kind;
	out->ask = ask;
	memcpy(out->texts, texts, sizeof(texts));
	for (int i = 0; i < needs; i++)
		if (!texts[i])
			return sl_fail(-ENOMEM, "no memory");
	return 1;
}

static int source_process(const struct asked *asked, struct sl_s3_source *out)
{
	const char *command = asked->profile->of[SL_S3_PROCESS];

	return command ? source_ask(out, "the profile's credential_process", 1, sl_s3_process_ask,
	                            strdup(command), NULL, NULL)
	               : 0;
}

/* Signing on by a browser is for others' programs: the error says how to get the credentials. */
static int source_browser(const struct asked *asked, struct sl_s3_source *out)
{
	const struct sl_s3_profile *profile = asked->profile;

	(void)out;
	if (!profile->of[SL_S3_SSO] && !profile->of[SL_S3_SSO_URL])
		return 0;
	return sl_fail(-ENOTSUP,
	               "the profile '%s' signs on by a browser (%s), for which sluice cannot ask: "
	               "set credential_process = aws configure export-credentials --format process",
	               profile->name, profile->of[SL_S3_SSO] ? "sso_session" : "sso_start_url");
}

/* ----------------------------------------------------------------------- roles and services */

/* Returns the Security Token Service's URL, for the caller to free. */
static char *role_service(const struct asked *asked)
{
	const char *set = sl_s3_endpoint(asked->profile, SL_S3_ENDPOINT_STS);

	return set ? strdup(set)
	           : sl_format("https://sts.%s.amazonaws.com%s", asked->region,
	                       strncmp(asked->region, "cn-", 3) ? "" : ".cn");
}

/* Returns a call's query, for the caller to free. */
static char *role_query(const char *action, const char *role, const char *session,
                        const char *external, const char *duration)
{
	const char *const fields[][2] = {
		{"Action", action},
		{"DurationSeconds", duration},
		{"ExternalId", external},
		{"RoleArn", role},
		{"RoleSessionName", session ? session : "sluice"},
		{"Version", "2011-06-15"},
	};
	char *text = NULL;
	size_t bytes;
	FILE *to = open_memstream(&text, &bytes);
	bool done = to;

	for (size_t i = 0; done && i < sizeof(fields) / sizeof(fields[0]); i++) {
		char *value = fields[i][1] ? sl_uri_escape(fields[i][1], false) : NULL;

		if (value)
			fprintf(to, "%s%s=%s", i ? "&" : "", fields[i][0], value);
		done = value || !fields[i][1];
		free(value);
	}
	if (to && !fclose(to) && done)
		return text;
	free(text);
	return NULL;
}

static int source_identity(const struct asked *asked, struct sl_s3_source *out)
{
	const struct sl_s3_profile *profile = asked->profile;
	const char *file =
		asked->options->profile ? NULL : sl_s3_variable("AWS_WEB_IDENTITY_TOKEN_FILE");
	bool of_profile = !file;
	const char *role = of_profile ? profile->of[SL_S3_ROLE] : sl_s3_variable("AWS_ROLE_ARN");
	const char *session = of_profile ? profile->of[SL_S3_SESSION_NAME]
	                                 : sl_s3_variable("AWS_ROLE_SESSION_NAME");

	if (of_profile)
		file = profile->of[SL_S3_WEB_IDENTITY];
	if (file && !role)
		return sl_fail(-EACCES, "%s is set, and %s is missing",
		               of_profile ? "web_identity_token_file of the profile"
		                          : "AWS_WEB_IDENTITY_TOKEN_FILE",
		               of_profile ? "role_arn" : "AWS_ROLE_ARN");
	return file ? source_ask(out, "the role of a web identity", 3, sl_s3_identity_ask,
	                         role_service(asked), strdup(file),
	                         role_query("AssumeRoleWithWebIdentity", role, session, NULL,
	                                    profile->of[SL_S3_DURATION]))
	            : 0;
}

static int source_container(const struct asked *asked, struct sl_s3_source *out)
{
	const char *path = sl_s3_variable("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI");
	const char *url = sl_s3_variable("AWS_CONTAINER_CREDENTIALS_FULL_URI");

	(void)asked;
	if (!path && !url)
		return 0;
	return source_ask(out, "the container", 1, sl_s3_container_ask,
	                  path ? sl_format("http://169.254.170.2/%s", path + strspn(path, "/"))
	                       : strdup(url),
	                  text_copy(sl_s3_variable("AWS_CONTAINER_AUTHORIZATION_TOKEN")),
	                  text_copy(sl_s3_variable("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE")));
}

static int source_machine(const struct asked *asked, struct sl_s3_source *out)
{
	const char *disabled = sl_s3_variable("AWS_EC2_METADATA_DISABLED");
	const char *mode = sl_s3_variable("AWS_EC2_METADATA_SERVICE_ENDPOINT_MODE");
	const char *service = sl_s3_variable("AWS_EC2_METADATA_SERVICE_ENDPOINT");

	(void)asked;
	if (disabled && !strcasecmp(disabled, "true"))
		return 0;
	if (!service)
		service = mode && !strcasecmp(mode, "IPv6") ? "http://[fd00:ec2::254]"
		                                            : "http://169.254.169.254";
	out->guessed = true;
	return source_ask(out, "the metadata of the machine", 1, sl_s3_machine_ask, strdup(service),
	                  NULL, NULL);
}

static int source_role(const struct asked *asked, struct sl_s3_source *out);

typedef int source_function(const struct asked *, struct sl_s3_source *);

/* Asks in turn. Returns 1 with the first credentials, 0 without any, or -errno with a sentence. */
static int source_first(source_function *const *sources, const struct asked *asked,
                        struct sl_s3_source *out)
{
	int rc = 0;

	for (; !rc && *sources; sources++)
		rc = (*sources)(asked, out);
	if (rc < 0)
		sl_s3_source_clear(out);
	return rc;
}

static int base_of_profile(const struct asked *asked, const char *name, struct sl_s3_source *out)
{
	static source_function *const all[] = {source_role,    source_identity, source_profile,
	                                       source_process, source_browser,  NULL};
	static source_function *const own[] = {source_profile, NULL};
	struct sluice_s3_options options = {.profile = name};
	struct sl_s3_profile profile;
	struct asked deeper = {&options, &profile, asked->region, asked->depth + 1};
	int rc = sl_s3_profile_load(name, &profile);

	if (rc)
		return rc;
	rc = source_first(strcmp(name, asked->profile->name) ? all : own, &deeper, out);
	sl_s3_profile_clear(&profile);
	return rc ? rc
	          : sl_fail(-EACCES,
	                    "the profile '%s', by which '%s' assumes its role, has no keys", name,
	                    asked->profile->name);
}

static int base_of_service(const struct asked *asked, const char *name, struct sl_s3_source *out)
{
	source_function *source = !strcmp(name, "Environment")           ? source_environment
	                          : !strcmp(name, "EcsContainer")        ? source_container
	                          : !strcmp(name, "Ec2InstanceMetadata") ? source_machine
	                                                                 : NULL;
	struct sluice_s3_options options = {0};
	struct asked deeper = {&options, asked->profile, asked->region, 0};
	int rc = source ? source(&deeper, out) : 0;

	return rc ? rc
	          : sl_fail(-EACCES, "credential_source of the profile '%s' is '%s', which %s",
	                    asked->profile->name, name,
	                    source ? "has no keys here"
	                           : "is not Environment, EcsContainer or Ec2InstanceMetadata");
}

static int source_role(const struct asked *asked, struct sl_s3_source *out)
{
	const struct sl_s3_profile *profile = asked->profile;
	const char *role = profile->of[SL_S3_ROLE], *from = profile->of[SL_S3_SOURCE_PROFILE];
	const char *service = profile->of[SL_S3_CREDENTIAL_SOURCE];

	if (!role || profile->of[SL_S3_WEB_IDENTITY])
		return 0;
	if (profile->of[SL_S3_MFA])
		return sl_fail(-ENOTSUP,
		               "the profile '%s' has mfa_serial, and sluice asks for no code: set "
		               "credential_process = aws configure export-credentials --format "
		               "process",
		               profile->name);
	if (!from && !service)
		return sl_fail(-EINVAL,
		               "the profile '%s' has role_arn, and source_profile, "
		               "credential_source or web_identity_token_file is missing",
		               profile->name);
	if (asked->depth == MOST_ROLES)
		return sl_fail(-EINVAL, "source_profile of '%s' leads to %d further roles",
		               profile->name, MOST_ROLES);
	out->base = calloc(1, sizeof(*out->base));
	if (!out->base)
		return sl_fail(-ENOMEM, "no memory");
	int rc = from ? base_of_profile(asked, from, out->base)
	              : base_of_service(asked, service, out->base);
	if (rc < 0)
		return rc;
	return source_ask(out, "the role of the profile", 3, sl_s3_role_ask, role_service(asked),
	                  strdup(asked->region),
	                  role_query("AssumeRole", role, profile->of[SL_S3_SESSION_NAME],
	                             profile->of[SL_S3_EXTERNAL_ID], profile->of[SL_S3_DURATION]));
}

/* -------------------------------------------------------------------------------------- chain */

int sl_s3_source_find(const struct sluice_s3_options *options, const struct sl_s3_profile *profile,
                      struct sl_s3_source *out)
{
	static source_function *const sources[] = {source_options, source_environment,
	                                           source_role,    source_identity,
	                                           source_profile, source_process,
	                                           source_browser, source_container,
	                                           source_machine, NULL};
	struct asked asked = {options, profile, sl_s3_region(options->region, profile), 0};
	struct sl_s3_source source = {0};
	int rc = source_first(sources, &asked, &source);

	if (!rc)
		return sl_s3_source_missing(profile, "AWS_EC2_METADATA_DISABLED is set");
	if (rc > 0)
		*out = source;
	return SL_MIN(rc, 0);
}

int sl_s3_source_missing(const struct sl_s3_profile *profile, const char *why)
{
	return sl_fail(-EACCES,
	               "no credentials: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY are not set, "
	               "the profile '%s' has no access key in '%s' and '%s', and this machine has "
	               "no role (%s); set either of the first, or read public objects without "
	               "credentials (--no-sign-request, anonymous)",
	               profile->name, profile->credentials, profile->config, why);
}
