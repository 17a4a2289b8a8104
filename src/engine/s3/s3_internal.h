/* SPDX-License-Identifier: Apache-2.0 */
/* The functions of the contract, as service.h describes them, and functions for this room alone. */
#ifndef SL_S3_INTERNAL_H
#define SL_S3_INTERNAL_H

#include "s3/s3.h"

#define SL_S3_HEX "0123456789abcdefABCDEF"

/* ------------------------------------------------------------------------------------ keyring */

int sl_s3_start(const struct sl_settings *settings, struct sl_keyring **out);
void sl_s3_stop(struct sl_keyring *keyring);

/* ------------------------------------------------------------------------------------- object */

void sl_s3_feature(struct sl_keyring *keyring, struct sluice_feature *out);
int sl_s3_check(struct sl_keyring *keyring, struct sl_pool *waiting, const void *options);
/* query: encoded and sorted, as in each request. */
int sl_s3_open(struct sl_keyring *keyring, struct sl_pool *waiting, const char *uri,
               const struct sluice_open_options *options, const char *query,
               struct sl_signer **out);
void sl_s3_close(struct sl_signer *signer);
void sl_s3_digest(const struct sl_signer *signer, const void *body, size_t bytes, bool sum,
                  struct sl_service_digest *out);
int sl_s3_sign(struct sl_signer *signer, const struct sl_service_request *request,
               struct curl_slist **lines, struct sl_service_signed *out);
enum sl_service_remedy sl_s3_judge(struct sl_signer *signer, unsigned version, long status,
                                   const struct sl_service_error *error, int64_t date);

/* -------------------------------------------------------------------------------------- error */

void sl_s3_error_parse(const char *xml, struct sl_service_error *out);
/* Returns whether its code is among words with blanks around them. */
bool sl_s3_error_is(const struct sl_service_error *error, const char *codes);

/* ------------------------------------------------------------------------------------- upload */

#define SL_S3_PARTS 10000

int sl_s3_query(struct sl_signer *signer, enum sl_service_call call, const char *upload,
                unsigned part, char **out);
enum sl_service_answer sl_s3_answers(enum sl_service_call call, const char *xml, char *out,
                                     size_t size);
int sl_s3_complete(const char *upload, const struct sl_service_part *parts, unsigned count,
                   char **out, char etag[SL_SERVICE_TEXT]);
/* Finds the ETag of an object from those of its parts, if these are MD5s; "": it cannot be known. */
void sl_s3_upload_etag(const struct sl_service_part *parts, unsigned count,
                       char out[SL_SERVICE_TEXT]);
/* The ETag is the MD5 where the server does not encrypt by itself. */
void sl_s3_etag(const void *data, size_t bytes, char out[SL_SERVICE_TEXT]);

/* ---------------------------------------------------------------------------------- copy_lines */

unsigned sl_s3_line(const char *line);
int sl_s3_copy_options(const struct sluice_open_options *given, struct sluice_open_options *source,
                       struct sluice_open_options *target, void **memory);
int sl_s3_copy(struct sl_service_copy *copy);

/* ------------------------------------------------------------------------------------- remove */

/* Returns a URI's key if each parser of XML and each server reads it alike; else NULL. */
const char *sl_s3_bulk_key(const char *uri);
char *sl_s3_bulk_body(const struct sluice_open_options *options, const char *const *uris,
                      size_t count, char line[SL_SERVICE_LINE]);
bool sl_s3_bulk_next(char **at, char **key, bool *removed);
/* Writes the header's line with the MD5, or "". */
void sl_s3_md5_line(const void *data, size_t bytes, char out[SL_SERVICE_LINE]);

/* --------------------------------------------------------------------------------------- list */

/* The kinds of lists. */
enum sl_s3_listed { SL_S3_OBJECTS, SL_S3_UPLOADING, SL_S3_BUCKETS };
/* Returns whether the URI is "s3://", the list of all buckets. */
bool sl_s3_is_service(const char *uri);
int sl_s3_list_query(const char *uri, unsigned flags, const char *token, char **out);
int sl_s3_page_read(const char *uri, unsigned flags, char *xml, struct sl_service_page *out,
                    char **token);
int sl_s3_page_next(struct sl_service_page *page, struct sl_service_entry *out);

#endif
