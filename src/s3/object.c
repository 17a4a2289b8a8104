/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Objects of S3
 *
 * Finds the place and the credentials of an object once, when its file is opened, and signs the requests for it. A
 * server's error may correct the clock, and the region for files that are opened later.
 *
 * Threads: opening waits on the caller's thread. Requests are signed by the reactors: the clock has a mutex.
 */
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "s3/keyring.h"
#include "s3/place.h"
#include "s3/s3.h"
#include "s3/sign.h"

#define EMPTY_SHA256 "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
#define DATE         sizeof("20150830T123600Z")
#define MOST_LINES   64 /* of the user that are signed */

struct sl_s3 {
	struct sl_s3_keyring *keyring;
	char *where; /* endpoint and bucket, of which the keyring knows the region */
	char region[SL_S3_TEXT];
	bool requester_pays;
	struct sl_s3_keys keys;        /* without a process */
	struct sl_s3_process *process; /* that prints the keys; or NULL */
	struct sl_s3_place place;

	struct sl_mutex mutex;
	struct {
		bool skewed;
		int64_t skew; /* seconds that the server's clock is ahead */
	} locked SL_GUARDED_BY(&mutex);
};

/* -------------------------------------------------------------------------------------- open */

/* The first of an option, a variable and a value of the profile. */
static const char *value_choose(const char *option, const char *const *variables,
                                const char *of_profile)
{
	const char *set = option ? option : sl_s3_variable(variables);

	return set ? set : of_profile;
}

static int object_place(struct sl_s3 *s3, const struct sl_s3_name *name,
                        const struct sluice_s3_options *options,
                        const struct sl_s3_profile *profile, const char *query)
{
	static const char *const regions[] = {"AWS_REGION", "AWS_DEFAULT_REGION", NULL};
	static const char *const endpoints[] = {"AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", NULL};
	const char *region = value_choose(options->region, regions, profile->of[SL_S3_REGION]);
	const char *endpoint =
		value_choose(options->endpoint, endpoints, profile->of[SL_S3_ENDPOINT]);
	const char *addressing =
		options->addressing ? options->addressing : profile->of[SL_S3_ADDRESSING];

	if (addressing && !strcmp(addressing, "auto"))
		addressing = NULL;
	if (region && strlen(region) >= SL_S3_TEXT)
		return sl_fail(-EINVAL, "the region '%s' is too long", region);
	strcpy(s3->region, region ? region : "us-east-1");
	if (asprintf(&s3->where, "%s %s", endpoint ? endpoint : "", name->bucket) < 0) {
		s3->where = NULL;
		return sl_fail(-ENOMEM, "no memory");
	}
	sl_s3_region_find(s3->keyring, s3->where, s3->region);
	return sl_s3_place_find(name, endpoint, addressing, s3->region, query, &s3->place);
}

/* Whether a key can be a part of a line of header. */
static bool key_is_visible(const char *text)
{
	while (*text > ' ' && *text < 0x7f)
		text++;
	return !*text;
}

static int object_know(struct sl_s3 *s3, struct sl_pool *waiting,
                       const struct sluice_s3_options *options, const struct sl_s3_profile *profile)
{
	struct sl_s3_source source;
	int rc = sl_s3_source_find(options, profile, &source);

	if (rc)
		return rc;
	if (source.command) {
		rc = sl_s3_process_acquire(s3->keyring, waiting, source.command, &s3->process);
		sl_s3_source_clear(&source);
		return rc;
	}
	s3->keys = source.keys;
	if (s3->keys.id && (!key_is_visible(s3->keys.id) || !key_is_visible(s3->keys.secret) ||
	                    (s3->keys.token && !key_is_visible(s3->keys.token))))
		return sl_fail(-EINVAL, "%s: there is a blank or a control character in a key",
		               source.kind);
	return 0;
}

/* Finds place and credentials. */
static int object_resolve(struct sl_s3 *s3, struct sl_pool *waiting, const struct sl_s3_name *name,
                          const struct sluice_s3_options *options, const char *query)
{
	char *version = NULL, *id = options->version ? sl_s3_encode(options->version, false) : NULL;
	struct sl_s3_profile profile;
	int rc = sl_s3_profile_load(options->profile, &profile);

	if (rc) {
		free(id);
		return rc;
	}
	if (options->version && (!id || asprintf(&version, "versionId=%s", id) < 0)) {
		version = NULL;
		rc = sl_fail(-ENOMEM, "no memory");
	}
	free(id);
	if (!rc)
		rc = object_place(s3, name, options, &profile, query ? query : version);
	free(version);
	if (!rc)
		rc = object_know(s3, waiting, options, &profile);
	sl_s3_profile_clear(&profile);
	return rc;
}

int sl_s3_open(struct sl_s3_keyring *keyring, struct sl_pool *waiting, const char *uri,
               const struct sluice_s3_options *given, const char *query, struct sl_s3 **out)
{
	struct sluice_s3_options options = {0};
	struct sl_s3_name name = {NULL, NULL};
	struct sl_s3 *s3;
	int rc = sl_sign_check();

	if (rc)
		return rc;
	s3 = calloc(1, sizeof(*s3));
	if (!s3)
		return sl_fail(-ENOMEM, "no memory");
	sl_mutex_init(&s3->mutex);
	s3->keyring = keyring;
	if (given)
		memcpy(&options, given, SL_MIN(given->size, sizeof(options)));
	s3->requester_pays = options.requester_pays;
	rc = sl_s3_name_parse(uri, &name);
	if (!rc && !query && !name.key[0])
		rc = sl_fail(-EISDIR, "'%s' is a bucket, not an object", uri);
	if (!rc) {
		/* A list is of the bucket. */
		if (query)
			name.key[0] = '\0';
		rc = object_resolve(s3, waiting, &name, &options, query);
		if (rc)
			sl_fail(rc, "'%s': %s", uri, sluice_last_message());
	}
	sl_s3_name_clear(&name);
	if (rc)
		sl_s3_close(s3);
	else
		*out = s3;
	return rc;
}

void sl_s3_feature(struct sluice_feature *out)
{
	static const struct sluice_s3_options options = SLUICE_S3_OPTIONS_INIT;
	struct sl_s3_profile profile;
	struct sl_s3_source source;
	bool built = !sl_sign_check();
	int rc = sl_s3_profile_load(NULL, &profile);

	if (!rc) {
		rc = sl_s3_source_find(&options, &profile, &source);
		sl_s3_profile_clear(&profile);
	}
	out->name = "s3";
	out->usable = !rc && built;
	out->detail = !built ? "this library was built without libcrypto"
	              : rc   ? "there are no credentials"
	                     : source.kind;
	out->effect = !built ? "objects of S3 cannot be opened"
	              : rc   ? "only public objects can be read, without a signature"
	                     : "requests to S3 are signed with these credentials";
	out->remedy = !built ? "install libssl-dev and build again"
	              : rc   ? "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE"
	                     : NULL;
	if (!rc)
		sl_s3_source_clear(&source);
}

void sl_s3_close(struct sl_s3 *s3)
{
	if (!s3)
		return;
	sl_s3_place_clear(&s3->place);
	sl_s3_keys_clear(&s3->keys);
	free(s3->where);
	sl_mutex_destroy(&s3->mutex);
	free(s3);
}

const char *sl_s3_url(const struct sl_s3 *s3)
{
	return s3->place.url;
}

/* -------------------------------------------------------------------------------------- sign */

void sl_s3_lines_clear(struct sl_s3_lines *lines)
{
	for (int i = 0; i < SL_S3_LINES && lines->of[i]; i++) {
		explicit_bzero(lines->of[i], strlen(lines->of[i]));
		free(lines->of[i]);
	}
	memset(lines, 0, sizeof(*lines));
}

/* Adds a line; returns false without memory. */
static bool lines_add(struct sl_s3_lines *lines, const char *name, const char *value)
{
	int i = 0;

	while (lines->of[i])
		i++;
	if (asprintf(&lines->of[i], "%s: %s", name, value) < 0)
		lines->of[i] = NULL;
	return lines->of[i];
}

/* Signs the lines of the request that begin with x-amz-, those of ours, and Host. */
static int object_authorize(struct sl_s3 *s3, const struct sl_s3_keys *keys,
                            struct sl_sign_request *request, const char *const *given,
                            struct sl_s3_lines *lines)
{
	const char *all[MOST_LINES + SL_S3_LINES + 2];
	char *host, *signature;
	size_t count = 0;
	int rc;

	for (; *given && count < MOST_LINES; given++)
		if (!strncasecmp(*given, "x-amz-", 6) && strchr(*given, ':'))
			all[count++] = *given;
	for (int i = 0; lines->of[i]; i++)
		all[count++] = lines->of[i];
	if (asprintf(&host, "host: %s", s3->place.host) < 0)
		return -ENOMEM;
	all[count++] = host;
	all[count] = NULL;
	request->lines = all;
	request->path = s3->place.path;
	request->service = "s3";
	request->id = keys->id;
	request->secret = keys->secret;
	rc = sl_sign(request, &signature);
	free(host);
	if (rc)
		return rc;
	rc = lines_add(lines, "Authorization", signature) ? 0 : -ENOMEM;
	free(signature);
	return rc;
}

int sl_s3_sign(struct sl_s3 *s3, const char *method, const char *query, const char *const *given,
               struct sl_s3_lines *out)
{
	char date[DATE];
	struct sl_s3_lines lines = {{NULL}};
	struct sl_s3_keys copy = {0};
	const struct sl_s3_keys *keys = &s3->keys;
	bool has_body = !strcmp(method, "PUT") || !strcmp(method, "POST");
	struct sl_sign_request request = {.method = method,
	                                  .query = query ? query : s3->place.query,
	                                  .date = date,
	                                  .region = s3->region};
	time_t now = time(NULL), at;
	struct tm utc;
	bool done;
	int rc = 0;

	sl_mutex_lock(&s3->mutex);
	at = now + s3->locked.skew;
	sl_mutex_unlock(&s3->mutex);
	gmtime_r(&at, &utc);
	strftime(date, sizeof(date), "%Y%m%dT%H%M%SZ", &utc);
	if (s3->process) {
		rc = sl_s3_process_copy(s3->process, now, &copy);
		keys = &copy;
	}
	if (rc)
		return rc;
	request.payload = has_body ? "UNSIGNED-PAYLOAD" : EMPTY_SHA256;
	done = !s3->requester_pays || lines_add(&lines, "x-amz-request-payer", "requester");
	if (keys->id)
		done = done && lines_add(&lines, "x-amz-date", date) &&
		       lines_add(&lines, "x-amz-content-sha256", request.payload) &&
		       (!keys->token || lines_add(&lines, "x-amz-security-token", keys->token)) &&
		       !object_authorize(s3, keys, &request, given, &lines);
	sl_s3_keys_clear(&copy);
	if (!done) {
		sl_s3_lines_clear(&lines);
		return sl_fail(-ENOMEM, "no memory to sign a request");
	}
	*out = lines;
	return 0;
}

/* ------------------------------------------------------------------------------------ remedy */

static bool code_is(const struct sl_s3_error *error, const char *const *codes)
{
	while (*codes && strcmp(*codes, error->code))
		codes++;
	return *codes;
}

enum sl_s3_remedy sl_s3_remedy_find(struct sl_s3 *s3, long status, const struct sl_s3_error *error,
                                    int64_t date)
{
	static const char *const skewed[] = {"RequestTimeTooSkewed", "RequestExpired", NULL};
	static const char *const expired[] = {"ExpiredToken", "TokenRefreshRequired",
	                                      "InvalidToken", NULL};
	enum sl_s3_remedy remedy = SL_S3_NONE;

	if (s3->process && code_is(error, expired))
		return sl_s3_process_renew(s3->process) ? SL_S3_LATER : SL_S3_NONE;
	if ((status / 100 == 3 || status == 400 || status == 403) && error->region[0] &&
	    strcmp(error->region, s3->region)) {
		sl_s3_region_keep(s3->keyring, s3->where, error->region);
		return SL_S3_MOVE;
	}
	sl_mutex_lock(&s3->mutex);
	if (!s3->locked.skewed && date >= 0 && code_is(error, skewed)) {
		s3->locked.skew = date - time(NULL);
		s3->locked.skewed = true;
		remedy = SL_S3_AGAIN;
	}
	sl_mutex_unlock(&s3->mutex);
	return remedy;
}
