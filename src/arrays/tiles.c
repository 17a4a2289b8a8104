/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tiles: chunks on their way from the file to memory
 *
 * A worker reads the stored bytes of a tile if they are in the page cache, or has the inner backend
 * read them, undoes the filters, and writes the portions of all jobs that want the tile. If no job
 * wants all of a tile it is kept, because others may want the rest.
 *
 * Threads: workers, which wait for nothing. A tile in flight has a portion, and so a piece in
 * flight, which keeps the file open.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "arrays/arrays_internal.h"

/* Stored bytes beyond those of a chunk that a codec may need: more is damage. */
#define STORED_MOST(bytes) (2 * (bytes) + ((size_t)64 << 10))

static void tile_run(struct sl_task *task);

/* ---------------------------------------------------------------------------------- end of jobs */

/* Keeps the first error. message: NULL, or the sentence, which belongs to the job. */
void sl_job_fail_locked(struct sl_job *job, int error, const char *message)
{
	if (job->error)
		return;
	job->error = error;
	job->message = message ? strdup(message) : NULL;
}

void sl_job_end(struct sl_job *job)
{
	const struct sl_array *array = SL_CONTAINER(job->base.backend, struct sl_array, base);

	/* Its tiles, or those of the operation, may be of both states. */
	if (!job->error && !job->whole && sl_array_changes(array) != job->base.file_state) {
		job->error = -ESTALE;
		job->message = sl_format("'%s' has changed while it was read", array->path);
	}
	job->base.moved = job->error ? 0 : job->base.length;
	job->base.error = job->error;
	job->base.message = job->message;
	sl_piece_done(&job->base);
}

/* Counts the end of a tile or of the walk. Returns whether the job is over: the caller ends it
 * without the lock. */
bool sl_job_count_locked(struct sl_job *job)
{
	return !--job->pending;
}

bool sl_tiles_full_locked(const struct sl_array *array, unsigned part)
{
	if (!array->blocks)
		return array->locked.in_flight >= SL_MAX(array->locked.most / part, 1);
	return array->locked.in_flight >= SL_TILES_MOST / part ||
	       (array->locked.memory >= SL_TILES_BYTES / part &&
	        array->locked.in_flight >= SL_MAX(array->locked.most / part, 1));
}

/* Has steps taken, if jobs want some and there is room, in the given part of it. */
static void jobs_resume_locked(struct sl_array *array, unsigned part) SL_REQUIRES(&array->mutex)
{
	if (array->locked.stepping || sl_list_empty(&array->locked.jobs) ||
	    sl_tiles_full_locked(array, part))
		return;
	array->locked.stepping = true;
	sl_pool_submit(array->looks, &array->step);
}

void sl_job_start(struct sl_array *array, struct sl_job *job)
{
	sl_mutex_lock(&array->mutex);
	sl_list_append(&array->locked.jobs, &job->link);
	jobs_resume_locked(array, 1);
	sl_mutex_unlock(&array->mutex);
}

/* --------------------------------------------------------------------------------- end of tiles */

/* Whether other reads may want the rest of the tile. */
static bool tile_worth_keeping(const struct sl_tile *tile)
{
	sl_list_each_of (portion, &tile->portions, struct sl_portion, link)
		if (portion->covers)
			return false;
	return true;
}

/* Ends a tile. bytes: decoded, or NULL: there are none, and portions get the fill value. direct:
 * that portion has them already; or NULL. undoing: has perhaps the bytes, and is given back; or
 * NULL. With an error the sentence is the thread's last. */
void sl_tile_end(struct sl_tile *tile, const char *bytes, const struct sl_portion *direct,
                 struct sl_undoing *undoing, int error)
{
	struct sl_array *array = tile->array;
	struct sl_list portions = SL_LIST_INIT(portions), over = SL_LIST_INIT(over);

	sl_mutex_lock(&array->mutex);
	/* From here on no portion is added, or the bytes are found as they are. */
	bool keep = !error && bytes && bytes == tile->bytes && !array->plain &&
	            tile->generation == array->locked.generation && sl_list_linked(&tile->bucket);
	sl_list_take_all(&tile->portions, &portions);
	tile->kept = keep;
	tile->holds = keep;
	if (keep) {
		sl_list_append(&array->locked.kept, &tile->link);
		array->locked.kept_count++;
	} else if (sl_list_linked(&tile->bucket)) {
		sl_list_remove(&tile->bucket);
	}
	sl_mutex_unlock(&array->mutex);
	if (!error)
		sl_list_each_of (portion, &portions, struct sl_portion, link)
			if (portion != direct && !sl_job_stopped(portion->job))
				sl_portion_copy(&portion->job->walk, portion, bytes);
	sl_mutex_lock(&array->mutex);
	array->locked.in_flight--;
	array->locked.memory -= tile->memory;
	if (undoing)
		sl_list_append(&array->locked.undoing, &undoing->link);
	if (keep) {
		tile->holds--;
		sl_tiles_shrink_locked(array, array->locked.kept_most);
	}
	sl_list_each_of (portion, &portions, struct sl_portion, link) {
		struct sl_job *job = portion->job;

		if (error)
			sl_job_fail_locked(job, error, sluice_last_message());
		if (sl_job_count_locked(job))
			sl_list_append(&over, &job->link);
		free(portion);
	}
	jobs_resume_locked(array, 2);
	sl_mutex_unlock(&array->mutex);
	if (!keep)
		sl_tile_free(tile);
	/* With the last piece the file may be closed. */
	sl_list_each_of (job, &over, struct sl_job, link) {
		sl_list_remove(&job->link);
		sl_job_end(job);
	}
}

bool sl_tile_is_unwanted_locked(const struct sl_tile *tile)
{
	sl_list_each_of (portion, &tile->portions, struct sl_portion, link)
		if (!sl_job_stopped(portion->job))
			return false;
	return true;
}

bool sl_tile_give_up_locked(struct sl_tile *tile)
{
	if (!sl_tile_is_unwanted_locked(tile))
		return false;
	if (sl_list_linked(&tile->bucket))
		sl_list_remove(&tile->bucket);
	return true;
}

static bool tile_unwanted(struct sl_tile *tile)
{
	struct sl_array *array = tile->array;

	if (array->plain)
		return sl_job_stopped(
			SL_CONTAINER(tile->portions.next, struct sl_portion, link)->job);
	sl_mutex_lock(&array->mutex);
	bool unwanted = sl_tile_give_up_locked(tile);
	sl_mutex_unlock(&array->mutex);
	return unwanted;
}

/* ------------------------------------------------------------------------------- stored bytes */

static int tile_fail(const struct sl_tile *tile, int error, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

/* Names the chunk by its first element. */
static int tile_fail(const struct sl_tile *tile, int error, const char *format, ...)
{
	const struct sl_array *array = tile->array;
	char what[300], at[256] = "";
	size_t n = 0;
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(what, sizeof(what), format, arguments);
	va_end(arguments);
	if (array->h5.of.layout != SL_H5_CHUNKED)
		return sl_fail(error, "'%s#%s', bytes from %" PRIu64 " on: %s", array->path,
		               array->h5.of.name, tile->place.address, what);
	for (unsigned i = 0; i < array->h5.of.rank && n < sizeof(at); i++)
		n += (size_t)snprintf(at + n, sizeof(at) - n, "%s%" PRIu64, i ? ", " : "",
		                      tile->first[i]);
	return sl_fail(error, "'%s#%s', chunk at (%s): %s", array->path, array->h5.of.name, at,
	               what);
}

void sl_tile_submit(struct sl_tile *tile)
{
	tile->task.run = tile_run;
	sl_pool_submit(tile->array->pool, &tile->task);
}

/* Makes a tile from bytes of another, which is in flight. Returns NULL: no memory. */
static struct sl_tile *tile_cut(struct sl_tile *of, uint64_t cut)
{
	struct sl_portion *its = SL_CONTAINER(of->portions.next, struct sl_portion, link);
	struct sl_tile *tile = malloc(sizeof(*tile));
	struct sl_portion *portion = malloc(sizeof(*portion));

	if (!tile || !portion) {
		free(tile);
		free(portion);
		return NULL;
	}
	*tile = *of;
	*portion = *its;
	tile->place.at = tile->first;
	tile->cut = cut;
	tile->memory = 0;
	tile->cut_bytes = SL_CUT_BYTES;
	tile->task.home += cut / SL_CUT_BYTES;
	sl_list_init(&tile->portions);
	sl_list_append(&tile->portions, &portion->link);
	sl_mutex_lock(&tile->array->mutex);
	tile->array->locked.in_flight++;
	its->job->pending++;
	sl_mutex_unlock(&tile->array->mutex);
	return tile;
}

void sl_tile_start(struct sl_tile *tile)
{
	struct sl_portion *portion = SL_CONTAINER(tile->portions.next, struct sl_portion, link);
	uint64_t begin, n;
	struct sl_tile *next;

	tile->task.home = (uintptr_t)tile->number;
	if (tile->array->plain && tile->place.length &&
	    sl_portion_hull(&portion->job->walk, portion, &begin, &n)) {
		tile->task.home = (uintptr_t)portion->data / SL_CUT_BYTES;
		while (n - tile->cut >= SL_CUT_BYTES + SL_CUT_BYTES / 2 &&
		       (next = tile_cut(tile, tile->cut))) {
			tile->cut += SL_CUT_BYTES;
			tile->cut_bytes = n - tile->cut;
			sl_tile_submit(next);
		}
		tile->task.home += tile->cut / SL_CUT_BYTES;
	}
	sl_tile_submit(tile);
}

/* Another thread gets the tile. At the end the file may be closed: memory goes back before. */
static void tile_leave(struct sl_tile *tile)
{
	sl_undoing_give(tile->array, tile->undoing);
	tile->undoing = NULL;
}

/* The inner backend has read, or not, on any thread. */
static void tile_moved(struct sl_piece *piece)
{
	struct sl_tile *tile = (struct sl_tile *)piece->op;
	struct sl_array *array = tile->array;

	sl_mutex_lock(&array->mutex);
	sl_list_remove(&tile->link);
	sl_mutex_unlock(&array->mutex);
	tile->read = true;
	sl_tile_submit(tile);
}

/* Has the inner backend read. to: NULL: into memory of the tile, as also bytes that may go around
 * the page cache and do not begin and end with its blocks. Returns 0 or -ENOMEM. */
static int tile_move(struct sl_tile *tile, char *to, uint64_t offset, size_t n)
{
	struct sl_array *array = tile->array;
	size_t head =
		sl_whole_pages(SL_MAX(array->inner_limits.piece_size, sizeof(struct sl_piece)));
	bool large = n >= array->core->settings.direct_bytes && array->inner_limits.alignment;
	uint64_t block = large ? array->inner_limits.alignment : 1;
	uint64_t skip = offset % block, length = (skip + n + block - 1) / block * block;
	struct sl_piece *piece;

	if (length != n)
		to = NULL;
	piece = aligned_alloc(sl_page_size(), sl_whole_pages(head + (to ? 0 : length)));
	if (!piece)
		return -ENOMEM;
	memset(piece, 0, head);
	tile->piece = piece;
	tile->stored = to ? to : (char *)piece + head + skip;
	tile->wanted = skip + n;
	piece->backend = array->inner;
	piece->data = tile->stored - skip;
	piece->length = length;
	piece->offset = offset - skip;
	piece->large = piece->aligned = large;
	piece->missed = true;
	piece->done = tile_moved;
	/* Only the owner of a piece looks at it. */
	piece->op = (struct sluice_op *)tile;
	sl_mutex_lock(&array->mutex);
	sl_list_append(&array->locked.moving, &tile->link);
	sl_mutex_unlock(&array->mutex);
	tile_leave(tile);
	array->inner->ops->submit(array->inner, piece);
	return 0;
}

/* Looks at the result of the inner backend. Returns 0, or an error with a sentence. */
static int tile_moved_all(struct sl_tile *tile)
{
	struct sl_piece *piece = tile->piece;

	if (piece) {
		tile->error = !piece->error && piece->moved < tile->wanted ? -EIO : piece->error;
		tile->message = piece->message;
		piece->message = NULL;
	}
	if (tile->error == -EIO && !tile->message)
		return tile_fail(tile, -EIO, "the file ends before its bytes");
	return tile->error ? tile_fail(tile, tile->error, "its bytes cannot be read: %s",
	                               tile->message ? tile->message : sl_error_text(tile->error))
	                   : 0;
}

/* Reads from the files of an external dataset, with zeros behind their ends. May wait. */
static int tile_read_segments(struct sl_tile *tile, char *to, uint64_t offset, uint64_t n)
{
	const struct sl_array *array = tile->array;
	const struct sl_h5_segment *segment = array->h5.of.segments;

	memset(to, 0, n);
	for (size_t i = 0; n && i < array->h5.of.segment_count; i++, segment++) {
		uint64_t skip = SL_MIN(offset, segment->bytes);
		uint64_t here = SL_MIN(n, segment->bytes - skip), done = 0;

		offset -= skip;
		while (done < here && array->segments[i] >= 0) {
			ssize_t rc = pread(array->segments[i], to + done, here - done,
			                   (off_t)(segment->offset + skip + done));

			if (rc < 0 && errno != EINTR)
				return tile_fail(tile, -errno, "'%s' cannot be read: %s",
				                 segment->file, sl_error_text(-errno));
			if (!rc)
				break;
			done += rc > 0 ? (uint64_t)rc : 0;
		}
		to += here;
		n -= here;
	}
	return n ? tile_fail(tile, -EBADMSG, "its files are too short") : 0;
}

/* Reads bytes of the file that are in memory. 1: they are there; 0: the inner backend reads them,
 * and the tile comes back; or an error with a sentence. to: NULL: into memory of the tile. */
static int tile_read(struct sl_tile *tile, char *to, uint64_t offset, uint64_t n)
{
	struct sl_array *array = tile->array;
	int rc;

	if (tile->read) {
		tile->read = false;
		rc = tile_moved_all(tile);
		return rc ? rc : 1;
	}
	if (array->h5.of.layout == SL_H5_EXTERNAL) {
		rc = tile_read_segments(tile, to, offset, n);
		return rc ? rc : 1;
	}
	if (to && array->inner->ops->read_now &&
	    array->inner->ops->read_now(array->inner, to, n, offset) == (int64_t)n)
		return 1;
	rc = tile_move(tile, array->plain ? to : NULL, offset, n);
	return rc ? sl_fail(rc, "no memory") : 0;
}

/* ----------------------------------------------------------------------------------- on workers */

/* Looks the tile up again: our writer has changed the file. On a thread that may wait. */
static void tile_again(struct sl_task *task)
{
	struct sl_tile *tile = SL_CONTAINER(task, struct sl_tile, task);
	int rc = sl_array_find(tile->array, &tile, 1);

	if (rc)
		sl_tile_end(tile, NULL, NULL, NULL, rc);
	else
		sl_tile_submit(tile);
}

/* Returns 1 if the bytes that were read are of the state in which the tile was found; 0: it begins
 * anew; or an error with a sentence. */
static int tile_holds(struct sl_tile *tile)
{
	struct sl_array *array = tile->array;
	int rc = array->blocks ? 1 : sl_h5_state_holds(array->fd, &tile->state);

	if (rc == -ESTALE)
		return sl_fail(rc, "'%s' has changed since it was opened", array->path);
	if (rc < 0)
		return sl_fail(rc, "cannot look at '%s': %s", array->path, sl_error_text(rc));
	if (rc)
		return 1;
	if (!tile->deadline)
		tile->deadline = sl_now() + SL_ARRAY_PATIENCE_NS;
	if (sl_now() > tile->deadline)
		return sl_fail(-EAGAIN, "'%s' changes all the time", array->path);
	free(tile->piece);
	tile->piece = NULL;
	tile->stored = NULL;
	tile->task.run = tile_again;
	tile_leave(tile);
	sl_pool_submit(array->core->waiting, &tile->task);
	return 0;
}

/* A tile without filters has a single portion, and only those bytes are read. */
static void tile_run_plain(struct sl_tile *tile)
{
	struct sl_array *array = tile->array;
	struct sl_portion *portion = SL_CONTAINER(tile->portions.next, struct sl_portion, link);
	uint64_t begin, n;
	bool direct = sl_portion_hull(&portion->job->walk, portion, &begin, &n);

	if (array->h5.of.layout == SL_H5_COMPACT) {
		sl_tile_end(tile, array->h5.of.compact + tile->place.address, NULL, NULL, 0);
		return;
	}
	if (!direct && !tile->bytes) {
		tile->bytes = malloc(n);
		if (!tile->bytes) {
			sl_tile_end(tile, NULL, NULL, NULL, sl_fail(-ENOMEM, "no memory"));
			return;
		}
	}
	char *to = direct ? portion->data + tile->cut : tile->bytes;
	begin += tile->cut;
	n = tile->cut_bytes ? tile->cut_bytes : n;
	int rc = tile_read(tile, to, tile->place.address + begin, n);
	if (rc == 1)
		rc = tile_holds(tile);
	if (!rc)
		return;
	const char *from = tile->stored ? tile->stored : to;
	if (direct && rc == 1 && from != to)
		memcpy(to, from, n);
	sl_tile_end(tile, from - begin, direct ? portion : NULL, NULL, SL_MIN(rc, 0));
}

/* Returns where the filters are to write: to the portion, if that is all of the chunk. */
static char *tile_target(struct sl_tile *tile, struct sl_undoing *undoing,
                         struct sl_portion **direct)
{
	struct sl_array *array = tile->array;
	uint64_t begin, n;

	sl_mutex_lock(&array->mutex);
	struct sl_portion *portion = SL_CONTAINER(tile->portions.next, struct sl_portion, link);
	bool keep = array->locked.kept_most && tile_worth_keeping(tile);
	sl_mutex_unlock(&array->mutex);
	*direct = NULL;
	if (sl_portion_hull(&portion->job->walk, portion, &begin, &n) && n == array->tile_bytes) {
		*direct = portion;
		return portion->data;
	}
	if (keep)
		return tile->bytes = malloc(array->tile_bytes);
	if (!undoing->bytes)
		undoing->bytes = malloc(array->tile_bytes);
	return undoing->bytes;
}

/* Undoes the filters of the stored bytes. Returns 0, or an error with a sentence. */
static int tile_undo(struct sl_tile *tile, struct sl_undoing *undoing, char *to)
{
	int rc = sl_unfilter_run(undoing->unfilter, tile->place.mask,
	                         tile->stored ? tile->stored : undoing->stored, tile->place.length,
	                         to);

	return rc != -EBADMSG ? rc : tile_fail(tile, rc, "%s", sluice_last_message());
}

static void tile_run_filtered(struct sl_tile *tile)
{
	struct sl_array *array = tile->array;
	struct sl_undoing *undoing = sl_undoing_take(array, tile->place.length);
	struct sl_portion *direct = NULL;
	char *to = NULL;
	int rc = undoing ? 1 : sl_fail(-ENOMEM, "no memory");

	tile->undoing = undoing;
	if (rc > 0)
		rc = tile_read(tile, undoing->stored, tile->place.address, tile->place.length);
	if (rc > 0)
		rc = tile_holds(tile);
	if (!rc)
		return;
	if (rc > 0) {
		to = tile_target(tile, undoing, &direct);
		rc = to ? tile_undo(tile, undoing, to) : sl_fail(-ENOMEM, "no memory");
	}
	sl_tile_end(tile, to, direct, undoing, rc);
}

/* Returns whether the place of a tile cannot be true. */
static bool tile_misplaced(const struct sl_tile *tile)
{
	const struct sl_array *array = tile->array;
	const struct sl_h5_place *place = &tile->place;

	if (array->h5.of.layout > SL_H5_CONTIGUOUS)
		return false;
	return place->address > tile->state.length ||
	       place->length > tile->state.length - place->address ||
	       (array->h5.of.layout == SL_H5_CHUNKED &&
	        (array->plain ? place->length != array->tile_bytes
	                      : place->length > STORED_MOST(array->tile_bytes)));
}

bool sl_tile_is_stored(struct sl_tile *tile)
{
	return tile->array->h5.of.layout <= SL_H5_CONTIGUOUS && tile->place.length &&
	       !tile_unwanted(tile) && !tile_misplaced(tile);
}

void sl_tile_run(struct sl_tile *tile)
{
	if (tile_unwanted(tile))
		sl_tile_end(tile, NULL, NULL, NULL, sl_fail(-ECANCELED, "cancelled"));
	else if (!tile->place.length)
		sl_tile_end(tile, NULL, NULL, NULL, 0);
	else if (tile_misplaced(tile))
		sl_tile_end(tile, NULL, NULL, NULL,
		            tile_fail(tile, -EBADMSG, "its place in the file cannot be true"));
	else if (tile->array->plain)
		tile_run_plain(tile);
	else
		tile_run_filtered(tile);
}

static void tile_run(struct sl_task *task)
{
	sl_tile_run(SL_CONTAINER(task, struct sl_tile, task));
}
