/* SPDX-License-Identifier: Apache-2.0 */
/* A writer from its opening to its end, and the calls that wait for its file thread. Called by
 * the program's threads. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "frames/frames_internal.h"

#define CHECKPOINT_MS 1000
/* The part of memory_bytes for metadata that is held back until a flush, besides that of each
 * series; see sl_h5_file_options. */
#define HELD_PART  16
#define HELD_LEAST ((uint64_t)1 << 20)
#define HELD_MOST  ((uint64_t)16 << 20)

/* All writers of the process, so that a closed handle can be recognised, unless another writer
 * has its address. */
static struct {
	struct sl_mutex mutex;
	struct sl_list list; /* guarded by mutex */
} writers = {SL_MUTEX_INIT, {&writers.list, &writers.list}};

static char message_lost[] = "the writer has failed, and there was no memory to say why";

static bool writer_exists(const struct sluice_writer *w)
{
	bool there = false;

	sl_mutex_lock(&writers.mutex);
	sl_list_each_of (known, &writers.list, const struct sluice_writer, link)
		there |= known == w;
	sl_mutex_unlock(&writers.mutex);
	return there;
}

/* ------------------------------------------------------------------------------------ waiting */

int sl_writer_check_locked(const struct sluice_writer *w)
{
	if (w->locked.failure.error)
		return sl_fail(w->locked.failure.error, "%s", w->locked.failure.message);
	if (w->locked.closing)
		return sl_fail(-EINVAL, "'%s' is being closed", w->path);
	return 0;
}

/* Returns the thread's sentence with its stage and frame. */
static char *failure_describe_locked(const struct sluice_writer *w, const char *stage,
                                     const struct sl_frame *frame) SL_REQUIRES(&w->mutex)
{
	char *text =
		frame ? sl_format("cannot %s frame %" PRIu64 " of '%s': %s", stage,
	                          frame->locked.number, frame->series->name, sluice_last_message())
		      : sl_format("cannot %s '%s': %s", stage, w->path, sluice_last_message());

	return text ? text : message_lost;
}

/* Takes the message, which is the writer's. */
static void failure_keep_locked(struct sluice_writer *w, int error, const char *stage,
                                const struct sl_frame *frame, char *message) SL_REQUIRES(&w->mutex)
{
	w->locked.failure.error = error;
	w->locked.failure.stage = stage;
	w->locked.failure.series = frame ? frame->series : NULL;
	w->locked.failure.frame = frame ? frame->locked.number : 0;
	w->locked.failure.message = message;
	if (w->sink)
		w->sink->ops->ended(w->sink, error, message);
	sl_list_each_of (s, &w->locked.series, struct sluice_series, locked.link)
		pthread_cond_broadcast(&s->freed);
	pthread_cond_broadcast(&w->progress);
	pthread_cond_signal(&w->work);
}

void sl_writer_fail_locked(struct sluice_writer *w, int error, const char *stage,
                           const struct sl_frame *frame)
{
	if (!w->locked.failure.error)
		failure_keep_locked(w, error, stage, frame,
		                    failure_describe_locked(w, stage, frame));
}

void sl_writer_fail(struct sluice_writer *w, int error, const char *sentence)
{
	char *message = strdup(sentence);

	sl_mutex_lock(&w->mutex);
	if (!w->locked.failure.error) {
		failure_keep_locked(w, error, "store", NULL, message ? message : message_lost);
		message = NULL;
	}
	sl_mutex_unlock(&w->mutex);
	free(message);
}

void sl_writer_pump(struct sluice_writer *w)
{
	if (w->sink && w->sink->pumped)
		w->sink->ops->pump(w->sink);
}

#define PUMP_NS ((int64_t)200000) /* between two calls of a sink that needs calls */

int sl_writer_wait_locked(struct sluice_writer *w, pthread_cond_t *condition, int64_t deadline)
{
	int64_t until = deadline;

	if (w->sink && w->sink->pumped) {
		sl_mutex_unlock(&w->mutex);
		sl_writer_pump(w);
		sl_mutex_lock(&w->mutex);
		until = SL_MIN(deadline, sl_now() + PUMP_NS);
	}
	return sl_cond_wait(condition, &w->mutex, until) && until == deadline ? -ETIMEDOUT : 0;
}

int sl_writer_ask(struct sluice_writer *w, int (*run)(struct sluice_writer *w, void *argument),
                  void *argument)
{
	struct sl_file_command command = {.run = run, .argument = argument};
	int rc;

	sl_mutex_lock(&w->mutex);
	sl_list_append(&w->locked.commands, &command.link);
	pthread_cond_signal(&w->work);
	/* Ended by the file thread or its end. A command that has begun is awaited, because it
	 * is on this thread's stack. */
	while (!command.done && !w->locked.ended &&
	       !(sl_list_linked(&command.link) && sl_writer_check_locked(w)))
		sl_cond_wait(&w->progress, &w->mutex, SL_FOREVER);
	if (command.done) {
		rc = command.result ? sl_fail(command.result, "%s", command.message) : 0;
	} else {
		if (sl_list_linked(&command.link))
			sl_list_remove(&command.link);
		rc = sl_writer_check_locked(w);
	}
	sl_mutex_unlock(&w->mutex);
	return rc;
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
	if (o->threads > 1024)
		return sl_fail(-EINVAL, "writer options: %zu threads are too many", o->threads);
	return sl_h5_attributes_check(o->attributes, o->attribute_count);
}

static int writer_local_path(const char *text, char **out)
{
	struct sl_uri uri;
	char *name;
	int rc = sl_uri_parse(text, &uri);

	if (rc)
		return rc;
	if (strcmp(uri.scheme, "file")) {
		name = sl_uri_name(text);
		rc = sl_fail(-EINVAL,
		             "'%s' is no local path: HDF5 goes back to the begin of a file, so "
		             "copy it there with sluice cp when it is closed",
		             name ? name : uri.scheme);
		free(name);
	} else {
		*out = strdup(uri.path);
	}
	sl_uri_clear(&uri);
	return rc ? rc : *out ? 0 : sl_fail(-ENOMEM, "no memory");
}

/* Called by the file thread. */
static int file_open_run(struct sluice_writer *w, void *options)
{
	return sl_h5_file_open(w->path, options, &w->file);
}

static int ask_file(struct sluice_writer *w, const struct sluice_writer_options *o) SL_UNCHECKED
{
	struct sl_h5_file_options options = {.flags = o->flags,
	                                     .mode = o->mode,
	                                     .held_limit = w->locked.bytes,
	                                     .full = sl_file_thread_full,
	                                     .argument = w,
	                                     .attributes = o->attributes,
	                                     .attribute_count = o->attribute_count};

	return sl_writer_ask(w, file_open_run, &options);
}

struct file_call {
	int (*run)(struct sl_h5_file *file, void *argument);
	void *argument;
};

/* Called by the file thread. */
static int file_call_run(struct sluice_writer *w, void *argument)
{
	struct file_call *call = argument;

	return call->run(w->file, call->argument);
}

/* Runs a function between two frames. */
static int with_file(struct sluice_writer *w, int (*run)(struct sl_h5_file *file, void *argument),
                     void *argument)
{
	struct file_call call = {run, argument};
	int rc = sl_context_check(w->ctx);

	if (rc)
		return rc;
	if (!w->sink)
		return sl_writer_ask(w, file_call_run, &call);
	rc = sl_writer_check(w);
	return rc ? rc : w->sink->ops->with_file(w->sink, run, argument);
}

uint64_t sl_writer_held_limit(uint64_t memory_bytes)
{
	return memory_bytes ? SL_MIN(SL_MAX(memory_bytes / HELD_PART, HELD_LEAST), HELD_MOST) : 0;
}

static void set_options(struct sluice_writer *w, const struct sluice_writer_options *o) SL_UNCHECKED
{
	w->flags = o->flags;
	w->threads = o->threads ? (unsigned)o->threads : sl_cores();
	w->memory_bytes = o->memory_bytes;
	/* The file is another's, with a sink. */
	if (!w->sink)
		w->locked.bytes = sl_writer_held_limit(o->memory_bytes);
	w->checkpoint_frames = o->checkpoint_frames;
	w->full_ns = o->full_disk_ms < 0 ? SL_FOREVER : (int64_t)o->full_disk_ms * 1000000;
	if (o->checkpoint_ms >= 0)
		w->checkpoint_ns =
			(int64_t)(o->checkpoint_ms ? o->checkpoint_ms : CHECKPOINT_MS) * 1000000;
	/* These are of the process that has the file. */
	if (w->sink)
		w->checkpoint_frames = (uint64_t)(w->checkpoint_ns = 0);
}

static void writer_free(struct sluice_writer *w) SL_UNCHECKED
{
	/* Files first: their ends are the last that others do. Then the threads that made them. */
	sl_list_each_of (s, &w->locked.series, struct sluice_series, locked.link)
		sl_series_close(s);
	sl_pool_stop(w->pool);
	sl_list_each_of (s, &w->locked.series, struct sluice_series, locked.link)
		sl_series_free(s);
	sl_pool_free(w->pool);
	pthread_cond_destroy(&w->work);
	pthread_cond_destroy(&w->progress);
	sl_mutex_destroy(&w->adding);
	sl_mutex_destroy(&w->mutex);
	if (w->locked.failure.message != message_lost)
		free(w->locked.failure.message);
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
	sl_list_init(&w->locked.series);
	sl_list_init(&w->locked.packers);
	sl_list_init(&w->locked.commands);
	w->locked.dirty = true;
	w->locked.dirty_since = SL_FOREVER;
	sl_mutex_init(&w->mutex);
	sl_mutex_init(&w->adding);
	pthread_cond_init(&w->work, NULL);
	pthread_cond_init(&w->progress, NULL);
	rc = writer_local_path(path, &w->path);
	w->compressors = calloc(w->threads, sizeof(*w->compressors));
	if (!rc && !w->compressors)
		rc = sl_fail(-ENOMEM, "no memory");
	if (!rc)
		rc = sl_compress_start(w);
	if (!rc)
		rc = sl_thread_start(&w->file_thread, "sluice-file", sl_file_thread_run, w);
	if (rc) {
		writer_free(w);
		return rc;
	}
	*out = w;
	return 0;
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

/* -------------------------------------------------------------------------------- flush, close */

static void ask_flush_locked(struct sluice_writer *w) SL_REQUIRES(&w->mutex)
{
	if (!w->locked.flush_wanted)
		w->locked.flush_cut = w->locked.sequence;
	w->locked.flush_last = w->locked.sequence;
	w->locked.flush_wanted = true;
	pthread_cond_signal(&w->work);
}

int sluice_writer_flush(sluice_writer *w, int timeout_ms)
{
	int64_t deadline = sl_deadline(timeout_ms);
	uint64_t cut, flushes;
	bool wait;
	int rc = w ? sl_context_check(w->ctx)
	           : sl_fail(-EINVAL, "sluice_writer_flush: the writer is NULL");

	if (rc)
		return rc;
	sl_mutex_lock(&w->mutex);
	rc = sl_writer_check_locked(w);
	cut = w->locked.sequence;
	flushes = w->locked.flushes;
	wait = !rc && (w->locked.dirty || w->locked.flushed < cut);
	if (wait)
		ask_flush_locked(w);
	/* Ended by a flush behind those frames, by the failure or the end of the writer, or the
	 * deadline. */
	while (!rc && wait) {
		bool late = sl_writer_wait_locked(w, &w->progress, deadline);

		/* A flush that began before the request counts if it has those frames:
		 * everything else was there before it. */
		wait = w->locked.flushed < cut || w->locked.flushes <= flushes;
		if (wait && late)
			rc = sl_fail(-EINPROGRESS, "'%s' is not flushed yet", w->path);
		else if (wait)
			rc = sl_writer_check_locked(w);
	}
	sl_mutex_unlock(&w->mutex);
	return rc;
}

static void start_closing_locked(struct sluice_writer *w, enum sl_closing how)
	SL_REQUIRES(&w->mutex)
{
	w->locked.closing = SL_MAX(w->locked.closing, how);
	if (w->sink && how == SL_DISCARDING)
		w->sink->ops->ended(w->sink, 0, NULL);
	pthread_cond_signal(&w->work);
	sl_list_each_of (s, &w->locked.series, struct sluice_series, locked.link)
		pthread_cond_broadcast(&s->freed);
}

/* Waits until the file thread has ended and nothing is in flight. Returns false if the deadline
 * passes first. */
static bool wait_for_end_locked(struct sluice_writer *w, int64_t deadline) SL_REQUIRES(&w->mutex)
{
	while (!w->locked.ended || w->locked.copies || w->locked.writes)
		if (sl_writer_wait_locked(w, &w->progress, deadline))
			return w->locked.ended && !w->locked.copies && !w->locked.writes;
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
	rc = w->locked.failure.error;
	if (rc)
		snprintf(message, sizeof(message), "%s", w->locked.failure.message);
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

static int writer_open(struct sluice_context *ctx, const char *path,
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
	if (o && o->size < sizeof(o->size))
		return sl_fail(-EINVAL, "writer options: size is not set");
	o = o ? o : &usual;
	memcpy(&options, o, SL_MIN(o->size, sizeof(options)));
	rc = writer_check_options(&options, sink);
	if (!rc)
		rc = sl_h5_usable(options.flags);
	if (!rc)
		rc = writer_new(ctx, path, &options, sink, &w);
	if (rc)
		return rc;
	sl_context_enter(ctx);
	rc = sink ? 0 : ask_file(w, &options);
	if (rc) {
		char message[1024];

		snprintf(message, sizeof(message), "%s", sluice_last_message());
		sl_mutex_lock(&w->mutex);
		w->locked.closing = SL_DISCARDING;
		pthread_cond_signal(&w->work);
		wait_for_end_locked(w, SL_FOREVER);
		sl_mutex_unlock(&w->mutex);
		writer_retire(w);
		return sl_fail(rc, "%s", message);
	}
	sl_fork_hold(&writers.mutex);
	sl_mutex_lock(&writers.mutex);
	sl_list_append(&writers.list, &w->link);
	sl_mutex_unlock(&writers.mutex);
	*out = w;
	return 0;
}

int sluice_writer_open(sluice_context *ctx, const char *path, const struct sluice_writer_options *o,
                       sluice_writer **out)
{
	return writer_open(ctx, path, o, NULL, out);
}

/* --------------------------------------------------------------------------------------- sinks */

int sl_writer_open_sink(struct sluice_context *ctx, const char *path,
                        const struct sluice_writer_options *o, struct sl_sink *sink,
                        struct sluice_writer **out)
{
	return writer_open(ctx, path, o, sink, out);
}

struct sl_sink *sl_writer_sink(const struct sluice_writer *w)
{
	return w->sink;
}

const char *sl_writer_path(const struct sluice_writer *w)
{
	return w->path;
}

int sl_writer_check(struct sluice_writer *w)
{
	int rc;

	sl_mutex_lock(&w->mutex);
	rc = sl_writer_check_locked(w);
	sl_mutex_unlock(&w->mutex);
	return rc;
}

void sl_writer_flushed(struct sluice_writer *w)
{
	sl_mutex_lock(&w->mutex);
	w->locked.flushing = w->locked.dirty = false;
	sl_count_flush_locked(w, w->locked.flush_through, 0);
	pthread_cond_signal(&w->work);
	sl_mutex_unlock(&w->mutex);
}

void sl_writer_full(struct sluice_writer *w, int error)
{
	sl_mutex_lock(&w->mutex);
	w->locked.full_elsewhere = error;
	sl_mutex_unlock(&w->mutex);
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

static int ask_attributes(struct sluice_writer *w, struct sl_h5_dataset *dataset,
                          const struct sluice_attribute *attributes, size_t count)
{
	struct giving giving = {dataset, attributes, count};

	return with_file(w, attributes_run, &giving);
}

int sluice_writer_attributes(sluice_writer *w, const struct sluice_attribute *attributes,
                             size_t count)
{
	if (!w)
		return sl_fail(-EINVAL, "sluice_writer_attributes: the writer is NULL");
	return ask_attributes(w, NULL, attributes, count);
}

int sluice_series_attributes(sluice_series *s, const struct sluice_attribute *attributes,
                             size_t count)
{
	if (!s)
		return sl_fail(-EINVAL, "sluice_series_attributes: the series is NULL");
	return ask_attributes(s->writer, s->dataset, attributes, count);
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
