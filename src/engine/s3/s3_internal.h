/* SPDX-License-Identifier: Apache-2.0 */
/* The contract's parts, and functions for this room alone. */
#ifndef SL_S3_INTERNAL_H
#define SL_S3_INTERNAL_H

#include "s3/s3.h"

extern const struct sl_service_signing sl_s3_signing;   /* object.c */
extern const struct sl_service_texts sl_s3_texts;       /* s3_upload.c */
extern const struct sl_service_lists sl_s3_lists;       /* s3_list.c */
extern const struct sl_service_copies sl_s3_copies;     /* copy_lines.c */
extern const struct sl_service_removals sl_s3_removals; /* s3_remove.c */

/* As in struct sl_service_signing; for the rest object.c has the functions. */
int sl_s3_start(const struct sl_settings *settings, struct sl_keyring **out);
void sl_s3_stop(struct sl_keyring *keyring);

/* As in struct sl_service_texts. An ETag is the MD5 if the server does not encrypt by itself. */
void sl_s3_error_parse(const char *xml, struct sl_service_error *out);
void sl_s3_etag(const void *data, size_t bytes, char out[SL_SERVICE_TEXT]);
unsigned sl_s3_line(const char *line);

/* Returns whether its code is among words with blanks around them. */
bool sl_s3_error_is(const struct sl_service_error *error, const char *codes);
/* Finds an object's ETag from those of its parts, if these are MD5s; "": it cannot be known. */
void sl_s3_upload_etag(const struct sl_service_part *parts, unsigned count,
                       char out[SL_SERVICE_TEXT]);
/* Writes the header's line with the MD5, or "". */
void sl_s3_md5_line(const void *data, size_t bytes, char out[SL_SERVICE_LINE]);
/* Returns whether the URI is "s3://", the list of all buckets. */
bool sl_s3_is_service(const char *uri);

/* Names of objects (s3://BUCKET/KEY), and where servers have them. */
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
