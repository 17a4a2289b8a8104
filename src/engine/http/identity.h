/* SPDX-License-Identifier: Apache-2.0 */
/* Identity: the headers, token, password and certificate by which a server knows the user. They go
 * to the origin of the file's URI (scheme, host, port) only, and into no message. */
#ifndef SL_HTTP_IDENTITY_H
#define SL_HTTP_IDENTITY_H

#include <curl/curl.h>
#include <sys/stat.h>

#include "core/core.h"

struct sl_http;
struct sl_http_request;

/* The lines of header of a kind of request. */
struct sl_http_fields {
	struct curl_slist *away; /* to any server */
	struct curl_slist *home; /* to the file's own origin: those of the user as well */
};
/* Begin, and add a line. Return 0, or -ENOMEM with a sentence. */
int sl_http_fields_begin(struct sl_http_fields *fields, const struct sl_http *http);
int sl_http_fields_add(struct sl_http_fields *fields, const char *line);
void sl_http_fields_clear(struct sl_http_fields *fields);

/* The bearer token of a context: that of the settings, or of a file. */
struct sl_http_token {
	struct sl_mutex mutex;
	struct {
		char text[SL_SECRET_TEXT]; /* "" : none */
		unsigned version;          /* grows with each new text */
		struct stat file;          /* from which it was read */
		int64_t looked;            /* when the file was last looked at */
	} locked SL_GUARDED_BY(&mutex);
};
void sl_http_token_init(struct sl_http_token *token, const struct sl_settings *settings);
void sl_http_token_destroy(struct sl_http_token *token);

/* Reads headers and token, checks all files of the settings, and sets http->identified. Returns 0,
 * or -errno with a sentence. May wait for storage. */
int sl_http_identity_load(struct sl_http *http, const char *const *headers);
void sl_http_identity_clear(struct sl_http *http);
/* Returns whether the user gave a header of that name. */
bool sl_http_identity_has(const struct sl_http *http, const char *name);
/* Sets all but the fields for an attempt of an `identified` file, which goes to the origin. */
void sl_http_identity_set(struct sl_http_request *request);
/* After a 401: reads the token's file again. Returns whether it has another than the request. */
bool sl_http_identity_is_renewed(struct sl_http_request *request);
/* Learns how the server wants a password. Returns whether the attempt failed for another way. */
bool sl_http_identity_learns(struct sl_http_request *request);
/* Drops the text of an error in which the server repeats a secret. */
void sl_http_identity_hide(const struct sl_http *http, char *text);

#endif
