/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Hauls: stored bytes of a remote file for several tiles
 *
 * Tiles near each other in the file are a piece for the inner backend, which is a request; a tile
 * longer than a request is several pieces. The backend gives the length, and the longest gap
 * between two tiles. Requests, limits and hedges belong to the backend.
 *
 * Threads: the thread of a step submits; any thread of the backend ends a haul, and gives the tiles
 * to workers. No function waits.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "arrays/arrays_internal.h"

#define TILES_MOST 128 /* of a haul */

struct sl_haul {
	struct sl_list link; /* guarded by the array's mutex */
	struct sl_array *array;
	struct sl_piece *piece;
	size_t count;
	struct sl_tile *tiles[TILES_MOST];
	struct sluice_extent extents[TILES_MOST]; /* in the order of the file */
	uint64_t begin, end, wanted;
};

/* Gives a tile the end of an extent. Returns whether nothing more is to come. */
static bool tile_got_locked(struct sl_tile *tile, const struct sl_piece *piece,
                            const struct sluice_extent *extent)
{
	int error = piece->error;

	if (!error && piece->moved < extent->offset + extent->length - piece->offset)
		error = -EIO;
	if (error && !tile->error) {
		tile->error = error;
		tile->message = piece->message ? strdup(piece->message) : NULL;
	}
	return !--tile->hauls;
}

/* The piece is over, on any thread. */
static void haul_done(struct sl_piece *piece)
{
	struct sl_haul *haul = (struct sl_haul *)piece->op;
	struct sl_array *array = haul->array;
	size_t ready = 0;

	sl_mutex_lock(&array->mutex);
	sl_list_remove(&haul->link);
	for (size_t i = 0; i < haul->count; i++)
		if (tile_got_locked(haul->tiles[i], piece, &haul->extents[i]))
			haul->tiles[ready++] = haul->tiles[i];
	sl_mutex_unlock(&array->mutex);
	/* With the last of them the array may be gone. */
	for (size_t i = 0; i < ready; i++) {
		haul->tiles[i]->read = true;
		sl_tile_submit(haul->tiles[i]);
	}
	free(piece->message);
	free(piece);
	free(haul);
}

/* Ends the piece if nobody wants a tile of it. */
static void haul_give_up_locked(struct sl_haul *haul)
{
	for (size_t i = 0; i < haul->count; i++)
		if (!sl_tile_is_unwanted_locked(haul->tiles[i]))
			return;
	for (size_t i = 0; i < haul->count; i++)
		sl_tile_give_up_locked(haul->tiles[i]);
	atomic_store_explicit(&haul->piece->cancelled, true, memory_order_relaxed);
}

static void haul_submit(struct sl_haul *haul)
{
	struct sl_array *array = haul->array;
	struct sl_piece *piece = haul->piece;

	piece->backend = array->inner;
	piece->offset = haul->begin;
	piece->length = haul->end - haul->begin;
	piece->data = haul->extents[0].data;
	piece->extents = haul->extents;
	piece->extent_count = haul->count;
	piece->gaps = (int64_t)(piece->length - haul->wanted);
	piece->done = haul_done;
	/* Only the owner of a piece looks at it. */
	piece->op = (struct sluice_op *)haul;
	sl_mutex_lock(&array->mutex);
	sl_list_append(&array->locked.hauls, &haul->link);
	/* A cancel from now on finds it; one before may have come behind the look at its tiles. */
	haul_give_up_locked(haul);
	sl_mutex_unlock(&array->mutex);
	array->inner->ops->submit(array->inner, piece);
}

static struct sl_haul *haul_new(struct sl_array *array, uint64_t begin)
{
	size_t bytes = SL_MAX(array->inner_limits.piece_size, sizeof(struct sl_piece));
	struct sl_haul *haul = calloc(1, sizeof(*haul));

	if (haul)
		haul->piece = calloc(1, bytes);
	if (!haul || !haul->piece) {
		free(haul);
		return NULL;
	}
	haul->array = array;
	haul->begin = haul->end = begin;
	return haul;
}

static void haul_add(struct sl_haul *haul, struct sl_tile *tile, char *to, uint64_t offset,
                     uint64_t n)
{
	haul->tiles[haul->count] = tile;
	haul->extents[haul->count++] = (struct sluice_extent){to, n, offset};
	haul->end = offset + n;
	haul->wanted += n;
}

/* Whether the bytes may come with the haul. As much may lie between tiles as belongs to them. */
static bool haul_takes(const struct sl_haul *haul, const struct sl_cut *cut, uint64_t offset,
                       uint64_t n)
{
	uint64_t length = offset + n - haul->begin;

	return haul->count < TILES_MOST && offset >= haul->end && length <= cut->length &&
	       offset - haul->end <= cut->gap && length <= 2 * (haul->wanted + n);
}

/* Finds which bytes a tile needs, and memory for them. Returns 0, or -ENOMEM with a sentence. */
static int haul_range(struct sl_tile *tile, char **to, uint64_t *offset, uint64_t *n)
{
	const struct sl_array *array = tile->array;
	struct sl_portion *portion = SL_CONTAINER(tile->portions.next, struct sl_portion, link);
	uint64_t begin = 0;

	*n = tile->place.length;
	if (array->plain && sl_portion_hull(&portion->job->walk, portion, &begin, n))
		*to = portion->data;
	else if (array->plain)
		*to = tile->bytes = malloc(*n);
	else
		*to = tile->stored = malloc(*n);
	*offset = tile->place.address + begin;
	return *to ? 0 : sl_fail(-ENOMEM, "no memory");
}

/* Submits a tile longer than a request. Returns 0 or -ENOMEM. */
static int haul_split(struct sl_tile *tile, char *to, uint64_t offset, uint64_t n, uint64_t length)
{
	struct sl_array *array = tile->array;
	struct sl_list hauls = SL_LIST_INIT(hauls);
	unsigned count = 0;
	bool all = false;

	for (uint64_t at = 0, here; at < n; at += here) {
		struct sl_haul *haul = haul_new(array, offset + at);

		if (!haul)
			break;
		/* A short rest would cost another request. */
		here = n - at <= length + length / 2 ? n - at : length;
		haul_add(haul, tile, to + at, offset + at, here);
		sl_list_append(&hauls, &haul->link);
		count++;
		all = at + here == n;
	}
	tile->hauls = count;
	sl_list_each_of (haul, &hauls, struct sl_haul, link) {
		sl_list_remove(&haul->link);
		if (all) {
			haul_submit(haul);
		} else {
			free(haul->piece);
			free(haul);
		}
	}
	return all ? 0 : -ENOMEM;
}

/* Counts the memory of tiles, which is known now. */
static void hauls_count(struct sl_array *array, struct sl_tile *const *tiles, size_t count)
{
	uint64_t sum = 0;

	if (array->plain || !count)
		return;
	sl_mutex_lock(&array->mutex);
	for (size_t i = 0; i < count; i++) {
		uint64_t n = SL_MIN(tiles[i]->place.length, 2 * array->tile_bytes);

		array->locked.memory += n - tiles[i]->memory;
		tiles[i]->memory = n;
		sum += n;
	}
	array->locked.each = SL_MAX(sum / count, 1);
	sl_mutex_unlock(&array->mutex);
}

void sl_hauls_submit(struct sl_array *array, struct sl_tile **tiles, size_t count, uint64_t left)
{
	struct sl_haul *haul = NULL;

	hauls_count(array, tiles, count);
	for (size_t i = 0; i < count; i++) {
		struct sl_cut cut = {array->inner_limits.piece_bytes, 0, 1};
		uint64_t offset, n;
		char *to;

		if (!sl_tile_is_stored(tiles[i])) {
			sl_tile_submit(tiles[i]);
			continue;
		}
		if (array->inner->ops->cut)
			cut = array->inner->ops->cut(array->inner, left, left, UINT64_MAX);
		int rc = haul_range(tiles[i], &to, &offset, &n);
		if (haul && (rc || !haul_takes(haul, &cut, offset, n))) {
			haul_submit(haul);
			haul = NULL;
		}
		left -= SL_MIN(left, rc ? 0 : n);
		if (!rc && n > cut.length + cut.length / 2) {
			rc = haul_split(tiles[i], to, offset, n, cut.length);
		} else if (!rc) {
			haul = haul ? haul : haul_new(array, offset);
			if (haul) {
				tiles[i]->hauls = 1;
				haul_add(haul, tiles[i], to, offset, n);
			} else {
				rc = -ENOMEM;
			}
		}
		if (rc)
			sl_tile_end(tiles[i], NULL, NULL, NULL, sl_fail(rc, "no memory"));
	}
	if (haul)
		haul_submit(haul);
}

void sl_hauls_cancel_locked(struct sl_array *array)
{
	sl_list_each_of (haul, &array->locked.hauls, struct sl_haul, link)
		haul_give_up_locked(haul);
}
