/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Credentials of containers and machines
 *
 * Asks the service that a cloud has for each of its containers, or machines (IMDS, in its second version, which gives a
 * token first), for the keys of the role that they have.
 *
 * Threads: any that may wait: the answer ends the wait, or a time of some seconds.
 */
#include <arpa/inet.h>
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
	struct sl_s3_call call = {.method = "GET", .url = url, .lines = lines, .near = true};
	char *text = malloc(SL_S3_ANSWER);
	int rc = text ? sl_s3_fetch(settings, &call, text, SL_S3_ANSWER)
	              : sl_fail(-ENOMEM, "no memory");

	if (rc > 0 && rc != 200)
		rc = sl_fail(-EACCES, "'%s' answered with HTTP %d", url, rc);
	else if (rc == 200 && !sl_s3_keys_parse(text, "Token", out))
		rc = sl_fail(-EACCES, "'%s' has no credentials in its answer", url);
	if (text)
		explicit_bzero(text, SL_S3_ANSWER);
	free(text);
	return SL_MIN(rc, 0);
}

/* ---------------------------------------------------------------------------------- container */

/* Whether a token may be sent to that host without TLS: that of this machine, or of ECS and EKS. */
static bool host_is_near(const char *host)
{
	static const char *const services[] = {"localhost", "169.254.170.2", "169.254.170.23",
	                                       "[::1]", "[fd00:ec2::23]"};
	struct in_addr address;

	for (size_t i = 0; i < sizeof(services) / sizeof(services[0]); i++)
		if (!strcmp(host, services[i]))
			return true;
	return inet_pton(AF_INET, host, &address) == 1 && ntohl(address.s_addr) >> 24 == 127;
}

int sl_s3_container_ask(const struct sl_s3_source *source, const struct sl_settings *settings,
                        struct sl_s3_keys *out)
{
	const char *url = source->texts[0], *given = source->texts[1], *path = source->texts[2];
	char token[MOST_TOKEN], *host, *line = NULL;
	bool is_plain, near;
	int rc = 0;

	if (!sl_s3_fetch_host(url, &is_plain, &host))
		return sl_fail(-EINVAL, "AWS_CONTAINER_CREDENTIALS_FULL_URI '%s' is no URL", url);
	near = host_is_near(host);
	free(host);
	if (is_plain && !near)
		return sl_fail(-EINVAL,
		               "AWS_CONTAINER_CREDENTIALS_FULL_URI '%s' is neither https, nor of "
		               "this machine, nor of ECS or EKS",
		               url);
	if (path)
		rc = sl_s3_token_read(path, token, sizeof(token));
	if (!rc && (path || given) &&
	    asprintf(&line, "Authorization: %s", path ? token : given) < 0) {
		line = NULL;
		rc = sl_fail(-ENOMEM, "no memory");
	}
	if (!rc && line && strpbrk(line, "\r\n"))
		rc = sl_fail(-EINVAL, "AWS_CONTAINER_AUTHORIZATION_TOKEN has more than a line");
	if (!rc)
		rc = metadata_keys(settings, url, line, out);
	if (line)
		explicit_bzero(line, strlen(line));
	free(line);
	explicit_bzero(token, sizeof(token));
	return rc;
}

/* ------------------------------------------------------------------------------------ machine */

/* Makes a call for a line of text. Returns 0, or -EACCES with a sentence. */
static int machine_line(const struct sl_settings *settings, const struct sl_s3_call *call,
                        char *text, size_t size)
{
	int status = sl_s3_fetch(settings, call, text, size);

	if (status < 0)
		return status;
	text[strcspn(text, "\r\n")] = '\0';
	if (status == 200 && text[0])
		return 0;
	return sl_fail(-EACCES, "'%s' answered with HTTP %d%s", call->url, status,
	               status == 404 ? ": the machine has no role" : "");
}

int sl_s3_machine_ask(const struct sl_s3_source *source, const struct sl_settings *settings,
                      struct sl_s3_keys *out)
{
	static const char *const lasts[] = {"X-aws-ec2-metadata-token-ttl-seconds: 21600", NULL};
	static const char path[] = "/latest/meta-data/iam/security-credentials/";
	const char *service = source->texts[0];
	char token[MOST_TOKEN], role[256], line[MOST_TOKEN + 32], url[1024], *name = NULL;
	const char *lines[] = {line, NULL};
	struct sl_s3_call call = {.method = "PUT", .url = url, .lines = lasts, .near = true};
	int rc;

	snprintf(url, sizeof(url), "%.256s/latest/api/token", service);
	rc = machine_line(settings, &call, token, sizeof(token));
	snprintf(line, sizeof(line), "X-aws-ec2-metadata-token: %s", token);
	snprintf(url, sizeof(url), "%.256s%s", service, path);
	call.method = "GET";
	call.lines = lines;
	if (!rc)
		rc = machine_line(settings, &call, role, sizeof(role));
	if (!rc && !(name = sl_s3_encode(role, false)))
		rc = sl_fail(-ENOMEM, "no memory");
	if (!rc) {
		snprintf(url + strlen(url), sizeof(url) - strlen(url), "%s", name);
		rc = metadata_keys(settings, url, line, out);
	}
	free(name);
	explicit_bzero(token, sizeof(token));
	explicit_bzero(line, sizeof(line));
	return rc;
}
