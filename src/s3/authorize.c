/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The lines of signed requests
 *
 * Makes the lines of header that a signed request has besides its own: the time, the digest of its body, the token of
 * the session, and the signature of all that begin with x-amz-.
 *
 * Threads: any.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "s3/authorize.h"

#define MOST_LINES 64 /* of the user that are signed */

void sl_s3_lines_clear(struct sl_s3_lines *lines)
{
	for (int i = 0; i < SL_S3_LINES && lines->of[i]; i++) {
		explicit_bzero(lines->of[i], strlen(lines->of[i]));
		free(lines->of[i]);
	}
	memset(lines, 0, sizeof(*lines));
}

bool sl_s3_lines_add(struct sl_s3_lines *lines, const char *name, const char *value)
{
	int i = 0;

	while (lines->of[i])
		i++;
	if (asprintf(&lines->of[i], "%s: %s", name, value) < 0)
		lines->of[i] = NULL;
	return lines->of[i];
}

/* Signs the lines of the request that begin with x-amz-, those of ours, and Host; for a URL all. */
static bool authorize_sign(struct sl_sign_request *request, const struct sl_s3_place *place,
                           const char *const *given, struct sl_s3_lines *lines)
{
	const char *all[MOST_LINES + SL_S3_LINES + 2];
	char *host, *signature;
	size_t count = 0;
	bool done;

	for (; given && *given && count < MOST_LINES; given++)
		if ((request->seconds || !strncasecmp(*given, "x-amz-", 6)) && strchr(*given, ':'))
			all[count++] = *given;
	for (int i = 0; lines->of[i]; i++)
		all[count++] = lines->of[i];
	if (asprintf(&host, "host: %s", place->host) < 0)
		return false;
	all[count++] = host;
	all[count] = NULL;
	request->lines = all;
	done = !sl_sign(request, &signature);
	free(host);
	if (!done)
		return false;
	if (request->seconds) {
		lines->of[0] = signature;
		return true;
	}
	done = sl_s3_lines_add(lines, "Authorization", signature);
	free(signature);
	return done;
}

bool sl_s3_authorize(struct sl_sign_request *request, const struct sl_s3_place *place,
                     const struct sl_s3_keys *keys, int64_t at, const char *const *given,
                     struct sl_s3_lines *lines)
{
	time_t seconds = (time_t)at;
	char date[sizeof("20150830T123600Z")];
	struct tm utc;

	gmtime_r(&seconds, &utc);
	strftime(date, sizeof(date), "%Y%m%dT%H%M%SZ", &utc);
	request->date = date;
	request->path = place->path;
	if (!request->query)
		request->query = place->query;
	request->id = keys->id;
	request->secret = keys->secret;
	request->token = keys->token;
	if (request->seconds)
		return authorize_sign(request, place, given, lines);
	return sl_s3_lines_add(lines, "x-amz-date", date) &&
	       sl_s3_lines_add(lines, "x-amz-content-sha256", request->payload) &&
	       (!keys->token || sl_s3_lines_add(lines, "x-amz-security-token", keys->token)) &&
	       authorize_sign(request, place, given, lines);
}
