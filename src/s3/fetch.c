/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls of services that have credentials
 *
 * A short request by libcurl, beside the engine of remote files: it has no permit, is made once, and its answer is small.
 *
 * Threads: any that may wait: the answer ends the wait, or its time.
 */
#include <curl/curl.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "s3/fetch.h"

#define NEAR_CONNECT_MS 1000L
#define NEAR_MS         5000L

struct answer {
	char *text;
	size_t size, length;
};

static size_t answer_on_body(char *data, size_t size, size_t count, void *argument)
{
	struct answer *answer = argument;
	size_t bytes = SL_MIN(size * count, answer->size - 1 - answer->length);

	memcpy(answer->text + answer->length, data, bytes);
	answer->length += bytes;
	answer->text[answer->length] = '\0';
	/* Less than it gave ends the call. */
	return bytes;
}

static void call_prepare(CURL *easy, const struct sl_settings *settings,
                         const struct sl_s3_call *call)
{
	long connect = call->near ? NEAR_CONNECT_MS : (long)settings->http_connect_ms;
	long most = call->near ? NEAR_MS : connect + (long)settings->http_stall_ms;

	curl_easy_setopt(easy, CURLOPT_URL, call->url);
	curl_easy_setopt(easy, CURLOPT_CUSTOMREQUEST, call->method);
	if (call->body)
		curl_easy_setopt(easy, CURLOPT_POSTFIELDS, call->body);
	curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https");
	curl_easy_setopt(easy, CURLOPT_USERAGENT, "sluice/" SLUICE_VERSION);
	curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
	curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT_MS, connect);
	curl_easy_setopt(easy, CURLOPT_TIMEOUT_MS, most);
	curl_easy_setopt(easy, CURLOPT_SSLVERSION, (long)CURL_SSLVERSION_TLSv1_2);
	if (call->near)
		curl_easy_setopt(easy, CURLOPT_NOPROXY, "*");
	if (settings->ca_bundle[0])
		curl_easy_setopt(easy, CURLOPT_CAINFO, settings->ca_bundle);
	if (settings->tls_insecure) {
		curl_easy_setopt(easy, CURLOPT_SSL_VERIFYPEER, 0L);
		curl_easy_setopt(easy, CURLOPT_SSL_VERIFYHOST, 0L);
	}
}

int sl_s3_fetch(const struct sl_settings *settings, const struct sl_s3_call *call, char *text,
                size_t size)
{
	struct answer answer = {text, size, 0};
	struct curl_slist *lines = NULL, *longer = NULL;
	const char *const *line = call->lines;
	CURL *easy = curl_easy_init();
	CURLcode code = CURLE_OUT_OF_MEMORY;
	long status = 0;

	text[0] = '\0';
	for (; line && *line && (longer = curl_slist_append(lines, *line)); line++)
		lines = longer;
	if (easy && (!line || !*line)) {
		call_prepare(easy, settings, call);
		curl_easy_setopt(easy, CURLOPT_HTTPHEADER, lines);
		curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, answer_on_body);
		curl_easy_setopt(easy, CURLOPT_WRITEDATA, &answer);
		code = curl_easy_perform(easy);
		curl_easy_getinfo(easy, CURLINFO_RESPONSE_CODE, &status);
	}
	for (struct curl_slist *each = lines; each; each = each->next)
		explicit_bzero(each->data, strlen(each->data));
	curl_slist_free_all(lines);
	curl_easy_cleanup(easy);
	return code ? sl_fail(-EACCES, "'%s' gave no answer: %s", call->url,
	                      curl_easy_strerror(code))
	            : (int)status;
}

bool sl_s3_fetch_host(const char *url, bool *is_plain, char **out)
{
	CURLU *parsed = curl_url();
	char *host = NULL, *scheme = NULL;
	bool fits = parsed && !curl_url_set(parsed, CURLUPART_URL, url, 0) &&
	            !curl_url_get(parsed, CURLUPART_HOST, &host, 0) &&
	            !curl_url_get(parsed, CURLUPART_SCHEME, &scheme, 0);

	*is_plain = fits && !strcmp(scheme, "http");
	fits = fits && (*is_plain || !strcmp(scheme, "https"));
	*out = fits ? strdup(host) : NULL;
	curl_free(host);
	curl_free(scheme);
	curl_url_cleanup(parsed);
	return *out;
}
