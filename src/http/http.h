/* SPDX-License-Identifier: Apache-2.0 */
/* Remote files over libcurl, and the part of a context that they share. */
#ifndef SL_HTTP_H
#define SL_HTTP_H

#include "backend/backend.h"

/* http:// and https://, over libcurl. */
extern const struct sl_backend_ops sl_http_ops;

/* The state that remote files share; its threads start with the first file. Stop joins them. */
int sl_http_new(struct sl_core *core, struct sl_http_engine **out);
void sl_http_stop(struct sl_http_engine *engine);
void sl_http_free(struct sl_http_engine *engine);
/*
 * Opens a list of the objects in the bucket of an s3 URI, as XML that is read from front to back. query: encoded and
 * sorted. A read fails with -EREMOTE if the bucket is in another region; it is known to files that are opened later.
 * Returns 0, or -errno with a sentence.
 */
int sl_http_open_list(struct sl_core *core, const struct sl_uri *uri,
                      const struct sluice_open_options *options, const char *query,
                      struct sl_backend **out);
/* Removes an object of S3, or an upload of it, as sluice_remove(). */
int sl_http_remove(struct sl_core *core, const char *uri, const struct sluice_open_options *options,
                   const char *upload);
/* Removes objects as sluice_remove_many(). errors and messages get all results; messages: or NULL. Returns 0, or -errno with
 * a sentence if it cannot begin. */
int sl_http_remove_many(struct sl_core *core, const char *const *uris, size_t count,
                        const struct sluice_open_options *options, int *errors, char **messages);
/* Copies an object of S3 by its server, as sluice_copy_object(). */
int sl_http_copy(struct sl_core *core, const struct sl_uri *from, const struct sl_uri *to,
                 const struct sluice_open_options *options);
/* Describes a feature of remote files. Returns -ENOENT past the last. */
int sl_http_feature(const struct sl_core *core, size_t index, struct sluice_feature *out);
/* Makes a presigned URL of an object of S3, as sluice_presign(). */
int sl_http_presign(struct sl_core *core, const struct sl_uri *uri,
                    const struct sluice_open_options *options, const char *method, unsigned seconds,
                    char **url, int64_t *end_ns);
/* Asks for credentials of S3, as sluice_s3_check() says. */
int sl_http_s3_check(const struct sl_core *core, const struct sluice_s3_options *options);

#endif
