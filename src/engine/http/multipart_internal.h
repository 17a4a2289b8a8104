/* SPDX-License-Identifier: Apache-2.0 */
/* An upload in parts: its plan, parts and window (multipart_window.c), its pieces and calls
 * (multipart.c), its begin and end (multipart_end.c), copies by the server (multipart_copy.c). */
#ifndef SL_HTTP_MULTIPART_INTERNAL_H
#define SL_HTTP_MULTIPART_INTERNAL_H

#include "http/call.h"
#include "http/http_internal.h"

/* How an object is cut into parts. */
struct sl_http_plan {
	const struct sl_service_limits *limits;
	uint64_t total; /* bytes of the object; 0: unknown */
	uint64_t bytes; /* of a part; of unknown length: of each in the first group */
};
/* A part of it. */
struct sl_http_cut {
	unsigned number; /* from 1 on; beyond the limit of parts: these bytes cannot be stored */
	uint64_t start, length;
};

/* A range of a part: its bytes have come, or are being copied. */
struct sl_http_span {
	size_t from, to;
};

/* A part that has a buffer. */
struct sl_http_part {
	struct sl_list link; /* by number */
	struct sl_http_multipart *multipart;
	struct sl_http_cut cut;
	struct sl_http_call call; /* that sends it */
	size_t copied;            /* bytes that are there */
	size_t summed;            /* and so many of them in */
	uint32_t sum; /* the CRC-32C of copies, each moved back to the begin of the part */
	struct sl_http_span *spans; /* by offset, none touches another */
	unsigned span_count, room;
	bool ready; /* its call is prepared */
	char *data;
};

struct sl_http_multipart {
	struct sl_http *http;
	struct sl_http_fields whole, each; /* of requests for the object, and for a part */
	struct sl_http_plan plan;
	uint64_t share_most;
	unsigned most; /* parts, 1 where the object fits into one */
	pid_t process;
	struct sl_list alive; /* in the list of all; guarded by its mutex */
	_Atomic bool dropped; /* calls are to end */
	_Atomic bool plain;   /* parts go without checksums */
	struct sl_http_call create;

	struct sl_mutex mutex;
	pthread_cond_t idle; /* `flying` became 0 */
	struct {
		struct sl_list parts;  /* that have a buffer */
		struct sl_list pieces; /* that are not over, by offset */
		struct sl_list coming; /* writes through slots: struct sl_coming */
		unsigned low;          /* number of the first part that is not full */
		uint64_t low_start;    /* its first byte */
		uint64_t window;       /* the byte behind the window */
		uint64_t reach;        /* the byte behind all pieces */
		uint64_t share;        /* bytes of buffers at a time, at least a part; grows */
		uint64_t used;         /* bytes of buffers, those in `spare` included */
		struct sl_list spare;  /* buffers of parts that are over: struct sl_http_part */
		unsigned flying;       /* calls */
		bool begun;            /* the upload is created, or will be */
		char *upload;          /* its id; NULL: not yet */
		int64_t began;         /* in seconds, by the server; below 1: unknown */
		bool over;             /* the server has the object, or nothing of it */
		int error;
		char *sentence;
		struct sl_service_part *known; /* by number - 1 */
	} locked SL_GUARDED_BY(&mutex);
};

/* ------------------------------------------------------------------------------------ window */

/* Chooses parts of at least part_bytes. Of unknown length, later parts are longer. */
void sl_http_plan_make(const struct sl_service_limits *limits, uint64_t total, uint64_t part_bytes,
                       struct sl_http_plan *out);
/* Finds the part with the byte at offset, which is below the total. */
void sl_http_plan_find(const struct sl_http_plan *plan, uint64_t offset, struct sl_http_cut *out);
/* Adds a range that overlaps no other. Returns 0, or -ENOMEM. */
int sl_http_part_add(struct sl_http_part *part, size_t from, size_t to);
/* Returns sum, with the CRC-32C of a part that has all of its bytes; NULL: not all are summed. */
const uint32_t *sl_http_part_sum(const struct sl_http_part *part, uint64_t length, uint32_t *sum);
void sl_http_part_free(struct sl_http_part *part);
/* Takes the file's share of the memory for parts: an eighth at most, and a part in any case. */
void sl_http_multipart_take_share(struct sl_http_multipart *multipart);
/* Returns the part of that number if it has a buffer. */
struct sl_http_part *sl_http_multipart_part_locked(struct sl_http_multipart *multipart,
                                                   unsigned number) SL_REQUIRES(&multipart->mutex);
/* Returns a part of the window, with a buffer; NULL: none for now, or no memory (*error is set). */
struct sl_http_part *sl_http_multipart_buffer_locked(struct sl_http_multipart *multipart,
                                                     const struct sl_http_cut *cut, int *error)
	SL_REQUIRES(&multipart->mutex);
/* Finds the low part and the end of the window anew; before, doubles the share if `grows` and there
 * is memory. Returns whether the share has grown or the window reaches further. */
bool sl_http_multipart_move_locked(struct sl_http_multipart *multipart, bool grows)
	SL_REQUIRES(&multipart->mutex);
/* Returns the end of the bytes from the object's begin on that have come, or are being written. */
uint64_t sl_http_multipart_chain_locked(struct sl_http_multipart *multipart)
	SL_REQUIRES(&multipart->mutex);
/* Returns whether a byte of the range has come, or is in a piece that is not over. */
bool sl_http_multipart_overlaps_locked(struct sl_http_multipart *multipart, uint64_t from,
                                       uint64_t to) SL_REQUIRES(&multipart->mutex);

/* -------------------------------------------------------------------------------------- calls */

/* Keeps the first error, ends all calls, and ends the pieces that wait. No lock held. */
void sl_http_multipart_fail(struct sl_http_multipart *multipart, int error, const char *sentence);
/* A part is full: prepares its call, and sends it when the upload has its id. No lock held. */
void sl_http_multipart_fill(struct sl_http_multipart *multipart, struct sl_http_part *part);

/* Begins an upload, which is `begun` and counts as flying already. No lock held. */
void sl_http_multipart_create(struct sl_http_multipart *multipart);
/* A call is over. The multipart may be freed as soon as the last is. */
void sl_http_multipart_landed(struct sl_http_multipart *multipart);

/* ---------------------------------------------------------------------------------------- end */

/* Waits until no call flies: each ends, at a silent server by a time-out, and wakes this thread. */
void sl_http_multipart_wait(struct sl_http_multipart *multipart);
/* Makes the object visible by the last call. Returns 0, or -errno with a sentence. */
int sl_http_multipart_finish(struct sl_http_multipart *multipart, struct sl_http_call *call,
                             uint64_t length);
/* The same, of the parts before the low one: all are there, and no other thread has the upload. */
int sl_http_multipart_complete(struct sl_http_multipart *multipart, uint64_t length);

#endif
