/* SPDX-License-Identifier: Apache-2.0 */
/* A reactor: a thread that moves requests with a multi handle of libcurl and epoll. */
#ifndef SL_HTTP_REACTOR_H
#define SL_HTTP_REACTOR_H

#include <curl/curl.h>

#include "core/core.h"

struct sl_http_engine;
struct sl_http_request;

struct sl_http_reactor {
	struct sl_sleeper sleeper;
	struct sl_http_engine *engine;
	struct sl_queue inbox; /* requests that it shall move at once */
	_Atomic int load;      /* of the inbox, of moving and of streams, */
	_Atomic uint64_t work; /* and their bytes */
	_Atomic unsigned busy; /* rounds since it last slept; 0: it sleeps */
	_Atomic bool looks;    /* it shall look at all requests */
	int share; /* connections that are kept, and requests that it has before the next reactor */
	pthread_t thread;
	int wake;  /* eventfd that ends the reactor's sleep */
	int epoll; /* -1: it could not be made */
	CURLM *multi;
	long connections;     /* CURLMOPT_MAX_TOTAL_CONNECTIONS */
	unsigned char *watch; /* by socket */
	int watch_count;
	int64_t timer;          /* when libcurl wants to be called; SL_FOREVER */
	int64_t look;           /* when it has to look at all requests; SL_FOREVER, 0: at once */
	int64_t calm;           /* when it last owed no signals */
	struct sl_list moving;  /* requests with a transfer in multi, and a permit, */
	struct sl_list streams; /* and without: looked at whenever the reactor wakes */
	struct sl_list resting; /* requests that are due later, without a turn */
	struct sl_list unused;  /* handles of libcurl */
};

/* Starts the reactor; all of it is 0 but `engine` and `share`. Returns 0, or -errno with a sentence. */
int sl_http_reactor_start(struct sl_http_reactor *reactor, unsigned index);
/* Its thread was joined. */
void sl_http_reactor_free(struct sl_http_reactor *reactor);
/* Gives it a request. Any thread, as the next function. */
void sl_http_reactor_push(struct sl_http_reactor *reactor, struct sl_http_request *request);
/* Makes it look for cancelled requests, and for uploads that have more to send. */
void sl_http_reactor_wake(struct sl_http_reactor *reactor);

/* A handle of libcurl. It stays with its reactor. */
struct sl_http_transfer {
	struct sl_list link; /* in unused */
	struct sl_http_reactor *reactor;
	CURL *easy;
	uint64_t file; /* the number of the file of its options; 0: none */
	bool home;     /* they are for the file's origin */
	char *url;     /* that is parsed; NULL: none */
	CURLU *parsed;
	char range[64];          /* a line of the header, */
	struct curl_slist lines; /* and with those of the file behind it */
	char reason[CURL_ERROR_SIZE];
};
/* Returns NULL if there is no memory. */
struct sl_http_transfer *sl_http_transfer_new(struct sl_http_reactor *reactor);
void sl_http_transfer_free(struct sl_http_transfer *transfer);
/*
 * Forgets all options of the request's handle, unless its last request was a GET for the same file at the same place
 * that succeeded: nothing of one file, least of all its password, goes to another server.
 */
void sl_http_transfer_renew(struct sl_http_request *request, bool home);
/* Callbacks of libcurl; the argument is the reactor. */
curl_socket_t sl_http_reactor_open_socket(void *reactor, curlsocktype purpose,
                                          struct curl_sockaddr *to);
int sl_http_reactor_close_socket(void *reactor, curl_socket_t socket);

#endif
