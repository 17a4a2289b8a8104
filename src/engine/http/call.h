/* SPDX-License-Identifier: Apache-2.0 */
/* Calls: requests to a service with a verb, a query and a body, as those of an upload. */
#ifndef SL_HTTP_CALL_H
#define SL_HTTP_CALL_H

#include "http/http_internal.h"

/* What came of a call. */
struct sl_http_answer {
	int error;         /* 0, or -errno */
	char *sentence;    /* of the error, or NULL */
	long status;       /* of the last answer; 0: none */
	unsigned attempts; /* that failed before it */
	struct sl_http_texts texts;
	char *xml; /* the begin of the body, or all of a long one; or NULL */
};
void sl_http_answer_clear(struct sl_http_answer *answer);

/* The caller sets the first group, which stays until over() is called. */
struct sl_http_call {
	enum sl_service_call kind;
	const char *upload; /* the id of an upload; or NULL */
	unsigned part;      /* its part, from 1 on; or 0 */
	const char *body;
	size_t length;
	const struct sl_http_fields *fields;
	struct sl_service_digest digest; /* payload "": computed when the call starts */
	const _Atomic bool *stop;        /* the call ends when it is true; NULL: never */
	/* A stopped call ends when so many attempts have failed, and none is cut; 0: at once. */
	unsigned least;
	/* It makes an object of parts. Where the ETag is unknown, "", it has a connection of its
	 * own, on which libcurl sends nothing again by itself. */
	bool completes;
	char etag[SL_SERVICE_TEXT];
	uint64_t copies; /* bytes that the server copies before it answers, or 1 more; 0: none */
	bool brief;      /* SLUICE_HTTP_ATTEMPTS holds for it even if data of the file has moved */
	/* The call is over: a reactor, or the thread that started it; no lock held. */
	void (*over)(struct sl_http_call *call);

	struct sl_http_answer answer;

	const char *verb;
	char *query;   /* NULL: that of the file's URL */
	unsigned open; /* how often it was sent without an answer that says whether it was done */
	char *url;
	size_t given; /* bytes of the body that libcurl has taken in this attempt */
	_Atomic uint32_t done;
};

/* Computes a body's payload; sum: puts its checksum into the header, computed if it is not known
 * (NULL). Takes a while: not on a reactor. */
void sl_http_call_digest(struct sl_http *http, struct sl_http_call *call, bool sum,
                         const uint32_t *known);
/* Returns the checksum that a digest has put into the header; "": none. */
const char *sl_http_call_sum(const struct sl_http_call *call);
/* Fails a call that succeeded, if the server has another checksum of its bytes. */
void sl_http_call_compare(struct sl_http *http, struct sl_http_call *call);
/* Returns whether a call was refused as a server refuses a line that it does not know. */
bool sl_http_call_refused(const struct sl_http *http, const struct sl_http_call *call);
/* Prepares another start without the line, if that may be why a call was refused. */
bool sl_http_call_again(struct sl_http *http, struct sl_http_call *call);
/* Starts a call. over() is called once, perhaps before this returns. Any thread, no lock held. */
void sl_http_call_start(struct sl_http *http, struct sl_http_call *call);
/* Starts a call for sl_http_call_await(), which waits, and returns the error with its sentence. */
void sl_http_call_begin(struct sl_http *http, struct sl_http_call *call);
int sl_http_call_await(struct sl_http_call *call);
/* Both. */
int sl_http_call_run(struct sl_http *http, struct sl_http_call *call);

#endif
