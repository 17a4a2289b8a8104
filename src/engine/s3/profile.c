/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Profiles
 *
 * Reads a profile from AWS's credentials file and config file: sections with lines "name = value".
 * Indented lines belong to the value above them.
 *
 * Threads: any; the environment must not change meanwhile.
 */
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "s3/profile.h"

static const char *const value_names[SL_S3_VALUES] = {
	"aws_access_key_id",
	"aws_secret_access_key",
	"aws_session_token",
	"credential_process",
	"region",
	"endpoint_url",
	"services",
	"[services]s3.endpoint_url",
	"[services]sts.endpoint_url",
	"ignore_configured_endpoint_urls",
	"ca_bundle",
	"s3.addressing_style",
	"role_arn",
	"source_profile",
	"credential_source",
	"role_session_name",
	"external_id",
	"duration_seconds",
	"mfa_serial",
	"web_identity_token_file",
	"sso_session",
	"sso_start_url",
};

const char *sl_s3_variable(const char *name)
{
	const char *value = getenv(name);

	return value && *value ? value : NULL;
}

/* Returns the first of two variables and a profile's value; or NULL. */
static const char *value_choose(const char *variable, const char *other, const char *of_profile)
{
	const char *value = sl_s3_variable(variable);

	value = value ? value : sl_s3_variable(other);
	return value ? value : of_profile;
}

const char *sl_s3_region(const char *option, const struct sl_s3_profile *profile)
{
	const char *region = option ? option
	                            : value_choose("AWS_REGION", "AWS_DEFAULT_REGION",
	                                           profile->of[SL_S3_REGION]);

	return region ? region : "us-east-1";
}

const char *sl_s3_endpoint(const struct sl_s3_profile *profile, enum sl_s3_value service)
{
	const char *own =
		service == SL_S3_ENDPOINT_STS ? "AWS_ENDPOINT_URL_STS" : "AWS_ENDPOINT_URL_S3";
	const char *ignored = sl_s3_variable("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS");
	const char *of_profile =
		profile->of[service] ? profile->of[service] : profile->of[SL_S3_ENDPOINT];

	ignored = ignored ? ignored : profile->of[SL_S3_IGNORE_ENDPOINTS];
	return ignored && !strcasecmp(ignored, "true")
	               ? NULL
	               : value_choose(own, "AWS_ENDPOINT_URL", of_profile);
}

/* ------------------------------------------------------------------------------------- lines */

static char *text_strip(char *text)
{
	char *end = text + strlen(text);

	while (end > text && isspace((unsigned char)end[-1]))
		*--end = '\0';
	return text + strspn(text, " \t\r\n");
}

/* Whether it is the section: "NAME"; or with a kind "KIND NAME", also quoted, or "default". */
static bool section_is(char *section, const char *kind, const char *name)
{
	size_t length = strlen(kind);
	char *end = strchr(section, ']');

	if (end)
		*end = '\0';
	section = text_strip(section);
	if (!length || !strcmp(section, "default"))
		return !strcmp(section, name) && strcmp(kind, "services");
	if (strncmp(section, kind, length) || !isspace((unsigned char)section[length]))
		return false;
	section = text_strip(section + length);
	end = section + strlen(section);
	if (end > section + 1 && strchr("\"'", *section) && end[-1] == *section) {
		end[-1] = '\0';
		section++;
	}
	return !strcmp(section, name);
}

/* A line "name = value", the name in any case; within a value it begins with the value's. */
static int profile_take(struct sl_s3_profile *profile, const char *outer, char *line, bool shared)
{
	char *equal = strpbrk(line, *outer ? "=" : "=:"), name[64];

	if (!equal)
		return 0;
	*equal = '\0';
	snprintf(name, sizeof(name), "%s%s", outer, text_strip(line));
	for (int i = 0; i < SL_S3_VALUES; i++) {
		const char *value = text_strip(equal + 1);

		if (strcasecmp(name, value_names[i]) || profile->of[i] || !*value)
			continue;
		profile->of[i] = strdup(value);
		profile->shared[i] = shared;
		return profile->of[i] ? 0 : sl_fail(-ENOMEM, "no memory");
	}
	return 0;
}

/* Reads a section by kind and name: "profile"; "" in the credentials file; "services". */
static int profile_read(struct sl_s3_profile *profile, FILE *file, const char *kind,
                        const char *name, bool *found)
{
	char *line = NULL, outer[48] = "";
	size_t size = 0;
	bool inside = false;
	int rc = 0;

	for (bool first = true; !rc && getline(&line, &size, file) >= 0; first = false) {
		bool marked = first && !strncmp(line, "\xef\xbb\xbf", 3);
		bool indented = line[0] == ' ' || line[0] == '\t';
		char *text = text_strip(line + 3 * marked);

		if (!*text || *text == '#' || *text == ';')
			continue;
		if (*text == '[' && !indented) {
			inside = section_is(text + 1, kind, name);
			*found |= inside && *kind != 's';
			outer[0] = '\0';
			continue;
		}
		if (!inside)
			continue;
		/* An empty section for services is none, as in AWS's tools. */
		*found = true;
		if (!indented)
			snprintf(outer, sizeof(outer), "%s%.*s.", *kind == 's' ? "[services]" : "",
			         (int)strcspn(text, " \t=:"), text);
		if (indented || *kind != 's')
			rc = profile_take(profile, indented ? outer : "", text, !*kind);
	}
	if (line)
		explicit_bzero(line, size);
	free(line);
	return rc;
}

/* ------------------------------------------------------------------------------------- files */

/* Returns the path in the variable, or else in the user's folder, for the caller to free. */
static char *file_path(const char *variable, const char *usual)
{
	const char *path = sl_s3_variable(variable);
	const char *home = sl_s3_variable("HOME");

	return path && strncmp(path, "~/", 2)
	               ? strdup(path)
	               : sl_format("%s/%s", home ? home : "", path ? path + 2 : usual);
}

static int profile_read_file(struct sl_s3_profile *profile, const char *path, const char *variable,
                             const char *kind, const char *name, bool *found)
{
	FILE *file = fopen(path, "re");

	/* A file in another user's home is as good as missing. */
	if (!file && (errno == ENOENT || !sl_s3_variable(variable)))
		return 0;
	if (!file)
		return sl_fail(-errno, "%s: '%s': %s", variable, path, strerror(errno));
	int rc = profile_read(profile, file, kind, name, found);
	if (!rc && ferror(file))
		rc = sl_fail(-EIO, "'%s' cannot be read", path);
	fclose(file);
	return rc;
}

int sl_s3_profile_load(const char *name, struct sl_s3_profile *out)
{
	static const char credentials[] = "AWS_SHARED_CREDENTIALS_FILE",
			  config[] = "AWS_CONFIG_FILE";
	const char *named = name ? name : value_choose("AWS_PROFILE", "AWS_DEFAULT_PROFILE", NULL);
	struct sl_s3_profile profile = {.name = named ? named : "default"};
	bool has_services = false;

	profile.credentials = file_path(credentials, ".aws/credentials");
	profile.config = file_path(config, ".aws/config");
	int rc = profile.credentials && profile.config ? 0 : sl_fail(-ENOMEM, "no memory");
	if (!rc)
		rc = profile_read_file(&profile, profile.credentials, credentials, "", profile.name,
		                       &profile.found);
	if (!rc)
		rc = profile_read_file(&profile, profile.config, config, "profile", profile.name,
		                       &profile.found);
	/* Keys are never mixed from two files. */
	for (int i = SL_S3_SECRET; i <= SL_S3_TOKEN; i++)
		if (profile.of[SL_S3_KEY_ID] && profile.shared[i] != profile.shared[SL_S3_KEY_ID]) {
			free(profile.of[i]);
			profile.of[i] = NULL;
		}
	const char *services = profile.of[SL_S3_SERVICES];
	if (!rc && services)
		rc = profile_read_file(&profile, profile.config, config, "services", services,
		                       &has_services);
	/* A bad endpoint fails where it is asked for, and is told. */
	if (!rc && services && !has_services) {
		profile.of[SL_S3_ENDPOINT_S3] = sl_format("of services = %s, which is not in '%s',",
		                                          services, profile.config);
		rc = profile.of[SL_S3_ENDPOINT_S3] ? 0 : sl_fail(-ENOMEM, "no memory");
	}
	if (!rc && named && strcmp(named, "default") && !profile.found)
		rc = sl_fail(-EINVAL, "there is no profile '%s' in '%s' and '%s'", named,
		             profile.credentials, profile.config);
	if (rc)
		sl_s3_profile_clear(&profile);
	else
		*out = profile;
	return rc;
}

void sl_s3_profile_clear(struct sl_s3_profile *profile)
{
	free(profile->credentials);
	free(profile->config);
	for (int i = 0; i < SL_S3_VALUES; i++)
		sl_s3_text_clear(profile->of[i]);
}
