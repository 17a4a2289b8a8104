/* SPDX-License-Identifier: Apache-2.0 */
/* Names of files: a path, or scheme://rest (RFC 3986, section 3). */
#ifndef SL_URI_H
#define SL_URI_H

struct sl_uri {
	char scheme[16]; /* "file" for a plain path */
	char *path;      /* for "file": unescaped; for other schemes the whole URI */
};

/* Returns 0, or -EINVAL with a sentence if the text is malformed. sl_uri_clear() frees the result. */
int sl_uri_parse(const char *text, struct sl_uri *out);
void sl_uri_clear(struct sl_uri *uri);
/* Decodes percent-escapes in place. Returns 0, or -EINVAL with a sentence that begins with uri. */
int sl_uri_unescape(const char *uri, char *text);
/*
 * Returns a URI that is safe to display: user, password and query are removed. store:// URIs and paths are returned
 * unchanged. The caller frees it; NULL: no memory.
 */
char *sl_uri_name(const char *text);
/* Returns -EPROTONOSUPPORT with a sentence that shows the name of the URI. */
int sl_uri_unknown(const char *text);

#endif
