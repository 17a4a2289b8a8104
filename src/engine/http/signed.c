/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Signed requests
 *
 * Has the service of an object sign each attempt of a request, and judge errors.
 *
 * Threads: the reactor that moves the request.
 */
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "http/call.h"

#define MOST_XML  ((size_t)16 << 10) /* a name of 1,024 characters may be six times as long */
#define MOST_PAGE ((size_t)1 << 20)  /* a thousand removed objects */

int sl_http_signed_prepare(struct sl_http_request *request, struct curl_slist *lines)
{
	const struct sl_http_call *call = request->call;
	struct sl_signer *signer = request->http->signer;
	struct sl_service_request asked = {.method = request->verb, .looks = request->kind->opens};
	struct sl_service_signed made = {0};
	int rc = 0;

	sl_lines_clear(&request->lines, request->lines_rest);
	request->lines = lines;
	request->lines_rest = lines;
	if (call) {
		asked.query = call->query;
		asked.payload = call->digest.payload[0] ? call->digest.payload : NULL;
		asked.body_length = call->length;
		if (call->digest.line[0])
			rc = sl_line_put(&request->lines, "%s", call->digest.line);
	}
	if (!rc)
		rc = signer->service->signing->sign(signer, &asked, &request->lines, &made);
	request->keys = made.version;
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
	size_t most = call && call->kind == SL_CALL_REMOVE_MANY ? MOST_PAGE : MOST_XML;

	if (!*xml)
		*xml = calloc(1, most);
	/* A server that takes its time sends blanks meanwhile. */
	for (size_t i = 0; *xml && i < bytes && length < most - 1; i++)
		if (!isspace((unsigned char)data[i]) ||
		    (length && !isspace((unsigned char)(*xml)[length - 1])))
			(*xml)[length++] = data[i];
}

static void request_parse_error(const struct sl_http_request *request, struct sl_service_error *out)
{
	const struct sl_http_response *response = &request->response;
	const char *region = response->texts.of[SL_HTTP_FIELD_REGION];
	const char *id = response->texts.of[SL_HTTP_FIELD_REQUEST_ID];

	request->http->signer->service->texts->error(response->xml ? response->xml : "", out);
	if (region && strlen(region) < sizeof(out->region))
		strcpy(out->region, region);
	if (id && !out->request_id[0] && strlen(id) < sizeof(out->request_id))
		strcpy(out->request_id, id);
}

bool sl_http_signed_judge(struct sl_http_request *request, enum sl_http_verdict *out)
{
	struct sl_http *http = request->http;
	const char *date = request->response.texts.of[SL_HTTP_FIELD_DATE];
	struct sl_service_error error;

	/* Where the server redirected a request it had no signature. */
	if (request->url)
		return false;
	request_parse_error(request, &error);
	switch (http->signer->service->signing->judge(http->signer, request->keys,
	                                              request->response.status, &error,
	                                              date ? curl_getdate(date, NULL) : -1)) {
	case SL_REMEDY_NONE:
		/* The others are told by their status. */
		if (request->response.status >= 500 || !(error.means & SL_MEANS_PASSING))
			return false;
		*out = sl_http_request_retry(request, -EIO, error.code);
		return true;
	case SL_REMEDY_AGAIN:
		request->due = 0;
		*out = SL_HTTP_AGAIN;
		return true;
	case SL_REMEDY_LATER:
		*out = sl_http_request_retry(request, -EACCES, error.code);
		return true;
	case SL_REMEDY_MOVE:
		break;
	}
	*out = request_failed(request, -EREMOTE, "'%s': the bucket is in the region '%s'",
	                      http->name, error.region);
	return true;
}

int sl_http_signed_error(const struct sl_http_request *request, int error, char *text, size_t size)
{
	struct sl_service_error said;

	request_parse_error(request, &said);
	snprintf(text, size, "%s%s%s%s%s%s", said.code, said.code[0] && said.message[0] ? ": " : "",
	         said.message, said.request_id[0] ? " (request id " : "", said.request_id,
	         said.request_id[0] ? ")" : "");
	return said.error ? said.error : error;
}
