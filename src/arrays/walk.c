/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Geometry: a range of bytes of a box becomes boxes, each box becomes portions of tiles
 *
 * The bytes of an element are one more dimension, so a range may begin in the middle of one. A
 * range of a packed box is at most two boxes for each dimension: those that lie side by side in
 * memory. No list of rows is ever made.
 *
 * Threads: any; a walk belongs to one thread at a time.
 */
#include <string.h>

#include "arrays/arrays_internal.h"

void sl_walk_begin(struct sl_walk *walk, const struct sl_array *array, const struct sl_box *box,
                   uint64_t offset, uint64_t length, char *data)
{
	unsigned rank = array->dimensions - 1;
	uint64_t stride = 1;
	bool whole = true;

	*walk = (struct sl_walk){.array = array,
	                         .at = offset,
	                         .end = offset + length,
	                         .offset = offset,
	                         .data = data};
	for (unsigned i = 0; i < rank; i++) {
		walk->start[i] = box ? box->start[i] : 0;
		walk->count[i] = box ? box->count[i] : array->h5.of.shape[i];
	}
	walk->count[rank] = array->h5.of.element;
	for (unsigned i = array->dimensions; i--; stride *= walk->count[i])
		walk->stride[i] = stride;
	/* Bytes side by side: rows that follow each other in one dimension, whole below it. */
	walk->flat = array->in_line;
	for (unsigned i = rank; i--;) {
		walk->flat = walk->flat && (whole || walk->count[i] == 1);
		whole = whole && walk->count[i] == array->h5.of.shape[i];
	}
	walk->base = sl_walk_offset(array, walk->start);
}

/* Takes the largest box that the range begins with: whole rows of the slowest dimension whose rows
 * begin here and are not longer than the range. */
bool sl_walk_box(struct sl_walk *walk)
{
	unsigned n = walk->array->dimensions, k = 0;
	uint64_t left = walk->end - walk->at, rest = walk->at, taken;

	if (!left)
		return false;
	while (k + 1 < n && (walk->at % walk->stride[k] || left < walk->stride[k]))
		k++;
	for (unsigned i = 0; i < n; i++) {
		uint64_t index = rest / walk->stride[i];

		rest -= index * walk->stride[i];
		walk->low[i] = walk->start[i] + (i > k ? 0 : index);
		walk->high[i] = walk->low[i] + (i > k ? walk->count[i] : 1);
	}
	/* The slowest dimension has no end: the dataset may have grown. */
	taken = left / walk->stride[k];
	if (k)
		taken = SL_MIN(taken, walk->start[k] + walk->count[k] - walk->low[k]);
	walk->high[k] = walk->low[k] + taken;
	walk->at += taken * walk->stride[k];
	for (unsigned i = 0; i < n; i++)
		walk->next[i] = walk->low[i] - walk->low[i] % walk->array->tile[i];
	walk->inside = true;
	return true;
}

uint64_t sl_walk_part(const struct sl_walk *walk, size_t number, struct sl_walk *out)
{
	const struct sl_h5_part *part = &walk->array->h5.of.parts[number];
	const struct sl_array *source = walk->array->sources[number];
	unsigned rank = walk->array->dimensions - 1;
	uint64_t bytes = !!source;

	*out = *walk;
	out->array = source;
	out->at = out->end;
	for (unsigned i = 0; bytes && i <= rank; i++) {
		uint64_t start = i && i < rank ? part->start[i] : 0;
		uint64_t count = !i         ? atomic_load(&source->length)
		                 : i < rank ? part->count[i]
		                            : source->h5.of.element;

		out->low[i] = SL_MAX(walk->low[i], start);
		out->high[i] = SL_MIN(walk->high[i], start + count);
		out->next[i] = out->low[i] - out->low[i] % source->tile[i];
		bytes *= out->high[i] - SL_MIN(out->low[i], out->high[i]);
	}
	return bytes;
}

bool sl_walk_next(struct sl_walk *walk, uint64_t first[SL_ARRAY_DIMENSIONS],
                  struct sl_portion *portion)
{
	const struct sl_array *array = walk->array;
	unsigned n = array->dimensions, i;
	uint64_t at = 0;

	if (walk->flat && walk->at < walk->end) {
		first[0] = walk->base + walk->at;
		walk->at = walk->end;
		portion->data = walk->data;
		return true;
	}
	if (!walk->inside && !sl_walk_box(walk))
		return false;
	portion->covers = true;
	for (i = 0; i < n; i++) {
		uint64_t low = SL_MAX(walk->low[i], walk->next[i]);
		uint64_t end = walk->next[i] + array->tile[i];
		uint64_t high = SL_MIN(walk->high[i], end);
		uint64_t whole = i + 1 == n ? array->h5.of.element
		                 : i        ? array->h5.of.shape[i]
		                     : atomic_load_explicit(&array->length, memory_order_relaxed);

		first[i] = walk->next[i];
		portion->from[i] = low - walk->next[i];
		portion->count[i] = high - low;
		portion->covers &= low == walk->next[i] && high >= SL_MIN(end, whole);
		at += (low - walk->start[i]) * walk->stride[i];
	}
	portion->data = walk->data + (at - walk->offset);
	for (i = n; i--;) {
		walk->next[i] += array->tile[i];
		if (walk->next[i] < walk->high[i])
			return true;
		walk->next[i] = walk->low[i] - walk->low[i] % array->tile[i];
	}
	walk->inside = false;
	return true;
}

uint64_t sl_walk_number(const struct sl_array *array, const uint64_t *first)
{
	uint64_t number = 0;

	for (unsigned i = 0; i + 1 < array->dimensions; i++) {
		uint64_t shape = array->h5.of.shape[i], tile = array->tile[i];

		number = (i ? number * (shape / tile + !!(shape % tile)) : 0) + first[i] / tile;
	}
	return number;
}

uint64_t sl_walk_offset(const struct sl_array *array, const uint64_t *first)
{
	uint64_t offset = 0, stride = array->h5.of.element;

	for (unsigned i = array->dimensions - 1; i--; stride *= array->h5.of.shape[i])
		offset += first[i] * stride;
	return offset;
}

/* Finds the dimension whose elements, and all below, are side by side in the tile and in memory.
 * Returns their bytes. */
static uint64_t portion_run(const struct sl_walk *walk, const struct sl_portion *portion,
                            unsigned *dimension)
{
	unsigned i = walk->array->dimensions - 1;
	uint64_t run = portion->count[i];

	for (;
	     i && portion->count[i] == walk->array->tile[i] && portion->count[i] == walk->count[i];
	     i--)
		run *= portion->count[i - 1];
	*dimension = i;
	return run;
}

bool sl_portion_hull(const struct sl_walk *walk, const struct sl_portion *portion, uint64_t *begin,
                     uint64_t *length)
{
	uint64_t stride = 1, first = 0, last = 0;
	bool one = true;
	unsigned run;

	if (walk->flat) {
		*begin = 0;
		*length = walk->end - walk->offset;
		return true;
	}
	portion_run(walk, portion, &run);
	for (unsigned i = 0; i < run; i++)
		one = one && portion->count[i] == 1;
	for (unsigned i = walk->array->dimensions; i--; stride *= walk->array->tile[i]) {
		first += portion->from[i] * stride;
		last += (portion->from[i] + portion->count[i] - 1) * stride;
	}
	*begin = first;
	*length = last - first + 1;
	return one;
}

/* Writes elements of the fill value; the run may begin in the middle of one. */
static void portion_fill(const struct sl_array *array, char *to, uint64_t run, uint64_t skip)
{
	/* The fill value is of the type, with the dimensions of an array type. */
	size_t n = array->h5.of.element;

	if (!array->h5.of.fill) {
		memset(to, 0, run);
		return;
	}
	for (unsigned i = 0; i < array->h5.of.depth; i++)
		n *= array->h5.of.shape[array->h5.of.rank - 1 - i];
	for (uint64_t done = 0; done < run; skip = 0) {
		uint64_t here = SL_MIN(n - skip, run - done);

		memcpy(to + done, array->h5.of.fill + skip, here);
		done += here;
	}
}

void sl_walk_fill(const struct sl_walk *walk, uint64_t bytes)
{
	unsigned n = walk->array->dimensions;
	uint64_t all = 1, at = 0;

	for (unsigned i = 0; i < n; i++) {
		all *= walk->high[i] - walk->low[i];
		at += (walk->low[i] - walk->start[i]) * walk->stride[i];
	}
	if (bytes < all)
		portion_fill(walk->array, walk->data + (at - walk->offset), all, walk->low[n - 1]);
}

/* The place of a run in the fill value. */
static uint64_t portion_skip(const struct sl_array *array, const struct sl_portion *portion,
                             const uint64_t *index)
{
	unsigned n = array->dimensions;
	uint64_t skip = 0, stride = 1;

	for (unsigned i = n; i-- && n - i <= array->h5.of.depth + 1;) {
		skip += (portion->from[i] + index[i]) * stride;
		stride *= array->tile[i];
	}
	return skip;
}

void sl_portion_copy(const struct sl_walk *walk, const struct sl_portion *portion, const char *tile)
{
	const struct sl_array *array = walk->array;
	uint64_t index[SL_ARRAY_DIMENSIONS] = {0}, stride[SL_ARRAY_DIMENSIONS], run, first = 0;
	uint64_t at = 1;
	char *to = portion->data;
	unsigned below, i;

	if (walk->flat) {
		memcpy(to, tile, walk->end - walk->offset);
		return;
	}
	for (i = array->dimensions; i--; at *= array->tile[i])
		stride[i] = at;
	for (i = 0; i < array->dimensions; i++)
		first += portion->from[i] * stride[i];
	const char *from = tile ? tile + first : NULL;
	run = portion_run(walk, portion, &below);
	for (;;) {
		if (from)
			memcpy(to, from, run);
		else
			portion_fill(array, to, run, portion_skip(array, portion, index));
		for (i = below; i--;) {
			to += walk->stride[i];
			from += from ? stride[i] : 0;
			if (++index[i] < portion->count[i])
				break;
			to -= index[i] * walk->stride[i];
			from -= from ? index[i] * stride[i] : 0;
			index[i] = 0;
		}
		if (i == UINT32_MAX)
			return;
	}
}
