/* SPDX-License-Identifier: Apache-2.0 */
/* GETs of pieces, and hedges: a second GET for a part much slower than others. */
#ifndef SL_HTTP_HEDGE_H
#define SL_HTTP_HEDGE_H

#include "http/http_internal.h"

struct sl_http_hedge;

/* A GET of the kinds range and second. */
struct sl_http_get {
	struct sl_http_request request;
	struct sl_piece *piece;
	struct sl_piece *instead;    /* in a second GET: the first GET's piece; else NULL */
	struct sl_http_hedge *hedge; /* in a first GET with a second; else NULL */
};

static inline struct sl_http_get *sl_http_get_of(const struct sl_http_request *request)
{
	return SL_CONTAINER(request, struct sl_http_get, request);
}

/* Returns whether a slow attempt of a file is hedged, or begun anew. */
static inline bool sl_http_may_hedge(const struct sl_http *http)
{
	return http->core->settings.http_hedge &&
	       !(http->flags & (SLUICE_OPEN_HTTP2 | SLUICE_OPEN_WRITE));
}

/* Members `late` of the kinds range and second. The first asks for the rest of a part once more, if
 * it is slow by now, there were few hedges, and memory is left for them; this attempt goes on. The
 * attempt of a slow second GET begins anew. */
bool sl_http_hedge_look(struct sl_http_request *request, int64_t now);
bool sl_http_hedge_look_second(struct sl_http_request *request, int64_t now);
/* Returns whether the second request has brought the rest: the first is to end. */
bool sl_http_hedge_is_won(const struct sl_http_hedge *hedge);
/* The first request is over, and its piece has the result. Ends the piece, at once or when the
 * second request has ended. On the reactor that moved the first. */
void sl_http_hedge_over(struct sl_http_hedge *hedge);

#endif
