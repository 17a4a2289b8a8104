/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of this room share about remote files. A piece becomes a request, which waits for
 * its turn (http_limit.c), is moved by a reactor (http_multi.c) with one transfer of libcurl after the
 * other (http_request.c), and ends its piece once.
 */
#ifndef SL_HTTP_INTERNAL_H
#define SL_HTTP_INTERNAL_H

#include <curl/curl.h>

#include "http/http.h"

#define SL_HTTP_ETAG 128 /* of struct sluice_file_info */

/* ------------------------------------------------------------------------------------- parse */

/* Content-Range (RFC 9110, section 14.4). */
struct sl_http_range {
	uint64_t first, last; /* bytes, both included; valid if there is a range */
	bool satisfied;       /* false: bytes and a star for the range, which says only the total */
	int64_t total;        /* bytes of the object, -1: not said */
};
/* False if the text is anything else. */
bool sl_http_parse_range(const char *text, struct sl_http_range *out);
/* A length in decimal digits; false if the text is anything else. */
bool sl_http_parse_length(const char *text, uint64_t *out);
/* Retry-After (section 10.2.3) as milliseconds from now, seconds since 1970; -1 if malformed. */
int64_t sl_http_parse_retry_after(const char *text, int64_t now);
/* Whether the text is a strong ETag (section 8.8.3). */
bool sl_http_strong_etag(const char *text);
/* Copies what is printable and fits into SL_HTTP_ETAG; else out becomes "". */
void sl_http_keep(const char *text, char *out);
/* Splits "Name: value\r\n" in place; false if it is no header field. */
bool sl_http_parse_field(char *line, char **name, char **value);

/* ------------------------------------------------------------------------------------- limit */

struct sl_http_request;

/*
 * How many transfers to one origin (scheme://host:port of a file's URL) run at a time. The number follows
 * the goodput: it grows while that makes the bytes come faster, and goes back where it did not; it shrinks
 * when they come slower, and is halved when a server says that it has too much to do.
 */
struct sl_http_limit {
	struct sl_http_limits *limits;
	_Atomic uint64_t arrived; /* bytes since the last look; any thread adds */
	struct {
		struct sl_list link;    /* in origins */
		unsigned files;         /* that refer to it */
		struct sl_list waiting; /* requests that have no turn yet */
		unsigned allowed, active;
		int64_t since; /* the last look */
		double rate;   /* bytes a nanosecond, between the last two looks */
		unsigned ends; /* turns that ended since the last look */
		unsigned
			grown_from; /* how many were allowed before the last look gave more, 0: it did not */
		unsigned pause; /* looks until more is tried */
		int64_t halved; /* when the server last had too much to do */
	} locked;               /* guarded by limits->mutex */
	char origin[];
};

/*
 * Those of one context. Together they have `most` turns, and an origin `reserved` of its own, however many
 * others have: so one that stands still holds up no other. A turn that is free goes to the origin with the
 * fewest.
 */
struct sl_http_limits {
	unsigned most, reserved;
	struct sl_mutex mutex;
	struct {
		struct sl_list origins; /* the one that was opened or closed last at the end */
		unsigned active;        /* turns of all */
	} locked;                       /* guarded by mutex */
};
void sl_http_limits_init(struct sl_http_limits *limits, unsigned most);
void sl_http_limits_destroy(struct sl_http_limits *limits);
/* The limit of an origin, until it is released; NULL: no memory. */
struct sl_http_limit *sl_http_limit_acquire(struct sl_http_limits *limits, const char *origin);
/* When none of its requests has a turn or waits. */
void sl_http_limit_release(struct sl_http_limit *limit);
/* True: it is the request's turn. False: it waits, and sl_http_limit_leave() will hand it out. */
bool sl_http_limit_enter(struct sl_http_limit *limit, struct sl_http_request *request);
/* A turn is over; appends the requests, of any origin, whose turn it is now. */
void sl_http_limit_leave(struct sl_http_limit *limit, int64_t now, struct sl_list *out);
/* The server said 429 or 503. */
void sl_http_limit_overloaded(struct sl_http_limit *limit, int64_t now);
/* Those that wait, for any origin, and are cancelled have their turn now: a reactor ends them. */
void sl_http_limits_sweep(struct sl_http_limits *limits, struct sl_list *out);

/* ------------------------------------------------------------------------------------ engine */

struct sl_http_multi;
struct sl_http_reactor;

/* Of one context. */
struct sl_http_engine {
	struct sl_core *core;
	struct sl_http_limits limits;
	_Atomic bool sweeping; /* something was cancelled since the last sweep */

	struct sl_mutex mutex;
	struct {
		struct sl_http_multi *multi[2]; /* by enum sl_remote; NULL until the first file */
		struct sl_list transfers;       /* handles of libcurl that nobody uses */
	} locked;                               /* guarded by mutex */
};

struct sl_http_put;
struct sl_http_body;

/* The fields of an answer that are looked at, as they were sent; NULL: not sent. */
enum sl_http_field {
	SL_HTTP_FIELD_ETAG,
	SL_HTTP_FIELD_MODIFIED,
	SL_HTTP_FIELD_ENCODING,
	SL_HTTP_FIELD_RANGE,
	SL_HTTP_FIELD_LENGTH,
	SL_HTTP_FIELD_TYPE,
	SL_HTTP_FIELD_RANGES,
	SL_HTTP_FIELD_RETRY_AFTER,
	SL_HTTP_FIELDS
};
struct sl_http_texts {
	char *of[SL_HTTP_FIELDS];
};
void sl_http_texts_clear(struct sl_http_texts *texts);

/* One open file. Fixed by open, but for put and begun. */
struct sl_http {
	struct sl_backend base;
	struct sl_core *core;
	struct sl_http_engine *engine;
	struct sl_http_limit *limit; /* of its origin */
	struct sl_http_multi *multi;
	unsigned remote;           /* enum sl_remote: which reactors multi has */
	unsigned flags;            /* of enum sluice_open_flags */
	char *url;                 /* without user, password and fragment */
	char *name;                /* for people */
	char *credentials;         /* "user:password" for that host alone, or NULL */
	char *origin;              /* scheme://host:port, to which they are sent */
	struct curl_slist *fields; /* of every request for data */
	bool ranges;               /* the server has them */
	bool doubted; /* of open: a length of 0, which a GET without a range is to confirm */
	int64_t size; /* bytes, -1: unknown */
	int64_t modified_ns;
	struct sl_http_texts opened; /* of the answer that the opening believed */
	struct sl_http_put *put;     /* of a file that is written */
	struct sl_http_body *body;   /* of one whose server has no ranges */
	_Atomic bool begun;          /* data has come; set by the threads that move requests */
};

static inline struct sl_http *sl_http(struct sl_backend *backend)
{
	return SL_CONTAINER(backend, struct sl_http, base);
}

/* ----------------------------------------------------------------------------------- request */

/* A handle of libcurl. */
struct sl_http_transfer {
	struct sl_list link; /* guarded by engine->mutex: in transfers */
	CURL *easy;
	char reason[CURL_ERROR_SIZE];
};

enum sl_http_ask { SL_HTTP_HEAD, SL_HTTP_PROBE, SL_HTTP_GET, SL_HTTP_PUT };
enum sl_http_verdict { SL_HTTP_DONE, SL_HTTP_AGAIN, SL_HTTP_FAILED };

/*
 * One thread at a time has a request: who made it, the reactor that moves it, or, under the mutex of
 * the limits or of a queue, the list that it is in.
 */
struct sl_http_request {
	struct sl_list link;
	struct sl_http *http;
	struct sl_piece *piece; /* of a GET of a range; without one a GET is that of the body */
	struct sl_http_transfer *transfer;
	enum sl_http_ask ask;

	char *url; /* where a redirect led, or NULL: the file's */
	unsigned hops;
	unsigned attempts;
	unsigned backoffs;     /* since the piece grew */
	uint64_t reached;      /* the most bytes of the piece that an attempt has brought */
	int64_t since;         /* when the last of them came; before that, the first attempt */
	int64_t due;           /* of the next attempt; 0: at once */
	_Atomic uint32_t over; /* of HEAD and PROBE: 1 once it is, which ends open's wait */
	uint64_t random;

	/* Of the attempt that runs. */
	uint64_t from, length; /* the bytes that it asks for; length 0: to the end */
	bool ranged;
	bool connected;
	int64_t sent;  /* bytes of an upload that the server's kernel has */
	int64_t alive; /* when the last byte came or went, or a silence had a reason */

	/* What the answer says. */
	struct {
		long status;
		size_t field_bytes;
		bool complete; /* the empty line behind the fields has come */
		bool kept;     /* the last line was of a field that is looked at */
		bool has_range, bad_range, has_length, bad_length, ranges;
		struct sl_http_range range;
		uint64_t length;
		int64_t retry_after; /* milliseconds, -1: not said */
		struct sl_http_texts texts;
		bool judged, accepted;
		uint64_t got;   /* bytes taken */
		char said[201]; /* the first line of an error's body */
		size_t said_bytes;
		bool said_line, tagged, in_tag; /* it is over; it is HTML or XML, and in a tag */
	} answer;

	/* The first thing that is wrong with the answer. */
	int error;
	char *sentence; /* or NULL */
};

struct sl_http_request *sl_http_request_new(struct sl_http *http, enum sl_http_ask ask,
                                            struct sl_piece *piece);
void sl_http_request_free(struct sl_http_request *request);
/* Gives the transfer back, for others. */
void sl_http_request_give_back(struct sl_http_request *request);
/* Whether nobody wants it any more: the piece is cancelled, or the upload dropped. */
bool sl_http_request_is_unwanted(const struct sl_http_request *request);
static inline bool sl_http_request_has_body(const struct sl_http_request *request)
{
	return request->ask == SL_HTTP_GET && !request->piece;
}
/* An upload, and a body, has no turn and takes nobody's place: it may wait for its caller. */
static inline bool sl_http_request_has_turn(const struct sl_http_request *request)
{
	return request->ask != SL_HTTP_PUT && !sl_http_request_has_body(request);
}
/* Sets the transfer up for the next attempt. 0 or a negative errno, with the sentence kept. */
int sl_http_request_prepare(struct sl_http_request *request);
/* After the transfer: what now. AGAIN: not before request->due. */
enum sl_http_verdict sl_http_request_judge(struct sl_http_request *request, CURLcode code);
/* Looks at the transfer for signs of life that no byte of an answer tells. */
void sl_http_request_refresh(struct sl_http_request *request, int64_t now);
/* Whether no byte came for too long, or the piece was cancelled: then the transfer is to be ended,
 * and judged with CURLE_ABORTED_BY_CALLBACK. */
bool sl_http_request_is_gone(const struct sl_http_request *request, int64_t now);
/* Keeps the first error. */
__attribute__((format(printf, 3, 4))) void sl_http_request_fail(struct sl_http_request *request,
                                                                int error, const char *format, ...);
/* The same, of an answer that is none to the question, and of one that is about another version. */
void sl_http_fail_odd(struct sl_http_request *request, const char *what);
void sl_http_fail_changed(struct sl_http_request *request, const char *what);
/* Whether the answer is what was asked for; looks once. */
bool sl_http_accepts(struct sl_http_request *request);
/* Forgets what the answer says. */
void sl_http_answer_clear(struct sl_http_request *request);
/* What libcurl calls with the lines of the header and the bytes of the body. */
size_t sl_http_on_line(char *data, size_t size, size_t count, void *request);
size_t sl_http_on_body(char *data, size_t size, size_t count, void *request);

struct sl_http_transfer *sl_http_transfer_acquire(struct sl_http_engine *engine);
void sl_http_transfer_release(struct sl_http_engine *engine, struct sl_http_transfer *transfer);
/* No multi handle has it any more. */
void sl_http_transfer_free(struct sl_http_transfer *transfer);

/* Options of every transfer: safety, time-outs, the certificates. */
void sl_http_transfer_secure(struct sl_http_transfer *transfer, struct sl_http *http);

/* -------------------------------------------------------------------------------------- body */

int sl_http_body_new(struct sl_http *http, struct sl_http_body **out);
void sl_http_body_submit(struct sl_http_body *body, struct sl_piece *piece);
/* Ends the request first. NULL is allowed. */
void sl_http_body_free(struct sl_http_body *body);
/* The rest is for the request, on the thread that moves it. Before each attempt. */
void sl_http_body_prepare(struct sl_http_body *body);
/* Bytes have come: as libcurl's write callback returns it. */
size_t sl_http_body_take(struct sl_http_body *body, const char *data, size_t bytes);
enum sl_http_body_state {
	SL_HTTP_BODY_BEGUN =
		1 << 0,             /* pieces are over, and another attempt may bring other bytes */
	SL_HTTP_BODY_IDLE = 1 << 1, /* it waits for the caller to read: silence is no stall */
	SL_HTTP_BODY_DROPPED = 1 << 2, /* nobody wants it any more */
};
unsigned sl_http_body_state(struct sl_http_body *body, uint64_t *position);
/* Drops the request if a piece was cancelled; lets it go on if there is room for its bytes: true. */
bool sl_http_body_look(struct sl_http_body *body, CURL *easy);
/* The request is over; takes its sentence. */
void sl_http_body_over(struct sl_http_body *body, int error, char *sentence);

/* ---------------------------------------------------------------------------------- dispatch */

/* The request is over: ends its piece. Its turn was given back. */
void sl_http_request_end(struct sl_http_request *request);
/* Asks for a turn, and moves it when it has it. */
void sl_http_dispatch(struct sl_http_request *request);
/* Gives the turn back, and starts those whose turn it is. */
void sl_http_leave(struct sl_http_request *request);

/* Sends what is cancelled and waits for a turn to the reactors, which end it. */
void sl_http_sweep(struct sl_http_engine *engine);

/* The reactors of one kind: with `easy` as many as there may be connections, up to 64. */
int sl_http_multi_start(struct sl_http_engine *engine, unsigned remote, struct sl_http_multi **out);
void sl_http_multi_stop(struct sl_http_multi *multi);
void sl_http_multi_free(struct sl_http_multi *multi);
/* Gives it to the reactor that has the fewest; which that is. It lives as long as the engine. */
struct sl_http_reactor *sl_http_multi_submit(struct sl_http_multi *multi,
                                             struct sl_http_request *request);
/* The reactors look whether what they have was cancelled; an upload, whether there is more to send. */
void sl_http_multi_wake(struct sl_http_multi *multi);
void sl_http_reactor_wake(struct sl_http_reactor *reactor);

#endif
