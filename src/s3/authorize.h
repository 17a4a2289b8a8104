/* SPDX-License-Identifier: Apache-2.0 */
/* The lines of header of signed requests. */
#ifndef SL_S3_AUTHORIZE_H
#define SL_S3_AUTHORIZE_H

#include "s3/credentials.h"
#include "s3/place.h"
#include "s3/s3.h"
#include "s3/sign.h"

#define SL_S3_EMPTY \
	"e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855" /* of no body */

/* Adds a line; returns false without memory. */
bool sl_s3_lines_add(struct sl_s3_lines *lines, const char *name, const char *value);
/*
 * Adds the lines of a request that is signed by keys, at a time in seconds since 1970, and the signature. The request has
 * its method, payload, region and service, and a query where that is not the place's. given: lines that the request has
 * anyway, then NULL; or NULL. For a URL, the first line is its query instead. Returns false without memory.
 */
bool sl_s3_authorize(struct sl_sign_request *request, const struct sl_s3_place *place,
                     const struct sl_s3_keys *keys, int64_t at, const char *const *given,
                     struct sl_s3_lines *lines);

#endif
