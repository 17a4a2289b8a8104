/* SPDX-License-Identifier: Apache-2.0 */
/* Objects of S3, of which http reads the bytes: their URLs, the signatures of requests, and the meaning of errors. */
#ifndef SL_S3_H
#define SL_S3_H

#include "core/core.h"

/* ----------------------------------------------------------------------------------- keyring */

struct sl_s3_keyring;

/* The credentials of processes, which the files of a context share. Free comes after all files are closed and the pools
 * have stopped. */
int sl_s3_keyring_new(struct sl_s3_keyring **out);
void sl_s3_keyring_free(struct sl_s3_keyring *keyring);

/* ------------------------------------------------------------------------------------ object */

struct sl_s3;

/*
 * Finds place and credentials of an s3 URI. Tasks of the pool may wait. May wait for storage, and for a process that the
 * user's profile names. Returns 0, or -errno with a sentence.
 */
int sl_s3_open(struct sl_s3_keyring *keyring, struct sl_pool *waiting, const char *uri,
               const struct sluice_s3_options *options, struct sl_s3 **out);
void sl_s3_close(struct sl_s3 *s3);
/* Returns the URL of the object; valid until sl_s3_move(). */
const char *sl_s3_url(const struct sl_s3 *s3);

/* Describes the source of credentials that files without options have. The texts are constants. */
void sl_s3_feature(struct sluice_feature *out);

#define SL_S3_LINES 6
/* The lines of header that a request has besides; NULL behind the last. */
struct sl_s3_lines {
	char *of[SL_S3_LINES];
};
/*
 * Signs a request to the URL: at this time, since a signature is valid for minutes. lines: those that the request has
 * anyway, then NULL. Any thread; never waits for storage. Returns 0, or -errno with a sentence.
 */
int sl_s3_sign(struct sl_s3 *s3, const char *method, const char *const *lines,
               struct sl_s3_lines *out);
void sl_s3_lines_clear(struct sl_s3_lines *lines);

/* ------------------------------------------------------------------------------------- error */

#define SL_S3_TEXT 64

/* The body of an error; texts that are not there are "". */
struct sl_s3_error {
	char code[SL_S3_TEXT], message[161], region[SL_S3_TEXT], request_id[SL_S3_TEXT];
};
/* Parses XML, which is not trusted. */
void sl_s3_error_parse(const char *xml, struct sl_s3_error *out);

enum sl_s3_remedy {
	SL_S3_NONE,
	SL_S3_AGAIN, /* at once: the clock is corrected now */
	SL_S3_LATER, /* new credentials are on their way */
	SL_S3_MOVE,  /* the bucket is in another region: sl_s3_move(), and ask there */
};
/*
 * Finds out what helps against an error. date: the server's, in seconds since 1970; -1: unknown. Each remedy but LATER
 * comes once for a file. Any thread.
 */
enum sl_s3_remedy sl_s3_remedy_find(struct sl_s3 *s3, long status, const struct sl_s3_error *error,
                                    int64_t date);
/* Returns whether the last remedy is MOVE, and not done yet. */
bool sl_s3_is_moved(struct sl_s3 *s3);
/* Finds the place in the other region, while no request is in flight. Returns 0, or -errno with a sentence. */
int sl_s3_move(struct sl_s3 *s3);

#endif
