/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Virtual datasets: their parts are datasets, most in other files, which are arrays themselves
 *
 * A job is cut into boxes with bytes side by side in memory, and the share of a part in a box is a
 * job of the source. Elements without a source get the fill value before.
 *
 * Threads: the thread of a step; a worker ends the last part, and with it the whole.
 */
#include <errno.h>
#include <stdlib.h>

#include "arrays/arrays_internal.h"

bool sl_virtual_first(const struct sl_array *array, size_t part)
{
	size_t i = 0;

	while (array->sources[i] != array->sources[part])
		i++;
	return i == part;
}

/* A part is over: the last ends the whole. */
static void part_done(struct sl_piece *piece)
{
	struct sl_job *job = SL_CONTAINER(piece, struct sl_job, base), *whole = job->whole;
	struct sl_array *array = SL_CONTAINER(whole->base.backend, struct sl_array, base);
	bool over;

	sl_mutex_lock(&array->mutex);
	if (piece->error)
		sl_job_fail_locked(whole, piece->error, piece->message);
	over = sl_job_count_locked(whole);
	sl_mutex_unlock(&array->mutex);
	free(piece->message);
	free(job);
	if (over)
		sl_job_end(whole);
}

/* Starts the parts of the walk's box. Returns 0 or -ENOMEM. */
static int virtual_begin_box(struct sl_array *array, struct sl_job *whole)
{
	uint64_t bytes = 0;
	struct sl_walk walk;

	for (size_t i = 0; i < array->h5.of.part_count; i++)
		bytes += sl_walk_part(&whole->walk, i, &walk);
	sl_walk_fill(&whole->walk, bytes);
	/* A source may have grown meanwhile, and gives more than is filled. */
	for (size_t i = 0; i < array->h5.of.part_count; i++) {
		struct sl_job *job;

		if (!sl_walk_part(&whole->walk, i, &walk))
			continue;
		job = calloc(1, sizeof(*job));
		if (!job)
			return -ENOMEM;
		job->pending = 1;
		job->whole = whole;
		job->walk = walk;
		job->base.backend = &array->sources[i]->base;
		job->base.done = part_done;
		sl_mutex_lock(&array->mutex);
		whole->pending++;
		sl_mutex_unlock(&array->mutex);
		sl_job_start(array->sources[i], job);
	}
	return 0;
}

void sl_virtual_begin(struct sl_array *array, struct sl_job *job)
{
	/* The file may have changed. */
	int rc = sl_array_find(array, NULL, 0);
	const char *message = rc ? sluice_last_message() : NULL;

	while (!rc && sl_walk_box(&job->walk))
		rc = sl_job_stopped(job) ? -ECANCELED : virtual_begin_box(array, job);
	if (rc) {
		sl_mutex_lock(&array->mutex);
		sl_job_fail_locked(job, rc, message);
		sl_mutex_unlock(&array->mutex);
	}
}
