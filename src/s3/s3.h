/* SPDX-License-Identifier: Apache-2.0 */
/* Objects of S3, of which http reads the bytes: their URLs, the signatures of requests, and the meaning of errors. */
#ifndef SL_S3_H
#define SL_S3_H

#include "core/core.h"

struct curl_slist;

#define SL_S3_TEXT 64
#define SL_S3_HEX  "0123456789abcdefABCDEF"

/* ----------------------------------------------------------------------------------- keyring */

struct sl_s3_keyring;

/* The credentials that expire, and the regions of buckets, which the files of a context share. Free comes after all files
 * are closed and the pools have stopped. */
int sl_s3_keyring_new(const struct sl_settings *settings, struct sl_s3_keyring **out);
void sl_s3_keyring_free(struct sl_s3_keyring *keyring);

/* ------------------------------------------------------------------------------------ object */

struct sl_s3;

/*
 * Finds place and credentials of an s3 URI. Tasks of the pool may wait. May wait for storage, and for the process or the
 * service that has the credentials; without a pool -EAGAIN instead. query: NULL; or that of a list, encoded and sorted, of
 * the bucket, whatever the key. Returns 0, or -errno with a sentence.
 */
int sl_s3_open(struct sl_s3_keyring *keyring, struct sl_pool *waiting, const char *uri,
               const struct sluice_s3_options *options, const char *query, struct sl_s3 **out);
void sl_s3_close(struct sl_s3 *s3);
/* Returns the URL of the object. */
const char *sl_s3_url(const struct sl_s3 *s3);
/* Returns the file of certificates that AWS's settings name; or NULL. */
const char *sl_s3_ca_bundle(const struct sl_s3 *s3);

enum sl_s3_excludes {
	SL_S3_UNKNOWN,
	SL_S3_EXCLUDES, /* it keeps an object from a PUT with If-None-Match */
	SL_S3_IGNORES,  /* it did not, once at least */
	SL_S3_REFUSES,  /* such a PUT is an error */
};
/* The habits of a bucket's server, as files of the context have found them. Any thread. */
struct sl_s3_habits {
	_Atomic bool reached;    /* it has answered, and the region of the bucket is known */
	_Atomic unsigned stored; /* objects that were opened with SLUICE_OPEN_MANY */
	_Atomic int excludes;    /* enum sl_s3_excludes; it only grows */
	_Atomic bool single;     /* it knows no request that removes many */
};
/* Returns those of the object's bucket, which live as long as the keyring. */
struct sl_s3_habits *sl_s3_habits_of(const struct sl_s3 *s3);

/* Describes the source of credentials that files without options have, which is not asked. The texts live as the keyring. */
void sl_s3_feature(struct sl_s3_keyring *keyring, struct sluice_feature *out);
/* Asks the source of the options, or NULL, for keys, as sl_s3_open() does. Returns 0, or -errno with a sentence. */
int sl_s3_check(struct sl_s3_keyring *keyring, struct sl_pool *waiting,
                const struct sluice_s3_options *options);

/* Adds a line to a list of lines of header. Returns 0, or -ENOMEM with a sentence. */
__attribute__((format(printf, 2, 3))) int sl_s3_line_add(struct curl_slist **lines,
                                                         const char *format, ...);
/* Wipes and frees all lines. */
void sl_s3_lines_clear(struct curl_slist **lines);
/* What a signature adds to a request. */
struct sl_s3_signed {
	struct curl_slist *lines; /* of header */
	unsigned version;         /* of the keys of the signature */
	int64_t expires;          /* of these keys, in seconds since 1970; 0: never, or unknown */
};
/*
 * Signs a request to the URL: at this time, since a signature is valid for minutes. query: that of the request, encoded
 * and sorted; NULL: that of the URL. payload: of a body that is sent; NULL: there is none. lines: those that the request
 * has anyway. seconds: 0; or of a URL that is valid so long, if its sender adds these lines: the result is its query,
 * instead of a line. Any thread; never waits for storage. Returns 0, or -errno with a sentence.
 */
int sl_s3_sign(struct sl_s3 *s3, const char *method, const char *query, const char *payload,
               unsigned seconds, const struct curl_slist *lines, struct sl_s3_signed *out);
#define SL_S3_PAYLOAD 65
/* Finds the text that stands for a body in the signature: of its bytes, if they are to be signed. Returns 0, or -ENOMEM. */
int sl_s3_payload(const struct sl_s3 *s3, const void *body, size_t bytes, char out[SL_S3_PAYLOAD]);

/* ------------------------------------------------------------------------------------- error */

/* The body of an error; texts that are not there are "". */
struct sl_s3_error {
	char code[SL_S3_TEXT], message[161], region[SL_S3_TEXT], request_id[SL_S3_TEXT];
};
/* Parses XML, which is not trusted. */
void sl_s3_error_parse(const char *xml, struct sl_s3_error *out);
/* Returns whether its code is one of the words, which have blanks around them. */
bool sl_s3_error_is(const struct sl_s3_error *error, const char *codes);
/* The same request may succeed later, whatever the status says. */
#define SL_S3_PASSING                                                                 \
	" InternalError SlowDown ServiceUnavailable RequestTimeout OperationAborted " \
	"ConditionalRequestConflict "

/* Returns whether XML has that root, and its end tag at the end. */
bool sl_s3_is_whole(const char *xml, const char *root);
/* Writes the character of the entity at a '&', in UTF-8, or the '&'. Returns the length of the entity; 0: it is none. */
size_t sl_s3_entity(const char *at, char out[5]);
/* Copies the text of the first element of that name, "" if there is none. Control characters are left out. */
void sl_s3_element(const char *xml, const char *name, char *out, size_t size);

enum sl_s3_remedy {
	SL_S3_NONE,
	SL_S3_AGAIN, /* at once: the clock is corrected now */
	SL_S3_LATER, /* new credentials are on their way */
	SL_S3_MOVE, /* the bucket is in another region, where an object finds it that is opened now */
};
/*
 * Finds out what helps against an error. version: of the keys of the request. date: the server's, in seconds since 1970;
 * -1: unknown. AGAIN comes once for a file. Any thread.
 */
enum sl_s3_remedy sl_s3_remedy_find(struct sl_s3 *s3, unsigned version, long status,
                                    const struct sl_s3_error *error, int64_t date);

/* ------------------------------------------------------------------------------------ upload */

#define SL_S3_PARTS     10000               /* of an upload at most */
#define SL_S3_PART_MOST (UINT64_C(5) << 30) /* bytes of a part */
#define SL_S3_GROUP     1000 /* parts of the same length, of an object of unknown length */
#define SL_S3_GROWN \
	(UINT64_C(8) << 20) /* half of the least length of a part behind the first group */

/* How an object is divided into parts. */
struct sl_s3_plan {
	uint64_t total; /* bytes of the object; 0: unknown */
	uint64_t bytes; /* of a part; of unknown length: of each of the first SL_S3_GROUP parts */
};
struct sl_s3_part {
	unsigned number; /* from 1 on; beyond SL_S3_PARTS: there is no place for these bytes */
	uint64_t start, length;
};
/* Chooses parts of at least part_bytes. Of unknown length, later parts are longer, so that they suffice for 5 TiB. */
void sl_s3_plan_make(uint64_t total, uint64_t part_bytes, struct sl_s3_plan *out);
/* Finds the part that has the byte at offset, which is below the total. */
void sl_s3_plan_find(const struct sl_s3_plan *plan, uint64_t offset, struct sl_s3_part *out);

/* Returns the place of the source of a copy, of an s3 URI that is open, with that query ("" or "?..."), for the caller to
 * free; NULL: no memory. */
char *sl_s3_copy_source(const char *uri, const char *query);
/* The query that begins an upload in parts. */
#define SL_S3_UPLOADS "uploads="
/* Returns the query of a part of an upload, or with 0 of the upload, for the caller to free; NULL: no memory. */
char *sl_s3_upload_query(const char *upload, unsigned part);
/* A part of an upload. */
struct sl_s3_known {
	bool full;  /* all bytes have come */
	char *etag; /* that the server stored with it; NULL: it has no such part yet */
	char crc32c[SL_CRC32C_TEXT]; /* that it was sent with; "": none */
};
/* Returns the XML that completes an upload of these parts, for the caller to free; NULL: no memory. */
char *sl_s3_upload_complete(const struct sl_s3_known *known, unsigned count);
/* Find the ETag that an object has of bytes, or of parts, where ETags are MD5s; "": it cannot be known. */
void sl_s3_etag(const void *data, size_t bytes, char out[SL_S3_TEXT]);
void sl_s3_upload_etag(const struct sl_s3_known *known, unsigned count, char out[SL_S3_TEXT]);

/* ------------------------------------------------------------------------------------ remove */

/* Returns the key of an s3 URI if it can stand in a request that removes many: it is the same to every parser of XML and of
 * names. NULL: it cannot. */
const char *sl_s3_bulk_key(const char *uri);
/* Returns the XML that removes those of the objects, all of a bucket, for the caller to free; NULL: none can, or no memory. */
char *sl_s3_bulk_body(const char *const *uris, size_t count);
/* Takes the next key out of an answer, from *at on. Returns false behind the last. */
bool sl_s3_bulk_next(char **at, char **key, bool *removed);
/* Writes the line of the header with the MD5 of bytes, or "". */
void sl_s3_md5_line(const void *data, size_t bytes, char out[40]);

/* -------------------------------------------------------------------------------------- list */

#define SL_S3_NAME   4096
#define SL_S3_UPLOAD 1024 /* of an id */

struct sl_s3_entry {
	char name[SL_S3_NAME], etag[SL_S3_TEXT], upload[SL_S3_UPLOAD];
	bool is_prefix;
	uint64_t length;
	int64_t modified; /* seconds since 1970; -1: unknown */
};
/* Returns whether the URI is "s3://", of which the list is that of the buckets. */
bool sl_s3_is_service(const char *uri);
enum sl_s3_listed { SL_S3_OBJECTS, SL_S3_UPLOADING, SL_S3_BUCKETS };
/* Makes the query of a page of the list of names that begin as the key of the URI, or of buckets, for the caller to free.
 * flags: of enum sluice_list_flags. token: of the page; "": the first. */
int sl_s3_list_query(const char *uri, unsigned flags, const char *token, char **out);
/* A page of a list. The texts belong to the caller. */
struct sl_s3_page {
	const char *uri; /* of the list */
	char *at;        /* the rest */
	enum sl_s3_listed kind;
	bool encoded; /* names have percent-escapes */
};
/* Begins with a page, and finds the token of the next one, for the caller to free; NULL: there is none. Returns 0, -ENOMEM, or
 * -EPROTO with a sentence: the page is no list, is cut, or does not say how the list goes on. */
int sl_s3_page_read(const char *uri, unsigned flags, char *xml, struct sl_s3_page *out,
                    char **token);
/* Takes the next entry, which is empty or of the same list. Returns 1, 0 behind the last, or -EPROTO with a sentence, from then on. */
int sl_s3_page_next(struct sl_s3_page *page, struct sl_s3_entry *out);

#endif
