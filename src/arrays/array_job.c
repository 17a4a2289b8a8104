/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Jobs: pieces of the engine
 *
 * The steps of a job look tiles up, many at a time, as long as there is room; when tiles end, jobs
 * that wait go on.
 *
 * Threads: one takes the steps of all jobs of an array, for lookups have a lock: of core->waiting,
 * or, as servers are asked with keys that a task there may have to fetch, of the pool of looks.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "arrays/arrays_internal.h"

#define BATCH 128 /* tiles that are looked up together */
/* The last tile of a job is no task of its own if it has so few bytes: a thread less is woken. */
#define HERE_BYTES ((size_t)128 << 10)

/* Tiles and portions of a step. */
struct step {
	struct sl_tile *fresh[BATCH];
	size_t count;
	struct sl_list hits; /* portions in kept tiles, with counted holds */
	struct sl_tile *hit[BATCH];
	size_t hit_count;
	bool walked;
	bool alone; /* no other job wants a step */
};

static struct sl_tile *tile_find_locked(struct sl_array *array, uint64_t number)
	SL_REQUIRES(&array->mutex)
{
	sl_list_each_of (tile, sl_tile_bucket(array, number), struct sl_tile, bucket)
		if (tile->number == number)
			return tile;
	return NULL;
}

/* Returns how much memory a tile probably needs until it is over, beside that of the caller. */
static uint64_t tile_memory_locked(const struct sl_array *array, const struct sl_portion *portion)
	SL_REQUIRES(&array->mutex)
{
	uint64_t begin, n;

	if (!array->plain)
		return array->locked.each;
	return sl_portion_hull(&portion->job->walk, portion, &begin, &n) ? 0 : n;
}

/* Gives the portion to its tile, which is found or made. Returns false: no memory. */
static bool step_add_locked(struct sl_array *array, struct step *step, struct sl_portion *portion,
                            const uint64_t *first) SL_REQUIRES(&array->mutex)
{
	uint64_t number = array->plain ? 0 : sl_walk_number(array, first);
	struct sl_tile *tile = array->plain ? NULL : tile_find_locked(array, number);

	if (tile && tile->kept) {
		tile->holds++;
		sl_list_remove(&tile->link);
		sl_list_append(&array->locked.kept, &tile->link);
		step->hit[step->hit_count++] = tile;
		sl_list_append(&step->hits, &portion->link);
		return true;
	}
	if (!tile) {
		tile = calloc(1, sizeof(*tile));
		if (!tile)
			return false;
		tile->array = array;
		tile->number = number;
		memcpy(tile->first, first, sizeof(tile->first));
		tile->place.at = tile->first;
		sl_list_init(&tile->portions);
		if (!array->plain)
			sl_list_append(sl_tile_bucket(array, number), &tile->bucket);
		array->locked.in_flight++;
		tile->memory = tile_memory_locked(array, portion);
		array->locked.memory += tile->memory;
		step->fresh[step->count++] = tile;
	}
	sl_list_append(&tile->portions, &portion->link);
	portion->job->pending++;
	return true;
}

/* Walks on while there is room. */
static void step_walk_locked(struct sl_array *array, struct sl_job *job, struct step *step)
	SL_REQUIRES(&array->mutex)
{
	uint64_t first[SL_ARRAY_DIMENSIONS] = {0};
	struct sl_portion *portion;

	while (step->count < BATCH && step->hit_count < BATCH) {
		if (sl_job_stopped(job))
			sl_job_fail_locked(job, -ECANCELED, NULL);
		if (job->error) {
			step->walked = true;
			return;
		}
		if (sl_tiles_full_locked(array, 1))
			return;
		portion = calloc(1, sizeof(*portion));
		if (portion && !sl_walk_next(&job->walk, first, portion)) {
			free(portion);
			step->walked = true;
			return;
		}
		if (portion)
			portion->job = job;
		if (!portion || !step_add_locked(array, step, portion, first)) {
			free(portion);
			sl_job_fail_locked(job, -ENOMEM, "no memory");
		}
	}
}

static int tile_compare(const void *a, const void *b)
{
	const struct sl_tile *first = *(struct sl_tile *const *)a,
			     *second = *(struct sl_tile *const *)b;

	return (first->place.address > second->place.address) -
	       (first->place.address < second->place.address);
}

/* Notes where chunks without filters are, for sl_array_submit(). */
static void step_note(struct sl_array *array, const struct step *step)
{
	sl_mutex_lock(&array->mutex);
	for (size_t i = 0; array->plain && i < step->count; i++) {
		const struct sl_tile *tile = step->fresh[i];
		uint64_t number = sl_walk_number(array, tile->first);

		if (tile->place.length == array->tile_bytes &&
		    tile->generation == array->locked.generation) {
			array->locked.places[number % SL_PLACES].number = number;
			array->locked.places[number % SL_PLACES].address = tile->place.address;
		}
	}
	sl_mutex_unlock(&array->mutex);
}

/* Looks the fresh tiles up and submits them in the order of the file. */
static void step_begin(struct sl_array *array, struct sl_job *job, struct step *step)
{
	/* Also for kept tiles alone: the file may have changed. */
	int rc = 0;

	if (array->blocks)
		sl_h5_blocks_serve(array->blocks, job);
	if (step->count || step->hit_count)
		rc = sl_array_find(array, step->fresh, step->count);
	if (array->blocks)
		sl_h5_blocks_serve(array->blocks, NULL);
	if (rc && step->hit_count) {
		sl_mutex_lock(&array->mutex);
		sl_job_fail_locked(job, rc, sluice_last_message());
		sl_mutex_unlock(&array->mutex);
	}
	if (!rc)
		step_note(array, step);
	if (!rc)
		qsort(step->fresh, step->count, sizeof(struct sl_tile *), tile_compare);
	if (!rc && array->blocks) {
		sl_hauls_submit(array, step->fresh, step->count,
		                job->base.length -
		                        SL_MIN(job->walk.at - job->walk.offset, job->base.length) +
		                        step->count * array->tile_bytes);
		return;
	}
	for (size_t i = 0; i < step->count; i++) {
		if (rc)
			sl_tile_end(step->fresh[i], NULL, NULL, NULL, rc);
		else if (step->walked && step->alone && i + 1 == step->count &&
		         array->tile_bytes <= HERE_BYTES)
			sl_tile_run(step->fresh[i]);
		else
			sl_tile_start(step->fresh[i]);
	}
}

/* Copies from kept tiles. */
static void step_copy(struct sl_array *array, struct step *step)
{
	size_t i = 0;

	sl_list_each_of (portion, &step->hits, struct sl_portion, link) {
		sl_portion_copy(&portion->job->walk, portion, step->hit[i++]->bytes);
		free(portion);
	}
	sl_mutex_lock(&array->mutex);
	for (i = 0; i < step->hit_count; i++)
		step->hit[i]->holds--;
	sl_mutex_unlock(&array->mutex);
}

/* Takes a step of a job. Returns whether the job is over. */
static bool job_step_unlock(struct sl_array *array, struct sl_job *job, bool *more)
	SL_RELEASES(&array->mutex)
{
	struct step step = {.alone = sl_list_empty(&array->locked.jobs)};
	bool over = false;

	sl_list_init(&step.hits);
	step.walked = array->sources;
	if (!step.walked)
		step_walk_locked(array, job, &step);
	sl_mutex_unlock(&array->mutex);
	if (array->sources)
		sl_virtual_begin(array, job);
	step_begin(array, job, &step);
	step_copy(array, &step);
	sl_mutex_lock(&array->mutex);
	if (step.walked)
		over = sl_job_count_locked(job);
	else
		sl_list_append(&array->locked.jobs, &job->link);
	/* The last look at the array, unless there is more to do: another thread may close it. */
	*more = !sl_list_empty(&array->locked.jobs) && !sl_tiles_full_locked(array, 1);
	array->locked.stepping = *more;
	sl_mutex_unlock(&array->mutex);
	return over;
}

void sl_array_step(struct sl_task *task)
{
	struct sl_array *array = SL_CONTAINER(task, struct sl_array, step);
	bool more = true;

	while (more) {
		struct sl_job *job;

		sl_mutex_lock(&array->mutex);
		job = SL_CONTAINER(sl_list_take(&array->locked.jobs), struct sl_job, link);
		if (job_step_unlock(array, job, &more))
			sl_job_end(job);
	}
}

/* Bytes side by side need no lookup, and are given to a worker. Returns false: there is no room. */
static bool job_start_flat(struct sl_array *array, struct sl_job *job)
{
	struct sl_portion *portion = calloc(1, sizeof(*portion));
	struct sl_tile *tile = calloc(1, sizeof(*tile));
	bool room = portion && tile;

	sl_mutex_lock(&array->mutex);
	room = room && !sl_tiles_full_locked(array, 1);
	if (room) {
		array->locked.in_flight++;
		tile->state = array->locked.state;
		tile->generation = array->locked.generation;
	}
	sl_mutex_unlock(&array->mutex);
	if (!room) {
		free(portion);
		free(tile);
		return false;
	}
	sl_walk_next(&job->walk, tile->first, portion);
	portion->job = job;
	tile->array = array;
	tile->place.at = tile->first;
	tile->place.address = array->h5.of.address + tile->first[0];
	tile->place.length = job->base.length;
	sl_list_init(&tile->portions);
	sl_list_append(&tile->portions, &portion->link);
	sl_tile_start(tile);
	return true;
}

/* Finds the bytes of a portion without a lookup: a kept tile, with a counted hold, or a known
 * place. Returns the state of the file then. */
static struct sl_h5_state job_find(struct sl_array *array, const struct sl_portion *portion,
                                   const uint64_t *first, struct sl_tile **tile, uint64_t *address)
{
	uint64_t number = array->in_line ? 0 : sl_walk_number(array, first);

	*tile = NULL;
	*address = 0;
	sl_mutex_lock(&array->mutex);
	struct sl_h5_state state = array->locked.state;
	if (array->in_line)
		*address = array->h5.of.address +
		           (portion->job->walk.flat ? first[0] : sl_walk_offset(array, first));
	else if (!array->plain)
		*tile = tile_find_locked(array, number);
	else if (array->locked.places[number % SL_PLACES].number == number)
		*address = array->locked.places[number % SL_PLACES].address;
	if (*tile && !(*tile)->kept)
		*tile = NULL;
	if (*tile) {
		(*tile)->holds++;
		sl_list_remove(&(*tile)->link);
		sl_list_append(&array->locked.kept, &(*tile)->link);
	}
	sl_mutex_unlock(&array->mutex);
	return state;
}

/* Ends a small job with bytes in memory, on the submitting thread. Returns false: it is to be
 * started. Nothing waits. */
static bool job_end_at_once(struct sl_array *array, struct sl_job *job)
{
	const size_t most = array->core->settings.inline_bytes;
	uint64_t first[SL_ARRAY_DIMENSIONS] = {0}, begin, n, address;
	struct sl_portion portion = {.job = job};
	struct sl_walk walk = job->walk;
	struct sl_tile *tile;
	char *bytes = NULL, *to;

	if (job->base.length > most || job->base.device || array->inner_limits.size_waits ||
	    array->sources || array->h5.of.layout > SL_H5_CONTIGUOUS ||
	    !array->inner->ops->read_now || !sl_walk_next(&walk, first, &portion) || walk.inside ||
	    walk.at < walk.end)
		return false;
	to = sl_portion_hull(&job->walk, &portion, &begin, &n) ? portion.data : NULL;
	struct sl_h5_state state = job_find(array, &portion, first, &tile, &address);
	if (!tile && (!address || n > most || (!to && !(to = bytes = malloc(n)))))
		return false;
	bool done = (tile || array->inner->ops->read_now(array->inner, to, n, address + begin) ==
	                             (int64_t)n) &&
	            sl_h5_state_holds(array->fd, &state) == 1;
	if (done && (tile || bytes))
		sl_portion_copy(&job->walk, &portion, tile ? tile->bytes : bytes - begin);
	free(bytes);
	if (tile) {
		sl_mutex_lock(&array->mutex);
		tile->holds--;
		sl_mutex_unlock(&array->mutex);
	}
	if (done)
		sl_job_end(job);
	return done;
}

void sl_array_submit(struct sl_backend *backend, struct sl_piece *piece)
{
	struct sl_array *array = SL_CONTAINER(backend, struct sl_array, base);
	struct sl_job *job = SL_CONTAINER(piece, struct sl_job, base);

	job->pending = 1;
	job->error = 0;
	job->message = NULL;
	job->whole = NULL;
	sl_walk_begin(&job->walk, array, piece->box, piece->offset, piece->length, piece->data);
	if (job_end_at_once(array, job))
		return;
	if (!job->walk.flat || !job_start_flat(array, job))
		sl_job_start(array, job);
}

void sl_array_cancel(struct sl_backend *backend)
{
	struct sl_array *array = SL_CONTAINER(backend, struct sl_array, base);

	sl_mutex_lock(&array->mutex);
	sl_list_each_of (tile, &array->locked.moving, struct sl_tile, link)
		if (sl_tile_give_up_locked(tile))
			atomic_store_explicit(&tile->piece->cancelled, true, memory_order_relaxed);
	sl_hauls_cancel_locked(array);
	sl_mutex_unlock(&array->mutex);
	for (size_t i = 0; array->sources && i < array->h5.of.part_count; i++)
		if (array->sources[i])
			sl_array_cancel(&array->sources[i]->base);
	if (array->blocks)
		sl_h5_blocks_cancel(array->blocks);
	if (array->inner->ops->cancel)
		array->inner->ops->cancel(array->inner);
}
