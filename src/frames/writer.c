/* SPDX-License-Identifier: Apache-2.0 */
/* A writer from its opening to its end, and what waits for its thread. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "frames/pipeline.h"

#define CHECKPOINT_MS 1000
/* Of memory_bytes, for what of the file is held back until a flush, beside that of each series; see
 * sl_frame_file_options. */
#define HELD_PART  16
#define HELD_LEAST ((uint64_t)1 << 20)
#define HELD_MOST  ((uint64_t)16 << 20)

/* All writers of the process, so that a handle that is gone can be told, unless another one has its
 * address. */
static struct {
	pthread_mutex_t mutex;
	struct sl_list list; /* guarded by mutex */
} writers = {PTHREAD_MUTEX_INITIALIZER, {&writers.list, &writers.list}};

static char message_lost[] = "the writer has failed, and there was no memory to say why";

static bool is_there(const struct sluice_writer *w)
{
	bool there = false;

	pthread_mutex_lock(&writers.mutex);
	sl_list_each (link, &writers.list)
		there |= SL_CONTAINER(link, struct sluice_writer, link) == w;
	pthread_mutex_unlock(&writers.mutex);
	return there;
}

/* ------------------------------------------------------------------------------------ waiting */

void sl_condition_init(pthread_cond_t *condition)
{
	pthread_condattr_t attributes;

	pthread_condattr_init(&attributes);
	pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
	pthread_cond_init(condition, &attributes);
	pthread_condattr_destroy(&attributes);
}

bool sl_writer_wait(struct sluice_writer *w, pthread_cond_t *condition, int64_t deadline)
{
	struct timespec until = {deadline / 1000000000, deadline % 1000000000};

	if (deadline == SL_FOREVER)
		return !pthread_cond_wait(condition, &w->mutex);
	return pthread_cond_timedwait(condition, &w->mutex, &until) != ETIMEDOUT;
}

int sl_writer_check(const struct sluice_writer *w)
{
	if (w->locked.failure.error)
		return sl_fail(w->locked.failure.error, "%s", w->locked.failure.message);
	if (w->locked.closing)
		return sl_fail(-EINVAL, "'%s' is being closed", w->path);
	return 0;
}

/* The thread's sentence, and what it is about. */
static char *describe(const struct sluice_writer *w, const char *stage,
                      const struct sl_frame *frame)
{
	char *text;
	int rc;

	if (frame)
		rc = asprintf(&text, "cannot %s frame %" PRIu64 " of '%s': %s", stage,
		              frame->locked.number, frame->series->name, sluice_last_message());
	else
		rc = asprintf(&text, "cannot %s '%s': %s", stage, w->path, sluice_last_message());
	return rc < 0 ? message_lost : text;
}

void sl_writer_fail(struct sluice_writer *w, int error, const char *stage,
                    const struct sl_frame *frame)
{
	if (w->locked.failure.error)
		return;
	w->locked.failure.error = error;
	w->locked.failure.stage = stage;
	w->locked.failure.series = frame ? frame->series : NULL;
	w->locked.failure.frame = frame ? frame->locked.number : 0;
	w->locked.failure.message = describe(w, stage, frame);
	sl_list_each (link, &w->locked.series)
		pthread_cond_broadcast(
			&SL_CONTAINER(link, struct sluice_series, locked.link)->freed);
	pthread_cond_broadcast(&w->told);
	pthread_cond_signal(&w->work);
}

int sl_writer_ask(struct sluice_writer *w, struct sl_errand *errand)
{
	int rc;

	pthread_mutex_lock(&w->mutex);
	sl_list_append(&w->locked.errands, &errand->link);
	pthread_cond_signal(&w->work);
	/* Ended by the keeper, or its end; one that has begun is not left alone, as it is on our stack. */
	while (!errand->done && !w->locked.ended &&
	       !(sl_list_linked(&errand->link) && sl_writer_check(w)))
		sl_writer_wait(w, &w->told, SL_FOREVER);
	if (errand->done) {
		rc = errand->result ? sl_fail(errand->result, "%s", errand->message) : 0;
	} else {
		if (sl_list_linked(&errand->link))
			sl_list_remove(&errand->link);
		rc = sl_writer_check(w);
	}
	pthread_mutex_unlock(&w->mutex);
	return rc;
}

/* -------------------------------------------------------------------------------------- open */

static int check_options(const struct sluice_writer_options *o)
{
	unsigned known = (SLUICE_WRITER_ONLY_HDF5 << 1) - 1;

	if (o->flags & ~known)
		return sl_fail(-EINVAL, "writer options: unknown flags 0x%x", o->flags & ~known);
	if (o->flags & SLUICE_WRITER_REPLACE && o->flags & SLUICE_WRITER_APPEND)
		return sl_fail(-EINVAL, "writer options: both REPLACE and APPEND");
	if (o->mode & ~07777u)
		return sl_fail(-EINVAL, "writer options: mode 0%o is no permissions", o->mode);
	if (o->threads > 1024)
		return sl_fail(-EINVAL, "writer options: %zu threads are too many", o->threads);
	return sl_frame_attributes_check(o->attributes, o->attribute_count);
}

static int local_path(const char *text, char **out)
{
	struct sl_uri uri;
	char *name;
	int rc = sl_uri_parse(text, &uri);

	if (rc)
		return rc;
	if (strcmp(uri.scheme, "file")) {
		name = sl_uri_name(text);
		rc = sl_fail(-EINVAL, "'%s' is no local path, and HDF5 needs one",
		             name ? name : uri.scheme);
		free(name);
	} else {
		*out = strdup(uri.path);
	}
	sl_uri_clear(&uri);
	return rc ? rc : *out ? 0 : sl_fail(-ENOMEM, "no memory");
}

struct opening {
	struct sl_errand errand;
	const struct sl_frame_file_options *options;
};

/* On the keeper. */
static int open_file(struct sl_errand *errand)
{
	struct opening *opening = SL_CONTAINER(errand, struct opening, errand);
	struct sluice_writer *w = errand->writer;

	return sl_frame_file_open(w->path, opening->options, &w->file);
}

static int ask_file(struct sluice_writer *w, const struct sluice_writer_options *o)
{
	struct sl_frame_file_options options = {.flags = o->flags,
	                                        .mode = o->mode,
	                                        .held_limit = w->locked.bytes,
	                                        .full = sl_keeper_full,
	                                        .argument = w,
	                                        .attributes = o->attributes,
	                                        .attribute_count = o->attribute_count};
	struct opening opening = {.errand = {.run = open_file, .writer = w}, .options = &options};

	return sl_writer_ask(w, &opening.errand);
}

static void set_options(struct sluice_writer *w, const struct sluice_writer_options *o)
{
	w->flags = o->flags;
	w->threads = o->threads ? (unsigned)o->threads : sl_cores();
	w->memory_bytes = o->memory_bytes;
	if (o->memory_bytes)
		w->locked.bytes =
			SL_MIN(SL_MAX(o->memory_bytes / HELD_PART, HELD_LEAST), HELD_MOST);
	w->checkpoint_frames = o->checkpoint_frames;
	w->full_ns = o->full_disk_ms < 0 ? SL_FOREVER : (int64_t)o->full_disk_ms * 1000000;
	if (o->checkpoint_ms >= 0)
		w->checkpoint_ns =
			(int64_t)(o->checkpoint_ms ? o->checkpoint_ms : CHECKPOINT_MS) * 1000000;
}

static void writer_free(struct sluice_writer *w)
{
	struct sl_list *link;

	/* Files first: their ends are the last that others do. Then the threads that made them. */
	sl_list_each (at, &w->locked.series)
		sl_series_close(SL_CONTAINER(at, struct sluice_series, locked.link));
	sl_pool_stop(w->pool);
	while ((link = sl_list_take(&w->locked.series)))
		sl_series_free(SL_CONTAINER(link, struct sluice_series, locked.link));
	sl_pool_free(w->pool);
	pthread_cond_destroy(&w->work);
	pthread_cond_destroy(&w->told);
	pthread_mutex_destroy(&w->adding);
	pthread_mutex_destroy(&w->mutex);
	if (w->locked.failure.message != message_lost)
		free(w->locked.failure.message);
	free(w->compressors);
	free(w->path);
	free(w);
}

static int new_writer(struct sluice_context *ctx, const char *path,
                      const struct sluice_writer_options *o, struct sluice_writer **out)
{
	struct sluice_writer *w = calloc(1, sizeof(*w));
	int rc;

	if (!w)
		return sl_fail(-ENOMEM, "no memory");
	w->ctx = ctx;
	set_options(w, o);
	sl_list_init(&w->locked.series);
	sl_list_init(&w->locked.tools);
	sl_list_init(&w->locked.errands);
	w->locked.dirty = true;
	w->locked.dirty_since = SL_FOREVER;
	pthread_mutex_init(&w->mutex, NULL);
	pthread_mutex_init(&w->adding, NULL);
	sl_condition_init(&w->work);
	sl_condition_init(&w->told);
	rc = local_path(path, &w->path);
	w->compressors = calloc(w->threads, sizeof(*w->compressors));
	if (!rc && !w->compressors)
		rc = sl_fail(-ENOMEM, "no memory");
	if (!rc)
		rc = sl_compress_start(w);
	if (!rc)
		rc = sl_thread_start(&w->keeper, "sluice-keeper", sl_keeper_run, w);
	if (rc) {
		writer_free(w);
		return rc;
	}
	*out = w;
	return 0;
}

/* The keeper has ended, and nothing of the writer is in flight. */
static void retire(struct sluice_writer *w)
{
	struct sluice_context *ctx = w->ctx;

	pthread_join(w->keeper, NULL);
	writer_free(w);
	sl_context_leave(ctx);
}

/* -------------------------------------------------------------------------------- flush, close */

static void ask_flush(struct sluice_writer *w)
{
	if (!w->locked.flush_wanted)
		w->locked.flush_cut = w->locked.sequence;
	w->locked.flush_last = w->locked.sequence;
	w->locked.flush_wanted = true;
	pthread_cond_signal(&w->work);
}

/* One that began before is as good, if it has those frames: what else there was to flush was there then. */
static bool is_flushed(const struct sluice_writer *w, uint64_t cut, uint64_t flushes)
{
	return w->locked.flushed >= cut && w->locked.flushes > flushes;
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
	pthread_mutex_lock(&w->mutex);
	rc = sl_writer_check(w);
	cut = w->locked.sequence;
	flushes = w->locked.flushes;
	wait = !rc && (w->locked.dirty || w->locked.flushed < cut);
	if (wait)
		ask_flush(w);
	/* Ended by a flush behind those frames, by the failure or the end of the writer, or the deadline. */
	while (!rc && wait) {
		bool late = !sl_writer_wait(w, &w->told, deadline);

		wait = !is_flushed(w, cut, flushes);
		if (wait && late)
			rc = sl_fail(-EINPROGRESS, "'%s' is not flushed yet", w->path);
		else if (wait)
			rc = sl_writer_check(w);
	}
	pthread_mutex_unlock(&w->mutex);
	return rc;
}

static void start_closing(struct sluice_writer *w, enum sl_closing how)
{
	w->locked.closing = SL_MAX(w->locked.closing, how);
	pthread_cond_signal(&w->work);
	sl_list_each (link, &w->locked.series)
		pthread_cond_broadcast(
			&SL_CONTAINER(link, struct sluice_series, locked.link)->freed);
}

/* With the mutex: until the keeper has ended and nothing is in flight. False: not in time. */
static bool wait_for_end(struct sluice_writer *w, int64_t deadline)
{
	while (!w->locked.ended || w->locked.copies || w->locked.writes)
		if (!sl_writer_wait(w, &w->told, deadline))
			return w->locked.ended && !w->locked.copies && !w->locked.writes;
	return true;
}

static int close_writer(struct sluice_writer *w, enum sl_closing how, int64_t deadline)
{
	char message[1024] = "";
	bool over;
	int rc;

	pthread_mutex_lock(&w->mutex);
	start_closing(w, how);
	over = wait_for_end(w, deadline);
	rc = w->locked.failure.error;
	if (rc)
		snprintf(message, sizeof(message), "%s", w->locked.failure.message);
	pthread_mutex_unlock(&w->mutex);
	if (!over)
		return sl_fail(-EINPROGRESS, "'%s' is not closed yet", w->path);
	pthread_mutex_lock(&writers.mutex);
	sl_list_remove(&w->link);
	pthread_mutex_unlock(&writers.mutex);
	retire(w);
	return rc ? sl_fail(rc, "%s", message) : 0;
}

int sluice_writer_close(sluice_writer *w, int timeout_ms)
{
	if (!w)
		return 0;
	if (sl_forked())
		return sl_context_check(NULL);
	if (!is_there(w))
		return sl_fail(-EINVAL, "sluice_writer_close: there is no such writer");
	return close_writer(w, SL_CLOSING, sl_deadline(timeout_ms));
}

void sluice_writer_discard(sluice_writer *w)
{
	if (w && !sl_forked() && is_there(w))
		close_writer(w, SL_DISCARDING, SL_FOREVER);
}

int sluice_writer_open(sluice_context *ctx, const char *path, const struct sluice_writer_options *o,
                       sluice_writer **out)
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
	rc = check_options(&options);
	if (!rc)
		rc = sl_frame_file_usable(options.flags);
	if (!rc)
		rc = new_writer(ctx, path, &options, &w);
	if (rc)
		return rc;
	sl_context_enter(ctx);
	rc = ask_file(w, &options);
	if (rc) {
		char message[1024];

		snprintf(message, sizeof(message), "%s", sluice_last_message());
		pthread_mutex_lock(&w->mutex);
		w->locked.closing = SL_DISCARDING;
		pthread_cond_signal(&w->work);
		wait_for_end(w, SL_FOREVER);
		pthread_mutex_unlock(&w->mutex);
		retire(w);
		return sl_fail(rc, "%s", message);
	}
	pthread_mutex_lock(&writers.mutex);
	sl_list_append(&writers.list, &w->link);
	pthread_mutex_unlock(&writers.mutex);
	*out = w;
	return 0;
}

/* --------------------------------------------------------------------------------- attributes */

struct giving {
	struct sl_errand errand;
	struct sl_frame_dataset *dataset;
	const struct sluice_attribute *attributes;
	size_t count;
};

/* On the keeper. */
static int give(struct sl_errand *errand)
{
	struct giving *giving = SL_CONTAINER(errand, struct giving, errand);

	return sl_frame_file_attributes(errand->writer->file, giving->dataset, giving->attributes,
	                                giving->count);
}

static int ask_attributes(struct sluice_writer *w, struct sl_frame_dataset *dataset,
                          const struct sluice_attribute *attributes, size_t count)
{
	struct giving giving = {.errand = {.run = give, .writer = w},
	                        .dataset = dataset,
	                        .attributes = attributes,
	                        .count = count};
	int rc = sl_context_check(w->ctx);

	return rc ? rc : sl_writer_ask(w, &giving.errand);
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

struct placing {
	struct sl_errand errand;
	const char *name;
	struct sl_frame_coordinate coordinate;
};

/* On the keeper. */
static int place_coordinate(struct sl_errand *errand)
{
	struct placing *placing = SL_CONTAINER(errand, struct placing, errand);

	return sl_frame_file_coordinate(errand->writer->file, placing->name, &placing->coordinate);
}

int sluice_writer_add_coordinate(sluice_writer *w, const char *name, int type, size_t count,
                                 const void *values, const struct sluice_attribute *attributes,
                                 size_t attribute_count)
{
	const struct sl_type *of = sl_type_find(type);
	struct placing placing = {
		.errand = {.run = place_coordinate, .writer = w},
		.name = name,
		.coordinate = {.type = (enum sluice_type)type,
	                       .count = count,
	                       .values = values,
	                       .attributes = attributes,
	                       .attribute_count = attribute_count},
	};
	int rc;

	if (!w || !name || !name[name[0] == '/'])
		return sl_fail(-EINVAL, "sluice_writer_add_coordinate: %s",
		               w ? "the coordinate has no name" : "the writer is NULL");
	if (!of || of->number > SL_REAL)
		return sl_fail(-EINVAL, "coordinate '%s': %d is no type of numbers", name, type);
	if (!values || !count || count > INT64_MAX / of->bytes)
		return sl_fail(-EINVAL, "coordinate '%s': %zu values, %s", name, count,
		               values ? "and it needs one at least" : "and values is NULL");
	placing.coordinate.element = of->bytes;
	rc = sl_context_check(w->ctx);
	return rc ? rc : sl_writer_ask(w, &placing.errand);
}
