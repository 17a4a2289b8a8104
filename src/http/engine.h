/* SPDX-License-Identifier: Apache-2.0 */
/* The part of a context that remote files share: limits of origins (limit.h), reactors. */
#ifndef SL_HTTP_ENGINE_H
#define SL_HTTP_ENGINE_H

#include <curl/curl.h>

#include "http/http.h"
#include "http/identity.h"
#include "http/limit.h"
#include "service/service.h"

/* ------------------------------------------------------------------------------------ engine */

struct sl_http_multi;
struct sl_http_reactor;

struct sl_http_engine {
	struct sl_core *core;
	struct sl_http_limits limits;
	struct sl_http_token token;
	struct sl_keyring *keyrings[SL_SERVICES_MOST]; /* as sl_services; NULL behind the last */
	struct sl_gate uploads;                        /* bytes of the parts of all uploads */
	_Atomic uint64_t files;                        /* that were opened */
	_Atomic uint64_t hedged;                       /* bytes of memory of all hedges */
	_Atomic int unread;      /* bodies that openings have kept, and no read has come */
	_Atomic bool cancelling; /* a piece was cancelled since the last sl_http_end_cancelled() */

	struct sl_mutex mutex;
	struct {
		struct sl_http_multi *multi[2]; /* by enum sl_remote; NULL until the first file */
	} locked SL_GUARDED_BY(&mutex);
};

/* Returns the keyring of the service with that scheme; NULL: it is no service's. */
struct sl_keyring *sl_http_keyring(const struct sl_http_engine *engine, const char *scheme);

/* Functions of struct sl_backend_ops. */
int64_t sl_http_size(struct sl_backend *backend);
void sl_http_submit(struct sl_backend *backend, struct sl_piece *piece);
void sl_http_cancel(struct sl_backend *backend);
/* Ends all pieces of a list; sentence is copied for each if there is an error. */
void sl_http_end_pieces(struct sl_list *pieces, int error, const char *sentence);

/* Gives the request to a reactor as soon as its target is known and it has a permit. */
void sl_http_dispatch(struct sl_http_request *request);
/* Counts bytes of a body for the limit of the request's origin, which may let further requests begin. */
void sl_http_arrived(struct sl_http_request *request, size_t bytes);
/* Gives the permit of a request back, and dispatches the requests that have one now. */
void sl_http_permit_give(struct sl_http_request *request);
/* Ends the piece of a request that is over and has no permit. */
void sl_http_request_end(struct sl_http_request *request);
/* Dispatches the cancelled requests that wait for a permit, so that the reactors end them. */
void sl_http_end_cancelled(struct sl_http_engine *engine);

/* ---------------------------------------------------------------------------------- reactors */

/* Returns the transfers that a kind of reactors may have. */
unsigned sl_http_multi_most(const struct sl_http_engine *engine, unsigned remote);
/* Starts the first reactor of a kind. With `easy` there may be as many as connections, up to 64. */
int sl_http_multi_start(struct sl_http_engine *engine, unsigned remote, struct sl_http_multi **out);
void sl_http_multi_stop(struct sl_http_multi *multi);
void sl_http_multi_free(struct sl_http_multi *multi);
/* Gives the request to a reactor, and returns that, which lives as long as the engine. */
struct sl_http_reactor *sl_http_multi_submit(struct sl_http_multi *multi,
                                             struct sl_http_request *request);
/* Makes the reactors look for cancelled requests, and for uploads that have more to send. */
void sl_http_multi_wake(struct sl_http_multi *multi);

#endif
