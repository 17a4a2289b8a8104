/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A remote file and its requests. A piece becomes a request, which waits for a permit (engine.c), is moved by a reactor
 * (reactor.c) in several attempts at most, each of which is a transfer of libcurl (request.c, response.c), and ends its
 * piece once.
 */
#ifndef SL_HTTP_INTERNAL_H
#define SL_HTTP_INTERNAL_H

#include "http/engine.h"
#include "http/identity.h"
#include "http/location.h"
#include "http/response.h"
#include "s3/s3.h"

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
	unsigned remote;   /* enum sl_remote: the kind of reactors in multi */
	unsigned flags;    /* of enum sluice_open_flags */
	uint64_t number;   /* of the files of the engine, from 1 on */
	char *url;         /* without user, password and fragment */
	char *name;        /* safe to display */
	char *credentials; /* "user:password" for the host of the origin only, or NULL */
	struct sl_s3 *s3;  /* signs requests to the origin; NULL: http */
	bool absent;       /* the server has said that there is no such object */
	bool identified;   /* requests to the origin need sl_http_identity_set() */
	bool password;     /* of the URI, or of .netrc */
	_Atomic long how;  /* CURLAUTH_BASIC or _DIGEST: so it takes a password; 0: unknown */
	char *origin;      /* scheme://host:port */
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
	struct sl_http_multipart *multipart; /* or of an object of S3 */
	struct sl_http_body
		*body;      /* of a file without ranges; the reactors may make it during open */
	_Atomic bool begun; /* data has come; set by the reactors */
	/* Until then no request begins: the server limits them. Of other servers, and of the origin; set by the reactors. */
	_Atomic int64_t quiet[2];
	struct sl_http_location location;
	/* Takes a line of the header of an answer, for its metadata; NULL: none is wanted. */
	void (*keep_metadata)(struct sl_http_request *request, const char *data, size_t bytes);
	char *found; /* the name of the URL at which open found the object, if another than its own; NULL */
};

static inline struct sl_http *sl_http_of(struct sl_backend *backend)
{
	return SL_CONTAINER(backend, struct sl_http, base);
}

/* AGAIN: at request->due, with the permit if that is now. ANEW: as a new request, since the target is unknown. */
enum sl_http_verdict { SL_HTTP_DONE, SL_HTTP_AGAIN, SL_HTTP_ANEW, SL_HTTP_FAILED };

/* A kind of requests: the points at which their attempts differ, in the order of an attempt. */
struct sl_http_kind {
	const char *verb; /* NULL: a call has its own */
	size_t bytes;     /* of its struct, which begins with the request */
	/* Set of GETs of pieces, which are many: they go where the object was found, and the handle keeps their options. */
	bool part;
	bool opens; /* the answer tells the version of the object; other answers have to agree with it */
	bool bare;  /* an answer has no body */
	bool sends; /* the request has a body */
	/* It may wait for its caller: it has no permit, and is looked at whenever its reactor wakes. */
	bool stream;
	bool urgent; /* it goes before others without a permit: a thread waits for it, or it is late already */
	const struct sl_http_kind *next; /* of the next attempt, after a failure; NULL: the same */

	/* Returns whether its caller has cancelled or dropped it. */
	bool (*unwanted)(const struct sl_http_request *request);
	/* Sets the transfer up for an attempt, which is set up as a GET of the whole object. */
	void (*prepare)(struct sl_http_request *request);
	/* Takes bytes of a body. Returns the result of libcurl's write callback. NULL: of an error the text is kept. */
	size_t (*take)(struct sl_http_request *request, const char *data, size_t bytes);
	/* Resumes a transfer that has paused, if it may go on; easy is NULL between attempts. Returns whether silence has a
	 * reason. NULL: it has none. */
	bool (*look)(struct sl_http_request *request, CURL *easy);
	/* The time request->slow has come: sets the next. Returns whether the attempt ends, and begins anew. */
	bool (*late)(struct sl_http_request *request, int64_t now);
	/* The transfer is over. Returns whether nothing that came is wanted. NULL: it is. */
	bool (*ended)(struct sl_http_request *request);
	/* Judges an answer with a status of success. NULL: that is enough. */
	enum sl_http_verdict (*judge)(struct sl_http_request *request);
	/* Returns why no other attempt can follow, as the end of a sentence, or NULL. NULL: any number can. */
	const char *(*stuck)(const struct sl_http_request *request);
	/* The request is over, and has no permit: tells its caller, and frees it. */
	void (*end)(struct sl_http_request *request);
};
extern const struct sl_http_kind sl_http_kind_head, sl_http_kind_probe;   /* probe.c */
extern const struct sl_http_kind sl_http_kind_range, sl_http_kind_second; /* range.c */
extern const struct sl_http_kind sl_http_kind_body, sl_http_kind_call, sl_http_kind_put;

/*
 * A request. A single thread has it at any time: the thread that made it, the reactor that moves it, or, under the mutex of
 * the limits or of a queue, a thread that moves it between lists.
 */
struct sl_http_request {
	struct sl_list link;
	struct sl_http *http;
	const struct sl_http_kind *kind;
	const char *verb;
	const char *origin_url;              /* with the query of a call */
	struct sl_http_transfer *transfer;   /* lent by the reactor, or NULL */
	struct sl_http_call *call;           /* of the kind call, else NULL */
	const struct sl_http_fields *fields; /* of its header */
	uint64_t work;                       /* bytes that it is to move; 0: few */
	int64_t patience;                    /* ns in which no byte may come */
	bool brief; /* SLUICE_HTTP_ATTEMPTS holds for it even if data of the file has moved */

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
	uint64_t moved;    /* bytes of the piece, or of another body, so far, */
	uint64_t reached;  /* and at the most after an attempt */
	int64_t since;     /* when the last of them came; before that, the first attempt */
	int64_t due;       /* of the next attempt; 0: at once */

	/* Of the attempt that runs. */
	uint64_t from, length; /* the range that it requests; length 0: to the end */
	bool ranged;
	bool connected;
	bool keeps;               /* the body that has begun is that of http->body */
	bool unexpected;          /* of all attempts: the server refused "Expect" */
	int64_t sent;             /* bytes of an upload that the server's kernel has */
	int64_t asked;            /* when it began */
	int64_t first;            /* ns until the first line of the answer */
	int64_t slow;             /* when kind->late() is called; SL_FOREVER: never */
	int64_t alive;            /* when the last byte came or went, or a silence had a reason */
	struct curl_slist *lines; /* of its header, if it is signed; else NULL */
	unsigned keys;            /* the version of those that signed it */
	struct sl_http_response response;

	/* The first error. */
	int error;
	char *sentence; /* or NULL */
};

#define SL_HTTP_BUFFER (256L << 10) /* of a transfer; more does not stay in the cache */
#define SL_HTTP_SHORT  "the body is shorter than it should be"

/* Returns why no other attempt can follow, or NULL. */
static inline const char *sl_http_request_stuck(const struct sl_http_request *request)
{
	return request->kind->stuck ? request->kind->stuck(request) : NULL;
}

static inline bool sl_http_request_is_unwanted(const struct sl_http_request *request)
{
	return request->kind->unwanted(request);
}

/* ----------------------------------------------------------------------------- request_base.c */

/* Makes a request, in memory for the struct of its kind. NULL: no memory. */
struct sl_http_request *sl_http_request_new(struct sl_http *http, const struct sl_http_kind *kind);
void sl_http_request_free(struct sl_http_request *request);
/* Returns whether the next attempt goes to the origin of the file's URI. */
bool sl_http_request_is_home(const struct sl_http_request *request);
/* The next attempt asks the origin. */
void sl_http_request_go_home(struct sl_http_request *request);
/* Keeps the first error. */
__attribute__((format(printf, 3, 4))) void sl_http_request_fail(struct sl_http_request *request,
                                                                int error, const char *format, ...);
#define request_failed(request, ...) (sl_http_request_fail(request, __VA_ARGS__), SL_HTTP_FAILED)
/* Ends a piece with a sentence, which it takes; or all pieces of a list, for each of which it is copied. */
void sl_http_end_piece(struct sl_piece *piece, int error, char *sentence);
void sl_http_end_pieces(struct sl_list *pieces, int error, const char *sentence);

/* --------------------------------------------------------------------------------- request.c */

/* Sets the transfer up for the next attempt. Returns 0, or -errno with the sentence kept. */
int sl_http_request_prepare(struct sl_http_request *request);
/* Decides after an attempt. */
enum sl_http_verdict sl_http_request_judge(struct sl_http_request *request, CURLcode code);
/* Updates `alive` for progress that no byte of a response shows. */
void sl_http_request_refresh(struct sl_http_request *request, int64_t now);
/* Returns whether no byte came for too long, or the request is unwanted: the caller ends the transfer then, and judges
 * it with CURLE_ABORTED_BY_CALLBACK. */
bool sl_http_request_must_end(const struct sl_http_request *request, int64_t now);

/* ----------------------------------------------------------------------------------- retry.c */

/* Decides about another attempt after an error that may pass. */
enum sl_http_verdict sl_http_request_retry(struct sl_http_request *request, int error,
                                           const char *why);
/* Returns whether the request has to pause first, until request->due, because the server limits requests. */
bool sl_http_request_must_rest(struct sl_http_request *request);

/* ----------------------------------------------------------------------------------- probe.c */

/* Asks for the object by a request of that kind: over() is called at its end, with the request, which it frees. Returns
 * 0, or -ENOMEM with a sentence. */
int sl_http_probe_start(struct sl_http *http, const struct sl_http_kind *kind,
                        void (*over)(struct sl_http_request *request));
/* The same, and waits. The request, which the caller frees, keeps the fields of the response; NULL: no memory. Returns 0, or
 * -errno with a sentence. */
int sl_http_ask(struct sl_http *http, const struct sl_http_kind *kind,
                struct sl_http_request **out);
/* Returns whether the request asks for the whole object, which should have no more than the first bytes that are wanted. */
bool sl_http_probe_asks_all(const struct sl_http_request *request);

/* --------------------------------------------------------------------------------- opening.c */

/* The fields of the response are those of the opening. */
void sl_http_take_texts(struct sl_http *http, struct sl_http_request *request);
/* Asks for the object that is to be read, and waits. Returns 0, or -errno with a sentence. */
int sl_http_inspect(struct sl_http *http);
/* The same without waiting: 0, and opening->done() comes; or -errno with a sentence. It closes the file on failure. */
int sl_http_inspect_start(struct sl_http *http, struct sl_opening *opening);

/* ------------------------------------------------------------------------------------ body.c */

/* Makes http->body, unless the opening has kept it. */
int sl_http_body_make(struct sl_http *http);
void sl_http_body_submit(struct sl_http_body *body, struct sl_piece *piece);
/* Ends the request first, and waits for that. NULL is allowed. */
void sl_http_body_free(struct sl_http_body *body);

/* Makes a request of the transfer of a PROBE, which has answered with the whole object, and waits for the first read of its
 * body, on the reactor that moves it. Returns NULL: no memory, or too many files wait for that. */
struct sl_http_request *sl_http_body_keep(struct sl_http_request *probe);

/* ---------------------------------------------------------------------------------- upload.c */

/* length: of the object; 0: only an empty object can be written. */
int sl_http_upload_new(struct sl_http *http, uint64_t length);
void sl_http_upload_submit(struct sl_http_upload *upload, struct sl_piece *piece);
/* Sends the rest and waits for the response. Returns 0, or -errno with a sentence. */
int sl_http_upload_commit(struct sl_http_upload *upload);
/* Without a commit before, the server keeps nothing. NULL is allowed. */
void sl_http_upload_free(struct sl_http_upload *upload);

#endif
