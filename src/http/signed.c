/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Signed requests
 *
 * Adds the signature to the lines of a request for an object of S3, and judges the errors that S3 has for signatures.
 *
 * Threads: the reactor that moves the request.
 */
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "http/call.h"
#include "http/signed.h"

#define MOST_XML  ((size_t)16 << 10) /* a key of 1,024 characters may be six times that */
#define MOST_PAGE ((size_t)1 << 20)  /* of a list of a thousand removed objects */

int sl_http_signed_prepare(struct sl_http_request *request, const struct curl_slist *lines)
{
	const struct sl_http_call *call = request->call;
	struct curl_slist more = {.data = (char *)"x-amz-checksum-mode: ENABLED",
	                          .next = (struct curl_slist *)lines};
	struct sl_s3_signed made = {NULL};
	int rc;

	sl_s3_lines_clear(&request->lines);
	if (request->kind->opens && !sl_http_identity_has(request->http, "x-amz-checksum-mode"))
		lines = &more;
	if (call && call->line[0]) {
		more.data = (char *)call->line;
		lines = &more;
	}
	rc = sl_s3_sign(request->http->s3, request->verb, call ? call->query : NULL,
	                call && call->payload[0] ? call->payload : NULL, 0, lines, &made);
	request->lines = made.lines;
	request->keys = made.version;
	for (; !rc && lines; lines = lines->next)
		rc = sl_s3_line_add(&request->lines, "%s", lines->data);
	if (rc)
		sl_http_request_fail(request, rc, "no memory to sign a request");
	return rc;
}

/* ------------------------------------------------------------------------------------- errors */

void sl_http_signed_keep(struct sl_http_request *request, const char *data, size_t bytes)
{
	char **xml = &request->response.xml;
	size_t length = *xml ? strlen(*xml) : 0;
	const struct sl_http_call *call = request->call;
	bool page = call && call->root && !strcmp(call->root, "DeleteResult");
	size_t most = page ? MOST_PAGE : MOST_XML;

	if (!*xml)
		*xml = calloc(1, most);
	/* A server that takes its time sends blanks meanwhile. */
	for (size_t i = 0; *xml && i < bytes && length < most - 1; i++)
		if (!isspace((unsigned char)data[i]) ||
		    (length && !isspace((unsigned char)(*xml)[length - 1])))
			(*xml)[length++] = data[i];
}

static void request_parse_error(const struct sl_http_request *request, struct sl_s3_error *out)
{
	const struct sl_http_response *response = &request->response;
	const char *region = response->texts.of[SL_HTTP_FIELD_REGION];
	const char *id = response->texts.of[SL_HTTP_FIELD_REQUEST_ID];

	sl_s3_error_parse(response->xml ? response->xml : "", out);
	if (region && strlen(region) < sizeof(out->region))
		strcpy(out->region, region);
	if (id && !out->request_id[0] && strlen(id) < sizeof(out->request_id))
		strcpy(out->request_id, id);
}

bool sl_http_signed_judge(struct sl_http_request *request, enum sl_http_verdict *out)
{
	struct sl_http *http = request->http;
	const char *date = request->response.texts.of[SL_HTTP_FIELD_DATE];
	struct sl_s3_error error;

	/* Where the server redirected a request it had no signature. */
	if (request->url)
		return false;
	request_parse_error(request, &error);
	switch (sl_s3_remedy_find(http->s3, request->keys, request->response.status, &error,
	                          date ? curl_getdate(date, NULL) : -1)) {
	case SL_S3_NONE:
		/* The others are told by their status. */
		if (request->response.status >= 500 || !sl_s3_error_is(&error, SL_S3_PASSING))
			return false;
		*out = sl_http_request_retry(request, -EIO, error.code);
		return true;
	case SL_S3_AGAIN:
		request->due = 0;
		*out = SL_HTTP_AGAIN;
		return true;
	case SL_S3_LATER:
		*out = sl_http_request_retry(request, -EACCES, error.code);
		return true;
	case SL_S3_MOVE:
		break;
	}
	*out = request_failed(request, -EREMOTE, "'%s': the bucket is in the region '%s'",
	                      http->name, error.region);
	return true;
}

int sl_http_signed_error(const struct sl_http_request *request, int error, char *text, size_t size)
{
	struct sl_s3_error said;

	request_parse_error(request, &said);
	snprintf(text, size, "%s%s%s%s%s%s", said.code, said.code[0] && said.message[0] ? ": " : "",
	         said.message, said.request_id[0] ? " (request id " : "", said.request_id,
	         said.request_id[0] ? ")" : "");
	return sl_s3_error_is(&said, " ExpiredToken InvalidToken AuthorizationHeaderMalformed ")
	               ? -EACCES
	               : error;
}
