/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writing a remote file: one PUT of the whole object, front to back. Pieces that continue where the
 * upload is are sent from the caller's memory; what comes ahead of them is copied, up to a limit.
 */
#ifndef SL_HTTP_PUT_H
#define SL_HTTP_PUT_H

#include "http/http_internal.h"

int sl_http_put_new(struct sl_http *http, const struct sluice_open_options *options,
                    struct sl_http_put **out);
void sl_http_put_submit(struct sl_http_put *put, struct sl_piece *piece);
/* Sends the rest and waits for the server's answer; with a sentence. */
int sl_http_put_commit(struct sl_http_put *put);
/* Without a commit the server keeps nothing. NULL is allowed. */
void sl_http_put_free(struct sl_http_put *put);

/* For the request that carries it, on the thread that moves that. */
void sl_http_put_prepare(struct sl_http_put *put, CURL *easy);
enum sl_http_put_state {
	SL_HTTP_PUT_BEGUN =
		1 << 0, /* bytes have left that cannot be sent again: no second attempt */
	SL_HTTP_PUT_IDLE = 1 << 1,    /* it waits for the caller to write: silence is no stall */
	SL_HTTP_PUT_DROPPED = 1 << 2, /* nobody wants it any more */
};
unsigned sl_http_put_state(struct sl_http_put *put);
/* Ends cancelled pieces, and lets the transfer go on if there is something for it: true. */
bool sl_http_put_look(struct sl_http_put *put, CURL *easy);
/* Whether the server was sent everything: else its success is none. */
bool sl_http_put_is_whole(struct sl_http_put *put);
/* The server refused Expect: whether another attempt, without it, is to be made. */
bool sl_http_put_without_expect(struct sl_http_put *put);
/* The request is over; takes its sentence. */
void sl_http_put_over(struct sl_http_put *put, int error, char *sentence);

#endif
