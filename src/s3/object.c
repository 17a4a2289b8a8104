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
#include "s3/sign.h"

struct sl_s3 {
	struct sl_s3_keyring *keyring;
	struct sl_s3_note *note; /* of endpoint and bucket */
	char region[SL_S3_TEXT];
	char *ca_bundle; /* of AWS's settings; or NULL */
	bool requester_pays, sign_payload;
	struct sl_s3_keys keys;      /* without an issuer */
	struct sl_s3_issuer *issuer; /* of keys that expire; or NULL */
	struct sl_s3_place place;

	struct sl_mutex mutex;
	struct {
		bool skewed;
		int64_t skew; /* seconds that the server's clock is ahead */
		struct sl_sign_key key;
		unsigned version; /* of the keys that it is derived from */
	} locked SL_GUARDED_BY(&mutex);
};

/* -------------------------------------------------------------------------------------- open */

static int object_place(struct sl_s3 *s3, const struct sl_s3_name *name,
                        const struct sluice_s3_options *options,
                        const struct sl_s3_profile *profile, const char *query)
{
	const char *region = sl_s3_region(options->region, profile);
	const char *endpoint =
		options->endpoint ? options->endpoint : sl_s3_endpoint(profile, SL_S3_ENDPOINT_S3);
	const char *bundle = sl_s3_variable("AWS_CA_BUNDLE");
	const char *addressing =
		options->addressing ? options->addressing : profile->of[SL_S3_ADDRESSING];
	char *where;

	if (addressing && !strcmp(addressing, "auto"))
		addressing = NULL;
	if (strlen(region) >= SL_S3_TEXT)
		return sl_fail(-EINVAL, "the region '%s' is too long", region);
	strcpy(s3->region, region);
	bundle = bundle ? bundle : profile->of[SL_S3_CA_BUNDLE];
	where = sl_format("%s %s", endpoint ? endpoint : "", name->bucket);
	s3->note = where ? sl_s3_note_keep(s3->keyring, where) : NULL;
	free(where);
	s3->ca_bundle = bundle ? strdup(bundle) : NULL;
	if (!s3->note || (bundle && !s3->ca_bundle))
		return sl_fail(-ENOMEM, "no memory");
	sl_s3_region_find(s3->keyring, s3->note, s3->region);
	return sl_s3_place_find(name, endpoint, addressing, s3->region, query, &s3->place);
}

static int object_know(struct sl_s3 *s3, struct sl_pool *waiting,
                       const struct sluice_s3_options *options, const struct sl_s3_profile *profile)
{
	struct sl_s3_source source;
	int rc = sl_s3_source_find(options, profile, &source);

	if (rc)
		return rc;
	if (source.ask) {
		bool guessed = source.guessed;

		rc = sl_s3_issuer_acquire(s3->keyring, waiting, &source, &s3->issuer);
		return rc && guessed && waiting
		               ? sl_s3_source_missing(profile, sluice_last_message())
		               : rc;
	}
	s3->keys = source.keys;
	return sl_s3_keys_check(&s3->keys, source.kind);
}

/* Finds place and credentials. */
static int object_resolve(struct sl_s3 *s3, struct sl_pool *waiting, const struct sl_s3_name *name,
                          const struct sluice_s3_options *options, const char *query)
{
	char *version = NULL, *id;
	struct sl_s3_profile profile;
	int rc = sl_s3_profile_load(options->profile, &profile);

	if (rc)
		return rc;
	if (options->version) {
		id = sl_s3_encode(options->version, false);
		version = id ? sl_format("versionId=%s", id) : NULL;
		rc = version ? 0 : sl_fail(-ENOMEM, "no memory");
		free(id);
	}
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
	struct sl_s3 *s3 = calloc(1, sizeof(*s3));
	int rc = 0;

	if (!s3)
		return sl_fail(-ENOMEM, "no memory");
	sl_mutex_init(&s3->mutex);
	s3->keyring = keyring;
	if (given)
		memcpy(&options, given, SL_MIN(given->size, sizeof(options)));
	s3->requester_pays = options.requester_pays;
	s3->sign_payload = options.sign_payload;
	if (!query || !sl_s3_is_service(uri))
		rc = sl_s3_name_parse(uri, &name);
	else if (!(name.bucket = strdup("")) || !(name.key = strdup("")))
		rc = sl_fail(-ENOMEM, "no memory");
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

int sl_s3_check(struct sl_s3_keyring *keyring, struct sl_pool *waiting,
                const struct sluice_s3_options *given)
{
	struct sluice_s3_options options = {0};
	struct sl_s3 s3 = {.keyring = keyring};
	struct sl_s3_profile profile;
	int rc;

	if (given)
		memcpy(&options, given, SL_MIN(given->size, sizeof(options)));
	rc = sl_s3_profile_load(options.profile, &profile);
	if (rc)
		return rc;
	rc = object_know(&s3, waiting, &options, &profile);
	sl_s3_keys_clear(&s3.keys);
	sl_s3_profile_clear(&profile);
	return rc;
}

void sl_s3_feature(struct sl_s3_keyring *keyring, struct sluice_feature *out)
{
	static const struct sluice_s3_options options = SLUICE_S3_OPTIONS_INIT;
	struct sl_s3_source source = {0};
	struct sl_s3_profile profile;
	struct sl_s3_note *note;
	int rc = sl_s3_profile_load(NULL, &profile);

	if (!rc) {
		rc = sl_s3_source_find(&options, &profile, &source);
		if (!rc && !source.ask)
			rc = sl_s3_keys_check(&source.keys, source.kind);
		sl_s3_profile_clear(&profile);
	}
	out->name = "s3";
	out->usable = !rc;
	note = rc ? sl_s3_note_keep(keyring, sluice_last_message()) : NULL;
	out->detail = note ? note->text : rc ? "" : source.kind;
	out->effect = rc               ? "only public objects can be read, without a signature"
	              : source.guessed ? "it is asked for credentials, since nothing names others"
	              : source.ask     ? "it is asked for the credentials that sign requests to S3"
	                               : "requests to S3 are signed with these credentials";
	out->remedy = rc ? "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE" : NULL;
	sl_s3_source_clear(&source);
}

void sl_s3_close(struct sl_s3 *s3)
{
	if (!s3)
		return;
	sl_s3_place_clear(&s3->place);
	sl_s3_keys_clear(&s3->keys);
	free(s3->ca_bundle);
	sl_mutex_destroy(&s3->mutex);
	explicit_bzero(s3, sizeof(*s3));
	free(s3);
}

const char *sl_s3_url(const struct sl_s3 *s3)
{
	return s3->place.url;
}

struct sl_s3_habits *sl_s3_habits_of(const struct sl_s3 *s3)
{
	return &s3->note->habits;
}

const char *sl_s3_ca_bundle(const struct sl_s3 *s3)
{
	return s3->ca_bundle;
}

/* -------------------------------------------------------------------------------------- sign */

int sl_s3_payload(const struct sl_s3 *s3, const void *body, size_t bytes, char out[SL_S3_PAYLOAD])
{
	strcpy(out, "UNSIGNED-PAYLOAD");
	return s3->sign_payload ? sl_sign_payload(body, bytes, out) : 0;
}

int sl_s3_sign(struct sl_s3 *s3, const char *method, const char *query, const char *payload,
               unsigned seconds, const struct curl_slist *given, struct sl_s3_signed *out)
{
	struct sl_s3_signed made = {NULL};
	struct sl_s3_keys copy = {0};
	const struct sl_s3_keys *keys = &s3->keys;
	struct sl_sign_request request = {.method = method,
	                                  .query = query,
	                                  .region = s3->region,
	                                  .service = "s3",
	                                  .seconds = seconds,
	                                  .payload = payload ? payload : SL_S3_EMPTY};
	int64_t now = time(NULL), skew;
	struct sl_sign_key key;
	char *pays = NULL;
	int rc = 0;

	if (s3->issuer) {
		rc = sl_s3_issuer_copy(s3->issuer, now, &copy, &made.version);
		keys = &copy;
	}
	if (!rc && seconds && !keys->id)
		rc = sl_fail(-EINVAL,
		             "a presigned URL needs keys, which anonymous users have none of");
	if (rc)
		return rc;
	made.expires = keys->expires;
	sl_mutex_lock(&s3->mutex);
	skew = s3->locked.skew;
	key = s3->locked.key;
	if (made.version != s3->locked.version)
		key.day[0] = '\0';
	sl_mutex_unlock(&s3->mutex);
	request.key = &key;
	if (s3->requester_pays && seconds) {
		request.query = pays = sl_format("%s%sx-amz-request-payer=requester",
		                                 s3->place.query, *s3->place.query ? "&" : "");
		rc = pays ? 0 : sl_fail(-ENOMEM, "no memory");
	} else if (s3->requester_pays) {
		rc = sl_s3_line_add(&made.lines, "x-amz-request-payer: requester");
	}
	if (!rc && keys->id)
		rc = sl_s3_authorize(&request, &s3->place, keys, now + skew, given, &made.lines);
	free(pays);
	sl_s3_keys_clear(&copy);
	sl_mutex_lock(&s3->mutex);
	s3->locked.key = key;
	s3->locked.version = made.version;
	sl_mutex_unlock(&s3->mutex);
	explicit_bzero(&key, sizeof(key));
	if (rc)
		sl_s3_lines_clear(&made.lines);
	else
		*out = made;
	return rc;
}

/* ------------------------------------------------------------------------------------ remedy */

enum sl_s3_remedy sl_s3_remedy_find(struct sl_s3 *s3, unsigned version, long status,
                                    const struct sl_s3_error *error, int64_t date)
{
	enum sl_s3_remedy remedy = SL_S3_NONE;

	if (s3->issuer && sl_s3_error_is(error, " ExpiredToken TokenRefreshRequired InvalidToken "))
		return sl_s3_issuer_renew(s3->issuer, version) ? SL_S3_LATER : SL_S3_NONE;
	if ((status / 100 == 3 || status == 400 || status == 403) && error->region[0] &&
	    strcmp(error->region, s3->region)) {
		sl_s3_region_keep(s3->keyring, s3->note, error->region);
		return SL_S3_MOVE;
	}
	sl_mutex_lock(&s3->mutex);
	if (!s3->locked.skewed && date >= 0 &&
	    sl_s3_error_is(error, " RequestTimeTooSkewed RequestExpired ")) {
		s3->locked.skew = date - time(NULL);
		s3->locked.skewed = true;
		remedy = SL_S3_AGAIN;
	}
	sl_mutex_unlock(&s3->mutex);
	return remedy;
}
