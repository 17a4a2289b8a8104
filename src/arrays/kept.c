/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Things that an array keeps: tiles, because others may want the rest, and memory for undoing
 * filters
 *
 * Threads: any; nothing waits.
 */
#include <stdlib.h>
#include <string.h>

#include "arrays/arrays_internal.h"

static void undoing_free(struct sl_undoing *undoing)
{
	sl_unfilter_free(undoing->unfilter);
	free(undoing->stored);
	free(undoing->bytes);
	free(undoing);
}

/* Returns memory for so many stored bytes; NULL: there is none. */
struct sl_undoing *sl_undoing_take(struct sl_array *array, size_t n)
{
	struct sl_undoing *undoing = NULL;

	sl_mutex_lock(&array->mutex);
	struct sl_list *link = sl_list_take(&array->locked.undoing);
	sl_mutex_unlock(&array->mutex);
	undoing = link ? SL_CONTAINER(link, struct sl_undoing, link) : calloc(1, sizeof(*undoing));
	if (undoing && undoing->room < n) {
		free(undoing->stored);
		undoing->room = n + n / 8;
		undoing->stored = malloc(undoing->room);
	}
	if (undoing && undoing->stored &&
	    (undoing->unfilter || !sl_unfilter_new(&array->h5.of.filters, &undoing->unfilter)))
		return undoing;
	if (undoing)
		undoing_free(undoing);
	return NULL;
}

void sl_undoing_give(struct sl_array *array, struct sl_undoing *undoing)
{
	if (!undoing)
		return;
	sl_mutex_lock(&array->mutex);
	sl_list_append(&array->locked.undoing, &undoing->link);
	sl_mutex_unlock(&array->mutex);
}

void sl_tiles_init(struct sl_array *array, size_t shares) SL_UNCHECKED
{
	uint64_t tile = array->plain ? SL_MIN(array->tile_bytes, SL_CUT_BYTES) : array->tile_bytes;
	uint64_t bytes = SL_MAX(tile, 1) * shares;
	unsigned least = 2 * (unsigned)array->core->settings.workers;

	sl_mutex_init(&array->mutex);
	for (size_t i = 0; i < SL_TILE_BUCKETS; i++)
		sl_list_init(&array->locked.buckets[i]);
	sl_list_init(&array->locked.kept);
	sl_list_init(&array->locked.moving);
	sl_list_init(&array->locked.hauls);
	sl_list_init(&array->locked.jobs);
	sl_list_init(&array->locked.undoing);
	array->locked.most = (unsigned)SL_MIN(SL_TILES_BYTES / bytes, SL_TILES_MOST);
	array->locked.each = bytes;
	array->locked.most = SL_MAX(array->locked.most, least);
	/* As many are found fast, and take little memory. */
	array->locked.kept_most = (unsigned)SL_MIN(SL_MAX(SL_TILES_KEPT / bytes, 1), SL_TILES_MOST);
	array->locked.state = array->h5.state;
}

void sl_tile_free(struct sl_tile *tile)
{
	if (!tile->piece)
		free(tile->stored);
	free(tile->piece);
	free(tile->message);
	free(tile->bytes);
	free(tile);
}

/* Takes a tile that is kept out. */
static void tile_drop_locked(struct sl_array *array, struct sl_tile *tile)
	SL_REQUIRES(&array->mutex)
{
	sl_list_remove(&tile->link);
	if (sl_list_linked(&tile->bucket))
		sl_list_remove(&tile->bucket);
	array->locked.kept_count--;
	sl_tile_free(tile);
}

/* Forgets kept tiles, the oldest first, until there are as few; those in use stay. */
void sl_tiles_shrink_locked(struct sl_array *array, unsigned most) SL_REQUIRES(&array->mutex)
{
	sl_list_each_of (tile, &array->locked.kept, struct sl_tile, link) {
		if (array->locked.kept_count <= most)
			return;
		if (!tile->holds)
			tile_drop_locked(array, tile);
	}
}

void sl_tiles_forget(struct sl_array *array, const struct sl_h5_state *state)
{
	sl_mutex_lock(&array->mutex);
	array->locked.generation++;
	array->locked.state = *state;
	memset(array->locked.places, 0, sizeof(array->locked.places));
	/* Those in use, and those on their way, are not found again. */
	for (size_t i = 0; i < SL_TILE_BUCKETS; i++)
		sl_list_each_of (tile, &array->locked.buckets[i], struct sl_tile, bucket)
			sl_list_remove(&tile->bucket);
	sl_tiles_shrink_locked(array, 0);
	sl_mutex_unlock(&array->mutex);
}

/* No other thread knows the array any more. */
void sl_tiles_free(struct sl_array *array) SL_UNCHECKED
{
	sl_tiles_shrink_locked(array, 0);
	sl_list_each_of (undoing, &array->locked.undoing, struct sl_undoing, link)
		undoing_free(undoing);
	sl_mutex_destroy(&array->mutex);
}

struct sl_list *sl_tile_bucket(struct sl_array *array, uint64_t number)
{
	return &array->locked.buckets[sl_random(&(uint64_t){number}) % SL_TILE_BUCKETS];
}
