/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Looks at the HDF5 file: a dataset and its chunks in one state of the file
 *
 * Threads: any that may wait for storage and for HDF5's lock.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "arrays/arrays_internal.h"

/* Whether a dataset can be the same at another time: but for its length nothing is another. */
static bool array_is_same(const struct sl_h5_array *a, const struct sl_h5_array *b)
{
	bool same = a->rank == b->rank && a->depth == b->depth && a->element == b->element &&
	            a->layout == b->layout &&
	            (a->layout != SL_H5_CONTIGUOUS || a->address == UINT64_MAX ||
	             a->address == b->address) &&
	            !strcmp(a->type, b->type) && a->filters.count == b->filters.count &&
	            a->segment_count == b->segment_count && !a->fill == !b->fill &&
	            (!a->fill || !memcmp(a->fill, b->fill, a->element));

	/* Readers have the bytes of the header without a lock; files of segments stay open. */
	if (same && a->layout == SL_H5_COMPACT)
		same = a->bytes == b->bytes && !memcmp(a->compact, b->compact, a->bytes);
	for (size_t i = 0; same && i < a->segment_count; i++)
		same = !strcmp(a->segments[i].file, b->segments[i].file) &&
		       a->segments[i].offset == b->segments[i].offset &&
		       a->segments[i].bytes == b->segments[i].bytes;

	for (unsigned i = 0; same && i < a->rank; i++)
		same = a->chunk[i] == b->chunk[i] && (!i || a->shape[i] == b->shape[i]);
	same = same && a->part_count == b->part_count;
	for (size_t i = 0; same && i < a->part_count; i++)
		same = !strcmp(a->parts[i].file, b->parts[i].file) &&
		       !strcmp(a->parts[i].dataset, b->parts[i].dataset) &&
		       !memcmp(a->parts[i].start, b->parts[i].start,
		               offsetof(struct sl_h5_part, rank) -
		                       offsetof(struct sl_h5_part, start));
	for (unsigned i = 0; same && i < a->filters.count; i++)
		same = a->filters.filter[i].number == b->filters.filter[i].number &&
		       !memcmp(a->filters.filter[i].values, b->filters.filter[i].values,
		               sizeof(a->filters.filter[i].values));
	return same;
}

/* Opens the dataset in one state of the file. With a sentence. */
int sl_array_look(struct sl_array *array, const char *dataset, struct sl_h5_reader **reader,
                  struct sl_h5_array *found, struct sl_h5_state *state)
{
	int64_t deadline = sl_now() + SL_ARRAY_PATIENCE_NS;

	if (array->blocks) {
		/* The backend of the file knows that by the ETag. */
		*state = (struct sl_h5_state){.length = array->blocks->source.length};
		return sl_h5_reader_open(&array->blocks->source, array->path, dataset, reader,
		                         found);
	}
	for (;;) {
		int rc = sl_h5_state_take(array->fd, deadline, state), holds;

		if (rc)
			return sl_fail(rc, "cannot look at '%s': %s", array->path,
			               rc == -EAGAIN ? "it is being written all the time"
			                             : sl_error_text(rc));
		array->source.fd = array->fd;
		rc = sl_h5_reader_open(&array->source, array->path, dataset, reader, found);
		holds = sl_h5_state_holds(array->fd, state);
		/* A file that another program writes is as it was found. */
		if (holds == 1 || (holds < 0 && rc))
			return rc;
		if (!rc) {
			sl_h5_reader_close(*reader);
			sl_h5_array_clear(found);
			*reader = NULL;
		}
		if (holds < 0 || sl_now() > deadline)
			return sl_fail(holds < 0 ? holds : -EAGAIN,
			               "'%s' changes while it is opened", array->path);
	}
}

uint64_t sl_virtual_length(const struct sl_array *array, const struct sl_h5_array *of)
{
	uint64_t length = 0;

	if (!of->part_count || of->parts->count[0] != UINT64_MAX)
		return of->address;
	for (size_t i = 0; i < array->h5.of.part_count; i++)
		if (array->sources[i])
			length = SL_MAX(length, atomic_load(&array->sources[i]->length));
	return SL_MIN(length, of->address);
}

/* Opens the dataset again, as it is now. */
int sl_array_look_again_locked(struct sl_array *array, uint64_t *length)
{
	struct sl_h5_reader *reader = NULL;
	struct sl_h5_state state;
	struct sl_h5_array found;
	uint64_t changes; /* by programs other than our writer, which only makes a dataset longer */
	int rc = sl_array_look(array, array->h5.of.name, &reader, &found, &state);

	if (rc)
		return rc;
	*length = array->sources ? sl_virtual_length(array, &found)
	          : found.rank   ? found.shape[0]
	                         : 1;
	if (!array_is_same(&array->h5.of, &found) || *length < atomic_load(&array->length)) {
		sl_h5_reader_close(reader);
		sl_h5_array_clear(&found);
		return sl_fail(-ESTALE,
		               "'%s#%s' is shorter than it was, or another dataset, or its header "
		               "has other bytes",
		               array->path, array->h5.of.name);
	}
	changes = sl_h5_state_holds(array->fd, &array->h5.state) < 0;
	atomic_fetch_add(&array->changes, changes);
	sl_h5_reader_close(array->h5.reader);
	array->h5.reader = reader;
	array->h5.state = state;
	if (!array->in_line)
		array->h5.of.address = found.address;
	sl_h5_array_clear(&found);
	sl_tiles_forget(array, &state);
	atomic_fetch_add(&array->changes, changes);
	return 0;
}

/* Where bytes lie that are not in chunks. */
static void array_place(const struct sl_array *array, struct sl_tile *tile)
{
	const struct sl_job *job = SL_CONTAINER(tile->portions.next, struct sl_portion, link)->job;
	const struct sl_h5_array *of = &array->h5.of;
	uint64_t offset = job->walk.flat ? tile->first[0] : sl_walk_offset(array, tile->first);

	tile->place.address = offset + (of->layout == SL_H5_CONTIGUOUS ? of->address : 0);
	tile->place.length =
		job->walk.flat ? job->base.length
			       : SL_MIN(array->tile_bytes, atomic_load(&array->bytes) - offset);
	if (of->layout == SL_H5_CONTIGUOUS && of->address == UINT64_MAX)
		tile->place.length = 0;
}

static int array_find_locked(struct sl_array *array, struct sl_tile **tiles, size_t count)
	SL_REQUIRES(&array->h5.mutex)
{
	if (array->h5.of.layout != SL_H5_CHUNKED) {
		for (size_t i = 0; i < count; i++)
			array_place(array, tiles[i]);
		return 0;
	}
	struct sl_h5_place *places = calloc(count, sizeof(*places));
	if (!places)
		return sl_fail(-ENOMEM, "no memory");
	for (size_t i = 0; i < count; i++)
		places[i].at = tiles[i]->first;
	int rc = sl_h5_reader_find(array->h5.reader, count, places);
	for (size_t i = 0; !rc && i < count; i++)
		tiles[i]->place = places[i];
	free(places);
	return rc;
}

int sl_array_measure(const struct sl_array *array, uint64_t length, uint64_t *bytes)
{
	const struct sl_h5_array *of = &array->h5.of;

	*bytes = of->element;
	for (unsigned i = 0; i < of->rank; i++)
		if (__builtin_mul_overflow(*bytes, i ? of->shape[i] : length, bytes) ||
		    *bytes > INT64_MAX)
			return sl_fail(-EBADMSG, "'%s#%s' has more bytes than a file can have",
			               array->path, of->name);
	return 0;
}

int sl_array_find(struct sl_array *array, struct sl_tile **tiles, size_t count)
{
	int64_t deadline = sl_now() + SL_ARRAY_PATIENCE_NS;
	uint64_t length;
	int rc, holds;

	sl_mutex_lock(&array->h5.mutex);
	/* Ended by a look in one state of the file, or at the deadline. */
	for (;;) {
		rc = array_find_locked(array, tiles, count);
		holds = array->blocks ? 1 : sl_h5_state_holds(array->fd, &array->h5.state);
		if (holds)
			break;
		rc = sl_now() < deadline
		             ? sl_array_look_again_locked(array, &length)
		             : sl_fail(-EAGAIN, "'%s' changes all the time", array->path);
		if (rc)
			break;
	}
	if (holds < 0)
		rc = sl_fail(holds, "'%s' has changed since it was opened: %s", array->path,
		             sl_error_text(holds));
	sl_mutex_lock(&array->mutex);
	for (size_t i = 0; !rc && i < count; i++) {
		tiles[i]->state = array->h5.state;
		tiles[i]->generation = array->locked.generation;
	}
	sl_mutex_unlock(&array->mutex);
	sl_mutex_unlock(&array->h5.mutex);
	return rc;
}
