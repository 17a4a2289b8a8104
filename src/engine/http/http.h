/* SPDX-License-Identifier: Apache-2.0 */
/* Remote files over libcurl, and the state that those of a context share. */
#ifndef SL_HTTP_H
#define SL_HTTP_H

#include "backend/backend.h"

/* http:// and https://, over libcurl. */
extern const struct sl_backend_ops sl_http_ops;
/* Objects of services. */
extern const struct sl_names_ops sl_http_names;

/* The state that remote files share; its threads start with the first file. Stop joins them. */
int sl_http_new(struct sl_core *core, struct sl_http_engine **out);
void sl_http_stop(struct sl_http_engine *engine);
void sl_http_free(struct sl_http_engine *engine);
/* Describes a feature of remote files. Returns -ENOENT past the last. */
int sl_http_feature(const struct sl_core *core, size_t index, struct sluice_feature *out);
/* Asks for the credentials of a service, as sluice_s3_check(). */
int sl_http_check(const struct sl_core *core, const char *scheme, const void *options);

#endif
