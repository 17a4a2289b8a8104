/* SPDX-License-Identifier: Apache-2.0 */
/* Names of objects (s3://BUCKET/KEY), and where servers have them. */
#ifndef SL_S3_ADDRESS_H
#define SL_S3_ADDRESS_H

#include "core/core.h"

struct sl_s3_name {
	char *bucket;
	char *key; /* the bytes behind "BUCKET/", as they are; "": there is none */
};
/* Returns 0, or -EINVAL with a sentence. */
int sl_s3_name_parse(const char *uri, struct sl_s3_name *out);
void sl_s3_name_clear(struct sl_s3_name *name);

struct sl_s3_address {
	char *url;
	char *host;  /* as in the field Host */
	char *path;  /* encoded, as in the request's line */
	char *query; /* the same; "" : none */
};
/*
 * Finds an object's address. endpoint: the server's http or https URL; NULL: AWS in the region.
 * addressing: "path", "virtual"; NULL: virtual for AWS where the bucket's name allows it, and path
 * for any other server. query: encoded, or NULL. A bucket "" is the server itself.
 *
 * Returns 0, or -EINVAL, -ENOMEM with a sentence.
 */
int sl_s3_address_find(const struct sl_s3_name *name, const char *endpoint, const char *addressing,
                       const char *region, const char *query, struct sl_s3_address *out);
void sl_s3_address_clear(struct sl_s3_address *address);

#endif
