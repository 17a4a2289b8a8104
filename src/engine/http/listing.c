/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lists of objects
 *
 * Reads the list of a service page by page: each is the body of a request, and the service parses
 * it.
 *
 * Threads: a list has one user at a time, which waits for the server.
 */
#include <errno.h>
#include <search.h>
#include <stdlib.h>
#include <string.h>

#include "http/http_internal.h"

#define PAGE_BYTES ((size_t)8 << 20) /* a thousand names at most, each of them encoded */

struct object_listing {
	struct sl_listing base;
	struct sl_core *core;
	const struct sl_service *service;
	struct sl_uri uri;
	struct sluice_open_options options;
	unsigned flags; /* enum sluice_list_flags */
	char *body;     /* of a page */
	struct sl_service_page page;
	const char *token; /* of the next page; "": the first; NULL: there is none */
	void *seen;        /* all tokens so far, for tsearch(), which own `token` */
	struct sl_service_entry entry;
};

/* --------------------------------------------------------------------------------------- page */

struct page_wait {
	struct sl_piece piece;
	_Atomic uint32_t over;
};

static void page_over(struct sl_piece *piece)
{
	sl_flag_raise(&SL_CONTAINER(piece, struct page_wait, piece)->over);
}

/* Reads a body, and waits. Returns its length, at most the memory's; or -errno with a sentence. */
static int64_t page_fetch(struct sl_backend *backend, char *data, size_t length)
{
	struct page_wait read = {
		.piece = {.backend = backend, .data = data, .length = length, .done = page_over}};
	int rc;

	sl_http_body_submit(sl_http_of(backend)->body, &read.piece);
	/* Ended by page_over(). */
	sl_flag_await(&read.over);
	rc = sl_fail_with(read.piece.error, read.piece.message);
	free(read.piece.message);
	return rc ? rc : (int64_t)read.piece.moved;
}

static int page_compare_tokens(const void *a, const void *b)
{
	return strcmp(a, b);
}

/* Takes the next page's token, or NULL. Returns 0, -ENOMEM, or -EPROTO: it was there before. */
static int page_keep_token(struct object_listing *list, char *token)
{
	char **kept = token ? tsearch(token, &list->seen, page_compare_tokens) : &token;

	if (kept && *kept == token) {
		list->token = token;
		return 0;
	}
	free(token);
	return kept ? sl_fail(-EPROTO, "'%s': the server's list comes back to a page",
	                      list->uri.path)
	            : sl_fail(-ENOMEM, "no memory");
}

static int page_read(struct object_listing *list)
{
	struct sl_backend *backend;
	struct sl_service_page page;
	char *token, *query = NULL;
	int64_t n;

	/* If this page fails, the next call asks for it again. */
	list->page.at = list->body + PAGE_BYTES - 1;
	n = list->service->lists->query(list->uri.path, list->flags, list->token, &query);
	if (!n)
		n = sl_http_open_query(list->core, &list->uri, &list->options, query, &backend);
	free(query);
	if (n)
		return (int)n;
	n = page_fetch(backend, list->body, PAGE_BYTES - 1);
	sl_http_ops.close(backend);
	if (n == PAGE_BYTES - 1)
		return sl_fail(-EPROTO, "'%s': the server's list is too long", list->uri.path);
	if (n < 0)
		return (int)n;
	list->body[n] = '\0';
	n = list->service->lists->page(list->uri.path, list->flags, list->body, &page, &token);
	if (!n)
		n = page_keep_token(list, token);
	if (!n)
		list->page = page;
	return (int)n;
}

/* --------------------------------------------------------------------------------------- list */

static void listing_close(struct sl_listing *base)
{
	struct object_listing *list = SL_CONTAINER(base, struct object_listing, base);

	sl_uri_clear(&list->uri);
	tdestroy(list->seen, free);
	free(list->body);
	free(list);
}

static int listing_open(struct sl_core *core, const struct sl_uri *uri,
                        const struct sluice_open_options *options, unsigned flags,
                        struct sl_listing **out)
{
	struct object_listing *list = calloc(1, sizeof(*list));
	int rc;

	if (!list)
		return sl_fail(-ENOMEM, "no memory");
	list->base.ops = &sl_http_names;
	list->core = core;
	list->service = sl_http_keyring(core->http, uri->scheme)->service;
	list->options = *options;
	list->flags = flags;
	list->token = "";
	list->body = list->page.at = calloc(1, PAGE_BYTES);
	rc = list->body ? sl_uri_parse(uri->path, &list->uri) : sl_fail(-ENOMEM, "no memory");
	if (!rc)
		rc = page_read(list);
	/* The place of the objects is known now. */
	if (rc == -EREMOTE)
		rc = page_read(list);
	if (rc)
		listing_close(&list->base);
	else
		*out = &list->base;
	return rc;
}

static int listing_next(struct sl_listing *base, struct sluice_entry *out)
{
	struct object_listing *list = SL_CONTAINER(base, struct object_listing, base);
	struct sl_service_entry *entry = &list->entry;
	int rc;

	while (!(rc = list->service->lists->next(&list->page, entry)) && list->token &&
	       !(rc = page_read(list)))
		continue;
	if (rc <= 0)
		return rc;
	out->name = entry->name;
	out->is_prefix = entry->is_prefix;
	out->length = entry->length;
	out->modified_ns = entry->modified > 0 ? entry->modified * INT64_C(1000000000) : 0;
	out->etag = entry->etag;
	out->upload = entry->upload;
	return 1;
}

const struct sl_names_ops sl_http_names = {
	.list_open = listing_open,
	.list_next = listing_next,
	.list_close = listing_close,
	.remove = sl_http_remove,
	.remove_many = sl_http_remove_many,
	.drop = sl_http_drop,
	.copy = sl_http_copy,
	.presign = sl_http_presign,
};
