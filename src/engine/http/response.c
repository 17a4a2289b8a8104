/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Responses
 *
 * Parses a response while it arrives, and checks it: it answers the request, and is about the
 * opened version of the object. The kind of the request takes the body; no byte reaches a piece's
 * memory before the header is accepted, and none beyond its end.
 *
 * Threads: the reactor that moves the request; libcurl calls sl_http_on_line() and
 * sl_http_on_body(). The text comes from servers and is not trusted.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#include "http/http_internal.h"

#define MOST_FIELD_BYTES    ((size_t)64 << 10)
#define MOST_SAID_BYTES     4096
#define MOST_REDIRECT_BYTES (1 << 20)

static const char *const field_names[SL_HTTP_FIELD_SERVICE] = {
	"ETag",           "Last-Modified",   "Content-Encoding",  "Content-Range",
	"Content-Length", "Content-Type",    "Accept-Ranges",     "Retry-After",
	"RateLimit",      "RateLimit-Reset", "X-RateLimit-Reset", "Date",
};

/* -------------------------------------------------------------------------------------- checks */

void sl_http_fail_changed(struct sl_http_request *request, const char *what)
{
	sl_http_request_fail(request, -ESTALE, "'%s' changed since it was opened: %s",
	                     request->http->name, what);
}

void sl_http_fail_protocol(struct sl_http_request *request, const char *what)
{
	sl_http_request_fail(request, -EPROTO, "'%s': the server answered with %s",
	                     request->http->name, what);
}

/* Whether an answer is partial: a 206, or a 200 with the requested range and length. */
static bool response_is_partial(struct sl_http_request *request)
{
	const struct sl_http_response *response = &request->response;
	const struct sl_http_range *range = &response->range;

	return response->status == 206 ||
	       (response->status == 200 && request->ranged && response->has_range &&
	        !response->bad_range && range->satisfied && range->total > 0 &&
	        range->first == request->from && response->has_length &&
	        range->last == request->from + request->length - 1 &&
	        response->length == request->length);
}

static bool response_is_range(struct sl_http_request *request)
{
	const struct sl_http_range *range = &request->response.range;
	const struct sl_http *http = request->http;
	uint64_t last = request->from + request->length - 1;

	if (!request->ranged)
		sl_http_fail_protocol(request, "a part of what was asked for");
	else if (request->response.bad_range)
		sl_http_fail_protocol(request, "a Content-Range that is none");
	else if (!request->response.has_range)
		sl_http_fail_protocol(request, "a part, and no Content-Range");
	else if (http->size >= 0 && range->total >= 0 && range->total != http->size)
		sl_http_fail_changed(request, "it has another length");
	else if (!range->satisfied || range->first != request->from || range->last != last)
		sl_http_fail_protocol(request, "another part than was asked for (Content-Range)");
	else if (request->response.has_length && request->response.length != request->length)
		sl_http_fail_protocol(request, "another length than its Content-Range has");
	return !request->error;
}

/* Whether a 200 is the whole object, as requested. */
static bool response_is_object(struct sl_http_request *request)
{
	const struct sl_http_range *range = &request->response.range;
	const struct sl_http *http = request->http;

	if (!request->kind->opens && request->ranged &&
	    (request->from || request->length != (uint64_t)http->size))
		sl_http_fail_protocol(request, "HTTP 200, as for the whole object, and a part was "
		                               "asked for");
	else if (request->response.has_range && range->satisfied &&
	         (range->first || range->last + 1 != (uint64_t)range->total))
		sl_http_fail_protocol(request,
		                      "a part that it calls the whole object (Content-Range)");
	else if (http->size >= 0 && request->response.has_length &&
	         request->response.length != (uint64_t)http->size)
		sl_http_fail_changed(request, "it has another length");
	return !request->error;
}

static bool response_field_is_same(const struct sl_http_request *request, enum sl_http_field field)
{
	const char *before = request->http->opened.of[field];
	const char *now = request->response.texts.of[field];

	return before && now ? !strcmp(before, now) : before == now;
}

/* Whether the response is about the opened version. An equal strong ETag is enough. */
static bool response_is_version(struct sl_http_request *request)
{
	const char *etag = request->response.texts.of[SL_HTTP_FIELD_ETAG];
	bool by_date = request->http->by_date, enough = !by_date && etag && sl_strong_etag(etag);

	if (request->kind->opens)
		return true;
	if (!by_date && !response_field_is_same(request, SL_HTTP_FIELD_ETAG))
		sl_http_fail_changed(request,
		                     etag ? "it has another ETag" : "an answer lacks the ETag");
	else if (!enough && !response_field_is_same(request, SL_HTTP_FIELD_MODIFIED))
		sl_http_fail_changed(request, "it was modified");
	else if (!response_field_is_same(request, SL_HTTP_FIELD_ENCODING))
		sl_http_fail_changed(request, "it has another Content-Encoding");
	return !request->error;
}

/* Looks at the fields of an answer to a GET, once, before the body. */
bool sl_http_accepts(struct sl_http_request *request)
{
	long status = request->response.status;

	if (request->response.judged)
		return request->response.accepted;
	request->response.judged = true;
	if (status != 200 && status != 206 && !(status == 204 && request->kind->opens))
		return false;
	if (request->response.bad_length)
		sl_http_fail_protocol(request, "a Content-Length that is none");
	else if (request->response.texts.of[SL_HTTP_FIELD_ENCODING] &&
	         !(request->http->flags & SLUICE_OPEN_AS_STORED))
		sl_http_fail_protocol(request, "encoded content (Content-Encoding), which only "
		                               "SLUICE_OPEN_AS_STORED takes");
	else if ((request->response.partial = response_is_partial(request)))
		request->response.accepted =
			response_is_range(request) && response_is_version(request);
	else
		request->response.accepted =
			response_is_version(request) && response_is_object(request);
	if (request->response.accepted && (request->asks || request->hops))
		sl_http_located(request, true);
	return request->response.accepted;
}

/* Keeps the first line of an error's body; in HTML and XML, the text between the tags. */
static void response_keep_error(struct sl_http_response *response, const char *data, size_t bytes)
{
	char *said = response->error_text;
	size_t length = strlen(said);

	for (size_t i = 0; i < bytes && length < sizeof(response->error_text) - 1; i++) {
		char c = data[i];

		if (response->tagged && (c == '<' || c == '>')) {
			response->in_tag = c == '<';
			c = ' ';
		}
		if (response->in_tag || response->error_line_over)
			continue;
		response->error_line_over = c == '\n' && length;
		if ((unsigned char)c < ' ' || c == 0x7f ||
		    (c == ' ' && (!length || said[length - 1] == ' ')))
			continue;
		said[length++] = c;
	}
	said[length] = '\0';
}

bool sl_http_error_take(struct sl_http_request *request, const char *data, size_t bytes)
{
	/* libcurl tells where a redirect leads when the whole body has come. */
	size_t most = request->response.status / 100 == 3 ? MOST_REDIRECT_BYTES : MOST_SAID_BYTES;

	if (!request->response.error_bytes && bytes)
		request->response.tagged = data[0] == '<';
	request->response.error_bytes += bytes;
	if (request->http->signer)
		sl_http_signed_keep(request, data, bytes);
	else
		response_keep_error(&request->response, data, bytes);
	return !request->error && request->response.error_bytes <= most;
}

void sl_http_piece_put(const struct sl_piece *piece, size_t at, const char *data, size_t bytes)
{
	uint64_t from = piece->offset + at, end = from + bytes;

	if (!piece->extents) {
		memcpy(piece->data + at, data, bytes);
		return;
	}
	for (size_t i = 0; i < piece->extent_count; i++) {
		const struct sluice_extent *e = &piece->extents[i];
		uint64_t first = SL_MAX(from, e->offset), last = SL_MIN(end, e->offset + e->length);

		if (first < last)
			memcpy((char *)e->data + (first - e->offset), data + (first - from),
			       last - first);
	}
}

void sl_http_begun(struct sl_http_request *request, size_t bytes)
{
	request->response.got += bytes;
	if (bytes && !atomic_load_explicit(&request->http->begun, memory_order_relaxed))
		atomic_store_explicit(&request->http->begun, true, memory_order_relaxed);
	sl_http_arrived(request, bytes);
}

size_t sl_http_on_body(char *data, size_t size, size_t count, void *argument)
{
	struct sl_http_request *request = argument;

	request->alive = sl_now();
	if (request->kind->take)
		return request->kind->take(request, data, size * count);
	sl_http_error_take(request, data, size * count);
	return size * count;
}

/* Returns enum sl_http_field of a name; -1: it is not kept. Limits count in a 429 alone. */
static int response_field(const struct sl_http_request *request, const char *name, size_t length)
{
	const struct sl_signer *signer = request->http->signer;
	bool limited = request->response.status == 429;
	int end = signer ? SL_HTTP_FIELDS : SL_HTTP_FIELD_DATE;

	for (int i = 0; i < end; i++) {
		const char *own = i < SL_HTTP_FIELD_SERVICE
		                          ? field_names[i]
		                          : signer->service->fields[i - SL_HTTP_FIELD_SERVICE];

		if ((limited || i < SL_HTTP_FIELD_RATELIMIT || i >= SL_HTTP_FIELD_DATE) && own &&
		    strlen(own) == length && !strncasecmp(name, own, length))
			return i;
	}
	return -1;
}

/* Keeps a value, perhaps in its own memory, `line`. Several values with a name become a list, as on
 * a single line (RFC 9110, 5.2). Returns memory to free. */
static char *response_keep(struct sl_http_request *request, char **kept, char *line,
                           const char *value)
{
	char *all;

	if (!value[0] || (*kept && !strcmp(*kept, value)))
		return line;
	if (!*kept) {
		*kept = memmove(line, value, strlen(value) + 1);
		return NULL;
	}
	all = sl_format("%s, %s", *kept, value);
	if (!all) {
		sl_http_request_fail(request, -ENOMEM, "no memory for a header");
		return line;
	}
	free(*kept);
	*kept = all;
	return line;
}

/* A field. Most tell nothing of use, and are not even copied. */
static void response_on_field(struct sl_http_request *request, const char *data, size_t bytes)
{
	static const char coding[] = "Transfer-Encoding";
	const char *colon = memchr(data, ':', bytes);
	size_t length = colon ? colon - data : 0;
	int i = response_field(request, data, length);
	char *line, *name, *value;

	if (request->http->keep_metadata)
		request->http->keep_metadata(request, data, bytes);
	request->response.kept = i >= 0;
	if (!request->response.kept &&
	    (length != sizeof(coding) - 1 || strncasecmp(data, coding, length)))
		return;
	line = strndup(data, bytes);
	if (!line) {
		sl_http_request_fail(request, -ENOMEM, "no memory for a header");
		return;
	}
	if (sl_http_parse_field(line, &name, &value)) {
		/* libcurl would decode it, and not miss the end. */
		if (!request->response.kept && strcasecmp(value, "chunked") &&
		    strcasecmp(value, "identity"))
			sl_http_fail_protocol(request,
			                      "a Transfer-Encoding that was not asked for");
		if (request->response.kept &&
		    !(i == SL_HTTP_FIELD_ENCODING && !strcasecmp(value, "identity")))
			line = response_keep(request, &request->response.texts.of[i], line, value);
	}
	free(line);
}

/* Returns for how many milliseconds the server wants no request; -1: it does not say. */
static int64_t response_pause(char *const *text)
{
	if (text[SL_HTTP_FIELD_RETRY_AFTER])
		return sl_http_parse_retry_after(text[SL_HTTP_FIELD_RETRY_AFTER], time(NULL));
	if (text[SL_HTTP_FIELD_RATELIMIT])
		return sl_http_parse_ratelimit(text[SL_HTTP_FIELD_RATELIMIT]);
	for (int i = SL_HTTP_FIELD_RATELIMIT_RESET; i < SL_HTTP_FIELD_DATE; i++)
		if (text[i])
			return sl_http_parse_ratelimit_reset(text[i], time(NULL));
	return -1;
}

/* The fields are complete. Two different values are none. */
static void response_on_fields(struct sl_http_request *request)
{
	char *const *text = request->response.texts.of;
	const char *range = text[SL_HTTP_FIELD_RANGE], *length = text[SL_HTTP_FIELD_LENGTH];
	const char *type = text[SL_HTTP_FIELD_TYPE], *ranges = text[SL_HTTP_FIELD_RANGES];

	request->response.complete = true;
	request->response.has_range = range && sl_http_parse_range(range, &request->response.range);
	/* A multipart body has a Content-Range for each part. */
	request->response.bad_range = (range && !request->response.has_range) ||
	                              (type && !strncasecmp(type, "multipart/byteranges", 20));
	request->response.has_length =
		length && sl_http_parse_length(length, &request->response.length);
	request->response.bad_length = length && !request->response.has_length;
	request->response.ranges = ranges && !strcasecmp(ranges, "bytes");
	request->response.retry_after = response_pause(text);
	/* A server that makes its bytes for HEAD, too, answers nothing else on the connection. */
	if (request->kind->bare && request->response.status == 200 && !length &&
	    !(request->http->flags & SLUICE_OPEN_HTTP2))
		curl_easy_setopt(request->transfer->easy, CURLOPT_FORBID_REUSE, 1L);
}

/* Called for each line. A status line begins an answer; there may be several: interim answers, and
 * the answer after a refused "Expect". Lines behind the last answer's fields are a trailer, too
 * late for any check. */
size_t sl_http_on_line(char *data, size_t size, size_t count, void *argument)
{
	struct sl_http_request *request = argument;
	size_t bytes = size * count, so_far = request->response.field_bytes + bytes;
	long status = request->response.status;

	request->alive = sl_now();
	if (so_far == bytes) {
		request->first = request->alive - request->asked;
		sl_http_limit_answered(request->http->limit, request->first);
	}
	if (so_far > MOST_FIELD_BYTES) {
		sl_http_fail_protocol(request, "more than 64 KiB of header");
		return 0;
	}
	if (bytes >= 5 && !strncasecmp(data, "HTTP/", 5) &&
	    (!status || (request->response.complete && (status < 200 || request->kind->sends ||
	                                                (status == 401 && request->how))))) {
		sl_http_response_clear(&request->response);
		curl_easy_getinfo(request->transfer->easy, CURLINFO_RESPONSE_CODE,
		                  &request->response.status);
	} else if (!request->response.complete && (data[0] == '\r' || data[0] == '\n')) {
		response_on_fields(request);
	} else if (!request->response.complete && (data[0] == ' ' || data[0] == '\t')) {
		/* Other fields may be folded. */
		if (request->response.kept)
			sl_http_fail_protocol(request, "a folded line of its header");
	} else if (!request->response.complete) {
		response_on_field(request, data, bytes);
	}
	request->response.field_bytes = so_far;
	return request->error ? 0 : bytes;
}
