/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is believed of an answer, and where its bytes go. Nothing reaches the piece's memory before the
 * answer was found to be the one that was asked for, and nothing beyond what was asked for.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#include "http/http_internal.h"

#define MOST_FIELD_BYTES    ((size_t)64 << 10)
#define MOST_SAID_BYTES     4096
#define MOST_REDIRECT_BYTES (1 << 20)

static const char *const names[SL_HTTP_FIELDS] = {
	"ETag",           "Last-Modified", "Content-Encoding", "Content-Range",
	"Content-Length", "Content-Type",  "Accept-Ranges",    "Retry-After",
};

void sl_http_fail_changed(struct sl_http_request *request, const char *what)
{
	sl_http_request_fail(request, -ESTALE, "'%s' changed since it was opened: %s",
	                     request->http->name, what);
}

void sl_http_fail_odd(struct sl_http_request *request, const char *what)
{
	sl_http_request_fail(request, -EPROTO, "'%s': the server answered with %s",
	                     request->http->name, what);
}

void sl_http_texts_clear(struct sl_http_texts *texts)
{
	for (int i = 0; i < SL_HTTP_FIELDS; i++)
		free(texts->of[i]);
	memset(texts, 0, sizeof(*texts));
}

void sl_http_answer_clear(struct sl_http_request *request)
{
	sl_http_texts_clear(&request->answer.texts);
	memset(&request->answer, 0, sizeof(request->answer));
	request->answer.retry_after = -1;
}

/* Whether a 206 is the part that was asked for. */
static bool is_part(struct sl_http_request *request)
{
	const struct sl_http_range *range = &request->answer.range;
	const struct sl_http *http = request->http;
	uint64_t last = request->from + request->length - 1;

	if (!request->ranged)
		sl_http_fail_odd(request, "a part of what was asked for");
	else if (request->answer.bad_range)
		sl_http_fail_odd(request, "a Content-Range that is none");
	else if (!request->answer.has_range)
		sl_http_fail_odd(request, "a part, and no Content-Range");
	else if (http->size >= 0 && range->total >= 0 && range->total != http->size)
		sl_http_fail_changed(request, "it has another length");
	else if (!range->satisfied || range->first != request->from || range->last != last)
		sl_http_fail_odd(request, "another part than was asked for (Content-Range)");
	else if (request->answer.has_length && request->answer.length != request->length)
		sl_http_fail_odd(request, "another length than its Content-Range has");
	return !request->error;
}

/* Whether a 200 is the whole object, and that was asked for. */
static bool is_object(struct sl_http_request *request)
{
	const struct sl_http_range *range = &request->answer.range;
	const struct sl_http *http = request->http;

	if (request->ask == SL_HTTP_GET && request->ranged &&
	    (request->from || request->length != (uint64_t)http->size))
		sl_http_fail_odd(request, "the whole object, and a part was asked for");
	else if (request->answer.has_range && range->satisfied &&
	         (range->first || range->last + 1 != (uint64_t)range->total))
		sl_http_fail_odd(request, "a part that it calls the whole object (Content-Range)");
	else if (http->size >= 0 && request->answer.has_length &&
	         request->answer.length != (uint64_t)http->size)
		sl_http_fail_changed(request, "it has another length");
	return !request->error;
}

/* Whether a field says what it said to the opening. */
static bool is_same(const struct sl_http_request *request, enum sl_http_field field)
{
	const char *before = request->http->opened.of[field];
	const char *now = request->answer.texts.of[field];

	return before && now ? !strcmp(before, now) : before == now;
}

/* Whether the answer is about the version that was opened. An equal strong ETag is enough. */
static bool is_version(struct sl_http_request *request)
{
	const char *etag = request->answer.texts.of[SL_HTTP_FIELD_ETAG];
	bool enough = etag && sl_http_strong_etag(etag);

	if (request->ask == SL_HTTP_PROBE)
		return true;
	if (!is_same(request, SL_HTTP_FIELD_ETAG))
		sl_http_fail_changed(request,
		                     etag ? "it has another ETag" : "an answer lacks the ETag");
	else if (!enough && !is_same(request, SL_HTTP_FIELD_MODIFIED))
		sl_http_fail_changed(request, "it was modified");
	else if (!is_same(request, SL_HTTP_FIELD_ENCODING))
		sl_http_fail_changed(request, "it has another Content-Encoding");
	return !request->error;
}

/* Looks at the fields of an answer to a GET, once, before its body is touched. */
bool sl_http_accepts(struct sl_http_request *request)
{
	long status = request->answer.status;

	if (request->answer.judged)
		return request->answer.accepted;
	request->answer.judged = true;
	if (status != 200 && status != 206 && !(status == 204 && request->ask == SL_HTTP_PROBE))
		return false;
	if (request->answer.bad_length)
		sl_http_fail_odd(request, "a Content-Length that is none");
	else if (request->answer.texts.of[SL_HTTP_FIELD_ENCODING] &&
	         !(request->http->flags & SLUICE_OPEN_AS_STORED))
		sl_http_fail_odd(request, "encoded content (Content-Encoding), which only "
		                          "SLUICE_OPEN_AS_STORED takes");
	else
		request->answer.accepted = status == 206
		                                   ? is_part(request) && is_version(request)
		                                   : is_version(request) && is_object(request);
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
	size_t bytes = size * count, room, most;

	request->alive = sl_now();
	/* Of an error the first line is told. A probe is over when its fields are there. */
	if (request->ask != SL_HTTP_GET || !sl_http_accepts(request)) {
		keep_said(request, data, bytes);
		/* libcurl tells where a redirect leads when all of its body has come. */
		most = request->answer.status / 100 == 3 ? MOST_REDIRECT_BYTES : MOST_SAID_BYTES;
		return request->ask == SL_HTTP_PUT ||
		                       (!request->error && request->answer.said_bytes <= most &&
		                        (request->ask == SL_HTTP_GET ||
		                         request->answer.status >= 300))
		               ? bytes
		               : 0;
	}
	if (piece && atomic_load_explicit(&piece->cancelled, memory_order_relaxed))
		return 0;
	room = piece                      ? piece->length - piece->moved
	       : request->http->size >= 0 ? (uint64_t)request->http->size - request->answer.got
	                                  : bytes;
	if (bytes > room) {
		sl_http_fail_odd(request, "more bytes than were asked for");
		return 0;
	}
	if (piece) {
		memcpy(piece->data + piece->moved, data, bytes);
		piece->moved += bytes;
	} else {
		size_t rc = sl_http_body_take(request->http->body, data, bytes);

		if (rc != bytes)
			return rc;
	}
	request->answer.got += bytes;
	if (bytes && !atomic_load_explicit(&request->http->begun, memory_order_relaxed))
		atomic_store_explicit(&request->http->begun, true, memory_order_relaxed);
	atomic_fetch_add_explicit(&request->http->limit->arrived, bytes, memory_order_relaxed);
	return bytes;
}

/* Keeps a value; several of one name become a list, as if one line had said them (RFC 9110, 5.2). */
static void on_field(struct sl_http_request *request, const char *name, const char *value)
{
	char **kept, *all;
	int i = 0;

	while (i < SL_HTTP_FIELDS && strcasecmp(name, names[i]))
		i++;
	request->answer.kept = i < SL_HTTP_FIELDS;
	/* libcurl would decode it, and not tell that its end is missing. */
	if (!strcasecmp(name, "Transfer-Encoding") && strcasecmp(value, "chunked") &&
	    strcasecmp(value, "identity"))
		sl_http_fail_odd(request, "a Transfer-Encoding that was not asked for");
	if (i == SL_HTTP_FIELDS || !value[0] ||
	    (i == SL_HTTP_FIELD_ENCODING && !strcasecmp(value, "identity")))
		return;
	kept = &request->answer.texts.of[i];
	if (*kept && !strcmp(*kept, value))
		return;
	if (asprintf(&all, "%s%s%s", *kept ? *kept : "", *kept ? ", " : "", value) < 0) {
		sl_http_request_fail(request, -ENOMEM, "no memory for a header");
		return;
	}
	free(*kept);
	*kept = all;
}

/* The fields are complete. Two values that differ are none. */
static void on_fields(struct sl_http_request *request)
{
	char *const *text = request->answer.texts.of;
	const char *range = text[SL_HTTP_FIELD_RANGE], *length = text[SL_HTTP_FIELD_LENGTH];
	const char *type = text[SL_HTTP_FIELD_TYPE], *ranges = text[SL_HTTP_FIELD_RANGES];
	const char *after = text[SL_HTTP_FIELD_RETRY_AFTER];

	request->answer.complete = true;
	request->answer.has_range = range && sl_http_parse_range(range, &request->answer.range);
	/* The Content-Range of a multipart body is not that of its bytes. */
	request->answer.bad_range = (range && !request->answer.has_range) ||
	                            (type && !strncasecmp(type, "multipart/byteranges", 20));
	request->answer.has_length =
		length && sl_http_parse_length(length, &request->answer.length);
	request->answer.bad_length = length && !request->answer.has_length;
	request->answer.ranges = ranges && !strcasecmp(ranges, "bytes");
	if (after)
		request->answer.retry_after = sl_http_parse_retry_after(after, time(NULL));
}

/*
 * Called for each line; the line of the status begins an answer, of which there may be several: interim ones,
 * and the one after a refused "Expect" of an upload. What follows the fields of the last one is a trailer,
 * which says nothing that could still be checked.
 */
size_t sl_http_on_line(char *data, size_t size, size_t count, void *argument)
{
	struct sl_http_request *request = argument;
	size_t bytes = size * count, so_far = request->answer.field_bytes + bytes;
	long status = request->answer.status;
	char *line, *name, *value;

	request->alive = sl_now();
	if (so_far > MOST_FIELD_BYTES) {
		sl_http_fail_odd(request, "more than 64 KiB of header");
		return 0;
	}
	if (bytes >= 5 && !strncasecmp(data, "HTTP/", 5) &&
	    (!status ||
	     (request->answer.complete && (status < 200 || request->ask == SL_HTTP_PUT)))) {
		sl_http_answer_clear(request);
		curl_easy_getinfo(request->transfer->easy, CURLINFO_RESPONSE_CODE,
		                  &request->answer.status);
	} else if (!request->answer.complete && (data[0] == '\r' || data[0] == '\n')) {
		on_fields(request);
	} else if (!request->answer.complete && (data[0] == ' ' || data[0] == '\t')) {
		/* Of fields of which nothing is asked, any may be folded. */
		if (request->answer.kept)
			sl_http_fail_odd(request, "a folded line of its header");
	} else if (!request->answer.complete) {
		line = strndup(data, bytes);
		if (!line)
			sl_http_request_fail(request, -ENOMEM, "no memory for a header");
		else if (sl_http_parse_field(line, &name, &value))
			on_field(request, name, value);
		free(line);
	}
	request->answer.field_bytes = so_far;
	return request->error ? 0 : bytes;
}
