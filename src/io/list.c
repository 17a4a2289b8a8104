/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lists of objects, their copies, their removal and their URLs
 *
 * Reads the list of a bucket of S3, page by page: each page is a file that is read as a whole. Removes objects,
 * has their server copy them, and makes presigned URLs.
 *
 * Threads: a list is used by one thread at a time, which waits for the server.
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

int sluice_list_open(sluice_context *ctx, const char *uri, const struct sluice_open_options *o,
                     int recursive, sluice_list **out)
{
	struct sluice_list *list;
	int rc = sl_context_check(ctx);

	if (rc)
		return rc;
	if (!uri || !out)
		return sl_fail(-EINVAL, "sluice_list_open: %s is NULL", uri ? "out" : "uri");
	if (strncasecmp(uri, "s3://", 5))
		return list_refuse(uri, "only s3:// URIs have lists");
	list = calloc(1, sizeof(*list));
	if (!list)
		return sl_fail(-ENOMEM, "no memory");
	list->ctx = ctx;
	if (o)
		memcpy(&list->options, o, SL_MIN(o->size, sizeof(list->options)));
	list->options.flags = SLUICE_OPEN_READ;
	list->flags = (unsigned)recursive;
	list->uri = strdup(uri);
	list->token = "";
	list->xml = list->page.at = calloc(1, PAGE_BYTES);
	rc = list->uri && list->xml ? 0 : sl_fail(-ENOMEM, "no memory");
	if (!rc)
		rc = list_read_page(list);
	/* The region of the bucket is known now. */
	if (rc == -EREMOTE)
		rc = list_read_page(list);
	if (rc)
		sluice_list_free(list);
	else
		*out = list;
	return rc;
}

int sluice_list_next(sluice_list *list, struct sluice_entry *out)
{
	struct sluice_entry entry = {0};
	int rc;

	if (!list || !out || out->size < sizeof(out->size))
		return sl_fail(-EINVAL, "sluice_list_next: no list, or out->size is not set");
	while (!(rc = sl_s3_page_next(&list->page, &list->entry)) && list->token &&
	       !(rc = list_read_page(list)))
		continue;
	if (rc <= 0)
		return rc;
	entry.name = list->entry.name;
	entry.is_prefix = list->entry.is_prefix;
	entry.length = list->entry.length;
	entry.modified_ns =
		list->entry.modified > 0 ? list->entry.modified * INT64_C(1000000000) : 0;
	entry.etag = list->entry.etag;
	entry.upload = list->entry.upload;
	sl_struct_give(out, &entry, sizeof(entry));
	return 1;
}

void sluice_list_free(sluice_list *list)
{
	if (!list)
		return;
	free(list->uri);
	tdestroy(list->seen, free);
	free(list->xml);
	free(list);
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
	if (strncasecmp(uri, "s3://", 5))
		return list_refuse(uri, "only objects of S3 are removed");
	if (o)
		memcpy(&options, o, SL_MIN(o->size, sizeof(options)));
	options.flags = SLUICE_OPEN_READ;
	return sl_http_remove(&ctx->core, uri, &options, upload);
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
		else if (strncasecmp(uris[i], "s3://", 5))
			rc = list_refuse(uris[i], "only objects of S3 are removed");
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
	rc = sl_http_remove_many(&ctx->core, uris, count, &options, errors, messages);
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
	if (strncasecmp(from, "s3://", 5) || strncasecmp(to, "s3://", 5))
		return list_refuse(strncasecmp(from, "s3://", 5) ? from : to,
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
	if (strncasecmp(uri, "s3://", 5))
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
