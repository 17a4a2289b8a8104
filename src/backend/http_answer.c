/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is believed of an answer, and where its bytes go. Nothing reaches the piece's memory before the
 * answer was found to be the one that was asked for, and nothing beyond what was asked for.
 */
#include <errno.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#include "backend/http.h"

#define MOST_FIELD_BYTES ((size_t)64 << 10)

static bool is_whole(const struct sl_http_request *request)
{
	return request->from == 0 &&
	       (request->http->size < 0 || request->length == (uint64_t)request->http->size);
}

void sl_http_changed(struct sl_http_request *request, const char *what)
{
	sl_http_request_fail(request, -ESTALE, "'%s' changed since it was opened: %s",
	                     request->http->name, what);
}

void sl_http_odd(struct sl_http_request *request, const char *what)
{
	sl_http_request_fail(request, -EPROTO, "'%s': the server answered with %s",
	                     request->http->name, what);
}

/* Whether a 206 is the part that was asked for. */
bool sl_http_is_part(struct sl_http_request *request)
{
	const struct sl_http_range *range = &request->answer.range;
	const struct sl_http *http = request->http;
	uint64_t last = request->from + request->length - 1;

	if (!request->ranged)
		sl_http_odd(request, "a part of what was asked for");
	else if (!request->answer.has_range)
		sl_http_odd(request, request->answer.bad_range ? "a Content-Range that is none"
		                                               : "a part, and no Content-Range");
	else if (http->size >= 0 && range->total >= 0 && range->total != http->size)
		sl_http_changed(request, "it has another length");
	else if (!range->satisfied || range->first != request->from || range->last != last)
		sl_http_odd(request, "another part than was asked for (Content-Range)");
	else if (request->answer.has_length && request->answer.length != request->length)
		sl_http_odd(request, "another length than its Content-Range has");
	else
		return true;
	return false;
}

/* Whether a 200 is the whole object, and that was asked for. */
static bool is_object(struct sl_http_request *request)
{
	if (request->ranged && !is_whole(request))
		sl_http_odd(request, "the whole object, and a part was asked for");
	else if (request->http->size >= 0 && request->answer.has_length &&
	         request->answer.length != (uint64_t)request->http->size)
		sl_http_changed(request, "it has another length");
	else
		return true;
	return false;
}

static bool differ(const char *before, const char *now)
{
	return before[0] && now[0] && strcmp(before, now) != 0;
}

/* Looks at the fields of an answer to a GET, once, before its body is touched. */
bool sl_http_accepts(struct sl_http_request *request)
{
	const char *etag = request->answer.etag;
	long status = request->answer.status;

	if (request->answer.judged)
		return request->answer.accepted;
	request->answer.judged = true;
	if (status != 200 && status != 206)
		return false;
	if (request->answer.bad_length)
		sl_http_odd(request, "a Content-Length that is none");
	else if (request->answer.encoded)
		sl_http_odd(request, "encoded content, which was not asked for");
	else if (differ(request->http->etag, etag))
		sl_http_changed(request, "it has another ETag");
	else if (!etag[0] && differ(request->http->modified, request->answer.modified))
		sl_http_changed(request, "it was modified");
	else if (request->ask != SL_HTTP_GET || status == 206 ? sl_http_is_part(request)
	                                                      : is_object(request))
		request->answer.accepted = true;
	return request->answer.accepted;
}

/* Keeps the first line of the body of an error; of HTML and XML, what stands between the tags. */
static void keep_said(struct sl_http_request *request, const char *data, size_t bytes)
{
	char *said = request->answer.said;
	size_t length = strlen(said);

	if (!request->answer.said_bytes && bytes)
		request->answer.tagged = data[0] == '<';
	request->answer.said_bytes += bytes;
	for (size_t i = 0; i < bytes && length < sizeof(request->answer.said) - 1; i++) {
		char c = data[i];

		if (request->answer.tagged && (c == '<' || c == '>')) {
			request->answer.in_tag = c == '<';
			c = ' ';
		}
		if (request->answer.in_tag || request->answer.said_line)
			continue;
		if (c == '\n' && length) {
			request->answer.said_line = true;
			continue;
		}
		if ((unsigned char)c < ' ' || c == 0x7f ||
		    (c == ' ' && (!length || said[length - 1] == ' ')))
			continue;
		said[length++] = c;
	}
	said[length] = '\0';
}

size_t sl_http_on_body(char *data, size_t size, size_t count, void *argument)
{
	struct sl_http_request *request = argument;
	struct sl_piece *piece = request->piece;
	size_t bytes = size * count, room;

	request->heard = sl_now();
	if (request->ask == SL_HTTP_PUT) {
		keep_said(request, data, bytes);
		return bytes;
	}
	/* A probe is over when its fields are there. */
	if (request->ask != SL_HTTP_GET) {
		keep_said(request, data, bytes);
		return request->answer.status >= 300 && request->answer.said_bytes < 4096 ? bytes
		                                                                          : 0;
	}
	if (!sl_http_accepts(request)) {
		keep_said(request, data, bytes);
		return request->error || request->answer.said_bytes > 4096 ? 0 : bytes;
	}
	if (atomic_load_explicit(&piece->cancelled, memory_order_relaxed))
		return 0;
	room = piece->length - piece->moved;
	if (bytes > room) {
		/* Of an object of unknown length as much is read as there is room for. */
		if (request->http->size < 0) {
			memcpy(piece->data + piece->moved, data, room);
			piece->moved += room;
			request->answer.got += room;
		} else {
			sl_http_odd(request, "more bytes than were asked for");
		}
		return 0;
	}
	memcpy(piece->data + piece->moved, data, bytes);
	piece->moved += bytes;
	request->answer.got += bytes;
	atomic_fetch_add_explicit(&request->http->limit->arrived, bytes, memory_order_relaxed);
	return bytes;
}

static void on_field(struct sl_http_request *request, const char *name, const char *value)
{
	if (!strcasecmp(name, "Content-Range")) {
		request->answer.has_range = sl_http_parse_range(value, &request->answer.range);
		request->answer.bad_range = !request->answer.has_range;
	} else if (!strcasecmp(name, "Content-Length")) {
		uint64_t before = request->answer.length;
		bool again = request->answer.has_length;

		request->answer.has_length = sl_http_parse_length(value, &request->answer.length);
		request->answer.bad_length |=
			!request->answer.has_length || (again && before != request->answer.length);
	} else if (!strcasecmp(name, "ETag")) {
		sl_http_keep(value, request->answer.etag);
	} else if (!strcasecmp(name, "Last-Modified")) {
		sl_http_keep(value, request->answer.modified);
		request->answer.filetime = curl_getdate(value, NULL);
	} else if (!strcasecmp(name, "Content-Encoding")) {
		request->answer.encoded = strcasecmp(value, "identity") != 0 && value[0];
	} else if (!strcasecmp(name, "Accept-Ranges")) {
		request->answer.ranges = !strcasecmp(value, "bytes");
	} else if (!strcasecmp(name, "Retry-After")) {
		request->answer.retry_after = sl_http_parse_retry_after(value, time(NULL));
	}
}

/* Called for each line; the line of the status begins an answer, of which there may be several. */
size_t sl_http_on_line(char *data, size_t size, size_t count, void *argument)
{
	struct sl_http_request *request = argument;
	size_t bytes = size * count;
	char line[1024], *name, *value;

	request->heard = sl_now();
	request->answer.field_bytes += bytes;
	if (request->answer.field_bytes > MOST_FIELD_BYTES) {
		sl_http_odd(request, "more than 64 KiB of header");
		return 0;
	}
	if (bytes >= 5 && !strncasecmp(data, "HTTP/", 5)) {
		size_t so_far = request->answer.field_bytes;

		memset(&request->answer, 0, sizeof(request->answer));
		request->answer.field_bytes = so_far;
		request->answer.retry_after = -1;
		request->answer.filetime = -1;
		curl_easy_getinfo(request->transfer->easy, CURLINFO_RESPONSE_CODE,
		                  &request->answer.status);
		return bytes;
	}
	/* What is longer is nothing that is looked at here. */
	if (bytes < sizeof(line)) {
		memcpy(line, data, bytes);
		line[bytes] = '\0';
		if (sl_http_parse_field(line, &name, &value))
			on_field(request, name, value);
	}
	return bytes;
}
