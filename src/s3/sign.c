/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Signature Version 4
 *
 * Signs a request as AWS describes it: a canonical form of the request is digested, and the digest is authenticated by
 * a key that is derived from the secret for a day, a region and a service. libcrypto has the digests.
 *
 * Threads: any.
 */
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include <openssl/evp.h>
#include <openssl/hmac.h>

#include "s3/credentials.h"
#include "s3/place.h"
#include "s3/s3.h"
#include "s3/sign.h"

#define DIGEST SL_SIGN_KEY
#define SCOPE  "aws4_request"

static const char hex_digits[] = "0123456789abcdef";

static void sign_hex(const unsigned char *digest, unsigned bytes, char *out)
{
	for (unsigned i = 0; i < bytes; i++) {
		out[2 * i] = hex_digits[digest[i] >> 4];
		out[2 * i + 1] = hex_digits[digest[i] & 15];
	}
	out[2 * bytes] = '\0';
}

/* ------------------------------------------------------------------------------------ fields */

/* Compares the names of two lines, as bytes in lower case. */
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

/* Puts the names of sorted lines, with ';' between them. */
static void lines_put_names(FILE *to, const char *const *lines)
{
	for (size_t i = 0; lines[i]; i++) {
		if (i && !line_compare(lines[i], lines[i - 1]))
			continue;
		if (i)
			putc_unlocked(';', to);
		line_put_name(to, lines[i]);
	}
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
	const char **sorted;

	while (lines[count])
		count++;
	sorted = malloc((count + 1) * sizeof(*sorted));
	if (!sorted)
		return NULL;
	memcpy(sorted, lines, (count + 1) * sizeof(*sorted));
	/* By insertion, which keeps the order of lines with equal names; there are few. */
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

void sl_s3_etag(const void *data, size_t bytes, char out[SL_S3_TEXT])
{
	unsigned char digest[EVP_MAX_MD_SIZE];

	out[0] = '\0';
	if (!EVP_Digest(data, bytes, digest, NULL, EVP_md5(), NULL))
		return;
	sign_hex(digest, 16, out + 1);
	out[0] = '"';
	strcat(out, "\"");
}

void sl_s3_md5_line(const void *data, size_t bytes, char out[40])
{
	unsigned char digest[EVP_MAX_MD_SIZE];
	char *text = stpcpy(out, "Content-MD5: ");

	if (EVP_Digest(data, bytes, digest, NULL, EVP_md5(), NULL))
		EVP_EncodeBlock((unsigned char *)text, digest, 16);
	else
		out[0] = '\0';
}

/* The digest of the canonical request. */
static int sign_canonical(const struct sl_sign_request *request, const char *const *lines,
                          char out[SL_SIGN_HEX])
{
	unsigned char digest[DIGEST];
	char *text = NULL;
	size_t bytes = 0;
	FILE *to = open_memstream(&text, &bytes);
	bool done;

	if (!to)
		return -ENOMEM;
	fprintf(to, "%s\n%s\n%s\n", request->method, request->path, request->query);
	lines_put(to, lines);
	putc_unlocked('\n', to);
	lines_put_names(to, lines);
	fprintf(to, "\n%s", request->payload);
	done = !fclose(to) && EVP_Digest(text, bytes, digest, NULL, EVP_sha256(), NULL);
	if (text)
		explicit_bzero(text, bytes);
	free(text);
	if (done)
		sign_hex(digest, DIGEST, out);
	return done ? 0 : -ENOMEM;
}

/* Derives the key of the request's day, unless it is that already. */
static bool sign_derive(const struct sl_sign_request *request, struct sl_sign_key *key)
{
	const char *steps[] = {request->region, request->service, SCOPE};
	char *text;
	bool done;

	if (!strncmp(key->day, request->date, sizeof(key->day) - 1))
		return true;
	if (asprintf(&text, "AWS4%s", request->secret) < 0)
		return false;
	snprintf(key->day, sizeof(key->day), "%.8s", request->date);
	done = sign_hmac(text, strlen(text), key->day, key->bytes);
	explicit_bzero(text, strlen(text));
	free(text);
	for (int i = 0; i < 3; i++)
		done = done && sign_hmac(key->bytes, DIGEST, steps[i], key->bytes);
	if (!done)
		key->day[0] = '\0';
	return done;
}

/* The signature of a digest, with a key for the day, the region and the service. */
static int sign_digest(const struct sl_sign_request *request, const char *digest,
                       char out[SL_SIGN_HEX])
{
	struct sl_sign_key own = {0}, *key = request->key ? request->key : &own;
	unsigned char signature[DIGEST];
	char *text;
	bool done = sign_derive(request, key);

	if (asprintf(&text, "AWS4-HMAC-SHA256\n%s\n%.8s/%s/%s/" SCOPE "\n%s", request->date,
	             request->date, request->region, request->service, digest) < 0)
		text = NULL;
	done = done && text && sign_hmac(key->bytes, DIGEST, text, signature);
	free(text);
	if (done)
		sign_hex(signature, DIGEST, out);
	explicit_bzero(&own, sizeof(own));
	return done ? 0 : -ENOMEM;
}

/* Returns the query of a URL, less its signature, for the caller to free; NULL: no memory. */
static char *sign_query(const struct sl_sign_request *request, const char *const *lines)
{
	char *id = sl_s3_encode(request->id, false), *names = NULL, *text;
	char *token = sl_s3_encode(request->token ? request->token : "", false);
	size_t bytes = 0;
	FILE *to = open_memstream(&names, &bytes);

	if (to)
		lines_put_names(to, lines);
	char *escaped = to && !fclose(to) ? sl_s3_encode(names, false) : NULL;
	if (!id || !token || !escaped ||
	    asprintf(&text,
	             "X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=%s%%2F%.8s%%2F%s%%2F%s%%"
	             "2F" SCOPE "&X-Amz-Date=%s&X-Amz-Expires=%u%s%s&X-Amz-SignedHeaders=%s%s%s",
	             id, request->date, request->region, request->service, request->date,
	             request->seconds, *token ? "&X-Amz-Security-Token=" : "", token, escaped,
	             *request->query ? "&" : "", request->query) < 0)
		text = NULL;
	free(id);
	sl_s3_text_clear(token);
	free(names);
	free(escaped);
	return text;
}

int sl_sign(const struct sl_sign_request *request, char **out)
{
	const char **lines = lines_sorted(request->lines);
	struct sl_sign_request whole = *request;
	char hex[SL_SIGN_HEX], *text = NULL, *query = NULL;
	size_t bytes = 0;
	FILE *to;

	if (lines && request->seconds)
		whole.query = query = sign_query(request, lines);
	int rc = lines && whole.query ? sign_canonical(&whole, lines, hex) : -ENOMEM;
	if (!rc)
		rc = sign_digest(request, hex, hex);
	to = rc ? NULL : open_memstream(&text, &bytes);
	if (to && query) {
		fprintf(to, "%s&X-Amz-Signature=%s", query, hex);
		rc = fclose(to) ? -ENOMEM : 0;
	} else if (to) {
		fprintf(to, "AWS4-HMAC-SHA256 Credential=%s/%.8s/%s/%s/" SCOPE ", SignedHeaders=",
		        request->id, request->date, request->region, request->service);
		lines_put_names(to, lines);
		fprintf(to, ", Signature=%s", hex);
		rc = fclose(to) ? -ENOMEM : 0;
	}
	free(query);
	free(lines);
	if (rc || !to) {
		free(text);
		return sl_fail(-ENOMEM, "no memory to sign a request");
	}
	*out = text;
	return 0;
}
