/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lists of objects, their copies, their removal and their URLs
 *
 * Reads the list of a bucket of S3, page by page: each page is a file that is read as a whole; other lists are those of
 * the backend. Removes objects, has their server copy them, and makes presigned URLs.
 *
 * Threads: a list is used by one thread at a time, which waits for the server or for storage.
 */
#include <errno.h>
#include <search.h>
#include <stdlib.h>
#include <string.h>

#include "http/http.h"
#include "io/io_internal.h"
#include "s3/s3.h"

#define PAGE_BYTES ((size_t)8 << 20) /* of a thousand names at most, each of them encoded */

struct sluice_list {
	struct sluice_context *ctx;
	const struct sl_backend_ops *ops;
	struct sl_listing *listing; /* of the backend; NULL: of S3, as all that follows */
	char *uri;
	struct sluice_open_options options;
	unsigned flags; /* enum sluice_list_flags */
	char *xml;      /* of a page */
	struct sl_s3_page page;
	const char *token; /* of the next page; "": the first; NULL: there is none */
	void *seen;        /* all tokens so far, for tsearch(), which own `token` */
	struct sl_s3_entry entry;
};

static int list_open_page(struct sluice_list *list, sluice_file **out)
{
	char *query = NULL;
	struct sl_backend *backend;
	struct sl_uri uri;
	int rc = sl_uri_parse(list->uri, &uri);

	if (!rc) {
		rc = sl_s3_list_query(list->uri, list->flags, list->token, &query);
		if (!rc)
			rc = sl_http_open_list(&list->ctx->core, &uri, &list->options, query,
			                       &backend);
		sl_uri_clear(&uri);
	}
	free(query);
	return rc ? rc : sl_file_wrap(list->ctx, list->uri, SLUICE_OPEN_READ, backend, out);
}

static int compare_tokens(const void *a, const void *b)
{
	return strcmp(a, b);
}

/* Takes the token of the next page, or NULL. Returns 0, -ENOMEM, or -EPROTO for one that was there before. */
static int list_keep_token(struct sluice_list *list, char *token)
{
	char **kept = token ? tsearch(token, &list->seen, compare_tokens) : &token;

	if (kept && *kept == token) {
		list->token = token;
		return 0;
	}
	free(token);
	return kept ? sl_fail(-EPROTO, "'%s': the server's list comes back to a page", list->uri)
	            : sl_fail(-ENOMEM, "no memory");
}

static int list_read_page(struct sluice_list *list)
{
	struct sl_s3_page page;
	char *token;
	sluice_op *op = NULL;
	sluice_file *file;
	int64_t n = list_open_page(list, &file);

	/* If this page fails, the next call asks for it again. */
	list->page.at = list->xml + PAGE_BYTES - 1;
	if (n)
		return (int)n;
	n = sluice_read(file, list->xml, PAGE_BYTES - 1, 0, &op);
	if (!n)
		n = sluice_wait(op, -1);
	if (n < 0 && op)
		sl_fail((int)n, "%s", sluice_op_message(op));
	sluice_op_free(op);
	sluice_discard(file);
	if (n == PAGE_BYTES - 1)
		return sl_fail(-EPROTO, "'%s': the server's list is too long", list->uri);
	if (n < 0)
		return (int)n;
	list->xml[n] = '\0';
	n = sl_s3_page_read(list->uri, list->flags, list->xml, &page, &token);
	if (!n)
		n = list_keep_token(list, token);
	if (!n)
		list->page = page;
	return (int)n;
}

/* Returns -ENOTSUP, with a sentence that names the URI without its secrets. */
static int list_refuse(const char *uri, const char *why)
{
	char *name = sl_uri_name(uri);

	sl_fail(-ENOTSUP, "'%s': %s", name ? name : "the URI", why);
	free(name);
	return -ENOTSUP;
}

static bool list_is_s3(const char *uri)
{
	return !strncasecmp(uri, "s3://", 5);
}

static int list_open_objects(struct sluice_list *list, const char *uri,
                             const struct sluice_open_options *o)
{
	int rc;

	if (o)
		memcpy(&list->options, o, SL_MIN(o->size, sizeof(list->options)));
	list->options.flags = SLUICE_OPEN_READ;
	list->uri = strdup(uri);
	list->token = "";
	list->xml = list->page.at = calloc(1, PAGE_BYTES);
	rc = list->uri && list->xml ? 0 : sl_fail(-ENOMEM, "no memory");
	if (!rc)
		rc = list_read_page(list);
	/* The region of the bucket is known now. */
	return rc == -EREMOTE ? list_read_page(list) : rc;
}

int sluice_list_open(sluice_context *ctx, const char *uri, const struct sluice_open_options *o,
                     unsigned flags, sluice_list **out)
{
	const unsigned known = SLUICE_LIST_RECURSIVE | SLUICE_LIST_UPLOADS;
	struct sluice_list *list;
	struct sl_uri parsed;
	int rc = sl_context_check(ctx);

	if (rc)
		return rc;
	if (!uri || !out)
		return sl_fail(-EINVAL, "sluice_list_open: %s is NULL", uri ? "out" : "uri");
	if (flags & ~known)
		return sl_fail(-EINVAL, "sluice_list_open: unknown flags 0x%x", flags & ~known);
	list = calloc(1, sizeof(*list));
	if (!list)
		return sl_fail(-ENOMEM, "no memory");
	list->ctx = ctx;
	list->flags = flags;
	rc = sl_file_find_backend(uri, &parsed, &list->ops);
	if (rc) {
		free(list);
		return rc;
	}
	if (list_is_s3(uri))
		rc = list_open_objects(list, uri, o);
	else if (!list->ops->list_open)
		rc = list_refuse(uri, "only folders and s3:// URIs have lists");
	else if (flags & SLUICE_LIST_UPLOADS)
		rc = list_refuse(uri, "only s3:// URIs have uploads");
	else
		rc = list->ops->list_open(&parsed, flags & SLUICE_LIST_RECURSIVE, &list->listing);
	sl_uri_clear(&parsed);
	if (rc)
		sluice_list_free(list);
	else
		*out = list;
	return rc;
}

static int list_next_object(struct sluice_list *list, struct sluice_entry *out)
{
	int rc;

	while (!(rc = sl_s3_page_next(&list->page, &list->entry)) && list->token &&
	       !(rc = list_read_page(list)))
		continue;
	if (rc <= 0)
		return rc;
	out->name = list->entry.name;
	out->is_prefix = list->entry.is_prefix;
	out->length = list->entry.length;
	out->modified_ns =
		list->entry.modified > 0 ? list->entry.modified * INT64_C(1000000000) : 0;
	out->etag = list->entry.etag;
	out->upload = list->entry.upload;
	return 1;
}

int sluice_list_next(sluice_list *list, struct sluice_entry *out)
{
	struct sluice_entry entry = {0};
	int rc;

	if (!list || !out || out->size < sizeof(out->size))
		return sl_fail(-EINVAL, "sluice_list_next: no list, or out->size is not set");
	rc = sl_context_check(list->ctx);
	if (!rc)
		rc = list->listing ? list->ops->list_next(list->listing, &entry)
		                   : list_next_object(list, &entry);
	if (rc > 0)
		sl_struct_give(out, &entry, sizeof(entry));
	return rc;
}

void sluice_list_free(sluice_list *list)
{
	if (!list || !sl_process_is(list->ctx->process))
		return;
	if (list->listing)
		list->ops->list_close(list->listing);
	free(list->uri);
	tdestroy(list->seen, free);
	free(list->xml);
	free(list);
}

/* Removes an object of S3 or a file; or only says whether it could be. */
static int list_remove(struct sluice_context *ctx, const char *uri,
                       const struct sluice_open_options *options, const char *upload, bool only_ask)
{
	const struct sl_backend_ops *ops;
	struct sl_uri parsed;
	int rc;

	if (list_is_s3(uri))
		return only_ask ? 0 : sl_http_remove(&ctx->core, uri, options, upload);
	rc = sl_file_find_backend(uri, &parsed, &ops);
	if (rc)
		return rc;
	if (!ops->remove)
		rc = list_refuse(uri, "only local files and objects of S3 are removed");
	else if (upload)
		rc = list_refuse(uri, "only objects of S3 have uploads");
	else if (!only_ask)
		rc = ops->remove(&parsed);
	sl_uri_clear(&parsed);
	return rc;
}

int sluice_remove(sluice_context *ctx, const char *uri, const struct sluice_open_options *o,
                  const char *upload)
{
	struct sluice_open_options options = {0};
	int rc = sl_context_check(ctx);

	if (rc)
		return rc;
	if (!uri)
		return sl_fail(-EINVAL, "sluice_remove: uri is NULL");
	if (o)
		memcpy(&options, o, SL_MIN(o->size, sizeof(options)));
	options.flags = SLUICE_OPEN_READ;
	return list_remove(ctx, uri, &options, upload, false);
}

/* Removes what the URIs name, objects that follow each other together. */
static void list_remove_each(struct sluice_context *ctx, const char *const *uris, size_t count,
                             const struct sluice_open_options *options, int *errors,
                             char **messages)
{
	for (size_t i = 0, end; i < count; i = end) {
		for (end = i; end < count && list_is_s3(uris[end]); end++)
			continue;
		if (end > i) {
			sl_http_remove_many(&ctx->core, uris + i, end - i, options, errors + i,
			                    messages + i);
			continue;
		}
		errors[i] = list_remove(ctx, uris[i], options, NULL, false);
		messages[i] = errors[i] ? strdup(sluice_last_message()) : NULL;
		end++;
	}
}

int sluice_remove_many(sluice_context *ctx, const char *const *uris, size_t count,
                       const struct sluice_open_options *o, int *errors, char **messages)
{
	struct sluice_open_options options = {0};
	int *own = NULL, rc = sl_context_check(ctx);
	char **texts = NULL;

	for (size_t i = 0; !rc && i < count; i++)
		if (!uris || !uris[i])
			rc = sl_fail(-EINVAL, "sluice_remove_many: a URI is NULL");
		else
			rc = list_remove(ctx, uris[i], NULL, NULL, true);
	if (!rc && !errors && !(errors = own = calloc(count + 1, sizeof(*errors))))
		rc = sl_fail(-ENOMEM, "no memory");
	if (!rc && !messages && !(messages = texts = calloc(count + 1, sizeof(*messages))))
		rc = sl_fail(-ENOMEM, "no memory");
	if (rc) {
		free(own);
		return rc;
	}
	if (o)
		memcpy(&options, o, SL_MIN(o->size, sizeof(options)));
	options.flags = SLUICE_OPEN_READ;
	memset(messages, 0, count * sizeof(*messages));
	list_remove_each(ctx, uris, count, &options, errors, messages);
	for (size_t i = 0; !rc && i < count; i++)
		if ((rc = errors[i]))
			sl_fail(rc, "'%s' was not removed: %s", uris[i],
			        messages[i] ? messages[i] : sl_error_text(rc));
	for (size_t i = 0; texts && i < count; i++)
		free(texts[i]);
	free(texts);
	free(own);
	return rc;
}

int sluice_copy_object(sluice_context *ctx, const char *from, const char *to,
                       const struct sluice_open_options *o)
{
	struct sluice_open_options options = {0};
	struct sl_uri source, target;
	int rc = sl_context_check(ctx);

	if (rc)
		return rc;
	if (!from || !to)
		return sl_fail(-EINVAL, "sluice_copy_object: %s is NULL", from ? "to" : "from");
	if (!list_is_s3(from) || !list_is_s3(to))
		return list_refuse(list_is_s3(from) ? to : from,
		                   "only objects of S3 are copied by their server");
	if (o)
		memcpy(&options, o, SL_MIN(o->size, sizeof(options)));
	rc = sl_uri_parse(from, &source);
	if (rc)
		return rc;
	rc = sl_uri_parse(to, &target);
	if (!rc) {
		rc = sl_http_copy(&ctx->core, &source, &target, &options);
		sl_uri_clear(&target);
	}
	sl_uri_clear(&source);
	return rc;
}

int sluice_presign(sluice_context *ctx, const char *method, const char *uri,
                   const struct sluice_open_options *o, unsigned seconds, char **url,
                   int64_t *end_ns)
{
	static const char *const methods[] = {"GET", "HEAD", "PUT", "DELETE"};
	struct sluice_open_options options = {0};
	struct sl_uri parsed;
	int known = 0, rc = sl_context_check(ctx);

	if (rc)
		return rc;
	if (!method || !uri || !url)
		return sl_fail(-EINVAL, "sluice_presign: method, uri or url is NULL");
	while (known < 4 && strcmp(method, methods[known]))
		known++;
	if (known == 4)
		return sl_fail(-EINVAL, "sluice_presign: '%s' is none of GET, HEAD, PUT, DELETE",
		               method);
	if (!seconds || seconds > SLUICE_PRESIGN_MOST)
		return sl_fail(-EINVAL,
		               "sluice_presign: a URL is valid for 1 to %d seconds, not %u",
		               SLUICE_PRESIGN_MOST, seconds);
	if (!list_is_s3(uri))
		return list_refuse(uri, "only objects of S3 have presigned URLs");
	if (o)
		memcpy(&options, o, SL_MIN(o->size, sizeof(options)));
	options.flags = SLUICE_OPEN_READ;
	rc = sl_uri_parse(uri, &parsed);
	if (rc)
		return rc;
	rc = sl_http_presign(&ctx->core, &parsed, &options, method, seconds, url, end_ns);
	sl_uri_clear(&parsed);
	return rc;
}
