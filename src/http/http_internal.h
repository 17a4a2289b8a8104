/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A remote file and its requests. A piece becomes a request, which waits for a permit (engine.c), is moved by a reactor
 * (reactor.c) in several attempts at most, each of which is a transfer of libcurl (request.c, response.c), and ends its
 * piece once.
 */
#ifndef SL_HTTP_INTERNAL_H
#define SL_HTTP_INTERNAL_H

#include "http/engine.h"
#include "http/hedge.h"
#include "http/identity.h"
#include "http/location.h"
#include "http/reactor.h"
#include "http/response.h"
#include "service/service.h"

struct sl_http_body;
struct sl_http_call;
struct sl_http_multipart;
struct sl_http_upload;

/* An open file. Fixed by open, except `begun` and `quiet`, and `location`, `upload`, `multipart` and `body`, which have
 * locks of their own. */
struct sl_http {
	struct sl_backend base;
	struct sl_core *core;
	struct sl_http_engine *engine;
	struct sl_http_limit *limit; /* of its origin */
	struct sl_http_multi *multi;
	unsigned remote;          /* enum sl_remote: the kind of reactors in multi */
	unsigned flags;           /* of enum sluice_open_flags */
	uint64_t number;          /* of the files of the engine, from 1 on */
	char *url;                /* without user, password and fragment */
	char *name;               /* safe to display */
	char *credentials;        /* "user:password" for the host of the origin only, or NULL */
	struct sl_signer *signer; /* of an object of a service; NULL: a plain URL */
	bool absent;              /* the server has said that there is no such object */
	bool identified;          /* requests to the origin need sl_http_identity_set() */
	bool password;            /* of the URI, or of .netrc */
	_Atomic long how; /* CURLAUTH_BASIC or _DIGEST: so it takes a password; 0: unknown */
	char *origin;     /* scheme://host:port */
	struct curl_slist *headers;   /* of the user, for the origin only */
	struct sl_http_fields fields; /* of every request for data, or of the PUT */
	bool ranges;                  /* the server has them */
	bool confirm_empty; /* during open: a GET without a range confirms a length of 0 */
	int64_t size;       /* bytes, -1: unknown */
	int64_t said;       /* during open: what the answer to HEAD has said of size, or -1 */
	struct sl_opening
		*opening;  /* that a reactor goes on with; NULL: none, or its caller waits */
	size_t head_most;  /* of the first bytes a probe brings so many at most; 0: it is no use */
	bool head_all;     /* that is the object, a list said: the probe has no range */
	char *head;        /* the first bytes; NULL: none came */
	size_t head_bytes; /* so many */
	int64_t modified_ns;
	bool by_date;                        /* its ETag is not looked at */
	struct sl_http_texts opened;         /* the fields of the response that open has accepted */
	struct sl_http_upload *upload;       /* of a file that is written, */
	struct sl_http_multipart *multipart; /* or of an object of a service */
	struct sl_http_body
		*body;      /* of a file without ranges; the reactors may make it during open */
	_Atomic bool begun; /* data has come; set by the reactors */
	/* Until then no request begins: the server limits them. Of other servers, and of the origin; set by the reactors. */
	_Atomic int64_t quiet[2];
	struct sl_http_location location;
	bool keeps_metadata; /* of a HEAD: lines of it that are metadata of the object */
	char *found; /* the name of the URL at which open found the object, if another than its own; NULL */
};

static inline struct sl_http *sl_http_of(struct sl_backend *backend)
{
	return SL_CONTAINER(backend, struct sl_http, base);
}

/* PROBE is a GET of a single byte, or of an object that seems to be empty. CALL has a verb of its own. */
enum sl_http_method { SL_HTTP_HEAD, SL_HTTP_PROBE, SL_HTTP_GET, SL_HTTP_PUT, SL_HTTP_CALL };
/* AGAIN: at request->due, with the permit if that is now. ANEW: as a new request, since the target is unknown. */
enum sl_http_verdict { SL_HTTP_DONE, SL_HTTP_AGAIN, SL_HTTP_ANEW, SL_HTTP_FAILED };

/*
 * A request. A single thread has it at any time: the thread that made it, the reactor that moves it, or, under the mutex of
 * the limits or of a queue, a thread that moves it between lists.
 */
struct sl_http_request {
	struct sl_list link;
	struct sl_http *http;
	struct sl_piece
		*piece; /* of a GET of a range; a GET without a piece is that of http->body */
	struct sl_piece *instead;    /* of a hedge: the piece of the first request; else NULL */
	struct sl_http_hedge *hedge; /* of a first request that has a second */
	struct sl_http_transfer *transfer; /* lent by the reactor, or NULL */
	enum sl_http_method method;
	struct sl_http_call *call; /* of CALL */

	char *url; /* the target of a redirect, or NULL: http->url */
	unsigned hops;
	unsigned located; /* the version of the remembered target that it went to; 0: none */
	unsigned misled;  /* remembered targets that failed it, since the piece grew */
	bool asks;        /* it asks the origin for the file, and others wait for that */
	bool bears;       /* its last attempt had the token, */
	unsigned token;   /* of this version */
	long how; /* of CURLAUTH_...: the ways by which its last attempt might tell a password */
	int64_t limited; /* milliseconds that a limit of the server made it pause, since the piece grew */
	unsigned attempts;
	unsigned backoffs; /* since the piece grew */
	uint64_t
		reached; /* the most bytes of the piece, or of a call's body, that an attempt has moved */
	int64_t since;         /* when the last of them came; before that, the first attempt */
	int64_t due;           /* of the next attempt; 0: at once */
	_Atomic uint32_t over; /* of HEAD and PROBE: 1 ends the wait of http_ask() */
	uint64_t random;

	/* Of the attempt that runs. */
	uint64_t from, length; /* the range that it requests; length 0: to the end */
	bool ranged;
	bool connected;
	bool keeps;      /* of PROBE: the body that has begun is that of http->body */
	bool unexpected; /* of all attempts: the server refused "Expect" */
	int64_t sent;    /* bytes of an upload that the server's kernel has */
	int64_t asked;   /* when it began */
	int64_t first;   /* ns until the first line of the answer */
	int64_t slow;    /* when it is time for a hedge; SL_FOREVER: never */
	int64_t alive;   /* when the last byte came or went, or a silence had a reason */
	struct curl_slist
		*lines; /* of its header, if it is signed; else NULL. The rest is borrowed */
	const struct curl_slist *lines_rest;
	unsigned keys; /* the version of those that signed it */
	struct sl_http_response response;

	/* The first error. */
	int error;
	char *sentence; /* or NULL */
};

/* Sends a request without a piece, and waits. The request, which the caller frees, keeps the fields of the response; NULL: no
 * memory. Returns 0, or -errno with a sentence. */
int sl_http_ask(struct sl_http *http, enum sl_http_method what, struct sl_http_request **out);
/* The fields of the response are those of the opening. */
void sl_http_take_texts(struct sl_http *http, struct sl_http_request *request);
/* Asks for the object that is to be read, and waits. Returns 0, or -errno with a sentence. */
int sl_http_inspect(struct sl_http *http);
/* The same without waiting: 0, and opening->done() comes; or -errno with a sentence. It closes the file on failure. */
int sl_http_inspect_start(struct sl_http *http, struct sl_opening *opening);
/* Goes on with an answer, which it frees. */
void sl_http_inspect_go_on(struct sl_http_request *request);
void sl_http_close(struct sl_backend *backend);
/* Makes a file for requests about an object of a service, or with a query about its bucket, and asks the server nothing. A
 * request fails with -EREMOTE if the object is elsewhere; files that are opened later find it. Returns 0, or -errno with a
 * sentence. */
int sl_http_open_query(struct sl_core *core, const struct sl_uri *uri,
                       const struct sluice_open_options *options, const char *query,
                       struct sl_backend **out);

/* As in struct sl_names_ops. */
int sl_http_remove(struct sl_core *core, const struct sl_uri *uri,
                   const struct sluice_open_options *options);
void sl_http_remove_many(struct sl_core *core, const char *scheme, const char *const *uris,
                         size_t count, const struct sluice_open_options *options, int *errors,
                         char **messages);
int sl_http_drop(struct sl_core *core, const struct sl_uri *uri,
                 const struct sluice_open_options *options, const char *upload);
int sl_http_copy(struct sl_core *core, const struct sl_uri *from, const struct sl_uri *to,
                 const struct sluice_open_options *options);
int sl_http_presign(struct sl_core *core, const struct sl_uri *uri,
                    const struct sluice_open_options *options, const char *method, unsigned seconds,
                    char **url, int64_t *end_ns);

struct sl_http_request *sl_http_request_new(struct sl_http *http, enum sl_http_method method,
                                            struct sl_piece *piece);
void sl_http_request_free(struct sl_http_request *request);
/* Returns whether the piece is cancelled, the call stopped, or the upload or body dropped. */
bool sl_http_request_is_unwanted(const struct sl_http_request *request);
/* Returns whether the request brings the first bytes of the object. After a failure a byte is asked for. */
static inline bool sl_http_request_has_head(const struct sl_http_request *request)
{
	return request->method == SL_HTTP_PROBE && request->http->head_most &&
	       !request->http->confirm_empty && !request->backoffs;
}
/* Returns whether it asks for the object, which should have no more bytes than those. */
static inline bool sl_http_request_asks_all(const struct sl_http_request *request)
{
	return sl_http_request_has_head(request) && request->http->head_all;
}
static inline bool sl_http_request_has_body(const struct sl_http_request *request)
{
	return request->method == SL_HTTP_GET && !request->piece;
}
/* Returns whether the request needs a permit. An upload and a body need none: they may wait for their caller. */
static inline bool sl_http_request_has_permit(const struct sl_http_request *request)
{
	return request->method != SL_HTTP_PUT && !sl_http_request_has_body(request);
}
/* Returns whether the next attempt goes to the origin of the file's URI. */
bool sl_http_request_is_home(const struct sl_http_request *request);
/* Sets the transfer up for the next attempt. Returns 0, or -errno with the sentence kept. */
int sl_http_request_prepare(struct sl_http_request *request);
/* Returns whether the request has to pause first, until request->due, because the server limits requests. */
bool sl_http_request_must_rest(struct sl_http_request *request);
/* Decides after an attempt. */
enum sl_http_verdict sl_http_request_judge(struct sl_http_request *request, CURLcode code);
/* Updates `alive` for progress that no byte of a response shows. */
void sl_http_request_refresh(struct sl_http_request *request, int64_t now);
/* Returns whether no byte came for too long, or the request is unwanted: the caller ends the transfer then, and judges
 * it with CURLE_ABORTED_BY_CALLBACK. */
bool sl_http_request_must_end(const struct sl_http_request *request, int64_t now);
/* Keeps the first error. */
__attribute__((format(printf, 3, 4))) void sl_http_request_fail(struct sl_http_request *request,
                                                                int error, const char *format, ...);
#define request_failed(request, ...) (sl_http_request_fail(request, __VA_ARGS__), SL_HTTP_FAILED)
/* Decides about another attempt after an error that may pass. */
enum sl_http_verdict sl_http_request_retry(struct sl_http_request *request, int error,
                                           const char *why);
/* Judges a redirect, which is followed at once. */
enum sl_http_verdict sl_http_request_follow(struct sl_http_request *request);
/* The next attempt asks the origin. */
void sl_http_request_go_home(struct sl_http_request *request);

#endif
