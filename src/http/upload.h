/* SPDX-License-Identifier: Apache-2.0 */
/* Writing a remote file: a single PUT of the whole object, of known length, front to back from memory of the host. */
#ifndef SL_HTTP_UPLOAD_H
#define SL_HTTP_UPLOAD_H

#include "http/http_internal.h"

/* length: of the object; 0: only an empty object can be written. */
int sl_http_upload_new(struct sl_http *http, uint64_t length);
void sl_http_upload_submit(struct sl_http_upload *upload, struct sl_piece *piece);
/* Sends the rest and waits for the response. Returns 0, or -errno with a sentence. */
int sl_http_upload_commit(struct sl_http_upload *upload);
/* Without a commit before, the server keeps nothing. NULL is allowed. */
void sl_http_upload_free(struct sl_http_upload *upload);

/* The rest is for the request, on the thread that moves it. Sets the transfer up for an attempt. */
void sl_http_upload_prepare(struct sl_http_upload *upload, CURL *easy);
enum sl_http_upload_phase {
	/* Bytes have been sent that cannot be sent again: there is no second attempt. */
	SL_HTTP_UPLOAD_BEGUN = 1 << 0,
	/* The upload waits for the caller to write: silence is no stall. */
	SL_HTTP_UPLOAD_IDLE = 1 << 1,
	/* The request is to be ended. */
	SL_HTTP_UPLOAD_DROPPED = 1 << 2,
	/* The server was sent everything: else its success is not believed. */
	SL_HTTP_UPLOAD_WHOLE = 1 << 3,
};
/* Returns 0 if the request is not that of an upload. */
unsigned sl_http_upload_state(const struct sl_http_request *request);
/* Drops the request if a piece was cancelled; resumes the transfer if there is something to send, and returns true then. */
bool sl_http_upload_look(struct sl_http_upload *upload, CURL *easy);
/* The request is over; takes its sentence. */
void sl_http_upload_over(struct sl_http_upload *upload, int error, char *sentence);

#endif
