/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Credentials of containers and machines
 *
 * Asks the service that a cloud has for each of its containers, or machines (IMDS, in its second version, which gives a
 * token first), for the keys of the role that they have.
 *
 * Threads: any that may wait: the answer ends the wait, or a time of some seconds.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "s3/credentials.h"
#include "s3/fetch.h"
#include "s3/place.h"

#define MOST_TOKEN 4096

int sl_s3_token_read(const char *path, char *text, size_t size)
{
	FILE *file = fopen(path, "re");
	size_t length = file ? fread(text, 1, size - 1, file) : 0;

	if (file)
		fclose(file);
	text[length] = '\0';
	text[strcspn(text, "\r\n")] = '\0';
	return text[0] ? 0
	               : sl_fail(-EACCES, "the file '%s' with a token %s", path,
	                         file ? "is empty" : "cannot be read");
}

/* Asks for keys in JSON. Returns 0, or -EACCES with a sentence. */
static int metadata_keys(const struct sl_settings *settings, const char *url, const char *line,
                         struct sl_s3_keys *out)
{
	const char *lines[] = {line, NULL};
	struct sl_s3_call call = {"keys", "GET", url, lines, NULL, true};
	char *text = NULL;
	int rc = sl_s3_fetch(settings, &call, &text);

	if (!rc && !sl_s3_keys_parse(sl_s3_json_get, text, "Token", out))
		rc = sl_fail(-EACCES, "there are no keys in the answer of the metadata service");
	sl_s3_text_clear(text);
	return rc;
}

int sl_s3_container_ask(const struct sl_s3_source *source, const struct sl_settings *settings,
                        struct sl_s3_keys *out)
{
	const char *url = source->texts[0], *given = source->texts[1], *path = source->texts[2];
	char token[MOST_TOKEN] = "", line[MOST_TOKEN + 32];
	int rc = path ? sl_s3_token_read(path, token, sizeof(token)) : 0;

	if (!path && given)
		snprintf(token, sizeof(token), "%s", given);
	if (!rc && !sl_s3_fetch_is_safe(url))
		rc = sl_fail(-EINVAL, "AWS_CONTAINER_CREDENTIALS_FULL_URI is no URL by https, of "
		                      "this machine, or of ECS or EKS");
	if (!rc && strpbrk(token, "\r\n"))
		rc = sl_fail(-EINVAL, "AWS_CONTAINER_AUTHORIZATION_TOKEN has more than a line");
	snprintf(line, sizeof(line), "Authorization: %s", token);
	if (!rc)
		rc = metadata_keys(settings, url, token[0] ? line : NULL, out);
	explicit_bzero(token, sizeof(token));
	explicit_bzero(line, sizeof(line));
	return rc;
}

/* Makes a call for a line of text, for the caller to clear. Returns 0, or -EACCES with a sentence. */
static int machine_line(const struct sl_settings *settings, const char *what, const char *method,
                        const char *url, const char *line, char **out)
{
	const char *lines[] = {line, NULL};
	struct sl_s3_call call = {what, method, url, lines, NULL, true};
	int rc = sl_s3_fetch(settings, &call, out);

	if (!rc)
		(*out)[strcspn(*out, "\r\n")] = '\0';
	return rc;
}

int sl_s3_machine_ask(const struct sl_s3_source *source, const struct sl_settings *settings,
                      struct sl_s3_keys *out)
{
	const char *service = source->texts[0];
	char line[MOST_TOKEN], url[1024], *token = NULL, *role = NULL, *name = NULL;
	int rc;

	snprintf(url, sizeof(url), "%.256s/latest/api/token", service);
	rc = machine_line(settings, "token", "PUT", url,
	                  "X-aws-ec2-metadata-token-ttl-seconds: 21600", &token);
	if (rc)
		return rc;
	snprintf(line, sizeof(line), "X-aws-ec2-metadata-token: %s", token);
	snprintf(url, sizeof(url), "%.256s/latest/meta-data/iam/security-credentials/", service);
	rc = machine_line(settings, "role", "GET", url, line, &role);
	if (!rc && !(name = sl_s3_encode(role, false)))
		rc = sl_fail(-ENOMEM, "no memory");
	if (!rc) {
		snprintf(url + strlen(url), sizeof(url) - strlen(url), "%s", name);
		rc = metadata_keys(settings, url, line, out);
	}
	sl_s3_text_clear(token);
	free(role);
	free(name);
	explicit_bzero(line, sizeof(line));
	return rc;
}
