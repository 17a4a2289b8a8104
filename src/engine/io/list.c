/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Names: lists, removal, copies by servers, presigned URLs
 *
 * Checks what the caller asks, and hands it to the scheme of the name.
 *
 * Threads: those of the program, which wait for the server or for storage. A list has one user at a
 * time.
 */
#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "io/io_internal.h"

struct sluice_list {
	struct sluice_context *ctx;
	struct sl_listing *listing;
};

/* Functions of struct sl_names_ops, and the refusal of a name without it. */
static const struct {
	size_t member;
	const char *refused;
} name_ability[] = {
	{offsetof(struct sl_names_ops, list_open), "have lists"},
	{offsetof(struct sl_names_ops, remove), "are removed"},
	{offsetof(struct sl_names_ops, drop), "have uploads"},
	{offsetof(struct sl_names_ops, copy), "are copied by their server"},
	{offsetof(struct sl_names_ops, presign), "have presigned URLs"},
};
enum { LISTS, REMOVAL, UPLOADS, COPIES, URLS }; /* of that table */

static bool scheme_has(const struct sl_scheme *scheme, int ability)
{
	void (*function)(void) = NULL;

	if (scheme->names)
		memcpy(&function, (const char *)scheme->names + name_ability[ability].member,
		       sizeof(function));
	return function;
}

/* Returns -ENOTSUP, with the names that have the ability, and the URI without secrets. */
static int name_refuse(const char *uri, int ability)
{
	char able[160] = "", *name = sl_uri_name(uri);
	size_t n = 0;

	for (const struct sl_scheme *at = sl_schemes; at->scheme && n < sizeof(able); at++)
		if (scheme_has(at, ability))
			n += (size_t)snprintf(able + n, sizeof(able) - n, "%s%s", n ? " and " : "",
			                      ability == LISTS ? at->listed : at->things);
	sl_fail(-ENOTSUP, "'%s': only %s %s", name ? name : "the URI", able,
	        name_ability[ability].refused);
	free(name);
	return -ENOTSUP;
}

struct asked_name {
	struct sl_uri uri; /* to be cleared */
	const struct sl_scheme *scheme;
	struct sluice_open_options options; /* the caller's, or none; but for copies, to read */
};

/* Finds the scheme, which has the ability. Returns 0, or -errno with a sentence. */
static int name_find(const char *uri, int ability, const struct sluice_open_options *given,
                     struct asked_name *out)
{
	int rc = sl_file_find_scheme(uri, &out->uri, &out->scheme);

	out->options = (struct sluice_open_options){0};
	if (given)
		memcpy(&out->options, given, SL_MIN(given->size, sizeof(out->options)));
	if (ability != COPIES)
		out->options.flags = SLUICE_OPEN_READ;
	if (rc || scheme_has(out->scheme, ability))
		return rc;
	sl_uri_clear(&out->uri);
	return name_refuse(uri, ability);
}

/* -------------------------------------------------------------------------------------- lists */

int sluice_list_open(sluice_context *ctx, const char *uri, const struct sluice_open_options *o,
                     unsigned flags, sluice_list **out)
{
	const unsigned known = SLUICE_LIST_RECURSIVE | SLUICE_LIST_UPLOADS;
	struct asked_name name;
	int rc = sl_context_check(ctx);

	if (rc)
		return rc;
	if (!uri || !out)
		return sl_fail(-EINVAL, "sluice_list_open: %s is NULL", uri ? "out" : "uri");
	if (flags & ~known)
		return sl_fail(-EINVAL, "sluice_list_open: unknown flags 0x%x", flags & ~known);
	rc = name_find(uri, LISTS, o, &name);
	if (rc)
		return rc;
	struct sluice_list *list = calloc(1, sizeof(*list));
	if (!list)
		rc = sl_fail(-ENOMEM, "no memory");
	else if (flags & SLUICE_LIST_UPLOADS && !name.scheme->names->drop)
		rc = name_refuse(uri, UPLOADS);
	else
		rc = name.scheme->names->list_open(&ctx->core, &name.uri, &name.options, flags,
		                                   &list->listing);
	sl_uri_clear(&name.uri);
	if (rc) {
		free(list);
		return rc;
	}
	list->ctx = ctx;
	*out = list;
	return 0;
}

int sluice_list_next(sluice_list *list, struct sluice_entry *out)
{
	struct sluice_entry entry = {0};

	if (!list || !out || out->size < sizeof(out->size))
		return sl_fail(-EINVAL, "sluice_list_next: no list, or out->size is not set");
	int rc = sl_context_check(list->ctx);
	if (!rc)
		rc = list->listing->ops->list_next(list->listing, &entry);
	if (rc > 0)
		sl_struct_give(out, &entry, sizeof(entry));
	return rc;
}

void sluice_list_free(sluice_list *list)
{
	if (!list || !sl_process_is(list->ctx->process))
		return;
	list->listing->ops->list_close(list->listing);
	free(list);
}

/* ------------------------------------------------------------------------------------ removal */

int sluice_remove(sluice_context *ctx, const char *uri, const struct sluice_open_options *o,
                  const char *upload)
{
	struct asked_name name;
	int rc = sl_context_check(ctx);

	if (rc)
		return rc;
	if (!uri)
		return sl_fail(-EINVAL, "sluice_remove: uri is NULL");
	rc = name_find(uri, REMOVAL, o, &name);
	if (rc)
		return rc;
	const struct sl_names_ops *ops = name.scheme->names;
	rc = !upload     ? ops->remove(&ctx->core, &name.uri, &name.options)
	     : ops->drop ? ops->drop(&ctx->core, &name.uri, &name.options, upload)
	                 : name_refuse(uri, UPLOADS);
	sl_uri_clear(&name.uri);
	return rc;
}

/* Removes what the URIs name, where a scheme can, together those that follow each other. */
static void names_remove(struct sluice_context *ctx, const struct sl_scheme *const *schemes,
                         const char *const *uris, size_t count,
                         const struct sluice_open_options *options, int *errors, char **messages)
{
	for (size_t i = 0, end; i < count; i = end) {
		end = i + 1;
		if (!schemes[i]->names->remove_many) {
			errors[i] = sluice_remove(ctx, uris[i], options, NULL);
			messages[i] = errors[i] ? strdup(sluice_last_message()) : NULL;
			continue;
		}
		while (end < count && schemes[end] == schemes[i])
			end++;
		schemes[i]->names->remove_many(&ctx->core, schemes[i]->scheme, uris + i, end - i,
		                               options, errors + i, messages + i);
	}
}

/* Finds the schemes of all URIs, and the options. Returns 0, or -errno with a sentence. */
static int names_check(const char *const *uris, size_t count, const struct sluice_open_options *o,
                       const struct sl_scheme **schemes, struct asked_name *name)
{
	int rc = 0;

	for (size_t i = 0; !rc && i < count; i++) {
		if (!uris || !uris[i])
			return sl_fail(-EINVAL, "sluice_remove_many: a URI is NULL");
		rc = name_find(uris[i], REMOVAL, o, name);
		schemes[i] = name->scheme;
		if (!rc)
			sl_uri_clear(&name->uri);
	}
	return rc;
}

int sluice_remove_many(sluice_context *ctx, const char *const *uris, size_t count,
                       const struct sluice_open_options *o, int *errors, char **messages)
{
	const struct sl_scheme **schemes = NULL;
	struct asked_name name = {0};
	int *own = NULL, rc = sl_context_check(ctx);
	char **texts = NULL;

	if (rc)
		return rc;
	if (!(schemes = calloc(count + 1, sizeof(*schemes))) ||
	    (!errors && !(errors = own = calloc(count + 1, sizeof(*errors)))) ||
	    (!messages && !(messages = texts = calloc(count + 1, sizeof(*messages)))))
		rc = sl_fail(-ENOMEM, "no memory");
	if (!rc)
		rc = names_check(uris, count, o, schemes, &name);
	if (!rc) {
		memset(messages, 0, count * sizeof(*messages));
		names_remove(ctx, schemes, uris, count, &name.options, errors, messages);
		for (size_t i = 0; !rc && i < count; i++)
			if ((rc = errors[i]))
				sl_fail(rc, "'%s' was not removed: %s", uris[i],
				        messages[i] ? messages[i] : sl_error_text(rc));
		for (size_t i = 0; texts && i < count; i++)
			free(texts[i]);
	}
	free(texts);
	free(own);
	free(schemes);
	return rc;
}

/* ----------------------------------------------------------------------------------- requests */

int sluice_copy_object(sluice_context *ctx, const char *from, const char *to,
                       const struct sluice_open_options *o)
{
	struct asked_name source, target;
	int rc = sl_context_check(ctx);

	if (rc)
		return rc;
	if (!from || !to)
		return sl_fail(-EINVAL, "sluice_copy_object: %s is NULL", from ? "to" : "from");
	rc = name_find(from, COPIES, o, &source);
	if (rc)
		return rc;
	rc = name_find(to, COPIES, o, &target);
	if (!rc) {
		rc = source.scheme == target.scheme
		             ? source.scheme->names->copy(&ctx->core, &source.uri, &target.uri,
		                                          &target.options)
		             : sl_fail(-ENOTSUP, "'%s' and '%s' are of two services", from, to);
		sl_uri_clear(&target.uri);
	}
	sl_uri_clear(&source.uri);
	return rc;
}

int sluice_presign(sluice_context *ctx, const char *method, const char *uri,
                   const struct sluice_open_options *o, unsigned seconds, char **url,
                   int64_t *end_ns)
{
	static const char *const methods[] = {"GET", "HEAD", "PUT", "DELETE"};
	struct asked_name name;
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
	rc = name_find(uri, URLS, o, &name);
	if (rc)
		return rc;
	rc = name.scheme->names->presign(&ctx->core, &name.uri, &name.options, method, seconds, url,
	                                 end_ns);
	sl_uri_clear(&name.uri);
	return rc;
}
