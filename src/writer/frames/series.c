/* SPDX-License-Identifier: Apache-2.0 */
/* Series: adding one, with the dataset and all its memory, so that no frame waits for memory later.
 * Threads: the program's; functions that run as commands: the file thread. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "frames/frames_internal.h"

#define BUNDLES_LEAST 4

/* ------------------------------------------------------------------------------------- memory */

/* Divides a frame, or a block. */
static int shape_chunks(struct sluice_series *s)
{
	const struct sl_h5_layout *layout = &s->layout;
	struct sl_geometry *g = &s->geometry;

	*g = (struct sl_geometry){.element = layout->element, .rank = layout->rank};
	memcpy(g->shape, layout->shape, sizeof(layout->shape));
	memcpy(g->chunk, layout->chunk, sizeof(layout->chunk));
	for (unsigned i = 0; s->share && i < g->rank; i++) {
		g->shape[i] = s->share->block.count[i];
		g->origin[i] = s->share->block.start[i] % g->chunk[i];
	}
	return sl_geometry_init(g);
}

static int shape_frames(struct sluice_series *s)
{
	const struct sl_h5_layout *layout = &s->layout;
	struct sl_geometry *g = &s->geometry;
	int rc;

	rc = shape_chunks(s);
	s->frame_bytes = g->frame_bytes;
	s->stride = sl_whole_pages(g->frame_bytes);
	if (!rc && layout->gather > 1) {
		g->rank++;
		g->shape[0] = g->chunk[0] = layout->gather;
		memcpy(g->shape + 1, layout->shape, sizeof(layout->shape));
		memcpy(g->chunk + 1, layout->chunk, sizeof(layout->chunk));
		rc = sl_geometry_init(g);
	}
	if (!rc && s->stride > INT64_MAX / s->depth)
		rc = sl_fail(-EINVAL, "%u frames of %zu bytes are too much", s->depth,
		             s->frame_bytes);
	if (!rc && layout->contiguous && layout->frames > INT64_MAX / 2 / g->frame_bytes)
		rc = sl_fail(-EINVAL, "%" PRIu64 " frames of %zu bytes are too much for a file",
		             layout->frames, g->frame_bytes);
	/* Nothing has to be done to them. */
	if (layout->contiguous && !layout->precision)
		g->chunks = 0;
	return rc;
}

static int make_frames(struct sluice_series *s)
{
	size_t scalars = s->layout.scalar_count;
	uint64_t files = s->share ? s->share->files : 1;
	uint64_t held = s->writer->memory_bytes ? files * sl_h5_held_bytes(&s->layout) : 0;
	int rc = sl_bytes_take(s, (uint64_t)s->stride * s->depth + held);

	if (rc)
		return rc;
	s->frame_count = s->depth + (size_t)s->writer->threads * SL_PACKED_PER_COMPRESSOR + 1;
	s->frames = calloc(s->frame_count, sizeof(*s->frames));
	s->frame_of = calloc(s->depth, sizeof(*s->frame_of));
	s->scalars = calloc(s->frame_count * scalars + 1, sizeof(double));
	if (!s->frames || !s->frame_of || !s->scalars)
		return sl_fail(-ENOMEM, "no memory");
	rc = sl_area_take(&s->area, s->stride * s->depth);
	for (size_t i = 0; !rc && i < s->frame_count; i++) {
		struct sl_frame *frame = &s->frames[i];

		frame->series = s;
		frame->scalars = s->scalars + i * scalars;
		if (i < s->depth) {
			frame->data = s->area.memory + i * s->stride;
			s->frame_of[i] = frame;
		}
		sl_list_init(&frame->locked.finished);
		sl_frame_recycle_locked(frame);
	}
	return rc;
}

static int make_bundles(struct sluice_series *s)
{
	uint64_t gather = s->layout.gather, scalars = s->layout.scalar_count * gather, least, bytes;
	size_t stride = sl_whole_pages(s->geometry.frame_bytes);
	size_t row = sl_geometry_lies_whole(&s->geometry) ? 0 : s->geometry.chunk_bytes, count;
	int rc;

	if (gather < 2)
		return 0;
	/* For all frames with the program, and two more for the file thread. */
	least = s->depth / gather + 3;
	count = SL_MAX(least, BUNDLES_LEAST);
	bytes = (stride + scalars * sizeof(double) + gather * sizeof(struct sl_bundle_slot)) *
	                count +
	        row;
	rc = sl_bytes_take(s, bytes);
	if (rc)
		return rc;
	s->bundle_bytes = bytes;
	s->bundles = calloc(count, sizeof(*s->bundles));
	s->bundle_slots = calloc(count * gather, sizeof(*s->bundle_slots));
	s->bundle_scalars = calloc(count * scalars + 1, sizeof(double));
	if (!s->bundles || !s->bundle_slots || !s->bundle_scalars)
		return sl_fail(-ENOMEM, "no memory");
	rc = sl_area_take(&s->bundle_area, count * stride);
	if (!rc)
		rc = sl_area_take(&s->rows, row);
	for (size_t i = 0; !rc && i < count; i++) {
		struct sl_frame *bundle = &s->bundles[i];

		bundle->series = s;
		bundle->data = s->bundle_area.memory + i * stride;
		bundle->slots = s->bundle_slots + i * gather;
		bundle->scalars = s->bundle_scalars + i * scalars;
		sl_list_init(&bundle->locked.finished);
		sl_frame_recycle_locked(bundle);
	}
	return rc;
}

static void drop_bundles(struct sluice_series *s)
{
	sl_bytes_give(s, s->bundle_bytes);
	sl_area_release(&s->bundle_area);
	sl_area_release(&s->rows);
	free(s->bundles);
	free(s->bundle_slots);
	free(s->bundle_scalars);
	s->bundles = NULL;
	s->bundle_slots = NULL;
	s->bundle_scalars = NULL;
	s->bundle_bytes = s->locked.room = 0;
	sl_list_init(&s->locked.bundles);
}

/* ------------------------------------------------------------------------------------ dataset */

/* Reads a bundle from the file. */
static int read_bundle(struct sluice_series *s, struct sl_frame *bundle)
{
	const struct sl_geometry *g = &s->geometry;
	char *chunk = malloc(g->chunk_bytes);
	int rc = chunk ? 0 : sl_fail(-ENOMEM, "no memory");

	for (size_t i = 0; !rc && i < g->chunks; i++) {
		struct sl_block block;
		struct sl_run run;

		sl_geometry_block(g, i, &block);
		rc = sl_h5_chunk_read(s->dataset, bundle->locked.number, block.offset + 1, chunk,
		                      g->chunk_bytes);
		for (uint64_t at = 0; !rc && sl_block_run(g, &block, &at, &run);)
			memcpy(bundle->data + run.frame * g->element,
			       chunk + run.chunk * g->element, run.elements * g->element);
	}
	free(chunk);
	return rc;
}

/* Continues the last chunk before it is full: the next flush stores all of it without filters.
 * Called by the file thread. */
static int bundle_resume(struct sluice_series *s)
{
	uint64_t count = s->first % s->layout.gather;
	struct sl_frame *bundle = sl_bundle_open_locked(s, s->first - count);
	int rc = read_bundle(s, bundle);

	for (uint64_t i = 0; i < count; i++)
		bundle->slots[i].there = true;
	bundle->locked.taken = bundle->locked.there = bundle->locked.rows = count;
	s->locked.room -= count;
	return rc;
}

struct adding {
	struct sluice_series *series;
	const struct sl_h5_set_options *set;
	bool check; /* only whether it can be made */
};

/* Called by the file thread. */
static int add_dataset(struct sl_h5_file *file, void *argument)
{
	struct adding *adding = argument;
	struct sluice_series *s = adding->series;
	int rc = sl_h5_dataset_add(file, s->name, &s->layout, adding->set,
	                           adding->check ? NULL : &s->dataset, &s->first);

	if (rc || adding->check)
		return rc;
	if (s->layout.contiguous)
		rc = sl_direct_open(s);
	else if (s->bundles && s->first % s->layout.gather)
		rc = bundle_resume(s);
	if (rc) {
		sl_h5_dataset_forget(s->dataset);
		s->dataset = NULL;
	}
	return rc;
}

static bool layout_is_same(const struct sl_h5_layout *a, const struct sl_h5_layout *b)
{
	return a->codec == b->codec && a->gather == b->gather && a->level == b->level &&
	       a->sum == b->sum && a->contiguous == b->contiguous && a->precision == b->precision &&
	       !memcmp(a->chunk, b->chunk, a->rank * sizeof(a->chunk[0]));
}

/* An existing dataset may differ from the options; it is then continued as it is. */
static int series_adapt(struct sluice_series *s)
{
	int rc;

	sl_packer_drop(s);
	sl_bytes_give(s, s->decoded.length);
	sl_area_release(&s->decoded);
	drop_bundles(s);
	rc = shape_frames(s);
	if (!rc)
		rc = make_bundles(s);
	return rc ? rc : sl_packer_take(s);
}

/* The file changes when nothing can be refused any more. */
static int ask_dataset(struct sluice_series *s, const struct sl_h5_set_options *set)
{
	struct sl_h5_layout asked = s->layout;
	struct adding adding = {s, set, true};
	int rc = sl_writer_ask(s->writer, add_dataset, &adding);

	if (!rc && !layout_is_same(&asked, &s->layout))
		rc = series_adapt(s);
	adding.check = false;
	if (!rc)
		rc = sl_writer_ask(s->writer, add_dataset, &adding);
	s->layout.scalars = s->layout.dimensions = NULL;
	s->layout.attributes = NULL;
	return rc;
}

/* -------------------------------------------------------------------------------------- life */

void sl_series_close(struct sluice_series *s)
{
	/* The file thread knows errors already. */
	sluice_discard(s->file);
	sluice_discard(s->memory_file);
	s->file = s->memory_file = NULL;
}

void sl_series_free(struct sluice_series *s)
{
	if (!s)
		return;
	sl_series_close(s);
	sl_packer_drop(s);
	drop_bundles(s);
	sl_bytes_give(s, s->bytes);
	if (!s->kept)
		sl_area_release(&s->area);
	sl_area_release(&s->decoded);
	sl_share_free(s->share);
	pthread_cond_destroy(&s->freed);
	free(s->frames);
	free(s->frame_of);
	free(s->scalars);
	free(s->name);
	free(s);
}

/* With nothing but a name. */
static int series_alloc(struct sluice_writer *w, const char *name, unsigned depth,
                        struct sluice_series **out)
{
	struct sluice_series *s = *out = calloc(1, sizeof(*s));

	if (!s)
		return sl_fail(-ENOMEM, "no memory");
	s->writer = w;
	s->depth = depth ? depth : 2;
	pthread_cond_init(&s->freed, NULL);
	sl_list_init(&s->locked.free);
	sl_list_init(&s->locked.spare);
	sl_list_init(&s->locked.queue);
	sl_list_init(&s->locked.bundles);
	s->name = strdup(name);
	return s->name ? 0 : sl_fail(-ENOMEM, "no memory");
}

/* Everything but the dataset. */
static int series_fill(struct sluice_series *s)
{
	int rc = shape_frames(s);

	if (!rc)
		rc = make_frames(s);
	if (!rc)
		rc = make_bundles(s);
	if (!rc)
		rc = sl_packer_take(s);
	return rc ? rc : sl_memory_file_open(s);
}

void sl_series_enlist(struct sluice_series *s, struct sl_h5_dataset *dataset)
{
	struct sluice_writer *w = s->writer;

	s->dataset = dataset;
	sl_mutex_lock(&w->mutex);
	s->locked.next = s->first;
	sl_list_append(&w->queue.series, &s->locked.link);
	w->flush.dirty = true;
	pthread_cond_signal(&w->work);
	sl_mutex_unlock(&w->mutex);
}

int sl_series_make(struct sluice_writer *w, const char *name, unsigned depth,
                   const struct sl_h5_layout *layout, uint64_t first, struct sl_share *share,
                   struct sluice_series **out)
{
	struct sluice_series *s;
	int rc;

	sl_mutex_lock(&w->adding);
	rc = series_alloc(w, name, depth, &s);
	if (!rc) {
		s->layout = *layout;
		s->layout.scalars = s->layout.dimensions = NULL;
		s->layout.attributes = NULL;
		s->first = first;
		s->share = share;
		share->locked.limit = first + SLUICE_RANKS_AHEAD;
		share->locked.last = UINT64_MAX;
		rc = series_fill(s);
	}
	if (!rc)
		rc = sl_bytes_take(s, (share->stride + share->fragment_bytes) * SLUICE_RANKS_AHEAD);
	if (s && rc) {
		s->share = NULL;
		sl_series_free(s);
	} else {
		*out = s;
	}
	sl_mutex_unlock(&w->adding);
	return rc;
}

static int series_check_name_locked(struct sluice_writer *w, const char *name)
	SL_REQUIRES(&w->mutex)
{
	int rc = sl_writer_check_locked(w);

	sl_list_each_of (s, &w->queue.series, struct sluice_series, locked.link) {
		if (!rc && !strcmp(name + (*name == '/'), s->name + (*s->name == '/')))
			rc = sl_fail(-EEXIST, "this writer has a series '%s'", name);
	}
	return rc;
}

/* With writer->adding. */
static int series_add(struct sluice_writer *w, const char *name,
                      const struct sluice_series_options *o, struct sluice_series **out)
{
	struct sl_h5_set_options set = {0};
	struct sluice_series *s = NULL;
	int rc;

	sl_mutex_lock(&w->mutex);
	rc = series_check_name_locked(w, name);
	sl_mutex_unlock(&w->mutex);
	if (!rc)
		rc = series_alloc(w, name, o->depth, &s);
	if (!rc) {
		s->flags = o->flags;
		rc = sl_series_options(o, w->threads, &s->layout, &set);
	}
	if (!rc)
		rc = series_fill(s);
	if (!rc)
		rc = ask_dataset(s, &set);
	if (rc) {
		sl_series_free(s);
		return rc;
	}
	sl_series_enlist(s, s->dataset);
	*out = s;
	return 0;
}

int sluice_series_add(sluice_writer *w, const char *dataset, const struct sluice_series_options *o,
                      sluice_series **out)
{
	struct sluice_series_options options = {0};
	int rc = w ? sl_context_check(w->ctx)
	           : sl_fail(-EINVAL, "sluice_series_add: the writer is NULL");

	if (rc)
		return rc;
	if (!dataset || !dataset[dataset[0] == '/'] || !out)
		return sl_fail(-EINVAL, "sluice_series_add: %s",
		               out ? "the dataset has no name" : "out is NULL");
	if (!o || o->size < sizeof(o->size))
		return sl_fail(-EINVAL, "series options: %s", o ? "size is not set" : "missing");
	if (w->sink)
		return sl_fail(-EINVAL,
		               "'%s': series of a writer that ranks share are added by "
		               "sluice_series_add_block",
		               dataset);
	memcpy(&options, o, SL_MIN(o->size, sizeof(options)));
	sl_mutex_lock(&w->adding);
	rc = series_add(w, dataset, &options, out);
	sl_mutex_unlock(&w->adding);
	return rc;
}

int sluice_series_keep_memory(sluice_series *s, void **memory, size_t *bytes)
{
	int rc;

	if (!s || !memory || !bytes)
		return sl_fail(-EINVAL, "sluice_series_keep_memory: %s is NULL",
		               s ? "a result" : "the series");
	rc = sl_context_check(s->writer->ctx);
	if (rc)
		return rc;
	s->kept = true;
	*memory = s->area.memory;
	*bytes = s->area.length;
	return 0;
}
