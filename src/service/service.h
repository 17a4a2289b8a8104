/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The contract of a service: servers of objects with their own names, signatures and formats. The room of a service makes
 * and parses texts; http sends them, repeats requests and cuts uploads. docs/internals/services.md shows how another
 * service would be added.
 *
 * Functions run on any thread, several at a time, and do not wait, unless their comment says more. Texts from servers are
 * not trusted. A result `int` is 0, or -errno with a sentence.
 */
#ifndef SL_SERVICE_H
#define SL_SERVICE_H

#include "core/core.h"

struct curl_slist;
struct sl_service;

#define SL_SERVICE_TEXT   64
#define SL_SERVICE_LINE   80   /* a line that a service adds to a header */
#define SL_SERVICE_NAME   4096 /* of an object */
#define SL_SERVICE_UPLOAD 1024 /* the id of an upload */
#define SL_SERVICE_SUM    16   /* a checksum as text */

/* ------------------------------------------------------------------------------------ context */

/* What the files of a context share: keys, and knowledge about servers. */
struct sl_keyring {
	const struct sl_service *service;
};

enum sl_excludes {
	SL_EXCLUDES_UNKNOWN,
	SL_EXCLUDES,         /* it keeps an object from a PUT with If-None-Match */
	SL_EXCLUDES_IGNORES, /* it did not, once at least */
	SL_EXCLUDES_REFUSES, /* such a PUT is an error */
};
/* The habits of a server, as files of the context have found them. Any thread. */
struct sl_habits {
	_Atomic bool reached;    /* it has answered, and its place is known */
	_Atomic unsigned stored; /* objects that were opened with SLUICE_OPEN_MANY */
	_Atomic int excludes;    /* enum sl_excludes; it only grows */
	_Atomic bool single;     /* it has no SL_CALL_REMOVE_MANY */
};

/* ------------------------------------------------------------------------------------- object */

/* An object of a service, or a list: signs the requests for it. Fixed by open. */
struct sl_signer {
	const struct sl_service *service;
	const char *url;
	const char
		*ca_bundle; /* the file of certificates for its server; NULL: as the settings say */
	struct sl_habits *habits; /* live as long as the keyring */
};

/* ----------------------------------------------------------------------------------- requests */

/* The requests beside GET and HEAD. */
enum sl_service_call {
	SL_CALL_PUT,       /* stores an object */
	SL_CALL_BEGIN,     /* begins an upload, and brings its id */
	SL_CALL_PART,      /* stores a part */
	SL_CALL_COMPLETE,  /* makes an object of the parts */
	SL_CALL_DROP,      /* drops an upload */
	SL_CALL_COPY,      /* copies an object within the server */
	SL_CALL_COPY_PART, /* copies a range as a part of an upload */
	SL_CALL_REMOVE,
	SL_CALL_REMOVE_MANY,
	SL_CALLS
};

/* A request before an attempt. */
struct sl_service_request {
	const char *method;
	const char *query;    /* NULL: as in the URL */
	const char *payload;  /* of the body, by digest(); NULL: there is no body */
	uint64_t body_length; /* 0: none */
	unsigned seconds;     /* the life of a presigned URL; 0: it is a request */
	bool looks;           /* for the fields of the object */
};
/* Its signature. */
struct sl_service_signed {
	unsigned version; /* of the keys */
	int64_t expires;  /* the keys, in seconds since 1970; 0: never, or unknown */
};
#define SL_SERVICE_PAYLOAD 65
/* A body, as its request shows it. */
struct sl_service_digest {
	char payload[SL_SERVICE_PAYLOAD]; /* for the signature; "": not computed */
	char line[SL_SERVICE_LINE];       /* the checksum in the header; "": none */
};

/* The fields of answers that a service names. */
enum sl_service_field {
	SL_SERVICE_FIELD_REGION,
	SL_SERVICE_FIELD_REQUEST_ID,
	SL_SERVICE_FIELD_CRC32C,        /* in base64 */
	SL_SERVICE_FIELD_CHECKSUM_TYPE, /* FULL_OBJECT, if the checksum is not made of those of parts */
	SL_SERVICE_FIELD_CHECKSUM_ALGORITHM,
	SL_SERVICE_FIELDS
};

/* The meaning of an error's code. */
enum sl_service_meaning {
	SL_MEANS_PASSING = 1 << 0, /* the request may succeed later, whatever the status says */
	SL_MEANS_UNKNOWN =
		1 << 2, /* the server may not know the request, or a line of its header */
	SL_MEANS_LACKING = 1 << 2, /* it does not know the request */
	SL_MEANS_UNDONE = 1 << 3,  /* nothing was done */
};
/* An error in the body of an answer; texts that are missing are "". */
struct sl_service_error {
	char code[SL_SERVICE_TEXT], message[161], region[SL_SERVICE_TEXT],
		request_id[SL_SERVICE_TEXT];
	int error;      /* the errno of the code, negative; 0: as the status says */
	unsigned means; /* enum sl_service_meaning */
	bool whole;     /* the body is this error from begin to end */
};
enum sl_service_answer {
	SL_ANSWER_WHOLE, /* all of it is there */
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

/* ------------------------------------------------------------------------------------ uploads */

struct sl_service_limits {
	unsigned parts;     /* of an upload */
	uint64_t part_most; /* bytes of a part */
	uint64_t copy_most; /* bytes that a SL_CALL_COPY copies */
	/* Of an object of unknown length so many parts are equally long; those behind them have twice the length, at least
	 * twice `grown`, and so on. */
	unsigned group;
	uint64_t grown;
	unsigned removals; /* objects that a SL_CALL_REMOVE_MANY names */
	/* Ends of sentences, which name the settings: a write is too far ahead; an object of unknown length, or of a known
	 * one, has too many parts; an upload was left behind. */
	const char *too_far, *too_long, *too_large, *left_behind;
};
/* A part that the server has. */
struct sl_service_part {
	bool full;                /* all bytes have come */
	char *etag;               /* from the answer; NULL: the server has no such part yet */
	char sum[SL_SERVICE_SUM]; /* the checksum in its request; "": none */
};

/* ------------------------------------------------------------------------------------- copies */

enum sl_service_line {
	SL_LINE_METADATA = 1 << 0, /* a field that is stored with an object */
	SL_LINE_EACH = 1 << 1,     /* a request for a part needs it, too */
};
/* A copy, and the lines of header for it. */
struct sl_service_copy {
	const char *uri, *url;           /* of the source */
	const char *etag;                /* of the source, strong; or NULL */
	const char *target, *target_url; /* target: safe to display */
	const struct curl_slist *given;  /* the user's lines */

	/* The result. The caller clears the lines. */
	bool replaces;            /* the user's metadata replaces that of the source */
	struct curl_slist *whole; /* of SL_CALL_COPY */
	struct curl_slist *begin; /* of SL_CALL_BEGIN, without metadata of the source */
	struct curl_slist *part;  /* of SL_CALL_COPY_PART, behind the range */
};

/* -------------------------------------------------------------------------------------- lists */

/* A page that is being read; the caller keeps the texts. */
struct sl_service_page {
	const char *uri; /* of the list */
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

/* ----------------------------------------------------------------------------------- contract */

struct sl_service {
	const char *scheme; /* of its URIs, in lower case; unique */
	/* Of each call; NULL: the service has none. PUT, PART and COMPLETE are for objects that are written. Without BEGIN a number
	 * of http's own is the id of an upload, and COMPLETE has the lines about the object. Without DROP the server forgets
	 * uploads by itself. */
	const char *verbs[SL_CALLS];
	const char *fields[SL_SERVICE_FIELDS]; /* names; NULL: none */
	const char *sum_line;   /* asks for checksums when an upload begins; or NULL */
	const char *range_line; /* the name of a range in SL_CALL_COPY_PART, up to "bytes=" */
	struct sl_service_limits limits;

	/* --- context */

	/* Makes the keyring of a new context. The settings stay. */
	int (*start)(const struct sl_settings *settings, struct sl_keyring **out);
	/* Frees it when all files are closed and the pools have stopped. */
	void (*stop)(struct sl_keyring *keyring);
	/* Describes the credentials of files without options, and asks nobody for them. May wait for storage. The texts live as
	 * long as the keyring. */
	void (*feature)(struct sl_keyring *keyring, struct sluice_feature *out);
	/* Asks for credentials, for sluice_s3_check() and its like. The caller waits; tasks of the pool may. */
	int (*check)(struct sl_keyring *keyring, struct sl_pool *waiting, const void *options);

	/* --- object */

	/*
	 * Finds the place and the keys of an object: once for a file, in sluice_open(), which may wait for storage, for a
	 * process and for other servers. waiting: its tasks may wait, too; NULL: nothing may wait, and the result is -EAGAIN
	 * then. query: NULL; or for a request about the bucket of the URI, whatever its name.
	 */
	int (*open)(struct sl_keyring *keyring, struct sl_pool *waiting, const char *uri,
	            const struct sluice_open_options *options, const char *query,
	            struct sl_signer **out);
	/* Wipes and frees it after the last request. NULL is allowed. */
	void (*close)(struct sl_signer *signer);

	/* --- requests */

	/* Makes the query of a call, for the caller to free; NULL: as in the URL. signer: NULL if open() gets the query. part: from 1
	 * on. upload, part: NULL and 0 where the call has none. */
	int (*query)(struct sl_signer *signer, enum sl_service_call call, const char *upload,
	             unsigned part, char **out);
	/* Computes what a request needs of its body, which may take milliseconds: never on a reactor. sum: the header has a
	 * checksum. */
	void (*digest)(const struct sl_signer *signer, const void *body, size_t bytes, bool sum,
	               struct sl_service_digest *out);
	/*
	 * Signs an attempt, on the reactor just before it begins: signatures are valid for minutes. lines: the whole header but
	 * for the lines that libcurl adds; the signature is put before them by sl_line_put(). For a presigned URL it is the first
	 * line: a query.
	 */
	int (*sign)(struct sl_signer *signer, const struct sl_service_request *request,
	            struct curl_slist **lines, struct sl_service_signed *out);

	/* --- answers, on the reactor */

	/* Parses an error. */
	void (*error)(const char *body, struct sl_service_error *out);
	/* Finds what helps against an error, or learns from it. version: of the keys. date: by the server, in seconds since
	 * 1970; -1: unknown. */
	enum sl_service_remedy (*judge)(struct sl_signer *signer, unsigned version, long status,
	                                const struct sl_service_error *error, int64_t date);
	/* Judges the body of an answer with a status of success. *out: the id of the upload or the ETag in it. */
	enum sl_service_answer (*answers)(enum sl_service_call call, const char *body, char *out,
	                                  size_t size);

	/* --- uploads */

	/* Makes the body of SL_CALL_COMPLETE, for the caller to free. etag: that of the object, or "" where it cannot be known. */
	int (*complete)(const char *upload, const struct sl_service_part *parts, unsigned count,
	                char **out, char etag[SL_SERVICE_TEXT]);
	/* Finds the ETag of an object with these bytes, "": it cannot be known. */
	void (*etag)(const void *data, size_t bytes, char out[SL_SERVICE_TEXT]);
	/* Classifies a line of a header: enum sl_service_line. */
	unsigned (*line)(const char *line);

	/* --- copies, if SL_CALL_COPY has a verb */

	/* Divides the user's options between the opening of the source and that of the target. memory: theirs, for the caller to
	 * free. */
	int (*copy_options)(const struct sluice_open_options *given,
	                    struct sluice_open_options *source, struct sluice_open_options *target,
	                    void **memory);
	/* Makes the lines. May refuse the copy. On failure the caller clears them, too. */
	int (*copy)(struct sl_service_copy *copy);

	/* --- removal, if SL_CALL_REMOVE_MANY has a verb */

	/* Makes a body that names those of the objects, all of a bucket, whose names mean the same to every server, for the
	 * caller to free, and a line of its header; NULL: there are none, or no memory. */
	char *(*remove_many)(const struct sluice_open_options *options, const char *const *uris,
	                     size_t count, char line[SL_SERVICE_LINE]);
	/* Takes the next URI's name out of the answer, from *at on, and compares. Returns false behind the last. */
	bool (*removed_next)(char **at, char **name, bool *removed);
	/* Returns the name of a URI as in that answer; NULL: it is none of those. */
	const char *(*removed_name)(const char *uri);

	/* --- lists, on the thread of sluice_list_next() */

	/* Makes the query of a page, for the caller to free. flags: enum sluice_list_flags. token: of the page; "": the first. */
	int (*list)(const char *uri, unsigned flags, const char *token, char **out);
	/* Begins with a page, and finds the token of the next, for the caller to free; NULL: there is none. -EPROTO: the page is
	 * no list, is cut, or does not say how the list goes on. */
	int (*page)(const char *uri, unsigned flags, char *body, struct sl_service_page *out,
	            char **token);
	/* Takes the next entry, which is empty or of the same list. Returns 1, 0 behind the last, or -EPROTO, from then on. */
	int (*next)(struct sl_service_page *page, struct sl_service_entry *out);
};
/* The table in sluice.c; its last row is NULL. */
extern const struct sl_service *const sl_services[];
#define SL_SERVICES_MOST 4 /* rows, with the last */

/* -------------------------------------------------------------------------------------- lines */

/* Appends a line to a list that the caller owns. */
__attribute__((format(printf, 2, 3))) int sl_line_add(struct curl_slist **lines, const char *format,
                                                      ...);
/* Puts a line before a list, of which the rest may belong to another. */
__attribute__((format(printf, 2, 3))) int sl_line_put(struct curl_slist **lines, const char *format,
                                                      ...);
/* Wipes and frees lines up to `rest`, which may be NULL. */
void sl_lines_clear(struct curl_slist **lines, const struct curl_slist *rest);

/* ---------------------------------------------------------------------------------------- XML */

/* Returns whether XML has that root, and its end tag at the end. */
bool sl_xml_is_whole(const char *xml, const char *root);
/* Writes the character of the entity at a '&', in UTF-8, or the '&'. Returns the length of the entity; 0: it is none. */
size_t sl_xml_entity(const char *at, char out[5]);
/* Copies the text of the first element with that name, "" if there is none. Control characters are left out. */
void sl_xml_element(const char *xml, const char *name, char *out, size_t size);

#endif
