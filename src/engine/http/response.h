/* SPDX-License-Identifier: Apache-2.0 */
/* Responses: parsing their header, and the response to an attempt. */
#ifndef SL_HTTP_RESPONSE_H
#define SL_HTTP_RESPONSE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "service/service.h"

struct sl_http_request;
struct sl_piece;

#define SL_HTTP_ETAG 128 /* as in struct sluice_file_info */

/* ----------------------------------------------------------------------------------- parsing */

/* Content-Range (RFC 9110, section 14.4). */
struct sl_http_range {
	uint64_t first, last; /* bytes, both included; valid if satisfied */
	bool satisfied;       /* false: the field says a star for the range, and only the total */
	int64_t total;        /* bytes in the object, -1: unknown */
};
/* Returns false if the text is no Content-Range. */
bool sl_http_parse_range(const char *text, struct sl_http_range *out);
/* Parses a length in decimal digits; returns false if the text is anything else. */
bool sl_http_parse_length(const char *text, uint64_t *out);
/* Returns Retry-After (section 10.2.3) in milliseconds. now: seconds since 1970. -1: malformed. */
int64_t sl_http_parse_retry_after(const char *text, int64_t now);
/*
 * Return in how many milliseconds a limit on requests is reset; -1 if malformed. RateLimit has
 * parameters (draft-ietf-httpapi-ratelimit-headers): `"name";r=0;t=30`, or `limit=9, remaining=0,
 * reset=30` before; among several limits with nothing left the longest counts. A reset is in
 * seconds from now or, from some servers, since 1970.
 */
int64_t sl_http_parse_ratelimit(const char *text);
int64_t sl_http_parse_ratelimit_reset(const char *text, int64_t now);
/* Copies a printable ETag that fits into SL_HTTP_ETAG; any other becomes "". */
void sl_http_copy_etag(const char *text, char *out);
/* Splits "Name: value\r\n" in place; returns false if the line is no header field. */
bool sl_http_parse_field(char *line, char **name, char **value);

/* ---------------------------------------------------------------------------------- response */

/* The kept fields, as they were sent; NULL: not sent. */
enum sl_http_field {
	SL_HTTP_FIELD_ETAG,
	SL_HTTP_FIELD_MODIFIED,
	SL_HTTP_FIELD_ENCODING,
	SL_HTTP_FIELD_RANGE,
	SL_HTTP_FIELD_LENGTH,
	SL_HTTP_FIELD_TYPE,
	SL_HTTP_FIELD_RANGES,
	SL_HTTP_FIELD_RETRY_AFTER,
	/* Kept from a 429 only. */
	SL_HTTP_FIELD_RATELIMIT,
	SL_HTTP_FIELD_RATELIMIT_RESET,
	SL_HTTP_FIELD_X_RATELIMIT_RESET,
	/* Kept from services only. */
	SL_HTTP_FIELD_DATE,
	SL_HTTP_FIELD_SERVICE, /* the first of enum sl_service_field */
	SL_HTTP_FIELD_REGION = SL_HTTP_FIELD_SERVICE + SL_SERVICE_FIELD_REGION,
	SL_HTTP_FIELD_REQUEST_ID = SL_HTTP_FIELD_SERVICE + SL_SERVICE_FIELD_REQUEST_ID,
	SL_HTTP_FIELD_CRC32C = SL_HTTP_FIELD_SERVICE + SL_SERVICE_FIELD_CRC32C,
	SL_HTTP_FIELD_CHECKSUM_TYPE = SL_HTTP_FIELD_SERVICE + SL_SERVICE_FIELD_CHECKSUM_TYPE,
	SL_HTTP_FIELD_CHECKSUM_ALGORITHM =
		SL_HTTP_FIELD_SERVICE + SL_SERVICE_FIELD_CHECKSUM_ALGORITHM,
	SL_HTTP_FIELDS = SL_HTTP_FIELD_SERVICE + SL_SERVICE_FIELDS
};
struct sl_http_texts {
	char *of[SL_HTTP_FIELDS];
};
void sl_http_texts_clear(struct sl_http_texts *texts);

/* The response to the attempt. */
struct sl_http_response {
	long status;
	size_t field_bytes;
	bool complete; /* the empty line behind the fields has come */
	bool kept;     /* the last line is kept */
	bool has_range, bad_range, has_length, bad_length, ranges;
	struct sl_http_range range;
	uint64_t length;
	int64_t retry_after; /* milliseconds, also by a limit on requests; -1: not sent */
	struct sl_http_texts texts;
	struct curl_slist *metadata; /* lines, see struct sl_http */
	bool judged, accepted;       /* by sl_http_accepts(), */
	bool partial;                /* and it is a range, as in a 206 */
	uint64_t got;                /* bytes taken from the body */
	char error_text[201];        /* the first line of an error's body */
	char *xml;                   /* with a service: the begin; or NULL */
	size_t error_bytes;
	bool error_line_over;
	bool tagged, in_tag; /* it is HTML or XML; the next byte is within a tag */
};
/* Forgets the response. */
void sl_http_response_clear(struct sl_http_response *response);
/* Returns whether the response is as expected; checks once, and keeps the error. */
bool sl_http_accepts(struct sl_http_request *request);
/* libcurl's callbacks for the lines of a header and the bytes of a body. */
size_t sl_http_on_line(char *data, size_t size, size_t count, void *request);
size_t sl_http_on_body(char *data, size_t size, size_t count, void *request);
/* Keeps bytes from an error's body. Returns whether more is wanted. */
bool sl_http_error_take(struct sl_http_request *request, const char *data, size_t bytes);
/* Counts bytes from an object. */
void sl_http_begun(struct sl_http_request *request, size_t bytes);
/* Copies bytes from position `at` in a piece to where they belong. */
void sl_http_piece_put(const struct sl_piece *piece, size_t at, const char *data, size_t bytes);
/* Fail the request: the response breaks the protocol, or is about another version. */
void sl_http_fail_protocol(struct sl_http_request *request, const char *what);
void sl_http_fail_changed(struct sl_http_request *request, const char *what);

#endif
