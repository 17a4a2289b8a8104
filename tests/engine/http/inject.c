/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls of sluice's that fail when a test says so; the program is linked with --wrap for each. And a name
 * server that does not answer: libcurl finds this program's getaddrinfo() before that of libc.
 */
#include <curl/curl.h>
#include <dlfcn.h>
#include <netdb.h>
#include <stdatomic.h>
#include <sys/epoll.h>

#include "http/cases.h"

static _Atomic unsigned actions_left, waits_left, looking;
static _Atomic bool name_waits;

CURLMcode __real_curl_multi_socket_action(CURLM *multi, curl_socket_t socket, int events,
                                          int *running);
CURLMcode __wrap_curl_multi_socket_action(CURLM *multi, curl_socket_t socket, int events,
                                          int *running);
int __real_epoll_wait(int fd, struct epoll_event *events, int most, int timeout);
int __wrap_epoll_wait(int fd, struct epoll_event *events, int most, int timeout);

static bool is_due(_Atomic unsigned *left)
{
	unsigned n = atomic_load(left);

	while (n && !atomic_compare_exchange_weak(left, &n, n - 1))
		;
	return n > 0;
}

CURLMcode __wrap_curl_multi_socket_action(CURLM *multi, curl_socket_t socket, int events,
                                          int *running)
{
	return is_due(&actions_left)
	               ? CURLM_INTERNAL_ERROR
	               : __real_curl_multi_socket_action(multi, socket, events, running);
}

int __wrap_epoll_wait(int fd, struct epoll_event *events, int most, int timeout)
{
	if (!is_due(&waits_left))
		return __real_epoll_wait(fd, events, most, timeout);
	errno = EBADF;
	return -1;
}

void fail_socket_action(unsigned n)
{
	atomic_store(&actions_left, n);
}

void fail_epoll_wait(unsigned n)
{
	atomic_store(&waits_left, n);
}

unsigned failures_left(void)
{
	return atomic_load(&actions_left) + atomic_load(&waits_left);
}

void slow_name_waits(bool waits)
{
	atomic_store(&name_waits, waits);
	while (!waits && atomic_load(&looking))
		sleep_ms(1);
	/* For what libcurl does behind it. */
	if (!waits)
		sleep_ms(300);
}

__attribute__((visibility("default"))) int getaddrinfo(const char *name, const char *service,
                                                       const struct addrinfo *hints,
                                                       struct addrinfo **out)
{
	static int (*_Atomic real)(const char *, const char *, const struct addrinfo *,
	                           struct addrinfo **);

	if (name && strcmp(name, SLOW_NAME) == 0) {
		atomic_fetch_add(&looking, 1);
		while (atomic_load(&name_waits))
			sleep_ms(1);
		atomic_fetch_sub(&looking, 1);
		return EAI_AGAIN;
	}
	if (!real)
		real = (int (*)(const char *, const char *, const struct addrinfo *,
		                struct addrinfo **))dlsym(RTLD_NEXT, "getaddrinfo");
	return real(name, service, hints, out);
}
