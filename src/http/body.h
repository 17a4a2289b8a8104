/* SPDX-License-Identifier: Apache-2.0 */
/* Reading an object whose server has no ranges: a single GET from which all pieces are filled. */
#ifndef SL_HTTP_BODY_H
#define SL_HTTP_BODY_H

#include "http/http_internal.h"

/* Makes http->body, unless the opening has kept it. */
int sl_http_body_make(struct sl_http *http);
void sl_http_body_submit(struct sl_http_body *body, struct sl_piece *piece);
/* Ends the request first, and waits for that. NULL is allowed. */
void sl_http_body_free(struct sl_http_body *body);

/* The rest is for the request, on the thread that moves it. */
/* Makes a request of the transfer of a PROBE, which has answered with the whole object, and waits for the first read of its
 * body. Returns NULL: no memory, or too many files wait for that. */
struct sl_http_request *sl_http_body_keep(struct sl_http_request *probe);
/* Its transfer is over. Returns whether no read has come: then a read will make another request. */
bool sl_http_body_is_unread(struct sl_http_body *body);
/* Prepares an attempt. */
void sl_http_body_prepare(struct sl_http_body *body);
/* Takes bytes that have come. Returns the result of libcurl's write callback. */
size_t sl_http_body_take(struct sl_http_body *body, const char *data, size_t bytes);
enum sl_http_body_phase {
	/* Pieces are over, and another attempt may bring other bytes. */
	SL_HTTP_BODY_BEGUN = 1 << 0,
	/* The body waits for the caller to read: silence is no stall. */
	SL_HTTP_BODY_IDLE = 1 << 1,
	/* The request is to be ended. */
	SL_HTTP_BODY_DROPPED = 1 << 2,
};
unsigned sl_http_body_state(struct sl_http_body *body, uint64_t *position);
/* Drops the request if a piece was cancelled; resumes it if there is room for its bytes, and returns true then. */
bool sl_http_body_look(struct sl_http_body *body, CURL *easy);
/* The request is over; takes its sentence. */
void sl_http_body_over(struct sl_http_body *body, int error, char *sentence);

#endif
