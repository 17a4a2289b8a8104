/* SPDX-License-Identifier: Apache-2.0 */
/* What remote files share in a context: permits and reactors. */
#ifndef SL_HTTP_ENGINE_H
#define SL_HTTP_ENGINE_H

#include <curl/curl.h>
#include <sys/epoll.h>

#include "http/http.h"
#include "http/identity.h"
#include "http/limit.h"
#include "service/service.h"

/* ------------------------------------------------------------------------------------ engine */

struct sl_http_multi;

struct sl_http_engine {
	struct sl_core *core;
	struct sl_http_limits limits;
	struct sl_http_token token;
	struct sl_keyring *keyrings[SL_SERVICES_MOST]; /* as sl_services; NULL behind the last */
	struct sl_gate uploads;                        /* bytes in parts of all uploads */
	_Atomic uint64_t files;                        /* files ever opened */
	_Atomic uint64_t hedged;                       /* bytes of memory in hedges */
	_Atomic int unread;      /* bodies kept by openings, before the first read */
	_Atomic bool cancelling; /* a piece was cancelled since the last sl_http_end_cancelled() */

	struct sl_mutex mutex;
	struct {
		struct sl_http_multi *multi[2]; /* by enum sl_remote; NULL until the first file */
	} locked SL_GUARDED_BY(&mutex);
};

/* Returns the keyring of the service with that scheme; NULL: it is no service's. */
struct sl_keyring *sl_http_keyring(const struct sl_http_engine *engine, const char *scheme);
/* Gives the request to a reactor as soon as it has a target and a permit. */
void sl_http_dispatch(struct sl_http_request *request);
/* A response shows where the object is, or none comes: dispatches the waiting requests. */
void sl_http_located(struct sl_http_request *request, bool found);
/* Counts bytes of a body for the origin's limit, which may let further requests begin. */
void sl_http_arrived(struct sl_http_request *request, size_t bytes);
/* Gives a permit back; requests with a new permit go to reactors. */
void sl_http_permit_give(struct sl_http_request *request);
/* Cancelled requests without a permit go to reactors, which end them. */
void sl_http_end_cancelled(struct sl_http_engine *engine);

/* ---------------------------------------------------------------------------------- reactors */

/* Returns how many transfers a kind of reactors may have. */
unsigned sl_http_multi_most(const struct sl_http_engine *engine, unsigned remote);
/* Finds the reactors of a kind, which start with the first file that wants them. With `easy` there
 * may be as many as connections, up to 64. */
int sl_http_multi_find(struct sl_http_engine *engine, unsigned remote, struct sl_http_multi **out);
/* Gives the request to a reactor, and returns the reactor, which lives as long as the engine. */
struct sl_http_reactor *sl_http_multi_submit(struct sl_http_multi *multi,
                                             struct sl_http_request *request);
/* Makes all reactors look at their requests: some are cancelled, or have more to send. */
void sl_http_multi_wake(struct sl_http_multi *multi);

/* A thread with a multi handle of libcurl and epoll, which moves requests. */
struct sl_http_reactor {
	struct sl_sleeper sleeper;
	struct sl_http_engine *engine;
	struct sl_queue inbox; /* requests to move at once */
	_Atomic int load;      /* requests in inbox, moving and streams, */
	_Atomic uint64_t work; /* and their bytes */
	_Atomic unsigned busy; /* rounds since it last slept; 0: it sleeps */
	_Atomic bool looks;    /* it shall look at all requests */
	int share; /* kept connections, and requests before the next reactor gets some */
	pthread_t thread;
	int wake;  /* eventfd: ends the reactor's sleep */
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
	struct sl_list resting; /* requests due later */
	struct sl_list unused;  /* handles of libcurl */
};

/* Counts a request in or out. */
void sl_http_reactor_count(struct sl_http_reactor *reactor, const struct sl_http_request *request,
                           int sign);
/* As sl_http_multi_wake(), for a single reactor. */
void sl_http_reactor_wake(struct sl_http_reactor *reactor);
/* The thread of a reactor. */
void *sl_http_reactor_run(void *reactor);

/* -------------------------------------------------------------------------------- transfer.c */

/* Makes and frees epoll and the multi handle. */
bool sl_http_reactor_open(struct sl_http_reactor *reactor);
void sl_http_reactor_close(struct sl_http_reactor *reactor);
/* Tell libcurl about an event of epoll, and about the time. Return 0, or an error. */
CURLMcode sl_http_reactor_handle(struct sl_http_reactor *reactor, const struct epoll_event *event);
CURLMcode sl_http_reactor_run_timer(struct sl_http_reactor *reactor);

/* A handle of libcurl. It stays with its reactor. */
struct sl_http_transfer {
	struct sl_list link; /* in unused */
	struct sl_http_reactor *reactor;
	CURL *easy;
	uint64_t file;           /* the number of the file behind the options; 0: none */
	bool home;               /* they are for the file's origin */
	char *url;               /* as text, */
	CURLU *parsed;           /* and parsed; NULL: none */
	char line[64];           /* of this attempt's header; "": none, */
	struct curl_slist lines; /* and with the file's lines behind it */
	char reason[CURL_ERROR_SIZE];
};
/* NULL: no memory. */
struct sl_http_transfer *sl_http_transfer_new(struct sl_http_reactor *reactor);
void sl_http_transfer_free(struct sl_http_transfer *transfer);
/* Forgets all options of the request's handle, unless its last request was a successful GET for the
 * same file there: nothing of a file, least of all its password, goes elsewhere. */
void sl_http_transfer_renew(struct sl_http_request *request, bool home);
/* Sets the buffer of a handle for an answer of about so many bytes: libcurl allocates it for each
 * transfer. */
void sl_http_transfer_expect(struct sl_http_transfer *transfer, uint64_t bytes);

#endif
