/* SPDX-License-Identifier: Apache-2.0 */
/* Writing an object of a service: a single PUT where it is short, else an upload in parts. */
#ifndef SL_HTTP_MULTIPART_H
#define SL_HTTP_MULTIPART_H

#include "http/http_internal.h"

int sl_http_multipart_new(struct sl_http *http, const struct sluice_open_options *options,
                          struct sl_http_multipart **out);
/* A piece of a remote file. */
struct sl_http_piece {
	struct sl_piece base;
	bool waits; /* for a buffer of an upload, so no thread has it */
};
static inline struct sl_http_piece *sl_http_piece_of(const struct sl_piece *piece)
{
	return SL_CONTAINER(piece, struct sl_http_piece, base);
}
void sl_http_multipart_submit(struct sl_http_multipart *multipart, struct sl_piece *piece);
/* A PUT to a plain server takes no bytes through slots. */
extern const struct sl_slot_writes sl_http_slot_writes;
/* Ends cancelled pieces that wait; the object will lack their bytes, so it fails. Any thread. */
void sl_http_multipart_cancel(struct sl_http_multipart *multipart);
/* Sends the rest, and makes the object visible. Returns 0, or -errno with a sentence. */
int sl_http_multipart_commit(struct sl_http_multipart *multipart);
/* Unless a commit succeeded the server drops what it has, which is waited for. May be NULL. */
void sl_http_multipart_free(struct sl_http_multipart *multipart);

#endif
