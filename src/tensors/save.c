/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Saves
 *
 * The thread of a save waits for the work of the caller's stream, has a crew write the files, a
 * thread for each, replaces the index, and removes old files. Memory of devices is written by
 * awaited operations: the stream gets no command from the save, so it can wait for nothing that
 * comes later, and awaited operations are faster.
 *
 *   running --[save_file: the last file]----------> copied  the tensors are not read any more
 *   copied  --[save_run: all is done]-------------> over    the result is fixed
 *   running --[save_run: an error]----------------> over
 */
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "tensors/crew.h"
#include "tensors/save.h"

#define AT_ONCE 8 /* written files */

enum { SAVE_RUNNING, SAVE_COPIED, SAVE_OVER };

struct sluice_tensor_save {
	/* Fixed before the thread is started. */
	sluice_context *ctx;
	struct sl_save_plan plan; /* but for fields that a file's thread sets */
	struct sluice_open_options open_options;
	sluice_event event; /* of the stream's work; NULL: none */
	bool durable, digests;
	bool streamed; /* files pass through buffers of their own */
	pthread_t thread;

	_Atomic bool stop;      /* failed, or cancelled */
	_Atomic size_t next;    /* file that no thread has taken */
	_Atomic size_t written; /* files that are written, if not closed */
	_Atomic uint32_t state; /* SAVE_...; threads wait for it */

	/* Of the save's thread; fixed once the save is over. */
	int error;
	char *message;
};

/* ---------------------------------------------------------------------------------------- files */

static void save_set(struct sluice_tensor_save *save, uint32_t state)
{
	atomic_store(&save->state, state);
	sl_word_wake(&save->state, INT_MAX);
}

/* Writes the header and the tensors; neighbours on a device take a single operation. */
static int save_write_all(struct sluice_tensor_save *save, sluice_file *to,
                          struct sl_save_file *file)
{
	struct sluice_extent *extents = reallocarray(NULL, file->count + 1, sizeof(*extents));
	struct sluice_request r = {
		.size = sizeof(r), .kind = SLUICE_WRITE, .extents = extents, .count = 1};
	size_t at = 0;
	int device = -1, rc = 0;
	sluice_op *op;

	if (!extents)
		return sl_fail(-ENOMEM, "no memory for %zu extents", file->count);
	extents[0] = (struct sluice_extent){file->header, file->header_bytes, 0};
	do {
		for (; at < file->count && (file->tensors[at]->device == device || !r.count);
		     at++) {
			const struct sl_save_tensor *tensor = file->tensors[at];

			device = tensor->device;
			extents[r.count++] =
				(struct sluice_extent){(void *)tensor->data, tensor->bytes,
			                               file->header_bytes + tensor->begin};
		}
		rc = sluice_submit(to, &r, &op);
		if (!rc)
			rc = (int)SL_MIN(sl_save_finish(op, &save->stop, &file->moved), 0);
		r.count = 0;
	} while (!rc && at < file->count);
	free(extents);
	return rc;
}

static int save_file(struct sluice_tensor_save *save, struct sl_save_file *file)
{
	struct sluice_open_options o = save->open_options;
	sluice_file *to;
	int rc;

	o.flags = save->plan.folder ? SLUICE_OPEN_WRITE | SLUICE_OPEN_CREATE : SLUICE_OPEN_REPLACE;
	o.flags |= save->durable ? SLUICE_OPEN_DURABLE : 0;
	o.expected_size = file->header_bytes + file->data;
	file->made = save->plan.folder;
	rc = sluice_open(save->ctx, file->uri, &o, &to);
	if (rc)
		return rc;
	rc = save->streamed ? sl_save_stream(file, to, save->digests, &save->stop)
	                    : save_write_all(save, to, file);
	if (rc) {
		sluice_discard(to);
		return rc;
	}
	if (atomic_fetch_add(&save->written, 1) + 1 == save->plan.file_count)
		save_set(save, SAVE_COPIED);
	if (!atomic_load(&save->stop))
		return sluice_close(to);
	sluice_discard(to);
	return sl_fail(-ECANCELED, "the save was cancelled");
}

/* A thread of the crew: writes files that no other has taken. */
static int save_files(void *argument)
{
	struct sluice_tensor_save *save = argument;
	size_t i;
	int rc = 0;

	while (!rc && (i = atomic_fetch_add(&save->next, 1)) < save->plan.file_count)
		rc = atomic_load(&save->stop) ? sl_fail(-ECANCELED, "the save was cancelled")
		                              : save_file(save, &save->plan.files[i]);
	return rc;
}

/* --------------------------------------------------------------------------------------- thread */

static int save_write_files(struct sluice_tensor_save *save)
{
	if (save->event && sluice_event_synchronize(save->event))
		return sl_fail(-EIO, "the work of the stream failed: %s", sluice_last_message());
	return sl_crew_run("sluice-save", SL_MIN(save->plan.file_count, AT_ONCE), save_files, save,
	                   &save->stop);
}

static int save_into_folder(struct sluice_tensor_save *save)
{
	struct sl_save_folder folder = {
		.ctx = save->ctx, .options = &save->open_options, .plan = &save->plan};
	bool commits, stay;
	char *message;
	int rc = sl_save_folder_open(&folder, save->durable, &save->stop);

	if (!rc)
		rc = save_write_files(save);
	if (!rc && atomic_load(&save->stop))
		rc = sl_fail(-ECANCELED, "the save was cancelled");
	commits = !rc;
	if (!rc)
		rc = sl_save_folder_commit(&folder, save->durable);
	message = rc ? strdup(sluice_last_message()) : NULL;
	if (!rc)
		sl_save_folder_sweep(&folder);
	stay = !rc || (commits && sl_save_folder_in_index(&folder));
	for (size_t i = 0; !stay && i < save->plan.file_count; i++)
		if (save->plan.files[i].made)
			sluice_remove(save->ctx, save->plan.files[i].uri, &save->open_options,
			              NULL);
	sl_save_folder_close(&folder, stay);
	rc = sl_fail_with(rc, message);
	free(message);
	return rc;
}

static void *save_run(void *argument)
{
	struct sluice_tensor_save *save = argument;

	save->error = sl_save_plan_write(&save->plan);
	if (!save->error)
		save->error = save->plan.folder ? save_into_folder(save) : save_write_files(save);
	save->message = save->error ? strdup(sluice_last_message()) : NULL;
	save_set(save, SAVE_OVER);
	return NULL;
}

/* --------------------------------------------------------------------------------- public calls */

static void save_clear(struct sluice_tensor_save *save)
{
	sl_save_plan_clear(&save->plan);
	sluice_event_free(save->event);
	free(save->message);
	free(save);
}

/* The tensors are in memory, or in files at these offsets. */
static int save_new(sluice_context *ctx, const char *uri,
                    const struct sluice_collection_tensor *tensors, size_t count,
                    sluice_file *const *files, const uint64_t *offsets,
                    const struct sluice_tensor_save_options *options, sluice_tensor_save **out)
{
	struct sluice_tensor_save_options o = SLUICE_TENSOR_SAVE_OPTIONS_INIT;
	struct sluice_tensor_save *save;
	int rc;

	if (options && options->size < sizeof(options->size))
		return sl_fail(-EINVAL, "sluice_tensors_save: options->size is not set");
	if (options)
		memcpy(&o, options, SL_MIN(options->size, sizeof(o)));
	save = calloc(1, sizeof(*save));
	if (!save)
		return sl_fail(-ENOMEM, "no memory");
	save->ctx = ctx;
	save->durable = !o.not_durable;
	save->digests = o.digests;
	save->streamed = files || o.digests;
	o.on = o.on && !files;
	save->open_options = (struct sluice_open_options)SLUICE_OPEN_OPTIONS_INIT;
	if (o.open_options)
		memcpy(&save->open_options, o.open_options,
		       SL_MIN(o.open_options->size, sizeof(save->open_options)));
	save->open_options.size = sizeof(save->open_options);
	save->open_options.flags = 0;
	rc = sl_save_plan_make(uri, tensors, count, files, offsets, &o, &save->plan);
	if (!rc && o.on)
		rc = sluice_event_new(o.device, &save->event);
	if (!rc && o.on)
		rc = sluice_event_record(save->event, o.stream);
	if (!rc)
		rc = sl_thread_start(&save->thread, "sluice-save", save_run, save);
	if (rc)
		save_clear(save);
	else
		*out = save;
	return rc;
}

int sluice_tensors_save(sluice_context *ctx, const char *uri,
                        const struct sluice_collection_tensor *tensors, size_t count,
                        const struct sluice_tensor_save_options *o, sluice_tensor_save **out)
{
	int rc = sl_context_check(ctx);

	if (rc)
		return rc;
	if (!uri || !out || (count && !tensors))
		return sl_fail(-EINVAL, "sluice_tensors_save: NULL");
	for (size_t i = 0; i < count; i++)
		if (tensors[i].size < sizeof(tensors[i]))
			return sl_fail(-EINVAL, "sluice_tensors_save: size of a tensor is not set");
	return save_new(ctx, uri, tensors, count, NULL, NULL, o, out);
}

int sluice_tensors_save_files(const char *uri, const sluice_tensors *tensors, const size_t *chosen,
                              size_t count, const struct sluice_tensor_save_options *o,
                              sluice_tensor_save **out)
{
	int rc = tensors ? sl_context_check(tensors->ctx) : -EINVAL;
	struct sluice_collection_tensor *rows;
	sluice_file **files;
	uint64_t *offsets;

	if (!tensors || !uri || !out)
		return sl_fail(-EINVAL, "sluice_tensors_save_files: NULL");
	if (rc)
		return rc;
	count = chosen ? count : tensors->count;
	rows = calloc(count + 1, sizeof(*rows));
	files = calloc(count + 1, sizeof(*files));
	offsets = calloc(count + 1, sizeof(*offsets));
	if (!rows || !files || !offsets)
		rc = sl_fail(-ENOMEM, "no memory for %zu tensors", count);
	for (size_t i = 0; !rc && i < count; i++) {
		size_t index = chosen ? chosen[i] : i;
		const struct sl_tensor *t;

		if (index >= tensors->count) {
			rc = sl_fail(-EINVAL, "there is no tensor %zu", index);
			break;
		}
		t = &tensors->tensors[index];
		rows[i] = (struct sluice_collection_tensor){
			.name = t->name, .type = t->type, .rank = t->rank, .shape = t->shape};
		files[i] = tensors->files[t->file].file;
		offsets[i] = t->offset;
	}
	if (!rc)
		rc = save_new(tensors->ctx, uri, rows, count, files, offsets, o, out);
	free(rows);
	free(files);
	free(offsets);
	return rc;
}

static int save_check(const struct sluice_tensor_save *save)
{
	return save ? sl_context_check(save->ctx) : sl_fail(-EINVAL, "save is NULL");
}

/* Waits for that state, or a later one. Returns 0, or -EINPROGRESS. */
static int save_await(struct sluice_tensor_save *save, uint32_t wanted, int timeout_ms)
{
	int64_t deadline = sl_deadline(timeout_ms);
	uint32_t state;

	while ((state = atomic_load(&save->state)) < wanted) {
		if (sl_now() >= deadline)
			return sl_fail(-EINPROGRESS, "the save is still running");
		/* save_set() wakes this thread. */
		sl_word_wait(&save->state, state, deadline);
	}
	return state == SAVE_OVER ? save->error : 0;
}

int sluice_tensor_save_fence(sluice_tensor_save *save, int timeout_ms)
{
	int rc = save_check(save);

	return rc ? rc : save_await(save, SAVE_COPIED, timeout_ms);
}

int64_t sluice_tensor_save_wait(sluice_tensor_save *save, int timeout_ms)
{
	int rc = save_check(save);

	if (!rc)
		rc = save_await(save, SAVE_OVER, timeout_ms);
	return rc ? rc : (int64_t)save->plan.bytes;
}

void sluice_tensor_save_progress(sluice_tensor_save *save, uint64_t *written, uint64_t *all)
{
	uint64_t moved = 0;

	if (save_check(save))
		return;
	for (size_t i = 0; i < save->plan.file_count; i++)
		moved += atomic_load(&save->plan.files[i].moved);
	if (written)
		*written = moved;
	if (all)
		*all = save->plan.bytes;
}

int sluice_tensor_save_file(const sluice_tensor_save *save, size_t number,
                            struct sluice_tensor_saved *out)
{
	struct sluice_tensor_saved given = {0};
	int rc = save_check(save);

	if (rc)
		return rc;
	if (!out || out->size < sizeof(out->size))
		return sl_fail(-EINVAL,
		               "sluice_tensor_save_file: out is NULL, or its size not set");
	if (atomic_load(&save->state) != SAVE_OVER || save->error)
		return sl_fail(-EAGAIN, "the files are not saved");
	if (number >= save->plan.file_count)
		return sl_fail(-ENOENT, "there is no file %zu", number);
	given.uri = save->plan.files[number].uri;
	given.bytes = save->plan.files[number].header_bytes + save->plan.files[number].data;
	given.digest = save->plan.files[number].digest;
	sl_struct_give(out, &given, sizeof(given));
	return 0;
}

void sluice_tensor_save_cancel(sluice_tensor_save *save)
{
	if (!save_check(save))
		atomic_store(&save->stop, true);
}

const char *sluice_tensor_save_message(const sluice_tensor_save *save)
{
	if (save_check(save) || atomic_load(&save->state) != SAVE_OVER || !save->error)
		return "";
	return save->message ? save->message : sl_error_text(save->error);
}

void sluice_tensor_save_free(sluice_tensor_save *save)
{
	if (!save || save_check(save))
		return;
	pthread_join(save->thread, NULL);
	save_clear(save);
}
