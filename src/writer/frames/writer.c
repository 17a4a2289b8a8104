/* SPDX-License-Identifier: Apache-2.0 */
/* A writer: opening and end; attributes and coordinates.
 * Threads: the program's; functions that run as commands: the file thread. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "frames/frames_internal.h"

#define CHECKPOINT_MS 1000
/* For metadata held back until a flush, of memory_bytes; besides each series', see
 * sl_h5_file_options. */
#define HELD_DIVISOR 16
#define HELD_LEAST   ((uint64_t)1 << 20)
#define HELD_MOST    ((uint64_t)16 << 20)

/* All writers, to recognise a closed handle, unless another writer has its address. */
static struct {
	struct sl_mutex mutex;
	struct sl_list list; /* guarded by mutex */
} writers = {SL_MUTEX_INIT, {&writers.list, &writers.list}};

static bool writer_exists(const struct sluice_writer *w)
{
	bool there = false;

	sl_mutex_lock(&writers.mutex);
	sl_list_each_of (known, &writers.list, const struct sluice_writer, link)
		there |= known == w;
	sl_mutex_unlock(&writers.mutex);
	return there;
}

/* -------------------------------------------------------------------------------------- open */

static int writer_check_options(const struct sluice_writer_options *o, bool shared)
{
	unsigned known = (SLUICE_WRITER_NODE_FILES << 1) - 1;

	if (o->flags & ~known)
		return sl_fail(-EINVAL, "writer options: unknown flags 0x%x", o->flags & ~known);
	if (o->flags & SLUICE_WRITER_REPLACE && o->flags & SLUICE_WRITER_APPEND)
		return sl_fail(-EINVAL, "writer options: both REPLACE and APPEND");
	if (o->flags & SLUICE_WRITER_NODE_FILES && !shared)
		return sl_fail(-EINVAL,
		               "writer options: NODE_FILES, and no ranks share this writer");
	if (o->mode & ~07777u)
		return sl_fail(-EINVAL, "writer options: mode 0%o is no permissions", o->mode);
	if (o->upload_ms < 0)
		return sl_fail(-EINVAL, "writer options: upload_ms is %d", o->upload_ms);
	if (o->threads > 1024)
		return sl_fail(-EINVAL, "writer options: %zu threads are too many", o->threads);
	return sl_h5_attributes_check(o->attributes, o->attribute_count);
}

/* Sets the local path, and for a file on a server the copy. */
static int writer_set_path(struct sluice_writer *w, const char *text,
                           const struct sluice_writer_options *o) SL_UNCHECKED
{
	struct sl_uri uri;
	char *name;
	int rc = sl_uri_parse(text, &uri);

	if (rc)
		return rc;
	if (!w->sink && sl_remote_copy_can(uri.scheme)) {
		rc = sl_remote_copy_new(w->ctx, text, o, &w->remote, &w->path);
	} else if (strcmp(uri.scheme, "file")) {
		name = sl_uri_name(text);
		rc = sl_fail(-EINVAL,
		             "'%s' is no local path%s: HDF5 goes back to the begin of a file, so "
		             "copy it there with sluice cp when it is closed",
		             name ? name : uri.scheme,
		             w->sink ? ", which ranks need" : ", nor s3:// or https://");
		free(name);
	} else {
		w->path = strdup(uri.path);
		rc = w->path ? 0 : sl_fail(-ENOMEM, "no memory");
	}
	sl_uri_clear(&uri);
	return rc;
}

/* Called by the file thread. */
static int file_open_run(struct sl_h5_file *none, void *argument)
{
	const struct sl_h5_file_options *options = argument;
	struct sluice_writer *w = options->argument;

	(void)none;
	return sl_h5_file_open(w->path, options, &w->file);
}

static int ask_file(struct sluice_writer *w, const struct sluice_writer_options *o) SL_UNCHECKED
{
	/* The name of a local file that is to be sent is new, and the file private. */
	struct sl_h5_file_options options = {.flags = w->remote ? o->flags & ~SLUICE_WRITER_REPLACE
	                                                        : o->flags,
	                                     .mode = w->remote && !o->mode ? 0600 : o->mode,
	                                     .held_limit = w->locked.bytes,
	                                     .full = sl_disk_full,
	                                     .argument = w,
	                                     .attributes = o->attributes,
	                                     .attribute_count = o->attribute_count};

	return sl_writer_ask(w, file_open_run, &options);
}

/* Runs a function between two frames. */
static int with_file(struct sluice_writer *w, int (*run)(struct sl_h5_file *file, void *argument),
                     void *argument)
{
	int rc = sl_context_check(w->ctx);

	if (rc)
		return rc;
	if (!w->sink)
		return sl_writer_ask(w, run, argument);
	rc = sl_writer_check(w);
	return rc ? rc : w->sink->ops->with_file(w->sink, run, argument);
}

uint64_t sl_writer_held_limit(uint64_t memory_bytes)
{
	return memory_bytes ? SL_MIN(SL_MAX(memory_bytes / HELD_DIVISOR, HELD_LEAST), HELD_MOST)
	                    : 0;
}

static void set_options(struct sluice_writer *w, const struct sluice_writer_options *o) SL_UNCHECKED
{
	w->flags = o->flags;
	w->threads = o->threads ? (unsigned)o->threads : sl_cores();
	w->memory_bytes = o->memory_bytes;
	/* The file is another's, with a sink. */
	if (!w->sink)
		w->locked.bytes = sl_writer_held_limit(o->memory_bytes);
	w->flush.checkpoint_frames = o->checkpoint_frames;
	w->disk.most_ns = o->full_disk_ms < 0 ? SL_FOREVER : (int64_t)o->full_disk_ms * 1000000;
	if (o->checkpoint_ms >= 0)
		w->flush.checkpoint_ns =
			(int64_t)(o->checkpoint_ms ? o->checkpoint_ms : CHECKPOINT_MS) * 1000000;
	/* These are for the process with the file. */
	if (w->sink)
		w->flush.checkpoint_frames = (uint64_t)(w->flush.checkpoint_ns = 0);
}

static void writer_free(struct sluice_writer *w) SL_UNCHECKED
{
	/* Files first: the engine's threads are done with the writer then. Then our threads. */
	sl_list_each_of (s, &w->queue.series, struct sluice_series, locked.link)
		sl_series_close(s);
	sl_pool_stop(w->pool);
	sl_list_each_of (s, &w->queue.series, struct sluice_series, locked.link)
		sl_series_free(s);
	sl_pool_free(w->pool);
	pthread_cond_destroy(&w->work);
	pthread_cond_destroy(&w->progress);
	sl_mutex_destroy(&w->adding);
	sl_mutex_destroy(&w->mutex);
	sl_failure_free(&w->failure);
	sl_remote_copy_free(w->remote);
	free(w->compressors);
	free(w->path);
	free(w);
}

static int writer_new(struct sluice_context *ctx, const char *path,
                      const struct sluice_writer_options *o, struct sl_sink *sink,
                      struct sluice_writer **out) SL_UNCHECKED
{
	struct sluice_writer *w = calloc(1, sizeof(*w));
	int rc;

	if (!w)
		return sl_fail(-ENOMEM, "no memory");
	w->ctx = ctx;
	w->sink = sink;
	set_options(w, o);
	sl_list_init(&w->queue.series);
	sl_list_init(&w->locked.packers);
	sl_list_init(&w->locked.commands);
	w->flush.dirty = true;
	w->flush.dirty_since = SL_FOREVER;
	sl_mutex_init(&w->mutex);
	sl_mutex_init(&w->adding);
	pthread_cond_init(&w->work, NULL);
	pthread_cond_init(&w->progress, NULL);
	rc = writer_set_path(w, path, o);
	w->compressors = calloc(w->threads, sizeof(*w->compressors));
	if (!rc && !w->compressors)
		rc = sl_fail(-ENOMEM, "no memory");
	if (!rc)
		rc = sl_compress_start(w);
	if (!rc)
		rc = sl_thread_start(&w->file_thread, "sluice-file", sl_file_thread_run, w);
	if (rc)
		writer_free(w);
	else
		*out = w;
	return rc;
}

/* Frees the writer after its file thread has ended and nothing is in flight. */
static void writer_retire(struct sluice_writer *w)
{
	struct sluice_context *ctx = w->ctx;

	pthread_join(w->file_thread, NULL);
	if (w->sink)
		w->sink->ops->free(w->sink);
	writer_free(w);
	sl_context_leave(ctx);
}

/* --------------------------------------------------------------------------------------- close */

static void start_closing_locked(struct sluice_writer *w, enum sl_closing how)
	SL_REQUIRES(&w->mutex)
{
	w->locked.closing = SL_MAX(w->locked.closing, how);
	if (w->sink && how == SL_DISCARDING)
		w->sink->ops->ended(w->sink, 0, NULL);
	if (w->remote && how == SL_DISCARDING)
		w->remote->discarded = w->remote->stop = true;
	pthread_cond_signal(&w->work);
	sl_list_each_of (s, &w->queue.series, struct sluice_series, locked.link)
		pthread_cond_broadcast(&s->freed);
}

/* Waits until the file thread has ended and nothing is in flight. False: that is not in time. */
static bool wait_for_end_locked(struct sluice_writer *w, int64_t deadline) SL_REQUIRES(&w->mutex)
{
	while (!w->locked.ended || w->queue.copies || w->queue.writes)
		if (sl_sink_wait(w->sink, &w->progress, &w->mutex, deadline))
			return w->locked.ended && !w->queue.copies && !w->queue.writes;
	return true;
}

static int close_writer(struct sluice_writer *w, enum sl_closing how, int64_t deadline)
{
	struct sl_rank_names names = {0};
	char message[1024] = "";
	bool over;
	int rc;

	sl_mutex_lock(&w->mutex);
	start_closing_locked(w, how);
	over = wait_for_end_locked(w, deadline);
	rc = w->failure.error;
	if (rc && w->remote && over && !access(w->path, F_OK))
		snprintf(message, sizeof(message), "%.500s; its frames are in '%s', which stays",
		         w->failure.message, w->path);
	else if (rc)
		snprintf(message, sizeof(message), "%s", w->failure.message);
	sl_mutex_unlock(&w->mutex);
	if (!over) {
		if (w->sink)
			w->sink->ops->unclosed(w->sink, &names);
		sl_rank_names_text(&names, message, sizeof(message));
		return sl_fail(-EINPROGRESS, "'%s' is not closed yet%s%s", w->path,
		               names.count ? ", and waits for " : "", names.count ? message : "");
	}
	sl_mutex_lock(&writers.mutex);
	sl_list_remove(&w->link);
	sl_mutex_unlock(&writers.mutex);
	writer_retire(w);
	return rc ? sl_fail(rc, "%s", message) : 0;
}

int sluice_writer_close(sluice_writer *w, int timeout_ms)
{
	int rc;

	if (!w)
		return 0;
	if (!writer_exists(w))
		return sl_fail(-EINVAL, "sluice_writer_close: there is no such writer");
	rc = sl_context_check(w->ctx);
	return rc ? rc : close_writer(w, SL_CLOSING, sl_deadline(timeout_ms));
}

void sluice_writer_discard(sluice_writer *w)
{
	if (w && writer_exists(w) && !sl_context_check(w->ctx))
		close_writer(w, SL_DISCARDING, SL_FOREVER);
}

int sl_writer_open_sink(struct sluice_context *ctx, const char *path,
                        const struct sluice_writer_options *o, struct sl_sink *sink,
                        struct sluice_writer **out)
{
	const struct sluice_writer_options usual = SLUICE_WRITER_OPTIONS_INIT;
	struct sluice_writer_options options = {0};
	struct sluice_writer *w = NULL;
	int rc = sl_context_check(ctx);

	if (rc)
		return rc;
	if (!path || !out)
		return sl_fail(-EINVAL, "sluice_writer_open: %s is NULL", path ? "out" : "path");
	rc = sl_struct_take("writer options", o ? o : &usual, &options, sizeof(options));
	if (!rc)
		rc = writer_check_options(&options, sink);
	if (!rc)
		rc = sl_h5_usable(options.flags);
	if (!rc)
		rc = writer_new(ctx, path, &options, sink, &w);
	if (rc)
		return rc;
	sl_context_enter(ctx);
	sl_fork_hold(&writers.mutex);
	sl_mutex_lock(&writers.mutex);
	sl_list_append(&writers.list, &w->link);
	sl_mutex_unlock(&writers.mutex);
	rc = sink ? 0 : ask_file(w, &options);
	if (rc) {
		char message[1024];

		snprintf(message, sizeof(message), "%s", sluice_last_message());
		close_writer(w, SL_DISCARDING, SL_FOREVER);
		return sl_fail(rc, "%s", message);
	}
	*out = w;
	return 0;
}

int sluice_writer_open(sluice_context *ctx, const char *path, const struct sluice_writer_options *o,
                       sluice_writer **out)
{
	return sl_writer_open_sink(ctx, path, o, NULL, out);
}

/* --------------------------------------------------------------------------------------- sinks */

struct sl_sink *sl_writer_sink(const struct sluice_writer *w)
{
	return w->sink;
}

const char *sl_writer_path(const struct sluice_writer *w)
{
	return w->path;
}

/* --------------------------------------------------------------------------------- attributes */

struct giving {
	struct sl_h5_dataset *dataset;
	const struct sluice_attribute *attributes;
	size_t count;
};

static int attributes_run(struct sl_h5_file *file, void *argument)
{
	struct giving *giving = argument;

	return sl_h5_attributes_give(file, giving->dataset, giving->attributes, giving->count);
}

int sluice_writer_attributes(sluice_writer *w, const struct sluice_attribute *attributes,
                             size_t count)
{
	struct giving giving = {NULL, attributes, count};

	if (!w)
		return sl_fail(-EINVAL, "sluice_writer_attributes: the writer is NULL");
	return with_file(w, attributes_run, &giving);
}

int sluice_series_attributes(sluice_series *s, const struct sluice_attribute *attributes,
                             size_t count)
{
	struct giving giving = {s ? s->dataset : NULL, attributes, count};

	if (!s)
		return sl_fail(-EINVAL, "sluice_series_attributes: the series is NULL");
	return with_file(s->writer, attributes_run, &giving);
}

/* --------------------------------------------------------------------------------- coordinates */

static int add_coordinate(struct sl_h5_file *file, void *coordinate)
{
	return sl_h5_coordinate_add(file, coordinate);
}

int sluice_writer_add_coordinate(sluice_writer *w, const char *name, int type, size_t count,
                                 const void *values, const struct sluice_attribute *attributes,
                                 size_t attribute_count)
{
	const struct sl_type *of = sl_type_find(type);
	struct sl_h5_coordinate c = {.name = name,
	                             .type = (enum sluice_type)type,
	                             .count = count,
	                             .values = values,
	                             .attributes = attributes,
	                             .attribute_count = attribute_count};

	if (!w || !name || !name[name[0] == '/'])
		return sl_fail(-EINVAL, "sluice_writer_add_coordinate: %s",
		               w ? "the coordinate has no name" : "the writer is NULL");
	if (!of || of->number > SL_REAL)
		return sl_fail(-EINVAL, "coordinate '%s': %d is no type of numbers", name, type);
	if (!values || !count || count > INT64_MAX / sl_type_bytes(of))
		return sl_fail(-EINVAL, "coordinate '%s': %zu values, %s", name, count,
		               values ? "and it needs one at least" : "and values is NULL");
	c.element = sl_type_bytes(of);
	return with_file(w, add_coordinate, &c);
}
