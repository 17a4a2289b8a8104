/* SPDX-License-Identifier: Apache-2.0 */
/* Requests for objects of a service: each attempt is signed, and an error's body is read. */
#ifndef SL_HTTP_SIGNED_H
#define SL_HTTP_SIGNED_H

#include "http/http_internal.h"

/* Signs the next attempt. lines: its header, which is borrowed. Returns 0, with all lines in
 * request->lines, or -errno with the sentence kept. */
int sl_http_signed_prepare(struct sl_http_request *request, struct curl_slist *lines);
/* Keeps bytes of the body of an error. */
void sl_http_signed_keep(struct sl_http_request *request, const char *data, size_t bytes);
/* Judges an error that the next attempt may not have. Returns false if nothing helps. */
bool sl_http_signed_judge(struct sl_http_request *request, enum sl_http_verdict *out);
/* Prints an error's code, message and id. Returns its errno, or `error` where the code has none. */
int sl_http_signed_error(const struct sl_http_request *request, int error, char *text, size_t size);

#endif
