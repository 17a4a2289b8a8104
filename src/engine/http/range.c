/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pieces
 *
 * Submits pieces. A piece to read becomes a GET of a range, whose bytes are copied to where they
 * belong. The second GET of a slow piece (hedge.c) has a kind that waits for nothing.
 *
 * Threads: any thread submits pieces; the reactor that moves the request fills them.
 */
#include <errno.h>

#include "http/http_internal.h"

/* ------------------------------------------------------------------------------------- kinds */

static bool range_is_unwanted(const struct sl_http_request *request)
{
	const struct sl_http_get *get = sl_http_get_of(request);

	return atomic_load_explicit(&get->piece->cancelled, memory_order_relaxed) ||
	       (get->piece->too && atomic_load_explicit(get->piece->too, memory_order_relaxed)) ||
	       (get->instead &&
	        atomic_load_explicit(&get->instead->cancelled, memory_order_relaxed)) ||
	       (get->hedge && sl_http_hedge_is_won(get->hedge));
}

static void range_prepare(struct sl_http_request *request)
{
	const struct sl_http_get *get = sl_http_get_of(request);
	const struct sl_piece *piece = get->piece;

	request->from = piece->offset + piece->moved;
	request->length = piece->length - piece->moved;
	request->ranged = true;
	if (sl_http_may_hedge(request->http) && !get->hedge)
		request->slow = request->asked +
		                sl_http_pace_due(&request->http->limit->pace, request->length);
	sl_http_transfer_expect(request->transfer, request->length);
}

static size_t range_take(struct sl_http_request *request, const char *data, size_t bytes)
{
	struct sl_piece *piece = sl_http_get_of(request)->piece;

	if (!sl_http_accepts(request))
		return sl_http_error_take(request, data, bytes) ? bytes : 0;
	if (atomic_load_explicit(&piece->cancelled, memory_order_relaxed))
		return 0;
	if (bytes > piece->length - piece->moved) {
		sl_http_fail_protocol(request, "more bytes than were asked for");
		return 0;
	}
	sl_http_piece_put(piece, piece->moved, data, bytes);
	piece->moved += bytes;
	request->moved += bytes;
	sl_http_begun(request, bytes);
	return bytes;
}

static enum sl_http_verdict range_judge(struct sl_http_request *request)
{
	const struct sl_piece *piece = sl_http_get_of(request)->piece;

	if (!sl_http_accepts(request))
		return SL_HTTP_FAILED;
	return piece->moved == piece->length ? SL_HTTP_DONE
	                                     : sl_http_request_retry(request, -EIO, SL_HTTP_SHORT);
}

static void range_end(struct sl_http_request *request)
{
	struct sl_http_get *get = sl_http_get_of(request);
	struct sl_http_hedge *hedge = get->hedge;
	struct sl_piece *piece = get->piece;

	piece->error = request->error;
	piece->message = request->sentence;
	request->sentence = NULL;
	sl_http_request_free(request);
	if (hedge)
		sl_http_hedge_over(hedge);
	else
		sl_piece_done(piece);
}

#define RANGE_KIND                                                                   \
	.verb = "GET", .bytes = sizeof(struct sl_http_get), .piece = true,           \
	.unwanted = range_is_unwanted, .prepare = range_prepare, .take = range_take, \
	.judge = range_judge, .end = range_end

const struct sl_http_kind sl_http_kind_range = {RANGE_KIND, .late = sl_http_hedge_look};
const struct sl_http_kind sl_http_kind_second = {RANGE_KIND, .urgent = true,
                                                 .late = sl_http_hedge_look_second};

/* ------------------------------------------------------------------------------------ submit */

static void range_start(struct sl_http *http, struct sl_piece *piece)
{
	struct sl_http_request *request = sl_http_request_new(http, &sl_http_kind_range);

	if (!request) {
		sl_http_end_piece(piece, -ENOMEM, sl_format("'%s': no memory", http->name));
		return;
	}
	sl_http_get_of(request)->piece = piece;
	request->work = piece->length - piece->moved;
	sl_http_dispatch(request);
}

void sl_http_submit(struct sl_backend *backend, struct sl_piece *piece)
{
	struct sl_http *http = sl_http_of(backend);
	uint64_t kept = http->head_bytes - SL_MIN(piece->offset, http->head_bytes);

	if (http->multipart) {
		sl_http_multipart_submit(http->multipart, piece);
	} else if (piece->write) {
		sl_http_upload_submit(http->upload, piece);
	} else if (http->body) {
		sl_http_body_submit(http->body, piece);
	} else {
		/* The opening has brought the first bytes, or all. */
		piece->moved = SL_MIN(kept, piece->length);
		if (piece->moved)
			sl_http_piece_put(piece, 0, http->head + piece->offset, piece->moved);
		if (piece->moved == piece->length)
			sl_piece_done(piece);
		else
			range_start(http, piece);
	}
}

int64_t sl_http_size(struct sl_backend *backend)
{
	return sl_http_of(backend)->size;
}
