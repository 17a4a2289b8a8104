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

static bool element_get(const char *xml, const char *name, char *out, size_t size)
{
	sl_s3_element(xml, name, out, size);
	return out[0];
}

static int role_call(const struct sl_settings *settings, const struct sl_s3_call *call,
                     struct sl_s3_keys *out)
{
	char *text = NULL;
	int rc = sl_s3_fetch(settings, call, &text);

	if (!rc && !sl_s3_keys_parse(element_get, text, "SessionToken", out))
		rc = sl_fail(-EACCES,
		             "there are no keys in the answer of the Security Token Service");
	sl_s3_text_clear(text);
	return rc;
}

int sl_s3_role_ask(const struct sl_s3_source *source, const struct sl_settings *settings,
                   struct sl_s3_keys *out)
{
	static const struct sl_s3_name server = {(char *)"", (char *)""};
	const struct sl_s3_source *base = source->base;
	struct sl_s3_keys asked = {0};
	/* As AWS's programs do it: other services know no GET. */
	const char *body = source->texts[2];
	char payload[SL_SIGN_HEX];
	struct sl_sign_request request = {
		.method = "POST", .payload = payload, .region = source->texts[1], .service = "sts"};
	struct sl_s3_lines lines = {{NULL}};
	struct sl_s3_place place = {0};
	int rc =
		sl_s3_place_find(&server, source->texts[0], "path", source->texts[1], NULL, &place);

	if (!rc)
		rc = sl_sign_payload(body, strlen(body), payload);
	if (!rc && base->ask)
		rc = base->ask(base, settings, &asked);
	if (!rc && !sl_s3_authorize(&request, &place, base->ask ? &asked : &base->keys, time(NULL),
	                            NULL, &lines))
		rc = sl_fail(-ENOMEM, "no memory to sign a request");
	if (!rc) {
		struct sl_s3_call call = {"keys", "POST", place.url, (const char *const *)lines.of,
		                          body,   false};

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
		struct sl_s3_call call = {"keys", "POST", source->texts[0], NULL, body, false};

		rc = role_call(settings, &call, out);
	}
	sl_s3_text_clear(token);
	sl_s3_text_clear(encoded);
	sl_s3_text_clear(body);
	return rc;
}
