/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Signature Version 4
 *
 * Signs a request as AWS describes it: its canonical form is digested, and the digest is
 * authenticated with a key, derived from the secret for a day, a region and a service. libcrypto
 * has the digests. The signature adds lines to a header: the time, the body's digest, the session's
 * token, and the signature itself. It covers all lines with x-amz-.
 *
 * Threads: any.
 */
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#include <curl/curl.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

#include "s3/sign.h"

#define DIGEST     SL_SIGN_KEY
#define SCOPE      "aws4_request"
#define MOST_LINES 69 /* signed, besides Host */

static const char hex_digits[] = "0123456789abcdef";

static void sign_hex(const unsigned char *digest, unsigned bytes, char *out)
{
	for (unsigned i = 0; i < bytes; i++) {
		out[2 * i] = hex_digits[digest[i] >> 4];
		out[2 * i + 1] = hex_digits[digest[i] & 15];
	}
	out[2 * bytes] = '\0';
}

/* ------------------------------------------------------------------------------------- lines */

/* Compares two lines' names, as bytes in lower case. */
static int line_compare(const char *one, const char *other)
{
	size_t length = strcspn(one, ":"), others = strcspn(other, ":");
	int order = strncasecmp(one, other, SL_MIN(length, others));

	return order ? order : (length > others) - (length < others);
}

static void line_put_name(FILE *to, const char *line)
{
	for (; *line != ':'; line++)
		putc_unlocked(tolower((unsigned char)*line), to);
}

/* Blanks around the value are left out, and those within it become one. */
static void line_put_value(FILE *to, const char *line)
{
	bool begun = false, blank = false;

	for (const char *c = strchr(line, ':') + 1; *c; c++) {
		if (isspace((unsigned char)*c)) {
			blank = begun;
			continue;
		}
		if (blank)
			putc_unlocked(' ', to);
		putc_unlocked(*c, to);
		begun = true;
		blank = false;
	}
}

/* Returns sorted lines' names, with ';' between them, for the caller to free; NULL: no memory. */
static char *lines_names(const char *const *lines)
{
	char *text = NULL;
	size_t bytes;
	FILE *to = open_memstream(&text, &bytes);

	if (!to)
		return NULL;
	for (size_t i = 0; lines[i]; i++) {
		if (i && !line_compare(lines[i], lines[i - 1]))
			continue;
		if (i)
			putc_unlocked(';', to);
		line_put_name(to, lines[i]);
	}
	if (!fclose(to))
		return text;
	free(text);
	return NULL;
}

static void lines_put(FILE *to, const char *const *lines)
{
	for (size_t i = 0; lines[i]; i++) {
		line_put_name(to, lines[i]);
		putc_unlocked(':', to);
		line_put_value(to, lines[i]);
		while (lines[i + 1] && !line_compare(lines[i], lines[i + 1])) {
			putc_unlocked(',', to);
			line_put_value(to, lines[++i]);
		}
		putc_unlocked('\n', to);
	}
}

static const char **lines_sorted(const char *const *lines)
{
	size_t count = 0;

	while (lines[count])
		count++;
	const char **sorted = malloc((count + 1) * sizeof(*sorted));
	if (!sorted)
		return NULL;
	memcpy(sorted, lines, (count + 1) * sizeof(*sorted));
	/* By insertion: lines with equal names keep their order, and there are few. */
	for (size_t i = 1; i < count; i++) {
		const char *line = sorted[i];
		size_t at = i;

		for (; at && line_compare(sorted[at - 1], line) > 0; at--)
			sorted[at] = sorted[at - 1];
		sorted[at] = line;
	}
	return sorted;
}

/* ----------------------------------------------------------------------------------- signing */

static bool sign_hmac(const void *key, size_t key_bytes, const char *text,
                      unsigned char out[DIGEST])
{
	return HMAC(EVP_sha256(), key, (int)key_bytes, (const unsigned char *)text, strlen(text),
	            out, NULL);
}

int sl_sign_payload(const void *body, size_t bytes, char out[SL_SIGN_HEX])
{
	unsigned char digest[DIGEST];

	if (!EVP_Digest(body, bytes, digest, NULL, EVP_sha256(), NULL))
		return sl_fail(-ENOMEM, "no memory to sign a request");
	sign_hex(digest, DIGEST, out);
	return 0;
}

void sl_s3_etag(const void *data, size_t bytes, char out[SL_SERVICE_TEXT])
{
	unsigned char digest[EVP_MAX_MD_SIZE];

	out[0] = '\0';
	if (!EVP_Digest(data, bytes, digest, NULL, EVP_md5(), NULL))
		return;
	sign_hex(digest, 16, out + 1);
	out[0] = '"';
	strcat(out, "\"");
}

void sl_s3_md5_line(const void *data, size_t bytes, char out[SL_SERVICE_LINE])
{
	unsigned char digest[EVP_MAX_MD_SIZE];
	char *text = stpcpy(out, "Content-MD5: ");

	if (EVP_Digest(data, bytes, digest, NULL, EVP_md5(), NULL))
		EVP_EncodeBlock((unsigned char *)text, digest, 16);
	else
		out[0] = '\0';
}

static int sign_canonical(const struct sl_sign_request *request, const char *const *lines,
                          const char *names, char out[SL_SIGN_HEX])
{
	unsigned char digest[DIGEST];
	char *text = NULL;
	size_t bytes = 0;
	FILE *to = open_memstream(&text, &bytes);

	if (!to)
		return -ENOMEM;
	fprintf(to, "%s\n%s\n%s\n", request->method, request->path, request->query);
	lines_put(to, lines);
	fprintf(to, "\n%s\n%s", names, request->payload);
	bool done = !fclose(to) && EVP_Digest(text, bytes, digest, NULL, EVP_sha256(), NULL);
	if (text)
		explicit_bzero(text, bytes);
	free(text);
	if (done)
		sign_hex(digest, DIGEST, out);
	return done ? 0 : -ENOMEM;
}

/* Derives the key for the request's day, if it is another day's. */
static bool sign_derive(const struct sl_sign_request *request, struct sl_sign_key *key)
{
	const char *steps[] = {request->region, request->service, SCOPE};

	if (!strncmp(key->day, request->date, sizeof(key->day) - 1))
		return true;
	char *text = sl_format("AWS4%s", request->secret);
	snprintf(key->day, sizeof(key->day), "%.8s", request->date);
	bool done = text && sign_hmac(text, strlen(text), key->day, key->bytes);
	sl_s3_text_clear(text);
	for (int i = 0; i < 3; i++)
		done = done && sign_hmac(key->bytes, DIGEST, steps[i], key->bytes);
	if (!done)
		key->day[0] = '\0';
	return done;
}

/* Signs a digest, with a key for the day, the region and the service. */
static int sign_digest(const struct sl_sign_request *request, const char *digest,
                       char out[SL_SIGN_HEX])
{
	struct sl_sign_key own = {0}, *key = request->key ? request->key : &own;
	unsigned char signature[DIGEST];
	char *text = sl_format("AWS4-HMAC-SHA256\n%s\n%.8s/%s/%s/" SCOPE "\n%s", request->date,
	                       request->date, request->region, request->service, digest);
	bool done =
		text && sign_derive(request, key) && sign_hmac(key->bytes, DIGEST, text, signature);

	free(text);
	if (done)
		sign_hex(signature, DIGEST, out);
	explicit_bzero(&own, sizeof(own));
	return done ? 0 : -ENOMEM;
}

/* Returns a URL's query, less its signature, for the caller to free; NULL: no memory. */
static char *sign_query(const struct sl_sign_request *request, const char *names)
{
	char *id = sl_uri_escape(request->id, false), *escaped = sl_uri_escape(names, false);
	char *token = sl_uri_escape(request->token ? request->token : "", false), *text = NULL;

	if (id && token && escaped)
		text = sl_format(
			"X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=%s%%2F%.8s%%2F%s%%2F%s%%"
			"2F" SCOPE "&X-Amz-Date=%s&X-Amz-Expires=%u%s%s&X-Amz-SignedHeaders=%s%s%s",
			id, request->date, request->region, request->service, request->date,
			request->seconds, *token ? "&X-Amz-Security-Token=" : "", token, escaped,
			*request->query ? "&" : "", request->query);
	free(id);
	sl_s3_text_clear(token);
	free(escaped);
	return text;
}

int sl_sign(const struct sl_sign_request *request, char **out)
{
	const char **lines = lines_sorted(request->lines);
	char *names = lines ? lines_names(lines) : NULL, *query = NULL, *text = NULL;
	struct sl_sign_request whole = *request;
	char hex[SL_SIGN_HEX];

	if (names && request->seconds)
		whole.query = query = sign_query(request, names);
	if (names && whole.query && !sign_canonical(&whole, lines, names, hex) &&
	    !sign_digest(request, hex, hex))
		text = query ? sl_format("%s&X-Amz-Signature=%s", query, hex)
		             : sl_format("AWS4-HMAC-SHA256 Credential=%s/%.8s/%s/%s/" SCOPE
		                         ", SignedHeaders=%s, Signature=%s",
		                         request->id, request->date, request->region,
		                         request->service, names, hex);
	sl_s3_text_clear(query);
	free(names);
	free(lines);
	*out = text;
	return text ? 0 : sl_fail(-ENOMEM, "no memory to sign a request");
}

int sl_s3_authorize(struct sl_sign_request *request, const struct sl_s3_address *address,
                    const struct sl_s3_keys *keys, int64_t at, struct curl_slist **lines)
{
	char date[sizeof("20150830T123600Z")], *host = sl_format("host: %s", address->host);
	int rc = host ? 0 : sl_fail(-ENOMEM, "no memory to sign a request");
	const char *all[MOST_LINES + 2];
	char *signature = NULL;
	time_t seconds = (time_t)at;
	size_t count = 0;
	struct tm utc;

	gmtime_r(&seconds, &utc);
	strftime(date, sizeof(date), "%Y%m%dT%H%M%SZ", &utc);
	request->date = date;
	request->path = address->path;
	if (!request->query)
		request->query = address->query;
	request->id = keys->id;
	request->secret = keys->secret;
	request->token = keys->token;
	request->lines = all;
	if (!rc && !request->seconds) {
		rc = sl_line_put(lines, "x-amz-date: %s", date);
		rc = rc ? rc : sl_line_put(lines, "x-amz-content-sha256: %s", request->payload);
		if (!rc && keys->token)
			rc = sl_line_put(lines, "x-amz-security-token: %s", keys->token);
	}
	/* All that begin with x-amz-, and Host; for a URL all. */
	for (const struct curl_slist *line = *lines; line && count < MOST_LINES; line = line->next)
		if ((request->seconds || !strncasecmp(line->data, "x-amz-", 6)) &&
		    strchr(line->data, ':'))
			all[count++] = line->data;
	all[count++] = host;
	all[count] = NULL;
	if (!rc)
		rc = sl_sign(request, &signature);
	if (!rc)
		rc = sl_line_put(lines, request->seconds ? "%s" : "Authorization: %s", signature);
	free(host);
	sl_s3_text_clear(signature);
	return rc;
}
