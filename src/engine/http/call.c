/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls
 *
 * Requests to a service with a verb, a query and a body. A call has permit, retries and signature
 * like any other request; its body is memory, so that each attempt sends it again.
 *
 * Threads: any thread starts a call; the reactor that moves its request sends the body.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "http/call.h"

#define CALL_BUFFER  (512L << 10)
#define LEAST_COPIED (8 << 20) /* bytes in a second, of a server that copies */

void sl_http_answer_clear(struct sl_http_answer *answer)
{
	free(answer->sentence);
	sl_http_texts_clear(&answer->texts);
	free(answer->xml);
	memset(answer, 0, sizeof(*answer));
}

/* -------------------------------------------------------------------------------------- body */

static bool call_has_body(const struct sl_http_call *call)
{
	return !strcmp(call->verb, "PUT") || !strcmp(call->verb, "POST");
}

const char *sl_http_call_sum(const struct sl_http_call *call)
{
	const char *value = strstr(call->digest.line, ": ");

	return value ? value + 2 : "";
}

void sl_http_call_digest(struct sl_http *http, struct sl_http_call *call, bool sum,
                         const uint32_t *known)
{
	uint32_t crc = UINT32_MAX;

	if (sum && !known && sl_crc32c_add(&crc, call->body, call->length))
		known = &crc;
	call->digest.line[0] = '\0';
	http->signer->service->signing->digest(http->signer, call->body, call->length,
	                                       sum ? known : NULL, &call->digest);
}

void sl_http_call_compare(struct sl_http *http, struct sl_http_call *call)
{
	const char *sum = sl_http_call_sum(call),
		   *said = call->answer.texts.of[SL_HTTP_FIELD_CRC32C];
	char name[32] = "the object";

	if (call->answer.error || !sum[0] || !said || !strcmp(sum, said))
		return;
	if (call->part)
		snprintf(name, sizeof(name), "part %u", call->part);
	call->answer.error = -EIO;
	call->answer.sentence =
		sl_format("'%s': %s was sent with the CRC-32C %s, and the server says %s",
	                  http->name, name, sum, said);
}

bool sl_http_call_refused(const struct sl_http *http, const struct sl_http_call *call)
{
	struct sl_service_error said;

	http->signer->service->texts->error(call->answer.xml ? call->answer.xml : "", &said);
	return call->answer.error && (call->answer.status == 501 || said.means & SL_MEANS_UNKNOWN);
}

bool sl_http_call_again(struct sl_http *http, struct sl_http_call *call)
{
	if (!call->digest.line[0] || !sl_http_call_refused(http, call))
		return false;
	sl_log(&http->core->settings, SL_LOG_INFO, "'%s' is written without checksums: %s",
	       http->name, call->answer.sentence);
	call->digest.line[0] = '\0';
	sl_http_answer_clear(&call->answer);
	return true;
}

static size_t call_on_read(char *to, size_t size, size_t count, void *argument)
{
	struct sl_http_request *request = argument;
	struct sl_http_call *call = request->call;
	size_t bytes = SL_MIN(size * count, call->length - call->given);

	if (sl_http_request_is_unwanted(request))
		return CURL_READFUNC_ABORT;
	memcpy(to, call->body + call->given, bytes);
	call->given += bytes;
	request->moved = call->given;
	/* libcurl asks when the socket has taken what it was given. */
	request->alive = sl_now();
	sl_http_arrived(request, bytes);
	return bytes;
}

/* A kept connection may be dead, or a redirect come: libcurl sends the body once more. */
static int call_on_seek(void *argument, curl_off_t offset, int origin)
{
	struct sl_http_request *request = argument;

	if (origin != SEEK_SET || offset < 0 || (uint64_t)offset > request->call->length)
		return CURL_SEEKFUNC_FAIL;
	request->moved = request->call->given = (size_t)offset;
	return CURL_SEEKFUNC_OK;
}

/* libcurl calls it before each sending, also if it sends again since a kept connection was dead. */
static int call_on_send(void *argument, char *address, char *own, int port, int own_port)
{
	struct sl_http_request *request = argument;

	(void)address, (void)own, (void)port, (void)own_port;
	request->call->open++;
	return CURL_PREREQFUNC_OK;
}

/* The first attempt sends its body at once. Where a server refuses that and closes the connection,
 * its answer may be lost: every second attempt asks for permission before (Expect), as libcurl does
 * it for a long body. */
static void call_set_up(struct sl_http_request *request)
{
	struct sl_http_call *call = request->call;
	uint64_t stall = request->http->core->settings.http_stall_ms;
	CURL *easy = request->transfer->easy;

	request->moved = call->given = 0;
	request->length = call->length;
	if (request->attempts % 2 == 0)
		strcpy(request->transfer->line, "Expect:");
	curl_easy_setopt(easy, CURLOPT_CUSTOMREQUEST, call->verb);
	curl_easy_setopt(easy, CURLOPT_PREREQFUNCTION, call_on_send);
	curl_easy_setopt(easy, CURLOPT_PREREQDATA, request);
	curl_easy_setopt(easy, CURLOPT_FRESH_CONNECT, call->completes && !call->etag[0] ? 1L : 0L);
	if (call_has_body(call)) {
		curl_easy_setopt(easy, CURLOPT_UPLOAD, 1L);
		curl_easy_setopt(easy, CURLOPT_READFUNCTION, call_on_read);
		curl_easy_setopt(easy, CURLOPT_READDATA, request);
		curl_easy_setopt(easy, CURLOPT_SEEKFUNCTION, call_on_seek);
		curl_easy_setopt(easy, CURLOPT_SEEKDATA, request);
		/* libcurl allocates it, too. Answers to bodies are short. */
		curl_easy_setopt(easy, CURLOPT_UPLOAD_BUFFERSIZE,
		                 (long)SL_MIN(call->length, (uint64_t)CALL_BUFFER));
		sl_http_transfer_expect(request->transfer, 0);
		curl_easy_setopt(easy, CURLOPT_INFILESIZE_LARGE, (curl_off_t)call->length);
		curl_easy_setopt(easy, CURLOPT_EXPECT_100_TIMEOUT_MS,
		                 (long)SL_MIN(1000, stall / 2));
	}
}

static bool call_is_unwanted(const struct sl_http_request *request)
{
	const struct sl_http_call *call = request->call;

	return call->stop && atomic_load(call->stop) &&
	       (!call->least || (request->attempts >= call->least && !request->transfer));
}

/* ------------------------------------------------------------------------------------- judge */

/* Parses an error that is the whole answer, and notes that nothing was done; false: none. */
static bool call_settle(struct sl_http_request *request, struct sl_service_error *out)
{
	const char *xml = request->response.xml ? request->response.xml : "";

	request->http->signer->service->texts->error(xml, out);
	if (request->call->open && out->means & SL_MEANS_UNDONE)
		request->call->open--;
	return out->whole;
}

static bool call_ended(struct sl_http_request *request)
{
	struct sl_service_error said;

	/* Where the server redirected a request it had no signature. */
	if (request->response.status >= 300 && !request->url)
		call_settle(request, &said);
	return false;
}

/* A server may begin to answer with success, and say in the body that the request has failed. */
static enum sl_http_verdict call_judge(struct sl_http_request *request)
{
	const struct sl_http_call *call = request->call;
	const char *xml = request->response.xml ? request->response.xml : "", *why;
	struct sl_service_error said;
	char text[SL_SERVICE_TEXT];
	enum sl_service_answer answer =
		request->http->signer->service->texts->answers(call->kind, xml, text, sizeof(text));

	/* It is a PUT like any other to a server that does not know the line about the source. */
	if (call->copies && answer == SL_ANSWER_CUT && !xml[0] &&
	    request->response.texts.of[SL_HTTP_FIELD_ETAG])
		return request_failed(request, -EPROTO,
		                      "the server of '%s' knows no copies, and has stored no bytes",
		                      request->http->name);
	if (call_settle(request, &said))
		why = said.means & SL_MEANS_PASSING ? said.code : NULL;
	else if (answer == SL_ANSWER_CUT)
		why = "the server answered with success, and its XML is not whole, or another";
	else if (answer == SL_ANSWER_ETAG && !request->response.texts.of[SL_HTTP_FIELD_ETAG])
		why = "the server answered with success, and without an ETag";
	else
		return SL_HTTP_DONE;
	if (why)
		return sl_http_request_retry(request, -EIO, why);
	return request_failed(request,
	                      call->copies && said.means & SL_MEANS_LACKING ? -ENOTSUP : -EIO,
	                      "HTTP %ld for '%s': %s: %s", request->response.status,
	                      request->http->name, said.code, said.message);
}

/* -------------------------------------------------------------------------------- start, over */

static void call_over(struct sl_http_call *call)
{
	free(call->url);
	free(call->query);
	call->url = call->query = NULL;
	call->over(call);
}

static void call_end(struct sl_http_request *request)
{
	struct sl_http_call *call = request->call;
	struct sl_http_answer *answer = &call->answer;

	answer->error = request->error;
	answer->sentence = request->sentence;
	answer->status = request->response.status;
	/* The server has no copies: the caller may have another way. */
	if (call->copies && (answer->status == 405 || answer->status == 501) && answer->error &&
	    answer->error != -ECANCELED)
		answer->error = -ENOTSUP;
	answer->attempts = request->attempts;
	answer->xml = request->response.xml;
	answer->texts = request->response.texts;
	request->sentence = NULL;
	request->response.xml = NULL;
	memset(&request->response.texts, 0, sizeof(request->response.texts));
	sl_http_request_free(request);
	call_over(call);
}

const struct sl_http_kind sl_http_kind_call = {
	.bytes = sizeof(struct sl_http_request),
	.sends = true,
	.urgent = true,
	.unwanted = call_is_unwanted,
	.prepare = call_set_up,
	.ended = call_ended,
	.judge = call_judge,
	.end = call_end,
};

void sl_http_call_start(struct sl_http *http, struct sl_http_call *call)
{
	struct sl_http_request *request = sl_http_request_new(http, &sl_http_kind_call);
	const struct sl_service *service = http->signer->service;
	size_t base = strcspn(http->url, "?");
	bool known = !service->texts->query(http->signer, call->kind, call->upload, call->part,
	                                    &call->query);

	memset(&call->answer, 0, sizeof(call->answer));
	call->verb = service->verbs[call->kind];
	if (!call->verb) {
		sl_http_request_free(request);
		call->answer.error = -ENOTSUP;
		call->answer.sentence =
			sl_format("'%s': the service has no such request", http->name);
		call_over(call);
		return;
	}
	if (call_has_body(call) && !call->digest.payload[0])
		service->signing->digest(http->signer, call->body, call->length, NULL,
		                         &call->digest);
	known &= !call_has_body(call) || call->digest.payload[0];
	if (call->query)
		call->url = sl_format("%.*s?%s", (int)base, http->url, call->query);
	if (request && known && (call->url || !call->query)) {
		request->call = call;
		request->verb = call->verb;
		if (call->url)
			request->origin_url = call->url;
		request->fields = call->fields;
		request->brief = call->brief;
		request->work = call->length;
		/* A server that copies may say nothing until it has all. */
		request->patience += (int64_t)(call->copies / LEAST_COPIED) * 1000000000;
		sl_http_dispatch(request);
		return;
	}
	sl_http_request_free(request);
	call->answer.error = -ENOMEM;
	call_over(call);
}

static void call_wake(struct sl_http_call *call)
{
	sl_flag_raise(&call->done);
}

void sl_http_call_begin(struct sl_http *http, struct sl_http_call *call)
{
	call->over = call_wake;
	atomic_store(&call->done, 0);
	sl_http_call_start(http, call);
}

int sl_http_call_await(struct sl_http_call *call)
{
	/* Ended by call_wake(). */
	sl_flag_await(&call->done);
	return sl_fail_with(call->answer.error, call->answer.sentence);
}

int sl_http_call_run(struct sl_http *http, struct sl_http_call *call)
{
	sl_http_call_begin(http, call);
	return sl_http_call_await(call);
}
