/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lists of objects, and their removal
 *
 * Reads the list of a bucket of S3, page by page: each page is a file that is read as a whole. Removes objects.
 *
 * Threads: a list is used by one thread at a time, which waits for the server.
 */
#include <errno.h>
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
	unsigned flags;  /* enum sluice_list_flags */
	char *page, *at; /* the page, and the rest of it */
	char *token;     /* of the next page; "": the first; NULL: there is none */
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

static int list_read_page(struct sluice_list *list)
{
	sluice_op *op = NULL;
	sluice_file *file;
	int64_t n = list_open_page(list, &file);

	if (n)
		return (int)n;
	n = sluice_read(file, list->page, PAGE_BYTES - 1, 0, &op);
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
	list->page[n] = '\0';
	if (!strstr(list->page, list->flags & SLUICE_LIST_UPLOADS ? "<ListMultipartUploadsResult"
	                                                          : "<ListBucketResult"))
		return sl_fail(-EPROTO,
		               "'%s': the server answered with something other than a list",
		               list->uri);
	free(list->token);
	list->token = NULL;
	if (sl_s3_list_rest(list->page, &list->token) && !list->token)
		return sl_fail(-ENOMEM, "no memory");
	list->at = list->page;
	return 0;
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
		return sl_fail(-ENOTSUP, "only s3:// URIs have lists");
	list = calloc(1, sizeof(*list));
	if (!list)
		return sl_fail(-ENOMEM, "no memory");
	list->ctx = ctx;
	if (o)
		memcpy(&list->options, o, SL_MIN(o->size, sizeof(list->options)));
	list->options.flags = SLUICE_OPEN_READ;
	list->flags = (unsigned)recursive;
	list->uri = strdup(uri);
	list->token = strdup("");
	list->page = list->at = calloc(1, PAGE_BYTES);
	rc = list->uri && list->token && list->page ? 0 : sl_fail(-ENOMEM, "no memory");
	if (!rc)
		rc = list_read_page(list);
	/* The region of the bucket is known now. */
	if (rc == -EREMOTE)
		rc = list_read_page(list);
	if (rc)
		sluice_list_close(list);
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
	while (!sl_s3_list_next(&list->at, &list->entry)) {
		if (!list->token)
			return 0;
		rc = list_read_page(list);
		if (rc)
			return rc;
	}
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

void sluice_list_close(sluice_list *list)
{
	if (!list)
		return;
	free(list->uri);
	free(list->token);
	free(list->page);
	free(list);
}

int sluice_remove(sluice_context *ctx, const char *uri, const struct sluice_open_options *o,
                  const char *upload)
{
	struct sluice_open_options options = {0};
	struct sl_uri parsed;
	int rc = sl_context_check(ctx);

	if (rc)
		return rc;
	if (!uri)
		return sl_fail(-EINVAL, "sluice_remove: uri is NULL");
	if (strncasecmp(uri, "s3://", 5))
		return sl_fail(-ENOTSUP, "only objects of S3 are removed");
	if (o)
		memcpy(&options, o, SL_MIN(o->size, sizeof(options)));
	options.flags = SLUICE_OPEN_READ;
	rc = sl_uri_parse(uri, &parsed);
	if (rc)
		return rc;
	rc = sl_http_remove(&ctx->core, &parsed, &options, upload);
	/* The region of the bucket is known now. */
	if (rc == -EREMOTE)
		rc = sl_http_remove(&ctx->core, &parsed, &options, upload);
	sl_uri_clear(&parsed);
	return rc;
}
