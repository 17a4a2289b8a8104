/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls of services that have credentials
 *
 * A short request by libcurl, beside the engine of remote files: it has no permit, is made once, and its answer is small.
 *
 * Threads: any that may wait: the answer ends the wait, or its time.
 */
#include <arpa/inet.h>
#include <curl/curl.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "s3/credentials.h"
#include "s3/fetch.h"
#include "s3/s3.h"

#define MOST_ANSWER     65536
#define NEAR_CONNECT_MS 1000L
#define NEAR_MS         5000L

/* Less than it gave ends the call. */
static size_t answer_on_body(char *data, size_t size, size_t count, void *argument)
{
	char *text = argument;
	size_t length = strlen(text), bytes = SL_MIN(size * count, MOST_ANSWER - 1 - length);

	memcpy(text + length, data, bytes);
	return bytes;
}

static void call_prepare(CURL *easy, const struct sl_settings *settings,
                         const struct sl_s3_call *call)
{
	const char *bundle = settings->ca_bundle[0]
	                             ? settings->ca_bundle
	                             : sl_s3_variable((const char *const[]){"AWS_CA_BUNDLE", NULL});
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
	if (bundle)
		curl_easy_setopt(easy, CURLOPT_CAINFO, bundle);
	if (settings->tls_insecure) {
		curl_easy_setopt(easy, CURLOPT_SSL_VERIFYPEER, 0L);
		curl_easy_setopt(easy, CURLOPT_SSL_VERIFYHOST, 0L);
	}
}

/* Returns 0, or -errno with a sentence that has no more of the URL than scheme, host and port. */
static int answer_judge(const struct sl_s3_call *call, CURLcode code, long status, const char *text)
{
	char *name = sl_uri_name(call->url);
	const char *host = name ? strstr(name, "://") : NULL;
	int length = host ? (int)(host + 3 + strcspn(host + 3, "/") - name) : 0, rc = 0;
	struct sl_s3_error error;

	if (code == CURLE_OUT_OF_MEMORY) {
		rc = sl_fail(-ENOMEM, "no memory");
	} else if (code) {
		rc = sl_fail(-EACCES, "'%.*s' gave no %s: %s", length, name, call->what,
		             curl_easy_strerror(code));
	} else if (status != 200) {
		sl_s3_error_parse(text, &error);
		rc = sl_fail(-EACCES, "'%.*s' gave no %s: HTTP %ld%s%s%s%s", length, name,
		             call->what, status, error.code[0] ? ": " : "", error.code,
		             error.message[0] ? ": " : "", error.message);
	}
	free(name);
	return rc;
}

int sl_s3_fetch(const struct sl_settings *settings, const struct sl_s3_call *call, char **out)
{
	struct curl_slist *lines = NULL, *longer = NULL;
	const char *const *line = call->lines;
	char *text = calloc(1, MOST_ANSWER);
	CURL *easy = text ? curl_easy_init() : NULL;
	CURLcode code = CURLE_OUT_OF_MEMORY;
	long status = 0;
	int rc;

	for (; line && *line && (longer = curl_slist_append(lines, *line)); line++)
		lines = longer;
	if (easy && (!line || !*line)) {
		call_prepare(easy, settings, call);
		curl_easy_setopt(easy, CURLOPT_HTTPHEADER, lines);
		curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, answer_on_body);
		curl_easy_setopt(easy, CURLOPT_WRITEDATA, text);
		code = curl_easy_perform(easy);
		curl_easy_getinfo(easy, CURLINFO_RESPONSE_CODE, &status);
	}
	for (struct curl_slist *each = lines; each; each = each->next)
		explicit_bzero(each->data, strlen(each->data));
	curl_slist_free_all(lines);
	curl_easy_cleanup(easy);
	rc = answer_judge(call, code, status, text);
	if (rc)
		sl_s3_text_clear(text);
	else
		*out = text;
	return rc;
}

bool sl_s3_fetch_is_safe(const char *url)
{
	static const char *const services[] = {"localhost", "169.254.170.2", "169.254.170.23",
	                                       "[::1]", "[fd00:ec2::23]"};
	CURLU *parsed = curl_url();
	char *host = NULL, *scheme = NULL;
	struct in_addr address;
	bool is_url = parsed && !curl_url_set(parsed, CURLUPART_URL, url, 0) &&
	              !curl_url_get(parsed, CURLUPART_HOST, &host, 0) &&
	              !curl_url_get(parsed, CURLUPART_SCHEME, &scheme, 0);
	bool safe =
		is_url && (!strcmp(scheme, "https") || (inet_pton(AF_INET, host, &address) == 1 &&
	                                                ntohl(address.s_addr) >> 24 == 127));

	for (size_t i = 0; is_url && i < sizeof(services) / sizeof(services[0]); i++)
		safe = safe || !strcmp(host, services[i]);
	curl_free(host);
	curl_free(scheme);
	curl_url_cleanup(parsed);
	return safe;
}
