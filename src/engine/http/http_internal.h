/* SPDX-License-Identifier: Apache-2.0 */
/* A remote file and its requests. A piece becomes a request (range.c); the request waits for a
 * permit (engine.c), and a reactor moves it (reactor.c) in attempts, each a transfer by libcurl
 * (request.c, response.c); the last ends the piece. */
#ifndef SL_HTTP_INTERNAL_H
#define SL_HTTP_INTERNAL_H

#include "http/engine.h"
#include "http/identity.h"
#include "http/location.h"
#include "http/response.h"
#include "service/service.h"

struct sl_http_body;
struct sl_http_call;
struct sl_http_multipart;
struct sl_http_upload;

/* An open file. Fixed by open, except `begun`, `quiet`, `how`, and what has a mutex. */
struct sl_http {
	struct sl_backend base;
	struct sl_core *core;
	struct sl_http_engine *engine;
	struct sl_http_limit *limit; /* of its origin */
	struct sl_http_multi *multi;
	unsigned remote;          /* enum sl_remote, as multi is */
	unsigned flags;           /* enum sluice_open_flags */
	uint64_t number;          /* from 1 on, in the engine */
	char *url;                /* without user, password and fragment */
	char *name;               /* safe to display */
	char *credentials;        /* "user:password" for the origin's host only, or NULL */
	struct sl_signer *signer; /* signs requests to an object of a service; NULL: a plain URL */
	bool absent;              /* the server has said: there is no such object */
	bool identified;          /* requests to the origin need sl_http_identity_set() */
	bool password;            /* in the URI or .netrc */
	_Atomic long how; /* CURLAUTH_BASIC or _DIGEST: so it takes a password; 0: unknown */
	char *origin;     /* scheme://host:port */
	struct curl_slist *headers;   /* the user's, for the origin only */
	struct sl_http_fields fields; /* lines of every header */
	bool ranges;                  /* the server has them */
	bool confirm_empty;           /* during open: a GET without a range confirms length 0 */
	int64_t size;                 /* bytes, -1: unknown */
	int64_t said;                 /* during open: the size in the answer to HEAD, or -1 */
	/* A reactor goes on with it; NULL: there is none, or the caller waits. */
	struct sl_opening *opening;
	size_t head_most;  /* the most first bytes for a probe to bring; 0: it brings none */
	bool head_all;     /* by a list these are the object: the probe has no range */
	char *head;        /* the first bytes; NULL: none came */
	size_t head_bytes; /* so many */
	int64_t modified_ns;
	bool by_date;                        /* its ETag is not looked at */
	struct sl_http_texts opened;         /* fields of the response accepted by open */
	struct sl_http_upload *upload;       /* writes a file, */
	struct sl_http_multipart *multipart; /* or an object of a service */
	struct sl_http_body *body; /* reads without ranges; a reactor may make it during open */
	_Atomic bool begun;        /* data has come; set by the reactors */
	/* No request begins before, at other servers and at the origin. Set by the reactors. */
	_Atomic int64_t quiet[2];
	struct sl_http_location location;
	/* Takes a line from an answer's header, for metadata; NULL: none is wanted. */
	void (*keep_metadata)(struct sl_http_request *request, const char *data, size_t bytes);
	char *found; /* where open found the object, safe to display, if not at `url`; or NULL */
};

static inline struct sl_http *sl_http_of(struct sl_backend *backend)
{
	return SL_CONTAINER(backend, struct sl_http, base);
}

/* AGAIN: at request->due, with the permit if that is now. ANEW: the target is unknown. */
enum sl_http_verdict { SL_HTTP_DONE, SL_HTTP_AGAIN, SL_HTTP_ANEW, SL_HTTP_FAILED };

/* A kind of requests: the points where their attempts differ. */
struct sl_http_kind {
	const char *verb; /* NULL: a call has its own */
	size_t bytes;     /* sizeof its struct, which begins with the request */
	bool piece;       /* a GET of a piece, to where the object is; leaves options to the next */
	bool opens; /* the answer tells the object's version; other answers have to agree with it */
	bool bare;  /* an answer has no body */
	bool sends; /* the request has a body */
	bool stream; /* may wait for its caller, without a permit: looked at at each wake */
	bool urgent; /* goes before others without a permit: a thread waits, or it is late */
	const struct sl_http_kind *next; /* after a failure; NULL: the same */

	/* Returns whether its caller has cancelled or dropped it. */
	bool (*unwanted)(const struct sl_http_request *request);
	/* Changes an attempt from a GET of the whole object. */
	void (*prepare)(struct sl_http_request *request);
	/* Takes bytes of a body, as libcurl's write callback. NULL: an error's text is kept. */
	size_t (*take)(struct sl_http_request *request, const char *data, size_t bytes);
	/* Resumes a paused transfer if it may go on; easy is NULL between attempts. Returns whether
	 * silence has a reason. NULL: it has none. */
	bool (*look)(struct sl_http_request *request, CURL *easy);
	/* At request->slow: sets the next. Returns whether the attempt begins anew. */
	bool (*late)(struct sl_http_request *request, int64_t now);
	/* The transfer is over. Returns whether the result is unwanted. NULL: it is wanted. */
	bool (*ended)(struct sl_http_request *request);
	/* Judges an answer with a status of success. NULL: the status is enough. */
	enum sl_http_verdict (*judge)(struct sl_http_request *request);
	/* Returns why no attempt can follow, as the end of a sentence; or NULL, as without it. */
	const char *(*stuck)(const struct sl_http_request *request);
	/* The request is over, and has no permit: tells its caller, and frees it. */
	void (*end)(struct sl_http_request *request);
};
extern const struct sl_http_kind sl_http_kind_head, sl_http_kind_probe;   /* probe.c */
extern const struct sl_http_kind sl_http_kind_range, sl_http_kind_second; /* range.c */
extern const struct sl_http_kind sl_http_kind_body, sl_http_kind_call, sl_http_kind_put;

/* A request. One thread has it: its maker, its reactor, or that with the mutex of its list. */
struct sl_http_request {
	struct sl_list link;
	struct sl_http *http;
	const struct sl_http_kind *kind;
	const char *verb;
	const char *origin_url;              /* with the query of a call */
	struct sl_http_transfer *transfer;   /* lent by the reactor, or NULL */
	struct sl_http_call *call;           /* for the kind call, else NULL */
	const struct sl_http_fields *fields; /* lines of the header */
	uint64_t work;                       /* bytes to move; 0: few */
	int64_t patience;                    /* ns without a byte */
	bool brief; /* SLUICE_HTTP_ATTEMPTS holds for it even if the file's data has moved */

	char *url; /* the target after a redirect; NULL: origin_url */
	unsigned hops;
	unsigned located; /* it went to the remembered target of this version; 0: to none */
	unsigned misled;  /* remembered targets have failed it so often, since the piece grew */
	bool asks;        /* it asks the origin for the file, and others wait */
	bool bears;       /* the last attempt had the token, */
	unsigned token;   /* in this version */
	long how;         /* CURLAUTH_...: ways in which the last attempt might tell a password */
	int64_t limited;  /* ms of pauses that the server asked for, since the piece grew */
	unsigned attempts;
	unsigned backoffs; /* since the piece grew */
	uint64_t moved;    /* bytes of the piece, or of another body, so far, */
	uint64_t reached;  /* and at the most after an attempt */
	int64_t since; /* when the last byte came; before the first: when the first attempt began */
	int64_t due;   /* when the next attempt begins; 0: at once */

	/* The attempt. */
	uint64_t from, length; /* the requested range; length 0: to the end */
	bool ranged;
	bool connected;
	bool keeps;               /* the body has begun, and becomes http->body */
	bool unexpected;          /* not only now: the server refused "Expect" */
	int64_t sent;             /* bytes of an upload in the server's kernel */
	int64_t asked;            /* when it began */
	int64_t first;            /* ns until the first line of the answer */
	int64_t slow;             /* when kind->late() is called; SL_FOREVER: never */
	int64_t alive;            /* when the last byte came or went, or a silence had a reason */
	struct curl_slist *lines; /* a signed header, else NULL; */
	const struct curl_slist *lines_rest; /* from here on borrowed */
	unsigned keys;                       /* the version of the keys behind it */
	struct sl_http_response response;

	/* The first error. */
	int error;
	char *sentence; /* or NULL */
};

#define SL_HTTP_BUFFER (256L << 10) /* for a transfer; more does not stay in the cache */
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

/* ---------------------------------------------------------------------------------- engine.c */

/* Makes a request, in a struct of its kind. NULL: no memory. */
struct sl_http_request *sl_http_request_new(struct sl_http *http, const struct sl_http_kind *kind);
void sl_http_request_free(struct sl_http_request *request);
/* Returns whether the next attempt goes to the file's origin. */
bool sl_http_request_is_home(const struct sl_http_request *request);
/* Keeps the first error. */
__attribute__((format(printf, 3, 4))) void sl_http_request_fail(struct sl_http_request *request,
                                                                int error, const char *format, ...);
#define request_failed(request, ...) (sl_http_request_fail(request, __VA_ARGS__), SL_HTTP_FAILED)
/* End a piece with a sentence, which it takes; or a list, where each piece gets a copy. */
void sl_http_end_piece(struct sl_piece *piece, int error, char *sentence);
void sl_http_end_pieces(struct sl_list *pieces, int error, const char *sentence);

/* --------------------------------------------------------------------------------- request.c */

/* Sets the transfer up for the next attempt. Returns 0, or -errno with the sentence kept. */
int sl_http_request_prepare(struct sl_http_request *request);
/* Decides after an attempt. */
enum sl_http_verdict sl_http_request_judge(struct sl_http_request *request, CURLcode code);
/* Updates `alive` for progress before a response. */
void sl_http_request_refresh(struct sl_http_request *request, int64_t now);

/* ---------------------------------------------------------------------------------- signed.c */

/* Signs the next attempt. lines: its header, which is borrowed. Returns 0, with all lines in
 * request->lines, or -errno with the sentence kept. */
int sl_http_signed_prepare(struct sl_http_request *request, struct curl_slist *lines);
/* Keeps bytes of the body of an error. */
void sl_http_signed_keep(struct sl_http_request *request, const char *data, size_t bytes);
/* Judges an error that the next attempt may not have. Returns false if nothing helps. */
bool sl_http_signed_judge(struct sl_http_request *request, enum sl_http_verdict *out);
/* Prints an error's code, message and id. Returns its errno, or `error` where the code has none. */
int sl_http_signed_error(const struct sl_http_request *request, int error, char *text, size_t size);

/* ----------------------------------------------------------------------------------- retry.c */

/* Decides about another attempt after a passing error. */
enum sl_http_verdict sl_http_request_retry(struct sl_http_request *request, int error,
                                           const char *why);
/* Returns whether the request pauses until request->due: the server limits requests. */
bool sl_http_request_must_rest(struct sl_http_request *request);

/* ----------------------------------------------------------------------------------- probe.c */

/* Asks for the object by a request; at the end over() is called, and frees it. NULL: no memory. */
struct sl_http_request *sl_http_probe_start(struct sl_http *http, const struct sl_http_kind *kind,
                                            void (*over)(struct sl_http_request *request));
/* Asks for the object, and waits. The caller frees the request, which has the response; NULL: no
 * memory. Returns 0, or -errno with a sentence. */
int sl_http_ask(struct sl_http *http, const struct sl_http_kind *kind,
                struct sl_http_request **out);
/* Returns whether a probe asks for the whole object, in the place of first bytes. */
bool sl_http_probe_asks_all(const struct sl_http_request *request);

/* ---------------------------------------------------------------------------- http_opening.c */

/* Moves the response's fields to the opening. */
void sl_http_take_texts(struct sl_http *http, struct sl_http_request *request);
/* Asks for an object to read, and waits. Returns 0, or -errno with a sentence. */
int sl_http_inspect(struct sl_http *http);
/* The same without a wait: 0, then opening->done(); or -errno with a sentence, and it is closed. */
int sl_http_inspect_start(struct sl_http *http, struct sl_opening *opening);

/* ------------------------------------------------------------------------ http_file.c, names */

/* Makes a file for requests about an object of a service, or with a query about its bucket, and
 * asks the server nothing. A request fails with -EREMOTE if the object is elsewhere; files that are
 * opened later find it. Returns 0, or -errno with a sentence. */
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

/* ----------------------------------------------------------------------------------- range.c */

/* For struct sl_backend_ops. */
int64_t sl_http_size(struct sl_backend *backend);
void sl_http_submit(struct sl_backend *backend, struct sl_piece *piece);

/* ------------------------------------------------------------------------------------ body.c */

/* Makes http->body, unless the opening has kept it. */
int sl_http_body_make(struct sl_http *http);
void sl_http_body_submit(struct sl_http_body *body, struct sl_piece *piece);
/* Ends the request first, and waits for that. NULL is allowed. */
void sl_http_body_free(struct sl_http_body *body);

/* Makes a request from a probe's transfer, which brings the whole object, and pauses until the
 * first read. On the probe's reactor. NULL: no memory, or too many files pause. */
struct sl_http_request *sl_http_body_keep(struct sl_http_request *probe);

/* ---------------------------------------------------------------------------------- upload.c */

/* Opens an object of that length; 0: only an empty object can be written. */
int sl_http_upload_new(struct sl_http *http, uint64_t length);
void sl_http_upload_submit(struct sl_http_upload *upload, struct sl_piece *piece);
/* Sends the rest and waits for the response. Returns 0, or -errno with a sentence. */
int sl_http_upload_commit(struct sl_http_upload *upload);
/* Without a commit before, the server keeps nothing. NULL is allowed. */
void sl_http_upload_free(struct sl_http_upload *upload);

/* ----------------------------------------------------------------------------------- hedge.c */

struct sl_http_hedge;

/* A GET of the kinds range and second. */
struct sl_http_get {
	struct sl_http_request request;
	struct sl_piece *piece;
	struct sl_piece *instead;    /* in a second GET: the first GET's piece; else NULL */
	struct sl_http_hedge *hedge; /* in a first GET with a second; else NULL */
};

static inline struct sl_http_get *sl_http_get_of(const struct sl_http_request *request)
{
	return SL_CONTAINER(request, struct sl_http_get, request);
}

/* Returns whether a slow attempt of a file is hedged, or begun anew. */
static inline bool sl_http_may_hedge(const struct sl_http *http)
{
	return http->core->settings.http_hedge &&
	       !(http->flags & (SLUICE_OPEN_HTTP2 | SLUICE_OPEN_WRITE));
}

/* Members `late` of the kinds range and second. The first asks for the rest of a part once more, if
 * it is slow by now, there were few hedges, and memory is left for them; this attempt goes on. The
 * attempt of a slow second GET begins anew. */
bool sl_http_hedge_look(struct sl_http_request *request, int64_t now);
bool sl_http_hedge_look_second(struct sl_http_request *request, int64_t now);
/* Returns whether the second request has brought the rest: the first is to end. */
bool sl_http_hedge_is_won(const struct sl_http_hedge *hedge);
/* The first request is over, and its piece has the result. Ends the piece, at once or when the
 * second request has ended. On the reactor that moved the first. */
void sl_http_hedge_over(struct sl_http_hedge *hedge);

/* ------------------------------------------------------------------------------- multipart.c */

int sl_http_multipart_new(struct sl_http *http, const struct sluice_open_options *options,
                          struct sl_http_multipart **out);
/* A piece of a remote file. */
struct sl_http_piece {
	struct sl_piece base;
	bool waits;    /* for a buffer of an upload, or its users, so no thread takes more of it */
	unsigned uses; /* threads that copy bytes of it */
};
static inline struct sl_http_piece *sl_http_piece_of(const struct sl_piece *piece)
{
	return SL_CONTAINER(piece, struct sl_http_piece, base);
}
void sl_http_multipart_submit(struct sl_http_multipart *multipart, struct sl_piece *piece);
/* A PUT to a plain server takes no bytes through slots. */
extern const struct sl_slot_writes sl_http_slot_writes;
/* Ends cancelled pieces that wait; the object will lack their bytes, so it fails. Any thread. */
void sl_http_multipart_cancel(struct sl_http_multipart *multipart);
/* Sends the rest, and makes the object visible. Returns 0, or -errno with a sentence. */
int sl_http_multipart_commit(struct sl_http_multipart *multipart);
/* Unless a commit succeeded the server drops what it has, which is waited for. May be NULL. */
void sl_http_multipart_free(struct sl_http_multipart *multipart);

#endif
