/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Handles of libcurl
 *
 * A reactor's handles, and their sockets in epoll. A handle keeps its options for the next part of
 * the same file, because setting them takes longer than a small part from near by; a kept
 * connection stays in epoll.
 *
 * Threads: the reactor.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "http/http_internal.h"

#define LEAST_BUFFER (16L << 10)
#define HEADER_BYTES (4L << 10)

/* ----------------------------------------------------------------------------------- sockets */

/* A socket's state, beside EPOLLIN and EPOLLOUT as epoll has them. */
enum {
	WATCH_KEPT = 0x40, /* libcurl closes it with reactor_close_socket() */
	WATCH_IDLE = 0x80  /* no transfer has it */
};

/* Returns a socket's state; NULL: no memory. */
static unsigned char *reactor_watch(struct sl_http_reactor *reactor, curl_socket_t socket)
{
	if (socket >= reactor->watch_count) {
		int count = SL_MAX(2 * reactor->watch_count, socket + 64);
		unsigned char *watch = realloc(reactor->watch, count);

		if (!watch)
			return NULL;
		memset(watch + reactor->watch_count, 0, count - reactor->watch_count);
		reactor->watch = watch;
		reactor->watch_count = count;
	}
	return &reactor->watch[socket];
}

/* As libcurl does it, but closed where another program is started. */
static curl_socket_t reactor_open_socket(void *argument, curlsocktype purpose,
                                         struct curl_sockaddr *to)
{
	curl_socket_t made = socket(to->family, to->socktype | SOCK_CLOEXEC, to->protocol);
	unsigned char *watch = made < 0 ? NULL : reactor_watch(argument, made);

	(void)purpose;
	if (watch)
		*watch = WATCH_KEPT;
	else if (made >= 0)
		close(made);
	return watch ? made : CURL_SOCKET_BAD;
}

static int reactor_close_socket(void *argument, curl_socket_t socket)
{
	struct sl_http_reactor *reactor = argument;

	/* A child of a fork may have it, too, and epoll would go on. */
	if (reactor->watch[socket] & (EPOLLIN | EPOLLOUT))
		epoll_ctl(reactor->epoll, EPOLL_CTL_DEL, socket, NULL);
	reactor->watch[socket] = 0;
	return close(socket);
}

/* Sets for which events epoll has the socket. */
static int reactor_set_watch(struct sl_http_reactor *reactor, curl_socket_t socket,
                             unsigned char *watch, uint32_t events)
{
	uint32_t before = *watch & (EPOLLIN | EPOLLOUT);
	struct epoll_event event = {.events = events, .data.fd = socket};

	*watch = (*watch & WATCH_KEPT) | events;
	if (events == before)
		return 0;
	return epoll_ctl(reactor->epoll,
	                 !events  ? EPOLL_CTL_DEL
	                 : before ? EPOLL_CTL_MOD
	                          : EPOLL_CTL_ADD,
	                 socket, &event);
}

static int multi_on_socket(CURL *easy, curl_socket_t socket, int what, void *argument, void *unused)
{
	struct sl_http_reactor *reactor = argument;
	unsigned char *watch = reactor_watch(reactor, socket);

	(void)easy;
	(void)unused;
	if (!watch)
		return -1;
	/* A kept connection stays in epoll for the next transfer. */
	if (what == CURL_POLL_REMOVE && *watch & WATCH_KEPT) {
		*watch |= WATCH_IDLE;
		return 0;
	}
	return reactor_set_watch(reactor, socket, watch,
	                         what == CURL_POLL_REMOVE
	                                 ? 0
	                                 : (what & CURL_POLL_IN ? EPOLLIN : 0) |
	                                           (what & CURL_POLL_OUT ? EPOLLOUT : 0));
}

static int multi_on_timer(CURLM *multi, long timeout_ms, void *argument)
{
	struct sl_http_reactor *reactor = argument;

	(void)multi;
	reactor->timer = timeout_ms < 0 ? SL_FOREVER : sl_now() + timeout_ms * INT64_C(1000000);
	return 0;
}

bool sl_http_reactor_open(struct sl_http_reactor *reactor)
{
	struct epoll_event event = {.events = EPOLLIN, .data.fd = reactor->wake};

	reactor->timer = SL_FOREVER;
	reactor->connections = 0;
	reactor->epoll = epoll_create1(EPOLL_CLOEXEC);
	reactor->multi = curl_multi_init();
	if (reactor->epoll < 0 || !reactor->multi ||
	    epoll_ctl(reactor->epoll, EPOLL_CTL_ADD, reactor->wake, &event))
		return false;
	curl_multi_setopt(reactor->multi, CURLMOPT_SOCKETFUNCTION, multi_on_socket);
	curl_multi_setopt(reactor->multi, CURLMOPT_SOCKETDATA, reactor);
	curl_multi_setopt(reactor->multi, CURLMOPT_TIMERFUNCTION, multi_on_timer);
	curl_multi_setopt(reactor->multi, CURLMOPT_TIMERDATA, reactor);
	curl_multi_setopt(reactor->multi, CURLMOPT_MAXCONNECTS, (long)reactor->share);
	return true;
}

void sl_http_reactor_close(struct sl_http_reactor *reactor)
{
	curl_multi_cleanup(reactor->multi);
	if (reactor->epoll >= 0)
		close(reactor->epoll);
	reactor->multi = NULL;
	reactor->epoll = -1;
	free(reactor->watch);
	reactor->watch = NULL;
	reactor->watch_count = 0;
}

CURLMcode sl_http_reactor_handle(struct sl_http_reactor *reactor, const struct epoll_event *event)
{
	unsigned char *watch;
	uint64_t count;
	int running, what;

	if (event->data.fd == reactor->wake) {
		(void)!read(reactor->wake, &count, sizeof(count));
		return CURLM_OK;
	}
	watch = &reactor->watch[event->data.fd];
	/* The server has closed a kept connection, as libcurl will see when it wants it. */
	if (*watch & WATCH_IDLE) {
		reactor_set_watch(reactor, event->data.fd, watch, 0);
		return CURLM_OK;
	}
	what = (event->events & EPOLLIN ? CURL_CSELECT_IN : 0) |
	       (event->events & EPOLLOUT ? CURL_CSELECT_OUT : 0) |
	       (event->events & (EPOLLERR | EPOLLHUP) ? CURL_CSELECT_ERR : 0);
	return curl_multi_socket_action(reactor->multi, event->data.fd, what, &running);
}

CURLMcode sl_http_reactor_run_timer(struct sl_http_reactor *reactor)
{
	CURLMcode rc;
	long left_ms = -1;
	int running;

	if (reactor->timer > sl_now())
		return CURLM_OK;
	rc = curl_multi_socket_action(reactor->multi, CURL_SOCKET_TIMEOUT, 0, &running);
	/* libcurl tells a time once, also if we came too early, and not when there is none. */
	curl_multi_timeout(reactor->multi, &left_ms);
	multi_on_timer(reactor->multi, left_ms ? left_ms : 1, reactor);
	return rc;
}

/* ----------------------------------------------------------------------------------- handles */

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
	curl_easy_setopt(easy, CURLOPT_OPENSOCKETFUNCTION, reactor_open_socket);
	curl_easy_setopt(easy, CURLOPT_OPENSOCKETDATA, transfer->reactor);
	curl_easy_setopt(easy, CURLOPT_CLOSESOCKETFUNCTION, reactor_close_socket);
	curl_easy_setopt(easy, CURLOPT_CLOSESOCKETDATA, transfer->reactor);
	curl_easy_setopt(easy, CURLOPT_BUFFERSIZE, SL_HTTP_BUFFER);
	curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
	/* libcurl would look again for each request. */
	if (!environment_has_proxy())
		curl_easy_setopt(easy, CURLOPT_NOPROXY, "*");
	/* A transfer may end while a name is looked up, and does not wait for the name server. */
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

/* Sets the URL, parsed once for all requests. If it is none libcurl gets the text, and says why. */
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

void sl_http_transfer_expect(struct sl_http_transfer *transfer, uint64_t bytes)
{
	long buffer = (long)SL_MIN(bytes, (uint64_t)SL_HTTP_BUFFER) + HEADER_BYTES;

	curl_easy_setopt(transfer->easy, CURLOPT_BUFFERSIZE,
	                 SL_MAX(SL_MIN(buffer, SL_HTTP_BUFFER), LEAST_BUFFER));
}

void sl_http_transfer_renew(struct sl_http_request *request, bool home)
{
	struct sl_http_transfer *transfer = request->transfer;
	struct sl_http *http = request->http;

	transfer->reason[0] = transfer->line[0] = '\0';
	if (!request->kind->piece || transfer->file != http->number || transfer->home != home) {
		curl_easy_reset(transfer->easy);
		transfer_secure(transfer, http);
	}
	/* Set when it has succeeded, if no secret may have changed until the next. */
	transfer->file = 0;
	transfer->home = home;
	transfer_set_url(transfer, request->url ? request->url : request->origin_url,
	                 http->signer ? CURLU_PATH_AS_IS : 0);
}
