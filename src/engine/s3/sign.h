/* SPDX-License-Identifier: Apache-2.0 */
/* AWS's Signature Version 4. */
#ifndef SL_S3_SIGN_H
#define SL_S3_SIGN_H

#include "s3/credentials.h"
#include "s3/s3_internal.h"

#define SL_S3_EMPTY \
	"e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855" /* without a body */
#define SL_SIGN_KEY 32
/* The key for a day, a region and a service; deriving it takes longer than all else. */
struct sl_sign_key {
	char day[9]; /* "20150830"; "": none yet */
	unsigned char bytes[SL_SIGN_KEY];
};

/* A request as it goes over the wire. */
struct sl_sign_request {
	const char *method;
	const char *path;         /* encoded, not normalised */
	const char *query;        /* encoded, and sorted by name, then value; "" : none */
	const char *const *lines; /* "Name: value", then NULL: the signed fields */
	const char *payload;      /* the body's SHA-256 in hexadecimal, or UNSIGNED-PAYLOAD */
	const char *date;         /* as in x-amz-date: "20150830T123600Z" */
	const char *region, *service;
	const char *id, *secret; /* the access key */
	const char *token;       /* the session's, for a URL; or NULL */
	unsigned seconds;        /* a URL's life: `query` has no name before "Y" then; 0: no URL */
	/* NULL; or from an earlier request with this secret, region and service; renewed each
	 * day. */
	struct sl_sign_key *key;
};
#define SL_SIGN_HEX 65
/* Prints a body's SHA-256, for `payload`. Returns 0, or -ENOMEM with a sentence. */
int sl_sign_payload(const void *body, size_t bytes, char out[SL_SIGN_HEX]);
/* Makes the value for Authorization, or a URL's query. Returns 0, or -ENOMEM with a sentence. */
int sl_sign(const struct sl_sign_request *request, char **out);
/* Puts the signature before a request's lines, and the lines for it. The request has method,
 * payload, region and service, and a query if it is not the address's. at: seconds since 1970. A
 * URL's line is its query. Returns 0, or -ENOMEM with a sentence. */
int sl_s3_authorize(struct sl_sign_request *request, const struct sl_s3_address *address,
                    const struct sl_s3_keys *keys, int64_t at, struct curl_slist **lines);

#endif
