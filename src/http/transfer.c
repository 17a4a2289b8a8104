/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Handles of libcurl
 *
 * A handle keeps its options for the next part of the same file, because setting them takes longer than a small part
 * that is near.
 *
 * Threads: the reactor that has the handle.
 */
#include <stdlib.h>
#include <string.h>

#include "http/call.h"

void sl_http_transfer_free(struct sl_http_transfer *transfer)
{
	curl_easy_cleanup(transfer->easy);
	curl_url_cleanup(transfer->parsed);
	free(transfer->url);
	free(transfer);
}

struct sl_http_transfer *sl_http_transfer_new(struct sl_http_reactor *reactor)
{
	struct sl_http_transfer *transfer = calloc(1, sizeof(*transfer));

	if (!transfer)
		return NULL;
	transfer->reactor = reactor;
	transfer->easy = curl_easy_init();
	if (transfer->easy)
		return transfer;
	free(transfer);
	return NULL;
}

/* Returns whether the environment names a proxy, of any kind that libcurl looks for. */
static bool environment_has_proxy(void)
{
	static const char *const names[] = {"http_proxy", "https_proxy", "HTTPS_PROXY", "all_proxy",
	                                    "ALL_PROXY"};

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (getenv(names[i]))
			return true;
	return false;
}

static void transfer_secure(struct sl_http_transfer *transfer, struct sl_http *http)
{
	const struct sl_settings *settings = &http->core->settings;
	const char *bundle = settings->ca_bundle[0] ? settings->ca_bundle
	                     : http->signer         ? http->signer->ca_bundle
	                                            : NULL;
	CURL *easy = transfer->easy;

	curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, transfer->reason);
	curl_easy_setopt(easy, CURLOPT_HEADERFUNCTION, sl_http_on_line);
	curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, sl_http_on_body);
	curl_easy_setopt(easy, CURLOPT_OPENSOCKETFUNCTION, sl_http_reactor_open_socket);
	curl_easy_setopt(easy, CURLOPT_OPENSOCKETDATA, transfer->reactor);
	curl_easy_setopt(easy, CURLOPT_CLOSESOCKETFUNCTION, sl_http_reactor_close_socket);
	curl_easy_setopt(easy, CURLOPT_CLOSESOCKETDATA, transfer->reactor);
	curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
	/* libcurl would look again for each request. */
	if (!environment_has_proxy())
		curl_easy_setopt(easy, CURLOPT_NOPROXY, "*");
	/* A transfer that ends while a name is looked up does not wait for the name server. */
	curl_easy_setopt(easy, CURLOPT_QUICK_EXIT, 1L);
	curl_easy_setopt(easy, CURLOPT_SUPPRESS_CONNECT_HEADERS, 1L);
	curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https");
	curl_easy_setopt(easy, CURLOPT_USERAGENT, "sluice/" SLUICE_VERSION);
	curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT_MS, (long)settings->http_connect_ms);
	curl_easy_setopt(easy, CURLOPT_TCP_KEEPALIVE, 1L);
	curl_easy_setopt(easy, CURLOPT_SSLVERSION, (long)CURL_SSLVERSION_TLSv1_2);
	curl_easy_setopt(easy, CURLOPT_HTTP_VERSION,
	                 http->flags & SLUICE_OPEN_HTTP2 ? (long)CURL_HTTP_VERSION_2TLS
	                                                 : (long)CURL_HTTP_VERSION_1_1);
	if (http->flags & SLUICE_OPEN_HTTP2)
		curl_easy_setopt(easy, CURLOPT_PIPEWAIT, 1L);
	if (bundle) {
		curl_easy_setopt(easy, CURLOPT_CAINFO, bundle);
		curl_easy_setopt(easy, CURLOPT_CAPATH, NULL);
	}
	if (settings->tls_insecure) {
		curl_easy_setopt(easy, CURLOPT_SSL_VERIFYPEER, 0L);
		curl_easy_setopt(easy, CURLOPT_SSL_VERIFYHOST, 0L);
	}
}

/*
 * Sets the URL, which is parsed once for all requests to it. Where it cannot be parsed, libcurl gets the text, and says
 * why.
 */
static void transfer_set_url(struct sl_http_transfer *transfer, const char *url, unsigned flags)
{
	if (!transfer->url || strcmp(transfer->url, url)) {
		curl_url_cleanup(transfer->parsed);
		free(transfer->url);
		transfer->url = strdup(url);
		transfer->parsed = transfer->url ? curl_url() : NULL;
		if (curl_url_set(transfer->parsed, CURLUPART_URL, url, flags)) {
			curl_url_cleanup(transfer->parsed);
			transfer->parsed = NULL;
		}
	}
	curl_easy_setopt(transfer->easy, CURLOPT_CURLU, transfer->parsed);
	if (!transfer->parsed)
		curl_easy_setopt(transfer->easy, CURLOPT_URL, url);
}

void sl_http_transfer_renew(struct sl_http_request *request, bool home)
{
	struct sl_http_transfer *transfer = request->transfer;
	struct sl_http *http = request->http;

	transfer->reason[0] = '\0';
	if (!request->piece || transfer->file != http->number || transfer->home != home) {
		curl_easy_reset(transfer->easy);
		transfer_secure(transfer, http);
	}
	/* Set when it has succeeded, if no secret may have changed until the next. */
	transfer->file = 0;
	transfer->home = home;
	transfer_set_url(transfer,
	                 request->url                          ? request->url
	                 : request->call && request->call->url ? request->call->url
	                                                       : http->url,
	                 http->signer ? CURLU_PATH_AS_IS : 0);
}
