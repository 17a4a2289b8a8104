/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Openings
 *
 * Asks the server about an object to read: its length, ranges and version, and perhaps its first
 * bytes. An opening is a request, or up to three in turn.
 *
 * Threads: a caller waits for the answers, or the reactors go on with them; until its end one
 * thread at a time has the file.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "http/http_internal.h"

#define MOST_MATCH 1024 /* bytes in an ETag to send: servers bound them */

void sl_http_take_texts(struct sl_http *http, struct sl_http_request *request)
{
	sl_http_texts_clear(&http->opened);
	http->opened = request->response.texts;
	memset(&request->response.texts, 0, sizeof(request->response.texts));
}

static void opening_take_response(struct sl_http *http, struct sl_http_request *request)
{
	time_t modified = -1;

	free(http->found);
	http->found = request->url ? sl_uri_name(request->url) : NULL;
	sl_http_take_texts(http, request);
	if (http->opened.of[SL_HTTP_FIELD_MODIFIED])
		modified = curl_getdate(http->opened.of[SL_HTTP_FIELD_MODIFIED], NULL);
	http->modified_ns = modified >= 0 ? modified * INT64_C(1000000000) : 0;
	if (request->response.partial) {
		/* It may be the range's. */
		free(http->opened.of[SL_HTTP_FIELD_CRC32C]);
		http->opened.of[SL_HTTP_FIELD_CRC32C] = NULL;
		/* Without a length, a range cannot be told from a truncated body. */
		http->ranges = request->response.range.total >= 0;
		http->size = request->response.range.total;
		return;
	}
	http->ranges = request->kind->bare
	                       ? request->response.ranges
	                       : sl_http_probe_asks_all(request) &&
	                                 (request->response.ranges || request->response.got);
	if (request->response.has_length)
		http->size = (int64_t)request->response.length;
	else if (request->response.status == 204)
		http->size = 0;
}

/* Takes the answer to HEAD. Returns whether a GET has to ask. */
static bool opening_take_head(struct sl_http *http, struct sl_http_request *request)
{
	long status = request->response.status;

	if (!request->error && status == 200 &&
	    (!request->response.texts.of[SL_HTTP_FIELD_ENCODING] ||
	     http->flags & SLUICE_OPEN_AS_STORED))
		opening_take_response(http, request);
	if (http->size > 0 && http->ranges && http->opened.of[SL_HTTP_FIELD_ETAG])
		return false;
	/* A lasting failure without an answer would fail a GET as well. */
	if (request->error == -EREMOTE || status < 200)
		return false;
	http->said = http->size;
	http->size = -1;
	return true;
}

/*
 * Takes an answer. Returns whether a GET has to ask next; otherwise *rc is the end. The answer to
 * HEAD is taken if it has a length other than 0 (handlers without code for HEAD say 0), ranges, and
 * an ETag: then a later answer without an ETag is about another version. Otherwise, and if HEAD
 * fails, a GET asks for a single byte. With options.first_bytes there is no HEAD, and the GET asks
 * for the first bytes.
 */
static bool opening_take(struct sl_http *http, struct sl_http_request *request, int *rc)
{
	*rc = request->error;
	if (request->kind->bare)
		return opening_take_head(http, request);
	if (!*rc)
		opening_take_response(http, request);
	if (http->confirm_empty)
		return false;
	/* A field missing here is taken from the answer to HEAD. */
	if (!*rc && http->said > 0 && http->size < 0)
		http->size = http->said;
	/* An empty object has no first byte: confirmed below where no HEAD has said its length. */
	if (*rc && request->response.status == 416 &&
	    (request->response.has_range ? !request->response.range.total : http->said <= 0)) {
		sl_http_texts_clear(&http->opened);
		http->ranges = false;
		http->size = 0;
		*rc = 0;
	}
	if (*rc || http->size)
		return false;
	/* A GET of the whole says the same about an empty object. */
	http->confirm_empty = true;
	http->size = -1;
	return true;
}

/* Forgets the ETag if Last-Modified shall tell other objects. */
static void opening_choose_version(struct sl_http *http)
{
	char **etag = &http->opened.of[SL_HTTP_FIELD_ETAG];

	http->by_date =
		!http->core->settings.http_etag && !http->signer && *etag && http->modified_ns;
	if (!http->by_date)
		return;
	sl_log(&http->core->settings, SL_LOG_INFO,
	       "'%s': by length and Last-Modified: its ETag is not looked at (SLUICE_HTTP_ETAG)",
	       http->name);
	free(*etag);
	*etag = NULL;
}

/* Keeps the first bytes of the object if all of them came. */
static void opening_check_head(struct sl_http *http)
{
	if (http->ranges && http->head_bytes == SL_MIN((uint64_t)http->size, http->head_most))
		return;
	free(http->head);
	http->head = NULL;
	http->head_bytes = 0;
}

/* By this field another version of the object is no answer. */
static int opening_add_match(struct sl_http *http)
{
	const char *etag = http->opened.of[SL_HTTP_FIELD_ETAG];
	char *match;
	int rc;

	if (!etag || !sl_strong_etag(etag) || strlen(etag) > MOST_MATCH)
		return 0;
	match = sl_format("If-Match: %s", etag);
	rc = match ? sl_http_fields_add(&http->fields, match) : sl_fail(-ENOMEM, "no memory");
	free(match);
	return rc;
}

static int opening_settle(struct sl_http *http)
{
	int rc = 0;

	opening_choose_version(http);
	opening_check_head(http);
	if (!http->ranges)
		rc = sl_http_body_make(http);
	if (!rc)
		rc = opening_add_match(http);
	if (!rc)
		sl_log(&http->core->settings, SL_LOG_INFO, "open '%s': %" PRId64 " bytes%s",
		       http->name, http->size, http->ranges ? "" : ", no ranges");
	return rc;
}

static const struct sl_http_kind *opening_kind(const struct sl_http *http)
{
	return http->head_most ? &sl_http_kind_probe : &sl_http_kind_head;
}

int sl_http_inspect(struct sl_http *http)
{
	const struct sl_http_kind *kind = opening_kind(http);
	struct sl_http_request *request;
	bool again = true;
	int rc = 0;

	for (; again; kind = &sl_http_kind_probe) {
		rc = sl_http_ask(http, kind, &request);
		again = request && opening_take(http, request, &rc);
		sl_http_request_free(request);
	}
	return rc ? rc : opening_settle(http);
}

static void opening_go_on(struct sl_http_request *request)
{
	struct sl_http *http = request->http;
	struct sl_opening *opening = http->opening;
	bool again = opening_take(http, request, &opening->error);

	if (again) {
		opening->error = 0;
	} else if (opening->error) {
		opening->message = request->sentence;
		request->sentence = NULL;
	}
	sl_http_request_free(request);
	if (again && sl_http_probe_start(http, &sl_http_kind_probe, opening_go_on))
		return;
	http->opening = NULL;
	if (again)
		opening->error = -ENOMEM;
	else if (!opening->error && (opening->error = opening_settle(http)))
		opening->message = strdup(sluice_last_message());
	/* A body has begun, and ends on a reactor; closing waits for it. */
	if (!opening->error || http->body)
		opening->backend = &http->base;
	else
		sl_http_ops.close(&http->base);
	opening->done(opening);
}

int sl_http_inspect_start(struct sl_http *http, struct sl_opening *opening)
{
	http->opening = opening;
	if (sl_http_probe_start(http, opening_kind(http), opening_go_on))
		return 0;
	sl_http_ops.close(&http->base);
	return sl_fail(-ENOMEM, "no memory");
}
