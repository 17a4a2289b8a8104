/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The contract of a service: servers of objects with their own names, signatures and formats. The
 * service's room makes and parses texts; http sends them, repeats requests and cuts uploads.
 * docs/internals/engine/services.md shows how another service would be added.
 *
 * Functions run on any thread, several at a time, and do not wait, unless their comment says more.
 * Texts from servers are not trusted. A result `int` is 0, or -errno with a sentence. The caller
 * frees texts in `out`.
 */
#ifndef SL_SERVICE_H
#define SL_SERVICE_H

#include "core/core.h"

struct curl_slist;
struct sl_service;

#define SL_SERVICE_TEXT    64
#define SL_SERVICE_LINE    80   /* a line for a header */
#define SL_SERVICE_NAME    4096 /* an object's name */
#define SL_SERVICE_UPLOAD  1024 /* an upload's id */
#define SL_SERVICE_SUM     16   /* a checksum as text */
#define SL_SERVICE_PAYLOAD 65

/* What a context's files share: keys, and knowledge about servers. */
struct sl_keyring {
	const struct sl_service *service;
};
enum sl_excludes {
	SL_EXCLUDES_UNKNOWN,
	SL_EXCLUDES,         /* it keeps an object from a PUT with If-None-Match */
	SL_EXCLUDES_IGNORES, /* it did not, once at least */
	SL_EXCLUDES_REFUSES, /* such a PUT is an error */
};
/* A server's habits, as a context's files have found them. Any thread. */
struct sl_habits {
	_Atomic bool reached;    /* it has answered, and its address is known */
	_Atomic unsigned stored; /* objects that were opened with SLUICE_OPEN_MANY */
	_Atomic int excludes;    /* enum sl_excludes; it only grows */
	_Atomic bool single;     /* it has no SL_CALL_REMOVE_MANY */
};
/* An object of a service, or a list: signs the requests for it. Fixed by open(). */
struct sl_signer {
	const struct sl_service *service;
	const char *url;
	const char *ca_bundle;    /* a file with certificates; NULL: as the settings say */
	struct sl_habits *habits; /* live as long as the keyring */
};

/* The requests beside GET and HEAD. */
enum sl_service_call {
	SL_CALL_PUT,         /* stores an object */
	SL_CALL_BEGIN,       /* begins an upload, and brings its id */
	SL_CALL_PART,        /* stores a part */
	SL_CALL_COMPLETE,    /* makes an object from the parts */
	SL_CALL_DROP,        /* drops an upload */
	SL_CALL_COPY,        /* copies an object within the server */
	SL_CALL_COPY_PART,   /* copies a range as a part */
	SL_CALL_REMOVE,      /* removes an object */
	SL_CALL_REMOVE_MANY, /* removes objects named in the body */
	SL_CALLS
};
/* A request before an attempt. */
struct sl_service_request {
	const char *method, *query; /* query NULL: as in the URL */
	const char *payload;        /* the body's, by digest(); NULL: there is no body */
	uint64_t body_length;
	unsigned seconds; /* a presigned URL's life; 0: it is a request */
	bool looks;       /* for the object's fields */
};
/* Its signature. */
struct sl_service_signed {
	unsigned version; /* of the keys */
	int64_t expires;  /* the keys, in seconds since 1970; 0: never, or unknown */
};
/* A body, as its request shows it. */
struct sl_service_digest {
	char payload[SL_SERVICE_PAYLOAD]; /* for the signature; "": not computed */
	char line[SL_SERVICE_LINE];       /* the checksum in the header; "": none */
};

/* Fields in answers, by the service's names. */
enum sl_service_field {
	SL_SERVICE_FIELD_REGION,
	SL_SERVICE_FIELD_REQUEST_ID,
	SL_SERVICE_FIELD_CRC32C,        /* in base64 */
	SL_SERVICE_FIELD_CHECKSUM_TYPE, /* FULL_OBJECT, unless it is made from those of parts */
	SL_SERVICE_FIELD_CHECKSUM_ALGORITHM,
	SL_SERVICE_FIELDS
};
enum sl_service_meaning {
	SL_MEANS_PASSING = 1, /* the request may succeed later, whatever the status says */
	SL_MEANS_UNKNOWN = 2, /* the server may not know the request, or a line in its header */
	SL_MEANS_LACKING = 4, /* it does not know the request */
	SL_MEANS_UNDONE = 8,  /* nothing was done */
};
/* An error in an answer's body; missing texts are "". */
struct sl_service_error {
	char code[SL_SERVICE_TEXT], message[161];
	char region[SL_SERVICE_TEXT], request_id[SL_SERVICE_TEXT];
	int error;      /* the errno for the code, negative; 0: as the status says */
	unsigned means; /* enum sl_service_meaning */
	bool whole;     /* there is an error, and the body is nothing else */
};
enum sl_service_answer {
	SL_ANSWER_WHOLE, /* all is there */
	SL_ANSWER_CUT,   /* it is cut, or another */
	SL_ANSWER_ETAG,  /* a success needs an ETag, and no body */
	SL_ANSWER_ANY,   /* a success needs neither */
};
enum sl_service_remedy {
	SL_REMEDY_NONE,
	SL_REMEDY_AGAIN, /* at once, as the clock is corrected now; once for a file */
	SL_REMEDY_LATER, /* new keys are on their way */
	SL_REMEDY_MOVE,  /* the object is elsewhere: a file that is opened now finds it */
};

struct sl_service_limits {
	unsigned parts;          /* in an upload */
	uint64_t part_most;      /* bytes in a part */
	uint64_t copy_most;      /* bytes for a SL_CALL_COPY */
	unsigned removals;       /* objects in a SL_CALL_REMOVE_MANY */
	unsigned group;          /* of unknown length: so many parts are equally long; */
	uint64_t grown;          /* those behind them twice as long, 2 * grown at least */
	const char *too_far;     /* for sentences, as they name settings: a write far ahead; */
	const char *too_long;    /* an object of unknown length with too many parts; */
	const char *too_large;   /* an object of known length; */
	const char *left_behind; /* how to find uploads left behind */
};
struct sl_service_part {
	bool full;                /* all bytes have come */
	char *etag;               /* from the answer; NULL: the server has no such part yet */
	char sum[SL_SERVICE_SUM]; /* the checksum in its request; "": none */
};
enum sl_service_line {
	SL_LINE_METADATA = 1, /* is stored with an object */
	SL_LINE_EACH = 2,     /* belongs to requests for parts, too */
};
/* A copy, and its lines. */
struct sl_service_copy {
	const char *uri, *url;           /* the source's */
	const char *etag;                /* the source's, strong; or NULL */
	const char *target, *target_url; /* target: safe to display */
	const struct curl_slist *given;  /* the user's lines */

	/* The result. The caller clears the lines. */
	bool replaces;            /* the user's metadata replaces the source's */
	struct curl_slist *whole; /* for SL_CALL_COPY */
	struct curl_slist *begin; /* for SL_CALL_BEGIN, without the source's metadata */
	struct curl_slist *part;  /* for SL_CALL_COPY_PART, behind the range */
};
/* A page that is being read; the caller keeps the texts. */
struct sl_service_page {
	const char *uri; /* the list's */
	char *at;        /* the rest */
	int kind;        /* the service's own, as the next */
	bool encoded;
};
struct sl_service_entry {
	char name[SL_SERVICE_NAME], etag[SL_SERVICE_TEXT], upload[SL_SERVICE_UPLOAD];
	bool is_prefix;
	uint64_t length;
	int64_t modified; /* seconds since 1970; -1: unknown */
};

/* Keys, and the signatures by them. */
struct sl_service_signing {
	/* Makes a new context's keyring. The settings stay. */
	int (*start)(const struct sl_settings *settings, struct sl_keyring **out);
	/* Frees it when all files are closed and the pools have stopped. */
	void (*stop)(struct sl_keyring *keyring);
	/* Describes the credentials for files without options, and asks nobody. May wait for
	 * storage. The texts live as long as the keyring. */
	void (*feature)(struct sl_keyring *keyring, struct sluice_feature *out);
	/* Asks for credentials, as sluice_s3_check(). The caller and tasks of the pool may wait. */
	int (*check)(struct sl_keyring *keyring, struct sl_pool *waiting, const void *options);
	/*
	 * Finds an object's address and keys, once for a file, in sluice_open(): may wait for
	 * storage, for a process and for servers, as may tasks of the pool. waiting NULL: nothing
	 * may wait, and the result is -EAGAIN then. query: NULL; or for a request about the bucket,
	 * whatever the name.
	 */
	int (*open)(struct sl_keyring *keyring, struct sl_pool *waiting, const char *uri,
	            const struct sluice_open_options *options, const char *query,
	            struct sl_signer **out);
	/* Wipes and frees it after the last request. */
	void (*close)(struct sl_signer *signer);
	/* Makes what a request shows of a body; crc: its CRC-32C, to be shown. Not on a reactor. */
	void (*digest)(const struct sl_signer *signer, const void *body, size_t bytes,
	               const uint32_t *crc, struct sl_service_digest *out);
	/* Signs an attempt, on the reactor just before it begins: signatures are valid for minutes.
	 * lines: the whole header, but for lines from libcurl; sl_line_put() adds the signature. A
	 * presigned URL's first line is its query. */
	int (*sign)(struct sl_signer *signer, const struct sl_service_request *request,
	            struct curl_slist **lines, struct sl_service_signed *out);
	/* Finds what helps, and learns from an error. version: of the keys. date: the server's, in
	 * seconds since 1970; -1: unknown. */
	enum sl_service_remedy (*judge)(struct sl_signer *signer, unsigned version, long status,
	                                const struct sl_service_error *error, int64_t date);
};
/* Texts for calls, and from answers. */
struct sl_service_texts {
	/* Makes a call's query; NULL: as in the URL. signer: NULL if open() gets the query. part:
	 * from 1 on. upload, part: NULL and 0 where the call has none. */
	int (*query)(struct sl_signer *signer, enum sl_service_call call, const char *upload,
	             unsigned part, char **out);
	/* Parses an error. */
	void (*error)(const char *body, struct sl_service_error *out);
	/* Judges a body with a status of success, and takes the upload's id or the ETag. */
	enum sl_service_answer (*answers)(enum sl_service_call call, const char *body, char *out,
	                                  size_t size);
	/* Makes the body for SL_CALL_COMPLETE, and the object's ETag, "" where it is unknown. */
	int (*complete)(const char *upload, const struct sl_service_part *parts, unsigned count,
	                char **out, char etag[SL_SERVICE_TEXT]);
	/* Finds the ETag for an object with these bytes; "": it is unknown. */
	void (*etag)(const void *data, size_t bytes, char out[SL_SERVICE_TEXT]);
	/* Classifies a header's line: enum sl_service_line. */
	unsigned (*line)(const char *line);
};
/* Lists, on the thread in sluice_list_next(). */
struct sl_service_lists {
	/* Makes a page's query. flags: enum sluice_list_flags. token: the page's; "": the first. */
	int (*query)(const char *uri, unsigned flags, const char *token, char **out);
	/* Begins with a page, and finds the next token; NULL: there is none. -EPROTO: it is no
	 * list, is cut, or does not say how the list goes on. */
	int (*page)(const char *uri, unsigned flags, char *body, struct sl_service_page *out,
	            char **token);
	/* Takes the next entry, which is empty or from the same list. Returns 1, 0 behind the last,
	 * or -EPROTO, from then on. */
	int (*next)(struct sl_service_page *page, struct sl_service_entry *out);
};
struct sl_service_copies {
	/* Divides the user's options between both openings. memory: to be freed behind them. */
	int (*options)(const struct sluice_open_options *given, struct sluice_open_options *source,
	               struct sluice_open_options *target, void **memory);
	/* Makes the lines, or refuses. */
	int (*lines)(struct sl_service_copy *copy);
};
/* Removing many objects by a request. */
struct sl_service_removals {
	/* Makes a body and a line for it, with all names in a bucket that mean the same to every
	 * server; NULL: there are none, or no memory. */
	char *(*body)(const struct sluice_open_options *options, const char *const *uris,
	              size_t count, char line[SL_SERVICE_LINE]);
	/* Takes the next name from the answer, from *at on. Returns false behind the last. */
	bool (*next)(char **at, char **name, bool *removed);
	/* Returns a URI's name as in the answer; NULL: the body left it out. */
	const char *(*name)(const char *uri);
};

struct sl_service {
	const char *scheme; /* in lower case; unique */
	/* For each call; NULL: the service has none. Writing needs PUT, PART and COMPLETE. Without
	 * BEGIN http makes the upload's id, and COMPLETE has the lines about the object. Without
	 * DROP servers forget uploads by themselves. */
	const char *verbs[SL_CALLS];
	const char *fields[SL_SERVICE_FIELDS]; /* names; NULL: none */
	const char *sum_line;   /* asks for checksums when an upload begins; or NULL */
	const char *range_line; /* a range in SL_CALL_COPY_PART, up to "bytes=" */
	struct sl_service_limits limits;
	const struct sl_service_signing *signing;
	const struct sl_service_texts *texts;
	const struct sl_service_lists *lists;
	const struct sl_service_copies *copies;     /* NULL: no SL_CALL_COPY */
	const struct sl_service_removals *removals; /* NULL: no SL_CALL_REMOVE_MANY */
};
/* The table in sluice.c; its last row is NULL. */
extern const struct sl_service *const sl_services[];
#define SL_SERVICES_MOST 4 /* rows, with the last */

/* Lists with the lines of headers. Adds a line behind the last; puts a line before the first: the
 * rest may be another's. */
typedef int sl_line_maker(struct curl_slist **lines, const char *format, ...);
__attribute__((format(printf, 2, 3))) sl_line_maker sl_line_add, sl_line_put;
/* Wipes and frees lines up to `rest`, which may be NULL. */
void sl_lines_clear(struct curl_slist **lines, const struct curl_slist *rest);

/* XML. Returns whether it has that root, and its end tag at the end. */
bool sl_xml_is_whole(const char *xml, const char *root);
/* Writes an entity's character, at a '&', in UTF-8, or the '&'. Returns the length; 0: none. */
size_t sl_xml_entity(const char *at, char out[5]);
/* Copies the first element's text by its name, or ""; control characters are left out. */
void sl_xml_element(const char *xml, const char *name, char *out, size_t size);

#endif
