/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files
 *
 * Opens and closes files, and finds the object that all files with the same bytes share. Public
 * calls on the application's threads; close waits for operations.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "io/io_internal.h"

/* ----------------------------------------------------------------------------------- objects */

static struct sl_list *object_bucket(struct sluice_context *ctx, const char *identity) SL_UNCHECKED
{
	uint64_t hash = UINT64_C(14695981039346656037); /* FNV-1a */

	for (const char *c = identity; *c; c++)
		hash = (hash ^ (unsigned char)*c) * UINT64_C(1099511628211);
	return &ctx->files.objects[hash % SL_OBJECT_BUCKETS];
}

static struct sl_object *object_acquire(struct sluice_context *ctx, struct sl_backend *backend)
{
	char *identity = backend->ops->identity(backend);
	struct sl_object *object = NULL;

	if (!identity)
		return NULL;
	struct sl_list *bucket = object_bucket(ctx, identity);
	sl_mutex_lock(&ctx->files.mutex);
	sl_list_each_of (known, bucket, struct sl_object, link)
		if (!strcmp(known->identity, identity))
			object = known;
	if (!object && (object = calloc(1, sizeof(*object)))) {
		sl_object_init(object, identity);
		sl_list_append(bucket, &object->link);
		identity = NULL;
	}
	if (object)
		object->references++;
	sl_mutex_unlock(&ctx->files.mutex);
	free(identity);
	return object;
}

static void object_release(struct sluice_context *ctx, struct sl_object *object)
{
	if (!object)
		return;
	sl_mutex_lock(&ctx->files.mutex);
	bool last = !--object->references;
	if (last)
		sl_list_remove(&object->link);
	sl_mutex_unlock(&ctx->files.mutex);
	if (last) {
		sl_object_destroy(object);
		free(object);
	}
}

/* -------------------------------------------------------------------------------------- open */

int sluice_uri_name(const char *uri, char *text, size_t size)
{
	if (!uri || (!text && size))
		return sl_fail(-EINVAL, "sluice_uri_name: %s is NULL", uri ? "text" : "uri");
	char *name = sl_uri_name(uri);
	if (!name)
		return sl_fail(-ENOMEM, "no memory");
	int length = snprintf(text, size, "%s", name);
	free(name);
	return length;
}

static int file_check_options(struct sluice_open_options *o)
{
	unsigned known = (SLUICE_OPEN_MANY << 1) - 1;

	if (!o->flags)
		o->flags = SLUICE_OPEN_READ;
	if (o->flags & ~known)
		return sl_fail(-EINVAL, "open options: unknown flags 0x%x", o->flags & ~known);
	if (o->flags & SLUICE_OPEN_REPLACE)
		o->flags |= SLUICE_OPEN_WRITE | SLUICE_OPEN_CREATE;
	if (!(o->flags & (SLUICE_OPEN_READ | SLUICE_OPEN_WRITE)))
		return sl_fail(-EINVAL, "open options: neither READ nor WRITE");
	if (!(o->flags & SLUICE_OPEN_WRITE) &&
	    (o->flags & (SLUICE_OPEN_CREATE | SLUICE_OPEN_TRUNCATE) ||
	     (o->expected_size && !o->first_bytes)))
		return sl_fail(-EINVAL,
		               "open options: CREATE, TRUNCATE and expected_size need WRITE");
	if (o->part && (!(o->flags & SLUICE_OPEN_REPLACE) || strchr(o->part, '/')))
		return sl_fail(-EINVAL,
		               "open options: a part needs REPLACE, and a name without '/'");
	if (o->flags & SLUICE_OPEN_EXCLUSIVE && !(o->flags & SLUICE_OPEN_CREATE))
		return sl_fail(-EINVAL, "open options: EXCLUSIVE needs CREATE or REPLACE");
	if (o->dataset && o->flags & SLUICE_OPEN_WRITE)
		return sl_fail(-EINVAL, "open options: a dataset is only read");
	if (o->mode & ~07777u)
		return sl_fail(-EINVAL, "open options: mode 0%o is no permissions", o->mode);
	if (o->first_bytes > SLUICE_FIRST_BYTES)
		return sl_fail(-EINVAL,
		               "open options: first_bytes %" PRIu64
		               " is more than SLUICE_FIRST_BYTES",
		               o->first_bytes);
	if (o->expected_size > INT64_MAX)
		return sl_fail(-EINVAL,
		               "open options: expected_size %" PRIu64 " is beyond INT64_MAX",
		               o->expected_size);
	return 0;
}

int sl_file_copy_options(const struct sluice_open_options *from, struct sluice_open_options *to)
{
	*to = (struct sluice_open_options){0};
	int rc = sl_struct_take("open options", from, to, sizeof(*to));

	return rc ? rc : file_check_options(to);
}

/* Returns -EPROTONOSUPPORT, with the schemes that are known. */
static int file_refuse_scheme(const char *uri)
{
	char known[160] = "paths", *name = sl_uri_name(uri);
	size_t n = strlen(known);

	for (const struct sl_scheme *scheme = sl_schemes; scheme->scheme && n < sizeof(known);
	     scheme++)
		n += (size_t)snprintf(known + n, sizeof(known) - n, "%s%s://",
		                      scheme[1].scheme ? ", " : " and ", scheme->scheme);
	sl_fail(-EPROTONOSUPPORT, "'%s': unknown scheme '%.*s'; this build knows %s",
	        name ? name : "the URI", (int)strcspn(uri, ":"), uri, known);
	free(name);
	return -EPROTONOSUPPORT;
}

int sl_file_find_scheme(const char *uri, struct sl_uri *parsed, const struct sl_scheme **out)
{
	const struct sl_scheme *scheme = sl_schemes;
	int rc = sl_uri_parse(uri, parsed);

	if (rc)
		return rc == -EPROTONOSUPPORT ? file_refuse_scheme(uri) : rc;
	while (scheme->scheme && strcmp(scheme->scheme, parsed->scheme))
		scheme++;
	*out = scheme;
	if (scheme->scheme)
		return 0;
	sl_uri_clear(parsed);
	return file_refuse_scheme(uri);
}

int sl_file_open_backend(struct sluice_context *ctx, const char *uri,
                         const struct sluice_open_options *options, struct sl_opening *opening,
                         struct sl_backend **out)
{
	const struct sl_scheme *scheme = NULL;
	struct sl_uri parsed;
	int rc = sl_file_find_scheme(uri, &parsed, &scheme);

	if (rc)
		return rc;
	const struct sl_backend_ops *ops = options->dataset ? sl_dataset_ops : scheme->ops;
	if (options->part && strcmp(parsed.scheme, "file"))
		rc = sl_fail(-ENOTSUP, "open options: only a local file has a part");
	else if (opening && out)
		rc = ops->open_in(&ctx->core, &parsed, options, opening, out);
	else if (!opening)
		rc = ops->open(&ctx->core, &parsed, options, out);
	else if (!ops->open_start)
		rc = -EAGAIN;
	else if ((opening->ops = ops))
		rc = ops->open_start(&ctx->core, &parsed, options, opening);
	sl_uri_clear(&parsed);
	return rc;
}

/* No other thread knows the file, or knows it any more. */
static void file_destroy(struct sluice_file *file) SL_UNCHECKED
{
	object_release(file->ctx, file->object);
	if (file->backend)
		file->backend->ops->close(file->backend);
	sl_mutex_destroy(&file->mutex);
	free(file->locked.untold.message);
	free(file->locked.failed.message);
	free(file->uri);
	free(file);
}

/* No other thread knows the file yet. */
int sl_file_wrap(struct sluice_context *ctx, const char *name, unsigned flags,
                 struct sl_backend *backend, struct sluice_file **out) SL_UNCHECKED
{
	struct sluice_file *file = calloc(1, sizeof(*file));

	if (!file) {
		backend->ops->close(backend);
		return sl_fail(-ENOMEM, "no memory");
	}
	sl_mutex_init(&file->mutex);
	sl_list_init(&file->locked.unprepared);
	sl_list_init(&file->locked.batch);
	file->ctx = ctx;
	file->flags = flags;
	file->backend = backend;
	file->uri = sl_uri_name(name);
	file->object = file->uri ? object_acquire(ctx, backend) : NULL;
	if (!file->object) {
		file_destroy(file);
		return sl_fail(-ENOMEM, "no memory");
	}
	backend->ops->limits(backend, &file->limits);
	sl_context_enter(ctx);
	*out = file;
	return 0;
}

int sluice_open(sluice_context *ctx, const char *uri, const struct sluice_open_options *o,
                sluice_file **out)
{
	struct sluice_open_options options;
	struct sl_backend *backend;
	int rc = sl_context_check(ctx);

	if (rc)
		return rc;
	if (!uri || !out)
		return sl_fail(-EINVAL, "sluice_open: %s is NULL", uri ? "out" : "uri");
	rc = sl_file_copy_options(o, &options);
	if (rc)
		return rc;
	rc = sl_file_open_backend(ctx, uri, &options, NULL, &backend);
	return rc ? rc : sl_file_wrap(ctx, uri, options.flags, backend, out);
}

/* ------------------------------------------------------------------------------------- close */

static void file_keep(struct sl_file_error *kept, const struct sluice_op *op)
{
	if (kept->error)
		return;
	kept->error = (int)op->result;
	kept->message = op->message ? strdup(op->message) : NULL;
}

/* Returns true for a truncate that this kind of file never allows: the file lacks nothing. */
static bool file_is_refused(const struct sluice_op *op)
{
	return op->kind == SL_TRUNCATE && (op->result == -ENOTSUP || op->result == -EPERM);
}

void sl_file_keep_error(struct sluice_file *file, const struct sluice_op *op)
{
	sl_mutex_lock(&file->mutex);
	if (op->detached)
		file_keep(&file->locked.untold, op);
	if (op->kind != SL_READ && !file_is_refused(op))
		file_keep(&file->locked.failed, op);
	sl_mutex_unlock(&file->mutex);
}

int sl_file_take_error(struct sluice_file *file, bool failed)
{
	struct sl_file_error *kept;

	sl_mutex_lock(&file->mutex);
	kept = failed && file->locked.failed.error ? &file->locked.failed : &file->locked.untold;
	int error = kept->error;
	if (error)
		sl_fail(error, "%s", kept->message ? kept->message : sl_error_text(error));
	free(kept->message);
	*kept = (struct sl_file_error){0};
	sl_mutex_unlock(&file->mutex);
	return error;
}

void sl_file_release(struct sluice_file *file)
{
	if (atomic_fetch_sub(&file->in_flight, 1) == (SL_FILE_CLOSING | 1))
		sl_flag_raise(&file->drained);
}

static void file_drain(struct sluice_file *file)
{
	if (!atomic_fetch_or(&file->in_flight, SL_FILE_CLOSING))
		return;
	/* sl_file_release() at the end of the file's last operation ends the wait. */
	sl_flag_await(&file->drained);
}

static void file_forget(struct sluice_file *file)
{
	struct sluice_context *ctx = file->ctx;

	file_destroy(file);
	sl_context_leave(ctx);
}

int sluice_close(sluice_file *file)
{
	int rc, error;

	if (!file)
		return 0;
	rc = sl_context_check(file->ctx);
	if (rc)
		return rc;
	file_drain(file);
	/* A file that lacks bytes gets no name, even if that error has been returned before. */
	bool whole = file->flags & SLUICE_OPEN_REPLACE || file->limits.all_or_none;
	error = sl_file_take_error(file, whole);
	if (!error || !whole) {
		rc = file->backend->ops->commit(file->backend);
		error = error ? error : rc;
	}
	file_forget(file);
	return error;
}

void sluice_discard(sluice_file *file)
{
	if (!file || !sl_process_is(file->ctx->process))
		return;
	file_drain(file);
	file_forget(file);
}

/* -------------------------------------------------------------------------------------- stat */

const char *sl_file_name(const struct sluice_file *file)
{
	return file->uri;
}

struct sl_backend *sl_file_backend(const struct sluice_file *file)
{
	return file->backend;
}

struct sluice_context *sl_file_context(const struct sluice_file *file)
{
	return file->ctx;
}

int sluice_stat(sluice_file *file, struct sluice_file_info *out)
{
	struct sluice_file_info stat = {.device = -1};

	if (!file || !out)
		return sl_fail(-EINVAL, "sluice_stat: %s is NULL", file ? "out" : "file");
	int rc = sl_context_check(file->ctx);
	if (rc)
		return rc;
	if (out->size < sizeof(out->size))
		return sl_fail(-EINVAL, "sluice_stat: out->size is not set");
	rc = file->backend->ops->stat(file->backend, &stat);
	if (rc)
		return rc;
	sl_struct_give(out, &stat, sizeof(stat));
	return 0;
}
