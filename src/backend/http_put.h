/* SPDX-License-Identifier: Apache-2.0 */
/* Writing a remote file: one PUT of the whole object. */
#ifndef SL_HTTP_PUT_H
#define SL_HTTP_PUT_H

#include "backend/http.h"

int sl_http_put_new(struct sl_http *http, const struct sluice_open_options *options,
                    struct sl_http_put **out);
void sl_http_put_submit(struct sl_http_put *put, struct sl_piece *piece);
void sl_http_put_wake(struct sl_http_put *put);
int sl_http_put_commit(struct sl_http_put *put);
/* Without a commit the server keeps nothing. NULL is allowed. */
void sl_http_put_free(struct sl_http_put *put);

#endif
