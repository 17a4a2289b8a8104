/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Remote files
 *
 * Opens a remote file: parses its URI, asks the server about the object, and chooses how its pieces
 * are moved.
 *
 * Threads: opening and closing wait for the server on the caller's thread; submission runs on any
 * thread.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <openssl/crypto.h>

#include "http/http_internal.h"

#define LEAST_SLOT ((size_t)1 << 20)
#define MOST_SLOT  ((size_t)16 << 20)
/* Pieces of a write through slots, which come in any order. */
#define UPLOAD_DEPTH 64
#define CHECKSUM     8 /* characters of a CRC-32C in base64 */

/* ------------------------------------------------------------------------------------ engine */

static void http_global_init(void)
{
	/* Its handler of exit() would run before ours that drops uploads by signed requests, or
	 * while a reactor signs others. */
	OPENSSL_init_crypto(OPENSSL_INIT_NO_ATEXIT, NULL);
	curl_global_init(CURL_GLOBAL_DEFAULT);
}

/* -------------------------------------------------------------------------------------- open */

/* Copies a part of the URL; false: there is none. */
static bool url_part(CURLU *url, CURLUPart part, unsigned flags, char **out)
{
	char *text = NULL;

	if (curl_url_get(url, part, &text, flags))
		return false;
	*out = strdup(text);
	curl_free(text);
	return *out;
}

static int http_keep_credentials(struct sl_http *http, CURLU *url)
{
	char *user = NULL, *password = NULL;
	int rc = 0;

	if (url_part(url, CURLUPART_USER, CURLU_URLDECODE, &user)) {
		url_part(url, CURLUPART_PASSWORD, CURLU_URLDECODE, &password);
		http->credentials = sl_format("%s:%s", user, password ? password : "");
		rc = http->credentials ? 0 : -ENOMEM;
	}
	free(user);
	free(password);
	return rc;
}

static int http_keep_origin(struct sl_http *http, CURLU *url)
{
	char *scheme = NULL, *host = NULL, *port = NULL;
	bool have = url_part(url, CURLUPART_SCHEME, 0, &scheme) &&
	            url_part(url, CURLUPART_HOST, 0, &host);

	/* As it stands in URLs: with the port only where it is not the scheme's default. */
	url_part(url, CURLUPART_PORT, CURLU_NO_DEFAULT_PORT, &port);
	if (have)
		http->origin =
			sl_format("%s://%s%s%s", scheme, host, port ? ":" : "", port ? port : "");
	free(scheme);
	free(host);
	free(port);
	return http->origin ? 0 : -ENOMEM;
}

/* Takes the URI apart by libcurl's rules (RFC 3986). */
static int http_parse_url(struct sl_http *http, const char *text)
{
	CURLU *url;
	CURLUcode code;
	int rc;

	for (const char *c = text; *c; c++)
		if ((unsigned char)*c <= ' ' || *c == 0x7f)
			return sl_fail(-EINVAL,
			               "'%s': a URI cannot hold spaces or control characters",
			               http->name);
	/* libcurl would take the text that follows for the host. */
	if (strstr(text, "://")[3] == '/')
		return sl_fail(-EINVAL, "'%s': there is no host", http->name);
	url = curl_url();
	if (!url)
		return sl_fail(-ENOMEM, "no memory");
	code = curl_url_set(url, CURLUPART_URL, text, http->signer ? CURLU_PATH_AS_IS : 0);
	if (code) {
		rc = sl_fail(-EINVAL, "'%s': %s", http->name, curl_url_strerror(code));
		curl_url_cleanup(url);
		return rc;
	}
	rc = http_keep_credentials(http, url);
	if (!rc)
		rc = http_keep_origin(http, url);
	curl_url_set(url, CURLUPART_USER, NULL, 0);
	curl_url_set(url, CURLUPART_PASSWORD, NULL, 0);
	curl_url_set(url, CURLUPART_FRAGMENT, NULL, 0);
	if (!rc && !url_part(url, CURLUPART_URL, 0, &http->url))
		rc = -ENOMEM;
	curl_url_cleanup(url);
	return rc ? sl_fail(rc, "no memory") : 0;
}

/* Asks for an object to be written. A server that refuses to answer may still accept the object; a
 * server out of reach will not. */
static int http_look(struct sl_http *http, bool *exists)
{
	struct sl_http_request *request;
	int rc = sl_http_ask(http, &sl_http_kind_head, &request);

	/* An answer to HEAD has no body, in which a service may say where the object is. */
	if (http->signer && request && request->response.status == 400) {
		sl_http_request_free(request);
		rc = sl_http_ask(http, &sl_http_kind_probe, &request);
	}
	bool answered = request && request->response.status;

	if (!rc && request)
		sl_http_take_texts(http, request);
	sl_http_request_free(request);
	*exists = !rc;
	http->absent = rc == -ENOENT;
	if (http->signer && (!rc || rc == -ENOENT))
		atomic_store(&http->signer->habits->reached, true);
	return answered && rc != -EREMOTE ? 0 : rc;
}

/* Returns whether the object is asked for before it is written. The PUT says If-None-Match as well,
 * but not every server looks at it. A bucket's region, and how a server wants a password, have to
 * be known before the PUT begins. */
static bool http_has_to_look(const struct sl_http *http, const struct sluice_open_options *options)
{
	struct sl_habits *habits = http->signer ? http->signer->habits : NULL;
	bool exclusive = http->flags & SLUICE_OPEN_EXCLUSIVE;

	if (!habits || !atomic_load(&habits->reached))
		return exclusive || http->signer || http->password;
	return exclusive && !(http->flags & SLUICE_OPEN_MANY && options->expected_size &&
	                      options->expected_size <= http->core->settings.part_bytes &&
	                      atomic_load(&habits->excludes) == SL_EXCLUDES);
}

static void http_close(struct sl_backend *backend)
{
	struct sl_http *http = sl_http_of(backend);

	sl_http_upload_free(http->upload);
	sl_http_multipart_free(http->multipart);
	sl_http_body_free(http->body);
	if (http->limit)
		sl_http_limit_release(http->limit);
	sl_http_fields_clear(&http->fields);
	sl_http_identity_clear(http);
	if (http->signer)
		http->signer->service->signing->close(http->signer);
	sl_http_location_destroy(&http->location);
	sl_http_texts_clear(&http->opened);
	free(http->head);
	free(http->found);
	free(http->origin);
	free(http->url);
	free(http->name);
	free(http);
}

static int http_choose(struct sl_http *http, const struct sluice_open_options *options)
{
	int rc = 0;

	http->remote = http->core->settings.remote;
	if (options->backend)
		rc = sl_remote_parse("open options: backend of a remote file", options->backend,
		                     &http->remote);
	http->limit = sl_http_limit_acquire(&http->engine->limits, http->origin,
	                                    sl_http_multi_most(http->engine, http->remote),
	                                    options->expected_size);
	if (!rc && !http->limit)
		rc = sl_fail(-ENOMEM, "no memory");
	return rc ? rc : sl_http_multi_find(http->engine, http->remote, &http->multi);
}

static int http_check_writing(const struct sl_http *http)
{
	if (http->flags & SLUICE_OPEN_READ)
		return sl_fail(-ENOTSUP, "'%s': a remote file is read or written, not both",
		               http->name);
	if (!(http->flags & SLUICE_OPEN_CREATE))
		return sl_fail(-ENOTSUP,
		               "'%s': a remote file is only written as a whole, with REPLACE or "
		               "CREATE",
		               http->name);
	if (http->signer && strchr(http->url, '?'))
		return sl_fail(-ENOTSUP, "'%s': a version of an object is only read", http->name);
	return 0;
}

static int http_start_upload(struct sl_http *http, const struct sluice_open_options *options)
{
	bool exists = false;
	int rc = 0;

	if (http_has_to_look(http, options))
		rc = http_look(http, &exists);
	if (!rc && http->flags & SLUICE_OPEN_EXCLUSIVE && exists)
		rc = sl_fail(-EEXIST, "'%s' exists", http->name);
	if (!rc)
		rc = http_check_writing(http);
	if (!rc && http->signer)
		rc = sl_http_multipart_new(http, options, &http->multipart);
	else if (!rc)
		rc = sl_http_upload_new(http, options->expected_size);
	return rc;
}

/* All before the server is asked. */
static int http_prepare(struct sl_http *http, const struct sluice_open_options *options)
{
	int rc = http_choose(http, options);

	if (!rc)
		rc = sl_http_identity_load(http, options->headers);
	if (!rc)
		rc = sl_http_fields_begin(&http->fields, http);
	if (!rc)
		rc = sl_http_fields_add(&http->fields, "Accept-Encoding: identity");
	http->head_most = options->first_bytes;
	http->head_all = options->expected_size && options->expected_size <= http->head_most;
	return rc;
}

/* Finds the URL of the file. May wait for keys, unless `waiting` is NULL. */
static int http_place(struct sl_http *http, const struct sl_uri *uri,
                      const struct sluice_open_options *options, const char *query,
                      struct sl_pool *waiting)
{
	struct sl_keyring *keyring = sl_http_keyring(http->engine, uri->scheme);
	int rc;

	if (!keyring)
		return http_parse_url(http, uri->path);
	rc = keyring->service->signing->open(keyring, waiting, uri->path, options, query,
	                                     &http->signer);
	return rc ? rc : http_parse_url(http, http->signer->url);
}

/* Makes a file, and asks no server. */
static int http_new(struct sl_core *core, const struct sl_uri *uri,
                    const struct sluice_open_options *options, const char *query,
                    struct sl_pool *waiting, struct sl_http **out)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	struct sl_http *http = calloc(1, sizeof(*http));
	int rc;

	if (!http)
		return sl_fail(-ENOMEM, "no memory");
	pthread_once(&once, http_global_init);
	http->base.ops = &sl_http_ops;
	http->core = core;
	http->engine = core->http;
	http->number = 1 + atomic_fetch_add(&http->engine->files, 1);
	http->flags = options->flags;
	http->size = http->said = -1;
	sl_http_location_init(&http->location);
	http->name = sl_uri_name(uri->path);
	rc = http->name ? http_place(http, uri, options, query, waiting)
	                : sl_fail(-ENOMEM, "no memory");
	if (!rc)
		rc = http_prepare(http, options);
	if (rc)
		sl_http_ops.close(&http->base);
	else
		*out = http;
	return rc;
}

static int http_open(struct sl_core *core, const struct sl_uri *uri,
                     const struct sluice_open_options *options, struct sl_backend **out)
{
	struct sl_http *http;
	int rc = -EREMOTE;

	/* After the first time the region of the bucket is known. */
	for (int times = 0; rc == -EREMOTE && times < 2; times++) {
		rc = http_new(core, uri, options, NULL, core->waiting, &http);
		if (rc)
			return rc;
		rc = http->flags & SLUICE_OPEN_WRITE ? http_start_upload(http, options)
		                                     : sl_http_inspect(http);
		if (rc)
			sl_http_ops.close(&http->base);
		else
			*out = &http->base;
	}
	return rc;
}

static int http_open_start(struct sl_core *core, const struct sl_uri *uri,
                           const struct sluice_open_options *options, struct sl_opening *opening)
{
	struct sl_http *http;
	int rc = options->flags & SLUICE_OPEN_WRITE
	                 ? -EAGAIN
	                 : http_new(core, uri, options, NULL, NULL, &http);

	return rc ? rc : sl_http_inspect_start(http, opening);
}

/* Several cancels in a row are handled together. */
static void http_cancel(struct sl_backend *backend)
{
	struct sl_http *http = sl_http_of(backend);
	struct sl_list ready = SL_LIST_INIT(ready);

	if (http->multipart)
		sl_http_multipart_cancel(http->multipart);
	sl_http_location_cancel(http, &ready);
	sl_list_each_of (request, &ready, struct sl_http_request, link)
		sl_http_dispatch(request);
	atomic_store(&http->engine->cancelling, true);
	sl_http_multi_wake(http->multi);
}

static void http_cancel_open(struct sl_core *core)
{
	struct sl_http_engine *engine = core->http;

	atomic_store(&engine->cancelling, true);
	sl_mutex_lock(&engine->mutex);
	for (unsigned i = 0; i < 2; i++)
		if (engine->locked.multi[i])
			sl_http_multi_wake(engine->locked.multi[i]);
	sl_mutex_unlock(&engine->mutex);
}

int sl_http_open_query(struct sl_core *core, const struct sl_uri *uri,
                       const struct sluice_open_options *options, const char *query,
                       struct sl_backend **out)
{
	struct sl_http *http;
	int rc = http_new(core, uri, options, query, core->waiting, &http);

	if (rc)
		return rc;
	rc = sl_http_body_make(http);
	if (rc)
		sl_http_ops.close(&http->base);
	else
		*out = &http->base;
	return rc;
}

int sl_http_check(const struct sl_core *core, const char *scheme, const void *options)
{
	struct sl_keyring *keyring = sl_http_keyring(core->http, scheme);

	return keyring->service->signing->check(keyring, core->waiting, options);
}

int sl_http_presign(struct sl_core *core, const struct sl_uri *uri,
                    const struct sluice_open_options *options, const char *method, unsigned seconds,
                    char **url, int64_t *end_ns)
{
	struct sl_service_request asked = {.method = method, .seconds = seconds};
	struct sl_service_signed made = {0};
	struct sl_backend *backend;
	int64_t end = time(NULL) + seconds;
	int rc = sl_http_open_query(core, uri, options, NULL, &backend);

	if (rc)
		return rc;
	struct sl_http *http = sl_http_of(backend);
	struct curl_slist *lines = http->headers;
	rc = http->signer->service->signing->sign(http->signer, &asked, &lines, &made);
	if (!rc) {
		*url = sl_format("%.*s?%s", (int)strcspn(http->url, "?"), http->url, lines->data);
		rc = *url ? 0 : sl_fail(-ENOMEM, "no memory");
	}
	if (!rc && end_ns)
		*end_ns = (made.expires ? SL_MIN(end, made.expires) : end) * 1000000000;
	sl_lines_clear(&lines, http->headers);
	sl_http_ops.close(backend);
	return rc;
}

/* ----------------------------------------------------------------------------------- the rest */

static void http_limits(struct sl_backend *backend, struct sl_limits *out)
{
	struct sl_http *http = sl_http_of(backend);

	out->remote = true;
	out->piece_bytes = LEAST_SLOT; /* http_cut() says more of pieces */
	/* A thread of the pool copies a slot: a part at a time. */
	if (http->multipart)
		out->piece_bytes =
			SL_MAX(SL_MIN(http->core->settings.part_bytes, MOST_SLOT), LEAST_SLOT);
	out->piece_size = sizeof(struct sl_http_piece);
	out->depth = http->multipart ? UPLOAD_DEPTH : 1;
	out->alignment = 0;
	out->sequential = http->upload || http->multipart || !http->ranges;
	out->whole = http->body;
	out->all_or_none = http->upload || http->multipart;
}

static struct sl_cut http_cut(struct sl_backend *backend, uint64_t all, uint64_t left,
                              uint64_t room)
{
	const struct sl_http *http = sl_http_of(backend);
	struct sl_cut cut = sl_http_limit_cut(http->limit, all, left, room);

	cut.gap = SL_MIN(cut.gap, http->core->settings.http_gap_bytes);
	return cut;
}

static char *http_identity(struct sl_backend *backend)
{
	return strdup(sl_http_of(backend)->url);
}

/* Returns the object's checksum; that of parts ends in "-" and their number, or the ETag does. */
static const char *http_checksum(const struct sl_http_texts *opened)
{
	const char *sum = opened->of[SL_HTTP_FIELD_CRC32C], *etag = opened->of[SL_HTTP_FIELD_ETAG];
	const char *type = opened->of[SL_HTTP_FIELD_CHECKSUM_TYPE];
	const char *dash = etag ? strrchr(etag, '-') : NULL;
	bool of_parts = dash && dash[1 + strspn(dash + 1, "0123456789")] == '"' && dash[1] != '"';

	return sum && strlen(sum) == CHECKSUM &&
	                       (type ? !strcasecmp(type, "FULL_OBJECT") : !of_parts)
	               ? sum
	               : NULL;
}

static int http_stat(struct sl_backend *backend, struct sluice_file_info *out)
{
	struct sl_http *http = sl_http_of(backend);
	/* For a file to be written it is that of the object before. */
	const char *etag = http->multipart ? NULL : http->opened.of[SL_HTTP_FIELD_ETAG];
	int64_t now = sl_now();

	out->length = http->size >= 0 ? (uint64_t)http->size : 0;
	out->allocated = out->length;
	out->modified_ns = http->modified_ns;
	out->flags = http->size < 0 ? SLUICE_STAT_SIZE_UNKNOWN : 0;
	if (http->body)
		out->flags |= SLUICE_STAT_WHOLE_ONLY;
	out->backend = sl_remote_name(http->remote);
	sl_http_copy_etag(etag ? etag : "", out->etag);
	out->full_etag = etag;
	out->final_uri = http->found;
	out->crc32c = http_checksum(&http->opened);
	for (int i = 0; i < 2; i++) {
		int64_t until = atomic_load_explicit(&http->quiet[i], memory_order_relaxed);

		if (until > now)
			out->limited_ms =
				SL_MAX(out->limited_ms, (uint64_t)(until - now) / 1000000);
	}
	return 0;
}

static int http_commit(struct sl_backend *backend)
{
	struct sl_http *http = sl_http_of(backend);

	return http->multipart ? sl_http_multipart_commit(http->multipart)
	       : http->upload  ? sl_http_upload_commit(http->upload)
	                       : 0;
}

const struct sl_backend_ops sl_http_ops = {
	.open = http_open,
	.open_start = http_open_start,
	.cancel_open = http_cancel_open,
	.limits = http_limits,
	.identity = http_identity,
	.size = sl_http_size,
	.stat = http_stat,
	.cut = http_cut,
	.slot_writes = &sl_http_slot_writes,
	.submit = sl_http_submit,
	.cancel = http_cancel,
	.commit = http_commit,
	.close = http_close,
};
