/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Objects of S3
 *
 * Finds an object's address and credentials once, when the file is opened, and signs the requests
 * for it. A server's error may correct the clock, and the region for later files.
 *
 * Threads: opening waits on the caller's thread. Requests are signed by the reactors: the clock has
 * a mutex.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#include <curl/curl.h>

#include "s3/keyring.h"
#include "s3/sign.h"

struct sl_s3 {
	struct sl_signer base;
	struct sl_s3_keyring *keyring;
	struct sl_s3_note *note; /* for endpoint and bucket */
	char region[SL_SERVICE_TEXT];
	char *ca_bundle; /* from AWS's settings; or NULL */
	bool requester_pays, sign_payload;
	struct sl_s3_keys keys;      /* without an issuer */
	struct sl_s3_issuer *issuer; /* for keys with an end; or NULL */
	struct sl_s3_address address;

	struct sl_mutex mutex;
	struct {
		bool skewed;
		int64_t skew; /* seconds by which the server's clock is ahead */
		struct sl_sign_key key;
		unsigned version; /* of the keys behind `key` */
	} locked SL_GUARDED_BY(&mutex);
};

/* -------------------------------------------------------------------------------------- open */

static int object_find_address(struct sl_s3 *s3, const struct sl_s3_name *name,
                               const struct sluice_s3_options *options,
                               const struct sl_s3_profile *profile, const char *query)
{
	const char *region = sl_s3_region(options->region, profile);
	const char *endpoint =
		options->endpoint ? options->endpoint : sl_s3_endpoint(profile, SL_S3_ENDPOINT_S3);
	const char *bundle = sl_s3_variable("AWS_CA_BUNDLE");
	const char *addressing =
		options->addressing ? options->addressing : profile->of[SL_S3_ADDRESSING];

	if (addressing && !strcmp(addressing, "auto"))
		addressing = NULL;
	if (strlen(region) >= SL_SERVICE_TEXT)
		return sl_fail(-EINVAL, "the region '%s' is too long", region);
	strcpy(s3->region, region);
	bundle = bundle ? bundle : profile->of[SL_S3_CA_BUNDLE];
	char *where = sl_format("%s %s", endpoint ? endpoint : "", name->bucket);
	s3->note = where ? sl_s3_note_keep(s3->keyring, where) : NULL;
	free(where);
	s3->ca_bundle = bundle ? strdup(bundle) : NULL;
	if (!s3->note || (bundle && !s3->ca_bundle))
		return sl_fail(-ENOMEM, "no memory");
	sl_s3_region_find(s3->keyring, s3->note, s3->region);
	int rc = sl_s3_address_find(name, endpoint, addressing, s3->region, query, &s3->address);
	s3->base = (struct sl_signer){.service = &sl_s3_service,
	                              .url = s3->address.url,
	                              .ca_bundle = s3->ca_bundle,
	                              .habits = &s3->note->habits};
	return rc;
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

static int object_resolve(struct sl_s3 *s3, struct sl_pool *waiting, const struct sl_s3_name *name,
                          const struct sluice_s3_options *options, const char *query)
{
	char *version = NULL, *id;
	struct sl_s3_profile profile;
	int rc = sl_s3_profile_load(options->profile, &profile);

	if (rc)
		return rc;
	if (options->version) {
		id = sl_uri_escape(options->version, false);
		version = id ? sl_format("versionId=%s", id) : NULL;
		rc = version ? 0 : sl_fail(-ENOMEM, "no memory");
		free(id);
	}
	if (!rc)
		rc = object_find_address(s3, name, options, &profile, query ? query : version);
	free(version);
	if (!rc)
		rc = object_know(s3, waiting, options, &profile);
	sl_s3_profile_clear(&profile);
	return rc;
}

static struct sl_s3 *object_of(struct sl_signer *signer)
{
	return SL_CONTAINER(signer, struct sl_s3, base);
}

static void object_free(struct sl_s3 *s3)
{
	sl_s3_address_clear(&s3->address);
	sl_s3_keys_clear(&s3->keys);
	free(s3->ca_bundle);
	sl_mutex_destroy(&s3->mutex);
	explicit_bzero(s3, sizeof(*s3));
	free(s3);
}

static struct sluice_s3_options object_options(const struct sluice_s3_options *given)
{
	struct sluice_s3_options options = {0};

	if (given)
		memcpy(&options, given, SL_MIN(given->size, sizeof(options)));
	return options;
}

static int object_open(struct sl_keyring *keyring, struct sl_pool *waiting, const char *uri,
                       const struct sluice_open_options *given, const char *query,
                       struct sl_signer **out)
{
	struct sluice_s3_options options = object_options(given->s3);
	struct sl_s3_name name = {NULL, NULL};
	struct sl_s3 *s3 = calloc(1, sizeof(*s3));
	int rc = 0;

	if (!s3)
		return sl_fail(-ENOMEM, "no memory");
	sl_mutex_init(&s3->mutex);
	s3->keyring = sl_s3_keyring_of(keyring);
	s3->requester_pays = options.requester_pays;
	s3->sign_payload = options.sign_payload;
	if (!query || !sl_s3_is_service(uri))
		rc = sl_s3_name_parse(uri, &name);
	else if (!(name.bucket = strdup("")) || !(name.key = strdup("")))
		rc = sl_fail(-ENOMEM, "no memory");
	if (!rc && !query && !name.key[0])
		rc = sl_fail(-EISDIR, "'%s' is a bucket, not an object", uri);
	if (!rc) {
		/* A list is the bucket's. */
		if (query)
			name.key[0] = '\0';
		rc = object_resolve(s3, waiting, &name, &options, query);
		if (rc)
			sl_fail(rc, "'%s': %s", uri, sluice_last_message());
	}
	sl_s3_name_clear(&name);
	if (rc)
		object_free(s3);
	else
		*out = &s3->base;
	return rc;
}

static int object_check(struct sl_keyring *keyring, struct sl_pool *waiting, const void *given)
{
	struct sluice_s3_options options = object_options(given);
	struct sl_s3 s3 = {.keyring = sl_s3_keyring_of(keyring)};
	struct sl_s3_profile profile;
	int rc = sl_s3_profile_load(options.profile, &profile);

	if (rc)
		return rc;
	rc = object_know(&s3, waiting, &options, &profile);
	sl_s3_keys_clear(&s3.keys);
	sl_s3_profile_clear(&profile);
	return rc;
}

static void object_feature(struct sl_keyring *keyring, struct sluice_feature *out)
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
	note = rc ? sl_s3_note_keep(sl_s3_keyring_of(keyring), sluice_last_message()) : NULL;
	out->detail = note ? note->text : rc ? "" : source.kind;
	out->effect = rc               ? "only public objects can be read, without a signature"
	              : source.guessed ? "it is asked for credentials, since nothing names others"
	              : source.ask     ? "it is asked for the credentials that sign requests to S3"
	                               : "requests to S3 are signed with these credentials";
	out->remedy = rc ? "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE" : NULL;
	sl_s3_source_clear(&source);
}

static void object_close(struct sl_signer *signer)
{
	object_free(object_of(signer));
}

/* -------------------------------------------------------------------------------------- sign */

static void object_digest(const struct sl_signer *signer, const void *body, size_t bytes,
                          const uint32_t *crc, struct sl_service_digest *out)
{
	const struct sl_s3 *s3 = SL_CONTAINER(signer, const struct sl_s3, base);

	if (crc)
		sl_crc32c_text(*crc, stpcpy(out->line, "x-amz-checksum-crc32c: "));
	strcpy(out->payload, "UNSIGNED-PAYLOAD");
	if (s3->sign_payload && sl_sign_payload(body, bytes, out->payload))
		out->payload[0] = '\0';
}

/* Puts the lines before the request's own that are no signature. */
static int object_put_lines(const struct sl_s3 *s3, const struct sl_service_request *asked,
                            struct curl_slist **lines)
{
	static const char mode[] = "x-amz-checksum-mode";
	const struct curl_slist *line = *lines;
	int rc = 0;

	while (line && strncasecmp(line->data, mode, strlen(mode)))
		line = line->next;
	if (asked->looks && !line)
		rc = sl_line_put(lines, "%s: ENABLED", mode);
	if (!rc && s3->requester_pays && !asked->seconds)
		rc = sl_line_put(lines, "x-amz-request-payer: requester");
	return rc;
}

static int object_sign(struct sl_signer *signer, const struct sl_service_request *asked,
                       struct curl_slist **lines, struct sl_service_signed *out)
{
	struct sl_s3 *s3 = object_of(signer);
	struct sl_s3_keys copy = {0};
	const struct sl_s3_keys *keys = &s3->keys;
	struct sl_sign_request request = {.method = asked->method,
	                                  .query = asked->query,
	                                  .region = s3->region,
	                                  .service = "s3",
	                                  .seconds = asked->seconds,
	                                  .payload = asked->payload   ? asked->payload
	                                             : asked->seconds ? "UNSIGNED-PAYLOAD"
	                                                              : SL_S3_EMPTY};
	int64_t now = time(NULL), skew;
	char *pays = NULL;
	int rc = 0;

	out->version = 0;
	if (s3->issuer) {
		rc = sl_s3_issuer_copy(s3->issuer, now, &copy, &out->version);
		keys = &copy;
	}
	if (!rc && asked->seconds && !keys->id)
		rc = sl_fail(-EINVAL,
		             "a presigned URL needs keys, which anonymous users have none of");
	if (rc)
		return rc;
	out->expires = keys->expires;
	sl_mutex_lock(&s3->mutex);
	skew = s3->locked.skew;
	struct sl_sign_key key = s3->locked.key;
	if (out->version != s3->locked.version)
		key.day[0] = '\0';
	sl_mutex_unlock(&s3->mutex);
	request.key = &key;
	if (s3->requester_pays && asked->seconds) {
		request.query = pays = sl_format("%s%sx-amz-request-payer=requester",
		                                 s3->address.query, *s3->address.query ? "&" : "");
		rc = pays ? 0 : sl_fail(-ENOMEM, "no memory");
	}
	if (!rc)
		rc = object_put_lines(s3, asked, lines);
	if (!rc && keys->id)
		rc = sl_s3_authorize(&request, &s3->address, keys, now + skew, lines);
	free(pays);
	sl_s3_keys_clear(&copy);
	sl_mutex_lock(&s3->mutex);
	s3->locked.key = key;
	s3->locked.version = out->version;
	sl_mutex_unlock(&s3->mutex);
	explicit_bzero(&key, sizeof(key));
	return rc;
}

/* ------------------------------------------------------------------------------------ remedy */

static enum sl_service_remedy object_judge(struct sl_signer *signer, unsigned version, long status,
                                           const struct sl_service_error *error, int64_t date)
{
	struct sl_s3 *s3 = object_of(signer);
	enum sl_service_remedy remedy = SL_REMEDY_NONE;

	if (s3->issuer && sl_s3_error_is(error, " ExpiredToken TokenRefreshRequired InvalidToken "))
		return sl_s3_issuer_renew(s3->issuer, version) ? SL_REMEDY_LATER : SL_REMEDY_NONE;
	if ((status / 100 == 3 || status == 400 || status == 403) && error->region[0] &&
	    strcmp(error->region, s3->region)) {
		sl_s3_region_keep(s3->keyring, s3->note, error->region);
		return SL_REMEDY_MOVE;
	}
	sl_mutex_lock(&s3->mutex);
	if (!s3->locked.skewed && date >= 0 &&
	    sl_s3_error_is(error, " RequestTimeTooSkewed RequestExpired ")) {
		s3->locked.skew = date - time(NULL);
		s3->locked.skewed = true;
		remedy = SL_REMEDY_AGAIN;
	}
	sl_mutex_unlock(&s3->mutex);
	return remedy;
}

const struct sl_service_signing sl_s3_signing = {
	.start = sl_s3_start,
	.stop = sl_s3_stop,
	.feature = object_feature,
	.check = object_check,
	.open = object_open,
	.close = object_close,
	.digest = object_digest,
	.sign = object_sign,
	.judge = object_judge,
};
