/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Roles
 *
 * Asks the Security Token Service of AWS for the keys of a role: with keys that may assume it (AssumeRole), or with the
 * token of a web identity (AssumeRoleWithWebIdentity).
 *
 * Threads: any that may wait: the answer ends the wait, or its time.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "s3/authorize.h"
#include "s3/fetch.h"

#define MOST_TOKEN 32768

/* Takes the keys out of the XML of the answer. Returns 0, or -EACCES with a sentence. */
static int role_parse(const char *xml, struct sl_s3_keys *out)
{
	static const char *const names[] = {"AccessKeyId", "SecretAccessKey", "SessionToken"};
	char value[SL_SECRET_TEXT], *texts[3];

	sl_s3_element(xml, "Expiration", value, sizeof(value));
	struct sl_s3_keys keys = {.expires = SL_MAX(sl_s3_time(value), 0)};
	for (int i = 0; i < 3; i++) {
		sl_s3_element(xml, names[i], value, sizeof(value));
		texts[i] = value[0] ? strdup(value) : NULL;
	}
	explicit_bzero(value, sizeof(value));
	keys.id = texts[0];
	keys.secret = texts[1];
	keys.token = texts[2];
	*out = keys;
	if (keys.id && keys.secret && keys.token)
		return 0;
	sl_s3_keys_clear(out);
	return sl_fail(-EACCES, "the Security Token Service gave no keys");
}

static int role_call(const struct sl_settings *settings, const struct sl_s3_call *call,
                     struct sl_s3_keys *out)
{
	char *text = malloc(SL_S3_ANSWER);
	struct sl_s3_error error;
	int rc = text ? sl_s3_fetch(settings, call, text, SL_S3_ANSWER)
	              : sl_fail(-ENOMEM, "no memory");

	if (rc == 200) {
		rc = role_parse(text, out);
	} else if (rc > 0) {
		sl_s3_error_parse(text, &error);
		rc = sl_fail(-EACCES, "the Security Token Service answered with HTTP %d: %s: %s",
		             rc, error.code, error.message);
	}
	if (text)
		explicit_bzero(text, SL_S3_ANSWER);
	free(text);
	return rc;
}

int sl_s3_role_ask(const struct sl_s3_source *source, const struct sl_settings *settings,
                   struct sl_s3_keys *out)
{
	static const struct sl_s3_name server = {(char *)"", (char *)""};
	const struct sl_s3_source *base = source->base;
	struct sl_s3_keys asked = {0};
	struct sl_sign_request request = {.method = "GET",
	                                  .payload = SL_S3_EMPTY,
	                                  .region = source->texts[1],
	                                  .service = "sts"};
	struct sl_s3_lines lines = {{NULL}};
	struct sl_s3_place place = {0};
	int rc = sl_s3_place_find(&server, source->texts[0], "path", source->texts[1],
	                          source->texts[2], &place);

	if (!rc && base->ask)
		rc = base->ask(base, settings, &asked);
	if (!rc && !sl_s3_authorize(&request, &place, base->ask ? &asked : &base->keys, time(NULL),
	                            NULL, &lines))
		rc = sl_fail(-ENOMEM, "no memory to sign a request");
	if (!rc) {
		struct sl_s3_call call = {"GET", place.url, (const char *const *)lines.of, NULL,
		                          false};

		rc = role_call(settings, &call, out);
	}
	sl_s3_lines_clear(&lines);
	sl_s3_keys_clear(&asked);
	sl_s3_place_clear(&place);
	return rc;
}

int sl_s3_identity_ask(const struct sl_s3_source *source, const struct sl_settings *settings,
                       struct sl_s3_keys *out)
{
	char *token = malloc(MOST_TOKEN), *encoded = NULL, *body = NULL;
	int rc = token ? sl_s3_token_read(source->texts[1], token, MOST_TOKEN)
	               : sl_fail(-ENOMEM, "no memory");

	if (!rc) {
		encoded = sl_s3_encode(token, false);
		if (!encoded ||
		    asprintf(&body, "%s&WebIdentityToken=%s", source->texts[2], encoded) < 0) {
			body = NULL;
			rc = sl_fail(-ENOMEM, "no memory");
		}
	}
	if (!rc) {
		struct sl_s3_call call = {"POST", source->texts[0], NULL, body, false};

		rc = role_call(settings, &call, out);
	}
	sl_s3_text_clear(token);
	sl_s3_text_clear(encoded);
	sl_s3_text_clear(body);
	return rc;
}
