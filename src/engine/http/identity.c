/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Identity
 *
 * Reads and checks headers, token, password and certificate, by which a server knows the user, and
 * sets them for requests to a file's origin.
 *
 * Threads: opening reads files on the caller's thread. Reactors set transfers up; they look at the
 * token's file once a second at most, and libcurl at .netrc for each request. The token has a
 * mutex.
 */
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "http/http_internal.h"

#define LOOK_NS    INT64_C(1000000000)
#define LEAST_SEEN 6 /* characters to find a secret in a text; shorter texts stay */
#define MOST_SEEN  8

/* ------------------------------------------------------------------------------------- fields */

int sl_http_fields_add(struct sl_http_fields *fields, const char *line)
{
	int rc = sl_line_add(&fields->away, "%s", line);

	return rc ? rc : sl_line_add(&fields->home, "%s", line);
}

int sl_http_fields_begin(struct sl_http_fields *fields, const struct sl_http *http)
{
	int rc = 0;

	for (struct curl_slist *line = http->headers; !rc && line; line = line->next)
		rc = sl_line_add(&fields->home, "%s", line->data);
	return rc;
}

void sl_http_fields_clear(struct sl_http_fields *fields)
{
	sl_lines_clear(&fields->away, NULL);
	sl_lines_clear(&fields->home, NULL);
}

/* ------------------------------------------------------------------------------------ headers */

/* Header fields about the connection, or set by sluice itself. */
static const char *const own_names[] = {
	"Accept-Encoding",
	"Connection",
	"Content-Length",
	"Content-Range",
	"Expect",
	"Host",
	"HTTP2-Settings",
	"If-Match",
	"If-Modified-Since",
	"If-None-Match",
	"If-Range",
	"If-Unmodified-Since",
	"Keep-Alive",
	"Proxy-Connection",
	"Proxy-Authorization",
	"Range",
	"TE",
	"Trailer",
	"Transfer-Encoding",
	"Upgrade",
};

static bool is_header_name(const char *text, size_t length)
{
	for (size_t i = 0; i < length; i++)
		if (!isalnum((unsigned char)text[i]) && !strchr("!#$%&'*+-.^_`|~", text[i]))
			return false;
	return length;
}

static bool is_header_value(const char *text)
{
	while (*text == '\t' || ((unsigned char)*text >= ' ' && *text != 0x7f))
		text++;
	return !*text;
}

/* `where` names the line for a sentence, which shows its name at most. */
static int header_add(struct sl_http *http, const char *where, const char *text)
{
	size_t name = strcspn(text, ":");
	const char *value = text + name + (text[name] == ':');

	if (!text[name] || !is_header_name(text, name))
		return sl_fail(-EINVAL, "%s is no 'Name: value'", where);
	if (!is_header_value(value))
		return sl_fail(-EINVAL,
		               "%s: the value of '%.*s' has a line end or a control "
		               "character in it",
		               where, (int)name, text);
	for (size_t i = 0; i < sizeof(own_names) / sizeof(own_names[0]); i++)
		if (!strncasecmp(text, own_names[i], name) && !own_names[i][name])
			return sl_fail(-EINVAL, "%s: '%s' is set by sluice itself", where,
			               own_names[i]);
	value += strspn(value, " \t");
	/* libcurl would leave a field with a colon and no value out. */
	return sl_line_add(&http->headers, "%.*s%s%s", (int)name, text, *value ? ": " : ";", value);
}

static int headers_read(struct sl_http *http, const char *path)
{
	FILE *file = fopen(path, "re");
	char where[SL_SETTING_TEXT + 80], *line = NULL;
	size_t size = 0;
	ssize_t length = 0;
	int rc = 0;

	if (!file)
		return sl_fail(-errno, "SLUICE_HTTP_HEADERS_FILE: '%s': %s", path, strerror(errno));
	for (unsigned number = 1; !rc && (length = getline(&line, &size, file)) >= 0; number++) {
		while (length && isspace((unsigned char)line[length - 1]))
			line[--length] = '\0';
		snprintf(where, sizeof(where), "SLUICE_HTTP_HEADERS_FILE: line %u of '%s'", number,
		         path);
		if (strlen(line) != (size_t)length)
			rc = sl_fail(-EINVAL, "%s has a zero byte in it", where);
		else if (length && line[0] != '#')
			rc = header_add(http, where, line);
	}
	if (!rc && ferror(file))
		rc = sl_fail(-EIO, "SLUICE_HTTP_HEADERS_FILE: '%s' cannot be read", path);
	if (line)
		explicit_bzero(line, size);
	free(line);
	fclose(file);
	return rc;
}

bool sl_http_identity_has(const struct sl_http *http, const char *name)
{
	size_t length = strlen(name);

	for (const struct curl_slist *line = http->headers; line; line = line->next)
		if (!strncasecmp(line->data, name, length) && strchr(":;", line->data[length]))
			return true;
	return false;
}

/* -------------------------------------------------------------------------------------- token */

/* No other thread has the token yet. */
void sl_http_token_init(struct sl_http_token *token,
                        const struct sl_settings *settings) SL_UNCHECKED
{
	sl_mutex_init(&token->mutex);
	strcpy(token->locked.text, settings->http_bearer);
}

/* No other thread has the token any more. */
void sl_http_token_destroy(struct sl_http_token *token) SL_UNCHECKED
{
	explicit_bzero(token->locked.text, sizeof(token->locked.text));
	sl_mutex_destroy(&token->mutex);
}

/* A token of RFC 6750 has visible characters only. */
static bool is_token(const char *text)
{
	size_t length = 0;

	while (text[length] > ' ' && text[length] < 0x7f)
		length++;
	return length && !text[length];
}

/* Reads a file that has nothing but a token, with blanks around it. */
static int token_read(const char *path, char text[SL_SECRET_TEXT], struct stat *out)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	ssize_t length = fd < 0 || fstat(fd, out) ? -1 : read(fd, text, SL_SECRET_TEXT - 1);
	int error = errno;
	size_t blank;

	if (fd >= 0)
		close(fd);
	if (length < 0)
		return sl_fail(-error, "SLUICE_HTTP_BEARER_FILE: '%s': %s", path, strerror(error));
	while (length && isspace((unsigned char)text[length - 1]))
		length--;
	text[length] = '\0';
	blank = strspn(text, " \t\r\n");
	memmove(text, text + blank, (size_t)length - blank + 1);
	if (length == SL_SECRET_TEXT - 1 || !is_token(text))
		return sl_fail(-EINVAL, "SLUICE_HTTP_BEARER_FILE: '%s' holds no token", path);
	return 0;
}

/* Reads the token's file if it may have changed. A missing or half written file leaves the token as
 * it is. Returns 0, or -errno with a sentence. */
static int token_refresh_locked(struct sl_http_token *token, const char *path, bool certainly)
	SL_REQUIRES(&token->mutex)
{
	const struct stat *old = &token->locked.file;
	int64_t now = sl_now();
	char text[SL_SECRET_TEXT];
	struct stat file;
	int rc;

	if (!path[0] || (!certainly && now - token->locked.looked < LOOK_NS))
		return 0;
	token->locked.looked = now;
	if (!certainly && !stat(path, &file) && file.st_dev == old->st_dev &&
	    file.st_ino == old->st_ino && file.st_size == old->st_size &&
	    !memcmp(&file.st_mtim, &old->st_mtim, sizeof(file.st_mtim)))
		return 0;
	rc = token_read(path, text, &file);
	if (!rc) {
		token->locked.version += strcmp(text, token->locked.text) != 0;
		strcpy(token->locked.text, text);
		token->locked.file = file;
	}
	explicit_bzero(text, sizeof(text));
	return rc;
}

bool sl_http_identity_is_renewed(struct sl_http_request *request)
{
	struct sl_http_token *token = &request->http->engine->token;
	const char *path = request->http->core->settings.http_bearer_file;
	bool renewed;

	if (!request->bears)
		return false;
	sl_mutex_lock(&token->mutex);
	token_refresh_locked(token, path, true);
	renewed = token->locked.version != request->token;
	sl_mutex_unlock(&token->mutex);
	return renewed;
}

/* --------------------------------------------------------------------------------------- load */

static int setting_check_readable(const char *variable, const char *path)
{
	return !path[0] || !access(path, R_OK)
	               ? 0
	               : sl_fail(-errno, "%s: '%s': %s", variable, path, strerror(errno));
}

static bool wants_netrc(const struct sl_settings *settings)
{
	return settings->http_netrc[0] && strcmp(settings->http_netrc, "0");
}

/* The file in the setting; NULL: the user's. */
static const char *netrc_path(const struct sl_settings *settings)
{
	return strcmp(settings->http_netrc, "1") ? settings->http_netrc : NULL;
}

static int identity_check_settings(struct sl_http *http)
{
	const struct sl_settings *settings = &http->core->settings;
	struct sl_http_token *token = &http->engine->token;
	int rc = 0;

	if (settings->http_bearer[0] && !is_token(settings->http_bearer))
		rc = sl_fail(-EINVAL, "SLUICE_HTTP_BEARER: there is a blank or a control "
		                      "character in it");
	if (!rc && settings->http_bearer_file[0]) {
		sl_mutex_lock(&token->mutex);
		rc = token_refresh_locked(token, settings->http_bearer_file, true);
		sl_mutex_unlock(&token->mutex);
	}
	if (!rc && wants_netrc(settings) && netrc_path(settings))
		rc = setting_check_readable("SLUICE_HTTP_NETRC", netrc_path(settings));
	if (!rc)
		rc = setting_check_readable("SLUICE_HTTP_CLIENT_CERT", settings->http_client_cert);
	if (!rc)
		rc = setting_check_readable("SLUICE_HTTP_CLIENT_KEY", settings->http_client_key);
	return rc;
}

int sl_http_identity_load(struct sl_http *http, const char *const *headers)
{
	const struct sl_settings *settings = &http->core->settings;
	const char *path = settings->http_headers_file;
	char where[64];
	int rc = identity_check_settings(http);

	if (!rc && path[0])
		rc = headers_read(http, path);
	for (unsigned i = 0; !rc && headers && headers[i]; i++) {
		snprintf(where, sizeof(where), "open options: header %u", i + 1);
		rc = header_add(http, where, headers[i]);
	}
	http->password = http->credentials || wants_netrc(settings);
	http->identified = http->password || settings->http_bearer[0] ||
	                   settings->http_bearer_file[0] || settings->http_client_cert[0];
	return rc;
}

void sl_http_identity_clear(struct sl_http *http)
{
	sl_lines_clear(&http->headers, NULL);
	if (http->credentials)
		explicit_bzero(http->credentials, strlen(http->credentials));
	free(http->credentials);
}

/* ---------------------------------------------------------------------------------------- set */

#define EITHER ((long)(CURLAUTH_BASIC | CURLAUTH_DIGEST))

/* Over http the server is asked how it wants a password before it is told. Over https Basic comes
 * with the first request: servers may have something else for strangers. */
static void identity_choose(struct sl_http_request *request)
{
	long known = atomic_load(&request->http->how);
	bool secure = !strncmp(request->http->origin, "https:", 6);

	request->how = known ? known : secure ? (long)CURLAUTH_BASIC : EITHER;
	curl_easy_setopt(request->transfer->easy, CURLOPT_HTTPAUTH, request->how);
}

bool sl_http_identity_learns(struct sl_http_request *request)
{
	long offered = 0, status = request->response.status, known = CURLAUTH_BASIC;

	if (!request->how)
		return false;
	curl_easy_getinfo(request->transfer->easy, CURLINFO_HTTPAUTH_AVAIL, &offered);
	offered &= EITHER;
	/* A stranger is told something else than 401: the password comes with the request then. */
	if (!offered && (request->how != EITHER || status < 300 || status == 408 || status == 429 ||
	                 status >= 500))
		return false;
	if (offered & CURLAUTH_DIGEST)
		known = CURLAUTH_DIGEST;
	else if (request->how == CURLAUTH_DIGEST)
		return false;
	atomic_store(&request->http->how, known);
	return !offered || (status == 401 && known & ~request->how);
}

/* By the first of: the user's header, user and password in the URI, the token, .netrc. */
static void identity_authorize(struct sl_http_request *request)
{
	struct sl_http *http = request->http;
	const struct sl_settings *settings = &http->core->settings;
	struct sl_http_token *token = &http->engine->token;
	CURL *easy = request->transfer->easy;

	/* Requests to a service have a signature. */
	if (http->signer || sl_http_identity_has(http, "Authorization"))
		return;
	if (http->credentials) {
		curl_easy_setopt(easy, CURLOPT_USERPWD, http->credentials);
		identity_choose(request);
		return;
	}
	if (settings->http_bearer[0] || settings->http_bearer_file[0]) {
		sl_mutex_lock(&token->mutex);
		token_refresh_locked(token, settings->http_bearer_file, false);
		curl_easy_setopt(easy, CURLOPT_HTTPAUTH, CURLAUTH_BEARER);
		curl_easy_setopt(easy, CURLOPT_XOAUTH2_BEARER, token->locked.text);
		request->token = token->locked.version;
		request->bears = true;
		sl_mutex_unlock(&token->mutex);
	} else if (wants_netrc(settings)) {
		curl_easy_setopt(easy, CURLOPT_NETRC, (long)CURL_NETRC_OPTIONAL);
		curl_easy_setopt(easy, CURLOPT_NETRC_FILE, netrc_path(settings));
		identity_choose(request);
	}
}

void sl_http_identity_set(struct sl_http_request *request)
{
	const struct sl_settings *settings = &request->http->core->settings;
	CURL *easy = request->transfer->easy;

	identity_authorize(request);
	if (!settings->http_client_cert[0])
		return;
	curl_easy_setopt(easy, CURLOPT_SSLCERT, settings->http_client_cert);
	/* Without a password OpenSSL would ask for a locked key's at the terminal. */
	curl_easy_setopt(easy, CURLOPT_KEYPASSWD, "");
	if (settings->http_client_key[0])
		curl_easy_setopt(easy, CURLOPT_SSLKEY, settings->http_client_key);
}

/* -------------------------------------------------------------------------------------- hide */

/* Returns whether the text shows the beginning of the secret: the text may be cut off. */
static bool text_shows(const char *text, const char *secret)
{
	size_t length = strnlen(secret, MOST_SEEN);

	return length >= LEAST_SEEN && memmem(text, strlen(text), secret, length);
}

void sl_http_identity_hide(const struct sl_http *http, char *text)
{
	struct sl_http_token *token = &http->engine->token;
	const char *password = http->credentials ? strchr(http->credentials, ':') + 1 : "";
	bool shown = text_shows(text, password);

	for (const struct curl_slist *line = http->headers; line; line = line->next) {
		const char *value = strchr(line->data, ':');
		/* Behind the scheme of an Authorization. */
		const char *last = strrchr(line->data, ' ');

		shown |= value && (text_shows(text, value + 2) || text_shows(text, last + 1));
	}
	sl_mutex_lock(&token->mutex);
	shown |= text_shows(text, token->locked.text);
	sl_mutex_unlock(&token->mutex);
	if (shown)
		text[0] = '\0';
}
